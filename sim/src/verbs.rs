//! The vocabulary of scenarios: calls of clients, faults, rules for packets, and questions.

mod calls;
mod faults;
mod packets;
mod questions;
