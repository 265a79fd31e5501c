//! The grantor of one service: it grants the service's locks, in one epoch, in the order of asking.
//!
//! ```text
//!            named, others may hold             everyone answered or has left
//! (nobody) ------------------------> Recovering ----------------------------> Acting
//!     \------------------------------------------------------------------------^
//!            named, surely nobody holds
//! ```
//! A grantor ends when its member answers the recovery of a higher epoch, leaves, or is expelled.
//!
//! - `one_grantor_per_epoch`: the elder deals each epoch once.
//! - `tokens_rise`: tokens come from the elder's ranges in order, and a later epoch's ranges were dealt later.
//! - `recovered_table_is_the_union`: nothing is granted before every member of the view has reported or left it.

use super::event::{GrantorState, LockStatus};
use super::id::{Epoch, LockName, Metadata, ProcessId, RequestId, ServiceName, Ticket, Token};
use super::message::{HoldReport, Message, TokenRange, WaitReport};
use super::table::{Place, Table};
use super::turn::Turn;
use super::view::View;
use std::collections::{BTreeSet, VecDeque};

/// With fewer tokens left than this the elder is asked for more: enough for a second at full speed, so that the
/// answer comes in time.
const LOW_TOKENS: u32 = 1 << 20;
/// Requests that arrive during recovery are kept up to this number; later ones are told to ask again.
const MAX_PARKED: usize = 1 << 20;

/// The tokens left to grant with.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Supply {
    ranges: VecDeque<TokenRange>,
    asked: bool,
}

impl Supply {
    fn left(&self) -> u32 {
        self.ranges.iter().map(|range| range.last.sequence() - range.first.sequence() + 1).fold(0, u32::saturating_add)
    }

    fn take(&mut self) -> Option<Token> {
        let range = self.ranges.front_mut()?;
        let token = range.first;
        if token == range.last {
            self.ranges.pop_front();
        } else {
            range.first = Token::new(token.view(), token.sequence() + 1);
        }
        Some(token)
    }
}

/// A request as it was asked.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Asked {
    pub(crate) from: ProcessId,
    pub(crate) request: RequestId,
    pub(crate) name: LockName,
    pub(crate) only_if_free: bool,
    pub(crate) metadata: Metadata,
}

/// What a recovering grantor has heard so far.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct Recovery {
    awaiting: BTreeSet<ProcessId>,
    waits: Vec<(ProcessId, WaitReport)>,
    parked: VecDeque<Asked>,
    /// Requests that ended meanwhile, so that a report or a parked request does not bring them back.
    over: BTreeSet<(ProcessId, RequestId)>,
}

/// One term of one grantor.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Grantor {
    service: ServiceName,
    epoch: Epoch,
    supply: Supply,
    tickets: u64,
    table: Table,
    recovery: Option<Recovery>,
}

impl Grantor {
    /// A grantor that was just named. With `everyone` given it first asks them all.
    pub(crate) fn new(service: ServiceName, range: TokenRange, everyone: Option<&View>, turn: &mut Turn) -> Grantor {
        let epoch = Epoch(range.first);
        // The first token of the range names the epoch and is never granted.
        let mut supply = Supply { ranges: VecDeque::from([range]), asked: false };
        supply.take();
        if everyone.is_some() && planted!(turn.mutant, ReuseTokens) {
            supply.ranges[0].first = Token::new(super::id::ViewNumber(1), 1);
        }
        let recovery = everyone.map(|view| {
            let mut awaiting: BTreeSet<ProcessId> = view.members.iter().map(|member| member.info.process).collect();
            if planted!(turn.mutant, SkipOneInRecovery) {
                awaiting.pop_last();
            }
            for &process in &awaiting {
                turn.say(process, Message::Recover { service: service.clone(), epoch });
            }
            Recovery { awaiting, waits: Vec::new(), parked: VecDeque::new(), over: BTreeSet::new() }
        });
        Grantor { service, epoch, supply, tickets: 0, table: Table::default(), recovery }
    }

    pub(crate) fn epoch(&self) -> Epoch {
        self.epoch
    }

    pub(crate) fn state(&self) -> GrantorState {
        if self.recovery.is_some() { GrantorState::Recovering } else { GrantorState::Acting }
    }

