//! `LeaderSelector`: a future that runs work while its caller leads.

use super::latest_hold::{LatestHold, TrackedHold};
use super::leadership::{Candidacy, CandidacyEnd, Participant, Participants, Term, TermEnd};
use crate::protocol::{InvalidName, Token};
use crate::runtime::planted;
use crate::service::{InspectError, InvalidLease, LockService, Unavailable};
use std::time::Duration;

/// Runs work while it leads. Of all selectors and [latches](super::LeaderLatch) of one name, in all
/// members, one leads.
///
/// [`run_once`](LeaderSelector::run_once) queues, runs the work for one term and releases
/// leadership; [`run`](LeaderSelector::run) does so again and again. The work is dropped the moment
/// that leadership is lost or [interrupted](LeaderSelector::interrupt), and always before
/// leadership is released. The work can be stopped only where it awaits: each side effect still
/// needs the [token](Term::fence) of the term, and a resource that checks it.
///
/// There is nothing to start or to close: dropping the running future releases the position in the
/// queue, or leadership.
///
/// Curator: `LeaderSelector`, whose work runs in a thread and must notice by itself that the term
/// is over.
pub struct LeaderSelector {
    candidacy: Candidacy,
    /// The latest term. It knows by itself whether it continues.
    current: LatestHold<Term>,
}

impl TrackedHold for Term {
    fn token(&self) -> Token {
        Term::token(self)
    }

    fn is_over(&self) -> bool {
        self.fence().is_err()
    }
}

impl LeaderSelector {
    /// A selector of `name`, 1 to 4096 bytes of any value: the same for all selectors that compete
    /// with each other. Other members see it as `id`, up to 4096 bytes.
    ///
    /// # Errors
    /// [`InvalidName`]: the name is empty, or the name or the id is too long.
    ///
    /// Curator: `LeaderSelector(client, leaderPath, listener)`.
    pub fn new(
        service: &LockService,
        name: impl AsRef<[u8]>,
        id: impl AsRef<[u8]>,
    ) -> Result<Self, InvalidName> {
        let candidacy = Candidacy::new(service, name.as_ref(), id.as_ref())?;
        Ok(LeaderSelector { candidacy, current: LatestHold::default() })
    }

    /// Limits each term of the selector to `lease`. Then the work is dropped and the next waiter
    /// leads. The lease is above zero and at most ten years; [`run`](LeaderSelector::run) and
    /// [`run_once`](LeaderSelector::run_once) refuse any other. Without a lease, a term lasts until
    /// the work is done or leadership is lost.
    pub fn lease(mut self, lease: Duration) -> Self {
        self.candidacy.lease = Some(lease);
        self
    }

    /// Lets other members [request leadership back](LockService::revoke), by the name of the
    /// selector, and [revoke it by force](LockService::force_revoke) once the work has been told:
    /// see [`LockBuilder::revocable`](crate::LockBuilder::revocable). Let the work listen to the
    /// term's [`revocation`](Term::revocation), and end as soon as that is safe. When leadership is
    /// revoked by force, the work is dropped where it stands.
    ///
    /// Curator: none; only mutexes are `Revocable`.
    pub fn revocable(mut self) -> Self {
        self.candidacy.revocable = true;
        self
    }

    /// Queues until the selector leads, runs `work` with the term, releases leadership, and returns
    /// the result of the work.
    ///
    /// If the same selector runs more than once at a time, each run queues for itself. The call
    /// takes no limit, since it would look like a limit of the work: see
    /// [`await_leadership`](crate::LeaderLatch::await_leadership) for a limited wait.
    ///
    /// # Errors
    /// [`SelectorError::Ended`]: the term was over before the work was done, and the work was
    /// dropped where it stood. Others: the selector never led. In every case nothing is held and
    /// nothing is queued.
    ///
    /// # Cancel safety
    /// If the future is dropped, the work is dropped where it stands. Then the position in the
    /// queue or leadership is released.
    ///
    /// Curator: `LeaderSelector.start` without `autoRequeue`; calling it again is `requeue`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderSelector, Member};
    /// let member = Member::local().await?;
    /// let selector = LeaderSelector::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// let token = selector.run_once(|term| async move { term.fence() }).await??;
    /// println!("led with token {token}");
    /// assert!(!selector.has_leadership());
    /// # Ok(()) }
    /// ```
    pub async fn run_once<W, F>(&self, work: W) -> Result<F::Output, SelectorError>
    where
        W: FnOnce(Term) -> F,
        F: Future,
    {
        self.candidacy.check()?;
        let tenure = self.candidacy.win(self.candidacy.queue()).await?;
        let term = tenure.term().clone();
        self.current.note(term.clone());
        planted!(WorkOn => return Ok(work(term.clone()).await));
        // In whatever way this ends, the work is dropped before the tenure, which is declared
        // before it.
        Ok(term.protect(work(term.clone())).await?)
    }

