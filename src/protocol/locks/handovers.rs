//! Services whose grantor role this member gives up, and tables on their way to other members. Each
//! step, except a short one, asks which of them are done, so nothing walks through all of them.

use crate::protocol::cluster::view::View;
use crate::protocol::id::{ProcessId, ServiceName};
use crate::protocol::link::LinkSet;
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};

/// Services whose grantor role this member gives up, each with the next time to propose a
/// successor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct Relinquishing {
    again: BTreeMap<ServiceName, Time>,
    agenda: BTreeSet<(Time, ServiceName)>,
}

impl Relinquishing {
    pub(super) fn is_empty(&self) -> bool {
        self.again.is_empty()
    }

    pub(super) fn contains(&self, service: &ServiceName) -> bool {
        self.again.contains_key(service)
    }

    pub(super) fn insert(&mut self, service: ServiceName, again: Time) {
        self.remove(&service);
        self.agenda.insert((again, service.clone()));
        self.again.insert(service, again);
    }

    /// Returns whether the service was among them.
    pub(super) fn remove(&mut self, service: &ServiceName) -> bool {
        let again = self.again.remove(service);
        again.is_some_and(|again| self.agenda.remove(&(again, service.clone())))
    }

    pub(super) fn clear(&mut self) {
        *self = Relinquishing::default();
    }

    /// Returns the next time to propose a successor.
    pub(super) fn deadline(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// The services for which a successor is to be proposed again, at most `most` of them.
    pub(super) fn due(&self, now: Time, most: usize) -> BTreeSet<ServiceName> {
        let due =
            self.agenda.iter().inspect(|_| touch()).take_while(|(at, _)| *at <= now).take(most);
        due.map(|(_, service)| service.clone()).collect()
    }
}

/// Tables that this member has transferred because it leaves, or has destroyed their services. The
/// member stays until their last chunks have arrived.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct PendingTransfers {
    /// The member that takes over each service.
    to: BTreeMap<ServiceName, ProcessId>,
    /// Services transferred in this step: the number of the last chunk on its link is not known
    /// yet.
    fresh: Vec<ServiceName>,
    /// The services by receiver, with the number of the last chunk, or of a later message.
    last: BTreeMap<ProcessId, BTreeSet<(u64, ServiceName)>>,
}

impl PendingTransfers {
    pub(super) fn is_empty(&self) -> bool {
        self.to.is_empty()
    }

    pub(super) fn contains(&self, service: &ServiceName) -> bool {
        self.to.contains_key(service)
    }

    pub(super) fn insert(&mut self, service: ServiceName, to: ProcessId) {
        if let Some(before) = self.to.insert(service.clone(), to)
            && let Some(of_before) = self.last.get_mut(&before)
        {
            of_before.retain(|(_, other)| *other != service);
        }
        self.fresh.push(service);
    }

    pub(super) fn clear(&mut self) {
        *self = PendingTransfers::default();
    }

    /// Forgets tables that have arrived whole, or whose receivers have left.
    pub(super) fn forget_arrived(&mut self, view: Option<&View>, links: &LinkSet) {
        for service in std::mem::take(&mut self.fresh) {
            if let Some(to) = self.to.get(&service) {
                self.last.entry(*to).or_default().insert((links.sent(*to), service));
            }
        }
        let PendingTransfers { to, last, .. } = self;
        last.retain(|process, tables| {
            let is_there = view.is_some_and(|view| view.contains(*process));
            while let Some((number, _)) = tables.first() {
                touch();
                if is_there && !links.is_acknowledged(*process, *number) {
                    return true;
                }
                if let Some((_, service)) = tables.pop_first() {
                    to.remove(&service);
                }
            }
            false
        });
    }
}
