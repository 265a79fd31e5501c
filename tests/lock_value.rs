//! `LockValue` over real members, in one process with sockets on the loopback interface. OpenVMS
//! and the Linux DLM have it as the lock value block. The tests show the harm that stale holders
//! can do to it. Tests beside the code show that tokens alone, without any clock, keep stale
//! holders out.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{
    Guard, LockError, LockService, LockValue, LockValueError, LostReason, Owner, ReadWriteLock,
    ReentrantMutex, SharedCount,
};
use support::local::{
    Local, MS, left_open, nothing_is_left, poll_a_wait_then_drop, poll_k_then_drop, soon, until,
};

/// The value of lock "x" at each of the members.
async fn values(services: &[LockService], initial: &str) -> Vec<LockValue> {
    let mut values = Vec::new();
    for service in services {
        values.push(soon(LockValue::open(service, "x", initial)).await.expect("it opens"));
    }
    values
}

fn get(value: &LockValue) -> Vec<u8> {
    value.get().expect("it is open").value.to_vec()
}

async fn lock(service: &LockService) -> Guard {
    soon(service.lock("x")).await.expect("it is granted")
}

/// `LCK$M_VALBLK`: a new holder reads the value that the holder before left, even if its member had
/// not received that value.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_holder_reads_the_value_of_the_one_before() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let values = values(&services, "0").await;
    for round in 0..30 {
        let (service, value) = (&services[round % 3], &values[round % 3]);
        let guard = lock(service).await;
        let seen = soon(value.read(&guard)).await.expect("it is held");
        assert_eq!(seen.value[..], *round.to_string().as_bytes());
        assert!(!seen.maybe_stale);
        let written = soon(value.write(&guard, (round + 1).to_string())).await.expect("it is held");
        assert!(written > seen.version && seen.version > guard.token());
        guard.release().await.expect("it was held");
    }
    until(|| values.iter().all(|value| get(value) == b"30")).await;
}

/// Readers need no lock, and are told of each change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_member_with_the_value_open_sees_it_without_the_lock() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let values = values(&services, "first").await;
    let seen = values[1].get().expect("it is open");
    assert_eq!((&*seen.value, values[1].name()), (&b"first"[..], &b"x"[..]));
    let guard = lock(&services[0]).await;
    soon(values[0].write(&guard, "second")).await.expect("it is held");
    let changed = soon(values[1].changed(seen.version)).await.expect("it is open");
    assert_eq!(*changed.value, b"second"[..]);
}

/// A holder whose lock was lost writes no value block: the next holder's value stays.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_lost_the_lock_writes_nothing() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let values = values(&services, "first").await;
    let stale = soon(services[1].lock("x").lease(30 * MS)).await.expect("it is free");
    let next = lock(&services[0]).await;
    for _ in 0..2 {
        let error = soon(values[1].write(&stale, "stale")).await.expect_err("its lease is over");
        assert!(
            matches!(error, LockValueError::LockLost(lost) if lost.reason == LostReason::LeaseEnded)
        );
        assert!(error.is_lock_lost());
        assert!(soon(values[1].read(&stale)).await.expect_err("its lease is over").is_lock_lost());
        assert_eq!(*soon(values[0].read(&next)).await.expect("it is held").value, b"first"[..]);
    }
    soon(values[0].write(&next, "next")).await.expect("it is held");
    until(|| values.iter().all(|value| get(value) == b"next")).await;
}

/// Only an exclusive holder of the lock of the same name may write: `PW` and `EX` modes in the
/// Linux DLM.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn guards_of_other_locks_and_shares_write_nothing() {
    let local = Local::start(1).await;
    let services = local.services("s").await;
    let value = values(&services, "first").await.remove(0);
    let elsewhere = local.members[0].lock_service("elsewhere").await.expect("a good name");
    for other in [soon(services[0].lock("y")).await, soon(elsewhere.lock("x")).await] {
        let other = other.expect("it is free");
        assert_eq!(soon(value.write(&other, "other")).await, Err(LockValueError::OtherLock));
        assert_eq!(soon(value.read(&other)).await, Err(LockValueError::OtherLock));
    }
    // Tokens of another cluster may be far above those of this cluster. A write with one would keep
    // the rightful holders out.
    let stranger = elderlock::Member::local().await.expect("it founds a cluster of its own");
    let other = stranger
        .lock_service("s")
        .await
        .expect("a good name")
        .lock("x")
        .await
        .expect("it is free there");
    assert_eq!(soon(value.write(&other, "stranger")).await, Err(LockValueError::OtherLock));
    assert_eq!(soon(value.read(&other)).await, Err(LockValueError::OtherLock));
    let writer = lock(&services[0]).await;
    let long = soon(value.write(&writer, [7; 1016])).await;
    assert!(matches!(long, Err(LockValueError::InvalidValue(_))));
    soon(value.write(&writer, [7; 1007])).await.expect("so long it may be");
    let share = writer.downgrade().expect("it is held");
    assert_eq!(soon(value.write(&share, "share")).await, Err(LockValueError::Shared));
    let writer = soon(share.upgrade()).await.expect("it is the only share");
    soon(value.write(&writer, "writer")).await.expect("it has the lock again");
    assert_eq!(get(&value), b"writer");
}

