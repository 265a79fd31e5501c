//! `Node`: one member's whole protocol. It hands inputs to the membership, the links and the locks;
//! these decide.

mod dispatch;
#[cfg(elderlock_mutants)]
mod planted;

use super::cluster::Cluster;
use super::cluster::discovery::SeedReport;
use super::cluster::view::View;
use super::cluster::vote_successor::StoredVote;
use super::content::Content;
use super::event::{
    Command, Config, GrantorLoad, GrantorState, Hint, Input, LostReason, Outcome, Output,
    ServiceStatus, Sizes, Status, StatusMark,
};
use super::id::{
    Epoch, LockName, OwnerId, ProcessId, RequestId, ServiceName, Slot, Ticket, Token, Versions,
    Want,
};
use super::link::LinkSet;
pub(crate) use super::locks::FastOutcome;
use super::locks::Locks;
pub use super::locks::client::KeptUse;
use super::locks::client::LockClient;
use super::locks::grantor::Grantor;
use super::locks::table::Contents;
pub use super::locks::{LocalGrant, LocalOffer};
use super::message::{LockRequest, Packet};
#[cfg(test)]
use super::step_context::StepContext;
use super::step_parts::{Mailbox, QuietUntil, StepParts};
use super::time::Time;
use super::vote_key::VoteSecret;

/// One member's whole protocol as a plain value.
///
/// The node changes only in [`step`](Node::step). Between steps it can be copied, compared, hashed
/// and printed.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Node {
    cluster: Cluster,
    locks: Locks,
    links: LinkSet,
    mailbox: Mailbox,
    quiet_until: QuietUntil,
}

impl Node {
    /// A node that seeks its cluster from `now` on. Call [`step`](Node::step) with [`Input::Timer`]
    /// to start it.
    pub fn new(config: Config, now: Time) -> Node {
        let cluster = Cluster::new(config, now);
        let config = cluster.config();
        Node {
            locks: Locks::new(LockClient::new(&config.limits)),
            links: LinkSet::new(config),
            mailbox: Mailbox::default(),
            quiet_until: QuietUntil(None),
            cluster,
        }
    }

