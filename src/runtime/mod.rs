//! The runtime drives the core: it waits on sockets, clock and tasks, steps the core and carries
//! out its instructions.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `engine.rs`, `engine/state.rs` | `Engine`: the lock around the core; its state |
//! | `engine/turn.rs`, `engine/requests.rs` | one turn of the engine; requests and releases |
//! | `engine/timer_task.rs` | the task that wakes the engine in time |
//! | `engine/phase.rs` | how far the engine is, and how it has left |
//! | `engine/alarms.rs`, `engine/sleep.rs` | timers of calls; a wait for one |
//! | `engine/deferred.rs` | work for the next turn |
//! | `engine/event_readers.rs`, `engine/subscriptions.rs` | the readers of events; how events reach them |
//! | `engine/session_count.rs`, `engine/counted_session.rs` | locks that a member holds for programs |
//! | `local_grants.rs` | free locks without a turn of the engine |
//! | `hold_cell.rs`, `observed_hold.rs` | the part of a hold for guards; simulated holds |
//! | `application_code.rs` | calls of wakers, log subscribers and recorders, which may panic |
//! | `sync.rs` | locks and atomics of the local path, for shuttle too |
//! | `clock.rs`, `clock_watch.rs`, `member_clock.rs` | the clocks, and a watch over their rates |
//! | `disk.rs`, `vote_writer.rs` | the data directory, and the thread that writes it |
//! | `process_id.rs`, `fork_guard.rs` | process ids; the check for forked copies |
//! | `inbox.rs`, `network.rs` | the ways from the network to the engine and back |
//! | `telemetry.rs` | logs and measurements |
//! | `telemetry/member_log.rs` | the log of a member |
//! | `telemetry/measured.rs`, `telemetry/unmeasured.rs` | metrics, and their absence |
//! | `simulated.rs` | the replacements for the machine in a simulation |
//! | `mutant.rs` | planted breaks of runtime, service and recipes |
//! | `net/mod.rs`, `net/transport.rs`, `net/transport_state.rs` | one network for each member |
//! | `net/tcp.rs`, `net/udp.rs` | connections; gossip |
//! | `net/connection_reader.rs`, `net/hello.rs` | reading frames; packets of a handshake |
//! | `net/peer.rs`, `net/dialer.rs` | frames on their way to one address; the task that writes |
//! | `net/peer/queue.rs`, `net/write_half.rs` | the frames that wait there; the right to write |
//! | `net/connection_writer.rs`, `net/dial_error.rs` | a connection to write on; a failed dial |
//! | `net/reception.rs`, `net/incarnation.rs` | state of readers; one identity on the network |
//! | `net/admission.rs`, `net/rate_limit.rs` | bounds of accepted connections; rates |
//! | `net/begun_frames.rs`, `net/stranger_budget.rs` | bytes of begun frames; bytes for strangers |
//! | `net/security.rs`, `net/security_absent.rs` | the cluster key at work, and its absence |
//! | `net/death_watch.rs` | vouched death: watching processes on the same host |
//! | `net/resolve.rs`, `net/timeouts.rs` | seeds and host names; times of a connection |
//! | `net/counters.rs`, `net/poll_on_wake.rs` | counters; a future that is polled on its wake |
//! | `net/query.rs`, `net/operator.rs`, `net/session.rs` | status, orders and locks for programs |
//! | `net/orders.rs` | orders, at the member that carries them out |
//! | `net/status_answer.rs` | answers to questions for the status |

/// A planted break. Says whether it is planted, or runs the statement after `=>` if it is. In a
/// build for use no break is planted, and the macro adds no code.
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

pub(crate) mod application_code;
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
pub use net::{MAX_BUSY_POLL, OrderReports, QueryError, give_order, query_status, query_status_of};
pub use net::{SessionEnd, SessionError, SessionGuard, hold_through};
#[cfg(feature = "secure")]
pub use net::{give_order_with, hold_through_with, query_status_of_with, query_status_with};
