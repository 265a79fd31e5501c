//! Cases that no simulated run reaches: a lock that was granted twice, and more requests than any
//! program makes.

use super::*;
use crate::protocol::chance;
use crate::protocol::cluster::MemberPhase;
use crate::protocol::cluster::view::ViewMember;
use crate::protocol::cluster::vote_successor::VoteSender;
use crate::protocol::content::Edit;
use crate::protocol::content::{Content, LastWrite};
use crate::protocol::event::{Event, Input, Wait};
use crate::protocol::id::MemberInfo;
use crate::protocol::id::{Metadata, OpenRequest, OwnerId, Value, Want};
use crate::protocol::locks::client::LockCall;
use crate::protocol::message::{
    ClientMessage, GrantorMessage, HoldReport, LockRequest, MemberMessage, Message, Notice,
    ObjectReply, Origin, Query, QueryReply, Refusal, RegistryMessage, TokenRange,
};
use crate::protocol::timing::Timing;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

mod bounds;
mod clones;
mod copies;
mod goodbyes;
mod grantors;
mod kept_locks;
mod large;
mod lineages;
mod offers;
mod positions;
mod reports;
mod revocation;
mod rules;
mod short;
mod strangers;
mod vote_claims;

impl Node {
    /// Lets a role of the locks act, and returns its messages.
    fn cx(
        &mut self,
        now: Time,
        out: &mut Vec<Output>,
        role: impl FnOnce(&mut Locks, &mut StepContext),
    ) -> VecDeque<(ProcessId, Message)> {
        let (cluster, mut step) = self.parts(out);
        step.cx(now, &cluster.standing(now), role)
    }

    /// Lets a role of the locks act, then delivers its messages.
    fn act(
        &mut self,
        now: Time,
        out: &mut Vec<Output>,
        role: impl FnOnce(&mut Locks, &mut StepContext),
    ) {
        let (cluster, mut step) = self.parts(out);
        step.act(now, &cluster.standing(now), role);
    }

    fn on_message(&mut self, now: Time, from: ProcessId, message: Message, out: &mut Vec<Output>) {
        let (cluster, mut step) = self.parts(out);
        step.on_message(now, from, message, &cluster.standing(now));
    }

    fn on_notice(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        notice: Notice,
        out: &mut Vec<Output>,
    ) {
        let (cluster, mut step) = self.parts(out);
        cluster.on_notice(now, from, addr, notice, &mut step);
    }

    fn on_ballot(&mut self, now: Time, speaker: VoteSender, notice: Notice, out: &mut Vec<Output>) {
        let (cluster, mut step) = self.parts(out);
        cluster.on_ballot(now, speaker, notice, &mut step);
    }
}

const NOW: Time = Time::from_nanos(10_000_000_000);
const ANN: ProcessId = ProcessId(1);
const BOB: ProcessId = ProcessId(2);

/// A member that has founded a cluster alone.
fn lone() -> Node {
    let me = MemberInfo::new(ProcessId(7), ([127, 0, 0, 1], 7400).into());
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

fn names(count: usize) -> Vec<LockName> {
    (0..count).map(|n| LockName::new(format!("n{n}").as_bytes()).expect("a good name")).collect()
}

fn draws() -> impl FnMut(usize) -> usize {
    let mut below = chance::draws(1);
    move |bound| below(bound as u64) as usize
}

const fn token(n: u32) -> Token {
    Token::new(Slot(1), n)
}

/// A request for a lock that waits without a limit.
fn lock_call(request: RequestId, want: Want) -> LockCall {
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    LockCall {
        detects: false,
        keeps: false,
        follows: false,
        request,
        service: service(),
        wait: Wait::Forever,
        lease: None,
        lock: LockRequest { want, owner, revocable: false, metadata },
    }
}

/// A hold whose request has the same number as its token.
fn hold(name: &str, n: u32) -> HoldReport {
    HoldReport {
        request: RequestId(n.into()),
        token: token(n),
        held_for: Duration::ZERO,
        lock: LockRequest {
            want: want(name),
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    }
}

/// A member whose view has two more members, from which it has never heard.
fn with_two_more() -> Node {
    let mut node = lone();
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    for process in [ANN, BOB] {
        let info = MemberInfo { process, ..node.cluster.config.me.clone() };
        view.members.push(ViewMember { info, joined: view.number, ghost: false, learner: false });
    }
    node.cluster.view = Some(Arc::new(view));
    node
}

/// The messages that a grantor with this origin sends to other members. The lease of its member
/// runs.
fn said(
    origin: Origin,
    act: impl FnOnce(&mut Grantor, &View, &mut StepContext),
) -> Vec<(ProcessId, Message)> {
    let mut node = with_two_more();
    let view = node.cluster.view.clone().expect("it has founded");
    let range = TokenRange { first: token(100), last: token(200) };
    let outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
        cx.standing.leased = true;
        let mut grantor = Grantor::new(service(), range, origin, &view, cx);
        act(&mut grantor, &view, cx);
    });
    outbox.into()
}

