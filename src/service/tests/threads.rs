//! The local path from several threads, in orders that shuttle chooses: `--cfg elderlock_shuttle`,
//! see `runtime/sync.rs`. The engine, its timer task, requests, guards and events are those that
//! ship. Only the clock is a stand-in, and there is no network.
//!
//! Each story runs in tens of thousands of orders. Half of them are drawn at every step, half by
//! PCT (few switches, at the worst places). Shuttle reports a thread that no other wakes as a
//! deadlock; the stories assert everything else. A failure prints its schedule, which
//! `shuttle::replay` runs again.

use super::*;
use crate::protocol::{Config, MemberInfo, Packet, ProcessId, ServiceName, Timing};
use crate::runtime::clock::simulated::advance;
use crate::runtime::engine::{Engine, EngineClosed, EngineOptions};
use crate::runtime::member_clock::MemberClock;
use crate::runtime::network::{Network, Outbox};
use crate::runtime::sync::{ThreadMutant, plant};
use crate::{EnterError, Owner, ReadWriteLock, Unavailable};
use shuttle::future::{JoinHandle, block_on};
use shuttle::scheduler::{PctScheduler, RandomScheduler, UncontrolledNondeterminismCheckScheduler};
use shuttle::{Runner, thread};
use std::collections::BTreeSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicI64};

/// How many orders of each kind a story runs in.
const ORDERS: usize = 15_000;

/// How many orders of each kind must find a planted break. A break that needs all of [`ORDERS`]
/// would be found by luck only.
const ORDERS_TO_FIND: usize = 2_000;

/// The seed of the orders; `SHUTTLE_RANDOM_SEED` sets another.
const SEED: u64 = 20_260_101;

/// Far more steps than the timer task needs for a turn, when every second step is its own.
const STEPS_OF_A_TURN: usize = 2_000;

/// The lease of a lock that is to end, and a time after its end.
const LEASE: Duration = Duration::from_millis(10);
const LATER: Duration = Duration::from_millis(20);

struct ThreadTestNetwork;

impl Outbox for ThreadTestNetwork {
    fn send(&self, _to: SocketAddr, _process: Option<ProcessId>, _packet: Packet) {}
}

impl Network for ThreadTestNetwork {}

/// A member alone, with its timer task.
struct Alone {
    engine: Arc<Engine>,
    stock: LockService,
    timer: JoinHandle<()>,
}

/// An engine that has not been started.
fn engine() -> Arc<Engine> {
    let me = MemberInfo::new(ProcessId(7), SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
    let config = Config { found_alone: true, ..Config::new(me, Timing::lan()) };
    Engine::new(EngineOptions {
        config,
        network: Arc::new(ThreadTestNetwork),
        disk: None,
        clock: MemberClock::machine(),
    })
}

fn alone() -> Alone {
    let engine = engine();
    let timer = shuttle::future::spawn(engine.run(async {}));
    assert!(engine.phase().borrow().ready);
    let stock = LockService::new(engine.clone(), ServiceName::new("inventory").unwrap());
    Alone { engine, stock, timer }
}

impl Alone {
    /// Checks that every released hold is gone, without a further turn. Then the member leaves.
    fn end(self) {
        self.rest();
        for service in self.engine.status().services {
            assert_eq!((service.held_here, service.locks.len(), service.waiting_here), NOTHING);
        }
        self.engine.leave();
        assert_eq!(self.until_gone(), Some(EngineClosed::Heard));
    }

    /// Waits for the timer task: all other threads have ended, but it may be in the middle of a
    /// turn.
    fn rest(&self) {
        for _ in 0..STEPS_OF_A_TURN {
            if self.engine.deferred_count() == 0 {
                assert_eq!(
                    self.engine.kept(),
                    (0, 0),
                    "slots and holds that no caller wants any more"
                );
                return;
            }
            thread::yield_now();
        }
        panic!("no thread empties the deferred queue");
    }

    fn until_gone(self) -> Option<EngineClosed> {
        let mut phase = self.engine.phase();
        let closed =
            block_on(phase.wait_for(|phase| phase.stopped)).expect("the engine lives").closed;
        self.rest();
        block_on(self.timer).expect("the timer task has ended");
        closed
    }
}

fn lock(stock: &LockService) -> Result<Guard, LockError> {
    block_on(stock.lock("a").into_future())
}

fn lock_with_lease(stock: &LockService) -> Guard {
    block_on(stock.lock("a").lease(LEASE).into_future()).expect("it is granted")
}

/// Runs `works` on threads of their own, and waits for all.
fn together<const N: usize>(works: [Box<dyn FnOnce() + Send>; N]) {
    let threads = works.map(thread::spawn);
    for thread in threads {
        thread.join().expect("a thread that panics ends the test");
    }
}

fn on<W: FnOnce() + Send + 'static>(work: W) -> Box<dyn FnOnce() + Send> {
    Box::new(work)
}

