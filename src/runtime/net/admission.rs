//! The bounds of connections, so that strangers take no connection from members.
//!
//! A *stranger* is a connection whose process is outside this member's view, or is not known yet.
//! The process may have been a member before. Few strangers are admitted. At the limit a new
//! connection closes the stranger that was silent longest. A process that joins sends packets. An
//! attacker that only keeps connections open does not.

use crate::protocol::ProcessId;
use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The most accepted connections: several for each member of the largest cluster.
const MAX_ACCEPTED: usize = 4096;
const MAX_STRANGERS: usize = 256;
const MAX_UNFINISHED: usize = 64;
/// The most sessions of programs. They leave room for members and joiners.
const MAX_SESSIONS: usize = 512;
/// The most unfinished handshakes of one address. Loopback has no such limit.
const MAX_UNFINISHED_OF_ONE: usize = 16;
/// The divisor that gives the part of its time limit for which an unfinished handshake is not
/// evicted. Without it a burst of dials would close connections whose first packet was not read
/// yet. A round trip of the network must fit in.
const GRACE: u32 = 20;
/// How often other tasks run before a handshake is evicted.
const TURNS: usize = 4;
/// The id of no process, which operators' connections have.
pub(super) const NO_PROCESS: ProcessId = ProcessId(0);
/// The most connections of one process. It needs one; a few may cross or replace each other.
const MAX_OF_PROCESS: usize = 8;
/// The time of silence after which a stranger is closed.
const IDLE: Duration = Duration::from_secs(60);
/// The assumed limit of open files where the system reports none.
#[cfg(not(unix))]
const FILES: u64 = 1024;

/// The number of connections of each kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct AdmissionLimits {
    /// The most connections, without those that were dialled to members.
    accepted: usize,
    strangers: usize,
    unfinished: usize,
}

impl AdmissionLimits {
    /// The limits of this process, which leave files for the program around the member.
    pub(super) fn here() -> Self {
        #[cfg(unix)]
        let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
        #[cfg(not(unix))]
        let files = Some(FILES);
        AdmissionLimits::for_files(files.unwrap_or(u64::MAX))
    }

    fn for_files(files: u64) -> Self {
        let files = usize::try_from(files.max(8)).unwrap_or(usize::MAX);
        let accepted = (files / 2).min(MAX_ACCEPTED);
        let strangers = (files / 8).min(MAX_STRANGERS);
        // Half of the strangers' places are left to strangers that have finished their handshakes.
        let unfinished = strangers.div_ceil(2).min(MAX_UNFINISHED);
        AdmissionLimits { accepted, strangers, unfinished }
    }

    /// The most programs for which a member holds locks at a time, or waits for them.
    pub(super) fn sessions(&self) -> usize {
        (self.accepted / 4).min(MAX_SESSIONS)
    }

    /// The most handshakes of strangers at a time.
    pub(super) fn unfinished(&self) -> usize {
        self.unfinished
    }
}

/// The address that counts as one origin. Of IPv6 it is a network of 64 bits, which one machine may
/// have all for itself.
pub(super) fn origin(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(_) => ip,
        IpAddr::V6(_) if planted!(CountEachAddress) => ip,
        IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() >> 64 << 64).into(),
    }
}

/// All connections of a member.
pub(super) struct Admissions {
    limits: AdmissionLimits,
    /// The time for which an unfinished handshake is not evicted.
    grace: Duration,
    /// The time without bytes after which a process is silent: the time limit of a handshake.
    silence: Duration,
    began: Instant,
    table: Mutex<AdmissionTable>,
    /// Connections that were closed to make room, or for their silence.
    pub(super) evicted: AtomicU64,
    /// Notified when a handshake has completed or failed.
    ended: Notify,
}

#[derive(Default)]
struct AdmissionTable {
    next: u64,
    entries: BTreeMap<u64, AdmissionEntry>,
    members: BTreeSet<ProcessId>,
}