/// The holds that a grantor with this origin ends, and their members.
fn revoked(
    origin: Origin,
    act: impl FnOnce(&mut Grantor, &View, &mut StepContext),
) -> Vec<(ProcessId, Message)> {
    let mut said = said(origin, act);
    said.retain(|(_, message)| matches!(message, Message::Client(ClientMessage::Supersede { .. })));
    said
}

/// Asks for the lock `x`.
fn lock(node: &mut Node, request: RequestId) -> Vec<Output> {
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    let wait = Wait::Forever;
    let command = Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request,
        service: service(),
        wait,
        lease: None,
        lock: LockRequest { want: want("x"), owner, revocable: false, metadata },
    };
    let mut out = Vec::new();
    node.step(NOW, Input::Command(command), &mut out);
    out
}

fn revoke(n: u32) -> Message {
    Message::Client(ClientMessage::Supersede {
        service: service(),
        epoch: Epoch(token(100)),
        request: RequestId(n.into()),
    })
}

/// A young turk repeats its bid in each new view. If a repeated bid counted as a new one, two young
/// turks would end each other's bids, and neither would become the grantor.
#[test]
fn an_outbid_bid_that_is_repeated_is_named_after_no_other() {
    let mut node = with_two_more();
    let (mut out, mut registry) = (Vec::new(), node.locks.registry.take().expect("it has founded"));
    let mut ask = |from, request| {
        node.cx(NOW, &mut out, |_, cx| {
            registry.on_become((from, RequestId(request)), service(), true, cx);
        });
        registry.has_parked()
    };
    assert!(!ask(ANN, 1) && !ask(BOB, 1), "each is named at once");
    assert!(!ask(ANN, 1), "that is what BOB came after");
    assert!(ask(ANN, 2), "this is not");
}

/// The grantor still grants when it is told of a later bid. Its table is empty before the later
/// bidder asks for it.
#[test]
fn a_bid_that_was_outbid_is_answered_when_its_member_ends_its_own_grantor() {
    let mut node = with_two_more();
    let view = node.cluster.view.clone().expect("it has founded");
    let range = TokenRange { first: token(100), last: token(200) };
    let (bid, mut out) = (RequestId(9), Vec::new());
    node.cx(NOW, &mut out, |locks, cx| {
        let grantor = Grantor::new(service(), range, Origin::Free, &view, cx);
        locks.grantors.insert(service(), grantor);
        locks.client.bid((bid, service()), (Wait::Forever, cx.timing.retry), false, cx);
        locks.client.on_outbid_while_granting(&service(), bid, BOB);
        locks.depart_service(&service(), cx);
    });
    assert!(
        out.contains(&Output::Answer { request: bid, outcome: Outcome::Outbid(BOB) }),
        "{out:?}"
    );
}

