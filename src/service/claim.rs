//! `Claim`: the claim of an owner to a lock.

use super::claims::{ClaimEntry, ClaimSlot, ClaimedHold};
use super::handle::ServiceHandle;
use super::hold::HoldHandle;
use super::lock_error::Lost;
use crate::protocol::LockName;
use crate::runtime::planted;
use std::sync::Arc;

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
        // The claims end with the hold.
        hold.cell.keep(Box::new(claims));
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
