//! `TableCopies`: the copies of tables at one member, and the parts that arrive.

use super::table::{CopiedEntries, Table};
use crate::protocol::cluster::view::View;
use crate::protocol::id::{Epoch, ProcessId, ServiceName};
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use std::collections::BTreeMap;

/// The copies of this member, at most one of each service.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct TableCopies {
    pub(super) copies: BTreeMap<ServiceName, TableCopy>,
    /// The number of the last copy.
    pub(super) last: u64,
}

/// A copy of a table.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct TableCopy {
    /// The grantor whose table it is, in this epoch.
    pub(super) source: (ProcessId, Epoch),
    pub(super) number: u64,
    pub(super) table: Table,
    /// The number of parts taken.
    pub(super) taken: u64,
    pub(super) is_whole: bool,
    /// Whether the grantor offered the copy because it leaves.
    pub(super) is_offered: bool,
    /// The approximate bytes of the objects that came with parts.
    pub(super) object_bytes: usize,
    /// The time at which this member waits for the copy no longer.
    pub(super) until: Time,
}

/// A part of a copy, as it arrives.
pub(super) struct CopyArrival {
    pub(super) number: u64,
    pub(super) part: u64,
    pub(super) entries: CopiedEntries,
    pub(super) is_whole: bool,
}

impl TableCopies {
    pub(super) fn is_empty(&self) -> bool {
        self.copies.is_empty()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.copies.values().map(|copy| copy.until).min()
    }

    /// The number of entries of all copies.
    pub(super) fn len(&self) -> usize {
        self.copies.values().map(|copy| copy.table.size()).sum()
    }

    /// The number of the whole copy of this member's table.
    pub(super) fn whole_of(&self, service: &ServiceName, source: ProcessId) -> Option<u64> {
        let copy = self.copies.get(service)?;
        (copy.is_whole && copy.source.0 == source).then_some(copy.number)
    }

    /// Takes the copy of a table, and its grantor.
    pub(super) fn take_table(&mut self, service: &ServiceName) -> Option<(ProcessId, Table)> {
        self.copies.remove(service).map(|copy| (copy.source.0, copy.table))
    }

    pub(super) fn get_mut(
        &mut self,
        service: &ServiceName,
        source: ProcessId,
        number: u64,
    ) -> Option<&mut TableCopy> {
        self.copies.get_mut(service).filter(|copy| (copy.source.0, copy.number) == (source, number))
    }
}

impl TableCopy {
    /// Enters the entries of a part. Returns whether the copy stays within its bounds.
    pub(super) fn enter(&mut self, entries: CopiedEntries, view: &View, cx: &StepContext) -> bool {
        let most = cx.limits.table_bytes();
        let CopiedEntries { objects, holds, waits, over, .. } = entries;
        over.into_iter().for_each(|key| self.table.release(key));
        for (process, hold) in holds {
            if !self.has_room(process, view, most) {
                return false;
            }
            let (key, since) = ((process, hold.request), cx.now.back(hold.held_for));
            self.table.overwrite_hold(key, hold.lock, hold.token, since);
        }
        for (process, wait) in waits {
            let Some(ticket) = wait.ticket else { return false };
            if !self.has_room(process, view, most) {
                return false;
            }
            self.table.overwrite_wait((process, wait.request), wait.lock, ticket, cx.now);
        }
        for (name, content) in objects {
            let before = self.table.content(&name).map_or(0, |content| content.weight(&name));
            let after = content.as_ref().map_or(0, |content| content.weight(&name));
            self.object_bytes = self.object_bytes.saturating_sub(before) + after;
            if self.object_bytes >= most.saturating_mul(view.members.len()) {
                return false;
            }
            self.table.overwrite_object(name, content);
        }
        true
    }

    /// Returns whether a further request of the process fits in. Members that have left may still
    /// have requests at the grantor, but no more of them than there are members.
    fn has_room(&self, process: ProcessId, view: &View, most: usize) -> bool {
        let bytes = self.table.bytes_of(process);
        let is_known = bytes > 0 || view.contains(process);
        bytes < most && (is_known || self.table.processes().count() < 2 * view.members.len())
    }
}
