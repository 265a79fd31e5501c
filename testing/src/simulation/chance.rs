//! Chance without a generator: every decision is a hash of its subject.
//!
//! The fate of the n-th packet from one member to another depends only on the seed, the two members
//! and n. So taking one fault out of a run leaves all other chance unchanged, and a run can be
//! shrunk.

use std::hash::Hasher;
use std::marker::PhantomData;

/// Mixes numbers into one, with the finalizer of splitmix64 after each.
pub fn mix(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |hash, part| {
        let mut z = (hash ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    })
}

/// A stream of hashes for plans that are drawn all at once.
#[derive(Clone, Debug)]
pub struct Rng {
    seed: u64,
    stream: u64,
    rolls: u64,
}

impl Rng {
    /// The stream `stream` of `seed`. Different streams are independent of each other.
    pub fn new(seed: u64, stream: u64) -> Rng {
        Rng { seed, stream, rolls: 0 }
    }

    /// The next number.
    pub fn roll(&mut self) -> u64 {
        self.rolls += 1;
        mix(&[self.seed, self.stream, self.rolls])
    }

    /// A number below `limit`, which is not zero.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.roll() % limit.max(1)
    }

    /// A number from `low` to `high`, ends included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True `ppm` times in a million.
    pub fn chance(&mut self, ppm: u32) -> bool {
        self.below(1_000_000) < u64::from(ppm)
    }

    /// A value of the slice, which must not be empty.
    pub fn pick<'a, T>(&mut self, these: &'a [T]) -> &'a T {
        &these[self.below(these.len() as u64) as usize]
    }
}

/// The steps of a hasher of words.
pub trait WordSink {
    /// The state after this word.
    fn take(state: u64, word: u64) -> u64;
    /// The final hash of a state.
    fn end(state: u64) -> u64;
}

/// A hasher that takes every number as one word, so that equal values are equal on machines of any
/// byte order and word width.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PortableHasher<T> {
    state: u64,
    take: PhantomData<T>,
}

/// The digest of a run so far; equal runs have equal digests.
pub type Digest = PortableHasher<WordMixer>;

/// Mixes each word into the state.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WordMixer;

impl WordSink for WordMixer {
    fn take(state: u64, word: u64) -> u64 {
        mix(&[state, word])
    }

    fn end(state: u64) -> u64 {
        state
    }
}

impl<T: WordSink> PortableHasher<T> {
    /// A hasher with this initial state.
    pub fn new(state: u64) -> PortableHasher<T> {
        PortableHasher { state, take: PhantomData }
    }
}

impl<T: WordSink> Hasher for PortableHasher<T> {
    fn finish(&self) -> u64 {
        T::end(self.state)
    }

    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u8(&mut self, number: u8) {
        self.write_u64(u64::from(number));
    }

    fn write_u16(&mut self, number: u16) {
        self.write_u64(u64::from(number));
    }

    fn write_u32(&mut self, number: u32) {
        self.write_u64(u64::from(number));
    }

    fn write_u64(&mut self, number: u64) {
        self.state = T::take(self.state, number);
    }

    fn write_u128(&mut self, number: u128) {
        self.write_u64(number as u64);
        self.write_u64((number >> 64) as u64);
    }

    fn write_usize(&mut self, number: usize) {
        self.write_u64(number as u64);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::hash::Hash;

    /// The digest depends on the value of a number, not on its layout in memory.
    #[test]
    fn a_digest_is_the_same_on_every_machine() {
        let digest = |what: &dyn Fn(&mut Digest)| {
            let mut digest = Digest::new(7);
            what(&mut digest);
            digest.finish()
        };
        let of_words = digest(&|digest| {
            [1_u64, 2, 3, 4, 0].into_iter().for_each(|word| digest.write_u64(word))
        });
        assert_eq!(of_words, 0xa41a_333b_8cbc_a0b3, "and from one version to the next");
        assert_eq!(digest(&|digest| (1_u8, 2_u32, 3_usize, 4_u128).hash(digest)), of_words);
        assert_ne!(digest(&|digest| (1_u8, 2_u32, 4_usize, 3_u128).hash(digest)), of_words);
        assert_eq!(
            digest(&|digest| digest.write(&[1, 2])),
            digest(&|digest| digest.write_u64(0x201))
        );
    }

    #[test]
    fn the_same_question_has_the_same_answer_and_rates_are_kept() {
        assert_eq!(mix(&[1, 2, 3]), mix(&[1, 2, 3]));
        assert_ne!(mix(&[1, 2, 3]), mix(&[1, 3, 2]));
        let mut rng = Rng::new(7, 0);
        let hits = (0..100_000).filter(|_| rng.chance(200_000)).count();
        assert!((19_000..21_000).contains(&hits), "{hits}");
    }
}
