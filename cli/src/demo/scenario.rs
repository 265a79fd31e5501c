//! The scenario: kills, stops and transfers with their times, and how soon the shop continues.
//!
//! Before a victim is killed, it is made to stand between its `fence()` and its write, with the
//! lock of an article. So a fail-over has a simple measure: from SIGKILL to the next sale of that
//! article. No worker can make this sale before the victim has lost its lock.
//!
//! A transfer without a death has another measure. Every task of a worker must get its lock, and
//! the longest time without any sale is reported.

use super::DemoArgs;
use super::crew::{Crew, Worker, WorkerUpdate};
use super::message::{ClusterSnapshot, WorkerOrder, WorkerReport};
use super::progress::DemoProgress;
use crate::processes::StopSignal;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// Runs the scenario with a crew.
pub(crate) struct Scenario<'a> {
    crew: &'a mut Crew,
    progress: &'a DemoProgress,
    args: &'a DemoArgs,
    /// The limit of every wait.
    until: Instant,
    played: ScenarioOutcome,
}

/// The result of the scenario.
#[derive(Clone, Debug, Default)]
pub(crate) struct ScenarioOutcome {
    /// An entry for each kill.
    pub(crate) failovers: Vec<Failover>,
    /// The time from SIGSTOP to the next sale of the stopped holder's article.
    pub(crate) pause: Option<Duration>,
    /// The fate of the stopped worker's write when it woke. `None` if the write was neither refused
    /// nor accepted.
    pub(crate) late_write: Option<LateWrite>,
    /// An entry for each change of grantor without a death.
    pub(crate) transfers: Vec<GrantorTransfer>,
    /// The count while the service was suspended.
    pub(crate) count: Option<Count>,
    /// The number of restarted workers that are in the view with all others.
    pub(crate) restarted: usize,
    /// Requirements that were not met.
    pub(crate) problems: Vec<String>,
}

/// A kill and the time until the shop continued.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Failover {
    /// The role of the victims.
    pub(crate) kind: KilledRole,
    /// The time from SIGKILL to the next sale of every article that a victim held.
    pub(crate) milliseconds: f64,
    /// The number of killed processes.
    pub(crate) killed: usize,
}

/// A grantor that transferred its table.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct GrantorTransfer {
    /// The reason of the transfer.
    pub(crate) reason: TransferReason,
    /// The time from the order until the transfer was done.
    pub(crate) milliseconds: f64,
    /// The longest time without a sale, from the order until all other workers knew the new grantor
    /// and had sold.
    pub(crate) silence_milliseconds: f64,
    /// Tasks of workers that did not get their lock meanwhile.
    pub(crate) unserved: Vec<String>,
}

/// The reason for which a grantor transfers its table.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum TransferReason {
    /// A young turk wanted to be the grantor.
    YoungTurk,
    /// The grantor left.
    Leave,
}

/// A stock-taking, with the service suspended.
#[derive(Clone, Copy, Debug, Serialize)]
pub(crate) struct Count {
    /// Sales in the books at its beginning.
    pub(crate) before: i64,
    /// Sales in the books at its end.
    pub(crate) after: i64,
    /// Pieces by which stock and sales differed.
    pub(crate) missing: i64,
    /// The time from the request of the suspension until no lock was held.
    pub(crate) waited_milliseconds: f64,
}

/// The roles that are killed, in turn.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum KilledRole {
    /// A member that holds a lock and is neither elder nor grantor.
    Holder,
    /// The grantor, and not the elder.
    Grantor,
    /// The elder, and not the grantor.
    Elder,
    /// The elder and the grantor at once.
    ElderAndGrantor,
}

/// The result of the write of a worker that woke after its lease.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LateWrite {
    Refused,
    Written,
}

/// A worker that is stopped between its `fence()` and its write.
struct PausedWriter {
    index: usize,
    article: u32,
    token: i64,
    sight: ClusterSnapshot,
}

/// The longest wait for a role to settle, for a sale, or until all processes run again.
const STEP: Duration = Duration::from_secs(15);
/// The number of attempts to stop the bearer of a role, which may lose the role meanwhile.
const TRIES: usize = 10;

type ScenarioResult<T> = Result<T, String>;

