//! The rules one by one, then all of them against a model that knows no shortcuts.

use super::*;
use crate::protocol::chance::draws;
use crate::protocol::content::LastWrite;
use crate::protocol::id::{Batch, Metadata, Mode, OpenRequest, Permits, Slot};
use crate::protocol::message::{HolderInfo, LockRequest, Query, QueryReply, WaiterInfo};
use crate::protocol::visit_count::touched;
use std::time::Duration;

const NOW: Time = Time::from_nanos(5_000_000_000);

/// The members of the stories. Each is one owner too, unless said otherwise.
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

/// To have an object open that says how many permits there are.
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

    /// Asks as a grantor would: granted if free, queued otherwise. Grants to others are not looked
    /// for.
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
                self.table.queue(key, entry)?;
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

    /// Ends a request, and grants all that can be granted then.
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

    /// Another grantor's table, made of the members' reports, or of this grantor's own parts.
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
                table.claim(
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
            );
            table.check();
        }
        assert_eq!(table.export(NOW), self.table.export(NOW));
        table.drop_unopened();
        self.table = table;
    }

    /// How many requests go first, how many hold the names that it wants, and the process that
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
    /// Works out anew everything that is kept in more than one way.
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
            if let TableRequestState::Waits { ticket, missing } = state {
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
            bare.stand(key, entry.clone(), ticket);
        }
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
            assert_eq!(table.claim(key(first), entry.clone(), token(first), NOW), []);
            assert_eq!(table.claim(key(first), entry.clone(), token(first), NOW), [], "said twice");
            assert_eq!(table.claim(key(second), entry, token(second), NOW), [key(10)]);
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
        story.table.claim(early, entry.clone(), token(0), NOW),
        [early],
        "z itself was granted with token 3"
    );
    assert_eq!(story.table.claim(late, entry, token(9), NOW), [whole]);
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
fn a_waiting_batch_keeps_its_position_at_each_name() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let pair = story.ask(BOB, batch(&["x", "y"]));
    assert_eq!(story.try_as(CYD, lock("y")), Err(Refusal::Waited(Some(name("y")))));
    assert_eq!(
        story.try_as(CYD, batch(&["a", "y"])),
        Err(Refusal::Waited(Some(name("y")))),
        "not a, for which no member waits"
    );
    let later = [story.locks(CYD, "y"), story.locks(CYD, "x")];
    assert_eq!(story.grants(), []);
    assert_eq!(story.release(x), [pair]);
    assert_eq!(story.release(pair), later);
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
fn a_suspension_waits_for_earlier_holds_and_later_requests_wait_for_it() {
    // Geode scenario 20.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let waiter = story.locks(BOB, "x");
    let suspension = story.suspends(CYD);
    let later = story.locks(DAN, "y");
    assert!(story.waits(later), "although no member holds y");
    assert_eq!(story.position(later), Some((1, 0, Some(ProcessId(CYD)))));
    assert_eq!(story.position(suspension), Some((1, 1, None)));
    let nested = story.locks(ANN, "z");
    assert!(story.holds(nested), "who holds already may take others");
    assert_eq!(story.release(nested), []);
    assert_eq!(story.release(x), [waiter]);
    assert_eq!(story.release(waiter), [suspension]);
    let own = story.locks(CYD, "y");
    assert!(story.holds(own), "who suspended may lock");
    assert_eq!(story.release(suspension), [], "later still waits for y");
    assert_eq!(story.release(own), [later]);
}

#[test]
fn a_holder_suspends_as_soon_as_only_its_own_locks_are_left() {
    // Geode scenario 21, defect P1.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let y = story.locks(BOB, "y");
    let upgrade = story.suspends(ANN);
    assert_eq!(story.release(y), [upgrade]);
    assert!(story.holds(x));
    assert_eq!(story.try_as(BOB, lock("y")), Err(Refusal::Held(info(None, upgrade, 3))));
}

#[test]
fn a_holder_suspends_before_the_waiters_for_its_own_lock() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let y = story.locks(BOB, "y");
    let for_x = story.locks(CYD, "x");
    let pair = story.ask(CYD, batch(&["x", "z"]));
    let behind = story.locks(DAN, "z");
    let for_y = story.locks(DAN, "y");
    let upgrade = story.suspends(ANN);
    assert_eq!(story.release(y), [for_y], "it was there before");
    assert_eq!(
        story.release(for_y),
        [upgrade],
        "the others wait for x, and its holder for the suspension"
    );
    assert_eq!(story.release(x), [], "no other member holds anything while it is suspended");
    assert_eq!(story.release(upgrade), [for_x]);
    assert_eq!(story.release(for_x), [pair]);
    assert_eq!(story.release(pair), [behind]);
}

