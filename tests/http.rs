//! A member over HTTP, by plain requests, and its page in a real browser.
#![cfg(all(unix, feature = "http"))]

#[path = "../testing/tests/support/browser.rs"]
mod browser;
#[path = "support/leases.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod leases;
#[path = "support/ports.rs"]
mod ports;

use axum::Router;
use axum::http::StatusCode;
use axum::http::header::CONTENT_SECURITY_POLICY;
use axum::middleware::map_response;
use axum::response::{Html, Response};
use axum::routing::get;
use browser::browser;
use elderlock::blocking::{self, Block};
use elderlock::http::HttpView;
use elderlock::{ConnectionStatus, Member, MemberEvent};
use leases::Leases;
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A guard against hangs, longer than any step takes on a busy machine.
const HANG: Duration = Duration::from_secs(120);

/// Serves the view from a thread of its own, for as long as the test runs.
fn serve(view: HttpView) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let addr = "127.0.0.1:0".parse().unwrap();
        runtime.block_on(view.serve(addr, move |addr| tell.send(addr).unwrap())).unwrap();
    });
    told.recv_timeout(HANG).expect("it listens")
}

/// Sends a request. Returns the status code and the whole answer.
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
    let began = Instant::now();
    let mut events = member.events();
    let guard = stock.lock("a").block().unwrap();
    while !matches!(events.next().block(), Some(MemberEvent::BecameGrantor { .. })) {}
    let granted = Instant::now();
    let waits = stock.lock("a").start();

    // The view reads its events only now. The shown age must count from the event, not from the
    // reading.
    let least = granted.elapsed();
    let (code, text) = ask(addr, "/status.json", HERE);
    let most = began.elapsed();
    let status: Value = serde_json::from_str(body(&text)).expect("it is JSON");
    assert_eq!((code, &status["version"], &status["state"]), (200, &json!(1), &json!("healthy")));
    let lock = &status["services"][0]["locks"][0];
    assert_eq!(lock["holder"]["token"], json!(guard.token().to_string()));
    assert_eq!(lock["waiter_count"], json!(1));
    let events = status["events"].as_array().expect("a list");
    let begins = |event: &Value| {
        let begin = "became grantor of sto\\\"ck\\n in epoch ";
        event["text"].as_str().is_some_and(|event| event.starts_with(begin))
    };
    let event = events.iter().find(|event| begins(event)).expect("it became the grantor");
    let age = event["age"].as_f64().expect("a number");
    assert!((least.as_secs_f64()..=most.as_secs_f64()).contains(&age), "{event} {least:?}");

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
    // The page loads nothing from elsewhere: its only address is the name of an XML namespace.
    assert_eq!(body(&text).matches("://").count(), body(&text).matches("://www.w3.org").count());

    // The status of a large table stays short.
    let many: Vec<_> =
        (0..300).map(|number| stock.lock(format!("many-{number}")).block().unwrap()).collect();
    let (_, text) = ask(addr, "/status.json", HERE);
    let status: Value = serde_json::from_str(body(&text)).expect("it is JSON");
    let service = &status["services"][0];
    let listed = service["locks"].as_array().map(Vec::len);
    assert_eq!((listed, &service["more_locks"]), (Some(256), &json!(many.len() + 1 - 256)));
    let totals = json!({ "service": "sto\"ck\n", "holders": many.len() + 1, "waiters": 1 });
    assert_eq!(status["totals"][0], totals, "these are whole");
    drop(waits);
}

