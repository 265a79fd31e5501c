//! Searches a scope with stateright, and describes the result.

use crate::check::scope::{Move, Scope, ScopeState};
use crate::kind::kind;
use crate::step::{OutsideHint, Step};
use crate::world::{Violation, World};
use stateright::{Checker, HasDiscoveries, Model, Property};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// The limits at which a search is given up.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// The longest time that a search may take.
    pub time: Duration,
    /// The highest number of different states.
    pub states: u64,
    /// How many threads search. With one, the way to a break is a shortest one; with more, nearly.
    pub threads: usize,
    /// Breadth first: the way to a break is a shortest one (with several threads: nearly).
    /// Otherwise depth first, which needs hardly any memory except for the fingerprints of states.
    pub shortest: bool,
}

/// The result of a search.
#[derive(Debug)]
pub struct SearchResult {
    /// Moves made.
    pub moves: usize,
    /// Different states.
    pub states: usize,
    /// The longest of the shortest ways to a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Whether everything within the bounds of the scope was searched.
    pub complete: bool,
    /// States that were reached, but from which a limit kept the search from going on.
    pub unexplored: u64,
    /// States from which no move leads on.
    pub ends: u64,
    /// How often the premise of each invariant held on the way to an end, added up over the ends.
    pub premises: BTreeMap<&'static str, u64>,
    /// A way to a broken invariant.
    pub broken: Option<Counterexample>,
}

/// A way to a broken invariant.
#[derive(Clone, Debug)]
pub struct Counterexample {
    /// The violation.
    pub broken: Violation,
    /// The moves, in order.
    pub moves: Vec<Move>,
}

/// A search: a scope, and the function that prepares its Worlds.
#[derive(Clone)]
pub struct ScopeModel {
    scope: Scope,
    prepare: Arc<dyn Fn(World) -> World + Send + Sync>,
}

struct Search {
    scope: Scope,
    first: ScopeState,
    until: Instant,
    left: AtomicU64,
    cut: AtomicU64,
    found: OnceLock<(ScopeState, Violation)>,
    ends: AtomicU64,
    premises: Mutex<BTreeMap<&'static str, u64>>,
}

impl ScopeModel {
    /// A search of `scope`. Every World of it goes through `prepare` first.
    pub fn new(
        scope: Scope,
        prepare: impl Fn(World) -> World + Send + Sync + 'static,
    ) -> ScopeModel {
        ScopeModel { scope, prepare: Arc::new(prepare) }
    }

    /// Searches everything within the bounds of the scope, and stops at the first break. `look`
    /// gets the progress now and then: moves and states so far.
    pub fn run(&self, limits: SearchLimits, look: impl FnMut(usize, usize)) -> SearchResult {
        let started = Instant::now();
        let first = match catch_unwind(AssertUnwindSafe(|| {
            self.scope.first(|world| (self.prepare)(world))
        })) {
            Ok(first) => first,
            Err(panic) => {
                return SearchResult::before(started, panic.downcast_ref::<String>().cloned());
            }
        };
        let search = Search {
            scope: self.scope.clone(),
            first,
            until: started + limits.time,
            left: AtomicU64::new(limits.states),
            cut: AtomicU64::new(0),
            found: OnceLock::new(),
            ends: AtomicU64::new(0),
            premises: Mutex::default(),
        };
        let checker =
            search.checker().threads(limits.threads).finish_when(HasDiscoveries::AnyFailures);
        if limits.shortest {
            self.watch(started, checker.spawn_bfs(), look)
        } else {
            self.watch(started, checker.spawn_dfs(), look)
        }
    }

    fn watch(
        &self,
        started: Instant,
        checker: impl Checker<Search>,
        mut look: impl FnMut(usize, usize),
    ) -> SearchResult {
        while !checker.is_done() {
            std::thread::sleep(Duration::from_millis(5));
            look(checker.state_count(), checker.unique_state_count());
        }
        // The model keeps the first break; the checker may have written a later one over it.
        let trail = checker.discoveries().into_values().next().map(stateright::Path::into_actions);
        let search = checker.model();
        let broken = trail.map(|moves| {
            let end =
                moves.iter().fold(search.first.clone(), |state, what| self.scope.go(&state, what));
            let broken = end.world.broken().cloned().expect("the way leads to a break");
            Counterexample { broken, moves }
        });
        let unexplored = search.cut.load(Ordering::Relaxed);
        SearchResult {
            moves: checker.state_count(),
            states: checker.unique_state_count(),
            depth: checker.max_depth(),
            took: started.elapsed(),
            complete: broken.is_none() && unexplored == 0,
            unexplored,
            ends: search.ends.load(Ordering::Relaxed),
            premises: search.premises.lock().unwrap_or_else(PoisonError::into_inner).clone(),
            broken,
        }
    }

