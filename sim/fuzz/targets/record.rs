//! Records and sealed datagrams. A stream behind a handshake gets any bytes, and the right records
//! with bytes changed, left out or doubled. A replay window gets any numbers. Only sealed bytes
//! open, and in order; nothing panics.
#![no_main]

use elderlock::protocol::ProcessId;
use elderlock::wire::secure::{
    ClusterKey, Keyring, Opener, ReplayWindow, SealedGossip, Sealer, WINDOW,
};
use elderlock::wire::{Decoder, Frame, PROTOCOL_VERSION, encode};
use libfuzzer_sys::fuzz_target;
use std::collections::BTreeSet;

const SECRET: [u8; 32] = [7; 32];

fuzz_target!(|bytes: &[u8]| {
    let [how, rest @ ..] = bytes else { return };
    match how % 4 {
        0 => any_stream(rest),
        1 => changed_records(rest),
        2 => any_datagram(rest),
        _ => any_numbers(rest),
    }
});

/// Without the key no bytes make a frame.
fn any_stream(bytes: &[u8]) {
    let mut decoder = Decoder::new();
    decoder.open();
    decoder.unseal(Opener::at(SECRET, 0));
    for piece in bytes.chunks(7) {
        decoder.back().extend_from_slice(piece);
        match decoder.next() {
            Ok(Some(frame)) => panic!("{frame:?} was made without the key"),
            Ok(None) => {}
            Err(_) => return,
        }
    }
}

/// Each pair of bytes is a record: its number, and how it is changed.
fn changed_records(bytes: &[u8]) {
    let mut sealer = Sealer::at(SECRET, 0);
    let records: Vec<Vec<u8>> = (0..16_u8)
        .map(|number| {
            let (mut frame, mut record) = (Vec::new(), Vec::new());
            let content = Frame::Gossip(vec![number; usize::from(number) * 40]);
            encode(&content, PROTOCOL_VERSION, &mut frame).expect("it is short");
            sealer.seal(&frame, &mut record).expect("there are numbers left");
            record
        })
        .collect();
    let mut decoder = Decoder::new();
    decoder.open();
    decoder.unseal(Opener::at(SECRET, 0));
    let (mut next, mut swallows) = (0, false);
    for pair in bytes.chunks_exact(2) {
        let number = usize::from(pair[0] % 16);
        let mut record = records[number].clone();
        let at = usize::from(pair[0]) % record.len();
        record[at] ^= pair[1];
        decoder.back().extend_from_slice(&record);
        match decoder.next() {
            Ok(Some(Frame::Gossip(content))) => {
                assert_eq!(
                    (number, pair[1], swallows),
                    (next, 0, false),
                    "a changed, repeated or moved record is opened"
                );
                assert_eq!(content, vec![number as u8; number * 40]);
                next += 1;
            }
            Ok(Some(frame)) => panic!("{frame:?}"),
            // A longer length waits for more bytes, and swallows the next records.
            Ok(None) => {
                assert!(swallows || pair[1] != 0, "a right record is not opened");
                swallows = true;
            }
            Err(_) => return,
        }
    }
}

fn any_datagram(bytes: &[u8]) {
    let key = ClusterKey::from_bytes(&std::array::from_fn(|number| number as u8));
    let key = key.expect("its bytes differ");
    let mut gossip = SealedGossip::new("shop", ProcessId(1), Keyring::new(key));
    let mut datagram = b"EldS".to_vec();
    datagram.extend_from_slice(bytes);
    assert!(gossip.open(&mut datagram).is_err(), "opened without the key");
}

/// Compares the replay window with a set of all noted numbers.
fn any_numbers(bytes: &[u8]) {
    let (mut window, mut noted, mut number) = (ReplayWindow::default(), BTreeSet::new(), 0_u64);
    for step in bytes.chunks_exact(2) {
        let step = i64::from(i16::from_be_bytes([step[0], step[1]]));
        number = number.saturating_add_signed(step);
        let highest = noted.last().copied().unwrap_or(0);
        let is_old = !noted.is_empty() && number + WINDOW <= highest;
        let expected = !noted.contains(&number) && !is_old;
        assert_eq!(window.is_fresh(number), expected, "{number} behind {highest}");
        assert_eq!(window.note(number), expected);
        noted.insert(number);
    }
}
