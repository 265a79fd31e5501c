//! `report`: a page of HTML about a run, to be opened in any browser.

use super::chaos::members;
use elderlock_sim::World;
use elderlock_sim::chaos::{ChaosPlan, describe, run_seed};
use elderlock_sim::fault::{
    ConcurrentFault, CutOffGroup, DelayedRemoval, ElderTakeover, Fault, FaultKind, FaultNumbers,
    LatePackets, Target,
};
use elderlock_sim::record::Record;
use elderlock_sim::report::{Case, ReportedFault, about, of_run};
use elderlock_sim::script::ScriptRunner;
use elderlock_sim::shrink::{shrink, shrink_log};
use elderlock_sim::world::Violation;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// Seeds looked through at most for one that breaks.
const HUNTED: u64 = 2_000;

/// The options of `report`.
#[derive(Debug, clap::Args)]
pub(crate) struct ReportOptions {
    /// The run of this seed. If it breaks, it is shrunk first. With a planted break and no seed:
    /// the first that breaks.
    #[arg(long, required_unless_present_any = ["history", "replay", "mutant"])]
    seed: Option<u64>,
    /// How many members, as 5 or 3..7, both ends included; 2 to 12.
    #[arg(long, default_value = "3..7", value_parser = members)]
    members: (usize, usize),
    /// Only these faults of the plan, by their numbers; or "none". They are not shrunk further.
    #[arg(long)]
    faults: Option<FaultNumbers>,
    /// Plant this break in the core. Needs RUSTFLAGS="--cfg elderlock_mutants".
    #[arg(long, value_name = "NAME")]
    mutant: Option<String>,
    /// Draw the first run in which the planted break violates this invariant.
    #[arg(long, value_name = "NAME", requires = "mutant")]
    invariant: Option<String>,
    /// The run of a record in JSON lines, as `chaos --history` writes it.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "faults", "mutant"])]
    history: Option<PathBuf>,
    /// The run of a log or a script, as `chaos` saves it after a violation.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["seed", "faults", "history"])]
    replay: Option<PathBuf>,
    /// Where to write the page.
    #[arg(long, default_value = "report.html")]
    out: PathBuf,
}

pub(crate) fn run(options: &ReportOptions) -> ExitCode {
    std::panic::set_hook(Box::new(|_| {}));
    let case = match (&options.history, &options.replay, options.seed) {
        (Some(file), ..) => from_history(file),
        (None, Some(file), _) => from_log(file, options.mutant.as_deref()),
        (None, None, seed) => seed.map_or_else(|| hunt(options), Ok).and_then(|seed| {
            of_seed(seed, options.members, options.faults.as_ref(), options.mutant.as_deref())
        }),
    };
    match case.and_then(|case| write(&options.out, &of_run(&case))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(wrong) => {
            eprintln!("{wrong}");
            ExitCode::from(2)
        }
    }
}

/// The first seed whose run the planted break breaks.
fn hunt(options: &ReportOptions) -> Result<u64, String> {
    let prepare = planted(options.mutant.as_deref())?;
    let is_wanted = |found: &Violation| {
        options.invariant.as_ref().is_none_or(|wanted| *wanted == found.invariant)
    };
    let breaks = |seed: &u64| {
        run_seed(&ChaosPlan::draw(*seed, options.members), &prepare)
            .world
            .broken()
            .is_some_and(is_wanted)
    };
    (1..=HUNTED).find(breaks).ok_or_else(|| format!("not in {HUNTED} seeds"))
}

/// Writes a page and prints its path.
pub(crate) fn write(file: &Path, page: &str) -> Result<(), String> {
    std::fs::write(file, page).map_err(|error| format!("{}: {error}", file.display()))?;
    eprintln!("written: {}", file.display());
    Ok(())
}

fn from_history(file: &Path) -> Result<Case, String> {
    let record = Record::from_json_lines(&read(file)?)
        .map_err(|wrong| format!("{}: {wrong}", file.display()))?;
    Ok(Case { record, source: name(file), ..Case::default() })
}

