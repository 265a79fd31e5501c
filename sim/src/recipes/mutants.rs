//! The planted breaks of the recipes: the workload that hunts each one, and the invariants that
//! must find it.

use super::WorkloadKind;
use elderlock::simulated::RuntimeMutant;

/// Finds a break by its name.
pub fn find(name: &str) -> Result<RuntimeMutant, String> {
    let is_it = |mutant: &RuntimeMutant| format!("{mutant:?}") == name;
    RuntimeMutant::ALL.into_iter().find(is_it).ok_or_else(|| {
        format!("no planted break is called {name}; there are {:?}", RuntimeMutant::ALL)
    })
}

/// A request is never answered, or never released.
const STUCK: &[&str] = &["no_lost_wakeup", "no_leaked_hold"];

/// The workload that hunts the break, and the invariants of which one must break.
pub fn found_by(mutant: RuntimeMutant) -> (WorkloadKind, &'static [&'static str]) {
    match mutant {
        RuntimeMutant::FenceWithoutMember => {
            (WorkloadKind::Locks, &["exclusive_by_lease", "suspension_is_exclusive"])
        }
        RuntimeMutant::KeepDroppedRequest
        | RuntimeMutant::KeepDroppedHold
        | RuntimeMutant::ScopeKeepsLock => (WorkloadKind::Locks, STUCK),
        RuntimeMutant::ConfirmUnheard => (WorkloadKind::Locks, &["confirmed_is_free"]),
        RuntimeMutant::EnterForOthers => (WorkloadKind::Mutexes, &["exclusive_by_lease"]),
        RuntimeMutant::AskAgain => (WorkloadKind::Mutexes, &["owners_know_what_they_hold"]),
        RuntimeMutant::LetNoSiblingIn => (WorkloadKind::Mutexes, &["owners_enter_together"]),
        RuntimeMutant::ReleaseWithFirst => (WorkloadKind::Mutexes, &["exclusive_by_lease"]),
        RuntimeMutant::MultiAsksAgain => (WorkloadKind::Mutexes, &["owners_enter_together"]),
        RuntimeMutant::MultiWithoutOrder | RuntimeMutant::MultiKeepsFirst => {
            (WorkloadKind::Mutexes, STUCK)
        }
        RuntimeMutant::LeadOn | RuntimeMutant::WorkOn => {
            (WorkloadKind::Leaders, &["one_leader_per_term"])
        }
        RuntimeMutant::EndWithTerm | RuntimeMutant::StandOnce => {
            (WorkloadKind::Leaders, &["selectors_stand_again"])
        }
        RuntimeMutant::TellTwice | RuntimeMutant::LoseInSilence => {
            (WorkloadKind::Leaders, &["listeners_see_every_change_once"])
        }
        RuntimeMutant::UpgradeBlindly | RuntimeMutant::ReadForWrite => {
            (WorkloadKind::ReadWrite, &["no_writer_with_reader"])
        }
        RuntimeMutant::WriteByShare | RuntimeMutant::ReadWithFirst => {
            (WorkloadKind::ReadWrite, &["no_writer_with_reader", "owners_enter_together"])
        }
        RuntimeMutant::CountOneMore | RuntimeMutant::ReturnedAndKept => {
            (WorkloadKind::Semaphore, &["permits_never_exceed_limit"])
        }
        RuntimeMutant::PermitReturnsTwo => {
            (WorkloadKind::Semaphore, &["permits_never_exceed_limit"])
        }
        RuntimeMutant::KeepDroppedPermit => (WorkloadKind::Semaphore, &["leases_end_one_by_one"]),
        RuntimeMutant::PermitsAlike => (WorkloadKind::Semaphore, &["token_belongs_to_one_hold"]),
        RuntimeMutant::SetWithoutLook => (WorkloadKind::Count, &["values_are_seen_in_order"]),
        RuntimeMutant::CounterWithoutLook => (WorkloadKind::Counter, &["additions_add_up"]),
        RuntimeMutant::ReadInSilence | RuntimeMutant::WriteOverLater => {
            (WorkloadKind::LockValue, &["holders_write_alone"])
        }
        RuntimeMutant::GateAlwaysOpen
        | RuntimeMutant::RoundOfOneLess
        | RuntimeMutant::LeaveAlone => (WorkloadKind::Barriers, BARRIER),
        RuntimeMutant::GateForgets => {
            (WorkloadKind::Barriers, &["barrier_opens_for_all", "no_lost_wakeup"])
        }
        RuntimeMutant::LatchOneEarly | RuntimeMutant::CountDownBlindly => {
            (WorkloadKind::Barriers, BARRIER)
        }
        RuntimeMutant::SuspendInSilence | RuntimeMutant::ConnectAgain => {
            (WorkloadKind::Connections, STATES)
        }
        RuntimeMutant::GuardsOutliveMember => {
            (WorkloadKind::Connections, &["guards_fail_before_it_is_told"])
        }
        RuntimeMutant::OwnOn => (WorkloadKind::Partitions, &["exclusive_by_lease"]),
        RuntimeMutant::KeepSurplus | RuntimeMutant::TakeOneLess => {
            (WorkloadKind::Partitions, &["partitions_are_shared_out"])
        }
        RuntimeMutant::NoteTickBefore => (WorkloadKind::Schedule, &["ticks_run_once"]),
        RuntimeMutant::WantTwice => (WorkloadKind::Revocations, &["asked_back_once"]),
        RuntimeMutant::WantInSilence | RuntimeMutant::CallItTaken => {
            (WorkloadKind::Revocations, TAKEN)
        }
        RuntimeMutant::TakenAndKept => {
            (WorkloadKind::Revocations, &["told_before_taken", "exclusive_by_lease"])
        }
    }
}

const BARRIER: &[&str] = &["barrier_opens_once"];

const STATES: &[&str] = &["states_come_in_order"];

const TAKEN: &[&str] = &["told_before_taken"];
