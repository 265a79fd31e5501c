//! Crowds of strangers: open connections that cost a member places, memory or time.

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

/// The opening of the connections of a crowd.
#[derive(Clone, Copy)]
pub(crate) enum CrowdOpening<'a> {
    /// No handshake: the members have a key, and the crowd has none.
    Keyless,
    /// A hello, at members without a key.
    Hello,
    /// A handshake with the key. All bytes after it are records.
    Keyed(&'a ClusterKey),
}

impl CrowdOpening<'_> {
    /// The longest frame that a member accepts on such a connection.
    fn longest_frame(self) -> usize {
        match self {
            CrowdOpening::Keyless => MAX_HELLO,
            CrowdOpening::Hello | CrowdOpening::Keyed(_) => MAX_STRANGE_FRAME,
        }
    }
}

/// The behaviour of one connection.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CrowdBehaviour {
    /// The connection writes nothing: no hello, and nothing after a handshake with the key.
    Silent,
    /// The connection begins a frame of the greatest accepted length, and does not end it.
    Begun,
    /// The connection begins a longer frame, and writes some MB of it.
    Oversized,
    /// The connection writes bytes that are no frame.
    Noise,
    /// The connection asks for the state of the gossip many times and reads no answer.
    Wanting,
    /// The connection asks for the status, which is long, and does not read it.
    Asking,
}

impl CrowdBehaviour {
    const ALL: [CrowdBehaviour; 6] = [
        CrowdBehaviour::Silent,
        CrowdBehaviour::Begun,
        CrowdBehaviour::Oversized,
        CrowdBehaviour::Noise,
        CrowdBehaviour::Wanting,
        CrowdBehaviour::Asking,
    ];

    /// Whether the member answers this connection, which reads no answer.
    fn is_answered(self) -> bool {
        matches!(self, CrowdBehaviour::Wanting | CrowdBehaviour::Asking)
    }

    /// All bytes that the connection writes after its opening.
    fn bytes(self, attacks: &Attacks<'_>, opening: CrowdOpening<'_>) -> Vec<u8> {
        let begun =
            |length: usize| [&(length as u32).to_be_bytes()[..], &vec![3; length - 1]].concat();
        match self {
            CrowdBehaviour::Silent => Vec::new(),
            CrowdBehaviour::Begun => begun(opening.longest_frame()),
            CrowdBehaviour::Oversized => begun(MAX_FRAME),
            CrowdBehaviour::Noise => vec![0; 4000],
            CrowdBehaviour::Wanting => bytes_of(&Frame::GossipWanted).repeat(500),
            // Here the handshake itself asks for the status.
            CrowdBehaviour::Asking if matches!(opening, CrowdOpening::Keyed(_)) => Vec::new(),
            CrowdBehaviour::Asking => {
                let (cluster, reserved) = (attacks.cluster.to_owned(), Vec::new());
                let question = StatusQuery { cluster, versions: VERSIONS, reserved, of: None };
                bytes_of(&Frame::Question(question))
            }
        }
    }
}

/// A crowd of strangers. All its connections end with it.
pub(crate) struct Crowd(Vec<CrowdConnection>);

struct CrowdConnection {
    stream: TcpStream,
    behaviour: CrowdBehaviour,
    bytes: Arc<[u8]>,
    /// The number of bytes of them that are pending or written.
    taken: usize,
    pending: Vec<u8>,
    sealer: Option<Sealer>,
}

/// The number of bytes of a connection that are sealed at a time.
const PIECE: usize = 64 * 1024;

/// If no connection could write for this time, the members have taken all that they take.
const QUIET: Duration = Duration::from_millis(30);

/// The time after which the crowd gives up a handshake.
const HANDSHAKE_LIMIT: Duration = Duration::from_secs(2);

impl Crowd {
    /// Opens `count` connections to these members by turns, and writes as much as the members take.
    pub(crate) fn open(
        addrs: &[String],
        attacks: &Attacks<'_>,
        opening: CrowdOpening<'_>,
        size: u32,
    ) -> Crowd {
        let bytes =
            CrowdBehaviour::ALL.map(|behaviour| Arc::from(behaviour.bytes(attacks, opening)));
        let runtime = runtime();
        let connections = (0..size as usize).filter_map(|number| {
            let turn = number / addrs.len() % CrowdBehaviour::ALL.len();
            let (behaviour, bytes) = (CrowdBehaviour::ALL[turn], Arc::clone(&bytes[turn]));
            let mut stream = connect(&addrs[number % addrs.len()], behaviour, &runtime)?;
            let process = ProcessId(1000 + number as u128);
            let is_mute = matches!(behaviour, CrowdBehaviour::Silent | CrowdBehaviour::Asking);
            let sealer = match opening {
                CrowdOpening::Keyless => None,
                CrowdOpening::Hello if is_mute => None,
                CrowdOpening::Hello => {
                    stream.write_all(&attacks.hello(process)).ok()?;
                    None
                }
                CrowdOpening::Keyed(key) => {
                    let asks = behaviour == CrowdBehaviour::Asking;
                    let setup = (key, attacks.cluster, VERSIONS);
                    Some(shake_hands(&mut stream, setup, number as u32, asks)?)
                }
            };
            stream.set_nonblocking(true).ok()?;
            Some(CrowdConnection {
                stream,
                behaviour,
                bytes,
                taken: 0,
                pending: Vec::new(),
                sealer,
            })
        });
        let mut crowd = Crowd(connections.collect());
        crowd.write_on();
        crowd
    }

    /// Writes until the members take no more.
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

    /// The number of connections with an answer that they do not read.
    pub(crate) fn answered(&self) -> usize {
        let has_answer = |of: &&CrowdConnection| {
            of.behaviour.is_answered() && matches!(of.stream.peek(&mut [0]), Ok(1))
        };
        self.0.iter().filter(has_answer).count()
    }
}

impl CrowdConnection {
    /// Writes some bytes. `None` if none are taken, or all are written.
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

/// Connects. A connection that reads no answer gets a small receive buffer, so that the rest waits
/// at the member.
fn connect(addr: &str, behaviour: CrowdBehaviour, runtime: &Runtime) -> Option<TcpStream> {
    if !behaviour.is_answered() {
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

/// Shakes hands with the key, as a process of its own. `asks`: the handshake is for a status and
/// not for a member. `None` if the member closed the connection to make room for others.
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

/// Samples the memory of processes again and again, because members give up an unfinished frame
/// after half a member lease.
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

    /// The memory of each process in KiB: at first, and the most that was sampled.
    pub(crate) fn stop(self) -> Vec<(u64, u64)> {
        self.stop.store(true, Ordering::Relaxed);
        self.looks.join().expect("all processes answer")
    }
}
