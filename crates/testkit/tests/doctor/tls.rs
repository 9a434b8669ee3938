//! The URL's sslmode decides whether TLS is spoken and what is checked, on a PostgreSQL with a certificate of its own.

use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use postrider::{AnyStore, StoreErrorKind};
use sqlx::AssertSqlSafe;
use testkit::{Postgres, eventually};

use crate::scene::open;

fn openssl(directory: &Path, arguments: &str) {
    let mut program = Command::new("openssl");
    let ended = program.args(arguments.split(' ')).current_dir(directory).output().expect("openssl is installed");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
}

/// Makes a root, and a certificate for `localhost` that it signed.
fn certificates(directory: &Path) {
    std::fs::write(directory.join("names"), "subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n")
        .expect("a file");
    openssl(directory, "req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=root -keyout root.key -out root.crt");
    openssl(directory, "req -newkey rsa:2048 -nodes -subj /CN=localhost -keyout server.key -out server.csr");
    openssl(
        directory,
        "x509 -req -days 2 -in server.csr -CA root.crt -CAkey root.key -CAcreateserial -extfile names -out server.crt",
    );
}

async fn with_tls(directory: &Path) -> Postgres {
    let server = Postgres::start().await.expect("a private PostgreSQL starts");
    certificates(directory);
    let owner = std::fs::metadata(server.data_dir()).expect("a data directory");
    for name in ["server.key", "server.crt"] {
        let copy = server.data_dir().join(name);
        std::fs::copy(directory.join(name), &copy).expect("a copy");
        std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(0o600)).expect("its own");
        chown(&copy, Some(owner.uid()), Some(owner.gid())).expect("the server's own");
    }
    let admin = sqlx::PgPool::connect(&server.url("postgres")).await.expect("it connects");
    for sql in ["alter system set ssl = on", "select pg_reload_conf()"] {
        sqlx::raw_sql(sql).execute(&admin).await.expect(sql);
    }
    let speaks = || async { open(&with(&server, "127.0.0.1", "require")).await.ping().await.is_ok() };
    eventually(Duration::from_secs(120), speaks).await;
    server
}

fn with(server: &Postgres, host: &str, mode: &str) -> String {
    format!("postgres://postgres@{host}:{}/postgres?sslmode={mode}", server.port())
}

/// Whether the server says that the connection is encrypted.
async fn is_encrypted(url: &str) -> bool {
    let AnyStore::Postgres(store) = open(url).await else { panic!("it is PostgreSQL") };
    let sql = AssertSqlSafe("select ssl from pg_stat_ssl where pid = pg_backend_pid()".to_owned());
    sqlx::query_scalar(sql).fetch_one(store.pool()).await.expect("it answers")
}

#[tokio::test]
async fn s19_the_urls_sslmode_decides_whether_and_whom_tls_is_spoken_with() {
    let directory = tempfile::tempdir().expect("a directory");
    let server = with_tls(directory.path()).await;
    assert!(!is_encrypted(&with(&server, "127.0.0.1", "disable")).await);
    assert!(is_encrypted(&with(&server, "127.0.0.1", "require")).await);
    let root = directory.path().join("root.crt");
    let trusting = |host, mode| format!("{}&sslrootcert={}", with(&server, host, mode), root.display());
    assert!(is_encrypted(&trusting("localhost", "verify-full")).await);
    for (url, why) in [
        (with(&server, "localhost", "verify-full"), "nobody known signed it"),
        (with(&server, "localhost", "verify-ca"), "nobody known signed it"),
        (trusting("127.0.0.1", "verify-full"), "it is for another host"),
    ] {
        let refused = open(&url).await.ping().await.expect_err(why);
        assert_eq!(refused.kind(), StoreErrorKind::Refused, "{refused:?}");
        assert!(refused.to_string().contains("TLS"), "{refused}");
    }
}
