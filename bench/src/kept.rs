//! Measures kept locks: their cost at their keeper, and the wait of another member that wants one.
//! Measures the cost for two members that want one name by turns. Measures the time from the death
//! of a keeper until its lock can be granted again.

use crate::clock::between;
use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{
    Affinity, BenchOrder, BenchReport, Load, LoadResult, Names, QueuedWaiter, Taken,
};
use crate::sheet::{Figure, Sheet, Unit};
use crate::speed::rate_of_all;
use crate::{BenchArgs, Progress};
use std::path::Path;
use std::time::Duration;

/// The number of members that keep locks. Another member grants them.
const KEEPERS: usize = 4;
/// The number of names of each keeper.
const NAMES: u32 = 1_000;
/// The limit of a kept lock and its release, as a multiple of L.
const KEPT: f64 = 3.0;
/// The share of locks, in percent, whose name another member keeps.
const ELSEWHERE: [u32; 2] = [1, 10];
/// The limit of the 99th percentile of these locks, as a multiple of R's.
const RECALLED: f64 = 2.2;
/// The figures of locks that are recalled: of members that take locks as fast as they can, and of
/// members that take some each millisecond.
const RECALLED_TEXTS: [[&str; 4]; 2] = [
    [
        "locks of all members",
        "lock that another member keeps, 99th percentile",
        "floor R of all members, 99th percentile",
        "99th percentile / that of R",
    ],
    [
        "paced locks of all members",
        "paced lock that another member keeps, 99th percentile",
        "paced floor R of all members, 99th percentile",
        "99th percentile of paced locks / that of R",
    ],
];
/// The target for two members that want one name by turns, as a share of their rate without
/// keeping.
const IN_TURN: f64 = 0.95;
/// The keeper that fails.
const KEEPER: usize = 3;
/// The limit of the time until another member has the lock of a killed keeper, in seconds.
const KEEPER_DEATH: f64 = 0.010;
/// The number of locks over which messages are counted.
const COUNTED: u64 = 10_000;
/// The share of a message that the member's other work may add to each lock.
const MESSAGE_LIMIT: f64 = 0.01;
/// The time of a run before the measured run.
const WARM_UP: Duration = Duration::from_millis(50);
/// The time until all messages are acknowledged.
const SETTLE: Duration = Duration::from_millis(600);
/// The time until a release has arrived; less than a free keep lasts.
const RELEASED: Duration = Duration::from_millis(50);
/// The locks of a name until it is kept and used. A member keeps a lock at its second lock of the
/// name, and uses the keep from the third on.
const TIMES: u64 = 3;

/// Measures four members that lock names of their own again and again, beside L. Another member
/// grants the locks.
pub(crate) fn kept(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let texts = ["kept lock and release, all members", "kept lock and release / L"];
    // The round makes the names different from those of other members.
    kept_names((args, progress, sheet), logs, (Taken::Lock, |keeper| keeper), texts)
}

/// Measures four members that take shares of the same names again and again, beside L. Another
/// member grants the shares.
pub(crate) fn kept_shares(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let texts = ["kept share and release, all members", "kept share and release / L"];
    kept_names((args, progress, sheet), logs, (Taken::Share, |_| 0), texts)
}

