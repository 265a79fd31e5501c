//! Tests of links, and of the detours beside them.

use super::*;
use crate::protocol::id::{
    Epoch, LockName, Metadata, OpenRequest, OwnerId, RequestId, ServiceName, Slot, Token, Value,
    Want,
};
use crate::protocol::message::{GrantorMessage, LockRequest, Notice, RegistryMessage, WaitReport};
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

    /// Handles the next alarm. Returns its time and the packet.
    fn wake(&mut self, view: &View) -> (Time, Option<Packet>) {
        let (at, mut out) = (self.links.deadline().expect("an alarm"), Vec::new());
        self.links.on_timer(at, &self.me, view, &mut out);
        assert!(self.links.deadline().is_none_or(|next| next > at), "it would go off without end");
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
        let mutant = Some(crate::protocol::mutant::ProtocolMutant::RepeatAllAtOnce);
        assert_eq!(repeated(|links| links.mutant = mutant), 200, "the break is not seen");
    }
}

#[test]
fn acknowledgements_and_retransmissions_are_sent_when_due_at_any_timing_of_alarms() {
    let ([mut a, mut b], view) = ends();
    let mut now = Time::from_nanos(1);
    // There are messages in both directions: deadlines move with each of them, and alarms stay
    // behind.
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
    assert_eq!((a.links.deadline(), a.links.agenda.len()), (None, 0), "a quiet link costs nothing");
    let (at, packet) = due(&mut b);
    assert_eq!(at, last_said + RETRY);
    assert!(matches!(packet, Some(Packet::Linked { seq: 60, .. })), "{packet:?}");
}

#[test]
fn a_link_is_crowded_by_the_bytes_of_calls_until_they_are_acknowledged() {
    let ([mut a, b], view) = ends();
    let (now, to, me) = (Time::from_nanos(1), b.me.process, a.me.clone());
    let service = ServiceName::new("stock").expect("a name");
    let epoch = Epoch(Token::new(Slot(1), 1));
    let name = LockName::new(&[b'n'; 4096]).expect("a name");
    let value = Value::new(&[b'v'; 1024]).expect("a value");
    let call = |request| {
        let want = Want::Open(OpenRequest::new(name.clone(), value.clone()));
        let lock = LockRequest {
            want,
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        };
        let (service, request) = (service.clone(), RequestId(request));
        let only_if_free = false;
        GrantorMessage::RequestLock { service, epoch, request, lock, only_if_free, keep: 0 }.into()
    };
    let weight = Message::call_weight(&call(1));
    assert!(weight > 4096 + 1024);
    a.links.limits.kept_bytes = 2 * weight as u32;
    let mut crowded = |message: Message| {
        a.links.send(now, &me, &view, to, message, &mut Vec::new());
        a.links.is_crowded(to, 100)
    };
    assert_eq!([1, 2, 3].map(|n| crowded(call(n))), [false, false, true]);
    let mut crowded_after = |ack| {
        a.links.on_ack(now, &me, &view, to, ack, false, &mut Vec::new());
        a.links.is_crowded(to, 100)
    };
    assert_eq!([0, 1, 3].map(&mut crowded_after), [true, false, false]);
    assert_eq!(a.links.links[&to].kept_bytes, 0);
    // A report is as long as the holds of a member, and no caller is refused because of it.
    let wait = WaitReport { request: RequestId(1), lock: lock_of(call(1)), ticket: None };
    let report = GrantorMessage::Report {
        service: service.clone(),
        epoch,
        objects: Box::default(),
        holds: Vec::new(),
        waits: vec![wait; 100],
        last: true,
        parts: None,
    };
    a.links.send(now, &me, &view, to, report.into(), &mut Vec::new());
    assert!(!a.links.is_crowded(to, 100) && a.links.is_crowded(to, 0));
}

fn lock_of(message: Message) -> LockRequest {
    match message {
        Message::Grantor(GrantorMessage::RequestLock { lock, .. }) => lock,
        other => panic!("{other:?}"),
    }
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
    let (me, word) =
        (a.me.clone(), Message::Registry(RegistryMessage::FindGrantor { service, heard: None }));
    a.links.on_linked(now, &me, &view, to, (2, 1), word, &mut Vec::new());
    a.links.trouble(now, to, true, &timing);
    assert_eq!(count(&a.links, now), (1, 2, 1, 1, 1));
    assert_eq!(count(&a.links, now + timing.member_lease), (1, 2, 1, 1, 0), "the detour is over");
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
                process: Some(ProcessId(relay)), packet: Packet::Relay { .. }, ..
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
