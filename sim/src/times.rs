//! Durations: waits for locks, and the gaps that ended processes leave. Read from records.

use crate::record::{Entry, Record, RecordedRequest};
use hdrhistogram::Histogram;
use std::collections::BTreeMap;

/// The length of the first range.
const MILLISECOND: u64 = 1_000_000;

/// Many spans of time in nanoseconds, to three digits. They can be added up over threads and asked
/// for percentiles.
#[derive(Clone, Debug)]
pub struct Times(Histogram<u64>);

impl Default for Times {
    fn default() -> Times {
        Times(Histogram::new(3).expect("three digits can be kept"))
    }
}

impl Times {
    /// Adds a span.
    pub fn add(&mut self, nanos: u64) {
        self.0.record(nanos).expect("it grows as it must");
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Times) {
        self.0.add(&other.0).expect("both grow as they must");
    }

    /// The number of spans.
    pub fn count(&self) -> u64 {
        self.0.len()
    }

    /// The span that `percent` percent of the spans do not exceed; zero if there are no spans.
    pub fn percentile(&self, percent: f64) -> u64 {
        self.0.value_at_percentile(percent)
    }

    /// The number of spans in each range, after the range's end, which is twice the end of the
    /// range before.
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let range = |step: hdrhistogram::iterators::IterationValue<u64>| {
            (step.value_iterated_to() + 1, step.count_since_last_iteration())
        };
        self.0.iter_log(MILLISECOND, 2.0).map(range).collect()
    }

    /// The longest span.
    pub fn longest(&self) -> u64 {
        self.0.max()
    }
}

/// The measured times.
#[derive(Clone, Debug, Default)]
pub struct Timed {
    /// The times from a client's asking to its lock, for every call that was granted.
    pub waits: Times,
    /// The times to a service's next grant after the end of its grantor's process. Each begins at
    /// that end, or at the first later request for a free lock of the service. It is not counted if
    /// no such request came before there was a grantor again.
    pub grantor_failovers: Times,
    /// The times from the end of the elder's process to the next elder.
    pub elder_failovers: Times,
}

/// A service as the record has it.
#[derive(Debug, Default)]
struct Service<'a> {
    /// The site of its grantor, and the epoch.
    grantor: Option<(usize, u64)>,
    /// The waiting calls with their wants.
    waiting: BTreeMap<usize, Part<'a>>,
    /// The holding calls with their holds.
    held: BTreeMap<usize, Part<'a>>,
    /// The grantor has ended, and nothing was granted since.
    is_orphaned: bool,
    /// The time since which a request for something free waits.
    wanted: Option<u64>,
}

/// The part of a service that a call wants: some locks, or all.
#[derive(Clone, Copy, Debug)]
enum Part<'a> {
    Locks(&'a [String]),
    All,
}

impl Part<'_> {
    fn meets(&self, other: &Part<'_>) -> bool {
        match (self, other) {
            (Part::Locks(ours), Part::Locks(theirs)) => {
                ours.iter().any(|name| theirs.contains(name))
            }
            (Part::All, _) | (_, Part::All) => true,
        }
    }
}

impl Service<'_> {
    /// The gap counts only while a request waits for something free. It does not count while a
    /// suspension waits for holders to end.
    fn look(&mut self, now: u64) {
        let is_free = |part: &Part<'_>| !self.held.values().any(|held| held.meets(part));
        let is_drained =
            !self.waiting.values().any(|part| matches!(part, Part::All)) || is_free(&Part::All);
        let is_wanted = self.is_orphaned && is_drained && self.waiting.values().any(is_free);
        self.wanted = is_wanted.then(|| self.wanted.unwrap_or(now));
    }
}

