//! `MultiLock`: locks of several services, all or nothing.

use super::acquire::{Acquire, AcquireOptions};
use super::owner::Owner;
use crate::protocol::{Batch, LineageId, LockName, LostReason, Token};
use crate::runtime::planted;
use crate::service::{
    BatchGuard, EntryRefused, ExtendError, FenceError, HoldHandle, LockError, LockService,
    LossWatch, Lost, OwnerEntry, ReleaseError, Revocation,
};
use std::collections::BTreeMap;
use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Locks of one or several services, taken together: all or nothing, with one wait limit for the
/// whole, and a token for each.
///
/// The services are asked in the order of their names, each for all its locks at once
/// ([`LockService::lock_all`]). The next service is asked when the previous one has granted. Within
/// a service batches cannot wait for each other in a circle. Over services all multi locks use the
/// same order, so they cannot either. The order in which the caller names them does not matter.
/// This rule covers the locks of one multi lock. Two callers deadlock if each holds one lock and
/// waits for the other's. While the request waits for a later service it keeps the earlier
/// services' locks, so name the most wanted locks last.
///
/// Curator: `InterProcessMultiLock`, which takes the locks in the given order, and gives each the
/// whole limit. So two of them may wait for each other for ever.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// let member = elderlock::Member::local().await?;
/// let accounts = member.lock_service("accounts").await?;
/// let orders = member.lock_service("orders").await?;
/// let transfer =
///     elderlock::MultiLock::new().with(&orders, ["17"]).with(&accounts, ["alice", "bob"]);
/// let all = transfer.acquire().wait(Duration::from_secs(2)).await?;
/// assert_ne!(all.fence("accounts", "alice")?, all.fence("accounts", "bob")?);
/// assert!(orders.try_lock("17").await.is_err());
/// all.release().await?;
/// # Ok(()) }
/// ```
#[derive(Clone, Default, Debug)]
#[must_use = "it locks nothing until it is acquired"]
pub struct MultiLock {
    parts: Vec<(LockService, Vec<Vec<u8>>)>,
}

impl MultiLock {
    /// A multi lock without locks. Add some.
    pub fn new() -> Self {
        MultiLock::default()
    }

    /// Adds these locks of the service. A repeated name counts once; an invalid name is an error of
    /// [`acquire`](MultiLock::acquire).
    pub fn with(
        mut self,
        service: &LockService,
        names: impl IntoIterator<Item: AsRef<[u8]>>,
    ) -> Self {
        self.parts.push((
            service.clone(),
            names.into_iter().map(|name| name.as_ref().to_vec()).collect(),
        ));
        self
    }

    /// Waits until all of the locks are granted.
    ///
    /// A lease counts from the grant of the last lock: earlier holds are extended meanwhile.
    ///
    /// # Errors
    /// [`MultiLockError`]; in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, even between two grants: nothing stays held or
    /// queued.
    ///
    /// Curator: `InterProcessMultiLock.acquire`.
    pub fn acquire(&self) -> Acquire<MultiGuard, MultiLockError> {
        let parts = self.parts.clone();
        Acquire::new(AcquireOptions::default(), async move |options| take_all(parts, options).await)
    }
}

impl Acquire<MultiGuard, MultiLockError> {
    /// Sets the owner of the locks. The owner enters at once the locks that it has already, by a
    /// multi lock or by a [`ReentrantMutex`](crate::ReentrantMutex), and asks for the others. It
    /// enters the locks granted here by either, so it may acquire the same multi lock again. Locks
    /// of a service that were granted together are released together, with the last guard of any of
    /// them. A given lease counts for entered locks, too. Two owners deadlock if each has some of
    /// the locks and waits for the other's. Without an owner nothing is entered. The owner counts
    /// for suspensions as well, see [`LockBuilder::owner`](crate::LockBuilder::owner).
    ///
    /// Curator: the thread, of an `InterProcessMultiLock` of `InterProcessMutex`es.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{MultiLock, Owner, ReentrantMutex};
    /// let member = elderlock::Member::local().await?;
    /// let accounts = member.lock_service("accounts").await?;
    /// let (both, owner) = (MultiLock::new().with(&accounts, ["alice", "bob"]), Owner::new());
    /// let outer = both.acquire().owner(owner).await?;
    /// let inner = both.acquire().owner(owner).await?;
    /// let bob = ReentrantMutex::new(&accounts, "bob").acquire(owner).await?;
    /// outer.release().await?;
    /// assert_eq!(inner.fence("accounts", "bob")?, bob.fence()?);
    /// # Ok(()) }
    /// ```
    pub fn owner(self, owner: Owner) -> Self {
        self.owned_by(owner.number())
    }

