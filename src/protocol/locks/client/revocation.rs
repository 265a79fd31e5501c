//! Revocation: a member can request the release of a revocable hold, and end the hold by force once
//! its holder has been told.
//!
//! ```text
//! A ->[Query] G      G ->[QueryReply] A     the holders (to take a hold away, its holder is known)
//! A ->[RequestRevocation] H  H ->[RevocationReply] A  from each of them
//! ```
//! The hold's own member, and no other, records whether the hold is revocable and whether its
//! holder has been told. So the grantor only lists the holders, and neither a transfer nor a
//! recovery can lose a revocation. The same member ends the hold when it is revoked by force. First
//! its guards fail, then it is released like any other.
//!
//! - `told_before_taken`: a hold is ended by force only after its holder has been told of the
//!   request for its release.

use super::revocation_call::{RevocationCall, RevocationPhase};
use super::*;
use crate::protocol::event::Event;
use crate::protocol::message::{ClientMessage, RevocationDemand};

/// The requester's side.
impl LockClient {
    /// Handles the application's request to revoke a hold. `lease`: the member lease; `is_there`:
    /// whether a process is in the view.
    pub(crate) fn revoke(
        &mut self,
        (request, service): (RequestId, ServiceName),
        what: RevokeCommand,
        (wait, lease): (Wait, Duration),
        (crowded, is_there): (impl Fn(ProcessId) -> bool, impl Fn(ProcessId) -> bool),
        cx: &mut StepContext,
    ) {
        let holders = match &what {
            RevokeCommand::Ask { .. } => self.grantor(&service).0,
            RevokeCommand::Take(holder) | RevokeCommand::Force(holder, _) => Some(holder.process),
        };
        if self.is_full() || holders.is_some_and(crowded) {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        let limit = match wait {
            Wait::Try => cx.now + lease,
            Wait::AtMost(span) => cx.now + span,
            Wait::Forever => Time::MAX,
        };
        let revoking = RevocationCall::new(what);
        self.run_call(
            (request, service.clone()),
            CallKind::Revoke(Box::new(revoking)),
            Time::MAX,
            limit,
        );
        self.leave_out_the_gone(request, is_there, cx);
        self.repeat(request, cx);
    }

    /// Handles the grantor's list of the holders of a lock, or of the suspension, that is to be
    /// released.
    pub(super) fn on_holders(
        &mut self,
        request: RequestId,
        seen: QueryReply,
        is_there: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        let Some(service) = self.service_of(request).cloned() else { return };
        let Some(revoking) = self.revoking(request).filter(|revoking| revoking.looks()) else {
            return;
        };
        let (holders, more) = match seen {
            QueryReply::Lock { holders, more_holders, .. } => (holders, more_holders),
            QueryReply::Undecided => return self.postpone(request, cx),
            _ => (Vec::new(), 0),
        };
        // The grantor's view is older or newer than this member's. One of the two will catch up.
        if holders.iter().any(|holder| !is_there(holder.process)) {
            revoking.begin();
            return self.postpone(request, cx);
        }
        let holders = holders.into_iter().map(|holder| ((holder.process, holder.token), holder));
        revoking.phase = RevocationPhase::Asking(holders.collect());
        revoking.not_asked = more;
        revoking.ask_holders(&service, request, cx);
        self.finish(request, cx);
    }

    /// Handles the answer of a holder's member.
    pub(crate) fn on_revocation_reply(
        &mut self,
        from: ProcessId,
        (request, token): (RequestId, Token),
        heard: RevocationAnswer,
        cx: &mut StepContext,
    ) {
        let Some(revoking) = self.revoking(request) else { return };
        let RevocationPhase::Asking(holders) = &mut revoking.phase else { return };
        let Some(holder) = holders.remove(&(from, token)) else { return };
        match heard {
            RevocationAnswer::HolderTold => revoking.told.push(holder),
            RevocationAnswer::NotRevocable => revoking.not_revocable.push(holder),
            RevocationAnswer::NotHeld => {}
            RevocationAnswer::Revoked => {
                return self.answer_call(request, Outcome::Revoked, cx);
            }
            RevocationAnswer::ForceNotAllowed => {
                return self.answer_call(request, Outcome::ForceNotAllowed, cx);
            }
            RevocationAnswer::HolderNotTold => {
                return self.answer_call(request, Outcome::HolderNotTold, cx);
            }
            RevocationAnswer::TryAgain => {
                if let RevocationDemand::Ask(_) = revoking.demand {
                    revoking.begin();
                } else {
                    holders.insert((from, token), holder);
                }
                return self.postpone(request, cx);
            }
        }
        self.finish(request, cx);
    }

    /// Notes a new view: calls no longer wait for the members that left.
    pub(super) fn calls_of_holders_on_view(
        &mut self,
        calls: Vec<RequestId>,
        view: &View,
        cx: &mut StepContext,
    ) {
        for request in calls {
            self.answer_for_the_gone(request, |process| view.contains(process), cx);
            self.leave_out_the_gone(request, |process| view.contains(process), cx);
        }
    }

    fn leave_out_the_gone(
        &mut self,
        request: RequestId,
        is_there: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        if let Some(RevocationCall { phase: RevocationPhase::Asking(holders), .. }) =
            self.revoking(request)
        {
            holders.retain(|(process, _), _| is_there(*process));
            self.finish(request, cx);
        }
    }

    fn finish(&mut self, request: RequestId, cx: &mut StepContext) {
        if let Some(outcome) = self.revoking(request).and_then(|revoking| revoking.outcome()) {
            self.answer_call(request, outcome, cx);
        }
    }

    fn revoking(&mut self, request: RequestId) -> Option<&mut RevocationCall> {
        match &mut self.call_mut(request)?.kind {
            CallKind::Revoke(revoking) => Some(revoking),
            _ => None,
        }
    }
}

/// The holder's side.
impl LockClient {
    /// Handles another member's request to release a hold here, or to end the hold by force.
    pub(crate) fn on_request_revocation(
        &mut self,
        (from, request): (ProcessId, RequestId),
        service: &ServiceName,
        (hold, token): (RequestId, Token),
        demand: RevocationDemand,
        cx: &mut StepContext,
    ) {
        let heard = self.hear((from, request), service, (hold, token), demand, cx);
        cx.send(
            from,
            ClientMessage::RevocationReply { service: service.clone(), request, token, heard },
        );
    }

