//! Kept locks: a member that locks the same name again and again keeps the lock after its release,
//! and grants it to itself until another member asks for it. docs/protocol/kept-locks.md has the
//! messages and the deaths.
//!
//! - At its grantor a kept lock is the hold of the request that was granted, its *place*.
//! - `exclusive_by_lease`: a keep ends before its lock may be granted elsewhere. It is given back
//!   (`Release` of its place), or the request that uses it takes its place (`KeepInUse`) and is an
//!   ordinary hold from then on.
//! - A keep ends with the epoch of its grantor: a report has the requests that hold, and no keep
//!   that is free.

use super::*;

/// The first version of the wire in which a member can keep a lock.
const VERSION: u16 = 13;
/// The most locks that a member keeps.
const MOST: usize = 1 << 10;
/// The most names of which a member remembers that it locked them.
const REMEMBERED: usize = 1 << 12;
/// How many tokens a member asks for first, and once it has used up such a range.
const RANGES: [u32; 2] = [1 << 6, 1 << 12];

/// A name of a service, the service by its number among the client's services.
type KeepKey = (u32, LockName);

/// The kept locks of a member.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct KeptLocks {
    names: BTreeMap<KeepKey, KeptName>,
    /// The names by the requests that were granted them to keep.
    places: BTreeMap<RequestId, KeepKey>,
    /// The names by the requests that use them.
    users: BTreeMap<RequestId, KeepKey>,
    /// When each name is looked at next. It may be too early.
    agenda: BTreeSet<(Time, KeepKey)>,
}

/// A name that the member has locked lately.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct KeptName {
    /// Until then the name is remembered.
    until: Time,
    /// Another member wanted it: it is not kept again while it is remembered.
    is_recalled: bool,
    /// How many tokens to ask for.
    wish: u32,
    lock: Option<KeptLock>,
}

/// A kept lock.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct KeptLock {
    /// The request that was granted it, and its owner.
    place: RequestId,
    owner: OwnerId,
    /// The request that uses it; `None`: it is free.
    user: Option<RequestId>,
    /// The next token of its range, and how many are left.
    next: Token,
    left: u32,
    /// Since when it is free, and the last request that used it.
    free_since: Time,
    last_user: RequestId,
}

/// Returns whether all members of the view understand that a lock is kept.
pub(crate) fn speaks_of_keeping(cx: &StepContext) -> bool {
    cx.view.is_some_and(|view| view.version >= VERSION)
}

impl KeptLocks {
    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    pub(super) fn deadline(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }

    /// The kept locks of a service, or all.
    fn kept_of(&self, service: Option<u32>) -> Vec<KeepKey> {
        let is_meant = |key: &&KeepKey| service.is_none_or(|number| number == key.0);
        self.places.values().inspect(|_| touch()).filter(is_meant).cloned().collect()
    }

    fn lock(&self, key: &KeepKey) -> Option<&KeptLock> {
        self.names.get(key)?.lock.as_ref()
    }

    /// Ends the keep of a name.
    fn remove(&mut self, key: &KeepKey) -> Option<KeptLock> {
        let lock = self.names.get_mut(key)?.lock.take()?;
        self.places.remove(&lock.place);
        if let Some(user) = lock.user {
            self.users.remove(&user);
        }
        Some(lock)
    }

    /// The name is locked by this member. Returns how many tokens it wants with it: none for the
    /// first time.
    fn remember(&mut self, key: &KeepKey, now: Time, idle: Duration) -> u32 {
        let until = now + idle * 8;
        if let Some(known) = self.names.get_mut(key) {
            if known.is_recalled {
                return 0;
            }
            known.until = until;
            return known.wish;
        }
        if self.names.len() < REMEMBERED {
            let (is_recalled, wish, lock) = (false, RANGES[0], None);
            self.names.insert(key.clone(), KeptName { until, is_recalled, wish, lock });
            self.agenda.insert((until, key.clone()));
        }
        0
    }

    /// Another member wants the name.
    fn forbid(&mut self, key: &KeepKey, now: Time, idle: Duration) {
        if let Some(known) = self.names.get_mut(key) {
            known.is_recalled = true;
            known.until = now + idle * 8;
        }
    }

    /// The names that are due.
    fn take_due(&mut self, now: Time, most: u32) -> Vec<KeepKey> {
        let mut due = Vec::new();
        while due.len() < most as usize
            && self.agenda.first().is_some_and(|(at, _)| *at <= now)
            && let Some((_, key)) = self.agenda.pop_first()
        {
            touch();
            due.push(key);
        }
        due
    }
}

/// How long a free keep may be unused.
fn idle(cx: &StepContext) -> Duration {
    Duration::from_millis(250).min(cx.timing.member_lease / 16)
}

