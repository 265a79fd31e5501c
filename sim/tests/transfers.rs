//! Stories of tables that change hands: young turks, successors, and services that are destroyed at
//! one member.

use elderlock::protocol::{GrantorState, LostReason, Outcome, Timing};
use elderlock_sim::World;
use elderlock_sim::history::Ask;
use elderlock_sim::invariants::last_young_turk_wins;
use elderlock_sim::liveness::Demand;
use elderlock_sim::rule::RuleId;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

/// Members, oldest first. The second is the grantor of "s" and holds nothing. It has been grantor
/// long enough to be followed at once.
fn with_grantor(seed: u64, members: usize) -> (World, Vec<usize>) {
    let mut w = World::new(seed).members(members);
    w.settle();
    let order = w.in_view();
    let first = w.hold_lock(order[1], "s", "first");
    w.release(first);
    assert_eq!(w.grantor("s"), order[1]);
    w.run_for(Timing::fast().retry * 3);
    (w, order)
}

/// The state of the grantor of the service at that site.
fn granting(w: &World, site: usize) -> Option<GrantorState> {
    let status = w.status(site)?;
    status.services.iter().find(|of| of.service.as_str() == "s").and_then(|of| of.granting)
}

#[track_caller]
fn answered(w: &mut World, ask: Ask) -> Outcome {
    w.expect("it is answered", |w| w.is_answered(ask));
    w.outcome(ask).cloned().expect("it was answered")
}

/// The fate of a party.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartyFate {
    /// It is killed.
    Dies,
    /// It says goodbye.
    Leaves,
    /// It is cut off from all others, in both directions.
    CutOff,
    /// It and this member no longer reach each other.
    CutFrom(usize),
}

/// How a party may end. Where it is cut from one other only, nothing ends.
const ENDS: [PartyFate; 3] = [PartyFate::Dies, PartyFate::Leaves, PartyFate::CutOff];

/// Runs a scenario again and again, in which a party meets its fate a tenth of a millisecond later
/// each time. `begin` comes before, `end` after; parties are named by their age. The fate came in
/// every one of these states of the member at `watched` (no grantor yet, waiting for the table,
/// acting ...).
#[track_caller]
fn at_any_moment<T>(
    (seed, members, moments): (u64, usize, u64),
    (victim, fate): (usize, PartyFate),
    (watched, states): (usize, &[Option<GrantorState>]),
    begin: impl Fn(&mut World, &[usize]) -> T,
    end: impl Fn(&mut World, &[usize], T),
) {
    let mut met = Vec::new();
    for at in 0..moments {
        let (mut w, order) = with_grantor(seed, members);
        let begun = begin(&mut w, &order);
        w.run_for(Duration::from_micros(at * 100));
        met.push(granting(&w, order[watched]));
        match fate {
            PartyFate::Dies => w.crash(order[victim]),
            PartyFate::Leaves => w.leave(order[victim]),
            PartyFate::CutOff => w.isolate(order[victim]),
            PartyFate::CutFrom(other) => w.cut(order[victim], order[other]),
        }
        end(&mut w, &order, begun);
        if fate == PartyFate::Leaves {
            w.expect("it has left", |w| !w.is_alive(order[victim]));
        }
    }
    for state in states {
        assert!(met.contains(state), "never {state:?}: {met:?}");
    }
}

/// It was hit before it heard of its naming, while it waited for the table, and when it acted.
const A_TURK: &[Option<GrantorState>] =
    &[None, Some(GrantorState::Receiving), Some(GrantorState::Acting)];

/// It was hit while it waited for the table, and when it acted.
const A_LAST: &[Option<GrantorState>] =
    &[Some(GrantorState::Receiving), Some(GrantorState::Acting)];

/// Gives back all that is held, one after the other, until these are all served. Returns the order.
#[track_caller]
fn serve(w: &mut World, waiting: &[Ask], mut held: Ask) -> Vec<Ask> {
    let mut order = Vec::new();
    while order.len() < waiting.len() {
        w.release(held);
        w.expect("the next is served", |w| {
            waiting.iter().any(|ask| w.is_granted(*ask) && !order.contains(ask))
        });
        held = *waiting
            .iter()
            .find(|ask| w.is_granted(**ask) && !order.contains(ask))
            .expect("one was served");
        order.push(held);
    }
    w.release(held);
    order
}

/// The seed's transfer to a young turk: holds, ordered waiters, and their tokens and positions
/// go with the table.
#[test]
fn a_young_turk_takes_the_table_over_as_it_is() {
    let (mut w, order) = with_grantor(1, 4);
    let (grantor, turk) = (order[1], order[3]);
    let held = w.hold_lock(order[0], "s", "x");
    let token = w.token(held);
    let mut waiting = Vec::new();
    for site in [order[2], order[1], order[3], order[0]] {
        waiting.push(w.lock(site, "s", "x"));
        w.run_for(ms(20));
    }
    let ask = w.become_grantor(turk, "s");
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    assert_eq!((granting(&w, turk), granting(&w, grantor)), (Some(GrantorState::Acting), None));
    assert_eq!((w.token(held), w.fence(held)), (token, token), "the hold is the same");
    assert_eq!(serve(&mut w, &waiting, held), waiting);
    w.expect("nothing is left", World::is_empty_everywhere);
}

