//! The common parts of the benches of the core: a grantor, names, and the frames of a lock from
//! another member.

use elderlock::protocol::{
    ClientMessage, Command, Config, Epoch, GrantorMessage, Input, KeptUse, LockName, LockRequest,
    MemberInfo, Message, Metadata, Node, Outcome, Output, OwnerId, Packet, ProcessId, RequestId,
    ServiceName, Slot, Time, Timing, Token, ViewNumber, Wait, Want,
};
use elderlock::wire::{Decoder, Frame, PROTOCOL_VERSION, encode};
use std::collections::VecDeque;
use std::hint::black_box;
use std::time::Duration;

/// When everything happens.
const NOW: Time = Time::from_nanos(10_000_000_000);
/// Locks that are held beside, and requests that wait.
pub(crate) const MANY: u32 = 100_000;

/// A member that has founded a cluster of its own, and grants.
pub(crate) struct Grantor {
    node: Node,
    service: ServiceName,
    requests: u64,
    out: Vec<Output>,
}

impl Grantor {
    pub(crate) fn new() -> Grantor {
        let me = MemberInfo::new(ProcessId(7), ([127, 0, 0, 1], 7400).into());
        let config = Config { found_alone: true, ..Config::new(me, Timing::fast()) };
        let mut node = Node::new(config, Time::from_nanos(1));
        while let Some(due) = node.deadline().filter(|due| *due < NOW) {
            node.step(due, Input::Timer, &mut Vec::new());
        }
        assert!(node.is_ready(NOW), "it founds at once");
        let mut grantor = Grantor { node, service: service(), requests: 0, out: Vec::new() };
        // The first request makes it the grantor.
        let first = grantor.lock(&name(0));
        assert!(grantor.node.granted(first).is_some(), "it grants");
        grantor.release(first);
        grantor
    }

    /// Returns a grantor with `held` locks held, none of them [free](free_names).
    pub(crate) fn beside(held: u32) -> Grantor {
        let mut grantor = Grantor::new();
        for number in 0..held {
            grantor.lock(&name(2 * number));
        }
        grantor
    }

    pub(crate) fn lock(&mut self, name: &LockName) -> RequestId {
        self.requests += 1;
        let request = RequestId(self.requests);
        self.command(locking(request, &self.service, name, false));
        request
    }

    pub(crate) fn release(&mut self, request: RequestId) {
        self.command(Command::Release { request });
    }

    /// Returns whether a lock may be taken without a step.
    pub(crate) fn offers(&self, name: &LockName) -> bool {
        self.node.offer(NOW, (&self.service, name), false).is_some()
    }

    /// Enters `spent` tokens that were used for locks, which are released again.
    pub(crate) fn absorb(&mut self, spent: u64) {
        self.node.absorb(&self.service, spent, []);
    }

    fn command(&mut self, command: Command) {
        self.out.clear();
        self.node.step(NOW, Input::Command(command), &mut self.out);
        black_box(&self.out);
    }
}

/// One lock, its holder and its waiters.
pub(crate) struct Line {
    grantor: Grantor,
    wanted: LockName,
    line: VecDeque<RequestId>,
}

impl Line {
    pub(crate) fn new(waiting: u32) -> Line {
        let (mut grantor, wanted) = (Grantor::new(), name(0));
        let line = (0..=waiting).map(|_| grantor.lock(&wanted)).collect();
        Line { grantor, wanted, line }
    }

    /// The holder releases, the next one is granted, and the former holder waits at the end again.
    pub(crate) fn turn(&mut self) {
        let holder = self.line.pop_front().expect("the last holder stands at the end again");
        self.grantor.release(holder);
        self.line.push_back(self.grantor.lock(&self.wanted));
    }

    pub(crate) fn check(&self) {
        assert!(
            self.grantor.node.granted(self.line[0]).is_some(),
            "the first in the line holds the lock"
        );
    }
}

/// Two members: one grants, the other asks it for locks and releases them. Their messages go as
/// bytes.
pub(crate) struct Pair {
    grantor: Node,
    other: Node,
    service: ServiceName,
    keeps: bool,
    requests: u64,
    bytes: Vec<u8>,
    decoder: Decoder,
    out: Vec<Output>,
}

impl Pair {
    pub(crate) fn new() -> Pair {
        let grantor = Grantor::new();
        let me = MemberInfo::new(ProcessId(8), ([127, 0, 0, 1], 7401).into());
        let seeds = [grantor.node.status(NOW).me.addr].into();
        let other = Node::new(Config { seeds, ..Config::new(me, Timing::fast()) }, NOW);
        let mut decoder = Decoder::new();
        decoder.open();
        let Grantor { node, service, .. } = grantor;
        let mut pair = Pair {
            grantor: node,
            other,
            service,
            keeps: false,
            requests: 1 << 32,
            bytes: Vec::new(),
            decoder,
            out: Vec::new(),
        };
        for millis in 0..1000 {
            let now = NOW + Duration::from_millis(millis);
            pair.step(false, now, Input::Timer);
            pair.step(true, now, Input::Timer);
        }
        assert!(pair.other.is_ready(pair.now()), "it has joined");
        pair
    }

