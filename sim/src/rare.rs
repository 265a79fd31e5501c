//! Rare states: corners that a run gets into by bad luck only. A batch of runs that never reached a
//! rare state shows nothing about it. So rare states are counted, and a large batch fails if it
//! never reaches one of them.

use crate::history::{Ask, Call, Key};
use crate::kind::message;
use crate::world::{Observation, PacketLoss, World};
use elderlock::protocol::{
    ClientMessage, Command, Epoch, Event, GrantorMessage, GrantorState, Hint, Input, LostReason,
    MemberMessage, Message, Notice, Outcome, Packet, ProcessId, RegistryMessage, RequestId,
    ServiceName, Slot, Token, View, ViewNumber,
};
use std::collections::{BTreeMap, BTreeSet};

macro_rules! states {
    ($($state:ident $name:literal $why:literal)*) => {
        /// A rare state.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
        pub enum RareState {
            $(#[doc = $why] $state,)*
        }

        impl RareState {
            /// All rare states.
            pub const ALL: &[RareState] = &[$(RareState::$state,)*];

            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self { $(RareState::$state => $name,)* }
            }

            /// Its meaning, and why it matters.
            pub fn why(self) -> &'static str {
                match self { $(RareState::$state => $why,)* }
            }
        }
    };
}

states! {
    TornStep "killed between two outputs of a step"
        "The step's first outputs take effect and the rest never do: no member may rely on both."
    EndsWriting "ends while a vote is on its way to disk"
        "The next process on the directory does not know that vote: no other process may know it \
         either."
    Voteless "a disk refuses a vote"
        "The member goes on without its vote, and no member may count that vote."
    GrantInFlightAtTakeover "grant in flight at takeover"
        "A waiter answers the next grantor while a grant of the former one is under way to it: if \
         it accepted that grant, there could be a second holder."
    OldGrantRefused "grant of an older epoch arrives"
        "A grant arrives at a member that has since answered a later epoch's recovery: it has to \
         be refused."
    UnwantedGrant "unwanted grant released"
        "A grant arrives for a request that is over: if the member kept it, the lock would be \
         taken for ever."
    CancelledInFlight "waiter cancelled while its grant is in flight"
        "The cancellation and the grant cross: whichever side forgets the request first, the lock \
         must not stay taken."
    LimitInFlight "wait limit reached while the grant is in flight"
        "As with a cancelled one, but the caller has been told that it timed out, and must not be \
         told of a lock after that."
    WaiterDiesInFlight "waiter ends while its grant is in flight"
        "No process is left to refuse the grant: only the next view frees the lock."
    WonWhileSuspended "grant won while suspended"
        "A grant arrives while the member's lease does not run: the member must not believe in it, \
         and must not lose it."
    ReleaseLost "release lost on its way"
        "The release is lost with its connection: if it were not sent again, the lock would be \
         taken for ever."
    GrantLost "grant lost on its way"
        "The grant is lost: if it were not sent again, the table would list a holder that does not \
         know of its hold."
    Resent "messages repeated after a reconnection"
        "A link is open again and unacknowledged messages are sent again: no message may act twice."
    Relayed "lock traffic through a third member"
        "Two members cannot reach each other and communicate through another one: no message may \
         arrive twice or out of order."
    RecoveryInterrupted "recovery interrupted by a second end"
        "A grantor ends before all members have answered it: the members that answered have ended \
         older epochs, and answer again."
    AskedAndGone "member asked by recovery leaves before it answers"
        "Recovery waits for an answer that never comes, until a view shows that the member is gone."
    RecoveryAsksGhost "recovery asks a ghost"
        "A member that cannot be reached may still hold: nothing is granted before it answers or \
         its lease is surely over."
    RequestDuringRecovery "request reaches a recovering grantor"
        "It may not be answered before the waiters with acknowledged positions are in the table."
    ReleaseDuringRecovery "release reaches a recovering grantor"
        "One message reports the hold and another releases it: the report must not restore the \
         hold."
    LimitDuringRecovery "wait limit reached during recovery"
        "The caller is answered in time although no member can grant (P8)."
    TryDuringRecovery "try undecided during recovery"
        "A try waits neither for recovery nor for a cut (P8)."
    PastGrantor "next grantor acts and the last one does not know"
        "Two members take themselves for the grantor of one service: only the epochs tell them \
         apart."
    EarlyRequest "request at a grantor that has not heard of its naming"
        "The elder's answer to the requesting member was faster than its message to the grantor."
    NotGrantor "not the grantor answered"
        "A request reaches a member that grants no longer: it has to find the next grantor and \
         keep its wait."
    NamedDiesUnheard "named member ends before it has heard"
        "The elder takes a member for grantor that never acted: the next grantor has to recover \
         nevertheless."
    ElderDiesNaming "elder ends while a naming is under way"
        "The next elder has not heard of the grantor that is being named: that epoch must not come \
         into force."
    RangeUsedUp "grantor has used up a range of tokens"
        "It asks for more, and its next tokens are of another range, perhaps of another view."
    ViewUsedUp "view has used up its tokens"
        "A view without changes follows, with more slots; until then no grantor is named and no \
         range is dealt."
    OldElderSpeaks "word of a former elder arrives"
        "A delayed naming would make a grantor that the present elder does not know."
    AskedBeforeInventory "elder asked before its inventory is whole"
        "The elder may not name a grantor to the requesting member before all members have \
         reported the grantors that they know."
    AskedBeforeQuorum "elder asked while it had no quorum"
        "It may name no grantor: there may be another elder by now."
    ElderAndGrantor "elder and grantor dead together"
        "No living member knows where the grantor was, and none knows all that it granted."
    DecidedUntold "view decided and no member told"
        "The process that decided it is dead: the next candidate has to find and finish a decision \
         that only the voters know."
    TwoCandidates "two candidates at once"
        "Two members propose the same view number: at most one view may be decided."
    FoundAccepted "candidate finds an accepted proposal"
        "It has to finish another candidate's proposal instead of its own."
    BoundVote "bound vote told to an elder that is back"
        "A member has promised its vote to a candidate, and the elder is heard again: only a later \
         round frees the vote."
    GhostRevived "ghost revived"
        "A ghost is heard within its lease, and keeps its age and its locks."
    OlderElder "elder older than the elder returns"
        "The revived member is elder again: for a moment two members take themselves for the elder."
    JoinAndDeparture "view with a join and a departure"
        "A join and a departure are decided at once: the new member must not be asked for holds of \
         the old one."
    MissedView "member misses a view"
        "It learns of departures late and all at once, and may have been elder in between."
    TakenInUntold "joiner taken in and not told"
        "It counts for the quorum and does not know: it may not found a cluster, nor join twice \
         under one id."
    BurntJoiner "joiner let go before it knew"
        "Its id is used up: it has to come back under another one."
    TableInFlight "table transferred while a grant is in flight"
        "The holder hears of its lock from one grantor and of the next grantor from another \
         process: the transferred table has the hold."
    HandedTwice "table asked for where it is no more"
        "The young turk has to recover from all members, and may not take an empty table for an \
         answer."
    AskedBeforeTable "young turk asked for a table that has not come"
        "It passes on a table for which it waits itself: two members may not act with it, and none \
         may keep it."
    TurkDies "young turk ends before its table has come"
        "The former grantor may have passed the table on already: then no member has it, and it is \
         recovered."
    MiddleDies "young turk ends that is to pass its table on"
        "The youngest waits for a member that has ended, and recovers."
    SourceDies "grantor ends while a young turk waits for its table"
        "Half a table is of no use: the young turk begins again with a recovery from all members."
    ReleaseAtFormer "release reaches a former grantor"
        "The transferred table still has the hold: the revalidation after the transfer has to find \
         that it is over."
    Outbid "young turk superseded"
        "It asked first and is told which young turk has overtaken it: it may not wait for ever."
    Declined "named member declines"
        "It leaves, or has destroyed the service: the former grantor goes on, or names the next."
    LeftVacant "grantor leaves with an empty table"
        "The next one may begin without a recovery if and only if there is no hold."
    HandedSuspension "suspension survives a change of grantor"
        "The next grantor must not grant anything beside it."
    HandedBatch "batch survives a change of grantor"
        "Each of its locks is taken, like any other."
    Upgraded "service suspended by a holder"
        "A holder passes waiting requests: otherwise it would wait for itself."
    Deadlocked "upgrade refused"
        "Two holders ask to suspend the service, and each would wait for the other."
    CircleTold "request told of a circle"
        "Owners wait for each other, and one of them has to give up."
    EndedByForce "hold ended by an operator's order"
        "Its program did not expect that: it has to be told before the lock goes on."
    ForceRefused "operator's order refused"
        "The member allows no forced revokes, and its holds go on."
    KeptGrant "kept lock granted by its keeper"
        "No message tells of it: the keeper alone knows its holder."
    FreeKeepRecalled "recall reaches a free keep"
        "The keeper may not grant the lock any more, not even for a moment."
    UsedKeepRecalled "recall reaches a keep in use"
        "The lock goes on when its holder releases it, and the holder has to become known."
    RecallTooLate "recall reaches a member that keeps the lock no more"
        "Its answer is under way already: another answer may not end another hold."
    SharesInPlaceOfOne "several uses of a kept share become ordinary holds"
        "All of them take the place of one hold at once, or a writer gets the lock beside one."
    FreeKeepAtTakeover "free keep at takeover"
        "The next grantor never hears of it, and may grant the lock: the keeper may not."
    UsedKeepAtTakeover "keep in use at takeover"
        "The next grantor knows the lock under the request that was granted it, or not at all."
    KeeperDies "keeper ends"
        "Its locks are free for its member alone, and become free for others with the next view."
    DestroyedHolding "service destroyed by a holder"
        "Its locks go to the next waiters, and none of its holds comes back."
    FoundingAbandoned "founding abandoned"
        "Seeds are bound to a founding that never happened, and give up their ids."
    SeedRejoins "restarted seed joins the living cluster"
        "A restarted seed must not found a second cluster beside the living one."
    RememberedView "expelled process tells of the view that expelled it"
        "It may be the last process that knows of that view."
    KilledParting "process killed while parting"
        "It decided a view without itself and ends before the remaining members are sure to know \
         it."
    ElderLeaves "elder leaves"
        "The member that decides the next view is not in it."
    GrantorLeaves "grantor leaves while it grants"
        "Its table is recovered from the others, and the holds of other members survive."
    LeavingWithHolds "member leaves while it holds"
        "Its guards fail at once and its locks go to the next waiters."
    ExpelledWaiting "expelled while waiting"
        "Its callers are answered, and its positions in queues are gone."
    SuspendedHolding "suspended while holding"
        "Holds end with the member's lease, before any other member can have them."
    GrantorSuspended "grantor suspended"
        "It keeps its table and grants nothing until its lease runs again."
    QuorumRegained "quorum lost and regained"
        "All members were suspended, and go on from the same state."
    SoleQuorumLost "elder alone is not a quorum any more"
        "A lease without an end gets one: it must not outlive the first decision of others."
    SleeperRobbed "stopped holder wakes after its lock moved on"
        "It may not believe in its lock for an instant: another member has it."
    LeaseEndsAsleep "lock lease ends while its holder is stopped"
        "The holder did not release it in time: the guard has to fail by the clock alone."
    StaleWrite "store refuses a stale write"
        "Fencing guards against this case: the writer was asleep, or its write was slow."
    TwoBelieve "two believe in one lock outside the clock bound"
        "Only the tokens tell the two apart: the store takes no write of the older one after one \
         of the newer."
}

