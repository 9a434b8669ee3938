//! The demo keeps what it promises, and its proof can fail.

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
async fn the_proof_fails_for_an_order_that_is_lost_invented_or_gone() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let store = SqliteStore::open(&options(&directory).file).await?;
    store.migrate().await?;
    let shop = Shop::open(store.pool().clone(), store.outbox()).await?;
    let terminal = Terminal::default();
    assert_eq!(proof::of(&shop, &terminal).await?.committed, 0);
    shop.place_one(7, false).await?;
    assert!(fails(&shop, &terminal, "never arrived: [7]").await);
    terminal.notes().arrivals.insert(7, 1);
    assert_eq!(proof::of(&shop, &terminal).await?.committed, 1);
    terminal.notes().arrivals.insert(8, 1);
    assert!(fails(&shop, &terminal, "never committed: [8]").await);
    sqlx::query("delete from orders").execute(store.pool()).await?;
    assert!(fails(&shop, &terminal, "told of 1 commits, the database has 0").await);
    Ok(())
}

async fn fails(shop: &Shop, terminal: &Terminal, why: &str) -> bool {
    proof::of(shop, terminal).await.is_err_and(|error| error.to_string().contains(why))
}

#[tokio::test]
async fn a_file_that_is_not_of_an_earlier_run_is_left_alone() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let options = options(&directory);
    std::fs::write(&options.file, "my notes")?;
    assert!(run(&options).await.is_err_and(|error| error.to_string().contains("name another file")));
    assert_eq!(std::fs::read_to_string(&options.file)?, "my notes");

    let real = Options { file: directory.path().join("real.db"), ..options };
    let store = SqliteStore::open(&real.file).await?;
    store.migrate().await?;
    store.pool().close().await;
    assert!(run(&real).await.is_err_and(|error| error.to_string().contains("name another file")));
    assert!(real.file.exists(), "an outbox of somebody else");
    Ok(())
}
