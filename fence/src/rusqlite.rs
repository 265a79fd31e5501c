//! `rusqlite`: SQLite through a blocking driver.

use crate::sql::{AdmitError, Answer, sqlite};
use crate::stamp::Stamp;
use rusqlite::{Error, OptionalExtension, Transaction, params};

pub(crate) fn show(
    transaction: &Transaction<'_>,
    resource: &str,
    stamp: Stamp,
) -> Result<Answer, Error> {
    let (token, lineage) = (stamp.token.as_i64(), stamp.lineage.as_i64());
    let changed =
        transaction.prepare_cached(sqlite::ADMIT)?.execute(params![resource, token, lineage])?;
    if changed > 0 {
        return Ok(Answer::Admitted);
    }
    let columns = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, i64>(1)?));
    let stored = transaction
        .prepare_cached(sqlite::STORED)?
        .query_row(params![resource], columns)
        .optional()?;
    Ok(Answer::Stale(stored.and_then(|(token, lineage)| Stamp::from_columns(token, lineage))))
}

pub(crate) fn classify(error: Error) -> AdmitError<Error> {
    let code = error.sqlite_error().map(|error| error.extended_code);
    crate::sqlite::classify(error, code)
}
