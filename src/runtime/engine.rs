//! `Engine`: the core behind a lock. Everything that happens to a member is one turn of it, but for free locks of its own,
//! which are taken beside it and told to it later (`local_grants.rs`).
//!
//! A turn locks, steps the core, carries out what the core says in order, unlocks, and only then wakes whoever waits
//! for an answer. No user code runs under the lock. A call that the core can answer at once is answered in the turn of
//! the caller: no message, no task switch.
//!
//! Two queues are emptied by whoever is there (the side queue of commands from `Drop`, the events to announce). Both
//! follow one rule: put in first, then *try* to take the right to empty it; whoever has that right looks again after
//! giving it up. So nothing stays behind, and nobody blocks. Those who only look at the core do not: who finds nobody but
//! them in his way, and for long, tells the timer task.

mod alarms;
mod deferred;
mod event_readers;
mod state;

use super::clock_watch::{EVERY, Reading};
use super::connection_reader::ConnectionReader;
use super::fork_guard::ForkGuard;
use super::hold_cell::HoldCell;
use super::local_grants::LocalGrants;
use super::sync::{
    AtomicBool, AtomicU64, Mutex, MutexGuard, RwLock, RwLockWriteGuard, ThreadMutant, is_planted, is_poisoned, seam,
    spin_loop,
};
use super::telemetry::Sampler;
use super::vote_writer::{VoteStorage, VoteWriter};
use super::{Inbox, Network, clock};
use crate::protocol::event::StatusMark;
use crate::protocol::{
    Command, Config, Input, LockName, LostReason, MemberInfo, Outcome, OwnerId, ProcessId, RequestId, ServiceName,
    Status, Time, Want,
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
pub(crate) use state::{Answer, draw_process};

/// How often whoever must not wait tries to get past those who look at the core, which takes each of them some hundred
/// nanoseconds.
const TRIES: usize = if cfg!(elderlock_shuttle) { 1 } else { 100 };

/// How long the end of a member waits for a write that is under way.
const LAST_WRITE: Duration = Duration::from_secs(2);

/// Services and locks that a status tells of in one turn: about half a millisecond.
const PAGE: usize = 256;

/// The timer task looks at the clock at least so often while it waits for a deadline: tokio's clock stands still while
/// the machine sleeps, the core's goes on.
const LONGEST_SLEEP: Duration = Duration::from_secs(5);

/// What an engine is started with.
pub(crate) struct EngineOptions {
    pub(crate) config: Config,
    pub(crate) network: Arc<dyn Network>,
    /// Where votes are kept. The configuration says that they are to be.
    pub(crate) disk: Option<Box<dyn VoteStorage>>,
}

/// The core behind a lock. See the head of the module.
pub(crate) struct Engine {
    /// Whoever wants the shell to change it has this first, so that such meet here, and not at each part of the
    /// reader-writer lock.
    gate: Mutex<()>,
    shell: RwLock<EngineState>,
    /// The shell's, to be flushed without its lock.
    network: Arc<dyn Network>,
    /// Commands from `Drop`, which must not wait for the shell. Holds no more than there are guards and futures.
    side: DeferredQueue,
    /// Events on their way to the readers, in order; put in under the shell's lock.
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
    /// Ends with the thread that writes votes, when the data directory is free.
    written: OnceLock<watch::Receiver<()>>,
    /// In a copy of it no call waits for a lock that a thread of the parent may have had.
    home: ForkGuard,
    /// A test says what the clocks show.
    #[cfg(test)]
    pub(crate) clocks_are_tests: AtomicBool,
}

/// How far the engine is, as those see it who wait for it to join or to leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct EnginePhase {
    /// In a view, with a running lease, at least once in this incarnation.
    pub(crate) ready: bool,
    /// Set when it has left, by whatever way.
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
    /// Nobody confirmed it; the others wait for the member's lease to end.
    Unheard,
    /// The runtime under it ended, or the core broke.
    Broken,
    /// The cluster's slots are more than an hour above this machine's clock.
    WrongClock {
        /// How far above.
        ahead: Duration,
    },
}