/// The later bidder was lost before it could grant, and this member was named again. Then another
/// elder begins: the bid is made again there, and may win.
#[test]
fn a_member_that_is_named_after_it_was_outbid_is_not_superseded() {
    let mut node = with_two_more();
    let tenure = node.cluster.view.as_ref().expect("it has founded").tenure;
    let dealt = |number| Token::new(tenure, number);
    let range = |first| TokenRange { first: dealt(first), last: dealt(first + 50) };
    let (bid, mut out) = (RequestId(9), Vec::new());
    node.cx(NOW, &mut out, |locks, cx| {
        locks.on_name_grantor((service(), None), range(100), Origin::Free, cx);
        locks.client.bid((bid, service()), (Wait::Forever, cx.timing.retry), false, cx);
        locks.client.on_outbid_while_granting(&service(), bid, BOB);
        locks.on_name_grantor((service(), None), range(200), Origin::Everyone, cx);
        locks.end_unbegun(cx);
    });
    let is_answered =
        |out: &Output| matches!(out, Output::Answer { request, .. } if *request == bid);
    assert!(!out.iter().any(is_answered), "{out:?}");
}

/// A request that stayed would keep the elder from ever taking a short step again.
#[test]
fn a_request_for_tokens_of_a_term_that_is_over_is_forgotten() {
    let mut node = with_two_more();
    let mut registry = node.locks.registry.take().expect("it has founded");
    let mut act =
        |act: &mut dyn FnMut(&mut StepContext)| node.cx(NOW, &mut Vec::new(), |_, cx| act(cx));
    let outbox = act(&mut |cx| registry.on_find_grantor(ANN, service(), None, true, cx));
    let named = outbox.into_iter().find_map(|(_, message)| match message {
        Message::Member(MemberMessage::NameGrantor { range, .. }) => Some(Epoch(range.first)),
        _ => None,
    });
    let epoch = named.expect("it is named at once");
    act(&mut |cx| registry.on_more_tokens(ANN, (service(), epoch, 1), false, cx));
    act(&mut |cx| registry.answer(false, cx));
    assert!(registry.has_parked(), "it goes on, and the elder may not deal");
    act(&mut |cx| registry.on_vacant(ANN, &service(), epoch, cx));
    act(&mut |cx| registry.answer(true, cx));
    assert!(!registry.has_parked());
}

/// Geode's defect P19: there the first member keeps the lock, and the second gets no message.
#[test]
fn of_two_members_that_claim_one_lock_the_one_with_the_lower_token_is_superseded() {
    for (first, second) in [(30, 40), (40, 30)] {
        let revoked = revoked(Origin::Everyone, |grantor, _, cx| {
            grantor.on_report(
                ANN,
                Vec::new(),
                (vec![hold("x", first), hold("y", 1)], Vec::new()),
                true,
                cx,
            );
            grantor.on_report(
                BOB,
                Vec::new(),
                (vec![hold("x", second), hold("z", 2)], Vec::new()),
                true,
                cx,
            );
        });
        let loser = if first == 30 { ANN } else { BOB };
        assert_eq!(revoked, [(loser, revoke(30))]);
    }
}

/// After a transfer, too, a member loses a hold that the transferred table does not have.
#[test]
fn a_member_that_claims_a_lock_of_another_holder_is_superseded() {
    let revoked = revoked(Origin::Predecessor(BOB), |grantor, view, cx| {
        let table = (vec![(ANN, hold("x", 40)), (BOB, hold("y", 41))], Vec::new());
        grantor.on_table_chunk(BOB, Vec::new(), table, (view, true), cx);
        grantor.on_report(ANN, Vec::new(), (vec![hold("x", 40)], Vec::new()), true, cx);
        grantor.on_report(
            BOB,
            Vec::new(),
            (vec![hold("x", 30), hold("y", 41)], Vec::new()),
            true,
            cx,
        );
    });
    assert_eq!(revoked, [(BOB, revoke(30))]);
}

