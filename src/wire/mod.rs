//! The encoding of values as bytes: the only module that knows the format of elderlock on a
//! network.
//!
//! - A **frame** is the unit of a connection: its length, its kind, its body, a checksum. A
//!   connection begins with a handshake. In it each side identifies itself, and only a small hello
//!   is accepted.
//! - With a cluster key, frames travel in sealed **records**, and datagrams are sealed (`secure`).
//! - A **datagram** is the unit of UDP: gossip with magic, version and cluster name in front.
//! - A **stored vote** is the content of a data directory, with a checksum.
//!
//! All input is checked here, once: behind this module values cannot have a wrong form. Wrong input
//! is an ordinary error that the runtime counts; nothing here panics on input, or allocates more
//! than a frame may be long.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `frame.rs` | frames, cut out of a stream of bytes |
//! | `packet.rs` | packets of the core as bytes |
//! | `handshake.rs` | the beginning of a connection: each side identifies itself |
//! | `order.rs` | orders of an operator, and the reports on them |
//! | `datagram.rs` | the envelope of each datagram of gossip |
//! | `vote.rs` | stored votes as bytes |
//! | `role.rs` | `Role`: the rights of the holder of a key |
//! | `limits.rs`, `version.rs` | the longest frames; the versions of the wire |
//! | `buffer.rs`, `codec.rs` | a queue of bytes; the encoding of values |
//! | `secure/mod.rs` | keys and seals, without input and output |
//! | `secure/key.rs` | cluster keys and keyrings |
//! | `secure/handshake.rs` | the Noise handshake |
//! | `secure/record.rs` | the sealed records of a connection |
//! | `secure/gossip.rs`, `secure/relay.rs` | sealed datagrams; sealed relays |
//! | `secure/window.rs` | the numbers of one sender that were opened |
//! | `secure/mutant.rs` | planted breaks of the checks of keys |
//! | `secure_absent.rs` | `secure` in a build without it |
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
    Circle, HoldLease, Order, OrderReport, OrderRequest, ReportedBlocker, ReportedHolder,
    ReportedWaiter, SessionMessage, SessionRequest, SessionStop,
};
pub use role::Role;
pub use version::{GOSSIP_VERSION, PROTOCOL_VERSION, VERSIONS};
pub use vote::{VOTE_FORMAT, VOTE_MAGIC, VoteError, read_vote, write_vote};
