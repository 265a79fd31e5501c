//! The member's own requests: those that wait and those that hold, in all services.
//!
//! - Wait limits and leases of locks live here and only here, on this member's clock; the grantor times nothing.
//! - `one_outcome_per_request`: a request is answered when it leaves this book or begins to hold, and never twice.
//! - A request that is over is forgotten at once. If a grant of it still arrives, it is given back.
//!
//! ```text
//!           grantor known           acknowledged        granted
//! Unsent ----------------> Asked -----------------> Queued -------> Held ---> over (released, lease ended, lost)
//!    ^--- grantor gone ------/------------------------/   \-> Won (granted while the member's lease does not run)
//! ```

use super::event::{Event, LostReason, Outcome, Output, Sizes, Wait};
use super::id::{Epoch, LockName, Metadata, ProcessId, RequestId, ServiceName, Ticket, Token};
use super::message::{HoldReport, HolderInfo, Message, WaitReport};
use super::time::Time;
use super::turn::Turn;
use super::view::View;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Requests of one member that wait or hold at the same time: four million, about a gigabyte of them. Beyond it the
/// caller is told [`Outcome::Busy`].
const MAX_REQUESTS: usize = 1 << 22;
/// Reports are cut into parts of about this many bytes of names and metadata.
const REPORT_BYTES: usize = 64 << 10;

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum State {
    Unsent,
    Asked(Epoch),
    Queued(Epoch, Ticket),
    Won(Epoch, Token),
    Held { token: Token, until: Time },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Request {
    name: LockName,
    metadata: Metadata,
    lease: Option<Duration>,
    only_if_free: bool,
    /// What the caller hears when the limit is reached before an answer.
    at_limit: Outcome,
    /// The wait limit.
    limit: Time,
    /// Where a queued place was acknowledged, kept while the request is homeless.
    ticket: Option<Ticket>,
    state: State,
}

impl Request {
    fn due(&self) -> Time {
        match self.state {
            State::Held { until, .. } => until,
            _ => self.limit,
        }
    }
}

/// What this member knows of one service.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Session {
    grantor: Option<(ProcessId, Epoch)>,
    /// Grants of older epochs are refused.
    newest: Option<Epoch>,
    /// The elder was asked who grants, and has not answered.
    asked_elder: bool,
    /// Who granted before `grantor` was cleared: what it may still have of ours ends there.
    last: Option<ProcessId>,
    /// The grantor of this epoch says that it is none, though the elder may not know it yet.
    refused: Option<Epoch>,
    requests: BTreeMap<RequestId, Request>,
}

/// The member's requests.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct Holder {
    sessions: BTreeMap<ServiceName, Session>,
    services: BTreeMap<RequestId, ServiceName>,
    /// Wait limits and ends of leases.
    agenda: BTreeSet<(Time, RequestId)>,
    /// Services for which the elder is asked again.
    again: BTreeSet<(Time, ServiceName)>,
}

/// What the application asks for.
pub(crate) struct Wish {
    pub(crate) request: RequestId,
    pub(crate) service: ServiceName,
    pub(crate) name: LockName,
    pub(crate) wait: Wait,
    pub(crate) lease: Option<Duration>,
    pub(crate) metadata: Metadata,
}

impl Holder {
    /// The application wants a lock. `answer`: how long a try may take; `crowded`: too much is on its way to a
    /// member already.
    pub(crate) fn lock(&mut self, wish: Wish, answer: Duration, crowded: impl Fn(ProcessId) -> bool, turn: &mut Turn) {
        let Wish { request, service, name, wait, lease, metadata } = wish;
        let session = self.sessions.entry(service.clone()).or_default();
        if self.services.len() >= MAX_REQUESTS || session.grantor.is_some_and(|(process, _)| crowded(process)) {
            turn.out.push(Output::Answer { request, outcome: Outcome::Busy });
            return;
        }
        let (only_if_free, limit, at_limit) = match wait {
            Wait::Try => (true, turn.now + answer, Outcome::Undecided),
            Wait::AtMost(Duration::ZERO) => (true, turn.now + answer, Outcome::TimedOut),
            Wait::AtMost(span) => (false, turn.now + span, Outcome::TimedOut),
            Wait::Forever => (false, Time::MAX, Outcome::TimedOut),
        };
        let asked =
            Request { name, metadata, lease, only_if_free, at_limit, limit, ticket: None, state: State::Unsent };
        if limit != Time::MAX {
            self.agenda.insert((limit, request));
        }
        session.requests.insert(request, asked);
        self.services.insert(request, service.clone());
        self.pursue(&service, Some(request), turn);
    }

