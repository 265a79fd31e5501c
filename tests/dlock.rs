//! The tests that Geode has for its lock service, rewritten over real members: four in one process,
//! with sockets on the loopback interface. Each test names its originals; README.md here has the
//! table.

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{
    BecomeError, Guard, LockError, LockService, LostReason, MemberEvent, ReleaseError, Unavailable,
};
use local::{HANG, Local, MS, poll_once, soon, until};
use std::collections::BTreeSet;
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Instant;

fn grantors(services: &[LockService]) -> Vec<usize> {
    (0..services.len()).filter(|index| services[*index].is_grantor()).collect()
}

async fn lock(service: &LockService, name: &str) -> Guard {
    soon(service.lock(name)).await.expect("it is granted")
}

/// DistributedLockServiceDUnitTest.testOneGetsThenOtherGets: all waiters for one lock get it in
/// turn. None gets it a second time before each waiter had it once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_of_a_lock_have_it_in_turn() {
    let local = Local::start(4).await;
    let services = local.services("s").await;
    let first = lock(&services[0], "x").await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for round in 0..3 {
        for (member, service) in services.iter().enumerate() {
            let order = order.clone();
            let waiting = service.lock("x").start();
            // The position is known before the next member asks.
            soon(waiting.position()).await.expect("the grantor answers");
            tasks.push(tokio::spawn(async move {
                let guard = soon(waiting).await.expect("it is granted");
                order.lock().expect("no panic").push((round, member));
                guard.release().await.expect("it was held");
            }));
        }
    }
    first.release().await.expect("it was held");
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    let order = order.lock().expect("no panic");
    let asked: Vec<(i32, usize)> =
        (0..3).flat_map(|round| (0..4).map(move |member| (round, member))).collect();
    assert_eq!(*order, asked);
}

/// DistributedLockServiceDUnitTest.testFairness: 29 tasks ask for one lock again and again. The
/// members have 1, 4, 8 and 16 of them. Geode allows each task 30 % more or less than the mean.
/// Here each other task passes a waiting task once at most. So the shares are equal as long as each
/// task asks again at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_ask_again_and_again_have_equal_shares() {
    const TASKS: usize = 1 + 4 + 8 + 16;
    const ROUNDS: usize = 20;
    let local = Local::start(4).await;
    let services = local.services("s").await;
    let first = lock(&services[0], "x").await;
    let grants = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for (service, count) in services.iter().zip([1, 4, 8, 16]) {
        for _ in 0..count {
            let (service, grants) = (service.clone(), grants.clone());
            let waiting = service.lock("x").start();
            soon(waiting.position()).await.expect("it waits");
            tasks.push(tokio::spawn(async move {
                let (mut waiting, mut before, mut most) = (waiting, 0_usize, 0_usize);
                loop {
                    let guard = soon(waiting).await.expect("its turn");
                    let granted = grants.fetch_add(1, Ordering::SeqCst);
                    most = most.max(granted - before);
                    guard.release().await.expect("it was held");
                    if granted >= TASKS * ROUNDS {
                        return most;
                    }
                    waiting = service.lock("x").start();
                    // It is in the queue from here on, if it was not granted yet.
                    soon(waiting.position()).await.expect("the grantor answers");
                    before = grants.load(Ordering::SeqCst);
                }
            }));
        }
    }
    assert_eq!(tasks.len(), TASKS);
    first.release().await.expect("it was held");
    for task in tasks {
        let passed = soon(task).await.expect("no panic");
        // One grant to each other task, and one that was not counted yet.
        assert!(passed <= TASKS, "{passed} grants while it waited");
    }
}

