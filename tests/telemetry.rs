//! The metrics and logs of members: each in a thread of its own, with a recorder and a subscriber
//! of its own, and sockets on the loopback interface.

// Requests are started in one task and awaited in another.
#![allow(clippy::async_yields_async)]

#[path = "support/ports.rs"]
mod ports;

#[cfg(feature = "metrics")]
use elderlock::Unavailable;
use elderlock::{Guard, JoinError, LockError, LockService, Member, Timing, TryLockError};
use std::collections::BTreeMap;
use std::fmt::Debug;
use std::future::Future;
use std::sync::{Arc, Mutex, mpsc};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::runtime::{Builder, Handle};
use tokio::sync::oneshot;
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;

/// A guard against hanging, far above the time of any step here.
const HANG: Duration = Duration::from_secs(60);
const MS: Duration = Duration::from_millis(1);

/// One span that has ended, or one event: its name or message, its level, the span that it is in,
/// its fields.
#[derive(Clone, Debug, Default)]
struct LogLine {
    name: String,
    level: String,
    parent: Option<String>,
    fields: BTreeMap<String, String>,
}

impl LogLine {
    fn get(&self, field: &str) -> &str {
        self.fields.get(field).unwrap_or_else(|| panic!("{field} is missing in {self:?}"))
    }

    fn number(&self, field: &str) -> f64 {
        self.get(field).parse().unwrap_or_else(|_| panic!("{field} is no number in {self:?}"))
    }
}

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        if field.name() == "message" {
            self.name = format!("{value:?}");
        } else {
            self.fields.insert(field.name().to_owned(), format!("{value:?}"));
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.fields.insert(field.name().to_owned(), value.to_owned());
    }
}

/// Keeps all entries with the target `elderlock`: spans that are open, and in their order spans
/// that have ended and events.
#[derive(Clone, Default)]
struct Log {
    open: Arc<Mutex<BTreeMap<u64, LogLine>>>,
    lines: Arc<Mutex<Vec<LogLine>>>,
}

impl Log {
    fn named(&self, name: &str) -> Vec<LogLine> {
        self.lines
            .lock()
            .expect("no panic")
            .iter()
            .filter(|line| line.name == name)
            .cloned()
            .collect()
    }

    /// Spans with one of these names that have begun and not ended.
    fn open(&self, names: &[&str]) -> Vec<LogLine> {
        let open = self.open.lock().expect("no panic");
        open.values().filter(|line| names.contains(&line.name.as_str())).cloned().collect()
    }

    async fn opens(&self, names: &[&str]) -> LogLine {
        let seen = || format!("{:?}", self.lines.lock().expect("no panic"));
        until(&format!("one of {names:?} to begin"), || !self.open(names).is_empty(), seen).await;
        self.open(names).remove(0)
    }

    /// Every span that has begun has ended. Its end is reported after the effects that others can
    /// see.
    async fn is_closed(&self) {
        let open = || self.open.lock().expect("no panic").clone();
        until("all spans to end", || open().is_empty(), || format!("{:?}", open())).await;
    }

