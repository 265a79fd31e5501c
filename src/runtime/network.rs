//! `Network` and `Outbox`: the way from the engine to other members.

use super::net::ConnectionReader;
use super::net::counters::Counters;
use super::process_id::draw_process;
use crate::protocol::{MemberInfo, Packet, ProcessId, StaticPublicKey, View};
use rand::rngs::SysError;
use std::net::SocketAddr;
use std::sync::Arc;

/// The place to which the engine pushes packets. It must not block and must not call back into the
/// engine. It is called under the engine's lock, so that packets leave in the order in which the
/// core sent them.
pub(crate) trait Outbox: Send + Sync {
    /// Queues `packet` for `to`, to be dropped if another process than `process` answers there. It
    /// leaves at [`Network::flush`] at the latest.
    fn send(&self, to: SocketAddr, process: Option<ProcessId>, packet: Packet);
}

/// A network as the engine knows it. All but [`flush`](Network::flush) and
/// [`counters`](Network::counters) is called under the engine's lock, as [`Outbox::send`].
pub(crate) trait Network: Outbox {
    /// The id of the incarnation that begins next. With a cluster key a fresh static key proves it.
    fn draw_identity(&self) -> Result<(ProcessId, Option<StaticPublicKey>), SysError> {
        Ok((draw_process()?, None))
    }

    /// The member has installed this view.
    fn installed(&self, view: &View) {
        let _ = view;
    }

    /// This process has a new identity. Called before the first packet of the new incarnation.
    fn reborn(&self, me: MemberInfo) {
        let _ = me;
    }

    /// A process claimed the vote of a member without a proof.
    fn claim_refused(&self) {}

    /// The incarnation is in a view, with a running lease.
    fn joined(&self) {}

    /// The present counts. A network that counts nothing has only zeros.
    fn counters(&self) -> Counters {
        Counters::default()
    }

    /// Earlier messages leave now if that `is_urgent`, as a caller waits, else with later ones.
    /// Never blocks. Called after each turn that sent a message, without the engine's lock. Returns
    /// where the answer comes, if all of it was written to one connection.
    fn flush(&self, is_urgent: bool) -> Option<Arc<ConnectionReader>> {
        let _ = is_urgent;
        None
    }
}
