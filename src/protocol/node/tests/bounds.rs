//! The bytes and the names that one member can make others store.

use super::*;
use crate::protocol::event::GrantorState;
use crate::protocol::id::MAX_VALUE;
use crate::protocol::limits::Limits;
use crate::protocol::locks::grantor::ReceivedRequest;
use crate::protocol::locks::registry::Registry;
use crate::protocol::message::{RegistryMessage, WaitReport};
use crate::protocol::time::WallClock;
use std::ops::RangeInclusive;

fn named(name: &str) -> ServiceName {
    ServiceName::new(name).expect("a good name")
}

/// The services for which the elder names a grantor in answer to one member's message.
fn names_after(
    node: &mut Node,
    from: ProcessId,
    message: RegistryMessage,
) -> Vec<(ServiceName, Epoch)> {
    let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
        let registry = locks.registry.as_mut().expect("it has founded");
        registry.on_message(from, message, cx);
    });
    let named = |(_, message)| match message {
        Message::Member(MemberMessage::NameGrantor { service, range, .. }) => {
            Some((service, Epoch(range.first)))
        }
        _ => None,
    };
    outbox.into_iter().filter_map(named).collect()
}

#[test]
fn an_elder_keeps_so_many_names_of_one_member_and_forgets_those_of_vacant_services() {
    let mut node = with_two_more();
    node.cluster.config.limits.link.names = 3;
    let mut ask = |from, message| names_after(&mut node, from, message);
    let find = |name| RegistryMessage::FindGrantor { service: named(name), heard: None };
    let bid = |name| RegistryMessage::Become { service: named(name), request: RequestId(1) };
    let tokens =
        |name, epoch| RegistryMessage::MoreTokens { service: named(name), epoch, count: 1 };
    let a = ask(ANN, find("a"));
    assert_eq!(a.len(), 1);
    assert_eq!(ask(ANN, bid("b")).len(), 1);
    assert_eq!(ask(ANN, tokens("c", a[0].1)).len(), 0, "it is no grantor there");
    for fourth in [find("d"), bid("d"), tokens("d", a[0].1)] {
        assert_eq!(ask(ANN, fourth), []);
    }
    assert_eq!(ask(ANN, find("a")), [], "its grantor is named already, and is told");
    assert_eq!(ask(BOB, find("d")).len(), 1, "another member has names of its own");
    assert_eq!(ask(ANN, find("d")), [], "the name is known");
    ask(ANN, RegistryMessage::Vacant { service: named("a"), epoch: a[0].1 });
    assert_eq!(ask(ANN, find("e")).len(), 1, "the name of the vacant service is forgotten");
    assert_eq!(ask(ANN, find("a")), []);
    let registry = node.locks.registry.as_ref().expect("it has founded");
    assert!(registry.services().eq(["b", "d", "e"].map(named).iter()));
}

#[test]
fn an_elder_keeps_one_request_for_tokens_of_a_grantor_whatever_epochs_it_names() {
    let mut node = with_two_more();
    for (from, number) in (1..100).flat_map(|number| [(ANN, number), (BOB, number)]) {
        let (service, epoch) = (service(), Epoch(token(number % 50 + number)));
        let message = RegistryMessage::MoreTokens { service, epoch, count: 1 };
        names_after(&mut node, from, message);
    }
    let registry = node.locks.registry.as_ref().expect("it has founded");
    assert_eq!(registry.token_requests(), 2);
}

/// The services for whose grantors the elder is asked.
pub(super) fn find_questions(outbox: VecDeque<(ProcessId, Message)>) -> Vec<ServiceName> {
    let service = |(_, message)| match message {
        Message::Registry(RegistryMessage::FindGrantor { service, .. }) => Some(service),
        _ => None,
    };
    outbox.into_iter().filter_map(service).collect()
}

