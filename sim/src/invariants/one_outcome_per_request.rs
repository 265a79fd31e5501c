//! `one_outcome_per_request`: a request is answered once, and not after it was given up. A hold is
//! lost at most once. Wait limits are kept (P8). A process that ends in order owes no answer.

use super::{Count, Invariant, Verdict};
use crate::history::Call;
use crate::network::MS;
use crate::world::{Observation, UnaskedOutput, World};
use elderlock::protocol::{Event, Outcome, ProcessId, Wait};
use std::collections::BTreeSet;
use std::time::Duration;

/// How much later than its limit an answer may come, by the member's clock.
const LATE: Duration = Duration::from_nanos(MS);

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct OneOutcomePerRequest {
    ended: BTreeSet<ProcessId>,
    premises: Count,
}

impl OneOutcomePerRequest {
    fn check_limit(world: &World, call: &Call, outcome: &Outcome) -> Verdict {
        let peer = &world.sites[call.member];
        let timing = peer
            .node
            .as_ref()
            .and_then(|node| node.view())
            .map_or(world.common.timing, |view| view.timing);
        let limit = match call.wait {
            Wait::Try => timing.answer,
            Wait::AtMost(limit) => limit,
            Wait::Forever if *outcome == Outcome::TimedOut => {
                return Err("for ever has timed out".to_string());
            }
            Wait::Forever => return Ok(()),
        };
        let took = peer.clock.local(world.now).since(call.asked_local);
        if peer.pauses == call.pauses && took > limit + LATE {
            return Err(format!(
                "m{} answers {outcome:?} after {took:?}, the limit was {limit:?}",
                call.member
            ));
        }
        if *outcome == Outcome::TimedOut && call.wait != Wait::Try && took < limit {
            return Err(format!(
                "m{} times out after {took:?}, the limit is {limit:?}",
                call.member
            ));
        }
        Ok(())
    }
}

impl Invariant for OneOutcomePerRequest {
    fn name(&self) -> &'static str {
        "one_outcome_per_request"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Answers { ask, outcome } => {
                self.premises += 1;
                let call = world.call(*ask);
                // A member that finds an answer in the step in which the request is given up may
                // still tell it.
                let crossing =
                    call.released && call.released_at == world.now && call.outcome.is_none();
                if !call.is_open() && !crossing {
                    return Err(format!("m{} answers {outcome:?} to {call:?}", call.member));
                }
                Self::check_limit(world, call, outcome)?;
            }
            Observation::Loses { ask, reason } => {
                let call = world.call(*ask);
                let crossing =
                    call.released && call.released_at == world.now && call.lost.is_none();
                if !call.is_claim() && !crossing {
                    return Err(format!(
                        "m{} loses ({reason:?}) what it does not hold: {call:?}",
                        call.member
                    ));
                }
            }
            Observation::Unasked { site, request, output } => {
                let does = match output {
                    UnaskedOutput::Answer => "answers",
                    UnaskedOutput::Value => "sees for",
                    UnaskedOutput::Loss => "loses",
                    UnaskedOutput::Revocation => return Ok(()),
                };
                return Err(format!("m{site} {does} unknown {request:?}"));
            }
            Observation::Event {
                process,
                event: Event::Expelled | Event::Left { .. } | Event::Abandoned,
                ..
            } => {
                self.ended.insert(*process);
            }
            // The event may come before the answers, so they are looked for after the step.
            Observation::Stepped { .. } if !self.ended.is_empty() => {
                let history = world.history();
                for ask in history.open().chain(history.claims()) {
                    if self.ended.contains(&world.call(ask).process) {
                        return Err(format!(
                            "a process ended in order and owes an answer to {:?}",
                            world.call(ask)
                        ));
                    }
                }
                self.ended.clear();
            }
            _ => {}
        }
        Ok(())
    }
}
