//! Rules that no simulated run has shown to be needed. Each test sets up the one situation for
//! which the rule exists. In builds with planted breaks it also checks that the rule's break
//! changes the answer, so the test can fail.

use super::*;
use crate::protocol::cluster::decision::{Proposal, ProposalPhase};
use crate::protocol::cluster::view::Change;
use crate::protocol::cluster::vote_successor::VoteSender;
use crate::protocol::id::{Versions, ViewNumber};
use crate::protocol::locks::grantor::ReceivedRequest;
use crate::protocol::message::{Ballot, LockRequest, WaitReport};
use std::collections::BTreeSet;

const CYD: ProcessId = ProcessId(3);

/// Checks a rule without a break, and with the break that removes the rule.
macro_rules! rule {
    ($name:ident, $broken_by:ident, $kept:expr) => {
        #[test]
        fn $name() {
            assert!($kept(Box::new(|_: &mut Node| {})), "the rule is broken");
            #[cfg(elderlock_mutants)]
            {
                let mutant = Some(crate::protocol::mutant::ProtocolMutant::$broken_by);
                let plant = move |node: &mut Node| node.cluster.config.mutant = mutant;
                assert!(!$kept(Box::new(plant)), "the break is not seen");
            }
        }
    };
}

type Plant = Box<dyn Fn(&mut Node)>;

mod bounds;
mod copies;
mod grantors;
mod parts;
mod strangers;

/// This member as the second of a view of three, with `ANN` as the elder. It has not promised the
/// elder anything.
fn second(plant: &Plant) -> Node {
    let mut node = with_two_more();
    plant(&mut node);
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    view.members.swap(0, 1);
    assert_eq!(view.elder().process, ANN);
    node.cluster.view = Some(Arc::new(view));
    node.cluster.elder = None;
    node.cluster.lease.promised_until = Time::ZERO;
    node
}

/// The founder of a cluster, alone.
fn elder(plant: &Plant) -> Node {
    let mut node = lone();
    plant(&mut node);
    #[cfg(elderlock_mutants)]
    {
        let mutant = node.cluster.config.mutant;
        node.cluster.elder = node.cluster.elder.take().map(|elder| elder.with_mutant(mutant));
    }
    node
}

fn speaker(process: ProcessId, node: &Node) -> VoteSender {
    VoteSender { vote: process, process, addr: node.cluster.config.me.addr, successor: None }
}

/// The notices that the member sends to others.
fn notices(out: &[Output]) -> Vec<Notice> {
    let packets = out.iter().filter_map(|output| match output {
        Output::Send { packet: Packet::Notice(notice), .. } => Some(notice.as_ref().clone()),
        _ => None,
    });
    packets.collect()
}

fn said_in(
    node: &mut Node,
    leased: bool,
    act: impl FnOnce(&View, &mut StepContext),
) -> Vec<Message> {
    let view = node.cluster.view.clone().expect("it has founded");
    let outbox = node.cx(NOW, &mut Vec::new(), |_, cx| {
        cx.standing.leased = leased;
        act(&view, cx);
    });
    outbox.into_iter().map(|(_, message)| message).collect()
}

