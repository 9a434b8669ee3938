//! s0_18 to s0_35: the table that any language may insert into.

use anyhow::Result;
use uuid::Uuid;

use super::fixture::Fixture;

/// Name, type, whether it may be null, default.
type Column = (String, String, bool, Option<String>);

const COLUMNS: [(&str, &str, bool, Option<&str>); 20] = [
    ("id", "uuid", false, Some("postrider_uuid_v7()")),
    ("seq", "bigint", false, None),
    ("namespace", "text", false, None),
    ("topic", "text", false, None),
    ("key", "text", true, None),
    ("tenant_id", "uuid", true, None),
    ("dedupe_key", "text", true, None),
    ("payload", "jsonb", false, None),
    ("payload_bytes", "bytea", true, None),
    ("headers", "jsonb", false, Some("'{}'::jsonb")),
    ("status", "text", false, Some("'pending'::text")),
    ("attempts", "integer", false, Some("0")),
    ("max_attempts", "integer", true, None),
    ("next_attempt_at", "timestamp with time zone", false, Some("now()")),
    ("locked_by", "uuid", true, None),
    ("locked_until", "timestamp with time zone", true, None),
    ("last_error", "text", true, None),
    ("created_at", "timestamp with time zone", false, Some("now()")),
    ("updated_at", "timestamp with time zone", false, Some("now()")),
    ("delivered_at", "timestamp with time zone", true, None),
];

#[tokio::test]
async fn s0_19_every_column_has_its_name_type_default_and_nullability() -> Result<()> {
    let fixture = Fixture::new().await?;
    let columns: Vec<Column> = sqlx::query_as(
        "select column_name::text, data_type::text, is_nullable = 'YES', column_default::text from information_schema.columns
         where table_schema = 'public' and table_name = 'outbox_messages' order by ordinal_position",
    )
    .fetch_all(&fixture.pool)
    .await?;
    let seen: Vec<_> = columns
        .iter()
        .map(|(name, kind, null, default)| (name.as_str(), kind.as_str(), *null, default.as_deref()))
        .collect();
    assert_eq!(seen, COLUMNS);
    let identity = "select count(*) from information_schema.columns where table_name = 'outbox_messages' and column_name = 'seq' and is_identity = 'YES'";
    assert_eq!(fixture.count(identity).await?, 1);
    Ok(())
}

#[tokio::test]
async fn s0_33_every_index_is_there() -> Result<()> {
    let fixture = Fixture::new().await?;
    let sql = "select indexdef from pg_indexes where schemaname = 'public' and tablename = 'outbox_messages'";
    let indexes: Vec<String> = sqlx::query_scalar(sql).fetch_all(&fixture.pool).await?;
    for (name, rest) in [
        ("UNIQUE INDEX outbox_messages_pkey", "(id) WITH (fillfactor='50')"),
        ("INDEX outbox_messages_due_idx", "(namespace, next_attempt_at, seq) WHERE (status = 'pending'::text)"),
        ("INDEX outbox_messages_lease_idx", "(locked_until) WHERE (status = 'processing'::text)"),
        (
            "INDEX outbox_messages_finished_idx",
            "(status, updated_at) WHERE (status = ANY (ARRAY['delivered'::text, 'dead'::text]))",
        ),
        ("UNIQUE INDEX outbox_messages_dedupe_idx", "(namespace, topic, dedupe_key) WHERE (dedupe_key IS NOT NULL)"),
        ("INDEX outbox_messages_lane_idx", "WHERE (status = 'pending'::text)"),
    ] {
        let is_it = |index: &&String| index.starts_with(&format!("CREATE {name} ")) && index.ends_with(rest);
        assert_eq!(indexes.iter().filter(is_it).count(), 1, "{name} {rest} in {indexes:#?}");
    }
    Ok(())
}

#[tokio::test]
async fn s0_25_only_the_four_states_can_be_stored() -> Result<()> {
    let fixture = Fixture::new().await?;
    for (column, value) in [("status", "'sent'"), ("status", "null"), ("headers", "'[]'")] {
        let sql = format!(
            "insert into outbox_messages (namespace, topic, payload, {column}) values ('a', 'b', '1', {value})"
        );
        assert!(sqlx::raw_sql(sqlx::AssertSqlSafe(sql)).execute(&fixture.pool).await.is_err(), "{column} = {value}");
    }
    for status in ["pending", "processing", "delivered", "dead"] {
        let sql = "insert into outbox_messages (namespace, topic, payload, status) values ('a', 'b', '1', $1)";
        sqlx::query(sql).bind(status).execute(&fixture.pool).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_plain_insert_needs_namespace_topic_and_payload_only() -> Result<()> {
    let fixture = Fixture::new().await?;
    let before = milliseconds(Uuid::now_v7());
    for _ in 0..100 {
        sqlx::raw_sql("insert into outbox_messages (namespace, topic, payload) values ('shop', 'x', '{}')")
            .execute(&fixture.pool)
            .await?;
    }
    let after = milliseconds(Uuid::now_v7());
    let ids = fixture.ids().await?;
    for id in &ids {
        assert_eq!((id.get_version_num(), id.get_variant()), (7, uuid::Variant::RFC4122), "{id}");
        assert!((before..=after + 1).contains(&milliseconds(*id)), "{id}");
    }
    assert_eq!(fixture.count("select count(distinct id) from outbox_messages where status = 'pending' and attempts = 0 and next_attempt_at = created_at").await?, 100);
    Ok(())
}

/// The time in a UUID of version 7.
fn milliseconds(id: Uuid) -> u128 {
    id.as_u128() >> 80
}