impl<'a> Scenario<'a> {
    pub(crate) fn new(
        crew: &'a mut Crew,
        progress: &'a DemoProgress,
        args: &'a DemoArgs,
        until: Instant,
    ) -> Self {
        Scenario { crew, progress, args, until, played: ScenarioOutcome::default() }
    }

    pub(crate) fn play(mut self) -> ScenarioOutcome {
        if let Err(problem) = self.play_phases() {
            self.progress.tell(&problem);
            self.played.problems.push(problem);
        }
        self.played
    }

    fn play_phases(&mut self) -> ScenarioResult<()> {
        let begun = Instant::now();
        self.wait("all members to be in one view", Crew::is_whole)?;
        self.progress
            .tell(&format!("all in one view after {:.2} s", begun.elapsed().as_secs_f64()));
        self.open()?;
        // The remaining time is divided evenly.
        let begun = Instant::now();
        const PHASES: u32 = 10;
        let end_of_phase =
            |number: u32| begun + Duration::from_secs(self.args.seconds.into()) * number / PHASES;
        let ends: Vec<Instant> = (1..=PHASES).map(end_of_phase).collect();
        self.sell_until(ends[0])?;
        self.turn()?;
        self.sell_until(ends[1])?;
        self.kill(KilledRole::Holder)?;
        self.sell_until(ends[2])?;
        self.leave()?;
        self.sell_until(ends[3])?;
        self.kill(KilledRole::Grantor)?;
        self.sell_until(ends[4])?;
        self.count()?;
        self.sell_until(ends[5])?;
        self.kill(KilledRole::Elder)?;
        self.sell_until(ends[6])?;
        self.pause()?;
        self.sell_until(ends[7])?;
        self.kill(KilledRole::ElderAndGrantor)?;
        self.sell_until(ends[9])
    }

    /// Lets the youngest member sell first, because the first member that asks becomes grantor.
    /// Elder and grantor have to be two processes, so that they can be killed one by one.
    fn open(&mut self) -> ScenarioResult<()> {
        let youngest = *self.crew.by_age().last().ok_or("no worker is alive")?;
        self.crew.order(youngest, WorkerOrder::Open);
        self.follow("a first sale", |_, report| matches!(report, WorkerReport::Sale { .. }))?;
        for index in 0..self.crew.workers.len() {
            self.crew.order(index, WorkerOrder::Open);
        }
        Ok(())
    }

    /// Kills the bearers of a role, waits for the sales that they blocked, and starts them again.
    fn kill(&mut self, kind: KilledRole) -> ScenarioResult<()> {
        let rested = if kind == KilledRole::Grantor { self.rest_oldest()? } else { Vec::new() };
        let victims = self.stand_in_role(kind)?;
        let killed_at = Instant::now();
        for victim in &victims {
            self.crew.kill(victim.index);
        }
        let names: Vec<String> = victims.iter().map(|victim| victim.index.to_string()).collect();
        self.progress.tell(&format!(
            "SIGKILL to worker {} ({})",
            names.join(" and worker "),
            kind.name()
        ));
        let sold_at =
            self.sales(&victims, &format!("the next sale after the death of the {}", kind.name()))?;
        let took = sold_at.saturating_duration_since(killed_at);
        let articles: Vec<String> =
            victims.iter().map(|victim| victim.article.to_string()).collect();
        self.progress.tell(&format!(
            "  next sale of article {} after {}",
            articles.join(" and "),
            milliseconds(took)
        ));
        let milliseconds = took.as_micros() as f64 / 1e3;
        self.played.failovers.push(Failover { kind, milliseconds, killed: victims.len() });

        for index in rested {
            self.crew.order(index, WorkerOrder::Open);
        }
        let begun = Instant::now();
        for victim in &victims {
            let started = self.crew.restart(victim.index);
            started.map_err(|error| {
                format!("worker {} cannot be started again: {error}", victim.index)
            })?;
        }
        self.wait("the restarted workers to be in the view again", Crew::is_whole)?;
        self.progress.tell(&format!(
            "  restarted, all in one view again after {:.2} s",
            begun.elapsed().as_secs_f64()
        ));
        self.played.restarted += victims.len();
        Ok(())
    }

