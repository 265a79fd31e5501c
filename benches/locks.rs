//! What a lock costs, each beside a floor: the least that anything of its kind can cost on this machine.
//!
//! - local: lock and release of a free lock at its grantor; floor: a dashmap of names to tokio mutexes, where a lock is
//!   put in, locked, unlocked and taken out.
//! - remote: lock and release of a free lock from another process; floor: 64 bytes there and back over TCP.
//! - handoff: eight processes want one lock; floor: eight processes pass 64 bytes through a hub.
//!
//! The ratios are printed at the end. Parents and children are this same program, all on a tokio runtime of two threads.

use criterion::Criterion;
use dashmap::DashMap;
use elderlock::{LockService, Member};
use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Mutex;

type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Tells a child what it is; arguments belong to criterion.
const ROLE: &str = "ELDERLOCK_BENCH_ROLE";
/// The parent's address, for children.
const PARENT: &str = "ELDERLOCK_BENCH_PARENT";
/// How many processes want the contended lock.
const CROWD: usize = 8;
/// Length of a frame of the floors.
const FRAME: usize = 64;
/// The contended lock.
const NAME: &str = "lock";

fn main() -> Outcome<()> {
    let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    match std::env::var(ROLE).as_deref() {
        Ok("echo") => runtime.block_on(echo(&std::env::var(PARENT)?)),
        Ok("grantor") => runtime.block_on(grantor(&std::env::var(PARENT)?)),
        Ok("one of a crowd") => runtime.block_on(one_of_a_crowd(&std::env::var(PARENT)?)),
        Ok(other) => Err(format!("no such role: {other}").into()),
        Err(_) => {
            let mut criterion = Criterion::default()
                .sample_size(20)
                .warm_up_time(Duration::from_secs(1))
                .measurement_time(Duration::from_secs(4))
                .configure_from_args();
            let mut book = Book::default();
            local(&mut criterion, &runtime, &mut book)?;
            remote(&mut criterion, &runtime, &mut book)?;
            handoff(&mut criterion, &runtime, &mut book)?;
            criterion.final_summary();
            book.print();
            Ok(())
        }
    }
}

/// What each bench took per turn, in nanoseconds, one entry per sample.
#[derive(Default)]
struct Book(BTreeMap<String, Vec<f64>>);

impl Book {
    /// Measures `turns`, which does its work so often as it is told and says how long that took.
    fn measure(&mut self, criterion: &mut Criterion, name: &str, mut turns: impl FnMut(u64) -> Duration) {
        let samples = self.0.entry(name.to_owned()).or_default();
        criterion.bench_function(name, |bench| {
            bench.iter_custom(|count| {
                let took = turns(count);
                samples.push(took.as_nanos() as f64 / count as f64);
                took
            });
        });
    }

    fn median(&self, name: &str) -> Option<f64> {
        let mut samples = self.0.get(name)?.clone();
        samples.sort_by(f64::total_cmp);
        samples.get(samples.len() / 2).copied()
    }

    fn print(&self) {
        println!("\n{:<10} {:>14} {:>14} {:>8}", "", "lock", "floor", "ratio");
        for kind in ["local", "remote", "handoff"] {
            let pair = (self.median(&format!("{kind}/lock")), self.median(&format!("{kind}/floor")));
            if let (Some(lock), Some(floor)) = pair {
                println!("{kind:<10} {:>11.2} µs {:>11.2} µs {:>8.2}", lock / 1e3, floor / 1e3, lock / floor);
            }
        }
    }
}

fn local(criterion: &mut Criterion, runtime: &Runtime, book: &mut Book) -> Outcome<()> {
    let member = runtime.block_on(Member::local())?;
    let service = runtime.block_on(member.lock_service("local"))?;
    book.measure(criterion, "local/lock", |count| lock_and_release(runtime, &service, count));
    runtime.block_on(member.leave())?;

    let table: Arc<DashMap<String, Arc<Mutex<()>>>> = Arc::default();
    book.measure(criterion, "local/floor", |count| {
        let table = table.clone();
        run(runtime, async move {
            for _ in 0..count {
                let lock = table.entry(NAME.to_owned()).or_default().clone();
                drop(lock.lock().await);
                table.remove(NAME);
            }
            Ok(())
        })
    });
    Ok(())
}

fn remote(criterion: &mut Criterion, runtime: &Runtime, book: &mut Book) -> Outcome<()> {
    let member = runtime.block_on(found())?;
    let _child = Helper::start("grantor", &member.addr().to_string())?;
    let service = runtime.block_on(member.lock_service("remote"))?;
    book.measure(criterion, "remote/lock", |count| lock_and_release(runtime, &service, count));
    let at_home = member.status().services.iter().any(|service| service.grantor == Some(member.process()));
    assert!(!at_home, "the parent became grantor: nothing remote was measured");
    runtime.block_on(member.leave())?;

    let (_child, mut streams) = runtime.block_on(hub(1))?;
    let stream = Arc::new(Mutex::new(streams.remove(0)));
    book.measure(criterion, "remote/floor", |count| {
        let stream = stream.clone();
        run(runtime, async move {
            let mut stream = stream.lock().await;
            for _ in 0..count {
                there_and_back(&mut stream).await?;
            }
            Ok(())
        })
    });
    Ok(())
}

