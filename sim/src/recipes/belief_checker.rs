//! Collects the beliefs of the workloads and checks the recipes' invariants on them.
//!
//! A claim is checked at the instant at which it is made, against every other claim that is still
//! believed then. A belief is the token that `fence()` gives at that instant.

use super::workloads::revocations::WatchedHold;
use crate::chance::Digest;
use elderlock::Token;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash as _, Hasher as _};
use std::rc::Rc;
use tokio::sync::Notify;

/// The time after a fault within which each lost process is taken for dead and each lost grantor's
/// successor grants.
const AFTERMATH: u64 = 8_000_000_000;
/// The time after which each member has been told of everything, without faults.
const SETTLED: u64 = 1_000_000_000;

/// Lines of the story that are kept.
const LINES: usize = 4_000;

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RecipeViolation {
    /// Its name.
    pub invariant: &'static str,
    /// The observation.
    pub what: String,
    /// The time, in nanoseconds.
    pub at: u64,
}

/// The subject of a claim.
pub enum ClaimMode {
    /// The lock, alone.
    Lock,
    /// The lead of that name, alone.
    Lead,
    /// A share of the lock.
    Share,
    /// Some permits of the object.
    Permits {
        /// How many at present.
        many: Box<dyn Fn() -> u32>,
        /// When they were asked for.
        asked: u64,
    },
    /// The whole service, alone.
    Suspension,
}

impl std::fmt::Display for ClaimMode {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ClaimMode::Lock => f.write_str("the lock"),
            ClaimMode::Lead => f.write_str("the lead"),
            ClaimMode::Share => f.write_str("a share"),
            ClaimMode::Permits { many, .. } => write!(f, "{} permits", many()),
            ClaimMode::Suspension => f.write_str("the suspension"),
        }
    }
}

/// Gives the token while its holder may believe in it.
pub type Belief = Box<dyn Fn() -> Option<Token>>;

/// A limit that was in force, or may have been.
struct Limit {
    service: &'static str,
    limit: u32,
    /// The number of the write; 0: the initial limit.
    write: u64,
    /// The writer of the limit has a confirmation.
    is_written: bool,
    until: Option<u64>,
}

/// The service, the name and the version.
type Version = (&'static str, &'static str, Token);

/// A holder's use of the value of its lock.
struct ValueAccess {
    token: Token,
    /// The version that the holder read, and the version that it then wrote or read.
    versions: (Token, Token),
}

/// A stay at a double barrier.
struct BarrierStay {
    worker: u64,
    gone: Option<u64>,
    /// The worker's belief, from its entry until it begins to leave.
    belief: Option<Belief>,
}

impl BarrierStay {
    fn is_inside(&self) -> bool {
        self.belief.as_ref().is_some_and(|belief| belief().is_some())
    }
}

/// A latch counted down.
struct CountDown {
    worker: u64,
    latch: String,
    left: u32,
    at: u64,
    is_open: Box<dyn Fn() -> bool>,
}

/// The additions to the counter.
#[derive(Default)]
pub struct CounterSums {
    /// The sum of all additions that began, executed or not.
    pub begun: i64,
    /// The sum of the confirmed additions.
    pub confirmed: i64,
    /// The numbers before and after, by version, since the last fault.
    additions: BTreeMap<Token, (i64, i64)>,
}

struct Claim {
    service: &'static str,
    name: String,
    mode: ClaimMode,
    worker: u64,
    belief: Belief,
}

