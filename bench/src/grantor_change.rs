//! The time for which a service with a large table is without a grantor: in a transfer, a leave and
//! a recovery. The case `move` compares the gaps of a transfer and of a leave at several sizes.
//!
//! ```text
//! 0  elder, a third of the holds and of the waits
//! 1  grantor, with nothing of its own: each case happens to it, and then it becomes the
//!    grantor again
//! 2  a third of the holds and of the waits; the young turk
//! 3  a third of the holds and of the waits
//! 4  client: takes and releases free locks all the time, and holds those that others wait for
//! ```
//!
//! The gap is the longest wait of the client for a free lock. After a death the client also takes
//! many free locks at once, since a recovering grantor opens the names in parts. After each round
//! all holds are counted, at the holders and at the new grantor. Then all waiters are served in
//! their order.

use crate::clock::between;
use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, Event, Holdings, QueuedWaiter, Served};
use crate::sheet::{Figure, Sheet, Unit};
use crate::{BenchArgs, Progress};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

/// The operation that the grantor undergoes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum GrantorChange {
    Transfer,
    Leave,
    Recovery,
}

/// The indexes of the members with holds and waiters.
const HOLDERS: [usize; 3] = [0, 2, 3];
const GRANTOR: usize = 1;
const TURK: usize = 2;
const CLIENT: usize = 4;
const MEMBERS: usize = 5;
/// The number of locks that others wait for.
const QUEUES: u32 = 10;
/// The figure of the longest wait of the client.
const GAP: &str = "gap in service";
/// The time for which the client continues before and after the operation. A round trip and the
/// revalidation after a transfer end within it. Another grantor may follow (two `retry` of 200 ms).
const SETTLE: Duration = Duration::from_millis(600);
/// The target for the time until a young turk has won, and until a leaving member has left. It is
/// also the target for the longest wait of the client meanwhile.
const TARGET: Duration = Duration::from_millis(200);
/// The target for the longest wait for a free lock while the table moves, at each size of the case
/// `move`.
const MOVED: Duration = Duration::from_millis(10);
/// The target for that wait as a multiple of the wait with [`FEW_HELD`] held locks.
const NO_GROWTH: f64 = 1.5;
/// The number of held locks with which larger tables are compared.
const FEW_HELD: u32 = 10_000;
/// The target for the time from the view without the dead grantor to the first grant.
const RECOVERED: Duration = Duration::from_millis(30);
/// The target for the time to the grants of half of the names, as a part of the time to all.
const HALF: f64 = 0.5;
/// The number of free locks that the client takes at once after the death.
const SPREAD: u32 = 512;

pub(crate) fn transfer(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    measure(GrantorChange::Transfer, args, logs, progress, sheet)
}

pub(crate) fn leave(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    measure(GrantorChange::Leave, args, logs, progress, sheet)
}

pub(crate) fn recovery(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    measure(GrantorChange::Recovery, args, logs, progress, sheet)
}

/// Moves the table by a transfer and by a leave, in each round. The waits at each size are compared
/// with those at [`FEW_HELD`].
pub(crate) fn moved(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let kinds = [
        (GrantorChange::Transfer, "gap in a transfer", "gap in a transfer, / with 10,000"),
        (GrantorChange::Leave, "gap in a leave", "gap in a leave, / with 10,000"),
    ];
    at_each_size(&args.moves, args, (logs, progress), sheet, |run, holds, sheet| {
        for (kind, name, _) in kinds {
            let figures = run.round(kind)?;
            for (_, gap) in figures.iter().filter(|(figure, _)| figure.name == GAP) {
                sheet.note(holds, figure(name, Some(MOVED)), *gap);
            }
        }
        Ok(())
    })?;
    for (_, name, ratio) in kinds {
        let gaps: Vec<(u32, f64)> =
            sheet.figure(name).into_iter().map(|row| (row.size, row.median())).collect();
        let few = gaps.iter().find(|(holds, _)| *holds == FEW_HELD).map(|(_, gap)| *gap);
        for (holds, gap) in gaps.into_iter().filter(|(holds, _)| *holds > FEW_HELD) {
            let ratio = Figure::new(ratio, Unit::Times).at_most(NO_GROWTH);
            few.into_iter().for_each(|few| sheet.note(holds, ratio, gap / few));
        }
    }
    Ok(())
}

fn measure(
    kind: GrantorChange,
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    at_each_size(&args.holds, args, (logs, progress), sheet, |run, holds, sheet| {
        for (figure, value) in run.round(kind)? {
            sheet.note(holds, figure, value);
        }
        Ok(())
    })
}

/// Makes all rounds with each of these numbers of held locks. `measure`: makes one round, and notes
/// its figures.
fn at_each_size(
    sizes: &[u32],
    args: &BenchArgs,
    (logs, progress): (&Path, &Progress),
    sheet: &mut Sheet,
    mut measure: impl FnMut(&mut TakeoverRun, u32, &mut Sheet) -> BenchResult<()>,
) -> BenchResult<()> {
    sheet.notes.push(format!("{} requests wait", args.waiters));
    for &holds in sizes {
        progress.show(&format!("{holds} locks are taken"));
        let mut run = TakeoverRun::begin(holds, args.waiters, logs)?;
        for round in 1..=args.rounds {
            progress.show(&format!("{holds} locks held, round {round} of {}", args.rounds));
            measure(&mut run, holds, sheet)?;
            progress.step();
        }
    }
    Ok(())
}

