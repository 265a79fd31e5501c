//! The content of a record, prepared for drawing.

use crate::record::{Entry, Line, Record, RecordedRequest};
use elderlock_testing::drawing::drawn_run::{
    Breach, DrawnNote, DrawnPacket, DrawnRun, DrawnSite, EpochSpan, FaultBand, HoldSpan, IS_ELDER,
    Span, sites, token,
};
use std::collections::{BTreeMap, BTreeSet};

/// Puts a record together.
pub(super) fn drawn(record: &Record) -> DrawnRun {
    let end = record.lines.iter().map(|line| line.at).max().unwrap_or(0);
    let mut builder =
        RunBuilder { run: DrawnRun { end, ..DrawnRun::default() }, ..RunBuilder::default() };
    for line in &record.lines {
        builder.hear(line);
    }
    builder.finish()
}

#[derive(Default)]
struct RunBuilder {
    run: DrawnRun,
    /// The index in `run.holds`, by the number of the call.
    calls: BTreeMap<usize, usize>,
    sent: BTreeMap<u64, (DrawnPacket, bool)>,
    faults: BTreeMap<usize, usize>,
    /// When and where something happened last.
    last: Option<(u64, usize)>,
}

impl RunBuilder {
    fn site_mut(&mut self, site: usize) -> &mut DrawnSite {
        if self.run.drawn_sites.len() <= site {
            self.run.drawn_sites.resize_with(site + 1, DrawnSite::default);
        }
        &mut self.run.drawn_sites[site]
    }

    fn note(&mut self, line: &Line, rank: u8, words: impl Into<String>) {
        if let Some(site) = line.site {
            self.site_mut(site).notes.push(DrawnNote { at: line.at, words: words.into(), rank });
        }
    }

    fn hear(&mut self, line: &Line) {
        let (at, end) = (line.at, self.run.end);
        let open = Span { from: at, until: end };
        match (&line.entry, line.site) {
            (Entry::Invoke { call, service, request_kind, names, .. }, Some(site))
                if request_kind.is_hold() =>
            {
                self.calls.insert(*call, self.run.holds.len());
                self.site_mut(site);
                let names = if *request_kind == RecordedRequest::Suspend {
                    "*".to_string()
                } else {
                    names.join("+")
                };
                let lock = format!("{service}/{names}");
                let (token, how) = (String::new(), String::new());
                let (got, lease, stopped) = (None, None, None);
                self.run.holds.push(HoldSpan {
                    site,
                    lock,
                    asked: at,
                    got,
                    token,
                    lease,
                    stopped,
                    shared: false,
                    over: end,
                    end: how,
                });
            }
            (Entry::Ok { call, token: number, until, .. }, _) => {
                if let Some(hold) = self.hold(*call) {
                    (hold.got, hold.token, hold.lease) = (Some(at), token(*number), *until);
                }
            }
            (Entry::ModeChanged { call, token: number, .. }, _) => {
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
                self.site_mut(site).alive.push(open);
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
                self.site_mut(site).paused.push(open);
                self.note(line, 0, "stopped");
            }
            (Entry::Wake, Some(site)) => {
                for hold in self
                    .run
                    .holds
                    .iter_mut()
                    .filter(|hold| hold.site == site && hold.end.is_empty())
                {
                    hold.stopped = hold.stopped.filter(|until| *until < at);
                }
                close(self.site_mut(site).paused.last_mut(), at);
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
                let of_it = |epoch_span: &&mut EpochSpan| {
                    epoch_span.span.until == end && epoch_span.service == *service
                };
                if let Some(epoch_span) = self.site_mut(site).epochs.iter_mut().rev().find(of_it) {
                    epoch_span.span.until = at;
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
                    self.run.flights.push(flight);
                }
            }
            (Entry::Fault { fault, kind, sites }, _) => {
                self.faults.insert(*fault, self.run.faults.len());
                let (kind, sites) = (kind.clone(), sites.clone());
                self.run.faults.push(FaultBand { number: Some(*fault), kind, sites, span: open });
            }
            (Entry::Mended { fault }, _) => {
                let fault = self.faults.get(fault).copied();
                close(
                    fault
                        .and_then(|index| self.run.faults.get_mut(index))
                        .map(|shade| &mut shade.span),
                    at,
                );
            }
            (Entry::Heal, _) => {
                self.run.heal = Some(at);
                for fault in self.run.faults.iter_mut().filter(|fault| fault.span.until == end) {
                    fault.span.until = at;
                }
            }
            (Entry::Break { invariant, lock, words }, site) => {
                // The violation was found in the step of the last line with a site.
                let site = site.or(self.last.filter(|(then, _)| *then == at).map(|(_, site)| site));
                let (invariant, lock, words) = (invariant.clone(), lock.clone(), words.clone());
                self.run.breach = Some(Breach { at, site, invariant, lock, words });
            }
            // The rest only makes sense with a site.
            _ => {}
        }
        self.last = line.site.map(|site| (at, site)).or(self.last);
    }

    fn hold(&mut self, call: usize) -> Option<&mut HoldSpan> {
        self.calls.get(&call).and_then(|index| self.run.holds.get_mut(*index))
    }

    fn over(&mut self, call: usize, at: u64, how: &str) {
        let end = self.run.end;
        if let Some(hold) = self.hold(call)
            && hold.end.is_empty()
        {
            (hold.over, hold.end) = (at.min(end), how.to_string());
        }
    }

