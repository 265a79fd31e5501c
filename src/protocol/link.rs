//! Links deliver each [`Message`] exactly once and in order over lossy, doubling, reordering
//! connections.
//!
//! A link joins two *processes*, not two addresses, and lives as long as both are in the view.
//! Messages are numbered, kept until acknowledged and sent again after a while. So the roles above
//! never ask "did it arrive". The design therefore has no cases for lost grants and for releases
//! that overtake tables.
//!
//! When the direct path to a process seems broken the same packets also go through members of the
//! council. They go through all of them until one is known to deliver, then through that member.
//! Each relayed packet names the member through which its sender has heard the other side. A packet
//! that arrives twice is dropped, so no sender needs certainty.

#[cfg(elderlock_mutants)]
mod planted;

use super::cluster::view::View;
use super::event::{Config, Output, Sizes};
use super::id::{MemberInfo, ProcessId, ViewNumber};
use super::limits::LinkLimits;
use super::message::{Message, Notice, Packet};
use super::time::Time;
use super::timing::Timing;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The number of messages that are sent again first, if the other side was heard lately, and if it
/// was not.
const MANY: usize = 64;
const FEW: usize = 4;

/// One direction each way between this process and another.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Link {
    /// Number of the last message sent.
    sent: u64,
    /// Sent and not acknowledged; the last one has number `sent`.
    kept: VecDeque<Message>,
    /// All messages up to this one have been received and handed on.
    received: u64,
    /// Received ahead of their turn.
    early: BTreeMap<u64, Message>,
    /// The weight of these.
    early_bytes: usize,
    /// Messages received since the last acknowledgement went out.
    unacked: u32,
    /// When an acknowledgement is due at the latest.
    ack_at: Option<Time>,
    /// When the kept messages are sent again.
    resend_at: Option<Time>,
    /// How often they were sent again without an answer.
    tries: u32,
    /// The time since which only messages arrive that had arrived before.
    stuck_since: Option<Time>,
    /// When the kept messages were last sent again from the first on. This and the next two are
    /// each done at most once in a quarter of `retry`: otherwise repeated messages and repeated
    /// acknowledgements would multiply each other.
    resent_at: Option<Time>,
    /// When the other side was last asked to send its kept messages again.
    asked_at: Option<Time>,
    /// When a doubled message was last acknowledged at once.
    doubled_at: Option<Time>,
    /// The repetition under way.
    repeats: Option<Retransmission>,
    /// A packet that needed a newer view was dropped.
    missed: bool,
    /// The time at which the agenda has this link: at its deadline or before.
    alarm: Option<Time>,
}

/// The kept messages that are sent again, a few at a time. Each acknowledgement of all of these
/// doubles their number. A broken path still takes a few, and a repaired one is not flooded
/// by all waiting links.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Retransmission {
    /// The first message that was not sent again yet.
    next: u64,
    /// The last one that is to be.
    last: u64,
    /// How many go next.
    window: usize,
}

impl Link {
    fn deadline(&self) -> Option<Time> {
        [self.ack_at, self.resend_at].into_iter().flatten().min()
    }

    /// Enters the link into the agenda by its deadline. An entry stays when the deadline moves
    /// away, because it moves with most messages. So an alarm may go off for nothing, once a
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

    /// The number of the first message kept.
    fn first_kept(&self) -> u64 {
        self.sent - self.kept.len() as u64 + 1
    }

    /// Returns whether the next messages of a repetition may go.
    fn on_ack(&mut self, now: Time, ack: u64, timing: &Timing) -> bool {
        let first_kept = self.first_kept();
        if ack < first_kept || ack > self.sent {
            return false;
        }
        self.kept.drain(..(ack - first_kept + 1) as usize);
        self.tries = 0;
        self.stuck_since = None;
        self.resend_at = if self.kept.is_empty() { None } else { Some(now + timing.retry) };
        self.repeats = self.repeats.filter(|repeats| ack < repeats.last);
        self.repeats.is_some_and(|repeats| repeats.next <= ack + 1)
    }

