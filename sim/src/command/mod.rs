//! The subcommands.

pub(crate) mod chaos;
pub(crate) mod check;
pub(crate) mod mutants;