/// The cause of a member's present step.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
enum StepCause {
    #[default]
    Other,
    Ask,
    Grant,
    Inventory,
    Beat,
    Pulse,
    Connected,
}

/// Counts rare states.
#[derive(Clone, Debug, Default)]
pub struct RareStateCounter {
    counts: BTreeMap<RareState, u64>,
    cause: StepCause,
    /// The member lease began to run in the present step.
    resumed: bool,
    /// Grants under way.
    grants: BTreeMap<(ProcessId, RequestId), (Epoch, ServiceName)>,
    /// The latest recovery that each process has answered.
    reported: BTreeMap<(ProcessId, ServiceName), Epoch>,
    /// Processes that have passed on the table of a service.
    handed: BTreeSet<(ProcessId, ServiceName)>,
    /// Processes that a recovery has asked, and that have not answered.
    asked: BTreeSet<(ProcessId, Epoch)>,
    /// Namings under way: the named process and the elder.
    namings: BTreeMap<ProcessId, ProcessId>,
    /// The highest view, the process that installed it first, and the number of processes that
    /// have.
    top: Option<View>,
    first: Option<ProcessId>,
    installers: usize,
    /// The view that each process has.
    views: BTreeMap<ProcessId, ViewNumber>,
    /// The candidate of each view.
    candidates: BTreeMap<ViewNumber, ProcessId>,
    /// Members of the highest view that ended, and whether they were grantors.
    dead: BTreeMap<ProcessId, bool>,
    /// Processes that ended in order.
    over: BTreeSet<ProcessId>,
    /// No member's lease runs.
    dark: bool,
    /// The last grant of each lock.
    last: BTreeMap<Key, Token>,
    /// Sites whose elder is a quorum by itself.
    alone: BTreeSet<usize>,
}

