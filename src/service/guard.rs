//! `Guard`: a held lock, and the part that it shares with a held batch and a held suspension.

use super::claims::Claim;
use super::lock_error::InvalidLease;
use super::lock_service::{LockService, ServiceHandle};
use super::request::CommandFuture;
use super::revocation::Revocation;
use crate::protocol::{Command, LineageId, LostReason, Outcome, RequestId, Time, Token, Want};
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::planted;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// A guard's part in a hold; the last one releases it.
pub struct HoldHandle {
    pub(super) service: Arc<ServiceHandle>,
    pub(super) want: Want,
    pub(super) cell: Arc<HoldCell>,
    /// The index of the guard's name: the first, except for an owner that enters one of several
    /// that it has.
    index: u32,
    /// It was released before it is dropped.
    released: bool,
}

impl Clone for HoldHandle {
    fn clone(&self) -> Self {
        let HoldHandle { service, want, cell, index, .. } = self;
        // There is this one, so there is none that was the last.
        cell.enter();
        HoldHandle { service: service.clone(), want: want.clone(), cell: cell.clone(), index: *index, released: false }
    }
}

impl Drop for HoldHandle {
    fn drop(&mut self) {
        if self.released {
            return;
        }
        if self.cell.leave() {
            let _ = self.end();
        } else if planted!(GiveBackWithFirst) {
            self.give_back(self.cell.fence_now().1);
        }
    }
}

impl HoldHandle {
    /// The first guard of a hold.
    pub(super) fn new(service: Arc<ServiceHandle>, want: Want, cell: Arc<HoldCell>) -> HoldHandle {
        if let Want::Share(_) = want {
            cell.share();
        }
        HoldHandle { service, want, cell, index: 0, released: false }
    }

    /// One more, of a hold that is not over and of one of its names; `None`: its last guard is gone.
    pub(super) fn enter(
        service: &Arc<ServiceHandle>,
        want: &Want,
        cell: &Arc<HoldCell>,
        index: u32,
    ) -> Option<HoldHandle> {
        let hold =
            || HoldHandle { service: service.clone(), want: want.clone(), cell: cell.clone(), index, released: false };
        cell.enter().then(hold)
    }

    /// The last one is gone. Returns whether it was held until now.
    fn end(&self) -> Result<Token, LostReason> {
        // Only the clock can tell whether that was in time.
        let (held, now) = self.cell.fence_now();
        // Also if it is lost: the core may not have noticed a loss that the clock has shown to a
        // guard.
        if !planted!(KeepDroppedHold) {
            self.give_back(now);
        }
        // After it: the application's recorder must not be able to keep a lock.
        self.cell.end(held.err());
        held
    }

    fn give_back(&self, now: Time) {
        self.service.engine.release(&self.service.lane, self.want.names().first(), &self.cell, now);
    }

    /// The number of its request.
    pub(super) fn request(&self) -> RequestId {
        self.service.engine.request_of(&self.cell)
    }

    /// How many guards the hold has.
    pub(super) fn depth(&self) -> usize {
        self.cell.guards()
    }

    /// The claims end with the hold.
    pub(super) fn belongs_to(&self, claims: Vec<Claim>) {
        self.cell.keep(Box::new(claims));
    }

    pub(crate) fn watch(&self) -> LossWatch {
        LossWatch { cell: self.cell.clone(), index: self.index }
    }

    pub(crate) fn fence(&self) -> Result<Token, Lost> {
        self.cell.fence().map(|first| nth(first, self.index)).map_err(|reason| Lost { reason })
    }

    pub(crate) fn token(&self) -> Token {
        nth(self.cell.token(), self.index)
    }

    pub(crate) fn lineage(&self) -> LineageId {
        self.cell.lineage()
    }

    /// Of a batch: the first one's, unless it was entered by another one.
    pub(crate) fn name(&self) -> &[u8] {
        self.want.names().get(self.index as usize).map_or(&[], |name| name.as_bytes())
    }

