//! How a cluster begins, grows and shrinks.

use elderlock::protocol::{Limits, Outcome, ProcessId, Slot, Timing, Token};
use elderlock::wire::VERSIONS;
use elderlock_sim::World;
use elderlock_sim::kind::kind;
use elderlock_sim::record::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Issue: founding by one.
#[test]
fn one_member_founds_alone_and_needs_no_other() {
    let mut w = World::new(1).members(1);
    w.settle();
    let a = w.try_lock(0, "s", "x");
    assert!(
        w.is_granted(a),
        "a free lock at the grantor's own member costs no message, not even the first time"
    );
    w.run_for(Duration::from_secs(60));
    assert!(
        w.fence(a).is_some(),
        "no other member can take over, so the lease of a lone member does not end"
    );
}

/// Issue: founding by several, in every order of start.
#[test]
fn seeds_found_one_cluster_together_in_any_order_of_starts() {
    for order in [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        for gap in [0, 1, 40, 700] {
            let mut w = World::new(2).members(3).asleep();
            for site in order {
                w.start(site);
                w.run_for(Duration::from_millis(gap));
            }
            w.settle();
            assert_eq!(w.in_view().len(), 3, "{order:?} {gap}");
        }
    }
}

/// All configured seeds found together.
#[test]
fn nothing_is_founded_while_a_seed_is_missing_and_lock_calls_still_end() {
    let mut w = World::new(3).members(3).asleep();
    w.start(0);
    w.start(1);
    let tried = w.try_lock(0, "s", "x");
    let waited = w.lock_within(1, "s", "x", 700);
    w.run_for(Duration::from_secs(20));
    assert!(w.latest_view().is_none());
    assert_eq!(w.outcome(tried), Some(&Outcome::Undecided));
    assert_eq!(w.outcome(waited), Some(&Outcome::TimedOut));
    w.start(2);
    w.settle();
}

/// Trace 10, as far as no disk is needed: a seed that dies and starts again joins the founded
/// cluster.
#[test]
fn a_seed_that_restarts_joins_and_does_not_found_again() {
    let mut w = World::new(4).members(3);
    w.settle();
    let lineage = w.view(0).map(|view| view.lineage);
    w.crash(1);
    w.run_for(Duration::from_millis(300));
    w.restart(1);
    w.settle();
    assert_eq!(w.view(1).map(|view| view.lineage), lineage);
    assert_eq!(w.in_view(), [0, 2, 1], "the joining member is the youngest");
}

/// Issue: a seed dies in the middle of founding.
#[test]
fn a_founding_survives_the_death_of_any_seed_at_any_moment() {
    for victim in 0..3 {
        for after in [0, 1, 2, 3, 5, 10, 30, 80, 82, 84, 90] {
            let mut w = World::new(5).members(3);
            w.run_for(Duration::from_millis(after));
            w.crash(victim);
            w.run_for(Duration::from_millis(50));
            w.restart(victim);
            w.settle();
        }
    }
}

/// Issue: a rolling upgrade from the first release that lives together with this one, and from the
/// release before this one.
#[test]
fn a_view_has_the_version_of_its_oldest_release_until_that_is_replaced() {
    for older in VERSIONS.lowest..VERSIONS.highest {
        let mut w = World::new(13).members(3).older(&[0, 2], older);
        w.settle();
        let version = |w: &World| w.latest_view().map(|view| view.version);
        for site in [0, 2] {
            assert_eq!(version(&w), Some(older), "m{site} is not replaced yet");
            w.crash(site);
            w.run_for(Duration::from_millis(300));
            w.restart(site);
            w.settle();
        }
        assert_eq!(version(&w), Some(VERSIONS.highest));
    }
}

/// Issue: join.
#[test]
fn joiners_come_in_and_are_the_youngest() {
    let mut w = World::new(6).members(3).joiners(3);
    w.settle();
    let oldest = w.in_view();
    for site in 3..6 {
        w.start(site);
        w.settle();
    }
    assert_eq!(w.in_view()[..3], oldest[..]);
    assert_eq!(w.in_view().len(), 6);
}

/// Issue: ten members started at once.
#[test]
fn many_joiners_at_once_come_in() {
    let mut w = World::new(7).members(2).joiners(8);
    w.settle();
    (2..10).for_each(|site| w.start(site));
    w.settle();
    assert_eq!(w.in_view().len(), 10);
}

