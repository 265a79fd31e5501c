//! `DrawnRun`: a run, prepared for drawing: spans instead of instants.

use elderlock::protocol::Slot;
use std::collections::BTreeMap;

/// The label of a member that has become the elder.
pub const IS_ELDER: &str = "is the elder";

/// The time from one instant of true time to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Span {
    /// The beginning, in nanoseconds.
    pub from: u64,
    /// The end, in nanoseconds.
    pub until: u64,
}

impl Span {
    /// Returns whether the two have an instant in common.
    pub fn meets(&self, other: &Span) -> bool {
        self.from <= other.until && other.from <= self.until
    }
}

/// An event at one instant, in words.
#[derive(Clone, Debug)]
pub struct DrawnNote {
    /// The time.
    pub at: u64,
    /// The text.
    pub words: String,
    /// 0 is told before 1.
    pub rank: u8,
}

/// An epoch of a grantor.
#[derive(Clone, Debug)]
pub struct EpochSpan {
    /// The time from its naming, or since it began to ask.
    pub span: Span,
    /// When it began to grant.
    pub acts: Option<u64>,
    /// The service.
    pub service: String,
    /// The epoch, as people write it.
    pub epoch: String,
}

/// A request, and the hold that came of it.
#[derive(Clone, Debug)]
pub struct HoldSpan {
    /// The site of its member.
    pub site: usize,
    /// `service/name`.
    pub lock: String,
    /// When it was asked for.
    pub asked: u64,
    /// When it was granted.
    pub got: Option<u64>,
    /// The token, as people write it.
    pub token: String,
    /// The end of its lease.
    pub lease: Option<u64>,
    /// The end of its member's lease, if that came while the process was stopped.
    pub stopped: Option<u64>,
    /// Whether others may hold beside it: a share, or permits.
    pub shared: bool,
    /// When it ended, in any way.
    pub over: u64,
    /// How it ended.
    pub end: String,
}

impl HoldSpan {
    fn leased(&self) -> u64 {
        self.lease.unwrap_or(u64::MAX).min(self.stopped.unwrap_or(u64::MAX))
    }

    /// Returns the time in which its guard may have been believed.
    pub fn held(&self) -> Option<Span> {
        let from = self.got?;
        Some(Span { from, until: self.leased().min(self.over).max(from) })
    }
}

/// The events of one site, or of the test itself.
#[derive(Clone, Debug, Default)]
pub struct DrawnSite {
    /// The name of a lane that is not a site's.
    pub name: Option<String>,
    /// The times in which a process was there.
    pub alive: Vec<Span>,
    /// The times in which it was stopped.
    pub paused: Vec<Span>,
    /// The times in which its view said that it is the elder.
    pub elder: Vec<Span>,
    /// The times in which its member lease did not run, after it had.
    pub suspended: Vec<Span>,
    /// Its epochs as grantor.
    pub terms: Vec<EpochSpan>,
    /// Views installed here: when, and in words.
    pub views: Vec<DrawnNote>,
    /// All other events.
    pub notes: Vec<DrawnNote>,
}

/// A fault, as it is drawn.
#[derive(Clone, Debug)]
pub struct FaultBand {
    /// Its number in the plan; `None`: the test has caused it.
    pub number: Option<usize>,
    /// Its kind.
    pub kind: String,
    /// The sites it hit, as far as it was known when it began.
    pub sites: Vec<usize>,
    /// The time of the fault.
    pub span: Span,
}

impl FaultBand {
    /// Returns the words for a label.
    pub fn words(&self, lanes: usize) -> String {
        let whom = match self.sites.len() {
            0 => String::new(),
            all if all >= lanes => ", all members".to_string(),
            _ => format!(", {}", sites(&self.sites)),
        };
        match self.number {
            Some(number) => format!("fault {number}: {}{whom}", self.kind),
            None => format!("{}{whom}", self.kind),
        }
    }
}

