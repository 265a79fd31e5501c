//! `recovered_table_is_the_union`: when a recovering grantor begins to act, its table has every
//! hold and every waiter of every member of its view. Each hold has its token. The table has
//! nothing that was over before the grantor began to ask. Each entry is as it was asked for: the
//! same locks, the same owner, the same metadata. A hold is as old as its holder knows. When a part
//! of the names opens before, the same is so for these names, and no member has a suspension or
//! waits for one.
//!
//! The check comes after the step in which the grantor begins to act, or opens a part. By then it
//! may have granted further requests. A grantor that is already followed by another grantor is left
//! out: its members answer to that grantor. Inside the clock bound.

use super::{Count, GrantorRecord, Invariant, Verdict, acts_after, refused_as_deadlock, shrunk};
use crate::history::{Ask, Call, Key};
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Event, GrantorState, Message, Packet, ProcessId, RequestId, ServiceName,
    Token, Wait, part_of,
};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// A recovery.
#[derive(Clone, Hash, Debug)]
struct ObservedRecovery {
    epoch: Epoch,
    /// When it began.
    since: u64,
    /// The processes that were asked. A member that joins later knows no older grantor, and asks
    /// this grantor.
    members_asked: BTreeSet<ProcessId>,
    /// The number of open parts.
    open: u16,
}

impl ObservedRecovery {
    /// Returns whether a call concerns an open part. Objects are in the first part.
    fn concerns(&self, call: &Call) -> bool {
        let part = |(_, name): &Key| name.as_ref().map_or(0, part_of);
        call.opens() || call.keys.iter().any(|key| part(key) < self.open)
    }
}

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct RecoveredTableIsTheUnion {
    /// The latest recovery of each service.
    recoveries: BTreeMap<ServiceName, ObservedRecovery>,
    /// A recovery that ended in the present step.
    ended: Option<(usize, ServiceName)>,
    /// The processes that left a member's views at one instant. The grantor there ends many
    /// requests of theirs in several steps.
    leaving: Option<(usize, u64, BTreeSet<ProcessId>)>,
    /// Suspensions that were refused as deadlocks in the present step: the rival may be over by its
    /// end.
    refused: BTreeSet<(ProcessId, RequestId)>,
    /// When holds were lost and processes ended.
    lost: BTreeMap<Ask, u64>,
    gone: BTreeMap<ProcessId, u64>,
    premises: Count,
}

