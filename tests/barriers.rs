//! `Barrier`, `DoubleBarrier` and `CountDownLatch` over real members, in one process with sockets
//! on the loopback interface. The cases of Curator's own tests of its barriers are here, each test
//! with their name.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{
    Barrier, BarrierError, CountDownLatch, CountError, DoubleBarrier, DoubleBarrierGuard,
    LockError, LockService, LostReason, Member, Semaphore, SharedCount,
};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::local::{
    HANG, Local, MS, left_open, poll_a_wait_then_drop, poll_k_then_drop, poll_once, soon, until,
};
use support::rng::Rng;
use tokio::task::JoinHandle;

async fn barriers(services: &[LockService], name: &str) -> Vec<Barrier> {
    let mut barriers = Vec::new();
    for service in services {
        barriers.push(soon(Barrier::open(service, name)).await.expect("it opens"));
    }
    barriers
}

async fn double_barriers(services: &[LockService], name: &str, members: u32) -> Vec<DoubleBarrier> {
    let mut barriers = Vec::new();
    for service in services {
        barriers.push(soon(DoubleBarrier::open(service, name, members)).await.expect("it opens"));
    }
    barriers
}

async fn latches(services: &[LockService], name: &str, count: u32) -> Vec<CountDownLatch> {
    let mut latches = Vec::new();
    for service in services {
        latches.push(soon(CountDownLatch::open(service, name, count)).await.expect("it opens"));
    }
    latches
}

/// Waits until `count` requests hold a share of the lock, as the grantor sees it.
async fn until_inside(service: &LockService, name: &str, count: usize) {
    soon(async {
        loop {
            if let Ok(seen) = soon(service.inspect(name)).await
                && seen.holders.len() == count
            {
                return;
            }
            tokio::time::sleep(MS).await;
        }
    })
    .await;
}

/// Waits until at least `count` requests wait for the lock, as the grantor sees it.
async fn until_waiting(service: &LockService, name: &str, count: usize) {
    soon(async {
        while !soon(service.inspect(name)).await.is_ok_and(|seen| seen.waiters.len() >= count) {
            tokio::time::sleep(MS).await;
        }
    })
    .await;
}

/// The number of shares that the grantor sees. Its answer lists only some of them and counts the
/// rest.
async fn inside(service: &LockService, name: &str) -> u64 {
    soon(async {
        loop {
            match service.inspect(name).await {
                Ok(seen) => break seen.holders.len() as u64 + seen.more_holders,
                // On a busy machine the member's lease may be renewed late.
                Err(_) => tokio::time::sleep(MS).await,
            }
        }
    })
    .await
}

fn waiting(barrier: &Barrier) -> JoinHandle<Result<(), BarrierError>> {
    let barrier = barrier.clone();
    tokio::spawn(async move { soon(barrier.wait()).await })
}

fn entering(barrier: &DoubleBarrier) -> JoinHandle<DoubleBarrierGuard> {
    let barrier = barrier.clone();
    tokio::spawn(async move { soon(barrier.enter()).await.expect("enough enter") })
}

fn leaving(inside: DoubleBarrierGuard) -> JoinHandle<Result<(), BarrierError>> {
    tokio::spawn(async move { soon(inside.leave()).await })
}

/// TestDistributedBarrier.testNoBarrier.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_that_is_not_set_lets_members_pass() {
    let local = Local::start(2).await;
    for barrier in barriers(&local.services("s").await, "x").await {
        barrier.wait().wait(HANG).await.expect("it is not set");
        soon(barrier.wait()).await.expect("it is not set");
        assert_eq!(soon(barrier.is_set()).await, Ok(false));
    }
}

