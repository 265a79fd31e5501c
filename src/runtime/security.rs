//! The cluster key at work: this incarnation's static key, handshakes on connections, and sealed datagrams.

use super::counters::{AtomicCounters, add};
use super::tcp::{DialError, Greeted, HelloError, bytes_of, read_hello};
use super::transport_state::{Incarnation, TransportState};
use crate::protocol::{MemberInfo, ProcessId};
pub(super) use crate::wire::secure::StaticKey;
use crate::wire::secure::{
    GossipError, Initiator, KeyName, Keyring, Opened, Purpose, Responder, SealedGossip, Sealer, SecureError, Session,
    Setup, VERSIONS,
};
use crate::wire::{Decoder, Frame, FrameError, HandshakeRefusal, PROTOCOL_VERSION, encode};
use rand::TryRng as _;
use rand::rngs::{SysError, SysRng};
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use zeroize::Zeroizing;

/// Addresses of seeds whose process is remembered, or asked for.
const MAX_ADDRESSES: usize = 1024;

/// The keyring of a member, and what was made with it.
pub(super) struct Security {
    /// Changed by [`set_keyring`](Security::set_keyring).
    ring: watch::Sender<Keyring>,
    /// Drawn, for the incarnation that begins next.
    next: Mutex<Option<Arc<StaticKey>>>,
    sessions: Mutex<Sessions>,
}

#[derive(Default)]
struct Sessions {
    next: u64,
    open: BTreeMap<u64, (KeyName, CancellationToken)>,
}

/// A connection's key, as long as the connection is open.
pub(super) struct OpenSession {
    shared: Arc<TransportState>,
    id: u64,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        if let Some(security) = &self.shared.security {
            lock(&security.sessions).open.remove(&self.id);
        }
    }
}

/// What a handshake has agreed on.
pub(super) struct Secured {
    pub(super) sealer: Sealer,
    key: KeyName,
}

impl Security {
    pub(super) fn new(ring: Keyring) -> Self {
        Security { ring: watch::Sender::new(ring), next: Mutex::default(), sessions: Mutex::default() }
    }

    /// A process id with a static key behind it, for the incarnation that begins next.
    pub(super) fn draw_process(&self) -> Result<ProcessId, SysError> {
        let key = StaticKey::new(*entropy()?);
        let process = key.process();
        *lock(&self.next) = Some(Arc::new(key));
        Ok(process)
    }

    /// The static key of an incarnation that begins, if it was drawn here.
    pub(super) fn take_identity(&self, process: ProcessId) -> Option<Arc<StaticKey>> {
        lock(&self.next).take().filter(|key| key.process() == process)
    }

    fn ring(&self) -> Keyring {
        self.ring.borrow().clone()
    }

    /// Seals with the first key from now on and opens with these only. Connections under other keys are closed; says how
    /// many.
    pub(super) fn set_keyring(&self, ring: Keyring) -> usize {
        self.ring.send_replace(ring.clone());
        // After the ring is replaced: a session that is registered later looks there.
        let sessions = lock(&self.sessions);
        let removed = sessions.open.values().filter(|(key, _)| !ring.has(*key));
        removed.map(|(_, end)| end.cancel()).count()
    }

    /// Notes a connection, which is closed when its key is removed. `None`: that has happened already.
    pub(super) fn register(
        shared: &Arc<TransportState>,
        secured: &Secured,
        end: CancellationToken,
    ) -> Option<OpenSession> {
        let security = shared.security.as_ref()?;
        let mut sessions = lock(&security.sessions);
        if !security.ring.borrow().has(secured.key) {
            return None;
        }
        let id = sessions.next;
        sessions.next += 1;
        sessions.open.insert(id, (secured.key, end));
        Some(OpenSession { shared: shared.clone(), id })
    }

