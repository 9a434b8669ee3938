//! Reads what SQLite's catalog says of a table. Changes nothing.

use postrider_core::store::StoreError;
use sqlx::sqlite::SqliteRow;
use sqlx::{AssertSqlSafe, Row};

use super::SqliteStore;
use super::error::for_relay;
use super::statements::render;
use crate::layout::table::{Database, Kind, MOST_WORDS, SAMPLE, Table, TableColumn, TableIndex, Unfit, words_of};

const TEXT: &str = "select coalesce(sql, ''), case type when 'table' then null else 'no table' end as unfit, \
    coalesce((select wr from pragma_table_list(?1) where schema = 'main'), 0) as rowless from sqlite_schema where name = ?1 collate nocase and type in ('table', 'view')";
const COLUMNS: &str = "select name, type, \"notnull\", dflt_value, pk, hidden from pragma_table_xinfo(?1) order by cid";
const INDEXES: &str = "select list.name, list.\"unique\" as is_unique, coalesce(made.sql, '') as sql, \
    coalesce((select group_concat(name, ',') from (select coalesce(name, '') as name from pragma_index_info(list.name) order by seqno)), '') as columns \
    from pragma_index_list(?1) as list left join sqlite_schema as made on made.type = 'index' and made.name = list.name";

impl SqliteStore {
    /// The table that the store's names say, whatever it looks like; none if there is none.
    pub async fn table(&self) -> Result<Option<Table>, StoreError> {
        let audited = self.pending().await?.is_empty();
        self.read_table(audited).await.map_err(|error| for_relay("read the catalog", error))
    }

    /// The same without a look at the versions of what is beside it.
    pub(super) async fn table_alone(&self) -> Result<Option<Table>, StoreError> {
        self.read_table(false).await.map_err(|error| for_relay("read the catalog", error))
    }

    async fn read_table(&self, audited: bool) -> Result<Option<Table>, sqlx::Error> {
        let rows = self.about(TEXT).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let checks = checks(row.try_get(0)?);
        let columns = self.about(COLUMNS).await?;
        let keys = columns.iter().map(|row| row.try_get::<i64, _>("pk")).collect::<Result<Vec<_>, _>>()?;
        let one_key = keys.iter().filter(|key| **key > 0).count() == 1;
        let indexes = self.about(INDEXES).await?;
        Ok(Some(Table {
            database: Database::Sqlite,
            schema: String::new(),
            place: render(&self.names, "{table}", &[]),
            name: self.names.table().to_owned(),
            role: String::new(),
            unfit: unfit(row)?,
            rows: 0,
            columns: columns.iter().map(|row| column(row, &checks, one_key)).collect::<Result<_, _>>()?,
            indexes: indexes.iter().map(index).collect::<Result<_, _>>()?,
            uses_schema: true,
            deletes: true,
            unlogged: false,
            audited,
        }))
    }

    /// Asks the catalog about the table.
    async fn about(&self, sql: &'static str) -> Result<Vec<SqliteRow>, sqlx::Error> {
        sqlx::query(sql).persistent(false).bind(self.names.table()).fetch_all(self.pool()).await
    }

    /// The words that a column holds, by a sample; none if there are too many to be words.
    pub async fn sample(&self, table: &Table, column: &TableColumn) -> Result<Vec<String>, StoreError> {
        let name = column.name.replace('`', "``");
        let sql = format!(
            "select distinct substr(cast(`{name}` as text), 1, 64) from (select `{name}` from {} limit {SAMPLE}) \
             where `{name}` is not null order by 1 limit {}",
            table.place,
            MOST_WORDS + 1
        );
        let rows = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(self.pool()).await;
        let words: Vec<String> = rows.map_err(|error| for_relay("look at the table", error))?;
        Ok(if words.len() > MOST_WORDS { Vec::new() } else { words })
    }
}

