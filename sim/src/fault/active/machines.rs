//! Faults of processes and their machines: ends and stops, disks and clocks.

use super::*;

impl FaultPlanner<'_> {
    pub(super) fn crash(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        self.end(&[site], ShutdownPlan::Dead, Step::Crash)
    }

    pub(super) fn crash_both(&mut self) -> Option<()> {
        let both = [self.find(Target::Elder)?, self.find(Target::Grantor)?];
        self.end(&both, ShutdownPlan::Dead, Step::Crash)
    }

    pub(super) fn crash_all(&mut self) -> Option<()> {
        let every_site: Vec<usize> = self.sites().collect();
        self.end(&every_site, ShutdownPlan::Dead, Step::Crash)
    }

    pub(super) fn vanish(&mut self, target: Target) -> Option<()> {
        let there = self.world.on_host_of(self.find(target)?);
        self.end(&there, ShutdownPlan::Dead, Step::Vanish)
    }

    pub(super) fn lose_disk(&mut self, target: Target) -> Option<()> {
        let site = self.find(target).filter(|site| self.world.can_lose_disk(*site))?;
        self.end(&[site], ShutdownPlan::Dead, Step::Crash)?;
        self.plot.add(self.now, Step::LoseDisk(site));
        Some(())
    }

    pub(super) fn leave(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        self.end(&[site], ShutdownPlan::Gone, Step::Leave)
    }

    pub(super) fn pause(&mut self, target: Target) -> Option<()> {
        let site = self.find(target).filter(|site| self.world.is_up(*site))?;
        self.plot.pair(Step::Pause(site), Step::Wake(site));
        Some(())
    }

    pub(super) fn torn_step(&mut self, target: Target, after: u32, votes: bool) -> Option<()> {
        let (site, until) = (self.find(target)?, self.until);
        self.plot.add(self.now, Step::Tear(TornStep { site, after, votes, until }));
        self.plot.add(until, Step::Start(site));
        Some(())
    }

    pub(super) fn die_deciding(&mut self) -> Option<()> {
        let until = self.until.max(self.now + 4 * SECOND);
        self.plot.add(self.now, Step::DieDeciding { until });
        Some(())
    }

    pub(super) fn slow_disk(&mut self, target: Target, takes: u64) -> Option<()> {
        let site = self.find(target)?;
        self.disk(site, DiskHealth::Slow(Duration::from_nanos(takes)));
        Some(())
    }

    pub(super) fn failing_disk(&mut self, target: Target) -> Option<()> {
        let site = self.find(target)?;
        self.disk(site, DiskHealth::Failing);
        Some(())
    }

    pub(super) fn full_disk(&mut self) -> Option<()> {
        self.sites().for_each(|site| self.disk(site, DiskHealth::Failing));
        Some(())
    }

    fn disk(&mut self, site: usize, health: DiskHealth) {
        self.plot.pair(Step::Disk(site, health), Step::Disk(site, DiskHealth::Fast));
    }

    pub(super) fn clock_rate(&mut self, site: usize, ppm: i32) -> Option<()> {
        let before = self.world.sites[site].clock.ppm;
        self.plot.pair(Step::TurnClock(site, ppm), Step::TurnClock(site, before));
        Some(())
    }

    pub(super) fn wall_clock(&mut self, site: usize, by: i64) -> Option<()> {
        self.plot.pair(Step::StepWallClock(site, by), Step::StepWallClock(site, -by));
        Some(())
    }
}
