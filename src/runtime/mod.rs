//! The runtime drives the core: it waits on sockets, clock and tasks, steps the core and carries
//! out its instructions.

/// A planted break: whether it is planted, or after `=>` a statement that is run if it is. In a
/// build for use none ever is, and the code is as if this were not there.
macro_rules! planted {
    ($name:ident => $($statement:tt)+) => {
        #[cfg(all(elderlock_mutants, feature = "simulated"))]
        if planted!($name) {
            $($statement)+;
        }
    };
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
pub(crate) mod inbox;
pub(crate) mod local_grants;
pub(crate) mod member_clock;
#[cfg(feature = "simulated")]
pub(crate) mod mutant;
pub(crate) mod net;
pub(crate) mod network;
pub(crate) mod observed_hold;
pub(crate) mod process_id;
#[cfg(feature = "simulated")]
pub(crate) mod simulated;
pub(crate) mod sync;
pub mod telemetry;
pub(crate) mod vote_writer;

pub use disk::DataDirError;
pub use net::{OrderReports, QueryError, give_order, query_status};
pub use net::{SessionEnd, SessionError, SessionGuard, hold_through};
#[cfg(feature = "secure")]
pub use net::{give_order_with, hold_through_with, query_status_with};
