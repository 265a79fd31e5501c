//! MariaDB through `sqlx`, and MariaDB's own statement.

use super::rounds::{ACQUIRE, WRITERS, prove, sqlx_shop};
use super::{server, stamp};
use elderlock_fence::sql::mariadb;
use elderlock_fence::sql::mysql::{CREATE_TABLE, FORGET};
use elderlock_fence::{AdmitError, Fence};
use sqlx::MySqlPool;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};

const ARTICLES: &str =
    "CREATE TABLE articles (id VARCHAR(100) PRIMARY KEY, stock BIGINT NOT NULL) ENGINE = InnoDB";
const FILL: &str = "INSERT INTO articles (id, stock) VALUES (?, ?)";
const READ: &str = "SELECT stock FROM articles WHERE id = ?";
const WRITE: &str = "UPDATE articles SET stock = ? WHERE id = ?";

/// A database for one test, with a table of articles. `None` if there is no server here.
pub(crate) async fn database(name: &str) -> Option<MySqlPool> {
    let server = tokio::task::spawn_blocking(server::mariadb).await.unwrap()?;
    let options = MySqlConnectOptions::new().socket(server.folder.join("socket")).username("root");
    let all = MySqlPoolOptions::new().acquire_timeout(ACQUIRE);
    let all = all.connect_with(options.clone()).await.unwrap();
    sqlx::query(&format!("CREATE DATABASE {name}")).execute(&all).await.unwrap();
    let connections = MySqlPoolOptions::new().max_connections(WRITERS as u32 + 1);
    let pool =
        connections.acquire_timeout(ACQUIRE).connect_with(options.database(name)).await.unwrap();
    sqlx::query(ARTICLES).execute(&pool).await.unwrap();
    Some(pool)
}

sqlx_shop!(MySqlPool, |error, _| panic!("{error:?}"));

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_with_mariadb_loses_no_update() {
    let Some(pool) = database("rounds").await else { return };
    sqlx::query(CREATE_TABLE).execute(&pool).await.unwrap();
    prove("sqlx-mysql", Pool(pool), &[true, false]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sqlx_with_mariadb_tells_each_error() {
    let Some(pool) = database("errors").await else { return };
    let fence = Fence::new();
    let mut tx = pool.begin().await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::NoTable(_)), "{error:?}");
    drop(tx);
    sqlx::query(CREATE_TABLE).execute(&pool).await.unwrap();

    // The holder is admitted twice in one transaction, and once in another one, which changes
    // nothing in the row.
    let mut tx = pool.begin().await.unwrap();
    fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap();
    fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    fence.admit(&mut tx, "a", &stamp(7, 1)).await.unwrap();
    tx.commit().await.unwrap();
    for stale in [stamp(6, 1), stamp(6, 2), stamp(7, 2)] {
        let mut tx = pool.begin().await.unwrap();
        let error = fence.admit(&mut tx, "a", &stale).await.unwrap_err();
        assert!(
            matches!(&error, AdmitError::Stale(told) if told.stored == Some(stamp(7, 1))),
            "{error:?}"
        );
        // A commit leads to the same result.
        tx.commit().await.unwrap();
    }
    // A text collation would treat these names as one resource.
    let mut tx = pool.begin().await.unwrap();
    fence.admit(&mut tx, "A", &stamp(1, 1)).await.unwrap();
    fence.admit(&mut tx, "a ", &stamp(2, 1)).await.unwrap();
    drop(tx);

    let mut stopped = pool.begin().await.unwrap();
    fence.admit(&mut stopped, "a", &stamp(8, 2)).await.unwrap();
    let mut tx = pool.begin().await.unwrap();
    sqlx::query("SET innodb_lock_wait_timeout = 0").execute(&mut *tx).await.unwrap();
    let error = fence.admit(&mut tx, "a", &stamp(9, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Locked(_)), "{error:?}");
    sqlx::query("SET innodb_lock_wait_timeout = 50").execute(&mut *tx).await.unwrap();
    drop(tx);
    stopped.commit().await.unwrap();

    // Two transactions take two resources in different order.
    let (mut one, mut two) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    fence.admit(&mut one, "a", &stamp(10, 1)).await.unwrap();
    fence.admit(&mut two, "b", &stamp(11, 1)).await.unwrap();
    let (holder, other) = (stamp(10, 1), stamp(11, 1));
    let first = async {
        let answer = fence.admit(&mut one, "b", &holder).await;
        // Otherwise this transaction would keep the row for which the other one waits.
        drop(one);
        answer
    };
    let second = async {
        let answer = fence.admit(&mut two, "a", &other).await;
        drop(two);
        answer
    };
    let (first, second) = tokio::join!(first, second);
    let ended = [&first, &second]
        .iter()
        .filter(|answer| matches!(answer, Err(AdmitError::Retry(_))))
        .count();
    assert_eq!(ended, 1, "{first:?} {second:?}");

    let mut ended = pool.begin().await.unwrap();
    let process: u64 =
        sqlx::query_scalar("SELECT CONNECTION_ID()").fetch_one(&mut *ended).await.unwrap();
    sqlx::query(&format!("KILL CONNECTION {process}")).execute(&pool).await.unwrap();
    let error = fence.admit(&mut ended, "a", &stamp(12, 1)).await.unwrap_err();
    assert!(matches!(error, AdmitError::Disconnected(_)), "{error:?}");
}

