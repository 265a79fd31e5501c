//! `Shell`: the core, and what belongs to it and changes with it. The engine's lock protects it.

use super::super::clock_watch::{ClockWatch, Finding, Reading};
use super::super::hold::{HoldCell, MemberLease};
use super::super::lane::{Doings, Lane};
use super::super::sync::{AtomicBool, Map, Mutex, Planted, is_planted};
use super::super::telemetry::{Mail, Note, Watch};
use super::super::writer::{Keep, VoteWriter};
use super::super::{Network, clock};
use super::readers::{Announcement, News, Standing};
use super::{Closed, Phase};
use crate::protocol::ledger::Ledger;
use crate::protocol::{
    AtOnce, Command, Config, Event, Input, LostReason, Node, Outcome, Output, ProcessId, RequestId, ServiceName, Time,
    Token,
};
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError, Weak};
use std::task::Waker;

/// Cells kept for holds that come next: some for each thread that takes locks one after the other.
const SPARE: usize = 64;

/// A process id never used before.
pub(crate) fn draw_process() -> Result<ProcessId, SysError> {
    #[cfg(feature = "simulated")]
    if let Some(process) = super::super::simulated::draw_process() {
        return Ok(process);
    }
    let mut bytes = [0; 16];
    SysRng.try_fill_bytes(&mut bytes)?;
    Ok(ProcessId(u128::from_le_bytes(bytes)))
}

/// What became of a request: the hold, or why not, or what else was asked for. Small, for it goes through many hands.
pub(crate) type Answer = Result<Arc<HoldCell>, Box<Outcome>>;

pub(super) fn closed(reason: LostReason) -> Answer {
    Err(Box::new(Outcome::Closed(reason)))
}

/// What the lock protects.
pub(super) struct Shell {
    pub(super) node: Node,
    pub(super) config: Config,
    network: Arc<dyn Network>,
    /// Keeps the vote, if this member has a data directory, until the thread that writes it has begun.
    pub(super) disk: Option<Box<dyn Keep>>,
    /// The way to that thread.
    pub(super) writer: Option<VoteWriter>,
    /// Why the last write failed, if it did.
    pub(super) disk_trouble: Option<(io::ErrorKind, String)>,
    /// Why it is about to be broken.
    fault: &'static str,
    /// Reused from turn to turn.
    outputs: Vec<Output>,
    pub(super) slots: Map<RequestId, Slot>,
    /// As many as held locks.
    pub(super) holds: Ledger<Arc<HoldCell>>,
    /// One for each service that somebody has a handle of.
    pub(super) lanes: BTreeMap<ServiceName, Weak<Lane>>,
    /// Those in which something was done of which the core has not heard.
    pub(super) used: Mutex<Vec<Arc<Lane>>>,
    /// Cells of holds that are over, for those that come next as soon as nobody else has them: who takes one lock after the
    /// other would ask for memory each time. At most [`SPARE`].
    spare: VecDeque<Arc<HoldCell>>,
    /// The member lease of this incarnation, shared with its holds.
    pub(super) lease: Arc<MemberLease>,
    /// What the timer task sleeps towards.
    pub(super) armed: Time,
    /// It was told to leave.
    leaving: bool,
    clocks: ClockWatch,
    /// The clock is not to be trusted: nothing is heard or said, and no guard is good.
    pub(super) is_mute: bool,
    /// When the clock was last found so, by RAW.
    mute_since: Time,
    /// In the first incarnation nobody has lost anything by its being abandoned.
    joined_before: bool,
    pub(super) phase: Phase,
    /// As announced last.
    standing: Standing,
    /// Packets, counted for the timer task.
    pub(super) mail: Mail,
    /// What has begun and not ended, for those who listen.
    watch: Watch,
}

/// A request whose future has been told to wait.
pub(super) enum Slot {
    Waiting(Option<Waker>),
    Answered(Answer),
}

/// What is left to do after unlocking.
#[derive(Default)]
pub(super) struct After {
    pub(super) wakers: Vec<Waker>,
    pub(super) lost: Vec<Arc<HoldCell>>,
    /// Holds that are wanted back, and objects that have something new to tell.
    pub(super) news: Vec<Arc<HoldCell>>,
    /// Values whose destructors may be the user's.
    pub(super) trash: Vec<Slot>,
    pub(super) announcements: Vec<News>,
    pub(super) notes: Vec<Note>,
    pub(super) rearm: bool,
    pub(super) phase: bool,
    /// Packets were queued.
    pub(super) sent: bool,
    /// Somebody waits for what comes of them, and has nothing else to do.
    pub(super) hurry: bool,
    /// The core was stepped.
    pub(super) stepped: bool,
    /// Something was done at once, or asked: nothing but a hold has changed.
    pub(super) at_once: bool,
}

