//! Reads what MySQL's catalog says of a table. Changes nothing.

use postrider_core::store::StoreError;
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, Row};

use super::MySqlStore;
use super::error::for_relay;
use super::statements::render;
use crate::layout::table::{
    Database, Kind, MOST_WORDS, SAMPLE, Table, TableColumn, TableIndex, Unfit, literals, words_of,
};

impl MySqlStore {
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
        let rows = self.about(include_str!("../../sql/mysql/layout_table.sql")).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let checks = self.about(include_str!("../../sql/mysql/layout_checks.sql")).await?;
        let checks = checks.iter().map(check).collect::<Result<Vec<_>, _>>()?;
        let columns = self.about(include_str!("../../sql/mysql/layout_columns.sql")).await?;
        let indexes = self.about(include_str!("../../sql/mysql/examine_indexes.sql")).await?;
        let key = indexes.iter().map(primary).collect::<Result<Vec<_>, _>>()?.into_iter().flatten().next();
        let place = render(&self.names, "{table}", &[]);
        let account: String = row.try_get("account")?;
        let columns = columns.iter().map(|row| column(row, &checks, key.as_deref())).collect::<Result<_, _>>()?;
        Ok(Some(Table {
            database: Database::MySql,
            unfit: unfit(row, &indexes, &place)?,
            schema: row.try_get("place")?,
            place,
            name: self.names.table().to_owned(),
            role: account.split('@').map(|part| format!("`{part}`")).collect::<Vec<_>>().join("@"),
            rows: row.try_get("row_count")?,
            columns,
            indexes: indexes.iter().map(index).collect::<Result<_, _>>()?,
            uses_schema: true,
            // The catalog does not say it of all accounts.
            deletes: true,
            unlogged: false,
            audited,
        }))
    }

    /// Asks the catalog about the table.
    async fn about(&self, template: &str) -> Result<Vec<MySqlRow>, sqlx::Error> {
        let sql = render(&self.names, template, &[]);
        let query = sqlx::query(AssertSqlSafe(sql)).persistent(false);
        query.bind(self.names.schema()).bind(self.names.table()).fetch_all(self.pool()).await
    }

    /// The words that a column holds, by a sample; none if there are too many to be words, or it may not be read.
    pub async fn sample(&self, table: &Table, column: &TableColumn) -> Result<Vec<String>, StoreError> {
        if !column.selects {
            return Ok(Vec::new());
        }
        let name = column.name.replace('`', "``");
        let sql = format!(
            "select distinct cast(left(`{name}`, 64) as char) as word from (select `{name}` from {} limit {SAMPLE}) as seen \
             where `{name}` is not null order by 1 limit {}",
            table.place,
            MOST_WORDS + 1
        );
        let rows = sqlx::query_scalar(AssertSqlSafe(sql)).persistent(false).fetch_all(self.pool()).await;
        let words: Vec<String> = rows.map_err(|error| for_relay("look at the table", error))?;
        Ok(if words.len() > MOST_WORDS { Vec::new() } else { words })
    }
}

/// Views, tables whose rows nobody can lock, and those without the index that rows are found by.
fn unfit(row: &MySqlRow, indexes: &[MySqlRow], place: &str) -> Result<Option<Unfit>, sqlx::Error> {
    if let Some(what) = row.try_get::<Option<String>, _>("unfit")? {
        return Ok(Some(Unfit::shape(what)));
    }
    let engine: String = row.try_get("engine")?;
    if !engine.eq_ignore_ascii_case("InnoDB") {
        let what = format!("of the engine {engine}, which has no transactions");
        return Ok(Some(Unfit { what, fix: format!("run: alter table {place} engine = InnoDB") }));
    }
    let names = indexes.iter().map(|row| row.try_get("name")).collect::<Result<Vec<String>, _>>()?;
    Ok((!names.iter().any(|name| name == "PRIMARY")).then(|| Unfit {
        what: "without a primary key, by which rows are found".to_owned(),
        fix: "make the column of the id its primary key".to_owned(),
    }))
}

/// A condition. MySQL writes quotes with a backslash before them.
fn check(row: &MySqlRow) -> Result<String, sqlx::Error> {
    Ok(row.try_get::<String, _>(0)?.replace("\\'", "'"))
}

fn column(row: &MySqlRow, checks: &[String], key: Option<&str>) -> Result<TableColumn, sqlx::Error> {
    let (name, type_name, base): (String, String, String) =
        (row.try_get("name")?, row.try_get("type")?, row.try_get("base")?);
    let usual: Option<String> = row.try_get("usual")?;
    // MariaDB writes the default of a column that may be null.
    let usual = usual.filter(|usual| !usual.eq_ignore_ascii_case("null"));
    let not_null = row.try_get::<i64, _>("not_null")? == 1;
    let kind = kind(&base, &type_name, usual.as_deref());
    let privileges: String = row.try_get("privileges")?;
    let may = |what: &str| privileges.split(',').any(|one| one == what);
    let length: i64 = row.try_get("length")?;
    Ok(TableColumn {
        words: if kind == Kind::Enum { literals(&type_name) } else { words_of(checks, &name) },
        length: u32::try_from(length).ok().filter(|length| *length > 0 && base != "longtext" && base != "mediumtext"),
        has_default: row.try_get::<i64, _>("has_default")? == 1 && (usual.is_some() || not_null),
        computed: row.try_get::<i64, _>("computed")? == 1,
        is_key: key == Some(name.as_str()),
        base_schema: String::new(),
        base_is_in_path: true,
        selects: may("select"),
        updates: may("update"),
        name,
        type_name,
        base,
        kind,
        not_null,
        usual,
    })
}

fn kind(base: &str, type_name: &str, usual: Option<&str>) -> Kind {
    match base {
        "uuid" => Kind::Uuid,
        "tinyint" if type_name.starts_with("tinyint(1)") => Kind::Boolean,
        "tinyint" | "smallint" | "mediumint" | "int" | "bigint" => Kind::Integer,
        "char" | "varchar" | "tinytext" | "text" | "mediumtext" | "longtext" => Kind::Text,
        "enum" => Kind::Enum,
        "json" => Kind::Json,
        "binary" | "varbinary" | "tinyblob" | "blob" | "mediumblob" | "longblob" => Kind::Bytes,
        "timestamp" => Kind::Time,
        // Writers that leave it out write the time of their session's time zone.
        "datetime" if usual.is_some_and(|usual| usual.to_ascii_lowercase().starts_with("current_timestamp")) => {
            Kind::LocalTime
        }
        "datetime" => Kind::Time,
        _ => Kind::Other,
    }
}

/// The column that alone is the primary key.
fn primary(row: &MySqlRow) -> Result<Option<String>, sqlx::Error> {
    let (name, columns): (String, String) = (row.try_get("name")?, row.try_get("columns")?);
    Ok((name == "PRIMARY" && !columns.contains(',')).then_some(columns))
}

fn index(row: &MySqlRow) -> Result<TableIndex, sqlx::Error> {
    let columns: String = row.try_get("columns")?;
    let unique = row.try_get::<i64, _>("non_unique")? == 0;
    Ok(TableIndex { columns: columns.split(',').map(str::to_owned).collect(), predicate: None, unique })
}
