//! The commands of an operator, with the real program: probes, lists, JSON, HTTP, completions.

#[path = "support/both_outputs.rs"]
mod both_outputs;
#[path = "support/decided.rs"]
mod decided;
#[path = "support/running.rs"]
mod running;
#[path = "support/schemas.rs"]
mod schemas;

use both_outputs::both_outputs;
use decided::decided;
use running::{Running, free_addr};
use serde_json::{Value, json};
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);

fn elderlock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear().args(args);
    command
}

fn output(args: &[&str]) -> (Option<i32>, String) {
    let Output { status, stdout, stderr } = elderlock(args).output().expect("it can be started");
    (status.code(), String::from_utf8([stdout, stderr].concat()).expect("text"))
}

/// A node of a cluster with these arguments, after its join.
fn joined(args: &[&str]) -> Running {
    joined_with("lan", args)
}

/// A joined node with the times of `timing`.
fn joined_with(timing: &str, args: &[&str]) -> Running {
    let mut node = Running::start(elderlock(&["node", "--timing", timing]).args(args));
    node.line_with("joined as");
    node
}

/// The JSON that a command prints, checked against the schema, and its exit code.
fn described(schema: &str, args: &[&str]) -> (Option<i32>, Value) {
    let (code, text) = decided(|| output(args));
    let value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    schemas::check(schema, &value);
    (code, value)
}

#[cfg(unix)]
fn signal(node: &Running, name: &str) {
    let killed = Command::new("kill").args([name, &node.child.id().to_string()]).status();
    assert!(killed.expect("kill is there").success());
}

#[test]
fn a_node_is_probed_listed_watched_and_described_in_json() {
    let addr = free_addr();
    let mut node = elderlock(&["node", "--timing", "fast", "--bind", &addr]);
    let mut node = Running::start(node.env("ELDERLOCK_FOUND", "1"));
    let line = node.line_with("joined as");
    let (time, _) = line.split_once(' ').expect("a time and a text");
    assert!(time.len() == 24 && time.starts_with("20") && time.ends_with('Z'), "{line}");

    assert_eq!(output(&["status", "--at", &addr, "--ready"]), (Some(0), "healthy\n".into()));
    assert_eq!(output(&["status", "--at", &free_addr(), "--ready"]).0, Some(2));
    let (code, text) = output(&["members", "--at", &addr]);
    assert!(code == Some(0) && text.contains(&addr) && text.contains("elder, council"), "{text}");

    let (_, text) = output(&["status", "--at", &addr, "--json"]);
    let status: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(status["version"], 1);
    let process = status["process"].as_str().expect("a string");
    assert!(process.len() == 32 && u128::from_str_radix(process, 16).is_ok(), "{process}");
    let (_, text) = output(&["members", "--at", &addr, "--json"]);
    let members: Value = serde_json::from_str(&text).expect("it is JSON");
    assert_eq!(
        (&members["version"], &members["members"][0]["process"]),
        (&1.into(), &process.into())
    );

    let mut watch = Running::start(&mut elderlock(&["status", "--at", &addr, "--watch"]));
    // Two outputs show that the command asks again.
    for _ in 0..2 {
        assert!(watch.line_with("member   ").starts_with("\u{1b}["));
    }
}

#[test]
fn a_node_that_waits_for_its_seeds_is_not_ready() {
    let (addr, missing) = (free_addr(), free_addr());
    let args = ["node", "--bind", &addr, "--seed", &addr, "--seed", &missing];
    let _node = Running::start(&mut elderlock(&args));
    let start = Instant::now();
    loop {
        match output(&["status", "--at", &addr, "--ready"]) {
            (Some(1), text) => break assert_eq!(text, "joining\n"),
            (code, text) => assert!(code == Some(2) && start.elapsed() < HANG, "{text}"),
        }
    }
    let (code, text) = output(&["members", "--at", &addr]);
    let reason = format!("the process at {addr} joins and is in no view yet");
    assert!(code == Some(1) && text.contains(&reason), "{text}");
    let json = elderlock(&["members", "--at", &addr, "--json"]).output().expect("it starts");
    let list = serde_json::from_slice(&json.stdout).expect("it is JSON");
    schemas::check("members.json", &list);
    let said = String::from_utf8(json.stderr).expect("text");
    assert!(json.status.code() == Some(1) && said.contains(&reason), "{said}");
    let (code, text) = output(&["transfer", "--at", &addr, "default", "--to", "pod-0"]);
    assert!(code == Some(2) && text.contains(&reason), "{text}");
}

