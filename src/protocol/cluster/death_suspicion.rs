//! `DeathSuspicion`: the statements of this member and of other members about a process that
//! refuses connections.

use crate::protocol::id::ProcessId;
use crate::protocol::time::Time;
use std::collections::BTreeSet;

/// A suspected member: it refuses connections, or other members report that.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct DeathSuspicion {
    /// The time at which the suspicion began.
    pub(super) since: Time,
    /// Whether the process refuses this member.
    pub(super) refused: bool,
    /// Whether the process refuses this member, or this member does not reach it.
    pub(super) unreached: bool,
    /// The other members that report the process.
    pub(super) witnesses: BTreeSet<ProcessId>,
    /// The time at which the report is sent, and judged, again.
    pub(super) again_at: Time,
}
