//! `Arrivals`: requests that are kept until they can be served, in the order of their arrival.
//!
//! A request that ends, and the requests of a member that is gone, are taken out without a walk
//! through the others.

use crate::protocol::id::{ProcessId, RequestId};
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Bound;

/// An entry for each request, in the order of arrival.
#[derive(Clone)]
pub(crate) struct Arrivals<T> {
    /// The entries by the number of their arrival.
    kept: BTreeMap<u64, T>,
    /// The numbers of arrival by request: one may have arrived twice.
    requests: BTreeSet<(ProcessId, RequestId, u64)>,
    /// The number of the next arrival.
    next: u64,
}

impl<T> Arrivals<T> {
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    pub(crate) fn push(&mut self, (process, request): (ProcessId, RequestId), arrived: T) {
        self.kept.insert(self.next, arrived);
        self.requests.insert((process, request, self.next));
        self.next += 1;
    }

    /// Returns the entries in the order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.values().inspect(|_| touch())
    }

    /// Takes out a request, as often as it has arrived.
    pub(crate) fn remove(&mut self, (process, request): (ProcessId, RequestId)) {
        self.remove_range((process, request, 0), (process, request, u64::MAX));
    }

    /// Takes out all requests of a process.
    pub(crate) fn remove_all(&mut self, process: ProcessId) {
        self.remove_range((process, RequestId(0), 0), (process, RequestId(u64::MAX), u64::MAX));
    }

    fn remove_range(
        &mut self,
        first: (ProcessId, RequestId, u64),
        last: (ProcessId, RequestId, u64),
    ) {
        let range = (Bound::Included(first), Bound::Included(last));
        while let Some(&at) = self.requests.range(range).next() {
            touch();
            self.requests.remove(&at);
            self.kept.remove(&at.2);
        }
    }
}

impl<T> IntoIterator for Arrivals<T> {
    type Item = T;
    type IntoIter = std::collections::btree_map::IntoValues<u64, T>;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_values()
    }
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Arrivals { kept: BTreeMap::new(), requests: BTreeSet::new(), next: 0 }
    }
}

/// Two are equal if they keep the same in the same order. Entries that were taken out before do not
/// count.
impl<T: PartialEq> PartialEq for Arrivals<T> {
    fn eq(&self, other: &Arrivals<T>) -> bool {
        self.kept.values().eq(other.kept.values())
    }
}

impl<T: Eq> Eq for Arrivals<T> {}

impl<T: Hash> Hash for Arrivals<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.kept.values().for_each(|kept| kept.hash(state));
    }
}

impl<T: fmt::Debug> fmt::Debug for Arrivals<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kept.values()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrivals_are_kept_in_order_and_taken_out_by_request_and_by_process() {
        let mut arrivals = Arrivals::default();
        let keys = [(1, 1), (2, 1), (1, 2), (2, 1), (3, 7)]
            .map(|(process, n)| (ProcessId(process), RequestId(n)));
        keys.iter().for_each(|key| arrivals.push(*key, *key));
        assert!(arrivals.iter().eq(&keys));
        arrivals.remove(keys[1]);
        assert!(arrivals.iter().eq([&keys[0], &keys[2], &keys[4]]), "it has arrived twice");
        arrivals.remove_all(ProcessId(1));
        assert_eq!(arrivals.len(), 1);
        let mut other = Arrivals::default();
        other.push(keys[4], keys[4]);
        assert_eq!(arrivals, other);
        arrivals.remove(keys[4]);
        assert!(arrivals.is_empty() && arrivals.into_iter().next().is_none());
    }
}
