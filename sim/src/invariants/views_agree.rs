//! `views_agree`: views with the same number and lineage are the same view, wherever they are
//! installed. At one member views only rise, and none follows a view without it. A process that is
//! out never comes back under the same id. The exception is a living process that has never seen
//! itself in a view. The process was taken in, not reached, and left out again, and its next
//! request to join is a new one.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, Lineage, ProcessId, View, ViewNumber};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ViewsAgree {
    installed: BTreeMap<(Lineage, ViewNumber), View>,
    last: BTreeMap<ProcessId, (Lineage, ViewNumber)>,
    /// Former members, and the number of the first view without them.
    left: BTreeMap<(Lineage, ProcessId), ViewNumber>,
    /// Processes that have seen a view without themselves.
    out: BTreeSet<ProcessId>,
    premises: Count,
}

impl Invariant for ViewsAgree {
    fn name(&self) -> &'static str {
        "views_agree"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        let Observation::Event { site, process, event: Event::ViewInstalled(view) } = observation
        else {
            return Ok(());
        };
        if !view.is_sound() {
            return Err(format!("m{site} installs what no view may be: {view:?}"));
        }
        if self.out.contains(process) && view.contains(*process) {
            return Err(format!("m{site} was left out of a view and is in a later one: {view:?}"));
        }
        if !view.contains(*process) {
            self.out.insert(*process);
        }
        let last = self.last.insert(*process, (view.lineage, view.number));
        if last.is_some_and(|(lineage, number)| lineage != view.lineage || number >= view.number) {
            return Err(format!("m{site} goes from {last:?} to {} {}", view.lineage, view.number));
        }
        match self.installed.get(&(view.lineage, view.number)) {
            Some(other) => {
                self.premises += 1;
                if other != view {
                    return Err(format!(
                        "view {} is\n  {other:?}\nand at m{site}\n  {view:?}",
                        view.number
                    ));
                }
            }
            None => {
                // At the first installation of a view, no process may be back that an earlier view
                // had and a later one had not. A member that slept may be the only one to install a
                // view, long after others have installed later ones.
                for member in &view.members {
                    let process = member.info.process;
                    let site = world.site_of(process).filter(|site| world.is_alive(*site));
                    if site.is_some() && !self.last.contains_key(&process) {
                        self.left.remove(&(view.lineage, process));
                    }
                    if let Some(number) = self.left.get(&(view.lineage, process))
                        && *number < view.number
                    {
                        return Err(format!(
                            "{process} was out of view {number} and is back in view {}",
                            view.number
                        ));
                    }
                }
                let known = |number| self.installed.get(&(view.lineage, ViewNumber(number)));
                for (before, after) in
                    [(known(view.number.0 - 1), Some(view)), (Some(view), known(view.number.0 + 1))]
                {
                    let (Some(before), Some(after)) = (before, after) else { continue };
                    for member in
                        before.members.iter().filter(|member| !after.contains(member.info.process))
                    {
                        let left = self
                            .left
                            .entry((view.lineage, member.info.process))
                            .or_insert(after.number);
                        *left = after.number.min(*left);
                    }
                }
                self.installed.insert((view.lineage, view.number), view.clone());
            }
        }
        Ok(())
    }
}
