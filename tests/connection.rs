//! How members stand with their cluster, over real members, each in a runtime of its own, with sockets on the loopback
//! interface: every state, and what guards and recipes do in it. More of it, with members that are cut off and healed,
//! is in `src/service/tests/standing.rs`.

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{
    Connection, ConnectionState, EnterError, LockError, LostReason, MultiLock, Mutex, Owner, ReentrantMutex, Standing,
    TryLockError,
};
use local::{Local, left_over, soon, until};
use std::future::IntoFuture;

async fn next(connection: &mut Connection) -> ConnectionState {
    soon(connection.next()).await.expect("the member lives")
}

/// Curator `ConnectionStateListener`: CONNECTED, SUSPENDED, LOST, RECONNECTED. Here each guard is lost with SUSPENDED.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_without_a_quorum_is_suspended_and_one_that_goes_on_by_force_is_lost_and_reconnected() {
    let mut local = Local::start(3).await;
    let member = local.members[2].clone();
    let stock = member.lock_service("inventory").await.expect("a good name");
    let mut connection = member.connection();
    assert_eq!(next(&mut connection).await, ConnectionState::Connected);
    assert_eq!(member.standing(), Standing::Connected);

    let owner = Owner::new();
    let (mutex, plain) = (ReentrantMutex::new(&stock, "a"), Mutex::new(&stock, "b"));
    let multi = MultiLock::new().with(&stock, ["c", "d"]);
    let guards = (soon(mutex.acquire(owner)).await.expect("granted"), soon(plain.acquire()).await.expect("granted"));
    let all = soon(multi.acquire()).await.expect("granted");
    let watch = guards.0.watch();

    local.kill(0);
    local.kill(1);
    assert_eq!(next(&mut connection).await, ConnectionState::Suspended);
    assert_eq!(member.standing(), Standing::Suspended);
    // Suspended: each guard is lost, before it is told.
    let suspended = LostReason::Suspended;
    assert_eq!(guards.0.fence().unwrap_err().reason, suspended);
    assert_eq!(guards.1.fence().unwrap_err().reason, suspended);
    assert_eq!((soon(all.lost()).await, watch.reason()), (suspended, Some(suspended)));
    assert!(all.fence("inventory", "c").unwrap_err().is_lost());
    assert!(!mutex.is_held() && !plain.is_acquired() && mutex.depth(owner) == 0);
    assert!(matches!(soon(mutex.acquire(owner)).await, Err(EnterError::Lost(lost)) if lost.reason == suspended));
    // A try is answered, and whoever waits waits.
    assert_eq!(soon(stock.try_lock("z")).await.unwrap_err(), TryLockError::Undecided);
    let waiting = tokio::spawn(plain.acquire().into_future());
    until(|| left_over(&member).1 == 1).await;

    member.force().expect("it has no quorum");
    assert_eq!(next(&mut connection).await, ConnectionState::Lost);
    // Lost: whoever waited is told.
    assert_eq!(soon(waiting).await.expect("no panic").unwrap_err(), LockError::Expelled);
    assert_eq!(next(&mut connection).await, ConnectionState::Reconnected);
    assert_eq!(member.standing(), Standing::Connected);
    // Reconnected: the old guards stay lost, and new ones are good.
    let before = guards.0.token();
    assert_eq!(watch.reason(), Some(suspended), "the first reason stays");
    assert!(soon(mutex.acquire(owner)).await.unwrap_err().is_lost(), "an old guard is around");
    drop((guards, all));
    let again = soon(mutex.acquire(owner)).await.expect("granted");
    assert!(again.fence().expect("held") > before);
    soon(multi.acquire()).await.expect("granted").release().await.expect("held");

    drop(again);
    soon(member.leave()).await.expect("heard");
    assert_eq!(next(&mut connection).await, ConnectionState::Lost);
    assert_eq!(soon(connection.next()).await, None);
    assert_eq!(member.standing(), Standing::Lost);
    assert_eq!(soon(plain.acquire()).await.unwrap_err(), LockError::Left);
    let mut late = member.connection();
    assert_eq!((next(&mut late).await, soon(late.next()).await), (ConnectionState::Lost, None));
}

/// Curator `ConnectionStateListener`: each listener hears of each change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_reader_hears_every_state_and_those_who_live_on_hear_none() {
    let mut local = Local::start(3).await;
    let (dies, lives) = (local.members[2].clone(), local.members[0].clone());
    let mut readers = [dies.connection(), dies.connection()];
    let mut of_living = lives.connection();
    for reader in readers.iter_mut().chain([&mut of_living]) {
        assert_eq!(next(reader).await, ConnectionState::Connected);
    }
    let guard = soon(dies.lock_service("inventory").await.expect("a good name").lock("a")).await.expect("granted");
    // The runtime under a member ends: nobody would renew anything any more.
    local.kill(2);
    for reader in &mut readers {
        assert_eq!(next(reader).await, ConnectionState::Lost);
        assert_eq!(soon(reader.next()).await, None);
    }
    assert_eq!((dies.standing(), guard.fence().unwrap_err().reason), (Standing::Lost, LostReason::Left));
    local.agree(2).await;
    soon(lives.leave()).await.expect("heard");
    assert_eq!(next(&mut of_living).await, ConnectionState::Lost);
}
