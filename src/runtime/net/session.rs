//! Holding a lock through a member, without joining.
//!
//! The member holds the lock for the program, and answers for how long it is surely held, counted
//! from the program's question. So the program's belief ends first, also if the member, the
//! connection or the program ends: docs/protocol/sessions.md.

use super::operator::{self, OrderConnection};
#[cfg(feature = "secure")]
use super::query::query_status_with;
use super::query::{LIMIT, PAUSE, QueryError, query_status};
use crate::protocol::{LineageId, Status, Time, Token};
use crate::runtime::clock;
#[cfg(feature = "secure")]
use crate::wire::secure::Keyring;
use crate::wire::{Order, OrderReport, SessionMessage, SessionRequest, SessionStop};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::{mpsc, oneshot, watch};

/// The number of questions within the time for which the lock is surely held.
const QUESTIONS: u32 = 4;
/// The shortest time between two questions.
const SHORTEST: Duration = Duration::from_millis(20);
/// The shortest time for which a release waits for its confirmation.
const RELEASE: Duration = Duration::from_secs(1);

/// Holds a lock through the member at `addr` (`host:port`) of cluster `cluster`, which must [serve
/// sessions](crate::MemberBuilder::serve_sessions). For a cluster without a key, and a member on
/// this host. Joins nothing. Completes when the lock is held, or will not be.
///
/// # Errors
/// [`SessionError`]; nothing is held, or the member releases it again. A member that hangs ends the
/// request with [`QueryError::TimedOut`] after five seconds without a word from it, also while the
/// request waits. A request with a [wait limit](SessionRequest::wait) ends five seconds after it at
/// the latest.
///
/// # Cancel safety
/// If the future is dropped, the connection ends, and the member stops waiting, or releases the
/// lock.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{LockName, Member, ServiceName, SessionRequest, hold_through};
/// use std::time::Duration;
/// let member = Member::builder("shop").bind("127.0.0.1:0").found().serve_sessions(true);
/// let member = member.join().await?;
///
/// // In a program that is not a member:
/// let request = SessionRequest::new(ServiceName::new("stock")?, LockName::new(b"sku-42")?);
/// let request = request.wait(Duration::from_secs(5));
/// let guard = hold_through(&member.addr().to_string(), "shop", request).await?;
/// let token = guard.fence()?;
/// assert!(token.as_i64() > 0);
/// guard.release().await?;
/// # member.leave().await?;
/// # Ok(()) }
/// ```
pub async fn hold_through(
    addr: &str,
    cluster: &str,
    request: SessionRequest,
) -> Result<SessionGuard, SessionError> {
    let wait = request.wait;
    let connection = operator::open(addr, cluster, Order::Lock(request)).await?;
    SessionGuard::begin(connection, wait, || query_status(addr, cluster)).await
}

/// Like [`hold_through`], for a cluster with a key. The first key of the ring is a cluster key, or
/// an operator key that is [derived](crate::ClusterKey::derive) from it.
///
/// # Errors
/// See [`hold_through`].
///
/// # Cancel safety
/// See [`hold_through`].
#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub async fn hold_through_with(
    addr: &str,
    cluster: &str,
    ring: &Keyring,
    request: SessionRequest,
) -> Result<SessionGuard, SessionError> {
    let wait = request.wait;
    let connection = operator::open_with(addr, cluster, ring, Order::Lock(request)).await?;
    SessionGuard::begin(connection, wait, || query_status_with(addr, cluster, ring)).await
}

/// Why a lock is not held through a member.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionError {
    /// The member could not be asked, or did not finish its answer.
    #[error(transparent)]
    Query(#[from] QueryError),
    /// The lock was not granted, for example within the limit.
    #[error("not granted: {reason}")]
    NotGranted {
        /// The member's reason.
        reason: String,
    },
    /// The member leaves its cluster. Another one may grant the lock.
    #[error("not granted: the member leaves its cluster: ask another one")]
    MemberLeaves,
    /// The member joins its cluster. Another one may grant the lock, and this one later.
    #[error("not granted: {}", OrderReport::JOINS)]
    MemberJoins,
    /// The member holds locks for as many programs as it may. Another one may grant the lock, and
    /// this one later.
    #[error("not granted: {}", OrderReport::FULL)]
    MemberFull,
    /// The member does not hold locks for programs, or not for those of other hosts.
    #[error("{reason}")]
    NotServed {
        /// The member's reason, with the remedy.
        reason: String,
    },
}

