//! `DoubleBarrier`: so many begin together and end together.

use super::barrier::{BarrierError, within};
use super::shared_count::{Count, CountError, Kind, SharedCount};
use crate::protocol::{LostReason, Mode, Token};
use crate::runtime::planted;
use crate::service::{Guard, InspectError, LockError, LockService, Lost};
use std::time::Duration;

/// Between two questions to a service that has no grantor at the moment.
const PAUSE: Duration = Duration::from_millis(20);

/// A barrier for rounds of work: nobody begins before so many have [entered](DoubleBarrier::enter), and nobody has
/// [left](Inside::leave) before all have. Then the next round can begin.
///
/// The number is a threshold and no limit: whoever enters while a round goes on is in it. From the first leave on the
/// round takes nobody any more; whoever enters then waits for the next one.
///
/// Whoever is inside has a [share](crate::LockService::share) of the lock of its name, which ends with its member. So one that
/// dies inside is waited for no longer than any holder is, and one that dies before the round begins does not count: the
/// others wait for another in its place. Whoever drops its [`Inside`], or loses it, is out as well.
///
/// Of its name there is one object, and one lock, in a service. While a [`SharedCount`], a [`Semaphore`](crate::Semaphore), a
/// [`Barrier`](crate::Barrier) or a [`CountDownLatch`](crate::CountDownLatch) is open by that name it cannot be opened. Of a
/// lock nobody can tell: whoever takes the lock or the permits of that name otherwise, keeps others from entering and leaving.
///
/// Curator: `DistributedDoubleBarrier`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::DoubleBarrier;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let counting = DoubleBarrier::open(&shop, "stock-taking", 2).await?;
/// let (one, two) = tokio::join!(counting.enter(), counting.enter());
/// let (one, two) = tokio::join!(one?.leave(), two?.leave());
/// one.and(two)?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "it is gone as soon as nobody has it open"]
pub struct DoubleBarrier {
    members: u32,
    /// Odd from when a round begins until it is over, else even. Behind it stands for how many the barrier is.
    phase: SharedCount,
}

impl DoubleBarrier {
    /// Opens the barrier `name`, 1 to 4096 bytes, for rounds of at least `members`: the same number for all who have it open.
    /// It is forgotten with the last of them.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::OtherNumber`]: it is open for rounds of another number.
    /// [`LockError::OtherRecipe`]: a barrier, say, is open by that name.
    ///
    /// # Cancel safety
    /// Dropped at any time: nothing stays open.
    pub async fn open(service: &LockService, name: impl AsRef<[u8]>, members: u32) -> Result<DoubleBarrier, LockError> {
        let phase = SharedCount::open_as(Kind::DoubleBarrier { members }, service, name.as_ref(), 0).await?;
        Ok(DoubleBarrier { members, phase })
    }

