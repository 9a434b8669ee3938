//! Producers in other languages: `postrider_enqueue` from Python and from psql, against the same tables of inputs.

use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::{Context, Result, ensure};
use serde_json::Value;
use testkit::Postgres;
use testkit::conformance::given::Given;
use testkit::conformance::inputs::{By, accepted, refused};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::fixture::Fixture;

async fn run(command: &mut Command, input: String) -> Result<Output> {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn()?;
    let mut stdin = child.stdin.take().context("no stdin")?;
    let write = async move {
        stdin.write_all(input.as_bytes()).await?;
        stdin.shutdown().await
    };
    let (written, output) = tokio::join!(write, child.wait_with_output());
    let output = output?;
    ensure!(written.is_ok() && output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Ok(output)
}

/// Offers messages from Python in one transaction; answers what Python saw of each.
async fn from_python(fixture: &Fixture, given: impl Iterator<Item = &Given>) -> Result<Vec<Value>> {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let made = run(&mut Command::new(here.join("../../scripts/python-env")), String::new()).await?;
    let python = String::from_utf8(made.stdout)?;
    let lines: String = given.map(|given| format!("{}\n", given.arguments())).collect();
    let script = here.join("tests/producers/enqueue.py");
    let output = run(Command::new(python.trim()).arg(script).arg(fixture.database.url()), lines).await?;
    let lines = String::from_utf8(output.stdout)?;
    lines.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

/// A call in SQL text, with the arguments as literals.
fn call(given: &Given) -> String {
    let arguments = given.arguments();
    let literal = |name: &str| match &arguments[name] {
        Value::Null => "null".to_owned(),
        Value::String(text) => format!("E'{}'", text.replace('\\', "\\\\").replace('\'', "''")),
        other => other.to_string(),
    };
    let plain = ["namespace", "topic", "key", "dedupe_key", "max_attempts", "content_type"]
        .map(|name| format!("{name} => {}", literal(name)));
    let cast = [("payload", "jsonb"), ("headers", "jsonb"), ("tenant_id", "uuid")]
        .map(|(name, kind)| format!("{name} => {}::{kind}", literal(name)));
    format!(
        "select id, is_new from postrider_enqueue({}, {}, deliver_at => to_timestamp({}), payload_bytes => decode({}, 'hex'));\n",
        plain.join(", "),
        cast.join(", "),
        literal("deliver_at"),
        literal("payload_bytes")
    )
}

/// Runs SQL text in psql; answers its output and its errors.
async fn from_psql(fixture: &Fixture, sql: String) -> Result<(String, String)> {
    let mut psql = Command::new(Postgres::shared().await?.bin_dir().join("psql"));
    let psql = psql.args(["--no-psqlrc", "--quiet", "--tuples-only", "--no-align"]).arg(fixture.database.url());
    let output = run(psql, format!("\\set VERBOSITY verbose\n{sql}")).await?;
    Ok((String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?))
}

#[tokio::test]
async fn r06_python_is_refused_what_rust_is_refused() -> Result<()> {
    let fixture = Fixture::new().await?;
    let inputs = refused();
    let answers = from_python(&fixture, inputs.iter().map(|(_, _, given)| given)).await?;
    assert_eq!(answers.len(), inputs.len());
    for ((name, by, _), answer) in inputs.iter().zip(&answers) {
        assert!(answer["is_new"].is_null(), "{name} was taken");
        let (state, message) = (answer["sqlstate"].as_str(), answer["message"].as_str().unwrap_or_default());
        match by {
            By::Client => assert_eq!(state, None, "{name}: {answer}"),
            By::Type => {
                assert!(state.is_some_and(|state| state.starts_with("22") && state != "22023"), "{name}: {answer}")
            }
            By::Function => {
                assert_eq!(state, Some("22023"), "{name}: {answer}");
                assert!(
                    message.starts_with("outbox message refused: the ") || message.contains("max_attempts"),
                    "{name}: {answer}"
                );
                assert!(answer["hint"].as_str().is_some_and(|hint| hint.len() > 5), "{name}: {answer}");
            }
        }
    }
    assert!(fixture.ids().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn r06_python_may_do_what_rust_may_do_and_writes_the_same_rows() -> Result<()> {
    let (ours, theirs) = (Fixture::new().await?, Fixture::new().await?);
    let inputs = accepted();
    for (_, given) in &inputs {
        let _new = ours.enqueue(given.message()?).await?;
    }
    let answers = from_python(&theirs, inputs.iter().map(|(_, given)| given)).await?;
    let (our_rows, their_rows) = (ours.rows().await?, theirs.rows().await?);
    assert_eq!(our_rows.len(), inputs.len());
    for (at, (name, _)) in inputs.iter().enumerate() {
        assert_eq!(answers[at]["is_new"], true, "{name}: {}", answers[at]);
        assert_eq!(answers[at]["id"], their_rows[at]["id"], "{name}");
        let differs = |column: &&str| our_rows[at][*column] != their_rows[at][*column];
        let columns = [
            "namespace",
            "topic",
            "key",
            "tenant_id",
            "dedupe_key",
            "payload",
            "payload_bytes",
            "headers",
            "status",
            "attempts",
            "max_attempts",
        ];
        assert_eq!(columns.iter().find(|column| differs(column)), None, "{name}");
    }
    Ok(())
}

#[tokio::test]
async fn s0_44_python_is_told_of_a_duplicate() -> Result<()> {
    let fixture = Fixture::new().await?;
    let given = Given { dedupe_key: Some("a".into()), ..Given::default() };
    let answers = from_python(&fixture, [&given, &given].into_iter()).await?;
    let id = fixture.ids().await?[0].to_string();
    assert_eq!(
        answers,
        [serde_json::json!({"id": id, "is_new": true}), serde_json::json!({"id": id, "is_new": false})]
    );
    assert_eq!(fixture.enqueue(given.message()?).await?.id().to_string(), id);
    Ok(())
}

#[tokio::test]
async fn r06_psql_is_refused_what_rust_is_refused() -> Result<()> {
    let fixture = Fixture::new().await?;
    // psql cannot read a NUL from its input
    let inputs: Vec<_> = refused().into_iter().filter(|(_, by, _)| *by == By::Function).collect();
    let sql: String = inputs.iter().map(|(_, _, given)| call(given)).collect();
    let (output, errors) = from_psql(&fixture, sql).await?;
    assert_eq!(output.trim(), "");
    assert_eq!(errors.matches("ERROR:  22023: outbox message refused: ").count(), inputs.len());
    assert_eq!(errors.matches("HINT:  ").count(), inputs.len());
    assert!(fixture.ids().await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn s0_44_psql_writes_a_message_and_is_told_of_a_duplicate() -> Result<()> {
    let fixture = Fixture::new().await?;
    let given = Given { dedupe_key: Some("it's \\ here".into()), ..Given::default() };
    let sql =
        format!("begin;\n{}{}commit;\nbegin;\n{}rollback;\n", call(&given), call(&given), call(&Given::default()));
    let (output, errors) = from_psql(&fixture, sql).await?;
    let ids = fixture.ids().await?;
    assert_eq!((ids.len(), errors.as_str()), (1, ""));
    let lines: Vec<&str> = output.lines().collect();
    assert_eq!(lines[..2], [format!("{}|t", ids[0]), format!("{}|f", ids[0])]);
    assert_eq!(fixture.rows().await?[0]["dedupe_key"], "it's \\ here");
    Ok(())
}