fn kept_names(
    (args, progress, sheet): (&BenchArgs, &Progress, &mut Sheet),
    logs: &Path,
    (taken, round_of): (Taken, fn(u32) -> u32),
    [of_all, beside_floor]: [&'static str; 2],
) -> BenchResult<()> {
    let mut cluster = keepers(logs)?;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let mut all = |takes| -> BenchResult<f64> {
            let loads = for_each_keeper(|keeper| names_of(round_of(keeper), takes));
            warm_up(&mut cluster, &loads)?;
            cluster.run(&loads, WARM_UP)?;
            let ran = cluster.run(&loads, args.span())?;
            Ok(ran.iter().map(|ran| ran.rate()).sum())
        };
        let (rate, floor) = (all(taken)?, all(Taken::Floor)?);
        let size = KEEPERS as u32;
        sheet.note(size, Figure::rate(of_all), rate);
        sheet.note(size, Figure::rate("floor L, all members"), floor);
        let ratio = Figure::new(beside_floor, Unit::Times);
        let ratio = if taken == Taken::Lock { ratio.at_most(KEPT) } else { ratio };
        sheet.note(size, ratio, floor / rate);
        progress.step();
    }
    let order = BenchOrder::Take { times: COUNTED, shared: taken == Taken::Share };
    let (allocations, frames) = cluster.ask(1, &order, |report| match report {
        BenchReport::Took { allocations, frames } => Some((*allocations, *frames)),
        _ => None,
    })?;
    let each = |count: u64| count as f64 / COUNTED as f64;
    sheet.note(1, Figure::new("allocations of each", Unit::Count), each(allocations));
    sheet.note(
        1,
        Figure::new("messages of each", Unit::Count).at_most(MESSAGE_LIMIT),
        each(frames),
    );
    if each(frames) > MESSAGE_LIMIT {
        sheet.problems.push(format!("{COUNTED} kept locks or shares cost {frames} messages"));
    }
    Ok(())
}

/// Measures the same members when each also wants some names that the next one keeps, beside R.
/// They take locks as fast as they can, and then some locks each millisecond. The processors are
/// then mostly idle, as for members with machines of their own.
pub(crate) fn recalled(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = keepers(logs)?;
    let at = cluster.listener(0, &BenchOrder::Echo(false))?;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        for (paced, texts) in [false, true].into_iter().zip(RECALLED_TEXTS) {
            let floor = for_each_keeper(|keeper| match paced {
                true => Load::PacedPing { at, keeper },
                false => Load::PingPong { at, in_flight: 1, together: false },
            });
            let ran = cluster.run(&floor, args.span())?;
            let floor = percentile_99(&ran);
            for percent in ELSEWHERE {
                let own = for_each_keeper(|keeper| names_of(keeper, Taken::Lock));
                warm_up(&mut cluster, &own)?;
                let loads = for_each_keeper(|keeper| {
                    let keepers = KEEPERS as u32;
                    Load::Recalls(Affinity { names: NAMES, keeper, keepers, percent, paced })
                });
                let ran = cluster.run(&loads, args.span())?;
                let rate = ran.iter().map(LoadResult::rate).sum();
                let waited = percentile_99(&ran);
                sheet.note(percent, Figure::rate(texts[0]), rate);
                sheet.note(percent, Figure::time(texts[1]), waited);
                sheet.note(percent, Figure::time(texts[2]), floor);
                let ratio = Figure::new(texts[3], Unit::Times).at_most(RECALLED);
                sheet.note(percent, ratio, waited / floor);
            }
        }
        progress.step();
    }
    Ok(())
}

/// The 99th percentile of all timed locks.
fn percentile_99(ran: &[LoadResult]) -> f64 {
    let mut all = LoadResult::default();
    ran.iter().cloned().for_each(|ran| all.join(ran));
    let curve = all.spans.percentiles();
    curve.iter().find(|(share, _)| *share == 0.99).map_or(0.0, |(_, seconds)| *seconds)
}

/// A cluster in which the first member grants and all others keep locks.
fn keepers(logs: &Path) -> BenchResult<BenchCluster> {
    let mut cluster = BenchCluster::set(KEEPERS + 1, logs.to_owned())?;
    cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
    for keeper in 1..=KEEPERS {
        cluster.ask(keeper, &BenchOrder::Keep(true), BenchReport::done)?;
    }
    Ok(cluster)
}

/// A load for each keeper, made from its number.
fn for_each_keeper(load: impl Fn(u32) -> Load) -> Vec<(usize, Load)> {
    (1..=KEEPERS).map(|keeper| (keeper, load(keeper as u32))).collect()
}

/// The names of one keeper, which depend on the round, or as many entries of L.
fn names_of(round: u32, takes: Taken) -> Load {
    Load::Threads { threads: 1, names: NAMES, round, takes }
}