#[test]
fn the_totals_of_a_service_that_another_member_grants_are_unknown() {
    let addrs: Vec<String> = ports::free(2).iter().map(ToString::to_string).collect();
    let member = |index: usize| {
        let member = Member::builder("shop").bind(&addrs[index]).seeds(&addrs);
        let member = member.timing(Leases::Long.timing());
        blocking::join(if index == 0 { member.found() } else { member }).expect("it joins")
    };
    let [first, second] = [0, 1].map(member);
    let service = |member: &Member| member.lock_service("stock").block().unwrap();
    let held = service(&first).lock("till").block().unwrap();
    // The second member hears from the grantor, so it knows which member that is.
    let other = service(&second).lock("other").block().unwrap();
    for (member, totals) in [(&first, json!(2)), (&second, Value::Null)] {
        let (_, text) = ask(serve(HttpView::new(member)), "/status.json", HERE);
        let status: Value = serde_json::from_str(body(&text)).expect("it is JSON");
        assert_eq!(status["totals"][0]["holders"], totals, "{status}");
        let waiters = if totals.is_null() { Value::Null } else { json!(0) };
        assert_eq!(status["totals"][0]["waiters"], waiters, "{status}");
        let grantor = status["services"][0]["grantor"].as_str().expect("it is known");
        assert!(grantor.starts_with(&first.process().to_string()), "{status}");
    }
    drop((held, other));
}

