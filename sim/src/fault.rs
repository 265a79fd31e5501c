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

mod active;
mod draw;

pub(crate) use active::Active;
pub use draw::*;

/// The target of a fault, looked up when it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Target {
    /// The member at a site.
    Site(usize),
    /// The elder.
    Elder,
    /// The grantor of the first service.
    Grantor,
    /// The council member with this index among all but the elder, modulo their number.
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

/// The faults of a plan that a run takes, by their numbers, as the command line tells them.
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
    /// Cuts as many ways as possible, in an order that is drawn from the number. Between each
    /// two members that are cut, one member still relays in that direction.
    OneWayRing(u64),
    /// A process is killed, and another is started there at the end.
    Crash(Target),
    /// Elder and grantor are killed at once.
    CrashBoth,
    /// All processes are killed at once, and others are started at the end. Only where votes are
    /// kept on disk.
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
    Late(LatePackets),
    /// A council member receives nothing for an elder lease. When it is back, the elder is cut off
    /// with some others.
    ElderTakeover(ElderTakeover),
    /// Cuts the elder off with some others as soon as a view is installed.
    SplitView(CutOffGroup),
    /// A member is cut off until it is about to be removed, and is heard again before the removal
    /// is decided. It learns of the removal late.
    Reprieve(DelayedRemoval),
    /// A council member says goodbye to the elder's half of the others. Then only the other half,
    /// which has not been told, hears it. The halves are drawn from the second number.
    Turncoat(usize, u64),
    /// The elder names the member at the first site grantor of an unused service, and the elder's
    /// host fails. The naming arrives late, and then the member at the second site asks to become
    /// grantor of the same service.
    StrayName(usize, usize),
    /// A table is under way to a young turk. Meanwhile a member asks that turk for a lock, and
    /// another member wants to become grantor. In the other form a holder leaves meanwhile.
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
        /// The index of the first of the two among all members but the grantor, modulo their
        /// number.
        first: usize,
    },
    /// A probe passes along the wait of one owner and is late after that. Meanwhile the wait ends,
    /// and the next owner begins to wait for the first one: they are a circle at no instant.
    PassingWait {
        /// The index of the second member among all but the grantor and the first member, modulo
        /// their number. The third member is the next one.
        first: usize,
    },
    /// A value is written, and the grantor is killed before one of the members with the object open
    /// has heard of it.
    TornValue {
        /// The index of the writer among those with the object open, modulo their number. The next
        /// one does not hear of the value.
        late: usize,
        /// The writer adds this much; `None`: it writes a text.
        adds: Option<i32>,
    },
    /// A member receives nothing from the others, and they receive what it sends.
    Deafen(Target),
    /// Two members refuse each other's connections, the first hears late of views, and its
    /// connections to the others break. Only where the operator trusts refusals.
    RejectPair(Target, usize),
    /// A member is named grantor and learns it late, when the request that led to the naming is
    /// over.
    LateNaming {
        /// The index of the named member among all but the elder, modulo their number. The next one
        /// is the other member that asks.
        named: usize,
        /// The elder's host fails meanwhile. Otherwise the former grantor failed before, and the
        /// request of the other member is over before the naming arrives.
        elder_fails: bool,
    },
    /// A process outside the cluster lies to a member, or to all: so often, as the second number
    /// says, with lies drawn from the first. Only where the cluster has no key.
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
        /// The index of the young turk among all but the grantor and the elder, modulo their
        /// number. The next one is the joiner.
        turk: usize,
    },
}

/// The members that are cut off together with the elder.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CutOffGroup {
    /// The members whose bits are set.
    pub sites: u32,
    /// Whether one holder is cut off as well.
    pub holder: bool,
}

/// A removal that is proposed, and decided only when the member is heard again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DelayedRemoval {
    /// The member.
    pub target: Target,
    /// How long it is cut off.
    pub cut: u64,
    /// How long after that the others' answers to the proposal reach the elder.
    pub pending: u64,
}

/// The late packets, and a fault of the sender meanwhile.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LatePackets {
    /// The kind of packets, one of [`KINDS`](kind::KINDS).
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
    /// The sender is killed.
    Crash,
    /// The sender says goodbye.
    Leave,
    /// The sender is cut off.
    Isolate,
    /// The fault hits not the sender but the grantor, which says goodbye at the end, just before
    /// the packets go on their way.
    GrantorLeaves,
}

/// An elder is replaced while it believes that all is well.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ElderTakeover {
    /// The index of the council member that takes over, modulo their number.
    pub candidate: usize,
    /// How long that member receives nothing before.
    pub deaf: u64,
    /// The members that are cut off with the elder.
    pub loyal: CutOffGroup,
    /// The others are killed, and started again at once, when the elder is cut off. Only where
    /// votes are kept on disk.
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
            FaultKind::ElderTakeover(_) => "elder takeover",
            FaultKind::SplitView(_) => "split view",
            FaultKind::Reprieve(_) => "reprieve",
            FaultKind::Turncoat(..) => "turncoat",
            FaultKind::StrayName(..) => "stray name",
            FaultKind::Rush { .. } => "rush",
            FaultKind::Newcomer { .. } => "newcomer",
            FaultKind::Duel { .. } => "duel",
            FaultKind::PassingWait { .. } => "passing wait",
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
            FaultKind::Reprieve(DelayedRemoval { target, .. }) => Some(*target),
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

/// How long a fault waits at least for its victim to be there, or to be spared.
const BEGIN_LIMIT: u64 = 10 * SECOND;
/// The limit for a fault beside which no other fault may go on.
const LONE_BEGIN_LIMIT: u64 = SECOND;

impl Fault {
    /// Returns the time until which the fault may still begin, if it cannot at first.
    pub fn may_begin_until(&self) -> u64 {
        let limit = if self.is_lone() { LONE_BEGIN_LIMIT } else { self.lasts.max(BEGIN_LIMIT) };
        self.at + limit
    }

    /// Returns the time until which the fault may go on.
    pub fn may_last_until(&self) -> u64 {
        self.may_begin_until() + self.lasts
    }

    /// Returns whether no other fault may go on at the same time.
    fn is_lone(&self) -> bool {
        matches!(
            self.what,
            FaultKind::RejectPair(..)
                | FaultKind::Ring(_)
                | FaultKind::OneWayRing(_)
                | FaultKind::OneNeighbour(..)
        )
    }

    /// Returns whether the target of the fault exists only for moments.
    pub fn is_lurking(&self) -> bool {
        matches!(self.what, FaultKind::SplitView(_))
            || matches!(self.what.target(), Some(Target::Recovering | Target::Awaited))
    }
}

/// A span for people.
pub(crate) fn millis(nanos: u64) -> Duration {
    Duration::from_millis(nanos / MS)
}

#[cfg(test)]
mod tests {
    use super::FaultNumbers;

    /// The command line takes the command that a break prints.
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
