//! `Partitions`: a fixed set of partitions, divided among the claimants of all members.
//!
//! The whole state is locks of one service, which the partitions have for themselves:
//!
//! ```text
//! claimant/<id>       held by each claimant while it claims; its metadata is the weight
//! partition/<name>    held by the owner of the partition; its metadata is the owner's id
//! ```
//! A claimant is one task:
//!
//! ```text
//! Latent ->[start] waits for claimant/<id> ->[granted] claims
//! claims ->[the claim is lost] all partitions end; waits for claimant/<id> again
//! claims ->[close] gives up the claim, asks for all its partitions back, waits for the grace
//!           period -> Closed
//! any    ->[drop; the member left, the service destroyed here, the runtime ended] all partitions
//!           end -> Closed
//!
//! claims, at every interval and after each change of its own:
//!     lists the held locks of the service: the claimants, and the owner of each partition
//!     computes its own share of them (`assignment`)
//!     owns more:   tells the holders of the youngest ones to release them
//!     owns fewer:  tries to lock free ones
//!     asked for one longer ago than the grace period: ends it
//! ```
//! **Safety** is that of locks alone: a partition has one owner by lease, with a higher token than
//! all earlier ones. The list is outdated when it is read, and two claimants may see different
//! lists. Then a claimant takes or releases one partition too many, until the next check. No
//! claimant takes a partition from another: only the owner itself releases. So no claimant has to
//! agree with any other.
//!
//! **Liveness**: when nothing changes, all claimants see the same list, and the shares of one list
//! add up to all partitions. So a free partition has a claimant that owns too few.
//!
//! | process | dies | consequence |
//! |---|---|---|
//! | a claimant | before it owns any | its claim ends when it is out of the view; the other claimants do not count it |
//! | an owner | any time | its locks are free when it is out of the view, or its lease surely over. Claimants that own too few take them at their next check |
//! | an owner | after it was asked for one | the same |
//! | an owner | cut off or stopped | its guards fail by its own clock before the locks are free |
//! | the next owner | before it took the free partition | another claimant has the larger share, and takes it |
//! | the grantor | any time | owners keep their partitions; the next grantor answers the checks |
//! | the whole cluster | | nothing is stored: claimants begin with free partitions |

use super::assignment::{ClaimantShare, quotas};
use super::leadership::{Candidacy, CandidacyEnd, HeldTerm, Participant};
use super::partition_guard::{PartitionGuard, PartitionHold};
use super::wait_future::WaitFuture;
use crate::protocol::{HolderInfo, InvalidName, LockName, Mode};
use crate::runtime::{QueryError, planted};
use crate::service::{InspectError, LockFuture, LockService, TryLockError, Unavailable};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const CLAIMANT: &[u8] = b"claimant/";
const PARTITION: &[u8] = b"partition/";

/// The default interval of a claimant's checks.
const EVERY: Duration = Duration::from_millis(100);
/// The default time that an owner has for a release after the request.
const GRACE: Duration = Duration::from_secs(10);

