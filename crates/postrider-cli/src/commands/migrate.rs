//! `postrider migrate`.

use std::process::ExitCode;

use postrider::Roles;

use crate::args::Migrate;
use crate::exit::Failure;
use crate::output::line;
use crate::target::{self, Missing};

pub async fn run(migrate: Migrate) -> Result<ExitCode, Failure> {
    if migrate.print_grants {
        return print_grants(&migrate).await;
    }
    // A dry run makes nothing, not even a file.
    let missing = if migrate.dry_run { Missing::Refuse } else { Missing::Make };
    for (name, source) in migrate.target.sources()? {
        let opened = target::open(name, &source, missing).await?;
        match migrate.dry_run {
            true => print_pending(&opened).await?,
            false => {
                let ran = opened.store.migrate().await?;
                let what = match ran.as_slice() {
                    [] => "the schema is up to date".to_owned(),
                    versions => format!("migrated: {}", joined(versions)),
                };
                line(&format!("{}: {what}", opened.name))?;
            }
        }
    }
    Ok(super::done())
}

async fn print_pending(opened: &target::Opened) -> Result<(), Failure> {
    let pending = opened.store.pending().await?;
    if pending.is_empty() {
        return line(&format!("-- {}: the schema is up to date", opened.name));
    }
    for (version, name, sql) in pending {
        line(&format!("-- {}: {version:04} {name}\n{sql}", opened.name))?;
    }
    Ok(())
}

/// The grants are text: the database need not answer.
async fn print_grants(migrate: &Migrate) -> Result<ExitCode, Failure> {
    let roles = Roles::new(&migrate.producer, &migrate.relay, &migrate.operator)
        .map_err(|error| Failure::usage(error.to_string()))?;
    for (name, source) in migrate.target.sources()? {
        let store = target::connect(&source, Missing::Refuse).await?;
        line(&format!("-- {name}\n{}", store.grants(&roles).trim_end()))?;
    }
    Ok(super::done())
}

fn joined(versions: &[i32]) -> String {
    versions.iter().map(|version| format!("{version:04}")).collect::<Vec<_>>().join(", ")
}
