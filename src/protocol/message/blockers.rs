//! Chains of waits and holds: the requests for which the owner of a hold waits, and probes that
//! search for a circle of owners. The rules are in the chapter on blockers.

use crate::protocol::id::{
    LockName, Mode, OwnerId, ProcessId, RequestId, ServiceName, Slot, Token,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most pairs of a wait and a hold in a chain.
pub const MAX_CHAIN: usize = 16;

/// The most messages that a probe and its copies may cause in their first round.
pub(crate) const PROBE_BUDGET: u32 = 256;

/// A request for which an owner waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct OwnerWait {
    /// The service.
    pub service: ServiceName,
    /// The number of the request at its member.
    pub request: RequestId,
    /// The lock, or the first lock of a batch; `None`: the suspension of the service.
    pub name: Option<LockName>,
    /// The number of locks of the request.
    pub names: u32,
    /// The mode in which the request wants them.
    pub mode: Mode,
}

/// The state of a hold, as the holder's own member knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum HoldState {
    /// The hold no longer exists.
    NotHeld,
    /// The hold exists.
    Held {
        /// The time left of the hold's own lease; `None`: the hold has none, and lasts until it is
        /// released or lost.
        lease_left: Option<Duration>,
        /// The first requests for which the hold's owner waits, in all services.
        waits: Vec<OwnerWait>,
        /// The number of further such requests.
        more: u64,
    },
}

/// A waiting request, and a hold or an earlier request of the queue for which it waits.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ChainLink {
    /// The waiting request.
    pub wait: (ProcessId, RequestId),
    /// The request that holds, or the earlier request.
    pub hold: (ProcessId, RequestId),
    /// The owner of `hold`.
    pub owner: OwnerId,
    /// The token of the hold. `QUEUE`: `hold` is an earlier request that waits.
    pub token: Token,
}

impl ChainLink {
    /// Stands for a token if the link leads to an earlier request of the queue. No hold has this
    /// token.
    pub(crate) const QUEUE: Token = Token::new(Slot::MAX, Slot::TOKENS as u32 - 1);

    /// Returns whether the link leads to an earlier request of the queue.
    pub(crate) fn is_queue(&self) -> bool {
        self.token == Self::QUEUE
    }
}

/// A message that searches for a circle of owners.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// The request that is told of a circle.
    pub origin: (ProcessId, RequestId),
    /// The owner of that request.
    pub owner: OwnerId,
    /// The number of messages that the probe may still cause.
    pub budget: u32,
    /// The links that the probe has followed.
    pub path: Vec<ChainLink>,
    /// In the second round: the number of confirmed links of the path.
    pub confirmed: Option<u32>,
}

impl Probe {
    /// The budget of each copy, if the probe is forwarded in `copies` copies.
    pub(crate) fn share(&self, copies: usize) -> u32 {
        let copies = (copies as u32).min(self.budget).max(1);
        self.budget.saturating_sub(copies) / copies
    }

    /// The next link that the second round has to confirm.
    pub(crate) fn next_link(&self) -> Option<&ChainLink> {
        self.path.get(self.confirmed? as usize)
    }

    /// The link that led to this member.
    pub(crate) fn last_link(&self) -> Option<&ChainLink> {
        match self.confirmed {
            Some(confirmed) => self.path.get((confirmed as usize).checked_sub(1)?),
            None => self.path.last(),
        }
    }

    /// Returns whether a hold of the owner is already on the path.
    pub(crate) fn has_passed(&self, process: ProcessId, owner: OwnerId) -> bool {
        let mut holds = self.path.iter().filter(|link| !link.is_queue());
        holds.any(|link| (link.hold.0, link.owner) == (process, owner))
    }
}
