//! The frame decoder: any bytes, at any stage of a connection, in pieces of any size. A decoded
//! frame belongs to the stage, encodes and decodes to the same, and does not decode with a bit
//! flipped. Pieces make no difference. The decoder waits for no frame that is whole already or too
//! long. Nothing panics.
#![no_main]

use elderlock::wire::{
    Decoder, Frame, FrameError, MAX_FRAME, MAX_HELLO, MAX_STRANGE_FRAME, MAX_UNKNOWN_FRAME,
    PROTOCOL_VERSION, encode, frame_length,
};
use libfuzzer_sys::fuzz_target;

const LENGTH: usize = 4;
const CHECKSUM: usize = 4;

// The first byte has the stage, and whether the other side is a stranger or unknown. It also tells
// whether the rest is a stream, a stream whose checksums are put right, or kind and body of one
// frame. (No fuzzer finds a checksum.) The second byte is the size of the pieces.
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
        assert!(belongs(frame, *how), "{frame:?} at another stage");
        let mut again = Vec::new();
        encode(frame, PROTOCOL_VERSION, &mut again).expect("a decoded frame can be encoded");
        assert_eq!(decode(*how, &again, again.len()), (vec![frame.clone()], None));
        // The length of the frame stays as it is: a wrong length may swallow any further bytes.
        let turned = LENGTH + usize::from(*piece) % (again.len() - LENGTH);
        again[turned] ^= 1 << (how >> 5);
        assert_eq!(decode(*how, &again, again.len()).0, [], "a damaged frame is read");
    }
});

/// Returns whether a frame of this kind may come at this stage.
fn belongs(frame: &Frame, how: u8) -> bool {
    match frame {
        Frame::Hello(_) | Frame::Welcome(_) | Frame::Question(_) | Frame::Order(_) => how & 3 == 0,
        Frame::Initiate(_) | Frame::Respond(_) | Frame::Confirm(_) => how & 3 == 0,
        Frame::Refused(_) => how & 3 <= 1,
        Frame::StatusIs(_) | Frame::Report(_) => how & 3 == 1,
        Frame::Packet(_) | Frame::GossipWanted | Frame::Gossip(_) => how & 3 == 2,
        Frame::Session(_) => how & 3 == 3,
    }
}

/// Corrects the checksum of each whole frame.
fn put_checksums_right(mut stream: &mut [u8]) {
    while let Some(length) = frame_length(stream) {
        let Some((frame, rest)) = stream.split_at_mut_checked(length) else { return };
        // A shorter frame has no checksum behind its length.
        if frame.len() >= LENGTH + CHECKSUM {
            let (sound, sum) = frame.split_at_mut(length - CHECKSUM);
            sum.copy_from_slice(&crc32fast::hash(sound).to_be_bytes());
        }
        stream = rest;
    }
}

/// All frames of the stream, and the error that ended it.
fn decode(how: u8, stream: &[u8], piece: usize) -> (Vec<Frame>, Option<FrameError>) {
    let mut decoder = if how & 3 == 1 { Decoder::for_answer() } else { Decoder::new() };
    match how & 3 {
        2 => decoder.open(),
        3 => decoder.await_session(),
        _ => {}
    }
    // Of a stranger's linked packet only the head is decoded.
    decoder.set_strange(how & 16 != 0);
    decoder.set_unknown(how & 32 != 0);
    let longest = match how & 3 {
        0 | 3 => MAX_HELLO,
        2 if how & 16 != 0 => MAX_STRANGE_FRAME,
        2 if how & 32 != 0 => MAX_UNKNOWN_FRAME,
        _ => MAX_FRAME,
    };
    let limit = LENGTH + longest;
    let (mut frames, mut fed) = (Vec::new(), 0);
    for piece in stream.chunks(piece.max(1)) {
        fed += piece.len();
        decoder.back().extend_from_slice(piece);
        loop {
            match decoder.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => {
                    let waits = &stream[fed - decoder.len()..fed];
                    assert!(
                        frame_length(waits)
                            .is_none_or(|whole| waits.len() < whole && whole <= limit)
                    );
                    break;
                }
                Err(error) => return (frames, Some(error)),
            }
        }
    }
    (frames, None)
}
