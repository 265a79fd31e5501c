//! `PagedMap`: entries of requests by their numbers.
//!
//! Members number their requests as they make them, so most requests have consecutive numbers. A
//! page has the entries whose numbers share all but the lowest bits, in order and without gaps in
//! memory. For each present entry the page has a bit instead of a number. A tree would leave its
//! nodes half empty. That does not matter for small maps, but it does for a million held locks.

use super::id::RequestId;
use super::visit_count::touch;
use std::collections::BTreeMap;
use std::fmt;

/// The numbers of one page: as many as a word has bits.
const PAGE: u64 = u64::BITS as u64;

/// The entries whose numbers share all but the lowest bits.
#[derive(Clone, PartialEq, Eq, Hash)]
struct MapPage<T> {
    /// A bit for each number; the lowest bit is for the first number.
    present: u64,
    /// The values in the order of their numbers.
    values: Vec<T>,
}

impl<T> MapPage<T> {
    /// The number of entries with a lower number.
    fn below(&self, bit: u64) -> usize {
        (self.present & (bit - 1)).count_ones() as usize
    }

    fn find(&self, bit: u64) -> Option<usize> {
        (self.present & bit != 0).then(|| self.below(bit))
    }

    fn backwards(&self, number: u64) -> impl Iterator<Item = RequestId> + use<T> {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let bit = left.checked_ilog2()?;
            left ^= 1 << bit;
            Some(RequestId(number * PAGE + u64::from(bit)))
        })
    }

    fn requests(&self, number: u64) -> impl Iterator<Item = RequestId> + use<T> {
        let mut left = self.present;
        std::iter::from_fn(move || {
            let bit = (left != 0).then(|| left.trailing_zeros())?;
            left &= left - 1;
            Some(RequestId(number * PAGE + u64::from(bit)))
        })
    }
}

impl<T> Default for MapPage<T> {
    fn default() -> Self {
        MapPage { present: 0, values: Vec::new() }
    }
}

/// Entries by the number of their request, in its order.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct PagedMap<T> {
    /// The pages; none of them is empty.
    pages: BTreeMap<u64, MapPage<T>>,
    len: usize,
    /// Always empty: the memory of a removed page, for the next one.
    spare: MapPage<T>,
}

