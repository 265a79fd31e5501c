//! `LockValue`: a small value that belongs to a lock, and that the lock's holder changes.

use super::any_guard::{AnyGuard, Fenced};
use super::mutex::MutexGuard;
use super::read_write_lock::WriteGuard;
use super::reentrant_mutex::ReentrantGuard;
use super::wait_future::WaitFuture;
use crate::protocol::{InvalidValue, LostReason, Token};
use crate::runtime::planted;
use crate::service::{
    Guard, HoldHandle, LockError, LockService, Lost, OpenBuilder, ReleaseError, SetError,
    SharedValue, Unavailable, Versioned, not_open,
};

/// A small value of a lock. All members that have the value open see it, and the holder of the lock
/// of its name changes it. A former holder cannot overwrite a later holder's read or write, even if
/// the clocks are wrong.
///
/// A lock value is the [`SharedValue`] of the lock's name, up to 1,007 bytes, and lives as that
/// does: while a member has it open. Beside the value it keeps the token and the lineage of the
/// last holder that read or wrote it. A holder with a lower token, or with an equal one of another
/// lineage, is refused. A write is made only if there was no other write meanwhile. So the token
/// never falls.
///
/// Begin with [`read`](LockValue::read): it fetches the value from the grantor, and from then on no
/// earlier holder can change the value. Until then, an earlier holder may still write if it has
/// lost the lock without knowing that.
///
/// This holds only if no program writes into the object by [`SharedValue::set`], which needs no
/// lock.
///
/// [`SharedValue`] describes when a value is lost. The value is then an earlier one, and is
/// [marked](Versioned::maybe_stale) until a holder reads it. That holder sees the mark.
///
/// OpenVMS: the lock value block (`LCK$M_VALBLK`, `SS$_VALNOTVALID`). Linux DLM: `DLM_LKF_VALBLK`,
/// `DLM_SBF_VALNOTVALID`. Curator: none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::LockValue;
/// let member = elderlock::Member::local().await?;
/// let stock = member.lock_service("inventory").await?;
/// let left = LockValue::open(&stock, "sku-42", "100").await?;
///
/// let guard = stock.lock("sku-42").await?;
/// let seen = left.read(&guard).await?;
/// let count: u32 = std::str::from_utf8(&seen.value)?.parse()?;
/// left.write(&guard, (count - 1).to_string()).await?;
/// guard.release().await?;
///
/// assert_eq!(&*left.get()?.value, b"99"); // without the lock
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the value is gone as soon as no member has it open"]
pub struct LockValue {
    service: LockService,
    value: SharedValue,
}

/// The length of the part after the value: the token of the last holder, its lineage, and a letter
/// that distinguishes this object from others.
const TRAILER: usize = 17;
const TAG: u8 = b'V';

/// The last holder that read or wrote a value: its token and the lineage that dealt it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct ValueFence {
    pub(super) token: u64,
    pub(super) lineage: u64,
}

impl ValueFence {
    /// The fence of a value that no holder has read or written.
    const NONE: ValueFence = ValueFence { token: 0, lineage: 0 };

    /// Returns whether a holder with this fence may write after the holder with `last`.
    fn admits_after(self, last: ValueFence) -> bool {
        self.token > last.token || self == last
    }
}

/// A guard of an exclusive lock: [`Guard`], [`MutexGuard`], [`ReentrantGuard`] or [`WriteGuard`].
/// Each has the methods of [`Fenced`] and [`AnyGuard`].
pub trait LockGuard: Fenced + AnyGuard + sealed::ValueGuard {}

mod sealed {
    use crate::service::HoldHandle;

    pub trait ValueGuard {
        fn held(&self) -> &HoldHandle;
    }
}

impl LockGuard for Guard {}
impl LockGuard for MutexGuard {}
impl LockGuard for ReentrantGuard {}
impl LockGuard for WriteGuard {}

impl sealed::ValueGuard for Guard {
    fn held(&self) -> &HoldHandle {
        self.hold()
    }
}

impl sealed::ValueGuard for MutexGuard {
    fn held(&self) -> &HoldHandle {
        self.hold()
    }
}

impl sealed::ValueGuard for ReentrantGuard {
    fn held(&self) -> &HoldHandle {
        self.hold()
    }
}

impl sealed::ValueGuard for WriteGuard {
    fn held(&self) -> &HoldHandle {
        self.hold()
    }
}