    /// Makes the youngest member without another role the grantor.
    fn turn(&mut self) -> ScenarioResult<()> {
        if self.args.no_lock {
            return Ok(()); // without locks there is no grantor
        }
        self.wait("a grantor to be known", |crew| crew.grantor().is_some())?;
        let taken = [self.crew.elder(), self.crew.grantor()];
        let index = self.crew.by_age().into_iter().rfind(|index| !taken.contains(&Some(*index)));
        let index = index.ok_or("every worker is elder or grantor")?;
        self.progress.tell(&format!("worker {index} wants to be the grantor"));
        self.crew.watch();
        let begun = Instant::now();
        self.crew.order(index, WorkerOrder::Become);
        let mut done = None;
        self.await_order(index, "to become the grantor", |at, report| {
            if let WorkerReport::Became(sight) = report {
                done = Some((at, sight.clone()));
            }
            done.is_some()
        })?;
        let (at, sight) = done.ok_or("the worker did not become the grantor")?;
        if sight.grantor.as_ref() != Some(&sight.me) {
            return Err(format!(
                "worker {index} was told that it is the grantor, and sees another: {sight:?}"
            ));
        }
        self.all_served_by("the young turk", move |grantor| grantor == index)?;
        self.note_transfer(TransferReason::YoungTurk, at.saturating_duration_since(begun));
        Ok(())
    }

    /// Makes the grantor leave, and starts it again.
    fn leave(&mut self) -> ScenarioResult<()> {
        if self.args.no_lock {
            return Ok(()); // without locks there is no grantor
        }
        self.wait("a grantor to be known", |crew| crew.grantor().is_some())?;
        let index = self.crew.grantor().ok_or("there is no grantor")?;
        // The member with most entries in the table becomes the successor. It has to be a process
        // other than the elder.
        let rested = self.rest_oldest()?;
        self.progress.tell(&format!("worker {index}, the grantor, finishes and leaves"));
        self.crew.watch();
        let begun = Instant::now();
        self.crew.order(index, WorkerOrder::Finish);
        self.wait("the grantor to leave", |crew| crew.ended(index).is_some())?;
        let took = begun.elapsed();
        if let Some(status) = self.crew.ended(index).filter(|status| !status.success()) {
            return Err(format!(
                "worker {index} did not leave: {status}; see {}",
                self.crew.log(index).display()
            ));
        }
        self.all_served_by("a successor", move |grantor| grantor != index)?;
        self.note_transfer(TransferReason::Leave, took);
        for index in rested {
            self.crew.order(index, WorkerOrder::Open);
        }
        let started = self.crew.restart(index);
        started.map_err(|error| format!("worker {index} cannot be started again: {error}"))?;
        self.wait("the worker that left to be in the view again", Crew::is_whole)?;
        self.played.restarted += 1;
        Ok(())
    }

    /// Waits until all sellers see one grantor that `is_it` accepts, and then until each seller has
    /// sold.
    fn all_served_by(
        &mut self,
        grantor: &str,
        is_it: impl Fn(usize) -> bool,
    ) -> ScenarioResult<()> {
        let sees = |crew: &Crew, sight: &ClusterSnapshot| {
            sight.grantor.as_deref().and_then(|me| crew.index_of(me))
        };
        self.wait(&format!("{grantor} to be known to all"), |crew| {
            let mut sights = crew
                .workers
                .iter()
                .filter_map(|worker| worker.sight.as_ref())
                .filter(|sight| !sight.idle);
            let grantor = crew.grantor().filter(|index| is_it(*index));
            grantor.is_some() && sights.all(|sight| sees(crew, sight) == grantor)
        })?;
        let sells = |worker: &Worker| worker.sight.as_ref().is_some_and(|sight| !sight.idle);
        let indexes = 0..self.crew.workers.len();
        let mut open: BTreeSet<usize> =
            indexes.filter(|index| sells(&self.crew.workers[*index])).collect();
        self.follow(&format!("sales of all under {grantor}"), |from, report| {
            if let WorkerReport::Sale { .. } = report {
                open.remove(&from);
            }
            open.is_empty()
        })
    }

