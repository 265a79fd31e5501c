//! `PermitGuard`: permits of an object.

use super::guard::{ExtendError, Hold, Lost, ReleaseError};
use super::revocation::Revocation;
use crate::protocol::{LostReason, Permits, Token, Want};
use crate::runtime::planted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// Permits of an object, held together, from [`permits`](crate::LockService::permits). They are granted and lost as one,
/// and each has a fencing token of its own; they may be given back one by one.
///
/// Everything said of a [`Guard`](crate::Guard) holds for this one.
///
/// Curator: the `Lease`s of `InterProcessSemaphoreV2`.
#[must_use = "the permits are given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct PermitGuard {
    hold: Hold,
    left: u32,
}

impl PermitGuard {
    pub(super) fn new(hold: Hold) -> Self {
        let left = hold.want.tokens() + u32::from(planted!(CountOneMore));
        PermitGuard { hold, left }
    }

    /// The fencing token of the first permit, if they are held at this instant. The others follow it, one by one.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good. Nothing is changed by asking.
    pub fn fence(&self) -> Result<Token, Lost> {
        self.hold.fence()
    }

    /// How many permits are left: as many as were granted, but for those that were
    /// [given back](PermitGuard::give_back). 1 to 65,536.
    pub fn permits(&self) -> u32 {
        self.left
    }

    /// The tokens of the permits that are left, without a claim that they are still held.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + use<> {
        let (first, left) = (self.token(), self.left);
        (0..left).map(move |index| Token::new(first.view(), first.sequence().wrapping_add(index)))
    }

    /// Gives back `count` of the permits, those with the highest tokens; the others stay held. Does not wait for the
    /// grantor, which is told once and learns it from this member if the word is lost with it.
    ///
    /// # Errors
    /// [`GiveBackError`]; nothing is given back then.
    ///
    /// Curator: `InterProcessSemaphoreV2.returnLease`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let mut permits = pools.permits("db", 3).await?;
    /// permits.give_back(2)?;
    /// assert_eq!((permits.permits(), permits.tokens().count()), (1, 1));
    /// let others = pools.try_permits("db", 2).await?;
    /// # Ok(()) }
    /// ```
    pub fn give_back(&mut self, count: u32) -> Result<(), GiveBackError> {
        if count == 0 {
            return Ok(());
        }
        self.fence()?;
        let left = self.left.checked_sub(count).and_then(|left| Permits::new(left).ok());
        let ([name], Some(left)) = (self.hold.want.names(), left) else {
            return Err(GiveBackError::TooMany { held: self.left });
        };
        let narrowed = self.hold.service.engine.narrow(self.hold.cell.request, Want::Permits(name.clone(), left));
        self.fence()?;
        if !narrowed {
            return Err(GiveBackError::Lost(Lost { reason: LostReason::LeaseEnded }));
        }
        if !planted!(GivenBackAndKept) {
            self.left = left.get();
        }
        Ok(())
    }

    /// Takes them apart, one [`Lease`] for each permit that is left, in the order of their tokens: to hand to tasks, say, each of
    /// which gives its own back.
    ///
    /// Curator: the collection that `InterProcessSemaphoreV2.acquire(qty)` returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let mut leases = pools.permits("db", 3).await?.into_leases();
    /// leases.remove(1).release().await?;
    /// let other = pools.try_permits("db", 1).await?;
    /// assert!(leases[0].fence()? < leases[1].fence()?);
    /// # Ok(()) }
    /// ```
    pub fn into_leases(self) -> Vec<Lease> {
        let left = Arc::new(AtomicU32::new(self.left));
        self.tokens().map(|token| Lease { hold: self.hold.clone(), left: left.clone(), token }).collect()
    }

    /// Completes when the permits are lost, with the reason; never while they are held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; a loss in between is told by the next call.
    pub async fn lost(&self) -> LostReason {
        self.hold.cell.lost().await
    }

    /// Runs `future` until it completes or the permits are lost, whichever is first. See [`Guard::protect`](crate::Guard::protect).
    ///
    /// # Errors
    /// [`Lost`]: the permits were lost before `future` completed, and `future` was dropped where it stood.
    ///
    /// # Cancel safety
    /// Dropping this drops `future`; the permits stay held.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        self.hold.protect(future).await
    }

    /// Lets the hold end no earlier than `lease` from now: it never becomes shorter.
    ///
    /// # Errors
    /// As of [`Guard::extend`](crate::Guard::extend).
    pub fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        self.hold.extend(lease)
    }

    /// Gives all permits back and says whether they were held until now. Does not wait for the grantor.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the permits had been lost before. They are given back all the same.
    ///
    /// # Cancel safety
    /// Dropping the future gives the permits back too.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release()
    }

    /// Who wants the permits back: see [`Guard::revocation`](crate::Guard::revocation). They are revoked together.
    pub fn revocation(&self) -> Revocation {
        Revocation::new(self.hold.cell.clone())
    }

    /// The token of the first permit as a number for logs, without a claim that it is still held.
    pub fn token(&self) -> Token {
        self.hold.cell.token()
    }

    /// The object's name.
    pub fn name(&self) -> &[u8] {
        self.hold.want.names().first().map_or(&[], |name| name.as_bytes())
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        self.hold.service.name.as_str()
    }
}

