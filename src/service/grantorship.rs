//! Becoming the grantor of a service.

use super::command::CommandFuture;
use super::handle::ServiceHandle;
use super::lock_error::{MAX_LEASE, Unavailable};
use crate::protocol::{Command, Outcome, ProcessId, Wait};
use std::future::{Future, IntoFuture};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

/// A bid to grant the locks of a service, from
/// [`become_grantor`](crate::LockService::become_grantor). Await it.
#[must_use = "nothing is asked until this is awaited"]
pub struct BecomeBuilder {
    service: Arc<ServiceHandle>,
    wait: Wait,
}

impl BecomeBuilder {
    pub(super) fn new(service: Arc<ServiceHandle>) -> Self {
        BecomeBuilder { service, wait: Wait::Forever }
    }

    /// Limits the wait to `limit`, then fails with [`BecomeError::TimedOut`]. Without a limit, or
    /// with one above ten years, the wait has no end.
    pub fn wait(mut self, limit: Duration) -> Self {
        self.wait = if limit > MAX_LEASE { Wait::Forever } else { Wait::AtMost(limit) };
        self
    }
}

impl IntoFuture for BecomeBuilder {
    type Output = Result<(), BecomeError>;
    type IntoFuture = BecomeFuture;

    fn into_future(self) -> BecomeFuture {
        let (name, wait) = (self.service.name.clone(), self.wait);
        BecomeFuture(CommandFuture::new(self.service, move |request| Command::Become {
            request,
            service: name,
            wait,
        }))
    }
}

/// A pending [`become_grantor`](crate::LockService::become_grantor).
///
/// # Cancel safety
/// If the future is dropped before its first poll, no bid is made. If it is dropped later, the bid
/// is not repeated, but this member may still become the grantor.
#[must_use = "futures do nothing unless polled"]
pub struct BecomeFuture(CommandFuture);

impl Future for BecomeFuture {
    type Output = Result<(), BecomeError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        Poll::Ready(match ready!(Pin::new(&mut self.0).poll(context)) {
            Err(Outcome::Won) => Ok(()),
            Err(Outcome::Outbid(by)) => Err(BecomeError::Outbid { by }),
            Err(outcome) => Err(match Unavailable::of(&outcome) {
                Some(unavailable) => unavailable.into(),
                None => BecomeError::TimedOut,
            }),
            Ok(_) => Err(BecomeError::TimedOut),
        })
    }
}

impl std::fmt::Debug for BecomeBuilder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BecomeBuilder").field("wait", &self.wait).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for BecomeFuture {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Becoming").finish_non_exhaustive()
    }
}

/// Why [`become_grantor`](crate::LockService::become_grantor) failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BecomeError {
    /// Another member made a later bid, and is the grantor or about to be.
    #[error("outbid by process {by}")]
    Outbid {
        /// The later bidder.
        by: ProcessId,
    },
    /// The wait limit was reached. This member may still become the grantor.
    #[error("not the grantor within the wait limit")]
    TimedOut,
    /// The member carries out no such call at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl BecomeError {
    /// The process that is the grantor instead, if that is the reason.
    pub fn outbid_by(&self) -> Option<ProcessId> {
        match self {
            BecomeError::Outbid { by } => Some(*by),
            _ => None,
        }
    }
}
