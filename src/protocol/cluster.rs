//! Membership: views and their choice, leases, votes, and the elder's duties.
//!
//! [`Cluster`] is the membership of one process. It decides in which view the member is and whether
//! its lease runs. The locks (`locks.rs`) learn of that in each step by a [`Standing`]. When a view
//! or a lease begins or ends, the membership calls named functions of the locks. The locks never
//! change anything here.

mod affiliation;
mod death_check;
mod death_suspicion;
pub(super) mod decision;
pub(super) mod discovery;
mod durability;
pub(super) mod elder;
mod keeping;
mod lease;
mod leasing;
mod lost_founding;
mod notices;
#[cfg(elderlock_mutants)]
mod planted;
pub(super) mod view;
pub(super) mod vote_successor;
mod voting;

use super::event::{Config, Event, Hint, LostReason, Output, Sizes, Status};
use super::id::{Lineage, MemberInfo, ProcessId, Slot, ViewNumber};
use super::link::LinkSet;
use super::locks::{InstalledView, RegistryChange};
use super::message::{Affiliation, Ballot, Notice, Packet};
use super::step_context::Standing;
use super::step_parts::StepParts;
use super::time::{Time, WallClock, WrongClock};
use super::timing::Timing;
use super::vote_claim::VoteClaim;
use super::vote_key::VoteSecret;
use death_suspicion::DeathSuspicion;
use decision::{Acceptor, Proposal, ProposalPhase, choose};
use discovery::{Discovery, FoundingOutcome, SeedReport};
use durability::{AfterStore, VoteDurability, founding_vote};
use elder::Elder;
use lease::{OwnLease, rank};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use view::{Change, View};
use vote_successor::{StoredVote, StoredVoter, VoteSender, VoteSuccessor, VoteSuccessors};

/// The distance in slots from the last known view to a forced lineage: the rest of the old lineage
/// may have continued.
const FORCE_GAP: u64 = 32 * Slot::PER_SECOND;
/// The wait before a failed write is tried again, in multiples of `retry`.
const STORE_AGAIN: u32 = 4;

/// The phase of a process's membership.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum MemberPhase {
    /// The process is in no view yet.
    Discovery(Box<Discovery>),
    /// The process is in a view.
    Member,
    /// The member is about to say goodbye, or has said it. It holds nothing, and grants until its
    /// tables are transferred. After that it says goodbye. It still votes, so that its leaving
    /// costs no quorum.
    Leaving {
        /// The time at which the goodbye is sent again.
        again_at: Time,
        /// The time until which the member waits for the others.
        until: Time,
    },
    /// The member has decided a view without itself. It stays until that view's members know of the
    /// view.
    Retiring {
        /// The time at which the view is sent to them again.
        again_at: Time,
        /// The time until which the member waits for the others.
        until: Time,
        /// The members that know the view.
        informed: BTreeSet<ProcessId>,
        /// Whether the member said goodbye before.
        left: bool,
    },
    /// The process has left for good.
    Gone,
}

/// The membership of one process.
///
/// Only the tests of this module use the fields from outside.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Cluster {
    /// The configuration. Seeds, contacts and the remembered view change.
    pub(super) config: Config,
    pub(super) phase: MemberPhase,
    /// The present view. It stays after the end of the membership, for the record.
    pub(super) view: Option<Arc<View>>,
    /// Whether this member is the elder of the view and a quorum of its council by itself.
    sole_quorum: bool,
    /// Whether a quorum of the view's council is known to have the view.
    is_settled: bool,
    /// The change that made the view with this number. It is sent to members that have the view
    /// before.
    last_change: Option<(ViewNumber, Change)>,
    /// The wall clock at the beginning of this incarnation.
    clock: WallClock,
    /// A clock that advances at the pace of time from the first slot of this process's first view.
    pace: Option<WallClock>,
    pub(super) lease: OwnLease,
    pub(super) votes: Votes,
    pub(super) elder: Option<Elder>,
    /// The number of the last pulse in earlier tenures as elder. No number may be used for two
    /// pulses.
    last_pulse: u64,
    pub(super) liveness: Liveness,
    /// The time of the last question for a newer view.
    fetched_at: Time,
    /// The time at which this process became a member: a member that never gets a lease gives up.
    member_since: Time,
    greeting: Greeting,
    /// The time at which this member reports itself orphaned; `Time::MAX` while its lease runs, or
    /// after the report.
    orphaned_at: Time,
    /// Whether an operator has forced this member: its next incarnation founds a new lineage.
    forced: bool,
    /// Whether this member met a later lineage that replaces its own, and gives its own up.
    defected: bool,
}