impl RareStateCounter {
    /// How often each rare state was reached.
    pub fn counts(&self) -> &BTreeMap<RareState, u64> {
        &self.counts
    }

    fn reach(&mut self, state: RareState) {
        *self.counts.entry(state).or_default() += 1;
    }

    fn reach_if(&mut self, so: bool, state: RareState) {
        if so {
            self.reach(state);
        }
    }

    /// A running member is about to do a step.
    fn begins(&mut self, world: &World, site: usize, process: ProcessId, input: &Input) {
        (self.cause, self.resumed) = (StepCause::Other, false);
        let Some(node) = world.sites[site].node.as_ref() else { return };
        match input {
            Input::Received { from, packet, .. } => match packet {
                Packet::Relay { from, to, packet, .. } if *to == process => {
                    self.reach_if(matches!(**packet, Packet::Linked { .. }), RareState::Relayed);
                    self.receives(world, site, process, from.process, packet);
                }
                packet => self.receives(world, site, process, *from, packet),
            },
            Input::Hint(Hint::Connected(_)) => self.cause = StepCause::Connected,
            Input::Command(Command::Leave) => {
                self.reach_if(node.is_elder(), RareState::ElderLeaves);
                self.reach_if(node.grantors().next().is_some(), RareState::GrantorLeaves);
                let holds = world.history.claims().any(|ask| world.call(ask).process == process);
                self.reach_if(holds, RareState::LeavingWithHolds);
            }
            Input::Command(Command::Release { request }) => {
                let crosses = self.grants.contains_key(&(process, *request));
                self.reach_if(
                    crosses && is_unanswered(world, process, *request),
                    RareState::CancelledInFlight,
                );
            }
            _ => {}
        }
    }