    /// Lets other members request any of the locks back, by the [`revoke`](LockService::revoke) of
    /// its service. They may [revoke it by force](LockService::force_revoke) once this holder has
    /// been told: see [`LockBuilder::revocable`](crate::LockBuilder::revocable). Listen to the
    /// guard's [`revocation`](MultiGuard::revocation).
    ///
    /// The locks of the first services can be requested back while the request waits for later
    /// ones. The guard reports that when it exists. If the release of a lock is forced before,
    /// acquiring fails with [`MultiLockError::Lost`].
    ///
    /// Curator: none; its `InterProcessMultiLock` cannot be revoked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let accounts = member.lock_service("accounts").await?;
    /// let orders = member.lock_service("orders").await?;
    /// let transfer =
    ///     elderlock::MultiLock::new().with(&orders, ["17"]).with(&accounts, ["alice", "bob"]);
    /// let all = transfer.acquire().revocable().await?;
    /// orders.revoke("17").metadata("stock-taking").await?;
    /// let request = all.revocation().requested().await.expect("they are held");
    /// assert_eq!(request.metadata.as_bytes(), b"stock-taking");
    /// all.release().await?;
    /// # Ok(()) }
    /// ```
    pub fn revocable(self) -> Self {
        self.made_revocable()
    }
}

async fn take_all(
    parts: Vec<(LockService, Vec<Vec<u8>>)>,
    mut options: AcquireOptions,
) -> Result<MultiGuard, MultiLockError> {
    let limit = options.wait;
    let mut all = MultiGuard { parts: Vec::new() };
    let is_backwards = planted!(MultiWithoutOrder)
        && !parts.is_sorted_by(|one, next| one.0.name() <= next.0.name());
    let mut parts: Vec<_> = in_order(parts)?.into_iter().collect();
    if is_backwards {
        parts.reverse();
    }
    // There is one limit, measured by the clock of each service's member.
    let began: Vec<_> = parts.iter().map(|(_, (service, _))| service.now()).collect();
    for ((name, (service, batch)), began) in parts.into_iter().zip(began) {
        let of = |error| MultiLockError::Lock { service: name.clone(), error };
        let mut names = batch.names().to_vec();
        while !names.is_empty() {
            let entries = all.enter(&service, &mut names, options.owner)?;
            if names.is_empty() {
                break;
            }
            options.wait = limit.map(|limit| limit.saturating_sub(service.now().since(began)));
            let granted = {
                let request = options.put(service.lock_all(names.iter().map(LockName::as_bytes)));
                let (mut asking, mut entering) =
                    (pin!(request.into_future()), pin!(any_entered(&entries)));
                loop {
                    tokio::select! {
                        biased;
                        (service, lost) = all.first_lost() => {
                            return Err(MultiLockError::Lost { service, lost });
                        }
                        // After a grant to a sibling only the other locks are requested: a request
                        // for all would wait for its own owner.
                        entered = &mut entering => break Err(entered),
                        granted = &mut asking => break match granted {
                            Ok(granted) => Ok(granted),
                            Err(error) => {
                                planted!(MultiKeepsFirst => std::mem::forget(all));
                                return Err(of(error));
                            }
                        },
                        () = third_of(options.lease, &service) => all.extend_all(options.lease)?,
                    }
                }
            };
            match granted {
                Ok(granted) => {
                    if !entries.is_empty() {
                        OwnerEntry::give(entries, granted.hold());
                    }
                    all.parts.push(BatchPart {
                        watch: granted.watch(),
                        entered: None,
                        guard: granted,
                    });
                    names.clear();
                }
                Err((index, hold)) => all.push_entered(names.remove(index), hold),
            }
        }
    }
    all.extend_all(options.lease)?;
    if all.parts.is_empty() { Err(MultiLockError::Nothing) } else { Ok(all) }
}

