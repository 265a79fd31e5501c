//! The known state of each site while a record is read.

use crate::record::{Entry, Line};

/// One place.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteHistory {
    /// The number of the process that runs there, or ran last.
    pub(super) life: u64,
    pub(super) alive: bool,
    pub(super) paused: bool,
    /// The member lease runs, as far as its process has said.
    leased: bool,
    /// While it is stopped: when that lease ends.
    lease_end: u64,
    /// It has been told to leave.
    pub(super) leaving: bool,
    /// When its lease began to run again.
    pub(super) resumed_at: Option<u64>,
}

impl SiteHistory {
    /// Whether its member lease runs at `at`.
    pub(super) fn is_leased(&self, at: u64) -> bool {
        self.alive && self.leased && (!self.paused || at < self.lease_end)
    }

    /// When a belief ends without a told end: the process is stopped, and its clock goes on.
    pub(super) fn belief_end(&self) -> u64 {
        if self.paused { self.lease_end } else { u64::MAX }
    }
}

/// All places.
#[derive(Clone, Debug, Default)]
pub(super) struct SiteIndex {
    places: Vec<SiteHistory>,
}

impl SiteIndex {
    pub(super) fn place(&mut self, place: usize) -> &mut SiteHistory {
        if self.places.len() <= place {
            self.places.resize_with(place + 1, SiteHistory::default);
        }
        &mut self.places[place]
    }

    pub(super) fn places(&self) -> impl Iterator<Item = (usize, &SiteHistory)> {
        self.places.iter().enumerate()
    }

    /// Applies a line.
    pub(super) fn heed(&mut self, line: &Line) {
        let Some(place) = line.place else { return };
        let place = self.place(place);
        match &line.entry {
            Entry::Start => {
                *place = SiteHistory { life: line.life, alive: true, ..SiteHistory::default() }
            }
            Entry::End { .. } => (place.alive, place.paused, place.leased) = (false, false, false),
            Entry::Pause => (place.paused, place.lease_end) = (true, u64::MAX),
            Entry::Lease { until } => place.lease_end = until.unwrap_or(u64::MAX),
            Entry::Wake => place.paused = false,
            Entry::Leave => place.leaving = true,
            Entry::Event { name } => match name.as_str() {
                "resumed" => (place.leased, place.resumed_at) = (true, Some(line.at)),
                "suspended" | "expelled" | "left" | "abandoned" => place.leased = false,
                _ => {}
            },
            _ => {}
        }
    }
}
