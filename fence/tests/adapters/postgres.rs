//! PostgreSQL through `tokio-postgres` and through `sqlx`.

use super::rounds::{ACQUIRE, Plan, Refused, Shop, WRITERS, prove, sqlx_shop};
use super::server;
use super::stamp;
use elderlock_fence::sql::postgres::{ADMIT, CREATE_TABLE, FORGET};
use elderlock_fence::{AdmitError, Fence, Stamp};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use tokio::sync::Mutex;
use tokio_postgres::{Client, IsolationLevel, NoTls};

const ARTICLES: &str =
    "CREATE TABLE IF NOT EXISTS articles (id TEXT PRIMARY KEY, stock BIGINT NOT NULL)";
const FILL: &str = "INSERT INTO articles (id, stock) VALUES ($1, $2)";
const READ: &str = "SELECT stock FROM articles WHERE id = $1";
const WRITE: &str = "UPDATE articles SET stock = $1 WHERE id = $2";

/// A database for one test, with both tables. `None` if there is no server here.
async fn database(name: &str) -> Option<Database> {
    let database = empty_database(name).await?;
    let client = database.connect().await;
    client.batch_execute(&format!("{CREATE_TABLE}; {ARTICLES}")).await.unwrap();
    Some(database)
}

/// A connection to a database for one test, without tables.
pub(crate) async fn client(name: &str) -> Option<Client> {
    Some(empty_database(name).await?.connect().await)
}

/// Like [`client`], through `sqlx`.
pub(crate) async fn pool(name: &str) -> Option<sqlx::PgPool> {
    Some(empty_database(name).await?.pool().await)
}

async fn empty_database(name: &str) -> Option<Database> {
    let server = tokio::task::spawn_blocking(server::postgres).await.unwrap()?;
    let database =
        Database { folder: server.folder.to_str().unwrap().to_owned(), name: name.to_owned() };
    let all = Database { name: "postgres".to_owned(), ..database.clone() };
    all.connect().await.batch_execute(&format!("CREATE DATABASE {name}")).await.unwrap();
    Some(database)
}

#[derive(Clone)]
struct Database {
    folder: String,
    name: String,
}

impl Database {
    async fn connect(&self) -> Client {
        let parameters = format!("host={} user=postgres dbname={}", self.folder, self.name);
        let mut tries = 0;
        // The socket exists a moment before the server accepts connections.
        let (client, connection) = loop {
            match tokio_postgres::connect(&parameters, NoTls).await {
                Ok(connected) => break connected,
                Err(error) if tries == 6000 => panic!("no connection: {error}"),
                Err(_) => tokio::time::sleep(std::time::Duration::from_millis(20)).await,
            }
            tries += 1;
        };
        tokio::spawn(connection);
        client
    }

    async fn pool(&self) -> sqlx::PgPool {
        let options =
            PgConnectOptions::new().host(&self.folder).username("postgres").database(&self.name);
        PgPoolOptions::new()
            .max_connections(WRITERS as u32 + 1)
            .acquire_timeout(ACQUIRE)
            .connect_with(options)
            .await
            .unwrap()
    }
}

struct Clients {
    each: Vec<Mutex<Client>>,
    books: Client,
}

impl Shop for Clients {
    async fn fill(&self, article: &str, stock: i64) {
        self.books.execute(FILL, &[&article, &stock]).await.unwrap();
    }

    async fn stock(&self, article: &str) -> i64 {
        self.books.query_one(READ, &[&article]).await.unwrap().get(0)
    }

    async fn sell(
        &self,
        writer: usize,
        article: &str,
        stamp: Stamp,
        plan: Plan,
        pause: impl Future<Output = ()> + Send,
    ) -> Result<(), Refused> {
        let mut client = self.each[writer].lock().await;
        let mut tx = client.transaction().await.unwrap();
        if plan.fenced {
            Fence::new().admit(&mut tx, article, &stamp).await.map_err(refused)?;
        }
        let stock: i64 = tx.query_one(READ, &[&article]).await.unwrap().get(0);
        if plan.split {
            tx.commit().await.unwrap();
            pause.await;
            tx = client.transaction().await.unwrap();
            if plan.fenced {
                Fence::new().admit(&mut tx, article, &stamp).await.map_err(refused)?;
            }
        } else {
            pause.await;
        }
        tx.execute(WRITE, &[&(stock - 1), &article]).await.unwrap();
        tx.commit().await.unwrap();
        Ok(())
    }
}

