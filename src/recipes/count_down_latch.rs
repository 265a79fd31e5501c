//! `CountDownLatch`: its waiters wait until its count has reached zero.

#[cfg(all(elderlock_mutants, feature = "simulated"))]
mod planted;

use super::barrier::{BarrierError, timed_out};
use super::shared_count::{CountError, ObjectKind, SharedCount};
use super::wait_future::WaitFuture;
use crate::protocol::NumberEdit;
use crate::runtime::planted;
use crate::service::{LockError, LockService, ReleaseError};

/// A count that members count down. Waiters continue when it is zero. It stays at zero until a
/// [reset](CountDownLatch::reset).
///
/// The latch lives while a member has it open. Let waiters open it first, or let the counting
/// member keep it open until another member has it open. If the last member
/// [closes](CountDownLatch::close) the latch, the latch ends with its count. If the last member
/// drops it, it ends as soon as the grantor knows of the drop. An opening before that has the old
/// count. To count anew by the same name, [`reset`](CountDownLatch::reset) the latch, or close it
/// everywhere.
///
/// A count-down is made once, also if the grantor dies while it is under way. When a member dies,
/// its count-downs stay counted, and its remaining ones are never made: wait with a limit where
/// members may die. One death may undo a count-down: that of the
/// [grantor](LockService::is_grantor), with all members that knew it. Then the count is the one
/// before, marked [`maybe_stale`](CountDownLatch::maybe_stale), and a living member may have to
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
    /// Opens the latch `name`, 1 to 4096 bytes. If no member has it open, it begins with `count`;
    /// otherwise it keeps the present count.
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
    /// counts, in the order of the requests: one round trip, however many members count.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the call may have counted or not. Others: it did not count.
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

    /// Begins anew with `count`, if the present count is zero. Waiters for the earlier zero
    /// continue, even if they learn of it only now. A wait that begins after this has returned is
    /// for the next zero. That holds at each member that knows the new count, or the zero before
    /// it. A member that knows neither yet may let a wait pass that begins now.
    ///
    /// # Errors
    /// [`CountError::Changed`] with the present count: it is not zero, or another change was first.
    /// Nothing is changed. [`CountError::Lost`]: the latch may have begun anew or not. Others:
    /// nothing is changed.
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

    /// Waits until the count is zero, or was since the wait began. If this member knows the count
    /// as zero, the grantor is asked first: a task that knows that the latch began
    /// [anew](CountDownLatch::reset) does wait.
    ///
    /// # Errors
    /// [`BarrierError`]: it is not known whether the count is zero, or a [limit](WaitFuture::wait)
    /// ended.
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

    /// Closes the latch, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the latch begins anew. With
    /// other clones of this latch around only this clone ends, and the grantor is not told. One
    /// round trip, no message at the grantor's own member.
    ///
    /// A drop does not wait: a latch that is opened before the grantor knows of the drop has the
    /// old count.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the latch was lost before, or no grantor has answered
    /// within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the latch too, but then the caller cannot know when the grantor
    /// does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.count.close().await
    }

    /// The remaining count, as this member knows it. Sends no message.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the latch is no longer open.
    ///
    /// Java: `CountDownLatch.getCount`.
    pub fn count(&self) -> Result<u32, CountError> {
        Ok(self.count.get()?.count as u32)
    }

    /// Returns whether the grantor has died since the count was last lowered, so that a later
    /// count-down may be lost. The next count-down ends that. This is this member's knowledge; the
    /// call sends no message.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    pub fn maybe_stale(&self) -> Result<bool, CountError> {
        Ok(self.count.get()?.maybe_stale)
    }
}
