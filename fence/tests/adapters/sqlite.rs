//! SQLite through `rusqlite` and through `sqlx`, each with a file of its own.

use super::postgres::refused;
use super::rounds::{ACQUIRE, Plan, Refused, Shop, WRITERS, prove, sqlx_shop};
use super::{Folder, stamp};
use elderlock_fence::sql::sqlite::{CREATE_TABLE, FORGET};
use elderlock_fence::{AdmitError, Fence, Stamp};
use rusqlite::{Connection, TransactionBehavior, params};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions};
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::block_in_place;

const ARTICLES: &str =
    "CREATE TABLE IF NOT EXISTS articles (id TEXT PRIMARY KEY, stock INTEGER NOT NULL)";
const FILL: &str = "INSERT INTO articles (id, stock) VALUES (?1, ?2)";
const READ: &str = "SELECT stock FROM articles WHERE id = ?1";
const WRITE: &str = "UPDATE articles SET stock = ?1 WHERE id = ?2";

fn open(folder: &Folder) -> Connection {
    let connection = Connection::open(folder.path("shop.db")).unwrap();
    connection.pragma_update(None, "journal_mode", "wal").unwrap();
    connection.busy_timeout(Duration::from_secs(60)).unwrap();
    connection
}

struct Connections {
    each: Vec<Mutex<Connection>>,
    books: Mutex<Connection>,
}

impl Shop for Connections {
    async fn fill(&self, article: &str, stock: i64) {
        block_in_place(|| self.books.lock().unwrap().execute(FILL, params![article, stock]))
            .unwrap();
    }

    async fn stock(&self, article: &str) -> i64 {
        self.books.lock().unwrap().query_row(READ, [article], |row| row.get(0)).unwrap()
    }

    async fn sell(
        &self,
        writer: usize,
        article: &str,
        stamp: Stamp,
        plan: Plan,
        pause: impl Future<Output = ()> + Send,
    ) -> Result<(), Refused> {
        block_in_place(|| {
            let mut connection = self.each[writer].lock().unwrap();
            let mut tx =
                connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
            if plan.fenced {
                Fence::new().admit_blocking(&tx, article, &stamp).map_err(refused)?;
            }
            let stock: i64 = tx.query_row(READ, [article], |row| row.get(0)).unwrap();
            if plan.split {
                tx.commit().unwrap();
                Handle::current().block_on(pause);
                tx = connection.transaction_with_behavior(TransactionBehavior::Immediate).unwrap();
                if plan.fenced {
                    Fence::new().admit_blocking(&tx, article, &stamp).map_err(refused)?;
                }
            } else {
                Handle::current().block_on(pause);
            }
            tx.execute(WRITE, params![stock - 1, article]).unwrap();
            tx.commit().unwrap();
            Ok(())
        })
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rusqlite_loses_no_update() {
    let folder = Folder::new("rusqlite");
    let books = open(&folder);
    books.execute_batch(&format!("{CREATE_TABLE}; {ARTICLES}")).unwrap();
    let each = (0..WRITERS).map(|_| Mutex::new(open(&folder))).collect();
    prove("rusqlite", Connections { each, books: Mutex::new(books) }, &[true, false]).await;
}

async fn pool(file: &Path) -> sqlx::SqlitePool {
    let options = SqliteConnectOptions::new().filename(file).create_if_missing(true);
    let options =
        options.journal_mode(SqliteJournalMode::Wal).busy_timeout(Duration::from_secs(60));
    SqlitePoolOptions::new()
        .max_connections(WRITERS as u32 + 1)
        .acquire_timeout(ACQUIRE)
        .connect_with(options)
        .await
        .unwrap()
}

sqlx_shop!(sqlx::SqlitePool, |error, plan| {
    // Another writer has written since the read, which SQLite notices within one transaction.
    assert!(!plan.fenced && error.as_database_error().is_some(), "{error:?}");
    Refused::Again
});

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_with_sqlite_loses_no_update() {
    let folder = Folder::new("sqlx-sqlite");
    let pool = pool(&folder.path("shop.db")).await;
    for table in [CREATE_TABLE, ARTICLES] {
        sqlx::query(table).execute(&pool).await.unwrap();
    }
    prove("sqlx-sqlite", Pool(pool), &[true, false]).await;
}

#[test]
fn rusqlite_tells_each_error() {
    let folder = Folder::new("rusqlite-errors");
    let (fence, mut one, mut two) = (Fence::new(), open(&folder), open(&folder));
    let tx = one.transaction().unwrap();
    let error = fence.admit_blocking(&tx, "a", &stamp(7, 1)).unwrap_err();
    assert!(matches!(error, AdmitError::NoTable(_)), "{error:?}");
    drop(tx);
    one.execute_batch(CREATE_TABLE).unwrap();

    let tx = one.transaction().unwrap();
    fence.admit_blocking(&tx, "a", &stamp(7, 1)).unwrap();
    two.busy_timeout(Duration::ZERO).unwrap();
    let other = two.transaction().unwrap();
    let error = fence.admit_blocking(&other, "b", &stamp(8, 1)).unwrap_err();
    assert!(matches!(error, AdmitError::Locked(_)), "{error:?}");
    drop(other);
    tx.commit().unwrap();

    for stale in [stamp(6, 1), stamp(7, 2)] {
        let tx = one.transaction().unwrap();
        let error = fence.admit_blocking(&tx, "a", &stale).unwrap_err();
        assert!(
            matches!(&error, AdmitError::Stale(told) if told.stored == Some(stamp(7, 1))),
            "{error:?}"
        );
    }

    // The transaction has read before the fence, and another one has written since.
    let late = two.transaction().unwrap();
    late.query_row("SELECT count(*) FROM elderlock_fences", [], |row| row.get::<_, i64>(0))
        .unwrap();
    let tx = one.transaction().unwrap();
    fence.admit_blocking(&tx, "a", &stamp(8, 1)).unwrap();
    tx.commit().unwrap();
    let error = fence.admit_blocking(&late, "a", &stamp(9, 1)).unwrap_err();
    assert!(matches!(error, AdmitError::Retry(_)), "{error:?}");
    drop(late);

    assert_eq!(one.execute(FORGET, ["2026-01-01 00:00:00"]).unwrap(), 0);
    assert_eq!(one.execute(FORGET, ["2999-01-01 00:00:00"]).unwrap(), 1);
}

#[tokio::test]
async fn sqlx_with_sqlite_tells_each_error() {
    let folder = Folder::new("sqlx-sqlite-errors");
    let (fence, pool) = (Fence::new(), pool(&folder.path("shop.db")).await);
    let mut tx = pool.begin().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::NoTable(_)), "{error:?}");
    drop(tx);
    sqlx::query(CREATE_TABLE).execute(&pool).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap();
    let mut other = pool.begin().await.unwrap();
    sqlx::query("PRAGMA busy_timeout = 0").execute(&mut *other).await.unwrap();
    let error = fence.admit(&mut other, "a", &stamp(8, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Locked(_)), "{error:?}");
    drop(other);
    tx.commit().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(7, 2)).await.unwrap_err();
    assert!(
        matches!(&error, AdmitError::Stale(told) if told.stored == Some(stamp(7, 1))),
        "{error:?}"
    );
}
