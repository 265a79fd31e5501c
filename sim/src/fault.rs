//! Faults as values: kind, time and duration. A list of them can be shrunk.

use crate::chance::{Rng, mix};
use crate::history::{Ask, Call, ClientRequest, HoldMode};
use crate::kind;
use crate::network::{LinkConditions, MS, NarrowPath, SECOND};
use crate::quorum::ShutdownPlan;
use crate::step::{ClientWant, OutsideHint, PacketFilter, Step};
use crate::world::{DiskHealth, TornStep, World};
use elderlock::protocol::{ProcessId, Wait};
use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::num::ParseIntError;
use std::ops::Range;
use std::str::FromStr;
use std::time::Duration;

/// The target of a fault, looked up when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The member at a site.
    Site(usize),
    /// The elder.
    Elder,
    /// The grantor of the first service.
    Grantor,
    /// The council member with this number, counted round without the elder.
    Council(usize),
    /// A grantor that recovers, or waits for the table of another.
    Recovering,
    /// A member whose report a recovery still waits for, or whose table a young turk does.
    Awaited,
    /// A member that has, or waits for, the suspension of a service.
    Suspender,
    /// A member that has, or waits for, a batch.
    Batcher,
    /// A member that has, or waits for, a share or permits.
    Sharer,
    /// A member that waits to hear that it has changed a value, or has an object open.
    Writer,
}

/// Which faults of a plan a run takes, by their numbers, as the command line tells them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FaultNumbers(pub Vec<usize>);

impl FaultNumbers {
    const NONE: &str = "none";
}

/// The empty list has a word, since a command line drops an empty argument.
impl fmt::Display for FaultNumbers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str(FaultNumbers::NONE);
        }
        let numbers: Vec<String> = self.0.iter().map(usize::to_string).collect();
        f.write_str(&numbers.join(","))
    }
}

impl FromStr for FaultNumbers {
    type Err = ParseIntError;

    fn from_str(text: &str) -> Result<FaultNumbers, ParseIntError> {
        if text == FaultNumbers::NONE {
            return Ok(FaultNumbers(Vec::new()));
        }
        text.split(',').map(str::parse).collect::<Result<_, _>>().map(FaultNumbers)
    }
}

/// The kinds of faults.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum FaultKind {
    /// The network gets worse for all.
    Weather(LinkConditions),
    /// One way between two members is cut.
    CutOneWay(usize, usize),
    /// One way between two members takes this much longer.
    SlowWay(usize, usize, u64),
    /// Both ways are cut.
    Cut(usize, usize),
    /// A member is cut off from all others.
    Isolate(Target),
    /// The members whose bit is set are cut off from the others.
    Split(u32),
    /// A member is cut off from all others but one, drawn from the second number.
    OneNeighbour(Target, u64),
    /// Each member reaches only its neighbours in a ring, whose order is drawn from the number:
    /// each two have a common neighbour.
    Ring(u64),
    /// As many ways as possible are cut, in an order that is drawn from the number, so that one
    /// member relays between each two that are cut, in that direction.
    OneWayRing(u64),
    /// A process is killed, and another is started there at the end.
    Crash(Target),
    /// Elder and grantor are killed at once.
    CrashBoth,
    /// All are killed at once, and started again at the end. Where votes are kept on disk.
    CrashAll,
    /// A process is killed and its data directory is lost; another is started there at the end.
    LoseDisk(Target),
    /// The next process that decides a view is killed before it can tell any other.
    DieDeciding,
    /// A host fails, and is back at the end.
    Vanish(Target),
    /// A process is stopped, and wakes at the end.
    Pause(Target),
    /// A member says goodbye, and another is started there at the end.
    Leave(Target),
    /// Gossip calls a living member unreachable.
    FalseAlarm(usize, Target),
    /// A part of the ways, drawn from this number, is clogged one by one, and unclogged in another
    /// order.
    Swizzle(u64),
    /// A way lets through a limited rate, and drops packets beyond its room.
    NarrowWay(usize, usize, NarrowPath),
    /// Connections break in mid-transfer: this often, as the second number says, by luck drawn from
    /// the first.
    Resets(u64, u32),
    /// A wall refuses every connection of a living member.
    Reject(Target),
    /// A clock runs at another rate, in parts per million.
    ClockRate(usize, i32),
    /// A wall clock jumps by this many milliseconds, and back at the end.
    WallClock(usize, i64),
    /// A member gets no datagrams, and sends none.
    NoDatagrams(Target),
    /// Packets of one kind are kept back, and go on their way at the end.
    Late(Late),
    /// A council member receives nothing for an elder lease. When it is back, the elder is cut off
    /// with some others.
    Overthrow(Overthrow),
    /// As soon as a view is installed the elder is cut off with some others.
    SplitView(CutOffGroup),
    /// A member is cut off until it is about to be removed, and is heard again before the removal
    /// is decided; it learns of the removal late.
    Reprieve(Reprieve),
    /// A council member says goodbye to the elder's half of the others. Then only the other half,
    /// which has not been told, hears it. The halves are drawn from the second number.
    Turncoat(usize, u64),
    /// The elder names the member at the first site grantor of an unused service, and the elder's
    /// host fails. The naming arrives late, and then the member at the second site asks to become
    /// grantor of the same service.
    StrayName(usize, usize),
    /// While a table is under way to a young turk, a member asks that turk for a lock, and another
    /// wants to become grantor; or a holder leaves.
    Rush {
        /// The index of the young turk among all members but the grantor, modulo their number. The
        /// next two are the asking member and the other young turk.
        turk: usize,
        /// Whether a holder leaves.
        leaves: bool,
    },
    /// Two members take a lock each of one service, and then want to suspend it, one after the
    /// other.
    Duel {
        /// The first of the two, of all but the grantor, counted round.
        first: usize,
    },
    /// A value is written, and the grantor is killed before one of the members with the object open
    /// has heard of it.
    TornValue {
        /// The member of those that hears nothing of it, counted round; the one before it writes.
        late: usize,
        /// The writer adds this much; `None`: it writes a text.
        adds: Option<i32>,
    },
    /// A member receives nothing from the others, and they receive what it sends.
    Deafen(Target),
    /// Two members refuse each other's connections, and the first hears late of views. Where the
    /// operator trusts refusals.
    RejectPair(Target, usize),
    /// A member is named grantor and learns it late, when the request that led to the naming is
    /// over.
    LateNaming {
        /// The member that is named, of all but the elder, counted round; then comes the other
        /// member that asks.
        named: usize,
        /// The elder's host fails meanwhile. Otherwise the former grantor failed before, and the
        /// request of the other member is over before the naming arrives.
        elder_fails: bool,
    },
    /// A process outside the cluster lies to a member, or to all: so often, as the second number
    /// says, with lies drawn from the first. Where the cluster has no key.
    LyingStranger(Option<Target>, u64, u32),
    /// Each write to a data directory takes this long.
    SlowDisk(Target, u64),
    /// Writes to a data directory fail.
    FailingDisk(Target),
    /// Writes to the data directories of all members fail.
    FullDisk,
    /// A process is killed between two outputs of a step, and another is started there at the end.
    TornStep(Target, u32, bool),
    /// A member learns a moment late that another has joined. The joiner takes a lock meanwhile,
    /// and the member becomes the grantor.
    Newcomer {
        /// The young turk, of all but the grantor and the elder, counted round; then comes the
        /// joiner.
        turk: usize,
    },
}

