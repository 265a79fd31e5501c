//! `HoldCell`: the part of a hold that a guard can ask without the engine's lock.
//!
//! An open object has a cell, too, though it is not a hold. That cell has the object's content, and
//! depends on no lease.

use super::clock;
use super::fork_guard::ForkGuard;
use super::member_clock::MemberClock;
use super::observed_hold::ObservedHold;
use super::sync::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Mutex, MutexGuard};
use super::sync::{ThreadMutant, is_planted};
use super::telemetry::{HoldMeter, Meter};
use crate::protocol::{
    Content, LineageId, LostReason, Metadata, RequestId, RevocationRequest, Time, Token,
};
use std::any::Any;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
#[cfg(feature = "simulated")]
use {
    super::observed_hold::BegunHold,
    super::simulated::elapsed_at,
    crate::protocol::{ProcessId, ServiceName, Want},
};

/// The lease that all holds of one incarnation depend on.
pub(crate) struct MemberLease {
    /// The end of the lease, in nanoseconds.
    until: AtomicU64,
    /// The lineage of the incarnation, which has only one. 0 before the first view.
    lineage: AtomicU64,
    home: ForkGuard,
    /// The clock that it ends by, and the leases of its locks.
    clock: MemberClock,
    /// The end of the lease by a clock that is not this machine's. Then `until` is 0, for ever: a
    /// fence that looks at this machine's clock alone finds it over, and looks closer.
    other_until: AtomicU64,
}

impl MemberLease {
    /// The lease of this process.
    pub(crate) fn new(until: Time, clock: MemberClock) -> MemberLease {
        let (zero, home) = (|| AtomicU64::new(0), ForkGuard::here());
        let lease =
            MemberLease { until: zero(), lineage: zero(), home, clock, other_until: zero() };
        lease.set_end(until);
        lease
    }

    fn until(&self) -> &AtomicU64 {
        if self.clock.is_machine() { &self.until } else { &self.other_until }
    }

    /// Returns the lease of the next incarnation, which has not begun.
    pub(crate) fn next(&self) -> MemberLease {
        MemberLease::new(Time::ZERO, self.clock.clone())
    }

    /// This instant, by the clock of the member.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Set before the first end: a guard exists only while the lease has run.
    pub(crate) fn set_lineage(&self, lineage: LineageId) {
        self.lineage.store(lineage.0, Ordering::Release);
    }

    /// The end of the lease.
    pub(crate) fn end(&self) -> Time {
        Time::from_nanos(self.until().load(Ordering::Acquire))
    }

    /// Sets the end of the lease.
    pub(crate) fn set_end(&self, until: Time) {
        self.until().store(until.as_nanos(), Ordering::Release);
    }
}

/// One hold, shared by the engine, which ends it, and the guards, which ask it.
///
/// - `told_before_regrant`: the hold is good only while both leases run by the member's clock and
///   no thread has ended it. Neither a message nor a task is needed for it to become an error.
/// - It is good only in the process to which it was granted.
/// - Once it has failed it stays failed.
/// - It ends with its last guard.
pub(crate) struct HoldCell {
    /// The number of its request; 0 while it is a local grant, of which the core knows nothing.
    request: AtomicU64,
    /// The token. Changes when a share becomes the lock, and only rises.
    token: AtomicU64,
    /// Whether a lock is held as a share.
    shared: AtomicBool,
    /// The end of the lock's lease in nanoseconds; `u64::MAX` without one.
    until: AtomicU64,
    lease: Arc<MemberLease>,
    /// 0 while held, else the code of the reason.
    lost: AtomicU8,
    /// How many guards there are. Never rises from zero.
    guards: AtomicU32,
    /// A task has waited for a change. Most holds end without, and cost nothing to wake.
    awaited: AtomicBool,
    meter: HoldMeter,
    observed: ObservedHold,
    /// The fields that most holds do not need.
    cold: OnceLock<Box<HoldColdFields>>,
}

#[derive(Default)]
struct HoldColdFields {
    /// Wakes tasks that wait for a change.
    told: Notify,
    /// Cancelled when the hold is over, for the tasks that asked for it.
    over: OnceLock<CancellationToken>,
    extras: Mutex<HoldDetails>,
}

#[derive(Default)]
struct HoldDetails {
    /// The requests to release it, in the order of asking.
    wanted: Vec<RevocationRequest>,
    /// The content of an open object; `None` for a lock.
    content: Option<Content>,
    /// The metadata of its request.
    metadata: Metadata,
    /// The values that end with the last guard.
    belongings: Option<Box<dyn Any + Send + Sync>>,
    /// How many of the guards only read.
    readers: usize,
}

