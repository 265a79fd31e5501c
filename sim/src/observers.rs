//! All observers of a World: the [`Recorder`], the counter of rare states and the
//! [invariants](crate::invariants). The observers import the World, and the World knows only its
//! trait [`Observer`].

use crate::invariants::InvariantSet;
use crate::rare::{RareState, RareStateCounter};
use crate::recorder::Recorder;
use crate::world::{Observation, Observer, Violation, World};
use std::collections::BTreeMap;

/// All observers of a World.
#[derive(Clone, Debug, Default)]
pub(crate) struct Observers {
    pub(crate) recorder: Recorder,
    /// Without the counter, nothing is counted as rare.
    rare: Option<Box<RareStateCounter>>,
    pub(crate) invariants: InvariantSet,
}

impl Observers {
    fn all() -> Observers {
        Observers { rare: Some(Box::default()), ..Observers::default() }
    }
}

impl Observer for Observers {
    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Result<(), Violation> {
        self.recorder.observe(world, observation);
        if world.broken().is_some() {
            return Ok(());
        }
        if let Some(rare) = &mut self.rare {
            rare.observe(world, observation);
        }
        self.invariants.observe(world, observation)
    }

    fn copy(&self) -> Box<dyn Observer> {
        Box::new(self.clone())
    }
}

impl World {
    /// An empty World with all observers. Everything random in it follows from the seed.
    pub fn new(seed: u64) -> World {
        World::unobserved(seed).observed_by(Observers::all())
    }

    pub(crate) fn observers(&self) -> &Observers {
        self.observer().expect("World::new gives it its observers")
    }

    pub(crate) fn observers_mut(&mut self) -> &mut Observers {
        self.observer_mut().expect("World::new gives it its observers")
    }

    /// Nothing is checked, counted as rare, traced or written down: for measurements of large
    /// clusters. Most invariants read all members after each step.
    pub fn unwatched(mut self) -> World {
        let observers = self.observers_mut();
        observers.invariants = InvariantSet::blind();
        observers.rare = None;
        observers.recorder.fall_silent();
        self.undigested().untraced()
    }

    /// Like [`lenient`](Self::lenient), for a World at the start of a search. From here on the
    /// World is checked, and neither counted as rare nor written down: a model checker makes far
    /// too many Worlds.
    pub(crate) fn only_checked(mut self) -> World {
        let observers = self.observers_mut();
        observers.rare = None;
        observers.recorder.fall_silent();
        self.undigested().lenient()
    }

    /// How often the premise of each invariant held.
    pub fn premises(&self) -> BTreeMap<&'static str, u64> {
        let mut premises = self.observers().invariants.premises();
        premises.insert("time_goes_on", self.repeated);
        premises.insert("no_panic", self.events());
        premises
    }

    /// Counts a premise of an invariant that is checked outside the steps.
    pub(crate) fn count_premise(&mut self, invariant: &'static str) {
        self.observers_mut().invariants.count(invariant);
    }

    /// How often each rare state was reached.
    pub fn rare(&self) -> BTreeMap<RareState, u64> {
        self.observers().rare.as_ref().map(|rare| rare.counts().clone()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    #[test]
    fn the_world_imports_none_of_its_observers() {
        let src = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
        let folders = ["world", "verbs"].map(|name| fs::read_dir(src.join(name)).unwrap());
        let mut files: Vec<_> =
            folders.into_iter().flatten().map(|file| file.unwrap().path()).collect();
        files.extend(["world.rs", "step.rs"].map(|name| src.join(name)));
        assert!(files.len() > 10);
        for file in files {
            let text = fs::read_to_string(&file).unwrap();
            for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
                for observer in ["observers", "invariants", "rare", "record", "history_checker"] {
                    let path = format!("crate::{observer}");
                    assert!(!line.contains(&path), "{}: {line}", file.display());
                }
            }
        }
    }
}