/// A claim to a fair share of a fixed set of partitions: of a topic's partitions, of shards, of
/// devices. Each partition has one owner among the claimants of all members. The claimants own
/// equal numbers, within one, or numbers in proportion to their [weights](Partitions::weight).
///
/// [`start`](Partitions::start) the claim, and take the partitions that [`next`](Partitions::next)
/// returns. Each is a [`PartitionGuard`]: a lock with a token. When a claimant comes, owners with
/// too many are [told](PartitionGuard::release_requested) to release some, and have a [grace
/// period](Partitions::grace) to finish. Only these partitions move. When a claimant leaves or
/// dies, only its partitions move. An owner keeps the partitions that it has owned the longest.
///
/// **At most one owner** at any time, by lease, and a rising token for each partition: the lock
/// promises that. The promise depends on no list of claimants. **At least one owner** comes with
/// time: a claimant checks the list once in each [interval](Partitions::every).
///
/// All claimants name the same partitions and have the service to themselves: one set of
/// partitions, one service. A check is one question to the grantor for about 256 claimants and
/// partitions.
///
/// A partition whose guard is dropped is free, and the same claimant may get it again.
///
/// Kazoo: `SetPartitioner`, in which all claimants release all partitions whenever one comes or
/// leaves. Kafka: a consumer group with the cooperative sticky assignor. Akka: cluster sharding,
/// whose coordinator allocates. Curator: none.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{PartitionGuard, Partitions};
/// let member = elderlock::Member::local().await?;
/// let orders = member.lock_service("orders").await?;
/// let partitions = Partitions::numbered(&orders, 8, "node-1")?;
/// partitions.start()?;
///
/// async fn work(partition: PartitionGuard) {
///     // Reads from where the last owner stopped, and shows `partition.fence()` with each write.
///     let serve = partition.protect(std::future::pending::<()>());
///     tokio::select! {
///         _ = serve => {}
///         () = partition.release_requested() => {} // here it finishes
///     }
/// }
/// for _ in 0..8 {
///     tokio::spawn(work(partitions.next().await?));
/// }
/// partitions.close().await?;
/// # Ok(()) }
/// ```
pub struct Partitions {
    claim: Arc<ClaimConfig>,
    state: Arc<watch::Sender<ClaimCore>>,
    /// The claiming task; `None` before the start.
    task: Mutex<Option<JoinHandle<()>>>,
}

struct ClaimConfig {
    candidacy: Candidacy,
    service: LockService,
    id: Vec<u8>,
    names: BTreeSet<Vec<u8>>,
    weight: u32,
    grace: Duration,
    every: Duration,
    /// Notified so that the task checks again.
    changed: Arc<Notify>,
    closing: CancellationToken,
}

#[derive(Default)]
struct ClaimCore {
    phase: ClaimPhase,
    /// The guards that `next` has not returned yet.
    gained: VecDeque<PartitionGuard>,
    owned: BTreeMap<Vec<u8>, Arc<PartitionHold>>,
}

impl ClaimCore {
    /// Takes all partitions out. [End](end_all) them when the state is not borrowed any more: an
    /// end may wake other tasks.
    fn take(&mut self) -> (VecDeque<PartitionGuard>, BTreeMap<Vec<u8>, Arc<PartitionHold>>) {
        (std::mem::take(&mut self.gained), std::mem::take(&mut self.owned))
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Default)]
enum ClaimPhase {
    #[default]
    Latent,
    Started,
    Closed(PartitionsError),
}

/// Why [`Partitions`] does not start, returns no partition or cannot be closed. The call changes
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PartitionsError {
    /// The claim has not been started.
    #[error("the partitions are not claimed yet; start them first")]
    NotStarted,
    /// No partition came within the wait limit. The claim continues.
    #[error("no partition within the wait limit")]
    TimedOut,
    /// The claim was started before, and may be closed by now: make a new one.
    #[error("the claim was started before; make a new one")]
    AlreadyStarted,
    /// Called outside of a tokio runtime.
    #[error("{}", QueryError::NoRuntime)]
    NoRuntime,
    /// The claim is closed.
    #[error("the claim is closed")]
    Closed,
    /// The claim is closed because its service was destroyed at this member. Get a new handle from
    /// the member, and make a new claim.
    #[error("{}", Unavailable::Destroyed)]
    Destroyed,
    /// The claim is closed because the member has left, for good: join as a new member.
    #[error("{}", Unavailable::Left)]
    Left,
    /// The claim is closed because the runtime in which it was started has ended.
    #[error("the runtime of the claim has ended")]
    Stopped,
}

/// The owners of all partitions at a moment, from [`Partitions::owners`].
#[derive(Clone, PartialEq, Eq, Debug, serde::Serialize)]
#[non_exhaustive]
pub struct PartitionOwners {
    /// The ids of the claimants and their weights.
    pub claimants: BTreeMap<String, u32>,
    /// Each partition with its owner; `None`: it is free, or on its way.
    pub owners: BTreeMap<Vec<u8>, Option<Participant>>,
}