struct AdmissionEntry {
    origin: IpAddr,
    /// Whether members or seeds are on the host of the other side. Such a connection gives way
    /// last, and never waits for others.
    is_known: bool,
    /// The process at the other side; `None`: the handshake is unfinished.
    process: Option<ProcessId>,
    is_member: bool,
    /// Whether the connection is a program's session, or leads to a seed: it counts as a member's
    /// whatever the view is.
    is_kept: bool,
    is_dialled: bool,
    heard: Arc<AtomicU64>,
    end: CancellationToken,
}

/// The admission of one connection. It ends when this is dropped.
pub(super) struct Admission {
    admissions: Arc<Admissions>,
    id: u64,
    heard: Arc<AtomicU64>,
    pub(super) opening: ConnectionOpening,
    /// Cancelled when the connection is to end.
    pub(super) end: CancellationToken,
}

/// The side that has opened a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConnectionOpening {
    Accepted,
    /// This member opened the connection. `is_seed`: to the address of a seed.
    Dialled {
        is_seed: bool,
    },
}

impl AdmissionEntry {
    /// A connection whose handshake begins `now`.
    fn new(origin: IpAddr, now: u64) -> Self {
        AdmissionEntry {
            origin,
            is_known: false,
            process: None,
            is_member: false,
            is_kept: false,
            is_dialled: false,
            heard: Arc::new(AtomicU64::new(now)),
            end: CancellationToken::new(),
        }
    }
}

impl Admissions {
    /// `handshake`: the time limit of a handshake.
    pub(super) fn new(limits: AdmissionLimits, handshake: Duration) -> Arc<Self> {
        Arc::new(Admissions {
            limits,
            grace: handshake / GRACE,
            silence: handshake,
            began: Instant::now(),
            table: Mutex::default(),
            evicted: AtomicU64::new(0),
            ended: Notify::new(),
        })
    }

    fn table(&self) -> MutexGuard<'_, AdmissionTable> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// Returns whether one more handshake may begin now. A handshake from a known host takes the
    /// place of one from an unknown host.
    pub(super) fn has_room(&self, is_known: bool) -> bool {
        let is_other = |entry: &AdmissionEntry| entry.process.is_none() && !entry.is_known;
        let table = self.table();
        let unfinished = table.count(|entry| entry.process.is_none());
        unfinished < self.limits.unfinished || is_known && table.count(is_other) > 0
    }

    /// The most connections that wait for room. Each of them is an open file.
    pub(super) fn most_waiting(&self) -> usize {
        self.limits.strangers
    }

    /// Waits until one more handshake may begin: until one has ended, or the first to give way has
    /// had its grace.
    pub(super) async fn room(&self) {
        while let Some(due) = self.full_until() {
            tokio::select! {
                () = self.ended.notified() => {}
                () = tokio::time::sleep_until(due) => {}
            }
        }
    }

