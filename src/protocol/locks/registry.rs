//! The elder's map from services to their grantors, and the dealing of tokens.
//!
//! - A service is *free* if its next grantor need not ask any member. For that, every member of the
//!   view in which this elder began has answered or left, and none knew of the service.
//! - `epochs_rise`: ranges are dealt in order within a view (`dealer.rs`), and views only rise.

mod asked_names;
#[cfg(elderlock_mutants)]
mod planted;

use asked_names::AskedNames;

use super::dealer::Dealer;
use crate::protocol::cluster::view::View;
use crate::protocol::id::{Epoch, ProcessId, RequestId, ServiceName, Slot, Token, ViewNumber};
use crate::protocol::message::{ClientMessage, MemberMessage, Origin, QueryReply, RegistryMessage};
use crate::protocol::step_context::StepContext;
use crate::protocol::time::{Time, WallClock};
use crate::protocol::visit_count::touch;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct RegistryEntry {
    /// The youngest named grantor that has not declined or left.
    grantor: Option<(ProcessId, Epoch)>,
    /// The time at which `grantor` began to act; `None`: its table is still on its way.
    since: Option<Time>,
    /// The grantor that was named before `grantor` and may have the table, while no younger one
    /// acts.
    source: Option<(ProcessId, Epoch)>,
    /// The youngest grantor that acted and has not said that it ended. It still grants if all
    /// grantors named later are gone.
    acted: Option<(ProcessId, Epoch)>,
    /// The youngest epoch that other members know of. If its grantor is gone, they trust no earlier
    /// one.
    heard: Option<Epoch>,
    /// The members that were named since a grantor last acted.
    line: BTreeSet<ProcessId>,
    /// The last bid of the youngest named member.
    asked: Option<RequestId>,
    /// Whether the last grantor said that no member holds anything.
    vacant: bool,
}

/// The elder's map.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Registry {
    entries: BTreeMap<ServiceName, RegistryEntry>,
    /// The view in which every member was asked: answers to an earlier question are ignored.
    asked_in: ViewNumber,
    /// Members whose inventory is incomplete.
    awaiting: BTreeSet<ProcessId>,
    /// The members that asked for a service's grantor and cannot be answered yet, by service.
    parked_queries: BTreeMap<ServiceName, BTreeSet<ProcessId>>,
    /// The young turk of each service that waits to be named: the last one that bid, with its last
    /// bid.
    waiting_bids: BTreeMap<ServiceName, (ProcessId, RequestId)>,
    /// The last bid of each young turk that a later bid ended, once the turk was told.
    outbid: BTreeMap<(ServiceName, ProcessId), RequestId>,
    /// Grantors that wait for tokens, with the number that they want: only the latest epoch of each
    /// service and process.
    token_requests: BTreeMap<(ServiceName, ProcessId, Epoch), u32>,
    /// The member that first asked for each name.
    asked_names: AskedNames,
    pub(super) dealer: Dealer,
    /// The first token that this elder could deal: earlier elders dealt the lower ones.
    began: Token,
    /// The time until which ranges wait for the limit of dealing.
    barred_until: Option<Time>,
}

impl RegistryEntry {
    /// The youngest named grantor. If it declined or left: the earlier grantor that still grants.
    fn last(&self) -> Option<(ProcessId, Epoch)> {
        self.grantor.or(self.source).or(self.acted)
    }

    /// The process of the named grantor, if other members know of a younger epoch whose grantor
    /// perhaps never began.
    fn overtaken(&self) -> Option<ProcessId> {
        self.grantor.filter(|(_, epoch)| self.heard > Some(*epoch)).map(|(process, _)| process)
    }

    /// Returns whether a grantor may still act in this epoch.
    fn goes_on(&self, epoch: Option<(ProcessId, Epoch)>) -> bool {
        [self.grantor, self.source, self.acted].contains(&epoch)
    }

    /// Notes that a grantor acts. A grantor that was named later may have said so before.
    fn acts(&mut self, (grantor, epoch): (ProcessId, Epoch)) {
        if self.acted.is_none_or(|(_, known)| known < epoch) {
            self.acted = Some((grantor, epoch));
        }
    }

    /// Forgets processes that are gone.
    fn keep(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        if self.grantor.is_some_and(|(process, _)| !is_there(process)) {
            self.grantor = None;
            self.since = None;
        }
        self.source = self.source.filter(|(process, _)| is_there(*process));
        self.acted = self.acted.filter(|(process, _)| is_there(*process));
    }
}