/// The hold is a share: no guard of it may write.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct OnlyShared;

impl HoldCell {
    fn new(request: Option<RequestId>, token: Token, until: Time, lease: Arc<MemberLease>) -> Self {
        HoldCell {
            request: AtomicU64::new(number(request)),
            token: AtomicU64::new(token.get()),
            shared: AtomicBool::new(false),
            until: AtomicU64::new(until.as_nanos()),
            lease,
            lost: AtomicU8::new(0),
            guards: AtomicU32::new(1),
            awaited: AtomicBool::new(false),
            meter: HoldMeter::new(),
            observed: ObservedHold::default(),
            cold: OnceLock::new(),
        }
    }

    /// The cell of a hold that begins, if it can be that of one that is over; `None`: it has no
    /// number yet.
    pub(crate) fn in_place_of(
        spare: Option<Arc<HoldCell>>,
        request: Option<RequestId>,
        token: Token,
        until: Time,
        lease: &Arc<MemberLease>,
    ) -> Arc<HoldCell> {
        // A new one is made if there is none, if its last guard is just going, or if a task still
        // watches it.
        let spare = spare.and_then(|mut spare| {
            Arc::get_mut(&mut spare)?.renew(request, token, until, lease);
            Some(spare)
        });
        spare.unwrap_or_else(|| Arc::new(HoldCell::new(request, token, until, lease.clone())))
    }

    /// The cell of another hold, which has no owner any more, becomes one as if it were new.
    fn renew(
        &mut self,
        request: Option<RequestId>,
        token: Token,
        until: Time,
        lease: &Arc<MemberLease>,
    ) {
        self.request = AtomicU64::new(number(request));
        self.token = AtomicU64::new(token.get());
        self.shared = AtomicBool::new(false);
        self.until = AtomicU64::new(until.as_nanos());
        if !Arc::ptr_eq(&self.lease, lease) {
            self.lease = lease.clone();
        }
        self.lost = AtomicU8::new(0);
        self.guards = AtomicU32::new(1);
        self.awaited = AtomicBool::new(false);
        self.meter = HoldMeter::new();
        self.observed = ObservedHold::default();
        if self.cold.get().is_some() {
            self.cold = OnceLock::new();
        }
    }

    /// The cell of an object that is open.
    pub(crate) fn of_object(
        request: RequestId,
        token: Token,
        content: Content,
        lease: &MemberLease,
    ) -> Self {
        let forever = Arc::new(MemberLease::new(Time::MAX, lease.clock.clone()));
        let cell = HoldCell::new(Some(request), token, Time::MAX, forever);
        cell.extras().content = Some(content);
        cell
    }

    /// The number of its request; `None`: it is a local grant.
    pub(crate) fn request(&self) -> Option<RequestId> {
        match self.request.load(Ordering::Acquire) {
            0 => None,
            request => Some(RequestId(request)),
        }
    }

    /// The core knows of it from now on.
    pub(crate) fn note_request(&self, request: RequestId) {
        self.request.store(request.0, Ordering::Release);
    }

    fn cold(&self) -> &HoldColdFields {
        self.cold.get_or_init(Box::default)
    }

