//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use postrider_changelog::{After, InvalidCursor};
use postrider_sinks::setting::{Secret, duration};
use uuid::Uuid;

#[cfg(feature = "bench")]
use crate::bench;
use crate::demo;

/// A transactional outbox: the relay that delivers its messages, and the operator's tool.
#[derive(Debug, Parser)]
#[command(name = "postrider", version, propagate_version = true, arg_required_else_help = true)]
#[command(after_help = "Exit codes: 0 done, 1 failed, 2 wrong usage, 3 stopped with publishes under way.")]
pub struct Arguments {
    /// When to use colours.
    #[arg(long = "color", alias = "colour", global = true, value_name = "WHEN", default_value = "auto")]
    pub colour: Colour,
    #[command(subcommand)]
    pub command: Command,
}

/// When to use colours.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Colour {
    /// On a terminal, unless NO_COLOR is set.
    Auto,
    Always,
    Never,
}

#[derive(Debug, Subcommand)]
#[allow(clippy::large_enum_variant)] // there is one of it
pub enum Command {
    /// Deliver messages until told to stop.
    Run(Run),
    /// Bring the database's schema up to date.
    Migrate(Migrate),
    /// Write a message, or one per line of standard input.
    Enqueue(Enqueue),
    /// Show what waits, runs and is dead.
    Status(Status),
    /// Look at dead messages, put them back, or give them up for good.
    #[command(subcommand)]
    Dead(Dead),
    /// Delete finished messages of a certain age.
    Purge(Purge),
    /// Read the changelog, and see how far its consumers are.
    #[command(subcommand)]
    Changelog(Changelog),
    /// Show what operators did: replays, discards, purges.
    Audit(Audit),
    /// Examine databases and sinks for what is wrong, slow or fragile.
    Doctor(Doctor),
    /// Ask a running relay how it is, by its admin endpoint; fails if it is not well.
    Health(Health),
    /// Work with outbox tables that were there before: see which are known, compare a table, describe one.
    #[command(subcommand)]
    Layout(Layout),
    /// Check the configuration, or show what can be configured.
    #[command(subcommand)]
    Config(Config),
    /// Show it all on SQLite, without any server: a shop, a failing line, and a proof at the end.
    Demo(demo::Options),
    /// Measure how fast it is on your databases, beside bare SQL, with every message accounted for.
    #[cfg(feature = "bench")]
    Bench(bench::args::Bench),
    /// Print a script for the shell that completes commands.
    Completions { shell: Shell },
    /// Print the manual page, or write one per command into a directory.
    Man {
        /// Where to write the pages.
        #[arg(long, value_name = "DIR")]
        directory: Option<PathBuf>,
    },
}

/// Which database a command is about.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Database")]
pub struct Target {
    /// The database: postgres://…, mysql://… or sqlite:PATH. If it holds a password, better by the variable
    /// POSTRIDER_DATABASE_URL, which is used when neither this nor --config nor --source is given.
    #[arg(long, visible_alias = "url", value_name = "URL", value_parser = secret, conflicts_with_all = ["config", "source"])]
    pub database_url: Option<Secret>,
    /// The configuration file; the variable POSTRIDER_CONFIG or ./postrider.toml unless given.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Which source of the configuration, if it has several.
    #[arg(long, short, value_name = "NAME")]
    pub source: Option<String>,
    /// What the table looks like, where there is no configuration: a name of `postrider layout list`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "source"])]
    pub layout: Option<String>,
    /// The schema of the outbox, where there is no configuration.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "source"])]
    pub schema: Option<String>,
    /// What the names of functions and auxiliary tables begin with, where there is no configuration.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "source"])]
    pub prefix: Option<String>,
    /// The table of messages, where there is no configuration.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["config", "source"])]
    pub table: Option<String>,
    /// A pooler in transaction mode (PgBouncer) is in between, where there is no configuration.
    #[arg(long, conflicts_with_all = ["config", "source"])]
    pub behind_pooler: bool,
}

pub fn secret(text: &str) -> Result<Secret, String> {
    Ok(Secret::new(text))
}

fn time(text: &str) -> Result<i64, String> {
    crate::output::parse_time(text)
}

