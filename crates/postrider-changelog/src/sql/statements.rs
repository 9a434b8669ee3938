//! The changelog's own SQL, rendered once from validated names.

use std::sync::Arc;

use postrider_store::Names;
use postrider_store::sql::Sql;

use super::{Argument, Dialect, Query};

macro_rules! statements {
    ($($name:ident)*) => {
        /// The SQL of a database, as it is in its files.
        #[derive(Debug, Clone, Copy)]
        pub struct Templates {
            $(pub $name: &'static str,)*
            /// The second statement of a reservation, if there is one.
            pub reserved: Option<&'static str>,
        }

        /// The SQL for the names of one changelog.
        #[derive(Debug)]
        pub struct Statements {
            $(pub $name: Sql,)*
            pub reserved: Option<Sql>,
            /// Whether connections keep statements prepared.
            pub persistent: bool,
        }

        impl Statements {
            pub fn render<DB: Dialect>(names: &Names, persistent: bool) -> Arc<Self> {
                let templates = DB::TEMPLATES;
                let sql = |template| Sql::from(DB::render(names, template));
                Arc::new(Self {
                    $($name: sql(templates.$name),)*
                    reserved: templates.reserved.map(sql),
                    persistent,
                })
            }

            /// Every statement with its name, for tests that prepare or explain them.
            pub fn all(&self) -> Vec<(&'static str, Sql)> {
                let reserved = self.reserved.iter().map(|sql| ("reserved", sql.clone()));
                [$((stringify!($name), self.$name.clone()),)*].into_iter().chain(reserved).collect()
            }
        }

        /// The files of a database.
        macro_rules! templates {
            ($database:literal, $reserved:expr) => {
                $crate::sql::Templates {
                    $($name: include_str!(concat!("../sql/", $database, "/", stringify!($name), ".sql")),)*
                    reserved: $reserved,
                }
            };
        }
        pub(crate) use templates;
    };
}

statements! {
    reserve time append list list_from place find store_id
    consumer_make consumer_take consumer_read consumer_there consumer_advance consumer_renew consumer_hold_back
    consumer_release consumer_reset consumer_forget consumers
}

impl Statements {
    /// A statement with its parameters.
    pub fn query(&self, sql: &Sql, arguments: impl Into<Vec<Argument>>) -> Query {
        Query { sql: sql.clone(), arguments: arguments.into(), persistent: self.persistent }
    }
}
