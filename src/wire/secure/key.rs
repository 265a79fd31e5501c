//! Cluster keys and keyrings.

use super::{Secret, derive};
use crate::wire::Role;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use ring::hmac;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use zeroize::Zeroizing;

/// The roles that have a key of their own, derived from the cluster key.
const DERIVED: [Role; 2] = [Role::Observer, Role::Operator];

/// The most keys of a ring. Rotation takes two, and each key costs a tag of each role for every
/// unknown packet.
pub const MAX_KEYS: usize = 8;

/// The secret that all members of a cluster share: 32 random bytes, written in base64.
///
/// Clones share one copy of the key, which is overwritten when the last one is dropped. `Debug`
/// prints the [name](ClusterKey::name) only.
///
/// ```
/// use elderlock::ClusterKey;
/// let key = ClusterKey::generate()?;
/// let text = key.to_base64();
/// assert_eq!(text.parse::<ClusterKey>()?, key);
/// assert!(!format!("{key:?}").contains(text.as_str()));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct ClusterKey(Arc<Derived>);

struct Derived {
    secret: Secret,
    name: KeyName,
    role: Role,
    /// The keys of the lower roles, in the order of [`DERIVED`]. Empty if this is such a key
    /// itself.
    roles: Vec<ClusterKey>,
    /// Noise's pre-shared key.
    handshake: Secret,
    /// Tags first packets, so that a packet without the key costs no curve work.
    packet: hmac::Key,
}

/// A key's name: eight hexadecimal digits of a hash of the key. The name is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyName([u8; 4]);

impl fmt::Display for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:08x}", u32::from_be_bytes(self.0))
    }
}

impl fmt::Debug for KeyName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl serde::Serialize for KeyName {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Why text or bytes are not a cluster key or keyring. The error never contains any of them.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeyError {
    /// The text is not base64.
    #[error(
        "a cluster key is 32 bytes in base64, as `elderlock keygen` writes it; this is not base64"
    )]
    NotBase64,
    /// The key has another length.
    #[error("a cluster key must have 32 bytes, not {0}; `elderlock keygen` makes one")]
    Length(usize),
    /// All bytes are the same.
    #[error(
        "all bytes of the cluster key are the same: it is not secret; `elderlock keygen` makes one"
    )]
    Weak,
    /// The keyring has no key.
    #[error("the keyring has no key: one key a line, the first one seals")]
    Empty,
    /// The keyring has too many keys.
    #[error(
        "a keyring has at most {MAX_KEYS} keys: remove those that no member seals with any more"
    )]
    TooMany,
    /// The keyring has the same key twice.
    #[error("key {0} stands in the keyring twice")]
    Twice(KeyName),
    /// A key of a role derives no other role.
    #[error("an {0} key derives no {1} key: derive it from the cluster key")]
    NotDerived(Role, Role),
}

impl ClusterKey {
    /// Makes a key from these bytes.
    ///
    /// # Errors
    /// [`KeyError::Weak`] if all bytes are the same.
    pub fn from_bytes(bytes: &[u8; 32]) -> Result<Self, KeyError> {
        if bytes.iter().all(|byte| *byte == bytes[0]) {
            return Err(KeyError::Weak);
        }
        let key = |role: Role| derive(bytes, &[role.name().as_bytes()]);
        let roles = DERIVED.map(|role| ClusterKey::new(key(role), role, Vec::new()));
        Ok(ClusterKey::new(Zeroizing::new(*bytes), Role::Member, roles.to_vec()))
    }

    fn new(secret: Secret, role: Role, roles: Vec<ClusterKey>) -> Self {
        let name = derive(&secret, &[b"name"]);
        ClusterKey(Arc::new(Derived {
            name: KeyName([name[0], name[1], name[2], name[3]]),
            role,
            roles,
            handshake: derive(&secret, &[b"handshake"]),
            packet: hmac::Key::new(hmac::HMAC_SHA256, &*derive(&secret, &[b"packet"])),
            secret,
        }))
    }

    /// Derives the key of a role with fewer rights, by HKDF. The cluster key cannot be computed
    /// from it, nor the key of another role. For its own role a key returns itself.
    ///
    /// # Errors
    /// [`KeyError::NotDerived`]: only a cluster key derives the keys of other roles.
    pub fn derive(&self, role: Role) -> Result<ClusterKey, KeyError> {
        if role == self.role() {
            return Ok(self.clone());
        }
        let derived = self.0.roles.iter().find(|key| key.role() == role);
        derived.cloned().ok_or(KeyError::NotDerived(self.role(), role))
    }

    /// Returns the role of the key's holder.
    pub fn role(&self) -> Role {
        self.0.role
    }

    /// This key, and the keys of the lower roles: a member answers under each of them.
    pub(super) fn with_roles(&self) -> impl Iterator<Item = &ClusterKey> {
        std::iter::once(self).chain(&self.0.roles)
    }

