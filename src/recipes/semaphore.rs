//! `Semaphore`: a fixed number of permits for all members.

use super::shared_count::{ObjectKind, SharedCount};
use super::wait_future::WaitFuture;
use crate::protocol::{HolderInfo, Mode};
use crate::service::{
    InspectError, LockBuilder, LockError, LockService, PermitGuard, ReleaseError, TryLockBuilder,
};

/// A fixed number of permits that the members of a cluster share. The limit may change at any time.
///
/// The limit is the [`SharedCount`] of its name, and lives while a member has the semaphore, or the
/// count, open. Keep it open while you wait. When no member has it open, the limit is forgotten,
/// and the next opening sets a new one. After a [`close`](Semaphore::close), that happens at once.
/// After a drop, it happens as soon as the grantor knows of the drop. Held permits stay held, and
/// count.
///
/// **Fair, with sizes mixed**: strictly in the order of the requests. The first request in the
/// queue waits until as many permits are left as it asks for, and no later request overtakes it. A
/// request for more than the limit waits until the limit is raised.
///
/// The [grantor](LockService::is_grantor) may die with all members that knew the last change. Then
/// the limit is the one before, and [`maybe_stale`](Usage::maybe_stale) until it is set again.
///
/// A semaphore uses the object of its name in the service, as [`SharedCount`] does. It cannot be
/// opened while a [`Barrier`](crate::Barrier), a [`DoubleBarrier`](crate::DoubleBarrier) or a
/// [`CountDownLatch`](crate::CountDownLatch) is open by that name. It uses the queue of its name,
/// too: locks and shares of that name wait for its permits.
///
/// **A lower limit** revokes no permit. No permit is granted until enough are returned. A limit
/// below zero counts as zero.
///
/// Curator: `InterProcessSemaphoreV2`, with a `SharedCountReader`.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::Semaphore;
/// let member = elderlock::Member::local().await?;
/// let shop = member.lock_service("shop").await?;
/// let tills = Semaphore::open(&shop, "tills", 2).await?;
/// let both = tills.acquire(2).metadata("till 3").await?;
/// assert!(tills.try_acquire(1).await.is_err());
/// tills.limit().set(3).await?;
/// let third = tills.try_acquire(1).await?;
/// both.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Debug)]
#[must_use = "its limit is gone as soon as no member has it open"]
pub struct Semaphore {
    limit: SharedCount,
}