/// TestDistributedBarrier.testBasic, testMultiClient: one member sets the barrier, others wait for
/// it, and a third member removes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_go_on_when_any_member_removes_the_barrier() {
    let local = Local::start(3).await;
    let barriers = barriers(&local.services("s").await, "x").await;
    soon(barriers[0].set()).await.expect("it is open");
    // A task that learns that the barrier is set waits, even before its member has the change.
    for barrier in &barriers {
        assert_eq!(barrier.wait().wait(20 * MS).await, Err(BarrierError::TimedOut));
        assert_eq!(soon(barrier.is_set()).await, Ok(true));
    }
    let waits: Vec<_> =
        barriers.iter().flat_map(|barrier| [waiting(barrier), waiting(barrier)]).collect();
    soon(barriers[1].set()).await.expect("setting it twice is not an error");
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    soon(barriers[2].remove()).await.expect("it is open");
    for wait in waits {
        soon(wait).await.expect("no panic").expect("it is removed");
    }
    soon(barriers[1].remove()).await.expect("removing it twice is not an error");
    soon(barriers[0].set()).await.expect("it can be set again");
    assert!(barriers[2].wait().wait(20 * MS).await.expect_err("it is set").is_timeout());
}

/// Curator `DistributedBarrier.waitOnBarrier`: the removal wakes a waiter, which looks again. It
/// goes on waiting if the barrier was set meanwhile. Here the removal ends the wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_goes_on_when_the_barrier_is_removed_and_set_again_at_once() {
    let local = Local::start(2).await;
    let barriers = barriers(&local.services("s").await, "x").await;
    for of in [&barriers[0], &barriers[1]] {
        let mut wait = Box::pin(of.wait());
        for who in &barriers {
            soon(who.set()).await.expect("it is open");
            // The wait has sent its question; `is_set` below is answered after it.
            assert!(poll_once(wait.as_mut()).is_pending());
            assert_eq!(soon(of.is_set()).await, Ok(true));
        }
        assert!(poll_once(wait.as_mut()).is_pending(), "set twice is not removed");
        soon(barriers[0].remove()).await.expect("it is open");
        soon(barriers[1].set()).await.expect("it is open");
        soon(wait).await.expect("it was removed");
        assert!(of.wait().wait(10 * MS).await.expect_err("it is set").is_timeout());
        soon(barriers[0].remove()).await.expect("it is open");
    }
}

/// A name has one open object. A call that expects another kind of object gets an error.
#[tokio::test]
async fn a_recipe_is_not_taken_for_another_of_its_name() {
    let member = Member::local().await.expect("a local member");
    let stock = member.lock_service("s").await.expect("a good name");
    let other = LockError::OtherRecipe;
    let latch = CountDownLatch::open(&stock, "x", 2).await.expect("it opens");
    assert_eq!(Barrier::open(&stock, "x").await.expect_err("a latch"), other);
    assert_eq!(DoubleBarrier::open(&stock, "x", 1).await.expect_err("a latch"), other);
    assert_eq!(Semaphore::open(&stock, "x", 1).await.expect_err("a latch"), other);
    assert_eq!(SharedCount::open(&stock, "x", 1).await.expect_err("a latch"), other);
    let same = CountDownLatch::open(&stock, "x", 3).await.expect("it opens");
    assert_eq!((same.count(), left_open(&member)), (Ok(2), (0, 0, 2)));
    drop((latch, same));
    let count = SharedCount::open(&stock, "x", 1).await.expect("nothing is open by that name");
    assert_eq!(CountDownLatch::open(&stock, "x", 2).await.expect_err("a count"), other);
    assert_eq!(Barrier::open(&stock, "x").await.expect_err("a count"), other);
    let semaphore = Semaphore::open(&stock, "x", 2).await.expect("its limit is the count");
    assert_eq!(semaphore.limit().get(), count.get());
}

/// TestDistributedBarrier.testServerCrash: there a waiter is told of the lost server. Here another
/// grantor takes over, and the waiters keep waiting.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_stays_set_when_the_grantor_that_set_it_dies() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let barriers = barriers(&services, "x").await;
    soon(barriers[0].set()).await.expect("it is open");
    until(|| services[0].is_grantor()).await;
    let waits = [waiting(&barriers[1]), waiting(&barriers[2])];
    assert!(barriers[1].wait().wait(20 * MS).await.is_err());
    assert!(barriers[2].wait().wait(20 * MS).await.is_err());
    local.kill(0);
    local.agree(2).await;
    assert_eq!(soon(barriers[1].is_set()).await, Ok(true));
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    soon(barriers[2].remove()).await.expect("it is open");
    for wait in waits {
        soon(wait).await.expect("no panic").expect("it is removed");
    }
}

