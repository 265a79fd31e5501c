//! The cost of a step with very many holds: it must be no higher than with few.

use super::*;
use crate::protocol::locks::grantor::ReceivedRequest;
use crate::protocol::message::{LockRequest, WaitReport};
use crate::protocol::visit_count::touched;

/// The number of holds. The same number of requests waits for one more lock, and for others.
const HELD: usize = 50_000;

/// The most entries that one step, or one page of a status, may visit.
const FEW: usize = 40_000;
const PAGE: usize = 1_000;

fn command(request: u64, want: Want, wait: Wait) -> Command {
    command_of(OwnerId::default(), request, want, wait)
}

fn command_of(owner: OwnerId, request: u64, want: Want, wait: Wait) -> Command {
    Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request: RequestId(request),
        service: service(),
        wait,
        lease: None,
        lock: LockRequest { want, owner, revocable: false, metadata: Metadata::default() },
    }
}

/// A member that holds [`HELD`] locks of its own grantor, and the number of the next request.
fn large() -> (Node, u64) {
    let mut node = lone();
    let mut out = Vec::new();
    for (number, name) in names(HELD).into_iter().enumerate() {
        let request = number as u64 + 1;
        node.step(NOW, Input::Command(command(request, Want::Lock(name), Wait::Forever)), &mut out);
    }
    let held = out
        .iter()
        .filter(|output| matches!(output, Output::Answer { outcome: Outcome::Granted { .. }, .. }));
    assert_eq!(held.count(), HELD);
    (node, HELD as u64 + 1)
}

/// The answer to a query, and its cost.
fn seen(node: &mut Node, request: u64, at: Query) -> (QueryReply, usize) {
    let mut out = Vec::new();
    let command = Command::Query { request: RequestId(request), service: service(), at };
    let touched = touched(|| node.step(NOW, Input::Command(command), &mut out));
    let seen = out.into_iter().find_map(|output| match output {
        Output::Answer { outcome: Outcome::QueryReply(seen), .. } => Some(seen),
        _ => None,
    });
    (seen.expect("it grants the service itself"), touched)
}

#[test]
fn a_page_of_a_status_costs_what_it_tells_and_all_pages_tell_all() {
    let (node, _) = large();
    let whole = node.status(NOW);
    assert_eq!((whole.services[0].held_here, whole.services[0].locks.len()), (HELD, HELD));
    let mut told = node.status_without_services(NOW);
    let mut mark = None;
    loop {
        let mut next = None;
        let mut page = Vec::new();
        let touched = touched(|| (page, next) = node.status_page(NOW, mark.as_ref(), PAGE));
        assert!(touched <= 8 * PAGE, "{touched} looks for a page of {PAGE}");
        assert!(page.iter().map(|service| 1 + service.locks.len()).sum::<usize>() <= PAGE);
        told.go_on(page);
        mark = next;
        if mark.is_none() {
            break;
        }
    }
    assert_eq!(told, whole);
}

#[test]
fn pages_of_many_services_tell_each_once() {
    let mut node = lone();
    let mut out = Vec::new();
    for number in 0..50 {
        for (lock, name) in names(number % 4).into_iter().enumerate() {
            let service = ServiceName::new(&format!("s{number}")).expect("a good name");
            let mut command =
                command(number as u64 * 10 + lock as u64 + 1, Want::Lock(name), Wait::Forever);
            let Command::Lock { service: of, .. } = &mut command else { continue };
            *of = service;
            node.step(NOW, Input::Command(command), &mut out);
        }
    }
    let whole = node.status(NOW);
    assert!(whole.services.iter().map(|service| service.locks.len()).sum::<usize>() > 50);
    for most in [2, 3, 4, 5, 7, 64, 1_000] {
        let mut told = node.status_without_services(NOW);
        let mut mark = None;
        loop {
            let (page, next) = node.status_page(NOW, mark.as_ref(), most);
            assert!(page.iter().map(|service| 1 + service.locks.len()).sum::<usize>() <= most);
            told.go_on(page);
            mark = next;
            if mark.is_none() {
                break;
            }
        }
        assert_eq!(told, whole, "in pages of {most}");
    }
    let cut = node.status_cut(NOW, 5);
    assert_eq!((cut.services.len(), cut.more_services), (5, whole.services.len() - 5));
}

