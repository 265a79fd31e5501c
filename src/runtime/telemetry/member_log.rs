//! `MemberLog`: the lines that an operator reads in a member's log.

use super::super::net::rate_limit::RateLimit;
use crate::protocol::{
    Epoch, Event, Hint, Input, LedMember, Lineage, LockName, LostReason, MemberInfo, Notice,
    Packet, ProcessId, ServiceName, Token, View, Want,
};
use std::collections::BTreeMap;
use std::fmt;
use tracing::{info, warn};

/// The most lines about lost locks in a row, and per second in the long run. A member may lose a
/// million at once.
const MOST_LOSSES: u32 = 16;
const LOSSES_A_SECOND: u32 = 1;
/// The most lines about refused claims, and about bounds. Other processes cause them, so the limit
/// is that of all such lines.
const MOST_CLAIMS: u32 = 16;
const CLAIMS_A_SECOND: u32 = 1;
/// The most lines about other lineages, per minute in the long run. Two clusters may run side by
/// side for days, and greet each other all the time.
const LINEAGES_A_MINUTE: u32 = 1;

/// The most lines about members that join or end. A cluster of a thousand may be founded at once,
/// and a process without a key may join and leave again and again.
const MOST_CHANGES: u32 = 2048;
const CHANGES_A_SECOND: u32 = 8;

/// The longest name in a line. Names have up to 4096 bytes, each of which may be escaped.
const LONGEST_NAME: usize = 100;

/// The words about changes of a member's own state, in its log and in its events.
pub(crate) mod words {
    pub(crate) const SUSPENDED: &str =
        "suspended: no elder with a quorum renewed the member lease, every lock is lost";
    pub(crate) const RESUMED: &str = "resumed: the member lease runs again";
    pub(crate) const ORPHANED: &str =
        "orphaned: no quorum for three member leases; this member waits for one, or for force";
    pub(crate) const IDENTITY_TAKEN: &str =
        "another process has this process id: a cloned or restored machine";
    pub(crate) const EXPELLED: &str =
        "expelled: the cluster went on without this member, every lock is lost";
}

/// The log's knowledge of the present view.
pub(crate) struct MemberLog {
    view: Option<View>,
    /// This member, as the last view with it shows it.
    own: Option<MemberInfo>,
    /// The last lineage of this member, in any incarnation.
    lineage: Option<Lineage>,
    /// The reasons why members of the view are about to end, as far as this member knows them.
    ends: BTreeMap<ProcessId, MemberEnd>,
    losses: RateLimit,
    claims: RateLimit,
    bounds: RateLimit,
    changes: RateLimit,
    lineages: RateLimit,
    is_suspended: bool,
    /// The locks that were lost since the present view was installed.
    lost: u64,
}

/// How a membership ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum MemberEnd {
    Left,
    Killed,
}

/// A line, which is written when the engine is unlocked: a subscriber is the program's code.
pub(crate) enum LogNote {
    Joined(MemberInfo),
    Left(MemberInfo),
    Died {
        info: MemberInfo,
        cause: &'static str,
    },
    Gone(MemberInfo),
    Unreachable(MemberInfo),
    ChangesLeftOut(u64),
    Elder {
        info: MemberInfo,
        is_me: bool,
    },
    Grantor {
        service: ServiceName,
        epoch: Epoch,
        info: MemberInfo,
    },
    OtherLineage {
        before: Lineage,
        now: Lineage,
        lost: u64,
    },
    /// A lineage runs beside this member's own.
    SecondLineage {
        own: Lineage,
        other: Box<LedMember>,
        left_out: u64,
    },
    Raised {
        before: u16,
        now: u16,
    },
    Suspended,
    Resumed,
    Orphaned,
    IdentityTaken,
    ClaimRefused {
        voter: ProcessId,
        from: ProcessId,
        left_out: u64,
    },
    WaitsLeftOut {
        service: ServiceName,
        info: MemberInfo,
        count: usize,
        left_out: u64,
    },
    TableRefused {
        service: ServiceName,
        info: MemberInfo,
        left_out: u64,
    },
    Expelled,
    LockLost {
        service: ServiceName,
        want: Want,
        token: Token,
        reason: LostReason,
        left_out: u64,
    },
}