/// Each message sent: the sending site, the receiving site and the kind.
type Said = Arc<Mutex<Vec<(usize, usize, &'static str)>>>;

/// Unlike in Geode's documentation the elder tells the old grantor nothing. It names the young
/// turk, or the successor of a grantor that leaves. The new grantor asks the old one for its table.
/// No member is asked for its holds before the new one acts.
#[test]
fn the_elder_names_the_next_grantor_which_asks_the_old_one_for_its_table() {
    for leaves in [false, true] {
        let (mut w, order) = with_grantor(25, 4);
        let (elder, grantor, next) = (order[0], order[1], order[3]);
        let held = w.hold_lock(next, "s", "x");
        let words = [
            "Become",
            "ProposeSuccessor",
            "NameGrantor",
            "GrantorIs",
            "RequestTable",
            "TableChunk",
            "Recover",
            "Report",
            "Acts",
        ];
        let said = Said::default();
        let heard = said.clone();
        w.hold(move |flight| {
            let word = elderlock_sim::kind::kind(flight.packet);
            if words.contains(&word) {
                heard.lock().expect("no panic").push((flight.from, flight.to, word));
            }
            false
        });
        let begins = if leaves {
            w.leave(grantor);
            (grantor, elder, "ProposeSuccessor")
        } else {
            w.become_grantor(next, "s");
            (next, elder, "Become")
        };
        w.expect("the next one acts", |w| granting(w, next) == Some(GrantorState::Acting));
        let mut said = said.lock().expect("no panic").clone();
        let acts = said.iter().position(|(.., word)| *word == "Acts").expect("it says so");
        said.truncate(acts);
        let transfer = [
            begins,
            (elder, next, "NameGrantor"),
            (next, grantor, "RequestTable"),
            (grantor, next, "TableChunk"),
        ];
        assert_eq!(said, transfer);
        assert!(w.fence(held).is_some());
    }
}

/// Mistake 15: a chain of takers. Exactly one ends as grantor, and nothing is lost on the way.
#[test]
fn of_many_young_turks_one_acts_and_all_hear_the_truth() {
    for seed in 0..20 {
        let (mut w, order) = with_grantor(100 + seed, 5);
        let held = w.hold_lock(order[0], "s", "x");
        let waiting: Vec<Ask> = [order[4], order[2]].map(|site| w.lock(site, "s", "x")).into();
        w.run_for(ms(30));
        let asks: Vec<Ask> = order[2..].iter().map(|site| w.become_grantor(*site, "s")).collect();
        let said: Vec<Outcome> = asks.iter().map(|ask| answered(&mut w, *ask)).collect();
        assert!(said.contains(&Outcome::Won), "{said:?}");
        assert!(
            said.iter().all(|said| matches!(said, Outcome::Won | Outcome::Superseded(_))),
            "{said:?}"
        );
        w.expect("one acts", |w| {
            order.iter().filter(|site| granting(w, **site) == Some(GrantorState::Acting)).count()
                == 1
        });
        assert!(w.fence(held).is_some(), "nothing is lost on the way");
        let mut served = serve(&mut w, &waiting, held);
        served.sort();
        let mut all = waiting.clone();
        all.sort();
        assert_eq!(served, all);
    }
}

/// The words of the seed: "only the last young turk becomes grantor, those between pass the table
/// through".
#[test]
fn a_turk_that_is_asked_before_its_table_came_passes_it_through() {
    let (mut w, order) = with_grantor(2, 4);
    let (grantor, middle, last) = (order[1], order[2], order[3]);
    let held = w.hold_lock(order[0], "s", "x");
    let late = w.hold(move |flight| {
        flight.from == grantor && elderlock_sim::kind::kind(flight.packet) == "TableChunk"
    });
    let first = w.become_grantor(middle, "s");
    w.expect("the table is on its way", |w| w.matched(late) > 0);
    let second = w.become_grantor(last, "s");
    w.expect("the one between knows", |w| granting(w, middle) == Some(GrantorState::PassingOn));
    w.let_go(late);
    assert_eq!(answered(&mut w, second), Outcome::Won);
    assert_eq!(answered(&mut w, first), Outcome::Superseded(w.process(last)));
    let next = w.lock(middle, "s", "x");
    w.run_for(ms(100));
    assert!(!w.is_granted(next) && w.fence(held).is_some());
    w.release(held);
    w.granted(next);
}

/// Geode's documentation: the old grantor answers that it grants no longer, and the young turk
/// answers no request before it has the table.
#[test]
fn a_young_turk_answers_no_request_before_its_table_has_come() {
    let (mut w, order) = with_grantor(22, 4);
    let (elder, grantor, asker, turk) = (order[0], order[1], order[2], order[3]);
    let held = w.hold_lock(elder, "s", "x");
    let known = w.hold_lock(asker, "s", "known");
    // By any way.
    let table = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "TableChunk");
    let bid = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(table) > 0);
    assert_eq!((granting(&w, grantor), granting(&w, turk)), (None, Some(GrantorState::Receiving)));
    let refusals = w.hold_kind(grantor, asker, "NotGrantor");
    let free = w.lock(asker, "s", "free");
    w.expect("the old grantor says that it is none", |w| w.matched(refusals) > 0);
    w.let_go(refusals);
    let asked = w.hold_kind(asker, turk, "RequestLock");
    w.expect("the young turk is asked", |w| w.matched(asked) > 0);
    w.let_go(asked);
    let own = w.lock(turk, "s", "own");
    w.run_for(ms(200));
    assert!([bid, free, own].iter().all(|ask| !w.is_answered(*ask)));
    w.let_go(table);
    assert_eq!(answered(&mut w, bid), Outcome::Won);
    w.granted(free);
    w.granted(own);
    assert!([held, known].iter().all(|ask| w.fence(*ask).is_some()));
}

/// A turk that is named bids once more, and another turk after it. It is told
/// that it is not named any more. That concerns the second bid only: the table is on its way, and
/// it becomes the grantor then.
#[test]
fn a_turk_that_is_outbid_when_its_table_is_on_its_way_has_not_lost() {
    let (mut w, order) = with_grantor(21, 5);
    let (grantor, turk, younger, last) = (order[1], order[2], order[3], order[4]);
    let held = w.hold_lock(order[0], "s", "x");
    let table = w.hold_kind(grantor, turk, "TableChunk");
    let first = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(table) > 0);
    let hand = w.hold_kind(younger, turk, "RequestTable");
    w.become_grantor(younger, "s");
    w.expect("a younger one asks for it", |w| w.matched(hand) > 0);
    let outbid = w.hold_kind(order[0], turk, "Outbid");
    let again = w.become_grantor(turk, "s");
    w.run_for(ms(20));
    w.become_grantor(last, "s");
    w.expect("another asks after it", |w| w.matched(outbid) > 0);
    w.let_go(outbid);
    w.run_for(ms(20));
    assert_eq!(granting(&w, turk), Some(GrantorState::Receiving));
    w.let_go(table);
    assert_eq!((answered(&mut w, first), answered(&mut w, again)), (Outcome::Won, Outcome::Won));
    assert_eq!(granting(&w, turk), Some(GrantorState::Acting));
    w.let_go(hand);
    w.expect("the last one acts", |w| granting(w, last) == Some(GrantorState::Acting));
    assert!(w.fence(held).is_some());
}