impl LockValue {
    /// Opens the value of the lock `name`, 1 to 4096 bytes. If no member has it open, it is
    /// `initial`, up to 1,007 bytes; otherwise it is the present value. Waits for a grantor, but
    /// for no lock.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherRecipe`]: another object, such as a count, is
    /// open by that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
        initial: impl AsRef<[u8]>,
    ) -> WaitFuture<'static, LockValue, LockError> {
        let opening = service.open(name, encode(initial.as_ref(), ValueFence::NONE));
        WaitFuture::opening(service, LockValue::opened(service.clone(), opening))
    }

    async fn opened(service: LockService, opening: OpenBuilder) -> Result<LockValue, LockError> {
        let value = opening.await?;
        // A lost object is returned: its own calls report the loss.
        if value.get().is_ok_and(|seen| decode(&seen).is_err()) {
            return Err(LockError::OtherRecipe);
        }
        Ok(LockValue { service, value })
    }

    /// The value as this member knows it: late by the network's delay, since the grantor sends
    /// every change to this member. Sends no message, and needs no lock.
    ///
    /// # Errors
    /// [`LockValueError::Lost`]: the value is no longer open. [`LockValueError::NotALockValue`].
    pub fn get(&self) -> Result<Versioned, LockValueError> {
        decode(&self.value.get()?).map(|(seen, _)| seen)
    }

    /// The value of the last holder. From now on no earlier holder can change the value: its writes
    /// are refused. Two round trips; no message at the grantor's own member.
    ///
    /// Such a read counts as a change, to the same value: the version rises. This holder sees the
    /// mark [`maybe_stale`](Versioned::maybe_stale), and no later reader does. As a change it takes
    /// no limit: once sent, it may still be made.
    ///
    /// # Errors
    /// [`LockValueError`]; the value is unchanged. With [`LockValueError::Lost`] it is unknown
    /// whether earlier holders are shut out.
    ///
    /// # Cancel safety
    /// If the future is dropped, the value is unchanged. Earlier holders may be shut out.
    pub async fn read(&self, guard: &impl LockGuard) -> Result<Versioned, LockValueError> {
        let hold = self.check(guard)?;
        self.read_by(|| may_write(hold)).await
    }

    /// Reads for the holder whose token `fence` returns while it holds the lock.
    pub(super) async fn read_by(
        &self,
        fence: impl Fn() -> Result<ValueFence, LockValueError>,
    ) -> Result<Versioned, LockValueError> {
        // A further opening gets the present value from the grantor, and whether it may be stale.
        // This member's copy may be older than the recovery after which this member got the lock.
        let known = self.value.get()?;
        let anew = self.service.open(self.value.name(), &known.value).await?;
        planted!(ReadInSilence => return Ok(decode(&anew.get()?)?.0));
        self.put(&anew, fence, None).await
    }

    /// Writes, if no later holder has read or written before. Returns the new version. One round
    /// trip, or a few if other holders write, too; no message at the grantor's own member.
    ///
    /// # Errors
    /// [`LockValueError`]. With [`LockValueError::Lost`] it is unknown whether the value was
    /// written; otherwise nothing was.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is written. If it is dropped later,
    /// the value is written once or not at all.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LockValue, LockValueError};
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let shelf = LockValue::open(&stock, "sku-42", "shelf 3").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// shelf.write(&guard, "shelf 4").await?;
    /// let other = stock.lock("sku-43").await?;
    /// assert_eq!(shelf.write(&other, "shelf 5").await, Err(LockValueError::OtherLock));
    /// # Ok(()) }
    /// ```
    pub async fn write(
        &self,
        guard: &impl LockGuard,
        value: impl AsRef<[u8]>,
    ) -> Result<Token, LockValueError> {
        let hold = self.check(guard)?;
        self.write_by(|| may_write(hold), value.as_ref()).await
    }

    /// Writes for the holder whose token `fence` returns while it holds the lock.
    pub(super) async fn write_by(
        &self,
        fence: impl Fn() -> Result<ValueFence, LockValueError>,
        value: &[u8],
    ) -> Result<Token, LockValueError> {
        self.put(&self.value, fence, Some(value)).await.map(|written| written.version)
    }

    /// Completes when this member knows another version than `since`, with the latest one: versions
    /// in between may be missed. Each [`read`](LockValue::read) under the lock is a version, too.
    ///
    /// # Errors
    /// As for [`get`](LockValue::get).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call sees all changes since.
    pub async fn changed(&self, since: Token) -> Result<Versioned, LockValueError> {
        decode(&self.value.changed(since).await?).map(|(seen, _)| seen)
    }

    /// Completes when the value is no longer open, with the reason. Open it again then.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.value.lost().await
    }

    /// Closes the value, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the value begins anew. While
    /// there are other clones, only this clone ends, and the grantor is not told. One round trip,
    /// no message at the grantor's own member.
    ///
    /// Dropping the last clone closes the value too, without waiting: an opening before the grantor
    /// knows of that finds the old value.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the value was lost before, or no grantor has answered
    /// within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the value too, but then the caller cannot know when the grantor
    /// does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.value.close().await
    }

    /// The lock's name.
    pub fn name(&self) -> &[u8] {
        self.value.name()
    }

    /// The hold, if it may write.
    fn check<'a>(&self, guard: &'a impl LockGuard) -> Result<&'a HoldHandle, LockValueError> {
        let hold = guard.held();
        // The hold must be of this member: another cluster in the same process may have the same
        // names, and its tokens mean nothing here.
        if self.service.has(hold) && hold.name() == self.name() {
            Ok(hold)
        } else {
            Err(LockValueError::OtherLock)
        }
    }

    #[cfg(test)]
    pub(super) fn shared(&self) -> SharedValue {
        self.value.clone()
    }

    /// Writes `new`, or the present value, with the holder's token. Returns the value after that,
    /// with the mark from before it.
    ///
    /// Each write has a token no lower than the token that it replaces. So the token of the last
    /// such write never falls: a later holder's write stays. The clock decides nothing here;
    /// `fence` only ends a useless write sooner.
    pub(super) async fn put(
        &self,
        value: &SharedValue,
        fence: impl Fn() -> Result<ValueFence, LockValueError>,
        new: Option<&[u8]>,
    ) -> Result<Versioned, LockValueError> {
        let mut seen = value.get()?;
        let mut own = fence()?;
        loop {
            let (mut content, by) = decode(&seen)?;
            if !own.admits_after(by) && !planted!(WriteOverLater) {
                return Err(LockValueError::Superseded);
            }
            let bytes = new.unwrap_or(&content.value);
            match value.compare_and_set(seen.version, encode(bytes, own)).await {
                Ok(version) => {
                    if let Some(new) = new {
                        content.value = new.into();
                    }
                    content.version = version;
                    return Ok(content);
                }
                Err(SetError::Changed(now)) => {
                    seen = now;
                    if !planted!(WriteOverLater) {
                        own = fence()?;
                    }
                }
                Err(SetError::InvalidValue(error)) => return Err(error.into()),
                Err(SetError::Busy) => return Err(LockValueError::Busy),
                Err(SetError::Lost(lost)) => return Err(lost.into()),
            }
        }
    }
}