    fn receives(
        &mut self,
        world: &World,
        site: usize,
        process: ProcessId,
        from: ProcessId,
        packet: &Packet,
    ) {
        let Some(node) = world.sites[site].node.as_ref() else { return };
        let recovers = |service: &ServiceName| {
            node.grantors().any(|(of, _, state)| of == service && state == GrantorState::Recovering)
        };
        match packet {
            Packet::Notice(notice) => match **notice {
                Notice::Pulse { .. } => self.cause = StepCause::Pulse,
                Notice::Beat { .. } => self.cause = StepCause::Beat,
                Notice::Promise { accepted: Some(_), .. } => self.reach(RareState::FoundAccepted),
                _ => {}
            },
            Packet::Linked { message, .. } => match message {
                Message::Grantor(GrantorMessage::RequestTable { service, epoch, .. }) => {
                    let state =
                        node.grantors().find(|(of, ..)| *of == service).map(|(_, _, state)| state);
                    match state {
                        Some(GrantorState::Acting) => {
                            let crosses =
                                self.grants.values().any(|(of, by)| of < epoch && by == service);
                            self.reach_if(crosses, RareState::TableInFlight);
                        }
                        Some(GrantorState::Receiving) => self.reach(RareState::AskedBeforeTable),
                        Some(_) => {}
                        None => self.reach(RareState::HandedTwice),
                    }
                }
                Message::Registry(RegistryMessage::Decline { .. }) => {
                    self.reach(RareState::Declined)
                }
                Message::Registry(RegistryMessage::Vacant { .. }) => {
                    self.reach(RareState::LeftVacant)
                }
                Message::Client(ClientMessage::Grant { service, epoch, request, .. }) => {
                    self.cause = StepCause::Grant;
                    if self.grants.remove(&(process, *request)).is_some() {
                        let reported = self.reported.get(&(process, service.clone()));
                        self.reach_if(
                            reported.is_some_and(|reported| reported > epoch),
                            RareState::OldGrantRefused,
                        );
                    }
                }
                Message::Client(ClientMessage::Recall { request, .. }) => {
                    let kept = node.kept().find(|(place, _)| place == request);
                    self.reach(match kept {
                        Some((_, false)) => RareState::FreeKeepRecalled,
                        Some((_, true)) => RareState::UsedKeepRecalled,
                        None => RareState::RecallTooLate,
                    });
                }
                Message::Client(ClientMessage::Recover { .. }) => {
                    for (_, is_used) in node.kept() {
                        self.reach(match is_used {
                            false => RareState::FreeKeepAtTakeover,
                            true => RareState::UsedKeepAtTakeover,
                        });
                    }
                }
                Message::Grantor(GrantorMessage::KeepInUse { holds, .. }) => {
                    self.reach_if(holds.len() > 1, RareState::SharesInPlaceOfOne);
                }
                Message::Grantor(GrantorMessage::RequestLock { service, .. }) => {
                    self.cause = StepCause::Ask;
                    self.reach_if(recovers(service), RareState::RequestDuringRecovery);
                }
                Message::Grantor(GrantorMessage::Release { service, .. }) => {
                    self.reach_if(recovers(service), RareState::ReleaseDuringRecovery);
                    let grants = node.grantors().any(|(of, ..)| of == service);
                    self.reach_if(
                        self.handed.contains(&(process, service.clone())) && !grants,
                        RareState::ReleaseAtFormer,
                    );
                }
                Message::Registry(RegistryMessage::InventoryReply { .. }) => {
                    self.cause = StepCause::Inventory
                }
                Message::Member(MemberMessage::NameGrantor { .. })
                | Message::Member(MemberMessage::GrantorIs { .. })
                | Message::Member(MemberMessage::Tokens { .. }) => {
                    if matches!(message, Message::Member(MemberMessage::NameGrantor { .. })) {
                        self.namings.remove(&process);
                    }
                    let elder = node.view().map(|view| view.elder().process);
                    self.reach_if(
                        elder.is_some_and(|elder| elder != from),
                        RareState::OldElderSpeaks,
                    );
                }
                _ => {}
            },
            _ => {}
        }
    }

