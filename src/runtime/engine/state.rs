//! `EngineState`: the core, and the state that changes with it. The engine's lock protects it.

use super::super::application_code::call_each;
use super::super::clock;
use super::super::clock_watch::{ClockWatch, Finding, Reading};
use super::super::hold_cell::{HoldCell, MemberLease};
use super::super::local_grants::{Drained, LocalGrants, LocalHold};
use super::super::member_clock::MemberClock;
use super::super::network::Network;
use super::super::process_id::draw_vote_secret;
use super::super::sync::{AtomicBool, Map, Mutex, ThreadMutant, is_planted, seam};
use super::super::telemetry::{MemberLog, PacketCounts, SpanTracker, TelemetryNote};
use super::super::vote_writer::{VoteStorage, VoteWriter};
use super::event_readers::{Announcement, ConnectionStatus, ReaderUpdate};
use super::phase::{EngineClosed, EnginePhase};
use crate::protocol::paged_map::PagedMap;
use crate::protocol::{
    Command, Config, Event, FastOutcome, Input, LedMember, LostReason, Node, Notice, Outcome,
    Output, Packet, ProcessId, RequestId, ServiceName, Status, StoredVote, Time, Token, Want,
};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

/// Cells that are kept for later holds: a few for each thread that takes one lock after another.
const SPARE: usize = 64;

/// The most members that hear of a goodbye without need. Each may take a new connection.
const MOST_FAREWELLS: usize = 32;

/// The answer to a request: the hold, or an outcome without a hold. It is passed on often, so the
/// outcome is boxed.
pub(crate) type Answer = Result<Arc<HoldCell>, Box<Outcome>>;

pub(super) fn closed(reason: LostReason) -> Answer {
    Err(Box::new(Outcome::Closed(reason)))
}

/// The state that the lock protects.
pub(super) struct EngineState {
    pub(super) node: Node,
    pub(super) config: Config,
    network: Arc<dyn Network>,
    /// The storage of the vote, if this member has a data directory, until the writing thread has
    /// begun.
    pub(super) disk: Option<Box<dyn VoteStorage>>,
    /// Sends votes to the writing thread.
    pub(super) writer: Option<VoteWriter>,
    /// The newest write that the core asked for before the writer was there: packets arrive
    /// earlier.
    pub(super) unwritten: Option<(ProcessId, u64, Box<StoredVote>)>,
    /// Why the last write of the vote failed, if it did.
    pub(super) disk_trouble: Option<(io::ErrorKind, String)>,
    /// The member of a running cluster that answered a forced start.
    pub(super) refusing: Option<Box<LedMember>>,
    /// The fault that is reported when the engine breaks.
    fault: &'static str,
    /// The outputs of a step. The memory is kept from turn to turn.
    outputs: Vec<Output>,
    pub(super) pending: Map<RequestId, PendingRequest>,
    /// The cells of all held locks.
    pub(super) holds: PagedMap<Arc<HoldCell>>,
    /// The local grants of each service that has a handle.
    pub(super) local_grants: BTreeMap<ServiceName, Weak<LocalGrants>>,
    /// The local grants that the core has not absorbed yet.
    pub(super) used: Mutex<Vec<Arc<LocalGrants>>>,
    /// Cells of holds that are over. A later hold reuses one as soon as it has no other owner;
    /// otherwise taking one lock after another would allocate each time. At most [`SPARE`].
    spare: VecDeque<Arc<HoldCell>>,
    /// The member lease of this incarnation, shared with its holds.
    pub(super) lease: Arc<MemberLease>,
    /// The time at which the timer task wakes next.
    pub(super) armed: Time,
    /// The member was told to leave.
    leaving: bool,
    /// Whether the other members were told that this one leaves.
    told_farewell: bool,
    clocks: ClockWatch,
    /// The clock is not to be trusted: nothing is received or sent, and no guard is good.
    pub(super) is_muted: bool,
    /// The time of the last reading by which the clock was distrusted, by RAW.
    mute_since: Time,
    /// Whether the member was ready in an earlier incarnation. If the first one is abandoned before
    /// it is ready, no hold or event is lost.
    joined_before: bool,
    pub(super) phase: EnginePhase,
    /// The status that was announced last.
    status: ConnectionStatus,
    /// The packets, counted for the timer task.
    pub(super) packet_counts: PacketCounts,
    /// The open spans, for subscribers.
    watch: SpanTracker,
    /// The lines for an operator.
    log: MemberLog,
}

