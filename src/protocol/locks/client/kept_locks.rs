//! Kept locks: a member that locks the same name again and again keeps the lock after its release.
//! It grants the lock to itself until another member asks for it. docs/protocol/kept-locks.md has
//! the messages and the deaths.
//!
//! - At its grantor a kept lock is the hold of the request that was granted, its *place*.
//! - `exclusive_by_lease`: a keep ends before its lock may be granted elsewhere. Either the keep is
//!   released (`Release` of its place), or the requests that use it take its place (`KeepInUse`).
//!   They are ordinary holds from then on.
//! - A kept share has any number of users at once, up to [`MAX_USERS`]. A kept lock has one.
//! - A keep ends with the epoch of its grantor: a report has the requests that hold, and no free
//!   keep.

use crate::protocol::id::{LockName, OwnerId, RequestId, Token};
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// The first version of the wire in which a member can keep a lock.
const VERSION: u16 = 13;
/// How many names of a service a member remembers for each lock that it may keep.
const REMEMBERED: u32 = 4;
/// The parts of `idle`: names that are due in the same part are checked together.
const LOOKS_IN_IDLE: u32 = 4;
/// The number of tokens that a member asks for first, and after it has used up such a range.
const RANGES: [u32; 2] = [1 << 6, 1 << 12];
/// The least number of locks that a keep grants before a recall, if the name is kept again after
/// it.
const WORTHWHILE_USES: u32 = 4;
/// The part of `idle` for which such a keep lasts at least. A member in a loop takes many locks
/// before a recall arrives, also of a name that another member wants as often.
const WORTHWHILE_TIME: u32 = 16;
/// The most requests that use a kept share at once: one message lists all of them.
pub(crate) const MAX_USERS: usize = 1 << 6;

/// A name of a service. The number is that of the service among the client's services.
pub(super) type KeepKey = (u32, LockName);

/// The kept locks of a member.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct KeptLocks {
    pub(super) names: BTreeMap<KeepKey, KeptName>,
    /// The names by the places of their keeps.
    pub(super) places: BTreeMap<RequestId, KeepKey>,
    /// The names by the requests that use their keeps.
    pub(super) users: BTreeMap<RequestId, KeepKey>,
    /// Stand-ins, each with the place it replaces.
    stand_ins: BTreeMap<RequestId, RequestId>,
    /// Stand-ins by the place that they replace.
    stand_ins_by_place: BTreeSet<(RequestId, RequestId)>,
    /// The number of names and of kept locks of each service.
    counts: BTreeMap<u32, KeepCount>,
    /// Next look at each name; may be earlier than needed.
    pub(super) agenda: BTreeSet<(Time, KeepKey)>,
    #[cfg(elderlock_mutants)]
    pub(crate) mutant: Option<crate::protocol::mutant::ProtocolMutant>,
}

/// How many names of a service are remembered, and how many of their locks are kept.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct KeepCount {
    names: u32,
    locks: u32,
}

/// A name that the member has locked lately.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct KeptName {
    /// The time until which the name is remembered.
    pub(super) until: Time,
    /// The time of the next look at the name.
    pub(super) next_look: Time,
    /// Whether another member has wanted the lock too soon: it is not kept again while the name is
    /// remembered.
    pub(super) is_recalled: bool,
    /// The number of tokens to ask for.
    pub(super) range_size: u32,
    pub(super) lock: Option<KeptLock>,
}

/// A kept lock, or a kept share of one.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct KeptLock {
    /// The place, and its owner.
    pub(super) place: RequestId,
    pub(super) owner: OwnerId,
    pub(super) is_share: bool,
    /// The requests that use the lock; without any it is free.
    pub(super) users: KeepUsers,
    /// The next token of the range, and the number of remaining tokens.
    pub(super) next: Token,
    pub(super) left: u32,
    /// The number of remaining tokens at first, and the time at which the lock was granted.
    pub(super) granted: u32,
    pub(super) since: Time,
    /// The time since which the lock is free, and the last request that used it.
    pub(super) free_since: Time,
    pub(super) last_user: RequestId,
}

/// The requests that use a kept lock. The first one takes no memory of its own.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct KeepUsers {
    first: Option<RequestId>,
    /// The other requests.
    others: BTreeSet<RequestId>,
}

impl KeepUsers {
    pub(super) fn is_empty(&self) -> bool {
        self.first.is_none()
    }