/// Curator's barrier stays for ever. This barrier ends when the last member closes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_barrier_that_no_member_has_open_is_not_set() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barrier = soon(Barrier::open(&services[0], "x")).await.expect("it opens");
    soon(barrier.set()).await.expect("it is open");
    drop(barrier);
    soon(async {
        while soon(soon(Barrier::open(&services[1], "x")).await.expect("it opens").is_set()).await
            == Ok(true)
        {}
    })
    .await;
}

/// The waits of a member that has left end with an error.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_hears_that_its_member_has_left() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = barriers(&services, "x").await;
    let latches = latches(&services, "y", 1).await;
    soon(barriers[0].set()).await.expect("it is open");
    let wait = waiting(&barriers[1]);
    let latch = latches[1].clone();
    let latch_wait = tokio::spawn(async move { soon(latch.wait()).await });
    assert!(barriers[1].wait().wait(20 * MS).await.is_err());
    soon(local.members[1].leave()).await.expect("it leaves");
    let error = soon(wait).await.expect("no panic").expect_err("it is open no more");
    assert!(error.is_lost(), "{error:?}");
    let error = soon(latch_wait).await.expect("no panic").expect_err("it is open no more");
    let BarrierError::Count(CountError::Lost(lost)) = &error else { panic!("{error:?}") };
    assert_eq!(lost.reason, LostReason::Left);
    assert!(soon(barriers[1].wait()).await.expect_err("it is open no more").is_lost());
}

