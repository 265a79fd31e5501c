//! `nothing_lost_in_transfer`: a grantor that begins to act with the table of another has every
//! hold in it that a holder believes in, with its token. It also has every waiter with an
//! acknowledged position, at that position. Each entry is as it was asked for: the same locks, the
//! same owner, the same metadata. No hold is younger than both the table and its holder say.
//!
//! A waiter's position counts when its member knows it. The check comes after the step in which the
//! grantor begins. A grantor that already has a successor is left out. Inside the clock bound.

use super::{Count, GrantorRecord, Invariant, Latest, Verdict, acts_after, shrunk};
use crate::history::Key;
use crate::world::{Observation, World};
use elderlock::protocol::{
    Epoch, Event, GrantorMessage, GrantorState, Message, Packet, ProcessId, RequestId, ServiceName,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct NothingLostInTransfer {
    /// Epochs that were to begin with a table that was sent in full.
    handed: BTreeSet<(ServiceName, Epoch)>,
    /// How long each hold had lasted by the tables that were sent, before a grantor began with
    /// them.
    ages: BTreeMap<(ServiceName, Epoch), BTreeMap<(ProcessId, RequestId), Duration>>,
    latest: Latest,
    /// The epoch that began in the present step.
    begun: Option<(ServiceName, Epoch)>,
    lost: Option<Key>,
    premises: Count,
}

impl NothingLostInTransfer {
    fn check(
        &mut self,
        world: &World,
        site: usize,
        service: &ServiceName,
        epoch: Epoch,
    ) -> Verdict {
        let ages = self.ages.remove(&(service.clone(), epoch)).unwrap_or_default();
        let Some(node) = world.sites[site].node.as_ref().filter(|_| world.is_ready(site)) else {
            return Ok(());
        };
        let kept = GrantorRecord::at(world, site, service);
        if let Some((ask, what)) = kept.differs(world) {
            self.lost = world.call(ask).keys.first().cloned();
            return Err(format!("m{site} has taken over {what}: {:?}", world.call(ask)));
        }
        // A clock that has run for a shorter time shows only that time.
        let clock = world.sites[site].clock.local(world.now);
        for ((process, request), age) in ages {
            let there = kept.holds.get(&(process, request)).map(|hold| hold.held_for);
            let call = world.history().find(process, request).map(|ask| world.call(ask));
            // A grantor need not know more than the holder.
            let Some(call) = call.filter(|call| call.is_granted()) else { continue };
            // The measuring clock may be fast, and the holder's clock slow.
            let age = shrunk(world, shrunk(world, age.as_nanos() as u64).as_nanos() as u64);
            let age = age.min(shrunk(world, world.now - call.answered));
            if there.is_some_and(|there| there < age) && clock.back(age) + age == clock {
                self.lost = call.keys.first().cloned();
                return Err(format!(
                    "m{site} has taken over a hold of {age:?} at least as one of {there:?}: \
                     {call:?}"
                ));
            }
        }
        let is_member = |process| node.view().is_some_and(|view| view.contains(process));
        for ask in world.history().claims().filter(|ask| world.fence(*ask).is_some()) {
            let call = world.call(ask);
            if call.service == *service && is_member(call.process) {
                self.premises += 1;
                let known = kept.holds.get(&(call.process, call.request)).map(|hold| hold.token);
                let is_kept = world
                    .place_of(call)
                    .is_some_and(|place| kept.holds.contains_key(&(call.process, place)));
                if known != call.token()
                    && !(call.pending_mode.is_some() && known.is_some())
                    && !(known.is_none() && is_kept)
                {
                    self.lost = call.keys.first().cloned();
                    return Err(format!("m{site} has taken over {known:?} of a hold: {call:?}"));
                }
            }
        }
        for ask in world.history().opened() {
            let call = world.call(ask);
            if call.service == *service && is_member(call.process) && world.is_ready(call.member) {
                self.premises += 1;
                let is_there = kept.holds.contains_key(&(call.process, call.request));
                if let Some(what) =
                    kept.lacks(ask, world).or_else(|| (!is_there).then(|| "nothing".to_string()))
                {
                    self.lost = call.object.clone();
                    return Err(format!("m{site} has taken over {what}: {call:?}"));
                }
            }
        }
        for ask in world.history().open() {
            let call = world.call(ask);
            let theirs = world.sites[call.member]
                .node
                .as_ref()
                .filter(|node| node.process() == call.process);
            let Some(ticket) = theirs.and_then(|node| node.position_of(call.request)) else {
                continue;
            };
            // The waiter may have been granted meanwhile.
            let known = (call.process, call.request);
            if call.service == *service
                && is_member(call.process)
                && !kept.holds.contains_key(&known)
            {
                self.premises += 1;
                let there = kept.waits.get(&known).and_then(|wait| wait.ticket);
                if there != Some(ticket) {
                    self.lost = call.keys.first().cloned();
                    return Err(format!(
                        "m{site} has taken over {there:?} of a waiter with {ticket:?}: {call:?}"
                    ));
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

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent {
                packet:
                    Packet::Linked {
                        message:
                            Message::Grantor(GrantorMessage::TableChunk {
                                service,
                                epoch,
                                holds,
                                last,
                                ..
                            }),
                        ..
                    },
                ..
            } if self.latest.of(service) < Some(*epoch) => {
                let of = (service.clone(), *epoch);
                let ages = self.ages.entry(of.clone()).or_default();
                ages.extend(
                    holds.iter().map(|(process, hold)| ((*process, hold.request), hold.held_for)),
                );
                if *last {
                    self.handed.insert(of);
                }
            }
            // The table was copied before, and its last changes were sent.
            Observation::Sent {
                packet:
                    Packet::Linked {
                        message: Message::Grantor(GrantorMessage::TableRest { service, epoch, .. }),
                        ..
                    },
                ..
            } if self.latest.of(service) < Some(*epoch) => {
                self.handed.insert((service.clone(), *epoch));
            }
            Observation::Event { site, event: Event::BecameGrantor { service, epoch }, .. } => {
                self.latest.begins(service, *epoch);
                let is_handed = self.handed.remove(&(service.clone(), *epoch));
                // A grantor that asked the members last has lost the table, or never got it.
                if is_handed
                    && self.latest.of(service) == Some(*epoch)
                    && acts_after(GrantorState::Receiving, world, *site, (service, *epoch))
                {
                    self.begun = Some((service.clone(), *epoch));
                }
            }
            Observation::Stepped { site } => {
                let Some((service, epoch)) = self.begun.take() else { return Ok(()) };
                let node = world.sites[*site].node.as_ref();
                let goes_on = node.is_some_and(|node| {
                    node.grantors().any(|(of, acts_in, _)| (of, acts_in) == (&service, epoch))
                });
                if world.bounded && goes_on {
                    return self.check(world, *site, &service, epoch);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