    /// A stopped process is about to wake.
    fn wakes(&mut self, world: &World, site: usize) {
        let peer = &world.sites[site];
        let now = peer.clock.local(world.now);
        let of_it =
            world.history.claims().map(|ask| world.call(ask)).filter(|call| peer.is(call.process));
        let calls: Vec<_> = of_it.collect();
        let moved = calls
            .iter()
            .any(|call| call.tokens().any(|(key, token)| self.last.get(key) > Some(&token)));
        self.reach_if(moved, RareState::SleeperRobbed);
        self.reach_if(calls.iter().any(|call| call.until <= now), RareState::LeaseEndsAsleep);
    }

    /// A packet is lost.
    fn loses(&mut self, packet: &Packet) {
        match message(packet) {
            Some(Message::Grantor(GrantorMessage::Release { .. })) => {
                self.reach(RareState::ReleaseLost)
            }
            Some(Message::Client(ClientMessage::Grant { .. })) => self.reach(RareState::GrantLost),
            _ => {}
        }
    }

    /// Takes an observation.
    pub(crate) fn observe(&mut self, world: &World, observation: &Observation<'_>) {
        match observation {
            Observation::Answers { ask, outcome } => self.answers(world, *ask, outcome),
            Observation::Answered { ask } => {
                let call = world.call(*ask);
                if call.suspends() && call.token().is_some() {
                    let holds = |other: &Ask| {
                        let other = world.call(*other);
                        other.process == call.process
                            && other.service == call.service
                            && !other.suspends()
                    };
                    self.reach_if(
                        world.history.claims().any(|other| holds(&other)),
                        RareState::Upgraded,
                    );
                }
                for (key, token) in call.tokens() {
                    self.last.insert(key.clone(), token);
                    let believe =
                        || world.history.claims_of(key).filter(|ask| world.fence(*ask).is_some());
                    self.reach_if(!world.bounded && believe().count() > 1, RareState::TwoBelieve);
                }
            }
            Observation::Loses { reason: LostReason::Suspended, .. } => {
                self.reach(RareState::SuspendedHolding)
            }
            Observation::Loses { reason: LostReason::Destroyed, .. } => {
                self.reach(RareState::DestroyedHolding)
            }
            Observation::Event { site, process, event } => {
                self.event(world, *site, *process, event)
            }
            Observation::Sent { site, process, to, packet } => {
                self.sends(world, *site, *process, *to, packet)
            }
            Observation::Ends { site, process } => self.ends(world, *site, *process),
            Observation::Takes { site, process, input } => {
                self.begins(world, *site, *process, input)
            }
            Observation::Routed {
                packet, lost: Some(PacketLoss::Cut | PacketLoss::Lost), ..
            } => self.loses(packet),
            Observation::Wakes { site } => self.wakes(world, *site),
            Observation::Torn { .. } => self.reach(RareState::TornStep),
            Observation::WriteFails { .. } => self.reach(RareState::Voteless),
            Observation::EndsWriting { .. } => self.reach(RareState::EndsWriting),
            Observation::WriteRefused { .. } => self.reach(RareState::StaleWrite),
            Observation::Stepped { site } => {
                let peer = &world.sites[*site];
                if peer.is_alive() && peer.lease_end() == elderlock::protocol::Time::MAX {
                    self.alone.insert(*site);
                } else if !self.alone.is_empty() && self.alone.remove(site) {
                    self.reach_if(peer.is_alive(), RareState::SoleQuorumLost);
                }
            }
            _ => {}
        }
    }

