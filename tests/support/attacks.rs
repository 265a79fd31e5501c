//! Attackers beside real processes under load: their packets, and the rate of locks during the
//! attacks.

#[path = "crowd.rs"]
pub(crate) mod crowd;

use crate::support::cluster::Cluster;
use crate::support::process::{Grant, Peer, Pending, Process};
use crate::support::wait;
use elderlock::protocol::message::Ballot;
use elderlock::protocol::{
    Affiliation, Change, ClientMessage, Epoch, GrantorMessage, HoldReport, Host, LockName,
    LockRequest, Message, Metadata, Notice, OwnerId, Packet, RegistryMessage, RequestId,
    ServiceName, Slot, Status, Token, View, ViewNumber, Want,
};
use elderlock::wire::secure::{HandshakeSetup, Initiator, StaticKey};
use elderlock::wire::{Frame, Handshake, PROTOCOL_VERSION, StatusQuery, VERSIONS, encode};
use elderlock::{ClusterKey, Keyring, MemberInfo, ProcessId};
use std::collections::VecDeque;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crowd::{Crowd, CrowdOpening};

/// An address at which no member can be dialled.
const NOWHERE: SocketAddr = SocketAddr::V4(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 9));

pub(crate) fn new_key() -> String {
    ClusterKey::generate().expect("random bytes").to_base64().to_string()
}

/// Takes and releases locks at all members without a pause, until it is stopped.
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    tasks: Vec<std::thread::JoinHandle<()>>,
}

impl Load {
    /// Starts the load: each member uses a lock of its own, and one lock of all.
    pub(crate) fn start(peers: &[Peer]) -> Load {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let tasks = peers.iter().enumerate().map(|(number, peer)| {
            let (peer, stop, done) = (peer.clone(), stop.clone(), done.clone());
            std::thread::spawn(move || {
                for turn in 0_u64.. {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let own = format!("own-{number}");
                    let name = if turn.is_multiple_of(2) { "shared" } else { own.as_str() };
                    let grant = peer.lock("stock", name);
                    peer.release(&grant).expect("a lock that is held is released");
                    done.fetch_add(1, Ordering::Relaxed);
                }
            })
        });
        let tasks = tasks.collect();
        Load { stop, done, tasks }
    }

    /// Waits until `count` more locks were taken.
    pub(crate) fn until_more(&self, count: u64) {
        let wanted = self.done.load(Ordering::Relaxed) + count;
        wait::until("locks are taken", || {
            let done = self.done.load(Ordering::Relaxed);
            if done >= wanted { Ok(()) } else { Err(format!("{done} of {wanted}")) }
        });
    }

    /// Stops the load and returns the number of locks taken. Fails if a lock has failed.
    pub(crate) fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        self.tasks.into_iter().for_each(|task| task.join().expect("no lock failed"));
        self.done.load(Ordering::Relaxed)
    }
}

pub(crate) fn assert_undisturbed(peers: &[Peer]) {
    for peer in peers {
        let events = peer.events();
        let bad = ["suspended", "expelled", "guard-lost", "rejoined"];
        let is_bad = |event: &&String| bad.iter().any(|word| event.starts_with(word));
        assert_eq!(events.iter().find(is_bad), None, "{} was disturbed: {events:#?}", peer.addr);
    }
}

pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

pub(crate) fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, PROTOCOL_VERSION, &mut bytes).expect("it can be written");
    bytes
}

/// The status of a member, as a process outside the cluster sees it.
fn status_of(peer: &Peer, cluster: &str, key: Option<&str>) -> Status {
    let status = match key {
        Some(key) => {
            let ring = Keyring::parse(key).expect("a key");
            runtime().block_on(elderlock::query_status_with(&peer.addr, cluster, &ring))
        }
        None => runtime().block_on(elderlock::query_status(&peer.addr, cluster)),
    };
    status.expect("it answers")
}

/// A lock that one member grants, another one holds and a third one waits for. The lies name this
/// lock with all that a stranger can learn of it.
pub(crate) struct ContestedLock {
    holder: Peer,
    waiter: Peer,
    grant: Grant,
    waiting: Pending,
    service: ServiceName,
    epoch: Epoch,
    grantor: ProcessId,
    held: (ProcessId, RequestId),
    wanted: (ProcessId, RequestId),
}