/// A member that says goodbye is not waited for.
#[test]
fn a_leaving_member_is_gone_at_once_and_so_are_its_locks() {
    let mut w = World::new(8).members(3).timing(Timing::lan());
    w.settle();
    let a = w.hold_lock(1, "s", "x");
    let b = w.lock(2, "s", "x");
    w.leave(1);
    w.expect_within("the next waiter has it", Duration::from_millis(500), |w| w.is_granted(b));
    assert!(w.lost(a).is_some());
    w.expect_within("the view is without it", Duration::from_millis(500), |w| {
        w.in_view().len() == 2
    });
    w.settle();
}

/// The elder leaves.
#[test]
fn the_elder_leaves_and_the_next_oldest_is_elder() {
    let mut w = World::new(9).members(3);
    w.settle();
    let order = w.in_view();
    w.leave(order[0]);
    w.settle();
    assert_eq!(w.elder(), order[1]);
}

/// The elder says goodbye while it receives nothing.
#[test]
fn an_elder_that_receives_nothing_can_leave() {
    let mut w = World::new(10).members(3);
    w.settle();
    let elder = w.elder();
    w.isolate(elder);
    w.run_for(Duration::from_millis(2_000));
    w.leave(elder);
    w.expect("it is gone", |w| !w.is_alive(elder));
    assert_eq!(w.was_heard(elder), Some(false));
    w.heal();
    w.settle();
}

/// A member that says goodbye has something to do at one instant for ever.
#[test]
fn a_member_that_leaves_with_locks_held_waits_for_the_word() {
    let mut w = World::new(11).members(3);
    w.settle();
    for site in 0..3 {
        w.hold_lock(site, "s", &format!("x{site}"));
    }
    let youngest = w.in_view()[2];
    w.leave(youngest);
    w.expect("it is gone", |w| !w.is_alive(youngest));
}

/// An elder that decided its own leaving and stays until others know sees the view
/// after that as well.
#[test]
fn an_elder_that_leaves_has_left_and_is_not_expelled() {
    let mut w = World::new(12).members(3).joiners(1);
    w.settle();
    let elder = w.elder();
    let other = w.in_view()[1];
    let pulse = w.hold_kind(elder, other, "Pulse");
    w.expect("a pulse is on its way", |w| w.matched(pulse) > 0);
    let unheard = w.hold(move |flight| flight.to == elder && kind(flight.packet) == "HelloReply");
    w.leave(elder);
    w.run_for(Duration::from_millis(20));
    w.start(3);
    // `leaving_member_is_not_expelled` is looked at with every event.
    w.expect("the next view is there", |w| {
        w.latest_view().is_some_and(|view| view.members.len() == 3)
    });
    w.run_for(Duration::from_millis(100));
    w.let_go(pulse);
    w.run_for(Duration::from_millis(100));
    w.let_go(unheard);
    w.expect("it is gone", |w| !w.is_alive(elder));
}

/// When all say goodbye at once, the elder is the last to go; a view has a living member.
#[test]
fn all_members_may_leave_at_once() {
    for count in [2, 3, 5] {
        let mut w = World::new(40 + count as u64).members(count);
        w.settle();
        for site in w.sites() {
            w.leave(site);
        }
        w.expect("all have left", |w| w.sites().all(|site| !w.is_alive(site)));
        assert!(w.sites().all(|site| w.was_heard(site) == Some(true)));
        assert!(w.broken().is_none());
    }
}

/// The only voter goes: it tells its successor as voter before it does.
#[test]
fn an_only_voter_that_leaves_hands_its_vote_on() {
    for silent in [None, Some(1)] {
        let mut w = World::new(13).members(4).council(1);
        w.settle();
        let order = w.in_view();
        let held = w.hold_lock(order[3], "s", "x");
        if let Some(age) = silent {
            w.isolate(order[age]);
            w.run_for(Timing::fast().elder_lease);
        }
        w.leave(order[0]);
        w.expect("it has left", |w| !w.is_alive(order[0]));
        assert_eq!(w.was_heard(order[0]), Some(true));
        w.heal();
        w.settle();
        assert_eq!(w.in_view(), order[1..]);
        assert!(w.fence(held).is_some());
    }
}

