//! The scopes that are searched. In all of them the elder is m0.

use crate::check::scope::{DeliveryOrder, LOCK, SERVICE, Scope};
use crate::history::{Ask, ClientRequest};
use crate::kind::kind;
use crate::step::{ClientWant, Step};
use crate::world::World;
use elderlock::protocol::{LockName, OwnerId, Wait, Want};
use std::collections::BTreeSet;
use std::time::Duration;

/// Three members in one view, on one host, and nothing under way. Site 3 is free for a joiner. The
/// joiner knows one seed, and not the elder, so that it sends fewer packets and its request is
/// passed on.
fn three(world: World) -> World {
    three_with_clocks(world, [0; 3])
}

fn two(world: World) -> World {
    let mut world = world.members(2).joiners(1).hosts(&[0; 3]);
    world.sites[2].seeds = BTreeSet::from([world.sites[1].addr]);
    world.settle();
    world.run_for(Duration::from_secs(1));
    rest(&mut world);
    world
}

fn three_with_clocks(world: World, ppm: [i32; 3]) -> World {
    let mut world = world.members(3).joiners(1).hosts(&[0; 4]);
    for (site, ppm) in ppm.into_iter().enumerate() {
        world = world.clock(site, ppm);
    }
    world.sites[3].seeds = BTreeSet::from([world.sites[1].addr]);
    world.settle();
    world.run_for(Duration::from_secs(1));
    rest(&mut world);
    world
}

/// Goes on until nothing is under way.
fn rest(world: &mut World) {
    let is_quiet = |world: &World| world.under_way().next().is_none();
    assert!(world.run_until(is_quiet, Duration::from_secs(1)), "it does not come to rest");
}

/// [`three`], and the member at `grantor` is the grantor of the lock's service, and holds the lock
/// if `holds` is set.
fn granted_by(world: World, ppm: [i32; 3], grantor: usize, holds: bool) -> (World, Ask) {
    let mut world = three_with_clocks(world, ppm);
    let ask = world.hold_lock(grantor, SERVICE, LOCK);
    if !holds {
        world.release(ask);
    }
    world.run_for(Duration::from_millis(500));
    rest(&mut world);
    assert_eq!((world.elder(), world.grantor(SERVICE)), (0, grantor));
    (world, ask)
}

/// [`three`] with data directories, and the elder has just asked the others to accept a view with
/// m3. The process of m3 has ended. It is in the next view if that is decided, and sends nothing.
fn vote_on_joiner(world: World) -> World {
    let mut world = three(world.durable());
    world.sites[3].host = 3;
    world.start(3);
    let is_asked =
        |world: &World| world.under_way().any(|(_, parcel)| kind(&parcel.packet) == "Accept");
    assert!(world.run_until(is_asked, Duration::from_secs(1)), "no member is asked");
    world.crash(3);
    world
}

fn elder_grants(world: World) -> World {
    granted_by(world, [0; 3], 0, false).0
}

fn elder_grants_and_holds(world: World) -> World {
    granted_by(world, [0; 3], 0, true).0
}

fn another_grants(world: World) -> World {
    granted_by(world, [0; 3], 1, false).0
}

fn another_grants_and_holds(world: World) -> World {
    granted_by(world, [0; 3], 1, true).0
}

/// m0 is elder, grants and holds, and is cut off from the others. The clocks are as far apart as
/// they may be: the others' timers end early, and m0's lease lasts long.
fn elder_is_cut_off(world: World) -> World {
    let error = 20_000;
    let (mut world, _) = granted_by(world, [-error, error, error], 0, true);
    for other in [1, 2] {
        world.cut(0, other);
    }
    world
}

