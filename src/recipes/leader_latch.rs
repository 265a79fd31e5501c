//! `LeaderLatch`: competes for leadership again and again, until it is closed.
//!
//! ```text
//! Latent ->[start] Started
//! Started ->[close, drop; the member leaves, the service is destroyed here] Closed
//!
//! Started:     +--- leadership is lost: it is released, and asked for again ---+
//!              v                                                               |
//!         queues ->[granted] leads (IsLeader) ->[lease or member lease over,
//!                                               expelled; resign] (NotLeader)
//! ```
//! The whole state is one value behind a watch channel. An event is added to the log in the same
//! step as its change, so no reader sees one without the other. Leadership is released after that
//! step: readers here see the end before any other latch leads.

use super::leadership::{
    Candidacy, CandidacyEnd, HeldTerm, Participant, Participants, Term, TermEnd,
};
use super::wait_future::WaitFuture;
use crate::protocol::{InvalidName, Token};
use crate::runtime::{QueryError, planted};
use crate::service::{InspectError, InvalidLease, LockFuture, LockService, Unavailable};
use futures_util::Stream;
use futures_util::stream::unfold;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number of events that are kept for a slow reader. A term has two; a reader that is 32 terms
/// behind needs the present state instead.
const LOG: usize = 64;

/// A leader latch. Of all latches of one name, in all members, one leads, and the others wait in
/// the queue for leadership.
///
/// After [`start`](LeaderLatch::start) it competes for leadership until it is closed or dropped. A
/// term is lost when the member is cut off, suspended or expelled, or when its
/// [lease](LeaderLatch::lease) ends. Then the latch queues again at the end by itself. Latches lead
/// in the order in which they were started.
///
/// [`term`](LeaderLatch::term) shows whether the latch leads at this instant, by the clock and not
/// by the last message. It is `None` before any other latch can lead. Each term has a
/// [token](Term::fence) for the resources that the leader writes.
///
/// | the member is | the latch |
/// |---|---|
/// | connected | leads, or waits in the queue |
/// | suspended (no elder with a quorum within its lease) | does not lead, even if no other latch does; waits |
/// | connected again | waits: at its former position, or at the end of the queue if it led |
/// | lost (expelled) | does not lead; requests leadership again when the member is back |
/// | gone (left) | is closed |
///
/// A latch that leads holds a lock of its service until it is closed. A
/// [suspension](LockService::suspend) of the service waits for that, and requests of the same
/// member without an [owner](crate::LockBuilder::owner) pass it. So give latches a service of their
/// own.
///
/// Curator: `LeaderLatch`. There a suspended latch may continue to lead under a lenient error
/// policy; here it never does.
pub struct LeaderLatch {
    candidacy: Arc<Candidacy>,
    state: Arc<watch::Sender<LatchCore>>,
    /// The task that competes for leadership; `None` before the start. The mutex is locked while
    /// the latch starts, so that a caller that sees the phase `Started` finds the task here.
    task: Mutex<Option<JoinHandle<()>>>,
}

/// The state of a latch.
///
/// Curator: `LeaderLatch.State`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LatchState {
    /// The latch is not started: it does not compete for leadership.
    Latent,
    /// The latch leads or queues.
    Started,
    /// The latch is closed for good.
    Closed,
}

/// The last event for readers of a latch that is closed.
///
/// Curator: `LeaderLatch.CloseMode`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum CloseMode {
    /// Readers get the end of the stream only.
    #[default]
    Silent,
    /// Readers get [`LatchEvent::NotLeader`] first, if the latch leads.
    NotifyLeader,
}

/// An event of a latch, from [`LeaderLatch::events`].
///
/// Curator: `LeaderLatchListener`.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum LatchEvent {
    /// The latch leads.
    IsLeader(Term),
    /// The latch no longer leads.
    NotLeader {
        /// The token of the term that is over.
        token: Token,
        /// Why the term is over.
        end: TermEnd,
    },
    /// The reader was too slow: some events are skipped, and their result is here. The next events
    /// are those from now on.
    Missed {
        /// The number of skipped events.
        count: u64,
        /// The term, if the latch leads now.
        leads: Option<Term>,
    },
}

