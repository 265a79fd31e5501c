//! A member over HTTP, by plain requests.
#![cfg(all(unix, feature = "http"))]

#[path = "support/ports.rs"]
mod ports;

use elderlock::blocking::{self, Block};
use elderlock::http::HttpView;
use elderlock::{ConnectionStatus, Member, Timing};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Longer than any step takes on a busy machine.
const HANG: Duration = Duration::from_secs(60);

/// A server in a thread of its own, for as long as the test runs.
fn serve(view: HttpView) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let addr = "127.0.0.1:0".parse().unwrap();
        runtime.block_on(view.serve(addr, move |addr| tell.send(addr).unwrap())).unwrap();
    });
    told.recv_timeout(HANG).expect("it listens")
}

/// The status and the whole answer.
fn ask(addr: SocketAddr, path: &str, headers: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(HANG)).unwrap();
    let request = format!("GET {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    (text[9..12].parse().expect("a status"), text)
}

const HERE: &str = "Host: localhost\r\n";

fn body(text: &str) -> &str {
    text.split_once("\r\n\r\n").expect("a head and a body").1
}

#[test]
fn the_status_the_metrics_and_the_page_show_what_the_member_knows() {
    let member = blocking::local().unwrap();
    let addr = serve(HttpView::new(&member));
    let stock = member.lock_service("sto\"ck\n").block().unwrap();
    let guard = stock.lock("a").block().unwrap();
    let waits = stock.lock("a").start();

    let (code, text) = ask(addr, "/status.json", HERE);
    let status: Value = serde_json::from_str(body(&text)).expect("it is JSON");
    assert_eq!((code, &status["version"], &status["state"]), (200, &json!(1), &json!("healthy")));
    let lock = &status["services"][0]["locks"][0];
    assert_eq!(lock["holder"]["token"], json!(guard.token().to_string()));
    assert_eq!(lock["waiter_count"], json!(1));
    let events = status["events"].as_array().expect("a list");
    let begins = |event: &Value| {
        let begin = "became grantor of sto\\\"ck\\n in epoch ";
        event.as_str().is_some_and(|event| event.starts_with(begin))
    };
    assert!(events.iter().any(begins), "{events:?}");

    let (code, text) = ask(addr, "/metrics", HERE);
    assert_eq!(code, 200);
    for line in [
        "elderlock_connected 1",
        "elderlock_is_elder 1",
        "elderlock_view_members 1",
        "elderlock_held{service=\"sto\\\"ck\\n\"} 1",
        "elderlock_queue_depth{service=\"sto\\\"ck\\n\"} 1",
        "elderlock_is_grantor{service=\"sto\\\"ck\\n\"} 1",
        "elderlock_suspected_members 0",
        "elderlock_refused_total{reason=\"garbage\"} 0",
        "elderlock_network_total{kind=\"frames_in\"} 0",
        "# TYPE elderlock_held gauge",
    ] {
        assert!(body(&text).lines().any(|found| found == line), "{line} is not in {text}");
    }

    let (code, text) = ask(addr, "/", HERE);
    assert!(code == 200 && text.contains("content-security-policy: default-src 'none'"), "{text}");
    // Nothing is loaded from elsewhere: the only address in it names a kind of elements.
    assert_eq!(body(&text).matches("://").count(), body(&text).matches("://www.w3.org").count());
    drop(waits);
}

#[test]
fn a_member_without_a_quorum_is_not_ready_and_is_live_until_it_leaves() {
    let addrs: Vec<String> = ports::free(2).iter().map(ToString::to_string).collect();
    let builder = |addr: &String| {
        Member::builder("shop").bind(addr).seeds(&addrs).timing(Timing::fast()).join_limit(HANG)
    };
    // The second member's runtime is dropped, which ends the member as a crash does.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let other = runtime.spawn(builder(&addrs[1]).join());
    let first = blocking::join(builder(&addrs[0])).unwrap();
    let other = other.block().unwrap().unwrap();
    // The elder's half of two equal ones goes on: the other one is shown.
    let (shown, runtime) = match first.is_elder() {
        false => (first, Some(runtime)),
        true => (other.clone(), None),
    };
    let addr = serve(HttpView::new(&shown));
    assert_eq!(ask(addr, "/ready", HERE).0, 200);
    if runtime.is_some() {
        drop(runtime);
        let start = Instant::now();
        while shown.connection_status() == ConnectionStatus::Connected {
            assert!(start.elapsed() < HANG, "it is connected without a quorum");
            std::thread::sleep(Duration::from_millis(20));
        }
        let (code, text) = ask(addr, "/ready", HERE);
        assert_eq!((code, body(&text)), (503, "suspended\n"));
    }
    assert_eq!(ask(addr, "/live", HERE).0, 200);
    let _ = shown.leave().block();
    assert_eq!((ask(addr, "/live", HERE).0, ask(addr, "/ready", HERE).0), (503, 503));
}

#[test]
fn a_request_with_another_host_or_without_the_token_is_refused() {
    let member = blocking::local().unwrap();
    let view = HttpView::new(&member).token("se:cret").host("Monitor.example");
    let addr = serve(view);
    let code = |path, headers: &str| ask(addr, path, headers).0;
    let token = "Authorization: Bearer se:cret\r\n";
    assert_eq!(code("/status.json", HERE), 401);
    assert_eq!(code("/", HERE), 401);
    assert_eq!(code("/status.json", &format!("{HERE}Authorization: Bearer se:crex\r\n")), 401);
    assert_eq!(code("/status.json", &format!("{HERE}{token}")), 200);
    assert_eq!(code("/metrics", &format!("Host: monitor.example:80\r\n{token}")), 200);
    assert_eq!(code("/metrics", &format!("Host: evil.example\r\n{token}")), 403);
    assert_eq!(code("/ready", HERE), 200);
    assert_eq!(code("/ready", "Host: evil.example\r\n"), 403);

    let outside = HttpView::new(&member).serve("0.0.0.0:0".parse().unwrap(), |_| ());
    let error = outside.block().unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::PermissionDenied);
}
