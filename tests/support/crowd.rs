//! Crowds of strangers: connections that stay open, and cost a member places, memory or time.

use super::{Attacks, NOWHERE, bytes_of, runtime};
use crate::support::process::Peer;
use elderlock::protocol::Versions;
use elderlock::wire::secure::{HandshakeSetup, Initiator, Purpose, Sealer, StaticKey};
use elderlock::wire::{
    Decoder, Frame, MAX_FRAME, MAX_HELLO, MAX_STRANGE_FRAME, StatusQuery, VERSIONS,
};
use elderlock::{ClusterKey, MemberInfo, ProcessId};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tokio::net::TcpSocket;
use tokio::runtime::Runtime;

/// How the connections of a crowd begin.
#[derive(Clone, Copy)]
pub(crate) enum CrowdOpening<'a> {
    /// Without a handshake: the members have a key, and the crowd has none.
    Keyless,
    /// With a hello, at members without a key.
    Hello,
    /// With a handshake by the key. All bytes behind it are records.
    Keyed(&'a ClusterKey),
}

impl CrowdOpening<'_> {
    /// The longest frame that a member takes of such a connection.
    fn longest_frame(self) -> usize {
        match self {
            CrowdOpening::Keyless => MAX_HELLO,
            CrowdOpening::Hello | CrowdOpening::Keyed(_) => MAX_STRANGE_FRAME,
        }
    }
}

/// The behaviour of one connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Nuisance {
    /// It writes nothing: no hello, and nothing behind a handshake by the key.
    Silent,
    /// It begins a frame of the longest length that is taken, and does not end it.
    Begun,
    /// It begins a longer one, and writes some MB of it.
    Oversized,
    /// It writes bytes that are no frame.
    Noise,
    /// It wants the state of the gossip many times and reads none.
    Wanting,
    /// It asks for the status, which is long, and does not read it.
    Asking,
}

impl Nuisance {
    const ALL: [Nuisance; 6] = [
        Nuisance::Silent,
        Nuisance::Begun,
        Nuisance::Oversized,
        Nuisance::Noise,
        Nuisance::Wanting,
        Nuisance::Asking,
    ];

    /// It is answered, and reads no answer.
    fn is_answered(self) -> bool {
        matches!(self, Nuisance::Wanting | Nuisance::Asking)
    }

    /// All that it writes behind its opening.
    fn bytes(self, attacks: &Attacks<'_>, opening: CrowdOpening<'_>) -> Vec<u8> {
        let begun =
            |length: usize| [&(length as u32).to_be_bytes()[..], &vec![3; length - 1]].concat();
        match self {
            Nuisance::Silent => Vec::new(),
            Nuisance::Begun => begun(opening.longest_frame()),
            Nuisance::Oversized => begun(MAX_FRAME),
            Nuisance::Noise => vec![0; 4000],
            Nuisance::Wanting => bytes_of(&Frame::GossipWanted).repeat(500),
            // The purpose of a handshake by the key is the question.
            Nuisance::Asking if matches!(opening, CrowdOpening::Keyed(_)) => Vec::new(),
            Nuisance::Asking => {
                let (cluster, reserved) = (attacks.cluster.to_owned(), Vec::new());
                let question = StatusQuery { cluster, versions: VERSIONS, reserved, of: None };
                bytes_of(&Frame::Question(question))
            }
        }
    }
}

/// See the module. All connections end with it.
pub(crate) struct Crowd(Vec<CrowdConnection>);

struct CrowdConnection {
    stream: TcpStream,
    nuisance: Nuisance,
    bytes: Arc<[u8]>,
    /// The number of these that are pending or written.
    taken: usize,
    pending: Vec<u8>,
    sealer: Option<Sealer>,
}

/// The bytes of one connection that are sealed at a time.
const PIECE: usize = 64 * 1024;

/// A crowd that could write nothing for this time has written all that is taken of it.
const QUIET: Duration = Duration::from_millis(30);

/// A connection whose handshake takes longer is given up.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);

impl Crowd {
    /// Opens so many connections to these members, which take turns, and writes as much as they
    /// take.
    pub(crate) fn open(
        addrs: &[String],
        attacks: &Attacks<'_>,
        opening: CrowdOpening<'_>,
        size: u32,
    ) -> Crowd {
        let bytes = Nuisance::ALL.map(|nuisance| Arc::from(nuisance.bytes(attacks, opening)));
        let runtime = runtime();
        let connections = (0..size as usize).filter_map(|number| {
            let turn = number / addrs.len() % Nuisance::ALL.len();
            let (nuisance, bytes) = (Nuisance::ALL[turn], Arc::clone(&bytes[turn]));
            let mut stream = connect(&addrs[number % addrs.len()], nuisance, &runtime)?;
            let process = ProcessId(1000 + number as u128);
            let is_mute = matches!(nuisance, Nuisance::Silent | Nuisance::Asking);
            let sealer = match opening {
                CrowdOpening::Keyless => None,
                CrowdOpening::Hello if is_mute => None,
                CrowdOpening::Hello => {
                    stream.write_all(&attacks.hello(process)).ok()?;
                    None
                }
                CrowdOpening::Keyed(key) => {
                    let asks = nuisance == Nuisance::Asking;
                    let setup = (key, attacks.cluster, VERSIONS);
                    Some(shake_hands(&mut stream, setup, number as u32, asks)?)
                }
            };
            stream.set_nonblocking(true).ok()?;
            Some(CrowdConnection { stream, nuisance, bytes, taken: 0, pending: Vec::new(), sealer })
        });
        let mut crowd = Crowd(connections.collect());
        crowd.write_on();
        crowd
    }

