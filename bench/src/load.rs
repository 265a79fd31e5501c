//! The repeated work of the bench's processes, and the floors beside it. A floor is the least that
//! work of this kind can cost on this machine. It is measured in the same processes and on the same
//! kind of runtime.
//!
//! - L: a dashmap of names to tokio mutexes. An entry is inserted, locked, unlocked and removed;
//! - R: 64 bytes there and back over TCP, one or several in flight on one connection, each in a
//!   write of its own. A second form writes all frames of one read at once. That form moves the
//!   most bytes, but does not answer each frame by itself;
//! - H: processes that pass 64 bytes on through a hub.

use crate::clock;
use crate::message::{Affinity, LoadResult, Names, Window};
use crate::spans::Spans;
use dashmap::DashMap;
use elderlock::LockService;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};

pub(crate) type Outcome<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// The length of a frame of the floors, in bytes.
const FRAME: usize = 64;
/// The limit of bytes in one read.
const BUFFER: usize = 64 * 1024;
/// The number of names of a task whose names are scattered among held names.
const SCATTERED: u32 = 4096;
/// The number of locks without a wait after which a task yields and reads the clock.
pub(crate) const STRETCH: u64 = 128;
/// The time from one piece of a process's paced work to the next.
const PACE: Duration = Duration::from_millis(1);
/// The number of locks of each piece.
const PACED: u64 = 10;
/// The number of processes after which two have the same times.
const PACES: u32 = 4;
/// The time after the end within which the last process notices the end.
const GRACE: Duration = Duration::from_millis(100);

/// A client that can take a lock, and release it.
pub(crate) trait Locker: Send + 'static {
    /// Takes a lock and releases it.
    fn take(&mut self, name: &str) -> impl Future<Output = Outcome<()>> + Send;
}

impl Locker for LockService {
    async fn take(&mut self, name: &str) -> Outcome<()> {
        Ok(self.lock(name).await?.release().await?)
    }
}

/// Takes shares of locks instead of locks.
#[derive(Clone)]
pub(crate) struct Reader(pub(crate) LockService);

impl Locker for Reader {
    async fn take(&mut self, name: &str) -> Outcome<()> {
        Ok(self.0.share(name).await?.release().await?)
    }
}

/// Floor L.
#[derive(Clone, Default)]
pub(crate) struct LocalTable(Arc<DashMap<String, Arc<Mutex<()>>>>);

impl LocalTable {
    /// A table with `count` entries that stay, like held locks.
    pub(crate) fn holding(count: u32) -> LocalTable {
        let table = LocalTable::default();
        for number in 0..count {
            table.0.insert(held_name(number), Arc::default());
        }
        table
    }
}

impl Locker for LocalTable {
    async fn take(&mut self, name: &str) -> Outcome<()> {
        let lock = self.0.entry(name.to_owned()).or_default().clone();
        drop(lock.lock().await);
        self.0.remove(name);
        Ok(())
    }
}

/// Runs each of these repeatedly on a task of its own, within the window.
pub(crate) async fn run<L: Locker>(
    lockers: Vec<L>,
    names: Names,
    window: Window,
    timed: bool,
) -> Outcome<LoadResult> {
    let mut tasks = JoinSet::new();
    for (number, locker) in (0..).zip(lockers) {
        tasks.spawn(take_all(locker, task_names(names, number), window, timed));
    }
    join(tasks).await
}

/// Like [`run`], with each on a thread of its own: a task that yields wakes no other runtime.
pub(crate) async fn on_threads<L: Locker>(
    lockers: Vec<L>,
    (names, round): (u32, u32),
    window: Window,
) -> Outcome<LoadResult> {
    let mut threads = JoinSet::new();
    for (number, locker) in (0..).zip(lockers) {
        threads.spawn_blocking(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            runtime.block_on(take_all(locker, thread_names(number, names, round), window, false))
        });
    }
    join(threads).await
}

