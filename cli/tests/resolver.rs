//! Three nodes with one host name as their only seed, which each of them resolves to itself alone
//! at first. Needs root and the command `unshare`; says `skipped:` where they are missing.
#![cfg(target_os = "linux")]

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// A guard against hanging, far above what anything takes here.
const HANG: Duration = Duration::from_secs(120);
/// A process that founds alone does so after a quarter of a member lease, 0.6 s.
const ALONE: Duration = Duration::from_secs(3);

/// A node with a file of hosts of its own in the place of `/etc/hosts`.
struct Node {
    child: Child,
    addr: String,
    hosts: PathBuf,
    lines: Receiver<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_file(&self.hosts);
    }
}

impl Node {
    fn start(host: &str) -> Node {
        let name = format!("elderlock-hosts-{}-{host}", std::process::id());
        let hosts = std::env::temp_dir().join(name);
        std::fs::write(&hosts, format!("{host} pods\n")).expect("it can be written");
        let addr = format!("{host}:7400");
        let script = r#"mount --bind "$1" /etc/hosts && shift && exec "$@""#;
        let mut child = Command::new("unshare")
            .args(["--mount", "sh", "-c", script, "sh"])
            .arg(&hosts)
            .args([env!("CARGO_BIN_EXE_elderlock"), "node", "--timing", "fast"])
            .args(["--bind", &addr, "--seed", "pods:7400", "--expect", "3"])
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let out = BufReader::new(child.stdout.take().expect("it was piped"));
        let (tell, lines) = channel();
        std::thread::spawn(move || out.lines().map_while(Result::ok).all(|l| tell.send(l).is_ok()));
        Node { child, addr, hosts, lines }
    }

    fn next_line(&self, limit: Duration) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(limit)
    }

    /// The addresses of the members that it sees.
    fn sees_all(&self, addrs: &[&str]) -> bool {
        let mut members = Command::new(env!("CARGO_BIN_EXE_elderlock"));
        let output = members.args(["members", "--at", &self.addr]).output().expect("it starts");
        let text = String::from_utf8_lossy(&output.stdout);
        addrs.iter().all(|addr| text.contains(addr))
    }
}

#[test]
fn nodes_that_resolve_only_themselves_at_first_found_one_cluster() {
    let mounts = Command::new("unshare")
        .args(["--mount", "mount", "--bind", "/etc/hosts", "/etc/hosts"])
        .output();
    if !mounts.is_ok_and(|output| output.status.success()) {
        println!("skipped: mount namespaces: unshare --mount does not work here");
        return;
    }
    // Other runs of this test have another network.
    let id = std::process::id();
    let net = format!("127.{}.{}", 1 + (id >> 8) % 250, id % 256);
    let hosts = [1, 2, 3].map(|node| format!("{net}.{node}"));
    let nodes: Vec<Node> = hosts.iter().map(|host| Node::start(host)).collect();
    for node in &nodes {
        assert_eq!(node.next_line(ALONE), Err(RecvTimeoutError::Timeout), "{}", node.addr);
    }
    let all = hosts.iter().fold(String::new(), |text, host| text + host + " pods\n");
    for node in &nodes {
        std::fs::write(&node.hosts, &all).expect("it can be written");
    }
    for node in &nodes {
        let line = node.next_line(HANG).expect("it joins");
        assert!(line.contains("joined as"), "{line}");
    }
    let addrs: Vec<&str> = nodes.iter().map(|node| &*node.addr).collect();
    assert!(nodes.iter().all(|node| node.sees_all(&addrs)));
}
