//! `JoinError`: why a process did not become a member.

use crate::protocol::{InvalidMemberName, InvalidTiming, MAX_COUNCIL, MemberName, ViewNumber};
use crate::runtime::net::transport::BindError;
use crate::runtime::{DataDirError, MAX_BUSY_POLL, QueryError};
use crate::wire::{MAX_CLUSTER, Role};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Why [`MemberBuilder::join`](crate::MemberBuilder::join) failed. This process is not a member,
/// and its port is free.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// The cluster's name is empty or too long. Nothing was done.
    #[error("a cluster name must have 1 to {MAX_CLUSTER} bytes, not {length}")]
    InvalidCluster {
        /// The length of the name in bytes.
        length: usize,
    },
    /// An address cannot be understood. Nothing was done.
    #[error("{what} address {given:?}: {why}")]
    InvalidAddress {
        /// The kind of address: "bind", "advertise" or "seed".
        what: &'static str,
        /// The address as the caller gave it.
        given: String,
        /// The defect of the address.
        why: &'static str,
    },
    /// There are neither seeds nor the order to found. Nothing was done.
    #[error(
        "no seeds: name at least one member with seeds([\"host:port\"]), \
         or start a new cluster with found() or with a \
         seed list that names only this member"
    )]
    NoSeeds,
    /// The durations do not fit together. Nothing was done.
    #[error(transparent)]
    InvalidTiming(#[from] InvalidTiming),
    /// The council's size is out of range. Nothing was done.
    #[error("a council has 1 to {MAX_COUNCIL} members, not {given}")]
    InvalidCouncil {
        /// The size as the caller gave it.
        given: u8,
    },
    /// The name is not a valid member name. Nothing was done.
    #[error(transparent)]
    InvalidName(#[from] InvalidMemberName),
    /// A founding by zero members is expected. Nothing was done.
    #[error("expect() is at least 1, the member itself: leave it out to found with all seeds")]
    ZeroExpected,
    /// Both [`found`](crate::MemberBuilder::found) and [`expect`](crate::MemberBuilder::expect)
    /// were given. Nothing was done.
    #[error("found() founds alone, and expect() wants {expected} members: give one of them")]
    FoundsAlone {
        /// The number that the caller gave to `expect`.
        expected: usize,
    },
    /// The join limit is zero. Nothing was done.
    #[error("the join limit is zero: give join_limit() more time, or leave it out for 30 s")]
    ZeroLimit,
    /// A thread would busy-poll for too long. Nothing was done.
    #[error("busy_poll is at most {MAX_BUSY_POLL:?}, not {given:?}")]
    LongBusyPoll {
        /// The duration as the caller gave it.
        given: Duration,
    },
    /// Both a keyring and [`insecure`](crate::MemberBuilder::insecure) were given. Nothing was
    /// done.
    #[error("insecure() is for a cluster without a key, and a keyring was given: give one of them")]
    InsecureWithKey,
    /// The keyring has a key of a role that is not a member's. Nothing was done.
    #[error("the keyring has an {role} key, which {}: give a cluster key", .role.allows())]
    RoleKey {
        /// The role of the key.
        role: Role,
    },
    /// The call was not made within a tokio runtime. Nothing was done.
    #[error("{}", QueryError::NoRuntime)]
    NoRuntime,
    /// [`blocking::join`](crate::blocking::join) could not start the member's thread. Nothing was
    /// done.
    #[error("no thread could be started for the member: {0}")]
    NoThread(#[source] io::Error),
    /// The operating system gave no random bytes for the id of this process. Nothing was done.
    #[error("the operating system gave no random bytes")]
    NoRandomness,
    /// The address cannot be used.
    #[error(transparent)]
    Bind(#[from] BindError),
    /// The data directory cannot be used. Nothing in it was changed.
    #[error("data directory {}: {why}", path.display())]
    DataDir {
        /// The directory as the caller gave it.
        path: PathBuf,
        /// The defect of the directory.
        #[source]
        why: DataDirError,
    },
    /// The cluster's tokens are more than an hour above the limit that this machine's clock allows,
    /// so one of the two clocks is wrong.
    #[error(
        "the tokens of cluster '{cluster}' are {ahead:?} ahead of this machine's clock, \
         and at most an hour is allowed: \
         set the clock of this machine, or of the one that founded the cluster"
    )]
    Clock {
        /// The cluster's name.
        cluster: String,
        /// How far the tokens are ahead.
        ahead: Duration,
    },
    /// [`force`](crate::MemberBuilder::force) was given, and a member of a cluster that has an
    /// elder with a quorum answered. Nothing was founded, joined or stored.
    #[error(
        "a member of cluster '{cluster}' runs with a quorum: {member} at {addr}, \
         in view {view} of elder {elder}; force() would found a second cluster beside it: \
         start without force(), and this process joins that cluster"
    )]
    QuorumLives {
        /// The cluster's name.
        cluster: String,
        /// The name of the member that answered.
        member: MemberName,
        /// The address of that member.
        addr: SocketAddr,
        /// The number of its view.
        view: ViewNumber,
        /// The address of the elder of that view.
        elder: SocketAddr,
    },
    /// No cluster took this member in within the join limit, and none could be founded.
    #[error(
        "{}",
        NoCluster { cluster, waited: *waited, needed: *needed, answered, missing, unresolved }
    )]
    NoCluster {
        /// The cluster's name.
        cluster: String,
        /// The join limit.
        waited: Duration,
        /// The number of members that a founding needs, if this member is a seed: all seeds, and at
        /// least as many as it [expects](crate::MemberBuilder::expect). Otherwise 1: any member of
        /// a running cluster.
        needed: usize,
        /// Seeds that answered, and their answers.
        answered: Vec<(SocketAddr, String)>,
        /// Seeds that did not answer, and the reasons as far as they are known.
        missing: Vec<(SocketAddr, String)>,
        /// Names of seeds that do not resolve, with the reasons. While there are any, this member
        /// founds nothing.
        unresolved: Vec<(String, String)>,
    },
}

