//! Connections: dialling, accepting, the handshake, the end.
//!
//! Every connection carries frames both ways. Its reading half is a [`ConnectionReader`], with a
//! task of its own, here; its writing half belongs to the [`Peer`] of the other side's address.

use super::admission::{Admission, ConnectionOpening, NO_PROCESS};
use super::connection_reader::{ConnectionEnd, ConnectionReader};
use super::connection_writer::ConnectionWriter;
use super::counters::add;
use super::death_watch::HeldProcess;
use super::dial_error::DialError;
use super::hello::{HelloError, bytes_in, bytes_of, read_hello};
use super::incarnation::Incarnation;
use super::orders::{self, PendingOrder};
use super::peer::Peer;
use super::poll_on_wake::on_wake;
use super::security::{self, HandshakeAnswer, HandshakeForWriter, HandshakeSide};
use super::status_answer;
use super::transport_state::TransportState;
use crate::protocol::{Hint, Input, MemberInfo, ProcessId};
use crate::wire::{Decoder, Frame, FrameError, HandshakeRefusal, VERSIONS};
use std::collections::VecDeque;
use std::fmt::Display;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::time::{Instant, timeout};
use tokio_util::sync::CancellationToken;

/// The interval in which silent strangers are closed.
const SWEEP: Duration = Duration::from_secs(5);
/// The pause after an error of the listener, which is mostly "too many open files".
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

impl From<io::Error> for DialError {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::ConnectionRefused => DialError::Refused,
            _ => DialError::Unreachable(error.to_string()),
        }
    }
}

/// The result of a handshake.
pub(super) struct HandshakeResult {
    /// The other side.
    pub(super) info: MemberInfo,
    /// Seals the frames to the other side, if the cluster has a key.
    pub(super) secured: Option<HandshakeForWriter>,
}

/// The purpose of a stranger, by its first packets.
enum Admitted {
    /// To be a member, or to join.
    Member(HandshakeResult),
    /// To have an order carried out.
    Order(PendingOrder),
}

/// A connection after its handshake.
struct HandshakenConnection {
    stream: TcpStream,
    decoder: Decoder,
    handshaken: HandshakeResult,
}

