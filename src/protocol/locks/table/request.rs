//! A request in a table, and the requests of one member.

use crate::protocol::id::{
    LockName, MAX_BATCH, OwnerId, ProcessId, RequestId, Ticket, Token, Want,
};
use crate::protocol::message::LockRequest;
use crate::protocol::paged_map::PagedMap;
use crate::protocol::time::Time;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The key of a request: its process and its number.
pub(super) type RequestKey = (ProcessId, RequestId);

// `missing` counts names of a request.
const _: () = assert!(MAX_BATCH <= u16::MAX as usize);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum TableRequestState {
    Holds {
        token: Token,
        since: Time,
    },
    /// `missing`: the number of names for which the request is not first in the queue, or does not
    /// fit beside the present holds.
    Waits {
        ticket: Ticket,
        missing: u16,
        since: WaitStart,
    },
}

/// The time at which a request came to this grantor and had to wait. It is only shown to people; no
/// rule reads it. So two of them always compare equal, and the model checker counts tables that
/// differ only in them as one state.
///
/// In milliseconds, which wrap around after 49 days: the full time would make each hold eight bytes
/// longer.
#[derive(Clone, Copy, Debug)]
pub(super) struct WaitStart(u32);

impl WaitStart {
    pub(super) fn new(now: Time) -> WaitStart {
        WaitStart((now.as_nanos() / 1_000_000) as u32)
    }

    /// The time for which the request has waited.
    pub(super) fn waited(self, now: Time) -> Duration {
        Duration::from_millis(WaitStart::new(now).0.wrapping_sub(self.0).into())
    }
}

impl PartialEq for WaitStart {
    fn eq(&self, _: &WaitStart) -> bool {
        true
    }
}

impl Eq for WaitStart {}

impl Hash for WaitStart {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct TableRequest {
    pub(super) entry: LockRequest,
    pub(super) state: TableRequestState,
}

/// One member's requests in the table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct MemberRequests {
    pub(super) requests: PagedMap<TableRequest>,
    /// The approximate bytes of all requests, with the longest values that their objects may get.
    pub(super) bytes: usize,
    /// The number of requests that hold.
    pub(super) holds: usize,
    /// The number of requests that have an object open.
    pub(super) opens: usize,
    /// The number of holds of each owner. Owner 0, the whole member, is left out.
    pub(super) owners: BTreeMap<OwnerId, usize>,
}

impl TableRequest {
    /// Returns whether the request holds. An open object is not a hold.
    pub(super) fn is_hold(&self) -> bool {
        matches!(self.state, TableRequestState::Holds { .. }) && !self.entry.want.opens()
    }

    /// Returns whether the request holds the lock of this name, alone or in a batch.
    pub(super) fn has_lock(&self, name: &LockName) -> bool {
        let is_lock = matches!(self.entry.want, Want::Lock(_) | Want::Batch(_));
        let holds = matches!(self.state, TableRequestState::Holds { .. });
        is_lock && holds && self.entry.want.names().binary_search(name).is_ok()
    }
}

impl MemberRequests {
    pub(super) fn waits(&self) -> usize {
        self.requests.len() - self.holds - self.opens
    }

    /// Counts one more request that holds, or has an object open. Returns whether it is a hold.
    pub(super) fn count(&mut self, want: &Want, owner: OwnerId) -> bool {
        if want.opens() {
            self.opens += 1;
            return false;
        }
        self.holds += 1;
        if owner != OwnerId(0) {
            *self.owners.entry(owner).or_default() += 1;
        }
        true
    }
}

/// The token of the lock at this index of a batch.
pub(super) fn nth(token: Token, index: usize) -> Token {
    token.plus(index as u64)
}