    fn extras(&self) -> MutexGuard<'_, HoldDetails> {
        self.cold().extras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As `extras`, if the cell has any.
    fn some_extras(&self) -> Option<MutexGuard<'_, HoldDetails>> {
        self.cold.get().map(|cold| cold.extras.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// One more guard. Returns `false`, and there is none, if the last one is gone.
    pub(crate) fn enter(&self) -> bool {
        let more = |guards| if guards == 0 { None } else { Some(guards + 1) };
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// One guard less. Returns whether it was the last one.
    pub(crate) fn leave(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// How many guards there are.
    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire) as usize
    }

    /// Like [`enter`](Self::enter), of an owner that `reads` or wants the lock itself. Between this
    /// and [`leave_to_readers`](Self::leave_to_readers) no lock becomes a share.
    pub(crate) fn enter_again(&self, reads: bool) -> Result<bool, OnlyShared> {
        let mut extras = self.extras();
        if !reads && self.is_shared() && !planted!(WriteByShare) {
            return Err(OnlyShared);
        }
        let entered = self.enter();
        extras.readers += usize::from(entered && reads);
        Ok(entered)
    }

    /// Like [`leave`](Self::leave), of a guard that only reads.
    pub(crate) fn leave_as_reader(&self) -> bool {
        let mut extras = self.extras();
        extras.readers -= 1;
        self.leave()
    }

    /// A guard only reads from now on.
    pub(crate) fn read_on(&self) {
        self.extras().readers += 1;
    }

    /// A guard that only `reads` may write from now on, if the hold is the lock. `Err`: it is a
    /// share, and how many other guards it has.
    pub(crate) fn write_on(&self, reads: bool) -> Result<(), usize> {
        let mut extras = self.extras();
        if self.is_shared() {
            return Err(self.guards() - 1);
        }
        extras.readers -= usize::from(reads);
        Ok(())
    }

    /// A lock whose guards only read is a share from now on; returns whether it became one. `tell`
    /// runs before any guard can find that out, so what they ask the core for comes after it.
    pub(crate) fn leave_to_readers(&self, tell: impl FnOnce()) -> bool {
        let Some(extras) = self.some_extras() else { return false };
        let only_read = extras.readers == self.guards() || planted!(ReadWithFirst);
        let becomes_share = extras.readers > 0 && only_read && !self.is_shared();
        let _kept = (!is_planted(ThreadMutant::ShareUnlocked)).then_some(extras);
        if becomes_share {
            self.share();
            tell();
        }
        becomes_share
    }

    /// How many guards have the lock itself, and how many only read; none if the hold is over.
    pub(crate) fn writers_and_readers(&self) -> (usize, usize) {
        if self.fence().is_err() {
            return (0, 0);
        }
        let readers = self.some_extras().map_or(0, |extras| extras.readers);
        (self.guards().saturating_sub(readers), readers)
    }

    /// Sets the metadata that its guards show.
    pub(crate) fn describe(&self, metadata: Metadata) {
        self.extras().metadata = metadata;
    }

    pub(crate) fn metadata(&self) -> Metadata {
        self.some_extras().map_or_else(Metadata::default, |extras| extras.metadata.clone())
    }

    /// Keeps these values until the last guard ends.
    pub(crate) fn keep(&self, belongings: Box<dyn Any + Send + Sync>) {
        self.extras().belongings = Some(belongings);
    }

    /// Looks at what ends with the last guard.
    pub(crate) fn kept<T: 'static, R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let extras = self.some_extras()?;
        extras.belongings.as_deref().and_then(|kept| (kept as &dyn Any).downcast_ref()).map(look)
    }

    /// The object's content, as far as this member has heard; `None`: the cell belongs to no
    /// object.
    pub(crate) fn content(&self) -> Option<Content> {
        self.some_extras()?.content.clone()
    }

    /// The object has new content. Wakes no task: that is [`wake_listeners`](Self::wake_listeners).
    pub(crate) fn hear(&self, new: Content) {
        if let Some(content) =
            self.some_extras().as_mut().and_then(|extras| extras.content.as_mut())
        {
            *content = new;
        }
    }

    /// Completes when `is_new` holds of the object's content, or the object is lost.
    pub(crate) async fn changed(
        &self,
        is_new: impl Fn(&Content) -> bool,
    ) -> Result<Content, LostReason> {
        let changed = self.listeners();
        let mut told = std::pin::pin!(changed.notified());
        loop {
            told.as_mut().enable();
            self.fence()?;
            if let Some(content) = self.content().filter(&is_new) {
                return Ok(content);
            }
            told.as_mut().await;
            told.set(changed.notified());
        }
    }

    /// Wakes tasks that wait for a change or for a revocation.
    pub(crate) fn wake_listeners(&self) {
        if self.awaited.load(Ordering::SeqCst)
            && let Some(cold) = self.cold.get()
        {
            cold.told.notify_waiters();
        }
    }

    /// A change wakes the waiting task from now on. This store comes first, in the one order of all
    /// such steps. So either the thread that makes a change sees it, or the look that follows sees
    /// the change.
    fn listeners(&self) -> &Notify {
        // This is stored before the flag: a thread that sees the flag finds it.
        let told = &self.cold().told;
        self.awaited.store(true, Ordering::SeqCst);
        told
    }

    /// The token, whether or not the hold is good.
    pub(crate) fn token(&self) -> Token {
        Token::from_bits(self.token.load(Ordering::Acquire))
    }

    /// The lineage of its tokens.
    pub(crate) fn lineage(&self) -> LineageId {
        LineageId(self.lease.lineage.load(Ordering::Acquire))
    }

