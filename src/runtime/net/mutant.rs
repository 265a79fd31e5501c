//! Planted breaks of the network, to prove that its tests can fail. They work only with `--cfg
//! elderlock_mutants`. The variable `ELDERLOCK_NET_MUTANT` of the environment names the break of a
//! process, because the tests of the network run on many threads.

use std::sync::LazyLock;

/// The name of the planted break, if there is one.
static PLANTED: LazyLock<Option<String>> = LazyLock::new(|| std::env::var(VARIABLE).ok());

const VARIABLE: &str = "ELDERLOCK_NET_MUTANT";

/// Lists the breaks, each with the test that finds it.
macro_rules! breaks {
    ($($(#[$doc:meta])+ $name:ident in $module:ident: $found_by:literal,)+) => {
        /// One planted break.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum NetMutant {
            $($(#[$doc])+ $name,)+
        }

        /// All planted breaks of this list, each with the test that finds it.
        #[cfg(test)]
        const FOUND_BY: &[(NetMutant, (&str, &str))] =
            &[$((NetMutant::$name, (tests::$module, $found_by)),)+];
    };
}

breaks! {
    /// Strangers have no limit of connections.
    AdmitAllStrangers in ADMISSION: "the_stranger_that_was_silent_longest_gives_way",
    /// Unfinished handshakes have no limit.
    AdmitAllHandshakes in ADMISSION: "unfinished_handshakes_are_few_and_fewer_for_one_address",
    /// The unfinished handshakes of one address have no limit.
    AdmitAllOfOneAddress in ADMISSION: "unfinished_handshakes_are_few_and_fewer_for_one_address",
    /// Each address of a network of IPv6 counts as an origin.
    CountEachAddress in ADMISSION: "the_addresses_of_one_network_of_ipv6_are_one_origin",
    /// The connections of one process have no limit.
    AdmitAllOfOneProcess in ADMISSION: "members_stay_connected_and_silent_strangers_do_not",
    /// Connections from the hosts of members give way like others.
    EvictKnownHosts in ADMISSION: "handshakes_from_unknown_hosts_give_way_first",
    /// A stranger that sends gives way before a silent one.
    EvictSpeakers in ADMISSION:
        "a_joiner_that_speaks_stays_and_silent_connections_of_known_hosts_give_way",
    /// An accepted connection of a member counts as a stranger's.
    EvictMembers in ADMISSION: "members_stay_connected_and_silent_strangers_do_not",
    /// A process that leaves the view keeps the places of a member.
    KeepPlacesOfTheGone in ADMISSION:
        "the_connections_of_a_process_that_leaves_the_view_are_those_of_a_stranger",
    /// Silent strangers stay connected.
    KeepTheSilent in ADMISSION: "members_stay_connected_and_silent_strangers_do_not",
    /// Connections that wait for their handshake have no limit.
    LetAllWait in STRANGERS: "a_crowd_that_begins_handshakes_leaves_room_for_the_hosts_of_members",
    /// Connections from the hosts of members wait behind a crowd.
    KnownHostsWait in STRANGERS:
        "a_crowd_that_begins_handshakes_leaves_room_for_the_hosts_of_members",
    /// Incomplete frames have no limit of bytes.
    KeepAllBegun in BEGUN: "one_frame_that_is_longer_than_all_others_together_goes_alone",
    /// The incomplete frame that began first makes room, and not the longest.
    EndFirstBegun in BEGUN: "the_connection_with_the_longest_begun_frame_is_ended_first",
    /// The incomplete frames of learners count as those of members with a vote.
    BeginAsVoter in STRANGERS:
        "the_bytes_of_begun_frames_of_learners_are_bounded_with_those_of_strangers",
    /// An incomplete frame has no time limit.
    AwaitAnyFrame in GARBAGE: "a_frame_that_has_begun_and_does_not_end_breaks_its_connection",
    /// A stranger's frames may be as long as a member's.
    TakeLongFrames in STRANGERS: "a_stranger_that_was_dialled_has_the_limits_of_strangers",
    /// A process in no view takes frames of any length.
    TakeLongUnknown in STRANGERS:
        "a_process_in_no_view_takes_no_long_frame_of_a_connection_that_it_accepted",
    /// Frames of strangers have no rate.
    TakeAllFrames in STRANGERS: "a_flood_of_a_stranger_is_throttled_and_frames_of_a_member_are_not",
    /// Each connection has a part of the rate, and not each address.
    PartForEachConnection in RATES:
        "one_address_has_its_part_of_a_shared_rate_on_all_its_connections",
    /// The parts of all addresses are remembered.
    KeepAllParts in RATES: "the_parts_of_a_thousand_addresses_are_remembered_and_used_ones_longest",
    /// Datagrams of strangers have no rate.
    TakeAllGossip in STRANGERS: "datagrams_of_strangers_have_a_rate_and_those_of_members_do_not",
    /// Bytes that wait for strangers have no limit.
    QueueAllForStrangers in PEERS: "bytes_for_strangers_are_bounded_for_each_and_for_all",
    /// Bytes that wait for members have no limit in total.
    QueueAllForMembers in PEERS: "all_peers_together_have_a_bound_beyond_the_share_of_each",
    /// Any stranger makes room for bytes, and not the one with most of them.
    DropAny in STRANGERS: "the_stranger_with_the_most_waiting_bytes_makes_room",
    /// No addresses are reserved for members and seeds.
    ReserveNoPeers in STRANGERS:
        "strangers_at_thousands_of_addresses_leave_room_for_members_and_seeds",
    /// Dials of strangers have no limit.
    DialAllStrangers in STRANGERS: "few_strangers_are_dialled_at_a_time",
    /// Learners are dialled like members with a vote.
    DialAllLearners in STRANGERS: "learners_that_answer_nothing_take_few_dials_and_none_of_members",
    /// A process is at each address where a stranger claims it to be.
    BelieveAnyAddress in STRANGERS: "an_address_that_a_stranger_claims_tells_nothing_of_a_member",
    /// A stranger gets the packets for any process at the address that it claims.
    LeadToAnyClaim in STRANGERS:
        "a_packet_for_any_process_at_an_address_goes_to_no_stranger_that_claims_it",
    /// The dial errors of all addresses are remembered.
    KeepAllErrors in STRANGERS: "the_errors_of_a_thousand_addresses_are_remembered",
    /// Any number of processes is watched for their end.
    WatchAll in DEATHS: "no_more_than_the_limit_are_watched",
    /// Refusals have no rate.
    RefuseAlways in KEYS: "a_refusal_is_never_longer_than_its_cause_and_rate_limited",
    /// A refusal may be longer than the packet that caused it.
    RefuseAtLength in KEYS: "a_refusal_is_never_longer_than_its_cause_and_rate_limited",
    /// Stray datagrams use up the rate of answers to questions for the process id.
    ShareOneAnswerRate in KEYS:
        "recorded_datagrams_for_another_process_leave_answers_to_questions_for_the_id",
    /// Log lines that strangers cause have no rate.
    WarnAlways in KEYS: "the_warnings_about_impostors_are_rate_limited",
    /// Connections under a removed key stay open.
    KeepRemovedKeys in KEYS: "a_connection_under_a_removed_key_is_closed_and_dialled_again",
    /// Questions for the status have no rate.
    TellAllStatus in STRANGERS: "questions_for_the_status_have_a_rate",
    /// Answers to questions for the status may use any memory.
    AnswerBeyondMemory in STRANGERS:
        "answers_to_questions_for_the_status_wait_in_the_memory_for_strangers",
    /// Without a key an order is taken from any host.
    OrderFromAnyHost in ORDERS: "orders_without_a_key_are_taken_from_this_host_alone",
    /// Locks for programs use up the places of orders.
    CountSessionsAsOrders in STRANGERS: "sessions_beyond_the_limit_are_refused_and_orders_are_not",
}

/// Returns whether this break is planted.
pub(super) fn is_planted(mutant: NetMutant) -> bool {
    PLANTED.as_ref().is_some_and(|name| *name == format!("{mutant:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};

    pub(super) const ADMISSION: &str = "admission::tests";
    pub(super) const BEGUN: &str = "begun_frames::tests";
    pub(super) const RATES: &str = "rate_limit::tests";
    pub(super) const PEERS: &str = "peer::tests";
    pub(super) const DEATHS: &str = "death_watch::tests";
    pub(super) const ORDERS: &str = "orders::tests";
    pub(super) const STRANGERS: &str = "transport::tests::strangers";
    pub(super) const GARBAGE: &str = "transport::tests::garbage";
    pub(super) const KEYS: &str = "transport::tests::keys";

    /// The tests that run side by side. Most of their time they wait.
    const AT_ONCE: usize = 16;

    /// This program, for tests of the network.
    fn program() -> Command {
        let mut command = Command::new(std::env::current_exe().expect("this program"));
        command.env_remove(VARIABLE).stderr(Stdio::null());
        command
    }

    /// Runs a test of the network in a process of its own, with a break or without one.
    fn run((module, test): (&str, &str), mutant: Option<NetMutant>) -> Child {
        let mut command = program();
        command.args(["--exact", &format!("runtime::net::{module}::{test}")]);
        command.envs(mutant.map(|mutant| (VARIABLE, format!("{mutant:?}"))));
        command.stdout(Stdio::null()).spawn().expect("it starts")
    }

    #[test]
    fn every_planted_break_is_found() {
        let listed = program().arg("--list").output().expect("it starts").stdout;
        let listed = String::from_utf8(listed).expect("names of tests");
        let mut tests: Vec<_> = FOUND_BY.iter().map(|(_, test)| (None, *test)).collect();
        tests.sort_unstable_by_key(|(_, test)| *test);
        tests.dedup();
        tests.extend(FOUND_BY.iter().map(|(mutant, test)| (Some(*mutant), *test)));
        let mut wrong = Vec::new();
        for some in tests.chunks(AT_ONCE) {
            let running: Vec<_> = some.iter().map(|(mutant, test)| run(*test, *mutant)).collect();
            for (mut child, (mutant, test)) in running.into_iter().zip(some) {
                let name = format!("{}::{}: test", test.0, test.1);
                assert!(listed.contains(&name), "there is no {name}");
                if child.wait().expect("it ends").success() == mutant.is_some() {
                    wrong.push((mutant, test));
                }
            }
        }
        assert!(wrong.is_empty(), "tests that miss their break, or fail without one: {wrong:#?}");
    }
}
