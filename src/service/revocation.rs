//! Revocation: a member requests a lock back, and the holder decides.

use super::command::CommandFuture;
use super::handle::ServiceHandle;
use super::lock_error::{MAX_LEASE, Unavailable};
use crate::protocol::{
    Command, ForceOrder, HolderInfo, InvalidName, LockName, Metadata, Outcome, RevocationRequest,
    RevokeCommand, Wait,
};
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::planted;
use std::future::{Future, IntoFuture, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// The requests to release a held lock, one after the other, from
/// [`Guard::revocation`](crate::Guard::revocation) and the same method of other guards.
///
/// A request that came before this value was made, or while no task waited, is not lost. Each clone
/// continues from the present position of its original. A new value, from any guard of the hold,
/// begins at the first request. None of these values keeps the lock held.
///
/// The member counts as told, and with it all guards of the hold, even if no task reads this value.
/// A holder that was told and keeps the lock may lose it by
/// [`force_revoke`](crate::LockService::force_revoke).
///
/// Curator: `RevocationListener`.
#[derive(Clone)]
pub struct Revocation {
    /// The holds, each with the number of its requests that were read. Only a multi lock has
    /// several holds.
    holds: Vec<(Arc<HoldCell>, usize)>,
}

impl Revocation {
    pub(super) fn new(cell: Arc<HoldCell>) -> Self {
        Revocation { holds: vec![(cell, 0)] }
    }

    /// Joins several: the result has the requests for any of their holds, and ends with the first
    /// hold that is over.
    pub(crate) fn of_all(all: impl IntoIterator<Item = Revocation>) -> Self {
        Revocation { holds: all.into_iter().flat_map(|one| one.holds).collect() }
    }

    /// Completes with the next request to release the lock. `None` when there is no lock to release
    /// any more, because it was lost or all its guards are gone.
    ///
    /// At most 64 requests are reported for one hold. A hold that is not
    /// [`revocable`](crate::LockBuilder::revocable) gets none.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call completes with the same request.
    ///
    /// Curator: `RevocationListener.revocationRequested`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").revocable().await?;
    /// let mut revocation = guard.revocation();
    /// tokio::spawn(async move {
    ///     while let Some(request) = revocation.requested().await {
    ///         // Here the work is told to come to an end.
    ///         println!("{} wants it back", request.process);
    ///     }
    /// });
    /// # Ok(()) }
    /// ```
    pub async fn requested(&mut self) -> Option<RevocationRequest> {
        let next = |(cell, read): &(Arc<HoldCell>, usize)| {
            let (cell, read) = (cell.clone(), *read);
            Box::pin(async move { cell.until(|cell| cell.wanted(read)).await })
        };
        let mut asked: Vec<_> = self.holds.iter().map(next).collect();
        let (hold, request) = poll_fn(|context| {
            for (hold, next) in asked.iter_mut().enumerate() {
                if let Poll::Ready(request) = next.as_mut().poll(context) {
                    return Poll::Ready((hold, request));
                }
            }
            Poll::Pending
        })
        .await;
        let request = request?;
        self.holds[hold].1 += 1;
        Some(request)
    }

    /// Returns whether any member has requested the lock back since it was granted.
    pub fn is_requested(&self) -> bool {
        self.holds.iter().any(|(cell, _)| cell.wanted(0).is_some())
    }
}

/// A request for a lock's release, from [`revoke`](crate::LockService::revoke) and
/// [`revoke_suspension`](crate::LockService::revoke_suspension). Await it.
#[must_use = "nothing is asked until this is awaited"]
pub struct RevokeBuilder {
    service: Arc<ServiceHandle>,
    name: Result<Option<LockName>, InvalidName>,
    metadata: Result<Metadata, InvalidName>,
    wait: Wait,
}

impl RevokeBuilder {
    pub(super) fn new(
        service: Arc<ServiceHandle>,
        name: Result<Option<LockName>, InvalidName>,
    ) -> Self {
        RevokeBuilder { service, name, metadata: Ok(Metadata::default()), wait: Wait::Try }
    }

    /// The requester's metadata for the holder: up to 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.metadata = Metadata::new(metadata.as_ref());
        self
    }

    /// Limits the wait until every holder is told. After `limit`, the request fails with
    /// [`RevokeError::Undecided`]. A limit above ten years counts as none. The default is one
    /// [member lease](crate::Timing::member_lease): a member that is cut off for that time no
    /// longer has any hold.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = if limit > MAX_LEASE { Wait::Forever } else { Wait::AtMost(limit) };
        self
    }
}

impl IntoFuture for RevokeBuilder {
    type Output = Result<RevokeOutcome, RevokeError>;
    type IntoFuture = RevokeFuture;

    fn into_future(self) -> RevokeFuture {
        let RevokeBuilder { service, name, metadata, wait } = self;
        let what = name.and_then(|name| Ok(RevokeCommand::Ask { name, metadata: metadata? }));
        RevokeFuture(what.map(|what| asking(service, what, wait)).map_err(Some))
    }
}

/// The command that requests a hold back or forces its release.
fn asking(service: Arc<ServiceHandle>, what: RevokeCommand, wait: Wait) -> CommandFuture {
    let name = service.name.clone();
    CommandFuture::new(service, move |request| Command::Revoke {
        request,
        service: name,
        what,
        wait,
    })
}