    /// The application is done with a request.
    pub(crate) fn release(&mut self, request: RequestId, turn: &mut Turn) {
        self.end(request, turn);
    }

    /// The application wants a hold to last.
    pub(crate) fn extend(&mut self, request: RequestId, lease: Duration, turn: &mut Turn) {
        let (now, leased) = (turn.now, turn.leased);
        let outcome = match self.request_mut(request) {
            Some(Request { state: State::Held { until, .. }, .. }) if leased && now < *until => {
                let before = *until;
                *until = before.max(now + lease);
                let until = *until;
                self.agenda.remove(&(before, request));
                if until != Time::MAX {
                    self.agenda.insert((until, request));
                }
                Outcome::Extended { until }
            }
            _ => Outcome::NotHeld,
        };
        turn.out.push(Output::Answer { request, outcome });
    }

    /// Wait limits and leases that are over.
    pub(crate) fn on_timer(&mut self, turn: &mut Turn) {
        while let Some((at, service)) = self.again.pop_first() {
            if at > turn.now {
                self.again.insert((at, service));
                break;
            }
            if let Some(session) = self.sessions.get_mut(&service) {
                session.refused = None;
                session.asked_elder = false;
                self.pursue(&service, None, turn);
            }
        }
        while let Some(&(at, request)) = self.agenda.first() {
            if at > turn.now {
                break;
            }
            self.agenda.remove(&(at, request));
            let Some(entry) = self.request_mut(request) else { continue };
            let output = match entry.state {
                State::Held { .. } => Output::Lost { request, reason: LostReason::LeaseEnded },
                _ => Output::Answer { request, outcome: entry.at_limit.clone() },
            };
            turn.out.push(output);
            if planted!(turn.mutant, TellNobodyOfLeaseEnd) {
                self.forget(request);
            }
            self.end(request, turn);
        }
    }

    /// Adds what is kept here.
    pub(crate) fn count(&self, sizes: &mut Sizes) {
        sizes.requests += self.services.len();
        sizes.request_timers += self.agenda.len() + self.again.len();
    }

    pub(crate) fn deadline(&self) -> Option<Time> {
        let again = self.again.first().map(|(at, _)| *at);
        self.agenda.first().map(|(at, _)| *at).into_iter().chain(again).min()
    }

    /// Whether a hold of the request may be believed at `now`, but for the member's own lease.
    pub(crate) fn holds(&self, request: RequestId, now: Time) -> Option<Token> {
        let service = self.services.get(&request)?;
        match self.sessions.get(service)?.requests.get(&request)?.state {
            State::Held { token, until } if now < until => Some(token),
            _ => None,
        }
    }

    /// The token that the request was granted, whether or not it may be believed.
    pub(crate) fn granted(&self, request: RequestId) -> Option<Token> {
        let service = self.services.get(&request)?;
        match self.sessions.get(service)?.requests.get(&request)?.state {
            State::Held { token, .. } | State::Won(_, token) => Some(token),
            _ => None,
        }
    }

    /// The elder, or a recovering grantor, tells who grants the service.
    pub(crate) fn on_grantor(&mut self, service: &ServiceName, grantor: ProcessId, epoch: Epoch, turn: &mut Turn) {
        let session = self.sessions.entry(service.clone()).or_default();
        if session.newest.is_some_and(|newest| newest > epoch) {
            return;
        }
        if session.refused == Some(epoch) {
            // Two who point at each other: ask again in a while, the elder will hear of it.
            self.again.insert((turn.now + turn.retry, service.clone()));
            return;
        }
        session.grantor = Some((grantor, epoch));
        session.newest = Some(epoch);
        session.last = None;
        session.asked_elder = false;
        self.pursue(service, None, turn);
    }

