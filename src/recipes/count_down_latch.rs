//! `CountDownLatch`: keeps all its waiters waiting until its count has been counted down to zero.

#[cfg(all(elderlock_mutants, feature = "simulated"))]
mod planted;

use super::barrier::{BarrierError, timed_out};
use super::shared_count::{CountError, ObjectKind, SharedCount};
use super::wait_future::WaitFuture;
use crate::protocol::NumberEdit;
use crate::runtime::planted;
use crate::service::{LockError, LockService, ReleaseError};

/// A count that members count down. Waiters go on when it is zero. It stays at zero until a
/// [reset](CountDownLatch::reset).
///
/// The latch lives while a member has it open. Let waiters open it first, or let the counting
/// member keep it open until another has it open. If the last member
/// [closes](CountDownLatch::close) the latch, it is gone with its count. If the last member drops
/// it, it is gone as soon as the grantor has heard of the drop. An opening before that has the old
/// count. To count anew by the same name, [`reset`](CountDownLatch::reset) it, or close it
/// everywhere.
///
/// A count-down is made once, also if the grantor dies while it is under way. When a member dies,
/// its count-downs stay counted, and its remaining ones are never made: wait with a limit where
/// members may die. One death may take a count-down back: that of the
/// [grantor](LockService::is_grantor), with all members that had heard of it. Then the count is the
/// one before, marked [`maybe_stale`](CountDownLatch::maybe_stale), and a living member may have to
/// count once more.
///
/// A latch uses the object of its name in the service. It cannot be opened while a [`SharedCount`],
/// a [`Semaphore`](crate::Semaphore), a [`Barrier`](crate::Barrier) or a
/// [`DoubleBarrier`](crate::DoubleBarrier) is open by that name.
///
/// Curator: none. Hazelcast: `ICountDownLatch`. Java: `CountDownLatch`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
#[must_use = "the count is gone as soon as no member has the latch open"]
pub struct CountDownLatch {
    count: SharedCount,
}

impl CountDownLatch {
    /// Opens the latch `name`, 1 to 4096 bytes. If no member has it open it begins with `count`,
    /// else it is where it is.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherRecipe`]: a barrier, say, is open by that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
        count: u32,
    ) -> WaitFuture<'static, CountDownLatch, LockError> {
        let make = |count| CountDownLatch { count };
        SharedCount::open_as(ObjectKind::Latch, service, name.as_ref(), count as i32, make)
    }

    /// Counts down by one, if the count is not zero, and returns the remaining count. The grantor
    /// counts, in the order of asking: one round trip, however many others count.
    ///
    /// # Errors
    /// [`CountError::Lost`]: it may be counted or not. Others: it was not counted.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// the latch may be counted down.
    ///
    /// Java: `CountDownLatch.countDown`.
    pub async fn count_down(&self) -> Result<u32, CountError> {
        planted!(CountDownBlindly => return self.count_down_blindly().await);
        match self.count.step(NumberEdit::CountDown).await {
            Ok(seen) | Err(CountError::Changed(seen)) => Ok(seen.count as u32),
            Err(error) => Err(error),
        }
    }

    /// Begins anew with `count`, if the present count is zero. Waiters for the earlier zero go on,
    /// also if they hear of it only now. A wait that begins after this has returned is for the next
    /// zero. That is so at each member that has heard of the new count, or of the zero before it. A
    /// member that has heard of neither yet may let a wait pass that begins now.
    ///
    /// # Errors
    /// [`CountError::Changed`] with the present count: it is not zero, or another was first.
    /// Nothing is changed. [`CountError::Lost`]: it may have begun anew or not. Others: nothing is
    /// changed.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
    /// the latch may have begun anew.
    ///
    /// Hazelcast: `ICountDownLatch.trySetCount`. Java: none; `CyclicBarrier` begins anew by itself.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use elderlock::{CountDownLatch, CountError};
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let shelves = CountDownLatch::open(&shop, "shelves filled", 1).await?;
    /// assert!(matches!(shelves.reset(2).await, Err(CountError::Changed(now)) if now.count == 1));
    /// shelves.count_down().await?;
    /// shelves.reset(2).await?;
    /// assert_eq!(shelves.count()?, 2);
    /// # Ok(()) }
    /// ```
    pub async fn reset(&self, count: u32) -> Result<(), CountError> {
        self.count.step(NumberEdit::Reset(count)).await.map(drop)
    }

    /// Waits until the count is zero, or was since the wait began. If this member knows it as zero
    /// the grantor is asked first, so a task that was told that it began
    /// [anew](CountDownLatch::reset) does wait.
    ///
    /// # Errors
    /// [`BarrierError`]: it is not known whether it is zero, or a [limit](WaitFuture::wait) ended.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Java: `CountDownLatch.await`.
    pub fn wait(&self) -> WaitFuture<'_, (), BarrierError> {
        WaitFuture::new(self.count.service(), timed_out, self.pass())
    }

    async fn pass(&self) -> Result<(), BarrierError> {
        let is_over = |count| count == 0 || count == 1 && planted!(LatchOneEarly);
        if self.count.get()?.count == 0 {
            self.count.opened_anew().await?.until_or_over(is_over).await?;
        } else {
            self.count.until_or_over(is_over).await?;
        }
        Ok(())
    }

    /// Closes the latch, and waits until the grantor has heard of that. A later opening by that
    /// name, at any member, does not find this opening any more. If there is no other, it begins
    /// anew. With other clones of this latch around only this clone ends, and the grantor is not
    /// told. One round trip, no message at the grantor's own member.
    ///
    /// A drop is not waited for: a latch that is opened before the grantor has heard of the drop
    /// has the old count.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): it was lost before, or no grantor has answered within
    /// a member lease. It is closed here all the same.
    ///
    /// # Cancel safety
    /// Dropping the future closes it too, and then nothing says when the grantor has heard of it.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.count.close().await
    }

    /// The remaining count, as this member knows it. Sends no message.
    ///
    /// # Errors
    /// [`CountError::Lost`]: it is no longer open.
    ///
    /// Java: `CountDownLatch.getCount`.
    pub fn count(&self) -> Result<u32, CountError> {
        Ok(self.count.get()?.count as u32)
    }

    /// Returns whether the grantor has died since the count was last lowered, so that a later
    /// count-down may be lost. The next one ends that. As this member knows it; sends no message.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    pub fn maybe_stale(&self) -> Result<bool, CountError> {
        Ok(self.count.get()?.maybe_stale)
    }
}
