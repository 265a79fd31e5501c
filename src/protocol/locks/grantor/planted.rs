//! Planted breaks of a grantor, see `mutant.rs`.

use super::*;
use crate::protocol::content::NumberEdit;
use crate::protocol::id::{Metadata, Mode, Permits, Value};
use crate::protocol::message::LockRequest;
use crate::protocol::mutant::ProtocolMutant;
use std::time::Duration;

/// The members that a recovery waits for.
pub(super) fn awaiting(mut awaiting: BTreeSet<ProcessId>, cx: &StepContext) -> BTreeSet<ProcessId> {
    if planted!(cx.mutant, SkipOneInRecovery) {
        awaiting.pop_last();
    }
    awaiting
}

/// Waits for living members, but not for ghosts.
pub(super) fn await_no_ghosts(awaiting: &mut BTreeMap<ProcessId, u16>, view: &View) {
    awaiting.retain(|process, _| view.living().any(|member| member.info.process == *process));
}

/// A hold from a transferred table.
pub(super) fn taken_over(hold: HoldReport, cx: &StepContext) -> HoldReport {
    let is_new = planted!(cx.mutant, TakeOverAsNew);
    HoldReport { held_for: if is_new { Duration::ZERO } else { hold.held_for }, ..hold }
}

/// The limit for the bytes of a report's waits.
pub(super) fn most_of_waits(most: usize, cx: &StepContext) -> usize {
    if planted!(cx.mutant, KeepAllWaits) { usize::MAX } else { most }
}

/// The limit for the bytes of the request numbers in a revalidation answer.
pub(super) fn most_reported(most: usize, cx: &StepContext) -> usize {
    if planted!(cx.mutant, NoteAllReported) { usize::MAX } else { most }
}

/// The endings that a copy of the table hears of.
pub(super) fn copied_endings(
    over: Vec<(ProcessId, RequestId)>,
    cx: &StepContext,
) -> Vec<(ProcessId, RequestId)> {
    if planted!(cx.mutant, ForgetCopiedEndings) { Vec::new() } else { over }
}

/// The limit for the bytes of one member's requests in a received table.
pub(super) fn most_of_table(most: usize, cx: &StepContext) -> usize {
    if planted!(cx.mutant, TakeAnyTable) { usize::MAX } else { most }
}

/// Reverses the reported waits and removes their positions.
pub(super) fn lose_positions(waits: &mut [(ProcessId, WaitReport)]) {
    waits.reverse();
    waits.iter_mut().for_each(|(_, wait)| wait.ticket = None);
}

/// Removes the positions of the waits that this member reported.
pub(super) fn lose_positions_of(me: ProcessId, waits: &mut [(ProcessId, WaitReport)]) {
    let own = waits.iter_mut().filter(|(process, _)| *process == me);
    own.for_each(|(_, wait)| wait.ticket = None);
}

/// The number of parts that every member has reported.
pub(super) fn complete(
    complete: u16,
    awaiting: &BTreeMap<ProcessId, u16>,
    cx: &StepContext,
) -> u16 {
    let begun = awaiting.values().filter(|parts| **parts > 0).min();
    match begun {
        Some(parts) if planted!(cx.mutant, OpenBeforeSilentMembers) => *parts,
        _ => complete,
    }
}

/// The tokens of a new grantor.
pub(super) fn tokens(
    mut tokens: TokenPool,
    origin: Origin,
    view: &View,
    cx: &StepContext,
) -> TokenPool {
    if origin != Origin::Free
        && planted!(cx.mutant, ReuseTokens)
        && let Some(range) = tokens.ranges.front_mut()
    {
        range.first = Token::new(view.lineage.founded, 1);
    }
    tokens
}

impl Grantor {
    /// Returns whether the member has room, by the present values of its objects.
    pub(super) fn has_room_now(&self, process: ProcessId, cx: &StepContext) -> bool {
        self.table.present_bytes_of(process) < cx.limits.member_bytes()
    }

    /// The holds that stand in for a kept lock.
    pub(super) fn plant_replace(
        &self,
        key: (ProcessId, RequestId),
        mut holds: Vec<HoldReport>,
        cx: &StepContext,
    ) -> Vec<HoldReport> {
        if let Some(EntryStatus::Holds(token)) = self.table.entry_status(key)
            && cx.mutant == Some(ProtocolMutant::KeepTokenOfPlace)
        {
            holds.iter_mut().for_each(|hold| hold.token = token);
        }
        if cx.mutant == Some(ProtocolMutant::ReplaceByOneShare) {
            holds.truncate(1);
        }
        holds
    }

