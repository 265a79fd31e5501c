//! A request of a member: as the application makes it, and as the lock client keeps it.

use crate::protocol::event::{Outcome, Wait};
use crate::protocol::id::{
    Epoch, LockName, Metadata, OwnerId, ProcessId, RequestId, ServiceName, Ticket, Token, Want,
};
use crate::protocol::message::{LockRequest, kept_weight};
use crate::protocol::time::Time;
use std::collections::BTreeSet;
use std::time::Duration;

/// A request as the application makes it.
pub(crate) struct LockCall {
    pub(crate) request: RequestId,
    pub(crate) service: ServiceName,
    pub(crate) lock: LockRequest,
    pub(crate) wait: Wait,
    pub(crate) lease: Option<Duration>,
    /// Whether the request is told if it waits in a circle of owners.
    pub(crate) detects: bool,
    /// Whether this member may keep the lock after its release.
    pub(crate) keeps: bool,
    /// Whether this member asks to grant the service if it makes most of its requests.
    pub(crate) follows: bool,
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) enum ClientRequestState {
    Unsent,
    Asked(Epoch),
    Queued(Epoch),
    /// The request is granted: with this token, since this time.
    Won(Token, Time),
    Held {
        token: Token,
        since: Time,
    },
}

#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct ClientRequest {
    pub(super) want: Want,
    pub(super) owner: OwnerId,
    pub(super) state: ClientRequestState,
    /// The rarely used fields; `None`: all are empty. They are boxed apart to keep the requests of
    /// held locks small.
    cold: Option<Box<RequestColdFields>>,
}

/// The fields that each waiting request has, but few that hold.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
struct RequestColdFields {
    metadata: Metadata,
    /// The requests of members that have asked for its release; `None`: the hold is not revocable.
    revocable: Option<BTreeSet<(ProcessId, RequestId)>>,
    /// The state of the wait; `None`: the request no longer waits.
    waiting: Option<WaitState>,
}

/// The fields that a request needs until it holds.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(super) struct WaitState {
    pub(super) lease: Option<Duration>,
    only_if_free: bool,
    /// Whether the request is a try. At the limit a try is answered that no member can say; other
    /// requests are told of the limit.
    is_try: bool,
    /// The time at which the wait ends.
    pub(super) limit: Time,
    /// The position that the grantor has acknowledged; kept while no grantor is known.
    pub(super) ticket: Option<Ticket>,
    /// The time of the next probe; `None`: the request does not detect circles.
    pub(super) probe: Option<Time>,
    /// The number of further tokens that the request asks for, to keep the lock.
    pub(super) keep: u32,
}

impl LockCall {
    /// The request of a lock that was taken without the core.
    pub(crate) fn taken(
        request: RequestId,
        service: ServiceName,
        (name, owner): (LockName, OwnerId),
    ) -> LockCall {
        let (want, metadata) = (Want::Lock(name), Metadata::default());
        let lock = LockRequest { want, owner, revocable: false, metadata };
        let wait = Wait::Try;
        LockCall {
            request,
            service,
            lock,
            wait,
            lease: None,
            detects: false,
            keeps: false,
            follows: false,
        }
    }

    /// The state of a new wait. `answer`: the longest time of a try.
    pub(super) fn waiting(&self, answer: Duration, now: Time) -> WaitState {
        let (only_if_free, limit) = match self.wait {
            Wait::Try | Wait::AtMost(Duration::ZERO) => (true, now + answer),
            Wait::AtMost(span) => (false, now + span),
            Wait::Forever => (false, Time::MAX),
        };
        WaitState {
            lease: self.lease,
            only_if_free,
            is_try: self.wait == Wait::Try,
            limit,
            ticket: None,
            probe: None,
            keep: 0,
        }
    }

    /// The request as the lock client stores it.
    pub(super) fn kept(
        self,
        waiting: Option<WaitState>,
        state: ClientRequestState,
    ) -> ClientRequest {
        let LockRequest { want, owner, revocable, metadata } = self.lock;
        let cold =
            RequestColdFields { metadata, revocable: revocable.then(BTreeSet::new), waiting }
                .kept();
        ClientRequest { want, owner, state, cold }
    }
}

impl WaitState {
    /// Returns whether the request is granted at once or not at all.
    pub(super) fn is_only_if_free(&self) -> bool {
        self.only_if_free
    }
}

impl RequestColdFields {
    /// The fields to store: `None` if all are empty.
    fn kept(self) -> Option<Box<RequestColdFields>> {
        (self != RequestColdFields::default()).then(|| Box::new(self))
    }
}

impl ClientRequest {
    pub(super) fn waiting(&self) -> Option<&WaitState> {
        self.cold.as_ref()?.waiting.as_ref()
    }

    pub(super) fn waiting_mut(&mut self) -> Option<&mut WaitState> {
        self.cold.as_mut()?.waiting.as_mut()
    }

    /// Ends the wait of the request, and returns its state.
    pub(super) fn take_waiting(&mut self) -> Option<WaitState> {
        let mut cold = self.cold.take()?;
        let waiting = cold.waiting.take();
        self.cold = Some(cold).filter(|cold| **cold != RequestColdFields::default());
        waiting
    }

    /// The request as the grantor stores it.
    pub(super) fn lock(&self) -> LockRequest {
        LockRequest {
            want: self.want.clone(),
            owner: self.owner,
            revocable: self.is_revocable(),
            metadata: self.cold.as_ref().map(|cold| cold.metadata.clone()).unwrap_or_default(),
        }
    }

    /// The weight of the request in the grantor's table.
    pub(super) fn weight(&self) -> usize {
        let metadata = self.cold.as_ref().map_or(0, |cold| cold.metadata.as_bytes().len());
        kept_weight(&self.want, metadata)
    }

    fn is_revocable(&self) -> bool {
        self.cold.as_ref().is_some_and(|cold| cold.revocable.is_some())
    }

    /// The requests of members that have asked for its release; `None`: the hold is not revocable.
    pub(super) fn revocable_mut(&mut self) -> Option<&mut BTreeSet<(ProcessId, RequestId)>> {
        self.cold.as_mut()?.revocable.as_mut()
    }

    /// Returns whether the request holds with this token, be it the only one or one of several.
    pub(super) fn holds_with(&self, token: Token) -> bool {
        let ClientRequestState::Held { token: first, .. } = self.state else { return false };
        (first..first.plus(u64::from(self.want.tokens()))).contains(&token)
    }

    /// The outcome for the caller when the limit is reached before an answer.
    pub(super) fn at_limit(&self) -> Outcome {
        if self.is_try() { Outcome::Undecided } else { Outcome::TimedOut }
    }

    pub(super) fn is_try(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.is_try)
    }

    pub(super) fn is_only_if_free(&self) -> bool {
        self.waiting().is_some_and(|waiting| waiting.only_if_free)
    }

    /// The time at which the wait ends.
    pub(super) fn limit(&self) -> Time {
        self.waiting().map_or(Time::MAX, |waiting| waiting.limit)
    }

    /// The number of further tokens that the request asks for, to keep the lock.
    pub(super) fn keep(&self) -> u32 {
        self.waiting().map_or(0, |waiting| waiting.keep)
    }

    /// The position that the grantor has acknowledged.
    pub(super) fn ticket(&self) -> Option<Ticket> {
        self.waiting().and_then(|waiting| waiting.ticket)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each held lock has such an entry.
    #[test]
    fn a_held_lock_takes_little_memory() {
        assert_eq!(size_of::<ClientRequest>(), 72);
    }
}
