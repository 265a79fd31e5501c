//! `LockRequest`: a request for locks, and the reports of its hold or wait.

use crate::protocol::content::WRITE_BYTES;
use crate::protocol::id::{MAX_VALUE, Metadata, OwnerId, RequestId, Ticket, Token, Want};
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// A request for locks. The same value goes from the call to the grantor's table, and is in each
/// report.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct LockRequest {
    /// The locks, or the suspension.
    pub want: Want,
    /// The owner.
    pub owner: OwnerId,
    /// Whether other members may request the release of the hold.
    pub revocable: bool,
    /// The requester's metadata.
    pub metadata: Metadata,
}

impl LockRequest {
    /// The approximate bytes of the request in a message.
    pub(crate) fn weight(&self) -> usize {
        self.want.weight() + self.metadata.as_bytes().len()
    }

    /// The approximate bytes of the request's hold or wait in a chunk.
    pub(crate) fn entry_weight(&self) -> usize {
        entry_weight(&self.want, self.metadata.as_bytes().len())
    }

    /// The most bytes, approximately, that the request makes a grantor store, now or later.
    pub(crate) fn kept_weight(&self) -> usize {
        kept_weight(&self.want, self.metadata.as_bytes().len())
    }
}

/// The [weight](LockRequest::entry_weight) of a request with `metadata` bytes of metadata.
fn entry_weight(want: &Want, metadata: usize) -> usize {
    96 + want.weight() + metadata
}

/// The [weight](LockRequest::kept_weight) of a request with `metadata` bytes of metadata. A member
/// may open an object with an empty value and write a long one into it. So an open object counts
/// with the longest value from the start, and no write needs to be refused.
pub(crate) fn kept_weight(want: &Want, metadata: usize) -> usize {
    let written = match want {
        Want::Open(opening) => {
            WRITE_BYTES + MAX_VALUE.saturating_sub(opening.value().as_bytes().len())
        }
        _ => 0,
    };
    written + entry_weight(want, metadata)
}

/// A hold as its member reports it to a recovering grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct HoldReport {
    /// The number of the request that was granted.
    pub request: RequestId,
    /// The request itself.
    pub lock: LockRequest,
    /// The token of the grant; of a batch, that of its first lock.
    pub token: Token,
    /// The time for which the request has held.
    pub held_for: Duration,
}

/// A wait as its member reports it to a recovering grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
pub struct WaitReport {
    /// The number of the request.
    pub request: RequestId,
    /// The request itself.
    pub lock: LockRequest,
    /// The position of the wait, if the grantor acknowledged one.
    pub ticket: Option<Ticket>,
}
