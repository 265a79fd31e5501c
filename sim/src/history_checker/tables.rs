//! The table of a grantor after recovery: all holds and waits of all members, and nothing else.
//!
//! The record lists the entries of a table as calls. So the check goes over the record once, tracks
//! the state of each call, and compares.

use super::members::ProcessKey;
use super::site_index::SiteIndex;
use super::{Findings, RunConditions};
use crate::record::{Entry, Record, RecordedRequest};
use std::collections::{BTreeMap, BTreeSet};

const NAME: &str = "recovered_table_is_the_union";

/// The state of a call.
struct CallRecord<'a> {
    process: ProcessKey,
    service: &'a str,
    suspends: bool,
    is_try: bool,
    asked: u64,
    token: Option<u64>,
    /// The share of the call is to become the lock or has become it, or the call is to open an
    /// object. The grantor may have another token for the call.
    may_change: bool,
    /// When its client ended it, or its process ended.
    over: u64,
}

/// An epoch that began with a recovery.
struct RecoveryQuery {
    at: u64,
    asked: BTreeSet<ProcessKey>,
}

pub(super) fn check(record: &Record, conditions: &RunConditions, findings: &mut Findings) {
    let mut index = SiteIndex::default();
    let mut views: BTreeMap<usize, BTreeSet<ProcessKey>> = BTreeMap::new();
    // The processes that left a member's views at one instant. The grantor there ends many requests
    // of theirs in several steps.
    let mut leaving: BTreeMap<usize, (u64, BTreeSet<ProcessKey>)> = BTreeMap::new();
    let mut calls: BTreeMap<usize, CallRecord<'_>> = BTreeMap::new();
    let mut questions: BTreeMap<(&str, u64), RecoveryQuery> = BTreeMap::new();
    let mut newest: BTreeMap<&str, u64> = BTreeMap::new();
    for line in &record.lines {
        index.heed(line);
        let (at, site) = (line.at, line.site.unwrap_or_default());
        match &line.entry {
            Entry::Invoke { call, service, request_kind, wait, .. }
                if request_kind.is_hold() || *request_kind == RecordedRequest::Open =>
            {
                let standing = CallRecord {
                    process: (site, line.life),
                    service,
                    suspends: *request_kind == RecordedRequest::Suspend,
                    is_try: *wait == Some(0),
                    asked: at,
                    token: None,
                    // An open object has no told token.
                    may_change: *request_kind == RecordedRequest::Open,
                    over: u64::MAX,
                };
                calls.insert(*call, standing);
            }
            Entry::Invoke { of: Some(of), request_kind: RecordedRequest::Upgrade, .. } => {
                if let Some(standing) = calls.get_mut(of) {
                    standing.may_change = true;
                }
            }
            Entry::Ok { call, token, .. } | Entry::ModeChanged { call, token, .. } => {
                if let Some(standing) = calls.get_mut(call) {
                    standing.token = Some(*token);
                }
            }
            Entry::Fail { call, .. }
            | Entry::Unknown { call }
            | Entry::Release { call }
            | Entry::Lost { call, .. } => {
                if let Some(standing) = calls.get_mut(call) {
                    standing.over = standing.over.min(at);
                }
            }
            Entry::View { members, lives, .. } => {
                let view: BTreeSet<ProcessKey> =
                    members.iter().copied().zip(lives.iter().copied()).collect();
                let before = views.insert(site, view.clone()).unwrap_or_default();
                let (since, gone) = leaving.entry(site).or_default();
                if *since != at {
                    (*since, *gone) = (at, BTreeSet::new());
                }
                gone.extend(before.difference(&view));
            }
            Entry::Grantor { service, epoch, recovering } => {
                let last = newest.entry(service).or_default();
                *last = (*last).max(*epoch);
                if *recovering {
                    let asked = views.get(&site).cloned().unwrap_or_default();
                    questions.insert((service, *epoch), RecoveryQuery { at, asked });
                }
            }
            Entry::Table { service, epoch, holds, waits, strange } => {
                let follows = newest.get(service.as_str()).is_some_and(|newest| newest > epoch);
                // A grantor that slept, or already has a successor, grants nothing from the
                // reports.
                if !conditions.bounded || follows || !index.site(site).is_leased(at) {
                    continue;
                }
                let (Some(question), Some(view)) =
                    (questions.get(&(service.as_str(), *epoch)), views.get(&site))
                else {
                    findings.flaw(
                        NAME,
                        at,
                        format!("m{site} begins with what it has not asked for: {service}"),
                    );
                    continue;
                };
                let table = Table { site, service, holds: holds.iter().copied().collect(), waits };
                if *strange > 0 {
                    findings.flaw(
                        NAME,
                        at,
                        format!("m{site} has {strange} of {service} that no member asked for"),
                    );
                }
                let gone = leaving.get(&site).filter(|(since, _)| *since == at);
                let gone = gone.map(|(_, gone)| gone.clone()).unwrap_or_default();
                let known = view.union(&gone).copied().collect();
                let mut wrong = table.surplus(&calls, question, &known);
                wrong.extend(table.lacks(&calls, question, view, findings));
                wrong.into_iter().for_each(|what| findings.flaw(NAME, at, what));
            }
            _ => {}
        }
    }
}

