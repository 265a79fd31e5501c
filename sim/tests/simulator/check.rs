//! The model checker sees everything within its bounds, and can fail.

use elderlock_sim::check::{Scope, ScopeModel, SearchLimits, SearchResult, scopes};
use std::time::Duration;

const LIMITS: SearchLimits =
    SearchLimits { time: Duration::from_secs(120), states: 100_000, threads: 1, shortest: true };

fn search(scope: &Scope, limits: SearchLimits) -> SearchResult {
    ScopeModel::new(scope.clone(), |world| world).run(limits, |_, _| {})
}

#[track_caller]
fn holds(scope: &Scope) -> SearchResult {
    let found = search(scope, LIMITS);
    assert!(found.complete && found.broken.is_none(), "{found:?}");
    found
}

/// A lock is moved when its holder is cut off, by leases alone, and at any time there is one
/// holder.
#[test]
fn a_holder_that_is_cut_off_never_shares_its_lock_in_any_order() {
    // The first grant is from before the search, so tokens rise only with a second grant.
    assert!(holds(&scopes::LATE).premises["tokens_rise"] > 0);
    // The founder is the elder on every way; on some ways another elder follows it.
    let found = holds(&scopes::GHOST);
    assert!(found.premises["one_elder_per_view"] > found.ends, "{found:?}");
}

/// The order of the search does not matter to the states found, and neither does the number of
/// threads.
#[test]
fn depth_first_and_breadth_first_find_the_same_states() {
    let broad = holds(&scopes::GHOST);
    for threads in [1, 2] {
        let deep = search(&scopes::GHOST, SearchLimits { shortest: false, threads, ..LIMITS });
        assert_eq!((broad.states, broad.moves, broad.ends), (deep.states, deep.moves, deep.ends));
    }
}

/// A search that a limit ends does not report itself as complete.
#[test]
fn a_search_that_was_cut_says_so() {
    let found = search(&scopes::GHOST, SearchLimits { states: 20, ..LIMITS });
    assert!(!found.complete && found.broken.is_none());
}

/// Two moves that are independent of each other lead to the same state in either order, though not
/// to the same World.
#[test]
fn independent_steps_commute() {
    let scope = scopes::RUMOUR;
    let first = scope.first(|world| world);
    let find = |part: &str| {
        scope.moves(&first).into_iter().find(|what| format!("{what:?}").contains(part))
    };
    let (ask, rumour) =
        (find("Ask").expect("a client may ask"), find("Notice").expect("gossip may be wrong"));
    let (asked, told) = (scope.go(&first, &ask), scope.go(&first, &rumour));
    assert_ne!(asked, told);
    assert_eq!(scope.go(&asked, &rumour), scope.go(&told, &ask));
}

/// A planted break of the core is found, and the way to it is shown.
#[cfg(elderlock_mutants)]
#[test]
fn a_grantor_that_believes_gossip_is_found() {
    use elderlock::protocol::mutant::ProtocolMutant;
    let hunt = ScopeModel::new(scopes::RUMOUR, |world| world.mutant(ProtocolMutant::FreeOnHint));
    let trail = hunt.run(LIMITS, |_, _| {}).broken.expect("it breaks");
    assert_eq!(trail.broken.invariant, "exclusive_by_lease");
    let story = hunt.tell(&trail);
    assert!(
        story.contains("gossip tells m0 that m1 is unreachable") && story.contains("is broken"),
        "{story}"
    );
}
