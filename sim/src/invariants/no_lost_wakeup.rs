//! `no_lost_wakeup`: once all is healed and holders release their grants, every waiter is answered.

use crate::history::{Ask, ClientRequest, HoldMode, Key};
use crate::liveness::Demand;
use crate::network::MS;
use crate::world::World;
use elderlock::protocol::{
    Limits, LockName, OpenRequest, Outcome, OwnerId, ServiceName, Value, Wait, Want,
};
use std::collections::BTreeSet;
use std::time::Duration;

/// The name of the invariant.
pub const NAME: &str = "no_lost_wakeup";

/// More permits than all waiters together may want.
const MANY: u32 = 1_000;

/// Demands the invariant. False if the invariant is broken.
pub fn demand(world: &mut World, demand: &Demand) -> bool {
    let until = world.now + demand.answer.as_nanos() as u64;
    let mut pools = pools(world);
    // A write from before the healing may change the limit after it was raised, so the limit is
    // raised once more.
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
/// and no client may raise it. One of the members then raises it.
struct Pool {
    site: usize,
    service: ServiceName,
    name: LockName,
    opened: Option<Ask>,
    raised: Option<Ask>,
}

impl Pool {
    /// Opens the object and raises the number of permits. Where bounds are drawn tiny, the member
    /// may have no room for the request, and asks again. If open objects and waits for permits take
    /// all the room, no answer makes room, so a client ends a request.
    fn raise(&mut self, world: &mut World) {
        for asked in [&mut self.opened, &mut self.raised] {
            if asked.is_some_and(|ask| world.outcome(ask) == Some(&Outcome::Busy)) {
                *asked = None;
                make_room(world, self.site);
            }
        }
        let Ok(many) = Value::new(&MANY.to_le_bytes()) else { return };
        let (request, asked) = match self.opened {
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
            request,
            OwnerId::default(),
            Wait::Forever,
            None,
        ));
    }
}

/// Ends a request of a member that has as many as it may have. The member closes an object that it
/// can spare. Without such an object it withdraws its latest request, once all requests without an
/// answer want permits.
fn make_room(world: &mut World, site: usize) {
    let limits = &world.common.limits;
    let are_bytes_tiny = limits.link.request_bytes < Limits::DEFAULT.link.request_bytes;
    let has_room = |requests: usize| requests < limits.requests as usize && !are_bytes_tiny;
    if world.sizes(site).is_none_or(|sizes| has_room(sizes.requests)) {
        return;
    }
    if let Some(spare) = find_spare(world, site) {
        world.release(spare);
        return;
    }
    let open: Vec<Ask> =
        world.history().open().filter(|ask| world.call(*ask).member == site).collect();
    if let Some(latest) = open.last().filter(|_| open.iter().all(|ask| wants_permits(world, *ask)))
    {
        world.cancel(*latest);
    }
}

/// Returns a call that has an object open which a later call of the member has open too. If there
/// is none, returns a call that has an object open whose permits no request waits for. The end of a
/// member's last opening answers its waits for permits of that object, so it would hide that they
/// are lost.
fn find_spare(world: &World, site: usize) -> Option<Ask> {
    let object = |ask: Ask| world.call(ask).object.as_ref();
    let opened: Vec<Ask> =
        world.history().opened().filter(|ask| world.call(*ask).member == site).collect();
    let is_open_twice =
        |ask: Ask| opened.iter().any(|later| *later > ask && object(*later) == object(ask));
    let is_wanted = |ask: Ask| {
        let mut waits = world.history().open().filter(|wait| wants_permits(world, *wait));
        waits.any(|wait| object(ask).is_some_and(|key| world.call(wait).keys.contains(key)))
    };
    let twice = opened.iter().find(|ask| is_open_twice(**ask));
    twice.or_else(|| opened.iter().find(|ask| !is_wanted(**ask))).copied()
}

fn wants_permits(world: &World, ask: Ask) -> bool {
    matches!(world.call(ask).mode, HoldMode::Permits(_))
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
