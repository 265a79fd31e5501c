//! The invariants: properties that must always hold. Each has one file, under the name that it has
//! in sim/README.md.
//!
//! An invariant gets every [`Observation`] of a run in order, with the World as it is at that
//! moment. It counts how often its premise held: an invariant whose premise never held proves
//! nothing.

pub mod batch_is_atomic;
pub mod converges_after_heal;
pub mod cost_is_bounded;
pub mod deadlock_is_told;
pub mod destroyed_is_over;
pub mod detours_keep_leases;
pub mod epochs_rise;
pub mod exclusive_by_lease;
pub mod fifo_across_failover;
pub mod holds_survive;
pub mod last_young_turk_wins;
pub mod leaving_member_is_not_expelled;
pub mod load_moves_the_grantor;
pub mod minority_is_silent;
pub mod no_grant_after_recall;
pub mod no_leaked_hold;
pub mod no_lost_wakeup;
pub mod no_resurrected_grant;
pub mod no_writer_with_reader;
pub mod nothing_lost_in_transfer;
pub mod objects_forget_the_gone;
pub mod one_elder_per_view;
pub mod one_grantor_per_epoch;
pub mod one_lineage;
pub mod one_outcome_per_request;
pub mod permits_never_exceed_limit;
pub mod recovered_table_is_the_union;
pub mod sessions_end_first;
pub mod successor_has_most_entries;
pub mod suspension_is_exclusive;
pub mod token_belongs_to_one_hold;
pub mod tokens_rise;
pub mod told_after_kept;
pub mod told_before_regrant;
pub mod told_before_taken;
pub mod values_are_seen_in_order;
pub mod version_is_spoken;
pub mod views_agree;
pub mod voters_have_answered;
pub mod what_is_seen_is_so;

use crate::history::{Ask, Key, lock_name};
use crate::network::MS;
use crate::world::{Observation, Violation, World};
use elderlock::protocol::{
    ClientMessage, Content, Epoch, GrantorState, HoldReport, LockName, Message, Packet, ProcessId,
    Refusal, RequestId, ServiceName, Token, WaitReport,
};
use std::collections::BTreeMap;
use std::hash::{Hash, Hasher};
use std::ops::AddAssign;
use std::time::Duration;

/// The result of a check: `Ok`, or the description of the violation.
pub type Verdict = Result<(), String>;

/// How often a premise held. It decides nothing, so Worlds that differ only in it are equal to a
/// model checker.
#[derive(Clone, Copy, Debug, Default)]
pub struct Count(u64);

impl Count {
    /// The number of times that the premise held.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl AddAssign<u64> for Count {
    fn add_assign(&mut self, more: u64) {
        self.0 += more;
    }
}

impl Hash for Count {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The memory of an invariant belongs to its World. A copy of the World copies it, and Worlds with
/// different memories are different. `derive(Clone, Hash)` is enough.
pub trait CheckerState {
    /// A copy of the invariant with its memory.
    fn copy(&self) -> Box<dyn Invariant>;
    /// Hashes its memory.
    fn hash_memory(&self, hasher: &mut dyn Hasher);
}

impl<I: Invariant + Clone + Hash + 'static> CheckerState for I {
    fn copy(&self) -> Box<dyn Invariant> {
        Box::new(self.clone())
    }

    fn hash_memory(&self, mut hasher: &mut dyn Hasher) {
        self.hash(&mut hasher);
    }
}

impl Clone for Box<dyn Invariant> {
    fn clone(&self) -> Self {
        (**self).copy()
    }
}

/// A property that must always hold.
pub trait Invariant: CheckerState + std::fmt::Debug + Send + Sync {
    /// Its name.
    fn name(&self) -> &'static str;
    /// How often its premise held.
    fn premises(&self) -> u64;
    /// Judges an observation.
    fn observe(&mut self, world: &World, observation: &Observation<'_>) -> Verdict;
    /// The lock that its last verdict was about, if the observation was not about that lock alone.
    fn lock(&self) -> Option<&Key> {
        None
    }
}

/// The latest epoch of each service in which a grantor began to act.
#[derive(Clone, Hash, Debug, Default)]
pub(crate) struct Latest(BTreeMap<ServiceName, Epoch>);

impl Latest {
    /// A grantor begins to act.
    pub(crate) fn begins(&mut self, service: &ServiceName, epoch: Epoch) {
        let latest = self.0.entry(service.clone()).or_insert(epoch);
        *latest = epoch.max(*latest);
    }

