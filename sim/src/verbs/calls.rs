//! Calls of clients, and their holds.

use crate::history::{Ask, Call, ClientRequest, HoldMode, Key, nth};
use crate::network::MS;
use crate::world::{Observation, ScheduledEvent, World};
use elderlock::protocol::{
    self, Batch, Command, Edit, Input, LockName, LockRequest, LostReason, Metadata, Outcome,
    OwnerId, Permits, Query, RequestId, ServiceName, Time, Token, Value, Wait, Want,
};
use std::sync::Arc;
use std::time::Duration;

impl World {
    /// Asks for a lock and waits for ever; no lease.
    pub fn lock(&mut self, member: usize, service: &str, name: &str) -> Ask {
        self.ask(member, service, name, Wait::Forever, None)
    }

    /// Asks for a lock and waits for at most `ms` milliseconds.
    pub fn lock_within(&mut self, member: usize, service: &str, name: &str, ms: u64) -> Ask {
        self.ask(member, service, name, Wait::AtMost(Duration::from_millis(ms)), None)
    }

    /// Asks for a lock for `ms` milliseconds and waits for ever.
    pub fn lock_for(&mut self, member: usize, service: &str, name: &str, ms: u64) -> Ask {
        self.ask(member, service, name, Wait::Forever, Some(Duration::from_millis(ms)))
    }

    /// Asks for a lock without waiting.
    pub fn try_lock(&mut self, member: usize, service: &str, name: &str) -> Ask {
        self.ask(member, service, name, Wait::Try, None)
    }

    /// Asks for a lock.
    pub fn ask(
        &mut self,
        member: usize,
        service: &str,
        name: &str,
        wait: Wait,
        lease: Option<Duration>,
    ) -> Ask {
        let wanted = ClientRequest::Hold(Want::Lock(lock(name)));
        self.want(member, service, wanted, OwnerId::default(), wait, lease)
    }

    /// Asks for several locks, all or nothing, and waits for ever.
    pub fn lock_all(&mut self, member: usize, service: &str, names: &[&str]) -> Ask {
        let names = names.iter().copied().map(lock).collect();
        let batch = Batch::new(names).expect("a scenario's batch is good");
        self.want(
            member,
            service,
            ClientRequest::Hold(Want::Batch(batch)),
            OwnerId::default(),
            Wait::Forever,
            None,
        )
    }

    /// Asks for the suspension of a service and waits for ever.
    pub fn suspend(&mut self, member: usize, service: &str) -> Ask {
        let wanted = ClientRequest::Hold(Want::Suspension);
        self.want(member, service, wanted, OwnerId::default(), Wait::Forever, None)
    }

    /// Asks that the member becomes the grantor, and waits for ever.
    pub fn become_grantor(&mut self, member: usize, service: &str) -> Ask {
        self.want(member, service, ClientRequest::Become, OwnerId::default(), Wait::Forever, None)
    }

    /// Asks that the member's part in the service ends.
    pub fn destroy(&mut self, member: usize, service: &str) -> Ask {
        self.want(member, service, ClientRequest::Destroy, OwnerId::default(), Wait::Forever, None)
    }

    /// Asks the grantor something.
    pub fn look(&mut self, member: usize, service: &str, at: Query) -> Ask {
        self.want(member, service, ClientRequest::Query(at), OwnerId::default(), Wait::Try, None)
    }

    /// Asks for a lock with metadata, and waits for ever.
    pub fn lock_saying(&mut self, member: usize, service: &str, name: &str, says: &str) -> Ask {
        let metadata = Metadata::new(says.as_bytes()).expect("a scenario says little");
        let want = ClientRequest::Hold(Want::Lock(lock(name)));
        self.want_as(member, service, want, (OwnerId::default(), metadata), Wait::Forever, None)
    }

