//! Checks calls, holds and the protected resources.

use super::site_index::SiteIndex;
use super::{Findings, Terms};
use crate::record::{Entry, Line, Record, RecordedRequest};
use std::collections::{BTreeMap, BTreeSet};

/// How much later than its limit an answer may come.
const LATE: u64 = 2_000_000;

/// A lock of a service. The empty name, which no lock has, stands for the suspension of the
/// service.
type Lock<'a> = (&'a str, &'a str);

/// The course of a call.
#[derive(Clone, Debug)]
struct LockCall<'a> {
    number: usize,
    site: usize,
    life: u64,
    service: &'a str,
    deed: RecordedRequest,
    locks: Vec<Lock<'a>>,
    owner: u64,
    /// Its wait limit in nanoseconds; zero: a try.
    wait: Option<u64>,
    asked: u64,
    /// The process was stopped since the call.
    slept: bool,
    /// Answered without a lock.
    failed: bool,
    /// The hold was released, or the call was given up.
    released: Option<u64>,
    /// The process told that the hold is over.
    lost: Option<u64>,
    /// The process has ended.
    unknown: Option<u64>,
    hold: Option<Hold>,
    /// The call has an object open.
    opened: bool,
    /// How many permits it has, and how many it had until which time.
    permits: u32,
    more: Vec<(u64, u32)>,
    /// Its earlier holds, before an upgrade or downgrade.
    before: Vec<HoldInterval>,
    /// The last version of an object that it saw.
    seen: Option<u64>,
}

/// A time in which a call held in one mode.
#[derive(Clone, Copy, Debug)]
struct HoldInterval {
    deed: RecordedRequest,
    token: u64,
    from: u64,
    order: usize,
    until: u64,
}

/// The state of a lock from the grant on.
#[derive(Clone, Debug)]
struct Hold {
    token: u64,
    from: u64,
    /// How many grants were told before.
    order: usize,
    /// The end of the lock's lease.
    until: u64,
    /// The end of its member's lease, if that ended while the process was stopped.
    cap: u64,
}

impl LockCall<'_> {
    /// Returns the time at which its end is known to all.
    fn told(&self) -> u64 {
        [self.released, self.lost, self.unknown].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Returns the time until which its guard gives the token: the earliest of the told end, the
    /// end of the lock's lease and the end of the member's lease.
    fn believed_until(&self) -> u64 {
        self.hold.as_ref().map_or(0, |hold| hold.until.min(hold.cap).min(self.told()))
    }

    fn waits(&self) -> bool {
        self.hold.is_none() && !self.opened && !self.failed && self.told() == u64::MAX
    }

    fn holds(&self) -> bool {
        (self.hold.is_some() || self.opened) && self.told() == u64::MAX
    }

    /// All its holds, one after the other.
    fn stays(&self) -> Vec<HoldInterval> {
        let mut stays = self.before.clone();
        stays.extend(self.hold.as_ref().map(|hold| {
            let (token, from, order) = (hold.token, hold.from, hold.order);
            HoldInterval { deed: self.deed, token, from, order, until: self.believed_until() }
        }));
        stays
    }

    /// How many tokens it has for each of its locks.
    fn tokens(&self) -> u64 {
        u64::from(self.more.first().map_or(self.permits, |(_, permits)| *permits)).max(1)
    }

    fn is_try(&self) -> bool {
        self.wait == Some(0)
    }
}

