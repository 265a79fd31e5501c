//! How readers of events begin, and how events reach them.

use super::Engine;
use super::event_readers::{Announcement, ConnectionStatus, EventReaders};
#[cfg(feature = "http")]
use crate::protocol::Time;
use crate::runtime::application_code::call_each;
use crate::runtime::sync::{ThreadMutant, is_planted, lock, try_lock};
use tokio::sync::broadcast;

impl Engine {
    /// Subscribes to the events from now on.
    pub(crate) fn subscribe(&self) -> broadcast::Receiver<Announcement> {
        let receiver = match &*lock(&self.readers) {
            Some(readers) => readers.events.subscribe(),
            // A channel without a sender ends at once.
            None => broadcast::channel(1).1,
        };
        self.announce();
        receiver
    }

    /// Subscribes to the last events, with their times. The first reader sets how many are kept.
    #[cfg(feature = "http")]
    pub(crate) fn subscribe_last(&self, most: usize) -> broadcast::Receiver<(Time, Announcement)> {
        let receiver = match &mut *lock(&self.readers) {
            Some(readers) => {
                readers.last.get_or_insert_with(|| broadcast::Sender::new(most)).subscribe()
            }
            None => broadcast::channel(1).1,
        };
        self.announce();
        receiver
    }

    /// Returns the status that was announced last, and subscribes to the changes after it.
    pub(crate) fn subscribe_status(
        &self,
    ) -> (ConnectionStatus, broadcast::Receiver<ConnectionStatus>) {
        let mut readers = lock(&self.readers);
        // Earlier events are announced first, so that no reader begins with an outdated status.
        self.hand_out(&mut readers);
        let start = match &*readers {
            Some(readers) => (readers.told, readers.statuses.subscribe()),
            None => (ConnectionStatus::Lost, broadcast::channel(1).1),
        };
        drop(readers);
        // While this thread had the right to announce, another thread may have added an event.
        self.announce();
        start
    }

    /// Announces events to the readers, unless another thread does: then that thread looks again.
    pub(super) fn announce(&self) {
        while !lock(&self.announcements).is_empty() || self.has_unannounced_end() {
            let Some(mut readers) = try_lock(&self.readers) else { return };
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
        if let Some(readers) = readers
            && !batch.is_empty()
        {
            let now = self.now();
            call_each(batch, |changed| readers.tell(now, changed));
        }
    }

    fn has_unannounced_end(&self) -> bool {
        self.is_closed() && try_lock(&self.readers).is_some_and(|readers| readers.is_some())
    }

    /// Returns whether the engine has closed, so that every reader may know it. Keeps no lock on
    /// the phase: other locks are taken after it.
    fn is_closed(&self) -> bool {
        self.phase.borrow().closed.is_some()
    }
}
