//! `what_is_seen_is_so`: a grantor's statements about holds and waits are true when it makes them.
//! Each listed holder was granted that lock with that token, says the same of itself, and has not
//! held for longer than it wanted to. Of the members that believe in the lock, none is left out.
//! Each hold that is named as a blocker is checked in the same way. A wait that a holder's member
//! lists is a request of the hold's owner. Each listed waiter waits, in the order of the tickets. A
//! told position names as many requests and holds before it as there are, and the suspension that
//! it waits for.
//!
//! A grantor may not have heard yet that a hold is over. So a listed holder need not hold any more.
//! The check comes after the step in which the grantor answers, and only for a grantor with a
//! running lease. A grantor that is cut off may tell of a grant that its client never heard of.
//! Completeness is demanded inside the clock bound, of members of the grantor's view that believed
//! before. Waiters are known by their requests' metadata; waiters with equal metadata are not
//! checked.

use super::{Count, GrantorRecord, Invariant, Verdict, stretched};
use crate::history::{Ask, Call, ClientRequest, Key, lock_name};
use crate::world::{Observation, World};
use elderlock::protocol::ClientMessage::Grant;
use elderlock::protocol::{
    ClientMessage, Event, HoldReport, HoldState, HolderInfo, LockName, Message, Mode, Outcome,
    OwnerId, Packet, ProcessId, Query, QueryReply, RequestId, Ticket, WaitReport, WaiterInfo, Want,
};
use std::collections::BTreeSet;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct WhatIsSeenIsSo {
    /// The answers of this step, by request.
    told: Vec<(Ask, QueryReply)>,
    /// Requests with an answer that has been sent and has not arrived: it may be sent again.
    on_its_way: BTreeSet<(ProcessId, RequestId)>,
    /// Something was granted in this step.
    grants: bool,
    /// The member whose lease runs again since this step.
    resumed: Option<usize>,
    lock: Option<Key>,
    premises: Count,
}

impl WhatIsSeenIsSo {
    fn check(&mut self, world: &World, site: usize, ask: Ask, seen: &QueryReply) -> Verdict {
        let call = world.call(ask);
        let ClientRequest::Query(at) = &call.request_kind else { return Ok(()) };
        let service = &call.service;
        match (at, seen) {
            (Query::Lock(name), QueryReply::Lock { holders, waiters, .. }) => {
                let key = (service.clone(), Some(name.clone()));
                self.check_holders(world, site, std::slice::from_ref(&key), holders)?;
                self.check_waiters(world, site, &key, waiters)
            }
            (Query::Suspension, QueryReply::Lock { holders, waiters, .. }) => {
                let key = (service.clone(), None);
                self.check_holders(world, site, std::slice::from_ref(&key), holders)?;
                self.check_waiters(world, site, &key, waiters)
            }
            (Query::Position(request), QueryReply::Position { before, holds, suspension }) => self
                .check_position(
                    world,
                    site,
                    (ask, *request),
                    (*before, *holds, suspension.as_ref()),
                ),
            (Query::Waiting(name, None), QueryReply::Waiting { waiters, .. }) => {
                self.check_waiters(world, site, &(service.clone(), Some(name.clone())), waiters)
            }
            (Query::Held(None), QueryReply::Held { holders, last }) => {
                let is_told = |(of, name): &Key| *last && of == service && name.is_some();
                let all: Vec<Key> = world.history().keys().into_iter().filter(is_told).collect();
                self.check_holders(world, site, &all, holders)
            }
            (Query::Blockers(_), QueryReply::Blockers { holds, .. }) => {
                let holders: Vec<HolderInfo> =
                    holds.iter().map(|hold| hold.holder.clone()).collect();
                self.check_listed(world, site, &holders)
            }
            _ => Ok(()),
        }
    }

