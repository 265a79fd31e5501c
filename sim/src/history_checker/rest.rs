//! The demands after the healing: one view, no waiter, empty tables, and every lock can be had.

use super::site_index::SiteIndex;
use super::{Findings, RunConditions};
use crate::record::{Entry, Record, RecordedRequest};
use std::collections::{BTreeMap, BTreeSet};

/// The parts of a call that these demands need.
struct FinalCall<'a> {
    site: usize,
    /// Its locks; the empty name stands for the suspension.
    keys: Vec<(&'a str, &'a str)>,
    asked: u64,
    held: bool,
    over: bool,
}

pub(super) fn check(record: &Record, conditions: &RunConditions, findings: &mut Findings) {
    let Some((at, sites)) = record.lines.iter().find_map(|line| match &line.entry {
        Entry::Rest { sites } => Some((line.at, sites)),
        _ => None,
    }) else {
        return;
    };
    let sites: BTreeSet<usize> = sites.iter().copied().collect();
    let mut calls: BTreeMap<usize, FinalCall<'_>> = BTreeMap::new();
    let mut index = SiteIndex::default();
    let mut views: BTreeMap<usize, &Entry> = BTreeMap::new();
    let (mut healed_at, mut settled) = (None, false);
    let mut had: BTreeSet<(usize, &str, &str)> = BTreeSet::new();
    for line in &record.lines {
        index.heed(line);
        match &line.entry {
            Entry::Heal => healed_at = Some(line.at),
            Entry::Invoke { call, service, request_kind, names, .. } => {
                let site = line.site.unwrap_or_default();
                let mut keys: Vec<_> =
                    names.iter().map(|name| (service.as_str(), name.as_str())).collect();
                if *request_kind == RecordedRequest::Suspend {
                    keys.push((service, ""));
                }
                // Objects are not locks, and exclude nothing.
                keys.retain(|_| request_kind.is_hold());
                calls.insert(
                    *call,
                    FinalCall { site, keys, asked: line.at, held: false, over: false },
                );
            }
            Entry::Ok { call, .. } => {
                if let Some(call) = calls.get_mut(call) {
                    call.held = true;
                    if healed_at.is_some_and(|healed| call.asked >= healed) {
                        had.extend(
                            call.keys.iter().map(|(service, name)| (call.site, *service, *name)),
                        );
                    }
                }
            }
            Entry::Fail { call, .. }
            | Entry::Unknown { call }
            | Entry::Release { call }
            | Entry::Lost { call, .. } => {
                if let Some(call) = calls.get_mut(call) {
                    call.over = true;
                }
            }
            _ => {}
        }
        if let (Some(site), entry @ Entry::View { .. }) = (line.site, &line.entry) {
            views.insert(site, entry);
        }
        let looks_new = matches!(
            line.entry,
            Entry::View { .. } | Entry::Event { .. } | Entry::Heal | Entry::Rest { .. }
        );
        settled |= healed_at.is_some()
            && looks_new
            && is_settled(&index, &views, (&sites, conditions.council), line.at);
    }
    findings.premise("converges_after_heal");
    if !settled {
        findings.flaw("converges_after_heal", at, format!("never one view with all of {sites:?}"));
    }
    findings.premise("no_lost_wakeup");
    for (number, call) in calls.iter().filter(|(_, call)| !call.over && sites.contains(&call.site))
    {
        let (invariant, what) = if call.held {
            ("no_leaked_hold", "still held")
        } else {
            ("no_lost_wakeup", "not answered")
        };
        findings.flaw(
            invariant,
            at,
            format!("call {number} of m{} for {:?} is {what}", call.site, call.keys),
        );
    }
    let keys: BTreeSet<_> = calls.values().flat_map(|call| call.keys.iter().copied()).collect();
    for (service, name) in keys {
        for site in &sites {
            findings.premise("no_leaked_hold");
            if !had.contains(&(*site, service, name)) {
                let what = format!("m{site} did not get {name} of {service} after the healing");
                findings.flaw("no_leaked_hold", at, what);
            }
        }
    }
}

/// Returns whether the members at `sites` are in one view of exactly these members, all living,
/// with leases that run. In addition no learner waits for a vote that the council has room for.
fn is_settled(
    index: &SiteIndex,
    views: &BTreeMap<usize, &Entry>,
    (sites, council): (&BTreeSet<usize>, usize),
    at: u64,
) -> bool {
    let all_leased = sites.iter().all(|wanted| {
        index.sites().any(|(site, state)| site == *wanted && !state.paused && state.is_leased(at))
    });
    let mut first = None;
    all_leased
        && sites.iter().all(|site| match views.get(site) {
            Some(view @ Entry::View { members, lives, ghosts, learners, .. }) => {
                let there = |(site, life): (&usize, &u64)| {
                    index
                        .sites()
                        .any(|(at, state)| at == *site && state.life == *life && state.alive)
                };
                *first.get_or_insert(*view) == *view
                    && ghosts.is_empty()
                    && (learners.is_empty() || members.len() - learners.len() >= council)
                    && members.len() == sites.len()
                    && members.iter().zip(lives).all(there)
                    && members.iter().all(|member| sites.contains(member))
            }
            _ => false,
        })
}
