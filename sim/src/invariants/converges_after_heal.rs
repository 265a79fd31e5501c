//! `converges_after_heal`: with the network whole and every process running, one view with all
//! processes comes soon. If a quorum was lost for good, that view comes only after an operator
//! forces a member, and soon after that.

use crate::liveness::Demand;
use crate::world::World;

/// The name of the invariant.
pub const NAME: &str = "converges_after_heal";

/// Demands the invariant. False if the invariant is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let mut comes_about = world.run_until(World::is_settled, demand.converge);
    if !comes_about && world.broken().is_none() && world.quorum_is_lost() && world.force_one() {
        comes_about = world.run_until(World::is_settled, demand.converge);
    }
    if world.broken().is_some() {
        return false;
    }
    if comes_about {
        world.count_premise(NAME);
        return true;
    }
    let views: Vec<String> = world
        .demanded()
        .map(|site| {
            let view = world.view(site).map(|view| (view.number, view.members.len()));
            format!(
                "m{site} {view:?}{}",
                if world.is_ready(site) { "" } else { " without a lease" }
            )
        })
        .collect();
    world.fail(NAME, format!("after {:?}: {}", demand.converge, views.join(", ")));
    false
}