    /// A place was acknowledged.
    pub(crate) fn on_queued(&mut self, service: &ServiceName, epoch: Epoch, request: RequestId, place: Ticket) {
        let Some(session) = self.sessions.get_mut(service) else { return };
        if session.newest.is_some_and(|newest| newest > epoch) {
            return;
        }
        if let Some(entry) = session.requests.get_mut(&request)
            && let State::Unsent | State::Asked(_) | State::Queued(..) = entry.state
        {
            entry.state = State::Queued(epoch, place);
            entry.ticket = Some(place);
        }
    }

    /// A lock was granted.
    pub(crate) fn on_grant(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        request: RequestId,
        token: Token,
        turn: &mut Turn,
    ) {
        let outdated = self.newest(service).is_some_and(|newest| newest > epoch);
        if outdated && !planted!(turn.mutant, AcceptOlderEpoch) {
            return; // `no_resurrected_grant`: a newer grantor has heard from us, and this grant was not in what we said
        }
        let Some(entry) = self.request_mut(request) else {
            if !planted!(turn.mutant, KeepUnwantedGrant) {
                turn.say(from, Message::Done { service: service.clone(), request });
            }
            return;
        };
        match entry.state {
            State::Held { .. } | State::Won(..) if !planted!(turn.mutant, AnswerTwice) => {}
            _ => {
                entry.state = State::Won(epoch, token);
                self.accept(request, turn);
            }
        }
    }

    /// A try met a lock that was not free.
    pub(crate) fn on_refuse(&mut self, request: RequestId, holder: Option<HolderInfo>, turn: &mut Turn) {
        let Some(entry) = self.request_mut(request) else { return };
        if !entry.only_if_free || !matches!(entry.state, State::Asked(_)) {
            return;
        }
        let outcome = match (holder, &entry.at_limit) {
            (Some(holder), Outcome::Undecided) => Outcome::Held(holder),
            (_, at_limit) => at_limit.clone(),
        };
        self.forget(request);
        turn.out.push(Output::Answer { request, outcome });
    }

    /// Whom we asked does not grant.
    pub(crate) fn on_not_grantor(&mut self, service: &ServiceName, epoch: Epoch, request: RequestId, turn: &mut Turn) {
        let Some(session) = self.sessions.get_mut(service) else { return };
        let homeless = |entry: &mut Request| {
            if let State::Asked(asked) | State::Queued(asked, _) = entry.state
                && asked == epoch
            {
                entry.state = State::Unsent;
            }
        };
        if session.grantor.is_some_and(|(_, known)| known == epoch) {
            // What goes for one goes for all: it may leave before it has answered every one of them.
            session.last = session.grantor.map(|(process, _)| process);
            session.grantor = None;
            session.refused = Some(epoch);
            session.requests.values_mut().for_each(homeless);
        } else if let Some(entry) = session.requests.get_mut(&request) {
            homeless(entry);
        }
        self.pursue(service, None, turn);
    }

    /// Our hold lost against one with a higher token.
    pub(crate) fn on_revoke(&mut self, request: RequestId, turn: &mut Turn) {
        if let Some(entry) = self.request_mut(request) {
            if matches!(entry.state, State::Held { .. }) {
                turn.out.push(Output::Lost { request, reason: LostReason::Superseded });
            } else {
                let outcome = Outcome::Closed(LostReason::Superseded);
                turn.out.push(Output::Answer { request, outcome });
            }
            self.forget(request);
        }
    }

