//! Planted breaks of the core, compiled only with `--cfg elderlock_mutants`. They prove that the
//! simulation's checks can fail. Each one is a plausible mistake. The simulator plants one in a
//! node's configuration and must find it. The macro `planted!` marks each place in the code. A
//! break that needs more than a word or a statement is in a file `planted.rs` beside the code that
//! it breaks.

use std::str::FromStr;
use std::sync::atomic::{AtomicU64, Ordering};

/// The breaks whose code was reached, planted or not: one bit for each.
static ASKED_FOR: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

/// One planted break.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ProtocolMutant {
    /// Recovery does not wait for one of the members.
    SkipOneInRecovery,
    /// Recovery does not wait for members that are ghosts.
    AwaitNoGhosts,
    /// A recovering grantor serves requests that arrive meanwhile.
    ServeWhileRecovering,
    /// A grantor that does not act yet handles a `Release` at once and forgets it. Reports, or
    /// requests that arrived meanwhile, then bring the ended request back in the recovery. (After a
    /// transfer the revalidation finds releases that an ended grantor forgot in this way: see
    /// `SkipRevalidation`.)
    ForgetWhatEnded,
    /// Recovery restores the holds and forgets the waiters.
    LoseWaiters,
    /// Recovery reverses the queue.
    LosePositions,
    /// Recovery serves requests that arrived meanwhile before earlier waiters.
    NewcomersFirst,
    /// An owner that has the suspension of a service, or waits for it, waits for a second one.
    WaitForItself,
    /// A member reports its holds and not its waits.
    ReportNoWaits,
    /// A recovering grantor that gets a predecessor's table forgets the waits that members have
    /// reported to it.
    LoseWaitsBesideTable,
    /// A grantor that recovered and then got a table takes an answer to its recovery for one to its
    /// revalidation.
    BelieveOutdatedReport,
    /// An elder learns of the epochs that members know only from their inventories.
    HearOnlyInventories,
    /// A new elder takes a service for free though a lost member has not answered.
    CallLostFree,
    /// A member does not report a lock that it was granted while suspended.
    ReportNoWonHold,
    /// A member accepts the grant of an epoch that has ended.
    AcceptOlderEpoch,
    /// A recovering grantor starts with tokens that were dealt before.
    ReuseTokens,
    /// The elder deals the same range of tokens twice.
    DealTwice,
    /// The elder deals the same range to a grantor that asked for more, and then once more.
    DealMoreTwice,
    /// A grantor that has used up its tokens accepts a range that was dealt before them.
    TakeOlderRange,
    /// A member releases a recalled lock, and grants it to itself nevertheless.
    UseAfterRecall,
    /// A member that uses a recalled lock reports it as free.
    ReleaseInUse,
    /// A grantor lets a member keep a lock, but grants with the member's tokens itself too.
    CarveNothing,
    /// A member asks to grant a service whenever another member grants it something.
    FollowAtOnce,
    /// A member that follows the load counts only its own tokens.
    MeterOwnOnly,
    /// A member keeps its free locks after it has answered a later grantor.
    KeepAcrossEpochs,
    /// A member that reports to a later grantor does not say which holds stand in for a kept lock.
    ReportWithoutPlace,
    /// A grantor lets a member keep a lock that others wait for, and does not recall it.
    KeepBesideWaiter,
    /// A grantor does not recall locks for a suspension.
    RecallForNoSuspension,
    /// A grantor answers a try with a holder whose member may keep the lock unused.
    RefuseTryForKeep,
    /// A grantor answers a query with locks that members may keep unused.
    TellFreeKeep,
    /// A member asks a grantor again for what it refused, before its report is complete.
    AskBesideReport,
    /// A grantor tells of a transferred hold whose member may have kept it and has not reported.
    TellUnreportedPlace,
    /// A member grants a kept lock a second time while it is in use.
    UseKeepTwice,
    /// A member that keeps a share grants itself the lock.
    UseShareAsLock,
    /// A grantor does not recall shares that members keep.
    RecallNoShare,
    /// A grantor that is told of several uses of a kept share records only one.
    ReplaceByOneShare,
    /// A member grants a kept lock with the same token again.
    RepeatKeptToken,
    /// A member does not release idle kept locks.
    KeepIdleForEver,
    /// A grantor that is told that a kept lock is in use records the use with the token of its own
    /// grant.
    KeepTokenOfPlace,
    /// A founding begins one slot above its own clock, and not a second later.
    FoundAtTheClock,
    /// An elder that learns of a later view deals that view's tokens before it has the view. (If it
    /// may still deal then, its clock is beyond the bound, or no quorum would have chosen that
    /// view. So this breaks nothing while clocks keep the bound.)
    DealInHeardView,
    /// A grantor frees the locks of a member that a hint calls unreachable.
    FreeOnHint,
    /// A grantor frees the locks of ghosts.
    FreeGhosts,
    /// A member whose lease does not run grants, and trusts its own grants. (A grantor that only
    /// granted would do no harm: each holder is in the view, and reports before another grantor
    /// grants.)
    GrantWhileSuspended,
    /// A member's guards stay valid when its lease is over.
    HoldWhileSuspended,
    /// The end of a lock's lease is not reported to the grantor.
    HideLeaseEnd,
    /// A cancelled wait is not reported to the grantor, and its later grant is not released.
    /// (Either of the two alone makes up for the other.)
    KeepUnwantedGrant,
    /// A request that ended before its grantor knew of its naming is granted nevertheless.
    ForgetEarlyDone,
    /// A request that is granted twice is answered twice.
    AnswerTwice,
    /// An elder calls a service free before every member has answered.
    CallUnheardFree,
    /// An elder calls a service free although members know of a grantor.
    IgnoreHearsay,
    /// A member obeys a message of a former elder.
    HeedFormerElder,
    /// A member acts on messages of a newer view before it has that view.
    ActInOldView,
    /// A member counts its lease from the arrival of the renewal, and not from its own beat.
    LeaseFromReceipt,
    /// A member's lease has no end once it has begun.
    LeaseWithoutEnd,
    /// The elder renews leases although no quorum confirms its pulses.
    RenewWithoutQuorum,
    /// The elder renews the lease of a member that a proposed view leaves out.
    RenewPendingRemoval,
    /// The elder renews the lease of a member that does not receive its messages.
    RenewTheDeaf,
    /// The elder removes a silent member before its lease is over.
    RemoveEarly,
    /// A new elder treats the leases of earlier elders as over.
    ForgetEarlierLeases,
    /// A takeover drops unreachable members at once instead of keeping them as ghosts.
    ForgetGhosts,
    /// A refused connection counts as death although the operator did not allow it.
    TrustRefused,
    /// Where refused connections count as deaths, one member that is refused is enough.
    SuspectAlone,
    /// A member whose connection to a suspected process breaks reports it as dead at once.
    CallBrokenUnreached,
    /// A member of the council votes for another elder before its promise to the present one is
    /// over.
    VoteEarly,
    /// A new view ends the promise to its elder.
    ForgetPromiseOverView,
    /// A member of the council does not report its earlier acceptance.
    ForgetAccepted,
    /// A member of the council votes below a ballot that it promised.
    BreakPromise,
    /// A process that a view leaves out remains in the view before.
    StayThoughExpelled,
    /// A process that a view leaves out remains in the view before, and votes there as if it had
    /// promised nothing.
    VoteThoughExpelled,
    /// A process votes as soon as a view lets it join.
    PromoteJoiners,
    /// A learner that has not shown that it lives gets a vote.
    PromoteTheSilent,
    /// All learners that have shown that they live get votes in one view, however few voters there
    /// are.
    PromoteAll,
    /// A stranger's statement about views counts though it was not asked.
    BelieveStrangers,
    /// The statement of a learner counts without a key, though it has not shown that it lives.
    BelieveLearners,
    /// An answer of any process counts in the choice of the next view.
    BelieveAnyVoter,
    /// A process may speak for another one that it names.
    BelieveNamedProcess,
    /// A process has the vote that it claims, with or without a proof.
    BelieveAnyClaim,
    /// A packet that a stranger relays counts as one of its stated origin.
    BelieveAnyRelay,
    /// A member does not pass on the packets of a learner.
    RefuseRelayOfLearner,
    /// A member on any host may vouch for a death.
    BelieveAnyWitness,
    /// A vouched death ends the holds of a member that serves sessions.
    VouchForSessions,
    /// A member accepts a grant with a token that its grantor cannot have.
    TakeAnyToken,
    /// Seeds found without the seeds that do not answer.
    FoundWithoutAll,
    /// A process founds with fewer members than it expects.
    FoundWithFewer,
    /// A process agrees to the foundings of several coordinators.
    AgreeTwice,
    /// Promises and acceptances are not stored on disk.
    ForgetOnDisk,
    /// A voter answers before its vote is on disk.
    TellUnstored,
    /// A proposer counts its own vote before that is on disk.
    CountUnstored,
    /// A member reports that its directory has a view before that view is on disk.
    CallItKept,
    /// An elder calls each view settled at once.
    CallItSettled,
    /// A vote successor votes at once.
    VoteSuccessorVotesAtOnce,
    /// Packets under way are lost with their connection.
    LoseInFlight,
    /// A message that arrives twice is delivered twice.
    HearTwice,
    /// A link takes a message ahead of its turn for the next one.
    SkipAhead,
    /// A link repeats all its unacknowledged messages at once, with each new connection.
    RepeatAllAtOnce,
    /// Detours use the council in turn, whether or not the member reaches the other side.
    DetoursInTurn,
    /// An elder answers directly only to a member that does not hear it.
    AnswerTheDeafStraight,
    /// A grantor that has transferred its table continues to grant.
    GrantAfterTransfer,
    /// A table is transferred without its waiters.
    TransferNoWaits,
    /// A table is transferred without its last hold.
    TransferOneHoldLess,
    /// All waiters are transferred with the last waiter's position.
    TransferNoPositions,
    /// A young turk that is asked before its whole table has arrived passes on the part that it
    /// has.
    TransferWhatIsThere,
    /// A young turk acts when the first chunk of its table has arrived.
    ActOnFirstPart,
    /// A young turk acts although a younger one has asked for the table.
    ActBeforeNextTurk,
    /// A recovering grantor acts on a predecessor's table before members have answered that may
    /// host a later predecessor.
    ActOnEarlierTable,
    /// A young turk takes the answer that there is no table for an empty table.
    TakeNoTableForEmpty,
    /// A young turk accepts the table's entries of members that have left the view.
    TakeOverTheDead,
    /// A young turk continues to wait for the table of a member that has left the view.
    WaitForTheGone,
    /// A young turk that passes its table on does not answer requests that arrived meanwhile.
    ForgetEarlyRequesters,
    /// The new grantor does not ask members for the changes that were on their way during the
    /// transfer. A `Release` that arrives at the former grantor counts as handled. The table that
    /// the former grantor has transferred keeps the request for ever.
    SkipRevalidation,
    /// A young turk is told that it is the grantor as soon as it is named.
    WinWhenNamed,
    /// A grantor that leaves calls its table empty.
    CallItVacant,
    /// A service is suspended while others hold its locks.
    SuspendBesideHolds,
    /// A lock of a suspended service is granted.
    LockThoughSuspended,
    /// A member does not report that it has suspended a service.
    KeepSuspensionToItself,
    /// The table keeps only the first lock of a batch.
    TearBatch,
    /// The destruction of a service does not wait for the grantor's confirmation.
    DestroyedAtOnce,
    /// A grantor that has transferred its table confirms, for the new grantor, that nothing is left
    /// of a destroyed service.
    SettleElsewhere,
    /// The elder names the first of the waiting young turks, and tells it that a later bid ended
    /// its own.
    NameTheOutbid,
    /// A voter that gave its vote to a candidate waits anew whenever the candidate repeats its
    /// message.
    YieldForEver,
    /// A ghost that is heard becomes a member again, though it does not hear the elder itself.
    ReviveTheDeaf,
    /// A member that beats remains, though it receives no view.
    KeepTheDeaf,
    /// A member that a former elder named and that has not begun to act begins nevertheless.
    BeginForFormerElder,
    /// A young turk with a newer bid takes the end of its earlier bid for the answer.
    HeedOldOutbids,
    /// A young turk that is asked for its table reports the elder as the winner.
    CallTheElderWinner,
    /// A table is transferred without the metadata of its requests.
    TransferNoMetadata,
    /// A young turk counts the age of the table's holds from the table's arrival.
    TakeOverAsNew,
    /// A member does not report the owners of its holds and waits.
    ReportNoOwners,
    /// A grantor that does not act yet answers queries from an incomplete table.
    SeeBeforeActing,
    /// A query lists the waiters with the last one first.
    SeeWaitersBackwards,
    /// A member that leaves without an answer reports that its goodbye was heard.
    CallItHeard,
    /// A lock is granted beside the shares of others, and the table forgets those shares.
    LockBesideShares,
    /// A share is granted beside others though an earlier request waits for the lock.
    ShareOvertakesLock,
    /// Permits are granted at any number beside others.
    PermitsAboveLimit,
    /// A lock that becomes a share is free for a moment: a waiter for the lock gets it.
    DowngradeLetsIn,
    /// Returned permits count twice.
    GiveBackTwice,
    /// A share becomes the lock beside the shares of others.
    UpgradeBesideOthers,
    /// A share that becomes the lock keeps its token.
    UpgradeWithOldToken,
    /// A write whose answer was lost with its grantor is made again.
    WriteTwice,
    /// A number edit whose answer was lost with its grantor is made again.
    StepTwice,
    /// A sum that overflows 32 bits wraps around.
    StepWraps,
    /// Only the writer is told of a write.
    TellWriterOnly,
    /// A writer that gets its answer continues with the value that it knew.
    AnswerWithoutValue,
    /// A recovering grantor does not mark reported contents as maybe stale.
    CallItSure,
    /// The first of two reported values is used.
    FirstValueWins,
    /// Transferred contents are marked as maybe stale.
    StaleByTransfer,
    /// A table is transferred without the members that have objects open.
    TransferNoOpens,
    /// A table is transferred without the values of objects.
    TransferNoValues,
    /// A hold is revoked before its holder has been told.
    TakeUntold,
    /// A revoked hold is released, and its guard remains valid.
    TakeUnheard,
    /// A lock without holder and waiter is granted past a waiting suspension.
    GrantPastSuspension,
    /// A query for a position is answered with the next one.
    TellPositionOneLater,
    /// A leaving grantor proposes the oldest member, and not the member with the most requests in
    /// the table.
    YieldToOldest,
    /// A suspension that would deadlock with another suspension waits nevertheless.
    QueueDeadlock,
    /// A suspension that would deadlock with another suspension gets no answer.
    DeadlockInSilence,
    /// An object keeps the last write of members that have closed it, or are gone.
    KeepWritesOfTheGone,
    /// The first chunk of an inventory counts as the whole.
    InventoryEndsEarly,
    /// A voter that has promised its vote to a candidate continues to confirm the elder's pulses.
    StandByElderThoughBound,
    /// An elder that has promised its vote to a candidate continues to renew leases.
    RenewThoughDeposed,
    /// The elder accepts any grantor's report of an empty table, though it has named another one
    /// since.
    BelieveAnyVacant,
    /// A grantor that ends does not tell the waiters in its table.
    EndInSilence,
    /// Waits that are reported without a position stand behind those with one, even behind later
    /// waits of their own member.
    ForgetOwnOrder,
    /// A member that decides a view without itself leaves before the remaining members have that
    /// view.
    ForgetAtOnce,
    /// A grantor whose member's lease is over answers queries.
    SeeWithoutLease,
    /// A new view renews the lease of its members.
    ViewRenewsLease,
    /// The fast path is used though something is due.
    AtOnceThoughLate,
    /// A recovering grantor does not ask members that join meanwhile.
    AskNoJoiners,
    /// A voter that accepts a ballot does not promise its vote to it.
    AcceptPromisesNothing,
    /// A grantor lets requests of its own member pass those that wait.
    ServeOwnFirst,
    /// A recovering grantor forgets the positions that its own member's requests had.
    LoseOwnPositions,
    /// A query for a position is answered with one hold too many.
    TellHoldsOneMore,
    /// A query for a position is answered without the suspension before it.
    TellNoSuspension,
    /// A query for blockers is answered with all holds under the name of the first one.
    TellFirstName,
    /// A holder's member lists the waits of all its owners.
    TellAllWaits,
    /// A suspension of the grantor's own member that would deadlock waits nevertheless.
    QueueOwnDeadlock,
    /// A suspension that would deadlock with one of another owner of its member waits nevertheless.
    QueueOwnersDeadlock,
    /// A holder's suspension is refused as a deadlock though the owner of the first waiting one has
    /// no hold.
    SuspectDeadlock,
    /// An elder deals beyond its clock and a second.
    DealBeyondLimit,
    /// A probe that has returned is trusted without its second round.
    TellUnconfirmed,
    /// A waiting request sends only one probe.
    ProbeOnce,
    /// A grantor forwards probes past earlier requests without asking their members.
    BelieveOwnQueue,
    /// A member ends a hold by an operator's order though it allows no forced revokes.
    ForceAnywhere,
    /// A view is raised to the highest version of any of its members.
    RaiseEarly,
    /// The elder lets a process join that does not know the version of the view.
    AdmitAnyVersion,
    /// A member encodes its messages in its highest version.
    SpeakHighest,
    /// A recovering grantor stores all waits of a report, at any size.
    KeepAllWaits,
    /// A grantor counts an open object with its present value.
    CountPresentValues,
    /// A recovering grantor accepts all objects that a member reports, at any size.
    TakeAllObjects,
    /// A recovering grantor leaves out holds that it has no room for, and does not tell their
    /// member.
    LeaveHoldsOut,
    /// A recovering grantor acts before a member knows that some of its holds have ended.
    ActBeforeSecondReport,
    /// A grantor leaves out reported waits that it has no room for, and does not tell their member.
    LeaveWaitsOut,
    /// A grantor stores the numbers of all requests that a member reports to a revalidation.
    NoteAllReported,
    /// A report to a revalidation ends requests though not all of its requests were noted.
    EndUnnoted,
    /// A grantor that does not act yet keeps the releases of members that have left the view.
    KeepWordOfTheGone,
    /// A grantor accepts a table of any size.
    TakeAnyTable,
    /// A grantor that has dropped a table takes the rest of that table for a whole one.
    TakeRestOfTable,
    /// A member asks once for a name that its elder may have refused.
    AskRefusedOnce,
    /// An elder drops a request for tokens of a service that an incomplete inventory may still
    /// name.
    DropTokensOfInventory,
    /// A member believes in an epoch that no elder can have dealt.
    BelieveAnyEpoch,
    /// A member accepts grants and contents of an epoch from a member that is not its grantor.
    HearAnyGrantor,
    /// A member accepts a content with a version that no grantor can have.
    TakeAnyVersion,
    /// A member keeps all requests for epochs that it does not know yet.
    KeepAllEarly,
    /// A member sends requests beyond its bounds.
    AskWithoutRoom,
    /// A member handles messages about locks of processes outside its view.
    HearStrangers,
    /// A member heeds the pulse of a process that is not its elder.
    HeedAnyPulse,
    /// A member takes the request of a stranger for another process to join.
    TakeAnyJoin,
    /// A process that has left a view may join again.
    AdmitTheGone,
    /// A member checks on another one when a stranger suspects it.
    SuspectForAny,
    /// A stranger's word on a death counts where refused connections do.
    HearAnyVoucher,
    /// A process founds with a stranger, without a key.
    FoundForAny,
    /// An elder keeps the goodbye of a process outside its view.
    KeepAnyGoodbye,
    /// An elder takes processes in, however many learners have not shown themselves.
    AdmitAllUnshown,
    /// A grantor does not tell a copy of its table which requests have ended.
    ForgetCopiedEndings,
    /// A grantor does not note changes of requests that a copy of its table has.
    ForgetCopiedChanges,
    /// A grantor ends its table without the last changes for the copy.
    KeepLastChanges,
    /// A turk takes any copy for the whole table.
    TrustAnySeal,
    /// A named turk acts on its copy without the grantor's last changes.
    ActOnCopy,
    /// A process without a key takes no answer from a voter of its remembered view for a proof.
    ForgetRememberedVoters,
    /// A member takes the request of a stranger to join that names a view of the future.
    TakeJoinOfLaterView,
    /// A recovering grantor opens a part though some members have reported nothing yet.
    OpenBeforeSilentMembers,
    /// A recovering grantor opens parts before members that joined meanwhile have reported them.
    OpenBeforeJoiners,
    /// A recovering grantor opens parts though a member has the suspension or waits for it.
    OpenBesideSuspension,
    /// A recovering grantor opens a part of which it has left holds out, before their member knows
    /// of their end.
    OpenBesideLeftOutHolds,
    /// A recovering grantor grants a batch when the first part of its names opens.
    GrantHalfOpenBatch,
    /// A member reports the hold of a batch in the highest part of its names.
    ReportBatchLate,
}

