//! `Semaphore` over real members, mostly three in one process with sockets on the loopback
//! interface. The cases of Curator's own tests of `InterProcessSemaphoreV2` are here, each test
//! with their name.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{
    HolderInfo, InvalidWant, LockError, LockService, LostReason, Mode, PermitGuard, ReleaseError,
    Semaphore, SharedCount, Token, TryLockError,
};
use std::future::IntoFuture;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::gauge::Gauge;
use support::local::{
    Local, MS, left_open, left_over, nothing_is_left, poll_a_wait_then_drop, poll_k_then_drop,
    poll_once, soon, until,
};
use support::rng::Rng;

/// Opens the semaphore at each of the members, with this limit if it is new.
async fn semaphores(services: &[LockService], name: &str, limit: u32) -> Vec<Semaphore> {
    let mut semaphores = Vec::new();
    for service in services {
        semaphores.push(soon(Semaphore::open(service, name, limit)).await.expect("it opens"));
    }
    semaphores
}

async fn acquire(semaphore: &Semaphore, permits: u32) -> PermitGuard {
    soon(semaphore.acquire(permits)).await.expect("it is granted")
}

/// Waits until `waiters` requests wait for the semaphore.
async fn until_waiting(semaphore: &Semaphore, waiters: u64) {
    soon(async {
        // There may be no grantor for a while.
        while !soon(semaphore.usage()).await.is_ok_and(|usage| usage.waiting == waiters) {
            tokio::time::sleep(MS).await;
        }
    })
    .await;
}

/// Waits until `used` permits are in use. A release may still be under way.
async fn until_used(semaphore: &Semaphore, used: u64) {
    soon(async {
        while !soon(semaphore.usage()).await.is_ok_and(|usage| usage.used == used) {
            tokio::time::sleep(MS).await;
        }
    })
    .await;
}

/// TestInterProcessSemaphore.testSimple.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_one_permit_a_second_acquire_times_out() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 1).await;
    let one = acquire(&semaphores[0], 1).await;
    for semaphore in &semaphores {
        assert_eq!(
            soon(semaphore.acquire(1).wait(50 * MS)).await.expect_err("there is one"),
            LockError::TimedOut
        );
        match soon(semaphore.try_acquire(1)).await.expect_err("there is one") {
            TryLockError::Held(holder) => assert_eq!(holder.token, one.token()),
            other => panic!("{other:?}"),
        }
    }
    one.release().await.expect("it was held");
    acquire(&semaphores[1], 1).await.release().await.expect("it was held");
}

/// TestInterProcessSemaphore.testSimple2: `Lease.close`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_three_permits_a_fourth_is_there_when_one_is_closed() {
    let local = Local::start(3).await;
    let semaphores = semaphores(&local.services("s").await, "x", 3).await;
    let mut leases = Vec::new();
    for semaphore in &semaphores {
        leases.push(acquire(semaphore, 1).await);
    }
    assert!(
        soon(semaphores[0].acquire(1).wait(50 * MS))
            .await
            .expect_err("there are three")
            .is_timeout()
    );
    leases.remove(0).release().await.expect("it was held");
    drop(acquire(&semaphores[0], 1).await);
}

/// InterProcessSemaphoreV2.acquire(qty), returnLease, returnAll: several permits at once, each with
/// a token of its own, released one by one or all together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_permits_are_leases_that_are_closed_one_by_one_or_all_together() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 5).await;
    let mut leases = acquire(&semaphores[1], 4).await.into_permits();
    assert_eq!(leases.len(), 4);
    let mut tokens: Vec<Token> =
        leases.iter().map(|lease| lease.fence().expect("it is held")).collect();
    assert!(tokens.is_sorted());
    tokens.dedup();
    assert_eq!(tokens.len(), 4);
    assert!(soon(semaphores[0].acquire(2).wait(20 * MS)).await.is_err());

    // Any one of them may be released, here the second.
    leases.remove(1).release().await.expect("it was held");
    let two = acquire(&semaphores[0], 2).await;
    assert!(leases.iter().all(|lease| lease.fence().is_ok()));
    two.release().await.expect("it was held");

    drop(leases);
    let all = acquire(&semaphores[0], 5).await;
    assert_eq!(all.tokens().count(), 5);
    assert!(all.tokens().all(|token| !tokens.contains(&token)), "a token is dealt once");
    all.release().await.expect("it was held");
    drop(semaphores);
    nothing_is_left(&local).await;
}

