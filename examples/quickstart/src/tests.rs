//! The quickstart keeps what it promises, and its proof can fail.

use super::*;

fn options(directory: &tempfile::TempDir) -> Options {
    Options { orders: 80, file: directory.path().join("shop.db"), quiet: true }
}

#[tokio::test]
async fn a_run_proves_itself_and_leaves_a_file_that_can_be_looked_at() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = options(&directory);
    run(&options).await?;
    let store = SqliteStore::open(&options.file).await?;
    let delivered: i64 = sqlx::query_scalar("select count(*) from outbox_messages where status = 'delivered'")
        .fetch_one(store.pool())
        .await?;
    let orders: i64 = sqlx::query_scalar("select count(*) from orders").fetch_one(store.pool()).await?;
    assert!(orders > 40 && delivered == orders, "{delivered} of {orders}");
    store.pool().close().await;
    run(&options).await // begins anew
}

#[tokio::test]
async fn the_proof_fails_for_an_order_that_did_not_arrive_and_for_one_that_was_called_off() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(&options(&directory).file).await?;
    store.migrate().await?;
    let shop = Shop::open(store.pool().clone(), store.outbox()).await?;
    let terminal = Terminal::default();
    assert_eq!(proof::of(&shop, &terminal).await?.committed, 0);
    sqlx::query("insert into orders values (7, 'lamp', 1)").execute(store.pool()).await?;
    assert!(proof::of(&shop, &terminal).await.is_err_and(|error| error.to_string().contains("never arrived: [7]")));
    terminal.notes().arrivals.insert(7, 1);
    assert!(proof::of(&shop, &terminal).await.is_ok());
    terminal.notes().arrivals.insert(8, 1);
    assert!(proof::of(&shop, &terminal).await.is_err_and(|error| error.to_string().contains("never committed: [8]")));
    Ok(())
}

#[test]
fn wrong_usage_is_said() {
    for words in [&["--orders"][..], &["--orders", "many"], &["--colour"]] {
        assert!(read(words.iter().map(|word| (*word).to_owned())).is_err());
    }
    assert!(
        read(["--orders", "5", "--quiet"].map(str::to_owned)).is_ok_and(|options| options.orders == 5 && options.quiet)
    );
}