/// The only voter goes, and its successor as voter has crashed just before: the voter waits until
/// another member shows itself. A member that it heard lately does not count, and refused
/// connections do not pass for an answer.
#[test]
fn an_only_voter_that_leaves_does_not_leave_its_vote_to_the_dead() {
    let mut w = World::new(14).members(4).council(1).hosts(&[0, 1, 2, 3]);
    w.settle();
    let order = w.in_view();
    let held = w.hold_lock(order[3], "s", "x");
    w.crash(order[1]);
    w.leave(order[0]);
    w.expect("it has left", |w| !w.is_alive(order[0]));
    assert_eq!(w.was_heard(order[0]), Some(true));
    w.expect("the rest goes on", |w| w.in_view() == order[2..]);
    assert!(w.fence(held).is_some());
}

/// A deployment that restarts every seed at once: the members that live on greet the seeds, and so
/// no second cluster is founded beside them.
#[test]
fn seeds_that_all_restart_at_once_find_the_cluster_that_lives_on() {
    let mut w = World::new(50).members(2).joiners(5);
    w.settle();
    for joiner in 2..7 {
        w.start(joiner);
    }
    w.settle();
    let lineage = w.view(6).map(|view| view.lineage);
    for seed in [0, 1] {
        w.leave(seed);
    }
    w.expect("both have left", |w| !w.is_alive(0) && !w.is_alive(1));
    w.start(0);
    w.start(1);
    w.settle();
    assert!(w.sites().all(|site| w.view(site).map(|view| view.lineage) == lineage));
}

/// An elder goes while others come: an elder that decides a view without itself needs the consent
/// of that view's council.
#[test]
fn an_elder_goes_although_others_come_or_go_at_the_same_moment() {
    for (count, leavers, joiners) in [(2, 1, 3), (11, 5, 2)] {
        let mut w = World::new(51 + count as u64).members(count).joiners(joiners);
        w.settle();
        for joiner in count..count + joiners {
            w.start(joiner);
        }
        for site in w.in_view().into_iter().take(leavers) {
            w.leave(site);
        }
        w.expect("they have left", |w| {
            w.sites().filter(|site| w.is_alive(*site)).count() == count - leavers + joiners
        });
        w.expect("the rest is one cluster", |w| {
            let rest: Vec<usize> = w.sites().filter(|site| w.is_alive(*site)).collect();
            rest.iter().all(|site| w.is_ready(*site)) && w.in_view().len() == rest.len()
        });
    }
}

/// When all go at nearly the same moment, each has its goodbye heard, or no member is left to hear
/// it. No member waits for its lease.
#[test]
fn when_all_leave_at_nearly_once_no_member_waits_long() {
    for seed in 0..400 {
        let count = 2 + seed as usize % 5;
        let mut w = World::new(4_000 + seed).members(count);
        w.settle();
        for site in w.sites() {
            w.run_for(Duration::from_micros(
                elderlock_sim::chance::mix(&[seed, site as u64]) % 4_000,
            ));
            w.leave(site);
        }
        let limit = Timing::fast().member_lease / 2;
        w.expect_within(&format!("seed {seed}: {count} have left"), limit, |w| {
            w.sites().all(|site| !w.is_alive(site))
        });
        assert!(w.sites().all(|site| w.was_heard(site) == Some(true)), "seed {seed}");
    }
}

/// One member founds alone, uses up view after view, is killed and founds again at once, over and
/// over. Every token is higher than all before it, and none comes twice.
#[test]
fn foundings_that_follow_each_other_at_once_deal_higher_tokens() {
    let limits = Limits { first_range: 4, max_range: 8, view_tokens: 8, ..Limits::DEFAULT };
    for gap in [0, 1, 7, 400] {
        let (tokens, broken) =
            found_again_and_again(World::new(6).members(1).found_alone(0).limits(limits), gap, 8);
        assert_eq!(broken, None, "{gap} ms between a death and the next founding");
        assert!(
            tokens.len() > 300 && tokens.is_sorted_by(|one, next| one < next),
            "{gap}: {}",
            tokens.len()
        );
    }
}

