//! `PartitionGuard`: one partition, while this claimant owns it.

use super::any_guard::fenced_by_term;
use super::leadership::{HeldTerm, Term, TermEnd};
use crate::protocol::{LineageId, Time, Token};
use crate::runtime::planted;
use crate::service::Guard;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// A partition that this claimant owns, from [`Partitions::next`](crate::Partitions::next).
///
/// The guard has a lock with a [token](PartitionGuard::fence), and dropping it releases the lock:
/// another claimant may own the partition then, or this claimant again. The guard ends earlier if
/// the lock is lost, or if its [`Partitions`](crate::Partitions) is closed or dropped. It also ends
/// when the [grace period](crate::Partitions::grace) after a request to release it is over.
/// Ownership ends here before any other claimant owns the partition.
#[must_use = "dropping it releases the partition"]
pub struct PartitionGuard {
    hold: Arc<PartitionHold>,
}

/// The partition, as the claimant's task keeps it.
pub(super) struct PartitionHold {
    pub(super) name: Vec<u8>,
    term: Term,
    /// The term itself; `None` after its end here.
    held: Mutex<Option<HeldTerm>>,
    /// The time since which the owner has known that it should release the partition.
    requested: OnceLock<Time>,
    told: CancellationToken,
    /// Notified so that the claimant's task checks the partitions again.
    changed: Arc<Notify>,
}

impl PartitionHold {
    pub(super) fn new(name: Vec<u8>, guard: Guard, changed: Arc<Notify>) -> Arc<PartitionHold> {
        let held = HeldTerm::new(guard);
        Arc::new(PartitionHold {
            name,
            term: held.term().clone(),
            held: Mutex::new(Some(held)),
            requested: OnceLock::new(),
            told: CancellationToken::new(),
            changed,
        })
    }

    pub(super) fn guard(self: &Arc<Self>) -> PartitionGuard {
        PartitionGuard { hold: self.clone() }
    }

    pub(super) fn token(&self) -> Token {
        self.term.token()
    }

    /// Returns whether the partition is held at this instant.
    pub(super) fn is_held(&self) -> bool {
        self.term.fence().is_ok()
    }

    /// Returns the time at which the owner was told to release the partition.
    pub(super) fn requested(&self) -> Option<Time> {
        self.requested.get().copied()
    }

    /// Tells the owner to release the partition.
    pub(super) fn request_release(&self, now: Time) {
        self.requested.get_or_init(|| now);
        self.told.cancel();
    }

    /// Ends the hold of the partition: first for its guard, then at the grantor.
    pub(super) fn end(&self) {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner).take();
        if held.is_some() {
            drop(held);
            self.changed.notify_one();
        }
    }
}

impl PartitionGuard {
    /// The partition's name.
    pub fn name(&self) -> &[u8] {
        &self.hold.name
    }

    /// The token, if the partition is owned at this instant. Cheap: a clock and some atomics, no
    /// message. Call it before each side effect. Let the resource refuse tokens lower than the
    /// highest that it has seen. Then a former owner never writes to it after a later one.
    ///
    /// # Errors
    /// [`TermEnd`], for good: the partition was lost, or released here. Asking changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Partitions;
    /// let member = elderlock::Member::local().await?;
    /// let orders = member.lock_service("orders").await?;
    /// let partitions = Partitions::numbered(&orders, 1, "node-1")?;
    /// partitions.start()?;
    /// let partition = partitions.next().await?;
    /// assert_eq!((partition.name(), partition.fence()?), (&b"0"[..], partition.token()));
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Result<Token, TermEnd> {
        planted!(OwnOn => return Ok(self.token()));
        self.hold.term.fence()
    }

    /// The token as a number for logs, without a claim that the partition is still owned. It is
    /// higher than that of each earlier owner.
    pub fn token(&self) -> Token {
        self.hold.token()
    }

    /// The lineage that dealt the token. See [`Guard::lineage`](crate::Guard::lineage).
    pub fn lineage(&self) -> LineageId {
        self.hold.term.lineage()
    }

    /// Returns whether this claimant should release the partition, because it owns too many or is
    /// being closed.
    pub fn is_release_requested(&self) -> bool {
        self.hold.told.is_cancelled()
    }

    /// Completes when this claimant should release the partition, or no longer owns it. Bring the
    /// work to an end then, and drop the guard. The next owner has the partition after that, or at
    /// the end of the [grace period](crate::Partitions::grace).
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call completes at once if the request was made
    /// meanwhile.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Partitions;
    /// let member = elderlock::Member::local().await?;
    /// let orders = member.lock_service("orders").await?;
    /// let first = Partitions::numbered(&orders, 2, "node-1")?;
    /// first.start()?;
    /// let owned = [first.next().await?, first.next().await?];
    /// let second = Partitions::numbered(&orders, 2, "node-2")?;
    /// second.start()?;
    /// tokio::select! {
    ///     () = owned[0].release_requested() => {}
    ///     () = owned[1].release_requested() => {}
    /// }
    /// // One of the two moves.
    /// drop(owned);
    /// let partition = second.next().await?;
    /// # Ok(()) }
    /// ```
    pub async fn release_requested(&self) {
        tokio::select! {
            biased;
            () = self.hold.told.cancelled() => {}
            _ = self.hold.term.ended() => {}
        }
    }

    /// Completes when the partition is no longer owned, with the reason; never while it is owned.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports an end in between.
    pub async fn ended(&self) -> TermEnd {
        self.hold.term.ended().await
    }

    /// Runs `future` until it completes or the partition is no longer owned, whichever is first.
    ///
    /// The future can be stopped only where it awaits: a side effect still needs
    /// [`fence`](PartitionGuard::fence) and a resource that checks the token.
    ///
    /// # Errors
    /// [`TermEnd`]: ownership was over before `future` completed, and `future` was dropped where it
    /// stood.
    ///
    /// # Cancel safety
    /// Dropping this future drops `future`; the partition stays owned.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, TermEnd> {
        self.hold.term.protect(future).await
    }

    /// Releases the partition, as dropping this guard does, and returns whether it was owned until
    /// now. Does not wait for the grantor.
    ///
    /// # Errors
    /// [`TermEnd`]: ownership was over before.
    pub fn release(self) -> Result<(), TermEnd> {
        self.hold.term.fence().map(drop)
    }
}

fenced_by_term!(PartitionGuard);

impl Drop for PartitionGuard {
    fn drop(&mut self) {
        self.hold.end();
    }
}

impl std::fmt::Debug for PartitionGuard {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("PartitionGuard")
            .field("name", &self.name().escape_ascii().to_string())
            .field("term", &self.hold.term)
            .field("is_release_requested", &self.is_release_requested())
            .finish_non_exhaustive()
    }
}