#[test]
fn a_holder_that_suspends_passes_the_suspension_that_waits_for_it() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let waiting = story.suspends(BOB);
    let upgrade = story.suspends(ANN);
    assert!(story.holds(upgrade));
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(upgrade), [waiting]);
}

#[test]
fn two_holders_that_both_suspend_do_not_wait_for_each_other() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let y = story.locks(BOB, "y");
    let upgrade = story.suspends(ANN);
    assert_eq!(story.try_as(BOB, Want::Suspension), Err(Refusal::Deadlock));
    assert_eq!(story.ask_as(BOB, BOB as u64, Want::Suspension), Err(Refusal::Deadlock));
    let patient = story.suspends(CYD);
    assert!(story.waits(patient), "who holds nothing may wait");
    assert_eq!(story.release(y), [upgrade]);
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
fn a_holder_passes_a_suspension_but_not_the_waiters_for_the_name() {
    let mut story = TableScript::new();
    let [x, y] = [story.locks(ANN, "x"), story.locks(BOB, "y")];
    let early = story.locks(CYD, "y");
    let suspension = story.suspends(DAN);
    let late = story.locks(CYD, "y");
    let passer = story.locks(ANN, "y");
    assert_eq!(story.release(y), [early]);
    assert_eq!(story.release(early), [passer]);
    assert_eq!(story.release(passer), []);
    assert_eq!(story.release(x), [suspension]);
    assert_eq!(story.release(suspension), [late]);
}

#[test]
fn of_requests_that_passed_the_first_is_granted_first() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let y = story.locks(ANN, "y");
    story.suspends(DAN);
    let passers: Vec<RequestKey> = (0..3).map(|_| story.locks(ANN, "y")).collect();
    assert_eq!(story.release(y), [passers[0]]);
    assert_eq!(story.release(passers[0]), [passers[1]]);
    assert_eq!(story.release(passers[1]), [passers[2]]);

    let mut story = TableScript::new();
    let [.., z] =
        [(ANN, "x"), (DAN, "y"), (CYD, "z")].map(|(process, text)| story.locks(process, text));
    story.suspends(BOB);
    let [first, second] = [DAN, ANN].map(|process| story.locks(process, "z"));
    assert_eq!(story.release(z), [first], "whatever the numbers of the members are");
    assert_eq!(story.release(first), [second]);
}

#[test]
fn a_request_without_an_owner_is_the_whole_members() {
    let mut story = TableScript::new();
    let x = story.ask_as(ANN, 5, lock("x")).expect("free");
    let suspension = story.suspends(BOB);
    let anybody = story.ask_as(ANN, 0, lock("y")).expect("passes");
    assert!(story.holds(anybody), "its member holds x");
    let other = story.ask_as(ANN, 6, lock("z")).expect("waits");
    assert!(story.waits(other), "owner 6 holds nothing");
    let whole = story.ask_as(ANN, 0, Want::Suspension).expect("all holds are its member's");
    assert!(story.holds(whole));
    assert_eq!(story.release(whole), []);
    let part =
        story.ask_as(ANN, 5, Want::Suspension).expect("waits for y, of no owner in particular");
    assert!(story.waits(part));
    assert_eq!(story.release(anybody), [part]);
    assert_eq!(story.release(part), []);
    assert_eq!(story.release(x), [suspension]);
}

#[test]
fn a_member_whose_owners_both_suspend_is_told_so() {
    let mut story = TableScript::new();
    for (owner, text) in [(5, "x"), (6, "y")] {
        story.ask_as(ANN, owner, lock(text)).expect("free");
    }
    let first = story.ask_as(ANN, 5, Want::Suspension).expect("waits for y");
    assert_eq!(story.ask_as(ANN, 6, Want::Suspension), Err(Refusal::Deadlock));
    assert_eq!(story.ask_as(ANN, 0, Want::Suspension), Err(Refusal::Deadlock), "y is its, too");
    assert!(story.waits(first));

    let mut story = TableScript::new();
    story.ask_as(ANN, 5, lock("x")).expect("free");
    let y = story.locks(BOB, "y");
    let whole = story.ask_as(ANN, 0, Want::Suspension).expect("waits for y");
    let part =
        story.ask_as(ANN, 5, Want::Suspension).expect("the whole member does not wait for x");
    assert!(story.waits(part));
    assert_eq!(story.release(y), [part]);
    assert_eq!(story.release(part), [whole]);
}

#[test]
fn a_suspension_that_gives_up_lets_those_behind_it_go_and_the_holder_is_not_concerned() {
    // Geode scenario 22, defect P2.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let suspension = story.suspends(BOB);
    let behind = story.locks(CYD, "y");
    assert_eq!(story.release(suspension), [behind]);
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(behind), []);
    assert!(story.table.is_empty());
}

