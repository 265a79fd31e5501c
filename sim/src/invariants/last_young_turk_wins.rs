//! `last_young_turk_wins`: of those who were named grantor of a service while its table was on its way, the last one acts
//! and the others pass it on; and whoever asked to become grantor hears the truth: it acts, or who was named after it.

use super::{Count, Fact, Invariant, Verdict};
use crate::history::{Ask, Deed};
use crate::liveness::Demand;
use crate::world::World;
use elderlock::protocol::{Epoch, Event, GrantorState, Message, Outcome, Packet, ProcessId, ServiceName};
use std::collections::{BTreeMap, BTreeSet};

/// Demands, when all is healed, that whoever asks to become grantor does, one after the other, and that of two who ask at
/// once one is told that it has won and the other does not wait for ever. False if it is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let services: BTreeSet<ServiceName> = world.history().keys().into_iter().map(|(service, _)| service).collect();
    let places: Vec<usize> = world.demanded().filter(|place| world.is_up(*place)).collect();
    for service in services {
        let service = service.as_str();
        for &place in places.iter().rev().take(2) {
            let ask = world.become_grantor(place, service);
            world.run_until(|world| world.is_answered(ask), demand.answer);
            if world.outcome(ask) != Some(&Outcome::Won) || world.find_grantor(service) != Some(place) {
                let (said, who) = (world.outcome(ask), world.find_grantor(service));
                world.fail(NAME, format!("m{place} asks to grant {service}, hears {said:?}, and {who:?} does"));
                return false;
            }
            world.count_premise(NAME);
        }
        let asks: Vec<Ask> = places.iter().take(3).map(|place| world.become_grantor(*place, service)).collect();
        world.run_until(|world| asks.iter().all(|ask| world.is_answered(*ask)), demand.answer * 2);
        let winners = asks.iter().filter(|ask| world.outcome(**ask) == Some(&Outcome::Won)).count();
        if winners == 0 || asks.iter().any(|ask| !world.is_answered(*ask)) {
            let said: Vec<_> = asks.iter().map(|ask| world.outcome(*ask)).collect();
            world.fail(NAME, format!("several ask at once to grant {service} and hear {said:?}"));
            return false;
        }
        world.count_premise(NAME);
    }
    true
}

/// The name.
pub const NAME: &str = "last_young_turk_wins";

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct LastYoungTurkWins {
    /// The latest epoch for which each process was named, or in which it acted.
    named: BTreeMap<(ServiceName, ProcessId), Epoch>,
    /// Who has asked to become grantor.
    asked: BTreeSet<(ServiceName, ProcessId)>,
    /// Who has been asked for a table that it still waits for, in an earlier step than the present one.
    passing: BTreeSet<(ServiceName, ProcessId, Epoch)>,
    /// What began in this step.
    began: BTreeSet<ServiceName>,
    premises: Count,
}

impl LastYoungTurkWins {
    fn name(&mut self, service: &ServiceName, process: ProcessId, epoch: Epoch) {
        let latest = self.named.entry((service.clone(), process)).or_insert(epoch);
        *latest = (*latest).max(epoch);
    }
}

impl Invariant for LastYoungTurkWins {
    fn name(&self) -> &'static str {
        NAME
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        match fact {
            Fact::Sent { process, to, packet: Packet::Linked { message, .. }, .. } => match (message, to) {
                (Message::Name { service, range, .. }, Some(to)) => self.name(service, *to, Epoch(range.first)),
                // An elder names itself without a packet, and then speaks as what it is.
                (Message::Become { service }, _) => _ = self.asked.insert((service.clone(), *process)),
                (Message::Hand { service, epoch } | Message::Recover { service, epoch }, _) => {
                    self.name(service, *process, *epoch);
                }
                _ => {}
            },
            Fact::Event { place, process, event: Event::BecameGrantor { service, epoch } } => {
                self.name(service, *process, *epoch);
                self.premises += 1;
                self.began.insert(service.clone());
                // Who has only heard of a younger one acts until that one asks.
                if self.passing.contains(&(service.clone(), *process, *epoch)) {
                    return Err(format!(
                        "m{place} grants {service} in {epoch:?} though a younger one waits for its table"
                    ));
                }
            }
            Fact::Stepped { place } => {
                self.began.clear();
                let Some((node, process)) = world.peers[*place].node.as_ref().zip(world.peers[*place].process()) else {
                    return Ok(());
                };
                self.passing.retain(|(_, whose, _)| *whose != process);
                let passes = node.grantors().filter(|(.., state)| *state == GrantorState::PassingThrough);
                self.passing.extend(passes.map(|(service, epoch, _)| (service.clone(), process, epoch)));
            }
            Fact::Answers { ask, outcome: Outcome::Won } => {
                let call = world.call(*ask);
                let node = world.peers[call.member].node.as_ref();
                let acts = |(service, _, state): (&ServiceName, Epoch, GrantorState)| {
                    *service == call.service && state == GrantorState::Acting
                };
                self.premises += 1;
                if !self.began.contains(&call.service) && !node.is_some_and(|node| node.grantors().any(acts)) {
                    return Err(format!("m{} is told that it grants {} and does not", call.member, call.service));
                }
            }
            Fact::Answers { ask, outcome: Outcome::Superseded(by) } => {
                let call = world.call(*ask);
                let of = |process: ProcessId| self.named.get(&(call.service.clone(), process));
                self.premises += 1;
                // An elder asks itself without a packet.
                let mut all = world.history().calls.iter();
                let asked = self.asked.contains(&(call.service.clone(), *by))
                    || all.any(|of| of.process == *by && of.deed == Deed::Become && of.service == call.service);
                if *by == call.process || !(asked || of(*by) > of(call.process)) {
                    let (theirs, own) = (of(*by), of(call.process));
                    return Err(format!(
                        "m{} is told that {by} grants {} in its place: named in {theirs:?}, itself in {own:?}",
                        call.member, call.service
                    ));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
