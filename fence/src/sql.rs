//! Fences in a SQL database: [`Fence`], its errors, and the statements for every other driver.
//!
//! # The rule
//! The fence is one row for each resource in a table of its own, [`elderlock_fences`](postgres). It
//! holds the highest token that was admitted and its lineage. Each transaction that reads or writes
//! the resource begins with the statement of the fence. This **first statement** raises the row to
//! the token of its writer, or finds that the writer is stale. Tables of the application do not
//! change.
//!
//! The statement comes first because the *read* has to be fenced, too. A holder with token 100
//! reads a stock of 10 and sleeps past its lease; the next holder, with 101, reads 10. If only
//! writes were checked, 100 would write 9, which is in order. Then 101 would write 9: one sale is
//! lost, and no token was ever refused. With the statement at the head, 101 waits for the
//! transaction of 100, or excludes it before it reads.
//!
//! From the statement on, the transaction has the row, and with it the resource, until it ends. So
//! the transactions of several writers follow each other in the order of their tokens. Each reads
//! what the transaction before it wrote.
//!
//! A resource is fenced by the tokens of **one lock name**. Tokens of two names, or of two
//! services, cannot be compared.
//!
//! # Isolation levels
//! | database | level | behaviour |
//! |---|---|---|
//! | PostgreSQL | `READ COMMITTED` (default) | the statement waits for the row; the statements after it see what was committed before |
//! | PostgreSQL | `REPEATABLE READ`, `SERIALIZABLE` | as above, but if another transaction has changed the row since this transaction began, error 40001: [`AdmitError::Retry`] |
//! | SQLite | all | the statement takes the file's write lock; reads after it are of that moment |
//! | MariaDB, MySQL | all | the statements wait for the row; the snapshot of `REPEATABLE READ` is made by the first plain `SELECT` after them |
//!
//! In MariaDB and MySQL a plain `SELECT` before the fence makes the snapshot too early. Reads after
//! the fence then show the state before the wait. This is another reason why the fence is the first
//! statement there.
//!
//! # A writer that stops in its transaction keeps the row
//! No other writer of that resource can continue until the transaction ends. Two settings bound
//! this:
//!
//! | | waiting for the row ends with an error | an idle transaction is ended by the server |
//! |---|---|---|
//! | PostgreSQL | `lock_timeout` | `idle_in_transaction_session_timeout` |
//! | MariaDB | `innodb_lock_wait_timeout` (50 s) | `idle_write_transaction_timeout` |
//! | MySQL | `innodb_lock_wait_timeout` (50 s) | none; `wait_timeout` ends the connection |
//! | SQLite | `busy_timeout` | none; the lock ends with the process |
//!
//! PostgreSQL has neither by default. Set both for the role of the application:
//! `ALTER ROLE shop SET lock_timeout = '2s'` and
//! `ALTER ROLE shop SET idle_in_transaction_session_timeout = '10s'`. The second should be about
//! the lease of the lock: a holder that is silent for longer has lost it. The first decides how
//! long a caller waits; it gets [`AdmitError::Locked`].
//!
//! # When a row may be deleted
//! A row with token `T` refuses every token below `T`, and `T` itself of another lineage. Without
//! the row any next token is admitted. So a row may be deleted only when **no process may still
//! show a token below `T`, or `T` of another lineage**. A lower token of the same lineage was
//! granted before `T`, and `T` was granted before `admitted_at`, by the database's clock. So delete
//!
//! - rows whose `admitted_at` is before the start of the oldest process that may show a token for
//!   the resource. After a deployment has replaced every process, these are all rows from before
//!   it; or
//! - rows whose `admitted_at` is longer ago than a process can be stopped and still go on. This is
//!   an assumption about time, as leases are: a virtual machine that was paused for longer breaks
//!   it.
//!
//! Two lineages that live at once, after an operator's `force`, count both. Rows of the older
//! lineage stay as long as one of its members may run. A deleted resource keeps its row for as
//! long. The table grows by one row of some 100 bytes for each resource that was ever written, so
//! it may also simply stay. [`FORGET`](postgres::FORGET) deletes by `admitted_at`. It is safe
//! beside running writers, because it waits for their rows.

use crate::stamp::{NoStamp, Stale, Stamp, stamp_for};
use elderlock::{Fenced, Lost};

