//! Members over a network of queues in one process. The tests use the public API when a member is
//! cut off, is expelled and comes back as a new process.

use super::*;
use crate::Unavailable;
use crate::protocol::{
    ClientMessage, Config, Input, MemberInfo, Message, Packet, ProcessId, Timing, View,
};
use crate::runtime::clock_watch::EVERY;
use crate::runtime::clock_watch::tests::Clocks;
use crate::runtime::engine::{Engine, EngineOptions};
use crate::runtime::inbox::Inbox;
use crate::runtime::member_clock::MemberClock;
use crate::runtime::network::{Network, Outbox};
use crate::runtime::process_id::draw_process;
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Weak;
use std::time::Instant;
use tokio::sync::mpsc;

struct DelayedPacket {
    from: MemberInfo,
    to: SocketAddr,
    process: Option<ProcessId>,
    packet: Packet,
}

type IsLost = fn(&Message) -> bool;

#[derive(Default)]
pub(crate) struct Lan {
    engines: Mutex<BTreeMap<SocketAddr, Weak<Engine>>>,
    /// The messages on links, except repeated ones, since a test last [took](Lan::said) them.
    said: Mutex<Vec<Message>>,
    /// How many positions in queues were sent on links.
    positions: AtomicUsize,
    /// The number of the last message on each link.
    last: Mutex<BTreeMap<(ProcessId, SocketAddr), u64>>,
    /// Addresses that are cut off from all others.
    cut: Mutex<BTreeSet<SocketAddr>>,
    /// Selects the messages on links that are lost.
    loses: Mutex<Option<IsLost>>,
    /// How many messages were lost in that way.
    lost: AtomicUsize,
}

/// The outgoing network of one member.
struct FakeNetwork {
    me: Mutex<MemberInfo>,
    parcels: mpsc::UnboundedSender<DelayedPacket>,
}

impl Outbox for FakeNetwork {
    fn send(&self, to: SocketAddr, process: Option<ProcessId>, packet: Packet) {
        let from = self.me.lock().unwrap().clone();
        let _ = self.parcels.send(DelayedPacket { from, to, process, packet });
    }
}

impl Network for FakeNetwork {
    fn reborn(&self, me: MemberInfo) {
        *self.me.lock().unwrap() = me;
    }
}

impl Lan {
    fn deliver(&self, DelayedPacket { from, to, process, packet }: DelayedPacket) {
        let cut = self.cut.lock().unwrap();
        if cut.contains(&to) || cut.contains(&from.addr) {
            return;
        }
        drop(cut);
        if let Packet::Linked { seq, message, .. } = &packet {
            let is_lost = *self.loses.lock().unwrap();
            if is_lost.is_some_and(|is_lost| is_lost(message)) {
                self.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            let mut last = self.last.lock().unwrap();
            let last = last.entry((from.process, to)).or_default();
            // A repeated message is skipped, also when the test has taken the earlier messages.
            if *seq > *last {
                *last = *seq;
                if matches!(message, Message::Client(ClientMessage::Queued { .. })) {
                    self.positions.fetch_add(1, Ordering::SeqCst);
                }
                self.said.lock().unwrap().push(message.clone());
            }
        }
        let engine = self.engines.lock().unwrap().get(&to).and_then(Weak::upgrade);
        if let Some(engine) = engine
            && process.is_none_or(|process| process == engine.process())
        {
            engine.input(Input::Received { from: from.process, addr: from.addr, packet });
        }
    }

    /// Starts a member whose leases end within a test, but not because the machine is busy.
    pub(crate) fn start(self: &Arc<Self>, number: u16) -> Member {
        self.start_with(number, Timing::lan())
    }

    /// Member number `number`, not joined yet; number 1 founds alone, the others seek it. On a busy
    /// machine a grantor may take as long as a lease to answer.
    pub(crate) fn start_with(self: &Arc<Self>, number: u16, timing: Timing) -> Member {
        let addr = |number| SocketAddr::from(([10, 0, 0, 1], number));
        let me = MemberInfo::new(draw_process().unwrap(), addr(number));
        let (sender, mut parcels) = mpsc::unbounded_channel();
        let network = Arc::new(FakeNetwork { me: Mutex::new(me.clone()), parcels: sender });
        let timing = Timing { answer: timing.member_lease, ..timing };
        let config = Config { seeds: BTreeSet::from([addr(1)]), ..Config::new(me, timing) };
        let clock = MemberClock::machine();
        let engine = Engine::new(EngineOptions { config, network, disk: None, clock });
        self.engines.lock().unwrap().insert(addr(number), Arc::downgrade(&engine));
        let lan = self.clone();
        tokio::spawn(async move {
            while let Some(parcel) = parcels.recv().await {
                lan.deliver(parcel);
            }
        });
        let member = Member::new("test".into(), engine.clone(), None);
        engine.start(&tokio::runtime::Handle::current(), async {});
        member
    }

    pub(crate) fn cut(&self, member: &Member) {
        self.cut.lock().unwrap().insert(member.addr());
    }

    /// The messages since the previous call.
    pub(crate) fn said(&self) -> Vec<Message> {
        std::mem::take(&mut *self.said.lock().unwrap())
    }

    /// Waits until `count` positions were sent to members other than the grantor, in all.
    pub(crate) async fn positions(&self, count: usize) {
        come(|| self.positions.load(Ordering::SeqCst) >= count).await;
    }

    /// Loses the selected messages from now on.
    pub(crate) fn lose(&self, what: IsLost) {
        self.lost.store(0, Ordering::SeqCst);
        *self.loses.lock().unwrap() = Some(what);
    }

    /// How many messages were lost since the last call of `lose`.
    pub(crate) fn lost(&self) -> usize {
        self.lost.load(Ordering::SeqCst)
    }

    pub(crate) fn heal(&self) {
        self.cut.lock().unwrap().clear();
    }
}

async fn happens(events: &mut Events, mut wanted: impl FnMut(&MemberEvent) -> bool) -> MemberEvent {
    loop {
        let event = tokio::time::timeout(HANG, events.next())
            .await
            .expect("it never came")
            .expect("the member lives");
        if wanted(&event) {
            return event;
        }
    }
}

/// The others continue at once, and not only when the member's lease has ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_core_panics_says_goodbye_when_its_guards_are_lost() {
    let timing = Timing::wan();
    let mut took: Vec<Duration> = Vec::new();
    // A busy machine may stand still for a lease. Without the goodbye each round takes a lease.
    while took.last().is_none_or(|took| *took >= timing.member_lease) {
        assert!(took.len() < 3, "no member waits for its lease: {took:?}");
        took.push(panicking_core_round(timing).await);
    }
}

