//! Deliberate breaks of the core, compiled only with `--cfg elderlock_mutants`, to prove that the simulation's checks
//! can fail. Each is a mistake that somebody could make. The simulator plants one in a node's configuration and must
//! find it; where it is planted, the code says `planted!`.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The breaks that were asked for, whether planted or not: a bit each.
static ASKED_FOR: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// One deliberate break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProtocolMutant {
    /// Recovery does not wait for one of the members.
    SkipOneInRecovery,
    /// Recovery does not wait for members that are ghosts.
    AwaitNoGhosts,
    /// A recovering grantor serves those who ask meanwhile.
    ServeWhileRecovering,
    /// A grantor that does not act yet takes a `Release` for dealt with and forgets it: recovery brings back, from a report or from
    /// those who asked meanwhile, what ended while it went on. (What one that has ended so forgets, the check after a transfer
    /// finds: see `CheckNobody`.)
    ForgetWhatEnded,
    /// Recovery takes over holds and forgets who waits.
    LoseWaiters,
    /// Recovery turns the queue around.
    LosePlaces,
    /// Recovery serves those who asked meanwhile before those who waited.
    NewcomersFirst,
    /// An owner that has the suspension of a service, or waits for it, waits for a second one.
    WaitForItself,
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
    /// The elder deals a range to a grantor that asked for more, and then once more.
    DealMoreTwice,
    /// A founding begins one slot above its own clock, and not a second later.
    FoundAtTheClock,
    /// An elder that hears of a later view deals in its numbers before it has that view. (Whoever may still deal then has a
    /// clock beyond the bound, or nobody would have chosen that view: so this breaks nothing where clocks keep it.)
    DealInHeardView,
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
    /// Where refused connections count as deaths, one member that is refused is enough.
    DoubtAlone,
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
    /// A voter answers before its vote is on disk.
    TellUnstored,
    /// A proposer counts its own vote before that is on disk.
    CountUnstored,
    /// A member says that its directory has a view before that is on disk.
    CallItKept,
    /// An heir votes at once.
    HeirVotesAtOnce,
    /// What was under way is lost with its connection.
    LoseInFlight,
    /// A message that arrives twice is heard twice.
    HearTwice,
    /// All that a link has kept is sent again in one go, with each connection that is opened.
    RepeatAllAtOnce,
    /// Detours go through the council in turn, whoever of it reaches the other side.
    DetoursInTurn,
    /// A grantor that has handed its table over goes on granting.
    GrantAfterHand,
    /// A table is handed over without those who wait.
    HandOverNoWaits,
    /// A table is handed over without its last hold.
    HandOverOneHoldLess,
    /// All who wait are handed over with the last one's place.
    HandOverNoPlaces,
    /// A young turk that is asked before all of its table has come passes on what it has.
    HandOverWhatIsThere,
    /// A young turk acts when the first part of its table has come.
    ActOnFirstPart,
    /// A young turk acts although a younger one has asked for the table.
    ActBeforeHeir,
    /// A young turk takes the word that there is no table for an empty table.
    TakeNoTableForEmpty,
    /// A young turk takes over what those have in the table who have left the view.
    TakeOverTheDead,
    /// A young turk waits on for the table of one that has left the view.
    WaitForTheGone,
    /// A young turk that passes its table on says nothing to those who asked it meanwhile.
    ForgetThoseWhoAsked,
    /// Nobody is asked what was on its way when a table changed hands: a `Release` that comes to the grantor before is taken for
    /// dealt with, and the table that it has handed over has the request for ever.
    CheckNobody,
    /// Who asked to become grantor is told that it is as soon as it is named.
    WinWhenNamed,
    /// A grantor that leaves calls its table empty.
    CallItVacant,
    /// A service is suspended while others hold its locks.
    SuspendBesideHolds,
    /// A lock of a suspended service is granted.
    LockThoughSuspended,
    /// A member does not report that it has a service suspended.
    KeepSuspensionToItself,
    /// Of a batch the table keeps the first lock only.
    TearBatch,
    /// Destroying a service does not wait for the grantor's word.
    DestroyedAtOnce,
    /// Who has handed a table over says for the new grantor that nothing is left of a destroyed service.
    SettleElsewhere,
    /// Of the young turks that wait the elder names the first, and tells it that the others came after it.
    NameTheOutbid,
    /// Who gave its vote to a candidate waits anew for that one whenever it repeats itself.
    YieldForEver,
    /// A ghost that is heard is a member again, though it hears nothing itself.
    ReviveTheDeaf,
    /// Who beats stays, though it cannot hear which view there is.
    KeepTheDeaf,
    /// Who was named by a former elder and has not begun begins all the same.
    BeginForFormerElder,
    /// Who asked once more to become grantor takes the word that it was outbid before for an answer.
    HeedOldOutbids,
    /// A young turk that is asked for its table says that the elder won over it.
    CallTheElderWinner,
    /// A table is handed over without what those in it say of themselves.
    HandOverNoMetadata,
    /// A young turk counts from the table's arrival how long those in it have held.
    TakeOverAsNew,
    /// A member does not report on whose behalf it holds and waits.
    ReportNoOwners,
    /// A grantor that does not act yet tells what it has heard so far as if that were all.
    SeeBeforeActing,
    /// Who waits is told with the last one first.
    SeeWaitersBackwards,
    /// Who leaves without a word from anybody says that it was heard.
    CallItHeard,
    /// A lock is granted though others have shares of it, of which the table then knows nothing.
    LockBesideShares,
    /// A share is granted beside others though somebody waits for the lock before it.
    ShareOvertakesLock,
    /// Permits are granted beside others, however many there are.
    PermitsAboveLimit,
    /// A lock that becomes a share is free for a moment: who waits for the lock gets it.
    DowngradeLetsIn,
    /// Permits that are given back count twice.
    GiveBackTwice,
    /// A share becomes the lock though others have shares.
    UpgradeBesideOthers,
    /// A share that becomes the lock keeps its token.
    UpgradeWithOldToken,
    /// A write whose answer was lost with its grantor is made again.
    WriteTwice,
    /// A step whose answer was lost with its grantor is taken again.
    StepTwice,
    /// A sum that has no 32 bits begins anew from below.
    StepWraps,
    /// Only the writer is told what was written.
    TellWriterOnly,
    /// Who is told that it has written goes on with the value that it knew.
    AnswerWithoutValue,
    /// What was asked for by a grantor that recovers is not marked as maybe stale.
    CallItSure,
    /// Of two values that are reported the first one counts.
    FirstValueWins,
    /// What is handed over is marked as maybe stale.
    StaleByTransfer,
    /// A table is handed over without those who have objects open.
    HandOverNoOpens,
    /// A table is handed over without the values of objects.
    HandOverNoValues,
    /// A hold is taken away though its holder has not been told that it is wanted back.
    TakeUntold,
    /// A hold that is taken away is given back, and its guard goes on.
    TakeUnheard,
    /// A lock that nobody has or waits for is granted past a suspension that waits.
    GrantPastSuspension,
    /// Who asks for its place is told the one behind it.
    TellPlaceOneLater,
    /// A grantor that goes wants the oldest to follow it, whoever has most in the table.
    YieldToOldest,
    /// A suspension that would wait for one which waits for it waits all the same.
    QueueDeadlock,
    /// Nothing is said to a suspension that would wait for one which waits for it.
    DeadlockInSilence,
    /// An object keeps the last write of those who have closed it, or are gone.
    KeepWritesOfTheGone,
    /// The first part of an inventory is taken for all of it.
    InventoryEndsEarly,
    /// Who has promised its vote to a candidate goes on standing by the elder.
    StandByElderThoughBound,
    /// An elder that has promised its vote to a candidate goes on renewing.
    RenewThoughDeposed,
    /// The elder believes of any grantor that nobody holds anything, whomever it has named since.
    BelieveAnyVacant,
    /// A grantor that ends tells nobody who waits in its table.
    EndInSilence,
    /// Waits that were reported without a place stand behind those that have one, also behind later ones of their own member.
    ForgetOwnOrder,
    /// Who decides a view without itself goes before those who go on have it.
    ForgetAtOnce,
    /// A grantor whose member's lease is over tells what it sees.
    SeeWithoutLease,
    /// A new view renews the lease of its members.
    ViewRenewsLease,
    /// What can be done at once is done though something is due.
    AtOnceThoughLate,
    /// A grantor that recovers does not ask those who join meanwhile.
    AskNoJoiners,
    /// Who accepts a ballot has not promised it its vote.
    AcceptPromisesNothing,
}