#[test]
fn a_status_question_from_outside_costs_little_and_is_answered_with_the_totals() {
    let (node, _) = large();
    let mut cut = None;
    let touched = touched(|| cut = Some(node.status_cut(NOW, 256)));
    let service = cut.expect("just made").services.remove(0);
    assert_eq!(
        (service.locks.len(), service.more_locks, service.held_here),
        (256, HELD - 256, HELD)
    );
    assert!(touched < FEW / 4, "{touched} looks");
}

#[test]
fn the_position_of_a_suspension_is_found_without_a_walk_through_all_waiters() {
    let (mut node, mut next) = large();
    let mut out = Vec::new();
    // A request waits for each of the locks.
    for name in names(HELD) {
        node.step(NOW, Input::Command(command(next, Want::Lock(name), Wait::Forever)), &mut out);
        next += 1;
    }
    let suspension = next;
    let mut command = command(suspension, Want::Suspension, Wait::Forever);
    if let Command::Lock { lock: LockRequest { owner, .. }, .. } = &mut command {
        // The holds belong to another owner.
        *owner = OwnerId(5);
    }
    node.step(NOW, Input::Command(command), &mut out);
    let (seen, touched) = seen(&mut node, suspension + 1, Query::Position(RequestId(suspension)));
    let QueryReply::Position { before, holds, .. } = seen else { panic!("it waits: {seen:?}") };
    assert!(before > 1_000 && before < HELD as u64, "{before} are counted");
    assert_eq!(holds, HELD as u64);
    assert!(touched < FEW, "{touched} looks");
}

#[test]
fn the_last_position_of_a_long_queue_is_found_without_a_walk_through_it() {
    let mut node = lone();
    let mut out = Vec::new();
    for request in 1..=HELD as u64 {
        node.step(NOW, Input::Command(command(request, want("x"), Wait::Forever)), &mut out);
    }
    let (seen, touched) = seen(&mut node, HELD as u64 + 1, Query::Position(RequestId(HELD as u64)));
    assert!(matches!(seen, QueryReply::Position { before: 1_000.., holds: 1, .. }), "{seen:?}");
    assert!(touched < FEW, "{touched} looks");
}

#[test]
fn a_step_of_a_member_that_holds_much_looks_at_little() {
    let (mut node, next) = large();
    let mut out = Vec::new();
    let name = || LockName::new(b"another").expect("a good name");
    let mut most = 0;
    let mut step = |node: &mut Node, input: Input| {
        let touched = touched(|| node.step(NOW, input, &mut out));
        most = most.max(touched);
    };
    step(&mut node, Input::Command(command(next, Want::Lock(name()), Wait::Forever)));
    step(&mut node, Input::Command(command(next + 1, Want::Lock(name()), Wait::Try)));
    step(&mut node, Input::Command(command(next + 2, Want::Share(name()), Wait::Forever)));
    step(&mut node, Input::Command(Command::Release { request: RequestId(next) }));
    step(
        &mut node,
        Input::Command(Command::Query {
            request: RequestId(next + 3),
            service: service(),
            at: Query::Held(None),
        }),
    );
    step(
        &mut node,
        Input::Command(Command::Query {
            request: RequestId(next + 4),
            service: service(),
            at: Query::Suspension,
        }),
    );
    step(&mut node, Input::Timer);
    // The grantor is not known, and one more member asks.
    let view = node.cluster.view.clone().expect("it has founded");
    let mut outbox = Vec::new();
    let touched = touched(|| {
        node.act(NOW, &mut outbox, |locks, cx| {
            let epoch = locks.grantors.values().next().expect("it grants").epoch();
            locks.client.on_not_grantor(&service(), epoch, RequestId(next + 9), None, cx);
            locks.client.on_view(&view, cx);
        });
    });
    most = most.max(touched);
    assert!(most < 2_000, "{most} looks");
}

/// A lock client's request for a lock that another member grants.
fn call(number: u64, name: &LockName) -> LockCall {
    lock_call(RequestId(number), Want::Lock(name.clone()))
}

const EPOCHS: [Epoch; 2] = [Epoch(token(100)), Epoch(token(200))];

