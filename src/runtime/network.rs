//! `Network` and `Outbox`: the way from the engine to other members.

use super::net::ConnectionReader;
use super::net::counters::Counters;
use super::process_id::draw_process;
use crate::protocol::{MemberInfo, Packet, ProcessId, StaticPublicKey, View};
use rand::rngs::SysError;
use std::net::SocketAddr;
use std::sync::Arc;

/// The place to which the engine pushes packets. It must not block and must not call back into the
/// engine. The engine calls it under its lock, so that packets leave in the order in which the core
/// sent them.
pub(crate) trait Outbox: Send + Sync {
    /// Queues `packet` for `to`, to be dropped if another process than `process` answers there. The
    /// packet leaves at [`Network::flush`] at the latest.
    fn send(&self, to: SocketAddr, process: Option<ProcessId>, packet: Packet);
}

/// A network as the engine uses it. All calls but [`flush`](Network::flush) and
/// [`counters`](Network::counters) are made under the engine's lock, as [`Outbox::send`] is.
pub(crate) trait Network: Outbox {
    /// Draws the process id of the next incarnation. With a cluster key a fresh static key proves
    /// it.
    fn draw_identity(&self) -> Result<(ProcessId, Option<StaticPublicKey>), SysError> {
        Ok((draw_process()?, None))
    }

    /// Notes the view that the member has installed.
    fn installed(&self, view: &View) {
        let _ = view;
    }

    /// Gives this process a new identity. Called before the first packet of the new incarnation.
    fn reborn(&self, me: MemberInfo) {
        let _ = me;
    }

    /// Tells a member that does not need to know it that this one leaves, for that member's log. It
    /// may be lost. A simulated network has no such log.
    fn farewell(&self, to: &MemberInfo) {
        let _ = to;
    }

    /// Counts a process that claimed the vote of a member without a proof.
    fn claim_refused(&self) {}

    /// Counts a member of another lineage that greeted or answered this one.
    fn heard_other_lineage(&self) {}

    /// Notes that the incarnation is in a view, with a running lease.
    fn joined(&self) {}

    /// The present counts. A network that counts nothing has only zeros.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Sends the earlier messages: at once if `is_urgent`, since a caller waits, else with later
    /// ones. Never blocks. Called after each turn that sent a message, without the engine's lock.
    /// Returns the connection on which the answer arrives, if all of it was written to one
    /// connection.
    fn flush(&self, is_urgent: bool) -> Option<Arc<ConnectionReader>> {
        let _ = is_urgent;
        None
    }
}
