//! The cluster key at work: the static key of each incarnation, handshakes on connections, and
//! sealed datagrams.

use super::counters::add;
use super::hello::{HelloError, bytes_of, read_hello};
use super::reception::Reception;
use crate::protocol::{MemberInfo, Packet, ProcessId, StaticPublicKey, View};
pub(super) use crate::wire::secure::StaticKey;
use crate::wire::secure::{
    GossipError, HandshakeSetup, Initiator, KeyName, Keyring, OpenedDatagram, Purpose, RelayError,
    Responder, SealedGossip, SealedRelays, Sealer, SecureError, Session,
};
use crate::wire::{Decoder, Frame, FrameError, HandshakeRefusal, VERSIONS, encode};
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

/// The most seeds with a known process, and the most addresses with a waiting datagram.
const MAX_ADDRESSES: usize = 1024;

/// The keyring of a member, and the connections that were opened with it.
pub(super) struct Security {
    /// The keys, which [`set_keyring`](Security::set_keyring) changes.
    ring: watch::Sender<Keyring>,
    /// The key that is drawn for the next incarnation.
    next: Mutex<Option<Arc<StaticKey>>>,
    sessions: Arc<Mutex<Sessions>>,
}

#[derive(Default)]
struct Sessions {
    next: u64,
    open: BTreeMap<u64, (KeyName, CancellationToken)>,
}

/// The entry of an open connection among the sessions. The entry is removed when this is dropped.
pub(super) struct OpenSession {
    sessions: Arc<Mutex<Sessions>>,
    id: u64,
}

impl Drop for OpenSession {
    fn drop(&mut self) {
        lock(&self.sessions).open.remove(&self.id);
    }
}

/// The result of a handshake for the writing half.
pub(super) struct HandshakeForWriter {
    pub(super) sealer: Sealer,
    pub(super) key: KeyName,
}

/// This member's part in each of its handshakes.
pub(super) struct HandshakeSide<'a> {
    pub(super) cluster: &'a str,
    pub(super) me: &'a MemberInfo,
    /// Proves the process id of `me`. `None`: the system gave no randomness for the key.
    pub(super) identity: Option<&'a StaticKey>,
    pub(super) reception: &'a Reception,
}

impl Security {
    pub(super) fn new(ring: Keyring) -> Self {
        Security {
            ring: watch::Sender::new(ring),
            next: Mutex::default(),
            sessions: Arc::default(),
        }
    }

    /// Draws a static key for the next incarnation, and returns the process id that it proves.
    pub(super) fn draw_identity(&self) -> Result<(ProcessId, StaticPublicKey), SysError> {
        let key = StaticKey::new(*entropy()?);
        let identity = (key.process(), key.public());
        *lock(&self.next) = Some(Arc::new(key));
        Ok(identity)
    }

    /// Takes the static key of an incarnation that begins, if it was drawn here.
    pub(super) fn take_identity(&self, process: ProcessId) -> Option<Arc<StaticKey>> {
        lock(&self.next).take().filter(|key| key.process() == process)
    }

    pub(super) fn ring(&self) -> Keyring {
        self.ring.borrow().clone()
    }

    /// Seals with the first key from now on, and opens with the keys of `ring` only. Closes
    /// connections under other keys and returns their number.
    pub(super) fn set_keyring(&self, ring: Keyring) -> usize {
        self.ring.send_replace(ring.clone());
        // The sessions are read after the ring is replaced: a later session is checked against the
        // new ring.
        let sessions = lock(&self.sessions);
        let removed = sessions.open.values().filter(|(key, _)| !ring.has(*key));
        removed.filter(|_| !planted!(KeepRemovedKeys)).map(|(_, end)| end.cancel()).count()
    }

    /// Notes a connection, whose `end` is cancelled when its key is removed. `None`: the key has
    /// been removed already.
    pub(super) fn register(
        &self,
        secured: &HandshakeForWriter,
        end: CancellationToken,
    ) -> Option<OpenSession> {
        let mut sessions = lock(&self.sessions);
        if !self.ring.borrow().has(secured.key) {
            return None;
        }
        let id = sessions.next;
        sessions.next += 1;
        sessions.open.insert(id, (secured.key, end));
        Some(OpenSession { sessions: self.sessions.clone(), id })
    }