impl Timed {
    /// Adds the durations of a record.
    pub fn read(&mut self, record: &Record) {
        let mut asked: BTreeMap<usize, (u64, &str, Part<'_>)> = BTreeMap::new();
        let mut services: BTreeMap<&str, Service<'_>> = BTreeMap::new();
        let mut elder: Option<usize> = None;
        let mut headless: Option<u64> = None;
        for line in &record.lines {
            match &line.entry {
                Entry::Invoke { call, service, request_kind, names, .. } => {
                    let part = match request_kind {
                        RecordedRequest::Lock
                        | RecordedRequest::Share
                        | RecordedRequest::Permits => Part::Locks(names),
                        RecordedRequest::Suspend => Part::All,
                        RecordedRequest::Open
                        | RecordedRequest::Put
                        | RecordedRequest::Upgrade
                        | RecordedRequest::Become
                        | RecordedRequest::Destroy
                        | RecordedRequest::See
                        | RecordedRequest::Revoke => continue,
                    };
                    asked.insert(*call, (line.at, service, part));
                    let service = services.entry(service).or_default();
                    // Free permits may be too few for a request, so requests for permits are left
                    // out.
                    if *request_kind != RecordedRequest::Permits {
                        service.waiting.insert(*call, part);
                    }
                    service.look(line.at);
                }
                Entry::Ok { call, .. } => {
                    if let Some((at, of, part)) = asked.get(call) {
                        self.waits.add(line.at - at);
                        let service = services.entry(of).or_default();
                        if let Some(since) = service.wanted {
                            self.grantor_failovers.add(line.at - since);
                        }
                        service.waiting.remove(call);
                        service.held.insert(*call, *part);
                        service.is_orphaned = false;
                        service.look(line.at);
                    }
                }
                Entry::Fail { call, .. }
                | Entry::Unknown { call }
                | Entry::Release { call }
                | Entry::Lost { call, .. } => {
                    if let Some(service) =
                        asked.get(call).and_then(|(_, of, _)| services.get_mut(of))
                    {
                        service.waiting.remove(call);
                        service.held.remove(call);
                        service.look(line.at);
                    }
                }
                // The grantor of the highest epoch counts, if there are several.
                Entry::Grantor { service, epoch, recovering: false } => {
                    let service = services.entry(service).or_default();
                    if let Some(site) = line.site
                        && service.grantor.is_none_or(|(_, known)| known <= *epoch)
                    {
                        service.grantor = Some((site, *epoch));
                        // Later requests find a grantor.
                        service.is_orphaned &= service.wanted.is_some();
                    }
                }
                Entry::Event { name } if name == "became_elder" => {
                    elder = line.site;
                    if let Some(since) = headless.take() {
                        self.elder_failovers.add(line.at - since);
                    }
                }
                Entry::End { .. } => {
                    let is_here =
                        |grantor: &Option<(usize, u64)>| grantor.map(|(site, _)| site) == line.site;
                    let ended = services.values_mut().filter(|service| service.grantor.is_some());
                    for service in ended.filter(|service| is_here(&service.grantor)) {
                        (service.grantor, service.is_orphaned) = (None, true);
                        service.look(line.at);
                    }
                    if elder.is_some() && elder == line.site {
                        elder = None;
                        headless.get_or_insert(line.at);
                    }
                }
                _ => {}
            }
        }
    }

    /// Adds all of another.
    pub fn merge(&mut self, other: &Timed) {
        self.waits.merge(&other.waits);
        self.grantor_failovers.merge(&other.grantor_failovers);
        self.elder_failovers.merge(&other.elder_failovers);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Line, RecordedRequest};

    #[test]
    fn waits_and_gaps_are_told_from_a_record_and_add_up() {
        let line = |at, site, entry| Line { at, site: Some(site), life: 1, entry };
        let grantor = || Entry::Grantor { service: "s".into(), epoch: 1, recovering: false };
        let ask = |call| Entry::Invoke {
            call,
            service: "s".into(),
            request_kind: RecordedRequest::Lock,
            names: vec!["x".into()],
            permits: 0,
            of: None,
            owner: 0,
            wait: None,
            lease: None,
        };
        let lines = vec![
            line(0, 0, Entry::Event { name: "became_elder".into() }),
            line(10, 0, grantor()),
            line(20, 1, ask(0)),
            line(50, 1, Entry::Ok { call: 0, token: 2, until: None, from_keep: false }),
            line(55, 1, Entry::Release { call: 0 }),
            line(60, 1, ask(1)),
            line(100, 0, Entry::End { how: "killed".into() }),
            line(107, 1, Entry::Event { name: "became_elder".into() }),
            line(160, 1, Entry::Ok { call: 1, token: 3, until: None, from_keep: false }),
        ];
        let mut timed = Timed::default();
        timed.read(&Record { lines });
        let twice = timed.clone();
        timed.merge(&twice);
        assert_eq!(
            (timed.waits.count(), timed.waits.percentile(50.0), timed.waits.longest()),
            (4, 30, 100)
        );
        assert_eq!((timed.grantor_failovers.count(), timed.grantor_failovers.longest()), (2, 60));
        assert_eq!((timed.elder_failovers.count(), timed.elder_failovers.percentile(99.0)), (2, 7));
        assert_eq!(Times::default().percentile(50.0), 0);
    }

    #[test]
    fn a_missing_grantor_does_not_count_for_an_unwanted_or_held_lock() {
        let line = |at, site, entry| Line { at, site: Some(site), life: 1, entry };
        let grantor = || Entry::Grantor { service: "s".into(), epoch: 1, recovering: false };
        let want = |call, request_kind, names: &[&str]| Entry::Invoke {
            call,
            service: "s".into(),
            request_kind,
            names: names.iter().map(|name| name.to_string()).collect(),
            permits: 0,
            of: None,
            owner: 0,
            wait: None,
            lease: None,
        };
        let ask = |call| want(call, RecordedRequest::Lock, &["x"]);
        let ok = |call| Entry::Ok { call, token: call as u64, until: None, from_keep: false };
        let gap = |lines: &[Line]| {
            let mut timed = Timed::default();
            timed.read(&Record { lines: lines.to_vec() });
            timed.grantor_failovers.longest()
        };
        let killed = || line(100, 0, Entry::End { how: "killed".into() });
        // The request comes long after the kill.
        assert_eq!(
            gap(&[line(10, 0, grantor()), killed(), line(900, 1, ask(0)), line(930, 1, ok(0))]),
            30
        );
        // The next grantor acts before the request comes.
        let next =
            line(300, 1, Entry::Grantor { service: "s".into(), epoch: 2, recovering: false });
        assert_eq!(
            gap(&[
                line(10, 0, grantor()),
                killed(),
                next,
                line(900, 1, ask(0)),
                line(930, 1, ok(0))
            ]),
            0
        );
        // Another request holds the lock until then.
        let mut lines = vec![
            line(10, 0, grantor()),
            line(20, 1, ask(0)),
            line(30, 1, ok(0)),
            line(40, 2, ask(1)),
            killed(),
        ];
        lines.extend([line(700, 1, Entry::Release { call: 0 }), line(720, 2, ok(1))]);
        assert_eq!(gap(&lines), 20);
        // The first request is given up meanwhile.
        let mut lines = vec![
            line(10, 0, grantor()),
            line(20, 1, ask(0)),
            killed(),
            line(200, 1, Entry::Release { call: 0 }),
        ];
        lines.extend([line(800, 1, ask(1)), line(850, 1, ok(1))]);
        assert_eq!(gap(&lines), 50);
        // A suspension has the whole service, and while it waits for holders no other request can
        // be served.
        let mut lines = vec![
            line(10, 0, grantor()),
            line(20, 1, want(0, RecordedRequest::Lock, &["x", "y"])),
            line(30, 1, ok(0)),
            killed(),
        ];
        lines.extend([
            line(110, 2, want(1, RecordedRequest::Suspend, &[])),
            line(120, 1, want(2, RecordedRequest::Lock, &["z"])),
        ]);
        lines.extend([line(700, 1, Entry::Release { call: 0 }), line(720, 2, ok(1))]);
        assert_eq!(gap(&lines), 20);
    }

    #[test]
    fn ranges_double() {
        let mut times = Times::default();
        for millis in [1, 2, 3, 900] {
            times.add(millis * MILLISECOND - 1);
        }
        let ranges = times.ranges();
        assert_eq!(&ranges[..3], [(MILLISECOND, 1), (2 * MILLISECOND, 1), (4 * MILLISECOND, 1)]);
        assert_eq!(ranges.last(), Some(&(1_024 * MILLISECOND, 1)));
    }
}
