//! The handshake: Noise `XXpsk0`, with a tag in front and process ids bound to static keys.
//!
//! The bodies of the frames, behind magic:
//!
//! ```text
//! Initiate   highest version 2 | lowest 2 | length of name 1 | cluster name | psk, e | tag 16
//! Respond    chosen version 2 | e, ee, s, es, sealed (chosen, lowest, highest, information)
//! Confirm    chosen version 2 | s, se, sealed purpose
//! ```

use super::{ClusterKey, KeyName, Keyring, Opener, Sealer, Secret, TAG};
use crate::protocol::versioned::Trailing;
use crate::protocol::{MemberInfo, ProcessId, StaticPublicKey, Versions};
use crate::wire::handshake::is_dialable;
use crate::wire::version::FROZEN;
use crate::wire::{MAX_CLUSTER, MAX_HELLO, Role, VERSIONS, codec};
use ring::{digest, hmac};
use serde::{Deserialize, Serialize};
use snow::params::{CipherChoice, DHChoice, HashChoice, NoiseParams};
use snow::resolvers::{CryptoResolver, DefaultResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, HandshakeState};
use std::fmt;
use zeroize::{Zeroize as _, Zeroizing};

const PATTERN: &str = "Noise_XXpsk0_25519_AESGCM_SHA256";
/// The start of the transcript.
const PROLOGUE: &[u8] = b"elderlock handshake 1";
/// The length of Noise's first message: an ephemeral key, and the seal of an empty payload.
const FIRST: usize = 32 + TAG;

/// The static key of one incarnation, and the process id that it proves. Its bytes are overwritten
/// when it is dropped.
pub struct StaticKey {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 32],
    process: ProcessId,
}

impl StaticKey {
    /// Makes the key from these random bytes.
    pub fn new(entropy: [u8; 32]) -> Self {
        let dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
        let mut dh = dh.expect("the default resolver has X25519");
        dh.set(&entropy);
        let public = *dh.pubkey().first_chunk().expect("X25519 has keys of 32 bytes");
        let process = process_of(&public);
        StaticKey { private: Zeroizing::new(entropy), public, process }
    }

    /// A key that claims the id of another process, for simulated attackers.
    pub fn of_impostor(entropy: [u8; 32], claims: ProcessId) -> Self {
        StaticKey { process: claims, ..StaticKey::new(entropy) }
    }

    /// The public key.
    pub fn public(&self) -> StaticPublicKey {
        StaticPublicKey(self.public)
    }

    /// The secret that only this key and the private key of `public` produce. `None`: `public` is
    /// one of the few points that produce the same secret with every key.
    pub(super) fn agree(&self, public: &[u8; 32]) -> Option<Secret> {
        let dh = DefaultResolver.resolve_dh(&DHChoice::Curve25519);
        let mut dh = dh.expect("the default resolver has X25519");
        dh.set(&*self.private);
        let mut secret = Zeroizing::new([0; 32]);
        dh.dh(public, &mut *secret).ok()?;
        (*secret != [0; 32]).then_some(secret)
    }

    /// The process id that the key proves.
    pub fn process(&self) -> ProcessId {
        self.process
    }
}

impl fmt::Debug for StaticKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "StaticKey({})", self.process)
    }
}

/// The process id that a static public key proves.
pub(super) fn process_of(public: &[u8]) -> ProcessId {
    let hash = digest::digest(&digest::SHA256, public);
    let (id, _) = hash.as_ref().split_first_chunk::<16>().expect("SHA-256 has 32 bytes");
    ProcessId(u128::from_be_bytes(*id))
}

/// The purpose of a connection, which its dialler names.
#[allow(clippy::large_enum_variant, reason = "there is one for each handshake")]
#[derive(Clone, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Purpose {
    /// To be a member, or to join.
    Member(MemberInfo),
    /// To ask for the status, once: that of the listener, or of this member of its view.
    Status(#[serde(with = "Trailing")] Option<ProcessId>),
    /// To give an order, once.
    Order,
}

impl Purpose {
    /// The lowest role that allows the purpose.
    pub fn role(&self) -> Role {
        match self {
            Purpose::Member(_) => Role::Member,
            Purpose::Status(_) => Role::Observer,
            Purpose::Order => Role::Operator,
        }
    }
}