/// Mistake 14: a grantor is deposed while it recovers. It never acts, and reports that it did not
/// win.
#[test]
fn a_recovering_grantor_that_is_followed_never_acts() {
    let (mut w, order) = with_grantor(3, 5);
    let (elder, grantor, first, second, holder) =
        (order[0], order[1], order[2], order[3], order[4]);
    let held = w.hold_lock(holder, "s", "x");
    let one = w.become_grantor(first, "s");
    assert_eq!(answered(&mut w, one), Outcome::Won);
    w.run_for(ms(50));
    let silent = w.hold(move |flight| {
        flight.from == holder && elderlock_sim::kind::kind(flight.packet) == "Report"
    });
    w.crash(first);
    w.expect("it is gone", |w| w.view(elder).is_some_and(|view| view.members.len() == 4));
    let deposed = w.become_grantor(grantor, "s");
    let next = w.lock(grantor, "s", "x");
    w.expect("it waits for the last report", |w| w.matched(silent) > 0);
    assert_eq!(granting(&w, grantor), Some(GrantorState::Recovering));
    let two = w.become_grantor(second, "s");
    w.run_for(ms(50));
    assert!(!w.is_answered(two) && granting(&w, grantor) != Some(GrantorState::Acting));
    w.let_go(silent);
    assert_eq!(answered(&mut w, two), Outcome::Won);
    assert_eq!(answered(&mut w, deposed), Outcome::Superseded(w.process(second)));
    assert_eq!(granting(&w, grantor), None);
    assert!(w.fence(held).is_some());
    w.release(held);
    w.granted(next);
}

/// The parties of a transfer, by age. The holder and the waiter, which are no parties, have a lock
/// and wait for one.
const ELDER: usize = 0;
const OLD: usize = 1;
const HOLDER: usize = 2;
const TURK: usize = 3;
const WAITER: usize = 4;

/// A party of a transfer meets its fate, at any moment of the transfer. The hold lasts, and the
/// waiter is next.
#[track_caller]
fn assert_a_transfer_goes_on(seed: u64, victim: usize, fate: PartyFate) {
    let begin = |w: &mut World, order: &[usize]| {
        // More than goes into one part of a table.
        let mut held = vec![w.hold_lock(order[HOLDER], "s", "x")];
        held.extend(
            ["a", "b", "c", "d", "e", "y", "z"].map(|name| w.hold_lock(order[HOLDER], "s", name)),
        );
        let waiting = [w.lock(order[WAITER], "s", "x"), w.lock(order[WAITER], "s", "y")];
        w.run_for(ms(20));
        (held, waiting, w.become_grantor(order[TURK], "s"))
    };
    at_any_moment(
        (seed, 5, 60),
        (victim, fate),
        (TURK, A_TURK),
        begin,
        |w, order, (held, waiting, ask)| {
            let goes = victim == TURK && ENDS.contains(&fate);
            if !goes {
                assert_eq!(answered(w, ask), Outcome::Won);
                assert_eq!(w.grantor("s"), order[TURK]);
            }
            let refused = w.try_lock(order[HOLDER], "s", "x");
            w.run_for(ms(200));
            assert!(held.iter().all(|held| w.fence(*held).is_some()) && !w.is_granted(refused));
            assert!(!waiting.iter().any(|waiting| w.is_granted(*waiting)));
            held.into_iter().for_each(|held| w.release(held));
            assert!(waiting.map(|waiting| w.granted(waiting)).is_sorted());
        },
    );
}

/// A premise of the tests above: the table of one goes in several parts.
#[test]
fn the_table_of_a_transfer_goes_in_parts() {
    let (mut w, order) = with_grantor(200, 5);
    let held =
        ["x", "a", "b", "c", "d", "e", "y", "z"].map(|name| w.hold_lock(order[HOLDER], "s", name));
    let parts = w.hold_kind(order[OLD], order[TURK], "TableChunk");
    let ask = w.become_grantor(order[TURK], "s");
    w.expect("the table is on its way", |w| w.matched(parts) > 1);
    w.let_go(parts);
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    assert!(held.iter().all(|held| w.fence(*held).is_some()));
}

/// Mistake 16: the old grantor dies, leaves, or is cut off at any moment of the transfer, and no
/// lock is lost.
#[test]
fn the_old_grantor_may_go_at_any_moment_of_a_transfer() {
    ENDS.into_iter().for_each(|fate| assert_a_transfer_goes_on(200, OLD, fate));
}

/// Mistake 16 again: the young turk goes instead, and the next requester recovers.
#[test]
fn the_young_turk_may_go_at_any_moment_of_a_transfer() {
    ENDS.into_iter().for_each(|fate| assert_a_transfer_goes_on(300, TURK, fate));
}

/// And the elder: it has named a grantor, or is about to.
#[test]
fn the_elder_may_go_at_any_moment_of_a_transfer() {
    ENDS.into_iter().for_each(|fate| assert_a_transfer_goes_on(400, ELDER, fate));
}

/// No two members that must hear each other reach each other directly: they do by way of others.
#[test]
fn any_link_of_a_transfer_may_be_cut_at_any_moment() {
    for (one, other) in [(ELDER, OLD), (ELDER, TURK), (OLD, TURK), (TURK, HOLDER), (TURK, WAITER)] {
        assert_a_transfer_goes_on(900, one, PartyFate::CutFrom(other));
    }
}

/// A line of two turks behind the old grantor, by age.
const MIDDLE: usize = 2;
const YOUNGEST: usize = 3;

/// A lock is held, and waited for. The table is on its way to the turk in the middle, and is held
/// up. Then the youngest asks.
fn begin_a_line(w: &mut World, order: &[usize]) -> (Ask, Ask, RuleId, Ask) {
    let held = w.hold_lock(order[ELDER], "s", "x");
    let waiting = w.lock(order[WAITER], "s", "x");
    w.run_for(ms(20));
    let table = w.hold_kind(order[OLD], order[MIDDLE], "TableChunk");
    w.become_grantor(order[MIDDLE], "s");
    w.expect("the table is on its way", |w| w.matched(table) > 0);
    (held, waiting, table, w.become_grantor(order[YOUNGEST], "s"))
}

