//! The elder's map from lock services to their grantors, and the dealing of tokens.
//!
//! - A service is *free* (its next grantor need not ask anyone) only when every member of the view in which this
//!   elder began has answered or has left, and none had heard of it.
//! - `epochs_rise`: ranges are dealt in order within a view, and views only rise.

use super::id::{Epoch, ProcessId, ServiceName, Token, ViewNumber};
use super::message::{Message, TokenRange};
use super::turn::Turn;
use super::view::View;
use std::collections::{BTreeMap, BTreeSet};

/// Tokens dealt at a time: four seconds of grants at a million a second, and 1,024 ranges to a view.
const RANGE: u32 = 1 << 22;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct Entry {
    grantor: Option<(ProcessId, Epoch)>,
}

/// The elder's map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Registry {
    entries: BTreeMap<ServiceName, Entry>,
    /// The view in which everyone was asked; answers to an earlier question count for nothing.
    asked_in: ViewNumber,
    /// Members that have not told yet what they know.
    awaiting: BTreeSet<ProcessId>,
    /// Who asked for a service that cannot be answered yet.
    parked: BTreeMap<ServiceName, BTreeSet<ProcessId>>,
    /// Grantors that ran out of tokens before this elder heard of them.
    hungry: BTreeSet<(ServiceName, ProcessId, Epoch)>,
    /// The next token of the present view.
    next: Token,
}

impl Registry {
    /// The map of a new elder. `ask`: there were elders before, so everyone is asked.
    pub(crate) fn new(view: &View, ask: bool, turn: &mut Turn) -> Registry {
        let mut awaiting = BTreeSet::new();
        if ask {
            awaiting = view.members.iter().map(|member| member.info.process).collect();
            for &process in &awaiting {
                turn.say(process, Message::Inventory { view: view.number });
            }
        }
        Registry {
            entries: BTreeMap::new(),
            asked_in: view.number,
            awaiting,
            parked: BTreeMap::new(),
            hungry: BTreeSet::new(),
            next: first_token(view.number),
        }
    }

    /// The same elder has a new view.
    pub(crate) fn on_view(&mut self, view: &View) {
        self.next = first_token(view.number);
        self.awaiting.retain(|process| view.contains(*process));
        self.hungry.retain(|(_, process, _)| view.contains(*process));
        for askers in self.parked.values_mut() {
            askers.retain(|process| view.contains(*process));
        }
        for entry in self.entries.values_mut() {
            entry.grantor = entry.grantor.filter(|(process, _)| view.contains(*process));
        }
    }

    /// A member said goodbye: it grants nothing any more, and is named for nothing.
    pub(crate) fn on_leave(&mut self, process: ProcessId) {
        for askers in self.parked.values_mut() {
            askers.remove(&process);
        }
        for entry in self.entries.values_mut() {
            entry.grantor = entry.grantor.filter(|(grantor, _)| *grantor != process);
        }
    }