#[derive(Default)]
struct LatchCore {
    phase: LatchPhase,
    tenure: Option<HeldTerm>,
    /// The latest events.
    log: VecDeque<LatchEvent>,
    /// The number of all events so far.
    told: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum LatchPhase {
    #[default]
    Latent,
    Started,
    Closed(LatchEnd),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum LatchEnd {
    Closed,
    CandidacyOver(CandidacyEnd),
    /// The task was dropped by its runtime.
    Stopped,
}

impl LatchCore {
    fn tell(&mut self, event: LatchEvent) {
        if self.log.len() == LOG {
            self.log.pop_front();
        }
        self.log.push_back(event);
        self.told += 1;
    }

    /// The latest term, which may be over. Callers check that after they have returned the state,
    /// because the check may wake other tasks.
    fn term(&self) -> Option<Term> {
        self.tenure.as_ref().map(|tenure| tenure.term().clone())
    }

    /// Ends the term, for its handles and for its listeners. Leadership is released when the
    /// returned value is dropped. Drop it while the state is not borrowed, for the same reason.
    fn depose(&mut self, mode: CloseMode) -> Option<HeldTerm> {
        let tenure = self.tenure.take()?;
        let (token, end) = (tenure.term().token(), tenure.term().resign());
        if mode == CloseMode::NotifyLeader {
            self.tell(LatchEvent::NotLeader { token, end });
        }
        Some(tenure)
    }
}

/// The term, if it continues at this instant.
fn term(state: &watch::Sender<LatchCore>) -> Option<Term> {
    let term = state.borrow().term();
    term.filter(|term| term.fence().is_ok())
}

/// Closes a latch, if it is started; returns its former phase.
fn close(state: &watch::Sender<LatchCore>, why: LatchEnd, mode: CloseMode) -> LatchPhase {
    // The check notes a loss first: a lost term counts as lost, not as given up.
    let _ = term(state);
    let (mut before, mut deposed) = (LatchPhase::Latent, None);
    state.send_modify(|state| {
        before = state.phase;
        if before == LatchPhase::Started {
            state.phase = LatchPhase::Closed(why);
            deposed = state.depose(mode);
        }
    });
    drop(deposed);
    before
}

/// The task's state while it competes for leadership. In whatever way the task ends, the latch is
/// closed.
struct LatchTask(Arc<watch::Sender<LatchCore>>);

impl LatchTask {
    async fn stand(self, candidacy: Arc<Candidacy>, mut request: LockFuture) {
        loop {
            match candidacy.win(request).await {
                Ok(tenure) => self.lead(tenure).await,
                Err(end) => {
                    close(&self.0, LatchEnd::CandidacyOver(end), CloseMode::NotifyLeader);
                    return;
                }
            }
            if self.0.borrow().phase != LatchPhase::Started {
                return;
            }
            request = candidacy.queue();
        }
    }

    /// Leads from the beginning of a term to its end.
    async fn lead(&self, tenure: HeldTerm) {
        let term = tenure.term().clone();
        let mut tenure = Some(tenure);
        self.0.send_modify(|state| {
            if state.phase == LatchPhase::Started {
                state.tenure = tenure.take();
                state.tell(LatchEvent::IsLeader(term.clone()));
                planted!(TellTwice => state.tell(LatchEvent::IsLeader(term.clone())));
            }
        });
        // If the latch was closed meanwhile, it does not take leadership.
        drop(tenure);
        term.ended().await;
        let mut deposed = None;
        let mode =
            if planted!(LoseInSilence) { CloseMode::Silent } else { CloseMode::NotifyLeader };
        self.0.send_modify(|state| deposed = state.depose(mode));
        drop(deposed);
    }
}

impl Drop for LatchTask {
    fn drop(&mut self) {
        close(&self.0, LatchEnd::Stopped, CloseMode::NotifyLeader);
    }
}

impl LeaderLatch {
    /// A latch of `name`, 1 to 4096 bytes of any value: the same for all latches that compete with
    /// each other. Other members see it as `id`, up to 4096 bytes. The latch does nothing until it
    /// is [started](LeaderLatch::start).
    ///
    /// # Errors
    /// [`InvalidName`]: the name is empty, or the name or the id is too long.
    ///
    /// Curator: `LeaderLatch(client, latchPath, id)`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let latch = LeaderLatch::new(&jobs, "cron", "node-1")?;
    /// latch.start()?;
    /// let term = latch.await_leadership().await?;
    /// println!("{} leads with token {}", latch.id(), term.fence()?);
    /// latch.close().await?;
    /// assert!(!latch.has_leadership());
    /// # Ok(()) }
    /// ```
    pub fn new(
        service: &LockService,
        name: impl AsRef<[u8]>,
        id: impl AsRef<[u8]>,
    ) -> Result<Self, InvalidName> {
        let candidacy = Arc::new(Candidacy::new(service, name.as_ref(), id.as_ref())?);
        Ok(LeaderLatch {
            candidacy,
            state: Arc::new(watch::Sender::default()),
            task: Mutex::default(),
        })
    }

    /// Limits each term of the latch to `lease`. Then the next waiter leads, and this latch waits
    /// at the end of the queue. The lease is above zero and at most ten years;
    /// [`start`](LeaderLatch::start) refuses any other. After the start this has no effect. Without
    /// a lease, a term lasts until it is given up or lost.
    ///
    /// Curator: none; there a leader with hanging work leads for ever.
    pub fn lease(mut self, lease: Duration) -> Self {
        if let Some(candidacy) = Arc::get_mut(&mut self.candidacy) {
            candidacy.lease = Some(lease);
        }
        self
    }

    /// Lets other members [request leadership back](LockService::revoke), by the name of the latch,
    /// and [revoke it by force](LockService::force_revoke) once this latch has been told: see
    /// [`LockBuilder::revocable`](crate::LockBuilder::revocable). Listen to the term's
    /// [`revocation`](Term::revocation), and [close](LeaderLatch::close) the latch as soon as that
    /// is safe. A latch that loses leadership in this way queues again at the end. After
    /// [`start`](LeaderLatch::start) this has no effect.
    ///
    /// Curator: none; only mutexes are `Revocable`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let latch = LeaderLatch::new(&jobs, "cron", "node-1")?.revocable();
    /// latch.start()?;
    /// let term = latch.await_leadership().await?;
    /// jobs.revoke("cron").await?;
    /// assert!(term.revocation().requested().await.is_some());
    /// latch.close().await?;
    /// # Ok(()) }
    /// ```
    pub fn revocable(mut self) -> Self {
        if let Some(candidacy) = Arc::get_mut(&mut self.candidacy) {
            candidacy.revocable = true;
        }
        self
    }

    /// Competes for leadership from now on: takes a position in the queue and returns. The latch
    /// runs as a task of the calling tokio runtime, which must outlive it: when that runtime ends,
    /// the latch is closed. Outside of a runtime it is a task of a member that has a runtime of its
    /// own, see [`blocking`](crate::blocking).
    ///
    /// # Errors
    /// [`StartError`]; nothing is changed.
    ///
    /// Curator: `LeaderLatch.start`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member, StartError};
    /// let member = Member::local().await?;
    /// let latch = LeaderLatch::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// latch.start()?;
    /// assert_eq!(latch.start(), Err(StartError::AlreadyStarted));
    /// # Ok(()) }
    /// ```
    pub fn start(&self) -> Result<(), StartError> {
        let runtime = self.candidacy.runtime().ok_or(StartError::NoRuntime)?;
        self.candidacy.check()?;
        if self.state.borrow().phase != LatchPhase::Latent {
            return Err(StartError::AlreadyStarted);
        }
        // The request is made here and not in the task: latches that are started in turn lead in
        // turn. It may wake other tasks, so the mutex is not locked yet.
        let request = self.candidacy.queue();
        // The mutex is locked until the task is stored: otherwise a close meanwhile would find no
        // task to end.
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        let mut starts = false;
        self.state.send_if_modified(|state| {
            starts = state.phase == LatchPhase::Latent;
            if starts {
                state.phase = LatchPhase::Started;
            }
            // The readers are woken after unlocking.
            false
        });
        if !starts {
            drop(task);
            drop(request);
            return Err(StartError::AlreadyStarted);
        }
        let running = LatchTask(self.state.clone());
        let stands = running.stand(self.candidacy.clone(), request);
        #[cfg(feature = "simulated")]
        let stands = crate::runtime::simulated::kept(stands);
        *task = Some(runtime.spawn(stands));
        drop(task);
        self.state.send_modify(|_| {});
        Ok(())
    }

    /// Returns whether the latch leads at this instant, as [`term`](LeaderLatch::term) does.
    ///
    /// Curator: `LeaderLatch.hasLeadership`, which may be true for a moment after another latch
    /// leads.
    pub fn has_leadership(&self) -> bool {
        self.term().is_some()
    }

    /// The term, if the latch leads at this instant by its clock. Cheap: no message.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member};
    /// let member = Member::local().await?;
    /// let latch = LeaderLatch::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// assert!(latch.term().is_none());
    /// latch.start()?;
    /// latch.await_leadership().await?;
    /// assert!(latch.term().is_some());
    /// # Ok(()) }
    /// ```
    pub fn term(&self) -> Option<Term> {
        term(&self.state)
    }

    /// Waits until the latch leads, and returns the term.
    ///
    /// # Errors
    /// [`AwaitLeadershipError`], also when a [limit](WaitFuture::wait) ended. Nothing is changed:
    /// the latch keeps its position in the queue.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing: the latch keeps its position in the queue.
    ///
    /// Curator: `LeaderLatch.await`, and `await(timeout, unit)` with a limit.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// use elderlock::{AwaitLeadershipError, LeaderLatch, Member};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let one = LeaderLatch::new(&jobs, "cron", "node-1")?;
    /// let two = LeaderLatch::new(&jobs, "cron", "node-2")?;
    /// one.start()?;
    /// two.start()?;
    /// one.await_leadership().wait(Duration::from_secs(2)).await?;
    /// let error = two.await_leadership().wait(Duration::from_millis(5)).await.unwrap_err();
    /// assert_eq!(error, AwaitLeadershipError::TimedOut);
    /// # Ok(()) }
    /// ```
    pub fn await_leadership(&self) -> WaitFuture<'_, Term, AwaitLeadershipError> {
        let timed_out = || AwaitLeadershipError::TimedOut;
        WaitFuture::new(self.candidacy.service(), timed_out, self.lead())
    }

    async fn lead(&self) -> Result<Term, AwaitLeadershipError> {
        let mut state = self.state.subscribe();
        loop {
            let (phase, term) = {
                let state = state.borrow_and_update();
                (state.phase, state.term())
            };
            match (phase, term) {
                (LatchPhase::Latent, _) => return Err(AwaitLeadershipError::NotStarted),
                (LatchPhase::Closed(why), _) => return Err(why.into()),
                (LatchPhase::Started, Some(term)) if term.fence().is_ok() => return Ok(term),
                (LatchPhase::Started, _) => {}
            }
            // An error cannot occur: the sender is this latch's.
            let _ = state.changed().await;
        }
    }

    /// The latch's events from now on, each change once and in order. Subscribe first and read
    /// [`term`](LeaderLatch::term) then, to know the state before the first event.
    ///
    /// Curator: `LeaderLatch.addListener`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{CloseMode, LatchEvent, LeaderLatch, Member};
    /// let member = Member::local().await?;
    /// let latch = LeaderLatch::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// let mut events = latch.events();
    /// latch.start()?;
    /// let Some(LatchEvent::IsLeader(term)) = events.next().await else { panic!() };
    /// latch.close_with(CloseMode::NotifyLeader).await?;
    /// let Some(LatchEvent::NotLeader { token, .. }) = events.next().await else { panic!() };
    /// assert_eq!(token, term.token());
    /// assert_eq!(events.next().await, None);
    /// # Ok(()) }
    /// ```
    pub fn events(&self) -> LatchEvents {
        let state = self.state.subscribe();
        let next = state.borrow().told;
        LatchEvents { state, next }
    }

    /// Asks the grantor for the leader and the candidates in the queue. Works also before the start
    /// and after the end of this latch. Costs one round trip.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `LeaderLatch.getParticipants`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let one = LeaderLatch::new(&jobs, "cron", "node-1")?;
    /// let two = LeaderLatch::new(&jobs, "cron", "node-2")?;
    /// one.start()?;
    /// two.start()?;
    /// let first = two.participants().await?.first;
    /// let ids: Vec<String> = first.into_iter().map(|one| one.id).collect();
    /// assert_eq!(ids, ["node-1", "node-2"]);
    /// assert_eq!(two.leader().await?.unwrap().id, "node-1");
    /// # Ok(()) }
    /// ```
    pub async fn participants(&self) -> Result<Participants, InspectError> {
        self.candidacy.participants().await
    }

    /// Asks the grantor for the leader, as [`participants`](LeaderLatch::participants) does.
    /// `None`: there is none at that moment.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `LeaderLatch.getLeader`, which returns an invented participant without an id if
    /// there is none.
    pub async fn leader(&self) -> Result<Option<Participant>, InspectError> {
        Ok(self.participants().await?.leader().cloned())
    }

    /// Withdraws the candidacy, and releases leadership if the latch has it. Returns when the
    /// latch's position in the queue is released too. The readers of its events get no event, only
    /// the end.
    ///
    /// # Errors
    /// [`CloseError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the closing. Dropping the latch closes it
    /// too.
    ///
    /// Curator: `LeaderLatch.close`.
    pub async fn close(&self) -> Result<(), CloseError> {
        self.close_with(CloseMode::Silent).await
    }

    /// Like [`close`](LeaderLatch::close), and chooses the last event for the readers of the latch.
    /// With [`CloseMode::NotifyLeader`] the event [`LatchEvent::NotLeader`] can be read before
    /// leadership is released.
    ///
    /// # Errors
    /// [`CloseError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// As for `close`.
    ///
    /// Curator: `LeaderLatch.close(closeMode)`, which releases first and notifies then.
    pub async fn close_with(&self, mode: CloseMode) -> Result<(), CloseError> {
        match close(&self.state, LatchEnd::Closed, mode) {
            LatchPhase::Started => {}
            LatchPhase::Latent => return Err(CloseError::NotStarted),
            LatchPhase::Closed(_) => return Err(CloseError::AlreadyClosed),
        }
        if let Some(task) = self.take_task() {
            task.abort();
            // An aborted task has changed nothing.
            let _ = task.await;
        }
        Ok(())
    }

    /// Releases leadership, if `term` is the term in which the latch leads, and competes again, at
    /// the end of the queue. If other latches wait, the first of them leads next. The readers of
    /// its events get [`LatchEvent::NotLeader`] before leadership is released. Returns whether this
    /// call ended the term; if the term was over before, nothing is changed.
    ///
    /// Curator: none; there the latch is closed, and a new one is made.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member, TermEnd};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let one = LeaderLatch::new(&jobs, "cron", "node-1")?;
    /// let two = LeaderLatch::new(&jobs, "cron", "node-2")?;
    /// one.start()?;
    /// two.start()?;
    /// let term = one.await_leadership().await?;
    /// assert!(one.resign(&term));
    /// assert_eq!(term.fence(), Err(TermEnd::GivenUp));
    /// let next = two.await_leadership().await?;
    /// assert!(two.resign(&next));
    /// assert!(one.await_leadership().await?.token() > next.token());
    /// # Ok(()) }
    /// ```
    pub fn resign(&self, term: &Term) -> bool {
        // A lost term counts as lost, not as given up. The term is checked while the state is not
        // borrowed: the check may wake other tasks.
        if term.fence().is_err() {
            return false;
        }
        let mut deposed = None;
        self.state.send_if_modified(|state| {
            if state.tenure.as_ref().is_some_and(|tenure| tenure.term() == term) {
                deposed = state.depose(CloseMode::NotifyLeader);
            }
            deposed.is_some()
        });
        // This drop releases leadership. The competing task sees that the term is over, and makes a
        // new request after that.
        let is_mine = deposed.is_some();
        drop(deposed);
        is_mine && term.fence() == Err(TermEnd::GivenUp)
    }

    /// Returns the present state of the latch.
    ///
    /// Curator: `LeaderLatch.getState`.
    pub fn state(&self) -> LatchState {
        match self.state.borrow().phase {
            LatchPhase::Latent => LatchState::Latent,
            LatchPhase::Started => LatchState::Started,
            LatchPhase::Closed(_) => LatchState::Closed,
        }
    }

    /// The id that other members see.
    ///
    /// Curator: `LeaderLatch.getId`.
    pub fn id(&self) -> String {
        self.candidacy.id()
    }

    fn take_task(&self) -> Option<JoinHandle<()>> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Drop for LeaderLatch {
    fn drop(&mut self) {
        close(&self.state, LatchEnd::Closed, CloseMode::Silent);
        if let Some(task) = self.take_task() {
            task.abort();
        }
    }
}

impl std::fmt::Debug for LeaderLatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderLatch")
            .field("name", &self.candidacy.name().escape_ascii().to_string())
            .field("id", &self.id())
            .field("state", &self.state())
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}

/// The events of a latch, in order, from [`LeaderLatch::events`].
///
/// The latch keeps the latest 64 events for a slow reader; a reader that falls further behind gets
/// [`LatchEvent::Missed`]. This value keeps neither the latch nor its leadership.
pub struct LatchEvents {
    state: watch::Receiver<LatchCore>,
    /// The number of the event that comes next.
    next: u64,
}

impl LatchEvents {
    /// The next event; `None` once the latch is closed and all events were read.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    pub async fn next(&mut self) -> Option<LatchEvent> {
        loop {
            {
                let state = self.state.borrow_and_update();
                let first = state.told - state.log.len() as u64;
                if self.next < first {
                    let count = state.told - self.next;
                    self.next = state.told;
                    return Some(LatchEvent::Missed { count, leads: state.term() });
                }
                if let Some(event) = state.log.get((self.next - first) as usize) {
                    self.next += 1;
                    return Some(event.clone());
                }
                if let LatchPhase::Closed(_) = state.phase {
                    return None;
                }
            }
            // The latch was dropped without ever having been started.
            self.state.changed().await.ok()?;
        }
    }

