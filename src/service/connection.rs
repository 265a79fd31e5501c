//! `Connection`: a member's connection to its cluster, as a stream of events.

use crate::runtime::engine::{ConnectionStatus, Engine};
use crate::runtime::planted;
use futures_util::Stream;
use futures_util::stream::unfold;
use serde::Serialize;
use tokio::sync::broadcast::Receiver;
use tokio::sync::broadcast::error::{RecvError, TryRecvError};

/// A change of a member's [`ConnectionStatus`], from [`Connection::next`]. The first event of a
/// reader has the present status.
///
/// The meaning of each event for guards, and for all that is built on them:
///
/// | event | guards | requests that wait | new requests | open objects |
/// |---|---|---|---|---|
/// | `Connected` | good | wait in the queue | answered | read and written |
/// | `Suspended` | all lost, for good | wait, and keep their positions | wait; a try is `Undecided` | show the last known value; writes wait |
/// | `Reconnected` | the old ones stay lost, new ones are good | continue; they kept their positions if the process did not change | answered | stays open if the process did not change |
/// | `Lost` | all lost, for good | end with `Expelled`, or `Left` | while it joins again they wait; `Left` if it has left | lost, for good: open it again |
///
/// Open objects are [`SharedValue`](crate::SharedValue)s and the recipes made of them, from
/// [`SharedCount`](crate::SharedCount) to [`CountDownLatch`](crate::CountDownLatch). They depend on
/// no lease, and a task that waits at one continues to wait. The presence inside a
/// [`DoubleBarrier`](crate::DoubleBarrier) is a share, and is lost as guards are.
///
/// Each guard is lost before the event arrives, never after it: [`fence`](crate::Guard::fence)
/// reads the clock.
///
/// Curator: `ConnectionState`. There `SUSPENDED` leaves locks undecided: a holder either stops on
/// its own, or continues. If it continues, it hopes that its session is back in time and the same
/// lock is still its own after `RECONNECTED`. Here `Suspended` means that from now on other members
/// may hold the lock. So its guards fail for good, even if no other member gets the lock: a holder
/// that reads the event late does no harm. Curator's time between the broken connection and the end
/// of the session is `Connected` here: no member lease has ended, nothing is in doubt.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[non_exhaustive]
pub enum ConnectionEvent {
    /// The member's lease runs. Only the first event of a stream can be this one.
    Connected,
    /// The member's lease ran out: no elder with a quorum renewed it in time.
    Suspended,
    /// The member's lease runs again: after `Suspended` as the same process, after `Lost` as a new
    /// one.
    Reconnected,
    /// The cluster continues without this member, which joins again by itself. Or the member has
    /// left, and no event follows.
    Lost,
    /// The reader was too slow: some changes are skipped, and their result is here.
    Missed {
        /// The number of skipped changes, the last one included.
        count: u64,
        /// The member's status after the skipped changes.
        status: ConnectionStatus,
    },
}

impl ConnectionEvent {
    /// Returns whether the member's lease runs after this event.
    pub fn is_connected(&self) -> bool {
        use ConnectionEvent::{Connected, Missed, Reconnected};
        matches!(self, Connected | Reconnected | Missed { status: ConnectionStatus::Connected, .. })
    }
}

impl From<ConnectionStatus> for ConnectionEvent {
    fn from(status: ConnectionStatus) -> Self {
        match status {
            ConnectionStatus::Connected => ConnectionEvent::Connected,
            ConnectionStatus::Suspended => ConnectionEvent::Suspended,
            ConnectionStatus::Lost => ConnectionEvent::Lost,
        }
    }
}

/// The connection events of a member, in order and each once, from
/// [`Member::connection`](crate::Member::connection): first the present status, then every change.
///
/// Keeps the latest 64 events for a slow reader; a reader that falls further behind gets
/// [`ConnectionEvent::Missed`]. This value does not keep the member from leaving.
///
/// Curator: `ConnectionStateListener`.
pub struct Connection {
    first: Option<ConnectionStatus>,
    changes: Receiver<ConnectionStatus>,
}

impl Connection {
    pub(super) fn new(engine: &Engine) -> Self {
        let (first, changes) = engine.subscribe_status();
        Connection { first: Some(first), changes }
    }

    /// The next event; `None` once the member has left and all events were read.
    ///
    /// # Cancel safety
    /// Dropping the future loses no event.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{ConnectionEvent, Member};
    /// let member = Member::local().await?;
    /// let mut connection = member.connection();
    /// assert_eq!(connection.next().await, Some(ConnectionEvent::Connected));
    /// member.leave().await?;
    /// assert_eq!(connection.next().await, Some(ConnectionEvent::Lost));
    /// assert_eq!(connection.next().await, None);
    /// # Ok(()) }
    /// ```
    pub async fn next(&mut self) -> Option<ConnectionEvent> {
        if let Some(first) = self.first.take() {
            return Some(first.into());
        }
        match self.changes.recv().await {
            Ok(ConnectionStatus::Connected) if !planted!(ConnectAgain) => {
                Some(ConnectionEvent::Reconnected)
            }
            Ok(status) => Some(status.into()),
            Err(RecvError::Closed) => None,
            Err(RecvError::Lagged(count)) => Some(self.skip(count)),
        }
    }

    /// The events as a [`Stream`], for the combinators of other crates.
    ///
    /// Dropping the stream, or a future of its next event, loses no event of other readers.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{ConnectionEvent, Member};
    /// use futures_util::StreamExt as _;
    /// let member = Member::local().await?;
    /// let connection = member.connection().into_stream();
    /// member.leave().await?;
    /// let events: Vec<ConnectionEvent> = connection.collect().await;
    /// assert_eq!(events, [ConnectionEvent::Connected, ConnectionEvent::Lost]);
    /// # Ok(()) }
    /// ```
    pub fn into_stream(self) -> impl Stream<Item = ConnectionEvent> + Send + Unpin {
        Box::pin(unfold(self, |mut events| async { Some((events.next().await?, events)) }))
    }

    /// Handles a reader that fell `count` changes behind the kept ones. The kept ones are outdated
    /// too, except the last.
    fn skip(&mut self, mut count: u64) -> ConnectionEvent {
        let mut status = ConnectionStatus::Lost;
        loop {
            match self.changes.try_recv() {
                Ok(next) => (count, status) = (count + 1, next),
                Err(TryRecvError::Lagged(more)) => count += more,
                Err(TryRecvError::Empty | TryRecvError::Closed) => {
                    return ConnectionEvent::Missed { count, status };
                }
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Connection").finish_non_exhaustive()
    }
}
