//! `Node`: one member's whole protocol. It routes inputs and messages; the roles decide.

mod affiliation;
mod death_check;
mod dispatch;
mod keeping;
mod leasing;
mod routing;
mod voting;

use super::cluster::decision::{Acceptor, Proposal, ProposalPhase, choose};
use super::cluster::discovery::{Discovery, FoundingOutcome};
use super::cluster::durability::{AfterStore, VoteDurability, founding_vote};
use super::cluster::elder::Elder;
use super::cluster::lease::{OwnLease, rank};
use super::cluster::view::{Change, View};
use super::cluster::vote_successor::{StoredVote, VoteSender, VoteSuccessor, VoteSuccessors};
use super::event::{
    Command, Config, Event, GrantorLoad, GrantorState, Hint, Input, LostReason, Outcome, Output, ServiceStatus, Sizes,
    Status, StatusMark, Wait,
};
use super::id::{
    Epoch, Lineage, LockName, MemberInfo, Metadata, OwnerId, ProcessId, RequestId, ServiceName, Slot, Ticket, Token,
    ViewNumber, Want,
};
use super::link::LinkSet;
use super::locks::client::{LockClient, LockRequest};
use super::locks::grantor::{Asked, Grantor};
use super::locks::registry::Registry;
use super::locks::table::{Contents, RequestSpec};
use super::message::{Affiliation, Ballot, Content, Message, Notice, Origin, Packet, Query, QueryReply, TokenRange};
use super::step_context::StepContext;
use super::time::{Time, WallClock, WrongClock};
use super::timing::Timing;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::hash::{Hash, Hasher};
use std::net::SocketAddr;
use std::ops::Bound;
use std::sync::Arc;

/// A forced lineage begins this many slots above the last known view: the rest of the old lineage
/// may have gone on.
const FORCE_GAP: u64 = 32 * Slot::PER_SECOND;
/// Capacity, in messages, that the outbox keeps between steps.
const MAIL: usize = 64;
/// A failed write is tried again after this many times `retry`.
const STORE_AGAIN: u32 = 4;

/// The phase of a process's membership.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
enum MemberPhase {
    /// In no view yet.
    Seeking(Box<Discovery>),
    /// In a view.
    Member,
    /// Is about to say goodbye, or has said it. It holds nothing, grants until its tables are
    /// handed over, and says goodbye after that. It still votes, so that its leaving costs no
    /// quorum.
    Leaving {
        /// When goodbye is said again.
        again_at: Time,
        /// When it stops waiting for other members.
        until: Time,
    },
    /// Decided a view without itself, and stays until that view's members know of it.
    Retiring {
        /// When the view is sent to them again.
        again_at: Time,
        /// When it stops waiting for other members.
        until: Time,
        /// The members that know.
        informed: BTreeSet<ProcessId>,
        /// Whether it said goodbye before.
        left: bool,
    },
    /// Out for good.
    Gone,
}

/// One member's whole protocol, as a plain value.
///
/// Nothing happens but in [`step`](Node::step); between steps it can be copied, compared, hashed and printed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    config: Config,
    phase: MemberPhase,
    /// Stays after the end, for the record.
    view: Option<Arc<View>>,
    /// This member is the elder of the view and a quorum of its council by itself.
    sole_quorum: bool,
    /// The change that made the view with that number, for members that have the one before it.
    last_change: Option<(ViewNumber, Change)>,
    /// The wall clock as it was when this incarnation began.
    clock: WallClock,
    /// Advances at the pace of time from the first slot of its first view.
    pace: Option<WallClock>,
    links: LinkSet,
    lease: OwnLease,
    acceptor: Acceptor,
    /// Present while this process is in no view and has the vote of a former process.
    vote_successor: Option<VoteSuccessor>,
    /// The vote writes of this process, and the work that waits for them.
    durability: VoteDurability,
    /// A vote successor that is not stored as one yet.
    is_unstored_successor: bool,
    /// The vote successors for the next view.
    vote_successors: VoteSuccessors,
    proposal: Option<Proposal>,
    /// No takeover is tried before: another candidate's higher ballot goes first.
    yield_until: Time,
    /// The highest round heard of in this instance.
    rounds: u32,
    elder: Option<Elder>,
    /// Number of the last pulse sent in earlier tenures as elder: a number never means two pulses.
    last_pulse: u64,
    holder: LockClient,
    grantors: BTreeMap<ServiceName, Grantor>,
    /// Services that this member gives away, and when it proposes a successor again.
    relinquishing: BTreeMap<ServiceName, Time>,
    /// The members that took them over, until they have acknowledged all messages of the handover.
    pending_handovers: BTreeMap<ServiceName, PendingHandover>,
    /// Requests for epochs that this member has not heard of yet.
    early_requests: BTreeMap<ServiceName, Vec<(Epoch, Asked)>>,
    /// Queue positions that are to be reported to other members, in the order in which they were
    /// given.
    pending_positions: VecDeque<PendingPosition>,
    /// Processes known to be dead for sure.
    dead: BTreeSet<ProcessId>,
    /// When this member learned that the elder of the view is dead.
    elder_dead_at: Option<Time>,
    /// Processes that some hint calls unreachable.
    suspected: BTreeSet<ProcessId>,
    /// While it leaves: since when each process has refused connections without any packet from it.
    refused: BTreeMap<ProcessId, Time>,
    /// Members that refuse connections, or that other members report as refusing.
    death_suspicions: BTreeMap<ProcessId, death_check::DeathSuspicion>,
    /// When the dead are reported to the council again.
    vouch_at: Time,
    /// When a newer view was last asked for.
    fetched_at: Time,
    /// When this process became a member: one that never gets a lease gives up.
    member_since: Time,
    /// When the seeds are greeted again; while suspended, every known process.
    hello_at: Time,
    /// When this member calls itself orphaned; `Time::MAX` while its lease runs, or when it has done so.
    orphaned_at: Time,
    /// An operator has forced it: its next incarnation founds a new lineage.
    forced: bool,
    /// It met a lineage that goes on in its place, and gives its own one up.
    defected: bool,
    /// Messages that roles send. Empty between steps; only the memory is kept.
    outbox: VecDeque<(ProcessId, Message)>,
    /// Messages to itself in this step that are not delivered yet.
    self_outbox: VecDeque<Message>,
    /// Whether it is delivering them, one after the other.
    is_delivering_to_self: bool,
    quiet_until: QuietUntil,
}

