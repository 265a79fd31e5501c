//! Deliberate breaks of what is above the core, to prove that the simulation of whole members can fail. Each is a
//! mistake that somebody could make. They work only with `--cfg elderlock_mutants` and the feature `simulated`; where
//! one is planted, the code says `planted!`. Those of the core are in `protocol/mutant.rs`.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<RuntimeMutant>> = const { Cell::new(None) };
}

/// One deliberate break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RuntimeMutant {
    /// A guard looks at the lock's lease and not at the member's.
    FenceWithoutMember,
    /// A request that is dropped while it waits is not given back.
    KeepDroppedRequest,
    /// The last guard of a hold does not give it back.
    KeepDroppedHold,
    /// A release is said to be confirmed though no grantor has heard of it.
    ConfirmUnheard,
    /// A reentrant mutex lets every owner of its member in while one of them has it.
    EnterForOthers,
    /// A reentrant mutex that its owner has is asked for anew.
    AskAgain,
    /// Whoever is granted a reentrant mutex does not tell the other tasks of the same owner.
    LetNoSiblingIn,
    /// The first guard of a hold that is dropped gives it back, and the others believe on.
    GiveBackWithFirst,
    /// A multi lock asks anew for what its owner has.
    MultiAsksAgain,
    /// A multi lock takes its services in the order in which they were named.
    MultiWithoutOrder,
    /// A multi lock whose wait ends keeps the locks that it had.
    MultiKeepsFirst,
    /// A term of leadership goes on though its lock is lost.
    LeadOn,
    /// The work of a selector goes on when its term is over.
    WorkOn,
    /// A selector that runs ends with a term that it loses.
    EndWithTerm,
    /// A selector whose work is done does not stand in line again.
    StandOnce,
    /// A leader latch tells twice that it leads.
    TellTwice,
    /// A leader latch that loses its lock does not tell that it leads no more.
    LoseInSilence,
    /// A share that was refused to become the lock is given out as the lock.
    UpgradeBlindly,
    /// A read/write lock gives a share to whoever asks to write.
    ReadForWrite,
    /// Whoever has permits believes in one more than were granted.
    CountOneMore,
    /// Permits that were given back early are still there for whoever had them.
    GivenBackAndKept,
    /// A lease of one permit that ends gives two back.
    LeaseGivesTwo,
    /// A lease of one permit that ends gives nothing back, until the last of its hold ends.
    KeepDroppedLease,
    /// The leases of permits that were granted together have one token.
    LeasesAlike,
    /// A conditional change of a count is made whatever the count is.
    SetWithoutLook,
    /// Whoever reads the value of its lock says nothing of it to the grantor.
    ReadInSilence,
    /// A write into the value of a lock that met another one is made over that, whoever wrote it.
    WriteOverLater,
    /// Who waits at a barrier looks at nothing.
    GateAlwaysOpen,
    /// Who waits at a barrier wants to see it without being set, and not only to hear that it was removed.
    GateForgets,
    /// A round of a double barrier begins with one less than it takes.
    RoundOfOneLess,
    /// Whoever leaves a round does not wait for the others.
    LeaveAlone,
    /// A latch opens at one.
    LatchOneEarly,
    /// A count-down writes what it has seen, less one, whatever the count is.
    CountDownBlindly,
    /// Nobody is told that a member is suspended.
    SuspendInSilence,
    /// Whoever is connected again is told as if it had never been otherwise.
    ConnectAgain,
    /// The guards of a member stay good though it is suspended, or lost.
    GuardsOutliveMember,
    /// A holder is told twice that its lock is wanted back.
    WantTwice,
    /// A holder is not told that its lock is wanted back, and is said to have been.
    WantInSilence,
    /// The guards of a lock that was taken away stay good.
    TakenAndKept,
    /// A lock whose holder has not been told is said to be taken away.
    CallItTaken,
}

impl RuntimeMutant {
    /// All of them.
    pub const ALL: [RuntimeMutant; 40] = [
        RuntimeMutant::FenceWithoutMember,
        RuntimeMutant::KeepDroppedRequest,
        RuntimeMutant::KeepDroppedHold,
        RuntimeMutant::ConfirmUnheard,
        RuntimeMutant::EnterForOthers,
        RuntimeMutant::AskAgain,
        RuntimeMutant::LetNoSiblingIn,
        RuntimeMutant::GiveBackWithFirst,
        RuntimeMutant::MultiAsksAgain,
        RuntimeMutant::MultiWithoutOrder,
        RuntimeMutant::MultiKeepsFirst,
        RuntimeMutant::LeadOn,
        RuntimeMutant::WorkOn,
        RuntimeMutant::EndWithTerm,
        RuntimeMutant::StandOnce,
        RuntimeMutant::TellTwice,
        RuntimeMutant::LoseInSilence,
        RuntimeMutant::UpgradeBlindly,
        RuntimeMutant::ReadForWrite,
        RuntimeMutant::CountOneMore,
        RuntimeMutant::GivenBackAndKept,
        RuntimeMutant::LeaseGivesTwo,
        RuntimeMutant::KeepDroppedLease,
        RuntimeMutant::LeasesAlike,
        RuntimeMutant::SetWithoutLook,
        RuntimeMutant::ReadInSilence,
        RuntimeMutant::WriteOverLater,
        RuntimeMutant::GateAlwaysOpen,
        RuntimeMutant::GateForgets,
        RuntimeMutant::RoundOfOneLess,
        RuntimeMutant::LeaveAlone,
        RuntimeMutant::LatchOneEarly,
        RuntimeMutant::CountDownBlindly,
        RuntimeMutant::SuspendInSilence,
        RuntimeMutant::ConnectAgain,
        RuntimeMutant::GuardsOutliveMember,
        RuntimeMutant::WantTwice,
        RuntimeMutant::WantInSilence,
        RuntimeMutant::TakenAndKept,
        RuntimeMutant::CallItTaken,
    ];
}

/// Plants a break on this thread, or takes it out again.
pub fn plant(mutant: Option<RuntimeMutant>) {
    PLANTED.set(mutant);
}

/// Whether it is the one that is planted.
#[cfg(elderlock_mutants)]
pub(crate) fn is_planted(mutant: RuntimeMutant) -> bool {
    PLANTED.get() == Some(mutant)
}
