//! The counters and timers, and the times at which gauges are read: with the feature `metrics`.

use crate::protocol::{
    ClientMessage, GrantorMessage, LostReason, MemberMessage, Message, Node, Packet,
    RegistryMessage, ServiceName, Time,
};
use crate::runtime::clock;
use crate::runtime::net::counters::Counters;
use crate::runtime::sync::AtomicBool;
use metrics::{Counter, Gauge, Histogram, SharedString, Unit, counter, gauge, histogram};
use metrics::{describe_counter, describe_gauge, describe_histogram};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

/// The time between two readings of gauges and message counts: a collector reads less often.
const SAMPLE: Duration = Duration::from_millis(250);

/// The most services with a label of their own in this process. Further ones share [`OTHERS`]:
/// services that other members name must not create series without a limit.
const MAX_LABELS: usize = 1024;

/// The label of all further services. A member that names few services never uses it.
const OTHERS: &str = "(others)";

/// The outcomes of a wait, frequent ones first.
const WAITS: [&str; 11] = [
    "granted",
    "timed_out",
    "held",
    "cancelled",
    "undecided",
    "busy",
    "deadlock",
    "not_open",
    "destroyed",
    "expelled",
    "left",
];

/// The outcomes of a hold. All but the first are losses.
const HOLDS: [&str; 10] = [
    "released",
    "lease_ended",
    "suspended",
    "expelled",
    "superseded",
    "left",
    "destroyed",
    "revoked",
    "forked",
    "session_ended",
];

/// The frequent instruments of one handle of a service. Each is registered when it is first used,
/// and then kept. Rare events that alerts count have a series before the first event: a collector
/// sees no increase in a series that begins with 1.
#[derive(Clone)]
pub(crate) struct Meter(Arc<Instruments>);

struct Instruments {
    service: SharedString,
    grants: OnceLock<Counter>,
    releases: OnceLock<Counter>,
    losses: [OnceLock<Counter>; HOLDS.len()],
    waits: [OnceLock<Histogram>; WAITS.len()],
    holds: [OnceLock<Histogram>; HOLDS.len()],
}

impl Instruments {
    /// The counter of losses with this outcome of [`HOLDS`].
    fn losses_by(&self, at: usize) -> &Counter {
        self.losses[at].get_or_init(|| {
            let (service, reason) = (self.service.clone(), HOLDS[at]);
            counter!("elderlock_losses_total", "service" => service, "reason" => reason)
        })
    }
}

impl Meter {
    pub(crate) fn new(service: &ServiceName) -> Meter {
        Meter(Arc::new(Instruments {
            service: label(service),
            grants: OnceLock::new(),
            releases: OnceLock::new(),
            losses: Default::default(),
            waits: Default::default(),
            holds: Default::default(),
        }))
    }

    /// Begins the series of a service that is surely used. A question about a service makes none,
    /// since its name may be misspelt.
    pub(crate) fn begin_series(&self) {
        for changes in ["elderlock_transfers_total", "elderlock_recoveries_total"] {
            counter!(changes, "service" => self.0.service.clone()).increment(0);
        }
    }

    pub(crate) fn waited(&self, outcome: &'static str, took: Duration) {
        let this = &*self.0;
        let histogram = |outcome| {
            let service = this.service.clone();
            histogram!("elderlock_wait_seconds", "service" => service, "outcome" => outcome)
        };
        record(&WAITS, &this.waits, outcome, took, histogram);
        if outcome == "granted" {
            let grants = || {
                self.begin_series();
                (1..HOLDS.len()).for_each(|at| this.losses_by(at).increment(0));
                counter!("elderlock_grants_total", "service" => this.service.clone())
            };
            this.grants.get_or_init(grants).increment(1);
        }
    }

    fn held(&self, outcome: &'static str, took: Duration) {
        let this = &*self.0;
        let histogram = |outcome| {
            let service = this.service.clone();
            histogram!("elderlock_hold_seconds", "service" => service, "outcome" => outcome)
        };
        record(&HOLDS, &this.holds, outcome, took, histogram);
        if outcome == "released" {
            let releases =
                || counter!("elderlock_releases_total", "service" => this.service.clone());
            this.releases.get_or_init(releases).increment(1);
        } else if let Some(at) = index(&HOLDS, outcome) {
            this.losses_by(at).increment(1);
        }
    }

    // These instruments are used too rarely to be kept.