#[test]
fn a_transfer_and_a_leave_are_described_in_json() {
    let (first, second) = (free_addr(), free_addr());
    let _first = joined(&["--bind", &first, "--found", "--serve-sessions"]);
    let mut node = joined(&["--bind", &second, "--seed", &first, "--name", "pod-1"]);
    assert_eq!(output(&["lock", "job", "--at", &first, "--", "true"]).0, Some(0));

    let order = ["transfer", "default", "--to", &second, "--at", &first, "--json"];
    let (code, value) = described("transfer.json", &order);
    let expected = json!({
        "version": 1, "service": "default", "member": "pod-1", "process": value["process"],
        "addr": second, "complete": true,
    });
    assert_eq!((code, &value), (Some(0), &expected));
    let unknown = ["transfer", "defalt", "--at", &first, "--json"];
    let (code, text) = decided(|| output(&unknown));
    assert!(code == Some(4) && text.contains("there is no service defalt"), "{text}");

    let process = value["process"].clone();
    let (code, value) = described("leave.json", &["leave", "--at", &second, "--json"]);
    let expected = json!({
        "version": 1, "member": "pod-1", "process": process, "addr": second, "complete": true,
    });
    assert_eq!((code, value), (Some(0), expected));
    assert_eq!(node.child.wait().expect("it ends").code(), Some(0));
}

/// Of two halves, the half without the elder has no quorum.
#[cfg(unix)]
#[test]
fn a_forced_lineage_is_described_in_json() {
    let (first, second) = (free_addr(), free_addr());
    // The node is orphaned after three leases, so they are short.
    let mut elder = joined_with("fast", &["--bind", &first, "--found"]);
    let mut node = joined_with("fast", &["--bind", &second, "--seed", &first, "--name", "pod-1"]);
    let lineage = || described("status.json", &["status", "--at", &second, "--json"]).1;
    let before = lineage()["view"]["lineage"].clone();
    let (code, text) = output(&["force", "--at", &second, "--json"]);
    assert!(code == Some(2) && text.contains("elderlock: "), "{text}");
    elder.child.kill().expect("it runs");
    elder.child.wait().expect("it ends");
    node.line_with("orphaned");
    let ready = output(&["status", "--at", &second, "--ready"]);
    assert_eq!(ready, (Some(1), "suspended\n".into()));
    let (code, value) = described("force.json", &["force", "--at", &second, "--json"]);
    assert_eq!(
        (code, &value["member"], &value["addr"]),
        (Some(0), &json!("pod-1"), &json!(second))
    );
    node.line_with("resumed");
    assert_ne!(lineage()["view"]["lineage"], before);
}

#[test]
fn the_first_member_of_a_list_that_can_be_reached_is_asked() {
    let (nobody, addr) = (free_addr(), free_addr());
    let _node = joined(&["--bind", &addr, "--found"]);
    let list = format!("{nobody},{addr}");
    for command in ["status", "members"] {
        let (code, text) = output(&[command, "--at", &list]);
        assert!(code == Some(0) && text.contains(&addr), "{command}: {text}");
    }
    assert_eq!(output(&["status", "--at", &nobody]).0, Some(2));
}

#[test]
fn an_epoch_has_one_form_in_text_and_in_json() {
    let addr = free_addr();
    let mut node = joined(&["--bind", &addr, "--found", "--serve-sessions"]);
    let lock = ["lock", "job", "--service", "sto\u{1b}ck", "--at", &addr, "--", "true"];
    assert_eq!(output(&lock).0, Some(0));
    let (_, status) = described("status.json", &["status", "--at", &addr, "--json"]);
    let epoch = status["services"][0]["epoch"].as_str().expect("it has a grantor").to_owned();
    let (_, text) = output(&["status", "--at", &addr]);
    assert!(text.contains(&format!(", epoch {epoch}, ")), "{epoch}: {text}");
    // The line is that of the event itself, in which names are escaped.
    let line = node.line_with("became grantor of sto\\u{1b}ck");
    assert!(line.trim_end().ends_with(&format!(" in epoch {epoch}")), "{epoch}: {line}");
}

