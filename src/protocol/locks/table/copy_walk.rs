//! The progress of a copy of a table, and the entries of its parts. `trace.rs` has the rest.

use super::request::{RequestKey, TableRequest, TableRequestState};
use crate::protocol::content::Content;
use crate::protocol::id::{LockName, ProcessId, Ticket};
use crate::protocol::message::{HoldReport, WaitReport};
use crate::protocol::time::Time;
use std::collections::BTreeMap;

/// The relation of a table to its copy at another member.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum TableTrace {
    /// The table is copied by another member.
    Source(Box<CopyWalk>),
    /// The table is such a copy, with this sum of [hashes](hash_of) of its requests.
    Copy(u64),
}

/// The progress of a copy of a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct CopyWalk {
    pub(super) place: WalkPlace,
    /// The requests that have changed behind the place, and whether the copy has them.
    pub(super) requests: BTreeMap<RequestKey, bool>,
    /// The objects that have changed behind the place, and whether the copy has them.
    pub(super) objects: BTreeMap<LockName, bool>,
    /// The sum of the [hashes](hash_of) of all requests that the copy has as they are.
    pub(super) sum: u64,
}

/// The place up to which a table was sent. All objects go before all requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum WalkPlace {
    /// Behind this object; `None`: before the first one.
    Object(Option<LockName>),
    /// Behind this request; `None`: before the first one.
    Request(Option<RequestKey>),
    /// At the end.
    End,
}

impl Default for WalkPlace {
    fn default() -> WalkPlace {
        WalkPlace::Object(None)
    }
}

/// Some entries of a table, as they are now.
#[derive(Default)]
pub(crate) struct CopiedEntries {
    /// Objects; `None`: the object is closed.
    pub(crate) objects: Vec<(LockName, Option<Content>)>,
    pub(crate) holds: Vec<(ProcessId, HoldReport)>,
    pub(crate) waits: Vec<(ProcessId, WaitReport)>,
    /// Requests that are over.
    pub(crate) over: Vec<RequestKey>,
    pub(super) bytes: usize,
}

impl CopiedEntries {
    /// The entries of a message.
    pub(crate) fn arrived(
        objects: Vec<(LockName, Option<Content>)>,
        holds: Vec<(ProcessId, HoldReport)>,
        waits: Vec<(ProcessId, WaitReport)>,
        over: Vec<RequestKey>,
    ) -> CopiedEntries {
        CopiedEntries { objects, holds, waits, over, bytes: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.objects.len() + self.holds.len() + self.waits.len() + self.over.len()
    }

    /// Returns whether there are `most` entries, or they have `most_bytes` bytes.
    pub(super) fn is_full(&self, (most, most_bytes): (usize, usize)) -> bool {
        self.len() >= most || self.bytes >= most_bytes
    }

    pub(super) fn add_object(&mut self, name: LockName, content: Option<Content>) {
        let weight = content.as_ref().map(|content| content.weight(&name));
        self.bytes += weight.unwrap_or(name.as_bytes().len());
        self.objects.push((name, content));
    }

    pub(super) fn add(&mut self, (process, request): RequestKey, one: &TableRequest, now: Time) {
        let lock = one.entry.clone();
        self.bytes += lock.entry_weight();
        match one.state {
            TableRequestState::Holds { token, since } => {
                let held_for = now.since(since);
                self.holds.push((process, HoldReport { request, lock, token, held_for }));
            }
            TableRequestState::Waits { ticket, .. } => {
                let ticket = Some(ticket);
                self.waits.push((process, WaitReport { request, lock, ticket }));
            }
        }
    }
}

impl CopyWalk {
    pub(super) fn is_behind(&self, key: RequestKey) -> bool {
        match &self.place {
            WalkPlace::Object(_) => false,
            WalkPlace::Request(last) => last.is_some_and(|last| key <= last),
            WalkPlace::End => true,
        }
    }

    pub(super) fn is_object_behind(&self, name: &LockName) -> bool {
        match &self.place {
            WalkPlace::Object(last) => last.as_ref().is_some_and(|last| name <= last),
            WalkPlace::Request(_) | WalkPlace::End => true,
        }
    }
}

/// A hash of a request with its token or ticket.
pub(super) fn hash_of((process, request): RequestKey, one: &TableRequest) -> u64 {
    let state = match one.state {
        TableRequestState::Holds { token, .. } => mix(token.get()) ^ 1,
        TableRequestState::Waits { ticket: Ticket { epoch, number }, .. } => {
            mix(epoch.0.get() ^ mix(number)) ^ 2
        }
    };
    let of = mix((process.0 >> 64) as u64) ^ process.0 as u64;
    mix(mix(of) ^ mix(request.0 ^ mix(state)))
}

/// Spreads a number over 64 bits.
fn mix(number: u64) -> u64 {
    let number = number.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let number = (number ^ number >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ number >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ number >> 31
}