fn asked(from: ProcessId, request: u64) -> ReceivedRequest {
    ReceivedRequest {
        keep: 0,
        from,
        request: RequestId(request),
        only_if_free: false,
        lock: LockRequest {
            want: want("x"),
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    }
}

fn range() -> TokenRange {
    TokenRange { first: token(100), last: token(200) }
}

rule!(an_accepted_ballot_is_promised, AcceptPromisesNothing, |plant: Plant| {
    let mut node = second(&plant);
    let instance = node.cluster.view.as_ref().expect("it has founded").number.next();
    let change = Change { ghost: [ANN].into(), ..Change::default() };
    let accept = Notice::Accept { instance, ballot: Ballot { round: 2, process: BOB }, change };
    node.on_ballot(NOW, speaker(BOB, &node), accept, &mut Vec::new());
    assert!(node.cluster.votes.acceptor.accepted.is_some());
    let ballot = Ballot { round: 1, process: ANN };
    node.on_ballot(
        NOW,
        speaker(ANN, &node),
        Notice::Prepare { instance, ballot, dead: BTreeSet::new() },
        &mut Vec::new(),
    );
    node.cluster.votes.acceptor.promised == Some(Ballot { round: 2, process: BOB })
});

rule!(a_process_agrees_to_the_founding_of_one_coordinator_only, AgreeTwice, |plant: Plant| {
    let info = |site: u8| {
        MemberInfo::new(ProcessId(site.into()), SocketAddr::from(([10, 0, 0, site], 7400)))
    };
    let seeds = [1, 2, 3].map(|site| info(site).addr).into();
    let config = Config { seeds, ..Config::new(info(3), Timing::fast()) };
    let mut node = Node::new(config, Time::from_nanos(1));
    plant(&mut node);
    let mut agrees_to = |coordinator: u8| {
        let MemberInfo { process: from, addr, .. } = info(coordinator);
        let founders = vec![info(coordinator), info(3)];
        let view = View::first(Slot(5), founders, Timing::fast(), 7);
        let packet = Packet::from(Notice::Found { attempt: 1, view });
        let mut out = Vec::new();
        node.step(Time::from_nanos(2), Input::Received { from, addr, packet }, &mut out);
        notices(&out).iter().any(|notice| matches!(notice, Notice::FoundOk { .. }))
    };
    assert!(agrees_to(1) && agrees_to(1), "its answer may be lost");
    !agrees_to(2)
});

rule!(a_bound_vote_stands_by_no_pulse, StandByElderThoughBound, |plant: Plant| {
    let mut node = second(&plant);
    let (addr, number) =
        (node.cluster.config.me.addr, node.cluster.view.as_ref().expect("it has founded").number);
    (node.cluster.votes.acceptor.is_bound, node.cluster.votes.acceptor.promised) =
        (true, Some(Ballot { round: 2, process: BOB }));
    let mut out = Vec::new();
    let (cluster, mut step) = node.parts(&mut out);
    cluster.on_pulse(NOW, ANN, addr, (number, 5, 0, false, false), &mut step);
    let is_told = notices(&out).iter().any(|notice| matches!(notice, Notice::Nack { .. }));
    is_told && node.cluster.lease.promised_until == Time::ZERO
});

rule!(an_elder_that_gave_its_vote_away_renews_no_member, RenewThoughDeposed, |plant: Plant| {
    let mut node = lone();
    plant(&mut node);
    let mut elder = node.cluster.elder.take().expect("it has founded");
    elder.deposed = true;
    planted!(=> let elder = elder.with_mutant(node.cluster.config.mutant));
    node.cluster.elder = Some(elder);
    !node.cluster.has_authority(NOW)
});

rule!(an_empty_table_counts_from_the_last_that_was_named, BelieveAnyVacant, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let mut registry = node.locks.registry.take().expect("it has founded");
    let said = said_in(&mut node, true, |_, cx| {
        registry.on_find_grantor(ANN, service(), None, true, cx);
        registry.on_become((BOB, RequestId(1)), service(), true, cx);
    });
    let named = said.iter().find_map(|message| match message {
        Message::Member(MemberMessage::NameGrantor { range, .. }) => Some(Epoch(range.first)),
        _ => None,
    });
    let first = named.expect("ANN was named first");
    said_in(&mut node, true, |_, cx| registry.on_vacant(ANN, &service(), first, cx));
    registry.confirms_destruction(&service()) == Err(Some(BOB))
});

rule!(waiters_of_a_table_that_ends_are_told, EndInSilence, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let said = said_in(&mut node, true, |view, cx| {
        let mut grantor = Grantor::new(service(), range(), Origin::Free, view, cx);
        grantor.on_request_lock(asked(BOB, 1), cx);
        grantor.on_request_lock(asked(ANN, 2), cx);
        grantor.close(None, cx);
    });
    said.iter().any(|message| {
        matches!(message, Message::Client(ClientMessage::NotGrantor { request: RequestId(2), .. }))
    })
});

rule!(
    an_unacknowledged_wait_stands_before_later_ones_of_its_member,
    ForgetOwnOrder,
    |plant: Plant| {
        let mut node = with_two_more();
        plant(&mut node);
        let epoch = Epoch(token(1));
        let wait = |request: u64, ticket: Option<u64>| WaitReport {
            request: RequestId(request),
            ticket: ticket.map(|number| Ticket { epoch, number }),
            lock: LockRequest {
                want: want("x"),
                owner: OwnerId::default(),
                revocable: false,
                metadata: Metadata::default(),
            },
        };
        let me = node.cluster.config.me.process;
        let said = said_in(&mut node, true, |view, cx| {
            let mut grantor = Grantor::new(service(), range(), Origin::Everyone, view, cx);
            let waits = vec![wait(2, None), wait(3, Some(1))];
            grantor.on_report(ANN, Vec::new(), (Vec::new(), waits), true, cx);
            grantor.on_report(
                BOB,
                Vec::new(),
                (vec![hold("x", 40)], vec![wait(4, Some(2))]),
                true,
                cx,
            );
            grantor.on_report(me, Vec::new(), (Vec::new(), Vec::new()), true, cx);
            cx.outbox.clear();
            grantor.on_release(BOB, RequestId(40), cx);
        });
        said.iter().any(|message| {
            matches!(message, Message::Client(ClientMessage::Grant { request: RequestId(2), .. }))
        })
    }
);

