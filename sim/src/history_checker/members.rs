//! Views, elders and grantors.

use super::site_index::SiteIndex;
use super::{Findings, RunConditions};
use crate::record::{Entry, Record};
use elderlock::protocol::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// A process: its site, and its number there.
pub(super) type ProcessKey = (usize, u64);

/// A view as a line tells it.
#[derive(Clone, PartialEq, Eq, Debug)]
struct RecordedView {
    founder: ProcessKey,
    number: u64,
    slots: (u64, u32),
    members: Vec<ProcessKey>,
    ghosts: Vec<ProcessKey>,
    learners: Vec<ProcessKey>,
}

impl RecordedView {
    fn elder(&self) -> Option<ProcessKey> {
        let has_vote = |process: &&ProcessKey| {
            !self.ghosts.contains(process) && !self.learners.contains(process)
        };
        self.members.iter().find(has_vote).copied()
    }
}

pub(super) fn check(record: &Record, conditions: &RunConditions, findings: &mut Findings) {
    let mut index = SiteIndex::default();
    let mut views: BTreeMap<(ProcessKey, u64), RecordedView> = BTreeMap::new();
    let mut first: BTreeMap<(ProcessKey, ProcessKey), u64> = BTreeMap::new();
    let mut present: BTreeMap<ProcessKey, RecordedView> = BTreeMap::new();
    let mut elders: BTreeMap<(ProcessKey, u64), ProcessKey> = BTreeMap::new();
    let mut terms_of: BTreeMap<u64, (&str, ProcessKey)> = BTreeMap::new();
    let mut highest: BTreeMap<&str, u64> = BTreeMap::new();
    let mut own: BTreeMap<(ProcessKey, &str), u64> = BTreeMap::new();
    for line in &record.lines {
        index.heed(line);
        let (at, Some(site)) = (line.at, line.site) else { continue };
        let process = (site, line.life);
        match &line.entry {
            Entry::View { number, slots, members, lives, ghosts, learners, founder } => {
                let members: Vec<ProcessKey> =
                    members.iter().copied().zip(lives.iter().copied()).collect();
                let view = RecordedView {
                    founder: *founder,
                    number: *number,
                    slots: *slots,
                    members,
                    ghosts: ghosts.clone(),
                    learners: learners.clone(),
                };
                one_lineage(&index, &present, process, &view, at, findings);
                if let Some(before) = present.get(&process)
                    && (before.founder != view.founder || before.number >= view.number)
                {
                    let what =
                        format!("m{site} goes from view {} to {}", before.number, view.number);
                    findings.flaw("views_agree", at, what);
                }
                match views.get(&(*founder, *number)) {
                    Some(other) => {
                        findings.premise("views_agree");
                        if *other != view {
                            findings.flaw(
                                "views_agree",
                                at,
                                format!("m{site} has {view:?}, another {other:?}"),
                            );
                        }
                    }
                    None => {
                        views.insert((*founder, *number), view.clone());
                    }
                }
                first.entry((*founder, process)).or_insert(*number);
                present.insert(process, view);
            }
            Entry::Event { name } if name == "became_elder" => {
                findings.premise("one_elder_per_view");
                let Some(view) = present.get(&process) else {
                    findings.flaw("one_elder_per_view", at, format!("m{site} is elder of no view"));
                    continue;
                };
                if view.elder() != Some(process) {
                    findings.flaw(
                        "one_elder_per_view",
                        at,
                        format!("m{site} calls itself elder of {view:?}"),
                    );
                }
                let elder = *elders.entry((view.founder, view.number)).or_insert(process);
                if elder != process {
                    let what =
                        format!("{elder:?} and {process:?} are elders of view {}", view.number);
                    findings.flaw("one_elder_per_view", at, what);
                }
            }
            Entry::Event { name } if name == "expelled" && index.site(site).leaving => {
                findings.flaw(
                    "one_outcome_per_request",
                    at,
                    format!("m{site} was to leave and is expelled"),
                );
            }
            Entry::Grantor { service, epoch, recovering } => {
                findings.premise("one_grantor_per_epoch");
                let owner = *terms_of.entry(*epoch).or_insert((service, process));
                if owner != (service, process) {
                    let what =
                        format!("epoch {epoch:?} is {owner:?}'s and {:?}'s", (service, process));
                    findings.flaw("one_grantor_per_epoch", at, what);
                }
                // Independent of clocks, the epoch was dealt in a view that a member had, and it is
                // the highest at its process.
                let slot = epoch / Slot::TOKENS;
                let has = |view: &RecordedView| {
                    (view.slots.0..view.slots.0 + u64::from(view.slots.1)).contains(&slot)
                };
                if !views.values().any(has) {
                    let what = format!(
                        "m{site} grants {service} in {epoch:?}, of a view that no member has"
                    );
                    findings.flaw("epochs_rise", at, what);
                }
                if !recovering && let Some(before) = own.insert((process, service), *epoch) {
                    findings.premise("epochs_rise");
                    if before >= *epoch {
                        let what =
                            format!("m{site} grants {service} in {epoch:?}, and did in {before:?}");
                        findings.flaw("epochs_rise", at, what);
                    }
                }
                if conditions.bounded && !recovering && index.site(site).is_leased(at) {
                    if let Some(last) = highest.get(service.as_str()) {
                        findings.premise("epochs_rise");
                        if last > epoch {
                            let what =
                                format!("m{site} grants {service} in {epoch:?}, after {last:?}");
                            findings.flaw("epochs_rise", at, what);
                        }
                    }
                    highest.insert(service, *epoch);
                }
            }
            _ => {}
        }
    }
    no_process_comes_back(&views, &first, findings);
}

/// While the lease of any member of one lineage runs, no member of another lineage has one.
fn one_lineage(
    index: &SiteIndex,
    present: &BTreeMap<ProcessKey, RecordedView>,
    process: ProcessKey,
    view: &RecordedView,
    at: u64,
    findings: &mut Findings,
) {
    for (site, state) in
        index.sites().filter(|(site, state)| *site != process.0 && state.is_leased(at))
    {
        let Some(theirs) = present.get(&(site, state.life)) else { continue };
        findings.premise("one_lineage");
        if theirs.founder != view.founder {
            let what = format!(
                "m{} is of the lineage of {:?}, m{site} of {:?}",
                process.0, view.founder, theirs.founder
            );
            findings.flaw("one_lineage", at, what);
        }
    }
}

/// A process that was out of a view is in no later view of that lineage, once it has seen one.
/// `first` has the first view that each process has seen of a founder's lineage.
fn no_process_comes_back(
    views: &BTreeMap<(ProcessKey, u64), RecordedView>,
    first: &BTreeMap<(ProcessKey, ProcessKey), u64>,
    findings: &mut Findings,
) {
    let mut lineage = None;
    let (mut before, mut out): (BTreeSet<ProcessKey>, BTreeSet<ProcessKey>) = Default::default();
    for view in views.values() {
        if lineage != Some(view.founder) {
            lineage = Some(view.founder);
            before.clear();
            out.clear();
        }
        let members: BTreeSet<ProcessKey> = view.members.iter().copied().collect();
        out.extend(before.difference(&members));
        out.retain(|process| {
            let first = first.get(&(view.founder, *process));
            !members.contains(process) || first.is_some_and(|first| *first < view.number)
        });
        if let Some(back) = members.intersection(&out).next() {
            findings.flaw(
                "views_agree",
                0,
                format!("{back:?} was out and is back in view {}", view.number),
            );
        }
        before = members;
    }
}
