//! `ReentrantMutex` and `Mutex` over real members, each in a runtime of its own, with sockets on
//! the loopback interface. The tests cover the promises of Curator's recipes, and the complaints of
//! their users.

// `poll_k_then_drop` is given futures to poll, not to await.
#![allow(clippy::async_yields_async)]

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{
    EnterError, InvalidWant, LockError, LockService, LockValue, LostReason, Member, Mode,
    MultiLock, Mutex, MutexGuard, Owner, ReentrantGuard, ReentrantMutex, ReleaseError, RevokeError,
};
use local::{
    HANG, Leases, Local, MS, left_over, poll_a_wait_then_drop, poll_k_then_drop, soon, until,
};
use std::future::IntoFuture;
use std::sync::Arc;
use std::sync::Mutex as StdMutex;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// A service of a member without a cluster and without sockets.
async fn alone() -> (Member, LockService) {
    let member = Member::local().await.expect("a local member");
    let stock = member.lock_service("inventory").await.expect("a good name");
    (member, stock)
}

/// Two members. The first one grants the locks of "inventory".
async fn pair() -> (Local, LockService, LockService) {
    let local = Local::start(2).await;
    let mut services = local.services("inventory").await.into_iter();
    let (here, there) = (services.next().expect("two"), services.next().expect("two"));
    soon(here.lock("warm-up")).await.expect("granted").release().await.expect("held");
    (local, here, there)
}

/// Curator `InterProcessMutex`, as in a shop: each request makes a mutex of its own, sells if there
/// is stock, and releases. Nothing is sold twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn goods_that_many_want_at_once_are_sold_as_often_as_there_are_any() {
    let local = Local::start(3).await;
    let services = local.services("shop").await;
    let (stock, sold, tokens) =
        (Arc::new(AtomicI64::new(10)), Arc::default(), Arc::new(StdMutex::new(Vec::new())));
    let mut buyers = JoinSet::new();
    for buyer in 0..30 {
        let service = services[buyer % 3].clone();
        let (stock, sold, tokens): (_, Arc<AtomicUsize>, _) =
            (stock.clone(), Arc::clone(&sold), tokens.clone());
        buyers.spawn(async move {
            let mutex = ReentrantMutex::new(&service, "goods 7");
            let guard = soon(mutex.acquire(Owner::new())).await.expect("granted");
            let left = stock.load(Ordering::SeqCst);
            tokio::time::sleep(MS * (buyer as u32 % 3)).await;
            if left > 0 {
                stock.store(left - 1, Ordering::SeqCst);
                sold.fetch_add(1, Ordering::SeqCst);
            }
            tokens.lock().expect("whole").push(guard.fence().expect("held"));
            guard.release().await.expect("held");
        });
    }
    while let Some(buyer) = buyers.join_next().await {
        buyer.expect("no panic");
    }
    assert_eq!((stock.load(Ordering::SeqCst), sold.load(Ordering::SeqCst)), (0, 10));
    let tokens = tokens.lock().expect("whole");
    assert!(tokens.windows(2).all(|pair| pair[0] < pair[1]), "{tokens:?}");
}

/// Curator `InterProcessMutex.internalLock`: a thread in `threadData` counts up without a message.
#[tokio::test]
async fn an_owner_that_has_the_lock_enters_again_at_once_with_the_same_token() {
    let (_local, _here, there) = pair().await;
    let (mutex, owner) = (ReentrantMutex::new(&there, "a"), Owner::new());
    let outer = soon(mutex.acquire(owner)).await.expect("granted");
    // The owner enters without a message: at the first poll, also through another mutex value of
    // the same name.
    let mut again = ReentrantMutex::new(&there, "a").acquire(owner).into_future();
    let std::task::Poll::Ready(inner) = local::poll_once(std::pin::Pin::new(&mut again)) else {
        panic!("it asked another member")
    };
    let inner = inner.expect("entered");
    assert_eq!((inner.token(), mutex.depth(owner)), (outer.token(), 2));
    let third = mutex.acquire(owner).wait(Duration::ZERO).await.expect("entered");
    assert_eq!(mutex.depth(owner), 3);
    drop((third, inner, outer));
    assert_eq!(mutex.depth(owner), 0);
    let next = soon(mutex.acquire(owner)).await.expect("granted");
    next.release().await.expect("held");
}

