//! Chains of waits and holds: the requests for which the owner of a hold waits, and probes that
//! look for a circle of owners. The chapter on blockers has the rules.

use crate::protocol::id::{
    LockName, Mode, OwnerId, ProcessId, RequestId, ServiceName, Slot, Token,
};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// The most pairs of a wait and a hold in one chain.
pub const MAX_CHAIN: usize = 16;

/// The messages that one probe and its copies may cause in their first round.
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
    /// How many locks it waits for.
    pub names: u32,
    /// The mode that it waits for.
    pub mode: Mode,
}

/// A hold as its own member knows it.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub enum HoldState {
    /// There is no such hold any more.
    NotHeld,
    /// It is held.
    Held {
        /// How much of its own lease is left; `None`: it has none, and lasts until it is released
        /// or lost.
        lease_left: Option<Duration>,
        /// The requests for which its owner waits, in all services: the first of them.
        waits: Vec<OwnerWait>,
        /// How many more there are.
        more: u64,
    },
}

/// A waiting request and a hold that it waits for, or an earlier request of the queue.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ChainLink {
    /// The waiting request.
    pub wait: (ProcessId, RequestId),
    /// The request that holds, or the earlier one.
    pub hold: (ProcessId, RequestId),
    /// The owner of that request.
    pub owner: OwnerId,
    /// The token of the hold. `QUEUE`: that request waits.
    pub token: Token,
}

impl ChainLink {
    /// In place of a token: the link leads to an earlier request of the queue. No hold has it.
    pub(crate) const QUEUE: Token = Token::new(Slot::MAX, Slot::TOKENS as u32 - 1);

    /// Whether it leads to an earlier request of the queue.
    pub(crate) fn is_queue(&self) -> bool {
        self.token == Self::QUEUE
    }
}

/// A search for a circle of owners, on its way.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct Probe {
    /// The request that is to be told.
    pub origin: (ProcessId, RequestId),
    /// The owner of that request.
    pub owner: OwnerId,
    /// The messages that it may cause yet.
    pub budget: u32,
    /// The chain that it has passed.
    pub path: Vec<ChainLink>,
    /// In the second round: how much of the path is confirmed.
    pub confirmed: Option<u32>,
}

impl Probe {
    /// The budget of each of its copies, if it is passed on to so many.
    pub(crate) fn share(&self, copies: usize) -> u32 {
        let copies = (copies as u32).min(self.budget).max(1);
        self.budget.saturating_sub(copies) / copies
    }

    /// The link of the path that the second round comes to next.
    pub(crate) fn next_link(&self) -> Option<&ChainLink> {
        self.path.get(self.confirmed? as usize)
    }

    /// The link that it came by.
    pub(crate) fn last_link(&self) -> Option<&ChainLink> {
        match self.confirmed {
            Some(confirmed) => self.path.get((confirmed as usize).checked_sub(1)?),
            None => self.path.last(),
        }
    }

    /// Whether a hold of the owner is already on the path.
    pub(crate) fn has_passed(&self, process: ProcessId, owner: OwnerId) -> bool {
        let mut holds = self.path.iter().filter(|link| !link.is_queue());
        holds.any(|link| (link.hold.0, link.owner) == (process, owner))
    }
}
