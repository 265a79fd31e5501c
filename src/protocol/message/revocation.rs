//! Revocations: the question or the order to a holder's member, and its answer.

use crate::protocol::id::Metadata;
use serde::{Deserialize, Serialize};

/// A question or an order to a holder's member about its hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationDemand {
    /// The holder is told that the hold is requested back, with the requester's metadata.
    Ask(Metadata),
    /// The hold ends, if its holder has been told.
    Take,
    /// The hold ends, revocable or not, if the member allows it.
    Force(ForceOrder),
}

/// An operator's order to end a hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ForceOrder {
    /// The operator, by its own word.
    pub operator: Metadata,
    /// The reason.
    pub reason: Metadata,
}

/// The answer of a holder's member to a revocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationAnswer {
    /// The holder has been told.
    HolderTold,
    /// The hold is revoked.
    Revoked,
    /// The hold is not revoked: the holder has not been told yet.
    HolderNotTold,
    /// The hold is not revocable.
    NotRevocable,
    /// The member allows no forced revokes.
    ForceNotAllowed,
    /// The member knows no such hold, but has the same lock with another token or waits for it. The
    /// requester queries again in a while.
    TryAgain,
    /// There is no such hold any more.
    NotHeld,
}