impl ContestedLock {
    pub(crate) fn start(peers: &[Peer], cluster: &str, key: Option<&str>) -> ContestedLock {
        let [holder, waiter, grantor, ..] = peers else { panic!("it needs three members") };
        // The first member that asks becomes the grantor.
        grantor.lock("held", "first");
        let grant = holder.lock("held", "wanted");
        let waiting = waiter.begin_lock("held", "wanted");
        grantor.until_waiting("held", "wanted", 1);
        let status = status_of(grantor, cluster, key);
        let mut services = status.services.iter();
        let service = services.find(|of| of.service.as_str() == "held").expect("it is listed");
        let named = |name: &[u8]| {
            let mut locks = service.locks.iter();
            locks.find(|lock| lock.name.as_ref().is_some_and(|own| own.as_bytes() == name))
        };
        let lock = named(b"wanted").expect("it is held");
        let (held, next) = (lock.holder.as_ref().expect("one"), lock.next.as_ref().expect("one"));
        assert_eq!(held.token.get(), grant.token);
        ContestedLock {
            holder: holder.clone(),
            waiter: waiter.clone(),
            grant,
            waiting,
            service: service.service.clone(),
            epoch: service.epoch.expect("it acts"),
            grantor: status.me.process,
            held: (held.process, held.request),
            wanted: (next.process, next.request.expect("it is told")),
        }
    }

    /// Asserts that the holder has the lock and that the waiter still waits.
    pub(crate) fn assert_contested(&self) {
        assert_eq!(self.holder.fence(&self.grant), Ok(self.grant.token));
        assert_eq!(self.waiting.poll(), None, "{} has the lock too", self.waiter.addr);
    }

    /// Releases the lock. The grantor then grants it to the waiter.
    pub(crate) fn end(self) {
        self.assert_contested();
        self.holder.release(&self.grant).expect("it is held");
        let next = Grant::read(&self.waiting.wait().expect("it is granted"));
        assert!(next.token > self.grant.token && self.waiter.fence(&next) == Ok(next.token));
    }
}

/// Packets of an attacker, with the process ids that it claims. Each array of bytes is for one
/// connection.
pub(crate) struct Attacks<'a> {
    pub(crate) cluster: &'a str,
    pub(crate) view: View,
}