/// See the head of the module.
pub struct BeliefChecker {
    digest: RefCell<Digest>,
    story: RefCell<VecDeque<String>>,
    broken: RefCell<Option<RecipeViolation>>,
    claims: RefCell<Vec<Claim>>,
    highest: RefCell<BTreeMap<(&'static str, String), Token>>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
    limits: RefCell<Vec<Limit>>,
    /// The number of each version, and whether no fault was active when it was first seen.
    values: RefCell<BTreeMap<Version, (i32, bool)>>,
    /// The sums of the counter.
    pub sums: RefCell<CounterSums>,
    /// The ticks that a worker has begun and no worker has dropped.
    ticks: RefCell<BTreeSet<i64>>,
    /// The instants of touches by service and name.
    touched: RefCell<BTreeMap<(&'static str, &'static str), Vec<ValueAccess>>>,
    removals: Cell<u64>,
    /// When the last removal that was answered began and ended.
    removed: Cell<(u64, u64)>,
    /// The time until which a removal of the barrier may take effect, by the worker that removes
    /// it.
    removing: RefCell<BTreeMap<u64, u64>>,
    stays: RefCell<BTreeMap<u64, BarrierStay>>,
    troubles: Cell<u64>,
    undisturbed_from: Cell<u64>,
    count_downs: RefCell<BTreeMap<String, u64>>,
    counted: RefCell<Vec<CountDown>>,
    /// Revocable holds, by token.
    pub wanted: RefCell<BTreeMap<Token, Rc<WatchedHold>>>,
    /// Confirmed releases by token, with the time of the confirmation.
    confirmed: RefCell<BTreeMap<Token, u64>>,
    /// The name of the last confirmed release, and the workers that wait for the next one.
    confirming: (Cell<&'static str>, Notify),
    now: Box<dyn Fn() -> u64>,
    /// The faults are over and workers come to their end.
    pub ending: Cell<bool>,
}

impl BeliefChecker {
    /// An empty checker, with a clock.
    pub fn new(seed: u64, now: impl Fn() -> u64 + 'static) -> BeliefChecker {
        BeliefChecker {
            digest: RefCell::new(Digest::new(seed)),
            story: RefCell::default(),
            broken: RefCell::default(),
            claims: RefCell::default(),
            highest: RefCell::default(),
            counts: RefCell::default(),
            limits: RefCell::default(),
            values: RefCell::default(),
            sums: RefCell::default(),
            ticks: RefCell::default(),
            touched: RefCell::default(),
            removals: Cell::new(0),
            removed: Cell::default(),
            removing: RefCell::default(),
            stays: RefCell::default(),
            troubles: Cell::new(0),
            undisturbed_from: Cell::new(0),
            count_downs: RefCell::default(),
            counted: RefCell::default(),
            wanted: RefCell::default(),
            confirmed: RefCell::default(),
            confirming: (Cell::new(""), Notify::new()),
            now: Box::new(now),
            ending: Cell::new(false),
        }
    }

    /// The time in nanoseconds, by the clock of the run.
    pub fn now(&self) -> u64 {
        (self.now)()
    }

    /// Writes a line of the story, and mixes it into the digest.
    pub fn note(&self, line: impl FnOnce() -> String) {
        let (now, line) = (self.now(), line());
        let mut digest = self.digest.borrow_mut();
        (now, &line).hash(&mut *digest);
        let mut story = self.story.borrow_mut();
        if story.len() >= LINES {
            story.pop_front();
        }
        story.push_back(format!(
            "{:>6}.{:03} {line}",
            now / 1_000_000_000,
            now / 1_000_000 % 1_000
        ));
    }

    /// Mixes something into the digest.
    pub fn mix(&self, what: impl std::hash::Hash) {
        what.hash(&mut *self.digest.borrow_mut());
    }

    /// The last lines of the story.
    pub fn story(&self, lines: usize) -> String {
        let story = self.story.borrow();
        let kept: Vec<&str> = story.iter().rev().take(lines).rev().map(String::as_str).collect();
        kept.join("\n")
    }

    /// The digest of the run so far.
    pub fn digest(&self) -> u64 {
        self.digest.borrow().finish()
    }

    /// Counts an act of a worker or a use of a check.
    pub fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    /// How often each act and each use was counted.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.borrow().clone()
    }

    /// The invariant does not hold; the first violation counts.
    pub fn fail(&self, invariant: &'static str, what: impl Into<String>) {
        let found = RecipeViolation { invariant, what: what.into(), at: self.now() };
        self.note(|| format!("BREAK {}: {}", found.invariant, found.what));
        self.broken.borrow_mut().get_or_insert(found);
    }

    /// The first violation.
    pub fn broken(&self) -> Option<RecipeViolation> {
        self.broken.borrow().clone()
    }

    /// `worker` believes from now on. The claim is checked at once.
    pub fn claim(
        &self,
        worker: u64,
        service: &'static str,
        name: &str,
        mode: ClaimMode,
        belief: Belief,
    ) {
        // A hold that was lost before its first use is not a claim.
        let Some(token) = belief() else { return self.count("lost before use") };
        let mut claims = self.claims.borrow_mut();
        claims.retain(|claim| (claim.belief)().is_some());
        for other in
            claims.iter().filter(|other| other.service == service && other.worker != worker)
        {
            let is_same = other.name == name;
            let there = (other.belief)();
            let invariant = match (&mode, &other.mode) {
                (ClaimMode::Suspension, _) | (_, ClaimMode::Suspension) => {
                    "suspension_is_exclusive"
                }
                (ClaimMode::Lock, ClaimMode::Lock) if is_same => "exclusive_by_lease",
                (ClaimMode::Lead, ClaimMode::Lead) if is_same => "one_leader_per_term",
                (ClaimMode::Lock, ClaimMode::Share) | (ClaimMode::Share, ClaimMode::Lock)
                    if is_same =>
                {
                    "no_writer_with_reader"
                }
                _ => continue,
            };
            let there = format!(
                "worker {} has {} of {} by {there:?}",
                other.worker, other.mode, other.name
            );
            self.fail(
                invariant,
                format!(
                    "worker {worker} has {mode} of {service}/{name} by {token:?} while {there}"
                ),
            );
        }
        let mut highest = self.highest.borrow_mut();
        let before = highest.get(&(service, name.to_owned())).copied();
        // Shared holds were granted in any order, but all of them after each exclusive hold before
        // them.
        if before.is_some_and(|before| before > token) {
            self.fail(
                "tokens_rise",
                format!("worker {worker} has {service}/{name} by {token:?} after {before:?}"),
            );
        }
        if matches!(mode, ClaimMode::Lock | ClaimMode::Lead) {
            highest.insert(
                (service, name.to_owned()),
                before.map_or(token, |before| before.max(token)),
            );
        }
        self.count(match mode {
            ClaimMode::Lock => "locks held",
            ClaimMode::Lead => "terms led",
            ClaimMode::Share => "shares held",
            ClaimMode::Permits { .. } => "permits held",
            ClaimMode::Suspension => "suspensions held",
        });
        claims.push(Claim { service, name: name.to_owned(), mode, worker, belief });
        self.judge_permits(&claims, service, name);
    }

    /// `permits_never_exceed_limit`: of the holders that believe in permits, the last one was
    /// granted beside all the others. It was granted some time after each of them had asked. So all
    /// of them together fit under a limit that may have been in force since the last of them asked.
    fn judge_permits(&self, claims: &[Claim], service: &'static str, name: &str) {
        let (mut sum, mut since) = (0_u64, 0);
        for claim in claims.iter().filter(|claim| claim.service == service && claim.name == name) {
            if let ClaimMode::Permits { many, asked } = &claim.mode {
                sum += u64::from(many());
                since = since.max(*asked);
            }
        }
        let tokens = |claim: &Claim| match &claim.mode {
            ClaimMode::Permits { many, .. } => {
                (claim.belief)().map(|token| (token.get(), u64::from(many())))
            }
            _ => None,
        };
        let one = claims.last().and_then(tokens);
        for other in claims
            .iter()
            .rev()
            .skip(1)
            .filter(|claim| claim.service == service && claim.name == name)
        {
            if let (Some(one), Some(other)) = (one, tokens(other))
                && (one.0 < other.0 + other.1 && other.0 < one.0 + one.1)
            {
                let what = format!(
                    "of the permits of {service}/{name} some have the tokens of others: {one:?} \
                     and {other:?}"
                );
                self.fail("token_belongs_to_one_hold", what);
            }
        }
        let limits = self.limits.borrow();
        let may_count = |limit: &&Limit| {
            limit.service == service && limit.until.is_none_or(|until| until >= since)
        };
        let greatest =
            limits.iter().filter(may_count).map(|limit| limit.limit).max().unwrap_or(u32::MAX);
        if sum > u64::from(greatest) {
            self.fail(
                "permits_never_exceed_limit",
                format!("{sum} permits of {service} under a limit of {greatest}"),
            );
        }
    }

    /// A grantor has confirmed the release of this lock.
    pub fn confirmed(&self, name: &'static str, token: Token) {
        self.confirmed.borrow_mut().insert(token, self.now());
        self.confirming.0.set(name);
        self.confirming.1.notify_waiters();
    }

    /// Completes when the next release is confirmed, with its name.
    pub async fn confirms(&self) -> &'static str {
        self.confirming.1.notified().await;
        self.confirming.0.get()
    }

