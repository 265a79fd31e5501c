//! `MultiLock` over real members, each in a runtime of its own, with sockets on the loopback
//! interface.

// `poll_k_then_drop` is given futures to poll, not to await.
#![allow(clippy::async_yields_async)]

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{
    FenceError, InvalidWant, LockError, LockService, LostReason, Member, MultiLock, MultiLockError,
    Owner, ReentrantMutex, ReleaseError, RevokeError, Unavailable,
};
use local::{HANG, Local, MS, left_over, poll_a_wait_then_drop, poll_k_then_drop, soon, until};
use std::future::IntoFuture;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::task::JoinSet;

async fn two_services(member: &Member) -> (LockService, LockService) {
    let accounts = member.lock_service("accounts").await.expect("a good name");
    let orders = member.lock_service("orders").await.expect("a good name");
    (accounts, orders)
}

/// Curator `InterProcessMultiLock.acquire`: all locks are held, and `release` releases all.
#[tokio::test]
async fn locks_of_several_services_are_held_and_released_together() {
    let local = Local::start(2).await;
    let (accounts, orders) = two_services(&local.members[0]).await;
    let (of_other, orders_of_other) = two_services(&local.members[1]).await;
    // The names are in no order, and one of them is listed twice.
    let multi = MultiLock::new()
        .with(&orders, ["17"])
        .with(&accounts, ["bob", "alice"])
        .with(&orders, ["4", "17"]);
    let all = soon(multi.acquire().metadata("transfer")).await.expect("granted");
    let tokens: Vec<_> = all.tokens().map(|(service, name, _)| (service, name)).collect();
    let expected =
        [("accounts", &b"alice"[..]), ("accounts", b"bob"), ("orders", b"17"), ("orders", b"4")];
    assert_eq!(tokens, expected);
    for (service, name, token) in all.tokens() {
        assert_eq!(all.fence(service, name), Ok(token));
    }
    assert_eq!(all.fence("orders", "alice"), Err(FenceError::NotInBatch));
    assert_eq!(all.fence("elsewhere", "17"), Err(FenceError::NotInBatch));
    for (service, name) in [
        (&of_other, "alice"),
        (&of_other, "bob"),
        (&orders_of_other, "17"),
        (&orders_of_other, "4"),
    ] {
        let held = soon(service.try_lock(name)).await.unwrap_err();
        assert_eq!(held.holder().expect("it is held").metadata.as_bytes(), b"transfer");
    }
    assert_eq!(all.protect(async { 7 }).await, Ok(7));
    all.release().await.expect("held");
    until(|| local.members.iter().all(|member| left_over(member) == (0, 0))).await;
    // The value may be used again.
    soon(multi.acquire()).await.expect("granted").release().await.expect("held");
}

/// Curator `InterProcessMultiLock`: two multi locks that name the same locks in different orders
/// wait for each other for ever.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_locks_put_together_in_any_order_never_wait_for_each_other() {
    let local = Local::start(3).await;
    let mut tasks = JoinSet::new();
    for number in 0..12 {
        let (accounts, orders) = two_services(&local.members[number % 3]).await;
        tasks.spawn(async move {
            let multi = match number % 4 {
                0 => MultiLock::new().with(&accounts, ["a", "b"]).with(&orders, ["x", "y"]),
                1 => MultiLock::new().with(&orders, ["y", "x"]).with(&accounts, ["b", "a"]),
                2 => MultiLock::new()
                    .with(&orders, ["x"])
                    .with(&accounts, ["b"])
                    .with(&orders, ["y"]),
                _ => MultiLock::new().with(&accounts, ["a"]).with(&orders, ["y"]),
            };
            for _ in 0..5 {
                let all = soon(multi.acquire()).await.expect("granted");
                tokio::task::yield_now().await;
                all.release().await.expect("held");
            }
        });
    }
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }
}

