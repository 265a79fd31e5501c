//! The report of a member's holds, waits and objects to a grantor that asks for it. A long report
//! takes several steps.

use super::report_progress::ReportProgress;
use super::{ClientRequestState, ServiceState};
use crate::protocol::content::Content;
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName};
use crate::protocol::message::{GrantorMessage, HoldReport, WaitReport};
use crate::protocol::step_context::StepContext;

/// The next message of a report, not full yet.
#[derive(Default)]
struct Chunk {
    objects: Vec<(LockName, Content)>,
    holds: Vec<HoldReport>,
    waits: Vec<WaitReport>,
    bytes: usize,
}

impl Chunk {
    /// Empties the chunk into a message.
    fn message(&mut self, service: &ServiceName, epoch: Epoch, last: bool) -> GrantorMessage {
        let Chunk { objects, holds, waits, .. } = std::mem::take(self);
        let (service, objects) = (service.clone(), objects.into());
        GrantorMessage::Report { service, epoch, objects, holds, waits, last }
    }
}

impl ServiceState {
    /// The beginning of a report to a grantor.
    pub(super) fn new_report(&self, to: (ProcessId, Epoch), acts: bool) -> ReportProgress {
        let last = self.requests.backwards().next().map(|(request, _)| request);
        ReportProgress { to, next: None, last, acts }
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
        let (grantor, epoch) = progress.to;
        let is_refused = self.grantor != Some(progress.to);
        let most = cx.limits.part_bytes as usize;
        let mut chunk = Chunk::default();
        let is_first = progress.next.is_none();
        for (name, object) in self.objects.iter().filter(|_| is_first) {
            let Some(content) = &object.content else { continue };
            chunk.bytes += content.weight(name);
            chunk.objects.push((name.clone(), content.clone()));
            if chunk.bytes >= most {
                cx.send(grantor, chunk.message(service, epoch, false));
            }
        }
        let slice = cx.limits.slice as usize;
        let first = progress.next.unwrap_or(RequestId(0));
        let told = self.requests.from(first).map(|(request, _)| request);
        let told = told.take_while(|request| progress.tells(*request)).take(slice + 1);
        let told: Vec<RequestId> = told.collect();
        for &request in told.iter().take(slice) {
            let Some(entry) = self.requests.get_mut(&request) else { continue };
            planted!(=> if super::planted::is_unreported(entry, cx) { continue });
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
            if chunk.bytes >= most {
                cx.send(grantor, chunk.message(service, epoch, false));
            }
        }
        progress.next = told.get(slice).copied();
        let is_over = progress.next.is_none();
        if is_over || chunk.bytes > 0 {
            cx.send(grantor, chunk.message(service, epoch, is_over));
        }
        is_over
    }
}
