//! Revocation in situations that simulated runs rarely reach: messages that are on their way
//! meanwhile.

use super::*;
use crate::protocol::event::{RevocationRequest, RevokeCommand};
use crate::protocol::id::Mode;
use crate::protocol::message::RegistryMessage;
use crate::protocol::message::{HolderInfo, LockRequest, RevocationAnswer, RevocationDemand};

const EPOCH: Epoch = Epoch(token(100));
/// The request that revokes.
const ASKS: RequestId = RequestId(70);
/// The request that holds.
const HOLDS: RequestId = RequestId(80);

fn lock_name(name: &str) -> LockName {
    LockName::new(name.as_bytes()).expect("a good name")
}

/// Without metadata: the hold is to be ended by force.
fn demand(says: Option<Metadata>) -> RevocationDemand {
    says.map_or(RevocationDemand::Take, RevocationDemand::Ask)
}

fn says(text: &str) -> Option<Metadata> {
    Some(Metadata::new(text.as_bytes()).expect("short"))
}

/// The holder of the lock `x`.
fn holder(process: ProcessId, n: u32) -> HolderInfo {
    let (metadata, held_for) = (Metadata::default(), Duration::ZERO);
    let (name, token, mode) = (Some(lock_name("x")), token(n), Mode::Lock);
    HolderInfo {
        name,
        process,
        request: HOLDS,
        owner: 0,
        token,
        mode,
        revocable: true,
        metadata,
        held_for,
    }
}

fn seen(holder: Option<HolderInfo>) -> QueryReply {
    let (holders, waiters) = (Vec::from_iter(holder), Vec::new());
    QueryReply::Lock {
        holders,
        more_holders: 0,
        content: None,
        opener_count: 0,
        permits: 0,
        waiters,
        more: 0,
    }
}

/// The messages and outputs of a node's lock client.
struct SentMessages {
    outbox: Vec<(ProcessId, Message)>,
    out: Vec<Output>,
}

fn act(
    node: &mut Node,
    role: impl FnOnce(&mut LockClient, &View, &mut StepContext),
) -> SentMessages {
    let view = node.cluster.view.clone().expect("it is in a view");
    let mut out = Vec::new();
    let outbox = node.cx(NOW, &mut out, |locks, cx| role(&mut locks.client, &view, cx));
    SentMessages { outbox: outbox.into(), out }
}

fn revoke(node: &mut Node, what: RevokeCommand, wait: Wait) -> SentMessages {
    let lease = Duration::from_secs(1);
    act(node, |holder, view, cx| {
        let ways = (|_| false, |process| view.contains(process));
        holder.revoke((ASKS, service()), what, (wait, lease), ways, cx);
    })
}

fn ask() -> RevokeCommand {
    RevokeCommand::Ask { name: Some(lock_name("x")), metadata: says("me").expect("it says so") }
}

fn sees(node: &mut Node, at: QueryReply) -> SentMessages {
    act(node, |holder, view, cx| {
        holder.on_query_reply(ASKS, at, |process| view.contains(process), cx)
    })
}

fn hears(node: &mut Node, from: ProcessId, n: u32, heard: RevocationAnswer) -> SentMessages {
    act(node, |holder, _, cx| holder.on_revocation_reply(from, (ASKS, token(n)), heard, cx))
}

fn look(to: ProcessId, epoch: Epoch) -> (ProcessId, Message) {
    (
        to,
        Message::Grantor(GrantorMessage::Query {
            service: service(),
            epoch,
            request: ASKS,
            at: Box::new(Query::Lock(lock_name("x"))),
        }),
    )
}

fn ask_back(to: ProcessId, n: u32, says: Option<Metadata>) -> (ProcessId, Message) {
    (
        to,
        Message::Client(ClientMessage::RequestRevocation {
            service: service(),
            request: ASKS,
            hold: HOLDS,
            token: token(n),
            demand: demand(says),
        }),
    )
}

fn answer(outcome: Outcome) -> Vec<Output> {
    vec![Output::Answer { request: ASKS, outcome }]
}

