//! Every await of the public API on a thread without a tokio runtime. The members have a runtime;
//! their callers need none.
#![cfg(all(unix, feature = "tokio"))]

mod support;

use elderlock::{
    AwaitLeadershipError, Barrier, BarrierError, CloseMode, ConnectionEvent, CountDownLatch,
    DoubleBarrier, JoinError, LatchEvent, LeaderLatch, LeaderSelector, LockService, LockValue,
    LostReason, Member, MultiLock, Mutex, Owner, QueryError, ReadWriteLock, ReentrantMutex,
    SelectorError, Semaphore, SharedCount, query_status,
};
use std::future::IntoFuture;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Instant;
use support::local::{HANG, Local, MS};
use tokio::runtime::Handle;

/// Wakes the waiting thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// An executor without any part of tokio.
fn run<F: IntoFuture>(future: F) -> F::Output {
    assert!(Handle::try_current().is_err(), "this thread is in a runtime");
    let began = Instant::now();
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future.into_future());
    loop {
        if let Poll::Ready(output) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return output;
        }
        assert!(began.elapsed() < HANG, "it never came");
        thread::park_timeout(HANG);
    }
}

/// Two members, and their handles of one service: first the grantor's handle, then the other
/// member's.
fn pair(name: &str) -> (Local, LockService, LockService) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .expect("a runtime can be built");
    let local = runtime.block_on(Local::start(2));
    let (here, there) =
        (run(local.members[0].lock_service(name)), run(local.members[1].lock_service(name)));
    let (here, there) = (here.expect("a good name"), there.expect("a good name"));
    run(here.become_grantor()).expect("it grants");
    (local, here, there)
}

#[test]
fn a_barrier_is_waited_for_with_a_limit() {
    let (_local, here, there) = pair("barriers");
    let barrier = run(Barrier::open(&here, "gate")).expect("it opens");
    let elsewhere = run(Barrier::open(&there, "gate")).expect("it opens");
    run(barrier.set()).expect("it is set");
    for waiting in [&barrier, &elsewhere] {
        assert_eq!(run(waiting.wait().wait(5 * MS)), Err(BarrierError::TimedOut));
        // Of two limits the shorter one counts.
        let limited = waiting.wait().wait(5 * MS).wait(HANG);
        assert_eq!(run(limited), Err(BarrierError::TimedOut));
    }
    run(async {
        let (waited, removed) = tokio::join!(elsewhere.wait().wait(HANG), barrier.remove());
        waited.expect("it is removed");
        removed.expect("it is removed");
    });
}

#[test]
fn a_double_barrier_is_entered_and_left_with_a_limit() {
    let (_local, here, there) = pair("double barriers");
    let barrier = run(DoubleBarrier::open(&here, "gate", 2)).expect("it opens");
    let elsewhere = run(DoubleBarrier::open(&there, "gate", 2)).expect("it opens");
    assert_eq!(run(barrier.enter().wait(5 * MS)).map(drop), Err(BarrierError::TimedOut));
    let (one, other) =
        run(async { tokio::join!(barrier.enter().wait(HANG), elsewhere.enter().wait(HANG)) });
    let (one, other) = (one.expect("both entered"), other.expect("both entered"));
    assert_eq!(run(one.leave().wait(5 * MS)), Err(BarrierError::TimedOut));
    run(other.leave().wait(HANG)).expect("all have left");
}

#[test]
fn a_latch_is_waited_for_with_a_limit() {
    let (_local, here, there) = pair("latches");
    let latch = run(CountDownLatch::open(&here, "tasks", 2)).expect("it opens");
    let elsewhere = run(CountDownLatch::open(&there, "tasks", 2)).expect("it opens");
    assert_eq!(run(latch.wait().wait(5 * MS)), Err(BarrierError::TimedOut));
    run(latch.count_down()).expect("it is counted");
    run(elsewhere.count_down()).expect("it is counted");
    run(latch.wait().wait(HANG)).expect("it is zero");
    run(elsewhere.wait().wait(HANG)).expect("it is zero");
}

