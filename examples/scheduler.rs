//! A scheduled job in four processes that runs in one of them, the leader, and moves when that one
//! dies. Run it with `cargo run -p elderlock-cli --example scheduler`. It ends by itself.
//!
//! One leader is killed (SIGKILL), and another takes over. The next one is stopped in the middle of
//! the job (SIGSTOP), as a long pause would do it. The one after that runs the job for the tick
//! that was left undone. Then the stopped one wakes and makes its late write. The table refuses
//! that, because its token is lower than one that it has seen: a leader shows its token when it
//! reads which tick is next, and not only when it writes, or the one before might still write in
//! between. So no tick is written twice, and none is missed. If one was, this exits with 1: see it
//! with `-- --no-fence`, where the table does not look at tokens.
//!
//! Quartz behind Curator's `LeaderLatch`: there each process asks whether it leads and runs the
//! job, and nothing stops the one that wakes too late.

mod support;

use elderlock::{ClusterKey, Keyring, LeaderLatch, Member, Term, Timing};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use rustix::process::{Signal, getpid, kill_process};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use support::{Directory, Done, Process, free_addrs, key_beside};

/// The job runs so often.
const TICK: Duration = Duration::from_millis(200);
/// Far longer than any step takes.
const HANG: Duration = Duration::from_secs(30);

fn main() -> Done<ExitCode> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => oversee(true),
        ["--no-fence"] => oversee(false),
        ["node", number, table, fenced, ref addrs @ ..] => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(node(number.parse()?, Path::new(table), fenced == "fenced", addrs))?;
            Ok(ExitCode::SUCCESS)
        }
        _ => Err("usage: scheduler [--no-fence]".into()),
    }
}

/// A process that runs the job while it leads.
async fn node(number: usize, table: &Path, fenced: bool, addrs: &[&str]) -> Done {
    let stops = Arc::new(AtomicBool::new(false));
    listen(stops.clone());
    let joining =
        Member::builder("scheduler").bind(addrs[number]).seeds(addrs[..3].iter().copied());
    let joining = joining.keyring(Keyring::read_file(key_beside(table))?).timing(Timing::fast());
    let member = joining.join().await?;
    let latch =
        LeaderLatch::new(&member.lock_service("jobs").await?, "report", format!("node {number}"))?;
    latch.start()?;
    let mut books = Books::open(table, fenced)?;
    loop {
        let term = latch.await_leadership().await?;
        println!("node {number} leads, token {}", term.token());
        let end = match term.protect(run_each_tick(number, &term, &mut books, &stops)).await {
            Ok(done) => return done,
            Err(end) => end,
        };
        println!("node {number}: {end}");
    }
}

/// The scheduler of one term.
async fn run_each_tick(number: usize, term: &Term, books: &mut Books, stops: &AtomicBool) -> Done {
    loop {
        // Ticks that nobody has run are made up for, so the table counts and not the clock.
        let token = term.token().as_i64();
        let tick = books.last_tick(token)?.map_or_else(this_tick, |last| last + 1);
        while this_tick() < tick {
            tokio::time::sleep(TICK / 20).await;
        }
        // The job: any work that is done once per tick. Each effect on the world carries the token
        // of its term.
        if stops.swap(false, Ordering::SeqCst) {
            println!("node {number} is stopped in the middle of tick {tick}");
            kill_process(getpid(), Signal::STOP)?;
            println!("node {number} wakes, and writes for tick {tick}");
        }
        match books.write(tick, token, number)? {
            true => println!("node {number} ran tick {tick}, token {token}"),
            false => println!("node {number} was refused: tick {tick}, token {token} is too low"),
        }
        // Where a term that is over ends.
        tokio::task::yield_now().await;
    }
}

/// Follows the parent: a line is the order to stop in the middle of the next job; the end of them
/// is the end.
fn listen(stops: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            stops.store(true, Ordering::SeqCst);
        }
        std::process::exit(0);
    });
}

fn this_tick() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (since.as_millis() / TICK.as_millis()) as i64
}

/// The table that the job writes.
struct Books {
    file: Connection,
    /// Whether it refuses tokens lower than the highest it has seen.
    fenced: bool,
}