fn from_log(file: &Path, mutant: Option<&str>) -> Result<Case, String> {
    let (script, prepare) = (read(file)?, planted(mutant)?);
    let mut runner = ScriptRunner::new(|world| prepare(world).with_messages());
    runner.run_script(&script).map_err(|wrong| format!("{}: {wrong}", file.display()))?;
    let record = runner.world().record().clone();
    let (flags, break_planted) = planting(mutant);
    let replay = format!(
        "{flags}cargo run --release -p elderlock-sim -- replay{break_planted} {}",
        file.display()
    );
    let planted = mutant.map(str::to_string);
    Ok(Case {
        record,
        source: name(file),
        script,
        planted,
        replay: Some(replay),
        ..Case::default()
    })
}

fn read(file: &Path) -> Result<String, String> {
    std::fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

fn name(file: &Path) -> String {
    file.file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned())
}

/// The run of a seed, with only these faults or, if it breaks, with those that the violation needs.
pub(crate) fn of_seed(
    seed: u64,
    members: (usize, usize),
    faults: Option<&FaultNumbers>,
    mutant: Option<&str>,
) -> Result<Case, String> {
    let prepare = planted(mutant)?;
    let full = ChaosPlan::draw(seed, members);
    let small = match faults {
        Some(kept) => full.only(&kept.0),
        None => match run_seed(&full, &prepare).world.broken() {
            Some(found) => shrink(&full, found, &prepare),
            None => full.clone(),
        },
    };
    let run = run_seed(&small, |world| prepare(world).with_messages());
    // Only the steps that the violation needs are drawn of a broken run.
    let log = run.world.broken().map(|found| shrink_log(&run.log, found, &prepare));
    let (steps, script) = match &log {
        Some(log) => (Some((log.steps.len(), run.log.steps.len())), log.to_script()),
        None => (None, String::new()),
    };
    let record = match log {
        Some(log) => {
            log.replay(prepare(log.scene.world().untraced()).with_messages()).into_record()
        }
        None => run.world.into_record(),
    };
    let told = |(number, fault): (&usize, &Fault)| ReportedFault {
        number: *number,
        at: fault.at,
        lasts: fault.lasts,
        words: words(fault),
        needed: small.kept.contains(number),
    };
    let (low, high) = members;
    let (flags, planted) = planting(mutant);
    let again = format!(
        "--seed {seed} --members {low}..{high} --faults {}{planted}",
        FaultNumbers(small.kept.clone())
    );
    Ok(Case {
        record,
        source: format!("seed {seed}"),
        setting: describe(&small.only(&[])),
        planted: mutant.map(str::to_string),
        steps,
        script,
        faults: full.kept.iter().zip(&full.faults).map(told).collect(),
        replay: Some(format!("{flags}cargo run --release -p elderlock-sim -- report {again}")),
    })
}

/// The prefix and the option of a command that has a planted break.
fn planting(mutant: Option<&str>) -> (&'static str, String) {
    match mutant {
        Some(name) => (
            "RUSTFLAGS='--cfg elderlock_mutants' CARGO_TARGET_DIR=target/mutants ",
            format!(" --mutant {name}"),
        ),
        None => ("", String::new()),
    }
}

