//! The simulation below the public interface: chance, network, tasks, and members at their sites.
//! `elderlock-sim` uses the same simulation. This module is outside of semver.

pub mod chance;
#[cfg(feature = "tokio")]
pub mod faults;
pub mod network;
pub mod reduce;
pub mod seeds;
#[cfg(feature = "tokio")]
pub mod sites;
#[cfg(feature = "tokio")]
pub mod tasks;