/// DistributedLockServiceDUnitTest.testOneGetsAndOthersTimeOut, testOnlyOneVmAcquiresWithTryLock:
/// all members ask at once.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_has_the_lock_and_the_others_time_out_or_are_refused() {
    let local = Local::start(4).await;
    let services = local.services("s").await;
    let mut winners = 0;
    for round in 0..20 {
        let name = format!("try {round}");
        let tries: Vec<_> = services
            .iter()
            .map(|service| tokio::spawn(service.try_lock(&name).into_future()))
            .collect();
        let mut held = Vec::new();
        for tried in tries {
            held.extend(soon(tried).await.expect("no panic").ok());
        }
        // No member holds it if the first try was answered too late.
        assert!(held.len() <= 1);
        winners += held.len();
    }
    assert!(winners > 0);

    let wait = |service: &LockService| tokio::spawn(service.lock("x").wait(500 * MS).into_future());
    let mut tries = 0..100;
    loop {
        tries.next().expect("one of them has it");
        let waits: Vec<_> = services.iter().flat_map(|service| [service; 3]).map(wait).collect();
        let (mut held, mut late) = (Vec::new(), 0);
        for waited in waits {
            match soon(waited).await.expect("no panic") {
                Ok(guard) => held.push(guard),
                Err(error) => late += usize::from(error.is_timeout()),
            }
        }
        assert!(held.len() <= 1 && held.len() + late == 12, "{held:?}, {late} late");
        // On a busy machine all waits may time out.
        if let [held] = &held[..] {
            held.fence().expect("it is still held");
            break;
        }
    }
}

/// DistributedLockServiceDUnitTest.testGrantorSelection: all agree on one grantor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_agree_on_one_grantor() {
    let local = Local::start(4).await;
    let services = local.services("s").await;
    for service in &services {
        lock(service, "x").await.release().await.expect("it was held");
    }
    assert_eq!(grantors(&services).len(), 1);
    let known: BTreeSet<_> =
        local.members.iter().map(|member| member.status().services[0].grantor).collect();
    assert_eq!(known.len(), 1, "{known:?}");
}

/// Geode's documentation has the elder asked before a service is created. Here a handle of a
/// service is returned at once and without any message. The first member that asks for a lock
/// becomes its grantor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_is_there_at_once_and_granted_by_the_first_member_that_asks() {
    let local = Local::start(3).await;
    let mut services = Vec::new();
    for member in &local.members {
        let Poll::Ready(service) = poll_once(pin!(member.lock_service("s"))) else {
            panic!("it waits for something");
        };
        services.push(service.expect("a good name"));
    }
    assert!(
        local.members.iter().all(|member| member
            .status()
            .services
            .iter()
            .all(|of| of.grantor.is_none()))
    );
    lock(&services[2], "x").await.release().await.expect("it was held");
    assert_eq!(grantors(&services), [2]);
    lock(&services[0], "x").await.release().await.expect("it was held");
    let known =
        |member: usize| local.members[member].status().services.first().and_then(|of| of.grantor);
    assert_eq!(known(0), Some(local.members[2].process()));
    assert_eq!(known(1), None, "it has not asked");
}

/// DistributedLockServiceDUnitTest.testBasicGrantorRecovery, testLockFailover: the grantor leaves,
/// holds survive, and the survivors have one grantor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_survive_a_grantor_that_leaves() {
    let mut local = Local::start(4).await;
    let mut services = local.services("s").await;
    lock(&services[3], "first").await.release().await.expect("it was held");
    assert_eq!(grantors(&services), [3]);
    let guards = [
        lock(&services[0], "a").await,
        lock(&services[1], "b").await,
        lock(&services[2], "c").await,
    ];
    services.pop();
    soon(local.members.pop().expect("four members").leave()).await.expect("it leaves");
    until(|| grantors(&services).len() == 1).await;
    for (guard, next) in guards.into_iter().zip([1, 2, 0]) {
        guard.fence().expect("it is still held");
        let name = String::from_utf8_lossy(guard.name()).into_owned();
        assert!(soon(services[next].try_lock(&name)).await.is_err());
        guard.release().await.expect("it was held");
        lock(&services[next], &name).await.release().await.expect("it was held");
    }
}