/// A statement whose text is also printed in the documentation, for every other driver.
macro_rules! statement {
    ($(#[$doc:meta])* $name:ident = $text:literal) => {
        $(#[$doc])*
        ///
        #[doc = concat!("```sql\n", $text, "\n```")]
        pub const $name: &str = $text;
    };
}

/// The statements for PostgreSQL.
pub mod postgres {
    statement! {
        /// Makes the table; for a migration. The name is found by the `search_path`.
        CREATE_TABLE = "\
CREATE TABLE IF NOT EXISTS elderlock_fences (
    resource TEXT PRIMARY KEY,
    token BIGINT NOT NULL CHECK (token > 0),
    lineage BIGINT NOT NULL,
    admitted_at TIMESTAMPTZ NOT NULL DEFAULT clock_timestamp()
)"
    }

    statement! {
        /// Admits `$1` resource, `$2` token ([`Token::as_i64`](elderlock::Token::as_i64)), `$3`
        /// lineage ([`LineageId::as_i64`](elderlock::LineageId::as_i64)). It is the first statement
        /// of the transaction. It changes one row, or none: then the holder is stale, and the
        /// transaction is rolled back.
        ///
        /// `CURRENT_TIMESTAMP` would be the start of the transaction, which may be long before.
        ADMIT = "\
INSERT INTO elderlock_fences (resource, token, lineage) VALUES ($1, $2, $3)
ON CONFLICT (resource) DO UPDATE
   SET token = excluded.token, lineage = excluded.lineage, admitted_at = clock_timestamp()
 WHERE elderlock_fences.token < excluded.token
    OR (elderlock_fences.token = excluded.token AND elderlock_fences.lineage = excluded.lineage)"
    }

    statement! {
        /// The token and the lineage of the last holder that was admitted to `$1`, for an error
        /// message.
        STORED = "SELECT token, lineage FROM elderlock_fences WHERE resource = $1"
    }

    statement! {
        /// Deletes the rows that were admitted before `$1`. See [when that is safe](super).
        FORGET = "DELETE FROM elderlock_fences WHERE admitted_at < $1"
    }
}

/// The statements for SQLite, 3.24 or later.
pub mod sqlite {
    statement! {
        /// Makes the table; for a migration.
        CREATE_TABLE = "\
CREATE TABLE IF NOT EXISTS elderlock_fences (
    resource TEXT NOT NULL PRIMARY KEY,
    token INTEGER NOT NULL CHECK (token > 0),
    lineage INTEGER NOT NULL,
    admitted_at TEXT NOT NULL DEFAULT CURRENT_TIMESTAMP
)"
    }

    statement! {
        /// Like [`postgres::ADMIT`](super::postgres::ADMIT), with `?1` resource, `?2` token, `?3`
        /// lineage. (SQLite numbers `$1` by its position in the text.)
        ADMIT = "\
INSERT INTO elderlock_fences (resource, token, lineage) VALUES (?1, ?2, ?3)
ON CONFLICT (resource) DO UPDATE
   SET token = excluded.token, lineage = excluded.lineage, admitted_at = CURRENT_TIMESTAMP
 WHERE elderlock_fences.token < excluded.token
    OR (elderlock_fences.token = excluded.token AND elderlock_fences.lineage = excluded.lineage)"
    }

    statement! {
        /// Like [`postgres::STORED`](super::postgres::STORED).
        STORED = "SELECT token, lineage FROM elderlock_fences WHERE resource = ?1"
    }

    statement! {
        /// Deletes the rows that were admitted before `?1`, a text as of `CURRENT_TIMESTAMP`:
        /// `YYYY-MM-DD HH:MM:SS`, in UTC. See [when that is safe](super).
        FORGET = "DELETE FROM elderlock_fences WHERE admitted_at < ?1"
    }
}

/// The statements for MySQL and MariaDB, with InnoDB.
///
/// The number of rows that [`ADMIT`](mysql::ADMIT) changes depends on a flag of the connection
/// (`CLIENT_FOUND_ROWS`), and a second transaction of one holder changes none. So the number is not
/// used: [`STORED`](mysql::STORED) reads the row in the same transaction. If the row has the
/// holder's own token and lineage, the holder was admitted. If not, the holder is stale, and the
/// transaction is rolled back. The first statement has locked the row, so no other write comes
/// between.
pub mod mysql {
    statement! {
        /// Creates the table; for a migration. Names are compared byte by byte: the collations of
        /// texts would treat `a`, `A` and `a ` as one resource.
        CREATE_TABLE = "\
CREATE TABLE IF NOT EXISTS elderlock_fences (
    resource VARBINARY(1024) NOT NULL PRIMARY KEY,
    token BIGINT NOT NULL,
    lineage BIGINT NOT NULL,
    admitted_at TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP
) ENGINE = InnoDB"
    }

    statement! {
        /// Raises the row of resource, token and lineage, in this order. It is the first statement
        /// of the transaction. Assignments are made from left to right. The token comes last,
        /// because the others compare it.
        ADMIT = "\
INSERT INTO elderlock_fences (resource, token, lineage) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE
    admitted_at = IF(token <= VALUES(token), CURRENT_TIMESTAMP, admitted_at),
    lineage = IF(token < VALUES(token), VALUES(lineage), lineage),
    token = GREATEST(token, VALUES(token))"
    }

    statement! {
        /// The token and the lineage of the last holder that was admitted to the resource. The read
        /// locks the row: it sees the present row, and makes no snapshot.
        STORED = "SELECT token, lineage FROM elderlock_fences WHERE resource = ? FOR UPDATE"
    }

    statement! {
        /// Deletes the rows that were admitted before the given moment. See [when that is
        /// safe](super).
        FORGET = "DELETE FROM elderlock_fences WHERE admitted_at < ?"
    }
}