impl LockClient {
    /// The application wants something. Grants it with a token of a kept lock, or else ends the
    /// keeps that are in its way. Returns the call, if it is to go to the grantor, and how many
    /// tokens it asks for to keep its lock.
    pub(super) fn use_kept(
        &mut self,
        call: LockCall,
        cx: &mut StepContext,
    ) -> Option<(LockCall, u32)> {
        if self.kept.names.is_empty() && !call.keeps {
            return Some((call, 0));
        }
        let number = self.state(&call.service).number;
        let LockCall { lock, keeps, .. } = &call;
        let is_plain = *keeps && !lock.revocable && lock.metadata.as_bytes().is_empty();
        match &lock.want {
            Want::Lock(name) if is_plain => {
                let key = (number, name.clone());
                let wish = self.kept.remember(&key, cx.now, idle(cx));
                if let Some(token) = self.next_token(&key, call.request, cx) {
                    let request = call.request;
                    let until = self.hold(call, token, cx.now);
                    cx.out.push(Output::Answer {
                        request,
                        outcome: Outcome::Granted { token, until },
                    });
                    return None;
                }
                // A range that is used up has raised the wish.
                let known = self.kept.names.get(&key).filter(|_| wish > 0);
                let wish = known.map_or(0, |known| known.wish);
                self.end_keep(&key, cx);
                self.tell_of_owner(number, call.lock.owner, cx);
                return Some((call, wish));
            }
            Want::Suspension => self.end_keeps(Some(number), cx),
            Want::Open(_) => {}
            want => {
                for name in want.names() {
                    self.end_keep(&(number, name.clone()), cx);
                }
            }
        }
        self.tell_of_owner(number, call.lock.owner, cx);
        Some((call, 0))
    }

    /// The next token of a kept lock that is free, for this request.
    fn next_token(&mut self, key: &KeepKey, by: RequestId, cx: &StepContext) -> Option<Token> {
        let known = self.kept.names.get_mut(key)?;
        let lock = known.lock.as_mut()?;
        if lock.user.is_some() || !cx.leased || !cx.is_member {
            return None;
        }
        if lock.left == 0 {
            known.wish = RANGES[1];
            return None;
        }
        let token = lock.next;
        lock.next = token.plus(1);
        lock.left -= 1;
        (lock.user, lock.last_user) = (Some(by), by);
        self.kept.users.insert(by, key.clone());
        Some(token)
    }

    /// A request of an owner passes a suspension if that owner holds something. So the grantor has
    /// to know what it holds in place of others.
    fn tell_of_owner(&mut self, number: u32, owner: OwnerId, cx: &mut StepContext) {
        let uses = |request: &RequestId, key: &KeepKey| {
            let lock = self.kept.lock(key);
            let of_other = lock.is_some_and(|lock| lock.owner != owner);
            of_other && self.request(*request).is_some_and(|entry| entry.owner == owner)
        };
        let users = self.kept.users.iter().inspect(|_| touch());
        let used = users.filter(|(request, key)| key.0 == number && uses(request, key));
        for key in used.map(|(_, key)| key.clone()).collect::<Vec<_>>() {
            self.end_keep(&key, cx);
        }
    }

    /// A lock was granted, to be kept.
    pub(crate) fn keep(
        &mut self,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
        (token, left): (Token, u32),
        cx: &StepContext,
    ) {
        if left == 0 || !cx.leased || self.kept.places.len() >= MOST || !cx.is_dealt(token) {
            return;
        }
        let Some(state) = self.states.get(service) else { return };
        let Some(entry) = state.requests.get(&request) else { return };
        let Want::Lock(name) = &entry.want else { return };
        let holds =
            matches!(entry.state, ClientRequestState::Held { token: own, .. } if own == token);
        // Another request of this member that waits for it has asked the grantor already.
        let is_wanted = |other: &ClientRequest| {
            other.want == Want::Suspension || other.want.names().contains(name)
        };
        if !holds
            || state.newest != Some(epoch)
            || state.reported.is_some_and(|reported| reported > epoch)
            || state.waits.len() > 64
            || state.waiting().any(is_wanted)
        {
            return;
        }
        let key = (state.number, name.clone());
        let owner = entry.owner;
        let Some(known) = self.kept.names.get_mut(&key) else { return };
        if known.lock.is_some() || known.is_recalled {
            return;
        }
        known.lock = Some(KeptLock {
            place: request,
            owner,
            user: Some(request),
            next: token.plus(1),
            left,
            free_since: cx.now,
            last_user: request,
        });
        self.kept.places.insert(request, key.clone());
        self.kept.users.insert(request, key);
    }

    /// A request that uses a kept lock is over. Returns whether the lock stays with this member.
    pub(super) fn stays_kept(&mut self, request: RequestId, cx: &mut StepContext) -> bool {
        let Some(key) = self.kept.users.get(&request).cloned() else { return false };
        if !cx.leased || !cx.is_member {
            self.end_keep(&key, cx);
            return false;
        }
        self.kept.users.remove(&request);
        let Some(known) = self.kept.names.get_mut(&key) else { return false };
        let Some(lock) = &mut known.lock else { return false };
        (lock.user, lock.free_since) = (None, cx.now);
        known.until = cx.now + idle(cx) * 8;
        self.kept.agenda.insert((cx.now + idle(cx), key));
        self.forget(request);
        true
    }