/// DistributedLockServiceDUnitTest.testBecomeLockGrantor, testLockThenBecomeLockGrantor: holds
/// survive a transfer unchanged.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holds_survive_a_young_turk() {
    let local = Local::start(4).await;
    let services = local.services("s").await;
    let mut guards = Vec::new();
    for (index, service) in services.iter().enumerate() {
        guards.push(lock(service, &format!("{index}")).await);
    }
    let again = guards[2].reenter().expect("it is held");
    assert_eq!(grantors(&services), [0]);
    let (mut events, mut losses) = (local.members[2].events(), local.members[0].events());
    soon(services[2].become_grantor()).await.expect("no other member asks");
    assert_eq!(grantors(&services), [2]);
    while !matches!(soon(events.next()).await, Some(MemberEvent::BecameGrantor { .. })) {}
    while !matches!(soon(losses.next()).await, Some(MemberEvent::NoLongerGrantor { .. })) {}
    assert_eq!(guards[2].depth(), 2, "a transfer adds no depth");
    again.release().await.expect("it was held");
    for (index, guard) in guards.into_iter().enumerate() {
        let name = format!("{index}");
        assert!(soon(services[(index + 1) % 4].try_lock(&name)).await.is_err());
        guard.release().await.expect("it was held");
        lock(&services[(index + 1) % 4], &name).await.release().await.expect("it was held");
    }
}

/// Geode's becomeLockGrantor may return without success. Here each of several concurrent bids is
/// told its true outcome.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_several_young_turks_each_hears_the_truth() {
    let local = Local::start(4).await;
    let services = local.services("s").await;
    let held = lock(&services[0], "x").await;
    let bids: Vec<_> = services[1..]
        .iter()
        .map(|service| tokio::spawn(service.become_grantor().into_future()))
        .collect();
    let mut winners = Vec::new();
    for (turk, bid) in (1..).zip(bids) {
        match soon(bid).await.expect("no panic") {
            Ok(()) => winners.push(turk),
            // The winner is another of the young turks, not itself and not the first grantor.
            Err(BecomeError::Outbid { by }) => {
                let turks = (1..local.members.len()).filter(|other| *other != turk);
                assert!(
                    turks.map(|other| local.members[other].process()).any(|process| process == by),
                    "{turk}: {by}"
                );
            }
            Err(error) => panic!("{error}"),
        }
    }
    until(|| grantors(&services).len() == 1).await;
    let last = grantors(&services)[0];
    assert!(winners.contains(&last), "{last} grants, and {winners:?} heard that they had won");
    held.fence().expect("it is still held");
}

/// DistributedLockServiceDUnitTest.testLockDifferentNames, testLockSameNameDifferentService.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_and_services_are_independent() {
    let local = Local::start(2).await;
    let (first, second) = (local.services("first").await, local.services("second").await);
    let held =
        [lock(&first[0], "x").await, lock(&first[1], "y").await, lock(&second[1], "x").await];
    assert!(soon(second[0].try_lock("x")).await.is_err());
    assert!(soon(second[0].try_lock("y")).await.is_ok());
    assert!(held.iter().all(|guard| guard.fence().is_ok()));
}

/// DistributedLockServiceDUnitTest.testLocalGetLockAndIncrement, testRemoteGetLockAndIncrement;
/// GlobalRegionDUnitTest.testSynchronousIncrements: four members, three tasks each, ten increments
/// each.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn increments_under_a_lock_are_never_lost() {
    let local = Local::start(4).await;
    let services = local.services("s").await;
    let count = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for service in services.iter().flat_map(|service| [service; 3]) {
        let (service, count) = (service.clone(), count.clone());
        tasks.push(tokio::spawn(async move {
            for _ in 0..10 {
                let guard = lock(&service, "x").await;
                let before = count.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                count.store(before + 1, Ordering::Relaxed);
                guard.release().await.expect("it was held");
            }
        }));
    }
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert_eq!(count.load(Ordering::Relaxed), 120);
}

/// DistributedLockServiceDUnitTest.testLeaseDoesntExpire, testLockUnlock, testLockExpireUnlock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lease_ends_in_time_and_not_before() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let long = soon(services[0].lock("long").lease(HANG)).await.expect("it is granted");
    assert!(soon(services[1].lock("long").wait(200 * MS)).await.is_err());
    long.fence().expect("it is still held");
    long.release().await.expect("it was held");

    let began = Instant::now();
    let short = soon(services[0].lock("short").lease(200 * MS)).await.expect("it is granted");
    let next = lock(&services[1], "short").await;
    assert!(began.elapsed() >= 190 * MS);
    assert!(short.fence().is_err());
    assert_eq!(short.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
    next.fence().expect("the late release changes nothing");
}

