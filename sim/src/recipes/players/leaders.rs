//! `LeaderLatch` and `LeaderSelector`: one leads at a time, and whoever listens hears of every change, once.

use super::{Player, goes_on};
use crate::recipes::board::Mode;
use elderlock::{CloseMode, LatchEvent, LatchEvents, LeaderLatch, LeaderSelector, LockService, Member, Term, Token};
use std::time::Duration;

const SERVICE: &str = "jobs";
const NAME: &str = "cron";

pub(super) async fn play(player: &Player) {
    while !player.is_ending() {
        player.rest(1, 200).await;
        let Ok(service) = player.member.lock_service(SERVICE).await else { return };
        match player.below(100) {
            0..=59 => latch(player, &service).await,
            60..=94 => selector(player, &service).await,
            _ => player.turk(&service).await,
        }
    }
}

fn leads(player: &Player, term: &Term) {
    player.note(|| format!("leads by {:?}", term.token()));
    let term = term.clone();
    player.claim(SERVICE, NAME, Mode::Lead, Box::new(move || term.fence().ok()));
}

async fn latch(player: &Player, service: &LockService) {
    let Ok(mut latch) = LeaderLatch::new(service, NAME, player.number.to_string()) else { return };
    if player.below(3) == 0 {
        latch = latch.lease(player.millis(50, 600));
    }
    let mut readers = [latch.events(), latch.events()];
    let mut heard: [Vec<LatchEvent>; 2] = Default::default();
    if let Err(error) = latch.start() {
        return goes_on(player, "start", &error);
    }
    let mut led: Vec<Token> = Vec::new();
    for _ in 0..1 + player.below(12) {
        if player.is_ending() {
            break;
        }
        player.rest(1, 100).await;
        match player.below(4) {
            0 | 1 => {
                let limit = player.millis(1, 1_500);
                let waits = latch.await_leadership_for(limit);
                if let Some(Ok(term)) = player.fickle("leadership", waits).await {
                    led.push(term.token());
                    leads(player, &term);
                }
            }
            2 => {
                if let Some(term) = latch.term() {
                    led.push(term.token());
                    leads(player, &term);
                }
            }
            _ => {
                let reader = player.below(2) as usize;
                let limit = player.millis(1, 400);
                let next = tokio::time::timeout(limit, readers[reader].next());
                if let Some(Ok(Some(event))) = player.fickle("event", next).await {
                    heard[reader].push(event);
                }
            }
        }
    }
    let mode = if player.below(2) == 0 { CloseMode::Silent } else { CloseMode::NotifyLeader };
    player.stage.waits(player.number, "close".to_owned());
    // Closed by itself already, if the service was destroyed or the member has left.
    let _ = latch.close_with(mode).await;
    for (reader, heard) in readers.iter_mut().zip(&mut heard) {
        rest_of(reader, heard).await;
    }
    judge(player, &heard, &led, mode);
}

/// Whatever is still to be heard of a latch that is closed.
async fn rest_of(reader: &mut LatchEvents, heard: &mut Vec<LatchEvent>) {
    while let Some(event) = reader.next().await {
        heard.push(event);
    }
}

/// `listeners_see_every_change_once`
fn judge(player: &Player, heard: &[Vec<LatchEvent>; 2], led: &[Token], mode: CloseMode) {
    let [one, other] = heard;
    let is_whole = |heard: &[LatchEvent]| !heard.iter().any(|event| matches!(event, LatchEvent::Missed { .. }));
    if !is_whole(one) || !is_whole(other) {
        return player.count("events missed");
    }
    let fail = |what: String| {
        let what = format!("player {}: {what}: {one:?}", player.number);
        player.stage.board.fail("listeners_see_every_change_once", what);
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
                player.count("terms heard from beginning to end");
                if leads.take() != Some(*token) {
                    return fail(format!("ended {token:?} out of turn"));
                }
            }
            _ => {}
        }
    }
    if let Some(untold) = led.iter().find(|token| !terms.contains(token)) {
        return fail(format!("nobody was told that {untold:?} began"));
    }
    if let (Some(token), CloseMode::NotifyLeader) = (leads, mode) {
        fail(format!("nobody was told that {token:?} ended"));
    }
}

async fn selector(player: &Player, service: &LockService) {
    let Ok(selector) = LeaderSelector::new(service, NAME, player.number.to_string()) else { return };
    for _ in 0..1 + player.below(3) {
        if player.is_ending() {
            return;
        }
        let work = async |term: Term| {
            leads(player, &term);
            player.count("works led");
            player.rest(1, 200).await;
            if player.below(4) == 0 {
                selector.interrupt();
                tokio::time::sleep(Duration::from_millis(1)).await;
                // It is dropped where it awaits.
                let what = format!("player {} works on after its term was interrupted", player.number);
                player.stage.board.fail("one_leader_per_term", what);
            }
        };
        if let Some(Err(error)) = player.fickle("selector", selector.run_once(work)).await {
            player.note(|| format!("led no more: {error:?}"));
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
