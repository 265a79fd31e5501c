//! Frames: the units of a connection, and their decoding from a stream of bytes.
//!
//! ```text
//! length 4 (of what follows) | kind 1 | version 2 | body | crc32 4 (of all before it)
//! ```
//!
//! The version is that of the body. The frames of a handshake, questions and orders have magic and
//! a range of versions in its place (`handshake.rs`). A member sends in the version of its view. So
//! a frame in a version that its reader does not speak is from a member with another view. Such a
//! frame is dropped as if it were lost, and the connection continues.
//!
//! TCP's own checksum passes one damaged segment in 65,536, and four in ten damaged packets would
//! have another meaning. Believing one could forge a token. So nothing of a frame is decoded before
//! its checksum is right. Only the magic and version of a handshake are read before, since another
//! version may have another checksum, or none.

use super::buffer::ByteQueue;
use super::handshake::{Handshake, HandshakeError, HandshakeRefusal, MAGIC, StatusQuery};
use super::limits::{MAX_FRAME, MAX_HELLO, MAX_STRANGE_FRAME, MAX_UNKNOWN_FRAME};
use super::order::{OrderReport, OrderRequest, SessionMessage};
use super::secure::{Forged, Opener};
use super::version::{FROZEN, VERSIONS};
use super::{codec, handshake, packet};
use crate::protocol::{Packet, Status, Versions};
use std::sync::LazyLock;

/// The number of bytes of the length, which begins a frame.
const LENGTH: usize = 4;
/// The number of bytes of the checksum, which ends a frame.
const CHECKSUM: usize = 4;

/// A unit of a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frame {
    /// The dialler identifies itself.
    Hello(Box<Handshake>),
    /// The listener accepts, and identifies itself.
    Welcome(Box<Handshake>),
    /// The listener does not accept.
    Refused(HandshakeRefusal),
    /// A caller that does not join asks for the listener's status, instead of a hello.
    Question(StatusQuery),
    /// The answer to a question; the connection ends with it.
    StatusIs(Box<Status>),
    /// A packet of the protocol.
    Packet(Packet),
    /// A request for the whole state of gossip.
    GossipWanted,
    /// The whole state of gossip.
    Gossip(Vec<u8>),
    /// The first of three packets of a handshake with a key, see `secure`: the body behind magic.
    Initiate(Vec<u8>),
    /// The listener's answer to `Initiate`.
    Respond(Vec<u8>),
    /// The dialler's proof that it is present. Records follow.
    Confirm(Vec<u8>),
    /// A caller that does not join gives an order: without a key instead of a hello, else as the
    /// first record.
    Order(Box<OrderRequest>),
    /// A step of an order that is carried out.
    Report(Box<OrderReport>),
    /// A program's message about the lock that a member holds for it. Its form is frozen, because a
    /// program does not know the versions of a member without a key.
    Session(SessionMessage),
}

const HELLO: u8 = 0;
const WELCOME: u8 = 1;
const REFUSED: u8 = 2;
const FLAT: u8 = 3;
const RELAY: u8 = 4;
const GOSSIP_WANTED: u8 = 5;
const GOSSIP: u8 = 6;
const QUESTION: u8 = 7;
const STATUS_IS: u8 = 8;
const INITIATE: u8 = 9;
const RESPOND: u8 = 10;
const CONFIRM: u8 = 11;
const ORDER: u8 = 12;
const REPORT: u8 = 13;
const SESSION: u8 = 14;

/// Why bytes are not a frame, or a frame cannot become bytes.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum FrameError {
    /// The frame is longer than allowed at this point.
    #[error("a frame of {0} bytes is too long")]
    Oversized(usize),
    /// The frame is a handshake of another version of the protocol.
    #[error("protocol version {0}; this process speaks {VERSIONS}")]
    Versions(Versions),
    /// Bytes of the frame were changed on the way.
    #[error("a damaged frame")]
    Damaged,
    /// The frame is in a record that the other side did not seal.
    #[error("a record that the other side did not seal: forged, repeated, moved, or damaged")]
    Forged,
    /// The bytes are not a frame for another reason.
    #[error("not a frame of elderlock")]
    Garbage,
}