// The stories begin here.

fn share_one_lock() {
    let alone = alone();
    let (inside, last) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicI64::new(0)));
    together([(); 3].map(|()| {
        let (stock, inside, last) = (alone.stock.clone(), inside.clone(), last.clone());
        on(move || {
            for _ in 0..2 {
                let guard = lock(&stock).expect("each thread gets it");
                assert!(!inside.swap(true, Ordering::SeqCst), "two threads hold one lock");
                let token = guard.fence().expect("nothing takes it away").as_i64();
                assert!(last.swap(token, Ordering::SeqCst) < token, "tokens rise");
                inside.store(false, Ordering::SeqCst);
            }
        })
    }));
    alone.end();
}

fn release_while_another_has_the_engine() {
    let alone = alone();
    let guard = lock(&alone.stock).expect("it is free");
    let other = block_on(alone.stock.lock("b").into_future()).expect("it is free");
    drop(alone.engine.status()); // from here on the core has absorbed them
    let (engine, stock) = (alone.engine.clone(), alone.stock.clone());
    together([
        on(move || drop(guard)),
        on(move || drop(other)),
        on(move || {
            drop(engine.status());
            match block_on(stock.try_lock("a").into_future()) {
                Ok(_) | Err(TryLockError::Held(_)) => {}
                Err(other) => panic!("{other:?}"),
            }
        }),
    ]);
    alone.end();
}

/// Some threads read the core beside each other, and some change it.
fn take_locks_beside_each_other() {
    let alone = alone();
    drop(lock(&alone.stock).expect("it is free"));
    let last = Arc::new(AtomicI64::new(0));
    let (engine, service) = (alone.engine.clone(), alone.stock.name().to_owned());
    let works = ["a", "b", "a"].map(|name| {
        let (stock, last) = (alone.stock.clone(), last.clone());
        on(move || {
            for _ in 0..2 {
                // A held name is skipped, so that all locks are free ones.
                if let Ok(guard) = block_on(stock.try_lock(name).into_future()) {
                    let token = guard.fence().expect("nothing takes it away").as_i64();
                    if name == "a" {
                        assert!(
                            last.swap(token, Ordering::SeqCst) < token,
                            "tokens of one name rise"
                        );
                    }
                    guard.extend(LEASE).expect("the holder extends it");
                }
            }
        })
    });
    let looks = on(move || {
        for status in [engine.status(), engine.status()] {
            let seen = status
                .services
                .iter()
                .find(|seen| seen.service.as_str() == service)
                .expect("it is granted");
            assert_eq!(seen.held_here, seen.locks.len(), "holder and grantor know of the same");
        }
    });
    let [first, second, third] = works;
    together([first, second, third, looks]);
    alone.end();
}

fn release_while_others_look_at_the_core() {
    let alone = alone();
    drop(lock(&alone.stock).expect("it is free"));
    let guard = lock(&alone.stock).expect("it is free");
    drop(alone.engine.status()); // from here on the core has absorbed it
    let looks = ["b", "c"].map(|name| {
        let stock = alone.stock.clone();
        on(move || drop(block_on(stock.lock(name).into_future())))
    });
    let [first, second] = looks;
    together([on(move || drop(guard)), first, second]);
    alone.end();
}

