//! A process in the World: its start, its inputs, the effects of its outputs, and its end.

use super::trace::show;
use super::{Observation, ScheduledEvent, UnaskedOutput, World};
use crate::chance::mix;
use crate::history::{Ask, ClientRequest, ObjectView};
use crate::network::MS;
use crate::site::ProcessState;
use elderlock::protocol::{
    Command, Content, Event, Hint, Input, LineageId, MemberInfo, Outcome, Output, ProcessId,
    RequestId, View, ViewMember,
};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// Steps of one member at one instant before it is called a livelock.
const MAX_STEPS_AT_ONCE: u32 = 20_000;

impl World {
    /// Puts a new process at `site` and sets it going.
    pub fn start(&mut self, site: usize) {
        assert!(!self.sites[site].is_alive(), "a process runs at m{site}");
        let common = self.common;
        self.sites[site].start(site, &common, self.now);
        self.note(site, |peer| format!("starts as {:?}", peer.process()));
        self.tell(&Observation::Started { site });
        // Connections are between processes: a new one has none.
        self.streams.retain(|(from, to), _| *from != site && *to != site);
        self.feed(site, Input::Timer);
        self.gossip_begins(site);
    }

    /// Gives an input to the process at `site`, or keeps it for its waking.
    pub(crate) fn feed(&mut self, site: usize, input: Input) {
        if self.broken.is_some() {
            return;
        }
        let peer = &mut self.sites[site];
        match peer.run {
            ProcessState::Down => return,
            ProcessState::Paused => {
                if input != Input::Timer {
                    peer.inbox.push_back(input);
                }
                return;
            }
            ProcessState::Up => {}
        }
        if input == Input::Command(Command::Leave) {
            peer.leaving = true;
        }
        if self.tracing {
            self.trace_input(site, &input);
        }
        self.events += 1;
        self.meter_input(site);
        if self.digested {
            (self.now, site, &input).hash(&mut self.digest);
        }
        if let Some(process) = self.sites[site].process() {
            self.tell(&Observation::Takes { site, process, input: &input });
        }
        let peer = &mut self.sites[site];
        let local = peer.clock.local(self.now);
        let Some(node) = peer.node.as_mut().map(Arc::make_mut) else { return };
        let process = node.process();
        let mut outputs = std::mem::take(&mut self.outputs);
        node.step(local, input, &mut outputs);
        let dies = self.dies_deciding(site, &outputs);
        let torn = self.torn_after(site, &outputs);
        for (index, output) in outputs.drain(..).enumerate() {
            if !(dies && matches!(output, Output::Send { .. }))
                && torn.is_none_or(|torn| index < torn)
            {
                self.carry_out(site, process, output);
            }
        }
        if torn.is_some() {
            self.note(site, |_| "dies in the middle of a step".to_string());
            self.tell(&Observation::Torn { site });
            self.crash(site);
        }
        self.tell(&Observation::CarriedOut { site });
        if dies {
            self.dies_when_deciding_until = 0;
            self.crash(site);
        }
        self.outputs = outputs;
        if self.sites[site].is(process) {
            self.sites[site].reschedule();
        }
        self.at_once = match self.at_once {
            (at, stepping, steps) if at == self.now && stepping == site => {
                (at, stepping, steps + 1)
            }
            _ => (self.now, site, 0),
        };
        self.repeated += u64::from(self.at_once.2 > 0);
        if self.at_once.2 > MAX_STEPS_AT_ONCE {
            self.fail(
                "time_goes_on",
                format!("m{site} has something due at one instant again and again"),
            );
        }
        self.tell(&Observation::Stepped { site });
        self.hear_of_writes(site, process);
    }

    /// The timer of the member at `site` goes off.
    pub(crate) fn ring(&mut self, site: usize) -> bool {
        let Some(due) = self.sites[site].due.filter(|_| self.sites[site].run == ProcessState::Up)
        else {
            return false;
        };
        self.now = self.now.max(due);
        self.feed(site, Input::Timer);
        true
    }

    /// Returns whether the process at `site` has just decided a view, before all others, and is to
    /// die before it can tell any other. This includes a process that decides a view without
    /// itself: it is about to leave, and the remaining members may not know yet.
    fn dies_deciding(&self, site: usize, outputs: &[Output]) -> bool {
        let decides = |output: &Output| match output {
            Output::Event(Event::ViewInstalled(view)) => {
                let is_first = self
                    .latest
                    .get(&view.lineage)
                    .is_some_and(|latest| latest.number < view.number);
                is_first && self.can_die_deciding(site, view)
            }
            _ => false,
        };
        self.now < self.dies_when_deciding_until && outputs.iter().any(decides)
    }