#[derive(Debug, Args)]
pub struct Run {
    /// Where messages go, instead of the configuration's sinks and routes: `stdout`, or an http(s) address.
    #[arg(long, value_name = "SINK", conflicts_with_all = ["config", "source"])]
    pub sink: Option<String>,
    /// Bring the schema up to date first.
    #[arg(long)]
    pub migrate: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
#[command(group(clap::ArgGroup::new("for_roles").multiple(true)))]
pub struct Migrate {
    /// Print the SQL that would be run, and run nothing.
    #[arg(long)]
    pub dry_run: bool,
    /// Print the SQL that gives roles the rights they need, and run nothing. With --row-level-security applications get none
    /// to the changelog, whose entries have no tenant.
    #[arg(long, group = "for_roles")]
    pub print_grants: bool,
    /// Keep tenants apart by row-level security (PostgreSQL), for the roles below, which must be there. Run it as the
    /// table's owner; a second run changes nothing.
    #[arg(long, group = "for_roles", conflicts_with = "no_row_level_security")]
    pub row_level_security: bool,
    /// Take back what --row-level-security did.
    #[arg(long, conflicts_with = "print_grants")]
    pub no_row_level_security: bool,
    /// The role of applications; postrider_producer, or the application_role of the configuration, unless given.
    #[arg(long, visible_alias = "application", value_name = "ROLE", requires = "for_roles")]
    pub producer: Option<String>,
    /// The role of `postrider run`.
    #[arg(long, value_name = "ROLE", default_value = "postrider_relay", requires = "for_roles")]
    pub relay: String,
    /// The role of status, dead, purge, audit and doctor.
    #[arg(long, value_name = "ROLE", default_value = "postrider_operator", requires = "for_roles")]
    pub operator: String,
    /// A role that only looks, at no payload; none unless given.
    #[arg(long, value_name = "ROLE", requires = "for_roles")]
    pub reader: Option<String>,
    /// With --row-level-security, the setting that says whose a transaction is; app.current_tenant_id, or the setting of
    /// the configuration, unless given.
    #[arg(long, value_name = "NAME", requires = "row_level_security")]
    pub tenant_setting: Option<String>,
    /// With --row-level-security, refuse rows without a tenant, whoever writes them.
    #[arg(long, requires = "row_level_security")]
    pub require_tenant: bool,
    /// With --row-level-security, let the roles of this run take the place of those of an earlier one, which are then shown no message.
    #[arg(long, requires = "row_level_security")]
    pub replace_roles: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Enqueue {
    /// The producer's namespace.
    #[arg(long, short)]
    pub namespace: String,
    /// The topic.
    #[arg(long, short)]
    pub topic: String,
    /// The ordering and partition key.
    #[arg(long, short)]
    pub key: Option<String>,
    /// The tenant; the source's unless given.
    #[arg(long, value_parser = tenant)]
    pub tenant: Option<Uuid>,
    /// At most one message with this key is written.
    #[arg(long, conflicts_with = "lines")]
    pub dedupe_key: Option<String>,
    /// A header; may be given several times.
    #[arg(long = "header", short = 'H', value_name = "NAME=VALUE", value_parser = header)]
    pub headers: Vec<(String, String)>,
    /// Deliver after this time, such as 5m.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub delay: Option<Duration>,
    /// How often it is tried, instead of the relay's number.
    #[arg(long, value_name = "N")]
    pub max_attempts: Option<u32>,
    /// Send the payload byte for byte with this content type instead of as JSON.
    #[arg(long, value_name = "TYPE", conflicts_with = "lines")]
    pub content_type: Option<String>,
    /// One message per line of standard input, each line a JSON payload.
    #[arg(long, conflicts_with_all = ["payload", "file"])]
    pub lines: bool,
    /// Read the payload from a file; `-` is standard input.
    #[arg(long, value_name = "FILE", conflicts_with = "payload")]
    pub file: Option<PathBuf>,
    /// The payload, as JSON.
    #[arg(required_unless_present_any = ["lines", "file"])]
    pub payload: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

fn header(text: &str) -> Result<(String, String), String> {
    let (name, value) = text.split_once('=').ok_or("a header is NAME=VALUE")?;
    Ok((name.to_owned(), value.to_owned()))
}

#[derive(Debug, Args)]
pub struct Status {
    /// Show it again and again.
    #[arg(long, short)]
    pub watch: bool,
    /// With --watch, how often.
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "2s")]
    pub every: Duration,
    /// Leave delivered messages out, which take time to count where there are millions.
    #[arg(long)]
    pub no_delivered: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub scope: Scope,
}

/// Whose messages.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which messages")]
pub struct Scope {
    /// Of this namespace; may be given several times.
    #[arg(long, short, value_name = "NAME")]
    pub namespace: Vec<String>,
    /// Of this tenant.
    #[arg(long, value_name = "UUID", value_parser = tenant)]
    pub tenant: Option<Uuid>,
}

#[derive(Debug, Subcommand)]
pub enum Dead {
    /// List dead messages, those that died first before the others.
    List(DeadList),
    /// Show a message with its headers and payload.
    Show(DeadShow),
    /// Put dead messages back to be delivered, with all their attempts. A dry run without --yes.
    Replay(DeadReplay),
    /// Delete dead messages. A dry run without --yes.
    Discard(DeadChange),
}

/// Which dead messages.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Which messages")]
pub struct Filter {
    /// With these ids.
    #[arg(value_name = "ID")]
    pub ids: Vec<Uuid>,
    /// Of this topic.
    #[arg(long, short, value_name = "NAME")]
    pub topic: Option<String>,
    /// Of this key.
    #[arg(long, short, value_name = "KEY")]
    pub key: Option<String>,
    /// That died since then: 2h (ago), or 2026-01-31T12:00:00Z.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub since: Option<i64>,
    /// That died before then.
    #[arg(long, value_name = "TIME", value_parser = time)]
    pub until: Option<i64>,
    /// Whose error contains this text.
    #[arg(long, short, value_name = "TEXT")]
    pub error: Option<String>,
    #[command(flatten)]
    pub scope: Scope,
}

#[derive(Debug, Args)]
pub struct DeadList {
    /// The most messages to list.
    #[arg(long, value_name = "N", default_value_t = 100)]
    pub limit: usize,
    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub filter: Filter,
}

#[derive(Debug, Args)]
pub struct DeadShow {
    /// The message.
    pub id: Uuid,
    /// Only if it is of this tenant.
    #[arg(long, value_name = "UUID", value_parser = tenant)]
    pub tenant: Option<Uuid>,
    /// Do not show the payload.
    #[arg(long)]
    pub no_payload: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

/// Whether to act.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Doing it")]
pub struct Consent {
    /// Do it. Without this it is only said what would be done.
    #[arg(long)]
    pub yes: bool,
    /// Do it if exactly so many messages match, and nothing otherwise.
    #[arg(long, value_name = "N", conflicts_with = "yes")]
    pub confirm: Option<u64>,
    /// Who you are, for the audit table; your user and host name unless given.
    #[arg(long = "as", value_name = "NAME", env = "POSTRIDER_OPERATOR")]
    pub who: Option<String>,
}

#[derive(Debug, Args)]
pub struct DeadReplay {
    /// The most messages to put back per second; as fast as it goes unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    pub rate: Option<u32>,
    #[command(flatten)]
    pub change: DeadChange,
}

/// Which dead messages to change, and whether.
#[derive(Debug, Args)]
pub struct DeadChange {
    /// All dead messages.
    #[arg(long)]
    pub all: bool,
    /// The most messages.
    #[arg(long, value_name = "N")]
    pub limit: Option<u64>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub filter: Filter,
    #[command(flatten)]
    pub consent: Consent,
}

#[derive(Debug, Args)]
pub struct Purge {
    /// Which finished messages.
    #[arg(long, value_enum, default_value = "delivered")]
    pub state: Finished,
    /// Those that finished at least so long ago, such as 7d.
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    pub older_than: Duration,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
    #[command(flatten)]
    pub scope: Scope,
    #[command(flatten)]
    pub consent: Consent,
}

/// The two ways for a message to be finished.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Finished {
    Delivered,
    Dead,
}

#[derive(Debug, Subcommand)]
pub enum Changelog {
    /// List entries in the order of their commits.
    List(ChangelogList),
    /// List the named consumers: how far each is, who reads for it, and what holds it back.
    Consumers(ChangelogConsumers),
    /// Move a consumer to another place. A dry run without --yes.
    Reset(ChangelogReset),
    /// Forget a consumer; if it comes again it begins anew. A dry run without --yes.
    Forget(ChangelogForget),
}

#[derive(Debug, Args)]
pub struct ChangelogList {
    /// Only entries after this cursor or versionstamp; from the first unless given.
    #[arg(long, value_name = "CURSOR|STAMP", value_parser = after)]
    pub after: Option<After>,
    /// The most entries to list; with --follow there is no end unless given.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub limit: Option<u64>,
    /// Go on with new entries as they are committed, until Ctrl-C.
    #[arg(long, short)]
    pub follow: bool,
    /// Show payloads as well.
    #[arg(long)]
    pub payload: bool,
    /// Print JSON lines, each an entry with its payload and the cursor to go on from.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct ChangelogConsumers {
    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct ChangelogReset {
    /// The consumer; that of a route NAME is route/NAME.
    pub name: String,
    /// Where to: `beginning`, `head` (after the newest entry), or after a cursor or versionstamp.
    #[arg(long, value_name = "PLACE", value_parser = place)]
    pub to: ChangelogPlace,
    #[command(flatten)]
    pub change: ChangelogChange,
}

#[derive(Debug, Args)]
pub struct ChangelogForget {
    /// The consumer; that of a route NAME is route/NAME.
    pub name: String,
    #[command(flatten)]
    pub change: ChangelogChange,
}

/// Whether to change a consumer, and where.
#[derive(Debug, Args)]
pub struct ChangelogChange {
    /// Do it. Without this it is only said what would be done.
    #[arg(long)]
    pub yes: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

/// A place in the changelog.
#[derive(Debug, Clone, Copy)]
pub enum ChangelogPlace {
    After(After),
    /// After the newest entry.
    Head,
}

fn after(text: &str) -> Result<After, String> {
    text.parse().map_err(|error: InvalidCursor| error.to_string())
}

fn place(text: &str) -> Result<ChangelogPlace, String> {
    match text {
        "beginning" => Ok(ChangelogPlace::After(After::Beginning)),
        "head" => Ok(ChangelogPlace::Head),
        text => after(text).map(ChangelogPlace::After).map_err(|error| format!("{error}; or say beginning or head")),
    }
}

#[derive(Debug, Args)]
pub struct Audit {
    /// Only entries before this number, to go on with a list.
    #[arg(long, value_name = "NUMBER")]
    pub before: Option<i64>,
    /// The most entries, the newest first; up to 1000.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub limit: u32,
    /// Print JSON lines.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Subcommand)]
pub enum Layout {
    /// List the layouts that are known.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Print a layout that is known, as a configuration has it.
    Show {
        /// The layout.
        name: String,
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Compare tables with their layouts: what works, what is missing, what is slow. Changes nothing; fails if something is
    /// missing.
    Check(LayoutCheck),
    /// Propose a layout for a table by what the database says of it. Changes nothing.
    Guess(LayoutGuess),
}

#[derive(Debug, Args)]
pub struct LayoutCheck {
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct LayoutGuess {
    /// What the layout is to be called; the table's name unless given.
    #[arg(long, value_name = "NAME")]
    pub name: Option<String>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Doctor {
    /// Fail for warnings as well.
    #[arg(long)]
    pub strict: bool,
    /// Show what is in order, too.
    #[arg(long, short)]
    pub verbose: bool,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub target: Target,
}

#[derive(Debug, Args)]
pub struct Health {
    /// The configuration file, for the address of the endpoint.
    #[arg(long, short, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// The address of the endpoint, instead of the configuration's.
    #[arg(long, value_name = "HOST:PORT")]
    pub address: Option<SocketAddr>,
    /// Ask whether databases and sinks answer, and not only whether there is progress.
    #[arg(long)]
    pub ready: bool,
}

#[derive(Debug, Subcommand)]
pub enum Config {
    /// Check the configuration file and the environment.
    Check {
        /// The configuration file.
        #[arg(long, short, value_name = "FILE")]
        config: Option<PathBuf>,
    },
    /// Print what can be configured, as Markdown.
    Reference,
    /// Print a configuration file to start from.
    Example,
}

/// A tenant's id. The nil UUID stands for no tenant.
fn tenant(text: &str) -> Result<Uuid, String> {
    match text.parse::<Uuid>() {
        Ok(tenant) if tenant.is_nil() => Err("the nil UUID stands for no tenant; give the tenant's own id".into()),
        tenant => tenant.map_err(|error| error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory as _;

    #[test]
    fn the_command_line_is_consistent() {
        Arguments::command().debug_assert();
    }
}