fn handoff(criterion: &mut Criterion, runtime: &Runtime, book: &mut Book) -> Outcome<()> {
    let member = runtime.block_on(found())?;
    // The first to ask is the grantor: the parent, so that all eight are remote, as they are from the hub.
    let service = runtime.block_on(member.lock_service("handoff"))?;
    lock_and_release(runtime, &service, 1);
    let mut crowd = Vec::new();
    for _ in 0..CROWD {
        crowd.push(Helper::start("one of a crowd", &member.addr().to_string())?);
    }
    book.measure(criterion, "handoff/lock", |count| {
        let each = count.div_ceil(CROWD as u64);
        let begun = Instant::now();
        for helper in &mut crowd {
            helper.tell(&each.to_string()).expect("a child reads its orders until it is told to end");
        }
        for helper in &mut crowd {
            helper.hear().expect("a child answers when it is done");
        }
        begun.elapsed().mul_f64(count as f64 / (each * CROWD as u64) as f64)
    });
    drop(crowd);
    runtime.block_on(member.leave())?;

    let (_children, streams) = runtime.block_on(hub(CROWD))?;
    let streams = Arc::new(Mutex::new(streams));
    book.measure(criterion, "handoff/floor", |count| {
        let streams = streams.clone();
        run(runtime, async move {
            let mut streams = streams.lock().await;
            for turn in 0..count {
                there_and_back(&mut streams[turn as usize % CROWD]).await?;
            }
            Ok(())
        })
    });
    Ok(())
}

/// Locks and releases a free lock `count` times.
fn lock_and_release(runtime: &Runtime, service: &LockService, count: u64) -> Duration {
    let service = service.clone();
    run(runtime, async move {
        for _ in 0..count {
            service.lock(NAME).await?.release().await?;
        }
        Ok(())
    })
}

/// Runs on a thread of the runtime, as an application's task would, and says how long it took.
fn run(runtime: &Runtime, work: impl Future<Output = Outcome<()>> + Send + 'static) -> Duration {
    let begun = Instant::now();
    let done = runtime.block_on(runtime.spawn(work)).expect("the task was not cancelled and did not panic");
    if let Err(error) = done {
        panic!("{error}");
    }
    begun.elapsed()
}

async fn found() -> Outcome<Member> {
    Ok(Member::builder("bench").bind("127.0.0.1:0").found().join().await?)
}

async fn join(parent: &str) -> Outcome<Member> {
    Ok(Member::builder("bench").bind("127.0.0.1:0").seeds([parent]).join().await?)
}

/// Child: asks first, so that it is the grantor, and grants until its input ends.
async fn grantor(parent: &str) -> Outcome<()> {
    let member = join(parent).await?;
    member.lock_service("remote").await?.lock(NAME).await?.release().await?;
    println!("ready");
    tokio::task::spawn_blocking(|| std::io::stdin().lines().count()).await?;
    Ok(member.leave().await?)
}

/// Child: locks and releases as often as each line of its input says.
async fn one_of_a_crowd(parent: &str) -> Outcome<()> {
    let member = join(parent).await?;
    let service = member.lock_service("handoff").await?;
    service.lock(NAME).await?.release().await?;
    println!("ready");
    while let Some(line) = tokio::task::spawn_blocking(|| std::io::stdin().lines().next()).await? {
        for _ in 0..line?.parse::<u64>()? {
            service.lock(NAME).await?.release().await?;
        }
        println!("done");
    }
    Ok(member.leave().await?)
}

/// Child: sends back every frame.
async fn echo(parent: &str) -> Outcome<()> {
    let mut stream = TcpStream::connect(parent).await?;
    stream.set_nodelay(true)?;
    println!("ready");
    let mut frame = [0; FRAME];
    while stream.read_exact(&mut frame).await.is_ok() {
        stream.write_all(&frame).await?;
    }
    Ok(())
}

/// Starts `count` echoing children.
async fn hub(count: usize) -> Outcome<(Vec<Helper>, Vec<TcpStream>)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let addr = listener.local_addr()?.to_string();
    let (mut children, mut streams) = (Vec::new(), Vec::new());
    for _ in 0..count {
        children.push(Helper::start("echo", &addr)?);
        let stream = listener.accept().await?.0;
        stream.set_nodelay(true)?;
        streams.push(stream);
    }
    Ok((children, streams))
}

async fn there_and_back(stream: &mut TcpStream) -> Outcome<()> {
    let mut frame = [7; FRAME];
    stream.write_all(&frame).await?;
    stream.read_exact(&mut frame).await?;
    Ok(())
}

/// A child process; killed at the end if it does not end by itself.
struct Helper {
    child: Child,
    orders: Option<ChildStdin>,
    words: BufReader<ChildStdout>,
}

impl Helper {
    /// Starts this program in another role and waits until it is ready.
    fn start(role: &str, parent: &str) -> Outcome<Helper> {
        let mut child = Command::new(std::env::current_exe()?)
            .env(ROLE, role)
            .env(PARENT, parent)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()?;
        let orders = child.stdin.take();
        let words = BufReader::new(child.stdout.take().ok_or("stdout is a pipe")?);
        let mut helper = Helper { child, orders, words };
        helper.hear()?;
        Ok(helper)
    }

    fn tell(&mut self, text: &str) -> Outcome<()> {
        Ok(writeln!(self.orders.as_mut().ok_or("it was told to end")?, "{text}")?)
    }

    fn hear(&mut self) -> Outcome<String> {
        let mut line = String::new();
        match self.words.read_line(&mut line)? {
            0 => Err("a child ended early".into()),
            _ => Ok(line),
        }
    }
}

impl Drop for Helper {
    fn drop(&mut self) {
        // The end of its input tells it to leave; it is not waited for longer than that takes at best.
        drop(self.orders.take());
        let until = Instant::now() + Duration::from_secs(2);
        while Instant::now() < until && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
