//! The holds that have to end before a request is granted.

use super::holders::MAX_SEARCHED;
use super::questions::BLOCKING;
use super::*;
use crate::protocol::message::Blocked;

/// The most earlier requests of a queue whose other names are examined.
const EARLIER: usize = 16;

/// A hold for which a request waits.
pub(crate) struct TableBlocker {
    /// The request that holds.
    pub(crate) key: RequestKey,
    /// The owner of the request.
    pub(crate) owner: OwnerId,
    /// The token with which the request holds the name.
    pub(crate) token: Token,
    /// The certainty of the edge from the waiting request to the hold.
    pub(crate) edge: Edge,
    pub(super) name: Option<LockName>,
}

/// The edge from a waiting request to a hold.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Edge {
    /// The request may be granted while the hold stays as it is.
    Possible,
    /// The request cannot be granted before an earlier request that waits for the hold. The earlier
    /// one may have ended at its member already.
    Behind,
    /// The request cannot be granted while the hold stays as it is.
    Sure,
}

/// The blockers of a request, while they are collected.
#[derive(Default)]
pub(crate) struct TableBlockers {
    pub(crate) all: Vec<TableBlocker>,
    /// Whether there may be more blockers than listed.
    pub(crate) more: bool,
    /// The earlier requests that have to end before the request is granted.
    pub(crate) earlier: BTreeSet<(RequestKey, OwnerId)>,
    known: BTreeSet<RequestKey>,
}

impl Table {
    /// The holds for which a request waits: a hold of several names counts once. `None`: no such
    /// request waits.
    pub(crate) fn blockers(&self, of: &Blocked) -> Option<TableBlockers> {
        let mut found = TableBlockers::default();
        match of {
            Blocked::Name(name) => {
                self.add_suspension(None, &mut found);
                self.add_holders(name, Edge::Sure, &mut found);
            }
            Blocked::Suspension => {
                self.add_suspension(None, &mut found);
                self.add_all_but(None, Edge::Sure, &mut found);
            }
            Blocked::Request(process, request) => {
                let key = (*process, *request);
                let TableRequest { entry, state: TableRequestState::Waits { ticket, .. } } =
                    self.get(key)?
                else {
                    return None;
                };
                let rank = (*ticket, key);
                self.add_suspension(Some((rank, entry.owner)), &mut found);
                if entry.want == Want::Suspension {
                    self.add_all_but(Some((key.0, entry.owner)), Edge::Sure, &mut found);
                } else {
                    self.add_blockers_of_names(rank, &entry.want, &mut found);
                }
            }
        }
        Some(found)
    }

    /// Adds the holds of the names for which a request waits, and those for which earlier requests
    /// for these names wait.
    fn add_blockers_of_names(&self, rank: QueueRank, want: &Want, found: &mut TableBlockers) {
        // A request that passes a suspension may be placed before others at any time.
        let is_in_order = self.suspended.is_none() && self.suspensions.is_empty();
        for name in want.names().iter().take(MAX_SEARCHED) {
            let has_permits = matches!(self.held.get(name), Some(Occupancy::Permits(_)));
            let fits = self.fits(name, want);
            let queue = self.queues.get(name);
            let earlier = queue.into_iter().flat_map(|queue| queue.range(..rank)).take(EARLIER);
            let earlier: Vec<_> =
                earlier.filter_map(|(_, key)| Some((*key, &self.get(*key)?.entry))).collect();
            let head = earlier.first().filter(|(_, head)| !self.fits(name, &head.want));
            if !fits || head.is_some() {
                let edge = match (has_permits, fits) {
                    (false, false) => Edge::Sure,
                    (false, true) if is_in_order => Edge::Behind,
                    _ => Edge::Possible,
                };
                self.add_holders(name, edge, found);
                if edge == Edge::Behind {
                    found.earlier.extend(head.map(|(key, head)| (*key, head.owner)));
                }
            }
            // A batch is granted only when all of its names are free.
            for (key, batch) in &earlier {
                let Want::Batch(_) = batch.want else { continue };
                let edge = if is_in_order { Edge::Behind } else { Edge::Possible };
                for name in batch.want.names().iter().take(MAX_SEARCHED) {
                    self.add_holders(name, edge, found);
                }
                if is_in_order {
                    found.earlier.insert((*key, batch.owner));
                }
            }
        }
        if let Some((_, key)) = self.suspensions.first().filter(|first| **first < rank)
            && let Some(other) = self.get(*key)
        {
            self.add_all_but(Some((key.0, other.entry.owner)), Edge::Possible, found);
        }
    }

    /// Adds the held suspension, if it blocks the request.
    fn add_suspension(&self, of: Option<(QueueRank, OwnerId)>, found: &mut TableBlockers) {
        let Some((token, key)) = self.suspended else { return };
        let is_in_way = of.is_none_or(|((ticket, waits), owner)| {
            ticket >= Ticket::in_front(token, POSITION) && !self.is_of(key, waits.0, owner)
        });
        if is_in_way {
            self.add(key, None, Edge::Sure, found);
        }
    }

    /// Adds all holds except those of an owner, for a suspension.
    fn add_all_but(
        &self,
        owner: Option<(ProcessId, OwnerId)>,
        edge: Edge,
        found: &mut TableBlockers,
    ) {
        let mut left = MAX_SEARCHED;
        for (name, used) in self.held.iter() {
            for key in self.holders(name, used) {
                if left == 0 || found.all.len() >= BLOCKING {
                    found.more = true;
                    return;
                }
                left -= 1;
                if owner.is_none_or(|(process, owner)| !self.is_of(key, process, owner)) {
                    self.add(key, Some(name), edge, found);
                }
            }
        }
    }

    fn add_holders(&self, name: &LockName, edge: Edge, found: &mut TableBlockers) {
        for key in self.holders_of(name) {
            if found.all.len() >= BLOCKING {
                found.more = true;
                return;
            }
            self.add(key, Some(name), edge, found);
        }
    }

    fn add(&self, key: RequestKey, name: Option<&LockName>, edge: Edge, found: &mut TableBlockers) {
        touch();
        let Some(owner) = self.get(key).map(|request| request.entry.owner) else { return };
        let Some(token) = self.token_of(key, name) else { return };
        if found.known.insert(key) {
            let name = name.cloned();
            found.all.push(TableBlocker { key, owner, token, edge, name });
        } else if let Some(known) = found.all.iter_mut().find(|known| known.key == key) {
            known.edge = known.edge.max(edge);
        }
    }
}