impl Attacks<'_> {
    /// The view of an attacked member, as a stranger reads it.
    pub(crate) fn seen_by(peer: &Peer, cluster: &str, key: Option<&str>) -> View {
        status_of(peer, cluster, key).view.expect("it is a member")
    }

    /// A hello with this process id. Depending on the id it claims a member's address, or an
    /// address that no member can dial.
    pub(crate) fn hello(&self, process: ProcessId) -> Vec<u8> {
        let members = self.view.members.iter().map(|member| member.info.addr);
        let addrs: Vec<SocketAddr> = members.chain([NOWHERE]).collect();
        let addr = addrs[(process.0 % addrs.len() as u128) as usize];
        let host = Some(Host { boot: 1, namespace: 1, pid: 1, started: 1 });
        let me = MemberInfo { host, ..MemberInfo::new(process, addr) };
        let cluster = self.cluster.to_owned();
        bytes_of(&Frame::Hello(Box::new(Handshake { cluster, me, reserved: Vec::new() })))
    }

    /// Packets that would change views, grants, deaths and links if their sender were believed.
    /// Each packet is well-formed: a malformed one would end the connection before the next packet.
    pub(crate) fn lies(&self, lock: &ContestedLock) -> Vec<Vec<u8>> {
        let mut highest = self.view.clone();
        highest.number = ViewNumber((1 << 62) - 1);
        assert!(highest.is_sound());
        let mut alone = self.view.clone();
        alone.number = alone.number.next();
        alone.members.truncate(1);
        let linked = |seq, message| Packet::Linked { view: self.view.number, seq, ack: 0, message };
        let service = || lock.service.clone();
        let token = |number: i64| Token::try_from(number).expect("a token");
        let grant = |epoch, token| {
            let (service, request) = (service(), lock.wanted.1);
            Message::Client(ClientMessage::Grant { service, epoch, request, token, kept: 0 })
        };
        let far = grant(Epoch(token(i64::MAX)), token(i64::MAX));
        let near = grant(lock.epoch, token(lock.grant.token as i64 + 1));
        let release =
            Message::Grantor(GrantorMessage::Release { service: service(), request: lock.held.1 });
        let find = |number| {
            let service = ServiceName::new(&format!("name {number}")).expect("a good name");
            RegistryMessage::FindGrantor { service, heard: None }
        };
        let mut packets = vec![
            Packet::from(Notice::FullView { view: highest, nonce: 0 }),
            Packet::from(Notice::FullView { view: alone, nonce: 0 }),
            Packet::from(Notice::Leave),
            Packet::Ack { view: ViewNumber(self.view.number.0 + 1000), ack: 9, again: true },
            linked(1, far.clone()),
            linked(1, near.clone()),
        ];
        // A voter's answers to any ballot. One answer names an accepted change.
        let instance = self.view.number.next();
        for process in self.view.members.iter().map(|member| member.info.process) {
            let ballot = Ballot { round: 1, process };
            let change = Change { remove: [process].into(), ..Change::default() };
            let accepted = Some((Ballot { round: u32::MAX, process }, change));
            let promised = Ballot { round: 1000, process: ProcessId(1) };
            packets.extend([
                Packet::from(Notice::Nack { instance, promised }),
                Packet::from(Notice::PreVoteReply { instance, ballot, willing: true }),
                Packet::from(Notice::Promise { instance, ballot, accepted }),
                Packet::from(Notice::Accepted { instance, ballot }),
            ]);
        }
        // The greeting of a member with a later lineage.
        let mut founded = self.view.lineage;
        founded.founded = Slot(founded.founded.0 + 1);
        packets.extend(self.view.members.iter().map(|member| {
            let me = MemberInfo::new(member.info.process, NOWHERE);
            let belonging = Affiliation::Member {
                lineage: founded,
                view: self.view.number.next(),
                elder: me.clone(),
                version: PROTOCOL_VERSION,
                led: true,
                kept: true,
                settled: true,
            };
            Packet::from(Notice::Hello { asked: me.addr, me, belonging, nonce: 0 })
        }));
        let dead = self.view.members.iter().map(|member| member.info.process);
        packets.extend(dead.map(|dead| Packet::from(Notice::Vouch { dead })));
        packets.extend((0..100).map(|number| linked(1, Message::Registry(find(number)))));
        let alone = packets.into_iter().map(|packet| bytes_of(&Frame::Packet(packet)));
        // Each message also comes as a run of numbered messages on a link of two members: a
        // stranger has to guess the next number.
        let in_a_row = |message: &Message, relayed: Option<(ProcessId, ProcessId)>| {
            let packets = (1..=GUESSES).map(|seq| {
                let packet = linked(seq, message.clone());
                match relayed {
                    Some((from, to)) => self.relayed(from, to, packet),
                    None => packet,
                }
            });
            packets.flat_map(|packet| bytes_of(&Frame::Packet(packet))).collect()
        };
        let (grantor, (holder, _), (waiter, _)) = (lock.grantor, lock.held, lock.wanted);
        alone
            .chain([
                in_a_row(&release, None),
                in_a_row(&release, Some((holder, grantor))),
                in_a_row(&far, Some((grantor, waiter))),
                in_a_row(&near, Some((grantor, waiter))),
            ])
            .collect()
    }

    /// A packet that the attacker claims to relay for another member.
    fn relayed(&self, from: ProcessId, to: ProcessId, packet: Packet) -> Packet {
        let from = self.view.member(from).expect("it is in the view").info.clone();
        let (from, packet) = (Box::new(from), Box::new(packet));
        Packet::Relay { from, to, troubled: false, heard: None, packet }
    }

    /// Bytes that belong to no handshake, or packets that do not end.
    fn noise(&self) -> Vec<Vec<u8>> {
        let cluster = self.cluster.to_owned();
        vec![
            bytes_of(&Frame::Gossip(vec![7; 1000])),
            bytes_of(&Frame::Question(StatusQuery {
                cluster,
                versions: VERSIONS,
                reserved: Vec::new(),
                of: None,
            })),
            // A frame of 4 MiB that begins and does not end.
            [&(4_u32 * 1024 * 1024).to_be_bytes()[..], &[3; 4000]].concat(),
            self.long_frame(),
            vec![0xff; 64],
            Vec::new(),
        ]
    }

    /// A frame of 480 KB that a member would decode: a report to a grantor.
    fn long_frame(&self) -> Vec<u8> {
        let token = Token::try_from(1).expect("a token");
        let hold = |number: u64| {
            let want =
                Want::Lock(LockName::new(format!("lock {number}").as_bytes()).expect("short"));
            let (owner, metadata) = (OwnerId(number), Metadata::default());
            let lock = LockRequest { want, owner, revocable: false, metadata };
            HoldReport { request: RequestId(number), lock, token, held_for: Duration::ZERO }
        };
        let frame = |holds: u64| {
            let message = Message::Grantor(GrantorMessage::Report {
                service: ServiceName::new("held").expect("a good name"),
                epoch: Epoch(token),
                objects: Box::default(),
                holds: (0..holds).map(hold).collect(),
                waits: Vec::new(),
                last: true,
                parts: None,
            });
            let view = self.view.number;
            bytes_of(&Frame::Packet(Packet::Linked { view, seq: 1, ack: 0, message }))
        };
        let few = frame(1000).len();
        frame(480 * 1000 * 1000 / few as u64)
    }

    /// Returns the packets of a process outside the view, which claims ids of its own.
    fn of_strangers(&self, lock: &ContestedLock) -> Vec<Vec<u8>> {
        let lies = self.lies(lock);
        let claims = (1..9).map(|id| [self.hello(ProcessId(id)), lies.concat()].concat());
        let long = self.long_frame();
        let begun = (5..9).map(|id| [&self.hello(ProcessId(id))[..], &long].concat());
        self.noise().into_iter().chain(claims).chain(begun).collect()
    }

    /// Returns the packets of a process without the key. It also claims ids of the members, asks to
    /// join, and begins handshakes under another key.
    fn without_the_key(&self, lock: &ContestedLock) -> Vec<Vec<u8>> {
        let join = |id| {
            let me = MemberInfo::new(ProcessId(id), NOWHERE);
            bytes_of(&Frame::Packet(Notice::Join { me, heard: self.view.number }.into()))
        };
        let mut packets = self.of_strangers(lock);
        packets.extend((1..5).map(|id| [self.hello(ProcessId(id)), join(id)].concat()));
        let all = [self.lies(lock).concat(), self.noise().concat()].concat();
        let borrowed = self.view.members.iter().map(|member| member.info.process);
        packets.extend(borrowed.map(|process| [self.hello(process), all.clone()].concat()));
        let identity = &StaticKey::new([1; 32]);
        let cluster = self.cluster;
        let setup = HandshakeSetup { cluster, versions: VERSIONS, identity, entropy: [2; 32] };
        let other = ClusterKey::generate().expect("random bytes");
        let (_, initiate) = Initiator::start(&other, &setup).expect("a good name");
        let initiate = bytes_of(&Frame::Initiate(initiate));
        packets.push(initiate[..initiate.len() / 2].to_vec());
        packets.push(initiate.repeat(2));
        packets
    }
}