/// InterProcessSemaphoreV2.acquire(qty, time, unit): "if time expires before all leases are
/// acquired, the subset of acquired leases are automatically closed". Here a request never has a
/// subset.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_given_all_or_none() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 5).await;
    let three = acquire(&semaphores[0], 3).await;
    let mut waiting = Box::pin(semaphores[1].acquire(3).into_future());
    assert!(poll_once(waiting.as_mut()).is_pending());
    until_waiting(&semaphores[0], 1).await;
    assert_eq!(soon(semaphores[0].usage()).await.expect("the grantor answers").used, 3);
    assert!(
        soon(semaphores[1].acquire(3).wait(20 * MS)).await.expect_err("two are free").is_timeout()
    );
    three.release().await.expect("it was held");
    assert_eq!(soon(waiting).await.expect("it fits").tokens().count(), 3);
}

/// InterProcessSemaphoreV2: `qty cannot be 0`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_permits_at_all_cannot_be_asked_for() {
    let local = Local::start(1).await;
    let semaphores = semaphores(&local.services("s").await, "x", 5).await;
    assert!(matches!(
        soon(semaphores[0].acquire(0)).await,
        Err(LockError::InvalidWant(InvalidWant::Permits(_)))
    ));
    assert!(matches!(
        soon(semaphores[0].try_acquire(0)).await,
        Err(TryLockError::InvalidWant(InvalidWant::Permits(_)))
    ));
    assert_eq!(left_over(&local.members[0]), (0, 0));
}

/// TestInterProcessSemaphore.testGetParticipantNodes; `setNodeData` and `Lease.getData`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn participants_and_their_data_are_seen_from_every_member() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let semaphores = semaphores(&services, "x", 3).await;
    let mut leases = Vec::new();
    for (index, semaphore) in semaphores.iter().enumerate() {
        leases.push(
            soon(semaphore.acquire(1).metadata(format!("node {index}"))).await.expect("it fits"),
        );
    }
    let waiting = semaphores[2].acquire(2).metadata("late").start();
    until_waiting(&semaphores[0], 1).await;
    for (service, semaphore) in services.iter().zip(&semaphores) {
        let usage = soon(semaphore.usage()).await.expect("the grantor answers");
        assert_eq!(
            (usage.limit, usage.used, usage.available(), usage.holders, usage.waiting),
            (3, 3, 0, 3, 1)
        );
        let seen = soon(service.inspect("x")).await.expect("the grantor answers");
        let mut data: Vec<_> =
            seen.holders.iter().map(|holder| holder.metadata.as_bytes().to_vec()).collect();
        data.sort();
        assert_eq!(data, [b"node 0", b"node 1", b"node 2"]);
        assert_eq!(seen.waiters[0].metadata.as_bytes(), b"late");
        assert_eq!(seen.waiters[0].mode, Mode::Permits(2));
    }
    drop(waiting);
}

/// TestInterProcessSemaphore.testGetParticipantNodes: a holder of the lock of that name is no
/// participant. Neither is a waiter for it or for a suspension.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_and_suspensions_are_no_leases() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let semaphore = &semaphores(&services, "x", 3).await[0];
    let lock = soon(services[1].lock("x")).await.expect("it is free");
    let suspending = services[0].suspend().start();
    soon(suspending.position()).await.expect("the grantor answers").expect("the lock is held");
    let waiting = semaphore.acquire(2).start();
    let next = services[0].lock("x").start();
    let in_line = async {
        while services[0].inspect("x").await.expect("the grantor answers").waiters.len() != 3 {
            tokio::time::sleep(MS).await;
        }
    };
    soon(in_line).await;
    let usage = soon(semaphore.usage()).await.expect("the grantor answers");
    assert_eq!((usage.used, usage.holders, usage.waiting), (0, 0, 1));
    assert_eq!(soon(semaphore.permits_in_use()).await.expect("the grantor answers").grants, []);
    drop((lock, suspending, next));
    let two = soon(waiting).await.expect("its turn comes");
    let usage = soon(semaphore.usage()).await.expect("the grantor answers");
    assert_eq!((usage.used, usage.holders), (2, 1));
    drop(two);
}