/// A member whose hold is superseded no longer trusts its lock. The message of an earlier grantor
/// is ignored.
#[test]
fn a_hold_that_is_revoked_is_lost() {
    let mut node = lone();
    let (request, me) = (RequestId(1), node.cluster.config.me.process);
    let out = lock(&mut node, request);
    assert!(
        out.iter().any(|output| matches!(
            output,
            Output::Answer { outcome: Outcome::Granted { .. }, .. }
        ))
    );
    let newest = node.locks.client.newest(&service()).expect("it grants");
    let lost = |epoch, node: &mut Node| {
        let mut out = Vec::new();
        node.on_message(
            NOW,
            me,
            Message::Client(ClientMessage::Supersede { service: service(), epoch, request }),
            &mut out,
        );
        out.iter().any(|out| {
            matches!(out, Output::Lost { request: lost, reason: LostReason::Superseded, .. }
                if *lost == request)
        })
    };
    assert!(!lost(Epoch(Token::new(Slot(0), 1)), &mut node));
    assert!(lost(newest, &mut node));
    let held: usize = node.status(NOW).services.iter().map(|of| of.held_here).sum();
    assert_eq!(held, 0);
}

/// Geode's 5.2: a request that finds no room where it arrives is never answered. Here, a request
/// beyond the backlog of a member that does not answer is refused at once, by the requester's own
/// member.
#[test]
fn more_requests_than_an_unresponsive_member_can_keep_are_refused_at_once() {
    let mut node = with_two_more();
    let epoch = Epoch(token(100));
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        locks.client.on_grantor_is(&service(), ANN, epoch, cx)
    });
    let mut is_refused = |n: usize| {
        let out = lock(&mut node, RequestId(n as u64));
        out.iter().any(|output| matches!(output, Output::Answer { outcome: Outcome::Busy, .. }))
    };
    assert_eq!(
        (1..).find(|n| is_refused(*n)),
        Some(crate::protocol::Limits::DEFAULT.backlog as usize + 2)
    );
}

/// Two members that took each other for the elder would forward it for ever, and once more for each
/// time that the joiner asked.
#[test]
fn a_joiner_is_redirected_once() {
    let mut node = with_two_more();
    node.cluster.elder = None;
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    view.members.rotate_left(1);
    let heard = view.number;
    node.cluster.view = Some(Arc::new(view));
    let me = MemberInfo::new(ProcessId(9), ([127, 0, 0, 1], 7409).into());
    let mut sends_on = |from| {
        let mut out = Vec::new();
        let join = Notice::Join { me: me.clone(), heard };
        node.on_notice(NOW, from, me.addr, join.clone(), &mut out);
        let join = Packet::from(join);
        let is_sent = |to| {
            matches!(
                &out[..],
                [Output::Send { process, packet, .. }] if *process == to && *packet == join
            )
        };
        is_sent(Some(ANN))
    };
    assert!(sends_on(ProcessId(9)));
    assert!(!sends_on(BOB));
}

/// An ended wait of the process must not be answered a second time when it is extended.
#[test]
fn nothing_is_held_by_a_process_that_is_gone() {
    let mut node = lone();
    let mut out = Vec::new();
    node.step(NOW, Input::Command(Command::Leave), &mut out);
    assert!(out.contains(&Output::Event(Event::Left { heard: true })));
    out.clear();
    let request = RequestId(1);
    node.step(
        NOW,
        Input::Command(Command::Extend { request, lease: Duration::from_secs(1) }),
        &mut out,
    );
    assert_eq!(out, [Output::Answer { request, outcome: Outcome::NotHeld }]);
}

/// The former end of the hold is dropped.
#[test]
fn a_hold_that_is_extended_without_limit_does_not_end() {
    let mut node = lone();
    let (request, second) = (RequestId(1), Duration::from_secs(1));
    let (owner, metadata) = (OwnerId::default(), Metadata::default());
    let (want, wait, lease) = (want("x"), Wait::Forever, Some(second));
    let command = Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request,
        service: service(),
        wait,
        lease,
        lock: LockRequest { want, owner, revocable: false, metadata },
    };
    let mut out = Vec::new();
    node.step(NOW, Input::Command(command), &mut out);
    let holds = |node: &Node, at| node.locks.client.holds(request, at).is_some();
    assert!(holds(&node, NOW) && !holds(&node, NOW + second));
    node.step(NOW, Input::Command(Command::Extend { request, lease: Duration::MAX }), &mut out);
    assert_eq!(
        out.pop(),
        Some(Output::Answer { request, outcome: Outcome::Extended { until: Time::MAX } })
    );
    while let Some(due) = node.deadline().filter(|due| *due < NOW + second * 2) {
        node.step(due, Input::Timer, &mut out);
    }
    assert!(
        holds(&node, NOW + second * 2) && !out.iter().any(|out| matches!(out, Output::Lost { .. }))
    );
}

