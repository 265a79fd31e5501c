//! `Waiting`: the seeds or members that a joining process waits for.

use crate::protocol::SeedReport;
use crate::runtime::engine::Engine;
use crate::runtime::net::transport::Transport;
use std::fmt;

/// The most seeds that the line names.
const MOST_SEEDS: usize = 8;

/// The seeds or members that a joining process waits for, in words.
pub(super) struct Waiting {
    /// The number of founders that the process expects at least.
    expected: usize,
    /// The number of processes that also seek, this one included.
    founders: usize,
    /// The number of seeds.
    all: usize,
    /// Seeds that have not answered, with the reasons.
    missing: Vec<String>,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Waiting { expected, founders, all, missing } = self;
        let named = match missing.get(..MOST_SEEDS) {
            Some(some) if missing.len() > MOST_SEEDS => format!("{}, ...", some.join(", ")),
            _ => missing.join(", "),
        };
        let waited = missing.len();
        match expected.saturating_sub(*founders) {
            // The process has found its cluster, and asks no seeds any more.
            0 if *all == 0 => f.write_str("waiting for an elder with a quorum"),
            0 if waited == 0 => {
                write!(f, "all {all} seeds answer, waiting for an elder with a quorum")
            }
            0 => write!(f, "waiting for {waited} of {all} seeds: {named}"),
            more if waited == 0 => {
                write!(f, "waiting for {more} of {expected} members: no more seeds are known")
            }
            more => write!(f, "waiting for {more} of {expected} members, of these seeds: {named}"),
        }
    }
}

impl Waiting {
    /// The seeds that have not answered by now, with the reasons as far as they are known.
    pub(super) fn of(engine: &Engine, transport: &Transport) -> Waiting {
        let SeedReport { seeds, founders, expected, hears_of_cluster } = engine.seed_report();
        let me = transport.advertised();
        let missing = seeds.iter().filter(|(addr, answer)| answer.is_none() && *addr != me);
        let missing = missing.map(|(addr, _)| match transport.last_error(*addr) {
            Some(error) => format!("{addr} ({error})"),
            None => format!("{addr} (no answer)"),
        });
        let unresolved = transport.unresolved();
        let unknown = unresolved.iter().map(|(name, error)| format!("{name} ({error})"));
        let all = seeds.len() + unresolved.len();
        let missing = missing.chain(unknown).collect();
        let founders = if hears_of_cluster { expected } else { founders };
        Waiting { expected, founders, all, missing }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_of_a_join_names_the_number_of_members_awaited() {
        let text = |expected, founders, missing: &[&str]| {
            let missing: Vec<String> = missing.iter().map(ToString::to_string).collect();
            Waiting { expected, founders, all: 1 + missing.len(), missing }.to_string()
        };
        assert_eq!(text(3, 1, &[]), "waiting for 2 of 3 members: no more seeds are known");
        assert_eq!(text(3, 1, &["a:1"]), "waiting for 2 of 3 members, of these seeds: a:1");
        assert_eq!(text(2, 2, &["a:1", "b:1"]), "waiting for 2 of 3 seeds: a:1, b:1");
        assert_eq!(text(1, 1, &[]), "all 1 seeds answer, waiting for an elder with a quorum");
        let found = Waiting { expected: 0, founders: 0, all: 0, missing: Vec::new() };
        assert_eq!(found.to_string(), "waiting for an elder with a quorum");
        assert!(text(1, 1, &["a"; 8]).ends_with("9 seeds: a, a, a, a, a, a, a, a"));
        assert!(text(1, 1, &["a"; 9]).ends_with("10 seeds: a, a, a, a, a, a, a, a, ..."));
    }
}