/// A table handed over by a member that leaves, or has destroyed the service. The member stays
/// until the last chunk has arrived.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PendingHandover {
    to: ProcessId,
    /// The number of that chunk on the link, or of a message after it; `None`: it was sent in this
    /// step.
    last: Option<u64>,
}

/// A queue position that another member is told of, if its request still waits at the time `at`:
/// see [`tell_places`](Node::tell_places).
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct PendingPosition {
    at: Time,
    to: ProcessId,
    service: ServiceName,
    epoch: Epoch,
    request: RequestId,
    ticket: Ticket,
}

/// Until when nothing is due, and a command may be done [at once](Node::try_fast); `None`: to be found out.
///
/// It is derived, and does not count as a node's state: two nodes that differ in nothing else are
/// equal.
#[derive(Clone, Copy, Debug)]
struct QuietUntil(Option<Time>);

impl PartialEq for QuietUntil {
    fn eq(&self, _: &QuietUntil) -> bool {
        true
    }
}

impl Eq for QuietUntil {}

impl Hash for QuietUntil {
    fn hash<H: Hasher>(&self, _: &mut H) {}
}

/// The result of a command on the fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastOutcome {
    /// The request holds, with this token, until then.
    Granted(Token, Time),
    /// The request is over.
    Released,
}

/// A lock that was taken with a token of [`Node::offer`].
#[derive(Debug)]
pub struct LocalGrant {
    /// Its name.
    pub name: LockName,
    /// The owner.
    pub owner: OwnerId,
    /// One of the offered tokens.
    pub token: Token,
    /// When it was taken.
    pub since: Time,
}

impl Node {
    /// A node that seeks its cluster from `now` on. Call [`step`](Node::step) with [`Input::Timer`] to set it going.
    pub fn new(mut config: Config, now: Time) -> Node {
        let heir = config.stored.as_ref().and_then(|stored| VoteSuccessor::of(stored, config.me.process, now));
        if config.last_view().is_some() {
            // A known cluster may live on: the process joins it or continues it, and never founds
            // it again.
            config.found_alone = false;
            config.seeds.remove(&config.me.addr);
        }
        #[cfg(elderlock_mutants)]
        let heir = heir.map(|heir| {
            let free_at = if planted!(config.mutant, HeirVotesAtOnce) { now } else { heir.free_at };
            VoteSuccessor { free_at, ..heir }
        });
        let mut seeking = Discovery::new(&config, now);
        seeking.set_voters(heir.iter().flat_map(VoteSuccessor::addrs).collect());
        let config_acceptor = match (&heir, &config.stored) {
            (Some(_), Some(stored)) => stored.acceptor.clone(),
            _ => Acceptor::default(),
        };
        Node {
            phase: MemberPhase::Seeking(Box::new(seeking)),
            view: None,
            sole_quorum: false,
            last_change: None,
            clock: WallClock::new(now, config.clock),
            pace: None,
            links: LinkSet::new(&config),
            lease: OwnLease::default(),
            acceptor: config_acceptor,
            durability: VoteDurability::default(),
            is_unstored_successor: heir.is_some(),
            vote_successor: heir,
            vote_successors: VoteSuccessors::default(),
            proposal: None,
            yield_until: Time::ZERO,
            rounds: 0,
            elder: None,
            last_pulse: 0,
            holder: LockClient::new(&config.limits),
            grantors: BTreeMap::new(),
            relinquishing: BTreeMap::new(),
            pending_handovers: BTreeMap::new(),
            early_requests: BTreeMap::new(),
            pending_positions: VecDeque::new(),
            dead: BTreeSet::new(),
            elder_dead_at: None,
            suspected: BTreeSet::new(),
            refused: BTreeMap::new(),
            death_suspicions: BTreeMap::new(),
            vouch_at: Time::MAX,
            fetched_at: Time::ZERO,
            member_since: Time::MAX,
            hello_at: Time::ZERO,
            orphaned_at: Time::MAX,
            forced: false,
            defected: false,
            outbox: VecDeque::new(),
            self_outbox: VecDeque::new(),
            is_delivering_to_self: false,
            quiet_until: QuietUntil(None),
            config,
        }
    }

    /// Whether it is a member of its view: neither in discovery nor leaving.
    pub fn belongs(&self) -> bool {
        self.phase == MemberPhase::Member
    }