    /// Yields so that tasks can read handshake bytes that have already arrived.
    pub(super) async fn let_handshakes_end(&self) {
        for _ in 0..TURNS {
            if self.has_room(false) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// The time from which an unfinished handshake may be ended for another one. `None`: now.
    fn full_until(&self) -> Option<Instant> {
        let table = self.table();
        if table.count(|entry| entry.process.is_none()) < self.limits.unfinished {
            return None;
        }
        let first = self.first_to_go(&table, |entry| entry.process.is_none())?;
        let heard = Duration::from_millis(table.entries.get(&first)?.heard.load(Relaxed));
        let due = self.began + heard + self.grace;
        (due > Instant::now()).then_some(due)
    }

    /// Admits a connection from `ip`. `is_known`: members or seeds are on that host. `None`:
    /// members have all connections, or this address has too many handshakes that have just begun.
    pub(super) fn take(self: &Arc<Self>, ip: IpAddr, is_known: bool) -> Option<Admission> {
        let mut table = self.table();
        let origin = origin(ip);
        let is_from_here =
            |entry: &AdmissionEntry| entry.process.is_none() && entry.origin == origin;
        let is_exempt = ip.is_loopback() || planted!(AdmitAllOfOneAddress);
        if !is_exempt && table.count(is_from_here) >= MAX_UNFINISHED_OF_ONE {
            let grace = self.grace.as_millis() as u64;
            if table.oldest(is_from_here).is_some_and(|begun| begun + grace > self.now()) {
                return None;
            }
            self.evict(&mut table, is_from_here);
        }
        let unfinished = table.count(|entry| entry.process.is_none());
        if unfinished >= self.limits.unfinished && !planted!(AdmitAllHandshakes) {
            self.evict(&mut table, |entry| entry.process.is_none());
        }
        if !self.make_room(&mut table) {
            return None;
        }
        let entry = AdmissionEntry { is_known, ..AdmissionEntry::new(origin, self.now()) };
        Some(self.insert(&mut table, entry, ConnectionOpening::Accepted))
    }

    /// Admits a connection that was dialled, with `process` at its other end. `is_seed`: the
    /// connection gives way to no stranger. `None`: members have all connections, and `process` is
    /// not a member.
    pub(super) fn take_dialled(
        self: &Arc<Self>,
        ip: IpAddr,
        process: ProcessId,
        is_seed: bool,
    ) -> Option<Admission> {
        let mut table = self.table();
        let is_member = is_seed || table.members.contains(&process);
        if !is_member && !self.make_room(&mut table) {
            return None;
        }
        let entry = AdmissionEntry {
            process: Some(process),
            is_member,
            is_kept: is_seed,
            is_dialled: true,
            ..AdmissionEntry::new(origin(ip), self.now())
        };
        let opening = ConnectionOpening::Dialled { is_seed };
        let admission = self.insert(&mut table, entry, opening);
        self.limit_process(&mut table, process);
        Some(admission)
    }

    /// Makes room for one more stranger. `false`: members have all connections.
    fn make_room(&self, table: &mut AdmissionTable) -> bool {
        self.limit_strangers(table, self.limits.strangers - 1);
        let counts = |entry: &AdmissionEntry| !(entry.is_dialled && entry.is_member);
        let is_full = table.count(counts) >= self.limits.accepted;
        !is_full || self.evict(table, |entry| !entry.is_member)
    }

    fn limit_strangers(&self, table: &mut AdmissionTable, most: usize) {
        while table.count(|entry| !entry.is_member) > most && !planted!(AdmitAllStrangers) {
            self.evict(table, |entry| !entry.is_member);
        }
    }

    fn limit_process(&self, table: &mut AdmissionTable, process: ProcessId) {
        let is_its = |entry: &AdmissionEntry| entry.process == Some(process) && !entry.is_kept;
        if table.count(is_its) > MAX_OF_PROCESS && !planted!(AdmitAllOfOneProcess) {
            self.evict(table, is_its);
        }
    }

    fn insert(
        self: &Arc<Self>,
        table: &mut AdmissionTable,
        entry: AdmissionEntry,
        opening: ConnectionOpening,
    ) -> Admission {
        let id = table.next;
        table.next += 1;
        let (heard, end) = (entry.heard.clone(), entry.end.clone());
        table.entries.insert(id, entry);
        Admission { admissions: self.clone(), id, heard, opening, end }
    }

    /// The connection that gives way first, among those for which `fits` is true. A silent one goes
    /// before one that sends: a joiner must not make room for an attacker. Then one from an unknown
    /// host goes before one from a known host, and the one that was silent longest goes first. A
    /// handshake never counts as silent within its time limit, as it may be slow on a busy machine.
    fn first_to_go(
        &self,
        table: &AdmissionTable,
        fits: impl Fn(&AdmissionEntry) -> bool,
    ) -> Option<u64> {
        let (now, silence) = (self.now(), self.silence.as_millis() as u64);
        let candidates = table.entries.iter().filter(|(_, entry)| fits(entry));
        let first = candidates.min_by_key(|(_, entry)| {
            let heard = entry.heard.load(Relaxed);
            let speaks = now.saturating_sub(heard) < silence && !planted!(EvictSpeakers);
            (speaks, entry.is_known && !planted!(EvictKnownHosts), heard)
        });
        first.map(|(id, _)| *id)
    }

    /// Ends the connection that [gives way first](Self::first_to_go) among the fitting ones.
    /// `false`: none fits.
    fn evict(&self, table: &mut AdmissionTable, fits: impl Fn(&AdmissionEntry) -> bool) -> bool {
        let Some(id) = self.first_to_go(table, fits) else { return false };
        if let Some(entry) = table.entries.remove(&id) {
            entry.end.cancel();
            self.evicted.fetch_add(1, Relaxed);
        }
        true
    }

    /// Replaces the set of members. A process that is no longer in the set is a stranger from now
    /// on. It counts as heard just now, since its packets were not noted while it was a member.
    pub(super) fn set_members(&self, members: BTreeSet<ProcessId>) {
        let (mut table, now) = (self.table(), self.now());
        for entry in table.entries.values_mut() {
            let was_member = entry.is_member;
            entry.is_member =
                entry.is_kept || entry.process.is_some_and(|process| members.contains(&process));
            planted!(KeepPlacesOfTheGone => entry.is_member |= was_member);
            if was_member && !entry.is_member {
                entry.heard.store(now, Relaxed);
            }
        }
        table.members = members;
        self.limit_strangers(&mut table, self.limits.strangers);
    }

    /// Ends strangers that were silent for [`IDLE`].
    pub(super) fn sweep(&self) {
        let since = self.now().saturating_sub(IDLE.as_millis() as u64);
        let mut table = self.table();
        let is_idle =
            |entry: &AdmissionEntry| !entry.is_member && entry.heard.load(Relaxed) < since;
        while !planted!(KeepTheSilent) && self.evict(&mut table, is_idle) {}
    }
}

impl AdmissionTable {
    fn count(&self, fits: impl Fn(&AdmissionEntry) -> bool) -> usize {
        self.entries.values().filter(|entry| fits(entry)).count()
    }

    /// Returns the time at which the fitting connection that was silent longest was last heard.
    fn oldest(&self, fits: impl Fn(&AdmissionEntry) -> bool) -> Option<u64> {
        self.entries
            .values()
            .filter(|entry| fits(entry))
            .map(|entry| entry.heard.load(Relaxed))
            .min()
    }
}

impl Admission {
    /// Finishes the handshake: the connection belongs to this process.
    pub(super) fn finish(&self, process: ProcessId) {
        self.note_packet();
        let mut table = self.admissions.table();
        let is_member = table.members.contains(&process) && !planted!(EvictMembers);
        if let Some(entry) = table.entries.get_mut(&self.id) {
            entry.process = Some(process);
            entry.is_member = is_member || entry.is_kept;
        }
        self.admissions.limit_process(&mut table, process);
        drop(table);
        self.admissions.ended.notify_one();
    }

    /// Counts the connection as a member's from now on: no stranger takes its place.
    pub(super) fn keep(&self) {
        if let Some(entry) = self.admissions.table().entries.get_mut(&self.id) {
            (entry.is_member, entry.is_kept) = (true, true);
        }
    }

    /// Notes that bytes have arrived.
    pub(super) fn note_packet(&self) {
        self.heard.store(self.admissions.now(), Relaxed);
    }
}

impl Drop for Admission {
    fn drop(&mut self) {
        self.admissions.table().entries.remove(&self.id);
        self.admissions.ended.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    const LOOPBACK: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);
    const HANDSHAKE: Duration = Duration::from_secs(1);
    const GRACE: Duration = Duration::from_millis(50);
    const FAR: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));

