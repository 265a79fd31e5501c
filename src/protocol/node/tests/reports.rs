//! Reports that take several steps.

use super::*;
use crate::protocol::{ALL_PARTS, part_of};

const HELD: usize = 30;
const SLICE: u32 = 4;
const OLD: Epoch = Epoch(token(100));
pub(super) const NEW: Epoch = Epoch(token(1_000));

pub(super) fn act(
    node: &mut Node,
    role: impl FnOnce(&mut Locks, &mut StepContext),
) -> Vec<(ProcessId, Message)> {
    act_at(NOW, node, role)
}

/// Continues the unfinished work, when it is due.
fn go_on(node: &mut Node) -> Vec<(ProcessId, Message)> {
    let due = node.locks.deadline().max(NOW);
    act_at(due, node, Locks::go_on)
}

fn act_at(
    now: Time,
    node: &mut Node,
    role: impl FnOnce(&mut Locks, &mut StepContext),
) -> Vec<(ProcessId, Message)> {
    let outbox = node.cx(now, &mut Vec::new(), |locks, cx| {
        cx.standing.leased = true;
        role(locks, cx);
    });
    outbox.into()
}

/// A member that has locks of the grantor `ANN`, waits for one more, and has heard `Recover` of
/// `BOB`. Returns its messages since.
pub(super) fn reporting(by_part: bool) -> (Node, Vec<(ProcessId, Message)>) {
    reporting_in(u16::MAX, by_part)
}

/// Like [`reporting`], in a view of this version.
fn reporting_in(version: u16, by_part: bool) -> (Node, Vec<(ProcessId, Message)>) {
    let mut node = with_two_more();
    let view = node.cluster.view.as_deref().expect("it has founded").clone();
    node.cluster.view = Some(Arc::new(View { version, ..view }));
    node.cluster.config.limits.slice = SLICE;
    let said = act(&mut node, |locks, cx| {
        let client = &mut locks.client;
        client.on_grantor_is(&service(), ANN, OLD, cx);
        for (number, name) in (1..).zip(names(HELD)) {
            let call = lock_call(RequestId(number), Want::Lock(name));
            client.lock(call, Duration::ZERO, |_| false, cx);
            let token = token(200 + number as u32);
            client.on_grant(ANN, &service(), OLD, RequestId(number), token, cx);
        }
        let waits = lock_call(RequestId(50), want("other"));
        client.lock(waits, Duration::ZERO, |_| false, cx);
        cx.outbox.clear();
        let recover = ClientMessage::Recover { service: service(), epoch: NEW, by_part };
        locks.on_message(BOB, Message::Client(recover), cx);
    });
    (node, said)
}

/// The reported requests, and whether the report is complete.
fn reported(said: &[(ProcessId, Message)]) -> (Vec<u64>, bool) {
    let (mut requests, mut is_complete) = (Vec::new(), false);
    for (to, message) in said {
        if let Message::Grantor(GrantorMessage::Report { holds, waits, last, .. }) = message {
            assert!(*to == BOB && !is_complete);
            requests.extend(holds.iter().map(|hold| hold.request.0));
            requests.extend(waits.iter().map(|wait| wait.request.0));
            is_complete = *last;
        }
    }
    (requests, is_complete)
}

/// The requests for which the grantor is asked.
pub(super) fn asked(said: &[(ProcessId, Message)]) -> Vec<u64> {
    let asked = said.iter().filter_map(|(_, message)| match message {
        Message::Grantor(GrantorMessage::RequestLock { request, .. }) => Some(request.0),
        _ => None,
    });
    asked.collect()
}

#[test]
fn a_report_in_a_view_below_version_13_takes_one_slice_in_each_step_in_order() {
    let (mut node, said) = reporting_in(12, false);
    let (mut requests, mut is_complete) = reported(&said);
    assert_eq!((requests.len(), is_complete), (SLICE as usize, false));
    while !is_complete {
        assert!(node.locks.is_unfinished() && node.locks.deadline() <= NOW);
        let said = act(&mut node, Locks::go_on);
        let (more, last) = reported(&said);
        assert!(more.len() <= SLICE as usize && !more.is_empty());
        requests.extend(more);
        is_complete = last;
        assert!(asked(&said).is_empty(), "the report has the wait");
    }
    assert_eq!(requests, (1..=HELD as u64).chain([50]).collect::<Vec<_>>());
    assert!(!node.locks.is_unfinished());
}

#[test]
fn a_report_to_a_grantor_that_acts_pauses_after_each_slice() {
    let (mut node, said) = reporting(false);
    let (mut requests, mut is_complete) = reported(&said);
    let pause = node.view().expect("there is one").timing.pause();
    let mut now = NOW;
    while !is_complete {
        assert!(!pause.is_zero() && node.locks.deadline() == now + pause);
        assert!(act_at(now, &mut node, Locks::go_on).is_empty(), "not before the pause is over");
        now = now + pause;
        let (more, last) = reported(&act_at(now, &mut node, Locks::go_on));
        assert!(more.len() <= SLICE as usize && !more.is_empty());
        requests.extend(more);
        is_complete = last;
    }
    assert_eq!(requests, (1..=HELD as u64).chain([50]).collect::<Vec<_>>());
    assert!(!node.locks.is_unfinished());
}

