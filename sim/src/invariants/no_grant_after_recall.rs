//! `no_grant_after_recall`: a member grants itself a kept lock only with the tokens that came with
//! the lock, each once and in order. It does not do so after it has heard the recall. While another
//! member waits for the lock and knows its position, a recall is under way. No try is refused
//! because of a free keep.
//!
//! `Recover` of a later grantor ends all keeps of its service, so it is a recall of each of them. A
//! recall counts as heard when the keeper's process has acknowledged the message. The parts that
//! need clocks are demanded inside the clock bound.

use super::{Count, Invariant, Verdict};
use crate::history::{Call, Key};
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Message, Outcome, Packet, ProcessId, RequestId, ServiceName, Token,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct NoGrantAfterRecall {
    /// The tokens that each process may still use, by the request that was granted the lock. They
    /// lie behind the first token and reach up to the second token. The service stands beside them.
    ranges: BTreeMap<(ProcessId, RequestId), (Token, Token, ServiceName)>,
    /// Recalls that were sent and not acknowledged, by sender, receiver and number of the message.
    sent: BTreeMap<(ProcessId, ProcessId, u64), Recalled>,
    /// The locks whose keepers have acknowledged a recall.
    recalled: BTreeSet<(ProcessId, RequestId)>,
    wrong: Option<Key>,
    premises: Count,
}

/// The locks that a message recalls.
#[derive(Clone, Hash, Debug)]
enum Recalled {
    /// The lock that this request was granted.
    One(RequestId),
    /// All locks of a service that were granted before this epoch.
    Before(ServiceName, Epoch),
}

impl NoGrantAfterRecall {
    /// A process has acknowledged a recall.
    fn on_heard(&mut self, process: ProcessId, recalled: Recalled) {
        match recalled {
            Recalled::One(place) => _ = self.recalled.insert((process, place)),
            Recalled::Before(service, epoch) => self.ranges.retain(|(of, _), (used, _, of_it)| {
                *of != process || *of_it != service || *used >= epoch.0
            }),
        }
    }

    /// Whether the process keeps, or may keep, a lock of the service from before that epoch.
    fn keeps(&self, process: ProcessId, service: &ServiceName, epoch: Epoch) -> bool {
        let is_older = |((of, _), (used, _, of_it)): (&(ProcessId, RequestId), &(Token, _, _))| {
            *of == process && of_it == service && *used < epoch.0
        };
        self.ranges.iter().any(is_older)
    }

    /// A member has granted itself a lock that it keeps.
    fn on_own_grant(
        &mut self,
        key: (ProcessId, RequestId),
        token: Token,
        waiter: Option<&Call>,
    ) -> Result<(), String> {
        self.premises += 1;
        if self.recalled.contains(&key) {
            return Err("has heard the recall of it".to_string());
        }
        let is_it = |recalled: &Recalled| match recalled {
            Recalled::One(place) => *place == key.1,
            Recalled::Before(service, epoch) => {
                let range = self.ranges.get(&key);
                range.is_some_and(|(used, _, of)| of == service && *used < epoch.0)
            }
        };
        let is_recalled = self.sent.iter().any(|((_, to, _), word)| *to == key.0 && is_it(word));
        if let Some(waiter) = waiter.filter(|_| !is_recalled) {
            return Err(format!("is not asked for it, though another waits: {waiter:?}"));
        }
        let Some((used, last, _)) = self.ranges.get_mut(&key) else {
            return Err("has no tokens for it".to_string());
        };
        if token <= *used || token > *last {
            return Err(format!("may use tokens behind {used:?} up to {last:?}"));
        }
        *used = token;
        Ok(())
    }
}

/// Another member's call that waits for the lock of a call, and knows its position.
fn told_waiter<'a>(world: &'a World, call: &Call) -> Option<&'a Call> {
    let view = world.latest.values().max_by_key(|view| view.number)?;
    let waits = |other: &&Call| {
        let is_in_its_way =
            call.clashes(other) || (other.suspends() && other.service == call.service);
        let is_rival = other.process != call.process && view.contains(other.process);
        let site = &world.sites[other.member];
        let node = site.node.as_ref().filter(|node| node.process() == other.process);
        is_in_its_way
            && is_rival
            && node.is_some_and(|node| node.position_of(other.request).is_some())
    };
    let open = world.history().open().map(|ask| world.call(ask));
    open.filter(|_| world.bounded).find(waits)
}

impl Invariant for NoGrantAfterRecall {
    fn name(&self) -> &'static str {
        "no_grant_after_recall"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.wrong.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent { process, to: Some(to), packet, .. } => {
                let (Packet::Linked { ack, .. } | Packet::Ack { ack, .. }) = packet else {
                    return Ok(());
                };
                if !self.sent.is_empty() {
                    let heard: Vec<_> = self
                        .sent
                        .range((*to, *process, 0)..=(*to, *process, *ack))
                        .map(|(key, _)| *key)
                        .collect();
                    for key in heard {
                        if let Some(recalled) = self.sent.remove(&key) {
                            self.on_heard(*process, recalled);
                        }
                    }
                }
                let Packet::Linked { seq, message: Message::Client(message), .. } = packet else {
                    return Ok(());
                };
                match message {
                    ClientMessage::Recall { request, .. } => {
                        self.sent.insert((*process, *to, *seq), Recalled::One(*request));
                    }
                    // Other questions are not remembered: a model checker would tell Worlds apart
                    // by them.
                    ClientMessage::Recover { service, epoch, .. }
                        if self.keeps(*to, service, *epoch) =>
                    {
                        let recalled = Recalled::Before(service.clone(), *epoch);
                        self.sent.insert((*process, *to, *seq), recalled);
                    }
                    ClientMessage::Grant { service, request, token, kept, .. } if *kept > 0 => {
                        let range = (*token, token.plus(u64::from(*kept)), service.clone());
                        self.ranges.entry((*to, *request)).or_insert(range);
                    }
                    _ => {}
                }
            }
            Observation::Answers { ask, outcome: Outcome::Granted { token, .. } } => {
                let call = world.call(*ask);
                let Some(place) = world.place_of(call) else { return Ok(()) };
                let waiter = told_waiter(world, call);
                if let Err(what) = self.on_own_grant((call.process, place), *token, waiter) {
                    self.wrong = call.keys.first().cloned();
                    return Err(format!(
                        "m{} grants itself {} with {token:?}, and it {what}",
                        call.member,
                        call.lock()
                    ));
                }
            }
            Observation::Answers { ask, outcome: Outcome::Held(holder) } if world.bounded => {
                let (call, key) = (world.call(*ask), (holder.process, holder.request));
                let Some(site) = world.present_site_of(holder.process) else { return Ok(()) };
                let node = world.sites[site].node.as_ref();
                let kept = node.and_then(|node| {
                    node.kept().find(|(place, is_used)| *place == holder.request && !is_used)
                });
                let was_free =
                    world.history().find(holder.process, holder.request).is_some_and(|of| {
                        world.call(of).released && world.call(of).released_at < call.asked
                    });
                if kept.is_some() && was_free && !self.recalled.contains(&key) {
                    return Err(format!("{call:?} is refused for a lock that is kept free"));
                }
            }
            Observation::Ends { process, .. } => {
                self.ranges.retain(|(of, _), _| of != process);
                self.recalled.retain(|(of, _)| of != process);
                self.sent.retain(|(_, to, _), _| to != process);
            }
            _ => {}
        }
        Ok(())
    }
}
