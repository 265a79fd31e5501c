//! A request on its way, as a future that owes nothing when it is dropped.

use super::batch_guard::BatchGuard;
use super::guard::{Guard, Hold};
use super::inspect::{InspectError, Position};
use super::lock_error::{LockError, TryLockError};
use super::lock_service::Inner;
use super::permit_guard::PermitGuard;
use super::shared_value::SharedValue;
use super::suspend_guard::SuspendGuard;
use crate::protocol::message::{Query, QueryReply};
use crate::protocol::{Command, LostReason, Metadata, Outcome, OwnerId, RequestId, Wait, Want};
use crate::runtime::clock;
use crate::runtime::engine::Answer;
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::planted;
use crate::runtime::telemetry::AcquireSpan;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;
use tokio::task::coop::poll_proceed;

/// How many free locks of one's own count as much as one that was attended to: tokio lets a task have 128 such in a row.
const ATTENTION: usize = 8;

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
    pub(super) owner: OwnerId,
    pub(super) wait: Wait,
    pub(super) lease: Option<Duration>,
    pub(super) revocable: bool,
    pub(super) metadata: Metadata,
}

impl Wish {
    /// Whether there is nothing to be said of it but whose it is.
    fn is_plain(&self) -> bool {
        self.lease.is_none() && !self.revocable && self.metadata == Metadata::default()
    }
}

/// A command that was asked, and has not been answered yet or not been looked at.
struct Asked {
    /// Until it is answered.
    service: Option<Arc<Inner>>,
    request: RequestId,
    /// It was answered when it was asked.
    answer: Option<Answer>,
    /// After the thread had waited for it.
    attended: bool,
}

impl Asked {
    /// Asks. `waker`: of whoever polls already.
    fn new(service: Arc<Inner>, command: &mut Command, waker: Option<&Waker>) -> Asked {
        let (request, answer, ear) = service.engine.ask(command, &service.destroyed, waker);
        // First: what is heard meanwhile may wake others, whose code may panic.
        let mut asked = Asked { service: Some(service), request, answer, attended: false };
        // The answer may be here before this thread could sleep.
        if let (None, Some(waker), Some(ear), Some(service)) = (&asked.answer, waker, ear, &asked.service)
            && ear.attend()
        {
            asked.answer = service.engine.poll(request, waker);
            asked.attended = true;
        }
        asked
    }

    /// Its number, while it waits.
    fn waiting(&self) -> Option<(&Arc<Inner>, RequestId)> {
        self.service.as_ref().filter(|_| self.answer.is_none()).map(|service| (service, self.request))
    }

    /// The answer, with the service that it is of.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<(Arc<Inner>, Answer)> {
        if let (None, Some(service)) = (&self.answer, &self.service) {
            self.answer = service.engine.poll(self.request, context.waker());
        }
        match (self.answer.take(), self.service.is_some()) {
            (None, true) => Poll::Pending,
            (Some(answer), true) => match self.service.take() {
                Some(service) => Poll::Ready((service, answer)),
                None => unreachable!("it is there"),
            },
            (_, false) => panic!("polled after it was ready"),
        }
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        if let Some(service) = &self.service
            && !planted!(KeepDroppedRequest)
        {
            service.engine.give_back(self.request, clock::now());
        }
    }
}

/// A command that is asked when it is first polled.
pub(super) struct Asking(Inquiry);

enum Inquiry {
    Unasked(Arc<Inner>, Command),
    Asked(Asked),
    Over,
}

impl Asking {
    pub(super) fn new(service: Arc<Inner>, command: impl FnOnce(RequestId) -> Command) -> Self {
        Asking(Inquiry::Unasked(service, command(RequestId(0))))
    }
}

impl Future for Asking {
    type Output = Result<Arc<HoldCell>, Outcome>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        // As of a request.
        let turn = std::task::ready!(poll_proceed(context));
        if let Inquiry::Unasked(..) = self.0
            && let Inquiry::Unasked(service, mut command) = std::mem::replace(&mut self.0, Inquiry::Over)
        {
            let asked = Asked::new(service, &mut command, Some(context.waker()));
            let is_waiting = asked.waiting().is_some();
            self.0 = Inquiry::Asked(asked);
            if is_waiting {
                return Poll::Pending;
            }
        }
        let Inquiry::Asked(asked) = &mut self.0 else { panic!("polled after it was ready") };
        let attended = asked.attended;
        let answer = std::task::ready!(asked.poll(context)).1;
        turn.made_progress();
        if attended {
            spend(context);
        }
        Poll::Ready(answer.map_err(|outcome| *outcome))
    }
}

/// A request for a lock, a batch or a suspension.
pub(super) struct Request {
    /// Until it is asked.
    service: Option<Arc<Inner>>,
    wish: Wish,
    way: Way,
    /// Once it was asked.
    acquire: Option<AcquireSpan>,
}

