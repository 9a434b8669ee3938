//! `postrider migrate`.

use std::path::Path;
use std::process::ExitCode;

use postrider::any::AnyStore;
use postrider::{Roles, TenantProtection, TenantSetting};
use postrider_sinks::setting::Secret;

use crate::args::Migrate;
use crate::config::Source;
use crate::exit::Failure;
use crate::output::line;
use crate::target::{self, Missing};

/// The role of applications, where none is named.
const PRODUCER: &str = "postrider_producer";

pub async fn run(migrate: Migrate) -> Result<ExitCode, Failure> {
    if migrate.print_grants {
        return print_grants(&migrate).await;
    }
    let sources = migrate.target.sources()?;
    for (name, source) in &sources {
        refuse_unprotectable(&migrate, name, source).await?;
    }
    // A dry run makes nothing, not even a file.
    let missing = if migrate.dry_run { Missing::Refuse } else { Missing::Make };
    for (name, source) in sources {
        let opened = match target::open(name.clone(), &source, missing).await {
            Err(_) if migrate.dry_run && is_missing_file(&source) => {
                in_new_file(&name, print_pending).await?;
                continue;
            }
            opened => opened?,
        };
        let protection = protection(&migrate, &source)?;
        match migrate.dry_run {
            true => {
                print_pending(&opened).await?;
                print_protection(&migrate, &opened.store, protection.as_ref()).await?;
            }
            false => {
                let ran = opened.store.migrate().await?;
                let what = match ran.as_slice() {
                    [] => "the schema is up to date".to_owned(),
                    versions => format!("migrated: {}", joined(versions)),
                };
                line(&format!("{}: {what}", opened.name))?;
                protect(&migrate, &opened, protection.as_ref()).await?;
            }
        }
    }
    Ok(super::done())
}

/// Refuses what cannot be protected, before anything is changed in any source: a database without row-level security, a table of
/// another shape, a role that is not there.
async fn refuse_unprotectable(migrate: &Migrate, name: &str, source: &Source) -> Result<(), Failure> {
    let protection = protection(migrate, source)?;
    if protection.is_none() && !migrate.no_row_level_security {
        return Ok(());
    }
    let ask = async |opened: &target::Opened| {
        let asked = match &protection {
            Some(protection) => opened.store.protect_tenants_pending(protection).await,
            None => opened.store.unprotect_tenants_pending().await,
        };
        asked.map(|_| ()).map_err(|error| Failure::from(error).after(&format!("source {name:?}: ")))
    };
    // A file that is missing would be made by asking it.
    if is_missing_file(source) {
        return in_new_file(name, ask).await;
    }
    let opened = target::open(name.to_owned(), source, Missing::Refuse).await?;
    let asked = ask(&opened).await;
    opened.store.close().await;
    asked
}

/// Switches row-level security on or off, if that is asked for.
async fn protect(
    migrate: &Migrate,
    opened: &target::Opened,
    protection: Option<&TenantProtection>,
) -> Result<(), Failure> {
    let (ran, state) = match protection {
        Some(protection) => {
            let warnings = opened.store.protection_warnings(protection).await?;
            let ran = opened.store.protect_tenants(protection).await?;
            warnings.iter().for_each(|warning| eprintln!("postrider: warning: {warning}"));
            (ran, "on".to_owned())
        }
        None if migrate.no_row_level_security => {
            let ran = opened.store.unprotect_tenants().await?;
            (ran, left(opened.store.row_security_left().await?.as_deref()))
        }
        None => return Ok(()),
    };
    let changed = if ran.is_empty() { "already " } else { "" };
    line(&format!("{}: row-level security is {changed}{state}", opened.name))
}

/// What is so after ours was taken back.
fn left(others: Option<&[String]>) -> String {
    match others {
        None => "off".to_owned(),
        Some(others) => format!(
            "without Postrider's policies and still on, because of policies of others: {}; whom none of them lets see rows sees none, a relay too",
            others.join(", ")
        ),
    }
}

async fn print_protection(
    migrate: &Migrate,
    store: &AnyStore,
    protection: Option<&TenantProtection>,
) -> Result<(), Failure> {
    let pending = match protection {
        Some(protection) => {
            let pending = store.protect_tenants_pending(protection).await?;
            for warning in store.protection_warnings(protection).await? {
                line(&format!("-- warning: {warning}"))?;
            }
            pending
        }
        None if migrate.no_row_level_security => store.unprotect_tenants_pending().await?,
        None => return Ok(()),
    };
    if pending.is_empty() {
        // What others have made may keep it on.
        return match protection.is_none().then_some(store.row_security_left().await?).flatten() {
            Some(others) => line(&format!("-- row-level security is {}", left(Some(&others)))),
            None => line("-- row-level security is as asked for"),
        };
    }
    line("-- row-level security, to be run as the table's owner")?;
    pending.iter().try_for_each(|sql| line(&format!("{sql};")))
}

/// The protection that is asked for; what the command line leaves out the source says.
fn protection(migrate: &Migrate, source: &Source) -> Result<Option<TenantProtection>, Failure> {
    if !migrate.row_level_security {
        return Ok(None);
    }
    let usage = |error: &dyn std::error::Error| Failure::usage(error.to_string());
    let name = migrate.tenant_setting.as_ref().unwrap_or(&source.tenants.setting);
    let setting = TenantSetting::new(name).map_err(|error| usage(&error))?;
    let protection = TenantProtection::new(roles(migrate, source)?).map_err(|error| usage(&error))?;
    let protection = protection.setting(setting).require_tenant(migrate.require_tenant);
    Ok(Some(protection.replace_roles(migrate.replace_roles)))
}

fn roles(migrate: &Migrate, source: &Source) -> Result<Roles, Failure> {
    let configured = migrate.producer.as_ref().or(source.tenants.application_role.as_ref());
    let producer = configured.map_or(PRODUCER, String::as_str);
    let roles = Roles::new(producer, &migrate.relay, &migrate.operator);
    let roles = match &migrate.reader {
        Some(reader) => roles.and_then(|roles| roles.with_reader(reader)),
        None => roles,
    };
    roles.map_err(|error| Failure::usage(error.to_string()))
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

/// Asks an SQLite file that is new, and gone afterwards.
async fn in_new_file(name: &str, ask: impl AsyncFnOnce(&target::Opened) -> Result<(), Failure>) -> Result<(), Failure> {
    let directory = std::env::temp_dir().join(format!("postrider-{}", uuid::Uuid::new_v4()));
    std::fs::create_dir(&directory)?;
    let url = Secret::new(format!("sqlite:{}", directory.join("dry-run.db").display()));
    let asked = async {
        let source = Source { url: Some(url), ..Source::default() };
        let opened = target::open(name.to_owned(), &source, Missing::Make).await?;
        let asked = ask(&opened).await;
        opened.store.close().await;
        asked
    };
    let asked = asked.await;
    std::fs::remove_dir_all(&directory)?;
    asked
}

/// The grants are text: the database need not answer.
async fn print_grants(migrate: &Migrate) -> Result<ExitCode, Failure> {
    for (name, source) in migrate.target.sources()? {
        let roles = roles(migrate, &source)?;
        let store = target::connect(&source, Missing::Refuse).await?;
        let grants = match migrate.row_level_security {
            true => store.grants_with_row_security(&roles),
            false => store.grants(&roles),
        };
        line(&format!("-- {name}\n{}", grants.trim_end()))?;
    }
    Ok(super::done())
}

fn joined(versions: &[i32]) -> String {
    versions.iter().map(|version| format!("{version:04}")).collect::<Vec<_>>().join(", ")
}
