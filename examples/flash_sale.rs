//! A flash sale: a goods service in three processes over one SQLite table, and more concurrent
//! buyers than pieces. Run it with `cargo run -p elderlock-cli --example flash_sale`. The example
//! ends by itself.
//!
//! A purchase reads the stock, thinks, and writes that stock back, less one: two concurrent
//! purchases sell the same piece twice. The first sale takes no lock, and sells more than there is.
//! The second sale takes a lock on the goods for each purchase, and writes with its token and its
//! lineage. It sells exactly the stock, whichever process a buyer asks. The example exits with 1 if
//! the second sale oversells. It also does so if the first sale does not, because then the load
//! shows nothing. And it does so if the table accepts an equal token of another lineage.
//!
//! Curator: the goods service with an `InterProcessMutex` around each purchase.

mod support;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::routing::get;
use elderlock::{ClusterKey, Keyring, LockService, Member, Timing};
use rusqlite::{Connection, TransactionBehavior, params};
use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::process::{Command, ExitCode, Stdio};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Directory, ExampleResult, Process, free_addrs, key_beside};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

const SERVERS: usize = 3;
/// The pieces of each article.
const STOCK: i64 = 30;
/// The number of concurrent buyers.
const BUYERS: usize = 120;
/// The articles that are sold without a lock, and with one.
const UNLOCKED: i64 = 1;
const LOCKED: i64 = 2;

#[tokio::main]
async fn main() -> ExampleResult<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => sell_out().await,
        ["server", number, table, ref addrs @ ..] => {
            serve(number.parse()?, table, addrs).await?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: flash_sale".into()),
    }
}

/// A process of the goods service.
struct Shop {
    table: Mutex<Connection>,
    locks: LockService,
}

async fn serve(number: usize, table: &str, addrs: &[&str]) -> ExampleResult {
    // The process ends when its parent does.
    std::thread::spawn(|| {
        let _ = std::io::stdin().lock().lines().count();
        std::process::exit(0);
    });
    let joining = Member::builder("flash-sale").bind(addrs[number]).seeds(addrs.iter().copied());
    let joining = joining.keyring(Keyring::read_file(key_beside(table))?).timing(Timing::fast());
    let member = joining.join().await?;
    let shop = Shop { table: Mutex::new(open(table)?), locks: member.lock_service("goods").await? };
    let router = Router::new()
        .route("/unlocked/{goods}", get(purchase_unlocked))
        .route("/goods/{goods}", get(purchase))
        .with_state(Arc::new(shop));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, router).await?)
}

type Answer = (StatusCode, String);

/// A purchase under the lock of the goods.
async fn purchase(State(shop): State<Arc<Shop>>, Path(goods): Path<i64>) -> Answer {
    let asking = shop
        .locks
        .lock(format!("goods {goods}"))
        .wait(Duration::from_secs(20))
        .lease(Duration::from_secs(5));
    let guard = match asking.await {
        Ok(guard) => guard,
        Err(error) => return (StatusCode::SERVICE_UNAVAILABLE, error.to_string()),
    };
    match guard.fence() {
        // The drop of the guard releases the lock, for any result.
        Ok(token) => {
            let fence = Fence { token: token.as_i64(), lineage: guard.lineage().as_i64() };
            shop.sell(goods, fence).await
        }
        Err(lost) => (StatusCode::SERVICE_UNAVAILABLE, lost.to_string()),
    }
}

/// A purchase without a lock.
async fn purchase_unlocked(State(shop): State<Arc<Shop>>, Path(goods): Path<i64>) -> Answer {
    shop.sell(goods, Fence::default()).await
}

/// The identity of a grant: no other grant has the same pair. The default is the identity of a new
/// row.
#[derive(Clone, Copy, Default)]
struct Fence {
    token: i64,
    lineage: i64,
}

impl Shop {
    async fn sell(&self, goods: i64, fence: Fence) -> Answer {
        let stock = match self.stock(goods, fence) {
            Ok(stock) => stock,
            Err(error) => return (StatusCode::NOT_FOUND, error.to_string()),
        };
        // The wait stands for a shop's own work, which takes a varying time.
        let nanos = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().subsec_nanos();
        tokio::time::sleep(Duration::from_micros(u64::from(nanos % 9_000) + 1_000)).await;
        if stock < 1 {
            return (StatusCode::CONFLICT, "insufficient inventory".into());
        }
        let written = {
            let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
            write(&mut table, goods, stock - 1, fence)
        };
        match written {
            Ok(true) => (StatusCode::OK, format!("sold piece {stock} of goods {goods}")),
            Ok(false) => {
                (StatusCode::CONFLICT, "another purchase came after this one and was first".into())
            }
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        }
    }

    /// Reads the stock. From now on no holder of a lower token changes it.
    fn stock(&self, goods: i64, fence: Fence) -> rusqlite::Result<i64> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        let look = "UPDATE goods SET lineage = CASE WHEN fence < ?2 THEN ?3 ELSE lineage END,
                                     fence = max(fence, ?2)
                     WHERE id = ?1 RETURNING stock";
        table.query_row(look, params![goods, fence.token, fence.lineage], |row| row.get(0))
    }
}

/// Writes the remaining stock and the sale. Returns false if the table has a higher token, or an
/// equal one of another lineage.
fn write(table: &mut Connection, goods: i64, left: i64, fence: Fence) -> rusqlite::Result<bool> {
    let write = table.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let update = "UPDATE goods SET stock = ?2, fence = ?3, lineage = ?4
                   WHERE id = ?1 AND (fence < ?3 OR (fence = ?3 AND lineage = ?4))";
    let written = write.execute(update, params![goods, left, fence.token, fence.lineage])? == 1;
    if written {
        let sale = "INSERT INTO sales (goods, piece) VALUES (?, ?)";
        write.execute(sale, params![goods, left + 1])?;
    }
    write.commit()?;
    Ok(written)
}