    /// The events as a [`Stream`], for the combinators of other crates.
    ///
    /// Dropping the stream, or a future of its next event, loses no event of other readers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{CloseMode, LatchEvent, LeaderLatch, Member};
    /// use futures_util::StreamExt as _;
    /// let member = Member::local().await?;
    /// let latch = LeaderLatch::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// let mut events = latch.events().into_stream();
    /// latch.start()?;
    /// assert!(matches!(events.next().await, Some(LatchEvent::IsLeader(_))));
    /// latch.close_with(CloseMode::NotifyLeader).await?;
    /// assert!(matches!(events.next().await, Some(LatchEvent::NotLeader { .. })));
    /// assert_eq!(events.next().await, None);
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = LatchEvent> + Send + Unpin {
        Box::pin(unfold(self, |mut events| async { Some((events.next().await?, events)) }))
    }
}

impl std::fmt::Debug for LatchEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LatchEvents").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Why [`LeaderLatch::start`] did nothing.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The latch was started before, and may be closed by now: make a new one.
    #[error("the latch was started before; make a new one")]
    AlreadyStarted,
    /// The latch's [lease](LeaderLatch::lease) is out of range. Make a new one.
    #[error(transparent)]
    InvalidLease(#[from] InvalidLease),
    /// Called outside of a tokio runtime, and the member has none of its own.
    #[error("{}", QueryError::NoRuntime)]
    NoRuntime,
}