impl Default for MemberLog {
    fn default() -> Self {
        MemberLog {
            view: None,
            own: None,
            lineage: None,
            ends: BTreeMap::new(),
            losses: RateLimit::new(MOST_LOSSES, LOSSES_A_SECOND),
            claims: RateLimit::new(MOST_CLAIMS, CLAIMS_A_SECOND),
            bounds: RateLimit::new(MOST_CLAIMS, CLAIMS_A_SECOND),
            changes: RateLimit::new(MOST_CHANGES, CHANGES_A_SECOND),
            lineages: RateLimit::a_minute(MOST_CLAIMS, LINEAGES_A_MINUTE),
            is_suspended: false,
            lost: 0,
        }
    }
}

impl MemberLog {
    /// Notes the reason why a member will be missing in a later view.
    pub(crate) fn heard(&mut self, input: &Input) {
        let Some(view) = &self.view else { return };
        let (process, end) = match input {
            Input::Hint(Hint::Dead(process)) => (*process, MemberEnd::Killed),
            Input::Received { from, packet: Packet::Notice(notice), .. } => match &**notice {
                Notice::Leave => (*from, MemberEnd::Left),
                Notice::Vouch { dead } if view.is_witness(*from, *dead) => {
                    (*dead, MemberEnd::Killed)
                }
                _ => return,
            },
            _ => return,
        };
        if view.contains(process) {
            self.ends.entry(process).or_insert(end);
        }
    }

    /// Adds the lines about an event of the core.
    pub(crate) fn said(&mut self, event: &Event, me: ProcessId, notes: &mut Vec<LogNote>) {
        match event {
            Event::ViewInstalled(view) => self.installed(view, me, notes),
            Event::Suspended => {
                self.is_suspended = true;
                notes.push(LogNote::Suspended);
            }
            // The first lease of a member is no news.
            Event::Resumed if std::mem::take(&mut self.is_suspended) => {
                notes.push(LogNote::Resumed);
            }
            Event::Orphaned => notes.push(LogNote::Orphaned),
            Event::IdentityTaken => notes.push(LogNote::IdentityTaken),
            Event::VoteClaimRefused { voter, from } => {
                if let Some(left_out) = self.claims.pass() {
                    notes.push(LogNote::ClaimRefused { voter: *voter, from: *from, left_out });
                }
            }
            Event::OtherLineage(other) => {
                if let Some(own) = self.view.as_ref().map(|view| view.lineage)
                    && let Some(left_out) = self.lineages.pass()
                {
                    notes.push(LogNote::SecondLineage { own, other: other.clone(), left_out });
                }
            }
            Event::WaitsLeftOut { service, member, count } => {
                if let Some((info, left_out)) = self.beyond_bound(*member) {
                    let (service, count) = (service.clone(), *count);
                    notes.push(LogNote::WaitsLeftOut { service, info, count, left_out });
                }
            }
            Event::TableRefused { service, from } => {
                if let Some((info, left_out)) = self.beyond_bound(*from) {
                    let service = service.clone();
                    notes.push(LogNote::TableRefused { service, info, left_out });
                }
            }
            Event::Expelled => {
                notes.push(LogNote::Expelled);
                self.forget();
            }
            Event::Left { .. } => {
                notes.extend(self.own.take().map(LogNote::Left));
                self.forget();
            }
            Event::Abandoned | Event::Forced => self.forget(),
            _ => {}
        }
    }

    /// The line about another member that grants a service which this program uses.
    pub(crate) fn found_grantor(
        &self,
        service: ServiceName,
        epoch: Epoch,
        process: ProcessId,
    ) -> Option<LogNote> {
        let info = self.view.as_ref()?.member(process)?.info.clone();
        Some(LogNote::Grantor { service, epoch, info })
    }

