//! Stands for `security` in a build without the feature `secure`: no member has a key.

use super::counters::AtomicCounters;
use super::tcp::{DialError, Greeted};
use super::transport_state::{Incarnation, TransportState};
use crate::protocol::{MemberInfo, ProcessId};
use crate::wire::secure::Sealer;
use crate::wire::{Decoder, Frame, HandshakeRefusal};
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Of such there is none.
pub(super) struct Security(Infallible);
/// Of such there is none.
pub(super) struct StaticKey;
/// Of such there is none.
pub(super) struct OpenSession;
/// Of such there is none.
pub(super) struct Secured {
    pub(super) sealer: Sealer,
}
/// Of such there is none.
pub(super) struct Datagrams(Infallible);

impl Security {
    pub(super) fn draw_process(&self) -> Result<ProcessId, rand::rngs::SysError> {
        match self.0 {}
    }

    pub(super) fn take_identity(&self, _process: ProcessId) -> Option<Arc<StaticKey>> {
        match self.0 {}
    }

    pub(super) fn register(
        _shared: &Arc<TransportState>,
        _secured: &Secured,
        _end: CancellationToken,
    ) -> Option<OpenSession> {
        None
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        match self.0 {}
    }
}

/// What became of a handshake that a listener was asked for.
#[allow(dead_code, reason = "none is ever answered")]
pub(super) enum Answered {
    Member(Box<Greeted>),
    Status(Box<Sealer>),
    Refused(Option<HandshakeRefusal>),
}

pub(super) async fn greet(
    _shared: &TransportState,
    _life: &Incarnation,
    security: &Security,
    _stream: &mut TcpStream,
    _decoder: &mut Decoder,
) -> Result<Greeted, DialError> {
    match security.0 {}
}

pub(super) async fn answer(
    _shared: &TransportState,
    _life: &Incarnation,
    security: &Security,
    _initiate: &[u8],
    _stream: &mut TcpStream,
    _decoder: &mut Decoder,
) -> Answered {
    match security.0 {}
}

pub(super) fn sealed(_sealer: &mut Sealer, _frame: &Frame) -> Option<Vec<u8>> {
    None
}

impl Datagrams {
    pub(super) fn new(_shared: &TransportState, _me: &MemberInfo) -> Option<Self> {
        None
    }

    pub(super) fn set_keyring(&mut self, _ring: ()) {}

    pub(super) fn seal(
        &mut self,
        _to: SocketAddr,
        _process: Option<ProcessId>,
        _payload: &[u8],
        _out: &mut Vec<u8>,
    ) -> bool {
        match self.0 {}
    }

    pub(super) fn open<'a>(
        &mut self,
        _from: SocketAddr,
        _datagram: &'a mut [u8],
        _may_answer: impl Fn() -> bool,
        _reply: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, Infallible> {
        match self.0 {}
    }
}

pub(super) fn refuse_sealed(_tally: &AtomicCounters, error: &Infallible) {
    match *error {}
}