    /// Acts with an empty table, without waiting for answers.
    pub(super) fn begin_empty(&mut self, cx: &mut StepContext) {
        let early = self.phase.early_mut().map(std::mem::take).unwrap_or_default();
        self.phase = GrantorPhase::Acting;
        self.begin(early, false, cx);
    }

    /// A request, and whether it can be granted.
    pub(super) fn plant_ask(
        &mut self,
        mut entry: LockRequest,
        free: Result<(), Refusal>,
        cx: &StepContext,
    ) -> (LockRequest, Result<(), Refusal>) {
        let is_suspension = entry.want == Want::Suspension;
        if planted!(cx.mutant, TearBatch)
            && let [first, _, ..] = entry.want.names()
        {
            entry.want = Want::Lock(first.clone());
        }
        let is_passed = match &free {
            Ok(()) => return (entry, free),
            Err(_) if is_suspension => {
                planted!(cx.mutant, SuspendBesideHolds) && !self.table.is_suspended()
            }
            Err(Refusal::Held(holder)) if holder.name.is_none() => {
                planted!(cx.mutant, LockThoughSuspended) || self.plant_grant(&entry, &free, cx)
            }
            Err(_) => self.plant_grant(&entry, &free, cx),
        };
        (entry, if is_passed { Ok(()) } else { free })
    }

    /// Returns whether a lock that is not free is granted nevertheless.
    fn plant_grant(
        &mut self,
        entry: &LockRequest,
        free: &Result<(), Refusal>,
        cx: &StepContext,
    ) -> bool {
        let mode = entry.want.mode();
        let name = match (free, entry.want.names()) {
            (Err(Refusal::Held(_) | Refusal::Waited(_)), [name]) => name,
            _ => return false,
        };
        let is_gated = matches!(free, Err(Refusal::Waited(None))) && self.table.is_unqueued(name);
        let held = self.table.mode_of(name);
        let is_beside = match (mode, held) {
            (Mode::Share, Some(Mode::Share)) => planted!(cx.mutant, ShareOvertakesLock),
            (Mode::Permits(_), Some(Mode::Permits(_))) => planted!(cx.mutant, PermitsAboveLimit),
            _ => false,
        };
        let is_upgrade = (mode, held) == (Mode::Lock, Some(Mode::Share))
            && planted!(cx.mutant, LockBesideShares);
        if is_upgrade {
            let others: Vec<_> = self.table.holders_of(name).collect();
            others.into_iter().for_each(|other| self.table.release(other));
        }
        is_gated && planted!(cx.mutant, GrantPastSuspension) || is_beside || is_upgrade
    }

    /// Releases all requests of a process.
    pub(crate) fn free_all_of(&mut self, process: ProcessId) {
        self.table.end_some(process, usize::MAX);
    }

    /// Releases all requests of ghosts.
    pub(super) fn free_ghosts(&mut self, view: &View) {
        for member in view.members.iter().filter(|member| member.ghost) {
            self.free_all_of(member.info.process);
        }
    }

    /// Serves the requests that arrived during the recovery.
    pub(super) fn serve_parked(&mut self, cx: &mut StepContext) {
        let Some(early) = self.phase.early_mut() else { return };
        for asked in std::mem::take(&mut early.parked) {
            self.on_request_lock(asked, cx);
        }
    }

    pub(super) fn plant_deadlock(&mut self, from: ProcessId, cx: &StepContext) {
        if planted!(cx.mutant, QueueOwnDeadlock) {
            self.table.plant((from == cx.me).then_some(ProtocolMutant::QueueDeadlock));
        }
    }

    /// Moves a request to the front after its member was told its position.
    pub(super) fn plant_queue(&mut self, key: (ProcessId, RequestId), cx: &StepContext) {
        if key.0 == cx.me
            && planted!(cx.mutant, ServeOwnFirst)
            && let Some(entry) =
                self.table.entry(key).filter(|entry| entry.want != Want::Suspension).cloned()
        {
            self.table.release(key);
            self.table.wait(key, entry, Ticket::in_front(self.epoch.0, 1), cx.now);
        }
    }