/// DistributedLockServiceDUnitTest.testLockRecursion, testLockRecursionWithExpiration;
/// DLockServiceCharacterizationTests.reentrantLockIncreasesReentrancy;
/// DLockReentrantLockJUnitTest.testReentrantLock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_is_entered_again_by_its_guard_and_ends_with_its_lease() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let guard = soon(services[1].lock("x").lease(HANG)).await.expect("it is granted");
    let more: Vec<Guard> = (0..50).map(|_| guard.reenter().expect("it is held")).collect();
    assert_eq!(guard.depth(), 51);
    for one in more {
        one.release().await.expect("it was held");
    }
    assert_eq!(guard.depth(), 1);
    guard.release().await.expect("it was held");
    // On a busy machine the lease may end before the lock is entered again.
    let mut tries = 0..100;
    let (guard, second) = loop {
        tries.next().expect("it is entered");
        let guard = soon(services[1].lock("x").lease(300 * MS)).await.expect("it is granted");
        if let Ok(second) = guard.reenter() {
            break (guard, second);
        }
    };
    assert_eq!(soon(second.lost()).await, LostReason::LeaseEnded);
    assert!(guard.reenter().is_err(), "the end of the lease ends all depths");
    assert_eq!(lock(&services[1], "x").await.depth(), 1);
}

/// DistributedLockServiceDUnitTest.testLeaseExpiresBeforeOtherLocks,
/// testLeaseExpiresWhileOtherLocks: the next waiter, of the same or of another member, gets the
/// lock. The old guard reports that its lease ended.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lock_whose_lease_ended_goes_to_the_next_waiter() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    for (next, ends_before) in [(0, true), (0, false), (1, true), (1, false)] {
        let old = soon(services[0].lock("x").lease(100 * MS)).await.expect("it is granted");
        if ends_before {
            assert_eq!(soon(old.lost()).await, LostReason::LeaseEnded);
        }
        let new = lock(&services[next], "x").await;
        assert_eq!(old.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
        new.fence().expect("it is held");
        new.release().await.expect("it was held");
    }
}

/// DistributedLockServiceDUnitTest.testSuspendLockingBasic: a service is suspended, resumed and
/// suspended again. An owner cannot suspend it twice. Another owner times out at its limit, also
/// when the task that suspended has ended. Only the guard resumes, and it reports a suspension that
/// was already over.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_is_had_once_and_resumed_once() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    lock(&services[0], "first").await.release().await.expect("it was held");
    // The calls are made at the grantor and at another member.
    for service in services.iter().cycle().take(4) {
        soon(service.suspend())
            .await
            .expect("no lock is held")
            .resume()
            .await
            .expect("it was held");
    }
    for (service, owner) in services.iter().flat_map(|service| [(service, 0), (service, 7)]) {
        let suspended = soon(service.suspend().owner(owner)).await.expect("no lock is held");
        let again = soon(service.suspend().owner(owner).wait(HANG)).await;
        assert_eq!(again.expect_err("it would wait for itself"), LockError::Deadlock);
        suspended.fence().expect("the refusal changes nothing");
        assert!(
            soon(service.suspend().owner(2).wait(100 * MS))
                .await
                .expect_err("it is suspended")
                .is_timeout()
        );
        suspended.resume().await.expect("it was held");
    }
    // The task ends, and the guard stays alive. Dropping the guard resumes the service.
    let suspending = tokio::spawn(services[0].suspend().owner(3).into_future());
    let suspended = soon(suspending).await.expect("no panic").expect("no lock is held");
    assert!(
        soon(services[0].suspend().owner(4).wait(100 * MS))
            .await
            .expect_err("it is suspended")
            .is_timeout()
    );
    drop(suspended);
    let last = soon(services[0].suspend().owner(4)).await.expect("it is resumed");
    soon(services[0].destroy()).await.expect("it is there");
    assert_eq!(last.resume().await, Err(ReleaseError::Lost(LostReason::Destroyed)));
}

