//! `Acquire`: the options of a request for a recipe's lock.

use crate::service::{Guard, LockBuilder, LockService};
use std::future::IntoFuture;
use std::pin::Pin;
use std::time::Duration;

/// A request for the lock of a recipe. Set the options, then await it.
///
/// # Cancel safety
/// The future may be dropped at any time, even after the grant: nothing stays held or queued.
#[must_use = "nothing is asked until this is awaited"]
pub struct Acquire<G, E> {
    ask: Box<dyn FnOnce(AcquireOptions) -> BoxedAcquire<G, E> + Send + Sync>,
    options: AcquireOptions,
}

type BoxedAcquire<G, E> = Pin<Box<dyn Future<Output = Result<G, E>> + Send>>;

/// The options of every recipe's request.
#[derive(Clone, Default)]
pub(super) struct AcquireOptions {
    pub(super) owner: u64,
    pub(super) wait: Option<Duration>,
    pub(super) lease: Option<Duration>,
    pub(super) revocable: bool,
    pub(super) metadata: Vec<u8>,
}

impl AcquireOptions {
    pub(super) fn lock(&self, service: &LockService, name: impl AsRef<[u8]>) -> LockBuilder<Guard> {
        self.put(service.lock(name))
    }

    /// Sets these options of a request.
    pub(super) fn put<G: crate::service::Grant>(
        &self,
        mut builder: LockBuilder<G>,
    ) -> LockBuilder<G> {
        if let Some(limit) = self.wait {
            builder = builder.wait(limit);
        }
        if let Some(lease) = self.lease {
            builder = builder.lease(lease);
        }
        if self.revocable {
            builder = builder.revocable();
        }
        builder.owner(self.owner).metadata(&self.metadata)
    }
}

impl<G, E> Acquire<G, E> {
    pub(super) fn new<F>(
        options: AcquireOptions,
        ask: impl FnOnce(AcquireOptions) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<G, E>> + Send + 'static,
    {
        Acquire { ask: Box::new(move |options| Box::pin(ask(options))), options }
    }

    /// Limits the wait for all locks to `limit`. Zero makes the request non-blocking. Without a
    /// limit, or with one above ten years, the wait has no end. See [`LockBuilder::wait`].
    pub fn wait(mut self, limit: Duration) -> Self {
        self.options.wait = Some(limit);
        self
    }

    /// Limits the hold to `lease`, unless it is [extended](Guard::extend). The lease is above zero
    /// and at most ten years. Without one, the hold lasts until all locks are released or lost. A
    /// lock that its owner has already, with a lease, ends with that lease, unless `lease` is
    /// longer.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.options.lease = Some(lease);
        self
    }

    /// The holder's data for other members to read: up to 4096 bytes.
    pub fn metadata(mut self, metadata: impl AsRef<[u8]>) -> Self {
        self.options.metadata = metadata.as_ref().to_vec();
        self
    }

    pub(super) fn owned_by(mut self, owner: u64) -> Self {
        self.options.owner = owner;
        self
    }

    pub(super) fn made_revocable(mut self) -> Self {
        self.options.revocable = true;
        self
    }
}

impl<G, E> IntoFuture for Acquire<G, E> {
    type Output = Result<G, E>;
    type IntoFuture = Pin<Box<dyn Future<Output = Result<G, E>> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        (self.ask)(self.options)
    }
}

impl<G, E> std::fmt::Debug for Acquire<G, E> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut text = f.debug_struct("Acquire");
        text.field("owner", &self.options.owner)
            .field("wait", &self.options.wait)
            .field("lease", &self.options.lease);
        text.finish_non_exhaustive()
    }
}