    /// Asks for something.
    pub fn want(
        &mut self,
        member: usize,
        service: &str,
        want: ClientRequest,
        owner: OwnerId,
        wait: Wait,
        lease: Option<Duration>,
    ) -> Ask {
        self.want_as(member, service, want, (owner, Metadata::default()), wait, lease)
    }

    /// Asks for something, for an owner and with metadata.
    pub fn want_as(
        &mut self,
        member: usize,
        service: &str,
        want: ClientRequest,
        (owner, metadata): (OwnerId, Metadata),
        wait: Wait,
        lease: Option<Duration>,
    ) -> Ask {
        let service = ServiceName::new(service).expect("a scenario's service name is good");
        let of = |want: &Want| {
            want.names().iter().map(|name| (service.clone(), Some(name.clone()))).collect()
        };
        let (keys, object): (Vec<Key>, Option<Key>) = match &want {
            ClientRequest::Hold(Want::Suspension) => (vec![(service.clone(), None)], None),
            ClientRequest::Hold(Want::Open(opening)) => {
                (Vec::new(), Some((service.clone(), Some(opening.name().clone()))))
            }
            ClientRequest::Hold(want) => (of(want), None),
            ClientRequest::Put(open, ..) | ClientRequest::Add(open, _) => {
                (Vec::new(), self.call(*open).object.clone())
            }
            ClientRequest::Become
            | ClientRequest::Destroy
            | ClientRequest::Query(_)
            | ClientRequest::AskHolder(_)
            | ClientRequest::Upgrade(_)
            | ClientRequest::Revoke(_) => (Vec::new(), None),
        };
        let mode = match &want {
            ClientRequest::Hold(want) => HoldMode::of(want),
            _ => HoldMode::Open,
        };
        // A request that is not a lock has no other limits, and is not a hold.
        let (wait, lease) = match want {
            ClientRequest::Hold(Want::Open(_)) => (wait, None),
            ClientRequest::Hold(_) => (wait, lease),
            ClientRequest::Put(..) | ClientRequest::Add(..) => (Wait::Forever, None),
            ClientRequest::Upgrade(_) => (Wait::Try, None),
            ClientRequest::Become => (wait, None),
            // The shortest wait of a revocation is longer than that of other calls.
            ClientRequest::Revoke(_) => {
                (if wait == Wait::Try { Wait::Forever } else { wait }, None)
            }
            ClientRequest::Destroy => (Wait::Forever, None),
            ClientRequest::Query(_) | ClientRequest::AskHolder(_) => (Wait::Try, None),
        };
        let now = self.now;
        let peer = &mut self.sites[member];
        let process = peer.process().expect("a client runs in a process");
        assert!(peer.is_alive(), "a client runs in a process");
        peer.requests += 1;
        let request = RequestId(peer.requests);
        let call = Call {
            member,
            process,
            request,
            service: service.clone(),
            request_kind: want.clone(),
            keys,
            object,
            mode,
            pending_mode: None,
            upgrade: None,
            reduced: false,
            sight: None,
            fence: None,
            owner,
            metadata: metadata.clone(),
            wait,
            lease,
            asked: now,
            asked_local: peer.clock.local(now),
            pauses: peer.pauses,
            outcome: None,
            answered: 0,
            until: Time::ZERO,
            lost: None,
            released: false,
            released_at: 0,
            gone: false,
        };
        let ask = Arc::make_mut(&mut self.history).add(call);
        if let ClientRequest::Upgrade(of) = want {
            Arc::make_mut(&mut self.history).mode_requested(of, HoldMode::Alone, ask);
        }
        self.tell(&Observation::Invoked { ask });
        let request_of = |of: Ask| self.call(of).request;
        self.feed(
            member,
            Input::Command(match want {
                ClientRequest::Put(open, value, expect) => Command::Write {
                    request,
                    open: request_of(open),
                    edit: Edit::Set { value, expect },
                },
                ClientRequest::Add(open, by) => {
                    let tail = Value::new(b"").expect("it is not too long");
                    let edit = Edit::Step { step: protocol::NumberEdit::Add(by), tail };
                    Command::Write { request, open: request_of(open), edit }
                }
                ClientRequest::Upgrade(of) => Command::Upgrade { request, hold: request_of(of) },
                ClientRequest::Hold(want) => {
                    let keeps = self.may_keep(self.call(ask));
                    Command::Lock {
                        request,
                        service,
                        wait,
                        lease,
                        detects: self.detects,
                        keeps,
                        follows: self.follows,
                        lock: LockRequest { want, owner, revocable: !keeps, metadata },
                    }
                }
                ClientRequest::Become => Command::Become { request, service, wait },
                ClientRequest::Destroy => Command::Destroy { request, service },
                ClientRequest::Query(at) => Command::Query { request, service, at },
                ClientRequest::AskHolder(holder) => Command::AskHolder { request, service, holder },
                ClientRequest::Revoke(what) => Command::Revoke { request, service, what, wait },
            }),
        );
        ask
    }

