//! The checks that find the planted breaks of the core that chaos does not find for sure.

use elderlock::protocol::mutant::ProtocolMutant;

/// The script, log or test that finds a break which chaos does not find for sure.
/// `tests/simulator/scripts.rs` sees the scripts and logs break.
pub fn found_by(mutant: ProtocolMutant) -> Option<&'static str> {
    match mutant {
        ProtocolMutant::DealInHeardView => Some("scripts/former_elder_names_beside_the_next"),
        ProtocolMutant::FoundAtTheClock | ProtocolMutant::DealBeyondLimit => {
            Some("tests/simulator/founding.rs")
        }
        ProtocolMutant::BelieveOwnQueue => Some("tests/simulator/deadlocks.rs"),
        ProtocolMutant::BeginForFormerElder => {
            Some("regressions/an_old_epoch_begins_after_a_forgotten_one")
        }
        ProtocolMutant::HearOnlyInventories => {
            Some("regressions/an_epoch_is_heard_of_after_the_inventory")
        }
        ProtocolMutant::ActOnEarlierTable => {
            Some("scripts/a_later_grantor_that_has_not_begun_is_awaited")
        }
        ProtocolMutant::TakeOlderRange => Some("scripts/range_of_an_earlier_tenure_arrives"),
        ProtocolMutant::CallBrokenUnreached => Some("scripts/connections_break_beside_a_refusal"),
        _ => None,
    }
}

/// Returns whether a unit test of the core finds the break and chaos does not (`sim/survivors.md`).
/// Chaos hunts such a break only if it is named.
pub fn has_unit_test(mutant: ProtocolMutant) -> bool {
    matches!(
        mutant,
        ProtocolMutant::RepeatAllAtOnce
            | ProtocolMutant::StandByElderThoughBound
            | ProtocolMutant::RenewThoughDeposed
            | ProtocolMutant::BelieveAnyVacant
            | ProtocolMutant::EndInSilence
            | ProtocolMutant::ForgetOwnOrder
            | ProtocolMutant::ForgetAtOnce
            | ProtocolMutant::SeeWithoutLease
            | ProtocolMutant::AtOnceThoughLate
            | ProtocolMutant::AskNoJoiners
            | ProtocolMutant::AcceptPromisesNothing
            | ProtocolMutant::BelieveLearners
            | ProtocolMutant::AgreeTwice
            | ProtocolMutant::BelieveAnyWitness
            | ProtocolMutant::TakeAnyToken
            | ProtocolMutant::PromoteAll
            | ProtocolMutant::AdmitAnyVersion
            | ProtocolMutant::KeepAllWaits
            | ProtocolMutant::CountPresentValues
            | ProtocolMutant::TakeAllObjects
            | ProtocolMutant::LeaveHoldsOut
            | ProtocolMutant::ActBeforeSecondReport
            | ProtocolMutant::LeaveWaitsOut
            | ProtocolMutant::NoteAllReported
            | ProtocolMutant::EndUnnoted
            | ProtocolMutant::KeepWordOfTheGone
            | ProtocolMutant::TakeAnyTable
            | ProtocolMutant::TakeRestOfTable
            | ProtocolMutant::AskRefusedOnce
            | ProtocolMutant::DropTokensOfInventory
            | ProtocolMutant::BelieveAnyEpoch
            | ProtocolMutant::HearAnyGrantor
            | ProtocolMutant::TakeAnyVersion
            | ProtocolMutant::KeepAllEarly
            | ProtocolMutant::AskWithoutRoom
            | ProtocolMutant::HearStrangers
            | ProtocolMutant::HeedAnyPulse
            | ProtocolMutant::TakeAnyJoin
            | ProtocolMutant::AdmitTheGone
            | ProtocolMutant::SuspectForAny
            | ProtocolMutant::HearAnyVoucher
            | ProtocolMutant::FoundForAny
            | ProtocolMutant::KeepAnyGoodbye
            | ProtocolMutant::AdmitAllUnshown
            | ProtocolMutant::ForgetCopiedEndings
            | ProtocolMutant::ForgetCopiedChanges
            | ProtocolMutant::KeepLastChanges
            | ProtocolMutant::TrustAnySeal
            | ProtocolMutant::ActOnCopy
            | ProtocolMutant::ForgetRememberedVoters
            | ProtocolMutant::AskBesideReport
            | ProtocolMutant::TellUnreportedPlace
            | ProtocolMutant::RefuseRelayOfLearner
            | ProtocolMutant::TakeJoinOfLaterView
            | ProtocolMutant::OpenBesideLeftOutHolds
            | ProtocolMutant::OpenBeforeJoiners
            | ProtocolMutant::OpenBeforeSilentMembers
            | ProtocolMutant::OpenBesideSuspension
            | ProtocolMutant::GrantHalfOpenBatch
            | ProtocolMutant::ReportBatchLate
    )
}
