//! A member's telemetry for its operator. Spans and log events use `tracing`, always. Measurements
//! use the `metrics` facade, with the feature `metrics`.
//!
//! # Measurements
//! With the feature `metrics`, off by default. Measurements go to the recorder of the
//! [`metrics`](https://docs.rs/metrics) crate. Install one, a Prometheus exporter say, **before**
//! the member is built: frequent measurements are registered only once.
//!
//! **Labels have few values**: fixed words, and the names of services, of which a program has few
//! by design. Numerous things (users, files, rows) are locks in one service. Names of locks,
//! members and owners are never labels. Series of a service that was destroyed stay for as long as
//! the recorder keeps them.
//!
//! The following measure **this member's own requests**, whichever member grants them; summed over
//! all members they are the whole service. A batch is one request, and so is a suspension.
//!
//! | name | kind, unit | meaning |
//! |---|---|---|
//! | `elderlock_wait_seconds{service,outcome}` | histogram, s | from asking (the first poll, or `start`) to the answer. Outcomes: `granted`, `timed_out`, `busy`, `deadlock`, `destroyed`, `expelled`, `left`, `not_open` (permits of an object that the member has not open), `cancelled` (the future was dropped). A try or a wait of zero also has `held` (another request holds or goes first, or the limit is too low). It also has `undecided` (no grantor can decide) |
//! | `elderlock_hold_seconds{service,outcome}` | histogram, s | from the grant to the end, as soon as that is noticed. Outcomes: `released` (the last guard was released or dropped in time), or why it was lost: `lease_ended`, `suspended`, `expelled`, `superseded`, `left`, `destroyed`, `revoked`, `forked`, `session_ended` |
//! | `elderlock_grants_total{service}` | counter | requests that were granted: locks, shares, permits, batches, suspensions. An open object is not counted: it is not a hold |
//! | `elderlock_releases_total{service}` | counter | holds that were released while they were held |
//! | `elderlock_losses_total{service,reason}` | counter | holds that were lost; the reasons are the other outcomes of `elderlock_hold_seconds` |
//!
//! The following measure the **grantor**, at the member where it acts; elsewhere they are 0. Gauges
//! are read every quarter of a second, and cost nothing in between.
//!
//! | name | kind, unit | meaning |
//! |---|---|---|
//! | `elderlock_queue_depth{service}` | gauge | requests of all members that wait in its table |
//! | `elderlock_held{service}` | gauge | requests of all members that hold in its table |
//! | `elderlock_is_grantor{service}` | gauge | 1: this member grants it |
//! | `elderlock_recoveries_total{service}` | counter | it began to grant after asking every member for its holds, because its predecessor was gone |
//! | `elderlock_recovery_seconds{service}` | histogram, s | from asking them to beginning to grant. The time before, until the others knew that the predecessor was gone, is the cluster's timing |
//! | `elderlock_transfers_total{service}` | counter | it began to grant with the table of a predecessor: by `become_grantor`, or because the predecessor left or destroyed its service |
//! | `elderlock_transfer_seconds{service}` | histogram, s | from asking for the table to beginning to grant |
//!
//! The following measure the **member**. Gauges, messages and refusals are read every quarter of a
//! second, too.
//!
//! | name | kind, unit | meaning |
//! |---|---|---|
//! | `elderlock_kept{service}` | gauge | locks that it [keeps](crate::LockService::keep_locks), in use or free. The kind `Recall` of the messages counts how often others wanted one back. Grants beside the messages of the kind `Grant` are those of kept locks, where another member grants |
//! | `elderlock_kept_in_use{service}` | gauge | how many of these are in use |
//! | `elderlock_messages_sent_total{service,kind}` | counter | packets handed to the network, by the message that they carry; those that are sent again or by a detour count again. Kinds are the names of the protocol's messages: `RequestLock`, `Grant`, `Release`, `Beat`, `Pulse`, … A member's message to itself is not a packet |
//! | `elderlock_messages_received_total{service,kind}` | counter | packets taken from the network, in the same way |
//! | `elderlock_refused_total{reason}` | counter | input that the network refused. The reasons are those fields of [`Counters`](crate::Counters) that begin with "Refused" |
//! | `elderlock_view_changes_total` | counter | views that were installed |
//! | `elderlock_view_members` | gauge | members of the present view, ghosts among them; 0 without one |
//! | `elderlock_connected` | gauge | 1: its lease runs, so that it may hold and be granted locks. 0: suspended, joining or over |
//! | `elderlock_is_elder` | gauge | 1: it is the elder |
//! | `elderlock_suspected_members` | gauge | members that a hint calls unreachable |
//!
//! Messages of members and views (`Beat`, `Pulse`, `Accept`, `Inventory`, …), and bare
//! acknowledgements (`Ack`), have no label `service`. Neither have `QueryReply`, `RevocationReply`,
//! `DestroyConfirmed` and `DestroyUnconfirmed`, which name only the request that they answer. A
//! message that a member relays between two others counts at that member, too, under the kind of
//! the relayed message.
//!
//! [`SECONDS_BUCKETS`] are the suggested buckets of all histograms. A program that serves the
//! member over HTTP adds its exporter's text to `/metrics`, see `http::HttpView::exporter`.
//!
//! Several members in one process add up, in gauges too. After a service was destroyed here, or a
//! member has left or was dropped, the gauges of it are 0.
//!
//! # Spans and events
//! Spans and events of this table have the target `elderlock`. All other events are details for
//! diagnosis. Their target is the path of their module, `elderlock::...`, so that a filter for
//! `elderlock` includes them.
//!
//! | name | kind, level | fields |
//! |---|---|---|
//! | `acquire` | span, debug | `service`; `lock.name` (of a batch all of them, none of a suspension); and when it ends `lock.outcome` as above, `lock.wait_ms`, and if granted `lock.token` |
//! | `transfer` | span, info | `service`, `epoch`: this member is named, and asks its predecessor for the table. When it ends `outcome`, `took_ms`, and if it acts `holds` and `waits`, of its table. Outcomes: `acts`; `no_table` (the predecessor has none, or left: a `recovery` follows); `lost` (the epoch is over before it began). It is lost if a younger turk got the table, or the predecessor is lost and this member is named once more. It is also lost if there is another elder, or this member leaves or is expelled |
//! | `recovery` | span, info | the same, from asking every member for its holds. Outcomes: `acts`, `lost` |
//! | `view change` | span, info | `view` (its number): this member proposes that view, or has given its vote to the process that does. When it ends `outcome`, `took_ms`, and if there is one `members` and `elder`. Outcomes: `installed`; `lost` (this member left or was expelled meanwhile). With a later view than was asked for, `view` is recorded once more. A member without a part in the vote has a span of no length |
//! | `grantor` | event, info | `service`, `epoch`, `name`, `addr`, `process`: this member grants from now on. It is in its `transfer` or `recovery`: in none if it is the first grantor or goes on in a new epoch |
//! | `found grantor` | event, info | the same fields: another member grants a service that this program uses, in an epoch that this member has just learned of |
//! | `grantor ended` | event, info | `service`, `epoch`: it grants no more |
//! | `view` | event, info | `view`, `members`, `elder`, `elder_name`: a view was installed; in its `view change` |
//! | `lock lost` | event, warn | `service`, `lock.name` (escaped, its first 100 characters), `token`, `reason`, `left_out`: a hold is over against the program's will. 16 lines in a row and one a second; `left_out` counts those that were not written before it |
//! | `the program's code panicked ...` | event, error | `panic`: a waker, a log subscriber or a metrics recorder of the program panicked. The member goes on without that call |
//! | `suspended: ...`, `orphaned: ...`, `expelled: ...` | event, warn | the member's lease is over; no quorum for three leases; the cluster went on without it |
//! | `joined another lineage: ...` | event, warn | `before`, `lineage`, `lost`: the locks that this member lost since its last view of the former lineage |
//! | `another lineage of this cluster runs at ADDR: ...` | event, warn | `name`, `addr`, `process`, `lineage`, `view`, `elder`, `elder_name` of the other one, `own` lineage, `left_out`: two clusters of one name run, see [`Counters::other_lineage`](crate::Counters::other_lineage). 16 lines in a row and one a minute |
//! | `refused a process that claimed the vote of a member without its secret` | event, warn | `voter`, `from`, `left_out`: see [`Counters::vote_claims`](crate::Counters::vote_claims). 16 lines in a row and one a second |
//! | `forced: ...` | event, warn | `lineage`: a forced start founded it. If the data directory had a view, `before`, `view` and `members` tell what is given up |
//! | `resumed: ...` | event, info | the member's lease runs again |
//! | `member joined`, `member left`, `member died`, `member is gone`, `member is unreachable: ...` | event, info | `name`, `addr`, `process`; `cause` of a death: `killed` or `lease over`. `member is gone`: this member heard no reason |
//! | `more members joined or ended than have lines` | event, info | `left_out`: how many. 2,048 lines of the row above in a row and 8 a second |
//! | `elder` | event, info | `name`, `addr`, `process`, `is_me`: another member is the elder now |
//! | `joining: ...` | event, info | every three seconds while it joins: the seeds that have not answered, and why |
//!
//! An acquisition is a future of the caller, so its span is the child of the span in which it is
//! first polled. It is entered only while it is polled; the span ends wherever the future is
//! dropped. The other spans begin in one turn of the member and end in another. Any task may run
//! such a turn, even the caller of some unrelated lock. So they have no parent and are never
//! entered. A span opens in the turn in which the member sends the first message of its subject. Of
//! a view that is `Prepare`, `Promise`, `Accept` or `Accepted`; an earlier `PreVote` binds no voter
//! and may have no effect. All spans that are open when a member leaves, is expelled or is dropped
//! end as `lost`.
//!
//! Where no subscriber wants the level, nothing is kept for a span, and only the level is checked.

