//! `no_resurrected_grant`: a member that has answered a recovery begins no hold of an older epoch
//! any more, except holds in its answer. It refuses a grant that was under way meanwhile.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Event, GrantorMessage, Message, Outcome, Packet, ProcessId, RequestId,
    ServiceName,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct NoResurrectedGrant {
    /// The latest recovery that each process has answered.
    answered: BTreeMap<(ProcessId, ServiceName), Epoch>,
    /// Grants that were reported to the next grantor before their process began to hold them.
    told: BTreeSet<(ProcessId, RequestId)>,
    /// Grants of which a process had heard when it began a report that is not complete.
    untold: BTreeMap<(ProcessId, ServiceName), BTreeSet<RequestId>>,
    /// Grants that were sent.
    sent: BTreeMap<(ProcessId, RequestId), (Epoch, ServiceName)>,
    /// The grantors. A grantor tells its own client of a grant without a packet, and may stop
    /// granting in the same step. So the state after the step does not show that it granted.
    grantors: BTreeMap<(ProcessId, ServiceName), Epoch>,
    premises: Count,
}

impl NoResurrectedGrant {
    /// Notes that a process begins to answer a recovery. Its answer takes several steps. It has all
    /// grants of which the process has heard.
    fn on_answer(
        &mut self,
        (process, site): (ProcessId, usize),
        (service, epoch): (&ServiceName, Epoch),
        world: &World,
    ) {
        let Some(node) = world.sites[site].node.as_ref() else { return };
        let open = world.history().open().map(|ask| world.call(ask));
        let heard = open.filter(|call| {
            call.process == process
                && call.service == *service
                && node.granted(call.request).is_some()
        });
        let heard = heard.map(|call| call.request).collect();
        self.untold.insert((process, service.clone()), heard);
        let of_it = self.sent.range((process, RequestId(0))..=(process, RequestId(u64::MAX)));
        let late = of_it
            .filter(|(key, (of, by))| *of < epoch && by == service && !self.told.contains(key));
        self.premises += late.count() as u64;
        self.answered.insert((process, service.clone()), epoch);
    }
}

impl Invariant for NoResurrectedGrant {
    fn name(&self) -> &'static str {
        "no_resurrected_grant"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sent {
                process,
                site,
                to: Some(to),
                packet: Packet::Linked { message, .. },
            } => match message {
                Message::Client(ClientMessage::Grant { service, epoch, request, .. }) => {
                    // A grantor that takes over a table repeats the grants in it. They count as its
                    // own.
                    let sent =
                        self.sent.entry((*to, *request)).or_insert((*epoch, service.clone()));
                    sent.0 = sent.0.max(*epoch);
                }
                Message::Grantor(GrantorMessage::Report {
                    service, epoch, holds, last, ..
                }) => {
                    self.told.extend(holds.iter().map(|hold| (*process, hold.request)));
                    let key = (*process, service.clone());
                    if self.answered.get(&key) != Some(epoch) {
                        self.on_answer((*process, *site), (service, *epoch), world);
                    }
                    if *last {
                        self.untold.remove(&key);
                    }
                }
                // A grantor that asks others has also asked itself, and answered without a packet.
                Message::Client(ClientMessage::Recover { service, epoch, .. })
                    if self
                        .answered
                        .get(&(*process, service.clone()))
                        .is_none_or(|known| known < epoch) =>
                {
                    self.on_answer((*process, *site), (service, *epoch), world);
                    let own = self.untold.remove(&(*process, service.clone()));
                    let own = own.into_iter().flatten();
                    self.told.extend(own.map(|request| (*process, request)));
                }
                _ => {}
            },
            Observation::Answers { ask, outcome: Outcome::Granted { token, .. } } => {
                let call = world.call(*ask);
                let key = (call.process, call.request);
                let said_by = self.sent.remove(&key).map(|(epoch, _)| epoch);
                let own = self.grantors.get(&(call.process, call.service.clone()));
                let said_by = said_by.max(own.copied());
                let at = (call.process, call.service.clone());
                let is_due =
                    self.untold.get(&at).is_some_and(|heard| heard.contains(&call.request));
                let was_told = self.told.remove(&key) || is_due;
                if let Some(epoch) = self.answered.get(&at)
                    && *token < epoch.0
                    && !was_told
                    && said_by < Some(*epoch)
                {
                    return Err(format!(
                        "m{} begins to hold {:?} with {token:?} after it has answered {epoch:?}",
                        call.member,
                        call.lock()
                    ));
                }
            }
            Observation::Event { process, event, .. } => match event {
                Event::BecameGrantor { service, epoch } => {
                    self.grantors.insert((*process, service.clone()), *epoch);
                }
                Event::NoLongerGrantor { service, epoch } => {
                    let key = (*process, service.clone());
                    if self.grantors.get(&key) == Some(epoch) {
                        self.grantors.remove(&key);
                    }
                }
                _ => {}
            },
            Observation::Ends { process, .. } => {
                self.sent.retain(|(to, _), _| to != process);
                self.grantors.retain(|(of, _), _| of != process);
            }
            _ => {}
        }
        Ok(())
    }
}
