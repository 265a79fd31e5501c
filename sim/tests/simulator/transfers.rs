//! Stories of tables that change hands: young turks, lines of them, and parties that die or are cut
//! off meanwhile. The files of `transfers/` have crossing messages, destructions and successors.

use crate::scenes::{answered, ms, with_grantor};
use crate::sent_messages::SentMessages;
use elderlock::protocol::{GrantorState, Outcome, Timing};
use elderlock_sim::World;
use elderlock_sim::history::Ask;
use elderlock_sim::invariants::last_young_turk_wins;
use elderlock_sim::liveness::Demand;
use elderlock_sim::rule::RuleId;
use std::time::Duration;

mod crossings;
mod destructions;
mod successors;

/// Members, oldest first. The second is the grantor of "s" and holds nothing. It has been grantor
/// long enough to be followed at once.
fn with_settled_grantor(seed: u64, members: usize) -> (World, Vec<usize>) {
    let (mut w, order) = with_grantor(seed, members);
    w.run_for(Timing::fast().retry * 3);
    (w, order)
}

/// The state of the grantor of the service at that site.
fn granting(w: &World, site: usize) -> Option<GrantorState> {
    let status = w.status(site)?;
    status.services.iter().find(|of| of.service.as_str() == "s").and_then(|of| of.granting)
}

/// The fate of a party.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum PartyFate {
    /// The party is killed.
    Dies,
    /// The party says goodbye.
    Leaves,
    /// The party is cut off from all others, in both directions.
    CutOff,
    /// The party and this member no longer reach each other.
    CutFrom(usize),
}

/// The fates by which a party ends. A party that is cut from one other member only does not end.
const ENDS: [PartyFate; 3] = [PartyFate::Dies, PartyFate::Leaves, PartyFate::CutOff];

/// Runs a scenario again and again, in which a party meets its fate a tenth of a millisecond later
/// each time. `begin` comes before, `end` after; parties are named by their age. The fate has to
/// come in each of these states of the member at `watched` (no grantor yet, waiting for the table,
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
        let (mut w, order) = with_settled_grantor(seed, members);
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

/// A turk is hit before it hears of its naming, while it waits for the table, and when it acts.
const A_TURK: &[Option<GrantorState>] =
    &[None, Some(GrantorState::Receiving), Some(GrantorState::Acting)];

/// The last turk is hit while it waits for the table, and when it acts.
const A_LAST: &[Option<GrantorState>] =
    &[Some(GrantorState::Receiving), Some(GrantorState::Acting)];

/// Releases one hold after the other, until all these waiters are served. Returns their order.
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
    let (mut w, order) = with_settled_grantor(1, 4);
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