/// A wait that is dropped at any poll leaves nothing open, held or queued. Other waits are
/// unaffected.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waits_dropped_at_any_poll_leave_nothing() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = barriers(&services, "x").await;
    let double = double_barriers(&services, "y", 2).await;
    let latches = latches(&services, "z", 1_000).await;
    let others = Mutex::new(None);
    let opened = local.members.iter().map(left_open).collect::<Vec<_>>();
    let nothing =
        async |_| until(|| local.members.iter().map(left_open).collect::<Vec<_>>() == opened).await;
    for of in 0..2 {
        poll_k_then_drop(async || Barrier::open(&services[of], "other"), nothing).await;
        poll_k_then_drop(async || DoubleBarrier::open(&services[of], "other", 2), nothing).await;
        poll_k_then_drop(async || CountDownLatch::open(&services[of], "other", 2), nothing).await;
        soon(barriers[0].set()).await.expect("it is open");
        poll_a_wait_then_drop(async || barriers[of].wait().wait(10 * MS), nothing).await;
        poll_k_then_drop(async || barriers[of].is_set(), nothing).await;
        poll_k_then_drop(async || barriers[of].set(), nothing).await;
        // One of two waiters is dropped, and the barrier is removed meanwhile. The other waiter
        // continues.
        poll_a_wait_then_drop(
            async || {
                soon(barriers[0].set()).await.expect("it is open");
                *others.lock().expect("no panic") = Some(waiting(&barriers[of]));
                let removes = barriers[1 - of].clone();
                tokio::spawn(async move {
                    tokio::time::sleep(3 * MS).await;
                    soon(removes.remove()).await.expect("it is open");
                });
                barriers[of].wait()
            },
            async |k| {
                let other = others.lock().expect("no panic").take().expect("one in each round");
                soon(other).await.expect("no panic").expect("it is removed");
                nothing(k).await;
            },
        )
        .await;
        poll_k_then_drop(async || barriers[of].remove(), nothing).await;
        poll_k_then_drop(async || latches[of].count_down(), nothing).await;
        poll_a_wait_then_drop(async || latches[of].wait().wait(10 * MS), nothing).await;

        // A member that enters alone waits until its limit.
        poll_a_wait_then_drop(async || double[of].enter().wait(10 * MS), nothing).await;
        // The dropped member enters as the second of two.
        let other = 1 - of;
        poll_k_then_drop(
            async || {
                let first = entering(&double[other]);
                until_inside(&services[0], "y", 1).await;
                let entering = double[of].enter();
                async move {
                    let inside = entering.await;
                    drop(inside);
                    drop(soon(first).await.expect("no panic"));
                }
            },
            async |_| {
                // If the second member was dropped, the first still waits. A helper enters in its
                // place.
                let helper = double[of].enter().wait(50 * MS).await;
                drop(helper);
                soon(async {
                    while local.members.iter().map(left_open).collect::<Vec<_>>() != opened {
                        drop(double[of].enter().wait(20 * MS).await);
                    }
                })
                .await;
            },
        )
        .await;
        poll_k_then_drop(
            async || {
                let (one, two) = (entering(&double[of]), entering(&double[other]));
                let (one, two) =
                    (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
                *others.lock().expect("no panic") = Some(leaving(two));
                one.leave()
            },
            async |k| {
                // A dropped waiter counts as having left, so the other member does not wait for it.
                let two = others.lock().expect("no panic").take().expect("one in each round");
                soon(two).await.expect("no panic").expect("all have left");
                nothing(k).await;
            },
        )
        .await;
        // The other member stays inside meanwhile.
        poll_a_wait_then_drop(
            async || {
                let (one, two) = (entering(&double[of]), entering(&double[other]));
                let (one, two) =
                    (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
                let mut lost = Box::pin(one.lost());
                assert!((0..3).all(|_| poll_once(lost.as_mut()).is_pending()));
                drop(lost);
                one.fence().expect("it is inside");
                let leaves = one.leave().wait(10 * MS);
                async move {
                    let left = leaves.await;
                    drop(two);
                    left
                }
            },
            nothing,
        )
        .await;
    }
    // A latch that reaches zero while some of its waiters are dropped wakes the remaining waiter.
    let last = soon(CountDownLatch::open(&services[1], "last", 1)).await.expect("it opens");
    let stays = tokio::spawn({
        let last = last.clone();
        async move { soon(last.wait()).await }
    });
    poll_k_then_drop(
        async || last.wait(),
        async |k| {
            if k == 3 {
                soon(last.count_down()).await.expect("it is open");
            }
        },
    )
    .await;
    soon(stays).await.expect("no panic").expect("it is zero");
    // The double barrier still works.
    let (one, two) = (entering(&double[0]), entering(&double[1]));
    let (one, two) = (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
    let (one, two) = (leaving(one), leaving(two));
    soon(one).await.expect("no panic").expect("all have left");
    soon(two).await.expect("no panic").expect("all have left");
}

/// TestDistributedDoubleBarrier.testBasic, testMultiClient: no member begins before five have
/// entered. No member has left before all five leave.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_begin_together_and_end_together() {
    const QTY: usize = 5;
    let local = Local::start(3).await;
    let barriers = double_barriers(&local.services("s").await, "x", QTY as u32).await;
    let (entered, leaving) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    // The same barrier serves five rounds.
    for round in 1..=5 {
        let tasks: Vec<_> = (0..QTY)
            .map(|number| {
                let barrier = barriers[number % 3].clone();
                let (entered, leaving) = (entered.clone(), leaving.clone());
                tokio::spawn(async move {
                    entered.fetch_add(1, Ordering::SeqCst);
                    let inside = barrier.enter().wait(HANG).await.expect("all enter");
                    assert_eq!(
                        entered.load(Ordering::SeqCst),
                        round * QTY,
                        "a member began before all had entered"
                    );
                    inside.fence().expect("it is inside");
                    leaving.fetch_add(1, Ordering::SeqCst);
                    inside.leave().wait(HANG).await.expect("all leave");
                    assert_eq!(
                        leaving.load(Ordering::SeqCst),
                        round * QTY,
                        "a member was out before all were"
                    );
                })
            })
            .collect();
        for task in tasks {
            soon(task).await.expect("no panic");
        }
    }
}

/// TestDistributedDoubleBarrier.testOverSubscribed: the number is a threshold and not a limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_number_may_enter_and_all_leave_together() {
    const QTY: usize = 5;
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", QTY as u32).await;
    let mut inside = Vec::new();
    for task in (0..QTY).map(|number| entering(&barriers[number % 2])).collect::<Vec<_>>() {
        inside.push(soon(task).await.expect("no panic"));
    }
    // The round has begun; a member that enters now takes part in it.
    for barrier in &barriers {
        inside.push(soon(barrier.enter()).await.expect("the round goes on"));
    }
    let last = inside.pop().expect("there are seven");
    let leavers: Vec<_> = inside.into_iter().map(leaving).collect();
    until_inside(&services[0], "x", 1).await;
    assert!(leavers.iter().all(|leaver| !leaver.is_finished()), "one is still inside");
    soon(last.leave()).await.expect("all have left");
    for leaver in leavers {
        soon(leaver).await.expect("no panic").expect("all have left");
    }
}

