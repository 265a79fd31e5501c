//! `LocalGrants`: free locks that a member grants itself, and releases, without a turn of the
//! engine.
//!
//! Most locks are free, and are released before any other request for them comes. Many belong to a
//! service that the member grants itself, or are kept by the member. The core's answer for such a
//! lock is known beforehand: [`Node::offer`] says that it would grant, and with which tokens. So
//! threads that want different names rarely wait for each other. Each reads the core beside the
//! others, and notes its local grant here, in the shard of the name. The offer stays in the shard
//! after the release, until the next turn: the next request for the name reads no table of the
//! core.
//!
//! **Before anything happens to the core** it absorbs all local grants (`EngineState::absorb`),
//! under the engine's lock for writing. No reader has that lock. So the core never acts without
//! knowing the local grants, and there are few: a hold that lasts long is the core's, like all
//! others.
//!
//! A thread that takes or releases a lock has the shard of its name, and draws the token there. So
//! tokens of one name rise in the order of its holders.

use super::hold_cell::HoldCell;
use super::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, SequenceHasher, ThreadMutant, is_planted,
};
use crate::protocol::{
    KeptUse, LocalGrant, LocalOffer, LockName, OwnerId, ServiceName, Time, Token,
};
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

/// The number of shards. Threads that want different names rarely meet in one of 64.
#[cfg(not(elderlock_shuttle))]
const SHARDS: usize = 64;
/// Few shards under shuttle: each lock multiplies the schedules.
#[cfg(elderlock_shuttle)]
const SHARDS: usize = 2;

/// Cells that each shard keeps for later holds.
const SPARE: usize = 8;

/// The most names of one shard. A request for a further name takes a turn, which empties all
/// shards. So no turn has to absorb many thousands of names. They are also few beside the requests
/// that a member may have.
const ROOM: usize = 48;

/// The room that an empty shard keeps.
const KEPT: usize = 7;

/// The local grants of one service.
pub(crate) struct LocalGrants {
    pub(crate) service: ServiceName,
    /// The seeds of the hash; under shuttle they are the same in each run.
    hasher: Seeds,
    /// Whether this member keeps locks that another member grants after their release.
    keeps: AtomicBool,
    /// Whether this member asks to become the grantor of the service if it makes most of its
    /// requests.
    follows: AtomicBool,
    /// A bit for each shard that was used since the core last absorbed. All threads read it, and
    /// few write it.
    used: CachePadded<AtomicU64>,
    /// The number of tokens that were used since the core last absorbed.
    spent: CachePadded<AtomicU64>,
    shards: [CachePadded<Mutex<Shard>>; SHARDS],
}

#[derive(Default)]
struct Shard {
    names: HashMap<HashedName, LocalName, BuildHasherDefault<SequenceHasher>>,
    spare: Vec<Arc<HoldCell>>,
}

/// A name that was taken since the last turn.
struct LocalName {
    offer: LocalOffer,
    /// The number of used tokens, if the offer is for this name alone.
    spent: u32,
    /// The time at which the lock was taken last.
    since: Time,
    /// The present hold.
    hold: Option<LocalHold>,
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

pub(super) struct LocalHold {
    pub(super) cell: Arc<HoldCell>,
    pub(super) owner: OwnerId,
}

/// The local grants of one service, taken out for the core.
pub(super) struct Drained {
    /// Used tokens of the whole service.
    pub(super) spent: u64,
    /// The present holds with tokens of the service, in the order of the tokens.
    pub(super) held: Vec<(LocalGrant, Arc<HoldCell>)>,
    /// The uses of kept locks, in the order of their names, and the present holds.
    pub(super) kept: Vec<(KeptUse, Option<LocalHold>)>,
}

impl LocalGrants {
    pub(super) fn new(service: ServiceName) -> Self {
        LocalGrants {
            service,
            hasher: Seeds::default(),
            keeps: AtomicBool::new(false),
            follows: AtomicBool::new(false),
            used: CachePadded::new(AtomicU64::new(0)),
            spent: CachePadded::new(AtomicU64::new(0)),
            shards: std::array::from_fn(|_| CachePadded::default()),
        }
    }

    /// Whether this member keeps locks of the service after their release.
    pub(crate) fn keeps(&self) -> bool {
        self.keeps.load(Ordering::Relaxed)
    }

    /// Sets whether this member keeps locks of the service, for later requests.
    pub(crate) fn set_keeps(&self, keeps: bool) {
        self.keeps.store(keeps, Ordering::Relaxed);
    }

    /// Whether this member follows the load of the service.
    pub(crate) fn follows(&self) -> bool {
        self.follows.load(Ordering::Relaxed)
    }

    /// Sets whether this member follows the load of the service, for later requests.
    pub(crate) fn set_follows(&self, follows: bool) {
        self.follows.store(follows, Ordering::Relaxed);
    }

