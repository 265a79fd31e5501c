//! Packets of a handshake on a stream, read and written one at a time.

use crate::wire::{self, Decoder, Frame, FrameError};
use std::io;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// The failure to read a packet of a handshake.
pub(super) enum HelloError {
    Frame(FrameError),
    Io(io::Error),
}

/// The next packet of a handshake; `None` if the other side closes before. Reads at most the length
/// of the longest packet, and adds the number of bytes to `read`.
pub(super) async fn read_hello(
    stream: &mut TcpStream,
    decoder: &mut Decoder,
    read: &mut usize,
) -> Result<Option<Frame>, HelloError> {
    loop {
        if let Some(frame) = decoder.next().map_err(HelloError::Frame)? {
            return Ok(Some(frame));
        }
        let mut room = stream.take(decoder.hello_room() as u64);
        match room.read_buf(decoder.back()).await.map_err(HelloError::Io)? {
            0 => return Ok(None),
            count => *read += count,
        }
    }
}

/// The bytes of a handshake's frame, which has no version of its own.
pub(super) fn bytes_of(frame: &Frame) -> Vec<u8> {
    bytes_in(0, frame)
}

/// The bytes of a frame in a version.
pub(super) fn bytes_in(version: u16, frame: &Frame) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Handshakes are short: the cluster's name was checked when the transport was bound.
    if let Err(error) = wire::encode(frame, version, &mut bytes) {
        tracing::error!(%error, "a frame cannot be written");
    }
    bytes
}