/// The statements for MariaDB 10.5 or later, where one statement is enough. The other statements
/// are those of [`mysql`].
pub mod mariadb {
    statement! {
        /// Like [`mysql::ADMIT`](super::mysql::ADMIT), and returns the row. If it has another token
        /// or lineage than the holder's, the holder is stale.
        ADMIT = "\
INSERT INTO elderlock_fences (resource, token, lineage) VALUES (?, ?, ?)
ON DUPLICATE KEY UPDATE
    admitted_at = IF(token <= VALUES(token), CURRENT_TIMESTAMP, admitted_at),
    lineage = IF(token < VALUES(token), VALUES(lineage), lineage),
    token = GREATEST(token, VALUES(token))
RETURNING token, lineage"
    }
}

/// Fences the transactions of a SQL database. The fence is a plain value without a connection: make
/// one where it is needed, or keep one for the program.
///
/// ```no_run
/// # #[cfg(feature = "tokio-postgres")]
/// # async fn sell(mut database: tokio_postgres::Client, stock: elderlock::LockService)
/// # -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock_fence::Fence;
/// let fence = Fence::new();
/// let guard = stock.lock("sku-42").await?;
/// let mut tx = database.transaction().await?;
/// fence.admit(&mut tx, "sku-42", &guard).await?; // first: it fences the read below as well
/// let stock = "SELECT stock FROM articles WHERE id = 'sku-42'";
/// let left: i64 = tx.query_one(stock, &[]).await?.get(0);
/// tx.execute("UPDATE articles SET stock = $1 WHERE id = 'sku-42'", &[&(left - 1)]).await?;
/// tx.commit().await?;
/// guard.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Fence {
    _private: (),
}

impl Fence {
    /// A fence in the table `elderlock_fences` of the transaction's database.
    pub const fn new() -> Fence {
        Fence { _private: () }
    }

    /// Admits a holder to a resource for the rest of the transaction, or refuses it. Call it before
    /// any other statement of the transaction. The call takes one round trip (two in MySQL and
    /// MariaDB), and one more to report why a holder is stale.
    ///
    /// A holder may call this in any number of transactions, until a later holder is admitted.
    /// `holder` is a guard of an exclusive lock, a leader's [`Term`](elderlock::Term) or a
    /// [`Stamp`]. The holder is checked once, before the statement: the wait for the row may
    /// outlast the lease. The transaction is still ordered correctly. Check the guard again before
    /// long work.
    ///
    /// # Errors
    /// [`AdmitError`]. In every case the transaction must be rolled back, which dropping it does;
    /// then nothing is changed.
    ///
    /// # Cancel safety
    /// If the future is dropped, the statement may or may not have been executed: roll the
    /// transaction back.
    pub async fn admit<T: Transaction>(
        &self,
        transaction: &mut T,
        resource: &str,
        holder: &(impl Fenced + ?Sized),
    ) -> Result<(), AdmitError<T::Error>> {
        let shown = stamp_for(resource, holder)?;
        transaction.show(resource, shown).await.map_err(T::classify)?.decide(resource, shown)
    }

    /// Like [`admit`](Fence::admit), for a blocking driver.
    ///
    /// # Errors
    /// [`AdmitError`]. In every case the transaction must be rolled back, which dropping it does;
    /// then nothing is changed.
    #[cfg(feature = "rusqlite")]
    #[cfg_attr(docsrs, doc(cfg(feature = "rusqlite")))]
    pub fn admit_blocking(
        &self,
        transaction: &rusqlite::Transaction<'_>,
        resource: &str,
        holder: &(impl Fenced + ?Sized),
    ) -> Result<(), AdmitError<rusqlite::Error>> {
        let shown = stamp_for(resource, holder)?;
        let answer = crate::rusqlite::show(transaction, resource, shown);
        answer.map_err(crate::rusqlite::classify)?.decide(resource, shown)
    }
}

