//! `Member`: this process as a member of a cluster.

use super::connection::Connection;
use super::events::Events;
use super::inspect::ServiceExistsError;
use super::lock_error::Unavailable;
use super::lock_service::LockService;
#[cfg(feature = "http")]
use super::waiting::Waiting;
use crate::protocol::{InvalidName, MemberName, ProcessId, ServiceName, Status};
use crate::runtime::engine::{ConnectionStatus, Engine, EngineClosed};
use crate::runtime::net::counters::Counters;
use crate::runtime::net::transport::Transport;
use dashmap::DashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// This process as a member of a cluster.
///
/// A cheap handle: clones are the same member. When the last clone is dropped, the member leaves in
/// the background, as well as it can without blocking; [`leave().await`](Member::leave) is the
/// documented way. Lock services, guards and events do not keep a member from leaving.
///
/// Several members may live in one process, each with an address of its own, on either flavour of
/// the tokio runtime. The runtime must outlive the member: when it ends, so does the member. Calls
/// of the member, of its services and recipes may be awaited anywhere, on another executor too.
///
/// **Fork first, then join.** In a process that was forked off this process every guard is lost
/// ([`LostReason::Forked`](crate::LostReason::Forked)) and every request is answered as if the
/// member had left. The forked process sends nothing, and the member here is not disturbed. Such a
/// process may join as a member of its own. It keeps the port and the data directory of this
/// process busy for as long as it lives.
#[derive(Clone)]
pub struct Member {
    handle: Arc<MemberHandle>,
}

struct MemberHandle {
    cluster: String,
    engine: Arc<Engine>,
    /// The connections; `None` for a local member.
    transport: Option<Arc<Transport>>,
    /// One handle for each service name, at most `max_services` that are not destroyed.
    services: DashMap<ServiceName, LockService>,
    max_services: usize,
    /// Locked while a service is added, so that two callers do not both take the last place.
    adding: Mutex<()>,
}

/// The most lock services of one member, unless it is
/// [configured](crate::MemberBuilder::max_services). Each costs some kilobytes here, and its name
/// costs some hundred bytes at the elder and at each later elder.
pub const MAX_SERVICES: usize = 4096;

impl Drop for MemberHandle {
    fn drop(&mut self) {
        self.engine.leave();
    }
}

impl Member {
    pub(super) fn new(
        cluster: String,
        engine: Arc<Engine>,
        transport: Option<Arc<Transport>>,
    ) -> Self {
        Member::with_services(cluster, engine, transport, MAX_SERVICES)
    }

    pub(super) fn with_services(
        cluster: String,
        engine: Arc<Engine>,
        transport: Option<Arc<Transport>>,
        max_services: usize,
    ) -> Self {
        let (services, adding) = (DashMap::new(), Mutex::new(()));
        let handle = MemberHandle { cluster, engine, transport, services, max_services, adding };
        Member { handle: Arc::new(handle) }
    }

    /// The lock service `name`: 1 to 255 bytes of text, the same for all members that use it. It
    /// needs no creation: the member that first asks for a lock of it becomes its grantor. A
    /// repeated call returns the same handle, until that is [destroyed](LockService::destroy).
    ///
    /// # Errors
    /// [`ServiceError::InvalidName`], [`ServiceError::Left`], [`ServiceError::TooMany`]; nothing is
    /// changed.
    ///
    /// # Cancel safety
    /// No message is sent: dropping the future changes nothing.
    ///
    /// Geode: `DistributedLockService.create` and `getServiceNamed`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// assert_eq!(stock.name(), "inventory");
    /// # Ok(()) }
    /// ```
    pub async fn lock_service(&self, name: impl AsRef<str>) -> Result<LockService, ServiceError> {
        let name = ServiceName::new(name.as_ref())?;
        let engine = &self.handle.engine;
        if engine.is_over() {
            return Err(ServiceError::Left);
        }
        if let Some(service) = self.handle.services.get(&name)
            && !service.is_destroyed()
        {
            return Ok(service.clone());
        }
        // The handle is made before the entry is locked. Making it takes a turn, and a caller that
        // looks for another service must not wait for that.
        let new = LockService::new(engine.clone(), name.clone());
        let adding = self.handle.adding.lock().unwrap_or_else(PoisonError::into_inner);
        let services = &self.handle.services;
        let limit = self.handle.max_services;
        if services.len() >= limit && !services.contains_key(&name) {
            services.retain(|_, service| !service.is_destroyed());
            if services.len() >= limit {
                return Err(ServiceError::TooMany { limit });
            }
        }
        let mut service = self.handle.services.entry(name).or_insert_with(|| new.clone());
        if service.is_destroyed() {
            *service = new;
        }
        let made = service.clone();
        drop((service, adding));
        made.handle().meter.begin_series();
        Ok(made)
    }

