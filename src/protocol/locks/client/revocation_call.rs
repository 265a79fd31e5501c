//! `RevocationCall`: a pending call for the release of a hold.

use crate::protocol::event::{Outcome, RevokeCommand};
use crate::protocol::id::{Epoch, LockName, ProcessId, RequestId, ServiceName, Token};
use crate::protocol::message::{ClientMessage, HolderInfo, Query, RevocationDemand};
use crate::protocol::step_context::StepContext;
use std::collections::BTreeMap;

/// A pending call about the holders of a lock. They are told that its release is requested, or the
/// hold of one of them is ended by force.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RevocationCall {
    /// The lock; `None`: the suspension.
    pub(super) name: Option<LockName>,
    pub(super) demand: RevocationDemand,
    pub(super) phase: RevocationPhase,
    pub(super) told: Vec<HolderInfo>,
    pub(super) not_revocable: Vec<HolderInfo>,
    /// The number of holders beyond those that the grantor lists.
    pub(super) not_asked: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum RevocationPhase {
    /// The grantor of this epoch was asked to list the holders; `None`: no grantor was asked yet.
    Looking(Option<Epoch>),
    /// Holders that have not answered.
    Asking(BTreeMap<(ProcessId, Token), HolderInfo>),
}

impl RevocationCall {
    pub(super) fn new(what: RevokeCommand) -> RevocationCall {
        let one = |holder: HolderInfo| {
            let holders = BTreeMap::from([((holder.process, holder.token), holder.clone())]);
            (holder.name, RevocationPhase::Asking(holders))
        };
        let ((name, phase), demand) = match what {
            RevokeCommand::Ask { name, metadata } => {
                ((name, RevocationPhase::Looking(None)), RevocationDemand::Ask(metadata))
            }
            RevokeCommand::Take(holder) => (one(holder), RevocationDemand::Take),
            RevokeCommand::Force(holder, order) => (one(holder), RevocationDemand::Force(order)),
        };
        RevocationCall {
            name,
            demand,
            phase,
            told: Vec::new(),
            not_revocable: Vec::new(),
            not_asked: 0,
        }
    }

    /// Returns whether the call waits for a grantor's list of the holders.
    pub(super) fn looks(&self) -> bool {
        matches!(self.phase, RevocationPhase::Looking(_))
    }

    /// Returns the epoch in which a grantor was asked for the holders; `None`: they are known.
    pub(super) fn asked(&mut self) -> Option<&mut Option<Epoch>> {
        match &mut self.phase {
            RevocationPhase::Looking(asked) => Some(asked),
            RevocationPhase::Asking(_) => None,
        }
    }

    /// The query to the grantor.
    pub(super) fn at(&self) -> Query {
        self.name.clone().map_or(Query::Suspension, Query::Lock)
    }

    /// Starts over: the holders may have changed.
    pub(super) fn begin(&mut self) {
        self.phase = RevocationPhase::Looking(None);
        self.told.clear();
        self.not_revocable.clear();
    }

    /// Sends the messages to holders, again or for the first time.
    /// [`pursue`](super::LockClient::pursue) sends the query.
    pub(super) fn repeat(
        &mut self,
        service: &ServiceName,
        request: RequestId,
        cx: &mut StepContext,
    ) {
        match &mut self.phase {
            RevocationPhase::Looking(asked) => *asked = None,
            RevocationPhase::Asking(_) => self.ask_holders(service, request, cx),
        }
    }

    /// Sends the demand to the holders that have not answered.
    pub(super) fn ask_holders(
        &self,
        service: &ServiceName,
        request: RequestId,
        cx: &mut StepContext,
    ) {
        let RevocationPhase::Asking(holders) = &self.phase else { return };
        for (&(process, token), holder) in holders {
            let (service, hold, demand) = (service.clone(), holder.request, self.demand.clone());
            cx.send(
                process,
                ClientMessage::RequestRevocation { service, request, hold, token, demand },
            );
        }
    }

    /// The outcome for the requester, if all holders have answered.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        let RevocationPhase::Asking(holders) = &self.phase else { return None };
        holders.is_empty().then(|| Outcome::RevocationRequested {
            told: self.told.clone(),
            not_revocable: self.not_revocable.clone(),
            not_asked: self.not_asked,
        })
    }
}
