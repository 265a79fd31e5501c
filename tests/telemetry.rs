//! The metrics and logs of members. Each member runs in a thread of its own, with a recorder and a
//! subscriber of its own, and sockets on the loopback interface.

// Requests are started in one task and awaited in another.
#![allow(clippy::async_yields_async)]

#[cfg(feature = "secure")]
#[path = "telemetry/keyed.rs"]
mod keyed;
#[path = "support/leases.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod leases;
#[path = "telemetry/log.rs"]
mod log;
#[cfg(feature = "metrics")]
#[path = "telemetry/measured.rs"]
mod measured;
#[path = "support/ports.rs"]
mod ports;

use elderlock::wire::{Frame, OrderRequest, VERSIONS, encode};
use elderlock::{
    Guard, JoinError, LockError, LockName, LockService, Member, Order, ServiceName, SessionRequest,
    SessionStop, Timing, Token, TryLockError, View, hold_through,
};
use leases::Leases;
use log::{Log, LogLine};
use std::collections::BTreeSet;
use std::future::Future;
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing_subscriber::layer::SubscriberExt as _;

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);
const MS: Duration = Duration::from_millis(1);

/// A thread with a runtime, a recorder and a subscriber of its own: as similar to a process as a
/// thread can be.
struct MeteredProcess {
    handle: Handle,
    log: Log,
    #[cfg(feature = "metrics")]
    book: measured::Book,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl MeteredProcess {
    fn start() -> MeteredProcess {
        let (stop, stopped) = oneshot::channel::<()>();
        let log = Log::default();
        let (ready, started) = mpsc::channel();
        #[cfg(feature = "metrics")]
        let (book, recorder) = measured::Book::new();
        let subscriber = tracing_subscriber::registry().with(log.clone());
        let thread = std::thread::spawn(move || {
            let _log = tracing::subscriber::set_default(subscriber);
            let live = || {
                let runtime =
                    Builder::new_current_thread().enable_all().build().expect("a runtime");
                ready.send(runtime.handle().clone()).expect("the test waits for it");
                let _ = runtime.block_on(stopped);
                // All tasks end with the runtime at once: no member says goodbye.
            };
            #[cfg(feature = "metrics")]
            metrics::with_local_recorder(&recorder, live);
            #[cfg(not(feature = "metrics"))]
            live();
        });
        let handle = started.recv().expect("the thread starts");
        MeteredProcess {
            handle,
            log,
            #[cfg(feature = "metrics")]
            book,
            stop: Some(stop),
            thread: Some(thread),
        }
    }

    /// Runs a task in the thread of this process.
    async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        soon(self.handle.spawn(task)).await.expect("no panic")
    }

    /// Stops the thread at its present point, until the returned sender is dropped.
    async fn freeze(&self) -> mpsc::Sender<()> {
        let (hold, held) = mpsc::channel();
        let (stops, stopped) = oneshot::channel();
        self.handle.spawn(async move {
            let _ = stops.send(());
            let _ = held.recv();
        });
        soon(stopped).await.expect("it runs");
        hold
    }

    /// Ends the process as a crash does.
    fn crash(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            thread.join().expect("no panic");
        }
    }
}

impl Drop for MeteredProcess {
    fn drop(&mut self) {
        drop(self.stop.take());
    }
}

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(HANG, what).await.expect("it never came")
}

/// Waits for a condition. `seen` gives the text of the failure if the condition never holds.
async fn until(what: &str, mut so: impl FnMut() -> bool, seen: impl Fn() -> String) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed() < HANG, "waited for: {what}; seen: {}", seen());
        tokio::time::sleep(2 * MS).await;
    }
}

/// Starts to join a member to the cluster.
fn join(
    process: &MeteredProcess,
    addr: &str,
    seeds: &[String],
    leases: Leases,
) -> tokio::task::JoinHandle<Result<Member, JoinError>> {
    let builder = Member::builder("telemetry").bind(addr).seeds(seeds);
    process.handle.spawn(builder.timing(leases.timing()).join_limit(HANG).join())
}

/// `count` members in one view, the elder first.
async fn cluster(count: usize, leases: Leases) -> Vec<(MeteredProcess, Member)> {
    let addrs: Vec<String> = ports::free(count).iter().map(ToString::to_string).collect();
    let processes: Vec<MeteredProcess> = addrs.iter().map(|_| MeteredProcess::start()).collect();
    let mut joins = Vec::new();
    for (process, addr) in processes.iter().zip(&addrs) {
        joins.push(join(process, addr, &addrs, leases));
    }
    let mut members = Vec::new();
    for (process, join) in processes.into_iter().zip(joins) {
        members.push((process, soon(join).await.expect("no panic").expect("it joins")));
    }
    let sees_all = |(_, member): &(MeteredProcess, Member)| {
        let status = member.status();
        let is_whole = |view: &View| view.members.len() == count && view.has_promoted_all();
        status.leased && status.view.is_some_and(|view| is_whole(&view))
    };
    until("one view", || members.iter().all(sees_all), || format!("{:?}", members[0].1.status()))
        .await;
    members.sort_by_key(|(_, member)| !member.is_elder());
    members
}

