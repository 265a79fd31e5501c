//! `Chaos`: a test under faults that are drawn from many seeds.

use crate::cluster::Cluster;
use crate::cluster_builder::MOST_MEMBERS;
use crate::fault_plan::{FaultPlan, PlannedFault};
use crate::quiet::quietly;
use crate::report::{ReportFolder, page};
use crate::run::{Ending, Run, RunPlan, run};
use crate::run_record::RecordedRun;
use crate::simulation::reduce::reduce;
use crate::simulation::seeds::on_all_cores;
use crate::verdict::Verdict;
use elderlock::Timing;
use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most runs that shrinking takes.
const MOST_RUNS: usize = 200;

/// The most lines of the story that a message shows.
const SHOWN: usize = 120;

/// The variable with the only seed to run.
const SEED: &str = "ELDERLOCK_TESTING_SEED";
/// The variable with the number of seeds.
const SEEDS: &str = "ELDERLOCK_TESTING_SEEDS";
/// The variable with the numbers of the faults that occur.
const FAULTS: &str = "ELDERLOCK_TESTING_FAULTS";
/// The variable with the folder of reports.
const REPORTS: &str = "ELDERLOCK_TESTING_REPORTS";

/// A test of a program under faults. `test` runs once for each seed, in a cluster of its own, on
/// all cores of the machine. The seed draws the faults: members that crash, leave and stop, and a
/// network that is cut, slow or lossy. They occur for [`span`](Chaos::span); then all of them end.
///
/// `test` gets the cluster and the seed. It makes the resources, runs the programs in the processes
/// of the members, waits until the cluster has [healed](Cluster::healed), and judges. It fails by a
/// panic or an error, of itself or of a program.
///
/// A failure has a report: a page of HTML with the shrunk run on an axis of time, for any browser.
/// See [`report_folder`](Chaos::report_folder).
///
/// Environment variables repeat a run, or raise the number of seeds, without a change of the test:
///
/// | variable | effect |
/// |---|---|
/// | `ELDERLOCK_TESTING_SEED=17` | runs this seed only, and prints its story |
/// | `ELDERLOCK_TESTING_SEEDS=10000` | runs this number of seeds |
/// | `ELDERLOCK_TESTING_FAULTS=2,5` | of each seed only the faults of these numbers; `none`: no fault |
/// | `ELDERLOCK_TESTING_REPORTS=folder` | writes reports there; `none`: writes none |
///
/// Equal seeds give equal runs as long as the program takes all chance from the cluster. So a
/// program has no `tokio::select!` without `biased`, no order of a `HashMap`, no other thread, and
/// no clock except tokio's.
///
/// ```
/// use elderlock::{Member, TokenGate};
/// use elderlock_testing::chaos;
/// use std::cell::RefCell;
/// use std::rc::Rc;
/// use std::time::Duration;
///
/// /// Sells one piece, under the lock and past the gate.
/// async fn sell(member: &Member, store: &RefCell<(u32, TokenGate)>) -> Option<()> {
///     let stock = member.lock_service("inventory").await.ok()?;
///     let guard = stock.lock("sku-42").await.ok()?;
///     let (token, lineage) = (guard.fence().ok()?, guard.lineage());
///     store.borrow_mut().1.admit(token, lineage).ok()?;
///     let left = store.borrow().0;
///     tokio::time::sleep(Duration::from_millis(200)).await; // the customer pays
///     store.borrow_mut().1.admit(token, lineage).ok()?;
///     store.borrow_mut().0 = left.checked_sub(1)?;
///     Some(())
/// }
///
/// chaos(|cluster, _| async move {
///     let store = Rc::new(RefCell::new((10, TokenGate::new())));
///     let sold = Rc::new(RefCell::new(0));
///     cluster.run_on_each({
///         let (store, sold) = (store.clone(), sold.clone());
///         move |_, member| {
///             let (store, sold) = (store.clone(), sold.clone());
///             async move {
///                 for _ in 0..4 {
///                     if sell(&member, &store).await.is_some() {
///                         *sold.borrow_mut() += 1;
///                     }
///                     tokio::time::sleep(Duration::from_secs(2)).await;
///                 }
///             }
///         }
///     });
///     cluster.healed().await;
///     tokio::time::sleep(Duration::from_secs(30)).await;
///     let (store, sold) = (store.borrow(), *sold.borrow());
///     if store.0 + sold != 10 { Err(format!("{} left, {sold} sold", store.0)) } else { Ok(()) }
/// })
/// .seeds(10)
/// .run();
/// ```
pub fn chaos<F, R>(test: F) -> Chaos<F>
where
    F: Fn(Cluster, u64) -> R + Sync,
    R: Future + 'static,
    R::Output: Verdict + 'static,
{
    Chaos {
        test,
        members: 3,
        seeds: 200,
        timing: Timing::default(),
        span: Duration::from_secs(30),
        limit: Duration::from_secs(600),
        reports: ReportFolder::Default,
    }
}

