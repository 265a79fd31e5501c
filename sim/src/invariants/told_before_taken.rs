//! `told_before_taken`: a hold is revoked by force only after its holder has been told of the
//! request. The one exception is an operator's order that the holder's member allows and reports. A
//! holder that is reported as told has been told. A hold that is reported as taken away is over,
//! and an order is refused only where the holder's member allows none.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, Call, ClientRequest};
use crate::world::{Observation, UnaskedOutput, World};
use elderlock::protocol::{Event, HolderInfo, LostReason, Outcome, RevokeCommand, Token};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ToldBeforeTaken {
    /// The requests whose holders were told, with their tokens at that time. A share that becomes
    /// the lock gets another token.
    told: BTreeMap<Ask, BTreeSet<Token>>,
    /// The holds that members have ended by an operator's order.
    forced: BTreeSet<(usize, Token)>,
    premises: Count,
}

impl ToldBeforeTaken {
    /// Returns whether the holder with this token knows of the requested revocation.
    fn knows(&self, world: &World, holder: &HolderInfo) -> bool {
        self.told.iter().any(|(ask, tokens)| {
            let call = world.call(*ask);
            let has = || {
                tokens.contains(&holder.token)
                    || call.tokens().any(|(_, token)| token == holder.token)
            };
            call.process == holder.process && has()
        })
    }
}

/// The hold that a call ends.
fn ended_by(call: &Call) -> Option<&HolderInfo> {
    match &call.request_kind {
        ClientRequest::Revoke(RevokeCommand::Take(holder) | RevokeCommand::Force(holder, _)) => {
            Some(holder)
        }
        _ => None,
    }
}

impl Invariant for ToldBeforeTaken {
    fn name(&self) -> &'static str {
        "told_before_taken"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Wanted { ask } => {
                let tokens = world.call(*ask).tokens().map(|(_, token)| token);
                self.told.entry(*ask).or_default().extend(tokens);
            }
            Observation::Unasked { site, request, output: UnaskedOutput::Revocation } => {
                return Err(format!("m{site} is told of unknown {request:?}"));
            }
            Observation::Event { site, event: Event::ForcedRevoke { token, .. }, .. } => {
                self.premises += 1;
                if !world.sites[*site].allows_force {
                    return Err(format!("m{site} ends a hold by force, and does not allow it"));
                }
                self.forced.insert((*site, *token));
            }
            Observation::Loses { ask, reason: LostReason::Revoked } => {
                self.premises += 1;
                let call = world.call(*ask);
                let is_forced = |(_, token)| self.forced.contains(&(call.member, token));
                if call.tokens().any(is_forced) {
                    return Ok(());
                }
                if !self.told.contains_key(ask) {
                    return Err(format!(
                        "taken away before its holder was told: {:?}",
                        world.call(*ask)
                    ));
                }
            }
            Observation::Answers { ask, outcome: Outcome::ForceNotAllowed } => {
                self.premises += 1;
                let Some(holder) = ended_by(world.call(*ask)) else { return Ok(()) };
                let is_its = |call: &&Call| call.process == holder.process;
                let at = world.history().calls.iter().find(is_its).map(|call| call.member);
                if let Some(site) = at.filter(|site| world.sites[*site].allows_force) {
                    return Err(format!("m{site} is said not to allow force, and does"));
                }
            }
            Observation::Answers { ask, outcome: Outcome::Revoked } => {
                let Some(holder) = ended_by(world.call(*ask)) else { return Ok(()) };
                self.premises += 1;
                let has = |call: &Call| call.tokens().any(|(_, token)| token == holder.token);
                let is_held = |ask: &Ask| {
                    let call = world.call(*ask);
                    call.process == holder.process && has(call) && world.fence(*ask).is_some()
                };
                if let Some(held) = world.history().claims().find(is_held) {
                    let call = world.call(held);
                    return Err(format!("said to have been taken away, and is held: {call:?}"));
                }
            }
            Observation::Answers { outcome: Outcome::RevocationRequested { told, .. }, .. } => {
                self.premises += told.len() as u64;
                if let Some(holder) = told.iter().find(|holder| !self.knows(world, holder)) {
                    return Err(format!("said to have been told, and was not: {holder:?}"));
                }
            }
            _ => {}
        }
        Ok(())
    }
}
