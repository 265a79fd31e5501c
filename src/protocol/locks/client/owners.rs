//! Questions to a holder's member: how long the lease of a hold lasts, and for which requests its
//! owner waits.
//!
//! ```text
//! A ->[AskHolder] H     H ->[HolderReply] A
//! ```

use super::*;
use crate::protocol::message::{ClientMessage, HoldState, OwnerWait};

/// The most waits of one owner that are listed.
const LISTED: usize = 16;
/// The most waiting requests of this member that are searched for them.
const MAX_SEEN_REQUESTS: usize = 1 << 12;

/// The member that asks.
impl LockClient {
    /// Asks the holder's member about a hold, for the application. `is_there`: whether a process is
    /// in the view.
    pub(crate) fn ask_holder(
        &mut self,
        (request, service): (RequestId, ServiceName),
        holder: HolderInfo,
        answer: Duration,
        (crowded, is_there): (impl Fn(ProcessId) -> bool, impl Fn(ProcessId) -> bool),
        cx: &mut StepContext,
    ) {
        if self.is_full() || crowded(holder.process) {
            cx.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        let what = CallKind::AskHolder(Box::new(holder));
        self.run_call((request, service), what, Time::MAX, cx.now + answer);
        self.answer_for_the_gone(request, is_there, cx);
        self.repeat(request, cx);
    }

    /// Handles the answer of the holder's member.
    pub(crate) fn on_holder_reply(
        &mut self,
        from: ProcessId,
        request: RequestId,
        state: HoldState,
        cx: &mut StepContext,
    ) {
        if let Some(PendingCall { kind: CallKind::AskHolder(holder), .. }) = self.call_mut(request)
            && holder.process == from
        {
            self.answer_call(request, Outcome::Holder(state), cx);
        }
    }

    /// Answers questions about holds of processes that are no longer in a view: those holds have
    /// ended.
    pub(super) fn answer_for_the_gone(
        &mut self,
        request: RequestId,
        is_there: impl Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        if let Some(PendingCall { kind: CallKind::AskHolder(holder), .. }) = self.call_mut(request)
            && !is_there(holder.process)
        {
            self.answer_call(request, Outcome::Holder(HoldState::NotHeld), cx);
        }
    }
}

/// The member of the holder.
impl LockClient {
    /// Answers a member's question about a hold of this one.
    pub(crate) fn on_ask_holder(
        &self,
        (from, request): (ProcessId, RequestId),
        service: ServiceName,
        (hold, token): (RequestId, Token),
        cx: &mut StepContext,
    ) {
        let state = Box::new(self.hold_state(&service, (hold, token), cx));
        cx.send(from, ClientMessage::HolderReply { service, request, state });
    }

    fn hold_state(
        &self,
        service: &ServiceName,
        (hold, token): (RequestId, Token),
        cx: &StepContext,
    ) -> HoldState {
        let Some(owner) = self.owner_of(service, (hold, token), cx) else {
            return HoldState::NotHeld;
        };
        let until = self.lease_end(hold);
        let lease_left = (until != Time::MAX).then(|| until.since(cx.now));
        let (waits, more) = self.list_waits(owner);
        planted!(=> let waits = self.plant_waits(waits, cx));
        HoldState::Held { lease_left, waits, more }
    }

    /// The waits of an owner, and the number of further ones.
    pub(super) fn list_waits(&self, owner: OwnerId) -> (Vec<OwnerWait>, u64) {
        let mut more = 0;
        let mut waits = Vec::new();
        for (service, request, entry) in self.waits_of(owner) {
            if waits.len() == LISTED {
                more += 1;
                continue;
            }
            waits.push(OwnerWait {
                service: service.clone(),
                request,
                name: entry.want.names().first().cloned(),
                names: entry.want.names().len() as u32,
                mode: entry.want.mode(),
            });
        }
        (waits, more)
    }

    /// The owner of a hold that this member may believe in.
    pub(super) fn owner_of(
        &self,
        service: &ServiceName,
        (hold, token): (RequestId, Token),
        cx: &StepContext,
    ) -> Option<OwnerId> {
        let entry = self.states.get(service)?.requests.get(&hold)?;
        let is_held = cx.leased && self.holds(hold, cx.now).is_some() && entry.holds_with(token);
        is_held.then_some(entry.owner)
    }

    /// The requests for which an owner waits, in all services. A try does not wait, and neither
    /// does the opening of an object.
    pub(super) fn waits_of(
        &self,
        owner: OwnerId,
    ) -> impl Iterator<Item = (&ServiceName, RequestId, &ClientRequest)> {
        let all = self.states.iter().flat_map(|(service, state)| {
            let entry =
                move |request: &RequestId| Some((service, *request, state.requests.get(request)?));
            state.waits.iter().filter_map(entry)
        });
        all.take(MAX_SEEN_REQUESTS).inspect(|_| touch()).filter(move |(.., entry)| {
            entry.owner == owner
                && !entry.want.opens()
                && !entry.is_only_if_free()
                && !matches!(entry.state, ClientRequestState::Won(..))
        })
    }
}