    /// A pair whose other member keeps these locks.
    pub(crate) fn keeping(names: &[LockName]) -> Pair {
        let mut pair = Pair { keeps: true, ..Pair::new() };
        for name in names {
            while !pair.offers(name) {
                assert!(pair.requests < (1 << 32) + 4 * names.len() as u64, "{name} is not kept");
                pair.cycle(name);
            }
        }
        pair
    }

    /// A lock that the other member keeps, and its release, without a step. When the tokens of the
    /// name are used up, that member asks the grantor: once in some thousand times.
    pub(crate) fn cycle_kept(&mut self, name: &LockName) {
        match self.offers(name) {
            true => self.absorb(name),
            false => self.cycle(name),
        }
    }

    /// Returns whether the other member may take a lock without a step.
    fn offers(&self, name: &LockName) -> bool {
        self.other.offer(self.now(), (&self.service, name), true).is_some()
    }

    /// Enters that the other member has taken and released a kept lock without a step.
    fn absorb(&mut self, name: &LockName) {
        let used = KeptUse { name: name.clone(), spent: 1, since: self.now() };
        self.other.absorb_kept(&self.service, used, None);
    }

    fn now(&self) -> Time {
        NOW + Duration::from_secs(1)
    }

    /// A step of the other member, or of the grantor, and all that follows from it. Whether it was
    /// granted something.
    fn step(&mut self, grantor: bool, now: Time, input: Input) -> bool {
        let mut out = std::mem::take(&mut self.out);
        let node = if grantor { &mut self.grantor } else { &mut self.other };
        node.step(now, input, &mut out);
        let mut granted = false;
        let (from, addr) = if grantor { (ProcessId(7), 7400) } else { (ProcessId(8), 7401) };
        let addr = ([127, 0, 0, 1], addr).into();
        for output in out.drain(..) {
            match output {
                Output::Send { packet, .. } => {
                    self.bytes.clear();
                    encode(&Frame::Packet(packet), PROTOCOL_VERSION, &mut self.bytes)
                        .expect("a short frame");
                    self.decoder.back().extend_from_slice(&self.bytes);
                    match self.decoder.next().expect("the encoded frame").expect("all of it") {
                        Frame::Packet(packet) => {
                            granted |=
                                self.step(!grantor, now, Input::Received { from, addr, packet });
                        }
                        frame => panic!("{frame:?} is not a packet"),
                    }
                }
                Output::Answer { outcome: Outcome::Granted { .. }, .. } => granted = true,
                _ => {}
            }
        }
        self.out = out;
        granted
    }

    /// A free lock from the other member, and its release.
    pub(crate) fn cycle(&mut self, name: &LockName) {
        self.requests += 1;
        let request = RequestId(self.requests);
        let now = self.now();
        let lock = locking(request, &self.service, name, self.keeps);
        assert!(self.step(false, now, Input::Command(lock)), "it is free");
        self.step(false, now, Input::Command(Command::Release { request }));
        if self.keeps {
            // As the engine does after each step. Then the node may offer.
            self.other.deadline();
        }
    }
}

/// Names that lie among those that are held, as if by chance, and the same each time: Knuth's
/// multiplier.
pub(crate) fn free_names(count: u32) -> Vec<LockName> {
    (1..=count).map(|number| name(2 * (number.wrapping_mul(2_654_435_761) % MANY) + 1)).collect()
}

/// A member's own request for a lock.
fn locking(request: RequestId, service: &ServiceName, name: &LockName, keeps: bool) -> Command {
    Command::Lock {
        detects: false,
        keeps,
        follows: false,
        request,
        service: service.clone(),
        wait: Wait::Forever,
        lease: None,
        lock: LockRequest {
            want: Want::Lock(name.clone()),
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    }
}

/// The request for a lock, as another member sends it.
pub(crate) fn request() -> Frame {
    linked(Message::Grantor(GrantorMessage::RequestLock {
        service: service(),
        epoch: epoch(),
        request: RequestId(7),
        only_if_free: false,
        keep: 0,
        lock: LockRequest {
            want: Want::Lock(name(1)),
            owner: OwnerId::default(),
            revocable: false,
            metadata: Metadata::default(),
        },
    }))
}

/// The answer.
pub(crate) fn grant() -> Frame {
    let token = Token::new(Slot(1), 2);
    linked(Message::Client(ClientMessage::Grant {
        service: service(),
        epoch: epoch(),
        request: RequestId(7),
        token,
        kept: 0,
    }))
}

fn linked(message: Message) -> Frame {
    Frame::Packet(Packet::Linked { view: ViewNumber(1), seq: 1, ack: 1, message })
}

fn epoch() -> Epoch {
    Epoch(Token::new(Slot(1), 1))
}

fn service() -> ServiceName {
    ServiceName::new("bench").expect("a good name")
}

/// 16 bytes, in the order of the numbers.
fn name(number: u32) -> LockName {
    LockName::new(format!("name-{number:011}").as_bytes()).expect("a good name")
}