/// And one in the middle of a transfer chain: the younger one gets the table from it, or recovers.
#[test]
fn a_turk_in_the_middle_of_a_line_may_go_at_any_moment() {
    let states = [Some(GrantorState::Receiving), Some(GrantorState::PassingOn)];
    for fate in ENDS {
        let end = |w: &mut World, _: &[usize], (held, waiting, table, ask)| {
            w.drop_held(table);
            assert_eq!(answered(w, ask), Outcome::Won);
            assert!(w.fence(held).is_some());
            w.release(held);
            w.granted(waiting);
        };
        at_any_moment((600, 5, 30), (MIDDLE, fate), (MIDDLE, &states), begin_a_line, end);
    }
}

/// The youngest goes. The member in the middle passes the table on to it, or has done so. The next
/// requester gets the holds and the waits of the others, from the table or by asking them.
#[test]
fn the_youngest_of_a_line_may_go_at_any_moment() {
    let begin = |w: &mut World, order: &[usize]| {
        let (held, waiting, table, _) = begin_a_line(w, order);
        w.run_for(ms(3));
        w.let_go(table);
        (held, waiting)
    };
    for fate in ENDS {
        at_any_moment(
            (650, 5, 40),
            (YOUNGEST, fate),
            (YOUNGEST, A_LAST),
            begin,
            |w, _, (held, waiting)| {
                w.run_for(ms(20));
                assert!(w.fence(held).is_some());
                w.release(held);
                w.granted(waiting);
            },
        );
    }
}

/// Two members that both insist do not starve the service: between two transfers the grantor
/// grants.
#[test]
fn two_repeated_young_turks_take_turns_and_the_service_goes_on() {
    let (mut w, order) = with_grantor(4, 4);
    let mut bids = [w.become_grantor(order[2], "s"), w.become_grantor(order[3], "s")];
    let (mut served, mut transfers, mut held) = (0, 0, w.lock(order[0], "s", "x"));
    let mut grantor = order[1];
    let end = w.elapsed() + Duration::from_secs(5);
    while w.elapsed() < end {
        w.run_for(ms(2));
        if w.is_granted(held) {
            served += 1;
            w.release(held);
            held = w.lock(order[0], "s", "x");
        }
        for (bid, site) in bids.iter_mut().zip([order[2], order[3]]) {
            if w.is_answered(*bid) {
                *bid = w.become_grantor(site, "s");
            }
        }
        if let Some(next) = w.find_grantor("s").filter(|next| *next != grantor) {
            (grantor, transfers) = (next, transfers + 1);
        }
    }
    assert!(served > 500, "served {served} times in five seconds");
    assert!((5..40).contains(&transfers), "a transfer takes place now and then: {transfers}");
}

/// The seed's successor: the member with most holds, with the table and without a recovery.
#[test]
fn a_leaving_grantor_transfers_its_table_to_the_member_with_most_holds() {
    // The oldest waits for more than the member with more holds.
    assert_is_followed_by(2, &[(0, 1, 3), (2, 2, 0), (3, 1, 1)]);
}

/// Of the members with equally many holds, the member with most waits.
#[test]
fn among_equal_holds_the_successor_has_the_most_waits() {
    assert_is_followed_by(3, &[(0, 1, 0), (2, 1, 1), (3, 1, 2)]);
}

/// Of the members with equally many holds and waits, the oldest.
#[test]
fn among_equal_holds_and_waits_the_successor_is_the_oldest() {
    assert_is_followed_by(2, &[(0, 0, 3), (2, 1, 1), (3, 1, 1)]);
}

/// The grantor leaves and is followed by the member of that age. Each of the others, by age, has so
/// many holds and waits.
#[track_caller]
fn assert_is_followed_by(successor: usize, shares: &[(usize, usize, usize)]) {
    let (mut w, order) = with_grantor(5, 4);
    let grantor = order[1];
    let own = w.hold_lock(grantor, "s", "own");
    let (mut holds, mut waits) = (Vec::new(), Vec::new());
    for &(age, held, _) in shares {
        holds.extend(
            (0..held).map(|number| w.hold_lock(order[age], "s", &format!("{age} {number}"))),
        );
    }
    // All wait for a lock that the first of them holds: a lock that the grantor holds itself is
    // granted before it goes.
    let (first, ..) = shares.iter().find(|(_, held, _)| *held > 0).expect("a member with a hold");
    for &(age, _, waited) in shares {
        waits.extend((0..waited).map(|_| w.lock(order[age], "s", &format!("{first} 0"))));
    }
    w.run_for(ms(20));
    let recovers = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "Report");
    w.leave(grantor);
    w.expect("the successor acts", |w| granting(w, order[successor]) == Some(GrantorState::Acting));
    w.let_go(recovers);
    w.expect("it has left", |w| !w.is_alive(grantor));
    assert_eq!(w.grantor("s"), order[successor]);
    assert!(holds.iter().all(|ask| w.fence(*ask).is_some()));
    assert!(w.fence(own).is_none());
    // And the queues go on, one after the other.
    w.release(holds[0]);
    for served in 0..waits.len() {
        w.expect("the next is served", |w| {
            waits.iter().filter(|ask| w.is_granted(**ask)).count() == served + 1
        });
        let holder = waits
            .iter()
            .copied()
            .find(|ask| w.fence(*ask).is_some())
            .expect("another member has it");
        w.release(holder);
    }
}

/// While the elder renews its lease, a member can take over a leaving member's service: the leaving
/// member waits for that, however long it takes.
#[test]
fn a_leaving_member_waits_until_its_work_is_in_other_hands() {
    let (mut w, order) = with_grantor(7, 4);
    let grantor = order[1];
    let held = w.hold_lock(order[2], "s", "x");
    // By any way.
    let late = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "TableChunk");
    let recovers = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "Report");
    w.leave(grantor);
    w.run_for(Timing::fast().member_lease * 3);
    assert!(w.is_alive(grantor) && w.matched(late) > 0);
    w.let_go(late);
    w.expect("it has left", |w| !w.is_alive(grantor));
    assert_eq!(w.was_heard(grantor), Some(true));
    assert_eq!((w.matched(recovers), w.grantor("s")), (0, order[2]));
    assert!(w.fence(held).is_some());
}