fn drop_a_wait_while_its_grant_arrives() {
    let alone = alone();
    let guard = lock(&alone.stock).expect("it is free");
    let (impatient, patient) = (alone.stock.clone(), alone.stock.clone());
    together([
        on(move || drop(guard)),
        on(move || {
            let mut wait = pin!(impatient.lock("a").into_future());
            // The grant may be there, on its way, or far: the future is dropped in any case.
            let _ = poll_once(wait.as_mut()).is_ready() || poll_once(wait.as_mut()).is_ready();
        }),
        on(move || drop(lock(&patient).expect("it is released"))),
    ]);
    alone.end();
}

fn wait_with_another_waker_than_at_first() {
    let alone = alone();
    let guard = lock(&alone.stock).expect("it is free");
    let stock = alone.stock.clone();
    together([
        on(move || drop(guard)),
        on(move || {
            let mut wait = Box::pin(stock.lock("a").into_future());
            if let Poll::Ready(guard) = poll_once(wait.as_mut()) {
                return drop(guard.expect("it is granted"));
            }
            // The wait continues at another thread, as if its task had moved.
            thread::spawn(move || drop(block_on(wait).expect("it is granted")))
                .join()
                .expect("it has ended");
        }),
    ]);
    alone.end();
}

fn release_while_the_lease_ends() {
    let alone = alone();
    let guard = lock_with_lease(&alone.stock);
    let stock = alone.stock.clone();
    together([
        on(move || {
            let before = guard.fence();
            match block_on(guard.release()) {
                Ok(()) => assert!(before.is_ok(), "a guard that failed once fails for good"),
                Err(error) => assert_eq!(error, ReleaseError::Lost(LostReason::LeaseEnded)),
            }
        }),
        on(|| advance(LATER)),
        on(move || drop(lock(&stock).expect("it is free in the end"))),
    ]);
    alone.end();
}

/// No guard releases the hold: only the timer task does. It must learn of the lease when the lock
/// is granted.
fn hold_until_the_lease_ends() {
    let alone = alone();
    let (held, stock) = (alone.stock.clone(), alone.stock.clone());
    let guard = lock_with_lease(&held);
    let guard = Arc::new(guard);
    let first = guard.clone();
    together([
        on(|| advance(LATER)),
        on(move || {
            let second = lock(&stock).expect("it is free in the end");
            assert!(first.fence().is_err(), "told before it is given on");
            assert!(second.token() > first.token());
        }),
        on(move || assert_eq!(block_on(guard.lost()), LostReason::LeaseEnded)),
    ]);
    alone.end();
}

fn extend_while_the_lease_ends() {
    let alone = alone();
    let guard = lock_with_lease(&alone.stock);
    let (engine, stock) = (alone.engine.clone(), alone.stock.clone());
    together([
        on(move || match guard.extend(Duration::from_secs(1)) {
            Ok(()) => {
                assert!(guard.fence().is_ok(), "extended, and nothing has passed that would end it")
            }
            Err(error) => {
                assert!(error.is_lost());
                assert!(guard.fence().is_err(), "a guard that failed once fails for good");
            }
        }),
        on(|| advance(LATER)),
        on(move || {
            drop(engine.status());
            drop(lock(&stock).expect("it is free in the end"));
        }),
    ]);
    alone.end();
}

fn leave_while_others_hold_and_wait() {
    let alone = alone();
    let guard = lock(&alone.stock).expect("it is free");
    let mut events = Events::new(alone.engine.clone());
    let (engine, stock) = (alone.engine.clone(), alone.stock.clone());
    together([
        on(move || engine.leave()),
        on(move || {
            assert_eq!(block_on(guard.lost()), LostReason::Left);
            assert_eq!(block_on(guard.release()), Err(ReleaseError::Lost(LostReason::Left)));
        }),
        on(move || assert_eq!(lock(&stock).err(), Some(LockError::Unavailable(Unavailable::Left)))),
        on(move || {
            let mut last = None;
            while let Some(event) = block_on(events.next()) {
                last = Some(event);
            }
            assert_eq!(last, Some(MemberEvent::Left), "nothing follows it");
        }),
    ]);
    assert_eq!(alone.until_gone(), Some(EngineClosed::Heard));
}

