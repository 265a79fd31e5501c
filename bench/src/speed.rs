//! Locks in a second: at the grantor's own member, from another member, and when all members want
//! the same lock. A floor is measured beside each in the same processes and the same round.

use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, Load, LoadResult, Names, Taken};
use crate::sheet::{Figure, Sheet, Unit};
use crate::{BenchArgs, Progress};
use std::path::Path;

/// The limit of a lock and its release, as a multiple of L.
const LOCAL: f64 = 2.5;
/// The target for the scaling to two threads, as a share of L's.
const SCALING: f64 = 0.9;
/// The limit of a lock and its release from another member, in round trips of R.
const REMOTE: f64 = 1.3;
/// The number of names of each thread.
const OWN: u32 = 16;
/// The target as a share of R's rate with as many frames in flight.
const REMOTE_MANY: f64 = 0.5;
/// The target as a share of H's rate.
const CONTENDED: f64 = 0.6;
/// The target for the slowest member that wants one name, as a share of the fastest one's rate.
const EVEN: f64 = 0.95;
/// The number of members that want one name.
pub(crate) const CONTENDERS: usize = 8;
/// The numbers of tasks. For each number the rate of all tasks together is measured.
const TASKS: [u32; 4] = [1, 4, 16, 64];
/// The number of locks over which allocations and messages are counted.
const TIMES: u64 = 10_000;
/// The share that the member's other work may add to the count of each lock.
const BESIDE: f64 = 0.01;
/// The number of allocations of each lock that is taken for a leak. The member's other work never
/// needs as many, however slow the machine is.
const LEAKY: f64 = 0.5;

/// Measures at the grantor's own member, beside L: one task and two. Each task is on a thread with
/// a runtime of its own, because a task that yields wakes no other runtime.
pub(crate) fn local(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = BenchCluster::set(1, logs.to_owned())?;
    cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
    let mut rate =
        |load| -> BenchResult<f64> { Ok(cluster.run(&[(0, load)], args.span())?[0].rate()) };
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let mut both = |threads, names| -> BenchResult<[f64; 2]> {
            let mut rate = |takes| rate(Load::Threads { threads, names, round, takes });
            Ok([rate(Taken::Lock)?, rate(Taken::Floor)?])
        };
        let [one, floor] = both(1, OWN)?;
        let [two, floor_of_two] = both(2, OWN)?;
        sheet.note(1, Figure::time("lock and release, each"), 1.0 / one);
        sheet.note(1, Figure::time("floor L, each"), 1.0 / floor);
        sheet.note(1, Figure::new("lock and release / L", Unit::Times).at_most(LOCAL), floor / one);
        for (threads, rate, floor) in [(1, one, floor), (2, two, floor_of_two)] {
            sheet.note(threads, Figure::rate("lock and release"), rate);
            sheet.note(threads, Figure::rate("floor L"), floor);
        }
        let scaling = (two / one) / (floor_of_two / floor);
        sheet.note(2, Figure::new("scaling / that of L", Unit::Share).at_least(SCALING), scaling);
        // Two threads slow each other down where their names share a shard, in L and in elderlock.
        // With one name each that is chance, which each round draws again.
        let [[one, floor], [two, floor_of_two]] = [both(1, 1)?, both(2, 1)?];
        for (threads, rate, floor) in [(1, one, floor), (2, two, floor_of_two)] {
            sheet.note(threads, Figure::rate("lock and release, one name each"), rate);
            sheet.note(threads, Figure::rate("floor L, one name each"), floor);
        }
        let scaling = (two / one) / (floor_of_two / floor);
        sheet.note(
            2,
            Figure::new("scaling / that of L, one name each", Unit::Share).at_least(SCALING),
            scaling,
        );
        progress.step();
    }

    let (allocations, frames) = cluster.ask(
        0,
        &BenchOrder::Take { times: TIMES, shared: false },
        |report| match report {
            BenchReport::Took { allocations, frames } => Some((*allocations, *frames)),
            _ => None,
        },
    )?;
    let each = |count: u64| count as f64 / TIMES as f64;
    sheet.note(
        1,
        Figure::new("allocations of each", Unit::Count).at_most(BESIDE),
        each(allocations),
    );
    sheet.note(1, Figure::new("messages of each", Unit::Count).at_most(BESIDE), each(frames));
    if each(frames) > BESIDE {
        sheet
            .problems
            .push(format!("{TIMES} free locks at the grantor's own member cost {frames} messages"));
    }
    if each(allocations) > LEAKY {
        let each = each(allocations);
        sheet.problems.push(format!(
            "a free lock at the grantor's own member asks for memory {each:.2} times"
        ));
    }
    Ok(())
}

/// Measures from another member, one lock after the other, beside R.
pub(crate) fn remote(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut pair = Pair::set(logs)?;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let (locks, floor) = (pair.locks(1, args)?, pair.floor(1, args)?);
        sheet.note(1, Figure::time("lock and release, each"), 1.0 / locks.rate());
        sheet.note(1, Figure::time("floor R, each"), 1.0 / floor.rate());
        let ratio = floor.rate() / locks.rate();
        sheet.note(1, Figure::new("lock and release / R", Unit::Times).at_most(REMOTE), ratio);
        sheet.trace("lock and release", locks.spans.percentiles());
        sheet.trace("floor R", floor.spans.percentiles());
        progress.step();
    }
    Ok(())
}

