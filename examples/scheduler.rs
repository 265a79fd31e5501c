//! A scheduled job in four processes. It runs in one of them, the leader, and moves when the leader
//! dies. Run it with `cargo run -p elderlock-cli --example scheduler`. The example ends by itself.
//!
//! The first leader is killed (SIGKILL), and another process takes over. That leader is stopped in
//! the middle of the job (SIGSTOP), as by a long pause. The next leader runs the job for the
//! unfinished tick: `Schedule` remembers the last finished one. Then the stopped process wakes and
//! makes its late write. The table refuses the write, because it has a higher token. It also
//! refuses an equal token of another lineage, and a tick that it already has. The table checks
//! ticks because the last finished tick may be lost with a leader that was the grantor. So no tick
//! is written twice, and none is missed. Otherwise the example exits with 1: try it with `--
//! --no-fence`, where the table checks neither.
//!
//! Quartz behind Curator's `LeaderLatch` has no such check. There each process asks whether it
//! leads and runs the job, and nothing stops a process that wakes too late.

mod support;

use elderlock::{ClusterKey, Keyring, LockValue, Member, MissedTicks, Schedule, Tick, Timing};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use rustix::process::{Signal, getpid, kill_process};
use std::error::Error;
use std::io::{BufRead, Write};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use support::{Directory, ExampleResult, Process, free_addrs, key_beside};

/// The period of the job.
const TICK: Duration = Duration::from_millis(200);
/// A guard against hangs, far above the time of any step.
const HANG: Duration = Duration::from_secs(30);

fn main() -> ExampleResult<ExitCode> {
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
async fn node(number: usize, table: &Path, fenced: bool, addrs: &[&str]) -> ExampleResult {
    let stops = Arc::new(AtomicBool::new(false));
    listen(stops.clone());
    let joining =
        Member::builder("scheduler").bind(addrs[number]).seeds(addrs[..3].iter().copied());
    let joining = joining.keyring(Keyring::read_file(key_beside(table))?).timing(Timing::fast());
    let member = joining.join().await?;
    let jobs = member.lock_service("jobs").await?;
    let schedule = Schedule::new(&jobs, "report", TICK, format!("node {number}"))?;
    // The last finished tick is known while a process has the value open. The first leader is
    // killed when all processes have.
    let _open = LockValue::open(&jobs, "report", "").await?;
    let mut books = Books::open(table, fenced)?;
    books.is_ready(number)?;
    let job = |tick: Tick| {
        println!("node {number}: tick {}, token {}", tick.number(), tick.token());
        // An error of the table ends the process, as a crash would.
        report(number, &tick, &mut books, &stops).expect("the table can be written");
        std::future::ready(())
    };
    Err(schedule.missed(MissedTicks::RunAll).run(job).await.into())
}

/// The job: any work that is done once for each tick. Each effect on the world carries the number
/// of the tick, and the token and the lineage of its leader.
fn report(number: usize, tick: &Tick, books: &mut Books, stops: &AtomicBool) -> ExampleResult {
    let fence = Fence { token: tick.token().as_i64(), lineage: tick.lineage().as_i64() };
    let (tick, token) = (tick.number(), fence.token);
    if stops.swap(false, Ordering::SeqCst) {
        println!("node {number} is stopped in the middle of tick {tick}");
        kill_process(getpid(), Signal::STOP)?;
        println!("node {number} wakes, and writes for tick {tick}");
    }
    match books.write(tick, fence, number)? {
        Written::Now => println!("node {number} ran tick {tick}, token {token}"),
        Written::Before => println!("node {number} found tick {tick} done"),
        Written::Refused => {
            println!("node {number} was refused: tick {tick}, token {token} is too low");
        }
    }
    Ok(())
}

/// Follows the parent. A line is the order to stop in the middle of the next job. The end of the
/// input ends the process.
fn listen(stops: Arc<AtomicBool>) {
    std::thread::spawn(move || {
        for _ in std::io::stdin().lock().lines().map_while(Result::ok) {
            stops.store(true, Ordering::SeqCst);
        }
        std::process::exit(0);
    });
}

/// The identity of a grant: no other grant has the same pair.
#[derive(Clone, Copy)]
struct Fence {
    token: i64,
    lineage: i64,
}

/// The outcome of the write of a tick.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Now,
    /// The table already has the tick.
    Before,
    /// The table has a higher token, or an equal one of another lineage.
    Refused,
}

/// The table that the job writes.
struct Books {
    file: Connection,
    /// Whether the table refuses tokens lower than its highest one, and an equal token of another
    /// lineage.
    fenced: bool,
}

