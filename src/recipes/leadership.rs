//! The common part of a latch and a selector: a member's candidacy for leadership, and the handles
//! of a leader.
//!
//! A leadership is a lock. The queue of the lock is the list of candidates, its holder leads, and
//! its token is the number of the term.

use super::owner::draw_owner;
use crate::protocol::{
    HolderInfo, InvalidName, LineageId, LockName, LostReason, Metadata, Mode, ProcessId, Token,
};
use crate::runtime::planted;
use crate::service::{
    Guard, InspectError, InvalidLease, LockError, LockFuture, LockService, LossWatch, Lost,
    Revocation, Unavailable,
};
use serde::Serialize;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The first wait before a new request, after a refusal that will not last. The wait doubles each
/// time, up to [`LONGEST_PAUSE`].
const PAUSE: Duration = Duration::from_millis(10);
/// The longest such wait: a member that joins again takes about a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A candidate for the leadership `name`.
#[derive(Debug)]
pub(super) struct Candidacy {
    service: LockService,
    name: LockName,
    id: Metadata,
    /// The candidate's own owner. With the member as its owner it would pass a suspension whenever
    /// that member holds anything.
    owner: u64,
    pub(super) lease: Option<Duration>,
    pub(super) revocable: bool,
}

/// Why a candidacy can never succeed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CandidacyEnd {
    Destroyed,
    Left,
}

impl CandidacyEnd {
    /// The end of the candidacy that an error of a request means; `None` if the error will not
    /// last.
    pub(super) fn of(error: &LockError) -> Option<CandidacyEnd> {
        match error {
            LockError::Unavailable(Unavailable::Left) => Some(CandidacyEnd::Left),
            LockError::Unavailable(Unavailable::Destroyed) => Some(CandidacyEnd::Destroyed),
            _ => None,
        }
    }
}

impl Candidacy {
    pub(super) fn new(service: &LockService, name: &[u8], id: &[u8]) -> Result<Self, InvalidName> {
        let (name, id) = (LockName::new(name)?, Metadata::new(id)?);
        Ok(Candidacy {
            service: service.clone(),
            name,
            id,
            owner: draw_owner(),
            lease: None,
            revocable: false,
        })
    }

    pub(super) fn id(&self) -> String {
        text(&self.id)
    }

    /// The runtime for the task of the candidacy.
    pub(super) fn runtime(&self) -> Option<tokio::runtime::Handle> {
        self.service.runtime()
    }

    pub(super) fn service(&self) -> &LockService {
        &self.service
    }

    pub(super) fn name(&self) -> &[u8] {
        self.name.as_bytes()
    }

    pub(super) fn owner(&self) -> u64 {
        self.owner
    }

    pub(super) fn check(&self) -> Result<(), InvalidLease> {
        self.lease.map_or(Ok(()), |lease| InvalidLease::check(lease).map(drop))
    }

    /// Takes a position in the queue.
    pub(super) fn queue(&self) -> LockFuture {
        let mut request =
            self.service.lock(self.name.as_bytes()).metadata(self.id.as_bytes()).owner(self.owner);
        if let Some(lease) = self.lease {
            request = request.lease(lease);
        }
        if self.revocable {
            request = request.revocable();
        }
        request.start()
    }

    /// Waits at the position in the queue until the candidate leads. Takes a new position whenever
    /// that is lost.
    pub(super) async fn win(&self, mut request: LockFuture) -> Result<HeldTerm, CandidacyEnd> {
        let mut pause = PAUSE;
        loop {
            let error = match request.await {
                Ok(guard) => return Ok(HeldTerm::new(guard)),
                Err(error) => error,
            };
            if let Some(end) = CandidacyEnd::of(&error) {
                return Err(end);
            }
            // An expelled member joins again by itself. At a busy member other requests will be
            // served meanwhile.
            let _ = self.service.sleep(pause).await;
            pause = LONGEST_PAUSE.min(pause * 2);
            request = self.queue();
        }
    }

    pub(super) async fn sleep(&self, span: Duration) {
        let _ = self.service.sleep(span).await;
    }

