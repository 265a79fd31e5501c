//! Revocation: a holder is told once that a revocation of its lock is requested. Only then the lock
//! is revoked by force, and the next waiter gets it.

use super::{Workload, at_once, goes_on, have};
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

pub(super) async fn play(player: &Workload) {
    while !player.is_ending() {
        player.rest(1, 150).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        match player.below(100) {
            0..=59 => take(player, &service).await,
            60..=89 => ask(player, &service).await,
            90..=95 => force_untold(player, &service).await,
            _ => player.turk(&service).await,
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

async fn take(player: &Workload, service: &LockService) {
    let name = *player.pick(&NAMES);
    let is_revocable = player.below(5) > 0;
    let mut wish = if player.below(4) == 0 { service.share(name) } else { service.lock(name) };
    if is_revocable {
        wish = wish.revocable();
    }
    if player.below(3) == 0 {
        wish = wish.wait(player.millis(1, 2_000));
    }
    if player.below(6) == 0 {
        wish = wish.lease(player.millis(20, 400));
    }
    match player.fickle(name, wish.owner(player.number).into_future()).await {
        Some(Ok(guard)) => hold(player, name, guard, is_revocable).await,
        Some(Err(LockError::TimedOut)) | None => {}
        Some(Err(error)) => goes_on(player, name, &error),
    }
}

async fn hold(player: &Workload, name: &'static str, guard: Guard, is_revocable: bool) {
    let board = &player.stage.board;
    let (token, watch) = (guard.token(), guard.watch());
    player.note(|| format!("has {name} by {token:?}, revocable: {is_revocable}"));
    let wanted = WatchedHold {
        watch: watch.clone(),
        revocation: guard.revocation(),
        is_revocable,
        clock: player.clock(),
    };
    board.wanted.borrow_mut().insert(token, Rc::new(wanted));
    let mut revocation = guard.revocation();
    let guard = Rc::new(guard);
    let seen = Rc::downgrade(&guard);
    let mode = if guard.is_shared() { ClaimMode::Share } else { ClaimMode::Lock };
    player.claim(SERVICE, name, mode, Box::new(move || seen.upgrade()?.fence().ok()));
    let mut heard = BTreeSet::new();
    // One in three releases it on request, another one works on, the third ignores requests.
    let (does, span) = (player.below(3), player.millis(1, 1_500));
    let listens = async {
        while let Some(request) = revocation.requested().await {
            player.count("requests heard");
            if !heard.insert(request.metadata.clone()) {
                let what = format!(
                    "player {} was told twice that {name} is wanted back: {request:?}",
                    player.number
                );
                board.fail("asked_back_once", what);
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
            player.fickle("a request to have it back", tokio::time::timeout(span, listens)).await;
    }
    if watch.reason() == Some(LostReason::Revoked) {
        judge_taken(player, token);
    }
}

/// `told_before_taken`: a hold that was revoked by force was revocable, its holder was told, and
/// the hold is over.
fn judge_taken(player: &Workload, token: Token) {
    let board = &player.stage.board;
    // The hold is granted, and its player has not registered it yet.
    let Some(wanted) = board.wanted.borrow().get(&token).cloned() else { return };
    let fail = |what: &str| board.fail("told_before_taken", format!("{token:?} {what}"));
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

async fn ask(player: &Workload, service: &LockService) {
    let name = *player.pick(&NAMES);
    let board = &player.stage.board;
    let word = format!("{}-{}", player.number, board.now());
    player.count("locks wanted back");
    let mut wish = service.revoke(name).metadata(&word);
    if player.below(3) == 0 {
        wish = wish.wait(player.millis(1, 2_000));
    }
    let told = match player.fickle("to be told of holders", wish.into_future()).await {
        Some(Ok(outcome)) => {
            player.note(|| format!("told of {word}: {:?}", outcome.told));
            for firm in &outcome.firm {
                judge_firm(player, firm);
            }
            outcome.told
        }
        Some(Err(RevokeError::NotRevocable(firm))) => return judge_firm(player, &firm),
        Some(Err(RevokeError::NotHeld)) | None => return,
        Some(Err(error)) => return goes_on(player, "revoke", &error),
    };
    for holder in &told {
        player.count("holders told");
        judge_told(player, holder, &word).await;
    }
    if player.below(2) == 0 {
        return;
    }
    player.rest(1, 300).await;
    for holder in &told {
        match player.fickle("to take it away", service.force_revoke(holder)).await {
            Some(Ok(())) => taken(player, service, name, holder).await,
            Some(Err(RevokeError::NotHeld | RevokeError::Undecided)) | None => {}
            Some(Err(error @ (RevokeError::Untold | RevokeError::NotRevocable(_)))) => {
                board.fail(
                    "told_before_taken",
                    format!("{:?} was told, and is {error:?}", holder.token),
                );
            }
            Some(Err(error)) => goes_on(player, "force", &error),
        }
    }
}

/// A holder that is reported as not revocable must not be revocable.
fn judge_firm(player: &Workload, firm: &HolderInfo) {
    let board = &player.stage.board;
    if board.wanted.borrow().get(&firm.token).is_some_and(|wanted| wanted.is_revocable) {
        board.fail("told_before_taken", format!("{:?} is revocable, and was not told", firm.token));
    }
}

/// A holder that is reported as told must have been told: each owner of its guard can see the
/// request, or as many others as a hold keeps.
async fn judge_told(player: &Workload, holder: &HolderInfo, word: &str) {
    let board = &player.stage.board;
    let Some(wanted) = board.wanted.borrow().get(&holder.token).cloned() else { return };
    let mut revocation = wanted.revocation.clone();
    let most = player.stage.plan.limits.wanted;
    let is_told = async {
        let mut seen = 0;
        while let Some(Some(request)) = paced(wanted.clock, at_once(revocation.requested())).await {
            seen += 1;
            if request.metadata.as_bytes() == word.as_bytes() {
                return true;
            }
        }
        // The requests of a hold that is over are told to no holder.
        seen >= most || wanted.is_over() && revocation.is_requested()
    };
    if !wanted.is_revocable || !is_told.await {
        board.fail(
            "told_before_taken",
            format!("{:?} is said to have been told of {word}, and was not", holder.token),
        );
    }
}

/// An operator that forces a revocation without a request.
async fn force_untold(player: &Workload, service: &LockService) {
    let name = *player.pick(&NAMES);
    let Ok(seen) = service.inspect(name).await else { return };
    let Some(holder) = seen.holder else { return };
    match player.fickle("to take a lock without a request", service.force_revoke(&holder)).await {
        // Another player has requested it.
        Some(Ok(())) => taken(player, service, name, &holder).await,
        Some(Err(RevokeError::Untold | RevokeError::NotRevocable(_))) => {
            player.count("untold not taken away")
        }
        Some(Err(RevokeError::NotHeld | RevokeError::Undecided)) | None => {}
        Some(Err(error)) => goes_on(player, "force", &error),
    }
}

/// The hold is over. Without faults, the next waiter has the lock within a second.
async fn taken(player: &Workload, service: &LockService, name: &str, holder: &HolderInfo) {
    player.count("holds taken away");
    player.note(|| format!("has taken {name} by {:?} away", holder.token));
    judge_taken(player, holder.token);
    if player.below(3) > 0 {
        return;
    }
    player.rest(1_000, 1_000).await;
    let Ok(seen) = service.inspect(name).await else { return };
    if !player.stage.board.is_undisturbed() {
        return;
    }
    player.count("locks looked up after they were taken away");
    let stays = seen.holders.iter().any(|one| one.token == holder.token);
    if stays || seen.holder.is_none() && !seen.waiters.is_empty() {
        let what = format!("{:?} of {name} was taken away a second ago: {seen:?}", holder.token);
        player.stage.board.fail("taken_goes_to_the_next", what);
    }
}

pub(super) async fn have_all(member: &Member) -> Result<(), String> {
    for name in NAMES {
        have(member, SERVICE, name).await?;
    }
    Ok(())
}