impl Registry {
    /// The map of a new elder. `ask`: whether there were elders before, so that every member is
    /// asked.
    pub(crate) fn new(
        view: &View,
        ask: bool,
        clocks: (WallClock, WallClock),
        cx: &mut StepContext,
    ) -> Registry {
        let mut awaiting = BTreeSet::new();
        if ask {
            awaiting = view.members.iter().map(|member| member.info.process).collect();
            for &process in &awaiting {
                cx.send(process, MemberMessage::Inventory { view: view.number });
            }
        }
        let dealer = Dealer::new(clocks, view, *cx.limits);
        planted!(=> let dealer = dealer.without_limit(cx.mutant));
        Registry {
            entries: BTreeMap::new(),
            asked_in: view.number,
            awaiting,
            parked_queries: BTreeMap::new(),
            waiting_bids: BTreeMap::new(),
            outbid: BTreeMap::new(),
            token_requests: BTreeMap::new(),
            asked_names: AskedNames::default(),
            dealer,
            began: view.first_token(),
            barred_until: None,
        }
    }

    /// Handles the members' questions and their news of grantors.
    pub(crate) fn on_message(
        &mut self,
        from: ProcessId,
        message: RegistryMessage,
        cx: &mut StepContext,
    ) {
        let may_name = cx.may_name();
        match message {
            RegistryMessage::FindGrantor { service, heard } => {
                self.on_find_grantor(from, service, heard, may_name, cx);
            }
            RegistryMessage::FindService { service, request } => {
                let seen = Box::new(self.find(&service, may_name));
                cx.send(from, ClientMessage::QueryReply { service, request, seen });
            }
            RegistryMessage::Become { service, request } => {
                self.on_become((from, request), service, may_name, cx)
            }
            RegistryMessage::Acts { service, epoch } if cx.is_dealt_epoch(epoch) => {
                self.on_acts(from, &service, epoch, cx);
            }
            RegistryMessage::Acts { .. } => {}
            RegistryMessage::ProposeSuccessor { service, epoch, to } => {
                // The successor may have left the view since the message was sent.
                let to = Some(to).filter(|to| cx.is_there(*to));
                self.on_propose_successor((from, epoch), service, to, may_name, cx);
            }
            RegistryMessage::Vacant { service, epoch } => {
                self.on_vacant(from, &service, epoch, cx);
                self.answer_about(&BTreeSet::from([service]), may_name, cx);
            }
            RegistryMessage::Decline { service, epoch } => {
                self.on_decline(from, &service, epoch, cx);
                self.answer_about(&BTreeSet::from([service]), may_name, cx);
            }
            RegistryMessage::MoreTokens { service, epoch, count } => {
                self.on_more_tokens(from, (service, epoch, count), may_name, cx);
            }
            RegistryMessage::InventoryReply { view, known, last } => {
                self.on_inventory_reply((from, view), known, last, may_name, cx);
            }
        }
    }

    /// Handles a new view of the same elder.
    pub(crate) fn on_view(&mut self, view: &View, departed: &[ProcessId]) {
        self.dealer.on_view(view);
        self.barred_until = None;
        if departed.is_empty() {
            return;
        }
        self.awaiting.retain(|process| view.contains(*process));
        self.token_requests.retain(|(_, process, _), _| view.contains(*process));
        for requesters in self.parked_queries.values_mut() {
            requesters.retain(|process| view.contains(*process));
        }
        self.waiting_bids.retain(|_, (turk, _)| view.contains(*turk));
        self.outbid.retain(|(_, turk), _| view.contains(*turk));
        self.asked_names.on_view(view);
        self.keep(|process| view.contains(process));
    }

    /// Notes that a member left: it grants nothing any more, and is not named again.
    pub(crate) fn on_leave(&mut self, process: ProcessId) {
        for requesters in self.parked_queries.values_mut() {
            requesters.remove(&process);
        }
        self.waiting_bids.retain(|_, (turk, _)| *turk != process);
        self.outbid.retain(|(_, turk), _| *turk != process);
        self.keep(|known| known != process);
    }

