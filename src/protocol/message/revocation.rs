//! Revocations: the demand to a holder's member, and its answer.

use crate::protocol::id::Metadata;
use serde::{Deserialize, Serialize};

/// A demand to a holder's member about its hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationDemand {
    /// Tells the holder that its release is requested, with the requester's metadata.
    Ask(Metadata),
    /// Ends the hold, if its holder has been told.
    Take,
    /// Ends the hold, revocable or not, if the member allows it.
    Force(ForceOrder),
}

/// An operator's order to end a hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct ForceOrder {
    /// The operator's name, as the operator gave it.
    pub operator: Metadata,
    /// The operator's reason.
    pub reason: Metadata,
}

/// The answer of a holder's member to a revocation.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub enum RevocationAnswer {
    /// The holder has been told.
    HolderTold,
    /// The hold is revoked.
    Revoked,
    /// The hold was not revoked: its holder has not been told yet.
    HolderNotTold,
    /// The hold is not revocable.
    NotRevocable,
    /// The member allows no forced revokes.
    ForceNotAllowed,
    /// The member knows no such hold, but has the lock with another token, or waits for it. The
    /// requester asks again later.
    TryAgain,
    /// The hold no longer exists.
    NotHeld,
}