impl Books {
    fn open(path: &Path, fenced: bool) -> Done<Books> {
        let file = Connection::open(path)?;
        file.busy_timeout(Duration::from_secs(10))?;
        file.pragma_update(None, "journal_mode", "wal")?;
        file.execute_batch(
            "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER,
                                             fence INTEGER NOT NULL);
             INSERT OR IGNORE INTO job (id, last, fence) VALUES (1, NULL, 0);
             CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, tick INTEGER, token INTEGER,
                                              node INTEGER);
             CREATE TABLE IF NOT EXISTS refusals (tick INTEGER, token INTEGER, node INTEGER);",
        )?;
        Ok(Books { file, fenced })
    }

    /// The last tick for which the job has run. From now on nobody with a lower token changes it.
    fn last_tick(&self, token: i64) -> Done<Option<i64>> {
        let look = "UPDATE job SET fence = max(fence, ?) RETURNING last";
        Ok(self.file.query_row(look, [token], |row| row.get(0))?)
    }

    /// Writes the result of the job for a tick; false: refused.
    fn write(&mut self, tick: i64, token: i64, node: usize) -> Done<bool> {
        let write = self.file.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let fence = if self.fenced { "fence <= ?2" } else { "true" };
        let update = format!("UPDATE job SET last = ?1, fence = max(fence, ?2) WHERE {fence}");
        let written = write.execute(&update, params![tick, token])? == 1;
        let into = if written { "runs" } else { "refusals" };
        let insert = format!("INSERT INTO {into} (tick, token, node) VALUES (?, ?, ?)");
        write.execute(&insert, params![tick, token, node as i64])?;
        write.commit()?;
        Ok(written)
    }

    fn number(&self, query: &str) -> Done<i64> {
        Ok(self.file.query_row(query, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or_default())
    }

    /// The token and the node of the run that was written last.
    fn last_run(&self) -> Done<Option<(i64, usize)>> {
        let query = "SELECT token, node FROM runs ORDER BY id DESC LIMIT 1";
        Ok(self
            .file
            .query_row(query, [], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))
            .optional()?)
    }

    /// Waits for so many more runs; the token and node of the last of them.
    fn more_runs(&self, count: i64) -> Done<(i64, usize)> {
        let goal = self.number("SELECT max(id) FROM runs")? + count;
        wait(|| Ok(self.number("SELECT max(id) FROM runs")? >= goal))?;
        Ok(self.last_run()?.ok_or("a run is there")?)
    }

    /// Waits until a process with a higher token has run.
    fn next_leader(&self, token: i64) -> Done<(i64, usize)> {
        wait(|| Ok(self.last_run()?.is_some_and(|(next, _)| next > token)))?;
        Ok(self.last_run()?.ok_or("a run is there")?)
    }
}

fn wait(mut so: impl FnMut() -> Done<bool>) -> Done {
    let since = Instant::now();
    while !so()? {
        if since.elapsed() > HANG {
            return Err("it takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Starts the processes, kills and stops them in their turn, and looks at their writes.
fn oversee(fenced: bool) -> Done<ExitCode> {
    println!("Four processes stand for one lead; the leader runs a job every {TICK:?}.");
    let directory = Directory::make("scheduler")?;
    let table = directory.path().join("jobs.db");
    ClusterKey::generate()?.write_file(key_beside(&table))?;
    let books = Books::open(&table, fenced)?;
    let addrs = free_addrs(4);
    let mut nodes = Vec::new();
    for number in 0..addrs.len() {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["node", &number.to_string()]).arg(&table).arg(if fenced {
            "fenced"
        } else {
            "unfenced"
        });
        nodes.push(Process(command.args(&addrs).stdin(Stdio::piped()).spawn()?));
    }

    let (token, leader) = books.more_runs(5)?;
    println!("-- node {leader} is killed");
    nodes[leader].0.kill()?;
    books.next_leader(token)?;
    let (token, leader) = books.more_runs(5)?;
    println!("-- node {leader} is to be stopped");
    writeln!(nodes[leader].0.stdin.as_ref().ok_or("it was piped")?, "stop")?;
    books.next_leader(token)?;
    books.more_runs(5)?;
    let tried = || {
        let of = |table: &str| {
            books.number(&format!("SELECT count(*) FROM {table} WHERE token = {token}"))
        };
        Ok::<i64, Box<dyn Error>>(of("runs")? + of("refusals")?)
    };
    let before = tried()?;
    println!("-- node {leader} goes on");
    kill_process(rustix::process::Pid::from_child(&nodes[leader].0), Signal::CONT)?;
    wait(|| Ok(tried()? > before))?;
    books.more_runs(5)?;
    drop(nodes);

    let runs = books.number("SELECT count(*) FROM runs")?;
    let ticks = books.number("SELECT count(DISTINCT tick) FROM runs")?;
    let span = books.number("SELECT 1 + max(tick) - min(tick) FROM runs")?;
    let leaders = books.number("SELECT count(DISTINCT token) FROM runs")?;
    let refused = books.number("SELECT count(*) FROM refusals")?;
    if runs != ticks || ticks != span || refused == 0 {
        println!("broken: {ticks} of {span} ticks ran, {} of them twice", runs - ticks);
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "kept: {ticks} ticks in {leaders} terms, none twice, none missed; {refused} late run was \
         refused by its token"
    );
    Ok(ExitCode::SUCCESS)
}