    /// Forgets processes that are gone. If a named grantor left before it began, the grantor before
    /// it may lack changes that went to the named one. So that earlier grantor is named once more,
    /// and then asks for them.
    fn keep(&mut self, is_there: impl Fn(ProcessId) -> bool) {
        for (service, entry) in &mut self.entries {
            let is_unbegun = entry.grantor.is_some() && entry.since.is_none();
            entry.keep(&is_there);
            if is_unbegun
                && entry.grantor.is_none()
                && let Some((process, _)) = entry.last()
            {
                self.parked_queries.entry(service.clone()).or_default().insert(process);
            }
        }
    }

    /// Returns whether the view's tokens are used up: the elder then makes a new view.
    pub(crate) fn is_exhausted(&self) -> bool {
        self.dealer.is_exhausted()
    }

    /// Returns whether the view had too few slots.
    pub(crate) fn wants_more_slots(&self) -> bool {
        self.dealer.wants_more_slots()
    }

    /// Returns whether a range may be dealt now. If only time is missing, dealing is tried again
    /// then.
    fn may_deal(&mut self, now: Time) -> bool {
        let may = self.dealer.may_deal(now);
        if let Err(Some(at)) = may {
            self.barred_until = Some(at);
        }
        may.is_ok()
    }

    /// Returns whether ranges waited for the limit of dealing and may now be dealt.
    pub(crate) fn is_open_again(&mut self, now: Time) -> bool {
        self.barred_until.take_if(|at| *at <= now).is_some()
    }

    /// Handles a member's question for the grantor of a service.
    pub(crate) fn on_find_grantor(
        &mut self,
        from: ProcessId,
        service: ServiceName,
        heard: Option<Epoch>,
        may_name: bool,
        cx: &mut StepContext,
    ) {
        if !self.has_room(from, &service, cx) {
            return;
        }
        // The member may have learned of a former elder's grantor after it sent its inventory.
        let heard = heard.filter(|epoch| cx.is_dealt_epoch(*epoch));
        if heard.is_some() && !planted!(cx.mutant, HearOnlyInventories) {
            let entry = self.entries.entry(service.clone()).or_default();
            entry.heard = entry.heard.max(heard);
        }
        self.parked_queries.entry(service.clone()).or_default().insert(from);
        self.answer_for(service, may_name, cx);
    }

    /// Returns whether the registry may store the name that a member asks for. Inventories are
    /// always stored whole: otherwise the elder could name a second grantor beside one that it does
    /// not know.
    fn has_room(&mut self, from: ProcessId, service: &ServiceName, cx: &StepContext) -> bool {
        if self.entries.contains_key(service) {
            return true;
        }
        let most = cx.limits.link.names as usize;
        let Registry { entries, parked_queries, waiting_bids, outbid, asked_names, .. } = self;
        let is_learner =
            cx.view.and_then(|view| view.member(from)).is_none_or(|member| member.learner);
        asked_names.add((from, is_learner), service, most, |vacant| {
            let bids = (vacant.clone(), ProcessId(0))..=(vacant.clone(), ProcessId(u128::MAX));
            let is_free = entries.get(vacant).is_none_or(|entry| entry.vacant)
                && !parked_queries.contains_key(vacant)
                && !waiting_bids.contains_key(vacant)
                && outbid.range(bids).next().is_none();
            if is_free {
                entries.remove(vacant);
            }
            is_free
        })
    }

    /// Returns `Ok` if no member grants the service: then nothing is left of the requests that a
    /// member has given up. Otherwise returns the grantor, if it is known.
    pub(crate) fn confirms_destruction(
        &self,
        service: &ServiceName,
    ) -> Result<(), Option<ProcessId>> {
        if !self.awaiting.is_empty() {
            return Err(None);
        }
        match self.entries.get(service).filter(|entry| !entry.vacant).and_then(RegistryEntry::last)
        {
            Some((process, _)) => Err(Some(process)),
            None => Ok(()),
        }
    }

    /// Answers whether a service exists. It does if a member grants it, or if its grantor was lost
    /// and a member may still hold. Asking changes nothing. The answer is undecided without a
    /// quorum, since another elder may have named a grantor. It is also undecided while a member
    /// that may know the service has not answered.
    fn find(&self, service: &ServiceName, has_quorum: bool) -> QueryReply {
        let is_used = self.entries.get(service).is_some_and(|entry| !entry.vacant);
        match has_quorum && (is_used || self.awaiting.is_empty()) {
            true => QueryReply::Service(is_used),
            false => QueryReply::Undecided,
        }
    }