    fn note_transfer(&mut self, reason: TransferReason, took: Duration) {
        let (silence, unserved) = (self.crew.silence, std::mem::take(&mut self.crew.unserved));
        let (took_text, silent_text) = (milliseconds(took), milliseconds(silence));
        self.progress.tell(&format!(
            "  done after {took_text}, never longer than {silent_text} without a sale"
        ));
        self.played.transfers.push(GrantorTransfer {
            reason,
            milliseconds: took.as_micros() as f64 / 1e3,
            silence_milliseconds: silence.as_micros() as f64 / 1e3,
            unserved,
        });
    }

    /// Makes a member suspend the service and count the books twice.
    fn count(&mut self) -> ScenarioResult<()> {
        self.wait("an elder to be known", |crew| crew.elder().is_some())?;
        let index = *self.bearers(KilledRole::Holder).first().ok_or("no worker can count")?;
        self.progress.tell(&format!("worker {index} suspends the service and takes stock"));
        self.crew.order(index, WorkerOrder::Count);
        let mut counted = None;
        self.await_order(index, "to take stock", |_, report| {
            if let WorkerReport::Counted { before, after, missing, waited_milliseconds } = *report {
                counted = Some(Count { before, after, missing, waited_milliseconds });
            }
            counted.is_some()
        })?;
        let count = counted.ok_or("the worker did not count")?;
        self.played.count = Some(count);
        let sold = match count.after - count.before {
            0 => "nothing was sold meanwhile".to_owned(),
            sold => format!("{sold} pieces were sold meanwhile"),
        };
        let waited = count.waited_milliseconds;
        self.progress.tell(&format!("  all held locks were back after {waited:.1} ms; {sold}"));
        self.follow("a sale after the stock-taking", |_, report| {
            matches!(report, WorkerReport::Sale { .. })
        })
    }

    /// Waits until a worker has carried out its order, or reports that it cannot.
    fn await_order(
        &mut self,
        index: usize,
        what: &str,
        mut is_it: impl FnMut(Instant, &WorkerReport) -> bool,
    ) -> ScenarioResult<()> {
        let mut failed = None;
        self.follow_timed(&format!("worker {index} {what}"), |from, at, report| match report {
            _ if from != index => false,
            WorkerReport::Failed(why) => {
                failed = Some(format!("worker {index} was ordered {what}: {why}"));
                true
            }
            report => is_it(at, report),
        })?;
        failed.map_or(Ok(()), Err)
    }

    /// Lets the two oldest members rest before the grantor leaves, so that neither becomes the next
    /// grantor. Elder and grantor must be two processes when they are killed.
    fn rest_oldest(&mut self) -> ScenarioResult<Vec<usize>> {
        let grantor = self.crew.grantor();
        let resting: Vec<usize> = self
            .crew
            .by_age()
            .into_iter()
            .filter(|index| Some(*index) != grantor)
            .take(2)
            .collect();
        for index in &resting {
            self.crew.order(*index, WorkerOrder::Rest);
        }
        let idle = resting.clone();
        self.wait("the oldest two to rest", move |crew| {
            idle.iter()
                .all(|index| crew.workers[*index].sight.as_ref().is_some_and(|sight| sight.idle))
        })?;
        Ok(resting)
    }

    /// Stops the bearers of a role before their write, and checks that they still bear it then.
    fn stand_in_role(&mut self, kind: KilledRole) -> ScenarioResult<Vec<PausedWriter>> {
        for _ in 0..TRIES {
            self.wait("an elder and a grantor to be known", |crew| crew.elder().is_some())?;
            let indexes = self.bearers(kind);
            let mut standers: Vec<PausedWriter> = Vec::new();
            for index in &indexes {
                standers.push(self.stand(*index)?);
            }
            if !indexes.is_empty() && standers.iter().all(|stander| self.still_bears(kind, stander))
            {
                return Ok(standers);
            }
            for stander in &standers {
                self.crew.order(stander.index, WorkerOrder::Go);
            }
        }
        Err(format!("found no {} in {TRIES} tries", kind.name()))
    }

