//! `BatchGuard`: several held locks of one service.

use super::held::held;
use super::hold::HoldHandle;
use super::lock_error::{Lost, ReleaseError};
use crate::protocol::Token;

/// Several locks of one service, held together, from [`lock_all`](crate::LockService::lock_all).
/// They are granted, lost and released as one, and each has a fencing token of its own.
///
/// The documentation of a [`Guard`](crate::Guard) holds for this guard.
///
/// Geode: the batches of try-locks behind its transactions, which are not public.
#[must_use = "the locks are released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
pub struct BatchGuard {
    hold: HoldHandle,
}

impl BatchGuard {
    pub(crate) fn new(hold: HoldHandle) -> Self {
        BatchGuard { hold }
    }

    pub(crate) fn hold(&self) -> &HoldHandle {
        &self.hold
    }

    /// The fencing token of one of the locks, if they are held at this instant. Cheap: a clock,
    /// three atomics and a binary search, no message.
    ///
    /// # Errors
    /// [`FenceError::Lost`] with the reason, for good; [`FenceError::NotInBatch`]: the batch does
    /// not have the name. Asking changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let both = stock.lock_all(["from", "to"]).await?;
    /// assert_ne!(both.fence("from")?, both.fence("to")?);
    /// assert!(both.fence("elsewhere").is_err());
    /// # Ok(()) }
    /// ```
    pub fn fence(&self, name: impl AsRef<[u8]>) -> Result<Token, FenceError> {
        let names = self.hold.want.names();
        let index = names.binary_search_by(|candidate| candidate.as_bytes().cmp(name.as_ref()));
        let index = index.map_err(|_| FenceError::NotInBatch)?;
        let first = self.hold.cell.fence().map_err(Lost::new)?;
        Ok(first.plus(index as u64))
    }

    /// Another guard of the same hold, with the same tokens and lease. The hold ends when all its
    /// guards are gone.
    ///
    /// # Errors
    /// [`Lost`]: the locks are no longer held.
    pub fn reenter(&self) -> Result<BatchGuard, Lost> {
        self.hold.fence()?;
        Ok(BatchGuard { hold: self.hold.clone() })
    }

    /// The number of guards that share the hold: 1 without [`reenter`](BatchGuard::reenter).
    pub fn depth(&self) -> usize {
        self.hold.depth()
    }

    /// Releases all the locks and returns whether they were held until now. Does not wait for the
    /// grantor.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the locks had been lost before. They are released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the locks too.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release()
    }

    /// Releases all the locks, and waits until the grantor knows that. See
    /// [`Guard::release_and_confirm`](crate::Guard::release_and_confirm).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the locks had been lost before. [`ReleaseError::Unconfirmed`]: no
    /// grantor has answered. The locks are released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the locks too.
    pub async fn release_and_confirm(self) -> Result<(), ReleaseError> {
        self.hold.release_confirmed().await
    }

    /// The names, ascending, each once, with their tokens as numbers for logs: without a claim that
    /// the locks are still held. The tokens are consecutive.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let both = stock.lock_all(["to", "from"]).await?;
    /// let names: Vec<&[u8]> = both.tokens().map(|(name, _)| name).collect();
    /// assert_eq!(names, [&b"from"[..], b"to"]);
    /// # Ok(()) }
    /// ```
    pub fn tokens(&self) -> impl Iterator<Item = (&[u8], Token)> {
        let first = self.hold.cell.token();
        self.hold
            .want
            .names()
            .iter()
            .enumerate()
            .map(move |(index, name)| (name.as_bytes(), first.plus(index as u64)))
    }
}

held!(BatchGuard);

impl std::fmt::Debug for BatchGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.hold.debug("BatchGuard", f)
    }
}

/// Why [`BatchGuard::fence`] gives no token. Nothing is changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FenceError {
    /// The locks are no longer held.
    #[error(transparent)]
    Lost(#[from] Lost),
    /// The batch does not have the name.
    #[error("this batch has no lock of that name")]
    NotInBatch,
}

impl FenceError {
    /// Returns whether the locks are no longer held.
    pub fn is_lost(&self) -> bool {
        matches!(self, FenceError::Lost(_))
    }
}