/// Accepts until closing. Where too many handshakes have just begun, connections from unknown hosts
/// wait for their turn. Connections from the hosts of members and seeds overtake them.
pub(super) async fn accept(shared: Arc<TransportState>, listener: TcpListener) {
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut waiting = VecDeque::new();
    loop {
        // Waiting connections go first: new ones would pile up behind them otherwise.
        let accepted = tokio::select! {
            biased;
            () = shared.closing.cancelled() => return,
            _ = sweep.tick() => {
                shared.admissions.sweep();
                continue;
            }
            () = shared.admissions.room(), if !waiting.is_empty() => None,
            accepted = listener.accept() => Some(accepted),
        };
        match accepted {
            Some(Ok((stream, from))) => {
                let is_known = shared.is_known_host(from.ip());
                if is_known && shared.admissions.has_room(true) && !planted!(KnownHostsWait)
                    || waiting.is_empty() && shared.admissions.has_room(false)
                {
                    admit(&shared, stream, (from.ip(), is_known));
                } else {
                    waiting.push_back((stream, (from.ip(), is_known)));
                    // The handshakes that have begun advance before more connections wait.
                    tokio::task::yield_now().await;
                }
                if waiting.len() > shared.admissions.most_waiting() && !planted!(LetAllWait) {
                    let unknown = waiting.iter().position(|(_, (_, is_known))| !is_known);
                    if let Some((stream, _)) = waiting.remove(unknown.unwrap_or(0)) {
                        close_refused(&shared, &stream);
                    }
                }
            }
            Some(Err(error)) => {
                if let Some(left_out) = shared.reception.may_warn() {
                    tracing::warn!(
                        target: "elderlock",
                        %error, left_out,
                        "cannot accept a connection"
                    );
                }
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
            None => {
                shared.admissions.let_handshakes_end().await;
                if let Some((stream, from)) = waiting.pop_front() {
                    admit(&shared, stream, from);
                }
            }
        }
    }
}

/// Begins the handshake of an accepted connection. `is_known`: members or seeds are on its host.
fn admit(shared: &Arc<TransportState>, stream: TcpStream, (ip, is_known): (IpAddr, bool)) {
    let Some(incarnation) = shared.incarnation() else { return };
    match shared.admissions.take(ip, is_known) {
        Some(admission) => {
            let listening = listen(shared.clone(), incarnation.clone(), stream, admission);
            shared.spawn(&incarnation, listening);
        }
        None => close_refused(shared, &stream),
    }
}

/// Closes a connection for which there is no room.
fn close_refused(shared: &TransportState, stream: &TcpStream) {
    add(&shared.reception.counters.busy, 1);
    // A member with a key sends no more bytes than it received, and it has received none here.
    if shared.security.is_none() && shared.may_answer() {
        // The refusal fits in the empty buffer of a new connection.
        let _ = stream.try_write(&bytes_of(&Frame::Refused(HandshakeRefusal::Busy)));
    }
}

/// Shakes hands with a stranger, then reads.
async fn listen(
    shared: Arc<TransportState>,
    incarnation: Arc<Incarnation>,
    mut stream: TcpStream,
    admission: Admission,
) {
    if shared.reception.timeouts.configure(&stream).is_err() {
        return;
    }
    let mut decoder = Decoder::new();
    let answer = answer(&shared, &incarnation, &mut stream, &mut decoder);
    let handshaken = tokio::select! {
        handshaken = timeout(shared.reception.timeouts.handshake, answer) => handshaken,
        () = admission.end.cancelled() => return,
    };
    let Ok(handshaken) = handshaken else {
        add(&shared.reception.counters.silent, 1);
        return;
    };
    match handshaken {
        Some(Admitted::Member(handshaken)) => {
            admission.finish(handshaken.info.process);
            let addr = handshaken.info.addr;
            let opened = HandshakenConnection { stream, decoder, handshaken };
            converse(&shared, &incarnation, addr, opened, admission).await;
        }
        Some(Admitted::Order(pending)) => {
            let order = orders::carry_out(shared.clone(), incarnation, stream, pending, admission);
            shared.spawn_order(order);
        }
        None => {}
    }
}

/// Reads the first packet and answers it. `None`: the packet was refused, or did not come.
async fn answer(
    shared: &TransportState,
    incarnation: &Incarnation,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Option<Admitted> {
    let mut read = 0;
    let counters = &shared.reception.counters;
    let addr = stream.peer_addr().ok();
    let refuse_for = |reason: &dyn Display| shared.reception.log_refused(addr, reason);
    let refusal = match (read_hello(stream, decoder, &mut read).await, &shared.security) {
        (Ok(Some(Frame::Initiate(initiate))), Some(security)) => {
            match security::answer(&side(shared, incarnation), security, &initiate, stream, decoder)
                .await
            {
                HandshakeAnswer::Member(info, secured) => {
                    let handshaken = HandshakeResult { info: *info, secured: Some(*secured) };
                    return Some(Admitted::Member(handshaken));
                }
                HandshakeAnswer::Order(secured) => {
                    let pending = orders::read(shared, stream, decoder, *secured).await?;
                    return Some(Admitted::Order(pending));
                }
                HandshakeAnswer::Status(mut sealer, version, of) => {
                    let answer = status_answer::answer(shared, incarnation, of).await?;
                    let answer = security::sealed(&mut sealer, version, &answer)?;
                    status_answer::tell(shared, stream, &answer).await;
                    return None;
                }
                HandshakeAnswer::Refused(refusal) => refusal?,
            }
        }
        (Ok(Some(Frame::Initiate(_))), None) => {
            add(&counters.unknown_key, 1);
            refuse_for(&"it has a cluster key; this member has none");
            HandshakeRefusal::NoKey
        }
        (Ok(Some(Frame::Hello(_) | Frame::Question(_) | Frame::Order(_))), Some(_)) => {
            add(&counters.keyless, 1);
            refuse_for(&"it has no cluster key; this member has one");
            HandshakeRefusal::KeyWanted
        }
        (Ok(Some(Frame::Hello(hello))), None)
            if hello.cluster == shared.cluster && hello.me.process != NO_PROCESS =>
        {
            let welcome = bytes_of(&Frame::Welcome(shared.handshake(incarnation).into()));
            decoder.open();
            let handshaken = HandshakeResult { info: hello.me, secured: None };
            let is_written = stream.write_all(&welcome).await.is_ok();
            return is_written.then_some(Admitted::Member(handshaken));
        }
        (Ok(Some(Frame::Order(request))), None) if request.cluster == shared.cluster => {
            let version = VERSIONS.common(request.versions)?;
            if orders::is_from_this_host(stream) {
                let (order, decoder) = (request.order, std::mem::take(decoder));
                return Some(Admitted::Order(PendingOrder {
                    order,
                    version,
                    decoder,
                    secured: None,
                }));
            }
            add(&counters.above_role, 1);
            refuse_for(&"an order from another host needs a cluster key");
            if shared.may_answer() {
                let _ = stream.write_all(&bytes_of(&orders::refusal())).await;
            }
            let _ = stream.shutdown().await;
            return None;
        }
        (Ok(Some(Frame::Question(question))), None) if question.cluster == shared.cluster => {
            let version = VERSIONS.common(question.versions)?;
            let answer = status_answer::answer(shared, incarnation, question.of).await?;
            status_answer::tell(shared, stream, &bytes_in(version, &answer)).await;
            return None;
        }
        (Ok(Some(Frame::Hello(hello))), None) if hello.cluster == shared.cluster => {
            add(&counters.garbage, 1);
            refuse_for(&"it has the process id 0, which is not a process's");
            HandshakeRefusal::Garbage
        }
        (Ok(Some(Frame::Hello(_) | Frame::Question(_) | Frame::Order(_))), None) => {
            add(&counters.foreign_cluster, 1);
            refuse_for(&"it is of another cluster");
            HandshakeRefusal::ForeignCluster(shared.cluster.clone())
        }
        (Ok(Some(_)), _) => {
            add(&counters.garbage, 1);
            refuse_for(&"it does not begin with a handshake");
            HandshakeRefusal::Garbage
        }
        (Err(HelloError::Frame(error)), _) => {
            counters.refuse_frame(&error);
            refuse_for(&error);
            match error {
                FrameError::Versions(_) => HandshakeRefusal::Versions(VERSIONS),
                // The sender did nothing wrong, and dials again.
                FrameError::Damaged => return None,
                _ => HandshakeRefusal::Garbage,
            }
        }
        (Ok(None) | Err(HelloError::Io(_)), _) => {
            // A peer connected and left: a port scan, or a member that ended.
            add(&counters.silent, 1);
            return None;
        }
    };
    refuse(shared, stream, &refusal, read).await;
    None
}

/// Sends the reason, within the rate of refusals. A member with a key sends no more bytes than it
/// received.
async fn refuse(
    shared: &TransportState,
    stream: &mut TcpStream,
    refusal: &HandshakeRefusal,
    read: usize,
) {
    let bytes = bytes_of(&Frame::Refused(refusal.clone()));
    let is_short = shared.security.is_none() || bytes.len() <= read || planted!(RefuseAtLength);
    // Only a process that has proven the key is told of another cluster, a version or a role.
    let has_key = shared.security.is_some()
        && matches!(
            refusal,
            HandshakeRefusal::OtherCluster
                | HandshakeRefusal::Versions(_)
                | HandshakeRefusal::Role(_)
        );
    if is_short && if has_key { shared.may_answer_key() } else { shared.may_answer() } {
        let _ = stream.write_all(&bytes).await;
    }
    let _ = stream.shutdown().await;
}

/// Dials the peer's address. After the handshake continues as the reader of the connection.
pub(super) async fn dial(
    shared: Arc<TransportState>,
    incarnation: Arc<Incarnation>,
    peer: Arc<Peer>,
) {
    let opened = {
        let _permit = shared.dial_permit(peer.addr).await;
        open(&shared, &incarnation, peer.addr).await
    };
    // The connection is admitted only now: the view may have changed meanwhile.
    let opened = opened.and_then(|opened| {
        let process = opened.handshaken.info.process;
        let is_seed = shared.seeds.borrow().contains(&peer.addr);
        let admission = shared.admissions.take_dialled(peer.addr.ip(), process, is_seed);
        Ok((opened, admission.ok_or(DialError::Unreachable("no room for it".into()))?))
    });
    match opened {
        Ok((opened, admission)) => {
            shared.note_dial(peer.addr, None);
            // A seed may know more by gossip: ask it once, when the first connection with it is
            // opened.
            let process = opened.handshaken.info.process;
            let is_seed =
                shared.seeds.borrow().contains(&peer.addr) && process != incarnation.me.process;
            if is_seed {
                peer.push(Some(process), &Frame::GossipWanted, false, shared.spoken());
                peer.wake();
            }
            if !converse(&shared, &incarnation, peer.addr, opened, admission).await {
                let text = "its key was removed during the handshake".to_owned();
                peer.dial_failed(DialError::Unreachable(text));
            }
        }
        Err(error) => {
            tracing::debug!(addr = %peer.addr, ?error, "cannot connect to a peer");
            shared.note_dial(peer.addr, Some(error.text()));
            peer.dial_failed(error);
        }
    }
}

async fn open(
    shared: &TransportState,
    incarnation: &Incarnation,
    addr: SocketAddr,
) -> Result<HandshakenConnection, DialError> {
    let late = |what: &str| DialError::Unreachable(format!("{what} timed out"));
    let mut stream = timeout(shared.reception.timeouts.connect, connect(shared.bound, addr))
        .await
        .map_err(|_| late("connecting"))??;
    shared.reception.timeouts.configure(&stream)?;
    let mut decoder = Decoder::new();
    let side = side(shared, incarnation);
    let greet = async {
        match &shared.security {
            Some(security) => {
                match security::greet(&side, security, &mut stream, &mut decoder).await {
                    Ok((info, secured)) => Ok(HandshakeResult { info, secured: Some(secured) }),
                    Err(error) => Err(DialError::Unreachable(error.to_string())),
                }
            }
            None => greet(shared, incarnation, &mut stream, &mut decoder).await,
        }
    };
    let handshaken = timeout(shared.reception.timeouts.handshake, greet)
        .await
        .map_err(|_| late("the handshake"))??;
    Ok(HandshakenConnection { stream, decoder, handshaken })
}

fn side<'a>(shared: &'a TransportState, incarnation: &'a Incarnation) -> HandshakeSide<'a> {
    HandshakeSide {
        cluster: &shared.cluster,
        me: &incarnation.me,
        identity: incarnation.identity.as_deref(),
        reception: &shared.reception,
    }
}

/// The dialler's part without a key.
async fn greet(
    shared: &TransportState,
    incarnation: &Incarnation,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<HandshakeResult, DialError> {
    stream.write_all(&bytes_of(&Frame::Hello(shared.handshake(incarnation).into()))).await?;
    match read_hello(stream, decoder, &mut 0).await {
        Ok(Some(Frame::Welcome(welcome)))
            if welcome.cluster == shared.cluster && welcome.me.process != NO_PROCESS =>
        {
            decoder.open();
            Ok(HandshakeResult { info: welcome.me, secured: None })
        }
        Ok(Some(Frame::Welcome(welcome))) if welcome.cluster != shared.cluster => {
            Err(DialError::Stranger(HandshakeRefusal::ForeignCluster(welcome.cluster).to_string()))
        }
        Ok(Some(Frame::Refused(HandshakeRefusal::Busy))) => {
            Err(DialError::Unreachable(HandshakeRefusal::Busy.to_string()))
        }
        Ok(Some(Frame::Refused(refusal))) => Err(DialError::Stranger(refusal.to_string())),
        Err(HelloError::Frame(error @ (FrameError::Damaged | FrameError::Forged))) => {
            Err(DialError::Unreachable(error.to_string()))
        }
        Err(HelloError::Frame(FrameError::Versions(theirs))) => {
            Err(DialError::Stranger(HandshakeRefusal::Versions(theirs).to_string()))
        }
        Ok(Some(_)) | Err(HelloError::Frame(FrameError::Garbage | FrameError::Oversized(_))) => {
            Err(DialError::Stranger("the process there is no member".into()))
        }
        Ok(None) => Err(DialError::Unreachable("it closed the connection".into())),
        Err(HelloError::Io(error)) => Err(DialError::Unreachable(error.to_string())),
    }
}

async fn connect(bound: SocketAddr, addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = if addr.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Dial from the bound address, as datagrams are sent from there too. Never keep a port from a
    // later listener.
    socket.set_reuseaddr(true)?;
    if addr.is_ipv4() == bound.is_ipv4() && !bound.ip().is_unspecified() {
        socket.bind(SocketAddr::new(bound.ip(), 0))?;
    }
    let stream = socket.connect(addr).await?;
    // The socket is connected to itself: no process listens there, and chance picked that very port
    // for this end.
    if stream.local_addr()? == stream.peer_addr()? {
        return Err(io::ErrorKind::ConnectionRefused.into());
    }
    Ok(stream)
}

/// Watches a process of the view, if it runs on this host.
pub(super) fn watch(
    shared: &Arc<TransportState>,
    incarnation: &Arc<Incarnation>,
    info: &MemberInfo,
) {
    if let Some(held) = incarnation.watch.hold(info) {
        shared.spawn(incarnation, tell_death(shared.clone(), incarnation.clone(), held));
    }
}

/// Tells the engine when a process that is watched has ended.
async fn tell_death(shared: Arc<TransportState>, incarnation: Arc<Incarnation>, held: HeldProcess) {
    // The closing task waits for tasks that still deliver frames, and this task is none of them.
    let process = held.process;
    let told = tokio::select! {
        told = incarnation.watch.ended(held) => told,
        () = shared.closing.cancelled() => return,
    };
    match told {
        Ok(true) => incarnation.inbox.input(Input::Hint(Hint::Dead(process))),
        Ok(false) => {}
        Err(error) => {
            tracing::warn!(%process, %error, "cannot watch the end of a process of this host")
        }
    }
}

/// Serves a connection from its handshake to its end. Returns `false` if the connection was never
/// used, because its key or this incarnation is gone.
async fn converse(
    shared: &Arc<TransportState>,
    incarnation: &Arc<Incarnation>,
    addr: SocketAddr,
    opened: HandshakenConnection,
    admission: Admission,
) -> bool {
    let HandshakenConnection { stream, decoder, handshaken } = opened;
    let HandshakeResult { info, secured } = handshaken;
    let closed = CancellationToken::new();
    let redundant = CancellationToken::new();
    let evicted = admission.end.clone();
    let dialled = admission.opening != ConnectionOpening::Accepted;
    // The session is held until the end, so that a removed key closes the connection.
    let _session = match (&secured, &shared.security) {
        (Some(secured), Some(security)) => match security.register(secured, redundant.clone()) {
            Some(session) => Some(session),
            None => return false,
        },
        _ => None,
    };
    let (read_half, writer) = stream.into_split();
    add(&shared.reception.counters.connected, 1);
    tracing::debug!(
        target: "elderlock",
        process = %info.process, %addr, dialled,
        key = secured.as_ref().map(|secured| tracing::field::display(&secured.key)),
        "connected"
    );
    let (reception, me) = (shared.reception.clone(), incarnation.clone());
    let reader =
        ConnectionReader::new(reception, me, addr, info.clone(), read_half, decoder, admission);
    let reader = Arc::new(reader);
    let link = ConnectionWriter {
        process: info.process,
        versions: info.versions,
        writer,
        sealer: secured.map(|secured| secured.sealer),
        reader: reader.clone(),
        closed: closed.clone(),
        redundant: redundant.clone(),
        dialled,
        is_preferred: dialled == (incarnation.me.process < info.process),
        opened: Instant::now(),
    };
    let Some(peer) = shared.adopt(incarnation, addr, link) else { return false };
    let process = info.process;
    let mut connection =
        AdoptedConnection { shared, incarnation, process, reader, closed, peer, is_over: false };
    // A stranger may claim to be any process of this host, so only members are watched.
    if shared.reception.is_member(info.process) {
        watch(shared, incarnation, &info);
    }
    incarnation.inbox.input(Input::Hint(Hint::Connected(info.process)));

    let ended = async {
        tokio::select! {
            () = redundant.cancelled() => ConnectionEnd::Ours,
            () = evicted.cancelled() => ConnectionEnd::Ours,
            () = connection.closed.cancelled() => ConnectionEnd::Broken,
        }
    };
    let ending = tokio::select! {
        biased;
        ending = on_wake(Box::pin(ended)) => ending,
        ending = connection.reader.listen() => ending,
    };
    let left = connection.end();
    let silent = match ending {
        ConnectionEnd::Ours => true,
        // There is another connection: the side that closed this one uses the other.
        ConnectionEnd::Closed => left > 0,
        ConnectionEnd::Broken => false,
    };
    if !silent && !shared.closing.is_cancelled() {
        incarnation.inbox.input(Input::Hint(Hint::Unreachable(process)));
    }
    true
}

/// A connection that the network uses. It ends with its task, also if that panics: without its
/// reader a connection carries no answers.
struct AdoptedConnection<'a> {
    shared: &'a Arc<TransportState>,
    incarnation: &'a Arc<Incarnation>,
    process: ProcessId,
    reader: Arc<ConnectionReader>,
    closed: CancellationToken,
    peer: Arc<Peer>,
    is_over: bool,
}

impl AdoptedConnection<'_> {
    /// Ends the use of the connection. Returns how many connections with its process are left.
    fn end(&mut self) -> usize {
        if std::mem::replace(&mut self.is_over, true) {
            return 0;
        }
        self.reader.close();
        let left = self.shared.closed(self.incarnation, self.process);
        self.closed.cancel();
        self.peer.link_closed();
        left
    }
}

impl Drop for AdoptedConnection<'_> {
    fn drop(&mut self) {
        self.end();
    }
}