/// The members that are cut off together with the elder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutOffGroup {
    /// The members whose bits are set.
    pub sites: u32,
    /// Also one holder.
    pub holder: bool,
}

/// A removal that is proposed, and decided only when the member is heard again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reprieve {
    /// The member.
    pub target: Target,
    /// How long it is cut off.
    pub cut: u64,
    /// How long after that the others' answers to the proposal reach the elder.
    pub pending: u64,
}

/// The late packets, and a fault of the sender meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Late {
    /// Which packets, one of [`KINDS`](kind::KINDS).
    pub kind: &'static str,
    /// The sender; `None`: all.
    pub from: Option<Target>,
    /// The receiving site; `None`: all.
    pub to: Option<usize>,
    /// The fault of the sender, or else of the elder, while the packets are kept back.
    pub blow: Option<ConcurrentFault>,
}

/// A fault in the middle of another fault.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConcurrentFault {
    /// It is killed.
    Crash,
    /// It says goodbye.
    Leave,
    /// It is cut off.
    Isolate,
    /// It hits not the sender but the grantor, which says goodbye at the end, just before the
    /// packets go on their way.
    GrantorLeaves,
}

/// An elder that is followed while it believes that all is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Overthrow {
    /// The council member that takes over, counted round.
    pub candidate: usize,
    /// How long it receives nothing before.
    pub deaf: u64,
    /// The members that are cut off with the elder.
    pub loyal: CutOffGroup,
    /// The others are killed, and started again at once, when the elder is cut off. Where votes are
    /// kept on disk.
    pub restart: bool,
}

impl FaultKind {
    /// Its name in reports.
    pub fn name(&self) -> &'static str {
        match self {
            FaultKind::Weather(weather) if weather.loss > 0 => "loss",
            FaultKind::Weather(weather) if weather.duplicate > 0 => "duplicate",
            FaultKind::Weather(weather) if weather.reorder > 0 => "reorder",
            FaultKind::Weather(weather) if weather.garble > 0 => "garble",
            FaultKind::Weather(_) => "slow",
            FaultKind::CutOneWay(..) => "cut one way",
            FaultKind::SlowWay(..) => "slow way",
            FaultKind::Cut(..) => "cut",
            FaultKind::Isolate(_) => "isolate",
            FaultKind::Split(_) => "split",
            FaultKind::OneNeighbour(..) => "one neighbour",
            FaultKind::Ring(_) | FaultKind::OneWayRing(_) => "ring",
            FaultKind::Crash(_) => "crash",
            FaultKind::CrashBoth => "crash both",
            FaultKind::CrashAll => "crash all",
            FaultKind::LoseDisk(_) => "lose disk",
            FaultKind::DieDeciding => "die deciding",
            FaultKind::Vanish(_) => "vanish",
            FaultKind::Pause(_) => "pause",
            FaultKind::Leave(_) => "leave",
            FaultKind::FalseAlarm(..) => "false alarm",
            FaultKind::Swizzle(_) => "swizzle clog",
            FaultKind::NarrowWay(..) => "full buffer",
            FaultKind::Resets(..) => "reset",
            FaultKind::Reject(_) => "false refusal",
            FaultKind::ClockRate(..) => "clock rate",
            FaultKind::WallClock(..) => "wall clock",
            FaultKind::NoDatagrams(_) => "no datagrams",
            FaultKind::Late(_) => "late",
            FaultKind::Overthrow(_) => "overthrow",
            FaultKind::SplitView(_) => "split view",
            FaultKind::Reprieve(_) => "reprieve",
            FaultKind::Turncoat(..) => "turncoat",
            FaultKind::StrayName(..) => "stray name",
            FaultKind::Rush { .. } => "rush",
            FaultKind::Newcomer { .. } => "newcomer",
            FaultKind::Duel { .. } => "duel",
            FaultKind::TornValue { adds: None, .. } => "torn value",
            FaultKind::TornValue { adds: Some(_), .. } => "torn sum",
            FaultKind::Deafen(_) => "deaf",
            FaultKind::RejectPair(..) => "refusal of a pair",
            FaultKind::LateNaming { .. } => "late naming",
            FaultKind::LyingStranger(..) => "lying stranger",
            FaultKind::SlowDisk(..) => "slow disk",
            FaultKind::FailingDisk(_) => "failing disk",
            FaultKind::FullDisk => "full disk",
            FaultKind::TornStep(..) => "torn step",
        }
    }

    /// Its target.
    pub fn target(&self) -> Option<Target> {
        match self {
            FaultKind::OneNeighbour(target, _) => Some(*target),
            FaultKind::Isolate(target)
            | FaultKind::Crash(target)
            | FaultKind::Vanish(target)
            | FaultKind::Pause(target) => Some(*target),
            FaultKind::Leave(target)
            | FaultKind::FalseAlarm(_, target)
            | FaultKind::Deafen(target)
            | FaultKind::RejectPair(target, _) => Some(*target),
            FaultKind::Reject(target)
            | FaultKind::NoDatagrams(target)
            | FaultKind::LoseDisk(target) => Some(*target),
            FaultKind::Reprieve(Reprieve { target, .. }) => Some(*target),
            FaultKind::SlowDisk(target, _)
            | FaultKind::FailingDisk(target)
            | FaultKind::TornStep(target, ..) => Some(*target),
            _ => None,
        }
    }
}

/// A fault of a plan.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fault {
    /// When it begins, in true nanoseconds.
    pub at: u64,
    /// How long it lasts.
    pub lasts: u64,
    /// Its kind.
    pub what: FaultKind,
}

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
/// An [`Overthrow`] with a restart. It is not drawn with the others.
pub const OVERTHROW_BY_SUCCESSORS: usize = KINDS + 12;
/// The kind that means something only where the cluster has no key. It is not drawn with the
/// others.
pub const LYING_STRANGER: usize = KINDS + 13;

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

