//! Links deliver each [`Message`] exactly once and in order, over connections that lose, double and
//! reorder packets.
//!
//! A link joins two *processes*, not two addresses, and lives as long as both are in the view.
//! Messages are numbered, kept until acknowledged and sent again after a while. So the roles above
//! never ask "did it arrive". The design therefore has no cases for lost grants and for releases
//! that overtake tables.
//!
//! When the direct path to a process seems broken, the same packets are also sent through members
//! of the council. They are sent through all of them until one is known to deliver, then through
//! that member. Each relayed packet names the member through which its sender has heard the other
//! side. A packet that arrives twice is dropped, so no sender needs certainty.

mod detour;
#[cfg(elderlock_mutants)]
mod planted;

use super::cluster::view::View;
use super::event::{Config, Output, Sizes};
use super::id::{MemberInfo, ProcessId, ViewNumber};
use super::limits::LinkLimits;
use super::message::{Message, Packet};
use super::time::Time;
use super::timing::Timing;
use detour::{Detour, is_fresh, is_time, open_detour};
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// How many messages are sent again first: [`MANY`] if the other side was heard lately, else
/// [`FEW`].
const MANY: usize = 64;
const FEW: usize = 4;

/// Both directions between this process and another.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Link {
    /// The number of the latest message.
    sent: u64,
    /// The messages that are not acknowledged; the last one has number `sent`.
    kept: VecDeque<Message>,
    /// The weight of the [calls](Message::call_weight) among the kept messages.
    kept_bytes: usize,
    /// The number up to which all messages have been received and passed on.
    received: u64,
    /// The messages that arrived ahead of their turn.
    early: BTreeMap<u64, Message>,
    /// The weight of the early messages.
    early_bytes: usize,
    /// The number of messages received since the last acknowledgement was sent.
    unacked: u32,
    /// The latest time for an acknowledgement.
    ack_at: Option<Time>,
    /// The time at which the kept messages are sent again.
    resend_at: Option<Time>,
    /// How often the kept messages were sent again without an answer.
    tries: u32,
    /// The time since which only messages arrive that had arrived before.
    stuck_since: Option<Time>,
    /// The time at which the kept messages were last sent again from the first on. This action and
    /// the next two are each done at most once in a quarter of `retry`. Otherwise repeated messages
    /// and repeated acknowledgements would multiply each other.
    resent_at: Option<Time>,
    /// The time at which the other side was last asked to send its kept messages again.
    asked_at: Option<Time>,
    /// The time at which a doubled message was last acknowledged at once.
    doubled_at: Option<Time>,
    /// The retransmission under way.
    repeats: Option<Retransmission>,
    /// Whether a packet that needed a newer view was dropped.
    missed: bool,
    /// The time of this link in the agenda: its deadline or earlier.
    alarm: Option<Time>,
}

/// The kept messages that are sent again, a few at a time. Each acknowledgement of all of these
/// doubles their number. A broken path still takes a few, and a repaired one is not flooded by all
/// waiting links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Retransmission {
    /// The first message that was not sent again yet.
    next: u64,
    /// The last message of the retransmission.
    last: u64,
    /// The number of messages that are sent next.
    window: usize,
}

impl Link {
    fn deadline(&self) -> Option<Time> {
        [self.ack_at, self.resend_at].into_iter().flatten().min()
    }

    /// Adds the link to the agenda with its deadline. An entry stays when the deadline moves to a
    /// later time, because it moves with most messages. So an alarm may have no effect, once a
    /// quarter of `retry`.
    fn arm(&mut self, me: ProcessId, agenda: &mut BTreeSet<(Time, ProcessId)>) {
        if let Some(at) = self.deadline()
            && self.alarm.is_none_or(|alarm| at < alarm)
        {
            if let Some(alarm) = self.alarm.replace(at) {
                agenda.remove(&(alarm, me));
            }
            agenda.insert((at, me));
        }
    }

    /// Keeps a message that is ahead of its turn, within bounds.
    fn keep_early(&mut self, seq: u64, message: Message, limits: &LinkLimits) {
        let weight = message.weight();
        let has_room = self.early.is_empty()
            || self.early_bytes.saturating_add(weight) <= limits.early_bytes as usize;
        if seq - self.received - 1 <= u64::from(limits.early)
            && has_room
            && !self.early.contains_key(&seq)
        {
            self.early_bytes += weight;
            self.early.insert(seq, message);
        }
    }

    fn take_ack(&mut self) -> u64 {
        self.ack_at = None;
        self.unacked = 0;
        self.received
    }