#[test]
fn a_suspension_is_granted_next_however_the_last_hold_ends() {
    // Geode scenario 23, defects P3 and P4: a hold that runs out or is released is one `end`; a
    // departure is all of them.
    for departs in [false, true] {
        let mut story = TableScript::new();
        let x = story.locks(ANN, "x");
        story.locks(ANN, "x");
        let suspension = story.suspends(BOB);
        let behind = story.locks(CYD, "y");
        if departs {
            story.table.end_all(ProcessId(ANN));
            assert_eq!(story.grants(), [suspension]);
        } else {
            let own = story.release(x);
            assert_eq!(story.release(own[0]), [suspension]);
        }
        story.table.end_all(ProcessId(BOB));
        assert_eq!(
            story.grants(),
            [behind],
            "and whatever ends the suspension, those behind it come next"
        );
    }
}

#[test]
fn a_suspender_that_departs_while_it_waits_lets_those_behind_it_go() {
    // Geode defect P4.
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.suspends(BOB);
    let behind = story.locks(CYD, "y");
    story.table.end_all(ProcessId(BOB));
    assert_eq!(story.grants(), [behind]);
}

#[test]
fn a_try_does_not_wait_for_a_suspension() {
    // Geode defect P7.
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let suspension = story.suspends(BOB);
    assert_eq!(story.try_as(CYD, lock("y")), Err(Refusal::Waited(None)));
    assert_eq!(story.try_as(CYD, lock("x")), Err(Refusal::Held(info(Some("x"), x, 1))));
    assert_eq!(story.try_as(CYD, Want::Suspension), Err(Refusal::Held(info(Some("x"), x, 1))));
    assert_eq!(story.try_as(ANN, lock("y")), Ok(()));
    assert_eq!(story.release(x), [suspension]);
    for want in [lock("y"), batch(&["x", "y"]), Want::Suspension] {
        assert_eq!(story.try_as(CYD, want), Err(Refusal::Held(info(None, suspension, 2))));
    }
    assert_eq!(story.try_as(BOB, lock("y")), Ok(()));
}

#[test]
fn a_suspension_and_a_lock_of_another_that_are_both_reported_are_both_kept() {
    // Geode defect P20: clocks lied.
    let mut story = TableScript::new();
    let suspension = story.suspends(ANN);
    let entry = |text| LockRequest {
        want: lock(text),
        owner: OwnerId(BOB as u64),
        revocable: false,
        metadata: Metadata::default(),
    };
    let x = (ProcessId(BOB), RequestId(90));
    assert_eq!(story.table.claim(x, entry("x"), token(9), NOW), []);
    story.table.check();
    assert!(story.holds(suspension) && story.holds(x));
    let late = story.locks(CYD, "y");
    assert!(story.waits(late));
    assert_eq!(story.release(suspension), [late]);
    assert_eq!(story.release(x), []);
    assert_eq!(story.release(late), []);
    assert!(story.table.is_empty());
}

#[test]
fn those_left_behind_by_one_suspension_do_not_lock_under_the_next() {
    let mut story = TableScript::new();
    let [x, y] = [story.ask_as(ANN, 5, lock("x")), story.ask_as(ANN, 6, lock("y"))]
        .map(|key| key.expect("free"));
    let whole = story.ask_as(ANN, 0, Want::Suspension).expect("all holds are its member's");
    let passer = story.ask_as(ANN, 6, lock("x")).expect("passes");
    assert!(story.holds(whole) && story.waits(passer));
    assert_eq!(story.release(whole), []);
    assert_eq!(story.release(y), []);
    let next = story.ask_as(ANN, 5, Want::Suspension).expect("only its own is held");
    assert!(story.holds(next));
    assert_eq!(story.release(x), [], "the service is suspended for others");
    let own = story.ask_as(ANN, 5, lock("x")).expect("passes");
    assert!(story.holds(own), "and not for its owner, who goes before those that were left");
    assert_eq!(story.release(own), []);
    assert_eq!(story.release(next), [passer]);
}

