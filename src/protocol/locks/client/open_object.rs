//! `OpenObject`: an object that a lock client has open.

use crate::protocol::content::Content;
use crate::protocol::id::RequestId;
use std::collections::BTreeSet;

/// This member's knowledge of an object that it has open, or is about to open.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct OpenObject {
    /// The requests that have it open, or want to.
    pub(super) opens: BTreeSet<RequestId>,
    /// How many of them have it open.
    pub(super) granted: usize,
    pub(super) content: Option<Content>,
    /// The write that is on its way, or waits for a grantor.
    pub(super) writing: Option<RequestId>,
    /// The writes that come after it.
    pub(super) writes: BTreeSet<RequestId>,
}
