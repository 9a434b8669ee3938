//! S01: nothing an operator types becomes SQL.

use anyhow::Result;

use super::support::Site;

const STRINGS: [&str; 12] = [
    "'; drop table outbox_messages; --",
    "\" or 1=1 --",
    "`; drop table outbox_messages; #",
    "$1",
    "?",
    "%",
    "_",
    "\\",
    "' union select 1,2,3 --",
    "{table}",
    "a'||(select version())||'b",
    "\u{0027}\u{02bc}\u{ff07}",
];

#[tokio::test]
async fn s01_no_input_of_the_operator_becomes_sql() -> Result<()> {
    for site in Site::each().await? {
        let site = site.migrated().await?;
        let source = site.source().await?;
        site.postrider(&["enqueue", "-n", "n", "-t", "t", "1"]).await?.succeeded()?;
        source.run("update outbox_messages set status = 'dead', last_error = 'plain'").await?;
        for text in STRINGS {
            for field in ["--topic", "--key", "--error", "--namespace"] {
                let given = format!("{field}={text}");
                for command in ["list", "replay", "discard"] {
                    let mut arguments = vec!["dead", command, &given, "--json"];
                    if command != "list" {
                        arguments.extend(["--yes", "--as", text]);
                    }
                    let ran = site.postrider(&arguments).await?;
                    assert!(ran.status.success(), "{arguments:?}: {ran:?}");
                    assert!(!ran.out.contains("\"id\"") && !ran.out.contains("ed\":1"), "{arguments:?}: {ran:?}");
                }
            }
            let given = format!("--namespace={text}");
            site.postrider(&["status", "--json", &given]).await?.succeeded()?;
            site.postrider(&["purge", "--state", "dead", "--older-than", "0s", &given, "--yes", "--as", text])
                .await?
                .succeeded()?;
            // An underscore is a good name; all the others are refused.
            let code = if text == "_" { 0 } else { 1 };
            for option in ["--namespace", "--topic"] {
                let mut arguments = vec!["enqueue", "-n", "n", "-t", "t", "1"];
                let given = format!("{option}={text}");
                arguments.retain(|word| *word != "-n" && *word != "n" || option == "--topic");
                arguments.retain(|word| *word != "-t" && *word != "t" || option == "--namespace");
                arguments.push(&given);
                site.postrider(&arguments).await?.failed_with(code)?;
            }
            for option in ["--schema", "--producer", "--relay", "--operator"] {
                let given = format!("{option}={text}");
                let mut arguments = vec!["migrate", &given, "--print-grants"];
                if option == "--schema" {
                    arguments = vec!["status", &given, "--database-url", &site.url];
                }
                let ran = site.postrider(&arguments).await?;
                assert!(ran.code() == 2 || text == "_" || site.url.starts_with("sqlite"), "{arguments:?}: {ran:?}");
            }
        }
        assert_eq!(site.count("dead").await?, 1, "the one dead message was never meant");
        // What is typed as a name on the audit's side is written as it is.
        let id =
            site.postrider(&["dead", "list", "--json"]).await?.json()?["id"].as_str().unwrap_or_default().to_owned();
        site.postrider(&["dead", "discard", &id, "--yes", "--as", STRINGS[0]]).await?.succeeded()?;
        let audit = site.postrider(&["audit", "--json"]).await?.json()?;
        assert_eq!(audit["who"], STRINGS[0]);
    }
    Ok(())
}