/// The status question to the hanging member gets no answer. Its lease has not ended when the view
/// is read.
#[cfg(unix)]
#[test]
fn a_member_that_hangs_is_listed_as_not_reached() {
    let (first, second) = (free_addr(), free_addr());
    let _first = joined(&["--bind", &first, "--found"]);
    let stopped = joined(&["--bind", &second, "--seed", &first]);
    let (_, status) = described("status.json", &["status", "--at", &first, "--json"]);
    assert_eq!(status["not_reached"], json!([]));
    let (_, seen) = described("status.json", &["status", "--at", &second, "--json"]);
    signal(&stopped, "-STOP");
    let (code, status) = described("status.json", &["status", "--at", &first, "--json"]);
    // On a busy machine the member's lease may have ended, and the view lacks it.
    let members = status["view"]["members"].as_array().expect("a list");
    let is_there = members.iter().any(|member| member["process"] == seen["process"]);
    let missing = if is_there { json!([seen["process"]]) } else { json!([]) };
    assert_eq!((code, &status["not_reached"]), (Some(0), &missing));
    let (code, text) = output(&["status", "--at", &first]);
    signal(&stopped, "-CONT");
    // The member's lease may have ended by now.
    let is_listed = text.contains("missing  ") && text.contains("no answer from");
    assert!(code == Some(0) && (is_listed || !text.contains(&second)), "{text}");
}

/// A node whose log and events come in one output.
fn logged(args: &[&str]) -> Running {
    Running::start(both_outputs(env!("CARGO_BIN_EXE_elderlock")).args(args))
}

#[test]
fn the_log_of_a_node_is_on_standard_error() {
    let addr = free_addr();
    let port = addr.rsplit(':').next().expect("a port");
    let seed = format!("localhost:{port}");
    // The lease of a killed member must not end before its host reports the death.
    let first = ["node", "--timing", "wan", "--name", "pod-0", "--bind", &addr, "--seed", &seed];
    let mut first = logged(&first);
    first.line_with("WARN founded alone");
    let second = free_addr();
    let args = ["node", "--timing", "lan", "--name", "pod-1", "--bind", &second, "--seed", &addr];
    let mut second = logged(&args);
    second.line_with("WARN the cluster was founded with other times");
    first.line_with("INFO member joined name=pod-1");
    // An order has the word of its command.
    output(&["why", "job", "--at", &addr]);
    let order = first.line_with("INFO an operator's order");
    assert!(order.contains("order=\"why\""), "{order}");
    second.child.kill().expect("it runs");
    let died = first.line_with("INFO member died name=pod-1");
    // Elsewhere no host reports the death, and the member's lease has to end.
    assert!(!cfg!(target_os = "linux") || died.contains("cause=\"killed\""), "{died}");
    let missing = free_addr();
    let mut waits = logged(&["node", "--bind", &free_addr(), "--seed", &missing]);
    waits.line_with("INFO joining: waiting for");
    let quiet = ["node", "--log", "off", "--found", "--bind", "127.0.0.1:0"];
    let mut quiet = logged(&quiet);
    assert!(quiet.line_with("").contains("joined as"), "its first line");
}

#[test]
fn a_node_alone_does_not_found_with_fewer_members_than_it_expects() {
    let (first, second) = (free_addr(), free_addr());
    let alone = ["node", "--timing", "fast", "--join-seconds", "2", "--bind", &first];
    let mut by_name = elderlock(&alone);
    by_name.env("ELDERLOCK_SEEDS", &first).env("ELDERLOCK_EXPECT", "2");
    let Output { status, stderr, .. } = by_name.output().expect("it can be started");
    let text = String::from_utf8(stderr).expect("text");
    assert_eq!(status.code(), Some(2), "{text}");
    assert!(text.contains("it takes 2 members to found") && text.contains("as --expect"), "{text}");

    let seeds = ["--expect", "2", "--seed", &first, "--seed", &second];
    let member = |bind: &str| {
        let args = ["node", "--timing", "fast", "--bind", bind];
        Running::start(elderlock(&args).args(seeds))
    };
    let mut members = [&first, &second].map(|bind| member(bind));
    members.iter_mut().for_each(|member| drop(member.line_with("joined as")));

    let (code, text) = output(&["node", "--found", "--expect", "2", "--bind", "127.0.0.1:0"]);
    assert!(code == Some(2) && text.contains("--found founds alone, and --expect wants"), "{text}");
    let (code, text) = output(&["node", "--expect", "0", "--seed", &first]);
    assert!(code == Some(2) && text.contains("--expect is at least 1"), "{text}");
}