    /// Returns whether a lock service of that name exists anywhere in the cluster. A misspelt name
    /// makes a new service silently: this call finds that out first. Costs one round trip to the
    /// elder. No member becomes the grantor, and no handle is kept.
    ///
    /// A service exists from the first request for one of its locks, shares, permits or objects, or
    /// for its suspension. [`lock_service`](Member::lock_service) alone makes none. A service
    /// exists until its grantor leaves or [destroys](LockService::destroy) it while no member has
    /// anything of it. A service whose grantor died exists until a later grantor ends in that way.
    /// The answer may be outdated when it is read.
    ///
    /// # Errors
    /// [`ServiceExistsError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Geode: `DistributedLockService.getServiceNamed`, which knows the services of one member
    /// only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// stock.lock("sku-42").await?.release().await?;
    /// assert!(member.service_exists("inventory").await?);
    /// assert!(!member.service_exists("inventroy").await?);
    /// # Ok(()) }
    /// ```
    pub async fn service_exists(&self, name: impl AsRef<str>) -> Result<bool, ServiceExistsError> {
        // The argument is not held across the await: its type may not be fit for other threads.
        let name = ServiceName::new(name.as_ref())?;
        let engine = &self.handle.engine;
        if engine.is_over() {
            return Err(Unavailable::Left.into());
        }
        LockService::new(engine.clone(), name).exists().await
    }

    /// The member's events from now on. Subscribe first and read [`status`](Member::status) then,
    /// to know the state before the first event.
    pub fn events(&self) -> Events {
        Events::new(self.handle.engine.clone())
    }

    /// The member's connection to its cluster, at this instant: whether its guards can be good and
    /// whether it can be granted locks. Costs a short lock, no message.
    ///
    /// Curator: `ZookeeperClient.isConnected`, and the last `ConnectionState`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{Member, ConnectionStatus};
    /// let member = Member::local().await?;
    /// assert_eq!(member.connection_status(), ConnectionStatus::Connected);
    /// member.leave().await?;
    /// assert_eq!(member.connection_status(), ConnectionStatus::Lost);
    /// # Ok(()) }
    /// ```
    pub fn connection_status(&self) -> ConnectionStatus {
        self.handle.engine.connection_status()
    }

    /// The present status, and every change of it from now on.
    ///
    /// Curator: `getConnectionStateListenable`.
    pub fn connection(&self) -> Connection {
        Connection::new(&self.handle.engine)
    }

    /// This member's present status: view, elder, grantors, and the locks granted here. The call
    /// takes longer the more locks the member grants, and a long one does not show one instant. A
    /// lock that is held all the time is listed once; one that is granted or released meanwhile may
    /// be listed.
    pub fn status(&self) -> Status {
        self.handle.engine.status()
    }

    /// The id of this member's process. It changes when the member is expelled and joins again as a
    /// new process.
    pub fn process(&self) -> ProcessId {
        self.handle.engine.process()
    }

    /// The address at which other members reach this one. Without meaning for a
    /// [local](Member::local) member.
    pub fn addr(&self) -> SocketAddr {
        self.handle.engine.addr()
    }

    /// The name of this member for people: see [`MemberBuilder::name`].
    ///
    /// [`MemberBuilder::name`]: crate::MemberBuilder::name
    pub fn name(&self) -> MemberName {
        self.handle.engine.name()
    }

    /// The counters of the member's network, including refused input. All zero for a
    /// [local](Member::local) member.
    pub fn counters(&self) -> Counters {
        self.handle.transport.as_ref().map(|transport| transport.counters()).unwrap_or_default()
    }