impl After {
    fn announce(&mut self, announcement: Announcement) {
        self.announcements.push(News::Happened(announcement));
    }
}

/// The request that the present turn was made for, and its answer.
pub(super) struct Own {
    request: RequestId,
    answer: Option<Answer>,
}

impl Shell {
    pub(super) fn new(
        mut config: Config,
        network: Arc<dyn Network>,
        disk: Option<Box<dyn Keep>>,
        phase: Phase,
    ) -> Shell {
        config.clock = clock::slot();
        Shell {
            node: Node::new(config.clone(), clock::now()),
            config,
            network,
            disk,
            writer: None,
            disk_trouble: None,
            fault: "the runtime under it ended",
            outputs: Vec::new(),
            slots: Map::default(),
            holds: Ledger::default(),
            lanes: BTreeMap::new(),
            used: Mutex::default(),
            spare: VecDeque::new(),
            lease: Arc::new(MemberLease::new(Time::ZERO)),
            armed: Time::ZERO,
            leaving: false,
            clocks: ClockWatch::default(),
            is_mute: false,
            mute_since: Time::ZERO,
            joined_before: false,
            phase,
            standing: Standing::Lost,
            mail: Mail::new(),
            watch: Watch::default(),
        }
    }

    /// Neither locks nor waits are taken any more.
    pub(super) fn is_over(&self) -> bool {
        self.leaving || self.phase.closed.is_some()
    }

    /// When the timer is due, if not later: [`Time::MAX`] for never.
    pub(super) fn deadline(&self) -> Time {
        self.node.wake_by().unwrap_or(Time::MAX)
    }

    /// A command from `Drop`.
    pub(super) fn obey(&mut self, command: Command, now: Time, after: &mut After) {
        match command {
            Command::Release { request } => {
                after.trash.extend(self.slots.remove(&request));
                if let Some(cell) = self.holds.remove(&request)
                    && self.spare.len() < SPARE
                {
                    self.spare.push_back(cell);
                }
                if self.phase.closed.is_some() {
                    return;
                }
                if self.node.at_once(now, &command).is_some() {
                    after.at_once = true;
                } else {
                    self.step(Input::Command(command), None, after);
                }
            }
            Command::Narrow { .. } if self.phase.closed.is_none() => {
                self.step(Input::Command(command), None, after);
            }
            Command::Leave if !self.is_over() => {
                self.leaving = true;
                self.step(Input::Command(command), None, after);
            }
            _ => {}
        }
    }

    /// Tells the core what was done in the lanes; if it is broken, only what is held is kept, to be ended.
    pub(super) fn take_in(&mut self, is_broken: bool, next_request: impl Fn() -> RequestId) {
        // Nobody else is here.
        let used = self.used.get_mut().unwrap_or_else(PoisonError::into_inner);
        for lane in used.drain(..) {
            let Doings { spent, held } = lane.empty();
            let mut taken = Vec::with_capacity(held.len());
            for (hold, cell) in held {
                let request = next_request();
                cell.settle(request);
                self.holds.insert(request, cell);
                taken.push((request, hold));
            }
            if !is_broken {
                self.node.take_in(&lane.service, spent, taken);
            }
        }
    }

    /// Asks the core. `None`: wait, and `waker` is woken.
    pub(super) fn ask(
        &mut self,
        (request, waker): (RequestId, Option<Waker>),
        command: &Command,
        destroyed: &AtomicBool,
        after: &mut After,
    ) -> Option<Answer> {
        if self.is_over() {
            return Some(closed(LostReason::Left));
        }
        if destroyed.load(Ordering::Acquire) {
            return Some(closed(LostReason::Destroyed));
        }
        if let Some(hold) = self.grant_at_once(request, command, after) {
            return Some(Ok(hold));
        }
        destroyed.store(matches!(command, Command::Destroy { .. }), Ordering::Release);
        let answer = self.step(Input::Command(command.clone()), Some(request), after);
        if answer.is_none() {
            self.slots.insert(request, Slot::Waiting(waker));
            // If others wait as well, more of them are about to ask, and that goes in one write.
            after.hurry = self.slots.len() == 1;
        }
        answer
    }

    /// The short way of a command that is granted at once.
    fn grant_at_once(&mut self, request: RequestId, command: &Command, after: &mut After) -> Option<Arc<HoldCell>> {
        let Some(AtOnce::Granted(token, until)) = self.node.at_once(clock::now(), command) else { return None };
        after.at_once = true;
        if until < self.armed {
            self.armed = until;
            after.rearm = true;
        }
        Some(self.hold(request, token, until))
    }

