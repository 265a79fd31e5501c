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

/// The member lease, on which all holds of one incarnation depend.
pub(crate) struct MemberLease {
    /// The end of the lease, in nanoseconds.
    until: AtomicU64,
    /// The lineage of the incarnation, which has only one. 0 before the first view.
    lineage: AtomicU64,
    home: ForkGuard,
    /// The clock by which this lease and the leases of the locks end.
    clock: MemberClock,
    /// The end of the lease if the member's clock is not this machine's. `until` is 0 for ever
    /// then: so a fence by this machine's clock fails, and the check by the member's clock follows.
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

    /// Sets the lineage. This precedes the first end: a guard exists only while the lease has run.
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
/// - The hold is good only in the process to which it was granted.
/// - A hold that has failed once stays failed.
/// - The hold ends with its last guard.
pub(crate) struct HoldCell {
    /// The number of the hold's request; 0 while it is a local grant, which the core has not
    /// absorbed.
    request: AtomicU64,
    /// The token. It changes when a share becomes the lock, and only rises.
    token: AtomicU64,
    /// Whether the hold is a share of a lock.
    shared: AtomicBool,
    /// The end of the lock's lease in nanoseconds; `u64::MAX` without one.
    until: AtomicU64,
    lease: Arc<MemberLease>,
    /// 0 while held, else the code of the reason for the loss.
    lost: AtomicU8,
    /// The number of guards. It never rises from zero.
    guards: AtomicU32,
    /// Whether a task has waited for a change. Most holds end without such a task, and skip the
    /// wake.
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
    /// The requests for the hold's release, in the order of their arrival.
    wanted: Vec<RevocationRequest>,
    /// The content of an open object; `None` for a lock.
    content: Option<Content>,
    /// The metadata of the hold's request.
    metadata: Metadata,
    /// The values that are dropped with the last guard.
    belongings: Option<Box<dyn Any + Send + Sync>>,
    /// The number of guards that only read.
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

    /// The cell of a new hold. The `spare` cell of an earlier hold is used if possible. `request`:
    /// `None` while the hold has no number.
    pub(crate) fn in_place_of(
        spare: Option<Arc<HoldCell>>,
        request: Option<RequestId>,
        token: Token,
        until: Time,
        lease: &Arc<MemberLease>,
    ) -> Arc<HoldCell> {
        // A new cell is made without a spare one, while its last guard is just ending, or while a
        // task still watches it.
        let spare = spare.and_then(|mut spare| {
            Arc::get_mut(&mut spare)?.renew(request, token, until, lease);
            Some(spare)
        });
        spare.unwrap_or_else(|| Arc::new(HoldCell::new(request, token, until, lease.clone())))
    }

    /// Makes a used cell, which has no other owner any more, as good as new.
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

    /// The number of the hold's request; `None`: it is a local grant.
    pub(crate) fn request(&self) -> Option<RequestId> {
        match self.request.load(Ordering::Acquire) {
            0 => None,
            request => Some(RequestId(request)),
        }
    }

    /// Notes the number by which the core knows the hold from now on.
    pub(crate) fn note_request(&self, request: RequestId) {
        self.request.store(request.0, Ordering::Release);
    }

    fn cold(&self) -> &HoldColdFields {
        self.cold.get_or_init(Box::default)
    }

    fn extras(&self) -> MutexGuard<'_, HoldDetails> {
        self.cold().extras.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Like `extras`; `None` if the cell has no cold fields.
    fn some_extras(&self) -> Option<MutexGuard<'_, HoldDetails>> {
        self.cold.get().map(|cold| cold.extras.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Adds a guard. Returns `false`, and adds none, if the last guard has ended.
    pub(crate) fn enter(&self) -> bool {
        let more = |guards| if guards == 0 { None } else { Some(guards + 1) };
        self.guards.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).is_ok()
    }