    /// Changes of the ring.
    pub(super) fn subscribe(&self) -> watch::Receiver<Keyring> {
        self.ring.subscribe()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Random bytes for one key.
pub(super) fn entropy() -> Result<Zeroizing<[u8; 32]>, SysError> {
    let mut bytes = Zeroizing::new([0; 32]);
    SysRng.try_fill_bytes(&mut *bytes)?;
    Ok(bytes)
}

fn setup<'a>(cluster: &'a str, identity: &'a StaticKey) -> io::Result<Setup<'a>> {
    let entropy = entropy().map_err(io::Error::other)?;
    Ok(Setup { cluster, versions: VERSIONS, identity, entropy: *entropy })
}

/// The dialler's part, on a connection that was just opened.
pub(super) async fn greet(
    shared: &TransportState,
    life: &Incarnation,
    security: &Security,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<Greeted, DialError> {
    let Some(identity) = &life.identity else {
        return Err(DialError::Unreachable("this incarnation has no static key".into()));
    };
    let purpose = Purpose::Member(life.me.clone());
    let session = shake(&shared.cluster, &security.ring(), identity, &purpose, stream, decoder).await;
    let session = session.map_err(|error| {
        if let ShakeError::Secure(error) = &error {
            refuse_secure(&shared.tally, error);
        }
        // Nothing that is said without a key proves that the process there is another one.
        DialError::Unreachable(error.to_string())
    })?;
    decoder.open();
    match session {
        Session { purpose: Purpose::Member(info), sealer, opener, key, .. } => {
            decoder.unseal(opener);
            Ok(Greeted { info, secured: Some(Secured { sealer, key }) })
        }
        Session { purpose: Purpose::Status, .. } => Err(DialError::Unreachable("it asked instead of answering".into())),
    }
}

/// Why a dialler's handshake failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum ShakeError {
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The listener refused, and said why.
    #[error("{0}")]
    Refused(HandshakeRefusal),
    /// The listener closed without a word.
    #[error(
        "it closed the connection during the handshake: it may have another cluster key, another cluster name or \
         another version, or too many connections"
    )]
    Closed,
    /// What came is wrong.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// What came is no handshake with a key.
    #[error("what answers there shakes hands in another way: {0}")]
    Frame(FrameError),
}