    fn carry_out(&mut self, site: usize, process: ProcessId, output: Output) {
        if self.digested {
            self.note_outcome(site, &output);
        }
        match output {
            Output::Send { to, process: wanted, packet } => {
                self.send(site, process, to, wanted, packet)
            }
            Output::Answer { request, outcome } => {
                self.note(site, |_| format!("answers {request:?}: {outcome:?}"));
                let Some(ask) = self.asked(site, process, request, UnaskedOutput::Answer) else {
                    return;
                };
                self.tell(&Observation::Outcome { ask, outcome: &outcome });
                match outcome {
                    Outcome::Extended { until } => {
                        Arc::make_mut(&mut self.history).extend(ask, until)
                    }
                    Outcome::Reduced => {}
                    Outcome::NotHeld
                        if !matches!(self.call(ask).request_kind, ClientRequest::Upgrade(_)) => {}
                    outcome => {
                        self.on_mode_changed(ask, &outcome);
                        if let Outcome::Opened { content, .. } = &outcome {
                            self.see(ask, content);
                        }
                        self.tell(&Observation::Answers { ask, outcome: &outcome });
                        Arc::make_mut(&mut self.history).answer(ask, outcome, self.now);
                        self.tell(&Observation::Answered { ask });
                        if let Some(after) = self.give_up_after.remove(&ask) {
                            self.give_up_after(ask, after);
                        }
                    }
                }
            }
            Output::Value { request, content } => {
                self.note(site, |_| format!("sees at {request:?}: {content:?}"));
                let Some(ask) = self.asked(site, process, request, UnaskedOutput::Value) else {
                    return;
                };
                self.see(ask, &content);
            }
            Output::Lost { request, reason, .. } => {
                self.note(site, |_| format!("lost {request:?}: {reason:?}"));
                let Some(ask) = self.asked(site, process, request, UnaskedOutput::Loss) else {
                    return;
                };
                self.tell(&Observation::Loses { ask, reason });
                Arc::make_mut(&mut self.history).lose(ask, reason);
            }
            Output::RevocationRequested { request, .. } => {
                self.note(site, |_| format!("{request:?} is requested back"));
                let output = UnaskedOutput::Revocation;
                let Some(ask) = self.asked(site, process, request, output) else { return };
                self.tell(&Observation::Wanted { ask });
            }
            Output::Event(event) => self.on_event(site, process, event),
            Output::Store { number, vote } => self.write_vote(site, process, number, *vote),
        }
    }

    /// The request of the process, for which it puts something out.
    fn asked(
        &mut self,
        site: usize,
        process: ProcessId,
        request: RequestId,
        output: UnaskedOutput,
    ) -> Option<Ask> {
        let ask = self.history.find(process, request);
        if ask.is_none() {
            self.tell(&Observation::Unasked { site, request, output });
        }
        ask
    }

    /// Mixes an output into the digest of outcomes, if it is one. The kinds have numbers of their
    /// own: the order of the outputs' variants is not an outcome.
    fn note_outcome(&mut self, site: usize, output: &Output) {
        let digest = &mut self.outcomes;
        match output {
            Output::Answer { request, outcome } => (0_u8, site, request, outcome).hash(digest),
            Output::Value { request, content } => (1_u8, site, request, content).hash(digest),
            Output::Lost { request, reason, .. } => (2_u8, site, request, reason).hash(digest),
            Output::RevocationRequested { request, .. } => (3_u8, site, request).hash(digest),
            Output::Event(Event::ViewInstalled(view)) => {
                (4_u8, site).hash(digest);
                hash_view(view, digest);
            }
            Output::Event(_) | Output::Send { .. } | Output::Store { .. } => {}
        }
    }

    /// A client with an open object sees a new content.
    fn see(&mut self, ask: Ask, content: &Content) {
        let Content { value, version, maybe_stale, .. } = content;
        let sight = ObjectView { version: *version, value: value.clone(), stale: *maybe_stale };
        self.tell(&Observation::Sees { ask, sight: &sight });
        Arc::make_mut(&mut self.history).see(ask, sight);
    }