    /// `confirmed_is_free`: a request for a lock after its confirmed release is not refused because
    /// of that hold.
    pub fn refused(&self, worker: u64, asked: u64, holder: Token) {
        if self.confirmed.borrow().get(&holder).is_some_and(|confirmed| *confirmed <= asked) {
            let what = format!(
                "worker {worker} is refused by {holder:?}, whose release was confirmed before"
            );
            self.fail("confirmed_is_free", what);
        }
    }

    /// A limit that comes back when no member keeps another one.
    pub fn limit_begins(&self, service: &'static str, limit: u32) {
        let mut limits = self.limits.borrow_mut();
        if !limits.iter().any(|one| one.service == service && one.write == 0) {
            limits.push(Limit { service, limit, write: 0, is_written: false, until: None });
        }
    }

    /// A worker begins to write a limit: it may be in force from now on.
    pub fn limit_asked(&self, service: &'static str, limit: u32) -> u64 {
        let mut limits = self.limits.borrow_mut();
        let write = limits.len() as u64 + 1;
        limits.push(Limit { service, limit, write, is_written: false, until: None });
        write
    }

    /// The write is confirmed: without faults, limits that were written before it was asked for
    /// are no longer in force.
    pub fn limit_set(&self, service: &'static str, write: u64) {
        let (now, is_undisturbed) = (self.now(), self.is_undisturbed());
        for limit in self.limits.borrow_mut().iter_mut().filter(|limit| limit.service == service) {
            if limit.is_written && limit.write < write && is_undisturbed {
                limit.until.get_or_insert(now);
            }
            limit.is_written |= limit.write == write;
        }
    }

