//! Views: the members, oldest first, and the step from one view to the next.

use crate::protocol::id::{Lineage, MemberInfo, ProcessId, Slot, Token, ViewNumber};
use crate::protocol::timing::Timing;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// A member in a view.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ViewMember {
    /// The identity and the address of the member.
    pub info: MemberInfo,
    /// The view in which the member joined: its age.
    pub joined: ViewNumber,
    /// Whether the member is a ghost: unreachable at a takeover, without a vote and without
    /// renewal. It may still hold locks.
    pub ghost: bool,
    /// Whether the member is a learner: it has not shown itself since its join, and has no vote
    /// yet.
    pub learner: bool,
}

/// An agreed list of members, oldest first.
///
/// - `one_lineage`: view n+1 is chosen by a quorum of the council of view n, so no number names two
///   views.
/// - The order of the members that have or had a vote never changes. A learner comes after them,
///   and is the youngest of them when it gets its vote.
/// - Being in the view means "may still hold". A process leaves the view only after its goodbye,
///   when its lease has surely run out, or when its death is vouched for.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Serialize, Deserialize)]
#[non_exhaustive]
pub struct View {
    /// The founding of the view's lineage. Views of different lineages are independent.
    pub lineage: Lineage,
    /// The number, which rises by one with each view.
    pub number: ViewNumber,
    /// The first slot whose tokens the elder deals.
    pub first_slot: Slot,
    /// The number of slots from there on that the elder may deal. The next view begins after them,
    /// even if fewer were dealt.
    pub slots: u32,
    /// The first slot of the tenure of the elder. It is the slot of the view since which that
    /// process has been the elder and has proposed each view itself. A grantor that it named before
    /// does not count.
    pub tenure: Slot,
    /// The members: first those that have or had a vote, in the order in which they got it, then
    /// learners.
    pub members: Vec<ViewMember>,
    /// The timing that all members keep.
    pub timing: Timing,
    /// The council's size: at most this many of the oldest members decide the next view.
    pub council_size: u8,
    /// The version of the wire that the members speak with each other. It is the highest that all
    /// of them have, and never lower than that of the view before.
    pub version: u16,
    /// The members that left in one of the last `ENTRY_WINDOW` views, each with that view. A
    /// request to join may be that old; a process that is listed here cannot join again.
    pub departed: Vec<(ProcessId, ViewNumber)>,
}

/// The number of views for which a request to join counts, after the view that its sender knew.
pub(crate) const ENTRY_WINDOW: u64 = 16;

/// The most slots of a view: half a second, or 2^32 tokens.
pub(crate) const MAX_SLOTS: u32 = 1024;

/// The longest distance of a view's slots above this machine's clock. Views beyond it are refused:
/// one of the two clocks is wrong.
pub(crate) const MAX_AHEAD: Duration = Duration::from_secs(3600);

/// The difference between a view and the next one.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub struct Change {
    /// The processes that join, in this order.
    pub join: Vec<MemberInfo>,
    /// The members that are removed: after a goodbye, a lease that is surely over, or a vouched
    /// death.
    pub remove: BTreeSet<ProcessId>,
    /// Members that become ghosts.
    pub ghost: BTreeSet<ProcessId>,
    /// Ghosts that were heard again.
    pub revive: BTreeSet<ProcessId>,
    /// Learners that have a vote from the next view on.
    pub promote: BTreeSet<ProcessId>,
    /// Whether all slots of the view were dealt: the next view has twice as many then.
    pub longer: bool,
    /// Whether a candidate proposed the change. The elder of the next view begins a new tenure
    /// then, even if it was the elder before.
    pub takeover: bool,
}

impl Change {
    /// Returns whether the next view would have the same members in the same state.
    pub fn is_empty(&self) -> bool {
        self.join.is_empty()
            && self.remove.is_empty()
            && self.ghost.is_empty()
            && self.revive.is_empty()
            && self.promote.is_empty()
    }
}

