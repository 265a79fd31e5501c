//! `ReceivedRequest`: a request for locks as it arrives at a grantor.

use crate::protocol::id::{ProcessId, RequestId};
use crate::protocol::message::LockRequest;

/// A request as its member sent it.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct ReceivedRequest {
    pub(crate) from: ProcessId,
    pub(crate) request: RequestId,
    pub(crate) lock: LockRequest,
    pub(crate) only_if_free: bool,
    /// The number of tokens beyond that of the grant that the requester wants, to keep the lock.
    pub(crate) keep: u32,
}
