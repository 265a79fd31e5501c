//! A local member under tokio's paused clock. Its leases and waits follow that clock, and no real
//! time passes.
#![cfg(feature = "tokio")]

use elderlock::{Guard, LeaderLatch, LockError, LockService, LostReason, Member, MultiLock};
use elderlock::{Owner, ReadWriteLock, ReentrantMutex, Semaphore};
use std::cell::RefCell;
use std::time::Duration;
use tokio::time::{Instant, advance, pause, sleep};

/// The unit of all times here. Even on a busy machine the work of a test takes less.
const UNIT: Duration = Duration::from_secs(10);

/// Fails if much real time has passed since its start.
struct RealTime(std::time::Instant);

impl RealTime {
    fn begin() -> RealTime {
        RealTime(std::time::Instant::now())
    }
}

impl Drop for RealTime {
    fn drop(&mut self) {
        // The limit is far above the time of the work on a busy machine, and far below the shortest
        // lease.
        let passed = self.0.elapsed();
        assert!(std::thread::panicking() || passed < 8 * UNIT, "{passed:?} have passed");
    }
}

async fn local() -> (Member, LockService) {
    let member = Member::local().await.expect("a local member");
    let stock = member.lock_service("inventory").await.expect("a good name");
    (member, stock)
}

fn lost(guard: &Guard) -> Option<LostReason> {
    guard.fence().err().map(|lost| lost.reason)
}

#[tokio::test(start_paused = true)]
async fn a_lease_ends_when_the_clock_is_advanced() {
    let _real = RealTime::begin();
    let (_member, stock) = local().await;
    let guard = stock.lock("sku-42").lease(10 * UNIT).await.expect("it is free");
    let plain = stock.lock("sku-43").await.expect("it is free");
    advance(9 * UNIT).await;
    assert_eq!(lost(&guard), None);
    guard.extend(10 * UNIT).expect("it is held");
    advance(9 * UNIT).await;
    assert_eq!(lost(&guard), None);
    advance(2 * UNIT).await;
    assert_eq!(lost(&guard), Some(LostReason::LeaseEnded));
    assert_eq!(guard.lost().await, LostReason::LeaseEnded);
    assert_eq!(lost(&plain), None, "without a lease it is held for ever");
    let next = stock.try_lock("sku-42").await.expect("the lease is over");
    assert!(next.token() > guard.token());
}

/// A lease counts from the grant, also for a lock that had to be awaited.
#[tokio::test(start_paused = true)]
async fn a_waiter_has_the_lock_when_the_lease_is_over() {
    let _real = RealTime::begin();
    let (_member, stock) = local().await;
    let began = Instant::now();
    let first = stock.lock("sku-42").lease(10 * UNIT).await.expect("it is free");
    let second = stock.lock("sku-42").lease(20 * UNIT).await.expect("its turn comes");
    assert!((10 * UNIT..11 * UNIT).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((lost(&first), lost(&second)), (Some(LostReason::LeaseEnded), None));
    assert_eq!(second.lost().await, LostReason::LeaseEnded);
    assert!((30 * UNIT..31 * UNIT).contains(&began.elapsed()), "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_wait_ends_at_its_limit() {
    let _real = RealTime::begin();
    let (_member, stock) = local().await;
    let _held = stock.lock("sku-42").await.expect("it is free");
    let began = Instant::now();
    let refused = stock.lock("sku-42").wait(360 * UNIT).await;
    assert!(matches!(refused, Err(LockError::TimedOut)), "{refused:?}");
    assert!((360 * UNIT..361 * UNIT).contains(&began.elapsed()), "{:?}", began.elapsed());
    let both = MultiLock::new().with(&stock, ["sku-41", "sku-42"]);
    assert!(both.acquire().wait(60 * UNIT).await.expect_err("one is held").is_timeout());
    assert!((420 * UNIT..421 * UNIT).contains(&began.elapsed()), "{:?}", began.elapsed());
}

/// The clock stands still while no test advances it, however long the test takes.
#[tokio::test(start_paused = true)]
async fn no_lease_ends_while_the_clock_stands() {
    let (_member, stock) = local().await;
    let guard = stock.lock("sku-42").lease(Duration::from_millis(20)).await.expect("it is free");
    std::thread::sleep(Duration::from_millis(200));
    assert_eq!(lost(&guard), None);
    sleep(Duration::from_millis(30)).await;
    assert_eq!(lost(&guard), Some(LostReason::LeaseEnded));
}

#[tokio::test]
async fn a_clock_that_is_paused_later_is_followed() {
    let _real = RealTime::begin();
    let (_member, stock) = local().await;
    let guard = stock.lock("sku-42").lease(60 * UNIT).await.expect("it is free");
    pause();
    advance(59 * UNIT).await;
    assert_eq!(lost(&guard), None);
    advance(2 * UNIT).await;
    assert_eq!(lost(&guard), Some(LostReason::LeaseEnded));
}

/// A thread outside the runtime sees the same clock. So does a destructor at the end of a thread.
#[tokio::test(start_paused = true)]
async fn other_threads_see_the_same_clock() {
    thread_local! {
        static KEPT: RefCell<Option<Guard>> = const { RefCell::new(None) };
    }
    let _real = RealTime::begin();
    let (_member, stock) = local().await;
    let guard = stock.lock("sku-42").lease(60 * UNIT).await.expect("it is free");
    let kept = stock.lock("sku-43").lease(60 * UNIT).await.expect("it is free");
    advance(59 * UNIT).await;
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(lost(&guard), None));
        let keeps = scope.spawn(|| {
            KEPT.set(Some(kept));
            // tokio's thread-local value is created after `KEPT`, and so is destroyed before it.
            KEPT.with_borrow(|kept| assert_eq!(kept.as_ref().and_then(lost), None));
        });
        // The scope alone does not wait for destructors, so the thread is joined.
        keeps.join().expect("no panic");
    });
    drop(stock.try_lock("sku-43").await.expect("the thread's end has released it"));
    advance(2 * UNIT).await;
    std::thread::scope(|scope| {
        scope.spawn(|| assert_eq!(lost(&guard), Some(LostReason::LeaseEnded)));
    });
}

/// Recipes are built on locks, so they follow the clock too.
#[tokio::test(start_paused = true)]
async fn recipes_follow_the_clock() {
    let _real = RealTime::begin();
    let ((_member, stock), owner) = (local().await, Owner::new());
    let mutex = ReentrantMutex::new(&stock, "mutex");
    let _outer = mutex.acquire(owner).lease(60 * UNIT).await.expect("it is free");
    let prices = ReadWriteLock::new(&stock, "prices");
    let reader = prices.read_for(owner).lease(60 * UNIT).await.expect("it is free");
    let tills = Semaphore::open(&stock, "tills", 1).await.expect("it is new");
    let till = tills.acquire(1).lease(60 * UNIT).await.expect("it is free");
    let latch = LeaderLatch::new(&stock, "cron", "node-1").expect("a good name");
    latch.start().expect("it is new");
    let term = latch.await_leadership().await.expect("it is alone");
    let several = MultiLock::new().with(&stock, ["a", "b"]);
    let several = several.acquire().lease(60 * UNIT).await.expect("they are free");
    advance(59 * UNIT).await;
    assert!(mutex.is_held() && reader.fence().is_ok() && till.fence().is_ok());
    assert!(several.fence("inventory", "a").is_ok());
    advance(2 * UNIT).await;
    assert!(!mutex.is_held() && reader.fence().is_err() && till.fence().is_err());
    assert!(several.fence("inventory", "a").is_err());
    term.fence().expect("it has no lease");
    assert!(latch.has_leadership());
}
