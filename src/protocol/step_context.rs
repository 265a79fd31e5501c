//! All that a role may read and write in one step.

use super::event::Output;
use super::id::ProcessId;
use super::limits::Limits;
use super::message::Message;
use super::time::Time;
use std::collections::VecDeque;
use std::time::Duration;

/// One step of a node, as its roles see it.
pub(crate) struct StepContext<'a> {
    /// The member's clock.
    pub(crate) now: Time,
    /// This member.
    pub(crate) me: ProcessId,
    /// The elder of the view, once there is one.
    pub(crate) elder: Option<ProcessId>,
    /// The time after which a refused request is sent again.
    pub(crate) retry: Duration,
    /// The member lease.
    pub(crate) lease: Duration,
    /// How much is kept, and sent at a time.
    pub(crate) limits: Limits,
    /// Whether the member's lease runs, so that it may grant and, unless it leaves, hold.
    pub(crate) leased: bool,
    /// A deliberate break.
    #[cfg(elderlock_mutants)]
    pub(crate) mutant: Option<super::mutant::ProtocolMutant>,
    /// The outputs of the step.
    pub(crate) out: &'a mut Vec<Output>,
    /// Messages to members, this one included; the node delivers or sends them after the role is done.
    pub(crate) outbox: VecDeque<(ProcessId, Message)>,
}

impl StepContext<'_> {
    /// Sends `message` to `to`, which may be this member itself.
    pub(crate) fn send(&mut self, to: ProcessId, message: Message) {
        self.outbox.push_back((to, message));
    }

    /// Sends `message` to the elder, if there is one.
    pub(crate) fn send_elder(&mut self, message: Message) {
        if let Some(elder) = self.elder {
            self.send(elder, message);
        }
    }
}