impl From<HandshakeError> for FrameError {
    fn from(error: HandshakeError) -> Self {
        match error {
            HandshakeError::Garbage => FrameError::Garbage,
            HandshakeError::Versions(theirs) => FrameError::Versions(theirs),
        }
    }
}

impl From<Forged> for FrameError {
    fn from(_: Forged) -> Self {
        FrameError::Forged
    }
}

/// Appends `frame` to `out`, in a version. On error (too long, a relay in a relay) `out` is as
/// before.
pub fn encode(frame: &Frame, version: u16, out: &mut Vec<u8>) -> Result<(), FrameError> {
    let before = out.len();
    out.extend_from_slice(&[0; LENGTH]);
    if !write_body(frame, version, out) {
        out.truncate(before);
        return Err(FrameError::Garbage);
    }
    let length = out.len() - before - LENGTH + CHECKSUM;
    if length > MAX_FRAME {
        out.truncate(before);
        return Err(FrameError::Oversized(length));
    }
    // MAX_FRAME fits in 32 bits.
    out[before..before + LENGTH].copy_from_slice(&(length as u32).to_be_bytes());
    let sum = checksum(&out[before..]);
    out.extend_from_slice(&sum.to_be_bytes());
    Ok(())
}

/// The checksum of a frame's other bytes.
fn checksum(bytes: &[u8]) -> u32 {
    // A new hasher asks what the processor can do, which costs as much as a short frame's sum.
    static HASHER: LazyLock<crc32fast::Hasher> = LazyLock::new(crc32fast::Hasher::new);
    let mut hasher = HASHER.clone();
    hasher.update(bytes);
    hasher.finalize()
}

/// Appends kind, version and body; `false`: they cannot be written.
fn write_body(frame: &Frame, version: u16, out: &mut Vec<u8>) -> bool {
    let kind = match frame {
        Frame::Hello(_) => HELLO,
        Frame::Welcome(_) => WELCOME,
        Frame::Refused(_) => REFUSED,
        Frame::Question(_) => QUESTION,
        Frame::StatusIs(_) => STATUS_IS,
        Frame::Packet(Packet::Relay { .. }) => RELAY,
        Frame::Packet(_) => FLAT,
        Frame::GossipWanted => GOSSIP_WANTED,
        Frame::Gossip(_) => GOSSIP,
        Frame::Initiate(_) => INITIATE,
        Frame::Respond(_) => RESPOND,
        Frame::Confirm(_) => CONFIRM,
        Frame::Order(_) => ORDER,
        Frame::Report(_) => REPORT,
        Frame::Session(_) => SESSION,
    };
    out.push(kind);
    if !is_opening(kind) {
        out.extend_from_slice(&version.to_be_bytes());
    }
    match frame {
        Frame::Hello(handshake) | Frame::Welcome(handshake) => handshake.write(out).is_ok(),
        Frame::Refused(refusal) => refusal.write(out).is_ok(),
        Frame::Question(question) => question.write(out).is_ok(),
        Frame::StatusIs(status) => codec::write(status, version, out).is_ok(),
        Frame::Order(order) => order.write(out).is_ok(),
        Frame::Report(report) => codec::write(report, version, out).is_ok(),
        Frame::Session(message) => codec::write(message, FROZEN, out).is_ok(),
        Frame::Packet(Packet::Relay { from, to, troubled, heard, packet }) => {
            packet::write_relay(from, (*to, *troubled, *heard), packet, version, out)
                .is_some_and(|written| written.is_ok())
        }
        Frame::Packet(packet) => {
            packet::write_flat(packet, version, out).is_some_and(|written| written.is_ok())
        }
        Frame::GossipWanted => true,
        Frame::Gossip(state) => {
            out.extend_from_slice(state);
            true
        }
        Frame::Initiate(body) | Frame::Respond(body) | Frame::Confirm(body) => {
            out.extend_from_slice(&MAGIC);
            out.extend_from_slice(body);
            true
        }
    }
}

/// Returns whether a frame of that kind begins a connection: it has magic and a range of versions.
fn is_opening(kind: u8) -> bool {
    matches!(kind, HELLO | WELCOME | REFUSED | QUESTION | ORDER | INITIATE | RESPOND | CONFIRM)
}

