//! Stored votes: any bytes as the file of a data directory, or as what its checksum covers. What is read is written
//! again and reads to the same; nothing panics.
#![no_main]

use elderlock::wire::{read_vote, write_vote};
use libfuzzer_sys::fuzz_target;

const CLUSTER: &str = "shop";
/// Magic and format.
const HEAD: &[u8] = b"elderlock vote\n\x01";

// One byte: whether the rest is a file, or what follows a right checksum. (No fuzzer finds one.)
fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    let file = match how & 1 {
        0 => rest.to_vec(),
        _ => [HEAD, &crc32fast::hash(rest).to_le_bytes(), rest].concat(),
    };
    let Ok(vote) = read_vote(CLUSTER, &file) else { return };
    let again = write_vote(CLUSTER, &vote).expect("what was read can be written");
    assert_eq!(read_vote(CLUSTER, &again), Ok(vote));
});
