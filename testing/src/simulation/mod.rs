//! The simulation below the public interface: chance, network, tasks, and members on their sites.
//! `elderlock-sim` drives the same one. Outside of semver.

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
