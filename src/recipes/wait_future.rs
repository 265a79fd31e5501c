//! `WaitFuture`: a wait of a recipe, with or without a limit.

use crate::service::{LockError, LockService};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

/// A wait of a recipe, for another member or for the grantor's answer. By default it has no limit;
/// [`wait`](WaitFuture::wait) sets one.
///
/// A write into an object, such as [`SharedCount::add`](crate::SharedCount::add), is no such wait
/// and takes no limit: once sent, it may still be made. To stop waiting for it, drop its future.
///
/// # Cancel safety
/// As described for the method that returned the future.
#[must_use = "nothing is asked until this is awaited"]
pub struct WaitFuture<'a, T, E> {
    service: LockService,
    what: Pin<Box<dyn Future<Output = Result<T, E>> + Send + 'a>>,
    timed_out: fn() -> E,
}

impl<'a, T: 'a, E: 'a> WaitFuture<'a, T, E> {
    /// `timed_out` returns the error for the end of a limit.
    pub(super) fn new(
        service: &LockService,
        timed_out: fn() -> E,
        what: impl Future<Output = Result<T, E>> + Send + 'a,
    ) -> Self {
        WaitFuture { service: service.clone(), what: Box::pin(what), timed_out }
    }

    /// Limits the wait to `limit`, from the first poll on, then fails with `TimedOut`. The wait
    /// ends before that as by a drop: see "Cancel safety" of the method that returned it. Zero
    /// fails unless the first poll has the result. Without a limit the wait has no end. Needs no
    /// runtime.
    pub fn wait(self, limit: Duration) -> Self {
        let WaitFuture { service, what, timed_out } = self;
        let within = service.clone();
        let limited =
            async move { within.within(limit, what).await.unwrap_or_else(|| Err(timed_out())) };
        WaitFuture { service, what: Box::pin(limited), timed_out }
    }
}

impl<T: 'static> WaitFuture<'static, T, LockError> {
    /// The opening of an object.
    pub(super) fn opening(
        service: &LockService,
        what: impl Future<Output = Result<T, LockError>> + Send + 'static,
    ) -> Self {
        WaitFuture::new(service, || LockError::TimedOut, what)
    }
}

impl<T, E> Future for WaitFuture<'_, T, E> {
    type Output = Result<T, E>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.what.as_mut().poll(context)
    }
}

impl<T, E> std::fmt::Debug for WaitFuture<'_, T, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WaitFuture").field("service", &self.service).finish_non_exhaustive()
    }
}
