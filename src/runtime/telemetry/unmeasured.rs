//! The empty form of the measurements, without the feature `metrics`. It costs nothing.

use crate::protocol::{LostReason, Node, Packet, ServiceName, Time};
use crate::runtime::net::counters::Counters;
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct NoMeter;

impl NoMeter {
    pub(crate) fn new(_: &ServiceName) -> NoMeter {
        NoMeter
    }

    pub(crate) fn begin_series(&self) {}

    pub(crate) fn waited(&self, _: &'static str, _: Duration) {}

    pub(super) fn view_changed() {}

    pub(super) fn transferred(_: &ServiceName, _: Duration) {}

    pub(super) fn recovered(_: &ServiceName, _: Duration) {}
}

pub(crate) struct NoHoldMeter;

impl NoHoldMeter {
    pub(crate) fn new() -> NoHoldMeter {
        NoHoldMeter
    }

    pub(crate) fn since(&self) -> Option<Time> {
        None
    }

    pub(crate) fn begin(&self, _: &NoMeter) {}

    pub(crate) fn end(&self, _: impl FnOnce() -> Option<LostReason>) {}
}

pub(crate) struct NoPacketCounts;

impl NoPacketCounts {
    pub(crate) fn new() -> NoPacketCounts {
        NoPacketCounts
    }

    pub(crate) fn sent(&mut self, _: &Packet) {}

    pub(crate) fn received(&mut self, _: &Packet, _: bool) {}
}

pub(crate) struct NoSampler;

impl NoSampler {
    pub(crate) fn new() -> NoSampler {
        NoSampler
    }

    pub(crate) fn due(&self) -> Time {
        Time::MAX
    }

    pub(crate) fn is_due(&self, _: Time) -> bool {
        false
    }

    pub(crate) fn read(_: &Node, _: bool, _: &mut NoPacketCounts, _: Time) {}

    pub(crate) fn tell(&mut self, (): (), _: Counters, _: Time) {}
}
