//! The known state of each site while a record is read.

use crate::record::{Entry, Line};

/// The known state of one site.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteHistory {
    /// The number of the process that runs there, or ran last.
    pub(super) life: u64,
    pub(super) alive: bool,
    pub(super) paused: bool,
    /// The member lease runs, as far as its process has said.
    leased: bool,
    /// The end of the member lease while the process is stopped.
    lease_end: u64,
    /// The process has been told to leave.
    pub(super) leaving: bool,
    /// When its lease began to run again.
    pub(super) resumed_at: Option<u64>,
}

impl SiteHistory {
    /// Returns whether its member lease runs at `at`.
    pub(super) fn is_leased(&self, at: u64) -> bool {
        self.alive && self.leased && (!self.paused || at < self.lease_end)
    }

    /// Returns the time at which a belief ends without a told end: the process is stopped, and its
    /// clock goes on.
    pub(super) fn belief_end(&self) -> u64 {
        if self.paused { self.lease_end } else { u64::MAX }
    }
}

/// The known states of all sites.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteIndex {
    sites: Vec<SiteHistory>,
}

impl SiteIndex {
    pub(super) fn site(&mut self, site: usize) -> &mut SiteHistory {
        if self.sites.len() <= site {
            self.sites.resize_with(site + 1, SiteHistory::default);
        }
        &mut self.sites[site]
    }

    pub(super) fn sites(&self) -> impl Iterator<Item = (usize, &SiteHistory)> {
        self.sites.iter().enumerate()
    }

    /// Applies a line.
    pub(super) fn heed(&mut self, line: &Line) {
        let Some(site) = line.site else { return };
        let site = self.site(site);
        match &line.entry {
            Entry::Start => {
                *site = SiteHistory { life: line.life, alive: true, ..SiteHistory::default() }
            }
            Entry::End { .. } => (site.alive, site.paused, site.leased) = (false, false, false),
            Entry::Pause => (site.paused, site.lease_end) = (true, u64::MAX),
            Entry::Lease { until } => site.lease_end = until.unwrap_or(u64::MAX),
            Entry::Wake => site.paused = false,
            Entry::Leave => site.leaving = true,
            Entry::Event { name } => match name.as_str() {
                "resumed" => (site.leased, site.resumed_at) = (true, Some(line.at)),
                "suspended" | "expelled" | "left" | "abandoned" => site.leased = false,
                _ => {}
            },
            _ => {}
        }
    }
}
