//! `deadlock_is_told`: two owners that have a hold of a service and want to suspend it would wait
//! for each other. The owner that asks later is told so, and does not queue; no other owner is told
//! so.
//!
//! The check comes after the step in which a suspension gets its position in the line of an acting
//! grantor. The grantor may be the suspension's own member. The suspension must not wait for the
//! first suspension in the queue, and that suspension for it. Each of their owners has a hold that
//! came before this step and is not the other's. An owner that is the whole member beside another
//! owner of that member is left out.
//!
//! A request that detects circles, and is told of a deadlock, was in a circle of owners at some
//! instant since it was asked. Each of them waited for a hold of the next.
//!
//! After healing, no two owners wait for each other's locks for longer than three member leases, if
//! requests are to be told of circles. (The budget of a probe may be too small for a longer circle
//! among many waits, so that it takes several probes.)
//!
//! A suspension that is refused as a deadlock has such a rival in its grantor's table, and both
//! have a hold there. Otherwise its owner has or wants the suspension already, or it was in a
//! circle of owners and detects circles. A step with a grant is left out.

use super::{Count, GrantorRecord, Invariant, Verdict, refused_as_deadlock};
use crate::history::{Ask, Call, ClientRequest, HoldMode};
use crate::world::{Observation, World};
use elderlock::protocol::ClientMessage::Grant;
use elderlock::protocol::{
    GrantorState, HoldReport, Message, Outcome, OwnerId, Packet, ProcessId, RequestId, ServiceName,
    Ticket, Wait, WaitReport, Want,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct DeadlockIsTold {
    /// Suspensions that have a position.
    placed: BTreeSet<Ask>,
    /// Suspensions that were refused as deadlocks in this step.
    refused: Vec<Ask>,
    /// All suspensions that were refused as deadlocks, in this step or before: a refusal may be
    /// sent again.
    told: BTreeSet<Ask>,
    /// When holds were lost.
    lost: BTreeMap<Ask, u64>,
    /// Something was granted in this step.
    grants: bool,
    premises: Count,
}

/// An owner: that of a request, at its process.
type Holder = (ProcessId, OwnerId);

const NAME: &str = "deadlock_is_told";

/// Demands that circles of two owners end, where requests are told of circles. False if the
/// invariant is broken.
pub fn demand(world: &mut World) -> bool {
    if !world.detects {
        return true;
    }
    let before = edges(world);
    world.run_for(world.common.timing.member_lease * 3);
    if world.broken().is_some() {
        return false;
    }
    world.count_premise(NAME);
    let after = edges(world);
    let lasting: Vec<_> = before.into_iter().filter(|edge| after.contains(edge)).collect();
    let back = |edge: &(Ask, Holder, Holder)| {
        let is_back = |other: &&(Ask, Holder, Holder)| (other.1, other.2) == (edge.2, edge.1);
        lasting.iter().find(is_back).map(|other| (edge.0, other.0))
    };
    if let Some((one, other)) = lasting.iter().find_map(back) {
        let (one, other) = (world.call(one), world.call(other));
        world.fail(NAME, format!("these two wait for each other: {one:?}, {other:?}"));
        return false;
    }
    true
}

/// The waits for a lock that another owner holds alone, with both owners.
fn edges(world: &World) -> Vec<(Ask, Holder, Holder)> {
    let owner = |call: &Call| (call.process, call.owner);
    let is_there = |ask: &Ask| {
        let call = world.call(*ask);
        let is_lock = matches!(&call.request_kind, ClientRequest::Hold(Want::Lock(_)));
        let is_plain = is_lock && call.mode == HoldMode::Alone && call.pending_mode.is_none();
        is_plain
            && call.owner != OwnerId::default()
            && call.wait != Wait::Try
            && world.demanded().any(|site| site == call.member)
            && world.sites[call.member].is(call.process)
    };
    let mut found = Vec::new();
    for wait in world.history().open().filter(is_there) {
        for key in &world.call(wait).keys {
            let holds = world.history().claims_of(key).filter(is_there);
            for hold in holds.filter(|hold| world.fence(*hold).is_some()) {
                found.push((wait, owner(world.call(wait)), owner(world.call(hold))));
            }
        }
    }
    found
}

/// Returns whether the suspension of one owner waits for a hold of the other. Owner 0 is the whole
/// member.
fn waits_for(one: Holder, other: Holder) -> bool {
    one.0 != other.0 || (one.1 != other.1 && ![one.1, other.1].contains(&OwnerId::default()))
}

impl DeadlockIsTold {
    /// A grantor has done a step.
    fn check(&mut self, world: &World, site: usize, service: &ServiceName) -> Verdict {
        self.placed.retain(|ask| world.call(*ask).is_open());
        let kept = GrantorRecord::at(world, site, service);
        let mut line: Vec<(Ticket, (ProcessId, RequestId), &WaitReport)> = kept
            .waits
            .iter()
            .filter(|(_, wait)| wait.lock.want == Want::Suspension)
            .filter_map(|(key, wait)| Some((wait.ticket?, *key, wait)))
            .collect();
        line.sort_by_key(|(ticket, key, _)| (*ticket, *key));
        let ask = |key: (ProcessId, RequestId)| world.history().find(key.0, key.1);
        let is_new =
            |key: &(ProcessId, RequestId)| ask(*key).is_some_and(|ask| !self.placed.contains(&ask));
        let new: Vec<_> = line.iter().filter(|(_, key, _)| is_new(key)).collect();
        // The order of two suspensions that arrive in one step is unknown.
        let [(_, key, wait)] = new[..] else {
            self.placed.extend(new.iter().filter_map(|(_, key, _)| ask(*key)));
            return Ok(());
        };
        let (by, asked) = (
            (key.0, wait.lock.owner),
            ask(*key).map(|ask| world.call(ask).asked).unwrap_or_default(),
        );
        self.placed.extend(ask(*key));
        let Some((_, of, other)) = line.iter().find(|(_, other, _)| other != key) else {
            return Ok(());
        };
        let rival = (of.0, other.lock.owner);
        let has_hold = |requester: Holder| {
            kept.holds.iter().any(|((process, request), hold)| {
                let is_its = *process == requester.0
                    && [OwnerId::default(), hold.lock.owner].contains(&requester.1);
                let call = world.history().find(*process, *request).map(|ask| world.call(ask));
                // The hold was surely granted before this step.
                let is_old = call.is_some_and(|call| call.is_claim() && call.answered < asked);
                is_its && is_old && is_obstacle(hold)
            })
        };
        if world.bounded && waits_for(by, rival) && has_hold(by) && has_hold(rival) {
            return Err(format!("m{site} lets {key:?} wait for {of:?}, and that one waits for it"));
        }
        Ok(())
    }

    /// A suspension was refused as a deadlock in this step. Its member's later messages may have
    /// arrived in the same step.
    fn check_refusal(&self, world: &World, site: usize, ask: Ask) -> Verdict {
        let call = world.call(ask);
        let key = |call: &Call| (call.process, call.request);
        let others = || world.history().calls.iter().filter(|other| key(other) != key(call));
        let is_over = |other: &Call| {
            let end = other.released.then_some(other.released_at);
            let refused =
                (other.outcome.is_some() && !other.is_granted()).then_some(other.answered);
            end.or(refused).is_some_and(|end| end >= call.asked)
        };
        // A second suspension of one owner waits for the first one.
        let is_own = |other: &Call| {
            let is_same = (other.process, other.owner, &other.service)
                == (call.process, call.owner, &call.service);
            is_same && other.suspends() && (other.is_open() || other.is_claim())
        };
        // A rival whose end the grantor had not heard of, or hears of in this step.
        let is_late = |other: &Call| {
            let is_rival = other.suspends() && other.service == call.service;
            (is_rival || other.process == call.process) && is_over(other)
        };
        if others().any(|other| is_own(other) || is_late(other)) {
            return Ok(());
        }
        // A probe may have found that the suspension is in a circle, as with any other request.
        if world.detects && (Circles { world, lost: &self.lost }).had(ask) {
            return Ok(());
        }
        let kept = GrantorRecord::at(world, site, &call.service);
        let waits = kept.waits.iter().filter(|(_, wait)| wait.lock.want == Want::Suspension);
        let first = waits.min_by_key(|(key, wait)| (wait.ticket, **key));
        let has_hold = |requester: Holder| {
            let is_its = |(process, _): &(ProcessId, RequestId), hold: &HoldReport| {
                *process == requester.0
                    && [OwnerId::default(), hold.lock.owner].contains(&requester.1)
                    && !hold.lock.want.opens()
            };
            kept.holds.iter().any(|(key, hold)| is_its(key, hold))
        };
        let is_rival = |(key, wait): (&(ProcessId, RequestId), &WaitReport)| {
            has_hold((key.0, wait.lock.owner))
        };
        if has_hold((call.process, call.owner)) && first.is_some_and(is_rival) {
            return Ok(());
        }
        Err(format!("{ask:?} is told of a deadlock, and there is none: {call:?}"))
    }
}

/// The circles of owners that a run had.
struct Circles<'a> {
    world: &'a World,
    lost: &'a BTreeMap<Ask, u64>,
}

