//! `AtomicCounter`: a number of 64 bits that all members see and change.
//!
//! ```text
//! the object's bytes    low: i32 | 'N' | is it set: 0, 1 | base: i64        (little endian)
//! the number            base + low
//! ```
//! The grantor adds numbers of 32 bits (as it does for a [`SharedCount`](super::SharedCount)), and
//! only if the bytes behind that number are the expected ones. So an addition to `low` is made for
//! the base that its caller knows, or not at all. If the sum does not fit 32 bits, or the base is
//! another, the whole number is written anew by compare-and-set.
//!
//! The base keeps a distance from both ends of 64 bits, so `base + low` never overflows.

use super::shared_count::CountError;
use super::wait_future::WaitFuture;
use crate::protocol::{LostReason, NumberEdit, Token};
use crate::runtime::planted;
use crate::service::{
    LockError, LockService, Lost, OpenBuilder, ReleaseError, SetError, SharedValue, Unavailable,
    Versioned, not_open,
};

/// A number of 64 bits, with a sign, that every member with an opening of it sees and changes.
///
/// The grantor executes an [`add`](AtomicCounter::add), in the order of the requests, and returns
/// the number before and after. An addition takes one round trip, however many other members add,
/// and none at the grantor's own member. The following additions are written by compare-and-set
/// instead, which takes two round trips, and more while other members write at the same time:
/// - the first addition to a number that was never set;
/// - an addition of more than 32 bits;
/// - one addition in about two billion, when the sum does not fit the 32 bits in which the grantor
///   adds.
///
/// **The number lives in memory**, as each [`SharedValue`] does:
/// - The number lives while a member has it open. When the last opening is closed or dropped, or
///   ends with its member, the number ends too. The next opening begins at 0, not set.
/// - A [transfer](LockService::become_grantor) and a goodbye of the grantor lose nothing.
/// - When the grantor dies, the number is that of the highest version that a living member knows.
///   An answered change is lost only if every member that knew it is dead. A change of the
///   grantor's own member is answered before any other member knows it. Until the next change the
///   number is marked [`maybe_stale`](CounterValue::maybe_stale).
/// - A repeated request is executed once, also by the next grantor.
///
/// Use the counter for numbers that may begin anew with the cluster. Keep a number that must never
/// repeat in a database, behind a [token](crate::Guard::fence). For a number that must only rise,
/// use the token itself.
///
/// Curator: `DistributedAtomicLong`, `DistributedAtomicInteger`, which try again with a growing
/// pause when other clients write.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::AtomicCounter;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let orders = AtomicCounter::open(&shop, "orders").await?;
/// assert!(orders.initialize(1_000_000_000_000).await?);
/// let added = orders.add(3).await?;
/// assert_eq!((added.before, added.after), (1_000_000_000_000, 1_000_000_000_003));
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "the number is gone as soon as no member has it open"]
pub struct AtomicCounter {
    service: LockService,
    value: SharedValue,
}

/// An [`AtomicCounter`] at one of its versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct CounterValue {
    /// The number; 0 before it is set.
    pub number: i64,
    /// Whether the number was set or added to since it was opened first.
    pub is_set: bool,
    /// The version, which rises with every change, also with one to the same number.
    pub version: Token,
    /// Whether the grantor has died since the number was written: a later change may be lost, if no
    /// living member knew it.
    pub maybe_stale: bool,
}

/// The result of an [addition](AtomicCounter::add).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Addition {
    /// The number right before the addition.
    pub before: i64,
    /// The number right after the addition.
    pub after: i64,
    /// The version that the addition made.
    pub version: Token,
}

/// The number as the object stores it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct CounterParts {
    low: i32,
    base: i64,
    is_set: bool,
}

/// The byte behind `low`, which distinguishes a counter from other objects.
const TAG: u8 = b'N';
const LENGTH: usize = 14;

/// The lowest base: from it to [`HIGHEST_BASE`], `base + low` fits 64 bits for each `low`.
const LOWEST_BASE: i64 = i64::MIN - i32::MIN as i64;
const HIGHEST_BASE: i64 = i64::MAX - i32::MAX as i64;

impl CounterParts {
    const UNSET: CounterParts = CounterParts { low: 0, base: 0, is_set: false };

    /// The parts of `number` that leave the most room in `low`.
    fn of(number: i64) -> CounterParts {
        let base = number.clamp(LOWEST_BASE, HIGHEST_BASE);
        // Beyond the bounds of a base the rest fits 32 bits.
        CounterParts { low: (number - base) as i32, base, is_set: true }
    }

    fn number(self) -> i64 {
        self.base.wrapping_add(self.low.into())
    }

