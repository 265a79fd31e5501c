//! `token_belongs_to_one_hold`: no token is granted twice in the life of a cluster, for any clocks.
//! If lineages live at once, this holds within each.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, HoldMode, Key, nth};
use crate::kind::message;
use crate::world::{Observation, World};
use elderlock::protocol::LineageId;
use elderlock::protocol::{ClientMessage, Message, Outcome, Packet, ProcessId, RequestId, Token};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct TokenBelongsToOneHold {
    answered: BTreeMap<(Token, LineageId), (Ask, Key)>,
    granted: BTreeMap<(Token, LineageId), (ProcessId, RequestId)>,
    premises: Count,
}

impl TokenBelongsToOneHold {
    fn grant(
        &mut self,
        world: &World,
        token: Token,
        process: ProcessId,
        request: RequestId,
    ) -> Verdict {
        let token = (token, world.dealt_apart(process));
        let owner = *self.granted.entry(token).or_insert((process, request));
        if owner != (process, request) {
            return Err(format!(
                "{token:?} is granted to {owner:?} and to {:?}",
                (process, request)
            ));
        }
        Ok(())
    }
}

impl Invariant for TokenBelongsToOneHold {
    fn name(&self) -> &'static str {
        "token_belongs_to_one_hold"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Answers { ask, outcome: Outcome::Granted { token, .. } } => {
                self.premises += 1;
                let call = world.call(*ask);
                let permits = match call.mode {
                    HoldMode::Permits(count) => count as usize,
                    _ => 1,
                };
                let apart = world.dealt_apart(call.process);
                for (index, key) in call.keys.iter().flat_map(|key| vec![key; permits]).enumerate()
                {
                    let token = nth(*token, index);
                    if let Some((other, before)) =
                        self.answered.insert((token, apart), (*ask, key.clone()))
                    {
                        return Err(format!(
                            "{token:?} is the token of {other:?} for {before:?} and of {ask:?} \
                             for {key:?}"
                        ));
                    }
                }
                self.grant(world, *token, call.process, call.request)
            }
            Observation::Answers { outcome: Outcome::Upgraded { hold, token }, ask } => {
                self.premises += 1;
                let call = world.call(*ask);
                let Some(of) = world.history().find(call.process, *hold) else { return Ok(()) };
                let key = world.call(of).keys.first().cloned();
                // Two upgrade requests for one hold both get its token.
                if let Some(key) = key
                    && let Some((other, before)) =
                        self.answered.insert((*token, world.dealt_apart(call.process)), (of, key))
                    && other != of
                {
                    return Err(format!(
                        "{token:?} of an upgrade is the token of {other:?} for {before:?}"
                    ));
                }
                self.grant(world, *token, call.process, *hold)
            }
            // The packet's address names the receiver, so a relayed grant is seen when it is
            // relayed.
            Observation::Sent { to: Some(to), packet: packet @ Packet::Linked { .. }, .. } => {
                match message(packet) {
                    Some(Message::Client(ClientMessage::Grant { token, request, .. })) => {
                        self.grant(world, *token, *to, *request)
                    }
                    _ => Ok(()),
                }
            }
            _ => Ok(()),
        }
    }
}
