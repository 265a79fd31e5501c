//! The rules one by one, then all of them against a model without shortcuts.

mod copies;
mod objects;
mod questions;
mod suspensions;

use super::*;
use crate::protocol::chance::draws;
use crate::protocol::content::LastWrite;
use crate::protocol::id::{Batch, Metadata, Mode, OpenRequest, Permits, Slot};
use crate::protocol::message::{HolderInfo, LockRequest, Query, QueryReply, WaiterInfo};
use crate::protocol::visit_count::touched;
use std::time::Duration;

const NOW: Time = Time::from_nanos(5_000_000_000);

/// The members of these tests. Each is also one owner, unless stated otherwise.
const ANN: u128 = 1;
const BOB: u128 = 2;
const CYD: u128 = 3;
const DAN: u128 = 4;

fn token(n: u32) -> Token {
    Token::new(Slot(7), n)
}

fn name(text: &str) -> LockName {
    LockName::new(text.as_bytes()).expect("a good name")
}

fn batch(names: &[&str]) -> Want {
    Want::Batch(Batch::new(names.iter().map(|text| name(text)).collect()).expect("a good batch"))
}

fn lock(text: &str) -> Want {
    Want::Lock(name(text))
}

fn share(text: &str) -> Want {
    Want::Share(name(text))
}

fn permits(text: &str, count: u32) -> Want {
    Want::Permits(name(text), Permits::new(count).expect("a good number"))
}

/// An open object that sets the number of permits.
fn limit(text: &str, permits: u32) -> Want {
    Want::Open(OpenRequest::new(name(text), limited(permits)))
}

fn written(request: u64, version: u32) -> LastWrite {
    LastWrite { request: RequestId(request), version: token(version), number: None }
}

fn limited(permits: u32) -> Value {
    Value::new(&permits.to_le_bytes()).expect("a short value")
}

/// A table, and names for the operations on it.
struct TableScript {
    table: Table,
    requests: u64,
    tokens: u32,
}

impl TableScript {
    fn new() -> TableScript {
        TableScript { table: Table::new(Epoch(token(0))), requests: 0, tokens: 0 }
    }

    /// Asks as a grantor does: the request is granted if free, and queued otherwise. Nothing else
    /// is granted.
    fn ask_as(&mut self, process: u128, owner: u64, want: Want) -> Result<RequestKey, Refusal> {
        self.requests += 1;
        let key = (ProcessId(process), RequestId(self.requests));
        let entry = LockRequest {
            want,
            owner: OwnerId(owner),
            revocable: false,
            metadata: Metadata::default(),
        };
        match self.table.is_free(key.0, &entry, NOW) {
            Ok(()) => {
                self.tokens += entry.want.tokens();
                self.table.hold(key, entry, token(self.tokens), NOW);
            }
            Err(_) => {
                self.table.queue(key, entry, NOW)?;
            }
        }
        self.table.check();
        Ok(key)
    }

    fn ask(&mut self, process: u128, want: Want) -> RequestKey {
        self.ask_as(process, process as u64, want).expect("no deadlock")
    }

    fn locks(&mut self, process: u128, text: &str) -> RequestKey {
        self.ask(process, lock(text))
    }

    fn suspends(&mut self, process: u128) -> RequestKey {
        self.ask(process, Want::Suspension)
    }

    /// Ends a request, and grants everything that can be granted then.
    fn release(&mut self, key: RequestKey) -> Vec<RequestKey> {
        self.table.release(key);
        self.table.check();
        self.grants()
    }

    fn grants(&mut self) -> Vec<RequestKey> {
        let mut granted = Vec::new();
        while let Some(count) = self.table.next() {
            self.tokens += count;
            granted.extend(self.table.grant_next(token(self.tokens - count + 1), NOW));
            self.table.check();
        }
        granted
    }

    fn try_as(&self, process: u128, want: Want) -> Result<(), Refusal> {
        let entry = LockRequest {
            want,
            owner: OwnerId(process as u64),
            revocable: false,
            metadata: Metadata::default(),
        };
        self.table.is_free(ProcessId(process), &entry, NOW)
    }

