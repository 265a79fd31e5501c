//! The vocabulary of scenarios: clients, faults and questions.

use crate::history::{Ask, Call, ClientRequest, HoldMode, Key, nth};
use crate::kind::{KINDS, kind};
use crate::network::{LinkConditions, MS, NarrowPath};
use crate::rule::{PacketDescription, PacketFate, Rule, RuleId};
use crate::site::{ProcessState, Site};
use crate::world::{Observation, ScheduledEvent, World};
use elderlock::protocol::{
    self, Batch, Command, Edit, GrantorState, Hint, Input, LockName, LockRequest, LostReason,
    Metadata, Node, Outcome, OwnerId, Permits, ProcessId, Query, RequestId, ServiceName, Sizes,
    Status, StoredVote, Time, Token, Value, View, Wait, Want,
};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// Requests of clients.
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
        let deed = ClientRequest::Hold(Want::Lock(lock(name)));
        self.want_as(member, service, deed, (OwnerId::default(), metadata), Wait::Forever, None)
    }

    /// Asks for something.
    pub fn want(
        &mut self,
        member: usize,
        service: &str,
        deed: ClientRequest,
        owner: OwnerId,
        wait: Wait,
        lease: Option<Duration>,
    ) -> Ask {
        self.want_as(member, service, deed, (owner, Metadata::default()), wait, lease)
    }

    /// Asks for something, for an owner and with metadata.
    pub fn want_as(
        &mut self,
        member: usize,
        service: &str,
        deed: ClientRequest,
        (owner, metadata): (OwnerId, Metadata),
        wait: Wait,
        lease: Option<Duration>,
    ) -> Ask {
        let service = ServiceName::new(service).expect("a scenario's service name is good");
        let of = |want: &Want| {
            want.names().iter().map(|name| (service.clone(), Some(name.clone()))).collect()
        };
        let (keys, object): (Vec<Key>, Option<Key>) = match &deed {
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
        let mode = match &deed {
            ClientRequest::Hold(want) => HoldMode::of(want),
            _ => HoldMode::Open,
        };
        // A request that is not a lock has no other limits, and is not a hold.
        let (wait, lease) = match deed {
            ClientRequest::Hold(Want::Open(_)) => (wait, None),
            ClientRequest::Hold(_) => (wait, lease),
            ClientRequest::Put(..) | ClientRequest::Add(..) => (Wait::Forever, None),
            ClientRequest::Upgrade(_) => (Wait::Try, None),
            ClientRequest::Become => (wait, None),
            // Its shortest wait is longer than that of others.
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
            deed: deed.clone(),
            keys,
            object,
            mode,
            turns: None,
            upgrade: None,
            narrowed: false,
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
        if let ClientRequest::Upgrade(of) = deed {
            Arc::make_mut(&mut self.history).turn(of, HoldMode::Alone, ask);
        }
        self.tell(&Observation::Invoked { ask });
        let request_of = |of: Ask| self.call(of).request;
        self.feed(
            member,
            Input::Command(match deed {
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
                ClientRequest::Hold(want) => Command::Lock {
                    request,
                    service,
                    wait,
                    lease,
                    detects: self.detects,
                    keeps: false,
                    lock: LockRequest { want, owner, revocable: true, metadata },
                },
                ClientRequest::Become => Command::Become { request, service, wait },
                ClientRequest::Destroy => Command::Destroy { request, service },
                ClientRequest::Query(at) => Command::Query { request, service, at },
                ClientRequest::AskHolder(holder) => Command::AskHolder { request, service, holder },
                ClientRequest::Revoke(what) => Command::Revoke { request, service, what, wait },
            }),
        );
        ask
    }

    /// Downgrades its lock to a share. False if it believes in no lock.
    pub fn downgrade(&mut self, ask: Ask) -> bool {
        let Some(name) = self.call(ask).keys.first().and_then(|(_, name)| name.clone()) else {
            return false;
        };
        if !self.call(ask).may_be_shared() || self.fence(ask).is_none() {
            return false;
        }
        Arc::make_mut(&mut self.history).downgrade(ask);
        self.tell(&Observation::Turned { ask });
        self.go_on_with(ask, Want::Share(name));
        true
    }

    /// Returns this many of its permits, but not all. False if it has no more.
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
            self.fickle.insert(ask, after);
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

    /// No longer wants a lock.
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
                call.released || call.turns.is_some() || token == cores,
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

    /// Returns whether it was granted (and perhaps lost since).
    pub fn is_granted(&self, ask: Ask) -> bool {
        self.call(ask).is_granted()
    }

    /// Returns whether it has an answer.
    pub fn is_answered(&self, ask: Ask) -> bool {
        self.outcome(ask).is_some()
    }

    /// Its answer.
    pub fn outcome(&self, ask: Ask) -> Option<&Outcome> {
        self.call(ask).outcome.as_ref()
    }

    /// Why its hold was lost.
    pub fn lost(&self, ask: Ask) -> Option<LostReason> {
        self.call(ask).lost
    }

    /// The token of its grant.
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

    /// Asks for a lock and lets the World go on until it is granted.
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

/// Faults of processes, hosts and the network.
impl World {
    /// Kills the process. Its host goes on: connections to it break, and members on the host see
    /// that it ended.
    pub fn crash(&mut self, site: usize) {
        let Some(process) = self.sites[site].process().filter(|_| self.sites[site].is_alive())
        else {
            return;
        };
        self.note(site, |_| "is killed".to_string());
        self.end_process(site, "killed");
        for other in (0..self.sites.len()).filter(|other| *other != site) {
            let chance = crate::chance::mix(&[
                self.common.seed,
                0xdead,
                site as u64,
                other as u64,
                self.now,
            ]);
            if self.sites[other].host == self.sites[site].host {
                self.hint(MS + chance % (4 * MS), other, Hint::Dead(process));
            }
            if !self.network.is_cut(site, other) {
                self.hint(MS / 5 + chance % MS, other, Hint::Unreachable(process));
            }
        }
    }

    /// The host fails, with every process on it: nothing comes from there any more, not even a
    /// refusal.
    pub fn vanish(&mut self, site: usize) {
        let host = self.sites[site].host;
        for there in (0..self.sites.len())
            .filter(|there| self.sites[*there].host == host)
            .collect::<Vec<_>>()
        {
            self.note(there, |_| "vanishes with its host".to_string());
            self.sites[there].host_up = false;
            if let Some(process) =
                self.sites[there].process().filter(|_| self.sites[there].is_alive())
            {
                self.end_process(there, "vanished");
                self.notice_silence(there, process);
            }
        }
    }

    /// Gossip calls a silent process unreachable after a while.
    fn notice_silence(&mut self, site: usize, process: ProcessId) {
        if self.gossip.is_some() {
            return;
        }
        let patience = self.common.timing.elder_lease.as_nanos() as u64;
        for other in (0..self.sites.len()).filter(|other| *other != site) {
            let chance = crate::chance::mix(&[
                self.common.seed,
                0x511e,
                site as u64,
                other as u64,
                self.now,
            ]);
            self.hint(patience / 2 + chance % patience, other, Hint::Unreachable(process));
        }
    }

    /// Starts a new process at the same address.
    pub fn restart(&mut self, site: usize) {
        self.start(site);
    }

    /// Stops the process: its clock goes on, but it does nothing.
    pub fn pause(&mut self, site: usize) {
        if self.sites[site].run == ProcessState::Up {
            self.note(site, |_| "is stopped".to_string());
            self.tell(&Observation::Pauses { site });
            self.sites[site].run = ProcessState::Paused;
            self.sites[site].pauses += 1;
        }
    }

    /// Wakes a stopped process.
    pub fn resume(&mut self, site: usize) {
        if self.sites[site].run == ProcessState::Paused {
            self.note(site, |_| "wakes".to_string());
            self.wake(site);
        }
    }

    /// An operator forces it to go on without a quorum.
    pub fn force(&mut self, site: usize) {
        self.feed(site, Input::Command(Command::Force));
    }

    /// The data directory at `site` is lost. No process runs there.
    pub fn lose_disk(&mut self, site: usize) {
        assert!(!self.is_alive(site), "a process uses the directory of m{site}");
        self.note(site, |_| "loses its data directory".to_string());
        self.sites[site].disk.vote = None;
    }

    /// The content of the data directory at `site`, as a copy of it would have it.
    pub fn disk(&self, site: usize) -> Option<StoredVote> {
        self.sites[site].disk.vote.clone()
    }

    /// Puts a copy back.
    pub fn put_back_disk(&mut self, site: usize, copy: Option<StoredVote>) {
        assert!(!self.is_alive(site), "a process uses the directory of m{site}");
        self.note(site, |_| "has its data directory put back".to_string());
        self.sites[site].disk.vote = copy;
    }

    /// The member says goodbye.
    pub fn leave(&mut self, site: usize) {
        self.feed(site, Input::Command(Command::Leave));
    }

    /// The two no longer reach each other.
    pub fn cut(&mut self, a: usize, b: usize) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Nothing sent from `from` arrives at `to` any more.
    pub fn cut_one_way(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("no longer reaches m{to}"));
        self.network.cut(from, to);
    }

    /// Takes back one cut of one way. Two members that reach each other again connect, and notice.
    pub fn mend_one_way(&mut self, from: usize, to: usize) {
        self.network.mend(from, to);
        if let Some(process) = self.sites[to].process()
            && !self.network.is_cut(from, to)
            && !self.network.is_cut(to, from)
        {
            self.hint(MS, from, Hint::Connected(process));
        }
    }

    /// Packets from `from` wait at the end of their way to `to` until [`unclog`](Self::unclog).
    /// Clogs count.
    pub fn clog(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("is clogged towards m{to}"));
        self.network.clog(from, to);
    }

    /// Takes back one clog: the waiting packets arrive, in order.
    pub fn unclog(&mut self, from: usize, to: usize) {
        if self.network.unclog(from, to) {
            self.note(from, |_| format!("is no longer clogged towards m{to}"));
            self.flush(from, to);
        }
    }

    /// The way has a limited rate and limited room; `None`: it has no limit.
    pub fn narrow(&mut self, from: usize, to: usize, narrow: Option<NarrowPath>) {
        self.note(from, |_| {
            format!(
                "has a way to m{to} that is {}",
                if narrow.is_some() { "narrow" } else { "wide" }
            )
        });
        self.network.narrow(from, to, narrow);
    }

    /// The connections between the two break: all packets under way in both directions are lost,
    /// and both notice.
    pub fn reset(&mut self, a: usize, b: usize) {
        self.reset_one_way(a, b);
        self.reset_one_way(b, a);
        self.break_connection(a, b);
    }

    /// All packets under way from `from` to `to` are lost: a connection breaks when everything of
    /// the other direction has been read. Both notice.
    pub fn reset_half(&mut self, from: usize, to: usize) {
        self.reset_one_way(from, to);
        self.break_connection(from, to);
    }

    fn reset_one_way(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("loses its connection to m{to}"));
        self.network.reset(from, to);
        self.streams.remove(&(from, to));
        self.clogged.remove(&(from, to));
    }

    /// Both learn that their connection broke, and dial again.
    fn break_connection(&mut self, a: usize, b: usize) {
        for (here, there) in [(a, b), (b, a)] {
            let Some(process) = self.sites[there].process() else { continue };
            let chance = crate::chance::mix(&[
                self.common.seed,
                0x4e5e,
                here as u64,
                there as u64,
                self.now,
            ]);
            self.hint(MS / 5 + chance % MS, here, Hint::Unreachable(process));
            if !self.network.is_cut(here, there)
                && !self.network.is_cut(there, here)
                && self.sites[there].is_alive()
            {
                self.hint(50 * MS + chance % (10 * MS), here, Hint::Connected(process));
            }
        }
    }

    /// A wall before the site refuses every connection to it, as if no process listened there. The
    /// site cannot dial either.
    pub fn reject_one_way(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("is refused at m{to}"));
        self.network.reject(from, to);
        self.network.cut(from, to);
        if let Some(process) = self.sites[to].process() {
            self.hint(MS / 5, from, Hint::Refused(process));
        }
    }

    /// Takes back one [`reject_one_way`](Self::reject_one_way).
    pub fn accept_one_way(&mut self, from: usize, to: usize) {
        self.network.accept(from, to);
        self.mend_one_way(from, to);
    }

    /// Datagrams between the two get lost, and only those.
    pub fn deafen(&mut self, a: usize, b: usize) {
        self.note(a, |_| format!("and m{b} no longer get datagrams of each other"));
        self.network.deafen(a, b);
        self.network.deafen(b, a);
    }

    /// Takes back one [`deafen`](Self::deafen).
    pub fn undeafen(&mut self, a: usize, b: usize) {
        self.network.undeafen(a, b);
        self.network.undeafen(b, a);
    }

    /// The clock at `site` runs fast by this rate from now on, in parts per million.
    pub fn turn_clock(&mut self, site: usize, ppm: i32) {
        if self.sites[site].clock.ppm == ppm {
            return;
        }
        self.note(site, |_| format!("has a clock that runs {ppm} ppm fast from now on"));
        let now = self.now;
        self.sites[site].clock.turn(now, ppm);
        self.sites[site].reschedule();
        self.gossip_reschedules(site);
        self.tell(&Observation::ClockTurned { site });
    }

    /// The wall clock at `site` jumps by this many milliseconds. No member may notice.
    pub fn step_wall_clock(&mut self, site: usize, by: i64) {
        self.note(site, |_| format!("has a wall clock that jumps by {by} ms"));
        self.sites[site].wall += by;
    }

    /// The names of the seeds at `site` resolve to these sites from now on, also for the processes
    /// that start there later.
    pub fn resolve(&mut self, site: usize, to: &[usize]) {
        self.note(site, |_| format!("resolves its seeds to {to:?}"));
        let seeds: BTreeSet<SocketAddr> = to.iter().map(|to| self.sites[*to].addr).collect();
        let peer = &mut self.sites[site];
        peer.seeds = seeds.clone();
        if let Some(config) = &mut peer.next_life {
            config.seeds = seeds.clone();
        }
        self.gossip_resolves(site, seeds.clone());
        self.feed(site, Input::Command(Command::Seeds(seeds)));
    }

    /// Cuts all ways from and to the member.
    pub fn isolate(&mut self, site: usize) {
        for other in (0..self.sites.len()).filter(|other| *other != site).collect::<Vec<_>>() {
            self.cut(site, other);
        }
        if let Some(process) = self.sites[site].process() {
            self.notice_silence(site, process);
        }
    }

    /// Cuts all ways between these sites and the others.
    pub fn split(&mut self, group: &[usize]) {
        for &a in group {
            for b in (0..self.sites.len()).filter(|b| !group.contains(b)).collect::<Vec<_>>() {
                self.cut(a, b);
            }
        }
    }

    /// All sites reach each other again, and nothing is lost.
    pub fn heal(&mut self) {
        if !self.sites.is_empty() {
            self.note(0, |_| "(the network is healed)".to_string());
        }
        self.network.mend_all();
        for (from, to) in self.clogged.keys().copied().collect::<Vec<_>>() {
            self.flush(from, to);
        }
        self.network.set_weather(LinkConditions::FAIR);
    }

    /// The weather from now on.
    pub fn weather(&mut self, weather: LinkConditions) {
        self.network.set_weather(weather);
    }

    /// The process at `site` gets a hint now.
    pub fn give_hint(&mut self, site: usize, hint: Hint) {
        if let Some(process) = self.sites[site].process() {
            self.schedule(0, ScheduledEvent::Hint { to: site, process, hint });
        }
    }
}