/// The leases with their metadata, as this member receives them: one row for each permit.
async fn leases(semaphore: &Semaphore) -> Vec<HolderInfo> {
    let seen = soon(semaphore.permits_in_use()).await.expect("the grantor answers");
    assert_eq!(seen.more, 0);
    seen.iter().cloned().collect()
}

/// InterProcessSemaphoreV2.acquire(qty), `Lease.getData`, `Lease.getNodeName`: each permit is a
/// lease with a token of its own, and with the metadata of its request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_lease_has_a_token_of_its_own_and_its_data() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 3).await;
    for of in &semaphores {
        let permits = soon(of.acquire(2).metadata("node data")).await.expect("it fits");
        assert_eq!(permits.metadata().as_bytes(), b"node data");
        let leases = permits.into_permits();
        assert!(leases.iter().all(|lease| lease.metadata().as_bytes() == b"node data"));
        assert!(leases.iter().all(|lease| (lease.name(), lease.service()) == (&b"x"[..], "s")));
        assert!(leases[0].token() < leases[1].token());
        assert_eq!(leases[1].fence(), Ok(leases[1].token()));
        let one = acquire(of, 1).await;
        assert!(one.metadata().as_bytes().is_empty(), "nothing was said of it");
        drop((leases, one));
        until_used(of, 0).await;
    }
}

/// TestInterProcessSemaphore.testGetParticipantNodes: a node for each lease, with its data. The
/// node goes when the lease is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_lease_in_use_is_listed_at_every_member_until_it_is_closed() {
    let local = Local::start(3).await;
    let semaphores = semaphores(&local.services("s").await, "x", 9).await;
    let mut three =
        soon(semaphores[1].acquire(3).metadata("three")).await.expect("it fits").into_permits();
    let _two = soon(semaphores[2].acquire(2).metadata("two")).await.expect("it fits");
    let data = async |semaphore: &Semaphore| {
        let mut data: Vec<_> =
            leases(semaphore).await.into_iter().map(|lease| lease.metadata).collect();
        data.sort();
        data.into_iter()
            .map(|data| String::from_utf8_lossy(data.as_bytes()).into_owned())
            .collect::<Vec<_>>()
    };
    for semaphore in &semaphores {
        assert_eq!(data(semaphore).await, ["three", "three", "three", "two", "two"]);
    }
    let first = three[0].token();
    let me = local.members[1].status().me.process;
    assert_eq!(
        leases(&semaphores[0])
            .await
            .iter()
            .filter(|lease| (lease.process, lease.token) == (me, first))
            .count(),
        3
    );

    // Any one of the three may be released first, and then the others.
    three.remove(0).release().await.expect("it is held");
    until_used(&semaphores[0], 4).await;
    assert_eq!(data(&semaphores[2]).await, ["three", "three", "two", "two"]);
    drop(three);
    until_used(&semaphores[0], 2).await;
    assert_eq!(data(&semaphores[1]).await, ["two", "two"]);
}

/// InterProcessSemaphoreV2.setNodeData: the data is for leases acquired from then on, and does not
/// change existing leases.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_that_is_said_later_is_that_of_later_leases() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 3).await;
    let early = soon(semaphores[1].acquire(1).metadata("early"))
        .await
        .expect("it fits")
        .into_permits()
        .remove(0);
    let late = soon(semaphores[1].acquire(1).metadata("late"))
        .await
        .expect("it fits")
        .into_permits()
        .remove(0);
    assert_eq!(
        (early.metadata().as_bytes(), late.metadata().as_bytes()),
        (&b"early"[..], &b"late"[..])
    );
    for semaphore in &semaphores {
        let seen = leases(semaphore).await;
        let of = |token| {
            seen.iter().find(|lease| lease.token == token).map(|lease| lease.metadata.clone())
        };
        assert_eq!(
            (of(early.token()), of(late.token())),
            (Some(early.metadata()), Some(late.metadata()))
        );
    }
}