/// TestDistributedDoubleBarrier.testSpuriousWakeup: a member that enters and gives up does not let
/// a waiter begin.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_enters_and_gives_up_does_not_count() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 3).await;
    let first = entering(&barriers[0]);
    until_inside(&services[0], "x", 1).await;
    for _ in 0..5 {
        assert!(barriers[1].enter().wait(20 * MS).await.expect_err("two of three").is_timeout());
    }
    assert!(!first.is_finished());
    let (second, third) = (entering(&barriers[1]), entering(&barriers[0]));
    for task in [first, second, third] {
        drop(soon(task).await.expect("no panic"));
    }
}

/// A round begins after the last round has ended. A member that enters while a round ends takes
/// part in the next round.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_enters_while_others_leave_is_in_the_next_round() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 2).await;
    let (one, two) = (entering(&barriers[0]), entering(&barriers[1]));
    let (one, two) = (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
    let one = leaving(one);
    // The leaving member waits for the lock by which it sees that all have left.
    until_waiting(&services[0], "x", 1).await;
    let late = [entering(&barriers[0]), entering(&barriers[1])];
    until_waiting(&services[0], "x", 3).await;
    assert!(!one.is_finished() && late.iter().all(|task| !task.is_finished()));
    soon(two.leave()).await.expect("all have left");
    soon(one).await.expect("no panic").expect("all have left");
    for task in late {
        drop(soon(task).await.expect("no panic"));
    }
}

/// A member enters at a random moment while the others leave. It is in their round or in the next
/// round, and no two members wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_enters_while_others_leave_is_in_one_of_the_two_rounds() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 2).await;
    let mut rng =
        Rng::new("a_member_that_enters_while_others_leave_is_in_one_of_the_two_rounds", 1);
    for _ in 0..100 {
        let (one, two) = (entering(&barriers[0]), entering(&barriers[1]));
        let (one, two) = (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
        let late = barriers[2].clone();
        let late =
            tokio::spawn(
                async move { soon(late.enter()).await.expect("enough enter").leave().await },
            );
        // `enter` sends three requests; the leaves fall at a random point between them.
        let moment = std::time::Instant::now() + std::time::Duration::from_micros(rng.below(800));
        while std::time::Instant::now() < moment {
            tokio::task::yield_now().await;
        }
        for leaver in [leaving(one), leaving(two)] {
            soon(leaver).await.expect("no panic").expect("all have left");
        }
        // A member of the next round needs a second one to begin.
        while !late.is_finished() {
            if let Ok(helper) = barriers[0].enter().wait(5 * MS).await {
                soon(helper.leave()).await.expect("all have left");
            }
        }
        soon(late).await.expect("no panic").expect("all have left");
    }
}

/// A round also ends when all its members drop their guards or die, instead of leaving.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_without_a_proper_leave_is_over_with_the_last_inside() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 2).await;
    for _ in 0..3 {
        let (one, two) = (entering(&barriers[0]), entering(&barriers[1]));
        let (one, two) = (soon(one).await.expect("no panic"), soon(two).await.expect("no panic"));
        drop((one, two));
        until_inside(&services[0], "x", 0).await;
        assert!(barriers[0].enter().wait(30 * MS).await.expect_err("it is alone").is_timeout());
    }
}

