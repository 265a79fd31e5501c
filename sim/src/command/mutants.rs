//! Runs the chaos driver against each planted break of the core: a break that is not found shows a
//! gap in the driver. Only under `RUSTFLAGS="--cfg elderlock_mutants"`.

use std::process::ExitCode;

/// The options of `mutants`.
#[derive(Debug, clap::Args)]
pub(crate) struct MutantOptions {
    /// Only these breaks, by their names.
    #[cfg(elderlock_mutants)]
    names: Vec<elderlock::protocol::mutant::ProtocolMutant>,
    /// Only these breaks, by their names.
    #[cfg(not(elderlock_mutants))]
    names: Vec<String>,
    /// Begin each break with the seed that README.md's table names, and try 60 seeds at most.
    #[arg(long)]
    quick: bool,
    /// How many seeds are tried at once: as many as there are processors, unless said otherwise.
    /// With `--quick` each of these seeds is of another break.
    #[arg(long)]
    jobs: Option<usize>,
    /// The first seed; chaos begins at 1.
    #[arg(long, default_value_t = 1_000_000)]
    from: u64,
    /// Shrink the run of each found break, and write its steps into this folder, for `replay
    /// --mutant`.
    #[arg(long, value_name = "FOLDER")]
    save: Option<std::path::PathBuf>,
    /// Let any invariant count, not only those that are named for it.
    #[arg(long)]
    any: bool,
}

#[cfg(not(elderlock_mutants))]
pub(crate) fn run(_: &MutantOptions) -> ExitCode {
    eprintln!(
        "planted breaks exist only in a build of their own:\n\
         RUSTFLAGS='--cfg elderlock_mutants' CARGO_TARGET_DIR=target/mutants \
         cargo run --profile chaos -p elderlock-sim -- mutants"
    );
    ExitCode::from(2)
}

#[cfg(elderlock_mutants)]
pub(crate) fn run(options: &MutantOptions) -> ExitCode {
    hunt::run(options)
}

#[cfg(elderlock_mutants)]
mod hunt {
    use crate::command::lock;
    use elderlock::protocol::mutant::ProtocolMutant;
    use elderlock_sim::World;
    use elderlock_sim::chaos::{ChaosPlan, run_seed};
    use elderlock_sim::planted::{found_by, has_unit_test};
    use elderlock_sim::shrink::{save, shrink, shrink_log};
    use elderlock_sim::world::Violation;
    use std::collections::BTreeMap;
    use std::ops::Range;
    use std::path::Path;
    use std::process::ExitCode;
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    use std::time::Instant;

    /// Seeds spent on one planted break at most.
    const SEEDS: u64 = 2_000;
    /// Seeds spent on a planted break for which the table names a breaking seed.
    const FEW: u64 = 60;
    /// The table of the invariant and the seed that found each planted break.
    const TABLE: &str = include_str!("../../README.md");
    /// The number of planted breaks that chaos must find at least.
    const ENOUGH: usize = 25;

    /// Two members hold one lock, or a member holds a lock that it should not have: the consequence
    /// of breaks in leases, votes and ghosts.
    const TWO_HOLDERS: &[&str] = &["exclusive_by_lease", "holds_survive", "told_before_regrant"];
    /// The next grantor does not know the last one's grants.
    const BAD_TABLE: &[&str] = &["recovered_table_is_the_union", "fifo_across_failover"];
    /// A young turk does not know its predecessor's grants.
    const LOST_IN_TRANSFER: &[&str] = &["nothing_lost_in_transfer"];
    /// Two views have one number.
    const TWO_VIEWS: &[&str] = &["views_agree"];

