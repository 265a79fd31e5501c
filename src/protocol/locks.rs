//! Locks: the elder's registry of services, the grantors with their tables, and the side that asks.

pub(super) mod client;
pub(super) mod dealer;
pub(super) mod grantor;
pub(super) mod registry;
pub(super) mod table;
