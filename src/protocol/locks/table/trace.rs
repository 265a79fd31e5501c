//! The copy of a table: the place up to which it was sent, and the changes since.
//!
//! Only `requests.rs` changes requests, and each of its ways to do so notes the request first. So a
//! change behind the place of the walk cannot be forgotten.

use super::copy_walk::{CopiedEntries, TableTrace, WalkPlace, hash_of};
use super::request::{RequestKey, TableRequest, TableRequestState};
use super::*;
use crate::protocol::message::TableSeal;

impl Table {
    /// Begins a copy of the table. An earlier one ends.
    pub(crate) fn begin_copy(&mut self) {
        self.trace = Some(TableTrace::Source(Box::default()));
    }

    /// Ends the copy of the table.
    pub(crate) fn end_copy(&mut self) {
        self.trace = None;
    }

    /// An empty table that becomes a copy of another one.
    pub(crate) fn new_copy(epoch: Epoch) -> Table {
        Table { trace: Some(TableTrace::Copy(0)), ..Table::new(epoch) }
    }

    /// The number of requests in the table.
    pub(crate) fn entries(&self) -> usize {
        self.parts.values().map(|part| part.requests.len()).sum()
    }

    /// The members with requests in the table.
    pub(crate) fn processes(&self) -> impl Iterator<Item = ProcessId> {
        self.parts.keys().copied()
    }

    /// Returns whether the whole table was sent once.
    pub(crate) fn is_walked(&self) -> bool {
        matches!(&self.trace, Some(TableTrace::Source(walk)) if walk.place == WalkPlace::End)
    }

    /// The number of entries that have changed since they were sent.
    pub(crate) fn noted(&self) -> usize {
        match &self.trace {
            Some(TableTrace::Source(walk)) => walk.requests.len() + walk.objects.len(),
            _ => 0,
        }
    }

    /// The sizes and the digest of the table, if it is a copy or all of it was sent.
    pub(crate) fn seal(&self) -> TableSeal {
        let sum = match &self.trace {
            Some(TableTrace::Source(walk)) => walk.sum,
            Some(TableTrace::Copy(sum)) => *sum,
            None => 0,
        };
        let (holds, waits) = self.load();
        let opens: usize = self.parts.values().map(|part| part.opens).sum();
        TableSeal {
            holds: holds as u64,
            waits: waits as u64,
            opens: opens as u64,
            objects: self.objects.len() as u64,
            names: self.held.len() as u64,
            queues: self.queues.len() as u64,
            sum,
        }
    }

    /// Notes a request that is about to change.
    #[inline]
    pub(super) fn note(&mut self, key: RequestKey) {
        if self.trace.is_some() {
            self.note_traced(key);
        }
    }

    #[inline(never)]
    fn note_traced(&mut self, key: RequestKey) {
        let part = self.parts.get(&key.0);
        let present = part.and_then(|part| part.requests.get(&key.1));
        let hash = present.map(|request| hash_of(key, request));
        planted!(self.mutant, ForgetCopiedChanges => if hash.is_some() { return });
        if let Some(TableTrace::Source(walk)) = &mut self.trace
            && walk.is_behind(key)
            && !walk.requests.contains_key(&key)
        {
            walk.requests.insert(key, hash.is_some());
            walk.sum = walk.sum.wrapping_sub(hash.unwrap_or_default());
        }
    }

    /// Notes a request that was added.
    #[inline]
    pub(super) fn note_added(&mut self, key: RequestKey) {
        if let Some(TableTrace::Copy(_)) = self.trace {
            let part = self.parts.get(&key.0);
            let hash = part.and_then(|part| part.requests.get(&key.1)).map(|one| hash_of(key, one));
            if let Some(TableTrace::Copy(sum)) = &mut self.trace {
                *sum = sum.wrapping_add(hash.unwrap_or_default());
            }
        }
    }

    /// Notes a request that was removed.
    #[inline]
    pub(super) fn note_removed(&mut self, key: RequestKey, request: &TableRequest) {
        match &mut self.trace {
            Some(TableTrace::Copy(sum)) => *sum = sum.wrapping_sub(hash_of(key, request)),
            // The copy has never had it.
            Some(TableTrace::Source(walk)) if walk.requests.get(&key) == Some(&false) => {
                walk.requests.remove(&key);
            }
            Some(TableTrace::Source(_)) | None => {}
        }
    }

    /// Notes an object that is about to change.
    pub(super) fn note_object(&mut self, name: &LockName) {
        let is_there = self.objects.contains_key(name);
        if let Some(TableTrace::Source(walk)) = &mut self.trace
            && walk.is_object_behind(name)
        {
            walk.objects.entry(name.clone()).or_insert(is_there);
        }
    }

    /// Returns whether the table is a copy: its objects end when the other table says so.
    pub(super) fn is_copy(&self) -> bool {
        matches!(self.trace, Some(TableTrace::Copy(_)))
    }