    fn answers(&mut self, world: &World, ask: Ask, outcome: &Outcome) {
        let call = world.call(ask);
        let recovers = || {
            let nodes = world
                .sites
                .iter()
                .filter(|peer| peer.is_alive())
                .filter_map(|peer| peer.node.as_ref());
            let mut terms = nodes.flat_map(|node| node.grantors());
            terms.any(|(service, _, state)| {
                *service == call.service && state == GrantorState::Recovering
            })
        };
        match outcome {
            Outcome::Granted { .. } => {
                self.reach_if(self.resumed, RareState::WonWhileSuspended);
                self.reach_if(world.place_of(call).is_some(), RareState::KeptGrant);
            }
            Outcome::TimedOut => {
                self.reach_if(
                    self.grants.contains_key(&(call.process, call.request)),
                    RareState::LimitInFlight,
                );
                self.reach_if(recovers(), RareState::LimitDuringRecovery);
            }
            Outcome::Undecided => self.reach_if(recovers(), RareState::TryDuringRecovery),
            Outcome::Closed(LostReason::Expelled) => self.reach(RareState::ExpelledWaiting),
            Outcome::Outbid(_) => self.reach(RareState::Outbid),
            Outcome::Deadlock if call.suspends() => self.reach(RareState::Deadlocked),
            Outcome::Deadlock => self.reach(RareState::CircleTold),
            Outcome::ForceNotAllowed => self.reach(RareState::ForceRefused),
            _ => {}
        }
    }

    fn event(&mut self, world: &World, site: usize, process: ProcessId, event: &Event) {
        let node = world.sites[site].node.as_ref();
        match event {
            Event::ViewInstalled(view) => self.installs(world, site, process, view),
            Event::BecameGrantor { service, epoch } => {
                let others = world
                    .sites
                    .iter()
                    .enumerate()
                    .filter(|(other, peer)| *other != site && peer.is_alive());
                let mut terms = others
                    .filter_map(|(_, peer)| peer.node.as_ref())
                    .flat_map(|node| node.grantors());
                let past = terms.any(|(of, known, state)| {
                    of == service && known < *epoch && state == GrantorState::Acting
                });
                self.reach_if(past, RareState::PastGrantor);
                let old = |call: &&Call| {
                    call.service == *service && call.token().is_some_and(|token| token < epoch.0)
                };
                let held: Vec<&Call> =
                    world.history.claims().map(|ask| world.call(ask)).filter(old).collect();
                self.reach_if(held.iter().any(|call| call.suspends()), RareState::HandedSuspension);
                self.reach_if(held.iter().any(|call| call.keys.len() > 1), RareState::HandedBatch);
            }
            Event::Suspended => {
                self.reach_if(
                    node.is_some_and(|node| node.grantors().next().is_some()),
                    RareState::GrantorSuspended,
                );
                self.dark |= !world.sites().any(|site| world.is_ready(site));
            }
            Event::Resumed => {
                self.resumed = true;
                let was_dark = std::mem::take(&mut self.dark);
                self.reach_if(was_dark, RareState::QuorumRegained);
            }
            Event::Abandoned => {
                let burnt = self
                    .top
                    .as_ref()
                    .is_some_and(|top| top.departed.iter().any(|(gone, _)| *gone == process));
                self.reach(if burnt {
                    RareState::BurntJoiner
                } else {
                    RareState::FoundingAbandoned
                });
                self.over.insert(process);
            }
            Event::Expelled | Event::Left { .. } => _ = self.over.insert(process),
            Event::ForcedRevoke { .. } => self.reach(RareState::EndedByForce),
            Event::Supplied { .. } => self.reach(RareState::RangeUsedUp),
            Event::BecameElder(_)
            | Event::NoLongerGrantor { .. }
            | Event::FoundGrantor { .. }
            | Event::FollowsLoad { .. }
            | Event::GrantorAborted { .. }
            | Event::Orphaned
            | Event::IdentityTaken
            | Event::VoteClaimRefused { .. }
            | Event::OtherLineage(_)
            | Event::WaitsLeftOut { .. }
            | Event::TableRefused { .. }
            | Event::WrongClock { .. }
            | Event::Forced
            | Event::ForceRefused(_) => {}
        }
    }

