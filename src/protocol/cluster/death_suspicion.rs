//! `DeathSuspicion`: the statements of this member and of others about a process that refuses
//! connections.

use crate::protocol::id::ProcessId;
use crate::protocol::time::Time;
use std::collections::BTreeSet;

/// A member that refuses connections, or that others report as refusing.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct DeathSuspicion {
    /// When the suspicion began.
    pub(super) since: Time,
    /// Whether this member is refused.
    pub(super) refused: bool,
    /// Whether it is refused, or does not reach the process.
    pub(super) unreached: bool,
    /// The other members that report it.
    pub(super) witnesses: BTreeSet<ProcessId>,
    /// When the report is sent, and judged, again.
    pub(super) again_at: Time,
}