use super::clock;
use super::sync::Mutex;
use crate::protocol::{
    ClientMessage, Epoch, Event, GrantorMessage, GrantorState, LostReason, MemberInfo, MemberName,
    Message, Node, Notice, Outcome, Packet, ProcessId, ServiceName, Time, Token, ViewNumber, Want,
};
use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, PoisonError};
use std::time::Duration;
use tracing::field::{Empty, display};
use tracing::{Level, Span, debug_span, info, info_span, level_enabled};

mod member_log;

#[cfg(feature = "metrics")]
mod measured;
#[cfg(not(feature = "metrics"))]
mod unmeasured;

pub(crate) use member_log::{LogNote, MemberLog, ShownLockName, ShownService, words};

#[cfg(feature = "metrics")]
pub(crate) use measured::{HoldMeter, Meter, PacketCounts, Sampler};
#[cfg(not(feature = "metrics"))]
pub(crate) use unmeasured::{
    NoHoldMeter as HoldMeter, NoMeter as Meter, NoPacketCounts as PacketCounts,
    NoSampler as Sampler,
};

/// Suggested upper bounds of the buckets of each histogram here, in seconds. They range from a free
/// lock at the own member to a wait of five minutes.
pub const SECONDS_BUCKETS: [f64; 16] = [
    0.000_1, 0.000_5, 0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 10.0,
    60.0, 300.0,
];

