//! Planted breaks of the layers above the core, to prove that the simulation of whole members can
//! fail. Each is a mistake that a programmer could make. The feature `simulated` compiles the list;
//! only a build with `--cfg elderlock_mutants` can plant a break. The macro `planted!` marks the
//! places in the code. The planted breaks of the core are in `protocol/mutant.rs`.

use std::cell::Cell;

thread_local! {
    static PLANTED: Cell<Option<RuntimeMutant>> = const { Cell::new(None) };
}

/// One planted break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum RuntimeMutant {
    /// A guard checks the lock's lease but not the member's.
    FenceWithoutMember,
    /// A request that is dropped while it waits is not released.
    KeepDroppedRequest,
    /// The last guard of a hold does not release it.
    KeepDroppedHold,
    /// A release is reported as confirmed though no grantor knows of it.
    ConfirmUnheard,
    /// A reentrant mutex lets every owner of its member in while one of them has it.
    EnterForOthers,
    /// A reentrant mutex that its owner has already is requested again.
    AskAgain,
    /// A grant of a reentrant mutex is not reported to the other tasks of the same owner.
    LetNoSiblingIn,
    /// The first dropped guard of a hold releases it, and the other guards stay good.
    ReleaseWithFirst,
    /// A multi lock requests locks again that its owner has already.
    MultiAsksAgain,
    /// A multi lock takes its services in the order in which the caller named them.
    MultiWithoutOrder,
    /// A multi lock whose wait ends keeps the locks that it has so far.
    MultiKeepsFirst,
    /// A leadership term continues though its lock is lost.
    LeadOn,
    /// The work of a selector continues when its term is over.
    WorkOn,
    /// A running selector ends when it loses a term.
    EndWithTerm,
    /// A selector whose work is done does not queue again.
    StandOnce,
    /// A leader latch reports twice that it leads.
    TellTwice,
    /// A leader latch that loses its lock does not report that it leads no longer.
    LoseInSilence,
    /// A share whose upgrade was refused is passed out as the lock.
    UpgradeBlindly,
    /// A read/write lock gives a share to a caller that asks to write.
    ReadForWrite,
    /// An owner that only reads enters as a writer.
    WriteByShare,
    /// The first guard that ends turns the lock into a share, though its owner also writes.
    ReadWithFirst,
    /// A holder of permits counts one more than were granted.
    CountOneMore,
    /// A holder still counts the permits that it has returned.
    ReturnedAndKept,
    /// A permit that ends returns two.
    PermitReturnsTwo,
    /// A permit that ends returns nothing, until the last of its hold ends.
    KeepDroppedPermit,
    /// Permits that were granted together share one token.
    PermitsAlike,
    /// A conditional change of a count is made in every case.
    SetWithoutLook,
    /// A conditional change of a counter is made in every case.
    CounterWithoutLook,
    /// A holder that reads the value of its lock does not tell the grantor.
    ReadInSilence,
    /// A write to a lock's value that met another write overwrites it, even that of a later holder.
    WriteOverLater,
    /// A waiter at a barrier does not look at the barrier.
    GateAlwaysOpen,
    /// A waiter ignores a removal if the barrier is set again before the waiter looks.
    GateForgets,
    /// A round of a double barrier begins with one task too few.
    RoundOfOneLess,
    /// A task that leaves a round does not wait for the others.
    LeaveAlone,
    /// A latch opens at the count of one.
    LatchOneEarly,
    /// A count-down writes the count that it saw, less one, over any present count.
    CountDownBlindly,
    /// No reader is told that a member is suspended.
    SuspendInSilence,
    /// A member that is connected again is reported as if it had never been disconnected.
    ConnectAgain,
    /// The guards of a member stay good though it is suspended, or lost.
    GuardsOutliveMember,
    /// A holder is told twice that its lock is requested back.
    WantTwice,
    /// A holder is not told that its lock is requested back, and is reported as told.
    WantInSilence,
    /// The guards of a lock that was revoked by force stay valid.
    TakenAndKept,
    /// A lock whose holder has not been told is reported as revoked.
    CallItTaken,
    /// The guard of a partition stays good though the partition is lost or released.
    OwnOn,
    /// A claimant that owns too many partitions releases none.
    KeepSurplus,
    /// A claimant is content with one partition less than its share.
    TakeOneLess,
    /// A schedule notes the tick before the tick that has finished.
    NoteTickBefore,
    /// Scoped work that has completed leaves its lock held.
    ScopeKeepsLock,
}

impl RuntimeMutant {
    /// All planted breaks of this list.
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
