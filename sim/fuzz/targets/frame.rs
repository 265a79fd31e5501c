//! The frame decoder: any bytes, at any stage of a connection, in pieces of any size. What decodes is written again and
//! decodes to the same; pieces make no difference; nothing panics.
#![no_main]

use elderlock::wire::{Decoder, Frame, FrameError, encode, frame_length};
use libfuzzer_sys::fuzz_target;

const CHECKSUM: usize = 4;

// One byte: the stage, and whether the rest is a stream, a stream whose checksums are put right, or kind and body of one
// frame. (No fuzzer finds a checksum.) One byte: the size of the pieces.
fuzz_target!(|bytes: &[u8]| {
    let [how, piece, rest @ ..] = bytes else { return };
    let mut stream = Vec::new();
    if how & 4 != 0 {
        stream.extend_from_slice(&((rest.len() + CHECKSUM) as u32).to_be_bytes());
        stream.extend_from_slice(rest);
        stream.extend_from_slice(&crc32fast::hash(&stream).to_be_bytes());
    } else {
        stream.extend_from_slice(rest);
        if how & 8 != 0 {
            put_checksums_right(&mut stream);
        }
    }
    let whole = decode(*how, &stream, stream.len());
    assert_eq!(whole, decode(*how, &stream, 1 + usize::from(*piece)), "pieces make a difference");
    for frame in &whole.0 {
        let mut again = Vec::new();
        encode(frame, &mut again).expect("what was read can be written");
        assert_eq!(decode(*how, &again, again.len()), (vec![frame.clone()], None));
    }
});

/// Of each whole frame.
fn put_checksums_right(mut stream: &mut [u8]) {
    while let Some(length) = frame_length(stream) {
        let Some((frame, rest)) = stream.split_at_mut_checked(length) else { return };
        // Behind the length.
        if frame.len() >= 4 + CHECKSUM {
            let (sound, sum) = frame.split_at_mut(length - CHECKSUM);
            sum.copy_from_slice(&crc32fast::hash(sound).to_be_bytes());
        }
        stream = rest;
    }
}

/// All frames of the stream, and the error that ended it.
fn decode(how: u8, stream: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = if how & 3 == 1 { Decoder::for_answer() } else { Decoder::new() };
    if how & 3 >= 2 {
        decoder.open();
    }
    let mut frames = Vec::new();
    for piece in stream.chunks(piece.max(1)) {
        decoder.back().extend_from_slice(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}
