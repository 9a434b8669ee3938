use futures::future::join_all;
use postrider::{Message, MySqlStore, Names};
use testkit::MariaDb;
use sqlx::Row;
#[tokio::test]
async fn scratch() {
    let db = MariaDb::shared().await.unwrap().create_database().await.unwrap();
    let pool = db.pool_with(|o| o.max_connections(10)).await.unwrap();
    let store = MySqlStore::new(pool.clone(), Names::default());
    store.migrate().await.unwrap();
    for key in 0..30 {
        let r = join_all((0..8).map(|_| async {
            let mut t = pool.begin().await.unwrap();
            let a = store.outbox().enqueue(&mut t, Message::json("shop","t",&1).dedupe_key(format!("key {key}"))).await;
            if a.is_err() { return false; }
            let b = store.outbox().enqueue(&mut t, Message::json("shop","t",&1)).await;
            if b.is_err() { return false; }
            t.commit().await.unwrap(); true
        })).await;
        if r.contains(&false) {
            let row = sqlx::raw_sql("show engine innodb status").fetch_one(&pool).await.unwrap();
            let s: String = row.get(2);
            let i = s.find("LATEST DETECTED DEADLOCK").unwrap(); let j = s.find("TRANSACTIONS\n---").unwrap_or(s.len());
            println!("round {key}\n{}", &s[i..j]);
            return;
        }
    }
}