#[test]
fn a_grantor_that_acts_is_asked_for_a_waiting_request_before_it_has_the_report() {
    let (mut node, said) = reporting(false);
    assert_eq!(asked(&said), [50]);
    let said = act(&mut node, |locks, cx| {
        locks.client.on_grant(BOB, &service(), NEW, RequestId(50), token(3_000), cx);
        locks.client.release(RequestId(50), cx);
    });
    assert!(matches!(
        &said[..],
        [(to, Message::Grantor(GrantorMessage::Release { request: RequestId(50), .. }))]
            if *to == BOB
    ));
    let mut requests = Vec::new();
    while node.locks.is_unfinished() {
        requests.extend(reported(&go_on(&mut node)).0);
    }
    assert_eq!(requests, (SLICE as u64 + 1..=HELD as u64).collect::<Vec<_>>());
}

#[test]
fn a_report_for_which_a_grantor_waits_goes_before_another() {
    let (mut node, _) = reporting(false);
    let other = ServiceName::new("zebra").expect("a good name");
    let said = act(&mut node, |locks, cx| {
        let client = &mut locks.client;
        client.on_grantor_is(&other, ANN, OLD, cx);
        for (number, name) in (101..).zip(names(HELD)) {
            let call = LockCall {
                service: other.clone(),
                ..lock_call(RequestId(number), Want::Lock(name))
            };
            client.lock(call, Duration::ZERO, |_| false, cx);
            let token = token(400 + number as u32);
            client.on_grant(ANN, &other, OLD, RequestId(number), token, cx);
        }
        cx.outbox.clear();
        let recover = ClientMessage::Recover { service: other.clone(), epoch: NEW, by_part: true };
        locks.on_message(BOB, Message::Client(recover), cx);
    });
    let (mut requests, mut is_complete) = reported(&said);
    while !is_complete {
        assert!(node.locks.deadline() <= NOW);
        let said = act(&mut node, |locks, cx| {
            locks.client.on_report_taken(&other, (BOB, NEW));
            locks.go_on(cx);
        });
        let (more, last) = reported(&said);
        requests.extend(more);
        is_complete = last;
    }
    requests.sort_unstable();
    assert_eq!(requests, (101..=100 + HELD as u64).collect::<Vec<_>>());
    assert!(node.locks.is_unfinished() && node.locks.deadline() > NOW);
}

#[test]
fn a_new_request_goes_out_beside_a_report_and_is_not_reported() {
    let (mut node, _) = reporting(false);
    let said = act(&mut node, |locks, cx| {
        let call = lock_call(RequestId(60), want("new"));
        locks.client.lock(call, Duration::ZERO, |_| false, cx);
        locks.client.release(RequestId(HELD as u64), cx);
    });
    assert_eq!(asked(&said), [60]);
    let mut requests = Vec::new();
    while node.locks.is_unfinished() {
        requests.extend(reported(&go_on(&mut node)).0);
    }
    assert_eq!(requests, (SLICE as u64 + 1..HELD as u64).chain([50]).collect::<Vec<_>>());
}

#[test]
fn a_report_ends_with_a_later_grantor_which_gets_its_own() {
    let (mut node, _) = reporting(false);
    let later = Epoch(token(2_000));
    let recover = ClientMessage::Recover { service: service(), epoch: later, by_part: false };
    let said = act(&mut node, |locks, cx| locks.on_message(ANN, Message::Client(recover), cx));
    let of_report = |(to, message): &(ProcessId, Message)| match message {
        Message::Grantor(GrantorMessage::Report { epoch, .. }) => Some((*to, *epoch)),
        _ => None,
    };
    assert_eq!(said.iter().filter_map(of_report).collect::<Vec<_>>(), [(ANN, later)]);
    let mut parts = 1;
    while node.locks.is_unfinished() {
        let said = go_on(&mut node);
        assert!(said.iter().filter_map(of_report).all(|to| to == (ANN, later)));
        parts += 1;
    }
    assert_eq!(parts, (HELD + 1).div_ceil(SLICE as usize));
}

#[test]
fn a_report_goes_on_when_the_grantor_refuses_a_request_meanwhile() {
    let (mut node, said) = reporting(false);
    let (mut requests, _) = reported(&said);
    act(&mut node, |locks, cx| {
        let new = lock_call(RequestId(60), want("new"));
        locks.client.lock(new, Duration::ZERO, |_| false, cx);
    });
    let refused = ClientMessage::NotGrantor {
        service: service(),
        epoch: NEW,
        request: RequestId(60),
        instead: None,
    };
    act(&mut node, |locks, cx| locks.on_message(BOB, refused.into(), cx));
    assert_eq!(node.locks.client.grantor(&service()), (None, Some(NEW)));
    while node.locks.is_unfinished() {
        requests.extend(reported(&go_on(&mut node)).0);
    }
    assert_eq!(requests, (1..=HELD as u64).chain([50]).collect::<Vec<_>>());
    // The wait is asked for again when the grantor acts.
    let queued = ClientMessage::Queued {
        service: service(),
        epoch: NEW,
        request: RequestId(60),
        ticket: Ticket { epoch: NEW, number: 1 },
    };
    let said = act(&mut node, |locks, cx| locks.on_message(BOB, queued.into(), cx));
    assert_eq!((asked(&said), node.locks.client.grantor(&service()).0), (vec![50], Some(BOB)));
}