    fn holds(&self, key: RequestKey) -> bool {
        matches!(self.table.entry_status(key), Some(EntryStatus::Holds(_)))
    }

    fn waits(&self, key: RequestKey) -> bool {
        matches!(self.table.entry_status(key), Some(EntryStatus::Waits(_)))
    }

    /// Builds the table anew, as another grantor would from the members' reports or from this
    /// grantor's chunks.
    fn recover(&mut self, epoch: u32) {
        let mut table = Table::new(Epoch(token(epoch)));
        let (holds, waits) = self.table.export(NOW);
        for (name, content) in self.table.objects() {
            table.adopt(name.clone(), content.clone());
        }
        for (process, hold) in holds {
            let HoldReport {
                request,
                token,
                lock: LockRequest { want, owner, revocable, metadata },
                ..
            } = hold;
            assert_eq!(
                table.enter_reported(
                    (process, request),
                    LockRequest { want, owner, revocable, metadata },
                    token,
                    NOW
                ),
                []
            );
        }
        for (process, wait) in waits.into_iter().rev() {
            let WaitReport {
                request,
                ticket,
                lock: LockRequest { want, owner, revocable, metadata },
            } = wait;
            let ticket = ticket.expect("exported waits have tickets");
            table.wait(
                (process, request),
                LockRequest { want, owner, revocable, metadata },
                ticket,
                NOW,
            );
            table.check();
        }
        assert_eq!(table.export(NOW), self.table.export(NOW));
        table.drop_unopened();
        self.table = table;
    }

    /// Asks, ends, reduces, upgrades or writes something. Nothing is granted.
    fn act_at_random(
        &mut self,
        keys: &mut Vec<RequestKey>,
        below: &mut impl FnMut(u64) -> u64,
        step: u64,
    ) {
        let process = u128::from(1 + below(4));
        let text = ["x", "y"][below(2) as usize];
        let key = keys.get(below(1 + keys.len() as u64) as usize).copied();
        match (below(14), key) {
            (0..=3, Some(key)) => {
                self.table.release(key);
            }
            (4, Some(key)) => {
                let to = if below(2) == 0 { share(text) } else { permits(text, 1) };
                if let Some(EntryStatus::Holds(token)) = self.table.entry_status(key) {
                    self.table.reduce(key, &to, token);
                }
            }
            (5, Some(key)) if self.table.others_beside(key) == Some(0) => {
                self.tokens += 1;
                self.table.upgrade(key, token(self.tokens));
            }
            (6, _) => {
                self.tokens += 1;
                let write =
                    LastWrite { version: token(self.tokens), ..written(1_000_000 + step, 0) };
                self.table.write(ProcessId(process), &name(text), limited(below(5) as u32), write);
            }
            (7, _) => keys.push(self.ask(process, limit(text, below(5) as u32))),
            (8, _) => keys.extend(self.ask_as(process, below(3), Want::Suspension)),
            (9, _) => keys.push(self.ask(process, batch(&["x", "y"]))),
            (10, _) => keys.push(self.locks(process, text)),
            (11, _) => keys.push(self.ask(process, share(text))),
            (_, _) if self.table.is_open(&name(text), ProcessId(process)) => {
                keys.push(self.ask(process, permits(text, 1 + below(3) as u32)));
            }
            _ => {}
        }
    }

    /// The number of requests before it, the number of holds of its names, and the process that
    /// suspends the service before it.
    fn position(&self, key: RequestKey) -> Option<(u64, u64, Option<ProcessId>)> {
        match self.table.answer(key.0, &Query::Position(key.1), NOW) {
            QueryReply::Position { before, holds, suspension } => {
                assert!(suspension.iter().all(|suspender| suspender.mode == Mode::Suspension));
                Some((before, holds, suspension.map(|suspender| suspender.process)))
            }
            seen => {
                assert_eq!(seen, QueryReply::Unknown);
                None
            }
        }
    }
}

