//! The readers of a member's events.

use super::super::clock_watch::Rates;
use super::super::sync::{ThreadMutant, is_planted};
use super::{Engine, lock};
use crate::protocol::{Event, ProcessId};
use tokio::sync::broadcast;

/// Changes of status kept for a slow reader. Each takes a member lease or a join, so this is
/// minutes of trouble.
const STATUS_RING: usize = 64;

/// Events kept for a slow reader. A member goes through a handful at a time; a thousand is a reader
/// that stopped.
const EVENT_RING: usize = 1024;

/// A change of which the engine tells the application.
#[derive(Clone, Debug)]
pub(crate) enum Announcement {
    /// An event of the core.
    Event(Event),
    /// The incarnation is over: the others went on without it.
    Expelled,
    /// A new incarnation is ready.
    Rejoined(ProcessId),
    /// The clock of the leases runs at another rate than is assumed of it.
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
    /// The others went on without the member, or it has left or is leaving. Every guard is lost for
    /// good, and its former holds may be others' by now. Unless it has left, it joins again by
    /// itself as a new process.
    Lost,
}

/// The readers of a member's events.
pub(super) struct EventReaders {
    pub(super) events: broadcast::Sender<Announcement>,
    pub(super) statuses: broadcast::Sender<ConnectionStatus>,
    /// The status that was told last: where a new reader begins.
    pub(super) told: ConnectionStatus,
}

impl EventReaders {
    pub(super) fn new() -> EventReaders {
        EventReaders {
            events: broadcast::Sender::new(EVENT_RING),
            statuses: broadcast::Sender::new(STATUS_RING),
            told: ConnectionStatus::Lost,
        }
    }

    pub(super) fn tell(&mut self, changed: ReaderUpdate) {
        // Sending fails without readers, which is not a fault.
        match changed {
            ReaderUpdate::Happened(announcement) => _ = self.events.send(announcement),
            ReaderUpdate::Status(status) => {
                self.told = status;
                let _ = self.statuses.send(status);
            }
        }
    }
}

impl Engine {
    /// Events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Announcement> {
        let receiver = match &*lock(&self.readers) {
            Some(readers) => readers.events.subscribe(),
            // A channel without a sender ends at once.
            None => broadcast::channel(1).1,
        };
        self.announce();
        receiver
    }

    /// The status that readers of all changes know, and the changes from then on.
    pub(crate) fn subscribe_status(
        &self,
    ) -> (ConnectionStatus, broadcast::Receiver<ConnectionStatus>) {
        let mut readers = lock(&self.readers);
        // First, so that no reader begins with a status that is known to be old.
        self.hand_out(&mut readers);
        let start = match &*readers {
            Some(readers) => (readers.told, readers.statuses.subscribe()),
            None => (ConnectionStatus::Lost, broadcast::channel(1).1),
        };
        drop(readers);
        // A thread that put an event in meanwhile found the right to announce it taken.
        self.announce();
        start
    }

    /// Announces events to the readers, unless another thread does: then that thread looks again.
    pub(super) fn announce(&self) {
        while !lock(&self.announcements).is_empty() || self.has_unannounced_end() {
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
            batch.into_iter().for_each(|changed| readers.tell(changed));
        }
    }

    fn has_unannounced_end(&self) -> bool {
        self.is_closed() && self.readers.try_lock().is_ok_and(|readers| readers.is_some())
    }

    /// Returns whether every reader may know that it has left. Keeps no lock on the phase: others
    /// are taken after it.
    fn is_closed(&self) -> bool {
        self.phase.borrow().closed.is_some()
    }
}
