//! `nothing_lost_in_transfer`: a grantor that begins to act with the table of another has every hold in it that its holder
//! believes in, with its token, and every waiter whose place the other had acknowledged, at that place.
//!
//! A waiter's place counts when its member knows it. Looked at after the step in which the grantor begins; one that is
//! already followed is left out. Inside the clock bound.

use super::{Count, Fact, Invariant, Verdict};
use crate::history::Key;
use crate::world::World;
use elderlock::protocol::{Epoch, Event, Message, Packet, ProcessId, RequestId, ServiceName, Ticket, Token};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct NothingLostInTransfer {
    /// Terms that were to begin with a table that was sent in full.
    handed: BTreeSet<(ServiceName, Epoch)>,
    /// The latest term of each service that began to act.
    latest: BTreeMap<ServiceName, Epoch>,
    /// One that began in the present step.
    begun: Option<(ServiceName, Epoch)>,
    lost: Option<Key>,
    premises: Count,
}

impl NothingLostInTransfer {
    fn check(&mut self, world: &World, place: usize, service: &ServiceName) -> Verdict {
        let Some(node) = world.peers[place].node.as_ref().filter(|_| world.is_ready(place)) else { return Ok(()) };
        let holds: BTreeMap<(ProcessId, RequestId), Option<Token>> =
            node.table(service).map(|(process, request, token)| ((process, request), token)).collect();
        let tickets: BTreeMap<(ProcessId, RequestId), Ticket> =
            node.waiting(service).map(|(process, request, ticket)| ((process, request), ticket)).collect();
        let is_member = |process| node.view().is_some_and(|view| view.contains(process));
        for ask in world.history().claims().filter(|ask| world.fence(*ask).is_some()) {
            let call = world.call(ask);
            if call.service == *service && is_member(call.process) {
                self.premises += 1;
                let known = holds.get(&(call.process, call.request));
                if known != Some(&call.token()) {
                    self.lost = call.keys.first().cloned();
                    return Err(format!("m{place} has taken over {known:?} of a hold: {call:?}"));
                }
            }
        }
        for ask in world.history().open() {
            let call = world.call(ask);
            let theirs = world.peers[call.member].node.as_ref().filter(|node| node.process() == call.process);
            let Some(ticket) = theirs.and_then(|node| node.place_of(call.request)) else { continue };
            // It may have been granted meanwhile.
            let known = (call.process, call.request);
            if call.service == *service && is_member(call.process) && !matches!(holds.get(&known), Some(Some(_))) {
                self.premises += 1;
                if tickets.get(&known) != Some(&ticket) {
                    self.lost = call.keys.first().cloned();
                    let there = tickets.get(&known);
                    return Err(format!("m{place} has taken over {there:?} of a waiter with {ticket:?}: {call:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Invariant for NothingLostInTransfer {
    fn name(&self) -> &'static str {
        "nothing_lost_in_transfer"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.lost.as_ref()
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        match fact {
            Fact::Sent {
                packet: Packet::Linked { message: Message::Table { service, epoch, last: true, .. }, .. },
                ..
            } => {
                self.handed.insert((service.clone(), *epoch));
            }
            Fact::Event { event: Event::BecameGrantor { service, epoch }, .. } => {
                let latest = self.latest.entry(service.clone()).or_insert(*epoch);
                *latest = (*latest).max(*epoch);
                if self.handed.remove(&(service.clone(), *epoch)) && latest == epoch {
                    self.begun = Some((service.clone(), *epoch));
                }
            }
            Fact::Stepped { place } => {
                let Some((service, epoch)) = self.begun.take() else { return Ok(()) };
                let node = world.peers[*place].node.as_ref();
                let goes_on =
                    node.is_some_and(|node| node.grantors().any(|(of, term, _)| (of, term) == (&service, epoch)));
                if world.bounded && goes_on {
                    return self.check(world, *place, &service);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