impl Circles<'_> {
    /// Returns whether the request was in a circle at some instant. A circle begins when its last
    /// wait or hold begins.
    fn had(&self, ask: Ask) -> bool {
        let calls = &self.world.history().calls;
        let begun = calls.iter().flat_map(|call| [call.asked, call.answered]);
        let since = self.world.call(ask).asked;
        begun.filter(|at| *at >= since).any(|at| self.is_in_circle(ask, at))
    }

    fn is_in_circle(&self, ask: Ask, at: u64) -> bool {
        let calls =
            || self.world.history().calls.iter().enumerate().map(|(n, call)| (Ask(n), call));
        let waits: Vec<&Call> =
            calls().map(|(_, call)| call).filter(|call| self.waits(call, at)).collect();
        let holds: Vec<&Call> =
            calls().filter(|(ask, _)| self.holds(*ask, at)).map(|(_, call)| call).collect();
        let own = self.world.call(ask);
        let origin = (own.process, own.owner);
        let (mut seen, mut next) = (BTreeSet::new(), vec![own]);
        while let Some(wait) = next.pop() {
            if !self.waits(wait, at) {
                continue;
            }
            for hold in holds.iter().filter(|hold| is_behind(wait, hold, &waits)) {
                let owner = (hold.process, hold.owner);
                if owner == origin {
                    return true;
                }
                if owner.1 != OwnerId::default() && seen.insert(owner) {
                    next.extend(waits.iter().filter(|wait| (wait.process, wait.owner) == owner));
                }
            }
        }
        false
    }

    fn waits(&self, call: &Call, at: u64) -> bool {
        let is_over = (call.outcome.is_some() && call.answered <= at)
            || (call.released && call.released_at <= at);
        !call.keys.is_empty() && call.asked <= at && !is_over
    }

    fn holds(&self, ask: Ask, at: u64) -> bool {
        let call = self.world.call(ask);
        let is_over = (call.released && call.released_at <= at)
            || self.lost.get(&ask).is_some_and(|lost| *lost <= at);
        call.is_granted() && call.answered <= at && !is_over
    }
}