/// Returns the index of the member that grants the service.
async fn grantor_is(members: &[(MeteredProcess, Member)], service: &str) -> usize {
    for (index, (_, member)) in members.iter().enumerate() {
        if member.lock_service(service).await.expect("a good name").is_grantor() {
            return index;
        }
    }
    panic!("no member grants {service}");
}

async fn one(service: &LockService, name: &str) -> Guard {
    soon(service.lock(name).into_future()).await.expect("it is free")
}

/// The log lines that begin with this text, as an operator reads them.
fn begin_with(log: &Log, text: &str) -> Vec<LogLine> {
    let lines = log.lines.lock().expect("no panic");
    lines.iter().filter(|line| line.name.starts_with(text)).cloned().collect()
}

async fn says(log: &Log, level: &str, text: &str) -> LogLine {
    let seen = || format!("{:?}", log.lines.lock().expect("no panic"));
    until(text, || !begin_with(log, text).is_empty(), seen).await;
    let line = begin_with(log, text).remove(0);
    assert_eq!(line.level, level, "{line:?}");
    line
}

#[tokio::test]
async fn members_that_join_leave_and_die_are_logged_with_the_elder() {
    let mut members = cluster(3, Leases::Short).await;
    let addrs: Vec<String> = members.iter().map(|(_, member)| member.addr().to_string()).collect();
    let log = members[0].0.log.clone();
    let elder = says(&log, "INFO", "elder").await;
    assert!(elder.fields.contains_key("process") && elder.get("is_me").parse::<bool>().is_ok());
    says(&log, "INFO", "member joined").await;

    let last = members.pop().expect("there are three");
    let own = last.0.log.clone();
    last.0.run(async move { last.1.leave().await }).await.expect("it is heard");
    assert_eq!(says(&log, "INFO", "member left").await.get("addr"), addrs[2]);
    assert_eq!(says(&own, "INFO", "member left").await.get("addr"), addrs[2]);
    // The third member is neither the elder nor the one that leaves.
    let third = &members[1].0.log;
    assert_eq!(says(third, "INFO", "member left").await.get("addr"), addrs[2]);
    for log in [&own, third] {
        assert!(log.named("member is gone").is_empty(), "it knows the reason");
    }
    // The member's thread ends without a goodbye. No process died, so no host can report a death.
    members[1].0.crash();
    assert_eq!(says(&log, "INFO", "member died").await.get("addr"), addrs[1]);
    assert_eq!(log.named("member died")[0].get("cause"), "lease over");
}

#[tokio::test]
async fn an_elder_that_leaves_is_logged_as_left_at_each_member() {
    let mut members = cluster(3, Leases::Long).await;
    let (process, elder) = members.remove(0);
    let addr = elder.addr().to_string();
    process.run(async move { elder.leave().await }).await.expect("it is heard");
    for (process, _) in &members {
        assert_eq!(says(&process.log, "INFO", "member left").await.get("addr"), addr);
        assert!(process.log.named("member is gone").is_empty(), "it knows the reason");
    }
}

#[tokio::test]
async fn each_founder_logs_all_founders() {
    let addrs: Vec<String> = ports::free(3).iter().map(ToString::to_string).collect();
    let joins = [0, 1, 2].map(|index| {
        let process = MeteredProcess::start();
        let builder = Member::builder("telemetry").bind(&addrs[index]).seeds(&addrs).expect(3);
        let join = builder.timing(Leases::Short.timing()).join_limit(HANG).join();
        let join = process.handle.spawn(join);
        (process, join)
    });
    let mut founders = Vec::new();
    for (process, join) in joins {
        founders.push((process, soon(join).await.expect("no panic").expect("it founds")));
    }
    for (process, _) in &founders {
        let named = || {
            let lines = begin_with(&process.log, "member joined");
            lines.iter().map(|line| line.get("addr").to_owned()).collect::<BTreeSet<_>>()
        };
        let all: BTreeSet<String> = addrs.iter().cloned().collect();
        until("a line for each", || named() == all, || format!("{:?}", named())).await;
    }
}

#[tokio::test]
async fn a_member_without_a_quorum_logs_its_suspension_and_some_of_its_lost_locks() {
    let mut members = cluster(2, Leases::Short).await;
    let last = members.pop().expect("there are two");
    let (member, log) = (last.1.clone(), last.0.log.clone());
    let guards = last
        .0
        .run(async move {
            let service = member.lock_service("sto\u{1b}ck\u{202e}").await.expect("a good name");
            let mut guards = vec![one(&service, "a\n").await];
            for number in 0..100 {
                guards.push(one(&service, &number.to_string()).await);
            }
            guards
        })
        .await;
    members[0].0.crash();
    says(&log, "WARN", "suspended: no elder").await;
    let line = says(&log, "WARN", "lock lost").await;
    assert_eq!(line.get("service"), r"sto\u{1b}ck\u{202e}");
    assert_eq!(line.get("reason"), "suspended");
    let named = guards.iter().find(|guard| guard.token().to_string() == line.get("token"));
    let name = named.expect("it was one of these").name().escape_ascii().to_string();
    assert_eq!(line.get("lock.name"), name);
    says(&log, "WARN", "orphaned: no quorum").await;
    let lines = log.named("lock lost").len();
    assert!((1..=20).contains(&lines), "{lines} lines about 101 locks");
    let member = last.1.clone();
    last.0.run(async move { member.force() }).await.expect("it has no quorum");
    let line = says(&log, "WARN", "joined another lineage: all that was held").await;
    assert_eq!(line.get("lost"), "101");
    assert_ne!(line.get("before"), line.get("lineage"));
}

