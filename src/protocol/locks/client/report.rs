//! The report of a member's holds, waits and objects to a grantor that asks for it. A long report
//! takes several steps.
//!
//! A recovering grantor gets the holds by the parts of their names (`name_part.rs`), so that it can
//! grant before the report is complete. The objects, the suspensions and all waits come first. The
//! waits are reported backwards: a wait without a ticket inherits one of a later wait, which the
//! grantor then has. The holds are sorted first, since no member has an index of them by part:
//! ```text
//! Begins -> Waits -> Sorts -> Holds -> Over        to a recovering grantor
//!    +----> InOrder -----------------> Over        to a grantor that revalidates its table
//! ```

use super::report_progress::{ReportProgress, ReportStage};
use super::{ClientRequestState, ServiceState};
use crate::protocol::content::Content;
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName};
use crate::protocol::locks::name_part::{FIRST_PART, lowest_part};
use crate::protocol::message::{GrantorMessage, HoldReport, WaitReport};
use crate::protocol::step_context::StepContext;

/// The slices of holds that one step sorts. To sort a hold takes far less than to report it.
const SORTED_AT_ONCE: usize = 16;

/// The next message of a report, not full yet.
struct Chunk<'a> {
    service: &'a ServiceName,
    to: (ProcessId, Epoch),
    objects: Vec<(LockName, Content)>,
    holds: Vec<HoldReport>,
    waits: Vec<WaitReport>,
    bytes: usize,
}

impl Chunk<'_> {
    /// Sends the chunk if it is full.
    fn send_if_full(&mut self, progress: &mut ReportProgress, cx: &mut StepContext) {
        if self.bytes >= cx.limits.part_bytes as usize {
            self.send(progress, cx);
        }
    }

    /// Sends the chunk, and empties it.
    fn send(&mut self, progress: &mut ReportProgress, cx: &mut StepContext) {
        let (service, (grantor, epoch)) = (self.service.clone(), self.to);
        let objects = std::mem::take(&mut self.objects).into();
        let (holds, waits) = (std::mem::take(&mut self.holds), std::mem::take(&mut self.waits));
        let last = progress.stage == ReportStage::Over;
        let parts = progress.by_part.then_some(progress.complete);
        (self.bytes, progress.told) = (0, progress.complete);
        progress.ahead += u32::from(progress.by_part && !last);
        cx.send(
            grantor,
            GrantorMessage::Report { service, epoch, objects, holds, waits, last, parts },
        );
    }
}

/// Returns whether a request is granted, and the member knows it.
fn is_granted(state: &ClientRequestState) -> bool {
    matches!(state, ClientRequestState::Held { .. } | ClientRequestState::Won(..))
}

impl ServiceState {
    /// The beginning of a report to a grantor. `by_part`: whether the holds are reported by the
    /// parts of their names. `acts`: whether the grantor acts already.
    pub(super) fn new_report(
        &self,
        to: (ProcessId, Epoch),
        by_part: bool,
        acts: bool,
    ) -> ReportProgress {
        let last = self.requests.backwards().next().map(|(request, _)| request);
        ReportProgress::new(to, last, by_part, acts)
    }

    /// Continues a report by one slice of requests, in chunks. From then on waiting requests among
    /// them count as asked for in the grantor's epoch, unless it has refused one meanwhile. Returns
    /// whether the report is complete.
    pub(super) fn report(
        &mut self,
        service: &ServiceName,
        progress: &mut ReportProgress,
        cx: &mut StepContext,
    ) -> bool {
        let (objects, holds, waits) = (Vec::new(), Vec::new(), Vec::new());
        let mut chunk = Chunk { service, to: progress.to, objects, holds, waits, bytes: 0 };
        if progress.stage == ReportStage::Begins {
            self.report_objects(&mut chunk, progress, cx);
            match progress.last {
                None => progress.end(),
                Some(_) if !progress.by_part => progress.stage = ReportStage::InOrder(RequestId(0)),
                Some(last) => {
                    self.report_first(&mut chunk, progress, cx);
                    progress.stage = ReportStage::Waits(last);
                }
            }
        }
        let mut left = cx.limits.slice as usize;
        if let ReportStage::InOrder(first) = progress.stage {
            let told = self.requests.from(first).map(|(request, _)| request);
            let told = told.take_while(|request| progress.tells(*request)).take(left + 1);
            let told: Vec<RequestId> = told.collect();
            for &request in told.iter().take(left) {
                self.tell(request, None, (&mut chunk, progress), cx);
            }
            match told.get(left) {
                Some(next) => progress.stage = ReportStage::InOrder(*next),
                None => progress.end(),
            }
        }
        if let ReportStage::Waits(next) = progress.stage {
            let told: Vec<RequestId> =
                self.waits.range(..=next).rev().take(left + 1).copied().collect();
            for &request in told.iter().take(left) {
                self.tell(request, Some(false), (&mut chunk, progress), cx);
            }
            match told.get(left) {
                Some(next) => progress.stage = ReportStage::Waits(*next),
                None => {
                    (progress.stage, progress.complete) =
                        (ReportStage::Sorts(RequestId(0)), FIRST_PART + 1);
                }
            }
            left = left.saturating_sub(told.len());
        }
        if let ReportStage::Sorts(first) = progress.stage {
            progress.stage = self.sort_holds(first, progress, cx);
        }
        while progress.stage == ReportStage::Holds && left > 0 {
            let told = progress.take_sorted(left);
            left -= told.len();
            for request in told {
                self.tell(request, Some(true), (&mut chunk, progress), cx);
            }
            progress.note_reported();
        }
        if chunk.bytes > 0 || progress.complete > progress.told {
            chunk.send(progress, cx);
        }
        progress.stage == ReportStage::Over
    }

