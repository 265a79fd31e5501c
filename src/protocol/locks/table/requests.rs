//! The requests of a table, by their members, and how much each member and owner holds.

use super::*;
use crate::protocol::id::MAX_BATCH;
use std::hash::{Hash, Hasher};
use std::time::Duration;

// `missing` counts the names of a request.
const _: () = assert!(MAX_BATCH <= u16::MAX as usize);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum TableRequestState {
    Holds {
        token: Token,
        since: Time,
    },
    /// `missing`: the number of its names for which it is not the first in the queue, or does not
    /// fit beside the present holds.
    Waits {
        ticket: Ticket,
        missing: u16,
        since: WaitStart,
    },
}

/// When a request came to this grantor and had to wait. It is for people, and no rule reads it. So
/// two of them are always equal, and the model checker takes tables that differ in them for one
/// state.
///
/// In milliseconds, which begin anew after 49 days: with the whole time each hold would take eight
/// bytes more.
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
    /// How many of them hold.
    pub(super) holds: usize,
    /// How many of them have an object open.
    pub(super) opens: usize,
    /// How many of them hold for each owner. Owner 0, the whole member, is left out.
    owners: BTreeMap<OwnerId, usize>,
}

impl TableRequest {
    /// An open object is not a hold.
    pub(super) fn is_hold(&self) -> bool {
        matches!(self.state, TableRequestState::Holds { .. }) && !self.entry.want.opens()
    }

    /// Returns whether it holds the lock of this name, by itself or in a batch.
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