    /// An upgrade ends: the share is the lock now, or stays a share.
    fn on_mode_changed(&mut self, ask: Ask, outcome: &Outcome) {
        let ClientRequest::Upgrade(of) = self.call(ask).request_kind else { return };
        let token = match outcome {
            Outcome::Upgraded { token, .. } => Some(*token),
            _ => None,
        };
        let history = Arc::make_mut(&mut self.history);
        history.mode_changed(of, token);
        if matches!(outcome, Outcome::Upgraded { .. } | Outcome::Shared(_)) {
            history.is_settled(of, ask);
        }
        if token.is_some() {
            self.tell(&Observation::ModeChanged { ask: of });
        }
    }

    /// The lineage of the process.
    pub(crate) fn lineage_of(&self, process: ProcessId) -> LineageId {
        self.lineages.get(&process).copied().unwrap_or(LineageId(0))
    }

    /// The key that separates the process's tokens from equal ones: its lineage if two may live at
    /// once, otherwise a constant. Lineages that follow each other have no equal tokens.
    pub(crate) fn dealt_apart(&self, process: ProcessId) -> LineageId {
        if self.one_lineage { LineageId(0) } else { self.lineage_of(process) }
    }

    fn on_event(&mut self, site: usize, process: ProcessId, event: Event) {
        self.note(site, |_| match &event {
            Event::ViewInstalled(view) => format!("installs {}", show(view)),
            other => format!("event {other:?}"),
        });
        if let Event::ViewInstalled(view) = &event
            && self.latest.get(&view.lineage).is_none_or(|latest| latest.number < view.number)
        {
            self.latest.insert(view.lineage, view.clone());
            self.viewed_at = self.now;
            self.later_views += 1;
        }
        if let Event::ViewInstalled(view) = &event {
            self.lineages.insert(process, view.lineage.id());
        }
        self.tell(&Observation::Event { site, process, event: &event });
        if let Event::Left { heard } = event {
            self.sites[site].heard = Some(heard);
        }
        match event {
            Event::Expelled | Event::Abandoned | Event::Forced => {
                self.schedule(MS, ScheduledEvent::Rebirth { to: site, process })
            }
            Event::WrongClock { .. } => {
                self.end_process(site, "wrong_clock");
                self.sites[site].run = ProcessState::Down;
            }
            Event::Left { .. } => {
                self.end_process(site, "left");
                self.sites[site].run = ProcessState::Down;
            }
            _ => {}
        }
    }

    /// The process at `site` ends; `how`: as in [`Observation::Ended`].
    pub(crate) fn end_process(&mut self, site: usize, how: &str) {
        self.gossip_ends(site, how);
        if let Some(process) = self.sites[site].process() {
            self.tell(&Observation::Ends { site, process });
            let unknown = Arc::make_mut(&mut self.history).end_process(process);
            self.tell(&Observation::Ended { site, how, unknown: &unknown });
        }
        self.end_writes(site);
        let peer = &mut self.sites[site];
        peer.run = ProcessState::Down;
        peer.due = None;
        peer.inbox.clear();
        peer.next_incarnation = None;
    }

    /// Wakes a stopped process. Its pending inputs and its timer are handled in a random order.
    pub(crate) fn wake(&mut self, site: usize) {
        let peer = &mut self.sites[site];
        peer.run = ProcessState::Up;
        let waiting = std::mem::take(&mut peer.inbox);
        if let Some(process) = peer.process().filter(|_| std::mem::take(&mut peer.overdue)) {
            self.schedule(MS, ScheduledEvent::Rebirth { to: site, process });
        }
        self.tell(&Observation::Wakes { site });
        let timer_first =
            mix(&[self.common.seed, 0x3a, site as u64, self.sites[site].pauses]) & 1 == 0;
        if timer_first {
            self.feed(site, Input::Timer);
        }
        for input in waiting {
            self.feed(site, input);
        }
        self.gossip_wakes(site);
    }

    /// Tells `to` of something after a while, if hints are given at all.
    pub(crate) fn hint(&mut self, after: u64, to: usize, hint: Hint) {
        if self.hints
            && let Some(process) = self.sites[to].process()
        {
            self.schedule(after, ScheduledEvent::Hint { to, process, hint });
        }
    }
}

/// A view as an outcome. The keys of its members' votes do not count: they are random.
fn hash_view(view: &View, digest: &mut impl Hasher) {
    let View { lineage, number, first_slot, slots, tenure, members, timing, .. } = view;
    (lineage, number, first_slot, slots, tenure).hash(digest);
    let shown = |member: &ViewMember| {
        let MemberInfo { process, addr, host, .. } = member.info;
        (process, addr, host, member.joined, member.ghost, member.learner)
    };
    members.iter().map(shown).collect::<Vec<_>>().hash(digest);
    (timing, view.council_size, &view.departed).hash(digest);
}
