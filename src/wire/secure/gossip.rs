//! Sealed gossip: datagrams that only the cluster reads, each for one process and once.
//!
//! ```text
//! magic 4 | version 2 | kind 1 | sender 16 | receiver 16 | number 8 | sealed bytes | tag 16
//! ```

#[cfg(elderlock_mutants)]
mod planted;

use super::{ClusterKey, Keyring, ReplayWindow, TAG, aead, nonce};
use crate::protocol::ProcessId;
use crate::wire::{GOSSIP_VERSION, MAX_DATAGRAM, MAX_PAYLOAD};
use ring::aead::{Aad, LessSafeKey};
use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

const MAGIC: [u8; 4] = *b"EldS";
const HEAD: usize = MAGIC.len() + 2 + 1 + 16 + 16 + 8;
/// The number in the head of a sealed datagram.
pub const DATAGRAM_NUMBER: Range<usize> = HEAD - 8..HEAD;
/// The destination of a datagram for any process at the address.
const ANY: ProcessId = ProcessId(0);
/// The most senders with a window of numbers: many times the largest cluster. All of them have the
/// key.
const MAX_SENDERS: usize = 4096;

const PAYLOAD: u8 = 0;
const ID_QUESTION: u8 = 1;
const ID_ANSWER: u8 = 2;

/// The content of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OpenedDatagram<'a> {
    /// A packet of gossip.
    Payload(&'a [u8]),
    /// The sender's question for the process id of the receiver. [`SealedGossip::answer_id`]
    /// answers it.
    IdQuestion(ProcessId),
    /// The id of the process at the address that the datagram came from.
    IdAnswer(ProcessId),
}

/// Why a datagram is dropped. The window of its sender has moved only if it is [`Misaddressed`].
///
/// [`Misaddressed`]: GossipError::Misaddressed
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum GossipError {
    /// The bytes are not a sealed datagram of elderlock.
    #[error("not a sealed datagram of elderlock")]
    Garbage,
    /// The datagram has another version.
    #[error("a sealed datagram of version {0}; this member reads {GOSSIP_VERSION}")]
    Version(u16),
    /// No key of the ring sealed the datagram for this cluster, or it was changed.
    #[error("a datagram that no key of this member opens: forged, damaged, or of another cluster")]
    Forged,
    /// A datagram of this number was opened before, or the number is too old.
    #[error("a repeated datagram")]
    Repeated,
    /// The datagram is for a former process of this address, or for another address. Its sender has
    /// the key.
    #[error("a datagram of {from} for another process")]
    Misaddressed {
        /// The sender of the datagram.
        from: ProcessId,
    },
}

struct Sender {
    /// The keys that opened the sender's latest datagram. `None`: the cluster key was removed.
    key: Option<(ClusterKey, LessSafeKey)>,
    window: ReplayWindow,
    /// The count of all datagrams when the sender's latest one was opened.
    heard: u64,
}

/// One process's sealed gossip: its own numbers, and the windows of other senders.
pub struct SealedGossip {
    cluster: String,
    me: ProcessId,
    ring: Keyring,
    sealing: LessSafeKey,
    /// The number of the next datagram. It continues over changes of the ring, since an earlier key
    /// may come back.
    number: u64,
    senders: BTreeMap<ProcessId, Sender>,
    heard: u64,
}

impl SealedGossip {
    /// The gossip of process `me`, which has sent nothing yet. No other value may seal for the same
    /// process.
    pub fn new(cluster: &str, me: ProcessId, ring: Keyring) -> Self {
        let sealing = key_of(ring.first(), cluster, me);
        let cluster = cluster.to_owned();
        SealedGossip { cluster, me, ring, sealing, number: 0, senders: BTreeMap::new(), heard: 0 }
    }

    /// Seals with the first key of this ring from now on, and opens with its keys only.
    pub fn set_keyring(&mut self, ring: Keyring) {
        self.sealing = key_of(ring.first(), &self.cluster, self.me);
        for sender in self.senders.values_mut() {
            sender.key.take_if(|(key, _)| !ring.has(key.name()));
        }
        self.ring = ring;
    }

    /// Replaces `out` with a datagram for the process `to`. `false`: the payload is too long, or no
    /// number is left, and `out` is empty.
    pub fn seal(&mut self, to: ProcessId, payload: &[u8], out: &mut Vec<u8>) -> bool {
        self.write(PAYLOAD, to, payload, out)
    }

    /// Replaces `out` with the question for the process id at an address.
    pub fn ask_id(&mut self, out: &mut Vec<u8>) -> bool {
        self.write(ID_QUESTION, ANY, &[], out)
    }

    /// Replaces `out` with the answer to that question of the process `to`.
    pub fn answer_id(&mut self, to: ProcessId, out: &mut Vec<u8>) -> bool {
        self.write(ID_ANSWER, to, &[], out)
    }

    fn write(&mut self, kind: u8, to: ProcessId, payload: &[u8], out: &mut Vec<u8>) -> bool {
        out.clear();
        let number = self.number;
        let Some(next) = number.checked_add(1).filter(|_| payload.len() <= MAX_PAYLOAD) else {
            return false;
        };
        self.number = next;
        out.extend_from_slice(&MAGIC);
        out.extend_from_slice(&GOSSIP_VERSION.to_be_bytes());
        out.push(kind);
        out.extend_from_slice(&self.me.0.to_be_bytes());
        out.extend_from_slice(&to.0.to_be_bytes());
        out.extend_from_slice(&number.to_be_bytes());
        out.extend_from_slice(payload);
        let (head, payload) = out.split_at_mut(HEAD);
        let sealed =
            self.sealing.seal_in_place_separate_tag(nonce(number), Aad::from(&*head), payload);
        match sealed {
            Ok(tag) => out.extend_from_slice(tag.as_ref()),
            Err(_) => out.clear(),
        }
        !out.is_empty()
    }