/// TestInterProcessSemaphore.testThreads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_tasks_have_the_one_permit_in_turn() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 1).await;
    let gauge = Arc::new(Gauge::default());
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (semaphore, gauge) = (semaphores[number % 2].clone(), gauge.clone());
            tokio::spawn(async move {
                let lease = acquire(&semaphore, 1).await;
                gauge.enter(1);
                tokio::time::sleep(MS).await;
                gauge.leave(1);
                lease.release().await.expect("it was held");
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert_eq!(gauge.most(), 1);
}

/// TestInterProcessSemaphore.testRelease1AtATime: ten clients share five permits, and all five are
/// in use at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn as_many_as_there_are_permits_have_one_at_once() {
    let local = Local::start(3).await;
    let semaphores = semaphores(&local.services("s").await, "x", 5).await;
    let gauge = Arc::new(Gauge::default());
    let uses = Arc::new(AtomicUsize::new(0));
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (semaphore, gauge, uses) =
                (semaphores[number % 3].clone(), gauge.clone(), uses.clone());
            tokio::spawn(async move {
                let lease = acquire(&semaphore, 1).await;
                uses.fetch_add(1, Ordering::SeqCst);
                gauge.enter(1);
                // The first five holders stay until all five are there.
                until(|| gauge.most() == 5).await;
                gauge.leave(1);
                lease.release().await.expect("it was held");
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert_eq!((uses.load(Ordering::SeqCst), gauge.most()), (10, 5));
    drop(semaphores);
    nothing_is_left(&local).await;
}

/// TestInterProcessSemaphore.testReleaseInChunks: a hundred tasks, eleven permits, released in
/// chunks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_tasks_pass_through_eleven_permits() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 11).await;
    let gauge = Arc::new(Gauge::default());
    let steps = Arc::new(tokio::sync::Semaphore::new(0));
    let tasks: Vec<_> = (0..100)
        .map(|number| {
            let (semaphore, gauge, steps) =
                (semaphores[number % 2].clone(), gauge.clone(), steps.clone());
            tokio::spawn(async move {
                let lease = acquire(&semaphore, 1).await;
                gauge.enter(1);
                steps.acquire().await.expect("it is never closed").forget();
                gauge.leave(1);
                lease.release().await.expect("it was held");
            })
        })
        .collect();
    let (mut rng, mut left) = (Rng::new("a_hundred_tasks_pass_through_eleven_permits", 1), 100);
    while left > 0 {
        let chunk = (1 + rng.below(5)).min(left);
        steps.add_permits(chunk as usize);
        left -= chunk;
        tokio::time::sleep(MS).await;
    }
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert!((1..=11).contains(&gauge.most()), "{}", gauge.most());
    drop(semaphores);
    nothing_is_left(&local).await;
}

/// TestInterProcessSemaphore.testMaxPerSession: many clients ask for many sizes; never more than
/// the limit is held.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_of_many_sizes_never_exceed_the_limit() {
    let local = Local::start(3).await;
    let mut rng = Rng::new("permits_of_many_sizes_never_exceed_the_limit", 1);
    let limit = 25 + rng.below(75) as u32;
    let semaphores = semaphores(&local.services("s").await, "x", limit).await;
    let gauge = Arc::new(Gauge::default());
    let tasks: Vec<_> = (0..10)
        .map(|number| {
            let (semaphore, gauge) = (semaphores[number % 3].clone(), gauge.clone());
            let sizes: Vec<u32> = (0..30).map(|_| 1 + rng.below(u64::from(limit)) as u32).collect();
            tokio::spawn(async move {
                for size in sizes {
                    let mut permits = acquire(&semaphore, size).await;
                    gauge.enter(i64::from(size));
                    tokio::task::yield_now().await;
                    let part = size / 3;
                    if part > 0 {
                        gauge.leave(i64::from(part));
                        permits.return_permits(part).expect("it has as many");
                    }
                    tokio::task::yield_now().await;
                    gauge.leave(i64::from(size - part));
                    permits.release().await.expect("it was held");
                }
            })
        })
        .collect();
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert_eq!(gauge.now(), 0);
    assert!((1..=i64::from(limit)).contains(&gauge.most()), "{} of {limit}", gauge.most());
    until_used(&semaphores[0], 0).await;
    drop(semaphores);
    nothing_is_left(&local).await;
}

