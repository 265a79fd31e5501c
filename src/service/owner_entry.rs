//! `OwnerEntry`: an owner's part in a lock.

use super::handle::ServiceHandle;
use super::hold::HoldHandle;
use super::lock_error::Lost;
use super::owners::{OwnedHold, OwnerRow, OwnerSlot};
use crate::protocol::LockName;
use crate::runtime::hold_cell::OnlyShared;
use crate::runtime::planted;
use std::sync::Arc;

/// An owner's part in a lock, while the owner asks for the lock or holds it. Each request has an
/// entry, and the hold has one until its end.
pub(crate) struct OwnerEntry {
    service: Arc<ServiceHandle>,
    key: (LockName, u64),
    slot: Arc<OwnerSlot>,
}

impl OwnerEntry {
    pub(super) fn new(service: Arc<ServiceHandle>, name: LockName, owner: u64) -> OwnerEntry {
        let key = (name, owner);
        let mut rows = service.owners.rows();
        let row = rows
            .entry(key.clone())
            .or_insert_with(|| OwnerRow { slot: Arc::default(), entries: 0 });
        row.entries += 1;
        let slot = row.slot.clone();
        drop(rows);
        OwnerEntry { service, key, slot }
    }

    /// Returns one more guard of the owner's hold, which only `reads` or has the lock; `None` if
    /// the owner has no hold.
    pub(crate) fn enter(&self, reads: bool) -> Result<Option<HoldHandle>, EntryRefused> {
        let Some(held) = self.slot.held().clone() else { return Ok(None) };
        match HoldHandle::enter(&self.service, &held, reads) {
            Ok(Some(hold)) => hold.fence().map(|_| Some(hold)).map_err(EntryRefused::Lost),
            Ok(None) => Ok(None),
            Err(OnlyShared) => match held.cell.fence() {
                // The last guard is just ending.
                _ if held.cell.guards() == 0 => Ok(None),
                Ok(_) => Err(EntryRefused::OnlyReads),
                Err(reason) => Err(EntryRefused::Lost(Lost { reason })),
            },
        }
    }

    /// Notes that the locks were granted to the owner, in the order of the entries. Requests of
    /// that owner enter the hold from now on.
    pub(crate) fn give(entries: Vec<OwnerEntry>, hold: &HoldHandle) {
        let slots: Vec<_> = entries.iter().map(|entry| entry.slot.clone()).collect();
        for (index, slot) in slots.iter().enumerate() {
            let held =
                OwnedHold { want: hold.want.clone(), cell: hold.cell.clone(), index: index as u32 };
            let mut last = slot.held();
            // A later hold of the owner may have been granted and noted meanwhile: then this hold
            // is over.
            let is_later = |last: &OwnedHold| last.cell.guards() > 0 && last.token() > held.token();
            if !last.as_ref().is_some_and(is_later) {
                *last = Some(held);
            }
        }
        // The entries end with the hold.
        hold.cell.keep(Box::new(entries));
        OwnerEntry::tell(hold);
    }

    /// Like [`give`](Self::give), for one lock, or for a share to a caller that only `reads`.
    /// Returns the caller's guard.
    pub(crate) fn give_one(self, hold: HoldHandle, reads: bool) -> HoldHandle {
        if reads {
            return self.give_share(hold);
        }
        OwnerEntry::give(vec![self], &hold);
        hold
    }

    /// Notes that the owner was granted a share. A sibling may have been granted another share at
    /// the same time. Then that share is entered, and this hold is released: an owner has one hold
    /// of a lock.
    fn give_share(self, mut hold: HoldHandle) -> HoldHandle {
        // The caller finds a loss by the fence.
        let _ = hold.read_on();
        let own = OwnedHold { want: hold.want.clone(), cell: hold.cell.clone(), index: 0 };
        loop {
            // The slot is not locked while the hold is entered: the end of a guard, and a loss that
            // is found, wake tasks.
            let last = self.slot.held().clone();
            if let Ok(Some(entered)) = self.enter(true) {
                return entered;
            }
            let mut held = self.slot.held();
            let cell = |held: &OwnedHold| Arc::as_ptr(&held.cell);
            if held.as_ref().map(cell) == last.as_ref().map(cell) {
                *held = Some(own);
                break;
            }
        }
        hold.cell.keep(Box::new(vec![self]));
        OwnerEntry::tell(&hold);
        hold
    }

    /// Wakes the owner's waiting requests: the owner has the locks of the hold, or may write where
    /// it only read.
    pub(crate) fn tell(hold: &HoldHandle) {
        if !planted!(LetNoSiblingIn) {
            let slot = |entry: &OwnerEntry| entry.slot.clone();
            let slots =
                hold.cell.kept(|entries: &Vec<OwnerEntry>| entries.iter().map(slot).collect());
            let slots: Vec<Arc<OwnerSlot>> = slots.unwrap_or_default();
            slots.iter().for_each(|slot| slot.granted.notify_waiters());
        }
    }

    /// Returns one more guard of the owner's hold, as soon as that hold is good. Unless the guard
    /// only `reads`, the hold must be the lock as well.
    pub(crate) async fn entered(&self, reads: bool) -> HoldHandle {
        let mut granted = std::pin::pin!(self.slot.granted.notified());
        loop {
            // The notification is enabled before the check. Otherwise a grant between the check and
            // the wait would be missed.
            granted.as_mut().enable();
            if let Ok(Some(hold)) = self.enter(reads) {
                return hold;
            }
            granted.as_mut().await;
            granted.set(self.slot.granted.notified());
        }
    }
}

/// Why an owner does not enter its hold.
pub(crate) enum EntryRefused {
    /// The hold is lost, and still has guards.
    Lost(Lost),
    /// The hold is a share, and the request is for the lock.
    OnlyReads,
}

impl Drop for OwnerEntry {
    fn drop(&mut self) {
        let mut rows = self.service.owners.rows();
        if let Some(row) = rows.get_mut(&self.key) {
            row.entries -= 1;
            if row.entries == 0 {
                rows.remove(&self.key);
            }
        }
    }
}