/// A fault in words.
fn words(fault: &Fault) -> String {
    let percent = |ppm: u32| format!("{:.1} %", f64::from(ppm) / 10_000.0);
    let way = |from: usize, to: usize| format!("m{from} to m{to}");
    let name = fault.what.name();
    match fault.what {
        FaultKind::Weather(weather) if weather.loss > 0 => {
            format!("{} of all packets are lost", percent(weather.loss))
        }
        FaultKind::Weather(weather) if weather.duplicate > 0 => {
            format!("{} of all packets come twice", percent(weather.duplicate))
        }
        FaultKind::Weather(weather) if weather.reorder > 0 => {
            format!("{} of all packets may be overtaken", percent(weather.reorder))
        }
        FaultKind::Weather(weather) if weather.garble > 0 => {
            format!("{} of all packets are damaged", percent(weather.garble))
        }
        FaultKind::Weather(weather) => format!(
            "packets take up to {}, {} of them up to {} longer",
            about(weather.slowest),
            percent(weather.spike),
            about(weather.spike_by)
        ),
        FaultKind::CutOneWay(from, to) => format!("{name}: {}", way(from, to)),
        FaultKind::SlowWay(from, to, by) => format!("{name}: {}, by {}", way(from, to), about(by)),
        FaultKind::Cut(one, other) => format!("{name}: m{one} and m{other}"),
        FaultKind::Split(left) => format!("{name}: {} from the others", sites(left)),
        FaultKind::OneNeighbour(target, _) => {
            format!("{name}: {} from all others but one", target_words(target))
        }
        FaultKind::Ring(_) => format!("{name}: each from all others but its neighbours"),
        FaultKind::OneWayRing(_) => format!("{name}: one way, with a relay for each two"),
        FaultKind::NarrowWay(from, to, narrow) => {
            format!(
                "{name}: {}, one packet in {} and room for {}",
                way(from, to),
                about(narrow.each),
                narrow.room
            )
        }
        FaultKind::Resets(_, times) => format!("{name}: {times} times, somewhere"),
        FaultKind::ClockRate(site, ppm) => {
            format!("{name}: m{site}, {:+.1} %", f64::from(ppm) / 10_000.0)
        }
        FaultKind::WallClock(site, by) => {
            format!("{name}: m{site}, by {:+.1} s", by as f64 / 1_000.0)
        }
        FaultKind::FalseAlarm(at, about) => format!("{name}: m{at} about {}", target_words(about)),
        FaultKind::Late(LatePackets { kind, from, to, blow }) => {
            let from = from.map(|from| format!(" from {}", target_words(from))).unwrap_or_default();
            let to = to.map(|to| format!(" to m{to}")).unwrap_or_default();
            let blow = match blow {
                None => "",
                Some(ConcurrentFault::Crash) => ", and the sender is killed",
                Some(ConcurrentFault::Leave) => ", and the sender leaves",
                Some(ConcurrentFault::Isolate) => ", and the sender is cut off",
                Some(ConcurrentFault::GrantorLeaves) => ", and the grantor leaves",
            };
            format!("{name}: every {kind}{from}{to}{blow}")
        }
        FaultKind::ElderTakeover(ElderTakeover { candidate, deaf, loyal, restart }) => {
            let loyal = with(loyal);
            let restart = if restart { "; the others restart" } else { "" };
            let candidate = target_words(Target::Council(candidate));
            format!(
                "{name}: {candidate} receives nothing for {}, then the elder is cut \
                 off{loyal}{restart}",
                about(deaf)
            )
        }
        FaultKind::SplitView(loyal) => format!("{name}: the elder{} from the others", with(loyal)),
        FaultKind::Reprieve(DelayedRemoval { target, cut, pending }) => {
            format!(
                "{name}: {}, heard again after {}, and removed {} later",
                target_words(target),
                about(cut),
                about(pending)
            )
        }
        FaultKind::Turncoat(..) => format!("{name}: one of the council"),
        FaultKind::StrayName(named, other) => {
            format!("{name}: m{named} is named late, and m{other} asks")
        }
        FaultKind::Rush { .. }
        | FaultKind::Newcomer { .. }
        | FaultKind::TornValue { .. }
        | FaultKind::Duel { .. }
        | FaultKind::PassingWait { .. } => name.to_string(),
        FaultKind::LyingStranger(target, _, lies) => {
            let to = target.map_or("all".to_string(), target_words);
            format!("{name}: {lies} lies to {to}")
        }
        FaultKind::RejectPair(target, other) => {
            format!("{name}: {} and m{other}", target_words(target))
        }
        FaultKind::LateNaming { elder_fails, .. } => {
            format!("{name}, {}", if elder_fails { "the elder fails" } else { "after a failure" })
        }
        FaultKind::Isolate(target)
        | FaultKind::Deafen(target)
        | FaultKind::Crash(target)
        | FaultKind::Vanish(target)
        | FaultKind::Pause(target) => {
            format!("{name}: {}", target_words(target))
        }
        FaultKind::Leave(target)
        | FaultKind::Reject(target)
        | FaultKind::NoDatagrams(target)
        | FaultKind::LoseDisk(target) => {
            format!("{name}: {}", target_words(target))
        }
        FaultKind::SlowDisk(target, takes) => {
            format!("{name}: {}, {} a write", target_words(target), about(takes))
        }
        FaultKind::FailingDisk(target) | FaultKind::TornStep(target, ..) => {
            format!("{name}: {}", target_words(target))
        }
        FaultKind::FullDisk => name.to_string(),
        FaultKind::CrashBoth
        | FaultKind::CrashAll
        | FaultKind::DieDeciding
        | FaultKind::Swizzle(_) => name.to_string(),
    }
}

