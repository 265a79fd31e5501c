//! Pending calls: calls that other members answer and that are not requests for a lock. A pending
//! call asks
//! - to be the grantor (a *bid*);
//! - for a part of the grantor's table (a query);
//! - whether the service exists;
//! - for a confirmation that the grantor knows of the end of one request, or of all requests of
//!   this member;
//! - for a confirmation that the grantor knows how much is left of one hold;
//! - to turn a share into the lock;
//! - to write into an object;
//! - for the state of a hold, from the holder's member;
//! - for the release of a hold.
//!
//! A pending call has a number and a limit, as a request has.

use super::revocation_call::RevocationCall;
use crate::protocol::content::Edit;
use crate::protocol::event::Outcome;
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName};
use crate::protocol::message::{GrantorMessage, HolderInfo, Query};
use crate::protocol::time::Time;
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct PendingCall {
    pub(super) kind: CallKind,
    /// The time at which the call is sent again, unless answered.
    pub(super) again: Time,
    pub(super) limit: Time,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum CallKind {
    /// This member asks to become the grantor.
    Bid,
    /// A query of the grantor, with the epoch in which it was sent.
    Query(Query, Option<Epoch>),
    /// A question to the elder whether the service exists.
    FindService,
    /// The confirmation that the grantor knows of the end of a request, or how much is left of its
    /// hold. The epoch is the one in which the grantor was asked.
    Confirm(RequestId, Option<Epoch>),
    /// A question to the holder's member about its hold.
    AskHolder(Box<HolderInfo>),
    /// A revocation of a hold.
    Revoke(Box<RevocationCall>),
    /// The destruction of the service, with the member that has yet to confirm it.
    Destruction(Option<ProcessId>),
    /// The upgrade of a request's share to the lock, with the epoch in which the grantor was asked.
    Upgrade(RequestId, Option<Epoch>),
    /// A write into an object, with the epoch in which the grantor was asked.
    Write(LockName, Edit, Option<Epoch>),
}

impl CallKind {
    /// Returns the epoch in which a grantor was asked, for a call that a grantor answers.
    pub(super) fn asked(&mut self) -> Option<&mut Option<Epoch>> {
        match self {
            CallKind::Query(_, asked) | CallKind::Confirm(_, asked) => Some(asked),
            CallKind::Upgrade(_, asked) | CallKind::Write(_, _, asked) => Some(asked),
            CallKind::Revoke(revoking) => revoking.asked(),
            CallKind::Bid
            | CallKind::FindService
            | CallKind::AskHolder(_)
            | CallKind::Destruction(_) => None,
        }
    }

    /// The question to a grantor, for a call that a grantor answers.
    pub(super) fn question(
        &self,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
    ) -> Option<GrantorMessage> {
        let service = service.clone();
        let at = match self {
            CallKind::Query(at, _) => at.clone(),
            CallKind::Confirm(over, _) => Query::Position(*over),
            CallKind::Revoke(revoking) => revoking.at(),
            CallKind::Upgrade(hold, _) => {
                return Some(GrantorMessage::Upgrade { service, epoch, request, hold: *hold });
            }
            CallKind::Write(name, edit, _) => {
                let (name, edit) = (name.clone(), Box::new(edit.clone()));
                return Some(GrantorMessage::Write { service, epoch, request, name, edit });
            }
            CallKind::Bid
            | CallKind::FindService
            | CallKind::AskHolder(_)
            | CallKind::Destruction(_) => {
                return None;
            }
        };
        Some(GrantorMessage::Query { service, epoch, request, at: Box::new(at) })
    }
}

impl PendingCall {
    pub(super) fn due(&self) -> Time {
        self.limit.min(self.again)
    }

    pub(super) fn is_destruction(&self) -> bool {
        matches!(self.kind, CallKind::Destruction(_))
    }

    /// The outcome for the caller when the limit is reached.
    pub(super) fn at_limit(&self) -> Outcome {
        match self.kind {
            CallKind::Bid => Outcome::TimedOut,
            CallKind::Query(..)
            | CallKind::FindService
            | CallKind::AskHolder(_)
            | CallKind::Upgrade(..)
            | CallKind::Write(..)
            | CallKind::Revoke(_) => Outcome::Undecided,
            CallKind::Confirm(..) | CallKind::Destruction(_) => Outcome::Unconfirmed,
        }
    }
}

/// The pending calls of one service. Calls of some kinds are found without a search through the
/// others.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct PendingCalls {
    all: BTreeMap<RequestId, PendingCall>,
    bids: BTreeSet<RequestId>,
    /// The number of calls that ask whether the service exists.
    service_queries: usize,
    /// The calls that holders' members answer.
    of_holders: BTreeSet<RequestId>,
    destructions: BTreeSet<RequestId>,
    /// Calls for an upgrade, each behind the share that should become the lock.
    upgrades: BTreeSet<(RequestId, RequestId)>,
    /// Whether the bids wait for a copy of the grantor's table.
    pub(super) are_bids_held_back: bool,
}

