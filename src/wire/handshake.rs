//! The beginning of a connection: each side identifies itself before anything else is accepted.
//!
//! ```text
//! dialler ->[Hello] listener    listener ->[Welcome] dialler    or    listener ->[Refused] dialler
//! ```
//!
//! ```text
//! magic 4 | highest version 2 | lowest 2 | body
//! ```
//!
//! Length, kind, magic and the highest version come first, in a form that no later version may
//! change. So processes of different versions can tell each other why they do not speak. These
//! fields are read before the frame's checksum, which the first version did not have. (Up to
//! version 10 the body followed the one version at once.)
//!
//! The body is read before the versions of the other side count. So its form is frozen: it only
//! grows at its end, and a reader ignores the bytes behind the part that it knows.

use super::codec;
use super::limits::MAX_HELLO;
use super::order::OrderRequest;
use super::role::Role;
use super::version::{FROZEN, VERSIONS};
use crate::protocol::versioned::Trailing;
use crate::protocol::{MemberInfo, ProcessId, Versions};
use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The longest cluster name, in bytes.
pub const MAX_CLUSTER: usize = 64;
/// The longest `reserved` part of a handshake, in bytes.
pub const MAX_RESERVED: usize = 1024;

/// The first bytes of every handshake.
pub(super) const MAGIC: [u8; 4] = *b"EldT";

/// One side's statement of itself.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct Handshake {
    /// The name of the side's cluster.
    pub cluster: String,
    /// The process itself, with the versions that it speaks.
    pub me: MemberInfo,
    /// Room for authentication. Empty in this version, and ignored.
    pub reserved: Vec<u8>,
}

/// The statement of a caller that does not join, but asks for a member's status.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StatusQuery {
    /// The cluster of the member that the caller means.
    pub cluster: String,
    /// The versions that the caller speaks.
    pub versions: Versions,
    /// Room for authentication. Empty in this version, and ignored.
    pub reserved: Vec<u8>,
    /// The member of the view whose status is wanted. `None`: the listener.
    #[serde(with = "Trailing")]
    pub of: Option<ProcessId>,
}

/// Why a connection is not accepted.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize, thiserror::Error)]
pub enum HandshakeRefusal {
    /// The listener speaks none of the dialler's versions of the protocol.
    #[error("it speaks protocol version {0}; this process speaks {VERSIONS}")]
    Versions(Versions),
    /// The listener belongs to another cluster.
    #[error("it belongs to cluster '{}'", .0.escape_debug())]
    ForeignCluster(String),
    /// The bytes are not a handshake.
    #[error("it did not understand the handshake")]
    Garbage,
    /// The listener has as many connections as it takes.
    #[error("it has too many connections")]
    Busy,
    /// The listener has a cluster key, the dialler shook hands without one.
    #[error("it speaks only to processes with the cluster key: give this process the key file")]
    KeyWanted,
    /// The listener's keyring has no key of the dialler.
    #[error(
        "it does not have the key that this process seals with: compare the names of both keys"
    )]
    UnknownKey,
    /// The listener has the dialler's key, and another cluster's name.
    #[error("it has the same cluster key and belongs to a cluster of another name")]
    OtherCluster,
    /// The listener has no cluster key, the dialler has one.
    #[error("it has no cluster key; this process has one: give the key to all members, or to none")]
    NoKey,
    /// The role of the dialler's key does not allow the dialler's purpose.
    #[error("this process has an {} key: it {}", .0, .0.allows())]
    Role(Role),
    /// The listener was asked for the status of another member, and got no answer from it, for this
    /// reason.
    #[error("it has no answer from that member: {}", .0.escape_debug())]
    NotReached(String),
}

/// Returns whether other processes can reach a process at this address.
pub(super) fn is_dialable(addr: SocketAddr) -> bool {
    addr.port() != 0 && !addr.ip().is_unspecified()
}

/// The reasons why bytes are not a handshake.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum HandshakeError {
    Garbage,
    /// The two sides have no version in common.
    Versions(Versions),
}

fn write<T: Serialize>(
    value: &T,
    Versions { lowest, highest }: Versions,
    out: &mut Vec<u8>,
) -> Result<(), codec::CodecError> {
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&highest.to_be_bytes());
    out.extend_from_slice(&lowest.to_be_bytes());
    codec::write(value, FROZEN, out)
}

/// The versions, and the bytes behind them, if one of these versions is spoken here.
fn split_versions(bytes: &[u8]) -> Result<(Versions, &[u8]), HandshakeError> {
    let rest = bytes.strip_prefix(&MAGIC).ok_or(HandshakeError::Garbage)?;
    let (highest, rest) = rest.split_first_chunk::<2>().ok_or(HandshakeError::Garbage)?;
    let (lowest, rest) = rest.split_first_chunk::<2>().ok_or(HandshakeError::Garbage)?;
    let highest = u16::from_be_bytes(*highest);
    // Up to version 10 other bytes follow the version.
    let lowest = u16::from_be_bytes(*lowest).min(highest);
    let theirs = Versions { lowest, highest };
    match VERSIONS.common(theirs) {
        Some(_) => Ok((theirs, rest)),
        None => Err(HandshakeError::Versions(theirs)),
    }
}

/// Checks that these bytes begin as a handshake of a spoken version does.
pub(super) fn check_version(bytes: &[u8]) -> Result<(), HandshakeError> {
    split_versions(bytes).map(|_| ())
}

/// The value, and the versions in front of it.
fn read<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<(T, Versions), HandshakeError> {
    let (versions, body) = split_versions(bytes)?;
    let read = codec::read_front::<T, MAX_HELLO>(body, FROZEN);
    read.map(|(value, _)| (value, versions)).map_err(|_| HandshakeError::Garbage)
}

impl Handshake {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), codec::CodecError> {
        write(self, self.me.versions, out)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let (handshake, versions): (Handshake, _) = read(bytes)?;
        let fits = (1..=MAX_CLUSTER).contains(&handshake.cluster.len())
            && handshake.me.versions == versions
            && handshake.reserved.len() <= MAX_RESERVED;
        // An address that cannot be dialled would make every answer fail.
        if fits && is_dialable(handshake.me.addr) {
            Ok(handshake)
        } else {
            Err(HandshakeError::Garbage)
        }
    }
}

impl StatusQuery {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), codec::CodecError> {
        write(self, self.versions, out)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let (question, versions): (StatusQuery, _) = read(bytes)?;
        let fits = (1..=MAX_CLUSTER).contains(&question.cluster.len())
            && question.versions == versions
            && question.reserved.len() <= MAX_RESERVED;
        if fits { Ok(question) } else { Err(HandshakeError::Garbage) }
    }
}

impl OrderRequest {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), codec::CodecError> {
        write(self, self.versions, out)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let (request, versions): (OrderRequest, _) = read(bytes)?;
        let fits =
            (1..=MAX_CLUSTER).contains(&request.cluster.len()) && request.versions == versions;
        if fits { Ok(request) } else { Err(HandshakeError::Garbage) }
    }
}

impl HandshakeRefusal {
    pub(super) fn write(&self, out: &mut Vec<u8>) -> Result<(), codec::CodecError> {
        write(self, VERSIONS, out)
    }

    pub(super) fn read(bytes: &[u8]) -> Result<Self, HandshakeError> {
        let (refusal, _) = read(bytes)?;
        match &refusal {
            HandshakeRefusal::ForeignCluster(name) if name.len() > MAX_CLUSTER => {
                Err(HandshakeError::Garbage)
            }
            _ => Ok(refusal),
        }
    }
}
