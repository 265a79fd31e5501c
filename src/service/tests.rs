//! The public API on local members: one process, no sockets, the real core and the real clock.

// `poll_k_then_drop` is given futures to poll, not to await.
#![allow(clippy::async_yields_async)]

mod awaits;
mod connection_status;
mod geode;
mod network;
mod objects;
#[path = "../../tests/support/poll.rs"]
mod poll;
#[path = "../../tests/support/ports.rs"]
mod ports;
pub(crate) mod rejoin;
#[cfg(elderlock_shuttle)]
mod threads;

use super::*;
use crate::protocol::{LostReason, Token, View};
use crate::{InvalidWant, Unavailable};
use poll::{poll_a_wait_then_drop, poll_k_then_drop, poll_once};
use std::future::{Future, IntoFuture};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// A guard against hanging, far longer than any test here takes.
pub(crate) const HANG: Duration = Duration::from_secs(120);

pub(crate) const MS: Duration = Duration::from_millis(1);

async fn service() -> (Member, LockService) {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    (member, stock)
}

/// Holds with open objects, locks in the grantor's table and waiting requests of the member: all
/// zero if nothing leaks.
pub(crate) fn left_over(member: &Member) -> (usize, usize, usize) {
    let services = member.status().services;
    let held = services.iter().map(|service| service.held_here + service.open_here).sum();
    let locks = services.iter().map(|service| service.locks.len()).sum();
    let waiting = services.iter().map(|service| service.waiting_here).sum();
    (held, locks, waiting)
}

pub(crate) const NOTHING: (usize, usize, usize) = (0, 0, 0);

/// Waits for a condition, and leaves the thread to other tasks: leases must advance.
pub(crate) async fn come(mut condition: impl FnMut() -> bool) {
    let wait = async {
        while !condition() {
            tokio::time::sleep(MS).await;
        }
    };
    tokio::time::timeout(HANG, wait).await.expect("it never came");
}

/// Returns whether the member has a running lease, in a view of `members` voters without a ghost.
/// In the view in which the third has just joined, only the first two vote, and neither may be
/// lost.
pub(crate) fn sees(member: &Member, members: usize) -> bool {
    let status = member.status();
    let is_settled = |view: View| {
        let count = view.members.len();
        count == members && view.living().count() == members && view.has_promoted_all()
    };
    status.leased && status.view.is_some_and(is_settled)
}

/// Counts how often it was woken.
#[derive(Default)]
struct WakeProbe(AtomicUsize);

