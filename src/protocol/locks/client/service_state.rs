//! The state of one service at a lock client: its grantor, and this member's requests, calls and
//! objects there.

use super::kept_locks::{KeptLocks, speaks_of_keeping};
use super::open_object::OpenObject;
use super::pending_call::{CallKind, PendingCall, PendingCalls};
use super::request::{ClientRequest, ClientRequestState};
use crate::protocol::event::{Event, Output};
use crate::protocol::id::{Epoch, LockName, OwnerId, ProcessId, RequestId, ServiceName};
use crate::protocol::message::{GrantorMessage, Message, RegistryMessage};
use crate::protocol::paged_map::PagedMap;
use crate::protocol::step_context::StepContext;
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};

/// Services for which something is due.
pub(super) type DueServices = BTreeSet<(Time, ServiceName)>;

/// The state of one service at this member.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct ServiceState {
    /// The number of the service among [the services](super::LockClient::names).
    pub(super) number: u32,
    pub(super) grantor: Option<(ProcessId, Epoch)>,
    /// The newest epoch that this member knows: grants of older epochs are refused.
    pub(super) newest: Option<Epoch>,
    /// The epoch of the grantor that got this member's last report. The report does not contain
    /// later answers of older grantors.
    pub(super) reported: Option<Epoch>,
    /// Whether the elder was asked for the grantor and has not answered.
    pub(super) asked_elder: bool,
    /// Whether the grantor does not answer though something waits for it: the elder is then asked
    /// for another.
    pub(super) is_suspected: bool,
    /// The process that granted before `grantor` was cleared. It may still have requests of this
    /// member, which end there.
    pub(super) last: Option<ProcessId>,
    /// The epoch whose grantor says that it no longer grants, though the elder may not know it yet.
    pub(super) refused: Option<Epoch>,
    /// The last epoch in which this member was named and no longer grants, or never did.
    pub(super) ended: Option<Epoch>,
    /// The last bid of this member for which it was named.
    pub(super) named_for: Option<RequestId>,
    /// While this member grants: its last bid that a later bid ended, and the later bidder. The bid
    /// is answered so if the grantor here ends without a transfer of its table.
    pub(super) outbid: Option<(RequestId, ProcessId)>,
    /// Whether the service was destroyed here, and no call has asked for it since.
    pub(super) destroyed: bool,
    pub(super) requests: PagedMap<ClientRequest>,
    /// The requests that do not hold. They are few beside the holds, and only a report walks
    /// through all holds.
    pub(super) waits: BTreeSet<RequestId>,
    /// The number of requests that have an object open.
    pub(super) opens: usize,
    pub(super) calls: PendingCalls,
    pub(super) objects: BTreeMap<LockName, OpenObject>,
    /// Requests for permits that are not granted yet, by object.
    pub(super) permits: BTreeSet<(LockName, RequestId)>,
    /// Requests of this member for the suspension, waiting or held, by owner: at most one of each
    /// owner.
    pub(super) suspensions: BTreeMap<OwnerId, RequestId>,
}

impl ServiceState {
    /// Notes the newest epoch of the service. Tells of its grantor if the epoch was not known, and
    /// that grantor is another member.
    pub(super) fn learn_epoch(
        &mut self,
        service: &ServiceName,
        (process, epoch): (ProcessId, Epoch),
        cx: &mut StepContext,
    ) {
        let before = self.newest.replace(epoch);
        if before < Some(epoch) && process != cx.me {
            let service = service.clone();
            cx.out.push(Output::Event(Event::FoundGrantor { service, epoch, process }));
        }
    }

    /// Returns whether something waits for a grantor while none is known. Open objects count too:
    /// without a grantor their content grows stale.
    pub(super) fn wants_grantor(&self) -> bool {
        !self.objects.is_empty()
            || self.waiting().any(|entry| entry.state == ClientRequestState::Unsent)
            || self.calls.want_grantor()
    }

    /// Returns whether something waits for the answer of a known grantor.
    pub(super) fn awaits_grantor(&self) -> bool {
        !self.waits.is_empty() || self.wants_grantor()
    }

