//! `HoldCell`: what a guard can ask without the engine's lock.
//!
//! Also of an object that is open, which is no hold: its cell has what it has to tell, and hangs on no lease.

use super::clock;
use super::sync::{AtomicBool, AtomicU8, AtomicU64, Mutex};
use super::telemetry::{HoldMeter, Meter};
use crate::protocol::{Content, LostReason, RequestId, Time, Token, ViewNumber};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};
use tokio::sync::Notify;

/// One hold, shared by the engine, which ends it, and the guards, which ask.
///
/// - `told_before_regrant`: it is good only while both leases run by this machine's clock and nobody has ended it;
///   no message and no task is needed for it to become an error.
/// - Once it has failed it stays failed.
pub(crate) struct HoldCell {
    pub(crate) request: RequestId,
    /// The token. Changes when a share becomes the lock, and only rises.
    token: AtomicU64,
    /// Whether a lock is held as a share.
    shared: AtomicBool,
    /// The end of the lock's lease in nanoseconds; `u64::MAX` without one.
    until: AtomicU64,
    /// The end of the member's lease, shared by all holds of one incarnation.
    member_until: Arc<AtomicU64>,
    /// 0 while held, else the code of the reason.
    lost: AtomicU8,
    told: Notify,
    meter: HoldMeter,
    /// Of an object: what it has to tell.
    content: Option<Box<Mutex<Content>>>,
}

impl HoldCell {
    pub(crate) fn new(request: RequestId, token: Token, until: Time, member_until: Arc<AtomicU64>) -> Self {
        let until = AtomicU64::new(until.as_nanos());
        let (lost, told, meter) = (AtomicU8::new(0), Notify::new(), HoldMeter::new());
        let token = AtomicU64::new(token.get());
        let shared = AtomicBool::new(false);
        HoldCell { request, token, shared, until, member_until, lost, told, meter, content: None }
    }

    /// Of an object that is open.
    pub(crate) fn of_object(request: RequestId, token: Token, content: Content) -> Self {
        let forever = Arc::new(AtomicU64::new(u64::MAX));
        let content = Some(Box::new(Mutex::new(content)));
        HoldCell { content, ..HoldCell::new(request, token, Time::MAX, forever) }
    }

    /// What the object has to tell, as far as this member has heard; `None`: it is no object's cell.
    pub(crate) fn content(&self) -> Option<Content> {
        let content = self.content.as_ref()?;
        Some(content.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// The object has something new to tell. Wakes nobody: that is [`tell_news`](Self::tell_news).
    pub(crate) fn renew(&self, new: Content) {
        if let Some(content) = &self.content {
            *content.lock().unwrap_or_else(PoisonError::into_inner) = new;
        }
    }

    /// Completes when the object has another version than that, or is lost.
    pub(crate) async fn changed(&self, since: Token) -> Result<Content, LostReason> {
        let mut told = std::pin::pin!(self.told.notified());
        loop {
            told.as_mut().enable();
            self.fence()?;
            if let Some(content) = self.content().filter(|content| content.version != since) {
                return Ok(content);
            }
            told.as_mut().await;
            told.set(self.told.notified());
        }
    }

    /// Wakes those who wait for a change.
    pub(crate) fn tell_news(&self) {
        self.told.notify_waiters();
    }

    /// The token, whether or not the hold is good.
    pub(crate) fn token(&self) -> Token {
        let bits = self.token.load(Ordering::Acquire);
        Token::new(ViewNumber((bits >> 32) as u32), bits as u32)
    }

    /// Whether it is a share of a lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// It is a share of a lock.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Release);
    }

    /// A share became the lock.
    pub(crate) fn upgrade(&self, token: Token) {
        self.token.store(token.get(), Ordering::Release);
        self.shared.store(false, Ordering::Release);
    }

    /// The token, if the hold is good at this instant.
    pub(crate) fn fence(&self) -> Result<Token, LostReason> {
        // The ends are read before the clock: a pause in between can only make the answer stricter.
        let member_until = self.member_until.load(Ordering::Acquire);
        let until = self.until.load(Ordering::Acquire);
        let now = clock::now().as_nanos();
        if let Some(reason) = self.lost_reason() {
            return Err(reason);
        }
        let reason = if now >= until {
            LostReason::LeaseEnded
        } else if now >= member_until {
            LostReason::Suspended
        } else {
            return Ok(self.token());
        };
        // The core will say the same as soon as its timer runs; whoever was told once must not hear otherwise later.
        self.mark_lost(reason);
        self.tell();
        Err(self.lost_reason().unwrap_or(reason))
    }

    /// Why it is lost, as far as somebody has noticed.
    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        reason(self.lost.load(Ordering::Acquire))
    }