/// A founder and ten joiners within 10 ms make a view each, all are killed, and the founder founds
/// again at once. The views must not have outrun the clock.
#[test]
fn tokens_do_not_go_back_after_many_views_in_a_short_time() {
    for gap in [0, 3, 50] {
        let mut w = World::new(60 + gap).members(11).asleep().found_alone(0);
        w.start(0);
        for joiner in 1..11 {
            w.run_for(Duration::from_millis(1));
            w.start(joiner);
        }
        w.expect("all are in", |w| w.in_view().len() == 11);
        let asks: Vec<_> =
            (0..11).map(|site| w.hold_lock(site, &format!("s{site}"), "x")).collect();
        let before = asks.iter().filter_map(|ask| w.token(*ask)).max();
        for site in 0..11 {
            w.crash(site);
        }
        w.run_for(Duration::from_millis(gap));
        w.start(0);
        w.expect("it founds again", |w| w.is_ready(0));
        let after = w.hold_lock(0, "s0", "x");
        assert!(w.token(after) > before, "{gap} ms: {:?} after {before:?}", w.token(after));
    }
}

/// Two members that found alone at once, cut off from each other, deal equal tokens. Each pair of
/// token and lineage is granted once, and a resource that both write to takes only one of two equal
/// tokens. When they meet, the later lineage goes on, above all that either of them dealt.
#[test]
fn lineages_that_live_at_once_share_numbers_and_no_write() {
    let (mut equal, mut refused) = (0, 0);
    for seed in 0..40 {
        let mut w = World::new(900 + seed).members(2).asleep().two_lineages_may_meet();
        w = w.found_alone(0).found_alone(1);
        w.split(&[0]);
        w.start(0);
        w.run_for(Duration::from_micros(elderlock_sim::chance::mix(&[seed]) % 2_000));
        w.start(1);
        w.expect("both have founded", |w| w.is_ready(0) && w.is_ready(1));
        let mut seen: Vec<(Token, usize)> = Vec::new();
        for round in 0..20 {
            let asks = [0, 1].map(|site| w.hold_lock(site, "s", "x"));
            let writes = if round % 2 == 0 { [0, 1] } else { [1, 0] };
            for site in writes {
                let token = w.token(asks[site]).expect("it is held");
                equal += usize::from(seen.contains(&(token, 1 - site)));
                assert!(
                    !seen.contains(&(token, site)),
                    "seed {seed}: {token:?} comes twice at m{site}"
                );
                let highest = seen.iter().map(|(token, _)| *token).max();
                let taken = w.write_with(asks[site], token);
                assert_eq!(
                    taken,
                    highest.is_none_or(|highest| token > highest),
                    "seed {seed}: {token:?}"
                );
                refused += usize::from(!taken);
                seen.push((token, site));
            }
            for ask in asks {
                w.release(ask);
            }
        }
        w.heal();
        w.settle();
        let after = w.hold_lock(0, "s", "x");
        assert!(seen.iter().all(|(token, _)| Some(*token) < w.token(after)), "seed {seed}");
    }
    assert!(equal > 100 && refused > 100, "{equal} equal tokens, {refused} writes refused");
}

/// Sites found alone, up to a second apart or at once, again and again, with views of few tokens or
/// ranges of whole slots. No token of a lineage comes twice. A founding deals above all that any
/// lineage had dealt before it. A fenced table takes the writes that it should.
#[test]
fn foundings_at_random_deal_above_all_that_was_dealt_before() {
    let mut seen = Foundings::default();
    for seed in 0..36 {
        let found = found_at_random(founders(seed), seed);
        seen.add(&found.unwrap_or_else(|wrong| panic!("seed {seed}: {wrong}")));
    }
    assert!(seen.foundings > 600 && seen.granted > 3_000, "{seen:?}");
    assert!(seen.equal > 10 && seen.refused > 100, "{seen:?}");
}

/// Slots halve with each view that is not used up. So members that join in quick succession after a
/// burst of services do not make ranges wait for seconds.
#[test]
fn views_that_follow_a_long_one_do_not_run_ahead_of_the_clock() {
    let limits = Limits { first_range: 1 << 26, ..Limits::DEFAULT };
    let mut w = World::new(80).members(13).asleep().found_alone(0).limits(limits);
    w.start(0);
    w.expect("it founds", |w| w.is_ready(0));
    for number in 0..160 {
        w.hold_lock(0, &format!("s{number}"), "x");
    }
    let longest = w.view(0).map_or(0, |view| view.slots);
    assert!(longest >= 512, "{longest} slots: the burst needs long views");
    for joiner in 1..13 {
        w.start(joiner);
        w.expect("it has joined", |w| w.is_ready(joiner));
    }
    let next = w.lock(0, "another", "x");
    w.expect_within("no range waits for long", Duration::from_secs(2), |w| w.is_granted(next));
}