/// A member whose requests all wait at the grantor Ann.
fn waiting(count: usize) -> Node {
    let mut node = with_two_more();
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        locks.client.on_grantor_is(&service(), ANN, EPOCHS[0], cx);
        for (number, name) in names(count).iter().enumerate() {
            locks.client.lock(call(number as u64 + 1, name), Duration::ZERO, |_| false, cx);
        }
    });
    node
}

/// A grantor that ends refuses each request separately, but all are sent again after the first
/// refusal.
#[test]
fn a_refusal_of_each_of_many_requests_looks_at_that_request() {
    let mut node = waiting(HELD);
    let mut out = Vec::new();
    let mut refuse = |node: &mut Node, number: u64| {
        let mut sent = 0;
        let touched = touched(|| {
            let outbox = node.cx(NOW, &mut out, |locks, cx| {
                let instead = Some((BOB, EPOCHS[1]));
                locks.client.on_not_grantor(&service(), EPOCHS[0], RequestId(number), instead, cx);
            });
            sent = outbox.len();
        });
        (sent, touched)
    };
    assert_eq!(refuse(&mut node, 1).0, HELD, "each is asked for anew");
    for number in 2..100 {
        let (sent, touched) = refuse(&mut node, number);
        assert!(sent == 0 && touched < 10, "{touched} looks, {sent} messages");
    }
    // The elder occasionally names the same grantor again.
    let touched = touched(|| {
        node.cx(NOW, &mut out, |locks, cx| {
            locks.client.on_grantor_is(&service(), BOB, EPOCHS[1], cx)
        });
    });
    assert!(touched < 10, "{touched} looks");
}

/// A revocation names the request of the hold, so its member need not search.
#[test]
fn a_revocation_looks_at_the_hold_that_it_names() {
    let (mut node, next) = large();
    let (_, me, last, of_last) = node.held(&service()).last().expect("it holds much");
    let mut ask = |hold: RequestId, token: Token| {
        let request = RequestId(next);
        let demand = crate::protocol::message::RevocationDemand::Ask(Metadata::default());
        let message = Message::Client(ClientMessage::RequestRevocation {
            service: service(),
            request,
            hold,
            token,
            demand,
        });
        let mut out = Vec::new();
        let touched = touched(|| node.on_message(NOW, me, message, &mut out));
        assert!(touched < 10, "{touched} looks");
    };
    ask(last, of_last);
    ask(last, token(1));
    ask(RequestId(next), of_last);
}

/// A request as it arrives at a grantor.
fn asked(from: ProcessId, number: u64, want: Want) -> ReceivedRequest {
    let (request, owner, metadata) = (RequestId(number), OwnerId::default(), Metadata::default());
    ReceivedRequest {
        keep: 0,
        from,
        request,
        only_if_free: false,
        lock: LockRequest { want, owner, revocable: false, metadata },
    }
}

/// A grantor that acts in a view with Ann and Bob, and its member.
fn grantor(origin: Origin) -> (Node, Grantor) {
    let mut node = with_two_more();
    let view = node.cluster.view.clone().expect("it has founded");
    let range = TokenRange { first: token(100), last: Token::new(Slot(9), 0) };
    let mut grantor = None;
    node.cx(NOW, &mut Vec::new(), |_, cx| {
        grantor = Some(Grantor::new(service(), range, origin, &view, cx))
    });
    (node, grantor.expect("just made"))
}

/// Lets a grantor act while the lease runs. Returns its messages, and the number of visited
/// entries.
fn leased(
    node: &mut Node,
    act: impl FnOnce(&mut StepContext),
) -> (VecDeque<(ProcessId, Message)>, usize) {
    let mut outbox = VecDeque::new();
    let touched = touched(|| {
        outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
            cx.standing.leased = true;
            act(cx);
        });
    });
    (outbox, touched)
}

#[test]
fn a_grantor_that_ends_tells_each_member_without_a_look_at_all_holds() {
    let (mut node, mut grantor) = grantor(Origin::Free);
    leased(&mut node, |cx| {
        for (number, name) in names(HELD).into_iter().enumerate() {
            grantor.on_request_lock(asked(ANN, number as u64 + 1, Want::Lock(name)), cx);
        }
        grantor.on_request_lock(asked(BOB, 1, want("n1")), cx);
        grantor.on_request_lock(asked(BOB, 2, want("n2")), cx);
    });
    let (outbox, touched) = leased(&mut node, |cx| drop(grantor.close(None, cx)));
    let epoch = Epoch(token(100));
    let not_here = Message::Client(ClientMessage::NotGrantor {
        service: service(),
        epoch,
        request: RequestId(2),
        instead: None,
    });
    assert_eq!(outbox, [(BOB, not_here)]);
    assert!(touched < 10, "{touched} looks");
}