/// Curator `InterProcessMutex.release`: the count goes down, and at zero the node is deleted.
#[tokio::test]
async fn the_lock_is_free_at_the_count_of_zero_in_any_order_of_releases() {
    let (_local, here, there) = pair().await;
    let (mutex, owner) = (ReentrantMutex::new(&there, "a"), Owner::new());
    for order in [[0, 1, 2], [2, 1, 0], [1, 0, 2]] {
        let mut guards: [Option<ReentrantGuard>; 3] = [None, None, None];
        for guard in &mut guards {
            *guard = Some(soon(mutex.acquire(owner)).await.expect("entered"));
        }
        for (released, index) in order.into_iter().enumerate() {
            assert_eq!(mutex.depth(owner), 3 - released);
            assert!(here.try_lock("a").await.is_err(), "still held");
            guards[index].take().expect("once each").release().await.expect("held");
        }
        assert!(!mutex.is_held());
        soon(here.lock("a")).await.expect("free").release().await.expect("held");
    }
}

/// Curator `InterProcessMutex.release`: `IllegalMonitorStateException` for a thread that does not
/// own the lock. Here an owner without the lock has no guard. So none of its calls, say in a
/// `finally`, takes anything from the owner of the lock.
#[tokio::test]
async fn an_owner_without_the_lock_has_nothing_to_release() {
    let (_member, stock) = alone().await;
    let mutex = ReentrantMutex::new(&stock, "a");
    let (owner, other) = (Owner::new(), Owner::new());
    assert_ne!(owner, other);
    let guard = mutex.acquire(owner).await.expect("granted");
    let mine: Result<ReentrantGuard, EnterError> = mutex.acquire(other).wait(5 * MS).await;
    assert!(mine.as_ref().is_err_and(EnterError::is_timeout));
    drop(mine);
    assert_eq!(
        (mutex.is_held_by(owner), mutex.is_held_by(other), mutex.is_held()),
        (true, false, true)
    );
    assert_eq!((mutex.depth(owner), mutex.depth(other)), (1, 0));
    guard.fence().expect("held");
}

/// Curator `LockInternals.internalLockLoop`: when the limit ends, the waiter deletes its node.
#[tokio::test]
async fn a_limit_that_ends_leaves_no_position() {
    let (local, here, there) = pair().await;
    let guard = soon(here.lock("a")).await.expect("granted");
    let mutex = ReentrantMutex::new(&there, "a");
    let error = soon(mutex.acquire(Owner::new()).wait(20 * MS)).await.unwrap_err();
    assert!(error.is_timeout() && !error.is_lost());
    until(|| left_over(&local.members[1]) == (0, 0)).await;
    // The release of the position is on its way to the grantor.
    soon(async { while !here.inspect("a").await.expect("it answers").waiters.is_empty() {} }).await;
    assert!(!mutex.is_held());
    guard.release().await.expect("held");
    soon(mutex.acquire(Owner::new())).await.expect("free").release().await.expect("held");
}

/// Curator `InterProcessMutex`: fair, first come, first served, by the sequence of the nodes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_are_granted_in_their_order() {
    let (local, here, there) = pair().await;
    let guard = soon(here.lock("a")).await.expect("granted");
    let order = Arc::new(StdMutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..20 {
        let (mutex, order) = (ReentrantMutex::new(&there, "a"), order.clone());
        waiters.spawn(async move {
            let guard = soon(mutex.acquire(Owner::new())).await.expect("granted");
            order.lock().expect("whole").push(number);
            guard.release().await.expect("held");
        });
        until(|| left_over(&local.members[1]).1 == number + 1).await;
    }
    guard.release().await.expect("held");
    while let Some(waiter) = waiters.join_next().await {
        waiter.expect("no panic");
    }
    assert_eq!(*order.lock().expect("whole"), (0..20).collect::<Vec<_>>());
}

/// Curator `InterProcessMutex`: each waiter watches the node before its own. A waiter that leaves
/// the middle does not concern the waiters before it. The waiters behind it move up.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_waiter_that_gives_up_in_the_middle_changes_no_order() {
    let (local, here, there) = pair().await;
    let guard = soon(here.lock("a")).await.expect("granted");
    let order = Arc::new(StdMutex::new(Vec::new()));
    let mut waiters = Vec::new();
    for number in 0..9 {
        let (mutex, order) = (ReentrantMutex::new(&there, "a"), order.clone());
        waiters.push(tokio::spawn(async move {
            let guard = mutex.acquire(Owner::new()).await.expect("granted");
            order.lock().expect("whole").push(number);
            guard.release().await.expect("held");
        }));
        until(|| left_over(&local.members[1]).1 == number + 1).await;
    }
    for number in [4, 1, 8] {
        waiters[number].abort();
    }
    until(|| left_over(&local.members[1]).1 == 6).await;
    guard.fence().expect("no other owner has it");
    guard.release().await.expect("held");
    for (number, waiter) in waiters.into_iter().enumerate() {
        assert_eq!(soon(waiter).await.is_err(), [4, 1, 8].contains(&number));
    }
    assert_eq!(*order.lock().expect("whole"), [0, 2, 3, 5, 6, 7]);
}