    /// The configuration for the next incarnation of this process, after [`Event::Expelled`] or
    /// [`Event::Abandoned`]. `clock` is the wall clock's time now.
    ///
    /// An expelled process knows that the cluster lives on without it: from then on it joins and
    /// never founds.
    pub fn next_life(&self, process: ProcessId, clock: Slot) -> Config {
        let mut config = self.config.clone();
        config.me.process = process;
        config.clock = clock;
        if self.vote_successor.is_some() || self.config.durable {
            config.stored = self.stored_vote().or(config.stored);
        }
        if self.defected {
            config.stored = None;
        }
        if let Some(view) = &self.view
            && (!view.contains(self.config.me.process) || self.defected)
        {
            config.remembered = Some(View::clone(view));
        }
        if self.forced {
            let last = self.ballot_view().map(|view| view.end_slot()).max(config.last_view().map(View::end_slot));
            config.found_above = last.map_or(Slot(0), |last| last.plus(FORCE_GAP));
            config.found_alone = true;
            config.stored = None;
            config.remembered = None;
        }
        config
    }

    /// The one entry for inputs. Appends the outputs to `out`, in order.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        if let Input::Command(command) = &input
            && let Some(done) = self.try_fast(now, command)
        {
            if let (FastOutcome::Granted(token, until), Command::Lock { request, .. }) = (done, command) {
                out.push(Output::Answer { request: *request, outcome: Outcome::Granted { token, until } });
            }
            return;
        }
        let is_short = self.is_short(now, &input);
        if is_short {
            self.look(now);
        } else {
            self.quiet_until = QuietUntil(None);
            if std::mem::take(&mut self.is_unstored_successor) {
                self.store(out); // the vote successor, before any member can take it in
            }
            if self.phase == MemberPhase::Gone {
                return self.answer_gone(input, out);
            }
            self.look_at_lease(now, out);
        }
        match input {
            Input::Received { from, addr, packet } => {
                // A packet from it refutes any earlier hint.
                if !self.suspected.is_empty() {
                    self.suspected.remove(&from);
                }
                if !self.is_unwritten() {
                    self.links.on_straight(now, from);
                    self.on_packet(now, from, addr, packet, out);
                }
            }
            Input::Command(command) => self.on_command(now, command, out),
            Input::Hint(hint) => self.on_hint(now, hint, out),
            Input::Timer => {}
            Input::Stored { number } => self.on_stored(now, number, out),
            Input::StoreFailed { number } => self.on_store_failed(now, number),
        }
        if is_short && self.stays_calm(now) {
            return;
        }
        self.quiet_until = QuietUntil(None);
        self.on_timer(now, out);
        self.look_at_lease(now, out);
        self.end_services(now, out);
    }

    /// Answers commands after the end of the membership.
    fn answer_gone(&self, input: Input, out: &mut Vec<Output>) {
        if let Input::Command(Command::Extend { request, .. } | Command::Reduce { request, .. }) = input {
            out.push(Output::Answer { request, outcome: Outcome::NotHeld });
        } else if let Input::Command(
            Command::Lock { request, .. }
            | Command::Upgrade { request, .. }
            | Command::Write { request, .. }
            | Command::Become { request, .. }
            | Command::Destroy { request, .. }
            | Command::Confirm { request, .. }
            | Command::Query { request, .. }
            | Command::Revoke { request, .. },
        ) = input
        {
            out.push(Output::Answer { request, outcome: Outcome::Closed(LostReason::Left) });
        }
    }

    /// Whether this can change only requests, links and one table, and nothing is due. Then no
    /// other state need be checked before and after it. Nearly all messages about locks are of this
    /// kind.
    fn is_short(&mut self, now: Time, input: &Input) -> bool {
        let is_plain = match input {
            Input::Received { packet: Packet::Linked { message, .. }, .. } => is_plain(message),
            Input::Received { packet: Packet::Ack { .. }, .. } => true,
            Input::Command(Command::Lock { .. } | Command::Release { .. }) => true,
            _ => false,
        };
        is_plain && self.suspected.is_empty() && now < self.calm_until()
    }

    /// After a short step: whether its preconditions still hold. It can only make a link, a request
    /// or a queue position due.
    fn stays_calm(&mut self, now: Time) -> bool {
        let QuietUntil(Some(calm)) = self.quiet_until else { return false };
        let due = [self.links.deadline(), self.holder.deadline(), self.places_due()];
        let due = due.into_iter().flatten().fold(calm, Time::min);
        self.quiet_until = QuietUntil(Some(due));
        now < due && self.is_idle()
    }

    /// The fast path: grants or releases a free lock, or a share of one, if only the holder is
    /// concerned. The service must be one that this member grants itself. No message is sent and
    /// only the hold changes, so neither the clocks nor other state need be checked. The result is
    /// the same as in a full step; `None`: a full step is needed.
    pub(crate) fn try_fast(&mut self, now: Time, command: &Command) -> Option<FastOutcome> {
        if !matches!(command, Command::Lock { want: Want::Lock(_) | Want::Share(_), .. } | Command::Release { .. })
            || now >= self.calm_until()
        {
            return None;
        }
        let me = self.config.me.process;
        let done = match command {
            Command::Lock { request, service, want, owner, wait, lease, revocable, metadata } => {
                let (request, owner, lease, revocable) = (*request, *owner, *lease, *revocable);
                let grantor = self.grantors.get_mut(service)?;
                let (service, want, metadata) = (service.clone(), want.clone(), metadata.clone());
                let wish = LockRequest { request, service, want, owner, wait: *wait, lease, revocable, metadata };
                let home = (me, grantor.epoch());
                let (token, until) = self.holder.hold_at_once(wish, home, now, |wish| {
                    let (want, metadata) = (&wish.want, &wish.metadata);
                    let entry = || RequestSpec { want: want.clone(), owner, revocable, metadata: metadata.clone() };
                    grantor.grant_at_once((me, request), entry, now)
                })?;
                if let QuietUntil(Some(calm)) = &mut self.quiet_until {
                    *calm = until.min(*calm);
                }
                FastOutcome::Granted(token, until)
            }
            Command::Release { request } => {
                let (service, name) = self.holder.held_lock(*request)?;
                let grantor = self.grantors.get_mut(service)?;
                if !self.holder.is_home(service, (me, grantor.epoch())) || !grantor.end_at_once((me, *request), name) {
                    return None;
                }
                self.holder.end_at_once(*request);
                FastOutcome::Released
            }
            _ => return None,
        };
        self.look(now);
        Some(done)
    }

    /// The tokens with which this member may take, without a step, a lock of a service that it
    /// grants itself. No other member is concerned, and nothing is due. So the node need not change
    /// for it. Several locks may be taken in parallel, each with its own token; locks of one name
    /// one after the other. But [`absorb`](Node::absorb) must come before any other use of the
    /// node. The result is the same as that of commands.
    pub fn offer(&self, now: Time, service: &ServiceName, name: &LockName) -> Option<TokenRange> {
        if !matches!(self.quiet_until, QuietUntil(Some(calm)) if now < calm) {
            return None;
        }
        let grantor = self.grantors.get(service)?;
        let home = (self.config.me.process, grantor.epoch());
        if self.holder.may_hold(service, home) { grantor.offer(name) } else { None }
    }

    /// Enters local grants. `spent` of the [offered](Node::offer) tokens were used; the given locks
    /// are still held, in the order of their tokens, and the others are released already.
    pub fn absorb(
        &mut self,
        service: &ServiceName,
        spent: u64,
        held: impl IntoIterator<Item = (RequestId, LocalGrant)>,
    ) {
        let Some(grantor) = self.grantors.get_mut(service) else { return };
        for (request, LocalGrant { name, owner, token, since }) in held {
            let want = Want::Lock(name);
            let entry = RequestSpec { want: want.clone(), owner, revocable: false, metadata: Metadata::default() };
            grantor.hold((self.config.me.process, request), entry, token, since);
            let (service, metadata) = (service.clone(), Metadata::default());
            let wish =
                LockRequest { request, service, want, owner, wait: Wait::Try, lease: None, revocable: false, metadata };
            self.holder.hold(wish, token, since);
        }
        grantor.spend(spent);
    }

    /// Whether no work is under way that every step continues.
    fn is_idle(&self) -> bool {
        self.relinquishing.is_empty()
            && self.pending_handovers.is_empty()
            && self.early_requests.is_empty()
            && !self.is_unstored_successor
            && !self.holder.has_endings()
            && !self.elder.as_ref().is_some_and(|elder| elder.registry.has_parked())
    }

    /// Until when [`try_fast`](Node::try_fast) may be tried, and other steps may be short.
    fn calm_until(&mut self) -> Time {
        if let QuietUntil(Some(calm)) = self.quiet_until {
            return calm;
        }
        let is_calm = self.is_idle() && self.phase == MemberPhase::Member && self.lease.running;
        let calm = if is_calm { self.deadline().unwrap_or(Time::MAX) } else { Time::ZERO };
        #[cfg(elderlock_mutants)]
        let calm = match self.config.mutant {
            None => calm,
            Some(super::mutant::ProtocolMutant::AtOnceThoughLate) if is_calm => Time::MAX,
            Some(_) => Time::ZERO, // breaks are planted in full steps
        };
        self.quiet_until = QuietUntil(Some(calm));
        calm
    }

    /// When a caller without other inputs should step again. Never later than
    /// [`deadline`](Node::deadline), and cheaper to compute, but possibly too early.
    pub fn wake_by(&self) -> Option<Time> {
        match self.quiet_until {
            QuietUntil(Some(calm)) if calm > Time::ZERO => (calm != Time::MAX).then_some(calm),
            _ => self.deadline(),
        }
    }

    /// When [`Input::Timer`] is due next; `None`: never.
    pub fn deadline(&self) -> Option<Time> {
        let mut due = Time::MAX;
        match &self.phase {
            MemberPhase::Gone => return None,
            MemberPhase::Seeking(_) if self.is_unwritten() => {}
            MemberPhase::Seeking(seeking) => due = due.min(seeking.deadline()),
            // Goodbye is said when nothing is granted here any more: no timer decides that.
            MemberPhase::Leaving { until, .. } if !self.has_handed_over() => due = due.min(*until),
            MemberPhase::Leaving { again_at, until } | MemberPhase::Retiring { again_at, until, .. } => {
                due = due.min(*again_at).min(*until);
            }
            MemberPhase::Member => {}
        }
        due = due.min(self.holder.deadline().unwrap_or(Time::MAX));
        due = due.min(self.relinquishing.values().min().copied().unwrap_or(Time::MAX));
        due = due.min(self.durability.deadline().unwrap_or(Time::MAX));
        if self.vote_successor.is_some()
            && !self.is_unwritten()
            && let Some(view) = self.ballot_view()
        {
            due = due.min(match &self.proposal {
                Some(proposal) => self.proposal_due(&view, proposal),
                None => self.takeover_at(&view),
            });
        }
        if let Some(view) = self.view.as_ref().filter(|_| !matches!(self.phase, MemberPhase::Retiring { .. })) {
            due = due.min(self.links.deadline().unwrap_or(Time::MAX)).min(self.vouch_at);
            due = due.min(self.places_due().unwrap_or(Time::MAX)).min(self.doubts_due().unwrap_or(Time::MAX));
            if self.phase == MemberPhase::Member {
                let end = if self.lease.running { self.lease_end() } else { self.give_up_at(view) };
                due = due.min(end).min(self.hello_at).min(self.orphaned_at);
            }
            match &self.elder {
                Some(elder) => due = due.min(elder.deadline(self.proposal.is_none(), view.timing.retry)),
                None => due = due.min(self.lease.next_beat),
            }
            match &self.proposal {
                Some(proposal) => due = due.min(self.proposal_due(view, proposal)),
                None => due = due.min(self.takeover_at(view)),
            }
        }
        (due != Time::MAX).then_some(due)
    }

    /// The id of this process.
    pub fn process(&self) -> ProcessId {
        self.config.me.process
    }

    /// The view it is in, or was in last.
    pub fn view(&self) -> Option<&View> {
        self.view.as_deref()
    }

    /// The end of this member's lease: before it, and only before it, this member may hold and grant.
    /// [`Time::MAX`] while no one else could take over. [`Time::ZERO`] before the first renewal.
    pub fn lease_end(&self) -> Time {
        match (&self.phase, &self.view) {
            (MemberPhase::Member, Some(_)) if self.is_alone() => Time::MAX,
            (MemberPhase::Member, Some(_)) if self.lease.ever && planted!(self.config.mutant, LeaseWithoutEnd) => {
                Time::MAX
            }
            (MemberPhase::Member, Some(_)) => self.lease.until,
            _ => Time::ZERO,
        }
    }

    /// Before it, and only before it, this member may grant: also while it waits for others to take
    /// over its services.
    fn granting_end(&self) -> Time {
        match (&self.phase, &self.view) {
            (MemberPhase::Leaving { .. }, Some(_)) if self.is_alone() => Time::MAX,
            (MemberPhase::Leaving { .. }, Some(_)) => self.lease.until,
            _ => self.lease_end(),
        }
    }

    /// Whether it is in a view and its lease runs: joined, and able to hold locks.
    pub fn is_ready(&self, now: Time) -> bool {
        now < self.lease_end()
    }

    /// Whether it is the elder of its view.
    pub fn is_elder(&self) -> bool {
        self.elder.is_some()
    }

    /// The services whose grantor it is, with the grantor's epoch and state.
    pub fn grantors(&self) -> impl Iterator<Item = (&ServiceName, Epoch, GrantorState)> {
        self.grantors.iter().map(|(service, grantor)| (service, grantor.epoch(), grantor.state()))
    }

    /// The load of the service's grantor, if it acts here.
    pub fn load(&self, service: &ServiceName) -> Option<GrantorLoad> {
        self.grantors.get(service).and_then(Grantor::load)
    }

    /// The load of each grantor that acts here. Costs as much as there are grantors and members in their tables, however
    /// long these are.
    pub fn loads(&self) -> impl Iterator<Item = (&ServiceName, GrantorLoad)> {
        self.grantors.iter().filter_map(|(service, grantor)| Some((service, grantor.load()?)))
    }

    /// The requests in the table of the service's grantor, if it is the grantor. Requests that hold
    /// have their token.
    pub fn table(&self, service: &ServiceName) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.grantors.get(service).into_iter().flat_map(Grantor::requests)
    }

    /// The table that the service's grantor, if it is here, would hand over at `now`: holds, and
    /// waits in order.
    pub fn contents(&self, service: &ServiceName, now: Time) -> Contents {
        self.grantors.get(service).map(|grantor| grantor.contents(now)).unwrap_or_default()
    }

    /// The locks that the service's grantor has granted, if it is here: the holder, its request and
    /// its token.
    pub fn held(&self, service: &ServiceName) -> impl Iterator<Item = (&LockName, ProcessId, RequestId, Token)> {
        self.grantors.get(service).into_iter().flat_map(Grantor::held)
    }

    /// The objects that the service's grantor knows, if it is here, and their contents.
    pub fn objects(&self, service: &ServiceName) -> impl Iterator<Item = (&LockName, &Content)> {
        self.grantors.get(service).into_iter().flat_map(Grantor::objects)
    }

    /// The waiting requests of the service's grantor, if it is here, with their tickets.
    pub fn waiting(&self, service: &ServiceName) -> impl Iterator<Item = (ProcessId, RequestId, Ticket)> {
        self.grantors.get(service).into_iter().flat_map(Grantor::waiting)
    }

    /// The position at which `request` of this process waits, if a grantor has reported it.
    pub fn place_of(&self, request: RequestId) -> Option<Ticket> {
        self.holder.place_of(request)
    }

    /// The token that `request` was granted here, whether or not it may be believed now.
    pub fn granted(&self, request: RequestId) -> Option<Token> {
        self.holder.granted(request)
    }

    /// The token that a guard of `request` may claim at `now`, while the lock's lease and the
    /// member's lease run.
    pub fn fence(&self, request: RequestId, now: Time) -> Option<Token> {
        if self.is_ready(now) { self.holder.holds(request, now) } else { None }
    }

    /// In discovery: each seed address, with the answer from there, for the error of a join that
    /// took too long.
    pub fn seeking(&self) -> Vec<(SocketAddr, Option<String>)> {
        match &self.phase {
            MemberPhase::Seeking(seeking) => seeking.report(&self.config.me),
            _ => Vec::new(),
        }
    }

    /// The status as this node sees it.
    pub fn status(&self, now: Time) -> Status {
        let mut status = self.status_without_services(now);
        let mut after = None;
        loop {
            let (page, next) = self.status_page(now, after.as_ref(), usize::MAX);
            status.go_on(page);
            match next {
                Some(next) => after = Some(next),
                None => return status,
            }
        }
    }

    /// The status without services, which come in pages.
    pub(crate) fn status_without_services(&self, now: Time) -> Status {
        Status {
            me: self.config.me.clone(),
            view: self.view.as_deref().cloned(),
            elder: self.view.as_ref().map(|view| view.elder().process),
            leased: self.is_ready(now),
            services: Vec::new(),
            more_services: 0,
            suspected: self.suspected.iter().copied().collect(),
        }
    }

    /// The services that come `after` a mark, and their locks: `most` of both together at most, but at least one. `None`: these
    /// are the last.
    pub(crate) fn status_page(
        &self,
        now: Time,
        after: Option<&StatusMark>,
        most: usize,
    ) -> (Vec<ServiceStatus>, Option<StatusMark>) {
        // A service with further locks appears on the next page again.
        let from = after.map_or(Bound::Unbounded, |mark| match mark.lock {
            Some(_) => Bound::Included(&mark.service),
            None => Bound::Excluded(&mark.service),
        });
        let mut left = most.max(2);
        let mut page = Vec::new();
        let mut services = self.services_from(from, left);
        while let Some(mut status) = services.pop_front() {
            left -= 1;
            let service = status.service.clone();
            if let Some(grantor) = self.grantors.get(&service) {
                let told = after.filter(|mark| mark.service == service).and_then(|mark| mark.lock.as_ref());
                let (locks, is_end) = grantor.status(now, told.map(Option::as_ref), left);
                left -= locks.len();
                status.locks = locks;
                if !is_end {
                    let last = status.locks.last().map(|lock| lock.name.clone());
                    let lock = last.or_else(|| told.cloned());
                    // None of its locks is listed yet: it comes whole with the next page.
                    if lock.is_some() || page.is_empty() {
                        page.push(status);
                        return (page, Some(StatusMark { service, lock }));
                    }
                    let before = page.last().map(|status: &ServiceStatus| status.service.clone());
                    return (page, before.map(|service| StatusMark { service, lock: None }));
                }
            }
            page.push(status);
            if left == 0 {
                let is_last = services.is_empty() && self.services_from(Bound::Excluded(&service), 1).is_empty();
                return (page, (!is_last).then_some(StatusMark { service, lock: None }));
            }
        }
        (page, None)
    }

    /// The status for a process outside the cluster: at most `most` services, and `most` locks in
    /// all; the rest is counted.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn status_cut(&self, now: Time, most: usize) -> Status {
        let mut status = self.status_without_services(now);
        status.services = self.services_from(Bound::Unbounded, most).into();
        status.more_services = self.holder.services().max(self.grantors.len()).saturating_sub(status.services.len());
        let mut left = most;
        for service in &mut status.services {
            if let Some(grantor) = self.grantors.get(&service.service) {
                (service.locks, _) = grantor.status(now, None, left);
                left -= service.locks.len();
                service.more_locks = grantor.listed().saturating_sub(service.locks.len());
            }
        }
        status
    }

    /// The first services from there on, without their locks.
    fn services_from(&self, from: Bound<&ServiceName>, most: usize) -> VecDeque<ServiceStatus> {
        let mut services: BTreeMap<ServiceName, ServiceStatus> = BTreeMap::new();
        for (service, grantor, [waiting_here, held_here, open_here]) in self.holder.status(from).take(most) {
            let (grantor, epoch) = grantor.unzip();
            let own = ServiceStatus::new(service);
            let status = ServiceStatus { grantor, epoch, waiting_here, held_here, open_here, ..own };
            services.insert(service.clone(), status);
        }
        for (service, grantor) in self.grantors.range::<ServiceName, _>((from, Bound::Unbounded)).take(most) {
            let status = services.entry(service.clone()).or_insert_with(|| ServiceStatus::new(service));
            status.grantor = Some(self.config.me.process);
            status.epoch = Some(grantor.epoch());
            status.granting = Some(grantor.state());
        }
        services.into_values().take(most).collect()
    }

    /// Whether it grants the locks of a service now.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_acting(&self, service: &ServiceName) -> bool {
        self.grantors.get(service).is_some_and(Grantor::is_acting)
    }

    /// How much it keeps at `now`.
    pub fn sizes(&self, now: Time) -> Sizes {
        let mut sizes = Sizes {
            early: self.early_requests.values().map(Vec::len).sum(),
            places: self.pending_positions.len(),
            granting: self.grantors.values().map(Grantor::size).sum(),
            suspected: self.suspected.len(),
            proposals: usize::from(self.proposal.is_some()),
            ..Sizes::default()
        };
        self.links.count(now, &mut sizes);
        self.holder.count(&mut sizes);
        sizes
    }

    /// The members that its recoveries wait for.
    pub fn awaiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.grantors.values().flat_map(Grantor::awaiting)
    }

    fn on_command(&mut self, now: Time, command: Command, out: &mut Vec<Output>) {
        match command {
            Command::Lock { request, .. }
            | Command::Reduce { request, .. }
            | Command::Upgrade { request, .. }
            | Command::Write { request, .. }
            | Command::Become { request, .. }
            | Command::Destroy { request, .. }
            | Command::Confirm { request, .. }
            | Command::Query { request, .. }
            | Command::Revoke { request, .. }
                if matches!(self.phase, MemberPhase::Leaving { .. } | MemberPhase::Retiring { .. }) =>
            {
                // An expelled member that stays only to inform others is about to come back as
                // another process.
                let stays = matches!(self.phase, MemberPhase::Retiring { left: false, .. });
                let reason = if stays { LostReason::Expelled } else { LostReason::Left };
                out.push(Output::Answer { request, outcome: Outcome::Closed(reason) });
            }
            Command::Lock { request, service, want, owner, wait, lease, revocable, metadata } => {
                let answer = self.timing().answer;
                let wish = LockRequest { request, service, want, owner, wait, lease, revocable, metadata };
                self.ask(now, out, |holder, crowded, turn| holder.lock(wish, answer, crowded, turn));
            }
            Command::Confirm { request, service, over } => {
                let limit = self.timing().member_lease;
                self.act(now, out, |node, turn| node.holder.confirm((request, service), over, limit, turn));
            }
            Command::Query { request, service, at } => {
                let answer = self.timing().answer;
                self.ask(now, out, |holder, crowded, turn| holder.look((request, service), at, answer, crowded, turn));
            }
            Command::Revoke { request, service, what, wait } => {
                let (lease, view) = (self.timing().member_lease, self.view.clone());
                let is_there = |process| view.as_ref().is_none_or(|view| view.contains(process));
                self.ask(now, out, |holder, crowded, turn| {
                    holder.revoke((request, service), what, (wait, lease), (crowded, is_there), turn);
                });
            }
            Command::Become { request, service, wait } => {
                let answer = self.timing().answer;
                // A member that has destroyed the service, and bids for it again, has given the
                // role away already.
                let goes = self.relinquishing.contains_key(&service);
                let acts = !goes && self.grantors.get(&service).is_some_and(Grantor::is_acting);
                self.act(now, out, |node, turn| node.holder.bid((request, service), (wait, answer), acts, turn));
            }
            Command::Destroy { request, service } => {
                let limit = self.timing().member_lease;
                let name = service.clone();
                self.act(now, out, |node, turn| node.holder.destroy(request, name, limit, turn));
                self.act(now, out, |node, turn| node.depart_service(&service, turn));
            }
            Command::Release { request } => self.act(now, out, |node, turn| node.holder.release(request, turn)),
            Command::Extend { request, lease } => {
                self.act(now, out, |node, turn| node.holder.extend(request, lease, turn));
            }
            Command::Reduce { request, want } => {
                self.act(now, out, |node, turn| node.holder.narrow(request, want, turn));
            }
            Command::Upgrade { request, hold } => {
                let answer = self.timing().answer;
                self.act(now, out, |node, turn| node.holder.upgrade(request, hold, answer, turn));
            }
            Command::Write { request, open, edit } => self.ask(now, out, |holder, crowded, turn| {
                holder.write((request, open), edit, crowded, turn);
            }),
            Command::Seeds(mut seeds) => {
                if self.config.last_view().is_some() {
                    seeds.remove(&self.config.me.addr);
                }
                self.config.seeds = seeds.clone();
                if let MemberPhase::Seeking(seeking) = &mut self.phase {
                    seeking.set_seeds(seeds);
                }
            }
            Command::Leave => self.leave(now, out),
            Command::Force => self.force(now, out),
        }
    }

    /// The times of the view, or those that it would found with.
    fn timing(&self) -> Timing {
        self.view.as_ref().map_or(self.config.timing, |view| view.timing)
    }

    /// Lets the lock client ask other members, unless too much is on its way to a member already.
    fn ask(
        &mut self,
        now: Time,
        out: &mut Vec<Output>,
        asking: impl FnOnce(&mut LockClient, &dyn Fn(ProcessId) -> bool, &mut StepContext),
    ) {
        let post = std::mem::take(&mut self.links);
        let most = self.config.limits.backlog as usize;
        let crowded = |process| post.backlog(process) > most;
        let outbox = self.turn(now, out, |node, turn| asking(&mut node.holder, &crowded, turn));
        self.links = post;
        self.deliver(now, outbox, out);
    }

    /// Answers for services that are destroyed here, once their grantors know it and nothing is granted here any more.
    fn end_services(&mut self, now: Time, out: &mut Vec<Output>) {
        for (request, service) in self.holder.settled() {
            if !self.is_departing(&service) {
                self.act(now, out, |node, turn| node.holder.answer_errand(request, Outcome::Destroyed, turn));
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut Vec<Output>) {
        self.durability.on_timer(now, out);
        let is_silent = self.is_unwritten();
        let belonging = (matches!(self.phase, MemberPhase::Seeking(_)) && !is_silent).then(|| self.belonging(now));
        if let (MemberPhase::Seeking(seeking), Some(belonging)) = (&mut self.phase, belonging) {
            let found = seeking.on_timer(&self.config, now, belonging, out);
            self.on_found(now, found, out);
        }
        if self.vote_successor.is_some() && !is_silent {
            self.decide(now, out);
        }
        if self.holder.deadline().is_some_and(|at| at <= now) {
            self.act(now, out, |node, turn| node.holder.on_timer(turn));
        }
        let Some(view) = self.view.clone() else { return };
        if self.phase == MemberPhase::Gone {
            return;
        }
        if self.phase == MemberPhase::Member && now >= self.give_up_at(&view) {
            self.end(now, Event::Abandoned, out);
            return;
        }
        self.keep_departing(now, out);
        self.keep_leaving(now, out);
        self.keep_parting(now, out);
        if matches!(self.phase, MemberPhase::Retiring { .. } | MemberPhase::Gone) {
            return;
        }
        self.beat(now, out);
        self.greet(now, out);
        if now >= self.orphaned_at {
            self.orphaned_at = Time::MAX;
            out.push(Output::Event(Event::Orphaned));
        }
        self.vouch(now, out);
        self.keep_doubts(now, out);
        if let Some(elder) = &mut self.elder {
            for (process, pulse) in elder.rally(now, self.config.me.process, &view) {
                self.links.dispatch(now, &self.config.me, &view, process, pulse.into(), out);
            }
            let behind = self.elder.as_mut().map(|elder| elder.take_behind(now, &view.timing)).unwrap_or_default();
            for (process, have) in behind {
                if let Some(member) = view.member(process) {
                    self.catch_up(now, member.info.addr, process, have, out);
                }
            }
            let retry = view.timing.retry;
            let has_turk_due = |elder: &Elder| elder.registry.deadline(retry).is_some_and(|at| at <= now);
            if self.elder.as_ref().is_some_and(has_turk_due) {
                self.with_registry(now, out, |registry, may_name, turn| registry.advance_turks(may_name, turn));
            }
            let is_due = self.elder.as_mut().is_some_and(|elder| {
                let is_open_again = elder.registry.is_open_again(now);
                elder.is_time_to_answer(now, &view.timing) || is_open_again
            });
            if is_due && self.has_authority(now) {
                self.on_authority(now, out);
            }
        }
        self.decide(now, out);
        self.tell_places(now, out);
        if let Some(view) = &self.view {
            self.links.on_timer(now, &self.config.me, view, out);
        }
    }

    /// Lets the elder's registry act, if this member is the elder.
    fn with_registry(
        &mut self,
        now: Time,
        out: &mut Vec<Output>,
        act: impl FnOnce(&mut Registry, bool, &mut StepContext),
    ) {
        self.act(now, out, |node, turn| {
            let may_name = node.has_authority(turn.now);
            if let Some(elder) = &mut node.elder {
                act(&mut elder.registry, may_name, turn);
            }
        });
    }

    /// Lets a role act, then delivers its messages.
    fn act(&mut self, now: Time, out: &mut Vec<Output>, role: impl FnOnce(&mut Node, &mut StepContext)) {
        let outbox = self.turn(now, out, role);
        self.deliver(now, outbox, out);
    }

    fn turn(
        &mut self,
        now: Time,
        out: &mut Vec<Output>,
        role: impl FnOnce(&mut Node, &mut StepContext),
    ) -> VecDeque<(ProcessId, Message)> {
        let me = self.config.me.process;
        let elder = self
            .view
            .as_ref()
            .filter(|_| !matches!(self.phase, MemberPhase::Seeking(_)))
            .map(|view| view.elder().process);
        let leased = now < self.granting_end();
        let mut turn = StepContext {
            now,
            me,
            elder,
            retry: self.view.as_ref().map_or(self.config.timing, |view| view.timing).retry,
            lease: self.timing().member_lease,
            limits: self.config.limits,
            leased,
            #[cfg(elderlock_mutants)]
            mutant: self.config.mutant,
            out,
            outbox: std::mem::take(&mut self.outbox),
        };
        role(self, &mut turn);
        turn.outbox
    }

    /// Messages to others go on their links. Messages to this member are delivered in the same
    /// step, in order: messages that one of them causes come after those sent with it.
    fn deliver(&mut self, now: Time, mut outbox: VecDeque<(ProcessId, Message)>, out: &mut Vec<Output>) {
        let me = self.config.me.process;
        while let Some((to, message)) = outbox.pop_front() {
            if to == me {
                self.self_outbox.push_back(message);
            } else if let Some(view) = &self.view
                && view.contains(to)
            {
                if let Message::Queued { service, epoch, request, ticket } = message {
                    let at = now + view.timing.place();
                    self.pending_positions.push_back(PendingPosition { at, to, service, epoch, request, ticket });
                    continue;
                }
                // A granted request has mostly waited longest. Then its position needs no timer any
                // more.
                if let Message::Grant { request, .. } = &message
                    && self.pending_positions.front().is_some_and(|place| (place.to, place.request) == (to, *request))
                {
                    self.pending_positions.pop_front();
                }
                self.links.send(now, &self.config.me, view, to, message, out);
            }
        }
        // Occasionally there was a message for each of a million locks.
        outbox.shrink_to(MAIL);
        self.outbox = outbox;
        if std::mem::replace(&mut self.is_delivering_to_self, true) {
            return;
        }
        while let Some(message) = self.self_outbox.pop_front() {
            self.on_message(now, me, message, out);
        }
        self.is_delivering_to_self = false;
    }
}

/// Whether a message changes only requests and tables.
fn is_plain(message: &Message) -> bool {
    matches!(
        message,
        Message::RequestLock { .. }
            | Message::Queued { .. }
            | Message::Grant { .. }
            | Message::Refuse { .. }
            | Message::Release { .. }
    )
}

fn send(to: SocketAddr, process: ProcessId, notice: Notice, out: &mut Vec<Output>) {
    out.push(Output::Send { to, process: Some(process), packet: notice.into() });
}

#[cfg(test)]
mod tests;