/// A request, from its start to its answer: its span and its duration.
pub(crate) struct AcquireSpan {
    span: Span,
    meter: Meter,
    /// The time of the request; `None` if neither subscriber nor recorder needs it.
    since: Option<Time>,
    over: bool,
}

impl AcquireSpan {
    /// Begins the measurement of a request. `None`: neither subscriber nor recorder needs it, so it
    /// costs nothing.
    pub(crate) fn begin(meter: &Meter, service: &ServiceName, want: &Want) -> Option<AcquireSpan> {
        if !cfg!(feature = "metrics") && !level_enabled!(Level::DEBUG) {
            return None;
        }
        let span = debug_span!(
            target: "elderlock",
            "acquire",
            %service,
            lock.name = Empty,
            lock.token = Empty,
            lock.wait_ms = Empty,
            lock.outcome = Empty,
        );
        if !span.is_disabled() && !want.names().is_empty() {
            span.record("lock.name", display(WantedNames(want)));
        }
        let since = (cfg!(feature = "metrics") || !span.is_disabled()).then(clock::now);
        Some(AcquireSpan { span, meter: meter.clone(), since, over: false })
    }

    /// The span, which is entered for each poll.
    pub(crate) fn span(&self) -> &Span {
        &self.span
    }

    /// Notes that the request was granted, at that time if that is known.
    pub(crate) fn granted(&mut self, token: Token, at: Option<Time>) {
        self.span.record("lock.token", token.as_i64());
        self.end("granted", at);
    }

