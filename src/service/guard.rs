//! `Guard`: a held lock.

use super::command::CommandFuture;
use super::hold::{HoldHandle, LossWatch};
use super::lock_error::{ExtendError, Lost, ReleaseError, UpgradeError};
use super::revocation::Revocation;
use crate::protocol::{Command, LineageId, LostReason, Outcome, Token, Want};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A held lock, or a [share](crate::LockService::share) of it. The owner of this value has the
/// lock: any task or thread may carry it, and no other can release it.
///
/// Call [`fence`](Guard::fence) before each side effect and hand its token to the resource, which
/// refuses tokens lower than the highest it has seen.
///
/// [`release().await`](Guard::release) is the documented way to release the lock. Dropping the
/// guard does the same, but does not report whether the lock had been lost before. `Drop` never
/// blocks, spawns or panics, and works outside any runtime and after the member has left.
///
/// Geode: none; there a lock belongs to a thread. Curator: `InterProcessMutex` between `acquire`
/// and `release`.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    hold: HoldHandle,
}

impl Guard {
    pub(crate) fn new(hold: HoldHandle) -> Self {
        Guard { hold }
    }

    /// The fencing token, if the lock is held at this instant. Cheap: a clock and four atomics, no
    /// message.
    ///
    /// A guard whose fence has failed once fails for good.
    ///
    /// # Errors
    /// [`Lost`] with the reason: the lock's or the member's lease is over, or the cluster continues
    /// without the member. Other reasons: the service was destroyed here, or the member has left.
    /// Asking changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let guard = member.lock_service("inventory").await?.lock("sku-42").await?;
    /// let token = guard.fence()?;
    /// assert!(token.as_i64() > 0);
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Result<Token, Lost> {
        self.hold.fence()
    }

    /// The lineage that dealt the token. Tokens of one lineage never repeat. Two lineages that live
    /// at the same time may deal equal tokens, so a resource compares the pair of both: see
    /// [`TokenGate`](crate::TokenGate). The lineage stays the same for as long as the member keeps
    /// its holds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let (one, other) = (stock.lock("sku-42").await?, stock.lock("sku-43").await?);
    /// assert_eq!(one.lineage(), other.lineage());
    /// # Ok(()) }
    /// ```
    pub fn lineage(&self) -> LineageId {
        self.hold.lineage()
    }

    /// Completes when the lock is lost, with the reason; never while it is held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports a loss in between.
    pub async fn lost(&self) -> LostReason {
        self.hold.lost().await
    }

    /// A token that is cancelled when the hold is over: lost, or released by its last guard. For
    /// code that takes a [`CancellationToken`]; it needs no task and no runtime, and does not keep
    /// the lock held. Each call returns another child of one token: cancelling it changes nothing
    /// for the hold or for the other children.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let guard = member.lock_service("inventory").await?.lock("sku-42").await?;
    /// let over = guard.cancellation_token();
    /// assert!(!over.is_cancelled());
    /// guard.release().await?;
    /// over.cancelled().await;
    /// # Ok(()) }
    /// ```
    pub fn cancellation_token(&self) -> CancellationToken {
        self.hold.cancellation_token()
    }

    /// A watch on the hold for tasks without a guard: a cheap handle that does not keep the lock
    /// held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::LostReason;
    /// let member = elderlock::Member::local().await?;
    /// let guard = member.lock_service("inventory").await?.lock("sku-42").await?;
    /// let watch = guard.watch();
    /// assert_eq!(watch.reason(), None);
    /// guard.release().await?;
    /// assert_eq!(watch.lost().await, LostReason::Released);
    /// # Ok(()) }
    /// ```
    pub fn watch(&self) -> LossWatch {
        self.hold.watch()
    }

    pub(crate) fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    pub(crate) fn hold_mut(&mut self) -> &mut HoldHandle {
        &mut self.hold
    }

    pub(crate) fn into_hold(self) -> HoldHandle {
        self.hold
    }