/// Rules for single packets.
impl World {
    /// Keeps back every packet that matches, until [`let_go`](Self::let_go).
    pub fn hold(
        &mut self,
        test: impl Fn(&PacketDescription<'_>) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        self.rules.push(Rule { test: Arc::new(test), fate: PacketFate::Hold, matched: 0 });
        RuleId(self.rules.len() - 1)
    }

    /// Keeps back packets of a kind from one member to another.
    #[track_caller]
    pub fn hold_kind(&mut self, from: usize, to: usize, what: &'static str) -> RuleId {
        assert!(KINDS.contains(&what), "no packet is called {what}");
        self.hold(move |flight| {
            flight.from == from && flight.to == to && kind(flight.packet) == what
        })
    }

    /// Drops the next packet of a kind from one member to another.
    #[track_caller]
    pub fn drop_next(&mut self, from: usize, to: usize, what: &'static str) -> RuleId {
        assert!(KINDS.contains(&what), "no packet is called {what}");
        self.drop_next_of(move |flight| {
            flight.from == from && flight.to == to && kind(flight.packet) == what
        })
    }

    /// Drops the next packet that matches.
    pub fn drop_next_of(
        &mut self,
        test: impl Fn(&PacketDescription<'_>) -> bool + Send + Sync + 'static,
    ) -> RuleId {
        self.rules.push(Rule { test: Arc::new(test), fate: PacketFate::Drop(1), matched: 0 });
        RuleId(self.rules.len() - 1)
    }

    /// How many packets a rule has matched.
    pub fn matched(&self, rule: RuleId) -> usize {
        self.rules[rule.0].matched
    }

    /// Ends a rule and sends its kept packets on their way now, in order.
    pub fn let_go(&mut self, rule: RuleId) {
        self.rules[rule.0].fate = PacketFate::Over;
        let (kept, rest) =
            std::mem::take(&mut self.held).into_iter().partition(|(index, _)| *index == rule.0);
        self.held = rest;
        for (_, parcel) in kept {
            self.schedule(MS / 5, ScheduledEvent::Packet(Arc::new(parcel)));
        }
    }

    /// Ends a rule and drops its kept packets.
    pub fn drop_held(&mut self, rule: RuleId) {
        self.rules[rule.0].fate = PacketFate::Over;
        self.held.retain(|(index, _)| *index != rule.0);
    }
}

/// Questions about the World.
impl World {
    /// The present process at `site`.
    pub fn process(&self, site: usize) -> ProcessId {
        self.sites[site].process().expect("a process has run there")
    }

    /// The numbers of all sites.
    pub fn sites(&self) -> std::ops::Range<usize> {
        0..self.sites.len()
    }

    /// Returns whether a process runs there and is not stopped.
    pub fn is_up(&self, site: usize) -> bool {
        self.sites[site].run == ProcessState::Up
    }

    /// Returns whether a process is there and is stopped.
    pub fn is_paused(&self, site: usize) -> bool {
        self.sites[site].run == ProcessState::Paused
    }

    /// Returns whether the process at `site` has left, and whether its goodbye was heard.
    pub fn was_heard(&self, site: usize) -> Option<bool> {
        self.sites[site].heard
    }

    /// Returns whether a process is there, running or stopped.
    pub fn is_alive(&self, site: usize) -> bool {
        self.sites[site].is_alive()
    }

    /// Returns whether the member is in a view and its lease runs.
    pub fn is_ready(&self, site: usize) -> bool {
        let peer = &self.sites[site];
        peer.is_alive()
            && peer.node.as_ref().is_some_and(|node| node.is_ready(peer.clock.local(self.now)))
    }

    /// The view of the member.
    pub fn view(&self, site: usize) -> Option<&View> {
        self.sites[site]
            .node
            .as_deref()
            .filter(|_| self.sites[site].is_alive())
            .and_then(Node::view)
    }

    /// The highest view that any running member has, by a member whose lease runs if there is one.
    pub fn latest_view(&self) -> Option<&View> {
        let views = self.sites().filter_map(|site| Some((self.is_ready(site), self.view(site)?)));
        views.max_by_key(|(ready, view)| (*ready, view.number)).map(|(_, view)| view)
    }

    /// Returns the sites of the members of the latest view, oldest first. Members whose processes
    /// have ended are left out.
    pub fn in_view(&self) -> Vec<usize> {
        let Some(view) = self.latest_view() else { return Vec::new() };
        view.members.iter().filter_map(|member| self.site_of(member.info.process)).collect()
    }

    /// Returns the site of the elder of the latest view.
    #[track_caller]
    pub fn elder(&self) -> usize {
        self.find_elder().expect("there is an elder")
    }

    /// Returns the site of the elder of the latest view, if it runs.
    pub fn find_elder(&self) -> Option<usize> {
        let elder = self.latest_view()?.elder().process;
        self.site_of(elder).filter(|site| self.sites[*site].is(elder))
    }

    /// Returns the site of the grantor of the service.
    #[track_caller]
    pub fn grantor(&self, service: &str) -> usize {
        self.find_grantor(service).expect("there is a grantor")
    }

    /// Returns the site of the grantor of the service: the acting one of the highest epoch whose
    /// lease runs.
    pub fn find_grantor(&self, service: &str) -> Option<usize> {
        let acting = |site: &usize| {
            let status = self.status(*site)?;
            let service = status.services.iter().find(|of| of.service.as_str() == service)?;
            service.granting.filter(|state| *state == GrantorState::Acting).and(service.epoch)
        };
        let ready = self.sites().filter(|site| self.is_ready(*site));
        ready.filter_map(|site| Some((acting(&site)?, site))).max().map(|(_, site)| site)
    }

    /// The member's status.
    pub fn status(&self, site: usize) -> Option<Status> {
        let peer = &self.sites[site];
        peer.node
            .as_ref()
            .filter(|_| peer.is_alive())
            .map(|node| node.status(peer.clock.local(self.now)))
    }

    /// Returns whether no member knows of a hold or a waiter.
    pub fn is_empty_everywhere(&self) -> bool {
        self.demanded().filter_map(|site| self.status(site)).all(|status| {
            status.services.iter().all(|of| {
                of.locks.is_empty()
                    && of.waiting_here == 0
                    && of.held_here == 0
                    && of.open_here == 0
            })
        })
    }

    /// How much the member keeps.
    pub fn sizes(&self, site: usize) -> Option<Sizes> {
        let peer = &self.sites[site];
        peer.node
            .as_ref()
            .filter(|_| peer.is_alive())
            .map(|node| node.sizes(peer.clock.local(self.now)))
    }

    /// Returns whether no member keeps more than a newly joined member without requests.
    pub fn is_at_rest(&self) -> bool {
        let others = self.demanded().count().saturating_sub(1);
        self.demanded().filter_map(|site| self.sizes(site)).all(|sizes| {
            // A suspicion ends with a packet or a new connection, and not every pair exchanges
            // packets.
            let Sizes { links, suspected: _, .. } = sizes;
            links <= others && Sizes { links: 0, suspected: 0, ..sizes } == Sizes::default()
        })
    }

    /// Returns whether the processes at these sites are a quorum of the view's council.
    pub fn is_quorum(&self, view: &View, sites: impl IntoIterator<Item = usize>) -> bool {
        let processes: Vec<ProcessId> =
            sites.into_iter().map(|site| &self.sites[site]).filter_map(Site::process).collect();
        view.is_quorum(&processes)
    }
}