/// Why a lock that is held through a member is over. Treat it as lost.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SessionEnd {
    /// The member did not answer in time, or the connection has failed.
    #[error("the member did not confirm the lock in time: {0}")]
    Unconfirmed(String),
    /// The member has lost the lock, for this reason.
    #[error("{0}")]
    Lost(String),
    /// The member leaves its cluster. The lock is held until the time that is left.
    #[error("the member leaves its cluster")]
    MemberLeaves,
}

/// A lock that a member holds for this program.
///
/// A task in the background asks the member several times within each time for which the lock is
/// surely held. Call [`fence`](SessionGuard::fence) before each side effect, and pass its token to
/// the resource. [`release().await`](SessionGuard::release) is the documented way to release the
/// lock. The drop of the guard releases it as well, unless the runtime has ended.
#[must_use = "the lock is released as soon as the guard is dropped"]
#[derive(Debug)]
pub struct SessionGuard {
    token: Token,
    lineage: LineageId,
    /// The end of the belief, by the clock of this machine; zero when it is over.
    until: Arc<AtomicU64>,
    end: watch::Receiver<Option<SessionEnd>>,
    release: mpsc::Sender<EndRequest>,
}

/// The last message of a session, and the way for the answer to it.
type EndRequest = (SessionMessage, oneshot::Sender<Result<(), SessionEnd>>);

/// Waits for the answer to the request, which may take long. The connection to a member that hangs
/// does not end. So the member is asked now and then whether it is still there, and must send
/// something within [`LIMIT`]. It is not asked at once: a question on a connection that the member
/// has closed might destroy the reason before it is read.
/// A member of an older release does not answer that question. So `probe` asks for its status as
/// well, until an answer to the question has come.
async fn answer_while_waiting<F>(
    connection: &mut OrderConnection,
    questions: &mut u64,
    probe: impl Fn() -> F,
) -> Result<OrderReport, QueryError>
where
    F: Future<Output = Result<Status, QueryError>>,
{
    let mut answers = false;
    let is_there = async || {
        let status = tokio::time::timeout(LIMIT - PAUSE, probe()).await;
        matches!(status, Ok(Ok(_) | Err(QueryError::Refused { .. })))
    };
    loop {
        let mut heard = connection.report_within(PAUSE).await;
        let mut is_up = false;
        if let Err(QueryError::TimedOut { .. }) = heard {
            // If the connection has ended, the next report shows it.
            let _ = connection.send(SessionMessage::KeepAlive(*questions)).await;
            *questions += 1;
            let mut answer = pin!(connection.report_within(LIMIT - PAUSE));
            heard = tokio::select! {
                biased;
                heard = &mut answer => heard,
                there = is_there(), if !answers => {
                    is_up = there;
                    answer.await
                }
            };
        }
        match heard {
            Ok(OrderReport::Alive { .. }) => answers = true,
            Err(QueryError::TimedOut { .. }) if is_up => {}
            Err(QueryError::TimedOut { .. }) => return Err(connection.timed_out(LIMIT)),
            heard => return heard,
        }
    }
}