/// The program asks for the lock, reads the grant, and then sends nothing more.
#[tokio::test]
async fn a_lock_whose_program_does_not_keep_its_session_is_logged_as_lost() {
    let process = MeteredProcess::start();
    let builder = Member::builder("telemetry").bind("127.0.0.1:0").found().serve_sessions(true);
    let joined = process.run(builder.timing(Leases::Short.timing()).join()).await;
    let member = joined.expect("it founds");
    let service = ServiceName::new("stock").expect("a good name");
    let lock = SessionRequest::new(service, LockName::new(b"a").expect("a good name"));
    let order = Order::Lock(lock.wait(HANG));
    let order = OrderRequest { cluster: "telemetry".into(), versions: VERSIONS, order };
    let mut bytes = Vec::new();
    encode(&Frame::Order(Box::new(order)), 0, &mut bytes).expect("it fits");
    let mut program = tokio::net::TcpStream::connect(member.addr()).await.expect("it listens");
    program.write_all(&bytes).await.expect("it reads");
    let line = says(&process.log, "WARN", "lock lost").await;
    assert_eq!((line.get("lock.name"), line.get("reason")), ("a", "session_ended"));
    let lock = async move {
        let service = member.lock_service("stock").await.expect("a good name");
        service.lock("a").wait(HANG).await.expect("it is free").token()
    };
    let next = process.run(lock).await;
    let lost: Token = line.get("token").parse().expect("a token");
    assert!(next > lost, "{next} {line:?}");
    #[cfg(feature = "metrics")]
    process.book.counts_one_loss("session_ended").await;
}

/// The program stops in time, so the member still holds the lock when it is told.
#[tokio::test]
async fn a_lock_whose_program_stops_before_the_loss_is_logged_as_lost_with_the_cause() {
    for (cause, reason) in [
        (SessionStop::LeaseEnds, "lease_ended"),
        (SessionStop::Unconfirmed, "session_ended"),
        (SessionStop::MemberLeaves, "left"),
    ] {
        let process = MeteredProcess::start();
        let builder = Member::builder("telemetry").bind("127.0.0.1:0").found().serve_sessions(true);
        let joined = process.run(builder.timing(Leases::Long.timing()).join()).await;
        let member = joined.expect("it founds");
        let service = ServiceName::new("stock").expect("a good name");
        let lock = SessionRequest::new(service, LockName::new(b"a").expect("a good name"));
        let addr = member.addr().to_string();
        let guard = hold_through(&addr, "telemetry", lock.wait(HANG)).await.expect("it is free");
        let token = guard.token();
        soon(guard.stop(cause)).await;
        // The member has answered, so the lock is free.
        let service = member.lock_service("stock").await;
        let next = service.expect("a good name").try_lock("a").await.expect("it is free");
        assert!(next.token() > token);
        // A program that is stopped by its leaving member loses nothing by surprise.
        if cause != SessionStop::MemberLeaves {
            let line = says(&process.log, "WARN", "lock lost").await;
            let told = (line.get("lock.name"), line.get("reason"), line.get("token"));
            assert_eq!(told, ("a", reason, &*token.to_string()));
        }
        #[cfg(feature = "metrics")]
        process.book.counts_one_loss(reason).await;
    }
}

/// The others continue without waiting for the elder's lease, and keep its locks until that lease
/// is over.
#[tokio::test]
async fn an_elder_that_stands_still_is_logged_as_unreachable_and_logs_that_it_is_expelled() {
    let members = cluster(3, Leases::Short).await;
    let addr = members[0].1.addr().to_string();
    let stands = members[0].0.freeze().await;
    for (other, _) in &members[1..] {
        let line = says(&other.log, "INFO", "member is unreachable: it keeps its locks").await;
        assert_eq!(line.get("addr"), addr);
        let line = says(&other.log, "INFO", "member died").await;
        assert_eq!((line.get("addr"), line.get("cause")), (&*addr, "lease over"));
    }
    drop(stands);
    says(&members[0].0.log, "WARN", "expelled: the cluster went on").await;
}

#[tokio::test]
async fn a_member_that_has_its_quorum_again_logs_that_it_resumes() {
    let members = cluster(2, Leases::Short).await;
    let stands = members[0].0.freeze().await;
    let log = &members[1].0.log;
    says(log, "WARN", "suspended: no elder").await;
    assert!(begin_with(log, "resumed").is_empty());
    drop(stands);
    says(log, "INFO", "resumed: the member lease runs again").await;
}

