//! Revocation: a holder is told once that a revocation of its lock is requested. Only then the lock
//! is revoked by force, and the next waiter gets it.

use super::{Workload, goes_on, have, poll_once};
use crate::recipes::belief_checker::ClaimMode;
use elderlock::simulated::{by_clock, paced};
use elderlock::{
    Guard, HolderInfo, LockError, LockService, LossWatch, LostReason, Member, Revocation,
    RevokeError, Token,
};
use std::collections::BTreeSet;
use std::rc::Rc;

const SERVICE: &str = "till";
const NAMES: [&str; 2] = ["a", "b"];

pub(super) async fn play(worker: &Workload) {
    while !worker.is_ending() {
        worker.rest(1, 150).await;
        let Ok(service) = worker.service(SERVICE).await else { return };
        match worker.below(100) {
            0..=59 => take(worker, &service).await,
            60..=89 => ask(worker, &service).await,
            90..=95 => force_untold(worker, &service).await,
            _ => worker.turk(&service).await,
        }
    }
}

/// A view of a hold that does not keep it.
pub struct WatchedHold {
    watch: LossWatch,
    revocation: Revocation,
    is_revocable: bool,
    /// The error of its member's clock, in millionths; positive: too fast.
    clock: i32,
}

impl WatchedHold {
    fn is_over(&self) -> bool {
        by_clock(self.clock, || self.watch.reason().is_some())
    }
}

async fn take(worker: &Workload, service: &LockService) {
    let name = *worker.pick(&NAMES);
    let is_revocable = worker.below(5) > 0;
    let mut request = if worker.below(4) == 0 { service.share(name) } else { service.lock(name) };
    if is_revocable {
        request = request.revocable();
    }
    if worker.below(3) == 0 {
        request = request.wait(worker.millis(1, 2_000));
    }
    if worker.below(6) == 0 {
        request = request.lease(worker.millis(20, 400));
    }
    match worker.fickle(name, request.owner(worker.number).into_future()).await {
        Some(Ok(guard)) => hold(worker, name, guard, is_revocable).await,
        Some(Err(LockError::TimedOut)) | None => {}
        Some(Err(error)) => goes_on(worker, name, &error),
    }
}

async fn hold(worker: &Workload, name: &'static str, guard: Guard, is_revocable: bool) {
    let checker = &worker.harness.checker;
    let (token, watch) = (guard.token(), guard.watch());
    worker.note(|| format!("has {name} by {token:?}, revocable: {is_revocable}"));
    let wanted = WatchedHold {
        watch: watch.clone(),
        revocation: guard.revocation(),
        is_revocable,
        clock: worker.clock(),
    };
    checker.wanted.borrow_mut().insert(token, Rc::new(wanted));
    let mut revocation = guard.revocation();
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    let mode = if guard.is_shared() { ClaimMode::Share } else { ClaimMode::Lock };
    worker.claim(SERVICE, name, mode, Box::new(move || seen.upgrade()?.fence().ok()));
    let mut heard = BTreeSet::new();
    // A third of the holders release on request, a third work on, and a third ignore requests.
    let (does, span) = (worker.below(3), worker.millis(1, 1_500));
    let listens = async {
        while let Some(request) = revocation.requested().await {
            worker.count("requests heard");
            if !heard.insert(request.metadata.clone()) {
                let what = format!(
                    "worker {} was told twice that {name} is requested back: {request:?}",
                    worker.number
                );
                checker.fail("asked_back_once", what);
            }
            if does == 0 {
                return;
            }
        }
    };
    if does == 2 {
        tokio::time::sleep(span).await;
    } else {
        let _ =
            worker.fickle("a request to have it back", tokio::time::timeout(span, listens)).await;
    }
    if watch.reason() == Some(LostReason::Revoked) {
        judge_taken(worker, token);
    }
}

/// `told_before_taken`: a hold that was revoked by force was revocable, its holder was told, and
/// the hold is over.
fn judge_taken(worker: &Workload, token: Token) {
    let checker = &worker.harness.checker;
    // The hold is granted, and its worker has not registered it yet.
    let Some(wanted) = checker.wanted.borrow().get(&token).cloned() else { return };
    let fail = |what: &str| checker.fail("told_before_taken", format!("{token:?} {what}"));
    if !wanted.is_revocable {
        fail("was taken away, and is not revocable");
    }
    if !wanted.revocation.is_requested() {
        fail("was taken away, and its holder had not been told");
    }
    if !wanted.is_over() {
        fail("was taken away, and is still good");
    }
}

