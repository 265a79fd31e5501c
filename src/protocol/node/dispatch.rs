//! Inputs from outside: hints of the gossip, packets of links, notices, and messages of members and
//! strangers.

use super::*;

impl Node {
    pub(super) fn on_hint(&mut self, now: Time, hint: Hint, out: &mut Vec<Output>) {
        match hint {
            Hint::Contact(addr) => {
                if let MemberPhase::Seeking(seeking) = &mut self.phase {
                    seeking.add_contact(addr);
                }
            }
            Hint::Unreachable(process) => {
                #[cfg(elderlock_mutants)]
                if planted!(self.config.mutant, LoseInFlight) {
                    self.links.lose_kept(process);
                }
                let is_news = !self.suspected.contains(&process);
                self.on_suspected(now, process);
                self.on_unreached(now, process, out);
                if is_news {
                    self.try_silent(now, process, out);
                }
            }
            Hint::Refused(process) | Hint::Replaced(process) => {
                self.on_suspected(now, process);
                if let MemberPhase::Leaving { .. } | MemberPhase::Retiring { .. } = self.phase {
                    self.refused.entry(process).or_insert(now);
                }
                match hint {
                    Hint::Refused(_) => self.on_refused(now, process, out),
                    _ => self.on_unreached(now, process, out),
                }
            }
            Hint::Dead(process) => self.on_dead(now, process, out),
            Hint::Connected(process) => {
                let was_broken = self.suspected.remove(&process);
                if let Some(view) = &self.view {
                    self.links.on_connected(now, &self.config.me, view, process, was_broken, out);
                }
            }
        }
    }

    /// A hint of gossip starts only detours: leases decide.
    fn on_suspected(&mut self, now: Time, process: ProcessId) {
        if let Some(view) = &self.view
            && view.contains(process)
            && process != self.config.me.process
        {
            self.suspected.insert(process);
            #[cfg(elderlock_mutants)]
            if planted!(self.config.mutant, FreeOnHint) {
                self.grantors.values_mut().for_each(|grantor| grantor.forget(process));
            }
            self.links.trouble(now, process, true, &view.timing);
        }
    }

    pub(super) fn on_dead(&mut self, now: Time, process: ProcessId, out: &mut Vec<Output>) {
        if process == self.config.me.process || !self.dead.insert(process) {
            return;
        }
        if self.dead.len() > self.config.limits.dead as usize
            && let Some(view) = &self.view
        {
            self.dead.retain(|process| view.contains(*process));
        }
        if self.view.as_ref().is_some_and(|view| view.elder().process == process) {
            self.elder_dead_at = Some(now);
        }
        self.vouch_at = now;
        self.vouch(now, out);
    }

    pub(super) fn on_packet(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        packet: Packet,
        out: &mut Vec<Output>,
    ) {
        if !self.refused.is_empty() {
            self.refused.remove(&from);
        }
        if !self.death_suspicions.is_empty() {
            self.end_doubt(now, from, out);
        }
        match packet {
            Packet::Notice(notice) => self.on_notice(now, from, addr, *notice, out),
            Packet::Linked { view: theirs, seq, ack, message } => {
                if let Some(view) = self.known_sender(now, from, addr, theirs, out) {
                    #[cfg(elderlock_mutants)]
                    if planted!(self.config.mutant, HearTwice) && self.links.has_heard(from, seq) {
                        self.on_message(now, from, message.clone(), out);
                    }
                    let me = &self.config.me;
                    let (first, more) = self.links.on_linked(now, me, &view, from, (seq, ack), message, out);
                    if let Some(message) = first {
                        self.on_message(now, from, message, out);
                    }
                    for message in more {
                        self.on_message(now, from, message, out);
                    }
                }
            }
            Packet::Ack { view: theirs, ack, again } => {
                if let Some(view) = self.known_sender(now, from, addr, theirs, out) {
                    self.links.on_ack(now, &self.config.me, &view, from, ack, again, out);
                }
            }
            Packet::Relay { from: origin, to, troubled, heard, packet } => {
                self.on_relay(now, from, *origin, (to, troubled, heard), *packet, out);
            }
            Packet::VoteSuccessor { voter, me, lineage, notice } => {
                if self.hear_heir(now, voter, lineage, &me) {
                    let speaker = VoteSender { vote: voter, process: me.process, addr: me.addr, heir: Some(*me) };
                    self.on_ballot(now, speaker, *notice, out);
                }
            }
        }
    }

