//! Copies of other members' tables, which this member takes before it follows a grantor.
//!
//! A copy is no authority. It is used for nothing but the table of the epoch for which its grantor
//! sends the rest. docs/protocol/copy.md describes the messages, and the deaths of members.

use super::table_copies::{CopyArrival, TableCopy};
use super::*;
use crate::protocol::message::TableSeal;

impl Locks {
    /// Begins a copy of the table of the grantor that this member knows, for a bid. The bid waits
    /// for the copy.
    pub(super) fn copy_for_bid(&mut self, service: &ServiceName, cx: &mut StepContext) {
        let Some(source) = self.client.home(service) else { return };
        let is_reached = !cx.suspected.contains(&source.0) && !cx.is_lost(source.0);
        if is_reached
            && !self.client.has_bids(service)
            && self.begin_copy(service, source, false, cx)
        {
            self.client.hold_bids_back(service);
        }
    }

    /// Begins a copy. `is_offered`: whether the grantor offered it. Returns whether it has begun.
    fn begin_copy(
        &mut self,
        service: &ServiceName,
        source: (ProcessId, Epoch),
        is_offered: bool,
        cx: &mut StepContext,
    ) -> bool {
        if self.copies.copies.contains_key(service)
            || self.grantors.contains_key(service)
            || source.0 == cx.me
            || !cx.is_there(source.0)
            || !cx.is_member
            || !client::speaks_of_keeping(cx)
        {
            return false;
        }
        self.copies.last += 1;
        let (number, (to, epoch)) = (self.copies.last, source);
        let copy = TableCopy {
            source,
            number,
            table: Table::new_copy(epoch).within(cx),
            taken: 0,
            is_whole: false,
            is_offered,
            object_bytes: 0,
            until: cx.now + cx.timing.retry,
        };
        self.copies.copies.insert(service.clone(), copy);
        let service = service.clone();
        cx.send(to, GrantorMessage::CopyTable { service, epoch, copy: number, taken: 0 });
        true
    }

    /// Handles the question of a member that copies a table here.
    pub(super) fn on_copy_table(
        &mut self,
        from: ProcessId,
        (service, epoch): (ServiceName, Epoch),
        (copy, taken): (u64, u64),
        cx: &mut StepContext,
    ) {
        let Some(grantor) = self.grantor_in(&service, epoch) else {
            return cx.send(from, GrantorMessage::NoCopy { service, copy });
        };
        grantor.on_copy_table((from, copy), taken, cx);
        if grantor.has_offered_copy() && self.relinquishing.contains(&service) {
            self.depart_service(&service, cx);
        }
    }

    /// Handles a part of a copy.
    pub(super) fn on_copy_part(
        &mut self,
        from: ProcessId,
        service: ServiceName,
        arrival: CopyArrival,
        cx: &mut StepContext,
    ) {
        let CopyArrival { number, part, entries, is_whole } = arrival;
        let Some(view) = cx.view else { return };
        let Some(copy) = self.copies.get_mut(&service, from, number) else {
            return cx.send(from, GrantorMessage::NoCopy { service, copy: number });
        };
        // Links keep the order. So another number is that of a faulty process.
        if part != copy.taken + 1 || !copy.enter(entries, view, cx) {
            return self.end_copy(&service, cx);
        }
        copy.taken = part;
        let is_new = is_whole && !copy.is_whole;
        copy.is_whole |= is_whole;
        copy.until = match (copy.is_whole, copy.is_offered) {
            (false, _) => cx.now + cx.timing.silence(),
            (true, true) => cx.now + cx.timing.member_lease,
            (true, false) => Time::MAX,
        };
        let epoch = copy.source.1;
        // A grantor here has asked for the table already: these are its last changes.
        if !self.grantors.contains_key(&service) {
            let service = service.clone();
            cx.send(from, GrantorMessage::CopyTable { service, epoch, copy: number, taken: part });
        }
        if is_new {
            self.client.release_bids(&service, cx);
        }
    }

