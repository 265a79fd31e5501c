//! The elder's duties: renew leases, change the view, keep the registry.
//!
//! - The elder renews leases only while a quorum of the council confirms its pulses (its
//!   *authority*). So it has stopped before another elder can be chosen.
//! - The elder removes a member only after the member's goodbye, when the member's lease is surely
//!   over, or when its death is vouched for.

mod joins;
#[cfg(elderlock_mutants)]
mod planted;

use self::joins::{JoinRate, WaitingJoins};
use super::lease::{MemberRecord, Pulses};
use super::view::{Change, View, ViewMember};
use super::vote_successor::VoteSuccessors;
use crate::protocol::id::{MemberInfo, ProcessId, ViewNumber};
use crate::protocol::message::Notice;
use crate::protocol::time::Time;
use crate::protocol::timing::Timing;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::time::Duration;

/// The elder's knowledge of the cluster.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Elder {
    /// All other members, ghosts included.
    members: BTreeMap<ProcessId, MemberRecord>,
    /// The times at which the other members' leases are surely over.
    lease_ends: BTreeSet<(Time, ProcessId)>,
    /// Members that do not have the present view yet, with the times at which it is sent to them
    /// again.
    missing_view: BTreeMap<ProcessId, Time>,
    pulses: Pulses,
    /// The time since which a quorum confirms this elder's pulses; `Time::MAX`: the elder is a
    /// quorum by itself.
    quorum_since: Option<Time>,
    /// A time at which no other elder could have been chosen. None can be for one elder lease after
    /// it: see [`Elder::step_down_from_alone`].
    floor: Option<Time>,
    /// Whether this elder promised its vote to another candidate. It renews no member any more
    /// then.
    pub(crate) deposed: bool,
    joins: WaitingJoins,
    join_rate: JoinRate,
    /// The most processes that join with one view.
    most_joins: usize,
    /// The members that said goodbye, with the time of each first goodbye.
    leaves: BTreeMap<ProcessId, Time>,
    revives: BTreeSet<ProcessId>,
    /// Members that a proposed view does not have. The view may be decided at any time, so these
    /// members get no renewal any more, even if they are heard again.
    pending_removals: BTreeSet<ProcessId>,
    /// The time at which the council is asked again while the quorum is missing.
    rally_at: Time,
    /// The time since which this elder has its present view.
    viewed_at: Time,
    /// The time at which the members that wait for an answer are checked again.
    answer_at: Time,
    /// The time of this elder's last check. A long gap means that it slept, and that beats may be
    /// unread.
    awake_at: Time,
    /// The time before which no member is removed for a lease that ended, so that unread beats can
    /// be read first.
    no_removal_before: Time,
    /// A planted break.
    #[cfg(elderlock_mutants)]
    mutant: Option<crate::protocol::mutant::ProtocolMutant>,
}

/// The most learners of a view that have not shown themselves. Without a key any process can ask
/// for thousands that do not exist.
const MAX_UNSHOWN: usize = 64;

/// The time after which one more view takes processes in, once many have done so in a row.
fn join_interval(timing: &Timing) -> Duration {
    timing.retry / 4
}

impl Elder {
    pub(crate) fn new(
        now: Time,
        me: ProcessId,
        view: &View,
        (last_pulse, joins): (u64, u32),
    ) -> Elder {
        let mut elder = Elder {
            members: BTreeMap::new(),
            lease_ends: BTreeSet::new(),
            missing_view: BTreeMap::new(),
            pulses: Pulses::after(last_pulse),
            quorum_since: None,
            floor: None,
            deposed: false,
            joins: WaitingJoins::new(),
            join_rate: JoinRate::new(now),
            most_joins: joins as usize,
            leaves: BTreeMap::new(),
            revives: BTreeSet::new(),
            pending_removals: BTreeSet::new(),
            rally_at: now,
            viewed_at: now,
            answer_at: now,
            awake_at: now,
            no_removal_before: now,
            #[cfg(elderlock_mutants)]
            mutant: None,
        };
        elder.seat_members(now, me, view);
        elder.recount(me, view);
        elder
    }

