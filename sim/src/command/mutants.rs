//! Runs the chaos driver against each planted defect of the core: one that is not found means that the driver looks
//! away. Only under `RUSTFLAGS="--cfg elderlock_mutants"`.

use std::process::ExitCode;

/// What to hunt.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Only these, by their names.
    names: Vec<String>,
    /// The first seed; chaos begins at 1.
    #[arg(long, default_value_t = 1_000_000)]
    from: u64,
    /// Shrink what was found, and write the steps into this folder, to be told again by `replay --mutant`.
    #[arg(long, value_name = "FOLDER")]
    save: Option<std::path::PathBuf>,
}

#[cfg(not(elderlock_mutants))]
pub(crate) fn run(_: &Options) -> ExitCode {
    eprintln!("mutants exist only under RUSTFLAGS=\"--cfg elderlock_mutants\"");
    ExitCode::from(2)
}

#[cfg(elderlock_mutants)]
pub(crate) fn run(options: &Options) -> ExitCode {
    hunt::run(options)
}

#[cfg(elderlock_mutants)]
mod hunt {
    use elderlock::protocol::mutant::Mutant;
    use elderlock_sim::World;
    use elderlock_sim::chaos::{Plan, run_seed};
    use elderlock_sim::invariants::Break;
    use elderlock_sim::shrink::{save, shrink, shrink_log};
    use std::collections::BTreeMap;
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::sync::{Mutex, MutexGuard, PoisonError};
    use std::time::Instant;

    /// Seeds spent on one mutant at most.
    const SEEDS: u64 = 2_000;
    /// So many have to be found by chaos at least.
    const ENOUGH: usize = 25;

    /// Who has to find a mutant.
    enum By {
        /// Chaos, by one of these invariants. What else it breaks is told, and does not count.
        Chaos(&'static [&'static str]),
        /// A test or a scope of `check`: chaos does not get there within its seeds.
        Story(&'static str),
    }

    /// A lock has two holders, or one that should have none: what comes of leases, votes and ghosts gone wrong.
    const TWO_HOLDERS: &[&str] =
        &["exclusive_by_lease", "told_before_regrant", "holds_survive", "tokens_rise", "minority_is_silent"];
    /// The next grantor does not know what the last one did.
    const BAD_TABLE: &[&str] = &["recovered_table_is_the_union", "fifo_across_failover", "exclusive_by_lease"];
    /// Somebody waits for ever, or holds what nobody has.
    const STUCK: &[&str] = &["no_lost_wakeup", "no_leaked_hold", "recovered_table_is_the_union"];
    /// One number, two views.
    const TWO_VIEWS: &[&str] = &["views_agree", "one_elder_per_view"];

    /// What each must be found by.
    fn by(mutant: Mutant) -> By {
        By::Chaos(match mutant {
            Mutant::SkipOneInRecovery | Mutant::AwaitNoGhosts | Mutant::TakeAnyReport => BAD_TABLE,
            Mutant::ForgetWhatEnded | Mutant::LoseWaiters | Mutant::ReportNoWaits => &["recovered_table_is_the_union"],
            Mutant::LosePlaces | Mutant::NewcomersFirst => &["fifo_across_failover"],
            Mutant::ReportNoWonHold => &["recovered_table_is_the_union", "no_resurrected_grant"],
            Mutant::AcceptOlderEpoch | Mutant::HeedFormerElder => return By::Story("a story: sim/tests/locks.rs"),
            Mutant::ReuseTokens => &["tokens_rise", "token_belongs_to_one_hold"],
            Mutant::DealTwice => &["tokens_rise", "token_belongs_to_one_hold", "one_grantor_per_epoch", "epochs_rise"],
            Mutant::FreeOnHint | Mutant::FreeGhosts => {
                &["exclusive_by_lease", "told_before_regrant", "holds_survive", "fifo_across_failover"]
            }
            Mutant::TellNobodyOfLeaseEnd | Mutant::KeepUnwantedGrant | Mutant::ForgetEarlyDone => STUCK,
            Mutant::LoseInFlight | Mutant::HearTwice => STUCK,
            Mutant::AnswerTwice => &["one_outcome_per_request"],
            Mutant::CallUnheardFree | Mutant::IgnoreHearsay | Mutant::ActInOldView => BAD_TABLE,
            Mutant::GrantWhileSuspended | Mutant::HoldWhileSuspended => TWO_HOLDERS,
            Mutant::LeaseFromReceipt | Mutant::LeaseWithoutEnd | Mutant::RenewWithoutQuorum => TWO_HOLDERS,
            Mutant::RenewCondemned | Mutant::RemoveEarly | Mutant::ForgetEarlierLeases => TWO_HOLDERS,
            Mutant::ForgetGhosts | Mutant::TrustRefused | Mutant::VoteEarly => TWO_HOLDERS,
            Mutant::ForgetPromiseOverView | Mutant::HeirVotesAtOnce => TWO_HOLDERS,
            Mutant::RenewTheDeaf | Mutant::StayThoughExpelled => &["converges_after_heal", "no_lost_wakeup"],
            Mutant::ForgetAccepted | Mutant::BreakPromise | Mutant::ForgetOnDisk => TWO_VIEWS,
            Mutant::FoundWithoutAll => &["one_lineage"],
        })
    }

