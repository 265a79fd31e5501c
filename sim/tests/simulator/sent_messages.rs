//! The messages that members send each other, in order.

use elderlock_sim::World;
use elderlock_sim::kind::kind;
use std::sync::{Arc, Mutex};

/// The sending site, the receiving site and the kind of a message.
type SentMessage = (usize, usize, &'static str);

/// The messages of some kinds since the last look.
pub(crate) struct SentMessages(Arc<Mutex<Vec<SentMessage>>>);

impl SentMessages {
    /// Notes each message of these kinds from now on.
    pub(crate) fn note(w: &mut World, kinds: &'static [&'static str]) -> SentMessages {
        let sent = Arc::new(Mutex::new(Vec::new()));
        let noted = sent.clone();
        w.hold(move |flight| {
            let kind = kind(flight.packet);
            if kinds.contains(&kind) {
                noted.lock().expect("no panic").push((flight.from, flight.to, kind));
            }
            false
        });
        SentMessages(sent)
    }

    /// Takes the messages since the last look.
    pub(crate) fn take(&self) -> Vec<SentMessage> {
        std::mem::take(&mut *self.0.lock().expect("no panic"))
    }
}
