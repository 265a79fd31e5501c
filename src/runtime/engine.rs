//! `Engine`: the core behind a lock. Every event of a member is one turn of it, except free locks
//! of its own: those are taken beside it and told to it later (`local_grants.rs`).
//!
//! A turn locks, steps the core, carries out the core's instructions in order and unlocks. Only
//! then does it wake the waiting callers. No user code runs under the lock. A call that the core
//! can answer at once is answered in the turn of the caller: no message, no task switch.
//!
//! Any thread may empty the two queues: the deferred queue of commands from `Drop`, and the queue
//! of events to announce. Both follow one rule: a thread puts its entry in first, then *tries* to
//! take the right to empty the queue. The thread with that right looks again after it has given the
//! right up. So no entry stays behind, and no thread blocks. Readers of the core do not empty the
//! queues. A thread that has found only readers in its way for long tells the timer task.

mod alarms;
mod deferred;
mod event_readers;
mod session_count;
mod state;

use super::clock;
use super::clock_watch::{EVERY, Reading};
use super::fork_guard::ForkGuard;
use super::hold_cell::HoldCell;
use super::inbox::Inbox;
use super::local_grants::LocalGrants;
use super::member_clock::MemberClock;
use super::net::ConnectionReader;
use super::network::Network;
use super::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, RwLock, RwLockWriteGuard, ThreadMutant, is_planted,
    is_poisoned, seam, spin_loop,
};
use super::telemetry::Sampler;
use super::vote_writer::{VoteStorage, VoteWriter};
use crate::protocol::event::StatusMark;
use crate::protocol::{
    Command, Config, Input, LockName, LostReason, MemberInfo, Outcome, OwnerId, ProcessId,
    RequestId, SeedReport, ServiceName, Status, Time, Timing, Want,
};
use alarms::Alarms;
use deferred::{DeferredCommand, DeferredQueue};
use event_readers::{EventReaders, ReaderUpdate};
use state::{EngineState, PendingRequest, TurnEffects, closed};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, OnceLock, PoisonError, TryLockError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;
use tokio::sync::{Notify, broadcast, watch};

pub(crate) use alarms::{Sleep, SleepEnd};
pub(crate) use event_readers::Announcement;
pub use event_readers::ConnectionStatus;
pub(crate) use session_count::SessionCount;
pub(crate) use state::Answer;

/// How often a thread that must not wait tries to get past the readers of the core. A try takes
/// some hundred nanoseconds.
const TRIES: usize = if cfg!(elderlock_shuttle) { 1 } else { 100 };

/// How long the end of a member waits for a write that is under way.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Services and locks that a status tells of in one turn: about half a millisecond.
const PAGE: usize = 256;

/// The timer task looks at the clock at least so often while it waits for a deadline: tokio's clock
/// stands still while the machine sleeps, the core's goes on.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// The parts with which an engine is started.
pub(crate) struct EngineOptions {
    pub(crate) config: Config,
    pub(crate) network: Arc<dyn Network>,
    /// Where votes are kept, if the configuration says so.
    pub(crate) disk: Option<Box<dyn VoteStorage>>,
    pub(crate) clock: MemberClock,
}

/// The core behind a lock. See the head of the module.
pub(crate) struct Engine {
    /// A thread takes this before it takes the write lock on the engine state. So writers meet
    /// here, and not at each part of the reader-writer lock.
    writer_lock: Mutex<()>,
    state: RwLock<EngineState>,
    /// The engine state's, to be flushed without its lock.
    network: Arc<dyn Network>,
    /// Commands from `Drop`, which must not wait for the engine state. Holds no more than there are
    /// guards and futures.
    deferred: DeferredQueue,
    /// Events on their way to the readers, in order; put in under the engine state's lock.
    announcements: Mutex<VecDeque<ReaderUpdate>>,
    /// The readers; `None` when no event will follow.
    readers: Mutex<Option<EventReaders>>,
    /// The present incarnation.
    me: Mutex<MemberInfo>,
    next_request: AtomicU64,
    /// Tells the timer task that its deadline has come nearer.
    rearm: Notify,
    /// Timers of calls that the application awaits.
    alarms: Alarms,
    phase: watch::Sender<EnginePhase>,
    /// The runtime of a member that has a thread of its own.
    own_runtime: OnceLock<tokio::runtime::Handle>,
    /// Ends with the thread that writes votes, when the data directory is free.
    written: OnceLock<watch::Receiver<()>>,
    /// In a copy of it no call waits for a lock that a thread of the parent may have had.
    home: ForkGuard,
    /// Of all times of the core and of its holds.
    clock: MemberClock,
    /// The locks that it holds for programs that are no members.
    pub(crate) sessions: SessionCount,
    /// A test sets the clocks' readings.
    #[cfg(test)]
    pub(crate) clocks_are_tests: AtomicBool,
}

