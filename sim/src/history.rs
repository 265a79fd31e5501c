//! The requests of the clients of a World, and their outcomes.

use elderlock::protocol::{
    HolderInfo, LockName, LostReason, Metadata, Outcome, OwnerId, ProcessId, Query, RequestId,
    RevokeCommand, ServiceName, Time, Token, Value, Wait, Want,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A lock of a service; without a name: its suspension.
pub type Key = (ServiceName, Option<LockName>);

/// The requests of clients.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum ClientRequest {
    /// Hold something, or open an object.
    Hold(Want),
    /// Change the value of the object that the call has open; with a version, only if the object
    /// still has that version.
    Put(Ask, Value, Option<Token>),
    /// Add to the number in the object that the call has open.
    Add(Ask, i32),
    /// Make the share that the call has the lock.
    Upgrade(Ask),
    /// Make the client's member the grantor.
    Become,
    /// End the whole part of the client's member in the service.
    Destroy,
    /// Query the grantor.
    Query(Query),
    /// Ask a holder's member about its hold.
    AskHolder(HolderInfo),
    /// Request a revocation, or force it.
    Revoke(RevokeCommand),
}

/// The mode of a hold: beside which other holds it may stand.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum HoldMode {
    /// No other hold may stand beside this hold.
    Alone,
    /// Other shares may stand beside this share.
    Share,
    /// A number of permits, beside others up to the limit.
    Permits(u32),
    /// An open object, beside all others: it is not a lock.
    Open,
}

impl HoldMode {
    /// The mode of a want.
    pub fn of(want: &Want) -> HoldMode {
        match want {
            Want::Lock(_) | Want::Batch(_) | Want::Suspension => HoldMode::Alone,
            Want::Share(_) => HoldMode::Share,
            Want::Permits(_, count) => HoldMode::Permits(count.get()),
            Want::Open(_) => HoldMode::Open,
        }
    }

    /// Returns whether two holds of these modes may stand beside each other.
    pub fn suffers(self, other: HoldMode) -> bool {
        matches!(
            (self, other),
            (HoldMode::Share, HoldMode::Share)
                | (HoldMode::Permits(_), HoldMode::Permits(_))
                | (HoldMode::Open, _)
                | (_, HoldMode::Open)
        )
    }
}

/// A client's view of an object.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct ObjectView {
    /// The version, a token.
    pub version: Token,
    /// The value.
    pub value: Value,
    /// Whether a later version may have been lost.
    pub stale: bool,
}

/// One request of one client: its handle is its index in [`History::calls`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ask(pub usize);

/// One request of one client.
#[derive(Clone, Hash, Debug)]
pub struct Call {
    /// The site of its member.
    pub member: usize,
    /// The process that asked.
    pub process: ProcessId,
    /// Its request number at that process.
    pub request: RequestId,
    /// The service.
    pub service: ServiceName,
    /// The request itself.
    pub request_kind: ClientRequest,
    /// The locks that it wants to hold: one lock, the locks of a batch in their order, or the
    /// suspension.
    pub keys: Vec<Key>,
    /// The object that it opens or changes.
    pub object: Option<Key>,
    /// The mode of its hold, or of its future hold: a lock may become a share, a share a lock,
    /// permits fewer.
    pub mode: HoldMode,
    /// The mode that a pending upgrade or reduction asks for. Until its outcome is known, the
    /// grantor may have the hold in either mode.
    pub pending_mode: Option<HoldMode>,
    /// The latest upgrade of the hold.
    pub upgrade: Option<Ask>,
    /// The call had the lock, and has a share of it since: its grantor may not know yet.
    pub reduced: bool,
    /// The present view of its open object.
    pub sight: Option<ObjectView>,
    /// The owner.
    pub owner: OwnerId,
    /// Its metadata.
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
    /// The answer to the request; `None`: there is none yet.
    pub outcome: Option<Outcome>,
    /// When it was answered, in true time.
    pub answered: u64,
    /// The token of its hold: that of the grant, or of the upgrade.
    pub fence: Option<Token>,
    /// The end of the hold's lease.
    pub until: Time,
    /// Why the hold ended, if it was lost.
    pub lost: Option<LostReason>,
    /// The client released the hold.
    pub released: bool,
    /// When the client released it, in true time.
    pub released_at: u64,
    /// The process of the call has ended.
    pub gone: bool,
}

/// A lock for people: `service/name`, or `service/*` for the suspension.
pub fn lock_name((service, name): &Key) -> String {
    let name = name.as_ref().map_or("*".into(), |name| String::from_utf8_lossy(name.as_bytes()));
    format!("{}/{name}", service.as_str())
}

