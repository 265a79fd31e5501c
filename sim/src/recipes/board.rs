//! The board on which players put what they believe, and the invariants that look at it.
//!
//! A claim is checked at the instant at which it is made, against every other one that is still believed at that
//! instant: belief is what `fence()` answers then, of this claim and of the others.

use crate::chance::Digest;
use elderlock::Token;
use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash as _, Hasher as _};

/// Lines of the story that are kept.
const LINES: usize = 4_000;

/// An invariant that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Break {
    /// Its name.
    pub invariant: &'static str,
    /// What was seen.
    pub what: String,
    /// When, in nanoseconds.
    pub at: u64,
}

/// What a claim lays claim to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// The lock, alone.
    Lock,
    /// The whole service, alone.
    Suspension,
}

/// Says the token, while its holder may believe in it.
pub type Belief = Box<dyn Fn() -> Option<Token>>;

struct Claim {
    service: &'static str,
    name: String,
    mode: Mode,
    who: u64,
    belief: Belief,
}

/// See the head of the module.
pub struct Board {
    digest: RefCell<Digest>,
    story: RefCell<VecDeque<String>>,
    broken: RefCell<Option<Break>>,
    claims: RefCell<Vec<Claim>>,
    highest: RefCell<BTreeMap<(&'static str, String), Token>>,
    counts: RefCell<BTreeMap<&'static str, u64>>,
    now: Box<dyn Fn() -> u64>,
    /// The faults are over and players come to their end.
    pub ending: Cell<bool>,
}

impl Board {
    /// An empty one, with a clock.
    pub fn new(seed: u64, now: impl Fn() -> u64 + 'static) -> Board {
        Board {
            digest: RefCell::new(Digest::new(seed)),
            story: RefCell::default(),
            broken: RefCell::default(),
            claims: RefCell::default(),
            highest: RefCell::default(),
            counts: RefCell::default(),
            now: Box::new(now),
            ending: Cell::new(false),
        }
    }

    /// Nanoseconds by the one clock.
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
        story.push_back(format!("{:>6}.{:03} {line}", now / 1_000_000_000, now / 1_000_000 % 1_000));
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

    /// What the run has come to.
    pub fn digest(&self) -> u64 {
        self.digest.borrow().finish()
    }

    /// Something that players did, or that a check looked at.
    pub fn count(&self, what: &'static str) {
        *self.counts.borrow_mut().entry(what).or_default() += 1;
    }

    /// How often.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.counts.borrow().clone()
    }

    /// The invariant does not hold; the first to say so counts.
    pub fn fail(&self, invariant: &'static str, what: impl Into<String>) {
        let found = Break { invariant, what: what.into(), at: self.now() };
        self.note(|| format!("BREAK {}: {}", found.invariant, found.what));
        self.broken.borrow_mut().get_or_insert(found);
    }

    /// The first break.
    pub fn broken(&self) -> Option<Break> {
        self.broken.borrow().clone()
    }

    /// `who` believes from now on. Judged here and now.
    pub fn claim(&self, who: u64, service: &'static str, name: &str, mode: Mode, belief: Belief) {
        // What was lost before anybody looked at it is no claim.
        let Some(token) = belief() else { return self.count("lost before use") };
        let mut claims = self.claims.borrow_mut();
        claims.retain(|claim| (claim.belief)().is_some());
        for other in claims.iter().filter(|other| other.service == service && other.who != who) {
            let is_same = other.name == name;
            let invariant = match (mode, other.mode) {
                (Mode::Lock, Mode::Lock) if is_same => "exclusive_by_lease",
                (Mode::Suspension, _) | (_, Mode::Suspension) => "suspension_is_exclusive",
                _ => continue,
            };
            let what = format!(
                "player {who} has {service}/{name} as {mode:?} by {token:?} while player {} has {} as {:?} by {:?}",
                other.who,
                other.name,
                other.mode,
                (other.belief)()
            );
            self.fail(invariant, what);
        }
        let mut highest = self.highest.borrow_mut();
        let before = highest.entry((service, name.to_owned())).or_insert(token);
        if *before > token {
            self.fail("tokens_rise", format!("player {who} has {service}/{name} by {token:?} after {before:?}"));
        }
        *before = token.max(*before);
        self.count(match mode {
            Mode::Lock => "locks held",
            Mode::Suspension => "suspensions held",
        });
        claims.push(Claim { service, name: name.to_owned(), mode, who, belief });
    }
}