    /// Handles a member's inventory: the grantors that it hosts, and those that it knows.
    pub(crate) fn on_inventory_reply(
        &mut self,
        (from, asked_in): (ProcessId, ViewNumber),
        known: Vec<(ServiceName, ProcessId, Epoch)>,
        last: bool,
        may_name: bool,
        cx: &mut StepContext,
    ) {
        if asked_in != self.asked_in || !self.awaiting.contains(&from) {
            return;
        }
        let told: BTreeSet<ServiceName> =
            known.iter().map(|(service, ..)| service.clone()).collect();
        for (service, grantor, epoch) in known {
            // Hearsay only shows that the service is in use. The grantor's own member alone says
            // where the grantor is.
            planted!(=> if grantor != from && self.plant_hearsay(&service, cx) { continue });
            if !cx.is_dealt_epoch(epoch) {
                continue;
            }
            let entry = self.entries.entry(service.clone()).or_default();
            entry.heard = entry.heard.max(Some(epoch));
            // A grantor that was named later and has gone may have left its table to a younger one.
            if grantor == from && entry.last().is_none_or(|(_, known)| known < epoch) {
                entry.grantor = Some((grantor, epoch));
                entry.acts((grantor, epoch));
                entry.since = Some(cx.now);
                let key = (service.clone(), grantor, epoch);
                if self.token_requests.contains_key(&key) && self.may_deal(cx.now) {
                    self.feed(key, cx);
                }
            }
            self.park_overtaken(&service);
        }
        if last || planted!(cx.mutant, InventoryEndsEarly) {
            self.awaiting.remove(&from);
        }
        // While answers are missing, only members that ask for the reported services can be
        // answered.
        match self.has_heard_all(cx) {
            true => self.answer(may_name, cx),
            false => self.answer_about(&told, may_name, cx),
        }
    }

    /// Handles a grantor's request for tokens.
    pub(crate) fn on_more_tokens(
        &mut self,
        from: ProcessId,
        (service, epoch, count): (ServiceName, Epoch, u32),
        may_name: bool,
        cx: &mut StepContext,
    ) {
        let is_known =
            self.entries.get(&service).and_then(RegistryEntry::last) == Some((from, epoch));
        // An incomplete inventory may still contain the name, and the grantor asks only once. A
        // member gains nothing by this, since its inventory is stored whole anyway.
        let is_complete =
            !self.awaiting.contains(&from) || planted!(cx.mutant, DropTokensOfInventory);
        if is_complete && !self.has_room(from, &service, cx) {
            return;
        }
        // A process has at most one grantor of a service at a time, and its epochs rise.
        let earliest = (service.clone(), from, Epoch(Token::new(Slot(0), 0)));
        let of_process = |key: &(ServiceName, ProcessId, Epoch)| key.0 == service && key.1 == from;
        let before = self.token_requests.range(earliest..).map(|(key, _)| key).next();
        if let Some(key) = before.filter(|key| of_process(key)).cloned() {
            if key.2 > epoch {
                return;
            }
            self.token_requests.remove(&key);
        }
        let key = (service, from, epoch);
        self.token_requests.insert(key.clone(), count);
        if is_known && may_name && self.may_deal(cx.now) {
            self.feed(key, cx);
        }
    }

    /// Answers every waiting member that can be answered. `may_name`: whether the elder has its
    /// quorum and may name grantors.
    pub(crate) fn answer(&mut self, may_name: bool, cx: &mut StepContext) {
        self.forget_ended_terms();
        if may_name && !self.token_requests.is_empty() {
            let known = |(service, process, epoch): &(ServiceName, ProcessId, Epoch)| {
                self.entries.get(service).and_then(RegistryEntry::last) == Some((*process, *epoch))
            };
            let token_requests: Vec<_> = self
                .token_requests
                .keys()
                .filter(|token_requests| known(token_requests))
                .cloned()
                .collect();
            for key in token_requests {
                if !self.may_deal(cx.now) {
                    break;
                }
                self.feed(key, cx);
            }
        }
        for service in self.parked_queries.keys().inspect(|_| touch()).cloned().collect::<Vec<_>>()
        {
            self.answer_for(service, may_name, cx);
        }
        self.advance_turks(may_name, cx);
    }

