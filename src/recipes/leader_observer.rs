//! `LeaderObserver`: reports which participant leads, without competing for leadership.

use super::leadership::{Candidacy, Participant, Participants};
use crate::protocol::{InvalidName, Token};
use crate::service::{InspectError, LockService, Unavailable};
use futures_util::Stream;
use futures_util::stream::unfold;
use std::time::Duration;

/// The default interval of questions to the grantor.
const EVERY: Duration = Duration::from_millis(100);

/// Reports which participant leads, and each change of that, without competing for leadership: for
/// load balancers and dashboards. The leader may be a [`LeaderLatch`](crate::LeaderLatch), a
/// [`LeaderSelector`](crate::LeaderSelector), or the holder of the lock of that name.
///
/// The observer asks the grantor for the leader, again and again: one question and one answer each
/// time, from this member. So it may learn of a change only one interval later, and may miss a term
/// that is shorter. Its answers may be outdated: only the leader itself knows whether [it
/// leads](crate::Term::fence).
///
/// Curator: `LeaderLatch.getLeader` of a latch that is not started, called again and again.
#[derive(Debug)]
pub struct LeaderObserver {
    candidacy: Candidacy,
    every: Duration,
    /// The last answer: the token of the term, or that there is no leader.
    told: Option<Option<Token>>,
}

impl LeaderObserver {
    /// Makes an observer of the leadership `name`, the name of the latches and selectors: 1 to 4096
    /// bytes of any value. Sends no message.
    ///
    /// # Errors
    /// [`InvalidName`]: the name is empty or too long.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, LeaderObserver, Member};
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let mut observer = LeaderObserver::new(&jobs, "cron")?;
    /// assert_eq!(observer.next().await?, None);
    /// let latch = LeaderLatch::new(&jobs, "cron", "node-1")?;
    /// latch.start()?;
    /// let term = latch.await_leadership().await?;
    /// let leader = observer.next().await?.expect("a member leads");
    /// assert_eq!((leader.id.as_str(), leader.token), ("node-1", Some(term.token())));
    /// # Ok(()) }
    /// ```
    pub fn new(service: &LockService, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let candidacy = Candidacy::new(service, name.as_ref(), b"")?;
        Ok(LeaderObserver { candidacy, every: EVERY, told: None })
    }

    /// Sets the time between two questions: 100 ms by default, and 1 ms at least.
    pub fn every(mut self, every: Duration) -> Self {
        self.every = every.max(Duration::from_millis(1));
        self
    }

    /// The leader, or `None`. The first call returns at once; later ones as soon as there is
    /// another term, or none. While the grantor cannot name the leader, or does not answer, the
    /// observer asks again.
    ///
    /// # Errors
    /// [`Unavailable::Left`](crate::Unavailable::Left),
    /// [`Unavailable::Destroyed`](crate::Unavailable::Destroyed): there are no more changes.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing: the next call returns the state at that time.
    pub async fn next(&mut self) -> Result<Option<Participant>, InspectError> {
        loop {
            match self.participants().await {
                Ok(seen) => {
                    let leader = seen.leader().cloned();
                    let token = leader.as_ref().and_then(|leader| leader.token);
                    if self.told.replace(token) != Some(token) {
                        return Ok(leader);
                    }
                }
                Err(
                    error @ (InspectError::Unavailable(Unavailable::Left)
                    | InspectError::Unavailable(Unavailable::Destroyed)),
                ) => return Err(error),
                Err(_) => {}
            }
            self.candidacy.sleep(self.every).await;
        }
    }

    /// A [`Stream`] of these leaders, for the combinators of other crates. It ends after an
    /// error.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{LeaderLatch, LeaderObserver, Member};
    /// use futures_util::StreamExt as _;
    /// let member = Member::local().await?;
    /// let jobs = member.lock_service("jobs").await?;
    /// let mut leaders = LeaderObserver::new(&jobs, "cron")?.into_stream();
    /// assert_eq!(leaders.next().await.expect("it is asked")?, None);
    /// let latch = LeaderLatch::new(&jobs, "cron", "node-1")?;
    /// latch.start()?;
    /// let leader = leaders.next().await.expect("it is asked")?.expect("a member leads");
    /// assert_eq!(leader.id.as_str(), "node-1");
    /// member.leave().await?;
    /// while let Some(Ok(_)) = leaders.next().await {}
    /// assert!(leaders.next().await.is_none());
    /// # Ok(()) }
    /// ```
    pub fn into_stream(
        self,
    ) -> impl Stream<Item = Result<Option<Participant>, InspectError>> + Send + Unpin {
        Box::pin(unfold(Some(self), |observer| async {
            let mut observer = observer?;
            let next = observer.next().await;
            let rest = next.is_ok().then_some(observer);
            Some((next, rest))
        }))
    }

    /// Asks the grantor for the leader and the candidates in the queue, as
    /// [`LeaderLatch::participants`](crate::LeaderLatch::participants) does.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    pub async fn participants(&self) -> Result<Participants, InspectError> {
        self.candidacy.participants().await
    }
}