    /// Ends the keep that a request uses: the grantor knows that request from now on.
    pub(super) fn end_keep_of(&mut self, request: RequestId, cx: &mut StepContext) {
        let kept = &self.kept;
        if let Some(key) = kept.users.get(&request).or(kept.places.get(&request)).cloned() {
            self.end_keep(&key, cx);
        }
    }

    /// Ends the keep that a request uses, has used last or was granted: its end is to be confirmed.
    pub(super) fn end_keep_once_used(&mut self, over: RequestId, cx: &mut StepContext) {
        self.end_keep_of(over, cx);
        for key in self.kept.kept_of(None) {
            if self.kept.lock(&key).is_some_and(|lock| lock.last_user == over) {
                self.end_keep(&key, cx);
            }
        }
    }

    /// Ends all keeps of a service, or of all.
    pub(super) fn end_keeps(&mut self, service: Option<u32>, cx: &mut StepContext) {
        for key in self.kept.kept_of(service) {
            self.end_keep(&key, cx);
        }
    }

    fn end_keep(&mut self, key: &KeepKey, cx: &mut StepContext) {
        let Some(service) = self.names.get(key.0 as usize).cloned() else { return };
        let Some(state) = self.states.get(&service) else { return };
        let grantor = state.grantor.map(|(process, _)| process).or(state.last);
        self.end_keep_at((key, &service), grantor, cx);
    }

    /// Ends a keep, and tells that process of it. A grantor that does not know it asks for a
    /// report.
    fn end_keep_at(
        &mut self,
        (key, service): (&KeepKey, &ServiceName),
        grantor: Option<ProcessId>,
        cx: &mut StepContext,
    ) {
        let Some(KeptLock { place, user, .. }) = self.kept.remove(key) else { return };
        if let Some(user) = user.filter(|user| *user != place)
            && let Some(entry) = self.request_mut(user)
        {
            entry.stand_in_place_of(place);
        }
        let Some(grantor) = grantor else { return };
        let word = match user {
            None => GrantorMessage::Release { service: service.clone(), request: place },
            Some(user) => {
                match self.states.get(service).and_then(|state| state.in_use(service, user)) {
                    Some(word) => word,
                    None => return,
                }
            }
        };
        cx.send(grantor, word);
    }

    /// Another member wants a lock that this member was granted to keep.
    pub(crate) fn on_recall(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        place: RequestId,
        cx: &mut StepContext,
    ) {
        if let Some(key) = self.kept.places.get(&place).cloned() {
            self.kept.forbid(&key, cx.now, idle(cx));
            return self.end_keep_at((&key, service), Some(from), cx);
        }
        // It is no keep any more, or never was: the grantor hears that it is an ordinary hold.
        let in_use = self.states.get(service).and_then(|state| state.in_use(service, place));
        if let Some(word) = in_use {
            cx.send(from, word);
        }
    }

    /// A grantor of a later epoch asks: all keeps of the service are over.
    pub(super) fn end_keeps_with_epoch(
        &mut self,
        service: &ServiceName,
        grantor: ProcessId,
        cx: &mut StepContext,
    ) {
        let Some(number) = self.states.get(service).map(|state| state.number) else { return };
        for key in self.kept.kept_of(Some(number)) {
            if self.kept.lock(&key).is_some_and(|lock| lock.user.is_none()) {
                self.kept.remove(&key);
            } else {
                self.end_keep_at((&key, service), None, cx);
            }
        }
        // The grantor may have, or get, a table with the requests in whose place others hold.
        let Some(state) = self.states.get(service) else { return };
        for (user, entry) in state.requests.iter() {
            if entry.place().is_some()
                && let Some(word) = state.in_use(service, user)
            {
                cx.send(grantor, word);
            }
        }
    }

    /// Keeps that have been unused for long, and names that are forgotten.
    pub(super) fn look_at_kept(&mut self, cx: &mut StepContext) {
        if self.kept.agenda.is_empty() {
            return;
        }
        for key in self.kept.take_due(cx.now, cx.limits.slice) {
            let Some(known) = self.kept.names.get(&key) else { continue };
            let idle = idle(cx);
            let next = match &known.lock {
                Some(KeptLock { user: None, free_since, .. }) => *free_since + idle,
                Some(_) => cx.now + idle,
                None => known.until,
            };
            if next > cx.now {
                self.kept.agenda.insert((next, key));
            } else if known.lock.is_some() {
                self.end_keep(&key, cx);
                self.kept.agenda.insert((cx.now + idle, key));
            } else {
                self.kept.names.remove(&key);
            }
        }
    }
}

impl ServiceState {
    /// The message that a request holds in place of another, or in its own.
    fn in_use(&self, service: &ServiceName, by: RequestId) -> Option<GrantorMessage> {
        let entry = self.requests.get(&by)?;
        let (ClientRequestState::Held { token, .. } | ClientRequestState::Won(token, _)) =
            entry.state
        else {
            return None;
        };
        let (service, request, owner) = (service.clone(), entry.place().unwrap_or(by), entry.owner);
        Some(GrantorMessage::KeepInUse { service, request, by, owner, token })
    }
}
