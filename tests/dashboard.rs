//! The dashboard and the alerts of `deploy`, checked against `/metrics` of a member that has done
//! most things once. The cases of the alerts hold, and each wrong rule breaks one of them.
#![cfg(all(unix, feature = "http", feature = "metrics"))]

#[path = "support/leases.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod leases;
#[path = "support/ports.rs"]
mod ports;

use elderlock::blocking::{self, Block};
use elderlock::http::HttpView;
use elderlock::telemetry::SECONDS_BUCKETS;
use elderlock::{LockService, Member};
use leases::Leases;
use metrics_exporter_prometheus::PrometheusBuilder;
use serde_json::Value;
use std::collections::BTreeSet;
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A guard against hangs, longer than any step takes on a busy machine.
const HANG: Duration = Duration::from_secs(120);
const MS: Duration = Duration::from_millis(1);

/// The content of `/metrics` at this address.
fn metrics(addr: SocketAddr) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("a time");
    let request = format!("GET /metrics HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    body.to_owned()
}

/// Waits until `/metrics` has this line.
fn says(addr: SocketAddr, line: &str) {
    let start = Instant::now();
    while !metrics(addr).lines().any(|found| found == line) {
        assert!(start.elapsed() < HANG, "{line} is not in {}", metrics(addr));
        std::thread::sleep(20 * MS);
    }
}

fn stock(member: &Member) -> LockService {
    member.lock_service("stock").block().expect("a good name")
}

/// The metrics of one of three members, after grants, waits, losses, a transfer, a recovery and a
/// refusal. The members share a process, and so an exporter.
fn metrics_of_a_busy_member() -> String {
    let exporter = PrometheusBuilder::new().set_buckets(&SECONDS_BUCKETS).expect("there are some");
    let exporter = exporter.install_recorder().expect("no other is installed");
    let addrs: Vec<String> = ports::free(3).iter().map(ToString::to_string).collect();
    let builder = |at: usize| {
        let builder = Member::builder("shop").bind(&addrs[at]).seeds(&addrs);
        builder.timing(Leases::Short.timing()).join_limit(HANG)
    };
    let runtimes = [(); 2].map(|()| Runtime::new().expect("a runtime"));
    let joins = [1, 2].map(|at| runtimes[at - 1].spawn(builder(at).join()));
    let member = blocking::join(builder(0)).expect("it joins");
    let [second, third] = joins.map(|join| join.block().expect("no panic").expect("it joins"));
    let view = HttpView::new(&member).exporter(move || exporter.render());
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = Runtime::new().expect("a runtime");
        let addr = "127.0.0.1:0".parse().expect("an address");
        runtime.block_on(view.serve(addr, move |addr| tell.send(addr).expect("it waits")))
    });
    let addr = told.recv_timeout(HANG).expect("it listens");
    says(addr, "elderlock_view_members 9");

    // The second member grants first, then the shown member, then the third member, which dies.
    drop(stock(&second).lock("a").block().expect("it is free"));
    let locks = stock(&member);
    let held = locks.lock("a").block().expect("it is free");
    // A collector counts no increase if a series begins with 1, so each begins with 0.
    for rare in [
        "elderlock_losses_total{service=\"stock\",reason=\"suspended\"} 0",
        "elderlock_recoveries_total{service=\"stock\"} 0",
        "elderlock_transfers_total{service=\"stock\"} 0",
    ] {
        says(addr, rare);
    }
    locks.lock("a").wait(20 * MS).block().expect_err("it is held");
    let leased = locks.lock("b").lease(20 * MS).block().expect("it is free");
    leased.lost().block();
    drop(leased);
    locks.become_grantor().block().expect("no other wants to");
    says(addr, "elderlock_transfers_total{service=\"stock\"} 1");
    stock(&third).become_grantor().block().expect("no other wants to");
    let [_alive, ended] = runtimes;
    // The runtime is dropped first; otherwise the member could still transfer its table.
    drop(ended);
    drop(third);
    drop(locks.lock("c").block().expect("it is free"));
    says(addr, "elderlock_recoveries_total{service=\"stock\"} 1");
    held.release().block().expect("it is held");
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
    socket.send_to(b"no datagram of a member", member.addr()).expect("it is sent");
    says(addr, "elderlock_refused_total{reason=\"garbage\"} 1");
    metrics(addr)
}

/// The metrics that a query names.
fn named(query: &str) -> Vec<&str> {
    query
        .split(|char: char| !char.is_ascii_alphanumeric() && char != '_')
        .filter(|word| word.starts_with("elderlock_"))
        .collect()
}

/// The metrics that have a sample.
fn sampled(text: &str) -> BTreeSet<&str> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split(['{', ' ']).next()).collect()
}

/// The queries in this value, of panels and of variables.
fn queries<'a>(value: &'a Value, found: &mut Vec<&'a str>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                match value.as_str() {
                    Some(query) if name == "expr" || name == "definition" => found.push(query),
                    _ => queries(value, found),
                }
            }
        }
        Value::Array(values) => values.iter().for_each(|value| queries(value, found)),
        _ => {}
    }
}

