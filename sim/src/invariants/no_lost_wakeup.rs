//! `no_lost_wakeup`: once all is healed and holders release their grants, every waiter is answered.

use crate::history::{Ask, ClientRequest, HoldMode, Key};
use crate::liveness::Demand;
use crate::network::MS;
use crate::world::World;
use elderlock::protocol::{
    LockName, OpenRequest, Outcome, OwnerId, ServiceName, Value, Wait, Want,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// The name.
pub const NAME: &str = "no_lost_wakeup";

/// More permits than all waiters together may want.
const MANY: u32 = 1_000;

/// Demands it. False if it is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let until = world.now + demand.answer.as_nanos() as u64;
    let mut pools = pools(world);
    // A write from before the healing may have come after that.
    let mut again = Some(world.now + demand.answer.as_nanos() as u64 / 2);
    loop {
        if again.is_some_and(|at| at <= world.now) {
            again = None;
            pools.iter_mut().for_each(|pool| pool.raised = None);
        }
        pools.iter_mut().for_each(|pool| pool.raise(world));
        let claims: Vec<Ask> =
            world.history().claims().filter(|ask| is_demanded(world, *ask)).collect();
        for ask in claims {
            world.release(ask);
        }
        if !world
            .history()
            .open()
            .chain(world.history().claims())
            .any(|ask| is_demanded(world, ask))
        {
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

/// An object with a request that waits for permits. Their number may be too small for that request,
/// and no client may raise it: one member does.
struct Pool {
    site: usize,
    service: ServiceName,
    name: LockName,
    opened: Option<Ask>,
    raised: Option<Ask>,
}

impl Pool {
    /// Opens it and raises the number. Where bounds are drawn tiny, the member may have no room for
    /// the request: it asks again. If waits for permits take all the room, no answer makes any:
    /// its client withdraws one of them.
    fn raise(&mut self, world: &mut World) {
        for asked in [&mut self.opened, &mut self.raised] {
            if asked.is_some_and(|ask| world.outcome(ask) == Some(&Outcome::Busy)) {
                *asked = None;
                make_room(world, self.site);
            }
        }
        let Ok(many) = Value::new(&MANY.to_le_bytes()) else { return };
        let (deed, asked) = match self.opened {
            None => (
                ClientRequest::Hold(Want::Open(OpenRequest::new(self.name.clone(), many))),
                &mut self.opened,
            ),
            Some(open) if world.is_granted(open) && self.raised.is_none() => {
                (ClientRequest::Put(open, many, None), &mut self.raised)
            }
            Some(_) => return,
        };
        *asked = Some(world.want(
            self.site,
            self.service.as_str(),
            deed,
            OwnerId::default(),
            Wait::Forever,
            None,
        ));
    }
}

/// Withdraws the latest request of a member, once all that are open there want permits.
fn make_room(world: &mut World, site: usize) {
    let wants_permits = |ask: &Ask| matches!(world.call(*ask).mode, HoldMode::Permits(_));
    let open: Vec<Ask> =
        world.history().open().filter(|ask| world.call(*ask).member == site).collect();
    if let Some(latest) = open.last().filter(|_| open.iter().all(wants_permits)) {
        world.cancel(*latest);
    }
}

fn pools(world: &World) -> Vec<Pool> {
    let Some(site) = world.demanded().find(|site| world.is_up(*site)) else { return Vec::new() };
    let wanted = world
        .history()
        .open()
        .map(|ask| world.call(ask))
        .filter(|call| matches!(call.mode, HoldMode::Permits(_)));
    let keys: BTreeSet<Key> = wanted.flat_map(|call| call.keys.clone()).collect();
    let pool = |(service, name): Key| {
        Some(Pool { site, service, name: name?, opened: None, raised: None })
    };
    keys.into_iter().filter_map(pool).collect()
}

fn is_demanded(world: &World, ask: Ask) -> bool {
    world.demanded().any(|site| site == world.call(ask).member)
}
