//! Questions to the grantor of a service, and to the members that hold its locks.

use super::LockService;
use crate::protocol::message::{Blocked, HoldState, Query, QueryReply};
use crate::protocol::{HolderInfo, InvalidName, LockName};
use crate::service::blockers::{self, Blockers};
use crate::service::inspect::{self, HeldLocks, InspectError, Inspection, Waiters};
use crate::service::shared_value::Versioned;

impl LockService {
    /// Asks the grantor whether any member holds the lock, or a share or permits of that name. The
    /// answer may be outdated when it is read: [`try_lock`](LockService::try_lock) takes a lock
    /// that is free. [`inspect`](LockService::inspect) lists the holders.
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
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// assert!(stock.is_held("sku-42").await?);
    /// guard.release().await?;
    /// assert!(!stock.is_held("sku-42").await?);
    /// # Ok(()) }
    /// ```
    pub async fn is_held(&self, name: impl AsRef<[u8]>) -> Result<bool, InspectError> {
        // The argument is not held over the await: its type may not be fit for other threads.
        let at = Query::Lock(LockName::new(name.as_ref())?);
        Ok(self.inspect_at(at).await?.holder.is_some())
    }

    /// Asks the grantor for the holders of a lock and its waiters, with their owners. Costs one
    /// round trip. If the service has no grantor, this member becomes the grantor. The end of a
    /// hold's lease is not in the answer, since the lease runs on the holder's clock.
    /// [`hold_state`](LockService::hold_state) asks the holder's member for it.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Geode: `DLockService.queryLock`, which is not public and lists no waiters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").metadata("till 3").await?;
    /// let waiting = stock.lock("sku-42").metadata("till 4").start();
    ///
    /// let seen = stock.inspect("sku-42").await?;
    /// let holder = seen.holder.unwrap();
    /// assert_eq!((holder.token, holder.metadata.as_bytes()), (guard.token(), &b"till 3"[..]));
    /// assert_eq!(seen.waiters[0].metadata.as_bytes(), b"till 4");
    /// # Ok(()) }
    /// ```
    pub async fn inspect(&self, name: impl AsRef<[u8]>) -> Result<Inspection, InspectError> {
        // The argument is not held across the await: its type may not be fit for other threads.
        let at = Query::Lock(LockName::new(name.as_ref())?);
        self.inspect_at(at).await
    }

    /// Asks the grantor which member has suspended the service, with the reason as metadata, and
    /// which members wait to suspend it.
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
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let suspended = stock.suspend().reason("stock-taking").await?;
    /// let holder = stock.inspect_suspension().await?.holder.unwrap();
    /// assert_eq!(holder.metadata.as_bytes(), b"stock-taking");
    /// # Ok(()) }
    /// ```
    pub async fn inspect_suspension(&self) -> Result<Inspection, InspectError> {
        self.inspect_at(Query::Suspension).await
    }

    async fn inspect_at(&self, at: Query) -> Result<Inspection, InspectError> {
        match inspect::look(&self.inner, at).await? {
            QueryReply::Lock {
                holders,
                more_holders,
                permits,
                content,
                opener_count,
                waiters,
                more,
            } => Ok(Inspection {
                holder: holders.first().cloned(),
                holders,
                more_holders,
                permits,
                value: content.map(Versioned::from),
                opener_count,
                waiters,
                more,
            }),
            _ => Err(InspectError::Undecided),
        }
    }

    /// Asks a holder's member whether it still has the hold, and how long the lease of the hold
    /// lasts. The answer also lists the requests for which the hold's owner waits, in all services.
    ///
    /// # Errors
    /// [`InspectError`], [`Undecided`](InspectError::Undecided) if the holder's member does not
    /// answer; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::HoldState;
    /// use std::time::Duration;
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").lease(Duration::from_secs(60)).await?;
    /// let holder = stock.inspect("sku-42").await?.holder.unwrap();
    /// let HoldState::Held { lease_left, .. } = stock.hold_state(&holder).await? else { panic!() };
    /// assert!(lease_left.unwrap() <= Duration::from_secs(60));
    /// guard.release().await?;
    /// assert_eq!(stock.hold_state(&holder).await?, HoldState::NotHeld);
    /// # Ok(()) }
    /// ```
    pub async fn hold_state(&self, holder: &HolderInfo) -> Result<HoldState, InspectError> {
        blockers::ask_holder(&self.inner, holder.clone()).await
    }

    /// The holds that a request for a lock waits for, the holds that their owners wait for, and so
    /// on through all services. A chain that leads back to one of its owners is a
    /// [circle](crate::Blocker::circle).
    ///
    /// Each hold takes two questions: one to the holder's member, and one to the grantor of each
    /// request for which its owner waits. At most 256 holds are listed, and 16 in a row.
    ///
    /// # Errors
    /// [`InspectError`] if the grantor of this service does not answer. If another member does not
    /// answer, the chain is not [complete](Blockers::is_complete). Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Geode: none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let one = stock.lock("a").owner(1).await?;
    /// let two = stock.lock("b").owner(2).await?;
    /// let waiting = stock.lock("b").owner(1).start();
    /// let seen = stock.blockers("a").await?;
    /// assert_eq!((seen.holds.len(), seen.holds[1].holder.owner), (2, 2));
    /// assert!(!seen.has_deadlock());
    /// let last = stock.lock("a").owner(2).start();
    /// assert!(stock.blockers("a").await?.has_deadlock());
    /// # drop((one, two, waiting, last));
    /// # Ok(()) }
    /// ```
    pub async fn blockers(&self, name: impl AsRef<[u8]>) -> Result<Blockers, InspectError> {
        let of = Blocked::Name(LockName::new(name.as_ref())?);
        blockers::walk(&self.inner, of).await
    }

    /// The holds that a request to suspend the service waits for; as
    /// [`blockers`](LockService::blockers) for a lock.
    ///
    /// # Errors
    /// As for `blockers`.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn suspension_blockers(&self) -> Result<Blockers, InspectError> {
        blockers::walk(&self.inner, Blocked::Suspension).await
    }

    /// The held locks of the service, in the order of their names, as the grantor lists them.
    ///
    /// Geode: none; its management beans list the locks of one member.
    pub fn held(&self) -> HeldLocks {
        HeldLocks::new(self.inner.clone())
    }

    /// All requests that wait for a lock, in their order. Their number has no limit.
    ///
    /// # Errors
    /// [`InvalidName`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// let waiting = stock.lock("sku-42").metadata("till 4").start();
    /// let mut waiters = stock.waiters("sku-42")?;
    /// while let Some(waiter) = waiters.next().await? {
    ///     println!("{:?} waits: {:?}", waiter.process, waiter.metadata);
    /// }
    /// # Ok(()) }
    /// ```
    pub fn waiters(&self, name: impl AsRef<[u8]>) -> Result<Waiters, InvalidName> {
        Ok(Waiters::new(self.inner.clone(), LockName::new(name.as_ref())?))
    }
}