    /// The cell of a hold that begins.
    fn hold(&mut self, request: RequestId, token: Token, until: Time) -> Arc<HoldCell> {
        let cell = HoldCell::in_place_of(self.spare.pop_front(), Some(request), token, until, &self.lease);
        self.holds.insert(request, cell.clone());
        cell
    }

    /// Steps the core and does what it says, in order. The answer to `own` is returned instead of kept.
    pub(super) fn step(&mut self, input: Input, own: Option<RequestId>, after: &mut After) -> Option<Answer> {
        after.stepped = true;
        // As if this member were cut off, for which others have a rule.
        if self.is_mute && matches!(input, Input::Received { .. } | Input::Hint(_)) {
            return None;
        }
        let mut own = own.map(|request| Own { request, answer: None });
        let mut inputs = VecDeque::new();
        let mut next = Some(input);
        while let Some(input) = next.take() {
            if let Input::Received { packet, .. } = &input {
                self.mail.received(packet);
            }
            let mut outputs = std::mem::take(&mut self.outputs);
            let now = clock::now();
            self.node.step(now, input, &mut outputs);
            self.end_claim(now);
            let mut over = None;
            for output in outputs.drain(..) {
                match output {
                    Output::Send { .. } if self.is_mute => {}
                    Output::Send { to, process, packet } => {
                        after.sent = true;
                        self.mail.sent(&packet);
                        self.watch.sent(&packet, &self.node, now, &mut after.notes);
                        self.network.send(to, process, packet);
                    }
                    Output::Answer { request, outcome } => {
                        if let Some(unwanted) = self.on_answer(request, outcome, &mut own, after) {
                            inputs.push_back(unwanted);
                        }
                    }
                    Output::Value { request, content } => {
                        if let Some(object) = self.holds.get(&request) {
                            object.hear(content);
                            after.news.push(object.clone());
                        }
                    }
                    Output::Lost { request, reason } => self.on_lost(request, reason, after),
                    Output::Wanted { request, by } => {
                        if let Some(hold) = self.holds.get(&request) {
                            if planted!(WantTwice) {
                                hold.want(by.clone());
                            }
                            if !planted!(WantInSilence) {
                                hold.want(by);
                            }
                            after.news.push(hold.clone());
                        }
                    }
                    Output::Event(event) => {
                        self.watch.said(&event, &self.node, now, &mut after.notes);
                        self.on_event(event, &mut over, after);
                    }
                    Output::Store { number, vote } => {
                        if let Some(writer) = &self.writer {
                            writer.write(self.node.process(), number, vote);
                        }
                    }
                }
            }
            self.outputs = outputs;
            match over {
                None => {}
                Some(Over::Left { heard }) => {
                    self.close(if heard { Closed::Heard } else { Closed::Unheard }, after);
                    break;
                }
                Some(Over::WrongClock { ahead }) => {
                    self.close(Closed::WrongClock { ahead }, after);
                    break;
                }
                Some(Over::Reborn { expelled }) => {
                    self.give_birth(expelled, &mut own, after);
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

    /// A claim without end is over before anything leaves that others may go on with. (Whatever else changes the lease is told
    /// to guards at the end of the turn.)
    fn end_claim(&mut self, now: Time) {
        let end = self.node.lease_end();
        if self.lease.end() == Time::MAX && end != Time::MAX && end > now {
            self.lease.set_end(end);
        }
    }

    /// What became of a write. A disk that fails is told once, and once when it is well again.
    pub(super) fn note_disk(&mut self, result: io::Result<()>, after: &mut After) {
        match result {
            Ok(()) => {
                if self.disk_trouble.take().is_some() {
                    tracing::info!("the vote is in the data directory again");
                    after.announce(Announcement::VoteStored);
                }
            }
            Err(error) => {
                let reason = error.to_string();
                if self.disk_trouble.as_ref().is_none_or(|(_, known)| *known != reason) {
                    tracing::error!(%error, "the vote cannot be kept in the data directory: this member goes on without it");
                    after.announce(Announcement::VoteNotStored(reason.clone()));
                }
                self.disk_trouble = Some((error.kind(), reason));
            }
        }
    }

    /// A fault ends the member.
    pub(super) fn fail(&mut self, why: &'static str, after: &mut After) {
        self.fault = why;
        self.close(Closed::Broken, after);
    }

    /// Fills the slot of `request`. Returns what to tell the core about a grant that nobody waits for.
    fn on_answer(
        &mut self,
        request: RequestId,
        outcome: Outcome,
        own: &mut Option<Own>,
        after: &mut After,
    ) -> Option<Input> {
        let answer = match outcome {
            Outcome::Granted { token, until } => Ok(self.hold(request, token, until)),
            Outcome::Opened { token, content } => {
                let object = Arc::new(HoldCell::of_object(request, token, content));
                self.holds.insert(request, object.clone());
                Ok(object)
            }
            outcome => {
                if let Outcome::Upgraded { hold, token } = &outcome
                    && let Some(hold) = self.holds.get(hold)
                {
                    hold.upgrade(*token);
                }
                if let (Outcome::Extended { until }, Some(hold)) = (&outcome, self.holds.get(&request)) {
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
        match self.slots.get_mut(&request) {
            Some(slot) => {
                if let Slot::Waiting(waker) = std::mem::replace(slot, Slot::Answered(answer)) {
                    after.wakers.extend(waker);
                }
                None
            }
            // Given back before: the core should have known. It is told again rather than left with a hold of nobody's.
            None => answer.is_ok().then(|| {
                self.holds.remove(&request);
                Input::Command(Command::Release { request })
            }),
        }
    }

    fn on_lost(&mut self, request: RequestId, reason: LostReason, after: &mut After) {
        let stays = match reason {
            LostReason::Revoked => planted!(TakenAndKept),
            LostReason::Suspended | LostReason::Expelled | LostReason::Left => planted!(GuardsOutliveMember),
            _ => false,
        };
        if stays {
            return;
        }
        if let Some(hold) = self.holds.remove(&request) {
            hold.mark_lost(reason);
            after.lost.push(hold);
        }
    }

    pub(super) fn on_event(&mut self, event: Event, over: &mut Option<Over>, after: &mut After) {
        if event == Event::Suspended {
            // Here, or nobody would hear of it if the same step resumes it.
            self.note_standing(Standing::Suspended, after);
        }
        if let Event::ViewInstalled(view) = &event {
            self.network.installed(view);
        }
        match event {
            Event::Expelled => *over = Some(Over::Reborn { expelled: true }),
            Event::Abandoned | Event::Forced => *over = Some(Over::Reborn { expelled: false }),
            Event::Left { heard } => *over = Some(Over::Left { heard }),
            Event::WrongClock { theirs, ours } => {
                let ahead = crate::protocol::Slot::span(theirs.0.saturating_sub(ours.0));
                tracing::error!(
                    ?ahead,
                    "the cluster is more than an hour ahead of this machine's clock: this member ends"
                );
                *over = Some(Over::WrongClock { ahead });
                after.announce(Announcement::Event(event));
            }
            // Neither a gain nor a loss.
            Event::NeverGranted { .. } | Event::Supplied { .. } => {}
            event => after.announce(Announcement::Event(event)),
        }
    }

    /// The incarnation is over: all that it held and waited for ends, and a new one begins.
    fn give_birth(&mut self, expelled: bool, own: &mut Option<Own>, after: &mut After) {
        let reason = LostReason::Expelled;
        if let Some(own) = own {
            own.answer.get_or_insert_with(|| closed(reason));
        }
        self.end_all(reason, after);
        self.note_standing(Standing::Lost, after);
        if self.phase.ready {
            self.joined_before = true;
            self.phase.ready = false;
            after.announce(Announcement::Lost);
        }
        after.phase = true;
        if self.leaving {
            return self.close(Closed::Unheard, after);
        }
        let process = match self.network.draw_process() {
            Ok(process) => process,
            Err(error) => {
                tracing::error!(%error, "no randomness for a new process id: this member leaves");
                return self.fail("no randomness for a new process id", after);
            }
        };
        self.config = self.node.next_life(process, clock::slot());
        tracing::info!(%process, expelled, "starting again as a new process");
        self.lease = Arc::new(MemberLease::new(Time::ZERO));
        // Before the first packet of the new incarnation.
        self.network.reborn(self.config.me.clone());
        self.node = Node::new(self.config.clone(), clock::now());
    }

    /// The member is gone, for good.
    pub(super) fn close(&mut self, closed: Closed, after: &mut After) {
        if self.phase.closed.is_some() {
            return;
        }
        self.end_all(LostReason::Left, after);
        self.note_standing(Standing::Lost, after);
        self.phase.ready = false;
        self.phase.closed = Some(closed);
        (self.disk, self.writer) = (None, None);
        after.phase = true;
        after.rearm = true;
        after.announce(match closed {
            Closed::Broken => Announcement::Failed(self.fault),
            Closed::Heard | Closed::Unheard | Closed::WrongClock { .. } => {
                Announcement::Event(Event::Left { heard: closed == Closed::Heard })
            }
        });
    }

    /// Looks whether the clock that leases go by runs as it must. While it does not, this member is as one that is cut off, but
    /// that its guards fail at once: by that clock its lease may run for longer than others wait for it. It hears and says
    /// nothing until the clock is steady and its lease is over, by whatever clock.
    pub(super) fn look_at_clocks(&mut self, reading: Reading, after: &mut After) {
        let timing = self.node.view().map_or(self.config.timing, |view| view.timing);
        let Finding { distrust, is_steady, wall_jump } = self.clocks.look(reading, timing.clock_error_ppm);
        if let Some(by) = wall_jump {
            after.announcements.push(News::Happened(Announcement::WallJump(by)));
        }
        // Whoever is alone shares its clock with nobody.
        let is_alone = self.node.view().is_none_or(|view| view.members.len() == 1);
        if let Some(rates) = distrust
            && !self.is_mute
            && !is_alone
            && self.phase.closed.is_none()
        {
            tracing::error!(boottime = ?rates.boottime, raw = ?rates.raw, "the clock is slewed beyond the bound: this member suspends itself");
            self.is_mute = true;
            after.announce(Announcement::Distrusted(rates));
            for (_, hold) in self.holds.iter() {
                // An open object is no hold.
                if hold.content().is_none() {
                    hold.mark_lost(LostReason::Suspended);
                    after.lost.push(hold.clone());
                }
            }
            self.lease.set_end(Time::ZERO);
        }
        // The longest that anybody may have counted by: what was promised before is over then.
        let since = distrust.map_or(self.mute_since, |_| reading.raw);
        self.mute_since = since;
        let is_over = reading.raw >= since + timing.surely(timing.member_lease)
            // By its own clock, too, unless nobody could take over from it.
            && (!self.node.is_ready(clock::now()) || self.node.lease_end() == Time::MAX);
        if self.is_mute && is_steady && is_over {
            tracing::info!("the clock is steady again");
            self.is_mute = false;
            after.announce(Announcement::Trusted);
        }
    }

    /// Ends every hold and every wait that the core has not ended already, and whatever else is under way.
    fn end_all(&mut self, reason: LostReason, after: &mut After) {
        self.watch.over(&mut after.notes);
        for hold in std::mem::take(&mut self.holds).values() {
            if planted!(GuardsOutliveMember) {
                continue;
            }
            hold.mark_lost(reason);
            after.lost.push(hold.clone());
        }
        // After the marks: a guard that sees no lease any more must find its reason.
        self.lease.set_end(Time::ZERO);
        for slot in self.slots.values_mut() {
            if let Slot::Waiting(waker) = slot {
                after.wakers.extend(waker.take());
                *slot = Slot::Answered(closed(reason));
            }
        }
    }

    /// How this member stands now.
    pub(super) fn stands(&self) -> Standing {
        // Whoever is expelled and stays until others know of it still has a lease that runs.
        if self.is_over() || !self.phase.ready || !self.node.belongs() {
            Standing::Lost
        } else if self.node.is_ready(clock::now()) && !self.is_mute {
            Standing::Connected
        } else {
            Standing::Suspended
        }
    }

    pub(super) fn note_standing(&mut self, standing: Standing, after: &mut After) {
        if std::mem::replace(&mut self.standing, standing) != standing
            && !(planted!(SuspendInSilence) && standing == Standing::Suspended)
        {
            after.announcements.push(News::Stands(standing));
        }
    }

    /// At the end of each turn: what the core says without being asked.
    pub(super) fn settle(&mut self, after: &mut After) {
        if self.phase.closed.is_some() {
            return;
        }
        if let Some(view) = self.node.view() {
            self.lease.set_lineage(view.lineage.id());
        }
        self.lease.set_end(if self.is_mute { Time::ZERO } else { self.node.lease_end() });
        if !self.phase.ready && self.node.is_ready(clock::now()) {
            self.phase.ready = true;
            after.phase = true;
            self.network.joined();
            if self.joined_before {
                after.announce(Announcement::Rejoined(self.config.me.process));
            }
        }
        self.note_standing(self.stands(), after);
        let deadline = self.deadline();
        if deadline < self.armed && !is_planted(Planted::TimerSleepsOn) {
            self.armed = deadline;
            after.rearm = true;
        }
    }
}

/// How an incarnation ended.
pub(super) enum Over {
    Left { heard: bool },
    Reborn { expelled: bool },
    WrongClock { ahead: std::time::Duration },
}
