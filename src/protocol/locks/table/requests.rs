//! The requests of a table by member, and the holds of each member and owner.

use super::*;

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

    /// The approximate bytes of the requests of a process, with the longest values of its objects.
    pub(crate) fn bytes_of(&self, process: ProcessId) -> usize {
        self.parts.get(&process).map_or(0, |part| part.bytes)
    }

    /// Returns whether a process has a request here.
    pub(crate) fn has_part_of(&self, process: ProcessId) -> bool {
        self.parts.contains_key(&process)
    }

    /// The want of the request, if the request holds.
    pub(crate) fn held_by(&self, key: RequestKey) -> Option<&Want> {
        let TableRequest { entry, state: TableRequestState::Holds { .. } } = self.get(key)? else {
            return None;
        };
        Some(&entry.want)
    }

    /// The numbers of holds and waits of each member.
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

    /// Returns a request that is about to change.
    pub(super) fn get_mut(&mut self, (process, id): RequestKey) -> Option<&mut TableRequest> {
        self.note((process, id));
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
        self.note((process, id));
        let part = self.part(process);
        part.bytes += request.entry.kept_weight();
        part.requests.insert(id, request);
        self.note_added((process, id));
    }

    pub(super) fn insert_hold(&mut self, (process, id): RequestKey, request: TableRequest) {
        self.note((process, id));
        let part = self.part(process);
        part.bytes += request.entry.kept_weight();
        let is_hold = part.count(&request.entry.want, request.entry.owner);
        part.requests.insert(id, request);
        self.holds += usize::from(is_hold);
        self.note_added((process, id));
    }

    pub(super) fn count(&mut self, process: ProcessId, want: &Want, owner: OwnerId) {
        let is_hold = self.part(process).count(want, owner);
        self.holds += usize::from(is_hold);
    }

    pub(super) fn remove(&mut self, (process, id): RequestKey) -> Option<TableRequest> {
        self.note((process, id));
        let part = self.parts.get_mut(&process)?;
        let request = part.requests.remove(&id)?;
        part.bytes -= request.entry.kept_weight();
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
        self.note_removed((process, id), &request);
        Some(request)
    }

    /// The number of holds of an owner. Owner 0 is the whole member.
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
