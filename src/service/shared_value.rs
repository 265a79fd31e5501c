//! `SharedValue`: an object that this member has open.

use super::command::CommandFuture;
use super::hold::HoldHandle;
use super::lock_error::{Lost, ReleaseError, Unavailable, not_open};
use crate::protocol::{
    Command, Content, Edit, InvalidValue, LostReason, NumberEdit, Outcome, Token, Value,
};
use futures_util::Stream;
use futures_util::stream::unfold;
use std::sync::Arc;

/// A small value that all members of a service with an opening of it see, from
/// [`open`](crate::LockService::open). The value lives as long as one member has it open.
///
/// Each write has a version, a fencing token: versions rise, also across grantors. All members that
/// have the value open get each change, so reading sends no message. [`get`](SharedValue::get)
/// returns the latest version that this member knows. An answered write is known here, and is not
/// undone while any member that knows it lives. If that is the grantor's own member alone, its
/// death undoes the write. Then the value is the one before, [marked](Versioned::maybe_stale).
///
/// A shared value is not a lock, and depends on no lease. It stays open, with the latest known
/// version, while the member is cut off or suspended. It is lost when the cluster continues without
/// the member, when the member leaves, or when the service is destroyed here.
///
/// Clones share one opening, which ends with the last clone.
///
/// Curator: `SharedValue`, which keeps its value on a server. OpenVMS and the Linux DLM: the lock
/// value block.
#[derive(Clone)]
#[must_use = "the object is closed as soon as the last clone is dropped"]
#[clippy::has_significant_drop]
pub struct SharedValue {
    hold: HoldHandle,
}

/// A value with its version.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Versioned {
    /// The value: up to 1024 bytes.
    pub value: Arc<[u8]>,
    /// The token with which the value was written. A resource that has seen it refuses older ones.
    pub version: Token,
    /// The grantor died after this write, and the object was recovered from the living members.
    /// This is the highest version that one of them knew, and a later one may be lost. Writing the
    /// value again ends that.
    pub maybe_stale: bool,
}

impl From<Content> for Versioned {
    fn from(content: Content) -> Self {
        let Content { value, version, maybe_stale, .. } = content;
        Versioned { value: value.share(), version, maybe_stale }
    }
}

impl SharedValue {
    pub(super) fn new(hold: HoldHandle) -> Self {
        SharedValue { hold }
    }

    /// The latest value that this member knows. Sends no message. The value is outdated when other
    /// members write.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// let colour = settings.open("colour", "red").await?;
    /// assert_eq!(&*colour.get()?.value, b"red");
    /// # Ok(()) }
    /// ```
    pub fn get(&self) -> Result<Versioned, Lost> {
        self.hold.fence()?;
        let reason = LostReason::Left;
        self.hold.cell.content().map(Versioned::from).ok_or(Lost { reason })
    }

    /// Writes unconditionally. Returns the new version.
    ///
    /// If the grantor changes meanwhile, the next one is asked, and the value is written once.
    ///
    /// # Errors
    /// [`SetError`]. If the object is lost meanwhile, the value may have been written; otherwise
    /// nothing was.
    ///
    /// # Cancel safety
    /// If the future is dropped before its first poll, nothing is written. If it is dropped later,
    /// the value is written once or not at all.
    ///
    /// Curator: `SharedValue.setValue`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// let colour = settings.open("colour", "red").await?;
    /// let version = colour.set("green").await?;
    /// let seen = colour.get()?;
    /// assert_eq!((&*seen.value, seen.version), (&b"green"[..], version));
    /// # Ok(()) }
    /// ```
    pub async fn set(&self, value: impl AsRef<[u8]>) -> Result<Token, SetError> {
        let value = Value::new(value.as_ref())?;
        self.write(value, None).await
    }

