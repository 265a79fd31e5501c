//! `SharedCount`: a number that all members see.

use super::wait_future::WaitFuture;
use crate::protocol::{LostReason, NumberEdit, Token};
use crate::runtime::planted;
use crate::service::{
    LockError, LockService, Lost, ReleaseError, SetError, SharedValue, Unavailable, ValueChanges,
    Versioned, not_open,
};
use futures_util::Stream;
use futures_util::stream::unfold;

/// A number of 32 bits with a version. Every member that has it open sees it, and any of them
/// changes it. It is a [`SharedValue`] of four bytes.
///
/// The count lives while a member has it open: a clone of this value, or another opening of the
/// same name at any member. The number ends when the last opening is [closed](SharedCount::close),
/// dropped, or ends with its member. A later opening, once the grantor knows of that, begins anew.
/// The count stays open while the member is suspended.
///
/// Each change has a higher version, dealt by the grantor as fencing tokens are. So of two counts
/// seen anywhere, at any time, the count with the higher version is the later one. A
/// [transfer](crate::LockService::become_grantor) of the grantor role loses nothing. When the
/// grantor dies, the count is the highest version that any living member knew. It is marked
/// [`maybe_stale`](VersionedCount::maybe_stale) until it is written again: dead members alone may
/// have known a later one.
///
/// The [limit](crate::Semaphore::limit) of a [`Semaphore`](crate::Semaphore) is the count of its
/// name.
///
/// Curator: `SharedCount`, `SharedCountReader`. OpenVMS and the Linux DLM: a lock value block.
#[derive(Clone, Debug)]
pub struct SharedCount {
    service: LockService,
    name: Vec<u8>,
    kind: ObjectKind,
    value: SharedValue,
}

/// The number of bytes of a latch's round.
const ROUND: usize = 4;

/// The kind of an object of four bytes and a tag, so that an object of one kind is never taken for
/// another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ObjectKind {
    /// The form without a tag: the grantor reads it as the limit of permits.
    Count,
    Barrier,
    /// The form with the size of its rounds.
    DoubleBarrier {
        members: u32,
    },
    /// The form with the number of its round behind it.
    Latch,
}

/// A [`SharedCount`] at one of its versions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct VersionedCount {
    /// The number at this version.
    pub count: i32,
    /// The version, which rises with every change, also with one to the same number.
    pub version: Token,
    /// Whether the grantor has died since the number was written: a later write may be lost, if no
    /// living member knew it.
    pub maybe_stale: bool,
}

