//! Two processes with one identity: the copies of a cloned machine.

use super::short::NodePair;
use super::*;

/// The events of a node that receives `inputs`.
fn events(node: &mut Node, now: Time, inputs: impl IntoIterator<Item = Input>) -> Vec<Event> {
    let mut out = Vec::new();
    for input in inputs {
        node.step(now, input, &mut out);
    }
    let events = out.into_iter().filter_map(|output| match output {
        Output::Event(event) => Some(event),
        _ => None,
    });
    events.collect()
}

/// The member continues beside a copy of itself that sends nothing. Then the copy receives one of
/// the elder's answers to the member, and the member itself receives one, too.
#[test]
fn a_copy_that_is_behind_in_its_beats_ends_and_the_other_goes_on() {
    let mut two = NodePair::new();
    let mut copy = two.nodes[1].clone();
    for _ in 0..20 {
        two.pass(Duration::from_millis(10));
    }
    let me = two.nodes[1].cluster.config.me.process;
    let pulse = loop {
        two.now = two.now + Duration::from_millis(1);
        let mut answers = Vec::new();
        for at in [1, 0] {
            if two.nodes[at].deadline().is_some_and(|due| due <= two.now) {
                two.step(at, Input::Timer);
            }
            while let Some(input) = two.ways[1 - at].front().cloned() {
                answers.push(input);
                two.hear(1 - at);
            }
        }
        let is_pulse = |input: &Input| {
            matches!(input, Input::Received { packet: Packet::Notice(notice), .. }
                if matches!(**notice, Notice::Pulse { renews, .. } if renews > 0))
        };
        if let Some(pulse) = answers.into_iter().find(is_pulse) {
            break pulse;
        }
    };
    let seen = events(&mut copy, two.now, [pulse]);
    assert!(seen.ends_with(&[Event::IdentityTaken, Event::Expelled]), "{seen:?}");
    two.pass(Duration::from_millis(10));
    let view = two.nodes[0].cluster.view.as_ref().expect("it is a member");
    assert!(view.contains(me) && two.nodes[1].is_ready(two.now), "the other one goes on");
}

/// The elder's copy receives a beat that confirms a pulse the copy has not sent.
#[test]
fn a_copy_of_the_elder_that_is_behind_in_its_pulses_ends() {
    let mut two = NodePair::new();
    let mut copy = two.nodes[0].clone();
    for _ in 0..20 {
        two.pass(Duration::from_millis(10));
    }
    let beat = loop {
        two.now = two.now + Duration::from_millis(1);
        if two.nodes[1].deadline().is_some_and(|due| due <= two.now) {
            two.step(1, Input::Timer);
        }
        let is_beat = |input: &Input| {
            matches!(input, Input::Received { packet: Packet::Notice(notice), .. }
                if matches!(**notice, Notice::Beat { .. }))
        };
        if let Some(beat) = two.ways[0].iter().find(|input| is_beat(input)).cloned() {
            break beat;
        }
        two.pass(Duration::ZERO);
    };
    let seen = events(&mut copy, two.now, [beat]);
    assert!(seen.ends_with(&[Event::IdentityTaken, Event::Expelled]), "{seen:?}");
}