impl Partitions {
    /// A claim to the partitions `names`, each 1 to 4086 bytes of any value; a repeated name counts
    /// once. All claimants give the same names. `id`, 1 to 4087 bytes, is this claimant's own:
    /// while two have the same id, the second one waits until the first has ended. The claim does
    /// nothing until it is [started](Partitions::start).
    ///
    /// # Errors
    /// [`InvalidName`]: a name or the id is empty or too long.
    pub fn new(
        service: &LockService,
        names: impl IntoIterator<Item: AsRef<[u8]>>,
        id: impl AsRef<[u8]>,
    ) -> Result<Partitions, InvalidName> {
        let id = id.as_ref().to_vec();
        LockName::new(&id)?;
        let names: BTreeSet<Vec<u8>> =
            names.into_iter().map(|name| name.as_ref().to_vec()).collect();
        for name in &names {
            LockName::new(name)?;
            LockName::new(&lock_of(name))?;
        }
        Ok(Partitions {
            claim: Arc::new(ClaimConfig {
                candidacy: candidacy(service, &id, 1)?,
                service: service.clone(),
                id,
                names,
                weight: 1,
                grace: GRACE,
                every: EVERY,
                changed: Arc::default(),
                closing: CancellationToken::new(),
            }),
            state: Arc::default(),
            task: Mutex::default(),
        })
    }

    /// A claim to the partitions `"0"` to `"count - 1"`, otherwise as by [`new`](Partitions::new).
    ///
    /// # Errors
    /// [`InvalidName`]: the id is empty or too long.
    pub fn numbered(
        service: &LockService,
        count: u32,
        id: impl AsRef<[u8]>,
    ) -> Result<Partitions, InvalidName> {
        Partitions::new(service, (0..count).map(|number| number.to_string()), id)
    }

    /// Sets the weight of this claimant, which owns in proportion to all weights. 1 by default;
    /// with 0 it owns none. After [`start`](Partitions::start) this has no effect.
    pub fn weight(mut self, weight: u32) -> Self {
        if let Some(claim) = Arc::get_mut(&mut self.claim)
            && let Ok(candidacy) = candidacy(&claim.service, &claim.id, weight)
        {
            (claim.weight, claim.candidacy) = (weight, candidacy);
        }
        self
    }

    /// Sets how long an owner may keep a partition after it was [told to release
    /// it](PartitionGuard::release_requested): 10 s by default. Then the guard ends here, and the
    /// partition is free. With zero the end is the only notice. After [`start`](Partitions::start)
    /// this has no effect.
    pub fn grace(mut self, grace: Duration) -> Self {
        if let Some(claim) = Arc::get_mut(&mut self.claim) {
            claim.grace = grace;
        }
        self
    }

    /// Sets the time between two checks of the claimants and owners: 100 ms by default, 1 ms at
    /// least. A free partition stays free for about that time. After [`start`](Partitions::start)
    /// this has no effect.
    pub fn every(mut self, every: Duration) -> Self {
        if let Some(claim) = Arc::get_mut(&mut self.claim) {
            claim.every = every.max(Duration::from_millis(1));
        }
        self
    }

    /// Claims from now on, and returns. The claim runs as a task of the calling tokio runtime,
    /// which must outlive it: when that runtime ends, the claim is closed.
    ///
    /// # Errors
    /// [`PartitionsError::AlreadyStarted`], [`PartitionsError::NoRuntime`]; nothing is changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::{Partitions, PartitionsError};
    /// let member = elderlock::Member::local().await?;
    /// let orders = member.lock_service("orders").await?;
    /// let partitions = Partitions::new(&orders, ["north", "south"], "node-1")?.weight(2);
    /// partitions.start()?;
    /// assert_eq!(partitions.start(), Err(PartitionsError::AlreadyStarted));
    /// # Ok(()) }
    /// ```
    pub fn start(&self) -> Result<(), PartitionsError> {
        let runtime = self.claim.candidacy.runtime().ok_or(PartitionsError::NoRuntime)?;
        if self.state.borrow().phase != ClaimPhase::Latent {
            return Err(PartitionsError::AlreadyStarted);
        }
        // The request may wake other tasks, so the mutex is not locked yet.
        let request = self.claim.candidacy.queue();
        let mut task = self.task.lock().unwrap_or_else(PoisonError::into_inner);
        // No task waits for this change: a call that comes before is refused.
        let starts = self.state.send_if_modified(|state| {
            let starts = state.phase == ClaimPhase::Latent;
            if starts {
                state.phase = ClaimPhase::Started;
            }
            starts
        });
        if !starts {
            drop(task);
            drop(request);
            return Err(PartitionsError::AlreadyStarted);
        }
        let running = ClaimTask { claim: self.claim.clone(), state: self.state.clone() };
        let claims = running.run(request);
        #[cfg(feature = "simulated")]
        let claims = crate::runtime::simulated::kept(claims);
        *task = Some(runtime.spawn(claims));
        Ok(())
    }