    /// Downgrades the lock of a call to a share. False if the call believes in no lock.
    pub fn downgrade(&mut self, ask: Ask) -> bool {
        let Some(name) = self.call(ask).keys.first().and_then(|(_, name)| name.clone()) else {
            return false;
        };
        if !self.call(ask).may_be_shared() || self.fence(ask).is_none() {
            return false;
        }
        Arc::make_mut(&mut self.history).downgrade(ask);
        self.tell(&Observation::ModeChanged { ask });
        self.go_on_with(ask, Want::Share(name));
        true
    }

    /// Returns this many permits of a call, but not all. False if the call has no more.
    pub fn return_permits(&mut self, ask: Ask, count: u32) -> bool {
        let Some(name) = self.call(ask).keys.first().and_then(|(_, name)| name.clone()) else {
            return false;
        };
        let HoldMode::Permits(left) = self.call(ask).mode else { return false };
        let Some(left) = left.checked_sub(count).and_then(|left| Permits::new(left).ok()) else {
            return false;
        };
        if self.fence(ask).is_none() {
            return false;
        }
        Arc::make_mut(&mut self.history).return_permits(ask, count);
        self.tell(&Observation::PermitsReturned { ask });
        self.go_on_with(ask, Want::Permits(name, left));
        true
    }

    fn go_on_with(&mut self, ask: Ask, want: Want) {
        let Call { member, request, .. } = *self.call(ask);
        self.feed(member, Input::Command(Command::Reduce { request, want }));
    }

    /// Releases a lock, whether it waits or holds.
    pub fn release(&mut self, ask: Ask) {
        let Call { member, process, request, .. } = *self.call(ask);
        if self.sites[member].is(process) && !self.call(ask).gone {
            Arc::make_mut(&mut self.history).release(ask, self.now);
            self.tell(&Observation::Released { ask });
            self.feed(member, Input::Command(Command::Release { request }));
        }
    }

    /// The client drops its future, or its guard, after this time.
    pub fn give_up_after(&mut self, ask: Ask, after: Duration) {
        self.schedule(after.as_nanos() as u64, ScheduledEvent::GiveUp { ask });
    }

    /// The client drops its future, or the guard that came of it, this long after the answer; zero:
    /// before it has read the answer.
    pub fn give_up_when_answered(&mut self, ask: Ask, after: Duration) {
        if self.is_answered(ask) {
            self.give_up_after(ask, after);
        } else {
            self.give_up_after.insert(ask, after);
        }
    }

    /// The client drops its future or guard. A stopped client does so when it wakes.
    pub(crate) fn give_up(&mut self, ask: Ask) {
        let call = self.call(ask);
        let (member, process, over) = (call.member, call.process, call.released || call.gone);
        if self.is_paused(member) && self.sites[member].is(process) {
            self.schedule(5 * MS, ScheduledEvent::GiveUp { ask });
        } else if !over {
            self.release(ask);
        }
    }