impl Table {
    /// Computes everything anew that the table stores in more than one way.
    fn check(&self) {
        let mut bare = Table::new(self.epoch);
        (bare.arrivals, bare.passes, bare.bounds) = (self.arrivals, self.passes, self.bounds);
        for (name, TableObject { content, .. }) in &self.objects {
            bare.adopt(name.clone(), content.clone());
        }
        for (object, own) in bare.objects.values_mut().zip(self.objects.values()) {
            object.adopted = own.adopted;
        }
        for (key, TableRequest { entry, state }) in self.all() {
            match state {
                TableRequestState::Holds { token, since } => {
                    bare.hold(key, entry.clone(), *token, *since)
                }
                TableRequestState::Waits { .. } => {}
            }
        }
        let mut waits: Vec<(QueueRank, &LockRequest)> = Vec::new();
        for (key, TableRequest { entry, state }) in self.all() {
            if let TableRequestState::Waits { ticket, missing, .. } = state {
                waits.push(((*ticket, key), entry));
                let misses = |name: &&LockName| {
                    let is_first = self.head(name) == Some((*ticket, key));
                    !is_first || !self.fits(name, &entry.want)
                };
                if entry.want.opens() {
                    assert!(self.opening.contains(&(*ticket, key)));
                    continue;
                }
                assert_eq!(
                    *missing as usize,
                    entry.want.names().iter().filter(misses).count(),
                    "{key:?}"
                );
                let is_ready = *missing == 0 && entry.want != Want::Suspension;
                assert_eq!(self.ready.contains(&(*ticket, key)), is_ready, "{key:?}");
            }
        }
        waits.sort_by_key(|(rank, _)| *rank);
        for ((ticket, key), entry) in waits {
            bare.stand(key, entry.clone(), ticket, NOW);
        }
        (bare.has_adopted, bare.trace) = (self.has_adopted, self.trace.clone());
        assert_eq!(*self, bare);
    }

    /// The table without its counters, which only rise.
    fn forgetful(mut self) -> Table {
        (self.arrivals, self.passes) = (0, 0);
        self
    }
}

#[test]
fn waiters_are_served_by_ticket_and_an_idle_name_leaves_nothing() {
    let mut story = TableScript::new();
    let holder = story.locks(ANN, "x");
    let waiters: Vec<RequestKey> = [BOB, CYD, DAN].map(|process| story.locks(process, "x")).into();
    assert_eq!(story.grants(), []);
    assert_eq!(story.release(waiters[1]), []);
    assert_eq!(story.release(holder), [waiters[0]]);
    assert_eq!(story.release(waiters[0]), [waiters[2]]);
    assert_eq!(story.release(waiters[2]), []);
    assert_eq!(story.table.forgetful(), Table::new(Epoch(token(0))));
}

