//! A request on its way, as a future that owes nothing when it is dropped.

use super::batch_guard::BatchGuard;
use super::guard::{Guard, Hold};
use super::inspect::{InspectError, Position};
use super::lock_error::{LockError, TryLockError};
use super::lock_service::Inner;
use super::permit_guard::PermitGuard;
use super::shared_value::SharedValue;
use super::suspend_guard::SuspendGuard;
use crate::protocol::message::{Look, Seen};
use crate::protocol::{Command, Metadata, Outcome, Owner, RequestId, Wait, Want};
use crate::runtime::clock;
use crate::runtime::engine::Answer;
use crate::runtime::hold::HoldCell;
use crate::runtime::planted;
use crate::runtime::telemetry::Acquire;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

/// What a request is granted: a [`Guard`], a [`BatchGuard`], a [`SuspendGuard`], a [`PermitGuard`] or a [`SharedValue`].
pub trait Grant: sealed::Grant {}

pub(crate) mod sealed {
    use super::Hold;

    pub trait Grant {
        fn new(hold: Hold) -> Self;
    }
}

impl Grant for Guard {}
impl Grant for BatchGuard {}
impl Grant for SuspendGuard {}
impl Grant for PermitGuard {}
impl Grant for SharedValue {}

impl sealed::Grant for Guard {
    fn new(hold: Hold) -> Self {
        Guard::new(hold)
    }
}

impl sealed::Grant for BatchGuard {
    fn new(hold: Hold) -> Self {
        BatchGuard::new(hold)
    }
}

impl sealed::Grant for SuspendGuard {
    fn new(hold: Hold) -> Self {
        SuspendGuard::new(hold)
    }
}

impl sealed::Grant for PermitGuard {
    fn new(hold: Hold) -> Self {
        PermitGuard::new(hold)
    }
}

impl sealed::Grant for SharedValue {
    fn new(hold: Hold) -> Self {
        SharedValue::new(hold)
    }
}

/// What to ask for.
pub(super) struct Wish {
    pub(super) want: Want,
    pub(super) owner: Owner,
    pub(super) wait: Wait,
    pub(super) lease: Option<Duration>,
    pub(super) revocable: bool,
    pub(super) metadata: Metadata,
}

/// A command on its way: unasked, waiting, answered, or over.
pub(super) struct Asking {
    /// Until it is answered.
    service: Option<Arc<Inner>>,
    /// What to ask, until it is asked.
    command: Option<Command>,
    stage: Stage,
}

/// Small, apart from the command: it changes with each step.
enum Stage {
    Unasked,
    Waiting(RequestId),
    /// Started before anybody awaited it, and answered at once.
    Answered(RequestId, Answer),
    Over,
}

impl Asking {
    /// It gets its number when it is asked: a member's requests are numbered in the order in which they are asked.
    pub(super) fn new(service: Arc<Inner>, command: impl FnOnce(RequestId) -> Command) -> Self {
        Asking { service: Some(service), command: Some(command(RequestId(0))), stage: Stage::Unasked }
    }

    /// Asks, if that has not been done.
    fn start(&mut self) {
        let (Some(service), Some(command)) = (&self.service, &mut self.command) else { return };
        let request = service.engine.next_request();
        command.number(request);
        self.stage = Stage::Waiting(request);
        if let Some(answer) = service.engine.ask(request, command, &service.destroyed) {
            self.stage = Stage::Answered(request, answer);
        }
        self.command = None;
    }

    /// Its number, while it waits.
    fn waiting(&self) -> Option<RequestId> {
        match self.stage {
            Stage::Waiting(request) => Some(request),
            _ => None,
        }
    }

    /// The answer, with the service that it is of.
    fn poll_answer(&mut self, context: &mut Context<'_>) -> Poll<(Arc<Inner>, Answer)> {
        self.start();
        let answer = match (&self.stage, &self.service) {
            // Kept while the engine is asked: whatever happens there, it is given back.
            (Stage::Waiting(request), Some(service)) => service.engine.poll(*request, context.waker()),
            _ => None,
        };
        if answer.is_none() && matches!(self.stage, Stage::Waiting(_)) {
            return Poll::Pending;
        }
        let service = self.service.take();
        match (answer, std::mem::replace(&mut self.stage, Stage::Over), service) {
            (Some(answer), _, Some(service)) | (None, Stage::Answered(_, answer), Some(service)) => {
                Poll::Ready((service, answer))
            }
            _ => panic!("polled after it was ready"),
        }
    }
}

impl Future for Asking {
    type Output = Result<Arc<HoldCell>, Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match std::task::ready!(self.poll_answer(context)).1 {
            Ok(cell) => Ok(cell),
            Err(outcome) => Err(*outcome),
        })
    }
}

impl Drop for Asking {
    fn drop(&mut self) {
        if let (Stage::Waiting(request) | Stage::Answered(request, _), Some(service)) = (&self.stage, &self.service)
            && !planted!(KeepDroppedRequest)
        {
            service.engine.give_back(*request, clock::now());
        }
    }
}

/// A request for a lock, a batch or a suspension.
pub(super) struct Request {
    asking: Asking,
    want: Want,
    /// Of permits: what their guards say of themselves.
    metadata: Metadata,
    /// Once it was asked.
    acquire: Option<Acquire>,
}