/// What came of a turn.
struct TurnResult<R> {
    result: R,
    /// What was sent was written here and now, and this is where the answer comes.
    ear: Option<Arc<ConnectionReader>>,
    /// Somebody who has waited goes on.
    has_woken: bool,
}

/// The right to change the shell.
type EngineAccess<'a> = (RwLockWriteGuard<'a, EngineState>, MutexGuard<'a, ()>);

impl Engine {
    pub(crate) fn new(options: EngineOptions) -> Arc<Engine> {
        let EngineOptions { config, network, disk } = options;
        let phase = EnginePhase { ready: false, closed: None, stopped: false, changes: 0 };
        let me = config.me.clone();
        let shell = EngineState::new(config, network.clone(), disk, phase);
        Arc::new(Engine {
            gate: Mutex::default(),
            shell: RwLock::new(shell),
            network,
            side: DeferredQueue::default(),
            announcements: Mutex::default(),
            readers: Mutex::new(Some(EventReaders::new())),
            me: Mutex::new(me),
            next_request: AtomicU64::new(1),
            rearm: Notify::new(),
            alarms: Alarms::default(),
            phase: watch::Sender::new(phase),
            written: OnceLock::new(),
            home: ForkGuard::here(),
            #[cfg(test)]
            clocks_are_tests: AtomicBool::new(false),
        })
    }

    /// Sets the core going and spawns the timer task on `runtime`. `shutdown` is run when the member has left.
    pub(crate) fn start<F>(self: &Arc<Self>, runtime: &tokio::runtime::Handle, shutdown: F)
    where
        F: Future<Output = ()> + Send + 'static,
    {
        runtime.spawn(self.run(shutdown));
    }