    /// Notes that the request was not granted.
    pub(crate) fn refused(&mut self, outcome: &Outcome) {
        self.end(refusal(outcome), None);
    }

    fn end(&mut self, outcome: &'static str, at: Option<Time>) {
        self.over = true;
        let Some(since) = self.since else { return };
        let took = at.unwrap_or_else(clock::now).since(since);
        // The span ends here, however long the future is kept.
        let span = std::mem::replace(&mut self.span, Span::none());
        span.record("lock.outcome", outcome);
        span.record("lock.wait_ms", millis(took));
        self.meter.waited(outcome, took);
    }
}

impl Drop for AcquireSpan {
    fn drop(&mut self) {
        if !self.over {
            self.end("cancelled", None);
        }
    }
}

/// The label `outcome` of a wait with this outcome.
fn refusal(outcome: &Outcome) -> &'static str {
    match outcome {
        Outcome::Held(_) | Outcome::Waited(_) | Outcome::Limit(_) => "held",
        Outcome::Undecided => "undecided",
        Outcome::Busy => "busy",
        Outcome::Deadlock => "deadlock",
        Outcome::NotOpen => "not_open",
        Outcome::Closed(LostReason::Left) => "left",
        Outcome::Closed(LostReason::Destroyed) => "destroyed",
        Outcome::Closed(_) => "expelled",
        _ => "timed_out",
    }
}

/// Writes the names that a request wants, for people.
struct WantedNames<'a>(&'a Want);

impl fmt::Display for WantedNames<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, name) in self.0.names().iter().enumerate() {
            write!(f, "{}{name}", if index == 0 { "" } else { ", " })?;
        }
        Ok(())
    }
}

