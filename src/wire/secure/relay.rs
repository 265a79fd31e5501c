//! Sealed relays: packets that other members pass on, and that only their destination can read.
//!
//! Two members that do not reach each other have perhaps never shaken hands. So the key of their
//! packets is derived from their static keys, which the view has. The process ids prove the static
//! keys.
//!
//! ```text
//! key of A -> B   HKDF(X25519(A, B), "relay", id of A, id of B)
//! sealed packet   number 8 | sealed (version 2 | packet) | tag 16
//! ```
//!
//! The tag covers the head of the relay too: origin, destination, and the origin's statement of its
//! paths. A static key lives as long as its process, so a number is used once under a key.

use super::handshake::{StaticKey, process_of};
use super::{ReplayWindow, aead, derive, nonce};
use crate::protocol::{MemberInfo, Packet, ProcessId, StaticPublicKey};
use crate::wire::VERSIONS;
use crate::wire::packet::{read_flat, relay_head, write_flat};
use ring::aead::{Aad, LessSafeKey};
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

/// The number of bytes of the packet's number, which comes first.
const NUMBER: usize = 8;
/// The most origins with a window of numbers: many times the largest cluster. All of them have the
/// key.
const MAX_ORIGINS: usize = 4096;

/// Why a relayed packet is dropped. The window has not moved.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum RelayError {
    /// The packet is not sealed.
    #[error("a relayed packet in the name of {0} that is not sealed")]
    Unsealed(ProcessId),
    /// The static key in the relay does not prove the id of its origin.
    #[error("a relayed packet in the name of {0}, with the key of another process")]
    Impostor(ProcessId),
    /// The tag is wrong, or the opened bytes are not a packet.
    #[error("a relayed packet of {0} that was changed, or made by another process")]
    Forged(ProcessId),
    /// A packet of this number was opened before, or the number is too old.
    #[error("a repeated relayed packet of {0}")]
    Repeated(ProcessId),
    /// The packet is in a version that is not spoken here.
    #[error("a relayed packet of {0} in protocol version {1}; this process speaks {VERSIONS}")]
    Version(ProcessId, u16),
}

/// A process whose packets were opened.
struct KnownOrigin {
    public: StaticPublicKey,
    key: LessSafeKey,
    window: ReplayWindow,
    /// The count of all opened packets when the latest one of this origin was opened.
    opened: u64,
}

/// One process's sealed relays: its own numbers, and the windows of other origins.
pub struct SealedRelays {
    identity: Arc<StaticKey>,
    /// The static keys of the members of the view.
    members: BTreeMap<ProcessId, StaticPublicKey>,
    /// The keys by destination, with the number of the next packet.
    destinations: BTreeMap<ProcessId, (LessSafeKey, u64)>,
    /// The first number for a new destination. It is above each number of a destination that was
    /// removed, so a destination that is added again has no number twice.
    first: u64,
    origins: BTreeMap<ProcessId, KnownOrigin>,
    opened: u64,
}

impl SealedRelays {
    /// The relays of the process with this key, which has sealed nothing yet. No other value may
    /// seal for the same process.
    pub fn new(identity: Arc<StaticKey>) -> Self {
        SealedRelays {
            identity,
            members: BTreeMap::new(),
            destinations: BTreeMap::new(),
            first: 0,
            origins: BTreeMap::new(),
            opened: 0,
        }
    }

