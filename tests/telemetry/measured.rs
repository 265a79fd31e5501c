//! The metrics of members, read from a recorder in each process.

use super::*;
use elderlock::{Guard, Order, OrderReport, ServiceName, Unavailable, give_order};
use metrics::Unit;
use metrics_util::MetricKind;
use metrics_util::debugging::{DebugValue, DebuggingRecorder, Snapshotter};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

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

    /// A snapshot resets the values that it returns. Gauges are reset too, because they are moved
    /// and never set; so the pages add the values up.
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

    pub(super) async fn counts_one_loss(&self, reason: &str) {
        let losses = format!("elderlock_losses_total{{reason={reason},service=stock}}");
        self.reaches(&losses, 1.0).await;
    }

    /// Waits until all gauges of this process are at 0.
    async fn is_at_rest(&self) {
        for gauge in
            ["held{service=stock}", "queue_depth{service=stock}", "is_grantor{service=stock}"]
        {
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
async fn a_question_about_an_unused_service_makes_no_series() {
    let members = cluster(2, Leases::Long).await;
    for (process, member) in &members {
        let named = ServiceName::new("stokc").expect("a good name");
        let order = Order::Held { service: named, leases: false };
        let addr = member.addr().to_string();
        let given = give_order(&addr, "telemetry", order);
        let mut reports = soon(given).await.expect("it is given");
        let told = soon(reports.next()).await.expect("it is told");
        assert_eq!(told, Some(OrderReport::NoService));
        let sent = "elderlock_messages_sent_total{kind=FindService}";
        let seen = || process.book.names().iter().any(|name| name.starts_with(sent));
        if !member.is_elder() {
            until(sent, seen, || format!("{:?}", process.book.names())).await;
        }
        let names = process.book.names();
        assert!(!names.iter().any(|name| name.contains("stokc")), "{names:?}");
    }
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
            assert_eq!(waits.await.unwrap_err(), LockError::Unavailable(Unavailable::Destroyed));
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
    let lost = |reason: &str| {
        book.value(&format!("elderlock_losses_total{{reason={reason},service=stock}}"))
    };
    assert_eq!(holds.map(lost), [0.0, 2.0, 1.0, 1.0]);
    assert!(wait("timed_out")[0] >= 0.03, "{:?}", wait("timed_out"));
    assert!(wait("held")[0] <= tried, "{:?} within {tried}", wait("held"));
    assert!(hold("lease_ended").iter().all(|held| *held >= 0.03), "{:?}", hold("lease_ended"));
    assert!(
        hold("released").iter().any(|held| *held >= 0.03),
        "the first one waited for the time limit of another"
    );
    let others: Vec<_> =
        book.names().into_iter().filter(|name| name.contains("wait_seconds")).collect();
    assert_eq!(others.len(), waits.len(), "there is no series of what never happened: {others:?}");
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
    // The first request is granted before the caller measures.
    assert!(waits[1] <= late - 0.03, "{waits:?} within {late}");
    assert!(holds.iter().any(|hold| *hold >= 0.03), "{holds:?}");
}

#[tokio::test]
async fn a_grantor_is_measured_where_it_is_through_transfer_crash_and_destruction() {
    let mut members = cluster(4, Leases::Short).await;
    for (process, _) in &members {
        process.book.reaches("elderlock_view_members{}", 4.0).await;
        assert!(process.book.value("elderlock_view_changes_total{}") >= 1.0);
    }
    const GRANTS_HERE: &str = "elderlock_is_grantor{service=stock}";
    const HELD: &str = "elderlock_held{service=stock}";
    const DEPTH: &str = "elderlock_queue_depth{service=stock}";
    const TRANSFERS: &str = "elderlock_transfers_total{service=stock}";
    const RECOVERIES: &str = "elderlock_recoveries_total{service=stock}";

    // The second member grants, the third holds two requests, and the fourth waits.
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
    assert_eq!(book.value(GRANTS_HERE), 1.0);
    for other in [0, 2, 3] {
        let book = &members[other].0.book;
        assert_eq!(
            [GRANTS_HERE, HELD, DEPTH].map(|name| book.value(name)),
            [0.0; 3],
            "only the grantor shows them"
        );
    }
    assert_eq!([TRANSFERS, RECOVERIES].map(|name| book.value(name)), [0.0; 2]);

    // The first member takes the service over.
    let first = members[0].1.clone();
    let won = members[0].0.run(async move { stock(&first).await.become_grantor().await }).await;
    won.expect("no other member wants to");
    let book = &members[0].0.book;
    book.reaches(TRANSFERS, 1.0).await;
    book.reaches(HELD, 2.0).await;
    book.reaches(DEPTH, 1.0).await;
    members[1].0.book.is_at_rest().await;
    assert_eq!(book.value(GRANTS_HERE), 1.0);
    let took = book.samples("elderlock_transfer_seconds{service=stock}");
    assert!(took.len() == 1 && took[0] > 0.0 && took[0] < HANG.as_secs_f64(), "{took:?}");

    // The grantor dies, and another member asks all remaining members.
    members[0].0.crash();
    let (dead, others) = members.split_at_mut(1);
    dead[0].0.book.is_at_rest().await;
    dead[0].0.book.reaches("elderlock_view_members{}", 0.0).await;
    let sum = |name: &str| others.iter().map(|(process, _)| process.book.value(name)).sum::<f64>();
    until("the recovery", || sum(RECOVERIES) == 1.0, || format!("{}", sum(RECOVERIES))).await;
    until("the held locks", || sum(HELD) == 2.0 && sum(DEPTH) == 1.0, || format!("{}", sum(HELD)))
        .await;
    assert_eq!([GRANTS_HERE, TRANSFERS].map(sum), [1.0, 0.0]);
    let took: Vec<f64> = others
        .iter()
        .flat_map(|(process, _)| process.book.samples("elderlock_recovery_seconds{service=stock}"))
        .collect();
    assert!(took.len() == 1 && took[0] > 0.0, "{took:?}");
    for (process, _) in others.iter() {
        process.book.reaches("elderlock_view_members{}", 3.0).await;
    }

    // Each hold ends as expected, and is counted at its member.
    let release = async move {
        held.0.release().await.expect("it survived");
        held.1.release().await.expect("it survived");
    };
    others[1].0.run(release).await;
    assert_eq!(others[1].0.book.value("elderlock_releases_total{service=stock}"), 2.0);
    let last = others[2].0.run(async move { waits.await.expect("it is next") }).await;
    until("the last hold", || sum(HELD) == 1.0 && sum(DEPTH) == 0.0, || format!("{}", sum(HELD)))
        .await;

    // The service is destroyed at its grantor. Another member becomes grantor, and nothing is left
    // at the former one.
    let grantor = grantor_is(others, "stock").await;
    let member = others[grantor].1.clone();
    others[grantor]
        .0
        .run(async move { stock(&member).await.destroy().await.expect("it was not destroyed") })
        .await;
    others[grantor].0.book.is_at_rest().await;
    others[2].0.run(async move { drop(last) }).await;
    until("nothing held", || sum(HELD) == 0.0, || format!("{}", sum(HELD))).await;

    // Both ends count messages by kind, and by service if the message is of one.
    let other = others[2].1.clone();
    let requester = others[1].1.clone();
    others[2]
        .0
        .run(async move {
            drop(other.lock_service("other").await.expect("a good name").lock("a").await)
        })
        .await;
    others[1]
        .0
        .run(async move {
            drop(requester.lock_service("other").await.expect("a good name").lock("a").await)
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
            until(&name, || count() >= 1.0, || format!("{:?}", members[1].0.book.names())).await;
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

    // A member that has left shows no values any more.
    for (process, member) in members.drain(1..) {
        process.run(async move { member.leave().await }).await.expect("it is heard");
        process.book.is_at_rest().await;
        process.book.reaches("elderlock_view_members{}", 0.0).await;
    }
}

#[tokio::test]
async fn a_member_without_a_quorum_says_so_by_its_lost_holds_and_undecided_tries() {
    let mut members = cluster(3, Leases::Short).await;
    let last = members.pop().expect("there are three");
    let member = last.1.clone();
    let guard = last.0.run(async move { lock(&stock(&member).await, "a").await }).await;
    let book = &last.0.book;
    book.reaches("elderlock_connected{}", 1.0).await;
    for (process, _) in &mut members {
        process.crash();
    }
    book.reaches("elderlock_suspected_members{}", 2.0).await;
    book.reaches("elderlock_connected{}", 0.0).await;
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
    let lost = last.0.book.value("elderlock_losses_total{reason=suspended,service=stock}");
    assert_eq!(lost, 1.0);
}

#[tokio::test]
async fn the_elder_and_refused_input_are_measured() {
    let members = cluster(2, Leases::Long).await;
    members[0].0.book.reaches("elderlock_is_elder{}", 1.0).await;
    assert_eq!(members[1].0.book.value("elderlock_is_elder{}"), 0.0);
    let refused = "elderlock_refused_total{reason=garbage}";
    assert_eq!(members[0].0.book.value(refused), 0.0);
    let socket = std::net::UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.send_to(b"no datagram of a member", members[0].1.addr()).expect("it is sent");
    members[0].0.book.reaches(refused, 1.0).await;
    for (process, member) in members {
        process.run(async move { member.leave().await }).await.expect("it can leave");
        process.book.reaches("elderlock_is_elder{}", 0.0).await;
        process.book.reaches("elderlock_connected{}", 0.0).await;
    }
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

/// The module's documentation alone lists the metrics. It has to list exactly the metrics of the
/// code.
#[tokio::test]
async fn documented_and_described_metrics_are_the_same_with_their_units() {
    let source = include_str!("../../src/runtime/telemetry.rs");
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

/// Keeps the descriptions of metrics and measures nothing.
#[derive(Default)]
struct Descriptions(Arc<Mutex<BTreeMap<String, String>>>);

impl Descriptions {
    fn note(&self, key: &metrics::KeyName, unit: Option<Unit>, kind: &str) {
        let unit = match unit {
            Some(Unit::Seconds) => ", s",
            Some(Unit::Count) => "",
            other => panic!("{other:?} of {}", key.as_str()),
        };
        self.0.lock().expect("no panic").insert(key.as_str().to_owned(), format!("{kind}{unit}"));
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

    fn describe_gauge(&self, key: metrics::KeyName, unit: Option<Unit>, _: metrics::SharedString) {
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

    fn register_counter(&self, _: &metrics::Key, _: &metrics::Metadata<'_>) -> metrics::Counter {
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
