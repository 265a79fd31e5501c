//! `Transport`: one member's network, from binding to closing.

use super::connection_reader::ConnectionReader;
use super::counters::{Counters, add};
use super::reception::{GossipInput, Reception};
use super::security::Security;
use super::timeouts::ConnectionTimeouts;
use super::transport_state::{TransportParts, TransportState};
use super::{dialer, resolve, tcp, udp};
use crate::protocol::{MemberInfo, Notice, Packet, ProcessId, StaticPublicKey, View};
use crate::runtime::inbox::Inbox;
use crate::runtime::network::{Network, Outbox};
use crate::runtime::process_id;
use crate::wire::MAX_CLUSTER;
#[cfg(feature = "secure")]
use crate::wire::secure::Keyring;
use rand::rngs::SysError;
use socket2::{Domain, Protocol, Socket, Type};
use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::mpsc;

/// Connections that wait to be accepted: all members of a large cluster at once.
const BACKLOG: i32 = 1024;
/// How many free ports are tried until one is free for both protocols.
const PORT_TRIES: usize = 64;
/// How long a closing member tries to deliver queued frames.
const FLUSH: Duration = Duration::from_millis(500);

/// The configuration of a transport.
#[derive(Clone, Debug)]
pub(crate) struct TransportOptions {
    /// The cluster's name, 1 to 64 bytes.
    pub(crate) cluster: String,
    /// `host:port`; port 0 takes a free one.
    pub(crate) bind: String,
    /// `host:port` that others dial; `None`: the bound address.
    pub(crate) advertise: Option<String>,
    /// The seeds, each as `host:port`.
    pub(crate) seeds: Vec<String>,
    /// Allows an address outside loopback, where any process may connect.
    pub(crate) insecure: bool,
    /// The time limits of dials, handshakes and writes.
    pub(crate) limits: ConnectionTimeouts,
    /// How long to keep a thread awake for the next packet; zero: never.
    pub(crate) busy_poll: Duration,
    /// The most bytes that wait to be written to processes outside the view.
    pub(crate) stranger_memory: usize,
    /// The cluster's keys. `None`: the member speaks to every process that reaches the port.
    #[cfg(feature = "secure")]
    pub(crate) keyring: Option<Keyring>,
}

impl TransportOptions {
    /// Usual limits, no seeds.
    #[cfg(test)]
    pub(crate) fn new(cluster: impl Into<String>, bind: impl Into<String>) -> Self {
        TransportOptions {
            cluster: cluster.into(),
            bind: bind.into(),
            advertise: None,
            seeds: Vec::new(),
            insecure: false,
            limits: ConnectionTimeouts::default(),
            busy_poll: Duration::from_micros(50),
            stranger_memory: 64 * 1024 * 1024,
            #[cfg(feature = "secure")]
            keyring: None,
        }
    }
}

/// Why a transport could not be bound. Nothing is left open.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BindError {
    /// The cluster's name has a length that is not allowed.
    #[error("a cluster name must have 1 to {MAX_CLUSTER} bytes, not {0}")]
    ClusterName(usize),
    /// The address is not `host:port`, or the host is not known.
    #[error("cannot {what} '{addr}': {source}")]
    Address {
        /// The address as it was given.
        addr: String,
        /// "bind" or "advertise".
        what: &'static str,
        /// The cause.
        source: io::Error,
    },
    /// Any process could connect.
    #[error(
        "{0} is reachable from outside this host and the cluster has no key: \
         give a keyring(), bind() the loopback, or say insecure()"
    )]
    NotLoopback(SocketAddr),
    /// No other process can dial such an address.
    #[error("{0} cannot be dialled by others: give an address to advertise, such as 10.0.0.5:7400")]
    NotDialable(SocketAddr),
    /// Another process has the port.
    #[error("{protocol} port {addr} is taken")]
    Taken {
        /// The address.
        addr: SocketAddr,
        /// "TCP" or "UDP".
        protocol: &'static str,
    },
    /// The system refuses.
    #[error("cannot bind {protocol} {addr}: {source}")]
    Io {
        /// The address.
        addr: SocketAddr,
        /// "TCP" or "UDP".
        protocol: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
}

/// The parts of a transport between binding and starting.
struct BoundTransport {
    listener: TcpListener,
    socket: UdpSocket,
    gossip: mpsc::Receiver<GossipInput>,
    seeds: Vec<String>,
}

/// One member's network. When it is dropped, it ends without flushing.
pub(crate) struct Transport {
    shared: Arc<TransportState>,
    unstarted: Mutex<Option<BoundTransport>>,
}