#[test]
fn a_member_with_more_services_than_names_repeats_a_question_that_its_elder_ignores() {
    let mut node = with_two_more();
    node.cluster.config.limits.link.names = 1;
    let mut step = |rounds: u32, act: &mut dyn FnMut(&mut Locks, &mut StepContext)| {
        let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
            cx.now = cx.now + cx.timing.retry * rounds;
            act(locks, cx);
        });
        find_questions(outbox)
    };
    for (number, name) in [(1, "a"), (2, "b")] {
        let call = || LockCall { service: named(name), ..lock_call(RequestId(number), want("x")) };
        let question =
            step(0, &mut |locks, cx| locks.client.lock(call(), Duration::ZERO, |_| false, cx));
        assert_eq!(question, [named(name)]);
    }
    for round in 1..4 {
        let again = step(round, &mut |locks, cx| locks.client.on_timer(cx));
        assert_eq!(again, [named("b")], "the first name was within the limit");
    }
    step(3, &mut |locks, cx| {
        locks.client.on_grantor_is(&named("b"), ANN, Epoch(token(100)), cx);
    });
    assert_eq!(step(4, &mut |locks, cx| locks.client.on_timer(cx)), []);
}

#[test]
fn an_elder_keeps_requests_for_tokens_of_a_member_whose_inventory_is_incomplete() {
    let mut node = with_two_more();
    node.cluster.config.limits.link.names = 1;
    let view = node.cluster.view.clone().expect("it has founded");
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        let clock = WallClock::new(NOW, view.tenure);
        let mut registry = Registry::new(&view, true, (clock, clock), cx);
        let epoch = Epoch(token(1));
        for name in ["a", "b"] {
            registry.on_more_tokens(ANN, (named(name), epoch, 1), false, cx);
        }
        assert_eq!(registry.token_requests(), 2);
        let known = vec![(named("b"), ANN, epoch)];
        for from in [ANN, BOB, cx.me] {
            let known = if from == ANN { known.clone() } else { Vec::new() };
            registry.on_inventory_reply((from, view.number), known, true, false, cx);
        }
        registry.answer(false, cx);
        assert_eq!(registry.token_requests(), 0, "the one is served, the other's epoch is over");
    });
}

/// A request whose entry has about 5,000 bytes.
pub(super) fn long(name: &str) -> LockRequest {
    let metadata = Metadata::new(&[7; 4_000]).expect("not too long");
    let name = format!("{name:x>900}");
    LockRequest { want: want(&name), owner: OwnerId::default(), revocable: false, metadata }
}

/// A hold of a [long] request for a lock of its own.
pub(super) fn long_hold(number: u32) -> HoldReport {
    HoldReport { lock: long(&format!("h{number}")), ..hold("x", number) }
}

/// Waits of [long] requests, each for a lock of its own.
pub(super) fn long_waits(numbers: RangeInclusive<u64>) -> Vec<WaitReport> {
    let wait = |number: u64| WaitReport {
        request: RequestId(number),
        lock: long(&format!("w{number}")),
        ticket: None,
    };
    numbers.map(wait).collect()
}

/// An object whose value has `bytes` bytes.
pub(super) fn object(number: u32, bytes: usize) -> (LockName, Content) {
    let name = LockName::new(format!("o{number}").as_bytes()).expect("a good name");
    let value = Value::new(&vec![7; bytes]).expect("not too long");
    let version = token(number);
    (name, Content { value, version, maybe_stale: false, writes: BTreeMap::new() })
}

