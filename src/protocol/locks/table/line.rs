//! The line of a table: the tickets of its waiting requests, and the next request to grant.

use super::*;

impl Table {
    /// Puts a new request at its position in the line.
    pub(crate) fn queue(
        &mut self,
        key: RequestKey,
        entry: LockRequest,
        now: Time,
    ) -> Result<Ticket, Refusal> {
        debug_assert!(self.get(key).is_none(), "a request has one position");
        let suspends = entry.want == Want::Suspension;
        if suspends && self.deadlocks(key.0, entry.owner) {
            return Err(Refusal::Deadlock);
        }
        let passed = self.pass(key.0, entry.owner, suspends);
        let ticket = passed.unwrap_or_else(|| self.arrive(suspends));
        self.passes += u64::from(passed.is_some());
        self.stand(key, entry, ticket, now);
        Ok(ticket)
    }

    /// Puts a request at the position that it had in another table. A known request keeps its
    /// position.
    pub(crate) fn wait(&mut self, key: RequestKey, entry: LockRequest, ticket: Ticket, now: Time) {
        if self.get(key).is_none() {
            self.keep_clear_of(ticket);
            self.stand(key, entry, ticket, now);
        }
    }

    /// Returns whether a ticket tells the order of arrival. Others are of requests that passed a
    /// suspension.
    pub(crate) fn is_in_order(&self, ticket: Ticket) -> bool {
        ticket.number & POSITION < self.bounds.room
    }

    /// Deals a ticket to a request that will enter the line later.
    pub(crate) fn deal_ticket(&mut self) -> Ticket {
        self.arrive(false)
    }

    /// Keeps a waiting request from being granted, as if one more of its names were missing. It
    /// stays in its queues.
    pub(crate) fn hold_back(&mut self, key: RequestKey) {
        if let Some(EntryStatus::Waits(ticket)) = self.entry_status(key) {
            self.misses_one((ticket, key));
        }
    }

    /// Ends [`hold_back`](Table::hold_back).
    pub(crate) fn let_go(&mut self, key: RequestKey) {
        if let Some(EntryStatus::Waits(ticket)) = self.entry_status(key) {
            self.misses_one_less((ticket, key));
        }
    }

    /// The next request, if it can be granted.
    pub(super) fn first(&self) -> Option<QueueRank> {
        if let Some(rank) = self.opening.first() {
            return Some(*rank);
        }
        let first_suspension = match self.suspended {
            Some((token, _)) => Some(Ticket::in_front(token, POSITION)),
            None => self.suspensions.first().map(|rank| rank.0),
        };
        if let Some(rank) = self.ready.first()
            && first_suspension.is_none_or(|first| rank.0 < first)
        {
            return Some(*rank);
        }
        let rank = self.suspensions.first().filter(|_| self.suspended.is_none())?;
        let owner = self.get(rank.1)?.entry.owner;
        self.is_alone(rank.1.0, owner).then_some(*rank)
    }

    /// The ticket of a request that passes the first suspension. `None`: there is no suspension, or
    /// the request may not pass, or has no room to pass.
    pub(super) fn pass(
        &self,
        process: ProcessId,
        owner: OwnerId,
        suspends: bool,
    ) -> Option<Ticket> {
        let pass = self.passes + 1;
        let is_none = self.suspended.is_none() && self.suspensions.is_empty();
        if is_none || pass >= self.bounds.room || self.holds_of(process, owner) == 0 {
            return None;
        }
        if let Some((token, key)) = self.suspended
            && !suspends
        {
            // A request of the whole member is not one of the owner that has suspended the service.
            let by = self.get(key).map(|request| request.entry.owner);
            let may = owner != OwnerId(0) || by == Some(owner);
            return may.then(|| Ticket::in_front(token, pass));
        }
        let (Ticket { epoch, number }, _) = *self.suspensions.first()?;
        if number >> 32 >= self.bounds.blocks {
            return None;
        }
        let block = number & !POSITION;
        // A passing suspension goes before the requests that have passed already. They have its
        // owner, so it need not wait for them.
        Some(Ticket {
            epoch,
            number: if suspends {
                block + POSITION - pass
            } else {
                block + self.bounds.room + pass
            },
        })
    }

    /// The ticket of an arriving request.
    fn arrive(&mut self, suspends: bool) -> Ticket {
        let next = self.arrivals.saturating_add(1);
        self.arrivals = match next >> 32 {
            block if block >= self.bounds.blocks => next,
            _ if suspends => next | POSITION,
            block if next & POSITION >= self.bounds.room => (block + 1) << 32,
            _ => next,
        };
        Ticket { epoch: self.epoch, number: self.arrivals }
    }

    /// Prevents that a ticket from another table is dealt again.
    fn keep_clear_of(&mut self, ticket: Ticket) {
        if ticket.epoch == self.epoch {
            self.arrivals = self.arrivals.max(ticket.number);
        }
        let position = ticket.number & POSITION;
        let pass = if ticket.is_in_front() {
            position
        } else if position < 2 * self.bounds.room {
            position.saturating_sub(self.bounds.room)
        } else {
            POSITION - position
        };
        if pass < self.bounds.room {
            self.passes = self.passes.max(pass);
        }
    }

    /// Returns whether a suspension of this owner and the first waiting suspension would wait for
    /// each other.
    pub(super) fn deadlocks(&self, process: ProcessId, owner: OwnerId) -> bool {
        let Some(&(_, key)) = self.suspensions.first() else { return false };
        planted!(self.mutant, QueueDeadlock => return false);
        planted!(self.mutant, QueueOwnersDeadlock => if process == key.0 { return false });
        let Some(other) = self.get(key).map(|request| request.entry.owner) else { return false };
        let awaited = if process != key.0 {
            self.holds_of(process, owner)
        } else if other == OwnerId(0) || other == owner {
            0
        } else if owner == OwnerId(0) {
            self.holds_of(process, owner) - self.holds_of(process, other)
        } else {
            self.holds_of(process, owner)
        };
        awaited > 0 && (self.holds_of(key.0, other) > 0 || planted!(self.mutant, SuspectDeadlock))
    }

    pub(super) fn stand(&mut self, key: RequestKey, entry: LockRequest, ticket: Ticket, now: Time) {
        let (rank, want) = ((ticket, key), entry.want.clone());
        let missing = want.names().len() as u16;
        let state = TableRequestState::Waits { ticket, missing, since: WaitStart::new(now) };
        self.insert(key, TableRequest { entry, state });
        match &want {
            Want::Suspension => drop(self.suspensions.insert(rank)),
            Want::Open(_) => drop(self.opening.insert(rank)),
            _ => want.names().iter().for_each(|name| self.enter(name, rank, &want)),
        }
    }
}