/// Geode's documentation: destroying the service at its grantor ends when the table is in other
/// hands. Until then no request, release or destruction is answered, and none is lost.
#[test]
fn a_grantor_has_destroyed_the_service_when_its_table_is_in_other_hands() {
    let (mut w, order) = with_grantor(23, 4);
    let (user, grantor, holder, waiter) = (order[0], order[1], order[2], order[3]);
    let used = w.hold_lock(user, "s", "used");
    let most = ["x", "y"].map(|name| w.hold_lock(holder, "s", name));
    let waiting = w.lock(waiter, "s", "x");
    w.run_for(ms(20));
    // By any way.
    let table = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "TableChunk");
    let gone = w.destroy(grantor, "s");
    w.expect("the table is on its way", |w| w.matched(table) > 0);
    w.release(most[0]);
    let free = w.lock(waiter, "s", "free");
    let also_gone = w.destroy(user, "s");
    w.run_for(Timing::fast().member_lease / 4);
    assert_eq!([gone, waiting, free, also_gone].map(|ask| w.is_answered(ask)), [false; 4]);
    w.let_go(table);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert_eq!(answered(&mut w, also_gone), Outcome::Destroyed);
    w.granted(waiting);
    w.granted(free);
    assert_eq!((w.grantor("s"), w.lost(used)), (holder, Some(LostReason::Destroyed)));
    assert!(w.fence(most[1]).is_some());
}

/// Geode's documentation: a successor may refuse, because it may have no instance of the service
/// any more. The grantor that destroys the service then has the next one by the rule follow it.
#[test]
fn a_successor_that_has_destroyed_the_service_refuses_and_the_next_follows() {
    let (mut w, order) = with_grantor(24, 4);
    let (elder, grantor, next, first) = (order[0], order[1], order[2], order[3]);
    let most = ["a", "b"].map(|name| w.hold_lock(first, "s", name));
    let held = w.hold_lock(next, "s", "c");
    // The grantor has not heard yet that its successor has given everything up.
    let late = w.hold_kind(first, grantor, "Release");
    w.destroy(first, "s");
    w.expect("its holds are over", |w| w.matched(late) > 0);
    let refusal = w.hold_kind(first, elder, "Decline");
    let gone = w.destroy(grantor, "s");
    w.expect("the successor refuses", |w| w.matched(refusal) > 0);
    assert!(!w.is_answered(gone));
    w.let_go(refusal);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert_eq!((w.grantor("s"), granting(&w, first)), (next, None));
    assert!(most.iter().all(|ask| w.lost(*ask) == Some(LostReason::Destroyed)));
    assert!(w.fence(held).is_some());
    w.let_go(late);
    let free = w.lock(next, "s", "a");
    w.granted(free);
}

/// A successor that leaves as well is followed by the next, and the leave ends when the work is in
/// other hands.
#[test]
fn a_successor_that_will_not_is_followed_by_the_next() {
    for at in 0..20 {
        let (mut w, order) = with_grantor(500 + at, 4);
        let held = w.hold_lock(order[3], "s", "x");
        let other = w.hold_lock(order[0], "s", "y");
        w.run_for(ms(20));
        w.leave(order[3]);
        w.run_for(Duration::from_micros(at * 100));
        w.leave(order[1]);
        w.expect("both have left", |w| !w.is_alive(order[1]) && !w.is_alive(order[3]));
        assert!(w.fence(other).is_some() && w.fence(held).is_none());
        let next = w.lock(order[2], "s", "x");
        w.granted(next);
        let refused = w.try_lock(order[2], "s", "y");
        assert!(matches!(answered(&mut w, refused), Outcome::Held(_)));
    }
}

/// Mistake 17: a grantor goes or destroys the service, and was the only holder. It leaves an empty
/// table and names no successor. The next one begins without asking any member, and its tokens are
/// higher: numbers never begin anew.
#[test]
fn an_empty_table_is_not_recovered_and_tokens_rise_all_the_same() {
    for destroys in [false, true] {
        let (mut w, order) = with_grantor(6, 3);
        let own = w.hold_lock(order[1], "s", "x");
        let not_said = ["ProposeSuccessor", "Recover", "Report"];
        let not_said =
            w.hold(move |flight| not_said.contains(&elderlock_sim::kind::kind(flight.packet)));
        if destroys {
            let gone = w.destroy(order[1], "s");
            assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
        } else {
            w.leave(order[1]);
            w.expect("it has left", |w| !w.is_alive(order[1]));
        }
        let next = w.lock(order[2], "s", "x");
        w.granted(next);
        assert_eq!((w.matched(not_said), w.grantor("s")), (0, order[2]));
        assert!(w.token(next) > w.token(own));
    }
}

/// The elder has not heard yet that the table was empty. Others ask for the service at that moment:
/// the member that destroyed the service is not made its grantor once more. The destruction is over
/// there as soon as the message goes out.
#[test]
fn a_member_that_destroyed_a_service_does_not_grant_it_again_for_others() {
    let (mut w, order) = with_grantor(16, 3);
    let late = w.hold_kind(order[1], order[0], "Vacant");
    let gone = w.destroy(order[1], "s");
    w.expect("the word is on its way", |w| w.matched(late) > 0);
    let ask = w.lock(order[2], "s", "x");
    w.run_for(ms(20));
    assert_eq!(w.outcome(gone), Some(&Outcome::Destroyed));
    w.let_go(late);
    w.granted(ask);
    assert_eq!((granting(&w, order[1]), w.grantor("s")), (None, order[2]));
}