    /// Checks the waits that a holder's member lists: its owner made these requests, and has not
    /// withdrawn them before the question.
    fn check_waits(&mut self, world: &World, ask: Ask, state: &HoldState) -> Verdict {
        let (HoldState::Held { waits, .. }, ClientRequest::AskHolder(holder)) =
            (state, &world.call(ask).request_kind)
        else {
            return Ok(());
        };
        for wait in waits {
            self.premises += 1;
            let made = world.history().find(holder.process, wait.request).map(|at| world.call(at));
            let is_so = made.is_some_and(|call| {
                let was_there = !call.released || call.released_at >= world.call(ask).asked;
                let name = call.keys.first().and_then(|(_, name)| name.clone());
                call.service == wait.service
                    && (name == wait.name || matches!(call.request_kind, ClientRequest::Upgrade(_)))
                    && (holder.owner == 0 || call.owner == OwnerId(holder.owner))
                    && was_there
            });
            if !is_so {
                let what = format!("the owner of {holder:?} is said to wait: {wait:?}");
                return Err(format!("{what}, and it is {made:?}"));
            }
        }
        Ok(())
    }

    /// Checks the listed holders.
    fn check_listed(&mut self, world: &World, site: usize, holders: &[HolderInfo]) -> Verdict {
        for holder in holders {
            self.premises += 1;
            let is_it = |(key, token): (&Key, _)| key.1 == holder.name && token == holder.token;
            // The grant may be on its way still. Beyond the clock bound a former grantor may grant
            // beside the next.
            let fits =
                world.history().calls.iter().filter(|call| call.process == holder.process).any(
                    |call| {
                        let wants = call.keys.iter().any(|(_, name)| *name == holder.name);
                        // A share may be the lock before its client hears it.
                        let is_pending = call.pending_mode.is_some();
                        let granted = !world.bounded
                            || is_pending
                            || call.token().is_none()
                            || call.tokens().any(is_it);
                        let lasted = !world.bounded
                            || holder.held_for <= stretched(world, world.now - call.asked);
                        wants && granted && lasted && call.metadata == holder.metadata
                    },
                );
            if !fits {
                return Err(format!("m{site} reports a holder that does not hold: {holder:?}"));
            }
        }
        Ok(())
    }

    /// Checks the listed holders. No other member may believe in any of these locks.
    fn check_holders(
        &mut self,
        world: &World,
        site: usize,
        keys: &[Key],
        holders: &[HolderInfo],
    ) -> Verdict {
        self.check_listed(world, site, holders)?;
        if !world.bounded {
            return Ok(());
        }
        let Some(view) = world.sites[site].node.as_ref().and_then(|node| node.view()) else {
            return Ok(());
        };
        for key in keys {
            // A list that is full may leave holders out.
            let listed = holders.iter().filter(|holder| holder.name == key.1).count();
            if listed >= world.common.limits.listed as usize {
                continue;
            }
            for ask in world.history().claims_of(key).filter(|ask| world.fence(*ask).is_some()) {
                let call = world.call(ask);
                if !view.contains(call.process)
                    || call.answered == world.now
                    || call.pending_mode.is_some()
                {
                    continue;
                }
                self.premises += 1;
                let is_told = |(of, token): (&Key, _)| {
                    let is_it = |holder: &HolderInfo| {
                        (holder.process, holder.token) == (call.process, token)
                    };
                    of == key && holders.iter().any(|holder| holder.name == key.1 && is_it(holder))
                };
                if !call.tokens().any(is_told) {
                    self.lock = Some(key.clone());
                    return Err(format!(
                        "m{site} does not report a holder of {}: {call:?}",
                        lock_name(key)
                    ));
                }
            }
        }
        Ok(())
    }

