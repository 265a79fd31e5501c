//! The parts of `tests/support/mod.rs` that the attacks need. That file requires a feature of the
//! library, which the bench does not have under that name.
#![allow(dead_code, reason = "the tests of the library use the rest")]

#[path = "../../../tests/support/child.rs"]
pub(crate) mod child;
#[path = "../../../tests/support/cluster.rs"]
pub(crate) mod cluster;
#[cfg(target_os = "linux")]
#[path = "../../../tests/support/fork.rs"]
pub(crate) mod fork;
#[path = "../../../tests/support/keys.rs"]
pub(crate) mod keys;
#[path = "../../../tests/support/leases.rs"]
pub(crate) mod leases;
#[path = "../../../tests/support/ports.rs"]
pub(crate) mod ports;
#[path = "../../../tests/support/process.rs"]
pub(crate) mod process;
#[path = "../../../tests/support/rng.rs"]
pub(crate) mod rng;
#[path = "../../../tests/support/status.rs"]
pub(crate) mod status;
#[path = "../../../tests/support/wait.rs"]
pub(crate) mod wait;