/// With more members than an inspection lists, an entering member still sees that the last round is
/// over. It also sees for how many members it waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn three_hundred_begin_together_after_a_round_without_a_proper_leave() {
    const QTY: usize = 300;
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", QTY as u32).await;
    let mut places = Vec::new();
    for at_once in [true, false, true] {
        // The guards are dropped, so the last round ends without a leave.
        drop(std::mem::take(&mut places));
        soon(async {
            while inside(&services[0], "x").await > 0 {
                tokio::time::sleep(MS).await
            }
        })
        .await;
        let mut tasks = Vec::new();
        for number in 0..QTY - 1 {
            // If all enter at once, they enter at the member that does not grant: their messages go
            // together.
            tasks.push(entering(&barriers[if at_once { 1 } else { number % 2 }]));
            if !at_once {
                soon(async {
                    while inside(&services[0], "x").await <= number as u64 {
                        tokio::time::sleep(MS).await
                    }
                })
                .await;
            }
        }
        soon(async {
            while inside(&services[0], "x").await < QTY as u64 - 1 {
                tokio::time::sleep(MS).await
            }
        })
        .await;
        assert!(tasks.iter().all(|task| !task.is_finished()), "one is missing");
        tasks.push(entering(&barriers[0]));
        for task in tasks {
            places.push(soon(task).await.expect("no panic"));
        }
    }
    for leaver in places.into_iter().map(leaving).collect::<Vec<_>>() {
        soon(leaver).await.expect("no panic").expect("all have left");
    }
}

/// Curator asks for "the same number for all". Here a call with another number gets an error and
/// does not wait.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_double_barrier_of_another_number_is_refused() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let two = soon(DoubleBarrier::open(&services[0], "x", 2)).await.expect("it opens");
    let first = entering(&two);
    until_inside(&services[0], "x", 1).await;
    let error = soon(DoubleBarrier::open(&services[1], "x", 3))
        .await
        .expect_err("they would wait for each other");
    assert_eq!(error, LockError::OtherNumber { open: 2, asked: 3 });
    let text = error.to_string();
    assert!(
        text.contains("of 2") && text.contains("of 3") && text.contains("same number"),
        "{text}"
    );
    assert_eq!(left_open(&local.members[1]), (0, 0, 0));
    let second =
        entering(&soon(DoubleBarrier::open(&services[1], "x", 2)).await.expect("the same number"));
    let (first, second) =
        (soon(first).await.expect("no panic"), soon(second).await.expect("no panic"));
    let first = leaving(first);
    soon(second.leave()).await.expect("all have left");
    soon(first).await.expect("no panic").expect("all have left");
    // The number is forgotten when the last member closes the barrier.
    drop(two);
    soon(async {
        while DoubleBarrier::open(&services[1], "x", 3).await.is_err() {
            tokio::time::sleep(MS).await
        }
    })
    .await;
}

/// The documentation of `DoubleBarrier` describes this circle. A gathering member, a suspension of
/// the service and a later member wait for each other. It lasts until one of them gives up; then
/// the others continue, and nothing is left.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_gathering_member_and_a_suspension_wait_for_each_other_until_a_limit() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 2).await;
    let others = double_barriers(&services, "y", 2).await;
    let opened = local.members.iter().map(left_open).collect::<Vec<_>>();
    let until_suspending = async || {
        soon(async {
            while !soon(services[0].inspect_suspension())
                .await
                .is_ok_and(|seen| !seen.waiters.is_empty())
            {
                tokio::time::sleep(MS).await
            }
        })
        .await;
    };

    // First case: the suspension gives up.
    let first = entering(&barriers[0]);
    until_inside(&services[0], "x", 1).await;
    let suspending = tokio::spawn(services[2].suspend().into_future());
    until_suspending().await;
    assert!(
        barriers[1]
            .enter()
            .wait(20 * MS)
            .await
            .expect_err("it waits for the suspension")
            .is_timeout()
    );
    let second = entering(&barriers[1]);
    // The second member is in the queue, behind the suspension.
    until_waiting(&services[0], "x", 2).await;
    assert!(!first.is_finished() && !second.is_finished() && !suspending.is_finished());
    suspending.abort();
    let (first, second) =
        (soon(first).await.expect("no panic"), soon(second).await.expect("no panic"));
    let first = leaving(first);
    soon(second.leave()).await.expect("all have left");
    soon(first).await.expect("no panic").expect("all have left");

    // Second case: the gathering member gives up. It uses another barrier, since messages of the
    // leave above may still be under way.
    let first = entering(&others[0]);
    until_inside(&services[0], "y", 1).await;
    let suspending = tokio::spawn(services[2].suspend().into_future());
    until_suspending().await;
    let second = entering(&others[1]);
    until_waiting(&services[0], "y", 2).await;
    first.abort();
    let suspended = soon(suspending).await.expect("no panic").expect("no member gathers any more");
    assert!(!second.is_finished());
    soon(suspended.resume()).await.expect("it was held");
    until_inside(&services[0], "y", 1).await;
    second.abort();
    until(|| local.members.iter().map(left_open).collect::<Vec<_>>() == opened).await;
}

