//! Tests of programs that use [elderlock](https://docs.rs/elderlock): whole members in one process
//! and in simulated time. They can cause every loss that a lock may have.
//!
//! - [`cluster`] runs a test with some members. The test crashes and stops their processes, cuts
//!   and slows their network, moves grantors, and ends holds for any reason.
//! - [`chaos()`] runs a test with many seeds. Each seed draws faults. The first failure is shrunk
//!   to the faults that it needs, told as a story, and drawn on a page of HTML.
//!
//! Equal seeds give equal runs. The members are those that ship: only sockets, clocks and chance
//! are simulated. `docs/guide/testing.md` of the repository is the guide.
//!
//! The clocks of the members run at the same rate. The simulation has no gossip, no data directory
//! and no cluster key: these have tests of their own.
//!
//! # Features
//! - `tokio` (default): everything that is documented here.
#![forbid(unsafe_code)]
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(hidden)]
pub mod drawing;
#[doc(hidden)]
pub mod simulation;

#[cfg(feature = "tokio")]
mod chaos;
#[cfg(feature = "tokio")]
mod cluster;
#[cfg(feature = "tokio")]
mod cluster_builder;
#[cfg(feature = "tokio")]
mod fault_plan;
#[cfg(feature = "tokio")]
mod process_task;
#[cfg(feature = "tokio")]
mod quiet;
#[cfg(feature = "tokio")]
mod report;
#[cfg(feature = "tokio")]
mod run;
#[cfg(feature = "tokio")]
mod run_record;
#[cfg(feature = "tokio")]
mod story;
#[cfg(feature = "tokio")]
mod verdict;

#[cfg(feature = "tokio")]
pub use {
    chaos::{Chaos, ChaosFailure, chaos},
    cluster::{Cluster, MoveError},
    cluster_builder::{ClusterBuilder, cluster},
    process_task::{ProcessEnded, ProcessTask},
    verdict::Verdict,
};

/// The code of the guide, as doctests.
#[cfg(all(doctest, feature = "tokio"))]
#[doc = include_str!("../../docs/guide/testing.md")]
struct Guide;
