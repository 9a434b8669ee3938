//! `postrider completions` and `postrider man`.

use std::path::Path;
use std::process::ExitCode;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::args::Arguments;
use crate::exit::Failure;
use crate::output::line;

pub fn completions(shell: Shell) -> Result<ExitCode, Failure> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "postrider", &mut script);
    line(String::from_utf8_lossy(&script).trim_end())?;
    Ok(super::done())
}

pub fn pages(directory: Option<&Path>) -> Result<ExitCode, Failure> {
    match directory {
        Some(directory) => {
            std::fs::create_dir_all(directory)?;
            clap_mangen::generate_to(Arguments::command(), directory)?;
        }
        None => {
            let mut page = Vec::new();
            clap_mangen::Man::new(Arguments::command()).render(&mut page)?;
            line(String::from_utf8_lossy(&page).trim_end())?;
        }
    }
    Ok(super::done())
}
