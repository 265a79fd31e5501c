//! `CountingBloomFilter`: finds, by one place in memory, that a name is not in a set. It finds so
//! for nearly every name that is not.
//!
//! A Bloom filter that counts, in split blocks. The hash of a name gives it one block, and one of
//! eight counters in each of the four rows of that block. The name raises these counters when it
//! comes and lowers them when it goes. A name with a counter at zero is not there. Other names may
//! have raised all four, so four raised counters do not mean yes.
//!
//! - It never says no of a name that was put in and not taken out.
//! - A counter that has reached its end stays there. The filter then says no less often than it
//!   could, and never in error.
//! - The hash is the same in every run. A program that knows the hash may find names that share
//!   their counters, and gains nothing. For those names the set itself has to be asked, as if there
//!   were no filter.
//! - No name costs more than one block, and memory comes and goes by pages.

use crate::protocol::id::LockName;
use foldhash::fast::FixedState;
use std::hash::BuildHasher;

/// Four rows of eight counters of 4 bits. It lies in one line of the cache.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(align(16))]
struct FilterBlock([u32; 4]);

/// The unit in which memory is taken and released: 4 KiB.
type FilterPage = [FilterBlock; BLOCKS];

const BLOCKS: usize = 256;

/// The highest count.
const FULL: u32 = 15;

/// Counts names that are in a set.
#[derive(Clone, Default)]
pub(super) struct CountingBloomFilter {
    /// None: all its counters are zero.
    pages: Vec<Option<Box<FilterPage>>>,
}

/// The place at which a name is counted.
#[derive(Clone, Copy)]
pub(super) struct FilterSpot(u64);

impl FilterSpot {
    pub(super) fn of(name: &LockName) -> FilterSpot {
        FilterSpot(FixedState::default().hash_one(name))
    }

    /// The block of the hash, of all blocks: by the highest bits of the hash.
    fn block(self, blocks: usize) -> usize {
        ((u128::from(self.0) * blocks as u128) >> u64::BITS) as usize
    }

    /// Returns the bit of each row at which its counter begins: by the lowest bits of the hash.
    fn counters(self) -> [u32; 4] {
        [0, 3, 6, 9].map(|bit| (self.0 >> bit & 7) as u32 * 4)
    }
}

impl CountingBloomFilter {
    /// An empty filter with room for this many pages.
    pub(super) fn new(pages: usize) -> CountingBloomFilter {
        CountingBloomFilter { pages: vec![None; pages] }
    }

    pub(super) fn pages(&self) -> usize {
        self.pages.len()
    }

    /// Returns whether a name may have been put in. Without pages it knows nothing.
    pub(super) fn may_have(&self, spot: FilterSpot) -> bool {
        let at = spot.block(self.pages.len() * BLOCKS);
        let Some(page) = self.pages.get(at / BLOCKS) else { return true };
        let Some(page) = page else { return false };
        // All four, without a branch: which of them is zero cannot be foretold.
        let counts = page[at % BLOCKS]
            .0
            .into_iter()
            .zip(spot.counters())
            .map(|(row, counter)| row >> counter & FULL);
        counts.fold(true, |may, count| may & (count != 0))
    }

    /// A name that is not in it comes.
    pub(super) fn add(&mut self, spot: FilterSpot) {
        self.change(spot, |count| count + 1);
    }

    /// A name that is in it goes.
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

    /// Gives the memory of a page back. The filter's answers mean nothing from then on.
    pub(super) fn shed(&mut self) {
        if self.pages.pop().is_some() && self.pages.is_empty() {
            self.pages = Vec::new();
        }
    }
}

#[cfg(test)]
impl CountingBloomFilter {
    /// Pages that have memory.
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