#[test]
fn a_member_without_a_quorum_is_not_ready_and_is_live_until_it_leaves() {
    let addrs: Vec<String> = ports::free(2).iter().map(ToString::to_string).collect();
    let builder = |addr: &String| {
        let builder = Member::builder("shop").bind(addr).seeds(&addrs).join_limit(HANG);
        builder.timing(Leases::Long.timing())
    };
    // The second member's runtime is dropped, which ends the member as a crash does.
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let other = runtime.spawn(builder(&addrs[1]).join());
    let first = blocking::join(builder(&addrs[0])).unwrap();
    let other = other.block().unwrap().unwrap();
    // Of two members the elder keeps a quorum. The test shows the other one, or lets the elder's
    // process end.
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
fn the_view_of_a_builder_serves_before_the_join_and_lets_go_of_a_dropped_one() {
    let [addr, missing] = <[SocketAddr; 2]>::try_from(ports::free(2)).expect("two");
    let seeds = [addr, missing].map(|addr| addr.to_string());
    let mut builder = Member::builder("shop").bind(&seeds[0]).seeds(&seeds).join_limit(10 * HANG);
    let http = serve(builder.http_view());
    assert_eq!(ask(http, "/live", HERE).0, 200);
    for path in ["/ready", "/status.json", "/metrics"] {
        let (code, text) = ask(http, path, HERE);
        assert!(code == 503 && body(&text).starts_with("joining: waiting for its own"), "{text}");
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let join = runtime.spawn(builder.join());
    let until = |path: &str, code: u16, part: &str| {
        let start = Instant::now();
        loop {
            let (found, text) = ask(http, path, HERE);
            if found == code && text.contains(part) {
                return;
            }
            assert!(start.elapsed() < HANG, "{path} is not {code} with {part:?}: {text}");
        }
    };
    until("/ready", 503, &format!("joining: waiting for 1 of 2 seeds: {missing} ("));
    until("/status.json", 200, "\"state\":\"joining\"");
    join.abort();
    until("/live", 503, "over");
    // The view still exists, but the member has freed its port.
    let start = Instant::now();
    while std::net::TcpListener::bind(addr).is_err() {
        assert!(start.elapsed() < HANG, "the port of a dropped join is not free");
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn the_view_of_a_join_that_fails_before_it_has_a_member_is_over() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let bad = [Member::builder("shop").bind(addr).found(), Member::builder("shop")];
    for mut builder in bad {
        let http = serve(builder.http_view());
        assert_eq!(ask(http, "/live", HERE).0, 200);
        let error = blocking::join(builder).unwrap_err();
        for path in ["/live", "/ready", "/status.json", "/metrics"] {
            let (code, text) = ask(http, path, HERE);
            assert_eq!((code, body(&text)), (503, "over\n"), "{path} after {error}");
        }
    }
}

#[test]
fn a_router_below_a_path_serves_the_page_and_the_status_there() {
    let member = blocking::local().unwrap();
    let app = Router::new().nest("/elderlock", HttpView::new(&member).router());
    let addr = serve_app(app.route("/", get(async || "the program's own")));
    let (code, text) = ask(addr, "/elderlock", HERE);
    assert!(code == 200 && body(&text).contains("<title>elderlock"), "{text}");
    assert!(text.contains("content-security-policy: default-src 'none'"), "{text}");
    let (code, text) = ask(addr, "/elderlock/status.json", HERE);
    let status: Value = serde_json::from_str(body(&text)).expect("it is JSON");
    assert_eq!((code, &status["state"]), (200, &json!("healthy")));
    assert_eq!(ask(addr, "/elderlock/ready", HERE).0, 200);
    assert_eq!(ask(addr, "/elderlock/status.json", "Host: evil.example\r\n").0, 403);
    assert_eq!(body(&ask(addr, "/", HERE).1), "the program's own");
}

#[test]
fn silent_connections_keep_no_probe_waiting() {
    let member = blocking::local().unwrap();
    let addr = serve(HttpView::new(&member));
    let silent: Vec<_> = (0..100).map(|_| TcpStream::connect(addr).unwrap()).collect();
    let start = Instant::now();
    assert_eq!(ask(addr, "/live", HERE).0, 200);
    // A silent connection is closed by itself after 30 seconds.
    assert!(start.elapsed() < Duration::from_secs(20), "{:?}", start.elapsed());
    drop(silent);
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

/// A page with the member's page in a frame of 400 px: a window of Chromium is at least 500 px
/// wide. The script leaves its findings as text. `?large` makes the letters of the picture too
/// large.
const FRAME: &str = r#"<!doctype html><meta name="color-scheme" content="light dark">
<body style="margin: 0">
<iframe src="/" style="border: 0; width: 400px; height: 1800px"></iframe><pre></pre><script>
const frame = document.querySelector("iframe");
frame.onload = () => {
  if (location.search !== "?large") return;
  const style = frame.contentDocument.createElement("style");
  style.textContent = "svg text { font-size: 90px !important }";
  frame.contentDocument.head.append(style);
};
setTimeout(() => {
  const page = frame.contentDocument;
  const labels = [...page.querySelectorAll("svg text")];
  const texts = (some) => some.map((label) => label.textContent);
  const box = (node) => node.getBoundingClientRect();
  const outside = labels.filter((label) => {
    const [own, picture] = [box(label), box(label.ownerSVGElement)];
    return own.left < picture.left || own.right > picture.right
      || own.top < picture.top || own.bottom > picture.bottom;
  });
  const covered = labels.filter((label, index) => labels.slice(index + 1).some((other) => {
    const [one, two] = [box(label), box(other)];
    return one.left < two.right && two.left < one.right
      && one.top < two.bottom && two.top < one.bottom;
  }));
  // The lightness of a colour to the eye, from 0 to 1, and the contrast of two colours: WCAG 2.
  const parts = (colour) => colour.match(/[\d.]+/g).map(Number);
  const lightness = (colour) => {
    const [r, g, b] = parts(colour).map((part) => part / 255)
      .map((part) => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const style = (node) => frame.contentWindow.getComputedStyle(node);
  const behind = (node) => {
    const back = style(node).backgroundColor;
    return parts(back)[3] === 0 && node.parentElement ? behind(node.parentElement) : back;
  };
  const contrast = (node) => {
    const pair = [style(node).color, behind(node)].map(lightness);
    return (Math.max(...pair) + 0.05) / (Math.min(...pair) + 0.05);
  };
  const written = [...page.querySelectorAll("main *")].filter((node) => !node.closest("svg")
    && [...node.childNodes].some((child) => child.nodeType === 3 && child.data.trim()));
  const faint = written.filter((node) => contrast(node) < 4.5);
  const width = (bar) => box(bar).width / box(bar.parentElement).width;
  const bars = [...page.querySelectorAll(".bar.thin i")].map((bar) => ({
    width: width(bar), animation: style(bar).animationName,
    seconds: parseFloat(style(bar).animationDuration),
    runs: bar.getAnimations().some((animation) => animation.playState === "running"),
  }));
  document.querySelector("pre").textContent = JSON.stringify({
    back: lightness(style(page.body).backgroundColor), text: lightness(style(page.body).color),
    card: lightness(style(page.querySelector("section")).backgroundColor),
    written: written.length, faint: texts(faint),
    width: page.documentElement.clientWidth, needed: page.documentElement.scrollWidth,
    labels: texts(labels), outside: texts(outside), covered: texts(covered),
    bars, lease: width(page.querySelector(".bar:not(.thin) i")),
    members: page.querySelectorAll("circle.member").length,
    elders: page.querySelectorAll("circle.elder").length,
  });
}, 2500);
</script>"#;

/// Serves the frame, and the page without the header that forbids frames.
fn serve_framed(view: HttpView) -> SocketAddr {
    let bare = async |mut response: Response| {
        response.headers_mut().remove(CONTENT_SECURITY_POLICY);
        response
    };
    let page = view.router::<()>().layer(map_response(bare));
    serve_app(page.route("/frame", get(async || Html(FRAME))))
}

/// Serves this page and, once, this status. Later statuses say that the member is over. Counts the
/// statuses.
fn serve_ending(page: String, status: String) -> (SocketAddr, Arc<AtomicUsize>) {
    let told = Arc::new(AtomicUsize::new(0));
    let counted = told.clone();
    let status = move || async move {
        match counted.fetch_add(1, Ordering::Relaxed) {
            0 => (StatusCode::OK, status),
            _ => (StatusCode::SERVICE_UNAVAILABLE, "over\n".to_owned()),
        }
    };
    let app = Router::new().route("/", get(move || async move { Html(page) }));
    (serve_app(app.route("/status.json", get(status))), told)
}

fn serve_app(app: Router) -> SocketAddr {
    let (tell, told) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
            tell.send(listener.local_addr().unwrap()).unwrap();
            axum::serve(listener, app).await.unwrap();
        });
    });
    told.recv_timeout(HANG).expect("it listens")
}

/// The colour scheme that the user prefers, by Chromium's number.
#[derive(Clone, Copy)]
enum Scheme {
    Dark = 0,
    Light = 1,
}

/// Opens an address in the browser for some seconds. Returns the document after its scripts ran,
/// and the errors that the browser prints. `name` is the name of its folder.
fn open(browser: &Path, name: &str, url: &str, scheme: Scheme) -> (String, Vec<String>) {
    // Another run may have the same target directory, and the browser of the last call may still
    // write to its folder.
    static NUMBER: AtomicUsize = AtomicUsize::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let room = format!("page-{name}-{}-{number}", std::process::id());
    let room = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(room);
    std::fs::create_dir_all(&room).expect("a folder for the browser");
    let (dom, log) = (room.join("dom.html"), room.join("log.txt"));
    let create = |path: &Path| std::fs::File::create(path).expect("a file for the output");
    let mut child = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"])
        .args(["--enable-logging=stderr", "--virtual-time-budget=5000", "--dump-dom"])
        .arg("--window-size=1200,2000")
        .arg(format!("--blink-settings=preferredColorScheme={}", scheme as u8))
        .arg(format!("--user-data-dir={}", room.join("profile").display()))
        .arg(url)
        .stdin(Stdio::null())
        .stdout(create(&dom))
        .stderr(create(&log))
        .spawn()
        .expect("the browser starts");
    let start = Instant::now();
    while child.try_wait().expect("the browser can be asked").is_none() {
        if start.elapsed() > 2 * HANG {
            _ = child.kill();
            panic!("the browser did not show {url} within {:?}", 2 * HANG);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let dom = std::fs::read_to_string(&dom).expect("the document as it is shown");
    let log = String::from_utf8_lossy(&std::fs::read(&log).expect("its output")).into_owned();
    let said = log.lines().filter(|line| line.contains("CONSOLE")).map(str::to_owned).collect();
    let _ = std::fs::remove_dir_all(&room);
    (dom, said)
}

/// The text of a document without its script, its style and its tags.
fn words(dom: &str) -> String {
    let (_, body) = dom.split_once("<body").expect("a body");
    let (body, _) = body.split_once("<script>").unwrap_or((body, ""));
    let parts = body.split('<').filter_map(|part| Some(part.split_once('>')?.1));
    let text = parts.collect::<Vec<_>>().join(" ");
    let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&");
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn the_page_in_a_browser_shows_holds_waits_leases_and_events_in_words() {
    let Some(browser) = browser() else { return };
    let addrs: Vec<String> = ports::free(3).iter().map(ToString::to_string).collect();
    let member = |index: usize| {
        let name = format!("a-member-with-a-name-of-40-letters-or-{index}");
        let member = Member::builder("shop").bind(&addrs[index]).seeds(&addrs).name(name);
        blocking::join(if index == 0 { member.found() } else { member }).expect("it joins")
    };
    let members = [0, 1, 2].map(member);
    // The first member grants and waits, and another member holds.
    let service = |index: usize| members[index].lock_service("stock").block().unwrap();
    let view = || HttpView::new(&members[0]);
    let (plain, framed) = (serve(view()), serve_framed(view()));
    let [stock, other, third] = [0, 1, 2].map(service);
    let unleased = stock.lock("till").block().unwrap();
    let leased = other.lock("<sku>").lease(HANG * 10).metadata("shelf 3").block().unwrap();
    let waits = [stock.lock("<sku>").start(), third.lock("<sku>").start()];
    let start = Instant::now();
    while stock.inspect("<sku>").block().unwrap().waiters.len() < waits.len() {
        assert!(start.elapsed() < HANG, "the requests do not wait");
    }
    // Another member grants this service.
    let [theirs, ours] = [1, 0].map(|index| members[index].lock_service("yard").block().unwrap());
    let _yard = [theirs.lock("gate").block().unwrap(), ours.lock("door").block().unwrap()];
    // More locks than the page gets, of a service that comes first.
    let many = members[0].lock_service("many").block().unwrap();
    let _many: Vec<_> =
        (0..300).map(|number| many.lock(number.to_string()).block().unwrap()).collect();

    let start = Instant::now();
    let (text, said) = loop {
        let (dom, said) = open(&browser, "plain", &format!("http://{plain}/"), Scheme::Light);
        let text = words(&dom);
        // The lease is unknown if the holder's member, on a busy machine, answered late.
        if !text.contains("lease unknown") || start.elapsed() > 2 * HANG {
            break (text, said);
        }
    };
    for part in [
        "healthy",
        "Members in view",
        "3 members",
        "this member, elder, council",
        "many grantor here; 300 held, 0 waiting",
        "stock grantor here; 2 held, 2 waiting",
        "yard grantor: a-member-with-a-name-of-40-letters-or-1; 1 held here, 0 waiting here; \
         its locks are shown at the grantor",
        "stock / <sku> 2 waiting held by a-member-with-a-name-of-40-letters-or-1 for ",
        "; lease ends in ",
        ", “shelf 3”",
        "a-member-with-a-name-of-40-letters-or-0 waits for ",
        ", and 1 behind it",
        "2 waiting",
        "stock / till held by a-member-with-a-name-of-40-letters-or-0 for ",
        "; without a lease",
        &format!("token {}", leased.token()),
        "became grantor of stock in epoch ",
    ] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    let age = |word: &str| word == "s" || word == "min";
    let (_, event) = text.split_once("became grantor of stock in epoch ").expect("it is there");
    let event: Vec<&str> = event.split(' ').take(4).collect();
    let is_number = |word: &str| word.parse::<u64>().is_ok();
    assert!(is_number(event[1]) && age(event[2]) && event[3] == "ago", "{event:?}");
    assert!(text.find("<sku>") < text.find("/ till"), "the longest wait is the first: {text}");
    for debug in ["{", "}", "Some(", "None", "\"", "undefined", "NaN", "[object"] {
        assert!(!text.contains(debug), "{debug:?} is in {text}");
    }
    assert_eq!(said, [""; 0]);

    // A page below a path of a program's own server asks for the status below that path.
    let nested = serve_app(Router::new().nest("/elderlock", view().router()));
    let (dom, said) =
        open(&browser, "nested", &format!("http://{nested}/elderlock"), Scheme::Light);
    let text = words(&dom);
    assert!(text.contains("healthy") && text.contains("stock grantor here"), "{text}");
    assert_eq!(said, [""; 0]);

    // The member ends after the first status. The page then shows nothing of the former status.
    let [page, status] = ["/", "/status.json"].map(|path| ask(plain, path, HERE).1);
    let (ending, told) = serve_ending(body(&page).to_owned(), body(&status).to_owned());
    let (dom, _) = open(&browser, "ending", &format!("http://{ending}/"), Scheme::Light);
    let text = words(&dom);
    assert!(told.load(Ordering::Relaxed) > 1, "the page does not ask again: {text}");
    assert!(
        text.contains("elderlock over") && text.contains("this member is in no view"),
        "{text}"
    );
    for gone in ["healthy", "a-member-with-a-name", "3 members", "stock", "<sku>"] {
        assert!(!text.contains(gone), "{gone:?} is in {text}");
    }

    // The page of a member that is still joining has words for people, too.
    let seeds = [addrs[0].clone(), ports::free(1)[0].to_string()];
    let mut builder = Member::builder("depot").bind(&seeds[1]).seeds(&seeds).join_limit(10 * HANG);
    let joining = serve(builder.http_view());
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    let join = runtime.spawn(builder.join());
    let (dom, said) = open(&browser, "joining", &format!("http://{joining}/"), Scheme::Light);
    let text = words(&dom);
    for part in ["joining", "waiting for 1 of 2 seeds: ", &addrs[0], "this member is in no view"] {
        assert!(text.contains(part), "{part:?} is not in {text}");
    }
    assert_eq!(said, [""; 0]);
    join.abort();

    let measured = |name: &str, query: &str, scheme: Scheme| -> Value {
        let (dom, said) = open(&browser, name, &format!("http://{framed}/frame{query}"), scheme);
        assert_eq!(said, [""; 0]);
        serde_json::from_str(&words(&dom)).unwrap_or_else(|error| panic!("{error}: {dom}"))
    };
    let start = Instant::now();
    let seen = loop {
        let seen = measured("framed", "", Scheme::Light);
        // The lease is unknown if the holder's member answered late.
        if seen["bars"] != json!([]) || start.elapsed() > 2 * HANG {
            break seen;
        }
    };
    assert_eq!((&seen["members"], &seen["elders"]), (&json!(3), &json!(1)), "{seen}");
    let is_part = |part: &Value| part.as_f64().is_some_and(|part| part > 0.0 && part <= 1.0);
    assert!(is_part(&seen["lease"]), "{seen}");
    // One of the two holds has a lease.
    let [bar] = &seen["bars"].as_array().expect("a list")[..] else { panic!("one bar: {seen}") };
    assert!(is_part(&bar["width"]) && bar["runs"] == json!(true), "{seen}");
    assert_eq!(bar["animation"], json!("drain"), "{seen}");
    let lease = (HANG * 10).as_secs_f64();
    let seconds = bar["seconds"].as_f64().expect("a number");
    assert!(seconds > lease / 2.0 && seconds < lease, "{seen}");
    // A scroll bar takes some of the 400 pixels.
    let width = seen["width"].as_u64().expect("a number");
    assert!((380..=400).contains(&width) && seen["needed"] == width, "{seen}");
    assert_eq!((&seen["outside"], &seen["covered"]), (&json!([]), &json!([])), "{seen}");
    let labels = seen["labels"].as_array().expect("a list");
    for end in ["of-40-letters-or-0", "letters-or-1", "letters-or-2", "3 members"] {
        assert!(labels.iter().any(|label| label.as_str().unwrap().ends_with(end)), "{seen}");
    }
    let is_readable = |seen: &Value| {
        assert_eq!(seen["faint"], json!([]), "{seen}");
        assert!(seen["written"].as_u64() > Some(20), "{seen}");
        ["back", "card", "text"].map(|part| seen[part].as_f64().expect("a number"))
    };
    let [back, card, text] = is_readable(&seen);
    assert!(back > 0.8 && card > 0.8 && text < 0.1, "{seen}");
    let seen = measured("dark", "", Scheme::Dark);
    let [back, card, text] = is_readable(&seen);
    assert!(back < 0.1 && card < 0.1 && text > 0.7, "{seen}");
    // This measurement must find faults; otherwise the ones above may be blind.
    let seen = measured("large", "?large", Scheme::Light);
    assert!(seen["outside"] != json!([]) && seen["covered"] != json!([]), "{seen}");
    drop((waits, unleased, leased));
}