/// TestInterProcessSemaphore.testClientClose: a leaving member releases its permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_leaves_or_dies_gives_its_permits_back() {
    // A quorum remains when one member leaves and another one dies.
    let mut local = Local::start_mortal(4).await;
    let semaphores = semaphores(&local.services("s").await, "x", 2).await;
    let of_leaver = acquire(&semaphores[1], 1).await;
    let of_dead = acquire(&semaphores[2], 1).await;
    assert!(soon(semaphores[0].acquire(1).wait(20 * MS)).await.is_err());
    soon(local.members[1].leave()).await.expect("it leaves");
    let first = acquire(&semaphores[0], 1).await;
    assert_eq!(of_leaver.fence().expect_err("it is gone").reason, LostReason::Left);
    local.kill(2);
    let second = acquire(&semaphores[0], 1).await;
    assert!(of_dead.fence().is_err(), "told before it is given on");
    assert!(first.token() < second.token());
}

/// TestInterProcessSemaphore.testThreadedLeaseIncrease: the limit is a SharedCount (seed:
/// `SharedCountReader`, `countHasChanged`). When it grows, a waiter is granted.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_grows_lets_waiters_in() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let count = soon(SharedCount::open(&services[2], "x", 1)).await.expect("it opens");
    // The count exists, so the limit that is given here is ignored.
    let semaphores = semaphores(&services, "x", 7).await;
    let _one = acquire(&semaphores[0], 1).await;
    let second = semaphores[0].acquire(1).start();
    until_waiting(&semaphores[0], 1).await;
    let third = semaphores[1].acquire(1).start();
    until_waiting(&semaphores[0], 2).await;
    let seen = count.get().expect("it is open");
    soon(count.try_set(seen.version, 2)).await.expect("no other member changes it");
    let second = soon(second).await.expect("two fit");
    assert_eq!(soon(semaphores[1].usage()).await.expect("the grantor answers").waiting, 1);
    soon(semaphores[1].limit().set(3)).await.expect("it is open");
    let third = soon(third).await.expect("three fit");
    assert!(second.token() < third.token());
    until(|| {
        semaphores
            .iter()
            .all(|semaphore| semaphore.limit().get().is_ok_and(|limit| limit.count == 3))
    })
    .await;
}

/// InterProcessSemaphoreV2(client, path, SharedCountReader): the count is the limit. A change by
/// any member and of any size takes effect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_of_a_count_has_its_limit() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let counts = [
        soon(SharedCount::open(&services[0], "x", 1)).await.expect("it opens"),
        soon(SharedCount::open(&services[1], "x", 9)).await.expect("it opens"),
    ];
    let semaphores = counts.each_ref().map(Semaphore::of);
    let _one = acquire(&semaphores[0], 1).await;
    assert!(soon(semaphores[1].try_acquire(1)).await.is_err());
    let second = semaphores[1].acquire(1).start();
    until_waiting(&semaphores[0], 1).await;
    soon(counts[0].add(1)).await.expect("it is open");
    let _second = soon(second).await.expect("two fit");
    assert_eq!(soon(semaphores[1].limit().read()).await.expect("it is open").count, 2);
    assert_eq!(soon(semaphores[1].usage()).await.expect("the grantor answers").limit, 2);
    assert!(soon(Semaphore::open(&services[0], "", 1)).await.is_err(), "a name that cannot be");
}

