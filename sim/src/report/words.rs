//! Invariants in words.

/// The meaning of an invariant that holds, and of one that is broken.
pub fn meaning(invariant: &str) -> (String, String) {
    let (holds, broken) = match invariant {
        "exclusive_by_lease" => {
            ("no two members believe at once that they hold a lock", "two members believe that they hold the same lock")
        }
        "token_belongs_to_one_hold" => ("no token is given twice", "one token was given to two holds"),
        "tokens_rise" => {
            ("each grant of a lock has a higher token", "a grant has a token no higher than the one before")
        }
        "one_lineage" => ("there is one cluster", "there are two clusters"),
        "views_agree" => ("a view number means one view", "one view number means two views"),
        "one_elder_per_view" => ("a view has one elder", "a view has two elders"),
        "one_grantor_per_epoch" => ("an epoch has one grantor", "two members grant in one epoch"),
        "epochs_rise" => ("each grantor of a service has a later epoch", "an epoch came back"),
        "told_after_kept" => ("a vote is on disk before it is told", "a vote was told before it was on disk"),
        "told_before_regrant" => {
            ("who loses a lock is told before the next one has it", "a lock was given away before its holder was told")
        }
        "told_before_taken" => {
            ("a holder is told before its hold is taken away", "a hold was taken away before its holder was told")
        }
        "one_outcome_per_request" => ("every request has one answer", "a request was answered twice"),
        "fifo_across_failover" => ("acknowledged places keep their order", "somebody was served before their turn"),
        "way_round_keeps_leases" => {
            ("who can be reached round a cut keeps its lease", "a lease ran out beside a way round")
        }
        "minority_is_silent" => ("nothing is granted without a quorum", "a lock was granted without a quorum"),
        "cost_is_bounded" => ("no storm of packets", "a storm of packets"),
        "time_goes_on" => ("nothing is due at one instant for ever", "a member never comes to rest"),
        "converges_after_heal" => {
            ("after healing there is one view with everybody", "after healing they do not come together")
        }
        "no_lost_wakeup" => ("after healing everybody is answered", "after healing somebody is never answered"),
        "no_leaked_hold" => ("after healing every lock is to be had", "after healing a lock stays taken"),
        "holds_survive" => ("a hold survives the death of others", "a hold was lost though its member was well"),
        "recovered_table_is_the_union" => {
            ("a new grantor knows what all members know", "a new grantor does not know what a member holds")
        }
        "suspension_is_exclusive" => {
            ("who suspends a service is alone", "somebody held a lock of a service that another had suspended")
        }
        "batch_is_atomic" => ("a batch is held whole or not at all", "a batch was torn"),
        "last_young_turk_wins" => (
            "the last who asks to grant does, and nobody is lied to",
            "a young turk granted, or was told, what is not so",
        ),
        "nothing_lost_in_transfer" => {
            ("a table changes hands whole", "a hold or a place was lost when a table changed hands")
        }
        "destroyed_is_over" => {
            ("what was asked of a destroyed service is over", "something was left of a destroyed service")
        }
        "what_is_seen_is_so" => ("what a grantor tells is true", "a grantor told of holds or waits what is not so"),
        "no_resurrected_grant" => ("what is over is never granted again", "a grant that was over came back"),
        "stale_writes_are_refused" => ("the store takes no stale write", "a stale write was taken"),
        "who_leaves_has_left" => ("who says goodbye leaves in order", "who said goodbye was expelled, or not heard"),
        "record_is_sound" => ("the record of a run makes sense", "the record of the run makes no sense"),
        "no_panic" => ("the core never panics", "the core panicked"),
        "determinism" => ("the same seed is the same run", "the same seed went another way"),
        other => return (other.replace('_', " "), other.replace('_', " ") + " does not hold"),
    };
    (holds.to_string(), broken.to_string())
}