/// One side's input of a handshake. Not `Debug`: the random bytes are secret.
pub struct HandshakeSetup<'a> {
    /// The cluster's name.
    pub cluster: &'a str,
    /// The versions of this side: [`VERSIONS`] outside of tests.
    pub versions: Versions,
    /// This incarnation's key.
    pub identity: &'a StaticKey,
    /// 32 random bytes for this handshake alone.
    pub entropy: [u8; 32],
}

/// Why a handshake failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SecureError {
    /// The packet is malformed.
    #[error("a malformed handshake")]
    Malformed,
    /// No key of the ring has tagged the packet.
    #[error("a handshake under a key that this member does not have")]
    UnknownKey,
    /// The key fits, but the cluster's name does not.
    #[error("the other side has the key, and belongs to another cluster")]
    OtherCluster,
    /// The key fits, but the two sides have no version in common.
    #[error(
        "the other side has the key, and speaks protocol version {0}; this member speaks {VERSIONS}"
    )]
    Versions(Versions),
    /// The seal is wrong. The packet was changed or repeated, or made by a process without the key.
    #[error("a forged, repeated or damaged handshake")]
    Forged,
    /// The other side has the key and claimed an id that its static key does not prove.
    #[error("the process there has the key, and claimed the id {claimed} of another process")]
    Impostor {
        /// The id that the other side claimed.
        claimed: ProcessId,
    },
    /// The role of the other side's key does not allow its purpose.
    #[error("a process with an {0} key that wants more than this key allows")]
    Role(Role),
    /// The chosen version is not the highest that both sides offer.
    #[error("version {0} was chosen, and both sides offer a higher one")]
    Downgraded(u16),
}

/// The result of a handshake: both sides have proved their ids.
#[derive(Debug)]
pub struct Session {
    /// The dialler's purpose. For the dialler: the listener's information.
    pub purpose: Purpose,
    /// The version that both sides speak from now on.
    pub version: u16,
    /// The name of the cluster key that was used.
    pub key: KeyName,
    /// Seals the frames of this side.
    pub sealer: Sealer,
    /// Opens the records of the other side.
    pub opener: Opener,
}

/// A resolver with ring's cipher and hash, dalek's curve, and the caller's randomness.
struct Resolver([u8; 32]);

