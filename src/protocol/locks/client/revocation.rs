//! Revocation: a hold that is revocable can be wanted back, and taken away once its holder has been
//! told.
//!
//! ```text
//! A ->[Query] G      G ->[QueryReply] A     the holders (to take a hold away, its holder is known)
//! A ->[RequestRevocation] H  H ->[RevocationReply] A  from each of them
//! ```
//! Whether a hold is revocable, and whether its holder has been told, is kept with the hold, at its
//! own member and nowhere else. So the grantor's only part is to list the holders, and neither
//! transfer nor recovery can lose a revocation. The holder's member, too, ends a hold that is taken
//! away: its guards fail first, and then it is released like any other.
//!
//! - `told_before_taken`: a hold is taken away only after its holder has been told that it is
//!   wanted back.

use super::*;
use crate::protocol::message::ClientMessage;

/// A pending call: to have the holders of something told that it is wanted back, or to take away
/// the hold of one of them.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct RevocationCall {
    /// The lock; `None`: the suspension.
    name: Option<LockName>,
    /// The asker's own metadata; `None`: to take it away.
    says: Option<Metadata>,
    stage: RevocationPhase,
    told: Vec<HolderInfo>,
    firm: Vec<HolderInfo>,
    /// The number of holders beyond those that a grantor lists.
    more: u64,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum RevocationPhase {
    /// The grantor of that epoch was asked for the holders.
    Looking(Option<Epoch>),
    /// These holders have not answered.
    Asking(BTreeMap<(ProcessId, Token), HolderInfo>),
}

impl RevocationCall {
    fn new(what: RevokeCommand) -> RevocationCall {
        let (name, says, stage) = match what {
            RevokeCommand::Ask { name, metadata } => {
                (name, Some(metadata), RevocationPhase::Looking(None))
            }
            RevokeCommand::Take(holder) => {
                let whom = BTreeMap::from([((holder.process, holder.token), holder.clone())]);
                (holder.name, None, RevocationPhase::Asking(whom))
            }
        };
        RevocationCall { name, says, stage, told: Vec::new(), firm: Vec::new(), more: 0 }
    }

    /// Whether a grantor has to list the holders.
    pub(super) fn looks(&self) -> bool {
        matches!(self.stage, RevocationPhase::Looking(_))
    }

    /// In which epoch a grantor was asked for the holders; `None`: they are known.
    pub(super) fn asked(&mut self) -> Option<&mut Option<Epoch>> {
        match &mut self.stage {
            RevocationPhase::Looking(asked) => Some(asked),
            RevocationPhase::Asking(_) => None,
        }
    }

    /// The query to the grantor.
    pub(super) fn at(&self) -> Query {
        self.name.clone().map_or(Query::Suspension, Query::Lock)
    }

    /// Begins to look, once more: the holders may be others by now.
    fn begin(&mut self) {
        self.stage = RevocationPhase::Looking(None);
        self.told.clear();
        self.firm.clear();
    }

    /// Sends the messages again, or for the first time, except for the query:
    /// [`pursue`](LockClient::pursue) sends that.
    pub(super) fn repeat(
        &mut self,
        service: &ServiceName,
        request: RequestId,
        turn: &mut StepContext,
    ) {
        match &mut self.stage {
            RevocationPhase::Looking(asked) => *asked = None,
            RevocationPhase::Asking(_) => self.say(service, request, turn),
        }
    }

    /// Asks the holders that have not answered.
    fn say(&self, service: &ServiceName, request: RequestId, turn: &mut StepContext) {
        let RevocationPhase::Asking(whom) = &self.stage else { return };
        for (&(process, token), holder) in whom {
            let (service, hold, says) = (service.clone(), holder.request, self.says.clone());
            turn.send(
                process,
                ClientMessage::RequestRevocation { service, request, hold, token, says },
            );
        }
    }

