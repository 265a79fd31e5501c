//! Stored votes: any bytes as the file of a data directory, or as the part that its checksum
//! covers. A vote that is read is written and read to the same, not in another cluster and not with
//! a bit flipped. A vote successor starts with it and never goes back behind it. Nothing panics.
#![no_main]

use elderlock::protocol::{
    Config, Input, MemberInfo, Node, Output, ProcessId, StoredVote, Time, Timing, VoteSecret,
};
use elderlock::wire::{
    PROTOCOL_VERSION, VOTE_FORMAT, VOTE_MAGIC, VoteError, read_vote, write_vote,
};
use libfuzzer_sys::fuzz_target;
use std::net::SocketAddr;

const CLUSTER: &str = "shop";

// The first byte tells whether the rest is a file, or only the part behind a right checksum. (No
// fuzzer finds a checksum.)
fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    let file = match how & 1 {
        0 => rest.to_vec(),
        _ => {
            let version = PROTOCOL_VERSION.to_le_bytes();
            let sum = crc32fast::hash(&[&version[..], rest].concat()).to_le_bytes();
            [VOTE_MAGIC, &[VOTE_FORMAT], &version, &sum, rest].concat()
        }
    };
    let Ok(vote) = read_vote(CLUSTER, &file) else { return };
    assert_eq!(read_vote("shed", &file), Err(VoteError::Cluster(CLUSTER.into())));
    let mut again = write_vote(CLUSTER, &vote).expect("a stored vote can be written");
    assert_eq!(read_vote(CLUSTER, &again).as_ref(), Ok(&vote));
    // The bytes choose the bit that is damaged.
    let turned = crc32fast::hash(rest) as usize % (8 * again.len());
    again[turned / 8] ^= 1 << (turned % 8);
    assert!(read_vote(CLUSTER, &again).is_err(), "a damaged vote is read");
    inherit(vote);
});

/// A member that starts with the vote and receives nothing keeps a vote that can be read again.
fn inherit(vote: StoredVote) {
    let known = vote.view.number;
    let me = MemberInfo::new(ProcessId(9), SocketAddr::from(([10, 0, 0, 5], 7400)));
    let (vote_secret, stored) = (Some(VoteSecret::new([9; 32])), Some(vote));
    let config = Config { vote_secret, stored, ..Config::new(me, Timing::fast()) };
    let mut now = Time::from_nanos(1_000_000_000);
    let mut node = Node::new(config, now);
    for _ in 0..16 {
        let mut outputs = Vec::new();
        node.step(now, Input::Timer, &mut outputs);
        for output in outputs {
            if let Output::Store { number, .. } = output {
                node.step(now, Input::Stored { number }, &mut Vec::new());
            }
        }
        now = node.deadline().unwrap_or(now).max(now);
    }
    if let Some(kept) = node.stored_vote() {
        assert!(kept.view.number >= known, "a vote successor goes back to an earlier view");
        let bytes = write_vote(CLUSTER, &kept).expect("a kept vote can be written");
        assert_eq!(read_vote(CLUSTER, &bytes), Ok(kept));
    }
}
