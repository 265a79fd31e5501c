//! The connection status of members: every state, and its effect on guards and recipes. The members
//! are real, each in a runtime of its own, with sockets on the loopback interface. The tests of
//! members that are cut off and healed are in `src/service/tests/connection_status.rs`.

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{
    AwaitLeadershipError, Barrier, BarrierError, BecomeError, CloseError, Connection,
    ConnectionEvent, ConnectionStatus, CountDownLatch, CountError, DoubleBarrier, EnterError,
    InspectError, LeaderLatch, LeaderSelector, LockError, LostReason, Member, MultiLock,
    MultiLockError, Mutex, Owner, ReadWriteLock, ReentrantMutex, ReleaseError, RevokeError,
    SelectorError, Semaphore, TryLockError, Unavailable, UpgradeError,
};
use local::{HANG, Local, left_over, soon, until};
use std::future::IntoFuture;

async fn next(connection: &mut Connection) -> ConnectionEvent {
    soon(connection.next()).await.expect("the member lives")
}

/// Curator `ConnectionStateListener`: CONNECTED, SUSPENDED, LOST, RECONNECTED. Here each guard is
/// lost with SUSPENDED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_quorum_is_suspended_and_a_forced_one_is_lost_and_reconnected() {
    let mut local = Local::start_mortal(3).await;
    let member = local.members[2].clone();
    let stock = member.lock_service("inventory").await.expect("a good name");
    let mut connection = member.connection();
    assert_eq!(next(&mut connection).await, ConnectionEvent::Connected);
    assert_eq!(member.connection_status(), ConnectionStatus::Connected);

    let owner = Owner::new();
    let (mutex, plain) = (ReentrantMutex::new(&stock, "a"), Mutex::new(&stock, "b"));
    let multi = MultiLock::new().with(&stock, ["c", "d"]);
    let guards = (
        soon(mutex.acquire(owner)).await.expect("granted"),
        soon(plain.acquire()).await.expect("granted"),
    );
    let all = soon(multi.acquire()).await.expect("granted");
    let watch = guards.0.watch();

    local.kill(0);
    local.kill(1);
    assert_eq!(next(&mut connection).await, ConnectionEvent::Suspended);
    assert_eq!(member.connection_status(), ConnectionStatus::Suspended);
    // Suspended: each guard is lost before its watcher is told.
    let suspended = LostReason::Suspended;
    assert_eq!(guards.0.fence().unwrap_err().reason, suspended);
    assert_eq!(guards.1.fence().unwrap_err().reason, suspended);
    assert_eq!((soon(all.lost()).await, watch.reason()), (suspended, Some(suspended)));
    assert!(all.fence("inventory", "c").unwrap_err().is_lost());
    assert!(!mutex.is_held() && !plain.is_acquired() && mutex.depth(owner) == 0);
    let entered = soon(mutex.acquire(owner)).await;
    assert!(matches!(entered, Err(EnterError::Lost(lost)) if lost.reason == suspended));
    // A try gets an answer, and waiters keep waiting.
    assert_eq!(soon(stock.try_lock("z")).await.unwrap_err(), TryLockError::Undecided);
    let waiting = tokio::spawn(plain.acquire().into_future());
    until(|| left_over(&member).1 == 1).await;

    member.force().expect("it has no quorum");
    assert_eq!(next(&mut connection).await, ConnectionEvent::Lost);
    // Lost: the waiters are told.
    assert_eq!(
        soon(waiting).await.expect("no panic").unwrap_err(),
        LockError::Unavailable(Unavailable::Expelled)
    );
    assert_eq!(next(&mut connection).await, ConnectionEvent::Reconnected);
    assert_eq!(member.connection_status(), ConnectionStatus::Connected);
    // Reconnected: the old guards stay lost, and new guards are valid.
    let before = guards.0.token();
    assert_eq!(watch.reason(), Some(suspended), "the first reason stays");
    assert!(soon(mutex.acquire(owner)).await.unwrap_err().is_lost(), "an old guard is around");
    drop((guards, all));
    let again = soon(mutex.acquire(owner)).await.expect("granted");
    assert!(again.fence().expect("held") > before);
    soon(multi.acquire()).await.expect("granted").release().await.expect("held");

    drop(again);
    soon(member.leave()).await.expect("heard");
    assert_eq!(next(&mut connection).await, ConnectionEvent::Lost);
    assert_eq!(soon(connection.next()).await, None);
    assert_eq!(member.connection_status(), ConnectionStatus::Lost);
    assert_eq!(soon(plain.acquire()).await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    let mut late = member.connection();
    assert_eq!((next(&mut late).await, soon(late.next()).await), (ConnectionEvent::Lost, None));
}