    /// Takes the static keys of the members. Removes destinations that are no longer members.
    pub fn set_members<'a>(&mut self, members: impl Iterator<Item = &'a MemberInfo>) {
        self.members = members.filter_map(|info| Some((info.process, info.static_key?))).collect();
        let SealedRelays { members, destinations, first, .. } = self;
        destinations.retain(|process, (_, next)| {
            let is_member = members.contains_key(process);
            if !is_member {
                *first = (*first).max(*next);
            }
            is_member
        });
    }

    /// Seals the packet in a relay of this process; returns any other packet as it is. `None`: the
    /// view has no static key that proves the id of the destination, and the packet is dropped. The
    /// packet is encoded in `version`, which is that of the view.
    pub fn seal(&mut self, relay: Packet, version: u16) -> Option<Packet> {
        let Packet::Relay { from, to, troubled, heard, packet } = relay else { return Some(relay) };
        if from.process != self.identity.process() || matches!(*packet, Packet::Sealed { .. }) {
            return Some(Packet::Relay { from, to, troubled, heard, packet });
        }
        if !self.destinations.contains_key(&to) {
            let public = self.members.get(&to).filter(|public| process_of(&public.0) == to)?;
            let key = self.key(public, (from.process, to))?;
            self.destinations.insert(to, (key, self.first));
        }
        let is_notice = matches!(*packet, Packet::Notice(_));
        let head = relay_head(&from, (to, troubled, heard), is_notice)?;
        let (key, next) = self.destinations.get_mut(&to)?;
        let number = *next;
        *next = number.checked_add(1)?;
        let mut bytes = number.to_be_bytes().to_vec();
        bytes.extend_from_slice(&version.to_be_bytes());
        write_flat(&packet, version, &mut bytes)?.ok()?;
        let (_, open) = bytes.split_at_mut(NUMBER);
        let tag = key.seal_in_place_separate_tag(nonce(number), Aad::from(&head), open).ok()?;
        bytes.extend_from_slice(tag.as_ref());
        let packet = Box::new(Packet::Sealed { is_notice, bytes });
        Some(Packet::Relay { from, to, troubled, heard, packet })
    }

    /// Opens the packet in a relay for this process; returns any other packet as it is.
    /// `is_strange`: the relay is a stranger. Of a linked packet only the head is read then, as if
    /// the stranger had sent it.
    ///
    /// # Errors
    /// [`RelayError`]: drop the packet. Nothing has changed.
    pub fn open(&mut self, relay: Packet, is_strange: bool) -> Result<Packet, RelayError> {
        let Packet::Relay { from, to, troubled, heard, packet } = relay else { return Ok(relay) };
        if to != self.identity.process() {
            return Ok(Packet::Relay { from, to, troubled, heard, packet });
        }
        let origin = from.process;
        let Packet::Sealed { is_notice, bytes } = *packet else {
            return match planted!(TakeUnsealedRelays) {
                true => Ok(Packet::Relay { from, to, troubled, heard, packet }),
                false => Err(RelayError::Unsealed(origin)),
            };
        };
        let forged = RelayError::Forged(origin);
        let (number, sealed) = bytes.split_first_chunk::<NUMBER>().ok_or(forged)?;
        let number = u64::from_be_bytes(*number);
        let public = from.static_key.ok_or(RelayError::Impostor(origin))?;
        let known = self.origins.get(&origin).filter(|known| known.public == public);
        let is_fresh = known.is_none_or(|known| known.window.is_fresh(number));
        if !is_fresh && !planted!(TakeRepeatedRelays) {
            return Err(RelayError::Repeated(origin));
        }
        let new = if known.is_some() {
            None
        } else if process_of(&public.0) == origin || planted!(BelieveAnyOrigin) {
            Some(self.key(&public, (origin, to)).ok_or(RelayError::Impostor(origin))?)
        } else {
            return Err(RelayError::Impostor(origin));
        };
        let key = new.as_ref().or(known.map(|known| &known.key)).ok_or(forged)?;
        let head = relay_head(&from, (to, troubled, heard), is_notice).ok_or(forged)?;
        let mut sealed = sealed.to_vec();
        let opened = key.open_in_place(nonce(number), Aad::from(&head), &mut sealed);
        let opened = &*opened.map_err(|_| forged)?;
        let (version, opened) = opened.split_first_chunk::<2>().ok_or(forged)?;
        let version = u16::from_be_bytes(*version);
        if !VERSIONS.contains(version) {
            return Err(RelayError::Version(origin, version));
        }
        let packet = read_flat(opened, version, is_strange).ok_or(forged)?;
        self.note(origin, public, number, new);
        Ok(Packet::Relay { from, to, troubled, heard, packet: Box::new(packet) })
    }

    fn note(
        &mut self,
        process: ProcessId,
        public: StaticPublicKey,
        number: u64,
        new: Option<LessSafeKey>,
    ) {
        self.opened += 1;
        let opened = self.opened;
        if let Some(key) = new {
            if self.origins.len() >= MAX_ORIGINS {
                let oldest = self.origins.iter().min_by_key(|(_, origin)| origin.opened);
                let oldest = oldest.map(|(process, _)| *process);
                oldest.and_then(|process| self.origins.remove(&process));
            }
            let window = ReplayWindow::default();
            self.origins.insert(process, KnownOrigin { public, key, window, opened });
        }
        if let Some(origin) = self.origins.get_mut(&process) {
            origin.window.note(number);
            origin.opened = opened;
        }
    }

    /// The key of the packets between two processes, one of which is this one. `None`: the public
    /// key is one of the few that produce the same secret with every key.
    fn key(
        &self,
        public: &StaticPublicKey,
        (from, to): (ProcessId, ProcessId),
    ) -> Option<LessSafeKey> {
        let shared = self.identity.agree(&public.0)?;
        let purpose: [&[u8]; 3] = [b"relay", &from.0.to_be_bytes(), &to.0.to_be_bytes()];
        Some(aead(&derive(&shared, &purpose)))
    }
}

