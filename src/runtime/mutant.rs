//! Planted breaks of the layers above the core, to prove that the simulation of whole members
//! can fail. Each is a mistake that a programmer could make. The feature `simulated` has the list;
//! only a build with `--cfg elderlock_mutants` asks it. Where one is planted, the code says
//! `planted!`. Those of the core are in `protocol/mutant.rs`.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<RuntimeMutant>> = const { Cell::new(None) };
}

/// One planted break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RuntimeMutant {
    /// A guard looks at the lock's lease and not at the member's.
    FenceWithoutMember,
    /// A request that is dropped while it waits is not released.
    KeepDroppedRequest,
    /// The last guard of a hold does not release it.
    KeepDroppedHold,
    /// A release is reported as confirmed though no grantor has heard of it.
    ConfirmUnheard,
    /// A reentrant mutex lets every owner of its member in while one of them has it.
    EnterForOthers,
    /// A reentrant mutex that its owner has is requested anew.
    AskAgain,
    /// A grant of a reentrant mutex is not told to the other tasks of the same owner.
    LetNoSiblingIn,
    /// The first dropped guard of a hold releases it, and the other guards stay good.
    ReleaseWithFirst,
    /// A multi lock asks anew for its owner's locks.
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
    /// A selector whose work is done does not queue again.
    StandOnce,
    /// A leader latch tells twice that it leads.
    TellTwice,
    /// A leader latch that loses its lock does not tell that it leads no more.
    LoseInSilence,
    /// A share that was refused to become the lock is given out as the lock.
    UpgradeBlindly,
    /// A read/write lock gives a share to a caller that asks to write.
    ReadForWrite,
    /// An owner that only reads enters as a writer.
    WriteByShare,
    /// The first guard that ends makes the lock a share, of an owner that writes and reads.
    ReadWithFirst,
    /// A holder of permits believes in one more than were granted.
    CountOneMore,
    /// Permits that were returned early are still there for their former holder.
    ReturnedAndKept,
    /// A permit that ends returns two.
    PermitReturnsTwo,
    /// A permit that ends returns nothing, until the last of its hold ends.
    KeepDroppedPermit,
    /// Permits that were granted together have one token.
    PermitsAlike,
    /// A conditional change of a count is made in every case.
    SetWithoutLook,
    /// A conditional change of a counter is made in every case.
    CounterWithoutLook,
    /// A holder that reads the value of its lock does not tell the grantor.
    ReadInSilence,
    /// A write into the value of a lock that met another write is made over that, even over a later
    /// holder's.
    WriteOverLater,
    /// A waiter at a barrier does not look at the barrier.
    GateAlwaysOpen,
    /// A waiter at a barrier must see it without being set, and does not only hear that it was
    /// removed.
    GateForgets,
    /// A round of a double barrier begins with one less than it takes.
    RoundOfOneLess,
    /// A task that leaves a round does not wait for the others.
    LeaveAlone,
    /// A latch opens at one.
    LatchOneEarly,
    /// A count-down writes the seen count, less one, over any present count.
    CountDownBlindly,
    /// No reader is told that a member is suspended.
    SuspendInSilence,
    /// A member that is connected again is told so as if it had never been otherwise.
    ConnectAgain,
    /// The guards of a member stay good though it is suspended, or lost.
    GuardsOutliveMember,
    /// A holder is told twice that its lock is requested back.
    WantTwice,
    /// A holder is not told that its lock is requested back, and is reported as told.
    WantInSilence,
    /// The guards of a lock that was taken away stay good.
    TakenAndKept,
    /// A lock whose holder has not been told is reported as taken away.
    CallItTaken,
    /// The guard of a partition stays good though the partition is lost or given up.
    OwnOn,
    /// A claimant that owns too many partitions gives none up.
    KeepSurplus,
    /// A claimant is content with one partition less than its share.
    TakeOneLess,
    /// A schedule notes the tick before the tick that has finished.
    NoteTickBefore,
    /// Scoped work that has completed leaves its lock held.
    ScopeKeepsLock,
}

impl RuntimeMutant {
    /// All of them.
    pub const ALL: [RuntimeMutant; 48] = [
        RuntimeMutant::FenceWithoutMember,
        RuntimeMutant::KeepDroppedRequest,
        RuntimeMutant::KeepDroppedHold,
        RuntimeMutant::ConfirmUnheard,
        RuntimeMutant::EnterForOthers,
        RuntimeMutant::AskAgain,
        RuntimeMutant::LetNoSiblingIn,
        RuntimeMutant::ReleaseWithFirst,
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
        RuntimeMutant::WriteByShare,
        RuntimeMutant::ReadWithFirst,
        RuntimeMutant::CountOneMore,
        RuntimeMutant::ReturnedAndKept,
        RuntimeMutant::PermitReturnsTwo,
        RuntimeMutant::KeepDroppedPermit,
        RuntimeMutant::PermitsAlike,
        RuntimeMutant::SetWithoutLook,
        RuntimeMutant::CounterWithoutLook,
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
        RuntimeMutant::OwnOn,
        RuntimeMutant::KeepSurplus,
        RuntimeMutant::TakeOneLess,
        RuntimeMutant::NoteTickBefore,
        RuntimeMutant::ScopeKeepsLock,
    ];
}

/// Plants a break on this thread, or takes it out again.
pub fn plant(mutant: Option<RuntimeMutant>) {
    PLANTED.set(mutant);
}

/// Returns whether a hold is lost with its member's lease, and not by itself.
#[cfg(elderlock_mutants)]
pub(crate) fn is_of_member(reason: crate::protocol::LostReason) -> bool {
    use crate::protocol::LostReason;
    matches!(reason, LostReason::Suspended | LostReason::Expelled | LostReason::Left)
}

/// Returns whether this break is planted.
#[cfg(elderlock_mutants)]
pub(crate) fn is_planted(mutant: RuntimeMutant) -> bool {
    PLANTED.get() == Some(mutant)
}