    /// Writes if the present version is `version`. Returns the new version.
    ///
    /// If the grantor dies meanwhile, the next one is asked. If a living member knows this write,
    /// it was made. Otherwise it is made now, or refused if another write was first. It is never
    /// made twice.
    ///
    /// # Errors
    /// [`SetError::Changed`] with the present value; others as for [`set`](SharedValue::set).
    ///
    /// # Cancel safety
    /// As for [`set`](SharedValue::set).
    ///
    /// Curator: `SharedValue.trySetValue`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use elderlock::SetError;
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// let colour = settings.open("colour", "red").await?;
    /// let first = colour.get()?.version;
    /// let second = colour.compare_and_set(first, "green").await?;
    /// match colour.compare_and_set(first, "blue").await {
    ///     Err(SetError::Changed(seen)) => assert_eq!(seen.version, second),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn compare_and_set(
        &self,
        version: Token,
        value: impl AsRef<[u8]>,
    ) -> Result<Token, SetError> {
        let value = Value::new(value.as_ref())?;
        self.write(value, Some(version)).await
    }

    async fn write(&self, value: Value, expect: Option<Token>) -> Result<Token, SetError> {
        self.edit(Edit::Set { value, expect }).await.map(|(version, _)| version)
    }

    /// Lets the grantor change the number with which the value begins, if the rest of the value is
    /// `tail`. Returns the new version, and the number. [`SetError::Changed`]: the step does not
    /// apply.
    pub(crate) async fn step(
        &self,
        step: NumberEdit,
        tail: &[u8],
    ) -> Result<(Token, i32), SetError> {
        let (version, number) = self.edit(Edit::Step { step, tail: Value::new(tail)? }).await?;
        Ok((version, number.unwrap_or_default()))
    }

    async fn edit(&self, edit: Edit) -> Result<(Token, Option<i32>), SetError> {
        self.hold.fence().map_err(SetError::Lost)?;
        let open = self.hold.request();
        let asking = CommandFuture::new(self.hold.service.clone(), move |request| Command::Write {
            request,
            open,
            edit,
        });
        match asking.await {
            Err(Outcome::Written { version, number }) => Ok((version, number)),
            Err(Outcome::Unwritten(content)) => Err(SetError::Changed(content.into())),
            Err(Outcome::Busy) => Err(SetError::Busy),
            Err(Outcome::Closed(reason)) => Err(SetError::Lost(Lost { reason })),
            _ => Err(SetError::Lost(
                self.hold.fence().err().unwrap_or(Lost { reason: LostReason::Superseded }),
            )),
        }
    }

    /// Completes when this member knows another version than `since`, with the latest one: versions
    /// in between may be missed.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call sees all changes since.
    ///
    /// Curator: `SharedValueListener`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// let colour = settings.open("colour", "red").await?;
    /// let first = colour.get()?.version;
    /// colour.set("green").await?;
    /// assert_eq!(&*colour.changed(first).await?.value, b"green");
    /// # Ok(()) }
    /// ```
    pub async fn changed(&self, since: Token) -> Result<Versioned, Lost> {
        self.changed_so(|content| content.version != since).await
    }

    async fn changed_so(&self, is_new: impl Fn(&Content) -> bool) -> Result<Versioned, Lost> {
        self.hold.cell.changed(is_new).await.map(Versioned::from).map_err(|reason| Lost { reason })
    }

    /// The versions that this member learns from now on. The stream also reports when the same
    /// version becomes [`maybe_stale`](Versioned::maybe_stale), which
    /// [`changed`](SharedValue::changed) does not.
    ///
    /// # Errors
    /// [`Lost`] with the reason, for good.
    ///
    /// The stream keeps the object open.
    ///
    /// Curator: `SharedValue.addListener`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// let colour = settings.open("colour", "red").await?;
    /// let mut changes = colour.changes()?;
    /// colour.set("green").await?;
    /// let seen = changes.next().await?;
    /// assert_eq!((&*seen.value, seen.maybe_stale), (&b"green"[..], false));
    /// # Ok(()) }
    /// ```
    pub fn changes(&self) -> Result<ValueChanges, Lost> {
        let seen = self.get()?;
        Ok(ValueChanges { value: self.clone(), seen: (seen.version, seen.maybe_stale) })
    }

    /// Completes when the object is lost here, with the reason; never while it is open.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports a loss in between.
    pub async fn lost(&self) -> LostReason {
        self.hold.cell.lost().await
    }

    /// Closes the value, and waits until the grantor knows that. A later opening by that name, at
    /// any member, no longer finds this opening. If there is no other, the object begins anew. With
    /// other clones of this value around, or a stream of its [`changes`](SharedValue::changes),
    /// only this clone ends, and the grantor is not told. One round trip, no message at the
    /// grantor's own member.
    ///
    /// A drop does not wait: an opening before the grantor knows of the drop finds the old value.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the object was lost before, or no grantor has
    /// answered within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the value too, but then the caller cannot know when the grantor
    /// does.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let settings = member.lock_service("settings").await?;
    /// settings.open("colour", "red").await?.close().await?;
    /// assert_eq!(&*settings.open("colour", "blue").await?.get()?.value, b"blue");
    /// # Ok(()) }
    /// ```
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.hold.release_confirmed().await
    }

    /// The object's name.
    pub fn name(&self) -> &[u8] {
        self.hold.want.names().first().map_or(&[], |name| name.as_bytes())
    }

    /// The service's name.
    pub fn service(&self) -> &str {
        self.hold.service.name.as_str()
    }
}