    /// A member that reported more than is kept, and the number of left-out lines about such
    /// members before. `None`: this line is left out, too.
    fn beyond_bound(&self, process: ProcessId) -> Option<(MemberInfo, u64)> {
        let info = self.view.as_ref()?.member(process)?.info.clone();
        Some((info, self.bounds.pass()?))
    }

    fn forget(&mut self) {
        self.view = None;
        self.is_suspended = false;
        self.ends.clear();
    }

    fn installed(&mut self, view: &View, me: ProcessId, notes: &mut Vec<LogNote>) {
        let lost = std::mem::take(&mut self.lost);
        if let Some(before) = self.lineage.replace(view.lineage)
            && before != view.lineage
        {
            notes.push(LogNote::OtherLineage { before, now: view.lineage, lost });
        }
        let own = view.member(me).map(|member| member.info.clone());
        self.own = own.or_else(|| self.own.take());
        let before = self.view.replace(view.clone());
        if let Some(before) = before.as_ref().filter(|before| before.version != view.version) {
            notes.push(LogNote::Raised { before: before.version, now: view.version });
        }
        let mut changes = Vec::new();
        for member in before.iter().flat_map(|before| &before.members) {
            let (process, info) = (member.info.process, member.info.clone());
            let now = view.members.iter().find(|member| member.info.process == process);
            match now {
                // This member's own end is an event of its own.
                None if process == me => {}
                Some(now) if now.ghost && !member.ghost => changes.push(LogNote::Unreachable(info)),
                Some(_) => {}
                None => changes.push(match self.ends.get(&process) {
                    Some(MemberEnd::Left) => LogNote::Left(info),
                    Some(MemberEnd::Killed) => LogNote::Died { info, cause: "killed" },
                    // Without a goodbye or a witness an elder has no other reason for a removal.
                    None if member.ghost || view.elder().process == me => {
                        LogNote::Died { info, cause: "lease over" }
                    }
                    None => LogNote::Gone(info),
                }),
            }
        }
        let is_new = |process| before.as_ref().is_none_or(|before| !before.contains(process));
        for member in view.members.iter().filter(|member| is_new(member.info.process)) {
            // A member that joins writes no line about members that were there before it. All
            // founders have joined in the first view.
            if before.is_some() || member.info.process == me || member.joined == view.number {
                changes.push(LogNote::Joined(member.info.clone()));
            }
        }
        for change in changes {
            match self.changes.pass() {
                Some(0) => notes.push(change),
                Some(left_out) => notes.extend([LogNote::ChangesLeftOut(left_out), change]),
                None => {}
            }
        }
        let elder = view.elder();
        if before.is_none_or(|before| before.elder().process != elder.process) {
            notes.push(LogNote::Elder { info: elder.clone(), is_me: elder.process == me });
        }
        self.ends.retain(|process, _| view.contains(*process));
    }

    /// Adds the line about a hold that ended against the program's will.
    pub(crate) fn lost(
        &mut self,
        (service, want): (ServiceName, Want),
        token: Token,
        reason: LostReason,
    ) -> Option<LogNote> {
        let is_wanted = matches!(
            reason,
            LostReason::Left | LostReason::Destroyed | LostReason::Released | LostReason::Forked
        );
        if is_wanted || want.opens() {
            return None;
        }
        self.lost += 1;
        let left_out = self.losses.pass()?;
        Some(LogNote::LockLost { service, want, token, reason, left_out })
    }
}

