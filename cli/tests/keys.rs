//! Cluster keys on the command line: `keygen`, key files, `status` and a rotation by SIGHUP, with
//! the real program.

#[path = "../../tests/support/ports.rs"]
mod ports;

use rustix::process::{Pid, Signal, kill_process};
use std::fs::{OpenOptions, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

/// A guard against hangs, far above the time of any step here.
const HANG: Duration = Duration::from_secs(120);

/// A directory that is removed when the test ends.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        let name = format!("elderlock-cli-{name}-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        let _ = std::fs::remove_dir_all(&path);
        std::fs::create_dir_all(&path).expect("it can be made");
        Scratch(path)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn elderlock(args: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear().args(args);
    command
}

fn said(output: &Output) -> String {
    String::from_utf8([output.stdout.as_slice(), &output.stderr].concat()).expect("text")
}

fn keygen(path: &Path) -> Output {
    let path = path.to_str().expect("text");
    elderlock(&["keygen", "--out", path]).output().expect("it can be started")
}

fn write(path: &Path, text: &str) {
    let mut options = OpenOptions::new();
    options.write(true).create(true).truncate(true).mode(0o600);
    let mut file = options.open(path).expect("a file");
    file.write_all(text.as_bytes()).expect("it can be written");
}

fn read(path: &Path) -> String {
    std::fs::read_to_string(path).expect("it is there").trim().to_owned()
}

/// A node that ends with this value.
struct Node {
    child: Child,
    lines: Receiver<String>,
}

fn free_addr() -> String {
    ports::free(1)[0].to_string()
}

impl Node {
    fn start(key_file: &Path) -> Node {
        let args = ["node", "--cluster", "shop", "--found", "--timing", "fast", "--key-file"];
        let mut command = elderlock(&args);
        command.arg(key_file).args(["--bind", &free_addr()]);
        Node::spawn(command)
    }

    fn spawn(mut command: Command) -> Node {
        command.stdout(Stdio::piped());
        let mut child = command.spawn().expect("it can be started");
        let (sender, lines) = channel();
        let output = BufReader::new(child.stdout.take().expect("it was piped"));
        let mut read = output.lines().map_while(Result::ok);
        std::thread::spawn(move || read.try_for_each(|line| sender.send(line)));
        Node { child, lines }
    }

    /// The next line that begins with `start`.
    fn until(&self, start: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(HANG);
            let line = line.unwrap_or_else(|_| panic!("it never says {start:?}"));
            // The text follows the time.
            let text = line.split_once(' ').map_or("", |(_, text)| text);
            if text.starts_with(start) {
                return text.to_owned();
            }
        }
    }

    fn hang_up(&self) {
        kill_process(Pid::from_child(&self.child), Signal::HUP).expect("it runs");
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn status(at: &str, key: &[(&str, &str)]) -> (String, bool) {
    let mut command = elderlock(&["status", "--cluster", "shop", "--at", at]);
    let output = command.envs(key.iter().copied()).output().expect("it can be started");
    (said(&output), output.status.success())
}

#[test]
fn a_key_is_made_once_and_for_its_owner_alone() {
    let scratch = Scratch::new("keygen");
    let path = scratch.file("key");
    let output = keygen(&path);
    assert!(output.status.success(), "{}", said(&output));
    let key = read(&path);
    assert!(key.len() == 44 && !said(&output).contains(&key), "the key is not shown");
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
    assert!(!keygen(&path).status.success(), "a key is not written over");
    assert_eq!(read(&path), key);
    let printed = elderlock(&["keygen"]).output().expect("it can be started");
    assert_eq!(said(&printed).trim().len(), 44);
}

#[test]
fn a_key_file_that_others_read_or_that_has_no_key_is_refused_with_the_reason() {
    let scratch = Scratch::new("refused");
    let path = scratch.file("key");
    keygen(&path);
    let refused = |why: &str, more: &[&str]| {
        let mut command = elderlock(&["node", "--found", "--bind", "127.0.0.1:0", "--key-file"]);
        command.arg(&path).args(more);
        let output = command.output().expect("it can be started");
        assert!(!output.status.success() && said(&output).contains(why), "{}", said(&output));
    };
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it is ours");
    refused("0644", &[]);
    std::fs::set_permissions(&path, Permissions::from_mode(0o640)).expect("it is ours");
    refused("--insecure is for a cluster without a key", &["--insecure"]);
    write(&path, "no key\n");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("it is ours");
    refused("elderlock keygen", &[]);
}

#[test]
fn a_node_reads_its_key_file_again_and_refuses_the_old_key_afterwards() {
    let scratch = Scratch::new("rotation");
    let (path, other) = (scratch.file("key"), scratch.file("other"));
    keygen(&path);
    keygen(&other);
    let (old, new) = (read(&path), read(&other));
    let node = Node::start(&path);
    let joined = node.until("joined as");
    let at = joined.rsplit(' ').next().expect("an address");
    assert!(status(at, &[("ELDERLOCK_KEY", &old)]).1);
    let (text, is_answered) = status(at, &[("ELDERLOCK_KEY", &new)]);
    assert!(!is_answered && text.contains("does not have the key"), "{text}");
    let (text, is_answered) = status(at, &[]);
    assert!(!is_answered && text.contains("give this process the key file"), "{text}");

    for keys in [format!("{old}\n{new}\n"), format!("{new}\n{old}\n")] {
        write(&path, &keys);
        node.hang_up();
        node.until("read ");
        for key in [&old, &new] {
            assert!(status(at, &[("ELDERLOCK_KEY", key)]).1);
        }
    }
    write(&path, "no key\n");
    node.hang_up();
    assert!(node.until("keys unchanged").contains("not base64"));
    write(&path, &new);
    node.hang_up();
    node.until("read ");
    assert!(!status(at, &[("ELDERLOCK_KEY", &old)]).1);
    let file = path.to_str().expect("text");
    assert!(status(at, &[("ELDERLOCK_KEY_FILE", file)]).1);
}

#[test]
fn the_command_under_a_lock_does_not_get_the_key() {
    let scratch = Scratch::new("lock");
    let path = scratch.file("key");
    keygen(&path);
    let (key, addr) = (read(&path), free_addr());
    let args = ["node", "--found", "--timing", "wan", "--serve-sessions", "--bind", &addr];
    let mut node = elderlock(&args);
    node.env("ELDERLOCK_KEY", &key);
    let node = Node::spawn(node);
    node.until("joined as");
    let mut lock = elderlock(&["lock", "job", "--at", &addr, "--", "env"]);
    let output = lock.env("ELDERLOCK_KEY", &key).output().expect("it can be started");
    let text = said(&output);
    assert!(output.status.success() && text.contains("ELDERLOCK_TOKEN="), "{text}");
    assert!(!text.contains("ELDERLOCK_KEY"), "{text}");
}

#[test]
fn a_key_file_named_in_the_configuration_is_used_and_read_again() {
    let scratch = Scratch::new("config");
    let (path, other, config) =
        (scratch.file("key"), scratch.file("other"), scratch.file("node.toml"));
    keygen(&path);
    keygen(&other);
    let (first, second) = (read(&path), read(&other));
    let addr = free_addr();
    let settings = format!(
        "cluster = 'shop'\nbind = '{addr}'\nfound = true\ntiming = 'fast'\nkey_file = '{}'\n",
        path.display()
    );
    write(&config, &settings);
    let config = config.to_str().expect("text");
    let node = Node::spawn(elderlock(&["node", "--config", config]));
    node.until("joined as");
    assert!(status(&addr, &[("ELDERLOCK_KEY", &first)]).1);
    assert!(!status(&addr, &[]).1, "without the key it tells nothing");
    write(&path, &second);
    node.hang_up();
    node.until("read ");
    assert!(status(&addr, &[("ELDERLOCK_KEY", &second)]).1);
    assert!(!status(&addr, &[("ELDERLOCK_KEY", &first)]).1);
    drop(node);

    // A flag wins over the file's setting. A key file that others can read is refused as with the
    // flag.
    std::fs::set_permissions(&path, Permissions::from_mode(0o644)).expect("it is ours");
    let output = elderlock(&["node", "--config", config]).output().expect("it can be started");
    assert!(!output.status.success() && said(&output).contains("0644"), "{}", said(&output));
    let mut command = elderlock(&["node", "--config", config, "--key-file"]);
    command.arg(&other);
    Node::spawn(command).until("joined as");
}

/// Returns whether this process ignores SIGHUP. The processes that it starts inherit that.
fn ignores_hang_up() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:\t"));
    mask.and_then(|mask| u64::from_str_radix(mask, 16).ok()).is_some_and(|mask| mask & 1 == 1)
}

/// The flag, the variables and the configuration file have different keys.
#[test]
fn a_flag_wins_over_variables_with_keys_and_these_over_the_configuration_file() {
    let scratch = Scratch::new("sources");
    let [path, other, config] = ["key", "other", "node.toml"].map(|name| scratch.file(name));
    keygen(&path);
    keygen(&other);
    let (of_file, of_variable) = (read(&path), read(&other));
    let file = path.to_str().expect("text");
    let addr = free_addr();
    let common = format!("cluster = 'shop'\nbind = '{addr}'\nfound = true\ntiming = 'fast'\n");
    write(&config, &format!("{common}key_file = '{file}'\n"));
    let node = |more: &[&str], envs: &[(&str, &str)]| {
        let mut command = elderlock(&["node", "--config", config.to_str().expect("text")]);
        command.args(more).envs(envs.iter().copied());
        command
    };
    let has_key = |key: &str| status(&addr, &[("ELDERLOCK_KEY", key)]).1;

    let mut by_variable = Node::spawn(node(&[], &[("ELDERLOCK_KEY", &of_variable)]));
    by_variable.until("joined as");
    assert!(has_key(&of_variable) && !has_key(&of_file));
    // The flag of another command also wins over the variable.
    let mut asks = elderlock(&["status", "--cluster", "shop", "--at", &addr, "--key-file"]);
    let asked = asks.arg(&other).env("ELDERLOCK_KEY", &of_file).output().expect("it starts");
    assert!(asked.status.success(), "{}", said(&asked));
    // The node has no file to read again, so a SIGHUP ends it. Under `nohup` the tests and their
    // processes ignore SIGHUP.
    if !ignores_hang_up() {
        by_variable.hang_up();
        assert_eq!(by_variable.child.wait().expect("it ends").code(), None);
    }
    drop(by_variable);

    let by_flag = Node::spawn(node(&["--key-file", file], &[("ELDERLOCK_KEY", &of_variable)]));
    by_flag.until("joined as");
    assert!(has_key(&of_file) && !has_key(&of_variable));
    drop(by_flag);

    let both = [("ELDERLOCK_KEY_FILE", file), ("ELDERLOCK_KEY", of_variable.as_str())];
    let mut asks = elderlock(&["status", "--at", &addr]);
    for command in [&mut node(&[], &both), asks.envs(both)] {
        let output = command.output().expect("it can be started");
        let text = said(&output);
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains("both ELDERLOCK_KEY_FILE and ELDERLOCK_KEY are set"), "{text}");
    }
}