    pub(crate) fn requests(&self) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.table.requests()
    }

    pub(crate) fn status(&self) -> Vec<LockStatus> {
        self.table.status()
    }

    /// How many locks, requests and things heard in recovery it keeps.
    pub(crate) fn size(&self) -> usize {
        let recovery = self.recovery.as_ref().map_or(0, |recovery| {
            recovery.awaiting.len() + recovery.waits.len() + recovery.parked.len() + recovery.over.len()
        });
        self.table.size() + recovery
    }

    /// Whom its recovery still waits for.
    pub(crate) fn awaiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.recovery.iter().flat_map(|recovery| recovery.awaiting.iter().copied())
    }

    /// Somebody asks for a lock.
    pub(crate) fn on_ask(&mut self, asked: Asked, turn: &mut Turn) {
        let key = (asked.from, asked.request);
        if let Some(recovery) = &mut self.recovery
            && !planted!(turn.mutant, ServeWhileRecovering)
        {
            if asked.only_if_free {
                self.refuse(&asked, turn);
            } else if recovery.parked.len() >= MAX_PARKED {
                let Asked { from, request, .. } = asked;
                turn.say(from, Message::NotGrantor { service: self.service.clone(), epoch: self.epoch, request });
            } else {
                recovery.parked.push_back(asked);
            }
            return;
        }
        match self.table.place(key) {
            // Asked twice: the first answer may have been for an epoch that the asker no longer trusts.
            Some(Place::Holds(token)) => return self.tell_grant(key, token, turn),
            Some(Place::Waits(ticket)) => return self.tell_queued(key, ticket, turn),
            None => {}
        }
        if (turn.leased || planted!(turn.mutant, GrantWhileSuspended))
            && self.table.is_idle(&asked.name)
            && let Some(token) = self.supply.take()
        {
            self.table.hold(key, asked.name, token, asked.metadata);
            self.tell_grant(key, token, turn);
            self.mind_supply(turn);
        } else if asked.only_if_free {
            self.refuse(&asked, turn);
        } else {
            let ticket = self.next_ticket();
            self.table.wait(key, asked.name, ticket, asked.metadata);
            self.tell_queued(key, ticket, turn);
            self.mind_supply(turn);
        }
    }

    /// A request is over.
    pub(crate) fn on_done(&mut self, from: ProcessId, request: RequestId, turn: &mut Turn) {
        let key = (from, request);
        if let Some(recovery) = &mut self.recovery
            && !planted!(turn.mutant, ForgetWhatEnded)
        {
            recovery.over.insert(key);
        }
        self.table.end(key);
        self.grant(turn);
    }

    /// Gives every free lock to its next waiter, if the member's lease and the tokens allow.
    pub(crate) fn grant(&mut self, turn: &mut Turn) {
        if self.recovery.is_some() || (!turn.leased && !planted!(turn.mutant, GrantWhileSuspended)) {
            return;
        }
        while self.table.has_next() {
            let Some(token) = self.supply.take() else { break };
            if let Some(key) = self.table.grant_next(token) {
                self.tell_grant(key, token, turn);
            }
        }
        self.mind_supply(turn);
    }

    /// The elder dealt more tokens.
    pub(crate) fn on_tokens(&mut self, range: TokenRange, turn: &mut Turn) {
        self.supply.asked = false;
        if self.supply.ranges.back().is_none_or(|last| last.last < range.first) && range.first > self.epoch.0 {
            self.supply.ranges.push_back(range);
        }
        self.grant(turn);
    }

    /// A new elder may not know that the last one was asked for tokens.
    pub(crate) fn on_new_elder(&mut self, turn: &mut Turn) {
        self.supply.asked = false;
        self.mind_supply(turn);
    }

    /// Members left: so do their requests, and nobody waits for their report.
    pub(crate) fn on_view(&mut self, view: &View, departed: &[ProcessId], turn: &mut Turn) {
        for &process in departed {
            self.table.end_all(process);
        }
        if planted!(turn.mutant, FreeGhosts) {
            for member in view.members.iter().filter(|member| member.ghost) {
                self.table.end_all(member.info.process);
            }
        }
        if let Some(recovery) = &mut self.recovery {
            recovery.awaiting.retain(|process| view.contains(*process));
            if planted!(turn.mutant, AwaitNoGhosts) {
                recovery.awaiting.retain(|process| view.living().any(|member| member.info.process == *process));
            }
            recovery.waits.retain(|(process, _)| view.contains(*process));
            recovery.parked.retain(|asked| view.contains(asked.from));
            self.finish_recovery(turn);
        }
        self.grant(turn);
    }

    #[cfg(elderlock_mutants)]
    pub(crate) fn forget(&mut self, process: ProcessId) {
        self.table.end_all(process);
    }

    /// A member reports. Returns whether recovery ended with it.
    pub(crate) fn on_report(
        &mut self,
        from: ProcessId,
        holds: Vec<HoldReport>,
        waits: Vec<WaitReport>,
        last: bool,
        turn: &mut Turn,
    ) -> bool {
        let Some(recovery) = &mut self.recovery else { return false };
        if !recovery.awaiting.contains(&from) {
            return false;
        }
        for hold in holds {
            if recovery.over.contains(&(from, hold.request)) {
                continue;
            }
            if let Some((process, request)) =
                self.table.claim((from, hold.request), hold.name, hold.token, hold.metadata)
            {
                turn.say(process, Message::Revoke { service: self.service.clone(), epoch: self.epoch, request });
            }
        }
        recovery.waits.extend(waits.into_iter().map(|wait| (from, wait)));
        if last {
            recovery.awaiting.remove(&from);
        }
        self.finish_recovery(turn)
    }

    /// Starts to act once everyone has been heard: acknowledged places first, in their old order, then those whose
    /// place was never acknowledged, then those that asked meanwhile.
    fn finish_recovery(&mut self, turn: &mut Turn) -> bool {
        if self.recovery.as_ref().is_none_or(|recovery| !recovery.awaiting.is_empty()) {
            return false;
        }
        let Some(mut recovery) = self.recovery.take() else { return false };
        recovery.waits.sort_by_key(|(_, wait)| (wait.ticket.is_none(), wait.ticket));
        if planted!(turn.mutant, LoseWaiters) {
            recovery.waits.clear();
        }
        if planted!(turn.mutant, LosePlaces) {
            recovery.waits.reverse();
            recovery.waits.iter_mut().for_each(|(_, wait)| wait.ticket = None);
        }
        if planted!(turn.mutant, NewcomersFirst) {
            for asked in std::mem::take(&mut recovery.parked) {
                self.on_ask(asked, turn);
            }
        }
        for (from, wait) in recovery.waits {
            let key = (from, wait.request);
            if self.table.place(key).is_none() && !recovery.over.contains(&key) {
                let ticket = wait.ticket.unwrap_or_else(|| self.next_ticket());
                self.table.wait(key, wait.name, ticket, wait.metadata);
                if wait.ticket.is_none() {
                    self.tell_queued(key, ticket, turn);
                }
            }
        }
        self.grant(turn);
        for asked in recovery.parked {
            if !recovery.over.contains(&(asked.from, asked.request)) {
                self.on_ask(asked, turn);
            }
        }
        true
    }

    fn next_ticket(&mut self) -> Ticket {
        self.tickets += 1;
        Ticket { epoch: self.epoch, number: self.tickets }
    }

    fn mind_supply(&mut self, turn: &mut Turn) {
        if self.supply.left() < LOW_TOKENS && !self.supply.asked {
            self.supply.asked = true;
            turn.say_elder(Message::MoreTokens { service: self.service.clone(), epoch: self.epoch });
        }
    }

    fn refuse(&self, asked: &Asked, turn: &mut Turn) {
        let holder = if self.recovery.is_some() { None } else { self.table.holder(&asked.name) };
        let (service, request) = (self.service.clone(), asked.request);
        turn.say(asked.from, Message::Refuse { service, epoch: self.epoch, request, holder });
    }

    fn tell_grant(&self, (process, request): (ProcessId, RequestId), token: Token, turn: &mut Turn) {
        turn.say(process, Message::Grant { service: self.service.clone(), epoch: self.epoch, request, token });
    }

    fn tell_queued(&self, (process, request): (ProcessId, RequestId), ticket: Ticket, turn: &mut Turn) {
        turn.say(process, Message::Queued { service: self.service.clone(), epoch: self.epoch, request, ticket });
    }
}
