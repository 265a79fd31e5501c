//! Quorums for a driver that knows everything. This module tells which processes may end so that
//! the rest can decide the next view, and whether a quorum is left.

use crate::record::{Entry, Line, Record};
use crate::site::Site;
use crate::world::World;
use elderlock::protocol::{Change, Notice, Packet, ProcessId, Time, View};
use std::collections::BTreeSet;

/// How processes are to end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum ShutdownPlan {
    /// The processes are killed, or their hosts fail: their votes are on disk.
    Dead,
    /// The processes say goodbye: views without them are decided.
    Gone,
}

impl World {
    /// The latest view of the latest lineage.
    fn newest(&self) -> Option<&View> {
        self.latest.values().last()
    }

    /// The newest view, and the proposals that follow it. A voter may have accepted such a
    /// proposal, and a candidate that finds it must finish it.
    fn at_stake(&self) -> impl Iterator<Item = &View> + Clone {
        let newest = self.newest();
        let follows = move |view: &&View| {
            newest
                .is_some_and(|newest| view.lineage == newest.lineage && view.number > newest.number)
        };
        newest.into_iter().chain(self.proposed.iter().filter(follows))
    }

    /// Remembers a proposal, and the site of a candidate.
    pub(crate) fn hear_proposal(&mut self, from: usize, packet: &Packet) {
        let notice = match packet {
            Packet::Notice(notice) => notice,
            Packet::VoteSuccessor { notice, .. } => notice,
            _ => return,
        };
        let Notice::Accept { instance, change, .. } = &**notice else { return };
        self.proposer = Some(from);
        let Some(next) = self
            .newest()
            .filter(|view| view.number.next() == *instance)
            .map(|view| view.next(change))
        else {
            return;
        };
        if next.is_sound() && !self.proposed.contains(&next) {
            self.proposed.retain(|view| view.lineage == next.lineage && view.number == next.number);
            self.proposed.push(next);
        }
    }

    /// The vote in the view that is given at `site`: by its process, or else by the vote on its
    /// disk. A directory has one vote.
    fn vote_at(&self, site: usize, view: &View) -> Option<ProcessId> {
        let peer = &self.sites[site];
        let own = peer.process().filter(|_| peer.is_alive());
        let stored = peer
            .disk
            .vote
            .iter()
            .flat_map(|stored| stored.successors.iter().rev().chain([&stored.voter]))
            .map(|voter| voter.process);
        own.into_iter().chain(stored).find(|process| view.has_vote(*process))
    }

    /// Returns whether the processes at these sites are a quorum of the view's council, in person
    /// or by the votes on their disks.
    pub(crate) fn is_quorum_with_disks(
        &self,
        view: &View,
        sites: impl IntoIterator<Item = usize>,
    ) -> bool {
        let votes: Vec<ProcessId> =
            sites.into_iter().filter_map(|site| self.vote_at(site, view)).collect();
        view.is_quorum(&votes)
    }

    /// Returns whether these processes may end: their votes are on disk, or the others can do
    /// without them.
    pub(crate) fn can_spare(&self, sites: &[usize], how: ShutdownPlan, reckless: bool) -> bool {
        let has_disk =
            |site: &usize| self.sites[*site].disk.vote.is_some() || !self.is_alive(*site);
        if self.common.durable && sites.iter().all(has_disk) {
            return how == ShutdownPlan::Dead || reckless || self.can_part_with(sites);
        }
        self.can_do_without(sites, reckless)
    }

    /// Returns whether the votes of the others are a quorum of everything at stake, also after
    /// these and all leaving processes have gone.
    fn can_part_with(&self, sites: &[usize]) -> bool {
        let goes = |site: &usize| {
            sites.contains(site) || (self.is_alive(*site) && self.sites[*site].will_leave())
        };
        let stay: Vec<usize> = self.sites().filter(|site| !goes(site)).collect();
        let remove =
            self.sites().filter(goes).filter_map(|site| self.sites[site].process()).collect();
        let change = Change { remove, ..Change::default() };
        self.at_stake().all(|view| {
            let after = view.next(&change);
            let suffices = |view: &View| self.is_quorum_with_disks(view, stay.iter().copied());
            suffices(view) && after.is_sound() && suffices(&after)
        })
    }

    /// Returns whether the site may lose its disk. The votes of the others must suffice for every
    /// view from which a process may still have to decide. One of the others must be a seed that
    /// remembers a view.
    pub(crate) fn can_lose_disk(&self, site: usize) -> bool {
        let others: Vec<usize> = self.sites().filter(|other| *other != site).collect();
        let known = self.sites().filter_map(|site| self.view(site));
        let stored = self.sites.iter().filter_map(|peer| Some(&peer.disk.vote.as_ref()?.view));
        let is_remembered = others.iter().any(|other| {
            let peer = &self.sites[*other];
            peer.seeds.contains(&peer.addr) && peer.disk.vote.is_some()
        });
        let mut views = self.at_stake().chain(known).chain(stored);
        is_remembered
            && views.all(|view| self.is_quorum_with_disks(view, others.iter().copied()))
            && self.can_part_with(&[site])
    }