#[test]
fn a_member_has_so_many_bytes_of_requests_and_callers_of_more_are_told_at_once() {
    let mut node = lone();
    let mut limits = Limits::DEFAULT;
    limits.link.request_bytes = 12_000;
    node.locks.client = LockClient::new(&limits);
    let mut lock = |number: u64| {
        let mut out = Vec::new();
        let command = Command::Lock {
            keeps: false,
            follows: false,
            request: RequestId(number),
            service: service(),
            lock: long(&number.to_string()),
            wait: Wait::Forever,
            lease: None,
            detects: false,
        };
        node.step(NOW, Input::Command(command), &mut out);
        out.into_iter().find_map(|output| match output {
            Output::Answer { outcome, .. } => Some(outcome == Outcome::Busy),
            _ => None,
        })
    };
    assert_eq!([1, 2, 3, 4].map(&mut lock), [Some(false), Some(false), Some(false), Some(true)]);
    let release = Command::Release { request: RequestId(1) };
    node.step(NOW, Input::Command(release), &mut Vec::new());
    let mut out = Vec::new();
    let command = Command::Lock {
        keeps: false,
        follows: false,
        request: RequestId(5),
        service: service(),
        lock: long("5"),
        wait: Wait::Forever,
        lease: None,
        detects: false,
    };
    node.step(NOW, Input::Command(command), &mut out);
    let is_busy = |output: &Output| matches!(output, Output::Answer { outcome: Outcome::Busy, .. });
    assert!(!out.iter().any(is_busy), "there is room again: {out:?}");
}

/// A grantor of a service in a view with ANN and BOB, which stores 12,000 bytes for a member.
fn small_grantor(origin: Origin) -> (Node, Grantor) {
    let mut node = with_two_more();
    node.cluster.config.limits.link.request_bytes = 6_000;
    let view = node.cluster.view.clone().expect("it has founded");
    let range = TokenRange { first: token(100), last: token(200) };
    let mut grantor = None;
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        cx.standing.leased = true;
        grantor = Some(Grantor::new(service(), range, origin, &view, cx));
    });
    (node, grantor.expect("it is made"))
}

#[test]
fn a_grantor_keeps_so_many_bytes_for_one_member_and_tells_it_to_ask_again() {
    let (mut node, mut grantor) = small_grantor(Origin::Free);
    let mut is_sent_on = |from, number: u64| {
        let outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
            cx.standing.leased = true;
            let lock = long(&format!("{number}"));
            let (request, only_if_free) = (RequestId(number), false);
            grantor.on_request_lock(
                ReceivedRequest { from, request, lock, only_if_free, keep: 0 },
                cx,
            );
        });
        outbox.iter().any(|(_, message)| {
            matches!(message, Message::Client(ClientMessage::NotGrantor { instead: None, .. }))
        })
    };
    assert_eq!([1, 2, 3, 4].map(|n| is_sent_on(ANN, n)), [false, false, false, true]);
    assert!(!is_sent_on(ANN, 3), "it is in the table");
    assert!(!is_sent_on(BOB, 3), "each member has bytes of its own");
}

/// A request to open an object, which is empty at first.
pub(super) fn opening(name: &str) -> LockRequest {
    let name = LockName::new(name.as_bytes()).expect("a good name");
    let want = Want::Open(OpenRequest::new(name, Value::new(b"").expect("a short value")));
    LockRequest { want, ..hold("x", 1).lock }
}

/// The number of openings that a grantor of [`small_grantor`] accepts from one member: each counts
/// some 1,200 bytes, with the longest value.
pub(super) const OPENINGS: usize = 11;

#[test]
fn an_open_object_counts_with_the_longest_value_that_may_be_written_into_it() {
    let (mut node, mut grantor) = small_grantor(Origin::Free);
    let value = Value::new(&[7; MAX_VALUE]).expect("not too long");
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        cx.standing.leased = true;
        for number in 0..50 {
            let (lock, only_if_free) = (opening(&format!("o{number}")), false);
            let (name, request) = (lock.want.names()[0].clone(), RequestId(2 * number));
            let asked = ReceivedRequest { from: ANN, request, lock, only_if_free, keep: 0 };
            grantor.on_request_lock(asked, cx);
            let edit = Edit::Set { value: value.clone(), expect: None };
            grantor.on_write((ANN, RequestId(2 * number + 1)), &name, &edit, cx);
        }
    });
    assert_eq!(grantor.objects().count(), OPENINGS);
    let bytes: usize = grantor.objects().map(|(name, content)| content.weight(name)).sum();
    assert!((OPENINGS * MAX_VALUE..13_000).contains(&bytes), "{bytes} bytes");
}