fn millis(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

/// An event of a turn, reported after the turn. Recorders and subscribers are the application's
/// code, which never runs under the engine's lock.
pub(crate) enum TelemetryNote {
    Opens {
        course: Arc<SpanHandle>,
        what: SpanSubject,
    },
    Closes {
        course: Option<Arc<SpanHandle>>,
        ending: SpanEnd,
    },
    Grants {
        service: ServiceName,
        epoch: Epoch,
        by: ActingMember,
    },
    GrantsNoMore {
        service: ServiceName,
        epoch: Epoch,
    },
    Log(LogNote),
    /// Another log line.
    Line(Box<dyn FnOnce() + Send>),
}

impl TelemetryNote {
    pub(crate) fn tell(self) {
        match self {
            TelemetryNote::Line(write) => write(),
            TelemetryNote::Opens { course, what } => course.open(what.span()),
            TelemetryNote::Closes { course, ending } => {
                ending.measure();
                match course {
                    Some(course) => course.close(ending),
                    None => ending.tell(&ending.what.span()),
                }
            }
            TelemetryNote::Grants { service, epoch, by: ActingMember { name, addr, process } } => {
                info!(
                    target: "elderlock", parent: None, %service, %epoch, %name, %addr, %process,
                    "grantor"
                );
            }
            TelemetryNote::Log(note) => note.tell(),
            TelemetryNote::GrantsNoMore { service, epoch } => {
                info!(target: "elderlock", parent: None, %service, %epoch, "grantor ended");
            }
        }
    }
}

/// The member that grants, for the line about it: operators read the logs of many members in one
/// place.
pub(crate) struct ActingMember {
    name: MemberName,
    addr: SocketAddr,
    process: ProcessId,
}

impl ActingMember {
    fn new(me: &MemberInfo) -> ActingMember {
        ActingMember { name: me.name.clone(), addr: me.addr, process: me.process }
    }
}

/// An activity that takes longer than a turn, and so has a span.
#[derive(Clone)]
pub(crate) enum SpanSubject {
    /// A view that this member has asked for, or given its vote to.
    View(ViewNumber),
    /// An epoch whose grantor does not grant yet, and the state of that grantor.
    Epoch { service: ServiceName, epoch: Epoch, state: GrantorState },
}

impl SpanSubject {
    /// A root span, which is never entered: any task may have run the turn in which it begins.
    fn span(&self) -> Span {
        match self {
            SpanSubject::View(number) => info_span!(
                target: "elderlock",
                parent: None,
                "view change",
                view = number.0,
                outcome = Empty,
                took_ms = Empty,
                members = Empty,
                elder = Empty,
            ),
            SpanSubject::Epoch { service, epoch, state: GrantorState::Recovering } => info_span!(
                target: "elderlock",
                parent: None,
                "recovery",
                %service,
                %epoch,
                outcome = Empty,
                took_ms = Empty,
                holds = Empty,
                waits = Empty,
            ),
            SpanSubject::Epoch { service, epoch, .. } => info_span!(
                target: "elderlock",
                parent: None,
                "transfer",
                %service,
                %epoch,
                outcome = Empty,
                took_ms = Empty,
                holds = Empty,
                waits = Empty,
            ),
        }
    }
}

/// The end of a span: its duration and its result.
pub(crate) struct SpanEnd {
    what: SpanSubject,
    took: Duration,
    how: SpanResult,
}

enum SpanResult {
    Installed {
        number: ViewNumber,
        members: usize,
        elder: ProcessId,
        elder_name: MemberName,
    },
    Acts {
        holds: usize,
        waits: usize,
        by: ActingMember,
    },
    /// The predecessor had no table.
    NoTable,
    /// The activity ended without a result at this member.
    Lost,
}

impl SpanEnd {
    fn measure(&self) {
        match (&self.what, &self.how) {
            (SpanSubject::View(_), SpanResult::Installed { .. }) => Meter::view_changed(),
            (
                SpanSubject::Epoch { service, state: GrantorState::Recovering, .. },
                SpanResult::Acts { .. },
            ) => {
                Meter::recovered(service, self.took);
            }
            (SpanSubject::Epoch { service, .. }, SpanResult::Acts { .. }) => {
                Meter::transferred(service, self.took)
            }
            _ => {}
        }
    }

    fn tell(&self, span: &Span) {
        let outcome = match self.how {
            SpanResult::Installed { .. } => "installed",
            SpanResult::Acts { .. } => "acts",
            SpanResult::NoTable => "no_table",
            SpanResult::Lost => "lost",
        };
        span.record("outcome", outcome);
        span.record("took_ms", millis(self.took));
        match (&self.what, &self.how) {
            (
                SpanSubject::View(awaited),
                SpanResult::Installed { number, members, elder, elder_name },
            ) => {
                if number != awaited {
                    span.record("view", number.0);
                }
                span.record("members", members);
                span.record("elder", display(elder));
                info!(
                    target: "elderlock", parent: span, view = number.0, members, %elder,
                    %elder_name, "view"
                );
            }
            (SpanSubject::Epoch { service, epoch, .. }, SpanResult::Acts { holds, waits, by }) => {
                span.record("holds", holds);
                span.record("waits", waits);
                let ActingMember { name, addr, process } = by;
                info!(
                    target: "elderlock", parent: span, %service, %epoch, %name, %addr, %process,
                    "grantor"
                );
            }
            _ => {}
        }
    }
}

/// One span. Its opening and its closing are reported after different turns, maybe by two threads:
/// then the closing may be reported first.
#[derive(Default)]
pub(crate) struct SpanHandle(Mutex<SpanState>);

#[derive(Default)]
enum SpanState {
    #[default]
    Ahead,
    Open(Span),
    /// The span ended before it was opened.
    Over(SpanEnd),
}

impl SpanHandle {
    fn open(&self, span: Span) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let SpanState::Over(ending) = std::mem::take(&mut *state) {
            drop(state);
            ending.tell(&span);
        } else {
            *state = SpanState::Open(span);
        }
    }

    fn close(&self, ending: SpanEnd) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let SpanState::Open(span) = std::mem::take(&mut *state) {
            drop(state);
            ending.tell(&span);
        } else {
            *state = SpanState::Over(ending);
        }
    }
}

