//! Hands each message to its role: the elder's registry, the member, a grantor or the lock client.

use super::table::CopiedEntries;
use super::table_copies::CopyArrival;
use super::*;
use crate::protocol::message::{ClientMessage, GrantorMessage, MemberMessage, Message};

impl Locks {
    /// Hands a message to its role.
    pub(crate) fn on_message(&mut self, from: ProcessId, message: Message, cx: &mut StepContext) {
        match message {
            Message::Registry(message) => {
                if let Some(registry) = &mut self.registry {
                    registry.on_message(from, message, cx);
                }
            }
            Message::Member(message) => self.on_message_of_elder(from, message, cx),
            Message::Grantor(message) => self.on_message_to_grantor(from, message, cx),
            Message::Client(message) => self.on_message_to_client(from, message, cx),
        }
    }

    /// Handles an elder's message about grantors.
    fn on_message_of_elder(
        &mut self,
        from: ProcessId,
        message: MemberMessage,
        cx: &mut StepContext,
    ) {
        // A message of an earlier elder is ignored: the present elder has asked every member, and a
        // late message must not contradict it. Only an earlier elder's request for the inventory is
        // still answered.
        let is_of_elder = cx.view.is_some_and(|view| view.elder().process == from);
        if !is_of_elder
            && !matches!(message, MemberMessage::Inventory { .. })
            && !planted!(cx.mutant, HeedFormerElder)
        {
            return;
        }
        match message {
            MemberMessage::GrantorIs { service, grantor, epoch } => {
                if cx.is_there(grantor) {
                    self.send_on_early(&service, grantor, epoch, cx);
                    self.client.on_grantor_is(&service, grantor, epoch, cx);
                }
            }
            MemberMessage::NameGrantor { service, range, origin, asked } => {
                self.on_name_grantor((service, asked), range, origin, cx);
            }
            MemberMessage::Tokens { service, epoch, range } => {
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.on_tokens(range, cx);
                }
            }
            MemberMessage::Outbid { service, request, by } => {
                // A member that is named already remains named, and may win, until it is asked for
                // the table.
                let goes_on = |grantor: &Grantor| grantor.state() != GrantorState::PassingOn;
                if self.grantors.get(&service).is_some_and(goes_on) {
                    self.client.on_outbid_while_granting(&service, request, by);
                } else {
                    self.client.on_outbid(&service, request, by, cx);
                }
            }
            MemberMessage::SuccessorDeclined { service, by } => {
                self.on_successor_declined(service, by, cx)
            }
            MemberMessage::Inventory { view } => self.on_inventory(from, view, cx),
        }
    }

    /// Handles messages to a grantor: requests, reports and tables.
    fn on_message_to_grantor(
        &mut self,
        from: ProcessId,
        message: GrantorMessage,
        cx: &mut StepContext,
    ) {
        match message {
            GrantorMessage::RequestLock { service, epoch, request, lock, only_if_free, keep } => {
                let asked = ReceivedRequest { from, request, lock, only_if_free, keep };
                self.on_request_lock(service, epoch, asked, cx);
            }
            GrantorMessage::Release { service, request } => {
                self.on_release(from, &service, request, cx)
            }
            GrantorMessage::Reduce { service, epoch, request, want, token } => {
                if let Some(grantor) = self.grantor_up_to(&service, epoch) {
                    grantor.on_reduce((from, request), &want, token, cx);
                }
            }
            GrantorMessage::Upgrade { service, epoch, request, hold } => {
                if let Some(grantor) = self.asked_of(from, (&service, epoch), request, cx) {
                    grantor.on_upgrade(from, request, hold, cx);
                }
            }
            GrantorMessage::Write { service, epoch, request, name, edit } => {
                if let Some(grantor) = self.asked_of(from, (&service, epoch), request, cx) {
                    grantor.on_write((from, request), &name, &edit, cx);
                }
            }
            GrantorMessage::Query { service, epoch, request, at } => {
                self.on_query(from, (service, epoch), request, &at, cx);
            }
            GrantorMessage::ProbeWait { service, request, probe } => {
                if let Some(grantor) = self.grantors.get(&service) {
                    grantor.on_probe(from, request, &probe, cx);
                }
            }
            GrantorMessage::KeepInUse { service, epoch, place, holds } => {
                if let Some(grantor) = self.grantor_up_to(&service, epoch) {
                    grantor.on_keep_in_use((from, place), holds.into_vec(), cx);
                }
            }
            GrantorMessage::ConfirmDestroy { service, request } => {
                self.on_confirm_destroy(from, &service, request, cx)
            }
            message @ GrantorMessage::Report { .. } => self.on_report(from, message, cx),
            GrantorMessage::RequestTable { service, epoch, copy } => {
                self.on_request_table(from, (service, epoch), copy, cx)
            }
            GrantorMessage::TableChunk { service, epoch, objects, holds, waits, last, kept } => {
                let Some(view) = cx.view else { return };
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.note_transferred(kept);
                    grantor.on_table_chunk(
                        from,
                        objects.into_vec(),
                        (holds, waits),
                        (view, last),
                        cx,
                    );
                    // The predecessor did not know of the copy.
                    self.drop_copy(&service, cx);
                    self.after_transfer(&service, cx);
                }
            }
            message @ (GrantorMessage::CopyTable { .. }
            | GrantorMessage::CopyPart { .. }
            | GrantorMessage::NoCopy { .. }
            | GrantorMessage::OfferCopy { .. }
            | GrantorMessage::TableRest { .. }) => self.on_message_of_copy(from, message, cx),
            GrantorMessage::NoTable { service, epoch } => {
                let Some(view) = cx.view else { return };
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.on_no_table(from, view, cx);
                    self.after_transfer(&service, cx);
                }
            }
        }
    }

    /// Handles a chunk of a member's report.
    fn on_report(&mut self, from: ProcessId, message: GrantorMessage, cx: &mut StepContext) {
        let GrantorMessage::Report { service, epoch, objects, holds, waits, last, parts } = message
        else {
            return;
        };
        if parts.is_some() && !last {
            let service = service.clone();
            cx.send(from, ClientMessage::ReportTaken { service, epoch });
        }
        let Some(grantor) = self.grantor_in(&service, epoch) else {
            return self.send_reported_on(from, &service, epoch, (&holds, &waits), cx);
        };
        grantor.on_part_of_report(from, objects.into_vec(), (holds, waits), (last, parts), cx);
        self.answer_bids(&service, cx);
        if from != cx.me && self.client.is_report_awaited() {
            // This member's own report goes on beside those of others. Its steps by the timer would
            // come after theirs.
            self.client.go_on_reporting(cx);
        }
    }

    /// Handles messages about copies of tables.
    fn on_message_of_copy(
        &mut self,
        from: ProcessId,
        message: GrantorMessage,
        cx: &mut StepContext,
    ) {
        match message {
            GrantorMessage::CopyTable { service, epoch, copy, taken } => {
                self.on_copy_table(from, (service, epoch), (copy, taken), cx);
            }
            GrantorMessage::CopyPart {
                service,
                copy,
                part,
                objects,
                holds,
                waits,
                over,
                whole,
            } => {
                let (objects, over) = (objects.into_vec(), over.into_vec());
                let entries = CopiedEntries::arrived(objects, holds, waits, over);
                let arrival = CopyArrival { number: copy, part, entries, is_whole: whole };
                self.on_copy_part(from, service, arrival, cx);
            }
            GrantorMessage::NoCopy { service, copy } => self.on_no_copy(from, &service, copy, cx),
            GrantorMessage::OfferCopy { service, epoch } => {
                self.on_offer_copy(from, &service, epoch, cx);
            }
            GrantorMessage::TableRest { service, epoch, copy, seal, kept } => {
                if let Some(grantor) = self.grantor_in(&service, epoch) {
                    grantor.note_transferred(kept);
                }
                self.on_table_rest(from, (service, epoch), (copy, seal), cx);
            }
            _ => {}
        }
    }

    /// Handles messages of grantors and members to the lock client.
    fn on_message_to_client(
        &mut self,
        from: ProcessId,
        message: ClientMessage,
        cx: &mut StepContext,
    ) {
        let view = cx.view;
        let is_known = |process: ProcessId| view.is_none_or(|view| view.contains(process));
        match message {
            ClientMessage::Grant { service, epoch, request, token, kept } => {
                self.client.on_grant(from, &service, epoch, request, token, cx);
                self.client.keep(&service, epoch, request, (token, kept), cx);
                self.client.follow_load((from, &service, epoch), request, (token, kept), cx);
            }
            ClientMessage::Recall { service, request } => {
                self.client.on_recall(from, &service, request, cx);
            }
            ClientMessage::ReportTaken { service, epoch } => {
                self.begin_background(cx);
                self.client.on_report_taken(&service, (from, epoch));
            }
            ClientMessage::Queued { service, epoch, request, ticket } => {
                self.client.on_queued(from, &service, epoch, (request, ticket), cx);
            }
            ClientMessage::Refuse { epoch, request, refusal, .. } => {
                self.client.on_refuse(epoch, request, *refusal, cx)
            }
            ClientMessage::NotGrantor { service, epoch, request, instead } => {
                let instead = instead
                    .filter(|(process, newer)| cx.is_there(*process) && cx.is_dealt_epoch(*newer));
                self.client.on_not_grantor(&service, epoch, request, instead, cx);
            }
            ClientMessage::Upgraded { service, epoch, request, token } => {
                self.client.on_upgraded(&service, epoch, request, token, cx);
            }
            ClientMessage::Value { service, epoch, name, content, answers } => {
                self.client.on_value(from, (&service, epoch), (&name, *content), answers, cx);
            }
            ClientMessage::QueryReply { request, seen, .. } => {
                self.client.on_query_reply(request, *seen, is_known, cx)
            }
            // The elder took this member to be lost, but the grantor here still acts. It has the
            // whole table, so no other member's report is needed.
            ClientMessage::Recover { service, epoch, .. } if self.acts_below(&service, epoch) => {
                self.on_request_table(from, (service, epoch), None, cx);
            }
            ClientMessage::Recover { service, epoch, by_part } => {
                self.on_recover(from, service, (epoch, by_part), cx);
            }
            ClientMessage::Supersede { service, epoch, request } => {
                if self.client.newest(&service).is_none_or(|newest| newest <= epoch) {
                    self.client.on_supersede(request, cx);
                }
            }
            ClientMessage::Deposed { service, by, epoch } => {
                self.on_deposed(&service, by, epoch, cx)
            }
            ClientMessage::DestroyConfirmed { request, .. } => {
                self.client.on_destroy_confirmed(from, request)
            }
            ClientMessage::DestroyUnconfirmed { request, instead, .. } => {
                // The member named instead may be gone already. The sender will learn that.
                let instead = instead.filter(|by| cx.is_there(*by));
                self.client.on_destroy_unconfirmed(from, request, instead, cx);
            }
            ClientMessage::RequestRevocation { service, request, hold, token, demand } => {
                self.client.on_request_revocation(
                    (from, request),
                    &service,
                    (hold, token),
                    demand,
                    cx,
                );
            }
            ClientMessage::AskHolder { service, request, hold, token } => {
                self.client.on_ask_holder((from, request), service, (hold, token), cx);
            }
            ClientMessage::HolderReply { request, state, .. } => {
                self.client.on_holder_reply(from, request, *state, cx);
            }
            ClientMessage::ProbeHold { service, hold, token, probe } => {
                self.client.on_probe(&service, (hold, token), *probe, cx);
            }
            ClientMessage::RevocationReply { request, token, heard, .. } => {
                self.client.on_revocation_reply(from, (request, token), heard, cx);
            }
        }
    }

    /// Handles a new grantor's question for the holds and waits of this member.
    fn on_recover(
        &mut self,
        from: ProcessId,
        service: ServiceName,
        (epoch, by_part): (Epoch, bool),
        cx: &mut StepContext,
    ) {
        self.begin_background(cx);
        if self.client.on_recover(from, &service, (epoch, by_part), cx) {
            self.end_grantor_below(&service, from, epoch, cx);
            self.send_on_early(&service, from, epoch, cx);
        } else if let (by, Some(epoch)) = self.client.grantor(&service) {
            cx.send(from, ClientMessage::Deposed { service, by, epoch });
        }
    }
}
