//! `CountingBloomFilter`: tells for nearly every name that is not in a set that it is not there,
//! with one access to memory.
//!
//! A counting Bloom filter in split blocks. The hash of a name selects one block, and one of eight
//! counters in each of its four rows. Adding a name raises these four counters, and removing it
//! lowers them. A name with a counter at zero is not in the set. Other names may have raised all
//! four, so four raised counters prove nothing.
//!
//! - The filter never says no for a name that was added and not removed.
//! - A counter at its maximum stays there. The filter then says no less often than possible, but
//!   never wrongly.
//! - The hash is the same in every run. A program that knows it may find names that share their
//!   counters, but gains nothing. For such names the set itself is asked, as if there were no
//!   filter.
//! - No name costs more than one block, and memory is allocated and freed in pages.

use crate::protocol::id::LockName;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Four rows of eight counters of 4 bits, within one cache line.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(16))]
struct FilterBlock([u32; 4]);

/// The unit of allocation: 4 KiB.
type FilterPage = [FilterBlock; BLOCKS];

const BLOCKS: usize = 256;

/// The highest count.
const FULL: u32 = 15;

/// Counts the names in a set.
#[derive(Clone, Default)]
pub(super) struct CountingBloomFilter {
    /// The pages; `None`: all counters of the page are zero.
    pages: Vec<Option<Box<FilterPage>>>,
}

/// The place at which a name is counted.
#[derive(Clone, Copy)]
pub(super) struct FilterSpot(u64);

impl FilterSpot {
    pub(super) fn of(name: &LockName) -> FilterSpot {
        FilterSpot(FixedState::default().hash_one(name))
    }

    /// The index of the block for this hash: by its highest bits.
    fn block(self, blocks: usize) -> usize {
        ((u128::from(self.0) * blocks as u128) >> u64::BITS) as usize
    }

    /// Returns the bit offset of the counter in each row: by the lowest bits of the hash.
    fn counters(self) -> [u32; 4] {
        [0, 3, 6, 9].map(|bit| (self.0 >> bit & 7) as u32 * 4)
    }
}

impl CountingBloomFilter {
    /// An empty filter with room for `pages` pages.
    pub(super) fn new(pages: usize) -> CountingBloomFilter {
        CountingBloomFilter { pages: vec![None; pages] }
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether a name may be in the set. Without pages the filter always says so.
    pub(super) fn may_have(&self, spot: FilterSpot) -> bool {
        let at = spot.block(self.pages.len() * BLOCKS);
        let Some(page) = self.pages.get(at / BLOCKS) else { return true };
        let Some(page) = page else { return false };
        // All four are read without a branch: the branch predictor could not foresee which one is
        // zero.
        let counts = page[at % BLOCKS]
            .0
            .into_iter()
            .zip(spot.counters())
            .map(|(row, counter)| row >> counter & FULL);
        counts.fold(true, |may, count| may & (count != 0))
    }

    /// Adds a name that is not in the set.
    pub(super) fn add(&mut self, spot: FilterSpot) {
        self.change(spot, |count| count + 1);
    }

    /// Removes a name that is in the set.
    pub(super) fn remove(&mut self, spot: FilterSpot) {
        self.change(spot, |count| count.saturating_sub(1));
    }

    fn change(&mut self, spot: FilterSpot, change: impl Fn(u32) -> u32) {
        let at = spot.block(self.pages.len() * BLOCKS);
        let Some(page) = self.pages.get_mut(at / BLOCKS) else { return };
        let page = page.get_or_insert_with(|| Box::new([FilterBlock([0; 4]); BLOCKS]));
        for (row, counter) in page[at % BLOCKS].0.iter_mut().zip(spot.counters()) {
            let count = *row >> counter & FULL;
            if count != FULL {
                *row ^= (count ^ change(count)) << counter;
            }
        }
    }

    /// Frees the memory of a page. From then on the filter's answers are meaningless.
    pub(super) fn shed(&mut self) {
        if self.pages.pop().is_some() && self.pages.is_empty() {
            self.pages = Vec::new();
        }
    }
}

#[cfg(test)]
impl CountingBloomFilter {
    /// The number of allocated pages.
    pub(super) fn filled(&self) -> usize {
        self.pages.iter().flatten().count()
    }

    /// The values of all counters.
    pub(super) fn counts(&self) -> Vec<u32> {
        let empty = [FilterBlock([0; 4]); BLOCKS];
        self.pages
            .iter()
            .flat_map(|page| *page.as_deref().unwrap_or(&empty))
            .flat_map(|block| block.0)
            .collect()
    }
}