    /// Returns whether these processes may end for good. A quorum of everything at stake must live
    /// on (unless the plan is reckless), and so must a seed that remembers the cluster. Seeds that
    /// all start anew at once found a new cluster, if no votes are kept on disk.
    pub(crate) fn can_do_without(&self, sites: &[usize], reckless: bool) -> bool {
        let Some(newest) = self.newest() else { return true };
        let rest: Vec<usize> =
            self.sites().filter(|site| !sites.contains(site) && self.has_leased(*site)).collect();
        let remembers = |site: &usize| {
            let peer = &self.sites[*site];
            // The process must be a member and know it: a joiner that was taken in but not told is
            // still in discovery.
            let own = peer.node.as_ref().and_then(|node| node.view());
            let is_in = |of: &View| peer.process().is_some_and(|process| of.contains(process));
            peer.seeds.contains(&peer.addr) && is_in(newest) && own.is_some_and(is_in)
        };
        rest.iter().any(remembers)
            && (reckless || self.at_stake().all(|view| self.is_quorum(view, rest.iter().copied())))
    }

    /// Returns whether the process at `site` may be killed at the moment at which it decides this
    /// view, before it can tell any other. The rest must be a quorum of that view, too.
    pub(crate) fn can_die_deciding(&self, site: usize, next: &View) -> bool {
        let others = self.sites().filter(|other| *other != site && self.has_leased(*other));
        self.can_spare(&[site], ShutdownPlan::Dead, false)
            && (self.common.durable || self.is_quorum(next, others.collect::<Vec<_>>()))
    }

    /// Returns whether a process that has had a lease runs there. A process without any lease gives
    /// itself up when none comes in time, and its vote with it.
    fn has_leased(&self, site: usize) -> bool {
        let peer = &self.sites[site];
        peer.is_alive() && !peer.will_leave() && peer.lease_end() > Time::ZERO
    }

    /// Returns whether these sites can go on without the others. They can if they are a quorum of
    /// everything at stake and of every view that one of them has. One of them must also be a seed
    /// that remembers the cluster, so that restarted processes among them find it.
    pub fn is_sufficient(&self, core: &[usize]) -> bool {
        let alive = |site: &usize| self.is_alive(*site) && !self.sites[*site].will_leave();
        let living: Vec<usize> = core.iter().copied().filter(alive).collect();
        if self.newest().is_none() {
            return false;
        }
        let mut views = living.iter().filter_map(|site| self.view(*site));
        let others: Vec<usize> = self.sites().filter(|site| !core.contains(site)).collect();
        views.all(|view| self.is_quorum(view, living.iter().copied()))
            && self.can_do_without(&others, false)
    }

    /// Returns whether the demanded sites have lost the quorum, in person and by the votes on their
    /// disks. There are three cases. The sites are not a quorum of the newest view's council. The
    /// sites have views, and are not a quorum of any of them. Or the sites are not a quorum of a
    /// later view that one of their disks has as accepted or decided. Then no process can decide
    /// anything, and none may.
    pub fn quorum_is_lost(&self) -> bool {
        let Some(newest) = self.newest() else { return false };
        let suffice = |view: &View| self.is_quorum_with_disks(view, self.demanded());
        let mut known = self.demanded().filter_map(|site| self.view(site)).peekable();
        let stored = self.demanded().filter_map(|site| self.sites[site].disk.vote.as_ref());
        let later = |view: &View| view.lineage == newest.lineage && view.number > newest.number;
        let mut known_to_disks = stored
            .flat_map(|stored| [Some(stored.view.clone()), stored.accepted_view()])
            .flatten()
            .filter(later);
        !suffice(newest)
            || (known.peek().is_some() && !known.any(suffice))
            || known_to_disks.any(|view| !suffice(&view))
    }

    /// An operator forces one member that knows the newest view: all processes that do not answer
    /// are declared dead for ever. False if there is no such member.
    pub(crate) fn force_one(&mut self) -> bool {
        let knows = |site: usize| {
            let peer: &Site = &self.sites[site];
            let own = self.view(site).map(|view| (view.lineage, view.number));
            own.max(peer.disk.vote.as_ref().map(|stored| (stored.view.lineage, stored.view.number)))
        };
        let there = self.demanded().filter(|site| self.is_up(*site) && !self.is_ready(*site));
        let Some(site) = there.max_by_key(|site| (knows(*site), std::cmp::Reverse(*site))) else {
            return false;
        };
        // The declaration must be true.
        for other in self
            .sites()
            .filter(|other| !self.demanded().any(|one| one == *other))
            .collect::<Vec<_>>()
        {
            if self.is_alive(other) {
                self.crash(other);
            }
        }
        self.force(site);
        true
    }
}