async fn ask(worker: &Workload, service: &LockService) {
    let name = *worker.pick(&NAMES);
    let checker = &worker.harness.checker;
    let word = format!("{}-{}", worker.number, checker.now());
    worker.count("locks requested back");
    let mut request = service.revoke(name).metadata(&word);
    if worker.below(3) == 0 {
        request = request.wait(worker.millis(1, 2_000));
    }
    let told = match worker.fickle("to be told of holders", request.into_future()).await {
        Some(Ok(outcome)) => {
            worker.note(|| format!("told of {word}: {:?}", outcome.told));
            for holder in &outcome.not_revocable {
                judge_not_revocable(worker, holder);
            }
            outcome.told
        }
        Some(Err(RevokeError::NotRevocable(holder))) => {
            return judge_not_revocable(worker, &holder);
        }
        Some(Err(RevokeError::NotHeld)) | None => return,
        Some(Err(error)) => return goes_on(worker, "revoke", &error),
    };
    for holder in &told {
        worker.count("holders told");
        judge_told(worker, holder, &word).await;
    }
    if worker.below(2) == 0 {
        return;
    }
    worker.rest(1, 300).await;
    for holder in &told {
        match worker.fickle("to take it away", service.force_revoke(holder)).await {
            Some(Ok(())) => taken(worker, service, name, holder).await,
            Some(Err(RevokeError::NotHeld | RevokeError::Undecided)) | None => {}
            Some(Err(error @ (RevokeError::HolderNotTold | RevokeError::NotRevocable(_)))) => {
                checker.fail(
                    "told_before_taken",
                    format!("{:?} was told, and is {error:?}", holder.token),
                );
            }
            Some(Err(error)) => goes_on(worker, "force", &error),
        }
    }
}

/// A holder that is reported as not revocable must not be revocable.
fn judge_not_revocable(worker: &Workload, holder: &HolderInfo) {
    let checker = &worker.harness.checker;
    if checker.wanted.borrow().get(&holder.token).is_some_and(|wanted| wanted.is_revocable) {
        checker.fail(
            "told_before_taken",
            format!("{:?} is revocable, and was not told", holder.token),
        );
    }
}

/// A holder that is reported as told must have been told. Each owner of its guard can see the
/// request, or as many other requests as a hold keeps.
async fn judge_told(worker: &Workload, holder: &HolderInfo, word: &str) {
    let checker = &worker.harness.checker;
    let Some(wanted) = checker.wanted.borrow().get(&holder.token).cloned() else { return };
    let mut revocation = wanted.revocation.clone();
    let most = worker.harness.plan.limits.wanted;
    let is_told = async {
        let mut seen = 0;
        while let Some(Some(request)) = paced(wanted.clock, poll_once(revocation.requested())).await
        {
            seen += 1;
            if request.metadata.as_bytes() == word.as_bytes() {
                return true;
            }
        }
        // The requests of a hold that is over are told to no holder.
        seen >= most || wanted.is_over() && revocation.is_requested()
    };
    if !wanted.is_revocable || !is_told.await {
        checker.fail(
            "told_before_taken",
            format!("{:?} is said to have been told of {word}, and was not", holder.token),
        );
    }
}

/// An operator that forces a revocation without a request.
async fn force_untold(worker: &Workload, service: &LockService) {
    let name = *worker.pick(&NAMES);
    let Ok(seen) = service.inspect(name).await else { return };
    let Some(holder) = seen.holder else { return };
    match worker.fickle("to take a lock without a request", service.force_revoke(&holder)).await {
        // Another worker has requested it.
        Some(Ok(())) => taken(worker, service, name, &holder).await,
        Some(Err(RevokeError::HolderNotTold | RevokeError::NotRevocable(_))) => {
            worker.count("untold not taken away")
        }
        Some(Err(RevokeError::NotHeld | RevokeError::Undecided)) | None => {}
        Some(Err(error)) => goes_on(worker, "force", &error),
    }
}

/// The hold is over. Without faults, the next waiter has the lock within a second.
async fn taken(worker: &Workload, service: &LockService, name: &str, holder: &HolderInfo) {
    worker.count("holds taken away");
    worker.note(|| format!("has taken {name} by {:?} away", holder.token));
    judge_taken(worker, holder.token);
    if worker.below(3) > 0 {
        return;
    }
    worker.rest(1_000, 1_000).await;
    let Ok(seen) = service.inspect(name).await else { return };
    if !worker.harness.checker.is_undisturbed() {
        return;
    }
    worker.count("locks looked up after they were taken away");
    let stays = seen.holders.iter().any(|one| one.token == holder.token);
    if stays || seen.holder.is_none() && !seen.waiters.is_empty() {
        let what = format!("{:?} of {name} was taken away a second ago: {seen:?}", holder.token);
        worker.harness.checker.fail("taken_goes_to_the_next", what);
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, name).await?;
    }
    Ok(())
}