/// The recipes whose guard is an exclusive hold of the lock of their name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guards_of_recipes_write() {
    let local = Local::start(1).await;
    let services = local.services("s").await;
    let value = values(&services, "first").await.remove(0);
    let mutex = ReentrantMutex::new(&services[0], "x");
    let owner = Owner::new();
    let outer = soon(mutex.acquire(owner)).await.expect("it is free");
    let inner = soon(mutex.acquire(owner)).await.expect("it has it");
    soon(value.write(&outer, "outer")).await.expect("it is held");
    assert_eq!(*soon(value.read(&inner)).await.expect("it is held").value, b"outer"[..]);
    drop((outer, inner));
    let writer = soon(ReadWriteLock::new(&services[0], "x").write()).await.expect("it is free");
    soon(value.write(&writer, "writer")).await.expect("it is held");
    assert_eq!(get(&value), b"writer");
}

/// A name has one object, of one recipe. The other recipes refuse it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_count_is_no_value_of_a_lock_and_the_other_way_round() {
    let local = Local::start(1).await;
    let services = local.services("s").await;
    let count = soon(SharedCount::open(&services[0], "x", 1)).await.expect("it opens");
    assert_eq!(
        soon(LockValue::open(&services[0], "x", "")).await.expect_err("a count is open"),
        LockError::OtherRecipe
    );
    drop(count);
    nothing_is_left(&local).await;
    let value = values(&services, "").await.remove(0);
    assert_eq!(
        soon(SharedCount::open(&services[0], "x", 1)).await.expect_err("a value is open"),
        LockError::OtherRecipe
    );
    assert!(get(&value).is_empty());
    let raw = soon(services[0].open("x", "")).await.expect("it opens");
    soon(raw.set("something else")).await.expect("no holder is in the way");
    assert_eq!(value.get(), Err(LockValueError::NotALockValue));
    let guard = lock(&services[0]).await;
    assert_eq!(soon(value.write(&guard, "")).await, Err(LockValueError::NotALockValue));
    assert_eq!(
        soon(LockValue::open(&services[0], "", "")).await.err().map(|error| error.is_timeout()),
        Some(false)
    );
}

/// `SS$_VALNOTVALID`: when the grantor dies, the value written last may be lost. The next holder is
/// told that the value may be stale.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_that_the_value_may_be_stale() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let values = values(&services, "first").await;
    until(|| services[0].is_grantor()).await;
    let guard = lock(&services[1]).await;
    soon(values[1].write(&guard, "second")).await.expect("it is held");
    guard.release().await.expect("it was held");
    let dies = lock(&services[0]).await;
    local.kill(0);
    let guard = lock(&services[2]).await;
    assert!(dies.fence().is_err(), "told before it is given on");
    let seen = soon(values[2].read(&guard)).await.expect("it is held");
    assert_eq!((&*seen.value, seen.maybe_stale), (&b"second"[..], true));
    let seen = soon(values[2].read(&guard)).await.expect("it is held");
    assert!(!seen.maybe_stale, "this holder has been told");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_value_whose_member_has_left_says_so() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let values = values(&services, "first").await;
    let guard = lock(&services[1]).await;
    soon(local.members[1].leave()).await.expect("it leaves");
    assert_eq!(soon(values[1].lost()).await, LostReason::Left);
    let got = values[1].get();
    assert!(matches!(got, Err(LockValueError::Lost(lost)) if lost.reason == LostReason::Left));
    assert!(soon(values[1].read(&guard)).await.is_err());
    assert!(soon(values[1].write(&guard, "late")).await.is_err());
    assert_eq!(get(&values[0]), b"first");
}

/// A call that is dropped at any poll leaves nothing open or under way, and the next call reads and
/// writes.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reading_and_writing_dropped_at_any_poll_leave_nothing() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let values = values(&services, "first").await;
    let guard = lock(&services[1]).await;
    let opened: Vec<_> = local.members.iter().map(left_open).collect();
    let nothing =
        async |_| until(|| local.members.iter().map(left_open).collect::<Vec<_>>() == opened).await;
    poll_k_then_drop(async || values[1].read(&guard), nothing).await;
    poll_k_then_drop(async || values[1].write(&guard, "second"), nothing).await;
    poll_k_then_drop(async || LockValue::open(&services[1], "y", ""), nothing).await;
    poll_a_wait_then_drop(
        async || {
            let since = values[0].get().expect("it is open").version;
            let (values, guard) = (&values, &guard);
            async move {
                let writing = async {
                    tokio::time::sleep(3 * MS).await;
                    values[1].write(guard, "third").await
                };
                tokio::join!(values[0].changed(since), writing)
            }
        },
        nothing,
    )
    .await;
    soon(values[1].write(&guard, "last")).await.expect("it is held");
    assert_eq!(*soon(values[1].read(&guard)).await.expect("it is held").value, b"last"[..]);
    until(|| get(&values[0]) == b"last").await;
    drop(values);
    guard.release().await.expect("it was held");
    nothing_is_left(&local).await;
}
