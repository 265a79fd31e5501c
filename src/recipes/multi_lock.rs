//! `MultiLock`: locks of several services, all or nothing.

use super::acquire::{Acquire, Terms};
use super::owner::Owner;
use crate::protocol::{Batch, LockName, LostReason, Token};
use crate::runtime::planted;
use crate::service::{
    BatchGuard, ExtendError, FenceError, LockError, LockService, LossWatch, Lost, ReleaseError, Revocation,
};
use std::collections::BTreeMap;
use std::future::{IntoFuture, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// Locks of one or several services, taken together: all or nothing, with one wait limit for the whole, and a token for each.
///
/// The services are asked in the order of their names, each for all its locks at once ([`LockService::lock_all`]), the
/// next one when the last has granted. Within a service batches cannot wait for each other in a circle, and over
/// services everybody goes the same way, so multi locks cannot either, whatever order they are put together in. That holds for
/// what one multi lock asks for: whoever holds a lock and asks for another may meet somebody who does so the other way
/// round. While it waits for a later service it holds what the earlier ones granted, so name what is much wanted last.
///
/// Curator: `InterProcessMultiLock`, which takes them in the order given, so that two of them wait for each other for
/// ever, and gives each the whole limit.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// let member = elderlock::Member::local().await?;
/// let (accounts, orders) = (member.lock_service("accounts").await?, member.lock_service("orders").await?);
/// let transfer = elderlock::MultiLock::new().with(&orders, ["17"]).with(&accounts, ["alice", "bob"]);
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
    /// One of no locks: add some.
    pub fn new() -> Self {
        MultiLock::default()
    }

    /// Also these locks of the service. One that is named twice counts once; what is out of range is an error of
    /// [`acquire`](MultiLock::acquire).
    pub fn with(mut self, service: &LockService, names: impl IntoIterator<Item: AsRef<[u8]>>) -> Self {
        self.parts.push((service.clone(), names.into_iter().map(|name| name.as_ref().to_vec()).collect()));
        self
    }

    /// Waits until it has all of them.
    ///
    /// A lease counts from when the last one is granted: those that are held before are extended meanwhile.
    ///
    /// # Errors
    /// [`MultiLockError`]; in every case nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// The future may be dropped at any time, even between two grants: nothing stays held or queued.
    ///
    /// Curator: `InterProcessMultiLock.acquire`.
    pub fn acquire(&self) -> Acquire<MultiGuard, MultiLockError> {
        let parts = self.parts.clone();
        Acquire::new(Terms::default(), async move |terms| take_all(parts, terms).await)
    }
}

impl Acquire<MultiGuard, MultiLockError> {
    /// On whose behalf it is asked: counts for [suspensions](LockService::suspend) only, see
    /// [`LockBuilder::owner`](crate::LockBuilder::owner).
    pub fn owner(self, owner: Owner) -> Self {
        self.owned_by(owner.number())
    }

