//! Everything that the roles of the locks may read and write in one step.

use super::cluster::elder::Elder;
use super::cluster::view::View;
use super::event::Output;
use super::id::{Epoch, MemberInfo, ProcessId, ServiceName, Token};
use super::limits::Limits;
use super::message::Message;
use super::time::Time;
use super::timing::Timing;
use std::collections::{BTreeSet, VecDeque};
use std::ops::Deref;
use std::sync::Arc;

/// The capacity, in messages, that a list of messages keeps between steps.
pub(crate) const KEPT_MESSAGES: usize = 64;

/// A member's standing in its cluster: everything that its locks need to know of the membership.
#[derive(Clone, Copy)]
pub(crate) struct Standing<'a> {
    /// This member's process.
    pub(crate) me: ProcessId,
    /// This member, with its address.
    pub(crate) info: &'a MemberInfo,
    /// The view that the member is in, or was in last.
    pub(crate) view: Option<&'a Arc<View>>,
    /// The elder of the view, once there is one.
    pub(crate) elder: Option<ProcessId>,
    /// The times of the view.
    pub(crate) timing: &'a Timing,
    /// The limits of the state and of each message.
    pub(crate) limits: &'a Limits,
    /// Whether an operator may end a hold of this member that is not revocable.
    pub(crate) forced_revokes: bool,
    /// Whether the member's lease runs, so that it may grant and, unless it leaves, hold.
    pub(crate) leased: bool,
    /// The work of the elder, if this member is the elder.
    pub(crate) authority: Option<&'a Elder>,
    /// Whether this process is a member and is not about to leave.
    pub(crate) is_member: bool,
    /// The processes that a hint calls unreachable.
    pub(crate) suspected: &'a BTreeSet<ProcessId>,
    /// A planted break.
    #[cfg(elderlock_mutants)]
    pub(crate) mutant: Option<super::mutant::ProtocolMutant>,
}

/// One step of a node, as the roles of its locks see it.
pub(crate) struct StepContext<'a> {
    /// The member's clock.
    pub(crate) now: Time,
    /// The membership; the step dereferences to it.
    pub(crate) standing: Standing<'a>,
    /// The outputs of the step.
    pub(crate) out: &'a mut Vec<Output>,
    /// Messages to members, this one included. The node delivers or sends them after the role is
    /// done.
    pub(crate) outbox: VecDeque<(ProcessId, Message)>,
    /// Services whose grantors leave work for the next step.
    pub(crate) unfinished: Vec<ServiceName>,
}

impl<'a> Deref for StepContext<'a> {
    type Target = Standing<'a>;

    fn deref(&self) -> &Standing<'a> {
        &self.standing
    }
}

impl StepContext<'_> {
    /// Returns whether this member is the elder and may name grantors. The check is rare, and not
    /// free.
    pub(crate) fn may_name(&self) -> bool {
        self.authority.is_some_and(|elder| elder.has_authority(self.now, self.timing))
    }

    /// Returns whether a grantor can have this token: elders have dealt none above the slots of the
    /// view. It may be below the grantor's epoch, because a grantor repeats the grants of a
    /// transferred table.
    pub(crate) fn is_dealt(&self, token: Token) -> bool {
        self.has_slot_of(token) || planted!(self.mutant, TakeAnyToken)
    }

    /// Returns whether elders can have dealt this epoch. A member that believed in a higher one
    /// would refuse each grantor that an elder names later.
    pub(crate) fn is_dealt_epoch(&self, epoch: Epoch) -> bool {
        self.has_slot_of(epoch.0) || planted!(self.mutant, BelieveAnyEpoch)
    }

    /// Returns whether the token is below the end of the slots of the view.
    fn has_slot_of(&self, token: Token) -> bool {
        // With these breaks, members use the slots of views that others do not have yet.
        planted!(self.mutant, DealInHeardView => return true);
        planted!(self.mutant, ActInOldView => return true);
        self.view.is_some_and(|view| token < Token::new(view.end_slot(), 0))
    }

    /// Sends `message` to `to`, which may be this member itself.
    pub(crate) fn send(&mut self, to: ProcessId, message: impl Into<Message>) {
        self.outbox.push_back((to, message.into()));
    }

    /// Sends `message` to the elder, if there is one.
    pub(crate) fn send_elder(&mut self, message: impl Into<Message>) {
        if let Some(elder) = self.elder {
            self.send(elder, message);
        }
    }

    /// Returns whether the grantors of a member are to be replaced before a view leaves the member
    /// out. So it is for a ghost. If this member is the elder, it also is for a member that it has
    /// not heard for a while.
    pub(crate) fn is_lost(&self, process: ProcessId) -> bool {
        let is_silent = |elder: &Elder| elder.is_silent(process, self.now, self.timing);
        self.is_ghost(process) || self.authority.is_some_and(is_silent)
    }

    /// Returns whether the view has this process as a ghost.
    pub(crate) fn is_ghost(&self, process: ProcessId) -> bool {
        self.view.and_then(|view| view.member(process)).is_some_and(|member| member.ghost)
    }

    /// Returns whether the view has this process.
    pub(crate) fn is_there(&self, process: ProcessId) -> bool {
        self.view.is_some_and(|view| view.contains(process))
    }
}
