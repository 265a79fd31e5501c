//! `leaving_member_is_not_expelled`: a member that was told to leave is not expelled. A member
//! reports in two cases only that its goodbye was heard. The latest view is without it, or no other
//! member of its own view is alive.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, ProcessId};

/// Counts the members that have left.
#[derive(Clone, Hash, Debug, Default)]
pub struct LeavingMemberIsNotExpelled {
    premises: Count,
}

impl Invariant for LeavingMemberIsNotExpelled {
    fn name(&self) -> &'static str {
        "leaving_member_is_not_expelled"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Event { site, process, event: Event::Left { heard } } => {
                self.premises += 1;
                if *heard && !is_known_to_be_gone(world, *site, *process) {
                    return Err(format!("m{site} says that its goodbye was heard, and it was not"));
                }
            }
            Observation::Event { site, event: Event::Expelled, .. }
                if world.sites[*site].leaving =>
            {
                return Err(format!("m{site} was told to leave and calls itself expelled"));
            }
            _ => {}
        }
        Ok(())
    }
}

/// Returns whether a view without `process` is decided, or no other member of its last view is
/// alive.
fn is_known_to_be_gone(world: &World, site: usize, process: ProcessId) -> bool {
    let Some(view) = world.view(site) else { return true };
    let lives =
        |other: ProcessId| other != process && world.sites.iter().any(|peer| peer.is(other));
    let is_out = world.latest.get(&view.lineage).is_some_and(|latest| !latest.contains(process));
    is_out || !view.members.iter().any(|member| lives(member.info.process))
}