/// The token, while the lock is held exclusively. It is checked again before each try: another
/// guard of the hold may have turned the lock into a share.
fn may_write(hold: &HoldHandle) -> Result<ValueFence, LockValueError> {
    if hold.is_shared() {
        return Err(LockValueError::Shared);
    }
    let token = hold.fence().map_err(LockValueError::LockLost)?;
    Ok(ValueFence { token: token.get(), lineage: hold.lineage().0 })
}

fn encode(value: &[u8], by: ValueFence) -> Vec<u8> {
    [value, &by.token.to_le_bytes(), &by.lineage.to_le_bytes(), &[TAG]].concat()
}

/// The present value, and the last holder.
fn decode(seen: &Versioned) -> Result<(Versioned, ValueFence), LockValueError> {
    let Some((value, [trailer @ .., TAG])) = seen.value.split_last_chunk::<TRAILER>() else {
        return Err(LockValueError::NotALockValue);
    };
    let [token, lineage] = [trailer.first_chunk(), trailer.last_chunk()]
        .map(|number| number.map_or(0, |bytes| u64::from_le_bytes(*bytes)));
    Ok((Versioned { value: value.into(), ..seen.clone() }, ValueFence { token, lineage }))
}

/// Why a [`LockValue`] is not read or written.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LockValueError {
    /// The value is too long. Nothing was asked.
    #[error(transparent)]
    InvalidValue(#[from] InvalidValue),
    /// The guard is of another lock, of another service or of another member than the value.
    /// Nothing was asked. A program with several members opens the value at each of them.
    #[error("the guard belongs to another lock or member than the value")]
    OtherLock,
    /// The guard is a [share](LockService::share) of the lock, and other holders may have one, too.
    /// Nothing was written.
    #[error("the guard is a share of the lock; only the exclusive holder writes")]
    Shared,
    /// The lock is no longer held. Nothing was written.
    #[error(transparent)]
    LockLost(Lost),
    /// A later holder has read or written the value: the lock is lost, and its guard will know as
    /// soon as it can. Nothing was written.
    #[error("a later holder of the lock has read or written the value")]
    Superseded,
    /// [`SharedValue::set`] wrote a value by that name that is not a lock value. Nothing was
    /// changed.
    #[error("{}", LockError::OtherRecipe)]
    NotALockValue,
    /// Too many requests of this member wait already. Nothing was written; try again later.
    #[error("{}", Unavailable::Busy)]
    Busy,
    /// The value is no longer open: the cluster continues without the member, the member has left,
    /// or the service was destroyed here. A write that was under way may have been made. Open the
    /// value again.
    #[error("{}", not_open("value", .0))]
    Lost(Lost),
}

impl From<Lost> for LockValueError {
    fn from(lost: Lost) -> Self {
        LockValueError::Lost(lost)
    }
}

/// The error of a further opening of an open value.
impl From<LockError> for LockValueError {
    fn from(error: LockError) -> Self {
        error.when_opened_again().map_or(LockValueError::Busy, LockValueError::Lost)
    }
}

impl LockValueError {
    /// Returns whether the lock is no longer held.
    pub fn is_lock_lost(&self) -> bool {
        matches!(self, LockValueError::LockLost(_) | LockValueError::Superseded)
    }
}