    /// Waits for the next partition that this claimant owns, and returns its guard.
    ///
    /// # Errors
    /// [`PartitionsError`], never [`AlreadyStarted`](PartitionsError::AlreadyStarted): there are no
    /// more partitions, or a [limit](WaitFuture::wait) ended. Nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future loses no partition.
    pub fn next(&self) -> WaitFuture<'_, PartitionGuard, PartitionsError> {
        let timed_out = || PartitionsError::TimedOut;
        WaitFuture::new(&self.claim.service, timed_out, self.hand_out())
    }

    async fn hand_out(&self) -> Result<PartitionGuard, PartitionsError> {
        let mut state = self.state.subscribe();
        loop {
            // The check and the wait are one: a partition that comes in between is not missed.
            let is_due =
                |state: &ClaimCore| state.phase != ClaimPhase::Started || !state.gained.is_empty();
            // An error cannot occur: the sender is this claim's.
            let phase = state.wait_for(is_due).await.map(|state| state.phase);
            let mut gained = None;
            self.state.send_if_modified(|state| {
                gained = state.gained.pop_front();
                false
            });
            match (gained, phase) {
                (Some(partition), _) if partition.fence().is_ok() => return Ok(partition),
                (_, Ok(ClaimPhase::Latent)) => return Err(PartitionsError::NotStarted),
                (_, Ok(ClaimPhase::Closed(why))) => return Err(why),
                // The partition was lost before it was returned, or another task got it.
                (_, Ok(ClaimPhase::Started) | Err(_)) => {}
            }
        }
    }

    /// The number of partitions that this claimant owns at this instant, whether `next` has
    /// returned them or not. Sends no message.
    pub fn owned(&self) -> usize {
        self.state.borrow().owned.values().filter(|hold| hold.is_held()).count()
    }

    /// Asks the grantor for the claimants and the owner of each partition. Works also before the
    /// start and after the end of this claim. One round trip for about 256 of them. The answer may
    /// be outdated when it is read, and does not show one instant.
    ///
    /// # Errors
    /// [`InspectError`]; nothing is changed.
    ///
    /// # Cancel safety
    /// Dropping the future changes nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use elderlock::Partitions;
    /// let member = elderlock::Member::local().await?;
    /// let orders = member.lock_service("orders").await?;
    /// let partitions = Partitions::numbered(&orders, 1, "node-1")?;
    /// partitions.start()?;
    /// let partition = partitions.next().await?;
    /// let seen = partitions.owners().await?;
    /// assert_eq!(seen.claimants["node-1"], 1);
    /// let owner = seen.owners[partition.name()].as_ref().expect("it is owned");
    /// assert_eq!((owner.id.as_str(), owner.token), ("node-1", Some(partition.token())));
    /// # Ok(()) }
    /// ```
    pub async fn owners(&self) -> Result<PartitionOwners, InspectError> {
        let seen = self.claim.look().await?;
        let text = |id: &Vec<u8>| String::from_utf8_lossy(id).into_owned();
        let claimants = seen.claimants.iter().map(|(id, weight)| (text(id), *weight)).collect();
        let mut owners = seen.owners;
        let owner = |name: &Vec<u8>| (name.clone(), owners.remove(name).map(Participant::from));
        Ok(PartitionOwners { claimants, owners: self.claim.names.iter().map(owner).collect() })
    }

    /// Ends the claim. Requests the [release](PartitionGuard::release_requested) of all its
    /// partitions, and waits until their guards are dropped or the [grace
    /// period](Partitions::grace) is over. Then the remaining partitions end. The other claimants
    /// take each partition as it is released.
    ///
    /// Dropping the claim ends all its partitions at once.
    ///
    /// # Errors
    /// [`PartitionsError::NotStarted`], or the reason for which the claim is closed already;
    /// nothing is changed.
    ///
    /// # Cancel safety
    /// Once polled, dropping the future does not stop the closing.
    pub async fn close(&self) -> Result<(), PartitionsError> {
        match self.state.borrow().phase {
            ClaimPhase::Latent => return Err(PartitionsError::NotStarted),
            ClaimPhase::Closed(why) => return Err(why),
            ClaimPhase::Started => {}
        }
        self.claim.closing.cancel();
        let mut state = self.state.subscribe();
        let is_closed = |state: &ClaimCore| matches!(state.phase, ClaimPhase::Closed(_));
        // An error cannot occur: the sender is this claim's.
        let _ = state.wait_for(is_closed).await;
        Ok(())
    }

    /// The id of this claimant.
    pub fn id(&self) -> &[u8] {
        &self.claim.id
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        close(&self.state, PartitionsError::Closed);
        let task = self.task.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(task) = task {
            task.abort();
        }
    }
}