impl std::fmt::Debug for SharedValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SharedValue")
            .field("hold", &self.hold.want)
            .field("seen", &self.get())
            .finish_non_exhaustive()
    }
}

/// The changes of a [`SharedValue`], from [`changes`](SharedValue::changes). Keeps the object open.
#[derive(Clone, Debug)]
pub struct ValueChanges {
    value: SharedValue,
    /// The last reported version, and whether it was reported as maybe stale.
    seen: (Token, bool),
}

impl ValueChanges {
    /// The next change: another version, or the same one that [may be
    /// stale](Versioned::maybe_stale) from now on. Versions rise; a reader that is slower than the
    /// changes gets the latest and none of those before it.
    ///
    /// # Errors
    /// [`Lost`] with the reason: the object is no longer open, and there are no more changes.
    ///
    /// # Cancel safety
    /// Dropping the future loses no change: the next call returns the latest.
    pub async fn next(&mut self) -> Result<Versioned, Lost> {
        let seen = self.seen;
        let now =
            self.value.changed_so(|content| (content.version, content.maybe_stale) != seen).await?;
        self.seen = (now.version, now.maybe_stale);
        Ok(now)
    }

    /// A [`Stream`] of these changes, for the combinators of other crates. It ends after the
    /// error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Member;
    /// use futures_util::StreamExt as _;
    /// let member = Member::local().await?;
    /// let value = member.lock_service("config").await?.open("limit", b"10").await?;
    /// let mut changes = value.changes()?.into_stream();
    /// value.set(b"20").await?;
    /// assert_eq!(*changes.next().await.expect("it is open")?.value, b"20"[..]);
    /// member.leave().await?;
    /// assert!(changes.next().await.expect("the reason comes first").is_err());
    /// assert!(changes.next().await.is_none());
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = Result<Versioned, Lost>> + Send + Unpin {
        Box::pin(unfold(Some(self), |changes| async {
            let mut changes = changes?;
            let next = changes.next().await;
            let rest = next.is_ok().then_some(changes);
            Some((next, rest))
        }))
    }
}

/// Why nothing was written, or the result is unknown.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetError {
    /// The value is too long. Nothing was asked.
    #[error(transparent)]
    InvalidValue(#[from] InvalidValue),
    /// Another write came first; this is the present value. Nothing was written.
    #[error("the value has changed: its version is {}", .0.version)]
    Changed(Versioned),
    /// Too many requests of this member wait already. Nothing was asked; try again later.
    #[error("{}", Unavailable::Busy)]
    Busy,
    /// The object is no longer open here. If it was lost during the call, the value may have been
    /// written.
    #[error("{}", not_open("value", .0))]
    Lost(Lost),
}

impl SetError {
    /// Returns whether the object is no longer open here.
    pub fn is_lost(&self) -> bool {
        matches!(self, SetError::Lost(_))
    }
}