/// Curator `InterProcessMultiLock.acquire(time)` gives each lock the whole limit. Here one limit is
/// for all locks.
#[tokio::test]
async fn one_limit_holds_for_the_whole_and_earlier_grants_are_released() {
    let local = Local::start(2).await;
    let (accounts, orders) = two_services(&local.members[0]).await;
    let (of_other, orders_of_other) = two_services(&local.members[1]).await;
    let multi = MultiLock::new().with(&accounts, ["alice", "bob"]).with(&orders, ["17"]);
    let mut tries = 0..20;
    loop {
        tries.next().expect("the first one comes in time");
        // The first lock is granted shortly before the limit. The second would be granted between
        // the limit and twice the limit.
        let second = soon(orders_of_other.lock("17").lease(3600 * MS)).await.expect("granted");
        let first = soon(of_other.lock("alice").lease(1800 * MS)).await.expect("granted");
        let waiting = tokio::spawn(multi.acquire().wait(2000 * MS).into_future());
        soon(first.lost()).await;
        drop(first);
        let error = soon(waiting).await.expect("no panic").unwrap_err();
        assert!(error.is_timeout() && !error.is_lost(), "{error}");
        until(|| left_over(&local.members[0]) == (0, 0)).await;
        soon(of_other.lock_all(["alice", "bob"]))
            .await
            .expect("released")
            .release()
            .await
            .expect("held");
        drop(second);
        // On a busy machine the limit may end before the first lock is granted.
        if error == (MultiLockError::Lock { service: "orders".into(), error: LockError::TimedOut })
        {
            break;
        }
    }

    let kept = soon(orders_of_other.lock("17")).await.expect("granted");
    let error = soon(multi.acquire().wait(Duration::ZERO)).await.unwrap_err();
    assert!(error.is_timeout(), "{error}");
    kept.release().await.expect("held");
    until(|| left_over(&local.members[0]) == (0, 0)).await;
    soon(multi.acquire().wait(Duration::ZERO))
        .await
        .expect("all are free")
        .release()
        .await
        .expect("held");
}

#[tokio::test]
async fn the_loss_of_one_is_the_loss_of_all() {
    let member = Member::local().await.expect("a local member");
    let (accounts, orders) = two_services(&member).await;
    let multi = MultiLock::new().with(&accounts, ["alice"]).with(&orders, ["17"]);
    let all = multi.acquire().await.expect("granted");
    let mut lost = Box::pin(all.lost());
    assert!(local::poll_once(lost.as_mut()).is_pending());
    orders.destroy().await.expect("destroyed");
    assert_eq!(soon(lost).await, LostReason::Destroyed);
    let error = all.fence("accounts", "alice").unwrap_err();
    assert!(error.is_lost(), "accounts is held, but not all are");
    assert_eq!(
        all.protect(std::future::pending::<()>()).await.unwrap_err().reason,
        LostReason::Destroyed
    );
    assert!(all.extend(HANG).unwrap_err().is_lost());
    assert!(accounts.try_lock("alice").await.is_err(), "until it is released");
    assert_eq!(all.release().await, Err(ReleaseError::Lost(LostReason::Destroyed)));
    accounts.try_lock("alice").await.expect("released").release().await.expect("held");
    let error = multi.acquire().await.unwrap_err();
    assert_eq!(
        error,
        MultiLockError::Lock {
            service: "orders".into(),
            error: LockError::Unavailable(Unavailable::Destroyed)
        }
    );
    assert_eq!(left_over(&member), (0, 0));
}

#[tokio::test]
async fn a_loss_while_a_later_service_is_waited_for_ends_the_waiting() {
    let member = Member::local().await.expect("a local member");
    let (accounts, orders) = two_services(&member).await;
    let held = orders.lock("17").await.expect("granted");
    let multi = MultiLock::new().with(&accounts, ["alice"]).with(&orders, ["17"]);
    let waiting = tokio::spawn(multi.acquire().into_future());
    until(|| left_over(&member) == (2, 1)).await;
    accounts.destroy().await.expect("destroyed");
    let error = soon(waiting).await.expect("no panic").unwrap_err();
    assert!(error.is_lost());
    let MultiLockError::Lost { service, lost } = &error else { panic!("{error:?}") };
    assert_eq!((service.as_str(), lost.reason), ("accounts", LostReason::Destroyed));
    until(|| left_over(&member) == (1, 0)).await;
    held.release().await.expect("held");
}

