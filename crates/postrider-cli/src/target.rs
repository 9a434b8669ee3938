//! Which database a command is about.

use std::path::{Path, PathBuf};

use postrider::StoreError;
use postrider::any::{AnyStore, Connect};

use crate::args::Target;
use crate::config::{self, Admin, Config, Source};
use crate::exit::Failure;

/// The file that is read if no other is named.
const DEFAULT_FILE: &str = "postrider.toml";
/// The name of the source that was given on the command line.
pub const ONLY: &str = "default";

/// A database and its name in the configuration.
pub struct Opened {
    pub name: String,
    pub store: AnyStore,
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

    /// The sources that are meant: one by its address or name, or all of the configuration.
    pub fn sources(&self) -> Result<Vec<(String, Source)>, Failure> {
        if let Some(url) = &self.database_url {
            let source = Source { url: Some(url.clone()), schema: self.schema.clone(), ..Source::default() };
            return Ok(vec![(ONLY.to_owned(), source)]);
        }
        if self.config.is_none() && !is_configured() {
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

fn no_source() -> Failure {
    Failure::usage("which database? Give --database-url, or --config with a source in it")
}

/// Whether there is a configuration to be found without being named.
pub fn is_configured() -> bool {
    Path::new(DEFAULT_FILE).exists() || config::environment().any(|(name, _)| config::is_ours(&name))
}

fn refused(refused: &config::Refused) -> Failure {
    Failure::usage(format!("the configuration is refused\n{refused}"))
}

/// The admin endpoint of a file, or of the environment alone.
pub fn admin(file: Option<&Path>) -> Result<Admin, Failure> {
    match file.is_some() || Path::new(DEFAULT_FILE).exists() {
        true => Ok(load_quietly(file)?.config.admin),
        false => config::admin_of(config::environment()).map_err(|why| refused(&why)),
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
    let file = file.map(PathBuf::from).or_else(|| Some(PathBuf::from(DEFAULT_FILE)).filter(|file| file.exists()));
    config::load(file.as_deref(), config::environment()).map_err(|why| refused(&why))
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
    let names = source.names().map_err(|error| Failure::usage(error.to_string()))?;
    let options = Connect {
        names,
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
    Ok(Opened { name, store })
}
