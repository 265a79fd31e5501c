//! A command on a host that reaches one member only, as behind a forwarded port. Needs root and the
//! command `ip`; otherwise it prints `skipped:`.
#![cfg(target_os = "linux")]

#[path = "support/decided.rs"]
mod decided;
#[path = "../../tests/support/network.rs"]
#[allow(dead_code, reason = "other tests split the network")]
mod network;
#[path = "support/running.rs"]
mod running;

use decided::decided;
use network::Network;
use running::Running;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A directory that is removed with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The command on a host.
fn elderlock(namespace: &str, args: &[&str], key: &Path) -> Command {
    let mut command = Command::new("ip");
    command.env("ELDERLOCK_KEY_FILE", key);
    command.args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_elderlock")]).args(args);
    command
}

/// The address of the grantor of the only service in a status.
fn grantor_addr(status: &Value) -> Value {
    let members = status["view"]["members"].as_array().expect("a list");
    let is_it = |member: &&Value| member["process"] == status["services"][0]["grantor"];
    members.iter().find(is_it).expect("it is in the view")["addr"].clone()
}

#[test]
fn one_member_that_is_reached_tells_the_status_of_all_and_passes_orders_on() {
    let network = match Network::new(3) {
        Ok(network) => network,
        Err(why) => {
            println!("skipped: network namespaces: {why}");
            return;
        }
    };
    let [first, second, here] = &network.namespaces[..] else { panic!("three hosts") };
    let [at_first, at_second, _] = &network.addrs[..] else { panic!("three addresses") };
    let dir = std::env::temp_dir().join(format!("elderlock-reach-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("it can be made");
    let scratch = Scratch(dir);
    let [key, observer] = ["cluster.key", "observer.key"].map(|name| scratch.0.join(name));
    let keygen = |args: &[&str], out: &Path| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
        let made = command.arg("keygen").args(args).arg("--out").arg(out).status();
        assert!(made.expect("it starts").success());
    };
    keygen(&[], &key);
    keygen(&["--derive", "observer", "--key-file", key.to_str().expect("text")], &observer);

    let node = ["node", "--timing", "lan", "--serve-sessions", "--bind"];
    let founds = [&node[..], &[at_first, "--found"]].concat();
    let joins = [&node[..], &[at_second, "--seed", at_first]].concat();
    let mut members = [(first, founds), (second, joins)].map(|(host, args)| {
        let mut member = Running::start(&mut elderlock(host, &args, &key));
        member.line_with("joined as");
        member
    });
    // The second member becomes the grantor, because it is the first to ask for a lock of that
    // service.
    let lock = ["lock", "coin", "--service", "till", "--at", at_second, "--"];
    let lock = [&lock[..], &["sh", "-c", "echo in; exec sleep 600"]].concat();
    let mut holder = Running::start(&mut elderlock(second, &lock, &key));
    holder.line_with("in");

    network.silence(2, 1);
    let status = |at: &str| {
        let asked = elderlock(here, &["status", "--json", "--at", at], &observer).output();
        let output = asked.expect("it starts");
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    };
    assert_eq!(status(at_second).0, Some(2), "it cannot be reached from here");
    let (code, told) = status(at_first);
    assert_eq!((code, &told["not_reached"]), (Some(0), &json!([])), "{told}");
    let services = told["services"].as_array().expect("a list");
    let [till] = &services[..] else { panic!("one service: {told}") };
    assert_eq!((&till["service"], &till["locks"][0]["name"]), (&json!("till"), &json!("coin")));
    // The order goes to the first member, which passes it on.
    let transfer = |to: &str, key: &Path| {
        let args = ["transfer", "till", "--at", at_first, "--to", to, "--json"];
        let (output, _) = decided(|| {
            let output = elderlock(here, &args, key).output().expect("it starts");
            let text = String::from_utf8_lossy(&output.stderr).into_owned();
            (output, text)
        });
        (output.status.code(), serde_json::from_slice(&output.stdout).unwrap_or(Value::Null))
    };
    for to in [at_first, at_second] {
        let (code, done) = transfer(to, &key);
        assert_eq!((code, &done["addr"]), (Some(0), &json!(to)), "{done}");
        assert_eq!(grantor_addr(&status(at_first).1), json!(to));
    }
    assert_eq!(transfer(at_second, &observer).0, Some(2), "an observer gives no orders");
    members.iter_mut().for_each(|member| member.child.kill().expect("it runs"));
}
