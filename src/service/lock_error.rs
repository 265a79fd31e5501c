//! Why a lock was not granted.

use crate::protocol::id::InvalidBatch;
use crate::protocol::{
    HolderInfo, InvalidName, InvalidPermits, InvalidValue, LockName, LostReason, Outcome,
};
use std::time::Duration;

/// The longest lease of a hold: ten years. A longer one is refused. A longer limit of a wait counts
/// as none.
pub const MAX_LEASE: Duration = Duration::from_secs(10 * 365 * 24 * 3600);

/// The lease is zero, or more than ten years.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "a lease must be more than zero and at most ten years, not {given:?}; \
     leave it out to hold until released"
)]
pub struct InvalidLease {
    /// The given duration.
    pub given: Duration,
}

impl InvalidLease {
    pub(crate) fn check(given: Duration) -> Result<Duration, InvalidLease> {
        if given.is_zero() || given > MAX_LEASE { Err(InvalidLease { given }) } else { Ok(given) }
    }
}

/// Why [`lock`](crate::LockService::lock) failed. In every case the caller holds nothing, and its
/// request is no longer queued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockError {
    /// The request is not valid. Nothing was asked.
    #[error(transparent)]
    InvalidWant(#[from] InvalidWant),
    /// This member has not [opened](crate::LockService::open) the object whose permits were asked
    /// for, or no longer has it open.
    #[error("this member does not have the object of these permits open; open it first")]
    NotOpen,
    /// Another kind of object is open by that name: one of another recipe, or a plain
    /// [`SharedValue`](crate::SharedValue). Take another name.
    #[error("another kind of object is open by that name")]
    OtherRecipe,
    /// A [`DoubleBarrier`](crate::DoubleBarrier) of that name is open for another number of
    /// participants. Callers with different numbers would wait for each other. Give the same number
    /// everywhere: an open barrier keeps its number.
    #[error(
        "the double barrier of that name is open for rounds of {open}, not of {asked}: \
         give the same number everywhere, or open it when no member has it open"
    )]
    OtherNumber {
        /// The number of participants of the open barrier.
        open: u32,
        /// The number of participants of this call.
        asked: u32,
    },
    /// The lease is out of range. Nothing was asked.
    #[error(transparent)]
    InvalidLease(#[from] InvalidLease),
    /// The wait limit was reached. The request has left the queue.
    #[error("not granted within the wait limit")]
    TimedOut,
    /// The request would wait for itself.
    ///
    /// | request | why it would never be granted | remedy |
    /// |---|---|---|
    /// | a suspension | its owner suspends the service, or waits to do so | use that suspension, or give each task its own [owner](crate::LockBuilder::owner) |
    /// | a suspension | another owner with a hold waits to suspend the service, and so for this owner's hold | release this owner's hold, or do without the suspension |
    /// | a lock | its owner only [reads](crate::ReadWriteLock::read_for) it | upgrade the reader, or release it first |
    #[error(
        "deadlock, as the request would wait for itself: \
         the owner only reads the lock (upgrade its reader, or release it); \
         or it suspends the service already (use that suspension, or another owner); \
         or another suspension waits for the owner's hold (release that hold)"
    )]
    Deadlock,
    /// The member carries out no such call at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl LockError {
    /// The loss of an open object that this error of a further opening means. `None`: the object is
    /// still open, and another try may succeed.
    pub(crate) fn when_opened_again(&self) -> Option<Lost> {
        Some(Lost::new(match self {
            LockError::Unavailable(Unavailable::Busy) | LockError::TimedOut => return None,
            LockError::Unavailable(Unavailable::Left) => LostReason::Left,
            LockError::Unavailable(Unavailable::Destroyed) => LostReason::Destroyed,
            _ => LostReason::Expelled,
        }))
    }

    /// Returns whether the wait limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, LockError::TimedOut)
    }

    /// Returns whether the member was expelled or has left.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            LockError::Unavailable(Unavailable::Expelled)
                | LockError::Unavailable(Unavailable::Left)
        )
    }
}

impl From<Outcome> for LockError {
    fn from(outcome: Outcome) -> Self {
        if let Some(unavailable) = Unavailable::of(&outcome) {
            return unavailable.into();
        }
        match outcome {
            Outcome::Deadlock => LockError::Deadlock,
            Outcome::NotOpen => LockError::NotOpen,
            // `Held`, `Waited` and `Undecided` answer a wait limit of zero.
            _ => LockError::TimedOut,
        }
    }
}