impl std::fmt::Debug for Partitions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Partitions")
            .field("id", &self.id().escape_ascii().to_string())
            .field("partitions", &self.claim.names.len())
            .field("owned", &self.owned())
            .finish_non_exhaustive()
    }
}

/// Closes a claim, unless it is closed: all its partitions end.
fn close(state: &watch::Sender<ClaimCore>, why: PartitionsError) {
    let mut taken = Default::default();
    state.send_modify(|state| {
        if !matches!(state.phase, ClaimPhase::Closed(_)) {
            state.phase = ClaimPhase::Closed(why);
        }
        taken = state.take();
    });
    end_all(taken);
}

fn end_all((gained, owned): (VecDeque<PartitionGuard>, BTreeMap<Vec<u8>, Arc<PartitionHold>>)) {
    drop(gained);
    owned.into_values().for_each(|hold| hold.end());
}

fn candidacy(service: &LockService, id: &[u8], weight: u32) -> Result<Candidacy, InvalidName> {
    Candidacy::new(service, &[CLAIMANT, id].concat(), weight.to_string().as_bytes())
}

/// The lock of a partition.
fn lock_of(name: &[u8]) -> Vec<u8> {
    [PARTITION, name].concat()
}

/// The claimants and owners, as the grantor listed them.
#[derive(Default)]
struct ClaimSnapshot {
    claimants: BTreeMap<Vec<u8>, u32>,
    owners: BTreeMap<Vec<u8>, HolderInfo>,
}

impl ClaimConfig {
    async fn look(&self) -> Result<ClaimSnapshot, InspectError> {
        let (mut snapshot, mut held) = (ClaimSnapshot::default(), self.service.held());
        while let Some(holder) = held.next().await? {
            let Some(name) = holder.name.clone().filter(|_| holder.mode == Mode::Lock) else {
                continue;
            };
            if let Some(id) = name.as_bytes().strip_prefix(CLAIMANT) {
                let weight = std::str::from_utf8(holder.metadata.as_bytes());
                let weight = weight.ok().and_then(|text| text.parse().ok()).unwrap_or_default();
                snapshot.claimants.insert(id.to_vec(), weight);
            } else if let Some(name) = name.as_bytes().strip_prefix(PARTITION) {
                snapshot.owners.insert(name.to_vec(), holder);
            }
        }
        Ok(snapshot)
    }

    /// The number of partitions that this claimant should own.
    fn quota(&self, mut snapshot: ClaimSnapshot, owned: usize) -> usize {
        snapshot.claimants.insert(self.id.clone(), self.weight);
        let own = snapshot.claimants.keys().position(|id| *id == self.id);
        let mut counts: BTreeMap<&[u8], usize> = BTreeMap::new();
        for (_, owner) in snapshot.owners.iter().filter(|(name, _)| self.names.contains(*name)) {
            *counts.entry(owner.metadata.as_bytes()).or_default() += 1;
        }
        // For this claimant itself the present number is known.
        counts.insert(&self.id, owned);
        let share = |(id, weight): (&Vec<u8>, &u32)| ClaimantShare {
            id: id.clone(),
            weight: *weight,
            owned: counts.get(&id[..]).copied().unwrap_or_default(),
        };
        let shares: Vec<ClaimantShare> = snapshot.claimants.iter().map(share).collect();
        let quota = own.map_or(0, |own| quotas(&shares, self.names.len())[own]);
        if planted!(TakeOneLess) { quota.saturating_sub(1) } else { quota }
    }