/// A cluster with its holds.
struct TakeoverRun {
    cluster: BenchCluster,
    holds: u32,
    waiters: u32,
    /// The holdings of each of `HOLDERS`.
    held: Vec<Holdings>,
}

impl TakeoverRun {
    fn begin(holds: u32, waiters: u32, logs: &Path) -> BenchResult<TakeoverRun> {
        let mut cluster = BenchCluster::set(MEMBERS, logs.to_owned())?;
        cluster.ask(GRANTOR, &BenchOrder::Become, BenchReport::did)?;
        let mut held = Vec::new();
        for (number, &index) in (0..).zip(&HOLDERS) {
            let parts = HOLDERS.len() as u32;
            let (first, next) = (holds * number / parts, holds * (number + 1) / parts);
            held.push(cluster.ask(
                index,
                &BenchOrder::Hold { first, count: next - first },
                BenchReport::holding,
            )?);
        }
        Ok(TakeoverRun { cluster, holds, waiters, held })
    }

    fn round(&mut self, kind: GrantorChange) -> BenchResult<Vec<(Figure, f64)>> {
        let before = self.queue_up()?;
        self.cluster.ask(CLIENT, &BenchOrder::Probe, BenchReport::done)?;
        self.cluster.pause(SETTLE)?;
        let measured = match kind {
            GrantorChange::Transfer => self.transfer()?,
            GrantorChange::Leave => self.leave()?,
            GrantorChange::Recovery => self.recovery()?,
        };
        self.cluster.pause(SETTLE)?;
        let probes = self.cluster.ask(CLIENT, &BenchOrder::Rest, |report| match report {
            BenchReport::Probed(probes) => Some(probes.clone()),
            _ => None,
        })?;
        let figures = measured.figures(&probes)?;
        self.check()?;
        self.serve(&before)?;
        self.restore(kind)?;
        Ok(figures)
    }

    /// Starts all waiters. Returns the order of each queue.
    fn queue_up(&mut self) -> BenchResult<Vec<Vec<u32>>> {
        self.cluster.ask(CLIENT, &BenchOrder::HoldQueues(QUEUES), BenchReport::done)?;
        for (number, &index) in (0..).zip(&HOLDERS) {
            let own = (0..self.waiters).filter(|waiter| waiter % HOLDERS.len() as u32 == number);
            let waiters = own.map(|waiter| QueuedWaiter {
                queue: waiter / HOLDERS.len() as u32 % QUEUES,
                waiter,
            });
            self.cluster.order(index, &BenchOrder::Wait(waiters.collect()));
        }
        self.cluster.await_queued(CLIENT, QUEUES, self.waiters)?;
        Ok(self.look()?.1)
    }

    fn look(&mut self) -> BenchResult<(Holdings, Vec<Vec<u32>>)> {
        self.cluster.ask(CLIENT, &BenchOrder::Look(QUEUES), |report| match report {
            BenchReport::Seen { holdings, queues } => Some((*holdings, queues.clone())),
            _ => None,
        })
    }

    fn transfer(&mut self) -> BenchResult<Measured> {
        let (from, to) = self.cluster.ask(TURK, &BenchOrder::Become, BenchReport::did)?;
        Ok(Measured {
            from,
            to,
            what: vec![("until it is won", from, to, Some(TARGET))],
            recovered: None,
        })
    }

    fn leave(&mut self) -> BenchResult<Measured> {
        let (from, to) = self.cluster.ask(GRANTOR, &BenchOrder::Leave, BenchReport::did)?;
        let (acts, ..) = self.cluster.event(from, "a successor", grants)?;
        self.cluster.end(GRANTOR)?;
        let what = vec![
            ("until the successor grants", from, acts, Some(TARGET)),
            ("the leave", from, to, Some(TARGET)),
        ];
        Ok(Measured { from, to: acts.max(to), what, recovered: None })
    }

    fn recovery(&mut self) -> BenchResult<Measured> {
        let dead = self.cluster.process(GRANTOR).to_owned();
        let from = self.cluster.kill(GRANTOR);
        self.cluster.order(CLIENT, &BenchOrder::Spread(SPREAD));
        let (to, grantor, ()) = self.cluster.event(from, "a new grantor", grants)?;
        let (seen, ..) =
            self.cluster.event(from, "a view without the dead", |index, event| match event {
                Event::View(members) if index == grantor && !members.contains(&dead) => Some(()),
                _ => None,
            })?;
        let what = vec![("until the death is known", from, seen, None)];
        let mut grants = self.cluster.any_report("for free locks", |_, report| match report {
            BenchReport::Probed(probes) => {
                Some(probes.iter().map(|(_, granted)| *granted).collect::<Vec<u64>>())
            }
            _ => None,
        })?;
        // The dead grantor may have granted some of them.
        grants.retain(|granted| *granted > seen);
        grants.sort_unstable();
        Ok(Measured { from, to, what, recovered: Some((seen, grants)) })
    }