/// By its name.
impl FromStr for ProtocolMutant {
    type Err = String;

    fn from_str(name: &str) -> Result<ProtocolMutant, String> {
        let is_it = |mutant: &ProtocolMutant| format!("{mutant:?}") == name;
        ProtocolMutant::ALL
            .into_iter()
            .find(is_it)
            .ok_or_else(|| format!("no break is called {name}; there are {:?}", ProtocolMutant::ALL))
    }
}

impl ProtocolMutant {
    /// Whether it is the one that is planted.
    pub(crate) fn is_planted(self, planted: Option<ProtocolMutant>) -> bool {
        let (word, bit) = self.bit();
        if ASKED_FOR[word].load(Ordering::Relaxed) & bit == 0 {
            ASKED_FOR[word].fetch_or(bit, Ordering::Relaxed);
        }
        planted == Some(self)
    }

    /// Whose lines some core of this process has come to since this was last asked. A run that comes to none of a
    /// break's lines goes the same way with the break planted.
    pub fn asked_for() -> Vec<ProtocolMutant> {
        let words = ASKED_FOR.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
        let is_set = |mutant: &ProtocolMutant| words[mutant.bit().0] & mutant.bit().1 != 0;
        ProtocolMutant::ALL.into_iter().filter(is_set).collect()
    }

