//! The cost of many locks and of many waiters: memory, and time for each.

use crate::clock::between;
use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, Load, Names};
use crate::sheet::{Figure, Sheet, Unit};
use crate::{BenchArgs, Progress};
use std::path::Path;
use std::time::Duration;

/// The number of held locks at the reference: too few to have a cost.
const FEW_HELD: u32 = 1000;
/// The number of waiters at the reference: too few to have a cost.
const FEW_WAITING: u32 = 100;
/// The limit of bytes of a held lock, at the grantor and at the holder's member together.
const BYTES: f64 = 320.0;
/// The limit of the memory that stays at both members after one lock of each name. It allows a
/// tenth of a byte for each name, and the present messages between members.
const LEFT_BEHIND: f64 = 1024.0 * 1024.0;
/// The number of names before the first measurement of memory.
const WARM_UP: u32 = 100_000;
/// The limit of the slow-down of a lock and its release, as a multiple of L's slow-down.
const SLOWER: f64 = 1.3;
/// The limit of a waiter's cost, as a multiple of the cost with few waiters.
const NO_SCAN: f64 = 2.0;
/// The time until all messages have been acknowledged and dropped.
const SETTLE: Duration = Duration::from_millis(500);

const GRANTOR: usize = 0;
const HOLDER: usize = 1;

/// Returns the sizes from the fewest up to the ordered number, ten times as many each time.
pub(crate) fn tables(table: u32) -> Vec<u32> {
    let mut sizes: Vec<u32> = std::iter::successors(Some(FEW_HELD), |size| size.checked_mul(10))
        .take_while(|size| *size < table)
        .collect();
    sizes.push(table);
    sizes
}

/// A member holds locks that another member grants. The grantor's member takes and releases free
/// locks meanwhile. L is measured with as many held locks.
pub(crate) fn held(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = BenchCluster::set(2, logs.to_owned())?;
    cluster.ask(GRANTOR, &BenchOrder::Become, BenchReport::did)?;
    hold(&mut cluster, 0, FEW_HELD)?;
    let few = slow_down(&mut cluster, FEW_HELD, args, progress, sheet)?;
    let (mut there, mut memory) = (FEW_HELD, [0; 2]);
    for many in tables(args.table).into_iter().skip(1) {
        progress.show(&format!("{many} locks are taken"));
        // The count starts only now, because counting would slow the measured rates.
        count(&mut cluster, true)?;
        let before = allocated(&mut cluster)?;
        hold(&mut cluster, there, many - there)?;
        let after = allocated(&mut cluster)?;
        count(&mut cluster, false)?;
        there = many;
        for index in [GRANTOR, HOLDER] {
            memory[index] += after[index] - before[index];
        }
        let is_last = many == args.table;
        let each = |index: usize| memory[index] as f64 / f64::from(many - FEW_HELD);
        sheet.note(many, Figure::new("memory of each at the grantor", Unit::Bytes), each(GRANTOR));
        sheet.note(
            many,
            Figure::new("memory of each at the holder's member", Unit::Bytes),
            each(HOLDER),
        );
        let both = Figure::new("memory of each", Unit::Bytes);
        let both = if is_last { both.at_most(BYTES) } else { both };
        sheet.note(many, both, each(GRANTOR) + each(HOLDER));
        let full = slow_down(&mut cluster, many, args, progress, sheet)?;
        for ((few, few_floor), (full, full_floor)) in few.iter().zip(full) {
            let (slower, floor) = (few / full, few_floor / full_floor);
            sheet.note(
                many,
                Figure::new("lock and release, slower than with few", Unit::Times),
                slower,
            );
            sheet.note(many, Figure::new("floor L, slower than with few", Unit::Times), floor);
            let ratio = Figure::new("slower than L gets", Unit::Times);
            let ratio = if is_last { ratio.at_most(SLOWER) } else { ratio };
            sheet.note(many, ratio, slower / floor);
        }
    }
    Ok(())
}

fn hold(cluster: &mut BenchCluster, first: u32, count: u32) -> BenchResult<()> {
    cluster.ask(HOLDER, &BenchOrder::Hold { first, count }, BenchReport::holding).map(drop)
}

fn count(cluster: &mut BenchCluster, on: bool) -> BenchResult<()> {
    [GRANTOR, HOLDER]
        .into_iter()
        .try_for_each(|index| cluster.ask(index, &BenchOrder::Count(on), BenchReport::done))
}

fn allocated(cluster: &mut BenchCluster) -> BenchResult<[i64; 2]> {
    cluster.pause(SETTLE)?;
    Ok([cluster.usage(GRANTOR)?.allocated, cluster.usage(HOLDER)?.allocated])
}

