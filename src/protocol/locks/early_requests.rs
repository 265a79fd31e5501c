//! `EarlyRequests`: requests for epochs that this member does not know yet, by service.
//!
//! A member may name any service in any number of requests, and no elder is asked before they are
//! kept. So they are bounded for each service, for each member in all services, and in total.

use super::arrivals::{Arrivals, MEAN_BYTES};
use super::grantor::ReceivedRequest;
use crate::protocol::id::{Epoch, ProcessId, RequestId, ServiceName};
use crate::protocol::visit_count::touch;
use std::collections::BTreeMap;

/// The share of one member, as a multiple of the limits of one service.
const MEMBER_SHARE: usize = 2;

/// The bound of all requests together, as a multiple of the limits of one service.
const TOTAL: usize = 4;

/// The requests of one service, each with the epoch that it is for.
pub(super) type EarlyOfService = Arrivals<(Epoch, ReceivedRequest)>;

/// Requests that wait until this member knows their epochs.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(in crate::protocol) struct EarlyRequests {
    services: BTreeMap<ServiceName, EarlyOfService>,
    members: BTreeMap<ProcessId, Account>,
    total: Account,
}

/// A number of requests, and their approximate bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Account {
    count: usize,
    bytes: usize,
}

impl Account {
    /// Returns whether a further request fits into `most` of them, of [`MEAN_BYTES`] each on
    /// average. A single request with more fits if there is no other.
    fn has_room(&self, bytes: usize, most: usize) -> bool {
        let most_bytes = most.saturating_mul(MEAN_BYTES);
        self.count < most && (self.count == 0 || self.bytes.saturating_add(bytes) <= most_bytes)
    }

    fn add(&mut self, bytes: usize) {
        self.count += 1;
        self.bytes += bytes;
    }

    fn subtract(&mut self, bytes: usize) {
        self.count -= 1;
        self.bytes -= bytes;
    }
}

/// The approximate bytes of a request, with the name under which it is kept.
fn weigh(service: &ServiceName, asked: &ReceivedRequest) -> usize {
    service.as_str().len() + asked.lock.entry_weight()
}

impl EarlyRequests {
    pub(super) fn is_empty(&self) -> bool {
        self.total.count == 0
    }

    pub(super) fn len(&self) -> usize {
        self.total.count
    }

    /// The approximate bytes of all requests.
    #[cfg(test)]
    pub(in crate::protocol) fn bytes(&self) -> usize {
        self.total.bytes
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&ServiceName, &EarlyOfService)> {
        self.services.iter()
    }

    /// Returns whether requests of the service are kept.
    pub(super) fn contains(&self, service: &ServiceName) -> bool {
        self.services.contains_key(service)
    }

    /// Returns whether a further request may be kept. `limit`: the number for each service.
    pub(super) fn has_room(
        &self,
        service: &ServiceName,
        asked: &ReceivedRequest,
        limit: u32,
    ) -> bool {
        let (bytes, most) = (weigh(service, asked), limit as usize);
        let of_member = self.members.get(&asked.from).copied().unwrap_or_default();
        let of_service = self.services.get(service);
        of_service.map_or(limit > 0, |kept| kept.has_room(bytes, limit))
            && of_member.has_room(bytes, most.saturating_mul(MEMBER_SHARE))
            && self.total.has_room(bytes, most.saturating_mul(TOTAL))
    }

    /// Keeps a request for an epoch.
    pub(super) fn push(&mut self, service: ServiceName, epoch: Epoch, asked: ReceivedRequest) {
        let bytes = weigh(&service, &asked);
        self.members.entry(asked.from).or_default().add(bytes);
        self.total.add(bytes);
        let of_service = self.services.entry(service).or_default();
        of_service.push((asked.from, asked.request), bytes, (epoch, asked));
    }

    /// Takes the requests of a service.
    pub(super) fn take(&mut self, service: &ServiceName) -> EarlyOfService {
        let taken = self.services.remove(service).unwrap_or_default();
        for (_, asked) in taken.iter() {
            self.forget(asked.from, weigh(service, asked));
        }
        taken
    }

    /// Removes a request, as often as it has arrived.
    pub(super) fn remove(&mut self, service: &ServiceName, key: (ProcessId, RequestId)) {
        let Some(of_service) = self.services.get_mut(service) else { return };
        let removed = of_service.remove(key);
        if of_service.is_empty() {
            self.services.remove(service);
        }
        for (_, asked) in removed {
            self.forget(key.0, weigh(service, &asked));
        }
    }

    /// Removes all requests of a process.
    pub(super) fn remove_all(&mut self, process: ProcessId) {
        let Some(of_member) = self.members.remove(&process) else { return };
        self.total.count -= of_member.count;
        self.total.bytes -= of_member.bytes;
        self.services.retain(|_, of_service| {
            touch();
            of_service.remove_all(process);
            !of_service.is_empty()
        });
    }

    pub(super) fn clear(&mut self) {
        *self = EarlyRequests::default();
    }

    /// Subtracts a request from the accounts.
    fn forget(&mut self, process: ProcessId, bytes: usize) {
        self.total.subtract(bytes);
        if let Some(of_member) = self.members.get_mut(&process) {
            of_member.subtract(bytes);
            if of_member.count == 0 {
                self.members.remove(&process);
            }
        }
    }
}
