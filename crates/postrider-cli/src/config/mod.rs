//! The configuration: a TOML file, and environment variables that override it.
//!
//! Both become one tree of values that know where they come from (`tree`, `environment`); the tree becomes the `model`
//! (`read`), and the model is checked (`check`). All that is wrong is reported at once, with its place and without any
//! value that could be a secret.

mod check;
mod database;
mod dispatcher;
mod environment;
mod layout;
mod model;
mod problem;
mod read;
mod reference;
mod shape;
mod sink;
#[cfg(test)]
mod tests;
mod tree;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::LazyLock;

use postrider_sinks::setting::Secret;

pub use environment::{environment, is_of_source};
pub use layout::Written;
pub use model::*;
pub use problem::{KeyPath, Problem, Refused};
pub use reference::{example, reference};
#[cfg(feature = "bench")]
pub use shape::nearest;
pub use sink::Sink;

use check::{Declared, check};
use environment::Variable;
use problem::{Findings, Origin, Step};
use shape::Shape;
use tree::Node;

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration.
    pub config: Config,
    /// What is allowed but hardly meant.
    pub warnings: Vec<Problem>,
}

static SHAPE: LazyLock<Shape> = LazyLock::new(Shape::of::<Config>);

/// Reads the file, if there is one, and the variables, which override it.
pub fn load(path: Option<&Path>, environment: impl Iterator<Item = Variable>) -> Result<Loaded, Refused> {
    let Some(path) = path else { return load_text("the environment", "", false, environment) };
    let name = path.display().to_string();
    let unreadable = |error: std::io::Error| {
        let mut findings = Findings::new(&name, "");
        findings.add(&Origin::Whole, KeyPath::default(), &format!("the file cannot be read: {error}"));
        findings
    };
    match read_file(path) {
        Err(error) => Err(unreadable(error).refused()),
        Ok((bytes, open)) => match String::from_utf8(bytes) {
            Ok(text) => load_text(&name, &text, open, environment),
            Err(error) => {
                let valid = String::from_utf8_lossy(&error.as_bytes()[..error.utf8_error().valid_up_to()]);
                let mut findings = Findings::new(&name, &valid);
                let said = "this is not UTF-8; save the file in that encoding";
                findings.add(&Origin::Offset(valid.len()), KeyPath::default(), said);
                Err(findings.refused())
            }
        },
    }
}

/// What is in a file, and whether other users can read it.
fn read_file(path: &Path) -> std::io::Result<(Vec<u8>, bool)> {
    let mut file = File::open(path)?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes)?;
    Ok((bytes, is_open_to_others(&file.metadata()?)))
}

#[cfg(unix)]
fn is_open_to_others(metadata: &std::fs::Metadata) -> bool {
    use std::os::unix::fs::PermissionsExt;
    metadata.permissions().mode() & 0o077 != 0
}

#[cfg(not(unix))]
fn is_open_to_others(_: &std::fs::Metadata) -> bool {
    false
}

pub(super) fn load_text(
    name: &str,
    text: &str,
    open_to_others: bool,
    environment: impl Iterator<Item = Variable>,
) -> Result<Loaded, Refused> {
    let (mut refused, mut warned) = (Findings::new(name, text), Findings::new(name, text));
    let mut tree = tree::parse(text, &mut refused);
    if !refused.is_empty() {
        return Err(refused.refused());
    }
    environment::apply(&mut tree, &SHAPE, environment, &mut refused);
    if open_to_others {
        warn_of_secrets(&tree, &SHAPE, &mut warned);
    }
    let declared = Declared::in_tree(&tree);
    read::prune(&mut tree, &SHAPE, &mut refused);
    let mut config: Config = read::read(&mut tree, &mut refused);
    config.describe(&tree);
    let warnings = check(&config, &tree, &declared, refused, warned)?;
    Ok(Loaded { config, warnings })
}

fn warn_of_secrets(tree: &Node, shape: &Shape, warned: &mut Findings) {
    let mut found = Vec::new();
    read::secrets_in_plain_sight(tree, shape, &KeyPath::default(), &mut found);
    for (node, path) in found {
        let is_source = matches!(path.section().first(), Some(Step::Key(key)) if key == "source");
        if is_source && node.text().is_some_and(database::is_without_secret) {
            continue;
        }
        let said = "other users of this machine can read this secret; chmod 600 the file, or write \
                    { file = \"/path\" } or { env = \"NAME\" } instead";
        warned.add(&node.origin, path, said);
    }
}

/// The configuration that variables alone make, unchecked.
fn read_variables(environment: impl Iterator<Item = Variable>, refused: &mut Findings) -> (Node, Config) {
    let mut tree = Node::empty(Origin::Whole);
    environment::apply(&mut tree, &SHAPE, environment, refused);
    read::prune(&mut tree, &SHAPE, refused);
    let config = read::read(&mut tree, refused);
    (tree, config)
}

/// The admin endpoint of a relay that runs without a file.
pub fn admin_of(environment: impl Iterator<Item = Variable>) -> Result<Admin, Refused> {
    let mut refused = Findings::new("the environment", "");
    let (_, config) = read_variables(environment, &mut refused);
    if refused.is_empty() { Ok(config.admin) } else { Err(refused.refused()) }
}

/// A configuration without a file: all messages of one database to one sink, `stdout` or an http(s) address. The
/// variables set the rest.
pub fn from_flags(
    database_url: Secret,
    sink: &str,
    environment: impl Iterator<Item = Variable>,
) -> Result<Loaded, Refused> {
    const PLACE: &str = "the command line";
    const NAME: &str = "default";
    let mut refused = Findings::new(PLACE, "");
    let (tree, mut config) = read_variables(environment, &mut refused);
    let (sink, destination) = match sink {
        "stdout" => (Sink::Stdout(Box::default()), None),
        #[cfg(feature = "http")]
        address if address.starts_with("http://") || address.starts_with("https://") => {
            let configured = config.sink.remove(NAME).filter(|sink| matches!(sink, Sink::Http(_)));
            (configured.unwrap_or_else(|| Sink::Http(Box::default())), Some(address.to_owned()))
        }
        _ => {
            let said = "there is no such sink; write stdout, or an address that begins with https://";
            refused.add(&Origin::Whole, KeyPath::from(["sink"]), said);
            return Err(refused.refused());
        }
    };
    config.source.retain(|name, _| name == NAME);
    config.source.entry(NAME.to_owned()).or_default().url = Some(database_url);
    config.describe(&tree);
    config.sink = BTreeMap::from([(NAME.to_owned(), sink)]);
    config.route = vec![Route { sink: NAME.to_owned(), destination, ..Route::default() }];
    let declared = Declared::in_tree(&tree).with(config.source.keys().cloned(), config.sink.keys().cloned());
    let warnings = check(&config, &tree, &declared, refused, Findings::new(PLACE, ""))?;
    Ok(Loaded { config, warnings })
}