    /// The latest epoch of a service.
    pub(crate) fn of(&self, service: &ServiceName) -> Option<Epoch> {
        self.0.get(service).copied()
    }
}

/// The highest token of each source before the present step, and the tokens of the present step.
/// Their order within the step means nothing: a message to the process itself may reach others
/// before an earlier message does.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Highest<K> {
    before: BTreeMap<K, Token>,
    news: Vec<(K, Token)>,
}

impl<K> Default for Highest<K> {
    fn default() -> Self {
        Highest { before: BTreeMap::new(), news: Vec::new() }
    }
}

impl<K: Ord> Highest<K> {
    /// The highest token of a source before the present step.
    pub(crate) fn before(&self, source: &K) -> Option<Token> {
        self.before.get(source).copied()
    }

    /// Notes a token of the present step.
    pub(crate) fn add(&mut self, source: K, token: Token) {
        self.news.push((source, token));
    }

    /// The present step is over.
    pub(crate) fn on_stepped(&mut self) {
        for (source, token) in self.news.drain(..) {
            let before = self.before.entry(source).or_insert(token);
            *before = token.max(*before);
        }
    }
}

/// A grantor's records of a service, by request.
#[derive(Debug, Default)]
pub(crate) struct GrantorRecord {
    /// The holds.
    pub holds: BTreeMap<(ProcessId, RequestId), HoldReport>,
    /// The waits.
    pub waits: BTreeMap<(ProcessId, RequestId), WaitReport>,
    /// The contents of objects.
    pub objects: BTreeMap<LockName, Content>,
}

impl GrantorRecord {
    /// The present records of the grantor at `site`.
    pub(crate) fn at(world: &World, site: usize, service: &ServiceName) -> GrantorRecord {
        let peer = &world.sites[site];
        let Some(node) = &peer.node else { return GrantorRecord::default() };
        let (holds, waits) = node.contents(service, peer.clock.local(world.now));
        GrantorRecord {
            holds: holds
                .into_iter()
                .map(|(process, hold)| ((process, hold.request), hold))
                .collect(),
            waits: waits
                .into_iter()
                .map(|(process, wait)| ((process, wait.request), wait))
                .collect(),
            objects: node
                .objects(service)
                .map(|(name, content)| (name.clone(), content.clone()))
                .collect(),
        }
    }

    /// Describes how the record of a client's open object falls short. Its version must be at least
    /// as new, and as sure, as the content that the client has seen.
    pub(crate) fn lacks(&self, ask: Ask, world: &World) -> Option<String> {
        let call = world.call(ask);
        let (_, Some(name)) = call.object.as_ref()? else { return None };
        let seen = call.sight.as_ref().filter(|_| call.is_claim())?;
        let known = self.objects.get(name);
        let is_good = known.is_some_and(|known| {
            let is_same = known.version == seen.version && known.value == seen.value;
            known.version > seen.version || (is_same && (known.maybe_stale || !seen.stale))
        });
        (!is_good).then(|| format!("{known:?} of an object that is seen as {seen:?}"))
    }

