//! `ClusterBuilder`: a simulated cluster before it starts.

use crate::cluster::Cluster;
use crate::run::{Ending, RunPlan, run};
use elderlock::Timing;
use std::time::Duration;

/// The default of the longest time of a run by its own clock.
pub(crate) const TIME_LIMIT: Duration = Duration::from_secs(3_600);

/// The most members of a cluster.
pub(crate) const MOST_MEMBERS: usize = 32;

/// Makes a cluster of `members` whole members in one process, in simulated time.
///
/// Each member is a process of its own, with the runtime, the service and the recipes that ship.
/// Addresses, network and clocks are simulated, and no socket is used. Time passes as with tokio's
/// paused clock: it jumps when nothing is left to do.
///
/// # Panics
/// If there is no member, or if there are more than 32.
///
/// ```
/// use elderlock::LostReason;
/// use std::time::Duration;
///
/// elderlock_testing::cluster(3).seed(7).run(|cluster| async move {
///     let stock = cluster.member(0).lock_service("inventory").await.unwrap();
///     let guard = stock.lock("sku-42").await.unwrap();
///     cluster.isolate(0);
///     assert_eq!(guard.lost().await, LostReason::Suspended);
///     cluster.heal();
///     tokio::time::sleep(Duration::from_secs(10)).await;
///     let next = cluster.member(1).lock_service("inventory").await.unwrap();
///     assert!(next.lock("sku-42").await.unwrap().token() > guard.token());
/// });
/// ```
pub fn cluster(members: usize) -> ClusterBuilder {
    assert!(
        (1..=MOST_MEMBERS).contains(&members),
        "a cluster of {members} members: it has 1 to {MOST_MEMBERS}"
    );
    ClusterBuilder { members, seed: 1, timing: Timing::default(), limit: TIME_LIMIT }
}

/// A cluster that has not started, from [`cluster`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `run`"]
pub struct ClusterBuilder {
    members: usize,
    seed: u64,
    timing: Timing,
    limit: Duration,
}

impl ClusterBuilder {
    /// Sets the seed of all chance: the delays of packets and the order of tasks. Equal seeds and
    /// equal tests give equal runs. Default: 1.
    ///
    /// ```
    /// let packets = |seed| {
    ///     elderlock_testing::cluster(3).seed(seed).run(|cluster| async move { cluster.digest() })
    /// };
    /// assert_eq!(packets(7), packets(7));
    /// assert_ne!(packets(7), packets(8));
    /// ```
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    /// Sets the times of the members. Default: [`Timing::lan`], as for any member.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets the longest time of the run by its own clock. Default: an hour.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Starts the members, waits until all have joined, runs `test`, and ends everything. Returns
    /// what `test` returns. A failed run prints its story on stderr.
    ///
    /// `test` is outside of the members' processes: no fault ends or stops it. It runs in a tokio
    /// runtime of its own with a paused clock, on this thread. Call `run` outside of any tokio
    /// runtime: in a plain `#[test]`.
    ///
    /// # Panics
    /// If `test` or a program panics, a program ends with an error, or the time limit is reached.
    /// Also if the members do not find each other, which an invalid [`Timing`] may cause.
    pub fn run<T, F>(self, test: impl FnOnce(Cluster) -> F) -> T
    where
        F: Future<Output = T> + 'static,
        T: 'static,
    {
        let ClusterBuilder { members, seed, timing, limit } = self;
        let plan =
            RunPlan { members, timing, seed, luck: seed, limit, chaos: None, is_recorded: false };
        let run = run(&plan, test);
        match run.ending {
            Ending::Returned(output) => output,
            Ending::Failed(why) => {
                eprintln!("{}", run.story);
                panic!("seed {seed}: {why}");
            }
            Ending::WithoutQuorum => unreachable!("no fault was drawn"),
            Ending::Panicked(_, panic) => {
                eprintln!("{}", run.story);
                std::panic::resume_unwind(panic);
            }
        }
    }
}
