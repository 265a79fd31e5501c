//! Planted breaks of a grantor that take more than a word, see `mutant.rs`.

use super::*;
use crate::protocol::content::NumberEdit;
use crate::protocol::id::{Mode, Permits, Value};
use crate::protocol::mutant::ProtocolMutant;

impl Grantor {
    pub(super) fn bend_ask(
        &mut self,
        entry: &RequestSpec,
        free: &mut Result<(), Refusal>,
        turn: &StepContext,
    ) {
        let mode = entry.want.mode();
        let beside = |table: &Table, name: &LockName| match (mode, table.mode_of(name)) {
            (Mode::Share, Some(Mode::Share)) => planted!(turn.mutant, ShareOvertakesLock),
            (Mode::Permits(_), Some(Mode::Permits(_))) => planted!(turn.mutant, PermitsAboveLimit),
            _ => false,
        };
        let name = match (&*free, entry.want.names()) {
            (Err(Refusal::Held(_) | Refusal::Waited(_)), [name]) => name,
            _ => return,
        };
        let is_gated = matches!(&*free, Err(Refusal::Waited(None))) && self.table.is_unqueued(name);
        if is_gated && planted!(turn.mutant, GrantPastSuspension) {
            *free = Ok(());
        }
        if beside(&self.table, name) {
            *free = Ok(());
        }
        if (mode, self.table.mode_of(name)) == (Mode::Lock, Some(Mode::Share))
            && planted!(turn.mutant, LockBesideShares)
        {
            let others: Vec<_> = self.table.holders_of(name).collect();
            others.into_iter().for_each(|other| self.table.release(other));
            *free = Ok(());
        }
    }

    pub(super) fn bend_deadlock(&mut self, from: ProcessId, turn: &StepContext) {
        if planted!(turn.mutant, QueueOwnDeadlock) {
            self.table.plant((from == turn.me).then_some(ProtocolMutant::QueueDeadlock));
        }
    }

    /// A request was queued, and its member was told its position.
    pub(super) fn bend_queue(&mut self, key: (ProcessId, RequestId), turn: &StepContext) {
        if key.0 == turn.me
            && planted!(turn.mutant, ServeOwnFirst)
            && let Some(entry) =
                self.table.entry(key).filter(|entry| entry.want != Want::Suspension).cloned()
        {
            self.table.release(key);
            self.table.wait(key, entry, Ticket::in_front(self.epoch.0, 1));
        }
    }

    /// The want that it goes on with; `None`: it is done.
    pub(super) fn bend_narrow(
        &mut self,
        key: (ProcessId, RequestId),
        want: &Want,
        turn: &mut StepContext,
    ) -> Option<Want> {
        let Some(EntryStatus::Holds(token)) = self.table.place(key) else {
            return Some(want.clone());
        };
        let entry = self.table.entry(key).cloned()?;
        match (&entry.want, want) {
            (Want::Lock(_), Want::Share(_)) if planted!(turn.mutant, DowngradeLetsIn) => {
                self.table.release(key);
                self.grant(turn);
                // If another request got in, that one has the higher token.
                self.table.claim(key, RequestSpec { want: want.clone(), ..entry }, token, turn.now);
                None
            }
            (Want::Permits(_, before), Want::Permits(name, left))
                if planted!(turn.mutant, GiveBackTwice) =>
            {
                let less =
                    Permits::new((2 * left.get()).saturating_sub(before.get()).max(1)).ok()?;
                Some(Want::Permits(name.clone(), less))
            }
            _ => Some(want.clone()),
        }
    }

    /// A bent grantor's result of an edit, in place of the right one.
    pub(super) fn bend_edit(
        &self,
        edit: &Edit,
        content: &Content,
        turn: &StepContext,
    ) -> Option<Edited> {
        let Edit::Step { step: NumberEdit::Add(by), .. } = edit else { return None };
        let number = content.value.as_bytes().try_into().map(i32::from_le_bytes).ok()?;
        let next = number.wrapping_add(*by);
        let value = Value::new(&next.to_le_bytes()).ok()?;
        planted!(turn.mutant, StepWraps).then_some(Edited { value, number: Some(next) })
    }

    pub(super) fn bend_upgrade(&mut self, key: (ProcessId, RequestId), turn: &StepContext) {
        if let Some(Want::Share(name)) = self.table.held_by(key)
            && planted!(turn.mutant, UpgradeBesideOthers)
        {
            let others: Vec<_> =
                self.table.holders_of(name).filter(|other| *other != key).collect();
            others.into_iter().for_each(|other| self.table.release(other));
        }
    }
}

pub(super) fn bend_place(seen: &mut QueryReply, turn: &StepContext) {
    let QueryReply::Place { before, holds, suspension } = seen else { return };
    if planted!(turn.mutant, TellPlaceOneLater) {
        *before += 1;
    }
    if planted!(turn.mutant, TellHoldsOneMore) {
        *holds += 1;
    }
    if planted!(turn.mutant, TellNoSuspension) {
        *suspension = None;
    }
}