/// The number of bytes of the first frame of `bytes`, its length included; `None` if the length is
/// incomplete.
pub fn frame_length(bytes: &[u8]) -> Option<usize> {
    let (length, _) = bytes.split_first_chunk::<LENGTH>()?;
    Some(LENGTH + u32::from_be_bytes(*length) as usize)
}

/// Decodes frames from a stream.
///
/// A decoder never holds more than one frame of the allowed length and the bytes that were read
/// with it. The length is checked as soon as its four bytes are there. After an error the position
/// in the stream is lost, and nothing more can be read from it.
#[derive(Debug, Default)]
pub struct Decoder {
    buffer: ByteQueue,
    stage: ConnectionStage,
    /// The records, after a handshake with a key.
    sealed: Option<Box<Sealed>>,
    /// Whether the other side is outside the view. Its frames are short, and of linked packets only
    /// the head is decoded.
    is_strange: bool,
    /// Whether no view shows the other side as a member. Its frames are then not long.
    is_unknown: bool,
    /// The number of frames that were dropped because of their version.
    unspoken: usize,
    /// The error of a record that [`skip_unless`](Decoder::skip_unless) could not open. No record
    /// is opened after it.
    failed: Option<FrameError>,
}

/// The records of a decoder, before they are opened.
#[derive(Debug)]
struct Sealed {
    opener: Opener,
    records: ByteQueue,
}

/// The frames that a connection may carry next.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
enum ConnectionStage {
    /// A short frame of a handshake, a question or an order.
    #[default]
    Closed,
    /// All other frames.
    Open,
    /// An order under a key.
    Ordered,
    /// The answer to a question, or the reports on an order.
    Asked,
    /// The messages of a program for which a lock is held.
    Session,
}

impl ConnectionStage {
    fn allows(self, frame: &Frame) -> bool {
        let keyed = matches!(frame, Frame::Initiate(_) | Frame::Respond(_) | Frame::Confirm(_));
        let keyless = matches!(
            frame,
            Frame::Hello(_)
                | Frame::Welcome(_)
                | Frame::Refused(_)
                | Frame::Question(_)
                | Frame::Order(_)
        );
        let opening = keyed || keyless;
        match self {
            ConnectionStage::Closed => opening,
            ConnectionStage::Open => {
                let is_answer = matches!(frame, Frame::StatusIs(_) | Frame::Report(_));
                !opening && !is_answer && !matches!(frame, Frame::Session(_))
            }
            ConnectionStage::Session => matches!(frame, Frame::Session(_)),
            ConnectionStage::Ordered => matches!(frame, Frame::Order(_)),
            ConnectionStage::Asked => {
                matches!(frame, Frame::StatusIs(_) | Frame::Refused(_) | Frame::Report(_))
            }
        }
    }

    /// Reports a handshake of another version as such; any bytes may follow it. A connection that
    /// begins otherwise is not a member's.
    fn check_version(self, body: &[u8]) -> Result<(), FrameError> {
        match (self, body.split_first()) {
            (ConnectionStage::Open, _) => Ok(()),
            (_, Some((&(HELLO | WELCOME | REFUSED | QUESTION | ORDER), body))) => {
                Ok(handshake::check_version(body)?)
            }
            // The handshake checks the range of versions, after the tag.
            (ConnectionStage::Closed, Some((&(INITIATE | RESPOND | CONFIRM), body)))
                if body.starts_with(&MAGIC) =>
            {
                Ok(())
            }
            (ConnectionStage::Closed | ConnectionStage::Ordered, _) => Err(FrameError::Garbage),
            (ConnectionStage::Asked | ConnectionStage::Session, _) => Ok(()),
        }
    }
}

impl Decoder {
    /// A decoder that accepts no frame longer than [`MAX_HELLO`] until it is opened.
    pub fn new() -> Self {
        Decoder::default()
    }

    /// A decoder of the answer to a question.
    pub fn for_answer() -> Self {
        Decoder { stage: ConnectionStage::Asked, ..Decoder::default() }
    }

    /// Ends the handshake: from now on frames may be as long as [`MAX_FRAME`], and must not be
    /// handshakes.
    pub fn open(&mut self) {
        self.stage = ConnectionStage::Open;
    }

    /// Ends the handshake: one order follows, as short as a handshake.
    pub fn await_order(&mut self) {
        self.stage = ConnectionStage::Ordered;
    }