/// A pending [`revoke`](crate::LockService::revoke).
///
/// # Cancel safety
/// If the future is dropped before its first poll, nothing is asked. If it is dropped later,
/// holders may be told nevertheless. No other effect remains.
#[must_use = "futures do nothing unless polled"]
pub struct RevokeFuture(Result<CommandFuture, Option<InvalidName>>);

impl Future for RevokeFuture {
    type Output = Result<RevokeOutcome, RevokeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let asking = match &mut self.0 {
            Ok(asking) => asking,
            Err(error) => {
                return Poll::Ready(Err(error.take().expect("polled after it was ready").into()));
            }
        };
        Poll::Ready(match ready!(Pin::new(asking).poll(context)) {
            Err(Outcome::RevocationRequested { told, not_revocable, not_asked })
                if !told.is_empty() =>
            {
                Ok(RevokeOutcome { told, not_revocable, not_asked })
            }
            Err(outcome) => Err(outcome.into()),
            Ok(_) => unreachable!("a question is not granted"),
        })
    }
}

/// Forces the release of a hold.
pub(super) async fn take(
    service: Arc<ServiceHandle>,
    holder: HolderInfo,
) -> Result<(), RevokeError> {
    match asking(service, RevokeCommand::Take(holder), Wait::Try).await {
        Err(Outcome::Revoked) => Ok(()),
        Err(Outcome::HolderNotTold) if planted!(CallItTaken) => Ok(()),
        Err(outcome) => Err(outcome.into()),
        Ok(_) => unreachable!("a question is not granted"),
    }
}

/// Forces the release of a hold by an operator's order.
pub(super) async fn force(
    service: Arc<ServiceHandle>,
    holder: HolderInfo,
    order: ForceOrder,
) -> Result<(), RevokeError> {
    match asking(service, RevokeCommand::Force(holder, order), Wait::Try).await {
        Err(Outcome::Revoked) => Ok(()),
        Err(outcome) => Err(outcome.into()),
        Ok(_) => unreachable!("a question is not granted"),
    }
}

/// The holders that were told that a lock is requested back. Holders that released the lock
/// meanwhile are left out.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct RevokeOutcome {
    /// The holders whose members confirm that they have been told, at least one. Each of them can
    /// be passed to [`force_revoke`](crate::LockService::force_revoke).
    pub told: Vec<HolderInfo>,
    /// The other holders, whose holds are not [revocable](crate::LockBuilder::revocable).
    pub not_revocable: Vec<HolderInfo>,
    /// The number of further holders of shares or permits, which were not asked. One call asks a
    /// few hundred holders.
    pub not_asked: u64,
}

/// Why [`revoke`](crate::LockService::revoke) told no holder, or
/// [`force_revoke`](crate::LockService::force_revoke) ended no hold.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RevokeError {
    /// The lock's name or the metadata is empty or too long. Nothing was asked.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The lock had no holder, or its holder has released or lost it meanwhile. There is nothing to
    /// revoke.
    #[error("the lock has no holder")]
    NotHeld,
    /// This holder did not request the lock as [`revocable`](crate::LockBuilder::revocable). No
    /// holder was told, and no hold was ended: wait, or try again later.
    #[error(
        "process {} holds it with token {}, and the hold is not revocable",
        .0.process,
        .0.token
    )]
    NotRevocable(HolderInfo),
    /// No hold was ended: the holder has not been told that the lock is requested back.
    /// [`revoke`](crate::LockService::revoke) it first.
    #[error("the holder has not been told of a revocation; revoke first")]
    HolderNotTold,
    /// No hold was ended: the holder's member does not allow [forced
    /// revokes](crate::MemberBuilder::forced_revokes).
    #[error(
        "the holder's member does not allow forced revokes; \
         build it with forced_revokes(true), or start it with --allow-forced-revokes"
    )]
    ForceNotAllowed,
    /// Not every member has answered in time: no grantor can name the holders, or a holder is cut
    /// off. Some holders may have been told, and a hold may have been ended; asking again is safe.
    #[error(
        "no grantor named the holders in time, or a holder's member has not answered; \
         some may have been told, and asking again is safe"
    )]
    Undecided,
    /// The member carries out no such call at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<Outcome> for RevokeError {
    fn from(outcome: Outcome) -> Self {
        if let Some(unavailable) = Unavailable::of(&outcome) {
            return unavailable.into();
        }
        match outcome {
            Outcome::RevocationRequested { not_revocable, .. } => not_revocable
                .into_iter()
                .next()
                .map_or(RevokeError::NotHeld, RevokeError::NotRevocable),
            Outcome::HolderNotTold => RevokeError::HolderNotTold,
            Outcome::ForceNotAllowed => RevokeError::ForceNotAllowed,
            _ => RevokeError::Undecided,
        }
    }
}

impl std::fmt::Debug for Revocation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let holds: Vec<_> = self.holds.iter().map(|(cell, read)| (cell.token(), read)).collect();
        f.debug_struct("Revocation").field("holds", &holds).finish()
    }
}

impl std::fmt::Debug for RevokeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RevokeBuilder")
            .field("name", &self.name)
            .field("wait", &self.wait)
            .finish_non_exhaustive()
    }
}

impl std::fmt::Debug for RevokeFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Revoking").finish_non_exhaustive()
    }
}