    /// Sets the core going. Whoever has the timer task that this returns polls it until it ends.
    pub(crate) fn run<F>(self: &Arc<Self>, shutdown: F) -> impl Future<Output = ()> + Send + use<F>
    where
        F: Future<Output = ()> + Send + 'static,
    {
        // Made before the task, so that a runtime that drops the task without ever polling it closes the engine too.
        let guard = TimerGuard(self.clone());
        self.start_writer();
        self.input(Input::Timer);
        let engine = self.clone();
        let time = self.home.keep(async move {
            guard.0.keep_time().await;
            shutdown.await;
            if let Some(mut written) = guard.0.written.get().cloned() {
                // The directory is free when nobody writes there any more, unless the disk takes for ever.
                let now = clock::now();
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
        let Some(place) = self.turn(|shell, _| shell.disk.take()) else { return };
        let engine = Arc::downgrade(self);
        let tell = move |process, number, result| {
            if let Some(engine) = Weak::upgrade(&engine) {
                engine.on_written(process, number, result);
            }
        };
        let started = VoteWriter::start(place, tell);
        self.turn(|shell, after| match started {
            Ok(writer) => {
                let _ = self.written.set(writer.ended());
                shell.writer = Some(writer);
            }
            Err(error) => {
                tracing::error!(%error, "no thread to write votes: this member ends");
                shell.fail("no thread could be started to write votes", after);
            }
        })
    }

    /// A write of this process ended.
    fn on_written(&self, process: ProcessId, number: u64, result: io::Result<()>) {
        if self.home.is_left() {
            return;
        }
        self.turn(|shell, after| {
            if shell.phase.closed.is_some() || shell.node.process() != process {
                return;
            }
            let is_stored = result.is_ok();
            shell.note_disk(result, after);
            shell.step(if is_stored { Input::Stored { number } } else { Input::StoreFailed { number } }, None, after);
        });
    }

    /// Why the vote of this member is not on disk, if the last write failed.
    pub(crate) fn disk_trouble(&self) -> Option<(io::ErrorKind, String)> {
        self.turn(|shell, _| shell.disk_trouble.clone())
    }

    /// Completes in a copy of this process, if the runtime goes on there and polls this: nobody waits there for ever.
    async fn until_copied(&self) {
        std::future::poll_fn(|_| if self.home.is_left() { Poll::Ready(()) } else { Poll::Pending }).await;
        if let Some(shell) = self.try_enter() {
            self.turn_with(shell, |shell, after| shell.fail("this process is a copy of the one that joined", after));
        }
    }

    /// Whether this process is a copy that was forked off the one that joined.
    pub(crate) fn is_copy(&self) -> bool {
        self.home.is_left()
    }

    /// Who this process is, in its present incarnation.
    pub(crate) fn process(&self) -> ProcessId {
        lock(&self.me).process
    }

    /// The address that others reach it at.
    pub(crate) fn addr(&self) -> SocketAddr {
        lock(&self.me).addr
    }

    /// What the core sees. A table that is large takes several turns, and may change from one to the next: a turn is short,
    /// since a member that has none for a lease has lost all it holds.
    pub(crate) fn status(&self) -> Status {
        let page =
            |shell: &mut EngineState, after: Option<&StatusMark>| shell.node.status_page(clock::now(), after, PAGE);
        let (mut status, (first, mut mark)) =
            self.turn(|shell, _| (shell.node.status_without_services(clock::now()), page(shell, None)));
        status.go_on(first);
        while let Some(after) = mark {
            let (more, next) = self.turn(|shell, _| page(shell, Some(&after)));
            status.go_on(more);
            mark = next;
        }
        status
    }

    /// Whether it has left, or is about to.
    pub(crate) fn is_over(&self) -> bool {
        self.home.is_left() || self.turn(|shell, _| shell.is_over())
    }

    /// Whether it is the elder of its view.
    pub(crate) fn is_elder(&self) -> bool {
        self.turn(|shell, _| {
            let process = shell.node.process();
            shell.phase.closed.is_none() && shell.node.view().is_some_and(|view| view.elder().process == process)
        })
    }

    /// While joining: each seed address, with what answered there.
    pub(crate) fn seeking(&self) -> Vec<(SocketAddr, Option<String>)> {
        self.turn(|shell, _| shell.node.seeking())
    }

    /// How far it is, to be waited for.
    pub(crate) fn phase(&self) -> watch::Receiver<EnginePhase> {
        self.phase.subscribe()
    }

    /// Events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Announcement> {
        let receiver = match &*lock(&self.readers) {
            Some(readers) => readers.events.subscribe(),
            // A channel without a sender: its end is what comes next.
            None => broadcast::channel(1).1,
        };
        self.announce();
        receiver
    }

    /// How it stands, as those know who were told all changes, and the changes from then on.
    pub(crate) fn subscribe_standing(&self) -> (ConnectionStatus, broadcast::Receiver<ConnectionStatus>) {
        let mut readers = lock(&self.readers);
        // First, so that nobody begins with what is known to be old.
        self.hand_out(&mut readers);
        let start = match &*readers {
            Some(readers) => (readers.told, readers.standings.subscribe()),
            None => (ConnectionStatus::Lost, broadcast::channel(1).1),
        };
        drop(readers);
        // Whoever put something in meanwhile found the right to hand it out taken.
        self.announce();
        start
    }

    /// How it stands at this instant.
    pub(crate) fn connection_status(&self) -> ConnectionStatus {
        self.turn(|shell, _| shell.stands())
    }

    /// The lane of a service: the same for all its handles.
    pub(crate) fn lane(&self, service: &ServiceName) -> Arc<LocalGrants> {
        self.turn(|shell, _| {
            if let Some(lane) = shell.lanes.get(service).and_then(Weak::upgrade) {
                return lane;
            }
            // Now and then, or many services would be looked through for each new one.
            if shell.lanes.len().is_power_of_two() {
                shell.lanes.retain(|_, lane| lane.strong_count() > 0);
            }
            let lane = Arc::new(LocalGrants::new(service.clone()));
            shell.lanes.insert(service.clone(), Arc::downgrade(&lane));
            lane
        })
    }

    /// Takes a free lock of a service that this member grants itself, beside others who do the same, and without a turn.
    /// Whatever becomes of it, [`end`](Self::end) ends it. `None`: that wants a turn. `destroyed`: as of [`ask`](Self::ask).
    pub(crate) fn take(
        &self,
        lane: &Arc<LocalGrants>,
        name: &LockName,
        owner: OwnerId,
        destroyed: &AtomicBool,
    ) -> Option<Arc<HoldCell>> {
        if self.home.is_left() {
            return None;
        }
        // Waits for who has a turn, and has none of its own for that: the others would meet it there, and each of them have one.
        let shell = self.shell.read().ok()?;
        if shell.is_over() || shell.is_mute || destroyed.load(Ordering::Acquire) {
            return None;
        }
        let now = clock::now();
        let offer = shell.node.offer(now, &lane.service, name)?;
        let (cell, is_first) = lane.take((name, owner, now), offer, |spare, token| {
            HoldCell::in_place_of(spare, None, token, Time::MAX, &shell.lease)
        })?;
        if is_first {
            lock(&shell.used).push(lane.clone());
        }
        Some(cell)
    }

    /// A hold is over, wherever it is kept. Never blocks but for the short lock of a name's shard, whoever calls it and
    /// wherever. `now`: as of [`release_request`](Self::release_request).
    pub(crate) fn release(&self, lane: &LocalGrants, name: Option<&LockName>, cell: &Arc<HoldCell>, now: Time) {
        if self.home.is_left() {
            return;
        }
        if let Some(request) = cell.request() {
            return self.release_request(request, now);
        }
        let Ok(shell) = self.shell.try_read() else {
            self.side.push(DeferredCommand::GiveBack(cell.clone()));
            return self.empty_side();
        };
        // The core hears of it under the other lock, and gives it its number.
        let request = cell.request();
        if let (None, Some(name)) = (request, name) {
            lane.release(name, cell);
        }
        if let Some(request) = request {
            drop(shell);
            self.release_request(request, now);
        }
    }

    /// The number of a hold's request; one that was taken in a lane gets it here.
    pub(crate) fn request_of(&self, cell: &HoldCell) -> RequestId {
        cell.request().unwrap_or_else(|| {
            self.turn(|_, _| ());
            cell.request().unwrap_or(RequestId(0))
        })
    }

    /// A number for a request, never used before by this member, in any of its incarnations.
    fn next_request(&self) -> RequestId {
        RequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }

    /// Asks for what `command` says, in the name of a service handle. It gets its number here, in the turn: a member's requests
    /// are numbered in the order in which the core hears of them. `None`: wait, by way of [`poll`](Self::poll). Whatever is
    /// answered, [`release_request`](Self::release_request) ends it. `waker`: as of `poll`, if somebody polls already. Returned with it: where
    /// the answer comes, if the question has left.
    ///
    /// `destroyed` belongs to the handle and is set, in the same turn, by the command that destroys its service: so
    /// nothing that is asked by way of the handle outlives it.
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
        let TurnResult { result: (request, answer), ear, .. } = self.turned(|shell, after| {
            let request = self.next_request();
            command.number(request);
            (request, shell.request((request, waker), command, destroyed, after))
        });
        (request, answer, ear)
    }

    /// Whether this member grants the locks of the service now.
    pub(crate) fn is_grantor(&self, service: &ServiceName) -> bool {
        self.turn(|shell, _| shell.phase.closed.is_none() && shell.node.is_acting(service))
    }

    /// The answer to a request that was told to wait, once; until then `waker` is kept to be woken.
    pub(crate) fn poll(&self, request: RequestId, waker: &Waker) -> Option<Answer> {
        if self.home.is_left() {
            return Some(closed(LostReason::Left));
        }
        // Cloned before locking: a waker is user code.
        let waker = waker.clone();
        let look = |shell: &mut EngineState, after: &mut TurnEffects| match shell.slots.get_mut(&request) {
            Some(PendingRequest::Waiting(Some(_))) if is_planted(ThreadMutant::OldWaker) => None,
            Some(PendingRequest::Waiting(kept)) => {
                after.trash.push(PendingRequest::Waiting(kept.replace(waker)));
                None
            }
            Some(PendingRequest::Answered(_)) => match shell.slots.remove(&request) {
                Some(PendingRequest::Answered(answer)) => Some(answer),
                _ => None,
            },
            // Asked for and not given back, so there is a slot; were there none, nobody would ever answer.
            None => Some(closed(LostReason::Left)),
        };
        self.turn(|shell, after| {
            after.at_once = true;
            look(shell, after)
        })
    }

    /// Lets a hold end no earlier than `lease` from now; says whether it is still held.
    pub(crate) fn extend(&self, request: RequestId, lease: Duration) -> bool {
        !self.home.is_left()
            && self.turn(|shell, after| {
                if shell.phase.closed.is_some() {
                    return false;
                }
                let answer = shell.step(Input::Command(Command::Extend { request, lease }), Some(request), after);
                matches!(answer, Some(Err(outcome)) if matches!(*outcome, Outcome::Extended { .. }))
            })
    }

    /// Lets a hold go on with less; says whether it is still held.
    pub(crate) fn narrow(&self, request: RequestId, want: Want) -> bool {
        !self.home.is_left()
            && self.turn(|shell, after| {
                if shell.phase.closed.is_some() {
                    return false;
                }
                let is_share = matches!(want, Want::Share(_));
                let answer = shell.step(Input::Command(Command::Reduce { request, want }), Some(request), after);
                let narrowed = matches!(answer, Some(Err(outcome)) if *outcome == Outcome::Narrowed);
                if let Some(hold) = shell.holds.get(&request).filter(|_| narrowed && is_share) {
                    hold.share();
                }
                narrowed
            })
    }

    /// As [`narrow`](Self::narrow), for those who do not want to know. Never blocks, whoever calls it and wherever.
    pub(crate) fn narrow_unheard(&self, request: RequestId, want: Want) {
        if self.home.is_left() {
            return;
        }
        self.side.push(DeferredCommand::Command(Command::Reduce { request, want }));
        self.empty_side();
    }

    /// The request is over, whether it waits or holds. Never blocks, whoever calls it and wherever.
    /// `now`: a time of the clock that is not yet gone by long.
    pub(crate) fn release_request(&self, request: RequestId, now: Time) {
        if self.home.is_left() {
            return;
        }
        let command = Command::Release { request };
        let Some(shell) = self.try_enter() else {
            self.side.push(DeferredCommand::Command(command));
            return self.empty_side();
        };
        self.turn_with(shell, |shell, after| shell.obey(command, now, after));
        if !is_planted(ThreadMutant::LooksOnce) {
            self.empty_side();
        }
    }

    /// Begins to leave. Never blocks. Follow [`phase`](Self::phase) to see the end.
    pub(crate) fn leave(&self) {
        if self.home.is_left() {
            return;
        }
        self.side.push(DeferredCommand::Command(Command::Leave));
        self.empty_side();
    }

    /// Goes on without a quorum, if this member has none. False: its lease runs, or it is going.
    pub(crate) fn force(&self) -> bool {
        !self.home.is_left()
            && self.turn(|shell, after| {
                let before = shell.node.process();
                shell.step(Input::Command(Command::Force), None, after);
                shell.phase.closed.is_none() && shell.node.process() != before
            })
    }

    /// Ends it here and now, without a word to the others.
    pub(crate) fn close(&self, closed: EngineClosed) {
        if self.home.is_left() {
            return;
        }
        self.turn(|shell, after| shell.close(closed, after));
    }

    #[cfg(not(test))]
    fn read_clocks(&self) -> Option<Reading> {
        clock::all()
    }

    #[cfg(test)]
    fn read_clocks(&self) -> Option<Reading> {
        if self.clocks_are_tests.load(Ordering::Relaxed) { None } else { clock::all() }
    }

    /// Looks whether the clock may be trusted still, or again.
    pub(crate) fn look_at_clocks(&self, reading: Reading) {
        self.turn(|shell, after| shell.look_at_clocks(reading, after));
    }

    /// Runs the core's timers until the member has left.
    async fn keep_time(&self) {
        let mut sampler = Sampler::new();
        let mut clocks_due = Time::ZERO;
        loop {
            // With whatever else there is to do: that is a beat at the latest.
            if clock::now() >= clocks_due {
                clocks_due = clock::now() + EVERY;
                if let Some(reading) = self.read_clocks() {
                    self.look_at_clocks(reading);
                }
            }
            let (deadline, sample) = self.turn(|shell, _| {
                shell.armed = shell.deadline();
                let is_open = shell.phase.closed.is_none();
                let read = || Sampler::read(&shell.node, &mut shell.mail);
                let sample = (sampler.is_due() || !is_open).then(read);
                (is_open.then_some(shell.armed), sample)
            });
            if let Some(sample) = sample {
                sampler.tell(sample);
            }
            let Some(deadline) = deadline else { return };
            let now = clock::now();
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
                // Which of them it was does not matter, so no dice are needed.
                biased;
                () = self.rearm.notified() => {}
                () = sleep => {}
            }
        }
    }