impl SessionGuard {
    /// `wait`: the limit of the request. After it the member has the time of a query to answer.
    async fn begin<F>(
        mut connection: OrderConnection,
        wait: Option<Duration>,
        probe: impl Fn() -> F,
    ) -> Result<SessionGuard, SessionError>
    where
        F: Future<Output = Result<Status, QueryError>>,
    {
        let mut questions = 0;
        let limit = wait.map_or(Duration::MAX, |wait| wait.saturating_add(LIMIT));
        let answer = answer_while_waiting(&mut connection, &mut questions, probe);
        let answered = tokio::time::timeout(limit, answer).await;
        let answered = answered.unwrap_or_else(|_| Err(connection.timed_out(limit)));
        let (token, lineage) = match answered? {
            OrderReport::Granted { token, lineage } => (token, lineage),
            OrderReport::NotGranted(reason) => return Err(SessionError::NotGranted { reason }),
            OrderReport::Failed(reason) if reason == OrderReport::JOINS => {
                return Err(SessionError::MemberJoins);
            }
            OrderReport::Failed(reason) if reason == OrderReport::FULL => {
                return Err(SessionError::MemberFull);
            }
            OrderReport::Failed(reason) => return Err(SessionError::NotServed { reason }),
            OrderReport::Leaves => return Err(SessionError::MemberLeaves),
            _ => {
                let reason = "it answered something else".into();
                return Err(QueryError::Garbled { reason }.into());
            }
        };
        // The wait for the grant may have been long. So the grant does not show how much time is
        // left, and the answer to the first question does. The belief ignores a late answer to a
        // question of the wait: it never asked that number.
        let mut session = SessionTask { connection, belief: SessionBelief::new(questions) };
        session.ask().await?;
        let mut is_held = false;
        while !is_held {
            match session.connection.report_within(LIMIT).await? {
                OrderReport::Alive { number, held_for } => {
                    is_held = session.belief.on_alive(number, held_for);
                }
                OrderReport::Lost(reason) | OrderReport::Failed(reason) => {
                    return Err(SessionError::NotGranted { reason });
                }
                OrderReport::Leaves => return Err(SessionError::MemberLeaves),
                _ => {}
            }
        }
        let (ended, end) = watch::channel(None);
        let (release, released) = mpsc::channel(1);
        let until = session.belief.until.clone();
        tokio::spawn(session.run(ended, released));
        Ok(SessionGuard { token, lineage, until, end, release })
    }

    /// The fencing token, if the lock is held at this instant.
    ///
    /// # Errors
    /// [`SessionEnd`]; nothing is changed by asking. Once it has failed it fails for good, unless
    /// the task in the background was late.
    pub fn fence(&self) -> Result<Token, SessionEnd> {
        if !self.left().is_zero() {
            return Ok(self.token);
        }
        let end = self.end.borrow().clone();
        Err(end.unwrap_or_else(|| SessionEnd::Unconfirmed("the time is over".into())))
    }

    /// The token, even if the lock is lost.
    pub fn token(&self) -> Token {
        self.token
    }

    /// The lineage that dealt the token: see [`Guard::lineage`](crate::Guard::lineage).
    pub fn lineage(&self) -> LineageId {
        self.lineage
    }

    /// Returns how long the lock is surely held if no further answer comes from the member. Zero
    /// when it is lost.
    pub fn left(&self) -> Duration {
        // The end is read before the clock: a pause in between can only make the answer stricter.
        let until = Time::from_nanos(self.until.load(Ordering::Acquire));
        until.since(clock::now())
    }

    /// Completes when the lock is lost, or will be soon because the member leaves;
    /// [`left`](SessionGuard::left) returns how much time remains.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing; the next call reports a loss in between.
    pub async fn ended(&self) -> SessionEnd {
        let mut end = self.end.clone();
        match end.wait_for(Option::is_some).await {
            Ok(end) => end.clone(),
            Err(_) => None,
        }
        .unwrap_or_else(|| SessionEnd::Unconfirmed("the runtime has ended".into()))
    }

    /// Releases the lock, and waits until the member has released it.
    ///
    /// # Errors
    /// [`SessionEnd`]: the lock was lost before, or the member did not confirm the release in time.
    /// That is the time for which the lock was surely held, but at least a second. The member
    /// releases the lock at the end of the session in any case.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues.
    pub async fn release(self) -> Result<(), SessionEnd> {
        self.end_with(SessionMessage::Release).await
    }

    /// Releases the lock of a program that has stopped before the lock was lost, and waits until
    /// the member has released it, as [`release`](SessionGuard::release) does. The member logs and
    /// counts the lock as lost for this cause. If the lock was lost before, this changes nothing.
    ///
    /// # Cancel safety
    /// If the future is dropped, the release continues.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use elderlock::{LockName, Member, ServiceName, SessionRequest, SessionStop, hold_through};
    /// # use std::time::Duration;
    /// # let member = Member::builder("shop").bind("127.0.0.1:0").found().serve_sessions(true);
    /// # let member = member.join().await?;
    /// # let request = SessionRequest::new(ServiceName::new("stock")?, LockName::new(b"sku-42")?);
    /// let request = request.lease(Duration::from_secs(2));
    /// let guard = hold_through(&member.addr().to_string(), "shop", request).await?;
    /// // The work does not end in time, so it is cancelled.
    /// guard.stop(SessionStop::LeaseEnds).await;
    /// # member.leave().await?;
    /// # Ok(()) }
    /// ```
    pub async fn stop(self, cause: SessionStop) {
        // Each answer is a reason why the lock is over.
        let _ = self.end_with(SessionMessage::Stopped(cause)).await;
    }