/// m2 holds the lock, which m0 granted. It is cut off while its last renewal is under way, and its
/// clock runs slow.
fn holder_is_cut_off(world: World) -> World {
    let error = 20_000;
    let (mut world, ask) = granted_by(world, [error, error, -error], 0, true);
    world.release(ask);
    let ask = world.hold_lock(2, SERVICE, LOCK);
    assert!(world.is_granted(ask));
    world.run_for(Duration::from_millis(500));
    let pulse = world.hold_kind(0, 2, "Pulse");
    world.run_until(|world| world.matched(pulse) > 0, Duration::from_secs(1));
    for other in [0, 1] {
        world.cut(2, other);
    }
    rest(&mut world);
    world.let_go(pulse);
    world
}

/// Packets that only keep leases and links alive: little depends on their order.
fn upkeep(_: usize, _: usize, kind: &str) -> bool {
    ["Beat", "Pulse", "Ack"].contains(&kind)
}

/// Packets of upkeep, and greetings: a member without a lease sends hellos all the time.
fn upkeep_and_greetings(from: usize, to: usize, kind: &str) -> bool {
    upkeep(from, to, kind) || ["Hello", "HelloReply"].contains(&kind)
}

fn to_m2(_: usize, to: usize, kind: &str) -> bool {
    to == 2 && kind == "Pulse"
}

fn from_m0(from: usize, _: usize, _: &str) -> bool {
    from == 0
}

/// Packets of upkeep, greetings, and the questions that are repeated until there is a view:
/// pre-votes and joins.
fn upkeep_and_questions(from: usize, to: usize, kind: &str) -> bool {
    upkeep_and_greetings(from, to, kind) || ["PreVote", "PreVoteReply", "Join"].contains(&kind)
}

/// Packets of upkeep, greetings and repeated questions, and the statements of a witness about a
/// death. All members hear these statements at one instant.
fn upkeep_questions_and_deaths(from: usize, to: usize, kind: &str) -> bool {
    upkeep_and_questions(from, to, kind) || kind == "Vouch"
}

fn from_m0_to_m2(from: usize, to: usize, _: &str) -> bool {
    (from, to) == (0, 2)
}

fn all_but_to_m2(from: usize, to: usize, kind: &str) -> bool {
    upkeep_and_greetings(from, to, kind) && !to_m2(from, to, kind)
}

/// A joiner, and a crash of any member.
pub const VIEWS: Scope = Scope {
    name: "views",
    about: "one process joins and any one is killed; in the quick form there are two members",
    start: three,
    crashes: 1,
    mortal: &[0, 1, 2, 3],
    joiners: &[3],
    at_once: upkeep,
    smaller: |scope| Scope { start: two, mortal: &[0, 1, 2], joiners: &[2], ..scope },
    ..Scope::STILL
};

/// The elder is the grantor, and may die.
pub const TAKEOVER: Scope = Scope {
    name: "takeover",
    about: "two want a lock; the elder, which is the grantor, or another is killed",
    start: elder_grants,
    crashes: 1,
    mortal: &[0, 1, 2],
    asks: &[1, 2],
    releases: true,
    faults: 2,
    leaps: &[80],
    at_once: upkeep,
    ..Scope::STILL
};

/// The grantor is not the elder, and may die.
pub const RECOVERY: Scope = Scope {
    name: "recovery",
    about: "as takeover, and m1 grants, not the elder",
    start: another_grants,
    asks: &[0, 2],
    ..TAKEOVER
};

/// Two clients wait for the lock that the grantor holds, and the grantor dies.
pub const QUEUE: Scope = Scope {
    name: "queue",
    about: "two wait for a lock of the elder, which is the grantor, until the elder is killed; \
        they give up, or release",
    start: elder_grants_and_holds,
    mortal: &[0],
    cancels: true,
    faults: 0,
    leaps: &[30],
    ..TAKEOVER
};

/// No member sees the end of a killed process: leases run out.
pub const SILENCE: Scope = Scope {
    name: "silence",
    about: "two want a lock; the elder, which is the grantor, or another is killed, and no member \
        sees it: leases run out",
    vouched: false,
    faults: 0,
    leaps: &[1_500, 100, 3_000, 1_000],
    at_once: upkeep_and_greetings,
    ..TAKEOVER
};