    /// Checks a told position: how many requests go first, how many holds have to end, and the
    /// request that suspends the service before it. Its member's later messages may have arrived in
    /// the same step. A step with a grant is not checked.
    fn check_position(
        &mut self,
        world: &World,
        site: usize,
        at: (Ask, RequestId),
        (before, holds, suspension): (u64, u64, Option<&WaiterInfo>),
    ) -> Verdict {
        let look = world.call(at.0);
        let kept = GrantorRecord::at(world, site, &look.service);
        let (waits, key) = (&kept.waits, (look.process, at.1));
        let Some(own) = waits.get(&key).filter(|own| own.ticket.is_some() && !self.grants) else {
            return Ok(());
        };
        let is_before = |(other, wait): &(&(ProcessId, RequestId), &WaitReport)| {
            (wait.ticket, **other) < (own.ticket, key) && !wait.lock.want.opens()
        };
        let (first, rest): (Vec<_>, Vec<_>) = waits
            .iter()
            .filter(is_before)
            .partition(|(_, wait)| wait.lock.want == Want::Suspension);
        let of_name =
            |name| rest.iter().filter(|(_, wait)| wait.lock.want.names().contains(name)).count();
        let others = match own.lock.want {
            Want::Suspension => rest.len(),
            _ => own.lock.want.names().iter().map(of_name).max().unwrap_or_default(),
        };
        let said_since = |call: &&Call| {
            let is_over = call.released && call.released_at >= look.asked
                || call.outcome.is_some() && call.answered >= look.asked;
            call.process == look.process && (call.asked >= look.asked || is_over)
        };
        let slack = world
            .history()
            .calls
            .iter()
            .filter(said_since)
            .filter(|call| call.request != look.request)
            .count();
        let is = (first.len() + others) as u64;
        self.premises += 1;
        // A position in several queues may leave requests out where little is counted.
        let most = u64::from(world.common.limits.counted);
        let is_cut = most <= (2 * (waits.len() + kept.holds.len())) as u64;
        let least = if own.lock.want.names().len() == 1 { is.min(most) } else { 0 };
        if before.saturating_sub(is.min(most)).max(least.saturating_sub(before)) > slack as u64
            || !is_cut && before.abs_diff(is) > slack as u64
        {
            return Err(format!("m{site} says that {before} wait before {key:?}, and {is} do"));
        }
        if slack > 0 {
            return Ok(());
        }
        // A ticket that passes a held suspension names its token by the complement. Tickets that
        // passed a later suspension do so too, and are lower.
        let held = kept.holds.iter().find(|(_, hold)| hold.lock.want == Want::Suspension);
        let number = |ticket: Ticket| ticket.epoch.0.as_i64();
        let gate = held.filter(|(_, hold)| {
            own.ticket.is_some_and(|ticket| number(ticket) > !hold.token.as_i64())
        });
        let first = first.iter().min_by_key(|(other, wait)| (wait.ticket, **other));
        let suspends = gate.map(|(by, hold)| (by.0, &hold.lock.metadata));
        let suspends = suspends.or_else(|| first.map(|(by, wait)| (by.0, &wait.lock.metadata)));
        if suspension.map(|seen| (seen.process, &seen.metadata)) != suspends {
            return Err(format!(
                "m{site} says that {key:?} waits for {suspension:?}, and it is {suspends:?}"
            ));
        }
        let others = holds_before(&kept, own, key, gate.is_some());
        if holds > others || !is_cut && holds != others {
            return Err(format!(
                "m{site} says that {holds} holds are before {key:?}, and {others} are"
            ));
        }
        Ok(())
    }

    /// Checks the listed waiters of the lock and their order.
    fn check_waiters(
        &mut self,
        world: &World,
        site: usize,
        key: &Key,
        waiters: &[WaiterInfo],
    ) -> Verdict {
        let waits = GrantorRecord::at(world, site, &key.0).waits;
        let mut last = None;
        self.lock = Some(key.clone());
        for waiter in waiters {
            let wants = |want: &Want| match &key.1 {
                _ if waiter.mode == Mode::Suspension => *want == Want::Suspension,
                Some(name) => want.names().contains(name) && want.mode() == waiter.mode,
                None => false,
            };
            let asks = |call: &&Call| match &call.request_kind {
                ClientRequest::Hold(want) => wants(want),
                _ => false,
            };
            let of_this =
                |call: &&Call| call.process == waiter.process && call.metadata == waiter.metadata;
            let mut calls = world.history().calls.iter().filter(of_this).filter(asks);
            if calls.next().is_none() {
                let what = format!(
                    "this one waits for {}, and it did not ask: {waiter:?}",
                    lock_name(key)
                );
                return Err(format!("m{site} says that {what}"));
            }
            let this = waits.iter().find(|((process, _), wait)| {
                *process == waiter.process
                    && wait.lock.metadata == waiter.metadata
                    && wants(&wait.lock.want)
            });
            // The waiter may have been granted in the same step; if another call has the same
            // metadata, that call may be left.
            let (Some((_, wait)), None) = (this, calls.next()) else { continue };
            self.premises += u64::from(last.is_some());
            if wait.ticket < last {
                let what =
                    format!("{waiter:?} with {:?} waits after one with {last:?}", wait.ticket);
                return Err(format!("m{site} says of {}: {what}", lock_name(key)));
            }
            last = wait.ticket;
        }
        self.lock = None;
        Ok(())
    }
}