/// Curator `ConnectionStateListener`: each listener is told of each change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reader_hears_every_state_and_unaffected_members_hear_none() {
    let mut local = Local::start_mortal(3).await;
    let (dies, lives) = (local.members[2].clone(), local.members[0].clone());
    let mut readers = [dies.connection(), dies.connection()];
    let mut of_living = lives.connection();
    for reader in readers.iter_mut().chain([&mut of_living]) {
        assert_eq!(next(reader).await, ConnectionEvent::Connected);
    }
    let guard = soon(dies.lock_service("inventory").await.expect("a good name").lock("a"))
        .await
        .expect("granted");
    // The runtime under a member ends, so its leases are not renewed any more.
    local.kill(2);
    for reader in &mut readers {
        assert_eq!(next(reader).await, ConnectionEvent::Lost);
        assert_eq!(soon(reader.next()).await, None);
    }
    assert_eq!(
        (dies.connection_status(), guard.fence().unwrap_err().reason),
        (ConnectionStatus::Lost, LostReason::Left)
    );
    local.agree(2).await;
    soon(lives.leave()).await.expect("heard");
    assert_eq!(next(&mut of_living).await, ConnectionEvent::Lost);
}

/// Curator `ConnectionState` for semaphores, read/write locks, barriers and counts, where the
/// makers "should set their own connection state listener". Permits, shares and double barrier
/// guards are lost with SUSPENDED. An open object is not, and goes with LOST.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_end_when_their_member_is_suspended_and_open_objects_when_it_is_lost() {
    let mut local = Local::start_mortal(3).await;
    let member = local.members[2].clone();
    let stock = member.lock_service("inventory").await.expect("a good name");
    let mut connection = member.connection();
    assert_eq!(next(&mut connection).await, ConnectionEvent::Connected);
    let semaphore = soon(Semaphore::open(&stock, "pool", 3)).await.expect("it opens");
    let mut changes = semaphore.limit().changes().expect("it is open");
    let permits = soon(semaphore.acquire(2)).await.expect("three are free");
    let leases = soon(semaphore.acquire(1)).await.expect("one is free").into_permits();
    let prices = ReadWriteLock::new(&stock, "prices");
    let (reader, writer) =
        (soon(prices.read()).await.expect("free"), ReadWriteLock::new(&stock, "x"));
    let writer = soon(writer.write()).await.expect("free");
    let latch = soon(CountDownLatch::open(&stock, "latch", 2)).await.expect("it opens");
    let double = soon(DoubleBarrier::open(&stock, "round", 1)).await.expect("it opens");
    let inside = soon(double.enter()).await.expect("one is enough");
    let barrier = soon(Barrier::open(&stock, "barrier")).await.expect("it opens");
    soon(barrier.set()).await.expect("it is open");
    let waits = tokio::spawn({
        let barrier = barrier.clone();
        async move { barrier.wait().await }
    });

    local.kill(0);
    local.kill(1);
    assert_eq!(next(&mut connection).await, ConnectionEvent::Suspended);
    let suspended = LostReason::Suspended;
    let reasons =
        [permits.fence(), leases[0].fence(), reader.fence(), writer.fence(), inside.fence()];
    assert!(
        reasons.iter().all(|fence| fence.as_ref().is_err_and(|lost| lost.reason == suspended)),
        "{reasons:?}"
    );
    assert_eq!((soon(permits.lost()).await, soon(inside.lost()).await), (suspended, suspended));
    assert!(reader.extend(HANG).is_err() && writer.extend(HANG).is_err());
    let (error, reader) = soon(reader.upgrade()).await.expect_err("it is lost");
    assert!(
        reader.is_none() && matches!(error, UpgradeError::Lost(lost) if lost.reason == suspended)
    );
    // Open objects keep their last content, and waiters keep waiting.
    assert_eq!(semaphore.limit().get().expect("it is open").count, 3);
    assert_eq!(latch.count(), Ok(2));
    assert!(local::poll_once(std::pin::pin!(changes.next())).is_pending());
    assert!(local::poll_once(std::pin::pin!(barrier.wait())).is_pending());
    assert!(!waits.is_finished());
    assert_eq!(soon(semaphore.try_acquire(1)).await.unwrap_err(), TryLockError::Undecided);
    let waiting = tokio::spawn(semaphore.acquire(1).into_future());
    until(|| left_over(&member).1 > 0).await;

    member.force().expect("it has no quorum");
    assert_eq!(next(&mut connection).await, ConnectionEvent::Lost);
    let refused = soon(waiting).await.expect("no panic").unwrap_err();
    assert!(
        matches!(refused, LockError::Unavailable(Unavailable::Expelled) | LockError::NotOpen),
        "{refused}"
    );
    assert!(soon(waits).await.expect("no panic").expect_err("it is open no more").is_lost());
    assert_eq!(soon(semaphore.limit().lost()).await, LostReason::Expelled);
    assert!(soon(changes.next()).await.is_err_and(|error| error.is_lost()));
    assert!(semaphore.limit().get().is_err() && latch.count().is_err());

    assert_eq!(next(&mut connection).await, ConnectionEvent::Reconnected);
    // The old handles stay lost and report it. Objects that are opened again work.
    assert_eq!(soon(semaphore.acquire(1)).await.unwrap_err(), LockError::NotOpen);
    assert!(soon(latch.wait()).await.expect_err("it is open no more").is_lost());
    assert!(soon(double.enter()).await.expect_err("it is open no more").is_lost());
    assert!(soon(inside.leave()).await.expect_err("it was lost").is_lost());
    assert_eq!(soon(permits.release()).await, Err(ReleaseError::Lost(suspended)));
    assert_eq!(soon(writer.release()).await, Err(ReleaseError::Lost(suspended)));
    let again = soon(Semaphore::open(&stock, "pool", 5)).await.expect("it opens");
    assert_eq!(again.limit().get().expect("it is open").count, 5, "no member had it open any more");
    soon(again.acquire(5)).await.expect("all are free").release().await.expect("held");
    soon(prices.write()).await.expect("no share is held").release().await.expect("held");
    let latch = soon(CountDownLatch::open(&stock, "latch", 1)).await.expect("it opens");
    assert_eq!(soon(latch.count_down()).await, Ok(0));
    drop((leases, barrier));
    until(|| left_over(&member) == (0, 0)).await;
}

