//! `postrider migrate`.

use std::path::Path;
use std::process::ExitCode;

use postrider::Roles;
use postrider_sinks::setting::Secret;

use crate::args::Migrate;
use crate::config::Source;
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
        let opened = match target::open(name.clone(), &source, missing).await {
            Err(_) if migrate.dry_run && is_missing_file(&source) => {
                print_all(&name).await?;
                continue;
            }
            opened => opened?,
        };
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

fn is_missing_file(source: &Source) -> bool {
    let path = source.url.as_ref().and_then(|url| url.expose().strip_prefix("sqlite:"));
    path.is_some_and(|path| !Path::new(path.trim_start_matches("//")).exists())
}

/// What a new SQLite file would get.
async fn print_all(name: &str) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("postrider-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&directory)?;
    let url = Secret::new(format!("sqlite:{}", directory.join("dry-run.db").display()));
    let printed = async {
        let source = Source { url: Some(url), ..Source::default() };
        let opened = target::open(name.to_owned(), &source, Missing::Make).await?;
        let printed = print_pending(&opened).await;
        opened.store.close().await;
        printed
    };
    let printed = printed.await;
    std::fs::remove_dir_all(&directory)?;
    printed
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