#[test]
fn the_line_survives_recovery_also_of_a_held_suspension() {
    let mut story = TableScript::new();
    let suspension = story.suspends(ANN);
    let y = story.locks(ANN, "y");
    let next = story.suspends(BOB);
    let late = story.ask(CYD, batch(&["x", "y"]));
    let passers = [story.locks(ANN, "y"), story.locks(ANN, "y")];
    story.recover(50);
    let third = story.locks(ANN, "y");
    assert_eq!(story.release(y), [passers[0]]);
    story.recover(60);
    assert_eq!(story.release(passers[0]), [passers[1]]);
    assert_eq!(story.release(suspension), []);
    assert_eq!(story.release(passers[1]), [third]);
    assert_eq!(story.release(third), [next]);
    assert_eq!(story.release(next), [late]);
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

    // With the last block the room to pass is over, but nothing else.
    story.table.arrivals = ((1 << 31) << 32) - 1;
    let suspension = story.suspends(CYD);
    assert_eq!(ticket(&story, suspension), (1 << 31) << 32);
    let late = story.locks(ANN, "y");
    assert_eq!(ticket(&story, late), ((1 << 31) << 32) + 1);

    // A block has as many places for those that pass.
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.suspends(CYD);
    story.table.passes = (1 << 30) - 2;
    let [last, behind] = [story.locks(ANN, "x"), story.locks(ANN, "x")];
    assert_eq!(ticket(&story, last), (1 << 31) - 1);
    assert!(ticket(&story, behind) > POSITION, "it stands behind the suspension");
}

#[test]
fn a_query_lists_holders_and_waiters_in_order() {
    let mut story = TableScript::new();
    let x = story.locks(ANN, "x");
    let waiters = [story.locks(BOB, "x"), story.suspends(CYD), story.locks(DAN, "x")];
    let seen = |story: &TableScript, at: &Query| story.table.answer(ProcessId(ANN), at, NOW);
    let waiter = |process: u128| WaiterInfo {
        process: ProcessId(process),
        mode: if process == CYD { Mode::Suspension } else { Mode::Lock },
        metadata: Metadata::default(),
    };
    let seen_lock = |holders, waiters| QueryReply::Lock {
        holders,
        more_holders: 0,
        permits: 0,
        content: None,
        openers: 0,
        waiters,
        more: 0,
    };
    let expected = seen_lock(vec![info(Some("x"), x, 1)], [BOB, CYD, DAN].map(waiter).into());
    assert_eq!(seen(&story, &Query::Lock(name("x"))), expected);
    let expected = seen_lock(Vec::new(), [CYD].map(waiter).into());
    assert_eq!(seen(&story, &Query::Suspension), expected);
    assert_eq!(
        seen(&story, &Query::Lock(name("idle"))),
        expected,
        "who comes last waits for it, too"
    );
    assert_eq!(story.position(waiters[0]), Some((0, 1, None)));
    assert_eq!(story.position(waiters[1]), Some((1, 1, None)));
    assert_eq!(story.position(waiters[2]), Some((2, 1, Some(ProcessId(CYD)))));
    assert_eq!(story.position(x), None);
    let later =
        story.table.answer(ProcessId(ANN), &Query::Held(None), NOW + Duration::from_secs(3));
    let QueryReply::Held { holders, last: true } = later else { panic!("{later:?}") };
    assert_eq!(holders[0].held_for, Duration::from_secs(3));
    let (status, is_end) = story.table.status(NOW, None, usize::MAX);
    assert!(is_end);
    assert_eq!(story.table.listed(), status.len());
    assert_eq!(
        status.iter().map(|lock| (lock.name.is_some(), lock.waiters)).collect::<Vec<_>>(),
        [(false, 1), (true, 2)]
    );
}

/// Suspensions count first, and looking into a queue counts as one.
#[test]
fn requests_before_a_position_are_counted_up_to_a_limit() {
    let mut story = TableScript::new();
    story.table.bounds.counted = 3;
    story.locks(ANN, "x");
    for process in [CYD, DAN] {
        story.suspends(process);
    }
    let waiters = [BOB; 5].map(|process| story.locks(process, "x"));
    assert_eq!(story.position(waiters[0]), Some((2, 1, Some(ProcessId(CYD)))));
    assert_eq!(story.position(waiters[4]), Some((3, 1, Some(ProcessId(CYD)))), "of 6");

    let mut story = TableScript::new();
    story.table.bounds.counted = 5;
    for text in ["x", "y", "z"] {
        for process in [ANN, BOB, CYD] {
            story.locks(process, text);
        }
    }
    let suspension = story.suspends(DAN);
    assert_eq!(story.position(suspension), Some((3, 3, None)), "of 6");

    let mut story = TableScript::new();
    story.suspends(ANN);
    let waiter = story.locks(BOB, "x");
    assert_eq!(
        story.position(waiter),
        Some((0, 1, Some(ProcessId(ANN)))),
        "the suspension has to end first"
    );
}

