//! Configurations that are accepted, and how files are read.

use std::io::Write;
use std::time::Duration;

use postrider_sinks::setting::Secret;

use super::super::{Delivered, Loaded, Refused, Sink, from_flags, load};
use super::BASE;

fn load_bytes(bytes: &[u8], mode: u32) -> Result<Loaded, Refused> {
    use std::os::unix::fs::PermissionsExt;
    let mut file = tempfile::NamedTempFile::new().expect("a file");
    file.write_all(bytes).expect("written");
    file.as_file().set_permissions(std::fs::Permissions::from_mode(mode)).expect("mode set");
    load(Some(file.path()), std::iter::empty())
}

#[test]
fn what_is_not_given_has_its_default() {
    let config = super::load(BASE, &[]).expect("accepted").config;
    let shop = &config.source["shop"];
    assert_eq!(shop.url.as_ref().map(Secret::expose), Some("sqlite:shop.db"));
    assert_eq!((shop.batch_size, shop.lease, shop.delivered), (500, Duration::from_secs(30), Delivered::Keep));
    assert!(matches!(config.sink["out"], Sink::Stdout(_)));
    assert_eq!(config.route[0].sink, "out");
}

#[test]
fn a_file_may_come_from_any_editor() {
    let windows = format!("\u{feff}{}", BASE.replace('\n', "\r\n"));
    assert!(load_bytes(windows.as_bytes(), 0o600).expect("accepted").warnings.is_empty());
    let bad = format!("\u{feff}{}lease = 30\r\n", BASE.replace('\n', "\r\n"));
    let refused = load_bytes(bad.as_bytes(), 0o600).expect_err("no unit").to_string();
    assert!(refused.contains(":7:9: source.shop.lease: 30 has no unit"), "{refused}");
    let first = load_bytes("\u{feff}lease = 30".as_bytes(), 0o600).expect_err("unknown").to_string();
    assert!(first.contains(":1:1: lease: there is no such key here"), "{first}");
}

#[test]
fn a_file_that_cannot_be_read_is_named() {
    let missing = load(Some("no/such/file.toml".as_ref()), std::iter::empty()).expect_err("missing").to_string();
    assert_eq!(missing, "no/such/file.toml: the file cannot be read: No such file or directory (os error 2)");
    let binary = load_bytes(b"[log]\nlevel = \"\xff\"\n", 0o600).expect_err("binary").to_string();
    assert!(binary.ends_with(":2:10: this is not UTF-8; save the file in that encoding"), "{binary}");
}

#[test]
fn s20_a_secret_in_a_file_that_others_can_read_is_warned_of() {
    let text = BASE.replace("sqlite:shop.db", "postgres://u:canary@h/x");
    let said = |text: &str, mode| -> Vec<String> {
        let warnings = load_bytes(text.as_bytes(), mode).expect("accepted").warnings;
        warnings
            .iter()
            .map(|warning| format!("{} {}", warning.path, warning.suggestion.clone().unwrap_or_default()))
            .collect()
    };
    let warned = "source.shop.url chmod 600 the file, or write { file = \"/path\" } or { env = \"NAME\" } instead";
    assert_eq!(said(&text, 0o644), [warned]);
    assert_eq!(said(&text, 0o640), [warned]);
    assert_eq!(said(&text, 0o600), [""; 0]);
    assert_eq!(said(BASE, 0o644), [""; 0], "there is no password in it");
    assert_eq!(said(&text.replace("u:canary@h/x", "u@h/x?password=canary"), 0o644), [warned]);
    assert_eq!(said(&text.replace("u:canary@h/x", "u@h/x?sslmode=require"), 0o644), [""; 0]);
}

#[test]
fn two_sources_may_share_a_table_if_they_take_different_messages() {
    let with = |one: &str, other: &str| {
        let text = format!("{BASE}{one}\n[source.more]\nurl = \"sqlite:shop.db\"\n{other}\n");
        super::load(&text, &[]).is_ok()
    };
    assert!(with("namespaces = [\"a\"]", "namespaces = [\"b\"]"));
    assert!(with("table = \"a\"", "table = \"b\""));
    assert!(with("enabled = false", ""));
    let tenants = ["0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2d", "0190b0a8-6d1c-7c3e-9c1d-3b1f0a6f4e2e"];
    assert!(with(&format!("tenant = {:?}", tenants[0]), &format!("tenant = {:?}", tenants[1])));
    assert!(!with("namespaces = [\"a\", \"b\"]", "namespaces = [\"b\"]"));
    assert!(!with("namespaces = [\"a\"]", ""));
    assert!(!with(&format!("tenant = {:?}", tenants[0]), ""));
}

#[test]
fn flags_make_one_source_one_sink_and_one_route() {
    let config =
        from_flags(Secret::new("postgres://u:canary@h/x"), "stdout", std::iter::empty()).expect("accepted").config;
    assert_eq!(config.source.keys().collect::<Vec<_>>(), ["default"]);
    assert_eq!((config.route.len(), &*config.route[0].sink), (1, "default"));
    assert!(!format!("{config:?}").contains("canary"));
}

#[test]
fn flags_are_checked_like_a_file() {
    let refused = from_flags(Secret::new("http://u:canary@h/x"), "stdout", std::iter::empty())
        .expect_err("no database")
        .to_string();
    assert_eq!(
        refused,
        "the command line: source.default.url: http:// is no database that we know; write postgres://…, mysql://… or sqlite:path"
    );
    let refused =
        from_flags(Secret::new("sqlite:x"), "kafka", std::iter::empty()).expect_err("no such sink").to_string();
    assert!(refused.starts_with("the command line: sink: there is no such sink"), "{refused}");
}
