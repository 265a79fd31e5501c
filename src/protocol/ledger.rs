//! `Ledger`: what is kept of requests, by their numbers.
//!
//! Members number their requests as they make them, so most come in order and stand beside each other. A page has those
//! whose numbers begin the same, in order and without gaps in memory; a tree would leave its nodes half empty, which many
//! small ones do not matter for and a million held locks do.

use super::id::RequestId;
use std::collections::BTreeMap;
use std::fmt;

/// Numbers of one page: few enough that moving them costs nothing, enough that what a page costs itself does not matter.
const PAGE: u64 = 64;

type Page<T> = Vec<(RequestId, T)>;

/// An ordered map of requests.
#[derive(Clone, PartialEq, Eq, Hash)]
pub(crate) struct Ledger<T> {
    /// None of them empty.
    pages: BTreeMap<u64, Page<T>>,
    len: usize,
    /// Always empty: the memory of a page that is gone, for the next one. Or who makes one request after the other would ask
    /// for some each time.
    spare: Page<T>,
}

impl<T> Ledger<T> {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(crate) fn get(&self, request: &RequestId) -> Option<&T> {
        let page = self.pages.get(&number(request))?;
        find(page, request).ok().map(|at| &page[at].1)
    }

    pub(crate) fn get_mut(&mut self, request: &RequestId) -> Option<&mut T> {
        let page = self.pages.get_mut(&number(request))?;
        find(page, request).ok().map(|at| &mut page[at].1)
    }

    /// Puts it in the place of what was there.
    pub(crate) fn insert(&mut self, request: RequestId, value: T) {
        let spare = &mut self.spare;
        let page = self.pages.entry(number(&request)).or_insert_with(|| std::mem::take(spare));
        match find(page, &request) {
            Ok(at) => page[at].1 = value,
            Err(at) => {
                page.insert(at, (request, value));
                self.len += 1;
            }
        }
    }

    pub(crate) fn remove(&mut self, request: &RequestId) -> Option<T> {
        let number = number(request);
        let page = self.pages.get_mut(&number)?;
        let at = find(page, request).ok()?;
        let (_, value) = page.remove(at);
        self.len -= 1;
        if page.is_empty() {
            self.spare = self.pages.remove(&number).unwrap_or_default();
        } else if page.len() <= page.capacity() / 4 {
            page.shrink_to(page.len() * 2);
        }
        Some(value)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (&RequestId, &T)> {
        self.pages.values().flatten().map(|(request, value)| (request, value))
    }

    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = (&RequestId, &mut T)> {
        self.pages.values_mut().flatten().map(|(request, value)| (&*request, value))
    }

    pub(crate) fn keys(&self) -> impl Iterator<Item = &RequestId> {
        self.iter().map(|(request, _)| request)
    }

    pub(crate) fn values(&self) -> impl Iterator<Item = &T> {
        self.iter().map(|(_, value)| value)
    }

    pub(crate) fn values_mut(&mut self) -> impl Iterator<Item = &mut T> {
        self.iter_mut().map(|(_, value)| value)
    }
}

impl<T> Default for Ledger<T> {
    fn default() -> Self {
        Ledger { pages: BTreeMap::new(), len: 0, spare: Vec::new() }
    }
}

impl<T: fmt::Debug> fmt::Debug for Ledger<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_map().entries(self.iter()).finish()
    }
}

fn number(request: &RequestId) -> u64 {
    request.0 / PAGE
}

/// Where it is, or where it belongs.
fn find<T>(page: &Page<T>, request: &RequestId) -> Result<usize, usize> {
    match page.last() {
        Some((last, _)) if last < request => Err(page.len()),
        _ => page.binary_search_by_key(request, |(other, _)| *other),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Puts in and takes out in many orders what a tree is given too.
    #[test]
    fn it_has_what_a_tree_has_in_the_same_order() {
        let (mut ledger, mut tree) = (Ledger::default(), BTreeMap::new());
        let mut number = 1_u64;
        for turn in 0..20_000_u64 {
            // Any sequence will do, if it comes back to what is there.
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let request = RequestId((number >> 40) % 500);
            if number >> 63 == 0 {
                ledger.insert(request, turn);
                tree.insert(request, turn);
            } else {
                assert_eq!(ledger.remove(&request), tree.remove(&request));
            }
            assert_eq!((ledger.len(), ledger.is_empty()), (tree.len(), tree.is_empty()));
            assert_eq!(ledger.get(&request), tree.get(&request));
            assert_eq!(ledger.get_mut(&request).copied(), tree.get(&request).copied());
        }
        assert!(ledger.iter().eq(tree.iter()) && ledger.keys().eq(tree.keys()) && ledger.values().eq(tree.values()));
        assert!(
            ledger
                .iter_mut()
                .map(|(request, value)| (request, *value))
                .eq(tree.iter().map(|(request, value)| (request, *value)))
        );
    }

    #[test]
    fn two_with_the_same_content_are_equal_however_they_came_by_it() {
        let (mut one, mut other) = (Ledger::default(), Ledger::default());
        (0..1000).for_each(|number| one.insert(RequestId(number), number));
        (0..1000).filter(|number| number % 100 != 7).for_each(|number| {
            one.remove(&RequestId(number));
        });
        (0..10).rev().for_each(|number| other.insert(RequestId(number * 100 + 7), number * 100 + 7));
        assert_eq!(one, other);
        // Nor does it keep the memory of those that are gone.
        assert!(one.pages.values().all(|page| page.capacity() <= 4));
    }
}
