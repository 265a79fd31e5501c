//! Replaces `security` in a build without the feature `secure`: no member has a key.

use super::reception::Reception;
use crate::protocol::{MemberInfo, Packet, ProcessId, StaticPublicKey, View};
use crate::wire::secure::Sealer;
use crate::wire::{Decoder, Frame, HandshakeRefusal};
use rand::rngs::SysError;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

pub(super) use {
    NoDatagrams as Datagrams, NoHandshakeAnswer as HandshakeAnswer,
    NoHandshakeForWriter as HandshakeForWriter, NoHandshakeSide as HandshakeSide,
    NoRelays as Relays, NoSecurity as Security, NoStaticKey as StaticKey,
};

/// Has no value.
pub(super) struct NoSecurity(Infallible);
/// Has no value.
pub(super) struct NoStaticKey(#[allow(dead_code)] Infallible);
/// Has no value.
pub(super) struct NoHandshakeForWriter {
    pub(super) sealer: Sealer,
    pub(super) key: &'static str,
}
/// Has no value.
pub(super) struct NoDatagrams(Infallible);

/// Has no value.
pub(super) struct NoRelays(Infallible);

/// A part in a handshake that never begins.
#[allow(dead_code, reason = "no handshake reads it")]
pub(super) struct NoHandshakeSide<'a> {
    pub(super) cluster: &'a str,
    pub(super) me: &'a MemberInfo,
    pub(super) identity: Option<&'a NoStaticKey>,
    pub(super) reception: &'a Reception,
}

impl NoSecurity {
    pub(super) fn draw_identity(&self) -> Result<(ProcessId, StaticPublicKey), SysError> {
        match self.0 {}
    }

    pub(super) fn take_identity(&self, _process: ProcessId) -> Option<Arc<NoStaticKey>> {
        match self.0 {}
    }

    pub(super) fn register(
        &self,
        _secured: &NoHandshakeForWriter,
        _end: CancellationToken,
    ) -> Option<Infallible> {
        match self.0 {}
    }

    pub(super) fn subscribe(&self) -> watch::Receiver<()> {
        match self.0 {}
    }
}

/// The result of a handshake that never begins.
#[allow(dead_code, reason = "no handshake ends")]
pub(super) enum NoHandshakeAnswer {
    Member(Box<MemberInfo>, Box<NoHandshakeForWriter>),
    Status(Box<Sealer>, u16, Option<ProcessId>),
    Order(Box<NoHandshakeForWriter>),
    Refused(Option<HandshakeRefusal>),
}

pub(super) async fn greet(
    _side: &NoHandshakeSide<'_>,
    security: &NoSecurity,
    _stream: &mut TcpStream,
    _decoder: &mut Decoder,
) -> Result<(MemberInfo, NoHandshakeForWriter), Infallible> {
    match security.0 {}
}

pub(super) async fn answer(
    _side: &NoHandshakeSide<'_>,
    security: &NoSecurity,
    _initiate: &[u8],
    _stream: &mut TcpStream,
    _decoder: &mut Decoder,
) -> NoHandshakeAnswer {
    match security.0 {}
}

pub(super) fn sealed(_sealer: &mut Sealer, _version: u16, _frame: &Frame) -> Option<Vec<u8>> {
    None
}

impl NoDatagrams {
    pub(super) fn new(security: &NoSecurity, _cluster: &str, _me: ProcessId) -> Self {
        match security.0 {}
    }

    pub(super) fn set_keyring(&mut self, _ring: ()) {
        match self.0 {}
    }

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
        _may_answer: impl Fn(bool) -> bool,
        _reply: &mut Vec<u8>,
    ) -> Result<Option<&'a [u8]>, Infallible> {
        match self.0 {}
    }
}

impl NoRelays {
    pub(super) fn new(identity: Arc<NoStaticKey>) -> Self {
        match identity.0 {}
    }

    pub(super) fn set_view(&self, _view: &View) {
        match self.0 {}
    }

    pub(super) fn seal(&self, _packet: Packet, _version: u16) -> Option<Packet> {
        match self.0 {}
    }

    pub(super) fn open(
        &self,
        _packet: Packet,
        _is_strange: bool,
        _reception: &Reception,
        _relay: &MemberInfo,
    ) -> Option<Packet> {
        match self.0 {}
    }
}

pub(super) fn refuse_sealed(_reception: &Reception, _from: SocketAddr, error: &Infallible) {
    match *error {}
}
