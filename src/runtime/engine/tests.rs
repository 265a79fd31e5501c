//! The engine between two turns, which the public API cannot show.

use super::super::clock;
use super::super::hold_cell::HoldCell;
use super::super::local_grants::LocalGrants;
use super::super::member_clock::MemberClock;
use super::super::network::Outbox;
use super::super::telemetry::TelemetryNote;
use super::*;
use crate::protocol::{Event, VoteSecret};
use crate::protocol::{
    LockName, LockRequest, LostReason, Metadata, Notice, Outcome, OwnerId, Packet, RequestId, Slot,
    Timing, ViewNumber, Wait, Want,
};
use crate::service::tests::{HANG, come};
use std::net::Ipv4Addr;
use std::pin::pin;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker};
use tokio::sync::broadcast::error::TryRecvError;

struct SinkNetwork;

impl Outbox for SinkNetwork {
    fn send(&self, _to: SocketAddr, _process: Option<ProcessId>, _packet: Packet) {}
}

impl Network for SinkNetwork {}

/// A member alone, without a timer task.
fn engine() -> Arc<Engine> {
    let me = MemberInfo::new(ProcessId(7), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let config = Config { found_alone: true, ..Config::new(me, Timing::lan()) };
    let engine = Engine::new(EngineOptions {
        config,
        network: Arc::new(SinkNetwork),
        disk: None,
        clock: MemberClock::machine(),
    });
    engine.input(Input::Timer);
    assert!(engine.phase().borrow().ready);
    engine
}

fn ask(engine: &Engine, wait: Wait) -> (RequestId, Option<Answer>) {
    let (request, service) = (RequestId(0), ServiceName::new("inventory").unwrap());
    let name = LockName::new(b"a").unwrap();
    let (want, owner, metadata) = (Want::Lock(name), OwnerId::default(), Metadata::default());
    let mut command = Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request,
        service,
        wait,
        lease: None,
        lock: LockRequest { want, owner, revocable: false, metadata },
    };
    let (request, answer, _) = engine.request(&mut command, &AtomicBool::new(false), None);
    (request, answer)
}

#[test]
fn a_release_while_another_thread_has_the_lock_is_done_when_that_thread_leaves_it() {
    let engine = engine();
    let (request, answer) = ask(&engine, Wait::Forever);
    assert!(matches!(answer, Some(Ok(_))));
    engine.turn(|state, _| {
        std::thread::scope(|scope| {
            scope.spawn(|| engine.release_request(request, clock::now())).join().unwrap()
        });
        assert_eq!(state.holds.len(), 1, "it neither waited nor went ahead");
    });
    assert!(engine.deferred.is_empty());
    assert!(engine.enter().0.holds.is_empty());
}

#[test]
fn the_timer_task_is_woken_when_its_deadline_comes_nearer() {
    let engine = engine();
    let (_held, answer) = ask(&engine, Wait::Forever);
    assert!(matches!(answer, Some(Ok(_))));
    engine.enter().0.armed = Time::MAX;
    let (_waits, answer) = ask(&engine, Wait::AtMost(Duration::from_millis(1)));
    assert!(answer.is_none());
    let mut rearmed = pin!(engine.rearm.notified());
    assert!(rearmed.as_mut().poll(&mut Context::from_waker(Waker::noop())) == Poll::Ready(()));
    let (state, _gate) = engine.enter();
    assert_eq!(state.armed, state.deadline());
}

#[test]
fn a_core_that_panics_ends_every_hold_and_every_wait() {
    let engine = engine();
    let (_held, answer) = ask(&engine, Wait::Forever);
    let Some(Ok(hold)) = answer else { panic!("not granted") };
    let (waits, answer) = ask(&engine, Wait::Forever);
    assert!(answer.is_none());
    engine.break_core();
    assert_eq!(hold.fence(), Err(LostReason::Left));
    let Some(Err(outcome)) = engine.poll(waits, Waker::noop()) else { panic!("not answered") };
    assert_eq!(*outcome, Outcome::Closed(LostReason::Left));
    assert_eq!(engine.phase().borrow().closed, Some(EngineClosed::Broken));
    engine.release_request(waits, clock::now());
}

