//! Links: what makes lossy, doubling, reordering connections deliver each [`Message`] exactly once and in order.
//!
//! A link joins two *processes*, not two addresses, and lives as long as both are in the view: messages are
//! numbered, kept until acknowledged and sent again after a while, so the roles above never ask "did it arrive".
//! That is what removes the traces of lost grants and of releases that overtake tables from the design.
//!
//! When the straight way to a process seems broken the same packets also go through a member of the council;
//! since whatever arrives twice is dropped, nobody needs to know for sure.

use super::event::{Output, Sizes};
use super::id::{MemberInfo, ProcessId};
use super::limits::Limits;
use super::message::{Message, Packet};
use super::time::Time;
use super::timing::Timing;
use super::view::View;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

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
    /// Messages received since the last acknowledgement went out.
    unacked: u32,
    /// When an acknowledgement is due at the latest.
    ack_at: Option<Time>,
    /// When the kept messages are sent again.
    resend_at: Option<Time>,
    /// How often they were sent again without an answer.
    tries: u32,
    /// Since when messages arrive again that had arrived, and nothing new.
    stuck_since: Option<Time>,
    /// When the kept messages were last sent again, and when the other side was last asked to do so. Both are done
    /// at most once in a quarter of `retry`: answers that double questions that double answers would be a storm.
    resent_at: Option<Time>,
    asked_at: Option<Time>,
    /// Something came that needed a newer view, and was dropped.
    missed: bool,
    /// The time at which the agenda has this link: at its deadline or before.
    alarm: Option<Time>,
}

impl Link {
    fn deadline(&self) -> Option<Time> {
        [self.ack_at, self.resend_at].into_iter().flatten().min()
    }

    /// Sees to it that the agenda has the link by its deadline. One that moves away is left where it was, for mostly it moves with
    /// each message: so an alarm may go off for nothing, once a quarter of `retry`.
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

    fn take_ack(&mut self) -> u64 {
        self.ack_at = None;
        self.unacked = 0;
        self.received
    }

    fn on_ack(&mut self, now: Time, ack: u64, timing: &Timing) {
        let first_kept = self.sent - self.kept.len() as u64 + 1;
        if ack < first_kept || ack > self.sent {
            return;
        }
        self.kept.drain(..(ack - first_kept + 1) as usize);
        self.tries = 0;
        self.stuck_since = None;
        self.resend_at = if self.kept.is_empty() { None } else { Some(now + timing.retry) };
    }
}

/// Trouble on the straight way to a process.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Detour {
    /// Until then packets go both ways.
    until: Time,
    /// Until then there is trouble that this member has seen itself: the other one is to answer by detours too.
    seen_until: Time,
    /// Turns through the council.
    turn: u32,
}

/// All links of a member, and the ways to the other members.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Post {
    links: BTreeMap<ProcessId, Link>,
    /// Alarms of links, so that a thousand quiet links cost nothing.
    agenda: BTreeSet<(Time, ProcessId)>,
    detours: BTreeMap<ProcessId, Detour>,
    bounds: Bounds,
}

/// How much a link keeps and says at a time, see [`Limits`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
struct Bounds {
    early: usize,
    burst: usize,
    ack_every: u32,
}

impl Post {
    pub(crate) fn new(limits: &Limits) -> Post {
        let Limits { link_early, link_burst, ack_every, .. } = *limits;
        let bounds = Bounds { early: link_early as usize, burst: link_burst as usize, ack_every };
        Post { bounds, ..Post::default() }
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
        let packet = Packet::Linked { view: view.number, seq: link.sent, ack: link.take_ack(), message };
        link.arm(to, &mut self.agenda);
        self.dispatch(now, me, view, to, packet, out);
    }

