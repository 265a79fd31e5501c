//! Deliberate breaks of the core, compiled only with `--cfg elderlock_mutants`, to prove that the simulation's checks
//! can fail. The simulator plants one in a node's configuration and must find it.

/// One deliberate break.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Mutant {
    /// Recovery does not wait for one of the members.
    SkipOneInRecovery,
    /// A member counts its lease from the renewal's arrival, not from its own asking.
    LeaseFromReceipt,
    /// A member accepts the grant of an epoch that has ended. A script finds it (`sim/tests/locks.rs`): as long as a
    /// replaced grantor is out of the view, or about to be, chance hardly ever gets there.
    AcceptOlderEpoch,
    /// A member of the council keeps to itself what it accepted before.
    ForgetAccepted,
    /// A recovering grantor starts with tokens that were given out before.
    ReuseTokens,
    /// The elder renews leases although no quorum stands by it.
    RenewWithoutQuorum,
    /// A grantor frees the locks of a member that some hint calls unreachable.
    FreeOnHint,
    /// A takeover drops the unreachable at once instead of keeping them as ghosts.
    ForgetGhosts,
    /// Recovery turns the queue around.
    LosePlaces,
    /// Recovery takes over holds and forgets who waits.
    LoseWaiters,
    /// A grantor frees the locks of a member that a view calls a ghost, instead of waiting for it to leave the view.
    FreeGhosts,
}

impl Mutant {
    /// Those that chaos must find.
    pub const CHAOS: [Mutant; 11] = [
        Mutant::SkipOneInRecovery,
        Mutant::LeaseFromReceipt,
        Mutant::ForgetAccepted,
        Mutant::ReuseTokens,
        Mutant::RenewWithoutQuorum,
        Mutant::FreeOnHint,
        Mutant::ForgetGhosts,
        Mutant::LosePlaces,
        Mutant::LoseWaiters,
        Mutant::FreeGhosts,
        Mutant::AcceptOlderEpoch,
    ];
}
