//! One queue orders everything by (true time, order of scheduling): the World advances from one due
//! event to the next.

use super::{PacketInTransit, World};
use crate::gossip::GossipMessage;
use crate::history::Ask;
use crate::site::ProcessState;
use elderlock::protocol::{Hint, Input, ProcessId};
use std::sync::Arc;
use std::time::Duration;

/// A future event.
#[derive(Clone, Debug)]
pub(crate) enum ScheduledEvent {
    /// A packet arrives at a site.
    Packet(Arc<PacketInTransit>),
    /// A process notices something.
    Hint { to: usize, process: ProcessId, hint: Hint },
    /// An expelled process starts again as a new one.
    Rebirth { to: usize, process: ProcessId },
    /// A client gives up its request.
    GiveUp { ask: Ask },
    /// A gossip message arrives at a site.
    Gossip { from: usize, to: usize, word: GossipMessage },
    /// A write to a data directory ends.
    Written { to: usize, process: ProcessId },
    /// The time is over for a frame that began then on a damaged connection.
    FrameEnds { from: usize, to: usize, begun: u64 },
}

impl World {
    /// Lets the World go on for a while.
    pub fn run_for(&mut self, span: Duration) {
        let until = self.now + span.as_nanos() as u64;
        while self.tick(until) {}
    }

    /// Lets the World go on to this true time, in nanoseconds, with all that is due then. If that
    /// time is not in the future, nothing happens. Events that a step makes due at its own instant
    /// wait for the other steps of that instant.
    pub fn run_to(&mut self, at: u64) {
        if at > self.now {
            while self.tick(at) {}
        }
    }

    /// Lets the World go on until `so` holds. False if it does not hold in time.
    pub fn run_until(&mut self, so: impl Fn(&World) -> bool, limit: Duration) -> bool {
        self.begin();
        let until = self.now + limit.as_nanos() as u64;
        loop {
            if so(self) {
                return true;
            }
            if !self.tick(until) {
                return so(self);
            }
        }
    }

    /// Like [`run_until`](Self::run_until) with half a minute; panics with the trace if `so` does
    /// not hold in time.
    #[track_caller]
    pub fn expect(&mut self, what: &str, so: impl Fn(&World) -> bool) {
        self.expect_within(what, Duration::from_secs(30), so);
    }

    /// Like [`expect`](Self::expect) with another limit.
    #[track_caller]
    pub fn expect_within(&mut self, what: &str, limit: Duration, so: impl Fn(&World) -> bool) {
        if !self.run_until(so, limit) {
            panic!("{}\nnot within {limit:?}: {what}", self.story(120));
        }
    }

    /// Lets the World go on until all running processes are in one view of exactly them, and their
    /// leases run.
    #[track_caller]
    pub fn settle(&mut self) {
        self.expect_within(
            "one view with every running process",
            Duration::from_secs(60),
            World::is_settled,
        );
    }

    /// Handles the next event that is due up to `until`. If there is none, advances to `until` and
    /// returns false.
    pub(crate) fn tick(&mut self, until: u64) -> bool {
        self.begin();
        if self.broken.is_some() {
            return false;
        }
        let timer = self
            .sites
            .iter()
            .enumerate()
            .filter(|(_, peer)| peer.run == ProcessState::Up)
            .filter_map(|(site, peer)| Some((peer.next()?, site)))
            .min();
        let first = self.queue.first_key_value().map(|(key, _)| *key);
        match (first, timer) {
            (Some((at, order)), timer) if at <= until && timer.is_none_or(|(due, _)| at <= due) => {
                self.now = self.now.max(at);
                if let Some(due) = self.queue.remove(&(at, order)) {
                    self.happen(due);
                }
            }
            (_, Some((due, site))) if due <= until => {
                self.now = self.now.max(due);
                if self.sites[site].due == Some(due) {
                    self.feed(site, Input::Timer);
                } else {
                    self.gossip_timer(site);
                }
            }
            _ => {
                self.now = self.now.max(until);
                return false;
            }
        }
        true
    }

    fn begin(&mut self) {
        if std::mem::replace(&mut self.started, true) || self.manual {
            return;
        }
        for site in 0..self.sites.len() {
            if self.sites[site].seeds.contains(&self.sites[site].addr) {
                self.start(site);
            }
        }
    }

    pub(crate) fn schedule(&mut self, after: u64, due: ScheduledEvent) {
        self.scheduled += 1;
        self.queue.insert((self.now + after, self.scheduled), due);
    }

    pub(super) fn happen(&mut self, due: ScheduledEvent) {
        match due {
            ScheduledEvent::Packet(parcel) => self.deliver(Arc::unwrap_or_clone(parcel)),
            ScheduledEvent::Hint { to, process, hint } => {
                if self.sites[to].is(process) {
                    self.feed(to, Input::Hint(hint));
                }
            }
            ScheduledEvent::Rebirth { to, process } => {
                if self.sites[to].is(process) && self.sites[to].run == ProcessState::Paused {
                    self.sites[to].overdue = true;
                } else if self.sites[to].is(process) {
                    let next = self.sites[to].node.as_ref().map(|node| {
                        node.next_incarnation(process, None, self.sites[to].slot(self.now))
                    });
                    self.end_process(to, "reborn");
                    self.sites[to].next_incarnation = next;
                    self.start(to);
                }
            }
            ScheduledEvent::GiveUp { ask } => self.give_up(ask),
            ScheduledEvent::Written { to, process } => self.end_write(to, process),
            ScheduledEvent::FrameEnds { from, to, begun } => self.end_unfinished(from, to, begun),
            ScheduledEvent::Gossip { from, to, word } => {
                if self.network.is_clogged(from, to) {
                    self.clogged.entry((from, to)).or_default().push(ScheduledEvent::Gossip {
                        from,
                        to,
                        word,
                    });
                } else {
                    if !matches!(word, GossipMessage::Datagram(_)) {
                        self.network.arrived(from, to);
                    }
                    self.gossip_hears(to, word);
                }
            }
        }
    }
}