impl LogNote {
    pub(super) fn tell(self) {
        match self {
            LogNote::Joined(MemberInfo { process, addr, name, .. }) => {
                info!(target: "elderlock", parent: None, %name, %addr, %process, "member joined");
            }
            LogNote::Left(MemberInfo { process, addr, name, .. }) => {
                info!(target: "elderlock", parent: None, %name, %addr, %process, "member left");
            }
            LogNote::Died { info: MemberInfo { process, addr, name, .. }, cause } => {
                info!(
                    target: "elderlock", parent: None, %name, %addr, %process, cause,
                    "member died"
                );
            }
            LogNote::Gone(MemberInfo { process, addr, name, .. }) => {
                info!(target: "elderlock", parent: None, %name, %addr, %process, "member is gone");
            }
            LogNote::Unreachable(MemberInfo { process, addr, name, .. }) => {
                info!(
                    target: "elderlock", parent: None, %name, %addr, %process,
                    "member is unreachable: it keeps its locks until its lease is over"
                );
            }
            LogNote::Elder { info: MemberInfo { process, addr, name, .. }, is_me } => {
                info!(target: "elderlock", parent: None, %name, %addr, %process, is_me, "elder");
            }
            LogNote::ChangesLeftOut(left_out) => info!(
                target: "elderlock", parent: None, left_out,
                "more members joined or ended than have lines"
            ),
            LogNote::Grantor { service, epoch, info: MemberInfo { process, addr, name, .. } } => {
                info!(
                    target: "elderlock", parent: None, %service, %epoch, %name, %addr, %process,
                    "found grantor"
                );
            }
            LogNote::OtherLineage { before, now, lost } => warn!(
                target: "elderlock", parent: None, before = %before, lineage = %now, lost,
                "joined another lineage: all that was held in the former one is lost"
            ),
            LogNote::SecondLineage { own, other, left_out } => {
                let LedMember {
                    info: MemberInfo { process, addr, name, .. },
                    lineage,
                    view,
                    elder,
                } = *other;
                warn!(
                    target: "elderlock", parent: None, %name, %addr, %process, %lineage,
                    view = view.0, elder = %elder.process, elder_name = %elder.name, %own, left_out,
                    "another lineage of this cluster runs at {addr}: both grant the same locks; \
                     end the members of one of them, and let them join the other"
                );
            }
            LogNote::Raised { before, now } => info!(
                target: "elderlock", parent: None, before, now,
                "the cluster speaks a later version of the wire"
            ),
            LogNote::Suspended => {
                warn!(target: "elderlock", parent: None, "{}", words::SUSPENDED);
            }
            LogNote::Resumed => info!(target: "elderlock", parent: None, "{}", words::RESUMED),
            LogNote::Orphaned => warn!(target: "elderlock", parent: None, "{}", words::ORPHANED),
            LogNote::IdentityTaken => {
                warn!(target: "elderlock", parent: None, "{}", words::IDENTITY_TAKEN);
            }
            LogNote::ClaimRefused { voter, from, left_out } => warn!(
                target: "elderlock", parent: None, %voter, %from, left_out,
                "refused a process that claimed the vote of a member without its secret"
            ),
            LogNote::WaitsLeftOut { service, info, count, left_out } => warn!(
                target: "elderlock", parent: None,
                service = %ShownService(&service), name = %info.name, process = %info.process,
                count, left_out,
                "no room for waits that a member reported: it asks for them again"
            ),
            LogNote::TableRefused { service, info, left_out } => warn!(
                target: "elderlock", parent: None,
                service = %ShownService(&service), name = %info.name, process = %info.process,
                left_out,
                "the table of the former grantor has more than a grantor keeps: all members are \
                 asked"
            ),
            LogNote::Expelled => warn!(target: "elderlock", parent: None, "{}", words::EXPELLED),
            LogNote::LockLost { service, want, token, reason, left_out } => warn!(
                target: "elderlock", parent: None,
                service = %ShownService(&service),
                lock.name = %LostNames(&want),
                %token, reason = %reason.word(), left_out, "lock lost"
            ),
        }
    }
}

/// The names of a hold, on one line of bounded length. A suspension has none.
struct LostNames<'a>(&'a Want);

impl fmt::Display for LostNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.0.names();
        if let Some(name) = names.first() {
            ShownLockName(name).fmt(f)?;
        }
        match names.len() {
            0 | 1 => Ok(()),
            count => write!(f, " and {} more", count - 1),
        }
    }
}