    /// The next messages of a repetition, in packets.
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

/// Trouble on the direct path to a process.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Detour {
    /// The time until which packets go both ways.
    until: Time,
    /// The time until which trouble lasts that this member has seen itself: the other side should
    /// answer by detours too.
    seen_until: Time,
    /// Turns through the council.
    next_relay: u32,
    /// The member through which the other side hears this one, and when the other side last
    /// reported it.
    relay: Option<(ProcessId, Time)>,
    /// The member through which this one hears the other side, and when it last did.
    heard: Option<(ProcessId, Time)>,
    /// When the other side was last heard on the direct path.
    straight_at: Time,
    /// When a packet other than a notice last went through all relays.
    probed_at: Option<Time>,
    /// The notices that went through all relays lately, and since when they are counted.
    notices: Vec<Packet>,
    noticed_since: Time,
}

impl Detour {
    /// Returns whether it goes on. A detour in use, while the direct path is silent, lasts for one
    /// more member lease.
    fn goes_on(&mut self, now: Time, timing: &Timing) -> bool {
        if self.until <= now
            && is_fresh(self.relay, now, timing)
            && self.straight_at + timing.slow_beat() * 2 <= now
        {
            self.until = now + timing.member_lease;
            self.seen_until = self.until;
        }
        self.until > now
    }

    /// The members of `relays` through which a packet goes: the relay that is known to deliver.
    /// While none is known, a notice goes through all, the same notice once in a quarter of
    /// `retry`. If packets are frequent or long, only one in that time goes through all, and the
    /// others go through one relay after the other. `most`: at most this many notices.
    fn choose(
        &mut self,
        now: Time,
        packet: &Packet,
        relays: &[ProcessId],
        most: usize,
        timing: &Timing,
    ) -> Vec<ProcessId> {
        if let Some((way, _)) =
            self.relay.filter(|way| is_fresh(Some(*way), now, timing) && relays.contains(&way.0))
        {
            return vec![way];
        }
        let is_view = |notice: &Notice| matches!(notice, Notice::FullView { .. });
        let is_short = matches!(packet, Packet::Notice(notice) if !is_view(notice));
        if is_short {
            // Otherwise a question through all relays would be answered through all relays, as
            // often as it arrives.
            if self.noticed_since + timing.retry / 4 <= now {
                self.noticed_since = now;
                self.notices.clear();
            }
            if self.notices.contains(packet) {
                return Vec::new();
            }
            if self.notices.len() < most {
                self.notices.push(packet.clone());
                return relays.to_vec();
            }
        } else if is_time(&mut self.probed_at, now, timing) {
            return relays.to_vec();
        }
        let next = relays.get(self.next_relay as usize % relays.len().max(1)).copied();
        self.next_relay = self.next_relay.wrapping_add(1);
        next.into_iter().collect()
    }
}

/// Returns whether the last packet is so recent that the next one is not overdue: every member
/// sends one within an eighth of a member lease.
fn is_fresh(heard: Option<(ProcessId, Time)>, now: Time, timing: &Timing) -> bool {
    heard.is_some_and(|(_, at)| now < at + timing.slow_beat() * 2)
}