/// How long a fault waits at least for its victim to be there, or to be spared.
const PATIENCE: u64 = 10 * SECOND;

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
    pub fn draw(dice: &mut Rng, kind: usize, context: &FaultContext) -> Fault {
        let FaultContext { sites, span, member_lease, clock_error } = *context;
        let at = dice.between(SECOND / 2, span);
        let mut lasts = match dice.below(4) {
            0 => dice.between(20 * MS, 300 * MS),
            1 | 2 => dice.between(300 * MS, 3 * SECOND),
            _ => dice.between(2 * SECOND, 8 * SECOND),
        };
        let site = dice.below(sites as u64) as usize;
        let other = (site + 1 + dice.below(sites.max(2) as u64 - 1) as usize) % sites;
        let target = match dice.below(12) {
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
        let rate = dice.between(10_000, 300_000) as u32;
        let what = match kind {
            0 => FaultKind::Weather(LinkConditions { loss: rate, ..LinkConditions::FAIR }),
            1 => FaultKind::Weather(LinkConditions { duplicate: rate, ..LinkConditions::FAIR }),
            2 => FaultKind::Weather(LinkConditions {
                reorder: rate,
                slowest: 30 * MS,
                ..LinkConditions::FAIR
            }),
            3 => {
                let spike_by = dice.between(20 * MS, 4 * SECOND);
                FaultKind::Weather(LinkConditions {
                    spike: rate,
                    spike_by,
                    slowest: dice.between(MS, 60 * MS),
                    ..LinkConditions::FAIR
                })
            }
            4 => FaultKind::CutOneWay(site, other),
            5 => FaultKind::Cut(site, other),
            6 => FaultKind::Isolate(target),
            7 => FaultKind::Split(dice.between(1, (1 << sites) - 2) as u32),
            8 => FaultKind::Crash(target),
            9 => FaultKind::CrashBoth,
            10 => FaultKind::Vanish(target),
            11 => {
                if dice.chance(500_000) {
                    // Longer than any lease.
                    lasts = member_lease * dice.between(11, 25) / 10;
                }
                FaultKind::Pause(target)
            }
            12 => FaultKind::Leave(target),
            13 => FaultKind::SlowWay(site, other, dice.between(20 * MS, 2 * SECOND)),
            14 => FaultKind::DieDeciding,
            FALSE_ALARM => FaultKind::FalseAlarm(other, target),
            16 => FaultKind::Swizzle(dice.roll()),
            17 => {
                let narrow = NarrowPath {
                    each: dice.between(MS, 100 * MS),
                    room: dice.between(2, 40) as u32,
                };
                FaultKind::NarrowWay(site, other, narrow)
            }
            18 => FaultKind::Resets(dice.roll(), dice.between(1, 12) as u32),
            // Each damage breaks a connection: more than a few is one long cut.
            19 => FaultKind::Weather(LinkConditions {
                garble: dice.between(500, 30_000) as u32,
                ..LinkConditions::FAIR
            }),
            REJECT => FaultKind::Reject(target),
            21 => FaultKind::ClockRate(
                site,
                dice.between(0, 2 * clock_error) as i32 - clock_error as i32,
            ),
            22 => FaultKind::WallClock(site, dice.between(0, 2_000_000) as i64 - 1_000_000),
            NO_DATAGRAMS => FaultKind::NoDatagrams(target),
            CRASH_ALL => FaultKind::CrashAll,
            LOSE_DISK => FaultKind::LoseDisk(target),
            26 => {
                // Long enough for a view without its sender.
                lasts = lasts.max(member_lease * dice.between(2, 20) / 10);
                let blow = match dice.below(6) {
                    0 => Some(ConcurrentFault::Crash),
                    1 | 2 => Some(ConcurrentFault::Leave),
                    3 | 4 => Some(ConcurrentFault::Isolate),
                    _ => None,
                };
                let late = if dice.chance(600_000) {
                    dice.pick(&TELLING)
                } else {
                    dice.pick(&kind::KINDS[..kind::DRAWN])
                };
                let (from, to) = match dice.below(4) {
                    0 | 1 => (Some(target), None),
                    2 => (Some(target), Some(other)),
                    _ => (None, Some(other)),
                };
                if dice.chance(80_000) {
                    // In this time a lease ends and is not surely over: a member is suspended, and
                    // still in the view.
                    lasts = member_lease * dice.between(100, 107) / 100;
                    let (kind, blow) = ("Pulse", Some(ConcurrentFault::GrantorLeaves));
                    FaultKind::Late(Late { kind, from: None, to: Some(other), blow })
                } else {
                    FaultKind::Late(Late { kind: late, from, to, blow })
                }
            }
            27 | OVERTHROW_BY_SUCCESSORS => {
                lasts = member_lease * dice.between(16, 30) / 10;
                // An elder lease is two fifths of a member's.
                let deaf = member_lease * dice.between(41, 60) / 100;
                let (loyal, restart) = match kind {
                    OVERTHROW_BY_SUCCESSORS => (CutOffGroup { sites: 0, holder: true }, true),
                    _ => (CutOffGroup::draw(dice, sites), dice.chance(700_000)),
                };
                FaultKind::Overthrow(Overthrow { candidate: site, deaf, loyal, restart })
            }
            28 => {
                lasts = member_lease * dice.between(8, 30) / 10;
                FaultKind::SplitView(CutOffGroup::draw(dice, sites))
            }
            29 => {
                // A removal is proposed when a lease is surely over.
                let cut = member_lease * dice.between(103, 125) / 100;
                let pending = dice.between(50 * MS, 700 * MS);
                lasts = cut + pending + dice.between(50 * MS, SECOND);
                let target = if dice.chance(500_000) { Target::Grantor } else { target };
                FaultKind::Reprieve(Reprieve { target, cut, pending })
            }
            30 => {
                lasts = member_lease * dice.between(8, 25) / 10;
                FaultKind::Turncoat(site, dice.roll())
            }
            31 => {
                // The next elder is chosen when the lease of the last one is over, at two fifths of
                // a member's.
                lasts = member_lease * dice.between(35, 90) / 100;
                FaultKind::StrayName(site, other)
            }
            RUSH => {
                lasts = dice.between(20 * MS, 2 * SECOND);
                FaultKind::Rush { turk: site, leaves: dice.chance(400_000) }
            }
            DUEL => {
                lasts = dice.between(100 * MS, 600 * MS);
                FaultKind::Duel { first: site }
            }
            SLOW_DISK => {
                // From the delay of a busy disk to more than a lease.
                let takes = match dice.below(3) {
                    0 => dice.between(MS, 50 * MS),
                    1 => dice.between(50 * MS, SECOND),
                    _ => member_lease * dice.between(20, 150) / 100,
                };
                lasts = lasts.max(3 * takes);
                FaultKind::SlowDisk(target, takes)
            }
            FAILING_DISK => FaultKind::FailingDisk(target),
            FULL_DISK => FaultKind::FullDisk,
            TORN_STEP => {
                lasts = lasts.max(SECOND);
                let votes = dice.chance(700_000);
                FaultKind::TornStep(
                    target,
                    dice.between(0, if votes { 30 } else { 200 }) as u32,
                    votes,
                )
            }
            ONE_NEIGHBOUR => {
                lasts = member_lease * dice.between(25, 40) / 10;
                FaultKind::OneNeighbour(target, dice.roll())
            }
            RING => {
                lasts = member_lease * dice.between(25, 40) / 10;
                let luck = dice.roll();
                if luck.is_multiple_of(2) {
                    FaultKind::Ring(luck)
                } else {
                    FaultKind::OneWayRing(luck)
                }
            }
            TORN_VALUE => {
                lasts = dice.between(20 * MS, 200 * MS);
                FaultKind::TornValue { late: site, adds: None }
            }
            TORN_SUM => {
                lasts = dice.between(20 * MS, 200 * MS);
                let most = dice.chance(400_000);
                let adds = if most { i32::MAX } else { dice.between(1, 9) as i32 };
                FaultKind::TornValue { late: site, adds: Some(adds) }
            }
            DEAFEN => {
                lasts = member_lease * dice.between(5, 40) / 10;
                FaultKind::Deafen(target)
            }
            LYING_STRANGER => {
                let target = if dice.chance(500_000) { Some(target) } else { None };
                let (luck, lies) = (dice.roll(), dice.between(1, 60) as u32);
                FaultKind::LyingStranger(target, luck, lies)
            }
            REJECT_PAIR => {
                lasts = member_lease * dice.between(15, 40) / 10;
                FaultKind::RejectPair(target, other)
            }
            LATE_NAMING => {
                lasts = member_lease * dice.between(45, 110) / 100;
                FaultKind::LateNaming { named: site, elder_fails: dice.chance(500_000) }
            }
            _ => {
                lasts = dice.between(400 * MS, 3 * SECOND);
                FaultKind::Newcomer { turk: site }
            }
        };
        Fault { at, lasts, what }
    }

    /// Until when it may still begin, if it cannot at first.
    pub fn may_begin_until(&self) -> u64 {
        self.at + self.lasts.max(PATIENCE)
    }

    /// Whether its target exists only for moments.
    pub fn is_lurking(&self) -> bool {
        matches!(self.what, FaultKind::SplitView(_))
            || matches!(self.what.target(), Some(Target::Recovering | Target::Awaited))
    }
}

