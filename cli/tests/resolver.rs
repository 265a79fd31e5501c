//! Nodes in network namespaces of their own, with one host name as their only seed. At first the
//! DNS server of each node resolves the name to that node alone, and learns the others later. The
//! tests need root and the commands `ip`, `unshare` and `dnsmasq`; otherwise they print `skipped:`.
#![cfg(target_os = "linux")]

#[path = "../../tests/support/network.rs"]
#[allow(dead_code, reason = "other tests cut the network")]
mod network;

use network::Network;
use std::io::{BufRead as _, BufReader, Read};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);
/// A process that founds alone does so after a quarter of a member lease, which is 0.6 s.
const ALONE: Duration = Duration::from_secs(3);
/// A process that joins resolves its seeds again within this time.
const RESOLVED_AGAIN: Duration = Duration::from_secs(5);

/// Runs a command in this namespace, as a host that asks its own DNS server. The first argument of
/// the shell is the resolver's configuration, and the command follows.
fn on_host(namespace: &str, resolver: &Path) -> Command {
    let script = r#"mount --bind "$1" /etc/resolv.conf && shift && exec "$@""#;
    let mut command = Command::new("ip");
    command.args(["netns", "exec", namespace, "unshare", "--mount", "sh", "-c", script, "sh"]);
    command.arg(resolver);
    command
}

/// A name that each server knows. A server that resolves it handles signals.
const UP: &str = "127.0.0.9 up\n";

/// The DNS server of one host, with the addresses of the name `pods`.
struct NameServer {
    child: Child,
    folder: PathBuf,
}

impl Drop for NameServer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

impl NameServer {
    fn start(namespace: &str) -> NameServer {
        let folder = std::env::temp_dir().join(format!("{namespace}-dns"));
        std::fs::create_dir_all(&folder).expect("a folder");
        std::fs::write(folder.join("resolv.conf"), "nameserver 127.0.0.1\n").expect("it is new");
        std::fs::write(folder.join("hosts"), UP).expect("it is new");
        let mut hosts = std::ffi::OsString::from("--addn-hosts=");
        hosts.push(folder.join("hosts"));
        let child = Command::new("ip")
            .args(["netns", "exec", namespace, "dnsmasq", "--keep-in-foreground", "--no-resolv"])
            .args(["--no-hosts", "--conf-file=/dev/null", "--pid-file", "--user=root"])
            .args(["--listen-address=127.0.0.1", "--bind-interfaces"])
            .arg(hosts)
            .stderr(Stdio::null())
            .spawn()
            .expect("it starts");
        NameServer { child, folder }
    }

    fn resolver(&self) -> PathBuf {
        self.folder.join("resolv.conf")
    }