    /// Removes a guard. Returns whether it was the last one.
    pub(crate) fn leave(&self) -> bool {
        self.guards.fetch_sub(1, Ordering::AcqRel) == 1
    }

    /// The number of guards.
    pub(crate) fn guards(&self) -> usize {
        self.guards.load(Ordering::Acquire) as usize
    }

    /// Like [`enter`](Self::enter), for an owner that only `reads` or wants the lock itself. No
    /// lock becomes a share meanwhile: [`leave_to_readers`](Self::leave_to_readers) waits.
    pub(crate) fn enter_again(&self, reads: bool) -> Result<bool, OnlyShared> {
        let mut extras = self.extras();
        if !reads && self.is_shared() && !planted!(WriteByShare) {
            return Err(OnlyShared);
        }
        let entered = self.enter();
        extras.readers += usize::from(entered && reads);
        Ok(entered)
    }

    /// Like [`leave`](Self::leave), for a guard that only reads.
    pub(crate) fn leave_as_reader(&self) -> bool {
        let mut extras = self.extras();
        extras.readers -= 1;
        self.leave()
    }

    /// Counts a guard as one that only reads from now on.
    pub(crate) fn read_on(&self) {
        self.extras().readers += 1;
    }

    /// Lets a guard write from now on, if the hold is the lock. `reads`: the guard has only read so
    /// far. `Err`: the hold is a share; the number is that of its other guards.
    pub(crate) fn write_on(&self, reads: bool) -> Result<(), usize> {
        let mut extras = self.extras();
        if self.is_shared() {
            return Err(self.guards() - 1);
        }
        extras.readers -= usize::from(reads);
        Ok(())
    }

    /// Makes a lock whose guards only read a share. Returns whether it became one. `tell` runs
    /// before any guard can find that out: the core receives it before the guards' requests.
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

    /// Returns how many guards have the lock itself, and how many only read. Both are 0 if the hold
    /// is over.
    pub(crate) fn writers_and_readers(&self) -> (usize, usize) {
        if self.fence().is_err() {
            return (0, 0);
        }
        let readers = self.some_extras().map_or(0, |extras| extras.readers);
        (self.guards().saturating_sub(readers), readers)
    }

    /// Sets the metadata that the guards show.
    pub(crate) fn describe(&self, metadata: Metadata) {
        self.extras().metadata = metadata;
    }

    pub(crate) fn metadata(&self) -> Metadata {
        self.some_extras().map_or_else(Metadata::default, |extras| extras.metadata.clone())
    }

    /// Keeps `belongings` until the last guard ends.
    pub(crate) fn keep(&self, belongings: Box<dyn Any + Send + Sync>) {
        self.extras().belongings = Some(belongings);
    }

    /// Calls `look` on the kept belongings, if they have this type.
    pub(crate) fn kept<T: 'static, R>(&self, look: impl FnOnce(&T) -> R) -> Option<R> {
        let extras = self.some_extras()?;
        extras.belongings.as_deref().and_then(|kept| (kept as &dyn Any).downcast_ref()).map(look)
    }

    /// The object's content, as far as this member knows; `None`: the cell belongs to no object.
    pub(crate) fn content(&self) -> Option<Content> {
        self.some_extras()?.content.clone()
    }

    /// Stores new content of the object. Wakes no task: [`wake_listeners`](Self::wake_listeners)
    /// does so.
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