/// Mistake 17 again: others hold something, and the successor that received the table goes with it,
/// or before. The next grantor has the rest, from the table or by asking all.
#[test]
fn a_successor_may_go_at_any_moment_and_the_next_takes_over() {
    let begin = |w: &mut World, order: &[usize]| {
        let held = w.hold_lock(order[0], "s", "x");
        let most = [w.hold_lock(order[3], "s", "y"), w.hold_lock(order[3], "s", "z")];
        let waiting = w.lock(order[2], "s", "x");
        w.run_for(ms(20));
        w.leave(order[1]);
        (held, most, waiting)
    };
    for fate in ENDS {
        at_any_moment(
            (700, 4, 60),
            (3, fate),
            (3, A_TURK),
            begin,
            |w, order, (held, most, waiting)| {
                w.expect("the leaver has left", |w| !w.is_alive(order[1]));
                w.expect("the successor's holds are over", |w| {
                    most.iter().all(|ask| w.fence(*ask).is_none())
                });
                assert!(w.fence(held).is_some());
                let refused = w.try_lock(order[2], "s", "x");
                assert!(!matches!(answered(w, refused), Outcome::Granted { .. }));
                w.release(held);
                w.granted(waiting);
                let after_the_gone = w.lock(order[0], "s", "y");
                w.granted(after_the_gone);
                assert!([order[0], order[2]].contains(&w.grantor("s")));
            },
        );
    }
}

/// The successor by the rule refuses, because it goes itself: the next by the rule is asked.
#[test]
fn the_next_after_a_successor_that_refuses_is_the_next_by_the_rule() {
    let (mut w, order) = with_grantor(19, 5);
    let (elder, grantor, other, next, first) = (order[0], order[1], order[2], order[3], order[4]);
    let most = ["a", "b", "c"].map(|name| w.hold_lock(first, "s", name));
    let fewer = ["d", "e"].map(|name| w.hold_lock(next, "s", name));
    let one = w.hold_lock(elder, "s", "f");
    // It is going and cannot yet: it grants another service, whose table is still on its way. And
    // the grantor here has not heard that it has given its holds up.
    let own = w.hold_lock(first, "other", "x");
    let others = w.hold_lock(other, "other", "y");
    let (late, table) =
        (w.hold_kind(first, grantor, "Release"), w.hold_kind(first, other, "TableChunk"));
    w.leave(first);
    w.expect("it is going", |w| w.matched(late) > 0 && w.matched(table) > 0);
    let declines = w.hold_kind(first, elder, "Decline");
    w.leave(grantor);
    w.expect("it refuses", |w| w.matched(declines) > 0);
    w.let_go(declines);
    w.expect_within("the next is asked", ms(50), |w| {
        granting(w, next) == Some(GrantorState::Acting)
    });
    assert!(w.is_alive(first));
    w.let_go(late);
    w.let_go(table);
    w.expect("both have left", |w| !w.is_alive(grantor) && !w.is_alive(first));
    assert_eq!(w.grantor("s"), next);
    assert!(fewer.iter().chain([&one, &others]).all(|ask| w.fence(*ask).is_some()));
    assert!(most.iter().chain([&own]).all(|ask| w.fence(*ask).is_none()));
}

/// All services at once: the tables are on their way together, and the leave ends when each is in
/// other hands.
#[test]
fn a_member_that_leaves_hands_all_its_services_over_at_once() {
    let services = ["s", "t", "u", "v", "w"];
    let (mut w, order) = with_grantor(20, 4);
    let mut held = Vec::new();
    for (number, service) in services.into_iter().enumerate() {
        let first = w.hold_lock(order[1], service, "first");
        w.release(first);
        assert_eq!(w.grantor(service), order[1]);
        held.push(w.hold_lock(order[[0, 2, 3][number % 3]], service, "x"));
    }
    let grantor = order[1];
    let yields = w.hold_kind(grantor, order[0], "ProposeSuccessor");
    let tables = w.hold(move |flight| {
        flight.from == grantor && elderlock_sim::kind::kind(flight.packet) == "TableChunk"
    });
    w.leave(grantor);
    w.run_for(ms(5));
    assert_eq!(w.matched(yields), services.len(), "it says so of all at once");
    w.let_go(yields);
    w.expect("all tables are on their way", |w| w.matched(tables) >= services.len());
    assert!(w.is_alive(grantor), "it waits until they have arrived");
    w.let_go(tables);
    w.expect("it has left", |w| !w.is_alive(grantor));
    for (number, service) in services.into_iter().enumerate() {
        assert_eq!(w.grantor(service), order[[0, 2, 3][number % 3]], "{service}");
        assert!(w.fence(held[number]).is_some(), "{service}");
    }
}

/// A young turk that asks when the leave has begun: it is named in place of the successor, or
/// follows it.
#[test]
fn a_young_turk_may_come_at_any_moment_of_a_leave() {
    let mut met = Vec::new();
    for at in 0..60 {
        let (mut w, order) = with_grantor(810, 4);
        let held = w.hold_lock(order[3], "s", "x");
        let waiting = w.lock(order[0], "s", "x");
        w.run_for(ms(20));
        w.leave(order[1]);
        w.run_for(Duration::from_micros(at * 100));
        met.push(granting(&w, order[3]));
        let ask = w.become_grantor(order[2], "s");
        assert_eq!(answered(&mut w, ask), Outcome::Won, "at {at}");
        w.expect("it has left", |w| !w.is_alive(order[1]));
        assert_eq!(w.grantor("s"), order[2], "at {at}");
        assert!(w.fence(held).is_some());
        w.release(held);
        w.granted(waiting);
    }
    for state in A_TURK {
        assert!(met.contains(state), "never {state:?}: {met:?}");
    }
}

/// A young turk that asks a grantor that leaves goes before the successor that this would have
/// named.
#[test]
fn a_young_turk_may_ask_while_the_grantor_leaves() {
    for at in 0..30 {
        let (mut w, order) = with_grantor(800, 4);
        let held = w.hold_lock(order[3], "s", "x");
        let waiting = w.lock(order[0], "s", "x");
        w.run_for(ms(20));
        let ask = w.become_grantor(order[2], "s");
        w.run_for(Duration::from_micros(at * 100));
        w.leave(order[1]);
        w.expect("it has left", |w| !w.is_alive(order[1]));
        assert_eq!(answered(&mut w, ask), Outcome::Won, "at {at}");
        assert_eq!(w.grantor("s"), order[2], "at {at}");
        assert!(w.fence(held).is_some());
        w.release(held);
        w.granted(waiting);
    }
}

