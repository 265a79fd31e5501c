//! Recipes: what programs make of locks, each a type of its own on the one kind of queue. None has a message of its own.

mod leader_latch;
mod leader_selector;
mod leadership;
mod owner;

pub use leader_latch::{
    AwaitLeadershipError, CloseError, CloseMode, LatchEvent, LatchEvents, LatchState, LeaderLatch, StartError,
};
pub use leader_selector::{LeaderSelector, SelectorError};
pub use leadership::{Participant, Participants, Term, TermEnd};
pub use owner::Owner;
