//! Repeatable chance: each test draws from a seed that it prints.

/// SplitMix64.
#[derive(Clone, Debug)]
pub(crate) struct Rng(u64);

impl Rng {
    /// A generator with the seed `given`, or with `ELDERLOCK_TEST_SEED` if it is set. The seed is
    /// printed.
    pub(crate) fn new(test: &str, given: u64) -> Self {
        let seed = std::env::var("ELDERLOCK_TEST_SEED")
            .ok()
            .and_then(|text| text.parse().ok())
            .unwrap_or(given);
        println!("{test}: ELDERLOCK_TEST_SEED={seed}");
        Rng(seed)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Draws a number from 0 to `limit - 1`.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for i in (1..items.len()).rev() {
            items.swap(i, self.below(i as u64 + 1) as usize);
        }
    }

    /// The delay before a fault: none, some microseconds, some milliseconds, or long enough that
    /// every exchange under way is over.
    pub(crate) fn moment(&mut self) -> std::time::Duration {
        let micros = match self.below(4) {
            0 => 0,
            1 => self.below(300),
            2 => self.below(3_000),
            _ => self.below(30_000),
        };
        std::time::Duration::from_micros(micros)
    }
}
