//! The network of one member: its TCP port, its UDP port, and the tasks that serve them.
//!
//! `transport` binds and closes. `transport_state` is the state that all tasks share: the present
//! [incarnation](incarnation::Incarnation) and its peers. A `peer` is an address with queues of
//! frames. Its task is in `dialer`, which dials through `tcp` when frames wait and no connection
//! leads to their process. `connection_reader` reads a connection and hands its packets to the
//! engine. `udp` runs the gossip machine. `query` asks a member for its status, and `status_answer`
//! answers. `admission`, `begun_frames`, `rate_limit` and `stranger_budget` bound strangers, and
//! `security` seals what a cluster with a key sends.

/// A planted break of the network. Says whether it is planted, or runs the statement after `=>` if
/// it is. Only builds with `--cfg elderlock_mutants` have any.
macro_rules! planted {
    ($name:ident => $($statement:tt)+) => {
        #[cfg(elderlock_mutants)]
        if planted!($name) {
            $($statement)+;
        }
    };
    ($name:ident) => {{
        #[cfg(elderlock_mutants)]
        let planted = {
            use $crate::runtime::net::mutant::{NetMutant, is_planted};
            is_planted(NetMutant::$name)
        };
        #[cfg(not(elderlock_mutants))]
        let planted = false;
        planted
    }};
}

mod admission;
mod begun_frames;
mod connection_reader;
mod connection_writer;
pub(crate) mod counters;
pub(crate) mod death_watch;
mod dial_error;
mod dialer;
mod hello;
mod incarnation;
#[cfg(elderlock_mutants)]
mod mutant;
mod operator;
mod orders;
mod peer;
mod poll_on_wake;
mod query;
pub(crate) mod rate_limit;
mod reception;
mod resolve;
#[cfg(feature = "secure")]
mod security;
#[cfg(not(feature = "secure"))]
#[path = "security_absent.rs"]
mod security;
pub(crate) mod session;
mod status_answer;
mod stranger_budget;
mod tcp;
pub(crate) mod timeouts;
pub(crate) mod transport;
mod transport_state;
mod udp;
mod write_half;

pub(crate) use connection_reader::ConnectionReader;
#[cfg(feature = "secure")]
pub use operator::give_order_with;
pub use operator::{OrderReports, give_order};
pub use query::{QueryError, query_status, query_status_of};
#[cfg(feature = "secure")]
pub use query::{query_status_of_with, query_status_with};
pub use reception::MAX_BUSY_POLL;
#[cfg(feature = "secure")]
pub use session::hold_through_with;
pub use session::{SessionEnd, SessionError, SessionGuard, hold_through};