/// The activities under way at a member. They are derived from the core's output: the messages with
/// which each begins, and the events with which it ends. Empty without a subscriber.
#[derive(Default)]
pub(crate) struct SpanTracker {
    view: Option<OpenSpan>,
    epochs: BTreeMap<ServiceName, OpenSpan>,
}

struct OpenSpan {
    what: SpanSubject,
    since: Time,
    course: Arc<SpanHandle>,
}

impl OpenSpan {
    fn new(what: SpanSubject, since: Time, notes: &mut Vec<TelemetryNote>) -> OpenSpan {
        let course = Arc::<SpanHandle>::default();
        notes.push(TelemetryNote::Opens { course: course.clone(), what: what.clone() });
        OpenSpan { what, since, course }
    }

    fn ends(self, how: SpanResult, now: Time) -> TelemetryNote {
        let ending = SpanEnd { what: self.what, took: now.since(self.since), how };
        TelemetryNote::Closes { course: Some(self.course), ending }
    }

    fn is_of(&self, other: Epoch) -> bool {
        matches!(self.what, SpanSubject::Epoch { epoch, .. } if epoch == other)
    }

    fn is_in(&self, other: Epoch, doing: GrantorState) -> bool {
        matches!(
            self.what,
            SpanSubject::Epoch { epoch, state, .. } if epoch == other && state == doing
        )
    }

    /// Ends a span that another transfer, another recovery or another epoch has replaced.
    fn makes_way(self, other: Epoch, now: Time) -> TelemetryNote {
        let how = if self.is_of(other) { SpanResult::NoTable } else { SpanResult::Lost };
        self.ends(how, now)
    }
}

impl SpanTracker {
    /// Notes a packet that `node` has just sent.
    pub(crate) fn sent(
        &mut self,
        packet: &Packet,
        node: &Node,
        now: Time,
        notes: &mut Vec<TelemetryNote>,
    ) {
        if !level_enabled!(Level::INFO) {
            return;
        }
        // A message by a detour is also sent on the direct path, and is seen there. A relayed
        // message belongs to another member.
        match packet {
            // A pre-vote binds no voter and may have no effect. Each of these notices is followed
            // by another view, or by the end of this membership.
            Packet::Notice(notice) => {
                if let Notice::Prepare { instance, .. }
                | Notice::Promise { instance, .. }
                | Notice::Accept { instance, .. }
                | Notice::Accepted { instance, .. } = &**notice
                {
                    self.view.get_or_insert_with(|| {
                        OpenSpan::new(SpanSubject::View(*instance), now, notes)
                    });
                }
            }
            Packet::Linked {
                message: Message::Grantor(GrantorMessage::RequestTable { service, epoch, .. }),
                ..
            } => {
                self.begin(service, *epoch, GrantorState::Receiving, (node, now), notes);
            }
            Packet::Linked {
                message: Message::Client(ClientMessage::Recover { service, epoch, .. }),
                ..
            } => {
                self.begin(service, *epoch, GrantorState::Recovering, (node, now), notes);
            }
            _ => {}
        }
    }