fn share(n: u32) -> HoldReport {
    let mut hold = hold("x", n);
    hold.lock.want = Want::Share(LockName::new(b"x").expect("a good name"));
    hold
}

/// The modes and tokens in which the grantor has `x` as held.
fn seen(grantor: &Grantor) -> Vec<(bool, Token)> {
    let (holds, _) = grantor.contents(NOW);
    holds
        .into_iter()
        .map(|(_, hold)| (matches!(hold.lock.want, Want::Share(_)), hold.token))
        .collect()
}

/// A grantor that begins with a transferred table already acts while it asks members for their
/// holds. A report may be older than the grantor's own change of the hold, whose message is still
/// on its way. If the report counted, the member would trust its lock beside new shares.
#[test]
fn a_report_that_is_older_than_an_upgrade_does_not_undo_it() {
    said(Origin::Predecessor(BOB), |grantor, view, cx| {
        grantor.on_table_chunk(
            BOB,
            Vec::new(),
            (vec![(ANN, share(40))], Vec::new()),
            (view, true),
            cx,
        );
        grantor.on_upgrade(ANN, RequestId(7), RequestId(40), cx);
        let upgraded = token(101);
        assert!(matches!(
            cx.outbox.back(),
            Some((ANN, Message::Client(ClientMessage::Upgraded { token, .. })))
                if *token == upgraded
        ));
        grantor.on_report(ANN, Vec::new(), (vec![share(40)], Vec::new()), true, cx);
        assert_eq!(seen(grantor), [(false, upgraded)]);
        grantor.on_upgrade(ANN, RequestId(7), RequestId(40), cx);
        assert_eq!(seen(grantor), [(false, upgraded)], "asked twice, done once");
        grantor.on_reduce((ANN, RequestId(40)), &share(40).lock.want, token(40), cx);
        assert_eq!(
            seen(grantor),
            [(true, token(40))],
            "it gave up, and never heard of the other token"
        );
    });
}

/// The former grantor upgraded a share, but the member does not know it. The member's report undoes
/// the upgrade. It is made anew if the member asks for it first.
#[test]
fn an_upgrade_of_an_earlier_epoch_counts_only_if_its_holder_has_heard_of_it() {
    for asks_first in [false, true] {
        said(Origin::Predecessor(BOB), |grantor, view, cx| {
            let upgraded = HoldReport { token: token(45), ..hold("x", 40) };
            grantor.on_table_chunk(
                BOB,
                Vec::new(),
                (vec![(ANN, upgraded)], Vec::new()),
                (view, true),
                cx,
            );
            if asks_first {
                grantor.on_upgrade(ANN, RequestId(7), RequestId(40), cx);
            }
            grantor.on_report(ANN, Vec::new(), (vec![share(40)], Vec::new()), true, cx);
            assert_eq!(
                seen(grantor),
                if asks_first { [(false, token(101))] } else { [(true, token(40))] }
            );
        });
    }
}

fn value(text: &str) -> Value {
    Value::new(text.as_bytes()).expect("a short value")
}

fn object() -> LockName {
    LockName::new(b"x").expect("a good name")
}

fn set(text: &str, expect: Option<Token>) -> Edit {
    Edit::Set { value: value(text), expect }
}

fn written(version: Token) -> ObjectReply {
    ObjectReply::Written { version, number: None }
}

/// A content that Ann wrote with request 9, as version 50.
fn content() -> Content {
    let writes = BTreeMap::from([(
        ANN,
        LastWrite { request: RequestId(9), version: token(50), number: None },
    )]);
    Content { value: value("green"), version: token(50), maybe_stale: false, writes }
}

/// A hold by which Ann has the object open.
fn open() -> HoldReport {
    let mut hold = hold("x", 40);
    hold.lock.want = Want::Open(OpenRequest::new(object(), value("red")));
    hold
}

