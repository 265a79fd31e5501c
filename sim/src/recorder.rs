//! Records the events of a World, as a [`Record`].
//!
//! Acts of clients and members are always recorded: in memory only, and they are few. Packets are
//! recorded on request.

use crate::history::{self, Ask, HoldMode, ObjectView};
use crate::history_checker;
use crate::invariants::acts_after;
use crate::network::SECOND;
use crate::record::{Entry, Line, Record, RecordedRequest};
use crate::site::ProcessState;
use crate::world::World;
use elderlock::protocol::{
    Epoch, Event, GrantorState, Limits, LostReason, Outcome, ProcessId, ServiceName, Time, Token,
    View, Wait, Want,
};
use std::collections::{BTreeMap, BTreeSet};

/// The recorder of a World.
#[derive(Clone, Debug, Default)]
pub(crate) struct Recorder {
    record: Record,
    /// Nothing is recorded.
    silent: bool,
    /// Whether packets are recorded.
    messages: bool,
    /// Packets so far.
    packets: u64,
    /// Place and life of every process that ever ran.
    lives: BTreeMap<ProcessId, (usize, u64)>,
    /// The premises of the history checker.
    premises: BTreeMap<&'static str, u64>,
    /// The services that each place grants, as far as recorded.
    roles: Vec<Vec<(ServiceName, Epoch, GrantorState)>>,
    /// Grantors that have begun in the present step, after a recovery.
    begun: Vec<(ServiceName, Epoch)>,
    /// Ways that are cut, and the number of changes of ways when they were last read.
    cuts: BTreeSet<(usize, usize)>,
    changes: u64,
    /// The longest time under way that was recorded.
    slow: u64,
    /// The second in which packets are sent, and how many had been sent before.
    second: (u64, u64),
}

impl Recorder {
    /// Whether nothing is recorded.
    pub(crate) fn is_silent(&self) -> bool {
        self.silent
    }
}

/// Why a packet was lost when it was sent, if it was.
pub(crate) type Lost = Option<&'static str>;

impl World {
    /// The record has a line for every packet that is sent and for every one that arrives.
    pub fn with_messages(mut self) -> World {
        self.scribe.messages = true;
        self
    }

    /// The record so far.
    pub fn record(&self) -> &Record {
        &self.scribe.record
    }

    /// The record, without the World.
    pub fn into_record(self) -> Record {
        self.scribe.record
    }

    /// A fault of a plan begins.
    pub fn record_fault(&mut self, fault: usize, kind: &str, places: Vec<usize>) {
        self.record_line(None, Entry::Fault { fault, kind: kind.to_string(), places });
    }

    /// Records that the demands after the healing hold, at every demanded member.
    pub(crate) fn record_rest(&mut self) -> bool {
        let places = self.demanded().filter(|place| self.is_alive(*place)).collect();
        self.record_line(None, Entry::Rest { places });
        true
    }

    /// Runs the history checker on the record. For the end of a run.
    pub fn read_again(&mut self) {
        match history_checker::check(&self.scribe.record) {
            Ok(findings) => {
                self.scribe.premises = findings.premises;
                if let Some(flaw) = findings.flaws.into_iter().next() {
                    self.fail(flaw.invariant, format!("in the record: {}", flaw.what));
                    self.date_break(flaw.at);
                }
            }
            Err(what) => self.fail("record_is_sound", what),
        }
    }