/// InterProcessSemaphoreV2.acquire(qty): "this method blocks until either the maximum number of
/// leases is increased enough or other clients/processes close enough leases".
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_above_the_limit_waits_until_the_limit_allows_it() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 2).await;
    let one = acquire(&semaphores[0], 1).await;
    let four = semaphores[1].acquire(4).start();
    soon(four.position()).await.expect("the grantor answers");
    soon(semaphores[0].limit().set(4)).await.expect("it is open");
    let usage = soon(semaphores[0].usage()).await.expect("the grantor answers");
    assert_eq!((usage.limit, usage.used, usage.waiting), (4, 1, 1), "one is missing");
    one.release().await.expect("it was held");
    assert_eq!(soon(four).await.expect("all four are free").permits(), 4);

    let six = semaphores[1].acquire(6).start();
    soon(six.position()).await.expect("the grantor answers").expect("there are four");
    soon(semaphores[0].limit().set(6)).await.expect("it is open");
    assert_eq!(soon(six).await.expect("no other permits are held").permits(), 6);
}

/// InterProcessSemaphoreV2.internalAcquire1Lease: however an attempt ends, its final
/// `lock.release()` lets the next waiter look.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_behind_one_that_gives_up_get_the_remaining_permits() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 4).await;
    let _held = acquire(&semaphores[0], 3).await;
    for of in [0, 1] {
        let big = semaphores[of].acquire(2).start();
        soon(big.position()).await.expect("the grantor answers").expect("one is left");
        let mut small = semaphores[1].acquire(1).start();
        assert_eq!(
            soon(small.position())
                .await
                .expect("the grantor answers")
                .expect("it is behind")
                .before,
            1
        );
        assert!(poll_once(std::pin::Pin::new(&mut small)).is_pending());
        drop(big);
        soon(small).await.expect("one is left").release().await.expect("it was held");
        until_used(&semaphores[0], 3).await;

        let big = tokio::spawn(semaphores[of].acquire(2).wait(300 * MS).into_future());
        let small = semaphores[1].acquire(1).start();
        assert!(soon(big).await.expect("no panic").expect_err("one is left").is_timeout());
        soon(small).await.expect("one is left").release().await.expect("it was held");
        until_used(&semaphores[0], 3).await;
    }
}

/// `Lease.close` of a lease whose node is gone logs "Lease already released". Here the release
/// returns an error, and takes nothing from the present holder.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_over_is_closed_without_harm() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 2).await;
    let over =
        soon(semaphores[1].acquire(2).lease(30 * MS)).await.expect("both are free").into_permits();
    let both = acquire(&semaphores[0], 2).await;
    for lease in over {
        assert_eq!(lease.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
    }
    assert!(soon(semaphores[1].try_acquire(1)).await.is_err(), "both are in use");
    both.release().await.expect("it was held all the time");
}

/// The count lowers the limit below the held permits, "while in use". No permit is taken away. None
/// is granted until enough permits are released.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_that_shrinks_takes_nothing_away() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 5).await;
    let mut leases = acquire(&semaphores[1], 5).await.into_permits();
    soon(semaphores[0].limit().set(2)).await.expect("it is open");
    let usage = soon(semaphores[0].usage()).await.expect("the grantor answers");
    assert_eq!((usage.limit, usage.used, usage.available()), (2, 5, 0));
    assert!(leases.iter().all(|lease| lease.fence().is_ok()), "nothing is taken away");
    for left in (2..5).rev() {
        assert!(soon(semaphores[0].try_acquire(1)).await.is_err());
        drop(leases.pop());
        until_used(&semaphores[0], left).await;
    }
    assert!(soon(semaphores[0].acquire(1).wait(20 * MS)).await.is_err(), "two of two are held");
    drop(leases.pop());
    drop(acquire(&semaphores[0], 1).await);
}

/// A limit of zero or below stops all grants until it is raised.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_limit_of_nothing_stops_all_grants() {
    let local = Local::start(1).await;
    let semaphores = semaphores(&local.services("s").await, "x", 0).await;
    for limit in [0, -1, i32::MIN] {
        soon(semaphores[0].limit().set(limit)).await.expect("it is open");
        assert!(soon(semaphores[0].acquire(1).wait(5 * MS)).await.is_err(), "{limit}");
        assert_eq!(soon(semaphores[0].usage()).await.expect("the grantor answers").limit, 0);
    }
    soon(semaphores[0].limit().set(1)).await.expect("it is open");
    drop(acquire(&semaphores[0], 1).await);
}