/// Trace 1: the release is on its way to the old grantor while that hands its table over. The young
/// turk hears of it all the same.
#[test]
fn a_release_that_crosses_the_table_is_not_undone() {
    let (mut w, order) = with_grantor(11, 4);
    let (grantor, holder, turk) = (order[1], order[2], order[3]);
    let held = w.hold_lock(holder, "s", "x");
    let late = w.hold(move |flight| {
        flight.from == holder && elderlock_sim::kind::kind(flight.packet) == "Release"
    });
    w.release(held);
    w.expect("the release is on its way", |w| w.matched(late) > 0);
    let ask = w.become_grantor(turk, "s");
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    assert_eq!(granting(&w, grantor), None);
    let next = w.lock(order[0], "s", "x");
    w.granted(next);
    w.let_go(late);
    w.run_for(ms(500));
    assert!(w.fence(next).is_some());
    w.release(next);
    w.expect("nothing comes back", World::is_empty_everywhere);
}

/// Trace 1 again: the release reaches the young turk before the table that still has the hold.
#[test]
fn a_release_that_is_there_before_the_table_is_not_undone() {
    let (mut w, order) = with_grantor(12, 4);
    let (grantor, holder, turk) = (order[1], order[2], order[3]);
    let other = w.hold_lock(order[0], "s", "y");
    let held = w.hold_lock(holder, "s", "x");
    // A waiter is told where the table went, and so it releases there.
    let waiting = w.lock(holder, "s", "y");
    w.run_for(ms(20));
    let late = w.hold_kind(grantor, turk, "TableChunk");
    let ask = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(late) > 0);
    w.run_for(ms(5));
    let done = w.hold_kind(holder, turk, "Release");
    w.release(held);
    w.expect("it releases at the young turk", |w| w.matched(done) > 0);
    w.let_go(done);
    w.run_for(ms(5));
    assert_eq!(granting(&w, turk), Some(GrantorState::Receiving));
    w.let_go(late);
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    let next = w.lock(order[0], "s", "x");
    w.granted(next);
    w.release(next);
    w.release(other);
    w.granted(waiting);
    w.release(waiting);
    w.expect("nothing comes back", World::is_empty_everywhere);
}

/// Trace 2: the grant is on its way while the table lists the holder. The holder gets that very
/// grant, and does not queue behind itself.
#[test]
fn a_grant_that_is_on_its_way_while_the_table_goes_is_told_again() {
    let (mut w, order) = with_grantor(13, 4);
    let (grantor, asker, turk) = (order[1], order[2], order[3]);
    let late = w.hold_kind(grantor, asker, "Grant");
    let ask = w.lock(asker, "s", "x");
    w.expect("the grant is on its way", |w| w.matched(late) > 0);
    let bid = w.become_grantor(turk, "s");
    assert_eq!(answered(&mut w, bid), Outcome::Won);
    // By the young turk, from the table that it got.
    let token = w.granted(ask);
    let next = w.lock(order[0], "s", "x");
    w.let_go(late);
    w.run_for(ms(500));
    assert_eq!(w.fence(ask), Some(token));
    assert!(!w.is_granted(next));
    w.release(ask);
    w.granted(next);
}

/// Trace 6: the message that a table is empty comes late, when the service is used again. It counts
/// for its own epoch only.
#[test]
fn a_late_word_of_an_empty_table_says_nothing_of_a_later_one() {
    let (mut w, order) = with_grantor(14, 4);
    let (elder, grantor) = (order[0], order[1]);
    let late = w.hold_kind(grantor, elder, "Vacant");
    w.destroy(grantor, "s");
    w.expect("the word is on its way", |w| w.matched(late) > 0);
    let ask = w.become_grantor(order[3], "s");
    assert_eq!(answered(&mut w, ask), Outcome::Won);
    let held = w.hold_lock(order[2], "s", "x");
    w.let_go(late);
    w.run_for(ms(50));
    // The next grantor has to ask for the holders.
    w.crash(order[3]);
    let next = w.lock_within(elder, "s", "x", 5_000);
    assert_eq!(answered(&mut w, next), Outcome::TimedOut);
    assert_eq!(w.grantor("s"), elder);
    assert!(w.fence(held).is_some());
}

/// The old grantor asks for its table before that has arrived at the young turk. The last chunk
/// arrives after that request: the turk begins and passes the table on in one step.
#[test]
fn a_turk_may_begin_and_be_followed_in_one_step() {
    let (mut w, order) = with_grantor(17, 4);
    let (grantor, turk) = (order[1], order[3]);
    let held = w.hold_lock(order[2], "s", "x");
    let late = w.hold_kind(grantor, turk, "TableChunk");
    let first = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(late) > 0);
    let hand = w.hold_kind(grantor, turk, "RequestTable");
    let second = w.become_grantor(grantor, "s");
    w.expect("so is the word that asks for it", |w| w.matched(hand) > 0);
    w.let_go(hand);
    w.run_for(ms(5));
    assert!(!w.is_answered(first) && !w.is_answered(second));
    w.let_go(late);
    assert_eq!(answered(&mut w, second), Outcome::Won);
    assert_eq!((answered(&mut w, first), granting(&w, turk)), (Outcome::Won, None));
    assert!(w.fence(held).is_some());
}

/// A young turk asks a recovering grantor for the table. The last report ends the recovery, and the
/// grantor passes the table on in the same step.
#[test]
fn a_recovery_may_end_and_be_followed_in_one_step() {
    let (mut w, order) = with_grantor(18, 4);
    let (grantor, next, turk) = (order[1], order[2], order[3]);
    let held = w.hold_lock(turk, "s", "x");
    w.crash(grantor);
    let late = w.hold_kind(turk, next, "Report");
    let ask = w.lock(next, "s", "y");
    w.expect("the last report is on its way", |w| w.matched(late) > 0);
    let hand = w.hold_kind(turk, next, "RequestTable");
    let bid = w.become_grantor(turk, "s");
    w.expect("so is the word that asks for the table", |w| w.matched(hand) > 0);
    w.let_go(hand);
    w.run_for(ms(5));
    assert_eq!(granting(&w, next), Some(GrantorState::Recovering));
    w.let_go(late);
    assert_eq!(answered(&mut w, bid), Outcome::Won);
    w.granted(ask);
    assert!(w.fence(held).is_some());
}

