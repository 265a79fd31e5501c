//! A table's answers to queries: the holders of a name, its waiters, and the position of a request.
//! Nothing else walks through a queue.

use super::*;
use crate::protocol::event::LockStatus;
use crate::protocol::message::{
    BlockingHold, HolderInfo, LockRequest, Query, QueryReply, WaiterInfo,
};

/// The most holds in the list of the blockers of one request.
pub(super) const BLOCKING: usize = 64;

/// The most names with waiters, or open objects, that are checked for being counted twice.
#[cfg(any(feature = "tokio", test))]
const MAX_CHECKED_NAMES: usize = 1 << 10;

impl Table {
    /// Answers a query.
    pub(crate) fn answer(&self, from: ProcessId, at: &Query, now: Time) -> QueryReply {
        match at {
            Query::Lock(name) => {
                let used = self.held.get(name);
                let holders = self.holders_of(name).take(self.bounds.listed);
                let holders: Vec<_> =
                    holders.filter_map(|key| self.info(Some(name), key, now)).collect();
                let more_holders = (used.map_or(0, Occupancy::len) - holders.len()) as u64;
                let object = self.objects.get(name);
                let ranks = self.in_line(name, Bound::Unbounded);
                let all = self.suspensions.len() + self.queues.get(name).map_or(0, BTreeSet::len);
                let (waiters, more) = self.seen_waiters(ranks.iter(), all);
                let content = object.map(|object| object.content.clone());
                let opener_count = object.map_or(0, |object| object.openers.len()) as u64;
                let permits =
                    if let Some(Occupancy::Permits(permitted)) = used { permitted.sum } else { 0 };
                QueryReply::Lock {
                    holders,
                    more_holders,
                    permits,
                    content,
                    opener_count,
                    waiters,
                    more,
                }
            }
            Query::Suspension => {
                let holders = self
                    .suspended
                    .and_then(|(_, key)| self.info(None, key, now))
                    .into_iter()
                    .collect();
                let (waiters, more) =
                    self.seen_waiters(self.suspensions.iter(), self.suspensions.len());
                QueryReply::Lock {
                    holders,
                    more_holders: 0,
                    permits: 0,
                    content: None,
                    opener_count: 0,
                    waiters,
                    more,
                }
            }
            Query::Position(request) => self.seen_position((from, *request)),
            Query::Blockers(of) => {
                let Some(found) = self.blockers(of) else { return QueryReply::Unknown };
                let holds = found.all.iter().filter_map(|blocker| {
                    let holder = self.info(blocker.name.as_ref(), blocker.key, now)?;
                    Some(BlockingHold { holder, is_sure: blocker.edge != Edge::Possible })
                });
                QueryReply::Blockers { holds: holds.collect(), more: found.more }
            }
            // A grantor exists: this one.
            Query::Service => QueryReply::Service(true),
            Query::Held(after) => {
                let after = after.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
                let mut rest = self.held.range::<LockName, _>((after, Bound::Unbounded)).peekable();
                let mut holders = Vec::new();
                // A name is listed whole or not at all, since the next query continues after the
                // last name. The exception is a name with more holders than one answer lists.
                while let Some((name, used)) = rest.next_if(|(_, used)| {
                    holders.is_empty() || holders.len() + used.len() <= self.bounds.listed
                }) {
                    let listed = self.holders(name, used).take(self.bounds.listed);
                    holders.extend(listed.filter_map(|key| self.info(Some(name), key, now)));
                }
                QueryReply::Held { holders, last: rest.next().is_none() }
            }
            Query::Waiting(name, after) => {
                let after = after.map_or(Bound::Unbounded, |(ticket, process, request)| {
                    Bound::Excluded((ticket, (process, request)))
                });
                let ranks: Vec<QueueRank> =
                    self.in_line(name, after).into_iter().take(self.bounds.listed + 1).collect();
                let listed = &ranks[..ranks.len().min(self.bounds.listed)];
                let last = listed.last().filter(|_| ranks.len() > self.bounds.listed);
                QueryReply::Waiting {
                    waiters: listed.iter().filter_map(|rank| self.waiter(rank)).collect(),
                    last: last.map(|(ticket, (process, request))| (*ticket, *process, *request)),
                }
            }
        }
    }

