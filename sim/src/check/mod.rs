//! Every way that a small World can go, with stateright. The [`World`](crate::World), the steps and
//! the invariants are the same as everywhere else. Instead of chance there is every order of
//! packets, timers, clients and faults within the bounds of a [`Scope`].
//!
//! A scope begins at rest, and time stands still but for a few leaps. Each leap may come at any
//! moment, or only at rest if the scope says so. `sim/README.md` lists the cases that this leaves
//! out.

mod future;
mod hunt;
mod scope;
pub mod scopes;

pub use hunt::{Counterexample, ScopeModel, SearchLimits, SearchResult};
pub use scope::{DeliveryOrder, Move, PacketPredicate, Scope, ScopeState, TimeLeaps};
