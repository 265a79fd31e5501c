//! A member that is greeted or answered by a member of another lineage.

use super::*;
use crate::protocol::cluster::decision::Acceptor;
use crate::protocol::cluster::vote_successor::{StoredVote, StoredVoter};
use crate::protocol::event::LedMember;
use crate::protocol::id::Slot;
use crate::protocol::message::Affiliation;
use crate::protocol::vote_key::VoteSecret;
use crate::protocol::{Lineage, ViewNumber};
use std::num::NonZeroU64;

const RIVAL: ProcessId = ProcessId(66);

fn rival_at(port: u16) -> MemberInfo {
    MemberInfo::new(RIVAL, SocketAddr::from(([127, 0, 0, 1], port)))
}

/// The affiliation of the rival: its lineage was founded `after` slots after that of `node`.
fn affiliation(node: &Node, after: i64, led: bool) -> Affiliation {
    let mine = node.cluster.view.as_ref().expect("it has founded").lineage;
    let founded = Slot(mine.founded.0.checked_add_signed(after).expect("a slot"));
    let lineage = Lineage { founded, founder: if after == 0 { mine.founder } else { RIVAL } };
    let (view, elder) = (ViewNumber(9), rival_at(66));
    Affiliation::Member { lineage, view, elder, version: 0, led, kept: true, settled: true }
}

/// The events of a member that receives a hello of the rival. Without `believes` it believes no
/// stranger.
fn events(port: u16, belonging: impl Fn(&Node) -> Affiliation, believes: bool) -> Vec<Event> {
    let mut node = with_two_more();
    node.cluster.config.nonce = NonZeroU64::new(u64::from(!believes));
    let (me, belonging) = (rival_at(port), belonging(&node));
    let (addr, asked) = (me.addr, me.addr);
    let packet = Notice::Hello { me, asked, belonging, nonce: 0 }.into();
    let mut out = Vec::new();
    node.step(NOW, Input::Received { from: RIVAL, addr, packet }, &mut out);
    let events = out.into_iter().filter_map(|output| match output {
        Output::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

#[test]
fn a_led_member_of_another_lineage_is_reported() {
    for (after, believes) in [(-1, true), (-1, false), (1, false)] {
        let told = events(66, |node| affiliation(node, after, true), believes);
        let [Event::OtherLineage(other)] = &told[..] else { panic!("{after}: {told:?}") };
        let LedMember { info, lineage, view, elder } = &**other;
        assert_eq!((info, elder, *view), (&rival_at(66), &rival_at(66), ViewNumber(9)));
        assert_eq!(lineage.founder, RIVAL);
    }
}

#[test]
fn members_that_are_no_second_cluster_are_not_reported() {
    let seeks = |_: &Node| Affiliation::Discovery { seeds: BTreeSet::new(), bound: false };
    let own_port = lone().cluster.config.me.addr.port();
    for (what, told) in [
        ("it seeks", events(66, seeks, true)),
        ("it has no elder", events(66, |node| affiliation(node, -1, false), true)),
        ("it is of the same lineage", events(66, |node| affiliation(node, 0, true), true)),
        ("its address is a member's", events(own_port, |node| affiliation(node, -1, true), true)),
    ] {
        assert_eq!(told, [], "{what}");
    }
    let followed = events(66, |node| affiliation(node, 1, true), true);
    assert_eq!(followed, [Event::Expelled], "the member follows the later lineage");
}

/// A process in discovery, with an answer of the rival.
fn answered(led: bool) -> Node {
    let belonging = affiliation(&lone(), -1, led);
    let (rival, me) = (rival_at(66), MemberInfo::new(ProcessId(8), ([127, 0, 0, 1], 8).into()));
    let seeds = [me.addr, rival.addr].into();
    let mut node = Node::new(Config { seeds, ..Config::new(me, Timing::fast()) }, NOW);
    let (addr, asked) = (rival.addr, rival.addr);
    let packet = Notice::HelloReply { me: rival, asked, belonging, nonce: 0 }.into();
    node.step(NOW, Input::Received { from: RIVAL, addr, packet }, &mut Vec::new());
    node
}

#[test]
fn a_process_that_knows_a_cluster_with_an_elder_is_not_forced() {
    let is_forced = |led| {
        let mut out = Vec::new();
        answered(led).step(NOW, Input::Command(Command::Force), &mut out);
        out.contains(&Output::Event(Event::Forced))
    };
    assert_eq!([true, false].map(is_forced), [false, true]);
}

/// The former process of a directory knew a view of three members. The start of the next one is
/// forced.
#[test]
fn a_forced_start_asks_the_voters_of_its_directory_and_stores_nothing_before_it_is_forced() {
    let secret = VoteSecret::new([1; 32]);
    let mut view = with_two_more().cluster.view.as_deref().expect("it has founded").clone();
    for (member, port) in view.members.iter_mut().zip(7400..) {
        member.info.addr.set_port(port);
    }
    let others: BTreeSet<SocketAddr> =
        view.members.iter().map(|member| member.info.addr).skip(1).collect();
    let me = MemberInfo { process: ProcessId(8), ..view.members[0].info.clone() };
    let stored = StoredVote {
        voter: StoredVoter { process: view.members[0].info.process, secret: secret.clone() },
        view,
        acceptor: Acceptor::default(),
        successors: Vec::new(),
        is_established: true,
    };
    let mut config = Config { forced_start: true, ..Config::new(me, Timing::fast()) };
    (config.vote_secret, config.stored) = (Some(secret), Some(stored));
    let mut node = Node::new(config, NOW);
    let mut out = Vec::new();
    node.step(NOW, Input::Timer, &mut out);
    let asked = out.iter().filter_map(|output| match output {
        Output::Send { to, .. } => Some(*to),
        _ => None,
    });
    assert_eq!(asked.collect::<BTreeSet<_>>(), others);
    while !out.contains(&Output::Event(Event::Forced)) {
        let is_stored = out.iter().any(|output| matches!(output, Output::Store { .. }));
        assert!(!is_stored, "{out:?}");
        node.step(node.deadline().expect("it listens"), Input::Timer, &mut out);
    }
}
