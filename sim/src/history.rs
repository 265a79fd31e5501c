//! What the clients of a World asked for and what came of it.

use elderlock::protocol::{LockName, LostReason, Outcome, ProcessId, RequestId, ServiceName, Time, Token, Wait};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A lock of a service.
pub type Key = (ServiceName, LockName);

/// One request of one client: its handle is its place in [`History::calls`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ask(pub usize);

/// One request of one client.
#[derive(Clone, Hash, Debug)]
pub struct Call {
    /// The place of its member.
    pub member: usize,
    /// The process that asked.
    pub process: ProcessId,
    /// Its number there.
    pub request: RequestId,
    /// What it wants.
    pub key: Key,
    /// How it waits.
    pub wait: Wait,
    /// How long it may hold.
    pub lease: Option<Duration>,
    /// When it was asked, in true time.
    pub asked: u64,
    /// When it was asked, by the member's clock.
    pub asked_local: Time,
    /// How often the member had been stopped by then.
    pub pauses: u64,
    /// The answer.
    pub outcome: Option<Outcome>,
    /// When it was answered, in true time.
    pub answered: u64,
    /// The end of the hold's lease.
    pub until: Time,
    /// Why the hold ended, if it was lost.
    pub lost: Option<LostReason>,
    /// The client gave it back or no longer wants it.
    pub released: bool,
    /// When it did so, in true time.
    pub released_at: u64,
    /// Its process is no more.
    pub gone: bool,
}

/// A lock for people: `service/name`.
pub fn lock_name(key: &Key) -> String {
    format!("{}/{}", key.0.as_str(), String::from_utf8_lossy(key.1.as_bytes()))
}

impl Call {
    /// Its lock for people.
    pub fn lock(&self) -> String {
        lock_name(&self.key)
    }

    /// The token of its grant.
    pub fn token(&self) -> Option<Token> {
        match self.outcome {
            Some(Outcome::Granted { token, .. }) => Some(token),
            _ => None,
        }
    }

    /// Whether the client still waits for an answer.
    pub fn is_open(&self) -> bool {
        self.outcome.is_none() && !self.released && !self.gone
    }

    /// Whether it was granted and nobody has told the client, or was told by it, that this is over.
    pub fn is_claim(&self) -> bool {
        self.token().is_some() && self.lost.is_none() && !self.released && !self.gone
    }
}

/// All requests of all clients.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// In the order of asking.
    pub calls: Vec<Call>,
    by_request: BTreeMap<(ProcessId, RequestId), Ask>,
    open: BTreeSet<Ask>,
    claims: BTreeMap<Key, BTreeSet<Ask>>,
    /// Grants answered.
    pub grants: u64,
}

impl History {
    /// Writes down a new request.
    pub fn add(&mut self, call: Call) -> Ask {
        let ask = Ask(self.calls.len());
        self.by_request.insert((call.process, call.request), ask);
        self.open.insert(ask);
        self.calls.push(call);
        ask
    }

    /// The request with this number.
    pub fn find(&self, process: ProcessId, request: RequestId) -> Option<Ask> {
        self.by_request.get(&(process, request)).copied()
    }

    /// One request.
    pub fn call(&self, ask: Ask) -> &Call {
        &self.calls[ask.0]
    }

    /// Requests without an answer.
    pub fn open(&self) -> impl Iterator<Item = Ask> + '_ {
        self.open.iter().copied()
    }

    /// All claims: granted, and not known to be over.
    pub fn claims(&self) -> impl Iterator<Item = Ask> + '_ {
        self.claims.values().flatten().copied()
    }

    /// The claims of one lock.
    pub fn claims_of(&self, key: &Key) -> impl Iterator<Item = Ask> + '_ {
        self.claims.get(key).into_iter().flatten().copied()
    }

    /// Locks with more than one claim.
    pub fn crowded(&self) -> impl Iterator<Item = (&Key, &BTreeSet<Ask>)> {
        self.claims.iter().filter(|(_, claims)| claims.len() > 1)
    }

    /// All locks that were ever asked for.
    pub fn keys(&self) -> BTreeSet<Key> {
        self.calls.iter().map(|call| call.key.clone()).collect()
    }

    /// The answer came.
    pub(crate) fn answer(&mut self, ask: Ask, outcome: Outcome, now: u64) {
        let call = &mut self.calls[ask.0];
        self.open.remove(&ask);
        call.answered = now;
        if let Outcome::Granted { until, .. } = outcome {
            call.until = until;
            self.grants += 1;
            if !call.released {
                self.claims.entry(call.key.clone()).or_default().insert(ask);
            }
        }
        call.outcome = Some(outcome);
    }

    /// The hold was extended.
    pub(crate) fn extend(&mut self, ask: Ask, until: Time) {
        self.calls[ask.0].until = until;
    }

    /// The hold was lost.
    pub(crate) fn lose(&mut self, ask: Ask, reason: LostReason) {
        self.calls[ask.0].lost = Some(reason);
        self.unclaim(ask);
    }

    /// The client gave it back.
    pub(crate) fn release(&mut self, ask: Ask, now: u64) {
        self.calls[ask.0].released = true;
        self.calls[ask.0].released_at = now;
        self.unclaim(ask);
    }

    /// The process ended. Returns what nobody can tell of any more: its requests without an answer, and its holds.
    pub(crate) fn end_process(&mut self, process: ProcessId) -> Vec<Ask> {
        let of_it: Vec<Ask> =
            self.open.iter().copied().chain(self.claims()).filter(|ask| self.calls[ask.0].process == process).collect();
        for &ask in &of_it {
            self.calls[ask.0].gone = true;
            self.unclaim(ask);
        }
        of_it
    }

    fn unclaim(&mut self, ask: Ask) {
        self.open.remove(&ask);
        let key = &self.calls[ask.0].key;
        if let Some(claims) = self.claims.get_mut(key) {
            claims.remove(&ask);
            if claims.is_empty() {
                self.claims.remove(key);
            }
        }
    }
}