    /// The list for the status: the suspension, then the names in their order. It begins `after` a
    /// place in the list, and has at most `most` entries. Also returns whether the list ends there.
    pub(crate) fn status(
        &self,
        now: Time,
        after: Option<Option<&LockName>>,
        most: usize,
    ) -> (Vec<LockStatus>, bool) {
        let waited = |rank: Option<&QueueRank>| match self.get(rank?.1)?.state {
            TableRequestState::Waits { since, .. } => Some(since.waited(now)),
            TableRequestState::Holds { .. } => None,
        };
        let is_wanted =
            after.is_none() && (self.suspended.is_some() || !self.suspensions.is_empty());
        let suspension = is_wanted.then(|| LockStatus {
            name: None,
            holder: self.suspended.and_then(|(_, key)| self.info(None, key, now)),
            holder_count: usize::from(self.suspended.is_some()),
            opener_count: 0,
            waiter_count: self.suspensions.len(),
            next: self.suspensions.first().and_then(|rank| self.waiter(rank)),
            next_waits: waited(self.suspensions.first()),
        });
        let after = after.flatten().map_or(Bound::Unbounded, Bound::Excluded);
        let range = (after, Bound::<&LockName>::Unbounded);
        // One entry more than asked for, to know whether it exists.
        let few = most.saturating_add(1);
        let held = self.held.range::<LockName, _>(range).take(few).map(|(name, _)| name);
        let queues = self.queues.range::<LockName, _>(range).take(few).map(|(name, _)| name);
        let objects = self.objects.range::<LockName, _>(range).take(few).map(|(name, _)| name);
        let names: BTreeSet<&LockName> =
            held.chain(queues).chain(objects).inspect(|_| touch()).collect();
        let left = most.saturating_sub(usize::from(suspension.is_some()));
        let is_end = names.len() <= left && (most > 0 || suspension.is_none());
        let first = |name| self.holders_of(name).next();
        let locks = names.into_iter().take(left).map(|name| LockStatus {
            name: Some(name.clone()),
            holder: first(name).and_then(|key| self.info(Some(name), key, now)),
            holder_count: self.held.get(name).map_or(0, Occupancy::len),
            opener_count: self.objects.get(name).map_or(0, |object| object.openers.len()),
            waiter_count: self.queues.get(name).map_or(0, BTreeSet::len),
            next: self.head(name).and_then(|rank| self.waiter(&rank)),
            next_waits: waited(self.head(name).as_ref()),
        });
        (suspension.into_iter().take(most).chain(locks).collect(), is_end)
    }