impl SharedCount {
    /// Opens the count `name`, 1 to 4096 bytes. If no member has it open, it begins with `initial`,
    /// otherwise it is the present count. Waits for a grantor, but for no lock.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherRecipe`]: a barrier, say, is open by that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    ///
    /// Curator: `SharedCount.start`, with the seed value.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::SharedCount;
    /// use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = SharedCount::open(&shop, "orders", 10).await?;
    /// let the_same = SharedCount::open(&shop, "orders", 20).wait(Duration::from_secs(2)).await?;
    /// assert_eq!(the_same.get()?.count, 10);
    /// # Ok(()) }
    /// ```
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
        initial: i32,
    ) -> WaitFuture<'static, SharedCount, LockError> {
        SharedCount::open_as(ObjectKind::Count, service, name.as_ref(), initial, |count| count)
    }

    /// Opens an object of this kind for a recipe, which `make` makes from the count.
    pub(super) fn open_as<T: 'static>(
        kind: ObjectKind,
        service: &LockService,
        name: &[u8],
        initial: i32,
        make: impl FnOnce(SharedCount) -> T + Send + 'static,
    ) -> WaitFuture<'static, T, LockError> {
        let opened = SharedCount::opened(kind, service.clone(), name.to_vec(), initial);
        WaitFuture::opening(service, async move { opened.await.map(make) })
    }

    async fn opened(
        kind: ObjectKind,
        service: LockService,
        name: Vec<u8>,
        initial: i32,
    ) -> Result<SharedCount, LockError> {
        let value = service.open(&name, kind.write(initial)).await?;
        // A lost object is returned: the calls of the recipe report the loss.
        if let Ok(seen) = value.get() {
            kind.check(&seen)?;
        }
        Ok(SharedCount { service, name, kind, value })
    }

    /// The count as this member knows it: late by the network's delay, since the grantor sends
    /// every change to this member. Sends no message.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the count is no longer open. [`CountError::NotACount`].
    ///
    /// Curator: `SharedCount.getVersionedValue`.
    pub fn get(&self) -> Result<VersionedCount, CountError> {
        self.kind.read(&self.value.get()?)
    }

    /// The count at the grantor, at an instant after the call. One round trip.
    ///
    /// # Errors
    /// [`CountError`]; nothing is changed. [`CountError::TimedOut`]: no grantor has answered within
    /// the [limit](WaitFuture::wait).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub fn read(&self) -> WaitFuture<'_, VersionedCount, CountError> {
        WaitFuture::new(&self.service, || CountError::TimedOut, self.fresh())
    }

    /// The count at the grantor.
    pub(super) async fn fresh(&self) -> Result<VersionedCount, CountError> {
        self.opened_anew().await?.get()
    }

    /// Sets the count unconditionally. Returns the version of the write.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the count may be written or not. Others: nothing is changed.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is written. If it is dropped later,
    /// the number may be written.
    ///
    /// Curator: `SharedCount.setCount`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::SharedCount;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = SharedCount::open(&shop, "orders", 0).await?;
    /// let before = orders.get()?.version;
    /// assert!(orders.set(7).await? > before);
    /// assert_eq!(orders.get()?.count, 7);
    /// # Ok(()) }
    /// ```
    pub async fn set(&self, count: i32) -> Result<Token, CountError> {
        self.value.set(self.kind.write(count)).await.map_err(|error| self.error(error))
    }

    /// Sets the count if it is still at `version`. Returns the version of the write.
    ///
    /// # Errors
    /// [`CountError::Changed`] with the present count; nothing is changed. Others as for
    /// [`set`](SharedCount::set).
    ///
    /// # Cancel safety
    /// As for `set`.
    ///
    /// Curator: `SharedCount.trySetCount`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{CountError, SharedCount};
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = SharedCount::open(&shop, "orders", 0).await?;
    /// let seen = orders.get()?;
    /// orders.set(1).await?;
    /// match orders.try_set(seen.version, 2).await {
    ///     Err(CountError::Changed(now)) => assert_eq!(now.count, 1),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn try_set(&self, version: Token, count: i32) -> Result<Token, CountError> {
        planted!(SetWithoutLook => return self.set(count).await);
        self.value
            .compare_and_set(version, self.kind.write(count))
            .await
            .map_err(|error| self.error(error))
    }

    /// Adds to the count, and returns the sum. The grantor adds, in the order of the requests, so
    /// this takes one round trip however many members add. `by` is added once, also if the grantor
    /// changes meanwhile.
    ///
    /// # Errors
    /// [`CountError::Overflow`]: the sum does not fit 32 bits; nothing is changed. Others as for
    /// [`set`](SharedCount::set).
    ///
    /// # Cancel safety
    /// As for `set`: after a drop later than the first poll, the number may be added or not.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::SharedCount;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = SharedCount::open(&shop, "orders", 5).await?;
    /// assert_eq!(orders.add(-2).await?.count, 3);
    /// # Ok(()) }
    /// ```
    pub async fn add(&self, by: i32) -> Result<VersionedCount, CountError> {
        match self.step(NumberEdit::Add(by)).await {
            Err(CountError::Changed(_)) => Err(CountError::Overflow),
            added => added,
        }
    }

    /// Lets the grantor change the present number by a step, in the order of the requests.
    /// [`CountError::Changed`] with the present count: the step does not apply to it.
    pub(super) async fn step(&self, step: NumberEdit) -> Result<VersionedCount, CountError> {
        match self.value.step(step, &self.kind.tag()).await {
            Ok((version, count)) => Ok(VersionedCount { count, version, maybe_stale: false }),
            Err(error) => Err(self.error(error)),
        }
    }

    /// The changes from now on.
    ///
    /// Curator: `SharedCount.addListener`.
    ///
    /// The stream keeps the count open.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::SharedCount;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let orders = SharedCount::open(&shop, "orders", 0).await?;
    /// let mut changes = orders.changes()?;
    /// orders.set(1).await?;
    /// assert_eq!(changes.next().await?.count, 1);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// [`CountError::Lost`]: the count is no longer open.
    pub fn changes(&self) -> Result<CountChanges, CountError> {
        Ok(CountChanges { kind: self.kind, changes: self.value.changes()? })
    }

    /// Completes with the reason when the count is no longer open. The reason is that the member
    /// was cut off, expelled or has left, or the service was destroyed here. Open the count again
    /// then.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn lost(&self) -> LostReason {
        self.value.lost().await
    }

    /// Closes the count, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the count begins anew. With
    /// other clones of this count around, or a stream of its [`changes`](SharedCount::changes),
    /// only this clone ends, and the grantor is not told. One round trip, no message at the
    /// grantor's own member.
    ///
    /// A drop does not wait: a count that is opened before the grantor knows of the drop has the
    /// old number.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the count was lost before, or no grantor has answered
    /// within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the count too, but then the caller cannot know when the grantor
    /// does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.value.close().await
    }

    /// Returns the name of the count.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    pub(super) fn service(&self) -> &LockService {
        &self.service
    }

    /// Opens the same count once more. The answer to an opening has the count, so the returned
    /// opening knows all writes before the call. It keeps that knowledge, also when the grantor
    /// dies.
    pub(super) async fn opened_anew(&self) -> Result<SharedCount, CountError> {
        // The number exists while this count is open, so the further opening does not begin anew.
        let known = self.value.get()?;
        let value = self.service.open(&self.name, &known.value).await?;
        Ok(SharedCount {
            service: self.service.clone(),
            name: self.name.clone(),
            kind: self.kind,
            value,
        })
    }

    /// Waits until the number is as wanted, or until anything else of the object changes: as this
    /// member knows it.
    pub(super) async fn until_or_over(
        &self,
        wanted: impl Fn(i32) -> bool,
    ) -> Result<VersionedCount, CountError> {
        let round = |seen: &Versioned| seen.value.get(size_of::<i32>()..).map(<[u8]>::to_vec);
        let mut seen = self.value.get()?;
        let began = round(&seen);
        loop {
            let count = self.kind.read(&seen)?;
            if wanted(count.count) || round(&seen) != began {
                return Ok(count);
            }
            seen = self.value.changed(seen.version).await?;
        }
    }

    /// Waits until the number is as wanted, as this member knows it.
    pub(super) async fn until(
        &self,
        wanted: impl Fn(i32) -> bool,
    ) -> Result<VersionedCount, CountError> {
        let mut seen = self.get()?;
        while !wanted(seen.count) {
            seen = self.kind.read(&self.value.changed(seen.version).await?)?;
        }
        Ok(seen)
    }

    fn error(&self, error: SetError) -> CountError {
        match error {
            SetError::Changed(now) => {
                self.kind.read(&now).map_or_else(|error| error, CountError::Changed)
            }
            SetError::Busy => CountError::Busy,
            SetError::Lost(lost) => lost.into(),
            // A few bytes are not too long.
            _ => CountError::NotACount,
        }
    }
}

