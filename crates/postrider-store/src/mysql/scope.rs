//! Whose rows a statement is about.

use postrider_core::store::{Scope, StoreError, StoreErrorKind};
use sqlx::MySqlConnection;
use sqlx::Row;
use sqlx::mysql::MySqlRow;
use uuid::Uuid;

use super::run::fetch;
use super::statements::{MOST_NAMESPACES, OurStatements, Scoped};
use super::types::Bound;
use crate::sql::Sql;

/// A scope that some row may be in.
#[derive(Debug)]
pub(super) struct Within {
    pub namespaces: Option<Vec<String>>,
    pub tenant: Option<Uuid>,
}

impl Within {
    /// Nothing if no row can be in the scope. A namespace is ASCII; comparing its column with anything else would be an
    /// illegal mix of collations.
    pub fn of(scope: &Scope) -> Result<Option<Self>, StoreError> {
        let namespaces = scope.namespaces.as_ref().map(|names| {
            let mut names: Vec<String> = names.iter().filter(|name| name.is_ascii()).cloned().collect();
            names.sort_unstable();
            names.dedup();
            names
        });
        match namespaces.as_ref().map_or(1, Vec::len) {
            0 => Ok(None),
            count if count > MOST_NAMESPACES => Err(StoreError::new(
                StoreErrorKind::Refused,
                format!(
                    "the scope has {count} namespaces, the limit is {MOST_NAMESPACES}; leave them out to mean all, or use several dispatchers"
                ),
            )),
            _ => Ok(Some(Self { namespaces, tenant: scope.tenant })),
        }
    }

    /// Runs a statement; `before` and `after` bind what comes before and after the scope, which the statement may say
    /// several times.
    pub async fn fetch(
        &self,
        connection: &mut MySqlConnection,
        statement: &Scoped,
        times: usize,
        before: impl FnOnce(&mut Bound),
        after: impl FnOnce(&mut Bound),
    ) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let (sql, names) = self.choose(statement);
        let mut bound = Bound::default();
        before(&mut bound);
        for _ in 0..times {
            bound.tenant(self.tenant);
            for name in &names {
                bound.add((*name).clone());
            }
        }
        after(&mut bound);
        fetch(connection, sql, bound).await
    }

    fn choose<'a>(&'a self, statement: &'a Scoped) -> (&'a Sql, Vec<&'a String>) {
        let list = self.namespaces.as_deref().and_then(|names| statement.some.padded(names));
        list.unwrap_or_else(|| (&statement.all, Vec::new()))
    }

    /// Whether one of these statements, each of which says in how many microseconds something is due, says that it is.
    pub async fn is_due(&self, connection: &mut MySqlConnection, statements: &[&Scoped]) -> Result<bool, sqlx::Error> {
        for statement in statements {
            let rows = self.fetch(connection, statement, 1, |_| {}, |_| {}).await?;
            let due_in: Option<i64> = rows.first().map(|row| row.try_get(0)).transpose()?.flatten();
            if due_in.is_some_and(|due_in| due_in <= 0) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The namespaces in scope that have pending rows, each with the time until its first one is due, in microseconds.
    pub async fn heads(
        &self,
        connection: &mut MySqlConnection,
        statements: &OurStatements,
    ) -> Result<Vec<Head>, sqlx::Error> {
        let mut heads = Vec::new();
        let Some(names) = &self.namespaces else {
            let mut last = String::new();
            loop {
                let mut bound = Bound::default();
                bound.add(last);
                let rows = fetch(connection, &statements.next_namespace, bound).await?;
                let Some(row) = rows.first() else { return Ok(heads) };
                last = row.try_get(0)?;
                heads.push(Head { namespace: last.clone(), due_in: row.try_get(1)? });
            }
        };
        for namespace in names {
            if let Some(due_in) = head(connection, statements, namespace, None).await? {
                heads.push(Head { namespace: namespace.clone(), due_in });
            }
        }
        Ok(heads)
    }
}

/// The first pending row of a namespace.
pub(super) struct Head {
    pub namespace: String,
    pub due_in: i64,
}

impl Head {
    pub fn is_due(&self) -> bool {
        self.due_in <= 0
    }
}

/// How long until the first pending row of a namespace, and of a tenant if one is given, is due.
pub(super) async fn head(
    connection: &mut MySqlConnection,
    statements: &OurStatements,
    namespace: &str,
    tenant: Option<Uuid>,
) -> Result<Option<i64>, sqlx::Error> {
    let mut bound = Bound::default();
    bound.add(namespace.to_owned()).tenant(tenant);
    let rows = fetch(connection, &statements.namespace_head, bound).await?;
    rows.first().map(|row| row.try_get(0)).transpose()
}

/// The same for rows that were not due for longer than so many microseconds.
pub(super) async fn coming(
    connection: &mut MySqlConnection,
    statements: &OurStatements,
    namespace: &str,
    tenant: Option<Uuid>,
    since: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let mut bound = Bound::default();
    bound.add(namespace.to_owned()).tenant(tenant).add(since);
    let rows = fetch(connection, &statements.next_coming, bound).await?;
    rows.first().map(|row| row.try_get(0)).transpose()
}