impl Drop for Resolver {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(OneTimeRandom(Some(Zeroizing::new(self.0)))))
    }

    fn resolve_dh(&self, choice: &DHChoice) -> Option<Box<dyn Dh>> {
        DefaultResolver.resolve_dh(choice)
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// Randomness for one ephemeral key. A second call fails, so that no key is made twice.
struct OneTimeRandom(Option<Zeroizing<[u8; 32]>>);

impl Random for OneTimeRandom {
    fn try_fill_bytes(&mut self, to: &mut [u8]) -> Result<(), snow::Error> {
        let given =
            self.0.take().filter(|given| given.len() == to.len()).ok_or(snow::Error::Rng)?;
        to.copy_from_slice(&*given);
        Ok(())
    }
}

fn noise(key: &ClusterKey, setup: &HandshakeSetup<'_>, head: &[u8], dials: bool) -> HandshakeState {
    let params: NoiseParams = PATTERN.parse().expect("the pattern is one of Noise's");
    let prologue = [PROLOGUE, head].concat();
    let builder = Builder::with_resolver(params, Box::new(Resolver(setup.entropy)));
    let built = builder
        .psk(0, key.handshake())
        .and_then(|builder| builder.local_private_key(&*setup.identity.private))
        .and_then(|builder| builder.prologue(&prologue))
        .and_then(
            |builder| if dials { builder.build_initiator() } else { builder.build_responder() },
        );
    built.expect("the resolver has all of the pattern's primitives")
}

/// Appends Noise's next message.
fn write(noise: &mut HandshakeState, payload: &[u8], out: &mut Vec<u8>) -> Result<(), SecureError> {
    let mut message = vec![0; payload.len() + 256];
    let length = noise.write_message(payload, &mut message).map_err(|_| SecureError::Malformed)?;
    out.extend_from_slice(&message[..length]);
    Ok(())
}

fn read(noise: &mut HandshakeState, message: &[u8]) -> Result<Vec<u8>, SecureError> {
    let mut payload = vec![0; message.len()];
    let length = noise.read_message(message, &mut payload).map_err(|_| SecureError::Forged)?;
    payload.truncate(length);
    Ok(payload)
}

fn encoded<T: Serialize>(value: &T) -> Result<Vec<u8>, SecureError> {
    let mut bytes = Vec::new();
    codec::write(value, FROZEN, &mut bytes).map_err(|_| SecureError::Malformed)?;
    Ok(bytes)
}

fn decoded<T: serde::de::DeserializeOwned>(bytes: &[u8]) -> Result<T, SecureError> {
    // A later version may have further bytes at the end.
    let read = codec::read_front::<T, MAX_HELLO>(bytes, FROZEN);
    read.map(|(value, _)| value).map_err(|_| SecureError::Malformed)
}

/// Checks that the static key of the other side proves its process id, and is in its information.
fn check_identity(noise: &HandshakeState, info: &MemberInfo) -> Result<(), SecureError> {
    let key = noise.get_remote_static();
    let is_told = info.static_key.as_ref().map(|key| &key.0[..]) == key;
    let is_proven = is_told && key.map(process_of) == Some(info.process);
    if !is_proven && !planted!(BelieveAnyId) {
        return Err(SecureError::Impostor { claimed: info.process });
    }
    if is_dialable(info.addr) { Ok(()) } else { Err(SecureError::Malformed) }
}

fn tag_of(key: &ClusterKey, bytes: &[u8]) -> [u8; TAG] {
    let tag = hmac::sign(key.packet(), bytes);
    *tag.as_ref().first_chunk().expect("HMAC-SHA256 has 32 bytes")
}

/// Compares in constant time: both tags are tagged once more, under the same key.
fn has_tag(key: &ClusterKey, bytes: &[u8], tag: &[u8]) -> bool {
    hmac::verify(key.packet(), &tag_of(key, bytes), hmac::sign(key.packet(), tag).as_ref()).is_ok()
}

/// Reads the version in front of a packet's body. No later version may move it.
fn version_in(body: &[u8]) -> Result<(u16, &[u8]), SecureError> {
    let (version, rest) = body.split_first_chunk::<2>().ok_or(SecureError::Malformed)?;
    Ok((u16::from_be_bytes(*version), rest))
}

/// The dialler, while it waits for Respond.
pub struct Initiator {
    noise: HandshakeState,
    key: KeyName,
    versions: Versions,
}

impl Initiator {
    /// Begins a handshake under `key`. Also returns the body of Initiate.
    ///
    /// # Errors
    /// [`SecureError::Malformed`]: the cluster's name is too long.
    pub fn start(
        key: &ClusterKey,
        setup: &HandshakeSetup<'_>,
    ) -> Result<(Self, Vec<u8>), SecureError> {
        let Versions { lowest, highest } = setup.versions;
        let length = u8::try_from(setup.cluster.len()).map_err(|_| SecureError::Malformed)?;
        let mut body = [highest.to_be_bytes(), lowest.to_be_bytes()].concat();
        body.push(length);
        body.extend_from_slice(setup.cluster.as_bytes());
        let mut noise = noise(key, setup, &body, true);
        write(&mut noise, &[], &mut body)?;
        let tag = tag_of(key, &body);
        body.extend_from_slice(&tag);
        Ok((Initiator { noise, key: key.name(), versions: setup.versions }, body))
    }

    /// Takes Respond. Also returns the body of Confirm, which precedes all records.
    ///
    /// # Errors
    /// [`SecureError`]: close the connection without sending another byte.
    pub fn finish(
        mut self,
        respond: &[u8],
        purpose: &Purpose,
    ) -> Result<(Session, Vec<u8>), SecureError> {
        let (in_front, message) = version_in(respond)?;
        let payload = read(&mut self.noise, message)?;
        let (chosen, theirs, info): (u16, Versions, MemberInfo) = decoded(&payload)?;
        let is_best = chosen == in_front && self.versions.common(theirs) == Some(chosen);
        if !is_best && !planted!(BelieveAnyVersion) {
            return Err(SecureError::Downgraded(chosen));
        }
        check_identity(&self.noise, &info)?;
        let mut confirm = chosen.to_be_bytes().to_vec();
        write(&mut self.noise, &encoded(purpose)?, &mut confirm)?;
        let (mut ours, mut theirs) = self.noise.dangerously_get_raw_split();
        let session = Session {
            purpose: Purpose::Member(info),
            version: chosen,
            key: self.key,
            sealer: Sealer::at(ours, 0),
            opener: Opener::at(theirs, 0),
        };
        ours.zeroize();
        theirs.zeroize();
        Ok((session, confirm))
    }
}

impl fmt::Debug for Initiator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Initiator").field("key", &self.key).finish_non_exhaustive()
    }
}

