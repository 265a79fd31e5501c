//! Probes at a grantor: it forwards them to the holders for which a request waits.

use super::super::table::{Edge, TableBlocker};
use super::Grantor;
use crate::protocol::id::{OwnerId, ProcessId, RequestId};
use crate::protocol::message::{Blocked, ChainLink, ClientMessage, Probe};
use crate::protocol::step_context::StepContext;

impl Grantor {
    /// Handles a probe of a waiting request, and forwards it to the holders for which the request
    /// waits.
    pub(crate) fn on_probe(
        &self,
        from: ProcessId,
        request: RequestId,
        probe: &Probe,
        cx: &mut StepContext,
    ) {
        let wait = (from, request);
        if !self.is_acting() || !cx.leased || self.revalidations.contains_key(&from) {
            return;
        }
        let Some(found) = self.table.blockers(&Blocked::Request(from, request)) else { return };
        let next = probe.next_link();
        let is_meant = |hold: &&TableBlocker| match next {
            Some(link) => {
                (link.wait, link.hold, link.token) == (wait, hold.key, hold.token)
                    && link.owner == hold.owner
            }
            None => {
                let is_origin = (hold.key.0, hold.owner) == (probe.origin.0, probe.owner);
                probe.confirmed.is_none()
                    && (is_origin || !probe.has_passed(hold.key.0, hold.owner))
            }
        };
        let needed = if planted!(cx.mutant, BelieveOwnQueue) { Edge::Behind } else { Edge::Sure };
        let is_sure =
            |hold: &&TableBlocker| hold.edge >= needed && hold.owner != OwnerId::default();
        let holds = found.all.iter().filter(is_sure).filter(is_meant);
        let holds = holds.map(|hold| (hold.key, hold.owner, hold.token));
        // Only the members of earlier requests know whether those still wait.
        let is_meant = |(key, owner): &(_, OwnerId)| match next {
            Some(link) => {
                link.is_queue() && (link.wait, link.hold, link.owner) == (wait, *key, *owner)
            }
            None => probe.confirmed.is_none() && probe.path.iter().all(|link| link.hold != *key),
        };
        let earlier = found.earlier.iter().filter(|of| is_meant(of));
        let earlier = earlier.map(|(key, owner)| (*key, *owner, ChainLink::QUEUE));
        let links: Vec<_> = holds.chain(earlier).collect();
        let budget = probe.share(links.len());
        for (hold, owner, token) in links.into_iter().take(probe.budget as usize) {
            let mut probe = Box::new(Probe { budget, ..probe.clone() });
            match &mut probe.confirmed {
                Some(confirmed) => *confirmed += 1,
                None => probe.path.push(ChainLink { wait, hold, owner, token }),
            }
            let (service, (process, request)) = (self.service.clone(), hold);
            cx.send(process, ClientMessage::ProbeHold { service, hold: request, token, probe });
        }
    }
}
