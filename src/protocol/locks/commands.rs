//! Commands of the program about locks, and the fast path of the most frequent ones.

use super::*;
use crate::protocol::message::Query;

impl Locks {
    /// Handles a command of the program. `crowded`: whether too many messages to a member are on
    /// their way already.
    pub(crate) fn on_command(
        &mut self,
        command: Command,
        crowded: &dyn Fn(ProcessId) -> bool,
        cx: &mut StepContext,
    ) {
        let client = &mut self.client;
        match command {
            Command::Lock { request, service, lock, wait, lease, detects, keeps, follows } => {
                let call =
                    LockCall { request, service, lock, wait, lease, detects, keeps, follows };
                client.lock(call, cx.timing.answer, crowded, cx);
            }
            Command::Confirm { request, service, over } => {
                client.confirm((request, service), over, cx.timing.member_lease, cx)
            }
            Command::Query { request, service, at: Query::Service } => {
                client.find((request, service), cx.timing.answer, cx)
            }
            Command::Query { request, service, at } => {
                client.query((request, service), at, cx.timing.answer, crowded, cx)
            }
            Command::AskHolder { request, service, holder } => {
                let view = cx.view;
                let is_there = |process| view.is_none_or(|view| view.contains(process));
                let (call, answer) = ((request, service), cx.timing.answer);
                client.ask_holder(call, holder, answer, (crowded, is_there), cx);
            }
            Command::Revoke { request, service, what, wait } => {
                let view = cx.view;
                let is_there = |process| view.is_none_or(|view| view.contains(process));
                client.revoke(
                    (request, service),
                    what,
                    (wait, cx.timing.member_lease),
                    (crowded, is_there),
                    cx,
                );
            }
            Command::Become { request, service, wait } => {
                // A member that has destroyed the service and bids for it again has already
                // transferred its grantor role.
                let goes = self.relinquishing.contains(&service);
                let acts = !goes && self.grantors.get(&service).is_some_and(Grantor::is_acting);
                if !acts {
                    self.copy_for_bid(&service, cx);
                }
                self.client.bid((request, service), (wait, cx.timing.answer), acts, cx);
            }
            Command::Destroy { request, service } => {
                client.destroy(request, service, cx.timing.member_lease, cx)
            }
            Command::Release { request } => client.release(request, cx),
            Command::Extend { request, lease } => client.extend(request, lease, cx),
            Command::Reduce { request, want } => client.reduce(request, want, cx),
            Command::Upgrade { request, hold } => {
                client.upgrade(request, hold, cx.timing.answer, cx)
            }
            Command::Write { request, open, edit } => {
                client.write((request, open), edit, crowded, cx)
            }
            Command::Seeds(_) | Command::Leave | Command::Force => {}
        }
    }

    /// The destructions that the grantor has confirmed, of services of which nothing is granted
    /// here any more.
    pub(crate) fn confirmed_destructions(&self) -> Vec<RequestId> {
        let confirmed = self.client.confirmed().into_iter();
        confirmed
            .filter(|(_, service)| !self.is_departing(service))
            .map(|(request, _)| request)
            .collect()
    }

    /// Answers a confirmed destruction.
    pub(crate) fn answer_destroyed(&mut self, request: RequestId, cx: &mut StepContext) {
        self.client.answer_call(request, Outcome::Destroyed, cx);
    }

    /// Grants or releases a free lock, or a share of it, without a message, if no other member is
    /// concerned. See [`Node::try_fast`](crate::protocol::Node::try_fast).
    pub(crate) fn try_fast(
        &mut self,
        me: ProcessId,
        now: Time,
        command: &Command,
    ) -> Option<FastOutcome> {
        match command {
            Command::Lock { request, service, lock, wait, lease, keeps, .. } => {
                let (request, wait, lease) = (*request, *wait, *lease);
                // The lock is granted at once, or a later step asks for it.
                let call = || LockCall {
                    request,
                    service: service.clone(),
                    lock: lock.clone(),
                    wait,
                    lease,
                    detects: false,
                    keeps: false,
                    follows: false,
                };
                let Some(grantor) = self.grantors.get_mut(service) else {
                    let at = (request, service, lock);
                    let held = keeps.then(|| self.client.hold_kept_at_once(call, at, now))?;
                    return held.map(|(token, until)| FastOutcome::Granted(token, until));
                };
                let call = call();
                let home = (me, grantor.epoch());
                let (token, until) = self.client.hold_at_once(call, home, now, |call| {
                    grantor.grant_at_once((me, request), || call.lock.clone(), now)
                })?;
                Some(FastOutcome::Granted(token, until))
            }
            Command::Release { request } => {
                let (service, name) = self.client.held_lock(*request)?;
                let Some(grantor) = self.grantors.get_mut(service) else {
                    let is_over = self.client.end_kept_at_once(*request, now);
                    return is_over.then_some(FastOutcome::Released);
                };
                if !self.client.is_home(service, (me, grantor.epoch()))
                    || !grantor.end_at_once((me, *request), name)
                {
                    return None;
                }
                self.client.end_at_once(*request);
                Some(FastOutcome::Released)
            }
            _ => None,
        }
    }

    /// The tokens for local grants of one lock: see [`Node::offer`](crate::protocol::Node::offer).
    pub(crate) fn offer(
        &self,
        me: ProcessId,
        (service, name): (&ServiceName, &LockName),
        keeps: bool,
    ) -> Option<LocalOffer> {
        let Some(grantor) = self.grantors.get(service) else {
            let range = keeps.then(|| self.client.kept_tokens(service, name))?;
            return range.map(LocalOffer::OfName);
        };
        if self.client.may_hold(service, (me, grantor.epoch())) {
            grantor.offer(name).map(LocalOffer::OfService)
        } else {
            None
        }
    }

    /// Enters local grants: see [`Node::absorb`](crate::protocol::Node::absorb).
    pub(crate) fn absorb(
        &mut self,
        me: ProcessId,
        service: &ServiceName,
        spent: u64,
        held: impl IntoIterator<Item = (RequestId, LocalGrant)>,
    ) {
        let Some(grantor) = self.grantors.get_mut(service) else { return };
        for (request, LocalGrant { name, owner, token, since }) in held {
            let call = LockCall::taken(request, service.clone(), (name, owner));
            grantor.hold((me, request), call.lock.clone(), token, since);
            self.client.hold(call, token, since);
        }
        grantor.spend(spent);
    }

    /// Enters local grants: see [`Node::absorb_kept`](crate::protocol::Node::absorb_kept).
    pub(crate) fn absorb_kept(
        &mut self,
        service: &ServiceName,
        used: KeptUse,
        holder: Option<(RequestId, OwnerId)>,
    ) {
        self.client.absorb_kept(service, used, holder);
    }
}