impl CutOffGroup {
    /// One holder, or a few members: the others are to go on.
    fn draw(dice: &mut Rng, sites: usize) -> CutOffGroup {
        let some = |dice: &mut Rng| dice.below(1 << sites) as u32;
        let (sites, holder) = (some(dice) & some(dice), dice.chance(700_000));
        CutOffGroup { sites: if holder && dice.chance(700_000) { 0 } else { sites }, holder }
    }

    /// A predicate for its members: never the candidate.
    fn with(
        self,
        elder: usize,
        holder: Option<usize>,
        candidate: Option<usize>,
    ) -> impl Fn(&usize) -> bool {
        move |site| {
            let is_drawn = Some(*site) != candidate && self.sites >> site & 1 == 1;
            *site == elder || Some(*site) == holder || is_drawn
        }
    }
}

/// A fault that has begun: its remaining steps with their times.
#[derive(Clone, Debug)]
pub(crate) struct Active {
    /// When it is over.
    pub(crate) until: u64,
    /// The sites that it hits.
    pub(crate) sites: Vec<usize>,
    weather: Option<LinkConditions>,
    /// The first is due first.
    agenda: VecDeque<(u64, Step)>,
}

impl Active {
    /// The next step that is due.
    pub(crate) fn next(&mut self, now: u64) -> Option<Step> {
        let (at, _) = self.agenda.front()?;
        if *at > now {
            return None;
        }
        self.agenda.pop_front().map(|(_, step)| step)
    }
}

impl World {
    fn find(&self, target: Target) -> Option<usize> {
        let of = |process| self.site_of(process).filter(|site| self.peers[*site].is(process));
        match target {
            Target::Site(site) => Some(site),
            Target::Elder => self.find_elder(),
            Target::Grantor => self.find_grantor(crate::chaos::SERVICES[0]),
            Target::Council(number) => {
                let council: Vec<ProcessId> =
                    self.latest_view()?.council().skip(1).map(|info| info.process).collect();
                council.get(number % council.len().max(1)).copied().and_then(of)
            }
            Target::Recovering => self.recovering().next().map(|(site, _)| site),
            Target::Awaited => self.recovering().filter_map(|(_, process)| of(process)).next_back(),
            Target::Suspender => self.wants(Call::suspends),
            Target::Batcher => self.wants(|call| call.keys.len() > 1),
            Target::Sharer => {
                self.wants(|call| matches!(call.mode, HoldMode::Share | HoldMode::Permits(_)))
            }
            Target::Writer => {
                let writes = |call: &Call| {
                    matches!(call.deed, ClientRequest::Put(..) | ClientRequest::Add(..))
                };
                let writers =
                    self.history().open().map(|ask| self.call(ask)).filter(|call| writes(call));
                let opened = self.history().opened().map(|ask| self.call(ask));
                let site = writers
                    .map(|call| call.member)
                    .next()
                    .or_else(|| opened.map(|call| call.member).next());
                site.or_else(|| self.find(Target::Grantor))
            }
        }
    }

    /// The site of a member that has, or waits for, something like this; else the grantor.
    fn wants(&self, these: impl Fn(&Call) -> bool) -> Option<usize> {
        let history = self.history();
        let asks = history.claims().chain(history.open()).map(|ask| self.call(ask));
        let sites = asks.filter(|call| these(call)).map(|call| call.member);
        sites.max().or_else(|| self.find(Target::Grantor))
    }

