//! `successor_has_most_entries`: a grantor that leaves, or has destroyed the service, proposes the
//! member with most in its table as successor. The number of holds decides first, then the number
//! of waits, then the age (oldest first). A learner without entries does not count, and a member
//! that a hint calls unreachable comes last.
//!
//! The check comes at the first proposal of its epoch; a repeated one may follow a declined
//! proposal. A grantor without entries proposes no successor. If the table is empty, then the
//! grantor has handed it over in the step of its proposal, and there is nothing to check.

use super::{Count, GrantorRecord, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{
    Epoch, Message, Packet, ProcessId, RegistryMessage, ServiceName, ViewMember,
};
use std::cmp::Reverse;
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct SuccessorHasMostEntries {
    said: BTreeSet<(ServiceName, ProcessId, Epoch)>,
    premises: Count,
}

impl Invariant for SuccessorHasMostEntries {
    fn name(&self) -> &'static str {
        "successor_has_most_entries"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        let Observation::Sent { site, process: me, packet: Packet::Linked { message, .. }, .. } =
            observation
        else {
            return Ok(());
        };
        let Message::Registry(RegistryMessage::ProposeSuccessor { service, epoch, to }) = message
        else {
            return Ok(());
        };
        if !self.said.insert((service.clone(), *me, *epoch)) {
            return Ok(());
        }
        let peer = &world.sites[*site];
        let Some(node) = &peer.node else { return Ok(()) };
        let Some(view) = node.view() else { return Ok(()) };
        let suspected = node.status(peer.clock.local(world.now)).suspected;
        let kept = GrantorRecord::at(world, *site, service);
        if kept.holds.is_empty() && kept.waits.is_empty() && kept.objects.is_empty() {
            return Ok(());
        }
        let rank = |(age, process): (usize, ProcessId)| {
            let holds = kept
                .holds
                .iter()
                .filter(|((of, _), hold)| *of == process && !hold.lock.want.opens())
                .count();
            let waits = kept.waits.keys().filter(|(of, _)| *of == process).count();
            (!suspected.contains(&process), holds, waits, Reverse(age))
        };
        // A learner without entries has perhaps never shown itself.
        let is_known = |(age, member): &(usize, &ViewMember)| {
            let (_, _, waits, _) = rank((*age, member.info.process));
            let has_holds = kept.holds.keys().any(|(of, _)| *of == member.info.process);
            !member.learner || has_holds || waits > 0
        };
        let others = || {
            let living = view.living().enumerate().filter(is_known);
            living.map(|(age, member)| (age, member.info.process)).filter(|(_, other)| other != me)
        };
        let best = others().max_by_key(|other| rank(*other));
        self.premises += u64::from(others().count() > 1);
        match best {
            Some((_, best)) if best != *to => {
                Err(format!("{to} is to follow m{site}, and {best} has more in its table"))
            }
            _ => Ok(()),
        }
    }
}