/// Why [`LeaderLatch::close`] did nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CloseError {
    /// The latch has not been started.
    #[error("the latch has not been started")]
    NotStarted,
    /// The latch is closed already: by the application, because the member has left, or because the
    /// service was destroyed here.
    #[error("the latch is closed already")]
    AlreadyClosed,
}

/// Why [`LeaderLatch::await_leadership`] returns no term. The latch is as before.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AwaitLeadershipError {
    /// The latch did not lead within the wait limit. It stays in the queue.
    #[error("no leadership within the wait limit")]
    TimedOut,
    /// The latch has not been started.
    #[error("{}", CloseError::NotStarted)]
    NotStarted,
    /// The latch was closed.
    #[error("the latch is closed")]
    Closed,
    /// The latch is closed because its service was destroyed at this member. Get a new handle from
    /// the member, and make a new latch.
    #[error("{}", Unavailable::Destroyed)]
    Destroyed,
    /// The latch is closed because the member has left, for good: join as a new member.
    #[error("{}", Unavailable::Left)]
    Left,
    /// The latch is closed because the runtime in which it was started has ended.
    #[error("the runtime of the latch has ended")]
    Stopped,
}

impl AwaitLeadershipError {
    /// Returns whether the limit was reached.
    pub fn is_timeout(&self) -> bool {
        matches!(self, AwaitLeadershipError::TimedOut)
    }
}

impl From<LatchEnd> for AwaitLeadershipError {
    fn from(why: LatchEnd) -> Self {
        match why {
            LatchEnd::Closed => AwaitLeadershipError::Closed,
            LatchEnd::CandidacyOver(CandidacyEnd::Destroyed) => AwaitLeadershipError::Destroyed,
            LatchEnd::CandidacyOver(CandidacyEnd::Left) => AwaitLeadershipError::Left,
            LatchEnd::Stopped => AwaitLeadershipError::Stopped,
        }
    }
}

#[cfg(test)]
mod tests;