#[test]
fn a_report_ends_with_the_news_of_a_later_grantor_and_the_earlier_one_hears_of_it() {
    let (mut node, _) = reporting(false);
    let later = Epoch(token(2_000));
    act(&mut node, |locks, cx| locks.client.on_grantor_is(&service(), ANN, later, cx));
    let said = go_on(&mut node);
    let deposed = ClientMessage::Deposed { service: service(), by: Some(ANN), epoch: later };
    assert!(said.contains(&(BOB, deposed.into())), "{said:?}");
    assert!(reported(&said).0.is_empty() && !node.locks.is_unfinished());
}

#[test]
fn a_report_ends_when_its_grantor_has_left() {
    let (mut node, _) = reporting(false);
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    view.members.retain(|member| member.info.process != BOB);
    act(&mut node, |locks, cx| locks.client.on_view(&view, cx));
    assert!(!node.locks.is_unfinished());
}

/// The requests of each chunk of a report by parts, and the number of complete parts.
fn chunks(said: &[(ProcessId, Message)]) -> Vec<(Vec<u64>, u16, bool)> {
    let chunk = |message: &Message| match message {
        Message::Grantor(GrantorMessage::Report { holds, waits, last, parts, .. }) => {
            let waits = waits.iter().map(|wait| wait.request.0);
            let requests = waits.chain(holds.iter().map(|hold| hold.request.0)).collect();
            Some((requests, parts.expect("it is by parts"), *last))
        }
        _ => None,
    };
    said.iter().filter_map(|(_, message)| chunk(message)).collect()
}

/// Lets the grantor take a chunk, and the member continue.
fn take_one(node: &mut Node) -> Vec<(ProcessId, Message)> {
    let taken = ClientMessage::ReportTaken { service: service(), epoch: NEW };
    let mut said = act(node, |locks, cx| locks.on_message(BOB, taken.into(), cx));
    while node.locks.is_unfinished() {
        said.extend(act(node, Locks::go_on));
    }
    said
}

#[test]
fn a_report_by_parts_has_the_waits_first_and_then_the_holds_in_the_order_of_their_parts() {
    let (mut node, said) = reporting(true);
    let mut told = chunks(&said);
    while !told.last().is_some_and(|(.., is_last)| *is_last) {
        told.extend(chunks(&take_one(&mut node)));
    }
    assert_eq!(told[0].0[0], 50);
    let part = |request: u64| part_of(&names(HELD)[request as usize - 1]);
    let mut complete = 0;
    let mut all = Vec::new();
    for (requests, parts, is_last) in told {
        assert!(requests.len() <= SLICE as usize);
        let holds: Vec<u64> = requests.into_iter().filter(|request| *request != 50).collect();
        assert!(holds.iter().all(|request| part(*request) >= complete), "its part was complete");
        assert!(parts >= complete && (parts == ALL_PARTS) == is_last);
        complete = parts;
        all.extend(holds);
    }
    assert!(all.is_sorted_by_key(|request| part(*request)));
    all.sort_unstable();
    assert_eq!(all, (1..=HELD as u64).collect::<Vec<_>>());
}

#[test]
fn a_report_by_parts_waits_for_the_grantor_after_a_few_chunks() {
    let (mut node, mut said) = reporting(true);
    while node.locks.is_unfinished() {
        said.extend(go_on(&mut node));
    }
    assert_eq!(chunks(&said).len(), 4);
    assert_eq!(chunks(&take_one(&mut node)).len(), 1);
    assert!(!node.locks.is_unfinished());
    // A process that does not get the report says nothing about it.
    let taken = ClientMessage::ReportTaken { service: service(), epoch: NEW };
    act(&mut node, |locks, cx| locks.on_message(ANN, taken.into(), cx));
    assert!(!node.locks.is_unfinished());
}

/// Its release goes out at once, and the request is not reported later.
#[test]
fn a_hold_that_ends_while_it_is_sorted_is_not_reported() {
    let (mut node, said) = reporting(true);
    let mut told = chunks(&said);
    let last = (1..=HELD as u64).max_by_key(|n| part_of(&names(HELD)[*n as usize - 1]));
    let last = last.expect("it has holds");
    act(&mut node, |locks, cx| locks.client.release(RequestId(last), cx));
    while !told.last().is_some_and(|(.., is_last)| *is_last) {
        told.extend(chunks(&take_one(&mut node)));
    }
    let count = told.iter().flat_map(|(requests, ..)| requests).filter(|one| **one == last).count();
    assert_eq!((count, told.iter().map(|(requests, ..)| requests.len()).sum()), (0, HELD));
}