    /// The way in words, with the events of each move.
    pub fn tell(&self, trail: &Counterexample) -> String {
        let mut state = self.scope.first(|world| (self.prepare)(world));
        state.world.trace_from_here();
        let mut text = String::new();
        for (number, what) in trail.moves.iter().enumerate() {
            text += &format!("{:>3}. {}\n", number + 1, described(&state.world, what));
            state = self.scope.go(&state, what);
            for line in state.world.take_trace() {
                text += &format!("       {line}\n");
            }
        }
        text
    }
}

/// Returns a move in words.
fn described(world: &World, what: &Move) -> String {
    let packet = |number: usize| {
        let under_way = world.under_way().nth(number);
        under_way.map_or_else(String::new, |(_, parcel)| {
            format!("{} from m{} to m{}", kind(&parcel.packet), parcel.from, parcel.to)
        })
    };
    match what {
        Move::Leap(span) => format!("{span:?} pass"),
        Move::Step(Step::Deliver(number)) => format!("{} arrives", packet(*number)),
        Move::Step(Step::Lose(number)) => format!("{} is lost", packet(*number)),
        Move::Step(Step::Double(number)) => format!("{} is doubled", packet(*number)),
        Move::Step(Step::Timer(site)) => format!("the timer of m{site} goes off"),
        Move::Step(Step::Ask { call, site, .. }) => {
            format!("a client at m{site} asks for the lock (call {call})")
        }
        Move::Step(Step::Release(call)) => format!("call {call} is released"),
        Move::Step(Step::Crash(site)) => format!("m{site} is killed"),
        Move::Step(Step::Start(site)) => format!("a process starts at m{site}"),
        Move::Step(Step::LoseDisk(site)) => format!("the data directory of m{site} is lost"),
        Move::Step(Step::Pause(site)) => format!("m{site} is stopped"),
        Move::Step(Step::Wake(site)) => format!("m{site} wakes"),
        Move::Step(Step::Leave(site)) => format!("m{site} says goodbye"),
        Move::Step(Step::Notice { at, about, what: OutsideHint::Dead }) => {
            format!("m{at} sees that m{about} has ended")
        }
        Move::Step(Step::Notice { at, about, .. }) => {
            format!("gossip tells m{at} that m{about} is unreachable")
        }
        Move::Step(other) => format!("{other:?}"),
    }
}

impl SearchResult {
    /// The World broke before the search began.
    fn before(started: Instant, panic: Option<String>) -> SearchResult {
        let what = panic.unwrap_or_else(|| "a panic".to_string());
        let broken = Violation {
            invariant: "no_panic",
            what: format!("before the search began: {what}"),
            at: 0,
            lock: None,
        };
        SearchResult {
            moves: 0,
            states: 0,
            depth: 0,
            took: started.elapsed(),
            complete: false,
            unexplored: 0,
            ends: 0,
            premises: BTreeMap::new(),
            broken: Some(Counterexample { broken, moves: Vec::new() }),
        }
    }
}

impl Model for Search {
    type State = ScopeState;
    type Action = Move;

    fn init_states(&self) -> Vec<ScopeState> {
        vec![self.first.clone()]
    }

    fn actions(&self, state: &ScopeState, actions: &mut Vec<Move>) {
        let spent = |left: u64| left.checked_sub(1);
        let is_out = self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, spent).is_err();
        if is_out || Instant::now() > self.until {
            self.cut.fetch_add(1, Ordering::Relaxed);
            return;
        }
        actions.extend(self.scope.moves(state));
        if actions.is_empty() {
            self.ends.fetch_add(1, Ordering::Relaxed);
            let mut premises = self.premises.lock().unwrap_or_else(PoisonError::into_inner);
            for (name, count) in state.world.premises() {
                *premises.entry(name).or_default() += count;
            }
        }
    }

    fn next_state(&self, state: &ScopeState, what: Move) -> Option<ScopeState> {
        Some(self.scope.go(state, &what))
    }

    fn properties(&self) -> Vec<Property<Self>> {
        // The checker would replace the first break by later ones, so only the first one counts.
        vec![Property::always("every invariant holds", |search: &Search, state: &ScopeState| {
            let Some(broken) = state.world.broken() else { return true };
            let (first, _) = search.found.get_or_init(|| (state.clone(), broken.clone()));
            first != state
        })]
    }
}