impl View {
    /// The first view of a lineage.
    pub fn first(
        first_slot: Slot,
        founders: Vec<MemberInfo>,
        timing: Timing,
        council_size: u8,
    ) -> View {
        let lineage = Lineage { founded: first_slot, founder: founders[0].process };
        // The number is above those of all lineages founded before, so that no number is mixed up
        // between two lineages.
        let number = ViewNumber(first_slot.0);
        let version = highest_of_all(&founders);
        let members = founders
            .into_iter()
            .map(|info| ViewMember { info, joined: number, ghost: false, learner: false })
            .collect();
        View {
            lineage,
            number,
            first_slot,
            slots: 1,
            tenure: first_slot,
            members,
            timing,
            council_size,
            version,
            departed: Vec::new(),
        }
    }

    /// The first slot after the view's own.
    pub fn end_slot(&self) -> Slot {
        self.first_slot.plus(u64::from(self.slots))
    }

    /// The first token that the elder deals, if any earlier one is not dealt.
    pub(crate) fn first_token(&self) -> Token {
        Token::new(self.first_slot, 0)
    }

    /// The next view after `change`.
    pub fn next(&self, change: &Change) -> View {
        let number = self.number.next();
        // Even with many views in fast succession the slots hardly run ahead of the clock.
        let slots = match change.longer {
            true => self.slots.saturating_mul(2).min(MAX_SLOTS),
            false => self.slots.div_ceil(2),
        };
        let first_slot = self.end_slot();
        let mut members: Vec<ViewMember> = self.members.clone();
        members.retain(|member| !change.remove.contains(&member.info.process));
        for member in &mut members {
            let process = member.info.process;
            member.ghost = (member.ghost || change.ghost.contains(&process))
                && !change.revive.contains(&process);
        }
        for info in &change.join {
            if !members.iter().any(|member| member.info.process == info.process) {
                let info = info.clone();
                members.push(ViewMember { info, joined: number, ghost: false, learner: true });
            }
        }
        for member in &mut members {
            member.learner &= !change.promote.contains(&member.info.process);
        }
        // A learner that gets a vote is younger than all that have one.
        members.sort_by_key(|member| member.learner);
        let mut departed = self.departed.clone();
        departed.retain(|(_, left)| left.0.saturating_add(ENTRY_WINDOW) > number.0);
        let gone =
            self.members.iter().filter(|member| change.remove.contains(&member.info.process));
        departed.extend(gone.map(|member| (member.info.process, number)));
        let elder = |members: &[ViewMember]| {
            let elder = members.iter().find(|member| !member.ghost && !member.learner);
            elder.map(|member| member.info.process)
        };
        let goes_on = !change.takeover && elder(&members) == elder(&self.members);
        let tenure = if goes_on { self.tenure } else { first_slot };
        // A member that left before may no longer speak a lower version.
        let version = self.version.max(highest_of_all(members.iter().map(|member| &member.info)));
        View { number, first_slot, slots, tenure, version, members, departed, ..self.clone() }
    }

    /// The entry of `process`.
    pub fn member(&self, process: ProcessId) -> Option<&ViewMember> {
        self.members.iter().find(|member| member.info.process == process)
    }

    /// Returns whether `info` may join, which knew view `heard` when it asked: an id never comes
    /// back.
    pub fn admits(&self, info: &MemberInfo, heard: ViewNumber) -> bool {
        let process = info.process;
        heard.0.saturating_add(ENTRY_WINDOW) > self.number.0
            && !self.departed.iter().any(|(departed, _)| *departed == process)
    }

    /// Returns whether a process speaks the version of this view. No other process may join: it and
    /// the members would not understand each other.
    pub fn is_spoken_by(&self, info: &MemberInfo) -> bool {
        info.versions.contains(self.version)
    }

    /// Returns whether a member can see another one end: both are on one host.
    pub(crate) fn is_witness(&self, process: ProcessId, other: ProcessId) -> bool {
        let host = |process| self.member(process).and_then(|member| member.info.host);
        matches!((host(process), host(other)), (Some(mine), Some(theirs)) if mine.sees(&theirs))
    }