    fn open(admissions: &[Admission]) -> usize {
        admissions.iter().filter(|admission| !admission.end.is_cancelled()).count()
    }

    #[test]
    fn limits_leave_files_for_the_program_and_connections_for_members() {
        let few = AdmissionLimits::for_files(1024);
        assert_eq!(few, AdmissionLimits { accepted: 512, strangers: 128, unfinished: 64 });
        let many = AdmissionLimits::for_files(1 << 20);
        assert_eq!(many, AdmissionLimits { accepted: 4096, strangers: 256, unfinished: 64 });
        for files in [0, 8, 100, 1024, u64::MAX] {
            let limits = AdmissionLimits::for_files(files);
            let AdmissionLimits { accepted, strangers, unfinished } = limits;
            assert!(strangers >= 1 && strangers * 4 <= accepted, "{files}: {limits:?}");
            // Half of the places are left to strangers that have finished their handshakes.
            assert!(unfinished >= 1 && unfinished * 2 <= strangers + 1, "{files}: {limits:?}");
            assert!(limits.sessions() >= 1 && limits.sessions() * 4 <= accepted, "{files}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn the_stranger_that_was_silent_longest_gives_way() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let mut taken: Vec<Admission> = Vec::new();
        for number in 0..300_u128 {
            tokio::time::advance(Duration::from_millis(1)).await;
            let admission = admissions.take(LOOPBACK, false).expect("a stranger gives way");
            admission.finish(ProcessId(number + 1));
            taken.push(admission);
            taken[0].note_packet();
        }
        assert_eq!(open(&taken), MAX_STRANGERS);
        assert_eq!(
            [0, 1, 299].map(|number| taken[number].end.is_cancelled()),
            [false, true, false]
        );
    }

    #[tokio::test(start_paused = true)]
    async fn unfinished_handshakes_are_few_and_fewer_for_one_address() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let take_far = || admissions.take(FAR, false);
        let mut far: Vec<Admission> = (0..100).filter_map(|_| take_far()).collect();
        assert_eq!((open(&far), far.len()), (MAX_UNFINISHED_OF_ONE, MAX_UNFINISHED_OF_ONE));
        tokio::time::advance(GRACE).await;
        far.push(take_far().expect("the oldest gives way"));
        assert!(far[0].end.is_cancelled() && open(&far) == MAX_UNFINISHED_OF_ONE);
        let near: Vec<Admission> =
            (0..100).map(|_| admissions.take(LOOPBACK, false).expect("room")).collect();
        assert_eq!(open(&near) + open(&far), MAX_UNFINISHED);
    }

    #[tokio::test(start_paused = true)]
    async fn the_addresses_of_one_network_of_ipv6_are_one_origin() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let near = |number: u128| IpAddr::from(Ipv6Addr::from_bits((0x2001_0db8 << 96) + number));
        let taken: Vec<_> =
            (0..40).filter_map(|number| admissions.take(near(number), false)).collect();
        assert_eq!(taken.len(), MAX_UNFINISHED_OF_ONE);
        assert!(admissions.take(near(1 << 64), false).is_some(), "another network has room");
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_of_handshakes_waits_for_the_oldest_to_end_or_to_have_its_grace() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let began = Instant::now();
        let mut taken = Vec::new();
        for _ in 0..MAX_UNFINISHED {
            admissions.room().await;
            taken.push(admissions.take(LOOPBACK, false).expect("room"));
        }
        assert_eq!(began.elapsed(), Duration::ZERO);
        admissions.room().await;
        assert_eq!(began.elapsed(), GRACE);
        taken.push(admissions.take(LOOPBACK, false).expect("room"));
        assert!(taken[0].end.is_cancelled() && !taken[1].end.is_cancelled());
        // A handshake that ends makes room at once.
        let late = admissions.clone();
        let waiting = tokio::spawn(async move { late.room().await });
        tokio::task::yield_now().await;
        taken[MAX_UNFINISHED].finish(ProcessId(1));
        waiting.await.expect("it ends");
        assert_eq!(began.elapsed(), GRACE);
    }

