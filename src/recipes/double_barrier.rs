//! `DoubleBarrier`: a fixed number of callers begin together and end together.

use super::barrier::{BarrierError, timed_out};
use super::shared_count::{CountError, ObjectKind, SharedCount, VersionedCount};
use super::wait_future::WaitFuture;
use crate::protocol::{LineageId, LostReason, Mode, Token};
use crate::runtime::planted;
use crate::service::{
    Guard, InspectError, LockError, LockService, Lost, ReleaseError, Unavailable,
};
use std::time::Duration;

/// The pause before a question is repeated to a service that has no grantor at the moment.
const PAUSE: Duration = Duration::from_millis(20);

/// A barrier for rounds of work. [`enter`](DoubleBarrier::enter) completes when the barrier's
/// number of tasks has entered, and [`leave`](DoubleBarrierGuard::leave) when all of them have
/// left. Then the next round can begin.
///
/// The number is a threshold, not a limit: a member that enters during a round takes part in it.
/// After the first leave, a member that enters waits for the next round.
///
/// Each member inside has a [share](crate::LockService::share) of the lock with the barrier's name.
/// The share ends with the member. So the other members wait for a member that dies inside no
/// longer than for any holder. A member that dies before the round begins does not count: another
/// member must enter instead. A round begins with the members that are inside when the last one
/// enters. A member is out, too, if it drops or loses its [`DoubleBarrierGuard`], or is
/// [suspended](crate::ConnectionEvent) inside. A member that is suspended while it enters takes a
/// new share afterwards, and counts again.
///
/// A double barrier and a [suspension](LockService::suspend) of its service can deadlock. The
/// suspension waits for the shares of the members that have entered. The missing members wait for
/// the suspension, and the shares wait for the missing members. To avoid that, enter with a limit,
/// suspend with a limit, or give double barriers a service of their own.
///
/// A double barrier uses the object and the lock of its name in the service. It cannot be opened
/// while a [`SharedCount`], a [`Semaphore`](crate::Semaphore), a [`Barrier`](crate::Barrier) or a
/// [`CountDownLatch`](crate::CountDownLatch) is open by that name. Nothing checks the lock: a
/// holder of the lock or of permits of that name keeps all tasks from entering and leaving.
///
/// Curator: `DistributedDoubleBarrier`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
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
#[must_use = "it is gone as soon as no member has it open"]
pub struct DoubleBarrier {
    members: u32,
    /// Odd during a round. It rises when a round begins and when it ends. The barrier's number of
    /// tasks follows the number.
    phase: SharedCount,
}

