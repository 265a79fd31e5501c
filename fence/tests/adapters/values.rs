//! Tokens and lineages as values of statements, with each driver.

use super::rounds::ACQUIRE;
use super::{Folder, mariadb, postgres, stamp};
use elderlock::{LineageId, Token};
use sqlx::{Database, Decode, Encode, Executor, IntoArguments, Row, Type};

const WRITTEN: (i64, i64) = (4_294_967_303, -3);

/// Writes a stamp, reads it, and reads a number that is not a token.
async fn written_and_read<D>(pool: sqlx::Pool<D>, mark: &str)
where
    D: Database,
    for<'c> &'c sqlx::Pool<D>: Executor<'c, Database = D>,
    for<'q> <D as Database>::Arguments<'q>: IntoArguments<'q, D>,
    for<'q> i64: Type<D> + Encode<'q, D> + Decode<'q, D>,
    usize: sqlx::ColumnIndex<D::Row>,
{
    let written = stamp(WRITTEN.0, WRITTEN.1);
    sqlx::query("CREATE TABLE stamps (token BIGINT, lineage BIGINT)").execute(&pool).await.unwrap();
    let marks = [mark.replace('N', "1"), mark.replace('N', "2")].join(", ");
    let insert = format!("INSERT INTO stamps VALUES ({marks})");
    sqlx::query(&insert).bind(written.token).bind(written.lineage).execute(&pool).await.unwrap();
    let row = sqlx::query("SELECT token, lineage FROM stamps").fetch_one(&pool).await.unwrap();
    assert_eq!(row.get::<Token, _>(0), written.token);
    assert_eq!(row.get::<LineageId, _>(1), written.lineage);
    assert_eq!((row.get::<i64, _>(0), row.get::<i64, _>(1)), WRITTEN);
    let error = row.try_get::<Token, _>(1).unwrap_err().to_string();
    assert!(error.contains("not -3"), "{error}");
}

#[tokio::test]
async fn sqlx_takes_tokens_and_lineages_as_values() {
    let pool = sqlx::sqlite::SqlitePoolOptions::new().max_connections(1).acquire_timeout(ACQUIRE);
    written_and_read(pool.connect("sqlite::memory:").await.unwrap(), "?N").await;
    if let Some(pool) = postgres::pool("tokens_of_sqlx").await {
        written_and_read(pool, "$N").await;
    }
    if let Some(pool) = mariadb::database("tokens_of_sqlx").await {
        written_and_read(pool, "?").await;
    }
}

#[tokio::test]
async fn tokio_postgres_takes_tokens_and_lineages_as_values() {
    let Some(client) = postgres::client("tokens_of_tokio_postgres").await else { return };
    let written = stamp(WRITTEN.0, WRITTEN.1);
    client.batch_execute("CREATE TABLE stamps (token BIGINT, lineage BIGINT)").await.unwrap();
    let values: &[&(dyn tokio_postgres::types::ToSql + Sync)] = &[&written.token, &written.lineage];
    client.execute("INSERT INTO stamps VALUES ($1, $2)", values).await.unwrap();
    let row = client.query_one("SELECT token, lineage FROM stamps", &[]).await.unwrap();
    assert_eq!((row.get::<_, Token>(0), row.get(1)), (written.token, written.lineage));
    assert_eq!((row.get::<_, i64>(0), row.get::<_, i64>(1)), WRITTEN);
    assert!(row.try_get::<_, Token>(1).is_err(), "-3 is not a token");
}

#[test]
fn rusqlite_takes_tokens_and_lineages_as_values() {
    let folder = Folder::new("values");
    let file = rusqlite::Connection::open(folder.path("stamps.db")).unwrap();
    let written = stamp(WRITTEN.0, WRITTEN.1);
    file.execute("CREATE TABLE stamps (token INTEGER, lineage INTEGER)", []).unwrap();
    let values = rusqlite::params![written.token, written.lineage];
    file.execute("INSERT INTO stamps VALUES (?1, ?2)", values).unwrap();
    let all = "SELECT token, lineage FROM stamps";
    let read = file.query_row(all, [], |row| {
        Ok(((row.get::<_, Token>(0)?, row.get(1)?), (row.get::<_, i64>(0)?, row.get(1)?)))
    });
    assert_eq!(read, Ok(((written.token, written.lineage), WRITTEN)));
    let error = file.query_row(all, [], |row| row.get::<_, Token>(1)).unwrap_err();
    assert!(error.to_string().contains("-3"), "{error}");
}
