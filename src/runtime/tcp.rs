//! Connections: dialling, accepting, the handshake, the end.
//!
//! Every connection carries frames both ways. Its reading half is a [`ConnectionReader`], with a task of its own, here; its writing
//! half belongs to the [`Peer`] of the other side's address.

use super::connection_reader::{ConnectionEnd, ConnectionReader};
use super::counters::add;
use super::peer::{ConnectionWriter, Peer};
use super::poll_on_wake::seldom;
use super::transport::ConnectionTimeouts;
use super::transport_state::{Incarnation, TransportState};
use crate::protocol::{Hint, Input, MemberInfo};
use crate::wire::{self, Decoder, Frame, FrameError, Handshake, HandshakeRefusal, PROTOCOL_VERSION};
use socket2::{SockRef, TcpKeepalive};
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// Connections that have not identified themselves. Each costs at most a hello's bytes, and ends at
/// the handshake limit.
const MAX_STRANGERS: usize = 1024;
/// Connections accepted at one time: some for each member of the largest cluster.
const MAX_ACCEPTED: usize = 4096;
/// Services, and locks in all, told to a caller that asks from outside. With names and metadata of
/// any length they fit one frame, and to collect them is a short turn.
const MAX_LOCKS_TOLD: usize = 256;
/// After an error of the listener, which is mostly "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Why an address was not reached.
#[derive(Debug)]
pub(super) enum DialError {
    /// It refuses connections.
    Refused,
    /// Something answers that is no member of this cluster.
    Stranger(String),
    /// Nothing answers, or it went away.
    Unreachable(String),
}

impl DialError {
    fn text(&self) -> String {
        match self {
            DialError::Refused => "connection refused".into(),
            DialError::Stranger(why) | DialError::Unreachable(why) => why.clone(),
        }
    }
}

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => DialError::Refused,
            _ => DialError::Unreachable(error.to_string()),
        }
    }
}

/// A connection after its handshake.
struct HandshakenConnection {
    stream: TcpStream,
    decoder: Decoder,
    /// The other side.
    info: MemberInfo,
}

/// Accepts until closing.
pub(super) async fn accept(shared: Arc<TransportState>, listener: TcpListener) {
    let strangers = Arc::new(Semaphore::new(MAX_STRANGERS));
    let places = Arc::new(Semaphore::new(MAX_ACCEPTED));
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = shared.closing.cancelled() => return,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!(%error, "cannot accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(life) = shared.life() else { continue };
        let permits = (strangers.clone().try_acquire_owned(), places.clone().try_acquire_owned());
        let (Ok(stranger), Ok(place)) = permits else {
            add(&shared.tally.busy, 1);
            // It fits in the empty buffer of a new connection.
            let _ = stream.try_write(&bytes_of(&Frame::Refused(HandshakeRefusal::Busy)));
            continue;
        };
        let listen = listen(shared.clone(), life.clone(), stream, stranger, place);
        shared.spawn(&life, listen);
    }
}

/// Handshake with a stranger, then reading.
async fn listen(
    shared: Arc<TransportState>,
    life: Arc<Incarnation>,
    mut stream: TcpStream,
    stranger: OwnedSemaphorePermit,
    _place: OwnedSemaphorePermit,
) {
    if configure(&stream, &shared.limits).is_err() {
        return;
    }
    let mut decoder = Decoder::new();
    let Ok(hello) = timeout(shared.limits.handshake, answer(&shared, &life, &mut stream, &mut decoder)).await else {
        add(&shared.tally.silent, 1);
        return;
    };
    drop(stranger);
    if let Some(hello) = hello {
        let addr = hello.me.addr;
        converse(&shared, &life, addr, HandshakenConnection { stream, decoder, info: hello.me }, false).await;
    }
}