    /// The bytes behind `low`.
    fn tail(self) -> Vec<u8> {
        [&[TAG, self.is_set.into()], &self.base.to_le_bytes()[..]].concat()
    }

    fn write(self) -> Vec<u8> {
        [&self.low.to_le_bytes()[..], &self.tail()].concat()
    }

    fn read(seen: &Versioned) -> Result<CounterParts, CounterError> {
        let bytes = <[u8; LENGTH]>::try_from(&seen.value[..]);
        match bytes.map_err(|_| CounterError::NotACounter)? {
            [a, b, c, d, TAG, is_set @ (0 | 1), base @ ..] => Ok(CounterParts {
                low: i32::from_le_bytes([a, b, c, d]),
                base: i64::from_le_bytes(base),
                is_set: is_set == 1,
            }),
            _ => Err(CounterError::NotACounter),
        }
    }

    /// The number for the grantor to add, if the sum stays in 32 bits.
    fn step(self, delta: i64) -> Option<i32> {
        let by = i32::try_from(delta).ok().filter(|_| self.is_set)?;
        self.low.checked_add(by).map(|_| by)
    }
}

impl AtomicCounter {
    /// Opens the counter `name`, 1 to 4096 bytes. If no member has it open, it begins at 0, and is
    /// not [set](CounterValue::is_set); otherwise it is the present number. Waits for a grantor,
    /// but for no lock.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherRecipe`]: another object, such as a count, is
    /// open by that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    ///
    /// Curator: `DistributedAtomicLong(client, counterPath, retryPolicy)`.
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
    ) -> WaitFuture<'static, AtomicCounter, LockError> {
        let opening = service.open(name, CounterParts::UNSET.write());
        WaitFuture::opening(service, AtomicCounter::opened(service.clone(), opening))
    }

    async fn opened(
        service: LockService,
        opening: OpenBuilder,
    ) -> Result<AtomicCounter, LockError> {
        let value = opening.await?;
        // A lost object is returned: its own calls report the loss.
        if value.get().is_ok_and(|seen| CounterParts::read(&seen).is_err()) {
            return Err(LockError::OtherRecipe);
        }
        Ok(AtomicCounter { service, value })
    }

    /// The number as this member knows it: late by the network's delay, since the grantor sends
    /// every change to this member. Sends no message.
    ///
    /// # Errors
    /// [`CounterError::Lost`]: the counter is no longer open. [`CounterError::NotACounter`].
    /// Nothing is changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::AtomicCounter;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = AtomicCounter::open(&shop, "orders").await?;
    /// let seen = orders.get()?;
    /// assert_eq!((seen.number, seen.is_set), (0, false));
    /// # Ok(()) }
    /// ```
    pub fn get(&self) -> Result<CounterValue, CounterError> {
        seen(&self.value.get()?)
    }

    /// The number at the grantor, at an instant after the call. One round trip.
    ///
    /// # Errors
    /// [`CounterError`]; nothing is changed. [`CounterError::TimedOut`]: no grantor has answered
    /// within the [limit](WaitFuture::wait).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `DistributedAtomicLong.get`.
    pub fn read(&self) -> WaitFuture<'_, CounterValue, CounterError> {
        WaitFuture::new(&self.service, || CounterError::TimedOut, self.look())
    }

    async fn look(&self) -> Result<CounterValue, CounterError> {
        seen(&self.fresh().await?)
    }

    /// Adds to the number, and returns the number before and after. The grantor adds, in the order
    /// of the requests; see [`AtomicCounter`] for the additions that take more than one round trip.
    /// `delta` is added once, also if the grantor changes meanwhile. An addition of 0 is a change,
    /// too.
    ///
    /// # Errors
    /// [`CounterError::Overflow`]: the sum does not fit 64 bits; nothing is changed.
    /// Otherwise as for [`set`](AtomicCounter::set).
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is added. If it is dropped later,
    /// the number is added once or not at all.
    ///
    /// Curator: `DistributedAtomicLong.add`, `subtract`, `increment`, `decrement`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{AtomicCounter, CounterError};
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = AtomicCounter::open(&shop, "orders").await?;
    /// assert_eq!(orders.add(5).await?.after, 5);
    /// let added = orders.add(-7).await?;
    /// assert_eq!((added.before, added.after), (5, -2));
    /// assert_eq!(orders.add(i64::MIN).await, Err(CounterError::Overflow));
    /// # Ok(()) }
    /// ```
    pub async fn add(&self, delta: i64) -> Result<Addition, CounterError> {
        let mut present = self.value.get()?;
        loop {
            let parts = CounterParts::read(&present)?;
            let before = parts.number();
            if let Some(step) = parts.step(delta) {
                match self.value.step(NumberEdit::Add(step), &parts.tail()).await {
                    Ok((version, low)) => {
                        let after = CounterParts { low, ..parts }.number();
                        return Ok(Addition { before: after.wrapping_sub(delta), after, version });
                    }
                    Err(SetError::Changed(now)) => present = now,
                    Err(error) => return Err(error.into()),
                }
                continue;
            }
            let Some(after) = before.checked_add(delta) else {
                // The number may have changed by now.
                let now = self.fresh().await?;
                if now.version == present.version {
                    return Err(CounterError::Overflow);
                }
                present = now;
                continue;
            };
            let written = CounterParts::of(after).write();
            match self.write(present.version, written).await {
                Ok(version) => return Ok(Addition { before, after, version }),
                Err(SetError::Changed(now)) => present = now,
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets the number to `new` if it is `expected`; a number that was never set is 0. Returns the
    /// version of the write. Takes one round trip if this member knows the present number, else
    /// two. Takes more while other members write the expected number anew at the same time.
    ///
    /// # Errors
    /// [`CounterError::Changed`] with the present number, which is not `expected`; nothing is
    /// changed. Otherwise as for [`set`](AtomicCounter::set).
    ///
    /// # Cancel safety
    /// As for `set`.
    ///
    /// Curator: `DistributedAtomicLong.compareAndSet`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{AtomicCounter, CounterError};
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = AtomicCounter::open(&shop, "orders").await?;
    /// orders.compare_and_set(0, 7).await?;
    /// match orders.compare_and_set(0, 8).await {
    ///     Err(CounterError::Changed(now)) => assert_eq!(now.number, 7),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn compare_and_set(&self, expected: i64, new: i64) -> Result<Token, CounterError> {
        let mut present = self.value.get()?;
        let mut is_fresh = false;
        loop {
            let now = seen(&present)?;
            if now.number != expected {
                if is_fresh {
                    return Err(CounterError::Changed(now));
                }
                (present, is_fresh) = (self.fresh().await?, true);
                continue;
            }
            match self.write(present.version, CounterParts::of(new).write()).await {
                Ok(version) => return Ok(version),
                Err(SetError::Changed(now)) => (present, is_fresh) = (now, true),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Sets the number to `value` if it was never set, or added to, since it was opened first.
    /// Returns whether this call has set it; `false`: nothing is changed. One round trip, none if
    /// this member knows that the number is set.
    ///
    /// # Errors
    /// As for [`set`](AtomicCounter::set).
    ///
    /// # Cancel safety
    /// As for `set`.
    ///
    /// Curator: `DistributedAtomicLong.initialize`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::AtomicCounter;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = AtomicCounter::open(&shop, "orders").await?;
    /// assert!(orders.initialize(100).await?);
    /// assert!(!orders.initialize(200).await?);
    /// assert_eq!(orders.get()?.number, 100);
    /// # Ok(()) }
    /// ```
    pub async fn initialize(&self, value: i64) -> Result<bool, CounterError> {
        let mut present = self.value.get()?;
        // A set number stays set while a member that knows it has it open, as this member has.
        while !CounterParts::read(&present)?.is_set {
            match self.write(present.version, CounterParts::of(value).write()).await {
                Ok(_) => return Ok(true),
                Err(SetError::Changed(now)) => present = now,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(false)
    }

    /// Sets the number unconditionally. Returns the version of the write. One round trip.
    ///
    /// # Errors
    /// [`CounterError::Lost`]: the number may be written or not. Others: nothing is changed.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is written. If it is dropped later,
    /// the number is written once or not at all.
    ///
    /// Curator: `DistributedAtomicLong.forceSet`.
    pub async fn set(&self, number: i64) -> Result<Token, CounterError> {
        Ok(self.value.set(CounterParts::of(number).write()).await?)
    }

    /// Completes when this member knows another version than `since`, with the latest one: versions
    /// in between may be missed.
    ///
    /// # Errors
    /// As for [`get`](AtomicCounter::get).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call sees all changes since.
    pub async fn changed(&self, since: Token) -> Result<CounterValue, CounterError> {
        seen(&self.value.changed(since).await?)
    }

    /// Completes with the reason when the counter is no longer open. The reason is that the cluster
    /// continues without the member, the member has left, or the service was destroyed here. Open
    /// the counter again then.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.value.lost().await
    }

    /// Closes the counter, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the counter begins anew.
    /// With other clones of this counter around only this clone ends, and the grantor is not told.
    /// One round trip, no message at the grantor's own member.
    ///
    /// A drop does not wait: a counter that is opened before the grantor knows of the drop has the
    /// old number.
    ///
    /// # Errors
    /// [`ReleaseError`]: the counter was lost before, or no grantor has answered within a member
    /// lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the counter too, but then the caller cannot know when the grantor
    /// does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.value.close().await
    }

    /// Returns the name of the counter.
    pub fn name(&self) -> &[u8] {
        self.value.name()
    }

    /// The content at the grantor: a further opening is answered with it.
    async fn fresh(&self) -> Result<Versioned, CounterError> {
        // The number exists while this counter is open, so the further opening does not begin anew.
        let known = self.value.get()?;
        Ok(self.service.open(self.value.name(), &known.value).await?.get()?)
    }

    async fn write(&self, version: Token, value: Vec<u8>) -> Result<Token, SetError> {
        planted!(CounterWithoutLook => return self.value.set(value).await);
        self.value.compare_and_set(version, value).await
    }
}

fn seen(content: &Versioned) -> Result<CounterValue, CounterError> {
    let parts = CounterParts::read(content)?;
    let Versioned { version, maybe_stale, .. } = *content;
    Ok(CounterValue { number: parts.number(), is_set: parts.is_set, version, maybe_stale })
}

/// Why an [`AtomicCounter`] cannot be read or changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CounterError {
    /// The counter does not have the expected number: this is the present one. Nothing was changed.
    #[error("the counter is {}, not the expected number; nothing was set", .0.number)]
    Changed(CounterValue),
    /// The sum does not fit 64 bits. Nothing was changed.
    #[error("the sum overflows a counter of 64 bits; nothing was added")]
    Overflow,
    /// [`SharedValue::set`] wrote a value by that name that is not a counter. Nothing was changed.
    #[error("{}", LockError::OtherRecipe)]
    NotACounter,
    /// The limit of a [read](AtomicCounter::read) was reached. Nothing was changed.
    #[error("{}", CountError::TimedOut)]
    TimedOut,
    /// Too many requests of this member wait already. Nothing was changed; try again later.
    #[error("{}", Unavailable::Busy)]
    Busy,
    /// The counter is no longer open: the cluster continues without the member, the member has
    /// left, or the service was destroyed here. A change that was under way may have been made.
    /// Open the counter again.
    #[error("{}", not_open("counter", .0))]
    Lost(#[from] Lost),
}

impl CounterError {
    /// Returns whether the limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, CounterError::TimedOut)
    }

    /// Returns whether the counter is no longer open.
    pub fn is_lost(&self) -> bool {
        matches!(self, CounterError::Lost(_))
    }
}

/// The error of a write whose caller has handled [`SetError::Changed`].
impl From<SetError> for CounterError {
    fn from(error: SetError) -> Self {
        match error {
            SetError::Changed(now) => seen(&now).map_or_else(|error| error, CounterError::Changed),
            SetError::Busy => CounterError::Busy,
            SetError::Lost(lost) => lost.into(),
            // A few bytes are not too long.
            _ => CounterError::NotACounter,
        }
    }
}

/// The error of a further opening of an open counter.
impl From<LockError> for CounterError {
    fn from(error: LockError) -> Self {
        error.when_opened_again().map_or(CounterError::Busy, CounterError::Lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_of_64_bits_has_its_parts() {
        let near = |number: i64| (-2..=2).map(move |off| number.saturating_add(off));
        let ends = [i64::MIN, LOWEST_BASE, -1 << 31, 0, 1 << 31, HIGHEST_BASE, i64::MAX];
        for number in ends.into_iter().flat_map(near) {
            let parts = CounterParts::of(number);
            assert_eq!(parts.number(), number);
            assert!((LOWEST_BASE..=HIGHEST_BASE).contains(&parts.base), "{number}");
        }
    }

    #[test]
    fn no_low_part_leads_beyond_64_bits() {
        for (base, low, end) in
            [(LOWEST_BASE, i32::MIN, i64::MIN), (HIGHEST_BASE, i32::MAX, i64::MAX)]
        {
            assert_eq!(base.checked_add(low.into()), Some(end));
        }
    }

    #[test]
    fn the_grantor_adds_what_has_32_bits_to_a_number_that_is_set() {
        let parts = |low, is_set| CounterParts { low, base: 7, is_set };
        let least = i64::from(i32::MIN);
        for (parts, delta, step) in [
            (parts(0, true), 5, Some(5)),
            (parts(0, true), least, Some(i32::MIN)),
            (parts(0, true), least - 1, None),
            (parts(i32::MAX, true), 1, None),
            (parts(i32::MAX, true), -1, Some(-1)),
            (parts(0, false), 5, None),
        ] {
            assert_eq!(parts.step(delta), step, "{parts:?} {delta}");
        }
    }
}
