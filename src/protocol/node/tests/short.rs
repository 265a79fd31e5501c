//! Short steps: they read only the state that they affect.

use super::*;
use crate::protocol::message::LockRequest;
use std::collections::VecDeque;

/// Two members, and the messages on their way between them, in order.
pub(super) struct NodePair {
    pub(super) nodes: [Node; 2],
    pub(super) ways: [VecDeque<Input>; 2],
    pub(super) now: Time,
    short: usize,
    long: usize,
}

impl NodePair {
    pub(super) fn new() -> NodePair {
        let info = |number: u16| {
            MemberInfo::new(ProcessId(number.into()), ([127, 0, 0, 1], 7400 + number).into())
        };
        let founds = Config { found_alone: true, ..Config::new(info(0), Timing::fast()) };
        let joins = Config { seeds: [info(0).addr].into(), ..Config::new(info(1), Timing::fast()) };
        let nodes = [founds, joins].map(|config| Node::new(config, Time::from_nanos(1)));
        let mut two = NodePair { nodes, ways: Default::default(), now: NOW, short: 0, long: 0 };
        for _ in 0..300 {
            two.pass(Duration::from_millis(10));
        }
        assert!(two.nodes.iter().all(|node| node.is_ready(two.now)), "both have joined");
        two
    }

    /// Lets time pass, and delivers all messages.
    pub(super) fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for at in [0, 1] {
            if self.nodes[at].deadline().is_some_and(|due| due <= self.now) {
                self.step(at, Input::Timer);
            }
        }
        while let Some(at) = (0..2).find(|at| !self.ways[*at].is_empty()) {
            self.hear(at);
        }
    }

    /// Delivers the next message to this node, if there is one.
    pub(super) fn hear(&mut self, at: usize) -> Vec<Output> {
        self.ways[at].pop_front().map(|input| self.step(at, input)).unwrap_or_default()
    }

    /// Makes a step, and returns the outputs that are not messages to the other node. The result
    /// must equal that of a full step.
    pub(super) fn step(&mut self, at: usize, input: Input) -> Vec<Output> {
        let (mut out, node) = (Vec::new(), &mut self.nodes[at]);
        let is_heard = matches!(input, Input::Received { .. });
        let (mut twin, mut other) = (node.clone(), Vec::new());
        twin.quiet_until = QuietUntil(Some(Time::ZERO)); // forces a full step
        twin.step(self.now, input.clone(), &mut other);
        node.step(self.now, input, &mut out);
        assert_eq!(out, other);
        assert_eq!(*node, twin);
        let [wake_by, due] = [node.wake_by(), node.deadline()].map(|at| at.unwrap_or(Time::MAX));
        assert!(wake_by <= due, "it would be woken too late");
        match node.quiet_until {
            QuietUntil(Some(_)) => self.short += usize::from(is_heard),
            QuietUntil(None) => self.long += 1,
        }
        let me = node.cluster.config.me.clone();
        out.retain(|output| {
            let Output::Send { packet, .. } = output else { return true };
            self.ways[1 - at].push_back(Input::Received {
                from: me.process,
                addr: me.addr,
                packet: packet.clone(),
            });
            false
        });
        out
    }
}

#[test]
fn a_short_step_comes_to_the_same_as_a_full_step() {
    let mut two = NodePair::new();
    let names = names(4);
    let mut open: [Vec<RequestId>; 2] = Default::default();
    let (mut next, mut granted, mut draw) = (1, 0, draws());
    (two.short, two.long) = (0, 0);
    for _ in 0..20_000 {
        let at = draw(2);
        let told = match draw(8) {
            // Here time passes without the timers.
            0 if draw(2) == 0 => {
                two.now = two.now + Duration::from_micros(100 * draw(30) as u64);
                Vec::new()
            }
            0 => {
                two.pass(Duration::from_micros(100 * draw(30) as u64));
                Vec::new()
            }
            1 | 2 if open[at].len() < 6 => {
                let (request, service, metadata) =
                    (RequestId(next), service(), Metadata::default());
                let (want, owner) = (Want::Lock(names[draw(4)].clone()), OwnerId(draw(3) as u64));
                let wait =
                    [Wait::Forever, Wait::Try, Wait::AtMost(Duration::from_millis(1))][draw(3)];
                let lease = [None, Some(Duration::from_millis(2))][draw(2)];
                next += 1;
                open[at].push(request);
                let lock = Command::Lock {
                    detects: false,
                    keeps: false,
                    follows: false,
                    request,
                    service,
                    wait,
                    lease,
                    lock: LockRequest { want, owner, revocable: false, metadata },
                };
                two.step(at, Input::Command(lock))
            }
            3 if !open[at].is_empty() => {
                let request = open[at].swap_remove(draw(open[at].len()));
                two.step(at, Input::Command(Command::Release { request }))
            }
            _ => two.hear(at),
        };
        granted += told
            .iter()
            .filter(|output| {
                matches!(output, Output::Answer { outcome: Outcome::Granted { .. }, .. })
            })
            .count();
    }
    let NodePair { short, long, .. } = two;
    assert!(
        short > 3000 && long > 500 && granted > 500,
        "{short} short, {long} long, {granted} granted"
    );
}
