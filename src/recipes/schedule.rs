//! `Schedule`: a job that runs once for each tick, at one member.
//!
//! ```text
//! tick n is due at n * period after the Unix epoch, by the leader's wall clock
//! leadership: the lock of the name.    the last finished tick: the value of that lock
//!
//! queues ->[leads] reads the last finished tick, which shuts earlier leaders out
//!   -> waits for the next tick by the policy -> runs the job -> writes the tick as finished -> ...
//!   ->[leadership is lost: the job is dropped] queues
//! ```

use super::any_guard::fenced_by_term;
use super::leadership::{Candidacy, CandidacyEnd, Term, TermEnd};
use super::lock_value::{LockValue, LockValueError, ValueFence};
use crate::protocol::{InvalidName, LineageId, Token};
use crate::runtime::engine::SleepEnd;
use crate::runtime::planted;
use crate::service::{LockError, LockService, MAX_LEASE, Unavailable};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The shortest period: timers are not finer.
const SHORTEST: Duration = Duration::from_millis(1);
/// The longest time between two readings of the wall clock, which may be set.
const LOOK: Duration = Duration::from_secs(1);
/// The wait before another attempt, after a refusal that will not last.
const PAUSE: Duration = Duration::from_millis(100);

/// A job that runs once per tick in the whole cluster. Several members [`run`](Schedule::run) a
/// schedule of the same name. One of them leads and runs the job. When the leader ends, another
/// member leads.
///
/// Tick `n` is due at `n` periods after the Unix epoch, by the wall clock of the leader's machine.
/// Ticks run in order, one at a time. After each, its number is kept in the
/// [value](crate::LockValue) of the lock, so the next leader knows which one was the last. The
/// [policy](Schedule::missed) decides about ticks that were due meanwhile.
///
/// **A tick may run twice**, wholly or in part, if its leader is lost:
/// - during the job, or before the end of the job is written: the next leader does not know of the
///   end;
/// - soon after the end was written, if the leader's member was also the grantor of the service:
///   its death may undo the write. See [`SharedValue`](crate::SharedValue).
///
/// Therefore let each effect of the job show the [token](Tick::fence) and the
/// [number](Tick::number) to the resource. Let the resource refuse lower tokens, and ticks that it
/// has seen. Then a tick takes effect once. The example `scheduler` of the repository does so.
///
/// **A tick may be lost**:
/// - by the policies [`Skip`](MissedTicks::Skip) and [`RunOnce`](MissedTicks::RunOnce);
/// - by any policy, when no member runs the schedule for a while. The last finished tick lives in
///   memory, while a member runs the schedule or has the value open. Otherwise the schedule begins
///   with the next tick, unless [`resume_after`](Schedule::resume_after) gives a later one.
///
/// A leader whose clock is behind that of the previous leader waits until its own clock is past the
/// last finished tick. No tick runs a second time because a clock was set back.
///
/// Curator with Quartz: a `LeaderLatch` and a scheduler, which neither knows the last tick nor
/// stops a job whose leader is lost. Kubernetes: a `CronJob`, its `startingDeadlineSeconds`.
/// Curator alone: none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::time::Duration;
/// use elderlock::{MissedTicks, Schedule, Tick};
/// let member = elderlock::Member::local().await?;
/// let jobs = member.lock_service("jobs").await?;
/// let schedule = Schedule::new(&jobs, "report", Duration::from_millis(20), "node-1")?;
/// let schedule = schedule.missed(MissedTicks::RunAll);
/// let (done, mut ran) = tokio::sync::mpsc::channel(1);
/// let job = async |tick: Tick| {
///     // Writes the report, with `tick.fence()` and `tick.number()`.
///     let _ = done.send(tick.number()).await;
/// };
/// tokio::select! {
///     over = schedule.run(job) => return Err(over.into()),
///     first = ran.recv() => assert!(first.is_some()),
/// }
/// # Ok(()) }
/// ```
#[derive(Debug)]
pub struct Schedule {
    candidacy: Candidacy,
    service: LockService,
    period: Duration,
    missed: MissedTicks,
    resume_after: Option<i64>,
    finished: Mutex<Option<i64>>,
}

