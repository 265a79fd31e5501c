//! Claims to the votes of others: some count, and some are refused.

use super::*;
use crate::protocol::cluster::decision::{Proposal, ProposalPhase};
use crate::protocol::cluster::vote_successor::{StoredVote, StoredVoter};
use crate::protocol::message::{Affiliation, Ballot};
use crate::protocol::vote_claim::VoteClaim;
use crate::protocol::vote_key::{VoteProof, VoteSecret};
use crate::protocol::{Change, Lineage, ViewNumber};

const ANNS: VoteSecret = VoteSecret::new([1; 32]);
const OTHER: VoteSecret = VoteSecret::new([2; 32]);

/// The information of the vote successor, or of another process.
fn info(process: u128) -> MemberInfo {
    let addr = SocketAddr::from(([127, 0, 0, 1], 7400 + process as u16));
    MemberInfo::new(ProcessId(process), addr)
}

/// A member that asks for promises. Its view has two more members: one stores its vote, the other
/// does not.
fn member() -> (Node, View, Ballot) {
    let mut node = with_two_more();
    let mut view = node.cluster.view.as_deref().expect("it has founded").clone();
    for (member, port) in view.members.iter_mut().zip(7400..) {
        member.info.addr.set_port(port);
        if member.info.process == ANN {
            member.info.vote_key = Some(ANNS.key());
        }
    }
    node.cluster.view = Some(Arc::new(view.clone()));
    let ballot = Ballot { round: 1, process: node.process() };
    let phase = ProposalPhase::Preparing { promises: BTreeMap::new(), quorum_at: None };
    node.cluster.votes.proposal = Some(Proposal::new(ballot, phase, Time::MAX));
    (node, view, ballot)
}

fn hello(me: &MemberInfo, claim: &VoteClaim, view: (&View, ViewNumber)) -> Packet {
    let (lineage, number) = (view.0.lineage, view.1);
    let belonging = Affiliation::VoteSuccessor { claim: claim.clone(), lineage, view: number };
    Notice::Hello { me: me.clone(), asked: me.addr, belonging, nonce: 0 }.into()
}

/// Sends a hello and a promise with this claim from a process. Returns the outputs, whether the
/// vote successor is remembered, and whether the promise counts.
fn heard(from: ProcessId, me: &MemberInfo, claim: &VoteClaim) -> (Vec<Output>, bool, bool) {
    let (mut node, view, ballot) = member();
    let promise = Notice::Promise { instance: view.number.next(), ballot, accepted: None };
    let promise = Packet::VoteSuccessor {
        claim: Box::new(claim.clone()),
        me: Box::new(me.clone()),
        lineage: view.lineage,
        notice: Box::new(promise),
    };
    let mut out = Vec::new();
    for packet in [hello(me, claim, (&view, view.number)), promise] {
        node.step(NOW, Input::Received { from, addr: me.addr, packet }, &mut out);
    }
    let is_remembered = node.cluster.votes.successors.of(claim.voter).is_some();
    let counts = match &node.cluster.votes.proposal {
        Some(Proposal { phase: ProposalPhase::Preparing { promises, .. }, .. }) => {
            promises.contains_key(&claim.voter)
        }
        _ => false,
    };
    (out, is_remembered, counts)
}

/// The number of reports that `from` was refused a vote.
fn refusals(out: &[Output], voter: ProcessId, from: ProcessId) -> usize {
    let refused = Output::Event(Event::VoteClaimRefused { voter, from });
    out.iter().filter(|output| **output == refused).count()
}

/// The number of answers that `from` gets to its claim. Every hello gets a reply.
fn answers(out: &[Output], from: ProcessId) -> usize {
    let is_answer = |output: &&Output| match output {
        Output::Send { process: Some(process), packet: Packet::Notice(notice), .. } => {
            *process == from && !matches!(**notice, Notice::HelloReply { .. })
        }
        _ => false,
    };
    out.iter().filter(is_answer).count()
}

#[test]
fn a_vote_is_claimed_with_the_secret_of_its_voter() {
    let (_, view, _) = member();
    let me = info(9);
    let claim = VoteClaim::new(&ANNS, ANN, view.lineage, &me);
    let (out, is_remembered, counts) = heard(me.process, &me, &claim);
    assert!(is_remembered && counts);
    assert_eq!(refusals(&out, ANN, me.process), 0);
}

#[test]
fn a_claim_without_the_secret_is_refused_and_reported() {
    let (_, view, _) = member();
    let (me, thief) = (info(9), info(10));
    let right = VoteClaim::new(&ANNS, ANN, view.lineage, &me);
    let with_other = |voter| VoteClaim::new(&OTHER, voter, view.lineage, &me);
    let key_as_proof = VoteProof::new([*ANNS.key().as_bytes(); 2]);
    for (what, from, me, claim) in [
        ("another secret", &me, &me, with_other(ANN)),
        ("a key as proof", &me, &me, VoteClaim { voter: ANN, proof: key_as_proof }),
        ("a copied claim", &thief, &thief, right.clone()),
        ("a copied claim with its process", &thief, &me, right.clone()),
        ("a claim to another vote", &me, &me, VoteClaim { voter: BOB, ..right }),
        ("a vote without a secret", &me, &me, with_other(BOB)),
    ] {
        let (out, is_remembered, counts) = heard(from.process, me, &claim);
        assert!(!is_remembered && !counts, "{what}");
        assert_eq!(refusals(&out, claim.voter, from.process), 2, "{what}");
        assert_eq!(answers(&out, from.process), 0, "{what}: {out:?}");
    }
}