impl Transport {
    /// Binds TCP and UDP on the same port and resolves the seeds once. Call this in a tokio
    /// runtime, on which all tasks of the transport run.
    pub(crate) async fn bind(options: TransportOptions) -> Result<Transport, BindError> {
        #[cfg(feature = "secure")]
        let security = options.keyring.map(Security::new);
        #[cfg(not(feature = "secure"))]
        let security: Option<Security> = None;
        let TransportOptions {
            cluster,
            bind,
            advertise,
            seeds,
            insecure,
            limits,
            busy_poll,
            stranger_memory,
            ..
        } = options;
        if !(1..=MAX_CLUSTER).contains(&cluster.len()) {
            return Err(BindError::ClusterName(cluster.len()));
        }
        let wanted = first_address(&bind, "bind", |_| true).await?;
        if !wanted.ip().is_loopback() && !insecure && security.is_none() {
            return Err(BindError::NotLoopback(wanted));
        }
        let given = match &advertise {
            Some(advertise) => Some(
                first_address(advertise, "advertise", |a| a.is_ipv4() == wanted.is_ipv4()).await?,
            ),
            None if wanted.ip().is_unspecified() => return Err(BindError::NotDialable(wanted)),
            None => None,
        };
        let (listener, socket, bound) = bind_both(wanted)?;
        let mut advertised = given.unwrap_or(bound);
        if advertised.port() == 0 {
            advertised.set_port(bound.port());
        }
        if advertised.ip().is_unspecified() {
            return Err(BindError::NotDialable(advertised));
        }
        let resolved = resolve::resolve(&seeds, bound.is_ipv4()).await;
        let (sender, gossip) = mpsc::channel(udp::INPUTS);
        let shared = Arc::new(TransportState::new(TransportParts {
            cluster,
            bound,
            advertised,
            reception: Reception::new(limits, busy_poll, stranger_memory, sender),
            drive: dialer::drive,
            security,
            seeds: resolved.addrs,
            unresolved: resolved.unresolved,
        }));
        Ok(Transport {
            shared,
            unstarted: Mutex::new(Some(BoundTransport { listener, socket, gossip, seeds })),
        })
    }

    /// The address that others dial.
    pub(crate) fn advertised(&self) -> SocketAddr {
        self.shared.advertised
    }

    /// The bound address.
    #[cfg(test)]
    pub(crate) fn bound(&self) -> SocketAddr {
        self.shared.bound
    }

    /// All addresses of all seeds, as last resolved.
    pub(crate) fn seeds(&self) -> BTreeSet<SocketAddr> {
        self.shared.seeds.borrow().clone()
    }

    /// The seeds for the engine: without this member's own address while the name of a seed does
    /// not resolve. Changes come as [`Command::Seeds`](crate::protocol::Command).
    pub(crate) fn known_seeds(&self) -> BTreeSet<SocketAddr> {
        self.shared.known_seeds()
    }

    /// Seeds that did not resolve to an address that can be reached from here, and why.
    pub(crate) fn unresolved(&self) -> Vec<(String, String)> {
        self.shared.unresolved.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Begins to accept, to gossip and to send. Earlier messages are lost. A second call does
    /// nothing.
    pub(crate) fn start(self: &Arc<Self>, inbox: Arc<dyn Inbox>, me: MemberInfo) {
        let unstarted = self.unstarted.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(BoundTransport { listener, socket, gossip, seeds }) = unstarted else { return };
        let shared = &self.shared;
        shared.begin(inbox, me);
        let spawn = |task: std::pin::Pin<Box<dyn Future<Output = ()> + Send>>| {
            let ended = shared.ended.clone();
            let task = async move {
                tokio::select! {
                    () = task => {}
                    () = ended.cancelled() => {}
                }
            };
            shared.tasks.spawn_on(shared.home.keep(task), &shared.handle);
        };
        spawn(Box::pin(tcp::accept(shared.clone(), listener)));
        spawn(Box::pin(udp::gossip(shared.clone(), socket, gossip)));
        spawn(Box::pin(resolve::keep_resolving(shared.clone(), seeds)));
    }

    /// Gives this process a new identity: closes all connections, drops all queued frames, shakes
    /// hands and gossips under the new id. May be called under the engine's lock.
    pub(crate) fn reborn(&self, me: MemberInfo) {
        if let Some(incarnation) = self.shared.incarnation() {
            self.shared.begin(incarnation.inbox.clone(), me);
        }
        self.set_in_discovery(true);
    }

    /// Sets whether the member has no cluster yet: names of seeds are then resolved more often. A
    /// new transport has none.
    fn set_in_discovery(&self, in_discovery: bool) {
        self.shared.in_discovery.send_replace(in_discovery);
    }

    /// Why the last dial of `addr` failed; `None` if it did not.
    pub(crate) fn last_error(&self, addr: SocketAddr) -> Option<String> {
        self.shared.last_error(addr)
    }

    /// The present counts.
    pub(crate) fn counters(&self) -> Counters {
        let evicted = self.shared.admissions.evicted.load(std::sync::atomic::Ordering::Relaxed);
        Counters { evicted, ..self.shared.reception.counters.read() }
    }

    /// Returns whether connections are authenticated.
    pub(crate) fn has_key(&self) -> bool {
        self.shared.security.is_some()
    }

    /// Replaces the keyring. Returns the number of closed connections; `None`: this member has no
    /// keyring.
    #[cfg(feature = "secure")]
    pub(crate) fn set_keyring(&self, ring: Keyring) -> Option<usize> {
        Some(self.shared.security.as_ref()?.set_keyring(ring))
    }

    /// Stops accepting, delivers queued frames as far as half a second allows, closes and ends
    /// every task.
    pub(crate) async fn shutdown(&self) {
        let shared = &self.shared;
        if shared.home.is_left() {
            return;
        }
        shared.closing.cancel();
        drop(self.unstarted.lock().unwrap_or_else(PoisonError::into_inner).take());
        shared.tasks.close();
        let _ = tokio::time::timeout(FLUSH, shared.tasks.wait()).await;
        shared.end();
        shared.tasks.wait().await;
    }
}

impl Outbox for Transport {
    fn send(&self, to: SocketAddr, process: Option<ProcessId>, packet: Packet) {
        self.shared.send(to, process, packet);
    }
}

impl Network for Transport {
    fn reborn(&self, me: MemberInfo) {
        Transport::reborn(self, me);
    }