    /// Checks that all holds exist, at the holders and at the grantor.
    fn check(&mut self) -> BenchResult<()> {
        let mut all = Holdings::default();
        for (index, before) in HOLDERS.iter().zip(self.held.clone()) {
            let now = self.cluster.ask(*index, &BenchOrder::Check, BenchReport::holding)?;
            if now != before {
                return Err(format!("member {index} held {before:?} and holds {now:?}"));
            }
            all.join(now);
        }
        let (seen, _) = self.look()?;
        if seen != all || all.count != self.holds {
            return Err(format!(
                "{} locks were taken, {all:?} are held and the grantor sees {seen:?}",
                self.holds
            ));
        }
        Ok(())
    }

    /// Waits until all waiters are served, in order.
    fn serve(&mut self, before: &[Vec<u32>]) -> BenchResult<()> {
        self.cluster.ask(CLIENT, &BenchOrder::FreeQueues, BenchReport::done)?;
        let mut served: Vec<BTreeMap<i64, u32>> = vec![BTreeMap::new(); QUEUES as usize];
        // The waiters of any member may be the last, so they are awaited in any order.
        let mut open = HOLDERS.to_vec();
        while !open.is_empty() {
            let (index, grants) =
                self.cluster.any_report("for the waiters to be served", |index, report| {
                    match report {
                        BenchReport::Served(grants) if open.contains(&index) => {
                            Some((index, grants.clone()))
                        }
                        _ => None,
                    }
                })?;
            open.retain(|other| *other != index);
            for Served { waiter: QueuedWaiter { queue, waiter }, token, .. } in grants {
                served[queue as usize].insert(token, waiter);
            }
        }
        let served: Vec<Vec<u32>> =
            served.into_iter().map(|queue| queue.into_values().collect()).collect();
        match served == before {
            true => Ok(()),
            false => Err("the waiters were not served in their order".to_owned()),
        }
    }

    /// Makes member 1 the grantor again, and lets any older transfer end before the next round.
    fn restore(&mut self, kind: GrantorChange) -> BenchResult<()> {
        if kind != GrantorChange::Transfer {
            self.cluster.enter(GRANTOR)?;
        }
        self.cluster.ask(GRANTOR, &BenchOrder::Become, BenchReport::did)?;
        self.cluster.pause(SETTLE)
    }
}

/// The measurements of one round, without the client's.
struct Measured {
    /// The beginning and the end of the measured time.
    from: u64,
    to: u64,
    /// Each figure: its name, its beginning, its end, and its target.
    what: Vec<(&'static str, u64, u64, Option<Duration>)>,
    /// The time at which the new grantor saw that the old one was gone, and the times of its
    /// grants of free locks.
    recovered: Option<(u64, Vec<u64>)>,
}

impl Measured {
    fn figures(self, probes: &[(u64, u64)]) -> BenchResult<Vec<(Figure, f64)>> {
        let Measured { from, to, mut what, recovered } = self;
        let is_recovery = recovered.is_some();
        let mut shares = Vec::new();
        if let Some((seen, grants)) = recovered {
            let (Some(first), Some(half), Some(last)) =
                (grants.first(), grants.get(grants.len() / 2), grants.last())
            else {
                return Err("the client was granted nothing more".to_owned());
            };
            what.push(("from then to the first grant", seen, *first, Some(RECOVERED)));
            what.push(("to the grants of half of the names", seen, *half, None));
            what.push(("to the grants of all names", seen, *last, None));
            let [half, all] = [half, last].map(|at| between(seen, *at).as_secs_f64());
            let figure = Figure::new("half of the names, of all", Unit::Share);
            shares.push((figure.at_most(HALF), half / all));
        }
        let mut figures: Vec<(Figure, f64)> = what
            .into_iter()
            .map(|(name, from, to, target)| (figure(name, target), between(from, to).as_secs_f64()))
            .chain(shares)
            .collect();
        let end = to + SETTLE.as_nanos() as u64 / 2;
        let during = probes.iter().filter(|(asked, granted)| *granted >= from && *asked <= end);
        let gap = during.map(|(asked, granted)| between(*asked, *granted)).max();
        let target = (!is_recovery).then_some(TARGET);
        let gap = gap.ok_or("the client asked for nothing")?;
        figures.push((figure(GAP, target), gap.as_secs_f64()));
        Ok(figures)
    }
}

fn figure(name: &'static str, target: Option<Duration>) -> Figure {
    let figure = Figure::time(name);
    target.map_or(figure, |target| figure.at_most(target.as_secs_f64()))
}

fn grants(_: usize, event: &Event) -> Option<()> {
    (*event == Event::BecameGrantor).then_some(())
}
