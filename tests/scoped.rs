//! `with`: a lock for the duration of some work.

use elderlock::{LockError, LostReason, Member, WithError};
use std::future::poll_fn;
use std::task::Poll;
use std::time::Duration;

#[tokio::test]
async fn work_runs_under_the_lock_which_is_free_afterwards() {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let refused = stock.with("a", async |guard| {
        assert!(guard.fence().is_ok());
        stock.try_lock("a").await.is_err()
    });
    assert_eq!(refused.await, Ok(true));
    assert!(stock.try_lock("a").await.is_ok());
}

#[tokio::test]
async fn work_that_is_not_granted_does_not_run() {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let _held = stock.lock("a").await.unwrap();
    let mut ran = false;
    let within = stock.lock("a").wait(Duration::ZERO).with(async |_| ran = true).await;
    assert!(matches!(within, Err(WithError::NotGranted(LockError::TimedOut))), "{within:?}");
    assert!(!ran);
}

#[tokio::test]
async fn work_is_dropped_where_it_stands_when_the_lock_is_lost() {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let mut done = false;
    let short = stock.lock("a").lease(Duration::from_millis(5));
    let within = short.with(async |guard| {
        guard.lost().await;
        std::future::pending::<()>().await;
        done = true;
    });
    let error = within.await.unwrap_err();
    assert!(error.is_lost());
    assert!(matches!(error, WithError::Lost(lost) if lost.reason == LostReason::LeaseEnded));
    assert!(!done);
    assert!(stock.try_lock("a").await.is_ok());
}

#[tokio::test]
async fn work_that_outlives_the_lock_by_not_awaiting_is_told_as_lost() {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let short = stock.lock("a").lease(Duration::from_millis(5));
    let within = short.with(async |guard| while guard.fence().is_ok() {});
    assert!(within.await.unwrap_err().is_lost());
}

#[tokio::test]
async fn a_dropped_scope_holds_nothing() {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    {
        let mut within = Box::pin(stock.with("a", async |_| std::future::pending::<()>().await));
        while stock.try_lock("a").await.is_ok() {
            poll_fn(|context| Poll::Ready(within.as_mut().poll(context).is_pending())).await;
        }
    }
    assert!(stock.lock("a").wait(Duration::from_secs(10)).await.is_ok());
}

/// A panic of the work reaches the caller, and the lock is free.
#[tokio::test]
async fn work_that_panics_releases_the_lock() {
    let member = Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let service = stock.clone();
    let scope = tokio::spawn(async move {
        service.with("a", async |_| panic!("the work fails")).await.map(|never: ()| never)
    });
    assert!(scope.await.unwrap_err().is_panic());
    assert!(stock.lock("a").wait(Duration::from_secs(10)).await.is_ok());
}