    /// Runs `future` until it completes or the lock is lost, whichever is first.
    ///
    /// The future can be stopped only where it awaits: a side effect still needs
    /// [`fence`](Guard::fence) and a resource that checks the token.
    ///
    /// # Errors
    /// [`Lost`]: the lock was lost before `future` completed, and `future` was dropped where it
    /// stood.
    ///
    /// # Cancel safety
    /// Dropping this future drops `future`; the lock stays held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// assert_eq!(guard.protect(async { 7 }).await?, 7);
    /// let short = stock.lock("sku-43").lease(Duration::from_millis(20)).await?;
    /// assert!(short.protect(std::future::pending::<()>()).await.is_err());
    /// # Ok(()) }
    /// ```
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.hold.protect(future).await
    }

    /// Lets the hold end no earlier than `lease` from now: it never becomes shorter. A hold without
    /// a lease stays without one.
    ///
    /// # Errors
    /// [`ExtendError::InvalidLease`]: zero or above ten years; nothing is changed.
    /// [`ExtendError::Lost`]: the lock is no longer held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").lease(Duration::from_secs(10)).await?;
    /// guard.extend(Duration::from_secs(30))?;
    /// # Ok(()) }
    /// ```
    pub fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        self.hold.extend(lease)
    }

    /// Another guard of the same hold, with the same token and the same lease:
    /// [`extend`](Guard::extend) on one guard counts for all. The hold ends when all its guards are
    /// gone.
    ///
    /// # Errors
    /// [`Lost`]: the lock is no longer held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let outer = stock.lock("sku-42").await?;
    /// let inner = outer.reenter()?;
    /// assert_eq!((outer.token(), outer.depth()), (inner.token(), 2));
    /// outer.release().await?;
    /// assert!(inner.fence().is_ok());
    /// # Ok(()) }
    /// ```
    pub fn reenter(&self) -> Result<Guard, Lost> {
        self.fence()?;
        Ok(Guard { hold: self.hold.clone() })
    }

    /// The number of guards that share the hold: 1 without [`reenter`](Guard::reenter).
    pub fn depth(&self) -> usize {
        self.hold.depth()
    }

    /// Returns whether this is a share of the lock: other holders may have a share, too.
    pub fn is_shared(&self) -> bool {
        self.hold.is_shared()
    }

    /// Turns the lock into a share, with the same token and lease. No other request gets the lock
    /// in between, and shares that wait first in the queue are granted. The change applies to all
    /// guards of the hold. A share stays a share.
    ///
    /// # Errors
    /// [`Lost`]: the lock was lost before. It is released in any case.
    ///
    /// Curator: `InterProcessReadWriteLock`, where the writer takes the read lock and releases the
    /// write lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let writer = stock.lock("sku-42").await?;
    /// let token = writer.token();
    /// let reader = writer.downgrade()?;
    /// assert_eq!((reader.is_shared(), reader.token()), (true, token));
    /// let other = stock.try_share("sku-42").await?;
    /// # Ok(()) }
    /// ```
    pub fn downgrade(self) -> Result<Guard, Lost> {
        self.fence()?;
        if !self.is_shared()
            && let [name] = self.hold.want.names()
        {
            let share = Want::Share(name.clone());
            let reduced = self.hold.service.engine.reduce(self.hold.request(), share);
            self.fence()?;
            if !reduced {
                return Err(Lost { reason: LostReason::LeaseEnded });
            }
        }
        Ok(self)
    }

    /// Turns a share into the lock, if there is no other share, with a new, higher token. Never
    /// waits for other holders: if there is another share, the call fails at once, even while other
    /// requests wait. So two callers that upgrade cannot wait for each other. The call waits for
    /// one answer of the grantor, at most [`Timing::answer`](crate::Timing::answer). If all other
    /// shares are [kept](crate::LockService::keep_locks), they are recalled first, and the grantor
    /// is asked again. The change applies to all guards of the hold. A lock stays a lock.
    ///
    /// # Errors
    /// [`UpgradeError`], with the guard, which is a share as before, unless the share was lost.
    ///
    /// # Cancel safety
    /// The future has the guard: dropping it releases the share, or the lock if the share had
    /// become the lock.
    ///
    /// Curator: none; a reader of `InterProcessReadWriteLock` that asks for the write lock waits
    /// for ever.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use elderlock::UpgradeError;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let reader = stock.share("sku-42").await?;
    /// let other = stock.share("sku-42").await?;
    /// let (error, reader) = reader.upgrade().await.unwrap_err();
    /// assert_eq!(error, UpgradeError::Shared { others: 1 });
    /// other.release().await?;
    /// let writer = reader.unwrap().upgrade().await.map_err(|(error, _)| error)?;
    /// assert!(!writer.is_shared());
    /// # Ok(()) }
    /// ```
    pub fn upgrade(self) -> UpgradeFuture {
        let hold = self.hold.request();
        let asking = CommandFuture::new(self.hold.service.clone(), move |request| {
            Command::Upgrade { request, hold }
        });
        UpgradeFuture { asking, guard: Some(self) }
    }

    /// Releases the lock and returns whether it was held until now. Does not wait for the grantor:
    /// the release is repeated until the grantor confirms it. With other guards of the same hold
    /// around, only this guard ends.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the lock had been lost before. It is released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock too.
    ///
    /// Geode: `DistributedLockService.unlock`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// stock.lock("sku-42").await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release()
    }

    /// Releases the lock, as [`release`](Guard::release), and waits until the grantor knows that.
    /// From then on no [`try_lock`](crate::LockService::try_lock) of any member is refused because
    /// of this hold. This takes one round trip to the grantor, none at the grantor's own member,
    /// and at most one [member lease](crate::Timing::member_lease). If the grantor changes
    /// meanwhile, the next one is asked. With other guards of the same hold around, only this guard
    /// ends, and the call does not wait.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the lock had been lost before. [`ReleaseError::Unconfirmed`]: no
    /// grantor has answered. The lock is released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock too, but then the caller cannot know when the grantor
    /// does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// stock.lock("sku-42").await?.release_and_confirm().await?;
    /// let next = stock.try_lock("sku-42").await?; // of any member
    /// # Ok(()) }
    /// ```
    pub async fn release_and_confirm(self) -> Result<(), ReleaseError> {
        self.hold.release_confirmed().await
    }

    /// The requests to release the lock. There are none unless the lock was requested as
    /// [`revocable`](crate::LockBuilder::revocable). The returned value does not keep the lock
    /// held.
    ///
    /// Curator: `Revocable.makeRevocable`, which takes a listener.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").revocable().await?;
    /// let mut revocation = guard.revocation();
    /// stock.revoke("sku-42").metadata("stock-taking").await?;
    /// tokio::select! {
    ///     request = revocation.requested() => {
    ///         assert_eq!(request.unwrap().metadata.as_bytes(), b"stock-taking");
    ///     }
    ///     () = std::future::pending() => {} // the work
    /// }
    /// guard.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn revocation(&self) -> Revocation {
        self.hold.revocation()
    }

    /// The token as a number for logs, without a claim that the lock is still held.
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// The lock's name.
    pub fn name(&self) -> &[u8] {
        self.hold.name()
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        self.hold.service_name()
    }
}

impl std::fmt::Debug for Guard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hold.debug("Guard", f)
    }
}

/// A pending [`upgrade`](Guard::upgrade).
///
/// # Cancel safety
/// The future has the guard: dropping it releases the share, or the lock if the share had become
/// the lock.
#[must_use = "dropping it releases the share"]
pub struct UpgradeFuture {
    asking: CommandFuture,
    guard: Option<Guard>,
}

impl Future for UpgradeFuture {
    type Output = Result<Guard, (UpgradeError, Option<Guard>)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.asking).poll(context));
        let guard = self.guard.take().expect("polled after it was ready");
        // The clock is read first: a hold that a guard has found lost stays lost.
        if let Err(lost) = guard.fence() {
            return Poll::Ready(Err((lost.into(), None)));
        }
        let error = match answer {
            Err(Outcome::Upgraded { .. }) => return Poll::Ready(Ok(guard)),
            Err(Outcome::Shared(others)) => UpgradeError::Shared { others },
            _ => UpgradeError::Undecided,
        };
        Poll::Ready(Err((error, Some(guard))))
    }
}

impl std::fmt::Debug for UpgradeFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Upgrading").field("guard", &self.guard).finish_non_exhaustive()
    }
}
