//! `SuspendGuard`: a suspended service.

use super::held::held;
use super::hold::HoldHandle;
use super::lock_error::{Lost, ReleaseError};
use crate::protocol::Token;

/// A suspended service, from [`suspend`](crate::LockService::suspend): as long as this guard is
/// held, no other [owner](crate::LockBuilder::owner) holds anything of the service. A suspender
/// with an owner must give that owner with every lock that it requests meanwhile. A suspension
/// without an owner is the whole member's, and each of its owners with a hold passes it.
///
/// [`resume().await`](SuspendGuard::resume) is the documented way to end the suspension. Dropping
/// the guard does the same, but does not report whether the suspension had been lost before. `Drop`
/// never blocks, spawns or panics.
///
/// Only this guard resumes the service, and it does so once:
///
/// ```compile_fail,E0382
/// # async fn f(stock: elderlock::LockService) {
/// let suspended = stock.suspend().await.unwrap();
/// suspended.resume().await.unwrap();
/// suspended.resume().await.unwrap();
/// # }
/// ```
///
/// Geode: the code between `suspendLocking` and `resumeLocking`.
#[must_use = "the service is resumed as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct SuspendGuard {
    hold: HoldHandle,
}

impl SuspendGuard {
    pub(super) fn new(hold: HoldHandle) -> Self {
        SuspendGuard { hold }
    }

    fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    /// The fencing token of the suspension, if the service is suspended by this guard at this
    /// instant. It is higher than the tokens of all earlier holds, so a resource that has seen it
    /// refuses them all.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good. Asking changes nothing.
    pub fn fence(&self) -> Result<Token, Lost> {
        self.hold.fence()
    }

    /// Ends the suspension and returns whether it lasted until now. Does not wait for the grantor:
    /// the waiters continue as soon as the grantor knows.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the suspension had been lost before. It is over in any case.
    ///
    /// # Cancel safety
    /// Dropping the future ends the suspension too.
    ///
    /// Geode: `DistributedLockService.resumeLocking`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let suspended = stock.suspend().reason("stock-taking").owner(1).await?;
    /// assert!(stock.try_lock("sku-42").owner(2).await.is_err());
    /// suspended.resume().await?;
    /// assert!(stock.try_lock("sku-42").owner(2).await.is_ok());
    /// # Ok(()) }
    /// ```
    pub async fn resume(self) -> Result<(), ReleaseError> {
        self.hold.release()
    }

    /// Ends the suspension, and waits until the grantor knows that. See
    /// [`Guard::release_and_confirm`](crate::Guard::release_and_confirm).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the suspension had been lost before. [`ReleaseError::Unconfirmed`]:
    /// no grantor has answered. The suspension is over in any case.
    ///
    /// # Cancel safety
    /// Dropping the future ends the suspension too.
    pub async fn resume_and_confirm(self) -> Result<(), ReleaseError> {
        self.hold.release_confirmed().await
    }

    /// The token as a number for logs, without a claim that the service is still suspended.
    pub fn token(&self) -> Token {
        self.hold.token()
    }
}

held!(SuspendGuard);

impl std::fmt::Debug for SuspendGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hold.debug("SuspendGuard", f)
    }
}
