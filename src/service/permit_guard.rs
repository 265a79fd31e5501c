//! `PermitGuard`: permits of an object.

use super::held::{held, held_by_token};
use super::hold::{HoldHandle, confirmed};
use super::lock_error::{Lost, ReleaseError};
use crate::protocol::{LostReason, Metadata, Permits, Token, Want};
use crate::runtime::planted;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Permits of an object, held together, from [`permits`](crate::LockService::permits). They are
/// granted and lost as one. Each has a fencing token of its own, and the tokens are consecutive.
/// Permits may be returned one by one.
///
/// The documentation of a [`Guard`](crate::Guard) holds for this guard.
///
/// Curator: the `Lease`s of `InterProcessSemaphoreV2`.
#[must_use = "the permits are returned as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct PermitGuard {
    hold: HoldHandle,
    left: u32,
}

impl PermitGuard {
    pub(super) fn new(hold: HoldHandle) -> Self {
        let left = hold.want.tokens() + u32::from(planted!(CountOneMore));
        PermitGuard { hold, left }
    }

    fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    fn into_hold(self) -> HoldHandle {
        self.hold
    }

    /// The number of remaining permits: the granted ones without the
    /// [returned](PermitGuard::return_permits) ones. 1 to 65,536.
    pub fn permits(&self) -> u32 {
        self.left
    }

    /// The tokens of the remaining permits, without a claim that they are still held.
    pub fn tokens(&self) -> impl Iterator<Item = Token> + use<> {
        let (first, left) = (self.token(), self.left);
        (0..left).map(move |index| first.plus(u64::from(index)))
    }

    /// Returns `count` of the permits, those with the highest tokens; the others stay held. Does
    /// not wait for the grantor, which gets one message. If that is lost with the grantor, the next
    /// grantor learns the number from this member.
    ///
    /// # Errors
    /// [`ReturnPermitsError`]; nothing is returned then.
    ///
    /// Curator: `InterProcessSemaphoreV2.returnLease`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let mut permits = pools.permits("db", 3).await?;
    /// permits.return_permits(2)?;
    /// assert_eq!((permits.permits(), permits.tokens().count()), (1, 1));
    /// let others = pools.try_permits("db", 2).await?;
    /// # Ok(()) }
    /// ```
    pub fn return_permits(&mut self, count: u32) -> Result<(), ReturnPermitsError> {
        if count == 0 {
            return Ok(());
        }
        self.fence()?;
        let left = self.left.checked_sub(count).and_then(|left| Permits::new(left).ok());
        let ([name], Some(left)) = (self.hold.want.names(), left) else {
            return Err(ReturnPermitsError::TooMany { held: self.left });
        };
        let reduced =
            self.hold.service.engine.reduce(self.hold.request(), Want::Permits(name.clone(), left));
        self.fence()?;
        if !reduced {
            return Err(ReturnPermitsError::Lost(Lost { reason: LostReason::LeaseEnded }));
        }
        if !planted!(ReturnedAndKept) {
            self.left = left.get();
        }
        Ok(())
    }

    /// The [metadata](crate::LockBuilder::metadata) of the grant, which counts for each of its
    /// permits.
    pub fn metadata(&self) -> Metadata {
        self.hold.cell.metadata()
    }

    /// Takes the permits apart into one [`Permit`] for each remaining permit, in the order of their
    /// tokens. Several tasks can then have a permit each, and each task releases its own.
    ///
    /// Curator: the collection that `InterProcessSemaphoreV2.acquire(qty)` returns.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let mut permits = pools.permits("db", 3).await?.into_permits();
    /// permits.remove(1).release().await?;
    /// let other = pools.try_permits("db", 1).await?;
    /// assert!(permits[0].fence()? < permits[1].fence()?);
    /// # Ok(()) }
    /// ```
    pub fn into_permits(self) -> Vec<Permit> {
        let left = Arc::new(AtomicU32::new(self.left));
        let tokens =
            self.tokens().map(|token| if planted!(PermitsAlike) { self.token() } else { token });
        tokens.map(|token| Permit { hold: self.hold.clone(), left: left.clone(), token }).collect()
    }
}

