//! The frame decoder: any bytes, at any stage of a connection, in pieces of any size. What decodes is written again and
//! decodes to the same; pieces make no difference; nothing panics.
#![no_main]

use elderlock::wire::{Decoder, Frame, FrameError, encode};
use libfuzzer_sys::fuzz_target;

// One byte: the stage, and whether the rest is a stream or the body of one frame. One byte: the size of the pieces.
fuzz_target!(|bytes: &[u8]| {
    let [how, piece, rest @ ..] = bytes else { return };
    let mut stream = Vec::new();
    if how & 4 != 0 {
        stream.extend_from_slice(&(rest.len() as u32).to_be_bytes());
    }
    stream.extend_from_slice(rest);
    let whole = decode(*how, &stream, stream.len());
    assert_eq!(whole, decode(*how, &stream, 1 + usize::from(*piece)), "pieces make a difference");
    for frame in &whole.0 {
        let mut again = Vec::new();
        encode(frame, &mut again).expect("what was read can be written");
        assert_eq!(decode(*how, &again, again.len()), (vec![frame.clone()], None));
    }
});

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