/// The holds that have to end before a waiting request can be granted. `gated`: the suspension that
/// is held is one of them.
fn holds_before(
    kept: &GrantorRecord,
    own: &WaitReport,
    key: (ProcessId, RequestId),
    gated: bool,
) -> u64 {
    let holds = || kept.holds.iter().filter(|(_, hold)| !hold.lock.want.opens());
    let is_own = |process: ProcessId, owner: OwnerId| {
        process == key.0 && (own.lock.owner == OwnerId::default() || own.lock.owner == owner)
    };
    if own.lock.want == Want::Suspension {
        let is_before = |hold: &HoldReport, by: ProcessId| {
            hold.lock.want == Want::Suspension || !is_own(by, hold.lock.owner)
        };
        return holds().filter(|((by, _), hold)| is_before(hold, *by)).count() as u64;
    }
    let has = |hold: &HoldReport, name: &LockName| hold.lock.want.names().contains(name);
    let permits = |want: &Want| if let Want::Permits(_, count) = want { count.get() } else { 0 };
    let is_missed = |name: &LockName| match own.lock.want {
        Want::Share(_) => {
            holds().any(|(_, hold)| has(hold, name) && !matches!(hold.lock.want, Want::Share(_)))
        }
        Want::Permits(..) => {
            let limit = kept.objects.get(name).map_or(0, |content| content.value.limit());
            let used: u32 = holds()
                .filter(|(_, hold)| has(hold, name))
                .map(|(_, hold)| permits(&hold.lock.want))
                .sum();
            let beside = |hold: &HoldReport| matches!(hold.lock.want, Want::Permits(..));
            used + permits(&own.lock.want) > limit
                || holds().any(|(_, hold)| has(hold, name) && !beside(hold))
        }
        _ => true,
    };
    let missed: Vec<&LockName> =
        own.lock.want.names().iter().filter(|name| is_missed(name)).collect();
    let is_before = |hold: &HoldReport| {
        let suspends = hold.lock.want == Want::Suspension;
        suspends && gated || missed.iter().any(|name| has(hold, name))
    };
    holds().filter(|(_, hold)| is_before(hold)).count() as u64
}

impl Invariant for WhatIsSeenIsSo {
    fn name(&self) -> &'static str {
        "what_is_seen_is_so"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.lock.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent {
                to: Some(to),
                packet:
                    Packet::Linked {
                        message: Message::Client(ClientMessage::QueryReply { request, seen, .. }),
                        ..
                    },
                ..
            } => {
                let ask = world
                    .history()
                    .find(*to, *request)
                    .filter(|ask| world.call(*ask).outcome.is_none());
                if let Some(ask) = ask.filter(|_| **seen != QueryReply::Undecided)
                    && self.on_its_way.insert((*to, *request))
                {
                    self.told.push((ask, QueryReply::clone(seen)));
                }
            }
            // A grantor's answers to its own member are in no packet.
            Observation::Answers { ask, outcome } => {
                let call = world.call(*ask);
                self.grants |= matches!(outcome, Outcome::Granted { .. });
                if let Outcome::Holder(state) = outcome {
                    self.check_waits(world, *ask, state)?;
                }
                if matches!(call.request_kind, ClientRequest::Query(_))
                    && !self.on_its_way.remove(&(call.process, call.request))
                    && let Outcome::QueryReply(seen) = outcome
                {
                    self.told.push((*ask, seen.clone()));
                }
            }
            Observation::Sent {
                packet: Packet::Linked { message: Message::Client(Grant { .. }), .. },
                ..
            } => self.grants = true,
            Observation::Event { site, event: Event::Resumed, .. } => self.resumed = Some(*site),
            Observation::Stepped { site } => {
                let resumed = self.resumed.take() == Some(*site);
                for (ask, seen) in std::mem::take(&mut self.told) {
                    if world.is_ready(*site) && !resumed {
                        self.check(world, *site, ask, &seen)?;
                    }
                }
                self.grants = false;
            }
            _ => {}
        }
        Ok(())
    }
}
