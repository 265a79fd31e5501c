//! `no_leaked_hold`: once all is given back every lock can be had from every member, and then no member's tables have
//! anything in them.

use crate::history::{Ask, Deed, lock_name};
use crate::liveness::Demand;
use crate::world::World;
use elderlock::protocol::{Opening, Owner, Value, Wait, Want};

/// The name.
pub const NAME: &str = "no_leaked_hold";

/// Demands it. False if it is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    for key in world.history().keys() {
        let (service, name) = key.clone();
        for place in world.demanded().filter(|place| world.is_up(*place)).collect::<Vec<_>>() {
            let deed = Deed::Hold(name.clone().map_or(Want::Suspension, Want::Lock));
            let limit = Wait::AtMost(demand.answer);
            let ask = world.want(place, service.as_str(), deed, Owner::default(), limit, None);
            if !granted(world, ask, demand) {
                let what = format!("m{place} cannot get {}: {:?}", lock_name(&key), world.outcome(ask));
                let lock = world.call(ask).lock();
                world.fail_about(NAME, Some(lock), what);
                return false;
            }
            world.release(ask);
            world.count_premise(NAME);
        }
    }
    for ask in world.history().opened().collect::<Vec<_>>() {
        if world.demanded().any(|place| place == world.call(ask).member) {
            world.release(ask);
        }
    }
    for (service, name) in world.history().objects() {
        let Some(name) = name else { continue };
        for place in world.demanded().filter(|place| world.is_up(*place)).collect::<Vec<_>>() {
            let deed = Deed::Hold(Want::Open(Opening::new(name.clone(), Value::default())));
            let limit = Wait::AtMost(demand.answer);
            let ask = world.want(place, service.as_str(), deed, Owner::default(), limit, None);
            if !granted(world, ask, demand) {
                let what = format!("m{place} cannot open {name:?} of {}: {:?}", service.as_str(), world.outcome(ask));
                world.fail(NAME, what);
                return false;
            }
            world.release(ask);
            world.count_premise(NAME);
        }
    }
    if !world.run_until(World::is_empty_everywhere, demand.answer) {
        let left: Vec<_> =
            world.demanded().filter_map(|place| world.status(place)).map(|status| status.services).collect();
        world.fail(NAME, format!("all is given back and there is still {left:?}"));
        return false;
    }
    // A detour ends a member lease after the last trouble, and the answers to it another one later; and gossip may call
    // somebody down some leases after the healing.
    if !world.run_until(World::is_at_rest, world.common.timing.member_lease * 6) {
        let left: Vec<_> = world.demanded().filter_map(|place| Some((place, world.sizes(place)?))).collect();
        world.fail(NAME, format!("nothing is asked and there is still {left:?}"));
        return false;
    }
    true
}

fn granted(world: &mut World, ask: Ask, demand: &Demand) -> bool {
    world.run_until(|world| world.is_answered(ask), demand.answer * 2);
    world.is_granted(ask)
}