    /// The invariants that must find each planted break.
    fn by(mutant: ProtocolMutant) -> &'static [&'static str] {
        match mutant {
            ProtocolMutant::SkipOneInRecovery
            | ProtocolMutant::AwaitNoGhosts
            | ProtocolMutant::ServeWhileRecovering => BAD_TABLE,
            ProtocolMutant::CallUnheardFree | ProtocolMutant::IgnoreHearsay => BAD_TABLE,
            ProtocolMutant::ForgetWhatEnded
            | ProtocolMutant::LoseWaiters
            | ProtocolMutant::ReportNoWaits => &["recovered_table_is_the_union"],
            ProtocolMutant::ReportNoWonHold => {
                &["recovered_table_is_the_union", "no_resurrected_grant"]
            }
            ProtocolMutant::LosePositions | ProtocolMutant::NewcomersFirst => {
                &["fifo_across_failover"]
            }
            ProtocolMutant::ReuseTokens => &["tokens_rise", "token_belongs_to_one_hold"],
            ProtocolMutant::TakeOlderRange => &["tokens_rise"],
            ProtocolMutant::UseAfterRecall => &["no_grant_after_recall", "exclusive_by_lease"],
            ProtocolMutant::ReleaseInUse => &["exclusive_by_lease", "holds_survive"],
            ProtocolMutant::CarveNothing => &["token_belongs_to_one_hold", "tokens_rise"],
            ProtocolMutant::FollowAtOnce | ProtocolMutant::MeterOwnOnly => {
                &["load_moves_the_grantor"]
            }
            ProtocolMutant::KeepAcrossEpochs => {
                &["no_grant_after_recall", "exclusive_by_lease", "tokens_rise", "holds_survive"]
            }
            ProtocolMutant::ReportWithoutPlace => &[
                "nothing_lost_in_transfer",
                "holds_survive",
                "exclusive_by_lease",
                "no_leaked_hold",
                "no_lost_wakeup",
            ],
            ProtocolMutant::KeepBesideWaiter | ProtocolMutant::RecallForNoSuspension => {
                &["no_grant_after_recall", "no_lost_wakeup"]
            }
            ProtocolMutant::RefuseTryForKeep => &["no_grant_after_recall"],
            ProtocolMutant::TellFreeKeep | ProtocolMutant::TellUnreportedPlace => {
                &["what_is_seen_is_so"]
            }
            ProtocolMutant::UseKeepTwice | ProtocolMutant::UseShareAsLock => {
                &["exclusive_by_lease"]
            }
            ProtocolMutant::RecallNoShare => &["no_grant_after_recall"],
            ProtocolMutant::ReplaceByOneShare => &["exclusive_by_lease", "holds_survive"],
            ProtocolMutant::RepeatKeptToken => {
                &["no_grant_after_recall", "token_belongs_to_one_hold"]
            }
            ProtocolMutant::KeepIdleForEver => &["no_leaked_hold"],
            ProtocolMutant::KeepTokenOfPlace => {
                &["nothing_lost_in_transfer", "holds_survive", "what_is_seen_is_so"]
            }
            ProtocolMutant::DealTwice => &["one_grantor_per_epoch"],
            ProtocolMutant::DealMoreTwice => &[
                "epochs_rise",
                "tokens_rise",
                "token_belongs_to_one_hold",
                "one_grantor_per_epoch",
            ],
            ProtocolMutant::FoundAtTheClock | ProtocolMutant::DealBeyondLimit => {
                &["tokens_rise", "epochs_rise"]
            }
            ProtocolMutant::FreeOnHint => &["exclusive_by_lease", "fifo_across_failover"],
            ProtocolMutant::FreeGhosts => &["holds_survive", "fifo_across_failover"],
            ProtocolMutant::HideLeaseEnd | ProtocolMutant::KeepUnwantedGrant => {
                &["no_lost_wakeup", "no_leaked_hold"]
            }
            ProtocolMutant::ForgetEarlyDone => &["recovered_table_is_the_union", "no_leaked_hold"],
            ProtocolMutant::HearTwice => &["recovered_table_is_the_union", "cost_is_bounded"],
            ProtocolMutant::LoseInFlight => &["no_lost_wakeup", "no_leaked_hold"],
            ProtocolMutant::SkipAhead => &["recovered_table_is_the_union", "no_lost_wakeup"],
            ProtocolMutant::RepeatAllAtOnce => &["cost_is_bounded"],
            ProtocolMutant::DetoursInTurn | ProtocolMutant::AnswerTheDeafStraight => {
                &["detours_keep_leases"]
            }
            ProtocolMutant::AnswerTwice => &["one_outcome_per_request"],
            ProtocolMutant::HoldWhileSuspended => &["told_before_regrant", "tokens_rise"],
            ProtocolMutant::GrantWhileSuspended => &["minority_is_silent", "tokens_rise"],
            ProtocolMutant::LeaseFromReceipt
            | ProtocolMutant::LeaseWithoutEnd
            | ProtocolMutant::RenewWithoutQuorum => TWO_HOLDERS,
            ProtocolMutant::HeedFormerElder
            | ProtocolMutant::ForgetPromiseOverView
            | ProtocolMutant::VoteSuccessorVotesAtOnce => TWO_HOLDERS,
            ProtocolMutant::RenewPendingRemoval => TWO_HOLDERS,
            // Members that it does not know may have a lock, wait for one, or wait to become the
            // grantor.
            ProtocolMutant::ActInOldView => {
                &["exclusive_by_lease", "fifo_across_failover", "last_young_turk_wins"]
            }
            ProtocolMutant::BeginForFormerElder => {
                &["epochs_rise", "exclusive_by_lease", "tokens_rise", "no_resurrected_grant"]
            }
            ProtocolMutant::AcceptOlderEpoch => &["no_resurrected_grant"],
            ProtocolMutant::ForgetEarlyRequesters | ProtocolMutant::LoseWaitsBesideTable => {
                &["no_lost_wakeup", "fifo_across_failover"]
            }
            ProtocolMutant::BelieveOutdatedReport => &[
                "holds_survive",
                "nothing_lost_in_transfer",
                "exclusive_by_lease",
                "no_leaked_hold",
            ],
            ProtocolMutant::HearOnlyInventories => &["no_lost_wakeup"],
            ProtocolMutant::CallLostFree => TWO_HOLDERS,
            ProtocolMutant::DealInHeardView => &["epochs_rise"],
            ProtocolMutant::VoteThoughExpelled => TWO_VIEWS,
            ProtocolMutant::RemoveEarly
            | ProtocolMutant::ForgetEarlierLeases
            | ProtocolMutant::ForgetGhosts => TWO_HOLDERS,
            ProtocolMutant::TrustRefused
            | ProtocolMutant::SuspectAlone
            | ProtocolMutant::CallBrokenUnreached
            | ProtocolMutant::VoteEarly => TWO_HOLDERS,
            ProtocolMutant::GrantAfterTransfer
            | ProtocolMutant::TakeNoTableForEmpty
            | ProtocolMutant::CallItVacant => TWO_HOLDERS,
            ProtocolMutant::TransferNoWaits
            | ProtocolMutant::TransferOneHoldLess
            | ProtocolMutant::TransferNoPositions => LOST_IN_TRANSFER,
            ProtocolMutant::TransferWhatIsThere
            | ProtocolMutant::ActOnFirstPart
            | ProtocolMutant::TransferNoMetadata => LOST_IN_TRANSFER,
            ProtocolMutant::TakeOverAsNew => LOST_IN_TRANSFER,
            ProtocolMutant::ForgetCopiedEndings | ProtocolMutant::TrustAnySeal => LOST_IN_TRANSFER,
            ProtocolMutant::ForgetCopiedChanges
            | ProtocolMutant::KeepLastChanges
            | ProtocolMutant::ActOnCopy => LOST_IN_TRANSFER,
            ProtocolMutant::ActOnEarlierTable => &["epochs_rise", "nothing_lost_in_transfer"],
            ProtocolMutant::ReportNoOwners => &["recovered_table_is_the_union"],
            ProtocolMutant::ActBeforeNextTurk | ProtocolMutant::WinWhenNamed => {
                &["last_young_turk_wins"]
            }
            ProtocolMutant::NameTheOutbid
            | ProtocolMutant::HeedOldOutbids
            | ProtocolMutant::CallTheElderWinner => &["last_young_turk_wins"],
            ProtocolMutant::TakeOverTheDead | ProtocolMutant::SkipRevalidation => {
                &["no_lost_wakeup", "no_leaked_hold"]
            }
            ProtocolMutant::WaitForTheGone => &["no_lost_wakeup", "no_leaked_hold"],
            ProtocolMutant::SuspendBesideHolds
            | ProtocolMutant::LockThoughSuspended
            | ProtocolMutant::WaitForItself => &["suspension_is_exclusive"],
            ProtocolMutant::KeepSuspensionToItself => {
                &["recovered_table_is_the_union", "suspension_is_exclusive"]
            }
            ProtocolMutant::TearBatch => &["batch_is_atomic"],
            ProtocolMutant::DestroyedAtOnce | ProtocolMutant::SettleElsewhere => {
                &["destroyed_is_over"]
            }
            ProtocolMutant::SeeBeforeActing | ProtocolMutant::SeeWaitersBackwards => {
                &["what_is_seen_is_so"]
            }
            ProtocolMutant::LockBesideShares
            | ProtocolMutant::DowngradeLetsIn
            | ProtocolMutant::UpgradeBesideOthers => &["no_writer_with_reader", "holds_survive"],
            ProtocolMutant::ShareOvertakesLock => &["fifo_across_failover"],
            ProtocolMutant::PermitsAboveLimit | ProtocolMutant::GiveBackTwice => {
                &["permits_never_exceed_limit"]
            }
            ProtocolMutant::UpgradeWithOldToken => &["tokens_rise", "token_belongs_to_one_hold"],
            ProtocolMutant::WriteTwice | ProtocolMutant::StepTwice | ProtocolMutant::StepWraps => {
                &["values_are_seen_in_order"]
            }
            ProtocolMutant::TellWriterOnly | ProtocolMutant::AnswerWithoutValue => {
                &["values_are_seen_in_order"]
            }
            ProtocolMutant::CallItSure | ProtocolMutant::StaleByTransfer => {
                &["values_are_seen_in_order"]
            }
            ProtocolMutant::FirstValueWins => {
                &["recovered_table_is_the_union", "values_are_seen_in_order"]
            }
            ProtocolMutant::TransferNoOpens | ProtocolMutant::TransferNoValues => LOST_IN_TRANSFER,
            ProtocolMutant::RaiseEarly | ProtocolMutant::AdmitAnyVersion => &["version_is_spoken"],
            // Founders that do not understand each other found nothing.
            ProtocolMutant::SpeakHighest => &["version_is_spoken", "converges_after_heal"],
            ProtocolMutant::CallItHeard => &["leaving_member_is_not_expelled"],
            ProtocolMutant::AskWithoutRoom => &["holds_survive", "no_lost_wakeup"],
            ProtocolMutant::LeaveHoldsOut
            | ProtocolMutant::ActBeforeSecondReport
            | ProtocolMutant::EndUnnoted
            | ProtocolMutant::TakeRestOfTable => TWO_HOLDERS,
            ProtocolMutant::LeaveWaitsOut
            | ProtocolMutant::AskRefusedOnce
            | ProtocolMutant::DropTokensOfInventory
            | ProtocolMutant::BelieveAnyEpoch => &["no_lost_wakeup"],
            ProtocolMutant::HearStrangers | ProtocolMutant::HearAnyVoucher => TWO_HOLDERS,
            ProtocolMutant::AdmitTheGone | ProtocolMutant::ForgetRememberedVoters => {
                &["converges_after_heal"]
            }
            ProtocolMutant::FoundForAny => &["one_lineage"],
            // They cost packets or memory only.
            ProtocolMutant::TakeAnyJoin
            | ProtocolMutant::SuspectForAny
            | ProtocolMutant::KeepAnyGoodbye
            | ProtocolMutant::AdmitAllUnshown
            | ProtocolMutant::TakeJoinOfLaterView => &[],
            ProtocolMutant::HeedAnyPulse => &["holds_survive"],
            ProtocolMutant::TakeAnyVersion => &["values_are_seen_in_order"],
            // No invariant counts bytes.
            ProtocolMutant::KeepAllWaits
            | ProtocolMutant::KeepAllEarly
            | ProtocolMutant::CountPresentValues
            | ProtocolMutant::TakeAllObjects
            | ProtocolMutant::NoteAllReported
            | ProtocolMutant::KeepWordOfTheGone
            | ProtocolMutant::TakeAnyTable => &[],
            ProtocolMutant::TakeUntold | ProtocolMutant::ForceAnywhere => &["told_before_taken"],
            ProtocolMutant::TakeUnheard => {
                &["exclusive_by_lease", "holds_survive", "tokens_rise", "told_before_taken"]
            }
            ProtocolMutant::RenewTheDeaf
            | ProtocolMutant::ReviveTheDeaf
            | ProtocolMutant::KeepTheDeaf => &["converges_after_heal"],
            ProtocolMutant::StayThoughExpelled | ProtocolMutant::YieldForEver => {
                &["converges_after_heal"]
            }
            ProtocolMutant::BelieveStrangers | ProtocolMutant::BelieveAnyVoter => &[
                "views_agree",
                "one_elder_per_view",
                "voters_have_answered",
                "converges_after_heal",
                "holds_survive",
                "exclusive_by_lease",
                "told_before_regrant",
            ],
            ProtocolMutant::BelieveAnyClaim => &[
                "views_agree",
                "one_elder_per_view",
                "voters_have_answered",
                "told_after_kept",
                "exclusive_by_lease",
                "holds_survive",
                "told_before_regrant",
            ],
            ProtocolMutant::BelieveNamedProcess => &["holds_survive"],
            ProtocolMutant::BelieveAnyRelay => &[
                "holds_survive",
                "exclusive_by_lease",
                "told_before_regrant",
                "leaving_member_is_not_expelled",
            ],
            ProtocolMutant::AskBesideReport => &["cost_is_bounded"],
            ProtocolMutant::RefuseRelayOfLearner => &["detours_keep_leases"],
            ProtocolMutant::BelieveLearners => &["views_agree"],
            ProtocolMutant::BelieveAnyWitness | ProtocolMutant::HearAnyGrantor => TWO_HOLDERS,
            ProtocolMutant::VouchForSessions => &["sessions_end_first"],
            ProtocolMutant::TakeAnyToken => &["tokens_rise"],
            ProtocolMutant::PromoteJoiners
            | ProtocolMutant::PromoteTheSilent
            | ProtocolMutant::PromoteAll => &["voters_have_answered"],
            ProtocolMutant::FoundWithoutAll
            | ProtocolMutant::FoundWithFewer
            | ProtocolMutant::AgreeTwice => &["one_lineage"],
            ProtocolMutant::GrantPastSuspension => &["fifo_across_failover"],
            ProtocolMutant::TellPositionOneLater
            | ProtocolMutant::TellHoldsOneMore
            | ProtocolMutant::TellNoSuspension
            | ProtocolMutant::TellFirstName
            | ProtocolMutant::TellAllWaits => &["what_is_seen_is_so"],
            ProtocolMutant::YieldToOldest => &["successor_has_most_entries"],
            ProtocolMutant::QueueDeadlock
            | ProtocolMutant::QueueOwnDeadlock
            | ProtocolMutant::QueueOwnersDeadlock
            | ProtocolMutant::SuspectDeadlock
            | ProtocolMutant::TellUnconfirmed
            | ProtocolMutant::ProbeOnce
            | ProtocolMutant::BelieveOwnQueue => &["deadlock_is_told"],
            ProtocolMutant::ServeOwnFirst | ProtocolMutant::LoseOwnPositions => {
                &["fifo_across_failover"]
            }
            ProtocolMutant::DeadlockInSilence => &["no_lost_wakeup"],
            ProtocolMutant::KeepWritesOfTheGone => &["objects_forget_the_gone"],
            ProtocolMutant::InventoryEndsEarly => BAD_TABLE,
            ProtocolMutant::StandByElderThoughBound => TWO_HOLDERS,
            ProtocolMutant::RenewThoughDeposed => TWO_HOLDERS,
            ProtocolMutant::BelieveAnyVacant => TWO_HOLDERS,
            ProtocolMutant::EndInSilence => &["no_lost_wakeup"],
            ProtocolMutant::ForgetOwnOrder => {
                &["fifo_across_failover", "recovered_table_is_the_union"]
            }
            ProtocolMutant::ForgetAtOnce => &["converges_after_heal", "views_agree"],
            ProtocolMutant::SeeWithoutLease => &["what_is_seen_is_so"],
            ProtocolMutant::ViewRenewsLease => TWO_HOLDERS,
            ProtocolMutant::AtOnceThoughLate => TWO_HOLDERS,
            ProtocolMutant::AskNoJoiners | ProtocolMutant::OpenBeforeJoiners => BAD_TABLE,
            ProtocolMutant::OpenBeforeSilentMembers
            | ProtocolMutant::OpenBesideSuspension
            | ProtocolMutant::OpenBesideLeftOutHolds
            | ProtocolMutant::GrantHalfOpenBatch
            | ProtocolMutant::ReportBatchLate => BAD_TABLE,
            ProtocolMutant::AcceptPromisesNothing => TWO_VIEWS,
            ProtocolMutant::ForgetAccepted | ProtocolMutant::BreakPromise => TWO_VIEWS,
            ProtocolMutant::ForgetOnDisk
            | ProtocolMutant::TellUnstored
            | ProtocolMutant::CountUnstored
            | ProtocolMutant::CallItKept
            | ProtocolMutant::CallItSettled => &["told_after_kept"],
        }
    }

    /// The seed that found the break by the table, counted from 1.
    fn known(mutant: ProtocolMutant) -> Option<u64> {
        let row = TABLE.lines().find(|row| row.starts_with(&format!("| {mutant:?} |")))?;
        let seed = row.split('|').nth(3)?.trim();
        let digits = seed
            .chars()
            .take_while(|char| char.is_ascii_digit() || *char == ',')
            .filter(char::is_ascii_digit);
        digits.collect::<String>().parse().ok()
    }

    pub(super) fn run(options: &super::MutantOptions) -> ExitCode {
        std::panic::set_hook(Box::new(|_| {}));
        let started = Instant::now();
        let is_wanted =
            |mutant: &ProtocolMutant| options.names.is_empty() || options.names.contains(mutant);
        println!("{:<22} {:>5} {:>6}  found by", "planted break", "seeds", "s");
        let mut wanted = Vec::new();
        for mutant in ProtocolMutant::ALL.into_iter().filter(is_wanted) {
            let name = format!("{mutant:?}");
            if let Some(script) = found_by(mutant).filter(|_| options.names.is_empty()) {
                println!("{name:<22} {:>5} {:>6}  told in {script}", "-", "-");
            } else if has_unit_test(mutant) && options.names.is_empty() {
                println!("{name:<22} {:>5} {:>6}  told in a unit test of the core", "-", "-");
            } else {
                wanted.push(mutant);
            }
        }
        // The first seed of `quick` nearly always breaks, so further seeds at the same time would
        // be wasted.
        let jobs = options
            .jobs
            .unwrap_or_else(|| std::thread::available_parallelism().map_or(1, usize::from));
        let (hunts, seeds_at_once) = if options.quick { (jobs, 1) } else { (1, jobs) };
        let next = Mutex::new(wanted.into_iter());
        let (found, missed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        std::thread::scope(|scope| {
            for _ in 0..hunts {
                scope.spawn(|| {
                    loop {
                        let Some(mutant) = lock(&next).next() else { break };
                        if report(mutant, options, seeds_at_once) {
                            found.fetch_add(1, Ordering::Relaxed);
                        } else {
                            lock(&missed).push(format!("{mutant:?}"));
                        }
                    }
                });
            }
        });
        let (found, missed) = (found.into_inner(), std::mem::take(&mut *lock(&missed)));
        let took = started.elapsed().as_secs_f64();
        let from = options.from;
        let rest = if missed.is_empty() {
            "none is left".to_string()
        } else {
            format!("NOT FOUND: {}", missed.join(", "))
        };
        println!("{found} found from seed {from} on in {took:.0} s: {rest}");
        if missed.is_empty() && (found >= ENOUGH || !options.names.is_empty()) {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    }

    /// Hunts one planted break, tells what it found, and returns whether it found the break.
    fn report(mutant: ProtocolMutant, options: &super::MutantOptions, jobs: usize) -> bool {
        let name = format!("{mutant:?}");
        let names = (!options.any).then(|| by(mutant));
        let began = Instant::now();
        let (from, seeds) = match (options.quick, known(mutant)) {
            (false, _) => (options.from, SEEDS),
            (true, known) => (options.from + known.unwrap_or(1) - 1, FEW),
        };
        let hunt = hunt(mutant, from..from + seeds, names, jobs);
        let took = began.elapsed().as_secs_f64();
        let others: Vec<String> =
            hunt.others.iter().map(|(name, times)| format!("{name} {times}")).collect();
        let others = if others.is_empty() {
            String::new()
        } else {
            format!(" (also broke {})", others.join(", "))
        };
        let Some((seed, one)) = &hunt.found else {
            let names = names.unwrap_or(&["any"]).join(", ");
            println!("{name:<22} {seeds:>5} {took:>6.1}  NOT FOUND by {names}{others}");
            return false;
        };
        let seeds = seed - options.from + 1;
        println!("{name:<22} {seeds:>5} {took:>6.1}  {}{others}", one.invariant);
        if let Some(folder) = &options.save {
            write(mutant, *seed, one, folder);
        }
        true
    }

    fn write(mutant: ProtocolMutant, seed: u64, found: &Violation, folder: &Path) {
        let prepare = |world: World| world.mutant(mutant);
        let small = shrink(&ChaosPlan::draw(seed, (3, 7)), found, prepare);
        let log = shrink_log(&run_seed(&small, prepare).log, found, prepare);
        match save(seed, &log, found, prepare, folder) {
            Ok(Some(file)) => println!("    {} steps: {}", log.steps.len(), file.display()),
            Ok(None) => println!("    its log does not break so"),
            Err(error) => eprintln!("{}: {error}", folder.display()),
        }
    }

    /// The result of a hunt.
    #[derive(Default)]
    struct MutantHunt {
        /// The first seed that breaks as it should.
        found: Option<(u64, Violation)>,
        /// Other invariants that broke in the seeds before it.
        others: BTreeMap<&'static str, u64>,
    }

    /// Tries seeds in their order, `jobs` at a time, until one of the invariants `names` breaks;
    /// `None`: until any breaks. The first breaking seed does not depend on the threads' speed:
    /// each thread finishes the earlier seeds that it has begun.
    fn hunt(
        mutant: ProtocolMutant,
        seeds: Range<u64>,
        names: Option<&[&str]>,
        jobs: usize,
    ) -> MutantHunt {
        let next = AtomicU64::new(seeds.start);
        let breaks: Mutex<BTreeMap<u64, Violation>> = Mutex::default();
        let counts = |one: &Violation| names.is_none_or(|names| names.contains(&one.invariant));
        std::thread::scope(|scope| {
            for _ in 0..jobs {
                scope.spawn(|| {
                    loop {
                        let seed = next.fetch_add(1, Ordering::Relaxed);
                        if seed >= seeds.end
                            || lock(&breaks).iter().any(|(at, one)| *at < seed && counts(one))
                        {
                            break;
                        }
                        let plan = ChaosPlan::draw(seed, (3, 7));
                        let run = run_seed(&plan, |world| world.mutant(mutant));
                        // A seed that breaks without the planted break proves nothing about it.
                        if let Some(one) = run.world.broken()
                            && run_seed(&plan, |world| world).world.broken().is_none()
                        {
                            lock(&breaks).insert(seed, one.clone());
                        }
                    }
                });
            }
        });
        let mut hunt = MutantHunt::default();
        for (seed, one) in std::mem::take(&mut *lock(&breaks)) {
            if counts(&one) {
                hunt.found = Some((seed, one));
                break;
            }
            *hunt.others.entry(one.invariant).or_default() += 1;
        }
        hunt
    }
}
