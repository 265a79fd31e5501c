//! Processes: their ids, hosts, keys and addresses.

use super::member_name::MemberName;
use super::versions::Versions;
use crate::protocol::vote_key::VoteKey;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::SocketAddr;

/// One run of one process: 128 random bits drawn at its start and never used again.
///
/// Everything that matters (votes, leases, holds) is keyed by this id and by nothing else. So a
/// restart at the same address is a new process.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId(pub u128);

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", (self.0 >> 96) as u32)
    }
}

impl fmt::Debug for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The host of a process, and the process there. Shows whether two processes share a host, and
/// whether one of them has ended: see vouched death in docs/protocol/views.md.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct Host {
    /// The kernel's boot id.
    pub boot: u128,
    /// The inode of the process namespace.
    pub namespace: u64,
    /// The process number in that namespace.
    pub pid: u32,
    /// The start time of the process in clock ticks since boot.
    pub started: u64,
}

impl Host {
    /// Returns whether a process here can see that process end: it is another process on the same
    /// host.
    pub(crate) fn sees(&self, other: &Host) -> bool {
        self.boot == other.boot && self.namespace == other.namespace && self.pid != other.pid
    }
}

/// The identity of a process and its address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Serialize, Deserialize)]
pub struct MemberInfo {
    /// The id of this run.
    pub process: ProcessId,
    /// The advertised address; TCP and UDP use the same port.
    pub addr: SocketAddr,
    /// The host. Set where the platform can tell (Linux).
    pub host: Option<Host>,
    /// The key that proves a vote successor's claim. `None`: the process stores no vote, and no
    /// process may claim it.
    pub vote_key: Option<VoteKey>,
    /// Set where the cluster has a key. The process id is a hash of it, and packets that other
    /// members relay to the process are sealed with it.
    pub static_key: Option<StaticPublicKey>,
    /// Whether the process holds locks for programs that are not members. They may live on when the
    /// process has ended, so its death ends nothing before its lease.
    pub serves_sessions: bool,
    /// The name for people.
    pub name: MemberName,
    /// The versions of the wire that the process speaks.
    pub versions: Versions,
}

impl MemberInfo {
    /// A process without a host or a key, which serves no sessions, is named by its address, and
    /// speaks every version.
    pub fn new(process: ProcessId, addr: SocketAddr) -> MemberInfo {
        let (host, vote_key, static_key) = (None, None, None);
        let name = MemberName::of_addr(addr);
        let versions = Versions::ALL;
        MemberInfo {
            process,
            addr,
            host,
            vote_key,
            static_key,
            serves_sessions: false,
            name,
            versions,
        }
    }
}

/// The static public key of a process. The core passes it on and never uses it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct StaticPublicKey(pub [u8; 32]);

impl fmt::Debug for StaticPublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("StaticPublicKey(..)")
    }
}
