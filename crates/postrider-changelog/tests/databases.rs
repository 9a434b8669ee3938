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

    use postrider_changelog::{After, Changelog, ChangelogError, Operation, Reader, UnitOfWork, Value};
    use postrider_store::Names;
    use sqlx::SqlitePool;

    use crate::scene::{OnSqlite, Scene, users};

    /// Numbers are read back as text, and have to come back to the last bit.
    #[tokio::test(flavor = "multi_thread")]
    async fn s1_40_every_number_is_told_to_the_last_bit() {
        let (scene, blog) = (OnSqlite::start().await, crate::scene::blog());
        let random = std::iter::repeat_with(|| f64::from_bits(fastrand::u64(..))).filter(|number| number.is_finite());
        let numbers: Vec<f64> = random.take(5_000).chain([1e300, 5e-324, f64::MAX, 0.1, 1.0 / 3.0]).collect();
        let mut work = UnitOfWork::new();
        for number in &numbers {
            work.create(&blog.kinds, [("float", (*number).into())]).expect("it is right");
        }
        scene.changelog().commit(&work).await.expect("it is committed");
        let page = scene.changelog().list(After::Beginning, 1).await.expect("it can be read");
        let mutations = page.entries[0].payload().expect("it can be read").mutations;
        for (mutation, number) in mutations.iter().zip(&numbers) {
            let Operation::Create { values } = &mutation.operation else { panic!("it is another operation") };
            assert!(values["float"] == Value::Number(*number), "{number:e} became {:?}", values["float"].to_json());
        }
        assert_eq!(mutations.len(), numbers.len());
    }

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
