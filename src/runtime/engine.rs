//! `Engine`: the core behind a lock. Every event of a member is one turn of the engine. Only local
//! grants of free locks take no turn: the core absorbs them later (`local_grants.rs`).
//!
//! A turn locks the engine state, steps the core, carries out the core's outputs in order and
//! unlocks. After that it wakes the waiting callers. No user code runs under the lock. A call that
//! the core can answer at once is answered in the turn of the caller: no message, no task switch.
//!
//! Any thread may empty the two queues: the deferred queue of commands from `Drop`, and the queue
//! of events to announce. Both follow one rule: a thread first adds its entry and then *tries* to
//! take the right to empty the queue. The thread with that right checks the queue again after it
//! has given the right up. So no entry stays behind, and no thread blocks. Readers of the core do
//! not empty the queues. A thread that only readers keep out asks the timer task for a turn after
//! some tries.
//!
//! `engine/state.rs` has the state under the lock, `engine/turn.rs` the turn, and
//! `engine/requests.rs` the calls of service handles.

mod alarms;
mod counted_session;
mod deferred;
mod event_readers;
mod phase;
mod requests;
mod session_count;
mod sleep;
mod state;
mod subscriptions;
mod timer_task;
mod turn;

use super::fork_guard::ForkGuard;
use super::inbox::Inbox;
use super::member_clock::MemberClock;
use super::network::Network;
#[cfg(test)]
use super::sync::AtomicBool;
use super::sync::{AtomicU64, Mutex, RwLock, lock};
use super::vote_writer::{VoteStorage, VoteWriter};
use crate::protocol::event::StatusMark;
use crate::protocol::{
    Command, Config, Input, LedMember, MemberInfo, MemberName, ProcessId, SeedReport, ServiceName,
    Status, Time, Timing,
};
use alarms::Alarms;
use deferred::{DeferredCommand, DeferredQueue};
use event_readers::{EventReaders, ReaderUpdate};
use state::EngineState;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;
use tokio::sync::{Notify, watch};

pub(crate) use event_readers::Announcement;
pub use event_readers::ConnectionStatus;
pub(crate) use phase::{EngineClosed, EnginePhase};
pub(crate) use session_count::SessionCount;
pub(crate) use sleep::{Sleep, SleepEnd};
pub(crate) use state::Answer;

/// Services and locks that a status reads in one turn, which takes about half a millisecond.
const PAGE: usize = 256;

/// The parts with which an engine is started.
pub(crate) struct EngineOptions {
    pub(crate) config: Config,
    pub(crate) network: Arc<dyn Network>,
    /// The storage of votes, if the configuration says so.
    pub(crate) disk: Option<Box<dyn VoteStorage>>,
    pub(crate) clock: MemberClock,
}

