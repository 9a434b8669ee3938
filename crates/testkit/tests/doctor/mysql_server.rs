//! Variables of a whole server, on a server of its own because all databases share them.

use postrider::examine::Thresholds;
use postrider::operate::Severity::{Problem, Warning};
use testkit::MariaDb;

use crate::scene::{OnMySql, all_fine, one};

#[tokio::test]
async fn variables_on_which_promises_rest_are_found_and_mended() {
    let server = MariaDb::builder().durable().setting("log-bin", "log").setting("sync-binlog", "1").start().await;
    let server = server.expect("a private MariaDB starts");
    let scene = OnMySql::on(&server).await;
    all_fine(&scene.examine().await);
    for (set, name, severity, word) in [
        ("innodb_flush_log_at_trx_commit = 0", "durability", Problem, "crash of the server"),
        ("innodb_flush_log_at_trx_commit = 2", "durability", Warning, "crash of the host"),
        ("sync_binlog = 0", "durability", Warning, "sync_binlog"),
        ("binlog_format = 'STATEMENT'", "binlog-format", Problem, "logs statements"),
        ("read_only = 1", "writable", Problem, "read-only"),
        ("max_allowed_packet = 1048576", "max-allowed-packet", Problem, "largest payload"),
        ("max_allowed_packet = 8388608", "max-allowed-packet", Warning, "many messages"),
        ("tx_isolation = 'SERIALIZABLE'", "isolation", Warning, "SERIALIZABLE"),
    ] {
        scene.run(&format!("set global {set}")).await;
        scene.shows_and_mends(name, severity, word).await;
    }
    // A session takes the server's mode unless it says otherwise, as the driver does.
    scene.run("set global sql_mode = ''").await;
    scene.shows_and_mends("sql-mode", Warning, "cut off silently").await;
    let many = Thresholds { free_connections: 1_000, ..Thresholds::default() };
    one(&scene.examine_as(scene.roles.relay(), &many).await, "connections", Warning, "connections are in use");
}