#[test]
fn leadership_is_awaited_with_a_limit() {
    let (_local, here, there) = pair("leaders");
    let (one, other) =
        (LeaderLatch::new(&here, "cron", "one"), LeaderLatch::new(&there, "cron", "other"));
    let (one, other) = (one.expect("a good name"), other.expect("a good name"));
    assert!(one.start().is_err(), "its task wants a runtime");
    let mut events = one.events();
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
    let runtime = runtime.expect("a runtime can be built");
    runtime.block_on(async { one.start() }).expect("it starts");
    let term = run(one.await_leadership().wait(HANG)).expect("it leads");
    runtime.block_on(async { other.start() }).expect("it starts");
    assert_eq!(
        run(other.await_leadership().wait(5 * MS)).map(drop),
        Err(AwaitLeadershipError::TimedOut)
    );
    assert!(matches!(run(events.next()), Some(LatchEvent::IsLeader(_))));
    while run(one.participants()).expect("a member grants").first.len() < 2 {}
    assert_eq!(run(other.leader()).expect("a member grants").expect("one leads").id, "one");
    assert_eq!(run(term.protect(async { 7 })), Ok(7));
    run(one.close_with(CloseMode::NotifyLeader)).expect("it leads");
    run(term.ended());
    run(other.await_leadership()).expect("it leads");
    run(other.close()).expect("it is open");
}

#[test]
fn a_multi_lock_with_a_lease_waits() {
    let (local, here, there) = pair("a");
    let next = run(local.members[1].lock_service("b")).expect("a good name");
    let kept = run(next.lock("2")).expect("it is free");
    for service in [&here, &there] {
        let both = MultiLock::new().with(service, ["1"]).with(&next, ["2"]);
        // The wait lasts several thirds of the lease: the locks that are already granted are
        // extended meanwhile.
        assert!(
            run(both.acquire().lease(30 * MS).wait(100 * MS))
                .expect_err("the other one is held")
                .is_timeout()
        );
    }
    let both = MultiLock::new().with(&here, ["1"]).with(&next, ["2"]);
    run(async {
        let (all, released) =
            tokio::join!(both.acquire().lease(HANG).into_future(), kept.release());
        released.expect("it was held");
        let all = all.expect("all are free");
        assert_eq!(all.protect(async { 7 }).await, Ok(7));
        all.release().await.expect("they are held");
    });
}

#[test]
fn locks_are_asked_for_and_released() {
    let (_local, here, there) = pair("locks");
    for (service, other) in [(&here, &there), (&there, &here)] {
        let guard = run(service.lock("a")).expect("it is free");
        assert!(run(other.lock("a").wait(5 * MS)).expect_err("it is held").is_timeout());
        assert!(run(other.try_lock("a")).is_err());
        let waiting = other.lock("a").start();
        while run(waiting.position()).is_ok_and(|found| found.is_none_or(|found| found.holds == 0))
        {
        }
        assert_eq!(run(service.inspect("a")).expect("a member grants").waiters.len(), 1);
        assert!(
            run(service.waiters("a").expect("a good name").next())
                .expect("a member grants")
                .is_some()
        );
        assert!(run(service.held().next()).expect("a member grants").is_some());
        assert_eq!(run(guard.protect(async { 7 })), Ok(7));
        run(guard.release()).expect("it is held");
        let watch = run(waiting).expect("it is free").watch();
        assert_eq!(run(watch.lost()), LostReason::Released);
        let short = run(service.lock("b").lease(5 * MS)).expect("it is free");
        assert_eq!(run(short.lost()), LostReason::LeaseEnded);

        let share = run(service.share("c")).expect("it is free");
        let too = run(other.try_share("c")).expect("it is shared");
        let (_, share) = run(share.upgrade()).map(drop).expect_err("there is another one");
        run(too.release()).expect("it is held");
        let mut share = Some(share.expect("it is held"));
        while let Some(mine) = share.take() {
            // The release of the other share may be under way.
            share = run(mine.upgrade()).map_or_else(|(_, mine)| mine, |_| None);
        }

        let both = run(service.lock_all(["d", "e"])).expect("they are free");
        assert!(run(other.try_lock_all(["d", "e"])).is_err());
        run(both.release()).expect("they are held");
        let suspension = run(service.suspend()).expect("nothing is held");
        assert_eq!(run(other.inspect_suspension()).expect("a member grants").holders.len(), 1);
        run(suspension.resume()).expect("it is held");

        let guard = run(service.lock("f").revocable()).expect("it is free");
        run(other.revoke("f")).expect("it is revocable");
        assert!(run(guard.revocation().requested()).is_some());
        let holder = run(other.inspect("f")).expect("a member grants").holders.remove(0);
        run(other.force_revoke(&holder)).expect("the holder was told");
        assert_eq!(run(guard.lost()), LostReason::Revoked);
        assert!(run(other.revoke_suspension()).is_err(), "no suspension holds");
    }
}