    async fn end_with(self, message: SessionMessage) -> Result<(), SessionEnd> {
        let (answer, answered) = oneshot::channel();
        if self.release.send((message, answer)).await.is_ok()
            && let Ok(released) = answered.await
        {
            return released;
        }
        Err(self.ended().await)
    }
}

/// The program's belief in its lock: the program asks, and the member answers with a time.
pub(crate) struct SessionBelief {
    /// The end of the belief, by the clock of this machine; zero when there is none.
    until: Arc<AtomicU64>,
    /// The questions without an answer, with the time of each.
    asked: Vec<(u64, Time)>,
    next: u64,
    /// The time for which the lock was surely held by the last answer.
    held_for: Duration,
}

impl SessionBelief {
    /// Begins without a belief. `first`: the number of the first question.
    pub(crate) fn new(first: u64) -> SessionBelief {
        let until = Arc::new(AtomicU64::new(0));
        SessionBelief { until, asked: Vec::new(), next: first, held_for: Duration::ZERO }
    }

    /// Notes a question that is sent at `now` or later, and returns its number. The time in the
    /// answer counts from `now`.
    pub(crate) fn ask(&mut self, now: Time) -> u64 {
        let number = self.next;
        self.next += 1;
        self.asked.push((number, now));
        number
    }

    /// Takes an answer, at any time after its question. Returns whether the lock is held for longer
    /// than was known. A shorter answer does not shorten the belief, since the member keeps to
    /// both.
    pub(crate) fn on_alive(&mut self, number: u64, held_for: Duration) -> bool {
        let Some(index) = self.asked.iter().position(|(asked, _)| *asked == number) else {
            return false;
        };
        let (_, asked) = self.asked[index];
        self.asked.drain(..=index);
        self.held_for = held_for;
        let until = (asked + held_for).as_nanos();
        self.until.fetch_max(until, Ordering::AcqRel) < until
    }

    /// The end of the belief; zero when there is none.
    pub(crate) fn until(&self) -> Time {
        Time::from_nanos(self.until.load(Ordering::Acquire))
    }

    /// Ends the belief at once.
    fn end(&self) {
        self.until.store(0, Ordering::Release);
    }
}

/// The background task of a guard.
struct SessionTask {
    connection: OrderConnection,
    belief: SessionBelief,
}

impl SessionTask {
    async fn ask(&mut self) -> Result<(), QueryError> {
        // The clock is read before the question leaves.
        let number = self.belief.ask(clock::now());
        self.connection.send(SessionMessage::KeepAlive(number)).await
    }

    async fn run(
        mut self,
        ended: watch::Sender<Option<SessionEnd>>,
        mut released: mpsc::Receiver<EndRequest>,
    ) {
        let mut leaves = false;
        let end = loop {
            let pause = (self.belief.held_for / QUESTIONS).max(SHORTEST);
            let left = self.belief.until().since(clock::now());
            if left.is_zero() {
                break SessionEnd::Unconfirmed("the time is over".into());
            }
            tokio::select! {
                report = self.connection.report() => match report {
                    Ok(OrderReport::Alive { number, held_for }) => {
                        self.belief.on_alive(number, held_for);
                    }
                    Ok(OrderReport::Leaves) => {
                        leaves = true;
                        ended.send_replace(Some(SessionEnd::MemberLeaves));
                    }
                    Ok(OrderReport::Lost(reason) | OrderReport::Failed(reason)) => {
                        self.belief.end();
                        break SessionEnd::Lost(reason);
                    }
                    Ok(_) => {}
                    Err(error) => {
                        // The member holds the lock until the end in its last answer. So the belief
                        // may continue until then, and the program has time to stop.
                        break SessionEnd::Unconfirmed(error.to_string());
                    }
                },
                request = released.recv() => {
                    self.belief.end();
                    // A dropped guard releases.
                    let (message, answer) = request.map_or(
                        (SessionMessage::Release, None),
                        |(message, answer)| (message, Some(answer)),
                    );
                    // A member that hangs holds the lock for no longer than it has answered.
                    let limit = left.max(RELEASE);
                    let result = match tokio::time::timeout(limit, self.end(message)).await {
                        Ok(result) => result,
                        Err(_) => Err(SessionEnd::Unconfirmed("no answer to the release".into())),
                    };
                    if let Some(answer) = answer {
                        let _ = answer.send(result);
                    }
                    break SessionEnd::Lost("it was released".into());
                }
                () = tokio::time::sleep(pause.min(left)), if !leaves => {
                    if let Err(error) = self.ask().await {
                        break SessionEnd::Unconfirmed(error.to_string());
                    }
                }
                () = tokio::time::sleep(left), if leaves => {}
            }
        };
        ended.send_if_modified(|known| {
            let is_new = known.is_none();
            known.get_or_insert(end);
            is_new
        });
        // A release after the end is answered with the reason of the end.
        if let Some((_, answer)) = released.recv().await {
            let known = ended.borrow().clone();
            let _ = answer.send(known.map_or(Ok(()), Err));
        }
    }

