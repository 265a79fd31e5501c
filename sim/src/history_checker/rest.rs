//! The demands after the healing: one view, no waiter, empty tables, and every lock can be had.

use super::site_index::SiteIndex;
use super::{Findings, Terms};
use crate::record::{Entry, Record, RecordedRequest};
use std::collections::{BTreeMap, BTreeSet};

/// One call, as far as it matters here.
struct FinalCall<'a> {
    place: usize,
    /// Its locks; the empty name stands for the suspension.
    keys: Vec<(&'a str, &'a str)>,
    asked: u64,
    held: bool,
    over: bool,
}

pub(super) fn check(record: &Record, terms: &Terms, findings: &mut Findings) {
    let Some((at, places)) = record.lines.iter().find_map(|line| match &line.entry {
        Entry::Rest { places } => Some((line.at, places)),
        _ => None,
    }) else {
        return;
    };
    let places: BTreeSet<usize> = places.iter().copied().collect();
    let mut calls: BTreeMap<usize, FinalCall<'_>> = BTreeMap::new();
    let mut stage = SiteIndex::default();
    let mut views: BTreeMap<usize, &Entry> = BTreeMap::new();
    let (mut healed_at, mut settled) = (None, false);
    let mut had: BTreeSet<(usize, &str, &str)> = BTreeSet::new();
    for line in &record.lines {
        stage.heed(line);
        match &line.entry {
            Entry::Heal => healed_at = Some(line.at),
            Entry::Invoke { call, service, deed, names, .. } => {
                let place = line.place.unwrap_or_default();
                let mut keys: Vec<_> =
                    names.iter().map(|name| (service.as_str(), name.as_str())).collect();
                if *deed == RecordedRequest::Suspend {
                    keys.push((service, ""));
                }
                // Objects are no locks, and exclude nothing.
                keys.retain(|_| deed.is_hold());
                calls.insert(
                    *call,
                    FinalCall { place, keys, asked: line.at, held: false, over: false },
                );
            }
            Entry::Ok { call, .. } => {
                if let Some(call) = calls.get_mut(call) {
                    call.held = true;
                    if healed_at.is_some_and(|healed| call.asked >= healed) {
                        had.extend(
                            call.keys.iter().map(|(service, name)| (call.place, *service, *name)),
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
        if let (Some(place), entry @ Entry::View { .. }) = (line.place, &line.entry) {
            views.insert(place, entry);
        }
        let looks_new = matches!(
            line.entry,
            Entry::View { .. } | Entry::Event { .. } | Entry::Heal | Entry::Rest { .. }
        );
        settled |= healed_at.is_some()
            && looks_new
            && is_settled(&stage, &views, (&places, terms.council), line.at);
    }
    findings.premise("converges_after_heal");
    if !settled {
        findings.flaw("converges_after_heal", at, format!("never one view with all of {places:?}"));
    }
    findings.premise("no_lost_wakeup");
    for (number, call) in
        calls.iter().filter(|(_, call)| !call.over && places.contains(&call.place))
    {
        let (invariant, what) = if call.held {
            ("no_leaked_hold", "still held")
        } else {
            ("no_lost_wakeup", "not answered")
        };
        findings.flaw(
            invariant,
            at,
            format!("call {number} of m{} for {:?} is {what}", call.place, call.keys),
        );
    }
    let keys: BTreeSet<_> = calls.values().flat_map(|call| call.keys.iter().copied()).collect();
    for (service, name) in keys {
        for place in &places {
            findings.premise("no_leaked_hold");
            if !had.contains(&(*place, service, name)) {
                let what = format!("m{place} did not get {name} of {service} after the healing");
                findings.flaw("no_leaked_hold", at, what);
            }
        }
    }
}

/// Whether those at `places` are in one view of exactly them, all living, their leases run, and no
/// learner waits for a vote that the council has room for.
fn is_settled(
    stage: &SiteIndex,
    views: &BTreeMap<usize, &Entry>,
    (places, council): (&BTreeSet<usize>, usize),
    at: u64,
) -> bool {
    let all_leased = places.iter().all(|wanted| {
        stage
            .places()
            .any(|(place, state)| place == *wanted && !state.paused && state.is_leased(at))
    });
    let mut first = None;
    all_leased
        && places.iter().all(|place| match views.get(place) {
            Some(view @ Entry::View { members, lives, ghosts, learners, .. }) => {
                let there = |(place, life): (&usize, &u64)| {
                    stage
                        .places()
                        .any(|(at, state)| at == *place && state.life == *life && state.alive)
                };
                *first.get_or_insert(*view) == *view
                    && ghosts.is_empty()
                    && (learners.is_empty() || members.len() - learners.len() >= council)
                    && members.len() == places.len()
                    && members.iter().zip(lives).all(there)
                    && members.iter().all(|member| places.contains(member))
            }
            _ => false,
        })
}
