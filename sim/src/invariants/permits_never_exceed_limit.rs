//! `permits_never_exceed_limit`: holders that believe in permits have together no more than the
//! limit at the time of the latest of their grants. (A limit that shrinks below the granted permits
//! takes none away, so later limits do not matter.) Inside the clock bound.
//!
//! The tokens tell that limit: a grantor deals versions of the object and tokens of permits from
//! one range, in order. So the limit is the latest version below the grant's token, if that version
//! is of the same epoch. Otherwise it is a limit that the epoch began with. That limit is at least
//! as new as any version of earlier epochs that a member with the object open had seen. Each such
//! member has reported its version.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, Call, HoldMode, Key};
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Event, Message, Packet, ServiceName, Token, Value,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct PermitsNeverExceedLimit {
    /// The number of permits by each version of each object.
    limits: BTreeMap<Key, BTreeMap<Token, u32>>,
    /// Epochs of each service.
    epochs: BTreeMap<ServiceName, BTreeSet<Epoch>>,
    /// Permits that were granted in this step.
    granted: Vec<Ask>,
    exceeded: Option<Key>,
    premises: Count,
}

impl PermitsNeverExceedLimit {
    fn on_version(&mut self, key: Key, version: Token, value: &Value) {
        self.limits.entry(key).or_default().insert(version, value.limit());
    }

    fn on_epoch(&mut self, service: &ServiceName, epoch: Epoch) {
        self.epochs.entry(service.clone()).or_default().insert(epoch);
    }

    /// The highest limit that may have been in force when this token was granted. `None`: unknown.
    fn limit_at(&self, world: &World, key: &Key, token: Token) -> Option<u32> {
        let limits = self.limits.get(key)?;
        let epoch = self.epochs.get(&key.0)?.range(..=Epoch(token)).next_back()?.0;
        if let Some((_, limit)) = limits.range(epoch..token).next_back() {
            return Some(*limit);
        }
        // A process outside the view was not asked.
        let view = world.latest.values().max_by_key(|view| view.number)?;
        let opened = world.history().opened_of(key).map(|ask| world.call(ask));
        let seen = opened
            .filter(|call| view.contains(call.process))
            .filter_map(|call| Some(call.sight.as_ref()?.version));
        let since = seen.filter(|version| *version < epoch).max()?;
        limits.range(since..epoch).map(|(_, limit)| *limit).max()
    }

    fn check(&mut self, world: &World, key: &Key) -> Verdict {
        let permits = |call: &Call| match call.mode {
            HoldMode::Permits(left) => Some(left),
            _ => None,
        };
        let believing: Vec<(Token, u32)> = world
            .history()
            .claims_of(key)
            .filter_map(|ask| Some((world.fence(ask)?, permits(world.call(ask))?)))
            .collect();
        let Some(last) = believing.iter().map(|(token, _)| *token).max() else { return Ok(()) };
        let Some(limit) = self.limit_at(world, key, last) else { return Ok(()) };
        self.premises += 1;
        let sum: u32 = believing.iter().map(|(_, permits)| permits).sum();
        if sum > limit {
            self.exceeded = Some(key.clone());
            return Err(format!("of {limit} permits {sum} are out: {believing:?}"));
        }
        Ok(())
    }
}

impl Invariant for PermitsNeverExceedLimit {
    fn name(&self) -> &'static str {
        "permits_never_exceed_limit"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.exceeded.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Sees { ask, sight } => {
                if let Some(key) = world.call(*ask).object.clone() {
                    self.on_version(key, sight.version, &sight.value);
                }
            }
            Observation::Sent { packet: Packet::Linked { message, .. }, .. } => match message {
                Message::Client(ClientMessage::Value { service, epoch, name, content, .. }) => {
                    self.on_epoch(service, *epoch);
                    let key = (service.clone(), Some(name.clone()));
                    self.on_version(key, content.version, &content.value);
                }
                Message::Client(ClientMessage::Grant { service, epoch, .. })
                | Message::Client(ClientMessage::Recover { service, epoch, .. }) => {
                    self.on_epoch(service, *epoch)
                }
                _ => {}
            },
            Observation::Event { event: Event::BecameGrantor { service, epoch }, .. } => {
                self.on_epoch(service, *epoch)
            }
            Observation::Answered { ask } if world.is_granted(*ask) => {
                if matches!(world.call(*ask).mode, HoldMode::Permits(_)) {
                    self.granted.push(*ask);
                }
            }
            Observation::Stepped { .. } => {
                for ask in std::mem::take(&mut self.granted) {
                    if let Some(key) = world.call(ask).keys.first().cloned()
                        && world.bounded
                    {
                        self.check(world, &key)?;
                    }
                }
            }
            _ => {}
        }
        Ok(())
    }
}