    /// The membership, and the parts that it uses in a step.
    fn parts<'a>(&'a mut self, out: &'a mut Vec<Output>) -> (&'a mut Cluster, StepParts<'a>) {
        let Node { cluster, locks, links, mailbox, quiet_until: quiet } = self;
        (cluster, StepParts { links, locks, mailbox, quiet, out })
    }

    /// Returns whether the node is a member of its view: neither in discovery nor leaving.
    pub fn belongs(&self) -> bool {
        self.cluster.is_member()
    }

    /// The configuration for the next incarnation of this process, after [`Event::Expelled`] or
    /// [`Event::Abandoned`]. `vote_secret` belongs to the new incarnation, if it stores its votes.
    /// `clock` is the present time of the wall clock. The driver adds the static key of the new
    /// process id.
    ///
    /// An expelled process knows that the cluster continues without it: from then on it joins and
    /// never founds.
    pub fn next_incarnation(
        &self,
        process: ProcessId,
        vote_secret: Option<VoteSecret>,
        clock: Slot,
    ) -> Config {
        self.cluster.next_incarnation(process, vote_secret, clock)
    }

    /// The vote of this process that its data directory has to store now.
    pub fn stored_vote(&self) -> Option<StoredVote> {
        self.cluster.stored_vote()
    }

    /// Handles an input: the only way to change the node. Appends the outputs to `out`, in order.
    pub fn step(&mut self, now: Time, input: Input, out: &mut Vec<Output>) {
        if let Input::Command(command) = &input
            && let Some(done) = self.try_fast(now, command)
        {
            if let (FastOutcome::Granted(token, until), Command::Lock { request, .. }) =
                (done, command)
            {
                out.push(Output::Answer {
                    request: *request,
                    outcome: Outcome::Granted { token, until },
                });
            }
            return;
        }
        let is_short = self.is_short(now, &input);
        if is_short {
            self.cluster.note_awake(now);
        } else {
            self.quiet_until = QuietUntil(None);
            let (cluster, mut step) = self.parts(out);
            cluster.store_successor(&mut step);
            if cluster.is_gone() {
                return self.answer_gone(input, out);
            }
            cluster.look_at_lease(now, &mut step);
        }
        let is_timer = matches!(input, Input::Timer);
        match input {
            Input::Received { from, addr, packet } => {
                self.cluster.on_sign_of_life(from);
                if !self.cluster.is_unwritten() {
                    self.links.on_straight(now, from);
                    self.on_packet(now, from, addr, packet, out);
                }
            }
            Input::Command(command) => self.on_command(now, command, out),
            Input::Hint(hint) => self.on_hint(now, hint, out),
            Input::Timer => {}
            Input::Stored { number } => {
                let (cluster, mut step) = self.parts(out);
                cluster.on_stored(now, number, &mut step);
            }
            Input::StoreFailed { number } => self.cluster.on_store_failed(now, number),
        }
        if is_short && self.stays_quiet(now) {
            return;
        }
        self.quiet_until = QuietUntil(None);
        if is_timer && self.locks.is_unfinished() {
            let (cluster, mut step) = self.parts(out);
            step.act(now, &cluster.standing(now), Locks::go_on);
        }
        self.on_timer(now, out);
        let (cluster, mut step) = self.parts(out);
        cluster.look_at_lease(now, &mut step);
        step.end_services(now, &cluster.standing(now));
    }

    /// Answers commands after the end of the membership.
    fn answer_gone(&self, input: Input, out: &mut Vec<Output>) {
        let Input::Command(command) = input else { return };
        if let Command::Extend { request, .. } | Command::Reduce { request, .. } = command {
            out.push(Output::Answer { request, outcome: Outcome::NotHeld });
        } else if let Some(request) = begun_by(&command) {
            out.push(Output::Answer { request, outcome: Outcome::Closed(LostReason::Left) });
        }
    }

    /// Returns whether the input can change only requests, links and one table, and nothing is due.
    /// No other state then has to be checked before or after it. Nearly all messages about locks
    /// are of this kind.
    fn is_short(&mut self, now: Time, input: &Input) -> bool {
        let is_plain = match input {
            Input::Received { packet: Packet::Linked { message, .. }, .. } => message.is_plain(),
            Input::Received { packet: Packet::Ack { .. }, .. } => true,
            Input::Command(Command::Lock { .. } | Command::Release { .. }) => true,
            _ => false,
        };
        is_plain && !self.cluster.has_suspicions() && now < self.end_of_quiet()
    }

    /// Returns whether the conditions of a short step still hold after it. A short step can only
    /// make a link, a request or a queue position due.
    fn stays_quiet(&mut self, now: Time) -> bool {
        let QuietUntil(Some(quiet_until)) = self.quiet_until else { return false };
        let [client, positions, unfinished] = self.locks.short_deadline();
        let due = [self.links.deadline(), client, positions, unfinished]
            .into_iter()
            .flatten()
            .fold(quiet_until, Time::min);
        self.quiet_until = QuietUntil(Some(due));
        now < due && self.is_idle()
    }

    /// The fast path: grants or releases a free lock, or a share of it, if no other member is
    /// concerned. This member itself must grant the service. No message is sent and only the hold
    /// changes, so neither the clocks nor other state have to be checked. The result equals that of
    /// a full step; `None`: a full step is needed.
    pub(crate) fn try_fast(&mut self, now: Time, command: &Command) -> Option<FastOutcome> {
        if !matches!(
            command,
            Command::Lock { lock: LockRequest { want: Want::Lock(_) | Want::Share(_), .. }, .. }
                | Command::Release { .. }
        ) || now >= self.end_of_quiet()
        {
            return None;
        }
        let done = self.locks.try_fast(self.cluster.process(), now, command)?;
        if let (FastOutcome::Granted(_, until), QuietUntil(Some(quiet_until))) =
            (done, &mut self.quiet_until)
        {
            *quiet_until = until.min(*quiet_until);
        }
        self.cluster.note_awake(now);
        Some(done)
    }

    /// The tokens with which this member may take, without a step, a lock of a service that it
    /// grants itself. No other member is concerned and nothing is due, so the node need not change.
    /// Several locks may be taken in parallel, each with its own token; grants of the same lock
    /// follow each other. But [`absorb`](Node::absorb) must come before any other use of the node.
    /// The result equals that of commands.
    ///
    /// With `keeps`, the offer also covers a lock that another member grants and this one keeps. An
    /// offer is valid until another use of the node, and as long as the node [offers](Node::offers)
    /// anything.
    pub fn offer(
        &self,
        now: Time,
        at: (&ServiceName, &LockName),
        keeps: bool,
    ) -> Option<LocalOffer> {
        if self.offers(now) { self.locks.offer(self.cluster.process(), at, keeps) } else { None }
    }

    /// Returns whether nothing is due, so that offered locks may be taken.
    pub fn offers(&self, now: Time) -> bool {
        matches!(self.quiet_until, QuietUntil(Some(quiet_until)) if now < quiet_until)
    }

    /// Records local grants of a service that this member grants itself. `spent` is the number of
    /// [offered](Node::offer) tokens that were used. The locks of `held` are still held, in the
    /// order of their tokens; the others are released already.
    pub fn absorb(
        &mut self,
        service: &ServiceName,
        spent: u64,
        held: impl IntoIterator<Item = (RequestId, LocalGrant)>,
    ) {
        self.locks.absorb(self.cluster.process(), service, spent, held);
    }

    /// Records local grants of a lock that this member keeps. `holder`: the request that holds the
    /// lock with the last used token, and its owner; `None`: the lock is released.
    pub fn absorb_kept(
        &mut self,
        service: &ServiceName,
        used: KeptUse,
        holder: Option<(RequestId, OwnerId)>,
    ) {
        self.locks.absorb_kept(service, used, holder);
    }

    /// Returns whether no work is pending that every step would continue.
    fn is_idle(&self) -> bool {
        self.locks.is_idle() && !self.cluster.is_unstored_successor()
    }

    /// Returns the time until which [`try_fast`](Node::try_fast) may be tried and steps may be
    /// short.
    fn end_of_quiet(&mut self) -> Time {
        if let QuietUntil(Some(quiet_until)) = self.quiet_until {
            return quiet_until;
        }
        let is_quiet = self.is_idle() && self.cluster.is_leased_member();
        let quiet_until = if is_quiet { self.deadline().unwrap_or(Time::MAX) } else { Time::ZERO };
        planted!(=> let quiet_until = self.plant_quiet(quiet_until, is_quiet));
        self.quiet_until = QuietUntil(Some(quiet_until));
        quiet_until
    }

    /// Returns the time at which a caller without other inputs should step again. The time is never
    /// later than [`deadline`](Node::deadline) and cheaper to compute, but may be too early.
    pub fn wake_by(&self) -> Option<Time> {
        match self.quiet_until {
            QuietUntil(Some(quiet_until)) if quiet_until > Time::ZERO => {
                (quiet_until != Time::MAX).then_some(quiet_until)
            }
            _ => self.deadline(),
        }
    }

    /// Returns the time at which [`Input::Timer`] is due next; `None`: never.
    pub fn deadline(&self) -> Option<Time> {
        let (cluster, locks) = (&self.cluster, &self.locks);
        if cluster.is_gone() {
            return None;
        }
        let registry = locks.registry_due(cluster.timing().retry);
        let mut due = cluster.deadline(locks.has_handed_over(), registry).min(locks.deadline());
        if cluster.linked_view().is_some() {
            due = due
                .min(self.links.deadline().unwrap_or(Time::MAX))
                .min(locks.positions_due().unwrap_or(Time::MAX));
        }
        (due != Time::MAX).then_some(due)
    }

    /// The id of this process.
    pub fn process(&self) -> ProcessId {
        self.cluster.process()
    }

    /// The view that the node is in, or was in last.
    pub fn view(&self) -> Option<&View> {
        self.cluster.view().map(|view| &**view)
    }

    /// Returns whether the node says goodbye: it leaves, holds nothing and grants nothing any more.
    pub fn says_goodbye(&self) -> bool {
        self.cluster.is_leaving() && self.locks.has_handed_over()
    }

    /// The versions of the wire that this process speaks.
    pub fn versions(&self) -> Versions {
        self.cluster.config.me.versions
    }

    /// The version in which the runtime encodes a packet for a process with these versions.
    pub fn version_to_encode(&self, peer: Option<Versions>) -> u16 {
        planted!(self.cluster.config.mutant, SpeakHighest => return self.versions().highest);
        self.versions().to_encode(self.view().map(|view| view.version), peer)
    }

    /// The end of this member's lease: the member may hold and grant only before it. [`Time::MAX`]
    /// while no other process could take over. [`Time::ZERO`] before the first renewal.
    pub fn lease_end(&self) -> Time {
        self.cluster.lease_end()
    }

    /// Returns whether the node is in a view and its lease runs: joined, and able to hold locks.
    pub fn is_ready(&self, now: Time) -> bool {
        self.cluster.is_ready(now)
    }

    /// Returns whether the node is the elder of its view.
    pub fn is_elder(&self) -> bool {
        self.cluster.is_elder()
    }

    /// The services that this node grants, each with the grantor's epoch and state.
    pub fn grantors(&self) -> impl Iterator<Item = (&ServiceName, Epoch, GrantorState)> {
        self.locks.grantors().map(|(service, grantor)| (service, grantor.epoch(), grantor.state()))
    }

    /// The number of open [parts](super::part_of) of the service's grantor, if it recovers here.
    pub fn open_parts(&self, service: &ServiceName) -> Option<u16> {
        self.locks.grantor(service).and_then(Grantor::open_parts)
    }

    /// The load of the service's grantor, if it acts here.
    pub fn load(&self, service: &ServiceName) -> Option<GrantorLoad> {
        self.locks.grantor(service).and_then(Grantor::load)
    }

    /// The load of each grantor that acts here. The cost grows with the number of grantors and of
    /// members in their tables, but not with the number of requests.
    pub fn loads(&self) -> impl Iterator<Item = (&ServiceName, GrantorLoad)> {
        self.locks.grantors().filter_map(|(service, grantor)| Some((service, grantor.load()?)))
    }

    /// The requests in the table of the service's grantor, if that grantor is here. A request that
    /// holds has its token.
    pub fn table(
        &self,
        service: &ServiceName,
    ) -> impl Iterator<Item = (ProcessId, RequestId, Option<Token>)> {
        self.locks.grantor(service).into_iter().flat_map(Grantor::requests)
    }

    /// The table that the service's grantor would transfer at `now`, if it is here: the holds, and
    /// the waits in their order.
    pub fn contents(&self, service: &ServiceName, now: Time) -> Contents {
        self.locks.grantor(service).map(|grantor| grantor.contents(now)).unwrap_or_default()
    }

    /// The locks that the service's grantor has granted, if it is here, each with its process,
    /// request and token.
    pub fn held(
        &self,
        service: &ServiceName,
    ) -> impl Iterator<Item = (&LockName, ProcessId, RequestId, Token)> {
        self.locks.grantor(service).into_iter().flat_map(Grantor::held)
    }

    /// The objects that the service's grantor knows, if it is here, with their contents.
    pub fn objects(&self, service: &ServiceName) -> impl Iterator<Item = (&LockName, &Content)> {
        self.locks.grantor(service).into_iter().flat_map(Grantor::objects)
    }

    /// The waiting requests of the service's grantor, if it is here, with their tickets.
    pub fn waiting(
        &self,
        service: &ServiceName,
    ) -> impl Iterator<Item = (ProcessId, RequestId, Ticket)> {
        self.locks.grantor(service).into_iter().flat_map(Grantor::waiting)
    }

    /// The position at which `request` of this process waits, if a grantor has reported it.
    pub fn position_of(&self, request: RequestId) -> Option<Ticket> {
        self.locks.client().position_of(request)
    }

    /// The token that `request` was granted here, whether or not it is valid now.
    pub fn granted(&self, request: RequestId) -> Option<Token> {
        self.locks.client().granted(request)
    }

    /// The granted request that `request` stands in for: this process kept its lock after the
    /// release.
    pub fn place_of(&self, request: RequestId) -> Option<RequestId> {
        self.locks.client().place_of(request)
    }

    /// The locks that this process keeps, each by the granted request, and whether it is in use.
    pub fn kept(&self) -> impl Iterator<Item = (RequestId, bool)> {
        self.locks.client().kept()
    }

    /// The number of locks of each service that this process keeps, and the number of them in use.
    pub fn kept_counts(&self) -> impl IntoIterator<Item = (&ServiceName, [usize; 2])> {
        self.locks.client().kept_counts()
    }

    /// The token that a guard of `request` may use at `now`; `None` after the end of the lock's
    /// lease or the member's lease.
    pub fn fence(&self, request: RequestId, now: Time) -> Option<Token> {
        if self.is_ready(now) { self.locks.client().holds(request, now) } else { None }
    }

    /// The seeds and their answers while the node is in discovery, for the error of a join that
    /// took too long.
    pub fn seed_report(&self) -> SeedReport {
        self.cluster.seed_report()
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

    /// The status without the services, which follow in pages.
    pub(crate) fn status_without_services(&self, now: Time) -> Status {
        self.cluster.status(now)
    }

    /// The services after the mark `after`, with their locks: at most `most` of both together, but
    /// at least one. The last value is `None` if no more follow.
    pub(crate) fn status_page(
        &self,
        now: Time,
        after: Option<&StatusMark>,
        most: usize,
    ) -> (Vec<ServiceStatus>, Option<StatusMark>) {
        self.locks.status_page(self.process(), now, after, most)
    }

    /// The status for a process outside the cluster: at most `most` services, and `most` locks in
    /// all. The rest is counted.
    #[cfg(any(feature = "tokio", test))]
    pub(crate) fn status_cut(&self, now: Time, most: usize) -> Status {
        let mut status = self.status_without_services(now);
        (status.services, status.more_services) = self.locks.status_cut(self.process(), now, most);
        status
    }

    /// Returns whether this member grants the locks of a service now.
    #[cfg(feature = "tokio")]
    pub(crate) fn is_acting(&self, service: &ServiceName) -> bool {
        self.locks.grantor(service).is_some_and(Grantor::is_acting)
    }

    /// The member that grants the locks of a service, as far as this member knows.
    #[cfg(feature = "tokio")]
    pub(crate) fn grantor_of(&self, service: &ServiceName) -> Option<ProcessId> {
        let is_own = self.is_acting(service);
        let own = is_own.then_some(self.cluster.config().me.process);
        own.or(self.locks.client().grantor(service).0)
    }

    /// The sizes of the node's state at `now`.
    pub fn sizes(&self, now: Time) -> Sizes {
        let mut sizes = Sizes::default();
        self.cluster.count(&mut sizes);
        self.links.count(now, &mut sizes);
        self.locks.count(&mut sizes);
        sizes
    }

    /// The members for which recoveries here wait.
    pub fn awaiting(&self) -> impl Iterator<Item = ProcessId> + '_ {
        self.locks.grantors().flat_map(|(_, grantor)| grantor.awaiting())
    }

    fn on_command(&mut self, now: Time, command: Command, out: &mut Vec<Output>) {
        if let Some(reason) = self.cluster.is_closed()
            && let Some(request) = begun_by(&command)
        {
            out.push(Output::Answer { request, outcome: Outcome::Closed(reason) });
            return;
        }
        let (cluster, mut step) = self.parts(out);
        match command {
            Command::Seeds(seeds) => cluster.on_seeds(seeds),
            Command::Leave => cluster.leave(now, &mut step),
            Command::Force => cluster.force(now, &mut step),
            command => {
                let destroyed = match &command {
                    Command::Destroy { service, .. } => Some(service.clone()),
                    _ => None,
                };
                let standing = cluster.standing(now);
                step.ask(now, &standing, |locks, crowded, cx| {
                    locks.on_command(command, crowded, cx)
                });
                if let Some(service) = destroyed {
                    step.act(now, &standing, |locks, cx| locks.depart_service(&service, cx));
                }
            }
        }
    }

    fn on_timer(&mut self, now: Time, out: &mut Vec<Output>) {
        let (cluster, mut step) = self.parts(out);
        cluster.seek(now, &mut step);
        if step.locks.is_client_due(now) {
            step.act(now, &cluster.standing(now), Locks::on_client_timer);
        }
        if cluster.is_out(now, &mut step) {
            return;
        }
        step.keep_departing(now, &cluster.standing(now));
        if !cluster.on_timer(now, &mut step) {
            return;
        }
        cluster.rally(now, &mut step);
        if step.locks.has_turk_due(now, cluster.timing().retry) {
            step.act(now, &cluster.standing(now), Locks::advance_turks);
        }
        if cluster.is_time_to_answer(now, &mut step) {
            cluster.on_authority(now, &mut step);
        }
        cluster.decide(now, &mut step);
        step.tell_positions(now, &cluster.standing(now));
        if let Some(view) = cluster.view() {
            step.links.on_timer(now, &cluster.config().me, view, step.out);
        }
    }
}

/// The request that a command begins. A leaving member refuses only such commands.
fn begun_by(command: &Command) -> Option<RequestId> {
    match command {
        Command::Lock { request, .. }
        | Command::Reduce { request, .. }
        | Command::Upgrade { request, .. }
        | Command::Write { request, .. }
        | Command::Become { request, .. }
        | Command::Destroy { request, .. }
        | Command::Confirm { request, .. }
        | Command::Query { request, .. }
        | Command::AskHolder { request, .. }
        | Command::Revoke { request, .. } => Some(*request),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