/// A member that dies inside does not block the others. They leave when the view excludes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_inside_is_not_waited_for() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 3).await;
    let tasks: Vec<_> = barriers.iter().map(entering).collect();
    let mut inside = Vec::new();
    for task in tasks {
        inside.push(soon(task).await.expect("no panic"));
    }
    let dead = inside.pop().expect("there are three");
    local.kill(2);
    for leaver in inside.into_iter().map(leaving).collect::<Vec<_>>() {
        soon(leaver).await.expect("no panic").expect("all living members have left");
    }
    assert!(dead.fence().is_err(), "told before the others go on");
    assert!(soon(dead.leave()).await.expect_err("it is out").is_lost());
}

/// The member that dies inside is the grantor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grantor_that_dies_inside_is_not_waited_for() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 3).await;
    until(|| services[0].is_grantor()).await;
    let tasks: Vec<_> = barriers.iter().map(entering).collect();
    let mut inside = Vec::new();
    for task in tasks {
        inside.push(soon(task).await.expect("no panic"));
    }
    let _dead = inside.remove(0);
    let first = leaving(inside.remove(0));
    until_inside(&services[1], "x", 2).await;
    local.kill(0);
    soon(inside.remove(0).leave()).await.expect("all living members have left");
    soon(first).await.expect("no panic").expect("all living members have left");
}

/// A member that dies before the round begins does not count: another member has to enter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_dies_before_the_round_begins_does_not_count() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 3).await;
    let first = entering(&barriers[0]);
    let dead = barriers[2].clone();
    let dead = tokio::spawn(async move { dead.enter().await.map(drop) });
    until_inside(&services[0], "x", 2).await;
    local.kill(2);
    assert!(soon(dead).await.expect("no panic").expect_err("its member is dead").is_lost());
    until_inside(&services[0], "x", 1).await;
    let second = entering(&barriers[1]);
    until_inside(&services[0], "x", 2).await;
    assert!(!first.is_finished() && !second.is_finished(), "two of three");
    let third = entering(&barriers[0]);
    for task in [first, second, third] {
        drop(soon(task).await.expect("no panic"));
    }
}

/// The grantor dies while members gather. They keep gathering.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn gathering_members_survive_a_killed_grantor() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let barriers = double_barriers(&services, "x", 2).await;
    until(|| services[0].is_grantor()).await;
    let first = entering(&barriers[1]);
    until_inside(&services[0], "x", 1).await;
    local.kill(0);
    // The second member asks while no member grants.
    let second = entering(&barriers[2]);
    let (first, second) =
        (soon(first).await.expect("no panic"), soon(second).await.expect("no panic"));
    soon(services[2].become_grantor()).await.expect("no other member asks");
    let first = leaving(first);
    soon(second.leave()).await.expect("all have left");
    soon(first).await.expect("no panic").expect("all have left");
}

/// CountDownLatch of Java and Hazelcast: count_down, await, get_count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_opens_at_zero_and_stays_open() {
    let local = Local::start(3).await;
    let latches = latches(&local.services("s").await, "x", 3).await;
    let waits: Vec<_> = latches
        .iter()
        .map(|latch| {
            let latch = latch.clone();
            tokio::spawn(async move { soon(latch.wait()).await })
        })
        .collect();
    assert_eq!(soon(latches[0].count_down()).await, Ok(2));
    assert_eq!(soon(latches[1].count_down()).await, Ok(1));
    until(|| latches.iter().all(|latch| latch.count() == Ok(1))).await;
    assert!(latches[2].wait().wait(10 * MS).await.expect_err("one is missing").is_timeout());
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    assert_eq!(soon(latches[2].count_down()).await, Ok(0));
    for wait in waits {
        soon(wait).await.expect("no panic").expect("it is zero");
    }
    assert_eq!(soon(latches[0].count_down()).await, Ok(0), "zero stays zero");
    soon(latches[1].wait()).await.expect("it is zero");
    assert_eq!(latches[1].count(), Ok(0));
}