/// Each service once, with all its requested names, in the order of the services' names. An invalid
/// request to any service is found here, before the first service is asked.
fn in_order(
    parts: Vec<(LockService, Vec<Vec<u8>>)>,
) -> Result<BTreeMap<String, (LockService, Batch)>, MultiLockError> {
    let mut ordered: BTreeMap<String, (LockService, Vec<Vec<u8>>)> = BTreeMap::new();
    for (service, names) in parts {
        let name = service.name().to_owned();
        match ordered.get_mut(&name) {
            None => _ = ordered.insert(name, (service, names)),
            Some((before, wanted)) if before.is_same(&service) => wanted.extend(names),
            Some(_) => return Err(MultiLockError::TwoServices { service: name }),
        }
    }
    let checked =
        |(name, (service, wanted)): (String, (LockService, Vec<Vec<u8>>))| match batch(&wanted) {
            Ok(batch) => Ok((name, (service, batch))),
            Err(error) => Err(MultiLockError::Lock { service: name, error }),
        };
    ordered.into_iter().map(checked).collect()
}

fn batch(names: &[Vec<u8>]) -> Result<Batch, LockError> {
    let names: Result<Vec<_>, _> = names.iter().map(|name| LockName::new(name)).collect();
    Ok(Batch::new(names?)?)
}

/// Completes when the owner of the entries has one of the locks, with a guard of that hold.
async fn any_entered(entries: &[OwnerEntry]) -> (usize, HoldHandle) {
    let mut entering: Vec<_> = entries.iter().map(|entry| Box::pin(entry.entered(false))).collect();
    poll_fn(|context| {
        for (index, entered) in entering.iter_mut().enumerate() {
            if let Poll::Ready(hold) = entered.as_mut().poll(context) {
                return Poll::Ready((index, hold));
            }
        }
        Poll::Pending
    })
    .await
}

/// Completes when a third of the lease is over, or the service's member has left; never without a
/// lease.
async fn third_of(lease: Option<Duration>, service: &LockService) {
    match lease {
        Some(lease) => _ = service.sleep(lease / 3).await,
        None => std::future::pending().await,
    }
}

/// Locks of one or several services, held together, from [`MultiLock::acquire`]. They are released
/// as one. If one of them is lost, the guard returns no token any more.
#[must_use = "the locks are released as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct MultiGuard {
    /// The parts in the order of the services' names.
    parts: Vec<BatchPart>,
}

#[derive(Debug)]
struct BatchPart {
    guard: BatchGuard,
    watch: LossWatch,
    /// The only one of the guard's locks that belongs to this multi lock, because its owner had it;
    /// `None`: all do.
    entered: Option<LockName>,
}

impl BatchPart {
    fn has(&self, service: &str, name: &[u8]) -> bool {
        let is_it = |entered: &LockName| entered.as_bytes() == name;
        self.guard.service() == service && self.entered.as_ref().is_none_or(is_it)
    }
}

impl MultiGuard {
    /// Enters the locks that the owner has. Leaves the others in `names`, and returns their
    /// entries.
    fn enter(
        &mut self,
        service: &LockService,
        names: &mut Vec<LockName>,
        owner: u64,
    ) -> Result<Vec<OwnerEntry>, MultiLockError> {
        let mut entries = Vec::new();
        if owner == 0 || planted!(MultiAsksAgain) {
            return Ok(entries);
        }
        let mut wanted = Vec::new();
        for name in names.drain(..) {
            let entry = service.owner_entry(&name, owner);
            match entry.enter(false) {
                Ok(Some(hold)) => self.push_entered(name, hold),
                Ok(None) => {
                    entries.push(entry);
                    wanted.push(name);
                }
                Err(refused) => return Err(MultiLockError::of(service, refused)),
            }
        }
        *names = wanted;
        Ok(entries)
    }