    /// The outcome for the asker, if all holders have answered.
    fn outcome(&self) -> Option<Outcome> {
        let RevocationPhase::Asking(whom) = &self.stage else { return None };
        whom.is_empty().then(|| Outcome::RevocationRequested {
            told: self.told.clone(),
            firm: self.firm.clone(),
            more: self.more,
        })
    }
}

/// The side that wants a hold back.
impl LockClient {
    /// The application wants a hold back. `lease`: that of a member; `is_there`: whether a process
    /// is in the view.
    pub(crate) fn revoke(
        &mut self,
        (request, service): (RequestId, ServiceName),
        what: RevokeCommand,
        (wait, lease): (Wait, Duration),
        (crowded, is_there): (impl Fn(ProcessId) -> bool, impl Fn(ProcessId) -> bool),
        turn: &mut StepContext,
    ) {
        let whom = match &what {
            RevokeCommand::Ask { .. } => self.grantor(&service).0,
            RevokeCommand::Take(holder) => Some(holder.process),
        };
        if self.is_full() || whom.is_some_and(crowded) {
            turn.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        let limit = match wait {
            Wait::Try => turn.now + lease,
            Wait::AtMost(span) => turn.now + span,
            Wait::Forever => Time::MAX,
        };
        let revoking = RevocationCall::new(what);
        self.run_errand(
            (request, service.clone()),
            CallKind::Revoke(Box::new(revoking)),
            Time::MAX,
            limit,
        );
        self.leave_out_the_gone(request, is_there, turn);
        self.repeat(request, turn);
    }

    /// The grantor lists the holders of a lock, or of the suspension, that is wanted back.
    pub(super) fn on_holders(
        &mut self,
        request: RequestId,
        seen: QueryReply,
        is_there: impl Fn(ProcessId) -> bool,
        turn: &mut StepContext,
    ) {
        let Some(service) = self.service_of(request).cloned() else { return };
        let Some(revoking) = self.revoking(request).filter(|revoking| revoking.looks()) else {
            return;
        };
        let (holders, more) = match seen {
            QueryReply::Lock { holders, more_holders, .. } => (holders, more_holders),
            QueryReply::Undecided => return self.postpone(request, turn),
            _ => (Vec::new(), 0),
        };
        // The grantor is a view behind, or ahead: one of us will know better in a while.
        if holders.iter().any(|holder| !is_there(holder.process)) {
            revoking.begin();
            return self.postpone(request, turn);
        }
        let whom = holders.into_iter().map(|holder| ((holder.process, holder.token), holder));
        revoking.stage = RevocationPhase::Asking(whom.collect());
        revoking.more = more;
        revoking.say(&service, request, turn);
        self.finish(request, turn);
    }

    /// A holder's member answers.
    pub(crate) fn on_asked_back(
        &mut self,
        from: ProcessId,
        (request, token): (RequestId, Token),
        heard: RevocationAnswer,
        turn: &mut StepContext,
    ) {
        let Some(revoking) = self.revoking(request) else { return };
        let RevocationPhase::Asking(whom) = &mut revoking.stage else { return };
        let Some(holder) = whom.remove(&(from, token)) else { return };
        match heard {
            RevocationAnswer::HolderTold => revoking.told.push(holder),
            RevocationAnswer::NotRevocable => revoking.firm.push(holder),
            RevocationAnswer::NotHeld => {}
            RevocationAnswer::Revoked => {
                return self.answer_errand(request, Outcome::Revoked, turn);
            }
            RevocationAnswer::HolderNotTold => {
                return self.answer_errand(request, Outcome::HolderNotTold, turn);
            }
            RevocationAnswer::TryAgain => {
                if revoking.says.is_some() {
                    revoking.begin();
                } else {
                    whom.insert((from, token), holder);
                }
                return self.postpone(request, turn);
            }
        }
        self.finish(request, turn);
    }

    /// A new view: the members that left it are asked for nothing any more.
    pub(super) fn revocations_on_view(
        &mut self,
        revoking: Vec<RequestId>,
        view: &View,
        turn: &mut StepContext,
    ) {
        for request in revoking {
            self.leave_out_the_gone(request, |process| view.contains(process), turn);
        }
    }

    fn leave_out_the_gone(
        &mut self,
        request: RequestId,
        is_there: impl Fn(ProcessId) -> bool,
        turn: &mut StepContext,
    ) {
        if let Some(RevocationCall { stage: RevocationPhase::Asking(whom), .. }) =
            self.revoking(request)
        {
            whom.retain(|(process, _), _| is_there(*process));
            self.finish(request, turn);
        }
    }

    fn finish(&mut self, request: RequestId, turn: &mut StepContext) {
        if let Some(outcome) = self.revoking(request).and_then(|revoking| revoking.outcome()) {
            self.answer_errand(request, outcome, turn);
        }
    }

    fn revoking(&mut self, request: RequestId) -> Option<&mut RevocationCall> {
        match &mut self.errand_mut(request)?.what {
            CallKind::Revoke(revoking) => Some(revoking),
            _ => None,
        }
    }
}

/// The side of the holder.
impl LockClient {
    /// A member wants a hold of ours back or, without metadata, takes it away.
    pub(crate) fn on_ask_back(
        &mut self,
        (from, request): (ProcessId, RequestId),
        service: &ServiceName,
        (hold, token): (RequestId, Token),
        says: Option<Metadata>,
        turn: &mut StepContext,
    ) {
        let heard = self.hear((from, request), service, (hold, token), says, turn);
        turn.send(
            from,
            ClientMessage::RevocationReply { service: service.clone(), request, token, heard },
        );
    }

