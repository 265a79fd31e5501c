//! Scenarios of the distributed lock service of Apache Geode, run on the public API. Geode fails in
//! some of them, and has tests for the others.

use super::*;

/// A lease that ends within a test.
const SHORT: Duration = Duration::from_millis(20);

/// A lease that does not end within a test.
const LONG: Duration = Duration::from_secs(3600);

/// A lock with a lease, and another guard of it. On a busy machine a lease may be over before the
/// lock is entered again.
async fn entered_twice(stock: &LockService, lease: Duration) -> (Guard, Guard) {
    for _ in 0..100 {
        let outer = stock.lock("a").lease(lease).await.unwrap();
        if let Ok(inner) = outer.reenter() {
            return (outer, inner);
        }
    }
    panic!("it is never entered");
}

/// Mistake 8: the end of a lease is reported once, by the release that finds it; a new lock starts
/// anew.
#[tokio::test]
async fn a_lease_that_ended_is_told_by_the_release_and_relocking_starts_at_depth_1() {
    let (member, stock) = service().await;
    let (outer, inner) = entered_twice(&stock, SHORT).await;
    assert_eq!((outer.depth(), inner.depth()), (2, 2));
    let before = outer.token();
    assert_eq!(outer.lost().await, LostReason::LeaseEnded);

    // Each guard has its release, and each release reports to its own caller. A second release
    // cannot be called.
    assert_eq!(outer.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));

    // A guard of the old hold is still around.
    let again = stock.lock("a").wait(Duration::ZERO).await.unwrap();
    assert_eq!(again.depth(), 1);
    assert!(again.token() > before);
    assert_eq!(inner.depth(), 1);
    let error = inner.release().await.unwrap_err();
    assert_eq!(error, ReleaseError::Lost(LostReason::LeaseEnded));
    assert!(error.is_lost());

    // The release of the old hold has not touched the new one, which is whole.
    assert_eq!(again.fence(), Ok(again.token()));
    assert_eq!(left_over(&member), (1, 1, 0));
    again.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

/// Mistake 9, first half: re-entering with a shorter lease leaves the end of the lease where it is.
#[tokio::test]
async fn reentering_never_shortens_the_lease() {
    let (member, stock) = service().await;
    let outer = stock.lock("a").lease(LONG).await.unwrap();
    let inner = outer.reenter().unwrap();
    inner.extend(MS).unwrap();
    // If the shorter lease counted, this would be granted.
    assert_eq!(stock.lock("a").wait(SHORT).await.unwrap_err(), LockError::TimedOut);
    assert_eq!((outer.fence(), inner.fence()), (Ok(outer.token()), Ok(outer.token())));
    // The end of the inner guard does not release the lock either.
    inner.release().await.unwrap();
    assert_eq!(stock.lock("a").wait(SHORT).await.unwrap_err(), LockError::TimedOut);
    assert_eq!(outer.fence(), Ok(outer.token()));
    outer.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

/// Mistake 9, second half: re-entering with a longer lease extends it, at the grantor too.
/// Re-entering never times out, as it waits for nothing.
#[tokio::test]
async fn extending_the_reentered_guard_counts_for_all_and_at_the_grantor_too() {
    let (member, stock) = service().await;
    for by_inner in [true, false] {
        // The lease is short enough to wait for its end. On a busy machine it may be over before it
        // is extended.
        let lease = Duration::from_millis(100);
        let mut tries = 0..100;
        let (extended, other) = loop {
            tries.next().expect("it is extended");
            let (outer, inner) = entered_twice(&stock, lease).await;
            let (extended, other) = if by_inner { (inner, outer) } else { (outer, inner) };
            if extended.extend(LONG).is_ok() {
                break (extended, other);
            }
        };
        extended.release().await.unwrap();
        // Without the extension the grantor would grant the lock to the waiter at the end of the
        // lease.
        assert_eq!(stock.lock("a").wait(lease + SHORT).await.unwrap_err(), LockError::TimedOut);
        assert_eq!(other.fence(), Ok(other.token()));
        assert_eq!(other.reenter().unwrap().fence(), Ok(other.token()));
        other.release().await.unwrap();
        assert_eq!(left_over(&member), NOTHING);
    }
}

/// Mistake 10: the grantor has ended the lease, and granted the lock again, before the holder has
/// noticed.
#[tokio::test]
async fn reentering_after_the_lease_has_ended_fails_and_a_fresh_lock_is_queued() {
    let (member, stock) = service().await;
    let first = stock.lock("a").lease(SHORT).await.unwrap();
    // The end of the lease grants it. The first guard was not asked anything meanwhile.
    let second = stock.lock("a").wait(HANG).await.unwrap();
    let error = first.reenter().unwrap_err();
    assert_eq!(error, Lost { reason: LostReason::LeaseEnded });
    assert_eq!(error.to_string(), "the lock is lost: its lease ran out");
    assert_eq!(first.depth(), 1, "the failed attempt does not count");

    let mut fresh = Box::pin(stock.lock("a").into_future());
    assert!(poll_once(fresh.as_mut()).is_pending());
    assert_eq!(stock.try_lock("a").await.unwrap_err().holder().unwrap().token, second.token());
    // Releasing the lost guard frees nothing.
    assert_eq!(first.release().await, Err(ReleaseError::Lost(LostReason::LeaseEnded)));
    assert!(poll_once(fresh.as_mut()).is_pending());
    assert_eq!(second.fence(), Ok(second.token()));

    second.release().await.unwrap();
    let Poll::Ready(Ok(fresh)) = poll_once(fresh.as_mut()) else { panic!("not granted") };
    assert_eq!(fresh.depth(), 1);
    fresh.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
}

/// Mistake 10 again: the clock alone has ended the lease, and neither side has noticed.
#[test]
fn reentering_fails_at_the_end_of_the_lease_without_any_timer() {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (_member, stock) = runtime.block_on(service());
    let guard = runtime.block_on(stock.lock("a").lease(SHORT).into_future()).unwrap();
    // No thread runs the runtime from here on.
    let error = loop {
        match guard.reenter() {
            Ok(again) => drop(again),
            Err(error) => break error,
        }
    };
    assert_eq!(error.reason, LostReason::LeaseEnded);
    assert_eq!(guard.reenter().unwrap_err(), error);
}
