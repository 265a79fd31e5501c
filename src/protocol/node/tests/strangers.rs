//! A process outside the view whose packets name a member, or another process, as their sender.

use super::*;
use crate::protocol::Lineage;
use crate::protocol::id::Slot;
use crate::protocol::message::Affiliation;

const STRANGER: ProcessId = ProcessId(66);

fn elsewhere() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], 66))
}

/// The outputs of a member that hears `notice` from the stranger.
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

/// A later lineage of which the named member is the elder.
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

/// Processes that join and show nothing do not fill the view without end, and the place of one that
/// shows itself is free again.
#[test]
fn a_view_has_few_learners_at_a_time() {
    let mut node = lone();
    let limits = node.cluster.config.limits;
    let (joins, most) = (limits.join.at_once as usize, limits.join.learners as usize);
    let view = |node: &Node| node.cluster.view.as_deref().expect("it has founded").clone();
    let learners = |node: &Node| view(node).members.iter().filter(|member| member.learner).count();
    let joiner = |number: u16| {
        let addr = SocketAddr::from(([127, 0, 0, 1], 8000 + number));
        MemberInfo::new(ProcessId(1000 + u128::from(number)), addr)
    };
    let hear = |node: &mut Node, me: MemberInfo, notice: Notice| {
        let (from, addr, packet) = (me.process, me.addr, notice.into());
        node.step(NOW, Input::Received { from, addr, packet }, &mut Vec::new());
    };
    let join = |node: &mut Node, me: MemberInfo| {
        let heard = view(node).number;
        hear(node, me.clone(), Notice::Join { me, heard });
    };
    for number in 0..(most + 2 * joins) as u16 {
        join(&mut node, joiner(number));
    }
    assert_eq!(learners(&node), most);
    let waiting = joiner((most + 2 * joins) as u16 - 1);
    assert!(!view(&node).contains(waiting.process));
    // The first one shows itself, and gets its vote.
    let number = view(&node).number;
    let beat = Notice::Beat { view: number, beat: 1, pulse: 0, confirmed: 0, kept: true };
    hear(&mut node, joiner(0), beat);
    join(&mut node, waiting);
    assert!(view(&node).number > number);
    assert!(view(&node).member(joiner(0).process).is_some_and(|member| !member.learner));
    assert_eq!(learners(&node), most, "one of those that waited has its place");
}
