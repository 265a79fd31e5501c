//! A request for a lock on its way, as a future that owes nothing when it is dropped.

use super::guard::Guard;
use super::lock_error::{LockError, TryLockError};
use super::lock_service::Inner;
use crate::protocol::{LockName, Metadata, Outcome, RequestId, Wait};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What to ask for.
pub(super) struct Wish {
    pub(super) name: LockName,
    pub(super) wait: Wait,
    pub(super) lease: Option<Duration>,
    pub(super) metadata: Metadata,
}

/// A request: unasked, waiting, or over.
pub(super) struct Request {
    service: Arc<Inner>,
    stage: Stage,
}

enum Stage {
    Unasked(Wish),
    Waiting(RequestId, LockName),
    Over,
}

impl Request {
    pub(super) fn new(service: Arc<Inner>, wish: Wish) -> Self {
        Request { service, stage: Stage::Unasked(wish) }
    }
}

impl Future for Request {
    type Output = Result<Guard, Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let service = self.service.clone();
        let engine = &service.engine;
        let mut answer = None;
        if let Stage::Unasked(_) = self.stage {
            let request = engine.next_request();
            let Stage::Unasked(wish) = std::mem::replace(&mut self.stage, Stage::Over) else {
                unreachable!("just looked at");
            };
            let Wish { name, wait, lease, metadata } = wish;
            self.stage = Stage::Waiting(request, name.clone());
            answer = engine.ask(request, service.name.clone(), name, wait, lease, metadata);
        }
        let Stage::Waiting(request, _) = self.stage else {
            panic!("polled after it was ready");
        };
        let answer = answer.or_else(|| engine.poll(request, context.waker()));
        let Some(answer) = answer else { return Poll::Pending };
        let Stage::Waiting(_, name) = std::mem::replace(&mut self.stage, Stage::Over) else {
            unreachable!("just looked at");
        };
        Poll::Ready(answer.map(|cell| Guard::new(service, name, cell)))
    }
}

impl Drop for Request {
    fn drop(&mut self) {
        if let Stage::Waiting(request, _) = self.stage {
            self.service.engine.give_back(request);
        }
    }
}

/// A [`lock`](super::LockService::lock) on its way.
///
/// # Cancel safety
/// Nothing is asked before it is first polled. Dropping it at any later time gives up the place in the queue, or the
/// lock if it was granted meanwhile: nothing stays held or queued. A new call queues at the end.
#[must_use = "futures do nothing unless polled"]
pub struct Locking(Result<Request, Option<LockError>>);

impl Locking {
    pub(super) fn new(request: Result<Request, LockError>) -> Self {
        Locking(request.map_err(Some))
    }
}

impl Future for Locking {
    type Output = Result<Guard, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(request) => Pin::new(request).poll(context).map_err(LockError::from),
            Err(error) => Poll::Ready(Err(error.take().expect("polled after it was ready"))),
        }
    }
}

/// A [`try_lock`](super::LockService::try_lock) on its way.
///
/// # Cancel safety
/// As of [`Locking`]: dropped at any time, nothing stays held or queued.
#[must_use = "futures do nothing unless polled"]
pub struct TryLocking(Result<Request, Option<TryLockError>>);

impl TryLocking {
    pub(super) fn new(request: Result<Request, TryLockError>) -> Self {
        TryLocking(request.map_err(Some))
    }
}

impl Future for TryLocking {
    type Output = Result<Guard, TryLockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(request) => Pin::new(request).poll(context).map_err(TryLockError::from),
            Err(error) => Poll::Ready(Err(error.take().expect("polled after it was ready"))),
        }
    }
}

impl std::fmt::Debug for Locking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locking").finish_non_exhaustive()
    }
}

impl std::fmt::Debug for TryLocking {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TryLocking").finish_non_exhaustive()
    }
}