/// Curator `InterProcessMutex.getLockNodeBytes`, `getParticipantNodes`;
/// `InterProcessSemaphoreMutex`, where the node holds the address of its maker. Holder and waiters
/// are listed in order, each with its metadata. Curator may briefly show two leases although one of
/// them is not granted; here a waiter is never among the holders.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holder_and_waiters_of_a_mutex_and_their_data_are_seen_from_every_member() {
    let local = Local::start(3).await;
    let services = local.services("inventory").await;
    let (mutex, owner) = (ReentrantMutex::new(&services[1], "a"), Owner::new());
    let guard = soon(mutex.acquire(owner).metadata("192.168.60.165")).await.expect("granted");
    let inner = soon(mutex.acquire(owner).metadata("of no account")).await.expect("entered");
    let second = ReentrantMutex::new(&services[2], "a").acquire(Owner::new()).metadata("second");
    let second = tokio::spawn(second.into_future());
    let waiting = async |service: &LockService, count| {
        soon(async {
            while service.inspect("a").await.expect("it answers").waiters.len() != count {}
        })
        .await;
    };
    waiting(&services[0], 1).await;
    let third =
        tokio::spawn(Mutex::new(&services[0], "a").acquire().metadata("third").into_future());
    waiting(&services[0], 2).await;
    for service in &services {
        let seen = soon(service.inspect("a")).await.expect("it answers");
        let [holder] = &seen.holders[..] else { panic!("{seen:?}") };
        assert_eq!((holder.process, holder.token), (local.members[1].process(), guard.token()));
        assert_eq!((holder.metadata.as_bytes(), holder.mode), (&b"192.168.60.165"[..], Mode::Lock));
        let waiters: Vec<_> =
            seen.waiters.iter().map(|one| (one.process, one.metadata.as_bytes())).collect();
        let [first, _, last] = &local.members[..] else { unreachable!() };
        assert_eq!(waiters, [(last.process(), &b"second"[..]), (first.process(), &b"third"[..])]);
    }
    drop((guard, inner));
    drop(soon(second).await.expect("no panic").expect("granted"));
    let third = soon(third).await.expect("no panic").expect("granted");
    let seen = soon(services[1].inspect("a")).await.expect("it answers");
    assert_eq!(
        (seen.holders.len(), seen.waiters.len(), seen.holders[0].token),
        (1, 0, third.token())
    );
    third.release().await.expect("held");
    soon(async { while services[1].inspect("a").await.expect("it answers").holder.is_some() {} })
        .await;
}

/// Curator `InterProcessMutex.makeRevocable`, `Revoker.attemptRevoke`: the holder of a revocable
/// lock is asked to release it. `releaseLock` forgets that it was revocable
/// (`revocable.set(null)`).
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocable_mutex_tells_its_holder_and_the_next_hold_of_it_is_firm_again() {
    let (_local, here, there) = pair().await;
    let (mutex, plain, owner) =
        (ReentrantMutex::new(&there, "a"), Mutex::new(&there, "b"), Owner::new());
    let outer = soon(mutex.acquire(owner).revocable().metadata("till 3")).await.expect("granted");
    let inner = soon(mutex.acquire(owner)).await.expect("entered");
    let told = soon(here.revoke("a").metadata("stock-taking").wait(HANG))
        .await
        .expect("it is revocable")
        .told;
    assert_eq!((told[0].token, told[0].metadata.as_bytes()), (outer.token(), &b"till 3"[..]));
    for guard in [&outer, &inner] {
        let request = soon(guard.revocation().requested()).await.expect("it is held");
        assert_eq!(request.metadata.as_bytes(), b"stock-taking");
    }
    let lease = soon(plain.acquire().revocable()).await.expect("granted");
    soon(here.revoke("b").wait(HANG)).await.expect("it is revocable");
    assert!(soon(lease.revocation().requested()).await.is_some());
    drop((outer, inner, lease));

    let firm = soon(mutex.acquire(owner)).await.expect("granted");
    let _entered = soon(mutex.acquire(owner).revocable()).await.expect("entered");
    let firm = match soon(here.revoke("a").wait(HANG)).await {
        Err(RevokeError::NotRevocable(holder)) if holder.token == firm.token() => firm,
        other => panic!("{other:?}"),
    };
    assert!(!firm.revocation().is_requested());
    let _lease = soon(plain.acquire()).await.expect("granted");
    assert!(matches!(soon(here.revoke("b").wait(HANG)).await, Err(RevokeError::NotRevocable(_))));
}