    /// A packet that this member relays, or that came to it through another. A packet on a detour
    /// shows that its sender has trouble with the direct path; so do the answers to it.
    fn on_relay(
        &mut self,
        now: Time,
        relay: ProcessId,
        origin: MemberInfo,
        (to, troubled, heard): (ProcessId, bool, Option<ProcessId>),
        packet: Packet,
        out: &mut Vec<Output>,
    ) {
        if matches!(packet, Packet::Relay { .. }) || origin.process == self.config.me.process {
            return;
        }
        if to == self.config.me.process {
            if let Some(view) = &self.view
                && view.contains(origin.process)
            {
                if troubled {
                    self.links.trouble(now, origin.process, false, &view.timing);
                }
                self.links.on_relayed(now, origin.process, relay, heard, &view.timing);
            }
            self.on_packet(now, origin.process, origin.addr, packet, out);
        } else if let Some(member) = self.view.as_ref().and_then(|view| view.member(to)) {
            let packet = Packet::Relay { from: Box::new(origin), to, troubled, heard, packet: Box::new(packet) };
            out.push(Output::Send { to: member.info.addr, process: Some(to), packet });
        }
    }

    /// The view to use a linked packet with, if its sender is in it and has no newer one.
    fn known_sender(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        theirs: ViewNumber,
        out: &mut Vec<Output>,
    ) -> Option<Arc<View>> {
        let view = self.view.clone()?;
        if theirs > view.number && !planted!(self.config.mutant, ActInOldView) {
            #[cfg(elderlock_mutants)]
            if let Some(elder) = &mut self.elder
                && planted!(self.config.mutant, DealInHeardView)
            {
                elder.registry.deal_in_next();
            }
            if view.contains(from) {
                self.links.note_missed(from);
            }
            self.fetch(now, from, addr, out);
            return None;
        }
        if !view.contains(from) {
            send(addr, from, Notice::FullView(View::clone(&view)), out);
            return None;
        }
        Some(view)
    }

    pub(super) fn fetch(&mut self, now: Time, from: ProcessId, addr: SocketAddr, out: &mut Vec<Output>) {
        let Some(view) = &self.view else { return };
        if self.fetched_at == Time::ZERO || self.fetched_at + view.timing.retry / 8 <= now {
            self.fetched_at = now;
            let fetch = Notice::Fetch { lineage: view.lineage, have: view.number };
            self.reply(now, addr, from, fetch, out);
        }
    }