/// The revalidation of a transferred table whose requests wait for a suspension. Each part of a
/// report ends the requests that it leaves out, and does not visit those of earlier parts again.
#[test]
fn each_part_of_a_report_is_compared_with_its_part_of_the_table() {
    const MANY: u64 = 10_000;
    let (mut node, mut grantor) = grantor(Origin::Predecessor(BOB));
    let view = node.cluster.view.clone().expect("it has founded");
    let waits = |request: u64| {
        let want = if request == 1 { Want::Suspension } else { want("x") };
        let ticket = Some(Ticket { epoch: Epoch(token(1)), number: request });
        let (request, owner, metadata) =
            (RequestId(request), OwnerId::default(), Metadata::default());
        WaitReport {
            request,
            ticket,
            lock: LockRequest { want, owner, revocable: false, metadata },
        }
    };
    leased(&mut node, |cx| {
        let all = (1..=MANY).map(|request| (ANN, waits(request))).collect();
        grantor.on_table_chunk(
            BOB,
            Vec::new(),
            (vec![(BOB, hold("x", 1))], all),
            (&view, true),
            cx,
        );
    });
    // Every tenth request has ended.
    let reported: Vec<WaitReport> =
        (1..=MANY).filter(|request| request % 10 != 0).map(waits).collect();
    let parts = reported.chunks(90).map(<[_]>::to_vec).collect::<Vec<_>>();
    let mut most = 0;
    for (part, waits) in parts.iter().enumerate() {
        let last = part + 1 == parts.len();
        let report = (Vec::new(), waits.clone());
        let (_, touched) =
            leased(&mut node, |cx| grantor.on_report(ANN, Vec::new(), report, last, cx));
        most = most.max(touched);
    }
    assert!(most < 1_000, "{most} looks for a part of 90");
    assert_eq!(grantor.load().expect("it acts").waits, reported.len());
}

/// The most entries that one step may visit while it does a slice of some work.
const SLICE: usize = 20 * crate::protocol::Limits::DEFAULT.slice as usize;

/// Runs the timer until nothing is due. Returns the number of steps, and the most entries that one
/// step visited.
fn finish(node: &mut Node, now: Time, out: &mut Vec<Output>) -> (usize, usize) {
    let (mut steps, mut most) = (0, 0);
    while node.deadline().is_some_and(|at| at <= now) {
        most = most.max(touched(|| node.step(now, Input::Timer, out)));
        steps += 1;
        assert!(steps < HELD, "it comes to no end");
    }
    (steps, most)
}

/// The requests that waited for a suspension are all granted, in several steps and in their order.
#[test]
fn a_suspension_that_ends_lets_no_step_grant_all_that_waits() {
    let mut node = lone();
    let (mut out, names) = (Vec::new(), names(HELD));
    node.step(NOW, Input::Command(command(1, Want::Suspension, Wait::Forever)), &mut out);
    for (number, name) in names.iter().enumerate() {
        let waits =
            command_of(OwnerId(5), number as u64 + 2, Want::Lock(name.clone()), Wait::Forever);
        node.step(NOW, Input::Command(waits), &mut out);
    }
    out.clear();
    let released = Input::Command(Command::Release { request: RequestId(1) });
    let touched = touched(|| node.step(NOW, released, &mut out));
    let granted = |out: &[Output]| {
        let tokens = out.iter().filter_map(|output| match output {
            Output::Answer { request, outcome: Outcome::Granted { token, .. } } => {
                Some((*token, request.0))
            }
            _ => None,
        });
        tokens.collect::<Vec<_>>()
    };
    assert!(!granted(&out).is_empty() && granted(&out).len() < HELD / 10);
    assert!(touched < SLICE, "{touched} looks");
    // A free lock is granted at once, but not before an earlier request for the same lock.
    let late = HELD as u64 + 2;
    for (request, name) in [(late, &b"free"[..]), (late + 1, names[HELD - 1].as_bytes())] {
        let name = LockName::new(name).expect("a good name");
        node.step(NOW, Input::Command(command(request, Want::Lock(name), Wait::Forever)), &mut out);
    }
    assert!(granted(&out).iter().any(|(_, request)| *request == late));
    let (steps, most) = finish(&mut node, NOW, &mut out);
    assert!(steps >= HELD / 512 - 2 && most < SLICE, "{steps} steps, {most} looks");
    let mut all = granted(&out);
    all.retain(|(_, request)| *request < late);
    all.sort();
    assert!(all.iter().map(|(_, request)| *request).eq(2..late), "each is granted, in its order");
    assert_eq!(node.granted(RequestId(late + 1)), None);
    assert!(
        node.deadline().is_none_or(|at| at > NOW)
            && node.offer(NOW, (&service(), &names[0]), false).is_none()
    );
}

