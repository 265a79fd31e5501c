//! `NameMap`: a tree of names behind a filter.
//!
//! In most cases a queried name is absent. In a tree of a million names it takes several cache
//! misses to find that out; with the [filter](CountingBloomFilter) it takes one. The filter follows
//! the tree, which can be changed only here.
//!
//! A filter is made for a number of names. It is replaced when there are twice as many names, or
//! half as many. The new filter is not made at once, since no operation may walk through all names.
//! The **current** filter remains in use. Meanwhile each change of the tree moves a few more names
//! into the **next** filter, in their order:
//! ```text
//!              up to the mark       behind the mark
//! current      all names            all names
//! next         all names            none
//! ```
//! A name that is added or removed is counted in the next filter only if it is not behind the mark.
//! A name behind the mark is moved in its turn, if it is still in the tree. When the mark has
//! passed the last name, the next filter becomes the current one.
//!
//! - The current filter has all names of the tree, or no pages: then it tells of every name that it
//!   may be there.
//! - The next filter has the names of the tree up to the mark.
//! - A change of the tree moves at most [`MAX_MOVED_NAMES`] names, and frees at most one page. A
//!   new filter starts with a word for each page. A page is allocated with its first name.
//! - A small map has no filter, and uses no memory for it.
//! - The filters are not part of a map's value: two `NameMap` with the same tree are equal.

use super::bloom_filter::{CountingBloomFilter, FilterSpot};
use crate::protocol::id::LockName;
use std::collections::{BTreeMap, btree_map};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::{Bound, Deref};

/// The number of names for which a page is made: 8 bytes for each. With twice as many names, 4
/// bytes each, the filter lets one in 20 absent names through to the tree.
const PER_PAGE: usize = 512;

/// The most names that one change moves. So the next filter is complete before the number of names
/// has changed by a seventh.
const MAX_MOVED_NAMES: usize = 8;

/// The value of each name. Reads go to the tree.
#[derive(Clone)]
pub(super) struct NameMap<V> {
    tree: BTreeMap<LockName, V>,
    filters: Option<Box<FilterPair>>,
}

#[derive(Clone, Default)]
struct FilterPair {
    current: CountingBloomFilter,
    next: Option<NextFilter>,
    /// The former filter, of which some pages are left.
    spent: CountingBloomFilter,
}

#[derive(Clone)]
struct NextFilter {
    filter: CountingBloomFilter,
    /// The last name that was moved, even if it was removed since.
    mark: Option<LockName>,
}

impl<V> NameMap<V> {
    pub(super) fn new() -> NameMap<V> {
        NameMap { tree: BTreeMap::new(), filters: None }
    }

    /// Returns whether the map has the name. In most cases it has not.
    pub(super) fn contains_key(&self, name: &LockName) -> bool {
        self.filters.as_ref().is_none_or(|filters| filters.may_have(name))
            && self.tree.contains_key(name)
    }

    /// Inserts `first` for an absent name, or applies `beside` to the present value. Searches for
    /// the name once.
    pub(super) fn put(
        &mut self,
        name: &LockName,
        first: impl FnOnce() -> V,
        beside: impl FnOnce(&mut V) -> bool,
    ) -> bool {
        match self.tree.entry(name.clone()) {
            btree_map::Entry::Vacant(free) => {
                free.insert(first());
                self.note(name, CountingBloomFilter::add);
                true
            }
            btree_map::Entry::Occupied(mut used) => beside(used.get_mut()),
        }
    }

    /// Applies `is_last` to the name's value, and removes the value if it returns `true`. Searches
    /// for the name once.
    pub(super) fn take(&mut self, name: &LockName, is_last: impl FnOnce(&mut V) -> bool) {
        if let btree_map::Entry::Occupied(mut used) = self.tree.entry(name.clone())
            && is_last(used.get_mut())
        {
            used.remove();
            self.note(name, CountingBloomFilter::remove);
        }
    }

    /// Removes names while `left` allows it. The map is used no more.
    pub(super) fn shed(&mut self, left: &mut usize) {
        self.filters = None;
        while *left > 0 && self.tree.pop_first().is_some() {
            *left -= 1;
        }
    }

    /// Updates the filters after a name was added or removed.
    fn note(&mut self, name: &LockName, change: fn(&mut CountingBloomFilter, FilterSpot)) {
        if let Some(filters) = &mut self.filters {
            let spot = FilterSpot::of(name);
            change(&mut filters.current, spot);
            if let Some(NextFilter { filter, mark }) = &mut filters.next
                && mark.as_ref().is_some_and(|mark| name <= mark)
            {
                change(filter, spot);
            }
        }
        self.continue_filter();
    }

    /// Continues the work on the filters by one step.
    fn continue_filter(&mut self) {
        let len = self.tree.len();
        if self.filters.is_none() && len < PER_PAGE {
            return;
        }
        if len < PER_PAGE / 2 {
            self.filters = None;
            return;
        }
        let filters = self.filters.get_or_insert_default();
        filters.spent.shed();
        if let Some(next) = &mut filters.next {
            if next.go_on(&self.tree) {
                filters.spent =
                    std::mem::replace(&mut filters.current, std::mem::take(&mut next.filter));
                filters.next = None;
            }
        } else if !is_fit(filters.current.pages(), len) {
            filters.next = Some(NextFilter {
                filter: CountingBloomFilter::new((len / PER_PAGE).max(1)),
                mark: None,
            });
        }
    }
}

impl FilterPair {
    /// Never inlined: otherwise even a caller without filters would have to save registers.
    #[inline(never)]
    fn may_have(&self, name: &LockName) -> bool {
        self.current.may_have(FilterSpot::of(name))
    }
}

impl NextFilter {
    /// Moves some names. Returns whether none are left.
    fn go_on<V>(&mut self, tree: &BTreeMap<LockName, V>) -> bool {
        let behind = self.mark.as_ref().map_or(Bound::Unbounded, Bound::Excluded);
        let (mut moved, mut last) = (0, None);
        let ahead = tree.range::<LockName, _>((behind, Bound::Unbounded));
        for (name, _) in ahead.take(MAX_MOVED_NAMES) {
            self.filter.add(FilterSpot::of(name));
            (moved, last) = (moved + 1, Some(name));
        }
        self.mark = last.or(self.mark.as_ref()).cloned();
        moved < MAX_MOVED_NAMES
    }
}

/// Returns whether a filter of this many pages suits this many names.
fn is_fit(pages: usize, names: usize) -> bool {
    let made_for = pages * PER_PAGE;
    (made_for / 2..=made_for * 2).contains(&names)
}

impl<V> Deref for NameMap<V> {
    type Target = BTreeMap<LockName, V>;

    fn deref(&self) -> &BTreeMap<LockName, V> {
        &self.tree
    }
}

impl<V: PartialEq> PartialEq for NameMap<V> {
    fn eq(&self, other: &NameMap<V>) -> bool {
        self.tree == other.tree
    }
}

impl<V: Eq> Eq for NameMap<V> {}

impl<V: Hash> Hash for NameMap<V> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tree.hash(state);
    }
}

impl<V: fmt::Debug> fmt::Debug for NameMap<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tree.fmt(f)
    }
}

#[cfg(test)]
mod tests;