fn told(told: &[HolderInfo], not_revocable: &[HolderInfo]) -> Vec<Output> {
    answer(Outcome::RevocationRequested {
        told: told.to_vec(),
        not_revocable: not_revocable.to_vec(),
        not_asked: 0,
    })
}

/// A member that has asked the grantor Ann for the holder of `x`.
fn requester() -> Node {
    let mut node = with_two_more();
    act(&mut node, |holder, _, cx| holder.on_grantor_is(&service(), ANN, EPOCH, cx));
    assert_eq!(revoke(&mut node, ask(), Wait::Forever).outbox, [look(ANN, EPOCH)]);
    node
}

#[test]
fn the_grantor_names_the_holder_and_its_member_confirms_that_it_is_told() {
    let mut node = requester();
    assert_eq!(sees(&mut node, seen(Some(holder(BOB, 5)))).outbox, [ask_back(BOB, 5, says("me"))]);
    assert_eq!(
        hears(&mut node, ANN, 5, RevocationAnswer::HolderTold).out,
        [],
        "not from another member"
    );
    assert_eq!(
        hears(&mut node, BOB, 6, RevocationAnswer::HolderTold).out,
        [],
        "nor of another hold"
    );
    assert_eq!(
        hears(&mut node, BOB, 5, RevocationAnswer::HolderTold).out,
        told(&[holder(BOB, 5)], &[])
    );
    assert_eq!(hears(&mut node, BOB, 5, RevocationAnswer::HolderTold).out, [], "and only once");
}

#[test]
fn a_revocation_of_a_free_lock_or_of_one_that_is_not_revocable_is_answered_so() {
    assert_eq!(sees(&mut requester(), seen(None)).out, told(&[], &[]));
    for (heard, outcome) in [
        (RevocationAnswer::NotHeld, told(&[], &[])),
        (RevocationAnswer::NotRevocable, told(&[], &[holder(BOB, 5)])),
    ] {
        let mut node = requester();
        sees(&mut node, seen(Some(holder(BOB, 5))));
        assert_eq!(hears(&mut node, BOB, 5, heard).out, outcome);
    }
}

#[test]
fn a_grantor_that_ends_before_it_names_the_holders_leaves_its_successor_to_be_asked() {
    let mut node = requester();
    let (next, mut without) =
        (Epoch(token(200)), View::clone(node.cluster.view.as_deref().expect("it is in one")));
    without.members.retain(|member| member.info.process != ANN);
    let said = act(&mut node, |holder, _, cx| holder.on_view(&without, cx));
    assert!(
        said.outbox.iter().any(|(_, message)| matches!(
            message,
            Message::Registry(RegistryMessage::FindGrantor { .. })
        )),
        "{:?}",
        said.outbox
    );
    assert_eq!(
        act(&mut node, |holder, _, cx| holder.on_grantor_is(&service(), BOB, next, cx)).outbox,
        [look(BOB, next)]
    );
    // A grantor that cannot answer yet is asked again later.
    assert_eq!(sees(&mut node, QueryReply::Undecided).out, []);
    let due = node.locks.client.deadline().expect("it asks again");
    let outbox = node.cx(due, &mut Vec::new(), |locks, cx| locks.client.on_timer(cx));
    assert_eq!(Vec::from(outbox), [look(BOB, next)]);
}

#[test]
fn a_grantor_that_ends_after_it_named_the_holders_is_needed_no_more() {
    let mut node = requester();
    sees(&mut node, seen(Some(holder(BOB, 5))));
    let next = Epoch(token(200));
    assert_eq!(
        act(&mut node, |holder, _, cx| holder.on_grantor_is(&service(), BOB, next, cx)).outbox,
        []
    );
    assert_eq!(
        hears(&mut node, BOB, 5, RevocationAnswer::HolderTold).out,
        told(&[holder(BOB, 5)], &[])
    );
}