impl<T> PagedMap<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, request: &RequestId) -> Option<&T> {
        let (number, bit) = page_and_bit(request);
        let page = self.pages.get(&number)?;
        page.find(bit).map(|at| &page.values[at])
    }

    pub(crate) fn get_mut(&mut self, request: &RequestId) -> Option<&mut T> {
        let (number, bit) = page_and_bit(request);
        let page = self.pages.get_mut(&number)?;
        page.find(bit).map(|at| &mut page.values[at])
    }

    pub(crate) fn insert(&mut self, request: RequestId, value: T) {
        let (number, bit) = page_and_bit(&request);
        let spare = &mut self.spare;
        let page = self.pages.entry(number).or_insert_with(|| std::mem::take(spare));
        match page.find(bit) {
            Some(at) => page.values[at] = value,
            None => {
                page.values.insert(page.below(bit), value);
                page.present |= bit;
                self.len += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, request: &RequestId) -> Option<T> {
        let (number, bit) = page_and_bit(request);
        let page = self.pages.get_mut(&number)?;
        let at = page.find(bit)?;
        let value = page.values.remove(at);
        page.present &= !bit;
        self.len -= 1;
        let (left, room) = (page.values.len(), page.values.capacity());
        if left == 0 {
            self.spare = self.pages.remove(&number).unwrap_or_default();
        } else if left <= room / 4 {
            // Twice the remaining entries, so that the next ones need no allocation.
            page.values.shrink_to(left * 2);
        }
        Some(value)
    }

    /// Removes about `most` entries from the first on, a page at a time. Returns their number, and
    /// at most `most`.
    pub(crate) fn shed(&mut self, most: usize) -> usize {
        let mut left = most;
        while left > 0
            && let Some((_, page)) = self.pages.pop_first()
        {
            self.len -= page.values.len();
            left = left.saturating_sub(page.values.len());
        }
        most - left
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RequestId, &T)> {
        let all =
            self.pages.iter().flat_map(|(number, page)| page.requests(*number).zip(&page.values));
        all.inspect(|_| touch())
    }

    /// Returns the entries from a number on.
    pub(crate) fn from(&self, first: RequestId) -> impl Iterator<Item = (RequestId, &T)> {
        let pages = self.pages.range(page_and_bit(&first).0..);
        let all = pages.flat_map(|(number, page)| page.requests(*number).zip(&page.values));
        all.skip_while(move |(request, _)| *request < first).inspect(|_| touch())
    }

    /// Returns the entries from the last one back to the first.
    pub(crate) fn backwards(&self) -> impl Iterator<Item = (RequestId, &T)> {
        let pages = self.pages.iter().rev();
        let all =
            pages.flat_map(|(number, page)| page.backwards(*number).zip(page.values.iter().rev()));
        all.inspect(|_| touch())
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = RequestId> {
        self.iter().map(|(request, _)| request)
    }

    #[cfg(any(test, feature = "tokio"))]
    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.pages.values().flat_map(|page| &page.values).inspect(|_| touch())
    }
}

impl<T> Default for PagedMap<T> {
    fn default() -> Self {
        PagedMap { pages: BTreeMap::new(), len: 0, spare: MapPage::default() }
    }
}

impl<T: fmt::Debug> fmt::Debug for PagedMap<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

/// The page of a request, and its bit there.
fn page_and_bit(request: &RequestId) -> (u64, u64) {
    (request.0 / PAGE, 1 << (request.0 % PAGE))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Inserts and removes entries in many orders, and compares the map with a tree.
    #[test]
    fn it_has_what_a_tree_has_in_the_same_order() {
        let (mut ledger, mut tree) = (PagedMap::default(), BTreeMap::new());
        let mut number = 1_u64;
        for cx in 0..20_000_u64 {
            // Any sequence will do that returns to present entries.
            number = number
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            let request = RequestId((number >> 40) % 500);
            if number >> 63 == 0 {
                ledger.insert(request, cx);
                tree.insert(request, cx);
            } else {
                assert_eq!(ledger.remove(&request), tree.remove(&request));
            }
            assert_eq!((ledger.len(), ledger.is_empty()), (tree.len(), tree.is_empty()));
            assert_eq!(ledger.get(&request), tree.get(&request));
            assert_eq!(ledger.get_mut(&request).copied(), tree.get(&request).copied());
        }
        assert!(ledger.keys().eq(tree.keys().copied()) && ledger.values().eq(tree.values()));
        for first in (0..520).map(RequestId) {
            assert!(
                ledger
                    .from(first)
                    .eq(tree.range(first..).map(|(request, value)| (*request, value)))
            );
        }
        assert!(ledger.backwards().eq(tree.iter().rev().map(|(request, value)| (*request, value))));
        let all: Vec<(RequestId, u64)> = tree.into_iter().collect();
        assert!(ledger.iter().map(|(request, value)| (request, *value)).eq(all));
    }

    #[test]
    fn two_with_the_same_content_are_equal_however_they_came_by_it() {
        let (mut one, mut other) = (PagedMap::default(), PagedMap::default());
        (0..1000).for_each(|number| one.insert(RequestId(number), number));
        (0..1000).filter(|number| number % 100 != 7).for_each(|number| {
            one.remove(&RequestId(number));
        });
        (0..10)
            .rev()
            .for_each(|number| other.insert(RequestId(number * 100 + 7), number * 100 + 7));
        assert_eq!(one, other);
        // The map does not keep the memory of removed entries either.
        assert!(one.pages.values().all(|page| page.values.capacity() <= 4));
    }
}
