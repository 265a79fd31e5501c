//! The parts of a node except its membership, for the duration of one step.

use super::cluster::view::View;
use super::event::Output;
use super::id::{MemberInfo, ProcessId};
use super::link::LinkSet;
use super::locks::Locks;
use super::message::{GrantorMessage, Message, Packet};
use super::step_context::{KEPT_MESSAGES, Standing, StepContext};
use super::time::Time;
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};

/// The messages of roles on their way out. It is empty between steps; only its memory is kept.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Mailbox {
    /// Messages that roles send.
    outbox: VecDeque<(ProcessId, Message)>,
    /// Messages to this member in this step that are not delivered yet.
    to_self: VecDeque<Message>,
    /// Whether the mailbox is delivering them, one after the other.
    is_delivering: bool,
}

/// The time until which nothing is due and a command may be handled at once; `None`: to be
/// computed.
///
/// The time is derived, and is not part of a node's state: two nodes that differ only in it are
/// equal.
#[derive(Clone, Copy, Debug)]
pub(crate) struct QuietUntil(pub(crate) Option<Time>);

impl PartialEq for QuietUntil {
    fn eq(&self, _: &QuietUntil) -> bool {
        true
    }
}

impl Eq for QuietUntil {}

impl Hash for QuietUntil {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The links, locks and outputs, as the membership and the node use them in one step.
pub(crate) struct StepParts<'a> {
    pub(crate) links: &'a mut LinkSet,
    pub(crate) locks: &'a mut Locks,
    pub(crate) mailbox: &'a mut Mailbox,
    pub(crate) quiet: &'a mut QuietUntil,
    pub(crate) out: &'a mut Vec<Output>,
}

impl StepParts<'_> {
    /// Lets a role act, then delivers its messages.
    pub(crate) fn act(
        &mut self,
        now: Time,
        standing: &Standing,
        role: impl FnOnce(&mut Locks, &mut StepContext),
    ) {
        let outbox = self.cx(now, standing, role);
        self.deliver(now, standing, outbox);
    }

    /// Lets a role act, and returns its messages.
    pub(crate) fn cx(
        &mut self,
        now: Time,
        standing: &Standing,
        role: impl FnOnce(&mut Locks, &mut StepContext),
    ) -> VecDeque<(ProcessId, Message)> {
        let outbox = std::mem::take(&mut self.mailbox.outbox);
        let mut cx =
            StepContext { now, standing: *standing, out: self.out, outbox, unfinished: Vec::new() };
        role(self.locks, &mut cx);
        let StepContext { outbox, unfinished, .. } = cx;
        self.locks.leave_unfinished(now, unfinished);
        outbox
    }

    /// Like [`act`](StepParts::act), for a role that asks other members. The role is also told
    /// whether too much is on its way to a member already.
    pub(crate) fn ask(
        &mut self,
        now: Time,
        standing: &Standing,
        role: impl FnOnce(&mut Locks, &dyn Fn(ProcessId) -> bool, &mut StepContext),
    ) {
        let outbox = std::mem::take(&mut self.mailbox.outbox);
        let mut cx =
            StepContext { now, standing: *standing, out: self.out, outbox, unfinished: Vec::new() };
        let (links, most) = (&*self.links, standing.limits.backlog as usize);
        role(self.locks, &|process| links.is_crowded(process, most), &mut cx);
        let StepContext { outbox, unfinished, .. } = cx;
        self.locks.leave_unfinished(now, unfinished);
        self.deliver(now, standing, outbox);
    }

    /// Sends messages to others on their links. Messages to this member are delivered in the same
    /// step and in order: messages that one of them causes come after those sent with it.
    pub(crate) fn deliver(
        &mut self,
        now: Time,
        standing: &Standing,
        mut outbox: VecDeque<(ProcessId, Message)>,
    ) {
        let me = standing.me;
        while let Some((to, message)) = outbox.pop_front() {
            if to == me {
                self.mailbox.to_self.push_back(message);
            } else if let Some(view) = standing.view
                && view.contains(to)
                && let Some(message) =
                    self.locks.put_off(now, to, message, view.timing.position_delay())
            {
                self.links.send(now, standing.info, view, to, message, self.out);
            }
        }
        // The list may have had a message for each of a million locks.
        outbox.shrink_to(KEPT_MESSAGES);
        self.mailbox.outbox = outbox;
        if std::mem::replace(&mut self.mailbox.is_delivering, true) {
            return;
        }
        while let Some(message) = self.mailbox.to_self.pop_front() {
            self.on_message(now, me, message, standing);
        }
        self.mailbox.is_delivering = false;
    }

    /// Handles a message about locks, from another member or from this one.
    pub(crate) fn on_message(
        &mut self,
        now: Time,
        from: ProcessId,
        message: Message,
        standing: &Standing,
    ) {
        if !message.is_plain() {
            *self.quiet = QuietUntil(None); // a step with such a message is not a short one
        }
        if let Message::Grantor(GrantorMessage::Query { service, at, .. }) = &message {
            // Links keep the order, so the member has its positions when the answer arrives.
            for message in self.locks.take_positions_of(from, service, at) {
                self.send(now, from, message, standing);
            }
        }
        self.act(now, standing, |locks, cx| locks.on_message(from, message, cx));
    }

    /// Tells members the positions of requests that have waited for a while and still wait. Most
    /// waits end earlier, so that the grant is their only message.
    pub(crate) fn tell_positions(&mut self, now: Time, standing: &Standing) {
        for (to, message) in self.locks.take_positions_due(now, standing.limits.slice) {
            self.send(now, to, message, standing);
        }
    }

    /// Proposes successors again, and forgets successors that have their whole tables. Ends useless
    /// copies of tables.
    pub(crate) fn keep_departing(&mut self, now: Time, standing: &Standing) {
        self.locks.forget_handed_over(standing.view, self.links);
        if self.locks.has_copies() {
            self.act(now, standing, Locks::tend_copies);
        }
        for service in self.locks.due_to_depart(now, standing.limits.slice) {
            self.act(now, standing, |locks, cx| locks.depart_service(&service, cx));
        }
    }

    /// Answers the destructions of services that their grantors have confirmed, once nothing is
    /// granted here any more.
    pub(crate) fn end_services(&mut self, now: Time, standing: &Standing) {
        for request in self.locks.confirmed_destructions() {
            self.act(now, standing, |locks, cx| locks.answer_destroyed(request, cx));
        }
    }

    /// Sends a packet to a member, on detours if need be.
    pub(crate) fn dispatch(
        &mut self,
        now: Time,
        me: &MemberInfo,
        view: &View,
        to: ProcessId,
        packet: Packet,
    ) {
        self.links.dispatch(now, me, view, to, packet, self.out);
    }

    fn send(&mut self, now: Time, to: ProcessId, message: Message, standing: &Standing) {
        if let Some(view) = standing.view.filter(|view| view.contains(to)) {
            self.links.send(now, standing.info, view, to, message, self.out);
        }
    }
}