impl fmt::Debug for SealedRelays {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SealedRelays")
            .field("process", &self.identity.process())
            .field("opened", &self.opened)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_has_left_the_view_is_forgotten_and_its_numbers_never_begin_again() {
        let of = |seed: u8| {
            let identity = StaticKey::new([seed; 32]);
            let addr = ([127, 0, 0, 1], 7400 + u16::from(seed)).into();
            let info = MemberInfo::new(identity.process(), addr);
            (MemberInfo { static_key: Some(identity.public()), ..info }, identity)
        };
        let ((one, identity), (two, _), (three, _)) = (of(1), of(2), of(3));
        let mut relays = SealedRelays::new(Arc::new(identity));
        let everyone = [one.clone(), two.clone(), three.clone()];
        relays.set_members(everyone.iter());
        let number = |relays: &mut SealedRelays, to: &MemberInfo| {
            let (from, to) = (Box::new(one.clone()), to.process);
            let packet = Packet::Ack { view: crate::protocol::ViewNumber(1), ack: 1, again: false };
            let packet = Box::new(packet);
            let relay = Packet::Relay { from, to, troubled: true, heard: None, packet };
            let Packet::Relay { packet, .. } = relays.seal(relay, crate::wire::PROTOCOL_VERSION)?
            else {
                return None;
            };
            let Packet::Sealed { bytes, .. } = *packet else { return None };
            Some(u64::from_be_bytes(*bytes.first_chunk()?))
        };
        assert_eq!([0; 3].map(|_| number(&mut relays, &two)), [Some(0), Some(1), Some(2)]);
        assert_eq!(number(&mut relays, &three), Some(0));
        relays.set_members([&one, &three].into_iter());
        assert_eq!(Vec::from_iter(relays.destinations.keys()), [&three.process]);
        assert_eq!(number(&mut relays, &two), None, "it is no member");
        relays.set_members(everyone.iter());
        assert_eq!(number(&mut relays, &two), Some(3));
        assert_eq!(number(&mut relays, &three), Some(1), "it has stayed");
    }

    #[test]
    fn the_origin_that_was_silent_longest_is_forgotten_first() {
        let mut relays = SealedRelays::new(Arc::new(StaticKey::new([7; 32])));
        let public = StaticPublicKey([7; 32]);
        let mut note = |process, number, is_new: bool| {
            relays.note(ProcessId(process), public, number, is_new.then(|| aead(&[7; 32])));
        };
        (0..MAX_ORIGINS as u128).for_each(|number| note(10 + number, 1, true));
        note(10, 2, false);
        note(9, 1, true);
        assert_eq!(relays.origins.len(), MAX_ORIGINS);
        let is_known = |number| relays.origins.contains_key(&ProcessId(number));
        assert_eq!([9, 10, 11, 12].map(is_known), [true, true, false, true]);
    }
}