/// How many numbers a stranger tries when it guesses the next message of a link.
const GUESSES: u64 = 64;

/// Opens connections to these addresses for `time` and writes one array of bytes on each, and as a
/// datagram. Waits for no answer, so that it is as fast against any listener.
fn attack(addrs: &[String], packets: &[Vec<u8>], time: Duration) {
    let end = Instant::now() + time;
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    let mut open = VecDeque::new();
    for turn in 0.. {
        if Instant::now() >= end {
            return;
        }
        let addr = &addrs[turn % addrs.len()];
        let packet = &packets[turn / addrs.len() % packets.len()];
        if let Ok(mut stream) = TcpStream::connect(addr) {
            let _ = stream.set_nonblocking(true);
            let _ = stream.write(packet);
            open.push_back(stream);
        }
        let _ = socket.send_to(&packet[..packet.len().min(1000)], addr);
        if open.len() > 48 {
            open.pop_front();
        }
        std::thread::sleep(PAUSE);
    }
}

/// The pause between two connections of an attacker.
const PAUSE: Duration = Duration::from_millis(2);

/// The control target of an attack: a process that reads and drops all bytes. It is a process of
/// the same kind as a member's, so that both cost the attacker, and this machine, alike.
fn drain(number: usize) -> (Arc<Process>, String) {
    let process = Process::start(number, None);
    let drain = Peer { process, index: 0, addr: String::new() };
    let addr = drain.ask("drain 127.0.0.1:0").expect("a port for both kinds of packets");
    (drain.process, addr)
}