    /// A new grantor asks for what we hold and wait for. From here on older epochs are over for this member.
    /// Returns false if this question is itself out of date.
    pub(crate) fn on_recover(&mut self, from: ProcessId, service: &ServiceName, epoch: Epoch, turn: &mut Turn) -> bool {
        let session = self.sessions.entry(service.clone()).or_default();
        if session.newest.is_some_and(|newest| newest > epoch) {
            return false;
        }
        session.grantor = Some((from, epoch));
        session.newest = Some(epoch);
        session.last = None;
        session.asked_elder = false;
        let (mut holds, mut waits, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (&request, entry) in &mut session.requests {
            let (name, metadata) = (entry.name.clone(), entry.metadata.clone());
            bytes += 64 + name.as_bytes().len() + metadata.as_bytes().len();
            match entry.state {
                State::Won(..) if planted!(turn.mutant, ReportNoWonHold) => {}
                State::Held { token, .. } | State::Won(_, token) => {
                    holds.push(HoldReport { request, name, token, metadata });
                }
                // A try does not wait, so it is asked again instead.
                _ if entry.only_if_free => entry.state = State::Unsent,
                _ if planted!(turn.mutant, ReportNoWaits) => entry.state = State::Asked(epoch),
                _ => {
                    entry.state = State::Asked(epoch);
                    waits.push(WaitReport { request, name, ticket: entry.ticket, metadata });
                }
            }
            if bytes >= REPORT_BYTES {
                bytes = 0;
                let (holds, waits) = (std::mem::take(&mut holds), std::mem::take(&mut waits));
                turn.say(from, Message::Report { service: service.clone(), epoch, holds, waits, last: false });
            }
        }
        turn.say(from, Message::Report { service: service.clone(), epoch, holds, waits, last: true });
        self.pursue(service, None, turn);
        true
    }

    /// A new view: grantors that left are forgotten, and the elder is asked for those that are needed.
    pub(crate) fn on_view(&mut self, view: &View, turn: &mut Turn) {
        let mut wanting = Vec::new();
        for (service, session) in &mut self.sessions {
            session.asked_elder = false;
            session.refused = None;
            if session.grantor.is_some_and(|(process, _)| !view.contains(process)) {
                session.grantor = None;
                for entry in session.requests.values_mut() {
                    if let State::Asked(_) | State::Queued(..) = entry.state {
                        entry.state = State::Unsent;
                    }
                }
            }
            if session.grantor.is_none() && session.requests.values().any(|entry| entry.state == State::Unsent) {
                wanting.push(service.clone());
            }
        }
        for service in wanting {
            self.pursue(&service, None, turn);
        }
    }

    /// The member's lease runs (again): what was won meanwhile begins to be held.
    pub(crate) fn on_resumed(&mut self, turn: &mut Turn) {
        let won: Vec<RequestId> = self
            .sessions
            .values()
            .flat_map(|session| session.requests.iter())
            .filter(|(_, entry)| matches!(entry.state, State::Won(..)))
            .map(|(request, _)| *request)
            .collect();
        for request in won {
            self.accept(request, turn);
        }
    }

    /// The member's lease is over: no hold may be believed. Waits go on.
    pub(crate) fn on_suspended(&mut self, turn: &mut Turn) {
        if planted!(turn.mutant, HoldWhileSuspended) {
            return;
        }
        for request in self.held() {
            turn.out.push(Output::Lost { request, reason: LostReason::Suspended });
            self.end(request, turn);
        }
    }

    /// The member is out: everything ends.
    pub(crate) fn close(&mut self, reason: LostReason, turn: &mut Turn) {
        for request in self.held() {
            turn.out.push(Output::Lost { request, reason });
            self.end(request, turn);
        }
        for request in self.services.keys().copied().collect::<Vec<_>>() {
            turn.out.push(Output::Answer { request, outcome: Outcome::Closed(reason) });
            self.end(request, turn);
        }
    }

    /// The grantors this member has heard of.
    pub(crate) fn known(&self) -> impl Iterator<Item = (&ServiceName, ProcessId, Epoch)> {
        self.sessions.iter().filter_map(|(service, session)| {
            let (grantor, epoch) = session.grantor.or(session.newest.map(|newest| (ProcessId(0), newest)))?;
            Some((service, grantor, epoch))
        })
    }

    /// The newest epoch of the service that this member has heard of.
    pub(crate) fn newest(&self, service: &ServiceName) -> Option<Epoch> {
        self.sessions.get(service)?.newest
    }

    /// For [`Status`](super::Status): the service, its grantor and epoch, waits and holds of this member.
    pub(crate) fn status(&self) -> impl Iterator<Item = (&ServiceName, Option<(ProcessId, Epoch)>, usize, usize)> {
        self.sessions.iter().map(|(service, session)| {
            let held = session.requests.values().filter(|entry| matches!(entry.state, State::Held { .. })).count();
            (service, session.grantor, session.requests.len() - held, held)
        })
    }

    fn held(&self) -> Vec<RequestId> {
        let requests = self.sessions.values().flat_map(|session| session.requests.iter());
        requests.filter(|(_, entry)| matches!(entry.state, State::Held { .. })).map(|(request, _)| *request).collect()
    }

    /// Brings unsent requests of the service on their way: `only` this one, or all.
    fn pursue(&mut self, service: &ServiceName, only: Option<RequestId>, turn: &mut Turn) {
        let Some(session) = self.sessions.get_mut(service) else { return };
        let Some((grantor, epoch)) = session.grantor else {
            if !session.asked_elder && turn.elder.is_some() {
                session.asked_elder = true;
                turn.say_elder(Message::WhoGrants { service: service.clone() });
            }
            return;
        };
        let mut ask = |request: RequestId, entry: &mut Request| {
            let home = match entry.state {
                State::Unsent => None,
                State::Asked(home) | State::Queued(home, _) => Some(home),
                State::Won(..) | State::Held { .. } => return,
            };
            if home == Some(epoch) {
                return;
            }
            entry.state = State::Asked(epoch);
            let (name, metadata) = (entry.name.clone(), entry.metadata.clone());
            let (service, only_if_free) = (service.clone(), entry.only_if_free);
            turn.say(grantor, Message::Ask { service, epoch, request, name, only_if_free, metadata });
        };
        match only {
            Some(request) => {
                if let Some(entry) = session.requests.get_mut(&request) {
                    ask(request, entry);
                }
            }
            None => session.requests.iter_mut().for_each(|(request, entry)| ask(*request, entry)),
        }
    }

    /// A won lock begins to be held, if the member's lease runs.
    fn accept(&mut self, request: RequestId, turn: &mut Turn) {
        if !turn.leased && !planted!(turn.mutant, GrantWhileSuspended) {
            return;
        }
        let Some(entry) = self.request_mut(request) else { return };
        let State::Won(_, token) = entry.state else { return };
        let until = entry.lease.map_or(Time::MAX, |lease| turn.now + lease);
        let limit = entry.limit;
        entry.state = State::Held { token, until };
        self.agenda.remove(&(limit, request));
        if until != Time::MAX {
            self.agenda.insert((until, request));
        }
        turn.out.push(Output::Answer { request, outcome: Outcome::Granted { token, until } });
    }

    /// Forgets the request and tells the grantor, if it may know of it.
    fn end(&mut self, request: RequestId, turn: &mut Turn) {
        let Some((service, entry)) = self.forget(request) else { return };
        if planted!(turn.mutant, KeepUnwantedGrant) && !matches!(entry.state, State::Held { .. }) {
            return;
        }
        let Some(session) = self.sessions.get(&service) else { return };
        let grantor = session.grantor.map(|(process, _)| process);
        // One that said it grants nothing may yet have learned that it does, and have us in its table.
        if let Some(grantor) = grantor.filter(|_| entry.state != State::Unsent).or(session.last) {
            turn.say(grantor, Message::Done { service, request });
        }
    }

    fn forget(&mut self, request: RequestId) -> Option<(ServiceName, Request)> {
        let service = self.services.remove(&request)?;
        let entry = self.sessions.get_mut(&service)?.requests.remove(&request)?;
        self.agenda.remove(&(entry.due(), request));
        Some((service, entry))
    }

    fn request_mut(&mut self, request: RequestId) -> Option<&mut Request> {
        let service = self.services.get(&request)?;
        self.sessions.get_mut(service)?.requests.get_mut(&request)
    }
}

/// What a grantor's end means for the application: told once.
pub(crate) fn lost_grantor(service: &ServiceName, epoch: Epoch, turn: &mut Turn) {
    turn.out.push(Output::Event(Event::LostGrantor { service: service.clone(), epoch }));
}