pub(crate) fn refused<E: std::fmt::Debug>(error: AdmitError<E>) -> Refused {
    match error {
        AdmitError::Stale(_) => Refused::Stale,
        AdmitError::Retry(_) | AdmitError::Locked(_) => Refused::Again,
        other => panic!("the fence failed: {other:?}"),
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_postgres_loses_no_update() {
    let Some(database) = database("rounds_tokio_postgres").await else { return };
    let mut each = Vec::new();
    for _ in 0..WRITERS {
        each.push(Mutex::new(database.connect().await));
    }
    prove("tokio-postgres", Clients { each, books: database.connect().await }, &[true, false])
        .await;
}

sqlx_shop!(sqlx::PgPool, |error, _| panic!("{error:?}"));

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_with_postgres_loses_no_update() {
    let Some(database) = database("rounds_sqlx").await else { return };
    prove("sqlx-postgres", Pool(database.pool().await), &[true, false]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokio_postgres_tells_each_error() {
    let Some(database) = empty_database("errors_tokio_postgres").await else { return };
    let fence = Fence::new();
    let (mut one, mut two) = (database.connect().await, database.connect().await);

    let mut tx = one.transaction().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::NoTable(_)), "{error:?}");
    drop(tx);
    one.batch_execute(&format!("{CREATE_TABLE}; {ARTICLES}")).await.unwrap();

    let mut tx = one.transaction().await.unwrap();
    fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap();
    fence.admit(&mut tx, "b", &stamp(1, 1)).await.unwrap();
    tx.commit().await.unwrap();
    // The same holder is admitted in another transaction.
    let mut tx = one.transaction().await.unwrap();
    fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap();
    tx.commit().await.unwrap();
    for stale in [stamp(6, 1), stamp(7, 2)] {
        let mut tx = one.transaction().await.unwrap();
        let error = fence.admit(&mut tx, "a", &stale).await.unwrap_err();
        let AdmitError::Stale(told) = &error else { panic!("{error:?}") };
        assert_eq!((told.shown, told.stored), (stale, Some(stamp(7, 1))));
        assert!(
            error.is_lost() && error.to_string().contains("0000000000000001 was admitted before"),
            "{error}"
        );
    }

    // A stopped writer has the row.
    let mut stopped = one.transaction().await.unwrap();
    fence.admit(&mut stopped, "a", &stamp(8, 1)).await.unwrap();
    two.batch_execute("SET lock_timeout = '30ms'").await.unwrap();
    let mut tx = two.transaction().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(9, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Locked(_)) && error.is_retryable(), "{error:?}");
    drop(tx);

    // The transaction began before another one was committed. Its isolation level forbids it to see
    // that commit.
    let begin = two.build_transaction().isolation_level(IsolationLevel::RepeatableRead);
    let mut late = begin.start().await.unwrap();
    late.query("SELECT 1 FROM articles", &[]).await.unwrap();
    stopped.commit().await.unwrap();
    let error = fence.admit(&mut late, "a", &stamp(9, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Retry(_)) && error.is_retryable(), "{error:?}");
    drop(late);

    // The server ends the transaction of a silent writer.
    let mut silent = two.transaction().await.unwrap();
    fence.admit(&mut silent, "a", &stamp(9, 1)).await.unwrap();
    // The last statement: a pause of this test before it must not end the session.
    let limit = "SET LOCAL idle_in_transaction_session_timeout = '10ms'";
    silent.batch_execute(limit).await.unwrap();
    let mut next = one.transaction().await.unwrap();
    fence.admit(&mut next, "a", &stamp(10, 1)).await.unwrap();
    next.commit().await.unwrap();
    let error = fence.admit(&mut silent, "a", &stamp(9, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Disconnected(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_with_postgres_tells_each_error() {
    let Some(database) = empty_database("errors_sqlx").await else { return };
    let (fence, pool) = (Fence::new(), database.pool().await);
    let mut tx = pool.begin().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::NoTable(_)), "{error:?}");
    drop(tx);
    sqlx::query(CREATE_TABLE).execute(&pool).await.unwrap();

    let mut stopped = pool.begin().await.unwrap();
    fence.admit(&mut stopped, "a", &stamp(7, 1)).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("SET LOCAL lock_timeout = '30ms'").execute(&mut *tx).await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(8, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Locked(_)), "{error:?}");
    drop(tx);

    let mut late = pool.begin().await.unwrap();
    sqlx::query("SET TRANSACTION ISOLATION LEVEL SERIALIZABLE").execute(&mut *late).await.unwrap();
    sqlx::query("SELECT count(*) FROM elderlock_fences").execute(&mut *late).await.unwrap();
    stopped.commit().await.unwrap();
    let error = fence.admit(&mut late, "a", &stamp(8, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Retry(_)), "{error:?}");
    drop(late);

    let mut tx = pool.begin().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(7, 2)).await.unwrap_err();
    assert!(
        matches!(&error, AdmitError::Stale(stale) if stale.stored == Some(stamp(7, 1))),
        "{error:?}"
    );
    drop(tx);

    let mut ended = pool.begin().await.unwrap();
    let process: i32 =
        sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(&mut *ended).await.unwrap();
    sqlx::query("SELECT pg_terminate_backend($1, 120000)")
        .bind(process)
        .execute(&pool)
        .await
        .unwrap();
    let error = fence.admit(&mut ended, "a", &stamp(8, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Disconnected(_)), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lost_guard_and_a_share_are_refused_before_anything_is_sent() {
    let Some(database) = database("guards").await else { return };
    let mut client = database.connect().await;
    let member = elderlock::Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let mut tx = client.transaction().await.unwrap();
    let share = stock.share("sku-42").await.unwrap();
    let error = Fence::new().admit(&mut tx, "sku-42", &share).await.unwrap_err();
    assert!(matches!(error, AdmitError::NoStamp(_)), "{error:?}");
    drop(share);
    let guard = stock.lock("sku-42").lease(std::time::Duration::from_millis(5)).await.unwrap();
    guard.lost().await;
    let error = Fence::new().admit(&mut tx, "sku-42", &guard).await.unwrap_err();
    assert!(matches!(error, AdmitError::Lost(_)) && error.is_lost(), "{error:?}");
    let guard = stock.lock("sku-42").await.unwrap();
    let fence = Fence::new();
    let admitted = fence.admit(&mut tx, "sku-42", &guard);
    is_send(&admitted);
    admitted.await.unwrap();
    let rows: i64 =
        tx.query_one("SELECT count(*) FROM elderlock_fences", &[]).await.unwrap().get(0);
    assert_eq!(rows, 1);
}

/// A task may move such a future from thread to thread.
fn is_send(_: &impl Send) {}

/// The deletion of old rows waits for a writer, and keeps a row that the writer has raised
/// meanwhile.
#[tokio::test(flavor = "multi_thread")]
async fn cleaning_up_spares_what_was_admitted_meanwhile() {
    let Some(database) = database("forget").await else { return };
    let (mut one, two) = (database.connect().await, database.connect().await);
    let mut tx = one.transaction().await.unwrap();
    for resource in ["old", "used"] {
        Fence::new().admit(&mut tx, resource, &stamp(7, 1)).await.unwrap();
    }
    tx.commit().await.unwrap();
    let moment = "SELECT clock_timestamp()";
    let before: std::time::SystemTime = two.query_one(moment, &[]).await.unwrap().get(0);
    let tx = one.transaction().await.unwrap();
    tx.execute(ADMIT, &[&"used", &8_i64, &1_i64]).await.unwrap();
    let cleaning = tokio::spawn(async move { two.execute(FORGET, &[&before]).await.unwrap() });
    tx.commit().await.unwrap();
    assert_eq!(cleaning.await.unwrap(), 1);
    let left: String =
        one.query_one("SELECT resource FROM elderlock_fences", &[]).await.unwrap().get(0);
    assert_eq!(left, "used");
}