    /// Replaces the keys of a running member. The member seals with the first key from now on, and
    /// opens with these keys only. Connections under a removed key are closed. Members dial again
    /// and repeat unacknowledged messages. Returns the number of closed connections.
    ///
    /// To rotate without downtime, do each of three steps at all members before the next one. Add
    /// the new key behind the others, move it to the front, remove the old key. After the last step
    /// the other members refuse a member that missed a step.
    ///
    /// # Errors
    /// [`KeyringError::NoKey`]: the member joined without a keyring.
    /// [`KeyringError::RoleKey`]: the ring has a key of a role that is not a member's. Nothing is
    /// changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{ClusterKey, Keyring, Member};
    /// let (old, new) = (ClusterKey::generate()?, ClusterKey::generate()?);
    /// let builder = Member::builder("shop").keyring(Keyring::new(old.clone()));
    /// let member = builder.found().join().await?;
    /// member.set_keyring(Keyring::new(old.clone()).with(new.clone())?)?;
    /// member.set_keyring(Keyring::new(new.clone()).with(old)?)?;
    /// member.set_keyring(Keyring::new(new))?;
    /// # member.leave().await?;
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "secure")]
    #[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
    pub fn set_keyring(&self, ring: crate::Keyring) -> Result<usize, KeyringError> {
        if let Some(role) = ring.lower_role() {
            return Err(KeyringError::RoleKey(role));
        }
        let names: Vec<_> = ring.names().collect();
        let transport = self.handle.transport.as_ref();
        let closed = transport.and_then(|transport| transport.set_keyring(ring));
        let closed = closed.ok_or(KeyringError::NoKey)?;
        tracing::info!(keys = ?names, closed, "the keyring was replaced");
        if closed > 0 {
            tracing::warn!(closed, "connections under a removed key are closed");
        }
        Ok(closed)
    }

    /// The name of the member's cluster.
    pub fn cluster(&self) -> &str {
        &self.handle.cluster
    }

    /// Returns whether the member is the elder of its view. The answer may be outdated when it is
    /// read; see [`events`](Member::events).
    pub fn is_elder(&self) -> bool {
        self.handle.engine.is_elder()
    }

    /// Declares, as the operator, that every other member that does not answer is dead for ever.
    /// This member has no elder with a quorum. It continues without one as a new lineage above the
    /// last view that it knows, and other processes may join it. Its waits end with
    /// [`Unavailable::Expelled`](crate::Unavailable::Expelled);
    /// [`MemberEvent::Rejoined`](crate::MemberEvent::Rejoined) reports when it is a member again.
    /// If the other members live nevertheless, see
    /// [`MemberBuilder::force`](crate::MemberBuilder::force).
    ///
    /// # Errors
    /// [`ForceError::NotOrphaned`]: the member has a quorum, or leaves. Nothing is changed.
    ///
    /// ```
    /// # #[tokio::main] async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{ForceError, Member};
    ///
    /// let member = Member::local().await?;
    /// assert_eq!(member.force(), Err(ForceError::NotOrphaned));
    /// # Ok(()) }
    /// ```
    pub fn force(&self) -> Result<(), ForceError> {
        if self.handle.engine.force() { Ok(()) } else { Err(ForceError::NotOrphaned) }
    }

    /// Returns whether the member has left or is leaving.
    #[cfg(feature = "http")]
    pub(super) fn is_over(&self) -> bool {
        self.handle.engine.is_over()
    }

    /// The engine, for questions to holders' members.
    #[cfg(feature = "http")]
    pub(super) fn engine(&self) -> &Arc<Engine> {
        &self.handle.engine
    }

    /// Returns the time until the member lease ends; `None`: the lease is endless.
    #[cfg(feature = "http")]
    pub(super) fn lease_left(&self) -> Option<std::time::Duration> {
        self.handle.engine.lease_left()
    }

    /// The seeds or members that the member waits for while it joins.
    #[cfg(feature = "http")]
    pub(super) fn waiting(&self) -> Option<Waiting> {
        let transport = self.handle.transport.as_ref()?;
        Some(Waiting::of(&self.handle.engine, transport))
    }

    /// Keeps a runtime for the tasks of recipes whose caller is in none.
    pub(super) fn keep_runtime(&self, runtime: &tokio::runtime::Handle) {
        self.handle.engine.keep_runtime(runtime.clone());
    }

    /// Completes when the member has left and its network is shut down. Does not keep the member
    /// from leaving.
    pub(super) fn has_left(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut phase = self.handle.engine.phase();
        async move {
            // An error means that the engine has ended.
            let _ = phase.wait_for(|phase| phase.closed.is_some() && phase.stopped).await;
        }
    }

    /// Says goodbye and waits until the elder confirms that. Every hold and every wait of this
    /// member ends at once. Other members take over its services, and its port is free. With an
    /// elder that has a quorum, leaving takes as long as the transfers. Without one, it takes one
    /// member lease, or three if a view without this member is decided at that moment. Closing the
    /// connections takes up to one second more. Leaving twice is not an error.
    ///
    /// # Errors
    /// [`LeaveError`]. The member has left in every case.
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the leaving.
    ///
    /// Geode: `DistributedSystem.disconnect`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LockError, Unavailable};
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guard = stock.lock("sku-42").await?;
    /// member.leave().await?;
    /// assert!(guard.fence().is_err());
    /// let error = stock.lock("sku-42").await.unwrap_err();
    /// assert_eq!(error, LockError::Unavailable(Unavailable::Left));
    /// # Ok(()) }
    /// ```
    pub async fn leave(&self) -> Result<(), LeaveError> {
        if self.handle.engine.is_copy() {
            return Err(LeaveError::Stopped);
        }
        self.handle.engine.leave();
        let mut phase = self.handle.engine.phase();
        // The sender lives as long as the engine.
        let closed = match phase.wait_for(|phase| phase.closed.is_some() && phase.stopped).await {
            Ok(phase) => phase.closed,
            Err(_) => Some(EngineClosed::Broken),
        };
        match closed {
            Some(EngineClosed::Heard) | None => Ok(()),
            Some(EngineClosed::Unheard) => Err(LeaveError::Unheard),
            Some(
                EngineClosed::Broken | EngineClosed::WrongClock { .. } | EngineClosed::ForceRefused,
            ) => Err(LeaveError::Stopped),
        }
    }
}