    /// Its bit among those that were asked for: in which word, and there.
    fn bit(self) -> (usize, u64) {
        (self as usize / 64, 1 << (self as usize % 64))
    }

    /// All of them.
    pub const ALL: [ProtocolMutant; 124] = [
        ProtocolMutant::SkipOneInRecovery,
        ProtocolMutant::AwaitNoGhosts,
        ProtocolMutant::ServeWhileRecovering,
        ProtocolMutant::ForgetWhatEnded,
        ProtocolMutant::LoseWaiters,
        ProtocolMutant::LosePlaces,
        ProtocolMutant::NewcomersFirst,
        ProtocolMutant::WaitForItself,
        ProtocolMutant::ReportNoWaits,
        ProtocolMutant::ReportNoWonHold,
        ProtocolMutant::AcceptOlderEpoch,
        ProtocolMutant::ReuseTokens,
        ProtocolMutant::DealTwice,
        ProtocolMutant::DealMoreTwice,
        ProtocolMutant::FoundAtTheClock,
        ProtocolMutant::DealInHeardView,
        ProtocolMutant::FreeOnHint,
        ProtocolMutant::FreeGhosts,
        ProtocolMutant::GrantWhileSuspended,
        ProtocolMutant::HoldWhileSuspended,
        ProtocolMutant::TellNobodyOfLeaseEnd,
        ProtocolMutant::KeepUnwantedGrant,
        ProtocolMutant::ForgetEarlyDone,
        ProtocolMutant::AnswerTwice,
        ProtocolMutant::CallUnheardFree,
        ProtocolMutant::IgnoreHearsay,
        ProtocolMutant::HeedFormerElder,
        ProtocolMutant::ActInOldView,
        ProtocolMutant::LeaseFromReceipt,
        ProtocolMutant::LeaseWithoutEnd,
        ProtocolMutant::RenewWithoutQuorum,
        ProtocolMutant::RenewCondemned,
        ProtocolMutant::RenewTheDeaf,
        ProtocolMutant::RemoveEarly,
        ProtocolMutant::ForgetEarlierLeases,
        ProtocolMutant::ForgetGhosts,
        ProtocolMutant::TrustRefused,
        ProtocolMutant::DoubtAlone,
        ProtocolMutant::VoteEarly,
        ProtocolMutant::ForgetPromiseOverView,
        ProtocolMutant::ForgetAccepted,
        ProtocolMutant::BreakPromise,
        ProtocolMutant::StayThoughExpelled,
        ProtocolMutant::VoteThoughExpelled,
        ProtocolMutant::FoundWithoutAll,
        ProtocolMutant::ForgetOnDisk,
        ProtocolMutant::TellUnstored,
        ProtocolMutant::CountUnstored,
        ProtocolMutant::CallItKept,
        ProtocolMutant::HeirVotesAtOnce,
        ProtocolMutant::LoseInFlight,
        ProtocolMutant::HearTwice,
        ProtocolMutant::RepeatAllAtOnce,
        ProtocolMutant::DetoursInTurn,
        ProtocolMutant::GrantAfterHand,
        ProtocolMutant::HandOverNoWaits,
        ProtocolMutant::HandOverOneHoldLess,
        ProtocolMutant::HandOverNoPlaces,
        ProtocolMutant::HandOverWhatIsThere,
        ProtocolMutant::ActOnFirstPart,
        ProtocolMutant::ActBeforeHeir,
        ProtocolMutant::TakeNoTableForEmpty,
        ProtocolMutant::TakeOverTheDead,
        ProtocolMutant::WaitForTheGone,
        ProtocolMutant::ForgetThoseWhoAsked,
        ProtocolMutant::CheckNobody,
        ProtocolMutant::WinWhenNamed,
        ProtocolMutant::CallItVacant,
        ProtocolMutant::SuspendBesideHolds,
        ProtocolMutant::LockThoughSuspended,
        ProtocolMutant::KeepSuspensionToItself,
        ProtocolMutant::TearBatch,
        ProtocolMutant::DestroyedAtOnce,
        ProtocolMutant::SettleElsewhere,
        ProtocolMutant::NameTheOutbid,
        ProtocolMutant::HeedOldOutbids,
        ProtocolMutant::BeginForFormerElder,
        ProtocolMutant::KeepTheDeaf,
        ProtocolMutant::ReviveTheDeaf,
        ProtocolMutant::YieldForEver,
        ProtocolMutant::CallTheElderWinner,
        ProtocolMutant::HandOverNoMetadata,
        ProtocolMutant::TakeOverAsNew,
        ProtocolMutant::ReportNoOwners,
        ProtocolMutant::SeeBeforeActing,
        ProtocolMutant::SeeWaitersBackwards,
        ProtocolMutant::CallItHeard,
        ProtocolMutant::LockBesideShares,
        ProtocolMutant::ShareOvertakesLock,
        ProtocolMutant::PermitsAboveLimit,
        ProtocolMutant::DowngradeLetsIn,
        ProtocolMutant::GiveBackTwice,
        ProtocolMutant::UpgradeBesideOthers,
        ProtocolMutant::UpgradeWithOldToken,
        ProtocolMutant::WriteTwice,
        ProtocolMutant::StepTwice,
        ProtocolMutant::StepWraps,
        ProtocolMutant::TellWriterOnly,
        ProtocolMutant::AnswerWithoutValue,
        ProtocolMutant::CallItSure,
        ProtocolMutant::FirstValueWins,
        ProtocolMutant::StaleByTransfer,
        ProtocolMutant::HandOverNoOpens,
        ProtocolMutant::HandOverNoValues,
        ProtocolMutant::TakeUntold,
        ProtocolMutant::TakeUnheard,
        ProtocolMutant::GrantPastSuspension,
        ProtocolMutant::TellPlaceOneLater,
        ProtocolMutant::YieldToOldest,
        ProtocolMutant::QueueDeadlock,
        ProtocolMutant::DeadlockInSilence,
        ProtocolMutant::KeepWritesOfTheGone,
        ProtocolMutant::InventoryEndsEarly,
        ProtocolMutant::StandByElderThoughBound,
        ProtocolMutant::RenewThoughDeposed,
        ProtocolMutant::BelieveAnyVacant,
        ProtocolMutant::EndInSilence,
        ProtocolMutant::ForgetOwnOrder,
        ProtocolMutant::ForgetAtOnce,
        ProtocolMutant::SeeWithoutLease,
        ProtocolMutant::ViewRenewsLease,
        ProtocolMutant::AtOnceThoughLate,
        ProtocolMutant::AskNoJoiners,
        ProtocolMutant::AcceptPromisesNothing,
    ];
}