    /// One turn: under the lock `work`, after it whatever has to be told.
    fn turn<R>(&self, work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R) -> R {
        self.turned(work).result
    }

    /// A turn, and what came of it besides.
    fn turned<R>(&self, work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R) -> TurnResult<R> {
        let turned = self.turn_with(self.enter(), work);
        if !is_planted(ThreadMutant::SideQueueStays) {
            self.empty_side();
        }
        turned
    }

    fn turn_with<R>(
        &self,
        (mut shell, gate): EngineAccess<'_>,
        work: impl FnOnce(&mut EngineState, &mut TurnEffects) -> R,
    ) -> TurnResult<R> {
        let mut after = TurnEffects::default();
        // First of all: nothing happens to a core that does not know what was taken.
        let is_broken = is_poisoned(&self.shell);
        if !is_planted(ThreadMutant::LaneStays) {
            shell.absorb(is_broken, || self.next_request());
        }
        if is_broken {
            // The core panicked in an earlier turn and cannot be believed any more.
            shell.fail("the core panicked", &mut after);
        }
        // Then: whoever has dropped a guard and asks for its lock again must not meet himself.
        for aside in self.side.take() {
            let command = match aside {
                DeferredCommand::Command(command) => Some(command),
                DeferredCommand::GiveBack(cell) => cell.request().map(|request| Command::Release { request }),
            };
            if let Some(command) = command {
                shell.obey(command, clock::now(), &mut after);
            }
        }
        let result = work(&mut shell, &mut after);
        if after.stepped || !after.at_once {
            shell.settle(&mut after);
        }
        if after.phase {
            shell.phase.changes += 1;
            *lock(&self.me) = shell.config.me.clone();
        }
        let announced = !after.announcements.is_empty();
        if announced {
            lock(&self.announcements).extend(after.announcements.drain(..));
        }
        let phase = shell.phase;
        drop(shell);
        drop(gate);

        let ear = if after.sent { self.network.flush(after.hurry) } else { None };
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
        for object in after.news {
            object.tell_news();
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
        TurnResult { result, ear, has_woken }
    }

    /// Empties the side queue, unless somebody has the shell: then that one does it after unlocking.
    fn empty_side(&self) {
        while !self.side.is_empty() {
            let Some(shell) = self.try_enter_past_readers() else { return };
            self.turn_with(shell, |_, _| ());
            if is_planted(ThreadMutant::LooksOnce) {
                return;
            }
        }
    }

    /// Hands events to the readers, unless somebody is at it: then that one looks again.
    fn announce(&self) {
        while !lock(&self.announcements).is_empty() || self.has_ended_unsaid() {
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
            batch.into_iter().for_each(|news| readers.tell(news));
        }
    }

    fn has_ended_unsaid(&self) -> bool {
        self.is_closed() && self.readers.try_lock().is_ok_and(|readers| readers.is_some())
    }

    /// Whether everybody may know that it has left. Keeps no lock on the phase: others are taken after it.
    fn is_closed(&self) -> bool {
        self.phase.borrow().closed.is_some()
    }

    /// `None`: somebody changes it, or is about to, and will look at the side queue after it. Those who only look will not, and
    /// are soon done: waiting for them is worth a few tries, and then the timer task is told to have a turn.
    fn try_enter_past_readers(&self) -> Option<EngineAccess<'_>> {
        let mut gate = self.try_gate()?;
        for _ in 0..TRIES {
            match self.try_shell(gate) {
                Ok(entered) => return Some(entered),
                Err(kept) => gate = kept,
            }
            spin_loop();
        }
        drop(gate);
        if !is_planted(ThreadMutant::ReaderKeepsSide) {
            self.rearm.notify_one();
        }
        None
    }