impl Call {
    /// Its subject, for people: its first lock, or its service.
    pub fn lock(&self) -> String {
        let key = self.keys.first().or(self.object.as_ref());
        key.map_or_else(|| self.service.as_str().to_string(), lock_name)
    }

    /// Returns whether both calls are about one lock, or about the suspension.
    pub fn shares(&self, other: &Call) -> bool {
        self.keys.iter().any(|key| other.keys.contains(key))
    }

    /// Returns whether the call wants the suspension of the service.
    pub fn suspends(&self) -> bool {
        self.request_kind == ClientRequest::Hold(Want::Suspension)
    }

    /// Returns whether the two calls, in their present modes, cannot hold at once.
    pub fn clashes(&self, other: &Call) -> bool {
        !self.mode.suffers(other.mode) && self.shares(other)
    }

    /// Returns whether the call has a single lock, which may become a share.
    pub fn may_be_shared(&self) -> bool {
        self.mode == HoldMode::Alone
            && matches!(self.request_kind, ClientRequest::Hold(Want::Lock(_) | Want::Share(_)))
    }

    /// Returns whether the call has an object open, or wants to.
    pub fn opens(&self) -> bool {
        matches!(self.request_kind, ClientRequest::Hold(Want::Open(_)))
    }

    /// Returns whether a grantor may know the call by this want: in its present, former or next
    /// mode.
    pub fn may_be_known_as(&self, want: &Want) -> bool {
        let ClientRequest::Hold(asked) = &self.request_kind else { return false };
        let may_be = |mode| {
            mode == self.mode
                || self.pending_mode == Some(mode)
                || (self.reduced && mode == HoldMode::Alone)
        };
        match (asked, want) {
            (Want::Lock(name) | Want::Share(name), Want::Lock(other) | Want::Share(other)) => {
                name == other && may_be(HoldMode::of(want))
            }
            (Want::Permits(name, all), Want::Permits(other, left)) => {
                let HoldMode::Permits(mine) = self.mode else { return false };
                name == other && (mine..=all.get()).contains(&left.get())
            }
            // The value may have changed since.
            (Want::Open(opening), Want::Open(other)) => opening.name() == other.name(),
            _ => asked == want,
        }
    }

    /// Each lock that the call was granted, with its token.
    pub fn tokens(&self) -> impl Iterator<Item = (&Key, Token)> {
        let first = self.token();
        let nth = move |index: usize| first.map(|first| nth(first, index));
        self.keys.iter().enumerate().filter_map(move |(index, key)| Some((key, nth(index)?)))
    }

    /// The token of its grant or upgrade.
    pub fn token(&self) -> Option<Token> {
        self.fence
    }

    /// Returns whether the client still waits for an answer.
    pub fn is_open(&self) -> bool {
        self.outcome.is_none() && !self.released && !self.gone
    }

    /// Returns whether the call was granted, and its end was neither told to the client nor caused
    /// by the client.
    pub fn is_claim(&self) -> bool {
        self.is_granted() && self.lost.is_none() && !self.released && !self.gone
    }

    /// Returns whether the call was granted, or opened.
    pub fn is_granted(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Granted { .. } | Outcome::Opened { .. }))
    }
}

/// The token of a batch's lock, by its index among the names.
pub fn nth(first: Token, index: usize) -> Token {
    first.plus(index as u64)
}

/// All requests of all clients.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// The calls in the order of asking.
    pub calls: Vec<Call>,
    by_request: BTreeMap<(ProcessId, RequestId), Ask>,
    open: BTreeSet<Ask>,
    claims: BTreeMap<Key, BTreeSet<Ask>>,
    /// The calls that have each object open.
    opened: BTreeMap<Key, BTreeSet<Ask>>,
    /// Grants answered.
    pub grants: u64,
}

impl History {
    /// Adds a new request.
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