#[test]
fn a_member_counts_its_open_objects_as_its_grantor_does() {
    let mut node = lone();
    let mut limits = Limits::DEFAULT;
    limits.link.request_bytes = 12_000;
    node.locks.client = LockClient::new(&limits);
    let mut opened = 0;
    for number in 0..50 {
        let mut out = Vec::new();
        let command = Command::Lock {
            keeps: false,
            follows: false,
            request: RequestId(number),
            service: service(),
            lock: opening(&format!("o{number}")),
            wait: Wait::Forever,
            lease: None,
            detects: false,
        };
        node.step(NOW, Input::Command(command), &mut out);
        let is_busy =
            |output: &Output| matches!(output, Output::Answer { outcome: Outcome::Busy, .. });
        opened += usize::from(!out.iter().any(is_busy));
    }
    assert_eq!(opened, OPENINGS);
}

#[test]
fn a_recovering_grantor_keeps_so_many_bytes_of_one_members_report() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let before = grantor.size();
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        for part in 0..3 {
            let first = 1_000 + 10 * u64::from(part);
            let holds = (1..=3).map(|n| long_hold(10 * part + n)).collect();
            let waits = long_waits(first..=first + 2);
            grantor.on_report(ANN, Vec::new(), (holds, waits), false, cx);
        }
        assert_eq!(grantor.held().count(), 3);
    });
    // Each hold is one request and one name of the table.
    assert_eq!(grantor.size() - before, 3 * 2 + 3);
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        (0..1_000).for_each(|number| grantor.on_release(BOB, RequestId(number), cx));
    });
    assert_eq!(grantor.size() - before, 3 * 2 + 3 + 12_000 / 64);
}

#[test]
fn releases_of_a_member_that_has_left_are_forgotten_before_the_grantor_acts() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let view = node.cluster.view.clone().expect("it has founded");
    let before = grantor.size();
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        for from in [ANN, BOB] {
            (0..50).for_each(|number| grantor.on_release(from, RequestId(number), cx));
        }
        assert_eq!(grantor.size() - before, 100);
        let mut without = View::clone(&view);
        without.members.retain(|member| member.info.process != BOB);
        grantor.on_view(&without, &[BOB], &[], cx);
    });
    assert_eq!(grantor.size() + 1 - before, 50, "BOB is not awaited either");
}

#[test]
fn a_revalidation_keeps_so_many_reported_requests_and_then_ends_none_that_seem_left_out() {
    let (mut node, mut grantor) = small_grantor(Origin::Predecessor(ANN));
    let view = node.cluster.view.clone().expect("it has founded");
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        let holds = vec![(BOB, hold("x", 40))];
        grantor.on_table_chunk(ANN, Vec::new(), (holds, Vec::new()), (&view, true), cx);
        let before = grantor.size();
        for part in 1..=10 {
            let holds = (1..=200).map(|number| hold("y", 1_000 * part + number));
            grantor.on_report(BOB, Vec::new(), (holds.collect(), Vec::new()), false, cx);
        }
        assert_eq!(grantor.size() - before, 12_000 / 64);
        grantor.on_report(BOB, Vec::new(), (Vec::new(), Vec::new()), true, cx);
    });
    assert_eq!(grantor.held().count(), 1, "its report may have told of it");
}

/// The members that are sent a message of this kind, in order.
fn told(
    outbox: VecDeque<(ProcessId, Message)>,
    is_it: impl Fn(&ClientMessage) -> bool,
) -> Vec<(ProcessId, ClientMessage)> {
    let of_clients = outbox.into_iter().filter_map(|(to, message)| match message {
        Message::Client(message) => Some((to, message)),
        _ => None,
    });
    of_clients.filter(|(_, message)| is_it(message)).collect()
}