    /// Whether the grantor has died since a round began or ended last: that a later one did may be lost with all who knew of it.
    /// Whoever is left waits for as many as it takes. As this member knows it; asks nobody.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    pub fn maybe_stale(&self) -> Result<bool, CountError> {
        Ok(self.phase.get()?.maybe_stale)
    }

    /// Enters, and waits until so many have.
    ///
    /// # Errors
    /// [`BarrierError`]; nobody entered.
    ///
    /// # Cancel safety
    /// Dropped at any time: who waited does not count any more. If it was the last one that was missing, and was dropped
    /// just when it came, the others may have begun.
    ///
    /// Curator: `DistributedDoubleBarrier.enter`, which after a limit stays counted.
    pub async fn enter(&self) -> Result<Inside, BarrierError> {
        let share = self.phase.service().share(self.phase.name()).await?;
        // After the share was granted: from here on no round ends properly, for that wants all shares to be given back.
        let phase = self.phase.opened_anew().await?;
        let mut seen = phase.get()?;
        let (inside, goes_on) = self.inside(&share, seen.version).await?;
        let mut begun = false;
        if is_begun(seen.count) && goes_on {
            // Whoever comes later writes the same phase anew, so that the round has somebody who was inside before it: else it
            // would be taken for over as soon as those who began it are gone, with this one in it.
            while !begun && is_begun(seen.count) {
                match phase.try_set(seen.version, seen.count).await {
                    Ok(version) => (seen, begun) = (Count { version, ..seen }, true),
                    Err(CountError::Changed(now)) => seen = now,
                    Err(error) => return Err(error.into()),
                }
            }
        }
        while !begun {
            let next = seen.count.wrapping_add(1) | 1;
            if inside + u64::from(planted!(RoundOfOneLess)) >= u64::from(self.members) {
                match phase.try_set(seen.version, next).await {
                    Ok(version) => seen = Count { count: next, version, maybe_stale: false },
                    Err(CountError::Changed(now)) => seen = now,
                    Err(error) => return Err(error.into()),
                }
            } else {
                let old = seen.count;
                seen = phase.until(|phase| phase != old).await?;
            }
            begun = is_begun(seen.count);
        }
        share.fence().map_err(CountError::from)?;
        Ok(Inside { share, phase, round: seen.count })
    }

    /// As [`enter`](DoubleBarrier::enter), at most so long.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`], and as of `enter`; nobody entered.
    ///
    /// # Cancel safety
    /// As of `enter`.
    pub async fn enter_within(&self, limit: Duration) -> Result<Inside, BarrierError> {
        within(limit, self.enter()).await
    }

    /// How many have entered, and whether a round that began with `version` goes on: one of the others was inside before, or leaves
    /// it. If not, all went without a leave (dropped, died), and it is over.
    async fn inside(&self, own: &Guard, version: Token) -> Result<(u64, bool), BarrierError> {
        loop {
            own.fence().map_err(CountError::from)?;
            match self.phase.service().inspect(self.phase.name()).await {
                Ok(seen) => {
                    // Where there are more than are listed, one of them surely was.
                    let before = seen.more_holders > 0 || seen.holders.iter().any(|holder| holder.token < version);
                    // Who leaves asks for the lock before he gives his share back: he is seen as the one or the other.
                    let leaves = seen.waiters.iter().any(|waiter| waiter.mode == Mode::Lock);
                    return Ok((seen.holders.len() as u64 + seen.more_holders, before || leaves));
                }
                Err(InspectError::Undecided) => tokio::time::sleep(PAUSE).await,
                Err(InspectError::Busy) => return Err(LockError::Busy.into()),
                Err(InspectError::Left) => return Err(LockError::Left.into()),
                Err(InspectError::Destroyed) => return Err(LockError::Destroyed.into()),
                Err(_) => return Err(LockError::Expelled.into()),
            }
        }
    }
}

/// A place inside a [`DoubleBarrier`], from [`enter`](DoubleBarrier::enter). Dropping it leaves without waiting for the others.
#[must_use = "whoever drops it is out"]
#[derive(Debug)]
pub struct Inside {
    share: Guard,
    phase: SharedCount,
    round: i32,
}

impl Inside {
    /// A fencing token, if this is still inside: every one has its own.
    ///
    /// # Errors
    /// [`Lost`]: the others do not wait for this one any more, or will not soon.
    pub fn fence(&self) -> Result<Token, Lost> {
        self.share.fence()
    }

    /// Completes when the place is lost, with the reason.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.share.lost().await
    }

    /// Leaves, and waits until all have.
    ///
    /// # Errors
    /// [`BarrierError`]: it has left, and does not know of the others. [`CountError::Lost`] also if the place was lost before.
    ///
    /// # Cancel safety
    /// Dropped at any time, it has left.
    ///
    /// Curator: `DistributedDoubleBarrier.leave`.
    pub async fn leave(self) -> Result<(), BarrierError> {
        let Inside { share, phase, round } = self;
        share.fence().map_err(CountError::from)?;
        if planted!(LeaveAlone) {
            return Ok(());
        }
        // The lock is free when all are out, dead ones too. Whoever gets it first tells the others: they do not wait for it in
        // turn, behind those who enter the next round.
        let lock = phase.service().lock(phase.name()).start();
        drop(share);
        tokio::select! {
            biased;
            over = phase.until(|phase| phase != round) => over.map(drop)?,
            lock = lock => {
                let _all_out = lock?;
                let seen = phase.get()?;
                if seen.count == round {
                    match phase.try_set(seen.version, round.wrapping_add(1)).await {
                        Ok(_) | Err(CountError::Changed(_)) => {}
                        Err(error) => return Err(error.into()),
                    }
                }
            }
        }
        Ok(())
    }

    /// As [`leave`](Inside::leave), waiting at most so long.
    ///
    /// # Errors
    /// [`BarrierError::TimedOut`], and as of `leave`: it has left in every case.
    ///
    /// # Cancel safety
    /// As of `leave`.
    pub async fn leave_within(self, limit: Duration) -> Result<(), BarrierError> {
        within(limit, self.leave()).await
    }
}

/// Whether a round goes on.
fn is_begun(phase: i32) -> bool {
    phase & 1 == 1
}