    /// The request with this handle.
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
        self.claims
            .iter()
            .filter(|((_, name), _)| name.is_none())
            .flat_map(|(_, asks)| asks.iter().copied())
    }

    /// The claims of one lock.
    pub fn claims_of(&self, key: &Key) -> impl Iterator<Item = Ask> + '_ {
        self.claims.get(key).into_iter().flatten().copied()
    }

    /// All calls that have an object open.
    pub fn opened(&self) -> impl Iterator<Item = Ask> + '_ {
        self.opened.values().flatten().copied()
    }

    /// The calls that have this object open.
    pub fn opened_of(&self, key: &Key) -> impl Iterator<Item = Ask> + '_ {
        self.opened.get(key).into_iter().flatten().copied()
    }

    /// All objects that were ever asked for.
    pub fn objects(&self) -> BTreeSet<Key> {
        self.calls.iter().filter_map(|call| call.object.clone()).collect()
    }

    /// Returns whether the same process has asked for something of the same service after `call`.
    pub fn was_used_since(&self, call: &Call) -> bool {
        let of_it = |later: &Call| (later.process, &later.service) == (call.process, &call.service);
        self.calls.iter().rev().any(|later| of_it(later) && later.request > call.request)
    }

    /// Locks with more than one claim.
    pub fn crowded(&self) -> impl Iterator<Item = (&Key, &BTreeSet<Ask>)> {
        self.claims.iter().filter(|(_, claims)| claims.len() > 1)
    }

    /// All locks that were ever asked for.
    pub fn keys(&self) -> BTreeSet<Key> {
        self.calls.iter().flat_map(|call| call.keys.iter().cloned()).collect()
    }

    /// Notes the answer to a call.
    pub(crate) fn answer(&mut self, ask: Ask, outcome: Outcome, now: u64) {
        let call = &mut self.calls[ask.0];
        self.open.remove(&ask);
        call.answered = now;
        let opened = matches!(outcome, Outcome::Opened { .. });
        if let Outcome::Granted { token, until } = outcome {
            call.until = until;
            call.fence = Some(token);
            self.grants += 1;
        }
        if (opened || call.fence.is_some()) && !call.released {
            for key in &call.keys {
                self.claims.entry(key.clone()).or_default().insert(ask);
            }
            if let Some(key) = call.object.as_ref().filter(|_| opened) {
                self.opened.entry(key.clone()).or_default().insert(ask);
            }
        }
        call.outcome = Some(outcome);
    }

    /// Notes that the client asks for another mode of its hold, by this upgrade.
    pub(crate) fn mode_requested(&mut self, ask: Ask, mode: HoldMode, upgrade: Ask) {
        self.calls[ask.0].pending_mode = Some(mode);
        self.calls[ask.0].upgrade = Some(upgrade);
    }

    /// Notes that the hold has become the lock, with this token, or has kept its mode.
    pub(crate) fn mode_changed(&mut self, ask: Ask, token: Option<Token>) {
        let call = &mut self.calls[ask.0];
        if token.is_some() {
            (call.mode, call.fence) = (HoldMode::Alone, token);
        }
    }

    /// Notes that the grantor has answered this upgrade, and all before it. If no later upgrade is
    /// under way, the grantor knows the present mode and token of the hold.
    pub(crate) fn is_settled(&mut self, ask: Ask, upgrade: Ask) {
        let call = &mut self.calls[ask.0];
        if call.upgrade <= Some(upgrade) {
            call.pending_mode = None;
        }
    }

    /// Notes that the lock of the call is a share from now on.
    pub(crate) fn downgrade(&mut self, ask: Ask) {
        self.calls[ask.0].mode = HoldMode::Share;
        self.calls[ask.0].reduced = true;
    }

    /// The client returns some of its permits.
    pub(crate) fn return_permits(&mut self, ask: Ask, count: u32) {
        if let HoldMode::Permits(left) = &mut self.calls[ask.0].mode {
            *left = left.saturating_sub(count);
        }
    }

    /// Notes that the client sees another value.
    pub(crate) fn see(&mut self, ask: Ask, sight: ObjectView) {
        self.calls[ask.0].sight = Some(sight);
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

    /// The client released the hold.
    pub(crate) fn release(&mut self, ask: Ask, now: u64) {
        self.calls[ask.0].released = true;
        self.calls[ask.0].released_at = now;
        self.unclaim(ask);
    }

    /// The process ended. Returns the calls with an unknown future: its requests without an answer,
    /// and its holds.
    pub(crate) fn end_process(&mut self, process: ProcessId) -> Vec<Ask> {
        let of_it: Vec<Ask> =
            self.open.iter().copied().chain(self.claims()).chain(self.opened()).collect();
        let of_it: Vec<Ask> =
            of_it.into_iter().filter(|ask| self.calls[ask.0].process == process).collect();
        for &ask in &of_it {
            self.calls[ask.0].gone = true;
            self.unclaim(ask);
        }
        of_it
    }

    fn unclaim(&mut self, ask: Ask) {
        self.open.remove(&ask);
        if let Some(key) = &self.calls[ask.0].object
            && let Some(opened) = self.opened.get_mut(key)
        {
            opened.remove(&ask);
            if opened.is_empty() {
                self.opened.remove(key);
            }
        }
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