    /// Takes a lock that has no local grant, with one of the tokens that the core offers for it.
    /// Call this only while the core makes offers. `cell` makes the cell of the hold, from a used
    /// one if there is one. Also returns whether this is the first local grant of the service since
    /// the core last absorbed.
    pub(super) fn take(
        &self,
        (name, owner, since): (&LockName, OwnerId, Time),
        offer: impl FnOnce() -> Option<LocalOffer>,
        cell: impl FnOnce(Option<Arc<HoldCell>>, Token) -> Arc<HoldCell>,
    ) -> Option<(Arc<HoldCell>, bool)> {
        let spend = || self.spent.fetch_add(1, Ordering::Relaxed);
        let early = is_planted(ThreadMutant::TokenFirst).then(spend);
        let (index, spot) = self.spot(name);
        let mut shard = self.shard(index);
        let Shard { names, spare } = &mut *shard;
        if names.len() >= ROOM {
            // Free names without used tokens are dropped: the core would make the same offers
            // again.
            names.retain(|_, local| local.hold.is_some() || local.spent > 0);
        }
        let is_full = names.len() >= ROOM;
        let take = |local: &mut LocalName| {
            let token = match local.offer {
                LocalOffer::OfService(range) => range.nth(early.unwrap_or_else(spend))?,
                LocalOffer::OfName(_) if !self.keeps() => return None,
                LocalOffer::OfName(range) => {
                    let token = range.nth(local.spent.into())?;
                    local.spent += 1;
                    token
                }
            };
            let cell = cell(spare.pop(), token);
            (local.hold, local.since) = (Some(LocalHold { cell: cell.clone(), owner }), since);
            Some(cell)
        };
        let vacant = match names.entry(spot) {
            Entry::Occupied(entry) if entry.get().hold.is_some() => return None,
            Entry::Occupied(entry) => return Some((take(entry.into_mut())?, false)),
            Entry::Vacant(_) if is_full => return None,
            Entry::Vacant(vacant) => vacant,
        };
        let mut local = LocalName { offer: offer()?, spent: 0, since, hold: None };
        let cell = take(&mut local)?;
        vacant.insert(local);
        let bit = 1_u64 << index;
        // Relaxed order is enough: this thread has the shard's lock, and no bit is cleared while
        // any thread reads the core.
        let is_first = self.used.load(Ordering::Relaxed) & bit == 0
            && self.used.fetch_or(bit, Ordering::Relaxed) == 0;
        Some((cell, is_first))
    }

    /// Releases a lock that is a local grant.
    pub(super) fn release(&self, name: &LockName, cell: &Arc<HoldCell>) {
        let (index, spot) = self.spot(name);
        let mut shard = self.shard(index);
        let local = shard.names.get_mut(&spot);
        let hold = local.and_then(|local| local.hold.take_if(|hold| Arc::ptr_eq(&hold.cell, cell)));
        debug_assert!(hold.is_some(), "it was taken here");
        if shard.spare.len() < SPARE {
            shard.spare.extend(hold.map(|hold| hold.cell));
        }
    }

    /// Takes all local grants out. Call this only while no thread reads the core.
    pub(super) fn empty(&self) -> Drained {
        let mut used = self.used.swap(0, Ordering::Relaxed);
        let spent = self.spent.swap(0, Ordering::Relaxed);
        let (mut held, mut kept) = (Vec::new(), Vec::new());
        while used != 0 {
            let index = used.trailing_zeros() as usize;
            used &= used - 1;
            let mut shard = self.shard(index);
            for (HashedName { name, .. }, LocalName { offer, spent, since, hold }) in
                shard.names.drain()
            {
                match (offer, hold) {
                    (LocalOffer::OfService(_), Some(LocalHold { cell, owner })) => {
                        held.push((LocalGrant { name, owner, token: cell.token(), since }, cell));
                    }
                    (LocalOffer::OfService(_), None) => {}
                    (LocalOffer::OfName(_), hold) => {
                        kept.push((KeptUse { name, spent, since }, hold));
                    }
                }
            }
            if shard.names.capacity() > KEPT {
                shard.names.shrink_to(KEPT);
            }
        }
        held.sort_unstable_by_key(|(taken, _)| taken.token);
        kept.sort_unstable_by(|(one, _), (other, _)| one.name.cmp(&other.name));
        Drained { spent, held, kept }
    }

    fn spot(&self, name: &LockName) -> (usize, HashedName) {
        let hash = self.hasher.hash_one(name);
        // These bits choose the shard; the map uses others.
        ((hash >> 32) as usize % SHARDS, HashedName { hash, name: name.clone() })
    }

    fn shard(&self, index: usize) -> MutexGuard<'_, Shard> {
        self.shards[index].lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether the core knows every hold of the service.
    #[cfg(all(test, elderlock_shuttle))]
    pub(super) fn is_empty(&self) -> bool {
        let is_free = |local: &LocalName| local.hold.is_none();
        (0..SHARDS).all(|index| self.shard(index).names.values().all(is_free))
    }
}

#[cfg(test)]
mod tests {
    use super::super::hold_cell::MemberLease;
    use super::super::member_clock::MemberClock;
    use super::*;
    use crate::protocol::Slot;
    use crate::protocol::message::TokenRange;