/// Returns whether a request waits for a hold: for the same lock, or behind other requests that
/// wait for it, or because of a suspension.
fn is_behind(wait: &Call, hold: &Call, waits: &[&Call]) -> bool {
    if wait.service != hold.service {
        return false;
    }
    if wait.shares(hold) || wait.suspends() || hold.suspends() {
        return true;
    }
    let (mut left, mut next) = (waits.to_vec(), vec![wait]);
    while let Some(call) = next.pop() {
        if call.shares(hold) {
            return true;
        }
        next.extend(left.extract_if(.., |other| other.shares(call)));
    }
    false
}

/// Returns whether a suspension waits for such a hold.
fn is_obstacle(hold: &HoldReport) -> bool {
    !hold.lock.want.opens() && hold.lock.want != Want::Suspension
}

impl Invariant for DeadlockIsTold {
    fn name(&self) -> &'static str {
        NAME
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        if let Some((process, request)) = refused_as_deadlock(observation) {
            let ask = world.history().find(process, request);
            self.refused.extend(ask.filter(|ask| self.told.insert(*ask)));
        }
        match observation {
            Observation::Loses { ask, .. } => drop(self.lost.insert(*ask, world.now)),
            Observation::Answers { ask, outcome: Outcome::Deadlock }
                if !world.call(*ask).suspends() =>
            {
                self.premises += 1;
                if !(Circles { world, lost: &self.lost }).had(*ask) {
                    let call = world.call(*ask);
                    return Err(format!("told of a deadlock, and there was none: {call:?}"));
                }
            }
            // A grantor's answer to its own member is in no packet.
            Observation::Answers { ask, outcome: Outcome::Deadlock } => {
                self.premises += 1;
                if self.told.insert(*ask) {
                    self.refused.push(*ask);
                }
            }
            Observation::Answers { outcome: Outcome::Granted { .. }, .. }
            | Observation::Sent {
                packet: Packet::Linked { message: Message::Client(Grant { .. }), .. },
                ..
            } => {
                self.grants = true;
            }
            Observation::Stepped { site } => {
                let refused = std::mem::take(&mut self.refused);
                let grants = std::mem::take(&mut self.grants);
                let node = world.sites[*site].node.as_ref();
                let Some(node) = node.filter(|_| world.is_alive(*site)) else { return Ok(()) };
                let acts = |service: &ServiceName| {
                    node.grantors()
                        .any(|(of, _, state)| of == service && state == GrantorState::Acting)
                };
                for ask in
                    refused.into_iter().filter(|ask| acts(&world.call(*ask).service) && !grants)
                {
                    self.check_refusal(world, *site, ask)?;
                }
                let is_new = |ask: &Ask| world.call(*ask).suspends() && !self.placed.contains(ask);
                let new: BTreeSet<&ServiceName> = world
                    .history()
                    .open()
                    .filter(is_new)
                    .map(|ask| &world.call(ask).service)
                    .collect();
                for service in new.into_iter().filter(|service| acts(service)) {
                    self.check(world, *site, service)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}
