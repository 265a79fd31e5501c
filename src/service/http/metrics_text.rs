//! The state of a member as Prometheus text.

use super::super::member::Member;
use crate::runtime::engine::ConnectionStatus;
use std::collections::BTreeSet;
use std::fmt::Write as _;

/// Writes the lines of each metric: its help, its type, and its samples. The text of an exporter
/// comes first. If it has one of these metrics, the metric is not written again.
pub(super) fn write(member: &Member, exported: &str) -> String {
    let mut out = MetricsText::after(exported);
    let status = member.status();
    let is_connected = member.connection_status() == ConnectionStatus::Connected;
    let view = status.view.as_ref();
    let gauges = [
        ("connected", "Whether the member's lease runs.", f64::from(is_connected)),
        ("is_elder", "Whether the member is the elder.", f64::from(member.is_elder())),
        (
            "view_members",
            "Members of the present view, ghosts among them.",
            view.map_or(0, |view| view.members.len()) as f64,
        ),
        (
            "ghosts",
            "Members of the view that are gone, and whose leases are not over.",
            view.map_or(0, |view| view.members.iter().filter(|member| member.ghost).count()) as f64,
        ),
        (
            "suspected_members",
            "Members that a hint calls unreachable.",
            status.suspected.len() as f64,
        ),
    ];
    for (name, help, value) in gauges {
        out.family(name, "gauge", help, [(String::new(), value)]);
    }
    if let Some(left) = member.lease_left() {
        let left = left.as_secs_f64();
        let help = "Until the member lease ends.";
        out.family("lease_left_seconds", "gauge", help, [(String::new(), left)]);
    }
    type Count = fn(&crate::ServiceStatus) -> u64;
    let of_services: [(&str, &str, Count); 7] = [
        ("is_grantor", "Whether the member grants the service.", |service| {
            u64::from(service.granting == Some(crate::GrantorState::Acting))
        }),
        ("held", "Holders of all locks, at the grantor.", |service| {
            service.locks.iter().map(|lock| lock.holder_count as u64).sum()
        }),
        ("queue_depth", "Waiters for all locks, at the grantor.", |service| {
            service.locks.iter().map(|lock| lock.waiter_count as u64).sum()
        }),
        ("held_here", "Holds of this member.", |service| service.held_here as u64),
        ("waiting_here", "Requests of this member that wait.", |service| {
            service.waiting_here as u64
        }),
        ("kept", "Locks that this member keeps, in use or free.", |service| {
            service.kept_here as u64
        }),
        ("kept_in_use", "Kept locks that are in use.", |service| service.kept_in_use_here as u64),
    ];
    for (name, help, count) in of_services {
        let samples = status.services.iter().map(|service| {
            (format!("{{service=\"{}\"}}", label(service.service.as_str())), count(service) as f64)
        });
        out.family(name, "gauge", help, samples);
    }
    let counters = member.counters();
    let refused = counters.refused();
    let samples =
        refused.iter().map(|(reason, count)| (format!("{{reason=\"{reason}\"}}"), *count as f64));
    out.family("refused_total", "counter", "Input that the network refused, by reason.", samples);
    let counters = serde_json::to_value(counters).unwrap_or_default();
    let others = counters.as_object().into_iter().flatten().filter_map(|(kind, count)| {
        let is_refused = refused.iter().any(|(reason, _)| reason == kind);
        (!is_refused).then(|| (format!("{{kind=\"{kind}\"}}"), count.as_f64().unwrap_or_default()))
    });
    let help = "Frames, bytes, datagrams and polls, by kind.";
    out.family("network_total", "counter", help, others);
    out.text
}

/// The text, and the metrics that are in it.
struct MetricsText {
    text: String,
    names: BTreeSet<String>,
}

impl MetricsText {
    fn after(exported: &str) -> MetricsText {
        let types = exported.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let names = types.filter_map(|rest| rest.split(' ').next()).map(str::to_owned).collect();
        let mut text = exported.to_owned();
        if !text.is_empty() && !text.ends_with('\n') {
            text.push('\n');
        }
        MetricsText { text, names }
    }

    /// Writes a metric, unless the text has it already.
    fn family(
        &mut self,
        name: &str,
        kind: &str,
        help: &str,
        samples: impl IntoIterator<Item = (String, f64)>,
    ) {
        let name = format!("elderlock_{name}");
        if self.names.contains(&name) {
            return;
        }
        let _ = writeln!(self.text, "# HELP {name} {help}\n# TYPE {name} {kind}");
        for (labels, value) in samples {
            let _ = writeln!(self.text, "{name}{labels} {value}");
        }
    }
}

/// A label's value, with the three characters escaped that the format requires.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