/// The stated rule for mixed sizes: requests are granted strictly in order. The first one waits
/// until it fits, and no request overtakes it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_big_request_at_the_head_is_not_overtaken_by_small_ones() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 4).await;
    let mut held = acquire(&semaphores[0], 3).await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (number, size) in [4, 1, 2, 1, 3].into_iter().enumerate() {
        let waiting = semaphores[number % 2].acquire(size).start();
        soon(waiting.position()).await.expect("the grantor answers");
        let order = order.clone();
        tasks.push(tokio::spawn(async move {
            let permits = soon(waiting).await.expect("its turn comes");
            order.lock().expect("no panic").push((permits.token(), number));
            permits.release().await.expect("it was held");
        }));
    }
    // One permit stays free; it would suffice for the second request.
    assert!(soon(semaphores[1].try_acquire(1)).await.is_err());
    held.return_permits(2).expect("it has three");
    until_used(&semaphores[0], 1).await;
    assert_eq!(soon(semaphores[0].usage()).await.expect("the grantor answers").waiting, 5);
    held.release().await.expect("it was held");
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    let mut order = order.lock().expect("no panic").clone();
    order.sort();
    assert_eq!(order.into_iter().map(|(_, number)| number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

/// TestInterProcessSemaphore.testAcquireAfterLostServer,
/// TestInterProcessSemaphoreCluster.testKilledServerWithEnsembleProvider: the grantor is killed.
/// Permits, limit and queue are kept, and acquires continue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_limit_and_queue_survive_a_killed_grantor() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let semaphores = semaphores(&services, "x", 1).await;
    soon(semaphores[1].limit().set(4)).await.expect("it is open");
    until(|| services[0].is_grantor()).await;
    let _of_grantor = acquire(&semaphores[0], 1).await;
    let held = acquire(&semaphores[1], 2).await.into_permits();
    let big = semaphores[2].acquire(3).start();
    soon(big.position()).await.expect("the grantor answers");
    let small = semaphores[1].acquire(1).start();
    soon(small.position()).await.expect("the grantor answers");
    local.kill(0);
    local.agree(2).await;

    // Two of four permits are held. The small request would fit, but waits behind the big one.
    until_waiting(&semaphores[1], 2).await;
    let usage = soon(semaphores[2].usage()).await.expect("the grantor answers");
    assert_eq!((usage.limit, usage.used), (4, 2));
    assert!(held.iter().all(|lease| lease.fence().is_ok()));
    drop(held);
    let big = soon(big).await.expect("four are free");
    let small = soon(small).await.expect("one is left");
    assert!(held_before(&big, &small));
    drop((big, small));
    let all = acquire(&semaphores[2], 4).await;
    assert!(soon(semaphores[1].try_acquire(1)).await.is_err());
    all.release().await.expect("it was held");
}

fn held_before(one: &PermitGuard, other: &PermitGuard) -> bool {
    one.token() < other.token()
}

/// No holder or waiter notices a transfer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_limit_and_queue_survive_a_transfer() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let semaphores = semaphores(&services, "x", 5).await;
    let mut held = acquire(&semaphores[1], 4).await;
    let waiting = semaphores[0].acquire(3).start();
    soon(waiting.position()).await.expect("the grantor answers");
    for service in [&services[2], &services[1], &services[0]] {
        soon(service.become_grantor()).await.expect("no other member asks");
        let usage = soon(semaphores[2].usage()).await.expect("the grantor answers");
        assert_eq!((usage.limit, usage.used, usage.waiting), (5, 4, 1));
        assert!(!soon(semaphores[2].limit().read()).await.expect("it is open").maybe_stale);
    }
    held.return_permits(2).expect("it has four");
    let waiting = soon(waiting).await.expect("three are free");
    assert_eq!((held.tokens().count(), waiting.tokens().count()), (2, 3));
}