/// Curator `InterProcessMutex`: the node is ephemeral, so the lock is free when the session of a
/// dead process ends.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_lock_of_a_process_that_dies_goes_to_the_next() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("inventory").await;
    let owner = Owner::new();
    let held = soon(ReentrantMutex::new(&services[2], "a").acquire(owner)).await.expect("granted");
    let next = tokio::spawn(ReentrantMutex::new(&services[1], "a").acquire(owner).into_future());
    until(|| left_over(&local.members[1]).1 == 1).await;
    assert!(!next.is_finished(), "an owner means nothing to other members");
    local.kill(2);
    let next = soon(next).await.expect("no panic").expect("granted");
    assert!(next.token() > held.token());
    assert!(held.fence().is_err());
}

/// Curator `InterProcessMutex`: a container node without children is deleted.
#[tokio::test]
async fn a_free_mutex_takes_no_room() {
    let (member, stock) = alone().await;
    for number in 0..100 {
        let (mutex, owner) = (ReentrantMutex::new(&stock, format!("sku-{number}")), Owner::new());
        let guard = mutex.acquire(owner).await.expect("granted");
        let inner = mutex.acquire(owner).await.expect("entered");
        assert!(mutex.acquire(Owner::new()).wait(Duration::ZERO).await.is_err());
        drop((guard, inner));
    }
    assert_eq!(left_over(&member), (0, 0));
    assert!(stock.held().next().await.expect("it answers").is_none());
}

/// The owner is a value. Tasks that have it enter the lock, wherever they run.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_that_carry_the_owner_enter_and_others_do_not() {
    let (_local, _here, there) = pair().await;
    let (mutex, owner) = (ReentrantMutex::new(&there, "a"), Owner::new());
    let outer = soon(mutex.acquire(owner)).await.expect("granted");
    let entered = mutex.clone();
    let inner = tokio::spawn(async move { entered.acquire(owner).wait(Duration::ZERO).await });
    let inner = soon(inner).await.expect("no panic").expect("entered");
    let stranger = mutex.clone();
    let refused = tokio::spawn(async move { stranger.acquire(Owner::new()).wait(5 * MS).await });
    assert!(soon(refused).await.expect("no panic").unwrap_err().is_timeout());
    // Any task may release a lock that another task acquired.
    outer.release().await.expect("held");
    let released = tokio::spawn(async move { inner.release().await });
    soon(released).await.expect("no panic").expect("held");
    assert!(!mutex.is_held());
}

/// Two tasks of one owner wait while another owner has the lock. With one owner for each thread
/// this cannot happen. The two tasks do not wait for each other.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tasks_of_one_owner_that_wait_at_once_enter_together() {
    let (local, here, there) = pair().await;
    let guard = soon(here.lock("a")).await.expect("granted");
    let (mutex, owner) = (ReentrantMutex::new(&there, "a"), Owner::new());
    let ask = || {
        let mutex = mutex.clone();
        tokio::spawn(async move { soon(mutex.acquire(owner)).await.expect("granted") })
    };
    let (first, second) = (ask(), ask());
    until(|| left_over(&local.members[1]).1 == 2).await;
    // A waiter that gives up takes no position from its siblings.
    let third = ask();
    until(|| left_over(&local.members[1]).1 == 3).await;
    third.abort();
    until(|| left_over(&local.members[1]).1 == 2).await;
    guard.release().await.expect("held");
    // Neither task releases the lock before both have it.
    let (first, second) =
        (soon(first).await.expect("no panic"), soon(second).await.expect("no panic"));
    assert_eq!((first.token(), mutex.depth(owner)), (second.token(), 2));
    until(|| left_over(&local.members[1]) == (1, 0)).await;
    drop((first, second));
    soon(here.lock("a")).await.expect("free").release().await.expect("held");
}