#[test]
fn of_a_holder_that_leaves_the_view_nothing_is_wanted_any_more() {
    let without = |node: &Node| {
        let mut view = View::clone(node.cluster.view.as_deref().expect("it is in one"));
        view.members.retain(|member| member.info.process != BOB);
        view
    };
    let mut node = requester();
    sees(&mut node, seen(Some(holder(BOB, 5))));
    let view = without(&node);
    assert_eq!(act(&mut node, |holder, _, cx| holder.on_view(&view, cx)).out, told(&[], &[]));

    // The holder left before it was asked: an `Ask` queries again, and a `Take` is done.
    let mut node = requester();
    node.cluster.view = Some(Arc::new(without(&node)));
    let said = sees(&mut node, seen(Some(holder(BOB, 5))));
    assert_eq!((said.outbox, said.out), (vec![], vec![]));
    assert_eq!(sees(&mut node, seen(None)).out, told(&[], &[]));
    assert_eq!(
        revoke(&mut node, RevokeCommand::Take(holder(BOB, 5)), Wait::Forever).out,
        told(&[], &[])
    );
}

#[test]
fn a_member_whose_hold_has_not_begun_is_asked_again() {
    let mut node = requester();
    sees(&mut node, seen(Some(holder(BOB, 5))));
    assert_eq!(hears(&mut node, BOB, 5, RevocationAnswer::TryAgain).out, []);
    let due = node.locks.client.deadline().expect("it asks again");
    let outbox = node.cx(due, &mut Vec::new(), |locks, cx| locks.client.on_timer(cx));
    assert_eq!(Vec::from(outbox), [look(ANN, EPOCH)], "another may hold by now");

    let mut node = with_two_more();
    assert_eq!(
        revoke(&mut node, RevokeCommand::Take(holder(BOB, 5)), Wait::Forever).outbox,
        [ask_back(BOB, 5, None)]
    );
    assert_eq!(hears(&mut node, BOB, 5, RevocationAnswer::TryAgain).out, []);
    let due = node.locks.client.deadline().expect("it asks again");
    let outbox = node.cx(due, &mut Vec::new(), |locks, cx| locks.client.on_timer(cx));
    assert_eq!(Vec::from(outbox), [ask_back(BOB, 5, None)]);
    assert_eq!(hears(&mut node, BOB, 5, RevocationAnswer::Revoked).out, answer(Outcome::Revoked));
}

#[test]
fn a_revocation_that_is_not_answered_in_time_is_undecided_and_leaves_nothing_behind() {
    let mut node = with_two_more();
    act(&mut node, |holder, _, cx| holder.on_grantor_is(&service(), ANN, EPOCH, cx));
    revoke(&mut node, ask(), Wait::Try);
    let mut out = Vec::new();
    node.cx(NOW + Duration::from_secs(1), &mut out, |locks, cx| locks.client.on_timer(cx));
    assert_eq!(out, answer(Outcome::Undecided));
    let mut sizes = Sizes::default();
    node.locks.client.count(&mut sizes);
    assert_eq!((sizes.requests, sizes.request_timers), (0, 0));
    assert_eq!(sees(&mut node, seen(Some(holder(BOB, 5)))).outbox, [], "no member asks any more");
}

/// A member that has asked the grantor Ann for `x`, with a revocable hold or not.
fn waiter(revocable: bool) -> Node {
    let mut node = with_two_more();
    act(&mut node, |holder, _, cx| holder.on_grantor_is(&service(), ANN, EPOCH, cx));
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    let (want, wait, lease) = (want("x"), Wait::Forever, None);
    let call = LockCall {
        detects: false,
        keeps: false,
        follows: false,
        request: HOLDS,
        service: service(),
        wait,
        lease,
        lock: LockRequest { want, owner, revocable, metadata },
    };
    act(&mut node, |holder, _, cx| holder.lock(call, Duration::ZERO, |_| false, cx));
    node
}

fn granted(node: &mut Node, n: u32) -> SentMessages {
    act(node, |holder, _, cx| holder.on_grant(ANN, &service(), EPOCH, HOLDS, token(n), cx))
}