#[test]
fn objects_are_opened_written_and_watched() {
    let (_local, here, there) = pair("objects");
    for (service, other) in [(&here, &there), (&there, &here)] {
        let value = run(service.open("value", "red")).expect("it opens");
        let seen = run(other.open("value", "blue")).expect("it opens");
        let first = seen.get().expect("it is open").version;
        let second = run(value.set("green")).expect("it is open");
        assert_eq!(run(seen.changed(first)).expect("it is open").version, second);
        run(value.compare_and_set(second, "white")).expect("no other member writes");

        let count = run(SharedCount::open(service, "count", 1).wait(HANG)).expect("it opens");
        let mut changes = count.changes().expect("it is open");
        run(count.set(2)).expect("it is open");
        assert_eq!(run(changes.next()).expect("it is open").count, 2);
        let read = run(count.read().wait(HANG)).expect("it is open");
        run(count.try_set(read.version, 3)).expect("no other member writes");
        assert_eq!(run(count.add(4)).expect("it is open").count, 7);

        let tills = Semaphore::of(&count);
        let permits = run(tills.acquire(2)).expect("two permits are free");
        assert_eq!(run(tills.usage()).expect("a member grants").used, 2);
        assert_eq!(run(tills.permits_in_use()).expect("a member grants").iter().count(), 2);
        assert!(run(tills.try_acquire(6)).is_err());
        for lease in permits.into_permits() {
            run(lease.release()).expect("it is held");
        }

        let lock_value = run(LockValue::open(service, "stock", "3")).expect("it opens");
        let guard = run(service.lock("stock")).expect("it is free");
        let read = run(lock_value.read(&guard)).expect("the lock is held");
        run(lock_value.write(&guard, "2")).expect("the lock is held");
        run(lock_value.changed(read.version)).expect("it is open");
    }
}

#[test]
fn mutexes_and_selectors_are_acquired() {
    let (_local, here, there) = pair("mutexes");
    for service in [&here, &there] {
        let mutex = Mutex::new(service, "a");
        run(run(mutex.acquire()).expect("it is free").release()).expect("it is held");
        let mutex = ReentrantMutex::new(service, "b");
        run(run(mutex.acquire(Owner::new())).expect("it is free").release()).expect("it is held");
        let lock = ReadWriteLock::new(service, "c");
        let reader = run(lock.read()).expect("it is free");
        run(run(reader.upgrade())
            .map_err(|(error, _)| error)
            .expect("no other owner reads")
            .release())
        .expect("held");
        run(run(lock.write()).expect("it is free").release()).expect("it is held");

        let selector = LeaderSelector::new(service, "cron", "one").expect("a good name");
        assert_eq!(run(selector.run_once(async |_| 7)), Ok(7));
        assert!(run(selector.leader()).expect("a member grants").is_none());
        assert!(run(selector.participants()).expect("a member grants").first.is_empty());
    }
    let selector = LeaderSelector::new(&here, "cron", "one").expect("a good name");
    let mut terms = 0;
    let work = |_| {
        terms += 1;
        let (service, is_last) = (&here, terms == 3);
        async move {
            if is_last {
                service.destroy().await.expect("its holds end here");
            }
        }
    };
    assert_eq!(run(selector.run(work)), SelectorError::Destroyed);
}

#[test]
fn members_are_watched_and_leave() {
    let (local, here, _there) = pair("members");
    let (mut events, mut connection) = (local.members[0].events(), local.members[1].connection());
    assert_eq!(run(connection.next()), Some(ConnectionEvent::Connected));
    run(here.destroy()).expect("nothing is held");
    run(local.members[1].leave()).expect("the other one hears it");
    assert!(run(events.next()).is_some());
    run(local.members[0].leave()).expect("it can leave");
    while run(events.next()).is_some() {}
}

#[test]
fn a_limit_ends_with_its_member() {
    let (local, here, there) = pair("limits");
    let latch = run(CountDownLatch::open(&here, "tasks", 1)).expect("it opens");
    let elsewhere = run(CountDownLatch::open(&there, "tasks", 1)).expect("it opens");
    for (member, latch) in [(&local.members[0], latch), (&local.members[1], elsewhere)] {
        let (waited, left) =
            run(async { tokio::join!(latch.wait().wait(10 * HANG), member.leave()) });
        assert!(waited.expect_err("no member counts down").is_lost());
        left.expect("nothing is in its way");
        assert!(run(latch.wait().wait(10 * HANG)).expect_err("it has left").is_lost());
    }
}

#[test]
fn calls_that_need_a_runtime_fail_without_one() {
    assert!(matches!(run(Member::local()), Err(JoinError::NoRuntime)));
    assert!(matches!(run(Member::builder("shop").found().join()), Err(JoinError::NoRuntime)));
    assert!(matches!(run(query_status("127.0.0.1:1", "shop")), Err(QueryError::NoRuntime)));
}
