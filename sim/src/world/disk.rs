//! Data directories: writes that take their time, fail or never happen, and processes that die in
//! the middle of a step.

use super::{Observation, ScheduledEvent, World};
use crate::chance::mix;
use crate::quorum::ShutdownPlan;
use crate::site::ProcessState;
use elderlock::protocol::{Event, Input, Notice, Output, Packet, ProcessId, StoredVote};
use std::collections::VecDeque;
use std::time::Duration;

/// The data directory of a site.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub struct Disk {
    /// The stored vote.
    pub vote: Option<StoredVote>,
    /// The health of the disk.
    pub health: DiskHealth,
    /// Writes of the present process that have begun, by their numbers, in order.
    pub(crate) writing: VecDeque<(u64, StoredVote)>,
    /// Writes that ended in the present step, and whether they succeeded.
    pub(crate) ended: VecDeque<(u64, bool)>,
}

/// The health of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum DiskHealth {
    /// A write is done at once.
    #[default]
    Fast,
    /// A write takes this long.
    Slow(Duration),
    /// Every write fails.
    Failing,
}

/// A process that is to die in the middle of a step.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TornStep {
    /// The site.
    pub site: usize,
    /// The number of outputs before the death, counted over steps with several outputs.
    pub after: u32,
    /// Whether only steps count that are about votes and views.
    pub votes: bool,
    /// The true time at which the process dies at the latest.
    pub until: u64,
}

impl World {
    /// Changes the health of the data directory at `site`.
    pub fn set_disk(&mut self, site: usize, health: DiskHealth) {
        if std::mem::replace(&mut self.sites[site].disk.health, health) != health {
            self.note(site, |_| format!("has a disk that is {health:?}"));
        }
    }

    /// A process asks for a write, which does not begin if the process has ended in this step.
    pub(super) fn write_vote(
        &mut self,
        site: usize,
        process: ProcessId,
        number: u64,
        vote: StoredVote,
    ) {
        // A step may go on after the process has left in it. That write does not begin: the next
        // process would wait for its end.
        if !self.sites[site].is_alive() {
            return;
        }
        match self.sites[site].disk.health {
            DiskHealth::Failing => {
                // A failing write may fail in its last part, when the new vote is stored already.
                if mix(&[self.common.seed, 0xd15c, site as u64, number, self.now]).is_multiple_of(4)
                {
                    self.keep(site, vote);
                }
                self.sites[site].disk.ended.push_back((number, false));
                self.tell(&Observation::WriteFails { site });
            }
            DiskHealth::Fast if self.sites[site].disk.writing.is_empty() => {
                self.keep(site, vote);
                self.sites[site].disk.ended.push_back((number, true));
            }
            DiskHealth::Fast | DiskHealth::Slow(_) => {
                self.sites[site].disk.writing.push_back((number, vote));
                if self.sites[site].disk.writing.len() == 1 {
                    self.begin_write(site, process);
                }
            }
        }
    }

    fn keep(&mut self, site: usize, vote: StoredVote) {
        self.sites[site].disk.vote = Some(vote);
        self.tell(&Observation::Kept { site });
    }

    fn begin_write(&mut self, site: usize, process: ProcessId) {
        let takes = match self.sites[site].disk.health {
            DiskHealth::Slow(takes) => takes.as_nanos() as u64,
            _ => 0,
        };
        self.schedule(takes, ScheduledEvent::Written { to: site, process });
    }

    /// The first write under way ends.
    pub(super) fn end_write(&mut self, site: usize, process: ProcessId) {
        if !self.sites[site].is(process) {
            return;
        }
        let disk = &mut self.sites[site].disk;
        let Some((number, vote)) = disk.writing.pop_front() else { return };
        let fails = disk.health == DiskHealth::Failing;
        let more = !disk.writing.is_empty();
        if !fails {
            self.keep(site, vote);
        }
        if more {
            self.begin_write(site, process);
        }
        self.feed(
            site,
            if fails { Input::StoreFailed { number } } else { Input::Stored { number } },
        );
    }

    /// Gives the process the writes that ended in its step, as inputs.
    pub(super) fn hear_of_writes(&mut self, site: usize, process: ProcessId) {
        while let Some((number, is_done)) = self.sites[site].disk.ended.pop_front() {
            if self.sites[site].is(process) {
                self.feed(
                    site,
                    if is_done { Input::Stored { number } } else { Input::StoreFailed { number } },
                );
            }
        }
    }

    /// The process at `site` has ended: some of the writes that have begun are done.
    pub(super) fn end_writes(&mut self, site: usize) {
        let luck = mix(&[self.common.seed, 0xd15d, site as u64, self.now]);
        let disk = &mut self.sites[site].disk;
        disk.ended.clear();
        let writing = std::mem::take(&mut disk.writing);
        let loses_some = !writing.is_empty();
        let done = luck % (writing.len() as u64 + 1);
        if let Some((_, vote)) = writing.into_iter().take(done as usize).next_back() {
            self.keep(site, vote);
        }
        if loses_some {
            self.tell(&Observation::EndsWriting { site });
        }
    }

    /// The process dies in the middle of one of its next steps.
    pub(crate) fn tear(&mut self, tear: TornStep) {
        self.torn = Some(tear);
    }

    /// Cancels a planned death in the middle of a step.
    pub(crate) fn spare_all(&mut self) {
        self.torn = None;
    }

    /// How many of these outputs the process at `site` carries out before it dies in this step.
    /// `None`: it lives.
    pub(super) fn torn_after(&mut self, site: usize, outputs: &[Output]) -> Option<usize> {
        let tear = self.torn.as_mut().filter(|tear| tear.site == site)?;
        if tear.until < self.now {
            self.torn = None;
            return None;
        }
        if outputs.len() < 2 || (tear.votes && !outputs.iter().any(is_of_votes)) {
            return None;
        }
        // A relayed packet is followed by its straight copy, by which invariants know it. Losing
        // the copy alone is the work of a lossy path.
        let is_relayed = |index: usize| {
            matches!(outputs.get(index), Some(Output::Send { packet: Packet::Relay { .. }, .. }))
        };
        let mut after = tear.after as usize;
        while after > 0 && is_relayed(after - 1) {
            after += 1;
        }
        if after > outputs.len() {
            tear.after = tear.after.saturating_sub(outputs.len() as u32);
            return None;
        }
        self.torn = None;
        let may_die = self.sites[site].run == ProcessState::Up
            && self.can_spare(&[site], ShutdownPlan::Dead, false);
        may_die.then_some(after)
    }
}

/// Returns whether the output tells, stores or decides something about a view.
fn is_of_votes(output: &Output) -> bool {
    match output {
        Output::Store { .. } | Output::Event(Event::ViewInstalled(_)) => true,
        Output::Send { packet: Packet::Notice(notice), .. }
        | Output::Send { packet: Packet::VoteSuccessor { notice, .. }, .. } => {
            matches!(
                **notice,
                Notice::Promise { .. } | Notice::Accepted { .. } | Notice::Install { .. }
            )
        }
        _ => false,
    }
}