/// DistributedLockServiceDUnitTest.testSuspendLockingProhibitsLocking,
/// testSuspendLockingBlocksUntilNoLocks, testSuspendLockingAfterExpiration.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_suspension_waits_for_holders_and_keeps_others_out() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let held = lock(&services[0], "x").await;
    assert!(soon(services[1].suspend().wait(100 * MS)).await.expect_err("x is held").is_timeout());
    let suspending = services[1].suspend().reason("stock-taking").start();
    held.release().await.expect("it was held");
    let suspended = soon(suspending).await.expect("no lock is held");
    assert!(
        soon(services[2].lock("x").wait(100 * MS)).await.expect_err("it is suspended").is_timeout()
    );
    assert!(
        soon(services[2].suspend().wait(100 * MS)).await.expect_err("it is suspended").is_timeout()
    );
    // Another task of the suspending member waits in vain, too. The owner of the suspension would
    // wait for itself.
    assert!(
        soon(services[1].suspend().owner(2).wait(100 * MS))
            .await
            .expect_err("it is suspended")
            .is_timeout()
    );
    assert_eq!(
        soon(services[1].suspend()).await.expect_err("it would wait for itself"),
        LockError::Deadlock
    );
    let seen = soon(services[2].inspect_suspension())
        .await
        .expect("the grantor answers")
        .holder
        .expect("it is held");
    assert_eq!(
        (seen.process, seen.metadata.as_bytes()),
        (local.members[1].process(), &b"stock-taking"[..])
    );
    suspended.resume().await.expect("it was held");
    // The lease ends before another member suspends, and then while it waits to suspend.
    for ends_before in [true, false] {
        let short = soon(services[2].lock("x").lease(50 * MS)).await.expect("it is granted");
        if ends_before {
            assert_eq!(soon(short.lost()).await, LostReason::LeaseEnded);
        }
        let again = soon(services[1].suspend()).await.expect("the lease ends");
        assert!(short.fence().is_err());
        again.resume().await.expect("it was held");
    }
    lock(&services[0], "x").await.release().await.expect("it was held");
}

/// DistributedLockServiceDUnitTest.testSuspendLockingBehaves: the line has locks, two suspensions,
/// a lock after them, and a third suspension. No request is granted before its turn.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lockers_and_suspenders_take_turns() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    // Each request has its own owner. With the owner 0, a request of a holding member would pass.
    let held = soon(services[0].lock("x").owner(9)).await.expect("it is granted");
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for (turn, (member, name)) in
        [(1, Some("x")), (2, None), (1, None), (2, Some("y")), (0, None)].into_iter().enumerate()
    {
        let (service, order) = (services[member].clone(), order.clone());
        // The position is known before the next request is sent. A holder notes its turn before it
        // releases.
        macro_rules! line_up {
            ($asking:expr, $guard:ident => $end:expr) => {{
                let waiting = $asking.owner(turn as u64 + 1).start();
                assert!(soon(waiting.position()).await.expect("it waits").is_some());
                tasks.push(tokio::spawn(async move {
                    let $guard = soon(waiting).await.expect("its turn");
                    order.lock().expect("no panic").push(turn);
                    tokio::time::sleep(5 * MS).await;
                    $end.await.expect("it was held");
                }))
            }};
        }
        match name {
            Some(name) => line_up!(service.lock(name), guard => guard.release()),
            None => line_up!(service.suspend(), guard => guard.resume()),
        }
    }
    assert_eq!(
        soon(services[0].inspect_suspension()).await.expect("the grantor answers").waiters.len(),
        3
    );
    held.release().await.expect("it was held");
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    assert_eq!(*order.lock().expect("no panic"), [0, 1, 2, 3, 4]);
}

/// DistributedLockServiceDUnitTest.testLockInterruptiblyIsInterruptible,
/// testSuspendLockingInterruptiblyIsInterruptible: a wait that is dropped leaves nothing behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wait_that_is_dropped_leaves_nothing() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let held = lock(&services[0], "x").await;
    for service in &services {
        let waiting = service.lock("x").start();
        let suspending = service.suspend().start();
        drop((waiting, suspending));
    }
    held.release().await.expect("it was held");
    lock(&services[2], "x").await.release().await.expect("it was held");
    until(|| {
        local
            .members
            .iter()
            .all(|member| member.status().services.iter().all(|of| of.locks.is_empty()))
    })
    .await;
}