/// Records the end of the member lease at each sent packet.
#[derive(Default)]
struct Watcher {
    lease: std::sync::OnceLock<Arc<crate::runtime::hold_cell::MemberLease>>,
    seen: Mutex<Vec<Time>>,
}

impl Outbox for Watcher {
    fn send(&self, _to: SocketAddr, _process: Option<ProcessId>, _packet: Packet) {
        if let Some(lease) = self.lease.get() {
            lock(&self.seen).push(lease.end());
        }
    }
}

impl Network for Watcher {}

#[test]
fn an_elder_that_is_a_quorum_alone_ends_its_claim_before_it_tells_of_others() {
    let info = |process, port| {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        MemberInfo::new(ProcessId(process), addr)
    };
    let config = Config { found_alone: true, ..Config::new(info(7, 1), Timing::lan()) };
    let network = Arc::new(Watcher::default());
    let clock = MemberClock::machine();
    let engine = Engine::new(EngineOptions { config, network: network.clone(), disk: None, clock });
    engine.input(Input::Timer);
    let lease = engine.turn(|state, _| state.lease.clone());
    assert_eq!(lease.end(), Time::MAX);
    assert!(network.lease.set(lease.clone()).is_ok());
    for (process, port) in [(8, 2), (9, 3)] {
        let me = info(process, port);
        let (from, addr) = (me.process, me.addr);
        let heard = engine.status().view.expect("it has founded").number;
        let packet = Notice::Join { me, heard }.into();
        engine.input(Input::Received { from, addr, packet });
        // The beat shows the joiner, which is no longer a learner.
        lock(&network.seen).clear();
        let view = engine.status().view.expect("it has founded").number;
        let packet = Notice::Beat { view, beat: 1, pulse: 0, confirmed: 0, kept: true }.into();
        engine.input(Input::Received { from, addr, packet });
    }
    assert_eq!(
        engine.status().view.map(|view| view.members.len()),
        Some(3),
        "alone it decides that"
    );
    assert_ne!(lease.end(), Time::MAX, "among three it is not a quorum");
    let seen = lock(&network.seen).clone();
    assert!(!seen.is_empty() && seen.iter().all(|end| *end != Time::MAX), "{seen:?}");
}

/// Refuses every vote while `refuses` is set, and records the calling threads.
struct RefusingStorage {
    refuses: Arc<AtomicBool>,
    asked_by: Arc<Mutex<Vec<std::thread::ThreadId>>>,
}

impl VoteStorage for RefusingStorage {
    fn keep(&self, _vote: &crate::protocol::StoredVote) -> io::Result<()> {
        lock(&self.asked_by).push(std::thread::current().id());
        match self.refuses.load(Ordering::Acquire) {
            true => Err(io::ErrorKind::StorageFull.into()),
            false => Ok(()),
        }
    }
}