/// The treatment of ticks that were due while no leader could run them, or while the job of an
/// earlier tick still ran. A tick that is due while its successor is not is late, but not missed,
/// except for [`Skip`](MissedTicks::Skip).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum MissedTicks {
    /// Missed ticks do not run: a tick runs only if a leader waited for it when it was due.
    Skip,
    /// The latest missed tick runs at once, in place of all missed ones. The default.
    #[default]
    RunOnce,
    /// Each missed tick runs, in order, one after the other.
    RunAll,
}

/// One tick of a [`Schedule`], for the job.
#[derive(Clone, Debug)]
pub struct Tick {
    number: i64,
    due: SystemTime,
    missed: u64,
    term: Term,
}

impl Tick {
    /// The number of the tick: the number of periods from the Unix epoch to the time at which it is
    /// due. It rises from tick to tick, and is the same if a tick runs twice.
    pub fn number(&self) -> i64 {
        self.number
    }

    /// Returns the time at which the tick was due, by the wall clock.
    pub fn due(&self) -> SystemTime {
        self.due
    }

    /// The number of ticks that were left out between the last known finished tick and this tick.
    pub fn missed(&self) -> u64 {
        self.missed
    }

    /// The token of the leader, if it leads at this instant. Call this before each side effect. Let
    /// the resource refuse tokens lower than the highest that it has seen. Then a former leader
    /// never writes to it after a later one.
    ///
    /// # Errors
    /// [`TermEnd`], for good: leadership is lost, or given up. Asking changes nothing.
    pub fn fence(&self) -> Result<Token, TermEnd> {
        self.term.fence()
    }

    /// The token as a number for logs, without a claim that the leader still leads.
    pub fn token(&self) -> Token {
        self.term.token()
    }

    /// The lineage that dealt the token. See [`Guard::lineage`](crate::Guard::lineage).
    pub fn lineage(&self) -> LineageId {
        self.term.lineage()
    }
}

fenced_by_term!(Tick);

/// Why a [`Schedule`] is not made, or can never run again. In every case nothing is held and
/// nothing is queued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The name is empty, or the name or the id is too long.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The period is shorter than 1 ms or longer than ten years.
    #[error("a period of {0:?} is not between 1 ms and ten years")]
    InvalidPeriod(Duration),
    /// Another kind of object, such as a count, is open by the name of the schedule.
    #[error("{}", LockError::OtherRecipe)]
    OtherRecipe,
    /// The service was destroyed at this member. Get a new handle from the member.
    #[error("{}", Unavailable::Destroyed)]
    Destroyed,
    /// The member has left, for good: join as a new member.
    #[error("{}", Unavailable::Left)]
    Left,
}

impl From<CandidacyEnd> for ScheduleError {
    fn from(end: CandidacyEnd) -> Self {
        match end {
            CandidacyEnd::Destroyed => ScheduleError::Destroyed,
            CandidacyEnd::Left => ScheduleError::Left,
        }
    }
}

impl Schedule {
    /// A schedule of `name`, 1 to 4096 bytes of any value, with a tick every `period`: both the
    /// same for all members that run it. Other members see this one as `id`, up to 4096 bytes, in
    /// the queue of the lock. The schedule does nothing until it [runs](Schedule::run).
    ///
    /// # Errors
    /// [`ScheduleError::InvalidName`], [`ScheduleError::InvalidPeriod`]: less than 1 ms, or more
    /// than ten years.
    pub fn new(
        service: &LockService,
        name: impl AsRef<[u8]>,
        period: Duration,
        id: impl AsRef<[u8]>,
    ) -> Result<Schedule, ScheduleError> {
        if !(SHORTEST..=MAX_LEASE).contains(&period) {
            return Err(ScheduleError::InvalidPeriod(period));
        }
        Ok(Schedule {
            candidacy: Candidacy::new(service, name.as_ref(), id.as_ref())?,
            service: service.clone(),
            period,
            missed: MissedTicks::default(),
            resume_after: None,
            finished: Mutex::default(),
        })
    }

