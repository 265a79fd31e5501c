//! A pending request, as a future whose drop leaves nothing held or queued.

use super::batch_guard::BatchGuard;
use super::command::{PendingAnswer, spend};
use super::guard::Guard;
use super::handle::ServiceHandle;
use super::hold::HoldHandle;
use super::inspect::{self, InspectError, Position};
use super::lock_error::{LockError, TryLockError};
use super::permit_guard::PermitGuard;
use super::shared_value::SharedValue;
use super::suspend_guard::SuspendGuard;
use crate::protocol::message::{LockRequest, Query, QueryReply};
use crate::protocol::{Command, LostReason, Metadata, Outcome, RequestId, Wait, Want};
use crate::runtime::telemetry::AcquireSpan;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::coop::poll_proceed;
#[cfg(feature = "simulated")]
use {crate::protocol::Time, crate::runtime::clock};

/// The result of a granted request: a [`Guard`], a [`BatchGuard`], a [`SuspendGuard`], a
/// [`PermitGuard`] or a [`SharedValue`].
pub trait Grant: sealed::FromHold {}

pub(crate) mod sealed {
    use super::HoldHandle;

    pub trait FromHold {
        fn new(hold: HoldHandle) -> Self;
    }
}

impl Grant for Guard {}
impl Grant for BatchGuard {}
impl Grant for SuspendGuard {}
impl Grant for PermitGuard {}
impl Grant for SharedValue {}

impl sealed::FromHold for Guard {
    fn new(hold: HoldHandle) -> Self {
        Guard::new(hold)
    }
}

impl sealed::FromHold for BatchGuard {
    fn new(hold: HoldHandle) -> Self {
        BatchGuard::new(hold)
    }
}

impl sealed::FromHold for SuspendGuard {
    fn new(hold: HoldHandle) -> Self {
        SuspendGuard::new(hold)
    }
}

impl sealed::FromHold for PermitGuard {
    fn new(hold: HoldHandle) -> Self {
        PermitGuard::new(hold)
    }
}

impl sealed::FromHold for SharedValue {
    fn new(hold: HoldHandle) -> Self {
        SharedValue::new(hold)
    }
}

/// The parameters of a request.
pub(super) struct RequestParts {
    pub(super) lock: LockRequest,
    pub(super) wait: Wait,
    pub(super) lease: Option<Duration>,
    /// Whether the request fails when its member finds a circle of owners.
    pub(super) detects: bool,
}

impl RequestParts {
    /// Returns whether the request has no option except its owner.
    fn is_plain(&self) -> bool {
        let LockRequest { revocable, metadata, .. } = &self.lock;
        self.lease.is_none() && !revocable && *metadata == Metadata::default()
    }
}

/// A request for a lock, a batch or a suspension.
pub(super) struct RequestFuture {
    /// The handle of the service; `None` once the request was sent.
    service: Option<Arc<ServiceHandle>>,
    parts: RequestParts,
    phase: RequestPhase,
    /// The span of the request; `None` until the request is sent.
    acquire: Option<AcquireSpan>,
    #[cfg(feature = "simulated")]
    asked: Time,
}

/// The phase of a request.
enum RequestPhase {
    /// The request was not sent.
    Unasked,
    /// The request was started before any task awaited it, and was granted at once.
    Started(HoldHandle),
    /// The engine has the request.
    Asked(PendingAnswer),
    /// The request is over.
    Over,
}

impl RequestFuture {
    pub(super) fn new(service: Arc<ServiceHandle>, parts: RequestParts) -> Self {
        RequestFuture {
            service: Some(service),
            parts,
            phase: RequestPhase::Unasked,
            acquire: None,
            #[cfg(feature = "simulated")]
            asked: Time::ZERO,
        }
    }