/// An open transaction of a driver. Sealed; the features of this crate implement it:
///
/// | feature | type |
/// |---|---|
/// | `tokio-postgres` | `tokio_postgres::Transaction` |
/// | `sqlx-postgres`, `sqlx-sqlite`, `sqlx-mysql` | `sqlx::Transaction` of that database |
///
/// `rusqlite` blocks: see `Fence::admit_blocking`. For any other driver there are the
/// [statements](self).
pub trait Transaction: sealed::Sealed {
    /// The driver's error.
    type Error: std::error::Error + Send + Sync + 'static;

    #[doc(hidden)]
    fn show(
        &mut self,
        resource: &str,
        stamp: Stamp,
    ) -> impl Future<Output = Result<Answer, Self::Error>> + Send;

    #[doc(hidden)]
    fn classify(error: Self::Error) -> AdmitError<Self::Error>;
}

pub(crate) mod sealed {
    pub trait Sealed {}
}

/// A database's decision about a stamp.
#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub enum Answer {
    /// The stamp is admitted, and the transaction continues.
    Admitted,
    /// The stamp is stale. The value is the stamp that was admitted before, as far as it can be
    /// read.
    Stale(Option<Stamp>),
}

impl Answer {
    fn decide<E>(self, resource: &str, shown: Stamp) -> Result<(), AdmitError<E>> {
        match self {
            Answer::Admitted => Ok(()),
            Answer::Stale(stored) => {
                Err(AdmitError::Stale(Stale { resource: resource.to_owned(), shown, stored }))
            }
        }
    }
}

/// Why a holder was not admitted. `E` is the driver's error.
///
/// In every case the transaction must be rolled back. Then nothing is changed, and the fence is as
/// before.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AdmitError<E> {
    /// The guard was lost before the statement. Nothing was sent. Take the lock again.
    #[error(transparent)]
    Lost(Lost),
    /// The holder has no stamp to show: it is a share, or the name of the resource cannot be
    /// stored. Nothing was sent.
    #[error(transparent)]
    NoStamp(NoStamp),
    /// A later holder was admitted. This holder has lost the lock: do not write, and take it again.
    #[error(transparent)]
    Stale(Stale),
    /// There is no table `elderlock_fences`. Run the migration: `CREATE_TABLE` of the database's
    /// module in [`sql`](self).
    #[error("no table elderlock_fences; make it by CREATE_TABLE of elderlock_fence::sql: {0}")]
    NoTable(#[source] E),
    /// An unfinished transaction has the row, and the driver's or the database's limit ran out: a
    /// writer is slow, or stopped. Try the whole transaction again if the guard is still held.
    #[error(
        "an unfinished transaction has the fence of the resource, and the limit for waiting \
         ran out; roll back and try again: {0}"
    )]
    Locked(#[source] E),
    /// The database could not put the transaction in order with others: a serialisation failure or
    /// a deadlock. Run the whole transaction again, with the same guard.
    #[error(
        "the transaction met others, so the database ended it; roll back and run all of it again: \
         {0}"
    )]
    Retry(#[source] E),
    /// The connection is broken, or the database ends it. It is unknown whether the statement was
    /// executed; without a commit it has no effect. Use another connection.
    #[error(
        "the connection to the database is broken; use another one and run all of the transaction \
         again: {0}"
    )]
    Disconnected(#[source] E),
    /// Any other error of the driver, for example a missing privilege.
    #[error("the fence statement failed: {0}")]
    Other(#[source] E),
}

impl<E> AdmitError<E> {
    /// Returns whether the holder has lost the lock: it must take it again.
    pub fn is_lost(&self) -> bool {
        matches!(self, AdmitError::Lost(_) | AdmitError::Stale(_))
    }

    /// Returns whether the same transaction may succeed if it is run again with the same guard.
    pub fn is_retryable(&self) -> bool {
        matches!(self, AdmitError::Locked(_) | AdmitError::Retry(_) | AdmitError::Disconnected(_))
    }
}

impl<E> From<NoStamp> for AdmitError<E> {
    fn from(error: NoStamp) -> Self {
        match error {
            NoStamp::Lost(lost) => AdmitError::Lost(lost),
            other => AdmitError::NoStamp(other),
        }
    }
}