    /// Ends the handshake: only the answer to a question or an order follows.
    pub fn await_answer(&mut self) {
        self.stage = ConnectionStage::Asked;
    }

    /// Ends the reading of an order for a lock: only messages of its session follow.
    pub fn await_session(&mut self) {
        self.stage = ConnectionStage::Session;
    }

    /// Treats all input from now on as records, including bytes that were read behind the
    /// handshake.
    pub fn unseal(&mut self, opener: Opener) {
        self.sealed = Some(Box::new(Sealed { opener, records: std::mem::take(&mut self.buffer) }));
    }

    /// Sets whether the other side is outside this member's view. If so, its frames are at most
    /// [`MAX_STRANGE_FRAME`] long, and of a linked packet only the head is decoded, as an
    /// acknowledgement.
    pub fn set_strange(&mut self, is_strange: bool) {
        self.is_strange = is_strange;
    }

    /// Sets whether no view shows the other side as a member. If so, its frames are at most
    /// [`MAX_UNKNOWN_FRAME`] long, also while this member is in no view itself.
    pub fn set_unknown(&mut self, is_unknown: bool) {
        self.is_unknown = is_unknown;
    }

    /// The state that [`set_unknown`](Self::set_unknown) has set.
    pub fn is_unknown(&self) -> bool {
        self.is_unknown
    }

    /// The end of the buffer, where read bytes are appended.
    pub fn back(&mut self) -> &mut Vec<u8> {
        match &mut self.sealed {
            Some(sealed) => sealed.records.back(),
            None => self.buffer.back(),
        }
    }

    /// The number of waiting bytes.
    pub fn len(&self) -> usize {
        self.buffer.len() + self.sealed.as_ref().map_or(0, |sealed| sealed.records.len())
    }

    /// Returns whether no bytes wait.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Opens the next record; `false` if none is complete.
    fn open_record(&mut self) -> Result<bool, FrameError> {
        let Some(sealed) = &mut self.sealed else { return Ok(false) };
        let Some(whole) = Opener::length(sealed.records.as_slice())? else { return Ok(false) };
        let Some(record) = sealed.records.as_mut_slice().get_mut(..whole) else { return Ok(false) };
        let frames = sealed.opener.open(record)?;
        self.buffer.back().extend_from_slice(frames);
        sealed.records.advance(whole);
        Ok(true)
    }

    /// The number of bytes that may be appended before the end of the handshake: a listener reads
    /// no more of a stranger.
    pub fn hello_room(&self) -> usize {
        (LENGTH + MAX_HELLO).saturating_sub(self.buffer.len())
    }

    /// The number of frames since the last call that were dropped because their version is not
    /// spoken here.
    pub fn take_unspoken(&mut self) -> usize {
        std::mem::take(&mut self.unspoken)
    }

