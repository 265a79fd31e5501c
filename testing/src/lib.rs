//! Whole members of elderlock in simulated time.
#![forbid(unsafe_code)]

#[doc(hidden)]
pub mod simulation;