    // Faults.

    /// A fault begins: the last writes may be lost with the processes that knew of them.
    pub fn trouble_begins(&self) {
        self.troubles.set(self.troubles.get() + 1);
        self.counted.borrow_mut().clear();
        self.sums.borrow_mut().additions.clear();
        let now = self.now();
        for limit in self.limits.borrow_mut().iter_mut() {
            limit.until = limit.until.filter(|until| until + SETTLED < now);
        }
    }

    /// The fault is over.
    pub fn trouble_ends(&self) {
        self.troubles.set(self.troubles.get() - 1);
        self.undisturbed_from.set(self.now() + AFTERMATH);
    }

    /// No fault is active, and the earlier ones have had their consequences.
    pub fn is_undisturbed(&self) -> bool {
        self.troubles.get() == 0 && self.now() >= self.undisturbed_from.get()
    }

    /// No fault has begun yet.
    pub fn is_untroubled(&self) -> bool {
        self.troubles.get() == 0 && self.undisturbed_from.get() == 0
    }

    /// The worker ends at once.
    pub fn killed(&self, worker: u64) {
        let now = self.now();
        if let Some(until) = self.removing.borrow_mut().get_mut(&worker) {
            *until = now + AFTERMATH;
        }
        for stay in self.stays.borrow_mut().values_mut().filter(|stay| stay.worker == worker) {
            stay.gone.get_or_insert(now);
        }
    }

    // Values.

    /// A worker saw this number under this version: all others must see the same.
    pub fn value(&self, service: &'static str, name: &'static str, version: Token, value: i32) {
        let is_undisturbed = self.is_undisturbed();
        let mut values = self.values.borrow_mut();
        let before = values.entry((service, name, version)).or_insert((value, is_undisturbed)).0;
        if before != value {
            let what = format!("{service}/{name} of {version:?} was {before}, and is {value}");
            self.fail("values_are_seen_in_order", what);
        }
    }

