//! The lock table of one service: who holds what, and who waits in which order.
//!
//! - A name is in the table only while it is held or waited for: an idle name costs nothing.
//! - Every operation finds its request by key; none scans a queue.
//! - It knows no time, no tokens' origin and no messages: the grantor does.

use super::event::LockStatus;
use super::id::{LockName, Metadata, ProcessId, RequestId, Ticket, Token};
use super::message::HolderInfo;
use std::collections::{BTreeMap, BTreeSet};

/// A request, wherever it comes from.
pub(crate) type Key = (ProcessId, RequestId);

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Hold {
    key: Key,
    token: Token,
    metadata: Metadata,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Waiter {
    key: Key,
    metadata: Metadata,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Lock {
    hold: Option<Hold>,
    queue: BTreeMap<Ticket, Waiter>,
}

/// Where a request stands.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) enum Place {
    /// It holds.
    Holds(Token),
    /// It waits.
    Waits(Ticket),
}

/// All locks of one service that are held or waited for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Table {
    locks: BTreeMap<LockName, Lock>,
    requests: BTreeMap<Key, (LockName, Place)>,
    /// Free names with waiters: to be granted as soon as the grantor may.
    free: BTreeSet<LockName>,
}

impl Table {
    /// How many locks and requests it has.
    pub(crate) fn size(&self) -> usize {
        self.locks.len() + self.requests.len() + self.free.len()
    }

    /// Where the request stands, if it is known.
    pub(crate) fn place(&self, key: Key) -> Option<Place> {
        self.requests.get(&key).map(|(_, place)| *place)
    }

    /// Whether nobody holds the lock or waits for it.
    pub(crate) fn is_idle(&self, name: &LockName) -> bool {
        !self.locks.contains_key(name)
    }

    /// Who holds the lock.
    pub(crate) fn holder(&self, name: &LockName) -> Option<HolderInfo> {
        let hold = self.locks.get(name)?.hold.as_ref()?;
        Some(HolderInfo { process: hold.key.0, token: hold.token, metadata: hold.metadata.clone() })
    }

    /// Puts a request at its place in the queue.
    pub(crate) fn wait(&mut self, key: Key, name: LockName, ticket: Ticket, metadata: Metadata) {
        let lock = self.locks.entry(name.clone()).or_default();
        lock.queue.insert(ticket, Waiter { key, metadata });
        if lock.hold.is_none() {
            self.free.insert(name.clone());
        }
        self.requests.insert(key, (name, Place::Waits(ticket)));
    }

    /// Records a hold of a lock that nobody holds.
    pub(crate) fn hold(&mut self, key: Key, name: LockName, token: Token, metadata: Metadata) {
        let lock = self.locks.entry(name.clone()).or_default();
        debug_assert!(lock.hold.is_none(), "a lock has one hold");
        lock.hold = Some(Hold { key, token, metadata });
        self.free.remove(&name);
        self.requests.insert(key, (name, Place::Holds(token)));
    }

    /// Records a hold that a member reported. If the lock is held already the higher token wins; returns the loser.
    pub(crate) fn claim(&mut self, key: Key, name: LockName, token: Token, metadata: Metadata) -> Option<Key> {
        match self.locks.get(&name).and_then(|lock| lock.hold.as_ref()) {
            Some(hold) if hold.key == key => None,
            Some(hold) if hold.token > token => Some(key),
            Some(hold) => {
                let loser = hold.key;
                self.end(loser);
                self.hold(key, name, token, metadata);
                Some(loser)
            }
            None => {
                self.hold(key, name, token, metadata);
                None
            }
        }
    }

    /// Forgets a request, whether it holds or waits. Unknown ones are ignored.
    pub(crate) fn end(&mut self, key: Key) {
        let Some((name, place)) = self.requests.remove(&key) else { return };
        let Some(lock) = self.locks.get_mut(&name) else { return };
        match place {
            Place::Holds(_) => lock.hold = None,
            Place::Waits(ticket) => {
                lock.queue.remove(&ticket);
            }
        }
        if lock.queue.is_empty() {
            self.free.remove(&name);
            if lock.hold.is_none() {
                self.locks.remove(&name);
            }
        } else if lock.hold.is_none() {
            self.free.insert(name);
        }
    }