    /// Sends the last message of the session, and waits for the answer.
    async fn end(&mut self, message: SessionMessage) -> Result<(), SessionEnd> {
        let lost = |error: QueryError| SessionEnd::Unconfirmed(error.to_string());
        self.connection.send(message).await.map_err(lost)?;
        loop {
            match self.connection.report().await.map_err(lost)? {
                OrderReport::Done { .. } => return Ok(()),
                OrderReport::Lost(reason) | OrderReport::Failed(reason) => {
                    return Err(SessionEnd::Lost(reason));
                }
                _ => {}
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(millis: u64) -> Duration {
        Duration::from_millis(millis)
    }

    fn at(millis: u64) -> Time {
        Time::ZERO + ms(millis)
    }

    #[test]
    fn a_belief_counts_from_its_question_however_late_the_answer_is() {
        let mut belief = SessionBelief::new(7);
        let [first, second] = [1_000, 4_000].map(|asked| belief.ask(at(asked)));
        assert_eq!((first, second), (7, 8));
        assert_eq!(belief.until(), Time::ZERO, "a question alone begins no belief");
        // The time of the first answer is over when the answer arrives.
        assert!(belief.on_alive(first, ms(500)));
        assert_eq!(belief.until(), at(1_500));
        assert!(belief.on_alive(second, ms(5_000)));
        assert_eq!(belief.until(), at(9_000));
        assert_eq!(belief.held_for, ms(5_000), "the next questions follow by this span");
    }

    #[test]
    fn a_shorter_answer_takes_no_belief_back() {
        let mut belief = SessionBelief::new(0);
        let [first, second, third, last] = [0, 100, 200, 300].map(|asked| belief.ask(at(asked)));
        assert!(belief.on_alive(first, ms(1_000)));
        assert!(!belief.on_alive(second, ms(10)), "that is over before");
        assert_eq!(belief.until(), at(1_000));
        assert!(!belief.on_alive(third, ms(800)), "that is over at the same time");
        assert_eq!(belief.until(), at(1_000));
        assert!(belief.on_alive(last, ms(1_000)));
        assert_eq!(belief.until(), at(1_300));
        belief.end();
        assert_eq!(belief.until(), Time::ZERO);
    }

    #[test]
    fn an_answer_counts_once_and_only_for_a_question_of_the_belief() {
        let mut belief = SessionBelief::new(1);
        let [first, second, third] = [100, 200, 300].map(|asked| belief.ask(at(asked)));
        assert!(!belief.on_alive(0, ms(9_000)), "the wait asked that");
        assert!(!belief.on_alive(third + 1, ms(9_000)), "no question had that number");
        assert_eq!(belief.until(), Time::ZERO);
        assert!(belief.on_alive(second, ms(1_000)));
        assert!(!belief.on_alive(second, ms(9_000)), "the same answer again");
        assert!(!belief.on_alive(first, ms(9_000)), "a later question is answered already");
        assert_eq!(belief.until(), at(1_200));
        assert!(belief.on_alive(third, ms(1_000)));
        assert_eq!(belief.until(), at(1_300));
    }
}
