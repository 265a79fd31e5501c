//! `fifo_across_failover`: of two waiters of one lock with acknowledged positions, the earlier is
//! served first, also by later grantors.
//!
//! A position counts as acknowledged when the waiter's process has acknowledged the message that
//! told it. A waiter at the grantor's own member is told without a message. Its position counts
//! from the end of the step in which its member knows it.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, Call, HoldMode};
use crate::network::SECOND;
use crate::world::{Observation, World};
use elderlock::protocol::message::WaitReport;
use elderlock::protocol::{
    ClientMessage, Epoch, GrantorMessage, GrantorState, Message, Outcome, Packet, ProcessId,
    ServiceName, Ticket, Token,
};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct FifoAcrossFailover {
    /// Positions told and not acknowledged, by sender, receiver and number of the message.
    told: BTreeMap<(ProcessId, ProcessId, u64), ToldPosition>,
    positions: BTreeMap<Ask, Ticket>,
    /// When each position was told first, and when each call was granted first with its latest
    /// token. A request that passes others does not pass those that were granted before.
    since: BTreeMap<Ask, u64>,
    /// When each acknowledged position was told, in true time. An earlier statement may have been
    /// lost with its grantor.
    told_at: BTreeMap<Ask, u64>,
    granted: BTreeMap<Ask, (Token, u64)>,
    /// When each call was granted first with any token. That grant may be lost with its grantor.
    first: BTreeMap<Ask, u64>,
    /// The first token of each open call that the grantor of its own member has granted, without
    /// a message. Its member may have heard of a later epoch by then, and ignores the grant.
    own: BTreeMap<Ask, Token>,
    /// When a grant was last sent for each refused call, in true time: the call was asked twice,
    /// across a recovery.
    unwanted: BTreeMap<Ask, u64>,
    /// When each hold was lost, in true time.
    lost_at: BTreeMap<Ask, u64>,
    /// Served shares and permits, which other grants may follow at once. Their tokens tell which
    /// was granted first.
    served: BTreeMap<Ask, ServedPosition>,
    /// Calls that were served in the present step. If the process ends in the middle of it, others
    /// that were granted before them may never hear of it.
    serving: Vec<(Ask, ServedPosition)>,
    messages: u64,
    /// How many positions and grants had been told before the present step.
    before: u64,
    /// The latest recovery that each process has answered, by service.
    reported: BTreeMap<(ProcessId, ServiceName), Epoch>,
    premises: Count,
}

/// A position that was told.
#[derive(Clone, Copy, Hash, Debug)]
struct ToldPosition {
    ask: Ask,
    ticket: Ticket,
    /// When the message was sent first, in true time.
    at: u64,
}

/// A position that was served.
#[derive(Clone, Copy, Hash, Debug)]
struct ServedPosition {
    ticket: Ticket,
    token: Token,
    /// The earliest and the latest time of the grant. A grant without a packet is of a known step.
    when: (u64, u64),
}

impl FifoAcrossFailover {
    /// The waiter knows its position. A later position of the same call changes nothing.
    fn acknowledge(&mut self, ToldPosition { ask, ticket, at }: ToldPosition) {
        self.positions.entry(ask).or_insert(ticket);
        self.told_at.entry(ask).or_insert(at);
    }

    /// A position in a report was surely acknowledged. A later statement, or a repeated one, of an
    /// older grantor comes too late.
    fn on_report(
        &mut self,
        world: &World,
        process: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        waits: &[WaitReport],
    ) {
        for wait in waits {
            if let (Some(ask), Some(ticket)) =
                (world.history().find(process, wait.request), wait.ticket)
            {
                let told =
                    self.told.values().filter(|told| (told.ask, told.ticket) == (ask, ticket));
                let at = told.map(|told| told.at).min().unwrap_or(world.now);
                self.acknowledge(ToldPosition { ask, ticket, at });
            }
        }
        // An earlier report may be sent again.
        let latest = self.reported.entry((process, service.clone())).or_insert(epoch);
        *latest = epoch.max(*latest);
        let epoch = *latest;
        self.told.retain(|(_, to, _), told| {
            *to != process
                || world.call(told.ask).service != *service
                || told.ticket.epoch.0.as_i64() >= epoch.0.as_i64()
        });
    }
}

/// Waiters at the grantor's own member.
impl FifoAcrossFailover {
    /// Notes the positions that a member knows of its own grantors, and the grants of these.
    fn note_own(&mut self, world: &World, site: usize) {
        let Some(node) = world.sites[site].node.as_ref().filter(|_| world.is_alive(site)) else {
            return;
        };
        for (service, ..) in node.grantors().filter(|(.., state)| *state == GrantorState::Acting) {
            for (process, request, token) in node.table(service) {
                if let Some(token) = token.filter(|_| process == node.process())
                    && let Some(ask) = world.history().find(process, request)
                    && world.call(ask).is_open()
                {
                    self.own.entry(ask).or_insert(token);
                }
            }
            for ask in world.history().open() {
                let call = world.call(ask);
                if call.member != site
                    || call.service != *service
                    || self.positions.contains_key(&ask)
                {
                    continue;
                }
                if let Some(ticket) = node.position_of(call.request) {
                    self.messages += 1;
                    self.since.entry(ask).or_insert(self.messages);
                    self.acknowledge(ToldPosition { ask, ticket, at: world.now });
                }
            }
        }
    }
}