    pub(crate) fn is_shared(&self) -> bool {
        self.cell.is_shared()
    }

    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        self.cell.cancellation_token()
    }

    /// Whether it is of that service at that member.
    pub(crate) fn is_of(&self, service: &LockService) -> bool {
        service.is_of(&self.service.engine) && self.service_name() == service.name()
    }

    pub(crate) fn service_name(&self) -> &str {
        self.service.name.as_str()
    }

    pub(crate) fn revocation(&self) -> Revocation {
        Revocation::new(self.cell.clone())
    }

    pub(crate) async fn lost(&self) -> LostReason {
        self.cell.lost().await
    }

    pub(crate) async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            reason = self.cell.lost() => Err(Lost { reason }),
            output = future => Ok(output),
        }
    }

    pub(crate) fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        let lease = InvalidLease::check(lease)?;
        // First by the clock: a hold that a guard was told to be over stays over.
        self.fence()?;
        let held = self.service.engine.extend(self.request(), lease);
        self.fence()?;
        if held { Ok(()) } else { Err(ExtendError::Lost(Lost { reason: LostReason::LeaseEnded })) }
    }

    /// Ends one of its guards.
    pub(crate) fn release(mut self) -> Result<(), ReleaseError> {
        self.let_go()?;
        Ok(())
    }

    /// Ends one of its guards, and returns whether it was the last one.
    fn let_go(&mut self) -> Result<bool, ReleaseError> {
        self.released = true;
        let is_last = self.cell.leave();
        let held = if is_last { self.end() } else { self.cell.fence() };
        held.map(|_| is_last).map_err(ReleaseError::Lost)
    }

    /// Ends one of its guards. If it was the last one, the returned future waits until the grantor
    /// has heard of that.
    pub(crate) fn release_confirmed(mut self) -> impl Future<Output = Result<(), ReleaseError>> + Send + use<> {
        // Asked while it is held: afterwards its number has no owner.
        let (over, service) = (self.request(), self.service.clone());
        let is_last = self.let_go();
        drop(self);
        async move {
            if !is_last? || planted!(ConfirmUnheard) {
                return Ok(());
            }
            let name = service.name.clone();
            match CommandFuture::new(service, move |request| Command::Confirm { request, service: name, over }).await {
                Err(Outcome::Confirmed) => Ok(()),
                _ => Err(ReleaseError::Unconfirmed),
            }
        }
    }

    pub(super) fn debug(&self, kind: &str, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct(kind);
        text.field("service", &self.service.name.as_str());
        if let [name] = self.want.names() {
            text.field("name", name);
        } else {
            text.field("names", &self.want.names());
        }
        text.field("token", &self.cell.token()).field("lost", &self.cell.lost_reason()).finish_non_exhaustive()
    }
}

/// A held lock, or a [share](crate::LockService::share) of it. The owner of the value has the lock:
/// any task or thread may carry it, and no other can free it.
///
/// Call [`fence`](Guard::fence) before each side effect and hand its token to the resource, which refuses tokens lower
/// than the highest it has seen.
///
/// [`release().await`](Guard::release) is the documented way to release it. Dropping it does the
/// same without telling whether the lock had been lost before. `Drop` never blocks, spawns or
/// panics, and works outside any runtime and after the member has left.
///
/// Geode: none; there a lock belongs to a thread. Curator: `InterProcessMutex` between `acquire` and `release`.
#[must_use = "the lock is given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct Guard {
    hold: HoldHandle,
}

impl Guard {
    pub(crate) fn new(hold: HoldHandle) -> Self {
        Guard { hold }
    }

    /// The fencing token, if the lock is held at this instant. Cheap: a clock and four atomics, no message.
    ///
    /// Once it has failed it fails for good.
    ///
    /// # Errors
    /// [`Lost`] with the reason: the lock's lease or the member's lease is over, the cluster went on without the
    /// member, the service was destroyed here, or the member has left. Nothing is changed by asking.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// [`TokenGate`](crate::TokenGate). It stays the same for as long as the member keeps its holds.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// Dropping the future changes nothing; a loss in between is told by the next call.
    pub async fn lost(&self) -> LostReason {
        self.hold.lost().await
    }