    /// The want that the reduction continues with; `None`: nothing is left to do.
    pub(super) fn plant_reduce(
        &mut self,
        key: (ProcessId, RequestId),
        want: &Want,
        cx: &mut StepContext,
    ) -> Option<Want> {
        let Some(EntryStatus::Holds(token)) = self.table.entry_status(key) else {
            return Some(want.clone());
        };
        let entry = self.table.entry(key).cloned()?;
        match (&entry.want, want) {
            (Want::Lock(_), Want::Share(_)) if planted!(cx.mutant, DowngradeLetsIn) => {
                self.table.release(key);
                self.grant(cx);
                // A request that was granted meanwhile has the higher token.
                self.table.enter_reported(
                    key,
                    LockRequest { want: want.clone(), ..entry },
                    token,
                    cx.now,
                );
                None
            }
            (Want::Permits(_, before), Want::Permits(name, left))
                if planted!(cx.mutant, GiveBackTwice) =>
            {
                let less =
                    Permits::new((2 * left.get()).saturating_sub(before.get()).max(1)).ok()?;
                Some(Want::Permits(name.clone(), less))
            }
            _ => Some(want.clone()),
        }
    }

    /// The token of an upgraded hold.
    pub(super) fn plant_token(
        &self,
        key: (ProcessId, RequestId),
        token: Token,
        cx: &StepContext,
    ) -> Token {
        match self.table.entry_status(key) {
            Some(EntryStatus::Holds(before)) if planted!(cx.mutant, UpgradeWithOldToken) => before,
            _ => token,
        }
    }

    /// Returns whether only the writer is told of a value.
    pub(super) fn plant_silence(&self, cx: &StepContext) -> bool {
        self.is_acting() && planted!(cx.mutant, TellWriterOnly)
    }

    pub(super) fn plant_upgrade(&mut self, key: (ProcessId, RequestId), cx: &StepContext) {
        if let Some(Want::Share(name)) = self.table.held_by(key)
            && planted!(cx.mutant, UpgradeBesideOthers)
        {
            let others: Vec<_> =
                self.table.holders_of(name).filter(|other| *other != key).collect();
            others.into_iter().for_each(|other| self.table.release(other));
        }
    }
}

/// The result of an edit, in place of the true one.
pub(super) fn edit(edit: &Edit, content: &Content, cx: &StepContext) -> Option<Edited> {
    let Edit::Step { step: NumberEdit::Add(by), .. } = edit else { return None };
    let number = content.value.as_bytes().try_into().map(i32::from_le_bytes).ok()?;
    let next = number.wrapping_add(*by);
    let value = Value::new(&next.to_le_bytes()).ok()?;
    planted!(cx.mutant, StepWraps).then_some(Edited { value, number: Some(next) })
}

/// The answer to a query.
pub(super) fn reply(mut seen: QueryReply, cx: &StepContext) -> QueryReply {
    match &mut seen {
        QueryReply::Position { before, holds, suspension } => {
            *before += u64::from(planted!(cx.mutant, TellPositionOneLater));
            *holds += u64::from(planted!(cx.mutant, TellHoldsOneMore));
            if planted!(cx.mutant, TellNoSuspension) {
                *suspension = None;
            }
        }
        QueryReply::Lock { waiters, .. } | QueryReply::Waiting { waiters, .. } => {
            if planted!(cx.mutant, SeeWaitersBackwards) {
                waiters.reverse();
            }
        }
        QueryReply::Blockers { holds, .. } if planted!(cx.mutant, TellFirstName) => {
            let first = holds.first().and_then(|hold| hold.holder.name.clone());
            holds.iter_mut().for_each(|hold| hold.holder.name.clone_from(&first));
        }
        _ => {}
    }
    seen
}

/// The holds and the waits of a transferred table.
type Entries = (Vec<(ProcessId, HoldReport)>, Vec<(ProcessId, WaitReport)>);

/// The entries that a transfer sends.
pub(super) fn transfer(
    mut holds: Vec<(ProcessId, HoldReport)>,
    mut waits: Vec<(ProcessId, WaitReport)>,
    cx: &StepContext,
) -> Entries {
    if planted!(cx.mutant, TransferNoWaits) {
        waits.clear();
    }
    if planted!(cx.mutant, TransferOneHoldLess) {
        holds.pop();
    }
    if planted!(cx.mutant, TransferNoOpens) {
        holds.retain(|(_, hold)| !hold.lock.want.opens());
    }
    if planted!(cx.mutant, TransferNoPositions) {
        let last = waits.last().and_then(|(_, wait)| wait.ticket);
        waits.iter_mut().for_each(|(_, wait)| wait.ticket = last);
    }
    if planted!(cx.mutant, TransferNoMetadata) {
        holds.iter_mut().for_each(|(_, hold)| hold.lock.metadata = Metadata::default());
        waits.iter_mut().for_each(|(_, wait)| wait.lock.metadata = Metadata::default());
    }
    (holds, waits)
}