impl JoinError {
    /// Returns whether the join limit was reached. Another try may succeed.
    pub fn is_timeout(&self) -> bool {
        matches!(self, JoinError::NoCluster { .. })
    }
}

/// The text of [`JoinError::NoCluster`].
struct NoCluster<'a> {
    cluster: &'a str,
    waited: Duration,
    needed: usize,
    answered: &'a [(SocketAddr, String)],
    missing: &'a [(SocketAddr, String)],
    unresolved: &'a [(String, String)],
}

impl fmt::Display for NoCluster<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let all = self.answered.len() + self.missing.len() + self.unresolved.len();
        write!(f, "no cluster '{}' within {:?}: ", self.cluster, self.waited)?;
        if all == 0 {
            return f.write_str("there are no seeds");
        }
        write!(f, "{} of {all} seeds answered", self.answered.len())?;
        list(f, " (", self.answered)?;
        list(f, ", missing (", self.missing)?;
        list(f, ", unknown (", self.unresolved)?;
        if self.needed > all {
            write!(
                f,
                "; it takes {} members to found a cluster together, as expect() says, and no more \
                 seeds are known; or one member of a running cluster that has an elder",
                self.needed
            )
        } else if self.needed > 1 {
            write!(
                f,
                "; it takes all {} seeds to found a cluster together, \
                 or one member of a running cluster that has an \
                 elder; found() starts one without those missing",
                self.needed
            )
        } else {
            f.write_str(
                "; it takes one member of a running cluster that has an elder, \
                 this member is not a seed itself",
            )
        }
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    open: &str,
    entries: &[(impl fmt::Display, String)],
) -> fmt::Result {
    for (index, (addr, text)) in entries.iter().enumerate() {
        write!(f, "{}{addr}: {text}", if index == 0 { open } else { ", " })?;
    }
    if entries.is_empty() { Ok(()) } else { f.write_str(")") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn the_error_of_a_join_names_the_answering_seeds_and_the_number_needed() {
        let addr = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let error = JoinError::NoCluster {
            cluster: "shop".into(),
            waited: Duration::from_secs(30),
            needed: 3,
            answered: vec![(addr(1), "this member".into()), (addr(2), "seeking too".into())],
            missing: vec![(addr(3), "connection refused".into())],
            unresolved: Vec::new(),
        };
        let text = error.to_string();
        assert!(text.starts_with(
            "no cluster 'shop' within 30s: 2 of 3 seeds answered (127.0.0.1:1: this member, "
        ));
        assert!(
            text.contains("missing (127.0.0.1:3: connection refused); it takes all 3 seeds"),
            "{text}"
        );
        assert!(error.is_timeout());
    }

    #[test]
    fn the_error_of_a_join_names_the_number_of_members_expected() {
        let addr = SocketAddr::from((Ipv4Addr::LOCALHOST, 1));
        let error = JoinError::NoCluster {
            cluster: "shop".into(),
            waited: Duration::from_secs(30),
            needed: 3,
            answered: vec![(addr, "this member".into())],
            missing: Vec::new(),
            unresolved: Vec::new(),
        };
        let text = error.to_string();
        assert!(text.contains("1 of 1 seeds answered"), "{text}");
        assert!(
            text.contains("; it takes 3 members to found a cluster together, as exp"),
            "{text}"
        );
    }
}