    /// Sends a packet to a member of `view`: straight, and also through the council while there is trouble.
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
            if detour.until <= now {
                self.detours.remove(&to);
            } else {
                let relays: Vec<_> =
                    view.council().filter(|info| info.process != me.process && info.process != to).collect();
                if !relays.is_empty() {
                    let relay = relays[detour.turn as usize % relays.len()];
                    detour.turn = detour.turn.wrapping_add(1);
                    let troubled = now < detour.seen_until;
                    let packet =
                        Packet::Relay { from: Box::new(me.clone()), to, troubled, packet: Box::new(packet.clone()) };
                    out.push(Output::Send { to: relay.addr, process: Some(relay.process), packet });
                }
            }
        }
        out.push(Output::Send { to: member.info.addr, process: Some(to), packet });
    }

    /// The straight way to `to` seems broken: use others too for a while. `seen`: by this member itself, not by `to`.
    pub(crate) fn trouble(&mut self, now: Time, to: ProcessId, seen: bool, timing: &Timing) {
        open_detour(&mut self.detours, now, to, seen, timing);
    }

    /// A numbered message arrived. Returns what is now in turn: mostly that message, and those that had come
    /// before it.
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
        link.on_ack(now, ack, timing);
        let mut again = false;
        let mut at_once = false;
        if seq <= link.received {
            // Sent again although it arrived: our acknowledgement was lost or late. If that goes on, our way back
            // is cut.
            at_once = true;
            if *link.stuck_since.get_or_insert(now) + timing.retry * 2 <= now {
                open_detour(&mut self.detours, now, from, true, timing);
            }
        } else if seq == link.received + 1 {
            link.received = seq;
            link.stuck_since = None;
            first = Some(message);
            while let Some(message) = link.early.remove(&(link.received + 1)) {
                link.received += 1;
                more.push(message);
            }
        } else {
            if link.early.len() < self.bounds.early {
                link.early.insert(seq, message);
            }
            // Ask for the gap when it opens; after that the other side's own timer is enough.
            again = link.early.len() == 1 && is_time(&mut link.asked_at, now, timing);
        }
        link.unacked += 1;
        if at_once || again || link.unacked >= self.bounds.ack_every {
            let packet = Packet::Ack { view: view.number, ack: link.take_ack(), again };
            link.arm(from, &mut self.agenda);
            self.dispatch(now, me, view, from, packet, out);
        } else {
            link.ack_at.get_or_insert(now + timing.retry / 4);
            link.arm(from, &mut self.agenda);
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
        link.on_ack(now, ack, &view.timing);
        let resend = again && is_time(&mut link.resent_at, now, &view.timing);
        link.arm(from, &mut self.agenda);
        if resend {
            self.resend(now, me, view, from, out);
        }
    }

    /// A packet of a newer view was dropped: ask for it again once that view is installed.
    pub(crate) fn note_missed(&mut self, from: ProcessId) {
        self.links.entry(from).or_default().missed = true;
    }

    /// A connection to `to` was opened. After a broken one, what it may have swallowed is sent again.
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
            self.resend(now, me, view, to, out);
        }
    }

    /// Sends again what is kept for `to`.
    pub(crate) fn resend(&mut self, now: Time, me: &MemberInfo, view: &View, to: ProcessId, out: &mut Vec<Output>) {
        let Some(link) = self.links.get_mut(&to) else { return };
        if link.kept.is_empty() {
            return;
        }
        let wait = view.timing.retry * (1 << link.tries.min(6));
        link.resend_at = Some(now + wait.min(view.timing.elder_lease));
        let ack = link.take_ack();
        let first = link.sent - link.kept.len() as u64 + 1;
        let packets: Vec<Packet> = (first..)
            .zip(link.kept.iter().take(self.bounds.burst))
            .map(|(seq, message)| Packet::Linked { view: view.number, seq, ack, message: message.clone() })
            .collect();
        link.arm(to, &mut self.agenda);
        for packet in packets {
            self.dispatch(now, me, view, to, packet, out);
        }
    }

    /// Does what is due: acknowledgements, and sending again.
    pub(crate) fn on_timer(&mut self, now: Time, me: &MemberInfo, view: &View, out: &mut Vec<Output>) {
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

    /// A new view: forgets who is gone, and asks for what came too early.
    pub(crate) fn on_view(&mut self, now: Time, me: &MemberInfo, view: &View, out: &mut Vec<Output>) {
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
            self.dispatch(now, me, view, process, Packet::Ack { view: view.number, ack, again: true }, out);
        }
    }

    /// A deliberate break: what is under way is lost with its connection.
    #[cfg(elderlock_mutants)]
    pub(crate) fn lose_kept(&mut self, to: ProcessId) {
        if let Some(link) = self.links.get_mut(&to) {
            link.sent -= link.kept.len() as u64;
            link.kept.clear();
            link.resend_at = None;
        }
    }

    /// Whether a message was heard before.
    #[cfg(elderlock_mutants)]
    pub(crate) fn has_heard(&self, from: ProcessId, seq: u64) -> bool {
        self.links.get(&from).is_some_and(|link| seq <= link.received)
    }

    /// How many messages wait for an acknowledgement of `to`.
    pub(crate) fn backlog(&self, to: ProcessId) -> usize {
        self.links.get(&to).map_or(0, |link| link.kept.len())
    }

    /// The number of the last message to `to`.
    pub(crate) fn sent(&self, to: ProcessId) -> u64 {
        self.links.get(&to).map_or(0, |link| link.sent)
    }

    /// Whether `to` has acknowledged that message.
    pub(crate) fn is_acknowledged(&self, to: ProcessId, number: u64) -> bool {
        self.links.get(&to).is_none_or(|link| link.sent - link.kept.len() as u64 >= number)
    }

    /// Adds what is kept here. A detour that is over is forgotten with the next packet, and counts no more.
    pub(crate) fn count(&self, now: Time, sizes: &mut Sizes) {
        sizes.links += self.links.len();
        sizes.unacknowledged += self.links.values().map(|link| link.kept.len()).sum::<usize>();
        sizes.ahead += self.links.values().map(|link| link.early.len()).sum::<usize>();
        sizes.link_timers += self.agenda.len();
        sizes.detours += self.detours.values().filter(|detour| detour.until > now).count();
    }

    /// When `on_timer` is due.
    pub(crate) fn deadline(&self) -> Option<Time> {
        self.agenda.first().map(|(at, _)| *at)
    }
}