    fn push_entered(&mut self, name: LockName, hold: HoldHandle) {
        self.parts.push(BatchPart {
            watch: hold.watch(),
            guard: BatchGuard::new(hold),
            entered: Some(name),
        });
    }

    /// The fencing token of one of the locks, if all of them are held at this instant. Costs no
    /// message.
    ///
    /// # Errors
    /// [`FenceError::Lost`] with the reason if any of the locks is lost, for good;
    /// [`FenceError::NotInBatch`]: the multi lock does not have the lock. Asking changes nothing.
    pub fn fence(&self, service: &str, name: impl AsRef<[u8]>) -> Result<Token, FenceError> {
        let name = name.as_ref();
        let fences = self
            .parts
            .iter()
            .filter(|part| part.has(service, name))
            .map(|part| part.guard.fence(name));
        let found = fences.into_iter().find(|fence| *fence != Err(FenceError::NotInBatch));
        let token = found.unwrap_or(Err(FenceError::NotInBatch))?;
        match self.parts.iter().find_map(|part| part.watch.reason()) {
            Some(reason) => Err(Lost::new(reason).into()),
            None => Ok(token),
        }
    }

    /// The lineage that dealt the token of one of the locks; `None`: the multi lock does not have
    /// the lock. Services of different clusters have different lineages. See
    /// [`Guard::lineage`](crate::Guard::lineage).
    pub fn lineage(&self, service: &str, name: impl AsRef<[u8]>) -> Option<LineageId> {
        let name = name.as_ref();
        let is_it = |part: &&BatchPart| {
            part.has(service, name) && part.guard.fence(name) != Err(FenceError::NotInBatch)
        };
        self.parts.iter().find(is_it).map(|part| part.guard.lineage())
    }

    /// Completes when any of the locks is lost, with the reason; never while all are held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports a loss in between.
    pub async fn lost(&self) -> LostReason {
        self.first_lost().await.1.reason
    }