    fn installs(&mut self, world: &World, site: usize, process: ProcessId, view: &View) {
        let is_next = |top: &View| top.number.next() == view.number && top.members == view.members;
        self.reach_if(self.top.as_ref().is_some_and(is_next), RareState::ViewUsedUp);
        let before = self.views.insert(process, view.number);
        let peer = &world.sites[site];
        match before {
            Some(before) => self.reach_if(before.next() < view.number, RareState::MissedView),
            None => {
                let own = view.member(process).map(|member| member.joined);
                let came_later = own.is_some_and(|joined| view.members[0].joined < joined);
                let is_seed = peer.seeds.contains(&peer.addr) && peer.incarnation > 1;
                self.reach_if(is_seed && came_later, RareState::SeedRejoins);
            }
        }
        if let Some(top) = &self.top {
            if top.number == view.number && top.lineage == view.lineage {
                self.installers += 1;
                return;
            }
            if top.number > view.number {
                return;
            }
        }
        let top = self.top.replace(view.clone());
        (self.first, self.installers) = (Some(process), 1);
        if let Some(top) = top.filter(|top| top.lineage == view.lineage) {
            let revived = |member: &&elderlock::protocol::ViewMember| {
                member.ghost && view.member(member.info.process).is_some_and(|now| !now.ghost)
            };
            self.reach_if(
                top.members.iter().any(|member| revived(&member)),
                RareState::GhostRevived,
            );
            let elder = top.elder().process;
            let is_living = view.member(elder).is_some_and(|member| !member.ghost);
            self.reach_if(is_living && view.elder().process != elder, RareState::OlderElder);
            let joins = view.members.iter().any(|member| !top.contains(member.info.process));
            let gone: Vec<ProcessId> = top
                .members
                .iter()
                .map(|member| member.info.process)
                .filter(|member| !view.contains(*member))
                .collect();
            self.reach_if(joins && !gone.is_empty(), RareState::JoinAndDeparture);
            let unheard = top.members.iter().map(|member| member.info.process);
            let unheard = unheard.filter(|member| !self.views.contains_key(member)).count();
            self.reach_if(unheard > 0, RareState::TakenInUntold);
            for member in gone {
                let asked = (member, Epoch(Token::new(Slot(0), 0)))..=(member, LAST_EPOCH);
                let unanswered: Vec<_> = self.asked.range(asked).copied().collect();
                self.reach_if(!unanswered.is_empty(), RareState::AskedAndGone);
                for one in unanswered {
                    self.asked.remove(&one);
                }
            }
        }
        self.candidates.retain(|number, _| *number > view.number);
        self.dead.retain(|process, _| view.contains(*process));
    }

    fn sends(
        &mut self,
        world: &World,
        site: usize,
        process: ProcessId,
        to: Option<ProcessId>,
        packet: &Packet,
    ) {
        match packet {
            Packet::Notice(notice) => match &**notice {
                Notice::PreVote { instance, .. } => {
                    let rival = self.candidates.insert(*instance, process);
                    self.reach_if(
                        rival.is_some_and(|rival| rival != process),
                        RareState::TwoCandidates,
                    );
                }
                Notice::Nack { .. } => {
                    self.reach_if(self.cause == StepCause::Pulse, RareState::BoundVote)
                }
                Notice::FullView { view, .. } => {
                    let seeks =
                        world.sites[site].node.as_ref().is_some_and(|node| node.view().is_none());
                    self.reach_if(
                        seeks && view.lineage.founder != process,
                        RareState::RememberedView,
                    );
                }
                _ => {}
            },
            Packet::Linked { message, .. } => {
                self.reach_if(self.cause == StepCause::Connected, RareState::Resent);
                if let Some(to) = to {
                    self.says(process, to, message);
                }
            }
            _ => {}
        }
    }