/// The planted breaks of the rules of foundings.
#[cfg(elderlock_mutants)]
#[test]
fn planted_breaks_of_foundings_deal_tokens_that_were_dealt() {
    use elderlock::protocol::mutant::ProtocolMutant;
    let limits = Limits { first_range: 4, max_range: 8, view_tokens: 8, ..Limits::DEFAULT };
    let world = World::new(6)
        .members(1)
        .found_alone(0)
        .limits(limits)
        .mutant(ProtocolMutant::FoundAtTheClock);
    let (tokens, broken) = found_again_and_again(world.lenient(), 0, 64);
    assert!(broken.is_some() || !tokens.is_sorted_by(|one, next| one < next));

    for mutant in [ProtocolMutant::FoundAtTheClock, ProtocolMutant::DealBeyondLimit] {
        let is_found = |seed| found_at_random(founders(seed).mutant(mutant), seed).is_err();
        assert!((0..36).any(is_found), "{mutant:?} is not found");
    }
}

/// One to three sites that found alone, cut off from each other.
fn founders(seed: u64) -> World {
    let limits = match seed % 3 {
        0 => Limits { first_range: 4, max_range: 8, view_tokens: 8, ..Limits::DEFAULT },
        1 => Limits { first_range: 1 << 22, ..Limits::DEFAULT },
        _ => Limits { first_range: 1 << 26, ..Limits::DEFAULT },
    };
    let sites = 1 + (seed / 3 % 3) as usize;
    let mut w = World::new(7_000 + seed).members(sites).asleep().lenient().limits(limits);
    for site in 0..sites {
        w = w.found_alone(site);
    }
    // Each of several founders has a lineage of its own at the same time.
    if sites > 1 { w.two_lineages_may_meet() } else { w }
}

/// The sums of random foundings.
#[derive(Default, Debug)]
struct Foundings {
    foundings: usize,
    granted: usize,
    /// Tokens that two lineages dealt.
    equal: usize,
    /// Writes that the fenced table refused.
    refused: usize,
}

impl Foundings {
    fn add(&mut self, other: &Foundings) {
        self.foundings += other.foundings;
        self.granted += other.granted;
        self.equal += other.equal;
        self.refused += other.refused;
    }
}

/// Starts, kills and uses the sites at random. `Err` names the broken rule.
fn found_at_random(mut w: World, seed: u64) -> Result<Foundings, String> {
    let mut drawn = 0;
    let mut draw = |below: u64| {
        drawn += 1;
        elderlock_sim::chance::mix(&[seed, drawn]) % below
    };
    w.sites().for_each(|site| w.isolate(site));
    let mut seen = Foundings::default();
    // The granted tokens, each with the founder of its lineage.
    let mut granted: BTreeSet<(Token, ProcessId)> = BTreeSet::new();
    // The highest token of each lineage, by its first slot, when the process at each site began.
    let mut before = vec![BTreeMap::new(); w.sites().len()];
    let mut highest: BTreeMap<Slot, Token> = BTreeMap::new();
    let mut table: BTreeMap<String, (Token, ProcessId)> = BTreeMap::new();
    for _ in 0..80 {
        if draw(2) == 0 {
            w.run_for(Duration::from_micros(draw(1_000_000)));
        }
        let site = draw(w.sites().len() as u64) as usize;
        if !w.is_alive(site) {
            before[site] = highest.clone();
            w.start(site);
            w.run_until(|w| w.is_ready(site), Duration::from_secs(30));
            seen.foundings += 1;
        } else if draw(3) == 0 {
            w.crash(site);
            continue;
        }
        for _ in 0..draw(40) {
            let service = format!("s{}", draw(400));
            let ask = w.lock(site, &service, "x");
            w.run_until(|w| w.is_answered(ask), Duration::from_secs(30));
            if let Some(broken) = w.broken() {
                return Err(format!("{broken:?}"));
            }
            let lineage = w.view(site).map(|view| view.lineage);
            let (Some(token), Some(lineage)) = (w.token(ask), lineage) else {
                return Err(format!("m{site} gets no lock of {service}"));
            };
            seen.granted += 1;
            // Foundings by clocks that show one slot begin at one slot.
            let earlier = before[site].range(..lineage.founded).map(|(_, token)| *token).max();
            if earlier >= Some(token) {
                return Err(format!("{token:?} is dealt after {earlier:?} of an earlier lineage"));
            }
            let last = highest.entry(lineage.founded).or_insert(token);
            *last = token.max(*last);
            let lineage = lineage.founder;
            seen.equal += usize::from(granted.iter().any(|(other, _)| *other == token));
            if !granted.insert((token, lineage)) {
                return Err(format!("{token:?} comes twice in {lineage:?}"));
            }
            let pair = (token, lineage);
            let is_newer = |(last, of): &(Token, ProcessId)| {
                token > *last || (token == *last && lineage == *of)
            };
            let takes = table.get(&service).is_none_or(is_newer);
            if w.write_with(ask, token) != takes {
                return Err(format!("the table of {service} takes {pair:?}: {}", !takes));
            }
            seen.refused += usize::from(!takes);
            if takes {
                table.insert(service, pair);
            }
            w.release(ask);
        }
    }
    w.broken().map_or(Ok(seen), |broken| Err(format!("{broken:?}")))
}

