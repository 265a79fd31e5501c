//! The protected resource: it refuses tokens lower than the highest that it has seen, and equal
//! tokens of another lineage. It shows the users' view of the locks.

use crate::history::Key;
use elderlock::protocol::{LineageId, Token};
use std::collections::BTreeMap;

/// A fenced resource for each lock.
#[derive(Clone, Debug, Default)]
pub struct Store {
    highest: BTreeMap<Key, (Token, LineageId)>,
    /// The number of writes that the store took.
    pub taken: u64,
    /// The number of writes that the store refused for their token.
    pub refused: u64,
}

impl Store {
    /// A write under `token`. Returns whether it was taken.
    pub fn write(&mut self, key: &Key, token: Token, lineage: LineageId) -> bool {
        let highest = self.highest.entry(key.clone()).or_insert((token, lineage));
        let taken = token > highest.0 || (token, lineage) == *highest;
        if taken {
            *highest = (token, lineage);
            self.taken += 1;
        } else {
            self.refused += 1;
        }
        taken
    }
}
