//! The content of a record, prepared for drawing: spans instead of instants.

use crate::record::{Entry, Line, Record, RecordedRequest};
use elderlock::protocol::Slot;
use std::collections::{BTreeMap, BTreeSet};

/// The label of a member that has become the elder.
pub(super) const IS_ELDER: &str = "is the elder";

/// From one instant of true time to another.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    /// Nanoseconds.
    pub from: u64,
    /// Nanoseconds.
    pub until: u64,
}

impl Span {
    /// Whether the two have an instant in common.
    pub(super) fn meets(&self, other: &Span) -> bool {
        self.from <= other.until && other.from <= self.until
    }
}

/// An event at one instant, in words.
#[derive(Clone, Debug)]
pub(super) struct StoryNote {
    /// The time.
    pub at: u64,
    /// The text.
    pub words: String,
    /// 0 is told before 1.
    pub rank: u8,
}

/// An epoch of a grantor.
#[derive(Clone, Debug)]
pub(super) struct EpochSpan {
    /// From its naming, or since it began to ask.
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
pub(super) struct HoldSpan {
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
    /// When it ended, in any way.
    pub over: u64,
    /// How it ended.
    pub end: String,
}

impl HoldSpan {
    fn leased(&self) -> u64 {
        self.lease.unwrap_or(u64::MAX).min(self.stopped.unwrap_or(u64::MAX))
    }

    /// While its guard may have been believed.
    pub(super) fn held(&self) -> Option<Span> {
        let from = self.got?;
        Some(Span { from, until: self.leased().min(self.over).max(from) })
    }
}

/// The events of one site.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteStory {
    /// While a process was there.
    pub alive: Vec<Span>,
    /// While it was stopped.
    pub paused: Vec<Span>,
    /// While its view said that it is the elder.
    pub elder: Vec<Span>,
    /// While its member lease did not run, after it had.
    pub suspended: Vec<Span>,
    /// Its epochs as grantor.
    pub terms: Vec<EpochSpan>,
    /// Views installed here: when, and in words.
    pub views: Vec<StoryNote>,
    /// Everything else.
    pub notes: Vec<StoryNote>,
}

/// A fault.
#[derive(Clone, Debug)]
pub(super) struct FaultBand {
    /// Its number in the plan.
    pub number: usize,
    /// Its kind.
    pub kind: String,
    /// The sites it hit, as far as it was known when it began.
    pub sites: Vec<usize>,
    /// How long.
    pub span: Span,
}

impl FaultBand {
    /// For a label.
    pub(super) fn words(&self, lanes: usize) -> String {
        let whom = match self.sites.len() {
            0 => String::new(),
            all if all >= lanes => ", all members".to_string(),
            _ => format!(", {}", sites(&self.sites)),
        };
        format!("fault {}: {}{whom}", self.number, self.kind)
    }
}

/// A packet under way.
#[derive(Clone, Debug)]
pub(super) struct DrawnPacket {
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
pub(super) struct Breach {
    /// The time.
    pub at: u64,
    /// Where, if it was seen at one site.
    pub site: Option<usize>,
    /// The invariant.
    pub invariant: String,
    /// The lock, if it is about one.
    pub lock: Option<String>,
    /// In words.
    pub words: String,
}

/// A run, for drawing.
#[derive(Clone, Debug, Default)]
pub(super) struct Story {
    /// One for each site.
    pub lanes: Vec<SiteStory>,
    /// In the order in which they began.
    pub faults: Vec<FaultBand>,
    /// In the order of asking.
    pub holds: Vec<HoldSpan>,
    /// In the order of sending; those that never arrived last.
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
pub(super) fn sites(these: &[usize]) -> String {
    these.iter().map(|site| format!("m{site}")).collect::<Vec<_>>().join(" ")
}

/// A token or an epoch for people: the slot and the number in it.
pub(super) fn token(number: u64) -> String {
    format!("{}.{}", number / Slot::TOKENS, number % Slot::TOKENS)
}

impl Story {
    /// Puts a record together.
    pub(super) fn of(record: &Record) -> Story {
        let end = record.lines.iter().map(|line| line.at).max().unwrap_or(0);
        let mut builder =
            StoryBuilder { story: Story { end, ..Story::default() }, ..StoryBuilder::default() };
        for line in &record.lines {
            builder.hear(line);
        }
        builder.finish()
    }