    /// The processes that have the role now. Without locks there is no grantor, and any process but
    /// the elder takes its place.
    fn bearers(&self, kind: KilledRole) -> Vec<usize> {
        let elder = self.crew.elder();
        let by_age = self.crew.by_age();
        let others: Vec<usize> =
            by_age.iter().copied().filter(|index| Some(*index) != elder).collect();
        let grantor = if self.args.no_lock { others.last().copied() } else { self.crew.grantor() };
        let plain: Vec<usize> =
            others.iter().copied().filter(|index| Some(*index) != grantor).collect();
        let any = plain.get(self.args.seed as usize % plain.len().max(1)).copied();
        let (elder, grantor) = (Vec::from_iter(elder), Vec::from_iter(grantor));
        match kind {
            KilledRole::Holder => Vec::from_iter(any),
            // A process with both roles cannot be killed for one of them alone.
            KilledRole::Grantor | KilledRole::Elder if elder == grantor => Vec::new(),
            KilledRole::Grantor => grantor,
            KilledRole::Elder => elder,
            // If one process has both roles, another holder dies with it.
            KilledRole::ElderAndGrantor if elder == grantor => {
                elder.into_iter().chain(any).collect()
            }
            KilledRole::ElderAndGrantor => elder.into_iter().chain(grantor).collect(),
        }
    }

    /// Returns whether the stopped worker's own snapshot agrees.
    fn still_bears(&self, kind: KilledRole, stander: &PausedWriter) -> bool {
        let sight = &stander.sight;
        let is_elder = sight.elder.as_ref() == Some(&sight.me);
        let is_grantor = sight.grantor.as_ref() == Some(&sight.me);
        match kind {
            KilledRole::Holder => !is_elder && !is_grantor,
            KilledRole::Grantor => !is_elder && (is_grantor || self.args.no_lock),
            KilledRole::Elder => is_elder && !is_grantor,
            KilledRole::ElderAndGrantor => sight.leased,
        }
    }

    /// Stops a worker between its `fence()` and its write until another worker has written.
    fn pause(&mut self) -> ScenarioResult<()> {
        let sleeper = self.stand_in_role(KilledRole::Holder)?.remove(0);
        let (index, article) = (sleeper.index, sleeper.article);
        let stopped_at = Instant::now();
        let signal = |crew: &Crew, signal| {
            crew.signal(index, signal).map_err(|error| format!("no signal: {error}"))
        };
        signal(self.crew, StopSignal::Stop)?;
        self.progress.tell(&format!(
            "SIGSTOP to worker {index}, which holds article {article} and was about to write"
        ));
        let sold_at =
            self.sales(std::slice::from_ref(&sleeper), "the next sale of the sleeper's article")?;
        let took = sold_at.saturating_duration_since(stopped_at);
        self.played.pause = Some(took);
        self.progress.tell(&format!(
            "  next sale of article {article} after {}, SIGCONT",
            milliseconds(took)
        ));
        // The order is in the worker's pipe before it wakes: the write is the first thing that it
        // does.
        self.crew.order(index, WorkerOrder::Go);
        signal(self.crew, StopSignal::Continue)?;
        let mut late = None;
        let token = sleeper.token;
        self.follow("the late write", |from, report| {
            late = match report {
                WorkerReport::Refused { article: a, token: t }
                    if (from, *a, *t) == (index, article, token) =>
                {
                    Some(LateWrite::Refused)
                }
                WorkerReport::Sale { article: a, token: t }
                    if (from, *a, *t) == (index, article, token) =>
                {
                    Some(LateWrite::Written)
                }
                _ => None,
            };
            late.is_some()
        })?;
        self.played.late_write = late;
        self.progress.tell(match late {
            Some(LateWrite::Written) => "  its late write got in",
            _ => "  its late write was refused by its token",
        });
        self.wait("the sleeper to be back in the view", Crew::is_whole)
    }

    /// Stops a worker before its next write.
    fn stand(&mut self, index: usize) -> ScenarioResult<PausedWriter> {
        self.crew.order(index, WorkerOrder::Stand);
        let mut found = None;
        self.follow(&format!("worker {index} to hold a lock"), |from, report| {
            if let (true, WorkerReport::Standing { article, token, sight }) =
                (from == index, report)
            {
                found = Some(PausedWriter {
                    index,
                    article: *article,
                    token: *token,
                    sight: sight.clone(),
                });
            }
            found.is_some()
        })?;
        found.ok_or_else(|| format!("worker {index} did not report that it holds a lock"))
    }

