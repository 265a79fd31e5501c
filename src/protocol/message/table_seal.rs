//! `TableSeal`: the sizes and the digest of a table that was copied.

use serde::{Deserialize, Serialize};

/// The sizes and the digest of a table. A copy with another seal is not that table.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct TableSeal {
    /// The number of requests that hold.
    pub holds: u64,
    /// The number of requests that wait.
    pub waits: u64,
    /// The number of requests that have an object open.
    pub opens: u64,
    /// The number of objects.
    pub objects: u64,
    /// The number of held names.
    pub names: u64,
    /// The number of names for which requests wait.
    pub queues: u64,
    /// The sum of a hash of each request, with its token or ticket. It does not depend on the
    /// order of the requests.
    pub sum: u64,
}