/// The attackers that write long frames without an end.
struct Flood {
    stop: Arc<AtomicBool>,
    writers: Vec<std::thread::JoinHandle<()>>,
}

impl Flood {
    /// Writes a valid frame of 480 KB again and again on each of eight connections. A closed
    /// connection is opened again.
    fn start(addrs: &[String], attacks: &Attacks<'_>, frame: &Arc<[u8]>) -> Flood {
        let stop = Arc::new(AtomicBool::new(false));
        let writers = (0..FLOODS).map(|number| {
            let (addr, hello) = (addrs[number % addrs.len()].clone(), number as u128 + 20);
            let (hello, frame, stop) =
                (attacks.hello(ProcessId(hello)), frame.clone(), stop.clone());
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::thread::sleep(FLOOD_PAUSE);
                    let Ok(mut stream) = TcpStream::connect(&addr) else { continue };
                    stream.set_write_timeout(Some(SLICE / 4)).expect("a limit");
                    let mut is_open = stream.write_all(&hello).is_ok();
                    while is_open && !stop.load(Ordering::Relaxed) {
                        is_open = stream.write_all(&frame).is_ok();
                        std::thread::sleep(FLOOD_PAUSE);
                    }
                }
            })
        });
        let writers = writers.collect();
        Flood { stop, writers }
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.writers.into_iter().for_each(|writer| writer.join().expect("it only writes"));
    }
}

const FLOODS: usize = 8;

/// The pause of a flood after each frame. Without it the attackers alone would use both cores.
const FLOOD_PAUSE: Duration = Duration::from_millis(20);

/// The number of connections that stay open during a slice.
const CROWD: u32 = 180;

/// All attacks on a cluster while its rate of locks is measured.
struct AttackRun<'a> {
    attacks: &'a Attacks<'a>,
    opening: CrowdOpening<'a>,
    packets: Vec<Vec<u8>>,
    long_frame: Arc<[u8]>,
}

impl AttackRun<'_> {
    /// Attacks these addresses for one slice. Returns the number of locks taken meanwhile.
    fn attack_in_turn(&self, addrs: &[String], load: &Load) -> u64 {
        let crowd = Crowd::open(addrs, self.attacks, self.opening, size(CROWD, 3 * CROWD));
        let flood = Flood::start(addrs, self.attacks, &self.long_frame);
        let before = load.done.load(Ordering::Relaxed);
        attack(addrs, &self.packets, SLICE);
        let taken = load.done.load(Ordering::Relaxed) - before;
        flood.stop();
        drop(crowd);
        taken
    }

    /// Attacks the cluster and the drains by turns. Returns the median rate of locks during
    /// attacks, in hundredths of the control's.
    fn rate(&self, cluster: &Cluster, load: &Load) -> u64 {
        let drains: Vec<_> = (0..cluster.peers.len()).map(drain).collect();
        let drains_at: Vec<String> = drains.iter().map(|(_, addr)| addr.clone()).collect();
        let victims: Vec<String> = cluster.peers.iter().map(|peer| peer.addr.clone()).collect();
        let pairs = (0..SLICES)
            .map(|_| (self.attack_in_turn(&drains_at, load), self.attack_in_turn(&victims, load)));
        let (mut controls, mut attacks): (Vec<_>, Vec<_>) = pairs.unzip();
        controls.sort_unstable();
        attacks.sort_unstable();
        let (control, attack) = (controls[SLICES / 2], attacks[SLICES / 2]);
        let ratio = attack * 100 / control.max(1);
        println!(
            "rate under attack: {ratio} % of the control, {attack} and {control} locks in \
             {SLICE:?}; {attacks:?} and {controls:?}"
        );
        ratio
    }
}