    /// Begins the span of an epoch, if this message begins it. The same message is sent to many
    /// members and repeated, also when the epoch is over. A grantor that acts also sends it to the
    /// members in a transferred table.
    fn begin(
        &mut self,
        service: &ServiceName,
        epoch: Epoch,
        state: GrantorState,
        (node, now): (&Node, Time),
        notes: &mut Vec<TelemetryNote>,
    ) {
        let is_known = self.epochs.get(service).is_some_and(|begun| begun.is_in(epoch, state));
        if is_known || node.load(service).is_some() {
            return;
        }
        if node.grantors().any(|(name, own, doing)| (name, own, doing) == (service, epoch, state)) {
            if let Some(before) = self.epochs.remove(service) {
                notes.push(before.makes_way(epoch, now));
            }
            let what = SpanSubject::Epoch { service: service.clone(), epoch, state };
            self.epochs.insert(service.clone(), OpenSpan::new(what, now, notes));
        }
    }

    /// Notes an event that `node`, the core of `me`, has just reported.
    pub(crate) fn said(
        &mut self,
        event: &Event,
        (me, node): (&MemberInfo, &Node),
        now: Time,
        notes: &mut Vec<TelemetryNote>,
    ) {
        match event {
            Event::ViewInstalled(view) => {
                let (number, elder) = (view.number, view.elder());
                let how = SpanResult::Installed {
                    number,
                    members: view.members.len(),
                    elder: elder.process,
                    elder_name: elder.name.clone(),
                };
                notes.push(match self.view.take() {
                    Some(begun) => begun.ends(how, now),
                    None => at_once(SpanSubject::View(number), Duration::ZERO, how),
                });
            }
            Event::BecameGrantor { service, epoch } => {
                // A grantor that ended in the step in which it began is already gone.
                let Some(load) = node.load(service).filter(|load| load.epoch == *epoch) else {
                    return;
                };
                let by = ActingMember::new(me);
                let begun = self.epochs.remove(service);
                let Some((state, since)) = load.way else {
                    notes.extend(begun.map(|begun| begun.makes_way(*epoch, now)));
                    let (service, epoch) = (service.clone(), *epoch);
                    return notes.push(TelemetryNote::Grants { service, epoch, by });
                };
                let how = SpanResult::Acts { holds: load.holds, waits: load.waits, by };
                match begun {
                    Some(begun) if begun.is_in(*epoch, state) => notes.push(begun.ends(how, now)),
                    begun => {
                        notes.extend(begun.map(|begun| begun.makes_way(*epoch, now)));
                        let what =
                            SpanSubject::Epoch { service: service.clone(), epoch: *epoch, state };
                        notes.push(at_once(what, now.since(since), how));
                    }
                }
            }
            Event::NoLongerGrantor { service, epoch } => {
                notes.push(TelemetryNote::GrantsNoMore { service: service.clone(), epoch: *epoch });
            }
            Event::GrantorAborted { service, epoch }
                if self.epochs.get(service).is_some_and(|begun| begun.is_of(*epoch)) =>
            {
                notes.extend(
                    self.epochs.remove(service).map(|begun| begun.ends(SpanResult::Lost, now)),
                );
            }
            _ => {}
        }
    }

    /// Ends all spans: the member, or its incarnation, is over.
    pub(crate) fn over(&mut self, now: Time, notes: &mut Vec<TelemetryNote>) {
        let SpanTracker { view, epochs } = std::mem::take(self);
        notes.extend(
            view.into_iter()
                .chain(epochs.into_values())
                .map(|begun| begun.ends(SpanResult::Lost, now)),
        );
    }
}