impl PendingCalls {
    pub(super) fn get_mut(&mut self, request: &RequestId) -> Option<&mut PendingCall> {
        self.all.get_mut(request)
    }

    pub(super) fn insert(&mut self, request: RequestId, call: PendingCall) {
        match &call.kind {
            CallKind::Bid => drop(self.bids.insert(request)),
            CallKind::FindService => self.service_queries += 1,
            CallKind::AskHolder(_) | CallKind::Revoke(_) => drop(self.of_holders.insert(request)),
            CallKind::Destruction(_) => drop(self.destructions.insert(request)),
            CallKind::Upgrade(hold, _) => drop(self.upgrades.insert((*hold, request))),
            CallKind::Query(..) | CallKind::Confirm(..) | CallKind::Write(..) => {}
        }
        self.all.insert(request, call);
    }

    pub(super) fn remove(&mut self, request: RequestId) -> Option<PendingCall> {
        let call = self.all.remove(&request)?;
        match &call.kind {
            CallKind::Bid => drop(self.bids.remove(&request)),
            CallKind::FindService => self.service_queries -= 1,
            CallKind::AskHolder(_) | CallKind::Revoke(_) => drop(self.of_holders.remove(&request)),
            CallKind::Destruction(_) => drop(self.destructions.remove(&request)),
            CallKind::Upgrade(hold, _) => drop(self.upgrades.remove(&(*hold, request))),
            CallKind::Query(..) | CallKind::Confirm(..) | CallKind::Write(..) => {}
        }
        Some(call)
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = (RequestId, &mut PendingCall)> {
        self.all.iter_mut().inspect(|_| touch()).map(|(request, call)| (*request, call))
    }

    /// The calls, except those that wait for the end of the service at this member.
    pub(super) fn but_endings(&self) -> impl Iterator<Item = RequestId> {
        self.all
            .keys()
            .inspect(|_| touch())
            .filter(|request| !self.destructions.contains(request))
            .copied()
    }

    /// Returns whether a call waits for an answer of a grantor.
    pub(super) fn want_grantor(&self) -> bool {
        let is_query = |request: &RequestId| match self.all.get(request).map(|call| &call.kind) {
            Some(CallKind::Revoke(revoking)) => revoking.looks(),
            _ => false,
        };
        let others = self.bids.len()
            + self.service_queries
            + self.of_holders.len()
            + self.destructions.len();
        self.all.len() > others || self.of_holders.iter().inspect(|_| touch()).any(is_query)
    }

    /// The requests to be the grantor, in the order in which they were made.
    pub(super) fn bids(&self) -> impl DoubleEndedIterator<Item = RequestId> {
        self.bids.iter().inspect(|_| touch()).copied()
    }

    /// The calls that members with holds answer.
    pub(super) fn of_holders(&self) -> impl Iterator<Item = RequestId> {
        self.of_holders.iter().inspect(|_| touch()).copied()
    }

    pub(super) fn upgrades_of(&self, hold: RequestId) -> impl Iterator<Item = RequestId> + use<'_> {
        let of_hold = self.upgrades.range((hold, RequestId(0))..=(hold, RequestId(u64::MAX)));
        of_hold.inspect(|_| touch()).map(|(_, request)| *request)
    }

    /// Calls `act` for each [`CallKind::Destruction`], with the member that the call waits for.
    pub(super) fn each_destruction(
        &mut self,
        mut act: impl FnMut(RequestId, &mut Option<ProcessId>),
    ) {
        for request in &self.destructions {
            touch();
            if let Some(PendingCall { kind: CallKind::Destruction(awaited), .. }) =
                self.all.get_mut(request)
            {
                act(*request, awaited);
            }
        }
    }
}