    /// Gives the name `pods` these addresses.
    fn tell(&self, addrs: &[&str]) {
        let lines: String = addrs.iter().map(|addr| format!("{addr} pods\n")).collect();
        std::fs::write(self.folder.join("hosts"), UP.to_owned() + &lines).expect("it is a file");
        // On this signal the server reads the file again and clears its cache.
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, rustix::process::Signal::HUP).expect("it runs");
    }

    /// Waits until the host resolves the name to these addresses.
    fn knows(&self, namespace: &str, name: &str, addrs: &[&str]) {
        let began = Instant::now();
        loop {
            let output = on_host(namespace, &self.resolver())
                .args(["getent", "ahostsv4", name])
                .output()
                .expect("it starts");
            let text = String::from_utf8_lossy(&output.stdout);
            let found: std::collections::BTreeSet<_> =
                text.lines().filter_map(|line| line.split_whitespace().next()).collect();
            if found == addrs.iter().copied().collect() {
                return;
            }
            assert!(began.elapsed() < HANG, "{namespace} resolves {text}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

struct Node {
    child: Child,
    lines: Receiver<String>,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    fn start(namespace: &str, addr: &str, resolver: &Path) -> Node {
        let mut node = Node::command(namespace, addr, resolver, "3");
        let mut child = node.stdout(Stdio::piped()).spawn().expect("it starts");
        let events = child.stdout.take().expect("it was piped");
        Node::read(child, events)
    }

    /// A node whose lines are its log instead of its events.
    fn logging(namespace: &str, addr: &str, resolver: &Path, expect: &str) -> Node {
        let mut node = Node::command(namespace, addr, resolver, expect);
        let node = node.stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = node.spawn().expect("it starts");
        let log = child.stderr.take().expect("it was piped");
        Node::read(child, log)
    }

    fn command(namespace: &str, addr: &str, resolver: &Path, expect: &str) -> Command {
        let mut node = on_host(namespace, resolver);
        node.args([env!("CARGO_BIN_EXE_elderlock"), "node", "--timing", "fast", "--insecure"]);
        // On a busy machine the server may be slow.
        node.args(["--bind", addr, "--seed", "pods:7400", "--expect", expect]);
        node.args(["--join-seconds", "600"]);
        node
    }

    fn read(child: Child, from: impl Read + Send + 'static) -> Node {
        let from = BufReader::new(from).lines().map_while(Result::ok);
        let (tell, lines) = channel();
        std::thread::spawn(move || from.map(|line| tell.send(line)).all(|sent| sent.is_ok()));
        Node { child, lines }
    }

    /// The next lines, up to the first line with this text.
    fn lines_to(&self, text: &str) -> Vec<String> {
        let (mut lines, began) = (Vec::new(), Instant::now());
        while lines.last().is_none_or(|line: &String| !line.contains(text)) {
            let line = self.next_line(HANG.saturating_sub(began.elapsed()));
            lines.push(line.unwrap_or_else(|_| panic!("it never says {text:?}: {lines:?}")));
        }
        lines
    }

    fn next_line(&self, limit: Duration) -> Result<String, RecvTimeoutError> {
        self.lines.recv_timeout(limit)
    }
}

/// Returns whether the member of that host sees all these addresses.
fn sees_all(namespace: &str, addr: &str, addrs: &[String]) -> bool {
    let output = Command::new("ip")
        .args(["netns", "exec", namespace, env!("CARGO_BIN_EXE_elderlock")])
        .args(["members", "--at", addr])
        .output()
        .expect("it starts");
    let text = String::from_utf8_lossy(&output.stdout);
    addrs.iter().all(|addr| text.contains(addr.as_str()))
}

/// Makes `size` hosts. `None`, with a message, if this machine cannot.
fn hosts(size: usize) -> Option<Network> {
    if Command::new("dnsmasq").arg("--version").output().is_err() {
        println!("skipped: DNS server: there is no command `dnsmasq`");
        return None;
    }
    let network = Network::new(size);
    network.inspect_err(|why| println!("skipped: network namespaces: {why}")).ok()
}

fn ips(network: &Network) -> Vec<&str> {
    network.addrs.iter().map(|addr| addr.split(':').next().unwrap_or(addr)).collect()
}

#[test]
fn nodes_whose_dns_fills_up_slowly_found_one_cluster() {
    let Some(network) = hosts(3) else { return };
    let (namespaces, ips) = (&network.namespaces, ips(&network));
    let servers: Vec<NameServer> = namespaces.iter().map(|at| NameServer::start(at)).collect();
    let tell = |host: usize, addrs: &[&str]| {
        servers[host].tell(addrs);
        servers[host].knows(&namespaces[host], "pods", addrs);
    };
    for (host, ip) in ips.iter().enumerate() {
        servers[host].knows(&namespaces[host], "up", &["127.0.0.9"]);
        tell(host, &[ip]);
    }
    let nodes: Vec<Node> = (0..3)
        .map(|host| Node::start(&namespaces[host], &network.addrs[host], &servers[host].resolver()))
        .collect();
    // No node founds in that time.
    let says_nothing = |nodes: &[Node], span| {
        for (node, limit) in nodes.iter().zip([span, Duration::ZERO, Duration::ZERO]) {
            assert_eq!(node.next_line(limit), Err(RecvTimeoutError::Timeout));
        }
    };
    says_nothing(&nodes, ALONE);
    // Two nodes of three are not enough either.
    for host in [0, 1] {
        tell(host, &ips[..2]);
    }
    says_nothing(&nodes, RESOLVED_AGAIN + ALONE);
    for host in 0..3 {
        tell(host, &ips);
    }
    for node in &nodes {
        let line = node.next_line(HANG).expect("it joins");
        assert!(line.contains("joined as"), "{line}");
    }
    let sees = |host: usize| sees_all(&namespaces[host], &network.addrs[host], &network.addrs);
    assert!((0..3).all(sees));
}

/// The node's only seed has one address at first, and four addresses later.
#[test]
fn a_node_whose_name_resolves_to_more_seeds_warns_once_that_it_expects_too_few() {
    const WAITS: &str = "INFO joining: waiting for";
    const LOW: &str = "WARN expects at most half of its seeds";
    let Some(network) = hosts(1) else { return };
    let (namespace, addr) = (&network.namespaces[0], &network.addrs[0]);
    let server = NameServer::start(namespace);
    let tell = |addrs: &[&str]| {
        server.tell(addrs);
        server.knows(namespace, "pods", addrs);
    };
    server.knows(namespace, "up", &["127.0.0.9"]);
    let [own] = ips(&network)[..] else { panic!("one host") };
    tell(&[own]);
    let node = Node::logging(namespace, addr, &server.resolver(), "2");
    let lines = node.lines_to(WAITS);
    assert!(lines.iter().all(|line| !line.contains(LOW)), "{lines:?}");
    tell(&[own, "10.77.0.7", "10.77.0.8", "10.77.0.9"]);
    let lines = node.lines_to(LOW);
    assert!(lines.last().is_some_and(|line| line.contains("expect=2 seeds=4")), "{lines:?}");
    // The node resolves its seeds each time that it prints that it waits.
    let more = [node.lines_to(WAITS), node.lines_to(WAITS)].concat();
    assert!(more.iter().all(|line| !line.contains(LOW)), "{more:?}");
}
