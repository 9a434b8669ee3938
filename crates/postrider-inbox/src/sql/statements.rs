//! SQL text, rendered once from validated names. No other module puts SQL together.

use postrider_store::sql::{Sql, fill};

use super::tables::{Meanwhile, Settings};

/// The SQL of one database, one `.sql` file each.
#[derive(Debug)]
pub struct Templates {
    pub enter: &'static str,
    /// How `enter.sql` meets a transaction that has the event: without waiting for it, and waiting.
    pub held: [&'static str; 2],
    pub newest: &'static str,
    pub leave: &'static str,
    pub there: &'static str,
    pub confirm: &'static str,
    pub ours: &'static str,
    /// Whether a lock that is not had has undone the transaction, where that may be.
    pub undone: Option<&'static str>,
    pub note: &'static str,
    pub purge: &'static str,
    /// What is said before each purge, if anything.
    pub before_purge: Option<&'static str>,
    pub create: &'static [&'static str],
    /// What a name is put in.
    pub quote: char,
    /// The schema where nothing else is said.
    pub schema: Option<&'static str>,
    /// The time, where a statement does not say it itself.
    pub now: &'static str,
}

/// A statement and how to run it.
#[derive(Debug, Clone)]
pub struct Statement {
    pub sql: Sql,
    /// Whether it may be prepared by name.
    pub persistent: bool,
}

/// The statements of one database.
#[derive(Debug)]
pub struct Statements {
    pub enter: Statement,
    pub newest: Statement,
    pub leave: Statement,
    pub there: Statement,
    pub confirm: Statement,
    pub ours: Statement,
    pub undone: Option<Statement>,
    pub note: Statement,
    pub before_purge: Option<Statement>,
    pub purge_messages: Statement,
    pub purge_attempts: Statement,
    pub create: Vec<Sql>,
}

impl Statements {
    pub(super) fn render(templates: &Templates, settings: &Settings) -> Self {
        let sql = |template, own: &[(&str, &str)]| Sql::from(render(templates, settings, template, own));
        let statement =
            |template, own: &[(&str, &str)]| Statement { sql: sql(template, own), persistent: !settings.behind_pooler };
        let purge = |table, name| statement(templates.purge, &[("{table}", table), ("{name}", name)]);
        let [answer, wait] = templates.held;
        let held = match settings.meanwhile {
            Meanwhile::Answer => answer,
            Meanwhile::Wait => wait,
        };
        Self {
            enter: statement(templates.enter, &[("{held}", held)]),
            newest: statement(templates.newest, &[]),
            leave: statement(templates.leave, &[]),
            there: statement(templates.there, &[]),
            confirm: statement(templates.confirm, &[("{held}", held)]),
            ours: statement(templates.ours, &[]),
            undone: templates.undone.map(|template| statement(template, &[])),
            note: statement(templates.note, &[]),
            before_purge: templates.before_purge.map(|template| statement(template, &[])),
            purge_messages: purge("{messages}", "{messages_name}"),
            purge_attempts: purge("{attempts}", "{attempts_name}"),
            create: templates.create.iter().map(|template| sql(template, &[])).collect(),
        }
    }

    /// Every statement but those that make the tables, so that a test can prepare them all.
    pub(super) fn all(&self) -> Vec<(&'static str, Sql)> {
        let all = [
            ("enter", &self.enter),
            ("newest", &self.newest),
            ("leave", &self.leave),
            ("there", &self.there),
            ("confirm", &self.confirm),
            ("ours", &self.ours),
            ("note", &self.note),
            ("purge_messages", &self.purge_messages),
            ("purge_attempts", &self.purge_attempts),
        ];
        let some = [("undone", &self.undone), ("before_purge", &self.before_purge)];
        let some = some.into_iter().filter_map(|(name, statement)| Some((name, statement.as_ref()?)));
        all.into_iter().chain(some).map(|(name, statement)| (name, statement.sql.clone())).collect()
    }
}

/// Puts names and settings into a template.
fn render(templates: &Templates, settings: &Settings, template: &str, own: &[(&str, &str)]) -> String {
    let quote = templates.quote;
    let schema = settings.schema.as_deref().or(templates.schema);
    let within = schema.map(|schema| format!("{quote}{schema}{quote}.")).unwrap_or_default();
    let table = |name: &str| format!("{within}{quote}{name}{quote}");
    let values = [
        ("{messages}", table(&settings.messages)),
        ("{attempts}", table(&settings.attempts)),
        ("{messages_name}", settings.messages.clone()),
        ("{attempts_name}", settings.attempts.clone()),
        ("{schema}", schema.unwrap_or_default().to_owned()),
        ("{within}", within.clone()),
        ("{now}", templates.now.to_owned()),
        ("{keep_seconds}", settings.keep.as_secs().to_string()),
    ];
    let values = values.iter().map(|(placeholder, value)| (*placeholder, value.as_str()));
    fill(template, own.iter().copied().chain(values))
}