/// The transactions have the default level, `REPEATABLE READ`.
#[tokio::test(flavor = "multi_thread")]
async fn a_read_before_the_fence_sees_what_was_before_it_and_one_behind_it_does_not() {
    let Some(pool) = database("snapshots").await else { return };
    sqlx::query(CREATE_TABLE).execute(&pool).await.unwrap();
    sqlx::query(FILL).bind("a").bind(10_i64).execute(&pool).await.unwrap();
    let (mut too_early, mut right) = (pool.begin().await.unwrap(), pool.begin().await.unwrap());
    let read = || sqlx::query_scalar::<_, i64>(READ).bind("a");
    assert_eq!(read().fetch_one(&mut *too_early).await.unwrap(), 10);
    let mut before = pool.begin().await.unwrap();
    Fence::new().admit(&mut before, "a", &stamp(1, 1)).await.unwrap();
    sqlx::query(WRITE).bind(9_i64).bind("a").execute(&mut *before).await.unwrap();
    let waiting = tokio::spawn(async move {
        Fence::new().admit(&mut right, "a", &stamp(2, 1)).await.unwrap();
        let seen =
            sqlx::query_scalar::<_, i64>(READ).bind("a").fetch_one(&mut *right).await.unwrap();
        right.commit().await.unwrap();
        seen
    });
    before.commit().await.unwrap();
    assert_eq!(waiting.await.unwrap(), 9);
    Fence::new().admit(&mut too_early, "a", &stamp(3, 1)).await.unwrap();
    assert_eq!(read().fetch_one(&mut *too_early).await.unwrap(), 10, "the chapter says otherwise");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_statement_of_mariadb_returns_what_the_row_is_then() {
    let Some(pool) = database("returned").await else { return };
    sqlx::query(CREATE_TABLE).execute(&pool).await.unwrap();
    let shown: [((i64, i64), (i64, i64)); 5] =
        [((5, 1), (5, 1)), ((5, 1), (5, 1)), ((5, 2), (5, 1)), ((4, 1), (5, 1)), ((6, 2), (6, 2))];
    for ((token, lineage), expected) in shown {
        let admit = sqlx::query_as::<_, (i64, i64)>(mariadb::ADMIT)
            .bind(&b"a"[..])
            .bind(token)
            .bind(lineage);
        assert_eq!(admit.fetch_one(&pool).await.unwrap(), expected);
    }
    let now: i64 =
        sqlx::query_scalar("SELECT count(*) FROM elderlock_fences WHERE admitted_at <= NOW()")
            .fetch_one(&pool)
            .await
            .unwrap();
    let gone = sqlx::query(FORGET)
        .bind("2026-01-01 00:00:00")
        .execute(&pool)
        .await
        .unwrap()
        .rows_affected();
    assert_eq!((now, gone), (1, 0));
}
