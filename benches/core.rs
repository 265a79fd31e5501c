//! What the pure core takes on the way of every lock: no socket, no task and no clock, so it is the core's time alone.
//!
//! - node: lock and release of a free lock at its grantor, alone and among many that are held; and a release that grants the
//!   lock to the next of many who wait.
//! - frame: the request for a lock, and its grant, to bytes and back.
//!
//! `elderlock bench` measures what all of that comes to with sockets and tasks, beside floors.

use criterion::{Criterion, Throughput};
use elderlock::protocol::{
    Command, Config, Epoch, Input, LockName, MemberInfo, Message, Metadata, Node, Output, Owner, Packet, ProcessId,
    RequestId, ServiceName, Time, Timing, Token, ViewNumber, Wait, Want,
};
use elderlock::wire::{Decoder, Frame, encode};
use std::collections::VecDeque;
use std::hint::black_box;

/// When everything happens.
const NOW: Time = Time::from_nanos(10_000_000_000);
/// Locks that are held beside, and requests that wait.
const MANY: u32 = 100_000;

fn main() {
    let mut criterion = Criterion::default().configure_from_args();
    free(&mut criterion);
    next_in_line(&mut criterion);
    frames(&mut criterion);
    criterion.final_summary();
}

fn free(criterion: &mut Criterion) {
    for held in [0, MANY] {
        let mut grantor = Grantor::new();
        for number in 0..held {
            grantor.lock(&name(2 * number));
        }
        let mut turn = 0_u32;
        criterion.bench_function(&format!("node/free lock and release, {held} held"), |bench| {
            bench.iter(|| {
                // Knuth's multiplier: as good as chance, and the same each time.
                turn = turn.wrapping_add(1);
                let request = grantor.lock(&name(2 * (turn.wrapping_mul(2_654_435_761) % MANY) + 1));
                grantor.release(request);
            });
        });
    }
}

fn next_in_line(criterion: &mut Criterion) {
    for waiting in [100, MANY] {
        let (mut grantor, wanted) = (Grantor::new(), name(0));
        let mut line: VecDeque<RequestId> = (0..=waiting).map(|_| grantor.lock(&wanted)).collect();
        criterion.bench_function(&format!("node/release to the next of {waiting}"), |bench| {
            bench.iter(|| {
                let holder = line.pop_front().expect("the one who had the lock stands at the end again");
                grantor.release(holder);
                line.push_back(grantor.lock(&wanted));
            });
        });
        assert!(grantor.node.granted(line[0]).is_some(), "whoever is first holds the lock");
    }
}

fn frames(criterion: &mut Criterion) {
    let (service, epoch) = (service(), Epoch(Token::new(ViewNumber(1), 1)));
    let (request, owner, metadata) = (RequestId(7), Owner::default(), Metadata::default());
    let want = Want::Lock(name(1));
    let ask = Message::Ask {
        service: service.clone(),
        epoch,
        request,
        want,
        owner,
        only_if_free: false,
        revocable: false,
        metadata,
    };
    let grant = Message::Grant { service, epoch, request, token: Token::new(ViewNumber(1), 2) };
    for (what, message) in [("request", ask), ("grant", grant)] {
        let frame = Frame::Packet(Packet::Linked { view: ViewNumber(1), seq: 1, ack: 1, message });
        let mut bytes = Vec::new();
        encode(&frame, &mut bytes).expect("a short frame");
        let mut group = criterion.benchmark_group("frame");
        group.throughput(Throughput::Bytes(bytes.len() as u64));
        let mut out = Vec::new();
        group.bench_function(format!("encode a {what}"), |bench| {
            bench.iter(|| {
                out.clear();
                encode(black_box(&frame), &mut out).expect("it was encoded before");
            });
        });
        let mut decoder = Decoder::new();
        decoder.open();
        group.bench_function(format!("decode a {what}"), |bench| {
            bench.iter(|| {
                decoder.back().extend_from_slice(black_box(&bytes));
                black_box(decoder.next().expect("what was encoded")).expect("all of it");
            });
        });
        group.finish();
    }
}

/// A member that has founded a cluster of its own, and grants.
struct Grantor {
    node: Node,
    requests: u64,
    out: Vec<Output>,
}

impl Grantor {
    fn new() -> Grantor {
        let me = MemberInfo { process: ProcessId(7), addr: ([127, 0, 0, 1], 7400).into(), host: None };
        let config = Config { found_alone: true, ..Config::new(me, Timing::fast()) };
        let mut node = Node::new(config, Time::from_nanos(1));
        while let Some(due) = node.deadline().filter(|due| *due < NOW) {
            node.step(due, Input::Timer, &mut Vec::new());
        }
        assert!(node.is_ready(NOW), "it founds at once");
        let mut grantor = Grantor { node, requests: 0, out: Vec::new() };
        // The first request makes it the grantor.
        let first = grantor.lock(&name(0));
        assert!(grantor.node.granted(first).is_some(), "it grants");
        grantor.release(first);
        grantor
    }

    fn lock(&mut self, name: &LockName) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.command(Command::Lock {
            request,
            service: service(),
            want: Want::Lock(name.clone()),
            owner: Owner::default(),
            wait: Wait::Forever,
            lease: None,
            revocable: false,
            metadata: Metadata::default(),
        });
        request
    }

    fn release(&mut self, request: RequestId) {
        self.command(Command::Release { request });
    }

    fn command(&mut self, command: Command) {
        self.out.clear();
        self.node.step(NOW, Input::Command(command), &mut self.out);
        black_box(&self.out);
    }
}

fn service() -> ServiceName {
    ServiceName::new("bench").expect("a good name")
}

/// 16 bytes, in the order of the numbers.
fn name(number: u32) -> LockName {
    LockName::new(format!("name-{number:011}").as_bytes()).expect("a good name")
}