#[tokio::test]
async fn a_process_that_joins_logs_the_seeds_that_it_waits_for() {
    let process = MeteredProcess::start();
    let addrs: Vec<String> = ports::free(3).iter().map(ToString::to_string).collect();
    let joins = join(&process, &addrs[0], &addrs, Leases::Short);
    let line = says(&process.log, "INFO", "joining: waiting for 2 of 3 seeds: ").await;
    assert!(line.name.contains(&addrs[1]) && line.name.contains(&addrs[2]), "{line:?}");
    assert!(!line.name.contains(&addrs[0]), "{line:?}");
    joins.abort();
}

#[tokio::test]
async fn a_process_that_joins_logs_the_members_that_it_expects() {
    let process = MeteredProcess::start();
    let addrs: Vec<String> = ports::free(4).iter().map(ToString::to_string).collect();
    let join = |seeds: &[String], expect| {
        let builder = Member::builder("telemetry").bind(&addrs[0]).timing(Timing::fast());
        process.handle.spawn(builder.seeds(seeds).expect(expect).join())
    };
    let alone = join(&addrs[..1], 3);
    says(&process.log, "INFO", "joining: waiting for 2 of 3 members: no more seeds").await;
    alone.abort();
}

#[tokio::test]
async fn a_join_that_expects_at_most_half_of_its_seeds_says_so_once() {
    let addrs: Vec<String> = ports::free(4).iter().map(ToString::to_string).collect();
    let joins = [1, 2, 3].map(|expect| {
        let process = MeteredProcess::start();
        let builder = Member::builder("telemetry").bind("127.0.0.1:0").timing(Timing::fast());
        let join = process.handle.spawn(builder.seeds(&addrs).expect(expect).join());
        (process, join, expect)
    });
    for (process, join, expect) in joins {
        // The process has asked its seeds a second time by then.
        says(&process.log, "INFO", "joining: waiting for ").await;
        let warnings = begin_with(&process.log, "expects at most half of its seeds");
        join.abort();
        if expect > 2 {
            assert!(warnings.is_empty(), "{warnings:?}");
            continue;
        }
        let [warning] = &warnings[..] else { panic!("it is told once: {warnings:?}") };
        let counts = (warning.get("expect"), warning.get("seeds"));
        assert_eq!((warning.level.as_str(), counts), ("WARN", (&*expect.to_string(), "4")));
    }
}

#[tokio::test]
async fn a_member_that_joins_with_other_times_logs_those_that_it_keeps() {
    let members = cluster(1, Leases::Short).await;
    let seeds = vec![members[0].1.addr().to_string()];
    let process = MeteredProcess::start();
    let builder = Member::builder("telemetry").bind("127.0.0.1:0").timing(Timing::lan());
    let joined = process.handle.spawn(builder.seeds(seeds).join()).await.expect("no panic");
    let line = says(&process.log, "WARN", "the cluster was founded with other times").await;
    let short = Leases::Short.timing().member_lease.as_secs_f64();
    assert!(line.get("cluster").starts_with(&format!("leases of {short} s and ")), "{line:?}");
    assert!(line.get("own").starts_with("leases of 5 s and 2 s"), "{line:?}");
    assert!(begin_with(&members[0].0.log, "the cluster was founded").is_empty());
    drop(joined.expect("it joins"));
}

#[tokio::test]
async fn a_member_that_founds_alone_from_a_host_name_says_so() {
    let port = ports::free(1)[0].port();
    for (seed, is_named) in
        [(format!("localhost:{port}"), true), (format!("127.0.0.1:{port}"), false)]
    {
        let process = MeteredProcess::start();
        let builder = Member::builder("telemetry").bind(format!("127.0.0.1:{port}"));
        let builder = builder.timing(Timing::fast()).seeds([seed.clone()]);
        let member =
            process.handle.spawn(builder.join()).await.expect("no panic").expect("it founds");
        if is_named {
            let line = says(&process.log, "WARN", "founded alone").await;
            assert_eq!(line.get("seeds"), seed);
            assert!(line.name.contains("give expect() or --expect the number"), "{line:?}");
        } else {
            says(&process.log, "INFO", "member joined").await;
            assert!(begin_with(&process.log, "founded alone").is_empty());
        }
        process.run(async move { member.leave().await }).await.expect("no other member is there");
    }
}

/// Each of two processes founds alone. The first one does not know the second, which greets it.
#[tokio::test]
async fn two_clusters_of_one_name_that_hear_each_other_both_say_so() {
    let addrs: Vec<String> = ports::free(2).iter().map(ToString::to_string).collect();
    let found = |at: usize, seeds: &[String]| {
        let builder = Member::builder("telemetry").bind(&addrs[at]).seeds(seeds).found();
        let builder = builder.name(format!("pod-{at}")).timing(Timing::fast());
        let process = MeteredProcess::start();
        let join = process.handle.spawn(builder.join());
        async move { (process, soon(join).await.expect("no panic").expect("it founds")) }
    };
    let first = found(0, &addrs[..1]).await;
    let second = found(1, &addrs).await;
    for ((process, member), (_, other), at) in [(&first, &second, 1), (&second, &first, 0)] {
        let text = format!("another lineage of this cluster runs at {}: ", addrs[at]);
        let line = says(&process.log, "WARN", &text).await;
        let lineage = |member: &Member| member.status().view.expect("a view").lineage.to_string();
        assert_eq!(line.get("lineage"), lineage(other));
        assert_eq!(line.get("own"), lineage(member));
        assert_eq!(line.get("elder"), other.process().to_string());
        assert_eq!((line.get("elder_name"), line.get("left_out")), (&*format!("pod-{at}"), "0"));
        assert!(member.counters().other_lineage > 0, "{:?}", member.counters());
        assert_eq!(begin_with(&process.log, "joined another lineage").len(), 0);
    }
}