#[test]
fn a_hold_without_room_in_a_recovery_goes_to_no_other_member_before_its_holder_knows() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let mut step = |act: &mut dyn FnMut(&mut Grantor, &mut StepContext)| {
        node.cx(NOW, &mut Vec::new(), |_, cx| {
            cx.standing.leased = true;
            act(&mut grantor, cx);
        })
    };
    let holds = |numbers: RangeInclusive<u32>| numbers.map(long_hold).collect::<Vec<_>>();
    let is_grant = |message: &ClientMessage| matches!(message, ClientMessage::Grant { .. });
    let outbox = step(&mut |grantor, cx| {
        let lock = long("h4");
        let (request, only_if_free) = (RequestId(77), false);
        grantor.on_request_lock(
            ReceivedRequest { from: BOB, request, lock, only_if_free, keep: 0 },
            cx,
        );
        for from in [cx.me, BOB] {
            grantor.on_report(from, Vec::new(), (Vec::new(), Vec::new()), true, cx);
        }
        grantor.on_report(ANN, Vec::new(), (holds(1..=4), Vec::new()), true, cx);
        assert!(!grantor.is_acting() && grantor.held().count() == 3);
    });
    let is_end = |message: &ClientMessage| {
        matches!(message, ClientMessage::Supersede { .. } | ClientMessage::Recover { .. })
    };
    let (service, epoch, request) = (service(), Epoch(token(100)), RequestId(4));
    let recover = ClientMessage::Recover { service: service.clone(), epoch, by_part: true };
    let supersede = ClientMessage::Supersede { service, epoch, request };
    let ended = told(outbox.clone(), is_end);
    assert_eq!(ended, [(ANN, supersede), (ANN, recover)], "it reports after it has heard");
    assert_eq!(told(outbox, is_grant), [], "it believes in the lock");
    let outbox = step(&mut |grantor, cx| {
        grantor.on_report(ANN, Vec::new(), (holds(1..=3), Vec::new()), true, cx);
        assert!(grantor.is_acting());
    });
    let granted = told(outbox.clone(), is_grant).into_iter().map(|(to, _)| to);
    assert_eq!(granted.collect::<Vec<_>>(), [BOB]);
    assert_eq!(told(outbox, is_end), [], "its second report tells nothing new");
}

#[test]
fn a_recovering_grantor_keeps_so_many_bytes_of_the_objects_that_one_member_reports() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let opened = |number: u32| HoldReport { lock: opening("o1"), ..hold("x", number) };
    let outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
        for from in [cx.me, BOB] {
            grantor.on_report(from, Vec::new(), (Vec::new(), Vec::new()), true, cx);
        }
        for part in 0..10 {
            let objects = (1..=10).map(|number| object(10 * part + number, 1_000)).collect();
            grantor.on_report(ANN, objects, (Vec::new(), Vec::new()), false, cx);
        }
        // Each object has 1,050 bytes.
        assert_eq!(grantor.objects().count(), 12);
        let holds = vec![hold("x", 41), opened(42)];
        grantor.on_report(ANN, Vec::new(), (holds, Vec::new()), true, cx);
        assert!(!grantor.is_acting() && grantor.held().count() == 1);
    });
    let is_end = |message: &ClientMessage| matches!(message, ClientMessage::Supersede { .. });
    let ended =
        told(outbox, is_end).into_iter().map(|(to, message)| (to, Message::Client(message)));
    assert_eq!(ended.collect::<Vec<_>>(), [(ANN, revoke(42))], "it has no value of that object");
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        grantor.on_report(ANN, Vec::new(), (vec![hold("x", 41)], Vec::new()), true, cx);
        assert!(grantor.is_acting() && grantor.objects().count() == 0, "no member has one open");
    });
}

/// The events about the bounds.
fn bounds_told(out: &[Output]) -> Vec<Event> {
    let is_bound =
        |event: &Event| matches!(event, Event::WaitsLeftOut { .. } | Event::TableRefused { .. });
    let events = out.iter().filter_map(|output| match output {
        Output::Event(event) => Some(event.clone()),
        _ => None,
    });
    events.filter(is_bound).collect()
}

