//! Records what a World tells, as a [`Record`].
//!
//! Acts of clients and members are always recorded: in memory only, and they are few. Packets are
//! recorded on request.

use crate::history::{self, Ask, HoldMode, ObjectView};
use crate::history_checker;
use crate::invariants::acts_after;
use crate::kind::kind;
use crate::network::SECOND;
use crate::record::{Entry, Line, Record, RecordedRequest};
use crate::site::ProcessState;
use crate::world::{Observation, PacketLoss, World};
use elderlock::protocol::{
    Command, Epoch, Event, GrantorState, Input, Limits, LostReason, Outcome, Packet, ProcessId,
    ServiceName, Time, Token, View, Wait, Want,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

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
    /// How often a grantor began to recover, or to wait for a table.
    recoveries: u64,
    /// Site and life of every process that ever ran.
    lives: BTreeMap<ProcessId, (usize, u64)>,
    /// The premises of the history checker.
    premises: BTreeMap<&'static str, u64>,
    /// The services that each site grants, as far as recorded.
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
    /// Takes an observation.
    pub(crate) fn observe(&mut self, world: &World, observation: &Observation<'_>) {
        if self.silent {
            return;
        }
        match observation {
            Observation::Invoked { ask } => self.invoke(world, *ask),
            Observation::Outcome { ask, outcome } => self.answer(world, *ask, outcome),
            Observation::Loses { ask, reason } => self.loss(world, *ask, *reason),
            Observation::Sees { ask, sight } => self.sight(world, *ask, sight),
            Observation::ModeChanged { ask } => self.mode_changed(world, *ask),
            Observation::PermitsReturned { ask } => self.permits_returned(world, *ask),
            Observation::Released { ask } => self.release(world, *ask),
            Observation::Wrote { ask, index, token, taken } => {
                let (index, token, taken) = (*index, token.get(), *taken);
                self.about(world, *ask, Entry::Write { call: ask.0, index, token, taken });
            }
            Observation::Started { site } => self.start(world, *site),
            Observation::Takes { site, input: Input::Command(Command::Leave), .. } => {
                self.here(world, *site, Entry::Leave)
            }
            Observation::Event { site, event, .. } => self.event(world, *site, event),
            Observation::CarriedOut { site } => self.grantors(world, *site),
            Observation::Pauses { site } => self.pause(world, *site),
            Observation::Wakes { site } => self.here(world, *site, Entry::Wake),
            Observation::ClockSet { site } => self.clock_set(world, *site),
            Observation::Ended { site, how, unknown } => {
                self.end_process(world, *site, how, unknown)
            }
            Observation::Routed { from, to, number, packet, lost } => {
                self.send(world, (*from, *to), *number, packet, *lost)
            }
            Observation::Arrives { site, number } => self.arrival(world, *site, *number),
            Observation::Applied => self.ways(world),
            Observation::Fault { fault, kind, sites } => {
                let (kind, sites) = (kind.to_string(), sites.to_vec());
                self.line(world, None, Entry::Fault { fault: *fault, kind, sites });
            }
            Observation::Mended { fault } => {
                self.line(world, None, Entry::Mended { fault: *fault })
            }
            Observation::Heals => self.line(world, None, Entry::Heal),
            Observation::Rests => {
                let sites = world.demanded().filter(|site| world.is_alive(*site)).collect();
                self.line(world, None, Entry::Rest { sites });
            }
            Observation::Broken(found) => {
                let (invariant, words) = (found.invariant.to_string(), found.what.clone());
                let lock = found.lock.clone();
                self.line(world, None, Entry::Break { invariant, lock, words });
            }
            _ => {}
        }
    }

    /// Stops recording and drops the record.
    pub(crate) fn fall_silent(&mut self) {
        self.silent = true;
        self.record = Record::default();
        self.lives.clear();
        self.roles.clear();
    }

    fn line(&mut self, world: &World, site: Option<usize>, entry: Entry) {
        if self.record.lines.is_empty() {
            let timing = &world.common.timing;
            let (limits, usual) = (&world.common.limits, Limits::DEFAULT);
            let entry = Entry::World {
                crowded: limits.early < usual.early || limits.parked < usual.parked,
                seed: world.common.seed,
                sites: world.sites.len(),
                bounded: world.bounded,
                error_ppm: timing.clock_error_ppm,
                answer: timing.answer.as_nanos() as u64,
                council: usize::from(world.common.council),
                leases: (
                    timing.member_lease.as_nanos() as u64,
                    timing.elder_lease.as_nanos() as u64,
                ),
            };
            self.record.lines.push(Line { at: world.now, site: None, life: 0, entry });
        }
        self.ways(world);
        let life = site.map_or(0, |site| world.sites[site].incarnation);
        self.record.lines.push(Line { at: world.now, site, life, entry });
    }

    /// Records the changes of the ways between members since the last record of them.
    fn ways(&mut self, world: &World) {
        if self.record.lines.is_empty() {
            return;
        }
        if self.changes != world.network.changes {
            self.changes = world.network.changes;
            let now: BTreeSet<(usize, usize)> = world.network.cuts().collect();
            let before = std::mem::replace(&mut self.cuts, now);
            let cut = self.cuts.difference(&before).copied().collect();
            let mended = before.difference(&self.cuts).copied().collect();
            if self.cuts != before {
                let entry = Entry::Ways { cut, mended };
                self.record.lines.push(Line { at: world.now, site: None, life: 0, entry });
            }
        }
        if world.longest_way() > self.slow {
            self.slow = world.longest_way().next_power_of_two();
            let entry = Entry::Slow { upto: self.slow };
            self.record.lines.push(Line { at: world.now, site: None, life: 0, entry });
        }
    }

    fn here(&mut self, world: &World, site: usize, entry: Entry) {
        self.line(world, Some(site), entry);
    }

    fn about(&mut self, world: &World, ask: Ask, entry: Entry) {
        self.here(world, world.history.call(ask).member, entry);
    }

    fn invoke(&mut self, world: &World, ask: Ask) {
        let call = world.history.call(ask);
        let nanos = |span: Duration| span.as_nanos() as u64;
        let entry = Entry::Invoke {
            call: ask.0,
            service: call.service.as_str().to_string(),
            request_kind: match &call.request_kind {
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
                history::ClientRequest::Query(_) | history::ClientRequest::AskHolder(_) => {
                    RecordedRequest::See
                }
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
            permits: match &call.request_kind {
                history::ClientRequest::Hold(Want::Permits(_, permits)) => permits.get(),
                history::ClientRequest::Put(_, value, _) => value.limit(),
                _ => 0,
            },
            of: match &call.request_kind {
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
        self.about(world, ask, entry);
    }

    fn answer(&mut self, world: &World, ask: Ask, outcome: &Outcome) {
        let fail = |answer: &str| Entry::Fail { call: ask.0, answer: answer.to_string() };
        let site = world.history.call(ask).member;
        let entry = match outcome {
            Outcome::Granted { token, until } => Entry::Ok {
                call: ask.0,
                token: token.get(),
                until: true_end(world, site, *until),
                from_keep: world.place_of(world.history.call(ask)).is_some(),
            },
            Outcome::Opened { .. } => {
                Entry::Ok { call: ask.0, token: 0, until: None, from_keep: false }
            }
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
            Outcome::Outbid(_) => fail("superseded"),
            Outcome::Destroyed => fail("destroyed"),
            Outcome::Unconfirmed => fail("unconfirmed"),
            Outcome::Confirmed => fail("confirmed"),
            Outcome::QueryReply(_) | Outcome::Holder(_) => fail("seen"),
            Outcome::RevocationRequested { .. } => fail("asked back"),
            Outcome::Revoked => fail("taken back"),
            Outcome::HolderNotTold | Outcome::ForceNotAllowed => fail("untold"),
            Outcome::Busy => fail("busy"),
            Outcome::Closed(reason) => fail(&format!("closed: {}", words_of(*reason))),
            Outcome::Extended { until } => {
                Entry::Extended { call: ask.0, until: true_end(world, site, *until) }
            }
            Outcome::NotHeld
                if matches!(world.call(ask).request_kind, history::ClientRequest::Upgrade(_)) =>
            {
                fail("not held")
            }
            Outcome::NotHeld | Outcome::Reduced => return,
        };
        self.here(world, site, entry);
    }

    fn loss(&mut self, world: &World, ask: Ask, reason: LostReason) {
        self.about(world, ask, Entry::Lost { call: ask.0, reason: words_of(reason) });
    }

    fn release(&mut self, world: &World, ask: Ask) {
        self.about(world, ask, Entry::Release { call: ask.0 });
    }

    /// Notes that the share of the call is the lock now, or its lock a share.
    fn mode_changed(&mut self, world: &World, ask: Ask) {
        let call = world.call(ask);
        let request_kind = if call.mode == HoldMode::Share {
            RecordedRequest::Share
        } else {
            RecordedRequest::Lock
        };
        let token = call.token().map_or(0, Token::get);
        self.about(world, ask, Entry::ModeChanged { call: ask.0, request_kind, token });
    }

    fn permits_returned(&mut self, world: &World, ask: Ask) {
        if let HoldMode::Permits(left) = world.call(ask).mode {
            self.about(world, ask, Entry::PermitsReturned { call: ask.0, left });
        }
    }

    fn sight(&mut self, world: &World, ask: Ask, sight: &ObjectView) {
        let bytes = sight.value.as_bytes();
        let value = match <[u8; 4]>::try_from(bytes) {
            Ok(limit) => u32::from_le_bytes(limit).to_string(),
            Err(_) => String::from_utf8_lossy(bytes).into_owned(),
        };
        let (version, stale) = (sight.version.get(), sight.stale);
        self.about(world, ask, Entry::Sees { call: ask.0, version, value, stale });
    }

    fn start(&mut self, world: &World, site: usize) {
        if let Some(process) = world.sites[site].process() {
            self.lives.insert(process, (site, world.sites[site].incarnation));
        }
        self.here(world, site, Entry::Start);
    }

    /// The process at `site` has ended; the outcome of these calls is unknown.
    fn end_process(&mut self, world: &World, site: usize, how: &str, unknown: &[Ask]) {
        for ask in unknown {
            self.here(world, site, Entry::Unknown { call: ask.0 });
        }
        self.here(world, site, Entry::End { how: how.to_string() });
        if let Some(roles) = self.roles.get_mut(site) {
            roles.clear();
        }
    }

    fn pause(&mut self, world: &World, site: usize) {
        self.here(world, site, Entry::Pause);
        let until = true_end(world, site, world.sites[site].lease_end());
        self.here(world, site, Entry::Lease { until });
    }

    /// The clock at `site` has another rate: pending ends by that clock come at another time than
    /// recorded.
    fn clock_set(&mut self, world: &World, site: usize) {
        let Some(process) = world.sites[site].process().filter(|_| world.sites[site].is_alive())
        else {
            return;
        };
        let now = world.sites[site].clock.local(world.now);
        let holds: Vec<(Ask, Time)> =
            world.history.claims().map(|ask| (ask, world.call(ask).until)).collect();
        for (ask, until) in holds {
            if world.call(ask).process == process && until > now {
                let until = true_end(world, site, until);
                self.about(world, ask, Entry::Extended { call: ask.0, until });
            }
        }
        if world.sites[site].lease_end() > now {
            let until = true_end(world, site, world.sites[site].lease_end());
            self.here(world, site, Entry::Lease { until });
        }
    }

    fn event(&mut self, world: &World, site: usize, event: &Event) {
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
            Event::FollowsLoad { .. } => named("follows_load"),
            Event::Orphaned => named("orphaned"),
            // The grantor's own events tell it.
            Event::FoundGrantor { .. } => return,
            // The event of the loss follows.
            Event::ForcedRevoke { .. } => return,
            Event::IdentityTaken => named("identity_taken"),
            // A refused claim changes nothing, and neither does another lineage that is refused.
            Event::VoteClaimRefused { .. } | Event::OtherLineage(_) => return,
            // No simulated member reaches the bound of bytes of requests.
            Event::WaitsLeftOut { .. } | Event::TableRefused { .. } => return,
            Event::Forced => named("forced"),
            Event::ForceRefused(_) => named("force_refused"),
            Event::BecameGrantor { service, epoch } => {
                let asked = (service.clone(), *epoch, GrantorState::Recovering);
                let roles = self.roles.get(site);
                // A predecessor may have answered the recovery with its table.
                let has_recovered = acts_after(asked.2, world, site, (service, *epoch));
                if has_recovered && roles.is_some_and(|roles| roles.contains(&asked)) {
                    self.begun.push((asked.0, asked.1));
                }
                self.set_role(site, service, Some((*epoch, GrantorState::Acting)));
                Entry::Grantor {
                    service: service.as_str().to_string(),
                    epoch: epoch.0.get(),
                    recovering: false,
                }
            }
            Event::NoLongerGrantor { service, epoch }
            | Event::GrantorAborted { service, epoch } => {
                self.set_role(site, service, None);
                Entry::NoGrantor { service: service.as_str().to_string(), epoch: epoch.0.get() }
            }
        };
        self.here(world, site, entry);
    }

    fn view_line(&self, view: &View) -> Entry {
        // A stranger that a view took in has no site.
        let stranger = |process: &ProcessId| (usize::from(u16::MAX), process.0 as u64);
        let whose =
            |process: &ProcessId| self.lives.get(process).copied().unwrap_or(stranger(process));
        let of = |member: &elderlock::protocol::ViewMember| whose(&member.info.process);
        Entry::View {
            number: view.number.0,
            slots: (view.first_slot.0, view.slots),
            members: view.members.iter().map(|member| of(member).0).collect(),
            lives: view.members.iter().map(|member| of(member).1).collect(),
            ghosts: view.members.iter().filter(|member| member.ghost).map(of).collect(),
            learners: view.members.iter().filter(|member| member.learner).map(of).collect(),
            founder: whose(&view.lineage.founder),
        }
    }

    fn set_role(
        &mut self,
        site: usize,
        service: &ServiceName,
        role: Option<(Epoch, GrantorState)>,
    ) {
        if self.roles.len() <= site {
            self.roles.resize_with(site + 1, Vec::new);
        }
        let roles = &mut self.roles[site];
        roles.retain(|(of, ..)| of != service);
        roles.extend(role.map(|(epoch, state)| (service.clone(), epoch, state)));
    }

    /// A grantor that begins to recover, or to wait for a table, tells only the processes that it
    /// asks. So the recorder reads it from the core, and also the table of a grantor that has
    /// completed its recovery.
    fn grantors(&mut self, world: &World, site: usize) {
        let begun = std::mem::take(&mut self.begun);
        // The unfinished step of a process that died in the middle of it gives it no role.
        if world.sites[site].run == ProcessState::Down {
            return;
        }
        for (service, epoch) in begun {
            self.table(world, site, &service, epoch);
        }
        let Some(node) = world.sites[site].node.as_ref() else { return };
        let known = self.roles.get(site).map_or(&[][..], Vec::as_slice);
        let news: Vec<(ServiceName, Epoch, GrantorState)> = node
            .grantors()
            .filter(|(service, epoch, state)| {
                *state != GrantorState::Acting
                    && !known.contains(&((*service).clone(), *epoch, *state))
            })
            .map(|(service, epoch, state)| (service.clone(), epoch, state))
            .collect();
        self.recoveries += news.len() as u64;
        for (service, epoch, state) in news {
            self.set_role(site, &service, Some((epoch, state)));
            if state == GrantorState::Recovering {
                let (service, epoch) = (service.as_str().to_string(), epoch.0.get());
                self.here(world, site, Entry::Grantor { service, epoch, recovering: true });
            }
        }
    }

    /// Records the first table of the grantor at `site`, if it still acts.
    fn table(&mut self, world: &World, site: usize, service: &ServiceName, epoch: Epoch) {
        let Some(node) = world.sites[site].node.as_ref() else { return };
        if !node.grantors().any(|role| role == (service, epoch, GrantorState::Acting)) {
            return;
        }
        let (mut holds, mut waits, mut strange) = (Vec::new(), Vec::new(), 0);
        for (process, request, token) in node.table(service) {
            match (world.history.find(process, request), token) {
                (Some(ask), Some(token)) => holds.push((ask.0, token.get())),
                (Some(ask), None) => waits.push(ask.0),
                (None, _) => strange += 1,
            }
        }
        let service = service.as_str().to_string();
        self.here(
            world,
            site,
            Entry::Table { service, epoch: epoch.0.get(), holds, waits, strange },
        );
    }

    /// A packet is sent.
    fn send(
        &mut self,
        world: &World,
        (from, to): (usize, usize),
        packet: u64,
        content: &Packet,
        lost: Option<PacketLoss>,
    ) {
        let (second, before) = self.second;
        if second != world.now / SECOND {
            let packets = self.packets - before;
            self.second = (world.now / SECOND, self.packets);
            if packets > 0 {
                self.line(world, None, Entry::Sent { second, packets });
            }
        }
        self.ways(world);
        self.packets = packet;
        if self.messages {
            let kind = kind(content).to_string();
            let lost = lost.map(|lost| lost_by(lost).to_string());
            self.here(world, from, Entry::Send { packet, to, kind, lost });
        }
    }

    fn arrival(&mut self, world: &World, site: usize, packet: u64) {
        self.ways(world);
        if self.messages {
            self.here(world, site, Entry::Arrive { packet });
        }
    }
}

/// The true time of an end on a member's clock.
fn true_end(world: &World, site: usize, until: Time) -> Option<u64> {
    world.sites[site].clock.when(until)
}

/// The reason as the record has it: "lease ended".
fn words_of(reason: LostReason) -> String {
    reason.word().replace('_', " ")
}

fn lost_by(loss: PacketLoss) -> &'static str {
    match loss {
        PacketLoss::Dropped => "dropped",
        PacketLoss::Cut => "cut",
        PacketLoss::Lost => "lost",
    }
}

impl World {
    /// The record has a line for every packet that is sent and for every one that arrives.
    pub fn with_messages(mut self) -> World {
        self.observers_mut().recorder.messages = true;
        self
    }

    /// The record so far.
    pub fn record(&self) -> &Record {
        &self.observers().recorder.record
    }

    /// The record, without the World.
    pub fn into_record(mut self) -> Record {
        std::mem::take(&mut self.observers_mut().recorder.record)
    }

    /// Runs the history checker on the record. For the end of a run.
    pub fn read_again(&mut self) {
        match history_checker::check(self.record()) {
            Ok(findings) => {
                self.observers_mut().recorder.premises = findings.premises;
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
        self.observers().recorder.premises.clone()
    }

    /// Lets the World go on for a while, or until a later view is installed or a recovery begins.
    pub(crate) fn run_or_recover(&mut self, span: Duration) {
        let stirred = |world: &World| (world.later_views, world.observers().recorder.recoveries);
        let before = stirred(self);
        self.run_until(|world| stirred(world) != before, span);
    }
}
