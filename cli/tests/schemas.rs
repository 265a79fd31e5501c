//! The JSON of each command, and of `/status.json`, fits its schema in `docs/schemas`. No schema
//! allows a field that it does not document.

#[path = "support/schemas.rs"]
mod schemas;

use elderlock::http::HttpView;
use elderlock::{LockService, Member};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);

async fn founded() -> (Member, LockService) {
    let builder = Member::builder("shop").bind("127.0.0.1:0").found();
    let member = builder.join().await.expect("it founds");
    let service = member.lock_service("stock\n").await.expect("a good name");
    (member, service)
}

/// The JSON that the command prints.
async fn printed(member: &Member, args: &[&str]) -> Value {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    let at = member.addr().to_string();
    command.env_clear().args(args).args(["--json", "--cluster", "shop", "--at", &at]);
    let run = tokio::task::spawn_blocking(move || command.output().expect("it can be started"));
    let output = tokio::time::timeout(HANG, run).await.expect("it ends").expect("no panic");
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {output:?}"))
}

/// The body of `/status.json`.
async fn served(member: &Member) -> Value {
    let (tell, told) = tokio::sync::oneshot::channel();
    let view = HttpView::new(member);
    let addr = "127.0.0.1:0".parse().expect("an address");
    let server = tokio::spawn(view.serve(addr, |addr| tell.send(addr).expect("it is awaited")));
    let addr = tokio::time::timeout(HANG, told).await.expect("no hang").expect("it listens");
    let mut stream = tokio::net::TcpStream::connect(addr).await.expect("it listens");
    let request = b"GET /status.json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    stream.write_all(request).await.expect("it reads");
    let mut text = String::new();
    let read = stream.read_to_string(&mut text);
    tokio::time::timeout(HANG, read).await.expect("it answers").expect("text");
    server.abort();
    serde_json::from_str(text.split_once("\r\n\r\n").expect("a head").1).expect("it is JSON")
}

async fn check_all(member: &Member, names: &[Option<&str>]) {
    schemas::check("status.json", &printed(member, &["status"]).await);
    schemas::check("members.json", &printed(member, &["members"]).await);
    schemas::check("http-status.json", &served(member).await);
    for more in [&[][..], &["--leases"]] {
        let held = printed(member, &[&["held", "stock\n"], more].concat()).await;
        schemas::check("held.json", &held);
        let holds = held["holds"].as_array().expect("a list");
        assert!(holds.iter().all(|hold| hold["lease_known"] == !more.is_empty()), "{held:#}");
    }
    for name in names {
        let what = name.unwrap_or("--suspension");
        let why = ["why", "--service", "stock\n", what];
        let value = printed(member, &why).await;
        assert_eq!(value["name"], json!(name.map(|name| name.escape_debug().to_string())));
        schemas::check("why.json", &value);
    }
}