impl std::fmt::Debug for PermitGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hold.debug("PermitGuard", f)
    }
}

/// One permit of several that were granted together, from [`into_leases`](PermitGuard::into_leases). All of a grant are lost
/// together, and each is given back by itself, in any order: released or dropped.
///
/// Curator: `Lease`.
#[must_use = "the permit is given back as soon as the lease is dropped"]
#[clippy::has_significant_drop]
pub struct Lease {
    hold: Hold,
    /// How many of the grant are left. Their number is all that the grantor has to know.
    left: Arc<AtomicU32>,
    token: Token,
}

impl Lease {
    /// Its own fencing token, if it is held at this instant.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good. Nothing is changed by asking.
    pub fn fence(&self) -> Result<Token, Lost> {
        self.hold.fence().map(|_| self.token)
    }

    /// Completes when it is lost, with the reason; never while it is held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; a loss in between is told by the next call.
    pub async fn lost(&self) -> LostReason {
        self.hold.cell.lost().await
    }

    /// Lets it end no earlier than `lease` from now, and with it all of its grant: they never end sooner than before.
    ///
    /// # Errors
    /// As of [`Guard::extend`](crate::Guard::extend).
    pub fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        self.hold.extend(lease)
    }

    /// Gives it back and says whether it was held until now. Does not wait for the grantor.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: it had been lost before. It is given back all the same.
    ///
    /// # Cancel safety
    /// Dropping the future gives it back too.
    ///
    /// Curator: `Lease.close`.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.fence().map(drop).map_err(|lost| ReleaseError::Lost(lost.reason))
    }

    /// Who wants it back: see [`Guard::revocation`](crate::Guard::revocation). All of a grant are revoked together.
    pub fn revocation(&self) -> Revocation {
        Revocation::new(self.hold.cell.clone())
    }

    /// Its token as a number for logs, without a claim that it is still held.
    pub fn token(&self) -> Token {
        self.token
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let left = self.left.fetch_sub(1, Ordering::AcqRel) - 1;
        // The last one gives back what is left by ending the hold. Of two that come the wrong way round the core takes the one that
        // leaves less.
        if let ([name], Ok(left)) = (self.hold.want.names(), Permits::new(left)) {
            let want = Want::Permits(name.clone(), left);
            self.hold.service.engine.narrow_unheard(self.hold.cell.request, want);
        }
    }
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease").field("token", &self.token).field("fence", &self.fence()).finish_non_exhaustive()
    }
}

/// Why [`PermitGuard::give_back`] gave nothing back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GiveBackError {
    /// All permits or more were to be given back: release or drop the guard for that.
    #[error("at most all permits but one are given back so, and {held} are held: release the guard")]
    TooMany {
        /// How many are held.
        held: u32,
    },
    /// The permits are held no more.
    #[error(transparent)]
    Lost(#[from] Lost),
}