    /// The length of the list of [`status`](Table::status). If very many names have waiters or are
    /// open, those that are also held may be counted twice.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn listed(&self) -> usize {
        let of_queues = self
            .queues
            .keys()
            .take(MAX_CHECKED_NAMES)
            .inspect(|_| touch())
            .filter(|name| self.held.contains_key(name));
        let is_known =
            |name: &&LockName| self.held.contains_key(name) || self.queues.contains_key(*name);
        let objects = self.objects.keys().take(MAX_CHECKED_NAMES);
        let of_objects = objects.inspect(|_| touch()).filter(is_known);
        let twice = of_queues.count() + of_objects.count();
        let suspension = usize::from(self.suspended.is_some() || !self.suspensions.is_empty());
        suspension + self.held.len() + self.queues.len() + self.objects.len() - twice
    }

    pub(super) fn info(
        &self,
        name: Option<&LockName>,
        key: RequestKey,
        now: Time,
    ) -> Option<HolderInfo> {
        let TableRequest { entry, state: TableRequestState::Holds { since, .. } } =
            self.get(key)?
        else {
            return None;
        };
        Some(HolderInfo {
            name: name.cloned(),
            process: key.0,
            request: key.1,
            owner: entry.owner.0,
            token: self.token_of(key, name)?,
            mode: entry.want.mode(),
            revocable: entry.revocable,
            metadata: entry.metadata.clone(),
            held_for: now.since(*since),
        })
    }

    fn waiter(&self, &(_, key): &QueueRank) -> Option<WaiterInfo> {
        let LockRequest { want, owner, metadata, .. } = &self.get(key)?.entry;
        Some(WaiterInfo {
            process: key.0,
            owner: owner.0,
            mode: want.mode(),
            metadata: metadata.clone(),
            request: Some(key.1),
        })
    }

    /// The first requests that a new request for the name waits behind: at most one more
    /// than an answer lists. A suspension is in no queue, but goes before every new request.
    fn in_line(&self, name: &LockName, after: Bound<QueueRank>) -> BTreeSet<QueueRank> {
        let queue = self
            .queues
            .get(name)
            .into_iter()
            .flat_map(|queue| queue.range((after, Bound::Unbounded)));
        let suspensions = self.suspensions.range((after, Bound::Unbounded));
        suspensions
            .take(self.bounds.listed + 1)
            .chain(queue.take(self.bounds.listed + 1))
            .copied()
            .collect()
    }

    fn seen_waiters<'a>(
        &self,
        ranks: impl Iterator<Item = &'a QueueRank>,
        all: usize,
    ) -> (Vec<WaiterInfo>, u64) {
        let waiters: Vec<WaiterInfo> =
            ranks.take(self.bounds.listed).filter_map(|rank| self.waiter(rank)).collect();
        let more = (all - waiters.len()) as u64;
        (waiters, more)
    }

    fn seen_position(&self, key: RequestKey) -> QueryReply {
        let Some(TableRequest { entry, state: TableRequestState::Waits { ticket, .. } }) =
            self.get(key)
        else {
            return QueryReply::Unknown;
        };
        let (rank, names) = ((*ticket, key), entry.want.names());
        let mut budget = self.bounds.counted;
        let suspensions = count(self.suspensions.range(..rank), &mut budget);
        let suspended = self
            .suspended
            .filter(|(token, _)| *ticket >= Ticket::in_front(*token, POSITION))
            .map(|(_, key)| key);
        let suspender = suspended.or(self
            .suspensions
            .first()
            .filter(|first| **first < rank)
            .map(|(_, key)| *key));
        let suspension = suspender.and_then(|key| self.waiter(&(*ticket, key)));
        let (others, holds) = if entry.want == Want::Suspension {
            // A batch is in many queues, and counts in the one of its first name.
            let counts = |name: &LockName, key| {
                self.get(key).is_some_and(|other| other.entry.want.names()[0] == *name)
            };
            let mut others = 0;
            for (name, queue) in &self.queues {
                // Each queue costs one look, even an empty one.
                budget = budget.saturating_sub(1);
                if budget == 0 {
                    break;
                }
                let (mut seen, most) = (0, budget);
                let before = queue.range(..rank).take(most).inspect(|_| {
                    touch();
                    seen += 1;
                });
                others += before.filter(|(_, key)| counts(name, *key)).count();
                budget -= seen;
            }
            let own =
                self.suspended.is_some_and(|(_, other)| self.is_of(other, key.0, entry.owner));
            (others, self.holds - self.holds_of(key.0, entry.owner) + usize::from(own))
        } else {
            let queues = names.iter().filter_map(|name| self.queues.get(name));
            let missed = names.iter().filter(|name| !self.fits(name, &entry.want));
            let all = missed.flat_map(|name| self.holders_of(name)).inspect(|_| touch());
            let mut holders: BTreeSet<RequestKey> = all.take(self.bounds.counted).collect();
            holders.extend(suspended);
            let before = queues.map(|queue| count(queue.range(..rank), &mut budget)).max();
            (before.unwrap_or_default(), holders.len())
        };
        QueryReply::Position {
            before: (suspensions + others) as u64,
            holds: holds as u64,
            suspension,
        }
    }
}

/// The number of ranks, as far as the budget allows.
fn count<'a>(ranks: impl Iterator<Item = &'a QueueRank>, budget: &mut usize) -> usize {
    let count = ranks.take(*budget).inspect(|_| touch()).count();
    *budget -= count;
    count
}