/// DistributedLockServiceDUnitTest.testReleaseOrphanedGrant_Local, testReleaseOrphanedGrant_Remote,
/// testReleaseOrphanedGrant_RemoteWithDestroy, testDestroyLockServiceAfterGrantResponse: the grant
/// has arrived. The caller drops the wait or destroys the service before it takes the grant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grant_that_no_caller_takes_is_released() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    lock(&services[0], "first").await.release().await.expect("it was held");
    for (member, destroys) in [(0, false), (1, false), (1, true)] {
        let service = local.members[member].lock_service("s").await.expect("a good name");
        let held = lock(&services[2], "x").await;
        let waiting = service.lock("x").start();
        soon(waiting.position()).await.expect("it waits");
        held.release().await.expect("it was held");
        let has_it = || local.members[member].status().services.iter().any(|of| of.held_here == 1);
        until(has_it).await;
        if destroys {
            soon(service.destroy()).await.expect("it is there");
            assert_eq!(
                soon(waiting).await.expect_err("it is destroyed"),
                LockError::Unavailable(Unavailable::Destroyed)
            );
        } else {
            drop(waiting);
        }
        lock(&services[2], "x").await.release().await.expect("it was held");
        assert!(!has_it());
    }
}

/// DistributedLockServiceDUnitTest.testLockDestroyedService,
/// testDestroyLockServiceBeforeGrantRequest;
/// DLockServiceCharacterizationTests.whatHappensAfterDestroyingTheDLockService,
/// serviceCanBeRecreatedAndUsed, createAndDestroy, destroyedLockService.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_service_is_over_and_can_be_used_anew() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let held = lock(&services[0], "x").await;
    for _ in 0..10 {
        let service = local.members[1].lock_service("s").await.expect("a good name");
        let mine = lock(&service, "mine").await;
        let waiting = service.lock("x").start();
        let under_way = service.lock("free").start();
        soon(service.destroy()).await.expect("it is there");
        assert_eq!(
            soon(waiting).await.expect_err("it is destroyed"),
            LockError::Unavailable(Unavailable::Destroyed)
        );
        assert_eq!(
            soon(under_way).await.expect_err("it is destroyed"),
            LockError::Unavailable(Unavailable::Destroyed)
        );
        assert_eq!(soon(mine.lost()).await, LostReason::Destroyed);
        assert_eq!(
            soon(service.lock("x")).await.expect_err("it is destroyed"),
            LockError::Unavailable(Unavailable::Destroyed)
        );
        for name in ["mine", "free"] {
            soon(services[2].try_lock(name))
                .await
                .expect("nothing is left")
                .release()
                .await
                .expect("it was held");
        }
    }
    held.fence().expect("no other member noticed");
}

/// Geode's becomeLockGrantor on a destroyed service still deposes the grantor. Its isLockGrantor
/// keeps the former answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_destroyed_handle_grants_nothing_and_takes_nothing_over() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let held = lock(&services[0], "x").await;
    soon(services[1].destroy()).await.expect("it is there");
    assert_eq!(
        soon(services[1].become_grantor()).await,
        Err(BecomeError::Unavailable(Unavailable::Destroyed))
    );
    assert_eq!(grantors(&services), [0]);
    soon(services[0].destroy()).await.expect("it is there");
    assert_eq!(soon(held.lost()).await, LostReason::Destroyed);
    assert!(!services[0].is_grantor());
    lock(&services[2], "x").await.release().await.expect("it was held");
    assert_eq!(grantors(&services), [2]);
}

/// DistributedLockServiceDUnitTest.testDepartedLastOwnerWithLease, testDepartedLastOwnerNoLease,
/// testBug32461, testNoStuckLock;
/// DLockServiceDisconnectIntegrationTest.locksAreReleasedDuringDisconnect.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_that_left_holds_nothing() {
    let mut local = Local::start(4).await;
    let services = local.services("s").await;
    lock(&services[0], "first").await.release().await.expect("it was held");
    let released = lock(&services[3], "released").await;
    released.release().await.expect("it was held");
    let _leased = soon(services[3].lock("leased").lease(HANG)).await.expect("it is granted");
    let held = lock(&services[3], "held").await;
    soon(local.members.pop().expect("four members").leave()).await.expect("it leaves");
    assert_eq!(soon(held.lost()).await, LostReason::Left);
    for name in ["released", "leased", "held"] {
        lock(&services[1], name).await.release().await.expect("it was held");
    }
}