#[test]
fn the_requests_of_a_departed_member_end_by_and_by() {
    let (mut node, mut grantor) = grantor(Origin::Free);
    let view = node.cluster.view.clone().expect("it has founded");
    let names = names(HELD);
    leased(&mut node, |cx| {
        for (number, name) in names.iter().enumerate() {
            grantor.on_request_lock(asked(ANN, number as u64 + 1, Want::Lock(name.clone())), cx);
        }
        grantor.on_request_lock(
            asked(BOB, 1, want(std::str::from_utf8(names[HELD - 1].as_bytes()).expect("text"))),
            cx,
        );
    });
    let (said, mut most) = leased(&mut node, |cx| grantor.on_view(&view, &[ANN], &[], cx));
    assert!(said.is_empty(), "Ann's last lock has not ended");
    let mut steps = 0;
    while grantor.requests().any(|(process, ..)| process == ANN) {
        let mut is_unfinished = false;
        let (_, touched) = leased(&mut node, |cx| {
            grantor.go_on(cx);
            is_unfinished = !cx.unfinished.is_empty();
        });
        (steps, most) = (steps + 1, most.max(touched));
        assert!(is_unfinished || grantor.load().expect("it acts").holds == 1);
    }
    assert!(steps >= HELD / 512 - 1 && most < SLICE, "{steps} steps, {most} looks");
    assert_eq!(grantor.load().expect("it acts").holds, 1, "Bob has it now");
}

/// The positions of a recovered table are due all at once.
#[test]
fn very_many_positions_are_told_by_and_by_and_a_query_is_about_one() {
    let mut node = with_two_more();
    let view = node.cluster.view.clone().expect("it has founded");
    let range = TokenRange { first: token(100), last: Token::new(Slot(9), 0) };
    let mut out = Vec::new();
    node.act(NOW, &mut out, |locks, cx| {
        let mut grantor = Grantor::new(service(), range, Origin::Free, &view, cx);
        for number in 0..HELD as u64 {
            grantor.on_request_lock(asked(ANN, number, want("x")), cx);
        }
        locks.grantors.insert(service(), grantor);
    });
    assert_eq!(node.locks.pending_positions.len(), HELD - 1, "one is granted");
    let mut told = Vec::new();
    let at = Query::Position(RequestId(7));
    let touched_by_query = touched(|| told = node.locks.take_positions_of(ANN, &service(), &at));
    assert!(
        matches!(told[..], [Message::Client(ClientMessage::Queued { request: RequestId(7), .. })]),
        "{told:?}"
    );
    assert!(touched_by_query < 10, "{touched_by_query} looks");
    assert_eq!(node.locks.take_positions_of(BOB, &service(), &at), []);
    let (now, mut told) = (NOW + Duration::from_secs(1), 0);
    while node.locks.positions_due().is_some() {
        let mut due = Vec::new();
        let touched = touched(|| due = node.locks.take_positions_due(now, 512));
        assert!(touched < SLICE && due.len() <= 512, "{touched} looks, {} told", due.len());
        told += due.len();
    }
    assert_eq!(told, HELD - 1);
}