#[cfg(test)]
impl Member {
    pub(super) fn handle_engine(&self) -> Arc<Engine> {
        self.handle.engine.clone()
    }

    /// Sets the readings of the member's clocks, from the first call on.
    pub(super) fn look_at_clocks(&self, reading: crate::runtime::clock_watch::Reading) {
        self.handle.engine.clocks_are_tests.store(true, std::sync::atomic::Ordering::Relaxed);
        self.handle.engine.look_at_clocks(reading);
    }

    /// Makes the core panic. Any next input finds it broken.
    pub(super) fn break_core(&self) {
        self.handle.engine.break_core();
    }

    /// Reports that the member is suspended, and then that it is not.
    pub(super) fn note_brief_suspension(&self) {
        self.handle.engine.note_brief_suspension();
    }
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Member")
            .field("cluster", &self.handle.cluster)
            .field("process", &self.process())
            .field("addr", &self.addr())
            .finish_non_exhaustive()
    }
}

/// The reason why [`Member::set_keyring`] did nothing.
#[cfg(feature = "secure")]
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyringError {
    /// The member joined without a keyring, and speaks to members without keys. Nothing is changed.
    #[error("this member joined without a keyring: give one to all members when they join")]
    NoKey,
    /// The ring has a key of a role that is not a member's. Nothing is changed.
    #[error("the keyring has an {} key, which {}: give cluster keys", .0, .0.allows())]
    RoleKey(crate::Role),
}

/// Why [`Member::force`] did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ForceError {
    /// The member's lease runs, so there is an elder with a quorum. Or the member leaves. Nothing
    /// is changed.
    #[error("this member has an elder with a quorum, or leaves: there is nothing to force")]
    NotOrphaned,
}

/// Why [`Member::leave`] failed. The member has left in every case.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LeaveError {
    /// No member confirmed the goodbye: there was no quorum for a member lease, or all others
    /// refused connections. The services that this member granted have no new grantors yet. The
    /// other members, if there are any, remove this one when its lease is surely over, and recover
    /// those services.
    #[error(
        "left, but no member confirmed it; the others go on when this member's lease has ended"
    )]
    Unheard,
    /// The member's runtime had ended, or its core had panicked. The other members remove it when
    /// its lease is surely over.
    #[error("the member had stopped before, without a goodbye")]
    Stopped,
}

/// Why [`Member::lock_service`] failed. Nothing is changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceError {
    /// The name is empty or longer than 255 bytes.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The member has left or is leaving, for good: join as a new member.
    #[error("{}", Unavailable::Left)]
    Left,
    /// The member uses as many services as it may. Services in use are not disturbed.
    #[error(
        "this member uses {limit} lock services already: use locks of one service, destroy \
         services that are not used any more, or raise max_services"
    )]
    TooMany {
        /// The number of services that the member may use.
        limit: usize,
    },
}