/// Why [`try_lock`](crate::LockService::try_lock) failed. In every case nothing is held and nothing
/// is queued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TryLockError {
    /// Another request holds the lock, or the named one of several, or has suspended the service.
    #[error("{} process {} with token {}", held(.0), .0.process, .0.token)]
    Held(HolderInfo),
    /// The lock is free, but other requests wait for it and go first. Without a name they wait for
    /// the suspension of the service. An owner with more than a thousand holds may also get this
    /// when it tries to suspend the service beside holds of other owners.
    #[error("other requests wait for {}", waited(.0.as_ref()))]
    Waited(Option<LockName>),
    /// No permit is held, and the request asks for more than the limit.
    #[error("requested more permits than the limit of {0}")]
    Limit(u32),
    /// The answer is unknown at the moment: the grantor does not answer, is being replaced, or asks
    /// the member that [keeps](crate::LockService::keep_locks) the lock. Or this member is cut off.
    #[error("the grantor has no answer at the moment, so the lock may be free or held; try again")]
    Undecided,
    /// The request is not valid. Nothing was asked.
    #[error(transparent)]
    InvalidWant(#[from] InvalidWant),
    /// This member has not [opened](crate::LockService::open) the object whose permits were asked
    /// for, or no longer has it open.
    #[error("{}", LockError::NotOpen)]
    NotOpen,
    /// The lease is out of range. Nothing was asked.
    #[error(transparent)]
    InvalidLease(#[from] InvalidLease),
    /// The member carries out no such call at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl TryLockError {
    /// The holder of the lock, if a holder is the reason.
    pub fn holder(&self) -> Option<&HolderInfo> {
        match self {
            TryLockError::Held(holder) => Some(holder),
            _ => None,
        }
    }

    /// Returns whether the member was expelled or has left.
    pub fn is_lost(&self) -> bool {
        matches!(
            self,
            TryLockError::Unavailable(Unavailable::Expelled)
                | TryLockError::Unavailable(Unavailable::Left)
        )
    }
}

impl From<Outcome> for TryLockError {
    fn from(outcome: Outcome) -> Self {
        if let Some(unavailable) = Unavailable::of(&outcome) {
            return unavailable.into();
        }
        match outcome {
            Outcome::Held(holder) => TryLockError::Held(holder),
            Outcome::Waited(name) => TryLockError::Waited(name),
            Outcome::NotOpen => TryLockError::NotOpen,
            Outcome::Limit(limit) => TryLockError::Limit(limit),
            _ => TryLockError::Undecided,
        }
    }
}

fn waited(name: Option<&LockName>) -> String {
    name.map_or_else(|| "the suspension of the service".to_owned(), LockName::to_string)
}

fn held(holder: &HolderInfo) -> String {
    match &holder.name {
        Some(name) => format!("{name} is held by"),
        None => "the service is suspended by".to_owned(),
    }
}

/// A request that is not valid.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidWant {
    /// The name or the metadata is empty or too long.
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// No names, too many, or one of them twice.
    #[error(transparent)]
    Batch(#[from] InvalidBatch),
    /// No permits, or too many.
    #[error(transparent)]
    Permits(#[from] InvalidPermits),
    /// The value is too long.
    #[error(transparent)]
    Value(#[from] InvalidValue),
}

macro_rules! from_invalid {
    ($($invalid:ident),*) => {$(
        impl From<$invalid> for LockError {
            fn from(error: $invalid) -> Self {
                InvalidWant::from(error).into()
            }
        }

        impl From<$invalid> for TryLockError {
            fn from(error: $invalid) -> Self {
                InvalidWant::from(error).into()
            }
        }
    )*};
}
from_invalid!(InvalidName, InvalidBatch, InvalidPermits, InvalidValue);

/// Why a member carries out no call at all. Either nothing was asked or changed, or all that was
/// asked is over: nothing is held and nothing is queued.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Unavailable {
    /// Too many requests of this member wait already. Nothing was asked; try again later.
    #[error("too many requests of this member are waiting; try again when some have ended")]
    Busy,
    /// The service was destroyed at this member. Get a new handle from the member.
    #[error("{}", says(&LostReason::Destroyed))]
    Destroyed,
    /// The cluster continues without this member. The member joins again by itself: try again.
    #[error("the cluster went on without this member; it is joining again")]
    Expelled,
    /// The member has left, for good: join as a new member.
    #[error("{}", says(&LostReason::Left))]
    Left,
}

impl Unavailable {
    /// The reason of an outcome, if it is one of these.
    pub(super) fn of(outcome: &Outcome) -> Option<Unavailable> {
        match outcome {
            Outcome::Busy => Some(Unavailable::Busy),
            Outcome::Closed(LostReason::Left) => Some(Unavailable::Left),
            Outcome::Closed(LostReason::Destroyed) => Some(Unavailable::Destroyed),
            Outcome::Closed(_) => Some(Unavailable::Expelled),
            _ => None,
        }
    }

    /// Returns whether the member was expelled or has left.
    pub fn is_lost(self) -> bool {
        matches!(self, Unavailable::Expelled | Unavailable::Left)
    }
}

/// Why a share did not become the lock. Unless the share is lost, it is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum UpgradeError {
    /// Other holders have a share, too. Try again when they have released it, or release this share
    /// and request the lock.
    #[error("{others} other holders have shares of the lock")]
    Shared {
        /// The number of other holders.
        others: u64,
    },
    /// The grantor did not answer in time, or cannot decide at the moment: it asks the members that
    /// [keep](crate::LockService::keep_locks) a share of the lock. Or another guard of the hold was
    /// downgraded meanwhile. Try again.
    #[error("the grantor has no answer at the moment, so the lock may be shared; try again")]
    Undecided,
    /// The share is no longer held.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl UpgradeError {
    /// Returns whether the share is no longer held.
    pub fn is_lost(&self) -> bool {
        matches!(self, UpgradeError::Lost(_))
    }
}

/// The lock is no longer held.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the lock is lost: {}", says(.reason))]
#[non_exhaustive]
pub struct Lost {
    /// The reason of the loss.
    pub reason: LostReason,
}

impl Lost {
    pub(crate) fn new(reason: LostReason) -> Self {
        Lost { reason }
    }
}

/// Why releasing failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The lock had been lost before it was released: the last actions under it may have met
    /// another holder.
    #[error("the lock was lost before it was released: {}", says(.0))]
    Lost(LostReason),
    /// Only [`release_and_confirm`](crate::Guard::release_and_confirm) fails with this error: the
    /// lock is released, and was held until then, but no grantor has confirmed that. Either a
    /// member lease has passed, or the member left, was expelled or destroyed the service
    /// meanwhile. Other members get the lock when a grantor learns of the release, at the latest
    /// when this member is out of the view.
    #[error(
        "the lock is released here, but no grantor confirmed it; \
         it is free when a grantor hears of it"
    )]
    Unconfirmed,
}