    /// A token that is cancelled when the hold is over: lost, or released by its last guard. For code that takes a
    /// [`CancellationToken`]; it needs no task and no runtime, and does not keep the lock held. Each call gives another
    /// child of one token: cancelling it changes nothing for the hold and for the others.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    pub(crate) fn into_hold(self) -> HoldHandle {
        self.hold
    }

    /// Runs `future` until it completes or the lock is lost, whichever is first.
    ///
    /// It can be stopped only where it awaits: a side effect still wants [`fence`](Guard::fence) and a resource that
    /// checks the token.
    ///
    /// # Errors
    /// [`Lost`]: the lock was lost before `future` completed, and `future` was dropped where it stood.
    ///
    /// # Cancel safety
    /// Dropping this drops `future`; the lock stays held.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    /// Lets the hold end no earlier than `lease` from now: it never becomes shorter. A hold without a lease stays
    /// without one.
    ///
    /// # Errors
    /// [`ExtendError::InvalidLease`]: zero or above ten years; nothing is changed. [`ExtendError::Lost`]: there is
    /// nothing left to extend.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    /// Another guard of the same hold, with the same token and the same lease: [`extend`](Guard::extend) either of them
    /// and it counts for both. The hold ends when all its guards are gone.
    ///
    /// # Errors
    /// [`Lost`]: the lock is held no more.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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

    /// How many guards share the hold: 1 without [`reenter`](Guard::reenter).
    pub fn depth(&self) -> usize {
        self.hold.depth()
    }

    /// Whether this is a share of the lock: others may have one, too.
    pub fn is_shared(&self) -> bool {
        self.hold.is_shared()
    }

    /// Turns the lock into a share, with the same token and lease. No other request gets the lock
    /// in between, and shares that wait first in line are granted. Counts for all guards of the
    /// hold. A share stays a share.
    ///
    /// # Errors
    /// [`Lost`]: the lock was lost before. It is released all the same.
    ///
    /// Curator: `InterProcessReadWriteLock`, where the writer takes the read lock and releases the
    /// write lock.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
            let narrowed = self.hold.service.engine.narrow(self.hold.request(), share);
            self.fence()?;
            if !narrowed {
                return Err(Lost { reason: LostReason::LeaseEnded });
            }
        }
        Ok(self)
    }

    /// Turns a share into the lock, if there is no other share, with a new, higher token. Never
    /// waits for others: if there is another share it fails at once, even while others wait in
    /// line. So two callers that upgrade cannot wait for each other. It waits for one answer of the
    /// grantor, at most [`Timing::answer`](crate::Timing::answer). Counts for all guards of the
    /// hold. A lock stays a lock.
    ///
    /// # Errors
    /// [`UpgradeError`], with the guard, which is a share as before, unless it was lost.
    ///
    /// # Cancel safety
    /// The future has the guard: dropping it releases the share, or the lock if it had become it.
    ///
    /// Curator: none; a reader of `InterProcessReadWriteLock` that asks for the write lock waits for ever.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
        let asking = CommandFuture::new(self.hold.service.clone(), move |request| Command::Upgrade { request, hold });
        UpgradeFuture { asking, guard: Some(self) }
    }

    /// Releases the lock and says whether it was held until now. Does not wait for the grantor: the
    /// release is repeated until it is known there. With other guards of the same hold around, only
    /// this one ends.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the lock had been lost before. It is released all the same.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock too.
    ///
    /// Geode: `DistributedLockService.unlock`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// stock.lock("sku-42").await?.release().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release()
    }

    /// Releases the lock, as [`release`](Guard::release), and waits until the grantor has heard of
    /// it. From then on no [`try_lock`](crate::LockService::try_lock) of any member is refused
    /// because of this hold. It takes one round trip to the grantor, none at the grantor's own
    /// member, and at most one [member lease](crate::Timing::member_lease). If the grantor changes
    /// meanwhile, the next one is asked. With other guards of the same hold around, only this one
    /// ends, and it does not wait.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the lock had been lost before. [`ReleaseError::Unconfirmed`]: no
    /// grantor has answered. It is released all the same.
    ///
    /// # Cancel safety
    /// Dropping the future releases the lock too, but then nothing says when the grantor has heard
    /// of it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// stock.lock("sku-42").await?.release_and_confirm().await?;
    /// let next = stock.try_lock("sku-42").await?; // of whatever member
    /// # Ok(()) }
    /// ```
    pub async fn release_and_confirm(self) -> Result<(), ReleaseError> {
        self.hold.release_confirmed().await
    }

    /// The requests to release the lock. There are none unless the lock was asked for as
    /// [`revocable`](crate::LockBuilder::revocable). It keeps nothing held.
    ///
    /// Curator: `Revocable.makeRevocable`, which is given a listener.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").revocable().await?;
    /// let mut revocation = guard.revocation();
    /// stock.revoke("sku-42").metadata("stock-taking").await?;
    /// tokio::select! {
    ///     request = revocation.requested() => assert_eq!(request.unwrap().metadata.as_bytes(), b"stock-taking"),
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

/// Tells whether a hold is over, without keeping it, from [`Guard::watch`].
///
/// It outlives the guard. It permits nothing: a task that acts on the lock has the guard and asks
/// it for [`fence`](Guard::fence).
#[derive(Clone)]
pub struct LossWatch {
    cell: Arc<HoldCell>,
    index: u32,
}

