//! Frames as each version writes them, recorded in files beside this one. A difference means that
//! members of two releases do not understand each other. `UPDATE_RECORDED=1` writes the file of a
//! version anew. The file of a released version may only grow by lines at its end.

use super::*;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

/// Longer frames are left out.
const LONGEST: usize = 1024;

fn file_of(version: u16) -> PathBuf {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/wire/frame/tests");
    directory.join(format!("version-{version}.txt"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn bytes_in(frame: &Frame, version: u16) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(frame, version, &mut bytes).unwrap();
    bytes
}

#[test]
fn each_spoken_version_is_written_and_read_as_it_was_recorded() {
    for version in VERSIONS.lowest..=VERSIONS.highest {
        let mut written = String::new();
        for frame in frames() {
            let bytes = bytes_in(&frame, version);
            if bytes.len() <= LONGEST {
                written += &(hex(&bytes) + "\n");
            }
            // The only loss is a field that the version does not have.
            let read = decoder(true, &bytes).next().unwrap().unwrap();
            assert_eq!(hex(&bytes_in(&read, version)), hex(&bytes), "{frame:?}");
            assert!(version < PROTOCOL_VERSION || read == frame, "{frame:?}");
        }
        let file = file_of(version);
        if std::env::var_os("UPDATE_RECORDED").is_some() {
            std::fs::write(&file, &written).unwrap();
        }
        let recorded = std::fs::read_to_string(&file).expect("each version has a file");
        let same = written.lines().zip(recorded.lines()).position(|(now, then)| now != then);
        assert_eq!(same, None, "a frame of version {version} was written in another way before");
        assert_eq!(written.lines().count(), recorded.lines().count(), "of version {version}");
    }
}

#[test]
fn a_frame_of_a_version_that_is_not_spoken_is_dropped_and_the_next_one_is_read() {
    let frame = Frame::GossipWanted;
    let other = bytes_in(&frame, VERSIONS.highest + 1);
    let mut decoder = decoder(true, &[other.clone(), other, bytes_of(&frame)].concat());
    assert_eq!(decoder.next(), Ok(Some(frame)));
    assert_eq!((decoder.take_unspoken(), decoder.take_unspoken()), (2, 0));
    assert_eq!(decoder.next(), Ok(None));
}

#[test]
fn a_handshake_may_grow_at_its_end() {
    let hello = Frame::Hello(Box::new(handshake()));
    let grown = [body_of(&hello), vec![7; 20]].concat();
    let mut bytes = ((grown.len() + CHECKSUM) as u32).to_be_bytes().to_vec();
    bytes.extend_from_slice(&grown);
    let sum = crc32fast::hash(&bytes);
    bytes.extend_from_slice(&sum.to_be_bytes());
    assert_eq!(decoder(false, &bytes).next(), Ok(Some(hello)));
}

#[test]
fn a_handshake_whose_body_names_other_versions_than_its_head_is_garbage() {
    let hello = Frame::Hello(Box::new(handshake()));
    let mut bytes = bytes_of(&hello);
    // The highest version is behind length, kind and magic, and stays in the spoken range.
    let highest = LENGTH + 1 + 4;
    bytes[highest..highest + 2].copy_from_slice(&(VERSIONS.highest + 1).to_be_bytes());
    let sound = bytes.len() - CHECKSUM;
    let sum = crc32fast::hash(&bytes[..sound]);
    bytes[sound..].copy_from_slice(&sum.to_be_bytes());
    assert_eq!(decoder(false, &bytes).next(), Err(FrameError::Garbage));
}
