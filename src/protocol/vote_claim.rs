//! The right to a stored vote: a secret on disk, a key in the view, and a proof in each claim.
//!
//! Each process with a data directory has its own [`VoteSecret`], which it stores beside its vote.
//! Its [`VoteKey`] is part of its information, and so of each view that it is in. A vote successor
//! signs its claim with the secret of the process whose vote it claims. A receiver checks the
//! signature with the key in the view ([`VoteClaim::is_proven`]).
//!
//! The signature is Ed25519, which needs no randomness. It covers the lineage, the voter, and all
//! information of the vote successor. So the secret never leaves the directory, and a copied claim
//! is useless to another process.

use super::id::{Lineage, MemberInfo, ProcessId};
use super::vote_key::{VoteKey, VoteProof, VoteSecret};
use serde::{Deserialize, Serialize};

/// The start of each signed claim, so that a signature means nothing else.
const PURPOSE: &[u8] = b"elderlock vote successor 1\n";

/// The claim of a vote successor to the vote of a former process.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct VoteClaim {
    /// The process whose vote is claimed.
    pub voter: ProcessId,
    /// The proof that the vote successor has the secret of that process.
    pub proof: VoteProof,
}

impl VoteClaim {
    /// The claim of `me` to the vote of `voter`, whose secret is `secret`.
    pub fn new(
        secret: &VoteSecret,
        voter: ProcessId,
        lineage: Lineage,
        me: &MemberInfo,
    ) -> VoteClaim {
        VoteClaim { voter, proof: secret.sign(&statement(voter, lineage, me)) }
    }

    /// Returns whether `me` makes this claim and has the secret of the voter that belongs to `key`.
    pub fn is_proven(&self, key: &VoteKey, lineage: Lineage, me: &MemberInfo) -> bool {
        key.has_signed(&statement(self.voter, lineage, me), &self.proof)
    }
}

/// The bytes to be signed. All parts except the last have a fixed length, or a length before them.
fn statement(voter: ProcessId, lineage: Lineage, me: &MemberInfo) -> Vec<u8> {
    let MemberInfo { process, addr, host, vote_key, static_key, serves_sessions, name, versions } =
        me;
    let mut bytes = PURPOSE.to_vec();
    bytes.extend(lineage.founded.0.to_be_bytes());
    for process in [lineage.founder, voter, *process] {
        bytes.extend(process.0.to_be_bytes());
    }
    bytes.push(u8::from(host.is_some()));
    if let Some(host) = host {
        bytes.extend(host.boot.to_be_bytes());
        bytes.extend(host.namespace.to_be_bytes());
        bytes.extend(host.pid.to_be_bytes());
        bytes.extend(host.started.to_be_bytes());
    }
    bytes.push(u8::from(vote_key.is_some()));
    bytes.extend(vote_key.iter().flat_map(VoteKey::as_bytes));
    bytes.push(u8::from(static_key.is_some()));
    bytes.extend(static_key.iter().flat_map(|key| key.0));
    bytes.push(u8::from(*serves_sessions));
    bytes.extend(versions.lowest.to_be_bytes());
    bytes.extend(versions.highest.to_be_bytes());
    // A name has at most 63 bytes.
    bytes.push(name.as_str().len() as u8);
    bytes.extend(name.as_str().bytes());
    bytes.extend(addr.to_string().bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::super::id::{Host, MemberName, Slot, StaticPublicKey, Versions};
    use super::*;

    const SECRET: VoteSecret = VoteSecret::new([7; 32]);
    const VOTER: ProcessId = ProcessId(1);
    const LINEAGE: Lineage = Lineage { founded: Slot(9), founder: ProcessId(3) };

    fn me() -> MemberInfo {
        MemberInfo {
            host: Some(Host { boot: 1, namespace: 2, pid: 3, started: 4 }),
            vote_key: Some(VoteSecret::new([8; 32]).key()),
            ..MemberInfo::new(ProcessId(2), ([10, 0, 0, 5], 7400).into())
        }
    }

    #[test]
    fn a_claim_is_proven_by_the_secret_of_its_voter_alone() {
        let key = SECRET.key();
        let claim = VoteClaim::new(&SECRET, VOTER, LINEAGE, &me());
        assert!(claim.is_proven(&key, LINEAGE, &me()));
        assert_eq!(claim, VoteClaim::new(&SECRET, VOTER, LINEAGE, &me()), "it takes no randomness");
        let other = VoteSecret::new([9; 32]);
        assert!(!VoteClaim::new(&other, VOTER, LINEAGE, &me()).is_proven(&key, LINEAGE, &me()));
        assert!(!claim.is_proven(&other.key(), LINEAGE, &me()));
        // A key that is not a point of the curve, or one that any signature fits.
        for key in [[0; 32], [0xff; 32], [2; 32]].map(VoteKey::new) {
            assert!(!claim.is_proven(&key, LINEAGE, &me()));
        }
        let zero = VoteClaim { voter: VOTER, proof: VoteProof::new([[0; 32]; 2]) };
        assert!(!zero.is_proven(&VoteKey::new([0; 32]), LINEAGE, &me()));
        let key_as_proof = VoteProof::new([*key.as_bytes(); 2]);
        assert!(!VoteClaim { voter: VOTER, proof: key_as_proof }.is_proven(&key, LINEAGE, &me()));
    }

    #[test]
    fn a_claim_is_of_one_process_to_one_vote_of_one_lineage() {
        let key = SECRET.key();
        let claim = VoteClaim::new(&SECRET, VOTER, LINEAGE, &me());
        let host = me().host.map(|host| Host { pid: host.pid + 1, ..host });
        for other in [
            MemberInfo { process: ProcessId(4), ..me() },
            MemberInfo { addr: ([10, 0, 0, 6], 7400).into(), ..me() },
            MemberInfo { addr: ([10, 0, 0, 5], 7401).into(), ..me() },
            MemberInfo { host, ..me() },
            MemberInfo { host: None, ..me() },
            MemberInfo { vote_key: Some(key), ..me() },
            MemberInfo { vote_key: None, ..me() },
            MemberInfo { static_key: Some(StaticPublicKey([8; 32])), ..me() },
            MemberInfo { serves_sessions: true, ..me() },
            MemberInfo { versions: Versions { lowest: 11, highest: 12 }, ..me() },
            MemberInfo { name: MemberName::new("b").unwrap(), ..me() },
        ] {
            assert!(!claim.is_proven(&key, LINEAGE, &other), "{other:?}");
        }
        let other_vote = VoteClaim { voter: ProcessId(5), ..claim.clone() };
        assert!(!other_vote.is_proven(&key, LINEAGE, &me()));
        for other in
            [Lineage { founded: Slot(10), ..LINEAGE }, Lineage { founder: ProcessId(4), ..LINEAGE }]
        {
            assert!(!claim.is_proven(&key, other, &me()));
        }
    }
}