/// Unlike in Geode's documentation the elder tells the old grantor nothing. It names the young
/// turk, or the successor of a grantor that leaves. The new grantor asks the old one for its table.
/// No member is asked for its holds before the new one acts.
#[test]
fn the_elder_names_the_next_grantor_which_asks_the_old_one_for_its_table() {
    for leaves in [false, true] {
        let (mut w, order) = with_settled_grantor(25, 4);
        let (elder, grantor, next) = (order[0], order[1], order[3]);
        let held = w.hold_lock(next, "s", "x");
        const KINDS: [&str; 9] = [
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
        let sent = SentMessages::note(&mut w, &KINDS);
        let begins = if leaves {
            w.leave(grantor);
            (grantor, elder, "ProposeSuccessor")
        } else {
            w.become_grantor(next, "s");
            (next, elder, "Become")
        };
        w.expect("the next one acts", |w| granting(w, next) == Some(GrantorState::Acting));
        let mut sent = sent.take();
        let acts = sent.iter().position(|(.., word)| *word == "Acts").expect("it says so");
        sent.truncate(acts);
        let transfer = [
            begins,
            (elder, next, "NameGrantor"),
            (next, grantor, "RequestTable"),
            (grantor, next, "TableChunk"),
        ];
        assert_eq!(sent, transfer);
        assert!(w.fence(held).is_some());
    }
}

/// Mistake 15: a chain of takers. Exactly one ends as grantor, and nothing is lost on the way.
#[test]
fn of_many_young_turks_one_acts_and_all_hear_the_truth() {
    for seed in 0..20 {
        let (mut w, order) = with_settled_grantor(100 + seed, 5);
        let held = w.hold_lock(order[0], "s", "x");
        let waiting: Vec<Ask> = [order[4], order[2]].map(|site| w.lock(site, "s", "x")).into();
        w.run_for(ms(30));
        let asks: Vec<Ask> = order[2..].iter().map(|site| w.become_grantor(*site, "s")).collect();
        let said: Vec<Outcome> = asks.iter().map(|ask| answered(&mut w, *ask)).collect();
        assert!(said.contains(&Outcome::Won), "{said:?}");
        assert!(
            said.iter().all(|said| matches!(said, Outcome::Won | Outcome::Outbid(_))),
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
    let (mut w, order) = with_settled_grantor(2, 4);
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
    assert_eq!(answered(&mut w, first), Outcome::Outbid(w.process(last)));
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
    let (mut w, order) = with_settled_grantor(22, 4);
    let (elder, grantor, requester, turk) = (order[0], order[1], order[2], order[3]);
    let held = w.hold_lock(elder, "s", "x");
    let known = w.hold_lock(requester, "s", "known");
    // The table is held on any way.
    let table = w.hold(|flight| elderlock_sim::kind::kind(flight.packet) == "TableChunk");
    let bid = w.become_grantor(turk, "s");
    w.expect("the table is on its way", |w| w.matched(table) > 0);
    assert_eq!((granting(&w, grantor), granting(&w, turk)), (None, Some(GrantorState::Receiving)));
    let refusals = w.hold_kind(grantor, requester, "NotGrantor");
    let free = w.lock(requester, "s", "free");
    w.expect("the old grantor says that it is not the grantor", |w| w.matched(refusals) > 0);
    w.let_go(refusals);
    let asked = w.hold_kind(requester, turk, "RequestLock");
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

/// A turk that is named bids once more, and another turk after it. The first turk is told that it
/// is not named any more. That concerns its second bid only: the table is on its way, and the first
/// turk becomes the grantor then.
#[test]
fn a_turk_that_is_outbid_when_its_table_is_on_its_way_has_not_lost() {
    let (mut w, order) = with_settled_grantor(21, 5);
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
    let (mut w, order) = with_settled_grantor(3, 5);
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
    assert_eq!(answered(&mut w, deposed), Outcome::Outbid(w.process(second)));
    assert_eq!(granting(&w, grantor), None);
    assert!(w.fence(held).is_some());
    w.release(held);
    w.granted(next);
}

/// The parties of a transfer, by age. The holder and the waiter, which are not parties, have a lock
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

/// A premise of the tests above: the table goes in several parts.
#[test]
fn the_table_of_a_transfer_goes_in_parts() {
    let (mut w, order) = with_settled_grantor(200, 5);
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

/// The elder dies as well: it has named a grantor, or is about to.
#[test]
fn the_elder_may_go_at_any_moment_of_a_transfer() {
    ENDS.into_iter().for_each(|fate| assert_a_transfer_goes_on(400, ELDER, fate));
}

/// No two members that must hear each other reach each other directly. They reach each other by way
/// of others.
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

/// A turk in the middle of a transfer chain dies: the younger turk gets the table from it, or
/// recovers.
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
    let (mut w, order) = with_settled_grantor(4, 4);
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

/// `last_young_turk_wins` lets a young turk ask anew only if it was expelled. A turk that lives,
/// hears `Won` and does not act breaks the invariant: here a grantor whose lease is over and stays
/// so.
#[test]
fn a_living_young_turk_that_hears_won_and_never_acts_breaks_the_invariant() {
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