/// All links of a member, and the detours to the other members.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct LinkSet {
    links: BTreeMap<ProcessId, Link>,
    /// Alarms of links, so that a thousand quiet links cost nothing.
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
        link.kept.push_back(message.clone());
        link.resend_at.get_or_insert(now + view.timing.retry);
        let packet =
            Packet::Linked { view: view.number, seq: link.sent, ack: link.take_ack(), message };
        link.arm(to, &mut self.agenda);
        self.dispatch(now, me, view, to, packet, out);
    }

    /// Sends a packet to a member of `view`: on the direct path, and also through the council while
    /// there is trouble.
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
                planted!(=> let mut detour = planted::Turns(detour, self.mutant));
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

    /// The direct path to `to` seems broken: use others too for a while. `seen`: this member itself
    /// noticed it, not `to`.
    pub(crate) fn trouble(&mut self, now: Time, to: ProcessId, seen: bool, timing: &Timing) {
        open_detour(&mut self.detours, now, to, seen, timing);
    }

    /// A packet of `from` came through `relay`. Its sender heard this member through `heard`.
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

    /// A packet came directly from `from`.
    pub(crate) fn on_straight(&mut self, now: Time, from: ProcessId) {
        if !self.detours.is_empty()
            && let Some(detour) = self.detours.get_mut(&from)
        {
            detour.straight_at = now;
        }
    }

    /// A numbered message arrived. Returns the messages that are now in turn: mostly that message,
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
            // It was sent again although it arrived: the acknowledgement was lost or late. If that
            // goes on, the path back is cut.
            at_once = is_time(&mut link.doubled_at, now, timing);
            if *link.stuck_since.get_or_insert(now) + timing.retry * 2 <= now {
                open_detour(&mut self.detours, now, from, true, timing);
            }
        } else if seq == link.received + 1 {
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
            // Ask for the gap when it opens; after that the other side's own timer is enough.
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

    /// An acknowledgement arrived alone.
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

    /// A packet of a newer view was dropped: ask for it again once that view is installed.
    pub(crate) fn note_missed(&mut self, from: ProcessId) {
        self.links.entry(from).or_default().missed = true;
    }

    /// A connection to `to` was opened. After a broken one, messages that it may have lost are sent
    /// again.
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
        // The last messages had no answer: a few are enough to notice when that changes.
        let window = if link.tries > 1 { FEW } else { MANY };
        planted!(=> let window = planted::window(window, self.mutant, &self.limits));
        link.repeats = Some(Retransmission {
            next: link.first_kept(),
            last: link.sent,
            window: window.min(self.limits.burst as usize),
        });
        self.go_on_repeating(now, me, view, to, out);
    }

    /// Sends the next messages of a repetition.
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

    /// A new view: forgets members that are gone, and asks again for messages that came too early.
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

    /// How many messages wait for an acknowledgement of `to`.
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

/// Lets packets to `to` also go through the council for one member lease.
fn open_detour(
    detours: &mut BTreeMap<ProcessId, Detour>,
    now: Time,
    to: ProcessId,
    seen: bool,
    timing: &Timing,
) {
    let until = now + timing.member_lease;
    let detour = detours.entry(to).or_insert(Detour {
        until,
        seen_until: Time::ZERO,
        next_relay: 0,
        relay: None,
        heard: None,
        straight_at: Time::ZERO,
        probed_at: None,
        notices: Vec::new(),
        noticed_since: Time::ZERO,
    });
    detour.until = until;
    if seen {
        detour.seen_until = until;
        // Packets through that relay since then were not answered.
        detour.relay = detour.relay.filter(|(_, at)| now < *at + timing.retry);
    }
}

/// Returns whether a quarter of `retry` has passed since the last time that this was true. Records
/// the present time if so.
fn is_time(last: &mut Option<Time>, now: Time, timing: &Timing) -> bool {
    let due = last.is_none_or(|last| last + timing.retry / 4 <= now);
    if due {
        *last = Some(now);
    }
    due
}

#[cfg(test)]
mod tests {
    use super::super::id::{ServiceName, Slot};
    use super::super::message::RegistryMessage;
    use super::*;
    use std::time::Duration;

    const RETRY: Duration = Duration::from_millis(200);

    struct LinkEnd {
        me: MemberInfo,
        links: LinkSet,
    }

    fn ends() -> ([LinkEnd; 2], View) {
        let info = |number: u16| {
            MemberInfo::new(ProcessId(number.into()), ([127, 0, 0, 1], 7400 + number).into())
        };
        let ends = [1, 2].map(|number| {
            let config = Config::new(info(number), Timing::lan());
            LinkEnd { me: info(number), links: LinkSet::new(&config) }
        });
        let timing = Timing { retry: RETRY, ..Timing::lan() };
        let members = ends.iter().map(|end| end.me.clone()).collect();
        (ends, View::first(Slot(1), members, timing, 7))
    }

