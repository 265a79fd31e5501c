//! `SharedCount` over real members, in one process with sockets on the loopback interface. The
//! cases of Curator's own tests of `SharedCount` are here, each test with their name.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{CountError, LockError, LockService, LostReason, SharedCount, VersionedCount};
use support::local::{
    Local, MS, left_open, poll_a_wait_then_drop, poll_k_then_drop, poll_once, soon, until,
};
use support::rng::Rng;

async fn counts(services: &[LockService], name: &str, initial: i32) -> Vec<SharedCount> {
    let mut counts = Vec::new();
    for service in services {
        counts.push(soon(SharedCount::open(service, name, initial)).await.expect("it opens"));
    }
    counts
}

fn get(count: &SharedCount) -> VersionedCount {
    count.get().expect("it is open")
}

/// TestSharedCount.testMultiClients: five listeners see each of a hundred changes, in order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_at_every_member_see_each_change_in_order() {
    let local = Local::start(3).await;
    let counts = counts(&local.services("s").await, "x", 10).await;
    // Each change that all listeners have seen returns one permit for each listener.
    let seen = std::sync::Arc::new(tokio::sync::Semaphore::new(0));
    let listeners: Vec<_> = (0..5)
        .map(|number| {
            let mut changes = counts[number % 3].changes().expect("it is open");
            let seen = seen.clone();
            tokio::spawn(async move {
                let (mut list, mut version) = (Vec::new(), None);
                loop {
                    let change = soon(changes.next()).await.expect("it is open");
                    assert!(Some(change.version) > version, "versions rise");
                    version = Some(change.version);
                    if change.count < 0 {
                        return list;
                    }
                    list.push(change.count);
                    seen.add_permits(1);
                }
            })
        })
        .collect();
    let mut rng = Rng::new("listeners_at_every_member_see_each_change_in_order", 1);
    let mut list = Vec::new();
    for round in 0..100 {
        // Setting the same number again is a change too.
        let next = rng.below(50) as i32;
        list.push(next);
        soon(counts[round % 3].set(next)).await.expect("it is open");
        soon(seen.acquire_many(5)).await.expect("it is never closed").forget();
    }
    soon(counts[0].set(-1)).await.expect("it is open");
    for listener in listeners {
        assert_eq!(soon(listener).await.expect("no panic"), list);
    }
}

/// A listener that is slower than the changes gets the latest, and no change twice or late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slow_listener_sees_the_latest() {
    let local = Local::start(2).await;
    let counts = counts(&local.services("s").await, "x", 0).await;
    let mut changes = counts[1].changes().expect("it is open");
    for count in 1..=20 {
        soon(counts[0].set(count)).await.expect("it is open");
    }
    until(|| get(&counts[1]).count == 20).await;
    assert_eq!(soon(changes.next()).await.expect("it is open").count, 20);
    let mut next = Box::pin(changes.next());
    assert!(poll_once(next.as_mut()).is_pending(), "there is nothing new");
    soon(counts[0].set(21)).await.expect("it is open");
    assert_eq!(soon(next).await.expect("it is open").count, 21);
}

/// TestSharedCount.testSimple, testSimpleVersioned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_is_set_if_it_is_at_the_version_that_was_seen() {
    let local = Local::start(1).await;
    let counts = counts(&local.services("s").await, "x", 0).await;
    let count = &counts[0];
    let mut seen = get(count);
    assert_eq!((seen.count, seen.maybe_stale), (0, false));
    for next in [1, 5, 10] {
        let version =
            soon(count.try_set(seen.version, next)).await.expect("no other member changes it");
        assert!(version > seen.version);
        // After a confirmed write, this member has the new count.
        seen = get(count);
        assert_eq!((seen.count, seen.version), (next, version));
    }
    let old = seen;
    soon(count.set(88)).await.expect("it is open");
    match soon(count.try_set(old.version, 234)).await {
        Err(CountError::Changed(now)) => assert_eq!(now, get(count)),
        other => panic!("{other:?}"),
    }
    assert_eq!(get(count).count, 88);
}

/// TestSharedCount.testMultiClientVersioned.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_writers_of_one_version_one_succeeds() {
    let local = Local::start(2).await;
    let counts = counts(&local.services("s").await, "x", 0).await;
    soon(counts[0].try_set(get(&counts[0]).version, 10)).await.expect("no other member changes it");
    until(|| get(&counts[1]).count == 10).await;
    soon(counts[1].try_set(get(&counts[1]).version, 20)).await.expect("no other member changes it");
    until(|| get(&counts[0]).count == 20).await;

    let seen = [get(&counts[0]), get(&counts[1])];
    soon(counts[1].try_set(seen[1].version, 30)).await.expect("no other member changes it");
    let error = soon(counts[0].try_set(seen[0].version, 40)).await.expect_err("it is 30");
    assert!(matches!(error, CountError::Changed(VersionedCount { count: 30, .. })), "{error:?}");
    // The failed call told this member the present count and version.
    soon(counts[0].try_set(get(&counts[0]).version, 40)).await.expect("no other member changes it");
    assert_eq!(soon(counts[1].read()).await.expect("it is open").count, 40);
}