/// Reports an activity whose beginning was not seen: it began and ended in one step, or there was
/// no subscriber then.
fn at_once(what: SpanSubject, took: Duration, how: SpanResult) -> TelemetryNote {
    TelemetryNote::Closes { course: None, ending: SpanEnd { what, took, how } }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::message::Ballot;
    use crate::protocol::{Config, Slot, Timing};
    use tracing::span::{Attributes, Id, Record};
    use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};

    /// How many spans have begun and ended, and how many events were reported.
    #[derive(Clone, Default)]
    struct SpanTally(Arc<Mutex<[usize; 3]>>);

    impl SpanTally {
        fn add(&self, index: usize) {
            self.0.lock().unwrap_or_else(PoisonError::into_inner)[index] += 1;
        }

        fn seen(&self) -> [usize; 3] {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner)
        }
    }

    impl<S: tracing::Subscriber> Layer<S> for SpanTally {
        fn on_new_span(&self, _: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
            self.add(0);
        }

        fn on_record(&self, _: &Id, _: &Record<'_>, _: Context<'_, S>) {}

        fn on_close(&self, _: Id, _: Context<'_, S>) {
            self.add(1);
        }

        fn on_event(&self, _: &tracing::Event<'_>, _: Context<'_, S>) {
            self.add(2);
        }
    }

    fn ending() -> SpanEnd {
        let how = SpanResult::Installed {
            number: ViewNumber(2),
            members: 1,
            elder: ProcessId(1),
            elder_name: MemberName::new("pod-0").expect("a good name"),
        };
        SpanEnd { what: SpanSubject::View(ViewNumber(2)), took: Duration::ZERO, how }
    }

    /// This is one test, because levels are those of the whole process: no other test of it may
    /// have a subscriber.
    #[test]
    fn without_a_subscriber_nothing_is_kept_and_otherwise_a_span_ends_once() {
        let addr = "127.0.0.1:1".parse().expect("an address");
        let me = MemberInfo::new(ProcessId(1), addr);
        let node = Node::new(Config::new(me, Timing::fast()), Time::ZERO);
        let ballot = Ballot { round: 0, process: ProcessId(1) };
        let vote = Packet::from(Notice::Accepted { instance: ViewNumber(2), ballot });
        let (mut watch, mut notes) = (SpanTracker::default(), Vec::new());
        watch.sent(&vote, &node, Time::ZERO, &mut notes);
        assert!(watch.view.is_none() && notes.is_empty(), "no receiver listens");

        let tally = SpanTally::default();
        let _listens =
            tracing::subscriber::set_default(tracing_subscriber::registry().with(tally.clone()));
        watch.sent(&vote, &node, Time::ZERO, &mut notes);
        watch.sent(&vote, &node, Time::ZERO, &mut notes);
        assert!(watch.view.is_some() && notes.len() == 1, "said again it is the same one");
        watch.over(clock::now(), &mut notes);
        assert!(watch.view.is_none() && notes.len() == 2);
        let service = ServiceName::new("stock").expect("a good name");
        let message = Message::Client(ClientMessage::Recover {
            service,
            epoch: Epoch(Token::new(Slot(2), 1)),
            by_part: true,
        });
        let late = Packet::Linked { view: ViewNumber(2), seq: 1, ack: 0, message };
        watch.sent(&late, &node, Time::ZERO, &mut notes);
        assert!(
            watch.epochs.is_empty() && notes.len() == 2,
            "sent again after the end of its epoch"
        );
        notes.pop().expect("there are two").tell();
        assert_eq!(tally.seen(), [0, 0, 0], "it waits for its beginning");
        notes.pop().expect("there are two").tell();
        assert_eq!(tally.seen(), [1, 1, 0]);

        let course = SpanHandle::default();
        course.open(ending().what.span());
        assert_eq!(tally.seen(), [2, 1, 0]);
        course.close(ending());
        assert_eq!(tally.seen(), [2, 2, 1], "closed, although a reader keeps its course");
        let course = SpanHandle::default();
        course.close(ending());
        course.open(ending().what.span());
        assert_eq!(tally.seen(), [3, 3, 2], "told, although it was over before it began");
    }
}
