//! `Story`: the events of a run as lines for readers.

use crate::run_record::{RecordedRun, RunRecord};
use crate::simulation::chance::Digest;
use crate::simulation::sites::{Journal, SiteChange};
use elderlock::protocol::Packet;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::hash::{Hash, Hasher};
use std::time::Duration;
use tokio::time::Instant;

/// The most lines that are kept: the last ones.
const LINES: usize = 4_000;

/// The events of a run, and a digest of them and of each packet.
pub(crate) struct Story {
    began: Instant,
    lines: RefCell<VecDeque<String>>,
    digest: RefCell<Digest>,
    /// The first failure of a program or of the cluster.
    failure: RefCell<Option<String>>,
    /// The record of the same events for the diagram, if one is wanted.
    record: RefCell<Option<RunRecord>>,
    has_ended: Cell<bool>,
    /// Whether the run has ended. Lines of later events are left out.
    is_closed: Cell<bool>,
}

impl Story {
    /// An empty story that begins now, by tokio's clock.
    pub(crate) fn new(seed: u64) -> Story {
        Story {
            began: Instant::now(),
            lines: RefCell::default(),
            digest: RefCell::new(Digest::new(seed)),
            failure: RefCell::default(),
            record: RefCell::default(),
            has_ended: Cell::new(false),
            is_closed: Cell::new(false),
        }
    }

    /// Begins the record of a run with this number of members.
    pub(crate) fn begin_record(&self, members: usize) {
        self.record.replace(Some(RunRecord::new(members)));
    }

    /// Adds to the record, if there is one and the run has not ended. `add` gets the record and the
    /// present time.
    pub(crate) fn record<T>(&self, add: impl FnOnce(&mut RunRecord, u64) -> T) -> Option<T> {
        let mut record = self.record.borrow_mut();
        let record = record.as_mut().filter(|_| !self.has_ended.get())?;
        Some(add(record, Journal::now(self)))
    }

    /// Ends the record: the test is over, and its processes end.
    pub(crate) fn end_record(&self) {
        self.has_ended.set(true);
    }

    /// The record of a run that ends now.
    pub(crate) fn take_record(&self) -> Option<RecordedRun> {
        self.end_record();
        Some(self.record.take()?.finish(Journal::now(self)))
    }

    /// The time since the run began.
    pub(crate) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Adds a line.
    pub(crate) fn add(&self, line: &str) {
        if self.is_closed.get() {
            return;
        }
        let now = self.elapsed();
        (now.as_nanos(), line).hash(&mut *self.digest.borrow_mut());
        let mut lines = self.lines.borrow_mut();
        if lines.len() >= LINES {
            lines.pop_front();
        }
        lines.push_back(format!("{:>6}.{:03} {line}", now.as_secs(), now.subsec_millis()));
    }

    /// Notes that the run has failed; the first failure counts.
    pub(crate) fn fail(&self, why: String) {
        self.add(&format!("FAILED: {why}"));
        self.failure.borrow_mut().get_or_insert(why);
    }

    /// The first failure.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Closes the story to further lines.
    pub(crate) fn close(&self) {
        self.is_closed.set(true);
    }

    /// All kept lines.
    pub(crate) fn text(&self) -> String {
        let lines: Vec<String> = self.lines.borrow().iter().cloned().collect();
        lines.join("\n")
    }

    /// The digest so far; equal runs have equal digests.
    pub(crate) fn digest(&self) -> u64 {
        self.digest.borrow().finish()
    }
}

impl Journal for Story {
    fn now(&self) -> u64 {
        // The number is large enough for 584 years.
        self.elapsed().as_nanos() as u64
    }

    fn note(&self, line: &dyn Fn() -> String) {
        self.add(&line());
    }

    fn site_changed(&self, site: usize, change: SiteChange) {
        self.record(|record, at| record.site_changed(site, at, change));
    }

    fn arrived(&self, from: usize, to: usize, is_wanted: bool, packet: &Packet) {
        let mut digest = self.digest.borrow_mut();
        (Journal::now(self), from, to, is_wanted).hash(&mut *digest);
        packet.hash(&mut *digest);
    }
}