/// A chaos test that has not begun, from [`chaos`].
#[derive(Clone, Debug)]
#[must_use = "nothing happens before `run` or `search`"]
pub struct Chaos<F> {
    test: F,
    members: usize,
    seeds: u64,
    timing: Timing,
    span: Duration,
    limit: Duration,
    reports: ReportFolder,
}

impl<F, R> Chaos<F>
where
    F: Fn(Cluster, u64) -> R + Sync,
    R: Future + 'static,
    R::Output: Verdict + 'static,
{
    /// Sets the number of members of each cluster. Default: 3. With fewer members no process is
    /// lost.
    ///
    /// # Panics
    /// If `members` is zero or more than 32.
    pub fn members(mut self, members: usize) -> Self {
        assert!((1..=MOST_MEMBERS).contains(&members), "1 to {MOST_MEMBERS} members");
        self.members = members;
        self
    }

    /// Sets the number of seeds; they count from 1. Default: 200. `ELDERLOCK_TESTING_SEEDS`
    /// overrides it.
    pub fn seeds(mut self, seeds: u64) -> Self {
        self.seeds = seeds;
        self
    }

    /// Sets the times of the members. Default: [`Timing::lan`]. Faults last up to three member
    /// leases.
    pub fn timing(mut self, timing: Timing) -> Self {
        self.timing = timing;
        self
    }

    /// Sets the time for which faults occur, by the clock of the run. Default: 30 s.
    pub fn span(mut self, span: Duration) -> Self {
        self.span = span;
        self
    }

    /// Sets the longest time of a run by its own clock. A test that runs longer fails. Default: 600
    /// s.
    pub fn time_limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Sets the folder of failure reports. Default: the folder `elderlock-testing` in cargo's
    /// target directory. A file name has the names of the test program and the test, and the seed.
    /// `ELDERLOCK_TESTING_REPORTS` overrides the folder.
    ///
    /// ```
    /// use elderlock_testing::chaos;
    /// let folder = std::env::temp_dir().join("elderlock-testing-reports");
    /// let failure = chaos(|_, _| async { Err::<(), _>("sold out") })
    ///     .report_folder(&folder)
    ///     .seeds(1)
    ///     .search()
    ///     .expect("it always fails");
    /// assert!(failure.report().is_some_and(|report| report.starts_with(&folder)));
    /// ```
    pub fn report_folder(mut self, folder: impl Into<PathBuf>) -> Self {
        self.reports = ReportFolder::At(folder.into());
        self
    }

    /// Runs the seeds and prints their number.
    ///
    /// # Panics
    /// If a seed fails, with the [failure](ChaosFailure) as the message. If a variable of the
    /// environment cannot be read.
    pub fn run(&self) {
        let began = Instant::now();
        let (seeds, failure) = self.look();
        if let Some(failure) = failure {
            panic!("{failure}");
        }
        println!("{seeds} seeds held in {:.1} s", began.elapsed().as_secs_f64());
    }

    /// Runs seeds until one of them fails: for a test which shows that a defect is found. Returns
    /// the failure with the lowest seed.
    ///
    /// # Panics
    /// If a variable of the environment cannot be read.
    pub fn search(&self) -> Option<ChaosFailure> {
        self.look().1
    }

    /// The number of seeds that ran, and the failure with the lowest seed.
    fn look(&self) -> (u64, Option<ChaosFailure>) {
        let only: Option<u64> = variable(SEED);
        let seeds = only.map_or_else(|| variable(SEEDS).unwrap_or(self.seeds), |_| 1);
        let first = only.unwrap_or(1);
        let found: Mutex<BTreeMap<u64, SeedFailure>> = Mutex::default();
        on_all_cores(first, seeds, |seed| {
            let run = self.run_seed(seed, &self.plan(seed));
            if only.is_some() {
                eprintln!("{}", run.story);
            }
            if let Some(failure) = run.failure {
                found.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, failure);
            }
            !found.lock().unwrap_or_else(PoisonError::into_inner).is_empty()
        });
        let found = found.into_inner().unwrap_or_else(PoisonError::into_inner).pop_first();
        (seeds, found.map(|(seed, failure)| self.shrink(seed, failure)))
    }

    /// The faults of the seed that the environment does not exclude.
    fn plan(&self, seed: u64) -> FaultPlan {
        let plan = FaultPlan::draw(seed, self.members, self.timing, self.span);
        match variable::<FaultNumbers>(FAULTS) {
            Some(FaultNumbers(kept)) => plan.only(&kept),
            None => plan,
        }
    }

    fn run_seed(&self, seed: u64, faults: &FaultPlan) -> SeedRun {
        self.carry_out(seed, faults, false)
    }

    fn carry_out(&self, seed: u64, faults: &FaultPlan, is_recorded: bool) -> SeedRun {
        let plan = RunPlan {
            members: self.members,
            timing: self.timing,
            seed,
            luck: seed,
            limit: self.limit,
            chaos: Some(faults.clone()),
            is_recorded,
        };
        let (Run { ending, story, digest, record }, place) =
            quietly(|| run(&plan, |cluster| (self.test)(cluster, seed)));
        let failure = match ending {
            Ending::Returned(output) => output.failure().map(|why| SeedFailure { why, place }),
            Ending::Failed(why) => Some(SeedFailure { why, place }),
            Ending::Panicked(why, _) => Some(SeedFailure { why, place }),
            Ending::WithoutQuorum => None,
        };
        SeedRun { failure, story, digest, record }
    }

    /// Leaves out the faults that the failure does not need.
    fn shrink(&self, seed: u64, found: SeedFailure) -> ChaosFailure {
        let whole = self.plan(seed);
        let again = self.carry_out(seed, &whole, true);
        let repeats = again.digest == self.run_seed(seed, &whole).digest;
        let is_same = |run: &SeedRun| {
            run.failure.as_ref().is_some_and(|failure| failure.place == found.place)
        };
        let mut runs = MOST_RUNS;
        let kept = reduce(&whole.numbers(), &mut runs, |kept| {
            is_same(&self.run_seed(seed, &whole.only(kept)))
        });
        // If no smaller plan fails, the whole plan may not fail either: the program has a chance of
        // its own.
        let small = self.carry_out(seed, &whole.only(&kept), true);
        let (SeedFailure { why, place }, SeedRun { story, record, .. }) = match small.failure {
            Some(failure) => (failure, SeedRun { failure: None, ..small }),
            None => (found, again),
        };
        let (faults, needed) = (whole.faults, kept);
        let report = Err(String::new());
        let mut failure = ChaosFailure { seed, why, place, story, faults, needed, repeats, report };
        if let Some(record) = record {
            failure.report = self.write_report(&failure, record);
        }
        failure
    }

    /// Writes the page and returns its path. `Err` is the reason why there is none.
    fn write_report(
        &self,
        failure: &ChaosFailure,
        mut record: RecordedRun,
    ) -> Result<PathBuf, String> {
        record.fail(&failure.why);
        let folder = variable(REPORTS).unwrap_or_else(|| self.reports.clone());
        folder.write(failure.seed, &page(failure, &record))
    }
}

