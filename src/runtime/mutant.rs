//! Deliberate breaks of what is above the core, to prove that the simulation of whole members can fail. Each is a
//! mistake that somebody could make. They work only with `--cfg elderlock_mutants` and the feature `simulated`; where
//! one is planted, the code says `planted!`. Those of the core are in `protocol/mutant.rs`.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<Mutant>> = const { Cell::new(None) };
}

/// One deliberate break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// A guard looks at the lock's lease and not at the member's.
    FenceWithoutMember,
    /// A request that is dropped while it waits is not given back.
    KeepDroppedRequest,
    /// The last guard of a hold does not give it back.
    KeepDroppedHold,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 3] = [Mutant::FenceWithoutMember, Mutant::KeepDroppedRequest, Mutant::KeepDroppedHold];
}

/// Plants a break on this thread, or takes it out again.
pub fn plant(mutant: Option<Mutant>) {
    PLANTED.set(mutant);
}

/// Whether it is the one that is planted.
#[cfg(elderlock_mutants)]
pub(crate) fn is_planted(mutant: Mutant) -> bool {
    PLANTED.get() == Some(mutant)
}