    /// The number of the first kept message.
    fn first_kept(&self) -> u64 {
        self.sent - self.kept.len() as u64 + 1
    }

    /// Handles an acknowledgement. Returns whether the next messages of a retransmission may be
    /// sent.
    fn on_ack(&mut self, now: Time, ack: u64, timing: &Timing) -> bool {
        let first_kept = self.first_kept();
        if ack < first_kept || ack > self.sent {
            return false;
        }
        let acknowledged = self.kept.drain(..(ack - first_kept + 1) as usize);
        self.kept_bytes -= acknowledged.map(|message| message.call_weight()).sum::<usize>();
        self.tries = 0;
        self.stuck_since = None;
        self.resend_at = if self.kept.is_empty() { None } else { Some(now + timing.retry) };
        self.repeats = self.repeats.filter(|repeats| ack < repeats.last);
        self.repeats.is_some_and(|repeats| repeats.next <= ack + 1)
    }

    /// The next messages of a retransmission, in packets.
    fn repeat(&mut self, view: ViewNumber, burst: usize) -> Vec<Packet> {
        let first = self.first_kept();
        let Some(Retransmission { next, last, window }) = &mut self.repeats else {
            return Vec::new();
        };
        let from = first.max(*next);
        let count = (*last + 1).saturating_sub(from).min(*window as u64) as usize;
        *next = from + count as u64;
        *window = (*window * 2).min(burst);
        let ack = self.take_ack();
        let kept = (from..).zip(self.kept.range((from - first) as usize..).take(count));
        kept.map(|(seq, message)| Packet::Linked { view, seq, ack, message: message.clone() })
            .collect()
    }
}

/// All links of a member, and the detours to the other members.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct LinkSet {
    links: BTreeMap<ProcessId, Link>,
    /// The alarms of links, so that a thousand quiet links cost nothing.
    agenda: BTreeSet<(Time, ProcessId)>,
    detours: BTreeMap<ProcessId, Detour>,
    limits: LinkLimits,
    /// A planted break.
    #[cfg(elderlock_mutants)]
    mutant: Option<super::mutant::ProtocolMutant>,
}

impl LinkSet {
    pub(crate) fn new(config: &Config) -> LinkSet {
        LinkSet {
            limits: config.limits.link,
            #[cfg(elderlock_mutants)]
            mutant: config.mutant,
            ..LinkSet::default()
        }
    }

    /// Sends a message on the link to `to`, a member of `view`.
    pub(crate) fn send(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        message: Message,
        out: &mut Vec<Output>,
    ) {
        let link = self.links.entry(to).or_default();
        link.sent += 1;
        link.kept_bytes += message.call_weight();
        link.kept.push_back(message.clone());
        link.resend_at.get_or_insert(now + view.timing.retry);
        let packet =
            Packet::Linked { view: view.number, seq: link.sent, ack: link.take_ack(), message };
        link.arm(to, &mut self.agenda);
        self.dispatch(now, me, view, to, packet, out);
    }

    /// Sends a packet to a member of `view`: on the direct path, and also through the council while
    /// there is a detour.
    pub(crate) fn dispatch(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        packet: Packet,
        out: &mut Vec<Output>,
    ) {
        let Some(member) = view.member(to) else { return };
        if let Some(detour) = self.detours.get_mut(&to) {
            if !detour.goes_on(now, &view.timing) {
                self.detours.remove(&to);
            } else {
                let others = |info: &&MemberInfo| info.process != me.process && info.process != to;
                let relays: Vec<ProcessId> =
                    view.council().filter(others).map(|info| info.process).collect();
                planted!(=> let mut detour = planted::PlantedDetour(detour, self.mutant));
                let most = self.limits.detour_notices as usize;
                let chosen = detour.choose(now, &packet, &relays, most, &view.timing);
                let troubled = now < detour.seen_until;
                let heard = detour
                    .heard
                    .filter(|_| is_fresh(detour.heard, now, &view.timing))
                    .map(|(relay, _)| relay);
                for relay in chosen.into_iter().filter_map(|process| view.member(process)) {
                    let (from, packet) = (Box::new(me.clone()), Box::new(packet.clone()));
                    let packet = Packet::Relay { from, to, troubled, heard, packet };
                    out.push(Output::Send {
                        to: relay.info.addr,
                        process: Some(relay.info.process),
                        packet,
                    });
                }
            }
        }
        out.push(Output::Send { to: member.info.addr, process: Some(to), packet });
    }