/// How far the engine is, for callers that wait until it has joined or left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EnginePhase {
    /// In a view, with a running lease, at least once in this incarnation.
    pub(crate) ready: bool,
    /// Set when the engine has left, for any reason.
    pub(crate) closed: Option<EngineClosed>,
    /// The network is shut down, too: the port is free.
    pub(crate) stopped: bool,
    /// How often it has changed.
    changes: u64,
}

/// How it left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum EngineClosed {
    /// The others know, or there are none.
    Heard,
    /// No member confirmed it; the others wait for the member's lease to end.
    Unheard,
    /// The runtime under it ended, or the core broke.
    Broken,
    /// The cluster's slots are more than an hour above this machine's clock.
    WrongClock {
        /// How far above.
        ahead: Duration,
    },
}

/// The result of a turn.
struct TurnResult<R> {
    result: R,
    /// The turn wrote the messages itself, and the answer arrives here.
    reader: Option<Arc<ConnectionReader>>,
    /// A waiting caller goes on.
    has_woken: bool,
}

/// The right to change the engine state.
type EngineAccess<'a> = (RwLockWriteGuard<'a, EngineState>, MutexGuard<'a, ()>);

impl Engine {
    pub(crate) fn new(options: EngineOptions) -> Arc<Engine> {
        let EngineOptions { config, network, disk, clock } = options;
        let phase = EnginePhase { ready: false, closed: None, stopped: false, changes: 0 };
        let me = config.me.clone();
        let state = EngineState::new(config, network.clone(), disk, clock.clone(), phase);
        Arc::new(Engine {
            writer_lock: Mutex::default(),
            state: RwLock::new(state),
            network,
            deferred: DeferredQueue::default(),
            announcements: Mutex::default(),
            readers: Mutex::new(Some(EventReaders::new())),
            me: Mutex::new(me),
            next_request: AtomicU64::new(1),
            rearm: Notify::new(),
            alarms: Alarms::default(),
            phase: watch::Sender::new(phase),
            own_runtime: OnceLock::new(),
            written: OnceLock::new(),
            home: ForkGuard::here(),
            clock,
            sessions: SessionCount::default(),
            #[cfg(test)]
            clocks_are_tests: AtomicBool::new(false),
        })
    }

    /// Starts the core and spawns the timer task on `runtime`. `shutdown` is run when the member
    /// has left.
    pub(crate) fn start<F>(self: &Arc<Self>, runtime: &tokio::runtime::Handle, shutdown: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        runtime.spawn(self.run(shutdown));
    }

    /// Where tasks of recipes run if the caller is in no runtime.
    pub(crate) fn keep_runtime(&self, runtime: tokio::runtime::Handle) {
        let _ = self.own_runtime.set(runtime);
    }