/// A run of a seed.
struct SeedRun {
    failure: Option<SeedFailure>,
    story: String,
    digest: u64,
    record: Option<RecordedRun>,
}

struct SeedFailure {
    why: String,
    /// The place of the panic in the sources.
    place: Option<String>,
}

/// Numbers of faults, as the environment has them.
struct FaultNumbers(Vec<usize>);

impl FromStr for FaultNumbers {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<FaultNumbers, Self::Err> {
        if text == "none" {
            return Ok(FaultNumbers(Vec::new()));
        }
        text.split(',')
            .map(|number| number.trim().parse())
            .collect::<Result<_, _>>()
            .map(FaultNumbers)
    }
}

/// The value of a variable of the environment.
fn variable<T: FromStr<Err: fmt::Display>>(name: &str) -> Option<T> {
    let text = std::env::var(name).ok().filter(|text| !text.is_empty())?;
    match text.parse() {
        Ok(value) => Some(value),
        Err(error) => panic!("{name}={text}: {error}"),
    }
}

/// A seed that failed, with the faults that its failure needs. The [`Display`](fmt::Display) text
/// has the reason, the end of the story, the faults, and how to repeat the run.
#[derive(Clone, Debug)]
pub struct ChaosFailure {
    seed: u64,
    why: String,
    place: Option<String>,
    story: String,
    faults: Vec<PlannedFault>,
    needed: Vec<usize>,
    repeats: bool,
    /// The file of the report. `Err` is the reason why there is none.
    report: Result<PathBuf, String>,
}