    /// Lets others ask for any of the locks back, by the [`revoke`](LockService::revoke) of its service, and
    /// [take it away](LockService::force_revoke) once this holder has been told: see
    /// [`LockBuilder::revocable`](crate::LockBuilder::revocable). Listen to the guard's [`revocation`](MultiGuard::revocation).
    ///
    /// What the first services have granted can be asked for while later ones are waited for. The guard then tells of it when it is
    /// there; if the lock is taken away before, acquiring fails with [`MultiLockError::Lost`].
    ///
    /// Curator: none; its `InterProcessMultiLock` cannot be revoked.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let (accounts, orders) = (member.lock_service("accounts").await?, member.lock_service("orders").await?);
    /// let transfer = elderlock::MultiLock::new().with(&orders, ["17"]).with(&accounts, ["alice", "bob"]);
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

async fn take_all(parts: Vec<(LockService, Vec<Vec<u8>>)>, mut terms: Terms) -> Result<MultiGuard, MultiLockError> {
    // A limit that no clock can express is none.
    let deadline = terms.wait.and_then(|limit| Instant::now().checked_add(limit));
    let mut all = MultiGuard { parts: Vec::new() };
    let is_backwards = planted!(MultiWithoutOrder) && !parts.is_sorted_by(|one, next| one.0.name() <= next.0.name());
    let mut parts: Vec<_> = in_order(parts)?.into_iter().collect();
    if is_backwards {
        parts.reverse();
    }
    for (name, (service, batch)) in parts {
        let of = |error| MultiLockError::Lock { service: name.clone(), error };
        terms.wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let names = batch.names().iter().map(|name| name.as_bytes());
        let mut asking = pin!(terms.put(service.lock_all(names)).into_future());
        let granted = loop {
            tokio::select! {
                biased;
                (service, lost) = all.first_lost() => return Err(MultiLockError::Lost { service, lost }),
                granted = &mut asking => break match granted {
                    Ok(granted) => granted,
                    Err(error) => {
                        if planted!(MultiKeepsFirst) {
                            std::mem::forget(all);
                        }
                        return Err(of(error));
                    }
                },
                () = third_of(terms.lease) => all.extend_all(terms.lease)?,
            }
        };
        all.parts.push(Part { watch: granted.watch(), guard: granted });
    }
    all.extend_all(terms.lease)?;
    if all.parts.is_empty() { Err(MultiLockError::Nothing) } else { Ok(all) }
}

/// Each service once, with all the names that are wanted of it, in the order of the services' names. What cannot be asked of the last
/// one is found here, before the first one is asked.
fn in_order(parts: Vec<(LockService, Vec<Vec<u8>>)>) -> Result<BTreeMap<String, (LockService, Batch)>, MultiLockError> {
    let mut ordered: BTreeMap<String, (LockService, Vec<Vec<u8>>)> = BTreeMap::new();
    for (service, names) in parts {
        let name = service.name().to_owned();
        match ordered.get_mut(&name) {
            None => _ = ordered.insert(name, (service, names)),
            Some((before, wanted)) if before.is_same(&service) => wanted.extend(names),
            Some(_) => return Err(MultiLockError::TwoServices { service: name }),
        }
    }
    let checked = |(name, (service, wanted)): (String, (LockService, Vec<Vec<u8>>))| match batch(&wanted) {
        Ok(batch) => Ok((name, (service, batch))),
        Err(error) => Err(MultiLockError::Lock { service: name, error }),
    };
    ordered.into_iter().map(checked).collect()
}

fn batch(names: &[Vec<u8>]) -> Result<Batch, LockError> {
    let names: Result<Vec<_>, _> = names.iter().map(|name| LockName::new(name)).collect();
    Ok(Batch::new(names?)?)
}

/// Completes when a third of the lease is over; never without one.
async fn third_of(lease: Option<Duration>) {
    match lease {
        Some(lease) => tokio::time::sleep(lease / 3).await,
        None => std::future::pending().await,
    }
}

/// Locks of one or several services, held together, from [`MultiLock::acquire`]. They are given back as one; if one of
/// them is lost, none of them gives a token any more.
#[must_use = "the locks are given back as soon as the guard is dropped"]
#[clippy::has_significant_drop]
#[derive(Debug)]
pub struct MultiGuard {
    /// In the order of the services' names.
    parts: Vec<Part>,
}

#[derive(Debug)]
struct Part {
    guard: BatchGuard,
    watch: LossWatch,
}

impl MultiGuard {
    /// The fencing token of one of the locks, if all of them are held at this instant. Costs no message.
    ///
    /// # Errors
    /// [`FenceError::Lost`] with the reason if any of them is lost, for good; [`FenceError::NotInBatch`]: another one was
    /// asked for. Nothing is changed by asking.
    pub fn fence(&self, service: &str, name: impl AsRef<[u8]>) -> Result<Token, FenceError> {
        let index = self.parts.binary_search_by(|part| part.guard.service().cmp(service));
        let part = &self.parts[index.map_err(|_| FenceError::NotInBatch)?];
        let token = part.guard.fence(name)?;
        match self.parts.iter().find_map(|part| part.watch.reason()) {
            Some(reason) => Err(Lost::new(reason).into()),
            None => Ok(token),
        }
    }

    /// Completes when any of the locks is lost, with the reason; never while all are held.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; a loss in between is told by the next call.
    pub async fn lost(&self) -> LostReason {
        self.first_lost().await.1.reason
    }