rule!(a_view_without_its_decider_waits_for_the_remaining_members, ForgetAtOnce, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let (me, before) = (
        node.cluster.config.me.process,
        node.cluster.view.as_ref().expect("it has founded").number,
    );
    let ballot = Ballot { round: 0, process: me };
    let change = Change { remove: [me].into(), ..Change::default() };
    // With BOB this is a quorum of the view, but BOB alone is no quorum of the next view.
    let step = ProposalPhase::Accepting { change, accepted: [me].into() };
    node.cluster.votes.proposal = Some(Proposal::new(ballot, step, Time::MAX));
    let mut out = Vec::new();
    let (cluster, mut step) = node.parts(&mut out);
    cluster.on_accepted(NOW, BOB, ballot, &mut step);
    node.cluster.phase == MemberPhase::Member
        && node.cluster.view.as_ref().is_some_and(|view| view.number == before)
});

rule!(a_grantor_without_a_lease_answers_no_question, SeeWithoutLease, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let said = said_in(&mut node, false, |view, cx| {
        let mut grantor = Grantor::new(service(), range(), Origin::Free, view, cx);
        cx.standing.leased = false;
        grantor.on_query(ANN, RequestId(1), &Query::Lock(names(1).remove(0)), cx);
    });
    let is_unsure = |message: &Message| {
        matches!(
            message,
            Message::Client(ClientMessage::QueryReply { seen, .. })
                if **seen == QueryReply::Undecided
        )
    };
    said.iter().any(is_unsure)
});

rule!(nothing_is_done_at_once_when_something_is_due, AtOnceThoughLate, |plant: Plant| {
    let mut node = lone();
    lock(&mut node, RequestId(1));
    node.step(NOW, Input::Command(Command::Release { request: RequestId(1) }), &mut Vec::new());
    let due = node.deadline().expect("it is the elder");
    plant(&mut node);
    node.quiet_until = QuietUntil(None);
    let command = Command::Lock {
        detects: false,
        keeps: false,
        follows: false,
        request: RequestId(2),
        service: service(),
        wait: Wait::Forever,
        lease: None,
        lock: LockRequest {
            want: want("y"),
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    };
    node.try_fast(due, &command).is_none()
});

rule!(a_recovering_grantor_asks_members_that_join, AskNoJoiners, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let said = said_in(&mut node, true, |view, cx| {
        let mut grantor = Grantor::new(service(), range(), Origin::Everyone, view, cx);
        cx.outbox.clear();
        let info = MemberInfo { process: CYD, ..view.members[0].info.clone() };
        let next = view.next(&Change { join: vec![info], ..Change::default() });
        grantor.on_view(&next, &[], &[CYD], cx);
    });
    said.iter().any(|message| matches!(message, Message::Client(ClientMessage::Recover { .. })))
});

rule!(a_death_counts_only_from_a_member_on_its_kernel, BelieveAnyWitness, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let addr = node.cluster.config.me.addr;
    let vouch = Packet::from(Notice::Vouch { dead: ANN });
    let mut out = Vec::new();
    node.step(NOW, Input::Received { from: BOB, addr, packet: vouch }, &mut out);
    let removes = |notice: &Notice| match notice {
        Notice::Accept { change, .. } => change.remove.contains(&ANN),
        _ => false,
    };
    !notices(&out).iter().any(removes)
});

rule!(a_token_above_the_dealt_slots_is_no_grant, TakeAnyToken, |plant: Plant| {
    let mut node = with_two_more();
    plant(&mut node);
    let view = node.cluster.view.clone().expect("it has founded");
    let epoch = Epoch(view.first_token());
    let mut holds = |number, token| {
        let request = RequestId(number);
        let mut held = None;
        node.cx(NOW, &mut Vec::new(), |locks, cx| {
            cx.standing.leased = true;
            locks.client.on_grantor_is(&service(), ANN, epoch, cx);
            let command = Command::Lock {
                detects: false,
                keeps: false,
                follows: false,
                request,
                service: service(),
                wait: Wait::Forever,
                lease: None,
                lock: asked(ANN, number).lock,
            };
            locks.on_command(command, &|_| false, cx);
            locks.client.on_grant(ANN, &service(), epoch, request, token, cx);
            held = locks.client.holds(request, cx.now);
        });
        held.is_some()
    };
    assert!(holds(1, view.first_token().plus(1)), "a token of the view is a grant");
    !holds(2, Token::new(view.end_slot(), 0))
});

