//! `batch_is_atomic`: a granted batch has all of its locks. As long as its holder believes in the
//! locks, the grantor has all of them for the holder. Each lock has the token that follows from its
//! index in the batch. A batch that waits has none.
//!
//! The check reads the table of the latest acting grantor. It does so whenever that grantor began
//! to act or has a new view, and when a batch is granted. The invariant holds inside the clock
//! bound.

use super::{Count, Invariant, Latest, Verdict};
use crate::history::{Ask, Key};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, GrantorState, LockName, ProcessId, RequestId, Token};
use std::collections::BTreeMap;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct BatchIsAtomic {
    latest: Latest,
    /// The member has a new view, or began to act, in the present step.
    changed: bool,
    /// A batch that was granted in the present step.
    granted: bool,
    torn: Option<Key>,
    premises: Count,
}

impl BatchIsAtomic {
    fn check(&mut self, world: &World, site: usize) -> Verdict {
        let peer = &world.sites[site];
        let Some(node) = peer.node.as_ref().filter(|_| peer.is_alive() && world.is_ready(site))
        else {
            return Ok(());
        };
        for (service, epoch, state) in node.grantors() {
            if state != GrantorState::Acting || self.latest.of(service) > Some(epoch) {
                continue;
            }
            let held: BTreeMap<&LockName, (ProcessId, RequestId, Token)> = node
                .held(service)
                .map(|(name, process, request, token)| (name, (process, request, token)))
                .collect();
            let is_batch =
                |ask: &Ask| world.call(*ask).keys.len() > 1 && world.call(*ask).service == *service;
            for ask in
                world.history().claims().filter(is_batch).filter(|ask| world.fence(*ask).is_some())
            {
                let call = world.call(ask);
                if !node.view().is_some_and(|view| view.contains(call.process)) {
                    continue;
                }
                for (key, token) in call.tokens() {
                    self.premises += 1;
                    let there = key.1.as_ref().and_then(|name| held.get(name));
                    if there != Some(&(call.process, call.request, token)) {
                        self.torn = Some(key.clone());
                        return Err(format!(
                            "m{site} has {there:?} at {key:?} of a batch with {token:?}: {call:?}"
                        ));
                    }
                }
            }
            for ask in world.history().open().filter(is_batch) {
                let call = world.call(ask);
                let has = |key: &&Key| {
                    let holder = key.1.as_ref().and_then(|name| held.get(name));
                    holder.is_some_and(|(process, request, _)| {
                        (*process, *request) == (call.process, call.request)
                    })
                };
                let some = call.keys.iter().filter(has).count();
                if some != 0 && some != call.keys.len() {
                    self.torn = call.keys.first().cloned();
                    return Err(format!("m{site} has granted {some} locks of a batch: {call:?}"));
                }
            }
        }
        Ok(())
    }
}

impl Invariant for BatchIsAtomic {
    fn name(&self) -> &'static str {
        "batch_is_atomic"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.torn.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Event { event: Event::ViewInstalled(_), .. } => self.changed = true,
            Observation::Event { event: Event::BecameGrantor { service, epoch }, .. } => {
                self.latest.begins(service, *epoch);
                self.changed = true;
            }
            Observation::Answered { ask }
                if world.is_granted(*ask) && world.call(*ask).keys.len() > 1 =>
            {
                self.granted = true
            }
            Observation::Stepped { site } => {
                let changed = std::mem::take(&mut self.changed);
                if !world.bounded {
                    return Ok(());
                }
                if std::mem::take(&mut self.granted) {
                    return world.sites().try_for_each(|site| self.check(world, site));
                }
                if changed {
                    return self.check(world, *site);
                }
            }
            _ => {}
        }
        Ok(())
    }
}