#[test]
fn errors_name_flags_and_say_each_cause_once() {
    let (code, text) = output(&["node", "--bind", "127.0.0.1:0"]);
    assert!(code == Some(2) && text.contains("--seed host:port"), "{text}");
    let refused = ["node", "--found", "--bind", "127.0.0.1:0", "--http", "0.0.0.0:0"];
    let (code, text) = output(&refused);
    assert!(code == Some(2) && text.contains("--http-insecure"), "{text}");
    let (code, text) = output(&["node", "--found", "--bind", "0.0.0.0:0"]);
    assert!(
        code == Some(2) && text.contains("--key-file") && text.contains("--insecure"),
        "{text}"
    );
    assert!(!text.contains("keyring") && !text.contains("allow insecure"), "{text}");
    let (_, text) = output(&["node", "--found", "--bind", "127.0.0.1:0", "--join-seconds", "0"]);
    assert!(text.contains("--join-seconds") && !text.contains("join_limit"), "{text}");
    // The first line of the error already has the cause.
    let (code, text) = output(&["status", "--at", &free_addr()]);
    assert!(code == Some(2) && text.lines().count() == 1, "{text}");
}

/// Bash loads the completions and completes the beginning of a command.
#[cfg(unix)]
#[test]
fn completions_are_loaded_by_bash_and_complete_a_command() {
    let (code, text) = output(&["completions", "bash"]);
    assert_eq!(code, Some(0), "{text}");
    let file = std::env::temp_dir().join(format!("elderlock-complete-{}", std::process::id()));
    std::fs::write(&file, text).expect("it can be written");
    let mut checked = Command::new("bash");
    let checked = checked.arg("-n").arg(&file).output().expect("bash is there");
    let complete = "source \"$0\" && complete -p elderlock && COMP_WORDS=(elderlock memb) && \
                    COMP_CWORD=1 && _elderlock elderlock memb elderlock && \
                    echo \"completed: ${COMPREPLY[*]}\"";
    let mut loaded = Command::new("bash");
    let loaded = loaded.args(["--norc", "-c", complete]).arg(&file).output();
    let loaded = loaded.expect("bash is there");
    std::fs::remove_file(&file).expect("it was made");
    for run in [&checked, &loaded] {
        assert!(run.status.success() && run.stderr.is_empty(), "{run:?}");
    }
    let text = String::from_utf8(loaded.stdout).expect("text");
    assert!(text.contains("-F _elderlock ") && text.ends_with("completed: members\n"), "{text}");
}

#[test]
fn completions_and_man_pages_name_commands_and_variables() {
    for shell in ["bash", "zsh", "fish"] {
        let (code, text) = output(&["completions", shell]);
        assert!(code == Some(0) && text.contains("members"), "{shell}: {text}");
    }
    let dir = std::env::temp_dir().join(format!("elderlock-man-{}", std::process::id()));
    assert_eq!(output(&["man", dir.to_str().expect("text")]), (Some(0), String::new()));
    let page = |name: &str| {
        let page = std::fs::read_to_string(dir.join(format!("{name}.1"))).expect("a page");
        // The language of the pages escapes the hyphen.
        page.replace("\\-", "-")
    };
    let pages = ["elderlock", "elderlock-status", "elderlock-node", "elderlock-lock"].map(page);
    std::fs::remove_dir_all(&dir).expect("it was made");
    let [all, status, node, lock] = &pages;
    assert!(status.contains("ready") && status.contains(".TH"), "{status}");
    assert!(lock.contains("<NAME> -- <COMMAND>") && lock.contains("--at <"), "{lock}");
    assert!(lock.contains(concat!("elderlock ", env!("CARGO_PKG_VERSION"))), "{lock}");
    let variables = |page: &str| {
        let (_, section) = page.split_once(".SH ENVIRONMENT\n").expect("it has the section");
        let section = section.split("\n.SH").next().expect("it has a text");
        section.to_owned()
    };
    let common = ["ELDERLOCK_AT", "ELDERLOCK_CLUSTER", "ELDERLOCK_KEY_FILE", "ELDERLOCK_KEY"];
    let of_node = ["ELDERLOCK_BIND", "ELDERLOCK_SEEDS", "ELDERLOCK_LOG", "ELDERLOCK_HTTP_TOKEN"];
    let of_lock = ["ELDERLOCK_TOKEN", "ELDERLOCK_LINEAGE", "ELDERLOCK_OWNER"];
    for (page, names) in [
        (status, &common[..]),
        (node, &common[1..]),
        (node, &of_node),
        (lock, &common),
        (lock, &of_lock),
    ] {
        let section = variables(page);
        for name in names {
            assert!(section.contains(&format!("\\fB{name}\\fR")), "{name}: {section}");
        }
    }
    assert!(variables(status).contains("--key-file"), "{status}");
    assert!(!all.contains("ENVIRONMENT"), "it has no variables of its own: {all}");
}