    /// The requests that do not hold.
    pub(super) fn waiting(&self) -> impl Iterator<Item = &ClientRequest> + '_ {
        self.waits.iter().filter_map(|request| self.requests.get(request)).inspect(|_| touch())
    }

    /// Sends the requests that were not sent to the grantor in this epoch yet: `only` this request,
    /// or all.
    pub(super) fn ask_for_locks(
        &mut self,
        service: &ServiceName,
        (grantor, epoch): (ProcessId, Epoch),
        only: Option<RequestId>,
        cx: &mut StepContext,
    ) {
        let mut ask = |request: RequestId, entry: &mut ClientRequest| {
            let home = match entry.state {
                ClientRequestState::Unsent => None,
                ClientRequestState::Asked(home) | ClientRequestState::Queued(home) => Some(home),
                ClientRequestState::Won(..) | ClientRequestState::Held { .. } => return,
            };
            if home == Some(epoch) {
                return;
            }
            entry.state = ClientRequestState::Asked(epoch);
            let (service, lock) = (service.clone(), entry.lock());
            let only_if_free = entry.is_only_if_free();
            let may_keep = grantor != cx.me && speaks_of_keeping(cx);
            let keep = if may_keep { entry.keep() } else { 0 };
            cx.send(
                grantor,
                GrantorMessage::RequestLock { service, epoch, request, lock, only_if_free, keep },
            );
        };
        match only {
            Some(request) => {
                if let Some(entry) = self.requests.get_mut(&request) {
                    ask(request, entry);
                }
            }
            None => self.each_waiting(ask),
        }
    }

    /// Sends the calls that were not sent to the grantor in this epoch yet: `only` this call, or
    /// all.
    pub(super) fn ask_for_calls(
        &mut self,
        service: &ServiceName,
        (grantor, epoch): (ProcessId, Epoch),
        only: Option<RequestId>,
        kept: &KeptLocks,
        cx: &mut StepContext,
    ) {
        let (objects, requests) = (&self.objects, &self.requests);
        let mut ask = |request: RequestId, call: &mut PendingCall| {
            if let CallKind::Write(name, ..) = &call.kind
                && objects.get(name).is_none_or(|object| object.writing != Some(request))
            {
                return;
            }
            let Some(asked) = call.kind.asked() else { return };
            if asked.replace(epoch) == Some(epoch) {
                return;
            }
            // If other requests stand in for it, the grantor is told of those, and thereby of its
            // end.
            if let CallKind::Confirm(over, _) = call.kind
                && kept.stand_ins_of(over).next().is_none()
            {
                // The release goes before the question, on the same link. So a grantor that answers
                // the question already knows of the release, or of the rest of the hold.
                let service = service.clone();
                let word = match requests.get(&over) {
                    Some(ClientRequest {
                        want,
                        state: ClientRequestState::Held { token, .. },
                        ..
                    }) => {
                        let (want, token) = (want.clone(), *token);
                        GrantorMessage::Reduce { service, epoch, request: over, want, token }
                    }
                    _ => GrantorMessage::Release { service, request: over },
                };
                cx.send(grantor, word);
            }
            if let Some(question) = call.kind.question(service, epoch, request) {
                cx.send(grantor, question);
            }
        };
        match only {
            Some(request) => {
                if let Some(call) = self.calls.get_mut(&request) {
                    ask(request, call);
                }
            }
            None => self.calls.iter_mut().for_each(|(request, call)| ask(request, call)),
        }
    }

    /// Calls `act` for each request that does not hold.
    pub(super) fn each_waiting(&mut self, mut act: impl FnMut(RequestId, &mut ClientRequest)) {
        for request in &self.waits {
            touch();
            if let Some(entry) = self.requests.get_mut(request) {
                act(*request, entry);
            }
        }
    }

    /// Notes that the grantor does not answer: if something waits for it, the elder is asked at
    /// `at`.
    pub(super) fn suspect_grantor(
        &mut self,
        again: &mut DueServices,
        service: &ServiceName,
        at: Time,
    ) {
        if !self.is_suspected && self.awaits_grantor() {
            self.is_suspected = true;
            again.insert((at, service.clone()));
        }
    }

    /// The question to the elder for the service's grantor.
    pub(super) fn question(&self, service: &ServiceName) -> Message {
        Message::Registry(RegistryMessage::FindGrantor {
            service: service.clone(),
            heard: self.newest,
        })
    }

    /// Sends the elder this member's bid for the service, if there is one.
    pub(super) fn send_bids(&self, service: &ServiceName, cx: &mut StepContext) {
        if let Some(request) = self.calls.bids().next_back()
            && !self.calls.are_bids_held_back
        {
            cx.send_elder(RegistryMessage::Become { service: service.clone(), request });
        }
    }
}
