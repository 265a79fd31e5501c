//! The observers of the World: the invariants, which get every observation, and the counter of rare
//! states.

use super::World;
use super::trace::seconds;
use crate::invariants::{Observation, Violation};
use crate::rare::{RareState, RareStateCounter};
use crate::record::Entry;
use std::collections::BTreeMap;

impl World {
    /// Gives an observation to the invariants.
    pub(crate) fn tell(&mut self, fact: &Observation<'_>) {
        if self.broken.is_some() {
            return;
        }
        if RareStateCounter::minds(fact) {
            self.look_for_rare(|rare, world| rare.hear(world, fact));
        }
        let mut judge = std::mem::take(&mut self.judge);
        let verdict = judge.hear(self, fact);
        self.judge = judge;
        if let Err(found) = verdict {
            self.fail_about(found.invariant, found.lock, found.what);
        }
    }

    /// A rare state is reached.
    pub(crate) fn reach(&mut self, state: RareState) {
        self.look_for_rare(|rare, _| rare.reach(state));
    }

    /// An invariant is broken that is about no single lock.
    pub(crate) fn fail(&mut self, invariant: &'static str, what: String) {
        self.fail_about(invariant, None, what);
    }

    /// An invariant is broken.
    pub(crate) fn fail_about(
        &mut self,
        invariant: &'static str,
        lock: Option<String>,
        what: String,
    ) {
        if self.broken.is_some() {
            return;
        }
        if self.strict {
            panic!("{}\n{invariant} is broken at {}: {what}", self.story(80), seconds(self.now));
        }
        self.note_line(format!("{invariant} is broken: {what}"));
        let (name, words) = (invariant.to_string(), what.clone());
        self.record_line(None, Entry::Break { invariant: name, lock: lock.clone(), words });
        self.broken = Some(Violation { invariant, lock, what, at: self.now });
    }

    /// The break happened at this time, and was found only now.
    pub(crate) fn date_break(&mut self, at: u64) {
        if let Some(found) = &mut self.broken {
            found.at = at.min(found.at);
        }
    }

    /// A panic is a break like any other.
    pub(crate) fn fail_with(&mut self, panic: &(dyn std::any::Any + Send)) {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(ToString::to_string));
        self.fail("no_panic", text.unwrap_or_default());
    }

    /// An invariant whose premise held is checked outside the steps.
    pub(crate) fn count_premise(&mut self, invariant: &'static str) {
        self.judge.count(invariant);
    }

    /// The first broken invariant.
    pub fn broken(&self) -> Option<&Violation> {
        self.broken.as_ref()
    }

    /// How often the premise of each invariant held.
    pub fn premises(&self) -> BTreeMap<&'static str, u64> {
        let mut premises = self.judge.premises();
        premises.insert("time_goes_on", self.repeated);
        premises.insert("no_panic", self.events);
        premises.entry("who_leaves_has_left").or_default();
        premises
    }

    /// How often each rare state was reached.
    pub fn rare(&self) -> BTreeMap<RareState, u64> {
        self.rare.as_ref().map(|rare| rare.counts().clone()).unwrap_or_default()
    }

    pub(super) fn look_for_rare(&mut self, look: impl FnOnce(&mut RareStateCounter, &World)) {
        if let Some(mut rare) = self.rare.take() {
            look(&mut rare, self);
            self.rare = Some(rare);
        }
    }
}
