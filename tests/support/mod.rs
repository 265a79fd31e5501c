//! Members as real operating-system processes: the test binary starts itself again, see
//! `tests/README.md`.
#![allow(dead_code, reason = "each test file uses a part of it")]

pub(crate) mod child;
pub(crate) mod cluster;
#[cfg(target_os = "linux")]
pub(crate) mod fork;
pub(crate) mod gauge;
#[cfg(feature = "secure")]
pub(crate) mod keys;
#[cfg(not(feature = "secure"))]
#[path = "keys_absent.rs"]
pub(crate) mod keys;
pub(crate) mod leaders;
pub(crate) mod local;
pub(crate) mod network;
pub(crate) mod process;
pub(crate) mod rng;
pub(crate) mod status;
pub(crate) mod wait;

pub(crate) use local::{leases, ports};