/// Many tasks count down at several members at once. Each count down is counted once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_count_down_is_counted_once() {
    const COUNT: u32 = 90;
    let local = Local::start(3).await;
    let latches = latches(&local.services("s").await, "x", COUNT + 1).await;
    let tasks: Vec<_> = (0..COUNT as usize)
        .map(|number| {
            let latch = latches[number % 3].clone();
            tokio::spawn(async move { soon(latch.count_down()).await.expect("it is open") })
        })
        .collect();
    let mut left = Vec::new();
    for task in tasks {
        left.push(soon(task).await.expect("no panic"));
    }
    left.sort();
    assert_eq!(left, (1..=COUNT).collect::<Vec<_>>());
    assert_eq!(soon(latches[0].count_down()).await, Ok(0));
}

/// The grantor dies while many tasks count down. No count down is made twice, and no confirmed one
/// is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_down_whose_grantor_died_is_not_made_twice() {
    const COUNT: u32 = 60;
    let mut rng = Rng::new("a_count_down_whose_grantor_died_is_not_made_twice", 1);
    for _ in 0..3 {
        let mut local = Local::start_mortal(3).await;
        let services = local.services("s").await;
        let latches = latches(&services, "x", COUNT + 1).await;
        until(|| services[0].is_grantor()).await;
        let tasks: Vec<_> = (0..COUNT as usize)
            .map(|number| {
                let latch = latches[1 + number % 2].clone();
                tokio::spawn(async move { soon(latch.count_down()).await.expect("it is open") })
            })
            .collect();
        // The grantor dies after a random number of them.
        let after = 1 + rng.below(u64::from(COUNT) - 2) as u32;
        until(|| latches[1].count().is_ok_and(|count| count <= COUNT + 1 - after)).await;
        local.kill(0);
        for task in tasks {
            soon(task).await.expect("no panic");
        }
        assert_eq!(soon(latches[2].count_down()).await, Ok(0), "each was counted once");
        soon(latches[1].wait()).await.expect("it is zero");
    }
}

/// The count downs of a dead member stay counted, and it makes no further ones.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_count_downs_of_a_dead_member_stay_counted() {
    let mut local = Local::start_mortal(3).await;
    let latches = latches(&local.services("s").await, "x", 2).await;
    assert_eq!(soon(latches[2].count_down()).await, Ok(1));
    local.kill(2);
    local.agree(2).await;
    until(|| latches[0].count() == Ok(1)).await;
    assert!(latches[0].wait().wait(20 * MS).await.expect_err("one is missing").is_timeout());
    assert_eq!(soon(latches[1].count_down()).await, Ok(0));
    soon(latches[0].wait()).await.expect("it is zero");
}

/// A transfer changes no count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_and_a_barrier_survive_a_transfer() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let latches = latches(&services, "x", 3).await;
    let barriers = barriers(&services, "y").await;
    soon(barriers[0].set()).await.expect("it is open");
    for (number, service) in services.iter().enumerate().rev() {
        soon(service.become_grantor()).await.expect("no other member asks");
        assert_eq!(soon(barriers[number].is_set()).await, Ok(true));
        assert_eq!(soon(latches[number].count_down()).await, Ok(number as u32));
    }
    soon(latches[1].wait()).await.expect("it is zero");
    // The wait is not polled between here and the removal; it must notice the removal afterwards.
    let mut wait = Box::pin(barriers[1].wait());
    assert!(poll_once(wait.as_mut()).is_pending());
    soon(barriers[2].remove()).await.expect("it is open");
    soon(wait).await.expect("it is removed");
}