    /// Returns whether `process` is in the view, ghosts included.
    pub fn contains(&self, process: ProcessId) -> bool {
        self.member(process).is_some()
    }

    /// The addresses of the members with a vote, and of ghosts that had one.
    pub(crate) fn voter_addrs(&self) -> impl Iterator<Item = SocketAddr> {
        let voters = self.members.iter().filter(|member| !member.learner);
        voters.map(|member| member.info.addr)
    }

    /// The members that are not ghosts, oldest first.
    pub fn living(&self) -> impl Iterator<Item = &ViewMember> {
        self.members.iter().filter(|member| !member.ghost)
    }

    /// The oldest living member that is not a learner. A view always has one (see
    /// [`View::is_sound`]).
    pub fn elder(&self) -> &MemberInfo {
        self.council().next().expect("a view has a voter")
    }

    /// The members that decide the next view: the oldest living ones that are not learners.
    pub fn council(&self) -> impl Iterator<Item = &MemberInfo> {
        let voters = self.living().filter(|member| !member.learner);
        voters.take(usize::from(self.council_size.max(1))).map(|member| &member.info)
    }

    /// Returns whether no learner waits for a vote: there is none, or the council is full.
    pub fn has_promoted_all(&self) -> bool {
        self.council().count() == usize::from(self.council_size)
            || self.living().all(|member| !member.learner)
    }

    /// Living members at the address of `info` that are other processes.
    pub(crate) fn others_at<'a>(
        &'a self,
        info: &MemberInfo,
    ) -> impl Iterator<Item = &'a MemberInfo> + use<'a> {
        let (addr, process) = (info.addr, info.process);
        let others = self.living().map(|member| &member.info);
        others.filter(move |other| other.addr == addr && other.process != process)
    }

    /// Returns whether `member` is a ghost with another living member at its address. Of two living
    /// members there, either may be the latest.
    pub(crate) fn is_replaced(&self, member: &ViewMember) -> bool {
        member.ghost && self.others_at(&member.info).next().is_some()
    }

    /// Returns whether one member decides the next view alone.
    pub(crate) fn has_sole_voter(&self) -> bool {
        self.council().nth(1).is_none()
    }

    /// Returns whether `process` has a vote on the next view.
    pub fn has_vote(&self, process: ProcessId) -> bool {
        self.council().any(|info| info.process == process)
    }

    /// The weight of a member of the council: 3 for the elder, 2 for every other one.
    fn weight(&self, process: ProcessId) -> u32 {
        if self.elder().process == process { 3 } else { 2 }
    }

    /// Returns whether `voters` are a quorum: more than half of the council's weight.
    pub fn is_quorum<'a>(&self, voters: impl IntoIterator<Item = &'a ProcessId>) -> bool {
        let voters: BTreeSet<_> = voters.into_iter().copied().collect();
        let all: u32 = self.council().map(|info| self.weight(info.process)).sum();
        let for_it: u32 = self
            .council()
            .filter(|info| voters.contains(&info.process))
            .map(|info| self.weight(info.process))
            .sum();
        for_it * 2 > all
    }

    /// The latest instant that the values of a quorum reach; `None` stands for a member without a
    /// value.
    pub fn quorum_value<T: Ord + Copy>(&self, values: &BTreeMap<ProcessId, T>) -> Option<T> {
        let mut sorted: Vec<(T, ProcessId)> = self
            .council()
            .filter_map(|info| values.get(&info.process).map(|value| (*value, info.process)))
            .collect();
        sorted.sort_unstable_by(|a, b| b.cmp(a));
        let mut voters = BTreeSet::new();
        for (value, process) in sorted {
            voters.insert(process);
            if self.is_quorum(&voters) {
                return Some(value);
            }
        }
        None
    }

    /// Returns whether the view is valid. Views from outside are checked by this.
    pub fn is_sound(&self) -> bool {
        let ids: BTreeSet<_> = self.members.iter().map(|member| member.info.process).collect();
        ids.len() == self.members.len()
            && self.living().any(|member| !member.learner)
            && self.council_size >= 1
            && self.members.iter().all(|member| self.is_spoken_by(&member.info))
            && self.number.0 >= self.lineage.founded.0
            && self.number.0 < 1 << 62
            && self.lineage.founded >= Slot(1)
            && self.first_slot >= self.lineage.founded
            && (1..=MAX_SLOTS).contains(&self.slots)
            && (self.lineage.founded..=self.first_slot).contains(&self.tenure)
            && self.end_slot() < Slot::MAX
            && self.timing.check().is_ok()
    }
}