impl ObjectKind {
    fn tag(self) -> Vec<u8> {
        match self {
            ObjectKind::Count => Vec::new(),
            ObjectKind::Barrier => b"B".to_vec(),
            ObjectKind::DoubleBarrier { members } => [b"D", &members.to_le_bytes()[..]].concat(),
            ObjectKind::Latch => b"L".to_vec(),
        }
    }

    fn write(self, count: i32) -> Vec<u8> {
        let round: &[u8] = if self == ObjectKind::Latch { &[0; ROUND] } else { &[] };
        [&count.to_le_bytes()[..], &self.tag(), round].concat()
    }

    fn read(self, seen: &Versioned) -> Result<VersionedCount, CountError> {
        match seen.value.split_first_chunk() {
            Some((count, rest)) if self.is_of(rest) => {
                let Versioned { version, maybe_stale, .. } = *seen;
                Ok(VersionedCount { count: i32::from_le_bytes(*count), version, maybe_stale })
            }
            _ => Err(CountError::NotACount),
        }
    }

    /// Returns whether the bytes behind the number are those of this kind.
    fn is_of(self, rest: &[u8]) -> bool {
        let round = if self == ObjectKind::Latch { ROUND } else { 0 };
        rest.strip_prefix(&self.tag()[..]).is_some_and(|more| more.len() == round)
    }