/// A request whose future was told to wait.
pub(super) enum PendingRequest {
    Waiting(Option<Waker>),
    Answered(Answer),
}

/// The work that is left after unlocking.
#[derive(Default)]
pub(super) struct TurnEffects {
    pub(super) wakers: Vec<Waker>,
    pub(super) lost: Vec<Arc<HoldCell>>,
    /// Holds that are requested back, and objects with new content.
    pub(super) changed: Vec<Arc<HoldCell>>,
    /// Values that are dropped after unlocking: their destructors may be user code.
    pub(super) trash: Vec<PendingRequest>,
    pub(super) announcements: Vec<ReaderUpdate>,
    pub(super) notes: Vec<TelemetryNote>,
    pub(super) rearm: bool,
    pub(super) phase: bool,
    /// Whether packets were queued.
    pub(super) sent: bool,
    /// Flush at once: a caller waits for the result and sends nothing more.
    pub(super) is_urgent: bool,
    /// The core was stepped.
    pub(super) stepped: bool,
    /// The turn only granted, released or polled a request, without a step: no lease or deadline
    /// has changed.
    pub(super) at_once: bool,
}

impl TurnEffects {
    /// Writes a log line after unlocking: subscribers are the application's code.
    pub(super) fn log(&mut self, write: impl FnOnce() + Send + 'static) {
        self.notes.push(TelemetryNote::Line(Box::new(write)));
    }

    fn announce(&mut self, announcement: Announcement) {
        self.announcements.push(ReaderUpdate::Happened(announcement));
    }

    /// Wakes the callers whose requests were answered, and the tasks that wait for an event of a
    /// hold. The engine state is unlocked.
    pub(super) fn wake_callers(&mut self) {
        call_each(self.wakers.drain(..), Waker::wake);
        seam();
        call_each(self.changed.drain(..), |object| object.wake_listeners());
        call_each(self.lost.drain(..), |hold| {
            if !is_planted(ThreadMutant::LossUntold) {
                hold.tell();
            }
        });
    }
}

impl Drop for TurnEffects {
    fn drop(&mut self) {
        // A core that panics has answered some callers already: no later turn would wake them.
        if std::thread::panicking() {
            self.wake_callers();
        }
    }
}

/// The request for which the present turn was made, and its answer.
pub(super) struct OwnRequest {
    request: RequestId,
    answer: Option<Answer>,
}

impl EngineState {
    pub(super) fn new(
        mut config: Config,
        network: Arc<dyn Network>,
        disk: Option<Box<dyn VoteStorage>>,
        clock: MemberClock,
        phase: EnginePhase,
    ) -> EngineState {
        config.clock = clock::slot();
        EngineState {
            node: Node::new(config.clone(), clock.now()),
            config,
            network,
            disk,
            writer: None,
            unwritten: None,
            disk_trouble: None,
            refusing: None,
            fault: "the runtime under it ended",
            outputs: Vec::new(),
            pending: Map::default(),
            holds: PagedMap::default(),
            local_grants: BTreeMap::new(),
            used: Mutex::default(),
            spare: VecDeque::new(),
            lease: Arc::new(MemberLease::new(Time::ZERO, clock)),
            armed: Time::ZERO,
            leaving: false,
            told_farewell: false,
            clocks: ClockWatch::default(),
            is_muted: false,
            mute_since: Time::ZERO,
            joined_before: false,
            phase,
            status: ConnectionStatus::Lost,
            packet_counts: PacketCounts::new(),
            watch: SpanTracker::default(),
            log: MemberLog::default(),
        }
    }

