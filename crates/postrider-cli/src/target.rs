//! Which database a command is about.

use std::path::{Path, PathBuf};

use postrider::any::{AnyStore, Connect};
use postrider::layout::{Ability, preset};
use postrider::{Layout, Scope, Sight, StoreError, Use};
use postrider_sinks::setting::Secret;
use uuid::Uuid;

use crate::args::Target;
use crate::config::{self, Admin, Config, Source, Written};
use crate::exit::Failure;

/// Where the address of a database may be, so that it is in no command line.
const URL_VARIABLE: &str = "POSTRIDER_DATABASE_URL";
/// Where the name of the configuration file may be.
const FILE_VARIABLE: &str = "POSTRIDER_CONFIG";
/// The file that is read if no other is named.
const DEFAULT_FILE: &str = "postrider.toml";
/// The name of the source that was given on the command line.
pub const ONLY: &str = "default";

/// A database and its name in the configuration.
pub struct Opened {
    pub name: String,
    pub store: AnyStore,
    /// The only tenant that the source is for, if it says so.
    tenant: Option<Uuid>,
    /// The setting that says whose a transaction is.
    pub tenant_setting: String,
    /// What its table looks like.
    layout: Layout,
}

impl Opened {
    /// A tenant as it was asked for, or else the one that the source is for. Another one than that is refused, and any where the table
    /// has none: "no messages" would be a wrong answer.
    pub fn tenant(&self, asked: Option<Uuid>) -> Result<Option<Uuid>, Failure> {
        match (asked, self.tenant) {
            (Some(_), _) if !self.layout.can(Ability::Tenants) => Err(Failure::usage(format!(
                "source {:?}: the layout {:?} cannot do this: {}; leave the tenant out",
                self.name,
                self.layout.name,
                Ability::Tenants.without()
            ))),
            (Some(asked), Some(only)) if asked != only => Err(Failure::usage(format!(
                "source {:?} is for tenant {only} only; name a source without a tenant, or give --database-url",
                self.name
            ))),
            _ => Ok(asked.or(self.tenant)),
        }
    }

    /// The only tenant that the source is for, if it says so.
    pub fn only(&self) -> Option<Uuid> {
        self.tenant
    }

    /// Refuses a source that is for one tenant, for what is of all tenants together.
    pub fn refuse_one_tenant(&self, what: &str) -> Result<(), Failure> {
        match self.tenant {
            Some(only) => Err(Failure::usage(format!(
                "source {:?} is for tenant {only} only, and {what}; name a source without a tenant, or give --database-url",
                self.name
            ))),
            None => Ok(()),
        }
    }