    fn says(&mut self, process: ProcessId, to: ProcessId, message: &Message) {
        match message {
            Message::Client(ClientMessage::Grant { service, epoch, request, .. }) => {
                self.grants.insert((to, *request), (*epoch, service.clone()));
            }
            Message::Grantor(GrantorMessage::Report { service, epoch, last: true, .. }) => {
                self.asked.remove(&(process, *epoch));
                self.reports(process, service, *epoch);
            }
            Message::Client(ClientMessage::Recover { service, epoch, .. }) => {
                self.asked.insert((to, *epoch));
                // A grantor that asks others has also asked itself, and answered without a packet.
                if self.reported.get(&(process, service.clone())) != Some(epoch) {
                    self.reports(process, service, *epoch);
                }
                let is_ghost = |top: &View| top.member(to).is_some_and(|member| member.ghost);
                self.reach_if(
                    self.top.as_ref().is_some_and(is_ghost),
                    RareState::RecoveryAsksGhost,
                );
            }
            Message::Grantor(GrantorMessage::TableChunk { service, .. }) => {
                _ = self.handed.insert((process, service.clone()))
            }
            Message::Member(MemberMessage::NameGrantor { .. }) => {
                _ = self.namings.insert(to, process)
            }
            Message::Client(ClientMessage::NotGrantor { .. }) => self.reach(RareState::NotGrantor),
            Message::Grantor(GrantorMessage::Release { .. }) => {
                self.reach_if(self.cause == StepCause::Grant, RareState::UnwantedGrant)
            }
            Message::Member(MemberMessage::GrantorIs { .. }) => match self.cause {
                StepCause::Inventory => self.reach(RareState::AskedBeforeInventory),
                StepCause::Beat => self.reach(RareState::AskedBeforeQuorum),
                _ => {}
            },
            Message::Registry(RegistryMessage::FindGrantor { .. }) => {
                self.reach_if(self.cause == StepCause::Ask, RareState::EarlyRequest)
            }
            _ => {}
        }
    }

    fn reports(&mut self, process: ProcessId, service: &ServiceName, epoch: Epoch) {
        let mut of_it = self.grants.range((process, RequestId(0))..=(process, RequestId(u64::MAX)));
        let crosses = of_it.any(|(_, (of, by))| *of < epoch && by == service);
        self.reach_if(crosses, RareState::GrantInFlightAtTakeover);
        self.reported.insert((process, service.clone()), epoch);
    }

    fn ends(&mut self, world: &World, site: usize, process: ProcessId) {
        let Some(node) = world.sites[site].node.as_ref() else { return };
        let in_order = self.over.contains(&process);
        self.reach_if(node.kept().next().is_some(), RareState::KeeperDies);
        let recovers = node.grantors().any(|(_, _, state)| state == GrantorState::Recovering);
        self.reach_if(recovers, RareState::RecoveryInterrupted);
        let is_in = |state| node.grantors().any(|(_, _, own)| own == state);
        self.reach_if(is_in(GrantorState::Receiving), RareState::TurkDies);
        self.reach_if(is_in(GrantorState::PassingOn), RareState::MiddleDies);
        let others = world.sites.iter().filter(|peer| peer.is_alive() && !peer.is(process));
        let mut others = others.filter_map(|peer| peer.node.as_ref());
        let awaited = others.any(|other| {
            let receives = other.grantors().any(|(_, _, state)| state == GrantorState::Receiving);
            receives && other.awaiting().any(|one| one == process)
        });
        self.reach_if(awaited, RareState::SourceDies);
        let parting = !in_order && node.view().is_some_and(|view| !view.contains(process));
        self.reach_if(parting, RareState::KilledParting);
        if let Some(top) = self.top.as_ref().filter(|top| top.contains(process)) {
            let untold = !in_order
                && self.first == Some(process)
                && self.installers == 1
                && top.members.len() > 1;
            let elder = top.elder().process;
            self.dead.insert(process, node.grantors().next().is_some());
            let both = self.dead.contains_key(&elder)
                && self.dead.iter().any(|(dead, granted)| *granted && *dead != elder)
                && (process == elder || self.dead[&process]);
            self.reach_if(both, RareState::ElderAndGrantor);
            self.reach_if(untold, RareState::DecidedUntold);
        }
        let unheard = self.namings.remove(&process).is_some();
        self.reach_if(unheard, RareState::NamedDiesUnheard);
        let naming = self.namings.values().any(|by| *by == process);
        self.reach_if(naming, RareState::ElderDiesNaming);
        self.namings.retain(|_, by| *by != process);
        let of_it = (process, RequestId(0))..=(process, RequestId(u64::MAX));
        let crossing: Vec<_> = self.grants.range(of_it).map(|(key, _)| *key).collect();
        let waits =
            crossing.iter().any(|(process, request)| is_unanswered(world, *process, *request));
        self.reach_if(waits, RareState::WaiterDiesInFlight);
        for key in crossing {
            self.grants.remove(&key);
        }
        self.alone.remove(&site);
    }
}

/// A number above every epoch.
const LAST_EPOCH: Epoch = Epoch(Token::new(Slot::MAX, 0));

/// Returns whether the client still waits, or has given up waiting just now.
fn is_unanswered(world: &World, process: ProcessId, request: RequestId) -> bool {
    world.history.find(process, request).is_some_and(|ask| world.call(ask).outcome.is_none())
}