    /// Subscribes to changes of the ring.
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

fn setup<'a>(cluster: &'a str, identity: &'a StaticKey) -> io::Result<HandshakeSetup<'a>> {
    let entropy = entropy().map_err(io::Error::other)?;
    Ok(HandshakeSetup { cluster, versions: VERSIONS, identity, entropy: *entropy })
}

/// Runs the dialler's part, on a connection that was just opened.
///
/// # Errors
/// [`SecureHandshakeError`]. Without the key no answer proves that another process has the
/// address, so the listener counts as unreachable.
pub(super) async fn greet(
    side: &HandshakeSide<'_>,
    security: &Security,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<(MemberInfo, HandshakeForWriter), SecureHandshakeError> {
    let identity = side.identity.ok_or(SecureHandshakeError::NoIdentity)?;
    let purpose = Purpose::Member(side.me.clone());
    let session =
        handshake(side.cluster, &security.ring(), identity, &purpose, stream, decoder).await;
    let session = session.inspect_err(|error| {
        if let SecureHandshakeError::Secure(error) = error {
            refuse_secure(side.reception, stream.peer_addr().ok(), error);
        }
    })?;
    decoder.open();
    match session {
        Session { purpose: Purpose::Member(info), sealer, opener, key, .. } => {
            decoder.unseal(opener);
            Ok((info, HandshakeForWriter { sealer, key }))
        }
        Session { purpose: Purpose::Status(_) | Purpose::Order, .. } => {
            Err(SecureError::Malformed.into())
        }
    }
}

/// The failure of a dialler's handshake.
#[derive(Debug, thiserror::Error)]
pub(super) enum SecureHandshakeError {
    /// This incarnation has no static key.
    #[error("this process has no static key: the operating system gave no random bytes")]
    NoIdentity,
    /// The connection failed.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// The listener refused and gave the reason.
    #[error("{0}")]
    Refused(HandshakeRefusal),
    /// The listener closed without an answer.
    #[error(
        "it closed the connection during the handshake: it may have another cluster key, another \
         cluster name or another version, or too many connections"
    )]
    Closed,
    /// The answer is wrong.
    #[error(transparent)]
    Secure(#[from] SecureError),
    /// The answer is not a handshake with a key.
    #[error("the other process uses another handshake: {0}")]
    Frame(FrameError),
}

/// Shakes hands as the dialler, up to the Confirm packet.
pub(super) async fn handshake(
    cluster: &str,
    ring: &Keyring,
    identity: &StaticKey,
    purpose: &Purpose,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<Session, SecureHandshakeError> {
    let (initiator, initiate) = Initiator::start(ring.first(), &setup(cluster, identity)?)?;
    stream.write_all(&bytes_of(&Frame::Initiate(initiate))).await?;
    let respond = match read_hello(stream, decoder, &mut 0).await {
        Ok(Some(Frame::Respond(respond))) => respond,
        Ok(Some(Frame::Refused(refusal))) => return Err(SecureHandshakeError::Refused(refusal)),
        Ok(Some(_)) => return Err(SecureHandshakeError::Frame(FrameError::Garbage)),
        Ok(None) => return Err(SecureHandshakeError::Closed),
        Err(HelloError::Frame(error)) => return Err(SecureHandshakeError::Frame(error)),
        Err(HelloError::Io(error)) if error.kind() == io::ErrorKind::ConnectionReset => {
            return Err(SecureHandshakeError::Closed);
        }
        Err(HelloError::Io(error)) => return Err(error.into()),
    };
    let (session, confirm) = initiator.finish(&respond, purpose)?;
    stream.write_all(&bytes_of(&Frame::Confirm(confirm))).await?;
    Ok(session)
}

/// The result of a handshake for the listener.
pub(super) enum HandshakeAnswer {
    /// The dialler wants to be a member.
    Member(Box<MemberInfo>, Box<HandshakeForWriter>),
    /// The dialler asks for the status, of this member or of another one. The answer is sealed, and
    /// is written in this version.
    Status(Box<Sealer>, u16, Option<ProcessId>),
    /// The dialler gives an order, which follows. The reports on the order are sealed.
    Order(Box<HandshakeForWriter>),
    /// The dialler is to be refused, with this reason or in silence.
    Refused(Option<HandshakeRefusal>),
}

/// Runs the listener's part, from the first packet on.
pub(super) async fn answer(
    side: &HandshakeSide<'_>,
    security: &Security,
    initiate: &[u8],
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> HandshakeAnswer {
    let Some(identity) = side.identity else { return HandshakeAnswer::Refused(None) };
    let Ok(setup) = setup(side.cluster, identity) else { return HandshakeAnswer::Refused(None) };
    let answered = Responder::answer(&security.ring(), &setup, side.me, initiate);
    let (responder, respond) = match answered {
        Ok(answered) => answered,
        Err(error) => {
            refuse_secure(side.reception, stream.peer_addr().ok(), &error);
            return HandshakeAnswer::Refused(match error {
                SecureError::UnknownKey => Some(HandshakeRefusal::UnknownKey),
                SecureError::OtherCluster => Some(HandshakeRefusal::OtherCluster),
                SecureError::Versions(_) => Some(HandshakeRefusal::Versions(VERSIONS)),
                _ => None,
            });
        }
    };
    if stream.write_all(&bytes_of(&Frame::Respond(respond))).await.is_err() {
        return HandshakeAnswer::Refused(None);
    }
    let confirm = match read_hello(stream, decoder, &mut 0).await {
        Ok(Some(Frame::Confirm(confirm))) => confirm,
        Ok(Some(_)) => {
            add(&side.reception.counters.garbage, 1);
            return HandshakeAnswer::Refused(None);
        }
        Ok(None) | Err(HelloError::Io(_)) => {
            add(&side.reception.counters.silent, 1);
            return HandshakeAnswer::Refused(None);
        }
        Err(HelloError::Frame(error)) => {
            side.reception.counters.refuse_frame(&error);
            return HandshakeAnswer::Refused(None);
        }
    };
    match responder.finish(&confirm) {
        Ok(Session { purpose: Purpose::Member(info), sealer, opener, key, .. }) => {
            decoder.open();
            decoder.unseal(opener);
            HandshakeAnswer::Member(Box::new(info), Box::new(HandshakeForWriter { sealer, key }))
        }
        Ok(Session { purpose: Purpose::Status(of), sealer, version, .. }) => {
            HandshakeAnswer::Status(Box::new(sealer), version, of)
        }
        Ok(Session { purpose: Purpose::Order, sealer, opener, key, .. }) => {
            decoder.unseal(opener);
            HandshakeAnswer::Order(Box::new(HandshakeForWriter { sealer, key }))
        }
        Err(error) => {
            refuse_secure(side.reception, stream.peer_addr().ok(), &error);
            HandshakeAnswer::Refused(match error {
                SecureError::Role(role) => Some(HandshakeRefusal::Role(role)),
                _ => None,
            })
        }
    }
}

/// Seals a frame as records.
pub(super) fn sealed(sealer: &mut Sealer, version: u16, frame: &Frame) -> Option<Vec<u8>> {
    let (mut bytes, mut records) = (Vec::new(), Vec::new());
    encode(frame, version, &mut bytes).ok()?;
    sealer.seal(&bytes, &mut records).ok()?;
    Some(records)
}

fn refuse_secure(reception: &Reception, addr: Option<SocketAddr>, error: &SecureError) {
    let counters = &reception.counters;
    let counter = match error {
        SecureError::Malformed => &counters.garbage,
        SecureError::UnknownKey => &counters.unknown_key,
        SecureError::OtherCluster => &counters.foreign_cluster,
        SecureError::Versions(_) | SecureError::Downgraded(_) => &counters.other_version,
        SecureError::Forged => &counters.forged,
        SecureError::Role(_) => &counters.above_role,
        SecureError::Impostor { .. } => &counters.impostors,
    };
    add(counter, 1);
    reception.log_refused(addr, error);
}

/// One incarnation's sealed datagrams.
pub(super) struct Datagrams {
    gossip: SealedGossip,
    /// The processes at addresses of which only the address was known: seeds.
    at: BTreeMap<SocketAddr, ProcessId>,
    /// The latest payload for each address whose process is not known yet.
    waiting: BTreeMap<SocketAddr, Vec<u8>>,
}

impl Datagrams {
    pub(super) fn new(security: &Security, cluster: &str, me: ProcessId) -> Self {
        let gossip = SealedGossip::new(cluster, me, security.ring());
        Datagrams { gossip, at: BTreeMap::new(), waiting: BTreeMap::new() }
    }

    /// Seals and opens with another ring from now on.
    pub(super) fn set_keyring(&mut self, ring: Keyring) {
        self.gossip.set_keyring(ring);
    }

    /// Puts a datagram with `payload` into `out`. If the process at `to` is not known, the datagram
    /// asks for its id instead. `false`: the payload is too long.
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
        self.gossip.ask_id(out)
    }

    /// Opens a datagram that came from this address. `Ok(None)`: it brought no gossip. If it needs
    /// an answer, `reply` has it. `may_answer`: whether one more answer may be sent. Its argument
    /// is `true` for a question for the process id, and `false` for a datagram for another process.
    pub(super) fn open<'a>(
        &mut self,
        from: SocketAddr,
        datagram: &'a mut [u8],
        may_answer: impl Fn(bool) -> bool,
        reply: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, GossipError> {
        reply.clear();
        match self.gossip.open(datagram) {
            Ok(OpenedDatagram::Payload(payload)) => return Ok(Some(payload)),
            Ok(OpenedDatagram::IdQuestion(process)) if may_answer(true) => {
                self.gossip.answer_id(process, reply);
            }
            Ok(OpenedDatagram::IdQuestion(_)) => {}
            Ok(OpenedDatagram::IdAnswer(process)) => {
                if self.at.len() >= MAX_ADDRESSES && !self.at.contains_key(&from) {
                    self.at.pop_first();
                }
                self.at.insert(from, process);
                if let Some(payload) = self.waiting.remove(&from) {
                    self.gossip.seal(process, &payload, reply);
                }
            }
            // The sender has the key, and knows an earlier process of this address.
            Err(error @ GossipError::Misaddressed { from: process }) => {
                if may_answer(false) {
                    self.gossip.answer_id(process, reply);
                }
                return Err(error);
            }
            Err(error) => return Err(error),
        }
        Ok(None)
    }
}

/// One incarnation's sealed relays.
pub(super) struct Relays(Mutex<SealedRelays>);

impl Relays {
    pub(super) fn new(identity: Arc<StaticKey>) -> Self {
        Relays(Mutex::new(SealedRelays::new(identity)))
    }

    /// See [`SealedRelays::set_members`].
    pub(super) fn set_view(&self, view: &View) {
        lock(&self.0).set_members(view.members.iter().map(|member| &member.info));
    }

    /// See [`SealedRelays::seal`].
    pub(super) fn seal(&self, packet: Packet, version: u16) -> Option<Packet> {
        match packet {
            Packet::Relay { .. } => lock(&self.0).seal(packet, version),
            packet => Some(packet),
        }
    }

    /// Opens a packet that `relay` has sent. `None`: the packet is refused, counted and logged.
    pub(super) fn open(
        &self,
        packet: Packet,
        is_strange: bool,
        reception: &Reception,
        relay: &MemberInfo,
    ) -> Option<Packet> {
        if !matches!(packet, Packet::Relay { .. }) {
            return Some(packet);
        }
        let opened = lock(&self.0).open(packet, is_strange);
        let refused = |error: &RelayError| {
            let counters = &reception.counters;
            let counter = match error {
                RelayError::Unsealed(_) | RelayError::Forged(_) => &counters.forged,
                RelayError::Impostor(_) => &counters.impostors,
                RelayError::Repeated(_) => &counters.repeated,
                RelayError::Version(..) => &counters.other_version,
            };
            add(counter, 1);
            reception.log_refused(Some(relay.addr), error);
        };
        opened.inspect_err(refused).ok()
    }
}

/// Counts and logs a datagram that was refused.
pub(super) fn refuse_sealed(reception: &Reception, from: SocketAddr, error: &GossipError) {
    let counters = &reception.counters;
    let counter = match error {
        GossipError::Garbage => &counters.garbage,
        GossipError::Version(_) => &counters.other_version,
        GossipError::Forged => &counters.forged,
        GossipError::Repeated | GossipError::Misaddressed { .. } => &counters.repeated,
    };
    add(counter, 1);
    // A member that started again at its address gets such datagrams from honest members.
    if !matches!(error, GossipError::Misaddressed { .. }) {
        reception.log_refused(Some(from), error);
    }
}
