//! Stored votes as bytes: the content of a data directory's one file.
//!
//! ```text
//! magic "elderlock vote\n" | format 1 | version 2 | crc32 4 (little endian) | cluster, vote
//! ```
//!
//! The version is that of the view in the vote. So each release that may be a member of that view
//! reads the directory, including an earlier release that comes back.

use super::codec;
use super::limits::MAX_FRAME;
use super::version::VERSIONS;
use crate::protocol::StoredVote;
use serde::{Deserialize, Serialize};

/// The first bytes of a stored vote.
pub const VOTE_MAGIC: &[u8] = b"elderlock vote\n";
/// The format of the head of stored votes, behind the magic.
pub const VOTE_FORMAT: u8 = 7;
/// The length of magic, format, version and checksum.
const HEAD: usize = VOTE_MAGIC.len() + 1 + 2 + 4;

/// Why a stored vote cannot be used.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum VoteError {
    /// The bytes are not a stored vote at all.
    #[error("it is not a vote of elderlock")]
    Foreign,
    /// The format of the vote is not that of this release.
    #[error("unsupported vote format {0}; this release reads {VOTE_FORMAT}")]
    Format(u8),
    /// The vote was written in a version that this build does not read.
    #[error(
        "it was written in version {0}, this build reads {VERSIONS}: start a release that reads \
         it, and update one release at a time"
    )]
    Version(u16),
    /// Bytes are missing or changed.
    #[error("it is damaged")]
    Damaged,
    /// The vote belongs to another cluster.
    #[error("it is of cluster {0:?}")]
    Cluster(String),
}

#[derive(Serialize)]
struct VoteBodyRef<'a> {
    cluster: &'a str,
    vote: &'a StoredVote,
}

#[derive(Deserialize)]
struct VoteBody {
    cluster: String,
    vote: StoredVote,
}

/// The bytes of a vote in a cluster.
pub fn write_vote(cluster: &str, vote: &StoredVote) -> Result<Vec<u8>, codec::CodecError> {
    let mut body = Vec::new();
    // A member that left may know a view of a later version than its own.
    let version = VERSIONS.to_encode(Some(vote.view.version), None);
    codec::write(&VoteBodyRef { cluster, vote }, version, &mut body)?;
    let mut bytes = Vec::with_capacity(HEAD + body.len());
    bytes.extend_from_slice(VOTE_MAGIC);
    bytes.push(VOTE_FORMAT);
    bytes.extend_from_slice(&version.to_le_bytes());
    bytes.extend_from_slice(&checksum(version, &body).to_le_bytes());
    bytes.extend_from_slice(&body);
    Ok(bytes)
}

/// The checksum covers the version too: the same bytes in another version are another vote.
fn checksum(version: u16, body: &[u8]) -> u32 {
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(&version.to_le_bytes());
    hasher.update(body);
    hasher.finalize()
}