    /// The key as text, for a file that only its owner can read. The text of a role's key begins
    /// with the role: `observer:` or `operator:`.
    pub fn to_base64(&self) -> Zeroizing<String> {
        let text = Zeroizing::new(BASE64_STANDARD.encode(self.0.secret.as_slice()));
        match self.role() {
            Role::Member => text,
            role => Zeroizing::new([role.name(), ":", text.as_str()].concat()),
        }
    }

    /// The key's name, for logs.
    pub fn name(&self) -> KeyName {
        self.0.name
    }

    pub(super) fn handshake(&self) -> &[u8; 32] {
        &self.0.handshake
    }

    pub(super) fn packet(&self) -> &hmac::Key {
        &self.0.packet
    }

    /// The secret of one sender's gossip.
    pub(super) fn gossip(&self, cluster: &str, sender: &[u8; 16]) -> Secret {
        let length = (cluster.len() as u64).to_be_bytes();
        derive(&self.0.secret, &[b"gossip", &length, cluster.as_bytes(), sender])
    }
}

impl FromStr for ClusterKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<Self, KeyError> {
        let text = text.trim();
        // Base64 has no colon.
        let prefixed = |role: &Role| Some((*role, text.strip_prefix(role.name())?));
        let prefixed = DERIVED.iter().find_map(prefixed);
        let prefixed = prefixed.and_then(|(role, rest)| Some((role, rest.strip_prefix(':')?)));
        let decoded = BASE64_STANDARD.decode(prefixed.map_or(text, |(_, rest)| rest));
        let bytes = Zeroizing::new(decoded.map_err(|_| KeyError::NotBase64)?);
        let length = bytes.len();
        let bytes: &[u8; 32] = bytes.as_slice().try_into().map_err(|_| KeyError::Length(length))?;
        match prefixed {
            Some((role, _)) => Ok(ClusterKey::new(Zeroizing::new(*bytes), role, Vec::new())),
            None => ClusterKey::from_bytes(bytes),
        }
    }
}

impl PartialEq for ClusterKey {
    fn eq(&self, other: &Self) -> bool {
        *self.0.secret == *other.0.secret && self.role() == other.role()
    }
}

impl Eq for ClusterKey {}

impl fmt::Debug for ClusterKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterKey({})", self.0.name)
    }
}

/// The keys of a member, at least one. The first key seals, all keys open.
///
/// To rotate without downtime, add the new key to all members. Then make it the first at all
/// members. Then remove the old key from all members. Each step is a call of `Member::set_keyring`.
///
/// ```
/// use elderlock::{ClusterKey, Keyring};
/// let (old, new) = (ClusterKey::generate()?, ClusterKey::generate()?);
/// let added = Keyring::new(old.clone()).with(new.clone())?;
/// let first = Keyring::new(new.clone()).with(old)?;
/// let removed = Keyring::new(new);
/// assert_eq!(added.names().count(), 2);
/// assert_eq!(first.names().next(), removed.names().next());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keyring {
    keys: Vec<ClusterKey>,
}

impl Keyring {
    /// A ring of one key.
    pub fn new(key: ClusterKey) -> Self {
        Keyring { keys: vec![key] }
    }

    /// Returns the same ring with another key behind the others. That key opens and does not seal.
    ///
    /// # Errors
    /// [`KeyError::TooMany`], [`KeyError::Twice`].
    pub fn with(mut self, key: ClusterKey) -> Result<Self, KeyError> {
        if self.keys.len() == MAX_KEYS {
            return Err(KeyError::TooMany);
        }
        if self.keys.contains(&key) {
            return Err(KeyError::Twice(key.name()));
        }
        self.keys.push(key);
        Ok(self)
    }

    /// Reads a ring from text: one key in base64 a line, of which the first seals. Empty lines, and
    /// lines that begin with `#`, are skipped.
    ///
    /// # Errors
    /// [`KeyError`].
    pub fn parse(text: &str) -> Result<Self, KeyError> {
        let lines =
            text.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        let mut ring: Option<Keyring> = None;
        for line in lines {
            let key = line.parse()?;
            ring = Some(match ring {
                None => Keyring::new(key),
                Some(ring) => ring.with(key)?,
            });
        }
        ring.ok_or(KeyError::Empty)
    }

    /// The names of the ring's keys, beginning with the key that seals.
    pub fn names(&self) -> impl Iterator<Item = KeyName> + '_ {
        self.keys.iter().map(ClusterKey::name)
    }

    /// The key that seals.
    pub fn first(&self) -> &ClusterKey {
        &self.keys[0]
    }

    /// The role of a key in the ring that is not a cluster key, if there is one: no member joins
    /// with such a ring.
    pub fn lower_role(&self) -> Option<Role> {
        self.keys.iter().map(ClusterKey::role).find(|role| *role < Role::Member)
    }

    /// The keys of the ring, beginning with the key that seals.
    pub fn keys(&self) -> &[ClusterKey] {
        &self.keys
    }

    /// Returns whether the ring has a key of this name, or a key from which it is derived.
    pub fn has(&self, name: KeyName) -> bool {
        self.keys.iter().flat_map(ClusterKey::with_roles).any(|known| known.name() == name)
    }
}