/// Returns the time from a panic of a member's core until the others continue without the member.
async fn panicking_core_round(timing: Timing) -> Duration {
    let lan = Arc::new(Lan::default());
    let elder = lan.start_with(1, timing);
    let other = lan.start_with(2, timing);
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    let mut events = other.events();
    let guard = other.lock_service("inventory").await.unwrap().lock("a").await.unwrap();
    let waits = elder.lock_service("inventory").await.unwrap().lock("a").start();

    let began = Instant::now();
    other.break_core();
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::Left);
    let failed = happens(&mut events, |event| matches!(event, MemberEvent::Failed { .. })).await;
    assert_eq!(failed, MemberEvent::Failed { reason: "the core panicked".into() });
    let next = tokio::time::timeout(HANG, waits).await.expect("the goodbye was heard").unwrap();
    assert!(next.token() > guard.token());
    come(|| sees(&elder, 1)).await;
    let took = began.elapsed();
    assert_eq!(other.leave().await, Err(LeaveError::Stopped));
    took
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expelled_member_loses_its_guards_and_comes_back_as_a_new_process() {
    let lan = Arc::new(Lan::default());
    let elder = lan.start(1);
    let other = lan.start(2);
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    let mut events = other.events();
    let stock = other.lock_service("inventory").await.unwrap();
    let of_elder = elder.lock_service("inventory").await.unwrap();
    let guard = stock.lock("a").await.unwrap();
    let before = other.process();

    lan.cut(&other);
    assert_eq!(guard.lost().await, LostReason::Suspended);
    happens(&mut events, |event| *event == MemberEvent::Suspended).await;
    assert_eq!(stock.try_lock("b").await.unwrap_err(), TryLockError::Undecided);
    come(|| sees(&elder, 1)).await;
    // The waiter began to wait in the old incarnation. It gets the end of that incarnation as its
    // answer.
    let waiting = tokio::spawn(stock.lock("a").into_future());
    come(|| left_over(&other).2 == 1).await;
    lan.heal();

    assert_eq!(waiting.await.unwrap().unwrap_err(), LockError::Unavailable(Unavailable::Expelled));
    happens(&mut events, |event| *event == MemberEvent::Expelled).await;
    let rejoined =
        happens(&mut events, |event| matches!(event, MemberEvent::Rejoined { .. })).await;
    assert_ne!(other.process(), before);
    assert_eq!(rejoined, MemberEvent::Rejoined { process: other.process() });
    assert!(guard.fence().is_err(), "the new lease does not revive it");

    // The same handles continue to work.
    let again = stock.lock("a").await.unwrap();
    assert!(again.token() > guard.token());
    assert!(of_elder.try_lock("a").await.unwrap_err().holder().is_some());
    drop(guard);
    again.fence().unwrap();
    again.release().await.unwrap();
    of_elder.lock("a").await.unwrap().release().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_expelled_founder_joins_the_others_and_founds_no_second_cluster() {
    let lan = Arc::new(Lan::default());
    let founder = lan.start(1);
    come(|| sees(&founder, 1)).await;
    let second = lan.start(2);
    come(|| sees(&founder, 2) && sees(&second, 2)).await;
    let third = lan.start(3);
    come(|| [&founder, &second, &third].iter().all(|member| sees(member, 3))).await;
    let lineage = |member: &Member| member.status().view.map(|view: View| view.lineage);
    let first = lineage(&founder);

    lan.cut(&founder);
    come(|| sees(&second, 2) && sees(&third, 2) && second.is_elder()).await;
    lan.heal();
    come(|| [&founder, &second, &third].iter().all(|member| sees(member, 3))).await;
    assert!([&founder, &second, &third].iter().all(|member| lineage(member) == first));
    assert!(!founder.is_elder());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_held_by_another_member_is_waited_for_and_given_up_without_a_trace() {
    let lan = Arc::new(Lan::default());
    let elder = lan.start(1);
    let other = lan.start(2);
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    let here = elder.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    let nothing = || left_over(&elder) == NOTHING && left_over(&other) == NOTHING;

    // The lock is free, and another member grants it: the grant is on its way at some polls.
    drop(here.lock("a").await.unwrap());
    poll_k_then_drop(async || there.lock("a").into_future(), async |_| come(nothing).await).await;
    poll_k_then_drop(async || there.try_lock("a").into_future(), async |_| come(nothing).await)
        .await;

    // Another guard holds the lock for a while.
    poll_a_wait_then_drop(
        async || {
            let guard = here.lock("a").lease(5 * MS).await.unwrap();
            let waiting = there.lock("a").into_future();
            async move {
                let result = waiting.await;
                drop(guard);
                result
            }
        },
        async |_| come(nothing).await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_goodbye_is_heard_and_the_locks_go_to_the_next() {
    let lan = Arc::new(Lan::default());
    let elder = lan.start(1);
    let other = lan.start(2);
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    let guard = elder.lock_service("inventory").await.unwrap().lock("a").await.unwrap();
    let waiting =
        tokio::spawn(other.lock_service("inventory").await.unwrap().lock("a").into_future());
    come(|| left_over(&other).2 == 1).await;
    elder.leave().await.unwrap();
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::Left);
    let next = waiting.await.unwrap().unwrap();
    assert!(next.token() > guard.token());
    assert!(other.is_elder());
    next.release().await.unwrap();
    other.leave().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_whose_clock_is_slewed_loses_its_guards_and_comes_back_when_it_is_steady() {
    let lan = Arc::new(Lan::default());
    let elder = lan.start(1);
    let other = lan.start(2);
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    let mut events = other.events();
    let stock = other.lock_service("inventory").await.unwrap();
    let guard = stock.lock("a").await.unwrap();
    let waiting =
        tokio::spawn(elder.lock_service("inventory").await.unwrap().lock("a").into_future());
    come(|| left_over(&elder).2 == 1).await;

    let mut clocks = Clocks::new();
    for _ in 0..10 {
        other.look_at_clocks(clocks.run(EVERY, 10_000));
    }
    guard.fence().expect("within the bound");
    // No lease counts by the wall clock.
    for seconds in [60, -60] {
        clocks.step_wall(seconds);
        other.look_at_clocks(clocks.run(EVERY, 0));
        let jumped = MemberEvent::WallClockJumped { millis: seconds * 1_000 };
        happens(&mut events, |event| *event == jumped).await;
        guard.fence().expect("a jump of the wall clock ends no hold");
    }
    for _ in 0..3 {
        other.look_at_clocks(clocks.run(EVERY, 80_000));
    }
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::Suspended);
    assert_eq!(other.connection_status(), crate::ConnectionStatus::Suspended);
    // An operator gets the same answer, at once.
    let asked = Inbox::status(&*other.handle_engine(), 10).expect("it is there");
    for status in [other.status(), asked] {
        assert_eq!(crate::StatusReport::new(&status).state, "suspended");
    }
    let told =
        happens(&mut events, |event| matches!(event, MemberEvent::ClockDistrusted { .. })).await;
    let MemberEvent::ClockDistrusted { boottime, raw } = told else { unreachable!() };
    assert!(boottime > raw + raw / 50, "{boottime:?} {raw:?}");

    // The member is silent: the others continue without it when its lease is surely over by their
    // clocks.
    let next = tokio::time::timeout(HANG, waiting).await.expect("in time").unwrap().unwrap();
    next.fence().unwrap();
    // The clock is slewed further, and the member does not come back.
    for _ in 0..20 {
        other.look_at_clocks(clocks.run(EVERY, 80_000));
    }
    assert!(stock.try_lock("b").await.is_err());
    while other.connection_status() != crate::ConnectionStatus::Connected {
        other.look_at_clocks(clocks.run(EVERY, 100));
        tokio::time::sleep(5 * MS).await;
    }
    happens(&mut events, |event| *event == MemberEvent::ClockTrusted).await;
    assert!(guard.fence().is_err(), "it is lost for good");
    assert!(stock.try_lock("a").await.unwrap_err().holder().is_some());
    next.release().await.unwrap();
    stock.lock("a").await.unwrap().release().await.unwrap();
}