/// Reads the vote in these bytes, if it is one of this cluster.
pub fn read_vote(cluster: &str, bytes: &[u8]) -> Result<StoredVote, VoteError> {
    let rest = bytes.strip_prefix(VOTE_MAGIC).ok_or(VoteError::Foreign)?;
    let (&format, rest) = rest.split_first().ok_or(VoteError::Damaged)?;
    if format != VOTE_FORMAT {
        return Err(VoteError::Format(format));
    }
    let (version, rest) = rest.split_first_chunk::<2>().ok_or(VoteError::Damaged)?;
    let version = u16::from_le_bytes(*version);
    let (sum, body) = rest.split_first_chunk::<4>().ok_or(VoteError::Damaged)?;
    if checksum(version, body) != u32::from_le_bytes(*sum) {
        return Err(VoteError::Damaged);
    }
    if !VERSIONS.contains(version) {
        return Err(VoteError::Version(version));
    }
    let body: VoteBody =
        codec::read::<_, MAX_FRAME>(body, version).map_err(|_| VoteError::Damaged)?;
    if body.cluster != cluster {
        return Err(VoteError::Cluster(body.cluster));
    }
    if !body.vote.is_sound() {
        return Err(VoteError::Damaged);
    }
    Ok(body.vote)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::Ballot;
    use crate::protocol::{
        Change, Config, Host, MemberInfo, MemberName, Node, ProcessId, Slot, StaticPublicKey,
        Timing, Versions, View, VoteSecret,
    };
    use std::fmt::Write as _;
    use std::net::{Ipv4Addr, SocketAddr};
    use std::path::Path;

    fn vote() -> StoredVote {
        let me = MemberInfo::new(ProcessId(7), SocketAddr::from((Ipv4Addr::LOCALHOST, 7400)));
        let config = Config {
            found_alone: true,
            vote_secret: Some(VoteSecret::new([1; 32])),
            ..Config::new(me, Timing::lan())
        };
        let mut node = Node::new(config, crate::protocol::Time::from_nanos(1));
        for input in [crate::protocol::Input::Timer, crate::protocol::Input::Stored { number: 1 }] {
            node.step(crate::protocol::Time::from_nanos(2), input, &mut Vec::new());
        }
        node.stored_vote().expect("it has founded")
    }

    #[test]
    fn a_vote_comes_out_as_it_went_in() {
        let bytes = write_vote("shop", &vote()).unwrap();
        assert_eq!(read_vote("shop", &bytes), Ok(vote()));
    }

    /// A member with each field set. No value is drawn or depends on this build's versions.
    fn recorded_member(process: u128, versions: Versions) -> MemberInfo {
        let addr = SocketAddr::from((Ipv4Addr::new(10, 0, 0, 5), 7400));
        MemberInfo {
            host: Some(Host { boot: 1 << 100, namespace: 4_026_531_836, pid: 77, started: 5 }),
            vote_key: Some(VoteSecret::new([7; 32]).key()),
            static_key: Some(StaticPublicKey([6; 32])),
            serves_sessions: true,
            name: MemberName::new("pod-0").unwrap(),
            versions,
            ..MemberInfo::new(ProcessId(process), addr)
        }
    }

    /// A vote with each field set, in a view of this version.
    fn recorded_vote(version: u16) -> StoredVote {
        let versions = Versions { lowest: 11, highest: version };
        let member = |process| recorded_member(process, versions);
        let founders = vec![member(1), member(2), member(3)];
        let first = View::first(Slot(900), founders, Timing::lan(), 7);
        let gone = Change { remove: [ProcessId(3)].into(), ..Change::default() };
        let change = Change {
            join: vec![member(4)],
            ghost: [ProcessId(2)].into(),
            longer: true,
            takeover: true,
            ..Change::default()
        };
        let ballot = Ballot { round: 3, process: ProcessId(2) };
        let mut vote = StoredVote { view: first.next(&gone), is_established: true, ..vote() };
        vote.acceptor.promised = Some(ballot);
        vote.acceptor.accepted = Some((ballot, change));
        vote.acceptor.is_bound = true;
        let mut successor = vote.voter.clone();
        (successor.process, successor.secret) = (ProcessId(5), VoteSecret::new([2; 32]));
        vote.successors = vec![successor];
        vote
    }

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    }

    /// A difference means that a release does not start on the votes of the one before it.
    /// `UPDATE_RECORDED=1` writes the file of a version anew. The file of a released version never
    /// changes.
    #[test]
    fn a_vote_of_each_spoken_version_is_written_and_read_as_it_was_recorded() {
        for version in VERSIONS.lowest..=VERSIONS.highest {
            let vote = recorded_vote(version);
            assert_eq!(vote.view.version, version);
            let bytes = write_vote("shop", &vote).unwrap();
            let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire/vote");
            let file = directory.join(format!("version-{version}.txt"));
            if std::env::var_os("UPDATE_RECORDED").is_some() {
                std::fs::write(&file, hex(&bytes) + "\n").unwrap();
            }
            let recorded = std::fs::read_to_string(&file).expect("each version has a file");
            assert_eq!(hex(&bytes), recorded.trim_end(), "version {version} had another form");
            let read = read_vote("shop", &bytes).unwrap();
            // The only loss is a field that the version does not have.
            assert_eq!(hex(&write_vote("shop", &read).unwrap()), hex(&bytes));
            assert!(version < VERSIONS.highest || read == vote, "{read:?}");
        }
    }

    #[test]
    fn another_cluster_is_named() {
        let bytes = write_vote("shop", &vote()).unwrap();
        assert_eq!(read_vote("bank", &bytes), Err(VoteError::Cluster("shop".into())));
    }

    /// A vote successor with a quorum of its own would complete the accepted view, and have a view
    /// without members.
    #[test]
    fn a_vote_for_an_empty_view_is_damaged() {
        let mut vote = vote();
        vote.accept(Change {
            remove: vote.view.members.iter().map(|member| member.info.process).collect(),
            ..Change::default()
        });
        assert_eq!(read_vote("shop", &write_vote("shop", &vote).unwrap()), Err(VoteError::Damaged));
    }

    #[test]
    fn every_flipped_bit_and_every_missing_byte_is_seen() {
        let bytes = write_vote("shop", &vote()).unwrap();
        for index in 0..bytes.len() {
            assert!(read_vote("shop", &bytes[..index]).is_err());
            for bit in 0..8 {
                let mut bytes = bytes.clone();
                bytes[index] ^= 1 << bit;
                assert!(read_vote("shop", &bytes).is_err(), "bit {bit} of byte {index}");
            }
        }
    }
}