    fn enter(&self) -> EngineAccess<'_> {
        let gate = lock(&self.gate);
        // Whether it is poisoned is asked in the turn.
        (self.shell.write().unwrap_or_else(PoisonError::into_inner), gate)
    }

    /// `None`: somebody has it, or looks at it.
    fn try_enter(&self) -> Option<EngineAccess<'_>> {
        self.try_shell(self.try_gate()?).ok()
    }

    fn try_gate(&self) -> Option<MutexGuard<'_, ()>> {
        match self.gate.try_lock() {
            Ok(gate) => Some(gate),
            Err(TryLockError::Poisoned(poisoned)) => Some(poisoned.into_inner()),
            Err(TryLockError::WouldBlock) => None,
        }
    }

    fn try_shell<'a>(&'a self, gate: MutexGuard<'a, ()>) -> Result<EngineAccess<'a>, MutexGuard<'a, ()>> {
        match self.shell.try_write() {
            Ok(shell) => Ok((shell, gate)),
            Err(TryLockError::Poisoned(poisoned)) => Ok((poisoned.into_inner(), gate)),
            Err(TryLockError::WouldBlock) => Err(gate),
        }
    }
}

impl Inbox for Engine {
    fn status(&self, most: usize) -> Option<Status> {
        Some(self.turn(|shell, _| shell.node.status_cut(clock::now(), most)))
    }

