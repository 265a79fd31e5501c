//! Foca's requests, gathered while it runs.

use super::identity::SwimId;
use foca::{Notification, Runtime, Timer};
use std::time::Duration;

/// Collects the outputs of calls into foca, to be carried out after them.
#[derive(Default)]
pub(super) struct Effects {
    /// Packets, in order.
    pub(super) sends: Vec<(SwimId, Vec<u8>)>,
    /// Timers to start.
    pub(super) timers: Vec<(Timer<SwimId>, Duration)>,
    /// Whether the table of members may have changed, so that it must be compared.
    pub(super) changed: bool,
    /// Foca's latest statement of whether it takes part in gossip.
    pub(super) connected: Option<bool>,
    /// Whether foca took a new identity because a peer called the old one down.
    pub(super) rejoined: bool,
    /// Whether a peer called foca down and foca could not take a new identity.
    pub(super) defunct: bool,
}

impl Runtime<SwimId> for &mut Effects {
    fn notify(&mut self, notification: Notification<'_, SwimId>) {
        self.changed = true;
        match notification {
            Notification::Active => self.connected = Some(true),
            Notification::Idle => self.connected = Some(false),
            Notification::Defunct => {
                self.connected = Some(false);
                self.defunct = true;
            }
            Notification::Rejoin(_) => {
                self.connected = Some(false);
                self.rejoined = true;
            }
            Notification::MemberUp(_) | Notification::MemberDown(_) | Notification::Rename(..) => {}
        }
    }

    fn send_to(&mut self, to: SwimId, data: &[u8]) {
        self.sends.push((to, data.to_vec()));
    }

    fn submit_after(&mut self, timer: Timer<SwimId>, after: Duration) {
        // This timer is the only sign of a member that is already down when its first news arrives.
        self.changed |= matches!(timer, Timer::RemoveDown(_));
        self.timers.push((timer, after));
    }
}
