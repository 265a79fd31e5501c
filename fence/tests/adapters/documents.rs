//! Every SQL block of the documents and of the library's documentation runs as it stands there.
//!
//! A block ```` ```sql ```` runs on SQLite and on PostgreSQL. A block ```` ```sql,postgres ```` and
//! the like runs on that database only.

use super::{Folder, mariadb, postgres};
use elderlock_fence::sql;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use tokio_postgres::types::{ToSql, Type};

#[derive(Debug)]
struct Block {
    place: String,
    database: Option<String>,
    text: String,
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Returns the blocks of every document and of the libraries' public documentation.
fn blocks() -> Vec<Block> {
    let mut files = Vec::new();
    for folder in ["docs", "src", "fence/src", "cli", "sim", "examples"] {
        collect(&root().join(folder), &mut files);
    }
    for name in ["README.md", "DESIGN.md", "CONTRIBUTING.md"] {
        files.push(root().join(name));
    }
    files.sort();
    files.iter().flat_map(|file| blocks_of(file)).collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect(&path, files);
        } else if path.extension().is_some_and(|end| end == "md" || end == "rs") {
            files.push(path);
        }
    }
}

fn blocks_of(file: &Path) -> Vec<Block> {
    let text = std::fs::read_to_string(file).unwrap();
    let is_code = file.extension().is_some_and(|end| end == "rs");
    let (mut blocks, mut open): (Vec<Block>, Option<Block>) = (Vec::new(), None);
    for (line, number) in text.lines().zip(1..) {
        let trimmed = line.trim_start();
        let line = match is_code {
            false => line,
            true => match trimmed.strip_prefix("//!").or_else(|| trimmed.strip_prefix("///")) {
                Some(comment) => comment.strip_prefix(' ').unwrap_or(comment),
                None => continue,
            },
        };
        match &mut open {
            Some(_) if line.starts_with("```") => blocks.extend(open.take()),
            Some(block) => block.text += &format!("{line}\n"),
            None => {
                let database = line
                    .strip_prefix("```sql")
                    .map(|rest| rest.strip_prefix(',').map(str::to_owned));
                let place = format!("{}:{number}", file.display());
                open = database.map(|database| Block { place, database, text: String::new() });
            }
        }
    }
    blocks
}

impl Block {
    fn is_for(&self, database: &str, is_common: bool) -> bool {
        self.database.as_deref().map_or(is_common, |of| of == database)
    }

    /// The statements of the block. No text of the documents has a semicolon within a statement.
    fn statements(&self) -> impl Iterator<Item = &str> {
        let parts = self.text.split(';').map(str::trim);
        parts.filter(|part| part.lines().any(|line| !line.is_empty() && !line.starts_with("--")))
    }

    fn is_fence(&self, statement: &str) -> bool {
        statement.contains("ON CONFLICT") || statement.contains("ON DUPLICATE KEY")
    }
}

/// Each token and lineage, shown one after the other, and whether their holder is stale.
const SHOWN: [(i64, i64, bool); 7] = [
    (7, 1, false),
    (7, 1, false),
    (6, 1, true),
    (7, 2, true),
    (8, 2, false),
    (7, 1, true),
    (8, 2, false),
];

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_of_the_documents_runs_on_postgres_as_it_stands() {
    let Some(client) = postgres::client("documents").await else { return };
    // Other tests use the server, and a document sets limits for its own role.
    client.batch_execute("CREATE ROLE documents SUPERUSER; SET ROLE documents").await.unwrap();
    client.batch_execute(sql::postgres::CREATE_TABLE).await.unwrap();
    let mut fences = 0;
    for block in blocks().iter().filter(|block| block.is_for("postgres", true)) {
        for statement in block.statements() {
            let prepared = client
                .prepare(statement)
                .await
                .unwrap_or_else(|error| panic!("{}: {error}", block.place));
            let shown = if block.is_fence(statement) { &SHOWN[..] } else { &SHOWN[..1] };
            fences += usize::from(shown.len() > 1);
            for (token, lineage, is_stale) in shown {
                let mut numbers = [token, lineage].into_iter();
                let values: Vec<&(dyn ToSql + Sync)> = prepared
                    .params()
                    .iter()
                    .map(|of| match *of {
                        Type::TEXT => &"sku-42" as &(dyn ToSql + Sync),
                        _ => numbers.next().expect("at most two numbers") as &(dyn ToSql + Sync),
                    })
                    .collect();
                let changed = client.execute(&prepared, &values).await;
                let changed = changed.unwrap_or_else(|error| panic!("{}: {error}", block.place));
                assert!(
                    shown.len() == 1 || (changed == 0) == *is_stale,
                    "{}: {token} {changed}",
                    block.place
                );
            }
        }
        client.batch_execute("TRUNCATE elderlock_fences").await.unwrap();
    }
    assert!(fences >= 2, "only {fences} fences were found");
}

