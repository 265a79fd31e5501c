//! `no_lost_wakeup`: once all is healed and holders give back what they get, every waiter is answered.

use crate::history::{Ask, Deed, Key, Mode};
use crate::liveness::Demand;
use crate::network::MS;
use crate::world::World;
use elderlock::protocol::{Opening, Owner, ServiceName, Value, Wait, Want};
use std::collections::BTreeSet;
use std::time::Duration;

/// The name.
pub const NAME: &str = "no_lost_wakeup";

/// As many permits as all who wait together may want.
const MANY: u32 = 1_000;

/// Demands it. False if it is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let until = world.now + demand.answer.as_nanos() as u64;
    let pools = open_pools(world);
    raise_limits(world, &pools);
    // What somebody had written before the healing may have come after that.
    let mut again = Some(world.now + demand.answer.as_nanos() as u64 / 2);
    loop {
        if again.is_some_and(|at| at <= world.now) {
            again = None;
            raise_limits(world, &pools);
        }
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

/// The objects that somebody waits for permits of, opened by one member.
fn open_pools(world: &mut World) -> Vec<(usize, ServiceName, Ask)> {
    let wanted = world.history().open().map(|ask| world.call(ask)).filter(|call| matches!(call.mode, Mode::Permits(_)));
    let pools: BTreeSet<Key> = wanted.flat_map(|call| call.keys.clone()).collect();
    let Some(place) = world.demanded().find(|place| world.is_up(*place)) else { return Vec::new() };
    let mut opened = Vec::new();
    for (service, name) in pools {
        let (Some(name), Ok(many)) = (name, Value::new(&MANY.to_le_bytes())) else { continue };
        let open = Deed::Hold(Want::Open(Opening::new(name, many)));
        let open = world.want(place, service.as_str(), open, Owner::default(), Wait::Forever, None);
        let timing = world.common.timing;
        world.run_until(|world| world.is_answered(open), timing.member_lease * 4);
        opened.push((place, service, open));
    }
    opened
}

/// Who waits for permits waits for their number, which nobody may want to raise: one member does.
fn raise_limits(world: &mut World, pools: &[(usize, ServiceName, Ask)]) {
    for (place, service, open) in pools {
        if let (true, Ok(many)) = (world.is_granted(*open), Value::new(&MANY.to_le_bytes())) {
            let put = Deed::Put(*open, many, None);
            world.want(*place, service.as_str(), put, Owner::default(), Wait::Forever, None);
        }
    }
}

fn is_demanded(world: &World, ask: Ask) -> bool {
    world.demanded().any(|place| place == world.call(ask).member)
}
