//! The meaning of SQLite's error codes for a fence.

use crate::sql::AdmitError;

/// Sorts an error by its extended result code.
pub(crate) fn classify<E: std::error::Error>(error: E, code: Option<i32>) -> AdmitError<E> {
    /// A different connection has written since this transaction read. So the transaction read
    /// before the fence.
    const BUSY_SNAPSHOT: i32 = 517;
    let Some(code) = code else { return AdmitError::Other(error) };
    match code & 0xff {
        _ if code == BUSY_SNAPSHOT => AdmitError::Retry(error),
        // BUSY, and LOCKED by a connection of the same process.
        5 | 6 => AdmitError::Locked(error),
        // IOERR, CANTOPEN.
        10 | 14 => AdmitError::Disconnected(error),
        // SQLite has no code for a missing table.
        1 if error.to_string().contains("no such table: elderlock_fences") => {
            AdmitError::NoTable(error)
        }
        _ => AdmitError::Other(error),
    }
}
