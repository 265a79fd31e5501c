//! `Barrier`: keeps everybody waiting until it is removed.

use super::shared_count::{CountError, SharedCount};
use crate::runtime::planted;
use crate::service::{LockError, LockService};
use std::time::Duration;

/// A barrier that anybody may set and anybody may remove. Whoever waits on it goes on as soon as it is not set.
///
/// It is a [`SharedCount`]: 1 while it is set, else 0. So it lives while a member has it open, and is not set when nobody has:
/// keep it open from where it is set until those who are to wait have opened it. A member that dies changes nothing about it: a
/// barrier that it set stays set while others have it open, and any of them may remove it.
///
/// Curator: `DistributedBarrier`, whose barrier stays in ZooKeeper for ever if whoever is to remove it dies.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::Barrier;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let opening = Barrier::open(&shop, "opening").await?;
/// opening.set().await?;
/// let waiting = tokio::spawn({
///     let opening = opening.clone();
///     async move { opening.wait().await }
/// });
/// opening.remove().await?;
/// waiting.await??;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
pub struct Barrier {
    count: SharedCount,
}

impl Barrier {
    /// Opens the barrier `name`, 1 to 4096 bytes. It is not set if no member had it open.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open.
    ///
    /// # Cancel safety
    /// Dropped at any time: nothing stays open.
    pub async fn open(service: &LockService, name: impl AsRef<[u8]>) -> Result<Barrier, LockError> {
        Ok(Barrier { count: SharedCount::open(service, name, 0).await? })
    }

    /// Sets it: whoever waits from now on is kept. No error if it is set.
    ///
    /// # Errors
    /// [`CountError::Lost`]: it may be set or not. Others: nothing is changed.
    ///
    /// # Cancel safety
    /// Not asked before the first poll. Dropped later, it may be set or not.
    ///
    /// Curator: `DistributedBarrier.setBarrier`.
    pub async fn set(&self) -> Result<(), CountError> {
        self.count.set(1).await.map(drop)
    }

    /// Removes it: all who wait go on. No error if it is not set.
    ///
    /// # Errors
    /// [`CountError::Lost`]: it may be set or not. Others: nothing is changed.
    ///
    /// # Cancel safety
    /// Not asked before the first poll. Dropped later, it may be removed or not.
    ///
    /// Curator: `DistributedBarrier.removeBarrier`.
    pub async fn remove(&self) -> Result<(), CountError> {
        self.count.set(0).await.map(drop)
    }

    /// Whether it is set, at an instant after the call. One round trip.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn is_set(&self) -> Result<bool, CountError> {
        Ok(self.count.read().await?.count != 0)
    }

    /// Waits until it is not set. Asks the grantor first, so whoever was told that it is set does wait.
    ///
    /// # Errors
    /// [`BarrierError`]: it is not known whether it is set.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `DistributedBarrier.waitOnBarrier`.
    pub async fn wait(&self) -> Result<(), BarrierError> {
        if planted!(GateAlwaysOpen) {
            return Ok(());
        }
        self.count.opened_anew().await?.until(|count| count == 0).await?;
        Ok(())
    }

    /// As [`wait`](Barrier::wait), at most so long.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`], and as of `wait`.
    ///
    /// # Cancel safety
    /// As of `wait`.
    pub async fn wait_within(&self, limit: Duration) -> Result<(), BarrierError> {
        within(limit, self.wait()).await
    }
}

/// Runs it, at most so long.
pub(super) async fn within<T>(
    limit: Duration,
    what: impl Future<Output = Result<T, BarrierError>>,
) -> Result<T, BarrierError> {
    tokio::time::timeout(limit, what).await.unwrap_or(Err(BarrierError::TimedOut))
}

/// Why a wait at a [`Barrier`], a [`DoubleBarrier`](crate::DoubleBarrier) or a [`CountDownLatch`](crate::CountDownLatch) did not
/// end as it should.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BarrierError {
    /// The limit was reached.
    #[error("not within the wait limit")]
    TimedOut,
    /// It is open no more, or is no such thing.
    #[error(transparent)]
    Count(#[from] CountError),
    /// A lock that it is made of was not given.
    #[error(transparent)]
    Lock(#[from] LockError),
}

impl BarrierError {
    /// Whether the limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, BarrierError::TimedOut)
    }

    /// Whether it is open no more, because the member was cut off, expelled or has left, or the service was destroyed here.
    pub fn is_lost(&self) -> bool {
        match self {
            BarrierError::Count(error) => error.is_lost(),
            BarrierError::Lock(error) => error.is_lost() || *error == LockError::Destroyed,
            BarrierError::TimedOut => false,
        }
    }
}
