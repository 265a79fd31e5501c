//! `no_writer_with_reader`: no holder believes in a lock while another believes in a share of it or
//! in permits, and none in a share beside permits. Stopped processes count, as in
//! `exclusive_by_lease`. Inside the clock bound.

use super::{Count, Invariant, Verdict};
use crate::history::{Ask, HoldMode, Key};
use crate::world::{Observation, World};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct NoWriterWithReader {
    premises: Count,
    mixed: Option<Key>,
}

impl Invariant for NoWriterWithReader {
    fn name(&self) -> &'static str {
        "no_writer_with_reader"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn lock(&self) -> Option<&Key> {
        self.mixed.as_ref()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        match observation {
            Observation::Answered { ask } if world.is_granted(*ask) => {
                self.premises += u64::from(world.call(*ask).mode != HoldMode::Alone);
            }
            Observation::Stepped { .. } => {}
            _ => return Ok(()),
        }
        if !world.bounded {
            return Ok(());
        }
        for (key, claims) in world.history().crowded() {
            let mode = |ask: &Ask| world.call(*ask).mode;
            // Another invariant checks two exclusive holds.
            let Some(first) = claims.iter().find(|ask| mode(ask) != HoldMode::Alone) else {
                continue;
            };
            if claims.iter().all(|ask| mode(ask).suffers(mode(first))) {
                continue;
            }
            let believing: Vec<&Ask> =
                claims.iter().filter(|ask| world.fence(**ask).is_some()).collect();
            let is_beside = |one: &Ask, other: &Ask| {
                !mode(one).suffers(mode(other))
                    && (mode(one), mode(other)) != (HoldMode::Alone, HoldMode::Alone)
            };
            let pair = believing
                .iter()
                .find_map(|one| Some((one, believing.iter().find(|other| is_beside(one, other))?)));
            if let Some((one, other)) = pair {
                let holder_text = |ask: &Ask| {
                    format!(
                        "m{} as {:?} with {:?}",
                        world.call(*ask).member,
                        mode(ask),
                        world.token(*ask)
                    )
                };
                self.mixed = Some(key.clone());
                return Err(format!(
                    "{key:?} is held by {} beside {}",
                    holder_text(one),
                    holder_text(other)
                ));
            }
        }
        Ok(())
    }
}
