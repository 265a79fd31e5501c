//! Faults as they are drawn: the kinds of a plan, and the numbers of each.

use super::*;

/// Kinds of faults that a plan may draw from.
pub const KINDS: usize = 34;
/// The kind that is left to real gossip where that runs.
pub const FALSE_ALARM: usize = 15;
/// The kind that is excluded where the operator trusts refusals.
pub const REJECT: usize = 20;
/// The kind that means something only where real gossip runs.
pub const NO_DATAGRAMS: usize = 23;
/// The kind that means something only where votes are kept on disk.
pub const CRASH_ALL: usize = 24;
/// The kind that means something only where there is a directory to lose.
pub const LOSE_DISK: usize = 25;
/// The kind that asks for something itself.
pub const RUSH: usize = 32;

/// The kind that means something only where objects are open. It is not drawn with the others.
pub const TORN_VALUE: usize = KINDS;
/// The kind that means something only where services are suspended. It is not drawn with the
/// others.
pub const DUEL: usize = KINDS + 1;
/// The kinds that mean something only where votes are kept on disk. They are not drawn with the
/// others.
pub const SLOW_DISK: usize = KINDS + 2;
/// See [`SLOW_DISK`].
pub const FAILING_DISK: usize = KINDS + 3;
/// See [`SLOW_DISK`].
pub const FULL_DISK: usize = KINDS + 4;
/// A kill between two outputs of a step. It is not drawn with the others.
pub const TORN_STEP: usize = KINDS + 5;

/// The kind that leaves one member one way to the others. It is not drawn with the others.
pub const ONE_NEIGHBOUR: usize = KINDS + 6;
/// The kind that leaves each member two or four others. It is not drawn with the others.
pub const RING: usize = KINDS + 7;
/// The kind that means something only where objects are open. It is not drawn with the others.
pub const TORN_SUM: usize = KINDS + 8;
/// A member that hears nothing. It is not drawn with the others.
pub const DEAFEN: usize = KINDS + 9;
/// The kind that means something only where the operator trusts refusals. It is not drawn with the
/// others.
pub const REJECT_PAIR: usize = KINDS + 10;
/// The kind that uses services of its own. It is not drawn with the others.
pub const LATE_NAMING: usize = KINDS + 11;
/// An [`ElderTakeover`] with a restart. It is not drawn with the others.
pub const TAKEOVER_BY_SUCCESSORS: usize = KINDS + 12;
/// The kind that means something only where the cluster has no key. It is not drawn with the
/// others.
pub const LYING_STRANGER: usize = KINDS + 13;
/// The kind that means something only where requests are told of circles. It is not drawn with the
/// others.
pub const PASSING_WAIT: usize = KINDS + 14;

/// The kinds of packets that change a member's rights: late ones are the worst.
const TELLING: [&str; 20] = [
    "Grant",
    "Release",
    "NameGrantor",
    "GrantorIs",
    "Tokens",
    "Recover",
    "Report",
    "InventoryReply",
    "Install",
    "Accepted",
    "Promise",
    "Pulse",
    "RequestTable",
    "TableChunk",
    "Acts",
    "ProposeSuccessor",
    "Decline",
    "Value",
    "Reduce",
    "Upgraded",
];

/// The World for which faults are drawn.
#[derive(Clone, Copy, Debug)]
pub struct FaultContext {
    /// How many members there are.
    pub sites: usize,
    /// How long they are disturbed.
    pub span: u64,
    /// How long a member lease is.
    pub member_lease: u64,
    /// How wrong clocks may go, in parts per million.
    pub clock_error: u64,
}