#[test]
fn a_name_is_clear_without_a_request_however_many_are_held() {
    let mut table = Table::new(Epoch(token(0)));
    let key = |request: u32| (ProcessId(ANN), RequestId(request.into()));
    let entry = |want| LockRequest {
        want,
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    let text = |number: u32| number.to_string();
    for number in 0..3000 {
        assert!(table.is_clear(&name(&text(number))));
        let want = if number % 3 == 0 { share(&text(number)) } else { lock(&text(number)) };
        table.hold(key(2 * number), entry(want), token(number), NOW);
        if number % 3 == 0 {
            table.hold(key(2 * number + 1), entry(share(&text(number))), token(number), NOW);
        }
    }
    let mut table = table.clone().renew(Epoch(token(1)));
    for number in 0..3000 {
        assert!(!table.is_clear(&name(&text(number))));
        table.release(key(2 * number));
        assert_eq!(
            table.is_clear(&name(&text(number))),
            number % 3 != 0,
            "one of two shares is left of some"
        );
        table.release(key(2 * number + 1));
        assert!(table.is_clear(&name(&text(number))));
    }
    assert_eq!(table.forgetful(), Table::new(Epoch(token(1))));
}

#[test]
fn of_two_claims_the_higher_token_wins_in_either_order() {
    for want in [lock("x"), Want::Suspension, batch(&["w", "x"])] {
        for (first, second) in [(10, 20), (20, 10)] {
            let mut table = Table::new(Epoch(token(0)));
            let entry = LockRequest {
                want: want.clone(),
                owner: OwnerId(0),
                revocable: false,
                metadata: Metadata::default(),
            };
            let key = |n: u32| (ProcessId(n.into()), RequestId(n.into()));
            assert_eq!(table.enter_reported(key(first), entry.clone(), token(first), NOW), []);
            assert_eq!(
                table.enter_reported(key(first), entry.clone(), token(first), NOW),
                [],
                "said twice"
            );
            assert_eq!(table.enter_reported(key(second), entry, token(second), NOW), [key(10)]);
            assert_eq!(table.entry_status(key(20)), Some(EntryStatus::Holds(token(20))));
            assert_eq!(table.entry_status(key(10)), None);
            table.check();
        }
    }
}

#[test]
fn a_batch_that_loses_one_of_its_names_loses_all_of_them() {
    let mut story = TableScript::new();
    let whole = story.ask(ANN, batch(&["x", "y", "z"]));
    let waiter = story.locks(BOB, "x");
    let entry = LockRequest {
        want: lock("z"),
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    let (late, early) = ((ProcessId(CYD), RequestId(90)), (ProcessId(DAN), RequestId(91)));
    assert_eq!(
        story.table.enter_reported(early, entry.clone(), token(0), NOW),
        [early],
        "z itself was granted with token 3"
    );
    assert_eq!(story.table.enter_reported(late, entry, token(9), NOW), [whole]);
    assert_eq!(story.grants(), [waiter]);
}

#[test]
fn a_departed_process_leaves_neither_holds_nor_waits() {
    let mut story = TableScript::new();
    for process in [ANN, BOB, CYD] {
        for want in [lock("x"), batch(&["x", "y"]), lock(&process.to_string()), Want::Suspension] {
            let _ = story.ask_as(process, 0, want);
        }
    }
    for process in [ANN, BOB, CYD] {
        story.table.end_all(ProcessId(process));
        story.table.check();
    }
    assert_eq!(story.table.forgetful(), Table::new(Epoch(token(0))));
}

#[test]
fn a_crashed_holder_that_also_waits_is_followed_by_the_next_living_one() {
    let mut story = TableScript::new();
    story.locks(BOB, "x");
    story.locks(BOB, "x");
    let living = story.locks(CYD, "x");
    story.table.end_all(ProcessId(BOB));
    assert_eq!(story.grants(), [living]);
}

#[test]
fn a_batch_holds_all_its_names_or_none() {
    let mut story = TableScript::new();
    let y = story.locks(ANN, "y");
    let pair = story.ask(BOB, batch(&["x", "y"]));
    assert!(story.waits(pair));
    assert!(story.table.answer(ProcessId(BOB), &Query::Held(None), NOW) == held(&[("y", y, 1)]));
    assert_eq!(story.release(y), [pair]);
    assert!(
        story.table.answer(ProcessId(BOB), &Query::Held(None), NOW)
            == held(&[("x", pair, 2), ("y", pair, 3)])
    );
    assert_eq!(story.try_as(CYD, batch(&["w", "y"])), Err(Refusal::Held(info(Some("y"), pair, 3))));
}

fn info(text: Option<&str>, (process, request): RequestKey, number: u32) -> HolderInfo {
    HolderInfo {
        name: text.map(name),
        process,
        request,
        // The owner that `ask` sets.
        owner: process.0 as u64,
        token: token(number),
        mode: text.map_or(Mode::Suspension, |_| Mode::Lock),
        revocable: false,
        metadata: Metadata::default(),
        held_for: Duration::ZERO,
    }
}

fn held(holders: &[(&str, RequestKey, u32)]) -> QueryReply {
    let holders =
        holders.iter().map(|&(text, key, number)| info(Some(text), key, number)).collect();
    QueryReply::Held { holders, last: true }
}

#[test]
fn batches_that_cross_are_served_one_after_the_other() {
    let mut story = TableScript::new();
    let [x, y] = [story.locks(ANN, "x"), story.locks(BOB, "y")];
    let first = story.ask(CYD, batch(&["y", "x"]));
    let second = story.ask(DAN, batch(&["x", "y"]));
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(y), [first]);
    assert_eq!(story.release(first), [second]);
}

#[test]
fn a_batch_that_gives_up_lets_those_behind_it_go() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let pair = story.ask(BOB, batch(&["x", "y"]));
    let behind = story.locks(CYD, "y");
    assert_eq!(story.release(pair), [behind]);
}