    /// The next complete frame; `None` if more bytes are needed.
    // This is no iterator, since `None` is not the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Frame>, FrameError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        loop {
            let before = self.unspoken;
            let frame = self.next_open()?;
            let has_dropped = self.unspoken > before;
            if frame.is_some() || !has_dropped && !self.open_record()? {
                return Ok(frame);
            }
        }
    }

    /// Drops the next frame without decoding it, if it is complete and `take` returns `false`.
    /// Returns `false` if the frame is left to [`next`](Self::next), which also reports errors.
    pub fn skip_unless(&mut self, take: impl FnOnce() -> bool) -> bool {
        loop {
            let whole = frame_length(self.buffer.as_slice());
            match whole {
                Some(whole) if whole > LENGTH + self.limit() => return false,
                Some(whole) if whole <= self.buffer.len() => {
                    let is_refused = !take();
                    self.buffer.advance(if is_refused { whole } else { 0 });
                    return is_refused;
                }
                _ => match self.open_record() {
                    Ok(true) => {}
                    Ok(false) => return false,
                    Err(error) => {
                        self.failed = Some(error);
                        return false;
                    }
                },
            }
        }
    }

    /// The longest frame at this stage.
    fn limit(&self) -> usize {
        match self.stage {
            ConnectionStage::Closed | ConnectionStage::Ordered | ConnectionStage::Session => {
                MAX_HELLO
            }
            ConnectionStage::Open if self.is_strange => MAX_STRANGE_FRAME,
            ConnectionStage::Open if self.is_unknown => MAX_UNKNOWN_FRAME,
            ConnectionStage::Open | ConnectionStage::Asked => MAX_FRAME,
        }
    }

    fn next_open(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some(whole) = frame_length(self.buffer.as_slice()) else { return Ok(None) };
        if whole > LENGTH + self.limit() {
            return Err(FrameError::Oversized(whole - LENGTH));
        }
        let Some(bytes) = self.buffer.as_slice().get(..whole) else { return Ok(None) };
        self.stage.check_version(&bytes[LENGTH..])?;
        let (sound, sum) = bytes.split_last_chunk::<CHECKSUM>().ok_or(FrameError::Garbage)?;
        let body = sound.get(LENGTH..).ok_or(FrameError::Garbage)?;
        if checksum(sound) != u32::from_be_bytes(*sum) {
            return Err(FrameError::Damaged);
        }
        if let Some(version) = unspoken_version(body) {
            if self.stage != ConnectionStage::Open {
                return Err(FrameError::Versions(Versions { lowest: version, highest: version }));
            }
            self.unspoken += 1;
            self.buffer.advance(whole);
            return Ok(None);
        }
        let frame = read_body(body, self.is_strange)?;
        if !self.stage.allows(&frame) {
            return Err(FrameError::Garbage);
        }
        self.buffer.advance(whole);
        Ok(Some(frame))
    }
}

/// The version of a frame behind the handshake, if it is not spoken here.
fn unspoken_version(body: &[u8]) -> Option<u16> {
    let (kind, rest) = body.split_first()?;
    let (version, _) = rest.split_first_chunk::<2>()?;
    let version = u16::from_be_bytes(*version);
    let is_free = is_opening(*kind) || *kind == SESSION;
    (!is_free && !VERSIONS.contains(version)).then_some(version)
}

fn read_body(body: &[u8], is_strange: bool) -> Result<Frame, FrameError> {
    let (kind, mut body) = body.split_first().ok_or(FrameError::Garbage)?;
    let mut version = 0;
    if !is_opening(*kind) {
        let (front, rest) = body.split_first_chunk::<2>().ok_or(FrameError::Garbage)?;
        (version, body) = (u16::from_be_bytes(*front), rest);
    }
    Ok(match *kind {
        HELLO => Frame::Hello(Handshake::read(body)?.into()),
        WELCOME => Frame::Welcome(Handshake::read(body)?.into()),
        REFUSED => Frame::Refused(HandshakeRefusal::read(body)?),
        FLAT => {
            Frame::Packet(packet::read_flat(body, version, is_strange).ok_or(FrameError::Garbage)?)
        }
        RELAY => {
            Frame::Packet(packet::read_relay(body, version, is_strange).ok_or(FrameError::Garbage)?)
        }
        QUESTION => Frame::Question(StatusQuery::read(body)?),
        ORDER => Frame::Order(OrderRequest::read(body)?.into()),
        STATUS_IS => Frame::StatusIs(Box::new(
            codec::read::<Status, MAX_FRAME>(body, version).map_err(|_| FrameError::Garbage)?,
        )),
        REPORT => Frame::Report(Box::new(
            codec::read::<OrderReport, MAX_FRAME>(body, version)
                .map_err(|_| FrameError::Garbage)?,
        )),
        SESSION => Frame::Session(
            codec::read::<SessionMessage, MAX_HELLO>(body, FROZEN)
                .map_err(|_| FrameError::Garbage)?,
        ),
        GOSSIP_WANTED if body.is_empty() => Frame::GossipWanted,
        GOSSIP => Frame::Gossip(body.to_vec()),
        INITIATE => Frame::Initiate(behind_magic(body)?),
        RESPOND => Frame::Respond(behind_magic(body)?),
        CONFIRM => Frame::Confirm(behind_magic(body)?),
        _ => return Err(FrameError::Garbage),
    })
}

fn behind_magic(body: &[u8]) -> Result<Vec<u8>, FrameError> {
    Ok(body.strip_prefix(&MAGIC).ok_or(FrameError::Garbage)?.to_vec())
}

#[cfg(test)]
mod tests;