/// Curator users lose the lock of a thread that dies. Here the drop of the guard releases it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_task_that_panics_releases_the_lock() {
    let (_local, here, there) = pair().await;
    let (mutex, plain) = (ReentrantMutex::new(&there, "a"), Mutex::new(&there, "b"));
    let (in_task, in_task_too) = (mutex.clone(), plain.clone());
    let task = tokio::spawn(async move {
        let owner = Owner::new();
        let _outer = soon(in_task.acquire(owner)).await.expect("granted");
        let _inner = soon(in_task.acquire(owner)).await.expect("entered");
        let _other = soon(in_task_too.acquire()).await.expect("granted");
        panic!("on purpose");
    });
    assert!(soon(task).await.unwrap_err().is_panic());
    assert!(!mutex.is_held() && !plain.is_acquired());
    soon(here.lock("a")).await.expect("free").release().await.expect("held");
    soon(here.lock("b")).await.expect("free").release().await.expect("held");
}

#[tokio::test]
async fn a_guard_outlives_its_mutex_and_is_entered_through_a_new_one() {
    let (_member, stock) = alone().await;
    let owner = Owner::new();
    let guard = ReentrantMutex::new(&stock, "a").acquire(owner).await.expect("granted");
    let plain = Mutex::new(&stock, "b").acquire().await.expect("granted");
    guard.fence().expect("held");
    plain.fence().expect("held");
    let inner = ReentrantMutex::new(&stock, "a").acquire(owner).await.expect("entered");
    assert_eq!((ReentrantMutex::new(&stock, "a").depth(owner), inner.token()), (2, guard.token()));
}

/// Curator lets a thread enter a lock whose session has ended.
#[tokio::test]
async fn a_hold_that_is_lost_cannot_be_entered_and_a_new_one_has_a_higher_token() {
    let (_member, stock) = alone().await;
    let (mutex, owner) = (ReentrantMutex::new(&stock, "a"), Owner::new());
    let mut tries = 0..100;
    let (guard, inner) = loop {
        tries.next().expect("it is entered");
        let guard = mutex.acquire(owner).lease(100 * MS).await.expect("granted");
        // On a busy machine the lease may have ended by now.
        if let Ok(inner) = mutex.acquire(owner).await {
            break (guard, inner);
        }
    };
    assert_eq!(soon(guard.lost()).await, LostReason::LeaseEnded);
    assert_eq!(
        inner.fence().unwrap_err().reason,
        LostReason::LeaseEnded,
        "all guards fail together"
    );
    assert_eq!((mutex.depth(owner), mutex.is_held()), (0, false));
    let error = mutex.acquire(owner).wait(Duration::ZERO).await.unwrap_err();
    assert!(
        error.is_lost()
            && matches!(error, EnterError::Lost(lost) if lost.reason == LostReason::LeaseEnded)
    );

    // Other owners may have the lock meanwhile.
    let others = mutex.acquire(Owner::new()).await.expect("free");
    drop(others);
    let before = guard.token();
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
    assert!(mutex.acquire(owner).await.unwrap_err().is_lost(), "one guard is left");
    drop(inner);
    let again = mutex.acquire(owner).await.expect("granted");
    assert!(again.fence().expect("held") > before);
}

/// Curator `isAcquiredInThisProcess`: the end of a hold that was over before its task ran does not
/// count for the later hold.
#[tokio::test]
async fn a_hold_that_is_over_before_it_is_noticed_hides_no_later_one() {
    let (_member, stock) = alone().await;
    let mutex = Mutex::new(&stock, "a");
    let first = soon(mutex.acquire()).await.expect("free");
    let mut late = mutex.acquire().lease(5 * MS).into_future();
    assert!(local::poll_once(std::pin::Pin::new(&mut late)).is_pending());
    // This hold is granted now; its lease ends before the next grant.
    drop(first);
    let later = soon(mutex.acquire()).await.expect("the late one's lease ends");
    let over = soon(late).await.expect("it was granted");
    assert!(over.fence().is_err() && over.token() < later.token());
    assert!(mutex.is_acquired());
    drop(over);
    assert!(mutex.is_acquired());
    later.release().await.expect("held");
    assert!(!mutex.is_acquired());
}