/// A packet under way.
#[derive(Clone, Debug)]
pub struct DrawnPacket {
    /// The sending site.
    pub from: usize,
    /// The receiving site.
    pub to: usize,
    /// The kind of its content.
    pub kind: String,
    /// When it left.
    pub sent: u64,
    /// When it arrived.
    pub arrived: Option<u64>,
    /// Why it did not arrive.
    pub lost: Option<String>,
}

/// The end of a broken run.
#[derive(Clone, Debug)]
pub struct Breach {
    /// The time.
    pub at: u64,
    /// The site, if it was seen at one.
    pub site: Option<usize>,
    /// The invariant.
    pub invariant: String,
    /// The lock, if it is about one.
    pub lock: Option<String>,
    /// The violation in words.
    pub words: String,
}

/// A run, for drawing.
#[derive(Clone, Debug, Default)]
pub struct DrawnRun {
    /// One for each site, and then that of the test if it has one.
    pub lanes: Vec<DrawnSite>,
    /// The faults in the order in which they began.
    pub faults: Vec<FaultBand>,
    /// The holds in the order of asking.
    pub holds: Vec<HoldSpan>,
    /// The packets in the order of sending; those that never arrived are last.
    pub flights: Vec<DrawnPacket>,
    /// When everything was healed.
    pub heal: Option<u64>,
    /// The break, if any.
    pub breach: Option<Breach>,
    /// The last instant.
    pub end: u64,
    /// The services that were granted, in the order of their names.
    pub services: Vec<String>,
}

/// Sites for people.
pub fn sites(these: &[usize]) -> String {
    these.iter().map(|site| format!("m{site}")).collect::<Vec<_>>().join(" ")
}

/// A token or an epoch for people: the slot and the number in it.
pub fn token(number: u64) -> String {
    format!("{}.{}", number / Slot::TOKENS, number % Slot::TOKENS)
}

impl DrawnRun {
    /// How many sites there are.
    pub fn sites(&self) -> usize {
        self.lanes.iter().filter(|lane| lane.name.is_none()).count()
    }

    /// The lock to show with its tokens: that of the violation, or else the lock that was granted
    /// most.
    pub fn focus(&self) -> Option<String> {
        if let Some(breach) = &self.breach {
            return breach.lock.clone();
        }
        let mut grants: BTreeMap<&str, usize> = BTreeMap::new();
        for hold in self.holds.iter().filter(|hold| hold.got.is_some()) {
            *grants.entry(&hold.lock).or_default() += 1;
        }
        grants.into_iter().max_by_key(|(_, count)| *count).map(|(lock, _)| lock.to_string())
    }

    /// The holds of a lock that overlap another of it, with the spans that they share.
    pub fn clashes(&self, lock: &str) -> Vec<(usize, Span)> {
        let held: Vec<(usize, Span)> = self
            .holds
            .iter()
            .enumerate()
            .filter_map(|(index, hold)| {
                (hold.lock == lock && !hold.shared)
                    .then(|| hold.held().map(|span| (index, span)))
                    .flatten()
            })
            .collect();
        let mut clashes = Vec::new();
        for (index, span) in &held {
            for (other, with) in &held {
                let shared =
                    Span { from: span.from.max(with.from), until: span.until.min(with.until) };
                // A release and the next grant may share an instant.
                let real = shared.from < shared.until
                    || (shared.from == shared.until && shared.until == self.end);
                if index != other && real && shared.from <= shared.until {
                    clashes.push((*index, shared));
                }
            }
        }
        clashes
    }

    /// The sites where a violation is seen: where its lock is held, or where it was noticed.
    pub fn scene(&self) -> Vec<usize> {
        let Some(breach) = &self.breach else { return Vec::new() };
        let mut scene: Vec<usize> = breach.site.into_iter().collect();
        if let Some(lock) = &breach.lock {
            scene.extend(self.clashes(lock).iter().map(|(index, _)| self.holds[*index].site));
        }
        scene.sort_unstable();
        scene.dedup();
        scene
    }

    /// The life of a site at an instant.
    pub fn life(&self, site: usize, at: u64) -> Option<Span> {
        self.lanes
            .get(site)?
            .alive
            .iter()
            .rev()
            .find(|span| span.from <= at && at <= span.until)
            .copied()
    }
}