    /// Waits until another worker has sold every article that one of `standers` held, with a later
    /// token. Returns the time of the last of these sales.
    fn sales(&mut self, standers: &[PausedWriter], what: &str) -> ScenarioResult<Instant> {
        let mut open: Vec<&PausedWriter> = standers.iter().collect();
        let mut last = Instant::now();
        let locking = !self.args.no_lock;
        self.follow_timed(what, |from, at, report| {
            let WorkerReport::Sale { article, token } = report else { return false };
            open.retain(|held| {
                held.index == from || held.article != *article || (locking && *token <= held.token)
            });
            last = at;
            open.is_empty()
        })?;
        Ok(last)
    }

    fn sell_until(&mut self, curtain: Instant) -> ScenarioResult<()> {
        while Instant::now() < curtain.min(self.until) {
            self.listen(curtain.min(self.until))?;
        }
        Ok(())
    }

    fn wait(&mut self, what: &str, is_so: impl Fn(&Crew) -> bool) -> ScenarioResult<()> {
        let until = self.until.min(Instant::now() + STEP);
        while !is_so(self.crew) {
            if self.listen(until)?.is_none() && Instant::now() >= until {
                return Err(self.gave_up(what));
            }
        }
        Ok(())
    }

    fn follow(
        &mut self,
        what: &str,
        mut is_it: impl FnMut(usize, &WorkerReport) -> bool,
    ) -> ScenarioResult<()> {
        self.follow_timed(what, |from, _, report| is_it(from, report))
    }

    fn follow_timed(
        &mut self,
        what: &str,
        mut is_it: impl FnMut(usize, Instant, &WorkerReport) -> bool,
    ) -> ScenarioResult<()> {
        let until = self.until.min(Instant::now() + STEP);
        loop {
            match self.listen(until)? {
                Some((from, at, report)) if is_it(from, at, &report) => return Ok(()),
                None if Instant::now() >= until => return Err(self.gave_up(what)),
                _ => {}
            }
        }
    }

    /// The next report, or `None` after a short wait. A worker that ends by itself ends the demo.
    fn listen(&mut self, until: Instant) -> ScenarioResult<Option<(usize, Instant, WorkerReport)>> {
        let moment = until.min(Instant::now() + Duration::from_millis(100));
        let news = self.crew.next(moment);
        self.progress.show(self.crew);
        match news {
            None => Ok(None),
            Some((index, at, WorkerUpdate::Said(report))) => Ok(Some((index, at, report))),
            Some((index, _, WorkerUpdate::Ended)) => Err(format!(
                "worker {index} ended by itself; see {}",
                self.crew.log(index).display()
            )),
        }
    }

    fn gave_up(&self, what: &str) -> String {
        let sights: Vec<String> =
            self.crew.workers.iter().map(|worker| describe(worker.sight.as_ref())).collect();
        format!("waited too long for {what}; the workers see: {}", sights.join("; "))
    }
}

impl TransferReason {
    /// Returns the name that people read.
    pub(crate) fn name(self) -> &'static str {
        match self {
            TransferReason::YoungTurk => "young turk takes over",
            TransferReason::Leave => "grantor leaves",
        }
    }
}

impl KilledRole {
    /// Returns the name that people read.
    pub(crate) fn name(self) -> &'static str {
        match self {
            KilledRole::Holder => "holder",
            KilledRole::Grantor => "grantor",
            KilledRole::Elder => "elder",
            KilledRole::ElderAndGrantor => "elder and grantor",
        }
    }
}

/// A duration in milliseconds, for people.
pub(crate) fn milliseconds(span: Duration) -> String {
    format!("{:.1} ms", span.as_secs_f64() * 1e3)
}

fn describe(sight: Option<&ClusterSnapshot>) -> String {
    let Some(sight) = sight else { return "nothing".to_owned() };
    let short = |process: &Option<String>| {
        process.as_ref().map_or("none".to_owned(), |text| text.chars().take(8).collect())
    };
    let lease = if sight.leased { "" } else { ", lease run out" };
    format!(
        "view {} of {} and {} ghosts, elder {}, grantor {}{lease}",
        sight.view,
        sight.members.len(),
        sight.ghosts,
        short(&sight.elder),
        short(&sight.grantor),
    )
}