    pub(super) fn on_notice(
        &mut self,
        now: Time,
        from: ProcessId,
        addr: SocketAddr,
        notice: Notice,
        out: &mut Vec<Output>,
    ) {
        match notice {
            Notice::Hello { me, asked, belonging } => {
                let answer = Notice::HelloReply { me: self.config.me.clone(), asked, belonging: self.belonging(now) };
                send(addr, from, answer, out);
                self.on_heard(now, me, None, belonging, out);
            }
            Notice::HelloReply { me, asked, belonging } => self.on_heard(now, me, Some(asked), belonging, out),
            Notice::Found { attempt, view } => {
                if let MemberPhase::Seeking(seeking) = &mut self.phase {
                    let found = seeking.on_found(&self.config, now, from, attempt, &view, out);
                    self.on_found(now, found, out);
                } else if let Some(view) = &self.view {
                    send(addr, from, Notice::FullView(View::clone(view)), out);
                }
            }
            Notice::FoundOk { attempt } => {
                if let MemberPhase::Seeking(seeking) = &mut self.phase {
                    let found = seeking.on_found_ok(from, attempt);
                    self.on_found(now, found, out);
                }
            }
            Notice::Join { me, heard } => self.on_join(now, from, me, heard, out),
            Notice::Leave => self.on_leave(now, from, out),
            Notice::SuspectDead { process } => self.on_doubt(now, (from, addr), process, out),
            Notice::Alive { process } => self.on_lives(from, process),
            Notice::Vouch { dead } => self.believe(now, from, BTreeSet::from([dead]), out),
            Notice::Beat { view, beat, pulse, confirmed, kept } => {
                self.on_beat(now, from, addr, (view, beat, pulse, confirmed, kept), out);
            }
            Notice::Pulse { view, pulse, renews, again } => {
                self.on_pulse(now, from, addr, (view, pulse, renews, again), out)
            }
            Notice::Install { lineage, instance, change } => {
                let Some(view) = self.ballot_view() else { return };
                if view.lineage == lineage && view.number.next() == instance {
                    let next = view.next(&change);
                    if matches!(self.phase, MemberPhase::Retiring { .. }) {
                        self.end_parting(now, true, out);
                    } else if next.is_sound() && self.vote_successor.is_some() && !next.contains(self.config.me.process)
                    {
                        self.inherit(next, out);
                    } else if next.is_sound() {
                        self.last_change = Some((instance, change));
                        self.install(now, next, Some((from, addr)), out);
                    }
                } else if view.lineage == lineage && view.number.next() < instance {
                    self.fetch(now, from, addr, out);
                }
            }
            Notice::FullView(view) => self.on_view_is(now, (from, addr), view, out),
            Notice::Fetch { lineage, have } => {
                if let Some(view) = self.ballot_view()
                    && view.lineage == lineage
                    && view.number > have
                {
                    self.catch_up(now, addr, from, have, out);
                }
            }
            Notice::StaleVote { voter } => self.on_stale(voter),
            ballot => self.on_ballot(now, VoteSender { vote: from, process: from, addr, heir: None }, ballot, out),
        }
    }

