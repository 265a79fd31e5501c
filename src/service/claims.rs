//! `Claims`: the local owners of a service's locks, so that an owner with a lock enters it again.

use super::guard::{HoldHandle, Lost, nth};
use super::lock_service::ServiceHandle;
use crate::protocol::{LockName, Token, Want};
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::planted;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::Notify;

/// The claims of one service at this member, by lock and owner. A lock without owner or asker takes
/// no room.
#[derive(Default)]
pub(super) struct Claims(Mutex<BTreeMap<(LockName, u64), ClaimEntry>>);

struct ClaimEntry {
    slot: Arc<ClaimSlot>,
    /// The number of claims: those of askers, and that of the hold.
    claims: usize,
}

#[derive(Default)]
struct ClaimSlot {
    held: Mutex<Option<ClaimedHold>>,
    /// The owner was granted the lock.
    granted: Notify,
}

/// A slot's knowledge of the hold. It does not keep it.
#[derive(Clone)]
struct ClaimedHold {
    want: Want,
    cell: Arc<HoldCell>,
    /// The index of the lock's name in the hold.
    index: u32,
}

impl ClaimedHold {
    fn token(&self) -> Token {
        nth(self.cell.token(), self.index)
    }
}

impl Claims {
    fn entries(&self) -> MutexGuard<'_, BTreeMap<(LockName, u64), ClaimEntry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.entries().len()
    }

    /// How many guards the owner has of the lock: 0 if it does not hold it at this instant.
    pub(super) fn depth(&self, name: &LockName, owner: u64) -> usize {
        let slot = self.entries().get(&(name.clone(), owner)).map(|entry| entry.slot.clone());
        slot.map_or(0, |slot| slot.depth())
    }

    /// Whether any owner holds the lock at this instant.
    pub(super) fn is_held(&self, name: &LockName) -> bool {
        let (first, last) = ((name.clone(), 0), (name.clone(), u64::MAX));
        let slots: Vec<_> = self.entries().range(first..=last).map(|(_, entry)| entry.slot.clone()).collect();
        slots.iter().any(|slot| slot.depth() > 0)
    }
}

impl ClaimSlot {
    fn held(&self) -> MutexGuard<'_, Option<ClaimedHold>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn depth(&self) -> usize {
        // Asked with no lock taken: a thread that finds a lease ended wakes the tasks that wait for
        // that.
        let held = self.held().clone();
        held.filter(|held| held.cell.fence().is_ok()).map_or(0, |held| held.cell.guards())
    }
}

/// An owner's claim to a lock: that of an asker, or of the hold, with which it goes.
pub(crate) struct Claim {
    service: Arc<ServiceHandle>,
    key: (LockName, u64),
    slot: Arc<ClaimSlot>,
}

impl Claim {
    pub(super) fn new(service: Arc<ServiceHandle>, name: LockName, owner: u64) -> Claim {
        let key = (name, owner);
        let mut entries = service.claims.entries();
        let entry = entries.entry(key.clone()).or_insert_with(|| ClaimEntry { slot: Arc::default(), claims: 0 });
        entry.claims += 1;
        let slot = entry.slot.clone();
        drop(entries);
        Claim { service, key, slot }
    }

    /// One more part in the owner's hold; `None` if it has none.
    pub(crate) fn enter(&self) -> Result<Option<HoldHandle>, Lost> {
        let held = self.slot.held().clone();
        let hold = held.and_then(|held| HoldHandle::enter(&self.service, &held.want, &held.cell, held.index));
        hold.map(|hold| hold.fence().map(|_| hold)).transpose()
    }

    /// The locks were granted to the owner, in the order of the claims: requests in its name enter
    /// from now on.
    pub(crate) fn give(claims: Vec<Claim>, hold: &HoldHandle) {
        let slots: Vec<_> = claims.iter().map(|claim| claim.slot.clone()).collect();
        for (index, slot) in slots.iter().enumerate() {
            let held = ClaimedHold { want: hold.want.clone(), cell: hold.cell.clone(), index: index as u32 };
            let mut last = slot.held();
            // A later hold of the owner may have been granted and noted since: then this one is
            // over.
            let is_later = |last: &ClaimedHold| last.cell.guards() > 0 && last.token() > held.token();
            if !last.as_ref().is_some_and(is_later) {
                *last = Some(held);
            }
        }
        hold.belongs_to(claims);
        if !planted!(LetNoSiblingIn) {
            slots.iter().for_each(|slot| slot.granted.notify_waiters());
        }
    }

    /// One more part in the hold that the owner has, as soon as it has one that is good.
    pub(crate) async fn entered(&self) -> HoldHandle {
        let mut granted = std::pin::pin!(self.slot.granted.notified());
        loop {
            // Enabled before the question; otherwise a grant between question and wait would be
            // missed.
            granted.as_mut().enable();
            if let Ok(Some(hold)) = self.enter() {
                return hold;
            }
            granted.as_mut().await;
            granted.set(self.slot.granted.notified());
        }
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        let mut entries = self.service.claims.entries();
        if let Some(entry) = entries.get_mut(&self.key) {
            entry.claims -= 1;
            if entry.claims == 0 {
                entries.remove(&self.key);
            }
        }
    }
}