fn tell_events_of_several_threads() {
    let alone = alone();
    let mut events = Events::new(alone.engine.clone());
    let (stock, other) = (
        alone.stock.clone(),
        LockService::new(alone.engine.clone(), ServiceName::new("till").unwrap()),
    );
    let reader = thread::spawn(move || {
        let mut named = BTreeSet::new();
        while named.len() < 2 {
            if let Some(MemberEvent::BecameGrantor { service, .. }) = block_on(events.next()) {
                named.insert(service);
            }
        }
    });
    together([on(move || drop(lock(&stock))), on(move || drop(lock(&other)))]);
    // The events must arrive without any further call that would pass them on.
    reader.join().expect("it has read them all");
    alone.end();
}

/// The last writer of an owner ends while its sibling asks to write. Either the sibling writes, or
/// the lock is a share by the time that the sibling is refused.
fn write_while_the_last_writer_ends() {
    let alone = alone();
    let (lock, owner) = (ReadWriteLock::new(&alone.stock, "a"), Owner::new());
    let writer = block_on(lock.write_for(owner).into_future()).expect("it is free");
    let reader = block_on(lock.read_for(owner).into_future()).expect("its owner writes");
    let stock = alone.stock.clone();
    together([
        on(move || drop(writer)),
        on(move || match block_on(lock.write_for(owner).into_future()) {
            Ok(writer) => {
                assert!(block_on(stock.try_share("a").into_future()).is_err(), "its owner writes");
                assert_eq!(writer.fence(), reader.fence());
            }
            Err(refused) => {
                assert_eq!(refused, EnterError::Lock(LockError::Deadlock));
                drop(block_on(stock.try_share("a").into_future()).expect("it is a share"));
                reader.fence().expect("it reads on");
            }
        }),
    ]);
    alone.end();
}

/// An owner's readers upgrade, enter and end at once: no writer may be beside another member's
/// reader.
fn upgrade_while_siblings_come_and_go() {
    let alone = alone();
    let (lock, owner) = (ReadWriteLock::new(&alone.stock, "a"), Owner::new());
    let reader = block_on(lock.read_for(owner).into_future()).expect("it is free");
    let (stock, sibling) = (alone.stock.clone(), lock.clone());
    together([
        on(move || {
            if let Ok(writer) = block_on(reader.upgrade()) {
                let beside = block_on(stock.try_share("a").into_future());
                assert!(beside.is_err(), "its owner writes");
                drop(writer);
            }
        }),
        on(move || drop(block_on(sibling.read_for(owner).into_future()).expect("its owner reads"))),
        on(move || drop(block_on(lock.read_for(owner).into_future()).expect("its owner reads"))),
    ]);
    alone.end();
}

/// A limit to join runs out in the moment in which the member becomes ready.
fn close_while_becoming_ready() {
    let engine = engine();
    let (starts, closes, waits) = (engine.clone(), engine.clone(), engine.clone());
    together([
        on(move || block_on(starts.run(async {}))),
        on(move || closes.close(EngineClosed::Unheard)),
        on(move || {
            let mut phase = waits.phase();
            let closed = block_on(phase.wait_for(|phase| phase.closed.is_some()))
                .expect("the engine lives")
                .closed;
            assert_eq!(closed, Some(EngineClosed::Unheard));
        }),
    ]);
    let phase = *engine.phase().borrow();
    assert_eq!(
        (phase.ready, phase.closed, phase.stopped),
        (false, Some(EngineClosed::Unheard), true)
    );
}

// The runner of the stories.

fn config() -> shuttle::Config {
    let mut config = shuttle::Config::new();
    // A debug build of the core takes more than shuttle's 60 KiB.
    config.stack_size = 512 * 1024;
    config.silence_warnings = true;
    config
}

