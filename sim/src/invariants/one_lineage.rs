//! `one_lineage`: while the lease of any member of one lineage runs, no member of another lineage
//! has one.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::Event;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct OneLineage {
    premises: Count,
}

impl Invariant for OneLineage {
    fn name(&self) -> &'static str {
        "one_lineage"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        let Observation::Event { site, event: Event::ViewInstalled(view), .. } = observation else {
            return Ok(());
        };
        if !world.one_lineage {
            return Ok(());
        }
        for other in world.sites().filter(|other| world.is_ready(*other)) {
            if let Some(theirs) = world.view(other) {
                self.premises += 1;
                if theirs.lineage != view.lineage {
                    return Err(format!(
                        "m{site} is of lineage {}, m{other} of {}",
                        view.lineage, theirs.lineage
                    ));
                }
            }
        }
        Ok(())
    }
}
