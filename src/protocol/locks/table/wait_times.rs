//! `WaitTimes`: since when requests wait in a table.

use super::RequestKey;
use crate::protocol::time::Time;
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::time::Duration;

/// The times at which waiting requests came to this grantor. They are for people, and no rule reads
/// them. So tables with different times are equal, and the model checker takes them for one state.
#[derive(Clone, Default, Debug)]
pub(super) struct WaitTimes(BTreeMap<RequestKey, Time>);

impl WaitTimes {
    pub(super) fn begin(&mut self, key: RequestKey, now: Time) {
        self.0.entry(key).or_insert(now);
    }

    pub(super) fn end(&mut self, key: RequestKey) {
        self.0.remove(&key);
    }

    /// The time for which the request has waited; `None`: it does not wait.
    pub(super) fn waited(&self, key: RequestKey, now: Time) -> Option<Duration> {
        self.0.get(&key).map(|since| now.since(*since))
    }

    #[cfg(test)]
    pub(super) fn keys(&self) -> impl Iterator<Item = &RequestKey> {
        self.0.keys()
    }
}

impl PartialEq for WaitTimes {
    fn eq(&self, _: &WaitTimes) -> bool {
        true
    }
}

impl Eq for WaitTimes {}

impl Hash for WaitTimes {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}