    /// Reports the contents of all open objects.
    fn report_objects(
        &self,
        chunk: &mut Chunk,
        progress: &mut ReportProgress,
        cx: &mut StepContext,
    ) {
        for (name, object) in &self.objects {
            let Some(content) = &object.content else { continue };
            chunk.bytes += content.weight(name);
            chunk.objects.push((name.clone(), content.clone()));
            chunk.send_if_full(progress, cx);
        }
    }

    /// Reports the holds of the first part: those of objects, and the suspension.
    fn report_first(
        &mut self,
        chunk: &mut Chunk,
        progress: &mut ReportProgress,
        cx: &mut StepContext,
    ) {
        let opens = self.objects.values().flat_map(|object| &object.opens);
        let first: Vec<RequestId> = self.suspensions.values().chain(opens).copied().collect();
        for request in first {
            self.tell(request, Some(true), (chunk, progress), cx);
        }
    }

    /// Sorts one slice of holds by the parts of their names. A request that is granted later is
    /// granted by the grantor that gets the report.
    fn sort_holds(
        &self,
        first: RequestId,
        progress: &mut ReportProgress,
        cx: &mut StepContext,
    ) -> ReportStage {
        let slice = SORTED_AT_ONCE * cx.limits.slice as usize;
        for (count, (request, entry)) in self.requests.from(first).enumerate() {
            if !progress.tells(request) {
                break;
            }
            if count == slice {
                return ReportStage::Sorts(request);
            }
            if !is_granted(&entry.state) {
                continue;
            }
            let part = lowest_part(&entry.want);
            planted!(=> let part = super::planted::part_of_hold(part, &entry.want, cx));
            if part != FIRST_PART {
                progress.sorted[usize::from(part)].push_back(request);
            }
        }
        ReportStage::Holds
    }

    /// Adds a request to a chunk. `granted`: only if it is granted, or only if it waits.
    fn tell(
        &mut self,
        request: RequestId,
        granted: Option<bool>,
        (chunk, progress): (&mut Chunk, &mut ReportProgress),
        cx: &mut StepContext,
    ) {
        let (_, epoch) = progress.to;
        let is_refused = self.grantor != Some(progress.to);
        let Some(entry) = self.requests.get_mut(&request) else { return };
        if granted.is_some_and(|granted| granted != is_granted(&entry.state)) {
            return;
        }
        planted!(=> if super::planted::is_unreported(entry, cx) { return });
        let lock = entry.lock();
        planted!(=> let lock = super::planted::reported(lock, cx));
        chunk.bytes += 64 + lock.weight();
        match entry.state {
            ClientRequestState::Held { token, since, .. }
            | ClientRequestState::Won(token, since) => {
                let held_for = cx.now.since(since);
                chunk.holds.push(HoldReport { request, lock, token, held_for });
            }
            // A report has no tries, since they do not wait: they are asked for again.
            _ if entry.is_only_if_free() => entry.state = ClientRequestState::Unsent,
            _ => {
                entry.state = match is_refused {
                    true => ClientRequestState::Unsent,
                    false => ClientRequestState::Asked(epoch),
                };
                let ticket = entry.ticket();
                chunk.waits.push(WaitReport { request, lock, ticket });
                planted!(cx.mutant, ReportNoWaits => chunk.waits.clear());
            }
        }
        chunk.send_if_full(progress, cx);
    }
}