impl RecoveredTableIsTheUnion {
    /// Returns the time at which the client's part in a call was over.
    fn over_at(&self, ask: Ask, call: &Call) -> u64 {
        let released = call.released.then_some(call.released_at);
        let answered = (call.outcome.is_some() && !call.is_granted()).then_some(call.answered);
        let lost = self.lost.get(&ask).copied();
        let gone = self.gone.get(&call.process).copied();
        [released, answered, lost, gone].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    fn check(
        &mut self,
        world: &World,
        site: usize,
        service: &ServiceName,
        recovery: &ObservedRecovery,
    ) -> Verdict {
        if !world.is_ready(site) {
            // The grantor slept, and others have gone on: it grants nothing with its table.
            return Ok(());
        }
        let since = recovery.since;
        let Some(node) = world.sites[site].node.as_ref() else { return Ok(()) };
        let table: BTreeMap<(ProcessId, RequestId), Option<Token>> = node
            .table(service)
            .map(|(process, request, token)| ((process, request), token))
            .collect();
        let kept = GrantorRecord::at(world, site, service);
        if let Some((ask, what)) = kept.differs(world) {
            return Err(format!("m{site} has recovered {what}: {:?}", world.call(ask)));
        }
        let clock = world.sites[site].clock.local(world.now);
        let is_member = |call: &Call| node.view().is_some_and(|view| view.contains(call.process));
        let is_leaving = |call: &Call| {
            let leaving =
                self.leaving.as_ref().filter(|(of, at, _)| (*of, *at) == (site, world.now));
            leaving.is_some_and(|(.., processes)| processes.contains(&call.process))
        };
        let history = world.history();
        for ((process, request), token) in &table {
            let Some(ask) = history.find(*process, *request) else {
                return Err(format!(
                    "m{site} has recovered {request:?} of {process}, which that process did not \
                     ask for"
                ));
            };
            let call = world.call(ask);
            let is_over = self.over_at(ask, call) < since;
            if is_over || !is_member(call) && !is_leaving(call) {
                return Err(format!("m{site} has recovered what was over ({token:?}): {call:?}"));
            }
        }
        let is_part = node.open_parts(service).is_some();
        let of_it = |ask: &Ask| {
            let call = world.call(*ask);
            let concerns = !is_part || recovery.concerns(call);
            let is_asked = !call.keys.is_empty() || call.opens();
            is_asked && call.service == *service && is_member(call) && concerns
        };
        for ask in history.claims().chain(history.opened()).chain(history.open()).filter(of_it) {
            let call = world.call(ask);
            if let Some(what) = kept.lacks(ask, world) {
                return Err(format!("m{site} has recovered {what}: {call:?}"));
            }
            let known = table.get(&(call.process, call.request));
            let granted = call.token().or_else(|| {
                let node = world.sites[call.member]
                    .node
                    .as_ref()
                    .filter(|node| node.process() == call.process);
                node.and_then(|node| node.granted(call.request))
            });
            let is_try = matches!(call.wait, Wait::Try | Wait::AtMost(Duration::ZERO));
            let is_asked = call.asked < since && recovery.members_asked.contains(&call.process);
            if is_part && call.suspends() && (granted.is_some() || is_asked && !is_try) {
                return Err(format!("m{site} has opened a part beside a suspension: {call:?}"));
            }
            if let Some(token) = granted {
                self.premises += 1;
                // A share may be the lock before its client hears it.
                let is_pending = call.pending_mode.is_some() && matches!(known, Some(Some(_)));
                if known != Some(&Some(token)) && !is_pending {
                    return Err(format!(
                        "m{site} has recovered {known:?} of a hold with {token:?}: {call:?}"
                    ));
                }
                // A member that knew of its hold before it was asked reports the hold's age.
                let age = match call.token() {
                    Some(_) => shrunk(world, since.saturating_sub(call.answered)),
                    None => Duration::ZERO,
                };
                let there = kept.holds.get(&(call.process, call.request)).map(|hold| hold.held_for);
                if there < Some(age) && clock.back(age) + age == clock {
                    return Err(format!(
                        "m{site} has recovered a hold of {age:?} at least as one of {there:?}: \
                         {call:?}"
                    ));
                }
            } else if !is_try && is_asked {
                self.premises += 1;
                // Of two holders that want to suspend the service, one is refused.
                let suspends = |(process, request): &(_, _)| {
                    history.find(*process, *request).is_some_and(|ask| world.call(ask).suspends())
                };
                let is_refused = self.refused.contains(&(call.process, call.request))
                    || call.suspends() && table.keys().any(suspends);
                if known.is_none() && !is_refused {
                    return Err(format!("m{site} has recovered nothing of a waiter: {call:?}"));
                }
            }
        }
        Ok(())
    }
}

impl RecoveredTableIsTheUnion {
    /// Checks the parts that a grantor has opened in the present step.
    fn check_parts(&mut self, world: &World, site: usize) -> Verdict {
        let Some(node) = world.sites[site].node.as_ref() else { return Ok(()) };
        for (service, epoch, _) in node.grantors() {
            let Some(open) = node.open_parts(service) else { continue };
            let Some(recovery) = self.recoveries.get_mut(service) else { continue };
            if recovery.epoch == epoch && recovery.open < open {
                recovery.open = open;
                let recovery = recovery.clone();
                self.check(world, site, service, &recovery)?;
            }
        }
        Ok(())
    }
}

impl Invariant for RecoveredTableIsTheUnion {
    fn name(&self) -> &'static str {
        "recovered_table_is_the_union"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        self.refused.extend(refused_as_deadlock(observation));
        match observation {
            Observation::Sent {
                site,
                process,
                to: Some(to),
                packet:
                    Packet::Linked {
                        message: Message::Client(ClientMessage::Recover { service, epoch, .. }),
                        ..
                    },
            } => {
                // A grantor that acts already only revalidates its transferred table.
                let node = world.sites[*site].node.as_ref();
                let acts = |(of, of_epoch, state): (&ServiceName, Epoch, GrantorState)| {
                    (of, of_epoch, state) == (service, *epoch, GrantorState::Acting)
                };
                if node.is_some_and(|node| node.grantors().any(acts)) {
                    return Ok(());
                }
                if self.recoveries.get(service).is_none_or(|latest| latest.epoch < *epoch) {
                    let recovery = ObservedRecovery {
                        epoch: *epoch,
                        since: world.now,
                        members_asked: BTreeSet::from([*process]),
                        open: 0,
                    };
                    self.recoveries.insert(service.clone(), recovery);
                }
                if let Some(recovery) =
                    self.recoveries.get_mut(service).filter(|recovery| recovery.epoch == *epoch)
                {
                    recovery.members_asked.insert(*to);
                }
            }
            Observation::Event { site, event: Event::BecameGrantor { service, epoch }, .. } => {
                let role = (service, *epoch);
                let asked = acts_after(GrantorState::Recovering, world, *site, role);
                match self.recoveries.get(service) {
                    Some(latest) if latest.epoch == *epoch && asked => {
                        self.ended = Some((*site, service.clone()));
                    }
                    Some(latest) if latest.epoch > *epoch => {}
                    // The grantor has got a table, so no earlier recovery is the latest any more.
                    _ => _ = self.recoveries.remove(service),
                }
            }
            Observation::Event { site, event: Event::ViewInstalled(view), .. } => {
                let departed = view.departed.iter().filter(|(_, left)| *left == view.number);
                let departed = departed.map(|(process, _)| *process);
                match &mut self.leaving {
                    Some((of, at, processes)) if (*of, *at) == (*site, world.now) => {
                        processes.extend(departed);
                    }
                    leaving => *leaving = Some((*site, world.now, departed.collect())),
                }
            }
            // The grantor has begun and passed its table on in one step: another invariant checks
            // that.
            Observation::Event { site, event: Event::NoLongerGrantor { service, .. }, .. } => {
                self.ended.take_if(|(at, ended)| at == site && ended == service);
            }
            Observation::Loses { ask, .. } => _ = self.lost.insert(*ask, world.now),
            Observation::Ends { process, .. } => _ = self.gone.insert(*process, world.now),
            Observation::Stepped { site } => {
                let ended = self.ended.take_if(|(of, _)| of == site);
                let verdict = match ended {
                    Some((site, service)) if world.bounded => {
                        let recovery = self.recoveries.get(&service).cloned();
                        let check = |recovery| self.check(world, site, &service, &recovery);
                        recovery.map_or(Ok(()), check)
                    }
                    _ if world.bounded => self.check_parts(world, *site),
                    _ => Ok(()),
                };
                self.refused.clear();
                return verdict;
            }
            _ => {}
        }
        Ok(())
    }
}