    /// Whether this view's tokens are used up: the elder then makes a new view.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.next.sequence() > u32::MAX - 2 * RANGE
    }

    /// A member asks who grants a service.
    pub(crate) fn on_who_grants(&mut self, from: ProcessId, service: ServiceName, may_name: bool, turn: &mut Turn) {
        self.parked.entry(service.clone()).or_default().insert(from);
        self.answer_for(service, may_name, turn);
    }

    /// A member tells what it knows.
    pub(crate) fn on_inventory(
        &mut self,
        from: ProcessId,
        asked_in: ViewNumber,
        known: Vec<(ServiceName, ProcessId, Epoch)>,
        last: bool,
        turn: &mut Turn,
    ) {
        if asked_in != self.asked_in || !self.awaiting.contains(&from) {
            return;
        }
        for (service, grantor, epoch) in known {
            let entry = self.entries.entry(service.clone()).or_default();
            // Hearsay shows that the service is in use; only the host's own word says where its grantor is.
            if planted!(turn.mutant, IgnoreHearsay) && grantor != from && entry.grantor.is_none() {
                self.entries.remove(&service);
                continue;
            }
            if grantor == from && entry.grantor.is_none_or(|(_, known)| known < epoch) {
                entry.grantor = Some((grantor, epoch));
                if !self.is_exhausted() && self.hungry.remove(&(service.clone(), grantor, epoch)) {
                    self.deal_more(service, grantor, epoch, turn);
                }
            }
        }
        if last {
            self.awaiting.remove(&from);
        }
    }

    /// A grantor runs low.
    pub(crate) fn on_more_tokens(
        &mut self,
        from: ProcessId,
        service: ServiceName,
        epoch: Epoch,
        may_name: bool,
        turn: &mut Turn,
    ) {
        let is_known = self.entries.get(&service).and_then(|entry| entry.grantor) == Some((from, epoch));
        if is_known && may_name && !self.is_exhausted() {
            self.deal_more(service, from, epoch, turn);
        } else {
            self.hungry.insert((service, from, epoch));
        }
    }

    /// Answers all who can be answered. `may_name`: the elder has its quorum, so it may name grantors.
    pub(crate) fn answer(&mut self, may_name: bool, turn: &mut Turn) {
        if may_name && !self.is_exhausted() {
            let known = |(service, process, epoch): &(ServiceName, ProcessId, Epoch)| {
                self.entries.get(service).and_then(|entry| entry.grantor) == Some((*process, *epoch))
            };
            let hungry: Vec<_> = self.hungry.iter().filter(|hungry| known(hungry)).cloned().collect();
            for (service, process, epoch) in hungry {
                if self.is_exhausted() {
                    break;
                }
                self.hungry.remove(&(service.clone(), process, epoch));
                self.deal_more(service, process, epoch, turn);
            }
        }
        for service in self.parked.keys().cloned().collect::<Vec<_>>() {
            self.answer_for(service, may_name, turn);
        }
    }

    /// Answers those who asked for one service, if that can be.
    fn answer_for(&mut self, service: ServiceName, may_name: bool, turn: &mut Turn) {
        let Some(askers) = self.parked.remove(&service) else { return };
        let mut grantor = self.entries.get(&service).and_then(|entry| entry.grantor);
        let all_heard = self.awaiting.is_empty() || planted!(turn.mutant, CallUnheardFree);
        if grantor.is_none() && all_heard && may_name && !self.is_exhausted() {
            grantor = askers.first().map(|process| (*process, self.name(&service, *process, turn)));
        }
        match grantor {
            Some((grantor, epoch)) => {
                for process in askers {
                    turn.say(process, Message::GrantorIs { service: service.clone(), grantor, epoch });
                }
            }
            None if askers.is_empty() => {}
            None => {
                self.parked.insert(service, askers);
            }
        }
    }

    /// Whether somebody waits for an answer.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty() || !self.hungry.is_empty()
    }

    fn name(&mut self, service: &ServiceName, process: ProcessId, turn: &mut Turn) -> Epoch {
        let range = self.deal();
        // Here, and not where more is dealt: no run is long enough for a grantor to ask for more.
        if planted!(turn.mutant, DealTwice) {
            self.next = range.first;
        }
        let epoch = Epoch(range.first);
        let before = self.entries.insert(service.clone(), Entry { grantor: Some((process, epoch)) });
        turn.say(process, Message::Name { service: service.clone(), range, recover: before.is_some() });
        epoch
    }

    fn deal_more(&mut self, service: ServiceName, grantor: ProcessId, epoch: Epoch, turn: &mut Turn) {
        let range = self.deal();
        turn.say(grantor, Message::Tokens { service, epoch, range });
    }

    fn deal(&mut self) -> TokenRange {
        let first = self.next;
        let last = Token::new(first.view(), first.sequence() + (RANGE - 1));
        self.next = Token::new(first.view(), first.sequence() + RANGE);
        TokenRange { first, last }
    }
}

fn first_token(view: ViewNumber) -> Token {
    Token::new(view, 1)
}
