//! Simulated clusters of elderlock's core: several [`Node`](elderlock::protocol::Node)s in virtual
//! time.
//!
//! - [`World`] is the cluster: cores, clocks, network, clients and the resource that the locks
//!   protect.
//! - A World tells each [`world::Observation`] to its [`world::Observer`]. `observers` has all
//!   observers: the recorder, the counter of [`rare`] states and the [`invariants`].
//! - [`invariants`] are the properties that must always hold; they are checked after every step.
//! - Scenario tests (`tests/`) show one scenario each. [`chaos`] draws runs from a seed and heals
//!   at the end, and then [`liveness`] demands that everything works.
//!
//! The seed is the only source of chance. The fate of a packet is a hash of the seed, its sender,
//! its receiver and its number. Clients and faults are drawn from streams of their own. So the same
//! seed is the same run, and taking one fault out leaves the luck of the rest as it was.
#![forbid(unsafe_code)]

pub mod chaos;
pub mod check;
pub mod clock;
pub mod fault;
pub mod gossip;
pub mod handshakes;
pub mod history;
pub mod history_checker;
pub mod invariants;
pub mod kind;
pub mod limits;
pub mod liveness;
pub mod log;
pub mod meter;
mod observers;
#[cfg(elderlock_mutants)]
pub mod planted;
pub mod quorum;
pub mod rare;
#[cfg(feature = "recipes")]
pub mod recipes;
pub mod record;
mod recorder;
pub mod report;
pub mod rule;
pub mod script;
pub mod shrink;
pub mod site;
pub mod step;
pub mod store;
mod stranger;
pub mod stream;
pub mod tape;
pub mod times;
pub mod transcript;
mod verbs;
pub mod world;

pub use elderlock_testing::simulation::{chance, network, reduce, seeds};
pub use history::Ask;
pub use world::World;