    pub(super) fn view_changed() {
        counter!("elderlock_view_changes_total").increment(1);
    }

    pub(super) fn transferred(service: &ServiceName, took: Duration) {
        counter!("elderlock_transfers_total", "service" => label(service)).increment(1);
        histogram!("elderlock_transfer_seconds", "service" => label(service)).record(took);
    }

    pub(super) fn recovered(service: &ServiceName, took: Duration) {
        counter!("elderlock_recoveries_total", "service" => label(service)).increment(1);
        histogram!("elderlock_recovery_seconds", "service" => label(service)).record(took);
    }
}

fn label(service: &ServiceName) -> SharedString {
    static LABELS: Mutex<Labels> = Mutex::new(Labels(BTreeSet::new()));
    LABELS.lock().unwrap_or_else(PoisonError::into_inner).of(service.as_str()).into()
}

/// The services whose names are labels.
struct Labels(BTreeSet<Arc<str>>);

impl Labels {
    fn of(&mut self, service: &str) -> Arc<str> {
        if let Some(known) = self.0.get(service) {
            return known.clone();
        }
        if self.0.len() >= MAX_LABELS {
            return OTHERS.into();
        }
        let label = Arc::<str>::from(service);
        self.0.insert(label.clone());
        label
    }
}

fn record(
    outcomes: &[&'static str],
    kept: &[OnceLock<Histogram>],
    outcome: &'static str,
    took: Duration,
    register: impl Fn(&'static str) -> Histogram,
) {
    if let Some(kept) = index(outcomes, outcome).and_then(|at| kept.get(at)) {
        kept.get_or_init(|| register(outcome)).record(took);
    }
}

fn index(outcomes: &[&'static str], outcome: &'static str) -> Option<usize> {
    let index = outcomes.iter().position(|known| *known == outcome);
    debug_assert!(index.is_some(), "the outcome {outcome} is in the list");
    index
}

/// The duration of one hold. Its end is recorded once, by the thread that notices it first.
pub(crate) struct HoldMeter {
    since: Time,
    /// Set when the caller takes the granted hold.
    meter: OnceLock<Meter>,
    over: AtomicBool,
}

impl HoldMeter {
    pub(crate) fn new() -> HoldMeter {
        HoldMeter { since: clock::now(), meter: OnceLock::new(), over: AtomicBool::new(false) }
    }

    /// Returns the time of the grant.
    pub(crate) fn since(&self) -> Option<Time> {
        Some(self.since)
    }

    /// Notes that the caller has the hold. A grant that no caller takes counts as a cancelled wait,
    /// and not as a hold.
    pub(crate) fn begin(&self, meter: &Meter) {
        let _ = self.meter.set(meter.clone());
    }

    /// Notes that the hold is over; `why` returns the reason if it was lost.
    pub(crate) fn end(&self, why: impl FnOnce() -> Option<LostReason>) {
        let Some(meter) = self.meter.get() else { return };
        if !self.over.swap(true, Ordering::AcqRel) {
            let took = clock::now().since(self.since);
            meter.held(why().map_or("released", LostReason::word), took);
        }
    }
}

/// Packets by kind, and by service, counted under the engine's lock and reported by the timer task.
#[derive(Default)]
pub(crate) struct PacketCounts {
    sent: PacketTally,
    received: PacketTally,
}

impl PacketCounts {
    pub(crate) fn new() -> PacketCounts {
        PacketCounts::default()
    }

    pub(crate) fn sent(&mut self, packet: &Packet) {
        self.sent.count(packet, service_of(packet));
    }

    /// `is_in_view`: this member is in a view, so that the network reads only the heads of
    /// strangers' packets. Without a view the packet may be a stranger's, whose names must not
    /// create series.
    pub(crate) fn received(&mut self, packet: &Packet, is_in_view: bool) {
        self.received.count(packet, service_of(packet).filter(|_| is_in_view));
    }
}

/// The counts by service. Packets without a service are under `None`.
#[derive(Default)]
struct PacketTally(BTreeMap<Option<ServiceName>, BTreeMap<&'static str, u64>>);

impl PacketTally {
    fn count(&mut self, packet: &Packet, service: Option<&ServiceName>) {
        let kinds = self.0.entry(service.cloned()).or_default();
        *kinds.entry(packet.kind()).or_default() += 1;
    }
}

/// The service that a packet names.
fn service_of(packet: &Packet) -> Option<&ServiceName> {
    let message = match packet {
        Packet::Relay { packet, .. } => return service_of(packet),
        Packet::Linked { message, .. } => message,
        Packet::Notice(_)
        | Packet::Ack { .. }
        | Packet::Sealed { .. }
        | Packet::VoteSuccessor { .. } => return None,
    };
    match message {
        // The name of the service in a question, and in its answer, may be misspelt.
        Message::Member(MemberMessage::Inventory { .. })
        | Message::Registry(
            RegistryMessage::InventoryReply { .. } | RegistryMessage::FindService { .. },
        )
        | Message::Client(ClientMessage::QueryReply { .. }) => None,
        Message::Registry(RegistryMessage::FindGrantor { service, .. })
        | Message::Member(MemberMessage::GrantorIs { service, .. })
        | Message::Member(MemberMessage::NameGrantor { service, .. })
        | Message::Registry(RegistryMessage::Become { service, .. })
        | Message::Member(MemberMessage::Outbid { service, .. })
        | Message::Registry(RegistryMessage::Acts { service, .. })
        | Message::Registry(RegistryMessage::ProposeSuccessor { service, .. })
        | Message::Registry(RegistryMessage::Vacant { service, .. })
        | Message::Registry(RegistryMessage::Decline { service, .. })
        | Message::Member(MemberMessage::SuccessorDeclined { service, .. })
        | Message::Grantor(GrantorMessage::RequestTable { service, .. })
        | Message::Grantor(GrantorMessage::TableChunk { service, .. })
        | Message::Grantor(GrantorMessage::NoTable { service, .. })
        | Message::Client(ClientMessage::Deposed { service, .. })
        | Message::Registry(RegistryMessage::MoreTokens { service, .. })
        | Message::Member(MemberMessage::Tokens { service, .. })
        | Message::Grantor(GrantorMessage::RequestLock { service, .. })
        | Message::Client(ClientMessage::Queued { service, .. })
        | Message::Client(ClientMessage::Grant { service, .. })
        | Message::Client(ClientMessage::Refuse { service, .. })
        | Message::Client(ClientMessage::NotGrantor { service, .. })
        | Message::Grantor(GrantorMessage::Release { service, .. })
        | Message::Client(ClientMessage::Recover { service, .. })
        | Message::Grantor(GrantorMessage::Report { service, .. })
        | Message::Client(ClientMessage::Supersede { service, .. })
        | Message::Grantor(GrantorMessage::ConfirmDestroy { service, .. })
        | Message::Client(ClientMessage::DestroyConfirmed { service, .. })
        | Message::Client(ClientMessage::DestroyUnconfirmed { service, .. })
        | Message::Grantor(GrantorMessage::Reduce { service, .. })
        | Message::Grantor(GrantorMessage::Upgrade { service, .. })
        | Message::Client(ClientMessage::Upgraded { service, .. })
        | Message::Grantor(GrantorMessage::Write { service, .. })
        | Message::Client(ClientMessage::Value { service, .. })
        | Message::Grantor(GrantorMessage::Query { service, .. })
        | Message::Grantor(GrantorMessage::ProbeWait { service, .. })
        | Message::Client(ClientMessage::AskHolder { service, .. })
        | Message::Client(ClientMessage::HolderReply { service, .. })
        | Message::Client(ClientMessage::ProbeHold { service, .. })
        | Message::Grantor(GrantorMessage::KeepInUse { service, .. })
        | Message::Grantor(GrantorMessage::CopyTable { service, .. })
        | Message::Grantor(GrantorMessage::CopyPart { service, .. })
        | Message::Grantor(GrantorMessage::NoCopy { service, .. })
        | Message::Grantor(GrantorMessage::OfferCopy { service, .. })
        | Message::Grantor(GrantorMessage::TableRest { service, .. })
        | Message::Client(
            ClientMessage::Recall { service, .. } | ClientMessage::ReportTaken { service, .. },
        )
        | Message::Client(ClientMessage::RequestRevocation { service, .. })
        | Message::Client(ClientMessage::RevocationReply { service, .. }) => Some(service),
    }
}

/// The readings of one instant.
pub(crate) struct Sample {
    /// The gauges of each service that is granted here, or of which this member keeps locks. They
    /// are: whether it is granted here, holds, waits, kept locks, kept locks in use.
    loads: BTreeMap<ServiceName, [f64; 5]>,
    /// The gauges of the member, in the order of [`MEMBER_GAUGES`].
    member: [f64; MEMBER_GAUGES.len()],
    packet_counts: PacketCounts,
}

/// The gauges of the member, without labels.
const MEMBER_GAUGES: [&str; 4] = [
    "elderlock_connected",
    "elderlock_is_elder",
    "elderlock_view_members",
    "elderlock_suspected_members",
];

/// Reports the periodic readings. It belongs to the timer task, so each report is newer than the
/// one before. When that task ends, in whatever way, its gauges return to 0.
pub(crate) struct Sampler {
    due: Time,
    services: BTreeMap<ServiceName, [GaugeShare; 5]>,
    member: [GaugeShare; MEMBER_GAUGES.len()],
    sent: CounterFamily,
    received: CounterFamily,
    /// The network's counters, as last reported.
    reported: Counters,
}

impl Sampler {
    pub(crate) fn new() -> Sampler {
        describe();
        Sampler {
            due: Time::ZERO,
            services: BTreeMap::new(),
            member: MEMBER_GAUGES.map(|name| GaugeShare::new(gauge!(name))),
            sent: CounterFamily::new("elderlock_messages_sent_total"),
            received: CounterFamily::new("elderlock_messages_received_total"),
            reported: Counters::default(),
        }
    }

    /// Returns the time at which the gauges are read next.
    pub(crate) fn due(&self) -> Time {
        self.due
    }

    pub(crate) fn is_due(&self, now: Time) -> bool {
        now >= self.due
    }

    /// Reads the gauges, under the engine's lock.
    pub(crate) fn read(
        node: &Node,
        is_connected: bool,
        packet_counts: &mut PacketCounts,
        now: Time,
    ) -> Sample {
        let granted = node.loads().map(|(service, load)| {
            (service.clone(), [1.0, load.holds as f64, load.waits as f64, 0.0, 0.0])
        });
        let mut loads: BTreeMap<ServiceName, [f64; 5]> = granted.collect();
        for (service, counts) in node.kept_counts() {
            let [.., kept, in_use] = loads.entry(service.clone()).or_default();
            [*kept, *in_use] = counts.map(|count| count as f64);
        }
        let member = [
            f64::from(is_connected),
            f64::from(node.is_elder()),
            node.view().map_or(0, |view| view.members.len()) as f64,
            node.sizes(now).suspected as f64,
        ];
        Sample { loads, member, packet_counts: std::mem::take(packet_counts) }
    }

    /// Reports a sample, and the input that was refused since the last one.
    pub(crate) fn tell(&mut self, sample: Sample, counters: Counters, now: Time) {
        let Sample { loads, member, packet_counts } = sample;
        self.member.iter_mut().zip(member).for_each(|(dial, value)| dial.show(value));
        for (service, dials) in &mut self.services {
            if !loads.contains_key(service) {
                dials.iter_mut().for_each(|dial| dial.show(0.0));
            }
        }
        for (service, values) in loads {
            let dials = self.services.entry(service).or_insert_with_key(|service| {
                [
                    gauge!("elderlock_is_grantor", "service" => label(service)),
                    gauge!("elderlock_held", "service" => label(service)),
                    gauge!("elderlock_queue_depth", "service" => label(service)),
                    gauge!("elderlock_kept", "service" => label(service)),
                    gauge!("elderlock_kept_in_use", "service" => label(service)),
                ]
                .map(GaugeShare::new)
            });
            dials.iter_mut().zip(values).for_each(|(dial, value)| dial.show(value));
        }
        self.sent.add(packet_counts.sent);
        self.received.add(packet_counts.received);
        let before = self.reported.refused();
        for ((reason, count), (_, before)) in counters.refused().into_iter().zip(before) {
            if count > before {
                counter!("elderlock_refused_total", "reason" => reason).increment(count - before);
            }
        }
        self.reported = counters;
        self.due = now + SAMPLE;
    }
}

/// One metric, with a counter for each service and kind.
struct CounterFamily {
    name: &'static str,
    kept: BTreeMap<Option<SharedString>, BTreeMap<&'static str, Counter>>,
}

impl CounterFamily {
    fn new(name: &'static str) -> CounterFamily {
        CounterFamily { name, kept: BTreeMap::new() }
    }

    fn add(&mut self, tally: PacketTally) {
        let name = self.name;
        for (service, counts) in tally.0 {
            let label = service.as_ref().map(label);
            let kept = self.kept.entry(label.clone()).or_default();
            for (kind, count) in counts {
                let counter = || match &label {
                    Some(service) => counter!(name, "service" => service.clone(), "kind" => kind),
                    None => counter!(name, "kind" => kind),
                };
                kept.entry(kind).or_insert_with(counter).increment(count);
            }
        }
    }
}

/// One member's part of a gauge. The parts of several members in one process add up, so the gauge
/// is changed by differences and never set.
struct GaugeShare {
    gauge: Gauge,
    shown: f64,
}

impl GaugeShare {
    fn new(gauge: Gauge) -> GaugeShare {
        GaugeShare { gauge, shown: 0.0 }
    }

    fn show(&mut self, value: f64) {
        if value > self.shown {
            self.gauge.increment(value - self.shown);
        } else if value < self.shown {
            self.gauge.decrement(self.shown - value);
        }
        self.shown = value;
    }
}

impl Drop for GaugeShare {
    fn drop(&mut self) {
        self.show(0.0);
    }
}

fn describe() {
    let seconds = Unit::Seconds;
    describe_histogram!("elderlock_wait_seconds", seconds, "From asking for a lock to the answer.");
    describe_histogram!("elderlock_hold_seconds", seconds, "From the grant of a lock to its end.");
    describe_histogram!(
        "elderlock_recovery_seconds",
        seconds,
        "From asking all members to beginning to grant."
    );
    describe_histogram!(
        "elderlock_transfer_seconds",
        seconds,
        "From asking for a table to beginning to grant."
    );
    let count = Unit::Count;
    describe_counter!(
        "elderlock_grants_total",
        count,
        "Requests of this member that were granted."
    );
    describe_counter!(
        "elderlock_releases_total",
        count,
        "Holds of this member that it released in time."
    );
    describe_counter!(
        "elderlock_recoveries_total",
        count,
        "Grantors begun here by asking all members."
    );
    describe_counter!(
        "elderlock_transfers_total",
        count,
        "Grantors begun here with a predecessor's table."
    );
    describe_counter!("elderlock_messages_sent_total", count, "Packets sent, by kind.");
    describe_counter!("elderlock_messages_received_total", count, "Packets received, by kind.");
    describe_counter!("elderlock_view_changes_total", count, "Views installed.");
    describe_gauge!(
        "elderlock_queue_depth",
        count,
        "Requests that wait at this member's grantors."
    );
    describe_gauge!("elderlock_held", count, "Requests that hold locks of this member's grantors.");
    describe_gauge!("elderlock_kept", count, "Locks that this member keeps, in use or free.");
    describe_gauge!("elderlock_kept_in_use", count, "Kept locks that are in use.");
    describe_counter!("elderlock_losses_total", count, "Holds of this member that it lost.");
    describe_counter!("elderlock_refused_total", count, "Input that the network refused.");
    describe_gauge!("elderlock_is_grantor", count, "Whether the member grants the service.");
    describe_gauge!("elderlock_connected", count, "Whether the member's lease runs.");
    describe_gauge!("elderlock_is_elder", count, "Whether the member is the elder.");
    describe_gauge!("elderlock_view_members", count, "Members of the present view.");
    describe_gauge!("elderlock_suspected_members", count, "Members that a hint calls unreachable.");
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ViewNumber;

    #[test]
    fn names_of_services_make_a_bounded_number_of_labels() {
        let mut labels = Labels(BTreeSet::new());
        let given: BTreeSet<_> =
            (0..3 * MAX_LABELS).map(|number| labels.of(&format!("service-{number}"))).collect();
        assert_eq!(given.len(), MAX_LABELS + 1);
        assert_eq!(&*labels.of("service-0"), "service-0", "an early one keeps its label");
        assert_eq!(&*labels.of("one more"), OTHERS);
    }
    /// A process without a view reads whole packets of strangers.
    #[test]
    fn a_packet_in_no_view_counts_for_no_service() {
        let service = ServiceName::new("stock").expect("a good name");
        let message = Message::Registry(RegistryMessage::FindGrantor {
            service: service.clone(),
            heard: None,
        });
        let packet = Packet::Linked { view: ViewNumber(1), seq: 1, ack: 0, message };
        let mut counts = PacketCounts::new();
        counts.received(&packet, false);
        assert_eq!(counts.received.0.keys().collect::<Vec<_>>(), [&None]);
        counts.received(&packet, true);
        assert_eq!(counts.received.0.keys().collect::<Vec<_>>(), [&None, &Some(service)]);
    }
}
