//! `LeaderLatch` and `LeaderSelector`: one worker leads at a time, and each listener hears of every
//! change once.

use super::{Workload, goes_on};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::{
    CloseMode, LatchEvent, LatchEvents, LeaderLatch, LeaderSelector, LockService, Member,
    SelectorError, Term, Token,
};
use std::cell::Cell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

const SERVICE: &str = "jobs";
const NAME: &str = "cron";

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 200).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        match worker.below(100) {
            0..=54 => latch(worker, &service).await,
            55..=74 => run(worker, &service).await,
            75..=94 => selector(worker, &service).await,
            _ => worker.turk(&service).await,
        }
    }
}

fn leads(worker: &Workload, term: &Term) {
    worker.note(|| format!("leads by {:?}", term.token()));
    let term = term.clone();
    worker.claim(SERVICE, NAME, ClaimMode::Lead, Box::new(move || term.fence().ok()));
}

async fn latch(worker: &Workload, service: &LockService) {
    let Ok(mut latch) = LeaderLatch::new(service, NAME, worker.number.to_string()) else { return };
    if worker.below(3) == 0 {
        latch = latch.lease(worker.millis(50, 600));
    }
    let mut readers = [latch.events(), latch.events()];
    let mut heard: [Vec<LatchEvent>; 2] = Default::default();
    if let Err(error) = latch.start() {
        return goes_on(worker, "start", &error);
    }
    let mut led: Vec<Token> = Vec::new();
    for _ in 0..1 + worker.below(12) {
        if worker.is_ending() {
            break;
        }
        worker.rest(1, 100).await;
        match worker.below(4) {
            0 | 1 => {
                let limit = worker.millis(1, 1_500);
                let waits = latch.await_leadership().wait(limit);
                if let Some(Ok(term)) = worker.fickle("leadership", waits).await {
                    led.push(term.token());
                    leads(worker, &term);
                }
            }
            2 => {
                if let Some(term) = latch.term() {
                    led.push(term.token());
                    leads(worker, &term);
                }
            }
            _ => {
                let reader = worker.below(2) as usize;
                let limit = worker.millis(1, 400);
                let next = tokio::time::timeout(limit, readers[reader].next());
                if let Some(Ok(Some(event))) = worker.fickle("event", next).await {
                    heard[reader].push(event);
                }
            }
        }
    }
    let mode = if worker.below(2) == 0 { CloseMode::Silent } else { CloseMode::NotifyLeader };
    worker.harness.waits(worker.number, "close".to_owned());
    // The latch has closed itself already if the service was destroyed or the member has left.
    let _ = latch.close_with(mode).await;
    for (reader, heard) in readers.iter_mut().zip(&mut heard) {
        rest_of(reader, heard).await;
    }
    judge(worker, &heard, &led, mode);
}

/// Reads the remaining events of a closed latch.
async fn rest_of(reader: &mut LatchEvents, heard: &mut Vec<LatchEvent>) {
    while let Some(event) = reader.next().await {
        heard.push(event);
    }
}

/// `listeners_see_every_change_once`
fn judge(worker: &Workload, heard: &[Vec<LatchEvent>; 2], led: &[Token], mode: CloseMode) {
    let [one, other] = heard;
    let is_whole = |heard: &[LatchEvent]| {
        !heard.iter().any(|event| matches!(event, LatchEvent::Missed { .. }))
    };
    if !is_whole(one) || !is_whole(other) {
        return worker.count("events missed");
    }
    let fail = |what: String| {
        let what = format!("worker {}: {what}: {one:?}", worker.number);
        worker.harness.checker.fail("listeners_see_every_change_once", what);
    };
    if one != other {
        return fail(format!("another listener heard {other:?}"));
    }
    let (mut leads, mut terms): (Option<Token>, Vec<Token>) = (None, Vec::new());
    for event in one {
        match event {
            LatchEvent::IsLeader(term) => {
                if leads.is_some() || terms.last().is_some_and(|last| *last >= term.token()) {
                    return fail(format!("began {:?} out of turn", term.token()));
                }
                leads = Some(term.token());
                terms.push(term.token());
            }
            LatchEvent::NotLeader { token, .. } => {
                worker.count("terms heard from beginning to end");
                if leads.take() != Some(*token) {
                    return fail(format!("ended {token:?} out of turn"));
                }
            }
            _ => {}
        }
    }
    if let Some(untold) = led.iter().find(|token| !terms.contains(token)) {
        return fail(format!("no listener was told that {untold:?} began"));
    }
    if let (Some(token), CloseMode::NotifyLeader) = (leads, mode) {
        fail(format!("no listener was told that {token:?} ended"));
    }
}

