//! `deadlock_is_told`: two members that have a hold of a service and want to suspend it would wait
//! for each other. The one that asks later is told so, and does not queue.
//!
//! The check comes when a suspension is told its position. Then no other suspension may wait that
//! was told its position in the same epoch before this one asked, if both members had a hold by
//! then and have it still. The check is skipped if a third member wanted to suspend the service
//! meanwhile: it may have been the first in the queue.

use super::{Count, GrantorRecord, Invariant, Observation, Verdict};
use crate::history::{Ask, Call};
use crate::world::World;
use elderlock::protocol::{Epoch, Message, Outcome, OwnerId, Packet};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct DeadlockIsTold {
    /// When each suspension was told its position first, and in which epoch.
    told: BTreeMap<Ask, (u64, Epoch)>,
    premises: Count,
}

impl DeadlockIsTold {
    fn check(&self, world: &World, place: usize, (ask, epoch): (Ask, Epoch)) -> Verdict {
        let call = world.call(ask);
        let kept = GrantorRecord::at(world, place, &call.service);
        let held = |by: &Call| {
            kept.holds.iter().any(|((process, request), hold)| {
                let is_its = *process == by.process && (hold.owner == by.owner || by.owner == OwnerId::default());
                let asked = world.history().find(*process, *request).map(|ask| world.call(ask));
                let is_old = asked.is_some_and(|asked| asked.is_claim() && asked.answered < call.asked);
                is_its && is_old && !hold.want.opens()
            })
        };
        for (other, (at, term)) in &self.told {
            let first = world.call(*other);
            let waits = kept.waits.contains_key(&(first.process, first.request));
            let is_rival = first.service == call.service && first.process != call.process && waits;
            if !is_rival || *at >= call.asked || *term != epoch || !held(first) || !held(call) {
                continue;
            }
            let is_third = |third: &Call| {
                let is_over = third.outcome.is_some() && third.answered < *at && !third.is_claim();
                let others = [first.request, call.request].contains(&third.request)
                    && [first.process, call.process].contains(&third.process);
                third.service == call.service && third.suspends() && !is_over && !others
            };
            if !world.history().calls.iter().any(is_third) {
                return Err(format!("{ask:?} waits for {other:?}, and that one for it"));
            }
        }
        Ok(())
    }
}

impl Invariant for DeadlockIsTold {
    fn name(&self) -> &'static str {
        "deadlock_is_told"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn hear(&mut self, world: &World, fact: &Observation<'_>) -> Verdict {
        match fact {
            Observation::Answers { outcome: Outcome::Deadlock, .. } => self.premises += 1,
            Observation::Sent {
                place,
                to: Some(to),
                packet: Packet::Linked { message: Message::Queued { request, epoch, .. }, .. },
                ..
            } => {
                let ask = world.history().find(*to, *request).filter(|ask| world.call(*ask).suspends());
                let Some(ask) = ask.filter(|ask| !self.told.contains_key(ask)) else { return Ok(()) };
                let verdict = if world.bounded { self.check(world, *place, (ask, *epoch)) } else { Ok(()) };
                self.told.retain(|ask, _| world.call(*ask).is_open());
                self.told.insert(ask, (world.now, *epoch));
                return verdict;
            }
            _ => {}
        }
        Ok(())
    }
}
