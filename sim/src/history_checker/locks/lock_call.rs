//! `LockCall`: the course of a call, as the record tells it.

use crate::record::RecordedRequest;

/// A lock of a service. The empty name, which no lock has, stands for the suspension of the
/// service.
pub(super) type Lock<'a> = (&'a str, &'a str);

/// The course of a call.
#[derive(Clone, Debug)]
pub(super) struct LockCall<'a> {
    pub(super) number: usize,
    pub(super) site: usize,
    pub(super) life: u64,
    pub(super) service: &'a str,
    pub(super) request_kind: RecordedRequest,
    pub(super) locks: Vec<Lock<'a>>,
    pub(super) owner: u64,
    /// Its wait limit in nanoseconds; zero: a try.
    pub(super) wait: Option<u64>,
    pub(super) asked: u64,
    /// The process was stopped since the call.
    pub(super) slept: bool,
    /// Answered without a lock.
    pub(super) failed: bool,
    /// The hold was released, or the call was given up.
    pub(super) released: Option<u64>,
    /// The process told that the hold is over.
    pub(super) lost: Option<u64>,
    /// The process has ended.
    pub(super) unknown: Option<u64>,
    pub(super) hold: Option<Hold>,
    /// The call has an object open.
    pub(super) opened: bool,
    /// How many permits it has, and how many it had until which time.
    pub(super) permits: u32,
    pub(super) more: Vec<(u64, u32)>,
    /// Its earlier holds, before an upgrade or downgrade.
    pub(super) before: Vec<HoldInterval>,
    /// The last version of an object that it saw.
    pub(super) seen: Option<u64>,
}

/// A time in which a call held in one mode.
#[derive(Clone, Copy, Debug)]
pub(super) struct HoldInterval {
    pub(super) request_kind: RecordedRequest,
    pub(super) token: u64,
    pub(super) from: u64,
    pub(super) order: usize,
    pub(super) until: u64,
}

/// The state of a lock from the grant on.
#[derive(Clone, Debug)]
pub(super) struct Hold {
    pub(super) token: u64,
    pub(super) from: u64,
    /// How many grants were told before.
    pub(super) order: usize,
    /// The end of the lock's lease.
    pub(super) until: u64,
    /// The end of its member's lease, if that ended while the process was stopped.
    pub(super) cap: u64,
}

impl LockCall<'_> {
    /// Returns the time at which its end is known to all.
    pub(super) fn told(&self) -> u64 {
        [self.released, self.lost, self.unknown].into_iter().flatten().min().unwrap_or(u64::MAX)
    }

    /// Returns the time until which its guard gives the token. It is the earliest of the told end,
    /// the end of the lock's lease and the end of the member's lease.
    pub(super) fn believed_until(&self) -> u64 {
        self.hold.as_ref().map_or(0, |hold| hold.until.min(hold.cap).min(self.told()))
    }

    pub(super) fn waits(&self) -> bool {
        self.hold.is_none() && !self.opened && !self.failed && self.told() == u64::MAX
    }

    pub(super) fn holds(&self) -> bool {
        (self.hold.is_some() || self.opened) && self.told() == u64::MAX
    }

    /// All its holds, one after the other.
    pub(super) fn stays(&self) -> Vec<HoldInterval> {
        let mut stays = self.before.clone();
        stays.extend(self.hold.as_ref().map(|hold| {
            let (token, from, order) = (hold.token, hold.from, hold.order);
            HoldInterval {
                request_kind: self.request_kind,
                token,
                from,
                order,
                until: self.believed_until(),
            }
        }));
        stays
    }

    /// How many tokens it has for each of its locks.
    pub(super) fn tokens(&self) -> u64 {
        u64::from(self.more.first().map_or(self.permits, |(_, permits)| *permits)).max(1)
    }

    pub(super) fn is_try(&self) -> bool {
        self.wait == Some(0)
    }
}