/// DistributedLockServiceDUnitTest.testTokenCleanup, testGrantTokenCleanup;
/// DLockServiceLeakTest.basicDLockUsage, singleThreadWithCache, multipleThreadsWithCache;
/// DLockServiceCharacterizationTests.threadWaitingOnLockIncreasesUsageCount: an idle name takes no
/// memory, and no call is needed for that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_names_leave_nothing() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let known = || {
        local
            .members
            .iter()
            .flat_map(|member| member.status().services)
            .map(|of| of.locks.len())
            .sum::<usize>()
    };
    let guard = lock(&services[0], "seen").await;
    until(|| known() == 1).await;
    guard.release().await.expect("it was held");
    let mut tasks = Vec::new();
    for service in services.clone() {
        tasks.push(tokio::spawn(async move {
            for number in 0..200 {
                let guard = lock(&service, &format!("{}", number % 50)).await;
                guard.release().await.expect("it was held");
            }
        }));
    }
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    until(|| {
        local.members.iter().all(|member| {
            let services = member.status().services;
            services
                .iter()
                .all(|of| of.locks.is_empty() && of.waiting_here == 0 && of.held_here == 0)
        })
    })
    .await;
    assert_eq!(known(), 0);
}

/// DistributedLockServiceDUnitTest.testLockQuery: each member sees the holder, and sees none after
/// the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_can_be_seen_from_everywhere() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let guard = soon(services[1].lock("x").metadata("till 3")).await.expect("it is granted");
    for service in &services {
        let holder = soon(service.inspect("x"))
            .await
            .expect("the grantor answers")
            .holder
            .expect("it is held");
        assert_eq!((holder.process, holder.token), (local.members[1].process(), guard.token()));
        assert_eq!(holder.metadata.as_bytes(), b"till 3");
    }
    guard.release().await.expect("it was held");
    for service in &services {
        until_free(service, "x").await;
    }
}

/// Waits until the grantor sees no holder. The release may still be under way.
async fn until_free(service: &LockService, name: &str) {
    let wait = async {
        while !soon(service.inspect(name)).await.is_ok_and(|seen| seen.holder.is_none()) {
            tokio::time::sleep(MS).await;
        }
    };
    soon(wait).await;
}

/// Geode's batches (TXLockServiceDUnitTest.testTXLock) do not survive their grantor; these batches
/// do.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_is_all_or_nothing_and_survives_a_transfer() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let batch = soon(services[1].lock_all(["a", "b", "c"])).await.expect("all are free");
    let refused = soon(services[2].try_lock_all(["z", "b"])).await.expect_err("b is held");
    let holder = refused.holder().expect("it is held");
    assert_eq!(holder.name.as_ref().map(|name| name.as_bytes()), Some(&b"b"[..]));
    soon(services[2].become_grantor()).await.expect("no other member asks");
    for name in ["a", "b", "c"] {
        batch.fence(name).expect("it is still held");
        assert!(soon(services[0].try_lock(name)).await.is_err());
    }
    batch.release().await.expect("it was held");
    soon(services[0].lock_all(["c", "b", "a"]))
        .await
        .expect("all are free")
        .release()
        .await
        .expect("it was held");
}