#[tokio::test]
async fn a_lease_counts_from_the_last_grant_and_outlasts_the_waiting() {
    let member = Member::local().await.expect("a local member");
    let (accounts, orders) = two_services(&member).await;
    let multi = MultiLock::new().with(&accounts, ["alice"]).with(&orders, ["17"]);
    let mut tries = 0..10;
    let (begun, all) = loop {
        tries.next().expect("the first one is extended");
        let begun = Instant::now();
        let held = orders.lock("17").lease(2500 * MS).await.expect("granted");
        // The wait for the second service outlasts the lease of the first hold, which has to be
        // extended.
        let waiting = tokio::spawn(multi.acquire().lease(1500 * MS).into_future());
        soon(held.lost()).await;
        drop(held);
        match soon(waiting).await.expect("no panic") {
            Ok(all) => break (begun, all),
            // On a busy machine the first hold may not be extended in time.
            Err(error) => assert!(error.is_lost(), "{error}"),
        }
    };
    assert_eq!(soon(all.lost()).await, LostReason::LeaseEnded);
    assert!(begun.elapsed() >= 4000 * MS, "the second was granted after 2.5 s");
    drop(all);
    assert!(matches!(
        multi.acquire().lease(Duration::ZERO).await,
        Err(MultiLockError::Lock { error: LockError::InvalidLease(_), .. })
    ));
    assert_eq!(left_over(&member), (0, 0));
}

#[tokio::test]
async fn an_impossible_multi_lock_is_an_error_and_nothing_is_held() {
    let (member, other) =
        (Member::local().await.expect("local"), Member::local().await.expect("local"));
    let (accounts, orders) = two_services(&member).await;
    let (of_other, _) = two_services(&other).await;
    assert_eq!(MultiLock::new().acquire().await.unwrap_err(), MultiLockError::Nothing);
    let twice = MultiLock::new().with(&accounts, ["alice"]).with(&of_other, ["bob"]);
    assert_eq!(
        twice.acquire().await.unwrap_err(),
        MultiLockError::TwoServices { service: "accounts".into() }
    );
    let empty = MultiLock::new().with(&accounts, ["alice"]).with(&orders, [""; 0]);
    assert!(matches!(
        empty.acquire().await,
        Err(MultiLockError::Lock { error: LockError::InvalidWant(InvalidWant::Batch(_)), .. })
    ));
    // The error comes before any wait, whichever service is first and whichever process holds a
    // lock.
    let held = accounts.lock("alice").await.expect("it is free");
    for wrong in
        [vec![String::new()], vec!["x".repeat(5000)], vec![String::from("17"), String::new()]]
    {
        let multi = MultiLock::new().with(&accounts, ["alice"]).with(&orders, wrong);
        let error = soon(multi.acquire().wait(20 * MS)).await.unwrap_err();
        let MultiLockError::Lock { service, error: LockError::InvalidWant(InvalidWant::Name(_)) } =
            &error
        else {
            panic!("{error}")
        };
        assert_eq!(service, "orders");
    }
    let empty = MultiLock::new().with(&accounts, ["alice"]).with(&orders, [""; 0]);
    let error = soon(empty.acquire().wait(20 * MS)).await.unwrap_err();
    assert!(
        matches!(
            error,
            MultiLockError::Lock { error: LockError::InvalidWant(InvalidWant::Batch(_)), .. }
        ),
        "{error}"
    );
    held.release().await.expect("it was held");
    assert_eq!((left_over(&member), left_over(&other)), ((0, 0), (0, 0)));
}

