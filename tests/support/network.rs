//! Network namespaces joined by a bridge in a namespace of its own. The host's network stays
//! untouched.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

/// The prefix of all names. The process number follows.
const PREFIX: &str = "elk-";

/// The namespaces of one test. The drop removes them.
pub(crate) struct Network {
    prefix: String,
    /// A namespace for each member; `addrs` is in the same order.
    pub(crate) namespaces: Vec<String>,
    /// `host:port` of each member.
    pub(crate) addrs: Vec<String>,
}

impl Network {
    /// Makes `size` namespaces that reach each other. The error tells why that is impossible here.
    pub(crate) fn new(size: usize) -> Result<Network, String> {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        if !cfg!(target_os = "linux") {
            return Err("they need Linux".into());
        }
        if !rustix::process::geteuid().is_root() {
            return Err("they need root".into());
        }
        if Command::new("ip").arg("-V").output().is_err() {
            return Err("there is no command `ip`".into());
        }
        sweep();
        let prefix =
            format!("{PREFIX}{}-{}-", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        // The value exists before its parts, so that its drop removes them if a later step fails.
        let mut network = Network { prefix, namespaces: Vec::new(), addrs: Vec::new() };
        network.build(size)?;
        Ok(network)
    }

    fn build(&mut self, size: usize) -> Result<(), String> {
        let hub = self.hub();
        if let Err(error) = ip(&format!("netns add {hub}")) {
            // Root in a container may lack the right to do it. Any other failure is not a reason to
            // skip.
            assert!(error.contains("not permitted") || error.contains("denied"), "{error}");
            return Err(error);
        }
        for bridge in ["together", "apart"] {
            must(&format!("-n {hub} link add {bridge} type bridge"));
            must(&format!("-n {hub} link set {bridge} up"));
        }
        for number in 0..size {
            let namespace = format!("{}{number}", self.prefix);
            must(&format!("netns add {namespace}"));
            self.namespaces.push(namespace.clone());
            must(&format!(
                "-n {hub} link add port{number} type veth peer name eth0 netns {namespace}"
            ));
            must(&format!("-n {hub} link set port{number} master together up"));
            must(&format!("-n {namespace} addr add {}/24 dev eth0", host(number)));
            must(&format!("-n {namespace} link set eth0 up"));
            must(&format!("-n {namespace} link set lo up"));
            self.addrs.push(format!("{}:7400", host(number)));
        }
        Ok(())
    }

    fn hub(&self) -> String {
        format!("{}hub", self.prefix)
    }

    /// Cuts these members off from the others, in both directions. Packets vanish silently.
    pub(crate) fn split(&self, apart: &[usize]) {
        for number in apart {
            must(&format!("-n {} link set port{number} master apart", self.hub()));
        }
    }

    /// Lets all packets from `from` to `to` vanish silently: they go to a station that does not
    /// exist.
    pub(crate) fn silence(&self, from: usize, to: usize) {
        let namespace = &self.namespaces[from];
        must(&format!(
            "-n {namespace} neigh replace {} lladdr 02:de:ad:00:00:01 dev eth0 nud permanent",
            host(to)
        ));
    }

    /// Restores all paths.
    pub(crate) fn heal(&self) {
        for (number, namespace) in self.namespaces.iter().enumerate() {
            must(&format!("-n {} link set port{number} master together", self.hub()));
            must(&format!("-n {namespace} neigh flush dev eth0 nud permanent"));
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for namespace in self.namespaces.iter().chain([&self.hub()]) {
            // The interfaces of a namespace are removed with it. Each removal is tried, even if
            // another failed.
            let _ = ip(&format!("netns del {namespace}"));
        }
    }
}

fn host(number: usize) -> String {
    format!("10.77.0.{}", number + 1)
}

/// Removes the remains of tests that were killed.
fn sweep() {
    let Ok(list) = ip("netns list") else { return };
    for name in list.lines().filter_map(|line| line.split(' ').next()) {
        let Some(pid) = name.strip_prefix(PREFIX).and_then(|rest| rest.split('-').next()) else {
            continue;
        };
        if !std::path::Path::new("/proc").join(pid).exists() {
            let _ = ip(&format!("netns del {name}"));
        }
    }
}

fn must(arguments: &str) {
    if let Err(error) = ip(arguments) {
        panic!("{error}");
    }
}

fn ip(arguments: &str) -> Result<String, String> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| error.to_string())?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