    /// Writes on until nothing more is taken.
    pub(crate) fn write_on(&mut self) {
        let mut last = Instant::now();
        while last.elapsed() < QUIET {
            let written = self.0.iter_mut().filter_map(CrowdConnection::write_some).count();
            if written > 0 {
                last = Instant::now();
            } else {
                std::thread::sleep(QUIET / 10);
            }
        }
    }

    pub(crate) fn size(&self) -> usize {
        self.0.len()
    }

    /// The number of connections that have an answer which they do not read.
    pub(crate) fn answered(&self) -> usize {
        let has_answer = |of: &&CrowdConnection| {
            of.nuisance.is_answered() && matches!(of.stream.peek(&mut [0]), Ok(1))
        };
        self.0.iter().filter(has_answer).count()
    }
}

impl CrowdConnection {
    /// `None`: nothing is taken, or all is written.
    fn write_some(&mut self) -> Option<usize> {
        if self.pending.is_empty() {
            let piece = &self.bytes[self.taken..self.bytes.len().min(self.taken + PIECE)];
            self.taken += piece.len();
            match &mut self.sealer {
                Some(sealer) => sealer.seal(piece, &mut self.pending).expect("numbers are left"),
                None => self.pending.extend_from_slice(piece),
            }
        }
        let written = self.stream.write(&self.pending).ok().filter(|written| *written > 0)?;
        self.pending.drain(..written);
        Some(written)
    }
}

/// A connection that reads no answer has little room for one: the rest waits at the member.
fn connect(addr: &str, nuisance: Nuisance, runtime: &Runtime) -> Option<TcpStream> {
    if !nuisance.is_answered() {
        return TcpStream::connect(addr).ok();
    }
    let addr = addr.parse().expect("an address");
    let connected = runtime.block_on(async {
        let socket = TcpSocket::new_v4()?;
        socket.set_recv_buffer_size(2048)?;
        socket.connect(addr).await?.into_std()
    });
    let stream = connected.ok()?;
    stream.set_nonblocking(false).ok()?;
    Some(stream)
}

/// Shakes hands by the key, as a process of its own. `asks`: for the status, and not as a process
/// that wants to be a member. `None`: the connection was closed, to make room for others.
fn shake_hands(
    stream: &mut TcpStream,
    (key, cluster, versions): (&ClusterKey, &str, Versions),
    number: u32,
    asks: bool,
) -> Option<Sealer> {
    let mut entropy = [9; 32];
    entropy[..4].copy_from_slice(&number.to_be_bytes());
    let identity = StaticKey::new(entropy);
    let setup = HandshakeSetup { cluster, versions, identity: &identity, entropy };
    let (initiator, initiate) = Initiator::start(key, &setup).expect("a good name");
    stream.set_read_timeout(Some(HANDSHAKE_LIMIT)).expect("a limit");
    stream.write_all(&bytes_of(&Frame::Initiate(initiate))).ok()?;
    let mut decoder = Decoder::new();
    let respond = loop {
        if let Some(frame) = decoder.next().expect("a frame") {
            let Frame::Respond(respond) = frame else { panic!("{frame:?}") };
            break respond;
        }
        let mut bytes = [0; 1024];
        let read = stream.read(&mut bytes).ok().filter(|read| *read > 0)?;
        decoder.back().extend_from_slice(&bytes[..read]);
    };
    let me = MemberInfo::new(identity.process(), NOWHERE);
    let me = MemberInfo { static_key: Some(identity.public()), ..me };
    let purpose = if asks { Purpose::Status(None) } else { Purpose::Member(me) };
    let (session, confirm) = initiator.finish(&respond, &purpose).expect("it fits");
    stream.write_all(&bytes_of(&Frame::Confirm(confirm))).ok()?;
    Some(session.sealer)
}

/// Looks at the memory of processes again and again, since a frame that does not end is given up
/// after a second.
pub(crate) struct MemoryMeter {
    stop: Arc<AtomicBool>,
    looks: JoinHandle<Vec<(u64, u64)>>,
}

impl MemoryMeter {
    pub(crate) fn start(peers: &[Peer]) -> MemoryMeter {
        let stop = Arc::new(AtomicBool::new(false));
        let processes: Vec<_> = peers.iter().map(|peer| peer.process.clone()).collect();
        let mut seen: Vec<_> = processes.iter().map(|process| (process.memory(), 0)).collect();
        let is_over = stop.clone();
        let looks = std::thread::spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                for (process, (_, most)) in processes.iter().zip(&mut seen) {
                    *most = process.memory().max(*most);
                }
                std::thread::sleep(QUIET);
            }
            seen
        });
        MemoryMeter { stop, looks }
    }

    /// The memory of each process in KiB: at first, and the most that was seen.
    pub(crate) fn stop(self) -> Vec<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        self.looks.join().expect("all processes answer")
    }
}
