//! Scoped use: take a lock, work under its protection, release it.

use super::guard::Guard;
use super::lock_builder::LockBuilder;
use super::lock_error::{LockError, Lost, ReleaseError};
use super::lock_service::LockService;
use crate::runtime::planted;

impl LockBuilder<Guard> {
    /// Takes the lock, runs `work` until it completes or the lock is lost, whichever is first, and
    /// releases the lock. As [`LockService::with`], with the options of this builder.
    ///
    /// # Errors
    /// [`WithError`].
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped where it stands, and nothing stays held or
    /// queued.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// use elderlock::{LostReason, WithError};
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let short = stock.lock("sku-42").lease(Duration::from_millis(5));
    /// let error = short.with(async |_| std::future::pending::<()>().await).await.unwrap_err();
    /// assert!(matches!(error, WithError::Lost(lost) if lost.reason == LostReason::LeaseEnded));
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(self, work: impl AsyncFnOnce(&Guard) -> T) -> Result<T, WithError> {
        let guard = self.await?;
        let output = guard.protect(work(&guard)).await?;
        planted!(ScopeKeepsLock => std::mem::forget(guard); return Ok(output));
        if let Err(ReleaseError::Lost(reason)) = guard.release().await {
            return Err(Lost::new(reason).into());
        }
        Ok(output)
    }
}

impl LockService {
    /// Takes a lock, runs `work` until it completes or the lock is lost, whichever is first, and
    /// releases the lock. Waits for the lock without a limit, and holds it without a lease: for
    /// other options see [`LockBuilder::with`].
    ///
    /// `work` can be stopped only where it awaits: a side effect still needs
    /// [`fence`](Guard::fence) and a resource that checks the token.
    ///
    /// # Errors
    /// [`WithError::NotGranted`]: `work` was not run. [`WithError::Lost`]: `work` was dropped where
    /// it stood, or had just completed; the resource decides which of its effects count.
    ///
    /// # Panics
    /// If `work` panics, the lock is released, and the panic continues.
    ///
    /// # Cancel safety
    /// If the future is dropped, `work` is dropped where it stands, and nothing stays held or
    /// queued.
    ///
    /// Curator: `InterProcessMutex.acquire` and `release` in `finally`.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let sale = async move {
    ///     let token = stock.with("sku-42", async |guard| guard.fence()).await??;
    ///     let next = stock.with("sku-42", async |guard| guard.fence()).await??;
    ///     assert!(next > token);
    ///     Ok::<_, Box<dyn std::error::Error + Send + Sync>>(())
    /// };
    /// tokio::spawn(sale).await?.map_err(|error| error.to_string())?;
    /// # Ok(()) }
    /// ```
    pub async fn with<T>(
        &self,
        name: impl AsRef<[u8]>,
        work: impl AsyncFnOnce(&Guard) -> T,
    ) -> Result<T, WithError> {
        self.lock(name).with(work).await
    }
}

/// Why scoped work did not complete under the lock.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum WithError {
    /// The lock was not granted, and the work was not run. Nothing is held or queued.
    #[error(transparent)]
    NotGranted(#[from] LockError),
    /// The lock was lost before it was released. The work was dropped where it stood, or had just
    /// completed. The lock is released.
    #[error("{0} before the work was done")]
    Lost(#[from] Lost),
}

impl WithError {
    /// Returns whether the lock was lost while the work ran.
    pub fn is_lost(&self) -> bool {
        matches!(self, WithError::Lost(_))
    }
}
