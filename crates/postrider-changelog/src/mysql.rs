//! The changelog on MariaDB 10.6 and MySQL 8.0.16 and newer.
//!
//! The counter is one row, as on PostgreSQL. Its new value is read back by a second statement on the same connection, and not
//! through `LAST_INSERT_ID()`: that is stale when the row was made by a plain insert, and has 64 bits where the version has 80.
//! A writer that waits longer than `innodb_lock_wait_timeout`, or is chosen to end a deadlock, gets
//! [`ChangelogError::Conflict`](crate::ChangelogError::Conflict). What was written is read back by a third statement, because
//! MySQL rounds and cuts without an error where PostgreSQL would not.

use std::ops::RangeInclusive;

use postrider_store::Names;
use postrider_store::mysql::{is_login, kind_of, number, statements};
use sqlx::{MySql, MySqlConnection};

use crate::TransactionVersion;
use crate::schema::ColumnKind;
use crate::sql::{Dialect, Failed, Kind, Query, Statements, Templates, bound, run_with_sqlx, templates};

const DUPLICATE_KEY: u16 = 1062;

impl Dialect for MySql {
    const TEMPLATES: Templates = templates!("mysql", Some(include_str!("../sql/mysql/reserved.sql")));
    const QUOTE: char = '`';
    const RETURNING: bool = false;
    const LOCK: &'static str = " for update";
    const NOT_FINITE: bool = false;
    /// From the year 1000 to the end of 9999; it would make null of anything else without a word.
    const TIMES: RangeInclusive<i64> = -30_610_224_000_000..=253_402_300_799_999;
    const NUMBERED: bool = false;
    const BEGIN: Option<&'static str> = None;

    fn render(names: &Names, template: &str) -> String {
        statements::render(names, template, &[])
    }

    fn placeholder(_: usize) -> String {
        "?".into()
    }

    fn written(kind: ColumnKind, placeholder: &str) -> String {
        match kind {
            ColumnKind::Timestamp => {
                format!("timestampadd(microsecond, {placeholder} * 1000, timestamp '1970-01-01 00:00:00')")
            }
            _ => placeholder.into(),
        }
    }

    fn read(kind: ColumnKind, column: &str) -> String {
        match kind {
            ColumnKind::Timestamp => format!(
                "cast(floor(timestampdiff(microsecond, timestamp '1970-01-01 00:00:00', {column}) / 1000) as char)"
            ),
            ColumnKind::Binary => format!("lower(hex({column}))"),
            ColumnKind::Boolean => format!("cast({column} + 0 as char)"),
            _ => format!("cast({column} as char)"),
        }
    }

    fn one_of(column: &str, placeholder: &str) -> String {
        format!(
            "{column} in (select number from json_table({placeholder}, '$[*]' columns (number bigint path '$')) as given)"
        )
    }

    /// Compared once with the column's index and its collation, which may not care for case or accents, and once for what it is.
    fn identified(_: ColumnKind, column: &str, mut bind: impl FnMut() -> String) -> String {
        let text = |what: &str| format!("hex(cast({what} as char character set utf8mb4))");
        format!("{column} = {} and {} = {}", bind(), text(column), text(&bind()))
    }

    /// MySQL refuses to read from the table that it writes, unless it is through a table derived from it.
    fn subquery(select: &str) -> String {
        format!("(select * from ({select}) as found)")
    }

    run_with_sqlx!(MySqlConnection, sqlx::Row::try_get);

    async fn write(connection: &mut MySqlConnection, query: &Query) -> Result<(u64, Option<u64>), Failed> {
        let done = bound!(query).execute(connection).await.map_err(Self::failed)?;
        Ok((done.rows_affected(), Some(done.last_insert_id()).filter(|id| *id > 0)))
    }

    async fn reserve(
        connection: &mut MySqlConnection,
        statements: &Statements,
    ) -> Result<(Option<TransactionVersion>, i64), Failed> {
        Self::execute(connection, &statements.query(&statements.reserve, [])).await?;
        let Some(reserved) = &statements.reserved else { return Ok((None, 0)) };
        let rows = Self::fetch(connection, &statements.query(reserved, [])).await?;
        let (version, now) = crate::sql::reserved(&rows)?;
        Ok((TransactionVersion::new(version), now))
    }

    fn kind(error: &sqlx::Error) -> Kind {
        match number(error) {
            None => Kind::without_code(error),
            Some(DUPLICATE_KEY) => Kind::Duplicate,
            Some(number) if is_login(number) => Kind::Login,
            Some(number) => kind_of(number).into(),
        }
    }
}