    /// The lock to show with its tokens: that of the violation, or else the one that was granted
    /// most.
    pub(super) fn focus(&self) -> Option<String> {
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
    pub(super) fn clashes(&self, lock: &str) -> Vec<(usize, Span)> {
        let held: Vec<(usize, Span)> = self
            .holds
            .iter()
            .enumerate()
            .filter_map(|(index, hold)| {
                (hold.lock == lock).then(|| hold.held().map(|span| (index, span))).flatten()
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
    pub(super) fn scene(&self) -> Vec<usize> {
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
    pub(super) fn life(&self, site: usize, at: u64) -> Option<Span> {
        self.lanes
            .get(site)?
            .alive
            .iter()
            .rev()
            .find(|span| span.from <= at && at <= span.until)
            .copied()
    }
}

#[derive(Default)]
struct StoryBuilder {
    story: Story,
    /// Of `story.holds`, by the number of the call.
    calls: BTreeMap<usize, usize>,
    sent: BTreeMap<u64, (DrawnPacket, bool)>,
    faults: BTreeMap<usize, usize>,
    /// When and where something happened last.
    last: Option<(u64, usize)>,
}

impl StoryBuilder {
    fn lane(&mut self, site: usize) -> &mut SiteStory {
        if self.story.lanes.len() <= site {
            self.story.lanes.resize_with(site + 1, SiteStory::default);
        }
        &mut self.story.lanes[site]
    }

    fn note(&mut self, line: &Line, rank: u8, words: impl Into<String>) {
        if let Some(site) = line.site {
            self.lane(site).notes.push(StoryNote { at: line.at, words: words.into(), rank });
        }
    }

    fn hear(&mut self, line: &Line) {
        let (at, end) = (line.at, self.story.end);
        let open = Span { from: at, until: end };
        match (&line.entry, line.site) {
            (Entry::Invoke { call, service, deed, names, .. }, Some(site)) if deed.is_hold() => {
                self.calls.insert(*call, self.story.holds.len());
                self.lane(site);
                let names = if *deed == RecordedRequest::Suspend {
                    "*".to_string()
                } else {
                    names.join("+")
                };
                let lock = format!("{service}/{names}");
                let (token, how) = (String::new(), String::new());
                let (got, lease, stopped) = (None, None, None);
                self.story.holds.push(HoldSpan {
                    site,
                    lock,
                    asked: at,
                    got,
                    token,
                    lease,
                    stopped,
                    over: end,
                    end: how,
                });
            }
            (Entry::Ok { call, token: number, until }, _) => {
                if let Some(hold) = self.hold(*call) {
                    (hold.got, hold.token, hold.lease) = (Some(at), token(*number), *until);
                }
            }
            (Entry::Turned { call, token: number, .. }, _) => {
                if let Some(hold) = self.hold(*call) {
                    hold.token = token(*number);
                }
            }
            (Entry::Extended { call, until }, _) => {
                if let Some(hold) = self.hold(*call) {
                    hold.lease = *until;
                }
            }
            (Entry::Fail { call, answer }, _) => self.over(*call, at, answer),
            (Entry::Unknown { call }, _) => self.over(*call, at, "its process ended"),
            (Entry::Release { call }, _) => self.over(*call, at, "released"),
            (Entry::Lost { call, reason }, _) => self.over(*call, at, &format!("lost: {reason}")),
            (Entry::Write { call, token: number, taken, .. }, Some(_)) => {
                let lock = self.hold(*call).map(|hold| hold.lock.clone()).unwrap_or_default();
                if !taken {
                    self.note(line, 4, format!("write to {lock} with {} refused", token(*number)));
                }
            }
            (Entry::Start, Some(site)) => {
                self.lane(site).alive.push(open);
                if line.life > 1 {
                    self.note(line, 1, "starts again");
                }
            }
            (Entry::End { how }, Some(site)) => {
                self.end_process(site, at);
                if how != "reborn" {
                    self.note(line, 0, how.clone());
                }
            }
            (Entry::Pause, Some(site)) => {
                self.lane(site).paused.push(open);
                self.note(line, 0, "stopped");
            }
            (Entry::Wake, Some(site)) => {
                for hold in self
                    .story
                    .holds
                    .iter_mut()
                    .filter(|hold| hold.site == site && hold.end.is_empty())
                {
                    hold.stopped = hold.stopped.filter(|until| *until < at);
                }
                close(self.lane(site).paused.last_mut(), at);
                self.note(line, 1, "wakes");
            }
            (Entry::Leave, Some(_)) => self.note(line, 1, "is told to leave"),
            (Entry::Lease { until: Some(until) }, Some(site)) => self.lease(site, at, *until),
            (Entry::View { number, members, ghosts, learners, lives, .. }, Some(site)) => {
                let elder = elder(members, lives, &[ghosts, learners]) == Some((site, line.life));
                self.view(
                    site,
                    at,
                    elder,
                    format!(
                        "view {number}: {}{}{}",
                        sites(members),
                        and("ghosts", ghosts),
                        and("learners", learners)
                    ),
                );
            }
            (Entry::Event { name }, Some(_)) => self.event(line, name),
            (Entry::Grantor { service, epoch, recovering }, Some(site)) => {
                self.grantor(site, at, service, token(*epoch), *recovering);
            }
            (Entry::NoGrantor { service, .. }, Some(site)) => {
                let of_it =
                    |term: &&mut EpochSpan| term.span.until == end && term.service == *service;
                if let Some(term) = self.lane(site).terms.iter_mut().rev().find(of_it) {
                    term.span.until = at;
                }
            }
            (Entry::Send { packet, to, kind, lost }, Some(from)) => {
                let kind = kind.clone();
                let flight = DrawnPacket {
                    from,
                    to: *to,
                    kind,
                    sent: at,
                    arrived: None,
                    lost: lost.clone(),
                };
                self.sent.insert(*packet, (flight, false));
            }
            (Entry::Arrive { packet }, Some(to)) => {
                if let Some((flight, arrived)) = self.sent.get_mut(packet) {
                    *arrived = true;
                    let flight = DrawnPacket { to, arrived: Some(at), ..flight.clone() };
                    self.story.flights.push(flight);
                }
            }
            (Entry::Fault { fault, kind, sites }, _) => {
                self.faults.insert(*fault, self.story.faults.len());
                let (kind, sites) = (kind.clone(), sites.clone());
                self.story.faults.push(FaultBand { number: *fault, kind, sites, span: open });
            }
            (Entry::Mended { fault }, _) => {
                let fault = self.faults.get(fault).copied();
                close(
                    fault
                        .and_then(|index| self.story.faults.get_mut(index))
                        .map(|shade| &mut shade.span),
                    at,
                );
            }
            (Entry::Heal, _) => {
                self.story.heal = Some(at);
                for fault in self.story.faults.iter_mut().filter(|fault| fault.span.until == end) {
                    fault.span.until = at;
                }
            }
            (Entry::Break { invariant, lock, words }, site) => {
                // Seen in the step that was written down last.
                let site = site.or(self.last.filter(|(then, _)| *then == at).map(|(_, site)| site));
                let (invariant, lock, words) = (invariant.clone(), lock.clone(), words.clone());
                self.story.breach = Some(Breach { at, site, invariant, lock, words });
            }
            // The rest only makes sense with a site.
            _ => {}
        }
        self.last = line.site.map(|site| (at, site)).or(self.last);
    }

    fn hold(&mut self, call: usize) -> Option<&mut HoldSpan> {
        self.calls.get(&call).and_then(|index| self.story.holds.get_mut(*index))
    }

    fn over(&mut self, call: usize, at: u64, how: &str) {
        let end = self.story.end;
        if let Some(hold) = self.hold(call)
            && hold.end.is_empty()
        {
            (hold.over, hold.end) = (at.min(end), how.to_string());
        }
    }

    fn end_process(&mut self, site: usize, at: u64) {
        let end = self.story.end;
        let lane = self.lane(site);
        for spans in [&mut lane.alive, &mut lane.paused, &mut lane.elder, &mut lane.suspended] {
            close(spans.last_mut().filter(|span| span.until == end), at);
        }
        for term in lane.terms.iter_mut().filter(|term| term.span.until == end) {
            term.span.until = at;
        }
        for hold in
            self.story.holds.iter_mut().filter(|hold| hold.site == site && hold.end.is_empty())
        {
            (hold.over, hold.end) = (at, "its process ended".to_string());
        }
    }

    fn view(&mut self, site: usize, at: u64, is_elder: bool, words: String) {
        let end = self.story.end;
        let lane = self.lane(site);
        let open = lane.elder.last_mut().filter(|span| span.until == end);
        match (is_elder, open) {
            (true, None) => lane.elder.push(Span { from: at, until: end }),
            (false, Some(span)) => span.until = at,
            _ => {}
        }
        lane.views.push(StoryNote { at, words, rank: 3 });
    }

    /// The process is stopped. When its member's lease ends meanwhile, its holds end, unless it
    /// wakes before.
    fn lease(&mut self, site: usize, at: u64, until: u64) {
        let open =
            |hold: &&mut HoldSpan| hold.site == site && hold.got.is_some() && hold.end.is_empty();
        for hold in self.story.holds.iter_mut().filter(open) {
            hold.stopped = Some(until.max(at));
        }
    }

    fn event(&mut self, line: &Line, name: &str) {
        let Some(site) = line.site else { return };
        let (at, end) = (line.at, self.story.end);
        let plain: String =
            name.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_lowercase();
        match plain.as_str() {
            "suspended" => {
                self.lane(site).suspended.push(Span { from: at, until: end });
                self.note(line, 1, "lease over");
            }
            "resumed" => {
                let open = self.lane(site).suspended.last_mut().filter(|span| span.until == end);
                let again = open.is_some();
                close(open, at);
                if again {
                    self.note(line, 2, "lease runs again");
                }
            }
            // Drawn as a stripe.
            "becameelder" => self.note(line, 2, IS_ELDER),
            "left" => {}
            _ => self.note(line, 1, name.replace('_', " ").to_lowercase()),
        }
    }

    fn grantor(&mut self, site: usize, at: u64, service: &str, epoch: String, recovering: bool) {
        let end = self.story.end;
        if !self.story.services.iter().any(|known| known == service) {
            self.story.services.push(service.to_string());
            self.story.services.sort();
        }
        let acts = (!recovering).then_some(at);
        let lane = self.lane(site);
        let known =
            lane.terms.iter_mut().rev().find(|term| {
                term.service == service && term.epoch == epoch && term.span.until == end
            });
        match known {
            Some(term) => term.acts = term.acts.or(acts),
            None => {
                // One member grants a service in one epoch at a time.
                for term in lane
                    .terms
                    .iter_mut()
                    .filter(|term| term.service == service && term.span.until == end)
                {
                    term.span.until = at;
                }
                let span = Span { from: at, until: end };
                lane.terms.push(EpochSpan { span, acts, service: service.to_string(), epoch });
            }
        }
    }

    fn finish(mut self) -> Story {
        let story = &mut self.story;
        if let Some(breach) = &mut story.breach {
            // The history checker runs after the end, and its words name the time of the violation.
            let late = breach
                .words
                .strip_prefix("offline, at ")
                .and_then(|words| words.split_once(" ns: "));
            if let Some((at, words)) =
                late.and_then(|(at, words)| Some((at.parse().ok()?, words.to_string())))
            {
                (breach.at, breach.site, breach.words) = (at, None, words);
            }
            let call =
                |call: usize| self.calls.get(&call).and_then(|index| story.holds.get(*index));
            let locks = story.holds.iter().map(|hold| hold.lock.as_str()).collect();
            let named = |mark: &str| {
                let (_, rest) = breach.words.split_once(mark)?;
                rest[..rest.find(|c: char| !c.is_ascii_digit())?].parse().ok().and_then(call)
            };
            let first = named("call ").or_else(|| named("Ask("));
            breach.words = plain(&breach.words, call, &locks);
            breach.site = breach.site.or(first.map(|hold| hold.site));
            let told =
                locks.iter().find(|lock| breach.words.contains(**lock)).map(ToString::to_string);
            breach.lock = breach.lock.take().or(told).or(first.map(|hold| hold.lock.clone()));
        }
        let never =
            self.sent.into_values().filter(|(_, arrived)| !arrived).map(|(flight, _)| flight);
        self.story.flights.extend(never);
        self.story
    }
}

/// Site and life of the first member that has a vote: ghosts and learners have none.
fn elder(
    members: &[usize],
    lives: &[u64],
    voteless: &[&Vec<(usize, u64)>; 2],
) -> Option<(usize, u64)> {
    let mut processes = members.iter().copied().zip(lives.iter().copied());
    processes.find(|process| !voteless.iter().any(|some| some.contains(process)))
}

fn and(what: &str, processes: &[(usize, u64)]) -> String {
    let at: Vec<usize> = processes.iter().map(|(site, _)| *site).collect();
    if at.is_empty() { String::new() } else { format!(", {what} {}", sites(&at)) }
}

/// Rewrites an invariant's technical text in plain words: calls with their members, locks and
/// tokens as they are drawn. `call` finds a call's hold.
fn plain<'a>(
    words: &str,
    call: impl Fn(usize) -> Option<&'a HoldSpan>,
    locks: &BTreeSet<&str>,
) -> String {
    let mut plain = words.to_string();
    for lock in locks {
        let (service, name) = lock.split_once('/').unwrap_or((lock, ""));
        plain = plain.replace(&format!("(ServiceName({service:?}), {name})"), lock);
        plain = plain.replace(&format!("({service:?}, {name:?})"), lock);
    }
    for mark in ["Ask(", "call ", "calls ", "Some(t"] {
        let mut parts = plain.split(mark);
        let mut said = parts.next().unwrap_or_default().to_string();
        for part in parts {
            let digits = part.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(part.len());
            let (number, rest) = part.split_at(digits);
            let known = number.parse().ok().and_then(&call);
            said += &match (mark, known) {
                ("Some(t", _) => {
                    format!("token {number}{}", rest.strip_prefix(')').unwrap_or(rest))
                }
                ("Ask(", Some(hold)) => {
                    format!("m{}{}", hold.site, rest.strip_prefix(')').unwrap_or(rest))
                }
                ("call ", Some(hold)) if !rest.starts_with(" of m") => {
                    format!("call {number} of m{}{rest}", hold.site)
                }
                _ => format!("{mark}{part}"),
            };
        }
        plain = said;
    }
    // The large numbers that are left are tokens and epochs.
    let is_digit = |c: char| c.is_ascii_digit();
    let mut said = String::new();
    while let Some(from) = plain.find(is_digit) {
        let length = plain[from..].find(|c| !is_digit(c)).unwrap_or(plain.len() - from);
        let number: Result<u64, _> = plain[from..from + length].parse();
        let number = number.ok().filter(|number| *number >= 1 << 32);
        said += &plain[..from];
        said += &number.map_or_else(|| plain[from..from + length].to_string(), token);
        plain.drain(..from + length);
    }
    said + &plain
}

fn close(span: Option<&mut Span>, at: u64) {
    if let Some(span) = span {
        span.until = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn story(lines: Vec<(u64, usize, Entry)>) -> Story {
        let line = |(at, site, entry)| Line { at, site: Some(site), life: 1, entry };
        Story::of(&Record { lines: lines.into_iter().map(line).collect() })
    }

    fn ask(call: usize) -> Entry {
        Entry::Invoke {
            call,
            service: "stock".into(),
            deed: RecordedRequest::Lock,
            names: vec!["a".into()],
            permits: 0,
            of: None,
            owner: 0,
            wait: None,
            lease: None,
        }
    }

    fn granted(call: usize, until: u64) -> Entry {
        Entry::Ok { call, token: 7 * Slot::TOKENS + call as u64, until: Some(until) }
    }

    #[test]
    fn two_holders_of_one_lock_clash_as_long_as_both_leases_run() {
        let told = story(vec![
            (10, 0, ask(0)),
            (20, 0, granted(0, 60)),
            (30, 1, ask(1)),
            (50, 1, granted(1, 90)),
            (80, 0, Entry::Lost { call: 0, reason: "lease ended".into() }),
            (95, 1, Entry::Release { call: 1 }),
        ]);
        let shared = Span { from: 50, until: 60 };
        assert_eq!(told.clashes("stock/a"), [(0, shared), (1, shared)]);
        assert_eq!(
            (told.holds[0].token.as_str(), told.focus().as_deref()),
            ("7.0", Some("stock/a"))
        );
        assert!(told.clashes("stock/b").is_empty());
    }

    #[test]
    fn a_release_at_the_instant_of_the_next_grant_does_not_clash() {
        let told = story(vec![
            (10, 0, ask(0)),
            (20, 0, granted(0, 900)),
            (50, 0, Entry::Release { call: 0 }),
            (50, 1, ask(1)),
            (50, 1, granted(1, 900)),
            (99, 1, Entry::Release { call: 1 }),
        ]);
        assert_eq!(told.clashes("stock/a"), []);
    }

    #[test]
    fn a_stopped_holder_holds_until_its_members_lease_ends_unless_it_wakes_before() {
        let stopped = |wakes: u64| {
            story(vec![
                (10, 0, ask(0)),
                (20, 0, granted(0, 900)),
                (30, 0, Entry::Pause),
                (30, 0, Entry::Lease { until: Some(60) }),
                (wakes, 0, Entry::Wake),
                (200, 0, Entry::Release { call: 0 }),
            ])
        };
        let until = |story: Story| story.holds[0].held().map(|span| span.until);
        assert_eq!((until(stopped(40)), until(stopped(80))), (Some(200), Some(60)));
    }

    #[test]
    fn the_elder_is_the_first_listed_process_that_is_no_ghost() {
        assert_eq!(elder(&[2, 0, 1], &[1, 3, 1], &[&vec![(2, 1)], &Vec::new()]), Some((0, 3)));
        // A site is listed twice: with the ghost of a process, and with the next process.
        assert_eq!(elder(&[2, 2, 0], &[1, 2, 1], &[&vec![(2, 1)], &Vec::new()]), Some((2, 2)));
        // The later process of a site may stand before the ghost of the former one.
        assert_eq!(elder(&[2, 2, 0], &[2, 1, 1], &[&vec![(2, 1)], &Vec::new()]), Some((2, 2)));
        assert_eq!(elder(&[2], &[1], &[&vec![(2, 1)], &Vec::new()]), None);
    }

    #[test]
    fn technical_words_become_plain_words() {
        let told = story(vec![(10, 3, ask(4))]);
        let call = |call: usize| (call == 4).then(|| &told.holds[0]);
        let locks = BTreeSet::from(["stock/a"]);
        for (words, said) in [
            (
                "(ServiceName(\"stock\"), a) is held by m1 with Some(t1040.1)",
                "stock/a is held by m1 with token 1040.1",
            ),
            ("Ask(4) before Ask(9)", "m3 before Ask(9)"),
            (
                "call 4 begins with 8388608003, when epoch 8392802305 has acted",
                "call 4 of m3 begins with 2000.3, when epoch 2001.1 has acted",
            ),
            (
                "call 4 of m3 for (\"stock\", \"a\") took 12 ns",
                "call 4 of m3 for stock/a took 12 ns",
            ),
        ] {
            assert_eq!(plain(words, call, &locks), said);
        }
    }

    #[test]
    fn a_finding_of_the_history_checker_is_drawn_when_it_happened() {
        let words = "offline, at 50 ns: call 0 begins with 8388608003".to_string();
        let told = story(vec![
            (10, 2, ask(0)),
            (900, 1, Entry::Break { invariant: "tokens_rise".into(), lock: None, words }),
        ]);
        let breach = told.breach.expect("it is broken");
        assert_eq!(
            (breach.at, breach.site, breach.lock.as_deref()),
            (50, Some(2), Some("stock/a"))
        );
        assert_eq!(breach.words, "call 0 of m2 begins with 2000.3");
    }
}