/// The time of one slice, and the number of slices against each target.
const SLICE: Duration = Duration::from_millis(400);

const SLICES: usize = 9;

/// The rate under attack that one of [`ROUNDS`] rounds has to reach, in hundredths of the control's
/// rate.
///
/// Without optimization the members and the attacker share two cores and take several times as long
/// for each packet of an attack. There the rate means nothing, and one round checks the rest. Cargo
/// names the folder of a build after its profile; `debug` is the profile without optimization. The
/// profile `chaos` optimizes and keeps debug assertions, so assertions do not tell the two apart.
fn least() -> u64 {
    let exe = std::env::current_exe().expect("the test knows its own binary");
    if exe.ancestors().any(|folder| folder.ends_with("debug")) { 0 } else { 80 }
}

const ROUNDS: usize = 3;

/// A size of an attack. The long form is large enough to break a member without limits, and needs
/// as many open files.
pub(crate) fn size(short: u32, long: u32) -> u32 {
    if std::env::var_os("ELDERLOCK_LONG_ATTACKS").is_none() {
        return short;
    }
    let maximum = rustix::process::getrlimit(rustix::process::Resource::Nofile).maximum;
    let limit = rustix::process::Rlimit { current: maximum, maximum };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).expect("its own limit");
    long
}

/// Attacks a cluster under load; the attacker has no cluster key. The view, the holds and the rate
/// of locks have to stay.
///
/// Without a key a member believes a borrowed id, and a joiner becomes a member. So only clusters
/// with a key face those attacks. `insecure()` allows the same cluster outside the loopback, no
/// more.
///
/// The rate is compared in up to [`ROUNDS`] rounds, and one of them has to reach [`least`]. On two
/// shared cores, the slices of one round differ by a factor of three, so a round may miss by
/// chance. A member that an attack really slows down misses in all rounds.
pub(crate) fn withstands_attacks(cluster: &Cluster, key: Option<&str>) {
    let contested = ContestedLock::start(&cluster.peers, &cluster.name, key);
    let held = cluster.peers.iter().map(|peer| {
        // Long names, so that the answers to status questions are long.
        let name = |number| format!("{number}-{}", "x".repeat(4000));
        (0..size(20, 500)).map(|number| peer.lock(&peer.addr, &name(number))).collect::<Vec<_>>()
    });
    let held: Vec<_> = held.collect();
    let view = Attacks::seen_by(&cluster.peers[0], &cluster.name, key);
    let before: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    let load = Load::start(&cluster.peers);
    load.until_more(20);
    let attacks = Attacks { cluster: &cluster.name, view };
    let (opening, packets) = match key {
        Some(_) => (CrowdOpening::Keyless, attacks.without_the_key(&contested)),
        None => (CrowdOpening::Hello, attacks.of_strangers(&contested)),
    };
    let long_frame = attacks.long_frame().into();
    let run = AttackRun { attacks: &attacks, opening, packets, long_frame };
    let mut rounds = (0..ROUNDS).map(|_| run.rate(cluster, &load));
    let least = least();
    let reached = rounds.find(|ratio| *ratio >= least);
    load.until_more(20);
    load.stop();
    contested.assert_contested();
    for (peer, grants) in cluster.peers.iter().zip(&held) {
        for grant in grants {
            assert_eq!(peer.fence(grant), Ok(grant.token));
        }
        let counted = peer.ask("counters").expect("it counts");
        let refused = counted.split(' ').next().and_then(|text| text.parse::<u64>().ok());
        assert!(refused.expect("a number") >= 10, "{counted}");
    }
    assert_undisturbed(&cluster.peers);
    let after: Vec<_> = cluster.peers.iter().map(|peer| peer.status().view).collect();
    assert_eq!(after, before, "the view is the same");
    assert!(reached.is_some(), "less than {least} % of the control's rate in each round");
}