    /// A request that the grantor has recorded otherwise than its client made it, with the
    /// difference. No hold may be recorded as older than its client's request.
    pub(crate) fn differs(&self, world: &World) -> Option<(Ask, String)> {
        let of_hold = |hold: &HoldReport| (hold.lock.owner, hold.lock.revocable, hold.held_for);
        let of_wait = |wait: &WaitReport| (wait.lock.owner, wait.lock.revocable, Duration::ZERO);
        let holds = self
            .holds
            .iter()
            .map(|(key, hold)| (key, &hold.lock.want, &hold.lock.metadata, of_hold(hold)));
        let waits = self
            .waits
            .iter()
            .map(|(key, wait)| (key, &wait.lock.want, &wait.lock.metadata, of_wait(wait)));
        holds.chain(waits).find_map(|((process, request), want, metadata, rest)| {
            let (owner, revocable, held_for) = rest;
            let ask = world.history().find(*process, *request)?;
            let call = world.call(ask);
            let most = stretched(world, world.now - call.asked);
            let asked = (call.owner, &call.metadata, !world.may_keep(call));
            let is_same = call.may_be_known_as(want) && (owner, metadata, revocable) == asked;
            let what = || {
                format!(
                    "{want:?} of {owner:?} saying {metadata:?}, revocable {revocable}, \
                     held for {held_for:?}"
                )
            };
            (!is_same || held_for > most).then(|| (ask, what()))
        })
    }
}

/// The longest time that clocks within their bound measure for a span of true time.
pub(crate) fn stretched(world: &World, span: u64) -> Duration {
    Duration::from_nanos(span + error(world, span))
}

/// A service and the epoch of its grantor.
type GrantorRole<'a> = (&'a ServiceName, Epoch);

/// The last state of a grantor before it began to act; `Some(None)`: it acted as soon as it was
/// named. `None`: it is over.
fn last_state(world: &World, site: usize, role: GrantorRole<'_>) -> Option<Option<GrantorState>> {
    let load = world.sites[site].node.as_ref().and_then(|node| node.load(role.0));
    load.filter(|load| load.epoch == role.1).map(|load| load.way.map(|(state, _)| state))
}

/// Returns whether a grantor acts, and was in that state before.
pub(crate) fn acts_after(
    state: GrantorState,
    world: &World,
    site: usize,
    role: GrantorRole<'_>,
) -> bool {
    last_state(world, site, role) == Some(Some(state))
}

/// The shortest time that clocks within their bound measure for a span of true time.
pub(crate) fn shrunk(world: &World, span: u64) -> Duration {
    Duration::from_nanos(span.saturating_sub(error(world, span)))
}

/// A span may be measured in parts, by several clocks, each of which rounds.
fn error(world: &World, span: u64) -> u64 {
    span / 1_000_000 * u64::from(world.common.timing.clock_error_ppm) * 2 + MS
}

/// The request that a grantor refuses as a deadlock, if the observation is the packet with that
/// refusal.
pub(crate) fn refused_as_deadlock(observation: &Observation<'_>) -> Option<(ProcessId, RequestId)> {
    match observation {
        Observation::Sent {
            to: Some(to),
            packet:
                Packet::Linked {
                    message: Message::Client(ClientMessage::Refuse { request, refusal, .. }),
                    ..
                },
            ..
        } if **refusal == Refusal::Deadlock => Some((*to, *request)),
        _ => None,
    }
}

/// All invariants of a World.
#[derive(Clone, Debug, Default)]
pub struct InvariantSet {
    all: Option<Vec<Box<dyn Invariant>>>,
    /// Premises of the invariants that are checked outside the steps.
    counted: BTreeMap<&'static str, u64>,
}

impl InvariantSet {
    /// A set that checks nothing.
    pub(crate) fn blind() -> InvariantSet {
        InvariantSet { all: Some(Vec::new()), ..InvariantSet::default() }
    }
}

