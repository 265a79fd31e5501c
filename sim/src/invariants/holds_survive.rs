//! `holds_survive`: the death of other members ends no hold. A hold ends for a cause of its own
//! only. The causes are its release, the end of its lease or of its member's lease, and its
//! member's expulsion or leaving. Through every new view it stays in its member's lock client and
//! in its grantor's table, with the same token. No member is expelled while its hold is believed.
//!
//! The parts that need clocks are demanded inside the clock bound.

use super::{Count, Invariant, Latest, Verdict};
use crate::history::{Ask, ClientRequest};
use crate::world::{Observation, World};
use elderlock::protocol::{
    Epoch, Event, GrantorState, LostReason, RevokeCommand, ServiceName, Time, Token,
};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct HoldsSurvive {
    /// The end of each member's lease as it was before the present step.
    leases: Vec<Time>,
    /// A view was installed in the present step.
    changed: bool,
    latest: Latest,
    premises: Count,
}

impl HoldsSurvive {
    fn check_cause(&self, world: &World, ask: Ask, reason: LostReason) -> Verdict {
        let call = world.call(ask);
        let peer = &world.sites[call.member];
        let now = peer.clock.local(world.now);
        let has_cause = match reason {
            LostReason::LeaseEnded => call.until <= now,
            LostReason::Suspended => self.leases.get(call.member).is_none_or(|end| *end <= now),
            LostReason::Expelled => {
                let view = peer.node.as_ref().and_then(|node| node.view());
                let is_without = self.leases.get(call.member).is_none_or(|end| *end <= now);
                // A later lineage is a cause too. An open object outlives the lease, and ends when
                // an operator forces its member.
                !world.one_lineage
                    || view.is_some_and(|view| !view.contains(call.process))
                    || (call.opens() && is_without)
            }
            LostReason::Left => peer.leaving,
            LostReason::Destroyed => world.history().calls.iter().any(|destroys| {
                destroys.request_kind == ClientRequest::Destroy
                    && destroys.process == call.process
                    && destroys.service == call.service
            }),
            LostReason::Superseded => !world.bounded,
            // `told_before_taken` checks this more closely.
            LostReason::Revoked => {
                let takes = |request: &ClientRequest| {
                    matches!(
                        request,
                        ClientRequest::Revoke(RevokeCommand::Take(_) | RevokeCommand::Force(..))
                    )
                };
                world.history().calls.iter().any(|takes_it| {
                    takes(&takes_it.request_kind) && takes_it.service == call.service
                })
            }
            _ => false,
        };
        if has_cause {
            Ok(())
        } else {
            Err(format!("m{} lost it ({reason:?}) without a cause: {call:?}", call.member))
        }
    }

    /// Checks after a new view at `site` that its own holds are in its lock client. The holds of
    /// others must be in the tables of its grantors.
    fn check_view(&mut self, world: &World, site: usize) -> Verdict {
        let peer = &world.sites[site];
        let Some(node) = peer.node.as_ref().filter(|_| peer.is_alive()) else { return Ok(()) };
        let Some(view) = node.view() else { return Ok(()) };
        for ask in world.history().claims().chain(world.history().opened()) {
            let call = world.call(ask);
            // The token of an open object is not checked, and a share may be the lock before its
            // client hears it.
            let may_be = |there: Option<Token>| {
                there == call.token()
                    || (there.is_some() && (call.opens() || call.pending_mode.is_some()))
            };
            if peer.is(call.process) {
                self.premises += 1;
                if !may_be(node.granted(call.request)) {
                    return Err(format!(
                        "m{site} has {:?} of {call:?}",
                        node.granted(call.request)
                    ));
                }
            }
            let is_latest = |(service, epoch, state): &(&ServiceName, Epoch, GrantorState)| {
                **service == call.service
                    && *state == GrantorState::Acting
                    && self.latest.of(service) <= Some(*epoch)
            };
            let is_granted_here = node.grantors().any(|grantor| is_latest(&grantor));
            if is_granted_here && world.bounded && view.contains(call.process) {
                self.premises += 1;
                let place = world.place_of(call);
                let mut held = node.table(&call.service);
                if !held.any(|(process, request, token)| {
                    process == call.process
                        && (request == call.request && may_be(token)
                            || Some(request) == place && token.is_some())
                }) {
                    return Err(format!(
                        "m{site} grants {} and knows nothing of {call:?}",
                        call.service
                    ));
                }
            }
            let counts =
                world.bounded && !world.common.trust_refused && !view.contains(call.process);
            // An old view that is told late lacks the members that came since.
            let is_later = world.view(call.member).is_some_and(|theirs| {
                theirs.lineage == view.lineage && theirs.number < view.number
            });
            if counts && is_later && !call.opens() && world.fence(ask).is_some() {
                return Err(format!(
                    "view {} is without a member that believes: {call:?}",
                    view.number
                ));
            }
        }
        Ok(())
    }
}

impl Invariant for HoldsSurvive {
    fn name(&self) -> &'static str {
        "holds_survive"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Loses { ask, reason } => return self.check_cause(world, *ask, *reason),
            Observation::Event { event: Event::ViewInstalled(_), .. } => self.changed = true,
            Observation::Event { event: Event::BecameGrantor { service, epoch }, .. } => {
                self.latest.begins(service, *epoch);
            }
            Observation::Stepped { site } => {
                if self.leases.len() <= *site {
                    self.leases.resize(world.sites.len(), Time::ZERO);
                }
                self.leases[*site] = world.sites[*site].lease_end();
                if std::mem::take(&mut self.changed) {
                    return self.check_view(world, *site);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