impl Books {
    fn open(path: &Path, fenced: bool) -> ExampleResult<Books> {
        let file = Connection::open(path)?;
        file.busy_timeout(Duration::from_secs(10))?;
        file.pragma_update(None, "journal_mode", "wal")?;
        file.execute_batch(
            "CREATE TABLE IF NOT EXISTS job (id INTEGER PRIMARY KEY CHECK (id = 1), last INTEGER,
                                             fence INTEGER NOT NULL, lineage INTEGER NOT NULL);
             INSERT OR IGNORE INTO job (id, last, fence, lineage) VALUES (1, NULL, 0, 0);
             CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, tick INTEGER, token INTEGER,
                                              node INTEGER);
             CREATE TABLE IF NOT EXISTS refusals (tick INTEGER, token INTEGER, node INTEGER);
             CREATE TABLE IF NOT EXISTS nodes (node INTEGER);",
        )?;
        Ok(Books { file, fenced })
    }

    /// Returns whether a process is about to run the schedule.
    fn is_ready(&self, node: usize) -> ExampleResult {
        self.file.execute("INSERT INTO nodes (node) VALUES (?)", [node as i64])?;
        Ok(())
    }

    /// Writes the result of the job for a tick, unless the table has the tick, or a later leader's
    /// write.
    fn write(&mut self, tick: i64, fence: Fence, node: usize) -> ExampleResult<Written> {
        let Fence { token, lineage } = fence;
        let write = self.file.transaction_with_behavior(TransactionBehavior::Immediate)?;
        let (last, seen) = write.query_row("SELECT last, fence, lineage FROM job", [], |row| {
            let seen = Fence { token: row.get(1)?, lineage: row.get(2)? };
            Ok((row.get::<_, Option<i64>>(0)?, seen))
        })?;
        let is_stale = token < seen.token || (token == seen.token && lineage != seen.lineage);
        let written = match self.fenced {
            true if is_stale => Written::Refused,
            true if last.is_some_and(|last| tick <= last) => Written::Before,
            _ => Written::Now,
        };
        let into = match written {
            Written::Now => "runs",
            Written::Refused => "refusals",
            Written::Before => return Ok(written),
        };
        if token > seen.token {
            write.execute("UPDATE job SET fence = ?, lineage = ?", [token, lineage])?;
        }
        if written == Written::Now {
            write.execute("UPDATE job SET last = ?", [tick])?;
        }
        let insert = format!("INSERT INTO {into} (tick, token, node) VALUES (?, ?, ?)");
        write.execute(&insert, params![tick, token, node as i64])?;
        write.commit()?;
        Ok(written)
    }

    fn number(&self, query: &str) -> ExampleResult<i64> {
        Ok(self.file.query_row(query, [], |row| row.get::<_, Option<i64>>(0))?.unwrap_or_default())
    }

    /// The token and the node of the run that was written last.
    fn last_run(&self) -> ExampleResult<Option<(i64, usize)>> {
        let query = "SELECT token, node FROM runs ORDER BY id DESC LIMIT 1";
        Ok(self
            .file
            .query_row(query, [], |row| Ok((row.get(0)?, row.get::<_, i64>(1)? as usize)))
            .optional()?)
    }

    /// Waits for `count` more runs. Returns the token and the node of the last of them.
    fn more_runs(&self, count: i64) -> ExampleResult<(i64, usize)> {
        let goal = self.number("SELECT max(id) FROM runs")? + count;
        wait(|| Ok(self.number("SELECT max(id) FROM runs")? >= goal))?;
        Ok(self.last_run()?.ok_or("a run is there")?)
    }

    /// Waits until a process with a higher token has run.
    fn next_leader(&self, token: i64) -> ExampleResult<(i64, usize)> {
        wait(|| Ok(self.last_run()?.is_some_and(|(next, _)| next > token)))?;
        Ok(self.last_run()?.ok_or("a run is there")?)
    }
}

fn wait(mut so: impl FnMut() -> ExampleResult<bool>) -> ExampleResult {
    let since = Instant::now();
    while !so()? {
        if since.elapsed() > HANG {
            return Err("it takes too long".into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// Starts the processes, kills and stops them one after the other, and checks their writes.
fn oversee(fenced: bool) -> ExampleResult<ExitCode> {
    println!("Four processes stand for one lead; the leader runs a job every {TICK:?}.");
    let directory = Directory::make("scheduler")?;
    let table = directory.path().join("jobs.db");
    ClusterKey::generate()?.write_file(key_beside(&table))?;
    let mut books = Books::open(&table, fenced)?;
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

    wait(|| Ok(books.number("SELECT count(*) FROM nodes")? == addrs.len() as i64))?;
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
    let (last, fence) =
        books.file.query_row("SELECT last, fence, lineage FROM job", [], |row| {
            Ok((row.get::<_, i64>(0)?, Fence { token: row.get(1)?, lineage: row.get(2)? }))
        })?;
    if books.write(last + 1, Fence { lineage: !fence.lineage, ..fence }, 0)? != Written::Refused {
        println!("broken: the table took an equal token of another lineage");
        return Ok(ExitCode::FAILURE);
    }
    println!(
        "kept: {ticks} ticks in {leaders} terms, none twice, none missed; {refused} late run was \
         refused by its token"
    );
    Ok(ExitCode::SUCCESS)
}