impl std::task::Wake for WakeProbe {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn public_handles_can_move_to_any_thread() {
    fn is<T: Send + Sync + 'static>() {}
    is::<Guard>();
    is::<Member>();
    is::<LockService>();
    is::<LockBuilder>();
    is::<TryLockBuilder>();
    is::<PermitGuard>();
    is::<SharedValue>();
    is::<OpenBuilder>();
    is::<UpgradeFuture>();
    is::<Events>();
    is::<MemberEvent>();
    is::<Connection>();
    is::<LossWatch>();
    is::<LockError>();
    is::<TryLockError>();
    is::<JoinError>();
    is::<LeaveError>();
    fn goes<T: Send>(_: T) {}
    fn futures_go(member: &Member, guard: &Guard, stock: &LockService) {
        goes(member.leave());
        goes(guard.lost());
        goes(guard.protect(async {}));
        goes(stock.lock("x").into_future());
    }
    let _ = futures_go;
}

#[tokio::test]
async fn a_free_lock_is_granted_in_the_first_poll() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let Poll::Ready(Ok(second)) = poll_once(pin!(stock.lock("b").into_future())) else {
        panic!("no answer")
    };
    assert!(second.fence().unwrap() > guard.fence().unwrap());
    assert_eq!((second.name(), second.service(), second.depth()), (&b"b"[..], "inventory", 1));
    assert_eq!(left_over(&member), (2, 2, 0));
    guard.release().await.unwrap();
    drop(second);
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn a_lock_future_dropped_at_any_poll_leaves_nothing() {
    let (member, stock) = service().await;
    poll_k_then_drop(
        async || stock.lock("free").into_future(),
        async |_| assert_eq!(left_over(&member), NOTHING),
    )
    .await;

    poll_a_wait_then_drop(
        async || {
            // Another guard holds the lock for a while, so that the request waits, and is granted,
            // at different polls.
            let guard = stock.lock("held").lease(5 * MS).await.unwrap();
            let waiting = stock.lock("held").into_future();
            async move {
                let result = waiting.await;
                drop(guard);
                result
            }
        },
        async |_| assert_eq!(left_over(&member), NOTHING),
    )
    .await;
}

#[tokio::test]
async fn a_grant_that_arrived_before_the_drop_goes_to_the_next() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let mut second = Box::pin(stock.lock("a").into_future());
    assert!(poll_once(second.as_mut()).is_pending());
    let mut third = Box::pin(stock.lock("a").into_future());
    assert!(poll_once(third.as_mut()).is_pending());
    assert_eq!(left_over(&member), (1, 1, 2));
    // The request is answered in the turn of the release, and never polled.
    drop(guard);
    assert_eq!(left_over(&member), (1, 1, 1));
    drop(second);
    let Poll::Ready(Ok(guard)) = poll_once(third.as_mut()) else { panic!("not granted") };
    guard.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn every_other_future_dropped_at_any_poll_leaves_nothing() {
    let (member, stock) = service().await;
    let nothing = async |_| assert_eq!(left_over(&member), NOTHING);
    poll_k_then_drop(async || stock.try_lock("a").into_future(), nothing).await;
    poll_k_then_drop(async || member.lock_service("other"), nothing).await;
    poll_k_then_drop(async || stock.lock("a").await.unwrap().release(), nothing).await;
    let guard_of = async |lease| stock.lock("a").lease(lease).await.unwrap();
    poll_k_then_drop(
        async || {
            let guard = guard_of(3 * MS).await;
            async move { guard.lost().await }
        },
        nothing,
    )
    .await;
    poll_k_then_drop(
        async || {
            let guard = guard_of(3 * MS).await;
            async move { guard.protect(std::future::pending::<()>()).await }
        },
        nothing,
    )
    .await;
    poll_k_then_drop(
        async || {
            let guard = guard_of(Duration::from_secs(60)).await;
            async move { guard.protect(tokio::time::sleep(3 * MS)).await.unwrap() }
        },
        nothing,
    )
    .await;
    poll_k_then_drop(async || Member::local(), nothing).await;
}

#[tokio::test]
async fn an_event_is_not_lost_with_a_dropped_future() {
    let (member, stock) = service().await;
    let mut events = member.events();
    assert!(poll_once(pin!(events.next())).is_pending());
    drop(stock.lock("a").await.unwrap());
    let Poll::Ready(Some(MemberEvent::BecameGrantor { service, .. })) =
        poll_once(pin!(events.next()))
    else {
        panic!("no event")
    };
    assert_eq!(service.as_str(), "inventory");
}

#[tokio::test]
async fn leaving_goes_on_when_its_future_is_dropped() {
    poll_k_then_drop(
        async || {
            let (member, stock) = service().await;
            let guard = stock.lock("a").await.unwrap();
            let member = member.clone();
            async move {
                member.leave().await.unwrap();
                assert_eq!(guard.fence().unwrap_err().reason, LostReason::Left);
            }
        },
        async |_| {},
    )
    .await;
    let (member, stock) = service().await;
    let mut leave = Box::pin(member.leave());
    let _ = poll_once(leave.as_mut());
    drop(leave);
    assert_eq!(stock.lock("a").await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    member.leave().await.unwrap();
}

#[tokio::test]
async fn waiters_are_served_in_the_order_of_their_coming() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for number in 0..100 {
        let mut waiting = stock.lock("a").into_future();
        // The first poll here takes the position in the queue, and not the task's first run.
        assert!(poll_once(Pin::new(&mut waiting)).is_pending());
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            let guard = waiting.await.unwrap();
            order.lock().unwrap().push((number, guard.fence().unwrap()));
            tokio::task::yield_now().await;
        }));
    }
    assert_eq!(left_over(&member), (1, 1, 100));
    drop(guard);
    for task in tasks {
        task.await.unwrap();
    }
    let order = std::mem::take(&mut *order.lock().unwrap());
    assert_eq!(
        order.iter().map(|(number, _)| *number).collect::<Vec<_>>(),
        (0..100).collect::<Vec<_>>()
    );
    assert!(order.windows(2).all(|pair| pair[0].1 < pair[1].1), "tokens rise");
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn threads_that_fight_for_one_lock_never_have_it_together() {
    let (member, stock) = service().await;
    let inside = Arc::new(AtomicUsize::new(0));
    let tokens = Arc::new(Mutex::new(Vec::<Token>::new()));
    let tasks: Vec<_> = (0..16)
        .map(|task| {
            let (stock, inside, tokens) = (stock.clone(), inside.clone(), tokens.clone());
            tokio::spawn(async move {
                for round in 0..100 {
                    let guard = stock.lock("a").await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokens.lock().unwrap().push(guard.fence().unwrap());
                    if round % 3 == 0 {
                        tokio::task::yield_now().await;
                    }
                    assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                    if (round + task) % 2 == 0 {
                        drop(guard)
                    } else {
                        guard.release().await.unwrap()
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    let tokens = std::mem::take(&mut *tokens.lock().unwrap());
    assert_eq!(tokens.len(), 1600);
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]));
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_task_that_dropped_a_guard_can_lock_again_at_once() {
    let (member, stock) = service().await;
    let tasks: Vec<_> = (0..4)
        .map(|task| {
            let stock = stock.clone();
            tokio::spawn(async move {
                for _ in 0..3000 {
                    drop(
                        stock
                            .try_lock(format!("of task {task}"))
                            .await
                            .expect("no other member asks for it"),
                    );
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(left_over(&member), NOTHING);
}

#[test]
fn guards_dropped_by_many_threads_outside_any_runtime_are_all_released() {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let (member, stock) = runtime.block_on(service());
    let mut guards = Vec::new();
    for number in 0..400 {
        guards.push(runtime.block_on(stock.lock(format!("lock {number}")).into_future()).unwrap());
    }
    assert_eq!(left_over(&member).0, 400);
    std::thread::scope(|scope| {
        while !guards.is_empty() {
            let part = guards.split_off(guards.len() - 50);
            scope.spawn(move || drop(part));
        }
    });
    assert_eq!(left_over(&member), NOTHING);
}

#[test]
fn a_guard_dropped_during_thread_teardown_is_released() {
    thread_local! {
        static KEPT: std::cell::RefCell<Option<Guard>> = const { std::cell::RefCell::new(None) };
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (member, stock) = runtime.block_on(service());
    let guard = runtime.block_on(stock.lock("a").into_future()).unwrap();
    let mut waiting = Box::pin(stock.lock("a").into_future());
    assert!(poll_once(waiting.as_mut()).is_pending());
    std::thread::spawn(move || KEPT.with(|kept| *kept.borrow_mut() = Some(guard))).join().unwrap();
    assert!(poll_once(waiting.as_mut()).is_ready());
    drop(waiting);
    assert_eq!(left_over(&member), NOTHING);
}

#[test]
fn a_member_whose_runtime_ended_fails_its_guards_and_ends_every_call() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (member, stock) = runtime.block_on(service());
    let guard = runtime.block_on(stock.lock("a").into_future()).unwrap();
    let mut waiting = Box::pin(stock.lock("a").into_future());
    let woken = Arc::new(WakeProbe::default());
    let waker = Waker::from(woken.clone());
    assert!(waiting.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    drop(runtime);
    assert_eq!(woken.0.load(Ordering::SeqCst), 1);
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::Left);
    assert!(matches!(
        poll_once(waiting.as_mut()),
        Poll::Ready(Err(LockError::Unavailable(Unavailable::Left)))
    ));
    assert!(matches!(poll_once(pin!(member.leave())), Poll::Ready(Err(LeaveError::Stopped))));
    drop(guard);
}

#[tokio::test]
async fn guards_and_waiters_end_with_the_member() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let waiting = tokio::spawn(stock.lock("a").into_future());
    let watched = guard.reenter().unwrap();
    let watching = tokio::spawn(async move { watched.lost().await });
    come(|| left_over(&member).2 == 1).await;
    member.leave().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err(), LockError::Unavailable(Unavailable::Left));
    assert_eq!(watching.await.unwrap(), LostReason::Left);
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::Left);
    assert!(matches!(guard.reenter(), Err(Lost { reason: LostReason::Left })));
    assert!(guard.extend(Duration::from_secs(1)).unwrap_err().is_lost());
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(LostReason::Left)));
    assert_eq!(stock.lock("a").await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    assert_eq!(
        stock.try_lock("a").await.unwrap_err(),
        TryLockError::Unavailable(Unavailable::Left)
    );
    assert_eq!(member.lock_service("b").await.unwrap_err(), ServiceError::Left);
    member.leave().await.unwrap();
}

#[tokio::test]
async fn a_grant_that_ended_before_it_was_polled_is_answered_by_its_end() {
    let (member, stock) = service().await;
    let limit = stock.open("pool", 1_u32.to_le_bytes()).await.unwrap();
    let holds = (stock.lock("a").await.unwrap(), stock.permits("pool", 1).await.unwrap());
    let mut lock = pin!(stock.lock("a").into_future());
    let mut permit = pin!(stock.permits("pool", 1).into_future());
    let mut batch = pin!(stock.lock_all(["a", "b"]).into_future());
    assert!(poll_once(lock.as_mut()).is_pending());
    assert!(poll_once(permit.as_mut()).is_pending());
    assert!(poll_once(batch.as_mut()).is_pending());
    let started = stock.lock("c").start();
    drop(holds);
    // The first three requests wait no more: the lock and the permit are granted, and so is the
    // started request.
    assert_eq!(left_over(&member), (4, 4, 1));
    stock.destroy().await.unwrap();
    assert_eq!(lock.await.unwrap_err(), LockError::Unavailable(Unavailable::Destroyed));
    assert_eq!(permit.await.unwrap_err(), LockError::Unavailable(Unavailable::Destroyed));
    assert_eq!(batch.await.unwrap_err(), LockError::Unavailable(Unavailable::Destroyed));
    assert_eq!(started.await.unwrap_err(), LockError::Unavailable(Unavailable::Destroyed));
    drop(limit);

    let stock = member.lock_service("inventory").await.unwrap();
    let started = stock.lock("a").start();
    member.leave().await.unwrap();
    assert_eq!(started.await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn the_last_handle_dropped_leaves_in_the_background() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let mut events = member.events();
    let clone = member.clone();
    drop(member);
    assert!(guard.fence().is_ok());
    drop(clone);
    assert_eq!(guard.lost().await, LostReason::Left);
    assert_eq!(stock.lock("a").await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    let mut last = None;
    while let Some(event) = events.next().await {
        last = Some(event);
    }
    assert_eq!(last, Some(MemberEvent::Left));
    assert_eq!(events.next().await, None);
    drop(guard);
}

#[test]
fn a_fence_fails_at_the_end_of_its_lease_without_any_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_member, stock) = runtime.block_on(service());
    let guard = runtime.block_on(stock.lock("a").lease(5 * MS).into_future()).unwrap();
    // No thread runs the runtime from here on: the clock alone must end the hold.
    while guard.fence().is_ok() {
        std::hint::spin_loop();
    }
    assert_eq!(guard.fence().unwrap_err().reason, LostReason::LeaseEnded);
    assert_eq!(
        guard.extend(Duration::from_secs(1)).unwrap_err(),
        ExtendError::Lost(guard.fence().unwrap_err())
    );
}

#[tokio::test]
async fn a_lease_that_ends_passes_the_lock_on_and_tells_the_holder() {
    let (member, stock) = service().await;
    let first = stock.lock("a").lease(5 * MS).await.unwrap();
    let second = stock.lock("a").wait(Duration::from_secs(60)).await.unwrap();
    assert_eq!(first.fence().unwrap_err().reason, LostReason::LeaseEnded);
    assert_eq!(first.lost().await, LostReason::LeaseEnded);
    assert!(second.token() > first.token());
    assert_eq!(first.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
    assert!(second.fence().is_ok());
    second.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn an_extended_lease_ends_later_and_a_missing_one_stays_missing() {
    let (_member, stock) = service().await;
    let mut tries = 0..100;
    let guard = loop {
        tries.next().expect("it is extended");
        let guard = stock.lock("a").lease(Duration::from_millis(50)).await.unwrap();
        // On a busy machine the lease may be over by now.
        if guard.extend(Duration::from_secs(3600)).is_ok() {
            break guard;
        }
    };
    // Without the extension, this would be granted after 50 ms.
    assert!(stock.lock("a").wait(Duration::from_millis(120)).await.unwrap_err().is_timeout());
    guard.fence().unwrap();
    let endless = stock.lock("b").await.unwrap();
    endless.extend(MS).unwrap();
    assert!(endless.protect(tokio::time::sleep(10 * MS)).await.is_ok());
    for bad in [Duration::ZERO, Duration::MAX] {
        assert_eq!(
            guard.extend(bad).unwrap_err(),
            ExtendError::InvalidLease(InvalidLease { given: bad })
        );
    }
    guard.fence().unwrap();
}

#[tokio::test]
async fn a_reentered_lock_ends_with_its_last_guard() {
    let (member, stock) = service().await;
    let outer = stock.lock("a").await.unwrap();
    let inner = outer.reenter().unwrap();
    let third = inner.reenter().unwrap();
    assert_eq!((outer.depth(), third.token()), (3, outer.token()));
    outer.release().await.unwrap();
    drop(third);
    assert!(stock.try_lock("a").await.unwrap_err().holder().is_some());
    assert_eq!(inner.depth(), 1);
    inner.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn protected_work_stops_when_the_lock_is_lost() {
    let (_member, stock) = service().await;
    let guard = stock.lock("a").lease(5 * MS).await.unwrap();
    let alive = Arc::new(());
    let kept = alive.clone();
    let result = guard
        .protect(async move {
            std::future::pending::<()>().await;
            drop(kept);
        })
        .await;
    assert_eq!(result.unwrap_err().reason, LostReason::LeaseEnded);
    assert_eq!(Arc::strong_count(&alive), 1, "it was dropped");
    // The lock is lost already: the future is not even polled.
    assert!(guard.protect(async { panic!("ran") }).await.is_err());
}

#[tokio::test]
async fn a_wait_ends_at_its_limit_and_gives_up_its_position() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    for limit in [Duration::ZERO, Duration::from_nanos(1), 5 * MS] {
        assert_eq!(stock.lock("a").wait(limit).await.unwrap_err(), LockError::TimedOut);
        assert_eq!(left_over(&member), (1, 1, 0));
    }
    drop(guard);
    stock.lock("a").wait(Duration::ZERO).await.unwrap().release().await.unwrap();
    stock.lock("a").wait(Duration::MAX).await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn a_task_that_takes_free_locks_without_end_yields_the_thread() {
    let (_member, stock) = service().await;
    let ran = Arc::new(AtomicBool::new(false));
    let other = ran.clone();
    tokio::spawn(async move { other.store(true, Ordering::SeqCst) });
    let mut turns = 0;
    while !ran.load(Ordering::SeqCst) {
        stock.lock("a").await.unwrap().release().await.unwrap();
        turns += 1;
        assert!(turns < 10_000, "the other task never has its turn");
    }
}

#[tokio::test]
async fn try_lock_names_the_holder() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").metadata(b"till \xff").await.unwrap();
    let error = stock.try_lock("a").await.unwrap_err();
    let holder = error.holder().unwrap();
    assert_eq!((holder.process, holder.token), (member.process(), guard.token()));
    assert_eq!(holder.metadata.as_bytes(), b"till \xff");
    drop(guard);
    let guard = stock.try_lock("a").lease(HANG).metadata("x").await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn names_are_1_to_4096_bytes_of_any_value() {
    let (member, stock) = service().await;
    for good in [&b"\xff\xfe\0"[..], &[0], &[b'x'; 4096]] {
        let guard = stock.lock(good).await.unwrap();
        assert_eq!(guard.name(), good);
    }
    for bad in [&b""[..], &[b'x'; 4097]] {
        assert!(matches!(
            stock.lock(bad).await,
            Err(LockError::InvalidWant(InvalidWant::Name(name))) if name.length == bad.len()
        ));
        assert!(matches!(
            stock.try_lock(bad).await,
            Err(TryLockError::InvalidWant(InvalidWant::Name(_)))
        ));
    }
    assert!(matches!(
        stock.lock("a").metadata([0; 4097]).await,
        Err(LockError::InvalidWant(InvalidWant::Name(_)))
    ));
    drop(stock.lock("a").metadata([0; 4096]).await.unwrap());
    assert!(matches!(member.lock_service("").await, Err(ServiceError::InvalidName(_))));
    assert!(matches!(
        member.lock_service("x".repeat(256)).await,
        Err(ServiceError::InvalidName(_))
    ));
    assert_eq!(member.lock_service("x".repeat(255)).await.unwrap().name().len(), 255);
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn a_lease_of_zero_or_of_centuries_is_refused_and_nothing_is_asked() {
    let (member, stock) = service().await;
    for bad in [Duration::ZERO, Duration::MAX, Duration::from_secs(20 * 365 * 24 * 3600)] {
        assert_eq!(
            stock.lock("a").lease(bad).await.unwrap_err(),
            LockError::InvalidLease(InvalidLease { given: bad })
        );
        assert!(matches!(stock.try_lock("a").lease(bad).await, Err(TryLockError::InvalidLease(_))));
    }
    assert_eq!(left_over(&member), NOTHING);
}

#[tokio::test]
async fn one_service_too_many_is_refused_and_disturbs_no_other() {
    let (local, _) = service().await;
    let engine = local.handle_engine();
    let member = Member::with_services("local".into(), engine, None, 2);
    let first = member.lock_service("first").await.unwrap();
    let guard = first.lock("a").await.unwrap();
    let second = member.lock_service("second").await.unwrap();
    let error = member.lock_service("third").await.unwrap_err();
    assert_eq!(error, ServiceError::TooMany { limit: 2 });
    assert!(error.to_string().contains("raise max_services"), "{error}");
    assert!(member.lock_service("first").await.unwrap().is_same(&first));
    assert_eq!(guard.fence(), Ok(guard.token()));
    // A service that is destroyed makes room.
    second.destroy().await.unwrap();
    member.lock_service("third").await.expect("there is room");
    assert!(member.lock_service("second").await.is_err());
    drop(guard);
}

#[tokio::test]
async fn services_of_one_name_are_one_and_of_two_names_are_two() {
    let (member, stock) = service().await;
    let guard = stock.lock("a").await.unwrap();
    let same = member.lock_service("inventory").await.unwrap();
    assert!(same.try_lock("a").await.is_err());
    let other = member.lock_service("orders").await.unwrap();
    other.try_lock("a").await.unwrap().release().await.unwrap();
    drop(guard);
}

#[tokio::test]
async fn several_members_in_one_process_are_strangers() {
    let (one, of_one) = service().await;
    let (two, of_two) = service().await;
    assert_ne!(one.process(), two.process());
    let first = of_one.lock("a").await.unwrap();
    let second = of_two.lock("a").await.unwrap();
    one.leave().await.unwrap();
    assert!(first.fence().is_err());
    assert!(second.fence().is_ok());
    assert!(two.is_elder() && !one.is_elder());
}

#[tokio::test]
async fn a_slow_reader_is_told_how_many_it_missed_and_where_things_stand() {
    let member = Member::local().await.unwrap();
    let mut events = member.events();
    let mut quick = member.events();
    let mut happened = 0;
    for number in 0..1500 {
        let stock = member.lock_service(format!("service {number}")).await.unwrap();
        drop(stock.lock("a").await.unwrap());
        // The future is unconstrained: tokio answers "pending" now and then for fairness otherwise.
        while poll_once(pin!(tokio::task::unconstrained(quick.next()))).is_ready() {
            happened += 1;
        }
    }
    assert!(happened >= 1500);
    let Some(MemberEvent::Missed { count, status }) = events.next().await else {
        panic!("nothing missed")
    };
    assert_eq!(count, happened);
    assert_eq!(*status, member.status());
    let stock = member.lock_service("last").await.unwrap();
    drop(stock.lock("a").await.unwrap());
    let Some(MemberEvent::BecameGrantor { service, .. }) = events.next().await else {
        panic!("no event")
    };
    assert_eq!(service.as_str(), "last");
}

#[tokio::test]
async fn the_status_and_the_events_can_be_written_by_serde() {
    let (member, stock) = service().await;
    let _guard = stock.lock("a").await.unwrap();
    fn is<T: serde::Serialize>(_: &T) {}
    is(&member.status());
    is(&MemberEvent::BecameElder);
    let status = member.status();
    assert_eq!(status.elder, Some(member.process()));
    assert_eq!(status.view.unwrap().members.len(), 1);
    assert!(member.is_elder());
}

/// The holds and waiters are more than fit one answer of the grantor.
#[tokio::test]
async fn all_holds_and_all_waiters_can_be_read() {
    let (_member, stock) = service().await;
    let mut held = Vec::new();
    for n in 0..300_u32 {
        held.push(stock.lock(n.to_be_bytes()).await.unwrap());
    }
    let name = 7_u32.to_be_bytes();
    let waiting: Vec<_> =
        (0..300_u32).map(|n| stock.lock(name).metadata(n.to_be_bytes()).start()).collect();
    assert_eq!(stock.inspect(name).await.unwrap().more, 300 - 256);

    let mut waiters = stock.waiters(name).unwrap();
    for n in 0..300_u32 {
        assert_eq!(waiters.next().await.unwrap().unwrap().metadata.as_bytes(), n.to_be_bytes());
    }
    assert!(waiters.next().await.unwrap().is_none());
    let mut locks = stock.held();
    for guard in &held {
        assert_eq!(locks.next().await.unwrap().unwrap().token, guard.token());
    }
    assert!(locks.next().await.unwrap().is_none());
    assert!(stock.waiters("").is_err());
    drop(waiting);
}
