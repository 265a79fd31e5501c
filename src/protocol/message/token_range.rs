//! `TokenRange`: tokens that the elder deals to a grantor at one time.

use crate::protocol::id::{Slot, Token};
use serde::{Deserialize, Serialize};

/// A range of tokens that the elder deals, with both ends included.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct TokenRange {
    /// The first token.
    pub first: Token,
    /// The last token.
    pub last: Token,
}

impl TokenRange {
    /// The token at index `number` of the range.
    pub fn nth(&self, number: u64) -> Option<Token> {
        (number < self.len()).then(|| self.first.plus(number))
    }

    /// The number of tokens in the range.
    pub fn len(&self) -> u64 {
        (self.last.get() - self.first.get()).saturating_add(1)
    }

    /// Returns whether the range has no token. No valid range is empty.
    pub fn is_empty(&self) -> bool {
        self.first > self.last
    }

    /// Returns whether the range is valid; checked on ranges from outside.
    pub fn is_sound(&self) -> bool {
        self.first <= self.last && self.first.slot() >= Slot(1) && self.last.slot() <= Slot::MAX
    }
}