#[tokio::test]
async fn a_disk_that_refuses_is_told_and_tried_again_by_a_thread_of_its_own() {
    let me = MemberInfo::new(ProcessId(7), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let config = Config {
        found_alone: true,
        vote_secret: Some(VoteSecret::new([1; 32])),
        ..Config::new(me, Timing::fast())
    };
    let refuses = Arc::new(AtomicBool::new(true));
    let asked_by = Arc::new(Mutex::new(Vec::new()));
    let disk: Box<dyn VoteStorage> =
        Box::new(RefusingStorage { refuses: refuses.clone(), asked_by: asked_by.clone() });
    let engine = Engine::new(EngineOptions {
        config,
        network: Arc::new(SinkNetwork),
        disk: Some(disk),
        clock: MemberClock::machine(),
    });
    let mut events = engine.subscribe();
    engine.start(&tokio::runtime::Handle::current(), async {});
    assert!(matches!(events.recv().await, Ok(Announcement::VoteNotStored(_))));
    assert!(!engine.phase().borrow().ready, "nothing is founded before its view is kept");
    assert!(engine.disk_trouble().is_some());
    refuses.store(false, Ordering::Release);
    assert!(matches!(events.recv().await, Ok(Announcement::VoteStored)));
    engine.phase().wait_for(|phase| phase.ready).await.expect("the engine lives");
    let here = std::thread::current().id();
    assert!(lock(&asked_by).len() >= 2 && lock(&asked_by).iter().all(|thread| *thread != here));
    engine.close(EngineClosed::Unheard);
    engine.phase().wait_for(|phase| phase.stopped).await.expect("the engine lives");
}

/// Holds each write back while `is_held` is set, and counts the writes that have begun.
#[derive(Default)]
struct HeldBack {
    is_held: std::sync::Mutex<bool>,
    changed: std::sync::Condvar,
    begun: watch::Sender<u64>,
}

impl HeldBack {
    fn hold(&self, is_held: bool) {
        *self.is_held.lock().unwrap() = is_held;
        self.changed.notify_all();
    }
}

impl VoteStorage for Arc<HeldBack> {
    fn keep(&self, _vote: &crate::protocol::StoredVote) -> io::Result<()> {
        self.begun.send_modify(|begun| *begun += 1);
        let is_held = self.is_held.lock().unwrap();
        drop(self.changed.wait_while(is_held, |is_held| *is_held).unwrap());
        Ok(())
    }
}

/// Records each sent packet, with the end of the member lease at that time.
#[derive(Default)]
struct Listener {
    lease: std::sync::OnceLock<Arc<crate::runtime::hold_cell::MemberLease>>,
    sent: Mutex<Vec<(Time, Packet)>>,
}

impl Outbox for Listener {
    fn send(&self, _to: SocketAddr, _process: Option<ProcessId>, packet: Packet) {
        let end = self.lease.get().map_or(Time::ZERO, |lease| lease.end());
        lock(&self.sent).push((end, packet));
    }
}

impl Network for Listener {}

/// Returns whether the packet shows that its sender has voted for the view after `view`.
fn tells_of_vote(packet: &Packet, view: ViewNumber) -> bool {
    match packet {
        Packet::Notice(notice) => match &**notice {
            Notice::Accepted { .. } | Notice::Promise { .. } => true,
            Notice::FullView { view: told, .. } => told.number > view,
            Notice::Pulse { view: told, .. } => *told > view,
            _ => false,
        },
        Packet::Linked { view: told, .. } | Packet::Ack { view: told, .. } => *told > view,
        _ => false,
    }
}

/// Packets of other members arrive as soon as the port listens.
#[tokio::test]
async fn a_vote_that_is_asked_for_before_the_writer_starts_is_written() {
    let me = MemberInfo::new(ProcessId(7), SocketAddr::from((Ipv4Addr::LOCALHOST, 1)));
    let config = Config {
        found_alone: true,
        vote_secret: Some(VoteSecret::new([1; 32])),
        ..Config::new(me, Timing::fast())
    };
    let disk = Arc::new(HeldBack::default());
    let engine = Engine::new(EngineOptions {
        config,
        network: Arc::new(Listener::default()),
        disk: Some(Box::new(disk.clone())),
        clock: MemberClock::machine(),
    });
    let asked = || engine.turn(|state, _| state.unwritten.is_some());
    come(|| {
        engine.input(Input::Timer);
        asked()
    })
    .await;
    engine.start(&tokio::runtime::Handle::current(), async {});
    let ready = async { engine.phase().wait_for(|phase| phase.ready).await.is_ok() };
    assert!(tokio::time::timeout(HANG, ready).await.expect("its vote is written"));
}

#[tokio::test]
async fn lone_elder_tells_of_no_vote_before_it_is_written() {
    let info = |process, port| {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        MemberInfo::new(ProcessId(process), addr)
    };
    let timing = Timing::lan();
    let config = Config {
        found_alone: true,
        vote_secret: Some(VoteSecret::new([1; 32])),
        ..Config::new(info(7, 1), timing)
    };
    let (network, disk) = (Arc::new(Listener::default()), Arc::new(HeldBack::default()));
    let engine = Engine::new(EngineOptions {
        config,
        network: network.clone(),
        disk: Some(Box::new(disk.clone())),
        clock: MemberClock::machine(),
    });
    // A task of the program, which must continue even if the disk fails.
    let ticks = watch::Sender::new(0_u64);
    let (own, mut ticked) = (ticks.clone(), ticks.subscribe());
    let program = tokio::spawn(async move {
        loop {
            tokio::time::sleep(Duration::from_millis(1)).await;
            own.send_modify(|ticks| *ticks += 1);
        }
    });
    engine.start(&tokio::runtime::Handle::current(), async {});
    engine.phase().wait_for(|phase| phase.ready).await.expect("the engine lives");
    let lease = engine.turn(|state, _| state.lease.clone());
    assert!(network.lease.set(lease.clone()).is_ok());
    let (_held, answer) = ask(&engine, Wait::Forever);
    let Some(Ok(hold)) = answer else { panic!("not granted") };
    let view = || engine.status().view.expect("it has founded");
    let mut begun = disk.begun.subscribe();
    for (process, port) in [(8, 2), (9, 3)] {
        let me = info(process, port);
        let (from, addr) = (me.process, me.addr);
        let packet = Notice::Join { me, heard: view().number }.into();
        engine.input(Input::Received { from, addr, packet });
        while !view().contains(from) {
            ticked.changed().await.expect("the program goes on");
        }
        assert_eq!(lease.end(), Time::MAX, "a learner has no vote");
        // The beat ends the state of a learner. The first joiner makes two members, the second one
        // three, of which one alone is not a quorum.
        let is_last = process == 9;
        disk.hold(is_last);
        lock(&network.sent).clear();
        begun.mark_unchanged();
        let before = view();
        let packet =
            Notice::Beat { view: before.number, beat: 1, pulse: 0, confirmed: 0, kept: true };
        engine.input(Input::Received { from, addr, packet: packet.into() });
        begun.changed().await.expect("a write begins");
        if is_last {
            let (began, before_hold) = (engine.now(), *ticked.borrow());
            while engine.now() < began + timing.member_lease * 3 / 2 {
                ticked.changed().await.expect("the program goes on");
                assert_ne!(lease.end(), Time::MAX, "it has asked for votes");
                hold.fence().expect("no other elder can be chosen without this vote");
            }
            assert!(*ticked.borrow() > before_hold + 10);
            assert_eq!(view().number, before.number);
            for (end, packet) in &*lock(&network.sent) {
                assert_ne!(*end, Time::MAX, "the claim ends before anything leaves: {packet:?}");
                assert!(!tells_of_vote(packet, before.number), "{packet:?}");
            }
        }
        disk.hold(false);
        while view().number == before.number {
            ticked.changed().await.expect("the program goes on");
        }
    }
    let last = view().number;
    let tells = |(_, packet): &(Time, Packet)| tells_of_vote(packet, ViewNumber(last.0 - 1));
    while !lock(&network.sent).iter().any(tells) {
        ticked.changed().await.expect("the program goes on");
    }
    assert!(lock(&network.sent).iter().all(|(end, _)| *end != Time::MAX));
    // Neither of the other members answers.
    while hold.fence().is_ok() {
        ticked.changed().await.expect("the program goes on");
    }
    assert_eq!(hold.fence(), Err(LostReason::Suspended));
    assert!(engine.now() >= lease.end());
    program.abort();
}

#[test]
fn a_reader_of_statuses_begins_with_the_present_one_and_hears_each_change_once() {
    let engine = engine();
    let (first, mut changes) = engine.subscribe_status();
    assert_eq!(
        (first, engine.connection_status()),
        (ConnectionStatus::Connected, ConnectionStatus::Connected)
    );
    for status in [ConnectionStatus::Suspended, ConnectionStatus::Suspended, ConnectionStatus::Lost]
    {
        // At its end the turn notes the true status.
        engine.turn(|state, effects| state.note_status(status, effects));
    }
    let mut heard = std::iter::from_fn(|| changes.try_recv().ok());
    let (suspended, connected, lost) =
        (ConnectionStatus::Suspended, ConnectionStatus::Connected, ConnectionStatus::Lost);
    assert!(heard.by_ref().eq([suspended, connected, suspended, connected, lost, connected]));
    // The guards are lost, though the same step resumes the member.
    engine.turn(|state, effects| state.on_event(Event::Suspended, &mut None, effects));
    assert!(heard.by_ref().eq([suspended, connected]));
    engine.close(EngineClosed::Broken);
    assert_eq!(
        (changes.try_recv(), engine.connection_status()),
        (Ok(ConnectionStatus::Lost), ConnectionStatus::Lost)
    );
    assert_eq!(engine.subscribe_status().0, ConnectionStatus::Lost);
}

/// The local grants of a service that this member grants.
fn local_grants(engine: &Engine) -> Arc<LocalGrants> {
    // The first request makes the member the grantor. The second one lets it learn how long nothing
    // is due.
    for _ in 0..2 {
        let (request, _) = ask(engine, Wait::Forever);
        engine.release_request(request, clock::now());
    }
    engine.local_grants(&ServiceName::new("inventory").unwrap())
}

fn take(engine: &Engine, local_grants: &Arc<LocalGrants>) -> Option<Arc<HoldCell>> {
    engine.take(
        local_grants,
        &LockName::new(b"free").unwrap(),
        OwnerId::default(),
        &AtomicBool::new(false),
    )
}

/// An event that ends all earlier requests must end the local grant, too.
#[test]
fn a_local_grant_gets_a_lower_number_than_the_command_that_finds_it() {
    let engine = engine();
    // On a busy machine something may be due before the lock is taken, so that nothing is offered.
    let taken = (0..1000).find_map(|_| take(&engine, &local_grants(&engine)));
    let taken = taken.expect("it is offered");
    assert_eq!(taken.request(), None);
    let (asked, _) = ask(&engine, Wait::Forever);
    assert!(taken.request().is_some_and(|taken| taken < asked));
}

/// Otherwise each thread that meets a turn would take one, which other threads meet, without an
/// end.
#[test]
fn a_call_for_a_free_lock_during_a_turn_waits_for_its_end_and_takes_no_local_grant() {
    let engine = engine();
    // On a busy machine something may be due before the turn ends, so that nothing is offered.
    let taken = (0..100).find_map(|_| {
        let local_grants = local_grants(&engine);
        std::thread::scope(|scope| {
            let turn = engine.enter();
            let taking = scope.spawn(|| take(&engine, &local_grants));
            // A thread that does not wait returns with nothing in less time.
            std::thread::sleep(Duration::from_millis(20));
            drop(turn);
            taking.join().unwrap()
        })
    });
    assert_eq!(taken.expect("it waits for the end of the turn").request(), None);
}

/// No subscriber is asked here: levels are those of the whole process, and another test has one.
#[test]
fn log_lines_are_written_after_unlocking() {
    let engine = engine();
    let left = engine.turn(|state, effects| {
        let mut over = None;
        let (theirs, ours) = (Slot(1 << 40), Slot(1));
        state.on_event(Event::WrongClock { theirs, ours }, &mut over, effects);
        effects.notes.iter().filter(|note| matches!(note, TelemetryNote::Line(_))).count()
    });
    assert_eq!(left, 1, "the line is left for after the turn");
}

/// A waker that counts its calls. It panics, or does not.
struct CountedWaker {
    panics: bool,
    calls: std::sync::atomic::AtomicUsize,
}

impl CountedWaker {
    fn new(panics: bool) -> Arc<CountedWaker> {
        Arc::new(CountedWaker { panics, calls: 0.into() })
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::SeqCst)
    }
}

