//! The state of a service at its grantor, which any member can read.

use super::command::CommandFuture;
use super::handle::ServiceHandle;
use super::shared_value::Versioned;
use crate::Unavailable;
use crate::protocol::message::{Query, QueryReply, WaiterInfo};
use crate::protocol::{Command, HolderInfo, InvalidName, LockName, Outcome};
use std::collections::VecDeque;
use std::sync::Arc;

/// A lock, or the suspension of a service, at its grantor a moment ago. From
/// [`inspect`](crate::LockService::inspect) and
/// [`inspect_suspension`](crate::LockService::inspect_suspension).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Inspection {
    /// A holder, with its time, token and metadata. Of many shares or permits one holder.
    pub holder: Option<HolderInfo>,
    /// All holders, or the first of them.
    pub holders: Vec<HolderInfo>,
    /// The number of further holders.
    pub more_holders: u64,
    /// The number of [permits](crate::LockService::permits) that the holders have together; 0 for a
    /// lock.
    pub permits: u64,
    /// The [object](crate::LockService::open) of that name, if a member has it open.
    pub value: Option<Versioned>,
    /// The number of members that have the object open.
    pub opener_count: u64,
    /// The first waiters, in the order in which they will be served;
    /// [`waiters`](crate::LockService::waiters) lists all.
    pub waiters: Vec<WaiterInfo>,
    /// The number of further waiters.
    pub more: u64,
}

/// The position of a request in its queue, from
/// [`LockFuture::position`](crate::LockFuture::position).
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct Position {
    /// The number of requests that go first; at most 16,384 are counted. For a batch, the requests
    /// in its longest queue. For a suspension, all requests that waited before it.
    pub before: u64,
    /// The number of holds that have to end first. For a suspension, the holds that have to drain.
    pub holds: u64,
    /// The member that has suspended the service, or waits to suspend it before this request, with
    /// the [reason](crate::LockBuilder::reason) as metadata.
    pub suspension: Option<WaiterInfo>,
}

/// The holds of a service, in the order of the names, from [`held`](crate::LockService::held). Each
/// lock, each share and each hold of permits is listed with its holder: at most 256 for one name.
///
/// The holds are fetched while they are read, some 256 at a time, so the list does not show one
/// instant. A lock that is held all the time is listed once. A lock that is granted or released
/// meanwhile may be listed.
#[derive(Debug)]
pub struct HeldLocks(PagedQuery<HolderInfo>);

impl HeldLocks {
    pub(super) fn new(service: Arc<ServiceHandle>) -> Self {
        HeldLocks(PagedQuery::new(service, Query::Held(None)))
    }

    /// The next hold; `None` when there are no more.
    ///
    /// # Errors
    /// [`InspectError`]. Nothing is lost: the next call continues from the same position.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let member = elderlock::Member::local().await?;
    /// let stock = member.lock_service("inventory").await?;
    /// let guards = [stock.lock("b").await?, stock.lock("a").await?];
    /// let mut held = stock.held();
    /// while let Some(holder) = held.next().await? {
    ///     println!("{:?} since {:?}", holder.name, holder.held_for);
    /// }
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Result<Option<HolderInfo>, InspectError> {
        let read = |_, seen| match seen {
            QueryReply::Held { holders, last } => {
                let after = holders.last().filter(|_| !last).and_then(|holder| holder.name.clone());
                Some((holders, after.map(|after| Query::Held(Some(after)))))
            }
            _ => None,
        };
        self.0.next(read).await
    }
}

/// The waiters for a lock, in the order in which they will be served, from
/// [`waiters`](crate::LockService::waiters). Requests to suspend the service are listed too, since
/// the waiters behind them wait for them.
///
/// The waiters are fetched as they are read, 256 at a time, so the list does not show one instant.
/// A request that waited all the time is listed once, unless the grantor was replaced meanwhile
/// after a crash. A request that came or went meanwhile may be listed.
#[derive(Debug)]
pub struct Waiters(PagedQuery<WaiterInfo>);

