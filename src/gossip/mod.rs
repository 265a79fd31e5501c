//! Reachability of members: SWIM gossip by the crate foca, as a pure state machine.
//!
//! All output here is a hint. foca's view is only eventually consistent, its reports of deaths may
//! be wrong or lost, and no two members need ever agree. Views, leases and fencing are decided in
//! `protocol`, where a hint may start a decision and never is one.
//!
//! [`Swim`] adds the parts that foca leaves to its host:
//! - timers that are never lost (`timers.rs`);
//! - a filter for packets that foca 2.0.0 sends by mistake and that make healthy members change
//!   identity;
//! - endless announcing to the seeds: foca, once alone, does nothing to come back;
//! - hints from a comparison of foca's table with the last reported states, because foca's
//!   notifications leave out changes (a quick restart is only a rename);
//! - limits to the entries that strangers can make it remember.
//!
//! # Files
//!
//! | file | contents |
//! |---|---|
//! | `swim.rs` | `Swim`: the gossip of one member |
//! | `effects.rs` | foca's requests, gathered while it runs |
//! | `identity.rs` | the identity of a member for its gossiping peers |
//! | `timers.rs` | foca's timers |
#![deny(clippy::disallowed_methods, clippy::disallowed_types)]

mod effects;
mod identity;
mod swim;
mod timers;

#[cfg(test)]
mod tests;

pub use identity::SwimId;
pub use swim::{MAX_MEMBERS, MAX_PACKET, Swim, SwimInput, SwimOutput};
