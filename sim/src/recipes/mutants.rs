//! The planted breaks of the recipes: who plays when one is hunted, and what must find it.

use super::Cast;
use elderlock::simulated::Mutant;

/// By its name.
pub fn find(name: &str) -> Result<Mutant, String> {
    let is_it = |mutant: &Mutant| format!("{mutant:?}") == name;
    Mutant::ALL.into_iter().find(is_it).ok_or_else(|| format!("no break is called {name}; there are {:?}", Mutant::ALL))
}

/// Something that was asked for is never answered, or never given back.
const STUCK: &[&str] = &["no_lost_wakeup", "no_leaked_hold"];

/// What is played while it is hunted, and the invariants of which one must break.
pub fn found_by(mutant: Mutant) -> (Cast, &'static [&'static str]) {
    match mutant {
        Mutant::FenceWithoutMember => (Cast::Locks, &["exclusive_by_lease", "suspension_is_exclusive"]),
        Mutant::KeepDroppedRequest | Mutant::KeepDroppedHold => (Cast::Locks, STUCK),
        Mutant::ConfirmUnheard => (Cast::Locks, &["confirmed_is_free"]),
        Mutant::EnterForOthers => (Cast::Mutexes, &["exclusive_by_lease"]),
        Mutant::AskAgain => (Cast::Mutexes, &["owners_know_what_they_hold"]),
        Mutant::LetNoSiblingIn => (Cast::Mutexes, &["owners_enter_together"]),
        Mutant::GiveBackWithFirst => (Cast::Mutexes, &["exclusive_by_lease"]),
        Mutant::MultiAsksAgain => (Cast::Mutexes, &["owners_enter_together"]),
        Mutant::MultiWithoutOrder | Mutant::MultiKeepsFirst => (Cast::Mutexes, STUCK),
        Mutant::LeadOn | Mutant::WorkOn => (Cast::Leaders, &["one_leader_per_term"]),
        Mutant::EndWithTerm | Mutant::StandOnce => (Cast::Leaders, &["selectors_stand_again"]),
        Mutant::TellTwice | Mutant::LoseInSilence => (Cast::Leaders, &["listeners_see_every_change_once"]),
        Mutant::UpgradeBlindly | Mutant::ReadForWrite => (Cast::ReadWrite, &["no_writer_with_reader"]),
        Mutant::CountOneMore | Mutant::GivenBackAndKept => (Cast::Semaphore, &["permits_never_exceed_limit"]),
        Mutant::LeaseGivesTwo => (Cast::Semaphore, &["permits_never_exceed_limit"]),
        Mutant::KeepDroppedLease => (Cast::Semaphore, &["leases_end_one_by_one"]),
        Mutant::LeasesAlike => (Cast::Semaphore, &["token_belongs_to_one_hold"]),
        Mutant::SetWithoutLook => (Cast::Count, &["values_are_seen_in_order"]),
        Mutant::ReadInSilence | Mutant::WriteOverLater => (Cast::LockValue, &["holders_write_alone"]),
        Mutant::GateAlwaysOpen | Mutant::RoundOfOneLess | Mutant::LeaveAlone => (Cast::Barriers, BARRIER),
        Mutant::GateForgets => (Cast::Barriers, &["barrier_opens_for_all", "no_lost_wakeup"]),
        Mutant::LatchOneEarly | Mutant::CountDownBlindly => (Cast::Barriers, BARRIER),
        Mutant::SuspendInSilence | Mutant::ConnectAgain => (Cast::Connections, STATES),
        Mutant::GuardsOutliveMember => (Cast::Connections, &["guards_fail_before_it_is_told"]),
        Mutant::WantTwice => (Cast::Revocations, &["asked_back_once"]),
        Mutant::WantInSilence | Mutant::CallItTaken => (Cast::Revocations, TAKEN),
        Mutant::TakenAndKept => (Cast::Revocations, &["told_before_taken", "exclusive_by_lease"]),
    }
}

const BARRIER: &[&str] = &["barrier_opens_once"];

const STATES: &[&str] = &["states_come_in_order"];

const TAKEN: &[&str] = &["told_before_taken"];
