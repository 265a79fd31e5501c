//! The identity of a member for its gossiping peers.

use serde::{Deserialize, Serialize};
use std::net::SocketAddr;

/// The identity of a member in gossip. One address has one identity at a time: the highest.
///
/// The lock protocol knows members by `process` alone. `generation` exists because to foca "down"
/// is final for an identity. A member that was wrongly declared down comes back as a later
/// generation of the same process.
// The order is field by field: by generation, then by process. The address makes the order agree
// with equality.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct SwimId {
    /// Higher than the generation of any earlier identity at this address.
    pub generation: u64,
    /// The process, see [`ProcessId`](crate::protocol::ProcessId).
    pub process: u128,
    /// The address at which the process is reached.
    pub addr: SocketAddr,
}

impl SwimId {
    /// An identity for any process at `addr`, when only the address is known. Use it for announcing
    /// and for nothing else.
    pub const fn placeholder(addr: SocketAddr) -> Self {
        SwimId { generation: 0, process: 0, addr }
    }

    /// Returns whether this identity is for any process at its address.
    pub const fn is_placeholder(&self) -> bool {
        self.generation == 0 && self.process == 0
    }
}

impl foca::Identity for SwimId {
    type Addr = SocketAddr;

    fn renew(&self) -> Option<Self> {
        Some(SwimId { generation: self.generation.checked_add(1)?, ..*self })
    }

    fn addr(&self) -> SocketAddr {
        self.addr
    }

    fn win_addr_conflict(&self, adversary: &Self) -> bool {
        self > adversary
    }
}