/// Measures from another member with up to 64 concurrent tasks, beside R with as many frames in
/// flight.
pub(crate) fn remote_many(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut pair = Pair::set(logs)?;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        for tasks in TASKS {
            let (locks, floor, most) =
                (pair.locks(tasks, args)?, pair.floor(tasks, args)?, pair.most(tasks, args)?);
            sheet.note(tasks, Figure::rate("lock and release"), locks.rate());
            sheet.note(tasks, Figure::rate("floor R"), floor.rate());
            sheet.note(tasks, Figure::rate("R, in one write what one read brought"), most.rate());
            let share = Figure::new("rate / R", Unit::Share);
            let share =
                if Some(&tasks) == TASKS.last() { share.at_least(REMOTE_MANY) } else { share };
            sheet.note(tasks, share, locks.rate() / floor.rate());
            if Some(&tasks) == TASKS.last() {
                sheet.trace("lock and release, 64 tasks", locks.spans.percentiles());
            }
        }
        progress.step();
    }
    Ok(())
}

/// The allocations of a free lock and its release at the grantor's own member.
pub(crate) fn allocations_of_each(cluster: &mut BenchCluster) -> BenchResult<f64> {
    let allocations = cluster.ask(
        0,
        &BenchOrder::Take { times: TIMES, shared: false },
        |report| match report {
            BenchReport::Took { allocations, .. } => Some(*allocations),
            _ => None,
        },
    )?;
    Ok(allocations as f64 / TIMES as f64)
}

/// The runs of the [`CONTENDERS`] members that all want one name.
pub(crate) fn fight(cluster: &mut BenchCluster, args: &BenchArgs) -> BenchResult<Vec<LoadResult>> {
    let load = Load::Locks { tasks: 1, names: Names::One, timed: true };
    let fighters: Vec<(usize, Load)> = (1..=CONTENDERS).map(|place| (place, load)).collect();
    cluster.run(&fighters, args.span())
}

/// The locks of all these members together in a second.
pub(crate) fn rate_of_all(ran: &[LoadResult], args: &BenchArgs) -> f64 {
    ran.iter().map(|ran| ran.taken as f64).sum::<f64>() / args.span().as_secs_f64()
}

/// Two members: the grantor, and a member that wants its locks.
pub(crate) struct Pair {
    cluster: BenchCluster,
    echo: std::net::SocketAddr,
    /// The process that answers all frames of one read together.
    echo_together: std::net::SocketAddr,
}

impl Pair {
    fn set(logs: &Path) -> BenchResult<Pair> {
        let mut cluster = BenchCluster::set(2, logs.to_owned())?;
        cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
        Pair::of(cluster)
    }

    /// Makes the pair of a cluster whose member in place 0 is the grantor.
    pub(crate) fn of(mut cluster: BenchCluster) -> BenchResult<Pair> {
        let echo = cluster.listener(0, &BenchOrder::Echo(false))?;
        let echo_together = cluster.listener(0, &BenchOrder::Echo(true))?;
        Ok(Pair { cluster, echo, echo_together })
    }

    pub(crate) fn locks(&mut self, tasks: u32, args: &BenchArgs) -> BenchResult<LoadResult> {
        self.run(Load::Locks { tasks, names: Names::Own, timed: true }, args)
    }

    fn floor(&mut self, in_flight: u32, args: &BenchArgs) -> BenchResult<LoadResult> {
        self.run(Load::PingPong { at: self.echo, in_flight, together: false }, args)
    }

    fn most(&mut self, in_flight: u32, args: &BenchArgs) -> BenchResult<LoadResult> {
        self.run(Load::PingPong { at: self.echo_together, in_flight, together: true }, args)
    }

    fn run(&mut self, load: Load, args: &BenchArgs) -> BenchResult<LoadResult> {
        Ok(self.cluster.run(&[(1, load)], args.span())?.remove(0))
    }
}

/// Measures eight members that want one name, beside H. None of them grants it.
pub(crate) fn contended(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = BenchCluster::set(CONTENDERS + 1, logs.to_owned())?;
    cluster.ask(0, &BenchOrder::Become, BenchReport::did)?;
    let size = CONTENDERS as u32;
    for round in 1..=args.rounds {
        progress.show(&format!("round {round} of {}", args.rounds));
        let fought = fight(&mut cluster, args)?;

        let at = cluster.listener(0, &BenchOrder::Hub(size))?;
        let rim: Vec<(usize, Load)> =
            (1..=CONTENDERS).map(|index| (index, Load::Spoke { at, brings: index == 1 })).collect();
        let passed = cluster.run(&rim, args.span())?;

        let (rate, floor) = (rate_of_all(&fought, args), rate_of_all(&passed, args));
        sheet.note(size, Figure::rate("hand-offs"), rate);
        sheet.note(size, Figure::rate("floor H"), floor);
        sheet.note(size, Figure::new("rate / H", Unit::Share).at_least(CONTENDED), rate / floor);
        let each = fought.iter().map(|ran| ran.taken);
        let (slowest, fastest) = (each.clone().min().unwrap_or(0), each.max().unwrap_or(0));
        let even = Figure::new("slowest member / fastest", Unit::Share).at_least(EVEN);
        sheet.note(size, even, slowest as f64 / fastest.max(1) as f64);
        let mut all = LoadResult::default();
        fought.into_iter().for_each(|ran| all.join(ran));
        sheet.trace("wait, hold and release", all.spans.percentiles());
        progress.step();
    }
    Ok(())
}
