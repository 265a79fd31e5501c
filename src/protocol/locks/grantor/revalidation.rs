//! After a transfer the grantor already grants while it asks each member in its table for a report.
//! The reports contain the changes that were on their way to the predecessor.

use super::early_waits::LeftOutWaits;
use super::*;

impl Grantor {
    /// Asks members for their present holds and waits: those with entries in the transferred table,
    /// and those that had not answered an earlier recovery.
    pub(super) fn revalidate(&mut self, cx: &mut StepContext) {
        planted!(cx.mutant, SkipRevalidation => return);
        let mut asked: BTreeSet<ProcessId> = self.table.shares().into_keys().collect();
        asked.extend(self.revalidations.keys());
        for process in asked.difference(&self.departed).copied() {
            let (service, epoch) = (self.service.clone(), self.epoch);
            cx.send(process, ClientMessage::Recover { service, epoch, by_part: false });
            self.revalidations.insert(process, RevalidationAnswers::default());
        }
    }

    /// Notes whether members may keep holds of the transferred table.
    pub(crate) fn note_transferred(&mut self, kept: bool) {
        self.kept.are_transferred |= kept;
    }

    /// Returns whether members may keep some of the holds of the table.
    pub(super) fn may_have_kept(&self) -> bool {
        let is_reported = self.is_acting() && self.revalidations.is_empty();
        self.kept.is_in_use() || self.kept.are_transferred && !is_reported
    }

    /// Returns whether an answer may tell of the place of a kept lock. The predecessor may have
    /// granted a plain hold to be kept, and the table does not say so. Then only the report of the
    /// holder's member tells which request has the lock.
    pub(super) fn may_tell_of_place(&self, seen: &QueryReply, _cx: &StepContext) -> bool {
        if !self.kept.are_transferred
            || self.revalidations.is_empty()
            || planted!(_cx.mutant, TellUnreportedPlace)
        {
            return false;
        }
        seen.holders().any(|holder| {
            let is_unreported = self.revalidations.contains_key(&holder.process);
            is_unreported && !self.is_own(holder.token) && holder.may_be_place()
        })
    }

    /// Handles a member's answer to the revalidation.
    pub(super) fn on_revalidation_report(
        &mut self,
        from: ProcessId,
        objects: Vec<(LockName, Content)>,
        (holds, waits): (Vec<HoldReport>, Vec<WaitReport>),
        last: bool,
        cx: &mut StepContext,
    ) {
        let Some(mut answers) = self.revalidations.remove(&from) else { return };
        let most = cx.limits.member_bytes();
        planted!(=> let most = planted::most_reported(most, cx));
        let told =
            holds.iter().map(|hold| hold.request).chain(waits.iter().map(|wait| wait.request));
        told.clone().for_each(|request| answers.note_reported(request, most));
        let highest = told.max();
        for (name, content) in objects {
            // The member may have refused the predecessor's last content, because the predecessor's
            // epoch was over for that member.
            let differs = |known: &Content| {
                (known.version, known.maybe_stale) != (content.version, content.maybe_stale)
            };
            if self.table.content(&name).is_some_and(differs) {
                self.tell_value(from, &name, None, cx);
            }
        }
        for hold in holds {
            let key = (from, hold.request);
            // A hold with a token of this epoch is newer than the report: its member will get that
            // change.
            let status = self.table.entry_status(key);
            if matches!(status, Some(EntryStatus::Holds(token)) if !self.is_own(token)) {
                self.table.reduce(key, &hold.lock.want, hold.token);
            }
            if !matches!(self.table.entry_status(key), Some(EntryStatus::Holds(_))) {
                // The predecessor removed the hold because a hold with a higher token excluded it.
                self.table.release(key);
                let (service, epoch, request) = (self.service.clone(), self.epoch, hold.request);
                cx.send(from, ClientMessage::Supersede { service, epoch, request });
            }
        }
        // A report lists requests in their order, so a missing request before the highest one has
        // ended. So no part ends the requests of a whole report. Such requests end before the
        // report's waits are queued: an ended hold lets no request of its owner pass a suspension.
        if answers.tells_ends(most) || planted!(cx.mutant, EndUnnoted) {
            let rest = self.table.requests_from(from, answers.ended.unwrap_or(RequestId(0)));
            let told = rest.take_while(|request| last || Some(*request) < highest);
            let over: Vec<RequestId> =
                told.filter(|request| !answers.reported.contains(request)).collect();
            for request in over {
                self.table.release((from, request));
            }
            answers.note_ended(highest);
        }
        let mut left_out = LeftOutWaits::default();
        for wait in waits {
            let key = (from, wait.request);
            match self.table.entry_status(key) {
                Some(EntryStatus::Holds(token)) => self.tell_grant(key, token, cx),
                Some(EntryStatus::Waits(ticket)) if wait.ticket.is_none() => {
                    self.tell_queued(key, ticket, cx)
                }
                Some(EntryStatus::Waits(_)) => {}
                None if self.has_room(from, cx) => self.enter_wait(key, wait, cx),
                None => left_out.add(wait.request),
            }
        }
        self.send_waits_on(from, left_out, cx);
        if !last {
            self.revalidations.insert(from, answers);
        }
        self.grant(cx);
    }
}