    /// Takes the next entries of the copy, up to a number of entries and of bytes: those ahead of
    /// the place, then those noted. An object is closed only when no noted request is left.
    pub(crate) fn next_copied(&mut self, most: (usize, usize), now: Time) -> CopiedEntries {
        let mut entries = CopiedEntries::default();
        let Some(TableTrace::Source(mut walk)) = self.trace.take() else { return entries };
        while !entries.is_full(most) {
            match walk.place {
                WalkPlace::Object(last) => walk.place = self.walk_objects(last, most, &mut entries),
                WalkPlace::Request(last) => {
                    let mut hashes = 0_u64;
                    let place = self.walk_requests(last, (most, now), (&mut entries, &mut hashes));
                    (walk.place, walk.sum) = (place, walk.sum.wrapping_add(hashes));
                }
                WalkPlace::End => match walk.requests.pop_first() {
                    Some((key, was_there)) => match self.get(key) {
                        Some(one) => {
                            walk.sum = walk.sum.wrapping_add(hash_of(key, one));
                            entries.add(key, one, now);
                        }
                        None if was_there => {
                            entries.bytes += 24;
                            entries.over.push(key);
                        }
                        None => {}
                    },
                    None => match walk.objects.pop_first() {
                        Some((name, was_there)) => match self.content(&name).cloned() {
                            None if !was_there => {}
                            content => entries.add_object(name, content),
                        },
                        None => break,
                    },
                },
            }
        }
        self.trace = Some(TableTrace::Source(walk));
        entries
    }

    fn walk_objects(
        &self,
        last: Option<LockName>,
        most: (usize, usize),
        entries: &mut CopiedEntries,
    ) -> WalkPlace {
        let from = last.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        for (name, object) in self.objects.range::<LockName, _>((from, Bound::Unbounded)) {
            touch();
            entries.add_object(name.clone(), Some(object.content.clone()));
            if entries.is_full(most) {
                return WalkPlace::Object(Some(name.clone()));
            }
        }
        WalkPlace::Request(None)
    }

    fn walk_requests(
        &self,
        last: Option<RequestKey>,
        (most, now): ((usize, usize), Time),
        (entries, hashes): (&mut CopiedEntries, &mut u64),
    ) -> WalkPlace {
        let (process, first) = last.unwrap_or((ProcessId(0), RequestId(0)));
        for (&of, part) in self.parts.range(process..) {
            let from = if of == process { first } else { RequestId(0) };
            for (id, one) in part.requests.from(from) {
                if Some((of, id)) == last {
                    continue;
                }
                entries.add((of, id), one, now);
                *hashes = hashes.wrapping_add(hash_of((of, id), one));
                if entries.is_full(most) {
                    return WalkPlace::Request(Some((of, id)));
                }
            }
        }
        WalkPlace::End
    }

    /// Records a hold of a copied table, in place of the request's earlier state. Holds that it
    /// excludes have changed since they were sent. They are removed, and sent anew.
    pub(crate) fn overwrite_hold(
        &mut self,
        key: RequestKey,
        entry: LockRequest,
        token: Token,
        since: Time,
    ) {
        // The end of an open object would also end what its member has written.
        if let Some(TableRequest {
            entry: known,
            state: TableRequestState::Holds { token: has, .. },
        }) = self.get(key)
            && (known, *has) == (&entry, token)
        {
            return;
        }
        self.release(key);
        if let Want::Lock(name) | Want::Share(name) | Want::Permits(name, _) = &entry.want
            && self.occupy(name, key, &entry.want)
        {
            let state = TableRequestState::Holds { token, since };
            return self.insert_hold(key, TableRequest { entry, state });
        }
        let names = if entry.want.opens() { &[] } else { entry.want.names() };
        let mut others = BTreeSet::new();
        for name in names {
            if let Some(used) = self.held.get(name).filter(|used| !used.is_beside(&entry.want)) {
                others.extend(self.holders(name, used));
            }
        }
        if entry.want == Want::Suspension {
            others.extend(self.suspended.map(|(_, other)| other));
        }
        others.into_iter().for_each(|other| self.release(other));
        self.hold(key, entry, token, since);
    }

    /// Records a wait of a copied table, in place of the request's earlier state.
    pub(crate) fn overwrite_wait(
        &mut self,
        key: RequestKey,
        entry: LockRequest,
        ticket: Ticket,
        now: Time,
    ) {
        self.release(key);
        self.wait(key, entry, ticket, now);
    }

    /// Records the content of an object of a copied table; `None`: the object is closed.
    pub(crate) fn overwrite_object(&mut self, name: LockName, content: Option<Content>) {
        self.reconsider(&name, |table| match (content, table.objects.get_mut(&name)) {
            (Some(content), Some(object)) => object.content = content,
            (Some(content), None) => {
                let object = TableObject { content, openers: BTreeMap::new(), adopted: false };
                table.objects.insert(name.clone(), object);
            }
            (None, _) => drop(table.objects.remove(&name)),
        });
    }
}
