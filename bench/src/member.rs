//! A member of the bench: one real process that follows the parent's orders and reports times.

use crate::CommandResult;
use crate::load::{
    HELD, LocalTable, Outcome, Reader, STRETCH, echo, held_name, hub, on_threads, paced_ping,
    passing_name, ping_pong, recalls, run, spoke,
};
use crate::message::{
    BenchOrder, BenchReport, Event, Holdings, Load, LoadResult, Names, QueuedWaiter, Served, Taken,
    Usage, Window,
};
use crate::processes::{listen, send_report};
use crate::{clock, count};
use clap::Args;
use elderlock::http::HttpView;
use elderlock::{Events, Guard, Keyring, LockService, Member, MemberEvent};
use rustix::time::{ClockId, clock_gettime};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::oneshot;
use tokio::task::{JoinHandle, JoinSet};

/// The arguments with which the parent starts a member.
#[derive(Args)]
pub(crate) struct MemberArgs {
    #[arg(long)]
    bind: SocketAddr,
    #[arg(long)]
    seed: SocketAddr,
    /// The microseconds of busy polling, unless it is the default.
    #[arg(long, env = "ELDERLOCK_BENCH_BUSY_POLL")]
    busy_poll: Option<u64>,
    /// File with a cluster key, to measure the cost of sealing.
    #[arg(long, env = "ELDERLOCK_BENCH_KEY_FILE")]
    key_file: Option<PathBuf>,
}

/// A wait limit above all expected times: a request that waits longer has failed.
const LIMIT: Duration = Duration::from_secs(60);
/// The number of concurrent requests while many locks are taken.
const AT_ONCE: u32 = 64;
/// The name of a free lock.
const PROBE: &str = "probe";
/// The number of locks and releases before the count.
const WARM_UP: u64 = 1000;
/// The number of waiters that is enough to measure the cost of each.
const ENOUGH: u32 = 20_000;
/// The approximate length of a datagram of gossip, with the headers of IP and UDP.
const DATAGRAM: u64 = 100;
/// The interval of probes: short enough to see a gap of a few milliseconds, and long enough to add
/// no load of its own.
const BETWEEN_PROBES: Duration = Duration::from_millis(1);

type Probes = JoinHandle<Outcome<Vec<(u64, u64)>>>;

/// A member with its holds.
struct BenchMember {
    member: Member,
    service: LockService,
    guards: Vec<Guard>,
    queues: Vec<Guard>,
    /// Floor L, and the number of its held entries.
    table: Option<(u32, LocalTable)>,
    probing: Option<(Arc<AtomicBool>, Probes)>,
}

