//! Without the feature `metrics`: nothing, at no cost.

use crate::protocol::{LostReason, Node, Packet, ServiceName, Time};
use std::time::Duration;

#[derive(Clone)]
pub(crate) struct Meter;

impl Meter {
    pub(crate) fn new(_: &ServiceName) -> Meter {
        Meter
    }

    pub(crate) fn waited(&self, _: &'static str, _: Duration) {}

    pub(super) fn view_changed() {}

    pub(super) fn transferred(_: &ServiceName, _: Duration) {}

    pub(super) fn recovered(_: &ServiceName, _: Duration) {}
}

pub(crate) struct HoldMeter;

impl HoldMeter {
    pub(crate) fn new() -> HoldMeter {
        HoldMeter
    }

    pub(crate) fn since(&self) -> Option<Time> {
        None
    }

    pub(crate) fn begin(&self, _: &Meter) {}

    pub(crate) fn end(&self, _: impl FnOnce() -> Option<LostReason>) {}
}

pub(crate) struct Mail;

impl Mail {
    pub(crate) fn new() -> Mail {
        Mail
    }

    pub(crate) fn sent(&mut self, _: &Packet) {}

    pub(crate) fn received(&mut self, _: &Packet) {}
}

pub(crate) struct Sampler;

impl Sampler {
    pub(crate) fn new() -> Sampler {
        Sampler
    }

    pub(crate) fn due(&self) -> Time {
        Time::MAX
    }

    pub(crate) fn is_due(&self) -> bool {
        false
    }

    pub(crate) fn read(_: &Node, _: &mut Mail) {}

    pub(crate) fn tell(&mut self, (): ()) {}
}