    /// Opens a datagram in place.
    ///
    /// # Errors
    /// [`GossipError`]: drop the datagram. The state is unchanged, except that a misaddressed
    /// datagram is reported once.
    pub fn open<'a>(&mut self, datagram: &'a mut [u8]) -> Result<OpenedDatagram<'a>, GossipError> {
        if datagram.len() < HEAD + TAG
            || datagram.len() > MAX_DATAGRAM
            || !datagram.starts_with(&MAGIC)
        {
            return Err(GossipError::Garbage);
        }
        let (head, sealed) = datagram.split_at_mut(HEAD);
        let version = u16::from_be_bytes([head[4], head[5]]);
        if version != GOSSIP_VERSION {
            return Err(GossipError::Version(version));
        }
        let kind = head[6];
        let id = |at: usize| {
            ProcessId(u128::from_be_bytes(*head[at..].first_chunk().expect("it is in the head")))
        };
        let (from, to) = (id(7), id(23));
        let number =
            u64::from_be_bytes(*head[DATAGRAM_NUMBER].first_chunk().expect("it is in the head"));
        if kind > ID_ANSWER || (kind == ID_QUESTION) != (to == ANY) || from == ANY {
            return Err(GossipError::Garbage);
        }
        if self.senders.get(&from).is_some_and(|sender| !sender.window.is_fresh(number)) {
            return Err(GossipError::Repeated);
        }
        planted!(MoveWindowFirst => self.move_window(from, number));
        let used = self.open_with(from, number, head, sealed).ok_or(GossipError::Forged)?;
        // The number of a misaddressed datagram is noted too: a repeated one would be answered each
        // time otherwise.
        self.note(from, number, used);
        if to != self.me && kind != ID_QUESTION && !planted!(HearForOthers) {
            return Err(GossipError::Misaddressed { from });
        }
        let payload = &sealed[..sealed.len() - TAG];
        Ok(match kind {
            PAYLOAD => OpenedDatagram::Payload(payload),
            ID_QUESTION => OpenedDatagram::IdQuestion(from),
            _ => OpenedDatagram::IdAnswer(from),
        })
    }

    /// Opens with the key that the sender used last, then with each key of the ring. Returns the
    /// key if it is another one than before.
    fn open_with(
        &self,
        from: ProcessId,
        number: u64,
        head: &[u8],
        sealed: &mut [u8],
    ) -> Option<Option<(ClusterKey, LessSafeKey)>> {
        let known = self.senders.get(&from).and_then(|sender| sender.key.as_ref());
        // A wrong key destroys the bytes in place, so the next key needs a copy.
        let copy = (self.ring.keys().len() > 1).then(|| sealed.to_vec());
        let mut opens = |key: &LessSafeKey| {
            key.open_in_place(nonce(number), Aad::from(head), &mut *sealed).is_ok()
        };
        if let Some((_, key)) = known
            && opens(key)
        {
            return Some(None);
        }
        let mut is_spoilt = known.is_some();
        for key in self.ring.keys() {
            if known.is_some_and(|(known, _)| known == key) {
                continue;
            }
            if is_spoilt && let Some(copy) = &copy {
                sealed.copy_from_slice(copy);
            }
            let opening = key_of(key, &self.cluster, from);
            if opening.open_in_place(nonce(number), Aad::from(head), &mut *sealed).is_ok() {
                return Some(Some((key.clone(), opening)));
            }
            is_spoilt = true;
        }
        None
    }

    fn note(&mut self, from: ProcessId, number: u64, used: Option<(ClusterKey, LessSafeKey)>) {
        self.heard += 1;
        if self.senders.len() >= MAX_SENDERS && !self.senders.contains_key(&from) {
            let oldest = self.senders.iter().min_by_key(|(_, sender)| sender.heard);
            let oldest = oldest.map(|(process, _)| *process);
            oldest.and_then(|process| self.senders.remove(&process));
        }
        let sender = self.senders.entry(from).or_insert_with(Sender::new);
        sender.heard = self.heard;
        sender.window.note(number);
        if used.is_some() {
            sender.key = used;
        }
    }
}

impl Sender {
    fn new() -> Self {
        Sender { key: None, window: ReplayWindow::default(), heard: 0 }
    }
}

impl fmt::Debug for SealedGossip {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedGossip")
            .field("me", &self.me)
            .field("number", &self.number)
            .finish_non_exhaustive()
    }
}

fn key_of(key: &ClusterKey, cluster: &str, sender: ProcessId) -> LessSafeKey {
    aead(&key.gossip(cluster, &sender.0.to_be_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sender_that_was_silent_longest_is_forgotten_first() {
        let bytes = std::array::from_fn(|at| at as u8);
        let ring = Keyring::new(ClusterKey::from_bytes(&bytes).expect("a key"));
        let mut gossip = SealedGossip::new("shop", ProcessId(1), ring);
        for number in 0..MAX_SENDERS as u128 {
            gossip.note(ProcessId(10 + number), 1, None);
        }
        gossip.note(ProcessId(10), 2, None);
        gossip.note(ProcessId(9), 1, None);
        assert_eq!(gossip.senders.len(), MAX_SENDERS);
        let is_known = |number| gossip.senders.contains_key(&ProcessId(number));
        assert_eq!([9, 10, 11, 12].map(is_known), [true, true, false, true]);
    }
}