#[test]
fn a_refused_upgrade_leaves_nothing() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.locks(BOB, "y");
    story.suspends(ANN);
    let before = story.table.clone();
    assert_eq!(story.ask_as(BOB, BOB as u64, Want::Suspension), Err(Refusal::Deadlock));
    assert_eq!(story.table, before);
}

#[test]
fn no_ticket_is_dealt_twice_after_recovery() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    for _ in 0..3 {
        story.suspends(BOB);
        story.locks(ANN, "x");
        story.locks(CYD, "x");
        story.recover(0);
    }
    story.suspends(ANN);
    story.recover(0);
    story.suspends(ANN);
    story.recover(5);
    story.suspends(ANN);
    story.locks(ANN, "x");
    let tickets: Vec<_> =
        story.table.export(NOW).1.into_iter().map(|(_, wait)| wait.ticket).collect();
    assert_eq!(tickets.iter().collect::<BTreeSet<_>>().len(), tickets.len());
}

#[test]
fn numbers_do_not_run_out() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.table.arrivals = (5 << 32) + (1 << 30) - 2;
    let [last, first] = [story.locks(BOB, "x"), story.locks(BOB, "x")];
    let ticket = |story: &TableScript, key| match story.table.entry_status(key) {
        Some(EntryStatus::Waits(ticket)) => ticket.number,
        other => panic!("it waits, and has no ticket: {other:?}"),
    };
    assert_eq!((ticket(&story, last), ticket(&story, first)), ((5 << 32) + (1 << 30) - 1, 6 << 32));

    // In the last block there is no more room to pass; everything else still works.
    story.table.arrivals = ((1 << 31) << 32) - 1;
    let suspension = story.suspends(CYD);
    assert_eq!(ticket(&story, suspension), (1 << 31) << 32);
    let late = story.locks(ANN, "y");
    assert_eq!(ticket(&story, late), ((1 << 31) << 32) + 1);

    // A block has as many positions for passing requests.
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.suspends(CYD);
    story.table.passes = (1 << 30) - 2;
    let [last, behind] = [story.locks(ANN, "x"), story.locks(ANN, "x")];
    assert_eq!(ticket(&story, last), (1 << 31) - 1);
    assert!(ticket(&story, behind) > POSITION, "it stands behind the suspension");
}

#[test]
fn shares_are_granted_together_and_none_overtakes_a_lock() {
    let mut story = TableScript::new();
    let holder = story.locks(ANN, "x");
    let readers = [story.ask(BOB, share("x")), story.ask(CYD, share("x"))];
    let writer = story.locks(DAN, "x");
    let late = story.ask(ANN, share("x"));
    assert_eq!(story.try_as(BOB, share("x")), Err(Refusal::Held(info(Some("x"), holder, 1))));
    assert_eq!(story.release(holder), readers);
    assert_eq!(story.try_as(ANN, share("x")), Err(Refusal::Waited(Some(name("x")))));
    assert_eq!(
        (story.position(writer), story.position(late)),
        (Some((0, 2, None)), Some((1, 0, None)))
    );
    assert_eq!(story.release(readers[1]), []);
    assert_eq!(story.release(readers[0]), [writer]);
    assert_eq!(story.release(writer), [late]);
    assert_eq!(story.release(late), []);
    assert_eq!(story.table.forgetful(), Table::new(Epoch(token(0))));
}

#[test]
fn a_share_in_front_of_others_that_gives_up_lets_them_go_on() {
    let mut story = TableScript::new();
    let reader = story.ask(ANN, share("x"));
    let writer = story.locks(BOB, "x");
    let behind = story.ask(CYD, share("x"));
    assert_eq!(story.release(writer), [behind]);
    assert!(story.holds(reader) && story.holds(behind));
}

