//! The planted breaks of the recipes: who plays when one is hunted, and what must find it.

use super::Cast;
use elderlock::simulated::RuntimeMutant;

/// By its name.
pub fn find(name: &str) -> Result<RuntimeMutant, String> {
    let is_it = |mutant: &RuntimeMutant| format!("{mutant:?}") == name;
    RuntimeMutant::ALL
        .into_iter()
        .find(is_it)
        .ok_or_else(|| format!("no break is called {name}; there are {:?}", RuntimeMutant::ALL))
}

/// Something that was asked for is never answered, or never given back.
const STUCK: &[&str] = &["no_lost_wakeup", "no_leaked_hold"];

/// What is played while it is hunted, and the invariants of which one must break.
pub fn found_by(mutant: RuntimeMutant) -> (Cast, &'static [&'static str]) {
    match mutant {
        RuntimeMutant::FenceWithoutMember => (Cast::Locks, &["exclusive_by_lease", "suspension_is_exclusive"]),
        RuntimeMutant::KeepDroppedRequest | RuntimeMutant::KeepDroppedHold => (Cast::Locks, STUCK),
        RuntimeMutant::ConfirmUnheard => (Cast::Locks, &["confirmed_is_free"]),
        RuntimeMutant::EnterForOthers => (Cast::Mutexes, &["exclusive_by_lease"]),
        RuntimeMutant::AskAgain => (Cast::Mutexes, &["owners_know_what_they_hold"]),
        RuntimeMutant::LetNoSiblingIn => (Cast::Mutexes, &["owners_enter_together"]),
        RuntimeMutant::GiveBackWithFirst => (Cast::Mutexes, &["exclusive_by_lease"]),
        RuntimeMutant::MultiAsksAgain => (Cast::Mutexes, &["owners_enter_together"]),
        RuntimeMutant::MultiWithoutOrder | RuntimeMutant::MultiKeepsFirst => (Cast::Mutexes, STUCK),
        RuntimeMutant::LeadOn | RuntimeMutant::WorkOn => (Cast::Leaders, &["one_leader_per_term"]),
        RuntimeMutant::EndWithTerm | RuntimeMutant::StandOnce => (Cast::Leaders, &["selectors_stand_again"]),
        RuntimeMutant::TellTwice | RuntimeMutant::LoseInSilence => {
            (Cast::Leaders, &["listeners_see_every_change_once"])
        }
        RuntimeMutant::UpgradeBlindly | RuntimeMutant::ReadForWrite => (Cast::ReadWrite, &["no_writer_with_reader"]),
        RuntimeMutant::CountOneMore | RuntimeMutant::GivenBackAndKept => {
            (Cast::Semaphore, &["permits_never_exceed_limit"])
        }
        RuntimeMutant::LeaseGivesTwo => (Cast::Semaphore, &["permits_never_exceed_limit"]),
        RuntimeMutant::KeepDroppedLease => (Cast::Semaphore, &["leases_end_one_by_one"]),
        RuntimeMutant::LeasesAlike => (Cast::Semaphore, &["token_belongs_to_one_hold"]),
        RuntimeMutant::SetWithoutLook => (Cast::Count, &["values_are_seen_in_order"]),
        RuntimeMutant::ReadInSilence | RuntimeMutant::WriteOverLater => (Cast::LockValue, &["holders_write_alone"]),
        RuntimeMutant::GateAlwaysOpen | RuntimeMutant::RoundOfOneLess | RuntimeMutant::LeaveAlone => {
            (Cast::Barriers, BARRIER)
        }
        RuntimeMutant::GateForgets => (Cast::Barriers, &["barrier_opens_for_all", "no_lost_wakeup"]),
        RuntimeMutant::LatchOneEarly | RuntimeMutant::CountDownBlindly => (Cast::Barriers, BARRIER),
        RuntimeMutant::SuspendInSilence | RuntimeMutant::ConnectAgain => (Cast::Connections, STATES),
        RuntimeMutant::GuardsOutliveMember => (Cast::Connections, &["guards_fail_before_it_is_told"]),
        RuntimeMutant::WantTwice => (Cast::Revocations, &["asked_back_once"]),
        RuntimeMutant::WantInSilence | RuntimeMutant::CallItTaken => (Cast::Revocations, TAKEN),
        RuntimeMutant::TakenAndKept => (Cast::Revocations, &["told_before_taken", "exclusive_by_lease"]),
    }
}

const BARRIER: &[&str] = &["barrier_opens_once"];

const STATES: &[&str] = &["states_come_in_order"];

const TAKEN: &[&str] = &["told_before_taken"];
