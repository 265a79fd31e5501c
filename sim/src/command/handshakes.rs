//! `handshakes`: handshakes, records and sealed gossip on an attacker's network, on all cores of
//! the machine.

use super::lock;
use elderlock_sim::handshakes::{self, ACTS, HandshakeCounts, HandshakeViolation};
use elderlock_sim::seeds::on_all_cores;
use std::collections::BTreeMap;
use std::process::ExitCode;
use std::sync::Mutex;
use std::time::Instant;

/// The number of seeds from which on all acts must have occurred.
const TELLING_SEEDS: u64 = 200;
/// Seeds spent on one planted break at most.
#[cfg(elderlock_mutants)]
const HUNT: u64 = 600;

/// The options of `handshakes`.
#[derive(Debug, clap::Args)]
pub(crate) struct HandshakeOptions {
    /// How many seeds.
    #[arg(long, default_value_t = 500, value_parser = clap::value_parser!(u64).range(1..))]
    seeds: u64,
    /// The first seed.
    #[arg(long, default_value_t = 1)]
    from: u64,
    /// Plant breaks and check that each is found. Needs RUSTFLAGS="--cfg elderlock_mutants".
    #[arg(long)]
    mutants: bool,
}

pub(crate) fn run(options: &HandshakeOptions) -> ExitCode {
    if options.mutants {
        return hunt_all(options);
    }
    let started = Instant::now();
    let counts: Mutex<HandshakeCounts> = Mutex::default();
    let broken: Mutex<BTreeMap<u64, HandshakeViolation>> = Mutex::default();
    on_all_cores(options.from, options.seeds, |seed| {
        match handshakes::run(seed) {
            Ok(run) => {
                let mut counts = lock(&counts);
                run.into_iter().for_each(|(act, count)| {
                    *counts.entry(act).or_default() += count;
                });
            }
            Err(violation) => {
                lock(&broken).insert(seed, violation);
            }
        }
        !lock(&broken).is_empty()
    });
    let (counts, broken) = (lock(&counts), lock(&broken));
    let took = started.elapsed().as_secs_f64();
    if let Some((seed, HandshakeViolation { invariant, what })) = broken.first_key_value() {
        println!("seed {seed} breaks {invariant}: {what}");
        println!("  again: elderlock-sim handshakes --seeds 1 --from {seed}");
        return ExitCode::FAILURE;
    }
    println!("{} seeds from {} on, without a break, in {took:.1} s", options.seeds, options.from);
    for (act, count) in counts.iter() {
        println!("  {act:<20} {count:>8}");
    }
    let undone: Vec<&str> = ACTS.into_iter().filter(|act| !counts.contains_key(act)).collect();
    if options.seeds >= TELLING_SEEDS && !undone.is_empty() {
        println!("these never happened: {}", undone.join(", "));
        return ExitCode::FAILURE;
    }
    ExitCode::SUCCESS
}

#[cfg(not(elderlock_mutants))]
fn hunt_all(_: &HandshakeOptions) -> ExitCode {
    eprintln!(
        "planted breaks exist only in a build of their own: RUSTFLAGS='--cfg elderlock_mutants'"
    );
    ExitCode::from(2)
}

#[cfg(elderlock_mutants)]
fn hunt_all(options: &HandshakeOptions) -> ExitCode {
    use elderlock::wire::secure::mutant::{KeyMutant, plant};
    let mut missed = 0;
    println!("{:<20} {:>5}  found by", "break", "seeds");
    for mutant in KeyMutant::ALL {
        let is_found = |seed: &u64| {
            plant(Some(mutant));
            let found = handshakes::run(*seed).err();
            plant(None);
            // A seed that breaks without the planted break proves nothing about that break.
            found.filter(|_| handshakes::run(*seed).is_ok())
        };
        let mut seeds = options.from..options.from.saturating_add(HUNT);
        let found = seeds.find_map(|seed| Some((seed, is_found(&seed)?)));
        let name = format!("{mutant:?}");
        match found {
            Some((seed, violation)) => {
                println!("{name:<20} {:>5}  {}", seed - options.from + 1, violation.invariant);
            }
            None => {
                println!("{name:<20} {HUNT:>5}  not found");
                missed += 1;
            }
        }
    }
    println!("{} of {} found", KeyMutant::ALL.len() - missed, KeyMutant::ALL.len());
    if missed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