    pub(super) async fn participants(&self) -> Result<Participants, InspectError> {
        let seen = self.service.inspect(self.name.as_bytes()).await?;
        // The holder of a share does not lead, and a suspension in the queue is not a candidate.
        let leads = seen
            .holders
            .into_iter()
            .filter(|holder| holder.mode == Mode::Lock)
            .map(Participant::from);
        let waiting =
            seen.waiters.into_iter().filter(|waiter| waiter.mode == Mode::Lock).map(|waiter| {
                Participant { id: text(&waiter.metadata), process: waiter.process, token: None }
            });
        Ok(Participants { first: leads.chain(waiting).collect(), more: seen.more })
    }
}

fn text(id: &Metadata) -> String {
    String::from_utf8_lossy(id.as_bytes()).into_owned()
}

/// The leader or a candidate in the queue, from [`participants`](super::LeaderLatch::participants).
///
/// Curator: `Participant`.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Participant {
    /// The id that the participant gives itself. Nothing checks that ids differ. Bytes that are not
    /// text are replaced.
    pub id: String,
    /// The candidate's process.
    pub process: ProcessId,
    /// The token of the participant's term, if it leads.
    pub token: Option<Token>,
}

impl Participant {
    /// Returns whether the candidate leads.
    pub fn is_leader(&self) -> bool {
        self.token.is_some()
    }
}

impl From<HolderInfo> for Participant {
    fn from(holder: HolderInfo) -> Self {
        Participant {
            id: text(&holder.metadata),
            process: holder.process,
            token: Some(holder.token),
        }
    }
}

/// The leader and the candidates in the queue, at the grantor a moment ago.
///
/// Each holder of the lock of that name, and each waiter for it, is a participant. Holders of
/// [shares](crate::LockService::share) are not, nor are [suspensions](crate::LockService::suspend)
/// of the service, which wait in the same line: no candidate leads while they hold.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub struct Participants {
    /// The leader, if there is one, then the candidates in the order in which they will lead: those
    /// among the first 256 in the queue.
    pub first: Vec<Participant>,
    /// The number of further requests in the queue, of any kind.
    pub more: u64,
}

impl Participants {
    /// The participant that leads; `None`: no member leads.
    pub fn leader(&self) -> Option<&Participant> {
        self.first.first().filter(|first| first.is_leader())
    }
}

/// A view of one leadership term, which does not keep the term. Cheap to clone.
///
/// Pass it to the leader's work, and let the work show the token of *its own* term to each
/// resource. The resource refuses tokens lower than the highest it has seen. A task that asks the
/// latch again instead may get the token of a later term for work that was begun in an earlier one.
#[derive(Clone)]
pub struct Term {
    inner: Arc<TermState>,
}

struct TermState {
    watch: LossWatch,
    token: Token,
    /// The requests to release leadership. Each listener has a clone, which begins with the first
    /// request.
    revocation: Revocation,
    /// The end, which the first thread that notices it sets.
    end: OnceLock<TermEnd>,
    given_up: CancellationToken,
}

/// Why a term is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TermEnd {
    /// The term was lost: by the end of a lease, by a [forced
    /// release](crate::LockService::force_revoke), or because the member is cut off, expelled or
    /// gone.
    #[error("the leadership was lost: {0}")]
    Lost(#[from] Lost),
    /// The term was given up here: closed, dropped, interrupted, or its work was done.
    #[error("the leadership was given up")]
    GivenUp,
}

impl TermEnd {
    /// Returns the error as the loss of a hold.
    pub(super) fn lost(self) -> Lost {
        match self {
            TermEnd::Lost(lost) => lost,
            TermEnd::GivenUp => Lost::new(LostReason::Released),
        }
    }
}

impl Term {
    /// The token, if the term continues at this instant. Cheap: a clock and some atomics, no
    /// message.
    ///
    /// A term whose fence has failed once fails for good, with the same reason.
    ///
    /// # Errors
    /// [`TermEnd`]. Asking changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, Member, TermEnd};
    /// let member = Member::local().await?;
    /// let latch = LeaderLatch::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// latch.start()?;
    /// let term = latch.await_leadership().await?;
    /// assert_eq!(term.fence()?, term.token());
    /// latch.close().await?;
    /// assert_eq!(term.fence(), Err(TermEnd::GivenUp));
    /// # Ok(()) }
    /// ```
    pub fn fence(&self) -> Result<Token, TermEnd> {
        if let Some(end) = self.inner.end.get() {
            return Err(*end);
        }
        match self.inner.watch.reason() {
            Some(reason) if !planted!(LeadOn) => Err(self.over(lost(reason))),
            _ => Ok(self.inner.token),
        }
    }

