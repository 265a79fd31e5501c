//! The shell around the core: sockets, clock, tasks. It waits, steps the core and carries out the
//! core's instructions.

/// Whether a deliberate break is planted. In a build for use none ever is, and the code is as if
/// this were not there.
macro_rules! planted {
    ($name:ident) => {{
        #[cfg(all(elderlock_mutants, feature = "simulated"))]
        let planted =
            $crate::runtime::mutant::is_planted($crate::runtime::mutant::RuntimeMutant::$name);
        #[cfg(not(all(elderlock_mutants, feature = "simulated")))]
        let planted = false;
        planted
    }};
}

pub(crate) use planted;

pub(crate) mod clock;
pub(crate) mod clock_watch;
pub(crate) mod disk;
pub(crate) mod engine;
pub(crate) mod fork_guard;
pub(crate) mod hold_cell;
pub(crate) mod local_grants;
pub(crate) mod member_clock;
#[cfg(feature = "simulated")]
pub(crate) mod mutant;
pub(crate) mod net;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
pub(crate) mod sync;
pub mod telemetry;
pub(crate) mod vote_writer;

pub use disk::DataDirError;
#[cfg(feature = "secure")]
pub use net::query_status_with;
pub use net::{QueryError, query_status};

use crate::protocol::{Input, MemberInfo, Packet, ProcessId, Status, View};
use net::ConnectionReader;
use std::net::SocketAddr;
use std::sync::Arc;

/// Where the engine pushes packets. Must not block and must not call back into the engine. It is
/// called under the engine's lock, so that packets leave in the order in which the core sent them.
pub(crate) trait Outbox: Send + Sync {
    /// Queues `packet` for `to`, to be dropped if another process than `process` answers there. It
    /// leaves at [`Network::flush`] at the latest.
    fn send(&self, to: SocketAddr, process: Option<ProcessId>, packet: Packet);
}

/// A network as the engine knows it. All but [`flush`](Network::flush) is called under the engine's
/// lock, as [`Outbox::send`].
pub(crate) trait Network: Outbox {
    /// The id of the incarnation that begins next. With a cluster key a fresh static key proves it.
    fn draw_process(&self) -> Result<ProcessId, rand::rngs::SysError> {
        engine::draw_process()
    }

    /// The member has installed this view.
    fn installed(&self, view: &View) {
        let _ = view;
    }

    /// This process has a new identity. Called before the first packet of the new incarnation.
    fn reborn(&self, me: MemberInfo) {
        let _ = me;
    }

    /// The incarnation is in a view, with a running lease.
    fn joined(&self) {}

    /// Earlier messages leave now, if a caller is in a `hurry`, and else with later ones. Never
    /// blocks. Called after each turn that sent a message, without the engine's lock. Returns where
    /// the answer comes, if all of it was written to one connection.
    fn flush(&self, hurry: bool) -> Option<Arc<ConnectionReader>> {
        let _ = hurry;
        None
    }
}

/// The network puts the received packets here. Implemented by the engine.
pub(crate) trait Inbox: Send + Sync {
    /// From any thread, at any time; never blocks but for a short lock.
    fn input(&self, input: Input);

    /// The same with packets that came together, in their order. Leaves none behind. Returns
    /// whether they were questions: they were answered, and no caller of this member has waited for
    /// them.
    fn deliver(&self, packets: &mut Vec<Input>) -> bool;

    /// The member's status, for a caller that asks from outside: so many services, and so many
    /// locks in all, and how many more there are. `None` once it is gone.
    fn status(&self, most: usize) -> Option<Status>;
}