#[test]
fn the_sql_of_the_documents_runs_on_sqlite_as_it_stands() {
    let folder = Folder::new("documents");
    let file = Connection::open(folder.path("documents.db")).unwrap();
    file.execute_batch(sql::sqlite::CREATE_TABLE).unwrap();
    let mut fences = 0;
    for block in blocks().iter().filter(|block| block.is_for("sqlite", true)) {
        for statement in block.statements() {
            let mut prepared =
                file.prepare(statement).unwrap_or_else(|error| panic!("{}: {error}", block.place));
            let shown = if block.is_fence(statement) { &SHOWN[..] } else { &SHOWN[..1] };
            fences += usize::from(shown.len() > 1);
            for (token, lineage, is_stale) in shown {
                for (name, value) in
                    [("1", &"sku-42" as &dyn rusqlite::ToSql), ("2", token), ("3", lineage)]
                {
                    for sign in ["$", "?"] {
                        if let Some(index) =
                            prepared.parameter_index(&format!("{sign}{name}")).unwrap()
                        {
                            prepared.raw_bind_parameter(index, value).unwrap();
                        }
                    }
                }
                let changed = prepared.raw_execute();
                let changed = changed.unwrap_or_else(|error| panic!("{}: {error}", block.place));
                assert!(
                    shown.len() == 1 || (changed == 0) == *is_stale,
                    "{}: {token} {changed}",
                    block.place
                );
            }
        }
        file.execute("DELETE FROM elderlock_fences", []).unwrap();
    }
    assert!(fences >= 2, "only {fences} fences were found");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_sql_of_the_documents_runs_on_mariadb_as_it_stands() {
    let Some(pool) = mariadb::database("documents").await else { return };
    sqlx::query(sql::mysql::CREATE_TABLE).execute(&pool).await.unwrap();
    let (mut fences, mut reads) = (0, 0);
    let mut last = (0, 0);
    for block in blocks().iter().filter(|block| block.is_for("mysql", false)) {
        for statement in block.statements() {
            if block.is_fence(statement) {
                fences += 1;
                for (token, lineage, is_stale) in SHOWN {
                    let query =
                        sqlx::query(statement).bind(&b"sku-42"[..]).bind(token).bind(lineage);
                    query
                        .execute(&pool)
                        .await
                        .unwrap_or_else(|error| panic!("{}: {error}", block.place));
                    last = if is_stale { last } else { (token, lineage) };
                }
            } else {
                reads += 1;
                let query = sqlx::query_as::<_, (i64, i64)>(statement).bind(&b"sku-42"[..]);
                let stored = query.fetch_one(&pool).await;
                assert_eq!(stored.unwrap_or_else(|error| panic!("{}: {error}", block.place)), last);
            }
        }
    }
    assert!(fences > 0 && reads > 0);
}

/// Both texts have to be equal.
#[test]
fn the_guide_shows_the_statements_of_the_library() {
    let guide = std::fs::read_to_string(root().join("docs/guide/fencing.md")).unwrap();
    let statements = [
        sql::postgres::CREATE_TABLE,
        sql::postgres::ADMIT,
        sql::sqlite::ADMIT,
        sql::mysql::ADMIT,
        sql::mysql::STORED,
    ];
    for statement in statements {
        assert!(
            guide.contains(&format!("\n{statement}\n```")),
            "the guide does not show\n{statement}"
        );
    }
    assert!(sql::mariadb::ADMIT.starts_with(sql::mysql::ADMIT));
}

#[test]
fn a_block_of_a_database_that_no_test_knows_is_found() {
    let known = ["postgres", "sqlite", "mysql"];
    for block in blocks() {
        let is_known = block.database.as_deref().is_none_or(|database| known.contains(&database));
        assert!(is_known, "{}: no test runs SQL of {:?}", block.place, block.database);
    }
}