/// Curator has `Revocable`, but not for its `InterProcessMultiLock`. Here the holder is told of
/// each revocation of any of the locks.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_holder_of_a_revocable_multi_lock_is_told_of_each_lock_that_is_requested_back() {
    let (local, [accounts, orders], multi) = far_from_the_grantor().await;
    let all = soon(multi.acquire().revocable()).await.expect("granted");
    let mut revocation = all.revocation();
    assert!(
        local::poll_once(std::pin::pin!(revocation.requested())).is_pending()
            && !revocation.is_requested()
    );
    let mut told = Vec::new();
    for (service, name) in [(&orders, "17"), (&accounts, "bob"), (&orders, "17")] {
        let why = format!("{name} for {}", told.len());
        told.push(
            soon(service.revoke(name).metadata(&why).wait(HANG))
                .await
                .expect("it is revocable")
                .told,
        );
        assert_eq!(
            told.last().expect("one")[0].token,
            all.fence(service.name(), name).expect("held")
        );
        // A future that is dropped loses no request.
        drop(local::poll_once(Box::pin(revocation.clone().requested()).as_mut()));
        let request = soon(revocation.requested()).await.expect("they are held");
        assert_eq!(
            (request.metadata.as_bytes(), request.process),
            (why.as_bytes(), local.members[0].process())
        );
        assert!(
            local::poll_once(std::pin::pin!(revocation.requested())).is_pending(),
            "each is told of once"
        );
    }
    let mut afresh = all.revocation();
    for _ in 0..3 {
        soon(afresh.requested()).await.expect("they are held");
    }
    assert!(all.revocation().is_requested());
    soon(orders.force_revoke(&told[0][0])).await.expect("it was told");
    assert_eq!(soon(all.lost()).await, LostReason::Revoked);
    assert_eq!(soon(revocation.requested()).await, None, "they are not held together any more");
    drop(all);

    // The earlier locks are taken away while the request for a later one waits.
    let held = soon(orders.lock("17")).await.expect("it is free");
    let waiting = tokio::spawn(multi.acquire().revocable().into_future());
    // The request waits for the second service; the first holds are already released.
    until(|| matches!(left_over(&local.members[1]), (1.., 1))).await;
    let asked = soon(accounts.revoke("alice").wait(HANG)).await.expect("it is revocable");
    soon(accounts.force_revoke(&asked.told[0])).await.expect("it was told");
    let error = soon(waiting).await.expect("no panic").unwrap_err();
    let taken =
        matches!(&error, MultiLockError::Lost { lost, .. } if lost.reason == LostReason::Revoked);
    assert!(taken, "{error}");
    held.release().await.expect("it was held");

    let firm = soon(multi.acquire()).await.expect("granted");
    assert!(matches!(
        soon(orders.revoke("17").wait(HANG)).await,
        Err(RevokeError::NotRevocable(_))
    ));
    assert!(!firm.revocation().is_requested());
    until(|| left_over(&local.members[0]) == (0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_survives_the_grantors_of_its_services() {
    let mut local = Local::start_mortal(3).await;
    let (accounts, orders) = two_services(&local.members[0]).await;
    soon(accounts.lock("x")).await.expect("granted").release().await.expect("held");
    soon(orders.lock("x")).await.expect("granted").release().await.expect("held");
    let (accounts, orders) = two_services(&local.members[1]).await;
    let multi = MultiLock::new().with(&accounts, ["alice"]).with(&orders, ["17"]);
    let all = soon(multi.acquire()).await.expect("granted");
    let (accounts, orders) = two_services(&local.members[2]).await;
    let next = MultiLock::new().with(&accounts, ["alice"]).with(&orders, ["17"]);
    let next = tokio::spawn(next.acquire().into_future());
    until(|| left_over(&local.members[2]).1 == 1).await;
    local.kill(0);
    local.agree(2).await;
    let before = all.fence("orders", "17").expect("held");
    all.release().await.expect("held");
    let next = soon(next).await.expect("no panic").expect("granted");
    assert!(next.fence("orders", "17").expect("held") > before);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_enters_its_holds_by_any_recipe_and_no_other_owner_does() {
    let (local, [accounts, _orders], multi) = far_from_the_grantor().await;
    let mine = local.members[1].lock_service("accounts").await.expect("a good name");
    let (alices, bobs) = (ReentrantMutex::new(&mine, "alice"), ReentrantMutex::new(&mine, "bob"));
    let (owner, other) = (Owner::new(), Owner::new());
    let free = async |name| {
        let guard = soon(accounts.try_lock(name)).await.expect("it is free");
        guard.release().await.expect("it was held");
    };
    // The multi lock enters the locks that the mutex holds, and requests the rest.
    let alice = soon(alices.acquire(owner)).await.expect("it is free");
    let all = soon(multi.acquire().owner(owner)).await.expect("the rest is free");
    assert_eq!(all.fence("accounts", "alice"), Ok(alice.token()));
    assert_eq!(all.tokens().count(), 3);
    let again = soon(multi.acquire().owner(owner)).await.expect("the owner has all of it");
    assert!(again.tokens().eq(all.tokens()));
    assert!(
        soon(multi.acquire().owner(other).wait(20 * MS))
            .await
            .expect_err("another owner")
            .is_timeout()
    );
    assert!(soon(multi.acquire().wait(20 * MS)).await.expect_err("no owner").is_timeout());
    // The mutex enters a lock that the multi lock holds.
    let bob = soon(bobs.acquire(owner)).await.expect("the owner has it");
    assert_eq!((bob.fence().ok(), bob.name()), (again.fence("accounts", "bob").ok(), &b"bob"[..]));
    assert_eq!(bob.watch().token(), bob.token());
    drop(alice);
    all.release().await.expect("it was held");
    assert!(soon(accounts.try_lock("alice")).await.is_err(), "the second guard keeps it");
    again.release_and_confirm().await.expect("it was held");
    free("alice").await;
    assert!(soon(accounts.try_lock("bob")).await.is_err());
    bob.release_and_confirm().await.expect("it was held");
    free("bob").await;

    // The multi lock is granted both names as one batch; the mutex enters the second name.
    let all = soon(multi.acquire().owner(owner)).await.expect("all are free");
    let bob = soon(bobs.acquire(owner)).await.expect("the owner has it");
    assert_eq!(Ok(bob.fence().expect("held")), all.fence("accounts", "bob"));
    assert!(bob.token() > all.fence("accounts", "alice").expect("held"));
    all.release_and_confirm().await.expect("it was held");
    assert!(
        soon(accounts.try_lock("alice")).await.is_err(),
        "locks that are granted together are released together"
    );
    bob.release_and_confirm().await.expect("it was held");
    free("alice").await;

    // Two tasks of one owner are queued. Whichever request is granted first, both tasks have the
    // lock.
    for multi_first in [true, false] {
        let held = soon(accounts.lock("alice")).await.expect("it is free");
        let waits = |count| {
            let members = &local.members;
            move || {
                members[1]
                    .status()
                    .services
                    .iter()
                    .map(|service| service.waiting_here)
                    .sum::<usize>()
                    == count
            }
        };
        // Neither task releases the lock before both have it.
        let both_have_it = Arc::new(tokio::sync::Barrier::new(2));
        let entering = |is_multi| {
            let (multi, alices) = (multi.clone(), alices.clone());
            let both_have_it = both_have_it.clone();
            tokio::spawn(async move {
                let (all, alice);
                let token = if is_multi {
                    all = soon(multi.acquire().owner(owner)).await.expect("granted");
                    all.fence("accounts", "alice").expect("held")
                } else {
                    alice = soon(alices.acquire(owner)).await.expect("granted");
                    alice.fence().expect("held")
                };
                soon(both_have_it.wait()).await;
                token
            })
        };
        let first = entering(multi_first);
        until(waits(1)).await;
        let second = entering(!multi_first);
        until(waits(2)).await;
        held.release().await.expect("it was held");
        assert_eq!(first.await.expect("no panic"), second.await.expect("no panic"));
    }

    // The owner cannot enter a lost hold while guards of it exist.
    let short = soon(alices.acquire(owner).lease(5 * MS)).await.expect("it is free");
    soon(short.lost()).await;
    let error = soon(multi.acquire().owner(owner)).await.expect_err("the owner has lost it");
    assert!(matches!(error, MultiLockError::Lost { .. }), "{error}");
    drop(short);
    soon(multi.acquire().owner(owner))
        .await
        .expect("it is free")
        .release()
        .await
        .expect("it was held");
}

/// Two members. The first one grants the locks of both services. Returns its handles, and a multi
/// lock of the other one.
async fn far_from_the_grantor() -> (Local, [LockService; 2], MultiLock) {
    let local = Local::start(2).await;
    let (accounts, orders) = two_services(&local.members[0]).await;
    soon(accounts.lock("x")).await.expect("granted").release().await.expect("held");
    soon(orders.lock("x")).await.expect("granted").release().await.expect("held");
    let (of_other, orders_of_other) = two_services(&local.members[1]).await;
    let multi = MultiLock::new().with(&of_other, ["alice", "bob"]).with(&orders_of_other, ["17"]);
    (local, [accounts, orders], multi)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_multi_lock_dropped_at_any_poll_leaves_nothing() {
    let (local, [accounts, orders], multi) = far_from_the_grantor().await;
    let nothing = || local.members.iter().all(|member| left_over(member) == (0, 0));
    let mut tries = 0..100;
    while poll_k_then_drop(
        async || {
            // The second service grants later, so that some polls fall between the two grants.
            let held = soon(orders.lock("17").lease(10 * MS)).await.expect("granted");
            let waiting = multi.acquire().into_future();
            async move {
                let all = waiting.await;
                drop(held);
                all
            }
        },
        async |_| {
            until(nothing).await;
            soon(accounts.lock_all(["alice", "bob"]))
                .await
                .expect("free")
                .release()
                .await
                .expect("held");
            until(nothing).await;
        },
    )
    .await
        <= 2
    {
        // On a busy machine the second lock may be free by then.
        tries.next().expect("it has to wait");
    }
}

/// Curator issue CURATOR-527: a lost wake-up. A request is dropped at every poll, with waiters
/// behind it in both services.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn those_behind_a_multi_lock_dropped_at_any_poll_are_served() {
    let (local, [_, orders], multi) = far_from_the_grantor().await;
    let (of_other, orders_of_other) = two_services(&local.members[1]).await;
    let behind = std::sync::Mutex::new(Vec::new());
    poll_a_wait_then_drop(
        async || {
            let held = soon(orders.lock("17")).await.expect("granted");
            let mut waiting = multi.acquire().into_future();
            // Wait until the request has its locks of the first service and waits in the second.
            soon(async {
                while !matches!(left_over(&local.members[1]), (1.., 1)) {
                    assert!(local::poll_once(std::pin::Pin::new(&mut waiting)).is_pending());
                    tokio::time::sleep(MS).await;
                }
            })
            .await;
            let next = [of_other.lock("bob").start(), orders_of_other.lock("17").start()];
            behind.lock().expect("whole").extend(next.map(tokio::spawn));
            tokio::spawn(async move {
                tokio::time::sleep(3 * MS).await;
                drop(held);
            });
            waiting
        },
        async |_| {
            let next = std::mem::take(&mut *behind.lock().expect("whole"));
            for next in next {
                soon(next)
                    .await
                    .expect("no panic")
                    .expect("its turn comes")
                    .release()
                    .await
                    .expect("held");
            }
            until(|| local.members.iter().all(|member| left_over(member) == (0, 0))).await;
        },
    )
    .await;
}

#[tokio::test]
async fn a_multi_lock_is_watched_protected_and_released_at_any_poll() {
    let member = Member::local().await.expect("a local member");
    let (accounts, orders) = two_services(&member).await;
    let multi = MultiLock::new().with(&accounts, ["alice"]).with(&orders, ["17"]);
    let nothing = async |_| until(|| left_over(&member) == (0, 0)).await;
    poll_a_wait_then_drop(
        async || {
            // The lease may end before this thread learns of the second grant.
            let all = loop {
                match multi.acquire().lease(10 * MS).await {
                    Ok(all) => break all,
                    Err(MultiLockError::Lost { .. }) => {}
                    Err(error) => panic!("{error:?}"),
                }
            };
            async move { assert_eq!(all.lost().await, LostReason::LeaseEnded) }
        },
        nothing,
    )
    .await;
    poll_a_wait_then_drop(
        async || {
            let all = multi.acquire().await.expect("granted");
            async move { all.protect(tokio::time::sleep(5 * MS)).await.expect("held") }
        },
        nothing,
    )
    .await;
    poll_k_then_drop(async || multi.acquire().await.expect("granted").release(), nothing).await;

    // The locks stay held when the futures that watch them are dropped.
    let all = multi.acquire().await.expect("granted");
    for k in 0..3 {
        let mut watching =
            (Box::pin(all.lost()), Box::pin(all.protect(std::future::pending::<()>())));
        for _ in 0..k {
            assert!(local::poll_once(watching.0.as_mut()).is_pending());
            assert!(local::poll_once(watching.1.as_mut()).is_pending());
        }
    }
    all.fence("orders", "17").expect("held");
    all.release().await.expect("held");
}