    /// Answers the questions about these services only.
    pub(crate) fn answer_about(
        &mut self,
        services: &BTreeSet<ServiceName>,
        may_name: bool,
        cx: &mut StepContext,
    ) {
        for service in services {
            let least = (service.clone(), ProcessId(0), Epoch(Token::new(Slot(0), 0)));
            let of_service =
                self.token_requests.range(least..).take_while(|((of, ..), _)| of == service);
            for key in of_service.map(|(key, _)| key.clone()).collect::<Vec<_>>() {
                touch();
                let entry = self.entries.get(service);
                let epoch = Some((key.1, key.2));
                if self.awaiting.is_empty() && !entry.is_some_and(|entry| entry.goes_on(epoch)) {
                    self.token_requests.remove(&key);
                } else if may_name
                    && entry.and_then(RegistryEntry::last) == epoch
                    && self.may_deal(cx.now)
                {
                    self.feed(key, cx);
                }
            }
        }
        for service in services {
            self.answer_for(service.clone(), may_name, cx);
        }
        for service in services {
            self.advance(service, may_name, cx);
        }
    }

    /// Drops requests for tokens of epochs that are over. While a member's inventory is incomplete,
    /// its epoch may continue.
    fn forget_ended_terms(&mut self) {
        if self.awaiting.is_empty() {
            let entries = &self.entries;
            self.token_requests.retain(|(service, process, epoch), _| {
                entries.get(service).is_some_and(|entry| entry.goes_on(Some((*process, *epoch))))
            });
        }
    }

    /// Answers the members that asked for one service, if possible.
    fn answer_for(&mut self, service: ServiceName, may_name: bool, cx: &mut StepContext) {
        let Some(requesters) = self.parked_queries.remove(&service) else { return };
        let entry = self.entries.get(&service);
        let mut grantor = entry.and_then(|entry| entry.grantor);
        let is_there = |process: &ProcessId| !cx.is_lost(*process);
        let is_believed = entry.is_some_and(|entry| entry.overtaken().is_none())
            && grantor.is_some_and(|(process, _)| is_there(&process));
        if !is_believed && self.may_name_one(may_name, cx) {
            let entry = self.entries.get(&service);
            let turk =
                self.waiting_bids.remove(&service).map(|(turk, request)| (turk, Some(request)));
            let known = entry
                .and_then(RegistryEntry::last)
                .map(|(process, _)| process)
                .filter(|known| requesters.contains(known));
            let named = grantor.map(|(process, _)| process);
            let first =
                named.into_iter().chain(known).chain(requesters.iter().copied()).find(is_there);
            let next = turk.or(first.map(|process| (process, None)));
            grantor =
                next.map(|(process, asked)| (process, self.name(&service, (process, asked), cx)));
        }
        self.park_overtaken(&service);
        match grantor {
            Some((grantor, epoch)) => {
                for process in requesters {
                    cx.send(
                        process,
                        MemberMessage::GrantorIs { service: service.clone(), grantor, epoch },
                    );
                }
            }
            None if requesters.is_empty() => {}
            None => {
                self.parked_queries.insert(service, requesters);
            }
        }
    }

    /// Has the grantor named again as soon as possible if other members trust a younger epoch, as
    /// in `keep`.
    fn park_overtaken(&mut self, service: &ServiceName) {
        let overtaken = self.entries.get(service).and_then(RegistryEntry::overtaken);
        if let Some(process) = overtaken {
            self.parked_queries.entry(service.clone()).or_default().insert(process);
        }
    }

    /// The services that the registry knows.
    #[cfg(test)]
    pub(crate) fn services(&self) -> impl Iterator<Item = &ServiceName> {
        self.entries.keys()
    }

    /// The number of grantors that wait for tokens.
    #[cfg(test)]
    pub(crate) fn token_requests(&self) -> usize {
        self.token_requests.len()
    }