/// The members that are cut off with the elder.
fn with(loyal: CutOffGroup) -> String {
    let sites =
        if loyal.sites == 0 { String::new() } else { format!(" with {}", sites(loyal.sites)) };
    let holder = if loyal.holder { " with a holder" } else { "" };
    format!("{sites}{holder}")
}

/// The sites whose bits are set.
fn sites(bits: u32) -> String {
    let sites: Vec<String> =
        (0..32).filter(|site| bits >> site & 1 == 1).map(|site| format!("m{site}")).collect();
    sites.join(" ")
}

/// The target of a fault.
fn target_words(target: Target) -> String {
    match target {
        Target::Site(site) => format!("m{site}"),
        Target::Elder => "the elder".to_string(),
        Target::Grantor => "the grantor".to_string(),
        Target::Council(_) => "one of the council".to_string(),
        Target::Recovering => "a grantor that recovers".to_string(),
        Target::Awaited => "a member that a recovery waits for".to_string(),
        Target::Suspender => "a member that suspends a service, or waits to".to_string(),
        Target::Batcher => "a member that has a batch of locks, or waits for one".to_string(),
        Target::Sharer => "one that has or wants a share or permits".to_string(),
        Target::Writer => "one that writes to an object or has it open".to_string(),
    }
}

#[cfg(not(elderlock_mutants))]
fn planted(mutant: Option<&str>) -> Result<impl Fn(World) -> World + use<>, String> {
    match mutant {
        Some(_) => {
            Err("planted breaks exist only under RUSTFLAGS=\"--cfg elderlock_mutants\"".to_string())
        }
        None => Ok(|world| world),
    }
}

#[cfg(elderlock_mutants)]
fn planted(mutant: Option<&str>) -> Result<impl Fn(World) -> World + use<>, String> {
    use elderlock::protocol::mutant::ProtocolMutant;
    let mutant = mutant.map(str::parse::<ProtocolMutant>).transpose()?;
    Ok(move |world: World| match mutant {
        Some(mutant) => world.mutant(mutant),
        None => world,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fault_says_its_target() {
        let said = |what| words(&Fault { at: 0, lasts: 0, what });
        assert_eq!(said(FaultKind::CutOneWay(1, 3)), "cut one way: m1 to m3");
        assert_eq!(said(FaultKind::Crash(Target::Site(2))), "crash: m2");
        assert_eq!(said(FaultKind::Isolate(Target::Elder)), "isolate: the elder");
        assert_eq!(said(FaultKind::Swizzle(8)), "swizzle clog");
        assert_eq!(said(FaultKind::SlowWay(0, 3, 1_500_000_000)), "slow way: m0 to m3, by 1.500 s");
        // Numbers that are not sites.
        assert_eq!(said(FaultKind::Resets(7, 5)), "reset: 5 times, somewhere");
        let loyal = CutOffGroup { sites: 5, holder: true };
        assert_eq!(
            said(FaultKind::SplitView(loyal)),
            "split view: the elder with m0 m2 with a holder from the others"
        );
        let late = LatePackets {
            kind: "Grant",
            from: Some(Target::Grantor),
            to: Some(1),
            blow: Some(ConcurrentFault::Crash),
        };
        assert_eq!(
            said(FaultKind::Late(late)),
            "late: every Grant from the grantor to m1, and the sender is killed"
        );
    }
}