    #[tokio::test(start_paused = true)]
    async fn handshakes_from_unknown_hosts_give_way_first() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let take = |is_known| admissions.take(LOOPBACK, is_known).expect("room");
        let known = take(true);
        let crowd: Vec<Admission> = (1..MAX_UNFINISHED).map(|_| take(false)).collect();
        assert_eq!([true, false].map(|is_known| admissions.has_room(is_known)), [true, false]);
        let more: Vec<Admission> = (1..MAX_UNFINISHED).map(|_| take(true)).collect();
        assert_eq!((open(&crowd), open(&more)), (0, more.len()));
        assert!(!known.end.is_cancelled() && !admissions.has_room(true));
    }

    #[tokio::test(start_paused = true)]
    async fn a_joiner_that_speaks_stays_and_silent_connections_of_known_hosts_give_way() {
        let limits = AdmissionLimits { accepted: 4096, strangers: 8, unfinished: 4 };
        let admissions = Admissions::new(limits, HANDSHAKE);
        let joiner = admissions.take(FAR, false).expect("room");
        joiner.finish(ProcessId(1));
        let take_near = || admissions.take(LOOPBACK, true).expect("room");
        let silent: Vec<Admission> = (2..9)
            .map(|number| {
                let admission = take_near();
                admission.finish(ProcessId(number));
                admission
            })
            .collect();
        tokio::time::advance(HANDSHAKE).await;
        joiner.note_packet();
        let next: Vec<Admission> = (0..4).map(|_| take_near()).collect();
        assert!(!joiner.end.is_cancelled(), "it speaks");
        assert_eq!((open(&silent), open(&next)), (3, 4));
    }

    #[tokio::test(start_paused = true)]
    async fn a_handshake_from_an_unknown_host_has_its_grace_while_one_from_a_known_host_is_slow() {
        let limits = AdmissionLimits { accepted: 4096, strangers: 8, unfinished: 2 };
        let admissions = Admissions::new(limits, HANDSHAKE);
        let slow = admissions.take(LOOPBACK, true).expect("room");
        tokio::time::advance(GRACE).await;
        let fresh = admissions.take(FAR, false).expect("room");
        let began = Instant::now();
        admissions.room().await;
        assert_eq!(began.elapsed(), GRACE, "the fresh one has its grace");
        let _next = admissions.take(FAR, false).expect("room");
        assert!(fresh.end.is_cancelled() && !slow.end.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn a_dialled_connection_takes_no_place_of_a_handshake() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let crowd: Vec<Admission> =
            (0..MAX_UNFINISHED).map(|_| admissions.take(LOOPBACK, false).expect("room")).collect();
        let dialled = admissions.take_dialled(FAR, ProcessId(1), false).expect("room");
        assert_eq!(open(&crowd), MAX_UNFINISHED);
        assert!(!dialled.end.is_cancelled());
    }

    #[tokio::test(start_paused = true)]
    async fn the_connections_of_a_process_that_leaves_the_view_are_those_of_a_stranger() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        admissions.set_members((1..=300).map(ProcessId).collect());
        let mut all: Vec<Admission> = (1..=300)
            .map(|number| admissions.take_dialled(FAR, ProcessId(number), false).expect("room"))
            .collect();
        all.push(admissions.take_dialled(FAR, ProcessId(400), true).expect("a seed has room"));
        tokio::time::advance(2 * IDLE).await;
        admissions.sweep();
        assert_eq!(open(&all), 301, "members may be silent");
        admissions.set_members([ProcessId(300)].into());
        assert_eq!(open(&all), MAX_STRANGERS + 2, "more are not taken of strangers");
        admissions.sweep();
        assert_eq!(open(&all), MAX_STRANGERS + 2, "they were heard just now");
        tokio::time::advance(IDLE + Duration::from_millis(1)).await;
        admissions.sweep();
        assert_eq!(open(&all), 2, "the member and the seed");
    }

    #[tokio::test(start_paused = true)]
    async fn members_stay_connected_and_silent_strangers_do_not() {
        let admissions = Admissions::new(AdmissionLimits::for_files(1 << 20), HANDSHAKE);
        let member = admissions.take(LOOPBACK, false).expect("room");
        member.finish(ProcessId(1));
        admissions.set_members([ProcessId(1), ProcessId(2)].into());
        let other = admissions.take(LOOPBACK, false).expect("room");
        other.finish(ProcessId(2));
        let stranger = admissions.take(LOOPBACK, false).expect("room");
        stranger.finish(ProcessId(3));
        tokio::time::advance(IDLE + Duration::from_millis(1)).await;
        admissions.sweep();
        let ended = [&member, &other, &stranger].map(|admission| admission.end.is_cancelled());
        assert_eq!(ended, [false, false, true]);
        let floods: Vec<Admission> =
            (0..1000).map(|_| admissions.take(LOOPBACK, false).expect("room")).collect();
        assert_eq!([&member, &other].map(|admission| admission.end.is_cancelled()), [false, false]);
        drop(floods);
        assert_eq!(admissions.table().entries.len(), 2, "an admission ends when it is dropped");
        let many: Vec<Admission> =
            (0..20).map(|_| admissions.take(LOOPBACK, false).expect("room")).collect();
        many.iter().for_each(|admission| admission.finish(ProcessId(2)));
        assert_eq!(open(&many), MAX_OF_PROCESS);
    }
}