impl DoubleBarrier {
    /// Opens the barrier `name`, 1 to 4096 bytes, for rounds of at least `members`: the same number
    /// at all members that have it open. The number is forgotten with the last opening.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherNumber`]: the barrier is open for rounds of
    /// another number. [`LockError::OtherRecipe`]: another recipe, such as a barrier, is open by
    /// that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
        members: u32,
    ) -> WaitFuture<'static, DoubleBarrier, LockError> {
        let kind = ObjectKind::DoubleBarrier { members };
        let make = move |phase| DoubleBarrier { members, phase };
        SharedCount::open_as(kind, service, name.as_ref(), 0, make)
    }

    /// Returns whether the grantor has died since a round began or ended last. If so, a later round
    /// may be lost with all members that knew of it. The remaining members wait for as many as a
    /// round takes. This is this member's knowledge; the call sends no message.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed.
    pub fn maybe_stale(&self) -> Result<bool, CountError> {
        Ok(self.phase.get()?.maybe_stale)
    }

    /// Closes the barrier, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the barrier begins anew.
    /// With other clones of this barrier around only this clone ends, and the grantor is not told.
    /// One round trip, no message at the grantor's own member.
    ///
    /// A drop does not wait: a barrier that is opened before the grantor knows of the drop is as it
    /// was.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the barrier was lost before, or no grantor has
    /// answered within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the barrier too, but then the caller cannot know when the grantor
    /// does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.phase.close().await
    }

    /// Enters, and waits until the number of the round have entered. If the caller's member is
    /// suspended meanwhile, the wait continues when that is over. The other members do not know of
    /// it, and count the caller until its member is back or out of the view. So a round may begin
    /// without the caller, which enters that round when its member is back, if no task has begun to
    /// leave.
    ///
    /// # Errors
    /// [`BarrierError`]; the caller has not entered.
    ///
    /// # Cancel safety
    /// If the future is dropped, the waiter no longer counts. If the waiter was the last missing
    /// one and had just entered, the round may have begun.
    ///
    /// Curator: `DistributedDoubleBarrier.enter`, which after a limit stays counted.
    pub fn enter(&self) -> WaitFuture<'_, DoubleBarrierGuard, BarrierError> {
        WaitFuture::new(self.phase.service(), timed_out, self.come_in())
    }

    async fn come_in(&self) -> Result<DoubleBarrierGuard, BarrierError> {
        loop {
            let share = self.phase.service().share(self.phase.name()).await?;
            // The phase is lost if the member was expelled. If the member was only suspended, the
            // share is lost, and a new one is good.
            self.phase.get()?;
            let Ok(begun) = share.protect(self.begin(share.token())).await else { continue };
            match begun? {
                Some((phase, round)) if share.fence().is_ok() => {
                    return Ok(DoubleBarrierGuard { share, phase, round });
                }
                Some(_) => {}
                None => {
                    // Each member pauses for another time, so that the first ones to come back
                    // decide for all.
                    let pause = PAUSE * (1 + share.token().as_i64() as u32 % 16);
                    drop(share);
                    self.phase.service().sleep(pause).await;
                }
            }
        }
    }

    /// Waits until the share with the token `own` is in a round that has begun, and returns the
    /// round. `None`: too many members came at once to tell whether a round continues.
    async fn begin(&self, own: Token) -> Result<Option<(SharedCount, i32)>, BarrierError> {
        // The phase is read after the grant of the share. From here on not all tasks can have left
        // a round, since that needs the release of all shares.
        let phase = self.phase.opened_anew().await?;
        let mut seen = phase.get()?;
        loop {
            if is_begun(seen.count) && own < seen.version {
                return Ok(Some((phase, seen.count)));
            }
            let (inside, round) = self.look(seen.version).await?;
            let next = match (is_begun(seen.count), round) {
                // A later arrival writes the same phase anew, so that each member inside is older
                // than the round's version. Otherwise the round would count as over when its first
                // members are gone, though this member is in it.
                (true, RoundState::GoesOn) => seen.count,
                // The phase is written before any wait, so later arrivals need not know the order.
                (true, RoundState::Over) => seen.count.wrapping_add(1),
                (true, RoundState::Unseen) => return Ok(None),
                (false, _)
                    if inside + u64::from(planted!(RoundOfOneLess)) >= u64::from(self.members) =>
                {
                    seen.count.wrapping_add(1)
                }
                (false, _) => {
                    seen = phase.until(is_begun).await?;
                    return Ok(Some((phase, seen.count)));
                }
            };
            seen = match phase.try_set(seen.version, next).await {
                Ok(version) => VersionedCount { count: next, version, maybe_stale: false },
                Err(CountError::Changed(now)) => now,
                Err(error) => return Err(error.into()),
            };
        }
    }

    /// The number of members that have entered, and the state of a round that began with `version`,
    /// for a member that came after that.
    async fn look(&self, version: Token) -> Result<(u64, RoundState), BarrierError> {
        loop {
            match self.phase.service().inspect(self.phase.name()).await {
                Ok(seen) => {
                    let was_there = seen.holders.iter().any(|holder| holder.token < version);
                    // A leaving member asks for the lock before it releases its share: the answer
                    // has it as a holder or as a waiter.
                    let leaves = seen.waiters.iter().any(|waiter| waiter.mode == Mode::Lock);
                    let round = match seen.more_holders {
                        _ if was_there || leaves => RoundState::GoesOn,
                        0 => RoundState::Over,
                        _ => RoundState::Unseen,
                    };
                    return Ok((seen.holders.len() as u64 + seen.more_holders, round));
                }
                Err(InspectError::Undecided) => _ = self.phase.service().sleep(PAUSE).await,
                Err(InspectError::Unavailable(Unavailable::Busy)) => {
                    return Err(LockError::Unavailable(Unavailable::Busy).into());
                }
                Err(InspectError::Unavailable(Unavailable::Left)) => {
                    return Err(LockError::Unavailable(Unavailable::Left).into());
                }
                Err(InspectError::Unavailable(Unavailable::Destroyed)) => {
                    return Err(LockError::Unavailable(Unavailable::Destroyed).into());
                }
                Err(_) => return Err(LockError::Unavailable(Unavailable::Expelled).into()),
            }
        }
    }
}

/// The state of a round that has begun.
enum RoundState {
    /// A member that was inside when the round began is still inside, or leaves.
    GoesOn,
    /// All members ended without a leave: dropped, or dead.
    Over,
    /// More members came since than the answer lists, and it lists none of the round's first
    /// members.
    Unseen,
}

/// The presence of one task inside a [`DoubleBarrier`], from [`enter`](DoubleBarrier::enter).
/// Dropping it leaves the barrier without waiting for the other tasks.
#[must_use = "dropping it leaves the barrier"]
#[derive(Debug)]
pub struct DoubleBarrierGuard {
    share: Guard,
    phase: SharedCount,
    round: i32,
}

impl DoubleBarrierGuard {
    /// A fencing token, if the task is still inside. Each presence has its own token.
    ///
    /// # Errors
    /// [`Lost`]: the other tasks no longer wait for this one, or will not soon.
    pub fn fence(&self) -> Result<Token, Lost> {
        self.share.fence()
    }

    /// The lineage that dealt the token. See [`Guard::lineage`].
    pub fn lineage(&self) -> LineageId {
        self.share.lineage()
    }

    /// Completes when the presence is lost, with the reason.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.share.lost().await
    }

    /// Leaves, and waits until all tasks have left.
    ///
    /// # Errors
    /// [`BarrierError`]: the task has left, and does not know of the others. [`CountError::Lost`]
    /// also if the presence was lost before.
    ///
    /// # Cancel safety
    /// If the future is dropped, this task has left.
    ///
    /// Curator: `DistributedDoubleBarrier.leave`.
    pub fn leave(self) -> WaitFuture<'static, (), BarrierError> {
        let service = self.phase.service().clone();
        WaitFuture::new(&service, timed_out, self.go_out())
    }

    async fn go_out(self) -> Result<(), BarrierError> {
        let DoubleBarrierGuard { share, phase, round } = self;
        share.fence().map_err(CountError::from)?;
        planted!(LeaveAlone => return Ok(()));
        // The lock is free when all members are out, the dead ones too. The first member that gets
        // it tells the others. They need not wait for the lock in turn, behind the members of the
        // next round.
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
}

/// Returns whether a round is under way.
fn is_begun(phase: i32) -> bool {
    phase & 1 == 1
}