impl Semaphore {
    /// Opens the semaphore `name`, 1 to 4096 bytes. If no member has it open, its limit is `limit`,
    /// otherwise the present one. A limit above two billion counts as two billion.
    ///
    /// # Errors
    /// [`LockError`]; nothing is open. [`LockError::TimedOut`]: no grantor has answered within the
    /// [limit](WaitFuture::wait). [`LockError::OtherRecipe`]: a barrier, say, is open by that name.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays open.
    ///
    /// Curator: `InterProcessSemaphoreV2(client, path, maxLeases)`.
    pub fn open(
        service: &LockService,
        name: impl AsRef<[u8]>,
        limit: u32,
    ) -> WaitFuture<'static, Semaphore, LockError> {
        let limit = i32::try_from(limit).unwrap_or(i32::MAX);
        let make = |limit| Semaphore { limit };
        SharedCount::open_as(ObjectKind::Count, service, name.as_ref(), limit, make)
    }

    /// The semaphore whose limit this count is. Sends nothing.
    ///
    /// Curator: `InterProcessSemaphoreV2(client, path, SharedCountReader)`.
    pub fn of(limit: &SharedCount) -> Semaphore {
        Semaphore { limit: limit.clone() }
    }

    /// Asks for `permits` at once, 1 to 65,536, all or none, and queues for them. The permits are
    /// returned one by one or together, or taken [apart](PermitGuard::into_permits).
    ///
    /// # Errors
    /// [`LockError`]; in every case nothing is held and nothing is queued. [`LockError::NotOpen`]:
    /// the semaphore was [lost](SharedCount::lost), because the cluster continues without this
    /// member; open it again.
    ///
    /// # Cancel safety
    /// If the future is dropped, even after the grant, nothing stays held or queued.
    ///
    /// Curator: `InterProcessSemaphoreV2.acquire`.
    pub fn acquire(&self, permits: u32) -> LockBuilder<PermitGuard> {
        self.limit.service().permits(self.limit.name(), permits)
    }

    /// Takes permits if enough are left and no request waits for some. As
    /// [`LockService::try_permits`].
    ///
    /// # Errors
    /// [`TryLockError`](crate::TryLockError); in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing stays held or queued.
    ///
    /// Curator: `InterProcessSemaphoreV2.acquire` with a wait of 0.
    pub fn try_acquire(&self, permits: u32) -> TryLockBuilder<PermitGuard> {
        self.limit.service().try_permits(self.limit.name(), permits)
    }

    /// Returns the limit of the semaphore, which can be read, set and watched.
    ///
    /// Curator: `SharedCountReader`.
    pub fn limit(&self) -> &SharedCount {
        &self.limit
    }

    /// Closes the semaphore, and waits until the grantor knows that. A later opening by that name,
    /// at any member, no longer finds this opening. If there is no other, the semaphore begins
    /// anew. With other clones of this semaphore around only this clone ends, and the grantor is
    /// not told. One round trip, no message at the grantor's own member.
    ///
    /// A drop does not wait: a semaphore that is opened before the grantor knows of the drop has
    /// the old limit.
    ///
    /// # Errors
    /// [`ReleaseError`](crate::ReleaseError): the semaphore was lost before, or no grantor has
    /// answered within a member lease. It is closed here in any case.
    ///
    /// # Cancel safety
    /// Dropping the future closes the semaphore too, but then the caller cannot know when the
    /// grantor does.
    pub async fn close(self) -> Result<(), ReleaseError> {
        self.limit.close().await
    }

    /// The permits in use at the grantor, each with its holder and its metadata. One round trip.
    /// [`LockService::inspect`] of the same name lists the waiters.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `InterProcessSemaphoreV2.getParticipantNodes`, and the data of each node, as
    /// `setNodeData` had it when the node was made.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Semaphore;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let tills = Semaphore::open(&shop, "tills", 5).await?;
    /// let mine = tills.acquire(2).metadata("till 3").await?;
    /// for permit in tills.permits_in_use().await?.iter() {
    ///     println!("{:?} has one, in process {}", permit.metadata, permit.process);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn permits_in_use(&self) -> Result<PermitsInUse, InspectError> {
        let seen = self.limit.service().inspect(self.limit.name()).await?;
        let (grants, more) = grants(seen.holders, seen.more_holders);
        Ok(PermitsInUse { grants, more })
    }

    /// The numbers of permits at the grantor: all, those in use and those waited for. One round
    /// trip.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Semaphore;
    /// let member = elderlock::Member::local().await?;
    /// let shop = member.lock_service("shop").await?;
    /// let tills = Semaphore::open(&shop, "tills", 5).await?;
    /// let three = tills.acquire(3).await?;
    /// let usage = tills.usage().await?;
    /// assert_eq!((usage.limit, usage.used, usage.available()), (5, 3, 2));
    /// # Ok(()) }
    /// ```
    pub async fn usage(&self) -> Result<Usage, InspectError> {
        let seen = self.limit.service().inspect(self.limit.name()).await?;
        let maybe_stale = seen.value.as_ref().is_some_and(|value| value.maybe_stale);
        let limit = seen
            .value
            .and_then(|value| value.value[..].try_into().ok())
            .map_or(0, i32::from_le_bytes);
        let (grants, more) = grants(seen.holders, seen.more_holders);
        Ok(Usage {
            limit: limit.max(0) as u32,
            maybe_stale,
            used: seen.permits,
            holders: grants.len() as u64 + more,
            waiting: seen.waiters.iter().filter(|waiter| is_permits(waiter.mode)).count() as u64
                + seen.more,
        })
    }
}

/// The holders of permits, and the number of further ones. A lock or shares of the same name are
/// held instead of permits, never beside them.
fn grants(holders: Vec<HolderInfo>, more: u64) -> (Vec<HolderInfo>, u64) {
    match holders.first() {
        Some(first) if is_permits(first.mode) => (holders, more),
        _ => (Vec::new(), 0),
    }
}

fn is_permits(mode: Mode) -> bool {
    matches!(mode, Mode::Permits(_))
}

/// The permits of a [`Semaphore`] that are in use at an instant, from
/// [`permits_in_use`](Semaphore::permits_in_use).
///
/// Permits that are granted at once have one entry, for as long as one of them is in use. The mode
/// of the entry has the number of those in use. The grantor knows their number only, not which were
/// returned. So the token of the entry is that of the first permit, in use or not; the tokens of
/// the others follow it.
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct PermitsInUse {
    /// Up to 256 of the holders.
    pub grants: Vec<HolderInfo>,
    /// The number of further holders.
    pub more: u64,
}

impl PermitsInUse {
    /// One row for each permit of these grants.
    pub fn iter(&self) -> impl Iterator<Item = &HolderInfo> {
        self.grants.iter().flat_map(|grant| {
            let permits = if let Mode::Permits(count) = grant.mode { count } else { 0 };
            std::iter::repeat_n(grant, permits as usize)
        })
    }
}

/// The permits of a [`Semaphore`] at an instant, from [`usage`](Semaphore::usage).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Usage {
    /// The number of all permits.
    pub limit: u32,
    /// Whether the grantor has died since the limit was set: a later limit may be lost, if no
    /// living member knew it.
    pub maybe_stale: bool,
    /// The number of held permits. It exceeds the limit after the limit was lowered.
    pub used: u64,
    /// The number of holds of these permits.
    pub holders: u64,
    /// The number of requests that wait for permits. Behind the first 256 of the queue every
    /// request counts, also requests of other kinds.
    pub waiting: u64,
}

impl Usage {
    /// The number of remaining permits. They are not granted while another request waits for more.
    pub fn available(&self) -> u64 {
        u64::from(self.limit).saturating_sub(self.used)
    }
}