/// Runs each load until its member keeps its names. The members run one after the other. On few
/// processors, all at once would take longer for their names than a free keep lasts.
fn warm_up(cluster: &mut BenchCluster, loads: &[(usize, Load)]) -> BenchResult<()> {
    for load in loads {
        let mut taken = 0;
        while taken < TIMES * u64::from(NAMES) {
            taken += cluster.run(&[*load], WARM_UP)?[0].taken;
        }
    }
    Ok(())
}

/// Measures two members that want one name by turns, with and without keeping, in the same rounds.
pub(crate) fn in_turn(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = BenchCluster::set(3, logs.to_owned())?;
    cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
    let load = Load::Locks { tasks: 1, names: Names::One, timed: true };
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let mut rate = |keep| -> BenchResult<f64> {
            for member in [1, 2] {
                cluster.ask(member, &BenchOrder::Keep(keep), BenchReport::done)?;
            }
            Ok(rate_of_all(&cluster.run(&[(1, load), (2, load)], args.span())?, args))
        };
        let is_even = round % 2 == 0;
        let (mut with, mut without) = (0.0, 0.0);
        for keep in [is_even, !is_even] {
            *(if keep { &mut with } else { &mut without }) = rate(keep)?;
        }
        sheet.note(2, Figure::rate("hand-offs with keeping"), with);
        sheet.note(2, Figure::rate("hand-offs without it"), without);
        let share = Figure::new("rate with keeping / without", Unit::Share).at_least(IN_TURN);
        sheet.note(2, share, with / without);
        progress.step();
    }
    Ok(())
}

/// Measures the time from the kill of a keeper of a free lock to the grant to another member. The
/// host can vouch for the death.
pub(crate) fn keeper_dies(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    for round in 1..=args.rounds {
        for keep in [true, false] {
            progress.show(&format!("round {round} of {}", args.rounds));
            let time = until_granted(logs, keep, |cluster| Ok(cluster.kill(KEEPER)))?;
            let figure = match keep {
                true => {
                    Figure::time("keeper killed, until another has its lock").at_most(KEEPER_DEATH)
                }
                false => Figure::time("the same without keeping"),
            };
            sheet.note_time(KEEPERS as u32, figure, time);
            progress.step();
        }
    }
    Ok(())
}

/// Measures the time from the stop of a keeper of a free lock, by SIGSTOP, to the grant to another
/// member. Nothing can vouch for a death, so the member lease has to end.
pub(crate) fn keeper_pauses(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    for round in 1..=args.rounds {
        for keep in [true, false] {
            progress.show(&format!("round {round} of {}", args.rounds));
            let time = until_granted(logs, keep, |cluster| cluster.stop(KEEPER))?;
            let figure = match keep {
                true => "keeper paused, until another has its lock",
                false => "the same without keeping",
            };
            sheet.note_time(KEEPERS as u32, Figure::time(figure), time);
            progress.step();
        }
    }
    Ok(())
}

/// The time from the failure of a member, which has locked a name lately, to the grant of that name
/// to another member.
fn until_granted(
    logs: &Path,
    keep: bool,
    fail: impl FnOnce(&mut BenchCluster) -> BenchResult<u64>,
) -> BenchResult<Duration> {
    let waiter = 2;
    let mut cluster = BenchCluster::set(KEEPERS, logs.to_owned())?;
    cluster.ask(1, &BenchOrder::Become, BenchReport::did)?;
    cluster.ask(KEEPER, &BenchOrder::Keep(keep), BenchReport::done)?;
    cluster.pause(SETTLE)?;
    for _ in 0..TIMES {
        cluster.ask(KEEPER, &BenchOrder::HoldQueues(1), BenchReport::done)?;
        cluster.ask(KEEPER, &BenchOrder::FreeQueues, BenchReport::done)?;
    }
    cluster.pause(RELEASED)?;
    let from = fail(&mut cluster)?;
    cluster.order(waiter, &BenchOrder::Wait(vec![QueuedWaiter { queue: 0, waiter: 0 }]));
    let granted =
        cluster.any_report(
            "for another member to have the lock",
            |index, report| match report {
                BenchReport::Served(served) if index == waiter => Some(served[0].at),
                _ => None,
            },
        )?;
    Ok(between(from, granted))
}
