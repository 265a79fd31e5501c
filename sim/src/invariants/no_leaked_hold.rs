//! `no_leaked_hold`: once all holds are released, every lock can be had from every member. Then all
//! tables of all members are empty.

use crate::history::{Ask, ClientRequest, lock_name};
use crate::liveness::Demand;
use crate::world::World;
use elderlock::protocol::{OpenRequest, Outcome, OwnerId, Value, Wait, Want};

/// The name of the invariant.
pub const NAME: &str = "no_leaked_hold";

/// Demands the invariant. False if the invariant is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    for key in world.history().keys() {
        let (service, name) = key.clone();
        for site in world.demanded().filter(|site| world.is_up(*site)).collect::<Vec<_>>() {
            let want = name.clone().map_or(Want::Suspension, Want::Lock);
            let ask = ask_for(world, site, service.as_str(), want, demand);
            if !world.is_granted(ask) {
                let what =
                    format!("m{site} cannot get {}: {:?}", lock_name(&key), world.outcome(ask));
                let lock = world.call(ask).lock();
                world.fail_about(NAME, Some(lock), what);
                return false;
            }
            world.release(ask);
            world.count_premise(NAME);
        }
    }
    for ask in world.history().opened().collect::<Vec<_>>() {
        if world.demanded().any(|site| site == world.call(ask).member) {
            world.release(ask);
        }
    }
    for (service, name) in world.history().objects() {
        let Some(name) = name else { continue };
        for site in world.demanded().filter(|site| world.is_up(*site)).collect::<Vec<_>>() {
            let want = Want::Open(OpenRequest::new(name.clone(), Value::default()));
            let ask = ask_for(world, site, service.as_str(), want, demand);
            if !world.is_granted(ask) {
                let what = format!(
                    "m{site} cannot open {name:?} of {}: {:?}",
                    service.as_str(),
                    world.outcome(ask)
                );
                world.fail(NAME, what);
                return false;
            }
            world.release(ask);
            world.count_premise(NAME);
        }
    }
    if !world.run_until(World::is_empty_everywhere, demand.answer) {
        let left: Vec<_> = world
            .demanded()
            .filter_map(|site| world.status(site))
            .map(|status| status.services)
            .collect();
        world.fail(NAME, format!("all holds are released and there is still {left:?}"));
        return false;
    }
    // A detour ends a member lease after the last fault, and the detour that answers it another
    // member lease later. Gossip may call a member unreachable some leases after the healing.
    if !world.run_until(World::is_at_rest, world.common.timing.member_lease * 6) {
        let left: Vec<_> =
            world.demanded().filter_map(|site| Some((site, world.sizes(site)?))).collect();
        world.fail(NAME, format!("nothing is asked and there is still {left:?}"));
        return false;
    }
    true
}

/// Asks, and waits for the answer. Where bounds are drawn tiny, a member has no room for a request
/// while it reports to a new grantor. It has none either while its open objects fill the bound. The
/// function then closes an object, if there is one, and asks again.
fn ask_for(world: &mut World, site: usize, service: &str, want: Want, demand: &Demand) -> Ask {
    let until = world.now + demand.answer.as_nanos() as u64;
    loop {
        let (request, limit) = (ClientRequest::Hold(want.clone()), Wait::AtMost(demand.answer));
        let ask = world.want(site, service, request, OwnerId::default(), limit, None);
        world.run_until(|world| world.is_answered(ask), demand.answer * 2);
        if world.outcome(ask) != Some(&Outcome::Busy) || world.now > until {
            return ask;
        }
        let opened = world.history().opened().find(|open| world.call(*open).member == site);
        if let Some(open) = opened {
            world.release(open);
        }
        world.run_for(world.common.timing.retry);
    }
}