/// TXLockServiceDUnitTest.testTXRecoverGrantorMessageProcessor: in Geode a recovery waits until
/// held batches end and does not take them over. Here the next grantor takes them over.
/// TXLockServiceDUnitTest.testTXOriginatorRecoveryProcessor: the holder of a batch dies, and its
/// locks are free for the next waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_survives_its_grantor_and_is_free_when_its_holder_has_died() {
    let mut local = Local::start_mortal(5).await;
    let services = local.services("s").await;
    lock(&services[0], "first").await.release().await.expect("it was held");
    assert_eq!(grantors(&services), [0]);
    let batch = soon(services[1].lock_all(["a", "b"])).await.expect("both are free");
    let token = batch.fence("b").expect("it is held");
    local.kill(0);
    // The next grantor answers, and knows the batch.
    let waiting = services[2].lock_all(["c", "b"]).start();
    until(|| grantors(&services[1..]).len() == 1).await;
    assert_eq!(batch.fence("b"), Ok(token));
    let refused = soon(services[3].try_lock_all(["b"])).await.expect_err("it is held");
    assert_eq!(refused.holder().map(|holder| holder.token), Some(token));
    local.kill(1);
    let next = soon(waiting).await.expect("the holder has died");
    assert!(next.fence("b").expect("it is held") > token);
    soon(services[3].lock("a")).await.expect("it is free").release().await.expect("it was held");
}

/// TXLockServiceDUnitTest.testGetAndDestroy, testGetAndDestroyAgain: a service is opened, used for
/// batches and destroyed, at one member after the other, again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_service_that_is_had_and_destroyed_again_and_again_gives_its_batches_back() {
    let local = Local::start(3).await;
    let mut last = None;
    for round in 0..3 {
        for member in &local.members {
            let service = member.lock_service("s").await.expect("a good name");
            let batch =
                soon(service.try_lock_all(["a", "b"])).await.expect("those before released it");
            let token = Some(batch.fence("a").expect("it is held"));
            assert!(token > last, "round {round}");
            last = token;
            soon(service.destroy()).await.expect("it is there");
            assert_eq!(batch.release().await, Err(ReleaseError::Lost(LostReason::Destroyed)));
            assert_eq!(
                soon(service.lock_all(["a"])).await.expect_err("it is destroyed"),
                LockError::Unavailable(Unavailable::Destroyed)
            );
        }
    }
}

/// GemFireDeadlockDetectorDUnitTest.testDistributedDeadlockWithDLock, testNoDeadlock: each of two
/// holders waits for a lock of the other. Geode's detector collects the waits. Here any member can
/// read them, and a limit or a revocation ends the circle.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_circle_of_holders_that_wait_for_each_other_can_be_seen_and_broken() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let edges = async |name: &'static str| {
        let seen = soon(services[2].inspect(name)).await.expect("the grantor answers");
        (
            seen.holder.map(|holder| holder.process),
            seen.waiters.iter().map(|waiter| waiter.process).collect::<Vec<_>>(),
        )
    };
    let (one, two) = (local.members[0].process(), local.members[1].process());
    let held = lock(&services[0], "x").await;
    let other = soon(services[1].lock("y").revocable()).await.expect("it is free");
    assert_eq!(
        (edges("x").await, edges("y").await),
        ((Some(one), vec![]), (Some(two), vec![])),
        "no circle"
    );
    let waiting = services[0].lock("y").start();
    let limited = services[1].lock("x").wait(200 * MS).start();
    let circle = async {
        while (edges("x").await, edges("y").await)
            != ((Some(one), vec![two]), (Some(two), vec![one]))
        {
            tokio::time::sleep(MS).await;
        }
    };
    // On a busy machine the limit may end before the third member sees the circle.
    let _ = tokio::time::timeout(150 * MS, circle).await;
    assert!(soon(limited).await.expect_err("the other one has it").is_timeout());
    soon(services[0].revoke("y")).await.expect("it is revocable");
    assert!(soon(other.revocation().requested()).await.is_some());
    other.release().await.expect("it was held");
    soon(waiting).await.expect("it was released").release().await.expect("it was held");
    held.release().await.expect("it was held");
}

/// A service keeps working while its grantors leave one after the other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_last_member_has_the_holds_of_all_tables_before_it() {
    let mut local = Local::start(4).await;
    let mut services = local.services("s").await;
    let last = lock(&services[0], "x").await;
    for _ in 0..3 {
        let (member, service) =
            (local.members.pop().expect("one is left"), services.pop().expect("one is left"));
        soon(service.become_grantor()).await.expect("no other member asks");
        soon(member.leave()).await.expect("it leaves");
        last.fence().expect("it is still held");
    }
    assert!(soon(services[0].try_lock("x")).await.is_err());
    until(|| services[0].is_grantor()).await;
}