/// The members that are told to ask elsewhere, each with its request.
fn sent_on(outbox: VecDeque<(ProcessId, Message)>) -> Vec<(ProcessId, RequestId)> {
    let is_it = |message: &ClientMessage| matches!(message, ClientMessage::NotGrantor { .. });
    let request = |(to, message)| match message {
        ClientMessage::NotGrantor { request, instead: None, .. } => Some((to, request)),
        _ => None,
    };
    told(outbox, is_it).into_iter().filter_map(request).collect()
}

#[test]
fn waits_of_a_report_beyond_the_bound_are_sent_on_and_told_once_for_each_part() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let mut out = Vec::new();
    let outbox = node.cx(NOW, &mut out, |_, cx| {
        for waits in [long_waits(1..=5), long_waits(6..=6), long_waits(7..=20)] {
            grantor.on_report(ANN, Vec::new(), (Vec::new(), waits), false, cx);
        }
    });
    assert_eq!(sent_on(outbox), [4, 6, 7].map(|number| (ANN, RequestId(number))));
    let event = |count| Event::WaitsLeftOut { service: service(), member: ANN, count };
    assert_eq!(bounds_told(&out), [2, 1, 14].map(event));
}

#[test]
fn waits_without_room_beside_a_table_and_in_a_revalidation_are_sent_on() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let view = node.cluster.view.clone().expect("it has founded");
    let mut out = Vec::new();
    let outbox = node.cx(NOW, &mut out, |_, cx| {
        grantor.on_report(ANN, Vec::new(), (Vec::new(), long_waits(1..=2)), true, cx);
        // BOB is a predecessor that still lives: its table has ANN's holds.
        let holds = (1..=2).map(|number| (ANN, long_hold(100 + number))).collect();
        grantor.on_table_chunk(BOB, Vec::new(), (holds, Vec::new()), (&view, true), cx);
        assert!(grantor.is_acting());
    });
    assert_eq!(sent_on(outbox), [(ANN, RequestId(2))], "the first had room");
    let event = |count| Event::WaitsLeftOut { service: service(), member: ANN, count };
    assert_eq!(bounds_told(&out), [event(1)]);
    out.clear();
    let outbox = node.cx(NOW, &mut out, |_, cx| {
        let holds = (1..=2).map(|number| long_hold(100 + number)).collect();
        grantor.on_report(ANN, Vec::new(), (holds, long_waits(1..=4)), true, cx);
    });
    assert_eq!(sent_on(outbox), [(ANN, RequestId(2))], "the first is here");
    assert_eq!(bounds_told(&out), [event(3)]);
}

#[test]
fn waits_of_a_late_report_without_room_are_sent_on() {
    let (mut node, mut grantor) = small_grantor(Origin::Everyone);
    let view = node.cluster.view.clone().expect("it has founded");
    let outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
        let table = (Vec::new(), Vec::new());
        grantor.on_table_chunk(BOB, Vec::new(), table, (&view, true), cx);
        assert!(grantor.is_acting(), "ANN's report is older than the table");
        grantor.on_report(ANN, Vec::new(), (Vec::new(), long_waits(1..=5)), true, cx);
    });
    assert_eq!(sent_on(outbox), [(ANN, RequestId(4))]);
}

/// Tells the lock client that BOB grants in the epoch that begins with token 100.
fn name_bob(locks: &mut Locks, cx: &mut StepContext) {
    locks.client.on_grantor_is(&service(), BOB, Epoch(token(100)), cx);
}

