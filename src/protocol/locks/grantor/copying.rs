//! The copy of a grantor's table at a member that wants to follow it. The grantor grants on while
//! its table is copied. docs/protocol/copy.md describes the messages, and the deaths of members.
//!
//! - A copy ends no epoch, and the grantor sends no other message because of it.
//! - `nothing_lost_in_transfer`: the table notes each change behind the place of the walk.

use super::table_copying::{CopyOffer, TableCopying};
use super::*;
use crate::protocol::locks::client::speaks_of_keeping;
use crate::protocol::locks::table::CopiedEntries;
use crate::protocol::message::GrantorMessage;

/// The number of parts that may be on their way.
const WINDOW: u64 = 2;

/// The number of parts after the walk from which on a copy counts as whole in any case.
const MOST_ROUNDS: u64 = 64;

impl Grantor {
    /// Handles a member's question for the next parts of a copy. 0 parts taken begin a copy.
    pub(crate) fn on_copy_table(
        &mut self,
        (from, copy): (ProcessId, u64),
        taken: u64,
        cx: &mut StepContext,
    ) {
        if !self.copying.as_ref().is_some_and(|copying| copying.is(from, copy)) {
            // A table of one slice goes in one part, and needs no copy.
            let is_small = self.table.entries() <= cx.limits.slice as usize;
            if taken > 0 || is_small || !self.is_acting() || !speaks_of_keeping(cx) {
                let service = self.service.clone();
                return cx.send(from, GrantorMessage::NoCopy { service, copy });
            }
            self.end_copying(cx);
            self.table.begin_copy();
            let (to, slice) = (from, cx.limits.slice);
            let copying =
                TableCopying { to, copy, slice, sent: 0, taken: 0, walked: None, whole: None };
            self.copying = Some(copying);
        }
        if let Some(copying) = &mut self.copying {
            copying.taken = taken.clamp(copying.taken, copying.sent);
        }
        self.feed_copy(cx);
    }

    /// Returns whether the member that copies the table awaits a part that is not sent yet.
    pub(super) fn is_copy_due(&self) -> bool {
        self.copying.as_ref().is_some_and(|copying| {
            copying.sent < copying.taken + WINDOW
                && (copying.whole.is_none() || self.table.noted() >= copying.slice as usize)
        })
    }

    /// Sends the next parts of a copy, as far as the member has asked for them.
    pub(super) fn feed_copy(&mut self, cx: &mut StepContext) {
        while self.is_copy_due() {
            self.send_copied(cx);
        }
    }

    /// Sends the next part of a copy.
    fn send_copied(&mut self, cx: &mut StepContext) {
        let Some(slice) = self.copying.as_ref().map(|copying| copying.slice as usize) else {
            return;
        };
        let entries = self.table.next_copied((slice, cx.limits.part_bytes as usize), cx.now);
        let (is_walked, noted) = (self.table.is_walked(), self.table.noted());
        let Some(copying) = &mut self.copying else { return };
        copying.sent += 1;
        let part = copying.sent;
        if is_walked {
            let walked = *copying.walked.get_or_insert(part);
            if noted <= slice || part >= walked + MOST_ROUNDS {
                copying.whole.get_or_insert(part);
            }
        }
        let CopiedEntries { objects, holds, waits, over, .. } = entries;
        planted!(=> let over = planted::copied_endings(over, cx));
        let message = GrantorMessage::CopyPart {
            service: self.service.clone(),
            copy: copying.copy,
            part,
            objects: objects.into(),
            holds,
            waits,
            over: over.into(),
            whole: copying.whole.is_some(),
        };
        cx.send(copying.to, message);
    }

    /// Ends the copy, if there is one and `is_over` says so. Returns it.
    fn take_copying(
        &mut self,
        is_over: impl FnOnce(&TableCopying) -> bool,
    ) -> Option<TableCopying> {
        let copying = self.copying.take_if(|copying| is_over(copying))?;
        self.table.end_copy();
        Some(copying)
    }

    /// Ends the copy, and tells its member.
    pub(super) fn end_copying(&mut self, cx: &mut StepContext) {
        if let Some(TableCopying { to, copy, .. }) = self.take_copying(|_| true) {
            cx.send(to, GrantorMessage::NoCopy { service: self.service.clone(), copy });
        }
    }

    /// Handles that a member does not need its copy any more.
    pub(crate) fn on_no_copy(&mut self, from: ProcessId, copy: u64) {
        self.take_copying(|copying| copying.is(from, copy));
    }

    /// Forgets the copy of a member that has left.
    pub(super) fn keep_copying(&mut self, view: &View) {
        self.take_copying(|copying| !view.contains(copying.to));
    }

    /// Returns whether the member has the whole copy with this number.
    pub(super) fn has_copy(&self, process: ProcessId, copy: Option<u64>) -> bool {
        let copying = self.copying.as_ref().filter(|copying| copying.whole.is_some());
        self.is_acting()
            && copying.zip(copy).is_some_and(|(copying, copy)| copying.is(process, copy))
    }

    /// Sends the last changes and the seal to a member that has a copy of the table.
    pub(super) fn send_rest(&mut self, epoch: Epoch, cx: &mut StepContext) {
        while self.table.noted() > 0 && !planted!(cx.mutant, KeepLastChanges) {
            self.send_copied(cx);
        }
        let (service, seal, kept) = (self.service.clone(), self.table.seal(), self.may_have_kept());
        let Some(TableCopying { to, copy, .. }) = self.take_copying(|_| true) else { return };
        cx.send(to, GrantorMessage::TableRest { service, epoch, copy, seal, kept });
    }

    /// Returns whether the member that is to succeed this one copies the table first: then it is
    /// not proposed yet.
    pub(super) fn awaits_successor(&mut self, to: ProcessId, cx: &mut StepContext) -> bool {
        if self.table.entries() <= cx.limits.slice as usize || !speaks_of_keeping(cx) {
            return false;
        }
        let Some(offer) = self.offer.as_mut().filter(|offer| offer.to == to) else {
            self.offer = Some(CopyOffer { to, since: cx.now, taken: 0 });
            let (service, epoch) = (self.service.clone(), self.epoch);
            cx.send(to, GrantorMessage::OfferCopy { service, epoch });
            return true;
        };
        let Some(copying) = self.copying.as_ref().filter(|copying| copying.to == to) else {
            return false;
        };
        let goes_on = copying.taken > offer.taken && !copying.is_taken();
        offer.taken = copying.taken;
        goes_on && cx.now < offer.since + cx.timing.member_lease
    }

    /// Returns whether the successor of a leaving grantor has the whole copy now.
    pub(crate) fn has_offered_copy(&self) -> bool {
        let offered = self.offer.as_ref().zip(self.copying.as_ref());
        offered.is_some_and(|(offer, copying)| offer.to == copying.to && copying.is_taken())
    }
}
