//! Bytes to values and back: the only module that knows the format of elderlock on a network.
//!
//! - A **frame** is the unit of a connection: its length, its kind, its body, a checksum. A
//!   connection begins with a handshake, in which each side identifies itself and nothing is
//!   accepted but a small hello.
//! - With a cluster key, frames travel in sealed **records**, and datagrams are sealed (`secure`).
//! - A **datagram** is the unit of UDP: gossip with magic, version and cluster name in front.
//! - A **stored vote** is the content of a data directory, with a checksum.
//!
//! All input is checked here, once: behind this module values cannot be wrong in form. Wrong input
//! is an ordinary error that the runtime counts; nothing here panics on input, or allocates more
//! than a frame may be long.
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod buffer;
mod codec;
mod datagram;
mod frame;
mod handshake;
mod packet;
#[cfg(feature = "secure")]
pub mod secure;
#[cfg(not(feature = "secure"))]
#[path = "secure_absent.rs"]
pub mod secure;
mod vote;

pub use buffer::ByteQueue;
pub use codec::{CodecError, GossipCodec};
pub use datagram::{DatagramError, MAX_DATAGRAM, MAX_PAYLOAD, open, seal};
pub use frame::{
    Decoder, Frame, FrameError, MAX_FRAME, MAX_HELLO, MAX_STRANGE_FRAME, encode, frame_length,
};
pub use handshake::{Handshake, HandshakeRefusal, MAX_CLUSTER, MAX_RESERVED, StatusQuery};
pub use vote::{VoteError, read_vote, write_vote};

/// The version of everything in this module. Members of different versions do not speak to each
/// other.
///
/// - 1: frames without a checksum.
/// - 2: a checksum behind each frame.
/// - 3: transfers, suspensions, batches and questions.
/// - 4: shares, permits and objects.
/// - 5: a relayed packet names the member through which its sender heard the other; suspicions
///   beside a refused connection.
/// - 6: a member that asks for a grantor states the youngest epoch that it has heard of.
/// - 7: a holder is listed with its request, by which a revocation names the hold; messages are
///   grouped by the role that handles them.
pub const PROTOCOL_VERSION: u16 = 7;