/// Gossip calls a holder that lives unreachable.
pub const RUMOUR: Scope = Scope {
    name: "rumour",
    about: "gossip tells the grantor that a living member is unreachable",
    crashes: 0,
    faults: 0,
    leaps: &[],
    rumours: &[(0, 1)],
    ..TAKEOVER
};

/// The grantor says goodbye.
pub const LEAVER: Scope = Scope {
    name: "leaver",
    about: "the grantor, not the elder, says goodbye; two want the lock",
    start: another_grants,
    crashes: 0,
    faults: 0,
    leaps: &[],
    leavers: &[1],
    asks: &[2, 0],
    releases: false,
    larger: |scope| Scope { asks: &[2, 0, 0], ..scope },
    ..TAKEOVER
};

/// A table changes hands, and perhaps again before it has arrived.
pub const TRANSFER: Scope = Scope {
    name: "transfer",
    about: "m1 grants and holds; the elder and m2 ask to become grantor, and m2 wants the lock; \
        any member is killed",
    start: another_grants_and_holds,
    crashes: 1,
    mortal: &[0, 1, 2],
    asks: &[2],
    turks: &[2, 0],
    releases: true,
    leaps: &[200],
    at_once: upkeep,
    larger: |scope| Scope { asks: &[2, 0], faults: 1, ..scope },
    ..Scope::STILL
};

/// m1 grants, and m2 keeps the lock, which is free.
fn another_grants_and_m2_keeps(world: World) -> World {
    kept_by_m2(world.keeping(), Want::Lock)
}

/// m1 grants, and m2 keeps a share of the lock, which is free.
fn another_grants_and_m2_keeps_a_share(world: World) -> World {
    kept_by_m2(world.keeping_shares(), Want::Share)
}

fn kept_by_m2(world: World, want: fn(LockName) -> Want) -> World {
    let (mut world, _) = granted_by(world, [0; 3], 1, false);
    let name = LockName::new(LOCK.as_bytes()).expect("a good name");
    for _ in 0..2 {
        let want = ClientRequest::Hold(want(name.clone()));
        let ask = world.want(2, SERVICE, want, OwnerId::default(), Wait::Forever, None);
        world.granted(ask);
        world.release(ask);
        rest(&mut world);
    }
    assert_eq!(world.kept_at(2), [false]);
    world
}

/// A lock is kept, and recalled.
pub const KEEPER: Scope = Scope {
    name: "keeper",
    about: "m2 keeps a free lock that m1 grants; m2 and the elder want it; m1 or m2 is killed",
    start: another_grants_and_m2_keeps,
    crashes: 1,
    mortal: &[1, 2],
    asks: &[2, 0, 2],
    releases: true,
    leaps: &[300],
    at_once: upkeep,
    larger: |scope| Scope { mortal: &[0, 1, 2], faults: 1, ..scope },
    smaller: |scope| Scope { asks: &[2, 0], ..scope },
    ..Scope::STILL
};

/// A share is kept, used by several requests, and recalled.
pub const READER: Scope = Scope {
    name: "reader",
    about: "m2 keeps a free share that m1 grants, and wants it twice; the elder wants the lock; m1 \
        or m2 is killed",
    start: another_grants_and_m2_keeps_a_share,
    wants: |index| {
        let name = LOCK.to_string();
        if index == 1 { ClientWant::Lock(name) } else { ClientWant::Share(name) }
    },
    smaller: |scope| scope,
    ..KEEPER
};

/// The number of the share that is there from the beginning.
const SHARE: usize = 40;

