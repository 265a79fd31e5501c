//! Probes for circles of owners: a request that asks for it is told that it waits in a circle.
//!
//! ```text
//! M ->[ProbeWait] G   G ->[ProbeHold] H   H ->[ProbeWait] G'   ...   G'' ->[ProbeHold] M
//! ```
//! A probe that returns to its origin has found a circle. It then takes the same path once more, so
//! all waits and holds of the circle surely stood at one instant. No member stores anything of a
//! probe.
//!
//! - `deadlock_is_told`: a request is told of a deadlock only if it waits in a circle.

use super::*;
use crate::protocol::message::{ChainLink, MAX_CHAIN, PROBE_BUDGET, Probe};

/// The number of `retry` times that a request waits before its first probe: most waits are shorter.
const RETRIES_BEFORE_PROBE: u32 = 4;

impl LockClient {
    /// Schedules the first probe of a request that detects circles and begins to wait.
    pub(super) fn probe_for(&mut self, request: RequestId, cx: &StepContext) {
        let at = cx.now + cx.timing.retry * RETRIES_BEFORE_PROBE;
        if let Some(waiting) = self.request_mut(request).and_then(ClientRequest::waiting_mut) {
            waiting.probe = Some(at);
            self.probes.insert((at, request));
        }
    }

    /// Sends the probes that are due.
    pub(super) fn send_probes(&mut self, cx: &mut StepContext) {
        for _ in 0..cx.limits.slice {
            let Some(&(at, request)) = self.probes.first().filter(|(at, _)| *at <= cx.now) else {
                return;
            };
            touch();
            self.probes.remove(&(at, request));
            let next = cx.now + cx.timing.member_lease;
            let Some(entry) = self.request_mut(request) else { continue };
            let owner = entry.owner;
            if let Some(waiting) = entry.waiting_mut()
                && !planted!(cx.mutant, ProbeOnce)
            {
                waiting.probe = Some(next);
                self.probes.insert((next, request));
            }
            let (budget, path) = (PROBE_BUDGET, Vec::new());
            let origin = (cx.me, request);
            self.send_probe(request, Probe { origin, owner, budget, path, confirmed: None }, cx);
        }
    }

    /// Sends a probe to the grantor of a waiting request.
    fn send_probe(&self, request: RequestId, probe: Probe, cx: &mut StepContext) {
        let Some(service) = self.service_of(request) else { return };
        let Some((grantor, _)) = self.states.get(service).and_then(|state| state.grantor) else {
            return;
        };
        let (service, probe) = (service.clone(), Box::new(probe));
        cx.send(grantor, GrantorMessage::ProbeWait { service, request, probe });
    }

    /// Handles a probe for the owner of a hold here, or for a request here that waits before
    /// another one.
    pub(crate) fn on_probe(
        &mut self,
        service: &ServiceName,
        (hold, token): (RequestId, Token),
        probe: Probe,
        cx: &mut StepContext,
    ) {
        let is_queue = token == ChainLink::QUEUE;
        let owner = if is_queue {
            self.owner_of_wait(service, hold, cx)
        } else {
            self.owner_of(service, (hold, token), cx)
        };
        let Some(owner) = owner else { return };
        let is_of_link = probe.last_link().is_some_and(|link| {
            (link.hold, link.token, link.owner) == ((cx.me, hold), token, owner)
        });
        if !is_of_link || probe.path.len() > MAX_CHAIN {
            return;
        }
        if is_queue {
            let goes_on = match probe.next_link() {
                Some(link) => link.wait == (cx.me, hold),
                None => probe.confirmed.is_none() && probe.path.len() < MAX_CHAIN,
            };
            if goes_on {
                self.send_probe(hold, probe, cx);
            }
            return;
        }
        match probe.next_link() {
            Some(link) => {
                let (process, request) = link.wait;
                if process == cx.me && self.waits_of(owner).any(|(_, other, _)| other == request) {
                    self.send_probe(request, probe, cx);
                }
            }
            None if (cx.me, owner) == (probe.origin.0, probe.owner) => {
                self.on_circle(owner, probe, cx);
            }
            None if probe.confirmed.is_none() && probe.path.len() < MAX_CHAIN => {
                self.pass_on(owner, &probe, cx);
            }
            None => {}
        }
    }

    /// The owner of a request of this member, if the request still waits.
    fn owner_of_wait(
        &self,
        service: &ServiceName,
        request: RequestId,
        cx: &StepContext,
    ) -> Option<OwnerId> {
        let owner = self.states.get(service)?.requests.get(&request)?.owner;
        let waits = cx.leased && self.waits_of(owner).any(|(_, other, _)| other == request);
        waits.then_some(owner)
    }

    /// Notes that a probe of this member's request has found a circle, or has confirmed it.
    fn on_circle(&mut self, owner: OwnerId, mut probe: Probe, cx: &mut StepContext) {
        let request = probe.origin.1;
        if !self.waits_of(owner).any(|(_, other, _)| other == request) {
            return;
        }
        if probe.confirmed.is_none() && !planted!(cx.mutant, TellUnconfirmed) {
            probe.confirmed = Some(0);
            probe.budget = PROBE_BUDGET;
            return self.send_probe(request, probe, cx);
        }
        cx.out.push(Output::Answer { request, outcome: Outcome::Deadlock });
        self.end(request, cx);
    }

    /// Forwards a probe to the grantors of the requests for which an owner waits.
    fn pass_on(&self, owner: OwnerId, probe: &Probe, cx: &mut StepContext) {
        let waits: Vec<RequestId> = self
            .waits_of(owner)
            // Of the requests of a circle that probe, only the one with the highest key is told.
            .filter(|(_, request, entry)| {
                let is_told = entry.waiting().is_some_and(|waiting| waiting.probe.is_some());
                !is_told || (cx.me, *request) < probe.origin
            })
            .map(|(_, request, _)| request)
            .take(probe.budget as usize)
            .collect();
        let budget = probe.share(waits.len());
        for request in waits {
            self.send_probe(request, Probe { budget, ..probe.clone() }, cx);
        }
    }
}