    /// Adopts a new view with the same elder.
    pub(crate) fn on_view(&mut self, now: Time, me: ProcessId, view: &View) {
        self.deposed = false;
        (self.rally_at, self.viewed_at) = (now, now);
        if view.members.iter().any(|member| member.joined == view.number) {
            self.join_rate.note(now, join_interval(&view.timing));
        }
        self.joins.retain(|process, (info, _)| {
            !view.contains(*process)
                && view.admits(info, view.number)
                && (view.is_spoken_by(info) || planted!(self.mutant, AdmitAnyVersion))
        });
        self.leaves.retain(|process, _| view.contains(*process));
        self.revives.clear();
        self.pending_removals.clear();
        self.members.retain(|process, _| view.contains(*process));
        self.lease_ends.retain(|(_, process)| view.contains(*process));
        self.missing_view.clear();
        self.seat_members(now, me, view);
        self.recount(me, view);
    }

    /// Returns the time since which a quorum confirms this elder's pulses, by the latest count.
    /// `None` if no quorum does.
    pub(crate) fn backed_since(&self, now: Time) -> Option<Time> {
        if self.deposed && !planted!(self.mutant, RenewThoughDeposed) {
            None
        } else {
            self.quorum_since.max(self.floor).map(|since| since.min(now))
        }
    }

    /// Returns whether this elder may renew and name at `now`.
    pub(crate) fn has_authority(&self, now: Time, timing: &Timing) -> bool {
        self.backed_since(now).is_some_and(|since| now < since + timing.elder_lease)
    }

    fn recount(&mut self, me: ProcessId, view: &View) {
        let mut asked: BTreeMap<ProcessId, Time> = self
            .members
            .iter()
            .filter_map(|(process, record)| record.acked.map(|sent| (*process, sent)))
            .collect();
        asked.insert(me, Time::MAX);
        self.quorum_since = view.quorum_value(&asked);
    }

    /// Ends the state of an elder that is a quorum by itself and needs no renewal. That state ends
    /// when the elder lets members in, or votes for another candidate. No other elder can have been
    /// chosen before now, so it is as if a quorum had answered now.
    pub(crate) fn step_down_from_alone(&mut self, now: Time) {
        self.floor = Some(now);
    }

