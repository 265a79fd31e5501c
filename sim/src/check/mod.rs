//! Every way that a small World can go, with stateright: the same [`World`](crate::World), steps
//! and invariants as everywhere else, and instead of chance every order of packets, timers, clients
//! and faults within the bounds of a [`Scope`].
//!
//! A scope begins at rest, and time stands still but for a few leaps, each of which may come at any
//! moment (or only at rest, if the scope says so). `sim/README.md` lists the cases that this leaves
//! out.

mod future;
mod hunt;
mod scope;
pub mod scopes;

pub use hunt::{Counterexample, ScopeModel, SearchLimits, SearchResult};
pub use scope::{DeliveryOrder, Move, Scope, ScopeState, TimeLeaps, Which};
