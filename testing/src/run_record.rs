//! `RunRecord`: the events of a run, kept for its diagram.

use crate::cluster::SLOW;
use crate::drawing::drawn_run::{
    Breach, DrawnNote, DrawnRun, DrawnSite, EpochSpan, FaultBand, HoldSpan, IS_ELDER, Span, token,
};
use crate::simulation::sites::SiteChange;
use elderlock::protocol::Want;
use elderlock::simulated::{BegunHold, HoldChange, LeaseEnd};
use elderlock::{LostReason, MemberEvent, ProcessId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

/// The most holds that are kept: the ones that ended last, and the ones that have not ended.
const HOLDS: usize = 4_000;

/// The end of a span that has not ended.
const OPEN: u64 = u64::MAX;

/// The kinds of faults that end when a process starts.
const AWAY: [&str; 2] = ["crash", "goodbye"];

/// The label at the line of the failure.
const FAILED: &str = "the run fails";

/// A hold that has not ended.
struct OpenHold {
    drawn: HoldSpan,
    lease_end: LeaseEnd,
}

/// A complete record.
#[derive(Clone, Debug)]
pub(crate) struct RecordedRun {
    pub(crate) run: DrawnRun,
    /// The instant from which the faults are counted.
    pub(crate) begun: u64,
    /// The number of holds that were not kept.
    pub(crate) forgotten: usize,
}

impl RecordedRun {
    /// Notes that the run failed at its end, for this reason.
    pub(crate) fn fail(&mut self, why: &str) {
        self.run.breach = Some(Breach {
            at: self.run.end,
            site: None,
            invariant: FAILED.to_owned(),
            lock: self.run.focus(),
            words: why.to_owned(),
        });
    }
}

/// The events of a run, kept for its diagram. Instants are nanoseconds since the run began.
#[derive(Default)]
pub(crate) struct RunRecord {
    run: DrawnRun,
    /// The lines of the test.
    notes: Vec<DrawnNote>,
    open: BTreeMap<u64, OpenHold>,
    ended: VecDeque<HoldSpan>,
    forgotten: usize,
    /// The sites whose member is saying goodbye.
    leaving: BTreeSet<usize>,
    begun: u64,
}

impl RunRecord {
    /// Returns an empty record of a run with this number of members.
    pub(crate) fn new(members: usize) -> RunRecord {
        let drawn_sites = (0..members).map(|_| DrawnSite::default()).collect();
        RunRecord { run: DrawnRun { drawn_sites, ..DrawnRun::default() }, ..RunRecord::default() }
    }

    fn note(&mut self, site: usize, at: u64, rank: u8, words: impl Into<String>) {
        self.run.drawn_sites[site].notes.push(DrawnNote { at, words: words.into(), rank });
    }

    /// Adds a line of the test.
    pub(crate) fn noted(&mut self, at: u64, words: String) {
        self.notes.push(DrawnNote { at, words, rank: 1 });
    }

    /// Adds a change of the process at a site.
    pub(crate) fn site_changed(&mut self, site: usize, at: u64, change: SiteChange) {
        let open = Span { from: at, until: OPEN };
        match change {
            SiteChange::Started => {
                self.run.drawn_sites[site].alive.push(open);
                if self.run.drawn_sites[site].alive.len() > 1 {
                    self.note(site, at, 1, "starts again");
                }
            }
            SiteChange::Joined => self.note(site, at, 2, "joined"),
            SiteChange::Leaves => {
                self.leaving.insert(site);
                self.note(site, at, 1, "says goodbye");
            }
            SiteChange::Ended => {
                let how = if self.leaving.remove(&site) { "left" } else { "killed" };
                self.end_process(site, at);
                self.note(site, at, 0, how);
            }
            SiteChange::Stopped => {
                self.run.drawn_sites[site].paused.push(open);
                self.note(site, at, 0, "stopped");
                // The lease of a stopped process is not renewed, and none of its tasks notices the
                // end.
                for hold in self.open.values_mut().filter(|hold| hold.drawn.site == site) {
                    hold.drawn.stopped = (hold.lease_end)().map(nanos);
                }
            }
            SiteChange::GoesOn => {
                close(&mut self.run.drawn_sites[site].paused, at);
                for hold in self.open.values_mut().filter(|hold| hold.drawn.site == site) {
                    hold.drawn.stopped = hold.drawn.stopped.filter(|until| *until < at);
                }
                self.note(site, at, 1, "goes on");
            }
        }
    }

    fn end_process(&mut self, site: usize, at: u64) {
        let drawn = &mut self.run.drawn_sites[site];
        for spans in [&mut drawn.alive, &mut drawn.paused, &mut drawn.elder, &mut drawn.suspended] {
            close(spans, at);
        }
        for epoch_span in drawn.epochs.iter_mut().filter(|epoch_span| epoch_span.span.until == OPEN)
        {
            epoch_span.span.until = at;
        }
        let of_site = |hold: &OpenHold| hold.drawn.site == site;
        let ended: Vec<u64> =
            self.open.iter().filter(|(_, hold)| of_site(hold)).map(|(number, _)| *number).collect();
        for number in ended {
            self.end_hold(number, at, "its process ended".to_owned());
        }
    }

    /// Adds an event of the member at a site; `process` is the present process there. `words` is
    /// the event as text.
    pub(crate) fn event(
        &mut self,
        site: usize,
        at: u64,
        event: &MemberEvent,
        process: Option<ProcessId>,
        words: String,
    ) {
        let drawn = &mut self.run.drawn_sites[site];
        match event {
            MemberEvent::ViewInstalled(view) => {
                let is_open = drawn.elder.last().is_some_and(|span| span.until == OPEN);
                match (Some(view.elder().process) == process, is_open) {
                    (true, false) => drawn.elder.push(Span { from: at, until: OPEN }),
                    (false, true) => close(&mut drawn.elder, at),
                    _ => {}
                }
                drawn.views.push(DrawnNote { at, words, rank: 3 });
            }
            MemberEvent::BecameElder => self.note(site, at, 2, IS_ELDER),
            MemberEvent::BecameGrantor { service, epoch } => {
                let service = service.to_string();
                let span = Span { from: at, until: OPEN };
                let epoch = token(epoch.0.get());
                drawn.epochs.push(EpochSpan {
                    span,
                    acts: Some(at),
                    service: service.clone(),
                    epoch,
                });
                if let Err(place) = self.run.services.binary_search(&service) {
                    self.run.services.insert(place, service);
                }
            }
            MemberEvent::NoLongerGrantor { service, .. } => {
                let is_it = |epoch_span: &&mut EpochSpan| {
                    epoch_span.span.until == OPEN && epoch_span.service == service.as_str()
                };
                if let Some(epoch_span) = drawn.epochs.iter_mut().rev().find(is_it) {
                    epoch_span.span.until = at;
                }
            }
            MemberEvent::Suspended => {
                drawn.suspended.push(Span { from: at, until: OPEN });
                self.note(site, at, 1, "suspended");
            }
            MemberEvent::Resumed => {
                close(&mut drawn.suspended, at);
                self.note(site, at, 2, "lease runs again");
            }
            MemberEvent::Expelled => {
                close(&mut drawn.elder, at);
                self.note(site, at, 0, "expelled");
            }
            MemberEvent::Rejoined { .. } => {
                close(&mut drawn.suspended, at);
                self.note(site, at, 1, "joined again");
            }
            MemberEvent::Left => {}
            _ => self.note(site, at, 1, words),
        }
    }

    /// Notes that the members have joined. The faults count from here.
    pub(crate) fn begins(&mut self, at: u64) {
        self.begun = at;
    }

    /// Notes that a fault begins, and returns its index. `number` is `None` if the test causes the
    /// fault.
    pub(crate) fn fault_begins(
        &mut self,
        at: u64,
        number: Option<usize>,
        kind: &str,
        sites: Vec<usize>,
    ) -> usize {
        let span = Span { from: at, until: OPEN };
        self.run.faults.push(FaultBand { number, kind: kind.to_owned(), sites, span });
        self.run.faults.len() - 1
    }

    /// Notes that the fault ends, if it has not ended.
    pub(crate) fn fault_ends(&mut self, at: u64, index: usize) {
        let span = &mut self.run.faults[index].span;
        span.until = span.until.min(at);
    }

    /// Notes the end of all faults that the test has caused.
    pub(crate) fn test_heals(&mut self, at: u64) {
        for fault in self.run.faults.iter_mut().filter(|fault| fault.number.is_none()) {
            fault.span.until = fault.span.until.min(at);
        }
    }

    /// Notes that the test ends the delay of the member's packets.
    pub(crate) fn test_quickens(&mut self, at: u64, member: usize) {
        let of_test = self.run.faults.iter_mut().filter(|fault| fault.number.is_none());
        for fault in of_test.filter(|fault| fault.kind == SLOW && fault.sites == [member]) {
            fault.span.until = fault.span.until.min(at);
        }
    }

    /// Notes that the drawn faults are over. Processes that are away come back.
    pub(crate) fn faults_end(&mut self, at: u64) {
        self.run.heal = Some(at);
        // The fault of a process that is away ends when that fault starts the process again.
        let is_away = |fault: &&mut FaultBand| AWAY.contains(&fault.kind.as_str());
        for fault in self.run.faults.iter_mut().filter(|fault| !is_away(fault)) {
            fault.span.until = fault.span.until.min(at);
        }
    }

    /// Notes that a hold begins, changes or ends. `site_of` finds the site of a process.
    pub(crate) fn hold_changed(
        &mut self,
        number: u64,
        at: u64,
        change: HoldChange,
        site_of: impl FnOnce(ProcessId) -> Option<usize>,
    ) {
        match change {
            HoldChange::Begun(hold) => {
                if let Some(site) = site_of(hold.process) {
                    let drawn = drawn(&hold, site, at);
                    self.open.insert(number, OpenHold { drawn, lease_end: hold.lease_end });
                }
            }
            HoldChange::Extended(until) => {
                if let Some(hold) = self.open.get_mut(&number) {
                    hold.drawn.lease = until.map(nanos);
                }
            }
            HoldChange::Upgraded(next) => {
                if let Some(hold) = self.open.get_mut(&number) {
                    (hold.drawn.token, hold.drawn.shared) = (token(next.get()), false);
                }
            }
            HoldChange::Over(LostReason::Released) => {
                self.end_hold(number, at, "released".to_owned());
            }
            HoldChange::Over(reason) => {
                let reason = spaced(&format!("{reason:?}"));
                if let Some(hold) = self.open.get(&number) {
                    let (site, words) =
                        (hold.drawn.site, format!("{} lost: {reason}", hold.drawn.lock));
                    self.note(site, at, 1, words);
                }
                self.end_hold(number, at, format!("lost: {reason}"));
            }
        }
    }

    fn end_hold(&mut self, number: u64, at: u64, how: String) {
        let Some(OpenHold { drawn, .. }) = self.open.remove(&number) else { return };
        self.ended.push_back(HoldSpan { over: at, end: how, ..drawn });
        if self.ended.len() > HOLDS {
            self.ended.pop_front();
            self.forgotten += 1;
        }
    }

    /// Completes the record at the end of the run.
    pub(crate) fn finish(mut self, end: u64) -> RecordedRun {
        let run = &mut self.run;
        run.end = end;
        run.holds = self.ended.into_iter().collect();
        run.holds.extend(self.open.into_values().map(|hold| hold.drawn));
        run.holds.sort_by_key(|hold| hold.asked);
        run.faults.retain(|fault| fault.span.from < fault.span.until);
        for drawn in &mut run.drawn_sites {
            let spans =
                [&mut drawn.alive, &mut drawn.paused, &mut drawn.elder, &mut drawn.suspended];
            let spans = spans.into_iter().flatten();
            for span in spans.chain(drawn.epochs.iter_mut().map(|epoch_span| &mut epoch_span.span))
            {
                span.until = span.until.min(end);
            }
        }
        for fault in &mut run.faults {
            fault.span.until = fault.span.until.min(end);
        }
        for hold in &mut run.holds {
            hold.over = hold.over.min(end);
        }
        if !self.notes.is_empty() {
            let (name, notes) = (Some("test".to_owned()), self.notes);
            run.drawn_sites.push(DrawnSite { name, notes, ..DrawnSite::default() });
        }
        RecordedRun { run: self.run, begun: self.begun, forgotten: self.forgotten }
    }
}

/// A hold at its beginning.
fn drawn(hold: &BegunHold, site: usize, at: u64) -> HoldSpan {
    let names: Vec<String> = hold.want.names().iter().map(ToString::to_string).collect();
    let names = if names.is_empty() { "*".to_owned() } else { names.join("+") };
    HoldSpan {
        site,
        lock: format!("{}/{names}", hold.service),
        asked: nanos(hold.asked),
        got: Some(at),
        token: token(hold.token.get()),
        shared: matches!(hold.want, Want::Share(_) | Want::Permits(..)),
        lease: hold.until.map(nanos),
        stopped: None,
        over: OPEN,
        end: String::new(),
    }
}

/// The number is large enough for 584 years.
fn nanos(span: Duration) -> u64 {
    span.as_nanos() as u64
}

/// Ends the last span, if it has not ended.
fn close(spans: &mut [Span], at: u64) {
    if let Some(span) = spans.last_mut().filter(|span| span.until == OPEN) {
        span.until = at;
    }
}

/// The name in words: `LeaseEnded` is "lease ended".
fn spaced(name: &str) -> String {
    let mut words = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push(' ');
        }
        words.extend(letter.to_lowercase());
    }
    words
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_end_when_they_are_healed_and_crashes_with_a_new_process() {
        let mut record = RunRecord::new(3);
        record.fault_begins(1, None, "cut", vec![0, 1]);
        record.fault_begins(2, None, SLOW, vec![2]);
        record.test_quickens(3, 1);
        record.test_quickens(4, 2);
        record.test_heals(5);
        let crash = record.fault_begins(6, Some(0), "crash", vec![0]);
        record.fault_begins(7, Some(1), "split", vec![0]);
        record.faults_end(8);
        record.fault_ends(9, crash);
        // The victim of this fault was away.
        let idle = record.fault_begins(10, Some(2), "stop", vec![0]);
        record.fault_ends(10, idle);
        let run = record.finish(20).run;
        let ends: Vec<u64> = run.faults.iter().map(|fault| fault.span.until).collect();
        assert_eq!((ends, run.heal), (vec![5, 4, 9, 8], Some(8)));
    }
}