fn all() -> Vec<Box<dyn Invariant>> {
    vec![
        Box::new(one_outcome_per_request::OneOutcomePerRequest::default()),
        Box::new(version_is_spoken::VersionIsSpoken::default()),
        Box::new(views_agree::ViewsAgree::default()),
        Box::new(one_lineage::OneLineage::default()),
        Box::new(voters_have_answered::VotersHaveAnswered::default()),
        Box::new(one_elder_per_view::OneElderPerView::default()),
        Box::new(told_after_kept::ToldAfterKept::default()),
        Box::new(one_grantor_per_epoch::OneGrantorPerEpoch::default()),
        Box::new(epochs_rise::EpochsRise::default()),
        Box::new(token_belongs_to_one_hold::TokenBelongsToOneHold::default()),
        Box::new(tokens_rise::TokensRise::default()),
        Box::new(exclusive_by_lease::ExclusiveByLease::default()),
        Box::new(no_writer_with_reader::NoWriterWithReader::default()),
        Box::new(permits_never_exceed_limit::PermitsNeverExceedLimit::default()),
        Box::new(values_are_seen_in_order::ValuesAreSeenInOrder::default()),
        Box::new(suspension_is_exclusive::SuspensionIsExclusive::default()),
        Box::new(batch_is_atomic::BatchIsAtomic::default()),
        Box::new(sessions_end_first::SessionsEndFirst::default()),
        Box::new(told_before_regrant::ToldBeforeRegrant::default()),
        Box::new(told_before_taken::ToldBeforeTaken::default()),
        Box::new(holds_survive::HoldsSurvive::default()),
        Box::new(recovered_table_is_the_union::RecoveredTableIsTheUnion::default()),
        Box::new(last_young_turk_wins::LastYoungTurkWins::default()),
        Box::new(nothing_lost_in_transfer::NothingLostInTransfer::default()),
        Box::new(destroyed_is_over::DestroyedIsOver::default()),
        Box::new(what_is_seen_is_so::WhatIsSeenIsSo::default()),
        Box::new(no_resurrected_grant::NoResurrectedGrant::default()),
        Box::new(no_grant_after_recall::NoGrantAfterRecall::default()),
        Box::new(load_moves_the_grantor::LoadMovesTheGrantor::default()),
        Box::new(fifo_across_failover::FifoAcrossFailover::default()),
        Box::new(minority_is_silent::MinorityIsSilent::default()),
        Box::new(deadlock_is_told::DeadlockIsTold::default()),
        Box::new(objects_forget_the_gone::ObjectsForgetTheGone::default()),
        Box::new(successor_has_most_entries::SuccessorHasMostEntries::default()),
        Box::new(detours_keep_leases::DetoursKeepLeases::default()),
        Box::new(cost_is_bounded::CostIsBounded::default()),
        Box::new(leaving_member_is_not_expelled::LeavingMemberIsNotExpelled::default()),
    ]
}

impl InvariantSet {
    /// Gives the observation to every invariant.
    pub fn observe(
        &mut self,
        world: &World,
        observation: &Observation<'_>,
    ) -> Result<(), Violation> {
        // No invariant uses these observations, which are the most frequent.
        if let Observation::Takes { .. }
        | Observation::CarriedOut { .. }
        | Observation::Routed { .. }
        | Observation::Arrives { .. } = observation
        {
            return Ok(());
        }
        for invariant in self.all.get_or_insert_with(all) {
            let verdict = invariant.observe(world, observation);
            verdict.map_err(|what| {
                let of_observation = || observation.ask().map(|ask| world.call(ask).lock());
                let lock = invariant.lock().map(lock_name).or_else(of_observation);
                Violation { invariant: invariant.name(), lock, what, at: world.now }
            })?;
        }
        Ok(())
    }

    /// Hashes the memory of the invariants.
    pub(crate) fn hash_memory(&self, hasher: &mut dyn Hasher) {
        for invariant in self.all.iter().flatten() {
            invariant.hash_memory(hasher);
        }
    }

    /// Counts a premise of an invariant that is checked outside the steps.
    pub fn count(&mut self, invariant: &'static str) {
        *self.counted.entry(invariant).or_default() += 1;
    }

    /// How often the premise of each invariant held.
    pub fn premises(&self) -> BTreeMap<&'static str, u64> {
        let mut premises = self.counted.clone();
        for name in [converges_after_heal::NAME, no_leaked_hold::NAME, no_lost_wakeup::NAME] {
            premises.entry(name).or_default();
        }
        for invariant in self.all.iter().flatten() {
            *premises.entry(invariant.name()).or_default() += invariant.premises();
        }
        premises
    }
}