/// The name of a lock, escaped, on one line of bounded length.
pub(crate) struct ShownLockName<'a>(pub(crate) &'a LockName);

impl fmt::Display for ShownLockName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The `Display` of a lock's name escapes it.
        write!(f, "{}", Shortened(&self.0.to_string()))
    }
}

/// The name of a service, escaped, on one line of bounded length.
pub(crate) struct ShownService<'a>(pub(crate) &'a ServiceName);

impl fmt::Display for ShownService<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", Shortened(&self.0.as_str().escape_debug().to_string()))
    }
}

/// A text, cut to a bounded length.
struct Shortened<'a>(&'a str);

impl fmt::Display for Shortened<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0.char_indices().nth(LONGEST_NAME) {
            Some((end, _)) => write!(f, "{}...", &self.0[..end]),
            None => f.write_str(self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{Host, Slot, Timing, Token, ViewMember, ViewNumber};

    const ME: ProcessId = ProcessId(1);

    fn founded_at(slot: u64) -> View {
        let me = MemberInfo::new(ME, ([127, 0, 0, 1], 7400).into());
        View::first(Slot(slot), vec![me], Timing::fast(), 5)
    }

    /// The number of lost locks in the line about another lineage.
    fn installed(log: &mut MemberLog, view: &View) -> Option<u64> {
        let mut notes = Vec::new();
        log.said(&Event::ViewInstalled(view.clone()), ME, &mut notes);
        notes.iter().find_map(|note| match note {
            LogNote::OtherLineage { lost, .. } => Some(*lost),
            _ => None,
        })
    }

    fn lose(log: &mut MemberLog, reason: LostReason) {
        let service = ServiceName::new("s").expect("a good name");
        let _ = log.lost((service, Want::Suspension), Token::new(Slot(1), 1), reason);
    }

    /// The count includes locks whose own lines were left out.
    #[test]
    fn the_line_about_another_lineage_counts_the_locks_that_were_lost() {
        let mut log = MemberLog::default();
        assert_eq!(installed(&mut log, &founded_at(1)), None, "its first lineage");
        lose(&mut log, LostReason::Suspended);
        let mut next = founded_at(1);
        next.number = next.number.next();
        assert_eq!(installed(&mut log, &next), None, "the same lineage");
        let most = u64::from(MOST_LOSSES) * 3;
        for _ in 0..most {
            lose(&mut log, LostReason::Suspended);
        }
        lose(&mut log, LostReason::Released);
        log.said(&Event::Expelled, ME, &mut Vec::new());
        assert_eq!(installed(&mut log, &founded_at(2)), Some(most));
        assert_eq!(installed(&mut log, &founded_at(3)), Some(0));
    }

    #[test]
    fn a_view_of_a_later_version_has_a_line_and_the_first_view_has_none() {
        let mut log = MemberLog::default();
        let mut raises = |number: u64, version: u16| {
            let first = founded_at(1);
            let view = View { number: ViewNumber(first.number.0 + number), version, ..first };
            let mut notes = Vec::new();
            log.said(&Event::ViewInstalled(view), ME, &mut notes);
            let raised = notes.iter().filter_map(|note| match note {
                LogNote::Raised { before, now } => Some((*before, *now)),
                _ => None,
            });
            raised.collect::<Vec<_>>()
        };
        assert_eq!((raises(0, 12), raises(1, 12)), (vec![], vec![]));
        assert_eq!((raises(2, 13), raises(3, 13)), (vec![(12, 13)], vec![]));
    }

    #[test]
    fn lines_about_another_lineage_have_a_rate() {
        let mut log = MemberLog::default();
        let (own, other) = (founded_at(1), founded_at(2));
        let info = other.members[0].info.clone();
        let led =
            LedMember { elder: info.clone(), info, lineage: other.lineage, view: other.number };
        let mut notes = Vec::new();
        log.said(&Event::OtherLineage(Box::new(led.clone())), ME, &mut notes);
        assert!(notes.is_empty(), "a process in no view has no lineage");
        installed(&mut log, &own);
        for _ in 0..10 * MOST_CLAIMS {
            log.said(&Event::OtherLineage(Box::new(led.clone())), ME, &mut notes);
        }
        let is_told = |note: &&LogNote| match note {
            LogNote::SecondLineage { own: lineage, other, .. } => {
                *lineage == own.lineage && **other == led
            }
            _ => false,
        };
        assert_eq!(notes.iter().filter(is_told).count(), MOST_CLAIMS as usize);
    }

    #[test]
    fn lines_about_bounds_name_the_member_and_have_a_rate() {
        let mut log = MemberLog::default();
        installed(&mut log, &founded_at(1));
        let service = ServiceName::new("s").expect("a good name");
        let mut notes = Vec::new();
        let mut said = |event: &Event| log.said(event, ME, &mut notes);
        said(&Event::TableRefused { service: service.clone(), from: ProcessId(9) });
        for _ in 0..10 * MOST_CLAIMS {
            said(&Event::WaitsLeftOut { service: service.clone(), member: ME, count: 7 });
            said(&Event::TableRefused { service: service.clone(), from: ME });
        }
        let mut waits = 0;
        for note in &notes {
            let (LogNote::WaitsLeftOut { info, .. } | LogNote::TableRefused { info, .. }) = note
            else {
                panic!("another line")
            };
            assert_eq!(info.process, ME, "a process outside the view has no line");
            waits += u32::from(matches!(note, LogNote::WaitsLeftOut { count: 7, .. }));
        }
        assert!(waits * 2 >= MOST_CLAIMS && notes.len() < 2 * MOST_CLAIMS as usize);
    }

    /// A process on another host cannot see a member end, and a process outside the view may send
    /// anything.
    #[test]
    fn a_member_is_said_to_be_killed_by_the_word_of_a_member_on_its_host_only() {
        let on = |process: u128, boot| {
            let pid = process as u32;
            let host = Some(Host { boot, namespace: 1, pid, started: 1 });
            let addr = ([127, 0, 0, 1], 7400 + process as u16).into();
            MemberInfo { host, ..MemberInfo::new(ProcessId(process), addr) }
        };
        let dead = ProcessId(2);
        let view = View::first(Slot(1), vec![on(1, 9), on(2, 9), on(3, 8)], Timing::fast(), 5);
        let told_by = |from: u128| {
            let mut log = MemberLog::default();
            installed(&mut log, &view);
            log.heard(&Input::Received {
                from: ProcessId(from),
                addr: ([127, 0, 0, 1], 7400).into(),
                packet: Notice::Vouch { dead }.into(),
            });
            log.ends.contains_key(&dead)
        };
        assert_eq!([1, 3, 66].map(told_by), [true, false, false]);
    }

    #[test]
    fn lines_about_members_that_join_and_end_have_a_rate() {
        let mut log = MemberLog::default();
        let mut lines = |number: u64, others: std::ops::Range<u64>| {
            let mut view = founded_at(1);
            let member = view.members[0].clone();
            view.number = ViewNumber(view.number.0 + number);
            view.members.extend(others.map(|process| {
                let info = MemberInfo { process: ProcessId(process.into()), ..member.info.clone() };
                ViewMember { info, ..member.clone() }
            }));
            let mut notes = Vec::new();
            log.said(&Event::ViewInstalled(view), ME, &mut notes);
            let is_change = |note: &&LogNote| !matches!(note, LogNote::Elder { .. });
            notes.iter().filter(is_change).count()
        };
        assert_eq!(lines(0, 0..0), 1, "the member itself");
        assert_eq!(lines(1, 100..1100), 1000, "a crowd joins");
        let crowd = |number: u64| 100..100 + number % 2 * 1000;
        let flood: usize = (2..50).map(|number| lines(number, crowd(number))).sum();
        // Some lines are gained meanwhile, and each has a line about those left out before it.
        let left = MOST_CHANGES as usize - 1001;
        assert!((left..10 * left).contains(&flood), "{flood} of 48,000");
    }
}