/// The first process founds, and ends without a goodbye. The start of the next one is forced.
#[tokio::test]
async fn a_forced_start_logs_what_it_gives_up() {
    let directory = std::env::temp_dir().join(format!("elderlock-forced-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&directory);
    let addr = ports::free(1)[0].to_string();
    let start = |is_forced: bool| {
        let builder = Member::builder("telemetry").bind(&addr).seeds([&addr]).data_dir(&directory);
        let builder = builder.timing(Timing::fast());
        let process = MeteredProcess::start();
        let builder = if is_forced { builder.force() } else { builder };
        let join = process.handle.spawn(builder.join());
        async move { (process, soon(join).await.expect("no panic").expect("it founds")) }
    };
    let (mut first, member) = start(false).await;
    let before = member.status().view.expect("a view");
    assert!(begin_with(&first.log, "forced").is_empty());
    first.crash();
    let (last, member) = start(true).await;
    let line = says(&last.log, "WARN", "forced: founded a new lineage without a quorum").await;
    let view = member.status().view.expect("a view");
    assert_ne!(view.lineage, before.lineage);
    assert_eq!(line.get("lineage"), view.lineage.to_string());
    assert_eq!(line.get("before"), before.lineage.to_string());
    assert_eq!(line.get("view"), before.number.0.to_string());
    last.run(async move { member.leave().await }).await.expect("it is alone");
    let _ = std::fs::remove_dir_all(&directory);
}

#[cfg(feature = "secure")]
#[tokio::test]
async fn refused_input_is_logged_with_its_reason_and_a_connection_with_its_key() {
    use elderlock::{ClusterKey, Keyring};
    let processes: Vec<MeteredProcess> = (0..3).map(|_| MeteredProcess::start()).collect();
    let addrs: Vec<String> = ports::free(3).iter().map(ToString::to_string).collect();
    let [ours, other] = [(); 2].map(|()| ClusterKey::generate().expect("there is randomness"));
    let name = ours.name().to_string();
    let builder = |at: usize, key: &ClusterKey| {
        let builder = Member::builder("telemetry").bind(&addrs[at]).timing(Timing::fast());
        builder.seeds([&addrs[0]]).keyring(Keyring::new(key.clone()))
    };
    let mut joins = Vec::new();
    for (at, key) in [(0, &ours), (1, &other), (2, &ours)] {
        joins.push(processes[at].handle.spawn(builder(at, key).join()));
    }
    let log = &processes[0].log;
    let refused = says(log, "WARN", "refused").await;
    let reasons =
        ["a handshake under a key that this member does not have", "a datagram that no key"];
    assert!(reasons.iter().any(|reason| refused.get("reason").starts_with(reason)), "{refused:?}");
    assert!(refused.get("addr").starts_with("127.0.0.1:"), "{refused:?}");
    let connected = says(log, "DEBUG", "connected").await;
    assert_eq!(
        (connected.get("key"), connected.get("dialled").len()),
        (&*name, 5),
        "{connected:?}"
    );
    joins.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn to_acquire_is_a_span_of_the_caller_with_any_outcome() {
    let process = MeteredProcess::start();
    let (log, seen_inside) = (process.log.clone(), process.log.clone());
    let tokens = process
        .run(async move {
            use tracing::Instrument as _;
            let member = Member::local().await.expect("it joins");
            let stock = member.lock_service("stock").await.expect("a good name");
            let caller = tracing::info_span!("order");
            let guard = stock.lock("a").into_future().instrument(caller).await.expect("it is free");
            let waited = stock.lock("a").wait(20 * MS).await;
            assert_eq!(waited.unwrap_err(), LockError::TimedOut);
            assert!(matches!(stock.try_lock("a").await, Err(TryLockError::Held(_))));
            drop(stock.lock("a").start());
            drop(stock.lock("never asked").into_future());
            let batch = stock.lock_all(["c", "b"]).await.expect("both are free");
            let tokens = [guard.token(), batch.tokens().next().expect("it has two").1]
                .map(|token| token.to_string());
            guard.release().await.expect("it was held");
            batch.release().await.expect("they were held");
            let suspended = stock.suspend().await.expect("no lock is held");
            let mut kept = Box::pin(stock.lock("d").into_future());
            kept.as_mut()
                .await
                .expect("the suspender passes")
                .release()
                .await
                .expect("it was held");
            let last = seen_inside.named("acquire").pop().expect("there are some");
            assert_eq!(
                last.get("lock.name"),
                "d",
                "its span has ended, although the future is kept"
            );
            drop(kept);
            suspended.resume().await.expect("it was suspended");
            member.leave().await.expect("it can leave");
            tokens
        })
        .await;

    let spans = log.named("acquire");
    let seen: Vec<(&str, Option<&str>)> = spans
        .iter()
        .map(|span| (span.get("lock.outcome"), span.fields.get("lock.name").map(String::as_str)))
        .collect();
    assert_eq!(
        seen,
        [
            ("granted", Some("a")),
            ("timed_out", Some("a")),
            ("held", Some("a")),
            ("cancelled", Some("a")),
            ("granted", Some("b, c")),
            ("granted", None),
            ("granted", Some("d")),
        ]
    );
    assert_eq!(spans[0].parent.as_deref(), Some("order"));
    // The step of a call made this member grantor. The event stands outside of that call's span.
    let grantors = log.named("grantor");
    assert_eq!(grantors.iter().map(|event| event.parent.clone()).collect::<Vec<_>>(), [None]);
    for span in &spans {
        assert_eq!((span.level.as_str(), span.get("service")), ("DEBUG", "stock"));
        assert_eq!(
            span.get("lock.outcome") == "granted",
            span.fields.contains_key("lock.token"),
            "{span:?}"
        );
        assert!(span.number("lock.wait_ms") >= 0.0);
    }
    assert_eq!([spans[0].get("lock.token"), spans[4].get("lock.token")], [&tokens[0], &tokens[1]]);
    assert!(spans[1].number("lock.wait_ms") >= 20.0, "{:?}", spans[1]);
}

#[tokio::test]
async fn view_changes_transfers_and_recoveries_are_spans_of_the_members_concerned() {
    let mut members = cluster(3, Leases::Short).await;
    // The events are logged after the views can be seen.
    for (process, member) in &members {
        let views = || process.log.named("view change");
        let is_told = || views().last().is_some_and(|view| view.get("members") == "3");
        until("the view", is_told, || format!("{:?}", views())).await;
        let (view, status) =
            (views().pop().expect("just seen"), member.status().view.expect("it is in one"));
        assert_eq!((view.level.as_str(), view.parent.clone()), ("INFO", None));
        assert_eq!(
            (view.get("view"), view.get("outcome")),
            (status.number.0.to_string().as_str(), "installed")
        );
        assert_eq!(view.get("elder"), status.elder().process.to_string());
        let event = process.log.named("view").pop().expect("it is told in the span");
        assert_eq!((event.level.as_str(), event.parent.as_deref()), ("INFO", Some("view change")));
        assert!(
            ["view", "members", "elder"]
                .into_iter()
                .all(|field| event.get(field) == view.get(field))
        );
        assert_eq!(event.get("elder_name"), status.elder().name.as_str());
    }

    // The youngest two members use the service, so that the elder's death does not affect it.
    let (first, second) = (members[1].1.clone(), members[2].1.clone());
    let (held, waits) = members[1]
        .0
        .run(async move {
            let stock = first.lock_service("stock").await.expect("a good name");
            (stock.lock("a").await.expect("it is free"), stock.lock("a").start())
        })
        .await;
    assert_eq!(grantor_is(&members, "stock").await, 1);
    let became = |log: &Log| log.named("grantor").pop().expect("it is one");
    let began = became(&members[1].0.log);
    assert_eq!(began.parent, None, "the first one has nothing to wait for");
    let is_named = |line: &LogLine, member: &Member| {
        let own = [member.name().to_string(), member.addr().to_string()];
        [line.get("name"), line.get("addr")] == own
            && line.get("process") == member.process().to_string()
    };
    assert!(is_named(&began, &members[1].1), "{began:?}");
    members[2]
        .0
        .run(async move {
            let stock = second.lock_service("stock").await.expect("a good name");
            stock.become_grantor().await
        })
        .await
        .expect("no other member wants to");
    let log = members[2].0.log.clone();
    let transfer = log.reaches("transfer", 1).await;
    assert_eq!((transfer.level.as_str(), transfer.parent.clone()), ("INFO", None));
    assert_eq!((transfer.get("service"), transfer.get("outcome")), ("stock", "acts"));
    assert_eq!((transfer.get("holds"), transfer.get("waits")), ("1", "1"));
    assert!(transfer.number("took_ms") > 0.0);
    assert_eq!(became(&log).parent.as_deref(), Some("transfer"));
    assert!(is_named(&became(&log), &members[2].1), "{:?}", became(&log));
    assert_eq!(became(&log).get("epoch"), transfer.get("epoch"));
    // A member that uses the service says so too. The elder knows the grantor, and does not use it.
    let found = members[1].0.log.reaches("found grantor", 1).await;
    assert_eq!((found.level.as_str(), found.get("service")), ("INFO", "stock"));
    assert_eq!(found.get("epoch"), transfer.get("epoch"));
    assert!(is_named(&found, &members[2].1), "{found:?}");
    assert!(members[0].0.log.named("found grantor").is_empty());
    let ended = members[1].0.log.reaches("grantor ended", 1).await;
    assert_eq!(ended.get("epoch"), began.get("epoch"));
    assert_ne!(began.get("epoch"), transfer.get("epoch"));

    // The grantor dies with its table, and the named member recovers the holders and waiters.
    members[2].0.crash();
    log.is_closed().await;
    let recoveries = || -> Vec<LogLine> {
        members[..2].iter().flat_map(|(process, _)| process.log.named("recovery")).collect()
    };
    until("the recovery", || recoveries().len() == 1, || format!("{:?}", recoveries())).await;
    let recovery = recoveries().pop().expect("just seen");
    assert_eq!((recovery.level.as_str(), recovery.parent.clone()), ("INFO", None));
    assert_eq!((recovery.get("service"), recovery.get("outcome")), ("stock", "acts"));
    assert_eq!((recovery.get("holds"), recovery.get("waits")), ("1", "1"));
    assert!(recovery.number("took_ms") > 0.0);
    assert!(log.named("transfer").len() == 1 && members[1].0.log.named("transfer").is_empty());
    let grantor =
        members[..2].iter().find(|(process, _)| !process.log.named("recovery").is_empty());
    let event = became(&grantor.expect("just seen").0.log);
    assert_eq!(
        (event.parent.as_deref(), event.get("epoch")),
        (Some("recovery"), recovery.get("epoch"))
    );
    members[1]
        .0
        .run(async move {
            held.release().await.expect("it survived");
            waits.await.expect("it is next").release().await.expect("it was held");
        })
        .await;
    members.truncate(2);
    for (process, member) in &members {
        let last = || process.log.named("view change").pop().expect("there are some");
        until("the view of two", || last().get("members") == "2", || format!("{:?}", last())).await;
        assert!(member.status().view.is_some_and(|view| view.members.len() == 2));
    }
    for (process, member) in members {
        process.run(async move { member.leave().await }).await.expect("it is heard");
        process.log.is_closed().await;
    }
}

/// Makes the member hold a lock. It becomes the first grantor of the service, or asks the grantor.
async fn hold(process: &MeteredProcess, member: &Member) -> Guard {
    let member = member.clone();
    let lock = async move {
        let stock = member.lock_service("stock").await.expect("a good name");
        stock.lock("a").await.expect("it is free")
    };
    process.run(lock).await
}

/// Starts a bid of this member, without waiting for its outcome.
async fn insist(process: &MeteredProcess, member: &Member) -> tokio::task::JoinHandle<bool> {
    let stock = member.lock_service("stock").await.expect("a good name");
    process.handle.spawn(async move { stock.become_grantor().await.is_ok() })
}

#[tokio::test]
async fn a_transfer_is_open_until_the_predecessor_is_lost_and_then_a_recovery_is() {
    let members = cluster(3, Leases::Short).await;
    let [(_, elder), (old, first), (young, second)] = &members[..] else {
        panic!("there are three")
    };
    let guard = hold(old, first).await;

    // The grantor with the table is silent. When the elder takes it to be lost, it names the next
    // grantor again, which then asks all members.
    let frozen = old.freeze().await;
    let won = insist(young, second).await;
    let begun = young.log.opens(&["transfer"]).await;
    assert_eq!(
        (begun.get("service"), begun.level.as_str(), begun.parent.clone()),
        ("stock", "INFO", None)
    );
    assert!(!begun.fields.contains_key("outcome"), "{begun:?}");
    assert!(young.log.named("recovery").is_empty());
    let recovery = young.log.reaches("recovery", 1).await;
    let transfer = young.log.reaches("transfer", 1).await;
    assert_eq!((transfer.get("outcome"), recovery.get("outcome")), ("lost", "acts"));
    assert_eq!(transfer.get("epoch"), begun.get("epoch"));
    assert_ne!(recovery.get("epoch"), begun.get("epoch"));
    assert!(!transfer.fields.contains_key("holds") && recovery.get("holds") == "0");
    assert!(soon(won).await.expect("no panic"));

    drop(frozen);
    old.run(async move { guard.lost().await }).await;
    let is_back = || {
        let (there, here) = (elder.status().view, first.status());
        here.leased
            && there.is_some_and(|view| view.members.len() == 3 && view.contains(here.me.process))
    };
    until("all to be back", is_back, || format!("{:?}", elder.status())).await;
    for (process, member) in members {
        process.run(async move { member.leave().await }).await.expect("it is heard");
        process.log.is_closed().await;
    }
}

#[tokio::test]
async fn a_forwarded_table_ends_the_transfer_span_as_lost() {
    // The grantor stands still, and is not to be taken for lost.
    let members = cluster(4, Leases::Long).await;
    let [_, (old, first), (between, second), (young, third)] = &members[..] else {
        panic!("there are four")
    };
    let guard = hold(old, first).await;
    let frozen = old.freeze().await;
    let lost = insist(between, second).await;
    let passed = between.log.opens(&["transfer"]).await;
    let won = insist(young, third).await;
    let kept = young.log.opens(&["transfer"]).await;
    assert!(between.log.named("transfer").is_empty(), "it waits for the table still");
    drop(frozen);

    assert!(soon(won).await.expect("no panic") && !soon(lost).await.expect("no panic"));
    let transfer = young.log.reaches("transfer", 1).await;
    assert_eq!((transfer.get("outcome"), transfer.get("holds")), ("acts", "1"));
    assert_eq!(transfer.get("epoch"), kept.get("epoch"));
    between.log.is_closed().await;
    let transfer = between.log.reaches("transfer", 1).await;
    assert_eq!((transfer.get("outcome"), transfer.get("epoch")), ("lost", passed.get("epoch")));
    assert!(
        between.log.named("grantor").is_empty() && between.log.named("grantor ended").is_empty()
    );
    old.run(async move { guard.release().await }).await.expect("it survived");
}

#[tokio::test]
async fn open_spans_end_as_lost_when_their_member_goes() {
    // The grantor stands still, and is not to be taken for lost.
    let mut members = cluster(4, Leases::Long).await;
    let member = members[1].1.clone();
    let guard = members[1]
        .0
        .run(async move {
            let stock = member.lock_service("stock").await.expect("a good name");
            stock.lock("a").await.expect("it is free")
        })
        .await;

    // One member leaves.
    let frozen = members[1].0.freeze().await;
    let (young, member) = &members[2];
    let won = insist(young, member).await;
    let begun = young.log.opens(&["transfer"]).await;
    let goes = member.clone();
    let gone = young.handle.spawn(async move { goes.leave().await });
    let transfer = young.log.reaches("transfer", 1).await;
    assert_eq!((transfer.get("outcome"), transfer.get("epoch")), ("lost", begun.get("epoch")));
    assert!(
        transfer.number("took_ms") > 0.0 && !transfer.fields.contains_key("holds"),
        "{transfer:?}"
    );
    assert!(!soon(won).await.expect("no panic"));
    let ended: Vec<LogLine> = young.log.named("grantor ended");
    assert!(
        ended.is_empty() && young.log.named("grantor").is_empty(),
        "it never was one: {ended:?}"
    );
    drop(frozen);
    soon(gone).await.expect("no panic").expect("it is heard");
    young.log.is_closed().await;

    // One member is dropped with its runtime, and so can do nothing more.
    let settled = |member: &Member| {
        let status = member.status();
        status.leased && status.view.is_some_and(|view| view.members.len() == 3)
    };
    let others = [0, 1, 3].map(|index| members[index].1.clone());
    until("a view of three", || others.iter().all(settled), || format!("{:?}", others[0].status()))
        .await;
    let frozen = members[1].0.freeze().await;
    let _won = insist(&members[3].0, &members[3].1).await;
    let log = members[3].0.log.clone();
    let begun = log.opens(&["transfer", "recovery"]).await;
    members[3].0.crash();
    log.is_closed().await;
    let ended = log.named(&begun.name).pop().expect("it has ended");
    assert_eq!((ended.get("outcome"), ended.get("epoch")), ("lost", begun.get("epoch")));
    drop(frozen);
    members[1].0.run(async move { drop(guard) }).await;
}

#[tokio::test]
async fn a_view_change_is_open_from_the_vote_to_the_view() {
    // The voters stand still, and the elder's lease is not to end.
    let members = cluster(3, Leases::Long).await;
    let [(elder, seen), voters @ ..] = &members[..] else { panic!("there are three") };
    let before = seen.status().view.expect("it is in one");
    elder.log.is_closed().await;
    let seeds: Vec<String> =
        before.members.iter().map(|member| member.info.addr.to_string()).collect();

    // No member answers the elder, which tries to admit a fourth member.
    let frozen = [voters[0].0.freeze().await, voters[1].0.freeze().await];
    let newcomer = MeteredProcess::start();
    let joins = join(&newcomer, &ports::free(1)[0].to_string(), &seeds, Leases::Long);
    let begun = elder.log.opens(&["view change"]).await;
    assert_eq!(begun.get("view"), before.number.next().0.to_string());
    assert_eq!((begun.level.as_str(), begun.parent.clone()), ("INFO", None));
    assert!(!begun.fields.contains_key("outcome"), "{begun:?}");
    drop(frozen);
    let member = soon(joins).await.expect("no panic").expect("it joins");

    let change = |process: &MeteredProcess| {
        process
            .log
            .named("view change")
            .into_iter()
            .find(|change| change.get("view") == begun.get("view"))
    };
    for process in [elder, &voters[0].0, &voters[1].0] {
        until(
            "the view",
            || change(process).is_some(),
            || format!("{:?}", process.log.named("view change")),
        )
        .await;
        assert_eq!(change(process).expect("just seen").get("outcome"), "installed");
    }
    assert!(change(elder).expect("just seen").number("took_ms") > 0.0);
    let has_voted = |process: &MeteredProcess| {
        change(process).is_some_and(|change| change.number("took_ms") > 0.0)
    };
    assert!(voters.iter().any(|(process, _)| has_voted(process)), "a voter waits for it, too");
    newcomer.run(async move { member.leave().await }).await.expect("it is heard");
    newcomer.log.is_closed().await;
}