/// TestSharedCount.testMultiClientDifferentSeed: the first opening sets the initial value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_first_opening_sets_the_initial_value() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let first = soon(SharedCount::open(&services[0], "x", 10)).await.expect("it opens");
    let second = soon(SharedCount::open(&services[1], "x", 20)).await.expect("it opens");
    assert_eq!((get(&first).count, get(&second).count), (10, 10));
    assert_eq!(get(&first).version, get(&second).version);
}

/// Curator has no `add`. Many tasks add at several members, and no addition is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_at_several_members_are_all_made() {
    let local = Local::start(3).await;
    let counts = counts(&local.services("s").await, "x", 0).await;
    let tasks: Vec<_> = (0..30)
        .map(|number| {
            let count = counts[number % 3].clone();
            tokio::spawn(async move { soon(count.add(number as i32)).await.expect("it is open") })
        })
        .collect();
    let mut versions = Vec::new();
    for task in tasks {
        versions.push(soon(task).await.expect("no panic").version);
    }
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), 30, "each has a version of its own");
    assert_eq!(soon(counts[0].read()).await.expect("it is open").count, (0..30).sum::<i32>());
    soon(counts[0].set(i32::MAX)).await.expect("it is open");
    assert_eq!(soon(counts[0].add(1)).await, Err(CountError::Overflow));
    assert_eq!(get(&counts[0]).count, i32::MAX);
}

/// TestSharedCount.testDisconnectReconnectWithMultipleClients: there a reading follows each restart
/// of the server. Here the grantor dies. The count with the highest version that any member knows
/// stays, marked as maybe stale until the next write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_survives_its_grantor_and_says_that_it_may_be_stale() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let counts = counts(&services, "x", 0).await;
    until(|| services[0].is_grantor()).await;
    let mut changes = counts[1].changes().expect("it is open");
    let version = soon(counts[1].set(7)).await.expect("it is open");
    assert_eq!(soon(changes.next()).await.expect("it is open").count, 7);
    local.kill(0);
    // The call is under way while no member grants.
    let read = soon(counts[2].read()).await.expect("it is open");
    assert_eq!((read.count, read.version, read.maybe_stale), (7, version, true));
    until(|| get(&counts[1]).maybe_stale).await;
    assert!(soon(counts[1].try_set(version, 8)).await.expect("it is at that version") > version);
    until(|| {
        counts[1..].iter().all(|count| (get(count).count, get(count).maybe_stale) == (8, false))
    })
    .await;
    assert_eq!(soon(changes.next()).await.expect("it is open").count, 8);
}

/// A transfer loses nothing, and nothing is maybe stale after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_survives_a_transfer_and_a_leave() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let counts = counts(&services, "x", 0).await;
    for (number, service) in services.iter().enumerate().rev() {
        soon(service.become_grantor()).await.expect("no other member asks");
        soon(counts[(number + 1) % 3].add(1)).await.expect("it is open");
    }
    soon(local.members[0].leave()).await.expect("it leaves");
    let read = soon(counts[1].read()).await.expect("it is open");
    assert_eq!((read.count, read.maybe_stale), (3, false));
    assert!(
        matches!(counts[0].get(), Err(CountError::Lost(lost)) if lost.reason == LostReason::Left)
    );
    assert_eq!(soon(counts[0].lost()).await, LostReason::Left);
    assert!(matches!(soon(counts[0].set(1)).await, Err(CountError::Lost(_))));
}

/// TestSharedCount.testDisconnectEventOnWatcherDoesNotRetry: a client that is cut off for good is
/// told so, and opens the count again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_listener_hears_that_the_service_was_destroyed_here() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let counts = counts(&services, "x", 4).await;
    let mut changes = counts[1].changes().expect("it is open");
    let listener = tokio::spawn(async move { soon(changes.next()).await });
    soon(services[1].destroy()).await.expect("once");
    assert!(matches!(soon(listener).await.expect("no panic"), Err(CountError::Lost(_))));
    let again = local.members[1].lock_service("s").await.expect("a good name");
    let again = soon(SharedCount::open(&again, "x", 9)).await.expect("it opens");
    assert_eq!(get(&again).count, 4, "the other member had it open");
}