/// The last message to Ann about the object: the version, whether it may be stale, and the answer
/// in it.
fn told(cx: &StepContext) -> Option<(Token, bool, Option<ObjectReply>)> {
    cx.outbox.iter().rev().find_map(|(to, message)| match message {
        Message::Client(ClientMessage::Value { content, answers, .. }) if *to == ANN => {
            Some((content.version, content.maybe_stale, answers.map(|(_, told)| told)))
        }
        _ => None,
    })
}

/// The answer was lost with the former grantor, but the content names its last writers.
#[test]
fn a_write_that_was_made_in_an_earlier_term_is_not_made_again() {
    for is_recovery in [false, true] {
        let origin = if is_recovery { Origin::Everyone } else { Origin::Predecessor(BOB) };
        said(origin, |grantor, view, cx| {
            let objects = vec![(object(), content())];
            if is_recovery {
                for process in [cx.me, BOB] {
                    grantor.on_report(process, Vec::new(), (Vec::new(), Vec::new()), true, cx);
                }
                grantor.on_report(ANN, objects, (vec![open()], Vec::new()), true, cx);
            } else {
                grantor.on_table_chunk(
                    BOB,
                    objects,
                    (vec![(ANN, open())], Vec::new()),
                    (view, true),
                    cx,
                );
            }
            for expect in [None, Some(token(49))] {
                grantor.on_write((ANN, RequestId(9)), &object(), &set("green", expect), cx);
                assert_eq!(told(cx), Some((token(50), is_recovery, Some(written(token(50))))));
            }
            grantor.on_write((ANN, RequestId(10)), &object(), &set("blue", Some(token(49))), cx);
            assert_eq!(told(cx), Some((token(50), is_recovery, Some(ObjectReply::Unwritten))));
            grantor.on_write((ANN, RequestId(11)), &object(), &set("blue", Some(token(50))), cx);
            let (version, stale, answer) = told(cx).expect("it is told");
            assert!(version > token(100) && !stale && answer == Some(written(version)));
            // The object no longer knows of the former write, and its member has been answered
            // since.
            grantor.on_write((BOB, RequestId(9)), &object(), &set("red", None), cx);
            assert!(matches!(
                cx.outbox.back(),
                Some((BOB, Message::Client(ClientMessage::Refuse { refusal, .. })))
                    if **refusal == Refusal::NotOpen
            ));
        });
    }
}

/// Only contents that members report may be stale. A transferred table is whole, regardless of the
/// fate of its source.
#[test]
fn a_content_of_a_whole_table_is_not_stale_when_its_source_leaves() {
    for whole in [true, false] {
        said(Origin::Predecessor(BOB), |grantor, view, cx| {
            let objects = vec![(object(), content())];
            let table = (vec![(ANN, open())], Vec::new());
            grantor.on_table_chunk(BOB, objects.clone(), table, (view, whole), cx);
            let mut without = view.clone();
            without.members.retain(|member| member.info.process != BOB);
            grantor.on_view(&without, &[BOB], &[], cx);
            grantor.on_report(cx.me, Vec::new(), (Vec::new(), Vec::new()), true, cx);
            grantor.on_report(ANN, objects, (vec![open()], Vec::new()), true, cx);
            assert!(grantor.is_acting());
            let expected = (!whole).then_some((token(50), true, None));
            assert_eq!(told(cx), expected, "it is told what it does not know");
        });
    }
}

/// The former grantor's message to the last opener may have arrived too late.
#[test]
fn a_member_that_reports_an_older_version_after_a_transfer_gets_the_newer_one() {
    said(Origin::Predecessor(BOB), |grantor, view, cx| {
        grantor.on_table_chunk(
            BOB,
            vec![(object(), content())],
            (vec![(ANN, open())], Vec::new()),
            (view, true),
            cx,
        );
        let older = Content { version: token(49), ..content() };
        grantor.on_report(ANN, vec![(object(), older)], (vec![open()], Vec::new()), true, cx);
        assert_eq!(told(cx), Some((token(50), false, None)));
    });
}

