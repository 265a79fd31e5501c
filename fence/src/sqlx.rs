//! `sqlx`: PostgreSQL, SQLite, and MySQL or MariaDB.

use crate::sql::{AdmitError, Answer, Transaction, sealed};
use crate::stamp::Stamp;
use sqlx::Error;

/// Returns whether the error is of the connection or of the driver, and not of the database.
fn is_closed(error: &Error) -> bool {
    matches!(error, Error::Io(_) | Error::Tls(_) | Error::WorkerCrashed | Error::PoolClosed)
}

fn stale(stored: Option<(i64, i64)>) -> Answer {
    Answer::Stale(stored.and_then(|(token, lineage)| Stamp::from_columns(token, lineage)))
}

/// `Transaction::show` for databases in which the number of changed rows tells whether the holder
/// was admitted.
#[cfg(any(feature = "sqlx-postgres", feature = "sqlx-sqlite"))]
macro_rules! show_by_rows {
    ($statements:path) => {
        async fn show(&mut self, resource: &str, stamp: Stamp) -> Result<Answer, Error> {
            use $statements as statements;
            let admit = sqlx::query(statements::ADMIT).bind(resource);
            let admit = admit.bind(stamp.token.as_i64()).bind(stamp.lineage.as_i64());
            if admit.execute(&mut **self).await?.rows_affected() > 0 {
                return Ok(Answer::Admitted);
            }
            let stored = sqlx::query_as(statements::STORED).bind(resource);
            Ok(stale(stored.fetch_optional(&mut **self).await?))
        }
    };
}

#[cfg(feature = "sqlx-postgres")]
impl sealed::Sealed for sqlx::Transaction<'_, sqlx::Postgres> {}

#[cfg(feature = "sqlx-postgres")]
impl Transaction for sqlx::Transaction<'_, sqlx::Postgres> {
    type Error = Error;

    show_by_rows!(crate::sql::postgres);

    fn classify(error: Error) -> AdmitError<Error> {
        let code =
            error.as_database_error().and_then(|error| error.code()).map(|code| code.into_owned());
        let is_closed = is_closed(&error);
        crate::postgres::classify(error, code.as_deref(), is_closed)
    }
}

#[cfg(feature = "sqlx-sqlite")]
impl sealed::Sealed for sqlx::Transaction<'_, sqlx::Sqlite> {}

#[cfg(feature = "sqlx-sqlite")]
impl Transaction for sqlx::Transaction<'_, sqlx::Sqlite> {
    type Error = Error;

    show_by_rows!(crate::sql::sqlite);

    fn classify(error: Error) -> AdmitError<Error> {
        let code = error
            .as_database_error()
            .and_then(|error| error.code())
            .and_then(|code| code.parse().ok());
        if code.is_none() && is_closed(&error) {
            return AdmitError::Disconnected(error);
        }
        crate::sqlite::classify(error, code)
    }
}

#[cfg(feature = "sqlx-mysql")]
impl sealed::Sealed for sqlx::Transaction<'_, sqlx::MySql> {}

#[cfg(feature = "sqlx-mysql")]
impl Transaction for sqlx::Transaction<'_, sqlx::MySql> {
    type Error = Error;

    async fn show(&mut self, resource: &str, stamp: Stamp) -> Result<Answer, Error> {
        use crate::sql::mysql::{ADMIT, STORED};
        let (token, lineage) = (stamp.token.as_i64(), stamp.lineage.as_i64());
        sqlx::query(ADMIT)
            .bind(resource.as_bytes())
            .bind(token)
            .bind(lineage)
            .execute(&mut **self)
            .await?;
        let stored: Option<(i64, i64)> =
            sqlx::query_as(STORED).bind(resource.as_bytes()).fetch_optional(&mut **self).await?;
        Ok(if stored == Some((token, lineage)) { Answer::Admitted } else { stale(stored) })
    }

    fn classify(error: Error) -> AdmitError<Error> {
        let database = error.as_database_error().and_then(|error| error.try_downcast_ref());
        match database.map(sqlx::mysql::MySqlDatabaseError::number) {
            Some(1146) => AdmitError::NoTable(error),
            // The wait for a lock, and the limits of a statement in MariaDB and in MySQL.
            Some(1205 | 1969 | 3024) => AdmitError::Locked(error),
            // A deadlock, and MariaDB's `innodb_snapshot_isolation`.
            Some(1213 | 1020) => AdmitError::Retry(error),
            // The server was shut down or the connection was killed, also as idle in a transaction.
            Some(1053 | 1927 | 4031 | 3169) => AdmitError::Disconnected(error),
            None if is_closed(&error) => AdmitError::Disconnected(error),
            _ => AdmitError::Other(error),
        }
    }
}