impl Request {
    pub(super) fn new(service: Arc<Inner>, wish: Wish) -> Self {
        let Wish { want, owner, wait, lease, revocable, metadata } = wish;
        let (name, wanted) = (service.name.clone(), want.clone());
        let said = if let Want::Permits(..) = want { metadata.clone() } else { Metadata::default() };
        let command = move |request| Command::Lock {
            request,
            service: name,
            want: wanted,
            owner,
            wait,
            lease,
            revocable,
            metadata,
        };
        Request { asking: Asking::new(service, command), want, metadata: said, acquire: None }
    }

    /// Asks, if that has not been done.
    fn start(&mut self) {
        if let Asking { service: Some(service), stage: Stage::Unasked, .. } = &self.asking {
            // An object is no hold, and not measured as one.
            self.acquire =
                (!self.want.opens()).then(|| Acquire::begin(&service.meter, &service.name, &self.want)).flatten();
            let _entered = self.acquire.as_ref().map(|acquire| acquire.span().enter());
            self.asking.start();
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Hold, Box<Outcome>>> {
        self.start();
        // Entered for this poll only, and left before anything else runs in this task.
        let entered = self.acquire.as_ref().map(|acquire| acquire.span().enter());
        let (service, answer) = std::task::ready!(self.asking.poll_answer(context));
        // A hold first: from here on it is given back, whatever the application's subscriber and recorder do.
        let answer = answer.map(|cell| Hold::new(service, self.want.clone(), cell));
        drop(entered);
        if let Some(acquire) = &mut self.acquire {
            match &answer {
                Ok(hold) => acquire.granted(hold.cell.token(), hold.cell.since()),
                Err(outcome) => acquire.refused(outcome),
            }
        }
        if let Ok(hold) = &answer
            && !self.want.opens()
        {
            hold.cell.begin(&hold.service.meter);
            if self.metadata != Metadata::default() {
                hold.cell.describe(std::mem::take(&mut self.metadata));
            }
        }
        Poll::Ready(answer)
    }
}

/// A [`lock`](super::LockService::lock), [`lock_all`](super::LockService::lock_all) or
/// [`suspend`](super::LockService::suspend) on its way. Await it.
///
/// # Cancel safety
/// Nothing is asked before it is first polled or [started](super::LockBuilder::start). Dropping it at any later time
/// gives up the place in the queue, or the lock if it was granted meanwhile: nothing stays held or queued. A new call
/// queues at the end.
#[must_use = "dropping it gives up the place in the queue"]
pub struct Locking<G = Guard>(Result<Request, Option<LockError>>, PhantomData<fn() -> G>);

impl<G: Grant> Locking<G> {
    pub(super) fn new(request: Result<Request, LockError>) -> Self {
        Locking(request.map_err(Some), PhantomData)
    }

    pub(super) fn start(mut self) -> Self {
        if let Ok(request) = &mut self.0 {
            request.start();
        }
        self
    }

    /// Asks the grantor for the place in line. `None`: it does not wait, because it was not
    /// [started](super::LockBuilder::start), or because its answer is there and this is to be awaited.
    ///
    /// Old news by the time it is read: whoever is before may give up, and whoever holds something
    /// [passes](super::LockService::suspend) a suspension.
    ///
    /// # Errors
    /// [`InspectError`]; the request goes on waiting as before.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the request goes on waiting.
    ///
    /// Geode: none. ZooKeeper recipes: the number of children before one's own.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        let Ok(Request { asking, .. }) = &self.0 else { return Ok(None) };
        let (Some(request), Some(service)) = (asking.waiting(), &asking.service) else { return Ok(None) };
        match Inner::look(service, Look::Place(request)).await? {
            Seen::Place { before, holds, suspension } => Ok(Some(Position { before, holds, suspension })),
            _ => Ok(None),
        }
    }
}

impl<G: Grant> Future for Locking<G> {
    type Output = Result<G, LockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(request) => {
                request.poll(context).map(|result| result.map(G::new).map_err(|outcome| LockError::from(*outcome)))
            }
            Err(error) => Poll::Ready(Err(error.take().expect("polled after it was ready"))),
        }
    }
}

/// A [`try_lock`](super::LockService::try_lock) or [`try_lock_all`](super::LockService::try_lock_all) on its way.
///
/// # Cancel safety
/// As of [`Locking`]: dropped at any time, nothing stays held or queued.
#[must_use = "futures do nothing unless polled"]
pub struct TryLocking<G = Guard>(Result<Request, Option<TryLockError>>, PhantomData<fn() -> G>);

impl<G: Grant> TryLocking<G> {
    pub(super) fn new(request: Result<Request, TryLockError>) -> Self {
        TryLocking(request.map_err(Some), PhantomData)
    }
}

impl<G: Grant> Future for TryLocking<G> {
    type Output = Result<G, TryLockError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut self.0 {
            Ok(request) => {
                request.poll(context).map(|result| result.map(G::new).map_err(|outcome| TryLockError::from(*outcome)))
            }
            Err(error) => Poll::Ready(Err(error.take().expect("polled after it was ready"))),
        }
    }
}

impl<G> std::fmt::Debug for Locking<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Locking").finish_non_exhaustive()
    }
}

impl<G> std::fmt::Debug for TryLocking<G> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TryLocking").finish_non_exhaustive()
    }
}