/// If a former grantor's answer counted without its value, a member would be told "written" and
/// still see an older value.
#[test]
fn a_value_and_what_it_answers_are_taken_together_or_not_at_all() {
    let mut node = lone();
    let me = node.cluster.config.me.process;
    let (first, write) = (RequestId(1), RequestId(2));
    let (owner, metadata, wait) = (OwnerId::default(), Metadata::default(), Wait::Forever);
    let want = Want::Open(OpenRequest::new(object(), value("red")));
    let command = Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request: first,
        service: service(),
        wait,
        lease: None,
        lock: LockRequest { want, owner, revocable: false, metadata },
    };
    let mut out = Vec::new();
    node.step(NOW, Input::Command(command), &mut out);
    assert!(
        out.iter()
            .any(|output| matches!(output, Output::Answer { outcome: Outcome::Opened { .. }, .. }))
    );

    let former = node.locks.client.newest(&service()).expect("it grants");
    let next = Epoch(former.0.plus(1 << 20));
    node.cx(NOW, &mut Vec::new(), |locks, cx| locks.client.on_grantor_is(&service(), me, next, cx));
    let command = Command::Write { request: write, open: first, edit: set("green", None) };
    node.step(NOW, Input::Command(command), &mut Vec::new());
    let mut hears = |epoch, n| {
        let version = next.0.plus(n);
        let content = Content { version, writes: BTreeMap::new(), ..content() };
        let answers = Some((write, written(version)));
        let mut out = Vec::new();
        let told = Box::new(content.clone());
        let message = Message::Client(ClientMessage::Value {
            service: service(),
            epoch,
            name: object(),
            content: told,
            answers,
        });
        node.on_message(NOW, me, message, &mut out);
        let expected = [
            Output::Value { request: first, content },
            Output::Answer { request: write, outcome: Outcome::Written { version, number: None } },
        ];
        if out == expected { Some(true) } else { out.is_empty().then_some(false) }
    };
    assert_eq!((hears(former, 5), hears(next, 6)), (Some(false), Some(true)));
}

/// If two guards of one hold both ask for the lock, and one gives up, the other's upgrade must not
/// be undone.
#[test]
fn of_two_upgrades_of_one_hold_only_the_last_that_gives_up_says_so() {
    let mut node = with_two_more();
    let (first, epoch) = (RequestId(1), Epoch(token(100)));
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        cx.standing.leased = true;
        let call = lock_call(first, share(1).lock.want);
        locks.client.on_grantor_is(&service(), ANN, epoch, cx);
        locks.client.lock(call, Duration::ZERO, |_| false, cx);
        locks.client.on_grant(ANN, &service(), epoch, first, token(101), cx);
        let asked = [RequestId(2), RequestId(3)];
        for request in asked {
            locks.client.upgrade(request, first, Duration::from_secs(1), cx);
        }
        cx.outbox.clear();
        locks.client.release(asked[0], cx);
        assert!(cx.outbox.is_empty());
        locks.client.release(asked[1], cx);
        let said = (cx.outbox.len(), cx.outbox.pop_back());
        assert!(matches!(
            said,
            (1, Some((ANN, Message::Grantor(GrantorMessage::Reduce { token: has, .. }))))
                if has == token(101)
        ));
    });
}