impl Fault {
    /// Draws a fault of one kind.
    pub fn draw(rng: &mut Rng, kind: usize, context: &FaultContext) -> Fault {
        let FaultContext { sites, span, member_lease, clock_error } = *context;
        let at = rng.between(SECOND / 2, span);
        let mut lasts = match rng.below(4) {
            0 => rng.between(20 * MS, 300 * MS),
            1 | 2 => rng.between(300 * MS, 3 * SECOND),
            _ => rng.between(2 * SECOND, 8 * SECOND),
        };
        let site = rng.below(sites as u64) as usize;
        let other = (site + 1 + rng.below(sites.max(2) as u64 - 1) as usize) % sites;
        let target = match rng.below(12) {
            0 | 1 => Target::Elder,
            2 | 3 => Target::Grantor,
            4 => Target::Council(site),
            5 => Target::Recovering,
            6 => Target::Awaited,
            7 => Target::Suspender,
            8 => Target::Batcher,
            // The number of draws must not change, so an earlier draw chooses between the targets.
            9 if at.is_multiple_of(2) => Target::Sharer,
            10 if at.is_multiple_of(2) => Target::Writer,
            _ => Target::Site(site),
        };
        let rate = rng.between(10_000, 300_000) as u32;
        let what = match kind {
            0 => FaultKind::Weather(LinkConditions { loss: rate, ..LinkConditions::FAIR }),
            1 => FaultKind::Weather(LinkConditions { duplicate: rate, ..LinkConditions::FAIR }),
            2 => FaultKind::Weather(LinkConditions {
                reorder: rate,
                slowest: 30 * MS,
                ..LinkConditions::FAIR
            }),
            3 => {
                let spike_by = rng.between(20 * MS, 4 * SECOND);
                FaultKind::Weather(LinkConditions {
                    spike: rate,
                    spike_by,
                    slowest: rng.between(MS, 60 * MS),
                    ..LinkConditions::FAIR
                })
            }
            4 => FaultKind::CutOneWay(site, other),
            5 => FaultKind::Cut(site, other),
            6 => FaultKind::Isolate(target),
            7 => FaultKind::Split(rng.between(1, (1 << sites) - 2) as u32),
            8 => FaultKind::Crash(target),
            9 => FaultKind::CrashBoth,
            10 => FaultKind::Vanish(target),
            11 => {
                if rng.chance(500_000) {
                    // The process is stopped for longer than any lease.
                    lasts = member_lease * rng.between(11, 25) / 10;
                }
                FaultKind::Pause(target)
            }
            12 => FaultKind::Leave(target),
            13 => FaultKind::SlowWay(site, other, rng.between(20 * MS, 2 * SECOND)),
            14 => FaultKind::DieDeciding,
            FALSE_ALARM => FaultKind::FalseAlarm(other, target),
            16 => FaultKind::Swizzle(rng.roll()),
            17 => {
                let narrow =
                    NarrowPath { each: rng.between(MS, 100 * MS), room: rng.between(2, 40) as u32 };
                FaultKind::NarrowWay(site, other, narrow)
            }
            18 => FaultKind::Resets(rng.roll(), rng.between(1, 12) as u32),
            // Each damage breaks a connection, so more than a few damages make one long cut.
            19 => FaultKind::Weather(LinkConditions {
                garble: rng.between(500, 30_000) as u32,
                ..LinkConditions::FAIR
            }),
            REJECT => FaultKind::Reject(target),
            21 => FaultKind::ClockRate(
                site,
                rng.between(0, 2 * clock_error) as i32 - clock_error as i32,
            ),
            22 => FaultKind::WallClock(site, rng.between(0, 2_000_000) as i64 - 1_000_000),
            NO_DATAGRAMS => FaultKind::NoDatagrams(target),
            CRASH_ALL => FaultKind::CrashAll,
            LOSE_DISK => FaultKind::LoseDisk(target),
            26 => {
                // The packets are late for long enough for a view without their sender.
                lasts = lasts.max(member_lease * rng.between(2, 20) / 10);
                let blow = match rng.below(6) {
                    0 => Some(ConcurrentFault::Crash),
                    1 | 2 => Some(ConcurrentFault::Leave),
                    3 | 4 => Some(ConcurrentFault::Isolate),
                    _ => None,
                };
                let late = if rng.chance(600_000) {
                    rng.pick(&TELLING)
                } else {
                    rng.pick(&kind::KINDS[..kind::DRAWN])
                };
                let (from, to) = match rng.below(4) {
                    0 | 1 => (Some(target), None),
                    2 => (Some(target), Some(other)),
                    _ => (None, Some(other)),
                };
                if rng.chance(80_000) {
                    // A lease ends in this time and is not surely over: a member is suspended, and
                    // still in the view.
                    lasts = member_lease * rng.between(100, 107) / 100;
                    let (kind, blow) = ("Pulse", Some(ConcurrentFault::GrantorLeaves));
                    FaultKind::Late(LatePackets { kind, from: None, to: Some(other), blow })
                } else {
                    FaultKind::Late(LatePackets { kind: late, from, to, blow })
                }
            }
            27 | TAKEOVER_BY_SUCCESSORS => {
                lasts = member_lease * rng.between(16, 30) / 10;
                // An elder lease is two fifths of a member's.
                let deaf = member_lease * rng.between(41, 60) / 100;
                let (loyal, restart) = match kind {
                    TAKEOVER_BY_SUCCESSORS => (CutOffGroup { sites: 0, holder: true }, true),
                    _ => (CutOffGroup::draw(rng, sites), rng.chance(700_000)),
                };
                FaultKind::ElderTakeover(ElderTakeover { candidate: site, deaf, loyal, restart })
            }
            28 => {
                lasts = member_lease * rng.between(8, 30) / 10;
                FaultKind::SplitView(CutOffGroup::draw(rng, sites))
            }
            29 => {
                // A removal is proposed when a lease is surely over.
                let cut = member_lease * rng.between(103, 125) / 100;
                let pending = rng.between(50 * MS, 700 * MS);
                lasts = cut + pending + rng.between(50 * MS, SECOND);
                let target = if rng.chance(500_000) { Target::Grantor } else { target };
                FaultKind::Reprieve(DelayedRemoval { target, cut, pending })
            }
            30 => {
                lasts = member_lease * rng.between(8, 25) / 10;
                FaultKind::Turncoat(site, rng.roll())
            }
            31 => {
                // The next elder is chosen when the lease of the last one is over, at two fifths of
                // a member's.
                lasts = member_lease * rng.between(35, 90) / 100;
                FaultKind::StrayName(site, other)
            }
            RUSH => {
                lasts = rng.between(20 * MS, 2 * SECOND);
                FaultKind::Rush { turk: site, leaves: rng.chance(400_000) }
            }
            DUEL => {
                lasts = rng.between(100 * MS, 600 * MS);
                FaultKind::Duel { first: site }
            }
            SLOW_DISK => {
                // The delay is between that of a busy disk and more than a lease.
                let takes = match rng.below(3) {
                    0 => rng.between(MS, 50 * MS),
                    1 => rng.between(50 * MS, SECOND),
                    _ => member_lease * rng.between(20, 150) / 100,
                };
                lasts = lasts.max(3 * takes);
                FaultKind::SlowDisk(target, takes)
            }
            FAILING_DISK => FaultKind::FailingDisk(target),
            FULL_DISK => FaultKind::FullDisk,
            TORN_STEP => {
                lasts = lasts.max(SECOND);
                let votes = rng.chance(700_000);
                FaultKind::TornStep(
                    target,
                    rng.between(0, if votes { 30 } else { 200 }) as u32,
                    votes,
                )
            }
            ONE_NEIGHBOUR => {
                lasts = member_lease * rng.between(25, 40) / 10;
                FaultKind::OneNeighbour(target, rng.roll())
            }
            RING => {
                lasts = member_lease * rng.between(25, 40) / 10;
                let luck = rng.roll();
                if luck.is_multiple_of(2) {
                    FaultKind::Ring(luck)
                } else {
                    FaultKind::OneWayRing(luck)
                }
            }
            TORN_VALUE => {
                lasts = rng.between(20 * MS, 200 * MS);
                FaultKind::TornValue { late: site, adds: None }
            }
            TORN_SUM => {
                lasts = rng.between(20 * MS, 200 * MS);
                let most = rng.chance(400_000);
                let adds = if most { i32::MAX } else { rng.between(1, 9) as i32 };
                FaultKind::TornValue { late: site, adds: Some(adds) }
            }
            DEAFEN => {
                lasts = member_lease * rng.between(5, 40) / 10;
                FaultKind::Deafen(target)
            }
            LYING_STRANGER => {
                let target = if rng.chance(500_000) { Some(target) } else { None };
                let (luck, lies) = (rng.roll(), rng.between(1, 60) as u32);
                FaultKind::LyingStranger(target, luck, lies)
            }
            REJECT_PAIR => {
                lasts = member_lease * rng.between(15, 40) / 10;
                FaultKind::RejectPair(target, other)
            }
            PASSING_WAIT => {
                // The plan of the fault makes it as long as a first probe needs.
                lasts = rng.between(100 * MS, 300 * MS);
                FaultKind::PassingWait { first: site }
            }
            LATE_NAMING => {
                lasts = member_lease * rng.between(45, 110) / 100;
                FaultKind::LateNaming { named: site, elder_fails: rng.chance(500_000) }
            }
            _ => {
                lasts = rng.between(400 * MS, 3 * SECOND);
                FaultKind::Newcomer { turk: site }
            }
        };
        Fault { at, lasts, what }
    }
}

impl CutOffGroup {
    /// Draws one holder, or a few members, so that the others can go on.
    fn draw(rng: &mut Rng, sites: usize) -> CutOffGroup {
        let some = |rng: &mut Rng| rng.below(1 << sites) as u32;
        let (sites, holder) = (some(rng) & some(rng), rng.chance(700_000));
        CutOffGroup { sites: if holder && rng.chance(700_000) { 0 } else { sites }, holder }
    }
}
