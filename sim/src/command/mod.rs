//! The subcommands.

pub(crate) mod chaos;
pub(crate) mod check;
pub(crate) mod judge;
pub(crate) mod mutants;
pub(crate) mod recipes;
pub(crate) mod replay;
pub(crate) mod report;
pub(crate) mod tape;
mod verdict;
