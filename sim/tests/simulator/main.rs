//! The tests of the core in the simulator. One program: each of its own would be linked alone, and
//! would leave a processor idle while its longest test runs.

mod chaos;
mod check;
mod deadlocks;
mod deaths;
mod faults;
mod founding;
mod gossip;
mod kept_locks;
mod load;
mod locks;
mod offline;
// Two hundred runs: where `.ci/run` has the optimised build, which is the one with the recipes.
#[cfg(feature = "recipes")]
mod outcomes;
mod rare;
#[cfg(feature = "recipes")]
mod recipes;
mod record;
mod replay;
mod report;
mod revocations;
mod scenes;
mod scripts;
mod sent_messages;
mod services;
mod suspensions;
mod takeover;
mod transfers;
mod vote_successors;