/// Curator `CuratorFrameworkState`: a recipe of a client that is not STARTED returns null, throws,
/// or hangs. Here each recipe reports at once that the member has left.
#[tokio::test]
async fn every_recipe_of_a_member_that_has_left_says_so() {
    let member = Member::local().await.expect("a local member");
    let stock = member.lock_service("inventory").await.expect("a good name");
    let (mutex, plain) = (ReentrantMutex::new(&stock, "a"), Mutex::new(&stock, "b"));
    let (multi, prices) = (MultiLock::new().with(&stock, ["c"]), ReadWriteLock::new(&stock, "d"));
    let semaphore = Semaphore::open(&stock, "e", 1).await.expect("it opens");
    let barrier = Barrier::open(&stock, "f").await.expect("it opens");
    let latch = CountDownLatch::open(&stock, "g", 1).await.expect("it opens");
    let double = DoubleBarrier::open(&stock, "h", 1).await.expect("it opens");
    let leads = LeaderLatch::new(&stock, "i", "one").expect("good names");
    let selector = LeaderSelector::new(&stock, "j", "one").expect("good names");
    soon(member.leave()).await.expect("it leaves");

    assert_eq!(
        soon(mutex.acquire(Owner::new())).await.unwrap_err(),
        EnterError::Lock(LockError::Unavailable(Unavailable::Left))
    );
    assert_eq!(soon(plain.acquire()).await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    let refused = soon(multi.acquire()).await.unwrap_err();
    assert_eq!(
        refused,
        MultiLockError::Lock {
            service: "inventory".into(),
            error: LockError::Unavailable(Unavailable::Left)
        }
    );
    assert_eq!(soon(prices.read()).await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    assert_eq!(soon(prices.write()).await.unwrap_err(), LockError::Unavailable(Unavailable::Left));
    assert_eq!(
        soon(prices.try_read()).await.unwrap_err(),
        TryLockError::Unavailable(Unavailable::Left)
    );
    assert_eq!(
        soon(semaphore.acquire(1)).await.unwrap_err(),
        LockError::Unavailable(Unavailable::Left)
    );
    assert_eq!(
        soon(semaphore.try_acquire(1)).await.unwrap_err(),
        TryLockError::Unavailable(Unavailable::Left)
    );
    assert_eq!(soon(semaphore.usage()).await, Err(InspectError::Unavailable(Unavailable::Left)));
    let is_left = |error: &CountError| match error {
        CountError::Lost(lost) => lost.reason == LostReason::Left,
        _ => false,
    };
    assert!(soon(semaphore.limit().set(2)).await.is_err_and(|error| is_left(&error)));
    assert!(soon(semaphore.limit().read()).await.is_err_and(|error| is_left(&error)));
    assert_eq!(
        soon(Semaphore::open(&stock, "e", 1)).await.unwrap_err(),
        LockError::Unavailable(Unavailable::Left)
    );
    let of_count =
        |error: &BarrierError| matches!(error, BarrierError::Count(error) if is_left(error));
    assert!(soon(barrier.wait()).await.is_err_and(|error| of_count(&error)));
    assert!(soon(barrier.set()).await.is_err_and(|error| is_left(&error)));
    assert!(soon(latch.wait()).await.is_err_and(|error| of_count(&error)));
    assert!(soon(latch.count_down()).await.is_err_and(|error| is_left(&error)));
    assert!(matches!(
        soon(double.enter()).await,
        Err(BarrierError::Lock(LockError::Unavailable(Unavailable::Left)))
    ));
    leads.start().expect("it is new");
    assert_eq!(soon(leads.await_leadership()).await, Err(AwaitLeadershipError::Left));
    assert_eq!(soon(leads.close()).await, Err(CloseError::AlreadyClosed));
    assert_eq!(soon(leads.participants()).await, Err(InspectError::Unavailable(Unavailable::Left)));
    assert_eq!(soon(selector.run_once(async |_| ())).await, Err(SelectorError::Left));
    assert_eq!(soon(selector.run(async |_| ())).await, SelectorError::Left);
    assert_eq!(
        soon(stock.revoke("a")).await.unwrap_err(),
        RevokeError::Unavailable(Unavailable::Left)
    );
    assert_eq!(
        soon(stock.become_grantor()).await,
        Err(BecomeError::Unavailable(Unavailable::Left))
    );
}
