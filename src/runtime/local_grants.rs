//! `LocalGrants`: free locks that a member takes of itself, and releases, without a turn of the
//! engine.
//!
//! Most locks are free, are of a service that the member grants itself, and are released before any
//! other request comes. The core's answer for such a lock is known beforehand: [`Node::offer`] says
//! that it would grant, and with which tokens. So threads that want different names rarely wait for
//! each other: each reads the core beside the others. Its local grant is kept here, in a shard by
//! its name.
//!
//! **Before anything happens to the core** it absorbs all local grants (`EngineState::absorb`),
//! under the engine's lock for writing. No reader has that lock. So the core never acts without
//! knowing the local grants, and there are few: a hold that lasts long is the core's, like all
//! others.
//!
//! A thread that takes or releases a lock has the shard of its name, and takes the token there. So
//! tokens of one name rise in the order of its holders.

use super::hold_cell::HoldCell;
use super::sync::{AtomicU64, Mutex, MutexGuard, SequenceHasher, ThreadMutant, is_planted};
use crate::protocol::message::TokenRange;
use crate::protocol::{LocalGrant, LockName, OwnerId, ServiceName, Time, Token};
use crossbeam_utils::CachePadded;
#[cfg(elderlock_shuttle)]
use foldhash::fast::FixedState as Seeds;
#[cfg(not(elderlock_shuttle))]
use foldhash::fast::RandomState as Seeds;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

#[cfg(doc)]
use crate::protocol::Node;

/// Threads that want different names rarely meet in one of so many shards.
#[cfg(not(elderlock_shuttle))]
const SHARDS: usize = 64;
/// Each lock is one more point at which shuttle chooses.
#[cfg(elderlock_shuttle)]
const SHARDS: usize = 2;

/// Cells kept in each shard for holds that come next.
const SPARE: usize = 8;

/// Locks of one shard. A request for one more takes a turn, which empties all. So no turn has to
/// absorb many thousands, and they count for little beside the requests that a member may have.
const ROOM: usize = 16;

/// Room that an empty shard keeps.
const KEPT: usize = 7;

/// Locks of one service.
pub(crate) struct LocalGrants {
    pub(crate) service: ServiceName,
    /// The hasher; under shuttle it is the same in each run.
    hasher: Seeds,
    /// A bit for each shard that was used since the core has heard of it. Read by all and rarely
    /// written.
    used: CachePadded<AtomicU64>,
    /// Tokens that were used since the core has heard of it.
    spent: CachePadded<AtomicU64>,
    shards: [CachePadded<Mutex<Shard>>; SHARDS],
}

#[derive(Default)]
struct Shard {
    held: HashMap<HashedName, LocalHold, BuildHasherDefault<SequenceHasher>>,
    spare: Vec<Arc<HoldCell>>,
}

/// A name, with its hash.
#[derive(PartialEq, Eq)]
struct HashedName {
    hash: u64,
    name: LockName,
}