/// One link keeps its order, two links do not: the younger turk asks the turk before it, which has
/// not heard of its own naming. The older turk has no table and never will, so the younger one
/// recovers.
#[test]
fn a_turk_that_is_asked_before_it_hears_of_its_naming_never_acts() {
    let (mut w, order) = with_grantor(15, 4);
    let (elder, grantor, middle, last) = (order[0], order[1], order[2], order[3]);
    let held = w.hold_lock(grantor, "s", "x");
    let naming = w.hold_kind(elder, middle, "NameGrantor");
    let first = w.become_grantor(middle, "s");
    w.expect("its naming is on its way", |w| w.matched(naming) > 0);
    let second = w.become_grantor(last, "s");
    assert_eq!(answered(&mut w, second), Outcome::Won);
    assert_eq!(answered(&mut w, first), Outcome::Superseded(w.process(last)));
    w.let_go(naming);
    w.run_for(ms(500));
    assert_eq!((granting(&w, middle), w.grantor("s")), (None, last));
    assert!(w.fence(held).is_some());
    let next = w.lock(middle, "s", "x");
    w.release(held);
    w.granted(next);
}

/// Mistake 3: a request from before the destruction gives no process a lock afterwards.
#[test]
fn a_service_that_is_destroyed_and_used_again_knows_nothing_of_before() {
    let (mut w, order) = with_grantor(7, 3);
    let (grantor, user) = (order[1], order[2]);
    let held = w.hold_lock(order[0], "s", "x");
    let late = w.hold_kind(user, grantor, "RequestLock");
    let before = w.lock(user, "s", "x");
    let mine = w.lock(user, "s", "y");
    w.run_for(ms(10));
    let gone = w.destroy(user, "s");
    let again = w.lock(user, "s", "y");
    w.let_go(late);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    for ask in [before, mine] {
        assert_eq!(w.outcome(ask), Some(&Outcome::Closed(LostReason::Destroyed)));
    }
    w.granted(again);
    w.release(held);
    let other = w.lock(order[0], "s", "x");
    w.granted(other);
    w.release(other);
    w.release(again);
    w.expect("nothing of the old one is left", World::is_empty_everywhere);
}

/// Mistake 12: the grant is being delivered when the service is destroyed.
#[test]
fn a_grant_that_crosses_the_destruction_is_released() {
    let (mut w, order) = with_grantor(8, 3);
    let (grantor, user) = (order[1], order[2]);
    let late = w.hold_kind(grantor, user, "Grant");
    let ask = w.lock(user, "s", "x");
    w.expect("the grant is on its way", |w| w.matched(late) > 0);
    let gone = w.destroy(user, "s");
    assert_eq!(w.outcome(ask), Some(&Outcome::Closed(LostReason::Destroyed)));
    w.let_go(late);
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    let next = w.lock(order[0], "s", "x");
    w.granted(next);
}

/// Destroying one service does not wait for another's grantor.
#[test]
fn destroying_one_service_does_not_hold_up_another() {
    let (mut w, order) = with_grantor(9, 4);
    let slow = w.hold_lock(order[3], "slow", "x");
    w.release(slow);
    assert_eq!(w.grantor("slow"), order[3]);
    let used = w.lock(order[2], "slow", "y");
    w.granted(used);
    let mine = w.hold_lock(order[2], "s", "x");
    w.cut(order[2], order[3]);
    w.cut(order[0], order[3]);
    w.cut(order[1], order[3]);
    let stuck = w.destroy(order[2], "slow");
    let quick = w.destroy(order[2], "s");
    w.expect_within("the other is destroyed", ms(100), |w| w.is_answered(quick));
    assert!(!w.is_answered(stuck));
    assert_eq!(w.lost(mine), Some(LostReason::Destroyed));
    assert_eq!(answered(&mut w, stuck), Outcome::Destroyed, "when its grantor is out of the view");
}

/// A member that reaches no grantor waits for a member lease, and is not told that nothing is left
/// there.
#[test]
fn a_destruction_that_no_grantor_hears_of_is_not_confirmed() {
    let (mut w, order) = with_grantor(9, 3);
    let mine = w.hold_lock(order[2], "s", "x");
    w.isolate(order[2]);
    let gone = w.destroy(order[2], "s");
    assert_eq!(w.lost(mine), Some(LostReason::Destroyed));
    assert_eq!(answered(&mut w, gone), Outcome::Unconfirmed);
    w.heal();
    w.settle();
    w.expect("nothing of it is left", World::is_empty_everywhere);
}

/// A service that is destroyed where it is granted goes on elsewhere, with all that others have of
/// it.
#[test]
fn a_grantor_that_destroys_the_service_hands_it_over() {
    let (mut w, order) = with_grantor(10, 3);
    let held = w.hold_lock(order[0], "s", "x");
    let own = w.hold_lock(order[1], "s", "y");
    let gone = w.destroy(order[1], "s");
    assert_eq!(answered(&mut w, gone), Outcome::Destroyed);
    assert_eq!(w.lost(own), Some(LostReason::Destroyed));
    assert_eq!(granting(&w, order[1]), None);
    assert!(w.fence(held).is_some());
    let next = w.lock(order[2], "s", "y");
    w.granted(next);
    let refused = w.try_lock(order[1], "s", "x");
    assert!(matches!(answered(&mut w, refused), Outcome::Held(_)), "and it is used again at once");
}

/// `last_young_turk_wins` lets an asker ask anew only if it was expelled. One that lives, hears
/// `Won` and does not act breaks it: here a grantor whose lease is over and stays so.
#[test]
fn a_living_asker_that_hears_won_and_never_acts_breaks_the_invariant() {
    let mut w = World::new(77).members(3).lenient();
    w.settle();
    w.hold_lock(2, "s", "x");
    w.isolate(2);
    w.expect("its lease is over", |w| !w.is_ready(2));
    assert!(!last_young_turk_wins::demand(&mut w, &Demand::of(&Timing::fast())));
    let broken = w.broken().expect("it is told");
    assert_eq!(broken.invariant, last_young_turk_wins::NAME);
    assert!(broken.what.starts_with("m2 asks to grant s, hears Some(Won)"), "{}", broken.what);
}
