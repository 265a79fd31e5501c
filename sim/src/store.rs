//! What the locks protect: a resource that refuses tokens lower than the highest it has seen. The judge for users.

use crate::history::Key;
use elderlock::protocol::Token;
use std::collections::BTreeMap;

/// A fenced resource for each lock.
#[derive(Clone, Debug, Default)]
pub struct Store {
    highest: BTreeMap<Key, Token>,
    /// Writes taken.
    pub taken: u64,
    /// Writes refused for their token.
    pub refused: u64,
}

impl Store {
    /// A write under `token`. Returns whether it was taken.
    pub fn write(&mut self, key: &Key, token: Token) -> bool {
        let highest = self.highest.entry(key.clone()).or_insert(token);
        let taken = token >= *highest;
        if taken {
            *highest = token;
            self.taken += 1;
        } else {
            self.refused += 1;
        }
        taken
    }
}
