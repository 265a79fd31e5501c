//! Keeping locks, using kept locks and releasing keeps. `kept_locks.rs` has the data.

use super::kept_locks::{KeepKey, KeepUsers, KeptLock};
use super::*;
use crate::protocol::message::{HoldReport, LockRequest, TokenRange};

/// Returns whether a lock may be kept, and may be granted again by its keeper: no other process
/// needs to know anything of its holder.
fn is_plain(lock: &LockRequest) -> bool {
    !lock.revocable && lock.metadata.as_bytes().is_empty()
}

/// How long a free keep may be unused. It is released within a quarter of this time afterwards:
/// after 250 ms or a sixteenth of the member lease at most.
fn idle(cx: &StepContext) -> Duration {
    Duration::from_millis(200).min(cx.timing.member_lease / 20)
}

impl LockClient {
    /// Carries out a call with a token of a kept lock, or ends the keeps in its way. If the grantor
    /// must decide the call, returns it and the number of tokens for a keep of its lock.
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
        match &lock.want {
            want @ (Want::Lock(name) | Want::Share(name)) if *keeps && is_plain(lock) => {
                let (key, is_share) = ((number, name.clone()), matches!(want, Want::Share(_)));
                let range_size =
                    self.kept.remember(&key, (cx.now, idle(cx)), cx.limits.link.kept_locks);
                if let Some(token) = self.next_kept_token(&key, (call.request, is_share), cx) {
                    let request = call.request;
                    let until = self.hold(call, token, cx.now);
                    cx.out.push(Output::Answer {
                        request,
                        outcome: Outcome::Granted { token, until },
                    });
                    return None;
                }
                // A range that is used up has raised the size.
                let known = self.kept.names.get(&key).filter(|_| range_size > 0);
                let range_size = known.map_or(0, |known| known.range_size);
                self.end_keep(&key, cx);
                self.tell_of_owner(number, call.lock.owner, cx);
                return Some((call, range_size));
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

    /// The request by which the grantor knows this hold, if it is another one.
    pub(crate) fn place_of(&self, request: RequestId) -> Option<RequestId> {
        let lock = self.kept.users.get(&request).and_then(|key| self.kept.lock(key));
        let place = match lock {
            Some(lock) => Some(lock.place),
            None => self.kept.place_of(request),
        };
        place.filter(|place| *place != request)
    }

    /// The kept locks: for each its place, and whether it is in use.
    pub(crate) fn kept(&self) -> impl Iterator<Item = (RequestId, bool)> {
        let locks = self.kept.names.values().filter_map(|known| known.lock.as_ref());
        locks.map(|lock| (lock.place, !lock.users.is_empty()))
    }

    /// For each service the number of locks that this member keeps, and of those in use.
    pub(crate) fn kept_counts(&self) -> BTreeMap<&ServiceName, [usize; 2]> {
        let mut counts: BTreeMap<&ServiceName, [usize; 2]> = BTreeMap::new();
        for key in self.kept.places.values() {
            let (Some(service), Some(lock)) = (self.names.get(key.0 as usize), self.kept.lock(key))
            else {
                continue;
            };
            let [kept, in_use] = counts.entry(service).or_default();
            *kept += 1;
            *in_use += usize::from(!lock.users.is_empty());
        }
        counts
    }

    /// The next token of a kept lock that is free, or of a kept share, in a full step.
    fn next_kept_token(
        &mut self,
        key: &KeepKey,
        (by, is_share): (RequestId, bool),
        cx: &StepContext,
    ) -> Option<Token> {
        if cx.leased && cx.is_member { self.kept.next_token(key, by, is_share) } else { None }
    }

    /// Holds a lock, or a share of one, of a service that another member grants. The request holds
    /// at once if this member keeps the lock free, or keeps a share. The member's lease runs.
    /// Returns the token and the end of the lease.
    pub(crate) fn hold_kept_at_once(
        &mut self,
        call: impl FnOnce() -> LockCall,
        (request, service, lock): (RequestId, &ServiceName, &LockRequest),
        now: Time,
    ) -> Option<(Token, Time)> {
        let (name, is_share) = lock.want.lock_or_share()?;
        if self.kept.places.is_empty() || !self.has_room() || !is_plain(lock) {
            return None;
        }
        let key = (self.states.get(service)?.number, name.clone());
        let token = self.kept.next_token(&key, request, is_share)?;
        Some((token, self.hold(call(), token, now)))
    }

    /// The remaining tokens of a lock that this member keeps free.
    pub(crate) fn kept_tokens(&self, service: &ServiceName, name: &LockName) -> Option<TokenRange> {
        if self.kept.places.is_empty() || !self.has_room() {
            return None;
        }
        let lock = self.kept.lock(&(self.states.get(service)?.number, name.clone()))?;
        let others = lock.left.checked_sub(1)?;
        let range = TokenRange { first: lock.next, last: lock.next.plus(others.into()) };
        (lock.users.is_empty() && !lock.is_share).then_some(range)
    }

    /// Notes that local grants have used tokens of a kept lock. `holder`: the request that holds
    /// the lock with the last of them, and its owner.
    pub(crate) fn absorb_kept(
        &mut self,
        service: &ServiceName,
        KeptUse { name, spent, since }: KeptUse,
        holder: Option<(RequestId, OwnerId)>,
    ) {
        let Some(number) = self.states.get(service).map(|state| state.number) else { return };
        let key = (number, name.clone());
        let known = self.kept.names.get_mut(&key);
        let Some(lock) = known.and_then(|known| known.lock.as_mut()) else { return };
        debug_assert!(spent <= lock.left && lock.users.is_empty(), "the tokens were offered");
        let last = lock.next.plus(u64::from(spent).saturating_sub(1));
        lock.next = lock.next.plus(spent.into());
        lock.left = lock.left.saturating_sub(spent);
        lock.free_since = since;
        let Some((request, owner)) = holder else { return };
        lock.users.insert(request);
        lock.last_user = request;
        self.kept.users.insert(request, key);
        self.hold(LockCall::taken(request, service.clone(), (name, owner)), last, since);
    }

    /// Ends a hold of a lock that this member keeps. The member's lease runs. `false`: it keeps no
    /// such lock.
    pub(crate) fn end_kept_at_once(&mut self, request: RequestId, now: Time) -> bool {
        let is_free = self.kept.set_free(request, now);
        if is_free {
            self.forget(request);
        }
        is_free
    }

    /// Ends the keeps that this owner uses in place of other owners. An owner with a hold passes a
    /// suspension, so the grantor must know its holds.
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

    /// Keeps a lock that was granted for that.
    pub(crate) fn keep(
        &mut self,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
        (token, left): (Token, u32),
        cx: &StepContext,
    ) {
        if left == 0 || !cx.leased || !cx.is_dealt(token) {
            return;
        }
        let Some(state) = self.states.get(service) else { return };
        let Some(entry) = state.requests.get(&request) else { return };
        let Some((name, is_share)) = entry.want.lock_or_share() else { return };
        let holds =
            matches!(entry.state, ClientRequestState::Held { token: own, .. } if own == token);
        // Another waiting request of this member for the lock has asked the grantor already. Shares
        // have no order among themselves.
        let is_wanted = |other: &ClientRequest| match &other.want {
            Want::Suspension => true,
            Want::Share(other) => other == name && !is_share,
            want => want.names().contains(name),
        };
        if !holds
            || state.newest != Some(epoch)
            || state.reported.is_some_and(|reported| reported > epoch)
            || self.kept.locks_of(state.number) >= cx.limits.link.kept_locks
            || state.waits.len() > 64
            || state.waiting().any(is_wanted)
        {
            return;
        }
        planted!(=> planted::note_mutant(&mut self.kept, cx));
        let key = (state.number, name.clone());
        let owner = entry.owner;
        let known = self.kept.names.get(&key);
        if known.is_none_or(|known| known.lock.is_some() || known.is_recalled) {
            return;
        }
        let mut users = KeepUsers::default();
        users.insert(request);
        let lock = KeptLock {
            place: request,
            owner,
            is_share,
            users,
            next: token.plus(1),
            left,
            granted: left,
            since: cx.now,
            free_since: cx.now,
            last_user: request,
        };
        self.kept.add(&key, lock);
        self.kept.look_at(&key, cx.now + idle(cx), idle(cx));
    }

    /// Handles the end of a request that uses a kept lock. Returns whether the lock stays with this
    /// member.
    pub(super) fn stays_kept(&mut self, request: RequestId, cx: &mut StepContext) -> bool {
        let Some(key) = self.kept.users.get(&request).cloned() else { return false };
        if !cx.leased || !cx.is_member {
            self.end_keep(&key, cx);
            return false;
        }
        if !self.kept.set_free(request, cx.now) {
            return false;
        }
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

    /// Ends the keep of the lock of which another request has a share.
    pub(super) fn end_keep_beside(&mut self, hold: RequestId, cx: &mut StepContext) {
        let Some((service, name)) = self.held_lock(hold) else { return };
        let Some(state) = self.states.get(service) else { return };
        let key = (state.number, name.clone());
        self.end_keep(&key, cx);
    }

    /// Ends the keep that a request uses, has used last or was granted, since its end must be
    /// confirmed.
    pub(super) fn end_keep_once_used(&mut self, over: RequestId, cx: &mut StepContext) {
        self.end_keep_of(over, cx);
        if self.kept.places.is_empty() {
            return;
        }
        for key in self.kept.kept_of(None) {
            if self.kept.lock(&key).is_some_and(|lock| lock.last_user == over) {
                self.end_keep(&key, cx);
            }
        }
    }

    /// Ends all keeps of a service; `None`: of all services.
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

    /// Ends a keep, and tells that process. A grantor that does not know the keep asks for a
    /// report.
    fn end_keep_at(
        &mut self,
        (key, service): (&KeepKey, &ServiceName),
        grantor: Option<ProcessId>,
        cx: &mut StepContext,
    ) {
        let Some(KeptLock { place, users, .. }) = self.kept.remove(key) else { return };
        for user in users.iter().filter(|user| *user != place) {
            self.kept.add_stand_in(user, place);
        }
        let Some(grantor) = grantor else { return };
        if users.is_empty() || planted!(cx.mutant, ReleaseInUse) {
            let service = service.clone();
            return cx.send(grantor, GrantorMessage::Release { service, request: place });
        }
        self.send_in_use((service, place), users.iter(), (grantor, None), cx);
    }

    /// Handles a recall: another member wants a lock that this member was granted to keep.
    pub(crate) fn on_recall(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        place: RequestId,
        cx: &mut StepContext,
    ) {
        if let Some(key) = self.kept.places.get(&place).cloned() {
            if planted!(cx.mutant, UseAfterRecall)
                && self.kept.lock(&key).is_some_and(|lock| lock.users.is_empty())
            {
                let service = service.clone();
                return cx.send(from, GrantorMessage::Release { service, request: place });
            }
            self.kept.note_recall(&key, cx.now, idle(cx));
            return self.end_keep_at((&key, service), Some(from), cx);
        }
        // The keep has ended already: the grantor is told that the hold is an ordinary one.
        if self.hold_report(service, place, cx.now).is_some() {
            let users = self.kept.stand_ins_of(place).chain([place]);
            self.send_in_use((service, place), users, (from, None), cx);
        }
    }

    /// Ends all keeps of the service, since a grantor of a later epoch asks.
    pub(super) fn end_keeps_with_epoch(
        &mut self,
        service: &ServiceName,
        (grantor, epoch): (ProcessId, Epoch),
        cx: &mut StepContext,
    ) {
        let Some(number) = self.states.get(service).map(|state| state.number) else { return };
        for key in self.kept.kept_of(Some(number)) {
            if planted!(cx.mutant, KeepAcrossEpochs)
                && self.kept.lock(&key).is_some_and(|lock| lock.users.is_empty())
            {
                continue;
            }
            if self.kept.lock(&key).is_some_and(|lock| lock.users.is_empty()) {
                self.kept.remove(&key);
            } else {
                self.end_keep_at((&key, service), None, cx);
            }
        }
        // The grantor may have, or get, a table with the requests in whose place others hold.
        planted!(cx.mutant, ReportWithoutPlace => return);
        let stand_ins = self.kept.stand_ins().inspect(|_| touch());
        let of_service = stand_ins.filter(|(_, user)| self.services.get(user) == Some(&number));
        let places: BTreeSet<RequestId> = of_service.map(|(place, _)| place).collect();
        for place in places {
            // The request that was granted a share may still hold it.
            let users = self.kept.stand_ins_of(place).chain([place]);
            self.send_in_use((service, place), users, (grantor, Some(epoch)), cx);
        }
    }

    /// Ends keeps that have been unused for long, and forgets outdated names.
    pub(super) fn look_at_kept(&mut self, cx: &mut StepContext) {
        if self.kept.agenda.is_empty() {
            return;
        }
        for key in self.kept.take_due(cx.now, cx.limits.slice) {
            let Some(known) = self.kept.names.get(&key) else { continue };
            let idle = idle(cx);
            let next = match &known.lock {
                Some(lock) if lock.users.is_empty() => lock.free_since + idle,
                Some(_) => cx.now + idle,
                None => known.until,
            };
            if next > cx.now {
                self.kept.look_at(&key, next, idle);
            } else if known.lock.is_some() && planted!(cx.mutant, KeepIdleForEver) {
                self.kept.look_at(&key, cx.now + idle, idle);
            } else if known.lock.is_some() {
                self.end_keep(&key, cx);
                self.kept.look_at(&key, cx.now + idle, idle);
            } else {
                self.kept.forget_name(&key);
            }
        }
    }
}

impl LockClient {
    /// Sends `KeepInUse`: the requests that hold in place of `place`, which may be one of them.
    fn send_in_use(
        &self,
        (service, place): (&ServiceName, RequestId),
        users: impl IntoIterator<Item = RequestId>,
        (grantor, epoch): (ProcessId, Option<Epoch>),
        cx: &mut StepContext,
    ) {
        let holds = users.into_iter().filter_map(|user| self.hold_report(service, user, cx.now));
        let holds: Box<[HoldReport]> = holds.collect();
        let Some(state) = self.states.get(service) else { return };
        let known = state.newest.max(state.grantor.map(|(_, epoch)| epoch));
        if let Some(epoch) = epoch.or(known)
            && !holds.is_empty()
        {
            let service = service.clone();
            cx.send(grantor, GrantorMessage::KeepInUse { service, epoch, place, holds });
        }
    }

    /// Tells a grantor that a request is over. If other requests hold in its place, sends
    /// `KeepInUse` instead. A grantor that has the place and not these requests yet would lose them
    /// with it.
    pub(super) fn send_release(
        &self,
        service: &ServiceName,
        request: RequestId,
        grantor: ProcessId,
        cx: &mut StepContext,
    ) {
        if self.kept.stand_ins_of(request).next().is_some() {
            let users = self.kept.stand_ins_of(request);
            return self.send_in_use((service, request), users, (grantor, None), cx);
        }
        let service = service.clone();
        cx.send(grantor, GrantorMessage::Release { service, request });
    }

    fn hold_report(&self, service: &ServiceName, by: RequestId, now: Time) -> Option<HoldReport> {
        let entry = self.states.get(service)?.requests.get(&by)?;
        let (token, since) = match entry.state {
            ClientRequestState::Held { token, since, .. }
            | ClientRequestState::Won(token, since) => (token, since),
            _ => return None,
        };
        Some(HoldReport { request: by, lock: entry.lock(), token, held_for: now.since(since) })
    }

    /// Forgets a stand-in that is over.
    pub(super) fn forget_stand_in(&mut self, request: RequestId) {
        self.kept.forget_stand_in(request);
    }
}