/// The reason for which no process could decide the next view any more, so that an operator had
/// to declare the silent processes dead. docs/protocol/founding.md, docs/protocol/recovery.md and
/// the known holes of DESIGN.md promise nothing else.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum QuorumLoss {
    /// Processes were killed without regard to the quorum.
    Reckless,
    /// Directories were lost, and their votes with them.
    Directories,
    /// Members that had just joined gave themselves up before an elder could renew them: no elder
    /// came in time.
    Newcomers,
    /// A view was decided when some of its voters had ended already.
    Overtaken,
    /// Voters ended after the view was decided.
    Ended,
    /// The voters were alive, and the cluster did not converge.
    Unexplained,
}

impl QuorumLoss {
    /// The cause in words.
    pub fn name(self) -> &'static str {
        match self {
            QuorumLoss::Reckless => "killed recklessly",
            QuorumLoss::Directories => "directories lost",
            QuorumLoss::Newcomers => "newcomers without a lease gave up",
            QuorumLoss::Overtaken => "view counts on processes that had ended before it",
            QuorumLoss::Ended => "voters ended",
            QuorumLoss::Unexplained => "unexplained",
        }
    }

    /// Why the run of this record had to be forced, if it was. `council`: the highest number of
    /// voters.
    pub fn of(record: &Record, council: usize) -> Option<QuorumLoss> {
        let is_forced =
            |line: &Line| matches!(&line.entry, Entry::Event { name } if name == "forced");
        let before = &record.lines[..record.lines.iter().position(is_forced)?];
        let is_end = |line: &&Line| matches!(&line.entry, Entry::End { .. });
        let ended: BTreeSet<_> =
            before.iter().filter(is_end).map(|line| (line.site, line.life)).collect();
        let number = |line: &Line| match &line.entry {
            Entry::View { slots, .. } => Some(slots.0),
            _ => None,
        };
        // A view that only ended processes saw is of no use to the others: theirs is the one
        // before.
        let seen = |line: &&Line| !ended.contains(&(line.site, line.life));
        let last = before.iter().filter(seen).filter_map(number).max();
        let last = last.or_else(|| before.iter().filter_map(number).max())?;
        let decided = before.iter().find(|line| number(line) == Some(last))?;
        let mut voters = decided.entry.voters();
        voters.truncate(council);
        let end = |voter: &(usize, u64)| {
            let ends = |line: &&Line| (line.site, line.life) == (Some(voter.0), voter.1);
            before.iter().filter(ends).find_map(|line| match &line.entry {
                Entry::End { how } => Some((line.at, how.as_str())),
                _ => None,
            })
        };
        let ends: Vec<(u64, &str)> = voters.iter().filter_map(end).collect();
        let lost_disks = before
            .iter()
            .any(|line| matches!(&line.entry, Entry::Fault { kind, .. } if kind == "lose disk"));
        Some(if lost_disks {
            QuorumLoss::Directories
        } else if ends.iter().any(|(_, how)| *how == "reborn") {
            QuorumLoss::Newcomers
        } else if ends.iter().any(|(at, _)| *at <= decided.at) {
            QuorumLoss::Overtaken
        } else if ends.is_empty() {
            QuorumLoss::Unexplained
        } else {
            QuorumLoss::Ended
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(number: u64, members: &[usize], ghosts: &[usize]) -> Entry {
        let (members, lives) = (members.to_vec(), vec![1; members.len()]);
        let ghosts = ghosts.iter().map(|ghost| (*ghost, 1)).collect();
        let (slots, learners, founder) = ((number, 1), Vec::new(), (0, 1));
        Entry::View { number, slots, members, lives, ghosts, learners, founder }
    }

    /// Sites 0, 1 and 2 have view 1. Then these entries follow, and site 2 is forced.
    fn forced_after(then: Vec<(usize, Entry)>) -> Option<QuorumLoss> {
        let forced = Entry::Event { name: "forced".to_string() };
        let known = (0..3).map(|site| (site, view(1, &[0, 1, 2], &[])));
        let entries = known.chain(then).chain([(2, forced)]);
        let line = |(at, (site, entry)): (usize, _)| Line {
            at: at as u64,
            site: Some(site),
            life: 1,
            entry,
        };
        QuorumLoss::of(&Record { lines: entries.enumerate().map(line).collect() }, 7)
    }

    fn killed(site: usize) -> (usize, Entry) {
        (site, Entry::End { how: "killed".to_string() })
    }

    #[test]
    fn a_view_that_only_the_dead_saw_does_not_bind_the_living() {
        let decided = |ghosts: &[usize]| view(2, &[1, 2], ghosts);
        let unseen = vec![(0, decided(&[1])), killed(0), killed(1)];
        assert_eq!(
            forced_after(unseen),
            Some(QuorumLoss::Ended),
            "of view 1, which is all that site 2 knows"
        );
        let seen = vec![(0, decided(&[1])), (2, decided(&[1])), killed(0), killed(1)];
        assert_eq!(
            forced_after(seen),
            Some(QuorumLoss::Unexplained),
            "site 2 has all votes of view 2, and knows it"
        );
        assert_eq!(
            forced_after(vec![killed(1), (0, decided(&[])), (2, decided(&[]))]),
            Some(QuorumLoss::Overtaken)
        );
        assert_eq!(forced_after(vec![]), Some(QuorumLoss::Unexplained));
    }
}