    /// Forgets all requests of a process.
    pub(crate) fn end_all(&mut self, process: ProcessId) {
        let range = (process, RequestId(0))..=(process, RequestId(u64::MAX));
        let keys: Vec<Key> = self.requests.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            self.end(key);
        }
    }

    /// All requests, with the token of those that hold.
    pub(crate) fn requests(&self) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.requests.iter().map(|((process, request), (_, place))| match place {
            Place::Holds(token) => (*process, *request, Some(*token)),
            Place::Waits(_) => (*process, *request, None),
        })
    }

    /// Whether some lock is free and waited for.
    pub(crate) fn has_next(&self) -> bool {
        !self.free.is_empty()
    }

    /// Gives the first free lock with waiters to its first waiter.
    pub(crate) fn grant_next(&mut self, token: Token) -> Option<Key> {
        let name = self.free.pop_first()?;
        let lock = self.locks.get_mut(&name).expect("a free name with waiters is in the table");
        let (_, waiter) = lock.queue.pop_first().expect("a free name in this set has a waiter");
        lock.hold = Some(Hold { key: waiter.key, token, metadata: waiter.metadata });
        self.requests.insert(waiter.key, (name, Place::Holds(token)));
        Some(waiter.key)
    }

    /// What people see.
    pub(crate) fn status(&self) -> Vec<LockStatus> {
        let status = |(name, lock): (&LockName, &Lock)| LockStatus {
            name: name.clone(),
            holder: self.holder(name),
            waiters: lock.queue.len(),
        };
        self.locks.iter().map(status).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::super::id::{Epoch, ViewNumber};
    use super::*;

    fn token(n: u32) -> Token {
        Token::new(ViewNumber(1), n)
    }

    fn ticket(number: u64) -> Ticket {
        Ticket { epoch: Epoch(token(0)), number }
    }

    fn key(n: u64) -> Key {
        (ProcessId(u128::from(n % 3)), RequestId(n))
    }

    fn name(text: &str) -> LockName {
        LockName::new(text.as_bytes()).expect("a good name")
    }

    #[test]
    fn waiters_are_served_by_ticket_and_an_idle_name_leaves_nothing() {
        let mut table = Table::default();
        table.hold(key(1), name("x"), token(1), Metadata::default());
        for n in [4, 2, 3] {
            table.wait(key(n), name("x"), ticket(n), Metadata::default());
        }
        assert!(!table.has_next());
        table.end(key(3));
        table.end(key(1));
        assert_eq!(table.grant_next(token(2)), Some(key(2)));
        table.end(key(2));
        assert_eq!(table.grant_next(token(3)), Some(key(4)));
        table.end(key(4));
        assert_eq!(table, Table::default());
    }

    #[test]
    fn of_two_claims_the_higher_token_wins_in_either_order() {
        for (first, second) in [(1, 2), (2, 1)] {
            let mut table = Table::default();
            assert_eq!(table.claim(key(first), name("x"), token(first as u32), Metadata::default()), None);
            assert_eq!(table.claim(key(second), name("x"), token(second as u32), Metadata::default()), Some(key(1)));
            assert_eq!(table.holder(&name("x")).map(|holder| holder.token), Some(token(2)));
            assert_eq!(table.place(key(1)), None);
        }
    }

    #[test]
    fn a_departed_process_leaves_neither_holds_nor_waits() {
        let mut table = Table::default();
        for n in 1..=9 {
            if n <= 3 {
                table.hold(key(n), name(&n.to_string()), token(n as u32), Metadata::default());
            } else {
                table.wait(key(n), name(&(n % 3 + 1).to_string()), ticket(n), Metadata::default());
            }
        }
        for process in 0..3 {
            table.end_all(ProcessId(process));
        }
        assert_eq!(table, Table::default());
    }
}