/// m1 grants, and m2 has a share.
fn another_shares(world: World) -> World {
    let mut world = granted_by(world, [0; 3], 1, false).0;
    let (service, wanted) = (SERVICE.to_string(), ClientWant::Share(LOCK.to_string()));
    let (says, wait) = (String::new(), Wait::Forever);
    world.apply(&Step::Ask {
        call: SHARE,
        site: 2,
        service,
        wanted,
        owner: 0,
        says,
        wait,
        lease: None,
    });
    world.run_for(Duration::from_millis(500));
    rest(&mut world);
    assert!(world.named(SHARE).is_some_and(|ask| world.is_granted(ask)));
    world
}

/// A share is to become the lock.
pub const UPGRADE: Scope = Scope {
    name: "upgrade",
    about: "m2 has a share that is to become the lock, m0 wants a share and to become grantor; the \
        grantor, m1, is killed",
    start: another_shares,
    crashes: 1,
    mortal: &[1],
    asks: &[2, 0],
    wants: |index| {
        if index == 0 { ClientWant::Upgrade(SHARE) } else { ClientWant::Share(LOCK.to_string()) }
    },
    turks: &[0],
    releases: true,
    leaps: &[200],
    at_once: upkeep,
    larger: |scope| Scope { mortal: &[0, 1, 2], faults: 1, ..scope },
    ..Scope::STILL
};

/// The elder, which grants and holds, is cut off.
pub const GHOST: Scope = Scope {
    name: "ghost",
    about: "the elder grants and holds, and is cut off; another wants the lock; leases run out, \
        clocks as unlike as may be",
    start: elder_is_cut_off,
    vouched: false,
    crashes: 0,
    faults: 0,
    asks: &[1, 2],
    leaps: &[1_500, 100, 1_000, 3_000, 1_000],
    at_once: upkeep_and_greetings,
    ..TAKEOVER
};

/// A holder is cut off.
pub const LATE: Scope = Scope {
    name: "late",
    about: "a holder is cut off with its renewal under way; another wants the lock; leases run \
        out, clocks as unlike as may be",
    start: holder_is_cut_off,
    network: DeliveryOrder::AnyOrder,
    vouched: false,
    crashes: 0,
    faults: 0,
    asks: &[1],
    leaps: &[900, 900, 900, 900, 900],
    at_once: all_but_to_m2,
    late: to_m2,
    ..TAKEOVER
};

/// The elder is stopped for longer than its lease, and wakes.
pub const SLEEPER: Scope = Scope {
    name: "sleeper",
    about: "another wants the lock; the elder, which is the grantor, is stopped, perhaps until its \
        lease is over, and wakes",
    start: elder_grants,
    sleepers: &[0],
    asks: &[1],
    releases: true,
    leaps: &[3_000],
    at_once: upkeep_and_greetings,
    late: from_m0,
    larger: |scope| Scope { joiners: &[3], leaps: &[1_500, 100], ..scope },
    ..Scope::STILL
};

/// A voter ends while a view is chosen, and another process starts on its data directory.
pub const VOTES: Scope = Scope {
    name: "votes",
    small: false,
    about: "a view is being voted on; a voter is killed, the elder, or both; the voter starts \
        again, with its directory or without",
    start: vote_on_joiner,
    crashes: 2,
    mortal: &[0, 1],
    restarts: &[1],
    forgetful: &[1],
    at_once: upkeep_questions_and_deaths,
    // Each member hears of a death on its own. A vote successor's vote has time to become free,
    // which `ForgetOnDisk` and `VoteSuccessorVotesAtOnce` would need.
    larger: |scope| Scope {
        mortal: &[0, 1, 2],
        restarts: &[0, 1, 2],
        forgetful: &[0, 1, 2],
        leaps: &[1_500, 80],
        at_once: upkeep_and_questions,
        late: from_m0_to_m2,
        ..scope
    },
    ..Scope::STILL
};

/// All scopes.
pub const ALL: &[Scope] = &[
    VIEWS, TAKEOVER, RECOVERY, LEAVER, SILENCE, QUEUE, TRANSFER, UPGRADE, KEEPER, READER, SLEEPER,
    VOTES, RUMOUR, LATE, GHOST,
];
