//! `no_lost_wakeup`: once all is healed and holders give back what they get, every waiter is answered.

use crate::history::Ask;
use crate::liveness::Demand;
use crate::network::MS;
use crate::world::World;
use std::time::Duration;

/// The name.
pub const NAME: &str = "no_lost_wakeup";

/// Demands it. False if it is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let until = world.now + demand.answer.as_nanos() as u64;
    loop {
        let claims: Vec<Ask> = world.history().claims().filter(|ask| is_demanded(world, *ask)).collect();
        for ask in claims {
            world.release(ask);
        }
        if !world.history().open().chain(world.history().claims()).any(|ask| is_demanded(world, ask)) {
            world.count_premise(NAME);
            return true;
        }
        if world.now >= until || world.broken().is_some() {
            break;
        }
        world.run_for(Duration::from_nanos(5 * MS));
    }
    let open = world.history().open().filter(|ask| is_demanded(world, *ask));
    let open: Vec<String> = open.map(|ask| format!("{:?}", world.call(ask))).collect();
    world.fail(NAME, format!("still waiting after {:?}: {}", demand.answer, open.join("\n  ")));
    false
}

fn is_demanded(world: &World, ask: Ask) -> bool {
    world.demanded().any(|place| place == world.call(ask).member)
}
