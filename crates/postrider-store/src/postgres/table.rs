//! Reads what PostgreSQL's catalog says of a table. Changes nothing.

use postrider_core::store::StoreError;
use sqlx::Row;
use sqlx::postgres::PgRow;

use super::PostgresStore;
use super::error::for_relay;
use super::statements::{render, schema};
use crate::layout::table::{Database, Kind, MOST_WORDS, SAMPLE, Table, TableColumn, TableIndex, Unfit, allowed_by_all};

impl PostgresStore {
    /// The table that the store's names say, whatever it looks like; none if there is none.
    pub async fn table(&self) -> Result<Option<Table>, StoreError> {
        self.read_table().await.map_err(|error| for_relay("read the catalog", error))
    }

    async fn read_table(&self) -> Result<Option<Table>, sqlx::Error> {
        let given = self.place()?.add(format!("{}audit", self.names.prefix()))?;
        let rows = self.ask(self.text(include_str!("../../sql/postgres/layout_table.sql")), given).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let columns = self.text(include_str!("../../sql/postgres/layout_columns.sql"));
        let columns = self.ask(columns, self.place()?).await?;
        let indexes = self.text(include_str!("../../sql/postgres/examine_indexes.sql"));
        let indexes = self.ask(indexes, self.place()?).await?;
        Ok(Some(Table {
            database: Database::Postgres,
            schema: schema(&self.names).to_owned(),
            place: render(&self.names, "{table}", &[]),
            name: self.names.table().to_owned(),
            role: row.try_get("role")?,
            unfit: row.try_get::<Option<String>, _>("unfit")?.map(Unfit::shape),
            rows: row.try_get("rows")?,
            columns: columns.iter().map(column).collect::<Result<_, _>>()?,
            indexes: indexes.iter().filter_map(|row| index(row).transpose()).collect::<Result<_, _>>()?,
            uses_schema: row.try_get("uses_schema")?,
            deletes: row.try_get("deletes")?,
            unlogged: row.try_get("unlogged")?,
            audited: row.try_get("audited")?,
        }))
    }

    /// The words that a column holds, by a sample; none if there are too many to be words, or it may not be read.
    pub async fn sample(&self, table: &Table, column: &TableColumn) -> Result<Vec<String>, StoreError> {
        if !column.selects || !table.uses_schema {
            return Ok(Vec::new());
        }
        let name = column.name.replace('"', "\"\"");
        let sql = format!(
            "select distinct left(\"{name}\"::text, 64) as word from (select \"{name}\" from {} limit {SAMPLE}) as seen \
             where \"{name}\" is not null order by 1 limit {}",
            table.place,
            MOST_WORDS + 1
        );
        let rows = self.ask(sql, super::examine::Given::default()).await;
        let words = rows.and_then(|rows| rows.iter().map(|row| row.try_get(0)).collect::<Result<Vec<String>, _>>());
        let words = words.map_err(|error| for_relay("look at the table", error))?;
        Ok(if words.len() > MOST_WORDS { Vec::new() } else { words })
    }
}

fn column(row: &PgRow) -> Result<TableColumn, sqlx::Error> {
    let (base, is_enum): (String, bool) = (row.try_get("base")?, row.try_get("is_enum")?);
    let checks: Vec<String> = row.try_get("checks")?;
    let words = match is_enum {
        true => row.try_get("labels")?,
        false => allowed_by_all(checks.iter()),
    };
    let length: Option<i32> = row.try_get("length")?;
    Ok(TableColumn {
        name: row.try_get("name")?,
        type_name: row.try_get("type")?,
        kind: if is_enum { Kind::Enum } else { kind(&base) },
        base,
        base_schema: row.try_get("base_schema")?,
        base_is_in_path: row.try_get("base_is_in_path")?,
        length: length.and_then(|length| u32::try_from(length).ok()),
        not_null: row.try_get("not_null")?,
        has_default: row.try_get("has_default")?,
        computed: row.try_get("computed")?,
        usual: row.try_get("usual")?,
        is_key: row.try_get("is_key")?,
        words,
        selects: row.try_get("selects")?,
        updates: row.try_get("updates")?,
    })
}

fn kind(base: &str) -> Kind {
    match base {
        "uuid" => Kind::Uuid,
        "bool" => Kind::Boolean,
        "int2" | "int4" | "int8" => Kind::Integer,
        "text" | "varchar" | "bpchar" | "citext" => Kind::Text,
        "json" => Kind::Json,
        "jsonb" => Kind::Jsonb,
        "bytea" => Kind::Bytes,
        "timestamptz" => Kind::Time,
        "timestamp" => Kind::LocalTime,
        _ => Kind::Other,
    }
}

/// An index, unless it cannot be used.
fn index(row: &PgRow) -> Result<Option<TableIndex>, sqlx::Error> {
    if !row.try_get::<bool, _>("usable")? {
        return Ok(None);
    }
    let columns: Vec<String> = row.try_get("columns")?;
    let plain = |name: &String| match name.strip_prefix('"').and_then(|name| name.strip_suffix('"')) {
        Some(quoted) => quoted.replace("\"\"", "\""),
        None => name.clone(),
    };
    Ok(Some(TableIndex {
        columns: columns.iter().map(plain).collect(),
        predicate: row.try_get("predicate")?,
        unique: row.try_get("is_unique")?,
    }))
}