    async fn first_lost(&self) -> (String, Lost) {
        let mut watching: Vec<_> = self.parts.iter().map(|part| Box::pin(part.watch.lost())).collect();
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
    /// [`Lost`]: one of the locks was lost before `future` completed, and `future` was dropped where it stood.
    ///
    /// # Cancel safety
    /// Dropping this drops `future`; the locks stay held.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, Lost> {
        tokio::select! {
            biased;
            reason = self.lost() => Err(Lost::new(reason)),
            output = future => Ok(output),
        }
    }

    /// Lets each hold end no earlier than `lease` from now: none becomes shorter.
    ///
    /// # Errors
    /// As of [`Guard::extend`](crate::Guard::extend). If one is lost, others may have been extended.
    pub fn extend(&self, lease: Duration) -> Result<(), ExtendError> {
        self.parts.iter().try_for_each(|part| part.guard.extend(lease))
    }

    /// Who wants any of the locks back; it ends when one of them is lost, or all are given back. As
    /// [`Guard::revocation`](crate::Guard::revocation): it keeps nothing held, and nobody is told through it unless they were asked for as
    /// [revocable](crate::LockBuilder::revocable).
    ///
    /// Which of them is wanted is not told.
    pub fn revocation(&self) -> Revocation {
        Revocation::of_all(self.parts.iter().map(|part| part.guard.revocation()))
    }

    fn extend_all(&self, lease: Option<Duration>) -> Result<(), MultiLockError> {
        let Some(lease) = lease else { return Ok(()) };
        for part in &self.parts {
            part.guard.extend(lease).map_err(|error| {
                let service = part.guard.service().to_owned();
                match error {
                    ExtendError::InvalidLease(error) => MultiLockError::Lock { service, error: error.into() },
                    ExtendError::Lost(lost) => MultiLockError::Lost { service, lost },
                }
            })?;
        }
        Ok(())
    }

    /// Gives all the locks back and says whether all were held until now. Does not wait for the grantors.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: one of them had been lost before. All are given back all the same.
    ///
    /// # Cancel safety
    /// Dropping the future gives the locks back too.
    ///
    /// Curator: `InterProcessMultiLock.release`.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let lost = self.parts.iter().find_map(|part| part.watch.reason());
        drop(self);
        lost.map_or(Ok(()), |reason| Err(ReleaseError::Lost(reason)))
    }

    /// Each lock by service and name, ascending, with its token as a number for logs: without a claim that they are still
    /// held. Tokens of different services have nothing to do with each other.
    pub fn tokens(&self) -> impl Iterator<Item = (&str, &[u8], Token)> {
        self.parts
            .iter()
            .flat_map(|Part { guard, .. }| guard.tokens().map(move |(name, token)| (guard.service(), name, token)))
    }
}

/// Why [`MultiLock::acquire`] failed. In every case nothing is held and nothing is queued any more.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum MultiLockError {
    /// It names no service. Nothing was asked.
    #[error("a multi lock of no locks: add some")]
    Nothing,
    /// Two handles of one name that are not the same service: of two members, or one of them destroyed. Nothing was asked.
    #[error("two services of the name {service:?}: take the locks of both by way of one member")]
    TwoServices {
        /// The name.
        service: String,
    },
    /// The locks of a service were not granted. What the services before it had granted is given back; names that cannot be are found
    /// before anything is asked.
    #[error("service {service:?}: {error}")]
    Lock {
        /// The service.
        service: String,
        /// Why.
        #[source]
        error: LockError,
    },
    /// What a service had granted was lost while the locks of a later one were waited for. Try again.
    #[error("service {service:?}: {lost}")]
    Lost {
        /// The service whose locks were lost.
        service: String,
        /// Why.
        #[source]
        lost: Lost,
    },
}

impl MultiLockError {
    /// Whether the wait limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, MultiLockError::Lock { error, .. } if error.is_timeout())
    }

    /// Whether what was held, or the member, was lost meanwhile.
    pub fn is_lost(&self) -> bool {
        match self {
            MultiLockError::Lock { error, .. } => error.is_lost(),
            MultiLockError::Lost { .. } => true,
            _ => false,
        }
    }
}