    /// The position of a partition in this claimant's own order. So two claimants rarely try for
    /// the same partition, and a claimant that comes back prefers its former ones.
    fn rank(&self, name: &[u8]) -> u64 {
        let mut hasher = DefaultHasher::new();
        (&self.id, name).hash(&mut hasher);
        hasher.finish()
    }
}

/// The task of a claim. In whatever way it ends, the claim is closed.
struct ClaimTask {
    claim: Arc<ClaimConfig>,
    state: Arc<watch::Sender<ClaimCore>>,
}

impl ClaimTask {
    async fn run(self, mut request: LockFuture) {
        let (claim, closing) = (self.claim.clone(), self.claim.closing.clone());
        loop {
            let claimed = tokio::select! {
                biased;
                () = closing.cancelled() => break,
                claimed = claim.candidacy.win(request) => claimed,
            };
            match claimed {
                Ok(claimed) => self.share(claimed).await,
                Err(CandidacyEnd::Destroyed) => {
                    return close(&self.state, PartitionsError::Destroyed);
                }
                Err(CandidacyEnd::Left) => return close(&self.state, PartitionsError::Left),
            }
            if closing.is_cancelled() {
                break;
            }
            request = claim.candidacy.queue();
        }
        close(&self.state, PartitionsError::Closed);
    }

    /// Takes and releases partitions from the beginning of the claim until it is lost or closed.
    async fn share(&self, claimed: HeldTerm) {
        let claim = &self.claim;
        let over = claimed.term().clone();
        loop {
            let round = async {
                let wait = self.round().await;
                tokio::select! {
                    biased;
                    () = claim.changed.notified() => {}
                    () = claim.candidacy.sleep(wait) => {}
                }
            };
            tokio::select! {
                biased;
                _ = over.ended() => break,
                () = claim.closing.cancelled() => {
                    // The claim ends first: the other claimants' shares grow from now on.
                    drop(claimed);
                    return self.release_partition().await;
                }
                () = round => {}
            }
        }
        // Without a claim there are no partitions. They end before another process can have the
        // claim.
        self.end_owned();
    }

    /// Requests the release of all partitions, and waits for the grace period at most.
    async fn release_partition(&self) {
        let mut untaken = VecDeque::new();
        self.state.send_if_modified(|state| {
            untaken = std::mem::take(&mut state.gained);
            false
        });
        drop(untaken);
        let now = self.claim.service.now();
        self.owned().iter().for_each(|hold| hold.request_release(now));
        let returned = async {
            while !self.owned().is_empty() {
                self.claim.changed.notified().await;
            }
        };
        let _ = self.claim.service.within(self.claim.grace, returned).await;
    }

    /// Checks the list once, and acts on it. Returns how long to wait for the next check.
    async fn round(&self) -> Duration {
        let claim = &self.claim;
        let mut wait = claim.every;
        let mut owned = self.owned();
        owned.retain(|hold| {
            let Some(since) = hold.requested() else { return true };
            let left = claim.grace.saturating_sub(claim.service.now().since(since));
            if left.is_zero() {
                hold.end();
            }
            wait = wait.min(left.max(Duration::from_millis(1)));
            !left.is_zero()
        });
        let Ok(snapshot) = claim.look().await else { return wait };
        let free: Vec<Vec<u8>> = (claim.names.iter())
            .filter(|name| !snapshot.owners.contains_key(*name))
            .filter(|name| !owned.iter().any(|hold| hold.name == **name))
            .cloned()
            .collect();
        let quota = claim.quota(snapshot, owned.len());
        if owned.len() > quota {
            self.request(owned, quota);
        } else {
            self.take(free, quota - owned.len()).await;
        }
        wait
    }

