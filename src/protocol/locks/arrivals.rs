//! `Arrivals`: requests that are kept until they can be served, in the order of their arrival.
//!
//! A request that ends, and the requests of a member that is gone, are removed without a search
//! through the others.
//!
//! The bytes of all entries are known without a search, too. Requests differ a thousandfold in
//! size, so a limit of their number alone bounds no memory.

use crate::protocol::id::{ProcessId, RequestId};
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Bound;

/// The bytes of a request, on the average of all that are kept.
pub(crate) const MEAN_BYTES: usize = 1 << 10;

/// An entry for each request, in the order of arrival.
#[derive(Clone)]
pub(crate) struct Arrivals<T> {
    /// The entries by the number of their arrival.
    kept: BTreeMap<u64, (usize, T)>,
    /// The numbers of arrival by request: a request may have arrived twice.
    requests: BTreeSet<(ProcessId, RequestId, u64)>,
    /// The number of the next arrival.
    next: u64,
    /// The approximate bytes of all entries. Each entry also has its own number.
    weight: usize,
}

impl<T> Arrivals<T> {
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Returns whether a further request of that weight may be kept, where `limit` requests may.
    ///
    /// The kept requests may have [`MEAN_BYTES`] each on average. A single request with more is
    /// kept if no other is.
    pub(crate) fn has_room(&self, weight: usize, limit: u32) -> bool {
        let limit = limit as usize;
        let most_bytes = limit.saturating_mul(MEAN_BYTES);
        self.len() < limit && (self.is_empty() || self.weight.saturating_add(weight) <= most_bytes)
    }

    /// Keeps an entry of about `weight` bytes.
    pub(crate) fn push(
        &mut self,
        (process, request): (ProcessId, RequestId),
        weight: usize,
        arrived: T,
    ) {
        self.weight += weight;
        self.kept.insert(self.next, (weight, arrived));
        self.requests.insert((process, request, self.next));
        self.next += 1;
    }

    /// Returns the entries in the order of arrival.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.kept.values().inspect(|_| touch()).map(|(_, arrived)| arrived)
    }

    /// Removes a request, as often as it has arrived. Returns its entries.
    pub(crate) fn remove(&mut self, (process, request): (ProcessId, RequestId)) -> Vec<T> {
        self.remove_range((process, request, 0), (process, request, u64::MAX))
    }

    /// Removes all requests of a process.
    pub(crate) fn remove_all(&mut self, process: ProcessId) {
        self.remove_range((process, RequestId(0), 0), (process, RequestId(u64::MAX), u64::MAX));
    }

    fn remove_range(
        &mut self,
        first: (ProcessId, RequestId, u64),
        last: (ProcessId, RequestId, u64),
    ) -> Vec<T> {
        let range = (Bound::Included(first), Bound::Included(last));
        let mut removed = Vec::new();
        while let Some(&at) = self.requests.range(range).next() {
            touch();
            self.requests.remove(&at);
            if let Some((weight, arrived)) = self.kept.remove(&at.2) {
                self.weight -= weight;
                removed.push(arrived);
            }
        }
        removed
    }
}

impl<T> IntoIterator for Arrivals<T> {
    type Item = T;
    type IntoIter = std::iter::Map<
        std::collections::btree_map::IntoValues<u64, (usize, T)>,
        fn((usize, T)) -> T,
    >;

    fn into_iter(self) -> Self::IntoIter {
        self.kept.into_values().map(|(_, arrived)| arrived)
    }
}

impl<T> Default for Arrivals<T> {
    fn default() -> Self {
        Arrivals { kept: BTreeMap::new(), requests: BTreeSet::new(), next: 0, weight: 0 }
    }
}

/// Two values are equal if they keep the same entries in the same order. Entries that were removed
/// before do not count.
impl<T: PartialEq> PartialEq for Arrivals<T> {
    fn eq(&self, other: &Arrivals<T>) -> bool {
        let of_other = other.kept.values().map(|(_, arrived)| arrived);
        self.kept.values().map(|(_, arrived)| arrived).eq(of_other)
    }
}

impl<T: Eq> Eq for Arrivals<T> {}

impl<T: Hash> Hash for Arrivals<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.len().hash(state);
        self.kept.values().for_each(|(_, arrived)| arrived.hash(state));
    }
}

impl<T: fmt::Debug> fmt::Debug for Arrivals<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.kept.values().map(|(_, arrived)| arrived)).finish()
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
        keys.iter().for_each(|key| arrivals.push(*key, 100, *key));
        assert!(arrivals.iter().eq(&keys));
        arrivals.remove(keys[1]);
        assert!(arrivals.iter().eq([&keys[0], &keys[2], &keys[4]]), "it has arrived twice");
        arrivals.remove_all(ProcessId(1));
        assert_eq!(arrivals.len(), 1);
        let mut other = Arrivals::default();
        other.push(keys[4], 100, keys[4]);
        assert_eq!(arrivals, other);
        arrivals.remove(keys[4]);
        assert!(arrivals.is_empty() && arrivals.into_iter().next().is_none());
    }

    #[test]
    fn arrivals_are_bounded_in_number_and_in_bytes() {
        let mut arrivals = Arrivals::default();
        let key = |n| (ProcessId(1), RequestId(n));
        assert!(arrivals.has_room(1 << 20, 3), "a long one is kept if no other is");
        assert!(!arrivals.has_room(0, 0));
        arrivals.push(key(1), 2_000, ());
        assert!(arrivals.has_room(1_072, 3) && !arrivals.has_room(1_073, 3));
        arrivals.push(key(2), 0, ());
        arrivals.push(key(3), 0, ());
        assert!(!arrivals.has_room(0, 3), "three are as many as may be kept");
        arrivals.remove(key(1));
        assert!(arrivals.has_room(3_072, 3), "its bytes went with it");
        arrivals.push(key(4), 3_072, ());
        arrivals.remove_all(ProcessId(1));
        assert!(arrivals.has_room(1 << 20, 1));
    }
}
