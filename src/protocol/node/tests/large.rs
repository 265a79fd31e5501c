//! The cost of a step with very many holds: no more than with few.

use super::*;
use crate::protocol::visit_count::touched;

/// Held, and as many wait for one more lock and for others.
const HELD: usize = 50_000;

/// So many entries may one step look at, and one page of a status.
const FEW: usize = 40_000;
const PAGE: usize = 1_000;

fn command(request: u64, want: Want, wait: Wait) -> Command {
    Command::Lock {
        request: RequestId(request),
        service: service(),
        want,
        owner: OwnerId::default(),
        wait,
        lease: None,
        revocable: false,
        metadata: Metadata::default(),
    }
}

/// A member that holds [`HELD`] locks of its own grantor, with the number of the next request.
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
fn who_asks_from_outside_costs_a_short_look_and_hears_how_much_there_is() {
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
fn the_place_of_a_suspension_is_told_without_going_through_all_who_wait() {
    let (mut node, mut next) = large();
    let mut out = Vec::new();
    // A request waits for each of the locks.
    for name in names(HELD) {
        node.step(NOW, Input::Command(command(next, Want::Lock(name), Wait::Forever)), &mut out);
        next += 1;
    }
    let suspension = next;
    let mut command = command(suspension, Want::Suspension, Wait::Forever);
    if let Command::Lock { owner, .. } = &mut command {
        // The holds are of another owner.
        *owner = OwnerId(5);
    }
    node.step(NOW, Input::Command(command), &mut out);
    let (seen, touched) = seen(&mut node, suspension + 1, Query::Place(RequestId(suspension)));
    let QueryReply::Place { before, holds, .. } = seen else { panic!("it waits: {seen:?}") };
    assert!(before > 1_000 && before < HELD as u64, "{before} are counted");
    assert_eq!(holds, HELD as u64);
    assert!(touched < FEW, "{touched} looks");
}

#[test]
fn the_place_of_the_last_in_a_long_line_is_told_without_going_through_it() {
    let mut node = lone();
    let mut out = Vec::new();
    for request in 1..=HELD as u64 {
        node.step(NOW, Input::Command(command(request, want("x"), Wait::Forever)), &mut out);
    }
    let (seen, touched) = seen(&mut node, HELD as u64 + 1, Query::Place(RequestId(HELD as u64)));
    assert!(matches!(seen, QueryReply::Place { before: 1_000.., holds: 1, .. }), "{seen:?}");
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
    // No grantor is known, and one more member asks.
    let view = node.cluster.view.clone().expect("it has founded");
    let mut outbox = Vec::new();
    let touched = touched(|| {
        node.act(NOW, &mut outbox, |locks, turn| {
            let epoch = locks.grantors.values().next().expect("it grants").epoch();
            locks.client.on_not_grantor(&service(), epoch, RequestId(next + 9), None, turn);
            locks.client.on_view(&view, turn);
        });
    });
    most = most.max(touched);
    assert!(most < 2_000, "{most} looks");
}