/// How a request is granted.
enum Way {
    /// It was not asked.
    Unasked,
    /// Started before anybody awaited it, and taken then.
    Taken(Hold),
    /// The engine was asked.
    Asked(Asked),
    /// It is over.
    Over,
}

impl Request {
    pub(super) fn new(service: Arc<Inner>, wish: Wish) -> Self {
        Request { service: Some(service), wish, way: Way::Unasked, acquire: None }
    }

    /// Asks, if that has not been done. A lock that is free here is taken without a turn.
    /// `waker`: of whoever polls already.
    fn start(&mut self, waker: Option<&Waker>) -> Option<Hold> {
        let service = self.service.take()?;
        let Wish { want, owner, wait, lease, revocable, metadata } = &self.wish;
        // An object is no hold, and not measured as one.
        self.acquire = (!want.opens()).then(|| AcquireSpan::begin(&service.meter, &service.name, want)).flatten();
        let _entered = self.acquire.as_ref().map(|acquire| acquire.span().enter());
        if let Want::Lock(name) = want
            && self.wish.is_plain()
            && let Some(cell) = service.engine.take(&service.lane, name, *owner, &service.destroyed)
        {
            self.way = Way::Over;
            return Some(Hold::new(service, want.clone(), cell));
        }
        let mut command = Command::Lock {
            request: RequestId(0),
            service: service.name.clone(),
            want: want.clone(),
            owner: *owner,
            wait: *wait,
            lease: *lease,
            revocable: *revocable,
            metadata: metadata.clone(),
        };
        self.way = Way::Asked(Asked::new(service, &mut command, waker));
        None
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Hold, Box<Outcome>>> {
        // As tokio's own: a task that takes free locks without end lets others have the thread now and then.
        let turn = std::task::ready!(poll_proceed(context));
        let is_first = self.service.is_some();
        let mut attended = false;
        let taken = self.start(Some(context.waker()));
        // Entered for this poll only, and left before anything else runs in this task.
        let entered = self.acquire.as_ref().map(|acquire| acquire.span().enter());
        let answer = match (taken, &mut self.way) {
            (Some(hold), _) => Ok(hold),
            // It is asked, and wakes this task.
            (None, Way::Asked(asked)) if is_first && asked.waiting().is_some() => return Poll::Pending,
            (None, Way::Asked(asked)) => {
                attended = asked.attended;
                let (service, answer) = std::task::ready!(asked.poll(context));
                // A hold first: from here on it is given back, whatever the application's subscriber and recorder do.
                answer.map(|cell| Hold::new(service, self.wish.want.clone(), cell))
            }
            (None, way) => match std::mem::replace(way, Way::Over) {
                Way::Taken(hold) => Ok(hold),
                _ => panic!("polled after it was ready"),
            },
        };
        turn.made_progress();
        drop(entered);
        if attended {
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
            && !self.wish.want.opens()
        {
            hold.cell.begin(&hold.service.meter);
            if let Want::Permits(..) = self.wish.want
                && self.wish.metadata != Metadata::default()
            {
                // What their guards say of themselves.
                hold.cell.describe(self.wish.metadata.clone());
            }
        }
        Poll::Ready(answer)
    }
}

/// Refuses a grant that ended before it was polled because the member destroyed the service, left or was expelled. A hold
/// whose lease ended meanwhile is returned: its guard says so.
fn good(hold: Hold) -> Result<Hold, Box<Outcome>> {
    match hold.cell.lost_reason() {
        Some(reason @ (LostReason::Destroyed | LostReason::Left | LostReason::Expelled)) => {
            Err(Box::new(Outcome::Closed(reason)))
        }
        _ => Ok(hold),
    }
}

/// The thread has waited for this answer, see [`busy_poll`](super::MemberBuilder::busy_poll): the task's turn is the shorter for it.
fn spend(context: &mut Context<'_>) {
    for _ in 1..ATTENTION {
        match poll_proceed(context) {
            Poll::Ready(turn) => turn.made_progress(),
            Poll::Pending => return,
        }
    }
}

/// A [`lock`](super::LockService::lock), [`lock_all`](super::LockService::lock_all) or
/// [`suspend`](super::LockService::suspend) on its way. Await it.
///
/// It takes part in tokio's cooperative scheduling, as tokio's own mutex does: a task that takes free locks one after the
/// other lets other tasks have the thread now and then. So a poll may ask nothing, and come again at once;
/// [`start`](super::LockBuilder::start) asks in any case.
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
        if let Ok(request) = &mut self.0
            && let Some(hold) = request.start(None)
        {
            request.way = Way::Taken(hold);
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
        let Ok(Request { way: Way::Asked(asked), .. }) = &self.0 else { return Ok(None) };
        let Some((service, request)) = asked.waiting() else { return Ok(None) };
        match Inner::look(service, Query::Place(request)).await? {
            QueryReply::Place { before, holds, suspension } => Ok(Some(Position { before, holds, suspension })),
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
/// It takes part in tokio's cooperative scheduling, as [`Locking`] does: a first poll may ask nothing and come again at once.
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
