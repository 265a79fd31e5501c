//! `EnginePhase`: how far an engine is in joining and leaving.

use std::time::Duration;

/// How far the engine is, for callers that wait until it has joined or left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EnginePhase {
    /// The member was in a view, with a running lease, at least once in this incarnation.
    pub(crate) ready: bool,
    /// Set when the engine has left, for any reason.
    pub(crate) closed: Option<EngineClosed>,
    /// The network is shut down, too: the port is free.
    pub(crate) stopped: bool,
    /// The number of changes of the phase.
    pub(super) changes: u64,
}

/// How the engine has left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineClosed {
    /// The other members know that this member left, or there are none.
    Heard,
    /// No member confirmed the goodbye; the others wait for the member's lease to end.
    Unheard,
    /// The engine's runtime has ended, or the core has panicked.
    Broken,
    /// The cluster's slots are more than an hour above this machine's clock.
    WrongClock {
        /// How far the slots are above the clock.
        ahead: Duration,
    },
    /// The start was forced, and a member of a cluster with an elder answered.
    ForceRefused,
}
