//! The time at which waiters learn their positions.

use super::short::NodePair;
use super::*;
use crate::protocol::message::{LockRequest, Query};

/// Delivers all messages without any time passing.
const ALL_HEARD: Duration = Duration::ZERO;

/// A grantor that holds a lock with request 1, and another member that waits for it with request 2.
fn one_waits() -> NodePair {
    let mut two = NodePair::new();
    for (at, request) in [(0, 1), (1, 2)] {
        ask(&mut two, at, request);
    }
    assert_eq!(queue(&two), 1);
    two
}

fn ask(two: &mut NodePair, at: usize, request: u64) {
    let (want, metadata, wait) = (want("a"), Metadata::default(), Wait::Forever);
    let (request, service, owner) = (RequestId(request), service(), OwnerId(request));
    two.step(
        at,
        Input::Command(Command::Lock {
            detects: false,
            keeps: false,
            follows: false,
            request,
            service,
            wait,
            lease: None,
            lock: LockRequest { want, owner, revocable: false, metadata },
        }),
    );
    two.pass(ALL_HEARD);
}

fn release(two: &mut NodePair, at: usize, request: u64) {
    two.step(at, Input::Command(Command::Release { request: RequestId(request) }));
}

/// The number of waiting requests at the grantor.
fn queue(two: &NodePair) -> usize {
    two.nodes[0].locks.grantors[&service()].load().expect("it acts").waits
}

/// The messages on their way to the second node.
fn said(two: &NodePair) -> Vec<&'static str> {
    let words = two.ways[1].iter().map(|input| match input {
        Input::Received { packet: packet @ Packet::Linked { .. }, .. } => packet.kind(),
        _ => "something else",
    });
    words.collect()
}

/// Advances to the time at which a position is due, and runs the grantor's timer.
fn come_to_it(two: &mut NodePair) {
    two.now = two.nodes[0].locks.positions_due().expect("a member is to be told");
    assert!(two.nodes[0].wake_by().is_some_and(|at| at <= two.now));
    two.step(0, Input::Timer);
}

#[test]
fn a_request_that_waits_for_long_is_told_its_position_once() {
    let mut two = one_waits();
    assert_eq!(two.nodes[1].locks.client.position_of(RequestId(2)), None);
    assert_eq!(two.nodes[0].sizes(two.now).positions, 1);
    come_to_it(&mut two);
    assert_eq!(said(&two), ["Queued"]);
    two.pass(ALL_HEARD);
    assert!(two.nodes[1].locks.client.position_of(RequestId(2)).is_some());
    assert_eq!(
        (two.nodes[0].locks.positions_due(), two.nodes[0].sizes(two.now).positions),
        (None, 0)
    );
    release(&mut two, 0, 1);
    assert_eq!(said(&two), ["Grant"]);
}

#[test]
fn a_request_that_is_granted_early_is_told_no_position() {
    let mut two = one_waits();
    release(&mut two, 0, 1);
    assert_eq!(said(&two), ["Grant"]);
    two.pass(ALL_HEARD);
    assert_eq!(two.nodes[0].locks.positions_due(), None, "no timer goes off for it");
}

#[test]
fn a_request_that_gives_up_early_is_told_no_position() {
    let mut two = one_waits();
    release(&mut two, 1, 2);
    two.pass(ALL_HEARD);
    assert_eq!(queue(&two), 0);
    come_to_it(&mut two);
    assert_eq!(said(&two), [""; 0]);
}

#[test]
fn a_querying_member_is_told_its_position_before_the_answer() {
    let mut two = one_waits();
    let (request, service) = (RequestId(3), service());
    let at = Query::Position(RequestId(2));
    two.step(1, Input::Command(Command::Query { request, service, at }));
    two.hear(0);
    assert_eq!(said(&two), ["Queued", "QueryReply"]);
}

/// A waiter that gave up and asks again has another position, and is told it.
#[test]
fn of_two_positions_the_valid_one_is_told() {
    let mut two = one_waits();
    release(&mut two, 1, 2);
    two.now = two.now + Duration::from_micros(1);
    ask(&mut two, 1, 3);
    come_to_it(&mut two);
    assert_eq!(said(&two), [""; 0]);
    come_to_it(&mut two);
    assert_eq!(said(&two), ["Queued"]);
}

/// The timer runs once for positions that no longer exist, and not for each of them.
#[test]
fn outdated_positions_are_forgotten_together() {
    let mut two = one_waits();
    for request in [3, 4] {
        two.now = two.now + Duration::from_micros(1);
        ask(&mut two, 1, request);
    }
    for request in [4, 3, 2] {
        release(&mut two, 1, request);
    }
    two.pass(ALL_HEARD);
    assert_eq!(two.nodes[0].locks.pending_positions.len(), 3);
    come_to_it(&mut two);
    assert_eq!((said(&two), two.nodes[0].locks.pending_positions.len()), (vec![], 0));
}

#[test]
fn the_grantors_own_member_knows_its_position_at_once() {
    let mut two = one_waits();
    ask(&mut two, 0, 3);
    assert!(two.nodes[0].locks.client.position_of(RequestId(3)).is_some());
    assert_eq!(two.nodes[0].locks.pending_positions.len(), 1, "that of the other");
}