impl std::task::Wake for CountedWaker {
    fn wake(self: Arc<Self>) {
        self.calls.fetch_add(1, Ordering::SeqCst);
        assert!(!self.panics, "on purpose: a waker of the program panics");
    }
}

#[test]
fn a_waker_that_panics_keeps_no_other_caller_waiting() {
    let engine = engine();
    let (_held, answer) = ask(&engine, Wait::Forever);
    let Some(Ok(hold)) = answer else { panic!("not granted") };
    let wakers = [true, false, true, false].map(CountedWaker::new);
    let waits = wakers.each_ref().map(|waker| {
        let (request, answer) = ask(&engine, Wait::Forever);
        assert!(answer.is_none());
        assert!(engine.poll(request, &waker.clone().into()).is_none());
        request
    });
    let mut lost = pin!(hold.lost());
    let told = CountedWaker::new(true);
    assert!(lost.as_mut().poll(&mut Context::from_waker(&told.clone().into())).is_pending());
    let (mut events, reader) = (engine.subscribe(), CountedWaker::new(true));
    let mut next = Box::pin(events.recv());
    assert!(next.as_mut().poll(&mut Context::from_waker(&reader.clone().into())).is_pending());
    let phase = engine.phase();

    engine.leave();

    assert_eq!(wakers.map(|waker| waker.calls()), [1; 4], "each is woken, once");
    assert_eq!((told.calls(), reader.calls()), (1, 1));
    for request in waits {
        assert!(engine.poll(request, Waker::noop()).is_some());
    }
    assert_eq!(phase.borrow().closed, Some(EngineClosed::Heard));
    drop(next);
    while let Ok(_) | Err(TryRecvError::Lagged(_)) = events.try_recv() {}
    let end = events.try_recv().err();
    assert_eq!(end, Some(TryRecvError::Closed), "no reader waits for more");
}