    type Taken = Option<(Arc<HoldCell>, bool)>;

    fn grants() -> LocalGrants {
        LocalGrants::new(ServiceName::new("inventory").unwrap())
    }

    fn name(number: u32) -> LockName {
        LockName::new(&number.to_le_bytes()).unwrap()
    }

    fn token(number: u32) -> Token {
        Token::new(Slot(1), number)
    }

    fn range(last: u32) -> TokenRange {
        TokenRange { first: token(1), last: token(last) }
    }

    fn take(grants: &LocalGrants, of: u32, offer: impl FnOnce() -> Option<LocalOffer>) -> Taken {
        let lease = Arc::new(MemberLease::new(Time::MAX, MemberClock::machine()));
        let cell = |spare, token| HoldCell::in_place_of(spare, None, token, Time::MAX, &lease);
        grants.take((&name(of), OwnerId::default(), Time::ZERO), offer, cell)
    }

    fn take_own(grants: &LocalGrants, of: u32, last: u32) -> Taken {
        take(grants, of, || Some(LocalOffer::OfService(range(last))))
    }

    /// Takes a lock that the core has offered since the last turn.
    fn take_again(grants: &LocalGrants, of: u32) -> Token {
        take(grants, of, || panic!("the offer is known")).expect("it is free").0.token()
    }

    #[test]
    fn it_holds_no_more_than_one_turn_can_take_in_and_gives_all_of_it_in_the_order_of_tokens() {
        let grants = grants();
        let taken = (0..100_000).filter_map(|name| take_own(&grants, name, 100_000)).count();
        assert_eq!(taken, SHARDS * ROOM, "every shard is full");
        let Drained { spent, held, kept } = grants.empty();
        assert_eq!((spent, held.len(), kept.len()), (taken as u64, taken, 0));
        assert!(held.is_sorted_by_key(|(taken, _)| taken.token));
        let again = take_own(&grants, 0, 100_000);
        assert!(again.is_some_and(|(_, is_first)| is_first), "there is room again");
    }

    #[test]
    fn a_thread_that_finds_no_token_is_granted_nothing() {
        let grants = grants();
        assert!(take_own(&grants, 0, 1).is_some());
        assert!(take_own(&grants, 0, 1).is_none(), "a member has it");
        assert!(take_own(&grants, 1, 1).is_none());
        assert_eq!(grants.empty().held.len(), 1);
    }

    #[test]
    fn a_released_lock_is_taken_again_without_a_look_at_the_core_until_the_next_turn() {
        let grants = grants();
        let (cell, _) = take_own(&grants, 0, 9).expect("it is free");
        grants.release(&name(0), &cell);
        drop(cell);
        assert_eq!(take_again(&grants, 0), token(2));
        assert_eq!(take_own(&grants, 1, 9).expect("it is free").0.token(), token(3));
        let Drained { spent, held, .. } = grants.empty();
        assert_eq!((spent, held.len()), (3, 2));
        let mut is_asked = false;
        let refused = take(&grants, 0, || {
            is_asked = true;
            None
        });
        assert!(is_asked && refused.is_none());
    }

    #[test]
    fn names_that_were_released_make_room_for_others() {
        let grants = grants();
        for name_of in 0..100_000 {
            let (cell, _) = take_own(&grants, name_of, 100_000).expect("there is room");
            grants.release(&name(name_of), &cell);
        }
        let names = (0..SHARDS).map(|index| grants.shard(index).names.len()).sum::<usize>();
        assert!(names <= SHARDS * ROOM, "{names} names");
        let Drained { spent, held, .. } = grants.empty();
        assert_eq!((spent, held.len()), (100_000, 0));
    }

    #[test]
    fn a_kept_lock_has_tokens_of_its_own_and_each_use_is_told_to_the_core() {
        let grants = grants();
        let offer = || Some(LocalOffer::OfName(range(3)));
        assert!(take(&grants, 0, offer).is_none(), "this member keeps nothing");
        grants.set_keeps(true);
        for of in [0, 1] {
            let (cell, is_first) = take(&grants, of, offer).expect("it is kept free");
            assert_eq!((cell.token(), is_first), (token(1), of == 0));
            grants.release(&name(of), &cell);
        }
        assert_eq!(take_again(&grants, 1), token(2));
        let Drained { spent, held, kept } = grants.empty();
        assert_eq!((spent, held.len()), (0, 0));
        let told = kept.iter().map(|(used, hold)| {
            (used.name.clone(), used.spent, hold.as_ref().map(|hold| hold.cell.token()))
        });
        assert!(told.eq([(name(0), 1, None), (name(1), 2, Some(token(2)))]));

        for number in 1..=3 {
            let (cell, _) = take(&grants, 2, offer).expect("it is kept free");
            assert_eq!(cell.token(), token(number));
            grants.release(&name(2), &cell);
        }
        assert!(take(&grants, 2, offer).is_none(), "its tokens are used up");
        grants.set_keeps(false);
        assert!(take(&grants, 3, offer).is_none());
        assert_eq!(grants.empty().kept.len(), 1);
    }
}
