//! Whether a database answers, and if not, why in words that name no user, password or address.

use std::time::Duration;

use postrider_core::store::{StoreError, StoreErrorKind};

#[cfg(feature = "sqlite")]
pub(super) fn file_is_missing() -> StoreError {
    StoreError::new(
        StoreErrorKind::Unavailable,
        "the SQLite file is missing; check the path, or make the file with postrider migrate",
    )
}

#[cfg(feature = "postgres")]
pub(super) async fn postgres(pool: &sqlx::PgPool) -> Result<(), StoreError> {
    use crate::postgres::{PROTOCOL, is_login, sqlstate};

    let options = pool.connect_options();
    let attempt = attempt(options.as_ref());
    limited(pool.options().get_acquire_timeout(), attempt, |error| match sqlstate(error).as_deref() {
        Some(state) if is_login(state) => Answer::Login,
        Some("3D000") => Answer::NoDatabase,
        Some(PROTOCOL) => Answer::Parameter,
        Some(state) => Answer::Other(state.to_owned()),
        None => Answer::Nothing,
    })
    .await
}

#[cfg(feature = "mysql")]
pub(super) async fn mysql(pool: &sqlx::MySqlPool) -> Result<(), StoreError> {
    use crate::mysql::{is_login, number};

    let options = pool.connect_options();
    let attempt = attempt(options.as_ref());
    limited(pool.options().get_acquire_timeout(), attempt, |error| match number(error) {
        Some(number) if is_login(number) => Answer::Login,
        Some(1049) => Answer::NoDatabase,
        Some(number) => Answer::Other(number.to_string()),
        None => Answer::Nothing,
    })
    .await
}

/// The file may have been taken away under an open connection, so it is opened anew.
#[cfg(feature = "sqlite")]
pub(super) async fn sqlite(pool: &sqlx::SqlitePool) -> Result<(), StoreError> {
    let options = pool.connect_options();
    if !options.get_filename().exists() {
        return Err(file_is_missing());
    }
    let options = options.as_ref().clone().create_if_missing(false);
    let attempt = attempt(&options);
    limited(pool.options().get_acquire_timeout(), attempt, |error| match error.as_database_error() {
        Some(error) => Answer::Other(error.message().to_owned()),
        None => Answer::Nothing,
    })
    .await
}

/// What a database said to a connection that it did not let in.
#[allow(dead_code)] // SQLite has no logins
enum Answer {
    Login,
    NoDatabase,
    Parameter,
    Other(String),
    Nothing,
}

/// Opens a connection outside of the pool, which would go on trying where nobody listens.
async fn attempt<O>(options: &O) -> Result<(), sqlx::Error>
where
    O: sqlx::ConnectOptions,
    O::Connection: Sized,
{
    use sqlx::Connection;

    let mut connection = options.connect().await?;
    connection.ping().await?;
    connection.close().await
}

async fn limited(
    limit: Duration,
    attempt: impl Future<Output = Result<(), sqlx::Error>>,
    sort: impl Fn(&sqlx::Error) -> Answer,
) -> Result<(), StoreError> {
    match tokio::time::timeout(limit, attempt).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(explain(sort(&error), error)),
        Err(_) => Err(StoreError::new(
            StoreErrorKind::Unavailable,
            format!(
                "the database did not answer within {} s; check its host and port, and firewalls in between",
                limit.as_secs_f32()
            ),
        )),
    }
}

/// A server's own text may name the user, so only its code is told; what the network or TLS says is attached.
fn explain(answer: Answer, error: sqlx::Error) -> StoreError {
    use StoreErrorKind::{Refused, Unavailable};

    match (answer, error) {
        (Answer::Login, _) => StoreError::new(
            Refused,
            "the database refused the login; check user and password, whether the server lets this host in, and whether it demands TLS",
        ),
        (Answer::NoDatabase, _) => {
            StoreError::new(Refused, "the server has no database of that name; create it, or correct the URL")
        }
        (Answer::Parameter, _) => StoreError::new(
            Refused,
            "the server, or rather a pooler in front of it, refused how the connection begins (08P01), most likely because of a start-up parameter that it does not know; take `options` out of the URL, or name the parameter in ignore_startup_parameters of PgBouncer, whose log tells it",
        ),
        (Answer::Other(code), _) => {
            StoreError::new(Unavailable, format!("the database answered {code} and let nobody in; see its log"))
        }
        (_, sqlx::Error::Tls(error)) => no_tls().with_source(error),
        // A certificate that is not accepted comes as data that is not valid.
        (_, sqlx::Error::Io(error)) if error.kind() == std::io::ErrorKind::InvalidData => no_tls().with_source(error),
        (_, sqlx::Error::Io(error)) => StoreError::new(
            Unavailable,
            "the database cannot be reached; check that it runs, and the URL's host and port: a user name or password with special characters such as @ / # must be percent-encoded",
        )
        .with_source(error),
        (_, _) => StoreError::new(
            Unavailable,
            "the connection to the database failed; check that the URL's host and port are a database of that kind",
        ),
    }
}

fn no_tls() -> StoreError {
    StoreError::new(
        StoreErrorKind::Refused,
        "TLS with the database failed; check the URL's sslmode or ssl-mode, the server's certificate and the root certificate",
    )
}
