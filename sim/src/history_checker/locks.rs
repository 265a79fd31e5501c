//! Checks calls, holds and the protected resources.

mod hold_checks;
mod lock_call;

use super::site_index::SiteIndex;
use super::{Findings, RunConditions};
use crate::record::{Entry, Line, Record, RecordedRequest};
use hold_checks::{find_company, find_crowds, find_excess, find_strays, is_late};
use lock_call::{Hold, HoldInterval, Lock, LockCall};
use std::collections::{BTreeMap, BTreeSet};

/// How much later than its limit an answer may come.
const LATE: u64 = 2_000_000;

/// The reading of one record.
struct Sweep<'a, 'f> {
    conditions: &'f RunConditions,
    findings: &'f mut Findings,
    index: SiteIndex,
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

pub(super) fn check(
    record: &Record,
    conditions: &RunConditions,
    findings: &mut Findings,
) -> Result<(), String> {
    let mut sweep = Sweep {
        conditions,
        findings,
        index: SiteIndex::default(),
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
        sweep.index.heed(line);
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
            Entry::Invoke { call, service, request_kind, names, permits, owner, wait, .. } => {
                let mut locks: Vec<Lock<'a>> =
                    names.iter().map(|name| (service.as_str(), name.as_str())).collect();
                if *request_kind == RecordedRequest::Suspend {
                    locks.push((service, ""));
                    self.suspended.insert(service);
                }
                if *request_kind == RecordedRequest::Destroy {
                    self.destroyed.insert((site, line.life, service));
                }
                if *request_kind == RecordedRequest::Revoke {
                    self.revoked.insert(service);
                }
                let new = LockCall {
                    number: *call,
                    site,
                    life: line.life,
                    service,
                    request_kind: *request_kind,
                    locks: locks.clone(),
                    owner: *owner,
                    wait: *wait,
                    asked: at,
                    slept: self.index.site(site).paused,
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
                if *request_kind == RecordedRequest::Put
                    && let Some(object) = locks.first()
                    && self.limits.contains_key(object)
                {
                    self.on_limit(*object, at, (*permits).into());
                }
                for lock in locks.into_iter().filter(|_| request_kind.is_hold()) {
                    self.open.entry(lock).or_default().push(*call);
                }
            }
            Entry::Ok { call, .. }
                if self
                    .calls
                    .get(call)
                    .is_some_and(|call| call.request_kind == RecordedRequest::Open) =>
            {
                self.on_answer(line, *call, false)?;
                self.call(*call, line)?.opened = true;
            }
            Entry::ModeChanged { call, request_kind, token } => {
                self.on_mode_changed(line, *call, *request_kind, *token)?
            }
            Entry::PermitsReturned { call, left } => {
                let call = self.call(*call, line)?;
                call.more.push((at, call.permits));
                call.permits = *left;
            }
            Entry::Sees { call, version, value, .. } => {
                self.on_sight(line, *call, *version, value)?
            }
            Entry::Ok { call, token, until, from_keep } => {
                self.on_ok(line, *call, (*token, until.unwrap_or(u64::MAX)), *from_keep)?
            }
            Entry::Fail { call, answer } => {
                self.on_answer(line, *call, answer == "timed out")?;
                let asked = self.call(*call, line)?;
                let (request_kind, service) = (asked.request_kind, asked.service);
                if request_kind == RecordedRequest::Become {
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
        let RunConditions { bounded, error_ppm, answer, .. } = *self.conditions;
        self.findings.premise("one_outcome_per_request");
        let call = self.call(number, line)?.clone();
        // A member that finds an answer in the step in which the call is given up may still tell
        // it.
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

    fn on_ok(
        &mut self,
        line: &Line,
        number: usize,
        (token, until): (u64, u64),
        from_keep: bool,
    ) -> Result<(), String> {
        self.on_answer(line, number, false)?;
        let (at, site) = (line.at, line.site.unwrap_or_default());
        self.granted += 1;
        let order = self.granted;
        let call = self.call(number, line)?;
        call.hold = Some(Hold { token, from: at, order, until, cap: u64::MAX });
        let (service, life, is_over) = (call.service, call.life, call.told() != u64::MAX);
        let request_kind = call.request_kind;
        let locks = call.locks.clone();
        let others = locks.iter().filter_map(|lock| self.open.get(lock)).flatten().copied();
        let others: BTreeSet<usize> = others.filter(|other| *other != number).collect();
        for other in others {
            let other = &self.calls[&other];
            if other.holds() {
                if !other.request_kind.suffers(request_kind) && !self.index.site(other.site).paused
                {
                    self.untold.push((at, other.number, number));
                }
            } else if other.waits() && (other.site, other.life) == (site, life) && !other.is_try() {
                // An owner with a hold passes the requests that wait behind a suspension.
                if self.suspended.contains(service) || self.conditions.crowded {
                    continue;
                }
                self.findings.premise("fifo_across_failover");
                if other.number < number && !self.calls[&number].is_try() {
                    if other.request_kind.suffers(request_kind) {
                        // A kept share passes its member's requests that are on their way.
                        if !from_keep {
                            self.passed.push((at, other.number, number));
                        }
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
        if self.conditions.bounded
            && let Some(acting) = self.acting.get(service)
        {
            self.findings.premise("no_resurrected_grant");
            // A grant that came while the member's lease did not run was reported. Its hold begins
            // when the lease runs again.
            if token < *acting && self.index.site(site).resumed_at != Some(at) {
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
    fn on_mode_changed(
        &mut self,
        line: &Line,
        number: usize,
        request_kind: RecordedRequest,
        token: u64,
    ) -> Result<(), String> {
        let at = line.at;
        self.granted += 1;
        let order = self.granted;
        let call = self.call(number, line)?;
        let (was, hold) = (call.request_kind, call.hold.clone());
        let Some(hold) = hold.filter(|_| call.told() == u64::MAX) else {
            let what = format!("call {number} becomes another and does not hold: {call:?}");
            self.flaw("one_outcome_per_request", at, what);
            return Ok(());
        };
        let until = call.believed_until().min(at);
        call.before.push(HoldInterval {
            request_kind: was,
            token: hold.token,
            from: hold.from,
            order: hold.order,
            until,
        });
        let order = if token == hold.token { hold.order } else { order };
        call.request_kind = request_kind;
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
        let opens = call.request_kind == RecordedRequest::Open;
        let until = call.hold.as_ref().map_or(0, |hold| hold.until);
        let state = self.index.site(site);
        let why = match reason {
            "lease ended" => at >= until,
            "suspended" => !state.is_leased(at),
            "left" => state.leaving,
            "destroyed" => self.destroyed.contains(&(site, life, service)),
            "superseded" => !self.conditions.bounded,
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
        // The call may have had the lock before, with another token.
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
        } else if !taken && believes && own == Some(token) && self.conditions.bounded {
            let what = format!("call {number} believes in {token}, and {highest} has written");
            self.findings.flaw("stale_writes_are_refused", line.at, what);
        }
        *highest = (*highest).max(token);
        Ok(())
    }

    /// A stopped process wakes: its beliefs ended with its member's lease, if that ended meanwhile.
    fn on_wake(&mut self, site: usize, at: u64) {
        let end = self.index.site(site).belief_end();
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
        let end = self.index.site(site).belief_end();
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
    /// later call at `at`. Also true if the earlier call was given up before its grantor's answer
    /// was due: its grant is unknown then.
    fn was_told_late(&self, earlier: usize, at: u64) -> bool {
        let call = &self.calls[&earlier];
        match call.stays().first() {
            Some(hold) => is_late(&self.epochs, call.service, hold),
            None => call.told() < at + self.conditions.answer,
        }
    }

    /// Checks the holds of each lock by their tokens, which takes the whole record.
    fn finish(mut self) {
        for site in
            self.index.sites().map(|(site, state)| (site, state.belief_end())).collect::<Vec<_>>()
        {
            self.cap(site.0, site.1);
        }
        for (at, holder, next) in std::mem::take(&mut self.untold) {
            if self.conditions.bounded && self.calls[&holder].told() > at {
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
        if !self.conditions.bounded {
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