    /// The runtime of the caller, or else that of a member with a thread of its own.
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        tokio::runtime::Handle::try_current().ok().or_else(|| self.own_runtime.get().cloned())
    }

    /// Starts the core. The owner of the returned timer task polls it until it ends.
    pub(crate) fn run<F>(self: &Arc<Self>, shutdown: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Made before the task, so that a runtime that drops the task without ever polling it
        // closes the engine too.
        let guard = TimerGuard(self.clone());
        self.start_writer();
        self.input(Input::Timer);
        let engine = self.clone();
        let time = self.home.keep(async move {
            guard.0.keep_time().await;
            shutdown.await;
            if let Some(mut written) = guard.0.written.get().cloned() {
                // The directory is free when the last write there has ended, unless the disk takes
                // for ever.
                let now = guard.0.now();
                tokio::select! {
                    biased;
                    _ = written.changed() => {}
                    () = clock::sleep(now, now + LAST_WRITE) => {}
                }
            }
            guard.0.phase.send_modify(|phase| phase.stopped = true);
        });
        async move {
            tokio::select! {
                biased;
                () = engine.until_copied() => {}
                () = time => {}
            }
        }
    }

    /// Starts the thread that writes votes, if they are kept.
    fn start_writer(self: &Arc<Self>) {
        let Some(storage) = self.turn(|state, _| state.disk.take()) else { return };
        let engine = Arc::downgrade(self);
        let tell = move |process, number, result| {
            if let Some(engine) = Weak::upgrade(&engine) {
                engine.on_written(process, number, result);
            }
        };
        let started = VoteWriter::start(storage, tell);
        self.turn(|state, after| match started {
            Ok(writer) => {
                let _ = self.written.set(writer.ended());
                state.writer = Some(writer);
            }
            Err(error) => {
                tracing::error!(%error, "no thread to write votes: this member ends");
                state.fail("no thread could be started to write votes", after);
            }
        })
    }

    /// A write of this process ended.
    fn on_written(&self, process: ProcessId, number: u64, result: io::Result<()>) {
        if self.home.is_left() {
            return;
        }
        self.turn(|state, after| {
            if state.phase.closed.is_some() || state.node.process() != process {
                return;
            }
            let is_stored = result.is_ok();
            state.note_disk(result, after);
            state.step(
                if is_stored { Input::Stored { number } } else { Input::StoreFailed { number } },
                None,
                after,
            );
        });
    }

    /// Why the vote of this member is not on disk, if the last write failed.
    pub(crate) fn disk_trouble(&self) -> Option<(io::ErrorKind, String)> {
        if self.is_copy() {
            return None;
        }
        self.turn(|state, _| state.disk_trouble.clone())
    }

    /// Completes in a copy of this process, if the runtime goes on there and polls this: no task
    /// waits there for ever.
    async fn until_copied(&self) {
        std::future::poll_fn(|_| if self.home.is_left() { Poll::Ready(()) } else { Poll::Pending })
            .await;
        if let Some(state) = self.try_enter() {
            self.turn_with(state, |state, after| {
                state.fail("this process is a copy of the one that joined", after)
            });
        }
    }

    /// Whether this process is a copy that was forked off the process that joined. A copy takes no
    /// turn: a thread that it does not have may have had one when it was made.
    pub(crate) fn is_copy(&self) -> bool {
        self.home.is_left()
    }

    /// The identity of this process, in its present incarnation.
    pub(crate) fn process(&self) -> ProcessId {
        lock(&self.me).process
    }

    /// The address that others reach it at.
    pub(crate) fn addr(&self) -> SocketAddr {
        lock(&self.me).addr
    }

    /// The core's status. A large table takes several turns, and may change from one to the next. A
    /// turn must be short, since a member that has none for a lease has lost all its holds.
    pub(crate) fn status(&self) -> Status {
        if self.is_copy() {
            return Status {
                me: lock(&self.me).clone(),
                view: None,
                elder: None,
                leased: false,
                services: Vec::new(),
                more_services: 0,
                suspected: Vec::new(),
            };
        }
        let page = |state: &mut EngineState, after: Option<&StatusMark>| {
            state.node.status_page(self.now(), after, PAGE)
        };
        let (mut status, (first, mut mark)) = self
            .turn(|state, _| (state.node.status_without_services(self.now()), page(state, None)));
        status.go_on(first);
        while let Some(after) = mark {
            let (more, next) = self.turn(|state, _| page(state, Some(&after)));
            status.go_on(more);
            mark = next;
        }
        status
    }

    /// Whether it has left, or is about to.
    pub(crate) fn is_over(&self) -> bool {
        self.home.is_left() || self.turn(|state, _| state.is_over())
    }

    /// Whether it is the elder of its view.
    pub(crate) fn is_elder(&self) -> bool {
        !self.is_copy()
            && self.turn(|state, _| {
                let process = state.node.process();
                state.phase.closed.is_none()
                    && state.node.view().is_some_and(|view| view.elder().process == process)
            })
    }

    /// Until the member lease ends; `None`: it has no end.
    #[cfg(feature = "http")]
    pub(crate) fn lease_left(&self) -> Option<Duration> {
        if self.is_copy() {
            return Some(Duration::ZERO);
        }
        let end = self.turn(|state, _| state.lease.end());
        (end != Time::MAX).then(|| end.since(self.now()))
    }

    /// While joining: the seeds and their answers.
    pub(crate) fn seeking(&self) -> SeedReport {
        if self.is_copy() {
            return SeedReport::default();
        }
        self.turn(|state, _| state.node.seeking())
    }

    /// The engine's phase, to be awaited.
    pub(crate) fn phase(&self) -> watch::Receiver<EnginePhase> {
        self.phase.subscribe()
    }

    /// Events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Announcement> {
        let receiver = match &*lock(&self.readers) {
            Some(readers) => readers.events.subscribe(),
            // A channel without a sender ends at once.
            None => broadcast::channel(1).1,
        };
        self.announce();
        receiver
    }

    /// The status that readers of all changes know, and the changes from then on.
    pub(crate) fn subscribe_status(
        &self,
    ) -> (ConnectionStatus, broadcast::Receiver<ConnectionStatus>) {
        let mut readers = lock(&self.readers);
        // First, so that no reader begins with a status that is known to be old.
        self.hand_out(&mut readers);
        let start = match &*readers {
            Some(readers) => (readers.told, readers.statuses.subscribe()),
            None => (ConnectionStatus::Lost, broadcast::channel(1).1),
        };
        drop(readers);
        // A thread that put an event in meanwhile found the right to announce it taken.
        self.announce();
        start
    }

    /// The status at this instant.
    pub(crate) fn connection_status(&self) -> ConnectionStatus {
        if self.is_copy() {
            return ConnectionStatus::Lost;
        }
        self.turn(|state, _| state.stands())
    }

    /// The local grants of a service: the same for all its handles.
    pub(crate) fn local_grants(&self, service: &ServiceName) -> Arc<LocalGrants> {
        self.turn(|state, _| {
            if let Some(local_grants) = state.local_grants.get(service).and_then(Weak::upgrade) {
                return local_grants;
            }
            // Now and then, or many services would be looked through for each new one.
            if state.local_grants.len().is_power_of_two() {
                state.local_grants.retain(|_, local_grants| local_grants.strong_count() > 0);
            }
            let local_grants = Arc::new(LocalGrants::new(service.clone()));
            state.local_grants.insert(service.clone(), Arc::downgrade(&local_grants));
            local_grants
        })
    }

    /// Takes a free lock of a service that this member grants itself. It needs no turn, and other
    /// threads may do the same at once. [`release`](Self::release) ends the hold in every case.
    /// `None`: this needs a turn. `destroyed`: as of [`request`](Self::request).
    pub(crate) fn take(
        &self,
        local_grants: &Arc<LocalGrants>,
        name: &LockName,
        owner: OwnerId,
        destroyed: &AtomicBool,
    ) -> Option<Arc<HoldCell>> {
        if self.home.is_left() {
            return None;
        }
        // Waits for the thread in a turn, but takes no turn for that. Otherwise other threads would
        // meet that turn, and each would take one, too.
        let state = self.state.read().ok()?;
        if state.is_over() || state.is_muted || destroyed.load(Ordering::Acquire) {
            return None;
        }
        let now = self.now();
        let offer = state.node.offer(now, &local_grants.service, name)?;
        let (cell, is_first) = local_grants.take((name, owner, now), offer, |spare, token| {
            HoldCell::in_place_of(spare, None, token, Time::MAX, &state.lease)
        })?;
        if is_first {
            lock(&state.used).push(local_grants.clone());
        }
        Some(cell)
    }

    /// Releases a hold, in the local grants or in the core. Takes at most the short lock of a
    /// name's shard; callable from any context. `now`: as of
    /// [`release_request`](Self::release_request).
    pub(crate) fn release(
        &self,
        local_grants: &LocalGrants,
        name: Option<&LockName>,
        cell: &Arc<HoldCell>,
        now: Time,
    ) {
        if self.home.is_left() {
            return;
        }
        if let Some(request) = cell.request() {
            return self.release_request(request, now);
        }
        let Ok(state) = self.state.try_read() else {
            self.deferred.push(DeferredCommand::Release(cell.clone()));
            return self.empty_deferred();
        };
        // The core hears of it under the other lock, and gives it its number.
        let request = cell.request();
        if let (None, Some(name)) = (request, name) {
            local_grants.release(name, cell);
        }
        if let Some(request) = request {
            drop(state);
            self.release_request(request, now);
        }
    }

    /// How long ago the Unix epoch was, by the wall clock of the member.
    pub(crate) fn wall(&self) -> Duration {
        self.clock.wall()
    }

    /// This instant, by the clock of the member.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// The number of a hold's request; a local grant gets it here.
    pub(crate) fn request_of(&self, cell: &HoldCell) -> RequestId {
        cell.request().unwrap_or_else(|| {
            if self.is_copy() {
                return RequestId(0);
            }
            self.turn(|_, _| ());
            cell.request().unwrap_or(RequestId(0))
        })
    }

    /// A number for a request, never used before by this member, in any of its incarnations.
    fn next_request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks with `command`, for a service handle. The request gets its number here, in the turn: a
    /// member's requests are numbered in the order in which the core receives them. `None`: wait,
    /// by way of [`poll`](Self::poll). In every case [`release_request`](Self::release_request)
    /// ends it. `waker`: as of `poll`, if a task polls already. Also returns where the answer
    /// comes, if the question has left.
    ///
    /// `destroyed` belongs to the handle and is set, in the same turn, by the command that destroys
    /// its service: so nothing that is asked by way of the handle outlives it.
    pub(crate) fn request(
        &self,
        command: &mut Command,
        destroyed: &AtomicBool,
        waker: Option<&Waker>,
    ) -> (RequestId, Option<Answer>, Option<Arc<ConnectionReader>>) {
        if self.home.is_left() {
            return (self.next_request(), Some(closed(LostReason::Left)), None);
        }
        // Cloned before locking: a waker is user code.
        let waker = waker.cloned();
        let TurnResult { result: (request, answer), reader, .. } = self.turned(|state, after| {
            let request = self.next_request();
            command.number(request);
            (request, state.request((request, waker), command, destroyed, after))
        });
        (request, answer, reader)
    }

    /// Whether this member grants the locks of the service now.
    pub(crate) fn is_grantor(&self, service: &ServiceName) -> bool {
        !self.is_copy()
            && self.turn(|state, _| state.phase.closed.is_none() && state.node.is_acting(service))
    }

    /// The member that grants the locks of the service, as far as this member knows.
    pub(crate) fn grantor_of(&self, service: &ServiceName) -> Option<ProcessId> {
        if self.is_copy() {
            return None;
        }
        self.turn(|state, _| {
            state.phase.closed.is_none().then(|| state.node.grantor_of(service)).flatten()
        })
    }

    /// The answer to a request that was told to wait, once; until then `waker` is kept to be woken.
    pub(crate) fn poll(&self, request: RequestId, waker: &Waker) -> Option<Answer> {
        if self.home.is_left() {
            return Some(closed(LostReason::Left));
        }
        // Cloned before locking: a waker is user code.
        let waker = waker.clone();
        let look = |state: &mut EngineState, after: &mut TurnEffects| match state
            .slots
            .get_mut(&request)
        {
            Some(PendingRequest::Waiting(Some(_))) if is_planted(ThreadMutant::OldWaker) => None,
            Some(PendingRequest::Waiting(kept)) => {
                after.trash.push(PendingRequest::Waiting(kept.replace(waker)));
                None
            }
            Some(PendingRequest::Answered(_)) => match state.slots.remove(&request) {
                Some(PendingRequest::Answered(answer)) => Some(answer),
                _ => None,
            },
            // A request that was made and not released has a slot. Without one, no answer would
            // ever come.
            None => Some(closed(LostReason::Left)),
        };
        self.turn(|state, after| {
            after.at_once = true;
            look(state, after)
        })
    }

    /// Lets a hold end no earlier than `lease` from now; returns whether it is still held.
    pub(crate) fn extend(&self, request: RequestId, lease: Duration) -> bool {
        !self.home.is_left()
            && self.turn(|state, after| {
                if state.phase.closed.is_some() {
                    return false;
                }
                let answer = state.step(
                    Input::Command(Command::Extend { request, lease }),
                    Some(request),
                    after,
                );
                matches!(answer, Some(Err(outcome)) if matches!(*outcome, Outcome::Extended { .. }))
            })
    }

    /// Reduces a hold; returns whether it is still held.
    pub(crate) fn narrow(&self, request: RequestId, want: Want) -> bool {
        !self.home.is_left()
            && self.turn(|state, after| {
                if state.phase.closed.is_some() {
                    return false;
                }
                let is_share = matches!(want, Want::Share(_));
                let answer = state.step(
                    Input::Command(Command::Reduce { request, want }),
                    Some(request),
                    after,
                );
                let narrowed =
                    matches!(answer, Some(Err(outcome)) if *outcome == Outcome::Narrowed);
                if let Some(hold) = state.holds.get(&request).filter(|_| narrowed && is_share) {
                    hold.share();
                }
                narrowed
            })
    }

    /// As [`narrow`](Self::narrow), for callers that need no answer. Never blocks; callable from
    /// any context.
    pub(crate) fn narrow_unheard(&self, cell: &Arc<HoldCell>, want: Want) {
        self.narrow_later(cell, want);
        self.catch_up();
    }

    /// As [`narrow_unheard`](Self::narrow_unheard), without a turn: [`catch_up`](Self::catch_up)
    /// must follow. Whatever is asked for in between comes after it.
    pub(crate) fn narrow_later(&self, cell: &Arc<HoldCell>, want: Want) {
        if !self.home.is_left() {
            self.deferred.push(DeferredCommand::Reduce(cell.clone(), want));
        }
    }

    /// Carries out the deferred work, or leaves it to the thread that has the engine state. Never
    /// blocks; callable from any context.
    pub(crate) fn catch_up(&self) {
        if !self.home.is_left() {
            self.empty_deferred();
        }
    }

    /// Ends the request, whether it waits or holds. Never blocks; callable from any context. `now`:
    /// a recent time of the clock.
    pub(crate) fn release_request(&self, request: RequestId, now: Time) {
        if self.home.is_left() {
            return;
        }
        let command = Command::Release { request };
        let Some(state) = self.try_enter() else {
            self.deferred.push(DeferredCommand::Command(command));
            return self.empty_deferred();
        };
        self.turn_with(state, |state, after| state.obey(command, now, after));
        if !is_planted(ThreadMutant::LooksOnce) {
            self.empty_deferred();
        }
    }

    /// Begins to leave. Never blocks. Follow [`phase`](Self::phase) to see the end.
    pub(crate) fn leave(&self) {
        if !self.home.is_left() && self.sessions.close() {
            self.leave_now();
        }
    }

    /// The times of the cluster, if this member holds locks for programs that are no members.
    pub(crate) fn session_timing(&self) -> Option<Timing> {
        if self.is_copy() || !lock(&self.me).serves_sessions {
            return None;
        }
        self.turn(|state, _| state.node.view().map(|view| view.timing))
    }

    fn leave_now(&self) {
        if self.home.is_left() {
            return;
        }
        self.deferred.push(DeferredCommand::Command(Command::Leave));
        self.empty_deferred();
    }

    /// Goes on without a quorum, if this member has none. False: its lease runs, or it is leaving.
    pub(crate) fn force(&self) -> bool {
        !self.home.is_left()
            && self.turn(|state, after| {
                let before = state.node.process();
                state.step(Input::Command(Command::Force), None, after);
                state.phase.closed.is_none() && state.node.process() != before
            })
    }

    /// Ends the engine here and now, without a message to the others.
    pub(crate) fn close(&self, closed: EngineClosed) {
        if self.home.is_left() {
            return;
        }
        self.turn(|state, after| state.close(closed, after));
    }

    #[cfg(not(test))]
    fn read_clocks(&self) -> Option<Reading> {
        clock::all()
    }

    #[cfg(test)]
    fn read_clocks(&self) -> Option<Reading> {
        if self.clocks_are_tests.load(Ordering::Relaxed) { None } else { clock::all() }
    }

    /// Checks whether the clock may still be trusted, or again.
    pub(crate) fn look_at_clocks(&self, reading: Reading) {
        self.turn(|state, after| state.look_at_clocks(reading, after));
    }

    /// Runs the core's timers until the member has left.
    async fn keep_time(&self) {
        let mut sampler = Sampler::new();
        let mut clocks_due = Time::ZERO;
        loop {
            // Together with other work: with a beat at the latest.
            if self.now() >= clocks_due {
                clocks_due = self.now() + EVERY;
                if let Some(reading) = self.read_clocks() {
                    self.look_at_clocks(reading);
                }
            }
            let (deadline, sample) = self.turn(|state, _| {
                state.armed = state.deadline();
                let is_open = state.phase.closed.is_none();
                let now = self.now();
                let sample = (sampler.is_due(now) || !is_open).then(|| {
                    let is_connected = state.stands() == ConnectionStatus::Connected;
                    Sampler::read(&state.node, is_connected, &mut state.packet_counts, now)
                });
                (is_open.then_some(state.armed), sample)
            });
            if let Some(sample) = sample {
                sampler.tell(sample, self.network.counters(), self.now());
            }
            let Some(deadline) = deadline else { return };
            let now = self.now();
            self.alarms.ring(now);
            if now >= deadline {
                self.input(Input::Timer);
                // A core that always has something due must not keep the thread for itself.
                tokio::task::yield_now().await;
                continue;
            }
            let until = deadline.min(sampler.due()).min(self.alarms.due());
            let sleep = async {
                if until == Time::MAX {
                    std::future::pending::<()>().await;
                }
                clock::sleep(now, until.min(now + LONGEST_SLEEP)).await;
            };
            tokio::select! {
                // The order of these branches does not matter, so no randomness is needed.
                biased;
                () = self.rearm.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// One turn: runs `work` under the lock, and tells its effects after unlocking.
    fn turn<R>(&self, work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R) -> R {
        self.turned(work).result
    }

    /// A turn, with all its results.
    fn turned<R>(
        &self,
        work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R,
    ) -> TurnResult<R> {
        let turned = self.turn_with(self.enter(), work);
        if !is_planted(ThreadMutant::DeferredQueueStays) {
            self.empty_deferred();
        }
        turned
    }

    fn turn_with<R>(
        &self,
        (mut state, writer): EngineAccess<'_>,
        work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R,
    ) -> TurnResult<R> {
        let mut after = TurnEffects::default();
        // First of all: the core must know the local grants before any step.
        let is_broken = is_poisoned(&self.state);
        if !is_planted(ThreadMutant::LocalGrantsStay) {
            state.absorb(is_broken, || self.next_request());
        }
        if is_broken {
            // The core panicked in an earlier turn and cannot be believed any more.
            state.break_down(&mut after);
        }
        // Then: a thread that has dropped a guard and asks for its lock again must not meet its own
        // hold.
        for command in self.deferred.take() {
            let command = match command {
                DeferredCommand::Command(command) => Some(command),
                DeferredCommand::Release(cell) => {
                    cell.request().map(|request| Command::Release { request })
                }
                DeferredCommand::Reduce(cell, want) => {
                    cell.request().map(|request| Command::Reduce { request, want })
                }
            };
            if let Some(command) = command {
                state.obey(command, self.now(), &mut after);
            }
        }
        let result = work(&mut state, &mut after);
        if after.stepped || !after.at_once {
            state.finish_turn(&mut after);
        }
        if after.phase {
            state.phase.changes += 1;
            *lock(&self.me) = state.config.me.clone();
        }
        let announced = !after.announcements.is_empty();
        if announced {
            lock(&self.announcements).extend(after.announcements.drain(..));
        }
        let phase = state.phase;
        drop(state);
        drop(writer);

        let reader = if after.sent { self.network.flush(after.is_urgent) } else { None };
        seam();
        if after.phase {
            self.phase.send_modify(|seen| {
                // Two turns may arrive here in either order.
                if seen.changes < phase.changes || is_planted(ThreadMutant::PhaseGoesBack) {
                    *seen = EnginePhase { stopped: seen.stopped, ..phase };
                }
            });
        }
        seam();
        let has_woken = !after.wakers.is_empty();
        for waker in after.wakers {
            waker.wake();
        }
        seam();
        for object in after.changed {
            object.wake_listeners();
        }
        for hold in after.lost {
            if !is_planted(ThreadMutant::LossUntold) {
                hold.tell();
            }
        }
        seam();
        if after.rearm {
            self.rearm.notify_one();
        }
        if announced || phase.closed.is_some() {
            self.announce();
        }
        if phase.closed.is_some() {
            self.alarms.close();
        }
        for note in after.notes {
            note.tell();
        }
        TurnResult { result, reader, has_woken }
    }

    /// Empties the deferred queue, unless another thread has the engine state: then that thread
    /// does it after unlocking.
    fn empty_deferred(&self) {
        while !self.deferred.is_empty() {
            let Some(state) = self.try_enter_past_readers() else { return };
            self.turn_with(state, |_, _| ());
            if is_planted(ThreadMutant::LooksOnce) {
                return;
            }
        }
    }

    /// Announces events to the readers, unless another thread does: then that thread looks again.
    fn announce(&self) {
        while !lock(&self.announcements).is_empty() || self.has_unannounced_end() {
            let Ok(mut readers) = self.readers.try_lock() else { return };
            self.hand_out(&mut readers);
            if self.is_closed() && lock(&self.announcements).is_empty() {
                *readers = None;
            }
            drop(readers);
            if is_planted(ThreadMutant::EventStays) {
                return;
            }
        }
    }

    fn hand_out(&self, readers: &mut Option<EventReaders>) {
        let batch = std::mem::take(&mut *lock(&self.announcements));
        if let Some(readers) = readers {
            batch.into_iter().for_each(|changed| readers.tell(changed));
        }
    }

    fn has_unannounced_end(&self) -> bool {
        self.is_closed() && self.readers.try_lock().is_ok_and(|readers| readers.is_some())
    }

    /// Whether every reader may know that it has left. Keeps no lock on the phase: others are taken
    /// after it.
    fn is_closed(&self) -> bool {
        self.phase.borrow().closed.is_some()
    }

    /// `None`: a thread changes the core, or is about to, and looks at the deferred queue
    /// afterwards. A reader does not look, but is soon done. Waiting for readers is worth a few
    /// tries. After those the timer task is told to have a turn.
    fn try_enter_past_readers(&self) -> Option<EngineAccess<'_>> {
        let mut writer = self.try_writer_lock()?;
        for _ in 0..TRIES {
            match self.try_state(writer) {
                Ok(entered) => return Some(entered),
                Err(kept) => writer = kept,
            }
            spin_loop();
        }
        drop(writer);
        if !is_planted(ThreadMutant::ReaderKeepsDeferred) {
            self.rearm.notify_one();
        }
        None
    }

    fn enter(&self) -> EngineAccess<'_> {
        let writer = lock(&self.writer_lock);
        // Whether it is poisoned is asked in the turn.
        (self.state.write().unwrap_or_else(PoisonError::into_inner), writer)
    }

    /// `None`: another thread has the engine state, or looks at it.
    fn try_enter(&self) -> Option<EngineAccess<'_>> {
        self.try_state(self.try_writer_lock()?).ok()
    }

    fn try_writer_lock(&self) -> Option<MutexGuard<'_, ()>> {
        match self.writer_lock.try_lock() {
            Ok(writer) => Some(writer),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn try_state<'a>(
        &'a self,
        writer: MutexGuard<'a, ()>,
    ) -> Result<EngineAccess<'a>, MutexGuard<'a, ()>> {
        match self.state.try_write() {
            Ok(state) => Ok((state, writer)),
            Err(TryLockError::Poisoned(poisoned)) => Ok((poisoned.into_inner(), writer)),
            Err(TryLockError::WouldBlock) => Err(writer),
        }
    }
}