fn found_again_and_again(mut w: World, gap: u64, asks: u32) -> (Vec<Token>, Option<String>) {
    let mut tokens = Vec::new();
    for round in 0..12 {
        w.run_for(Duration::from_millis(1));
        for _ in 0..asks * round {
            let ask = w.try_lock(0, "s", "x");
            if let Some(token) = w.token(ask) {
                tokens.push(token);
                w.release(ask);
            }
            w.run_for(Duration::from_micros(50));
        }
        w.crash(0);
        w.run_for(Duration::from_millis(gap));
        w.restart(0);
    }
    (tokens, w.broken().map(|broken| format!("{broken:?}")))
}

/// How often each site has ended because its clock is too far behind.
fn ended_for_clocks(w: &World) -> Vec<usize> {
    let ends = w.record().lines.iter().filter_map(|line| match &line.entry {
        Entry::End { how } if how == "wrong_clock" => line.site,
        _ => None,
    });
    let ends: Vec<usize> = ends.collect();
    w.sites().map(|site| ends.iter().filter(|end| **end == site).count()).collect()
}

/// A lineage more than an hour above the own clock is refused, and says so.
#[test]
fn clusters_that_are_more_than_an_hour_ahead_are_not_joined() {
    for (ahead, joins) in [(3_590_000, true), (3_700_000, false)] {
        let mut w = World::new(7).members(2).asleep().found_alone(0);
        w.step_wall_clock(0, ahead);
        w.start(0);
        w.run_for(Duration::from_secs(1));
        w.start(1);
        w.run_for(Duration::from_secs(10));
        assert_eq!(
            (w.is_ready(1), w.is_alive(1)),
            (joins, joins),
            "{ahead}: it ends, for its clock"
        );
        assert_eq!(ended_for_clocks(&w), [0, usize::from(!joins)]);
    }
}

/// The first of three seeds proposes a founding more than an hour above the clocks of the others.
#[test]
fn seeds_do_not_found_more_than_an_hour_above_their_clocks() {
    for (ahead, founds) in [(3_590_000, true), (3_700_000, false)] {
        let mut w = World::new(7).members(3).asleep();
        w.step_wall_clock(0, ahead);
        (0..3).for_each(|site| w.start(site));
        w.run_for(Duration::from_secs(1));
        assert_eq!(w.view(0).is_some(), founds, "{ahead}: the others have not agreed");
        assert_eq!(ended_for_clocks(&w), if founds { [0, 0, 0] } else { [0, 1, 1] }, "{ahead}");
    }
}

/// Two members found with clocks that are ahead, and both are killed. One starts again with its
/// clock put right, and an operator forces it to found above the view that its directory remembers.
#[test]
fn a_forced_founding_more_than_an_hour_above_the_clock_is_refused() {
    for (ahead, founds) in [(3_500_000, true), (3_700_000, false)] {
        let mut w = World::new(8).members(2).durable().asleep();
        for site in 0..2 {
            w.step_wall_clock(site, ahead);
            w.start(site);
        }
        w.settle();
        for site in 0..2 {
            w.crash(site);
        }
        w.step_wall_clock(0, -ahead);
        w.start(0);
        w.run_for(Duration::from_secs(1));
        let lineage = |w: &World| w.disk(0).map(|vote| vote.view.lineage);
        let before = lineage(&w);
        w.force(0);
        w.run_for(Duration::from_secs(10));
        assert_eq!((w.is_ready(0), lineage(&w) != before), (founds, founds), "{ahead}");
        assert_eq!(ended_for_clocks(&w), [usize::from(!founds), 0], "{ahead}");
    }
}