    /// Returns whether the member takes no more requests: it is leaving, or has left.
    pub(super) fn is_over(&self) -> bool {
        self.leaving || self.phase.closed.is_some()
    }

    /// Returns the latest time at which the timer is due: [`Time::MAX`] for never.
    pub(super) fn deadline(&self) -> Time {
        self.node.wake_by().unwrap_or(Time::MAX)
    }

    /// Carries out a command from `Drop`.
    pub(super) fn obey(&mut self, command: Command, now: Time, effects: &mut TurnEffects) {
        match command {
            Command::Release { request } => {
                effects.trash.extend(self.pending.remove(&request));
                if let Some(cell) = self.holds.remove(&request)
                    && self.spare.len() < SPARE
                {
                    self.spare.push_back(cell);
                }
                if self.phase.closed.is_some() {
                    return;
                }
                if self.node.try_fast(now, &command).is_some() {
                    effects.at_once = true;
                } else {
                    self.step(Input::Command(command), None, effects);
                }
            }
            Command::Reduce { .. } if self.phase.closed.is_none() => {
                self.step(Input::Command(command), None, effects);
            }
            Command::Leave if !self.is_over() => {
                self.leaving = true;
                self.step(Input::Command(command), None, effects);
            }
            _ => {}
        }
    }

    /// Absorbs the local grants into the core. If the core is broken, only the present holds are
    /// kept, to be ended.
    pub(super) fn absorb(&mut self, is_broken: bool, next_request: impl Fn() -> RequestId) {
        // No other thread has the lock.
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        for local_grants in used.drain(..) {
            let Drained { spent, held, kept } = local_grants.empty();
            let mut number = |cell: Arc<HoldCell>| {
                let request = next_request();
                cell.note_request(request);
                self.holds.insert(request, cell);
                request
            };
            let mut taken = Vec::with_capacity(held.len());
            for (hold, cell) in held {
                taken.push((number(cell), hold));
            }
            if !is_broken {
                self.node.absorb(&local_grants.service, spent, taken);
            }
            for (used, hold) in kept {
                let holder = hold.map(|LocalHold { cell, owner }| (number(cell), owner));
                if !is_broken {
                    self.node.absorb_kept(&local_grants.service, used, holder);
                }
            }
        }
    }

    /// Gives a request to the core. `None`: the request waits, and its answer wakes `waker`.
    pub(super) fn request(
        &mut self,
        (request, waker): (RequestId, Option<Waker>),
        command: &Command,
        destroyed: &AtomicBool,
        effects: &mut TurnEffects,
    ) -> Option<Answer> {
        if self.is_over() {
            return Some(closed(LostReason::Left));
        }
        if destroyed.load(Ordering::Acquire) {
            return Some(closed(LostReason::Destroyed));
        }
        if let Some(hold) = self.grant_at_once(request, command, effects) {
            return Some(Ok(hold));
        }
        destroyed.store(matches!(command, Command::Destroy { .. }), Ordering::Release);
        let answer = self.step(Input::Command(command.clone()), Some(request), effects);
        if answer.is_none() {
            self.pending.insert(request, PendingRequest::Waiting(waker));
            // If other requests wait as well, their callers are about to send more: one write takes
            // all of it.
            effects.is_urgent = self.pending.len() == 1;
        }
        answer
    }

    /// The fast path of a command that is granted at once.
    fn grant_at_once(
        &mut self,
        request: RequestId,
        command: &Command,
        effects: &mut TurnEffects,
    ) -> Option<Arc<HoldCell>> {
        let Some(FastOutcome::Granted(token, until)) =
            self.node.try_fast(self.lease.now(), command)
        else {
            return None;
        };
        effects.at_once = true;
        if until < self.armed {
            self.armed = until;
            effects.rearm = true;
        }
        Some(self.hold(request, token, until))
    }