    /// Returns whether it is a share of a lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Marks the hold as a share of a lock.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Release);
    }

    /// Marks that the share became the lock.
    pub(crate) fn upgrade(&self, token: Token) {
        self.token.store(token.get(), Ordering::Release);
        self.observed.upgrade(token);
        self.shared.store(false, Ordering::Release);
    }

    /// The token, if the hold is good at this instant.
    pub(crate) fn fence(&self) -> Result<Token, LostReason> {
        self.fence_now().0
    }

    /// Returns the token, if the hold is good at this instant, and which instant that is.
    pub(crate) fn fence_now(&self) -> (Result<Token, LostReason>, Time) {
        // The ends are read before the clock: a pause in between can only make the answer stricter.
        let member_until = self.lease.until.load(Ordering::Acquire);
        let until = self.until.load(Ordering::Acquire);
        let now = clock::now();
        let is_good = now.as_nanos() < until && now.as_nanos() < member_until;
        if is_good && self.lost_reason().is_none() && !self.lease.home.is_left() {
            return (Ok(self.token()), now);
        }
        self.look_closer()
    }

    /// Returns how long it is good from now on, if nothing happens; zero if it is lost.
    pub(crate) fn left(&self) -> Duration {
        let end = self.lease.end().as_nanos().min(self.until.load(Ordering::Acquire));
        let (fence, now) = self.fence_now();
        fence.map_or(Duration::ZERO, |_| Time::from_nanos(end).since(now))
    }

    /// Like [`fence_now`](Self::fence_now), by the member's clock, whichever it is.
    #[cold]
    fn look_closer(&self) -> (Result<Token, LostReason>, Time) {
        let member_until = self.lease.end().as_nanos();
        let until = self.until.load(Ordering::Acquire);
        let now = self.lease.now();
        (self.fence_at(now.as_nanos(), until, member_until), now)
    }

    fn fence_at(&self, now: u64, until: u64, member_until: u64) -> Result<Token, LostReason> {
        if let Some(reason) = self.lost_reason() {
            return Err(reason);
        }
        if self.lease.home.is_left() {
            // No other thread is told: a thread that does not exist here may have had the lock that
            // this takes.
            self.mark_lost(LostReason::Forked);
            return Err(LostReason::Forked);
        }
        let member_until = if planted!(GuardsOutliveMember) { u64::MAX } else { member_until };
        let reason = if now >= until {
            LostReason::LeaseEnded
        } else if now >= member_until && !planted!(FenceWithoutMember) {
            LostReason::Suspended
        } else {
            return Ok(self.token());
        };
        // The core will say the same as soon as its timer runs. A caller that was told once must
        // not hear otherwise later.
        self.mark_lost(reason);
        self.tell();
        Err(self.lost_reason().unwrap_or(reason))
    }

    /// Why it is lost, as far as any thread has noticed.
    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        reason(self.lost.load(Ordering::SeqCst))
    }

    /// Ends it; the first reason stays. Wakes no task: that is [`tell`](Self::tell), outside the
    /// engine's lock.
    pub(crate) fn mark_lost(&self, reason: LostReason) {
        let _ = self.lost.compare_exchange(0, code(reason), Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns the time of the grant, if that is measured.
    pub(crate) fn since(&self) -> Option<Time> {
        self.meter.since()
    }

    /// The caller has its hold from now on.
    pub(crate) fn begin(&self, meter: &Meter) {
        self.meter.begin(meter);
        if let Some(reason) = self.lost_reason() {
            self.meter.end(|| Some(reason));
        }
    }

    /// A simulation is told of it from now on. As [`begin`](Self::begin).
    #[cfg(feature = "simulated")]
    pub(crate) fn observe(
        &self,
        process: ProcessId,
        service: &ServiceName,
        want: &Want,
        asked: Time,
    ) {
        self.observed.begin(|| BegunHold {
            process,
            service: service.clone(),
            want: want.clone(),
            token: self.token(),
            asked: elapsed_at(asked).unwrap_or_default(),
            until: elapsed_at(Time::from_nanos(self.until.load(Ordering::Acquire))),
            lease_end: {
                let lease = self.lease.clone();
                Box::new(move || elapsed_at(lease.end()))
            },
        });
        self.observed.end(self.lost_reason());
    }

    /// The last guard is gone. `lost`: the hold was lost before that.
    pub(crate) fn end(&self, lost: Option<LostReason>) {
        self.meter.end(|| lost);
        self.observed.end(lost.or(Some(LostReason::Released)));
        self.mark_lost(LostReason::Released);
        self.tell();
        // Its end may be the application's code.
        let belongings = self.some_extras().and_then(|mut extras| extras.belongings.take());
        drop(belongings);
    }

    /// A member requests the hold back. Wakes no task: that is
    /// [`wake_listeners`](Self::wake_listeners).
    pub(crate) fn want(&self, by: RevocationRequest) {
        self.extras().wanted.push(by);
    }

    /// The `index`-th request to release it.
    pub(crate) fn wanted(&self, index: usize) -> Option<RevocationRequest> {
        self.some_extras()?.wanted.get(index).cloned()
    }

    /// Completes when `look` finds something; it is asked again after each event of the hold.
    /// `None`: the hold is released or lost.
    pub(crate) async fn until<T>(&self, look: impl Fn(&Self) -> Option<T>) -> Option<T> {
        let changed = self.listeners();
        let mut told = std::pin::pin!(changed.notified());
        loop {
            // The notification is enabled before the check. Otherwise an event between the check
            // and the wait would be missed.
            told.as_mut().enable();
            if self.fence().is_err() {
                return None;
            }
            if let Some(found) = look(self) {
                return Some(found);
            }
            told.as_mut().await;
            told.set(changed.notified());
        }
    }

    /// Wakes tasks that wait for its loss.
    pub(crate) fn tell(&self) {
        self.wake_listeners();
        if self.awaited.load(Ordering::SeqCst)
            && self.lost_reason().is_some()
            && let Some(over) = self.cold.get().and_then(|cold| cold.over.get())
        {
            over.cancel();
        }
        self.meter.end(|| self.lost_reason());
        self.observed.end(self.lost_reason());
    }

    /// A token that is cancelled when the hold is over; one for all tasks that ask.
    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        // Made before the flag is set and the hold is asked: so either `tell` finds it, or this
        // sees the end.
        let over = self.cold().over.get_or_init(CancellationToken::new).clone();
        self.listeners();
        if self.fence().is_err() {
            over.cancel();
        }
        over.child_token()
    }

    /// Sets the end of the hold's lease.
    pub(crate) fn extend(&self, until: Time) {
        self.until.store(until.as_nanos(), Ordering::Release);
        self.observed.extend(until);
    }

    /// Completes when it is lost.
    pub(crate) async fn lost(&self) -> LostReason {
        let changed = self.listeners();
        let mut told = std::pin::pin!(changed.notified());
        loop {
            // The notification is enabled before the check. Otherwise a loss between the check
            // and the wait would be missed.
            told.as_mut().enable();
            if let Err(reason) = self.fence() {
                return reason;
            }
            told.as_mut().await;
            told.set(changed.notified());
        }
    }
}

