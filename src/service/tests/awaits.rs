//! Every await of a member that asks another over the network, polled k times and dropped, for
//! every k until it completes. Nothing stays held or queued, here or at the grantor.

use super::rejoin::Lan;
use super::*;
use crate::{Timing, Unavailable};

/// Two members over a network of queues. The first of them grants the locks of "inventory". The
/// leases are long enough for a busy machine.
struct Pair {
    grantor: Member,
    other: Member,
    here: LockService,
    there: LockService,
}

impl Pair {
    async fn new() -> Pair {
        Pair::with(Timing::lan()).await
    }

    async fn with(timing: Timing) -> Pair {
        let lan = Arc::new(Lan::default());
        let grantor = lan.start_with(1, timing);
        let other = lan.start_with(2, timing);
        come(|| sees(&grantor, 2) && sees(&other, 2)).await;
        let here = grantor.lock_service("inventory").await.unwrap();
        drop(here.lock("a").await.unwrap());
        let there = other.lock_service("inventory").await.unwrap();
        Pair { grantor, other, here, there }
    }

    async fn nothing(&self) {
        come(|| left_over(&self.grantor) == NOTHING && left_over(&self.other) == NOTHING).await;
    }
}

/// The number of requests in the queues of the locks that the member grants.
fn queued(member: &Member) -> usize {
    let services = member.status().services;
    services.iter().flat_map(|service| &service.locks).map(|lock| lock.waiter_count).sum()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_far_from_the_grantor_dropped_at_any_poll_releases_the_lock() {
    let pair = Pair::new().await;
    poll_k_then_drop(
        async || pair.there.lock("a").await.unwrap().release(),
        async |_| {
            pair.nothing().await;
            pair.here.lock("a").await.unwrap().release().await.unwrap();
            pair.nothing().await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_for_a_loss_far_from_the_grantor_can_be_dropped_at_any_poll() {
    let pair = Pair::new().await;
    poll_a_wait_then_drop(
        async || {
            let guard = pair.there.lock("a").lease(10 * MS).await.unwrap();
            async move { assert_eq!(guard.lost().await, LostReason::LeaseEnded) }
        },
        async |_| pair.nothing().await,
    )
    .await;

    // The guard outlives the dropped future, and is as good as before.
    let guard = pair.there.lock("a").await.unwrap();
    for k in 0..5 {
        let mut watching = Box::pin(guard.lost());
        for _ in 0..k {
            assert!(poll_once(watching.as_mut()).is_pending());
            tokio::task::yield_now().await;
        }
        drop(watching);
        assert_eq!(guard.fence(), Ok(guard.token()));
    }
    assert_eq!((left_over(&pair.grantor), left_over(&pair.other)), ((0, 1, 0), (1, 0, 0)));
    guard.release().await.unwrap();
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn protecting_far_from_the_grantor_can_be_dropped_at_any_poll() {
    let pair = Pair::new().await;
    poll_a_wait_then_drop(
        async || {
            let guard = pair.there.lock("a").lease(10 * MS).await.unwrap();
            async move {
                let lost = guard.protect(std::future::pending::<()>()).await.unwrap_err();
                assert_eq!(lost.reason, LostReason::LeaseEnded);
            }
        },
        async |_| pair.nothing().await,
    )
    .await;
    poll_a_wait_then_drop(
        async || {
            let guard = pair.there.lock("a").await.unwrap();
            async move { guard.protect(tokio::time::sleep(5 * MS)).await.unwrap() }
        },
        async |_| pair.nothing().await,
    )
    .await;

    // A request under protection is dropped with it.
    let kept = pair.here.lock("b").await.unwrap();
    for k in 0..5 {
        let guard = pair.there.lock("a").await.unwrap();
        let mut protected = Box::pin(guard.protect(pair.there.lock("b").into_future()));
        for _ in 0..k {
            assert!(poll_once(protected.as_mut()).is_pending());
            tokio::time::sleep(MS).await;
        }
        drop(protected);
        guard.release().await.unwrap();
        come(|| left_over(&pair.grantor) == (1, 1, 0) && left_over(&pair.other) == NOTHING).await;
        come(|| queued(&pair.grantor) == 0).await;
    }
    kept.release().await.unwrap();
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_for_events_can_be_dropped_at_any_poll_and_loses_none() {
    // The end of a lease would be an event.
    let pair = Pair::with(Timing::wan()).await;
    let events = Arc::new(tokio::sync::Mutex::new(pair.other.events()));
    let heard = Mutex::new(Vec::new());
    let hear = &|event: Option<MemberEvent>| match event {
        Some(MemberEvent::BecameGrantor { service, .. }) => {
            heard.lock().unwrap().push(service.as_str().to_owned())
        }
        // The pair's last view and first lease may come after the call that subscribes.
        Some(MemberEvent::ViewInstalled(_) | MemberEvent::Resumed) => {}
        other => panic!("{other:?}"),
    };
    let asking = Mutex::new(None);
    let mut count = 0;
    poll_k_then_drop(
        async || {
            let service = pair.other.lock_service(format!("service {count}")).await.unwrap();
            count += 1;
            // Another member, the elder, must name the grantor first: the event comes at a later
            // poll.
            *asking.lock().unwrap() = Some(tokio::spawn(service.lock("a").into_future()));
            let events = events.clone();
            async move { hear(events.lock().await.next().await) }
        },
        async |k| {
            let asked = asking.lock().unwrap().take().unwrap();
            asked.await.unwrap().unwrap().release().await.unwrap();
            while heard.lock().unwrap().len() <= k {
                let next = async { events.lock().await.next().await };
                hear(tokio::time::timeout(HANG, next).await.expect("an event was lost"));
            }
            assert_eq!(
                *heard.lock().unwrap(),
                (0..=k).map(|k| format!("service {k}")).collect::<Vec<_>>()
            );
            pair.nothing().await;
        },
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_objects_and_permits_far_from_the_grantor_can_be_dropped_at_any_poll() {
    let pair = Pair::new().await;
    poll_k_then_drop(async || pair.there.share("a").into_future(), async |_| pair.nothing().await)
        .await;
    poll_k_then_drop(
        async || pair.there.open("a", "red").into_future(),
        async |_| pair.nothing().await,
    )
    .await;

    // The grantor is quick: now and then it has answered before the first poll is over.
    poll_a_wait_then_drop(
        async || {
            let guard = pair.there.share("a").await.unwrap();
            async move { guard.upgrade().await.unwrap() }
        },
        async |_| pair.nothing().await,
    )
    .await;

    // A further opening keeps the object, which would end with the dropped futures otherwise.
    let kept = pair.here.open("pool", 2_u32.to_le_bytes()).await.unwrap();
    let only_it = || left_over(&pair.grantor) == (1, 1, 0) && left_over(&pair.other) == NOTHING;
    poll_a_wait_then_drop(
        async || {
            let pool = pair.there.open("pool", []).await.unwrap();
            async move { pool.set(3_u32.to_le_bytes()).await.unwrap() }
        },
        async |_| come(only_it).await,
    )
    .await;
    assert_eq!(*kept.get().unwrap().value, 3_u32.to_le_bytes());
    poll_k_then_drop(
        async || {
            let pool = pair.there.open("pool", []).await.unwrap();
            let permits = pair.there.permits("pool", 3).into_future();
            async move {
                let permits = permits.await.unwrap();
                drop((pool, permits));
            }
        },
        async |_| come(only_it).await,
    )
    .await;
    let since = kept.get().unwrap().version;
    for k in 0..5 {
        let mut changed = Box::pin(kept.changed(since));
        for _ in 0..k {
            assert!(poll_once(changed.as_mut()).is_pending());
        }
    }
    kept.set(1_u32.to_le_bytes()).await.unwrap();
    assert_eq!(*kept.changed(since).await.unwrap().value, 1_u32.to_le_bytes());
    drop(kept);
    pair.nothing().await;
}

/// Drops `leave` after `k` polls, at the grantor and elder or at the other member. Returns whether
/// it completed.
async fn leave_and_drop(of_grantor: bool, k: usize) -> bool {
    let pair = Pair::new().await;
    let (leaver, stock, stayer, of_stayer) = match of_grantor {
        true => (&pair.grantor, &pair.here, &pair.other, &pair.there),
        false => (&pair.other, &pair.there, &pair.grantor, &pair.here),
    };
    let guard = stock.lock("a").await.unwrap();
    let kept = of_stayer.lock("b").await.unwrap();
    let waiting = tokio::spawn(stock.lock("b").into_future());
    come(|| left_over(leaver).2 == 1).await;

    let mut leave = Box::pin(leaver.leave());
    let mut done = false;
    for _ in 0..k {
        if let Poll::Ready(result) = poll_once(leave.as_mut()) {
            result.unwrap();
            done = true;
            break;
        }
        // One turn of the runtime: finer than any timer.
        tokio::task::yield_now().await;
    }
    drop(leave);

    if k == 0 {
        // The leave has not begun: the member continues.
        assert_eq!(guard.fence(), Ok(guard.token()));
        stock.lock("c").await.unwrap().release().await.unwrap();
    } else {
        assert_eq!(stock.lock("c").await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
        assert_eq!(guard.lost().await, LostReason::Left);
    }
    leaver.leave().await.unwrap();
    leaver.leave().await.unwrap();
    assert_eq!(waiting.await.unwrap().unwrap_err(), LockError::Unavailable(Unavailable::Left));
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(LostReason::Left)));
    assert_eq!(left_over(leaver), NOTHING);

    // The leaver's lock is free for the remaining member's request, and its position in the queue
    // is gone.
    come(|| sees(stayer, 1)).await;
    of_stayer.lock("a").wait(HANG).await.unwrap().release().await.unwrap();
    come(|| left_over(stayer) == (1, 1, 0) && queued(stayer) == 0).await;
    kept.release().await.unwrap();
    come(|| left_over(stayer) == NOTHING).await;
    done
}

// This test has one thread, so no other task runs within a poll.
#[tokio::test]
async fn a_leave_dropped_at_any_poll_goes_on_or_has_never_begun() {
    for of_grantor in [false, true] {
        let mut k = 0;
        while !tokio::time::timeout(HANG, leave_and_drop(of_grantor, k)).await.expect("it hangs") {
            k += 1;
        }
        assert!(k > 1, "it never had to wait");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_dropped_at_any_poll_leaves_nothing_behind() {
    let pair = Pair::new().await;
    for (holds, asks) in [(&pair.there, &pair.here), (&pair.here, &pair.there)] {
        let guard = holds.lock("a").revocable().await.unwrap();
        poll_k_then_drop(
            async || asks.revoke("a").into_future(),
            async |_| guard.fence().map(drop).unwrap(),
        )
        .await;
        assert!(guard.revocation().is_requested(), "the last one was told");

        let told = asks.revoke("a").await.unwrap().told;
        poll_k_then_drop(async || asks.force_revoke(&told[0]), async |_| ()).await;
        assert_eq!(guard.fence().unwrap_err().reason, LostReason::Revoked);
        drop(guard);
        pair.nothing().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_for_revocation_is_not_lost_with_the_future_that_waits_for_it() {
    let pair = Pair::new().await;
    let guard = pair.there.lock("a").revocable().await.unwrap();
    let revocation = Arc::new(tokio::sync::Mutex::new(guard.revocation()));
    let mut asked = 0;
    poll_k_then_drop(
        async || {
            let revocation = revocation.clone();
            async move { revocation.lock().await.requested().await.expect("it is held") }
        },
        async |k| {
            assert!(k < 1_000, "it was lost");
            if k == 3 {
                pair.here.revoke("a").metadata("till 4").await.unwrap();
                asked += 1;
            }
        },
    )
    .await;
    assert_eq!(asked, 1);
    let mut again = guard.revocation();
    assert_eq!(again.requested().await.unwrap().metadata.as_bytes(), b"till 4");

    // The end of the hold leaves no task waiting.
    let waiting = tokio::spawn(async move { again.requested().await });
    guard.release().await.unwrap();
    assert_eq!(waiting.await.unwrap(), None);
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn batches_and_suspensions_far_from_the_grantor_can_be_dropped_at_any_poll() {
    let pair = Pair::new().await;
    let nothing = async |_| pair.nothing().await;
    poll_k_then_drop(async || pair.there.lock_all(["a", "b"]).into_future(), nothing).await;
    poll_k_then_drop(async || pair.there.try_lock_all(["a", "b"]).into_future(), nothing).await;
    poll_k_then_drop(async || pair.there.suspend().into_future(), nothing).await;
    poll_k_then_drop(async || pair.there.lock_all(["a", "b"]).await.unwrap().release(), nothing)
        .await;
    poll_k_then_drop(async || pair.there.suspend().await.unwrap().resume(), nothing).await;

    let both = async || pair.there.lock_all(["a", "b"]).lease(10 * MS).await.unwrap();
    let suspended = async || pair.there.suspend().lease(10 * MS).await.unwrap();
    let watched = async || {
        let both = both().await;
        async move { both.lost().await }
    };
    poll_a_wait_then_drop(watched, nothing).await;
    let watched = async || {
        let suspended = suspended().await;
        async move { suspended.lost().await }
    };
    poll_a_wait_then_drop(watched, nothing).await;
    let protected = async || {
        let both = both().await;
        async move { both.protect(std::future::pending::<()>()).await }
    };
    poll_a_wait_then_drop(protected, nothing).await;
    let protected = async || {
        let suspended = suspended().await;
        async move { suspended.protect(std::future::pending::<()>()).await }
    };
    poll_a_wait_then_drop(protected, nothing).await;

    // The watched holds outlive the dropped futures.
    let (both, suspended) =
        (pair.there.lock_all(["a", "b"]).await.unwrap(), pair.there.suspend().await.unwrap());
    assert!(
        poll_once(pin!(both.lost())).is_pending() && poll_once(pin!(suspended.lost())).is_pending()
    );
    assert!(poll_once(pin!(both.protect(std::future::pending::<()>()))).is_pending());
    assert!(poll_once(pin!(suspended.protect(std::future::pending::<()>()))).is_pending());
    assert!(both.fence("a").is_ok() && suspended.fence().is_ok());
    drop((both, suspended));
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_and_values_far_from_the_grantor_can_be_watched_and_released_at_any_poll() {
    let pair = Pair::new().await;
    let pool = pair.there.open("pool", 3_u32.to_le_bytes()).await.unwrap();
    let only_it = async |_| {
        come(|| left_over(&pair.grantor) == (0, 1, 0) && left_over(&pair.other) == (1, 0, 0)).await
    };
    only_it(0).await;
    let permits = async |lease| pair.there.permits("pool", 2).lease(lease).await.unwrap();
    poll_k_then_drop(async || pair.there.try_permits("pool", 2).into_future(), only_it).await;
    poll_k_then_drop(async || permits(HANG).await.release(), only_it).await;
    poll_k_then_drop(async || permits(HANG).await.into_permits().remove(1).release(), only_it)
        .await;
    poll_k_then_drop(
        async || permits(HANG).await.into_permits().remove(1).release_and_confirm(),
        only_it,
    )
    .await;
    let watched = async || {
        let permits = permits(10 * MS).await;
        async move { permits.lost().await }
    };
    poll_a_wait_then_drop(watched, only_it).await;
    let watched = async || {
        let leases = permits(10 * MS).await.into_permits();
        async move { leases[1].lost().await }
    };
    poll_a_wait_then_drop(watched, only_it).await;
    let protected = async || {
        let permits = permits(10 * MS).await;
        async move { permits.protect(std::future::pending::<()>()).await }
    };
    poll_a_wait_then_drop(protected, only_it).await;

    // The value changes at most once for each of the dropped futures, and once for the last one.
    let (mut expected, mut most) = (pool.get().unwrap().version, 0);
    poll_k_then_drop(
        async || {
            let seen = pool.get().unwrap();
            expected = seen.version;
            most += 1;
            let next = u32::from_le_bytes(seen.value[..].try_into().unwrap()) + 1;
            let pool = pool.clone();
            async move { pool.compare_and_set(seen.version, next.to_le_bytes()).await }
        },
        only_it,
    )
    .await;
    pool.changed(expected).await.unwrap();
    // Messages of dropped futures that are still on their way come before this.
    let seen = pair.there.open("pool", []).await.unwrap().get().unwrap();
    let count = u32::from_le_bytes(seen.value[..].try_into().unwrap());
    assert!((4..=3 + most).contains(&count), "{count} after {most}");

    // A loss after a dropped call of `lost` is reported by the next call.
    let watch = permits(HANG).await;
    for k in 0..3 {
        let mut watching = Box::pin(pool.lost());
        (0..k).for_each(|_| assert!(poll_once(watching.as_mut()).is_pending()));
    }
    pair.there.destroy().await.unwrap();
    assert_eq!(
        (pool.lost().await, watch.lost().await),
        (LostReason::Destroyed, LostReason::Destroyed)
    );
    drop((pool, watch));
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_watch_of_a_hold_far_from_the_grantor_can_be_dropped_at_any_poll() {
    let pair = Pair::new().await;
    poll_a_wait_then_drop(
        async || {
            let guard = pair.there.lock("a").wait(HANG).lease(10 * MS).await.unwrap();
            let watch = guard.watch();
            async move {
                assert_eq!(watch.lost().await, LostReason::LeaseEnded);
                drop(guard);
            }
        },
        async |_| pair.nothing().await,
    )
    .await;
    let guard = pair.there.lock("a").await.unwrap();
    let watch = guard.watch();
    assert!(poll_once(pin!(watch.lost())).is_pending());
    guard.release().await.unwrap();
    assert_eq!(watch.lost().await, LostReason::Released);
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn questions_to_the_grantor_can_be_dropped_at_any_poll_and_change_nothing() {
    let pair = Pair::new().await;
    let guards = [pair.here.lock("a").await.unwrap(), pair.there.lock("b").await.unwrap()];
    let waiting = pair.there.lock("a").start();
    let position = || waiting.position();
    assert_eq!(position().await.unwrap().unwrap().before, 0);
    let held = Arc::new(tokio::sync::Mutex::new(pair.there.held()));
    let unchanged = async |_| {
        come(|| left_over(&pair.grantor) == (1, 2, 0) && left_over(&pair.other) == (1, 0, 1)).await;
        assert_eq!(queued(&pair.grantor), 1);
    };
    unchanged(0).await;
    poll_k_then_drop(async || pair.there.inspect("a"), unchanged).await;
    poll_k_then_drop(async || pair.there.inspect_suspension(), unchanged).await;
    poll_k_then_drop(async || position(), unchanged).await;
    poll_k_then_drop(
        async || {
            let held = held.clone();
            async move {
                assert_eq!(
                    held.lock().await.next().await.unwrap().unwrap().name.unwrap().as_bytes(),
                    b"a"
                )
            }
        },
        unchanged,
    )
    .await;
    let mut held = held.lock().await;
    assert_eq!(
        held.next().await.unwrap().unwrap().name.unwrap().as_bytes(),
        b"b",
        "none is left out"
    );
    assert!(held.next().await.unwrap().is_none());
    let waiters = Arc::new(tokio::sync::Mutex::new(pair.there.waiters("a").unwrap()));
    poll_k_then_drop(
        async || {
            let waiters = waiters.clone();
            async move { assert!(waiters.lock().await.next().await.unwrap().is_some()) }
        },
        unchanged,
    )
    .await;
    assert!(waiters.lock().await.next().await.unwrap().is_none(), "one waits");
    drop(guards);
    waiting.await.unwrap().release().await.unwrap();
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn asking_to_grant_can_be_dropped_at_any_poll_without_effect() {
    let pair = Pair::new().await;
    let held = pair.here.lock("a").await.unwrap();
    let waiting = tokio::spawn(pair.there.lock("a").into_future());
    come(|| queued(&pair.grantor) == 1).await;
    // The loop ends before the bid completes: the elder lets each grantor serve for a while before
    // the next one.
    for k in 0..10 {
        let asks = if pair.here.is_grantor() { &pair.there } else { &pair.here };
        let mut becoming = asks.become_grantor().into_future();
        for _ in 0..k {
            if poll_once(Pin::new(&mut becoming)).is_ready() {
                break;
            }
            tokio::time::sleep(MS).await;
        }
        drop(becoming);
        pair.there.lock("b").wait(HANG).await.unwrap().release().await.unwrap();
        pair.here.lock("b").wait(HANG).await.unwrap().release().await.unwrap();
        held.fence().unwrap();
        assert!(!waiting.is_finished());
    }
    pair.there.become_grantor().await.unwrap();
    assert!(pair.there.is_grantor());
    come(|| queued(&pair.other) == 1).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destruction_dropped_at_any_poll_goes_on_or_has_never_begun() {
    let pair = Pair::new().await;
    let kept = pair.here.lock("b").await.unwrap();
    let last = Mutex::new(None);
    poll_a_wait_then_drop(
        async || {
            let service = pair.other.lock_service("inventory").await.unwrap();
            let guard = service.lock("a").wait(HANG).await.expect("a destroyed hold is released");
            let waiting = tokio::spawn(service.lock("b").into_future());
            come(|| queued(&pair.grantor) == 1).await;
            *last.lock().unwrap() = Some((service.clone(), guard, waiting));
            async move { service.destroy().await }
        },
        async |k| {
            let (service, guard, waiting) = last.lock().unwrap().take().unwrap();
            if k == 0 {
                guard.fence().expect("nothing was asked");
                waiting.abort();
            } else {
                let lost = tokio::time::timeout(HANG, guard.lost()).await.expect("it never came");
                assert_eq!(lost, LostReason::Destroyed);
                assert_eq!(
                    waiting.await.unwrap().unwrap_err(),
                    LockError::Unavailable(Unavailable::Destroyed)
                );
                assert_eq!(
                    service.lock("a").await.unwrap_err(),
                    LockError::Unavailable(Unavailable::Destroyed)
                );
            }
            drop(guard);
            come(|| left_over(&pair.grantor) == (1, 1, 0) && queued(&pair.grantor) == 0).await;
        },
    )
    .await;
    kept.release().await.unwrap();
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_to_end_a_suspension_can_be_dropped_at_any_poll() {
    let pair = Pair::new().await;
    let suspended = pair.there.suspend().revocable().await.unwrap();
    let holds = async |_| suspended.fence().map(drop).unwrap();
    poll_k_then_drop(
        async || {
            let asking = pair.here.revoke_suspension().into_future();
            async move { asking.await.unwrap() }
        },
        holds,
    )
    .await;
    assert!(suspended.revocation().is_requested(), "the last one was told");
    suspended.resume().await.unwrap();
    pair.nothing().await;
}

/// A waiter that is dropped, at any poll, is followed by the next waiter, at the grantor's
/// member or not.
async fn those_behind_are_served<G: Grant + Send + 'static>(
    pair: &Pair,
    ask: impl Fn(&LockService) -> LockBuilder<G>,
    next: impl Fn(&LockService) -> LockBuilder,
) {
    let before = (left_over(&pair.grantor), left_over(&pair.other));
    for of in [&pair.there, &pair.here] {
        let behind = Mutex::new(None);
        poll_a_wait_then_drop(
            async || {
                let held = pair.here.lock("a").owner(1).await.unwrap();
                let dropped = ask(&pair.there).owner(2).start();
                dropped.position().await.unwrap().expect("it is held");
                let next = next(of).owner(3).start();
                next.position().await.unwrap().expect("it stands behind");
                *behind.lock().unwrap() = Some(tokio::spawn(next));
                tokio::spawn(async move {
                    tokio::time::sleep(3 * MS).await;
                    drop(held);
                });
                dropped
            },
            async |_| {
                let next = behind.lock().unwrap().take().unwrap();
                let next = tokio::time::timeout(HANG, next)
                    .await
                    .expect("it was forgotten")
                    .unwrap()
                    .unwrap();
                next.release().await.unwrap();
                come(|| (left_over(&pair.grantor), left_over(&pair.other)) == before).await;
            },
        )
        .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_behind_a_request_dropped_at_any_poll_is_served() {
    let pair = Pair::new().await;
    those_behind_are_served(&pair, |service| service.lock("a"), |service| service.lock("a")).await;
    those_behind_are_served(&pair, |service| service.lock("a"), |service| service.share("a")).await;
    those_behind_are_served(&pair, |service| service.share("a"), |service| service.lock("a")).await;
    those_behind_are_served(
        &pair,
        |service| service.lock_all(["a", "b"]),
        |service| service.lock("b"),
    )
    .await;
    those_behind_are_served(&pair, |service| service.suspend(), |service| service.lock("c")).await;
    let _pool = pair.there.open("a", 2_u32.to_le_bytes()).await.unwrap();
    come(|| left_over(&pair.grantor).1 == 1).await;
    those_behind_are_served(&pair, |service| service.permits("a", 2), |service| service.lock("a"))
        .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_second_suspension_of_one_owner_is_a_deadlock_at_once_wherever_it_is_asked() {
    let pair = Pair::new().await;
    for (service, elsewhere) in [(&pair.here, &pair.there), (&pair.there, &pair.here)] {
        for owner in [0, 7] {
            let ask = || service.suspend().owner(owner).wait(HANG);
            let refused = || {
                matches!(
                    poll_once(pin!(ask().into_future())),
                    Poll::Ready(Err(LockError::Deadlock))
                )
            };
            let held = elsewhere.lock("a").await.unwrap();
            let mut first = pin!(ask().into_future());
            assert!(poll_once(first.as_mut()).is_pending());
            assert!(refused(), "it waits for the first");
            held.release().await.unwrap();
            let suspended = first.await.unwrap();
            assert!(refused(), "it has the first");
            // Another owner waits, whether or not the member as a whole suspends.
            assert!(service.suspend().owner(8).wait(5 * MS).await.unwrap_err().is_timeout());
            suspended.resume().await.unwrap();
            // A hold whose lease is over by the clock stops no request, even if its end was not
            // noticed.
            let short = ask().lease(2 * MS).await.unwrap();
            while short.fence().is_ok() {
                std::hint::spin_loop();
            }
            ask().await.unwrap().resume().await.unwrap();
        }
    }
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_confirmed_release_far_from_the_grantor_dropped_at_any_poll_releases_the_lock() {
    let pair = Pair::new().await;
    poll_k_then_drop(
        async || pair.there.lock("a").await.unwrap().release_and_confirm(),
        async |_| {
            pair.nothing().await;
            pair.here.lock("a").await.unwrap().release_and_confirm().await.unwrap();
            pair.nothing().await;
        },
    )
    .await;
    poll_k_then_drop(
        async || pair.there.lock_all(["a", "b"]).await.unwrap().release_and_confirm(),
        async |_| pair.nothing().await,
    )
    .await;
    poll_k_then_drop(
        async || pair.there.suspend().await.unwrap().resume_and_confirm(),
        async |_| pair.nothing().await,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_try_meets_a_hold_whose_release_was_confirmed_also_while_the_grantor_changes() {
    let pair = Pair::new().await;
    for round in 0..200 {
        let (one, other) =
            if round % 2 == 0 { (&pair.there, &pair.here) } else { (&pair.here, &pair.there) };
        let guard = one.lock("a").wait(HANG).await.unwrap();
        let inner = guard.reenter().unwrap();
        let moving = (round % 10 == 9).then(|| {
            let other = other.clone();
            tokio::spawn(async move { other.become_grantor().await })
        });
        inner.release_and_confirm().await.unwrap();
        let token = guard.token();
        guard.release_and_confirm().await.unwrap();
        let refused = other.try_lock("a").await.err();
        let holder = refused.as_ref().and_then(TryLockError::holder).map(|holder| holder.token);
        assert_ne!(holder, Some(token), "round {round}");
        if let Some(moving) = moving {
            moving.await.unwrap().unwrap();
        } else {
            assert_eq!(refused, None, "round {round}");
        }
    }
    pair.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_try_for_a_permit_is_granted_when_the_release_of_one_was_confirmed() {
    let pair = Pair::new().await;
    let _pools = [
        pair.here.open("pool", 3_u32.to_le_bytes()).await.unwrap(),
        pair.there.open("pool", 3_u32.to_le_bytes()).await.unwrap(),
    ];
    for round in 0..200 {
        let (one, other) =
            if round % 2 == 0 { (&pair.there, &pair.here) } else { (&pair.here, &pair.there) };
        let mut leases = one.permits("pool", 3).wait(HANG).await.unwrap().into_permits();
        let moving = (round % 10 == 9).then(|| {
            let other = other.clone();
            tokio::spawn(async move { other.become_grantor().await })
        });
        leases.remove(1).release_and_confirm().await.unwrap();
        assert!(leases.iter().all(|lease| lease.fence().is_ok()));
        let next = match other.try_permits("pool", 1).await {
            // The next grantor has not begun to grant yet.
            Err(TryLockError::Undecided) if moving.is_some() => {
                other.permits("pool", 1).wait(HANG).await
            }
            next => Ok(next.unwrap_or_else(|error| panic!("round {round}: {error:?}"))),
        };
        assert!(other.try_permits("pool", 1).await.is_err(), "round {round}: two are held yet");
        leases.remove(1).release_and_confirm().await.unwrap();
        leases.remove(0).release_and_confirm().await.unwrap();
        next.unwrap().release_and_confirm().await.unwrap();
        if let Some(moving) = moving {
            moving.await.unwrap().unwrap();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_that_no_grantor_confirms_says_so_after_a_member_lease() {
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::fast()), lan.start_with(2, Timing::fast()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    drop(grantor.lock_service("inventory").await.unwrap().lock("a").await.unwrap());
    let service = other.lock_service("inventory").await.unwrap();
    let guard = service.lock("a").wait(HANG).await.unwrap();
    let short = service.lock("b").lease(MS).wait(HANG).await.unwrap();
    assert_eq!(short.lost().await, LostReason::LeaseEnded);
    assert_eq!(short.release_and_confirm().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
    // Neither member has a quorum any more, and both hold for as long as their leases run.
    lan.cut(&grantor);
    match guard.release_and_confirm().await {
        Err(ReleaseError::Unconfirmed) => {}
        // On a busy machine the lease may be over by now.
        other => assert_eq!(other, Err(ReleaseError::Lost(LostReason::Suspended))),
    }
}