#[test]
fn very_many_limits_that_are_reached_at_once_are_told_by_and_by() {
    let mut node = waiting(0);
    let mut out = Vec::new();
    node.cx(NOW, &mut out, |locks, cx| {
        for number in 1..=HELD as u64 {
            let wait = Wait::AtMost(Duration::from_millis(1));
            let waits =
                LockCall { wait, ..call(number, &LockName::new(b"x").expect("a good name")) };
            locks.client.lock(waits, Duration::ZERO, |_| false, cx);
        }
    });
    let (now, mut ended) = (NOW + Duration::from_secs(1), 0);
    while node.locks.client.deadline().is_some() {
        out.clear();
        let touched =
            touched(|| drop(node.cx(now, &mut out, |locks, cx| locks.client.on_timer(cx))));
        assert!(touched < SLICE && out.len() <= 512, "{touched} looks, {} answers", out.len());
        ended += out.len();
    }
    assert_eq!(ended, HELD);
}

/// Pending calls of other kinds are not visited.
#[test]
fn a_call_of_one_kind_costs_no_look_at_those_of_another() {
    let mut node = waiting(1);
    let (view, mut out) = (node.cluster.view.clone().expect("it has founded"), Vec::new());
    let mut next = 10;
    let mut number = || {
        next += 1;
        RequestId(next)
    };
    node.cx(NOW, &mut out, |locks, cx| {
        for _ in 0..HELD {
            locks.client.query(
                (number(), service()),
                Query::Suspension,
                Duration::from_secs(9),
                |_| false,
                cx,
            );
        }
    });
    let mut act = |act: &mut dyn FnMut(&mut LockClient, &mut StepContext)| {
        let touched = touched(|| {
            node.cx(NOW, &mut out, |locks, cx| {
                cx.standing.leased = true;
                act(&mut locks.client, cx);
            });
        });
        assert!(touched < 10, "{touched} looks");
    };
    let bid = number();
    act(&mut |client, cx| client.bid((bid, service()), (Wait::Forever, Duration::ZERO), false, cx));
    act(&mut |client, cx| client.on_won(&service(), cx));
    act(&mut |client, cx| {
        client.on_grant(ANN, &service(), EPOCHS[0], RequestId(1), token(150), cx)
    });
    act(&mut |client, cx| {
        let share = Want::Share(LockName::new(b"n0").expect("a good name"));
        client.reduce(RequestId(1), share, cx);
    });
    let upgrade = number();
    act(&mut |client, cx| client.upgrade(upgrade, RequestId(1), Duration::from_secs(1), cx));
    act(&mut |client, cx| client.release(upgrade, cx));
    act(&mut |client, cx| client.on_view(&view, cx));
    act(&mut |client, cx| client.on_suspended(cx));
}

/// The last epoch that an elder can deal in the view. Its elder, which is this member itself, names
/// an earlier one.
fn last_epoch(node: &Node) -> Epoch {
    let view = node.cluster.view.as_ref().expect("it has founded");
    Epoch(Token::new(Slot(view.end_slot().0 - 1), Slot::TOKENS as u32 - 1))
}

/// Each release of a request that waits for a grantor's naming visits only that request. Each view
/// of a recovering grantor visits only the members that left.
#[test]
fn requests_that_wait_for_a_grantor_to_act_are_found_by_request_and_member() {
    let mut node = with_two_more();
    let mut out = Vec::new();
    let epoch = last_epoch(&node);
    for request in (1..=10_000).map(RequestId) {
        let (want, owner, metadata) = (want("x"), OwnerId::default(), Metadata::default());
        let (only_if_free, revocable) = (false, false);
        let asks = Message::Grantor(GrantorMessage::RequestLock {
            service: service(),
            epoch,
            request,
            only_if_free,
            keep: 0,
            lock: LockRequest { want, owner, revocable, metadata },
        });
        node.on_message(NOW, ANN, asks, &mut out);
    }
    assert_eq!(node.sizes(NOW).early, 10_000);
    for request in (1..100).map(RequestId) {
        let release = Message::Grantor(GrantorMessage::Release { service: service(), request });
        let touched = touched(|| node.on_message(NOW, ANN, release, &mut out));
        assert!(touched < 10, "{touched} looks");
    }
    assert_eq!(node.sizes(NOW).early, 9_901);

    let (mut node, mut grantor) = grantor(Origin::Everyone);
    let view = node.cluster.view.clone().expect("it has founded");
    leased(&mut node, |cx| {
        for part in 0..100 {
            let waits = (0..100).map(|n| WaitReport {
                request: RequestId(part * 100 + n),
                ticket: None,
                lock: LockRequest {
                    want: want("x"),
                    owner: OwnerId::default(),
                    revocable: false,
                    metadata: Metadata::default(),
                },
            });
            grantor.on_report(ANN, Vec::new(), (Vec::new(), waits.collect()), false, cx);
        }
        (0..10_000).for_each(|number| grantor.on_request_lock(asked(BOB, number, want("x")), cx));
    });
    let before = grantor.size();
    let (_, touched) = leased(&mut node, |cx| grantor.on_view(&view, &[], &[], cx));
    assert!(touched < 10, "{touched} looks");
    let (_, touched) = leased(&mut node, |cx| grantor.on_view(&view, &[ProcessId(77)], &[], cx));
    assert!(
        touched < 200 && grantor.size() == before,
        "{touched} looks, one for each part of a report"
    );
    let mut without = View::clone(&view);
    without.members.retain(|member| member.info.process != BOB);
    leased(&mut node, |cx| grantor.on_view(&without, &[BOB], &[], cx));
    assert_eq!(
        grantor.size(),
        before - 10_001,
        "Bob's requests are gone, and no grantor waits for them"
    );
}