/// Bob demands the release of the hold with this token.
fn bob_asks(node: &mut Node, request: u64, n: u32, says: Option<Metadata>) -> SentMessages {
    let what = (HOLDS, token(n));
    act(node, |holder, _, cx| {
        holder.on_request_revocation((BOB, RequestId(request)), &service(), what, demand(says), cx)
    })
}

fn heard(said: &SentMessages) -> RevocationAnswer {
    let to_bob = |(to, message): &(ProcessId, Message)| match message {
        Message::Client(ClientMessage::RevocationReply { heard, .. }) if *to == BOB => Some(*heard),
        _ => None,
    };
    said.outbox.iter().find_map(to_bob).expect("Bob is answered")
}

#[test]
fn a_holder_is_told_once_of_each_request() {
    let mut node = waiter(true);
    granted(&mut node, 5);
    let wanted = |metadata: &str| {
        let by = RevocationRequest { process: BOB, metadata: says(metadata).expect("it says so") };
        vec![Output::RevocationRequested { request: HOLDS, by }]
    };
    for (request, text, out) in
        [(1, "first", wanted("first")), (1, "first", vec![]), (2, "second", wanted("second"))]
    {
        let said = bob_asks(&mut node, request, 5, says(text));
        assert_eq!((heard(&said), said.out), (RevocationAnswer::HolderTold, out));
    }
    // Further demands are answered as told, without another output.
    for request in 3..100 {
        let said = bob_asks(&mut node, request, 5, says("again"));
        assert_eq!(
            (heard(&said), said.out.len()),
            (RevocationAnswer::HolderTold, usize::from(request <= 64))
        );
    }
}

#[test]
fn a_hold_that_has_not_begun_cannot_be_told_of_it_yet() {
    let mut node = waiter(true);
    assert_eq!(
        heard(&bob_asks(&mut node, 1, 5, says(""))),
        RevocationAnswer::TryAgain,
        "the grant is on its way"
    );
    granted(&mut node, 5);
    assert_eq!(heard(&bob_asks(&mut node, 2, 5, says(""))), RevocationAnswer::HolderTold);
    // A share may have become the lock, or is about to.
    assert_eq!(
        heard(&bob_asks(&mut node, 3, 4, says(""))),
        RevocationAnswer::TryAgain,
        "it has another token by now"
    );
    assert_eq!(
        heard(&bob_asks(&mut node, 4, 4, None)),
        RevocationAnswer::NotHeld,
        "no member takes what it does not name"
    );
    assert_eq!(
        heard(&bob_asks(&mut node, 5, 6, None)),
        RevocationAnswer::TryAgain,
        "another token is on its way"
    );
}

#[test]
fn a_hold_is_taken_away_only_after_its_holder_was_told_and_from_no_firm_one() {
    let mut node = waiter(true);
    granted(&mut node, 5);
    let said = bob_asks(&mut node, 1, 5, None);
    assert_eq!((heard(&said), said.out), (RevocationAnswer::HolderNotTold, vec![]));
    bob_asks(&mut node, 2, 5, says(""));
    let said = bob_asks(&mut node, 3, 5, None);
    assert_eq!(heard(&said), RevocationAnswer::Revoked);
    let [Output::Lost { request: HOLDS, reason: LostReason::Revoked, .. }] = &said.out[..] else {
        panic!("{:?}", said.out);
    };
    assert!(
        said.outbox.contains(&(
            ANN,
            Message::Grantor(GrantorMessage::Release { service: service(), request: HOLDS })
        )),
        "{:?}",
        said.outbox
    );
    assert_eq!(heard(&bob_asks(&mut node, 4, 5, None)), RevocationAnswer::NotHeld);

    let mut node = waiter(false);
    granted(&mut node, 5);
    for says in [says(""), None] {
        let said = bob_asks(&mut node, 1, 5, says);
        assert_eq!((heard(&said), said.out), (RevocationAnswer::NotRevocable, vec![]));
    }
}
