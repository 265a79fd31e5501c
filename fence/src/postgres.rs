//! The meaning of PostgreSQL's error codes for a fence, and `tokio-postgres`.

use crate::sql::AdmitError;

/// Sorts an error by its SQLSTATE. `is_closed` tells whether the driver reports the connection as
/// closed.
pub(crate) fn classify<E: std::error::Error>(
    error: E,
    code: Option<&str>,
    is_closed: bool,
) -> AdmitError<E> {
    match code.unwrap_or_default() {
        "42P01" => AdmitError::NoTable(error),
        // `lock_timeout`, and `statement_timeout` while the statement waits: it can only wait for
        // the row.
        "55P03" | "57014" => AdmitError::Locked(error),
        "40001" | "40P01" => AdmitError::Retry(error),
        // The connection was ended by an administrator, by a crash, or as idle in a transaction.
        "57P01" | "57P02" | "57P03" | "57P05" | "25P03" => AdmitError::Disconnected(error),
        code if code.starts_with("08") => AdmitError::Disconnected(error),
        _ if is_closed => AdmitError::Disconnected(error),
        _ => AdmitError::Other(error),
    }
}

#[cfg(feature = "tokio-postgres")]
mod driver {
    use crate::sql::{Answer, Transaction, postgres, sealed};
    use crate::stamp::Stamp;
    use tokio_postgres::types::Type;

    impl sealed::Sealed for tokio_postgres::Transaction<'_> {}

    impl Transaction for tokio_postgres::Transaction<'_> {
        type Error = tokio_postgres::Error;

        async fn show(&mut self, resource: &str, stamp: Stamp) -> Result<Answer, Self::Error> {
            let (token, lineage) = (stamp.token.as_i64(), stamp.lineage.as_i64());
            // With given types the driver need not prepare the statement: one round trip, also
            // through a pooler.
            let changed = self
                .execute_typed(
                    postgres::ADMIT,
                    &[(&resource, Type::TEXT), (&token, Type::INT8), (&lineage, Type::INT8)],
                )
                .await?;
            if changed > 0 {
                return Ok(Answer::Admitted);
            }
            let stored = self.query_typed_opt(postgres::STORED, &[(&resource, Type::TEXT)]).await?;
            Ok(Answer::Stale(stored.and_then(|row| Stamp::from_columns(row.get(0), row.get(1)))))
        }

        fn classify(error: Self::Error) -> super::AdmitError<Self::Error> {
            let code = error.code().map(|code| code.code().to_owned());
            let is_closed = error.is_closed() || code.is_none() && is_io(&error);
            super::classify(error, code.as_deref(), is_closed)
        }
    }

    fn is_io(error: &tokio_postgres::Error) -> bool {
        std::error::Error::source(error).is_some_and(|source| source.is::<std::io::Error>())
    }
}