/// Takes locks on a thread of its own. The locks of names that another member keeps are timed.
pub(crate) async fn recalls(
    mut service: LockService,
    affinity: Affinity,
    window: Window,
) -> Outcome<LoadResult> {
    let Affinity { names, keeper, keepers, percent, paced } = affinity;
    // The names are those of the warm-up: one thread, with the keeper as the round.
    let [own, others] = [keeper, keeper % keepers + 1].map(|round| thread_names(0, names, round));
    let work = async move {
        let mut own = own.iter().cycle();
        let mut ran = LoadResult::default();
        let mut random = u64::from(keeper);
        until(window.from).await;
        let mut pace = paced.then(|| pace(keeper));
        let mut now = clock::now();
        let from = now;
        while now < window.to {
            for _ in 0..if paced { PACED } else { STRETCH } {
                // Knuth's generator gives the same sequence in each run.
                random = random
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1_442_695_040_888_963_407);
                let draw = random >> 33;
                if draw % 100 < u64::from(percent) {
                    let begun = clock::now();
                    service.take(&others[(draw / 100) as usize % others.len()]).await?;
                    ran.spans.add(clock::now() - begun);
                } else {
                    service.take(own.next().expect("it has names")).await?;
                }
                ran.taken += 1;
            }
            match &mut pace {
                Some(pace) => drop(pace.tick().await),
                None => tokio::task::yield_now().await,
            }
            now = clock::now();
        }
        ran.nanos = now - from;
        Outcome::Ok(ran)
    };
    let thread = tokio::task::spawn_blocking(move || {
        tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(work)
    });
    thread.await?
}

/// The times of a process's paced work. Those of several processes do not come together.
fn pace(process: u32) -> Interval {
    let first = Instant::now() + PACE * (process % PACES) / PACES;
    let mut pace = interval_at(first, PACE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}

/// Takes locks until the window ends. `timed`: each lock is timed by itself, else each stretch of
/// locks.
async fn take_all<L: Locker>(
    mut locker: L,
    names: Vec<String>,
    window: Window,
    timed: bool,
) -> Outcome<LoadResult> {
    let mut names = names.iter().map(String::as_str).cycle();
    let mut ran = LoadResult::default();
    until(window.from).await;
    let mut now = clock::now();
    let from = now;
    while now < window.to {
        for _ in 0..if timed { 1 } else { STRETCH } {
            locker.take(names.next().expect("each task has a name at least")).await?;
            ran.taken += 1;
        }
        let after = clock::now();
        if timed {
            ran.spans.add(after - now);
        } else {
            tokio::task::yield_now().await;
        }
        now = after;
    }
    ran.nanos = now - from;
    Ok(ran)
}

async fn join(mut tasks: JoinSet<Outcome<LoadResult>>) -> Outcome<LoadResult> {
    let mut all = LoadResult::default();
    while let Some(ran) = tasks.join_next().await {
        all.join(ran??);
    }
    Ok(all)
}

fn task_names(names: Names, task: u32) -> Vec<String> {
    match names {
        Names::One => vec!["prize".to_owned()],
        Names::Own => vec![format!("own-{task:012}")],
        Names::Scattered { held } => {
            // Knuth's multiplier spreads the numbers like random ones, and alike in each run.
            let spread = |index: u32| index.wrapping_mul(2_654_435_761) % held.max(1);
            (0..SCATTERED).map(|index| free_name(spread(index + task * SCATTERED))).collect()
        }
    }
}

/// Names of 16 bytes.
fn thread_names(thread: u32, count: u32, round: u32) -> Vec<String> {
    (0..count).map(|number| format!("own-{thread:02}-{round:04}-{number:04}")).collect()
}

/// The prefix of the names of held locks.
pub(crate) const HELD: &str = "held-";

/// Names of 16 bytes.
pub(crate) fn held_name(number: u32) -> String {
    format!("{HELD}{number:011}")
}

/// A free name of 16 bytes. In each ordered map it is next to the name of a held lock.
fn free_name(number: u32) -> String {
    format!("{HELD}{:010}+", number / 10)
}

/// The name of a lock that is taken once, of 16 bytes.
pub(crate) fn passing_name(number: u32) -> String {
    format!("name-{number:011}")
}

/// Waits until this time of the machine's clock.
async fn until(from: u64) {
    tokio::time::sleep(clock::between(clock::now(), from)).await;
}

/// Listens at the returned address and sends back all data of each connection: each frame by
/// itself, or all frames of one read together.
pub(crate) async fn echo(together: bool) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let is_ready = stream.set_nodelay(true).is_ok();
            tokio::spawn(async move {
                let mut stream = BufReader::with_capacity(BUFFER, stream);
                let mut frames = Vec::new();
                while is_ready && pass_back(&mut stream, &mut frames, together).await.is_ok() {}
            });
        }
    });
    Ok(addr)
}