    /// Opens a detour, since the direct path to `to` seems broken. `seen`: this member noticed that
    /// itself, and not `to`.
    pub(crate) fn trouble(&mut self, now: Time, to: ProcessId, seen: bool, timing: &Timing) {
        open_detour(&mut self.detours, now, to, seen, timing);
    }

    /// Notes that a packet of `from` came through `relay`. Its sender heard this member through
    /// `heard`.
    pub(crate) fn on_relayed(
        &mut self,
        now: Time,
        from: ProcessId,
        relay: ProcessId,
        heard: Option<ProcessId>,
        timing: &Timing,
    ) {
        let Some(detour) = self.detours.get_mut(&from) else { return };
        // The relay whose copy arrives first is the fastest.
        if detour.heard.is_none_or(|(before, at)| before == relay || at + timing.retry / 4 <= now) {
            detour.heard = Some((relay, now));
        }
        if let Some(way) = heard {
            detour.relay = Some((way, now));
        }
    }

    /// Notes that a packet came directly from `from`.
    pub(crate) fn on_straight(&mut self, now: Time, from: ProcessId) {
        if !self.detours.is_empty()
            && let Some(detour) = self.detours.get_mut(&from)
        {
            detour.straight_at = now;
        }
    }

    /// Handles a numbered message. Returns the messages that are now in turn: mostly that message,
    /// then later ones that had arrived early.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_linked(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        from: ProcessId,
        (seq, ack): (u64, u64),
        message: Message,
        out: &mut Vec<Output>,
    ) -> (Option<Message>, Vec<Message>) {
        let timing = &view.timing;
        let (mut first, mut more) = (None, Vec::new());
        let link = self.links.entry(from).or_default();
        let repeats = link.on_ack(now, ack, timing);
        let mut again = false;
        let mut at_once = false;
        if seq <= link.received {
            // The message was sent again although it arrived: the acknowledgement was lost or late.
            // If that repeats, the path back is cut.
            at_once = is_time(&mut link.doubled_at, now, timing);
            if *link.stuck_since.get_or_insert(now) + timing.retry * 2 <= now {
                open_detour(&mut self.detours, now, from, true, timing);
            }
        } else if seq == link.received + 1 || planted!(self.mutant, SkipAhead) {
            link.received = seq;
            link.stuck_since = None;
            first = Some(message);
            while let Some(message) = link.early.remove(&(link.received + 1)) {
                link.received += 1;
                link.early_bytes -= message.weight();
                more.push(message);
            }
        } else {
            link.keep_early(seq, message, &self.limits);
            // The gap is asked for when it opens. After that the other side's own timer is enough.
            again = link.early.len() == 1 && is_time(&mut link.asked_at, now, timing);
        }
        link.unacked += 1;
        if at_once || again || link.unacked >= self.limits.ack_every {
            let packet = Packet::Ack { view: view.number, ack: link.take_ack(), again };
            self.dispatch(now, me, view, from, packet, out);
        } else {
            link.ack_at.get_or_insert(now + timing.retry / 4);
            link.arm(from, &mut self.agenda);
        }
        if repeats {
            self.go_on_repeating(now, me, view, from, out);
        }
        (first, more)
    }

    /// Handles an acknowledgement that arrived alone.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_ack(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        from: ProcessId,
        ack: u64,
        again: bool,
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(&from) else { return };
        let repeats = link.on_ack(now, ack, &view.timing);
        link.arm(from, &mut self.agenda);
        if again {
            self.resend_soon(now, me, view, from, out);
        } else if repeats {
            self.go_on_repeating(now, me, view, from, out);
        }
    }

    /// Notes that a packet of a newer view was dropped. It is asked for again once that view is
    /// installed.
    pub(crate) fn note_missed(&mut self, from: ProcessId) {
        self.links.entry(from).or_default().missed = true;
    }

    /// Handles a new connection to `to`. After a broken one, messages that it may have lost are
    /// sent again.
    pub(crate) fn on_connected(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        was_broken: bool,
        out: &mut Vec<Output>,
    ) {
        if was_broken || self.links.get(&to).is_some_and(|link| link.tries > 0) {
            self.resend_soon(now, me, view, to, out);
        }
    }

    /// Sends the kept messages for `to` again: now, or when a quarter of `retry` has passed since
    /// the last time.
    fn resend_soon(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(&to) else { return };
        let pause = view.timing.retry / 4;
        match link.resent_at {
            Some(last)
                if now < last + pause
                    && !link.kept.is_empty()
                    && !planted!(self.mutant, RepeatAllAtOnce) =>
            {
                link.resend_at =
                    Some(link.resend_at.map_or(last + pause, |at| at.min(last + pause)));
                link.arm(to, &mut self.agenda);
            }
            _ => self.resend(now, me, view, to, out),
        }
    }

    /// Sends the kept messages for `to` again, from the first one on.
    fn resend(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(&to) else { return };
        if link.kept.is_empty() {
            return;
        }
        let wait = view.timing.retry * (1 << link.tries.min(6));
        link.resend_at = Some(now + wait.min(view.timing.elder_lease));
        link.resent_at = Some(now);
        // The last messages had no answer: a few are enough to notice a change.
        let window = if link.tries > 1 { FEW } else { MANY };
        planted!(=> let window = planted::window(window, self.mutant, &self.limits));
        link.repeats = Some(Retransmission {
            next: link.first_kept(),
            last: link.sent,
            window: window.min(self.limits.burst as usize),
        });
        self.go_on_repeating(now, me, view, to, out);
    }

    /// Sends the next messages of a retransmission.
    fn go_on_repeating(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        out: &mut Vec<Output>,
    ) {
        let Some(link) = self.links.get_mut(&to) else { return };
        let packets = link.repeat(view.number, self.limits.burst as usize);
        link.arm(to, &mut self.agenda);
        for packet in packets {
            self.dispatch(now, me, view, to, packet, out);
        }
    }

    /// Does the due work: acknowledgements and retransmissions.
    pub(crate) fn on_timer(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        out: &mut Vec<Output>,
    ) {
        while let Some(&(at, process)) = self.agenda.first() {
            if at > now {
                break;
            }
            self.agenda.pop_first();
            let Some(link) = self.links.get_mut(&process) else { continue };
            link.alarm = None;
            if link.resend_at.is_some_and(|at| at <= now) {
                link.tries += 1;
                if link.tries >= 2 {
                    self.trouble(now, process, true, &view.timing);
                }
                self.resend(now, me, view, process, out);
            } else if link.ack_at.is_some_and(|at| at <= now) {
                let packet = Packet::Ack { view: view.number, ack: link.take_ack(), again: false };
                link.arm(process, &mut self.agenda);
                self.dispatch(now, me, view, process, packet, out);
            } else {
                link.arm(process, &mut self.agenda);
            }
        }
    }

    /// Adopts a new view: forgets members that are gone, and asks again for messages that came too
    /// early.
    pub(crate) fn on_view(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        out: &mut Vec<Output>,
    ) {
        self.links.retain(|process, _| view.contains(*process));
        self.agenda.retain(|(_, process)| view.contains(*process));
        self.detours.retain(|process, _| view.contains(*process));
        let mut missed = Vec::new();
        for (process, link) in &mut self.links {
            if std::mem::take(&mut link.missed) {
                missed.push((*process, link.received));
            }
        }
        for (process, ack) in missed {
            self.dispatch(
                now,
                me,
                view,
                process,
                Packet::Ack { view: view.number, ack, again: true },
                out,
            );
        }
    }

    /// Returns whether more than `most` messages wait for an acknowledgement of `to`, or more bytes
    /// of calls than the limit.
    pub(crate) fn is_crowded(&self, to: ProcessId, most: usize) -> bool {
        let limit = self.limits.kept_bytes as usize;
        self.links.get(&to).is_some_and(|link| link.kept.len() > most || link.kept_bytes > limit)
    }

    /// The number of messages that wait for an acknowledgement of `to`.
    #[cfg(test)]
    pub(crate) fn backlog(&self, to: ProcessId) -> usize {
        self.links.get(&to).map_or(0, |link| link.kept.len())
    }

    /// The number of the last message to `to`.
    pub(crate) fn sent(&self, to: ProcessId) -> u64 {
        self.links.get(&to).map_or(0, |link| link.sent)
    }

    /// Returns whether `to` has acknowledged that message.
    pub(crate) fn is_acknowledged(&self, to: ProcessId, number: u64) -> bool {
        self.links.get(&to).is_none_or(|link| link.sent - link.kept.len() as u64 >= number)
    }

    /// Adds the counts of the links. A detour that is over is forgotten with the next packet, and
    /// is not counted.
    pub(crate) fn count(&self, now: Time, sizes: &mut Sizes) {
        sizes.links += self.links.len();
        sizes.unacknowledged += self.links.values().map(|link| link.kept.len()).sum::<usize>();
        sizes.ahead += self.links.values().map(|link| link.early.len()).sum::<usize>();
        sizes.link_timers += self.agenda.len();
        sizes.detours += self.detours.values().filter(|detour| detour.until > now).count();
    }

    /// Returns the time at which `on_timer` is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }
}

#[cfg(test)]
mod tests;