/// Requests that wait for a grantor to act are also bounded by their bytes, and not only by their
/// number.
#[test]
fn long_requests_are_told_to_ask_again_before_there_are_very_many() {
    let mut node = with_two_more();
    node.cluster.config.limits.early = 4;
    let mut out = Vec::new();
    let epoch = last_epoch(&node);
    for request in (1..=3).map(RequestId) {
        let metadata = Metadata::new(&[7; 2_500]).expect("not too long");
        let asks = Message::Grantor(GrantorMessage::RequestLock {
            keep: 0,
            service: service(),
            epoch,
            request,
            only_if_free: false,
            lock: LockRequest {
                want: want("x"),
                owner: OwnerId::default(),
                revocable: false,
                metadata,
            },
        });
        node.on_message(NOW, ANN, asks, &mut out);
    }
    assert_eq!(node.sizes(NOW).early, 1, "two of them have more than 4 KiB");
}

/// Services that are handed over or destroyed: each step asks which of them are done.
#[test]
fn a_step_looks_only_at_services_that_have_come_to_an_end() {
    const MANY: usize = 3_000;
    let mut node = with_two_more();
    let view = node.cluster.view.clone().expect("it has founded");
    let named = |number: usize| ServiceName::new(&format!("s{number:05}")).expect("a good name");
    let mut out = Vec::new();
    let retry = view.timing.retry;
    node.cx(NOW, &mut out, |locks, cx| {
        cx.standing.leased = true;
        for service in (0..MANY).map(named) {
            let range = TokenRange { first: token(100), last: token(200) };
            let mut grantor = Grantor::new(service.clone(), range, Origin::Free, &view, cx);
            grantor.on_request_lock(asked(ANN, 1, want("x")), cx);
            locks.grantors.insert(service.clone(), grantor);
            locks.depart_service(&service, cx);
            locks.client.destroy(RequestId(1), service, Duration::from_secs(9), cx);
        }
    });
    let idle = |node: &mut Node, now| {
        let mut due = 0;
        let touched = touched(|| {
            assert!(node.locks.deadline() > now);
            due = node.locks.due_to_depart(now, 512).len();
            assert_eq!(node.locks.confirmed_destructions().len(), 0);
            node.locks.forget_handed_over(Some(&view), &node.links);
        });
        assert!(touched < 10 && due == 0, "{touched} looks, {due} due");
    };
    idle(&mut node, NOW);
    assert_eq!(
        node.locks.due_to_depart(NOW + retry, 512).len(),
        512,
        "as many as one step proposes again"
    );
    // Ann takes over all of them, and the tables are on their way.
    for service in (0..MANY).map(named) {
        node.on_message(
            NOW,
            ANN,
            Message::Grantor(GrantorMessage::RequestTable {
                service,
                epoch: Epoch(token(300)),
                copy: None,
            }),
            &mut out,
        );
    }
    let sent = node.links.sent(ANN);
    node.locks.forget_handed_over(Some(&view), &node.links);
    assert!(!node.locks.has_handed_over());
    idle(&mut node, NOW);
    let (cluster, step) = node.parts(&mut out);
    step.links.on_ack(NOW, &cluster.config.me, &view, ANN, sent, false, step.out);
    node.locks.forget_handed_over(Some(&view), &node.links);
    assert!(node.locks.has_handed_over());
}