#[test]
fn a_status_is_told_in_pages() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    story.locks(BOB, "x");
    story.ask(DAN, limit("o", 1));
    let page = |story: &TableScript, after: Option<Option<&LockName>>, most: usize| {
        let (status, is_end) = story.table.status(NOW, after, most);
        (
            status
                .iter()
                .map(|lock| (lock.holders, lock.openers, lock.waiters))
                .collect::<Vec<_>>(),
            is_end,
        )
    };
    let [suspension, o, x] = [(0, 0, 1), (0, 1, 0), (1, 0, 1)];
    assert_eq!(page(&story, None, 2), (vec![o, x], true));
    story.suspends(CYD);
    assert_eq!(page(&story, None, 3), (vec![suspension, o, x], true));
    assert_eq!(page(&story, None, 2), (vec![suspension, o], false));
    assert_eq!(page(&story, Some(None), 2), (vec![o, x], true));
    assert_eq!(page(&story, Some(Some(&name("o"))), 2), (vec![x], true));

    let mut story = TableScript::new();
    story.suspends(CYD);
    assert_eq!(page(&story, None, 1), (vec![(1, 0, 0)], true));
    assert_eq!(page(&story, None, 0), (vec![], false));
    assert_eq!(page(&TableScript::new(), None, 0), (vec![], true));
}