    /// Completes when the term is over, with the reason; never while it continues.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports an end in between.
    pub async fn ended(&self) -> TermEnd {
        tokio::select! {
            biased;
            () = self.inner.given_up.cancelled() => self.over(TermEnd::GivenUp),
            reason = self.inner.watch.lost() => self.over(lost(reason)),
        }
    }

    /// Runs `future` until it completes or the term is over, whichever is first.
    ///
    /// The future can be stopped only where it awaits: a side effect still needs
    /// [`fence`](Term::fence) and a resource that checks the token.
    ///
    /// # Errors
    /// [`TermEnd`]: the term was over before `future` completed, and `future` was dropped where it
    /// stood.
    ///
    /// # Cancel safety
    /// Dropping this future drops `future`; the term continues.
    pub async fn protect<F: Future>(&self, future: F) -> Result<F::Output, TermEnd> {
        tokio::select! {
            biased;
            end = self.ended() => Err(end),
            output = future => Ok(output),
        }
    }

    /// The requests to release leadership. None arrive unless the
    /// [latch](super::LeaderLatch::revocable) or the [selector](super::LeaderSelector::revocable)
    /// is revocable. The returned value does not keep leadership. To release leadership, close the
    /// latch, or let the work of the selector end.
    ///
    /// Curator: none; there a program can ask a leader to leave by means of its own only.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderSelector, Member};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let selector = LeaderSelector::new(&jobs, "cron", "node-1")?.revocable();
    /// let work = async |term: elderlock::Term| {
    ///     // As `elderlock revoke --service jobs cron` does.
    ///     jobs.revoke("cron").metadata("maintenance").await.expect("it is revocable");
    ///     let request = term.revocation().requested().await.expect("it leads");
    ///     assert_eq!(request.metadata.as_bytes(), b"maintenance");
    /// };
    /// selector.run_once(work).await?;
    /// # Ok(()) }
    /// ```
    pub fn revocation(&self) -> Revocation {
        self.inner.revocation.clone()
    }

    /// The token as a number for logs, without a claim that the term continues. It is higher than
    /// that of every term before.
    pub fn token(&self) -> Token {
        self.inner.token
    }

    /// The lineage that dealt the token. See [`Guard::lineage`](crate::Guard::lineage).
    pub fn lineage(&self) -> LineageId {
        self.inner.watch.lineage()
    }

    /// Notes that the term is over; the first reason stays.
    fn over(&self, end: TermEnd) -> TermEnd {
        *self.inner.end.get_or_init(|| end)
    }

    /// Notes that the term is given up, unless a loss was noted before: call [`fence`](Self::fence)
    /// first. Wakes no task: [`tell`](Self::tell) does so.
    pub(super) fn resign(&self) -> TermEnd {
        self.over(TermEnd::GivenUp)
    }

    /// Wakes the tasks that wait for the end of the term.
    pub(super) fn tell(&self) {
        self.inner.given_up.cancel();
    }
}

fn lost(reason: LostReason) -> TermEnd {
    TermEnd::Lost(Lost { reason })
}

impl PartialEq for Term {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.inner, &other.inner)
    }
}

impl Eq for Term {}

impl std::fmt::Debug for Term {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Term")
            .field("token", &self.inner.token)
            .field("end", &self.inner.end.get())
            .finish()
    }
}

/// Leadership itself. Its drop ends leadership, first for each handle of the term, then at the
/// grantor. So no other member leads before this term has ended.
pub(super) struct HeldTerm {
    term: Term,
    /// The guard is dropped after the body of `drop`.
    _guard: Guard,
}

impl HeldTerm {
    pub(super) fn new(guard: Guard) -> Self {
        let (watch, token, revocation) = (guard.watch(), guard.token(), guard.revocation());
        let inner = TermState {
            watch,
            token,
            revocation,
            end: OnceLock::new(),
            given_up: CancellationToken::new(),
        };
        HeldTerm { term: Term { inner: Arc::new(inner) }, _guard: guard }
    }

    pub(super) fn term(&self) -> &Term {
        &self.term
    }
}

impl Drop for HeldTerm {
    fn drop(&mut self) {
        let _ = self.term.fence();
        self.term.resign();
        self.term.tell();
    }
}