    /// Returns whether a member waits for an answer.
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked_queries.is_empty()
            || !self.token_requests.is_empty()
            || !self.waiting_bids.is_empty()
    }

    /// Returns whether every member has answered, except for those taken to be lost.
    fn has_heard_all(&self, cx: &StepContext) -> bool {
        self.awaiting.iter().all(|process| cx.is_lost(*process))
            || planted!(cx.mutant, CallUnheardFree)
    }

    fn may_name_one(&mut self, may_name: bool, cx: &StepContext) -> bool {
        self.has_heard_all(cx) && may_name && self.may_deal(cx.now)
    }

    /// Names a grantor, even if there is one already.
    fn name(
        &mut self,
        service: &ServiceName,
        (process, asked): (ProcessId, Option<RequestId>),
        cx: &mut StepContext,
    ) -> Epoch {
        let range = self.dealer.deal(cx.now, 0);
        planted!(cx.mutant, DealTwice => self.dealer.deal_again(range));
        let epoch = Epoch(range.first);
        let is_new = !self.entries.contains_key(service);
        let entry = self.entries.entry(service.clone()).or_default();
        let source = entry.last();
        // A lost member that has not answered may grant the service.
        let all_heard = self.awaiting.is_empty() || planted!(cx.mutant, CallLostFree);
        let all_heard = all_heard || planted!(cx.mutant, CallUnheardFree);
        let origin = match source {
            _ if entry.vacant || is_new && all_heard => Origin::Free,
            // A lost grantor would keep the table until its lease ends.
            Some((process, _)) if !cx.is_lost(process) => Origin::Predecessor(process),
            _ => Origin::Everyone,
        };
        if entry.since.is_some() || entry.grantor.is_none() {
            entry.line.clear();
        } else if let (Some((before, _)), Some(request)) = (entry.grantor, entry.asked)
            && before != process
            && asked.is_some()
        {
            self.outbid.insert((service.clone(), before), request);
            cx.send(
                before,
                MemberMessage::Outbid { service: service.clone(), request, by: process },
            );
        }
        entry.line.insert(process);
        *entry = RegistryEntry {
            grantor: Some((process, epoch)),
            since: None,
            source,
            acted: entry.acted,
            heard: None,
            line: std::mem::take(&mut entry.line),
            asked,
            vacant: false,
        };
        cx.send(
            process,
            MemberMessage::NameGrantor { service: service.clone(), range, origin, asked },
        );
        epoch
    }

    /// Handles a bid of a young turk.
    pub(crate) fn on_become(
        &mut self,
        (from, request): (ProcessId, RequestId),
        service: ServiceName,
        may_name: bool,
        cx: &mut StepContext,
    ) {
        // The young turk repeats its bid in each new view. The repeated bid may cross the message
        // that a later bid ended it.
        if self.outbid.get(&(service.clone(), from)).is_some_and(|outbid| request <= *outbid) {
            return;
        }
        if let Some(entry) = self.entries.get_mut(&service)
            && entry.grantor.is_some_and(|(process, _)| process == from)
        {
            entry.asked = entry.asked.max(Some(request));
            // The turk is named already, so its answer is on its way. Only if it waits for the
            // table of a lost member is it named again, and then asks everyone.
            let is_lost = entry.source.is_some_and(|(source, _)| cx.is_lost(source));
            let is_stuck = entry.since.is_none() && is_lost;
            let asked = entry.asked;
            if is_stuck && may_name && self.may_deal(cx.now) {
                self.name(&service, (from, asked), cx);
            }
            return;
        }
        if !self.has_room(from, &service, cx) {
            return;
        }
        let before = self.waiting_bids.insert(service.clone(), (from, request));
        if let Some(bid) = before.filter(|(turk, _)| *turk != from) {
            let (turk, request) = bid;
            self.outbid.insert((service.clone(), turk), request);
            cx.send(turk, MemberMessage::Outbid { service: service.clone(), request, by: from });
            planted!(cx.mutant, NameTheOutbid => self.waiting_bids.insert(service.clone(), bid));
        }
        self.advance(&service, may_name, cx);
    }

    /// Names the young turk of the service, if its time has come.
    fn advance(&mut self, service: &ServiceName, may_name: bool, cx: &mut StepContext) {
        let Some(&(turk, request)) = self.waiting_bids.get(service) else { return };
        let (is_known, is_due) = match self.entries.get(service) {
            Some(RegistryEntry { grantor: Some(_), since: Some(since), .. }) => {
                (true, *since + min_service(cx) <= cx.now)
            }
            // While a table is on its way the chain of transfers grows, but no member joins it
            // twice.
            Some(RegistryEntry { grantor: Some(_), since: None, line, .. }) => {
                (true, !line.contains(&turk))
            }
            _ => (false, true),
        };
        // If the grantor is known, no further answers are needed.
        if !is_due {
            return;
        }
        let may = if is_known {
            may_name && self.may_deal(cx.now)
        } else {
            self.may_name_one(may_name, cx)
        };
        if may {
            self.waiting_bids.remove(service);
            self.name(service, (turk, Some(request)), cx);
        }
    }

    /// Names all young turks whose time has come.
    pub(crate) fn advance_turks(&mut self, may_name: bool, cx: &mut StepContext) {
        for service in self.waiting_bids.keys().cloned().collect::<Vec<_>>() {
            self.advance(&service, may_name, cx);
        }
    }

    /// Returns the time at which the next young turk may be named.
    pub(crate) fn deadline(&self, retry: Duration) -> Option<Time> {
        let due = |service| {
            self.entries
                .get(service)
                .and_then(|entry: &RegistryEntry| entry.since)
                .map(|at| at + retry * 2)
        };
        self.waiting_bids.keys().filter_map(due).min()
    }

    /// Returns the time from which ranges need not wait for the limit of dealing.
    pub(crate) fn opens_at(&self) -> Option<Time> {
        self.barred_until
    }

    /// Notes that a grantor acts.
    pub(crate) fn on_acts(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        let Some(entry) = self.entries.get_mut(service) else { return };
        entry.acts((from, epoch));
        if entry.grantor == Some((from, epoch)) && entry.since.is_none() {
            entry.since = Some(cx.now);
            entry.source = None;
            entry.line.clear();
        }
    }

    /// Handles a leaving grantor's proposal of a successor; `None`: the proposed member is gone. A
    /// young turk that waits has priority.
    pub(crate) fn on_propose_successor(
        &mut self,
        (from, epoch): (ProcessId, Epoch),
        service: ServiceName,
        to: Option<ProcessId>,
        may_name: bool,
        cx: &mut StepContext,
    ) {
        let Some(entry) = self.entries.get(&service) else { return };
        let is_last = entry.last() == Some((from, epoch));
        if is_last && may_name && self.may_deal(cx.now) {
            let turk = self.waiting_bids.remove(&service).filter(|(turk, _)| *turk != from);
            if let Some(next) =
                turk.map(|(turk, request)| (turk, Some(request))).or(to.map(|to| (to, None)))
            {
                self.name(&service, next, cx);
            }
        }
    }

    /// Notes that a grantor ended and that no member holds anything. This counts only if this elder
    /// named the grantor and none since. Otherwise a later grantor may have granted something and
    /// be gone.
    pub(crate) fn on_vacant(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        _turn: &StepContext,
    ) {
        planted!(_turn.mutant, BelieveAnyVacant => return self.plant_vacancy(service));
        if let Some(entry) = self.entries.get_mut(service)
            && entry.grantor == Some((from, epoch))
            && epoch.0 >= self.began
        {
            *entry = RegistryEntry { vacant: true, ..RegistryEntry::default() };
            self.asked_names.note_vacant(service);
        }
    }

    /// Notes that a named member declines, or no longer grants.
    pub(crate) fn on_decline(
        &mut self,
        from: ProcessId,
        service: &ServiceName,
        epoch: Epoch,
        cx: &mut StepContext,
    ) {
        let Some(entry) = self.entries.get_mut(service) else { return };
        let is_other = |known: &(ProcessId, Epoch)| *known != (from, epoch);
        entry.source = entry.source.filter(is_other);
        entry.acted = entry.acted.filter(is_other);
        if entry.grantor == Some((from, epoch)) {
            entry.grantor = None;
            entry.since = None;
            if let Some((source, _)) = entry.last() {
                cx.send(
                    source,
                    MemberMessage::SuccessorDeclined { service: service.clone(), by: from },
                );
            }
        }
    }

    /// Deals tokens to a grantor that wants more. Call it only if ranges may be dealt.
    fn feed(&mut self, key: (ServiceName, ProcessId, Epoch), cx: &mut StepContext) {
        let Some(count) = self.token_requests.remove(&key) else { return };
        let (service, grantor, epoch) = key;
        let range = self.dealer.deal(cx.now, u64::from(count));
        planted!(cx.mutant, DealMoreTwice => self.dealer.deal_again(range));
        cx.send(grantor, MemberMessage::Tokens { service, epoch, range });
    }
}

/// The least time for which a grantor acts before a young turk follows it.
fn min_service(cx: &StepContext) -> Duration {
    cx.timing.retry * 2
}