/// An elder that decides a view without itself stays until the other members know the view. It is
/// about to come back as another process.
#[test]
fn an_expelled_member_that_stays_for_the_others_reports_expelled_and_never_left() {
    let mut node = with_two_more();
    assert!(node.belongs());
    let mut next = node.cluster.view.as_deref().expect("it has founded").clone();
    next.members.remove(0);
    next.number = next.number.next();
    let mut out = Vec::new();
    let (cluster, mut step) = node.parts(&mut out);
    cluster.part(NOW, next, None, &mut step);
    assert!(matches!(node.cluster.phase, MemberPhase::Retiring { left: false, .. }));
    assert!(!node.belongs(), "though its lease may run still");
    let told = |out: Vec<Output>, request| {
        let answers = out.into_iter().filter_map(|output| match output {
            Output::Answer { request: answered, outcome } if answered == request => Some(outcome),
            _ => None,
        });
        answers.collect::<Vec<_>>()
    };
    let out = lock(&mut node, RequestId(1));
    assert_eq!(told(out, RequestId(1)), [Outcome::Closed(LostReason::Expelled)]);
    let mut out = Vec::new();
    node.step(
        NOW,
        Input::Command(Command::Destroy { request: RequestId(2), service: service() }),
        &mut out,
    );
    assert_eq!(told(out, RequestId(2)), [Outcome::Closed(LostReason::Expelled)]);

    node.step(NOW, Input::Command(Command::Leave), &mut Vec::new());
    let out = lock(&mut node, RequestId(3));
    assert_eq!(
        told(out, RequestId(3)),
        [Outcome::Closed(LostReason::Left)],
        "now it will not come back"
    );
}

/// Otherwise the number of questions in a large cluster without an elder would grow with the square
/// of its size.
#[test]
fn a_member_without_a_lease_greets_the_council_each_time_and_the_others_in_turn() {
    const MEMBERS: u16 = 40;
    let mut node = lone();
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    let addr = |number: u16| SocketAddr::from(([127, 0, 0, 2], number));
    for number in 1..MEMBERS {
        let info = MemberInfo::new(ProcessId(u128::from(number) + 100), addr(number));
        view.members.push(ViewMember { info, joined: view.number, ghost: false, learner: false });
    }
    let council: BTreeSet<SocketAddr> = view.council().map(|info| info.addr).skip(1).collect();
    assert_eq!(council.len(), usize::from(view.council_size) - 1);
    node.cluster.view = Some(Arc::new(view));
    node.cluster.lease.running = false;
    let mut greeted = BTreeSet::new();
    let (rounds, mut now) = (u32::from(MEMBERS) / 4, NOW);
    for _ in 0..rounds {
        now = now + Duration::from_secs(1);
        let mut out = Vec::new();
        let (cluster, mut step) = node.parts(&mut out);
        cluster.greet(now, &mut step);
        let sent = out.iter().filter_map(|output| match output {
            Output::Send { to, .. } => Some(*to),
            _ => None,
        });
        let sent: BTreeSet<SocketAddr> = sent.collect();
        assert_eq!((sent.len(), out.len()), (council.len() + 4, council.len() + 4));
        assert!(council.is_subset(&sent));
        greeted.extend(sent);
    }
    assert_eq!(greeted, (1..MEMBERS).map(addr).collect());
}

/// The asked member did not know yet that it was the grantor. It grants in the very epoch of the
/// request.
#[test]
fn a_request_without_a_grantor_is_repeated_in_the_same_tenure() {
    let mut node = with_two_more();
    let (open, write, epoch) = (RequestId(1), RequestId(2), Epoch(token(100)));
    node.cx(NOW, &mut Vec::new(), |locks, cx| {
        let call = lock_call(open, Want::Open(OpenRequest::new(object(), value("red"))));
        let of = |cx: &mut StepContext| {
            cx.outbox
                .drain(..)
                .filter(|(_, said)| matches!(said, Message::Grantor(GrantorMessage::Write { .. })))
                .count()
        };
        locks.client.on_grantor_is(&service(), ANN, epoch, cx);
        locks.client.lock(call, Duration::ZERO, |_| false, cx);
        let opened = Some((open, ObjectReply::Opened(token(101))));
        locks.client.on_value(ANN, (&service(), epoch), (&object(), content()), opened, cx);
        locks.client.write((write, open), set("blue", None), |_| false, cx);
        assert_eq!(of(cx), 1);
        locks.client.on_not_grantor(&service(), epoch, write, None, cx);
        locks.client.on_grantor_is(&service(), ANN, epoch, cx);
        assert_eq!(of(cx), 0, "it has just said that it does not grant");
        cx.now = cx.now + cx.timing.retry;
        locks.client.on_timer(cx);
        locks.client.on_grantor_is(&service(), ANN, epoch, cx);
        assert_eq!(of(cx), 1);
    });
}