    /// The place where a task waits for changes. From now on each change wakes the waiting tasks.
    /// This store is sequentially consistent, as are the steps of a change. So either the thread
    /// that makes the change sees the flag, or the task's next look sees the change.
    fn listeners(&self) -> &Notify {
        // The place is there before the flag is set: a thread that sees the flag finds it.
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

    /// Returns whether the hold is a share of a lock.
    pub(crate) fn is_shared(&self) -> bool {
        self.shared.load(Ordering::Acquire)
    }

    /// Marks the hold as a share of a lock.
    pub(crate) fn share(&self) {
        self.shared.store(true, Ordering::Release);
    }

    /// Marks that the share became the lock, with this token.
    pub(crate) fn upgrade(&self, token: Token) {
        self.token.store(token.get(), Ordering::Release);
        self.observed.upgrade(token);
        self.shared.store(false, Ordering::Release);
    }

    /// The token, if the hold is good at this instant.
    pub(crate) fn fence(&self) -> Result<Token, LostReason> {
        self.fence_now().0
    }

    /// Like [`fence`](Self::fence), with the instant of the check.
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

    /// Returns how long the hold stays good without further events; zero if it is lost.
    pub(crate) fn left(&self) -> Duration {
        let end = self.lease.end().as_nanos().min(self.until.load(Ordering::Acquire));
        let (fence, now) = self.fence_now();
        fence.map_or(Duration::ZERO, |_| Time::from_nanos(end).since(now))
    }

    /// Like [`fence_now`](Self::fence_now), by the member's clock instead of the machine's.
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
            // No task is woken: that takes a lock, which a thread that the fork did not copy may
            // have had.
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
        // The core's timer will find the same end. The mark keeps the loss final: no later check
        // may succeed.
        self.mark_lost(reason);
        self.tell();
        Err(self.lost_reason().unwrap_or(reason))
    }

    /// Why the hold is lost, as far as any thread has noticed.
    pub(crate) fn lost_reason(&self) -> Option<LostReason> {
        reason(self.lost.load(Ordering::SeqCst))
    }

    /// Ends the hold; the first reason stays. Wakes no task: [`tell`](Self::tell) does so, outside
    /// the engine's lock.
    pub(crate) fn mark_lost(&self, reason: LostReason) {
        let _ = self.lost.compare_exchange(0, code(reason), Ordering::SeqCst, Ordering::SeqCst);
    }

    /// Returns the time of the grant, if holds are measured.
    pub(crate) fn since(&self) -> Option<Time> {
        self.meter.since()
    }

    /// Begins the measurement: the caller has its hold from now on.
    pub(crate) fn begin(&self, meter: &Meter) {
        self.meter.begin(meter);
        if let Some(reason) = self.lost_reason() {
            self.meter.end(|| Some(reason));
        }
    }

    /// Like [`begin`](Self::begin), for the observer of a simulation.
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

    /// Notes that the last guard has ended. `lost`: the reason, if the hold was lost before.
    pub(crate) fn end(&self, lost: Option<LostReason>) {
        self.meter.end(|| lost);
        self.observed.end(lost.or(Some(LostReason::Released)));
        self.mark_lost(LostReason::Released);
        self.tell();
        // Dropping the values may run the application's code.
        let belongings = self.some_extras().and_then(|mut extras| extras.belongings.take());
        drop(belongings);
    }

    /// Notes that a member requests the hold back. Wakes no task:
    /// [`wake_listeners`](Self::wake_listeners) does so.
    pub(crate) fn want(&self, by: RevocationRequest) {
        self.extras().wanted.push(by);
    }

    /// The `index`-th request for the hold's release.
    pub(crate) fn wanted(&self, index: usize) -> Option<RevocationRequest> {
        self.some_extras()?.wanted.get(index).cloned()
    }

    /// Completes when `look` returns a value. `look` is called again after each event of the hold.
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

    /// Wakes tasks that wait for the loss of the hold.
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

    /// A token that is cancelled when the hold is over. All callers share one.
    pub(crate) fn cancellation_token(&self) -> CancellationToken {
        // The token is made before the flag is set and the hold is checked. So either `tell` finds
        // the token, or the check finds the end.
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

    /// Completes when the hold is lost, with the reason.
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
        LostReason::SessionEnded => 10,
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
        9 => LostReason::Forked,
        _ => LostReason::SessionEnded,
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
            LostReason::SessionEnded,
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