    /// Sends the request, unless that was done. A lock that is free here is taken without a turn.
    /// `waker`: that of the task, if it polls already.
    fn start(&mut self, waker: Option<&Waker>) -> Option<HoldHandle> {
        let service = self.service.take()?;
        #[cfg(feature = "simulated")]
        {
            self.asked = clock::now();
        }
        let RequestParts { lock, wait, lease, detects } = &self.parts;
        let LockRequest { want, owner, .. } = lock;
        // An open object is not a hold, and is not measured as one.
        self.acquire = (!want.opens())
            .then(|| AcquireSpan::begin(&service.meter, &service.name, want))
            .flatten();
        let _entered = self.acquire.as_ref().map(|acquire| acquire.span().enter());
        if let Want::Lock(name) = want
            && self.parts.is_plain()
            && let Some(cell) =
                service.engine.take(&service.local_grants, name, *owner, &service.destroyed)
        {
            self.phase = RequestPhase::Over;
            return Some(HoldHandle::new(service, want.clone(), cell));
        }
        let mut command = Command::Lock {
            request: RequestId(0),
            service: service.name.clone(),
            lock: lock.clone(),
            wait: *wait,
            lease: *lease,
            detects: *detects,
            keeps: service.local_grants.keeps(),
            follows: service.local_grants.follows(),
        };
        self.phase = RequestPhase::Asked(PendingAnswer::new(service, &mut command, waker));
        None
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<HoldHandle, Box<Outcome>>> {
        // The poll uses tokio's budget: a task that takes free locks without end must let other
        // tasks run now and then.
        let turn = std::task::ready!(poll_proceed(context));
        let is_first = self.service.is_some();
        let mut busy_polled = false;
        let taken = self.start(Some(context.waker()));
        // The span is entered for this poll only, and left before any other code runs in this task.
        let entered = self.acquire.as_ref().map(|acquire| acquire.span().enter());
        let answer = match (taken, &mut self.phase) {
            (Some(hold), _) => Ok(hold),
            // The request waits, and its answer wakes this task.
            (None, RequestPhase::Asked(asked)) if is_first && asked.waiting().is_some() => {
                return Poll::Pending;
            }
            (None, RequestPhase::Asked(asked)) => {
                busy_polled = asked.busy_polled;
                let (service, answer) = std::task::ready!(asked.poll(context));
                // The hold gets its guard first: from here on it is released, even if the
                // application's subscriber or recorder panics.
                answer.map(|cell| HoldHandle::new(service, self.parts.lock.want.clone(), cell))
            }
            (None, phase) => match std::mem::replace(phase, RequestPhase::Over) {
                RequestPhase::Started(hold) => Ok(hold),
                _ => panic!("polled after it was ready"),
            },
        };
        turn.made_progress();
        drop(entered);
        if busy_polled {
            spend(context);
        }
        let answer = answer.and_then(good);
        if let Some(acquire) = &mut self.acquire {
            match &answer {
                Ok(hold) => acquire.granted(hold.cell.token(), hold.cell.since()),
                Err(outcome) => acquire.refused(outcome),
            }
        }
        if let Ok(hold) = &answer
            && !self.parts.lock.want.opens()
        {
            hold.cell.begin(&hold.service.meter);
            #[cfg(feature = "simulated")]
            hold.observe(self.asked);
            if let Want::Permits(..) = self.parts.lock.want
                && self.parts.lock.metadata != Metadata::default()
            {
                // The guards show this metadata.
                hold.cell.describe(self.parts.lock.metadata.clone());
            }
        }
        Poll::Ready(answer)
    }
}

/// Refuses a grant that ended before it was polled because the member destroyed the service, left
/// or was expelled. A hold whose lease ended meanwhile is returned: its guard reports the loss.
fn good(hold: HoldHandle) -> Result<HoldHandle, Box<Outcome>> {
    match hold.cell.lost_reason() {
        Some(reason @ (LostReason::Destroyed | LostReason::Left | LostReason::Expelled)) => {
            Err(Box::new(Outcome::Closed(reason)))
        }
        _ => Ok(hold),
    }
}

/// A pending [`lock`](super::LockService::lock), [`lock_all`](super::LockService::lock_all) or
/// [`suspend`](super::LockService::suspend). Await it.
///
/// The future takes part in tokio's cooperative scheduling, as tokio's own mutex does. A task that
/// takes free locks one after the other now and then lets other tasks run. So a poll may send
/// nothing, and wake the task at once; [`start`](super::LockBuilder::start) sends the request in
/// any case.
///
/// # Cancel safety
/// Nothing is sent before the future is first polled or [started](super::LockBuilder::start).
/// Dropping it at any later time ends the request, or releases the lock if it was granted
/// meanwhile. Nothing stays held or queued. A new call queues at the end.
#[must_use = "dropping it gives up the position in the queue"]
pub struct LockFuture<G = Guard>(Result<RequestFuture, Option<LockError>>, PhantomData<fn() -> G>);

impl<G: Grant> LockFuture<G> {
    pub(super) fn new(request: Result<RequestFuture, LockError>) -> Self {
        LockFuture(request.map_err(Some), PhantomData)
    }