/// The highest version that all of these processes speak.
fn highest_of_all<'a>(infos: impl IntoIterator<Item = &'a MemberInfo>) -> u16 {
    infos.into_iter().map(|info| info.versions.highest).min().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::id::Versions;

    fn speaking(process: u128, lowest: u16, highest: u16) -> MemberInfo {
        MemberInfo { versions: Versions { lowest, highest }, ..info(process) }
    }

    #[test]
    fn the_version_is_raised_by_the_view_without_the_last_old_member() {
        let founders = vec![speaking(1, 11, 11), speaking(2, 11, 11), speaking(3, 11, 12)];
        let mut view = View::first(Slot(900), founders, Timing::lan(), 7);
        assert_eq!(view.version, 11);
        let remove = |process| Change { remove: [ProcessId(process)].into(), ..Change::default() };
        let join = vec![speaking(4, 11, 12)];
        view = view.next(&Change { join, ..Change::default() });
        view = view.next(&remove(1));
        assert_eq!(view.version, 11);
        // A ghost may still send packets, and is no reason to raise the version.
        view = view.next(&Change { ghost: [ProcessId(2)].into(), ..Change::default() });
        assert_eq!(view.version, 11);
        view = view.next(&remove(2));
        assert_eq!((view.version, view.is_sound()), (12, true));
        // The version never falls.
        view.members.push(ViewMember { info: speaking(5, 11, 11), ..view.members[0].clone() });
        assert_eq!(view.next(&Change::default()).version, 12);
        assert!(!view.is_sound(), "a member does not speak it");
    }

    #[test]
    fn founders_without_a_common_version_have_no_sound_view() {
        let founders = vec![speaking(1, 11, 12), speaking(2, 12, 13)];
        let view = View::first(Slot(900), founders, Timing::lan(), 7);
        assert_eq!((view.version, view.is_sound()), (12, true));
        let founders = vec![speaking(1, 11, 12), speaking(2, 13, 14)];
        assert!(!View::first(Slot(900), founders, Timing::lan(), 7).is_sound());
    }

    fn info(process: u128) -> MemberInfo {
        let addr = std::net::SocketAddr::from(([10, 0, 0, process as u8], 7400));
        MemberInfo::new(ProcessId(process), addr)
    }

    #[test]
    fn a_tenure_lasts_while_one_elder_proposes_each_view() {
        let first = View::first(Slot(900), vec![info(1), info(2), info(3)], Timing::lan(), 7);
        assert_eq!(first.tenure, first.first_slot);
        let joined = first.next(&Change { join: vec![info(4)], ..Change::default() });
        assert_eq!(joined.tenure, first.first_slot);

        let candidates = joined.next(&Change {
            ghost: [ProcessId(3)].into(),
            takeover: true,
            ..Change::default()
        });
        assert_eq!(candidates.elder(), joined.elder());
        assert_eq!(
            candidates.tenure, candidates.first_slot,
            "the elder may not have seen the view before"
        );

        let other = joined.next(&Change { ghost: [ProcessId(1)].into(), ..Change::default() });
        assert_eq!((other.elder().process, other.tenure), (ProcessId(2), other.first_slot));
        let back = other.next(&Change { revive: [ProcessId(1)].into(), ..Change::default() });
        assert_eq!((back.elder().process, back.tenure), (ProcessId(1), back.first_slot));
    }
}