/// The further fate of a wait that a grantor has left out of a report.
#[test]
fn a_member_asks_again_for_a_wait_that_is_not_at_the_grantor_it_reported_to() {
    let mut node = with_two_more();
    let epoch = Epoch(token(100));
    let mut step = |rounds: u32, act: &mut dyn FnMut(&mut Locks, &mut StepContext)| {
        let outbox = node.cx(NOW, &mut Vec::new(), |locks, cx| {
            cx.now = cx.now + cx.timing.retry * rounds;
            act(locks, cx);
        });
        let to_grantor = |(to, message)| match message {
            Message::Grantor(GrantorMessage::Report { waits, .. }) => Some((to, waits.len())),
            Message::Grantor(GrantorMessage::RequestLock { .. }) => Some((to, 1)),
            _ => None,
        };
        outbox.into_iter().filter_map(to_grantor).collect::<Vec<_>>()
    };
    let mut call = Some(lock_call(RequestId(1), want("x")));
    let reported = step(0, &mut |locks, cx| {
        let call = call.take().expect("one call");
        locks.client.lock(call, Duration::ZERO, |_| false, cx);
        assert!(locks.client.on_recover(BOB, &service(), (epoch, true), cx));
    });
    assert_eq!(reported, [(BOB, 1)]);
    let asked = step(0, &mut |locks, cx| {
        locks.client.on_not_grantor(&service(), epoch, RequestId(1), None, cx);
    });
    assert_eq!(asked, [], "it asks the elder first");
    assert_eq!(step(0, &mut name_bob), [], "and waits, as the grantor has no room");
    assert_eq!(step(1, &mut |locks, cx| locks.client.on_timer(cx)), []);
    assert_eq!(step(1, &mut name_bob), [(BOB, 1)]);
}

#[test]
fn a_table_beyond_the_bound_is_dropped_and_the_holds_in_it_survive_at_their_members() {
    let (mut node, mut grantor) = small_grantor(Origin::Predecessor(ANN));
    let view = node.cluster.view.clone().expect("it has founded");
    let (service, epoch) = (service(), Epoch(token(100)));
    let mut step = |act: &mut dyn FnMut(&mut Grantor, &mut StepContext)| {
        let mut out = Vec::new();
        let outbox = node.cx(NOW, &mut out, |_, cx| {
            cx.standing.leased = true;
            act(&mut grantor, cx);
        });
        (outbox, bounds_told(&out))
    };
    let long_holds = |numbers: RangeInclusive<u32>| numbers.map(long_hold).collect::<Vec<_>>();
    let (outbox, events) = step(&mut |grantor, cx| {
        let mut holds = vec![(BOB, hold("x", 40))];
        holds.extend(long_holds(101..=200).into_iter().map(|hold| (ANN, hold)));
        grantor.on_table_chunk(ANN, Vec::new(), (holds, Vec::new()), (&view, false), cx);
        assert_eq!(grantor.held().count(), 0, "it has no room for the rest of the table");
        grantor.on_table_chunk(ANN, Vec::new(), (Vec::new(), Vec::new()), (&view, true), cx);
        assert!(!grantor.is_acting(), "nor is the rest the whole");
    });
    assert_eq!(events, [Event::TableRefused { service: service.clone(), from: ANN }]);
    let is_question = |message: &ClientMessage| matches!(message, ClientMessage::Recover { .. });
    let asked = told(outbox, is_question).into_iter().map(|(to, _)| to);
    assert_eq!(asked.collect::<BTreeSet<_>>(), [ANN, BOB, ProcessId(7)].into());
    let (outbox, _) = step(&mut |grantor, cx| {
        for (from, holds) in [(cx.me, Vec::new()), (BOB, vec![hold("x", 40)])] {
            grantor.on_report(from, Vec::new(), (holds, Vec::new()), true, cx);
        }
        grantor.on_report(ANN, Vec::new(), (long_holds(101..=104), Vec::new()), true, cx);
        assert!(!grantor.is_acting(), "ANN has to hear that one of its holds is over");
    });
    let supersede = ClientMessage::Supersede { service, epoch, request: RequestId(104) };
    let is_end = |message: &ClientMessage| matches!(message, ClientMessage::Supersede { .. });
    assert_eq!(told(outbox, is_end), [(ANN, supersede)]);
    step(&mut |grantor, cx| {
        grantor.on_report(ANN, Vec::new(), (long_holds(101..=103), Vec::new()), true, cx);
        assert!(grantor.is_acting());
        let holders: Vec<_> = grantor.held().map(|(_, process, ..)| process).collect();
        assert_eq!(holders.iter().filter(|holder| **holder == ANN).count(), 3);
        assert_eq!(holders.iter().filter(|holder| **holder == BOB).count(), 1);
    });
}