impl ChaosFailure {
    /// The seed.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// The message of the panic or of the error.
    pub fn reason(&self) -> &str {
        &self.why
    }

    /// The story of the shrunk run, a line for each event with its time in seconds.
    pub fn story(&self) -> &str {
        &self.story
    }

    /// The numbers of the faults that the failure needs, for `ELDERLOCK_TESTING_FAULTS`. Empty if
    /// it needs none.
    pub fn faults(&self) -> &[usize] {
        &self.needed
    }

    /// The file with the report of the shrunk run. `None` if none was wanted or it could not be
    /// written; the [`Display`](fmt::Display) text tells which.
    pub fn report(&self) -> Option<&Path> {
        self.report.as_deref().ok()
    }

    /// All faults of the seed.
    pub(crate) fn drawn_faults(&self) -> &[PlannedFault] {
        &self.faults
    }

    /// Returns the place of the panic.
    pub(crate) fn place(&self) -> Option<&str> {
        self.place.as_deref()
    }

    /// The command that repeats the failure.
    pub(crate) fn command(&self) -> String {
        let numbers: Vec<String> = self.needed.iter().map(usize::to_string).collect();
        let numbers = if numbers.is_empty() { "none".to_owned() } else { numbers.join(",") };
        format!("{SEED}={} {FAULTS}={numbers} cargo test", self.seed)
    }

    /// Returns whether the seed gave equal runs each time. If not, the program has a chance of its
    /// own, see [`chaos`].
    pub fn repeats(&self) -> bool {
        self.repeats
    }
}

impl fmt::Display for ChaosFailure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {} failed: {}", self.seed, self.why)?;
        if let Some(place) = &self.place {
            write!(f, ", at {place}")?;
        }
        let lines: Vec<&str> = self.story.lines().collect();
        writeln!(f, "\n")?;
        if lines.len() > SHOWN {
            writeln!(f, "{} lines of its story, and then:", lines.len() - SHOWN)?;
        }
        for line in &lines[lines.len().saturating_sub(SHOWN)..] {
            writeln!(f, "{line}")?;
        }
        writeln!(f, "\nIt needs the faults that are marked:")?;
        for fault in &self.faults {
            let mark = if self.needed.contains(&fault.number) { '*' } else { ' ' };
            writeln!(f, "{mark} {fault}")?;
        }
        write!(f, "\nAgain: {}", self.command())?;
        match &self.report {
            Ok(report) => write!(f, "\nReport: {}", report.display())?,
            Err(why) if why.is_empty() => {}
            Err(why) => write!(f, "\nNo report: {why}")?,
        }
        if !self.repeats {
            write!(
                f,
                "\nThe same seed went another way when it was repeated: the program has a chance \
                 of its own, as a `select!` without `biased` or the order of a `HashMap`"
            )?;
        }
        Ok(())
    }
}
