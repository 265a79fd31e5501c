//! Membership: views and how they are chosen, leases, votes, and the elder's side of all three.
//!
//! `locks.rs` has the other side of a member.

pub(super) mod decision;
pub(super) mod discovery;
pub(super) mod durability;
pub(super) mod elder;
pub(super) mod lease;
pub(super) mod view;
pub(super) mod vote_successor;