#[test]
fn a_younger_turk_is_told_that_there_is_no_table_if_it_is_beyond_the_bound() {
    let (mut node, mut grantor) = small_grantor(Origin::Predecessor(ANN));
    let view = node.cluster.view.clone().expect("it has founded");
    let next_turk = (BOB, Epoch(token(300)));
    let outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
        assert!(!grantor.on_request_table(next_turk, cx), "the table is on its way");
        let waits: Vec<_> = long_waits(1..=100);
        let ticket = |number| Some(Ticket { epoch: Epoch(token(1)), number });
        let waits = waits
            .into_iter()
            .map(|wait| (BOB, WaitReport { ticket: ticket(wait.request.0), ..wait }));
        let table = (Vec::new(), waits.collect());
        grantor.on_table_chunk(ANN, Vec::new(), table, (&view, false), cx);
        assert_eq!(grantor.next_turk_due(), Some(next_turk));
        grantor.transfer(next_turk, None, cx);
    });
    let no_table = |(to, message): &(ProcessId, Message)| {
        *to == BOB && matches!(message, Message::Grantor(GrantorMessage::NoTable { .. }))
    };
    assert!(outbox.iter().any(no_table), "{outbox:?}");
}

#[test]
fn objects_of_a_table_have_the_bound_of_all_members_together() {
    let (mut node, mut grantor) = small_grantor(Origin::Predecessor(ANN));
    let view = node.cluster.view.clone().expect("it has founded");
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        let mut part = |numbers: RangeInclusive<u32>, grantor: &mut Grantor| {
            let objects = numbers.map(|number| object(number, 1_000)).collect();
            let table = (Vec::new(), Vec::new());
            grantor.on_table_chunk(ANN, objects, table, (&view, false), cx);
        };
        part(1..=60, &mut grantor);
        assert_eq!(grantor.objects().count(), 60, "three members may have 24,000 bytes each");
        part(61..=120, &mut grantor);
        assert_eq!((grantor.objects().count(), grantor.state()), (0, GrantorState::Recovering));
    });
}

#[test]
fn a_recovered_table_has_one_bound_for_holds_and_waits_and_is_taken_in_a_transfer() {
    let (mut node, mut first) = small_grantor(Origin::Everyone);
    let view = node.cluster.view.clone().expect("it has founded");
    let next = TokenRange { first: token(300), last: token(400) };
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        cx.standing.leased = true;
        for from in [cx.me, BOB] {
            first.on_report(from, Vec::new(), (Vec::new(), Vec::new()), true, cx);
        }
        let holds = (1..=2).map(long_hold).collect();
        first.on_report(ANN, Vec::new(), (holds, long_waits(11..=20)), true, cx);
        assert!(first.is_acting(), "it has room for two holds and one wait");
        let requests: Vec<_> = first.requests().collect();
        assert_eq!(requests.len(), 3);
        let not_here = std::mem::take(&mut cx.outbox);
        assert_eq!(sent_on(not_here), [14, 12].map(|number| (ANN, RequestId(number))));
        first.transfer((cx.me, Epoch(next.first)), None, cx);
        let parts = std::mem::take(&mut cx.outbox);
        let mut second = Grantor::new(service(), next, Origin::Predecessor(BOB), &view, cx);
        for (_, message) in parts {
            if let Message::Grantor(GrantorMessage::TableChunk {
                objects,
                holds,
                waits,
                last,
                ..
            }) = message
            {
                let table = (holds, waits);
                second.on_table_chunk(BOB, objects.into_vec(), table, (&view, last), cx);
            }
        }
        assert!(second.is_acting());
        assert!(second.requests().eq(requests));
    });
}