fn open(path: &str) -> rusqlite::Result<Connection> {
    let table = Connection::open(path)?;
    table.busy_timeout(Duration::from_secs(10))?;
    table.pragma_update(None, "journal_mode", "wal")?;
    table.pragma_update(None, "synchronous", "normal")?;
    Ok(table)
}

/// Starts the servers, sends the buyers, and checks the content of the table.
async fn sell_out() -> ExampleResult<ExitCode> {
    let directory = Directory::make("flash-sale")?;
    let path = directory.path().join("goods.db").display().to_string();
    ClusterKey::generate()?.write_file(key_beside(&path))?;
    let mut table = open(&path)?;
    table.execute_batch(&format!(
        "CREATE TABLE goods (id INTEGER PRIMARY KEY, stock INTEGER NOT NULL,
                             fence INTEGER NOT NULL DEFAULT 0,
                             lineage INTEGER NOT NULL DEFAULT 0);
         CREATE TABLE sales (id INTEGER PRIMARY KEY, goods INTEGER NOT NULL,
                             piece INTEGER NOT NULL);
         INSERT INTO goods (id, stock) VALUES ({UNLOCKED}, {STOCK}), ({LOCKED}, {STOCK});"
    ))?;
    let addrs = free_addrs(SERVERS);
    let mut servers = Vec::new();
    for number in 0..SERVERS {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["server", &number.to_string(), &path]).args(&addrs);
        servers.push(Process(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?));
    }
    let mut shops: Vec<SocketAddr> = Vec::new();
    for server in &mut servers {
        let mut line = String::new();
        BufReader::new(server.0.stdout.take().ok_or("it was piped")?).read_line(&mut line)?;
        shops.push(line.trim().parse()?);
    }
    println!("{SERVERS} processes sell {STOCK} pieces to {BUYERS} buyers that all ask at once.");

    let without = sale(&shops, &table, "/unlocked", UNLOCKED).await?;
    println!("without a lock: {without}");
    let with = sale(&shops, &table, "/goods", LOCKED).await?;
    println!("with a lock:    {with}");
    if without.oversold == 0 {
        println!("broken: the load is too weak to show anything");
        return Ok(ExitCode::FAILURE);
    }
    let right = Tally {
        sold: STOCK,
        told: STOCK,
        oversold: 0,
        left: 0,
        refused: BUYERS as i64 - STOCK,
        ..with
    };
    if with != right {
        println!("broken: {STOCK} pieces are to be sold, none of them twice");
        return Ok(ExitCode::FAILURE);
    }
    let last =
        table.query_row("SELECT fence, lineage FROM goods WHERE id = ?", [LOCKED], |row| {
            Ok(Fence { token: row.get(0)?, lineage: row.get(1)? })
        })?;
    if write(&mut table, LOCKED, 0, Fence { lineage: !last.lineage, ..last })? {
        println!("broken: the table took an equal token of another lineage");
        return Ok(ExitCode::FAILURE);
    }
    println!("kept: {STOCK} of {STOCK} pieces sold, none of them twice");
    Ok(ExitCode::SUCCESS)
}

/// The result of a sale.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Tally {
    /// Sales in the table.
    sold: i64,
    /// Buyers that were told that they have bought a piece.
    told: i64,
    /// Pieces that were sold twice.
    oversold: i64,
    /// The remaining pieces in the table.
    left: i64,
    /// Buyers that were told that no piece is left.
    refused: i64,
    took: Duration,
}

impl std::fmt::Display for Tally {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Tally { sold, oversold, left, refused, took, .. } = self;
        write!(f, "{sold} sold, {oversold} of them for the second time, {left} said to be left, ")?;
        write!(f, "{refused} buyers sent away, in {took:.0?}")
    }
}

/// Sends all buyers at once, each to the next process.
async fn sale(
    shops: &[SocketAddr],
    table: &Connection,
    path: &str,
    goods: i64,
) -> ExampleResult<Tally> {
    let start = Instant::now();
    let mut buyers = JoinSet::new();
    for buyer in 0..BUYERS {
        let (shop, path) = (shops[buyer % shops.len()], format!("{path}/{goods}"));
        buyers.spawn(async move { buy(shop, &path).await });
    }
    let (mut told, mut refused) = (0, 0);
    while let Some(answer) = buyers.join_next().await {
        match answer?? {
            200 => told += 1,
            409 => refused += 1,
            other => return Err(format!("a server answers with status {other}").into()),
        }
    }
    let took = start.elapsed();
    let number = |query: &str| table.query_row(query, [goods], |row| row.get::<_, i64>(0));
    let sold = number("SELECT count(*) FROM sales WHERE goods = ?")?;
    let oversold = number("SELECT count(*) - count(DISTINCT piece) FROM sales WHERE goods = ?")?;
    Ok(Tally {
        sold,
        told,
        oversold,
        left: number("SELECT stock FROM goods WHERE id = ?")?,
        refused,
        took,
    })
}

/// Sends one HTTP request. Returns the status of the answer.
async fn buy(shop: SocketAddr, path: &str) -> std::io::Result<u16> {
    let mut stream = TcpStream::connect(shop).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: {shop}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await?;
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    status.ok_or_else(|| std::io::Error::other(format!("no HTTP: {answer:?}")))
}