/// The answer to a request for this path, with additional header lines.
fn get(addr: &str, path: &str, more: &str) -> String {
    let mut stream = TcpStream::connect(addr).expect("it listens");
    stream.set_read_timeout(Some(HANG)).expect("more than zero");
    let request = format!("GET {path} HTTP/1.1\r\nHost: {addr}\r\nConnection: close\r\n{more}");
    stream.write_all(format!("{request}\r\n").as_bytes()).expect("it reads");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("it answers");
    text
}

/// The HTTP address that the node prints.
fn http_addr(node: &mut Running) -> String {
    let line = node.line_with("serves http://");
    let (_, rest) = line.split_once("http://").expect("an address");
    rest.trim_end().trim_end_matches('/').to_owned()
}

#[test]
fn a_node_that_joins_is_live_not_ready_and_says_what_it_waits_for() {
    let (addr, missing) = (free_addr(), free_addr());
    let args = ["--timing", "lan", "--seed", &addr, "--seed", &missing, "--http", "127.0.0.1:0"];
    let node = |bind: &str| {
        let mut command = elderlock(&["node", "--bind", bind]);
        Running::start(command.args(args).env("ELDERLOCK_HTTP_TOKEN", "secret"))
    };
    let token = "Authorization: Bearer secret\r\n";
    let mut first = node(&addr);
    let http = http_addr(&mut first);
    let text = get(&http, "/live", "");
    assert!(text.starts_with("HTTP/1.1 200"), "{text}");
    // The HTTP server starts before the checks of the member's own address and directory.
    let start = Instant::now();
    let text = loop {
        let text = get(&http, "/ready", token);
        assert!(text.starts_with("HTTP/1.1 503") && start.elapsed() < HANG, "{text}");
        if text.contains("joining: waiting for 1 of 2 seeds: ") {
            break text;
        }
    };
    assert!(text.contains(&missing) && !text.contains(&addr), "{text}");
    // Without the token no address is shown.
    let text = get(&http, "/ready", "");
    assert!(text.ends_with("\r\n\r\njoining\n"), "{text}");
    let text = get(&http, "/status.json", token);
    let status: Value =
        serde_json::from_str(text.split_once("\r\n\r\n").expect("a head").1).expect("it is JSON");
    schemas::check("http-status.json", &status);
    let waiting = status["waiting"].as_str().expect("a string");
    assert!(waiting.contains(&missing) && status["state"] == "joining", "{status}");
    assert!(get(&http, "/metrics", token).contains("\nelderlock_connected 0\n"));

    let mut second = node(&missing);
    for node in [&mut first, &mut second] {
        node.line_with("joined as");
    }
    let text = get(&http, "/ready", "");
    assert!(text.starts_with("HTTP/1.1 200") && text.ends_with("healthy\n"), "{text}");
}

#[test]
fn an_address_of_http_in_use_is_an_error_before_the_member_joins() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let http = taken.local_addr().expect("bound").to_string();
    // The node would wait for its seed for ten minutes.
    let waits = ["--seed", &free_addr(), "--join-seconds", "600"];
    let args = [&["node", "--bind", "127.0.0.1:0", "--http", &http], &waits[..]].concat();
    let (code, text) = output(&args);
    let reason = format!("--http: cannot listen at {http}: ");
    assert!(code == Some(2) && text.contains(&reason), "{code:?} {text}");
}

#[test]
fn a_node_serves_http_with_a_token_from_its_environment() {
    let args = ["node", "--found", "--bind", "127.0.0.1:0", "--http", "127.0.0.1:0", "--json"];
    let mut node = Running::start(elderlock(&args).env("ELDERLOCK_HTTP_TOKEN", "secret"));
    let line: Value = serde_json::from_str(&node.line_with("\"http\"")).expect("it is JSON");
    schemas::check("event.json", &line);
    let view = serde_json::from_str(&node.line_with("view_installed")).expect("it is JSON");
    schemas::check("event.json", &view);
    let addr = line["detail"]["addr"].as_str().expect("a string");
    assert!(get(addr, "/ready", "").starts_with("HTTP/1.1 200"));
    assert!(get(addr, "/metrics", "").starts_with("HTTP/1.1 401"));
    let text = get(addr, "/metrics", "Authorization: Bearer secret\r\n");
    assert!(text.contains("\nelderlock_connected 1\n"), "{text}");
    // Only the exporter has this metric.
    assert!(text.contains("\nelderlock_view_changes_total 1\n"), "{text}");
}

