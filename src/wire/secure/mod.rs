//! Keys, the handshake, records, sealed gossip and sealed relays, as values without input and
//! output.
//!
//! `docs/internals/security.md` specifies them. Randomness is an argument, so that tests can repeat
//! each run. A connection uses these values in turn:
//!
//! ```text
//! dialler:  Initiator::start -> Initiate;  Initiator::finish(Respond) -> Session, Confirm
//! listener: Responder::answer(Initiate) -> Respond;  Responder::finish(Confirm) -> Session
//! both:     Session { sealer, opener }: frames -> records -> frames
//! ```
//!
//! No function panics on input. A value that has failed is consumed, so its keys are not used
//! again.

/// A planted break. Says whether it is planted, or runs the statement after `=>` if it is. Only
/// builds with `--cfg elderlock_mutants` have any.
macro_rules! planted {
    ($name:ident => $($statement:tt)+) => {
        #[cfg(elderlock_mutants)]
        if planted!($name) {
            $($statement)+;
        }
    };
    ($name:ident) => {{
        #[cfg(elderlock_mutants)]
        let planted = {
            use $crate::wire::secure::mutant::{KeyMutant, is_planted};
            is_planted(KeyMutant::$name)
        };
        #[cfg(not(elderlock_mutants))]
        let planted = false;
        planted
    }};
}

mod gossip;
mod handshake;
mod key;
#[cfg(elderlock_mutants)]
pub mod mutant;
mod record;
mod relay;
#[cfg(test)]
mod tests;
mod window;

pub use gossip::{DATAGRAM_NUMBER, GossipError, OpenedDatagram, SealedGossip};
pub use handshake::{
    HandshakeSetup, Initiator, Purpose, Responder, SecureError, Session, StaticKey,
};
pub use key::{ClusterKey, KeyError, KeyName, Keyring, MAX_KEYS};
pub use record::{Exhausted, Forged, MAX_RECORD, Opener, REKEY_AFTER, Sealer};
pub use relay::{RelayError, SealedRelays};
pub use window::{ReplayWindow, WINDOW};

use ring::aead::{AES_256_GCM, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::hkdf::{HKDF_SHA256, KeyType, Salt};
use zeroize::Zeroizing;

/// The number of bytes of an authentication tag.
const TAG: usize = 16;

/// The type of the first packet's tag and of every derived secret.
type Secret = Zeroizing<[u8; 32]>;

struct SecretLength;

impl KeyType for SecretLength {
    fn len(&self) -> usize {
        32
    }
}

/// Derives the secret of one purpose from another secret.
fn derive(from: &[u8; 32], purpose: &[&[u8]]) -> Secret {
    let mut out = Zeroizing::new([0; 32]);
    let prk = Salt::new(HKDF_SHA256, b"elderlock 1").extract(from);
    // HKDF fails only for outputs of more than 8 KiB.
    let okm = prk.expand(purpose, SecretLength).and_then(|okm| okm.fill(&mut *out));
    okm.expect("32 bytes are within HKDF's bound");
    out
}

fn aead(secret: &[u8; 32]) -> LessSafeKey {
    LessSafeKey::new(UnboundKey::new(&AES_256_GCM, secret).expect("AES-256 takes keys of 32 bytes"))
}

/// The nonce for a number. No number is used twice under one key.
fn nonce(number: u64) -> Nonce {
    let mut bytes = [0; NONCE_LEN];
    bytes[NONCE_LEN - 8..].copy_from_slice(&number.to_be_bytes());
    Nonce::assume_unique_for_key(bytes)
}