    /// `additions_add_up`: an addition is confirmed. All are positive, so without faults it begins
    /// no lower than each earlier one ended.
    pub fn added(&self, version: Token, (before, after): (i64, i64)) {
        let mut sums = self.sums.borrow_mut();
        sums.confirmed += after - before;
        if !self.is_undisturbed() {
            return;
        }
        let earlier = sums.additions.range(..version).next_back();
        let later = sums.additions.range(version..).next();
        if earlier.is_some_and(|(_, (_, end))| *end > before)
            || later.is_some_and(|(_, (begin, _))| *begin < after)
        {
            let what = format!(
                "{before} became {after} by {version:?}, after {earlier:?} and before {later:?}"
            );
            self.fail("additions_add_up", what);
        }
        sums.additions.insert(version, (before, after));
    }

    /// `ticks_run_once`: a worker begins the job of a tick. Before the first fault no other worker
    /// began it, unless that worker dropped the tick. Then leaders with different policies may run
    /// it out of order.
    pub fn tick_runs(&self, worker: u64, tick: i64) {
        if !self.is_untroubled() {
            return;
        }
        self.count("ticks compared");
        if !self.ticks.borrow_mut().insert(tick) {
            self.fail(
                "ticks_run_once",
                format!("worker {worker} runs {tick}, which has run before"),
            );
        }
    }

    /// A worker drops the job of a tick, or a tick that is not yet written as finished: it may run
    /// again.
    pub fn tick_dropped(&self, tick: Option<i64>) {
        self.count("ticks dropped");
        tick.inspect(|tick| _ = self.ticks.borrow_mut().remove(tick));
    }

    /// A conditional write replaced the value `before`: without faults, no worker saw another value
    /// in between.
    pub fn value_replaced(
        &self,
        service: &'static str,
        name: &'static str,
        before: Token,
        version: Token,
    ) {
        let values = self.values.borrow();
        let between = values.range((service, name, before)..(service, name, version)).skip(1);
        if let Some(((.., one), _)) = between.into_iter().find(|(_, (_, was_calm))| *was_calm)
            && self.is_undisturbed()
        {
            let what = format!(
                "{service}/{name} of {before:?} was replaced by {version:?} though it was {one:?} \
                 by then"
            );
            self.fail("values_are_seen_in_order", what);
        }
    }

    /// The holder of the lock with this token read version `from` of its value and wrote, or read,
    /// version `to`. No other holder read or wrote a version in between. Across slots, and so
    /// across views, a write may have been lost with its grantor.
    pub fn value_touched(
        &self,
        service: &'static str,
        name: &'static str,
        token: Token,
        (from, to): (Token, Token),
    ) {
        if from.slot() != to.slot() {
            return;
        }
        let mut touched = self.touched.borrow_mut();
        let all = touched.entry((service, name)).or_default();
        let is_between = |one: Token, (from, to)| from < one && one < to;
        let meets = |other: &&ValueAccess| {
            let (first, last) = other.versions;
            let is_met = is_between(first, (from, to))
                || is_between(last, (from, to))
                || is_between(to, (first, last));
            other.token != token && is_met
        };
        if let Some(ValueAccess { token: other, versions: (first, last) }) = all.iter().find(meets)
        {
            let what = format!(
                "{service}/{name}: {token:?} read {from:?} and wrote {to:?}, and {other:?} read \
                 {first:?} and wrote {last:?}"
            );
            self.fail("holders_write_alone", what);
        }
        all.push(ValueAccess { token, versions: (from, to) });
    }

    // Barriers: `barrier_opens_once`, `barrier_opens_for_all`.

    /// A worker begins to remove the barrier.
    pub fn gate_opens(&self, worker: u64) {
        self.removals.set(self.removals.get() + 1);
        self.removing.borrow_mut().insert(worker, u64::MAX);
    }

    /// The removal ends, confirmed or not.
    pub fn gate_opened(&self, worker: u64, began: u64, is_known: bool) {
        if is_known {
            self.removing.borrow_mut().remove(&worker);
            self.removed.set((began, self.now()));
        } else {
            self.removing.borrow_mut().insert(worker, self.now() + AFTERMATH);
        }
    }

    /// How often a removal began; `None` while one may be under way.
    pub fn removals(&self) -> Option<u64> {
        let now = self.now();
        self.removing.borrow_mut().retain(|_, until| *until > now);
        self.removing.borrow().is_empty().then(|| self.removals.get())
    }

