//! Deliberate breaks of the core, compiled only with `--cfg elderlock_mutants`, to prove that the simulation's checks
//! can fail. Each is a mistake that somebody could make. The simulator plants one in a node's configuration and must
//! find it; where it is planted, the code says `planted!`.

/// One deliberate break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Mutant {
    /// Recovery does not wait for one of the members.
    SkipOneInRecovery,
    /// Recovery does not wait for members that are ghosts.
    AwaitNoGhosts,
    /// A recovering grantor serves those who ask meanwhile.
    ServeWhileRecovering,
    /// Recovery forgets which requests ended while it went on.
    ForgetWhatEnded,
    /// Recovery takes over holds and forgets who waits.
    LoseWaiters,
    /// Recovery turns the queue around.
    LosePlaces,
    /// Recovery serves those who asked meanwhile before those who waited.
    NewcomersFirst,
    /// A member reports its holds and not its waits.
    ReportNoWaits,
    /// A member does not report a lock that it was granted while suspended.
    ReportNoWonHold,
    /// A member accepts the grant of an epoch that has ended.
    AcceptOlderEpoch,
    /// A recovering grantor starts with tokens that were given out before.
    ReuseTokens,
    /// The elder deals the same range of tokens twice.
    DealTwice,
    /// A grantor frees the locks of a member that some hint calls unreachable.
    FreeOnHint,
    /// A grantor frees the locks of ghosts.
    FreeGhosts,
    /// A member whose lease does not run grants, and holds what it is granted. (A grantor that did so alone would harm
    /// nobody: whoever is granted is in the view, and heard before anybody else grants.)
    GrantWhileSuspended,
    /// A member's guards go on when its lease is over.
    HoldWhileSuspended,
    /// The end of a lock's lease is not told to the grantor.
    TellNobodyOfLeaseEnd,
    /// A wait that is given up is not told to the grantor, and the grant that comes of it is not given back. (Either
    /// alone is made good by the other.)
    KeepUnwantedGrant,
    /// A request that ended before its grantor had heard of its naming is served all the same.
    ForgetEarlyDone,
    /// A request that is granted twice is answered twice.
    AnswerTwice,
    /// An elder calls a service free before everybody has been heard.
    CallUnheardFree,
    /// An elder calls a service free that others have only heard of.
    IgnoreHearsay,
    /// A member heeds the word of an elder that is none any more.
    HeedFormerElder,
    /// A member acts on messages of a newer view before it has that view.
    ActInOldView,
    /// A member counts its lease from the renewal's arrival, not from its own asking.
    LeaseFromReceipt,
    /// A member's lease has no end once it ran.
    LeaseWithoutEnd,
    /// The elder renews leases although no quorum stands by it.
    RenewWithoutQuorum,
    /// The elder renews a member that a proposed view is without.
    RenewCondemned,
    /// The elder renews a member that does not hear it.
    RenewTheDeaf,
    /// The elder removes a silent member before its lease is over.
    RemoveEarly,
    /// A new elder takes the leases that earlier ones gave out to be over.
    ForgetEarlierLeases,
    /// A takeover drops the unreachable at once instead of keeping them as ghosts.
    ForgetGhosts,
    /// A refused connection counts as death although nobody said that it may.
    TrustRefused,
    /// A member of the council votes for another elder before its promise to the present one is over.
    VoteEarly,
    /// A new view ends the promise to its elder.
    ForgetPromiseOverView,
    /// A member of the council keeps to itself what it accepted before.
    ForgetAccepted,
    /// A member of the council votes below a ballot that it promised.
    BreakPromise,
    /// A process that a view is without stays in the view before.
    StayThoughExpelled,
    /// The same, and it votes there again as if it had promised nothing.
    VoteThoughExpelled,
    /// Seeds found without those that do not answer.
    FoundWithoutAll,
    /// What is promised and accepted is not kept on disk.
    ForgetOnDisk,
    /// An heir votes at once.
    HeirVotesAtOnce,
    /// What was under way is lost with its connection.
    LoseInFlight,
    /// A message that arrives twice is heard twice.
    HearTwice,
}

impl Mutant {
    /// All of them.
    pub const ALL: [Mutant; 44] = [
        Mutant::SkipOneInRecovery,
        Mutant::AwaitNoGhosts,
        Mutant::ServeWhileRecovering,
        Mutant::ForgetWhatEnded,
        Mutant::LoseWaiters,
        Mutant::LosePlaces,
        Mutant::NewcomersFirst,
        Mutant::ReportNoWaits,
        Mutant::ReportNoWonHold,
        Mutant::AcceptOlderEpoch,
        Mutant::ReuseTokens,
        Mutant::DealTwice,
        Mutant::FreeOnHint,
        Mutant::FreeGhosts,
        Mutant::GrantWhileSuspended,
        Mutant::HoldWhileSuspended,
        Mutant::TellNobodyOfLeaseEnd,
        Mutant::KeepUnwantedGrant,
        Mutant::ForgetEarlyDone,
        Mutant::AnswerTwice,
        Mutant::CallUnheardFree,
        Mutant::IgnoreHearsay,
        Mutant::HeedFormerElder,
        Mutant::ActInOldView,
        Mutant::LeaseFromReceipt,
        Mutant::LeaseWithoutEnd,
        Mutant::RenewWithoutQuorum,
        Mutant::RenewCondemned,
        Mutant::RenewTheDeaf,
        Mutant::RemoveEarly,
        Mutant::ForgetEarlierLeases,
        Mutant::ForgetGhosts,
        Mutant::TrustRefused,
        Mutant::VoteEarly,
        Mutant::ForgetPromiseOverView,
        Mutant::ForgetAccepted,
        Mutant::BreakPromise,
        Mutant::StayThoughExpelled,
        Mutant::VoteThoughExpelled,
        Mutant::FoundWithoutAll,
        Mutant::ForgetOnDisk,
        Mutant::HeirVotesAtOnce,
        Mutant::LoseInFlight,
        Mutant::HearTwice,
    ];
}
