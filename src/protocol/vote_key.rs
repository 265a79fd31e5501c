//! The secret of a vote, the key that belongs to it, and the proof made with it.
//!
//! `vote_claim.rs` describes their use.

use ed25519_dalek::{Signature, Signer as _, SigningKey, VerifyingKey};
use serde::{Deserialize, Serialize};
use std::fmt;

/// The secret of a process's vote: 32 random bytes, drawn by each process at its start.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoteSecret([u8; 32]);

impl VoteSecret {
    /// The secret with these bytes, which no other process may know.
    pub const fn new(bytes: [u8; 32]) -> VoteSecret {
        VoteSecret(bytes)
    }

    /// The key that belongs to the secret. The secret cannot be computed from the key.
    pub fn key(&self) -> VoteKey {
        VoteKey(SigningKey::from_bytes(&self.0).verifying_key().to_bytes())
    }

    /// The signature of these bytes.
    pub(super) fn sign(&self, bytes: &[u8]) -> VoteProof {
        let signature = SigningKey::from_bytes(&self.0).sign(bytes);
        VoteProof([*signature.r_bytes(), *signature.s_bytes()])
    }
}

impl fmt::Debug for VoteSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("VoteSecret(..)")
    }
}

/// The key by which a claim to a process's vote is checked. It is not a secret.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct VoteKey([u8; 32]);

impl VoteKey {
    /// The key with these bytes, valid or not.
    pub const fn new(bytes: [u8; 32]) -> VoteKey {
        VoteKey(bytes)
    }

    /// The 32 bytes of the key.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Returns whether the secret of this key has signed these bytes.
    pub(super) fn has_signed(&self, bytes: &[u8], proof: &VoteProof) -> bool {
        let VoteProof([r, s]) = proof;
        let signature = Signature::from_components(*r, *s);
        VerifyingKey::from_bytes(&self.0)
            .is_ok_and(|key| key.verify_strict(bytes, &signature).is_ok())
    }
}

impl fmt::Debug for VoteKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VoteKey({})", HexPrefix(&self.0))
    }
}

/// The signature of a claim, which can be made only with the secret of the voter.
#[derive(Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoteProof([[u8; 32]; 2]);

impl VoteProof {
    /// The proof with these bytes, the two halves of a signature, valid or not.
    pub const fn new(halves: [[u8; 32]; 2]) -> VoteProof {
        VoteProof(halves)
    }
}

impl fmt::Debug for VoteProof {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VoteProof({})", HexPrefix(&self.0[0]))
    }
}

/// The first bytes, for people.
struct HexPrefix<'a>(&'a [u8; 32]);

impl fmt::Display for HexPrefix<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_secret_is_not_printed() {
        let secret = VoteSecret::new([7; 32]);
        assert_eq!(format!("{secret:?}"), "VoteSecret(..)");
        assert_eq!(format!("{:#?}", Some(secret)), "Some(\n    VoteSecret(..),\n)");
    }
}