impl Waiters {
    pub(super) fn new(service: Arc<ServiceHandle>, name: LockName) -> Self {
        Waiters(PagedQuery::new(service, Query::Waiting(name, None)))
    }

    /// The next waiter; `None` when there are no more.
    ///
    /// # Errors
    /// [`InspectError`]. Nothing is lost: the next call continues from the same position.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<WaiterInfo>, InspectError> {
        let read = |at, seen| match (at, seen) {
            (Query::Waiting(name, _), QueryReply::Waiting { waiters, last }) => {
                Some((waiters, last.map(|last| Query::Waiting(name, Some(last)))))
            }
            _ => None,
        };
        self.0.next(read).await
    }
}

/// A list that is fetched as it is read.
struct PagedQuery<T> {
    service: Arc<ServiceHandle>,
    fetched: VecDeque<T>,
    /// The next question; `None`: there are no more.
    next: Option<Query>,
}

impl<T> PagedQuery<T> {
    fn new(service: Arc<ServiceHandle>, first: Query) -> Self {
        PagedQuery { service, fetched: VecDeque::new(), next: Some(first) }
    }

    /// `read` takes a question and its answer, and returns the entries of the answer and the next
    /// question.
    async fn next(
        &mut self,
        read: impl Fn(Query, QueryReply) -> Option<(Vec<T>, Option<Query>)>,
    ) -> Result<Option<T>, InspectError> {
        while self.fetched.is_empty()
            && let Some(at) = self.next.clone()
        {
            let seen = look(&self.service, at.clone()).await?;
            let (page, next) = read(at, seen).ok_or(InspectError::Undecided)?;
            self.fetched.extend(page);
            self.next = next;
        }
        Ok(self.fetched.pop_front())
    }
}

impl<T> std::fmt::Debug for PagedQuery<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Pages").field("next", &self.next).finish_non_exhaustive()
    }
}

/// Why a question to the grantor has no answer. Nothing is changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InspectError {
    /// The lock's name is empty or too long. Nothing was asked.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The answer is unknown at the moment: the grantor does not answer, is being replaced, or this
    /// member is cut off.
    #[error("no grantor answers at the moment; try again")]
    Undecided,
    /// The member carries out no such call at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

impl From<Outcome> for InspectError {
    fn from(outcome: Outcome) -> Self {
        Unavailable::of(&outcome).map_or(InspectError::Undecided, InspectError::from)
    }
}

/// Why [`Member::service_exists`](crate::Member::service_exists) has no answer. Nothing is changed.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ServiceExistsError {
    /// The service's name is empty or too long. Nothing was asked.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The answer is unknown at the moment. There is no elder with a quorum, it has not heard all
    /// members yet, or this member is cut off.
    #[error("no elder can tell at the moment whether the service exists; try again")]
    Undecided,
    /// The member carries out no such call at present.
    #[error(transparent)]
    Unavailable(#[from] Unavailable),
}

/// Asks the elder whether the service exists.
pub(super) async fn exists(service: &Arc<ServiceHandle>) -> Result<bool, ServiceExistsError> {
    match look(service, Query::Service).await {
        Ok(QueryReply::Service(exists)) => Ok(exists),
        Ok(_) => Err(ServiceExistsError::Undecided),
        Err(InspectError::Unavailable(unavailable)) => Err(unavailable.into()),
        Err(_) => Err(ServiceExistsError::Undecided),
    }
}

/// Asks the grantor a question. For the question whether the service exists, asks the elder.
pub(super) async fn look(
    service: &Arc<ServiceHandle>,
    at: Query,
) -> Result<QueryReply, InspectError> {
    let name = service.name.clone();
    match CommandFuture::new(service.clone(), move |request| Command::Query {
        request,
        service: name,
        at,
    })
    .await
    {
        Err(Outcome::QueryReply(seen)) => Ok(seen),
        Err(outcome) => Err(InspectError::from(outcome)),
        Ok(_) => unreachable!("a question is not granted"),
    }
}