/// Reads the hello and answers it; `None` if it is refused or does not come.
async fn answer(
    shared: &TransportState,
    life: &Incarnation,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Option<Handshake> {
    let refusal = match read_hello(stream, decoder).await {
        Ok(Some(Frame::Hello(hello))) if hello.cluster == shared.cluster => {
            let welcome = bytes_of(&Frame::Welcome(shared.handshake(life).into()));
            return stream.write_all(&welcome).await.is_ok().then_some(*hello);
        }
        Ok(Some(Frame::Question(question))) if question.cluster == shared.cluster => {
            let status = Frame::StatusIs(Box::new(life.inbox.status(MAX_LOCKS_TOLD)?));
            let _ = stream.write_all(&bytes_of(&status)).await;
            let _ = stream.shutdown().await;
            return None;
        }
        Ok(Some(Frame::Hello(_) | Frame::Question(_))) => {
            add(&shared.tally.foreign_cluster, 1);
            HandshakeRefusal::ForeignCluster(shared.cluster.clone())
        }
        Ok(Some(_)) => {
            add(&shared.tally.garbage, 1);
            HandshakeRefusal::Garbage
        }
        Err(HelloError::Frame(error)) => {
            shared.tally.refuse_frame(&error);
            match error {
                FrameError::Version(_) => HandshakeRefusal::Version(PROTOCOL_VERSION),
                // The speaker did nothing wrong, and dials again.
                FrameError::Damaged => return None,
                _ => HandshakeRefusal::Garbage,
            }
        }
        Ok(None) | Err(HelloError::Io(_)) => {
            // A peer connected and left: a port scan, or a member that ended.
            add(&shared.tally.silent, 1);
            return None;
        }
    };
    let _ = stream.write_all(&bytes_of(&Frame::Refused(refusal))).await;
    let _ = stream.shutdown().await;
    None
}

/// Dials the peer's address; on success goes on as the reading half.
pub(super) async fn dial(shared: Arc<TransportState>, life: Arc<Incarnation>, peer: Arc<Peer>) {
    match open(&shared, &life, peer.addr).await {
        Ok(opened) => {
            shared.note_dial(peer.addr, None);
            // A seed may have more gossip: ask once, when the first connection with it is opened.
            let is_seed = shared.seeds.borrow().contains(&peer.addr) && opened.info.process != life.me.process;
            if is_seed {
                peer.push(Some(opened.info.process), &Frame::GossipWanted);
                peer.wake();
            }
            converse(&shared, &life, peer.addr, opened, true).await;
        }
        Err(error) => {
            tracing::debug!(addr = %peer.addr, ?error, "cannot reach");
            shared.note_dial(peer.addr, Some(error.text()));
            peer.dial_failed(error);
        }
    }
}

async fn open(
    shared: &TransportState,
    life: &Incarnation,
    addr: SocketAddr,
) -> Result<HandshakenConnection, DialError> {
    let late = |what: &str| DialError::Unreachable(format!("{what} timed out"));
    let mut stream =
        timeout(shared.limits.connect, connect(shared.bound, addr)).await.map_err(|_| late("connecting"))??;
    configure(&stream, &shared.limits)?;
    let mut decoder = Decoder::new();
    let greet = async {
        stream.write_all(&bytes_of(&Frame::Hello(shared.handshake(life).into()))).await?;
        match read_hello(&mut stream, &mut decoder).await {
            Ok(Some(Frame::Welcome(welcome))) if welcome.cluster == shared.cluster => Ok(welcome.me),
            Ok(Some(Frame::Welcome(welcome))) => {
                Err(DialError::Stranger(HandshakeRefusal::ForeignCluster(welcome.cluster).to_string()))
            }
            Ok(Some(Frame::Refused(HandshakeRefusal::Busy))) => {
                Err(DialError::Unreachable(HandshakeRefusal::Busy.to_string()))
            }
            Ok(Some(Frame::Refused(refusal))) => Err(DialError::Stranger(refusal.to_string())),
            Ok(Some(_)) | Err(HelloError::Frame(FrameError::Garbage | FrameError::Oversized(_))) => {
                Err(DialError::Stranger("what answers there is no member".into()))
            }
            Err(HelloError::Frame(error @ FrameError::Damaged)) => Err(DialError::Unreachable(error.to_string())),
            Err(HelloError::Frame(FrameError::Version(version))) => {
                Err(DialError::Stranger(HandshakeRefusal::Version(version).to_string()))
            }
            Ok(None) => Err(DialError::Unreachable("it closed the connection".into())),
            Err(HelloError::Io(error)) => Err(DialError::Unreachable(error.to_string())),
        }
    };
    let info = timeout(shared.limits.handshake, greet).await.map_err(|_| late("the handshake"))??;
    Ok(HandshakenConnection { stream, decoder, info })
}

async fn connect(bound: SocketAddr, addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Speak from the bound address, as the datagrams do; and never keep a port from a later
    // listener.
    socket.set_reuseaddr(true)?;
    if addr.is_ipv4() == bound.is_ipv4() && !bound.ip().is_unspecified() {
        socket.bind(SocketAddr::new(bound.ip(), 0))?;
    }
    let stream = socket.connect(addr).await?;
    // Two ends of one socket: no process listens there, and chance picked that very port for this
    // end.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

fn configure(stream: &TcpStream, limits: &ConnectionTimeouts) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let socket = SockRef::from(stream);
    let second = Duration::from_secs(1);
    let keepalive = TcpKeepalive::new().with_time((limits.user_timeout / 2).max(second));
    #[cfg(any(target_os = "linux", target_os = "android", target_vendor = "apple", windows))]
    let keepalive = keepalive.with_interval(second);
    socket.set_tcp_keepalive(&keepalive)?;
    // Bytes that are unacknowledged for so long end the connection; so does silence after a
    // keepalive.
    #[cfg(any(target_os = "linux", target_os = "android"))]
    socket.set_tcp_user_timeout(Some(limits.user_timeout))?;
    Ok(())
}

enum HelloError {
    Frame(FrameError),
    Io(io::Error),
}

/// The first frame; `None` if the other side closes before. Reads no more than a hello may be long.
async fn read_hello(stream: &mut TcpStream, decoder: &mut Decoder) -> Result<Option<Frame>, HelloError> {
    loop {
        if let Some(frame) = decoder.next().map_err(HelloError::Frame)? {
            decoder.open();
            return Ok(Some(frame));
        }
        let mut room = stream.take(decoder.hello_room() as u64);
        if room.read_buf(decoder.back()).await.map_err(HelloError::Io)? == 0 {
            return Ok(None);
        }
    }
}

/// A connection from after its handshake to its end.
async fn converse(
    shared: &Arc<TransportState>,
    life: &Arc<Incarnation>,
    addr: SocketAddr,
    opened: HandshakenConnection,
    dialled: bool,
) {
    let HandshakenConnection { stream, decoder, info } = opened;
    let (reader, writer) = stream.into_split();
    let closed = CancellationToken::new();
    let redundant = CancellationToken::new();
    let ear = Arc::new(ConnectionReader::new(shared.clone(), life.clone(), addr, info.clone(), reader, decoder));
    let link = ConnectionWriter {
        process: info.process,
        writer,
        ear: ear.clone(),
        closed: closed.clone(),
        redundant: redundant.clone(),
        dialled,
        is_preferred: dialled == (life.me.process < info.process),
        opened: Instant::now(),
    };
    let Some(peer) = shared.adopt(life, addr, link) else { return };
    life.watch.see(shared, life, &info);
    life.inbox.input(Input::Hint(Hint::Connected(info.process)));

    let ended = async {
        tokio::select! {
            () = redundant.cancelled() => ConnectionEnd::Ours,
            () = closed.cancelled() => ConnectionEnd::Broken,
        }
    };
    let ending = tokio::select! {
        biased;
        ending = seldom(Box::pin(ended)) => ending,
        ending = ear.listen() => ending,
    };
    ear.close();
    let left = shared.closed(life, info.process);
    closed.cancel();
    peer.link_closed();
    let silent = match ending {
        ConnectionEnd::Ours => true,
        // One of two: the side that closed it still speaks on the other.
        ConnectionEnd::Closed => left > 0,
        ConnectionEnd::Broken => false,
    };
    if !silent && !shared.closing.is_cancelled() {
        life.inbox.input(Input::Hint(Hint::Unreachable(info.process)));
    }
}

fn bytes_of(frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Handshakes are short: the cluster's name was checked when the transport was bound.
    if let Err(error) = wire::encode(frame, &mut bytes) {
        tracing::error!(%error, "a handshake cannot be written");
    }
    bytes
}