#[tokio::test]
async fn entering_with_a_lease_extends_the_hold_and_never_shortens_it() {
    let (_member, stock) = alone().await;
    let (mutex, owner) = (ReentrantMutex::new(&stock, "a"), Owner::new());
    let mut tries = 0..100;
    let (guard, _longer) = loop {
        tries.next().expect("it is entered");
        let guard = mutex.acquire(owner).lease(200 * MS).await.expect("granted");
        // On a busy machine the lease may have ended by now.
        if let Ok(longer) = mutex.acquire(owner).lease(Duration::from_secs(3600)).await {
            break (guard, longer);
        }
    };
    let _shorter = mutex.acquire(owner).lease(MS).await.expect("entered");
    assert!(matches!(
        mutex.acquire(owner).lease(Duration::ZERO).await,
        Err(EnterError::Lock(LockError::InvalidLease(_)))
    ));
    assert_eq!(mutex.depth(owner), 3);
    let later = stock.lock("b").lease(300 * MS).await.expect("granted");
    soon(later.lost()).await;
    guard.fence().expect("it runs for an hour");
}

#[tokio::test]
async fn an_entry_without_a_lease_lasts_as_long_as_the_hold() {
    let (_member, stock) = alone().await;
    let (mutex, owner) = (ReentrantMutex::new(&stock, "a"), Owner::new());
    let mut tries = 0..100;
    let (outer, inner) = loop {
        tries.next().expect("it is entered");
        let outer = mutex.acquire(owner).lease(100 * MS).await.expect("granted");
        match mutex.acquire(owner).await {
            Ok(inner) => break (outer, inner),
            // On a busy machine the lease may have ended by now.
            Err(error) => assert!(error.is_lost() && outer.fence().is_err(), "{error}"),
        }
    };
    assert_eq!(soon(inner.lost()).await, LostReason::LeaseEnded);
    assert!(outer.fence().is_err(), "all of them fail together");
}

#[tokio::test]
async fn a_name_that_cannot_be_is_an_error_of_asking() {
    let (_member, stock) = alone().await;
    let nameless = ReentrantMutex::new(&stock, "");
    assert!(matches!(
        nameless.acquire(Owner::new()).await,
        Err(EnterError::Lock(LockError::InvalidWant(InvalidWant::Name(_))))
    ));
    assert!(!nameless.is_held() && nameless.depth(Owner::new()) == 0);
    assert!(matches!(
        Mutex::new(&stock, "x".repeat(5000)).acquire().await,
        Err(LockError::InvalidWant(InvalidWant::Name(_)))
    ));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn entering_a_mutex_dropped_at_any_poll_leaves_nothing() {
    let (local, here, there) = pair().await;
    let nothing = || local.members.iter().all(|member| left_over(member) == (0, 0));
    let (mutex, owner) = (ReentrantMutex::new(&there, "a"), Owner::new());
    // The lock is free, but another member grants it.
    poll_a_wait_then_drop(
        async || mutex.acquire(owner).into_future(),
        async |_| {
            until(nothing).await;
            assert!(!mutex.is_held());
        },
    )
    .await;
    // A guard of another member holds the lock for a while.
    poll_a_wait_then_drop(
        async || {
            let guard = soon(here.lock("a").lease(5 * MS)).await.expect("granted");
            let waiting = mutex.acquire(owner).into_future();
            async move {
                let entered = waiting.await;
                drop(guard);
                entered
            }
        },
        async |_| until(nothing).await,
    )
    .await;
    // A task of the same owner waits too and is granted the lock meanwhile: the owner keeps its
    // hold.
    poll_a_wait_then_drop(
        async || {
            let guard = soon(here.lock("a").lease(5 * MS)).await.expect("granted");
            let (first, second) =
                (mutex.acquire(owner).into_future(), mutex.acquire(owner).into_future());
            async move {
                let both = tokio::join!(first, second);
                drop(guard);
                both
            }
        },
        async |_| until(nothing).await,
    )
    .await;
    let outer = soon(mutex.acquire(owner)).await.expect("granted");
    poll_k_then_drop(
        async || mutex.acquire(owner).into_future(),
        async |_| assert_eq!((mutex.depth(owner), outer.fence().is_ok()), (1, true)),
    )
    .await;
    poll_k_then_drop(
        async || {
            let guard = soon(mutex.acquire(owner)).await.expect("entered");
            async move { guard.release().await }
        },
        async |_| assert_eq!(mutex.depth(owner), 1),
    )
    .await;
}

/// Curator issue CURATOR-527: a lost wake-up. A waiter that is dropped at any poll passes the
/// wake-up on, to a task of the same owner and to a stranger behind both.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_behind_a_mutex_dropped_at_any_poll_have_it() {
    let (local, here, there) = pair().await;
    let (mutex, plain, owner) =
        (ReentrantMutex::new(&there, "a"), Mutex::new(&there, "a"), Owner::new());
    let behind = StdMutex::new(None);
    for is_plain in [false, true] {
        poll_a_wait_then_drop(
            async || {
                let held = soon(here.lock("a")).await.expect("granted");
                let mut dropped = match is_plain {
                    true => Box::pin(async {
                        plain.acquire().await.map(drop).map_err(EnterError::from)
                    }) as Asks<'_>,
                    false => Box::pin(async { mutex.acquire(owner).await.map(drop) }),
                };
                assert!(local::poll_once(std::pin::Pin::new(&mut dropped)).is_pending());
                let sibling = tokio::spawn(mutex.acquire(owner).into_future());
                until(|| left_over(&local.members[1]).1 == 2).await;
                let stranger = tokio::spawn(there.lock("a").into_future());
                until(|| left_over(&local.members[1]).1 == 3).await;
                *behind.lock().expect("whole") = Some((sibling, stranger));
                tokio::spawn(async move {
                    tokio::time::sleep(3 * MS).await;
                    drop(held);
                });
                dropped
            },
            async |_| {
                let (sibling, stranger) =
                    behind.lock().expect("whole").take().expect("one per round");
                drop(soon(sibling).await.expect("no panic").expect("granted"));
                soon(stranger)
                    .await
                    .expect("no panic")
                    .expect("granted")
                    .release()
                    .await
                    .expect("held");
                until(|| local.members.iter().all(|member| left_over(member) == (0, 0))).await;
            },
        )
        .await;
    }
}