    fn hear(
        &mut self,
        by: (ProcessId, RequestId),
        service: &ServiceName,
        (request, token): (RequestId, Token),
        demand: RevocationDemand,
        cx: &mut StepContext,
    ) -> RevocationAnswer {
        let Some(state) = self.states.get_mut(service) else {
            return RevocationAnswer::NotHeld;
        };
        let Some(entry) = state.requests.get_mut(&request).filter(|entry| !entry.want.opens())
        else {
            return RevocationAnswer::NotHeld;
        };
        if !entry.holds_with(token) {
            // The grant, or the answer to an upgrade, may be on its way. The demand may mean a hold
            // with a higher token, but its lower token does not end that hold.
            return match entry.state {
                ClientRequestState::Held { token: own, .. }
                    if own > token && !matches!(demand, RevocationDemand::Ask(_)) =>
                {
                    RevocationAnswer::NotHeld
                }
                _ => RevocationAnswer::TryAgain,
            };
        }
        if let RevocationDemand::Force(order) = demand {
            if !cx.forced_revokes && !planted!(cx.mutant, ForceAnywhere) {
                return RevocationAnswer::ForceNotAllowed;
            }
            let (service, want) = (service.clone(), entry.want.clone());
            let by = by.0;
            cx.out.push(Output::Event(Event::ForcedRevoke { service, want, token, by, order }));
            self.report_loss(request, LostReason::Revoked, cx);
            self.end_keep_of(request, cx);
            self.end(request, cx);
            return RevocationAnswer::Revoked;
        }
        let Some(asked) = entry.revocable_mut() else { return RevocationAnswer::NotRevocable };
        match demand {
            RevocationDemand::Ask(metadata) => {
                if asked.len() < cx.limits.wanted as usize && asked.insert(by) {
                    let by = RevocationRequest { process: by.0, metadata };
                    cx.out.push(Output::RevocationRequested { request, by });
                }
                RevocationAnswer::HolderTold
            }
            _ if asked.is_empty() && !planted!(cx.mutant, TakeUntold) => {
                RevocationAnswer::HolderNotTold
            }
            _ => {
                planted!(cx.mutant, TakeUnheard => return state.release(service, request, cx));
                self.report_loss(request, LostReason::Revoked, cx);
                self.end(request, cx);
                RevocationAnswer::Revoked
            }
        }
    }
}