    /// The cell of a hold that begins.
    fn hold(&mut self, request: RequestId, token: Token, until: Time) -> Arc<HoldCell> {
        let cell =
            HoldCell::in_place_of(self.spare.pop_front(), Some(request), token, until, &self.lease);
        self.holds.insert(request, cell.clone());
        cell
    }

    /// Steps the core and carries out its instructions in order. The answer to `own` is returned
    /// instead of kept.
    pub(super) fn step(
        &mut self,
        input: Input,
        own: Option<RequestId>,
        effects: &mut TurnEffects,
    ) -> Option<Answer> {
        effects.stepped = true;
        // A muted member acts as if it were cut off. The other members have a rule for that case.
        if self.is_muted && matches!(input, Input::Received { .. } | Input::Hint(_)) {
            return None;
        }
        let mut own = own.map(|request| OwnRequest { request, answer: None });
        let mut inputs = VecDeque::new();
        let mut next = Some(input);
        while let Some(input) = next.take() {
            if let Input::Received { packet, .. } = &input {
                self.packet_counts.received(packet, self.node.view().is_some());
            }
            self.log.heard(&input);
            let mut outputs = std::mem::take(&mut self.outputs);
            let now = self.lease.now();
            self.node.step(now, input, &mut outputs);
            self.end_claim(now);
            let mut over = None;
            for output in outputs.drain(..) {
                if let Some(unwanted) = self.on_output(output, now, (&mut own, &mut over), effects)
                {
                    inputs.push_back(unwanted);
                }
            }
            self.outputs = outputs;
            if over.is_none() && self.leaving && !self.told_farewell && self.node.says_goodbye() {
                self.told_farewell = true;
                self.tell_farewell(effects);
            }
            match over {
                None => {}
                Some(IncarnationEnd::Left { heard }) => {
                    self.close(
                        if heard { EngineClosed::Heard } else { EngineClosed::Unheard },
                        effects,
                    );
                    break;
                }
                Some(IncarnationEnd::WrongClock { ahead }) => {
                    self.close(EngineClosed::WrongClock { ahead }, effects);
                    break;
                }
                Some(IncarnationEnd::ForceRefused) => {
                    self.close(EngineClosed::ForceRefused, effects);
                    break;
                }
                Some(IncarnationEnd::Reborn { expelled }) => {
                    self.give_birth(expelled, &mut own, effects);
                    inputs.clear();
                    if self.phase.closed.is_some() {
                        break;
                    }
                    inputs.push_back(Input::Timer);
                }
            }
            next = inputs.pop_front();
        }
        own.and_then(|own| own.answer)
    }

    /// Carries out an instruction of the core. Returns an input that follows from it.
    fn on_output(
        &mut self,
        output: Output,
        now: Time,
        (own, over): (&mut Option<OwnRequest>, &mut Option<IncarnationEnd>),
        effects: &mut TurnEffects,
    ) -> Option<Input> {
        match output {
            Output::Send { .. } if self.is_muted => {}
            Output::Send { to, process, packet } => {
                effects.sent = true;
                self.packet_counts.sent(&packet);
                self.watch.sent(&packet, &self.node, now, &mut effects.notes);
                self.network.send(to, process, packet);
            }
            Output::Answer { request, outcome } => {
                return self.on_answer(request, outcome, own, effects);
            }
            Output::Value { request, content } => {
                if let Some(object) = self.holds.get(&request) {
                    object.hear(content);
                    effects.changed.push(object.clone());
                }
            }
            Output::Lost { request, reason, service, want } => {
                self.on_lost(request, reason, (service, want), effects);
            }
            Output::RevocationRequested { request, by } => {
                if let Some(hold) = self.holds.get(&request) {
                    planted!(WantTwice => hold.want(by.clone()));
                    if !planted!(WantInSilence) {
                        hold.want(by);
                    }
                    effects.changed.push(hold.clone());
                }
            }
            Output::Event(event) => {
                let me = &self.config.me;
                self.watch.said(&event, (me, &self.node), now, &mut effects.notes);
                let mut lines = Vec::new();
                self.log.said(&event, self.config.me.process, &mut lines);
                effects.notes.extend(lines.into_iter().map(TelemetryNote::Log));
                self.on_event(event, over, effects);
            }
            Output::Store { number, vote } => {
                let process = self.node.process();
                match &self.writer {
                    Some(writer) => writer.write(process, number, vote),
                    None => self.unwritten = Some((process, number, vote)),
                }
            }
        }
        None
    }