/// The number of a request as an integer. Zero stands for none: requests are numbered from 1 on.
fn number(request: Option<RequestId>) -> u64 {
    request.map_or(0, |request| request.0)
}

fn code(reason: LostReason) -> u8 {
    match reason {
        LostReason::LeaseEnded => 1,
        LostReason::Suspended => 2,
        LostReason::Expelled => 3,
        LostReason::Superseded => 4,
        LostReason::Left => 5,
        LostReason::Destroyed => 6,
        LostReason::Released => 7,
        LostReason::Revoked => 8,
        LostReason::Forked => 9,
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
        6 => LostReason::Destroyed,
        7 => LostReason::Released,
        8 => LostReason::Revoked,
        _ => LostReason::Forked,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Slot;
    use std::time::Duration;

    fn cell(until: Time, member_until: Time) -> HoldCell {
        let lease = Arc::new(MemberLease::new(member_until, MemberClock::machine()));
        HoldCell::new(Some(RequestId(1)), Token::new(Slot(1), 7), until, lease)
    }

    #[test]
    fn a_hold_is_good_only_while_both_leases_run() {
        let later = clock::now() + Duration::from_secs(3600);
        assert_eq!(cell(later, later).fence(), Ok(Token::new(Slot(1), 7)));
        assert_eq!(cell(Time::MAX, later).fence(), Ok(Token::new(Slot(1), 7)));
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
            LostReason::Released,
            LostReason::Revoked,
            LostReason::Forked,
        ] {
            let cell = cell(Time::MAX, Time::MAX);
            cell.mark_lost(first);
            cell.mark_lost(LostReason::Superseded);
            assert_eq!(cell.fence(), Err(first));
        }
    }

    #[tokio::test]
    async fn a_task_that_waits_for_the_loss_is_woken() {
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