/// Reads the name of a planted break.
impl FromStr for ProtocolMutant {
    type Err = String;

    fn from_str(name: &str) -> Result<ProtocolMutant, String> {
        let is_it = |mutant: &ProtocolMutant| format!("{mutant:?}") == name;
        ProtocolMutant::ALL.into_iter().find(is_it).ok_or_else(|| {
            format!("no break is called {name}; there are {:?}", ProtocolMutant::ALL)
        })
    }
}

impl ProtocolMutant {
    /// Returns whether this break is planted.
    pub(crate) fn is_planted(self, planted: Option<ProtocolMutant>) -> bool {
        let (word, bit) = self.bit();
        if ASKED_FOR[word].load(Ordering::Relaxed) & bit == 0 {
            ASKED_FOR[word].fetch_or(bit, Ordering::Relaxed);
        }
        planted == Some(self)
    }

    /// The breaks whose code a core of this process has reached since the last call. A run that
    /// reaches no code of a break behaves the same with the break planted.
    pub fn asked_for() -> Vec<ProtocolMutant> {
        let words = ASKED_FOR.each_ref().map(|word| word.swap(0, Ordering::Relaxed));
        let is_set = |mutant: &ProtocolMutant| words[mutant.bit().0] & mutant.bit().1 != 0;
        ProtocolMutant::ALL.into_iter().filter(is_set).collect()
    }