    pub(super) fn run(options: &super::Options) -> ExitCode {
        std::panic::set_hook(Box::new(|_| {}));
        let started = Instant::now();
        let is_wanted = |mutant: &Mutant| options.names.is_empty() || options.names.contains(&format!("{mutant:?}"));
        let (mut found, mut missed) = (0, Vec::new());
        println!("{:<22} {:>5} {:>6}  found by", "mutant", "seeds", "s");
        for mutant in Mutant::ALL.into_iter().filter(is_wanted) {
            let name = format!("{mutant:?}");
            let names = match by(mutant) {
                By::Chaos(names) => names,
                By::Story(story) if options.names.is_empty() => {
                    println!("{name:<22} {:>5} {:>6}  {story}", "-", "-");
                    continue;
                }
                By::Story(_) => &[],
            };
            let began = Instant::now();
            let hunt = hunt(mutant, options.from, names);
            let took = began.elapsed().as_secs_f64();
            let others: Vec<String> = hunt.others.iter().map(|(name, times)| format!("{name} {times}")).collect();
            let others = if others.is_empty() { String::new() } else { format!(" (also broke {})", others.join(", ")) };
            match &hunt.found {
                Some((seed, one)) => {
                    let seeds = seed - options.from + 1;
                    println!("{name:<22} {seeds:>5} {took:>6.1}  {}{others}", one.invariant);
                    found += 1;
                    if let Some(folder) = &options.save {
                        write(mutant, *seed, one, folder);
                    }
                }
                None => {
                    println!("{name:<22} {SEEDS:>5} {took:>6.1}  NOT FOUND by {names:?}{others}");
                    missed.push(name);
                }
            }
        }
        let took = started.elapsed().as_secs_f64();
        println!("{found} found by chaos from seed {} on in {took:.0} s, not found: {missed:?}", options.from);
        if missed.is_empty() && (found >= ENOUGH || !options.names.is_empty()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    fn write(mutant: Mutant, seed: u64, found: &Break, folder: &Path) {
        let prepare = |world: World| world.mutant(mutant);
        let small = shrink(&Plan::draw(seed, (3, 7)), found, prepare);
        let log = shrink_log(&run_seed(&small, prepare).log, found, prepare);
        match save(seed, &log, found, prepare, folder) {
            Ok(Some(file)) => println!("    {} steps: {}", log.steps.len(), file.display()),
            Ok(None) => println!("    its log does not break so"),
            Err(error) => eprintln!("{}: {error}", folder.display()),
        }
    }

    /// What a hunt came to.
    #[derive(Default)]
    struct Hunt {
        /// The first seed that breaks as it should.
        found: Option<(u64, Break)>,
        /// Other invariants that broke in the seeds before it.
        others: BTreeMap<&'static str, u64>,
    }

    /// Tries one seed after the other on all cores. Which one is the first does not depend on who is faster: whoever
    /// has begun an earlier one ends it.
    fn hunt(mutant: Mutant, from: u64, names: &[&str]) -> Hunt {
        let next = AtomicU64::new(from);
        let breaks: Mutex<BTreeMap<u64, Break>> = Mutex::default();
        let counts = |one: &Break| names.is_empty() || names.contains(&one.invariant);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= from + SEEDS || lock(&breaks).iter().any(|(at, one)| *at < seed && counts(one)) {
                            break;
                        }
                        let plan = Plan::draw(seed, (3, 7));
                        let run = run_seed(&plan, |world| world.mutant(mutant));
                        // A seed that breaks without it proves nothing about the mutant.
                        if let Some(one) = run.world.broken()
                            && run_seed(&plan, |world| world).world.broken().is_none()
                        {
                            lock(&breaks).insert(seed, one.clone());
                        }
                    }
                });
            }
        });
        let mut hunt = Hunt::default();
        for (seed, one) in std::mem::take(&mut *lock(&breaks)) {
            if counts(&one) {
                hunt.found = Some((seed, one));
                break;
            }
            *hunt.others.entry(one.invariant).or_default() += 1;
        }
        hunt
    }

    fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
