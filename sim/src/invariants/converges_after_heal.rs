//! `converges_after_heal`: with the network whole and every process running there is soon one view with everybody,
//! unless a quorum was lost for good.

use crate::liveness::Demand;
use crate::world::World;

/// The name.
pub const NAME: &str = "converges_after_heal";

/// Demands it. False if it cannot be demanded of this run.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    if world.run_until(World::is_settled, demand.converge) {
        world.count_premise(NAME);
        return true;
    }
    if world.broken().is_some() || world.quorum_is_lost() {
        return false;
    }
    let views: Vec<String> = world
        .demanded()
        .map(|place| {
            let view = world.view(place).map(|view| (view.number, view.members.len()));
            format!("m{place} {view:?}{}", if world.is_ready(place) { "" } else { " without a lease" })
        })
        .collect();
    world.fail(NAME, format!("after {:?}: {}", demand.converge, views.join(", ")));
    false
}
