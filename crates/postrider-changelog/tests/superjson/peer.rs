//! The package for JavaScript, in a process of its own.

use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use serde_json::Value;
use testkit::brokers::node;

/// Tells the peer one thing, and answers what it answers.
pub fn ask(command: &Value) -> Value {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/superjson/peer.ts");
    let made = node::compile(&[("peer.ts".to_owned(), source)]).expect("it compiles");
    let mut peer = Command::new("node");
    let peer = peer.arg(made.join("peer.js")).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = peer.spawn().expect("it starts");
    let mut stdin = child.stdin.take().expect("it listens");
    // It answers only when it has read the line, and ends when there is no other.
    stdin.write_all(format!("{command}\n").as_bytes()).expect("it reads");
    drop(stdin);
    let said = child.wait_with_output().expect("it ends");
    assert!(said.status.success(), "the peer failed");
    serde_json::from_slice(&said.stdout).expect("JSON")
}