fn deployed(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Runs promtool with this standard input. `None` if promtool is not installed.
fn promtool(args: &[&str], input: &str) -> Option<(bool, String)> {
    let mut command = Command::new("promtool");
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().ok()?;
    child.stdin.take().expect("it is piped").write_all(input.as_bytes()).expect("it reads");
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    Some((output.status.success() && !said.contains("FAILED"), said))
}

#[test]
fn every_metric_of_the_dashboard_and_the_alerts_is_in_the_metrics_of_a_busy_member() {
    let text = metrics_of_a_busy_member();
    let sampled = sampled(&text);
    let dashboard = serde_json::from_str(&deployed("grafana.json")).expect("it is JSON");
    let mut queries_found = Vec::new();
    queries(&dashboard, &mut queries_found);
    assert!(queries_found.len() > 20, "{queries_found:?}");
    let alerts = deployed("alerts.yaml");
    let missing: Vec<&str> = queries_found
        .iter()
        .copied()
        .chain([alerts.as_str()])
        .flat_map(named)
        .filter(|name| !sampled.contains(name))
        .collect();
    assert_eq!(missing, Vec::<&str>::new(), "{text}");

    let Some(checked) = promtool(&["check", "metrics"], &text) else {
        println!("skipped: promtool: it is not installed");
        return;
    };
    assert_eq!(checked, (true, String::new()), "{text}");
    // A collector refuses a metric that stands in the text twice.
    let twice = format!("{text}# TYPE elderlock_connected gauge\nelderlock_connected 1\n");
    assert!(!promtool(&["check", "metrics"], &twice).expect("it ran").0);

    // promtool accepts each query, with the variables of Grafana replaced.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let path = dir.join(format!("dashboard-{}.json", std::process::id()));
    let rules: Vec<Value> = queries_found
        .iter()
        .filter(|query| !query.starts_with("label_values("))
        .enumerate()
        .map(|(at, query)| {
            let query = query.replace("$__rate_interval", "5m");
            serde_json::json!({ "record": format!("panel:{at}"), "expr": query })
        })
        .collect();
    let rules = serde_json::json!({ "groups": [{ "name": "dashboard", "rules": rules }] });
    std::fs::write(&path, rules.to_string()).expect("it is writable");
    let checked = promtool(&["check", "rules", path.to_str().expect("text")], "").expect("it ran");
    std::fs::remove_file(&path).expect("it was written");
    assert!(checked.0, "{}", checked.1);
    let alerts = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/alerts.yaml");
    let checked = promtool(&["check", "rules", alerts.to_str().expect("text")], "");
    assert!(checked.as_ref().is_some_and(|(is_right, _)| *is_right), "{checked:?}");
}

/// Wrong changes of the rules. At least one case of `deploy/alerts-test.yaml` has to fail under
/// each of them. Without `by (job)`, a second cluster beside the first hides a fault or makes one
/// up.
const WRONG_RULES: [(&str, &str); 18] = [
    ("expr: absent(elderlock_connected)", "expr: absent(elderlock_is_here)"),
    ("elderlock_connected == 0", "elderlock_connected == 2"),
    ("elderlock_is_elder * elderlock_connected", "elderlock_is_elder"),
    ("sum by (job) (elderlock_is_elder", "sum(elderlock_is_elder"),
    ("!= 1", "> 1"),
    ("!= 1", "< 1"),
    ("max by (job)", "max"),
    ("sum by (job, service, reason)", "sum by (service, reason)"),
    ("left|destroyed", "left"),
    ("sum by (job, service, le)", "sum by (service, le)"),
    ("{outcome=\"granted\"}", ""),
    ("sum by (job, service) (increase", "sum by (service) (increase"),
    ("> 3.5", "> 3"),
    ("> 3.5", "> 4.5"),
    ("sum by (job, reason)", "sum by (reason)"),
    ("for: 10m", "for: 8m"),
    ("sum by (job) (increase", "sum(increase"),
    ("{reason=\"other_lineage\"}", ""),
];

#[test]
fn each_alert_is_raised_by_its_cases_alone() {
    let (alerts, cases) = (deployed("alerts.yaml"), deployed("alerts-test.yaml"));
    let names: Vec<&str> =
        alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")).collect();
    assert!(names.len() >= 8, "{names:?}");
    for name in names {
        assert!(cases.contains(&format!("alertname: {name}\n")), "{name} has no case");
    }

    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("deploy/alerts-test.yaml");
    let Some(checked) = promtool(&["test", "rules", file.to_str().expect("text")], "") else {
        println!("skipped: promtool: it is not installed");
        return;
    };
    assert!(checked.0, "{}", checked.1);

    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("alerts-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("it can be made");
    let file = dir.join("alerts-test.yaml");
    std::fs::write(&file, &cases).expect("it is writable");
    let passes = |rules: &str| {
        std::fs::write(dir.join("alerts.yaml"), rules).expect("it is writable");
        promtool(&["test", "rules", file.to_str().expect("text")], "").expect("it ran").0
    };
    assert!(passes(&alerts), "the copies are those files");
    for (right, wrong) in WRONG_RULES {
        let broken = alerts.replace(right, wrong);
        assert_ne!(broken, alerts, "{right} is not there");
        assert!(!passes(&broken), "no case refuses {wrong:?} in place of {right:?}");
    }
    std::fs::remove_dir_all(&dir).expect("it was made");
}

#[test]
fn a_query_of_a_metric_that_does_not_exist_is_found() {
    let query = "sum by (reason) (rate(elderlock_losses_total{service=~\"$service\"}[5m]))";
    assert_eq!(named(query), ["elderlock_losses_total"]);
    let text =
        "# TYPE elderlock_lost_total counter\nelderlock_lost_total{reason=\"left\"} 1\nup 1\n";
    assert_eq!(sampled(text), ["elderlock_lost_total", "up"].into());
}