/// For one member lease packets to `to` also go through the council.
fn open_detour(detours: &mut BTreeMap<ProcessId, Detour>, now: Time, to: ProcessId, seen: bool, timing: &Timing) {
    let until = now + timing.member_lease;
    let detour = detours.entry(to).or_insert(Detour { until, seen_until: Time::ZERO, turn: 0 });
    detour.until = until;
    if seen {
        detour.seen_until = until;
    }
}

/// Whether a quarter of `retry` has passed since it last was time; notes that it is now.
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
    use super::*;
    use std::time::Duration;

    const RETRY: Duration = Duration::from_millis(200);

    struct End {
        me: MemberInfo,
        post: Post,
    }

    fn ends() -> ([End; 2], View) {
        let info = |number: u16| MemberInfo {
            process: ProcessId(number.into()),
            addr: ([127, 0, 0, 1], 7400 + number).into(),
            host: None,
        };
        let ends = [1, 2].map(|number| End { me: info(number), post: Post::new(&Limits::default()) });
        let timing = Timing { retry: RETRY, ..Timing::lan() };
        let members = ends.iter().map(|end| end.me.clone()).collect();
        (ends, View::first(Slot(1), members, timing, 7))
    }

    impl End {
        /// Says something, and returns its packet.
        fn say(&mut self, now: Time, view: &View, to: ProcessId) -> Packet {
            let mut out = Vec::new();
            let word = Message::WhoGrants { service: ServiceName::new("stock").expect("a name") };
            self.post.send(now, &self.me, view, to, word, &mut out);
            only(out).expect("it is said")
        }

        fn hear(&mut self, now: Time, view: &View, from: ProcessId, packet: Packet) {
            let mut out = Vec::new();
            let Packet::Linked { seq, ack, message, .. } = packet else { panic!("{packet:?} has no number") };
            self.post.on_linked(now, &self.me, view, from, (seq, ack), message, &mut out);
            assert_eq!(only(out), None);
        }

        /// When its alarm goes off, and what it does then.
        fn wake(&mut self, view: &View) -> (Time, Option<Packet>) {
            let (at, mut out) = (self.post.deadline().expect("an alarm"), Vec::new());
            self.post.on_timer(at, &self.me, view, &mut out);
            assert!(self.post.deadline().is_none_or(|next| next > at), "it would go off without end");
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

    #[test]
    fn whatever_the_alarms_acknowledgements_and_repetitions_come_when_they_are_due() {
        let ([mut a, mut b], view) = ends();
        let mut now = Time::from_nanos(1);
        // Talk, so that deadlines move with each word, and alarms stay behind.
        let (mut last_said, mut last_heard) = (now, now);
        for _ in 0..60 {
            let word = a.say(now, &view, b.me.process);
            now = now + Duration::from_millis(1);
            b.hear(now, &view, a.me.process, word);
            last_said = now;
            let word = b.say(now, &view, a.me.process);
            now = now + Duration::from_millis(1);
            a.hear(now, &view, b.me.process, word);
            last_heard = now;
            for end in [&mut a, &mut b] {
                while end.post.deadline().is_some_and(|at| at <= now) {
                    assert_eq!(end.wake(&view).1, None, "nothing is due while they talk");
                }
            }
        }
        let due = |end: &mut End| loop {
            let (at, packet) = end.wake(&view);
            if packet.is_some() {
                return (at, packet);
            }
        };
        let (at, packet) = due(&mut a);
        assert_eq!(at, last_heard + RETRY / 4);
        assert!(matches!(packet, Some(Packet::Ack { ack: 60, .. })), "{packet:?}");
        assert_eq!((a.post.deadline(), a.post.agenda.len()), (None, 0), "a quiet link costs nothing");
        let (at, packet) = due(&mut b);
        assert_eq!(at, last_said + RETRY);
        assert!(matches!(packet, Some(Packet::Linked { seq: 60, .. })), "{packet:?}");
    }
}