held!(PermitGuard, Permit);
held_by_token!(PermitGuard);

impl std::fmt::Debug for PermitGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hold.debug("PermitGuard", f)
    }
}

/// One permit of several that were granted together, from
/// [`into_permits`](PermitGuard::into_permits). All of a grant are lost together, and each ends by
/// itself, in any order: released or dropped.
///
/// Curator: `Lease`.
#[must_use = "the permit is returned as soon as it is dropped"]
#[clippy::has_significant_drop]
pub struct Permit {
    hold: HoldHandle,
    /// The number of remaining permits of the grant, which is all that the grantor needs.
    left: Arc<AtomicU32>,
    token: Token,
}

impl Permit {
    fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    /// Returns the permit's own fencing token, if the permit is held at this instant.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good. Asking changes nothing.
    pub fn fence(&self) -> Result<Token, Lost> {
        self.hold.fence().map(|_| self.token)
    }

    /// Releases the permit and returns whether it was held until now. Does not wait for the
    /// grantor.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the permit had been lost before. It is released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the permit too.
    ///
    /// Curator: `Lease.close`.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.fence().map(drop).map_err(|lost| ReleaseError::Lost(lost.reason))
    }

    /// Releases the permit, and waits until the grantor knows that. A request of any member that
    /// begins later is not refused because of this permit. See
    /// [`Guard::release_and_confirm`](crate::Guard::release_and_confirm).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the permit had been lost before. [`ReleaseError::Unconfirmed`]: no
    /// grantor has answered. The permit is released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the permit too.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let mut permits = pools.permits("db", 3).await?.into_permits();
    /// permits.remove(1).release_and_confirm().await?;
    /// let next = pools.try_permits("db", 1).await?; // of any member
    /// # Ok(()) }
    /// ```
    pub async fn release_and_confirm(self) -> Result<(), ReleaseError> {
        let held = self.fence().map(drop);
        let (service, hold) = (self.hold.service.clone(), self.hold.request());
        drop(self);
        held.map_err(|lost| ReleaseError::Lost(lost.reason))?;
        confirmed(service, hold).await
    }

    /// Returns the permit's token as a number for logs, without a claim that the permit is still
    /// held.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The [metadata](crate::LockBuilder::metadata) of the permit's request, which counts for all
    /// permits that were granted with it. Other members read it in
    /// [`Semaphore::permits_in_use`](crate::Semaphore::permits_in_use) for as long as the permit is
    /// in use. Sends no message.
    ///
    /// Curator: `Lease.getData`, which asks the server.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let pools = member.lock_service("pools").await?;
    /// let limit = pools.open("db", 3_u32.to_le_bytes()).await?;
    /// let permits = pools.permits("db", 2).metadata("report 17").await?.into_permits();
    /// assert!(permits.iter().all(|permit| permit.metadata().as_bytes() == b"report 17"));
    /// # Ok(()) }
    /// ```
    pub fn metadata(&self) -> Metadata {
        self.hold.cell.metadata()
    }

    /// The object's name.
    pub fn name(&self) -> &[u8] {
        self.hold.name()
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let left = self.left.fetch_sub(1, Ordering::AcqRel) - 1;
        // The last permit returns the remaining ones by ending the hold. If two returns arrive in
        // the wrong order, the core takes the one that leaves less.
        let left = if planted!(PermitReturnsTwo) { left.saturating_sub(1) } else { left };
        if let ([name], Ok(left)) = (self.hold.want.names(), Permits::new(left))
            && !planted!(KeepDroppedPermit)
        {
            let want = Want::Permits(name.clone(), left);
            self.hold.service.engine.reduce_unheard(&self.hold.cell, want);
        }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Permit")
            .field("token", &self.token)
            .field("fence", &self.fence())
            .finish_non_exhaustive()
    }
}

/// Why [`PermitGuard::return_permits`] returned nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReturnPermitsError {
    /// The count is not below the number of permits: to return all, release or drop the guard.
    #[error("cannot return all of {held} permits this way; release the guard instead")]
    TooMany {
        /// The number of permits that are held.
        held: u32,
    },
    /// The permits are no longer held.
    #[error(transparent)]
    Lost(#[from] Lost),
}