    /// Tells the owners of the youngest partitions to release them, until no more than `quota`
    /// stay.
    fn request(&self, mut owned: Vec<Arc<PartitionHold>>, quota: usize) {
        planted!(KeepSurplus => return);
        let asked = owned.iter().filter(|hold| hold.requested().is_some()).count();
        let more = (owned.len() - quota).saturating_sub(asked);
        owned.retain(|hold| hold.requested().is_none());
        owned.sort_by_key(|hold| std::cmp::Reverse(hold.token()));
        for hold in owned.iter().take(more) {
            // A partition that `next` has not returned yet is released at once.
            let mut untaken = None;
            self.state.send_if_modified(|state| {
                let at = state.gained.iter().position(|guard| guard.name() == hold.name);
                untaken = at.and_then(|at| state.gained.remove(at));
                false
            });
            if untaken.is_none() {
                hold.request_release(self.claim.service.now());
            }
        }
    }

    /// Tries to lock this many of the free partitions.
    async fn take(&self, mut free: Vec<Vec<u8>>, mut missing: usize) {
        let claim = &self.claim;
        free.sort_by_key(|name| claim.rank(name));
        for name in free {
            if missing == 0 {
                return;
            }
            let attempt = claim.service.try_lock(lock_of(&name));
            match attempt.owner(claim.candidacy.owner()).metadata(&claim.id).await {
                Ok(guard) => {
                    let hold = PartitionHold::new(name.clone(), guard, claim.changed.clone());
                    let (guard, mut closed) = (hold.guard(), None);
                    self.state.send_modify(|state| {
                        if state.phase == ClaimPhase::Started {
                            state.owned.insert(name, hold);
                            state.gained.push_back(guard);
                        } else {
                            closed = Some(guard);
                        }
                    });
                    drop(closed);
                    missing -= 1;
                }
                // Another claimant was faster.
                Err(TryLockError::Held(_)) => {}
                // No grantor answers, or may answer. The next check tries again.
                Err(_) => return,
            }
        }
    }

    /// Returns the partitions that are held at this instant, and forgets the others.
    fn owned(&self) -> Vec<Arc<PartitionHold>> {
        let owned: Vec<_> = self.state.borrow().owned.values().cloned().collect();
        let (held, over): (Vec<_>, Vec<_>) = owned.into_iter().partition(|hold| hold.is_held());
        if !over.is_empty() {
            self.state.send_if_modified(|state| {
                over.iter().for_each(|hold| _ = state.owned.remove(&hold.name));
                false
            });
            // A lost partition is released.
            over.iter().for_each(|hold| hold.end());
        }
        held
    }

    fn end_owned(&self) {
        let mut taken = Default::default();
        self.state.send_if_modified(|state| {
            taken = state.take();
            false
        });
        end_all(taken);
    }
}

impl Drop for ClaimTask {
    fn drop(&mut self) {
        close(&self.state, PartitionsError::Stopped);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Member;
    use crate::service::tests::HANG;
    use std::sync::mpsc::{TryRecvError, channel};

    /// One thread adds the partition again while the other one checks for it.
    #[tokio::test]
    async fn a_partition_that_comes_during_a_look_for_one_is_handed_out() {
        let member = Member::local().await.expect("it founds alone");
        let service = member.lock_service("orders").await.expect("a good name");
        let partitions = Partitions::numbered(&service, 1, "one").expect("a good id").every(HANG);
        partitions.start().expect("a runtime is here");
        let mut partition = partitions.next().await.expect("it is free");
        let (back, handed) = channel();
        let state = partitions.state.clone();
        let puts_back = std::thread::spawn(move || {
            loop {
                match handed.try_recv() {
                    Ok(partition) => state.send_modify(|state| state.gained.push_back(partition)),
                    Err(TryRecvError::Empty) => std::thread::yield_now(),
                    Err(TryRecvError::Disconnected) => return,
                }
            }
        });
        for _ in 0..10_000 {
            back.send(partition).expect("the thread goes on");
            partition = tokio::time::timeout(HANG, partitions.hand_out())
                .await
                .expect("it is handed out")
                .expect("the claim goes on");
        }
        drop(back);
        puts_back.join().expect("no panic");
    }
}
