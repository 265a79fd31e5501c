//! What a role may use and leave behind during one step.

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
    /// How long to wait before what was refused is asked again.
    pub(crate) retry: Duration,
    /// The member lease.
    pub(crate) lease: Duration,
    /// How much is kept, and said at a time.
    pub(crate) limits: Limits,
    /// Whether the member's lease runs: may it hold, unless it leaves, and grant?
    pub(crate) leased: bool,
    /// A deliberate break.
    #[cfg(elderlock_mutants)]
    pub(crate) mutant: Option<super::mutant::ProtocolMutant>,
    /// What is to be done outside.
    pub(crate) out: &'a mut Vec<Output>,
    /// Messages to members, this one included; the node delivers or sends them after the role is done.
    pub(crate) outbox: VecDeque<(ProcessId, Message)>,
}

impl StepContext<'_> {
    /// Says `message` to `to`, which may be this very member.
    pub(crate) fn send(&mut self, to: ProcessId, message: Message) {
        self.outbox.push_back((to, message));
    }

    /// Says `message` to the elder, if there is one.
    pub(crate) fn send_elder(&mut self, message: Message) {
        if let Some(elder) = self.elder {
            self.send(elder, message);
        }
    }
}