async fn selector(worker: &Workload, service: &LockService) {
    let Ok(selector) = LeaderSelector::new(service, NAME, worker.number.to_string()) else {
        return;
    };
    for _ in 0..1 + worker.below(3) {
        if worker.is_ending() {
            return;
        }
        let work = async |term: Term| {
            leads(worker, &term);
            worker.count("works led");
            worker.rest(1, 200).await;
            if worker.below(4) == 0 {
                selector.interrupt();
                tokio::time::sleep(Duration::from_millis(1)).await;
                // The work is dropped at its await point.
                let what =
                    format!("worker {} works on after its term was interrupted", worker.number);
                worker.harness.checker.fail("one_leader_per_term", what);
            }
        };
        if let Some(Err(error)) = worker.fickle("selector", selector.run_once(work)).await {
            worker.note(|| format!("led no more: {error:?}"));
        }
    }
}

/// A selector that runs on. The selector does one piece of work at a time, no longer than its term.
/// After each piece it has a position in the queue.
async fn run(worker: &Workload, service: &LockService) {
    let Ok(mut selector) = LeaderSelector::new(service, NAME, worker.number.to_string()) else {
        return;
    };
    if worker.below(3) == 0 {
        selector = selector.lease(worker.millis(50, 600));
    }
    let (works, is_working) = (Cell::new(0), Cell::new(false));
    let runs = selector.run(|term| {
        works.set(works.get() + 1);
        work(worker, term, &is_working)
    });
    let watches = watch(worker, &selector, &works, &is_working);
    let either = async {
        let (mut runs, mut watches) = (pin!(runs), pin!(watches));
        poll_fn(|context| match runs.as_mut().poll(context) {
            Poll::Ready(error) => Poll::Ready(Some(error)),
            Poll::Pending => watches.as_mut().poll(context).map(|()| None),
        })
        .await
    };
    match worker.fickle("to run on", either).await {
        Some(Some(error @ (SelectorError::Left | SelectorError::Destroyed))) => {
            goes_on(worker, "run", &error)
        }
        Some(Some(error)) => {
            let what = format!("worker {} runs no more: {error:?}", worker.number);
            worker.harness.checker.fail("selectors_stand_again", what);
        }
        Some(None) | None => {}
    }
}

/// The work of a term.
async fn work(worker: &Workload, term: Term, is_working: &Cell<bool>) {
    /// Clears the flag when the work ends or is dropped.
    struct WorkingFlag<'a>(&'a Cell<bool>);
    impl Drop for WorkingFlag<'_> {
        fn drop(&mut self) {
            self.0.set(false);
        }
    }
    let fail = |what: &str| {
        worker
            .harness
            .checker
            .fail("one_leader_per_term", format!("worker {} {what}", worker.number));
    };
    if is_working.replace(true) {
        fail("is at work twice");
    }
    let _working = WorkingFlag(is_working);
    leads(worker, &term);
    worker.count("works run");
    for _ in 0..1 + worker.below(8) {
        worker.rest(1, 60).await;
        // The work is dropped at the instant at which its term ends. It may be polled once before,
        // if its rest ends at that instant.
        let mut looks = 0;
        while term.fence().is_err() {
            looks += 1;
            if looks == 3 {
                return fail("works on though its term is over");
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    }
}

/// `selectors_stand_again`: a running selector leads or queues.
async fn watch(
    worker: &Workload,
    selector: &LeaderSelector,
    works: &Cell<u64>,
    is_working: &Cell<bool>,
) {
    let (mut misses, mut last) = (0, 0);
    for _ in 0..5 + worker.below(20) {
        worker.rest(200, 300).await;
        if worker.is_ending() {
            return;
        }
        if worker.below(6) == 0 && selector.interrupt() {
            worker.count("works interrupted");
        }
        let Ok(seen) = selector.participants().await else { continue };
        let stands = seen.more > 0 || seen.first.iter().any(|one| one.id == selector.id());
        // The request after a term is still under way for a while.
        if stands
            || is_working.get()
            || works.get() != last
            || !worker.harness.checker.is_undisturbed()
        {
            worker.count(if stands {
                "selectors seen in line"
            } else {
                "selectors between two terms"
            });
            (misses, last) = (0, works.get());
            continue;
        }
        misses += 1;
        if misses == 3 {
            let what =
                format!("worker {} runs, and does not stand in line: {seen:?}", worker.number);
            return worker.harness.checker.fail("selectors_stand_again", what);
        }
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    let service = member.lock_service(SERVICE).await.map_err(|error| error.to_string())?;
    let latch = LeaderLatch::new(&service, NAME, "last").map_err(|error| error.to_string())?;
    latch.start().map_err(|error| error.to_string())?;
    latch.await_leadership().await.map_err(|error| error.to_string())?;
    latch.close().await.map_err(|error| error.to_string())
}