    fn len(&self) -> usize {
        usize::from(self.first.is_some()) + self.others.len()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = RequestId> {
        self.first.into_iter().chain(self.others.iter().copied())
    }

    pub(super) fn insert(&mut self, request: RequestId) {
        if self.first.is_some() {
            self.others.insert(request);
        } else {
            self.first = Some(request);
        }
    }

    fn remove(&mut self, request: RequestId) {
        if self.first == Some(request) {
            self.first = self.others.pop_first();
        } else {
            self.others.remove(&request);
        }
    }
}

/// The local grants of a kept lock: see [`Node::absorb_kept`](crate::protocol::Node::absorb_kept).
#[derive(Debug)]
pub struct KeptUse {
    /// The name of the lock.
    pub name: LockName,
    /// The number of used tokens of the offer.
    pub spent: u32,
    /// The time at which the lock was taken last.
    pub since: Time,
}

/// Returns whether all members of the view understand keeps.
pub(crate) fn speaks_of_keeping(cx: &StepContext) -> bool {
    cx.view.is_some_and(|view| view.version >= VERSION)
}

impl KeptLocks {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// The kept locks of a service; `None`: of all services.
    pub(super) fn kept_of(&self, service: Option<u32>) -> Vec<KeepKey> {
        let is_meant = |key: &&KeepKey| service.is_none_or(|number| number == key.0);
        self.places.values().inspect(|_| touch()).filter(is_meant).cloned().collect()
    }

    pub(super) fn lock(&self, key: &KeepKey) -> Option<&KeptLock> {
        self.names.get(key)?.lock.as_ref()
    }

    /// Notes that a request holds in place of another, whose keep has ended.
    pub(super) fn add_stand_in(&mut self, user: RequestId, place: RequestId) {
        self.stand_ins.insert(user, place);
        self.stand_ins_by_place.insert((place, user));
    }

    pub(super) fn forget_stand_in(&mut self, user: RequestId) {
        if let Some(place) = self.stand_ins.remove(&user) {
            self.stand_ins_by_place.remove(&(place, user));
        }
    }

    /// The request in whose place a stand-in holds.
    pub(super) fn place_of(&self, user: RequestId) -> Option<RequestId> {
        self.stand_ins.get(&user).copied()
    }

    /// The stand-ins of a request.
    pub(super) fn stand_ins_of(&self, place: RequestId) -> impl Iterator<Item = RequestId> {
        let range = (place, RequestId(0))..=(place, RequestId(u64::MAX));
        self.stand_ins_by_place.range(range).map(|(_, user)| *user)
    }

    /// All stand-ins, each after its place, in the order of the places.
    pub(super) fn stand_ins(&self) -> impl Iterator<Item = (RequestId, RequestId)> {
        self.stand_ins_by_place.iter().copied()
    }

    /// The number of kept locks of a service.
    pub(super) fn locks_of(&self, service: u32) -> u32 {
        self.counts.get(&service).map_or(0, |count| count.locks)
    }

    /// Keeps a lock of a remembered name from now on, in use by this request.
    pub(super) fn add(&mut self, key: &KeepKey, lock: KeptLock) {
        let Some(known) = self.names.get_mut(key) else { return };
        self.places.insert(lock.place, key.clone());
        self.users.extend(lock.users.iter().map(|user| (user, key.clone())));
        self.counts.entry(key.0).or_default().locks += 1;
        known.lock = Some(lock);
    }

    /// Ends the keep of a name.
    pub(super) fn remove(&mut self, key: &KeepKey) -> Option<KeptLock> {
        let lock = self.names.get_mut(key)?.lock.take()?;
        self.places.remove(&lock.place);
        if let Some(count) = self.counts.get_mut(&key.0) {
            count.locks -= 1;
        }
        for user in lock.users.iter() {
            self.users.remove(&user);
        }
        Some(lock)
    }

    /// Forgets a name whose lock is not kept.
    pub(super) fn forget_name(&mut self, key: &KeepKey) {
        if self.names.remove(key).is_none() {
            return;
        }
        if let Some(count) = self.counts.get_mut(&key.0) {
            count.names -= 1;
            if count.names == 0 {
                self.counts.remove(&key.0);
            }
        }
    }

