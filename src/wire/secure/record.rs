//! Records, which a connection carries after the handshake.
//!
//! ```text
//! length 2 (of what follows) | sealed bytes | tag 16
//! ```
//!
//! Both sides count the records, so a record's number is not sent. Each side has one [`Sealer`] and
//! one [`Opener`], which share no state. So the thread that writes and the thread that reads do not
//! wait for each other.

use super::{Secret, TAG, aead, derive, nonce};
use ring::aead::{Aad, LessSafeKey};
use std::fmt;
use zeroize::Zeroizing;

/// The most bytes of frames in one record.
pub const MAX_RECORD: usize = 16 * 1024;
/// The number of records after which a key is replaced. AES-GCM allows 2^24.5 full records under
/// one key (RFC 8446, 5.5).
pub const REKEY_AFTER: u64 = 1 << 20;
/// The number of bytes of the length, which begins a record.
const LENGTH: usize = 2;
/// The number of bytes of a full record.
const RECORD: usize = LENGTH + MAX_RECORD + TAG;

/// The record is not the next one that the other side sealed, or was changed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("a record that the other side did not seal: forged, repeated, out of order, or damaged")]
pub struct Forged;

/// No number is left. A connection would reach this after some million years.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("no record number is left on this connection")]
pub struct Exhausted;

/// One direction's key, with the number of the next record.
struct Direction {
    secret: Secret,
    key: LessSafeKey,
    number: u64,
}

impl Direction {
    fn at(secret: [u8; 32], number: u64) -> Self {
        Direction { key: aead(&secret), secret: Zeroizing::new(secret), number }
    }

    /// Takes the number of the next record, with its key in place. `None`: no number is left.
    fn next(&mut self) -> Option<u64> {
        let number = self.number;
        self.number = number.checked_add(1)?;
        if number > 0 && number.is_multiple_of(REKEY_AFTER) {
            self.secret = derive(&self.secret, &[b"rekey"]);
            self.key = aead(&self.secret);
        }
        Some(number)
    }
}

impl fmt::Debug for Direction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Direction").field("number", &self.number).finish_non_exhaustive()
    }
}

/// Seals the frames that one side writes.
#[derive(Debug)]
pub struct Sealer(Direction);

impl Sealer {
    /// A sealer whose first record has this number: 0 for a new connection.
    pub fn at(secret: [u8; 32], number: u64) -> Self {
        Sealer(Direction::at(secret, number))
    }

    /// Appends `frames` to `out` as records.
    ///
    /// # Errors
    /// [`Exhausted`]: `out` is as before, and the connection must be closed.
    pub fn seal(&mut self, frames: &[u8], out: &mut Vec<u8>) -> Result<(), Exhausted> {
        let start = out.len();
        out.extend_from_slice(frames);
        self.seal_from(start, out)
    }

    /// Turns the frames that `bytes` has from `start` on into records, in place: so a batch needs
    /// no second buffer of its size.
    ///
    /// # Errors
    /// [`Exhausted`]: the frames are removed, so that none leaves unsealed, and the connection must
    /// be closed.
    pub fn seal_from(&mut self, start: usize, bytes: &mut Vec<u8>) -> Result<(), Exhausted> {
        let length = bytes.len() - start;
        bytes.resize(bytes.len() + length.div_ceil(MAX_RECORD) * (LENGTH + TAG), 0);
        let place = &mut bytes[start..];
        // Each part moves towards the end, so the last one moves first.
        for (number, from) in (0..length).step_by(MAX_RECORD).enumerate().rev() {
            let end = length.min(from + MAX_RECORD);
            place.copy_within(from..end, number * RECORD + LENGTH);
        }
        let sealed = place.chunks_mut(RECORD).try_for_each(|record| self.seal_record(record));
        if sealed.is_err() {
            bytes.truncate(start);
        }
        sealed
    }

    /// Seals the frames between the length and the tag of a record.
    fn seal_record(&mut self, record: &mut [u8]) -> Result<(), Exhausted> {
        let number = self.0.next().ok_or(Exhausted)?;
        let (front, rest) = record.split_first_chunk_mut::<LENGTH>().ok_or(Exhausted)?;
        // MAX_RECORD and the tag fit in 16 bits.
        *front = (rest.len() as u16).to_be_bytes();
        let (frames, tag) = rest.split_last_chunk_mut::<TAG>().ok_or(Exhausted)?;
        let sealed =
            self.0.key.seal_in_place_separate_tag(nonce(number), Aad::from(*front), frames);
        tag.copy_from_slice(sealed.map_err(|_| Exhausted)?.as_ref());
        Ok(())
    }
}

/// Opens the records that the other side sealed.
#[derive(Debug)]
pub struct Opener(Direction);

impl Opener {
    /// The counterpart of [`Sealer::at`].
    pub fn at(secret: [u8; 32], number: u64) -> Self {
        Opener(Direction::at(secret, number))
    }

    /// The length in bytes of the record at the front of `bytes`. `None`: the length field is
    /// incomplete.
    ///
    /// # Errors
    /// [`Forged`]: no record has this length.
    pub fn length(bytes: &[u8]) -> Result<Option<usize>, Forged> {
        let Some((length, _)) = bytes.split_first_chunk::<LENGTH>() else { return Ok(None) };
        let length = usize::from(u16::from_be_bytes(*length));
        // Empty records would keep a reader busy without a frame.
        if (TAG + 1..=TAG + MAX_RECORD).contains(&length) {
            Ok(Some(LENGTH + length))
        } else {
            Err(Forged)
        }
    }

    /// The frames in the next record, opened in place.
    ///
    /// # Errors
    /// [`Forged`]: the connection must be closed, because both sides count differently from here
    /// on.
    pub fn open<'a>(&mut self, record: &'a mut [u8]) -> Result<&'a [u8], Forged> {
        let number = self.0.next().ok_or(Forged)?;
        let (length, sealed) = record.split_first_chunk_mut::<LENGTH>().ok_or(Forged)?;
        let opened = self.0.key.open_in_place(nonce(number), Aad::from(*length), sealed);
        opened.map(|frames| &*frames).map_err(|_| Forged)
    }
}