/// A table, as a line tells it.
struct Table<'a> {
    site: usize,
    service: &'a str,
    holds: BTreeMap<usize, u64>,
    waits: &'a [usize],
}

impl Table<'_> {
    fn calls(&self) -> impl Iterator<Item = &usize> {
        self.holds.keys().chain(self.waits)
    }

    /// Surplus entries: of processes that are not in `view`, or over before the recovery began.
    fn surplus(
        &self,
        calls: &BTreeMap<usize, CallRecord<'_>>,
        question: &RecoveryQuery,
        view: &BTreeSet<ProcessKey>,
    ) -> Vec<String> {
        let (site, service) = (self.site, self.service);
        let is_right = |of: &CallRecord<'_>| {
            of.service == service && of.over >= question.at && view.contains(&of.process)
        };
        let wrong = self.calls().filter(|call| !calls.get(*call).is_some_and(is_right));
        wrong
            .map(|call| {
                format!("m{site} begins to grant {service} with call {call}, which was over")
            })
            .collect()
    }

    /// Missing entries: each hold of a member with its token, and each wait of the asked members.
    fn lacks(
        &self,
        calls: &BTreeMap<usize, CallRecord<'_>>,
        question: &RecoveryQuery,
        view: &BTreeSet<ProcessKey>,
        findings: &mut Findings,
    ) -> Vec<String> {
        let (site, service) = (self.site, self.service);
        let mut lacks = Vec::new();
        let open = calls.iter().filter(|(_, of)| of.over == u64::MAX && of.service == service);
        for (call, of) in open.filter(|(_, of)| view.contains(&of.process)) {
            let held = self.holds.get(call);
            if let Some(token) = of.token {
                findings.premise(NAME);
                if held != Some(&token) && !(of.may_change && held.is_some()) {
                    lacks.push(format!(
                        "m{site} begins to grant {service} with {held:?} of call {call}: {token}"
                    ));
                }
            } else if !of.is_try && of.asked < question.at && question.asked.contains(&of.process) {
                findings.premise(NAME);
                // Of two holders that want to suspend the service, one is refused. The other may
                // have ended meanwhile.
                let suspends =
                    |call| calls.get(call).is_some_and(|of: &CallRecord<'_>| of.suspends);
                let had_rival = calls.values().any(|other| {
                    let is_late = other.over >= question.at && other.over < u64::MAX;
                    other.suspends
                        && other.service == service
                        && other.process != of.process
                        && is_late
                });
                let is_refused = of.suspends && (had_rival || self.calls().any(suspends));
                if held.is_none() && !self.waits.contains(call) && !is_refused {
                    lacks.push(format!(
                        "m{site} begins to grant {service} without call {call}, which waits"
                    ));
                }
            }
        }
        lacks
    }
}