    fn input(&self, input: Input) {
        self.turn(|shell, after| {
            if shell.phase.closed.is_some() {
                return;
            }
            shell.step(input, None, after);
        });
    }

    fn deliver(&self, packets: &mut Vec<Input>) -> bool {
        if packets.is_empty() {
            return false;
        }
        let TurnResult { ear, has_woken, .. } = self.turned(|shell, after| {
            let process = shell.node.process();
            // Those who are reborn by one of them do not hear the others: these were meant for who was there before.
            for packet in packets.drain(..) {
                if shell.phase.closed.is_some() || shell.node.process() != process {
                    break;
                }
                shell.step(packet, None, after);
            }
            // Nothing else is about to be sent by this thread, and somebody may wait for the answers.
            after.hurry = true;
        });
        ear.is_some() && !has_woken
    }
}

/// Closes the engine when its timer task ends, or is dropped with its runtime: nobody would renew anything any more.
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

/// For mutexes whose holders cannot panic half-way: what they protect is whole even if somebody did.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
impl Engine {
    /// Says that it is suspended; at its end the turn says what is so.
    pub(crate) fn flicker(&self) {
        self.turn(|shell, after| shell.note_standing(ConnectionStatus::Suspended, after));
    }
}

#[cfg(all(test, elderlock_shuttle))]
impl Engine {
    /// Commands that nobody has carried out yet. Not a turn: it mends nothing.
    pub(crate) fn undone(&self) -> usize {
        self.side.len()
    }

    /// Slots and holds that are still kept. Not a turn either; to be asked when nothing is undone, for it holds the
    /// lock and would turn away whoever is about to empty the side queue.
    pub(crate) fn kept(&self) -> (usize, usize) {
        let shell = self.shell.read().expect("no turn panics");
        assert!(shell.lanes.values().filter_map(Weak::upgrade).all(|lane| lane.is_empty()));
        (shell.slots.len(), shell.holds.len())
    }
}

#[cfg(test)]
mod tests;