/// The state of a member's questions to other processes whether the cluster continues.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Greeting {
    /// The time at which the seeds are greeted again. A suspended member also greets other known
    /// processes.
    at: Time,
    /// The last greeted address, of those that are greeted in turn. `None` in a small view: all are
    /// greeted.
    last: Option<SocketAddr>,
}

/// The part of a process in the choice of the next view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Votes {
    pub(super) acceptor: Acceptor,
    /// Set while this process is in no view and has the vote of a former process.
    pub(super) successor: Option<VoteSuccessor>,
    /// The vote writes of this process, and the work that waits for them.
    durability: VoteDurability,
    /// Whether this process is a vote successor that is not stored as one yet.
    is_unstored_successor: bool,
    /// See [`StoredVote::is_established`](vote_successor::StoredVote::is_established).
    first_view_lasts: bool,
    /// The vote successors for the next view.
    pub(super) successors: VoteSuccessors,
    pub(super) proposal: Option<Proposal>,
    /// The time before which this process tries no takeover: another candidate's higher ballot goes
    /// first.
    yield_until: Time,
    /// The highest known round of this instance.
    rounds: u32,
}

/// A member's knowledge about the life and death of other processes.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct Liveness {
    /// Processes that are surely dead.
    dead: BTreeSet<ProcessId>,
    /// The time at which this member learned that the elder of the view is dead.
    elder_dead_at: Option<Time>,
    /// Processes that some hint calls unreachable.
    suspected: BTreeSet<ProcessId>,
    /// While this member leaves: the time since which each process refuses connections and sends
    /// nothing.
    refused: BTreeMap<ProcessId, Time>,
    /// Members that refuse connections, or that other members report as refusing.
    death_suspicions: BTreeMap<ProcessId, DeathSuspicion>,
    /// The time at which the deaths are reported to the council again.
    vouch_at: Time,
}

impl Cluster {
    /// The membership of a process that seeks its cluster from `now` on.
    pub(super) fn new(mut config: Config, now: Time) -> Cluster {
        config.set_vote_secret(config.vote_secret.clone());
        let successor = config
            .stored
            .as_ref()
            .and_then(|stored| VoteSuccessor::of(stored, &config.me, stored_voter(&config), now));
        if config.last_view().is_some() {
            // A cluster that the process knew may live on: the process joins or continues it.
            config.found_alone = false;
        }
        // A forced start listens before it founds.
        config.found_alone &= !config.forced_start;
        planted!(=> let successor = planted::successor(successor, &config, now));
        let mut discovery = Discovery::new(&config, now);
        discovery.set_voters(successor.iter().flat_map(VoteSuccessor::addrs).collect());
        // A forced start gives the stored vote up. It asks the other voters all the same.
        let successor = successor.filter(|_| !config.forced_start);
        let acceptor = match (&successor, &config.stored) {
            (Some(_), Some(stored)) => stored.acceptor.clone(),
            _ => Acceptor::default(),
        };
        Cluster {
            phase: MemberPhase::Discovery(Box::new(discovery)),
            view: None,
            sole_quorum: false,
            is_settled: false,
            last_change: None,
            clock: WallClock::new(now, config.clock),
            pace: None,
            lease: OwnLease::default(),
            votes: Votes {
                acceptor,
                durability: VoteDurability::default(),
                is_unstored_successor: successor.is_some(),
                first_view_lasts: false,
                successor,
                successors: VoteSuccessors::default(),
                proposal: None,
                yield_until: Time::ZERO,
                rounds: 0,
            },
            elder: None,
            last_pulse: 0,
            liveness: Liveness {
                dead: BTreeSet::new(),
                elder_dead_at: None,
                suspected: BTreeSet::new(),
                refused: BTreeMap::new(),
                death_suspicions: BTreeMap::new(),
                vouch_at: Time::MAX,
            },
            fetched_at: Time::ZERO,
            member_since: Time::MAX,
            greeting: Greeting { at: Time::ZERO, last: None },
            orphaned_at: Time::MAX,
            forced: false,
            defected: false,
            config,
        }
    }