/// Views, and tables without the number that rows are found by.
fn unfit(row: &SqliteRow) -> Result<Option<Unfit>, sqlx::Error> {
    if let Some(what) = row.try_get::<Option<String>, _>("unfit")? {
        return Ok(Some(Unfit::shape(what)));
    }
    Ok((row.try_get::<i64, _>("rowless")? == 1).then(|| Unfit {
        what: "without rowids, by which rows are found".to_owned(),
        fix: "make the table anew without the words `without rowid`, and copy its rows".to_owned(),
    }))
}

fn column(row: &SqliteRow, checks: &[String], one_key: bool) -> Result<TableColumn, sqlx::Error> {
    let (name, type_name): (String, String) = (row.try_get("name")?, row.try_get("type")?);
    let is_key = one_key && row.try_get::<i64, _>("pk")? > 0;
    let usual: Option<String> = row.try_get("dflt_value")?;
    // Computed when it is read, or when it is written.
    let computed = [2, 3].contains(&row.try_get::<i64, _>("hidden")?);
    let kind = kind(&type_name);
    Ok(TableColumn {
        words: words_of(checks, &name),
        base: type_name.to_ascii_lowercase(),
        base_schema: String::new(),
        base_is_in_path: true,
        length: None,
        not_null: row.try_get::<i64, _>("notnull")? == 1 || is_key,
        // The key of a table is a number that SQLite counts itself, if it is a number.
        has_default: computed || usual.is_some() || (is_key && kind == Kind::Integer),
        computed,
        selects: true,
        updates: true,
        is_key,
        usual,
        kind,
        name,
        type_name,
    })
}

/// What a column keeps as it is given, by SQLite's rules for declared types.
fn kind(type_name: &str) -> Kind {
    let upper = type_name.to_ascii_uppercase();
    let has = |word: &str| upper.contains(word);
    match () {
        () if has("BOOL") => Kind::Boolean,
        () if has("INT") => Kind::Integer,
        () if has("CHAR") || has("CLOB") || has("TEXT") => Kind::Text,
        () if has("BLOB") || upper.is_empty() => Kind::Bytes,
        // JSON and UUID are no types there, and have the affinity of numbers; texts stay texts in them.
        () if has("JSON") || has("UUID") => Kind::Text,
        () => Kind::Other,
    }
}

fn index(row: &SqliteRow) -> Result<TableIndex, sqlx::Error> {
    let (columns, sql): (String, String) = (row.try_get("columns")?, row.try_get("sql")?);
    let condition = sql.to_ascii_lowercase().find(" where ").map(|at| sql[at + " where ".len()..].to_owned());
    let unique = row.try_get::<i64, _>("is_unique")? == 1;
    Ok(TableIndex { columns: columns.split(',').map(str::to_owned).collect(), predicate: condition, unique })
}

/// The conditions in the text that a table was made with.
fn checks(sql: String) -> Vec<String> {
    let lower = sql.to_ascii_lowercase();
    let starts = lower.match_indices("check").filter_map(|(at, word)| {
        let after = &sql[at + word.len()..];
        after.trim_start().starts_with('(').then(|| enclosed(after.trim_start()))
    });
    starts.collect()
}

/// The text up to the parenthesis that closes its first one.
fn enclosed(text: &str) -> String {
    let (mut depth, mut quoted) = (0, false);
    let end = text.find(|c: char| {
        match c {
            '\'' => quoted = !quoted,
            '(' if !quoted => depth += 1,
            ')' if !quoted => depth -= 1,
            _ => {}
        }
        depth == 0
    });
    end.map_or_else(|| text.to_owned(), |end| text[..=end].to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_a_column_are_in_the_text_of_its_table() {
        let sql = "create table t (id text primary key, payload text check (json_valid(payload)), \
                   \"status\" text CHECK (\"status\" in ('a)', 'b')), n int)";
        let checks = checks(sql.to_owned());
        assert_eq!(words_of(&checks, "status"), ["a)", "b"]);
        assert_eq!(words_of(&checks, "payload"), [""; 0]);
    }
}