    /// Runs `work` each time that the selector leads, and queues again after that: the work was
    /// done, or the term was over before. Returns only when the selector can never lead again.
    ///
    /// # Errors
    /// The returned error is the reason: never [`SelectorError::Ended`]. Nothing is held and
    /// nothing is queued.
    ///
    /// # Cancel safety
    /// As for [`run_once`](LeaderSelector::run_once).
    ///
    /// Curator: `LeaderSelector.autoRequeue` and `start`; dropping this is `close`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderSelector, Member, SelectorError};
    /// let member = Member::local().await?;
    /// let selector = LeaderSelector::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// let mut terms = 0;
    /// let over = selector
    ///     .run(|_term| {
    ///         terms += 1;
    ///         let (member, last) = (member.clone(), terms == 3);
    ///         async move {
    ///             if last {
    ///                 member.leave().await.unwrap();
    ///             }
    ///         }
    ///     })
    ///     .await;
    /// assert_eq!(over, SelectorError::Left);
    /// # Ok(()) }
    /// ```
    pub async fn run<W, F>(&self, mut work: W) -> SelectorError
    where
        W: FnMut(Term) -> F,
        F: Future<Output = ()>,
    {
        loop {
            match self.run_once(&mut work).await {
                Ok(()) if planted!(StandOnce) => std::future::pending().await,
                Err(error) if planted!(EndWithTerm) => return error,
                Ok(()) | Err(SelectorError::Ended(_)) => {}
                Err(error) => return error,
            }
            // A selector that is alone leads again at once: work without an await must not keep the
            // thread for itself.
            tokio::task::yield_now().await;
        }
    }

    /// Ends the present term: the work is dropped at its next await, and the next waiter leads.
    /// Returns whether the selector led.
    ///
    /// Curator: `LeaderSelector.interruptLeadership`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderSelector, Member, SelectorError, TermEnd};
    /// let member = Member::local().await?;
    /// let selector = LeaderSelector::new(&member.lock_service("jobs").await?, "cron", "node-1")?;
    /// assert!(!selector.interrupt());
    /// let work = async |_term| {
    ///     assert!(selector.interrupt());
    ///     std::future::pending::<()>().await
    /// };
    /// assert_eq!(selector.run_once(work).await, Err(SelectorError::Ended(TermEnd::GivenUp)));
    /// # Ok(()) }
    /// ```
    pub fn interrupt(&self) -> bool {
        let Some(term) = self.term() else { return false };
        let given_up = term.resign() == TermEnd::GivenUp;
        term.tell();
        given_up
    }

    /// Returns whether the selector leads at this instant.
    ///
    /// Curator: `LeaderSelector.hasLeadership`.
    pub fn has_leadership(&self) -> bool {
        self.term().is_some()
    }

    /// The term, if the selector leads at this instant by its clock. Cheap: no message.
    pub fn term(&self) -> Option<Term> {
        self.current.get()
    }

    /// Asks the grantor for the leader and the candidates in the queue. One round trip.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `LeaderSelector.getParticipants`.
    pub async fn participants(&self) -> Result<Participants, InspectError> {
        self.candidacy.participants().await
    }

    /// Asks the grantor for the leader. `None`: there is none at that moment.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// Curator: `LeaderSelector.getLeader`.
    pub async fn leader(&self) -> Result<Option<Participant>, InspectError> {
        Ok(self.participants().await?.leader().cloned())
    }

    /// The id that other members see.
    ///
    /// Curator: `LeaderSelector.getId`.
    pub fn id(&self) -> String {
        self.candidacy.id()
    }
}

impl std::fmt::Debug for LeaderSelector {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("LeaderSelector")
            .field("name", &self.candidacy.name().escape_ascii().to_string())
            .field("id", &self.id())
            .field("term", &self.term())
            .finish_non_exhaustive()
    }
}

/// Why a selector has no result of its work. In every case nothing is held and nothing is queued.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SelectorError {
    /// The selector's [lease](LeaderSelector::lease) is out of range. Nothing was asked.
    #[error(transparent)]
    InvalidLease(#[from] InvalidLease),
    /// The term was over before the work was done: the work was dropped where it stood. Run it
    /// again to compete for leadership again.
    #[error(transparent)]
    Ended(#[from] TermEnd),
    /// The service was destroyed at this member. Get a new handle from the member.
    #[error("{}", Unavailable::Destroyed)]
    Destroyed,
    /// The member has left, for good: join as a new member.
    #[error("{}", Unavailable::Left)]
    Left,
}

impl From<CandidacyEnd> for SelectorError {
    fn from(end: CandidacyEnd) -> Self {
        match end {
            CandidacyEnd::Destroyed => SelectorError::Destroyed,
            CandidacyEnd::Left => SelectorError::Left,
        }
    }
}