    /// The worker has waited at the barrier since then, in vain. Without faults, the barrier
    /// was not removed in that time, or the removal came too early or too late to be noticed.
    pub fn gate_stayed(&self, worker: u64, since: u64) {
        let (began, ended) = self.removed.get();
        if self.is_undisturbed() && began > since + SETTLED && ended + SETTLED < self.now() {
            let what =
                format!("worker {worker} still waits at the barrier, which was removed since");
            self.fail("barrier_opens_for_all", what);
        }
    }

    /// A worker begins to enter a round.
    pub fn enters(&self, worker: u64) -> u64 {
        let mut stays = self.stays.borrow_mut();
        let stay = stays.last_key_value().map_or(0, |(stay, _)| stay + 1);
        stays.insert(stay, BarrierStay { worker, gone: None, belief: None });
        stay
    }

    /// The worker has entered: `together` workers were entering or inside. A worker that is gone
    /// counts until the others know of it.
    pub fn entered(&self, stay: u64, began: u64, together: u32, belief: Belief) {
        if belief().is_none() {
            return self.count("lost before use");
        }
        self.count("rounds entered");
        let late = if self.is_undisturbed() { SETTLED } else { 2 * AFTERMATH };
        let mut stays = self.stays.borrow_mut();
        let there =
            stays.values().filter(|stay| stay.gone.is_none_or(|gone| gone + late >= began)).count();
        if there < together as usize {
            self.fail("barrier_opens_once", format!("{there} have entered a round of {together}"));
        }
        if let Some(stay) = stays.get_mut(&stay) {
            stay.belief = Some(belief);
        }
    }

    /// A worker begins to leave. Returns the stays of the others that are inside.
    pub fn begins_to_leave(&self, stay: u64) -> Vec<u64> {
        let mut stays = self.stays.borrow_mut();
        if let Some(stay) = stays.get_mut(&stay) {
            stay.belief = None;
        }
        stays.iter().filter(|(_, stay)| stay.is_inside()).map(|(stay, _)| *stay).collect()
    }

    /// The worker has left: all stays in `beside` must have begun to leave.
    pub fn left(&self, worker: u64, beside: &[u64]) {
        let stays = self.stays.borrow();
        for other in
            beside.iter().filter_map(|stay| stays.get(stay)).filter(|stay| stay.is_inside())
        {
            self.fail(
                "barrier_opens_once",
                format!("worker {worker} has left while worker {} is inside", other.worker),
            );
        }
    }

    /// The worker is out, from any state.
    pub fn goes_out(&self, stay: u64) {
        if let Some(stay) = self.stays.borrow_mut().get_mut(&stay) {
            stay.gone = Some(self.now());
            stay.belief = None;
        }
    }

    /// A worker begins to count a latch down.
    pub fn counts_down(&self, latch: &str) {
        *self.count_downs.borrow_mut().entry(latch.to_owned()).or_default() += 1;
    }

    /// How often a count-down of the latch began.
    pub fn count_downs(&self, latch: &str) -> u64 {
        self.count_downs.borrow().get(latch).copied().unwrap_or_default()
    }

    /// The worker has counted the latch down to `left`. It has had the latch open since `since`,
    /// and `is_open` says whether it still has. Without faults, no other worker that had it open
    /// all the while counts it down to the same number.
    pub fn counted_down(
        &self,
        worker: u64,
        latch: &str,
        left: u32,
        since: u64,
        is_open: Box<dyn Fn() -> bool>,
    ) {
        let mut counted = self.counted.borrow_mut();
        counted.retain(|one| (one.is_open)());
        if left == 0 || !self.is_undisturbed() || !is_open() {
            return;
        }
        for other in counted.iter().filter(|other| other.latch == latch && other.left == left) {
            // The later of the two workers had the latch open before the other counted.
            if since <= other.at {
                let what = format!(
                    "workers {} and {worker} both counted {latch} down to {left}",
                    other.worker
                );
                self.fail("barrier_opens_once", what);
            }
        }
        counted.push(CountDown { worker, latch: latch.to_owned(), left, at: self.now(), is_open });
    }
}