/// The view is sent to the vote successor of a voter with an older view, and to no other process
/// that claims its vote.
#[test]
fn a_refused_claim_in_an_older_view_is_not_answered() {
    let (node, view, _) = member();
    let me = info(9);
    let answered = |secret: &VoteSecret| {
        let claim = VoteClaim::new(secret, ANN, view.lineage, &me);
        let packet = hello(&me, &claim, (&view, ViewNumber(view.number.0 - 1)));
        let mut out = Vec::new();
        let (from, addr) = (me.process, me.addr);
        node.clone().step(NOW, Input::Received { from, addr, packet }, &mut out);
        answers(&out, me.process)
    };
    assert_eq!((answered(&ANNS), answered(&OTHER)), (1, 0));
}

/// The answers at the addresses of the other founders decide whether a lost founding is abandoned.
#[test]
fn a_vote_successor_of_a_first_view_remembers_no_refused_claim() {
    let (_, view, _) = member();
    let infos = view.members.iter().map(|member| member.info.clone());
    let founders: Vec<MemberInfo> = infos.collect();
    let voter = StoredVoter { process: founders[0].process, secret: OTHER };
    let first = View::first(Slot(view.number.0), founders.clone(), view.timing, 7);
    let stored = StoredVote {
        voter,
        view: first.clone(),
        acceptor: Default::default(),
        successors: Vec::new(),
        is_established: false,
    };
    let anns = first.member(ANN).expect("a founder").info.addr;
    let me = MemberInfo { addr: anns, ..info(11) };
    let is_remembered = |secret: &VoteSecret| {
        let own = MemberInfo { addr: founders[0].addr, ..info(12) };
        let config = Config {
            vote_secret: Some(VoteSecret::new([3; 32])),
            stored: Some(stored.clone()),
            seeds: founders.iter().map(|info| info.addr).collect(),
            ..Config::new(own, Timing::fast())
        };
        let mut node = Node::new(config, Time::from_nanos(1));
        let claim = VoteClaim::new(secret, ANN, first.lineage, &me);
        let packet = hello(&me, &claim, (&first, first.number));
        let (from, addr) = (me.process, me.addr);
        for input in
            [Input::Timer, Input::Stored { number: 1 }, Input::Received { from, addr, packet }]
        {
            node.step(NOW, input, &mut Vec::new());
        }
        let MemberPhase::Discovery(discovery) = &node.cluster.phase else { panic!("in discovery") };
        discovery.answer_from(anns).is_some()
    };
    assert!(is_remembered(&ANNS));
    assert!(!is_remembered(&OTHER));
}

/// Any process can ask that another one joins, and name a key for it.
#[test]
fn a_joiner_gives_itself_up_if_its_view_has_another_key_of_its_own() {
    let (_, view, _) = member();
    let me = MemberInfo { vote_key: Some(ANNS.key()), ..info(9) };
    let event_for = |vote_key| {
        let config = Config { vote_secret: Some(ANNS), ..Config::new(me.clone(), Timing::fast()) };
        let mut node = Node::new(Config { clock: Slot(view.first_slot.0), ..config }, NOW);
        let join = vec![MemberInfo { vote_key, ..me.clone() }];
        let next = view.next(&Change { join, ..Change::default() });
        let elder = view.elder();
        let packet = Notice::full_view(&next).into();
        let (from, addr) = (elder.process, elder.addr);
        let mut out = Vec::new();
        node.step(NOW, Input::Received { from, addr, packet }, &mut out);
        out.into_iter().find_map(|output| match output {
            Output::Event(event) => Some(event),
            _ => None,
        })
    };
    assert!(matches!(event_for(Some(ANNS.key())), Some(Event::ViewInstalled(_))));
    for other in [Some(OTHER.key()), None] {
        assert_eq!(event_for(other), Some(Event::Abandoned));
    }
}

/// The first view has the keys of all founders' votes.
#[test]
fn a_founder_agrees_to_no_view_with_another_key_of_its_own() {
    let me = MemberInfo { vote_key: Some(ANNS.key()), ..info(9) };
    let coordinator = info(8);
    let agrees = |vote_key| {
        let config = Config {
            vote_secret: Some(ANNS),
            seeds: [coordinator.addr, me.addr].into(),
            ..Config::new(me.clone(), Timing::fast())
        };
        let mut node = Node::new(config, Time::from_nanos(1));
        let founders = vec![coordinator.clone(), MemberInfo { vote_key, ..me.clone() }];
        let view = View::first(Slot(900), founders, Timing::fast(), 7);
        let packet = Notice::Found { attempt: 1, view }.into();
        let (from, addr) = (coordinator.process, coordinator.addr);
        let mut out = Vec::new();
        node.step(NOW, Input::Received { from, addr, packet }, &mut out);
        let is_yes = |output: &Output| {
            matches!(output, Output::Send { packet: Packet::Notice(notice), .. }
                if matches!(**notice, Notice::FoundOk { .. }))
        };
        out.iter().any(is_yes)
    };
    assert!(agrees(Some(ANNS.key())));
    assert!(!agrees(Some(OTHER.key())) && !agrees(None));
}