pub(crate) async fn serve(args: MemberArgs) -> CommandResult {
    let (sender, mut orders) = unbounded_channel();
    // The send fails when the other end, and with it the process, is ending.
    listen(move |order: Result<BenchOrder, String>| drop(sender.send(order)))?;
    let (bind, seed) = (args.bind.to_string(), args.seed.to_string());
    let mut builder = Member::builder("elderlock-bench").bind(bind).seeds([seed]).join_limit(LIMIT);
    if let Some(micros) = args.busy_poll {
        builder = builder.busy_poll(Duration::from_micros(micros));
    }
    if let Some(path) = args.key_file {
        builder = builder.keyring(Keyring::read_file(path)?);
    }
    let member = builder.join().await?;
    tokio::spawn(tell(member.events()));
    send_report(&BenchReport::Joined(format!("{:032x}", member.process().0)));
    let service = member.lock_service("bench").await?;
    let mut desk = BenchMember {
        member,
        service,
        guards: Vec::new(),
        queues: Vec::new(),
        table: None,
        probing: None,
    };
    while let Some(order) = orders.recv().await {
        let leaves = order == Ok(BenchOrder::Leave);
        let report = match order {
            Ok(order) => desk.obey(order).await,
            Err(nonsense) => Err(nonsense.into()),
        };
        match report {
            Ok(Some(report)) => send_report(&report),
            Ok(None) => {}
            Err(error) => send_report(&BenchReport::Failed(error.to_string())),
        }
        if leaves {
            break;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reports the member's events to the parent.
async fn tell(mut events: Events) {
    while let Some(event) = events.next().await {
        let at = clock::now();
        let event = match event {
            MemberEvent::ViewInstalled(view) => Event::View(
                view.members
                    .iter()
                    .map(|member| format!("{:032x}", member.info.process.0))
                    .collect(),
            ),
            MemberEvent::BecameGrantor { .. } => Event::BecameGrantor,
            MemberEvent::Suspended | MemberEvent::Expelled | MemberEvent::Missed { .. } => {
                send_report(&BenchReport::Failed(format!("{event:?}")));
                continue;
            }
            _ => continue,
        };
        send_report(&BenchReport::Event { at, event });
    }
}

/// Serves the member's page for as long as the process lives, and loads it once.
async fn load_page(member: &Member) -> Outcome<()> {
    let (sender, addr) = oneshot::channel();
    let view = HttpView::new(member);
    tokio::spawn(view.serve((Ipv4Addr::LOCALHOST, 0).into(), |addr| {
        // The caller waits for the address.
        let _ = sender.send(addr);
    }));
    let mut stream = TcpStream::connect(addr.await?).await?;
    let request = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await?;
    let mut page = String::new();
    stream.read_to_string(&mut page).await?;
    match page.lines().next() {
        Some("HTTP/1.1 200 OK") => Ok(()),
        line => Err(format!("the page is answered with {line:?}").into()),
    }
}

impl BenchMember {
    async fn obey(&mut self, order: BenchOrder) -> Outcome<Option<BenchReport>> {
        Ok(Some(match order {
            BenchOrder::Hold { first, count } => {
                self.hold(first, count).await?;
                BenchReport::Holding(self.check()?)
            }
            BenchOrder::Pass { first, count } => {
                let from = clock::now();
                self.pass(first, count).await?;
                BenchReport::Did { from, to: clock::now() }
            }
            BenchOrder::Check => BenchReport::Holding(self.check()?),
            BenchOrder::HoldQueues(queues) => {
                for queue in 0..queues {
                    self.queues.push(self.service.lock(queue_name(queue)).wait(LIMIT).await?);
                }
                BenchReport::Done
            }
            BenchOrder::FreeQueues => {
                for guard in self.queues.drain(..) {
                    guard.release().await?;
                }
                BenchReport::Done
            }
            BenchOrder::Wait(waiters) => {
                let service = self.service.clone();
                tokio::spawn(async move {
                    match wait(service, waiters).await {
                        Ok(served) => send_report(&BenchReport::Served(served)),
                        Err(error) => {
                            send_report(&BenchReport::Failed(format!("a wait failed: {error}")))
                        }
                    }
                });
                return Ok(None);
            }
            BenchOrder::Look(queues) => self.look(queues).await?,
            BenchOrder::Probe => {
                let stop = Arc::new(AtomicBool::new(false));
                self.probing =
                    Some((stop.clone(), tokio::spawn(probe(self.service.clone(), stop))));
                BenchReport::Done
            }
            BenchOrder::Rest => {
                let (stop, probes) = self.probing.take().ok_or("there is no probe")?;
                stop.store(true, Ordering::Relaxed);
                BenchReport::Probed(
                    probes.await?.map_err(|error| format!("a probe failed: {error}"))?,
                )
            }
            BenchOrder::Spread(names) => {
                let service = self.service.clone();
                tokio::spawn(async move {
                    send_report(&match spread(service, names).await {
                        Ok(probes) => BenchReport::Probed(probes),
                        Err(error) => BenchReport::Failed(format!("a lock failed: {error}")),
                    });
                });
                return Ok(None);
            }
            BenchOrder::Become => {
                let from = clock::now();
                self.service.become_grantor().wait(LIMIT).await?;
                let to = clock::now();
                if !self.service.is_grantor() {
                    return Err("said to be the grantor, and is not".into());
                }
                BenchReport::Did { from, to }
            }
            BenchOrder::Keep(keep) => {
                self.service.keep_locks(keep);
                BenchReport::Done
            }
            BenchOrder::ServeHttp => {
                load_page(&self.member).await?;
                BenchReport::Done
            }
            BenchOrder::Run { load, window } => BenchReport::Ran(self.run(load, window).await?),
            BenchOrder::Echo(together) => BenchReport::Listens(echo(together).await?),
            BenchOrder::Hub(spokes) => BenchReport::Listens(hub(spokes).await?),
            BenchOrder::Count(on) => {
                count::set(on);
                BenchReport::Done
            }
            BenchOrder::Take { times, shared } => self.take(times, shared).await?,
            BenchOrder::Queue(waiters) => queue(self.service.clone(), waiters).await?,
            BenchOrder::Usage => BenchReport::Using(self.usage()?),
            BenchOrder::Leave => {
                let from = clock::now();
                self.member.leave().await?;
                BenchReport::Did { from, to: clock::now() }
            }
        }))
    }

    async fn run(&mut self, load: Load, window: Window) -> Outcome<LoadResult> {
        match load {
            Load::Locks { tasks, names, timed } => {
                run(vec![self.service.clone(); tasks as usize], names, window, timed).await
            }
            Load::Table { tasks, names } => {
                let held = if let Names::Scattered { held } = names { held } else { 0 };
                if self.table.as_ref().is_none_or(|(holding, _)| *holding != held) {
                    self.table = Some((held, LocalTable::holding(held)));
                }
                let table = self.table.as_ref().map(|(_, table)| table.clone()).unwrap_or_default();
                run(vec![table; tasks as usize], names, window, false).await
            }
            Load::Threads { threads, names, round, takes } => {
                let (count, names) = (threads as usize, (names, round));
                match takes {
                    Taken::Floor => {
                        on_threads(vec![LocalTable::default(); count], names, window).await
                    }
                    Taken::Lock => {
                        on_threads(vec![self.service.clone(); count], names, window).await
                    }
                    Taken::Share => {
                        on_threads(vec![Reader(self.service.clone()); count], names, window).await
                    }
                }
            }
            Load::Recalls(affinity) => recalls(self.service.clone(), affinity, window).await,
            Load::PingPong { at, in_flight, together } => {
                ping_pong(at, in_flight, together, window).await
            }
            Load::PacedPing { at, keeper } => paced_ping(at, keeper, window).await,
            Load::Spoke { at, brings } => spoke(at, brings, window).await,
        }
    }

    /// The lock is taken once before the count, so that memory that the first lock allocates and
    /// keeps does not count.
    async fn take(&mut self, times: u64, shared: bool) -> Outcome<BenchReport> {
        let take = |times| {
            let service = self.service.clone();
            async move {
                for _ in 0..times {
                    let lock = if shared { service.share(PROBE) } else { service.lock(PROBE) };
                    lock.await?.release().await?;
                }
                Outcome::Ok(())
            }
        };
        take(WARM_UP).await?;
        count::set(true);
        let (allocations, frames) = (count::counted().1, self.member.counters().frames_out);
        take(times).await?;
        count::set(false);
        Ok(BenchReport::Took {
            allocations: count::counted().1 - allocations,
            frames: self.member.counters().frames_out - frames,
        })
    }

    fn usage(&self) -> Outcome<Usage> {
        let busy = clock_gettime(ClockId::ProcessCPUTime);
        let pages = std::fs::read_to_string("/proc/self/statm")?;
        let pages: u64 =
            pages.split_whitespace().nth(1).ok_or("/proc/self/statm has another form")?.parse()?;
        let counters = self.member.counters();
        Ok(Usage {
            at: clock::now(),
            busy: busy.tv_sec.cast_unsigned() * 1_000_000_000 + busy.tv_nsec.cast_unsigned(),
            resident: pages * rustix::param::page_size() as u64,
            allocated: count::counted().0 - (self.guards.capacity() * size_of::<Guard>()) as i64,
            frames_out: counters.frames_out,
            frames_in: counters.frames_in,
            traffic: counters.bytes_in
                + counters.bytes_out
                + DATAGRAM * (counters.datagrams_in + counters.datagrams_out),
        })
    }

    async fn hold(&mut self, first: u32, count: u32) -> Outcome<()> {
        let mut takers = JoinSet::new();
        for taker in 0..AT_ONCE {
            let service = self.service.clone();
            takers.spawn(async move {
                let mut guards = Vec::new();
                for number in (first..first + count).skip(taker as usize).step_by(AT_ONCE as usize)
                {
                    guards.push(service.lock(held_name(number)).wait(LIMIT).await?);
                }
                Outcome::Ok(guards)
            });
        }
        while let Some(guards) = takers.join_next().await {
            self.guards.extend(guards??);
        }
        Ok(())
    }

    async fn pass(&self, first: u32, count: u32) -> Outcome<()> {
        let mut tasks = JoinSet::new();
        for task in 0..AT_ONCE {
            let service = self.service.clone();
            tasks.spawn(async move {
                for (place, number) in
                    (first..first + count).skip(task as usize).step_by(AT_ONCE as usize).enumerate()
                {
                    service.lock(passing_name(number)).await?.release().await?;
                    // A lock that never waits would keep all other tasks off the thread.
                    if place.is_multiple_of(STRETCH as usize) {
                        tokio::task::yield_now().await;
                    }
                }
                Outcome::Ok(())
            });
        }
        while let Some(passed) = tasks.join_next().await {
            passed??;
        }
        Ok(())
    }

    /// The sum of all holds. An error if one of them is lost.
    fn check(&self) -> Outcome<Holdings> {
        let mut holdings = Holdings::default();
        for guard in &self.guards {
            holdings
                .add(guard.fence().map_err(|lost| format!("a hold was lost: {lost}"))?.as_i64());
        }
        Ok(holdings)
    }

    async fn look(&self, queues: u32) -> Outcome<BenchReport> {
        let mut holdings = Holdings::default();
        let mut held = self.service.held();
        while let Some(holder) = held.next().await? {
            if holder.name.is_some_and(|name| name.as_bytes().starts_with(HELD.as_bytes())) {
                holdings.add(holder.token.as_i64());
            }
        }
        let mut waiting = Vec::new();
        for queue in 0..queues {
            let seen = self.service.inspect(queue_name(queue)).await?;
            let number = |metadata: &[u8]| Some(u32::from_le_bytes(metadata.try_into().ok()?));
            waiting.push(
                seen.waiters
                    .iter()
                    .filter_map(|waiter| number(waiter.metadata.as_bytes()))
                    .collect(),
            );
        }
        Ok(BenchReport::Seen { holdings, queues: waiting })
    }
}

/// Waits as all these waiters at the same time.
async fn wait(service: LockService, waiters: Vec<QueuedWaiter>) -> Outcome<Vec<Served>> {
    let mut waits = JoinSet::new();
    for waiter in waiters {
        let service = service.clone();
        waits.spawn(async move {
            let name = queue_name(waiter.queue);
            let guard =
                service.lock(name).metadata(waiter.waiter.to_le_bytes()).wait(LIMIT).await?;
            let at = clock::now();
            let token = guard.fence()?.as_i64();
            guard.release().await?;
            Outcome::Ok(Served { waiter, token, at })
        });
    }
    let mut served = Vec::new();
    while let Some(one) = waits.join_next().await {
        served.push(one??);
    }
    Ok(served)
}

/// Takes and releases locks that no other task wants.
async fn probe(service: LockService, stop: Arc<AtomicBool>) -> Outcome<Vec<(u64, u64)>> {
    let mut probes = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        let name = format!("probe-{}", probes.len());
        let from = clock::now();
        let guard = service.lock(name).wait(LIMIT).await?;
        let to = clock::now();
        guard.release().await?;
        probes.push((from, to));
        tokio::time::sleep(BETWEEN_PROBES).await;
    }
    Ok(probes)
}

/// Takes free locks at the same time.
async fn spread(service: LockService, names: u32) -> Outcome<Vec<(u64, u64)>> {
    let mut takers = JoinSet::new();
    for name in 0..names {
        let service = service.clone();
        takers.spawn(async move {
            let from = clock::now();
            let guard = service.lock(format!("spread-{name}")).wait(LIMIT).await?;
            let to = clock::now();
            guard.release().await?;
            Outcome::Ok((from, to))
        });
    }
    let mut probes = Vec::new();
    while let Some(probe) = takers.join_next().await {
        probes.push(probe??);
    }
    Ok(probes)
}

/// Lets this number of requests wait for one lock. Some give up, from the middle, and the others
/// are granted one after the other. Repeats that until there is enough to measure.
async fn queue(service: LockService, waiters: u32) -> Outcome<BenchReport> {
    let (mut join, mut cancel, mut grant, mut times) = (0, 0, 0, 0);
    while times * waiters < ENOUGH {
        times += 1;
        let mut held = service.lock(PROBE).await?;
        let from = clock::now();
        let mut line: Vec<_> = (0..waiters).map(|_| Some(service.lock(PROBE).start())).collect();
        join += clock::now() - from;

        let give_up = waiters / 4..waiters / 4 * 3;
        let from = clock::now();
        for number in give_up.clone() {
            line[number as usize] = None;
        }
        cancel += clock::now() - from;

        let from = clock::now();
        for waiting in line.into_iter().flatten() {
            held.release().await?;
            held = waiting.await?;
        }
        grant += clock::now() - from;
        held.release().await?;
        tokio::task::yield_now().await;
    }
    let each = |nanos: u64, part: u32| nanos / u64::from(times * part).max(1);
    let gone = waiters / 4 * 3 - waiters / 4;
    Ok(BenchReport::Queued {
        join: each(join, waiters),
        cancel: each(cancel, gone),
        grant: each(grant, waiters - gone),
    })
}

fn queue_name(number: u32) -> String {
    format!("queue-{number}")
}
