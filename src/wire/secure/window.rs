//! `ReplayWindow`: the numbers of one sender that were opened.

/// The distance by which a datagram may follow a later one: seconds of a busy sender.
pub const WINDOW: u64 = 1024;
const WORDS: usize = WINDOW as usize / 64;

/// The latest numbers of one sender, as a ring of bits (RFC 6479). A query does not change the
/// window: a number is noted only after its datagram's tag was found right.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ReplayWindow {
    /// The number after the highest noted one.
    next: u64,
    /// Bit `number % WINDOW`, for the `WINDOW` numbers below `next`.
    seen: [u64; WORDS],
}

impl ReplayWindow {
    /// Returns whether a datagram of this number is neither too old nor noted.
    pub fn is_fresh(&self, number: u64) -> bool {
        // The last number stays unused, so that `next` does not overflow.
        if number >= self.next {
            return number < u64::MAX;
        }
        self.next - number <= WINDOW && self.seen[word(number)] & bit(number) == 0
    }

    /// Notes a number; `false` if it is not fresh, and nothing changes.
    pub fn note(&mut self, number: u64) -> bool {
        if !self.is_fresh(number) {
            return false;
        }
        if number >= self.next {
            if number - self.next >= WINDOW {
                self.seen = [0; WORDS];
            } else {
                for skipped in self.next..number {
                    self.seen[word(skipped)] &= !bit(skipped);
                }
            }
            self.next = number + 1;
        }
        self.seen[word(number)] |= bit(number);
        true
    }
}

fn word(number: u64) -> usize {
    (number % WINDOW / 64) as usize
}

fn bit(number: u64) -> u64 {
    1 << (number % 64)
}