    /// How often the premise of each invariant of the history checker held; valid after
    /// [`read_again`](Self::read_again).
    pub fn offline_premises(&self) -> BTreeMap<&'static str, u64> {
        self.scribe.premises.clone()
    }

    /// A fault of a plan ends.
    pub fn record_mended(&mut self, fault: usize) {
        self.record_line(None, Entry::Mended { fault });
    }

    /// Stops recording and drops the record: a model checker makes far too many Worlds.
    pub(crate) fn put_the_pen_down(&mut self) {
        self.scribe.silent = true;
        self.scribe.record = Record::default();
        self.scribe.lives.clear();
        self.scribe.roles.clear();
    }

    pub(crate) fn record_line(&mut self, place: Option<usize>, entry: Entry) {
        if self.scribe.silent {
            return;
        }
        if self.scribe.record.lines.is_empty() {
            let timing = &self.common.timing;
            let (limits, usual) = (&self.common.limits, Limits::DEFAULT);
            let entry = Entry::World {
                crowded: limits.early < usual.early || limits.parked < usual.parked,
                seed: self.common.seed,
                places: self.peers.len(),
                bounded: self.bounded,
                error_ppm: timing.clock_error_ppm,
                answer: timing.answer.as_nanos() as u64,
                council: usize::from(self.common.council),
                leases: (
                    timing.member_lease.as_nanos() as u64,
                    timing.elder_lease.as_nanos() as u64,
                ),
            };
            self.scribe.record.lines.push(Line { at: self.now, place: None, life: 0, entry });
        }
        self.record_network();
        let life = place.map_or(0, |place| self.peers[place].incarnation);
        self.scribe.record.lines.push(Line { at: self.now, place, life, entry });
    }

    /// Records the changes of the ways between members since the last record of them.
    pub(crate) fn record_network(&mut self) {
        if self.scribe.silent || self.scribe.record.lines.is_empty() {
            return;
        }
        if self.scribe.changes != self.network.changes {
            self.scribe.changes = self.network.changes;
            let now: BTreeSet<(usize, usize)> = self.network.cuts().collect();
            let before = std::mem::replace(&mut self.scribe.cuts, now);
            let cut = self.scribe.cuts.difference(&before).copied().collect();
            let mended = before.difference(&self.scribe.cuts).copied().collect();
            if self.scribe.cuts != before {
                let entry = Entry::Ways { cut, mended };
                self.scribe.record.lines.push(Line { at: self.now, place: None, life: 0, entry });
            }
        }
        if self.longest_way() > self.scribe.slow {
            self.scribe.slow = self.longest_way().next_power_of_two();
            let entry = Entry::Slow { upto: self.scribe.slow };
            self.scribe.record.lines.push(Line { at: self.now, place: None, life: 0, entry });
        }
    }

    pub(crate) fn record_here(&mut self, place: usize, entry: Entry) {
        self.record_line(Some(place), entry);
    }

    fn record_call(&mut self, ask: Ask, entry: Entry) {
        self.record_here(self.history.call(ask).member, entry);
    }

    /// The true time of an end on a member's clock.
    fn true_end(&self, place: usize, until: Time) -> Option<u64> {
        self.peers[place].clock.when(until)
    }

    pub(crate) fn record_invoke(&mut self, ask: Ask) {
        let call = self.history.call(ask);
        let nanos = |span: std::time::Duration| span.as_nanos() as u64;
        let entry = Entry::Invoke {
            call: ask.0,
            service: call.service.as_str().to_string(),
            deed: match &call.deed {
                history::ClientRequest::Hold(Want::Suspension) => RecordedRequest::Suspend,
                history::ClientRequest::Hold(Want::Share(_)) => RecordedRequest::Share,
                history::ClientRequest::Hold(Want::Permits(..)) => RecordedRequest::Permits,
                history::ClientRequest::Hold(Want::Open(_)) => RecordedRequest::Open,
                history::ClientRequest::Hold(_) => RecordedRequest::Lock,
                history::ClientRequest::Put(..) | history::ClientRequest::Add(..) => {
                    RecordedRequest::Put
                }
                history::ClientRequest::Upgrade(_) => RecordedRequest::Upgrade,
                history::ClientRequest::Become => RecordedRequest::Become,
                history::ClientRequest::Destroy => RecordedRequest::Destroy,
                history::ClientRequest::Query(_) => RecordedRequest::See,
                history::ClientRequest::Revoke(_) => RecordedRequest::Revoke,
            },
            names: call
                .keys
                .iter()
                .chain(&call.object)
                .filter_map(|(_, name)| {
                    Some(String::from_utf8_lossy(name.as_ref()?.as_bytes()).into_owned())
                })
                .collect(),
            permits: match &call.deed {
                history::ClientRequest::Hold(Want::Permits(_, permits)) => permits.get(),
                _ => 0,
            },
            of: match &call.deed {
                history::ClientRequest::Put(of, ..)
                | history::ClientRequest::Add(of, _)
                | history::ClientRequest::Upgrade(of) => Some(of.0),
                _ => None,
            },
            owner: call.owner.0,
            wait: match call.wait {
                Wait::Try => Some(0),
                Wait::AtMost(span) => Some(nanos(span)),
                Wait::Forever => None,
            },
            lease: call.lease.map(nanos),
        };
        self.record_call(ask, entry);
    }

    pub(crate) fn record_answer(&mut self, ask: Ask, outcome: &Outcome) {
        let fail = |answer: &str| Entry::Fail { call: ask.0, answer: answer.to_string() };
        let place = self.history.call(ask).member;
        let entry = match outcome {
            Outcome::Granted { token, until } => {
                Entry::Ok { call: ask.0, token: token.get(), until: self.true_end(place, *until) }
            }
            Outcome::Opened { .. } => Entry::Ok { call: ask.0, token: 0, until: None },
            Outcome::Written { .. } => fail("written"),
            Outcome::Unwritten(_) => fail("changed"),
            Outcome::NotOpen => fail("not open"),
            Outcome::Upgraded { .. } => fail("upgraded"),
            Outcome::Shared(_) => fail("shared"),
            Outcome::Limit(_) => fail("too few"),
            Outcome::TimedOut => fail("timed out"),
            Outcome::Held(_) => fail("held"),
            Outcome::Waited(_) => fail("waited for"),
            Outcome::Undecided => fail("undecided"),
            Outcome::Deadlock => fail("deadlock"),
            Outcome::Won => fail("won"),
            Outcome::Superseded(_) => fail("superseded"),
            Outcome::Destroyed => fail("destroyed"),
            Outcome::Unconfirmed => fail("unconfirmed"),
            Outcome::Confirmed => fail("confirmed"),
            Outcome::QueryReply(_) => fail("seen"),
            Outcome::RevocationRequested { .. } => fail("asked back"),
            Outcome::Revoked => fail("taken back"),
            Outcome::HolderNotTold => fail("untold"),
            Outcome::Busy => fail("busy"),
            Outcome::Closed(reason) => fail(&format!("closed: {}", lost(*reason))),
            Outcome::Extended { until } => {
                Entry::Extended { call: ask.0, until: self.true_end(place, *until) }
            }
            Outcome::NotHeld
                if matches!(self.call(ask).deed, history::ClientRequest::Upgrade(_)) =>
            {
                fail("not held")
            }
            Outcome::NotHeld | Outcome::Narrowed => return,
        };
        self.record_here(place, entry);
    }

    pub(crate) fn record_lost(&mut self, ask: Ask, reason: LostReason) {
        self.record_call(ask, Entry::Lost { call: ask.0, reason: lost(reason).to_string() });
    }

    pub(crate) fn record_release(&mut self, ask: Ask) {
        self.record_call(ask, Entry::Release { call: ask.0 });
    }

    /// Its share is the lock now, or its lock a share.
    pub(crate) fn record_turned(&mut self, ask: Ask) {
        let call = self.call(ask);
        let deed = if call.mode == HoldMode::Share {
            RecordedRequest::Share
        } else {
            RecordedRequest::Lock
        };
        let token = call.token().map_or(0, Token::get);
        self.record_call(ask, Entry::Turned { call: ask.0, deed, token });
    }

    pub(crate) fn record_given_back(&mut self, ask: Ask) {
        if let HoldMode::Permits(left) = self.call(ask).mode {
            self.record_call(ask, Entry::GivenBack { call: ask.0, left });
        }
    }

    pub(crate) fn record_sight(&mut self, ask: Ask, sight: &ObjectView) {
        let bytes = sight.value.as_bytes();
        let value = match <[u8; 4]>::try_from(bytes) {
            Ok(limit) => u32::from_le_bytes(limit).to_string(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        };
        let (version, stale) = (sight.version.get(), sight.stale);
        self.record_call(ask, Entry::Sees { call: ask.0, version, value, stale });
    }

    pub(crate) fn record_write(&mut self, ask: Ask, index: usize, token: u64, taken: bool) {
        self.record_call(ask, Entry::Write { call: ask.0, index, token, taken });
    }

    pub(crate) fn record_start(&mut self, place: usize) {
        if let Some(process) = self.peers[place].process().filter(|_| !self.scribe.silent) {
            self.scribe.lives.insert(process, (place, self.peers[place].incarnation));
        }
        self.record_here(place, Entry::Start);
    }

    /// The process at `place` has ended; the outcome of these calls is unknown.
    pub(crate) fn record_end(&mut self, place: usize, how: &str, unknown: &[Ask]) {
        for ask in unknown {
            self.record_here(place, Entry::Unknown { call: ask.0 });
        }
        self.record_here(place, Entry::End { how: how.to_string() });
        if let Some(roles) = self.scribe.roles.get_mut(place) {
            roles.clear();
        }
    }

    pub(crate) fn record_pause(&mut self, place: usize) {
        self.record_here(place, Entry::Pause);
        let until = self.true_end(place, self.peers[place].lease_end());
        self.record_here(place, Entry::Lease { until });
    }

    /// The clock at `place` has another rate: pending ends by that clock come at another time than
    /// recorded.
    pub(crate) fn record_turned_clock(&mut self, place: usize) {
        let Some(process) = self.peers[place].process().filter(|_| self.peers[place].is_alive())
        else {
            return;
        };
        let now = self.peers[place].clock.local(self.now);
        let holds: Vec<(Ask, Time)> =
            self.history.claims().map(|ask| (ask, self.call(ask).until)).collect();
        for (ask, until) in holds {
            if self.call(ask).process == process && until > now {
                let until = self.true_end(place, until);
                self.record_call(ask, Entry::Extended { call: ask.0, until });
            }
        }
        if self.peers[place].lease_end() > now {
            let until = self.true_end(place, self.peers[place].lease_end());
            self.record_here(place, Entry::Lease { until });
        }
    }

    pub(crate) fn record_event(&mut self, place: usize, event: &Event) {
        let named = |name: &str| Entry::Event { name: name.to_string() };
        let entry = match event {
            Event::ViewInstalled(view) => self.view_line(view),
            Event::BecameElder(_) => named("became_elder"),
            Event::Suspended => named("suspended"),
            Event::Resumed => named("resumed"),
            Event::Expelled => named("expelled"),
            Event::Left { heard: true } => named("left"),
            Event::Left { heard: false } => named("left_unheard"),
            Event::Abandoned => named("abandoned"),
            Event::WrongClock { .. } => named("wrong_clock"),
            Event::Supplied { service, first, .. } => {
                Entry::Tokens { service: service.as_str().to_string(), first: first.get() }
            }
            Event::Orphaned => named("orphaned"),
            Event::IdentityTaken => named("identity_taken"),
            Event::Forced => named("forced"),
            Event::BecameGrantor { service, epoch } => {
                let asked = (service.clone(), *epoch, GrantorState::Recovering);
                let roles = self.scribe.roles.get(place);
                // Unless a predecessor has answered it with its table.
                let has_recovered = acts_after(asked.2, self, place, (service, *epoch));
                if has_recovered && roles.is_some_and(|roles| roles.contains(&asked)) {
                    self.scribe.begun.push((asked.0, asked.1));
                }
                self.set_role(place, service, Some((*epoch, GrantorState::Acting)));
                Entry::Grantor {
                    service: service.as_str().to_string(),
                    epoch: epoch.0.get(),
                    recovering: false,
                }
            }
            Event::LostGrantor { service, epoch } | Event::GrantorAborted { service, epoch } => {
                self.set_role(place, service, None);
                Entry::NoGrantor { service: service.as_str().to_string(), epoch: epoch.0.get() }
            }
        };
        self.record_here(place, entry);
    }

    fn view_line(&self, view: &View) -> Entry {
        let whose =
            |process: &ProcessId| self.scribe.lives.get(process).copied().unwrap_or_default();
        let of = |member: &elderlock::protocol::ViewMember| whose(&member.info.process);
        Entry::View {
            number: view.number.0,
            slots: (view.first_slot.0, view.slots),
            members: view.members.iter().map(|member| of(member).0).collect(),
            lives: view.members.iter().map(|member| of(member).1).collect(),
            ghosts: view.members.iter().filter(|member| member.ghost).map(of).collect(),
            founder: whose(&view.lineage.founder),
        }
    }

    fn set_role(
        &mut self,
        place: usize,
        service: &ServiceName,
        role: Option<(Epoch, GrantorState)>,
    ) {
        if self.scribe.silent {
            return;
        }
        if self.scribe.roles.len() <= place {
            self.scribe.roles.resize_with(place + 1, Vec::new);
        }
        let roles = &mut self.scribe.roles[place];
        roles.retain(|(of, ..)| of != service);
        roles.extend(role.map(|(epoch, state)| (service.clone(), epoch, state)));
    }

    /// A grantor that begins to recover, or to wait for a table, tells only the processes that it
    /// asks. So the recorder reads it from the core, and also the table of a grantor that has
    /// completed its recovery.
    pub(crate) fn record_recoveries(&mut self, place: usize) {
        if self.scribe.silent {
            return;
        }
        let begun = std::mem::take(&mut self.scribe.begun);
        // The unfinished step of a process that died in the middle of it gives it no role.
        if self.peers[place].run == ProcessState::Down {
            return;
        }
        for (service, epoch) in begun {
            self.record_table(place, &service, epoch);
        }
        let Some(node) = self.peers[place].node.as_ref() else { return };
        let known = self.scribe.roles.get(place).map_or(&[][..], Vec::as_slice);
        let news: Vec<(ServiceName, Epoch, GrantorState)> = node
            .grantors()
            .filter(|(service, epoch, state)| {
                *state != GrantorState::Acting
                    && !known.contains(&((*service).clone(), *epoch, *state))
            })
            .map(|(service, epoch, state)| (service.clone(), epoch, state))
            .collect();
        self.stirred |= !news.is_empty();
        for (service, epoch, state) in news {
            self.set_role(place, &service, Some((epoch, state)));
            if state == GrantorState::Recovering {
                let (service, epoch) = (service.as_str().to_string(), epoch.0.get());
                self.record_here(place, Entry::Grantor { service, epoch, recovering: true });
            }
        }
    }

    /// Records the first table of the grantor at `place`, if it still acts.
    fn record_table(&mut self, place: usize, service: &ServiceName, epoch: Epoch) {
        let Some(node) = self.peers[place].node.as_ref() else { return };
        if !node.grantors().any(|role| role == (service, epoch, GrantorState::Acting)) {
            return;
        }
        let (mut holds, mut waits, mut strange) = (Vec::new(), Vec::new(), 0);
        for (process, request, token) in node.table(service) {
            match (self.history.find(process, request), token) {
                (Some(ask), Some(token)) => holds.push((ask.0, token.get())),
                (Some(ask), None) => waits.push(ask.0),
                (None, _) => strange += 1,
            }
        }
        let service = service.as_str().to_string();
        self.record_here(
            place,
            Entry::Table { service, epoch: epoch.0.get(), holds, waits, strange },
        );
    }

    /// A packet is sent. Returns its number.
    pub(crate) fn record_send(
        &mut self,
        from: usize,
        to: usize,
        kind: &'static str,
        lost: Lost,
    ) -> u64 {
        let (second, before) = self.scribe.second;
        if second != self.now / SECOND && !self.scribe.silent {
            let packets = self.scribe.packets - before;
            self.scribe.second = (self.now / SECOND, self.scribe.packets);
            if packets > 0 {
                self.record_line(None, Entry::Sent { second, packets });
            }
        }
        self.record_network();
        self.scribe.packets += 1;
        let packet = self.scribe.packets;
        if self.scribe.messages {
            let lost = lost.map(ToString::to_string);
            self.record_here(from, Entry::Send { packet, to, kind: kind.to_string(), lost });
        }
        packet
    }

    pub(crate) fn record_arrival(&mut self, place: usize, packet: u64) {
        self.record_network();
        if self.scribe.messages {
            self.record_here(place, Entry::Arrive { packet });
        }
    }
}

fn lost(reason: LostReason) -> &'static str {
    match reason {
        LostReason::LeaseEnded => "lease ended",
        LostReason::Suspended => "suspended",
        LostReason::Expelled => "expelled",
        LostReason::Superseded => "superseded",
        LostReason::Left => "left",
        LostReason::Destroyed => "destroyed",
        LostReason::Revoked => "revoked",
        _ => "other",
    }
}
