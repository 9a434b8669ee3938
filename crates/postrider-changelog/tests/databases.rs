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
}