    /// The bit of the break in `ASKED_FOR`: the word, and the mask within it.
    fn bit(self) -> (usize, u64) {
        (self as usize / 64, 1 << (self as usize % 64))
    }

    /// All planted breaks.
    pub const ALL: [ProtocolMutant; 226] = [
        ProtocolMutant::SkipOneInRecovery,
        ProtocolMutant::AwaitNoGhosts,
        ProtocolMutant::ServeWhileRecovering,
        ProtocolMutant::ForgetWhatEnded,
        ProtocolMutant::LoseWaiters,
        ProtocolMutant::LosePositions,
        ProtocolMutant::NewcomersFirst,
        ProtocolMutant::WaitForItself,
        ProtocolMutant::ReportNoWaits,
        ProtocolMutant::ReportNoWonHold,
        ProtocolMutant::AcceptOlderEpoch,
        ProtocolMutant::ReuseTokens,
        ProtocolMutant::DealTwice,
        ProtocolMutant::DealMoreTwice,
        ProtocolMutant::TakeOlderRange,
        ProtocolMutant::UseAfterRecall,
        ProtocolMutant::ReleaseInUse,
        ProtocolMutant::CarveNothing,
        ProtocolMutant::FollowAtOnce,
        ProtocolMutant::MeterOwnOnly,
        ProtocolMutant::KeepAcrossEpochs,
        ProtocolMutant::ReportWithoutPlace,
        ProtocolMutant::KeepBesideWaiter,
        ProtocolMutant::RecallForNoSuspension,
        ProtocolMutant::RefuseTryForKeep,
        ProtocolMutant::TellFreeKeep,
        ProtocolMutant::AskBesideReport,
        ProtocolMutant::TellUnreportedPlace,
        ProtocolMutant::UseKeepTwice,
        ProtocolMutant::UseShareAsLock,
        ProtocolMutant::RecallNoShare,
        ProtocolMutant::ReplaceByOneShare,
        ProtocolMutant::RepeatKeptToken,
        ProtocolMutant::KeepIdleForEver,
        ProtocolMutant::KeepTokenOfPlace,
        ProtocolMutant::FoundAtTheClock,
        ProtocolMutant::DealInHeardView,
        ProtocolMutant::FreeOnHint,
        ProtocolMutant::FreeGhosts,
        ProtocolMutant::GrantWhileSuspended,
        ProtocolMutant::HoldWhileSuspended,
        ProtocolMutant::HideLeaseEnd,
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
        ProtocolMutant::RenewPendingRemoval,
        ProtocolMutant::RenewTheDeaf,
        ProtocolMutant::RemoveEarly,
        ProtocolMutant::ForgetEarlierLeases,
        ProtocolMutant::ForgetGhosts,
        ProtocolMutant::TrustRefused,
        ProtocolMutant::SuspectAlone,
        ProtocolMutant::CallBrokenUnreached,
        ProtocolMutant::VoteEarly,
        ProtocolMutant::ForgetPromiseOverView,
        ProtocolMutant::ForgetAccepted,
        ProtocolMutant::BreakPromise,
        ProtocolMutant::StayThoughExpelled,
        ProtocolMutant::VoteThoughExpelled,
        ProtocolMutant::PromoteJoiners,
        ProtocolMutant::PromoteTheSilent,
        ProtocolMutant::PromoteAll,
        ProtocolMutant::BelieveStrangers,
        ProtocolMutant::BelieveLearners,
        ProtocolMutant::BelieveAnyVoter,
        ProtocolMutant::BelieveNamedProcess,
        ProtocolMutant::BelieveAnyClaim,
        ProtocolMutant::BelieveAnyRelay,
        ProtocolMutant::RefuseRelayOfLearner,
        ProtocolMutant::BelieveAnyWitness,
        ProtocolMutant::VouchForSessions,
        ProtocolMutant::TakeAnyToken,
        ProtocolMutant::FoundWithoutAll,
        ProtocolMutant::FoundWithFewer,
        ProtocolMutant::AgreeTwice,
        ProtocolMutant::ForgetOnDisk,
        ProtocolMutant::TellUnstored,
        ProtocolMutant::CountUnstored,
        ProtocolMutant::CallItKept,
        ProtocolMutant::CallItSettled,
        ProtocolMutant::VoteSuccessorVotesAtOnce,
        ProtocolMutant::LoseInFlight,
        ProtocolMutant::HearTwice,
        ProtocolMutant::SkipAhead,
        ProtocolMutant::RepeatAllAtOnce,
        ProtocolMutant::DetoursInTurn,
        ProtocolMutant::AnswerTheDeafStraight,
        ProtocolMutant::GrantAfterTransfer,
        ProtocolMutant::TransferNoWaits,
        ProtocolMutant::LoseWaitsBesideTable,
        ProtocolMutant::BelieveOutdatedReport,
        ProtocolMutant::HearOnlyInventories,
        ProtocolMutant::CallLostFree,
        ProtocolMutant::TransferOneHoldLess,
        ProtocolMutant::TransferNoPositions,
        ProtocolMutant::TransferWhatIsThere,
        ProtocolMutant::ActOnFirstPart,
        ProtocolMutant::ActBeforeNextTurk,
        ProtocolMutant::ActOnEarlierTable,
        ProtocolMutant::TakeNoTableForEmpty,
        ProtocolMutant::TakeOverTheDead,
        ProtocolMutant::WaitForTheGone,
        ProtocolMutant::ForgetEarlyRequesters,
        ProtocolMutant::SkipRevalidation,
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
        ProtocolMutant::TransferNoMetadata,
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
        ProtocolMutant::TransferNoOpens,
        ProtocolMutant::TransferNoValues,
        ProtocolMutant::TakeUntold,
        ProtocolMutant::TakeUnheard,
        ProtocolMutant::GrantPastSuspension,
        ProtocolMutant::TellPositionOneLater,
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
        ProtocolMutant::ServeOwnFirst,
        ProtocolMutant::LoseOwnPositions,
        ProtocolMutant::TellHoldsOneMore,
        ProtocolMutant::TellNoSuspension,
        ProtocolMutant::TellFirstName,
        ProtocolMutant::TellAllWaits,
        ProtocolMutant::QueueOwnDeadlock,
        ProtocolMutant::QueueOwnersDeadlock,
        ProtocolMutant::SuspectDeadlock,
        ProtocolMutant::DealBeyondLimit,
        ProtocolMutant::TellUnconfirmed,
        ProtocolMutant::ProbeOnce,
        ProtocolMutant::BelieveOwnQueue,
        ProtocolMutant::ForceAnywhere,
        ProtocolMutant::RaiseEarly,
        ProtocolMutant::AdmitAnyVersion,
        ProtocolMutant::SpeakHighest,
        ProtocolMutant::KeepAllWaits,
        ProtocolMutant::CountPresentValues,
        ProtocolMutant::TakeAllObjects,
        ProtocolMutant::LeaveHoldsOut,
        ProtocolMutant::ActBeforeSecondReport,
        ProtocolMutant::LeaveWaitsOut,
        ProtocolMutant::NoteAllReported,
        ProtocolMutant::EndUnnoted,
        ProtocolMutant::KeepWordOfTheGone,
        ProtocolMutant::TakeAnyTable,
        ProtocolMutant::TakeRestOfTable,
        ProtocolMutant::AskRefusedOnce,
        ProtocolMutant::DropTokensOfInventory,
        ProtocolMutant::BelieveAnyEpoch,
        ProtocolMutant::HearAnyGrantor,
        ProtocolMutant::TakeAnyVersion,
        ProtocolMutant::KeepAllEarly,
        ProtocolMutant::AskWithoutRoom,
        ProtocolMutant::HearStrangers,
        ProtocolMutant::HeedAnyPulse,
        ProtocolMutant::TakeAnyJoin,
        ProtocolMutant::AdmitTheGone,
        ProtocolMutant::SuspectForAny,
        ProtocolMutant::HearAnyVoucher,
        ProtocolMutant::FoundForAny,
        ProtocolMutant::KeepAnyGoodbye,
        ProtocolMutant::AdmitAllUnshown,
        ProtocolMutant::ForgetCopiedEndings,
        ProtocolMutant::ForgetCopiedChanges,
        ProtocolMutant::KeepLastChanges,
        ProtocolMutant::TrustAnySeal,
        ProtocolMutant::ActOnCopy,
        ProtocolMutant::ForgetRememberedVoters,
        ProtocolMutant::TakeJoinOfLaterView,
        ProtocolMutant::OpenBeforeSilentMembers,
        ProtocolMutant::OpenBeforeJoiners,
        ProtocolMutant::OpenBesideSuspension,
        ProtocolMutant::OpenBesideLeftOutHolds,
        ProtocolMutant::GrantHalfOpenBatch,
        ProtocolMutant::ReportBatchLate,
    ];
}