    fn draw_identity(&self) -> Result<(ProcessId, Option<StaticPublicKey>), SysError> {
        match &self.shared.security {
            Some(security) => {
                let (process, key) = security.draw_identity()?;
                Ok((process, Some(key)))
            }
            None => Ok((process_id::draw_process()?, None)),
        }
    }

    fn installed(&self, view: &View) {
        self.shared.set_view(view);
        if let Some(incarnation) = self.shared.incarnation() {
            incarnation.watch.keep(view);
            let members = view.members.iter();
            members.for_each(|member| tcp::watch(&self.shared, &incarnation, &member.info));
        }
    }

    fn counters(&self) -> Counters {
        Transport::counters(self)
    }

    fn farewell(&self, to: &MemberInfo) {
        self.send(to.addr, Some(to.process), Packet::from(Notice::Leave));
    }

    fn claim_refused(&self) {
        add(&self.shared.reception.counters.vote_claims, 1);
    }

    fn heard_other_lineage(&self) {
        add(&self.shared.reception.counters.other_lineage, 1);
    }

    fn joined(&self) {
        self.set_in_discovery(false);
    }

    fn flush(&self, is_urgent: bool) -> Option<Arc<ConnectionReader>> {
        self.shared.flush(is_urgent)
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        if self.shared.home.is_left() {
            // The sockets of the transport are not closed here. See `ForkGuard::keep`.
            std::mem::forget(self.shared.clone());
            return;
        }
        self.shared.closing.cancel();
        self.shared.end();
    }
}

async fn first_address(
    addr: &str,
    what: &'static str,
    fits: impl Fn(&SocketAddr) -> bool,
) -> Result<SocketAddr, BindError> {
    let error = |source| BindError::Address { addr: addr.into(), what, source };
    let found = resolve::lookup(addr).await.map_err(error)?;
    found.into_iter().find(fits).ok_or_else(|| {
        error(io::Error::new(
            io::ErrorKind::NotFound,
            "it has no address of the family that is bound",
        ))
    })
}

/// Binds both sockets on one port.
fn bind_both(wanted: SocketAddr) -> Result<(TcpListener, UdpSocket, SocketAddr), BindError> {
    let mut tries = if wanted.port() == 0 { PORT_TRIES } else { 1 };
    loop {
        let listener = bind_tcp(wanted).map_err(|source| failure(wanted, "TCP", source))?;
        let bound = listener.local_addr().map_err(|source| failure(wanted, "TCP", source))?;
        tries -= 1;
        match bind_udp(bound) {
            Ok(socket) => return Ok((listener, socket, bound)),
            // The port is free for one protocol only: another free port may do.
            Err(error) if error.kind() == io::ErrorKind::AddrInUse && tries > 0 => {}
            Err(error) => return Err(failure(bound, "UDP", error)),
        }
    }
}

fn failure(addr: SocketAddr, protocol: &'static str, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::Taken { addr, protocol },
        _ => BindError::Io { addr, protocol, source },
    }
}

fn bind_tcp(addr: SocketAddr) -> io::Result<TcpListener> {
    let socket = Socket::new(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    // After a restart in place the system may still keep connections of the earlier process. On
    // Windows the option would let two processes listen on one port.
    #[cfg(not(windows))]
    socket.set_reuse_address(true)?;
    bind_to(&socket, addr)?;
    socket.listen(BACKLOG)?;
    TcpListener::from_std(socket.into())
}

fn bind_udp(addr: SocketAddr) -> io::Result<UdpSocket> {
    let socket = Socket::new(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
    bind_to(&socket, addr)?;
    UdpSocket::from_std(socket.into())
}

fn bind_to(socket: &Socket, addr: SocketAddr) -> io::Result<()> {
    if addr.is_ipv6() {
        // Each socket has one family: a member with both would have two addresses.
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&addr.into())
}

#[cfg(test)]
mod tests;