/// The core behind a lock. See the head of the module.
pub(crate) struct Engine {
    /// A thread takes this mutex before the write lock on the engine state. So writers queue here,
    /// and not at each part of the reader-writer lock.
    writer_lock: Mutex<()>,
    state: RwLock<EngineState>,
    /// The network of the engine state, kept here to be flushed without the lock.
    network: Arc<dyn Network>,
    /// Commands from `Drop`, which must not wait for the engine state. The queue is no longer than
    /// the number of guards and futures.
    deferred: DeferredQueue,
    /// Events on their way to the readers, in order. They are added under the engine state's lock.
    announcements: Mutex<VecDeque<ReaderUpdate>>,
    /// The readers of events; `None` when no event will follow.
    readers: Mutex<Option<EventReaders>>,
    /// The identity of the present incarnation.
    me: Mutex<MemberInfo>,
    next_request: AtomicU64,
    /// Tells the timer task that its deadline is earlier now.
    rearm: Notify,
    /// Timers of calls that the application awaits.
    alarms: Alarms,
    phase: watch::Sender<EnginePhase>,
    /// The runtime of a member that has a thread of its own.
    own_runtime: OnceLock<tokio::runtime::Handle>,
    /// Closes when the thread that writes votes has ended: the data directory is free then.
    written: OnceLock<watch::Receiver<()>>,
    /// The guard against `fork`: in a copied process no call waits for a lock that a thread of the
    /// parent may have had.
    home: ForkGuard,
    /// The clock of all times of the core and of its holds.
    clock: MemberClock,
    /// Counts the locks that the member holds for programs that are not members.
    pub(crate) sessions: SessionCount,
    /// Set when a test provides the readings of the clocks.
    #[cfg(test)]
    pub(crate) clocks_are_tests: AtomicBool,
}

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

    /// Keeps a runtime for the tasks of recipes whose caller is in none.
    pub(crate) fn keep_runtime(&self, runtime: tokio::runtime::Handle) {
        let _ = self.own_runtime.set(runtime);
    }

    /// The runtime of the caller, or else that of a member with a thread of its own.
    pub(crate) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        tokio::runtime::Handle::try_current().ok().or_else(|| self.own_runtime.get().cloned())
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
        self.turn(|state, effects| match started {
            Ok(writer) => {
                let _ = self.written.set(writer.ended());
                if let Some((process, number, vote)) = state.unwritten.take() {
                    writer.write(process, number, vote);
                }
                state.writer = Some(writer);
            }
            Err(error) => {
                effects.log(move || {
                    tracing::error!(%error, "no thread to write votes: this member ends");
                });
                state.fail("no thread could be started to write votes", effects);
            }
        })
    }

    /// Takes the result of a write of this process's vote.
    fn on_written(&self, process: ProcessId, number: u64, result: io::Result<()>) {
        if self.home.is_left() {
            return;
        }
        self.turn(|state, effects| {
            if state.phase.closed.is_some() || state.node.process() != process {
                return;
            }
            let is_stored = result.is_ok();
            state.note_disk(result, effects);
            state.step(
                if is_stored { Input::Stored { number } } else { Input::StoreFailed { number } },
                None,
                effects,
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

    /// The member of a running cluster for which this forced start ended, if that was the reason.
    pub(crate) fn refusing_member(&self) -> Option<Box<LedMember>> {
        if self.is_copy() {
            return None;
        }
        self.turn(|state, _| state.refusing.clone())
    }

    /// Returns whether this process is a copy that was forked off the process that joined. A copy
    /// takes no turn: at the fork another thread may have had one, and that thread is not in the
    /// copy.
    pub(crate) fn is_copy(&self) -> bool {
        self.home.is_left()
    }

    /// The identity of this process, in its present incarnation.
    pub(crate) fn process(&self) -> ProcessId {
        lock(&self.me).process
    }

    /// The address at which other members reach this one.
    pub(crate) fn addr(&self) -> SocketAddr {
        lock(&self.me).addr
    }

    /// The name of this member for people.
    pub(crate) fn name(&self) -> MemberName {
        lock(&self.me).name.clone()
    }

    /// The member's status. A large table takes several turns, and may change from one to the next.
    /// Each turn must be short: a member without a turn for a whole lease has lost all its holds.
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
        let (mut status, (first, mut mark)) = self.turn(|state, _| {
            let status = state.node.status_without_services(self.now());
            (state.complete(status), page(state, None))
        });
        status.go_on(first);
        while let Some(after) = mark {
            let (more, next) = self.turn(|state, _| page(state, Some(&after)));
            status.go_on(more);
            mark = next;
        }
        status
    }

    /// Returns whether this member has left, or is about to.
    pub(crate) fn is_over(&self) -> bool {
        self.home.is_left() || self.turn(|state, _| state.is_over())
    }

    /// Returns whether this member is the elder of its view.
    pub(crate) fn is_elder(&self) -> bool {
        !self.is_copy()
            && self.turn(|state, _| {
                let process = state.node.process();
                state.phase.closed.is_none()
                    && state.node.view().is_some_and(|view| view.elder().process == process)
            })
    }

    /// Returns the time until the member lease ends; `None`: the lease is endless.
    #[cfg(feature = "http")]
    pub(crate) fn lease_left(&self) -> Option<Duration> {
        if self.is_copy() {
            return Some(Duration::ZERO);
        }
        let end = self.turn(|state, _| state.lease.end());
        (end != Time::MAX).then(|| end.since(self.now()))
    }

    /// Returns the seeds and their answers while the member joins.
    pub(crate) fn seed_report(&self) -> SeedReport {
        if self.is_copy() {
            return SeedReport::default();
        }
        self.turn(|state, _| state.node.seed_report())
    }

    /// The engine's phase, for callers that await a change of it.
    pub(crate) fn phase(&self) -> watch::Receiver<EnginePhase> {
        self.phase.subscribe()
    }

    /// The connection status at this instant.
    pub(crate) fn connection_status(&self) -> ConnectionStatus {
        if self.is_copy() {
            return ConnectionStatus::Lost;
        }
        self.turn(|state, _| state.stands())
    }

    /// The time since the Unix epoch, by the member's wall clock.
    pub(crate) fn wall(&self) -> Duration {
        self.clock.wall()
    }

    /// This instant, by the clock of the member.
    pub(crate) fn now(&self) -> Time {
        self.clock.now()
    }

    /// Returns whether this member grants the locks of the service now.
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

    /// Begins to leave. Never blocks. Follow [`phase`](Self::phase) to see the end.
    pub(crate) fn leave(&self) {
        if !self.home.is_left() && self.sessions.close() {
            self.leave_now();
        }
    }

    /// Returns whether this member holds locks for programs that are not members.
    pub(crate) fn serves_sessions(&self) -> bool {
        !self.is_copy() && lock(&self.me).serves_sessions
    }

    /// The cluster's timing; `None` before the member has joined.
    pub(crate) fn session_timing(&self) -> Option<Timing> {
        if self.is_copy() {
            return None;
        }
        self.turn(|state, _| state.node.view().map(|view| view.timing))
    }

    /// The reason why an order has failed, and its cause if this member is suspended.
    pub(crate) fn reason_for(&self, reason: &impl ToString) -> String {
        let reason = reason.to_string();
        match self.connection_status() {
            ConnectionStatus::Suspended => {
                format!("{reason}: this member is suspended, as it has no quorum")
            }
            ConnectionStatus::Connected | ConnectionStatus::Lost => reason,
        }
    }

    fn leave_now(&self) {
        if self.home.is_left() {
            return;
        }
        self.deferred.push(DeferredCommand::Command(Command::Leave));
        self.empty_deferred();
    }

    /// Continues without a quorum, as a new lineage. Returns `false` if this member's lease runs,
    /// or if it is leaving.
    pub(crate) fn force(&self) -> bool {
        !self.home.is_left()
            && self.turn(|state, effects| {
                let before = state.node.process();
                state.step(Input::Command(Command::Force), None, effects);
                state.phase.closed.is_none() && state.node.process() != before
            })
    }

    /// Ends the engine here and now, without a message to the others.
    pub(crate) fn close(&self, closed: EngineClosed) {
        if self.home.is_left() {
            return;
        }
        self.turn(|state, effects| state.close(closed, effects));
    }
}

impl Inbox for Engine {
    fn status(&self, most: usize) -> Option<Status> {
        Some(self.turn(|state, _| state.complete(state.node.status_cut(self.now(), most))))
    }

    fn input(&self, input: Input) {
        self.turn(|state, effects| {
            if state.phase.closed.is_some() {
                return;
            }
            state.step(input, None, effects);
        });
    }

    fn deliver(&self, packets: &mut Vec<Input>) -> bool {
        if packets.is_empty() {
            return false;
        }
        let turn = self.turned(|state, effects| {
            let process = state.node.process();
            // A packet may give this process a new incarnation. The packets after it were meant for
            // the old one.
            for packet in packets.drain(..) {
                if state.phase.closed.is_some() || state.node.process() != process {
                    break;
                }
                state.step(packet, None, effects);
            }
            // Flush now: this thread sends nothing more, and a caller may be waiting.
            effects.is_urgent = true;
        });
        turn.reader.is_some() && !turn.has_woken
    }
}

#[cfg(test)]
impl Engine {
    /// Makes the core panic; the next input finds it broken.
    pub(crate) fn break_core(&self) {
        let turn = std::panic::AssertUnwindSafe(|| {
            self.turn(|_, _| panic!("on purpose: the core breaks"))
        });
        assert!(std::panic::catch_unwind(turn).is_err());
        self.input(Input::Timer);
    }

    /// Notes that the member is suspended; at its end the turn notes the true status.
    pub(crate) fn note_brief_suspension(&self) {
        self.turn(|state, effects| state.note_status(ConnectionStatus::Suspended, effects));
    }
}

#[cfg(all(test, elderlock_shuttle))]
impl Engine {
    /// The number of commands that no thread has carried out yet. Takes no turn, which would carry
    /// them out.
    pub(crate) fn deferred_count(&self) -> usize {
        self.deferred.len()
    }

    /// Returns the numbers of slots and holds that are still kept. This takes no turn, but it holds
    /// the lock. A thread that wants to empty the deferred queue would find the lock taken. So call
    /// it only when no work is left.
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