/// Shakes hands as the dialler, up to Confirm.
pub(super) async fn shake(
    cluster: &str,
    ring: &Keyring,
    identity: &StaticKey,
    purpose: &Purpose,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<Session, ShakeError> {
    let (initiator, initiate) = Initiator::start(ring.first(), &setup(cluster, identity)?)?;
    stream.write_all(&bytes_of(&Frame::Initiate(initiate))).await?;
    let respond = match read_hello(stream, decoder, &mut 0).await {
        Ok(Some(Frame::Respond(respond))) => respond,
        Ok(Some(Frame::Refused(refusal))) => return Err(ShakeError::Refused(refusal)),
        Ok(Some(_)) => return Err(ShakeError::Frame(FrameError::Garbage)),
        Ok(None) => return Err(ShakeError::Closed),
        Err(HelloError::Frame(error)) => return Err(ShakeError::Frame(error)),
        Err(HelloError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => return Err(ShakeError::Closed),
        Err(HelloError::Io(error)) => return Err(error.into()),
    };
    let (session, confirm) = initiator.finish(&respond, purpose)?;
    stream.write_all(&bytes_of(&Frame::Confirm(confirm))).await?;
    Ok(session)
}

/// What became of a handshake that a listener was asked for.
pub(super) enum Answered {
    /// It wants to be a member.
    Member(Box<Greeted>),
    /// It asks for the status; what is said to it is sealed.
    Status(Box<Sealer>),
    /// To be refused so, or in silence.
    Refused(Option<HandshakeRefusal>),
}

/// The listener's part, from the first packet on.
pub(super) async fn answer(
    shared: &TransportState,
    life: &Incarnation,
    security: &Security,
    initiate: &[u8],
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Answered {
    let Some(identity) = &life.identity else { return Answered::Refused(None) };
    let Ok(setup) = setup(&shared.cluster, identity) else { return Answered::Refused(None) };
    let (responder, respond) = match Responder::answer(&security.ring(), &setup, &life.me, initiate) {
        Ok(answered) => answered,
        Err(error) => {
            refuse_secure(&shared.tally, &error);
            return Answered::Refused(match error {
                SecureError::UnknownKey => Some(HandshakeRefusal::UnknownKey),
                SecureError::OtherCluster => Some(HandshakeRefusal::OtherCluster),
                SecureError::Versions(_) => Some(HandshakeRefusal::Version(PROTOCOL_VERSION)),
                _ => None,
            });
        }
    };
    if stream.write_all(&bytes_of(&Frame::Respond(respond))).await.is_err() {
        return Answered::Refused(None);
    }
    let confirm = match read_hello(stream, decoder, &mut 0).await {
        Ok(Some(Frame::Confirm(confirm))) => confirm,
        Ok(Some(_)) => {
            add(&shared.tally.garbage, 1);
            return Answered::Refused(None);
        }
        Ok(None) | Err(HelloError::Io(_)) => {
            add(&shared.tally.silent, 1);
            return Answered::Refused(None);
        }
        Err(HelloError::Frame(error)) => {
            shared.tally.refuse_frame(&error);
            return Answered::Refused(None);
        }
    };
    match responder.finish(&confirm) {
        Ok(Session { purpose: Purpose::Member(info), sealer, opener, key, .. }) => {
            decoder.open();
            decoder.unseal(opener);
            Answered::Member(Box::new(Greeted { info, secured: Some(Secured { sealer, key }) }))
        }
        Ok(Session { purpose: Purpose::Status, sealer, .. }) => Answered::Status(Box::new(sealer)),
        Err(error) => {
            refuse_secure(&shared.tally, &error);
            Answered::Refused(None)
        }
    }
}

/// A frame as records.
pub(super) fn sealed(sealer: &mut Sealer, frame: &Frame) -> Option<Vec<u8>> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    encode(frame, &mut bytes).ok()?;
    sealer.seal(&bytes, &mut records).ok()?;
    Some(records)
}

fn refuse_secure(tally: &AtomicCounters, error: &SecureError) {
    match error {
        SecureError::Malformed => add(&tally.garbage, 1),
        SecureError::UnknownKey => add(&tally.unknown_key, 1),
        SecureError::OtherCluster => add(&tally.foreign_cluster, 1),
        SecureError::Versions(_) | SecureError::Downgraded(_) => add(&tally.other_version, 1),
        SecureError::Forged => add(&tally.forged, 1),
        SecureError::Impostor { claimed } => {
            tracing::warn!(%claimed, "a process with the cluster key claimed the id of another one: it is refused");
            add(&tally.impostors, 1);
        }
    }
}

/// One incarnation's sealed datagrams.
pub(super) struct Datagrams {
    gossip: SealedGossip,
    /// Which process is at an address that only an address is known of: a seed's.
    at: BTreeMap<SocketAddr, ProcessId>,
    /// What waits until the process at an address has said who it is: the latest for each.
    waiting: BTreeMap<SocketAddr, Vec<u8>>,
}

impl Datagrams {
    pub(super) fn new(shared: &TransportState, me: &MemberInfo) -> Option<Self> {
        let security = shared.security.as_ref()?;
        let gossip = SealedGossip::new(&shared.cluster, me.process, security.ring());
        Some(Datagrams { gossip, at: BTreeMap::new(), waiting: BTreeMap::new() })
    }

    /// Seals with another ring from now on.
    pub(super) fn set_keyring(&mut self, ring: Keyring) {
        self.gossip.set_keyring(ring);
    }

    /// Puts a datagram with `payload` into `out`, or one that asks which process is there. `false`: it is too long.
    pub(super) fn seal(
        &mut self,
        to: SocketAddr,
        process: Option<ProcessId>,
        payload: &[u8],
        out: &mut Vec<u8>,
    ) -> bool {
        if let Some(process) = process.or_else(|| self.at.get(&to).copied()) {
            return self.gossip.seal(process, payload, out);
        }
        if self.waiting.len() >= MAX_ADDRESSES && !self.waiting.contains_key(&to) {
            self.waiting.pop_first();
        }
        self.waiting.insert(to, payload.to_vec());
        self.gossip.who(out)
    }

    /// Opens a datagram that came from this address. `Ok(None)`: it brought no gossip; `reply` may have an answer to it.
    pub(super) fn open<'a>(
        &mut self,
        from: SocketAddr,
        datagram: &'a mut [u8],
        may_answer: impl Fn() -> bool,
        reply: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, GossipError> {
        reply.clear();
        match self.gossip.open(datagram) {
            Ok(Opened::Payload(payload)) => return Ok(Some(payload)),
            Ok(Opened::Who(process)) if may_answer() => {
                self.gossip.here(process, reply);
            }
            Ok(Opened::Who(_)) => {}
            Ok(Opened::Here(process)) => {
                if self.at.len() >= MAX_ADDRESSES && !self.at.contains_key(&from) {
                    self.at.pop_first();
                }
                self.at.insert(from, process);
                if let Some(payload) = self.waiting.remove(&from) {
                    self.gossip.seal(process, &payload, reply);
                }
            }
            // Its sender holds the key and knows an earlier process of this address.
            Err(error @ GossipError::Misaddressed { from: process }) => {
                if may_answer() {
                    self.gossip.here(process, reply);
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

/// Counts a datagram that was refused.
pub(super) fn refuse_sealed(tally: &AtomicCounters, error: &GossipError) {
    match error {
        GossipError::Garbage => add(&tally.garbage, 1),
        GossipError::Version(_) => add(&tally.other_version, 1),
        GossipError::Forged => add(&tally.forged, 1),
        GossipError::Repeated | GossipError::Misaddressed { .. } => add(&tally.repeated, 1),
    }
}