    fn hear(
        &mut self,
        by: (ProcessId, RequestId),
        service: &ServiceName,
        (request, token): (RequestId, Token),
        says: Option<Metadata>,
        turn: &mut StepContext,
    ) -> RevocationAnswer {
        let Some(session) = self.sessions.get_mut(service) else {
            return RevocationAnswer::NotHeld;
        };
        let Some(entry) = session.requests.get_mut(&request).filter(|entry| !entry.want.opens())
        else {
            return RevocationAnswer::NotHeld;
        };
        if !entry.holds_with(token) {
            // Its grant, or the news that it became the lock, may be on its way. With a higher
            // token it may still be meant, but is not taken away by the lower one.
            return match entry.state {
                ClientRequestState::Held { token: own, .. } if own > token && says.is_none() => {
                    RevocationAnswer::NotHeld
                }
                _ => RevocationAnswer::TryAgain,
            };
        }
        let Some(asked) = entry.revocable_mut() else { return RevocationAnswer::NotRevocable };
        match says {
            Some(metadata) => {
                if asked.len() < turn.limits.wanted as usize && asked.insert(by) {
                    let by = RevocationRequest { process: by.0, metadata };
                    turn.out.push(Output::RevocationRequested { request, by });
                }
                RevocationAnswer::HolderTold
            }
            None if asked.is_empty() && !planted!(turn.mutant, TakeUntold) => {
                RevocationAnswer::HolderNotTold
            }
            None => {
                planted!(turn.mutant, TakeUnheard => {
                    let grantor = session.grantor.map(|(process, _)| process);
                    let done = Message::Grantor(GrantorMessage::Release { service: service.clone(), request });
                    grantor.into_iter().for_each(|grantor| turn.send(grantor, done.clone()));
                    return RevocationAnswer::Revoked;
                });
                turn.out.push(Output::Lost { request, reason: LostReason::Revoked });
                self.end(request, turn);
                RevocationAnswer::Revoked
            }
        }
    }
}

impl ClientRequest {
    fn holds_with(&self, token: Token) -> bool {
        let ClientRequestState::Held { token: first, .. } = self.state else { return false };
        (first..first.plus(u64::from(self.want.tokens()))).contains(&token)
    }
}
