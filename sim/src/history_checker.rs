//! The history checker: reads the [`Record`] of a run and decides whether the protocol allows it.
//!
//! The history checker knows nothing but the record: not the World, not the cores, and none of the
//! code in [`invariants`](crate::invariants). It therefore repeats none of their mistakes. The
//! invariants check single moments. The history checker sorts the holds of each lock by their
//! tokens and sweeps over the whole run.
//!
//! A call of an ended process is unknown for ever. The call may have been granted, so its grant is
//! neither demanded nor excluded.

mod locks;
mod members;
mod reachability;
mod rest;
mod site_index;
mod tables;

use crate::record::{Entry, Record};
use std::collections::BTreeMap;

/// The invariants that are checked here, by their names in sim/README.md.
pub const NAMES: [&str; 25] = [
    "converges_after_heal",
    "cost_is_bounded",
    "epochs_rise",
    "exclusive_by_lease",
    "fifo_across_failover",
    "holds_survive",
    "last_young_turk_wins",
    "minority_is_silent",
    "no_leaked_hold",
    "no_lost_wakeup",
    "no_resurrected_grant",
    "no_writer_with_reader",
    "one_elder_per_view",
    "one_grantor_per_epoch",
    "one_lineage",
    "one_outcome_per_request",
    "permits_never_exceed_limit",
    "recovered_table_is_the_union",
    "stale_writes_are_refused",
    "suspension_is_exclusive",
    "token_belongs_to_one_hold",
    "tokens_rise",
    "told_before_regrant",
    "values_are_seen_in_order",
    "views_agree",
];

/// A violation in a record.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct RecordViolation {
    /// The time, in true nanoseconds.
    pub at: u64,
    /// The invariant.
    pub invariant: &'static str,
    /// The violation in words.
    pub what: String,
}

/// The result of a check.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Findings {
    /// The violations, the earliest first.
    pub flaws: Vec<RecordViolation>,
    /// How often the premise of each invariant held.
    pub premises: BTreeMap<&'static str, u64>,
}

impl Findings {
    fn premise(&mut self, invariant: &'static str) {
        *self.premises.entry(invariant).or_default() += 1;
    }

    fn flaw(&mut self, invariant: &'static str, at: u64, what: String) {
        self.flaws.push(RecordViolation { at, invariant, what });
    }
}

/// The conditions of the run from the first line of its record.
#[derive(Clone, Copy, Debug)]
struct RunConditions {
    bounded: bool,
    sites: usize,
    error_ppm: u64,
    answer: u64,
    council: usize,
    /// The leases of members and of elders.
    leases: (u64, u64),
    /// Calls of one member may change their order.
    crowded: bool,
}

impl RunConditions {
    /// Returns the time by which a span of any clock within the bound is over.
    fn surely(&self, span: u64) -> u64 {
        let stretched =
            u128::from(span) * 1_000_000 / u128::from(1_000_000 - self.error_ppm.min(900_000));
        // The error counts twice: for the counting clock, and for the clock that it waits for.
        (stretched * u128::from(1_000_000 + self.error_ppm) / 1_000_000) as u64 + 1
    }
}

/// Checks a record. An error means that the text is not a valid record.
pub fn check(record: &Record) -> Result<Findings, String> {
    let Some(Entry::World { bounded, sites, error_ppm, answer, council, leases, crowded, .. }) =
        record.lines.first().map(|line| &line.entry)
    else {
        return Err("the first line does not say what World it is".to_string());
    };
    let conditions = RunConditions {
        bounded: *bounded,
        crowded: *crowded,
        sites: *sites,
        error_ppm: u64::from(*error_ppm),
        answer: *answer,
        council: *council,
        leases: *leases,
    };
    if let Some(two) = record.lines.windows(2).find(|two| two[0].at > two[1].at) {
        return Err(format!("time goes back from {} to {}", two[0].at, two[1].at));
    }
    let mut findings =
        Findings { premises: NAMES.map(|name| (name, 0)).into(), ..Findings::default() };
    members::check(record, &conditions, &mut findings);
    locks::check(record, &conditions, &mut findings)?;
    rest::check(record, &conditions, &mut findings);
    tables::check(record, &conditions, &mut findings);
    reachability::check(record, &conditions, &mut findings);
    findings.flaws.sort();
    Ok(findings)
}