    /// The client no longer wants a lock.
    pub fn cancel(&mut self, ask: Ask) {
        self.release(ask);
    }

    /// Lets a hold last at least `ms` milliseconds from now.
    pub fn extend(&mut self, ask: Ask, ms: u64) {
        let Call { member, process, request, .. } = *self.call(ask);
        if self.sites[member].is(process) {
            let lease = Duration::from_millis(ms);
            self.feed(member, Input::Command(Command::Extend { request, lease }));
        }
    }

    /// The token, if the guard would give it now: granted, not told lost, its lease and the
    /// member's lease running.
    pub fn fence(&self, ask: Ask) -> Option<Token> {
        let call = self.call(ask);
        let peer = &self.sites[call.member];
        let local = peer.clock.local(self.now);
        let believed = call.is_claim()
            && peer.is(call.process)
            && local < call.until
            && local < peer.lease_end();
        let token = call.token().filter(|_| believed);
        if peer.is(call.process) {
            let cores = peer.node.as_ref().and_then(|node| node.fence(call.request, local));
            // A change of mode may not be told yet in the middle of a step.
            assert!(
                call.released || call.pending_mode.is_some() || token == cores,
                "the guard says {token:?}, the core {cores:?}: {call:?}"
            );
        }
        token
    }

    /// Writes to the protected resource, if `fence` allows it. Returns whether it did.
    pub fn write(&mut self, ask: Ask) -> bool {
        // A holder of a share, or of permits, reads.
        let alone = self.call(ask).mode == HoldMode::Alone;
        let Some(token) = self.fence(ask).filter(|_| alone) else { return false };
        self.write_all(ask, token, true);
        true
    }

    /// Writes to each resource that the call's locks protect, with a token that `fence` gave
    /// earlier. Returns whether all writes were taken.
    pub fn write_with(&mut self, ask: Ask, token: Token) -> bool {
        self.write_all(ask, token, false)
    }

    fn write_all(&mut self, ask: Ask, token: Token, believes: bool) -> bool {
        let mut all = true;
        let lineage = self.lineage_of(self.call(ask).process);
        for index in 0..self.call(ask).keys.len() {
            let (key, token) = (self.call(ask).keys[index].clone(), nth(token, index));
            let taken = self.store.write(&key, token, lineage);
            self.tell(&Observation::Wrote { ask, index, token, taken });
            all &= taken;
        }
        if !all {
            self.tell(&Observation::WriteRefused { ask, believes });
        }
        all
    }

    /// Returns whether the call was granted (and perhaps lost since).
    pub fn is_granted(&self, ask: Ask) -> bool {
        self.call(ask).is_granted()
    }

    /// Returns whether the call has an answer.
    pub fn is_answered(&self, ask: Ask) -> bool {
        self.outcome(ask).is_some()
    }

    /// The answer to the call.
    pub fn outcome(&self, ask: Ask) -> Option<&Outcome> {
        self.call(ask).outcome.as_ref()
    }

    /// Why the hold of the call was lost.
    pub fn lost(&self, ask: Ask) -> Option<LostReason> {
        self.call(ask).lost
    }

    /// The token of the call's grant.
    pub fn token(&self, ask: Ask) -> Option<Token> {
        self.call(ask).token()
    }

    /// Lets the World go on until the lock is granted.
    #[track_caller]
    pub fn granted(&mut self, ask: Ask) -> Token {
        self.expect(
            &format!("{:?} of m{} is granted", self.call(ask).request, self.call(ask).member),
            |w| w.is_granted(ask),
        );
        self.token(ask).expect("it was granted")
    }

    /// Asks for a lock and lets the World go on until the lock is granted.
    #[track_caller]
    pub fn hold_lock(&mut self, member: usize, service: &str, name: &str) -> Ask {
        let ask = self.lock(member, service, name);
        self.granted(ask);
        ask
    }
}

fn lock(name: &str) -> LockName {
    LockName::new(name.as_bytes()).expect("a scenario's lock name is good")
}
