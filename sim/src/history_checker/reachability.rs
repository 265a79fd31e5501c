//! Reachability: a member that could not have heard of a quorum for a long time is granted nothing.
//! Also checks that all members together never send too much.
//!
//! The check keeps no snapshots. For each path between two sites it knows when the path was last
//! open with both ends running. So it knows which paths can have carried packets within a given
//! time, and between which sites.

use super::{Findings, RunConditions};
use crate::record::{Entry, Line, Record, RecordedRequest};
use std::collections::BTreeSet;

const SILENT: &str = "minority_is_silent";
const COST: &str = "cost_is_bounded";
/// Ten times the packets that a dozen members and their clients can need in a second.
const MOST_PACKETS: u64 = 60_000;
/// A grant of a step may be told a little later.
const SLACK: u64 = 100_000_000;
const SECOND: u64 = 1_000_000_000;

/// A site with a vote on the next view, and its weight.
type VoteRecord = (usize, u64);

/// When each path was last open.
struct ReachabilityMap {
    sites: usize,
    running: Vec<bool>,
    cut: Vec<bool>,
    /// `u64::MAX`: the path is still open.
    last: Vec<Option<u64>>,
}

impl ReachabilityMap {
    fn new(sites: usize) -> ReachabilityMap {
        let ways = sites * sites;
        ReachabilityMap {
            sites,
            running: vec![false; sites],
            cut: vec![false; ways],
            last: vec![None; ways],
        }
    }

    fn is_there(&self, site: usize) -> bool {
        site < self.sites
    }

    fn set_running(&mut self, site: usize, running: bool, at: u64) {
        if self.is_there(site) {
            self.running[site] = running;
            for other in 0..self.sites {
                self.look(site, other, at);
                self.look(other, site, at);
            }
        }
    }

    fn set_cut(&mut self, (from, to): (usize, usize), cut: bool, at: u64) {
        if self.is_there(from) && self.is_there(to) {
            self.cut[from * self.sites + to] = cut;
            self.look(from, to, at);
        }
    }

    fn look(&mut self, from: usize, to: usize, at: u64) {
        let way = from * self.sites + to;
        if self.running[from] && self.running[to] && !self.cut[way] {
            self.last[way] = Some(u64::MAX);
        } else if self.last[way] == Some(u64::MAX) {
            self.last[way] = Some(at);
        }
    }

    /// The sites from which packets can have come to `site` since `since`, over any number of other
    /// sites.
    fn heard(&self, site: usize, since: u64) -> Vec<bool> {
        let mut heard = vec![false; self.sites];
        let mut next = Vec::new();
        if self.is_there(site) {
            heard[site] = true;
            next.push(site);
        }
        while let Some(to) = next.pop() {
            for (from, is_heard) in heard.iter_mut().enumerate() {
                if !*is_heard && self.last[from * self.sites + to].is_some_and(|last| last >= since)
                {
                    *is_heard = true;
                    next.push(from);
                }
            }
        }
        heard
    }
}

/// The latest view of all, and the end of its time as the latest.
struct LatestView {
    slot: u64,
    votes: Vec<VoteRecord>,
    until: u64,
}

pub(super) fn check(record: &Record, conditions: &RunConditions, findings: &mut Findings) {
    count_packets(record, findings);
    let mut map = ReachabilityMap::new(conditions.sites);
    let mut reigns: Vec<LatestView> = Vec::new();
    let mut slow = 0;
    // An open object needs no lease: its events may wait for a process that sleeps.
    let mut opens = BTreeSet::new();
    for line in &record.lines {
        let at = line.at;
        match (&line.entry, line.site) {
            (Entry::Start | Entry::Wake, Some(site)) => map.set_running(site, true, at),
            (Entry::End { .. } | Entry::Pause, Some(site)) => map.set_running(site, false, at),
            (Entry::Ways { cut, mended }, _) => {
                cut.iter().for_each(|way| map.set_cut(*way, true, at));
                mended.iter().for_each(|way| map.set_cut(*way, false, at));
            }
            (Entry::Slow { upto }, _) => slow = slow.max(*upto),
            (Entry::View { slots: (slot, _), .. }, _)
                if reigns.last().is_none_or(|last| last.slot < *slot) =>
            {
                if let Some(last) = reigns.last_mut() {
                    last.until = at;
                }
                reigns.push(LatestView {
                    slot: *slot,
                    votes: votes(line, conditions.council),
                    until: u64::MAX,
                });
            }
            (Entry::Invoke { call, request_kind: RecordedRequest::Open, .. }, _) => {
                _ = opens.insert(*call)
            }
            (Entry::Ok { call, .. }, _) if opens.contains(call) => {}
            (entry @ (Entry::Ok { .. } | Entry::Fail { .. }), Some(site))
                if conditions.bounded && conditions.council > 0 =>
            {
                // A lease may come from an elder whose own lease rests on answers as old as a
                // lease. And the elder's renewal may arrive an elder lease after its last exchange
                // with others.
                let (member, elder) = conditions.leases;
                let memory =
                    2 * conditions.surely(member) + conditions.surely(elder) + 4 * slow + SLACK;
                let Some(since) = at.checked_sub(memory) else { continue };
                let heard = map.heard(site, since);
                let is_quorum = |reign: &LatestView| {
                    let weigh = |of: &mut dyn Iterator<Item = &VoteRecord>| {
                        of.map(|(_, weight)| weight).sum::<u64>()
                    };
                    let all = weigh(&mut reign.votes.iter());
                    2 * weigh(
                        &mut reign.votes.iter().filter(|(site, _)| heard.get(*site) == Some(&true)),
                    ) > all
                };
                if reigns.is_empty()
                    || reigns.iter().rev().take_while(|reign| reign.until >= since).any(is_quorum)
                {
                    continue;
                }
                findings.premise(SILENT);
                if let Entry::Ok { call, .. } = entry {
                    let what = format!(
                        "m{site} is granted call {call} and could not hear of a quorum for \
                         {memory} ns"
                    );
                    findings.flaw(SILENT, at, what);
                }
            }
            _ => {}
        }
    }
}

/// The votes on the next view: of the oldest living members that are not learners. The first vote
/// is the elder's and weighs more.
fn votes(line: &Line, council: usize) -> Vec<VoteRecord> {
    let voters = line.entry.voters().into_iter();
    voters
        .take(council)
        .enumerate()
        .map(|(age, (site, _))| (site, if age == 0 { 3 } else { 2 }))
        .collect()
}

/// Checks the record's packet count of each second, and the packets themselves if the record has
/// all of them.
fn count_packets(record: &Record, findings: &mut Findings) {
    let mut shown = (0, 0);
    for line in &record.lines {
        let sent = match &line.entry {
            Entry::Sent { second, packets } => {
                findings.premise(COST);
                Some((*second, *packets))
            }
            Entry::Send { .. } => {
                let second = line.at / SECOND;
                shown = if shown.0 == second { (second, shown.1 + 1) } else { (second, 1) };
                Some(shown)
            }
            _ => None,
        };
        if let Some((second, packets)) = sent.filter(|(_, packets)| *packets > MOST_PACKETS) {
            findings.flaw(COST, line.at, format!("{packets} packets in second {second}"));
        }
    }
}
