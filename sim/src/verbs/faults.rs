//! Faults of processes, hosts and the network.

use crate::network::{LinkConditions, MS, NarrowPath};
use crate::site::ProcessState;
use crate::world::{Observation, ScheduledEvent, World};
use elderlock::protocol::{Command, Hint, Input, ProcessId, StoredVote};
use std::collections::BTreeSet;
use std::net::SocketAddr;

impl World {
    /// Kills the process. Its host goes on: connections to it break, and members on the host see
    /// that it ended.
    pub fn crash(&mut self, site: usize) {
        let Some(process) = self.sites[site].process().filter(|_| self.sites[site].is_alive())
        else {
            return;
        };
        self.note(site, |_| "is killed".to_string());
        self.end_process(site, "killed");
        for other in (0..self.sites.len()).filter(|other| *other != site) {
            let chance = crate::chance::mix(&[
                self.common.seed,
                0xdead,
                site as u64,
                other as u64,
                self.now,
            ]);
            if self.sites[other].host == self.sites[site].host {
                self.hint(MS + chance % (4 * MS), other, Hint::Dead(process));
            }
            if !self.network.is_cut(site, other) {
                self.hint(MS / 5 + chance % MS, other, Hint::Unreachable(process));
            }
        }
    }

    /// The host fails, with every process on it: nothing comes from there any more, not even a
    /// refusal.
    pub fn vanish(&mut self, site: usize) {
        let host = self.sites[site].host;
        for there in (0..self.sites.len())
            .filter(|there| self.sites[*there].host == host)
            .collect::<Vec<_>>()
        {
            self.note(there, |_| "vanishes with its host".to_string());
            self.sites[there].host_up = false;
            if let Some(process) =
                self.sites[there].process().filter(|_| self.sites[there].is_alive())
            {
                self.end_process(there, "vanished");
                self.notice_silence(there, process);
            }
        }
    }

    /// Gossip calls a silent process unreachable after a while.
    fn notice_silence(&mut self, site: usize, process: ProcessId) {
        if self.gossip.is_some() {
            return;
        }
        let mean = self.common.timing.elder_lease.as_nanos() as u64;
        for other in (0..self.sites.len()).filter(|other| *other != site) {
            let chance = crate::chance::mix(&[
                self.common.seed,
                0x511e,
                site as u64,
                other as u64,
                self.now,
            ]);
            self.hint(mean / 2 + chance % mean, other, Hint::Unreachable(process));
        }
    }

    /// Starts a new process at the same address.
    pub fn restart(&mut self, site: usize) {
        self.start(site);
    }

    /// Stops the process: its clock goes on, but it does nothing.
    pub fn pause(&mut self, site: usize) {
        if self.sites[site].run == ProcessState::Up {
            self.note(site, |_| "is stopped".to_string());
            self.tell(&Observation::Pauses { site });
            self.sites[site].run = ProcessState::Paused;
            self.sites[site].pauses += 1;
        }
    }

    /// Wakes a stopped process.
    pub fn resume(&mut self, site: usize) {
        if self.sites[site].run == ProcessState::Paused {
            self.note(site, |_| "wakes".to_string());
            self.wake(site);
        }
    }

    /// An operator forces the member to go on without a quorum.
    pub fn force(&mut self, site: usize) {
        self.feed(site, Input::Command(Command::Force));
    }

    /// The data directory at `site` is lost. No process runs there.
    pub fn lose_disk(&mut self, site: usize) {
        assert!(!self.is_alive(site), "a process uses the directory of m{site}");
        self.note(site, |_| "loses its data directory".to_string());
        self.sites[site].disk.vote = None;
    }

    /// The content of the data directory at `site`, as a copy of it would have it.
    pub fn disk(&self, site: usize) -> Option<StoredVote> {
        self.sites[site].disk.vote.clone()
    }

    /// Puts a copy back.
    pub fn put_back_disk(&mut self, site: usize, copy: Option<StoredVote>) {
        assert!(!self.is_alive(site), "a process uses the directory of m{site}");
        self.note(site, |_| "has its data directory put back".to_string());
        self.sites[site].disk.vote = copy;
    }

    /// The member says goodbye.
    pub fn leave(&mut self, site: usize) {
        self.feed(site, Input::Command(Command::Leave));
    }

