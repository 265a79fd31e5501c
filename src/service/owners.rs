//! `Owners`: the local owners of a service's locks. An owner that has a lock enters it again by
//! this list.

use crate::protocol::{LockName, Token, Want};
use crate::runtime::hold_cell::HoldCell;
use crate::runtime::sync::{Mutex, MutexGuard};
use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError};
use tokio::sync::Notify;

/// The local owners of one service's locks, by lock and owner. A lock without an owner or a
/// requester takes no room.
#[derive(Default)]
pub(super) struct Owners(Mutex<BTreeMap<(LockName, u64), OwnerRow>>);

pub(super) struct OwnerRow {
    pub(super) slot: Arc<OwnerSlot>,
    /// The number of entries: those of requesters, and that of the hold.
    pub(super) entries: usize,
}

#[derive(Default)]
pub(super) struct OwnerSlot {
    held: Mutex<Option<OwnedHold>>,
    /// Notified when the owner is granted the lock.
    pub(super) granted: Notify,
}

/// The hold of an owner, as a slot refers to it. The slot does not keep the hold.
#[derive(Clone)]
pub(super) struct OwnedHold {
    pub(super) want: Want,
    pub(super) cell: Arc<HoldCell>,
    /// The index of the lock's name in the hold.
    pub(super) index: u32,
}

impl OwnedHold {
    pub(super) fn token(&self) -> Token {
        self.cell.token().plus(self.index.into())
    }
}

impl Owners {
    pub(super) fn rows(&self) -> MutexGuard<'_, BTreeMap<(LockName, u64), OwnerRow>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[cfg(test)]
    pub(super) fn kept(&self) -> usize {
        self.rows().len()
    }

    /// Returns how many guards of the owner write, and how many only read. Both are 0 if the owner
    /// holds neither the lock nor a share of it at this instant.
    pub(super) fn depth(&self, name: &LockName, owner: u64) -> (usize, usize) {
        let slot = self.rows().get(&(name.clone(), owner)).map(|row| row.slot.clone());
        slot.map_or((0, 0), |slot| slot.depth())
    }

    /// Returns whether any owner holds the lock, and not only a share of it, at this instant.
    pub(super) fn is_held(&self, name: &LockName) -> bool {
        let (first, last) = ((name.clone(), 0), (name.clone(), u64::MAX));
        let slots: Vec<_> =
            self.rows().range(first..=last).map(|(_, row)| row.slot.clone()).collect();
        slots.iter().any(|slot| slot.depth().0 > 0)
    }
}

impl OwnerSlot {
    pub(super) fn held(&self) -> MutexGuard<'_, Option<OwnedHold>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn depth(&self) -> (usize, usize) {
        // The slot is not locked while the cell is asked: a thread that finds a lease ended wakes
        // the tasks that wait for that.
        let held = self.held().clone();
        held.map_or((0, 0), |held| held.cell.writers_and_readers())
    }
}