    pub(super) fn on_message(&mut self, now: Time, from: ProcessId, message: Message, out: &mut Vec<Output>) {
        if !is_plain(&message) {
            self.quiet_until = QuietUntil(None); // the step in which it arrives is no short one
        }
        match message {
            Message::FindGrantor { service } => self.with_registry(now, out, |registry, may_name, turn| {
                registry.on_who_grants(from, service, may_name, turn);
            }),
            // A message of an earlier elder does not count: the present elder has asked every
            // member, and a late message must not contradict it.
            Message::GrantorIs { .. }
            | Message::NameGrantor { .. }
            | Message::Tokens { .. }
            | Message::Outbid { .. }
            | Message::SuccessorDeclined { .. }
                if self.view.as_ref().is_none_or(|view| view.elder().process != from)
                    && !planted!(self.config.mutant, HeedFormerElder) => {}
            Message::GrantorIs { service, grantor, epoch } => self.act(now, out, |node, turn| {
                if node.view.as_ref().is_some_and(|view| view.contains(grantor)) {
                    node.send_on_early(&service, grantor, epoch, turn);
                    node.holder.on_grantor(&service, grantor, epoch, turn);
                }
            }),
            Message::NameGrantor { service, range, origin, asked } => {
                self.act(now, out, |node, turn| node.on_name((service, asked), range, origin, turn));
            }
            Message::Become { service, request } => self.with_registry(now, out, |registry, may_name, turn| {
                registry.on_become((from, request), service, may_name, turn);
            }),
            Message::Acts { service, epoch } => self.with_registry(now, out, |registry, _, turn| {
                registry.on_acts(from, &service, epoch, turn);
            }),
            Message::ProposeSuccessor { service, epoch, to } => {
                // It may have been sent before the successor left the view.
                let to = Some(to).filter(|to| self.view.as_ref().is_some_and(|view| view.contains(*to)));
                self.with_registry(now, out, |registry, may_name, turn| {
                    registry.on_yield((from, epoch), service, to, may_name, turn);
                });
            }
            Message::Vacant { service, epoch } => self.with_registry(now, out, |registry, may_name, turn| {
                registry.on_vacant(from, &service, epoch, turn);
                registry.answer(may_name, turn);
            }),
            Message::Decline { service, epoch } => self.with_registry(now, out, |registry, may_name, turn| {
                registry.on_decline(from, &service, epoch, turn);
                registry.answer(may_name, turn);
            }),
            Message::Outbid { service, request, by } => self.act(now, out, |node, turn| {
                // A member that was named before goes on to win, or until it is asked for the
                // table: it is only not named again.
                let goes_on = |grantor: &Grantor| grantor.state() != GrantorState::PassingOn;
                if node.grantors.get(&service).is_some_and(goes_on) {
                    node.holder.on_outbid_while_granting(&service, request, by);
                } else {
                    node.holder.on_outbid(&service, request, by, turn);
                }
            }),
            Message::SuccessorDeclined { service, by } => self.act(now, out, |node, turn| {
                let Some(grantor) = node.grantors.get_mut(&service) else { return };
                if node.relinquishing.contains_key(&service) {
                    grantor.on_declined(by);
                    node.depart_service(&service, turn);
                } else if by != turn.me {
                    // Requests that are still in the table here may have been released there: a new
                    // epoch asks for them.
                    turn.send_elder(Message::FindGrantor { service });
                }
            }),
            Message::RequestTable { service, epoch } => self.act(now, out, |node, turn| {
                node.on_hand(from, service, epoch, turn);
            }),
            Message::TableChunk { service, epoch, objects, holds, waits, last } => self.act(now, out, |node, turn| {
                let Some(view) = node.view.clone() else { return };
                if let Some(grantor) = node.grantors.get_mut(&service)
                    && grantor.epoch() == epoch
                {
                    grantor.on_table(from, objects.into_vec(), (holds, waits), (&view, last), turn);
                    node.after_transfer(&service, turn);
                }
            }),
            Message::NoTable { service, epoch } => self.act(now, out, |node, turn| {
                let Some(view) = node.view.clone() else { return };
                if let Some(grantor) = node.grantors.get_mut(&service)
                    && grantor.epoch() == epoch
                {
                    grantor.on_no_table(from, &view, turn);
                    node.after_transfer(&service, turn);
                }
            }),
            Message::Deposed { service, by, epoch } => {
                self.act(now, out, |node, turn| node.on_deposed(&service, by, epoch, turn));
            }
            Message::ConfirmDestroy { service, request } => {
                self.act(now, out, |node, turn| node.on_settle(from, &service, request, turn));
            }
            Message::DestroyConfirmed { request, .. } => self.holder.on_settled(from, request),
            Message::DestroyUnconfirmed { request, instead, .. } => {
                // The named member may be gone by now: the sender will know better in a while.
                let instead = instead.filter(|by| self.view.as_ref().is_some_and(|view| view.contains(*by)));
                self.act(now, out, |node, turn| node.holder.on_unsettled(from, request, instead, turn));
            }
            Message::Query { service, epoch, request, at } => {
                self.tell_places_to(now, from, out);
                self.act(now, out, |node, turn| {
                    node.on_look(from, (service, epoch), request, &at, turn);
                });
            }
            Message::QueryReply { request, seen, .. } => {
                self.act(now, out, |node, turn| {
                    let view = node.view.clone();
                    let is_there = |process| view.as_ref().is_none_or(|view| view.contains(process));
                    node.holder.on_seen(request, *seen, is_there, turn);
                });
            }
            Message::RequestRevocation { service, request, name, token, says } => self.act(now, out, |node, turn| {
                node.holder.on_ask_back((from, request), &service, (name, token), says, turn);
            }),
            Message::RevocationReply { request, token, heard, .. } => {
                self.act(now, out, |node, turn| node.holder.on_asked_back(from, (request, token), heard, turn));
            }
            Message::MoreTokens { service, epoch, count } => {
                self.with_registry(now, out, |registry, may_name, turn| {
                    registry.on_more_tokens(from, (service, epoch, count), may_name, turn);
                })
            }
            Message::Tokens { service, epoch, range } => self.act(now, out, |node, turn| {
                if let Some(grantor) = node.grantors.get_mut(&service)
                    && grantor.epoch() == epoch
                {
                    grantor.on_tokens(range, turn);
                }
            }),
            Message::Inventory { view } => self.act(now, out, |node, turn| node.on_inventory_wanted(from, view, turn)),
            Message::InventoryReply { view, known, last } => {
                self.with_registry(now, out, |registry, may_name, turn| {
                    registry.on_inventory(from, view, known, last, turn);
                    registry.answer(may_name, turn);
                })
            }
            Message::RequestLock { service, epoch, request, want, owner, only_if_free, revocable, metadata } => self
                .act(now, out, |node, turn| {
                    let asked = Asked { from, request, want, owner, only_if_free, revocable, metadata };
                    node.on_ask(service, epoch, asked, turn);
                }),
            Message::Queued { service, epoch, request, ticket } => {
                self.act(now, out, |node, turn| {
                    node.holder.on_queued(from, &service, epoch, (request, ticket), turn);
                });
            }
            Message::Grant { service, epoch, request, token } => self.act(now, out, |node, turn| {
                node.holder.on_grant(from, &service, epoch, request, token, turn);
            }),
            Message::Refuse { epoch, request, refusal, .. } => {
                self.act(now, out, |node, turn| node.holder.on_refuse(epoch, request, *refusal, turn));
            }
            Message::NotGrantor { service, epoch, request, instead } => self.act(now, out, |node, turn| {
                let is_there = |process| node.view.as_ref().is_some_and(|view| view.contains(process));
                let instead = instead.filter(|(process, _)| is_there(*process));
                node.holder.on_not_grantor(&service, epoch, request, instead, turn);
            }),
            Message::Release { service, request } => self.act(now, out, |node, turn| {
                if let Some(early) = node.early_requests.get_mut(&service)
                    && !planted!(turn.mutant, ForgetEarlyDone)
                {
                    early.retain(|(_, asked)| (asked.from, asked.request) != (from, request));
                }
                if let Some(grantor) = node.grantors.get_mut(&service) {
                    grantor.on_done(from, request, turn);
                }
            }),
            Message::Reduce { service, epoch, request, want, token } => self.act(now, out, |node, turn| {
                // A `Reduce` to an earlier epoch here is contained in a later report.
                if let Some(grantor) = node.grantors.get_mut(&service).filter(|grantor| grantor.epoch() <= epoch) {
                    grantor.on_narrow((from, request), &want, token, turn);
                }
            }),
            Message::Upgrade { service, epoch, request, hold } => self.act(now, out, |node, turn| {
                if let Some(grantor) = node.asked_of(from, (&service, epoch), request, turn) {
                    grantor.on_upgrade(from, request, hold, turn);
                }
            }),
            Message::Upgraded { service, epoch, request, token } => self.act(now, out, |node, turn| {
                node.holder.on_upgraded(&service, epoch, request, token, turn);
            }),
            Message::Write { service, epoch, request, name, edit } => self.act(now, out, |node, turn| {
                if let Some(grantor) = node.asked_of(from, (&service, epoch), request, turn) {
                    grantor.on_write((from, request), &name, &edit, turn);
                }
            }),
            Message::Value { service, epoch, name, content, answers } => self.act(now, out, |node, turn| {
                node.holder.on_value(from, (&service, epoch), (&name, *content), answers, turn);
            }),
            Message::Recover { service, epoch } => self.act(now, out, |node, turn| {
                if node.holder.on_recover(from, &service, epoch, turn) {
                    node.end_grantor_below(&service, from, epoch, turn);
                    node.send_on_early(&service, from, epoch, turn);
                } else if let (by, Some(epoch)) = node.holder.grantor(&service) {
                    turn.send(from, Message::Deposed { service, by, epoch });
                }
            }),
            Message::Report { service, epoch, objects, holds, waits, last } => self.act(now, out, |node, turn| {
                if let Some(grantor) = node.grantors.get_mut(&service)
                    && grantor.epoch() == epoch
                {
                    grantor.on_report(from, objects.into_vec(), (holds, waits), last, turn);
                    node.settle_bids(&service, turn);
                } else {
                    node.send_reported_on(from, &service, epoch, (&holds, &waits), turn);
                }
            }),
            Message::Supersede { service, epoch, request } => self.act(now, out, |node, turn| {
                if node.holder.newest(&service).is_none_or(|newest| newest <= epoch) {
                    node.holder.on_revoke(request, turn);
                }
            }),
        }
    }
}