    /// Sites where a grantor recovers or receives a table, with the processes that it waits for.
    fn recovering(&self) -> impl DoubleEndedIterator<Item = (usize, ProcessId)> + '_ {
        let awaited = |site: usize| {
            self.peers[site].node.iter().flat_map(|node| node.awaiting()).collect::<Vec<_>>()
        };
        let others = move |site: usize| {
            let me = self.peers[site].process();
            awaited(site)
                .into_iter()
                .filter(move |process| Some(*process) != me)
                .map(move |process| (site, process))
        };
        self.sites().filter(|site| self.is_up(*site)).flat_map(others)
    }

    /// Looks up the targets of a fault, and plans its steps and their times. `None` if it found no
    /// target, or one that cannot be spared.
    pub(crate) fn begin_fault(&self, fault: &Fault, reckless: bool) -> Option<Active> {
        let (now, until) = (self.now, self.now + fault.lasts);
        let mut plot = FaultScript { now, until, steps: Vec::new() };
        let mut weather = None;
        let all = || self.sites();
        match fault.what {
            FaultKind::Weather(worse) => weather = Some(worse),
            FaultKind::SlowWay(from, to, by) => {
                plot.pair(
                    Step::Slow(from, to, Duration::from_nanos(by)),
                    Step::Slow(from, to, Duration::ZERO),
                );
            }
            FaultKind::CutOneWay(from, to) => plot.pair(Step::Cut(from, to), Step::Mend(from, to)),
            FaultKind::Cut(a, b) => plot.both(a, b, Step::Cut, Step::Mend),
            FaultKind::Isolate(target) => {
                let site = self.find(target)?;
                all()
                    .filter(|other| *other != site)
                    .for_each(|other| plot.both(site, other, Step::Cut, Step::Mend));
            }
            FaultKind::Split(mask) => {
                let left = |site: &usize| mask >> site & 1 == 1;
                for a in all().filter(left) {
                    all().filter(|b| !left(b)).for_each(|b| plot.both(a, b, Step::Cut, Step::Mend));
                }
            }
            FaultKind::OneNeighbour(target, luck) => {
                let site = self.find(target)?;
                let mut others: Vec<usize> = all().filter(|other| *other != site).collect();
                others.sort_by_key(|other| mix(&[luck, *other as u64]));
                others
                    .iter()
                    .skip(1)
                    .for_each(|other| plot.both(site, *other, Step::Cut, Step::Mend));
            }
            FaultKind::Ring(luck) => {
                let mut ring: Vec<usize> = all().collect();
                ring.sort_by_key(|site| mix(&[luck, *site as u64]));
                // Beyond five the next but one is a neighbour, too.
                let reach = if ring.len() > 5 { 2 } else { 1 };
                for (here, a) in ring.iter().enumerate() {
                    for (there, b) in ring.iter().enumerate().skip(here + 1) {
                        if (there - here).min(ring.len() - (there - here)) > reach {
                            plot.both(*a, *b, Step::Cut, Step::Mend);
                        }
                    }
                }
            }
            FaultKind::OneWayRing(luck) => {
                let mut ways: Vec<(usize, usize)> = all()
                    .flat_map(|a| all().map(move |b| (a, b)))
                    .filter(|(a, b)| a != b)
                    .collect();
                ways.sort_by_key(|(a, b)| mix(&[luck, *a as u64, *b as u64]));
                let mut cut = BTreeSet::new();
                for way in ways {
                    cut.insert(way);
                    let is_bridged = |(a, b): &(usize, usize)| {
                        all().any(|relay| {
                            relay != *a
                                && relay != *b
                                && !cut.contains(&(*a, relay))
                                && !cut.contains(&(relay, *b))
                        })
                    };
                    if !cut.iter().all(is_bridged) {
                        cut.remove(&way);
                    }
                }
                cut.into_iter().for_each(|(a, b)| plot.pair(Step::Cut(a, b), Step::Mend(a, b)));
            }
            FaultKind::Crash(target) => {
                let site = self.find(target)?;
                plot.down(
                    &self.spared(&[site], ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
            }
            FaultKind::CrashBoth => {
                let both = [self.find(Target::Elder)?, self.find(Target::Grantor)?];
                plot.down(
                    &self.spared(&both, ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
            }
            FaultKind::Vanish(target) => {
                let there = self.on_host_of(self.find(target)?);
                plot.down(
                    &self.spared(&there, ShutdownPlan::Dead, reckless)?,
                    Step::Vanish,
                    Step::Start,
                );
            }
            FaultKind::CrashAll => {
                let everybody: Vec<usize> = all().collect();
                plot.down(
                    &self.spared(&everybody, ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
            }
            FaultKind::LoseDisk(target) => {
                let site = self.find(target).filter(|site| self.can_lose_disk(*site))?;
                plot.down(
                    &self.spared(&[site], ShutdownPlan::Dead, reckless)?,
                    Step::Crash,
                    Step::Start,
                );
                plot.add(now, Step::LoseDisk(site));
            }
            FaultKind::Leave(target) => {
                let site = self.find(target)?;
                plot.down(
                    &self.spared(&[site], ShutdownPlan::Gone, reckless)?,
                    Step::Leave,
                    Step::Start,
                );
            }
            FaultKind::Pause(target) => {
                let site = self.find(target).filter(|site| self.is_up(*site))?;
                plot.pair(Step::Pause(site), Step::Wake(site));
            }
            FaultKind::SlowDisk(target, takes) => {
                let site = self.find(target)?;
                plot.pair(
                    Step::Disk(site, DiskHealth::Slow(Duration::from_nanos(takes))),
                    Step::Disk(site, DiskHealth::Fast),
                );
            }
            FaultKind::FailingDisk(target) => {
                let site = self.find(target)?;
                plot.pair(
                    Step::Disk(site, DiskHealth::Failing),
                    Step::Disk(site, DiskHealth::Fast),
                );
            }
            FaultKind::FullDisk => {
                all().for_each(|site| {
                    plot.pair(
                        Step::Disk(site, DiskHealth::Failing),
                        Step::Disk(site, DiskHealth::Fast),
                    )
                });
            }
            FaultKind::TornStep(target, after, votes) => {
                let site = self.find(target)?;
                plot.add(now, Step::Tear(TornStep { site, after, votes, until }));
                plot.add(until, Step::Start(site));
            }
            FaultKind::DieDeciding => {
                plot.add(now, Step::DieDeciding { until: until.max(now + 4 * SECOND) })
            }
            FaultKind::FalseAlarm(at, about) => {
                let about = self.find(about).filter(|about| *about != at)?;
                self.peers[about].process()?;
                plot.add(now, Step::Notice { at, about, what: OutsideHint::Unreachable });
            }
            FaultKind::Swizzle(luck) => {
                let ways = all()
                    .flat_map(|from| all().map(move |to| (from, to)))
                    .filter(|(from, to)| from != to);
                let draw = |way: &(usize, usize), question| {
                    mix(&[luck, way.0 as u64, way.1 as u64, question])
                };
                let third = (fault.lasts / 3).max(1);
                for way in ways.filter(|way| draw(way, 0) % 100 < luck % 80 + 10) {
                    plot.add(now + draw(&way, 1) % third, Step::Clog(way.0, way.1));
                    plot.add(until - draw(&way, 2) % third, Step::Unclog(way.0, way.1));
                }
            }
            FaultKind::NarrowWay(from, to, narrow) => {
                plot.pair(Step::Narrow(from, to, Some(narrow)), Step::Narrow(from, to, None));
            }
            FaultKind::Resets(luck, times) => {
                for number in 0..u64::from(times) {
                    let draw = |question, below: u64| mix(&[luck, number, question]) % below.max(1);
                    let from = draw(0, all().len() as u64) as usize;
                    let to = (from + 1 + draw(1, all().len() as u64 - 1) as usize) % all().len();
                    let both = draw(2, 2) == 0;
                    let step = if both { Step::Reset(from, to) } else { Step::ResetHalf(from, to) };
                    plot.add(now + draw(3, fault.lasts), step);
                }
            }
            FaultKind::Reject(target) => {
                let site = self.find(target)?;
                for other in all().filter(|other| *other != site) {
                    plot.both(site, other, Step::Reject, Step::Accept);
                }
            }
            FaultKind::ClockRate(site, ppm) => {
                plot.pair(
                    Step::TurnClock(site, ppm),
                    Step::TurnClock(site, self.peers[site].clock.ppm),
                );
            }
            FaultKind::WallClock(site, by) => {
                plot.pair(Step::StepWallClock(site, by), Step::StepWallClock(site, -by))
            }
            FaultKind::Late(Late { kind, from, to, blow }) => {
                let from = match from {
                    Some(target) => Some(self.find(target)?),
                    None => None,
                };
                let packets = PacketFilter { from, to, kind: Some(kind) };
                plot.pair(Step::Hold(packets), Step::LetGo(packets));
                let victim = match blow {
                    Some(ConcurrentFault::GrantorLeaves) => {
                        self.find(Target::Grantor).filter(|site| Some(*site) != to)
                    }
                    _ => from.or_else(|| self.find_elder()),
                };
                if let (Some(blow), Some(site)) = (blow, victim) {
                    let others = all().filter(|other| *other != site);
                    plot.now = now + fault.lasts / 8;
                    match blow {
                        ConcurrentFault::Crash => {
                            plot.down(
                                &self.spared(&[site], ShutdownPlan::Dead, reckless)?,
                                Step::Crash,
                                Step::Start,
                            );
                        }
                        ConcurrentFault::Leave => {
                            plot.down(
                                &self.spared(&[site], ShutdownPlan::Gone, reckless)?,
                                Step::Leave,
                                Step::Start,
                            );
                        }
                        ConcurrentFault::GrantorLeaves => {
                            (plot.now, plot.until) = (until - 5 * MS, until + SECOND);
                            plot.down(
                                &self.spared(&[site], ShutdownPlan::Gone, reckless)?,
                                Step::Leave,
                                Step::Start,
                            );
                        }
                        ConcurrentFault::Isolate => {
                            others.for_each(|other| plot.both(site, other, Step::Cut, Step::Mend))
                        }
                    }
                }
            }
            FaultKind::Overthrow(Overthrow { candidate, deaf, loyal, restart }) => {
                let elder = self.find_elder()?;
                let candidate =
                    self.find(Target::Council(candidate)).filter(|site| *site != elder)?;
                let others = all().filter(|other| *other != candidate);
                let holder = self.holder(loyal, elder, Some(candidate));
                let loyal = loyal.with(elder, holder, Some(candidate));
                // The holder has it when the elder is cut off, and one of the others wants it.
                let service = crate::chaos::SERVICES[0];
                let crown = || ClientWant::Lock("crown".to_string());
                if let Some(holder) = holder {
                    plot.ask(holder, service, crown());
                }
                plot.until = now + deaf;
                others.for_each(|other| plot.both(candidate, other, Step::Cut, Step::Mend));
                plot.now = plot.until;
                plot.until = plot.now + fault.lasts;
                plot.ask(candidate, service, crown());
                for a in all().filter(&loyal) {
                    all()
                        .filter(|b| !loyal(b))
                        .for_each(|b| plot.both(a, b, Step::Cut, Step::Mend));
                }
                if restart && self.common.durable {
                    let rest: Vec<usize> =
                        all().filter(|site| *site != candidate && !loyal(site)).collect();
                    if let Some(rest) = self.spared(&rest, ShutdownPlan::Dead, reckless) {
                        let until = std::mem::replace(&mut plot.until, plot.now + 5 * MS);
                        plot.down(&rest, Step::Crash, Step::Start);
                        plot.until = until;
                    }
                }
            }
            FaultKind::SplitView(loyal) => {
                let elder = self.find_elder().filter(|_| self.viewed_at == now)?;
                let loyal = loyal.with(elder, self.holder(loyal, elder, None), None);
                for a in all().filter(&loyal) {
                    all()
                        .filter(|b| !loyal(b))
                        .for_each(|b| plot.both(a, b, Step::Cut, Step::Mend));
                }
            }
            FaultKind::Reprieve(Reprieve { target, cut, pending }) => {
                let elder = self.find_elder()?;
                let site = self.find(target).filter(|site| *site != elder && self.is_up(*site))?;
                plot.until = now + cut;
                all()
                    .filter(|other| *other != site)
                    .for_each(|other| plot.both(site, other, Step::Cut, Step::Mend));
                // Packets from before the cut are not kept back.
                plot.now = now + cut * 9 / 10;
                plot.until = now + cut + pending;
                plot.hold(None, Some(elder), "Accepted");
                plot.until = until;
                ["Install", "FullView"]
                    .into_iter()
                    .for_each(|kind| plot.hold(None, Some(site), kind));
            }
            FaultKind::Turncoat(number, luck) => {
                let elder = self.find_elder()?;
                let site = self.find(Target::Council(number))?;
                let spared = self.spared(&[site], ShutdownPlan::Gone, reckless)?;
                let mut others: Vec<usize> =
                    all().filter(|other| ![elder, site].contains(other)).collect();
                others.sort_by_key(|other| mix(&[luck, *other as u64]));
                let (untold, told) = others.split_at(others.len().div_ceil(2));
                let told: Vec<usize> = told.iter().copied().chain([elder]).collect();
                for &a in untold {
                    told.iter().for_each(|&b| plot.both(a, b, Step::Cut, Step::Mend));
                }
                plot.down(&spared, Step::Leave, Step::Start);
                let turns = now + 10 * MS + luck % (100 * MS);
                plot.until = turns;
                untold.iter().for_each(|&a| plot.both(a, site, Step::Cut, Step::Mend));
                (plot.now, plot.until) = (turns, until);
                told.iter().for_each(|&b| plot.both(b, site, Step::Cut, Step::Mend));
            }
            FaultKind::StrayName(named, other) => {
                let service = format!("errand{now}");
                self.vanish_while_naming(
                    &mut plot,
                    (named, other),
                    (&service, Wait::Forever),
                    reckless,
                )?;
                plot.now = until;
                plot.ask(other, &service, ClientWant::Lock("a".to_string()));
            }
            FaultKind::Rush { turk, leaves } => {
                let service = crate::chaos::SERVICES[0];
                let grantor = self.find_grantor(service)?;
                let others: Vec<usize> =
                    all().filter(|site| *site != grantor && self.is_up(*site)).collect();
                let nth = |number: usize| others[number % others.len()];
                if others.len() < 3 {
                    return None;
                }
                plot.hold(Some(grantor), None, "TableChunk");
                plot.ask(nth(turk), service, ClientWant::Become);
                plot.now = now + fault.lasts / 3;
                if leaves {
                    let holders = self
                        .history()
                        .claims()
                        .map(|ask| self.call(ask))
                        .filter(|call| call.service.as_str() == service);
                    let holder = holders
                        .map(|call| call.member)
                        .find(|site| ![grantor, nth(turk)].contains(site))?;
                    plot.down(
                        &self.spared(&[holder], ShutdownPlan::Gone, reckless)?,
                        Step::Leave,
                        Step::Start,
                    );
                    return Some(plot.active(weather, all()));
                }
                plot.ask(nth(turk + 1), service, ClientWant::Lock("rush".to_string()));
                plot.now = now + fault.lasts * 2 / 3;
                plot.ask(nth(turk + 2), service, ClientWant::Become);
            }
            FaultKind::Newcomer { turk } => {
                let service = crate::chaos::SERVICES[0];
                let (elder, grantor) = (self.find_elder()?, self.find_grantor(service)?);
                let others: Vec<usize> = all()
                    .filter(|site| ![elder, grantor].contains(site) && self.is_up(*site))
                    .collect();
                if others.len() < 2 {
                    return None;
                }
                let (turk, joins) =
                    (others[turk % others.len()], others[(turk + 1) % others.len()]);
                let spared = self.spared(&[joins], ShutdownPlan::Gone, reckless)?;
                plot.until = now + fault.lasts / 4;
                plot.down(&spared, Step::Leave, Step::Start);
                (plot.now, plot.until) = (now + fault.lasts / 8, until);
                ["Install", "FullView"]
                    .into_iter()
                    .for_each(|kind| plot.hold(None, Some(turk), kind));
                plot.now = now + fault.lasts / 2;
                plot.ask(joins, service, ClientWant::Lock("fresh".to_string()));
                plot.now = now + fault.lasts * 3 / 4;
                plot.ask(turk, service, ClientWant::Lock("fresh".to_string()));
                plot.ask(turk, service, ClientWant::Become);
            }
            FaultKind::Duel { first } => {
                let service = crate::chaos::SERVICES[0];
                let grantor = self.find_grantor(service)?;
                let up: Vec<usize> =
                    all().filter(|site| *site != grantor && self.is_up(*site)).collect();
                if up.len() < 2 {
                    return None;
                }
                let duellists = [up[first % up.len()], up[(first + 1) % up.len()]];
                let quarter = fault.lasts / 4;
                plot.ask(duellists[0], service, ClientWant::Lock("left".to_string()));
                plot.ask(duellists[1], service, ClientWant::Lock("right".to_string()));
                for (number, duellist) in duellists.into_iter().enumerate() {
                    plot.now = now + quarter * (number as u64 + 1);
                    plot.ask(duellist, service, ClientWant::Suspension);
                }
            }
            FaultKind::Deafen(target) => {
                let site = self.find(target)?;
                all()
                    .filter(|other| *other != site)
                    .for_each(|other| plot.pair(Step::Cut(other, site), Step::Mend(other, site)));
            }
            FaultKind::LyingStranger(target, luck, lies) => {
                let target = match target {
                    Some(target) => Some(self.find(target)?),
                    None => None,
                };
                for number in 0..u64::from(lies) {
                    let draw = |question, below: u64| mix(&[luck, number, question]) % below.max(1);
                    let site = target.unwrap_or(draw(0, all().len() as u64) as usize);
                    let lie = Step::Lie(site, mix(&[luck, number, 2]));
                    plot.add(now + draw(1, fault.lasts), lie);
                }
            }
            FaultKind::RejectPair(target, other) => {
                let site = self.find(target).filter(|site| *site != other)?;
                ["Install", "FullView", "HelloReply"]
                    .into_iter()
                    .for_each(|kind| plot.hold(None, Some(site), kind));
                plot.both(site, other, Step::Reject, Step::Accept);
            }
            FaultKind::LateNaming { named, elder_fails } => {
                let elder = self.find_elder()?;
                let others: Vec<usize> =
                    all().filter(|site| *site != elder && self.is_up(*site)).collect();
                if others.len() < 3 {
                    return None;
                }
                let nth = |number: usize| others[number % others.len()];
                let (named, other, former) = (nth(named), nth(named + 1), nth(named + 2));
                let lease = self.common.timing.member_lease.as_nanos() as u64;
                let (service, name) = (format!("late{now}"), || ClientWant::Lock("a".to_string()));
                if elder_fails {
                    self.vanish_while_naming(
                        &mut plot,
                        (named, other),
                        (&service, Wait::AtMost(millis(15 * MS))),
                        reckless,
                    )?;
                    plot.now = until + 10 * MS;
                    plot.ask(named, &service, name());
                    // Its recovery takes until the elder's lease is over.
                    for number in 0..4 {
                        plot.now = until + lease * (8 + number) / 8;
                        plot.ask(other, &service, name());
                    }
                } else {
                    let spared = self.spared(&[former], ShutdownPlan::Dead, reckless)?;
                    plot.ask(former, &service, name());
                    plot.now = now + 30 * MS;
                    plot.until = until + lease;
                    plot.down(&spared, Step::Crash, Step::Start);
                    (plot.now, plot.until) = (until + lease / 2, until + lease / 2 + 60 * MS);
                    plot.hold(None, Some(named), "NameGrantor");
                    plot.ask(named, &service, name());
                    plot.now += 15 * MS;
                    plot.ask_within(other, &service, name(), Wait::AtMost(millis(15 * MS)));
                }
                plot.until = until + 2 * lease;
            }
            FaultKind::TornValue { late, adds } => {
                let service = crate::chaos::SERVICES[0];
                let grantor = self.find_grantor(service)?;
                let here = |ask: &Ask| {
                    let call = self.call(*ask);
                    call.service.as_str() == service
                        && call.member != grantor
                        && self.is_up(call.member)
                };
                let opened: Vec<Ask> = self.history().opened().filter(here).collect();
                let nth = |number: usize| {
                    opened.get(number % opened.len().max(1)).map(|ask| (*ask, self.call(*ask)))
                };
                let ((writer, writes), (_, hears)) = (nth(late)?, nth(late + 1)?);
                let open = self.name_of(writer)?;
                let are_two = writes.object == hears.object && writes.member != hears.member;
                let spared =
                    self.spared(&[grantor], ShutdownPlan::Dead, reckless).filter(|_| are_two)?;
                plot.hold(Some(grantor), Some(hears.member), "Value");
                let wanted = match adds {
                    Some(by) => ClientWant::Add(open, by),
                    None => ClientWant::Put(open, format!("torn{}", fault.at)),
                };
                plot.ask(writes.member, service, wanted);
                plot.now = now + fault.lasts / 2;
                plot.until = until + SECOND;
                plot.down(&spared, Step::Crash, Step::Start);
            }
            FaultKind::NoDatagrams(target) => {
                let site = self.find(target)?;
                for other in all().filter(|other| *other != site) {
                    plot.pair(Step::Deafen(site, other), Step::Undeafen(site, other));
                }
            }
        }
        Some(plot.active(weather, all()))
    }

    /// The sites on the host of this one.
    fn on_host_of(&self, site: usize) -> Vec<usize> {
        let host = self.peers[site].host;
        self.sites().filter(|other| self.peers[*other].host == host).collect()
    }

    /// A member asks for a lock of a service that none has used, and the elder's host fails. The
    /// naming of the member arrives at the end. `None` if that member and the other one would not
    /// outlive it.
    fn vanish_while_naming(
        &self,
        plot: &mut FaultScript,
        (named, other): (usize, usize),
        (service, wait): (&str, Wait),
        reckless: bool,
    ) -> Option<()> {
        let elder = self.find_elder().filter(|elder| ![named, other].contains(elder))?;
        let there = self.on_host_of(elder);
        let both_stay =
            [named, other].iter().all(|site| self.is_up(*site) && !there.contains(site));
        let spared = self.spared(&there, ShutdownPlan::Dead, reckless).filter(|_| both_stay)?;
        ["NameGrantor", "GrantorIs"]
            .into_iter()
            .for_each(|kind| plot.hold(Some(elder), Some(named), kind));
        plot.ask_within(named, service, ClientWant::Lock("a".to_string()), wait);
        plot.now += 20 * MS;
        plot.down(&spared, Step::Vanish, Step::Start);
        Some(())
    }

    /// The member that is cut off with the elder because it is a holder.
    fn holder(&self, loyal: CutOffGroup, elder: usize, candidate: Option<usize>) -> Option<usize> {
        let holders =
            self.history().claims().map(|ask| self.call(ask).member).filter(|_| loyal.holder);
        holders.filter(|site| *site != elder && Some(*site) != candidate).max()
    }

    /// The live ones of these sites, if they may end.
    fn spared(&self, sites: &[usize], how: ShutdownPlan, reckless: bool) -> Option<Vec<usize>> {
        let spared = self.can_spare(sites, how, reckless);
        let alive: Vec<usize> = sites.iter().copied().filter(|site| self.is_alive(*site)).collect();
        (spared && !alive.is_empty()).then_some(alive)
    }

    /// The weather of all faults that go on, over a base.
    pub(crate) fn weather_of(&self, base: LinkConditions, active: &[(usize, Active)]) -> Step {
        let all = active.iter().filter_map(|(_, active)| active.weather);
        Step::Weather(all.fold(base, LinkConditions::worse))
    }
}

/// The steps of a fault, as they are planned.
struct FaultScript {
    now: u64,
    until: u64,
    steps: Vec<(u64, Step)>,
}

impl FaultScript {
    fn add(&mut self, at: u64, step: Step) {
        self.steps.push((at, step));
    }

    fn pair(&mut self, begin: Step, end: Step) {
        self.add(self.now, begin);
        self.add(self.until, end);
    }

    /// Packets of a kind are kept back.
    fn hold(&mut self, from: Option<usize>, to: Option<usize>, kind: &'static str) {
        let packets = PacketFilter { from, to, kind: Some(kind) };
        self.pair(Step::Hold(packets), Step::LetGo(packets));
    }

    /// A client asks for something, and waits for ever. The number of its call is set when the step
    /// is applied.
    fn ask(&mut self, site: usize, service: &str, wanted: ClientWant) {
        self.ask_within(site, service, wanted, Wait::Forever);
    }

    /// The same, for a limited time.
    fn ask_within(&mut self, site: usize, service: &str, wanted: ClientWant, wait: Wait) {
        let (service, says) = (service.to_string(), String::new());
        let ask = Step::Ask { call: 0, site, service, wanted, owner: 0, says, wait, lease: None };
        self.add(self.now, ask);
    }

    fn both(
        &mut self,
        a: usize,
        b: usize,
        begin: fn(usize, usize) -> Step,
        end: fn(usize, usize) -> Step,
    ) {
        self.pair(begin(a, b), end(a, b));
        self.pair(begin(b, a), end(b, a));
    }

    fn down(&mut self, sites: &[usize], begin: fn(usize) -> Step, end: fn(usize) -> Step) {
        for &site in sites {
            self.pair(begin(site), end(site));
        }
    }

    fn active(mut self, weather: Option<LinkConditions>, all: Range<usize>) -> Active {
        let mut sites: Vec<usize> = match weather {
            Some(_) => all.collect(),
            None => self.steps.iter().flat_map(|(_, step)| step.sites()).collect(),
        };
        sites.sort_unstable();
        sites.dedup();
        self.steps.sort_by_key(|(at, _)| *at);
        Active { until: self.until, sites, weather, agenda: self.steps.into() }
    }
}

/// A span for people.
pub(crate) fn millis(nanos: u64) -> Duration {
    Duration::from_millis(nanos / MS)
}

#[cfg(test)]
mod tests {
    use super::FaultNumbers;

    /// The command that a break prints is one that the command line takes.
    #[test]
    fn numbers_of_faults_are_read_as_they_are_told() {
        for numbers in [vec![], vec![3], vec![3, 10, 12]] {
            let told = FaultNumbers(numbers).to_string();
            assert_eq!(told.parse::<FaultNumbers>().unwrap().to_string(), told);
        }
        assert_eq!(FaultNumbers(Vec::new()).to_string(), "none");
        assert!(",".parse::<FaultNumbers>().is_err());
    }
}