#[test]
fn a_lock_that_becomes_a_share_grants_the_shares_at_the_head_of_the_queue() {
    let mut story = TableScript::new();
    let (writer, owner) = (story.locks(ANN, "x"), story.ask(BOB, share("x")));
    let next = story.locks(CYD, "x");
    story.table.reduce(writer, &share("y"), token(1));
    story.table.reduce(next, &share("x"), token(2));
    story.table.check();
    assert_eq!(
        (story.grants(), story.table.others_beside(writer)),
        (vec![], None),
        "that was not a share of its own"
    );
    story.table.reduce(writer, &share("x"), token(1));
    story.table.check();
    assert_eq!(story.grants(), [owner]);
    assert_eq!(story.table.entry_status(writer), Some(EntryStatus::Holds(token(1))));
    assert_eq!(story.table.others_beside(writer), Some(1));
    story.release(owner);
    story.table.upgrade(writer, token(8));
    story.table.reduce(writer, &share("x"), token(1));
    story.table.check();
    assert_eq!(
        story.table.entry_status(writer),
        Some(EntryStatus::Holds(token(1))),
        "it never heard of the other"
    );
    story.table.upgrade(writer, token(9));
    story.table.check();
    assert_eq!(story.table.entry_status(writer), Some(EntryStatus::Holds(token(9))));
    assert_eq!(story.try_as(BOB, share("x")), Err(Refusal::Held(info(Some("x"), writer, 9))));
    assert_eq!(story.release(writer), [next]);
}