    /// Checks that the open object is of this kind.
    fn check(self, seen: &Versioned) -> Result<(), LockError> {
        match (self, &seen.value[..]) {
            _ if self.read(seen).is_ok() => Ok(()),
            (ObjectKind::DoubleBarrier { members: asked }, &[_, _, _, _, b'D', a, b, c, d]) => {
                Err(LockError::OtherNumber { open: u32::from_le_bytes([a, b, c, d]), asked })
            }
            _ => Err(LockError::OtherRecipe),
        }
    }
}

/// The changes of a [`SharedCount`], from [`changes`](SharedCount::changes). Keeps the count open.
#[derive(Clone, Debug)]
pub struct CountChanges {
    kind: ObjectKind,
    changes: ValueChanges,
}

impl CountChanges {
    /// The next change: another version, or the same one that [may be
    /// stale](VersionedCount::maybe_stale) from now on. Versions rise; a listener that is slower
    /// than the changes gets the latest one only.
    ///
    /// # Errors
    /// [`CountError::Lost`]: the count is no longer open, and there are no more changes.
    /// [`CountError::NotACount`].
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call returns the latest.
    ///
    /// Curator: `SharedCountListener.countHasChanged`.
    pub async fn next(&mut self) -> Result<VersionedCount, CountError> {
        self.kind.read(&self.changes.next().await?)
    }

    /// A [`Stream`] of these changes, for the combinators of other crates. It ends after an
    /// error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{Member, SharedCount};
    /// use futures_util::StreamExt as _;
    /// let member = Member::local().await?;
    /// let service = member.lock_service("shop").await?;
    /// let count = SharedCount::open(&service, "seats", 10).await?;
    /// let mut changes = count.changes()?.into_stream();
    /// count.add(-1).await?;
    /// assert_eq!(changes.next().await.expect("it is open")?.count, 9);
    /// member.leave().await?;
    /// assert!(changes.next().await.expect("the reason comes first").is_err());
    /// assert!(changes.next().await.is_none());
    /// # Ok(()) }
    /// ```
    pub fn into_stream(
        self,
    ) -> impl Stream<Item = Result<VersionedCount, CountError>> + Send + Unpin {
        Box::pin(unfold(Some(self), |changes| async {
            let mut changes = changes?;
            let next = changes.next().await;
            let rest = next.is_ok().then_some(changes);
            Some((next, rest))
        }))
    }
}

/// Why a [`SharedCount`] cannot be read, changed or waited for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CountError {
    /// Another write has changed the count since the given version: this is the present count.
    /// Nothing was changed.
    #[error("the count has changed to {}; read it and try again", .0.count)]
    Changed(VersionedCount),
    /// The sum does not fit 32 bits. Nothing was changed.
    #[error("the sum overflows a count of 32 bits; nothing was added")]
    Overflow,
    /// [`SharedValue::set`](crate::SharedValue::set) wrote a value by that name that is not a
    /// count. Nothing was changed.
    #[error("{}", LockError::OtherRecipe)]
    NotACount,
    /// The limit of a [read](SharedCount::read) was reached. Nothing was changed.
    #[error("no grantor has answered within the wait limit")]
    TimedOut,
    /// Too many requests of this member wait already. Nothing was asked; try again later.
    #[error("{}", Unavailable::Busy)]
    Busy,
    /// The count is no longer open: the cluster continues without the member, the member has left,
    /// or the service was destroyed here. A change that was under way may have been made. Open the
    /// count again.
    #[error("{}", not_open("count", .0))]
    Lost(#[from] Lost),
}

impl CountError {
    /// Returns whether the limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, CountError::TimedOut)
    }

    /// Returns whether the count is no longer open.
    pub fn is_lost(&self) -> bool {
        matches!(self, CountError::Lost(_))
    }
}

/// The error of a further opening of an open count.
impl From<LockError> for CountError {
    fn from(error: LockError) -> Self {
        error.when_opened_again().map_or(CountError::Busy, CountError::Lost)
    }
}
