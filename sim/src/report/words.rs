//! Invariants in words.

/// The meaning of an invariant that holds, and of one that is broken.
pub fn meaning(invariant: &str) -> (String, String) {
    let (holds, broken) = match invariant {
        "exclusive_by_lease" => (
            "no two members believe at once that they hold a lock",
            "two members believe that they hold the same lock",
        ),
        "token_belongs_to_one_hold" => {
            ("no token is given twice", "one token was given to two holds")
        }
        "tokens_rise" => (
            "each grant of a lock has a higher token",
            "a grant has a token no higher than the one before",
        ),
        "one_lineage" => ("there is one cluster", "there are two clusters"),
        "views_agree" => ("a view number means one view", "one view number means two views"),
        "one_elder_per_view" => ("a view has one elder", "a view has two elders"),
        "version_is_spoken" => (
            "all members of a view speak its version",
            "a member of a view does not speak its version",
        ),
        "one_grantor_per_epoch" => ("an epoch has one grantor", "two members grant in one epoch"),
        "epochs_rise" => ("each grantor of a service has a later epoch", "an epoch came back"),
        "told_after_kept" => {
            ("a vote is on disk before it is told", "a vote was told before it was on disk")
        }
        "told_before_regrant" => (
            "a holder is told of the loss before the next one has the lock",
            "a lock was granted before its former holder was told",
        ),
        "sessions_end_first" => (
            "a program's belief in its lock ends before the next grant, also without its member",
            "a lock was granted while a program may believe in it through a dead member",
        ),
        "told_before_taken" => (
            "a holder is told before its hold is taken away",
            "a hold was taken away before its holder was told",
        ),
        "one_outcome_per_request" => {
            ("every request has one answer", "a request was answered twice")
        }
        "fifo_across_failover" => {
            ("acknowledged positions keep their order", "a request was served before its turn")
        }
        "voters_have_answered" => (
            "a member votes only after it has answered",
            "a member that had not answered got a vote",
        ),
        "detours_keep_leases" => (
            "a member that is reached by a detour keeps its lease",
            "a lease ran out although there was a detour round the cut",
        ),
        "minority_is_silent" => {
            ("nothing is granted without a quorum", "a lock was granted without a quorum")
        }
        "cost_is_bounded" => ("no storm of packets", "a storm of packets"),
        "time_goes_on" => {
            ("nothing is due at one instant for ever", "a member never comes to rest")
        }
        "converges_after_heal" => (
            "after healing there is one view with all members",
            "after healing there is not one view with all members",
        ),
        "no_lost_wakeup" => {
            ("after healing every call is answered", "after healing a call is never answered")
        }
        "no_leaked_hold" => {
            ("after healing every lock is available", "after healing a lock stays taken")
        }
        "holds_survive" => {
            ("a hold survives the death of others", "a hold was lost although its member was well")
        }
        "recovered_table_is_the_union" => (
            "a new grantor knows what all members know",
            "a new grantor does not know what a member holds",
        ),
        "suspension_is_exclusive" => (
            "a suspension excludes all other owners",
            "an owner held a lock of a service that another had suspended",
        ),
        "batch_is_atomic" => ("a batch is held whole or not at all", "a batch was torn"),
        "last_young_turk_wins" => (
            "the last young turk becomes grantor, and every answer to a bid is true",
            "a superseded young turk acted, or a bid had a false answer",
        ),
        "nothing_lost_in_transfer" => {
            ("a table is transferred whole", "a hold or a position was lost in a transfer")
        }
        "destroyed_is_over" => {
            ("nothing is left of a destroyed service", "a request outlived its destroyed service")
        }
        "what_is_seen_is_so" => (
            "a grantor reports its holds and waits truly",
            "a grantor reported holds or waits falsely",
        ),
        "no_resurrected_grant" => {
            ("no hold begins after its epoch is over", "a grant that was over came back")
        }
        "stale_writes_are_refused" => ("the store takes no stale write", "a stale write was taken"),
        "leaving_member_is_not_expelled" => (
            "a member that says goodbye leaves in order",
            "a member that said goodbye was expelled, or not heard",
        ),
        "record_is_sound" => {
            ("the record of a run makes sense", "the record of the run makes no sense")
        }
        "no_panic" => ("the core never panics", "the core panicked"),
        "determinism" => ("the same seed is the same run", "the same seed went another way"),
        other => return (other.replace('_', " "), other.replace('_', " ") + " does not hold"),
    };
    (holds.to_string(), broken.to_string())
}
