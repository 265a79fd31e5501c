//! `CountDownLatch`: keeps everybody waiting until something was done so many times.

use super::barrier::{BarrierError, within};
use super::shared_count::{CountError, Kind, SharedCount};
use crate::runtime::planted;
use crate::service::{LockError, LockService};
use std::time::Duration;

/// A count that members count down, and wait for to be zero. At zero it stays.
///
/// It lives while a member has it open: let whoever waits open it first, or whoever counts down keep it open until somebody else
/// has. Dropped by the last, it is gone with what was counted.
///
/// A count-down is made once, also if the grantor dies while it is under way. When a member dies, what it has counted stays
/// counted, and what it had still to count is never counted: wait with a limit where members may die. One death may take a
/// count-down back: that of the [grantor](LockService::is_grantor), with all who had heard of it. Then the count is the one before,
/// marked [`maybe_stale`](CountDownLatch::maybe_stale), and whoever lives may have to count once more.
///
/// Of its name there is one object in a service: while a [`SharedCount`], a [`Semaphore`](crate::Semaphore), a
/// [`Barrier`](crate::Barrier) or a [`DoubleBarrier`](crate::DoubleBarrier) is open by that name it cannot be opened.
///
/// Curator: none. Hazelcast: `ICountDownLatch`. Java: `CountDownLatch`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::CountDownLatch;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let shelves = CountDownLatch::open(&shop, "shelves filled", 2).await?;
/// assert_eq!(shelves.count_down().await?, 1);
/// assert_eq!(shelves.count_down().await?, 0);
/// shelves.wait().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "what was counted is gone as soon as nobody has it open"]
pub struct CountDownLatch {
    count: SharedCount,
}

impl CountDownLatch {
    /// Opens the latch `name`, 1 to 4096 bytes. If no member has it open it begins with `count`, else it is where it is.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::OtherRecipe`]: a barrier, say, is open by that name.
    ///
    /// # Cancel safety
    /// Dropped at any time: nothing stays open.
    pub async fn open(service: &LockService, name: impl AsRef<[u8]>, count: u32) -> Result<CountDownLatch, LockError> {
        Ok(CountDownLatch { count: SharedCount::open_as(Kind::Latch, service, name.as_ref(), count as i32).await? })
    }

    /// Counts down by one, if it is not zero: what is left.
    ///
    /// # Errors
    /// [`CountError::Lost`]: it may be counted or not. Others: it was not counted.
    ///
    /// # Cancel safety
    /// Not asked before the first poll. Dropped later, it may be counted or not.
    ///
    /// Java: `CountDownLatch.countDown`.
    pub async fn count_down(&self) -> Result<u32, CountError> {
        let mut seen = self.count.get()?;
        loop {
            let left = match seen.count as u32 {
                0 => return Ok(0),
                count => count - 1,
            };
            if planted!(CountDownBlindly) {
                return self.count.set(left as i32).await.map(|_| left);
            }
            match self.count.try_set(seen.version, left as i32).await {
                Ok(_) => return Ok(left),
                Err(CountError::Changed(now)) => seen = now,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits until it is zero.
    ///
    /// # Errors
    /// [`BarrierError`]: it is not known whether it is zero.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Java: `CountDownLatch.await`.
    pub async fn wait(&self) -> Result<(), BarrierError> {
        self.count.until(|count| count == 0 || count == 1 && planted!(LatchOneEarly)).await?;
        Ok(())
    }

    /// As [`wait`](CountDownLatch::wait), at most so long.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`], and as of `wait`.
    ///
    /// # Cancel safety
    /// As of `wait`.
    pub async fn wait_within(&self, limit: Duration) -> Result<(), BarrierError> {
        within(limit, self.wait()).await
    }

    /// What is left, as this member knows it. Asks nobody.
    ///
    /// # Errors
    /// [`CountError::Lost`]: it is open no more.
    ///
    /// Java: `CountDownLatch.getCount`.
    pub fn count(&self) -> Result<u32, CountError> {
        Ok(self.count.get()?.count as u32)
    }

    /// Whether the grantor has died since it was counted down last, so that a later count-down may be lost. The next one ends
    /// that. As this member knows it; asks nobody.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    pub fn maybe_stale(&self) -> Result<bool, CountError> {
        Ok(self.count.get()?.maybe_stale)
    }
}