    impl LinkEnd {
        /// Sends a message, and returns its packet.
        fn send(&mut self, now: Time, view: &View, to: ProcessId) -> Packet {
            let mut out = Vec::new();
            let service = ServiceName::new("stock").expect("a name");
            let word = Message::Registry(RegistryMessage::FindGrantor { service, heard: None });
            self.links.send(now, &self.me, view, to, word, &mut out);
            only(out).expect("it is said")
        }

        fn hear(&mut self, now: Time, view: &View, from: ProcessId, packet: Packet) {
            let mut out = Vec::new();
            let Packet::Linked { seq, ack, message, .. } = packet else {
                panic!("{packet:?} has no number")
            };
            self.links.on_linked(now, &self.me, view, from, (seq, ack), message, &mut out);
            assert_eq!(only(out), None);
        }

        /// Handles its next alarm. Returns the alarm's time and the packet.
        fn wake(&mut self, view: &View) -> (Time, Option<Packet>) {
            let (at, mut out) = (self.links.deadline().expect("an alarm"), Vec::new());
            self.links.on_timer(at, &self.me, view, &mut out);
            assert!(
                self.links.deadline().is_none_or(|next| next > at),
                "it would go off without end"
            );
            (at, only(out))
        }
    }

    fn only(mut out: Vec<Output>) -> Option<Packet> {
        assert!(out.len() <= 1, "{out:?}");
        out.pop().map(|output| match output {
            Output::Send { packet, .. } => packet,
            other => panic!("{other:?}"),
        })
    }

    /// How many messages are sent again when two connections to a member open at once, of a hundred
    /// that it has not acknowledged.
    fn repeated(plant: impl Fn(&mut LinkSet)) -> usize {
        let ([mut a, b], view) = ends();
        plant(&mut a.links);
        let now = Time::from_nanos(1);
        for _ in 0..100 {
            a.send(now, &view, b.me.process);
        }
        let mut out = Vec::new();
        for _ in 0..2 {
            a.links.on_connected(now + RETRY / 8, &a.me, &view, b.me.process, true, &mut out);
        }
        out.len()
    }

    #[test]
    fn a_repetition_begins_once_in_a_quarter_of_retry_however_many_connections_open() {
        assert_eq!(repeated(|_| {}), MANY);
        #[cfg(elderlock_mutants)]
        {
            let mutant = Some(super::super::mutant::ProtocolMutant::RepeatAllAtOnce);
            assert_eq!(repeated(|links| links.mutant = mutant), 200, "the break is not seen");
        }
    }

    #[test]
    fn acknowledgements_and_retransmissions_are_sent_when_due_at_any_timing_of_alarms() {
        let ([mut a, mut b], view) = ends();
        let mut now = Time::from_nanos(1);
        // Messages in both directions: deadlines move with each of them, and alarms stay behind.
        let (mut last_said, mut last_heard) = (now, now);
        for _ in 0..60 {
            let word = a.send(now, &view, b.me.process);
            now = now + Duration::from_millis(1);
            b.hear(now, &view, a.me.process, word);
            last_said = now;
            let word = b.send(now, &view, a.me.process);
            now = now + Duration::from_millis(1);
            a.hear(now, &view, b.me.process, word);
            last_heard = now;
            for end in [&mut a, &mut b] {
                while end.links.deadline().is_some_and(|at| at <= now) {
                    assert_eq!(end.wake(&view).1, None, "nothing is due while they talk");
                }
            }
        }
        let due = |end: &mut LinkEnd| loop {
            let (at, packet) = end.wake(&view);
            if packet.is_some() {
                return (at, packet);
            }
        };
        let (at, packet) = due(&mut a);
        assert_eq!(at, last_heard + RETRY / 4);
        assert!(matches!(packet, Some(Packet::Ack { ack: 60, .. })), "{packet:?}");
        assert_eq!(
            (a.links.deadline(), a.links.agenda.len()),
            (None, 0),
            "a quiet link costs nothing"
        );
        let (at, packet) = due(&mut b);
        assert_eq!(at, last_said + RETRY);
        assert!(matches!(packet, Some(Packet::Linked { seq: 60, .. })), "{packet:?}");
    }