fn tell(story: impl Fn() + Clone + Send + Sync + 'static, orders: usize) {
    Runner::new(RandomScheduler::new_from_seed(SEED, orders), config()).run(story.clone());
    for depth in [2, 4] {
        Runner::new(PctScheduler::new_from_seed(SEED, depth, orders / 2), config())
            .run(story.clone());
    }
}

macro_rules! stories {
    ($($name:ident: $story:ident;)*) => { $(
        #[test]
        fn $name() {
            tell($story, ORDERS);
        }
    )* };
}

stories! {
    of_three_threads_one_holds_at_a_time_and_each_gets_its_turn: share_one_lock;
    a_guard_dropped_while_another_has_the_engine_is_released:
        release_while_another_has_the_engine;
    each_reader_knows_the_locks_that_are_taken_beside_each_other: take_locks_beside_each_other;
    a_guard_dropped_while_others_look_at_the_core_is_released:
        release_while_others_look_at_the_core;
    a_wait_dropped_while_its_grant_arrives_leaves_nothing_behind:
        drop_a_wait_while_its_grant_arrives;
    a_wait_that_moves_to_another_task_is_woken_there: wait_with_another_waker_than_at_first;
    a_lease_that_ends_while_its_lock_is_released_ends_it_once: release_while_the_lease_ends;
    a_lease_that_is_not_released_ends_by_the_timer: hold_until_the_lease_ends;
    a_lease_is_extended_or_over_but_not_both: extend_while_the_lease_ends;
    holders_waiters_and_listeners_hear_that_the_member_has_left: leave_while_others_hold_and_wait;
    no_event_stays_behind: tell_events_of_several_threads;
    a_sibling_of_the_last_writer_writes_or_is_refused: write_while_the_last_writer_ends;
    a_reader_that_upgrades_beside_its_siblings_writes_alone: upgrade_while_siblings_come_and_go;
    a_member_that_is_closed_stays_closed: close_while_becoming_ready;
}

/// The schedule that a failure prints must give the same run again.
#[test]
fn a_schedule_is_told_twice_alike() {
    for story in [share_one_lock, leave_while_others_hold_and_wait, hold_until_the_lease_ends] {
        let scheduler = UncontrolledNondeterminismCheckScheduler::new(
            RandomScheduler::new_from_seed(SEED, 500),
        );
        Runner::new(scheduler, config()).run(story);
    }
}

#[test]
fn each_planted_break_is_found() {
    let breaks: [(ThreadMutant, fn()); 12] = [
        (ThreadMutant::DeferredQueueStays, release_while_another_has_the_engine),
        (ThreadMutant::LooksOnce, release_while_another_has_the_engine),
        (ThreadMutant::OldWaker, wait_with_another_waker_than_at_first),
        (ThreadMutant::LossUntold, hold_until_the_lease_ends),
        (ThreadMutant::TimerSleepsOn, hold_until_the_lease_ends),
        (ThreadMutant::PhaseGoesBack, close_while_becoming_ready),
        (ThreadMutant::EventStays, tell_events_of_several_threads),
        (ThreadMutant::ReaderKeepsDeferred, release_while_others_look_at_the_core),
        (ThreadMutant::LocalGrantsStay, share_one_lock),
        (ThreadMutant::LocalGrantsStay, take_locks_beside_each_other),
        (ThreadMutant::TokenFirst, share_one_lock),
        (ThreadMutant::ShareUnlocked, write_while_the_last_writer_ends),
    ];
    for (planted, story) in breaks {
        let told = Arc::new(AtomicUsize::new(0));
        let count = told.clone();
        let counted = move || {
            count.fetch_add(1, Ordering::SeqCst);
            story();
        };
        plant(Some(planted));
        let found = catch_unwind(AssertUnwindSafe(|| tell(counted, ORDERS_TO_FIND))).is_err();
        plant(None);
        println!("{planted:?}: order {}", told.load(Ordering::SeqCst));
        assert!(found, "{planted:?} was not found");
    }
}