    /// Forgets a service that is no longer used: another one may get its number.
    pub(super) fn forget_service(&mut self, service: u32) {
        self.names.retain(|key, _| key.0 != service);
        self.agenda.retain(|(_, key)| key.0 != service);
        self.counts.remove(&service);
    }

    /// Remembers that this member has locked the name. `most`: the most kept locks of its service.
    /// Returns how many tokens to ask for with the lock: none for the first time.
    pub(super) fn remember(
        &mut self,
        key: &KeepKey,
        (now, idle): (Time, Duration),
        most: u32,
    ) -> u32 {
        if most == 0 {
            return 0;
        }
        let until = now + idle * 8;
        if let Some(known) = self.names.get_mut(key) {
            if known.is_recalled {
                return 0;
            }
            known.until = until;
            return known.range_size;
        }
        let count = self.counts.entry(key.0).or_default();
        if count.names < most.saturating_mul(REMEMBERED) {
            count.names += 1;
            let (next_look, is_recalled, range_size, lock) = (Time::MAX, false, RANGES[0], None);
            let name = KeptName { until, next_look, is_recalled, range_size, lock };
            self.names.insert(key.clone(), name);
            self.look_at(key, until, idle);
        }
        0
    }

    /// Plans a look at the name at that time or sooner, together with others.
    pub(super) fn look_at(&mut self, key: &KeepKey, at: Time, idle: Duration) {
        // Each look is a step, and threads take no local grants during a step.
        let every = (idle / LOOKS_IN_IDLE).as_nanos().max(1) as u64;
        let at = Time::from_nanos(at.as_nanos().div_ceil(every).saturating_mul(every));
        if let Some(known) = self.names.get_mut(key)
            && at < known.next_look
        {
            self.agenda.remove(&(known.next_look, key.clone()));
            self.agenda.insert((at, key.clone()));
            known.next_look = at;
        }
    }

    /// Notes that another member wants the lock of the name. The name is not kept again for a
    /// while, unless its keep has saved more messages than the recall costs.
    pub(super) fn note_recall(&mut self, key: &KeepKey, now: Time, idle: Duration) {
        let Some(known) = self.names.get_mut(key) else { return };
        let is_worthwhile = known.lock.as_ref().is_some_and(|lock| {
            lock.granted - lock.left >= WORTHWHILE_USES
                && now.since(lock.since) >= idle / WORTHWHILE_TIME
        });
        if !is_worthwhile {
            known.is_recalled = true;
            known.until = now + idle * 8;
        }
    }

    /// Takes the names that are due.
    pub(super) fn take_due(&mut self, now: Time, most: u32) -> Vec<KeepKey> {
        let mut due = Vec::new();
        while due.len() < most as usize
            && self.agenda.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.agenda.pop_first()
        {
            touch();
            if let Some(known) = self.names.get_mut(&key) {
                known.next_look = Time::MAX;
            }
            due.push(key);
        }
        due
    }

    /// The next token of a kept lock that is free, or of a kept share, for this request. The
    /// member's lease runs.
    pub(super) fn next_token(
        &mut self,
        key: &KeepKey,
        by: RequestId,
        is_share: bool,
    ) -> Option<Token> {
        let known = self.names.get_mut(key)?;
        let lock = known.lock.as_mut()?;
        let most = if is_share { MAX_USERS } else { 1 };
        let is_it = lock.is_share == is_share || planted!(self.mutant, UseShareAsLock);
        let has_room = lock.users.len() < most || planted!(self.mutant, UseKeepTwice);
        if !is_it || !has_room {
            return None;
        }
        if lock.left == 0 {
            known.range_size = RANGES[1];
            return None;
        }
        let token = lock.next;
        if !planted!(self.mutant, RepeatKeptToken) {
            lock.next = token.plus(1);
        }
        lock.left -= 1;
        lock.users.insert(by);
        lock.last_user = by;
        self.users.insert(by, key.clone());
        Some(token)
    }

    /// Handles the end of a request that uses a kept lock. The lock is free if no other request
    /// uses it. `false`: the request uses none.
    pub(super) fn set_free(&mut self, request: RequestId, now: Time) -> bool {
        let Some(key) = self.users.remove(&request) else { return false };
        let lock = self.names.get_mut(&key).and_then(|known| known.lock.as_mut());
        let Some(lock) = lock else { return false };
        lock.users.remove(request);
        (lock.free_since, lock.last_user) = (now, request);
        true
    }
}