/// A TOML file has the settings of HTTP like the flags, and flags win.
#[test]
fn a_node_serves_http_as_its_configuration_file_says() {
    let dir = std::env::temp_dir().join(format!("elderlock-http-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("it can be made");
    let (config, token) = (dir.join("node.toml"), dir.join("token"));
    std::fs::write(&token, "secret\n").expect("it can be written");
    let text = format!(
        "found = true\nbind = '127.0.0.1:0'\nhttp = '127.0.0.1:0'\n\
         http_hosts = ['monitor.example']\nhttp_token_file = '{}'\n",
        token.display()
    );
    std::fs::write(&config, text).expect("it can be written");
    let args = ["node", "--config", config.to_str().expect("text")];
    let set_mode = |mode: &str| {
        let set = Command::new("chmod").arg(mode).arg(&token).status();
        assert!(set.expect("chmod is there").success());
    };
    if cfg!(unix) {
        set_mode("0644");
        let (code, text) = output(&args);
        assert!(code == Some(2) && text.contains("mode 0644: other users may"), "{text}");
        set_mode("0600");
    }
    let mut node = Running::start(&mut elderlock(&args));
    let http = http_addr(&mut node);
    node.line_with("joined as");
    assert!(get(&http, "/metrics", "").starts_with("HTTP/1.1 401"));
    let bearer = "Authorization: Bearer secret\r\n";
    assert!(get(&http, "/metrics", bearer).starts_with("HTTP/1.1 200"));
    let ask_by_name = |name: &str| {
        let mut stream = TcpStream::connect(&http).expect("it listens");
        let request = format!("GET /live HTTP/1.1\r\nHost: {name}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text.get(9..12).map(str::to_owned)
    };
    assert_eq!(ask_by_name("monitor.example").as_deref(), Some("200"));
    assert_eq!(ask_by_name("other.example").as_deref(), Some("403"));

    let by_flag = [&args[..], &["--http", "127.0.0.2:0"]].concat();
    if cfg!(target_os = "linux") {
        let mut node = Running::start(&mut elderlock(&by_flag));
        assert!(http_addr(&mut node).starts_with("127.0.0.2:"));
    }
    // A variable wins as well. A switch that is off undoes a switch of the file.
    let mut node = Running::start(elderlock(&args).env("ELDERLOCK_HTTP_TOKEN", "other"));
    let http = http_addr(&mut node);
    assert!(get(&http, "/metrics", bearer).starts_with("HTTP/1.1 401"));
    let other = "Authorization: Bearer other\r\n";
    assert!(!get(&http, "/metrics", other).starts_with("HTTP/1.1 401"));
    for off in ["0", "false"] {
        let alone = elderlock(&args).env("ELDERLOCK_FOUND", off).output().expect("it starts");
        let text = String::from_utf8(alone.stderr).expect("text");
        assert!(text.contains("--seed host:port"), "{text}");
    }
    // A flag wins over the variables, of which only one is set.
    let token = token.to_str().expect("text");
    let by_flag = [&args[..], &["--http-token-file", token]].concat();
    let mut node = Running::start(elderlock(&by_flag).env("ELDERLOCK_HTTP_TOKEN", "other"));
    let http = http_addr(&mut node);
    assert!(get(&http, "/metrics", other).starts_with("HTTP/1.1 401"));
    assert!(!get(&http, "/metrics", bearer).starts_with("HTTP/1.1 401"));
    let mut both = elderlock(&args);
    both.env("ELDERLOCK_HTTP_TOKEN", "other").env("ELDERLOCK_HTTP_TOKEN_FILE", token);
    let both = both.output().expect("it starts");
    let text = String::from_utf8(both.stderr).expect("text");
    assert!(text.contains("both ELDERLOCK_HTTP_TOKEN_FILE and ELDERLOCK_HTTP_TOKEN are"), "{text}");
    let (code, text) = output(&["node", "--found", "--http-insecure"]);
    assert!(code == Some(2) && text.contains("--http-insecure needs --http"), "{text}");
    std::fs::remove_dir_all(&dir).expect("it was made");
}