    /// Ends the endless lease of an elder that was a quorum alone. This precedes each message with
    /// which other members could act. Guards learn of other lease changes at the end of the turn.
    fn end_claim(&mut self, now: Time) {
        let end = self.node.lease_end();
        if self.lease.end() == Time::MAX && end != Time::MAX && end > now {
            self.lease.set_end(end);
        }
    }

    /// Notes the result of a write. A failure of the disk is announced once, and so is the
    /// recovery.
    pub(super) fn note_disk(&mut self, result: io::Result<()>, effects: &mut TurnEffects) {
        match result {
            Ok(()) => {
                if self.disk_trouble.take().is_some() {
                    effects.log(|| tracing::info!("the vote is in the data directory again"));
                    effects.announce(Announcement::VoteStored);
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if self.disk_trouble.as_ref().is_none_or(|(_, known)| *known != reason) {
                    let error = reason.clone();
                    effects.log(move || {
                        tracing::error!(
                            %error,
                            "the vote cannot be kept in the data directory: \
                             this member goes on without it"
                        );
                    });
                    effects.announce(Announcement::VoteNotStored(reason.clone()));
                }
                self.disk_trouble = Some((error.kind(), reason));
            }
        }
    }

    /// Ends the member because of a fault.
    pub(super) fn fail(&mut self, why: &'static str, effects: &mut TurnEffects) {
        self.fault = why;
        self.close(EngineClosed::Broken, effects);
    }

    /// Ends the member after a panic of the core. The goodbye saves the elder the wait for the
    /// member's lease.
    pub(super) fn break_down(&mut self, effects: &mut TurnEffects) {
        if self.phase.closed.is_some() {
            return;
        }
        let me = self.config.me.process;
        let view = self.node.view().filter(|view| view.contains(me));
        let elder = view.map(|view| view.elder().clone());
        // The holds end before the goodbye leaves, which states that the member holds nothing.
        self.fail("the core panicked", effects);
        if let Some(elder) = elder.filter(|elder| elder.process != me && !self.is_muted) {
            effects.sent = true;
            self.network.send(elder.addr, Some(elder.process), Packet::from(Notice::Leave));
        }
    }

    /// Tells the other members that this one leaves, for their logs: they know the reason of the
    /// next view then. The core has told the elder. No other member acts on a goodbye.
    fn tell_farewell(&self, effects: &mut TurnEffects) {
        let me = self.config.me.process;
        let Some(view) = self.node.view().filter(|_| !self.is_muted) else { return };
        let elder = view.elder().process;
        let others = view.members.iter().filter(|member| {
            let process = member.info.process;
            !member.ghost && process != me && process != elder
        });
        for other in others.take(MOST_FAREWELLS) {
            effects.sent = true;
            self.network.farewell(&other.info);
        }
    }

    /// Notes the answer to `request`. Returns the input for the core if no task waits for a grant.
    fn on_answer(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        own: &mut Option<OwnRequest>,
        effects: &mut TurnEffects,
    ) -> Option<Input> {
        let answer = match outcome {
            Outcome::Granted { token, until } => Ok(self.hold(request, token, until)),
            Outcome::Opened { token, content } => {
                let object = Arc::new(HoldCell::of_object(request, token, content, &self.lease));
                self.holds.insert(request, object.clone());
                Ok(object)
            }
            outcome => {
                if let Outcome::Upgraded { hold, token } = &outcome
                    && let Some(hold) = self.holds.get(hold)
                {
                    hold.upgrade(*token);
                }
                if let (Outcome::Extended { until }, Some(hold)) =
                    (&outcome, self.holds.get(&request))
                {
                    hold.extend(*until);
                }
                Err(Box::new(outcome))
            }
        };
        if let Some(own) = own
            && own.request == request
        {
            own.answer = Some(answer);
            return None;
        }
        match self.pending.get_mut(&request) {
            Some(pending) => {
                if let PendingRequest::Waiting(waker) =
                    std::mem::replace(pending, PendingRequest::Answered(answer))
                {
                    effects.wakers.extend(waker);
                }
                None
            }
            // The request was released before, and the core should know. The release is repeated,
            // so that the core keeps no hold without an owner.
            None => answer.is_ok().then(|| {
                self.holds.remove(&request);
                Input::Command(Command::Release { request })
            }),
        }
    }

    pub(super) fn on_lost(
        &mut self,
        request: RequestId,
        reason: LostReason,
        names: (ServiceName, Want),
        effects: &mut TurnEffects,
    ) {
        planted!(TakenAndKept => if reason == LostReason::Revoked { return });
        planted!(GuardsOutliveMember => if crate::runtime::mutant::is_of_member(reason) { return });
        if let Some(hold) = self.holds.remove(&request) {
            hold.mark_lost(reason);
            let line = self.log.lost(names, hold.token(), reason);
            effects.notes.extend(line.map(TelemetryNote::Log));
            effects.lost.push(hold);
        }
    }

    pub(super) fn on_event(
        &mut self,
        event: Event,
        over: &mut Option<IncarnationEnd>,
        effects: &mut TurnEffects,
    ) {
        if event == Event::Suspended {
            // The suspension is noted now: the same step may resume the member, and then no reader
            // would learn of it.
            self.note_status(ConnectionStatus::Suspended, effects);
        }
        if let Event::ViewInstalled(view) = &event {
            self.network.installed(view);
        }
        match event {
            Event::Expelled => *over = Some(IncarnationEnd::Reborn { expelled: true }),
            Event::Abandoned | Event::Forced => {
                *over = Some(IncarnationEnd::Reborn { expelled: false })
            }
            Event::Left { heard } => *over = Some(IncarnationEnd::Left { heard }),
            Event::ForceRefused(member) => {
                self.refusing = Some(member);
                *over = Some(IncarnationEnd::ForceRefused);
            }
            Event::WrongClock { theirs, ours } => {
                let ahead = crate::protocol::Slot::span(theirs.0.saturating_sub(ours.0));
                effects.log(move || {
                    tracing::error!(
                        ?ahead,
                        "the cluster is more than an hour ahead of this machine's clock: \
                         this member ends"
                    );
                });
                *over = Some(IncarnationEnd::WrongClock { ahead });
                effects.announce(Announcement::Event(event));
            }
            // Another member may name any service: only those of this program have a line.
            Event::FoundGrantor { service, epoch, process } => {
                if self.local_grants.contains_key(&service) {
                    let line = self.log.found_grantor(service, epoch, process);
                    effects.notes.extend(line.map(TelemetryNote::Log));
                }
            }
            // The service has lost or gained nothing: no reader is told.
            Event::GrantorAborted { .. } | Event::Supplied { .. } => {}
            // A stranger can cause any number of these events: they are counted, and logged at a
            // limited rate.
            Event::VoteClaimRefused { .. } => self.network.claim_refused(),
            Event::OtherLineage(_) => self.network.heard_other_lineage(),
            // A member can cause any number of these events: they are logged at a limited rate.
            Event::WaitsLeftOut { .. } | Event::TableRefused { .. } => {}
            event => effects.announce(Announcement::Event(event)),
        }
    }

    /// Ends the incarnation with all its holds and waits, and begins a new one.
    fn give_birth(
        &mut self,
        expelled: bool,
        own: &mut Option<OwnRequest>,
        effects: &mut TurnEffects,
    ) {
        let reason = LostReason::Expelled;
        if let Some(own) = own {
            own.answer.get_or_insert_with(|| closed(reason));
        }
        self.end_all(reason, effects);
        self.note_status(ConnectionStatus::Lost, effects);
        if self.phase.ready {
            self.joined_before = true;
            self.phase.ready = false;
            effects.announce(Announcement::Expelled);
        }
        effects.phase = true;
        if self.leaving {
            return self.close(EngineClosed::Unheard, effects);
        }
        let (process, static_key) = match self.network.draw_identity() {
            Ok(identity) => identity,
            Err(error) => {
                let text = "no randomness for a new process id: this member leaves";
                effects.log(move || tracing::error!(%error, "{text}"));
                return self.fail("no randomness for a new process id", effects);
            }
        };
        let vote_secret = match self.config.vote_secret.is_some().then(draw_vote_secret) {
            Some(Err(error)) => {
                let text = "no randomness for a new vote secret: this member leaves";
                effects.log(move || tracing::error!(%error, "{text}"));
                return self.fail("no randomness for a new vote secret", effects);
            }
            drawn => drawn.and_then(Result::ok),
        };
        self.config = self.node.next_incarnation(process, vote_secret, clock::slot());
        self.config.me.static_key = static_key;
        effects.log(move || {
            tracing::info!(%process, expelled, "starting again as a new process");
        });
        self.lease = Arc::new(self.lease.next());
        // The network learns the new process id before the first packet of the new incarnation.
        self.network.reborn(self.config.me.clone());
        self.node = Node::new(self.config.clone(), self.lease.now());
    }

    /// Ends the member for good.
    pub(super) fn close(&mut self, closed: EngineClosed, effects: &mut TurnEffects) {
        if self.phase.closed.is_some() {
            return;
        }
        self.end_all(LostReason::Left, effects);
        self.note_status(ConnectionStatus::Lost, effects);
        self.phase.ready = false;
        self.phase.closed = Some(closed);
        (self.disk, self.writer) = (None, None);
        effects.phase = true;
        effects.rearm = true;
        effects.announce(match closed {
            EngineClosed::Broken => Announcement::Failed(self.fault),
            EngineClosed::Heard
            | EngineClosed::Unheard
            | EngineClosed::WrongClock { .. }
            | EngineClosed::ForceRefused => {
                Announcement::Event(Event::Left { heard: closed == EngineClosed::Heard })
            }
        });
    }

    /// Checks that the clock of the leases runs as it must. While it does not, this member behaves
    /// as if it were cut off, but its guards fail at once. By that clock its lease may run for
    /// longer than the other members wait for it. The member receives and sends nothing until the
    /// clock is steady and its lease is over by every clock.
    pub(super) fn look_at_clocks(&mut self, reading: Reading, effects: &mut TurnEffects) {
        let timing = self.node.view().map_or(self.config.timing, |view| view.timing);
        let Finding { distrust, is_steady, wall_jump } =
            self.clocks.look(reading, timing.clock_error_ppm);
        if let Some(by) = wall_jump {
            effects.announcements.push(ReaderUpdate::Happened(Announcement::WallJump(by)));
        }
        // A member that is alone shares its clock with no other.
        let is_alone = self.node.view().is_none_or(|view| view.members.len() == 1);
        if let Some(rates) = distrust
            && !self.is_muted
            && !is_alone
            && self.phase.closed.is_none()
        {
            effects.log(move || {
                tracing::error!(
                    boottime = ?rates.boottime,
                    raw = ?rates.raw,
                    "the clock is slewed beyond the bound: this member suspends itself"
                );
            });
            self.is_muted = true;
            effects.announce(Announcement::Distrusted(rates));
            for (_, hold) in self.holds.iter() {
                // An open object is not a hold.
                if hold.content().is_none() {
                    hold.mark_lost(LostReason::Suspended);
                    effects.lost.push(hold.clone());
                }
            }
            self.lease.set_end(Time::ZERO);
        }
        // One member lease after the last distrust, surely over: all earlier promises have ended by
        // then.
        let since = distrust.map_or(self.mute_since, |_| reading.raw);
        self.mute_since = since;
        let is_over = reading.raw >= since + timing.surely(timing.member_lease)
            // The lease must be over by the member's own clock too, unless no other member could
            // take over.
            && (!self.node.is_ready(self.lease.now()) || self.node.lease_end() == Time::MAX);
        if self.is_muted && is_steady && is_over {
            effects.log(|| tracing::info!("the clock is steady again"));
            self.is_muted = false;
            effects.announce(Announcement::Trusted);
        }
    }

    /// Ends every hold and every wait that the core has not ended already, and all deferred work.
    fn end_all(&mut self, reason: LostReason, effects: &mut TurnEffects) {
        self.watch.over(self.lease.now(), &mut effects.notes);
        for hold in std::mem::take(&mut self.holds).values() {
            planted!(GuardsOutliveMember => continue);
            hold.mark_lost(reason);
            effects.lost.push(hold.clone());
        }
        // The lease ends after the marks: a guard that sees no lease any more must find its reason.
        self.lease.set_end(Time::ZERO);
        for request in self.pending.values_mut() {
            if let PendingRequest::Waiting(waker) = request {
                effects.wakers.extend(waker.take());
                *request = PendingRequest::Answered(closed(reason));
            }
        }
    }

    /// The present connection status of this member.
    pub(super) fn stands(&self) -> ConnectionStatus {
        // An expelled member that stays until others know of it still has a running lease.
        if self.is_over() || !self.phase.ready || !self.node.belongs() {
            ConnectionStatus::Lost
        } else if self.node.is_ready(self.lease.now()) && !self.is_muted {
            ConnectionStatus::Connected
        } else {
            ConnectionStatus::Suspended
        }
    }

    /// Adds the state of this member to the core's status. The core does not know that a clock is
    /// distrusted, and counts its lease by that clock.
    pub(super) fn complete(&self, status: Status) -> Status {
        Status { leased: self.stands() == ConnectionStatus::Connected, ..status }
    }

    pub(super) fn note_status(&mut self, status: ConnectionStatus, effects: &mut TurnEffects) {
        if std::mem::replace(&mut self.status, status) != status
            && !(planted!(SuspendInSilence) && status == ConnectionStatus::Suspended)
        {
            effects.announcements.push(ReaderUpdate::Status(status));
        }
    }

    /// Passes on, at the end of each turn, the core's state for which there is no output: lease,
    /// phase and deadline.
    pub(super) fn finish_turn(&mut self, effects: &mut TurnEffects) {
        if self.phase.closed.is_some() {
            return;
        }
        if let Some(view) = self.node.view() {
            self.lease.set_lineage(view.lineage.id());
        }
        self.lease.set_end(if self.is_muted { Time::ZERO } else { self.node.lease_end() });
        if !self.phase.ready && self.node.is_ready(self.lease.now()) {
            self.phase.ready = true;
            effects.phase = true;
            self.network.joined();
            if self.joined_before {
                effects.announce(Announcement::Rejoined(self.config.me.process));
            }
        }
        self.note_status(self.stands(), effects);
        let deadline = self.deadline();
        if deadline < self.armed && !is_planted(ThreadMutant::TimerSleepsOn) {
            self.armed = deadline;
            effects.rearm = true;
        }
    }
}

/// How an incarnation ended.
pub(super) enum IncarnationEnd {
    Left { heard: bool },
    Reborn { expelled: bool },
    WrongClock { ahead: std::time::Duration },
    ForceRefused,
}