    pub(super) fn start(mut self) -> Self {
        if let Ok(request) = &mut self.0
            && let Some(hold) = request.start(None)
        {
            request.phase = RequestPhase::Started(hold);
        }
        self
    }

    /// Asks the grantor for the position in the queue. `None`: the request does not wait. It was
    /// not [started](super::LockBuilder::start), or its answer is there and this future is to be
    /// awaited.
    ///
    /// The position may be outdated when it is read: an earlier request may end, and an owner with
    /// a hold [passes](super::LockService::suspend) a suspension.
    ///
    /// # Errors
    /// [`InspectError`]; the request continues to wait.
    ///
    /// # Cancel safety
    /// Dropping this future changes nothing; the request continues to wait.
    ///
    /// Geode: none. ZooKeeper recipes: the number of children before one's own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// let first = stock.lock("sku-42").start();
    /// let second = stock.lock("sku-42").start();
    /// assert_eq!(second.position().await?.unwrap().before, 1);
    /// drop(first);
    /// assert_eq!(second.position().await?.unwrap().before, 0);
    /// guard.release().await?;
    /// assert_eq!(second.position().await?, None);
    /// let guard = second.await?;
    /// # Ok(()) }
    /// ```
    pub async fn position(&self) -> Result<Option<Position>, InspectError> {
        let Ok(RequestFuture { phase: RequestPhase::Asked(asked), .. }) = &self.0 else {
            return Ok(None);
        };
        let Some((service, request)) = asked.waiting() else { return Ok(None) };
        match inspect::look(service, Query::Position(request)).await? {
            QueryReply::Position { before, holds, suspension } => {
                Ok(Some(Position { before, holds, suspension }))
            }
            _ => Ok(None),
        }
    }
}

impl<G: Grant> Future for LockFuture<G> {
    type Output = Result<G, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(request) => request
                .poll(context)
                .map(|result| result.map(G::new).map_err(|outcome| LockError::from(*outcome))),
            Err(error) => Poll::Ready(Err(error.take().expect("polled after it was ready"))),
        }
    }
}

/// A pending [`try_lock`](super::LockService::try_lock) or
/// [`try_lock_all`](super::LockService::try_lock_all).
///
/// The future takes part in tokio's cooperative scheduling, as [`LockFuture`] does: a first poll
/// may send nothing and wake the task at once.
///
/// # Cancel safety
/// As for [`LockFuture`]: after a drop at any time nothing stays held or queued.
#[must_use = "futures do nothing unless polled"]
pub struct TryLockFuture<G = Guard>(
    Result<RequestFuture, Option<TryLockError>>,
    PhantomData<fn() -> G>,
);

impl<G: Grant> TryLockFuture<G> {
    pub(super) fn new(request: Result<RequestFuture, TryLockError>) -> Self {
        TryLockFuture(request.map_err(Some), PhantomData)
    }
}

impl<G: Grant> Future for TryLockFuture<G> {
    type Output = Result<G, TryLockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(request) => request
                .poll(context)
                .map(|result| result.map(G::new).map_err(|outcome| TryLockError::from(*outcome))),
            Err(error) => Poll::Ready(Err(error.take().expect("polled after it was ready"))),
        }
    }
}

impl<G> std::fmt::Debug for LockFuture<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locking").finish_non_exhaustive()
    }
}

impl<G> std::fmt::Debug for TryLockFuture<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TryLocking").finish_non_exhaustive()
    }
}
