//! What the clients of a World asked for and what came of it.

use elderlock::protocol::{
    LockName, Look, LostReason, Metadata, Outcome, Owner, ProcessId, RequestId, Revoke, ServiceName, Time, Token, Wait,
    Want,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A lock of a service; without a name: its suspension.
pub type Key = (ServiceName, Option<LockName>);

/// What a client wants.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Deed {
    /// To hold something.
    Hold(Want),
    /// That its member becomes the grantor.
    Become,
    /// That all of its member's part in the service ends.
    Destroy,
    /// To know.
    Look(Look),
    /// To have a hold back.
    Revoke(Revoke),
}

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
    /// Of which service.
    pub service: ServiceName,
    /// What it wants.
    pub deed: Deed,
    /// What it wants to hold: one lock, the locks of a batch in their order, or the suspension.
    pub keys: Vec<Key>,
    /// On whose behalf.
    pub owner: Owner,
    /// What it says of itself.
    pub metadata: Metadata,
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

/// A lock for people: `service/name`, or `service/*` for the suspension.
pub fn lock_name((service, name): &Key) -> String {
    let name = name.as_ref().map_or("*".into(), |name| String::from_utf8_lossy(name.as_bytes()));
    format!("{}/{name}", service.as_str())
}

impl Call {
    /// What it is about, for people: its first lock, or its service.
    pub fn lock(&self) -> String {
        self.keys.first().map_or_else(|| self.service.as_str().to_string(), lock_name)
    }

    /// Whether both are about one lock, or about the suspension.
    pub fn shares(&self, other: &Call) -> bool {
        self.keys.iter().any(|key| other.keys.contains(key))
    }

    /// Whether it wants the suspension of the service.
    pub fn suspends(&self) -> bool {
        self.deed == Deed::Hold(Want::Suspension)
    }

    /// Each lock that it was granted, with its token.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        let first = self.token();
        let nth = move |index: usize| first.map(|first| nth(first, index));
        self.keys.iter().enumerate().filter_map(move |(index, key)| Some((key, nth(index)?)))
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

/// The token of a batch's lock, by its place among the names.
pub fn nth(first: Token, index: usize) -> Token {
    Token::new(first.view(), first.sequence() + index as u32)
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
        // A batch stands at each of its locks.
        self.claims.iter().flat_map(move |(key, asks)| {
            asks.iter().copied().filter(move |ask| self.calls[ask.0].keys.first() == Some(key))
        })
    }

    /// The claims of suspensions.
    pub fn suspensions(&self) -> impl Iterator<Item = Ask> + '_ {
        self.claims.iter().filter(|((_, name), _)| name.is_none()).flat_map(|(_, asks)| asks.iter().copied())
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
        self.calls.iter().flat_map(|call| call.keys.iter().cloned()).collect()
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
                for key in &call.keys {
                    self.claims.entry(key.clone()).or_default().insert(ask);
                }
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
        for key in &self.calls[ask.0].keys {
            if let Some(claims) = self.claims.get_mut(key) {
                claims.remove(&ask);
                if claims.is_empty() {
                    self.claims.remove(key);
                }
            }
        }
    }
}