impl Inbox for Engine {
    fn status(&self, most: usize) -> Option<Status> {
        Some(self.turn(|state, _| state.node.status_cut(self.now(), most)))
    }

    fn input(&self, input: Input) {
        self.turn(|state, after| {
            if state.phase.closed.is_some() {
                return;
            }
            state.step(input, None, after);
        });
    }

    fn deliver(&self, packets: &mut Vec<Input>) -> bool {
        if packets.is_empty() {
            return false;
        }
        let TurnResult { reader, has_woken, .. } = self.turned(|state, after| {
            let process = state.node.process();
            // A packet may give this process a new incarnation. The packets after it were meant for
            // the old one.
            for packet in packets.drain(..) {
                if state.phase.closed.is_some() || state.node.process() != process {
                    break;
                }
                state.step(packet, None, after);
            }
            // This thread is about to send nothing else, and a caller may wait for the answers.
            after.is_urgent = true;
        });
        reader.is_some() && !has_woken
    }
}

/// Closes the engine when its timer task ends, or is dropped with its runtime: nothing would be
/// renewed any more.
struct TimerGuard(Arc<Engine>);

impl Drop for TimerGuard {
    fn drop(&mut self) {
        self.0.close(EngineClosed::Broken);
        // Nothing else may wait for it any more when the runtime has ended.
        if !self.0.is_copy()
            && let Some(written) = self.0.written.get()
        {
            let began = std::time::Instant::now();
            while written.has_changed().is_ok() && began.elapsed() < LAST_WRITE {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        self.0.phase.send_modify(|phase| phase.stopped = true);
    }
}

/// For mutexes whose holders cannot panic half-way: the protected value is whole even after a
/// panic.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Engine {
    /// The core panics, and the next input finds that out.
    pub(crate) fn break_core(&self) {
        let turn = std::panic::AssertUnwindSafe(|| {
            self.turn(|_, _| panic!("on purpose: the core breaks"))
        });
        assert!(std::panic::catch_unwind(turn).is_err());
        self.input(Input::Timer);
    }

    /// Says that the member is suspended; at its end the turn says the true status.
    pub(crate) fn flicker(&self) {
        self.turn(|state, after| state.note_status(ConnectionStatus::Suspended, after));
    }
}

#[cfg(all(test, elderlock_shuttle))]
impl Engine {
    /// Commands that no thread has carried out yet. Not a turn: it mends nothing.
    pub(crate) fn undone(&self) -> usize {
        self.deferred.len()
    }

    /// Returns the numbers of slots and holds that are still kept. This is no turn. It holds the
    /// lock, and would turn away a thread that is about to empty the deferred queue. So call it
    /// only when no work is left.
    pub(crate) fn kept(&self) -> (usize, usize) {
        let state = self.state.read().expect("no turn panics");
        assert!(
            state
                .local_grants
                .values()
                .filter_map(Weak::upgrade)
                .all(|local_grants| local_grants.is_empty())
        );
        (state.slots.len(), state.holds.len())
    }
}

#[cfg(test)]
mod tests;
