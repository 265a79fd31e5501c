//! The planted breaks of the recipes: who plays when one is hunted, and what must find it.

use super::Cast;
use elderlock::simulated::Mutant;

/// By its name.
pub fn find(name: &str) -> Result<Mutant, String> {
    let is_it = |mutant: &Mutant| format!("{mutant:?}") == name;
    Mutant::ALL.into_iter().find(is_it).ok_or_else(|| format!("no break is called {name}; there are {:?}", Mutant::ALL))
}

/// What is played while it is hunted, and the invariants of which one must break.
pub fn found_by(mutant: Mutant) -> (Cast, &'static [&'static str]) {
    match mutant {
        Mutant::FenceWithoutMember => (Cast::Locks, &["exclusive_by_lease", "suspension_is_exclusive"]),
        Mutant::KeepDroppedRequest => (Cast::Locks, &["no_lost_wakeup", "no_leaked_hold"]),
        Mutant::KeepDroppedHold => (Cast::Locks, &["no_lost_wakeup", "no_leaked_hold"]),
    }
}