/// The rate of free locks at the grantor's own member, and the rate of L, in each round.
fn slow_down(
    cluster: &mut BenchCluster,
    held: u32,
    args: &BenchArgs,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<Vec<(f64, f64)>> {
    let mut rounds = Vec::new();
    let names = Names::Scattered { held };
    let (locks, table) =
        (Load::Locks { tasks: 1, names, timed: false }, Load::Table { tasks: 1, names });
    let mut rate =
        |load| -> BenchResult<f64> { Ok(cluster.run(&[(GRANTOR, load)], args.span())?[0].rate()) };
    rate(table)?; // it fills its table first, which may take longer than a round
    for round in 1..=args.rounds {
        progress.show(&format!("{held} locks held, round {round} of {}", args.rounds));
        let (rate, floor) = (rate(locks)?, rate(table)?);
        if rate == 0.0 || floor == 0.0 {
            return Err(format!(
                "not one lock was taken in a round beside {held} held: give it more --millis"
            ));
        }
        sheet.note(held, Figure::time("lock and release, each"), 1.0 / rate);
        sheet.note(held, Figure::time("floor L, each"), 1.0 / floor);
        rounds.push((rate, floor));
        progress.step();
    }
    Ok(rounds)
}

/// Takes and releases locks of more and more names, each name once. No memory may stay in use.
pub(crate) fn names(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = BenchCluster::set(2, logs.to_owned())?;
    cluster.ask(GRANTOR, &BenchOrder::Become, BenchReport::did)?;
    count(&mut cluster, true)?;
    let mut first = 0;
    let mut pass = |cluster: &mut BenchCluster, index: usize, count: u32| -> BenchResult<f64> {
        let (from, to) =
            cluster.ask(index, &BenchOrder::Pass { first, count }, BenchReport::did)?;
        first += count;
        Ok(f64::from(count) / between(from, to).as_secs_f64())
    };
    // The first names create state that stays.
    for index in [GRANTOR, HOLDER] {
        pass(&mut cluster, index, WARM_UP)?;
    }
    let before = allocated(&mut cluster)?;
    let resident = resident(&mut cluster)?;
    let each = args.names.div_ceil(args.rounds);
    let mut more = 0.0;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        for (index, name) in [
            (GRANTOR, "names, at the grantor's own member"),
            (HOLDER, "names, from the other member"),
        ] {
            sheet.note(args.names, Figure::rate(name), pass(&mut cluster, index, each)?);
        }
        let after = allocated(&mut cluster)?;
        more = (after.iter().sum::<i64>() - before.iter().sum::<i64>()) as f64;
        sheet.note(
            args.names,
            Figure::new("memory in use, more than before", Unit::Bytes).at_most(LEFT_BEHIND),
            more,
        );
        let more = self::resident(&mut cluster)? - resident;
        sheet.note(args.names, Figure::new("resident memory, more than before", Unit::Bytes), more);
        progress.step();
    }
    if more > LEFT_BEHIND {
        sheet.problems.push(format!("{} released names take {more} bytes", 2 * args.names));
    }
    Ok(())
}

/// The memory of both members together, as the machine counts it.
fn resident(cluster: &mut BenchCluster) -> BenchResult<f64> {
    Ok((cluster.usage(GRANTOR)?.resident + cluster.usage(HOLDER)?.resident) as f64)
}

/// Many requests wait for one name. Half of them give up, from the middle, and the others are
/// granted one after the other.
pub(crate) fn waiters(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let many = args.queue.max(2 * FEW_WAITING);
    let mut cluster = BenchCluster::set(1, logs.to_owned())?;
    cluster.ask(GRANTOR, &BenchOrder::Become, BenchReport::did)?;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let mut few = None;
        for waiters in [FEW_WAITING, many] {
            let costs =
                cluster.ask(GRANTOR, &BenchOrder::Queue(waiters), |report| match report {
                    BenchReport::Queued { join, cancel, grant } => Some([*join, *cancel, *grant]),
                    _ => None,
                })?;
            for (name, nanos) in
                ["to join", "to give up", "to be granted it"].into_iter().zip(costs)
            {
                sheet.note_time(waiters, Figure::time(name), Duration::from_nanos(nanos));
            }
            let Some(few) = few.replace(costs) else { continue };
            let names = ["joining / with few", "giving up / with few", "grant / with few"];
            for ((name, few), many) in names.into_iter().zip(few).zip(costs) {
                let ratio = Figure::new(name, Unit::Times).at_most(NO_SCAN);
                sheet.note(waiters, ratio, many as f64 / few.max(1) as f64);
            }
        }
        progress.step();
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_table_is_the_one_that_was_ordered() {
        assert_eq!(tables(1_000_000), [1000, 10_000, 100_000, 1_000_000]);
        assert_eq!(tables(2_000_000), [1000, 10_000, 100_000, 1_000_000, 2_000_000]);
        assert_eq!(tables(2000), [1000, 2000]);
    }
}