impl ReleaseError {
    /// Returns whether the lock had been lost before.
    pub fn is_lost(&self) -> bool {
        matches!(self, ReleaseError::Lost(_))
    }
}

/// Why extending a hold failed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ExtendError {
    /// The lease is zero, or more than ten years. The hold and its lease are as before.
    #[error(transparent)]
    InvalidLease(#[from] InvalidLease),
    /// The lock is no longer held.
    #[error(transparent)]
    Lost(#[from] Lost),
}

impl ExtendError {
    /// Returns whether the lock is no longer held.
    pub fn is_lost(&self) -> bool {
        matches!(self, ExtendError::Lost(_))
    }
}

fn says(reason: &LostReason) -> &'static str {
    match reason {
        LostReason::LeaseEnded => "its lease ran out",
        LostReason::Suspended => "no elder with a quorum renewed the member's lease in time",
        LostReason::Expelled => "the cluster went on without this member",
        LostReason::Superseded => "another hold of it has a higher token",
        LostReason::Left => "the member has left",
        LostReason::Destroyed => "the service was destroyed at this member",
        LostReason::Revoked => "it was revoked: a member or an operator took it away",
        LostReason::Released => "it was released",
        LostReason::Forked => "this process is a forked copy of the holder; join after the fork",
        LostReason::SessionEnded => "the program did not keep its session",
    }
}

/// The text of an error: an object of this kind is no longer open here.
pub(crate) fn not_open(kind: &str, lost: &Lost) -> String {
    format!("the {kind} is no longer open here: {}; open it again", says(&lost.reason))
}
