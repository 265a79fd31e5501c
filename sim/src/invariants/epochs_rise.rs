//! `epochs_rise`: a member that becomes grantor of a service while its lease runs has a higher
//! epoch than all grantors before it. Inside the clock bound.
//!
//! The rest holds for any clocks. The elder of a view deals in that view's slots only. Each of its
//! ranges is above all that it dealt before, and no two ranges have a token in common. So a later
//! epoch has the higher tokens, in the tenure of any elder. Of two grantors that act at once (which
//! takes a broken clock) the one that was named in the later view has the higher tokens. No process
//! grants a service in an epoch that is not higher than all its earlier ones. It reports the end of
//! each epoch once, before it reports that it grants again.
//!
//! An elder's ranges for itself are visible only by the epoch that begins.

use super::{Count, Highest, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{
    Epoch, Event, LineageId, MemberMessage, Message, Packet, ProcessId, ServiceName, Token,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct EpochsRise {
    highest: BTreeMap<ServiceName, Epoch>,
    /// The latest epoch in which each process granted each service.
    epochs: BTreeMap<(ProcessId, ServiceName), Epoch>,
    /// Epochs whose end has not been reported.
    acting: BTreeSet<(ProcessId, ServiceName, Epoch)>,
    /// The first and the last token of every dealt range, and the elder that dealt it.
    dealt: BTreeMap<LineageId, BTreeMap<Token, (Token, ProcessId)>>,
    /// The first tokens of the ranges that each elder dealt.
    ranges: Highest<ProcessId>,
    premises: Count,
}

impl EpochsRise {
    fn on_range(
        &mut self,
        world: &World,
        site: usize,
        elder: ProcessId,
        (first, last): (Token, Token),
    ) -> Verdict {
        let dealt = self.dealt.entry(world.dealt_apart(elder)).or_default();
        if let Some((end, by)) = dealt.get(&first) {
            // The range is sent again. If it goes to another grantor, `one_grantor_per_epoch`
            // reports that.
            if (*end, *by) == (last, elder) {
                return Ok(());
            }
            return Err(format!(
                "m{site} deals {first:?} to {last:?}, and {by} dealt {first:?} to {end:?}"
            ));
        }
        self.premises += 1;
        let below = dealt.range(..first).next_back().filter(|(_, (end, _))| *end >= first);
        if let Some(other) = below.or_else(|| dealt.range(first..=last).next()) {
            return Err(format!("m{site} deals {first:?} to {last:?}, and {other:?} was dealt"));
        }
        if let Some(before) = self.ranges.before(&elder).filter(|before| *before >= first) {
            return Err(format!("m{site} deals {first:?} after {before:?}"));
        }
        dealt.insert(first, (last, elder));
        self.ranges.add(elder, first);
        // The view may have advanced within the step, never gone back.
        match world.sites[site].node.as_ref().and_then(|node| node.view()) {
            Some(view) if view.first_slot > last.slot() => Ok(()),
            Some(view)
                if view.first_slot <= first.slot()
                    && last.slot() < view.end_slot()
                    && view.elder().process == elder =>
            {
                Ok(())
            }
            view => Err(format!(
                "m{site} deals {first:?} in {:?}",
                view.map(|view| (view.number, view.elder().process))
            )),
        }
    }
}

impl Invariant for EpochsRise {
    fn name(&self) -> &'static str {
        "epochs_rise"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent {
                site,
                process,
                packet:
                    Packet::Linked {
                        message:
                            Message::Member(MemberMessage::NameGrantor { range, .. })
                            | Message::Member(MemberMessage::Tokens { range, .. }),
                        ..
                    },
                ..
            } => self.on_range(world, *site, *process, (range.first, range.last)),
            Observation::Stepped { .. } => {
                self.ranges.on_stepped();
                Ok(())
            }
            Observation::Event {
                site,
                process,
                event: Event::BecameGrantor { service, epoch },
            } => {
                if let Some(own) = self
                    .epochs
                    .insert((*process, service.clone()), *epoch)
                    .filter(|own| own >= epoch)
                {
                    return Err(format!(
                        "m{site} becomes grantor of {service} in {epoch:?}, and was in {own:?}"
                    ));
                }
                if self.acting.iter().any(|(whose, of, _)| (whose, of) == (process, service)) {
                    return Err(format!(
                        "m{site} becomes grantor of {service} in {epoch:?}, and has not said that \
                         it lost it"
                    ));
                }
                self.acting.insert((*process, service.clone(), *epoch));
                if !world.bounded || !world.is_ready(*site) {
                    return Ok(()); // named long ago, and told too late to matter
                }
                if let Some(highest) = self.highest.get(service) {
                    self.premises += 1;
                    if epoch < highest {
                        return Err(format!(
                            "m{site} becomes grantor of {service} in {epoch:?}, after {highest:?}"
                        ));
                    }
                }
                self.highest.insert(service.clone(), *epoch);
                Ok(())
            }
            Observation::Event {
                site,
                process,
                event: Event::NoLongerGrantor { service, epoch },
            } if !self.acting.remove(&(*process, service.clone(), *epoch)) => {
                Err(format!("m{site} loses what it never had: {service} in {epoch:?}"))
            }
            Observation::Ends { process, .. } => {
                self.acting.retain(|(whose, ..)| whose != process);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