    /// The membership, as the locks see it in a step.
    pub(super) fn standing(&self, now: Time) -> Standing<'_> {
        let has_elder = !matches!(self.phase, MemberPhase::Discovery(_));
        Standing {
            me: self.config.me.process,
            info: &self.config.me,
            view: self.view.as_ref(),
            elder: self.view.as_ref().filter(|_| has_elder).map(|view| view.elder().process),
            timing: self.timing(),
            forced_revokes: self.config.forced_revokes,
            limits: &self.config.limits,
            leased: now < self.granting_end(),
            authority: self.elder.as_ref(),
            is_member: self.is_member(),
            suspected: &self.liveness.suspected,
            #[cfg(elderlock_mutants)]
            mutant: self.config.mutant,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    pub(super) fn process(&self) -> ProcessId {
        self.config.me.process
    }

    pub(super) fn view(&self) -> Option<&Arc<View>> {
        self.view.as_ref()
    }

    /// Returns whether the process is in a view, and is not about to leave it.
    pub(super) fn is_member(&self) -> bool {
        self.phase == MemberPhase::Member
    }

    /// Returns whether the process is a member whose lease ran at the last check.
    pub(super) fn is_leased_member(&self) -> bool {
        self.is_member() && self.lease.running
    }

    pub(super) fn is_gone(&self) -> bool {
        self.phase == MemberPhase::Gone
    }

    /// The reason for which requests are refused, if the member is about to leave.
    pub(super) fn is_closed(&self) -> Option<LostReason> {
        match self.phase {
            // An expelled member that stays only to inform others is about to come back as another
            // process.
            MemberPhase::Retiring { left: false, .. } => Some(LostReason::Expelled),
            MemberPhase::Leaving { .. } | MemberPhase::Retiring { .. } => Some(LostReason::Left),
            _ => None,
        }
    }

    pub(super) fn is_elder(&self) -> bool {
        self.elder.is_some()
    }

    /// Returns whether some hint calls a process unreachable.
    pub(super) fn has_suspicions(&self) -> bool {
        !self.liveness.suspected.is_empty()
    }

    /// Returns whether this vote successor must be stored before it does anything else.
    pub(super) fn is_unstored_successor(&self) -> bool {
        self.votes.is_unstored_successor
    }

    /// Stores the vote successor, before any member can let it join.
    pub(super) fn store_successor(&mut self, step: &mut StepParts) {
        if std::mem::take(&mut self.votes.is_unstored_successor) {
            self.store(step);
        }
    }

    /// Removes any earlier hint, which a packet from the process refutes.
    pub(super) fn on_sign_of_life(&mut self, from: ProcessId) {
        if self.has_suspicions() {
            self.liveness.suspected.remove(&from);
        }
    }

    /// Handles a packet from a process, also through a relay: it ends the suspicion that the
    /// process is dead.
    pub(super) fn on_packet_of(&mut self, now: Time, from: ProcessId, step: &mut StepParts) {
        if !self.liveness.refused.is_empty() {
            self.liveness.refused.remove(&from);
        }
        if !self.liveness.death_suspicions.is_empty() {
            self.end_suspicion(now, from, step);
        }
    }

    /// The timing of the view, or the timing for a founding.
    pub(super) fn timing(&self) -> &Timing {
        self.view.as_ref().map_or(&self.config.timing, |view| &view.timing)
    }

    pub(super) fn on_seeds(&mut self, seeds: BTreeSet<SocketAddr>) {
        self.config.seeds = seeds;
        if let MemberPhase::Discovery(discovery) = &mut self.phase {
            discovery.set_seeds(self.config.founding_seeds());
        }
    }

    /// The configuration for the next incarnation of this process, after [`Event::Expelled`] or
    /// [`Event::Abandoned`]. `vote_secret` is the new incarnation's secret, if it stores its votes,
    /// and `clock` is the present wall clock. The driver adds the static key of the new process id.
    ///
    /// An expelled process knows that the cluster lives on without it: from then on it joins and
    /// never founds.
    pub(super) fn next_incarnation(
        &self,
        process: ProcessId,
        vote_secret: Option<VoteSecret>,
        clock: Slot,
    ) -> Config {
        let mut config = self.config.clone();
        config.me.process = process;
        config.me.static_key = None;
        config.set_vote_secret(vote_secret);
        config.clock = clock;
        if self.votes.successor.is_some() || self.config.is_durable() {
            config.stored = self.stored_vote().or(config.stored);
        }
        if self.defected {
            config.stored = None;
        }
        if let Some(view) = &self.view
            && (!view.contains(self.config.me.process) || self.defected)
        {
            config.remembered = Some(View::clone(view));
        }
        if self.forced {
            let last = self
                .ballot_view()
                .map(|view| view.end_slot())
                .max(config.last_view().map(View::end_slot));
            config.found_above = last.map_or(Slot(0), |last| last.plus(FORCE_GAP));
            config.found_alone = true;
            config.forced_start = false;
            config.stored = None;
            config.remembered = None;
        }
        config
    }

    /// Stores votes and seeks a cluster. Runs before the timers of the locks.
    pub(super) fn seek(&mut self, now: Time, step: &mut StepParts) {
        self.votes.durability.on_timer(now, step.out);
        let is_silent = self.is_unwritten();
        self.give_founding_up(now);
        let belonging = (matches!(self.phase, MemberPhase::Discovery(_)) && !is_silent)
            .then(|| self.belonging(now));
        if let (MemberPhase::Discovery(discovery), Some(belonging)) = (&mut self.phase, belonging) {
            let found = discovery.on_timer(&self.config, now, belonging, step.out);
            self.on_founding_outcome(now, found, step);
        }
        if self.votes.successor.is_some() && !is_silent {
            self.decide(now, step);
        }
    }

    /// Runs the timers of a process in a view. Returns whether the process is still a member of a
    /// view.
    pub(super) fn on_timer(&mut self, now: Time, step: &mut StepParts) -> bool {
        self.keep_leaving(now, step);
        self.keep_parting(now, step);
        if matches!(self.phase, MemberPhase::Retiring { .. } | MemberPhase::Gone) {
            return false;
        }
        self.beat(now, step);
        self.greet(now, step);
        if now >= self.orphaned_at {
            self.orphaned_at = Time::MAX;
            step.out.push(Output::Event(Event::Orphaned));
        }
        self.keep_founding(now, step);
        self.vouch(now, step);
        self.keep_suspicions(now, step);
        true
    }

    /// Lets a member give up that never got a lease. Returns whether it has, or is in no view.
    pub(super) fn is_out(&mut self, now: Time, step: &mut StepParts) -> bool {
        let Some(view) = self.view.as_ref().filter(|_| !self.is_gone()) else { return true };
        let gives_up = self.is_member() && now >= self.give_up_at(view);
        if gives_up {
            self.end(now, Event::Abandoned, step);
        }
        gives_up
    }

    /// Lets the elder ask its council again, and send the view to members that lack it.
    pub(super) fn rally(&mut self, now: Time, step: &mut StepParts) {
        let (Some(view), Some(elder)) = (self.view.clone(), &mut self.elder) else { return };
        for (process, pulse) in elder.rally(now, self.config.me.process, &view) {
            step.dispatch(now, &self.config.me, &view, process, pulse.into());
        }
        for (process, have) in elder.take_behind(now, &view.timing) {
            if let Some(member) = view.member(process) {
                self.catch_up(now, member.info.addr, process, (have, 0), step);
            }
        }
    }

    /// Returns whether this elder has authority and must check its registry again.
    pub(super) fn is_time_to_answer(&mut self, now: Time, step: &mut StepParts) -> bool {
        let timing = *self.timing();
        let Some(elder) = &mut self.elder else { return false };
        let is_open_again = step.locks.is_open_again(now);
        let is_due =
            elder.is_time_to_answer(now, step.locks.has_parked(), &timing) || is_open_again;
        is_due && self.has_authority(now)
    }

    /// Returns whether this member leaves its view, and no view without it is known.
    pub(super) fn is_leaving(&self) -> bool {
        matches!(self.phase, MemberPhase::Leaving { .. })
    }

    /// Returns the time of the next timer. `registry`: the times at which the elder's registry can
    /// continue. `has_handed_over`: this member grants nothing any more.
    pub(super) fn deadline(&self, has_handed_over: bool, registry: [Option<Time>; 2]) -> Time {
        let mut due = Time::MAX;
        match &self.phase {
            MemberPhase::Gone => return due,
            MemberPhase::Discovery(_) if self.is_unwritten() => {}
            MemberPhase::Discovery(discovery) => due = due.min(discovery.deadline()),
            // The goodbye is said when this member grants nothing any more: no timer decides that.
            MemberPhase::Leaving { until, .. } if !has_handed_over => due = due.min(*until),
            MemberPhase::Leaving { again_at, until }
            | MemberPhase::Retiring { again_at, until, .. } => {
                due = due.min(*again_at).min(*until);
            }
            MemberPhase::Member => {}
        }
        due = due.min(self.votes.durability.deadline().unwrap_or(Time::MAX));
        if self.votes.successor.is_some()
            && !self.is_unwritten()
            && let Some(view) = self.ballot_view()
        {
            due = due.min(match &self.votes.proposal {
                Some(proposal) => self.proposal_due(&view, proposal),
                None => self.takeover_at(&view),
            });
        }
        if let Some(view) = self.linked_view() {
            due = due.min(self.liveness.vouch_at).min(self.suspicions_due().unwrap_or(Time::MAX));
            if self.is_member() {
                let end = if self.lease.running { self.lease_end() } else { self.give_up_at(view) };
                due = due.min(end).min(self.greeting.at).min(self.orphaned_at);
            }
            match &self.elder {
                Some(elder) => {
                    due = due.min(elder.deadline(self.votes.proposal.is_none(), registry))
                }
                None => due = due.min(self.lease.next_beat),
            }
            match &self.votes.proposal {
                Some(proposal) => due = due.min(self.proposal_due(view, proposal)),
                None => due = due.min(self.takeover_at(view)),
            }
        }
        due
    }

    /// The view with whose members this process exchanges messages on links.
    pub(super) fn linked_view(&self) -> Option<&Arc<View>> {
        self.view.as_ref().filter(|_| !matches!(self.phase, MemberPhase::Retiring { .. }))
    }

    /// The end of this member's lease: before it, and only before it, this member may hold and
    /// grant. [`Time::MAX`] while no other member could take over. [`Time::ZERO`] before the first
    /// renewal.
    pub(super) fn lease_end(&self) -> Time {
        planted!(=> if self.plant_lease() { return Time::MAX });
        match (&self.phase, &self.view) {
            (MemberPhase::Member, Some(_)) if self.is_alone() => Time::MAX,
            (MemberPhase::Member, Some(_)) => self.lease.until,
            _ => Time::ZERO,
        }
    }

    /// Returns the time before which this member may grant, also while it waits for other members
    /// to take over its services.
    fn granting_end(&self) -> Time {
        match (&self.phase, &self.view) {
            (MemberPhase::Leaving { .. }, Some(_)) if self.is_alone() => Time::MAX,
            (MemberPhase::Leaving { .. }, Some(_)) => self.lease.until,
            _ => self.lease_end(),
        }
    }

    /// Returns whether the member is in a view and its lease runs: joined, and able to hold locks.
    pub(super) fn is_ready(&self, now: Time) -> bool {
        now < self.lease_end()
    }

    /// Returns the seeds and their answers while the process is in discovery.
    pub(super) fn seed_report(&self) -> SeedReport {
        match &self.phase {
            MemberPhase::Discovery(discovery) => discovery.report(&self.config),
            _ => SeedReport::default(),
        }
    }

    /// The status without services.
    pub(super) fn status(&self, now: Time) -> Status {
        Status {
            me: self.config.me.clone(),
            view: self.view.as_deref().cloned(),
            elder: self.view.as_ref().map(|view| view.elder().process),
            leased: self.is_ready(now),
            services: Vec::new(),
            more_services: 0,
            suspected: self.liveness.suspected.iter().copied().collect(),
        }
    }

    pub(super) fn count(&self, sizes: &mut Sizes) {
        sizes.suspected = self.liveness.suspected.len();
        sizes.proposals = usize::from(self.votes.proposal.is_some());
    }
}

/// The process of this configuration, as its vote is stored; `None`: the process stores no vote.
fn stored_voter(config: &Config) -> Option<StoredVoter> {
    let secret = config.vote_secret.clone()?;
    Some(StoredVoter { process: config.me.process, secret })
}

fn send(to: SocketAddr, process: ProcessId, notice: Notice, step: &mut StepParts) {
    step.out.push(Output::Send { to, process: Some(process), packet: notice.into() });
}
