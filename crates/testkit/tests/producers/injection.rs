//! s01: no text of a producer or operator becomes SQL. It is refused, or stored as it is.

use anyhow::Result;
use postrider::names::Names;
use postrider::{EnqueueError, Message};
use serde_json::json;

use super::fixture::Fixture;

const QUOTES: [&str; 10] = ["'", "''", "\"", "\"\"", "`", "$$", "$a$", "\\'", "\u{2019}", "\u{ff07}"];
const BREAKS: [&str; 5] = ["", ")", "))", "]", "}"];
const ATTACKS: [&str; 12] = [
    "; drop table outbox_messages; --",
    "; drop table changes cascade; --",
    " or 1=1 --",
    " union select null, version() --",
    "; create table owned (a int); --",
    "; alter table outbox_messages add column owned int; --",
    " || (select pg_sleep(0)) || ",
    "; truncate outbox_messages; --",
    "/**/;/**/create/**/function/**/owned()/**/returns/**/int/**/language/**/sql/**/as/**/$x$select/**/1$x$",
    "::regclass",
    "); copy changes to program 'touch /tmp/owned'; --",
    "\\; \\! touch owned",
];
const OTHERS: [&str; 16] = [
    "$1",
    "$12",
    "%s",
    "%(x)s",
    "{table}",
    "{schema}",
    "{name}",
    "{bell}",
    ":name",
    "?",
    "NULL",
    "null",
    "\\x00",
    "{}",
    "0x27",
    "%27%20or%201=1",
];

fn corpus() -> Vec<String> {
    let attacks = QUOTES.iter().flat_map(|quote| {
        BREAKS.iter().flat_map(move |end| ATTACKS.iter().map(move |attack| format!("x{quote}{end}{attack}")))
    });
    attacks.chain(OTHERS.iter().map(|text| (*text).to_owned())).collect()
}

/// Everything that an attack could change: relations, columns, defaults, constraints, indexes, functions.
async fn schema(fixture: &Fixture) -> Result<Vec<String>> {
    let sql = "
        select format('%s %s %s %s %s', c.oid::regclass, c.relkind, a.attname, a.atttypid::regtype, pg_get_expr(d.adbin, d.adrelid))
        from pg_class c join pg_attribute a on a.attrelid = c.oid left join pg_attrdef d on d.adrelid = c.oid and d.adnum = a.attnum
        where c.relnamespace = 'public'::regnamespace
        union all select pg_get_indexdef(indexrelid) from pg_index join pg_class c on c.oid = indrelid where c.relnamespace = 'public'::regnamespace
        union all select pg_get_constraintdef(oid) from pg_constraint where connamespace = 'public'::regnamespace
        union all select pg_get_functiondef(oid) from pg_proc where pronamespace = 'public'::regnamespace
        union all select nspname from pg_namespace where nspname !~ '^pg_(toast_)?temp_'
        union all select rolname from pg_roles where rolname <> 'plain_owner'
        order by 1";
    Ok(sqlx::query_scalar(sql).fetch_all(&fixture.pool).await?)
}

#[tokio::test]
async fn s01_what_a_producer_gives_is_stored_as_it_is_or_refused() -> Result<()> {
    let fixture = Fixture::new().await?;
    let before = schema(&fixture).await?;
    let corpus = corpus();
    assert!(corpus.len() >= 500, "{}", corpus.len());
    let mut transaction = fixture.pool.begin().await?;
    for text in &corpus {
        for (namespace, topic) in [(text.clone(), "topic".to_owned()), ("shop".to_owned(), text.clone())] {
            let answer = fixture.outbox.enqueue(&mut transaction, Message::json(namespace, topic, &1)).await;
            // a few of the texts are plain names
            let is_plain = text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:/".contains(&b));
            assert!(
                if is_plain { answer.is_ok() } else { matches!(answer, Err(EnqueueError::Invalid { .. })) },
                "{text}"
            );
        }
    }
    transaction.rollback().await?;
    let message = |text: &String| {
        let message = Message::json("shop", "text", &json!({ text: text })).key(text).dedupe_key(text);
        message.header("x-text", text)
    };
    let mut transaction = fixture.pool.begin().await?;
    for text in &corpus[..corpus.len() / 2] {
        assert!(fixture.outbox.enqueue(&mut transaction, message(text)).await?.is_new());
        assert!(!fixture.outbox.enqueue(&mut transaction, message(text)).await?.is_new());
    }
    let answers = fixture.outbox.enqueue_many(&mut transaction, corpus.iter().map(message)).await?;
    assert_eq!(answers.iter().filter(|answer| answer.is_new()).count(), corpus.len() - corpus.len() / 2);
    transaction.commit().await?;

    let rows = fixture.rows().await?;
    assert_eq!(rows.len(), corpus.len());
    for (row, text) in rows.iter().zip(&corpus) {
        assert_eq!(
            (&row["key"], &row["dedupe_key"], &row["headers"]["x-text"]),
            (&json!(text), &json!(text), &json!(text))
        );
        assert_eq!(row["payload"], json!({ text: text }));
    }
    assert_eq!(schema(&fixture).await?, before);
    Ok(())
}

#[test]
fn s01_no_attack_is_a_name_of_a_schema_prefix_or_table() {
    for text in corpus().iter().filter(|text| *text != "null") {
        for names in [Names::new(text, "p_", "t"), Names::new("s", text, "t"), Names::new("s", "p_", text)] {
            assert!(names.is_err(), "{text}");
        }
    }
}