    async fn first_lost(&self) -> (String, Lost) {
        let mut watching: Vec<_> =
            self.parts.iter().map(|part| Box::pin(part.watch.lost())).collect();
        poll_fn(|context| {
            for (part, lost) in self.parts.iter().zip(&mut watching) {
                if let Poll::Ready(reason) = lost.as_mut().poll(context) {
                    return Poll::Ready((part.guard.service().to_owned(), Lost::new(reason)));
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Runs `future` until it completes or any of the locks is lost, whichever is first. See
    /// [`Guard::protect`](crate::Guard::protect).
    ///
    /// # Errors
    /// [`Lost`]: one of the locks was lost before `future` completed, and `future` was dropped
    /// where it stood.
    ///
    /// # Cancel safety
    /// Dropping this future drops `future`; the locks stay held.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(Lost::new(reason)),
            output = future => Ok(output),
        }
    }

    /// Lets each hold end no earlier than `lease` from now: no hold becomes shorter.
    ///
    /// # Errors
    /// As for [`Guard::extend`](crate::Guard::extend). If one hold is lost, others may have been
    /// extended.
    pub fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        self.parts.iter().try_for_each(|part| part.guard.extend(lease))
    }

    /// The requests for the release of any of the locks. They end when one of the locks is lost, or
    /// all are released. As with [`Guard::revocation`](crate::Guard::revocation), the returned
    /// value does not keep the locks held. There are no requests unless the locks were requested as
    /// [revocable](crate::LockBuilder::revocable).
    ///
    /// A request does not show which of the locks is wanted.
    pub fn revocation(&self) -> Revocation {
        Revocation::of_all(self.parts.iter().map(|part| part.guard.revocation()))
    }

    fn extend_all(&self, lease: Option<Duration>) -> Result<(), MultiLockError> {
        let Some(lease) = lease else { return Ok(()) };
        for part in &self.parts {
            part.guard.extend(lease).map_err(|error| {
                let service = part.guard.service().to_owned();
                match error {
                    ExtendError::InvalidLease(error) => {
                        MultiLockError::Lock { service, error: error.into() }
                    }
                    ExtendError::Lost(lost) => MultiLockError::Lost { service, lost },
                }
            })?;
        }
        Ok(())
    }

    /// Releases all the locks and returns whether all were held until now. Does not wait for the
    /// grantors.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: one of the locks had been lost before. All are released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the locks too.
    ///
    /// Curator: `InterProcessMultiLock.release`.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let lost = self.parts.iter().find_map(|part| part.watch.reason());
        drop(self);
        lost.map_or(Ok(()), |reason| Err(ReleaseError::Lost(reason)))
    }

    /// Releases all the locks, and waits until the grantors know that, each for at most a member
    /// lease, all at the same time. See
    /// [`Guard::release_and_confirm`](crate::Guard::release_and_confirm).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: one of the locks had been lost before.
    /// [`ReleaseError::Unconfirmed`]: a grantor has not answered. All are released in any case.
    ///
    /// # Cancel safety
    /// Dropping the future releases the locks too.
    pub async fn release_and_confirm(self) -> Result<(), ReleaseError> {
        let releases =
            self.parts.into_iter().map(|part| Box::pin(part.guard.release_and_confirm()));
        let (mut releases, mut result) = (Vec::from_iter(releases), Ok(()));
        poll_fn(|context| {
            releases.retain_mut(|release| match release.as_mut().poll(context) {
                Poll::Pending => true,
                Poll::Ready(answer) => {
                    // A loss is the more important error.
                    if answer.is_err_and(|error: ReleaseError| error.is_lost()) || result.is_ok() {
                        result = answer;
                    }
                    false
                }
            });
            if releases.is_empty() { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        result
    }

    /// Each lock by service and name, ascending, with its token as a number for logs: without a
    /// claim that the locks are still held. Tokens of different services cannot be compared.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, &[u8], Token)> {
        let mut all = Vec::new();
        for part in &self.parts {
            let service = part.guard.service();
            let of_this = part.guard.tokens().filter(|(name, _)| part.has(service, name));
            all.extend(of_this.map(|(name, token)| (service, name, token)));
        }
        all.sort_unstable_by(|one, next| (one.0, one.1).cmp(&(next.0, next.1)));
        all.into_iter()
    }
}

/// Why [`MultiLock::acquire`] failed. In every case the caller holds nothing, and no request is
/// queued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MultiLockError {
    /// The multi lock names no service. Nothing was asked.
    #[error("the multi lock is empty; add locks with `with`")]
    Nothing,
    /// Two handles of one name are not the same service: they are of two members, or one of them is
    /// destroyed. Nothing was asked.
    #[error(
        "two handles of service {service:?} from different members; use one handle per service"
    )]
    TwoServices {
        /// The name of the service.
        service: String,
    },
    /// The locks of a service were not granted. The earlier services' locks are released. Invalid
    /// names are found before anything is asked.
    #[error("service {service:?}: {error}")]
    Lock {
        /// The name of the service.
        service: String,
        /// Why the service's locks were not granted.
        #[source]
        error: LockError,
    },
    /// An earlier service's locks were lost while the request waited for those of a later one: try
    /// again. Or the owner has guards of a hold that was lost before: drop them first.
    #[error("service {service:?}: {lost}")]
    Lost {
        /// The service whose locks were lost.
        service: String,
        /// The loss of those locks.
        #[source]
        lost: Lost,
    },
}

impl MultiLockError {
    fn of(service: &LockService, refused: EntryRefused) -> MultiLockError {
        let service = service.name().to_owned();
        match refused {
            EntryRefused::OnlyReads => MultiLockError::Lock { service, error: LockError::Deadlock },
            EntryRefused::Lost(lost) => MultiLockError::Lost { service, lost },
        }
    }

    /// Returns whether the wait limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, MultiLockError::Lock { error, .. } if error.is_timeout())
    }

    /// Returns whether a hold, or the member, was lost meanwhile.
    pub fn is_lost(&self) -> bool {
        match self {
            MultiLockError::Lock { error, .. } => error.is_lost(),
            MultiLockError::Lost { .. } => true,
            _ => false,
        }
    }
}