    /// Handles that a copy is over: this member's own, or one of a table here.
    pub(super) fn on_no_copy(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        number: u64,
        cx: &mut StepContext,
    ) {
        if self.copies.get_mut(service, from, number).is_some() {
            self.drop_copy(service, cx);
        } else if let Some(grantor) = self.grantors.get_mut(service) {
            grantor.on_no_copy(from, number);
        }
    }

    /// Handles a leaving grantor's offer: this member is to succeed it.
    pub(super) fn on_offer_copy(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        let is_outdated = self.client.newest(service).is_some_and(|newest| newest > epoch);
        if is_outdated || !cx.is_dealt_epoch(epoch) || self.client.is_destroyed(service) {
            return;
        }
        self.begin_copy(service, (from, epoch), true, cx);
    }

    /// Handles the end of a predecessor's table whose copy is here.
    pub(super) fn on_table_rest(
        &mut self,
        from: ProcessId,
        (service, epoch): (ServiceName, Epoch),
        (number, seal): (u64, TableSeal),
        cx: &mut StepContext,
    ) {
        let Some(view) = cx.view else { return };
        let is_known = self.copies.get_mut(&service, from, number).is_some();
        let table = if is_known { self.copies.take_table(&service) } else { None };
        let table = table.map(|(_, table)| table);
        if let Some(grantor) = self.grantor_in(&service, epoch) {
            let is_sealed = |table: &Table| table.seal() == seal;
            planted!(=> let any = planted::trusts_any_seal(cx));
            planted!(=> let is_sealed = |table: &Table| is_sealed(table) || any);
            match table {
                Some(table) if is_sealed(&table) => {
                    grantor.on_copied_table(from, table, view, cx);
                }
                table => {
                    grantor.on_no_table(from, view, cx);
                    table.into_iter().for_each(|table| self.discard(table, cx));
                }
            }
            self.after_transfer(&service, cx);
        } else {
            table.into_iter().for_each(|table| self.discard(table, cx));
        }
    }

    /// Ends the copy of a service, and tells its grantor.
    fn end_copy(&mut self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(copy) = self.copies.copies.get(service) {
            let (service, number) = (service.clone(), copy.number);
            cx.send(copy.source.0, GrantorMessage::NoCopy { service, copy: number });
        }
        self.drop_copy(service, cx);
    }

    /// Drops the copy of a service. Bids that wait for it are sent.
    pub(super) fn drop_copy(&mut self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(copy) = self.copies.copies.remove(service) {
            self.discard(copy.table, cx);
            self.client.release_bids(service, cx);
        }
    }

    /// Ends all copies: the elder has changed.
    pub(in crate::protocol) fn end_copies(&mut self, cx: &mut StepContext) {
        for service in self.copies.copies.keys().cloned().collect::<Vec<_>>() {
            self.end_copy(&service, cx);
        }
    }

    /// Returns whether this member copies a table.
    pub(in crate::protocol) fn has_copies(&self) -> bool {
        !self.copies.is_empty()
    }

    /// Forgets all copies.
    pub(super) fn forget_copies(&mut self) {
        self.copies.copies.clear();
        self.spent_tables.clear();
    }

    /// Ends the copies that are of no use any more, or for which this member waits no longer.
    pub(in crate::protocol) fn tend_copies(&mut self, cx: &mut StepContext) {
        let useless = self.copies.copies.iter().filter(|(service, copy)| {
            let (source, epoch) = copy.source;
            let own = self.grantors.get(*service);
            let is_used = match own {
                Some(grantor) => grantor.source() == Some(source),
                None => {
                    let is_newest = self.client.newest(service).is_none_or(|known| known <= epoch);
                    is_newest && (copy.is_offered || self.client.has_bids(service))
                }
            };
            let is_awaited = copy.is_whole || !cx.suspected.contains(&source);
            !is_used || !is_awaited || !cx.is_there(source) || copy.until <= cx.now
        });
        for service in useless.map(|(service, _)| service.clone()).collect::<Vec<_>>() {
            touch();
            self.end_copy(&service, cx);
        }
    }

    /// Frees the memory of a table that is used no more, in slices.
    pub(super) fn discard(&mut self, mut table: Table, cx: &StepContext) {
        if table.shed(cx.limits.slice as usize) {
            self.begin_background(cx);
            self.spent_tables.push_back(table);
        }
    }
}