    /// Ends it; the first reason stays. Wakes nobody: that is [`tell`](Self::tell), outside the engine's lock.
    pub(crate) fn mark_lost(&self, reason: LostReason) {
        let _ = self.lost.compare_exchange(0, code(reason), Ordering::AcqRel, Ordering::Acquire);
    }

    /// When it was granted, if that is measured.
    pub(crate) fn since(&self) -> Option<Time> {
        self.meter.since()
    }

    /// Whoever asked for it has it now.
    pub(crate) fn begin(&self, meter: &Meter) {
        self.meter.begin(meter);
        if let Some(reason) = self.lost_reason() {
            self.meter.end(|| Some(reason));
        }
    }

    /// Whoever had it has let it go. Only the clock can tell whether that was in time.
    pub(crate) fn end(&self) {
        self.meter.end(|| self.fence().err());
    }

    /// Wakes those who wait for its loss.
    pub(crate) fn tell(&self) {
        self.told.notify_waiters();
        self.meter.end(|| self.lost_reason());
    }

    /// Its lease ends then.
    pub(crate) fn extend(&self, until: Time) {
        self.until.store(until.as_nanos(), Ordering::Release);
    }

    /// Completes when it is lost.
    pub(crate) async fn lost(&self) -> LostReason {
        let mut told = std::pin::pin!(self.told.notified());
        loop {
            // Enabled before the question, or a loss between question and wait would be missed.
            told.as_mut().enable();
            if let Err(reason) = self.fence() {
                return reason;
            }
            told.as_mut().await;
            told.set(self.told.notified());
        }
    }
}

fn code(reason: LostReason) -> u8 {
    match reason {
        LostReason::LeaseEnded => 1,
        LostReason::Suspended => 2,
        LostReason::Expelled => 3,
        LostReason::Superseded => 4,
        LostReason::Left => 5,
        LostReason::Destroyed => 6,
    }
}

fn reason(code: u8) -> Option<LostReason> {
    Some(match code {
        0 => return None,
        1 => LostReason::LeaseEnded,
        2 => LostReason::Suspended,
        3 => LostReason::Expelled,
        4 => LostReason::Superseded,
        5 => LostReason::Left,
        _ => LostReason::Destroyed,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn cell(until: Time, member_until: Time) -> HoldCell {
        let member_until = Arc::new(AtomicU64::new(member_until.as_nanos()));
        HoldCell::new(RequestId(1), Token::new(ViewNumber(1), 7), until, member_until)
    }

    #[test]
    fn a_hold_is_good_only_while_both_leases_run() {
        let later = clock::now() + Duration::from_secs(3600);
        assert_eq!(cell(later, later).fence(), Ok(Token::new(ViewNumber(1), 7)));
        assert_eq!(cell(Time::MAX, later).fence(), Ok(Token::new(ViewNumber(1), 7)));
        assert_eq!(cell(clock::now(), later).fence(), Err(LostReason::LeaseEnded));
        assert_eq!(cell(later, clock::now()).fence(), Err(LostReason::Suspended));
    }

    #[test]
    fn a_hold_that_failed_once_never_recovers() {
        let later = clock::now() + Duration::from_secs(3600);
        let cell = cell(clock::now(), later);
        assert_eq!(cell.fence(), Err(LostReason::LeaseEnded));
        cell.extend(later);
        assert_eq!(cell.fence(), Err(LostReason::LeaseEnded));
    }

    #[test]
    fn the_first_reason_stays_and_every_reason_survives_its_code() {
        for first in [
            LostReason::LeaseEnded,
            LostReason::Suspended,
            LostReason::Expelled,
            LostReason::Superseded,
            LostReason::Left,
            LostReason::Destroyed,
        ] {
            let cell = cell(Time::MAX, Time::MAX);
            cell.mark_lost(first);
            cell.mark_lost(LostReason::Superseded);
            assert_eq!(cell.fence(), Err(first));
        }
    }

    #[tokio::test]
    async fn whoever_waits_for_the_loss_is_woken() {
        let cell = Arc::new(cell(Time::MAX, Time::MAX));
        let waiter = tokio::spawn({
            let cell = cell.clone();
            async move { cell.lost().await }
        });
        tokio::task::yield_now().await;
        cell.mark_lost(LostReason::Expelled);
        cell.tell();
        assert_eq!(waiter.await.unwrap(), LostReason::Expelled);
    }
}