impl Hash for HashedName {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

struct LocalHold {
    cell: Arc<HoldCell>,
    owner: OwnerId,
    since: Time,
}

/// The local grants of one service, taken out for the core.
pub(super) struct Drained {
    /// Tokens that were used.
    pub(super) spent: u64,
    /// The present holds, in the order of the tokens.
    pub(super) held: Vec<(LocalGrant, Arc<HoldCell>)>,
}

impl LocalGrants {
    pub(super) fn new(service: ServiceName) -> Self {
        LocalGrants {
            service,
            hasher: Seeds::default(),
            used: CachePadded::new(AtomicU64::new(0)),
            spent: CachePadded::new(AtomicU64::new(0)),
            shards: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// Takes a lock that has no local grant, with one of the tokens that the core has offered for
    /// it. Returns its cell, as `cell` makes it of one that was used before. Also returns whether
    /// this is the first local grant of the service since the core absorbed the last one.
    pub(super) fn take(
        &self,
        (name, owner, since): (&LockName, OwnerId, Time),
        offer: TokenRange,
        cell: impl FnOnce(Option<Arc<HoldCell>>, Token) -> Arc<HoldCell>,
    ) -> Option<(Arc<HoldCell>, bool)> {
        let spend = || self.spent.fetch_add(1, Ordering::Relaxed);
        let early = is_planted(ThreadMutant::TokenFirst).then(spend);
        let (index, spot) = self.spot(name);
        let mut shard = self.shard(index);
        let Shard { held, spare } = &mut *shard;
        if held.len() >= ROOM {
            return None;
        }
        let Entry::Vacant(free) = held.entry(spot) else { return None };
        let token = offer.nth(early.unwrap_or_else(spend))?;
        let cell = cell(spare.pop(), token);
        free.insert(LocalHold { cell: cell.clone(), owner, since });
        let bit = 1_u64 << index;
        // The shard's lock is held, and no bit is taken away while any thread looks at the core.
        let is_first = self.used.load(Ordering::Relaxed) & bit == 0
            && self.used.fetch_or(bit, Ordering::Relaxed) == 0;
        Some((cell, is_first))
    }

    /// Releases a lock that was taken here.
    pub(super) fn release(&self, name: &LockName, cell: &Arc<HoldCell>) {
        let (index, spot) = self.spot(name);
        let mut shard = self.shard(index);
        let hold = shard.held.remove(&spot).filter(|hold| Arc::ptr_eq(&hold.cell, cell));
        debug_assert!(hold.is_some(), "it was taken here");
        if shard.spare.len() < SPARE {
            shard.spare.extend(hold.map(|hold| hold.cell));
        }
    }

    /// Empties it. To be called while no thread looks at the core.
    pub(super) fn empty(&self) -> Drained {
        let mut used = self.used.swap(0, Ordering::Relaxed);
        let spent = self.spent.swap(0, Ordering::Relaxed);
        let mut all = Vec::new();
        while used != 0 {
            let index = used.trailing_zeros() as usize;
            used &= used - 1;
            let mut shard = self.shard(index);
            all.extend(shard.held.drain().map(
                |(HashedName { name, .. }, LocalHold { cell, owner, since })| {
                    (LocalGrant { name, owner, token: cell.token(), since }, cell)
                },
            ));
            if shard.held.capacity() > KEPT {
                shard.held.shrink_to(KEPT);
            }
        }
        all.sort_unstable_by_key(|(taken, _)| taken.token);
        Drained { spent, held: all }
    }

    fn spot(&self, name: &LockName) -> (usize, HashedName) {
        let hash = self.hasher.hash_one(name);
        // The map places it by other bits.
        ((hash >> 32) as usize % SHARDS, HashedName { hash, name: name.clone() })
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether nothing is kept here of which the core has not heard.
    #[cfg(all(test, elderlock_shuttle))]
    pub(super) fn is_empty(&self) -> bool {
        (0..SHARDS).all(|index| self.shard(index).held.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::hold_cell::MemberLease;
    use super::super::member_clock::MemberClock;
    use super::*;
    use crate::protocol::Slot;

    fn take(
        local_grants: &LocalGrants,
        offer: TokenRange,
        name: u32,
    ) -> Option<(Arc<HoldCell>, bool)> {
        let name = LockName::new(&name.to_le_bytes()).unwrap();
        let lease = Arc::new(MemberLease::new(Time::MAX, MemberClock::machine()));
        let cell = |spare, token| HoldCell::in_place_of(spare, None, token, Time::MAX, &lease);
        local_grants.take((&name, OwnerId::default(), Time::ZERO), offer, cell)
    }

    #[test]
    fn it_holds_no_more_than_one_turn_can_take_in_and_gives_all_of_it_in_the_order_of_tokens() {
        let local_grants = LocalGrants::new(ServiceName::new("inventory").unwrap());
        let offer =
            TokenRange { first: Token::new(Slot(1), 1), last: Token::new(Slot(1), 100_000) };
        let taken = (0..100_000).filter_map(|name| take(&local_grants, offer, name)).count();
        assert_eq!(taken, SHARDS * ROOM, "every shard is full");
        let Drained { spent, held } = local_grants.empty();
        assert_eq!((spent, held.len()), (taken as u64, taken));
        assert!(held.is_sorted_by_key(|(taken, _)| taken.token));
        assert!(
            take(&local_grants, offer, 0).is_some_and(|(_, is_first)| is_first),
            "there is room again"
        );
    }

    #[test]
    fn a_thread_that_finds_no_token_is_granted_nothing() {
        let local_grants = LocalGrants::new(ServiceName::new("inventory").unwrap());
        let token = Token::new(Slot(1), 1);
        let offer = TokenRange { first: token, last: token };
        assert!(take(&local_grants, offer, 0).is_some());
        assert!(take(&local_grants, offer, 0).is_none(), "a member has it");
        assert!(take(&local_grants, offer, 1).is_none());
        assert_eq!(local_grants.empty().held.len(), 1);
    }
}
