//! The cost of a release in messages while requests wait.

use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, QueuedWaiter, Usage};
use crate::sheet::{Figure, Sheet, Unit};
use crate::{BenchArgs, Progress};
use std::path::Path;
use std::time::Duration;

const GRANTOR: usize = 0;
const HOLDER: usize = 1;
const WAITER: usize = 2;
/// The number of waiters, all at one member. Each release comes from that member, or from the first
/// holder, and wakes the next waiter.
const WAITERS: u32 = 1000;
/// The number of locks.
const QUEUES: u32 = 10;
/// The expected messages: one with the release, and one with the grant.
const MESSAGES: f64 = 2.0;
/// The fewest rounds. A pause of the machine causes retransmissions in a round, which must not be
/// the median.
const ROUNDS: u32 = 5;
/// The time until all waiters have received their positions, which the grantor sends late.
const SETTLE: Duration = Duration::from_millis(100);
/// The share of messages that the members' constant traffic and acknowledgements may add.
const BESIDE: f64 = 0.1;

pub(crate) fn wake(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    let mut cluster = BenchCluster::set(3, logs.to_owned())?;
    cluster.ask(GRANTOR, &BenchOrder::Become, BenchReport::did)?;
    let rounds = args.rounds.max(ROUNDS);
    for round in 1..=rounds {
        progress.show(&format!("round {round} of {rounds}"));
        cluster.ask(HOLDER, &BenchOrder::HoldQueues(QUEUES), BenchReport::done)?;
        let waiters =
            (0..WAITERS).map(|waiter| QueuedWaiter { queue: waiter % QUEUES, waiter }).collect();
        cluster.order(WAITER, &BenchOrder::Wait(waiters));
        cluster.await_queued(GRANTOR, QUEUES, WAITERS)?;
        cluster.pause(SETTLE)?;

        let before = usages(&mut cluster)?;
        cluster.ask(HOLDER, &BenchOrder::FreeQueues, BenchReport::done)?;
        cluster.any_report("for the waiters to be served", |_, report| match report {
            BenchReport::Served(_) => Some(()),
            _ => None,
        })?;
        let after = usages(&mut cluster)?;

        let each = |count: u64| count as f64 / f64::from(WAITERS);
        let sent = |usages: &[Usage]| usages.iter().map(|usage| usage.frames_out).sum::<u64>();
        // The last release of each lock wakes no waiter, and is one message.
        let messages = each(sent(&after) - sent(&before) - u64::from(QUEUES));
        let heard = each(after[WAITER].frames_in - before[WAITER].frames_in);
        sheet.note(
            WAITERS,
            Figure::new("messages of a release", Unit::Count).at_most(MESSAGES + BESIDE),
            messages,
        );
        sheet.note(
            WAITERS,
            Figure::new("messages to waiters", Unit::Count).at_most(1.0 + BESIDE),
            heard,
        );
        // The bar does not count rounds beyond the ordered ones.
        if round <= args.rounds {
            progress.step();
        }
    }
    let missed = sheet.rows().iter().filter(|row| row.is_met() == Some(false));
    let missed: Vec<String> =
        missed.map(|row| format!("{}: {}", row.name(), row.show_range())).collect();
    sheet.problems.extend(missed.into_iter().map(|what| format!("with {WAITERS} waiting, {what}")));
    Ok(())
}

fn usages(cluster: &mut BenchCluster) -> BenchResult<Vec<Usage>> {
    [GRANTOR, HOLDER, WAITER].into_iter().map(|index| cluster.usage(index)).collect()
}
