//! The time from the kill of a lock's holder to the grant to the next waiter, when the host can
//! vouch for the death. Three kinds of processes are killed: the holder alone, a holder that is the
//! grantor, and a holder that is elder and grantor.
//!
//! ```text
//! 0  elder
//! 1  grantor, unless the elder is
//! 2  waits
//! 3  holds many others
//! 4  holds, without another role
//! ```

use crate::clock::between;
use crate::cluster::{BenchCluster, BenchResult};
use crate::message::{BenchOrder, BenchReport, QueuedWaiter};
use crate::sheet::{Figure, Sheet};
use crate::{BenchArgs, Progress};
use std::path::Path;
use std::time::Duration;

/// The process that is killed.
pub(crate) struct Victim {
    /// The index of the holder; another member waits for its lock.
    index: usize,
    grantor: usize,
    figure: &'static str,
    pub(crate) target: f64,
}

/// The victim is the grantor and not the elder.
pub(crate) const GRANTOR: Victim =
    Victim { index: 1, grantor: 1, figure: "grantor killed, until the next has it", target: 0.025 };
pub(crate) const VICTIMS: [Victim; 3] = [
    Victim { index: 4, grantor: 1, figure: "holder killed, until the next has it", target: 0.010 },
    GRANTOR,
    Victim {
        index: 0,
        grantor: 0,
        figure: "elder and grantor killed, until the next has it",
        target: 0.075,
    },
];
pub(crate) const MEMBERS: usize = 5;
const WAITER: usize = 2;
const BYSTANDER: usize = 3;
/// The number of other held locks.
const HOLDS: u32 = 10_000;
/// The time until all messages are acknowledged and no member is about to move the table.
const SETTLE: Duration = Duration::from_millis(600);

/// Starts a new cluster for each kill, because a kill changes its cluster.
pub(crate) fn fail_over(
    args: &BenchArgs,
    logs: &Path,
    progress: &Progress,
    sheet: &mut Sheet,
) -> BenchResult<()> {
    for round in 1..=args.rounds {
        for victim in &VICTIMS {
            progress.show(&format!("round {round} of {}: {}", args.rounds, victim.figure));
            let figure = Figure::time(victim.figure).at_most(victim.target);
            let cluster = BenchCluster::set(MEMBERS, logs.to_owned())?;
            sheet.note_time(HOLDS, figure, victim.kill(cluster)?);
            progress.step();
        }
    }
    Ok(())
}

impl Victim {
    /// Kills the victim in a new cluster of [`MEMBERS`]. Returns the time until the next waiter has
    /// the lock.
    pub(crate) fn kill(&self, mut cluster: BenchCluster) -> BenchResult<Duration> {
        cluster.ask(self.grantor, &BenchOrder::Become, BenchReport::did)?;
        let before = cluster.ask(
            BYSTANDER,
            &BenchOrder::Hold { first: 0, count: HOLDS },
            BenchReport::holding,
        )?;
        cluster.ask(self.index, &BenchOrder::HoldQueues(1), BenchReport::done)?;
        cluster.order(WAITER, &BenchOrder::Wait(vec![QueuedWaiter { queue: 0, waiter: 0 }]));
        cluster.await_queued(BYSTANDER, 1, 1)?;
        cluster.pause(SETTLE)?;

        let from = cluster.kill(self.index);
        let granted = cluster.any_report(
            "for the next waiter to have the lock",
            |index, report| match report {
                BenchReport::Served(served) if index == WAITER => Some(served[0].at),
                _ => None,
            },
        )?;
        let after = cluster.ask(BYSTANDER, &BenchOrder::Check, BenchReport::holding)?;
        match before == after {
            true => Ok(between(from, granted)),
            false => Err(format!("member {BYSTANDER} held {before:?} and holds {after:?}")),
        }
    }
}