    /// Sets the treatment of missed ticks: [`MissedTicks::RunOnce`] unless set. The present
    /// leader's policy counts.
    pub fn missed(mut self, missed: MissedTicks) -> Self {
        self.missed = missed;
        self
    }

    /// Sets a finished tick that a database of the program knows. It counts if it is later than the
    /// tick that the cluster remembers, or if the cluster remembers none.
    pub fn resume_after(mut self, tick: i64) -> Self {
        self.resume_after = Some(tick);
        self
    }

    /// The tick that this schedule has run last, once it is written as finished.
    pub fn finished(&self) -> Option<i64> {
        *self.finished.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Queues for leadership, runs `job` for each tick while it leads, and queues again when
    /// leadership is lost. Returns only when the schedule can never lead again. The job is dropped
    /// the moment that leadership is lost; it can be stopped only where it awaits.
    ///
    /// If the same schedule runs more than once at a time, each run queues for itself.
    ///
    /// # Errors
    /// The returned error is the reason. Nothing is held and nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, the job is dropped where it stands. Then leadership or the
    /// position in the queue is released. The next leader runs a tick again whose job was dropped,
    /// or has just finished.
    pub async fn run<J, F>(&self, mut job: J) -> ScheduleError
    where
        J: FnMut(Tick) -> F,
        F: Future<Output = ()>,
    {
        let mut kept: Option<LockValue> = None;
        loop {
            // The value is open during the wait: it lives as long as one of the schedules has it
            // open.
            let value = match LockValue::open(&self.service, self.candidacy.name(), "").await {
                Ok(value) => kept.insert(value).clone(),
                Err(LockError::OtherRecipe) => return ScheduleError::OtherRecipe,
                Err(error) => {
                    if let Some(end) = CandidacyEnd::of(&error) {
                        return end.into();
                    }
                    self.candidacy.sleep(PAUSE).await;
                    continue;
                }
            };
            let led = match self.candidacy.win(self.candidacy.queue()).await {
                Ok(led) => led,
                Err(end) => return end.into(),
            };
            let term = led.term().clone();
            // In whatever way this ends, the job is dropped before leadership, which is declared
            // before it.
            let ended = term.protect(self.lead(&term, &value, &mut job)).await;
            if let Ok(LockValueError::NotALockValue) = ended {
                return ScheduleError::OtherRecipe;
            }
            drop(led);
            // A schedule that is alone leads again at once.
            self.candidacy.sleep(SHORTEST).await;
        }
    }

    /// Runs one term, from its first tick on. Returns the reason for its end.
    async fn lead<J, F>(&self, term: &Term, value: &LockValue, job: &mut J) -> LockValueError
    where
        J: FnMut(Tick) -> F,
        F: Future<Output = ()>,
    {
        let mut last = match self.recall(term, value).await {
            Ok(last) => last.max(self.resume_after),
            Err(error) => return error,
        };
        loop {
            let number = self.next(last).await;
            let due = UNIX_EPOCH.checked_add(self.due(number)).unwrap_or(UNIX_EPOCH);
            let missed = last.map_or(0, |last| (number - last - 1).max(0) as u64);
            job(Tick { number, due, missed, term: term.clone() }).await;
            if let Err(error) = self.finish(term, value, number).await {
                return error;
            }
            last = Some(number);
            *self.finished.lock().unwrap_or_else(PoisonError::into_inner) = last;
        }
    }

    /// Returns the last finished tick. From now on no earlier leader can write one.
    async fn recall(&self, term: &Term, value: &LockValue) -> Result<Option<i64>, LockValueError> {
        loop {
            match value.read_by(|| fence(term)).await {
                Ok(seen) => return Ok(parse(&seen.value)),
                Err(LockValueError::Busy) => self.candidacy.sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Writes the tick as finished.
    async fn finish(
        &self,
        term: &Term,
        value: &LockValue,
        tick: i64,
    ) -> Result<(), LockValueError> {
        let tick = if planted!(NoteTickBefore) { tick - 1 } else { tick };
        loop {
            match value.write_by(|| fence(term), tick.to_string().as_bytes()).await {
                Ok(_) => return Ok(()),
                Err(LockValueError::Busy) => self.candidacy.sleep(PAUSE).await,
                Err(error) => return Err(error),
            }
        }
    }

    /// Waits for the next tick that should run after `last`.
    async fn next(&self, last: Option<i64>) -> i64 {
        let begun = self.latest_due();
        loop {
            let now = self.latest_due();
            let next = next_tick(self.missed, last, begun, now);
            if next <= now {
                return next;
            }
            let left = self.due(next).saturating_sub(self.service.wall());
            if self.service.sleep(left.clamp(SHORTEST, LOOK)).await != SleepEnd::InTime {
                // The member has left: the term is over, and this future is dropped.
                std::future::pending().await
            }
        }
    }

    /// The number of the latest tick that is due.
    fn latest_due(&self) -> i64 {
        let periods = self.service.wall().as_nanos() / self.period.as_nanos();
        i64::try_from(periods).unwrap_or(i64::MAX)
    }

    /// Returns the time after the Unix epoch at which a tick is due.
    fn due(&self, tick: i64) -> Duration {
        let nanos = self.period.as_nanos().saturating_mul(tick.max(0) as u128);
        let seconds = u64::try_from(nanos / 1_000_000_000).unwrap_or(u64::MAX);
        Duration::new(seconds, (nanos % 1_000_000_000) as u32)
    }
}

/// The next tick after `last`. `begun`: the latest tick that was due when its leader began to wait;
/// `now`: the latest that is due.
fn next_tick(missed: MissedTicks, last: Option<i64>, begun: i64, now: i64) -> i64 {
    // Without an earlier tick none is missed.
    let Some(after) = last.map(|last| last.saturating_add(1)) else { return begun + 1 };
    match missed {
        MissedTicks::Skip => after.max(begun + 1),
        MissedTicks::RunOnce => after.max(now),
        MissedTicks::RunAll => after,
    }
}

fn fence(term: &Term) -> Result<ValueFence, LockValueError> {
    let token = term.fence().map_err(|end| LockValueError::LockLost(end.lost()))?;
    Ok(ValueFence { token: token.get(), lineage: term.lineage().0 })
}

fn parse(value: &[u8]) -> Option<i64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use MissedTicks::{RunAll, RunOnce, Skip};

    #[test]
    fn the_policy_chooses_the_next_tick() {
        // The last finished tick, the latest due at the beginning of the wait and now, and the next
        // tick by each policy.
        for (last, begun, now, [skip, once, all]) in [
            // The leader is in time.
            (Some(7), 7, 7, [8, 8, 8]),
            (Some(7), 7, 8, [8, 8, 8]),
            // A new leader begins in the middle of the tick after the last.
            (Some(7), 8, 8, [9, 8, 8]),
            // Some earlier ticks had no leader.
            (Some(7), 11, 11, [12, 11, 8]),
            // The clock was set forward while the leader waited.
            (Some(7), 7, 11, [8, 11, 8]),
            // The clock is behind.
            (Some(7), 3, 4, [8, 8, 8]),
            // No finished tick is known.
            (None, 7, 7, [8, 8, 8]),
            (None, 7, 9, [8, 8, 8]),
        ] {
            for (missed, next) in [(Skip, skip), (RunOnce, once), (RunAll, all)] {
                assert_eq!(next_tick(missed, last, begun, now), next, "{missed:?} {last:?} {now}");
            }
        }
    }

    #[test]
    fn a_value_that_is_no_number_is_no_tick() {
        assert_eq!(parse(b"17"), Some(17));
        assert_eq!(parse(b"-3"), Some(-3));
        assert_eq!((parse(b""), parse(b"\xff"), parse(b"x")), (None, None, None));
    }
}
