//! The counted cost of a lock and its release at the grantor's own member. No other work on the
//! machine changes these figures.

// The trait of an allocator is unsafe to implement.
#![allow(unsafe_code)]

use elderlock::{LockService, Member, Timing};
use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::future::IntoFuture;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

#[global_allocator]
static ALLOCATOR: TestAllocator = TestAllocator;

thread_local! {
    /// The number of allocations of this thread.
    static CALLS: Cell<u64> = const { Cell::new(0) };
}

struct TestAllocator;

// SAFETY: each call is passed on to the system's allocator with the same arguments.
unsafe impl GlobalAlloc for TestAllocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        unsafe { System.alloc(layout) }
    }

    unsafe fn realloc(&self, ptr: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        CALLS.with(|calls| calls.set(calls.get() + 1));
        unsafe { System.realloc(ptr, layout, size) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        unsafe { System.dealloc(ptr, layout) }
    }
}

const CYCLES: u64 = 10_000;
/// The most allocations of the member's periodic work between two beats.
const BESIDE: u64 = CYCLES / 100;

/// The number of allocations of [`CYCLES`] cycles, after some cycles to warm up. With it comes the
/// most that the member's periodic work may add, which grows with the time of the cycles.
async fn allocations(locks: &LockService, mut cycle: impl AsyncFnMut(&LockService)) -> (u64, u64) {
    for _ in 0..100 {
        cycle(locks).await;
    }
    let (began, before) = (Instant::now(), CALLS.get());
    for _ in 0..CYCLES {
        cycle(locks).await;
    }
    let count = CALLS.get() - before;
    let beats = began.elapsed().as_nanos() / Timing::default().beat.as_nanos();
    let beats = u64::try_from(beats).expect("the cycles end");
    (count, BESIDE * (1 + beats))
}

#[tokio::test]
async fn a_free_lock_at_its_grantors_own_member_asks_for_no_memory() {
    let member = Member::local().await.unwrap();
    let locks = member.lock_service("inventory").await.unwrap();
    let names = ["a", "sixteen bytes   ", "twenty-three bytes     "];
    for name in names {
        let (count, beside) = allocations(&locks, async |locks| {
            locks.lock(name).await.unwrap().release().await.unwrap()
        })
        .await;
        assert!(count <= beside, "{name}: {count} allocations in {CYCLES} cycles");
    }
    let (count, beside) =
        allocations(&locks, async |locks| drop(locks.try_lock("dropped").await.unwrap())).await;
    assert!(count <= beside, "dropped: {count} allocations in {CYCLES} cycles");
    let (count, beside) = allocations(&locks, async |locks| {
        locks.share("shared").await.unwrap().release().await.unwrap()
    })
    .await;
    assert!(count <= 3 * CYCLES + beside, "a share: {count} allocations in {CYCLES} cycles");
}

#[tokio::test]
async fn a_name_of_its_own_memory_costs_one_allocation() {
    let member = Member::local().await.unwrap();
    let locks = member.lock_service("inventory").await.unwrap();
    let name = "a name of twenty-four by";
    let (count, beside) =
        allocations(&locks, async |locks| locks.lock(name).await.unwrap().release().await.unwrap())
            .await;
    // One allocation a cycle is counted, which shows that the counter works.
    assert!((CYCLES..CYCLES + beside).contains(&count), "{count} allocations in {CYCLES} cycles");
}

/// A future that is ready at its first poll puts no task to sleep and wakes none.
#[tokio::test]
async fn a_free_lock_at_its_grantors_own_member_switches_no_task() {
    let member = Member::local().await.unwrap();
    let locks = member.lock_service("inventory").await.unwrap();
    let switches = |name: &str| {
        let mut locking = pin!(locks.lock(name).into_future());
        match locking.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(guard) => {
                drop(guard.unwrap());
                0
            }
            Poll::Pending => 1,
        }
    };
    let mut count = 0;
    for cycle in 0..CYCLES {
        count += switches("free");
        if cycle % 100 == 99 {
            // Without this, tokio's budget would make the task yield.
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(count, 0, "in {CYCLES} cycles");
    let _held = locks.lock("held").await.unwrap();
    assert_eq!(switches("held"), 1, "a waiting request must be counted");
}