    /// Handles a beat. Returns the answer.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn on_beat(
        &mut self,
        now: Time,
        me: ProcessId,
        view: &View,
        from: ProcessId,
        (theirs, beat, pulse, confirmed, kept): (ViewNumber, u64, u64, u64, bool),
        dead: &BTreeSet<ProcessId>,
    ) -> Option<Notice> {
        let sent_at = self.pulses.sent_at(pulse);
        let record = self.members.get_mut(&from)?;
        record.view = record.view.max(theirs);
        if kept {
            record.kept = record.kept.max(theirs);
        }
        record.heard_at = now;
        record.confirmed = record.confirmed.max(confirmed);
        if theirs == view.number {
            self.missing_view.remove(&from);
        }
        if dead.contains(&from) {
            return None;
        }
        if sent_at > record.acked {
            record.acked = sent_at;
            record.unheard_since = None;
            let had = self.has_authority(now, &view.timing);
            self.recount(me, view);
            if !had {
                // Members whose beats had no effect meanwhile get their renewal before any member
                // is missed.
                self.no_removal_before = now + view.timing.silence();
            }
        }
        let is_removed =
            self.pending_removals.contains(&from) && !planted!(self.mutant, RenewPendingRemoval);
        let is_going = self.leaves.contains_key(&from) || is_removed;
        let may_renew = self.has_authority(now, &view.timing) && !is_going;
        let record = self.members.get_mut(&from)?;
        if view.member(from).is_some_and(|member| member.ghost) {
            // Only a ghost that knows of this view can hear. A deaf one that is older than this
            // elder would be the elder again. No lease would then be renewed until it is replaced
            // once more.
            if theirs == view.number || planted!(self.mutant, ReviveTheDeaf) {
                self.revives.insert(from);
            }
            return None;
        }
        // Only a member that knows of its last renewal gets another one. A member that cannot hear
        // this elder must not stay for ever.
        let can_hear = record.renewed == 0
            || confirmed >= record.renewed
            || planted!(self.mutant, RenewTheDeaf);
        if may_renew && beat > record.renewed && can_hear {
            self.lease_ends.remove(&(lease_end(record, &view.timing), from));
            record.renewed = beat;
            record.renewed_at = now;
            self.lease_ends.insert((lease_end(record, &view.timing), from));
        }
        let renews = if may_renew { record.renewed } else { 0 };
        record.unheard_since.get_or_insert(now);
        let pulse = self.pulses.next(now, &view.timing);
        Some(Notice::Pulse { view: view.number, pulse, renews, again: false, settled: false })
    }

    /// Returns whether a member that is heard does not hear the answers to its beats.
    pub(crate) fn is_unheard(&self, now: Time, process: ProcessId, view: &View) -> bool {
        let timing = &view.timing;
        let period = if view.has_vote(process) { timing.beat } else { timing.slow_beat() };
        let since = self.members.get(&process).and_then(|record| record.unheard_since);
        since.is_some_and(|since| since + period * 2 <= now)
    }

    /// Notes that this elder is awake.
    pub(crate) fn note_awake(&mut self, now: Time, timing: &Timing) {
        if self.awake_at + timing.retry * 3 < now {
            self.no_removal_before = now + timing.silence();
        }
        self.awake_at = now.max(self.awake_at);
    }

    /// Sends pulses to the council, when the quorum is about to be missing. The elder sends them
    /// for no longer than its lease. A member with a pulse waits for this elder. So with a pulse
    /// that no member can answer, all of them would wait for ever. If the members can answer
    /// nevertheless, they send beats anyway.
    pub(crate) fn rally(
        &mut self,
        now: Time,
        me: ProcessId,
        view: &View,
    ) -> Vec<(ProcessId, Notice)> {
        self.note_awake(now, &view.timing);
        if now < self.rally_at {
            return Vec::new();
        }
        self.rally_at = now + view.timing.retry;
        if self.deposed {
            return Vec::new();
        }
        let margin = view.timing.elder_lease / 2;
        if self
            .backed_since(now)
            .is_some_and(|since| now + margin < since + view.timing.elder_lease)
        {
            return Vec::new();
        }
        if self
            .backed_since(now)
            .max(Some(self.viewed_at))
            .is_some_and(|since| since + view.timing.elder_lease <= now)
        {
            return Vec::new();
        }
        let others: Vec<ProcessId> =
            view.council().map(|info| info.process).filter(|process| *process != me).collect();
        let pulse = |process: ProcessId| {
            let renews = self.members.get(&process).map_or(0, |record| record.renewed);
            let pulse = self.pulses.next(now, &view.timing);
            (
                process,
                Notice::Pulse { view: view.number, pulse, renews, again: true, settled: false },
            )
        };
        others.into_iter().map(pulse).collect()
    }

    pub(crate) fn on_join(&mut self, now: Time, info: MemberInfo) {
        joins::note(&mut self.joins, 4 * self.most_joins, now, info);
    }

    /// Returns whether the members that wait for an answer must be checked again. Most changes that
    /// concern them are noticed at once.
    pub(crate) fn is_time_to_answer(
        &mut self,
        now: Time,
        has_parked: bool,
        timing: &Timing,
    ) -> bool {
        let due = has_parked && now >= self.answer_at;
        if due {
            self.answer_at = now + timing.retry;
        }
        due
    }

    /// Notes a member's goodbye. Returns whether it is new.
    pub(crate) fn on_leave(&mut self, now: Time, process: ProcessId) -> bool {
        let is_new = !self.leaves.contains_key(&process);
        self.leaves.entry(process).or_insert(now);
        is_new
    }

    /// The number of processes that have said goodbye.
    #[cfg(test)]
    pub(crate) fn goodbyes(&self) -> usize {
        self.leaves.len()
    }

    /// The latest view that the directory of the process is known to have.
    pub(crate) fn kept_view(&self, process: ProcessId) -> ViewNumber {
        self.members.get(&process).map_or(ViewNumber(0), |record| record.kept)
    }

    /// Returns whether a quorum of the view's council has the view, on disk where members have
    /// disks. `own`: this member, if it has the view.
    pub(crate) fn is_settled(&self, own: Option<ProcessId>, view: &View) -> bool {
        let has_it = |(_, record): &(&ProcessId, &MemberRecord)| record.kept >= view.number;
        view.is_quorum(self.members.iter().filter(has_it).map(|(process, _)| process).chain(&own))
            || planted!(self.mutant, CallItSettled)
    }

    pub(crate) fn last_pulse(&self) -> u64 {
        self.pulses.last()
    }

    /// Takes the members to which the present view must be sent now.
    pub(crate) fn take_behind(
        &mut self,
        now: Time,
        timing: &Timing,
    ) -> Vec<(ProcessId, ViewNumber)> {
        let mut due = Vec::new();
        for (process, at) in &mut self.missing_view {
            if *at <= now {
                *at = now + timing.retry;
                due.push((
                    *process,
                    self.members.get(process).map_or(ViewNumber(0), |record| record.view),
                ));
            }
        }
        due
    }

    /// Notes that a view without these members is proposed.
    pub(crate) fn note_removals(&mut self, members: &BTreeSet<ProcessId>) {
        self.pending_removals.extend(members);
    }

    /// The change that the next view should make; empty if none. `longer`: the last view had too
    /// few slots. `gone`: returns the processes that are gone, for an elder that leaves.
    /// `successors`: the known vote successors.
    pub(crate) fn wanted_change(
        &mut self,
        now: Time,
        me: ProcessId,
        view: &View,
        dead: &BTreeSet<ProcessId>,
        longer: bool,
        (gone, successors): (impl FnOnce() -> BTreeSet<ProcessId>, &VoteSuccessors),
    ) -> Change {
        let span = view.timing.retry * 4;
        self.joins.retain(|process, (_, heard)| *heard + span > now && !dead.contains(process));
        let mut change = Change { longer, ..Change::default() };
        change.remove.extend(
            dead.iter().copied().filter(|process| view.contains(*process) && *process != me),
        );
        change.remove.extend(self.leaves.keys().copied().filter(|process| view.contains(*process)));
        if now >= self.no_removal_before && self.has_authority(now, &view.timing) {
            let is_over = |at: Time| at <= now;
            planted!(=> let is_over = |at: Time| self.plant_removal(at, now, view) || is_over(at));
            let over = self
                .lease_ends
                .iter()
                .take_while(|(at, _)| is_over(*at))
                .map(|(_, process)| *process);
            change.remove.extend(over.filter(|process| self.is_lost(*process, now, view)));
        }
        change.revive.extend(
            self.revives.iter().copied().filter(|process| !change.remove.contains(process)),
        );
        change.join = match self.join_rate.may_join(now, join_interval(&view.timing)) {
            true => self.wanted_joins(view),
            // They ask again, and are taken in together.
            false => Vec::new(),
        };
        let former = |info: &MemberInfo| self.former(now, me, view, info, successors);
        // An elder that decides a view without itself needs the confirmation of a quorum of that
        // view, and only the present council is asked. So the elder leaves with a view whose
        // council is known to be there. The view first leaves the joining processes out. If other
        // members leave at the same time, the elder leaves after them. (A view also has a living
        // member, if all leave at once.)
        if change.remove.contains(&me) {
            change.join.retain(|info| former(info).is_empty());
            let gone = gone();
            // The elder does not wait for silent members of the council either: the view keeps them
            // as ghosts, as at a takeover.
            let is_silent = |process: &ProcessId| {
                let is_old = |record: &MemberRecord| record.heard_at + view.timing.silence() <= now;
                gone.contains(process) || self.members.get(process).is_some_and(is_old)
            };
            // The only voter has no other council member to ask. The members that vote after it
            // have shown themselves since it said goodbye, and are told while it retires. A member
            // that died just before would take the last vote with it.
            let is_sole = view.has_sole_voter();
            let successors: Vec<ProcessId> = match is_sole {
                true => view.living().map(|member| member.info.process).collect(),
                false => view.council().map(|info| info.process).collect(),
            };
            let since = self.leaves.get(&me).copied().unwrap_or(now);
            let is_there = |process: &ProcessId| {
                !is_sole || self.members.get(process).is_none_or(|record| record.heard_at >= since)
            };
            let silent = successors
                .iter()
                .filter(|process| is_silent(process) && !change.remove.contains(process));
            change.ghost.extend(silent);
            let can_go = |change: &Change| {
                let next = view.next(change);
                let is_present =
                    |process: &&ProcessId| !change.ghost.contains(process) && is_there(process);
                let present: Vec<&ProcessId> = successors.iter().filter(is_present).collect();
                // A proposal that the present council does not accept stays undecided. A member
                // that finds it later must complete it, though the members that the proposal calls
                // silent are the ones that stayed.
                let present = || present.iter().copied();
                view.is_quorum(present())
                    && next.living().any(|member| !member.learner)
                    && next.is_quorum(present())
            };
            if !can_go(&change) {
                change.join.clear();
            }
            if !can_go(&change) {
                change.remove.remove(&me);
                change.ghost.clear();
                self.promote(now, me, view, &mut change);
            }
        } else {
            let former: Vec<ProcessId> = change.join.iter().flat_map(former).collect();
            change
                .ghost
                .extend(former.into_iter().filter(|former| !change.remove.contains(former)));
            if !change.is_empty() || !view.has_promoted_all() {
                self.promote(now, me, view, &mut change);
            }
        }
        planted!(self.mutant, PromoteJoiners => planted::promote_joiners(&mut change));
        change
    }

    /// The processes that join, at most `most_joins` in one view. With the learners of the view
    /// that have not shown themselves they are at most [`MAX_UNSHOWN`].
    fn wanted_joins(&self, view: &View) -> Vec<MemberInfo> {
        let is_unshown = |process| self.members.get(&process).is_some_and(|one| one.renewed == 0);
        let learners = view.living().filter(|member| member.learner);
        let unshown = learners.filter(|member| is_unshown(member.info.process)).count();
        let unshown = if planted!(self.mutant, AdmitAllUnshown) { 0 } else { unshown };
        let room = MAX_UNSHOWN.saturating_sub(unshown).min(self.most_joins);
        // If two processes ask from one address, the earlier one has ended.
        let mut latest = BTreeMap::new();
        for (info, heard) in self.joins.values() {
            let at = latest.entry(info.addr).or_insert(*heard);
            *at = (*at).max(*heard);
        }
        let joins = joins::in_turn(&self.joins, room, view.number).into_iter();
        let joins = joins.filter(|(info, heard)| latest.get(&info.addr) == Some(heard));
        joins.map(|(info, _)| info.clone()).take(room).collect()
    }

    /// The members in whose place a process joins. The process gives no vote in their place any
    /// more, even if it was their vote successor. So they become ghosts: otherwise the view would
    /// count on dead processes. A member that was heard lately stays, unless its vote was claimed:
    /// any process can name its address.
    fn former(
        &self,
        now: Time,
        me: ProcessId,
        view: &View,
        info: &MemberInfo,
        successors: &VoteSuccessors,
    ) -> Vec<ProcessId> {
        let others = view.others_at(info).map(|one| one.process);
        let is_over = |one: ProcessId| {
            let claimed = successors.of(one).is_some_and(|by| by.process == info.process);
            let record = self.members.get(&one);
            claimed || record.is_some_and(|record| record.heard_at + view.timing.silence() <= now)
        };
        others.filter(|one| *one != me && is_over(*one)).collect()
    }

    /// Adds the learners that get a vote to the change. Each has shown itself since it joined, and
    /// together they weigh less than the other voters. So a group that joins and falls silent
    /// cannot end the quorum. A former process at the address of one of them is a ghost from then
    /// on.
    fn promote(&self, now: Time, me: ProcessId, view: &View, change: &mut Change) {
        let has_voters = |change: &Change, most: usize| {
            let voters = view.next(change).council().count();
            voters > most || planted!(self.mutant, PromoteAll)
        };
        let is_voter = |process: ProcessId| {
            view.member(process).is_some_and(|member| !member.learner) && process != me
        };
        let mut promoted = BTreeSet::new();
        for learner in self.promotable(now, view, change) {
            let mut with = change.clone();
            let former = view.others_at(&learner.info).map(|other| other.process);
            with.ghost
                .extend(former.filter(|other| is_voter(*other) && !change.remove.contains(other)));
            if !has_voters(&with, promoted.len()) {
                break;
            }
            change.ghost = with.ghost;
            promoted.insert(learner.info.process);
        }
        change.promote = promoted;
    }

    /// The learners that have shown themselves since they joined, oldest first.
    fn promotable(&self, now: Time, view: &View, change: &Change) -> Vec<ViewMember> {
        let has_answered = |member: &ViewMember| {
            let process = member.info.process;
            let is_going =
                self.leaves.contains_key(&process) || self.pending_removals.contains(&process);
            let has_view = |record: &MemberRecord| {
                let is_heard = record.heard_at + view.timing.silence() > now;
                record.kept >= member.joined && is_heard && !is_going
            };
            self.members.get(&process).is_some_and(has_view)
                || planted!(self.mutant, PromoteTheSilent)
        };
        let next = view.next(change);
        let learners = next.living().filter(|member| member.learner);
        let present = learners.filter(|member| view.contains(member.info.process));
        present.filter(|member| has_answered(member)).cloned().collect()
    }

    /// Returns whether a member has sent no beat for a quarter of a member lease. This elder may
    /// have slept or have lacked its quorum; then it reads the beats of that time first.
    pub(crate) fn is_silent(&self, process: ProcessId, now: Time, timing: &Timing) -> bool {
        let is_old = |record: &MemberRecord| record.heard_at + timing.silence() <= now;
        let is_awake = self.awake_at + timing.retry * 3 >= now && now >= self.no_removal_before;
        is_awake && self.members.get(&process).is_some_and(is_old)
    }

    /// Returns whether to remove a member whose lease is over: it is silent, or it cannot hear. A
    /// member that beats, and knows of its last renewal and of the view, only waits for this elder
    /// to have its quorum again.
    fn is_lost(&self, process: ProcessId, now: Time, view: &View) -> bool {
        let Some(record) = self.members.get(&process) else { return false };
        let span = view.timing.silence();
        let is_behind = record.view < view.number && self.viewed_at + span <= now;
        record.heard_at + span <= now
            || record.confirmed < record.renewed
            || (is_behind && !planted!(self.mutant, KeepTheDeaf))
    }

    /// The earliest time at which a timer is due. `idle`: no proposal is under way. `registry`: the
    /// times at which the registry can continue.
    pub(crate) fn deadline(&self, idle: bool, registry: [Option<Time>; 2]) -> Time {
        let mut due = self.rally_at;
        // A young turk that is due waits only for this elder's quorum, and is checked with every
        // change.
        for at in registry.into_iter().flatten().filter(|at| *at > self.awake_at) {
            due = due.min(at);
        }
        // Leases that were over at the last check are checked again with the next rally.
        let ahead = self
            .lease_ends
            .range((Bound::Excluded((self.awake_at, ProcessId(u128::MAX))), Bound::Unbounded));
        if let Some((at, _)) = ahead.into_iter().next().filter(|_| idle && !self.deposed) {
            due = due.min(*at);
        }
        if let Some(at) = self.missing_view.values().min() {
            due = due.min(*at);
        }
        due
    }

    fn seat_members(&mut self, now: Time, me: ProcessId, view: &View) {
        for member in view.members.iter().filter(|member| member.info.process != me) {
            let process = member.info.process;
            let record = self.members.entry(process).or_insert_with(|| {
                let record = MemberRecord::new(now);
                self.lease_ends.insert((lease_end(&record, &view.timing), process));
                record
            });
            if record.view < view.number {
                self.missing_view.insert(process, now + view.timing.retry / 2);
            }
        }
    }
}

fn lease_end(record: &MemberRecord, timing: &Timing) -> Time {
    record.renewed_at + timing.surely(timing.member_lease)
}