#[test]
fn lists_are_told_in_pages() {
    let mut story = TableScript::new();
    for n in 0..300 {
        story.locks(ANN, &format!("{n:03}"));
        story.locks(if n % 2 == 0 { BOB } else { CYD }, "000");
    }
    story.suspends(DAN);
    let mut after = None;
    let mut names = Vec::new();
    loop {
        let QueryReply::Held { holders, last } =
            story.table.answer(ProcessId(ANN), &Query::Held(after), NOW)
        else {
            panic!()
        };
        assert!(holders.len() <= story.table.bounds.listed);
        names.extend(holders.into_iter().filter_map(|holder| holder.name));
        after = names.last().cloned();
        if last {
            break;
        }
    }
    assert_eq!(names, (0..300).map(|n| name(&format!("{n:03}"))).collect::<Vec<_>>());
    let QueryReply::Lock { waiters, more, .. } =
        story.table.answer(ProcessId(ANN), &Query::Lock(name("000")), NOW)
    else {
        panic!()
    };
    assert_eq!((waiters.len(), more), (256, 301 - 256));

    let mut after = None;
    let mut waiters = Vec::new();
    loop {
        let at = Query::Waiting(name("000"), after);
        let QueryReply::Waiting { waiters: page, last } =
            story.table.answer(ProcessId(ANN), &at, NOW)
        else {
            panic!()
        };
        assert!(page.len() <= story.table.bounds.listed);
        waiters.extend(page.into_iter().map(|waiter| waiter.process.0));
        after = last;
        if last.is_none() {
            break;
        }
    }
    let expected = (0..300).map(|n| if n % 2 == 0 { BOB } else { CYD }).chain([DAN]);
    assert_eq!(waiters, expected.collect::<Vec<_>>());
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
    story.table.narrow(writer, &share("y"), token(1));
    story.table.narrow(next, &share("x"), token(2));
    story.table.check();
    assert_eq!(
        (story.grants(), story.table.others_beside(writer)),
        (vec![], None),
        "that was no share of its own"
    );
    story.table.narrow(writer, &share("x"), token(1));
    story.table.check();
    assert_eq!(story.grants(), [owner]);
    assert_eq!(story.table.entry_status(writer), Some(EntryStatus::Holds(token(1))));
    assert_eq!(story.table.others_beside(writer), Some(1));
    story.release(owner);
    story.table.upgrade(writer, token(8));
    story.table.narrow(writer, &share("x"), token(1));
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
fn permits_are_granted_in_queue_order_up_to_the_limit() {
    let mut story = TableScript::new();
    assert_eq!(story.try_as(ANN, permits("x", 1)), Err(Refusal::NotOpen));
    let object = story.ask(ANN, limit("x", 4));
    assert_eq!(story.try_as(BOB, permits("x", 1)), Err(Refusal::NotOpen), "another has it open");
    assert_eq!(story.try_as(ANN, permits("x", 5)), Err(Refusal::Limit(4)));
    let three = story.ask(ANN, permits("x", 3));
    let two = story.ask(ANN, permits("x", 2));
    let one = story.ask(ANN, permits("x", 1));
    assert_eq!(story.grants(), [], "no request overtakes two");
    story.table.narrow(three, &permits("x", 4), token(2));
    story.table.check();
    assert_eq!(story.grants(), [], "no request gets more so");
    story.table.narrow(three, &permits("x", 1), token(2));
    story.table.check();
    assert_eq!(story.grants(), [two, one]);
    let in_use = |story: &TableScript| match story.table.answer(
        ProcessId(ANN),
        &Query::Lock(name("x")),
        NOW,
    ) {
        QueryReply::Lock { permits, .. } => permits,
        other => panic!("{other:?}"),
    };
    assert_eq!(in_use(&story), 4);
    let more = story.ask(ANN, permits("x", 2));
    story.table.write(ProcessId(ANN), &name("x"), limited(1), written(99, 50));
    story.table.check();
    assert_eq!(
        (story.release(three), story.release(two)),
        (vec![], vec![]),
        "there is one, and it is held"
    );
    story.table.write(ProcessId(ANN), &name("x"), limited(3), written(98, 51));
    story.table.check();
    assert_eq!(story.grants(), [more]);
    assert_eq!(story.table.held().count(), 2);
    story.release(object);
    assert!(story.table.content(&name("x")).is_none() && story.holds(one) && story.holds(more));
    assert_eq!((story.release(one), story.release(more)), (vec![], vec![]));
    assert_eq!(story.table.forgetful(), Table::new(Epoch(token(0))));
}

#[test]
fn an_object_is_opened_during_a_suspension_and_is_no_hold() {
    let mut story = TableScript::new();
    let suspended = story.suspends(ANN);
    let first = story.ask(BOB, limit("x", 1));
    let second = story.ask(CYD, limit("x", 2));
    assert!(story.holds(first) && story.holds(second));
    assert_eq!(
        story.table.content(&name("x")).map(|content| content.value.limit()),
        Some(1),
        "the first one's counts"
    );
    assert_eq!((story.table.load(), story.table.openers(&name("x")).count()), ((1, 0), 2));
    story.release(suspended);
    let again = story.suspends(DAN);
    assert!(story.holds(again), "an open object stands in no request's way");
    story.release(first);
    assert!(story.table.content(&name("x")).is_some());
    story.table.end_all(ProcessId(CYD));
    assert!(story.table.content(&name("x")).is_none());
}

#[test]
fn an_open_request_that_waits_is_granted_before_all_others() {
    let mut story = TableScript::new();
    story.locks(ANN, "x");
    let waiter = story.locks(BOB, "x");
    story.suspends(CYD);
    let key = (ProcessId(DAN), RequestId(99));
    let entry = LockRequest {
        want: limit("x", 1),
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    story.table.queue(key, entry).expect("it waits for no request");
    story.table.check();
    assert_eq!(story.grants(), [key]);
    assert!(story.waits(waiter));
}

#[test]
fn of_claims_that_exclude_each_other_the_higher_token_wins() {
    let key = |n: u32| (ProcessId(n.into()), RequestId(n.into()));
    let claim = |table: &mut Table, want: Want, n: u32| {
        let entry = LockRequest {
            want,
            owner: OwnerId(0),
            revocable: false,
            metadata: Metadata::default(),
        };
        let losers = table.claim(key(n), entry, token(n), NOW);
        table.check();
        losers
    };
    let mut table = Table::new(Epoch(token(0)));
    assert_eq!(claim(&mut table, share("x"), 10), []);
    assert_eq!(claim(&mut table, share("x"), 12), []);
    assert_eq!(claim(&mut table, lock("x"), 11), [key(11)], "one of the shares is younger");
    assert_eq!(claim(&mut table, lock("x"), 20), [key(10), key(12)]);
    assert_eq!(claim(&mut table, share("x"), 15), [key(15)]);
    assert_eq!(claim(&mut table, share("x"), 21), [key(20)]);
    assert_eq!(claim(&mut table, batch(&["w", "x"]), 30), [key(21)]);

    // A request waits no more when it is reported as a hold, whether it wins or not.
    let mut table = Table::new(Epoch(token(0)));
    let entry = |want| LockRequest {
        want,
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    for (n, want) in [(10, lock("x")), (11, Want::Suspension), (12, lock("y"))] {
        let ticket = Ticket { epoch: Epoch(token(0)), number: n.into() };
        table.wait(key(n), entry(want), ticket);
    }
    assert_eq!(claim(&mut table, lock("x"), 20), []);
    assert_eq!(claim(&mut table, Want::Suspension, 21), []);
    assert_eq!(claim(&mut table, lock("x"), 10), [key(10)]);
    assert_eq!(claim(&mut table, Want::Suspension, 11), [key(11)]);
    assert_eq!(claim(&mut table, lock("y"), 12), []);
    assert_eq!((table.waiting().count(), table.held().count()), (0, 2));

    let mut table = Table::new(Epoch(token(0)));
    assert_eq!(claim(&mut table, limit("x", 1), 1), []);
    assert_eq!(claim(&mut table, permits("x", 3), 10), [], "whatever the limit");
    assert_eq!(claim(&mut table, permits("x", 3), 13), []);
    assert_eq!(table.held().count(), 2);
}

#[test]
fn an_object_outlives_its_first_opener_until_all_members_have_reported() {
    let content = |number, text: &str| Content {
        value: Value::new(text.as_bytes()).expect("a short value"),
        version: token(number),
        maybe_stale: false,
        writes: BTreeMap::new(),
    };
    let open = || LockRequest {
        want: Want::Open(OpenRequest::new(name("x"), Value::new(b"first").expect("a short value"))),
        owner: OwnerId(0),
        revocable: true,
        metadata: Metadata::default(),
    };
    let [ann, bob] = [ANN, BOB].map(|process| (ProcessId(process), RequestId(1)));
    let mut table = Table::new(Epoch(token(0)));
    table.adopt(name("x"), content(9, "last"));
    table.claim(ann, open(), token(2), NOW);
    table.end_all(ann.0);
    table.claim(bob, open(), token(3), NOW);
    table.drop_unopened();
    assert_eq!(table.content(&name("x")), Some(&content(9, "last")));
    table.end_all(bob.0);
    assert_eq!(
        table.content(&name("x")),
        None,
        "no member has it open, and no member is left to tell of it"
    );

    let mut table = Table::new(Epoch(token(0)));
    table.claim(ann, open(), token(2), NOW);
    table.adopt(name("x"), content(9, "last"));
    table.end_all(ann.0);
    assert_eq!(
        table.content(&name("x")),
        Some(&content(9, "last")),
        "who told of it may have it open"
    );
}

/// Several members report one object: the highest version stays, and the object is there while one
/// of them has it open.
#[test]
fn the_highest_version_of_an_object_stays() {
    let content =
        |n: u32| Content {
            value: limited(n),
            version: token(n),
            maybe_stale: false,
            writes: BTreeMap::from([ANN, BOB].map(|process| {
                (ProcessId(process), LastWrite { version: token(n), ..written(9, 0) })
            })),
        };
    for versions in [[5, 7, 6], [7, 6, 5], [5, 6, 7]] {
        let mut table = Table::new(Epoch(token(0)));
        for version in versions {
            table.adopt(name("x"), content(version));
            table.adopt(name("y"), content(version));
        }
        let entry = LockRequest {
            want: limit("x", 1),
            owner: OwnerId(0),
            revocable: false,
            metadata: Metadata::default(),
        };
        table.claim((ProcessId(ANN), RequestId(1)), entry, token(3), NOW);
        table.drop_unopened();
        assert!(table.content(&name("y")).is_none(), "no member has it open");
        let kept = table.content(&name("x")).expect("it is open");
        assert_eq!(
            (kept.version, kept.writes.keys().collect::<Vec<_>>()),
            (token(7), vec![&ProcessId(ANN)])
        );
    }
}

/// All kinds of requests at random. After each step the table is the same as one that is worked out
/// anew. Nothing is held beside a hold that excludes it. No more permits are granted than there
/// are, and no request that could be granted is left.
#[test]
fn random_requests_hold_nothing_beside_a_hold_that_excludes_it() {
    for seed in 1..=40_u64 {
        let mut below = draws(seed);
        let mut story = TableScript::new();
        let mut keys: Vec<RequestKey> = Vec::new();
        for step in 0..300 {
            let process = u128::from(1 + below(4));
            let text = ["x", "y"][below(2) as usize];
            let key = keys.get(below(1 + keys.len() as u64) as usize).copied();
            match (below(14), key) {
                (0..=3, Some(key)) => {
                    story.release(key);
                }
                (4, Some(key)) => {
                    let to = if below(2) == 0 { share(text) } else { permits(text, 1) };
                    if let Some(EntryStatus::Holds(token)) = story.table.entry_status(key) {
                        story.table.narrow(key, &to, token);
                    }
                }
                (5, Some(key)) if story.table.others_beside(key) == Some(0) => {
                    story.tokens += 1;
                    story.table.upgrade(key, token(story.tokens));
                }
                (6, _) => {
                    story.tokens += 1;
                    let write =
                        LastWrite { version: token(story.tokens), ..written(1_000_000 + step, 0) };
                    story.table.write(
                        ProcessId(process),
                        &name(text),
                        limited(below(5) as u32),
                        write,
                    );
                }
                (7, _) => keys.push(story.ask(process, limit(text, below(5) as u32))),
                (8, _) => keys.extend(story.ask_as(process, below(3), Want::Suspension)),
                (9, _) => keys.push(story.ask(process, batch(&["x", "y"]))),
                (10, _) => keys.push(story.locks(process, text)),
                (11, _) => keys.push(story.ask(process, share(text))),
                (_, _) if story.table.is_open(&name(text), ProcessId(process)) => {
                    keys.push(story.ask(process, permits(text, 1 + below(3) as u32)));
                }
                _ => {}
            }
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

/// How many permits are held. Fails if they, shares and a lock are held beside each other.
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
fn the_member_with_most_is_known() {
    let mut story = TableScript::new();
    story.ask(ANN, batch(&["x", "y"]));
    story.locks(ANN, "z");
    story.locks(BOB, "z");
    let shares = BTreeMap::from([(ProcessId(ANN), (2, 0)), (ProcessId(BOB), (0, 1))]);
    assert_eq!(story.table.shares(), shares);
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

/// A share was granted in an epoch that was over for the member, which held
/// another lock. A later request of the member in that epoch had a position, and was served first.
#[test]
fn a_holder_keeps_its_own_order_unless_a_suspension_is_between() {
    let epoch = Epoch(token(1));
    let mut table = Table::new(epoch);
    let entry = |want| LockRequest {
        want,
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    table.claim((ProcessId(ANN), RequestId(1)), entry(lock("held")), token(3), NOW);
    let wait = |process, request, want, number: Option<u64>| {
        let ticket = number.map(|number| Ticket { epoch, number });
        let metadata = Metadata::default();
        let report = WaitReport {
            request: RequestId(request),
            ticket,
            lock: LockRequest { want, owner: OwnerId(0), revocable: false, metadata },
        };
        (ProcessId(process), report)
    };
    let granted = wait(ANN, 2, share("x"), None);
    let later = wait(ANN, 3, lock("x"), Some(21));
    let mut waits = vec![granted.clone(), later.clone()];
    assert_eq!(table.keep_own_order(&mut waits), BTreeSet::from([(ProcessId(ANN), RequestId(2))]));
    assert_eq!(waits[0].1.ticket, later.1.ticket);

    let mut waits = vec![granted, later, wait(BOB, 1, Want::Suspension, Some(20))];
    assert!(table.keep_own_order(&mut waits).is_empty(), "it has to pass the suspension");

    let [granted, later] = [wait(CYD, 2, share("x"), None), wait(CYD, 3, lock("x"), Some(21))];
    let mut waits = vec![granted, later, wait(BOB, 1, Want::Suspension, Some(20))];
    assert_eq!(
        table.keep_own_order(&mut waits).len(),
        1,
        "who holds nothing waits behind the suspension"
    );
}

/// The process ids begin with the same 32 bits, as those of one in four billion pairs of members
/// do, and the requests have the same number.
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
        table.claim((ProcessId(process), request), entry, token(2 * process as u32), NOW);
    }
    let far = ProcessId(BOB | 1 << 127);
    let entry = LockRequest {
        want: lock("v"),
        owner: OwnerId(0),
        revocable: false,
        metadata: Metadata::default(),
    };
    table.claim((far, request), entry, token(20), NOW);
    let held: Vec<_> =
        table.held().map(|(name, process, ..)| (name.to_string(), process)).collect();
    let expected = [("v", far.0), ("w", DAN), ("x", BOB), ("y", CYD), ("z", CYD)];
    assert_eq!(held, expected.map(|(name, process)| (name.to_owned(), ProcessId(process))));
}

/// Each held lock has one of each, and the tree of held names has room for half as many again.
#[test]
fn a_held_lock_takes_little_memory() {
    assert_eq!((size_of::<TableRequest>(), size_of::<Occupancy>()), (80, 16));
}

/// A member that holds nearly everything tries to suspend the service.
#[test]
fn a_refused_suspension_names_another_holder_without_a_look_at_all_own_holds() {
    let mut table = Table::new(Epoch(token(0)));
    let spec = |want, owner| LockRequest {
        want,
        owner: OwnerId(owner),
        revocable: false,
        metadata: Metadata::default(),
    };
    let held = |number: u64| lock(&format!("n{number}"));
    for number in 0..50_000 {
        table.hold(
            (ProcessId(ANN), RequestId(number)),
            spec(held(number), 5),
            token(number as u32 + 1),
            NOW,
        );
    }
    let refused = |table: &Table| {
        let mut refused = Ok(());
        let suspends = spec(Want::Suspension, 5);
        let touched = touched(|| refused = table.is_free(ProcessId(ANN), &suspends, NOW));
        assert!(touched < 6 * SOUGHT, "{touched} looks");
        refused
    };
    assert_eq!(refused(&table), Ok(()), "nothing else is held");
    // Of another owner of the same member.
    table.hold((ProcessId(ANN), RequestId(50_000)), spec(lock("y"), 0), token(60_000), NOW);
    assert_eq!(
        refused(&table),
        Err(Refusal::Waited(None)),
        "it is not found, and not granted either"
    );
    let (key, small) = ((ProcessId(BOB), RequestId(1)), (ProcessId(BOB), RequestId(2)));
    table.hold(key, spec(lock("z"), 0), token(60_001), NOW);
    assert_eq!(refused(&table), Err(Refusal::Held(info(Some("z"), key, 60_001))));
    // That of the first name, where it is among the first.
    table.hold(small, spec(lock("a"), 0), token(60_002), NOW);
    assert_eq!(refused(&table), Err(Refusal::Held(info(Some("a"), small, 60_002))));
}
