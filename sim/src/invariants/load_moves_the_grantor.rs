//! `load_moves_the_grantor`: a member that follows the load asks to grant a service only if its own
//! grants show that it makes most of the requests. There is a span of at least three windows, by
//! the member's clock and within one epoch. It begins no earlier than the grant that led to the
//! last bid. In the span the member got at least 48 tokens, and two thirds of all tokens granted
//! between its first and last one.
//!
//! Members that keep locks are exempt: they get tokens that no client sees.

use super::{Count, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{Event, Outcome, ProcessId, ServiceName, Time, Token};
use std::collections::{BTreeMap, VecDeque};

/// The fewest tokens of a member's own in three windows.
const LEAST: u64 = 3 * 16;
/// Grants that are remembered of each service, and of each member.
const REMEMBERED: usize = 1 << 12;

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct LoadMovesTheGrantor {
    /// The first token and the number of tokens of the latest grants of each service.
    granted: BTreeMap<ServiceName, BTreeMap<Token, u64>>,
    /// The grants of each process since its last bid, the latest grant at the end. The first entry
    /// has no tokens: it is the end of the grant after which the process bid.
    own: BTreeMap<(ServiceName, ProcessId), VecDeque<OwnGrant>>,
    premises: Count,
}

/// A grant of a process: its time by the process's own clock, its first token, and its number of
/// tokens.
#[derive(Clone, Copy, Hash, Debug)]
struct OwnGrant {
    at: Time,
    token: Token,
    count: u64,
}

impl LoadMovesTheGrantor {
    fn on_grant(&mut self, world: &World, call: &crate::history::Call, token: Token) {
        let crate::history::ClientRequest::Hold(want) = &call.request_kind else { return };
        let count = u64::from(want.tokens());
        let all = self.granted.entry(call.service.clone()).or_default();
        all.insert(token, count);
        if all.len() > REMEMBERED {
            all.pop_first();
        }
        let own = self.own.entry((call.service.clone(), call.process)).or_default();
        own.push_back(OwnGrant {
            at: world.sites[call.member].clock.local(world.now),
            token,
            count,
        });
        if own.len() > REMEMBERED {
            own.pop_front();
        }
    }

    /// Returns whether a span shows that the process has most of the load.
    fn has_most(&self, world: &World, at: &(ServiceName, ProcessId), now: Time) -> bool {
        let (Some(own), Some(all)) = (self.own.get(at), self.granted.get(&at.0)) else {
            return false;
        };
        let Some(OwnGrant { token: last, .. }) = own.back() else { return false };
        let span = world.common.timing.member_lease / 4 * 3;
        let mut mine = 0;
        own.iter().rev().any(|grant| {
            mine += grant.count;
            let all: u64 = all.range(grant.token..=*last).map(|(_, count)| count).sum();
            grant.at + span <= now && mine >= LEAST && mine * 3 >= all * 2
        })
    }
}

impl Invariant for LoadMovesTheGrantor {
    fn name(&self) -> &'static str {
        "load_moves_the_grantor"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        if !world.follows {
            return Ok(());
        }
        match observation {
            Observation::Answers {
                ask,
                outcome: Outcome::Granted { token, .. } | Outcome::Opened { token, .. },
            } => self.on_grant(world, world.call(*ask), *token),
            Observation::Event { site, process, event: Event::FollowsLoad { service } } => {
                self.premises += 1;
                let at = (service.clone(), *process);
                let now = world.sites[*site].clock.local(world.now);
                let has_most = world.keeps || self.has_most(world, &at, now);
                let own = self.own.entry(at).or_default();
                if !has_most {
                    return Err(format!(
                        "m{site} asks to grant {service} because of its load, and its {} grants \
                         since it asked last are not most of them for three windows",
                        own.len()
                    ));
                }
                if let Some(OwnGrant { token, count, .. }) = own.pop_back() {
                    own.clear();
                    own.push_back(OwnGrant { at: now, token: token.plus(count), count: 0 });
                }
            }
            Observation::Ends { process, .. } => {
                self.own.retain(|(_, of), _| of != process);
            }
            _ => {}
        }
        Ok(())
    }
}
