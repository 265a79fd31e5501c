//! `no_resurrected_grant`: whoever has answered a recovery begins to hold nothing of an older epoch any more, but for
//! what was in its answer: a grant that was under way meanwhile is refused.

use super::{Fact, Invariant, Verdict};
use crate::world::World;
use elderlock::protocol::{Epoch, Message, Outcome, Packet, ProcessId, RequestId, ServiceName};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct NoResurrectedGrant {
    /// The latest recovery that each process has answered.
    answered: BTreeMap<(ProcessId, ServiceName), Epoch>,
    /// What was granted, and told the next grantor, before its process began to hold it.
    told: BTreeSet<(ProcessId, RequestId)>,
    /// Grants that were sent.
    sent: BTreeMap<(ProcessId, RequestId), (Epoch, ServiceName)>,
    premises: u64,
}

impl NoResurrectedGrant {
    fn on_answer(&mut self, process: ProcessId, service: &ServiceName, epoch: Epoch) {
        let of_it = self.sent.range((process, RequestId(0))..=(process, RequestId(u64::MAX)));
        let late = of_it.filter(|(key, (of, by))| *of < epoch && by == service && !self.told.contains(key));
        self.premises += late.count() as u64;
        self.answered.insert((process, service.clone()), epoch);
    }
}

impl Invariant for NoResurrectedGrant {
    fn name(&self) -> &'static str {
        "no_resurrected_grant"
    }

    fn premises(&self) -> u64 {
        self.premises
    }

    fn hear(&mut self, world: &World, fact: &Fact<'_>) -> Verdict {
        match fact {
            Fact::Sent { process, place, to: Some(to), packet: Packet::Linked { message, .. } } => match message {
                Message::Grant { service, epoch, request, .. } => {
                    self.sent.insert((*to, *request), (*epoch, service.clone()));
                }
                Message::Report { service, epoch, holds, .. } => {
                    self.told.extend(holds.iter().map(|hold| (*process, hold.request)));
                    if self.answered.get(&(*process, service.clone())) != Some(epoch) {
                        self.on_answer(*process, service, *epoch);
                    }
                }
                // Whoever asks others has asked itself, and answered without a packet.
                Message::Recover { service, epoch }
                    if self.answered.get(&(*process, service.clone())).is_none_or(|known| known < epoch) =>
                {
                    let Some(node) = world.peers[*place].node.as_ref() else { return Ok(()) };
                    let own = world.history().open().map(|ask| world.call(ask));
                    let own = own.filter(|call| call.process == *process && node.granted(call.request).is_some());
                    self.told.extend(own.map(|call| (*process, call.request)));
                    self.on_answer(*process, service, *epoch);
                }
                _ => {}
            },
            Fact::Answers { ask, outcome: Outcome::Granted { token, .. } } => {
                let call = world.call(*ask);
                let key = (call.process, call.request);
                self.sent.remove(&key);
                let was_told = self.told.remove(&key);
                if let Some(epoch) = self.answered.get(&(call.process, call.key.0.clone()))
                    && *token < epoch.0
                    && !was_told
                {
                    return Err(format!(
                        "m{} begins to hold {:?} with {token:?} after it has answered {epoch:?}",
                        call.member, call.key
                    ));
                }
            }
            Fact::Ends { process, .. } => {
                self.sent.retain(|(to, _), _| to != process);
            }
            _ => {}
        }
        Ok(())
    }
}