#[test]
fn the_key_of_a_role_does_what_the_role_allows_and_nothing_else() {
    let scratch = Scratch::new("roles");
    let path = scratch.file("key");
    keygen(&path);
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let key_file = text(&path);
    let node = Node::start(&path);
    let joined = node.until("joined as");
    let at = joined.rsplit(' ').next().expect("an address");
    for role in ["observer", "operator"] {
        let role_file = text(&scratch.file(role));
        let derive = ["keygen", "--derive", role, "--key-file", &key_file];
        let output = elderlock(&derive).args(["--out", &role_file]).output().expect("it starts");
        assert!(output.status.success(), "{}", said(&output));
        let key = read(&scratch.file(role));
        assert!(key.starts_with(&format!("{role}:")) && !key.contains(&read(&path)));
        let again = elderlock(&derive).output().expect("it starts");
        assert_eq!(said(&again).trim(), key, "the same key each time");

        let (text, is_answered) = status(at, &[("ELDERLOCK_KEY_FILE", &role_file)]);
        assert!(is_answered && text.contains("lease    runs"), "{text}");
        let key_file = ["--key-file", role_file.as_str()];
        let mut joins =
            elderlock(&["node", "--cluster", "shop", "--seed", at, "--bind", "127.0.0.1:0"]);
        let output = joins.args(key_file).output().expect("it can be started");
        assert!(!output.status.success(), "{}", said(&output));
        assert!(said(&output).contains(&format!("an {role} key, which may ask for the status")));
        let mut revoke =
            elderlock(&["revoke", "--cluster", "shop", "--at", at, "--service", "stock", "a"]);
        let output = revoke.args(key_file).output().expect("it can be started");
        let (said, code) = (said(&output), output.status.code());
        if role == "operator" {
            let text = "elderlock: there is no service stock: no member uses it\n";
            assert_eq!((said.as_str(), code), (text, Some(4)));
        } else {
            assert!(said.contains("an observer key: it may ask for the status"), "{said}");
            assert_eq!(code, Some(2));
        }
    }
    let operator = text(&scratch.file("operator"));
    let derive = ["keygen", "--derive", "observer", "--key-file", &operator];
    let output = elderlock(&derive).output().expect("it starts");
    assert!(said(&output).contains("an operator key derives no observer key"), "{}", said(&output));
    for half in [&["keygen", "--derive", "observer"][..], &["keygen", "--key-file", &key_file]] {
        assert!(!elderlock(half).output().expect("it starts").status.success());
    }
}
