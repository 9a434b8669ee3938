//! The changelog keeps every promise on each database.

mod scene;
mod suite;

use scene::{OnMySql, OnPostgres, OnSqlite};

mod postgres {
    crate::changelog_promises!(super::OnPostgres);
}

mod mysql {
    crate::changelog_promises!(super::OnMySql);
}

mod sqlite {
    crate::changelog_promises!(super::OnSqlite);

    use postrider_changelog::{After, Changelog, ChangelogError, Reader};
    use postrider_store::Names;
    use sqlx::SqlitePool;

    use crate::scene::{OnSqlite, Scene, users};

    #[tokio::test(flavor = "multi_thread")]
    async fn s1_51_a_file_that_was_restored_refuses_what_was_read_after_the_backup() {
        let scene = OnSqlite::start().await;
        scene.users(&["ada"]).await;
        let backup = scene.directory.path().join("backup.db");
        scene.run(&format!("vacuum into '{}'", backup.display())).await.expect("it is copied");
        let before = scene.changelog().head().await.expect("it can be read");
        scene.users(&["eve"]).await;
        let after = scene.changelog().head().await.expect("it can be read");
        scene.pool.close().await;
        let options = scene.options.clone().filename(&backup);
        let pool = SqlitePool::connect_with(options).await.expect("the file opens");
        let restored = Changelog::new(pool, Names::default()).enabled(true);
        restored.commit(&users(&["joe"])).await.expect("it is committed");
        let error = restored.list(after.into(), 0).await.expect_err("it is not what happened");
        assert!(matches!(error, ChangelogError::LostHistory(cursor) if cursor == after), "{error:?}");
        let page = restored.list(before.into(), 0).await.expect("it is in both");
        assert_eq!(page.entries.len(), 1);
        assert_eq!(restored.list(After::Beginning, 0).await.expect("it can be read").entries.len(), 2);
    }
}