type Asks<'a> = std::pin::Pin<Box<dyn Future<Output = Result<(), EnterError>> + 'a>>;

/// Curator `InterProcessSemaphoreMutex`, as in its test: a second `acquire` of the same thread
/// times out until the first is released.
#[tokio::test]
async fn asking_again_for_a_plain_mutex_times_out_until_it_is_released() {
    let (_local, _here, there) = pair().await;
    let (mutex, owner) = (Mutex::new(&there, "ipsm"), Owner::new());
    assert!(!mutex.is_acquired());
    let mut last = None;
    for round in 0..5 {
        let guard = soon(mutex.acquire().owner(owner).wait(HANG)).await.expect("free");
        assert!(mutex.is_acquired(), "round {round}");
        assert!(last < Some(guard.token()), "tokens rise");
        for _ in 0..round {
            let again = soon(mutex.acquire().owner(owner).wait(5 * MS)).await;
            assert_eq!(again.unwrap_err(), LockError::TimedOut);
            // "important - don't overwrite lease field if couldn't be acquired"
            assert!(mutex.is_acquired());
        }
        last = Some(guard.token());
        guard.release().await.expect("held");
        assert!(!mutex.is_acquired());
    }
}

/// Curator `InterProcessSemaphoreMutex`: one holder at a time, between processes, between threads,
/// and within one thread.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_mutex_is_held_once_between_members_and_tasks() {
    let local = Local::start(3).await;
    let services = local.services("inventory").await;
    let (inside, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let mutex = Mutex::new(&services[number % 3], "a");
        let (inside, most) = (inside.clone(), most.clone());
        tasks.spawn(async move {
            let guard = soon(mutex.acquire()).await.expect("granted");
            most.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            tokio::task::yield_now().await;
            inside.fetch_sub(1, Ordering::SeqCst);
            guard.release().await.expect("held");
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
}

/// Curator `InterProcessSemaphoreMutex.isAcquiredInThisProcess` answers yes as long as there is a
/// lease object.
#[tokio::test]
async fn a_plain_mutex_that_is_lost_is_not_acquired() {
    let (_member, stock) = alone().await;
    let mutex = Mutex::new(&stock, "a");
    let guard = mutex.acquire().lease(100 * MS).await.expect("granted");
    assert!(mutex.is_acquired() || guard.fence().is_err());
    soon(guard.lost()).await;
    assert!(!mutex.is_acquired());
    let again = mutex.clone().acquire().await.expect("free");
    assert!(mutex.is_acquired(), "a clone's counts");
    drop(guard);
    assert!(mutex.is_acquired());
    drop(again);
    assert!(!mutex.is_acquired());
}

/// The holder of a plain mutex has the lock exclusively. So it may write the value of its lock, as
/// a guard of the lock itself may.
#[tokio::test]
async fn the_holder_of_a_plain_mutex_changes_the_value_of_its_lock() {
    let (_member, stock) = alone().await;
    let left = LockValue::open(&stock, "a", "100").await.expect("it opens");
    let guard: MutexGuard = Mutex::new(&stock, "a").acquire().await.expect("free");
    assert_eq!(&left.read(&guard).await.expect("held").value[..], b"100");
    left.write(&guard, "99").await.expect("held");
    assert_eq!(&left.get().expect("it is open").value[..], b"99");
    assert_eq!(
        (guard.fence(), guard.service(), guard.name()),
        (Ok(guard.token()), "inventory", &b"a"[..])
    );
    let watch = guard.watch();
    guard.extend(HANG).expect("held");
    assert_eq!(guard.protect(async { 7 }).await, Ok(7));
    guard.release().await.expect("held");
    assert_eq!(watch.reason(), Some(LostReason::Released));
    let other = Mutex::new(&stock, "b").acquire().await.expect("free");
    assert!(left.write(&other, "98").await.is_err(), "of another lock");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_plain_mutex_dropped_at_any_poll_leaves_nothing() {
    let (local, here, there) = pair().await;
    let nothing = || local.members.iter().all(|member| left_over(member) == (0, 0));
    let mutex = Mutex::new(&there, "a");
    poll_a_wait_then_drop(
        async || {
            let guard = soon(here.lock("a").lease(5 * MS)).await.expect("granted");
            let waiting = mutex.acquire().into_future();
            async move {
                let granted = waiting.await;
                drop(guard);
                granted
            }
        },
        async |_| {
            until(nothing).await;
            assert!(!mutex.is_acquired());
        },
    )
    .await;
}

/// Curator issue CURATOR-678: a release while the connection is lost has only a local effect. Here
/// the release is repeated until the grantor knows it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_while_the_grantor_dies_is_not_lost() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("inventory").await;
    soon(services[0].lock("warm-up")).await.expect("granted").release().await.expect("held");
    let mutex = ReentrantMutex::new(&services[1], "a");
    let guard = soon(mutex.acquire(Owner::new())).await.expect("granted");
    local.kill(0);
    guard.release().await.expect("held until now");
    assert!(!mutex.is_held());
    soon(services[2].lock("a")).await.expect("free").release().await.expect("held");
}

/// Two hundred waiters of different kinds for one name are granted in the order of their requests
/// after the grantor dies.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiters_of_every_kind_keep_their_order_when_the_grantor_dies() {
    const WAITERS: usize = 200;
    // The waiters must not lose their leases while all of them ask.
    let mut local = Local::start_with(3, Leases::Long).await;
    let services = local.services("inventory").await;
    let orders = local.services("orders").await;
    let held = soon(services[0].lock("a")).await.expect("granted");
    soon(orders[1].lock("warm-up")).await.expect("granted").release().await.expect("held");
    let order = Arc::new(StdMutex::new(Vec::new()));
    let mut waiters = JoinSet::new();
    for number in 0..WAITERS {
        // The requests come in blocks from the two members by turns. Links keep the order, so the
        // position of a block's last request is known after the others'.
        let member = 1 + number / 25 % 2;
        let (service, other, order) =
            (services[member].clone(), orders[member].clone(), order.clone());
        let before = left_over(&local.members[member]).1;
        waiters.spawn(async move {
            let seen = |_: &dyn std::any::Any| order.lock().expect("whole").push(number);
            match number % 5 {
                0 => seen(
                    &soon(service.lock("a").owner(Owner::new().number())).await.expect("granted"),
                ),
                1 => seen(
                    &soon(ReentrantMutex::new(&service, "a").acquire(Owner::new()))
                        .await
                        .expect("granted"),
                ),
                2 => seen(
                    &soon(Mutex::new(&service, "a").acquire().owner(Owner::new()))
                        .await
                        .expect("granted"),
                ),
                3 => {
                    let both = MultiLock::new().with(&other, ["x"]).with(&service, ["a", "b"]);
                    seen(&soon(both.acquire().owner(Owner::new())).await.expect("granted"));
                }
                _ => seen(
                    &soon(service.suspend().owner(Owner::new().number())).await.expect("granted"),
                ),
            }
        });
        until(|| left_over(&local.members[member]).1 == before + 1).await;
        if number % 25 == 24 {
            let last = services[member].lock("a").owner(Owner::new().number()).start();
            let position = soon(last.position()).await.expect("it answers").expect("it waits");
            assert!(position.before > 0);
        }
    }
    local.kill(0);
    drop(held);
    while let Some(waiter) = waiters.join_next().await {
        waiter.expect("no panic");
    }
    assert_eq!(*order.lock().expect("whole"), (0..WAITERS).collect::<Vec<_>>());
}