/// TestInterProcessSemaphore.testInterruptAcquire, testNoOrphanedNodes; curator PR#155, #982: a
/// request that is dropped at any poll leaves nothing held or queued. The next request gets the
/// permits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acquire_dropped_at_any_poll_leaves_nothing() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let semaphores = semaphores(&services, "x", 3).await;
    let opened = local.members.iter().map(left_open).collect::<Vec<_>>();
    let nothing =
        async |_| until(|| local.members.iter().map(left_open).collect::<Vec<_>>() == opened).await;
    for of in [&semaphores[0], &semaphores[1]] {
        poll_k_then_drop(async || of.acquire(2).into_future(), nothing).await;
        poll_k_then_drop(async || of.try_acquire(2).into_future(), nothing).await;
        poll_a_wait_then_drop(
            async || {
                let held = soon(semaphores[0].acquire(2).lease(10 * MS)).await.expect("it fits");
                let waiting = of.acquire(3).into_future();
                async move {
                    let permits = waiting.await;
                    drop(held);
                    permits
                }
            },
            nothing,
        )
        .await;
        poll_k_then_drop(
            async || {
                let permits = acquire(of, 3).await;
                async move { permits.release().await }
            },
            nothing,
        )
        .await;
        acquire(of, 3).await.release().await.expect("all are free");
        nothing(0).await;
    }
    poll_k_then_drop(async || Semaphore::open(&services[1], "y", 1), nothing).await;
    poll_k_then_drop(async || semaphores[1].usage(), nothing).await;
    poll_a_wait_then_drop(
        async || {
            let permits = soon(semaphores[1].acquire(2).lease(10 * MS)).await.expect("it fits");
            async move { permits.protect(permits.lost()).await }
        },
        nothing,
    )
    .await;
    poll_k_then_drop(
        async || acquire(&semaphores[1], 2).await.into_permits().remove(0).release(),
        nothing,
    )
    .await;
}

/// Curator: a `Lease` has no end of its own. Here extending one permit extends all permits of its
/// grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_that_is_extended_keeps_all_of_its_grant() {
    let local = Local::start(1).await;
    let services = local.services("s").await;
    let semaphore = soon(Semaphore::open(&services[0], "x", 2)).await.expect("it opens");
    let leases = loop {
        let leases =
            soon(semaphore.acquire(2).lease(50 * MS)).await.expect("both are free").into_permits();
        // On a busy machine the lease may have ended by now.
        if leases[1].extend(Duration::from_secs(3600)).is_ok() {
            break leases;
        }
    };
    // A hold that begins later with the same lease has already ended.
    let other = soon(services[0].lock("y").lease(50 * MS)).await.expect("it is free");
    soon(other.lost()).await;
    assert!(leases.iter().all(|lease| lease.fence().is_ok()));
    assert!(leases[0].extend(Duration::ZERO).is_err_and(|error| !error.is_lost()));
}

/// Curator has no counterpart: its leases end with the session. Here permits may have a lock lease
/// of their own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_whose_lease_ended_go_to_the_next_waiter() {
    let local = Local::start(2).await;
    let semaphores = semaphores(&local.services("s").await, "x", 2).await;
    let held = soon(semaphores[1].acquire(2).lease(30 * MS)).await.expect("both are free");
    let next = acquire(&semaphores[0], 1).await;
    assert_eq!(held.fence().expect_err("it is over").reason, LostReason::LeaseEnded);
    assert!(next.token() > held.token());
    assert_eq!(soon(held.lost()).await, LostReason::LeaseEnded);
    assert!(held.into_permits().iter().all(|lease| lease.fence().is_err()));
}

/// A semaphore that no member has open does not exist: its limit went with the last opening.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_semaphore_lives_while_a_member_has_it_open() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let first = soon(Semaphore::open(&services[0], "x", 1)).await.expect("it opens");
    let second = soon(Semaphore::open(&services[1], "x", 9)).await.expect("it opens");
    drop(first);
    assert_eq!(second.limit().get().expect("it is open").count, 1);
    drop(second);
    let gone = async {
        // The close may still be under way.
        loop {
            let third = soon(Semaphore::open(&services[0], "x", 9)).await.expect("it opens");
            if third.limit().get().expect("it is open").count == 9 {
                return;
            }
            drop(third);
            tokio::time::sleep(MS).await;
        }
    };
    soon(gone).await;
    assert_eq!(
        soon(services[1].permits("x", 1)).await.expect_err("not open here"),
        LockError::NotOpen
    );
}