/// Requests without a known position.
impl FifoAcrossFailover {
    /// A call without a known position is granted. No waiter that it excludes may have been told a
    /// position before it asked. The exception is a suspension that the call may pass, since its
    /// owner may have had a hold.
    fn hear_newcomer(&mut self, world: &World, ask: Ask) -> Verdict {
        let call = world.call(ask);
        self.granted.remove(&ask);
        self.first.remove(&ask);
        self.since.remove(&ask);
        self.told_at.remove(&ask);
        self.positions.retain(|ask, _| world.call(*ask).is_open());
        // `no_grant_after_recall` checks when a member may grant a lock that it keeps.
        if world.place_of(call).is_some() {
            return Ok(());
        }
        if !world.bounded || self.positions.is_empty() || call.opens() || self.may_pass(world, ask)
        {
            return Ok(());
        }
        let view = world.latest.values().max_by_key(|view| view.number);
        for (earlier, ticket) in &self.positions {
            let other = world.call(*earlier);
            let is_before =
                call.clashes(other) || (other.suspends() && other.service == call.service);
            let is_member = view.is_some_and(|view| view.contains(other.process));
            let is_told = self.told_at.get(earlier).is_some_and(|told| *told < call.asked);
            if is_before && is_member && is_told && !self.first.contains_key(earlier) {
                self.premises += 1;
                return Err(format!(
                    "{ask:?}, which came later, is granted before {earlier:?} with {ticket:?}"
                ));
            }
        }
        Ok(())
    }
}

/// Holds of a request's owner.
impl FifoAcrossFailover {
    /// Returns whether the owner of a call may have had a hold of the service when it asked, as far
    /// as its grantor knew. A grant may have been under way.
    fn may_pass(&self, world: &World, ask: Ask) -> bool {
        let call = world.call(ask);
        let lease = world.common.timing.member_lease.as_nanos() as u64;
        // Until the holder has released an unwanted grant, its grantor counts it as a hold.
        let is_unwanted = |number: usize| {
            self.unwanted.get(&Ask(number)).is_some_and(|sent| call.asked < sent + lease)
        };
        let is_over = |number: usize, other: &Call| {
            let released = other.released && other.released_at < call.asked;
            let refused =
                other.outcome.is_some() && !other.is_granted() && other.answered < call.asked;
            // The grantor hears of the loss when the holder reaches it again.
            let lost = self.lost_at.get(&Ask(number));
            released || refused || lost.is_some_and(|lost| lost + MAX_SILENCE < call.asked)
        };
        let calls = world.history().calls.iter().enumerate();
        let mut others = calls
            .filter(|(_, other)| (other.process, &other.service) == (call.process, &call.service));
        others.any(|(number, other)| {
            let was_granted = other.is_granted() || self.first.contains_key(&Ask(number));
            let holds = was_granted && (!is_over(number, other) || is_unwanted(number));
            other.request != call.request && holds && !other.opens()
        })
    }
}

/// A grantor hears of a loss within this time, or its member is out of the view.
const MAX_SILENCE: u64 = 30 * SECOND;