    #[test]
    fn only_so_many_bytes_are_kept_ahead_of_their_turn() {
        let ([mut a, mut b], view) = ends();
        let now = Time::from_nanos(1);
        let words: Vec<Packet> = (0..5).map(|_| b.send(now, &view, a.me.process)).collect();
        let (me, from) = (a.me.clone(), b.me.process);
        let Packet::Linked { message, .. } = &words[0] else { panic!("{words:?}") };
        a.links.limits.early_bytes = 2 * message.weight() as u32;
        let mut hear = |number: usize| {
            let Packet::Linked { seq, ack, message, .. } = words[number].clone() else {
                panic!("{words:?}")
            };
            let (first, more) =
                a.links.on_linked(now, &me, &view, from, (seq, ack), message, &mut Vec::new());
            let bytes = a.links.links.values().map(|link| link.early_bytes).sum::<usize>();
            (first.iter().len() + more.len(), bytes / a.links.limits.early_bytes as usize)
        };
        assert_eq!([1, 2, 3].map(&mut hear), [(0, 0), (0, 1), (0, 1)], "the third has no room");
        assert_eq!(hear(0), (3, 0), "the first two were kept, and their room is free");
        assert_eq!([3, 4].map(hear), [(1, 0), (1, 0)]);
    }

    #[test]
    fn only_so_many_messages_are_kept_ahead_of_their_turn() {
        let ([mut a, mut b], view) = ends();
        a.links.limits.early = 2;
        let now = Time::from_nanos(1);
        let words: Vec<Packet> = (0..4).map(|_| b.send(now, &view, a.me.process)).collect();
        let (me, from) = (a.me.clone(), b.me.process);
        let mut heard = Vec::new();
        for word in [&words[1], &words[2], &words[3], &words[0]] {
            let Packet::Linked { seq, ack, message, .. } = word.clone() else {
                panic!("{word:?} has no number")
            };
            let (first, more) =
                a.links.on_linked(now, &me, &view, from, (seq, ack), message, &mut Vec::new());
            heard.push(usize::from(first.is_some()) + more.len());
        }
        assert_eq!(heard, [0, 0, 0, 3], "the fourth is dropped, and sent again");
    }

    #[test]
    fn messages_kept_by_links_are_counted() {
        let ([mut a, b], view) = ends();
        let (now, to, timing) = (Time::from_nanos(1), b.me.process, view.timing);
        let count = |links: &LinkSet, now: Time| {
            let mut sizes = Sizes::default();
            links.count(now, &mut sizes);
            (sizes.links, sizes.unacknowledged, sizes.ahead, sizes.link_timers, sizes.detours)
        };
        assert_eq!((a.links.backlog(to), a.links.sent(to)), (0, 0));
        (0..3).for_each(|_| _ = a.send(now, &view, to));
        assert_eq!((a.links.backlog(to), a.links.sent(to)), (3, 3));
        let service = ServiceName::new("stock").expect("a name");
        let (me, word) = (
            a.me.clone(),
            Message::Registry(RegistryMessage::FindGrantor { service, heard: None }),
        );
        a.links.on_linked(now, &me, &view, to, (2, 1), word, &mut Vec::new());
        a.links.trouble(now, to, true, &timing);
        assert_eq!(count(&a.links, now), (1, 2, 1, 1, 1));
        assert_eq!(
            count(&a.links, now + timing.member_lease),
            (1, 2, 1, 1, 0),
            "the detour is over"
        );
    }

    /// The numbers of the outgoing messages.
    fn numbers(out: &[Output]) -> Vec<u64> {
        let number = |output: &Output| match output {
            Output::Send { packet: Packet::Linked { seq, .. }, .. } => Some(*seq),
            _ => None,
        };
        out.iter().filter_map(number).collect()
    }