    /// Refuses a role to which row security shows no message, because "no messages" would be a wrong answer. One that is shown
    /// some, nobody knows which, is warned of; one whose session asks for a tenant gets what it asks for.
    pub async fn sees_messages(&self, to: Use) -> Result<(), Failure> {
        match self.store.sight(to).await? {
            Sight::Nothing(why) => Err(Failure::failed(format!("source {:?}: {why}", self.name))),
            Sight::Part(why) => {
                eprintln!("postrider: warning: source {:?}: {why}", self.name);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// A scope as it was asked for, within what the source is for.
    pub fn within(&self, scope: Scope) -> Result<Scope, Failure> {
        Ok(Scope { tenant: self.tenant(scope.tenant)?, ..scope })
    }
}

impl Target {
    /// The one database that is meant; it answers.
    pub async fn open(&self) -> Result<Opened, Failure> {
        let mut sources = self.sources()?;
        if sources.len() > 1 {
            let names: Vec<&str> = sources.iter().map(|(name, _)| name.as_str()).collect();
            return Err(Failure::usage(format!("which source? Name one with --source: {}", names.join(", "))));
        }
        match sources.pop() {
            Some((name, source)) => open(name, &source, Missing::Refuse).await,
            None => Err(no_source()),
        }
    }

    /// The one database that is meant, for a command that looks at messages: its role sees them.
    pub async fn open_to_look(&self) -> Result<Opened, Failure> {
        let opened = self.open().await?;
        opened.sees_messages(Use::Read).await?;
        Ok(opened)
    }

    /// The one database that is meant, for a command that changes messages: its role sees them, and its schema is the one we know.
    pub async fn open_to_change_messages(&self) -> Result<Opened, Failure> {
        let opened = self.open_to_change().await?;
        opened.sees_messages(Use::Change).await?;
        Ok(opened)
    }

    /// The one database that is meant, for a command that changes something: its schema is the one we know.
    pub async fn open_to_change(&self) -> Result<Opened, Failure> {
        let opened = self.open().await?;
        opened.store.check_schema().await?;
        Ok(opened)
    }

    /// The address that was given, by the option or else by the variable.
    pub fn url(&self) -> Option<Secret> {
        let from_file = self.config.is_some() || self.source.is_some();
        let variable = || variable(URL_VARIABLE).filter(|_| !from_file).map(Secret::new);
        self.database_url.clone().or_else(variable)
    }

    /// What the options say of a source without a configuration.
    pub fn apply(&self, source: &mut Source) -> Result<(), Failure> {
        source.schema = self.schema.clone().or(source.schema.take());
        if let Some(prefix) = &self.prefix {
            source.prefix.clone_from(prefix);
        }
        if let Some(table) = &self.table {
            source.table.clone_from(table);
        }
        source.behind_pooler |= self.behind_pooler;
        let layout = match &self.layout {
            Some(name) => preset(name).map_err(|error| Failure::usage(error.to_string()))?,
            None => source.described.clone(),
        };
        source.layout = layout.name.to_string();
        let before = source.written;
        let written = Written {
            prefix: before.prefix || self.prefix.is_some(),
            table: before.table || self.table.is_some(),
            ..before
        };
        source.describe(layout, written).map_err(|error| Failure::usage(error.to_string()))
    }

    /// The sources that are meant: one by its address or name, or all of the configuration.
    pub fn sources(&self) -> Result<Vec<(String, Source)>, Failure> {
        if let Some(url) = self.url() {
            let mut source = Source { url: Some(url), ..Source::default() };
            self.apply(&mut source)?;
            return Ok(vec![(ONLY.to_owned(), source)]);
        }
        if !is_configured(self.config.as_deref()) {
            return Err(no_source());
        }
        let all = load(self.config.as_deref())?.source;
        let Some(wanted) = &self.source else {
            return match all.is_empty() {
                true => Err(no_source()),
                false => Ok(all.into_iter().collect()),
            };
        };
        match all.get_key_value(wanted) {
            Some((name, source)) => Ok(vec![(name.clone(), source.clone())]),
            None => {
                let known: Vec<&str> = all.keys().map(String::as_str).collect();
                let what = format!("the configuration has no source {wanted:?}; it has: {}", known.join(", "));
                Err(Failure::usage(what))
            }
        }
    }
}

/// A variable that says something.
fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// The file that was named, by the option or else by the variable, or the default one if it is there.
fn file_of(named: Option<&Path>) -> Option<PathBuf> {
    let default = || Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists());
    named.map(PathBuf::from).or_else(|| variable(FILE_VARIABLE).map(PathBuf::from)).or_else(default)
}

fn no_source() -> Failure {
    Failure::usage("which database? Give --database-url, or --config with a source in it")
}

/// Whether there is a configuration with a source in it, by its looks.
pub fn is_configured(named: Option<&Path>) -> bool {
    file_of(named).is_some() || config::environment().any(|(name, _)| config::is_of_source(&name))
}

fn refused(refused: &config::Refused) -> Failure {
    Failure::usage(format!("the configuration is refused\n{refused}"))
}

/// The admin endpoint of a file, or of the environment alone.
pub fn admin(file: Option<&Path>) -> Result<Admin, Failure> {
    match file_of(file) {
        Some(_) => Ok(load_quietly(file)?.config.admin),
        None => config::admin_of(config::environment()).map_err(|why| refused(&why)),
    }
}

/// Loads the configuration of a file, or of `postrider.toml` if that is there, and of the environment. Warnings go to
/// standard error.
pub fn load(file: Option<&Path>) -> Result<Config, Failure> {
    let loaded = load_quietly(file)?;
    loaded.warnings.iter().for_each(|warning| eprintln!("postrider: warning: {warning}"));
    Ok(loaded.config)
}

/// The same without printing anything.
pub fn load_quietly(file: Option<&Path>) -> Result<config::Loaded, Failure> {
    config::load(file_of(file).as_deref(), config::environment()).map_err(|why| refused(&why))
}

/// Whether an SQLite file that is missing is made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Missing {
    Make,
    Refuse,
}

/// A source's store. Only an SQLite file is opened already.
pub async fn connect(source: &Source, missing: Missing) -> Result<AnyStore, Failure> {
    let url = source.url.as_ref().ok_or_else(|| Failure::usage("the source has no url"))?;
    let options = Connect {
        layout: source.described.clone(),
        connections: source.connections,
        application_name: "postrider".into(),
        behind_pooler: source.behind_pooler,
        create: missing == Missing::Make,
        ..Connect::default()
    };
    AnyStore::connect(url.expose(), &options).await.map_err(Failure::from)
}

/// Connects to a source and waits for its answer.
pub async fn open(name: String, source: &Source, missing: Missing) -> Result<Opened, Failure> {
    let store = connect(source, missing).await?;
    let unreachable =
        |error: StoreError| Failure::failed(format!("source {name:?}: {}", crate::exit::with_causes(&error)));
    store.ping().await.map_err(unreachable)?;
    let tenant_setting = source.tenants.setting.clone();
    Ok(Opened { name, store, tenant: source.tenant, tenant_setting, layout: source.described.clone() })
}