#[test]
fn of_claims_that_exclude_each_other_the_higher_token_wins() {
    let key = |n: u32| (ProcessId(n.into()), RequestId(n.into()));
    let enter_reported = |table: &mut Table, want: Want, n: u32| {
        let entry = LockRequest {
            want,
            owner: OwnerId(0),
            revocable: false,
            metadata: Metadata::default(),
        };
        let losers = table.enter_reported(key(n), entry, token(n), NOW);
        table.check();
        losers
    };
    let mut table = Table::new(Epoch(token(0)));
    assert_eq!(enter_reported(&mut table, share("x"), 10), []);
    assert_eq!(enter_reported(&mut table, share("x"), 12), []);
    assert_eq!(
        enter_reported(&mut table, lock("x"), 11),
        [key(11)],
        "one of the shares is younger"
    );
    assert_eq!(enter_reported(&mut table, lock("x"), 20), [key(10), key(12)]);
    assert_eq!(enter_reported(&mut table, share("x"), 15), [key(15)]);
    assert_eq!(enter_reported(&mut table, share("x"), 21), [key(20)]);
    assert_eq!(enter_reported(&mut table, batch(&["w", "x"]), 30), [key(21)]);

    // A request that is reported as a hold no longer waits, whether the hold wins or not.
    let mut table = Table::new(Epoch(token(0)));
    let entry = |want| LockRequest {
        want,
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    for (n, want) in [(10, lock("x")), (11, Want::Suspension), (12, lock("y"))] {
        let ticket = Ticket { epoch: Epoch(token(0)), number: n.into() };
        table.wait(key(n), entry(want), ticket, NOW);
    }
    assert_eq!(enter_reported(&mut table, lock("x"), 20), []);
    assert_eq!(enter_reported(&mut table, Want::Suspension, 21), []);
    assert_eq!(enter_reported(&mut table, lock("x"), 10), [key(10)]);
    assert_eq!(enter_reported(&mut table, Want::Suspension, 11), [key(11)]);
    assert_eq!(enter_reported(&mut table, lock("y"), 12), []);
    assert_eq!((table.waiting().count(), table.held().count()), (0, 2));

    let mut table = Table::new(Epoch(token(0)));
    assert_eq!(enter_reported(&mut table, limit("x", 1), 1), []);
    assert_eq!(enter_reported(&mut table, permits("x", 3), 10), [], "at any limit");
    assert_eq!(enter_reported(&mut table, permits("x", 3), 13), []);
    assert_eq!(table.held().count(), 2);
}

/// All kinds of requests at random. After each step the table equals one that is computed anew. No
/// hold exists beside one that excludes it, and no more permits are granted than exist. No request
/// that could be granted is left.
#[test]
fn random_requests_hold_nothing_beside_a_hold_that_excludes_it() {
    for seed in 1..=40_u64 {
        let mut below = draws(seed);
        let mut story = TableScript::new();
        let mut keys: Vec<RequestKey> = Vec::new();
        for step in 0..300 {
            story.act_at_random(&mut keys, &mut below, step);
            story.table.check();
            let before = ["x", "y"].map(|text| in_use(&story.table, text));
            let granted = story.grants();
            assert!(story.table.next().is_none());
            for (text, before) in ["x", "y"].into_iter().zip(before) {
                let after = in_use(&story.table, text);
                let limit = u64::from(story.table.limit(&name(text)));
                assert!(
                    after <= before || after <= limit,
                    "{after} of {limit} permits after {granted:?}"
                );
            }
            if below(20) == 0 {
                story.recover(1);
            }
        }
        for key in keys {
            story.release(key);
        }
        assert_eq!(
            story.table.forgetful().renew(Epoch(token(0))),
            Table::new(Epoch(token(0))),
            "seed {seed}"
        );
    }
}

/// The number of permits held. Fails if permits, shares and a lock are held beside each other.
fn in_use(table: &Table, text: &str) -> u64 {
    let holders = table.held().filter(|(of, ..)| **of == name(text));
    let modes: Vec<Mode> = holders
        .filter_map(|(_, process, id, _)| Some(table.held_by((process, id))?.mode()))
        .collect();
    let is_of = |kind: fn(&Mode) -> bool| modes.iter().all(kind);
    let alone = modes.len() <= 1;
    assert!(
        alone
            || is_of(|mode| *mode == Mode::Share)
            || is_of(|mode| matches!(mode, Mode::Permits(_))),
        "{modes:?}"
    );
    modes
        .iter()
        .map(|mode| if let Mode::Permits(count) = mode { u64::from(*count) } else { 0 })
        .sum()
}

#[test]
fn waits_are_transferred_in_the_order_of_their_tickets() {
    let mut story = TableScript::new();
    story.locks(BOB, "x");
    let waits = [DAN, ANN, CYD, ANN].map(|process| story.locks(process, "x"));
    let exported: Vec<RequestKey> =
        story.table.export(NOW).1.iter().map(|(process, wait)| (*process, wait.request)).collect();
    assert_eq!(exported, waits);
}

/// The process ids begin with the same 32 bits, like those of one in four billion pairs of members.
/// The requests have the same number.
#[test]
fn holds_of_members_with_similar_ids_are_told_apart() {
    let mut table = Table::new(Epoch(token(0)));
    let request = RequestId(1);
    let wants = [limit("x", 1), lock("x"), batch(&["y", "z"]), share("w")];
    for (process, want) in [ANN, BOB, CYD, DAN].into_iter().zip(wants) {
        let entry = LockRequest {
            want,
            owner: OwnerId(0),
            revocable: false,
            metadata: Metadata::default(),
        };
        table.enter_reported((ProcessId(process), request), entry, token(2 * process as u32), NOW);
    }
    let far = ProcessId(BOB | 1 << 127);
    let entry = LockRequest {
        want: lock("v"),
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    table.enter_reported((far, request), entry, token(20), NOW);
    let held: Vec<_> =
        table.held().map(|(name, process, ..)| (name.to_string(), process)).collect();
    let expected = [("v", far.0), ("w", DAN), ("x", BOB), ("y", CYD), ("z", CYD)];
    assert_eq!(held, expected.map(|(name, process)| (name.to_owned(), ProcessId(process))));
}

/// Each held lock has one of each of these, and the tree of held names has room for half as many
/// again.
#[test]
fn a_held_lock_takes_little_memory() {
    assert_eq!((size_of::<TableRequest>(), size_of::<Occupancy>()), (80, 16));
}
