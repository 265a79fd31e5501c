//! `voters_have_answered`: a learner gets its vote only after it has had a view with itself. No
//! view gives a vote to more learners than it has other voters. Founders, and vote successors that
//! a candidate takes in, vote at once.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, Lineage, ProcessId, View, ViewNumber};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct VotersHaveAnswered {
    /// Each view that was installed, by lineage and number.
    installed: BTreeMap<(Lineage, ViewNumber), View>,
    /// The processes that have installed a view with themselves.
    members: BTreeSet<ProcessId>,
    premises: Count,
}

impl VotersHaveAnswered {
    fn judge(&mut self, before: &View, view: &View) -> Verdict {
        let was_voter =
            |process: &ProcessId| before.member(*process).is_some_and(|member| !member.learner);
        let voters = view.council().map(|info| info.process);
        let (old, new): (Vec<ProcessId>, Vec<ProcessId>) = voters.partition(was_voter);
        let is_candidates = view.tenure == view.first_slot;
        for process in &new {
            self.premises += 1;
            let has_joined_before = before.contains(*process) && self.members.contains(process);
            let is_vote_successor = is_candidates && !before.contains(*process);
            if !has_joined_before && !is_vote_successor {
                return Err(format!(
                    "{process} votes in view {}, and has not answered since it joined",
                    view.number
                ));
            }
        }
        let promoted = new.iter().filter(|process| before.contains(**process)).count();
        if promoted > old.len() {
            return Err(format!(
                "view {} gives votes to {promoted} learners beside {} voters",
                view.number,
                old.len()
            ));
        }
        Ok(())
    }
}

impl Invariant for VotersHaveAnswered {
    fn name(&self) -> &'static str {
        "voters_have_answered"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, _world: &World, observation: &Observation<'_>) -> Verdict {
        let Observation::Event { process, event: Event::ViewInstalled(view), .. } = observation
        else {
            return Ok(());
        };
        if !self.installed.contains_key(&(view.lineage, view.number)) {
            let before = ViewNumber(view.number.0 - 1);
            if let Some(before) = self.installed.get(&(view.lineage, before)).cloned() {
                self.judge(&before, view)?;
            }
            self.installed.insert((view.lineage, view.number), view.clone());
        }
        if view.contains(*process) {
            self.members.insert(*process);
        }
        Ok(())
    }
}