/// The reading of one record.
struct Sweep<'a, 'f> {
    terms: &'f Terms,
    findings: &'f mut Findings,
    stage: SiteIndex,
    calls: BTreeMap<usize, LockCall<'a>>,
    /// Services with a suspension request.
    suspended: BTreeSet<&'a str>,
    /// Epochs that began with a recovery: the record has their first tables.
    recovered: BTreeSet<(&'a str, u64)>,
    /// The services that each site grants, as far as the record says.
    grants: BTreeSet<(usize, &'a str)>,
    /// Services that each process has destroyed.
    destroyed: BTreeSet<(usize, u64, &'a str)>,
    /// Services with a requested revocation.
    revoked: BTreeSet<&'a str>,
    /// Calls of a lock that wait or hold.
    open: BTreeMap<Lock<'a>, Vec<usize>>,
    /// The highest epoch of each service that has begun to act after a recovery.
    acting: BTreeMap<&'a str, u64>,
    /// The service of each epoch that was told, and when it was told first.
    epochs: BTreeMap<u64, (&'a str, u64)>,
    /// The first token of each range, with its service and when it was told: of epochs, and of
    /// ranges that were dealt later.
    ranges: BTreeMap<u64, (&'a str, u64)>,
    /// Holds whose lock was granted on before their end was told. The end must be told at that very
    /// instant.
    untold: Vec<(u64, usize, usize)>,
    /// Shares and permits that were served before others with earlier requests. The token tells
    /// whether the others were granted by then, by an earlier grantor, and told late.
    passed: Vec<(u64, usize, usize)>,
    /// Calls that a process told to be lost by its expulsion: a view without it is due at that very
    /// instant.
    expelled: Vec<(u64, usize, u64, usize)>,
    /// When a process had a view without itself, or was told that it is expelled.
    out: BTreeSet<(usize, u64, u64)>,
    /// The highest token that each store has seen.
    stores: BTreeMap<Lock<'a>, u64>,
    /// Grants so far.
    granted: usize,
    /// The values of each version of each object.
    values: BTreeMap<Lock<'a>, BTreeMap<u64, &'a str>>,
    /// The time from which each number of permits may have been in force, rising.
    limits: BTreeMap<Lock<'a>, Vec<(u64, u64)>>,
}

/// The service and epoch of a grantor's first table after a recovery, if the line tells one.
fn first_table(line: &Line) -> Option<(&str, u64)> {
    match &line.entry {
        Entry::Table { service, epoch, .. } => Some((service, *epoch)),
        _ => None,
    }
}

pub(super) fn check(record: &Record, terms: &Terms, findings: &mut Findings) -> Result<(), String> {
    let mut sweep = Sweep {
        terms,
        findings,
        stage: SiteIndex::default(),
        calls: BTreeMap::new(),
        suspended: BTreeSet::new(),
        recovered: record.lines.iter().filter_map(first_table).collect(),
        grants: BTreeSet::new(),
        destroyed: BTreeSet::new(),
        revoked: BTreeSet::new(),
        open: BTreeMap::new(),
        acting: BTreeMap::new(),
        epochs: BTreeMap::new(),
        ranges: BTreeMap::new(),
        untold: Vec::new(),
        passed: Vec::new(),
        expelled: Vec::new(),
        out: BTreeSet::new(),
        stores: BTreeMap::new(),
        granted: 0,
        values: BTreeMap::new(),
        limits: BTreeMap::new(),
    };
    for line in &record.lines {
        sweep.read(line)?;
        sweep.stage.heed(line);
    }
    sweep.finish();
    Ok(())
}

impl<'a> Sweep<'a, '_> {
    fn call(&mut self, number: usize, line: &Line) -> Result<&mut LockCall<'a>, String> {
        let call =
            self.calls.get_mut(&number).ok_or_else(|| format!("call {number} was never asked"))?;
        if line.site != Some(call.site) {
            return Err(format!("call {number} of m{} goes on at {:?}", call.site, line.site));
        }
        Ok(call)
    }

    fn flaw(&mut self, invariant: &'static str, at: u64, what: String) {
        self.findings.flaw(invariant, at, what);
    }

    fn read(&mut self, line: &'a Line) -> Result<(), String> {
        let (at, site) = (line.at, line.site.unwrap_or_default());
        match &line.entry {
            Entry::Invoke { call, service, deed, names, permits, owner, wait, .. } => {
                let mut locks: Vec<Lock<'a>> =
                    names.iter().map(|name| (service.as_str(), name.as_str())).collect();
                if *deed == RecordedRequest::Suspend {
                    locks.push((service, ""));
                    self.suspended.insert(service);
                }
                if *deed == RecordedRequest::Destroy {
                    self.destroyed.insert((site, line.life, service));
                }
                if *deed == RecordedRequest::Revoke {
                    self.revoked.insert(service);
                }
                let new = LockCall {
                    number: *call,
                    site,
                    life: line.life,
                    service,
                    deed: *deed,
                    locks: locks.clone(),
                    owner: *owner,
                    wait: *wait,
                    asked: at,
                    slept: self.stage.site(site).paused,
                    failed: false,
                    released: None,
                    lost: None,
                    unknown: None,
                    hold: None,
                    opened: false,
                    permits: *permits,
                    more: Vec::new(),
                    before: Vec::new(),
                    seen: None,
                };
                if self.calls.insert(*call, new).is_some() {
                    return Err(format!("call {call} is asked twice"));
                }
                // A grant may be heard before any client has seen the limit that it comes under.
                if *deed == RecordedRequest::Put
                    && let Some(object) = locks.first()
                    && self.limits.contains_key(object)
                {
                    self.on_limit(*object, at, (*permits).into());
                }
                for lock in locks.into_iter().filter(|_| deed.is_hold()) {
                    self.open.entry(lock).or_default().push(*call);
                }
            }
            Entry::Ok { call, .. }
                if self.calls.get(call).is_some_and(|call| call.deed == RecordedRequest::Open) =>
            {
                self.on_answer(line, *call, false)?;
                self.call(*call, line)?.opened = true;
            }
            Entry::Turned { call, deed, token } => self.on_turned(line, *call, *deed, *token)?,
            Entry::GivenBack { call, left } => {
                let call = self.call(*call, line)?;
                call.more.push((at, call.permits));
                call.permits = *left;
            }
            Entry::Sees { call, version, value, .. } => {
                self.on_sight(line, *call, *version, value)?
            }
            Entry::Ok { call, token, until } => {
                self.on_ok(line, *call, *token, until.unwrap_or(u64::MAX))?
            }
            Entry::Fail { call, answer } => {
                self.on_answer(line, *call, answer == "timed out")?;
                let asked = self.call(*call, line)?;
                let (deed, service) = (asked.deed, asked.service);
                if deed == RecordedRequest::Become {
                    self.findings.premise("last_young_turk_wins");
                    if answer == "won" && !self.grants.contains(&(site, service)) {
                        let what = format!("m{site} is told that it grants {service} and does not");
                        self.flaw("last_young_turk_wins", at, what);
                    }
                }
                self.call(*call, line)?.failed = true;
                self.close(*call);
            }
            Entry::Unknown { call } => {
                self.call(*call, line)?.unknown = Some(at);
                self.close(*call);
            }
            Entry::Release { call } => {
                self.call(*call, line)?.released = Some(at);
                self.close(*call);
            }
            Entry::Lost { call, reason } => self.on_lost(line, *call, reason)?,
            Entry::Extended { call, until } => {
                let call = self.call(*call, line)?;
                let holds = call.holds();
                if let Some(hold) = &mut call.hold {
                    hold.until = until.unwrap_or(u64::MAX);
                }
                if !holds {
                    let what = format!("call {} is extended and does not hold", call.number);
                    self.flaw("one_outcome_per_request", at, what);
                }
            }
            Entry::Write { call, index, token, taken } => {
                self.on_write(line, *call, *index, *token, *taken)?
            }
            Entry::Wake => self.on_wake(site, at),
            Entry::Pause => {
                for call in self
                    .calls
                    .values_mut()
                    .filter(|call| call.site == site && call.life == line.life)
                {
                    call.slept = true;
                }
            }
            Entry::End { how } => {
                self.grants.retain(|(of, _)| *of != site);
                if how == "killed" {
                    // A torn step may have told the end of a hold without the view that ended it.
                    self.out.insert((site, line.life, at));
                }
                self.on_end(line, how);
            }
            Entry::View { members, lives, .. }
                if members
                    .iter()
                    .zip(lives)
                    .all(|(member, life)| (*member, *life) != (site, line.life)) =>
            {
                self.out.insert((site, line.life, at));
            }
            Entry::Event { name } if name == "expelled" => {
                self.out.insert((site, line.life, at));
            }
            Entry::Tokens { service, first } => {
                self.ranges.entry(*first).or_insert((service, at));
            }
            Entry::Grantor { service, epoch, recovering } => {
                self.epochs.entry(*epoch).or_insert((service, at));
                self.ranges.entry(*epoch).or_insert((service, at));
                let held = self.open.iter().filter(|(lock, _)| lock.0 == service.as_str());
                let held = held
                    .flat_map(|(_, open)| open)
                    .filter(|call| self.calls[*call].holds())
                    .count();
                if *recovering {
                    (0..held).for_each(|_| self.findings.premise("holds_survive"));
                    return Ok(());
                }
                self.grants.insert((site, service));
                // A grantor with a transferred table repeats the grants in it.
                if self.recovered.contains(&(service.as_str(), *epoch)) {
                    let acting = self.acting.entry(service).or_default();
                    *acting = (*acting).max(*epoch);
                }
            }
            Entry::NoGrantor { service, .. } => _ = self.grants.remove(&(site, service.as_str())),
            _ => {}
        }
        Ok(())
    }

    /// An answer of any kind must be the first one, be in time, and belong to a call that is still
    /// wanted.
    fn on_answer(&mut self, line: &Line, number: usize, timed_out: bool) -> Result<(), String> {
        let Terms { bounded, error_ppm, answer, .. } = *self.terms;
        self.findings.premise("one_outcome_per_request");
        let call = self.call(number, line)?.clone();
        // An answer that the member found first in the step of the giving up may still be told.
        let crossing = call.released == Some(line.at) && call.hold.is_none() && !call.failed;
        if line.life != call.life || !(call.waits() || crossing) {
            let what = format!("call {number} is answered and was over: {call:?}");
            self.flaw("one_outcome_per_request", line.at, what);
        }
        let limit = match call.wait {
            Some(0) => answer,
            Some(limit) => limit,
            None if timed_out => {
                self.flaw(
                    "one_outcome_per_request",
                    line.at,
                    format!("call {number} waits for ever and timed out"),
                );
                return Ok(());
            }
            None => return Ok(()),
        };
        let took = line.at - call.asked;
        if bounded && !call.slept && took > limit + limit * 2 * error_ppm / 1_000_000 + LATE {
            self.flaw(
                "one_outcome_per_request",
                line.at,
                format!("call {number} took {took} ns of {limit}"),
            );
        }
        if bounded
            && timed_out
            && !call.is_try()
            && took + LATE < limit - limit * 2 * error_ppm / 1_000_000
        {
            self.flaw(
                "one_outcome_per_request",
                line.at,
                format!("call {number} timed out after {took} ns of {limit}"),
            );
        }
        Ok(())
    }

    fn on_ok(&mut self, line: &Line, number: usize, token: u64, until: u64) -> Result<(), String> {
        self.on_answer(line, number, false)?;
        let (at, site) = (line.at, line.site.unwrap_or_default());
        self.granted += 1;
        let order = self.granted;
        let call = self.call(number, line)?;
        call.hold = Some(Hold { token, from: at, order, until, cap: u64::MAX });
        let (service, life, is_over) = (call.service, call.life, call.told() != u64::MAX);
        let deed = call.deed;
        let locks = call.locks.clone();
        let others = locks.iter().filter_map(|lock| self.open.get(lock)).flatten().copied();
        let others: BTreeSet<usize> = others.filter(|other| *other != number).collect();
        for other in others {
            let other = &self.calls[&other];
            if other.holds() {
                if !other.deed.suffers(deed) && !self.stage.site(other.site).paused {
                    self.untold.push((at, other.number, number));
                }
            } else if other.waits() && (other.site, other.life) == (site, life) && !other.is_try() {
                // An owner with a hold passes the requests that wait behind a suspension.
                if self.suspended.contains(service) || self.terms.crowded {
                    continue;
                }
                self.findings.premise("fifo_across_failover");
                if other.number < number && !self.calls[&number].is_try() {
                    if other.deed.suffers(deed) {
                        self.passed.push((at, other.number, number));
                        continue;
                    }
                    let what = format!(
                        "call {number} of m{site} is served before {}, for {locks:?}",
                        other.number
                    );
                    self.findings.flaw("fifo_across_failover", at, what);
                }
            }
        }
        if self.terms.bounded
            && let Some(acting) = self.acting.get(service)
        {
            self.findings.premise("no_resurrected_grant");
            // A grant that came while the member's lease did not run was reported. Its hold begins
            // when the lease runs again.
            if token < *acting && self.stage.site(site).resumed_at != Some(at) {
                let what =
                    format!("call {number} begins with {token}, when epoch {acting} has acted");
                self.findings.flaw("no_resurrected_grant", at, what);
            }
        }
        if is_over {
            self.close(number);
        }
        Ok(())
    }

    /// A lock becomes a share, or a share the lock: no other hold may have excluded it.
    fn on_turned(
        &mut self,
        line: &Line,
        number: usize,
        deed: RecordedRequest,
        token: u64,
    ) -> Result<(), String> {
        let at = line.at;
        self.granted += 1;
        let order = self.granted;
        let call = self.call(number, line)?;
        let (was, hold) = (call.deed, call.hold.clone());
        let Some(hold) = hold.filter(|_| call.told() == u64::MAX) else {
            let what = format!("call {number} becomes another and does not hold: {call:?}");
            self.flaw("one_outcome_per_request", at, what);
            return Ok(());
        };
        let until = call.believed_until().min(at);
        call.before.push(HoldInterval {
            deed: was,
            token: hold.token,
            from: hold.from,
            order: hold.order,
            until,
        });
        let order = if token == hold.token { hold.order } else { order };
        call.deed = deed;
        call.hold = Some(Hold { token, from: at, order, ..hold });
        Ok(())
    }

    /// A client sees another value of its open object. It must be a later one, and all clients that
    /// see that version must see the same value.
    fn on_sight(
        &mut self,
        line: &Line,
        number: usize,
        version: u64,
        value: &'a str,
    ) -> Result<(), String> {
        const NAME: &str = "values_are_seen_in_order";
        let call = self.call(number, line)?;
        let Some(&object) = call.locks.first() else {
            return Err(format!("call {number} has no object"));
        };
        let before = call.seen.replace(version);
        self.findings.premise(NAME);
        if before > Some(version) {
            self.flaw(
                NAME,
                line.at,
                format!("call {number} sees version {version} after {before:?}"),
            );
        }
        let first = *self.values.entry(object).or_default().entry(version).or_insert(value);
        if first != value {
            self.flaw(
                NAME,
                line.at,
                format!("version {version} of {object:?} is {first} and {value}"),
            );
        }
        if let Ok(limit) = value.parse() {
            self.on_limit(object, line.at, limit);
        }
        Ok(())
    }

    /// The object may have this limit from now on.
    fn on_limit(&mut self, object: Lock<'a>, at: u64, limit: u64) {
        let limits = self.limits.entry(object).or_default();
        if limits.last().is_none_or(|(_, most)| *most < limit) {
            limits.push((at, limit));
        }
    }

    fn on_lost(&mut self, line: &Line, number: usize, reason: &str) -> Result<(), String> {
        let at = line.at;
        let call = self.call(number, line)?;
        let crossing = call.released == Some(at) && call.lost.is_none() && call.hold.is_some();
        if !call.holds() && !crossing {
            let what = format!("call {number} is lost ({reason}) and was not held: {call:?}");
            self.findings.flaw("one_outcome_per_request", at, what);
            return Ok(());
        }
        call.lost = Some(at);
        let (site, life, service) = (call.site, call.life, call.service);
        let opens = call.deed == RecordedRequest::Open;
        let until = call.hold.as_ref().map_or(0, |hold| hold.until);
        let state = self.stage.site(site);
        let why = match reason {
            "lease ended" => at >= until,
            "suspended" => !state.is_leased(at),
            "left" => state.leaving,
            "destroyed" => self.destroyed.contains(&(site, life, service)),
            "superseded" => !self.terms.bounded,
            "revoked" => self.revoked.contains(service),
            // An open object outlives the lease, and ends when an operator forces its member.
            "expelled" if opens && !state.is_leased(at) => true,
            "expelled" => {
                self.expelled.push((at, site, life, number));
                true
            }
            _ => false,
        };
        self.findings.premise("holds_survive");
        if !why {
            self.flaw(
                "holds_survive",
                at,
                format!("call {number} of m{site} is lost without a cause: {reason}"),
            );
        }
        self.close(number);
        Ok(())
    }

    fn on_write(
        &mut self,
        line: &Line,
        number: usize,
        index: usize,
        token: u64,
        taken: bool,
    ) -> Result<(), String> {
        // The writer may be gone while its write is under way: the store sees the token only.
        let call =
            self.calls.get(&number).ok_or_else(|| format!("call {number} was never asked"))?;
        let lock =
            *call.locks.get(index).ok_or_else(|| format!("call {number} has no lock {index}"))?;
        let own = call.hold.as_ref().map(|hold| hold.token + index as u64);
        // It may have had the lock before, with another token.
        let is_own = own == Some(token) || call.before.iter().any(|stay| stay.token == token);
        let believes = line.life == call.life && line.at < call.believed_until();
        let highest = self.stores.entry(lock).or_default();
        self.findings.premise("stale_writes_are_refused");
        if !is_own {
            let what = format!("call {number} writes with {token}, its token is {own:?}");
            self.findings.flaw("stale_writes_are_refused", line.at, what);
        } else if taken != (token >= *highest) {
            let what = format!(
                "a write with {token} after {highest} is {}",
                if taken { "taken" } else { "refused" }
            );
            self.findings.flaw("stale_writes_are_refused", line.at, what);
        } else if !taken && believes && own == Some(token) && self.terms.bounded {
            let what = format!("call {number} believes in {token}, and {highest} has written");
            self.findings.flaw("stale_writes_are_refused", line.at, what);
        }
        *highest = (*highest).max(token);
        Ok(())
    }

    /// A stopped process wakes: its beliefs ended with its member's lease, if that ended meanwhile.
    fn on_wake(&mut self, site: usize, at: u64) {
        let end = self.stage.site(site).belief_end();
        if end < at {
            self.cap(site, end);
        }
    }

    fn cap(&mut self, site: usize, end: u64) {
        for number in self.open.values().flatten() {
            if let Some(call) = self.calls.get_mut(number)
                && call.site == site
                && let Some(hold) = &mut call.hold
            {
                hold.cap = hold.cap.min(end);
            }
        }
    }

    /// A process has ended. Its calls are unknown already; a process that ended in order owes no
    /// answer.
    fn on_end(&mut self, line: &Line, how: &str) {
        let site = line.site.unwrap_or_default();
        let end = self.stage.site(site).belief_end();
        let mut owing = Vec::new();
        for call in
            self.calls.values_mut().filter(|call| (call.site, call.life) == (site, line.life))
        {
            if call.unknown == Some(line.at) {
                owing.push(call.number);
            }
            if let Some(hold) = &mut call.hold {
                hold.cap = hold.cap.min(end);
            }
        }
        if matches!(how, "left" | "reborn") && !owing.is_empty() {
            let what = format!("m{site} ended in order and owes an answer to calls {owing:?}");
            self.flaw("one_outcome_per_request", line.at, what);
        }
    }

    fn close(&mut self, number: usize) {
        let Some(call) = self.calls.get(&number) else { return };
        for lock in &call.locks {
            if let Some(open) = self.open.get_mut(lock) {
                open.retain(|open| *open != number);
            }
        }
    }

    /// Returns whether `earlier` was granted in time, and its member heard of it only after the
    /// later call at `at`. Also true if it was given up before its grantor's answer was due: then
    /// this is unknown.
    fn was_told_late(&self, earlier: usize, at: u64) -> bool {
        let call = &self.calls[&earlier];
        match call.stays().first() {
            Some(hold) => is_late(&self.epochs, call.service, hold),
            None => call.told() < at + self.terms.answer,
        }
    }

    /// Checks the holds of each lock by their tokens, which takes the whole record.
    fn finish(mut self) {
        for site in
            self.stage.sites().map(|(site, state)| (site, state.belief_end())).collect::<Vec<_>>()
        {
            self.cap(site.0, site.1);
        }
        for (at, holder, next) in std::mem::take(&mut self.untold) {
            if self.terms.bounded && self.calls[&holder].told() > at {
                let what = format!("call {next} has the lock and call {holder} was not told");
                self.flaw("told_before_regrant", at, what);
            }
        }
        for (at, earlier, later) in std::mem::take(&mut self.passed) {
            if !self.was_told_late(earlier, at) {
                let what =
                    format!("call {later} is served before {earlier}, beside which it may be");
                self.flaw("fifo_across_failover", at, what);
            }
        }
        for (at, site, life, number) in std::mem::take(&mut self.expelled) {
            if !self.out.contains(&(site, life, at)) {
                let what =
                    format!("call {number} of m{site} is lost to an expulsion that did not happen");
                self.flaw("holds_survive", at, what);
            }
        }
        let mut holds: BTreeMap<Lock<'_>, Vec<(HoldInterval, &LockCall<'_>)>> = BTreeMap::new();
        let mut owners: BTreeMap<u64, usize> = BTreeMap::new();
        for call in self.calls.values() {
            for stay in call.stays() {
                self.findings.premise("token_belongs_to_one_hold");
                for (index, lock) in call.locks.iter().enumerate() {
                    let token = stay.token + index as u64;
                    for token in token..token + call.tokens() {
                        if let Some(other) =
                            owners.insert(token, call.number).filter(|other| *other != call.number)
                        {
                            let what = format!(
                                "calls {other} and {} both have the token {token}",
                                call.number
                            );
                            self.findings.flaw("token_belongs_to_one_hold", stay.from, what);
                        }
                    }
                    holds.entry(*lock).or_default().push((HoldInterval { token, ..stay }, call));
                }
            }
        }
        for (lock, holds) in &mut holds {
            holds.sort_by_key(|(stay, _)| (stay.token, stay.from));
            find_strays((&self.ranges, &self.epochs), lock, holds, self.findings);
        }
        if !self.terms.bounded {
            return;
        }
        find_company(&self.calls, self.findings);
        for (lock, holds) in &holds {
            find_crowds(lock, holds, self.findings);
            if let Some(limits) = self.limits.get(lock) {
                find_excess(lock, holds, limits, self.findings);
            }
        }
    }
}

/// Finds holds that exclude each other and overlap: the hold with the higher token must begin when
/// the other is over.
fn find_crowds(lock: &Lock<'_>, holds: &[(HoldInterval, &LockCall<'_>)], findings: &mut Findings) {
    // The hold with the longest belief is compared with, for each mode.
    let mut last: BTreeMap<RecordedRequest, (HoldInterval, &LockCall<'_>)> = BTreeMap::new();
    for (stay, call) in holds {
        let from = stay.from;
        findings.premise("exclusive_by_lease");
        for (_, (before, other)) in last.iter().filter(|(deed, _)| !deed.suffers(stay.deed)) {
            let is_alone =
                before.deed == RecordedRequest::Lock && stay.deed == RecordedRequest::Lock;
            let name = if is_alone { "exclusive_by_lease" } else { "no_writer_with_reader" };
            findings.premise(name);
            findings.premise("tokens_rise");
            if before.from > from {
                let what = format!(
                    "{} of call {} for {lock:?} begins before a lower one",
                    stay.token, call.number
                );
                findings.flaw("tokens_rise", before.from, what);
            }
            if other.lost.is_some_and(|lost| lost <= from) {
                findings.premise("told_before_regrant");
            }
            if before.until > from {
                let call_text =
                    |call: &LockCall<'_>| format!("call {} of m{}", call.number, call.site);
                let what =
                    format!("{lock:?} is held by {} and by {}", call_text(other), call_text(call));
                findings.flaw(name, from, what);
            }
        }
        if last.get(&stay.deed).is_none_or(|(before, _)| before.until <= stay.until) {
            last.insert(stay.deed, (*stay, call));
        }
    }
}

/// All permits that are believed in at one instant never exceed the highest limit until then.
fn find_excess(
    lock: &Lock<'_>,
    holds: &[(HoldInterval, &LockCall<'_>)],
    limits: &[(u64, u64)],
    findings: &mut Findings,
) {
    const NAME: &str = "permits_never_exceed_limit";
    let mut changes: Vec<(u64, i64)> = Vec::new();
    for (stay, call) in holds.iter().filter(|(stay, _)| stay.deed == RecordedRequest::Permits) {
        let mut from = stay.from;
        let left = (u64::MAX, call.permits);
        for (until, permits) in call.more.iter().chain([&left]) {
            let until = (*until).min(stay.until).max(from);
            changes.extend([(from, i64::from(*permits)), (until, -i64::from(*permits))]);
            from = until;
        }
    }
    // An end at the instant of another hold's beginning comes before it.
    changes.sort_unstable();
    let mut sum = 0;
    for (at, change) in changes {
        sum += change;
        findings.premise(NAME);
        let known = limits.partition_point(|(since, _)| *since <= at);
        let most = known.checked_sub(1).map_or(u64::MAX, |index| limits[index].1);
        if change > 0 && u64::try_from(sum).is_ok_and(|sum| sum > most) {
            findings.flaw(
                NAME,
                at,
                format!("{sum} permits of {lock:?} are out, and there were never more than {most}"),
            );
        }
    }
}

/// Returns whether a later epoch of the service had begun when a hold was told. Then the order of
/// telling follows the links, or the later grantor's answers, and not the order of granting.
fn is_late(epochs: &BTreeMap<u64, (&str, u64)>, service: &str, hold: &HoldInterval) -> bool {
    epochs.range(hold.token..).any(|(_, (of, told))| *of == service && *told <= hold.from)
}

/// The first tokens of ranges, or epochs, with their services and times.
type FirstTokens<'a> = BTreeMap<u64, (&'a str, u64)>;

/// Independent of clocks, each token of a lock is of the latest range below it. That range is of
/// its service and was told by then. The holds of one site begin in the order of their tokens.
fn find_strays(
    (ranges, epochs): (&FirstTokens<'_>, &FirstTokens<'_>),
    lock: &Lock<'_>,
    holds: &[(HoldInterval, &LockCall<'_>)],
    findings: &mut Findings,
) {
    let mut began: BTreeMap<usize, (u64, &HoldInterval)> = BTreeMap::new();
    for (hold, call) in holds {
        let (token, from) = (&hold.token, hold.from);
        findings.premise("tokens_rise");
        let range = ranges.range(..=token).next_back();
        let is_its = |(_, (of, told)): (&u64, &(&str, u64))| *of == lock.0 && *told <= from;
        if !range.is_some_and(is_its) {
            let what = format!(
                "{token} of call {} for {lock:?} is of no range: {range:?} is below it",
                call.number
            );
            findings.flaw("tokens_rise", from, what);
        }
        // An earlier grantor's grant may be told late. Beside a compatible hold that does not
        // matter.
        if let Some((lower, before)) = began.insert(call.site, (*token, hold))
            && before.order > hold.order
            && !(before.deed.suffers(hold.deed) && is_late(epochs, lock.0, before))
        {
            let what =
                format!("m{} has {lock:?} with {lower}, and had it with {token} before", call.site);
            findings.flaw("tokens_rise", before.from, what);
        }
    }
}

/// A suspension excludes all other holds of the service, except holds of the same owner. Owner
/// zero, the whole member, counts as each owner of its member.
fn find_company(calls: &BTreeMap<usize, LockCall<'_>>, findings: &mut Findings) {
    let mut holds: BTreeMap<&str, Vec<(&LockCall<'_>, u64, u64)>> = BTreeMap::new();
    for call in calls.values() {
        let stays = call.stays().into_iter().map(|stay| (call, stay.from, stay.until));
        holds.entry(call.service).or_default().extend(stays);
    }
    for holds in holds.values() {
        for (suspension, from, until) in
            holds.iter().filter(|(call, ..)| call.deed == RecordedRequest::Suspend)
        {
            findings.premise("suspension_is_exclusive");
            for (hold, began, ended) in
                holds.iter().filter(|(hold, ..)| hold.number != suspension.number)
            {
                let is_own = (hold.site, hold.life) == (suspension.site, suspension.life)
                    && (hold.owner == suspension.owner || hold.owner == 0 || suspension.owner == 0);
                if !is_own && began < until && from < ended {
                    let call_text =
                        |call: &LockCall<'_>| format!("call {} of m{}", call.number, call.site);
                    let what = format!(
                        "{} suspends {} beside {}",
                        call_text(suspension),
                        suspension.service,
                        call_text(hold)
                    );
                    findings.flaw("suspension_is_exclusive", *(from.max(began)), what);
                }
            }
        }
    }
}