    #[test]
    fn kept_messages_go_again_in_windows_that_grow_as_they_are_acknowledged() {
        let ([mut a, b], view) = ends();
        let to = b.me.process;
        let start = Time::from_nanos(1);
        (0..100).for_each(|_| _ = a.send(start, &view, to));
        let again = |a: &mut LinkEnd| {
            let (at, mut out) = (a.links.deadline().expect("an alarm"), Vec::new());
            a.links.on_timer(at, &a.me, &view, &mut out);
            (at, numbers(&out))
        };
        assert_eq!(again(&mut a).1, Vec::from_iter(1..=64), "nothing is known to be wrong yet");
        let (now, few) = again(&mut a);
        assert_eq!(few, [1, 2, 3, 4], "nothing came back");
        let (me, mut out) = (a.me.clone(), Vec::new());
        a.links.on_ack(now, &me, &view, to, 3, false, &mut out);
        assert_eq!(numbers(&out), [] as [u64; 0], "one of them is not acknowledged");
        a.links.on_ack(now, &me, &view, to, 4, false, &mut out);
        assert_eq!(numbers(&out), Vec::from_iter(5..=12));
        out.clear();
        a.links.on_ack(now, &me, &view, to, 12, false, &mut out);
        assert_eq!(numbers(&out), Vec::from_iter(13..=28));
        out.clear();
        for _ in 0..10 {
            a.links.on_connected(now, &me, &view, to, true, &mut out);
        }
        assert_eq!(numbers(&out), [] as [u64; 0], "they have just gone");
        let (at, rest) = again(&mut a);
        assert_eq!((at, rest), (now + RETRY / 4, Vec::from_iter(13..=76)));
    }

    #[test]
    fn a_detour_goes_through_all_until_one_is_known_to_bring_packets_there() {
        let info = |number: u16| {
            MemberInfo::new(ProcessId(number.into()), ([127, 0, 0, 1], 7400 + number).into())
        };
        let timing = Timing { retry: RETRY, ..Timing::lan() };
        let view = View::first(Slot(1), (1..=5).map(info).collect(), timing, 7);
        let me = info(1);
        let mut links = LinkSet::new(&Config::new(me.clone(), timing));
        let (to, start) = (ProcessId(5), Time::from_nanos(1));
        let relays = |links: &mut LinkSet, now: Time| {
            let mut out = Vec::new();
            links.dispatch(now, &me, &view, to, Packet::from(Notice::Leave), &mut out);
            let relay = |output: &Output| match output {
                Output::Send {
                    process: Some(ProcessId(relay)),
                    packet: Packet::Relay { .. },
                    ..
                } => Some(*relay),
                _ => None,
            };
            out.iter().filter_map(relay).collect::<Vec<_>>()
        };
        assert_eq!(relays(&mut links, start), [] as [u128; 0]);
        links.trouble(start, to, true, &timing);
        assert_eq!(relays(&mut links, start), [2, 3, 4]);
        let soon = Time::from_nanos(RETRY.as_nanos() as u64 / 4 - 1);
        assert_eq!(relays(&mut links, soon), [] as [u128; 0], "the same notice, said just before");
        assert_eq!(relays(&mut links, soon + Duration::from_nanos(1)), [2, 3, 4]);
        links.on_relayed(start, to, ProcessId(3), Some(ProcessId(4)), &timing);
        assert_eq!(relays(&mut links, start), [4], "by which it is heard, not by which it hears");
        let late = start + timing.slow_beat() * 2;
        assert_eq!(relays(&mut links, late), [2, 3, 4], "it was not said for too long");
        links.on_relayed(late, to, ProcessId(3), Some(ProcessId(4)), &timing);
        links.trouble(late + RETRY, to, true, &timing);
        assert_eq!(
            relays(&mut links, late + RETRY),
            [2, 3, 4],
            "packets that went that way were not answered"
        );
    }
}