impl Invariant for FifoAcrossFailover {
    fn name(&self) -> &'static str {
        "fifo_across_failover"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent { process, to: Some(to), packet, .. } => {
                let (Packet::Linked { ack, .. } | Packet::Ack { ack, .. }) = packet else {
                    return Ok(());
                };
                if !self.told.is_empty() {
                    let acknowledged: Vec<_> = self
                        .told
                        .range((*to, *process, 0)..=(*to, *process, *ack))
                        .map(|(key, _)| *key)
                        .collect();
                    for key in acknowledged {
                        if let Some(told) = self.told.remove(&key) {
                            self.acknowledge(told);
                        }
                    }
                }
                // The next grantor has asked itself without a packet, and no longer accepts
                // messages of an older grantor.
                if let Packet::Linked { message, .. } = packet
                    && let Message::Client(ClientMessage::Recover { service, epoch, .. })
                    | Message::Grantor(GrantorMessage::RequestTable { service, epoch, .. }) =
                        message
                    && self
                        .reported
                        .get(&(*process, service.clone()))
                        .is_none_or(|reported| reported < epoch)
                {
                    self.on_report(world, *process, service, *epoch, &[]);
                }
                if let Packet::Linked {
                    message: Message::Grantor(GrantorMessage::Report { service, epoch, waits, .. }),
                    ..
                } = packet
                {
                    self.on_report(world, *process, service, *epoch, waits);
                }
                if let Packet::Linked { seq, message: Message::Client(message), .. } = packet
                    && let ClientMessage::Queued { service, request, ticket, .. } = message
                    && let Some(ask) = world.history().find(*to, *request)
                    && !self.positions.contains_key(&ask)
                {
                    // The ticket of a request that passes is before all epochs, and counts as told
                    // like any other.
                    self.messages += 1;
                    self.since.entry(ask).or_insert(self.messages);
                    if self
                        .reported
                        .get(&(*to, service.clone()))
                        .is_none_or(|reported| reported.0.as_i64() <= ticket.epoch.0.as_i64())
                    {
                        let told = ToldPosition { ask, ticket: *ticket, at: world.now };
                        self.told.entry((*process, *to, *seq)).or_insert(told);
                    }
                }
                if let Packet::Linked {
                    message: Message::Client(ClientMessage::Grant { request, .. }),
                    ..
                } = packet
                    && let Some(ask) = world.history().find(*to, *request)
                    && world.call(ask).outcome.is_some()
                    && !world.is_granted(ask)
                {
                    self.unwanted.insert(ask, world.now);
                }
                if let Packet::Linked {
                    message: Message::Client(ClientMessage::Grant { request, token, .. }),
                    ..
                } = packet
                    && let Some(ask) = world.history().find(*to, *request)
                    && self.granted.get(&ask).is_none_or(|(known, _)| known < token)
                {
                    self.messages += 1;
                    self.granted.insert(ask, (*token, self.messages));
                    self.first.entry(ask).or_insert(self.messages);
                }
                Ok(())
            }
            Observation::Answers { ask, outcome: Outcome::Granted { token, .. } } => {
                let Some(position) = self.positions.remove(ask) else {
                    return self.hear_newcomer(world, *ask);
                };
                self.told_at.remove(ask);
                let served = world.call(*ask);
                // A grantor grants to its own member without a packet. Such a grant is of this
                // step.
                let sent = self.granted.remove(ask);
                let (is_own, granted) =
                    (sent.is_none(), sent.map_or(self.before + 1, |(_, at)| at));
                let (told, first) = (self.since.remove(ask), self.first.remove(ask));
                let own = self.own.remove(ask);
                self.positions.retain(|ask, _| world.call(*ask).is_open());
                self.own.retain(|ask, _| world.call(*ask).is_open());
                let is_early = |(of, other_position): &(&Ask, &ServedPosition)| {
                    let other = world.call(**of);
                    // The position of the granted waiter may be known from its report only: an
                    // earlier grantor told it.
                    let (from, until) = other_position.when;
                    let is_told = told.is_none_or(|told| told < from)
                        && first.is_none_or(|first| first > until)
                        && own.is_none_or(|own| own > other_position.token)
                        && served.asked < other.answered;
                    other.shares(served)
                        && other_position.ticket > position
                        && other_position.token < *token
                        && is_told
                };
                let serving = self.serving.iter().map(|(ask, position)| (ask, position));
                if let Some((other, ServedPosition { ticket, .. })) =
                    self.served.iter().chain(serving).find(is_early)
                    && world.bounded
                {
                    return Err(format!(
                        "{other:?} with {ticket:?} is granted before {ask:?} with {position:?}"
                    ));
                }
                // A waiter at the head of its queue needs no entry.
                let is_first = |of: &Ask, ticket: &Ticket| {
                    !self.positions.iter().any(|(one, before)| {
                        before < ticket && world.call(*one).shares(world.call(*of))
                    })
                };
                self.served.retain(|of, position| !is_first(of, &position.ticket));
                if served.mode != HoldMode::Alone {
                    let when = (granted, if is_own { u64::MAX } else { granted });
                    self.serving
                        .push((*ask, ServedPosition { ticket: position, token: *token, when }));
                }
                for (earlier, ticket) in &self.positions {
                    let call = world.call(*earlier);
                    let view = world.latest.values().max_by_key(|view| view.number);
                    let is_member = view.is_some_and(|view| view.contains(call.process));
                    // A waiter behind a suspension is not served before it.
                    let is_before = call.clashes(served)
                        || (call.suspends()
                            && call.service == served.service
                            && !served.suspends());
                    let is_told = self.since.get(earlier).is_none_or(|since| *since < granted);
                    if is_before && is_member && is_told {
                        self.premises += 1;
                        if *ticket < position && world.bounded {
                            return Err(format!(
                                "{ask:?} with {position:?} is served before {earlier:?} with \
                                 {ticket:?}"
                            ));
                        }
                    }
                }
                Ok(())
            }
            Observation::Loses { ask, .. } => {
                self.lost_at.insert(*ask, world.now);
                Ok(())
            }
            Observation::Ends { .. } => {
                self.serving.clear();
                Ok(())
            }
            Observation::Stepped { site } => {
                for (ask, mut position) in self.serving.drain(..) {
                    position.when.1 = position.when.1.min(self.messages);
                    self.served.insert(ask, position);
                }
                self.note_own(world, *site);
                self.before = self.messages;
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
