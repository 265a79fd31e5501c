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
    /// Returns whether the two spans have an instant in common.
    pub fn meets(&self, other: &Span) -> bool {
        self.from <= other.until && other.from <= self.until
    }
}

/// An event at one instant, as text.
#[derive(Clone, Debug)]
pub struct DrawnNote {
    /// The time.
    pub at: u64,
    /// The text.
    pub words: String,
    /// The order at one instant: 0 comes before 1.
    pub rank: u8,
}

/// An epoch of a grantor.
#[derive(Clone, Debug)]
pub struct EpochSpan {
    /// The time since the grantor was named, or since it began to ask.
    pub span: Span,
    /// The time at which the grantor began to grant.
    pub acts: Option<u64>,
    /// The service.
    pub service: String,
    /// The epoch, for people.
    pub epoch: String,
}

/// A request and its hold.
#[derive(Clone, Debug)]
pub struct HoldSpan {
    /// The site of the member.
    pub site: usize,
    /// `service/name`.
    pub lock: String,
    /// The time of the request.
    pub asked: u64,
    /// The time of the grant.
    pub got: Option<u64>,
    /// The token, for people.
    pub token: String,
    /// The end of the lock lease.
    pub lease: Option<u64>,
    /// The end of the member's lease, if that came while the process was stopped.
    pub stopped: Option<u64>,
    /// Whether others may hold beside this hold: a share, or permits.
    pub shared: bool,
    /// The end of the request or hold, in any way.
    pub over: u64,
    /// The kind of the end.
    pub end: String,
}

impl HoldSpan {
    fn leased(&self) -> u64 {
        self.lease.unwrap_or(u64::MAX).min(self.stopped.unwrap_or(u64::MAX))
    }

    /// Returns the time in which the hold's guard may have been believed.
    pub fn held(&self) -> Option<Span> {
        let from = self.got?;
        Some(Span { from, until: self.leased().min(self.over).max(from) })
    }
}

/// The events of one site, or of the test itself.
#[derive(Clone, Debug, Default)]
pub struct DrawnSite {
    /// The name of a lane that belongs to no site.
    pub name: Option<String>,
    /// The times in which a process ran at the site.
    pub alive: Vec<Span>,
    /// The times in which the process was stopped.
    pub paused: Vec<Span>,
    /// The times in which the member's view named it as elder.
    pub elder: Vec<Span>,
    /// The times in which the member had no running lease, after its first.
    pub suspended: Vec<Span>,
    /// The member's epochs as grantor.
    pub epochs: Vec<EpochSpan>,
    /// The views that were installed here.
    pub views: Vec<DrawnNote>,
    /// All other events.
    pub notes: Vec<DrawnNote>,
}

/// A fault as a band of the diagram.
#[derive(Clone, Debug)]
pub struct FaultBand {
    /// The number of the fault in the plan. `None` if the test caused the fault.
    pub number: Option<usize>,
    /// The kind of the fault.
    pub kind: String,
    /// The affected sites, as far as they were known at the beginning.
    pub sites: Vec<usize>,
    /// The time of the fault.
    pub span: Span,
}

impl FaultBand {
    /// Returns the text of the fault's label.
    pub fn words(&self, members: usize) -> String {
        let affected = match self.sites.len() {
            0 => String::new(),
            all if all >= members => ", all members".to_string(),
            _ => format!(", {}", sites(&self.sites)),
        };
        match self.number {
            Some(number) => format!("fault {number}: {}{affected}", self.kind),
            None => format!("{}{affected}", self.kind),
        }
    }
}

/// A packet on its way.
#[derive(Clone, Debug)]
pub struct DrawnPacket {
    /// The sending site.
    pub from: usize,
    /// The receiving site.
    pub to: usize,
    /// The kind of the packet's content.
    pub kind: String,
    /// The time at which the packet left.
    pub sent: u64,
    /// The time at which the packet arrived.
    pub arrived: Option<u64>,
    /// The reason why the packet did not arrive.
    pub lost: Option<String>,
}

/// The violation that ends a broken run.
#[derive(Clone, Debug)]
pub struct Breach {
    /// The time.
    pub at: u64,
    /// The site, if the violation was seen at a site.
    pub site: Option<usize>,
    /// The invariant.
    pub invariant: String,
    /// The lock, if the violation is about a lock.
    pub lock: Option<String>,
    /// The violation as text.
    pub words: String,
}

/// A run, for drawing.
#[derive(Clone, Debug, Default)]
pub struct DrawnRun {
    /// A lane for each site, and then the lane of the test if there is one.
    pub drawn_sites: Vec<DrawnSite>,
    /// The faults in the order in which they began.
    pub faults: Vec<FaultBand>,
    /// The holds, in the order of their requests.
    pub holds: Vec<HoldSpan>,
    /// The packets, in the order of sending. Packets that never arrived are last.
    pub flights: Vec<DrawnPacket>,
    /// The time at which everything was healed.
    pub heal: Option<u64>,
    /// The violation, if any.
    pub breach: Option<Breach>,
    /// The last instant of the run.
    pub end: u64,
    /// The services that were granted, in the order of their names.
    pub services: Vec<String>,
}

/// Sites as text for people.
pub fn sites(these: &[usize]) -> String {
    these.iter().map(|site| format!("m{site}")).collect::<Vec<_>>().join(" ")
}

/// A token or an epoch for people: its slot and its number in the slot.
pub fn token(number: u64) -> String {
    format!("{}.{}", number / Slot::TOKENS, number % Slot::TOKENS)
}

impl DrawnRun {
    /// The number of sites.
    pub fn sites(&self) -> usize {
        self.drawn_sites.iter().filter(|lane| lane.name.is_none()).count()
    }

    /// The lock to show with its tokens: the lock of the violation, or else the lock with most
    /// grants.
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

    /// The holds of a lock that overlap another hold of it, with the shared spans.
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

    /// The span of the process that ran at a site at an instant.
    pub fn life(&self, site: usize, at: u64) -> Option<Span> {
        self.drawn_sites
            .get(site)?
            .alive
            .iter()
            .rev()
            .find(|span| span.from <= at && at <= span.until)
            .copied()
    }
}