/// Waits until the lock, or the suspension, has a waiter.
async fn waited_for(service: &LockService, name: Option<&str>) {
    let seen = async || match name {
        Some(name) => service.inspect(name).await.expect("a grantor answers").waiters.len(),
        None => service.inspect_suspension().await.expect("a grantor answers").waiters.len(),
    };
    let waited = async {
        while seen().await == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(HANG, waited).await.expect("it asks");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_json_of_each_command_has_the_documented_fields_and_no_others() {
    let (member, service) = founded().await;
    service.lock("a\n").await.expect("it is free").release().await.expect("it was held");
    check_all(&member, &[Some("a\n"), None]).await;

    let lock = service.lock("a\n").revocable().metadata("till 3").await.expect("it is free");
    let shares = [service.share("b").await.expect("free"), service.share("b").await.expect("so")];
    let pool = service.open("c", 3_u32.to_le_bytes()).await.expect("an object can be opened");
    let permits = service.permits("c", 2).await.expect("there are three");
    let waiter = service.share("a\n").owner(2).metadata("till 4").start();
    waited_for(&service, Some("a\n")).await;
    check_all(&member, &[Some("a\n"), Some("b"), Some("c")]).await;

    let leased = service.lock("d").lease(Duration::from_secs(60)).owner(5);
    let leased = leased.await.expect("it is free");
    let circle = service.lock("d").owner(7).start();
    let begin = service.lock("e").owner(7).await.expect("it is free");
    let closing = service.lock("e").owner(5).start();
    waited_for(&service, Some("e")).await;
    check_all(&member, &[Some("a\n"), Some("d")]).await;
    let why = printed(&member, &["why", "--service", "stock\n", "d"]).await;
    assert_eq!((&why["deadlock"], &why["chain_complete"]), (&json!(true), &json!(true)));
    let circles: Vec<_> = why["chain"].as_array().expect("a list").iter().collect();
    assert_eq!(circles.len(), 3, "{why:#}");
    assert_eq!(circles[2]["circle"], json!("deadlock"));
    assert!(why["holders"][0]["lease_left"].as_f64().is_some_and(|left| left <= 60.0), "{why:#}");
    drop((circle, closing, begin, leased));

    let suspending = service.suspend().owner(3).reason("stock-taking").start();
    waited_for(&service, None).await;
    check_all(&member, &[Some("a\n"), None]).await;
    drop((lock, shares, permits, pool, waiter));
    let suspension = suspending.await.expect("no lock is held");
    check_all(&member, &[None]).await;
    drop(suspension);
}

/// The paths of all values, each with the kind of its value.
fn kinds(value: &Value) -> BTreeSet<(String, &'static str)> {
    let below = |key: &str, part: &Value| {
        kinds(part).into_iter().map(|(at, kind)| (format!("/{key}{at}"), kind)).collect::<Vec<_>>()
    };
    let (kind, parts): (_, Vec<_>) = match value {
        Value::Null => ("null", Vec::new()),
        Value::Bool(_) => ("bool", Vec::new()),
        Value::Number(_) => ("number", Vec::new()),
        Value::String(_) => ("string", Vec::new()),
        // All elements of an array have the same form.
        Value::Array(parts) => ("array", parts.iter().flat_map(|part| below("-", part)).collect()),
        Value::Object(fields) => {
            ("object", fields.iter().flat_map(|(key, part)| below(key, part)).collect())
        }
    };
    parts.into_iter().chain([(String::new(), kind)]).collect()
}

/// The differences at the paths of the earlier value. Further paths are no difference.
fn changes(earlier: &Value, value: &Value) -> Vec<(String, &'static str)> {
    let (earlier, now) = (kinds(earlier), kinds(value));
    let is_known = |(place, _): &&(_, _)| earlier.iter().any(|(known, _)| known == place);
    let more: BTreeSet<_> = now.iter().filter(is_known).cloned().collect();
    earlier.symmetric_difference(&more).cloned().collect()
}

/// The recorded status was taken in the same situation. `UPDATE_RECORDED=1` records it again. The
/// record of a released version may only gain fields.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_has_each_field_that_its_version_had_when_it_was_recorded() {
    let (member, service) = founded().await;
    let _pool = service.open("c", 3_u32.to_le_bytes()).await.expect("an object can be opened");
    let _permits = service.permits("c", 2).owner(6).metadata("till 3").await.expect("two of three");
    let _lock = service.lock("a").owner(1).revocable().await.expect("it is free");
    let _waiter = service.share("a").owner(2).metadata("till 4").start();
    waited_for(&service, Some("a")).await;
    let _suspension = service.suspend().owner(3).reason("stock-taking").start();
    waited_for(&service, None).await;

    let status = printed(&member, &["status"]).await;
    let file = format!("tests/recorded/status-{}.json", status["version"]);
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
    if std::env::var_os("UPDATE_RECORDED").is_some() {
        std::fs::write(&file, format!("{status:#}\n")).expect("it can be written");
    }
    let recorded = std::fs::read_to_string(&file).expect("each version has a file");
    let recorded: Value = serde_json::from_str(&recorded).expect("it is JSON");
    assert_eq!(changes(&recorded, &status), [], "{status:#}");

    let changed = |pointer: &str, key: &str, value: Option<Value>| {
        let mut status = status.clone();
        let part = status.pointer_mut(pointer).and_then(Value::as_object_mut).expect("an object");
        match value {
            Some(value) => drop(part.insert(key.to_owned(), value)),
            None => drop(part.remove(key).expect("it was there")),
        }
        changes(&recorded, &status)
    };
    assert_eq!(changed("", "newer", Some(json!(7))), []);
    assert_ne!(changed("/view", "elder", None), []);
    assert_ne!(changed("/view", "number", Some(json!(1))), []);
    assert_ne!(changed("", "more_services", Some(Value::Null)), []);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_json_of_a_revocation_fits_its_schema() {
    let (member, service) = founded().await;
    let revoke = ["revoke", "--service", "stock\n", "--wait", "0s"];
    let reports = async |more: &[&str]| {
        let value = printed(&member, &[&revoke[..], more].concat()).await;
        schemas::check("revoke.json", &value);
        let reports = value["reports"].as_array().expect("a list");
        let words = reports.iter().map(|report| report["report"].as_str().expect("a word"));
        (words.map(str::to_owned).collect::<Vec<_>>(), value["complete"].clone())
    };
    service.lock("a\n").await.expect("it is free").release().await.expect("it was held");
    assert_eq!(reports(&["a\n"]).await, (vec!["not_held".to_owned()], json!(true)));
    let firm = service.lock("a\n").await.expect("it is free");
    assert_eq!(reports(&["a\n"]).await, (vec!["not_revocable".to_owned()], json!(false)));
    let refused = vec!["force_not_allowed".to_owned()];
    assert_eq!(reports(&["a\n", "--force"]).await, (refused, json!(false)));
    firm.release().await.expect("it is held");
    let soft = service.suspend().revocable().await.expect("no lock is held");
    let kept = ["told", "kept"].map(str::to_owned).to_vec();
    assert_eq!(reports(&["--suspension"]).await, (kept, json!(false)));
    let taken = ["told", "taken"].map(str::to_owned).to_vec();
    assert_eq!(reports(&["--suspension", "--force"]).await, (taken, json!(true)));
    assert!(soft.fence().is_err());
}

/// The verdict of the demo does not matter: a busy machine may be too slow for it.
#[cfg(unix)]
#[test]
fn the_json_of_the_demo_fits_its_schema() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    let output = command.args(["demo", "--seconds", "10", "--json"]).output().expect("it starts");
    let value = serde_json::from_slice(&output.stdout);
    schemas::check("demo.json", &value.unwrap_or_else(|error| panic!("{error}: {output:?}")));
}

#[test]
fn a_value_of_another_form_is_refused() {
    let process = "0123456789abcdef0123456789abcdef";
    let hold = json!({
        "name": "a", "addr": null, "process": process, "owner": null, "token": "7", "mode": "lock",
        "permits": null, "revocable": false, "metadata": "", "held_for": 1.5, "member": null,
        "lease_known": true, "lease_left": null,
    });
    let held = |key: &str, value: Value| {
        let mut hold = hold.clone();
        hold[key] = value;
        json!({ "version": 1, "service": "stock", "holds": [hold] })
    };
    schemas::check("held.json", &held("held_for", json!(1)));
    for (key, value) in [
        ("token", json!(7)),
        ("process", json!("01234567")),
        ("owner", json!(7)),
        ("held_for", json!("1.5")),
        ("mode", json!("held")),
        ("permits", json!("2")),
    ] {
        assert!(!schemas::faults("held.json", &held(key, value)).is_empty(), "{key}");
    }
    let mut less = held("addr", json!("127.0.0.1:7"));
    less["holds"][0].as_object_mut().expect("it is one").remove("token");
    assert!(!schemas::faults("held.json", &less).is_empty());
}
