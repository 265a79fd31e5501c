//! `OpenObject`: an object that a lock client has open.

use crate::protocol::content::Content;
use crate::protocol::id::RequestId;
use std::collections::BTreeSet;

/// The state of an object that this member has open, or is about to open.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct OpenObject {
    /// The requests that have the object open, or wait for that.
    pub(super) opens: BTreeSet<RequestId>,
    /// The number of requests that have it open.
    pub(super) granted: usize,
    pub(super) content: Option<Content>,
    /// The write that is on its way, or waits for a grantor.
    pub(super) writing: Option<RequestId>,
    /// The writes that come after that one.
    pub(super) writes: BTreeSet<RequestId>,
}