    async fn reaches(&self, name: &str, count: usize) -> LogLine {
        until(
            &format!("{count} of {name}"),
            || self.named(name).len() >= count,
            || format!("{:?}", self.named(name)),
        )
        .await;
        self.named(name).remove(count - 1)
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Log {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if span.metadata().target() == "elderlock" {
            let mut line = LogLine {
                name: attributes.metadata().name().to_owned(),
                level: attributes.metadata().level().to_string(),
                parent: span.parent().map(|parent| parent.name().to_owned()),
                fields: BTreeMap::new(),
            };
            attributes.record(&mut line);
            self.open.lock().expect("no panic").insert(id.into_u64(), line);
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, _: Context<'_, S>) {
        if let Some(line) = self.open.lock().expect("no panic").get_mut(&id.into_u64()) {
            values.record(line);
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Context<'_, S>) {
        if event.metadata().target() == "elderlock" {
            let parent = context.event_span(event).map(|span| span.name().to_owned());
            let mut line = LogLine {
                level: event.metadata().level().to_string(),
                parent,
                ..LogLine::default()
            };
            event.record(&mut line);
            self.lines.lock().expect("no panic").push(line);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(line) = self.open.lock().expect("no panic").remove(&id.into_u64()) {
            self.lines.lock().expect("no panic").push(line);
        }
    }
}

/// A thread with a runtime, a recorder and a subscriber of its own: as near to a process as a
/// thread comes.
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
                // All tasks end with it at once: no member says goodbye.
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

    /// Runs it there.
    async fn run<T: Send + 'static>(&self, task: impl Future<Output = T> + Send + 'static) -> T {
        soon(self.handle.spawn(task)).await.expect("no panic")
    }

    /// Stops it where it stands, until the returned sender is dropped.
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

    /// Ends it as a crash does.
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

/// Waits for a condition; `seen` gives the text of the failure, should it never come.
async fn until(what: &str, mut so: impl FnMut() -> bool, seen: impl Fn() -> String) {
    let start = std::time::Instant::now();
    while !so() {
        assert!(start.elapsed() < HANG, "waited for: {what}; seen: {}", seen());
        tokio::time::sleep(2 * MS).await;
    }
}

/// A member of the cluster, on its way.
fn join(
    process: &MeteredProcess,
    addr: &str,
    seeds: &[String],
) -> tokio::task::JoinHandle<Result<Member, JoinError>> {
    process
        .handle
        .spawn(Member::builder("telemetry").bind(addr).timing(Timing::fast()).seeds(seeds).join())
}

/// `count` members in one view, the elder first.
async fn cluster(count: usize) -> Vec<(MeteredProcess, Member)> {
    let addrs: Vec<String> = ports::free(count).iter().map(ToString::to_string).collect();
    let processes: Vec<MeteredProcess> = addrs.iter().map(|_| MeteredProcess::start()).collect();
    let mut joins = Vec::new();
    for (process, addr) in processes.iter().zip(&addrs) {
        joins.push(join(process, addr, &addrs));
    }
    let mut members = Vec::new();
    for (process, join) in processes.into_iter().zip(joins) {
        members.push((process, soon(join).await.expect("no panic").expect("it joins")));
    }
    let sees_all = |(_, member): &(MeteredProcess, Member)| {
        let status = member.status();
        status.leased && status.view.is_some_and(|view| view.members.len() == count)
    };
    until("one view", || members.iter().all(sees_all), || format!("{:?}", members[0].1.status()))
        .await;
    members.sort_by_key(|(_, member)| !member.is_elder());
    members
}

/// Which of them grants it.
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

/// The lines that an operator reads begin so.
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
    let mut members = cluster(3).await;
    let addrs: Vec<String> = members.iter().map(|(_, member)| member.addr().to_string()).collect();
    let log = members[0].0.log.clone();
    let elder = says(&log, "INFO", "elder").await;
    assert!(elder.fields.contains_key("process") && elder.get("is_me").parse::<bool>().is_ok());
    says(&log, "INFO", "member joined").await;

    let last = members.pop().expect("there are three");
    last.0.run(async move { last.1.leave().await }).await.expect("it is heard");
    assert_eq!(says(&log, "INFO", "member left").await.get("addr"), addrs[2]);
    // Its thread ends without a goodbye, and no process died that a host could report.
    members[1].0.crash();
    assert_eq!(says(&log, "INFO", "member died").await.get("addr"), addrs[1]);
    assert_eq!(log.named("member died")[0].get("cause"), "lease over");
}

#[tokio::test]
async fn a_member_without_a_quorum_logs_its_suspension_and_some_of_its_lost_locks() {
    let mut members = cluster(2).await;
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
    assert_eq!(line.get("reason"), "Suspended");
    let named = guards.iter().find(|guard| guard.token().to_string() == line.get("token"));
    let name = named.expect("it was one of these").name().escape_ascii().to_string();
    assert_eq!(line.get("lock.name"), name);
    says(&log, "WARN", "orphaned: no quorum").await;
    let lines = log.named("lock lost").len();
    assert!((1..=20).contains(&lines), "{lines} lines about 101 locks");
}

#[tokio::test]
async fn a_process_that_joins_logs_the_seeds_that_it_waits_for() {
    let process = MeteredProcess::start();
    let addrs: Vec<String> = ports::free(3).iter().map(ToString::to_string).collect();
    let joins = join(&process, &addrs[0], &addrs);
    let line = says(&process.log, "INFO", "joining: waiting for 2 of 3 seeds: ").await;
    assert!(line.name.contains(&addrs[1]) && line.name.contains(&addrs[2]), "{line:?}");
    assert!(!line.name.contains(&addrs[0]), "{line:?}");
    joins.abort();
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
    // Its very turn made the grantor, which is none of that caller's business.
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
    let mut members = cluster(3).await;
    // The events are told after the views can be seen.
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
    }

    // The youngest two use it, so that the elder's death has nothing to do with it.
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
    assert_eq!(became(&log).get("epoch"), transfer.get("epoch"));
    let ended = members[1].0.log.reaches("grantor ended", 1).await;
    assert_eq!(ended.get("epoch"), began.get("epoch"));
    assert_ne!(began.get("epoch"), transfer.get("epoch"));

    // It dies with the table, and the named member finds the holders and waiters.
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

/// Makes it hold a lock: it is the first grantor of the service, or asks that one.
async fn hold(process: &MeteredProcess, member: &Member) -> Guard {
    let member = member.clone();
    let lock = async move {
        let stock = member.lock_service("stock").await.expect("a good name");
        stock.lock("a").await.expect("it is free")
    };
    process.run(lock).await
}

/// Asks for it to become the grantor, without waiting for that.
async fn insist(process: &MeteredProcess, member: &Member) -> tokio::task::JoinHandle<bool> {
    let stock = member.lock_service("stock").await.expect("a good name");
    process.handle.spawn(async move { stock.become_grantor().await.is_ok() })
}

#[tokio::test]
async fn a_transfer_is_open_until_the_predecessor_is_lost_and_then_a_recovery_is() {
    let members = cluster(3).await;
    let [(_, elder), (old, first), (young, second)] = &members[..] else {
        panic!("there are three")
    };
    let guard = hold(old, first).await;

    // The member that is asked for the table is silent. When the elder takes it to be lost, it
    // names the other once more, which then asks all members.
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
    let members = cluster(4).await;
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
    let mut members = cluster(4).await;
    let member = members[1].1.clone();
    let guard = members[1]
        .0
        .run(async move {
            let stock = member.lock_service("stock").await.expect("a good name");
            stock.lock("a").await.expect("it is free")
        })
        .await;

    // One leaves.
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

    // One is dropped with its runtime, and so has no time for anything.
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
    let members = cluster(3).await;
    let [(elder, seen), voters @ ..] = &members[..] else { panic!("there are three") };
    let before = seen.status().view.expect("it is in one");
    elder.log.is_closed().await;
    let seeds: Vec<String> =
        before.members.iter().map(|member| member.info.addr.to_string()).collect();

    // No member answers the elder, which tries to take a fourth one in.
    let frozen = [voters[0].0.freeze().await, voters[1].0.freeze().await];
    let newcomer = MeteredProcess::start();
    let joins = join(&newcomer, &ports::free(1)[0].to_string(), &seeds);
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

#[cfg(feature = "metrics")]
mod measured {
    use super::*;
    use elderlock::Guard;
    use metrics::Unit;
    use metrics_util::MetricKind;
    use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
    use std::collections::BTreeSet;

    /// The metrics of one process.
    pub(super) struct Book {
        snapshotter: Snapshotter,
        pages: Mutex<Pages>,
    }

    #[derive(Default, Debug)]
    struct Pages {
        /// Counters and gauges, by `name{label="value",...}` with the labels in order.
        values: BTreeMap<String, f64>,
        samples: BTreeMap<String, Vec<f64>>,
        described: BTreeMap<String, (MetricKind, Option<Unit>)>,
    }

    impl Book {
        pub(super) fn new() -> (Book, DebuggingRecorder) {
            let recorder = DebuggingRecorder::new();
            (Book { snapshotter: recorder.snapshotter(), pages: Mutex::default() }, recorder)
        }

        /// A snapshot takes away the values that it shows, from gauges too, which are moved and
        /// never set.
        fn read<T>(&self, look: impl FnOnce(&Pages) -> T) -> T {
            let mut pages = self.pages.lock().expect("no panic");
            for (key, unit, text, value) in self.snapshotter.snapshot().into_vec() {
                let labels: BTreeMap<&str, &str> =
                    key.key().labels().map(|label| (label.key(), label.value())).collect();
                let labels: Vec<String> =
                    labels.iter().map(|(key, value)| format!("{key}={value}")).collect();
                let name = format!("{}{{{}}}", key.key().name(), labels.join(","));
                if text.is_some() {
                    pages.described.insert(key.key().name().to_owned(), (key.kind(), unit));
                }
                match value {
                    DebugValue::Counter(count) => {
                        *pages.values.entry(name).or_default() += count as f64
                    }
                    DebugValue::Gauge(moved) => {
                        *pages.values.entry(name).or_default() += moved.into_inner()
                    }
                    DebugValue::Histogram(more) => {
                        pages
                            .samples
                            .entry(name)
                            .or_default()
                            .extend(more.iter().map(|sample| sample.into_inner()));
                    }
                }
            }
            look(&pages)
        }

        fn value(&self, name: &str) -> f64 {
            self.read(|pages| pages.values.get(name).copied().unwrap_or_default())
        }

        fn samples(&self, name: &str) -> Vec<f64> {
            self.read(|pages| pages.samples.get(name).cloned().unwrap_or_default())
        }

        fn names(&self) -> BTreeSet<String> {
            self.read(|pages| pages.values.keys().chain(pages.samples.keys()).cloned().collect())
        }

        async fn reaches(&self, name: &str, value: f64) {
            until(
                &format!("{name} of {value}"),
                || self.value(name) == value,
                || format!("{:?}", self.value(name)),
            )
            .await;
        }

        /// Waits until all its gauges are at 0.
        async fn is_at_rest(&self) {
            for gauge in [
                "held{service=stock}",
                "queue_depth{service=stock}",
                "grantor_epoch{service=stock}",
            ] {
                self.reaches(&format!("elderlock_{gauge}"), 0.0).await;
            }
        }
    }

    async fn stock(member: &Member) -> LockService {
        member.lock_service("stock").await.expect("a good name")
    }

    async fn lock(service: &LockService, name: &str) -> Guard {
        soon(service.lock(name).into_future()).await.expect("it is granted")
    }

    #[tokio::test]
    async fn requests_are_counted_and_timed_by_their_outcome() {
        let process = MeteredProcess::start();
        let tried = process
            .run(async {
                let member = Member::local().await.expect("it joins");
                let service = stock(&member).await;
                let guard = lock(&service, "a").await;
                let again = guard.reenter().expect("it is held");
                service.lock("a").wait(30 * MS).await.unwrap_err();
                let trying = std::time::Instant::now();
                service.try_lock("a").await.unwrap_err();
                let tried = trying.elapsed().as_secs_f64();
                drop(service.lock("a").start());
                drop(service.lock("never asked"));
                again.release().await.expect("it is held");
                guard.release().await.expect("it is held");

                let leased = service.lock("b").lease(30 * MS).await.expect("it is free");
                leased.lost().await;
                let unnoticed = service.lock("c").lease(30 * MS).await.expect("it is free");
                std::thread::sleep(31 * MS);
                drop(unnoticed);

                let batch = service.lock_all(["d", "e"]).owner(1).await.expect("they are free");
                let other = service.lock("f").owner(2).await.expect("it is free");
                let suspending = service.suspend().owner(1).start();
                let deadlock = service.suspend().owner(2).await.unwrap_err();
                assert_eq!(deadlock, LockError::Deadlock);
                drop(other);
                drop(suspending.await.expect("no other lock is held"));
                drop(batch);

                let held = lock(&service, "g").await;
                let waits = service.lock("g").start();
                service.destroy().await.expect("it was not destroyed");
                assert_eq!(
                    waits.await.unwrap_err(),
                    LockError::Unavailable(Unavailable::Destroyed)
                );
                drop(held);

                let service = stock(&member).await;
                let held = lock(&service, "h").await;
                let waits = service.lock("h").start();
                member.leave().await.expect("it can leave");
                assert_eq!(waits.await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
                drop(held);
                tried
            })
            .await;

        let book = &process.book;
        let wait = |outcome: &str| {
            book.samples(&format!("elderlock_wait_seconds{{outcome={outcome},service=stock}}"))
        };
        let hold = |outcome: &str| {
            book.samples(&format!("elderlock_hold_seconds{{outcome={outcome},service=stock}}"))
        };
        let waits = ["granted", "timed_out", "held", "cancelled", "deadlock", "destroyed", "left"];
        assert_eq!(waits.map(|outcome| wait(outcome).len()), [8, 1, 1, 1, 1, 1, 1]);
        let holds = ["released", "lease_ended", "destroyed", "left"];
        assert_eq!(holds.map(|outcome| hold(outcome).len()), [4, 2, 1, 1]);
        assert_eq!(book.value("elderlock_grants_total{service=stock}"), 8.0);
        assert_eq!(book.value("elderlock_releases_total{service=stock}"), 4.0);
        assert!(wait("timed_out")[0] >= 0.03, "{:?}", wait("timed_out"));
        assert!(wait("held")[0] <= tried, "{:?} within {tried}", wait("held"));
        assert!(hold("lease_ended").iter().all(|held| *held >= 0.03), "{:?}", hold("lease_ended"));
        assert!(
            hold("released").iter().any(|held| *held >= 0.03),
            "the first one waited for the time limit of another"
        );
        let others: Vec<_> =
            book.names().into_iter().filter(|name| name.contains("wait_seconds")).collect();
        assert_eq!(
            others.len(),
            waits.len(),
            "there is no series of what never happened: {others:?}"
        );
        book.is_at_rest().await;
        book.reaches("elderlock_view_members{}", 0.0).await;
    }

    #[tokio::test]
    async fn a_wait_ends_with_the_grant_and_not_when_the_caller_polls() {
        let process = MeteredProcess::start();
        let late = process
            .run(async {
                let member = Member::local().await.expect("it joins");
                let service = member.lock_service("stock").await.expect("a good name");
                let first = lock(&service, "a").await;
                let asked = std::time::Instant::now();
                let waits = service.lock("a").start();
                drop(first);
                std::thread::sleep(30 * MS);
                drop(waits.await.expect("it is granted"));
                asked.elapsed().as_secs_f64()
            })
            .await;
        let waits = process.book.samples("elderlock_wait_seconds{outcome=granted,service=stock}");
        let holds = process.book.samples("elderlock_hold_seconds{outcome=released,service=stock}");
        assert_eq!((waits.len(), holds.len()), (2, 2));
        assert!(waits.iter().all(|wait| *wait <= late - 0.03), "{waits:?} within {late}");
        assert!(holds.iter().any(|hold| *hold >= 0.03), "{holds:?}");
    }

    #[tokio::test]
    async fn a_grantor_is_measured_where_it_is_through_transfer_crash_and_destruction() {
        let mut members = cluster(4).await;
        for (process, _) in &members {
            process.book.reaches("elderlock_view_members{}", 4.0).await;
            assert!(process.book.value("elderlock_view_changes_total{}") >= 1.0);
        }
        const EPOCH: &str = "elderlock_grantor_epoch{service=stock}";
        const HELD: &str = "elderlock_held{service=stock}";
        const DEPTH: &str = "elderlock_queue_depth{service=stock}";
        const TRANSFERS: &str = "elderlock_transfers_total{service=stock}";
        const RECOVERIES: &str = "elderlock_recoveries_total{service=stock}";

        // The second grants, the third holds two requests, the fourth waits.
        let (second, third, fourth) =
            (members[1].1.clone(), members[2].1.clone(), members[3].1.clone());
        members[1].0.run(async move { drop(lock(&stock(&second).await, "a").await) }).await;
        let held = members[2]
            .0
            .run(async move {
                let service = stock(&third).await;
                let batch = service.lock_all(["b", "c"]).await.expect("they are free");
                (lock(&service, "a").await, batch)
            })
            .await;
        let waits = members[3].0.run(async move { stock(&fourth).await.lock("a").start() }).await;
        let book = &members[1].0.book;
        book.reaches(HELD, 2.0).await;
        book.reaches(DEPTH, 1.0).await;
        let first_epoch = book.value(EPOCH);
        assert!(first_epoch > 0.0);
        for other in [0, 2, 3] {
            let book = &members[other].0.book;
            assert_eq!(
                [EPOCH, HELD, DEPTH].map(|name| book.value(name)),
                [0.0; 3],
                "only the grantor shows them"
            );
        }
        assert_eq!([TRANSFERS, RECOVERIES].map(|name| book.value(name)), [0.0; 2]);

        // The first takes over.
        let first = members[0].1.clone();
        let won = members[0].0.run(async move { stock(&first).await.become_grantor().await }).await;
        won.expect("no other member wants to");
        let book = &members[0].0.book;
        book.reaches(TRANSFERS, 1.0).await;
        book.reaches(HELD, 2.0).await;
        book.reaches(DEPTH, 1.0).await;
        members[1].0.book.is_at_rest().await;
        let second_epoch = book.value(EPOCH);
        assert!(second_epoch > first_epoch, "{second_epoch} after {first_epoch}");
        let took = book.samples("elderlock_transfer_seconds{service=stock}");
        assert!(took.len() == 1 && took[0] > 0.0 && took[0] < HANG.as_secs_f64(), "{took:?}");

        // It dies, and one of the others asks all that are left.
        members[0].0.crash();
        let (dead, others) = members.split_at_mut(1);
        dead[0].0.book.is_at_rest().await;
        dead[0].0.book.reaches("elderlock_view_members{}", 0.0).await;
        let sum =
            |name: &str| others.iter().map(|(process, _)| process.book.value(name)).sum::<f64>();
        until("the recovery", || sum(RECOVERIES) == 1.0, || format!("{}", sum(RECOVERIES))).await;
        until(
            "the held locks",
            || sum(HELD) == 2.0 && sum(DEPTH) == 1.0,
            || format!("{}", sum(HELD)),
        )
        .await;
        assert!(sum(EPOCH) > second_epoch && sum(TRANSFERS) == 0.0);
        let took: Vec<f64> = others
            .iter()
            .flat_map(|(process, _)| {
                process.book.samples("elderlock_recovery_seconds{service=stock}")
            })
            .collect();
        assert!(took.len() == 1 && took[0] > 0.0, "{took:?}");
        for (process, _) in others.iter() {
            process.book.reaches("elderlock_view_members{}", 3.0).await;
        }

        // All that was held ends as it should, counted where it was held.
        let release = async move {
            held.0.release().await.expect("it survived");
            held.1.release().await.expect("it survived");
        };
        others[1].0.run(release).await;
        assert_eq!(others[1].0.book.value("elderlock_releases_total{service=stock}"), 2.0);
        let last = others[2].0.run(async move { waits.await.expect("it is next") }).await;
        until(
            "the last hold",
            || sum(HELD) == 1.0 && sum(DEPTH) == 0.0,
            || format!("{}", sum(HELD)),
        )
        .await;

        // Destroyed where it is granted: the next one has it, and nothing is left here.
        let grantor = grantor_is(others, "stock").await;
        let member = others[grantor].1.clone();
        others[grantor]
            .0
            .run(async move { stock(&member).await.destroy().await.expect("it was not destroyed") })
            .await;
        others[grantor].0.book.is_at_rest().await;
        others[2].0.run(async move { drop(last) }).await;
        until("nothing held", || sum(HELD) == 0.0, || format!("{}", sum(HELD))).await;

        // Messages are counted by kind, at both ends, and by service if they are of one.
        let other = others[2].1.clone();
        let asker = others[1].1.clone();
        others[2]
            .0
            .run(async move {
                drop(other.lock_service("other").await.expect("a good name").lock("a").await)
            })
            .await;
        others[1]
            .0
            .run(async move {
                drop(asker.lock_service("other").await.expect("a good name").lock("a").await)
            })
            .await;
        for labels in [
            "kind=RequestLock,service=stock",
            "kind=Grant,service=stock",
            "kind=TableChunk,service=stock",
            "kind=Report,service=stock",
            "kind=RequestLock,service=other",
            "kind=Grant,service=other",
            "kind=Beat",
            "kind=Inventory",
        ] {
            for way in ["sent", "received"] {
                let name = format!("elderlock_messages_{way}_total{{{labels}}}");
                let count =
                    || members.iter().map(|(process, _)| process.book.value(&name)).sum::<f64>();
                until(&name, || count() >= 1.0, || format!("{:?}", members[1].0.book.names()))
                    .await;
            }
        }
        for (process, _) in &members {
            let names = process.book.names();
            assert!(
                !names
                    .iter()
                    .any(|name| name.contains("kind=RequestLock}") || name.contains("kind=Beat,")),
                "{names:?}"
            );
            let of_other = |kind: &str| {
                names.iter().any(|name| name.contains(&format!("kind={kind},service=other")))
            };
            assert!(
                !of_other("TableChunk") && !of_other("Report"),
                "it stayed where it was: {names:?}"
            );
        }

        // A leaving member shows nothing any more.
        for (process, member) in members.drain(1..) {
            process.run(async move { member.leave().await }).await.expect("it is heard");
            process.book.is_at_rest().await;
            process.book.reaches("elderlock_view_members{}", 0.0).await;
        }
    }

    #[tokio::test]
    async fn a_member_without_a_quorum_says_so_by_its_lost_holds_and_undecided_tries() {
        let mut members = cluster(3).await;
        let last = members.pop().expect("there are three");
        let member = last.1.clone();
        let guard = last.0.run(async move { lock(&stock(&member).await, "a").await }).await;
        for (process, _) in &mut members {
            process.crash();
        }
        let guard = last
            .0
            .run(async move {
                guard.lost().await;
                guard
            })
            .await;
        let held =
            || last.0.book.samples("elderlock_hold_seconds{outcome=suspended,service=stock}").len();
        until(
            "the loss, although the guard is kept",
            || held() == 1,
            || format!("{:?}", last.0.book.names()),
        )
        .await;
        let member = last.1.clone();
        last.0.run(async move { assert!(stock(&member).await.try_lock("b").await.is_err()) }).await;
        let waited = last.0.book.samples("elderlock_wait_seconds{outcome=undecided,service=stock}");
        assert_eq!(waited.len(), 1, "{:?}", last.0.book.names());
        last.0.run(async move { drop(guard) }).await;
        assert_eq!(held(), 1, "counted once");
        assert_eq!(last.0.book.value("elderlock_releases_total{service=stock}"), 0.0);
    }

    #[tokio::test]
    async fn members_of_one_process_add_up() {
        let process = MeteredProcess::start();
        let (members, guards) = process
            .run(async {
                let members = [
                    Member::local().await.expect("it joins"),
                    Member::local().await.expect("it joins"),
                ];
                let guards = [
                    lock(&stock(&members[0]).await, "a").await,
                    lock(&stock(&members[1]).await, "a").await,
                ];
                (members, guards)
            })
            .await;
        process.book.reaches("elderlock_held{service=stock}", 2.0).await;
        process.book.reaches("elderlock_view_members{}", 2.0).await;
        let [first, second] = members;
        process.run(async move { first.leave().await }).await.expect("it can leave");
        process.book.reaches("elderlock_held{service=stock}", 1.0).await;
        assert!(guards[0].fence().is_err() && guards[1].fence().is_ok());
        process.run(async move { drop((second, guards)) }).await;
        process.book.is_at_rest().await;
    }

    /// Only the pages of the module list the metrics: they and the code are to say the same.
    #[tokio::test]
    async fn documented_and_described_metrics_are_the_same_with_their_units() {
        let source = include_str!("../src/runtime/telemetry.rs");
        let rows = source.lines().filter_map(|line| line.strip_prefix("//! | `elderlock_"));
        let documented: BTreeMap<String, String> = rows
            .map(|row| {
                let (name, rest) = row.split_once('`').expect("a name in backticks");
                let kind = rest.split('|').nth(1).expect("a second column").trim();
                let labels = name.find('{').unwrap_or(name.len());
                (format!("elderlock_{}", &name[..labels]), kind.to_owned())
            })
            .collect();
        let recorder = Descriptions::default();
        let described = recorder.0.clone();
        std::thread::spawn(move || {
            let runtime = Builder::new_current_thread().enable_all().build().expect("a runtime");
            metrics::with_local_recorder(&recorder, || {
                runtime.block_on(async {
                    Member::local().await.expect("it joins").leave().await.expect("it can leave")
                });
            });
        })
        .join()
        .expect("no panic");
        assert_eq!(*described.lock().expect("no panic"), documented);
    }

    /// Keeps the descriptions, and measures nothing.
    #[derive(Default)]
    struct Descriptions(Arc<Mutex<BTreeMap<String, String>>>);

    impl Descriptions {
        fn note(&self, key: &metrics::KeyName, unit: Option<Unit>, kind: &str) {
            let unit = match unit {
                Some(Unit::Seconds) => ", s",
                Some(Unit::Count) => "",
                other => panic!("{other:?} of {}", key.as_str()),
            };
            self.0
                .lock()
                .expect("no panic")
                .insert(key.as_str().to_owned(), format!("{kind}{unit}"));
        }
    }

    impl metrics::Recorder for Descriptions {
        fn describe_counter(
            &self,
            key: metrics::KeyName,
            unit: Option<Unit>,
            _: metrics::SharedString,
        ) {
            self.note(&key, unit, "counter");
        }

        fn describe_gauge(
            &self,
            key: metrics::KeyName,
            unit: Option<Unit>,
            _: metrics::SharedString,
        ) {
            self.note(&key, unit, "gauge");
        }

        fn describe_histogram(
            &self,
            key: metrics::KeyName,
            unit: Option<Unit>,
            _: metrics::SharedString,
        ) {
            self.note(&key, unit, "histogram");
        }

        fn register_counter(
            &self,
            _: &metrics::Key,
            _: &metrics::Metadata<'_>,
        ) -> metrics::Counter {
            metrics::Counter::noop()
        }

        fn register_gauge(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Gauge {
            metrics::Gauge::noop()
        }

        fn register_histogram(
            &self,
            _: &metrics::Key,
            _: &metrics::Metadata<'_>,
        ) -> metrics::Histogram {
            metrics::Histogram::noop()
        }
    }
}