/// Waits for a frame and writes it back. With `together`, also all other frames that have arrived.
/// Returns the number of frames.
async fn pass_back(
    stream: &mut BufReader<TcpStream>,
    frames: &mut Vec<u8>,
    together: bool,
) -> std::io::Result<u64> {
    frames.resize(FRAME, 0);
    stream.read_exact(frames).await?;
    if together {
        let whole = stream.buffer().len() / FRAME * FRAME;
        frames.extend_from_slice(&stream.buffer()[..whole]);
        stream.consume(whole);
    }
    stream.get_mut().write_all(frames).await?;
    Ok((frames.len() / FRAME) as u64)
}

/// Measures floor R with this number of frames in flight.
pub(crate) async fn ping_pong(
    at: SocketAddr,
    in_flight: u32,
    together: bool,
    window: Window,
) -> Outcome<LoadResult> {
    let work = async move {
        let mut stream = BufReader::with_capacity(BUFFER, connect(at).await?);
        let mut frames = Vec::new();
        let mut ran = LoadResult::default();
        until(window.from).await;
        let mut now = clock::now();
        let from = now;
        for _ in 0..in_flight {
            stream.get_mut().write_all(&[7; FRAME]).await?;
        }
        while now < window.to {
            ran.taken += pass_back(&mut stream, &mut frames, together).await?;
            let after = clock::now();
            if in_flight == 1 {
                ran.spans.add(after - now);
            }
            now = after;
        }
        ran.nanos = now - from;
        Outcome::Ok(ran)
    };
    // The work runs on a thread of the runtime, as an application's task does.
    tokio::spawn(work).await?
}

/// Measures floor R with one frame each millisecond.
pub(crate) async fn paced_ping(at: SocketAddr, keeper: u32, window: Window) -> Outcome<LoadResult> {
    let work = async move {
        let mut stream = connect(at).await?;
        let mut frame = [7; FRAME];
        let mut ran = LoadResult::default();
        until(window.from).await;
        let mut pace = pace(keeper);
        let from = clock::now();
        while clock::now() < window.to {
            pace.tick().await;
            let begun = clock::now();
            stream.write_all(&frame).await?;
            stream.read_exact(&mut frame).await?;
            ran.spans.add(clock::now() - begun);
            ran.taken += 1;
        }
        ran.nanos = clock::now() - from;
        Outcome::Ok(ran)
    };
    tokio::spawn(work).await?
}

/// The hub of floor H: passes the data of each connection on to the next one. Accepts this number
/// of connections at the returned address.
pub(crate) async fn hub(spokes: u32) -> Outcome<SocketAddr> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
    let addr = listener.local_addr()?;
    tokio::spawn(async move {
        let (mut readers, mut writers) = (Vec::new(), Vec::new());
        for _ in 0..spokes {
            let (stream, _) = listener.accept().await?;
            stream.set_nodelay(true)?;
            let (reader, writer) = stream.into_split();
            // The buffer is as large as in R: a read that fills its buffer is followed by another
            // read.
            readers.push(BufReader::with_capacity(BUFFER, reader));
            writers.push(Arc::new(Mutex::new(writer)));
        }
        writers.rotate_left(1);
        for (mut reader, next) in readers.into_iter().zip(writers) {
            tokio::spawn(async move {
                let mut frame = [0; FRAME];
                while reader.read_exact(&mut frame).await.is_ok() {
                    let mut next = next.lock().await;
                    if next.write_all(&frame).await.is_err() {
                        return;
                    }
                }
            });
        }
        std::io::Result::Ok(())
    });
    Ok(addr)
}

/// A spoke of floor H: passes on the one frame of the circle. One spoke starts with the frame.
pub(crate) async fn spoke(at: SocketAddr, brings: bool, window: Window) -> Outcome<LoadResult> {
    let work = async move {
        let mut stream = BufReader::with_capacity(BUFFER, connect(at).await?);
        let mut frame = [7; FRAME];
        let mut taken = 0;
        until(window.from).await;
        if brings {
            stream.get_mut().write_all(&frame).await?;
        }
        let pass = async {
            while clock::now() < window.to {
                stream.read_exact(&mut frame).await?;
                stream.get_mut().write_all(&frame).await?;
                taken += 1;
            }
            std::io::Result::Ok(())
        };
        let end = clock::between(clock::now(), window.to) + GRACE;
        // The process that sees the end keeps the frame, so the others stop by a time limit.
        if let Ok(failed) = tokio::time::timeout(end, pass).await {
            failed?;
        }
        Outcome::Ok(LoadResult { taken, nanos: window.to - window.from, spans: Spans::default() })
    };
    tokio::spawn(work).await?
}

async fn connect(at: SocketAddr) -> Outcome<TcpStream> {
    let stream = TcpStream::connect(at).await?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
