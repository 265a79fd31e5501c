//! `objects_forget_the_gone`: a content that a grantor sends has the last writes of only those
//! members that have the object open by its table. So it does not grow as members come and go.
//!
//! The check comes when an acting grantor sends a value to a member.

use super::{Count, GrantorRecord, Invariant, Verdict};
use crate::world::{Observation, World};
use elderlock::protocol::{ClientMessage, GrantorState, Message, Packet};

/// See the module.
#[derive(Clone, Hash, Debug, Default)]
pub struct ObjectsForgetTheGone {
    premises: Count,
}

impl Invariant for ObjectsForgetTheGone {
    fn name(&self) -> &'static str {
        "objects_forget_the_gone"
    }

    fn premises(&self) -> u64 {
        self.premises.get()
    }

    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict {
        let Observation::Sent {
            site,
            packet:
                Packet::Linked {
                    message: Message::Client(ClientMessage::Value { service, name, content, .. }),
                    ..
                },
            ..
        } = observation
        else {
            return Ok(());
        };
        let Some(node) = &world.sites[*site].node else { return Ok(()) };
        let acts = |(of, _, state)| of == service && state == GrantorState::Acting;
        // A content is sent from the table as it was in this step, and may be sent again later.
        let is_present =
            node.objects(service).any(|(of, present)| of == name && *present == **content);
        if content.writes.is_empty() || !is_present || !node.grantors().any(acts) {
            return Ok(());
        }
        self.premises += 1;
        let kept = GrantorRecord::at(world, *site, service);
        let has_open = |process| {
            let opens = |hold: &elderlock::protocol::HoldReport| {
                hold.lock.want.opens() && hold.lock.want.names().contains(name)
            };
            kept.holds.iter().any(|((of, _), hold)| *of == process && opens(hold))
        };
        match content.writes.keys().find(|process| !has_open(**process)) {
            Some(process) => Err(format!(
                "m{site} keeps what {process} wrote into {name:?}, which has it open no more"
            )),
            None => Ok(()),
        }
    }
}