    fn end_process(&mut self, site: usize, at: u64) {
        let end = self.run.end;
        let drawn = self.site_mut(site);
        for spans in [&mut drawn.alive, &mut drawn.paused, &mut drawn.elder, &mut drawn.suspended] {
            close(spans.last_mut().filter(|span| span.until == end), at);
        }
        for epoch_span in drawn.epochs.iter_mut().filter(|epoch_span| epoch_span.span.until == end)
        {
            epoch_span.span.until = at;
        }
        for hold in
            self.run.holds.iter_mut().filter(|hold| hold.site == site && hold.end.is_empty())
        {
            (hold.over, hold.end) = (at, "its process ended".to_string());
        }
    }

    fn view(&mut self, site: usize, at: u64, is_elder: bool, words: String) {
        let end = self.run.end;
        let drawn = self.site_mut(site);
        let open = drawn.elder.last_mut().filter(|span| span.until == end);
        match (is_elder, open) {
            (true, None) => drawn.elder.push(Span { from: at, until: end }),
            (false, Some(span)) => span.until = at,
            _ => {}
        }
        drawn.views.push(DrawnNote { at, words, rank: 3 });
    }

    /// The process is stopped. When its member's lease ends meanwhile, its holds end, unless it
    /// wakes before.
    fn lease(&mut self, site: usize, at: u64, until: u64) {
        let open =
            |hold: &&mut HoldSpan| hold.site == site && hold.got.is_some() && hold.end.is_empty();
        for hold in self.run.holds.iter_mut().filter(open) {
            hold.stopped = Some(until.max(at));
        }
    }

    fn event(&mut self, line: &Line, name: &str) {
        let Some(site) = line.site else { return };
        let (at, end) = (line.at, self.run.end);
        let plain: String =
            name.chars().filter(char::is_ascii_alphabetic).collect::<String>().to_lowercase();
        match plain.as_str() {
            "suspended" => {
                self.site_mut(site).suspended.push(Span { from: at, until: end });
                self.note(line, 1, "lease over");
            }
            "resumed" => {
                let open =
                    self.site_mut(site).suspended.last_mut().filter(|span| span.until == end);
                let again = open.is_some();
                close(open, at);
                if again {
                    self.note(line, 2, "lease runs again");
                }
            }
            // The label of the stripe that shows the time of an elder.
            "becameelder" => self.note(line, 2, IS_ELDER),
            "left" => {}
            _ => self.note(line, 1, name.replace('_', " ").to_lowercase()),
        }
    }

    fn grantor(&mut self, site: usize, at: u64, service: &str, epoch: String, recovering: bool) {
        let end = self.run.end;
        if !self.run.services.iter().any(|known| known == service) {
            self.run.services.push(service.to_string());
            self.run.services.sort();
        }
        let acts = (!recovering).then_some(at);
        let drawn = self.site_mut(site);
        let known = drawn.epochs.iter_mut().rev().find(|epoch_span| {
            epoch_span.service == service
                && epoch_span.epoch == epoch
                && epoch_span.span.until == end
        });
        match known {
            Some(epoch_span) => epoch_span.acts = epoch_span.acts.or(acts),
            None => {
                // One member grants a service in one epoch at a time.
                for epoch_span in drawn.epochs.iter_mut().filter(|epoch_span| {
                    epoch_span.service == service && epoch_span.span.until == end
                }) {
                    epoch_span.span.until = at;
                }
                let span = Span { from: at, until: end };
                drawn.epochs.push(EpochSpan { span, acts, service: service.to_string(), epoch });
            }
        }
    }

    fn finish(mut self) -> DrawnRun {
        let run = &mut self.run;
        if let Some(breach) = &mut run.breach {
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
            let call = |call: usize| self.calls.get(&call).and_then(|index| run.holds.get(*index));
            let locks = run.holds.iter().map(|hold| hold.lock.as_str()).collect();
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
        self.run.flights.extend(never);
        self.run
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
    use elderlock::protocol::Slot;

    fn run(lines: Vec<(u64, usize, Entry)>) -> DrawnRun {
        let line = |(at, site, entry)| Line { at, site: Some(site), life: 1, entry };
        drawn(&Record { lines: lines.into_iter().map(line).collect() })
    }

    fn ask(call: usize) -> Entry {
        Entry::Invoke {
            call,
            service: "stock".into(),
            request_kind: RecordedRequest::Lock,
            names: vec!["a".into()],
            permits: 0,
            of: None,
            owner: 0,
            wait: None,
            lease: None,
        }
    }

    fn granted(call: usize, until: u64) -> Entry {
        Entry::Ok {
            call,
            token: 7 * Slot::TOKENS + call as u64,
            until: Some(until),
            from_keep: false,
        }
    }

    #[test]
    fn two_holders_of_one_lock_clash_as_long_as_both_leases_run() {
        let told = run(vec![
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
        let told = run(vec![
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
            run(vec![
                (10, 0, ask(0)),
                (20, 0, granted(0, 900)),
                (30, 0, Entry::Pause),
                (30, 0, Entry::Lease { until: Some(60) }),
                (wakes, 0, Entry::Wake),
                (200, 0, Entry::Release { call: 0 }),
            ])
        };
        let until = |run: DrawnRun| run.holds[0].held().map(|span| span.until);
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
        let told = run(vec![(10, 3, ask(4))]);
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
        let told = run(vec![
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