/// A member that is alone in its view starts again on its directory, with its clock put right. The
/// next view of its cluster is above the last one.
#[test]
fn a_view_more_than_an_hour_above_the_clock_is_not_installed() {
    for (ahead, goes_on) in [(3_500_000, true), (3_700_000, false)] {
        let mut w = World::new(9).members(1).durable().asleep();
        w.step_wall_clock(0, ahead);
        w.start(0);
        w.settle();
        let before = w.view(0).map(|view| view.lineage);
        w.crash(0);
        w.step_wall_clock(0, -ahead);
        w.start(0);
        w.run_for(Duration::from_secs(10));
        assert_eq!(w.view(0).map(|view| view.lineage), before.filter(|_| goes_on), "{ahead}");
        assert_eq!(ended_for_clocks(&w), [usize::from(!goes_on)], "{ahead}");
    }
}

/// All seeds start again while members at other addresses go on without them. Without a key no
/// address that they know proves the cluster to them: after a while they believe the members that
/// greet them.
#[test]
fn seeds_that_all_start_again_find_a_cluster_without_a_key() {
    let mut w = World::new(61).members(2).joiners(1).keyless();
    w.start(2);
    w.settle();
    for seed in [0, 1] {
        w.leave(seed);
        w.run_for(Duration::from_secs(5));
    }
    let lineage = w.view(2).map(|view| view.lineage);
    assert_eq!(w.view(2).map(|view| view.members.len()), Some(1));
    w.start(0);
    w.start(1);
    w.expect("both seeds are members of the cluster that went on", |w| {
        [0, 1].iter().all(|seed| w.is_ready(*seed))
            && [0, 1].iter().all(|seed| w.view(*seed).map(|view| view.lineage) == lineage)
    });
    w.settle();
}

/// A founder that no seed list of its own names another process to is cut off until it is expelled.
/// Without a key it knows the others only from the view that expelled it, and joins them again.
#[test]
fn a_founder_without_other_seeds_comes_back_without_a_key() {
    let mut w = World::new(63).members(1).joiners(2).keyless();
    for joiner in [1, 2] {
        w.start(joiner);
    }
    w.settle();
    let founder = w.process(0);
    w.pause(0);
    w.expect("it is expelled", |w| w.latest_view().is_some_and(|view| !view.contains(founder)));
    w.resume(0);
    w.expect("it is a member again", |w| w.is_ready(0) && w.process(0) != founder);
    w.settle();
    assert_eq!(w.in_view().len(), 3);
}

/// A joiner is taken in and does not hear of it. Meanwhile views come and go until none of them
/// names it among the departed any more. It does not come back under the same id.
#[test]
fn a_joiner_that_was_taken_in_unheard_comes_back_as_another_process() {
    let mut w = World::new(62).members(2).joiners(2);
    w.settle();
    w.start(2);
    let joiner = w.process(2);
    w.expect("it knows of the cluster", |w| w.said_at(2, "HelloReply"));
    for member in [0, 1] {
        w.cut_one_way(member, 2);
    }
    w.expect("it is taken in", |w| w.latest_view().is_some_and(|view| view.contains(joiner)));
    for member in [0, 1] {
        w.cut_one_way(2, member);
    }
    w.expect("it is removed", |w| w.latest_view().is_some_and(|view| !view.contains(joiner)));
    let number = |w: &World| w.latest_view().expect("they go on").number.0;
    let before = number(&w);
    while number(&w) < before + 20 {
        w.start(3);
        w.expect("another one joins", |w| w.is_ready(3));
        w.leave(3);
        w.expect("it left", |w| !w.is_alive(3));
    }
    assert_eq!(w.process(2), joiner);
    for member in [0, 1] {
        w.mend_one_way(2, member);
        w.mend_one_way(member, 2);
    }
    w.expect("it is a member", |w| w.is_ready(2));
    assert_ne!(w.process(2), joiner);
}