/// A value that has not four bytes is not a count.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_value_is_no_count() {
    let local = Local::start(1).await;
    let services = local.services("s").await;
    let value = soon(services[0].open("x", b"words")).await.expect("it opens");
    assert_eq!(
        soon(SharedCount::open(&services[0], "x", 1)).await.expect_err("words"),
        LockError::OtherRecipe
    );
    soon(value.set(2i32.to_le_bytes())).await.expect("it is open");
    let count = soon(SharedCount::open(&services[0], "x", 1)).await.expect("it opens");
    assert_eq!(get(&count).count, 2);
    soon(value.set("words")).await.expect("it is open");
    assert_eq!(count.get(), Err(CountError::NotACount));
    assert_eq!(soon(count.add(1)).await, Err(CountError::NotACount));
    soon(count.set(3)).await.expect("now it is one");
    assert_eq!(get(&count).count, 3);
    assert_eq!(value.get().expect("it is open").value[..], 3i32.to_le_bytes());
}

/// A call that is dropped at any poll leaves nothing open or under way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_dropped_at_any_poll_leaves_nothing() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let counts = counts(&services, "x", 0).await;
    let opened = local.members.iter().map(left_open).collect::<Vec<_>>();
    let nothing =
        async |_| until(|| local.members.iter().map(left_open).collect::<Vec<_>>() == opened).await;
    for (service, count) in services.iter().zip(&counts) {
        poll_k_then_drop(async || SharedCount::open(service, "y", 1), nothing).await;
        poll_k_then_drop(async || count.set(1), nothing).await;
        poll_k_then_drop(async || count.read(), nothing).await;
        poll_k_then_drop(async || count.add(1), nothing).await;
        poll_k_then_drop(
            async || {
                let seen = get(count).version;
                count.try_set(seen, 5)
            },
            nothing,
        )
        .await;
        let mut lost = Box::pin(count.lost());
        assert!((0..3).all(|_| poll_once(lost.as_mut()).is_pending()));
        drop(lost);
        poll_a_wait_then_drop(
            async || {
                let mut changes = count.changes().expect("it is open");
                let other = counts[0].clone();
                tokio::spawn(async move {
                    tokio::time::sleep(3 * MS).await;
                    let _ = other.add(1).await;
                });
                async move { changes.next().await }
            },
            nothing,
        )
        .await;
    }
    // A later wait reports the loss, although an earlier one was dropped.
    soon(services[1].destroy()).await.expect("once");
    assert_eq!(soon(counts[1].lost()).await, LostReason::Destroyed);
}

/// A wait for changes that is dropped, at any poll, loses none: the next wait returns the latest.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_is_not_lost_with_the_future_that_waits_for_it() {
    let local = Local::start(2).await;
    let counts = counts(&local.services("s").await, "x", 0).await;
    let changes =
        std::sync::Arc::new(tokio::sync::Mutex::new(counts[1].changes().expect("it is open")));
    for round in 1..=5 {
        let mut is_set = false;
        poll_k_then_drop(
            async || {
                let changes = changes.clone();
                async move {
                    assert_eq!(changes.lock().await.next().await.expect("it is open").count, round)
                }
            },
            async |k| {
                assert!(k < 1_000, "it was lost");
                // The change comes after some dropped waits.
                if k == 3 {
                    soon(counts[0].set(round)).await.expect("it is open");
                    until(|| get(&counts[1]).count == round).await;
                    is_set = true;
                }
            },
        )
        .await;
        assert!(is_set, "it was told of nothing");
    }
    assert!(
        poll_once(std::pin::pin!(changes.lock().await.next())).is_pending(),
        "each was told once"
    );
}

/// An addition at the grantor's own member is answered at once. A task that adds without a pause
/// still lets the member's other tasks run, the packet readers among them.
#[tokio::test]
async fn a_task_that_adds_without_end_lets_others_have_their_turns() {
    let local = Local::start(1).await;
    let count = counts(&local.services("s").await, "x", 0).await.remove(0);
    let ended = std::sync::Arc::new(std::sync::atomic::AtomicBool::new(false));
    let other = tokio::spawn({
        let ended = ended.clone();
        async move {
            let mut turns = 0;
            while !ended.load(std::sync::atomic::Ordering::Relaxed) {
                turns += 1;
                tokio::task::yield_now().await;
            }
            turns
        }
    });
    const ADDITIONS: i32 = 4_000;
    for _ in 0..ADDITIONS {
        soon(count.add(1)).await.expect("it is open");
    }
    ended.store(true, std::sync::atomic::Ordering::Relaxed);
    let turns = other.await.expect("it ends");
    assert!(turns >= ADDITIONS / 20, "{turns} turns beside {ADDITIONS} additions");
}
