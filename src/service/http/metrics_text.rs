//! The state of a member as Prometheus text.

use super::super::member::Member;
use crate::runtime::engine::ConnectionStatus;
use std::fmt::Write as _;

/// Of each metric: the lines of its help, its type, and its samples.
pub(super) fn write(member: &Member) -> String {
    let status = member.status();
    let mut text = String::new();
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
        head(&mut text, name, "gauge", help);
        let _ = writeln!(text, "elderlock_{name} {value}");
    }
    if let Some(left) = member.lease_left() {
        head(&mut text, "lease_left_seconds", "gauge", "Until the member lease ends.");
        let _ = writeln!(text, "elderlock_lease_left_seconds {}", left.as_secs_f64());
    }
    type Count = fn(&crate::ServiceStatus) -> u64;
    let of_services: [(&str, &str, Count); 5] = [
        ("is_grantor", "Whether the member grants the service.", |service| {
            u64::from(service.granting == Some(crate::GrantorState::Acting))
        }),
        ("held", "Requests of all members that hold, at the grantor.", |service| {
            service.locks.iter().map(|lock| lock.holders as u64).sum()
        }),
        ("queue_depth", "Requests of all members that wait, at the grantor.", |service| {
            service.locks.iter().map(|lock| lock.waiters as u64).sum()
        }),
        ("held_here", "Holds of this member.", |service| service.held_here as u64),
        ("waiting_here", "Requests of this member that wait.", |service| {
            service.waiting_here as u64
        }),
    ];
    for (name, help, count) in of_services {
        head(&mut text, name, "gauge", help);
        for service in &status.services {
            let label = label(service.service.as_str());
            let _ = writeln!(text, "elderlock_{name}{{service=\"{label}\"}} {}", count(service));
        }
    }
    let counters = serde_json::to_value(member.counters()).unwrap_or_default();
    head(
        &mut text,
        "network_total",
        "counter",
        "Frames, bytes and datagrams, and refused input, by kind.",
    );
    for (name, value) in counters.as_object().into_iter().flatten() {
        let _ = writeln!(text, "elderlock_network_total{{kind=\"{name}\"}} {value}");
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP elderlock_{name} {help}\n# TYPE elderlock_{name} {kind}");
}

/// A label's value: the three characters that the format escapes.
fn label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
