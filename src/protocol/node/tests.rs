//! What no World comes to: a lock that was granted twice, and more requests than anybody makes.

use super::super::event::{Input, Wait};
use super::super::id::{Metadata, Owner, Want};
use super::super::message::HoldReport;
use super::super::view::Member;
use super::*;
use std::time::Duration;

mod revocation;

const NOW: Time = Time::from_nanos(10_000_000_000);
const ANN: ProcessId = ProcessId(1);
const BOB: ProcessId = ProcessId(2);

/// A member that has founded a cluster of its own.
fn lone() -> Node {
    let me = MemberInfo { process: ProcessId(7), addr: ([127, 0, 0, 1], 7400).into(), host: None };
    let config = Config { found_alone: true, ..Config::new(me, Timing::fast()) };
    let mut node = Node::new(config, Time::from_nanos(1));
    while let Some(due) = node.deadline().filter(|due| *due < NOW) {
        node.step(due, Input::Timer, &mut Vec::new());
    }
    assert!(node.is_ready(NOW));
    node
}

fn service() -> ServiceName {
    ServiceName::new("s").expect("a good name")
}

fn want(name: &str) -> Want {
    Want::Lock(LockName::new(name.as_bytes()).expect("a good name"))
}

const fn token(n: u32) -> Token {
    Token::new(ViewNumber(1), n)
}

/// A hold whose request has the number of its token.
fn hold(name: &str, n: u32) -> HoldReport {
    HoldReport {
        request: RequestId(n.into()),
        want: want(name),
        owner: Owner::default(),
        token: token(n),
        held_for: Duration::ZERO,
        metadata: Metadata::default(),
    }
}

/// The member, and two more that it has never heard of in its view.
fn with_two_more() -> Node {
    let mut node = lone();
    let mut view = node.view.as_deref().expect("it has founded").clone();
    for process in [ANN, BOB] {
        let info = MemberInfo { process, ..node.config.me.clone() };
        view.members.push(Member { info, joined: view.number, ghost: false });
    }
    node.view = Some(Arc::new(view));
    node
}

/// The holds that a grantor with this origin revokes, and who is told.
fn revoked(origin: Origin, act: impl FnOnce(&mut Grantor, &View, &mut Turn)) -> Vec<(ProcessId, Message)> {
    let mut node = with_two_more();
    let view = node.view.clone().expect("it has founded");
    let range = TokenRange { first: token(100), last: token(200) };
    let mail = node.turn(NOW, &mut Vec::new(), |_, turn| {
        let mut grantor = Grantor::new(service(), range, origin, &view, turn);
        act(&mut grantor, &view, turn);
    });
    mail.into_iter().filter(|(_, message)| matches!(message, Message::Revoke { .. })).collect()
}

/// Asks for the lock `x`.
fn lock(node: &mut Node, request: RequestId) -> Vec<Output> {
    let (owner, metadata) = (Owner::default(), Metadata::default());
    let wait = Wait::Forever;
    let command = Command::Lock {
        request,
        service: service(),
        want: want("x"),
        owner,
        wait,
        lease: None,
        revocable: false,
        metadata,
    };
    let mut out = Vec::new();
    node.step(NOW, Input::Command(command), &mut out);
    out
}

fn revoke(n: u32) -> Message {
    Message::Revoke { service: service(), epoch: Epoch(token(100)), request: RequestId(n.into()) }
}

/// Geode's defect P19: there the first keeps the lock, and the second is told nothing.
#[test]
fn of_two_members_that_claim_one_lock_the_one_with_the_lower_token_is_told() {
    for (first, second) in [(30, 40), (40, 30)] {
        let revoked = revoked(Origin::Everyone, |grantor, _, turn| {
            grantor.on_report(ANN, Vec::new(), (vec![hold("x", first), hold("y", 1)], Vec::new()), true, turn);
            grantor.on_report(BOB, Vec::new(), (vec![hold("x", second), hold("z", 2)], Vec::new()), true, turn);
        });
        let loser = if first == 30 { ANN } else { BOB };
        assert_eq!(revoked, [(loser, revoke(30))]);
    }
}

/// And after a transfer: who claims what is not in the table that was handed over.
#[test]
fn who_claims_a_lock_that_is_another_ones_in_the_table_is_told() {
    let revoked = revoked(Origin::Predecessor(BOB), |grantor, view, turn| {
        let table = (vec![(ANN, hold("x", 40)), (BOB, hold("y", 41))], Vec::new());
        grantor.on_table(BOB, Vec::new(), table, (view, true), turn);
        grantor.on_report(ANN, Vec::new(), (vec![hold("x", 40)], Vec::new()), true, turn);
        grantor.on_report(BOB, Vec::new(), (vec![hold("x", 30), hold("y", 41)], Vec::new()), true, turn);
    });
    assert_eq!(revoked, [(BOB, revoke(30))]);
}

/// Whoever is told so believes in its lock no longer; the word of an earlier grantor counts for nothing.
#[test]
fn a_hold_that_is_revoked_is_lost() {
    let mut node = lone();
    let (request, me) = (RequestId(1), node.config.me.process);
    let out = lock(&mut node, request);
    assert!(out.iter().any(|output| matches!(output, Output::Answer { outcome: Outcome::Granted { .. }, .. })));
    let newest = node.holder.newest(&service()).expect("it grants");
    let lost = |epoch, node: &mut Node| {
        let mut out = Vec::new();
        node.on_message(NOW, me, Message::Revoke { service: service(), epoch, request }, &mut out);
        out.contains(&Output::Lost { request, reason: LostReason::Superseded })
    };
    assert!(!lost(Epoch(Token::new(ViewNumber(0), 1)), &mut node));
    assert!(lost(newest, &mut node));
    let held: usize = node.status(NOW).services.iter().map(|of| of.held_here).sum();
    assert_eq!(held, 0);
}

/// Geode's 5.2: a request that finds no room where it arrives is never answered. Here what is too much for a member that
/// does not answer is refused at once, where it is asked.
#[test]
fn what_is_too_much_for_a_member_that_does_not_answer_is_refused_at_once() {
    let mut node = with_two_more();
    let epoch = Epoch(token(100));
    node.turn(NOW, &mut Vec::new(), |node, turn| node.holder.on_grantor(&service(), ANN, epoch, turn));
    let mut is_refused = |n: usize| {
        let out = lock(&mut node, RequestId(n as u64));
        out.iter().any(|output| matches!(output, Output::Answer { outcome: Outcome::Busy, .. }))
    };
    assert_eq!((1..).find(|n| is_refused(*n)), Some(MAX_BACKLOG + 2));
}

/// Two that take one another for the elder sent it to and fro for ever, and once more for each time that it asked.
#[test]
fn who_wants_to_join_is_sent_on_once() {
    let mut node = with_two_more();
    node.elder = None;
    let mut view = node.view.as_deref().expect("it has founded").clone();
    view.members.rotate_left(1);
    let heard = view.number;
    node.view = Some(Arc::new(view));
    let me = MemberInfo { process: ProcessId(9), addr: ([127, 0, 0, 1], 7409).into(), host: None };
    let mut sends_on = |from| {
        let mut out = Vec::new();
        let join = Notice::Join { me: me.clone(), heard };
        node.on_notice(NOW, from, me.addr, join.clone(), &mut out);
        let join = Packet::Notice(join);
        let is_sent =
            |to| matches!(&out[..], [Output::Send { process, packet, .. }] if *process == to && *packet == join);
        is_sent(Some(ANN))
    };
    assert!(sends_on(ProcessId(9)));
    assert!(!sends_on(BOB));
}