#[test]
fn an_alarm_that_panics_keeps_no_other_alarm_silent() {
    let alarms = Alarms::default();
    let wakers = [true, false].map(CountedWaker::new);
    for (number, waker) in wakers.iter().enumerate() {
        let key = (Time::ZERO, number as u64);
        lock(&alarms.0).wakers.insert(key, waker.clone().into());
    }
    alarms.ring(Time::ZERO);
    assert_eq!(wakers.map(|waker| waker.calls()), [1, 1]);
}

#[test]
fn a_log_line_that_panics_leaves_the_turn_and_the_next_lines() {
    let engine = engine();
    let written = Arc::new(AtomicBool::new(false));
    let (then, mark) = (written.clone(), &written);
    let result = engine.turn(|_, effects| {
        effects.log(|| panic!("on purpose: a log subscriber panics"));
        effects.log(move || then.store(true, Ordering::SeqCst));
        7
    });
    assert_eq!((result, mark.load(Ordering::SeqCst)), (7, true));
}

#[test]
fn a_caller_that_was_answered_before_the_core_panics_is_woken() {
    let engine = engine();
    let (held, answer) = ask(&engine, Wait::Forever);
    assert!(matches!(answer, Some(Ok(_))));
    let (waits, answer) = ask(&engine, Wait::Forever);
    assert!(answer.is_none());
    let waker = CountedWaker::new(false);
    assert!(engine.poll(waits, &waker.clone().into()).is_none());
    let turn = std::panic::AssertUnwindSafe(|| {
        engine.turn(|state, effects| {
            state.obey(Command::Release { request: held }, clock::now(), effects);
            panic!("on purpose: the core breaks")
        })
    });
    assert!(std::panic::catch_unwind(turn).is_err());
    assert_eq!(waker.calls(), 1);
}