impl LossWatch {
    /// Why the hold is over; `None` while it is held at this instant. Once over it stays so, for
    /// the first reason. [`LostReason::Released`]: all its guards were released in time.
    pub fn reason(&self) -> Option<LostReason> {
        self.cell.fence().err()
    }

    /// Completes when the hold is over, with the reason.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; an end in between is told by the next call.
    pub async fn lost(&self) -> LostReason {
        self.cell.lost().await
    }

    /// The token of the hold as a number for logs, without a claim that it is still held.
    pub fn token(&self) -> Token {
        nth(self.cell.token(), self.index)
    }

    /// The lineage that dealt the token. See [`Guard::lineage`].
    pub fn lineage(&self) -> LineageId {
        self.cell.lineage()
    }
}

/// The grantor takes the tokens of one grant from one range, in the order of the names.
pub(super) fn nth(first: Token, index: u32) -> Token {
    first.plus(u64::from(index))
}

impl std::fmt::Debug for LossWatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LossWatch").field("token", &self.cell.token()).field("reason", &self.reason()).finish()
    }
}

/// An [`upgrade`](Guard::upgrade) on its way.
///
/// # Cancel safety
/// It has the guard: dropping it releases the share, or the lock if it had become it.
#[must_use = "dropping it gives the share back"]
pub struct UpgradeFuture {
    asking: CommandFuture,
    guard: Option<Guard>,
}

impl Future for UpgradeFuture {
    type Output = Result<Guard, (UpgradeError, Option<Guard>)>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let answer = std::task::ready!(Pin::new(&mut self.asking).poll(context));
        let guard = self.guard.take().expect("polled after it was ready");
        // First by the clock: a hold that a guard was told to be over stays over.
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

/// Why a share did not become the lock. Unless it is lost it is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// Others have a share, too. Try again when they have not, or release the share and ask for the
    /// lock.
    #[error("{others} other holders have shares of the lock")]
    Shared {
        /// How many.
        others: u64,
    },
    /// The grantor did not answer in time, or cannot decide at the moment; or another guard of the
    /// hold was downgraded meanwhile. Try again.
    #[error("no grantor answers at the moment, so the lock may be shared; try again")]
    Undecided,
    /// The share is held no more.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl UpgradeError {
    /// Whether the share is held no more.
    pub fn is_lost(&self) -> bool {
        matches!(self, UpgradeError::Lost(_))
    }
}

/// A lock that was held is held no more.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lock is lost: {}", says(.reason))]
#[non_exhaustive]
pub struct Lost {
    /// Why.
    pub reason: LostReason,
}

impl Lost {
    pub(crate) fn new(reason: LostReason) -> Self {
        Lost { reason }
    }
}

/// Why releasing failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before it was released: the last actions under it may have met
    /// another holder.
    #[error("the lock was lost before it was released: {}", says(.0))]
    Lost(LostReason),
    /// Of [`release_and_confirm`](Guard::release_and_confirm): the lock is released, and was held
    /// until then, but no grantor has confirmed that within a member lease, or the member left, was
    /// expelled or destroyed the service meanwhile. Others get the lock when a grantor hears of it,
    /// at the latest when this member is out of the view.
    #[error("the lock is released here, but no grantor confirmed it; it is free when a grantor hears of it")]
    Unconfirmed,
}

impl ReleaseError {
    /// Whether the lock had been lost before.
    pub fn is_lost(&self) -> bool {
        matches!(self, ReleaseError::Lost(_))
    }
}

/// Why extending a hold failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// Zero, or more than ten years. The hold and its lease are as before.
    #[error(transparent)]
    InvalidLease(#[from] InvalidLease),
    /// The lock is held no more.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl ExtendError {
    /// Whether the lock is held no more.
    pub fn is_lost(&self) -> bool {
        matches!(self, ExtendError::Lost(_))
    }
}

fn says(reason: &LostReason) -> &'static str {
    match reason {
        LostReason::LeaseEnded => "its lease ran out",
        LostReason::Suspended => "no elder with a quorum renewed the member's lease in time",
        LostReason::Expelled => "the cluster went on without this member",
        LostReason::Superseded => "another hold of it has a higher token",
        LostReason::Left => "the member has left",
        LostReason::Destroyed => "its service was destroyed at this member",
        LostReason::Revoked => "it was taken away after its holder had been told that it is wanted back",
        LostReason::Released => "it was given back",
        LostReason::Forked => "this process was forked off the one that has it: join after the fork",
    }
}