rule!(the_word_of_a_learner_counts_as_that_of_a_stranger, BelieveLearners, |plant: Plant| {
    let mut node = with_two_more();
    node.cluster.config.nonce = std::num::NonZeroU64::new(7);
    plant(&mut node);
    let me = MemberInfo::new(CYD, ([127, 0, 0, 1], 7503).into());
    let hear = |node: &mut Node, notice: Notice| {
        let (from, addr, packet) = (me.process, me.addr, notice.into());
        node.step(NOW, Input::Received { from, addr, packet }, &mut Vec::new());
    };
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    view.members.push(ViewMember { info: me.clone(), learner: true, ..view.members[1].clone() });
    node.cluster.view = Some(Arc::new(view.clone()));
    let later = View { number: ViewNumber((1 << 62) - 1), ..view.clone() };
    assert!(later.is_sound());
    hear(&mut node, Notice::FullView { view: later, nonce: 0 });
    let has_installed = node.cluster.view.as_deref() != Some(&view);
    !has_installed && !node.cluster.takes_relays_of(CYD)
});

rule!(a_learner_is_relayed_for_itself_alone, RefuseRelayOfLearner, |plant: Plant| {
    let mut node = with_two_more();
    node.cluster.config.nonce = std::num::NonZeroU64::new(7);
    plant(&mut node);
    let me = MemberInfo::new(CYD, ([127, 0, 0, 1], 7503).into());
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    let other = view.members[1].info.clone();
    view.members.push(ViewMember { info: me.clone(), learner: true, ..view.members[1].clone() });
    node.cluster.view = Some(Arc::new(view));
    let mut is_passed_on = |origin: &MemberInfo, from: ProcessId| {
        let packet = Packet::Relay {
            from: Box::new(origin.clone()),
            to: BOB,
            troubled: true,
            heard: None,
            packet: Box::new(Packet::Ack { view: ViewNumber(1), ack: 0, again: false }),
        };
        let mut out = Vec::new();
        node.step(NOW, Input::Received { from, addr: me.addr, packet }, &mut out);
        out.iter().any(|output| {
            matches!(output, Output::Send { process: Some(BOB), packet: Packet::Relay { .. }, .. })
        })
    };
    let elsewhere = MemberInfo { addr: ([127, 0, 0, 1], 7504).into(), ..me.clone() };
    for origin in [other, elsewhere] {
        assert!(!is_passed_on(&origin, CYD), "it speaks for another process or address");
    }
    assert!(!is_passed_on(&MemberInfo::new(ProcessId(9), me.addr), ProcessId(9)), "a stranger");
    is_passed_on(&me, CYD)
});

rule!(a_view_promotes_no_more_learners_than_it_has_voters, PromoteAll, |plant: Plant| {
    let mut node = elder(&plant);
    let joiners = [ANN, BOB].map(|process| {
        let addr = SocketAddr::from(([127, 0, 0, 1], 7500 + process.0 as u16));
        MemberInfo::new(process, addr)
    });
    let hear = |node: &mut Node, me: &MemberInfo, notice: Notice| {
        let (from, addr, packet) = (me.process, me.addr, notice.into());
        node.step(NOW, Input::Received { from, addr, packet }, &mut Vec::new());
        node.cluster.view.as_deref().expect("it has founded").clone()
    };
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    for me in &joiners {
        view = hear(&mut node, me, Notice::Join { me: me.clone(), heard: view.number });
    }
    // Both beat while a proposal is pending.
    let phase = ProposalPhase::PreVoting { willing: BTreeSet::new() };
    let ballot = Ballot { round: 9, process: node.process() };
    node.cluster.votes.proposal = Some(Proposal::new(ballot, phase, Time::MAX));
    for me in &joiners {
        let beat = Notice::Beat { view: view.number, beat: 1, pulse: 0, confirmed: 0, kept: true };
        view = hear(&mut node, me, beat);
    }
    assert_eq!(view.living().filter(|member| member.learner).count(), 2);
    node.cluster.votes.proposal = None;
    node.step(NOW, Input::Timer, &mut Vec::new());
    let view = node.cluster.view.as_deref().expect("it has founded");
    view.living().filter(|member| member.learner).count() == 1
});

rule!(
    a_process_that_lacks_the_version_of_the_view_is_not_taken_in,
    AdmitAnyVersion,
    |plant: Plant| {
        let mut node = lone();
        plant(&mut node);
        let addr = SocketAddr::from(([127, 0, 0, 1], 7500));
        let versions = Versions { lowest: 11, highest: 12 };
        let me = MemberInfo { versions, ..MemberInfo::new(ANN, addr) };
        let view = node.cluster.view.as_deref().expect("it has founded");
        assert!(!view.is_spoken_by(&me));
        let join = Notice::Join { me, heard: view.number };
        let mut out = Vec::new();
        node.step(NOW, Input::Received { from: ANN, addr, packet: join.into() }, &mut out);
        let is_told = notices(&out).iter().any(|notice| matches!(notice, Notice::FullView { .. }));
        is_told && !node.cluster.view.as_deref().expect("it has founded").contains(ANN)
    }
);
