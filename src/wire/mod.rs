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
mod limits;
mod order;
mod packet;
mod role;
#[cfg(feature = "secure")]
pub mod secure;
#[cfg(not(feature = "secure"))]
#[path = "secure_absent.rs"]
pub mod secure;
mod version;
mod vote;

pub use buffer::ByteQueue;
pub use codec::{CodecError, GossipCodec};
pub use datagram::{DatagramError, MAX_DATAGRAM, MAX_PAYLOAD, open, seal};
pub use frame::{Decoder, Frame, FrameError, encode, frame_length};
pub use handshake::{Handshake, HandshakeRefusal, MAX_CLUSTER, MAX_RESERVED, StatusQuery};
pub use limits::{MAX_FRAME, MAX_HELLO, MAX_STRANGE_FRAME, MAX_UNKNOWN_FRAME};
pub use order::{
    Order, OrderReport, OrderRequest, ReportedHolder, ReportedWaiter, SessionMessage,
    SessionRequest,
};
pub use role::Role;
pub use version::PROTOCOL_VERSION;
pub use vote::{VOTE_FORMAT, VOTE_MAGIC, VoteError, read_vote, write_vote};
