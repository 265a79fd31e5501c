//! `told_after_kept`: where votes are stored, no message tells of a vote, or of a decided view,
//! before the disk has it. Everywhere, a quorum of a view's council has a view that is called
//! settled.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{
    Affiliation, Event, Lineage, Notice, Packet, ProcessId, View, ViewNumber,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ToldAfterKept {
    /// The processes whose acceptance for the view with that number was ever on a disk.
    accepted: BTreeMap<(Lineage, ViewNumber), BTreeSet<ProcessId>>,
    /// The views that a member has installed.
    installed: BTreeMap<(Lineage, ViewNumber), View>,
    /// The latest view of each process, as it was ever on its disk where votes are stored.
    known: BTreeMap<(Lineage, ProcessId), ViewNumber>,
    premises: Count,
}

impl ToldAfterKept {
    /// Reads the present content of a disk.
    fn look(&mut self, world: &World, site: usize) {
        if let Some(stored) = &world.sites[site].disk.vote {
            if let Some(process) = world.sites[site].process() {
                self.know((stored.view.lineage, process), stored.view.number);
            }
            let (lineage, next) = (stored.view.lineage, stored.view.number.next());
            if stored.has_accepted() {
                self.accepted.entry((lineage, next)).or_default().insert(stored.voter.process);
            }
        }
    }

    fn know(&mut self, process: (Lineage, ProcessId), number: ViewNumber) {
        let known = self.known.entry(process).or_insert(number);
        *known = number.max(*known);
    }

    /// Checks a statement that the view of a member is settled.
    fn told_settled(&mut self, world: &World, site: usize, notice: &Notice) -> Verdict {
        let number = match notice {
            Notice::Pulse { view, settled: true, .. } => view,
            Notice::Hello {
                belonging: Affiliation::Member { view, settled: true, .. }, ..
            }
            | Notice::HelloReply {
                belonging: Affiliation::Member { view, settled: true, .. },
                ..
            } => view,
            _ => return Ok(()),
        };
        let Some(lineage) = world.view(site).map(|view| view.lineage) else { return Ok(()) };
        let Some(view) = self.installed.get(&(lineage, *number)) else { return Ok(()) };
        self.premises += 1;
        let has_it = |info: &&ProcessId| self.known.get(&(lineage, **info)) >= Some(number);
        let council: Vec<ProcessId> = view.council().map(|info| info.process).collect();
        if view.is_quorum(council.iter().filter(has_it)) {
            return Ok(());
        }
        Err(format!("m{site} calls view {number} settled, which no quorum of its council has"))
    }

    fn told(&mut self, world: &World, site: usize, notice: &Notice) -> Verdict {
        self.told_settled(world, site, notice)?;
        if !world.common.durable {
            return Ok(());
        }
        let stored = world.sites[site].disk.vote.as_ref();
        let later =
            |instance: ViewNumber| stored.is_some_and(|stored| stored.view.number >= instance);
        let (is_kept, what) = match notice {
            Notice::Promise { instance, ballot, .. } => (
                later(*instance)
                    || stored.is_some_and(|stored| stored.has_promised(*instance, *ballot)),
                "a promise",
            ),
            Notice::Accepted { instance, ballot } => {
                let has = stored.is_some_and(|stored| {
                    stored.has_promised(*instance, *ballot) && stored.has_accepted()
                });
                (later(*instance) || has, "an acceptance")
            }
            Notice::Beat { view, kept: true, .. } => (later(*view), "a view"),
            Notice::Hello { belonging: Affiliation::Member { view, kept: true, .. }, .. }
            | Notice::HelloReply {
                belonging: Affiliation::Member { view, kept: true, .. }, ..
            } => (later(*view), "a view"),
            _ => return Ok(()),
        };
        self.premises += 1;
        if is_kept {
            return Ok(());
        }
        Err(format!("m{site} tells of {what} that its disk does not have: {notice:?}"))
    }
}

impl Invariant for ToldAfterKept {
    fn name(&self) -> &'static str {
        "told_after_kept"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent { site, packet: Packet::Notice(notice), .. }
            | Observation::Sent { site, packet: Packet::VoteSuccessor { notice, .. }, .. } => {
                self.told(world, *site, notice)
            }
            Observation::Sent {
                site, packet: Packet::Relay { from, packet, .. }, process, ..
            } if from.process == *process => match &**packet {
                Packet::Notice(notice) => self.told(world, *site, notice),
                _ => Ok(()),
            },
            Observation::Event { site, event: Event::ViewInstalled(view), .. } => {
                let key = (view.lineage, view.number);
                if !world.common.durable
                    && let Some(process) = world.sites[*site].process()
                {
                    self.know((view.lineage, process), view.number);
                }
                if self.installed.insert(key, view.clone()).is_some() {
                    return Ok(());
                }
                // A quorum of the view before has chosen it at the first installation, each with
                // its vote on a disk.
                let before = self.installed.range(..key).next_back();
                let Some((_, before)) = before.filter(|((lineage, number), _)| {
                    *lineage == view.lineage && number.next() == view.number
                }) else {
                    return Ok(());
                };
                if !world.common.durable {
                    return Ok(());
                }
                self.premises += 1;
                let voters = self.accepted.get(&key).cloned().unwrap_or_default();
                if before.is_quorum(&voters) {
                    return Ok(());
                }
                Err(format!(
                    "m{site} installs view {}, which only {voters:?} have accepted on a disk",
                    view.number
                ))
            }
            Observation::Kept { site } => {
                self.look(world, *site);
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
