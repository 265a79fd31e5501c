//! The report of a member's holds, waits and objects to a grantor that asks for it.

use super::{ClientRequestState, ServiceState};
use crate::protocol::content::Content;
use crate::protocol::id::{Epoch, LockName, ProcessId, ServiceName};
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
    /// Reports everything to a grantor, in chunks. From now on waiting requests count as asked for
    /// in its epoch.
    pub(super) fn report(
        &mut self,
        service: &ServiceName,
        (grantor, epoch): (ProcessId, Epoch),
        cx: &mut StepContext,
    ) {
        let most = cx.limits.part_bytes as usize;
        let mut chunk = Chunk::default();
        for (name, object) in &self.objects {
            let Some(content) = &object.content else { continue };
            chunk.bytes += content.weight(name);
            chunk.objects.push((name.clone(), content.clone()));
            if chunk.bytes >= most {
                cx.send(grantor, chunk.message(service, epoch, false));
            }
        }
        for (request, entry) in self.requests.iter_mut() {
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
                    entry.state = ClientRequestState::Asked(epoch);
                    let ticket = entry.ticket();
                    chunk.waits.push(WaitReport { request, lock, ticket });
                    planted!(cx.mutant, ReportNoWaits => chunk.waits.clear());
                }
            }
            if chunk.bytes >= most {
                cx.send(grantor, chunk.message(service, epoch, false));
            }
        }
        cx.send(grantor, chunk.message(service, epoch, true));
    }
}
