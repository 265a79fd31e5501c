//! `EnginePhase`: how far an engine is, and how it has left.

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
    /// How often it has changed.
    pub(super) changes: u64,
}

/// How it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineClosed {
    /// The others know, or there are none.
    Heard,
    /// No member confirmed it; the others wait for the member's lease to end.
    Unheard,
    /// The runtime under it ended, or the core broke.
    Broken,
    /// The cluster's slots are more than an hour above this machine's clock.
    WrongClock {
        /// How far above.
        ahead: Duration,
    },
}
