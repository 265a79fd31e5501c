//! `tokens_rise`: the grants of a lock, in the order in which holders begin, carry rising tokens.
//! Inside the clock bound.
//!
//! Outside it two holds may overlap, and the hold with the lower token may begin later. Its grant
//! was long under way, or comes from a grantor that does not know its end yet. The store then
//! refuses the lower token. The rest holds for any clocks:
//!
//! - A token is of the latest range below it. The range's epoch was named, is of the same service,
//!   and is not later than that of the grantor that sends the token. (A grantor with a transferred
//!   table repeats its predecessor's grants.) With `epochs_rise`, which checks how ranges are
//!   dealt, the higher of two tokens is of the later epoch.
//! - The grantor of an epoch grants its tokens in their order, for any locks.
//! - At one site the grants of a lock carry rising tokens, in the order in which holders begin. So
//!   no later holder gets a token that its store would refuse.
//!
//! Inside the bound the store refuses no holder that believes in its lock
//! (`stale_writes_are_refused`).

use super::{Count, Highest, Invariant, Verdict};
use crate::history::{Ask, HoldMode, Key, nth};
use crate::world::{Observation, World};
use elderlock::protocol::{
    ClientMessage, Epoch, Event, LineageId, Message, Outcome, Packet, ServiceName, Slot, Token,
};
use std::collections::{BTreeMap, BTreeSet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct TokensRise {
    /// The last token of each lock and mode; outside the clock bound, also of each site.
    last: BTreeMap<(Option<usize>, Key), BTreeMap<HoldMode, Token>>,
    /// The first token of each range that a message has named, with its epoch.
    ranges: BTreeMap<(LineageId, Token), (ServiceName, Epoch)>,
    /// Grants that were sent: a retransmission is not news.
    sent: BTreeSet<(LineageId, Token)>,
    highest: Highest<(LineageId, Epoch)>,
    premises: Count,
    /// The lock of a grant that should not have been sent.
    wrong: Option<Key>,
}

impl TokensRise {
    /// The epoch of a token.
    fn epoch_of(
        &self,
        lineage: LineageId,
        token: Token,
        service: &ServiceName,
    ) -> Result<Epoch, String> {
        match self.ranges.range((lineage, Token::new(Slot(0), 0))..=(lineage, token)).next_back() {
            Some((_, (of, epoch))) if of == service => Ok(*epoch),
            Some(((_, first), (of, _))) => {
                Err(format!("{token:?} is granted for {service}, above {first:?} of {of}"))
            }
            None => Err(format!("{token:?} is granted for {service}, below every epoch")),
        }
    }

    fn on_epoch(&mut self, lineage: LineageId, service: &ServiceName, epoch: Epoch) {
        self.ranges.entry((lineage, epoch.0)).or_insert_with(|| (service.clone(), epoch));
    }

    fn on_grant(
        &mut self,
        (site, lineage): (usize, LineageId),
        service: &ServiceName,
        epoch: Epoch,
        token: Token,
    ) -> Verdict {
        if !self.sent.insert((lineage, token)) {
            return Ok(());
        }
        self.on_epoch(lineage, service, epoch);
        let own = self.epoch_of(lineage, token, service)?;
        if own > epoch {
            return Err(format!("m{site} grants {token:?} of {own:?} in the earlier {epoch:?}"));
        }
        if own == epoch {
            if let Some(before) = self.highest.before(&(lineage, own)) {
                self.premises += 1;
                if before > token {
                    return Err(format!("m{site} grants {token:?} after {before:?}"));
                }
            }
            self.highest.add((lineage, own), token);
        }
        Ok(())
    }

    /// Notes the epochs that grant before they act. A grantor that is alone in its view asks no
    /// other member, so no message has named its epoch.
    fn note_open(&mut self, world: &World) {
        for node in world.sites.iter().filter_map(|site| site.node.as_ref()) {
            let open = node.grantors().filter(|(of, ..)| node.open_parts(of) > Some(0));
            for (service, epoch, _) in open {
                self.on_epoch(world.dealt_apart(node.process()), service, epoch);
            }
        }
    }

    fn on_hold(&mut self, world: &World, ask: Ask, first: Token) -> Verdict {
        self.note_open(world);
        let call = world.call(ask);
        let site = (!world.bounded).then_some(call.member);
        // The number of permits makes no difference.
        let kind =
            |mode| if matches!(mode, HoldMode::Permits(_)) { HoldMode::Permits(0) } else { mode };
        let mode = kind(call.mode);
        for (index, key) in call.keys.iter().enumerate() {
            let token = nth(first, index);
            self.epoch_of(world.dealt_apart(call.process), token, &key.0)?;
            let last = self.last.entry((site, key.clone())).or_default();
            // Compatible holds begin in any order.
            let clashing = last
                .iter()
                .filter(|(other, _)| !other.suffers(mode))
                .map(|(_, token)| *token)
                .max();
            if let Some(before) = clashing {
                self.premises += 1;
                if before >= token {
                    return Err(format!("{ask:?} gets {token:?} for {key:?} after {before:?}"));
                }
            }
            let own = last.entry(mode).or_insert(token);
            *own = token.max(*own);
        }
        Ok(())
    }
}

impl Invariant for TokensRise {
    fn name(&self) -> &'static str {
        "tokens_rise"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.wrong.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Answers { ask, outcome: Outcome::Granted { token, .. } } => {
                self.on_hold(world, *ask, *token)
            }
            Observation::Answers { ask, outcome: Outcome::Upgraded { hold, token } } => {
                let Some(of) = world.history().find(world.call(*ask).process, *hold) else {
                    return Ok(());
                };
                let site = (!world.bounded).then_some(world.call(of).member);
                let last =
                    world.call(of).keys.first().and_then(|key| self.last.get(&(site, key.clone())));
                // An upgrade of a hold that is the lock already returns the same token.
                if last.and_then(|last| last.get(&HoldMode::Alone)) == Some(token) {
                    return Ok(());
                }
                // The share is the lock by now.
                self.on_hold(world, of, *token)
            }
            Observation::Sent {
                site, process, to, packet: Packet::Linked { message, .. }, ..
            } => match message {
                Message::Client(ClientMessage::Upgraded { service, epoch, token, .. }) => {
                    self.on_grant((*site, world.dealt_apart(*process)), service, *epoch, *token)
                }
                Message::Client(ClientMessage::Grant {
                    service, epoch, token, request, ..
                }) => {
                    let verdict = self.on_grant(
                        (*site, world.dealt_apart(*process)),
                        service,
                        *epoch,
                        *token,
                    );
                    if verdict.is_err() {
                        let ask = to.and_then(|to| world.history().find(to, *request));
                        self.wrong = ask.and_then(|ask| world.call(ask).keys.first().cloned());
                    }
                    verdict
                }
                Message::Client(ClientMessage::Recover { service, epoch, .. }) => {
                    self.on_epoch(world.dealt_apart(*process), service, *epoch);
                    Ok(())
                }
                _ => Ok(()),
            },
            // This includes an elder's ranges for itself.
            Observation::Event {
                process,
                event: Event::Supplied { service, epoch, first },
                ..
            } => {
                self.ranges
                    .insert((world.dealt_apart(*process), *first), (service.clone(), *epoch));
                Ok(())
            }
            Observation::Event {
                process, event: Event::BecameGrantor { service, epoch }, ..
            } => {
                self.on_epoch(world.dealt_apart(*process), service, *epoch);
                Ok(())
            }
            Observation::WriteRefused { ask, believes: true } if world.bounded => {
                let lock = world.call(*ask).lock();
                Err(format!("a believing holder of {lock} was refused by the store"))
            }
            Observation::Stepped { .. } => {
                self.highest.on_stepped();
                Ok(())
            }
            _ => Ok(()),
        }
    }
}
