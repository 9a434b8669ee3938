//! Checks that event ids of two tables differ, where they are made of whole numbers.

use postrider::layout::IdKind;
use url::Url;

use super::Check;
use crate::config::database::Database;
use crate::config::model::Source;
use crate::config::problem::KeyPath;

/// The port of PostgreSQL, where an address says none.
const USUAL_PORT: u16 = 5432;
/// The schema where nothing else is said.
const USUAL_SCHEMA: &str = "public";

impl Check<'_> {
    /// Such an id is made of names, and two servers may have a database, a schema and a table of the same names: a consumer
    /// that knows the id of the one drops the message of the other.
    pub(super) fn ids(&mut self) {
        let enabled = self.config.source.iter().filter(|(_, source)| source.enabled);
        let made: Vec<_> = enabled.filter_map(|(name, source)| Some((name, Made::of(source)?))).collect();
        for (at, (name, one)) in made.iter().enumerate() {
            if let Some((other, _)) = made[..at].iter().find(|(_, other)| one.meets(other)) {
                let said = format!(
                    "source {other:?} has a database, a schema and a table of the same names on another server, and ids that are whole numbers: messages of \
                     the two would have the same event ids; give one of them a layout with an id_salt, or write the same host if it is the same server"
                );
                self.refuse(KeyPath::from(["source", name, "layout"]), &said);
            }
        }
    }
}

/// What event ids are made of besides the number, and on which server.
struct Made<'a> {
    server: (String, u16),
    names: [&'a str; 3],
    database: String,
}

impl<'a> Made<'a> {
    /// Of a source whose ids are whole numbers, if its address can be read.
    fn of(source: &'a Source) -> Option<Self> {
        let layout = &source.described;
        let url = source.url.as_ref()?.expose();
        if layout.id_kind != IdKind::Integer || Database::of(url) != Ok(Database::Postgres) {
            return None;
        }
        let url = Url::parse(url).ok()?;
        let option =
            |names: &[&str]| url.query_pairs().find(|(key, _)| names.contains(&&**key)).map(|(_, value)| value);
        let host = option(&["host", "hostaddr"]).map(String::from).or(url.host_str().map(str::to_owned));
        let port = option(&["port"]).and_then(|port| port.parse().ok()).or(url.port());
        // Without a name it is the user's.
        let path = Some(url.path().trim_start_matches('/')).filter(|path| !path.is_empty());
        let database = option(&["dbname"]).map(String::from);
        let database = database.or(path.map(str::to_owned)).unwrap_or_else(|| url.username().to_owned());
        let names = &layout.names;
        Some(Self {
            server: (host.unwrap_or_default().to_ascii_lowercase(), port.unwrap_or(USUAL_PORT)),
            names: [
                names.schema().unwrap_or(USUAL_SCHEMA),
                names.table(),
                layout.id_salt.as_deref().unwrap_or_default(),
            ],
            database,
        })
    }

    /// Whether ids of the one are ids of the other, though the tables are not the same.
    fn meets(&self, other: &Self) -> bool {
        self.server != other.server && self.names == other.names && self.database == other.database
    }
}