    /// The two no longer reach each other.
    pub fn cut(&mut self, a: usize, b: usize) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    /// Nothing sent from `from` arrives at `to` any more.
    pub fn cut_one_way(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("no longer reaches m{to}"));
        self.network.cut(from, to);
    }

    /// Takes back one cut of one way. Two members that reach each other again connect, and notice.
    pub fn mend_one_way(&mut self, from: usize, to: usize) {
        self.network.mend(from, to);
        if let Some(process) = self.sites[to].process()
            && !self.network.is_cut(from, to)
            && !self.network.is_cut(to, from)
        {
            self.hint(MS, from, Hint::Connected(process));
        }
    }

    /// Packets from `from` wait at the end of their way to `to` until [`unclog`](Self::unclog).
    /// Each clog needs an [`unclog`](Self::unclog) of its own.
    pub fn clog(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("is clogged towards m{to}"));
        self.network.clog(from, to);
    }

    /// Takes back one clog: the waiting packets arrive, in order.
    pub fn unclog(&mut self, from: usize, to: usize) {
        if self.network.unclog(from, to) {
            self.note(from, |_| format!("is no longer clogged towards m{to}"));
            self.flush(from, to);
        }
    }

    /// The way has a limited rate and limited room; `None`: it has no limit.
    pub fn narrow(&mut self, from: usize, to: usize, narrow: Option<NarrowPath>) {
        self.note(from, |_| {
            format!(
                "has a way to m{to} that is {}",
                if narrow.is_some() { "narrow" } else { "wide" }
            )
        });
        self.network.narrow(from, to, narrow);
    }

    /// The connections between the two break: all packets under way in both directions are lost,
    /// and both notice.
    pub fn reset(&mut self, a: usize, b: usize) {
        self.reset_one_way(a, b);
        self.reset_one_way(b, a);
        self.break_connection(a, b);
    }

    /// All packets under way from `from` to `to` are lost: a connection breaks when everything of
    /// the other direction has been read. Both members notice.
    pub fn reset_half(&mut self, from: usize, to: usize) {
        self.reset_one_way(from, to);
        self.break_connection(from, to);
    }

    fn reset_one_way(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("loses its connection to m{to}"));
        self.network.reset(from, to);
        self.streams.remove(&(from, to));
        self.clogged.remove(&(from, to));
    }

    /// Both members learn that their connection broke, and dial again.
    fn break_connection(&mut self, a: usize, b: usize) {
        for (here, there) in [(a, b), (b, a)] {
            let Some(process) = self.sites[there].process() else { continue };
            let chance = crate::chance::mix(&[
                self.common.seed,
                0x4e5e,
                here as u64,
                there as u64,
                self.now,
            ]);
            self.hint(MS / 5 + chance % MS, here, Hint::Unreachable(process));
            if !self.network.is_cut(here, there)
                && !self.network.is_cut(there, here)
                && self.sites[there].is_alive()
            {
                self.hint(50 * MS + chance % (10 * MS), here, Hint::Connected(process));
            }
        }
    }

    /// A wall before the site refuses every connection to it, as if no process listened there. The
    /// site cannot dial either.
    pub fn reject_one_way(&mut self, from: usize, to: usize) {
        self.note(from, |_| format!("is refused at m{to}"));
        self.network.reject(from, to);
        self.network.cut(from, to);
        if let Some(process) = self.sites[to].process() {
            self.hint(MS / 5, from, Hint::Refused(process));
        }
    }

    /// Takes back one [`reject_one_way`](Self::reject_one_way).
    pub fn accept_one_way(&mut self, from: usize, to: usize) {
        self.network.accept(from, to);
        self.mend_one_way(from, to);
    }

    /// Datagrams between the two get lost, and only those.
    pub fn deafen(&mut self, a: usize, b: usize) {
        self.note(a, |_| format!("and m{b} no longer get datagrams of each other"));
        self.network.deafen(a, b);
        self.network.deafen(b, a);
    }

    /// Takes back one [`deafen`](Self::deafen).
    pub fn undeafen(&mut self, a: usize, b: usize) {
        self.network.undeafen(a, b);
        self.network.undeafen(b, a);
    }

    /// The clock at `site` runs fast by this rate from now on, in parts per million.
    pub fn turn_clock(&mut self, site: usize, ppm: i32) {
        if self.sites[site].clock.ppm == ppm {
            return;
        }
        self.note(site, |_| format!("has a clock that runs {ppm} ppm fast from now on"));
        let now = self.now;
        self.sites[site].clock.turn(now, ppm);
        self.sites[site].reschedule();
        self.gossip_reschedules(site);
        self.tell(&Observation::ClockSet { site });
    }

    /// The wall clock at `site` jumps by this many milliseconds. No member may notice.
    pub fn step_wall_clock(&mut self, site: usize, by: i64) {
        self.note(site, |_| format!("has a wall clock that jumps by {by} ms"));
        self.sites[site].wall += by;
    }

    /// The names of the seeds at `site` resolve to these sites from now on, also for the processes
    /// that start there later.
    pub fn resolve(&mut self, site: usize, to: &[usize]) {
        self.note(site, |_| format!("resolves its seeds to {to:?}"));
        let seeds: BTreeSet<SocketAddr> = to.iter().map(|to| self.sites[*to].addr).collect();
        let peer = &mut self.sites[site];
        peer.seeds = seeds.clone();
        if let Some(config) = &mut peer.next_incarnation {
            config.seeds = seeds.clone();
        }
        self.gossip_resolves(site, seeds.clone());
        self.feed(site, Input::Command(Command::Seeds(seeds)));
    }

    /// Cuts all ways from and to the member.
    pub fn isolate(&mut self, site: usize) {
        for other in (0..self.sites.len()).filter(|other| *other != site).collect::<Vec<_>>() {
            self.cut(site, other);
        }
        if let Some(process) = self.sites[site].process() {
            self.notice_silence(site, process);
        }
    }

    /// Cuts all ways between these sites and the others.
    pub fn split(&mut self, group: &[usize]) {
        for &a in group {
            for b in (0..self.sites.len()).filter(|b| !group.contains(b)).collect::<Vec<_>>() {
                self.cut(a, b);
            }
        }
    }

    /// All sites reach each other again, and nothing is lost.
    pub fn heal(&mut self) {
        if !self.sites.is_empty() {
            self.note(0, |_| "(the network is healed)".to_string());
        }
        self.network.mend_all();
        for (from, to) in self.clogged.keys().copied().collect::<Vec<_>>() {
            self.flush(from, to);
        }
        self.network.set_weather(LinkConditions::FAIR);
    }

    /// The weather from now on.
    pub fn weather(&mut self, weather: LinkConditions) {
        self.network.set_weather(weather);
    }

    /// The process at `site` gets a hint now.
    pub fn give_hint(&mut self, site: usize, hint: Hint) {
        if let Some(process) = self.sites[site].process() {
            self.schedule(0, ScheduledEvent::Hint { to: site, process, hint });
        }
    }
}