/// The listener, while it waits for Confirm.
pub struct Responder {
    noise: HandshakeState,
    key: KeyName,
    role: Role,
    version: u16,
}

impl Responder {
    /// Takes Initiate. Also returns the body of Respond. A packet without a key of the ring costs a
    /// tag of each role for each key.
    ///
    /// # Errors
    /// [`SecureError`]: the listener keeps nothing of the packet.
    pub fn answer(
        ring: &Keyring,
        setup: &HandshakeSetup<'_>,
        me: &MemberInfo,
        initiate: &[u8],
    ) -> Result<(Self, Vec<u8>), SecureError> {
        let (tagged, tag) = initiate.split_last_chunk::<TAG>().ok_or(SecureError::Malformed)?;
        let name_end = tagged.len().checked_sub(FIRST).ok_or(SecureError::Malformed)?;
        let (head, message) = tagged.split_at(name_end);
        let (highest, rest) = version_in(head)?;
        let (lowest, rest) = version_in(rest)?;
        let (length, name) = rest.split_first().ok_or(SecureError::Malformed)?;
        if usize::from(*length) != name.len() || !(1..=MAX_CLUSTER).contains(&name.len()) {
            return Err(SecureError::Malformed);
        }
        let mut keys = ring.keys().iter().flat_map(ClusterKey::with_roles);
        let key = match keys.find(|key| has_tag(key, tagged, tag)) {
            Some(key) => key,
            None if planted!(SkipPacketTag) => ring.first(),
            None => return Err(SecureError::UnknownKey),
        };
        // The other side has the key, or repeats a packet of a process that has it.
        if name != setup.cluster.as_bytes() {
            return Err(SecureError::OtherCluster);
        }
        let theirs = Versions { lowest, highest };
        let version = setup.versions.common(theirs).ok_or(SecureError::Versions(theirs))?;
        let mut noise = noise(key, setup, head, false);
        read(&mut noise, message)?;
        let mut respond = version.to_be_bytes().to_vec();
        write(&mut noise, &encoded(&(version, setup.versions, me))?, &mut respond)?;
        Ok((Responder { noise, key: key.name(), role: key.role(), version }, respond))
    }

    /// Takes Confirm, which proves that the other side is present and has its process id.
    ///
    /// # Errors
    /// [`SecureError`]: the connection must not be adopted.
    pub fn finish(mut self, confirm: &[u8]) -> Result<Session, SecureError> {
        let (version, message) = version_in(confirm)?;
        if version != self.version {
            return Err(SecureError::Downgraded(version));
        }
        let purpose: Purpose = decoded(&read(&mut self.noise, message)?)?;
        if self.role < purpose.role() && !planted!(AdmitAnyRole) {
            return Err(SecureError::Role(self.role));
        }
        if let Purpose::Member(info) = &purpose {
            check_identity(&self.noise, info)?;
        }
        let (mut theirs, mut ours) = self.noise.dangerously_get_raw_split();
        let session = Session {
            purpose,
            version,
            key: self.key,
            sealer: Sealer::at(ours, 0),
            opener: Opener::at(theirs, 0),
        };
        ours.zeroize();
        theirs.zeroize();
        Ok(session)
    }
}

impl fmt::Debug for Responder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder").field("key", &self.key).finish_non_exhaustive()
    }
}
