//! The readers of a member's events.

use super::super::clock_watch::Rates;
use crate::protocol::{Event, ProcessId, Time};
use tokio::sync::broadcast;

/// Status changes that are kept for a slow reader. Each takes a member lease or a join, so 64 of
/// them take minutes.
const STATUS_RING: usize = 64;

/// Events that are kept for a slow reader. A member has a few at a time; a reader that is a
/// thousand behind has stopped.
const EVENT_RING: usize = 1024;

/// A change that the engine announces to the application.
#[derive(Clone, Debug)]
pub(crate) enum Announcement {
    /// An event of the core.
    Event(Event),
    /// The incarnation has ended: the other members continue without it.
    Expelled,
    /// A new incarnation is ready.
    Rejoined(ProcessId),
    /// The clock of the leases runs at another rate than assumed.
    Distrusted(Rates),
    /// The clock of the leases runs as assumed again.
    Trusted,
    /// The wall clock has jumped by this many milliseconds.
    WallJump(i64),
    /// The data directory refuses the vote.
    VoteNotStored(String),
    /// The data directory has the vote again.
    VoteStored,
    /// A fault ended the member.
    Failed(&'static str),
}

/// An update for the readers.
#[allow(clippy::large_enum_variant)] // views and connection statuses are rare
pub(super) enum ReaderUpdate {
    Happened(Announcement),
    Status(ConnectionStatus),
}

/// How a member stands with its cluster, from
/// [`Member::connection_status`](crate::Member::connection_status): its member lease, in one word.
/// Each status implies the state of the member's guards.
#[derive(Clone, Copy, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub enum ConnectionStatus {
    /// The member lease runs: guards are good, requests are answered.
    Connected,
    /// The member lease ran out, and no elder with a quorum has renewed it: every guard is lost for
    /// good, requests wait. The member may be [`Connected`](ConnectionStatus::Connected) again, as
    /// the same process.
    Suspended,
    /// The cluster continues without the member, or the member has left or is leaving. Every guard
    /// is lost for good, and other members may have its former locks. Unless it has left, the
    /// member joins again by itself as a new process.
    Lost,
}

/// The readers of a member's events.
pub(super) struct EventReaders {
    pub(super) events: broadcast::Sender<Announcement>,
    /// The last events, with the times at which they were announced; `None` until a reader wants
    /// them. That reader may pause for days: the ring of all events would keep a thousand views for
    /// it.
    pub(super) last: Option<broadcast::Sender<(Time, Announcement)>>,
    pub(super) statuses: broadcast::Sender<ConnectionStatus>,
    /// The status that was announced last. A new reader begins with it.
    pub(super) told: ConnectionStatus,
}

impl EventReaders {
    pub(super) fn new() -> EventReaders {
        EventReaders {
            events: broadcast::Sender::new(EVENT_RING),
            last: None,
            statuses: broadcast::Sender::new(STATUS_RING),
            told: ConnectionStatus::Lost,
        }
    }

    pub(super) fn tell(&mut self, now: Time, changed: ReaderUpdate) {
        // Sending fails without readers, which is not a fault.
        match changed {
            ReaderUpdate::Happened(announcement) => {
                if let Some(last) = self.last.as_ref().filter(|last| last.receiver_count() > 0) {
                    let _ = last.send((now, announcement.clone()));
                }
                let _ = self.events.send(announcement);
            }
            ReaderUpdate::Status(status) => {
                self.told = status;
                let _ = self.statuses.send(status);
            }
        }
    }
}