/// A promise with an accepted change binds the candidate to it, and a refusal makes the candidate
/// try a higher ballot.
#[test]
fn an_answer_of_a_process_without_a_vote_does_not_count() {
    let (mut node, view, ballot) = member();
    let instance = view.number.next();
    let stranger = info(66);
    let remove = [BOB].into();
    let change = Change { remove, ..Change::default() };
    let highest = Ballot { round: u32::MAX, process: stranger.process };
    let before = node.cluster.votes.clone();
    let mut out = Vec::new();
    for notice in [
        Notice::Nack { instance, promised: Ballot { round: 1000, process: stranger.process } },
        Notice::Promise { instance, ballot, accepted: Some((highest, change)) },
        Notice::PreVoteReply { instance, ballot, willing: true },
        Notice::Accepted { instance, ballot },
    ] {
        let (from, addr, packet) = (stranger.process, stranger.addr, notice.into());
        node.step(NOW, Input::Received { from, addr, packet }, &mut out);
    }
    assert_eq!(node.cluster.votes, before);
    assert_eq!(out, []);
}

/// The view would overwrite the successor's vote, and with it the lineage that the vote can
/// continue.
#[test]
fn a_vote_successor_takes_no_view_of_another_lineage_from_a_stranger() {
    let (_, view, _) = member();
    let voter = StoredVoter { process: ANN, secret: ANNS };
    let stored = StoredVote {
        voter,
        view: view.clone(),
        acceptor: Default::default(),
        successors: Vec::new(),
        is_established: true,
    };
    let me = info(12);
    let config = Config {
        vote_secret: Some(VoteSecret::new([3; 32])),
        stored: Some(stored),
        seeds: [view.elder().addr].into(),
        nonce: std::num::NonZeroU64::new(7),
        clock: view.first_slot,
        ..Config::new(me.clone(), Timing::fast())
    };
    let stranger = info(66);
    let key = VoteSecret::new([3; 32]).key();
    let own = MemberInfo { vote_key: Some(key), ..me };
    let forged =
        View::first(Slot(view.first_slot.0 + 1), vec![own, stranger.clone()], view.timing, 7);
    let mut node = Node::new(config, Time::from_nanos(1));
    let mut out = Vec::new();
    let packet = Notice::full_view(&forged).into();
    let (from, addr) = (stranger.process, stranger.addr);
    for input in [Input::Timer, Input::Stored { number: 1 }, Input::Received { from, addr, packet }]
    {
        node.step(Time::from_nanos(2), input, &mut out);
    }
    let is_installed = |output: &Output| matches!(output, Output::Event(Event::ViewInstalled(_)));
    assert!(!out.iter().any(is_installed), "{out:?}");
    let successor = node.cluster.votes.successor.as_ref().expect("it has the vote still");
    assert_eq!(successor.view.lineage, view.lineage);
}

/// Neither a forged greeting of a cluster far in the future nor a forged view ends a process that
/// seeks a cluster.
#[test]
fn an_unproven_word_does_not_end_a_process_in_no_view() {
    let (_, view, _) = member();
    let (me, stranger) = (info(12), info(66));
    let config = Config {
        seeds: [view.elder().addr].into(),
        nonce: std::num::NonZeroU64::new(7),
        clock: view.first_slot,
        ..Config::new(me.clone(), Timing::fast())
    };
    let founded = Slot(view.first_slot.0 + Slot::PER_SECOND * 7200);
    let lineage = Lineage { founded, founder: stranger.process };
    let belonging = Affiliation::Member {
        lineage,
        view: ViewNumber(founded.0),
        elder: stranger.clone(),
        version: view.version,
        led: true,
        kept: true,
        settled: true,
    };
    let mut used_up = view.clone();
    used_up.departed.push((me.process, view.number));
    let asked = view.elder().addr;
    let mut node = Node::new(config, Time::from_nanos(1));
    let mut out = Vec::new();
    for notice in [
        Notice::Hello {
            me: stranger.clone(),
            asked: me.addr,
            belonging: belonging.clone(),
            nonce: 0,
        },
        Notice::HelloReply { me: stranger.clone(), asked, belonging, nonce: 0 },
        Notice::full_view(&used_up),
    ] {
        let (from, addr, packet) = (stranger.process, stranger.addr, notice.into());
        node.step(Time::from_nanos(2), Input::Received { from, addr, packet }, &mut out);
    }
    let events: Vec<_> = out.iter().filter(|output| matches!(output, Output::Event(_))).collect();
    assert!(events.is_empty(), "{events:?}");
    assert!(matches!(node.cluster.phase, MemberPhase::Discovery(_)));
}
