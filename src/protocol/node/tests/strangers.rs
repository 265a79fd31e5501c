//! A process outside the view whose packets name a member, or another process, as the sender.

use super::*;
use crate::protocol::Lineage;
use crate::protocol::id::Slot;
use crate::protocol::message::Affiliation;

const STRANGER: ProcessId = ProcessId(66);

fn elsewhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 66))
}

/// The outputs of a member that receives `notice` from the stranger.
fn heard(notice: impl Fn(&Node) -> Notice) -> Vec<Output> {
    let mut node = with_two_more();
    let before = node.cluster.view.clone();
    let packet = notice(&node).into();
    let mut out = Vec::new();
    node.step(NOW, Input::Received { from: STRANGER, addr: elsewhere(), packet }, &mut out);
    assert!(node.cluster.view.is_some() && node.cluster.view == before);
    out
}

/// A member, as the stranger describes it.
fn ann() -> MemberInfo {
    MemberInfo::new(ANN, elsewhere())
}

/// A later lineage whose elder is the named member.
fn later(node: &Node) -> Affiliation {
    let mine = node.cluster.view.as_ref().expect("it has founded");
    let founded = Slot(mine.lineage.founded.0 + 1);
    let lineage = Lineage { founded, ..mine.lineage };
    let view = mine.number.next();
    let elder = ann();
    Affiliation::Member { lineage, view, elder, version: 0, led: true, kept: true, settled: true }
}

fn is_to_stranger(output: &Output) -> bool {
    matches!(output, Output::Send { process: Some(STRANGER), .. })
}

#[test]
fn a_stranger_that_names_a_member_ends_no_membership() {
    let hello = |node: &Node| {
        let belonging = later(node);
        Notice::Hello { me: ann(), asked: elsewhere(), belonging, nonce: 0 }
    };
    let reply = |node: &Node| {
        let belonging = later(node);
        Notice::HelloReply { me: ann(), asked: elsewhere(), belonging, nonce: 0 }
    };
    let out = heard(hello);
    assert!(out.iter().all(is_to_stranger), "{out:?}");
    assert_eq!(heard(reply), []);
}

#[test]
fn no_member_dials_an_address_that_a_stranger_gives_for_another_process() {
    for process in [ANN, ProcessId(67)] {
        let join = |node: &Node| {
            let heard = node.cluster.view.as_ref().expect("it has founded").number;
            Notice::Join { me: MemberInfo { process, ..ann() }, heard }
        };
        assert_eq!(heard(join), []);
        let seeking = |_: &Node| {
            let belonging = Affiliation::Discovery { seeds: [elsewhere()].into(), bound: false };
            let me = MemberInfo { process, ..ann() };
            Notice::Hello { me, asked: elsewhere(), belonging, nonce: 0 }
        };
        let out = heard(seeking);
        assert!(out.iter().all(is_to_stranger), "{out:?}");
    }
}

/// Joins and leaves as the process with this number. Returns how many views the member installs.
fn join_and_leave(node: &mut Node, number: u128, now: Time) -> usize {
    let info = MemberInfo::new(ProcessId(number), elsewhere());
    let heard = node.cluster.view.as_ref().expect("it has founded").number;
    let mut out = Vec::new();
    for notice in [Notice::Join { me: info.clone(), heard }, Notice::Leave] {
        let (from, addr, packet) = (info.process, info.addr, notice.into());
        node.step(now, Input::Received { from, addr, packet }, &mut out);
    }
    let is_view = |output: &&Output| matches!(output, Output::Event(Event::ViewInstalled(_)));
    out.iter().filter(is_view).count()
}

#[test]
fn processes_that_join_and_leave_again_and_again_make_few_views() {
    let mut node = lone();
    let views = |node: &mut Node, numbers: std::ops::Range<u128>, now: Time| {
        numbers.map(|number| join_and_leave(node, number, now)).sum::<usize>()
    };
    assert_eq!(views(&mut node, 100..101, NOW), 2, "one joins, and leaves");
    let made = views(&mut node, 200..1200, NOW);
    assert!((2 * 60..=2 * 64).contains(&made), "{made}");
    let later = NOW + node.cluster.config.timing.retry / 4;
    let made = views(&mut node, 1200..2200, later);
    assert!((1..=2).contains(&made), "{made}");
}