    /// One more of them holds, or has an object open. Returns whether it is a hold.
    fn count(&mut self, want: &Want, owner: OwnerId) -> bool {
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

impl Table {
    /// All requests, with the token of those that hold.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.all().map(|((process, id), request)| match request.state {
            TableRequestState::Holds { token, .. } => (process, id, Some(token)),
            TableRequestState::Waits { .. } => (process, id, None),
        })
    }

    /// All waiting requests, with their tickets.
    pub(crate) fn waiting(&self) -> impl Iterator<Item = (ProcessId, RequestId, Ticket)> {
        self.all().filter_map(|((process, id), request)| match request.state {
            TableRequestState::Waits { ticket, .. } => Some((process, id, ticket)),
            TableRequestState::Holds { .. } => None,
        })
    }

    /// The requests of a process.
    pub(crate) fn requests_of(&self, process: ProcessId) -> impl Iterator<Item = RequestId> {
        self.parts.get(&process).into_iter().flat_map(|part| part.requests.keys())
    }

    /// The requests of a process from a number on.
    pub(crate) fn requests_from(
        &self,
        process: ProcessId,
        first: RequestId,
    ) -> impl Iterator<Item = RequestId> + use<'_> {
        self.parts
            .get(&process)
            .into_iter()
            .flat_map(move |part| part.requests.from(first).map(|(request, _)| request))
    }

    /// The last request of each member, or the last that waits.
    pub(crate) fn last_requests(&self, waits: bool) -> impl Iterator<Item = RequestKey> {
        let parts = self.parts.iter().filter(move |(_, part)| !waits || part.waits() > 0);
        parts.filter_map(move |(process, part)| {
            let counts =
                |one: &TableRequest| !waits || matches!(one.state, TableRequestState::Waits { .. });
            let last = part.requests.backwards().find(|(_, one)| counts(one));
            last.map(|(request, _)| (*process, request))
        })
    }

    /// Returns whether a process has something here.
    pub(crate) fn has_part_of(&self, process: ProcessId) -> bool {
        self.parts.contains_key(&process)
    }

    /// The want of the request, if it holds.
    pub(crate) fn held_by(&self, key: RequestKey) -> Option<&Want> {
        let TableRequest { entry, state: TableRequestState::Holds { .. } } = self.get(key)? else {
            return None;
        };
        Some(&entry.want)
    }

    /// How many holds and how many waits each member has.
    pub(crate) fn shares(&self) -> BTreeMap<ProcessId, (usize, usize)> {
        self.parts.iter().map(|(&process, part)| (process, (part.holds, part.waits()))).collect()
    }

    /// The numbers of holds and waits. The cost grows with the number of members in the table.
    pub(crate) fn load(&self) -> (usize, usize) {
        (self.holds, self.parts.values().map(MemberRequests::waits).sum())
    }

    pub(super) fn get(&self, (process, id): RequestKey) -> Option<&TableRequest> {
        touch();
        self.parts.get(&process)?.requests.get(&id)
    }

    pub(super) fn get_mut(&mut self, (process, id): RequestKey) -> Option<&mut TableRequest> {
        self.parts.get_mut(&process)?.requests.get_mut(&id)
    }

    pub(super) fn all(&self) -> impl Iterator<Item = (RequestKey, &TableRequest)> {
        self.parts.iter().flat_map(|(&process, part)| {
            part.requests.iter().map(move |(id, request)| ((process, id), request))
        })
    }

    fn part(&mut self, process: ProcessId) -> &mut MemberRequests {
        self.parts.entry(process).or_insert_with(|| MemberRequests {
            requests: std::mem::take(&mut self.spare),
            ..MemberRequests::default()
        })
    }

    pub(super) fn insert(&mut self, (process, id): RequestKey, request: TableRequest) {
        self.part(process).requests.insert(id, request);
    }

    pub(super) fn insert_hold(&mut self, (process, id): RequestKey, request: TableRequest) {
        let part = self.part(process);
        let is_hold = part.count(&request.entry.want, request.entry.owner);
        part.requests.insert(id, request);
        self.holds += usize::from(is_hold);
    }

    pub(super) fn count(&mut self, process: ProcessId, want: &Want, owner: OwnerId) {
        let is_hold = self.part(process).count(want, owner);
        self.holds += usize::from(is_hold);
    }

    pub(super) fn remove(&mut self, (process, id): RequestKey) -> Option<TableRequest> {
        let part = self.parts.get_mut(&process)?;
        let request = part.requests.remove(&id)?;
        if let TableRequestState::Holds { .. } = request.state
            && request.entry.want.opens()
        {
            part.opens -= 1;
        } else if let TableRequestState::Holds { .. } = request.state {
            part.holds -= 1;
            self.holds -= 1;
            if let Some(count) = part.owners.get_mut(&request.entry.owner) {
                *count -= 1;
                if *count == 0 {
                    part.owners.remove(&request.entry.owner);
                }
            }
        }
        if part.requests.is_empty()
            && let Some(part) = self.parts.remove(&process)
        {
            self.spare = part.requests;
        }
        Some(request)
    }

    /// How many holds an owner has. Owner 0 is the whole member.
    pub(crate) fn holds_of(&self, process: ProcessId, owner: OwnerId) -> usize {
        let Some(part) = self.parts.get(&process) else { return 0 };
        if owner == OwnerId(0) {
            part.holds
        } else {
            part.owners.get(&owner).copied().unwrap_or_default()
        }
    }

    /// Returns whether no other owner holds anything.
    pub(super) fn is_alone(&self, process: ProcessId, owner: OwnerId) -> bool {
        self.holds == self.holds_of(process, owner)
    }

    pub(super) fn is_of(&self, key: RequestKey, process: ProcessId, owner: OwnerId) -> bool {
        key.0 == process
            && (owner == OwnerId(0)
                || self.get(key).is_some_and(|request| request.entry.owner == owner))
    }

    /// The token with which a request holds a lock, or the suspension.
    pub(super) fn token_of(&self, key: RequestKey, name: Option<&LockName>) -> Option<Token> {
        let TableRequest { entry, state: TableRequestState::Holds { token, .. } } =
            self.get(key)?
        else {
            return None;
        };
        let index = name.and_then(|name| entry.want.names().binary_search(name).ok());
        Some(nth(*token, index.unwrap_or_default()))
    }
}

/// The token of a batch's lock at that index among its names.
pub(super) fn nth(token: Token, index: usize) -> Token {
    token.plus(index as u64)
}
