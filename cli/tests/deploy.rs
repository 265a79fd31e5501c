//! The files of `deploy` and the command lines of the guide, beside the real program: types of
//! Kubernetes, flags, probes, and three members that run as the pods do.
#![cfg(unix)]

use k8s_openapi::api::apps::v1::StatefulSet;
use k8s_openapi::api::core::v1::{Container, Probe, Service};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A guard against hanging, far above what anything takes here.
const HANG: Duration = Duration::from_secs(120);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("it is in the repository")
}

fn read(path: &str) -> String {
    std::fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

fn elderlock() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_elderlock"));
    command.env_clear();
    command
}

/// The documents of a file of YAML.
fn documents(text: &str) -> Vec<Value> {
    use serde::Deserialize as _;
    serde_norway::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("it is YAML"))
        .collect()
}

/// The document as Kubernetes reads it. A field that its type does not have is an error.
fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(document: &Value) -> Result<T, String> {
    let value: T = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let again = serde_json::to_value(&value).map_err(|error| error.to_string())?;
    match unknown("", document, &again) {
        Some(place) => Err(format!("{place} is not a field")),
        None => Ok(value),
    }
}

/// The first place of `given` that has not come through.
fn unknown(place: &str, given: &Value, kept: &Value) -> Option<String> {
    match (given, kept) {
        (Value::Object(given), Value::Object(kept)) => given.iter().find_map(|(name, value)| {
            let place = format!("{place}/{name}");
            match kept.get(name) {
                Some(kept) => unknown(&place, value, kept),
                None => Some(place),
            }
        }),
        (Value::Array(given), Value::Array(kept)) if given.len() == kept.len() => {
            let mut pairs = given.iter().zip(kept).enumerate();
            pairs.find_map(|(at, (given, kept))| unknown(&format!("{place}/{at}"), given, kept))
        }
        _ => (given != kept).then(|| place.to_owned()),
    }
}

/// Checks a document by its kind.
fn check(document: &Value) -> Result<(), String> {
    match document["kind"].as_str() {
        Some("Service") => typed::<Service>(document).map(drop),
        Some("PodDisruptionBudget") => typed::<PodDisruptionBudget>(document).map(drop),
        Some("StatefulSet") => typed::<StatefulSet>(document).map(drop),
        other => Err(format!("no document of the kind {other:?} is expected")),
    }
}

fn kubernetes() -> Vec<Value> {
    documents(&read("deploy/kubernetes.yaml"))
}

/// The StatefulSet and its only container.
fn stateful_set() -> (StatefulSet, Container) {
    let documents = kubernetes();
    let document = documents.iter().find(|document| document["kind"] == "StatefulSet");
    let set: StatefulSet = typed(document.expect("there is one")).expect("it has its type");
    let pod = set.spec.as_ref().expect("a spec").template.spec.clone().expect("a pod");
    let [container] = <[Container; 1]>::try_from(pod.containers).expect("one container");
    (set, container)
}

#[test]
fn every_document_of_kubernetes_has_its_type() {
    let documents = kubernetes();
    let kinds: Vec<&Value> = documents.iter().map(|document| &document["kind"]).collect();
    assert_eq!(kinds, ["Service", "PodDisruptionBudget", "StatefulSet"]);
    for document in &documents {
        assert_eq!(check(document), Ok(()), "{}", document["kind"]);
    }
}

#[test]
fn a_wrong_field_and_a_wrong_type_are_found() {
    let text = read("deploy/kubernetes.yaml");
    for (right, wrong) in [
        ("publishNotReadyAddresses:", "publishNotReadyAdresses:"),
        ("maxUnavailable: 1", "maxUnavailable: [1]"),
        ("defaultMode:", "mode:"),
        ("replicas: 3", "replicas: three"),
        ("fsGroup:", "fsgroup:"),
        ("apps/v1", "apps/v1beta1"),
        ("kind: Service", "kind: Servics"),
        ("failureThreshold:", "failures:"),
        ("startupProbe:", "startProbe:"),
    ] {
        let broken = text.replace(right, wrong);
        assert_ne!(broken, text, "{right} is not there");
        assert!(documents(&broken).iter().any(|document| check(document).is_err()), "{wrong}");
    }
}

#[test]
fn one_member_at_a_time_is_disrupted_and_all_are_found_before_they_are_ready() {
    let [service, budget, _] = <[Value; 3]>::try_from(kubernetes()).expect("three documents");
    let service = typed::<Service>(&service).expect("its type").spec.expect("a spec");
    assert_eq!(service.cluster_ip.as_deref(), Some("None"));
    assert_eq!(service.publish_not_ready_addresses, Some(true));
    let budget = typed::<PodDisruptionBudget>(&budget).expect("its type").spec.expect("a spec");
    assert_eq!(budget.max_unavailable, Some(IntOrString::Int(1)));
    let (set, container) = stateful_set();
    let name = set.metadata.name.expect("a name");
    let spec = set.spec.expect("a spec");
    assert_eq!(spec.pod_management_policy.as_deref(), Some("Parallel"));
    assert_eq!(budget.selector, Some(spec.selector.clone()));
    assert_eq!(service.selector, spec.selector.match_labels);

    // A seed for each pod, by its own name.
    let service = spec.service_name.expect("a name");
    let replicas = spec.replicas.expect("a number");
    let seeds: Vec<String> =
        (0..replicas).map(|pod| format!("{name}-{pod}.{service}:7400")).collect();
    let env = |name: &str| {
        let mut variables = container.env.iter().flatten();
        variables.find(|variable| variable.name == name).and_then(|found| found.value.clone())
    };
    assert_eq!(env("ELDERLOCK_SEEDS"), Some(seeds.join(",")));
    // No pod founds without the others.
    assert_eq!(env("ELDERLOCK_EXPECT"), Some(replicas.to_string()));

    // The mode that the key file may have, for the group of the process.
    let pod = spec.template.spec.expect("a pod");
    let security = pod.security_context.expect("one");
    assert_eq!((security.fs_group, security.run_as_group), (Some(65532), Some(65532)));
    let secret = pod.volumes.iter().flatten().find_map(|volume| volume.secret.clone());
    assert_eq!(secret.expect("the key").default_mode, Some(0o440));

    // No probe restarts a member that waits for the others.
    let path = |probe: &Option<Probe>| {
        let probe = probe.clone().expect("it has the probe");
        let seconds = probe.period_seconds.unwrap_or(10) * probe.failure_threshold.unwrap_or(3);
        let get = probe.http_get.expect("it asks over HTTP");
        assert_eq!(get.port, IntOrString::String("http".to_owned()));
        (get.path.expect("a path"), seconds)
    };
    let (start, seconds) = path(&container.startup_probe);
    let joins: i32 = env("ELDERLOCK_JOIN_SECONDS").expect("it is set").parse().expect("a number");
    assert!(start == "/live" && seconds > joins, "{start} {seconds}");
    assert_eq!(path(&container.liveness_probe).0, "/live");
    assert_eq!(path(&container.readiness_probe).0, "/ready");
}

/// A process that ends with this.
struct Node {
    child: Child,
    http: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Node {
    /// The status of the answer; `None` if it does not answer.
    fn get(&self, path: &str) -> Option<u16> {
        let mut stream = TcpStream::connect(&self.http).ok()?;
        stream.set_read_timeout(Some(HANG)).ok()?;
        let host = &self.http;
        let request = format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).ok()?;
        let mut text = String::new();
        stream.read_to_string(&mut text).ok()?;
        text.get(9..12)?.parse().ok()
    }

    fn until_ready(&mut self) {
        let start = Instant::now();
        while self.get("/ready") != Some(200) {
            assert!(start.elapsed() < HANG, "{} is never ready", self.http);
            assert_eq!(self.child.try_wait().expect("it can be asked"), None, "it has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A directory that ends with this.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The members run with the arguments and the variables of the StatefulSet. Only addresses and
/// paths are those of this machine: each pod has an address of the loopback network.
#[cfg(target_os = "linux")]
#[test]
fn three_members_that_run_as_the_pods_do_are_ready_and_leave_at_a_sigterm() {
    let dir = std::env::temp_dir().join(format!("elderlock-deploy-{}", std::process::id()));
    let scratch = Scratch(dir.clone());
    std::fs::create_dir_all(&dir).expect("it can be made");
    let key = dir.join("cluster.key");
    let made = elderlock().args(["keygen", "--out"]).arg(&key).output().expect("it starts");
    assert!(made.status.success(), "{made:?}");
    let (set, container) = stateful_set();
    let name = set.metadata.name.clone().expect("a name");
    let service = set.spec.as_ref().and_then(|spec| spec.service_name.clone()).expect("a name");

    // Other runs of this test have another network.
    let id = std::process::id();
    let net = format!("127.{}.{}", 1 + (id >> 8) % 250, id % 256);
    let here = |text: &str, pod: usize| {
        let mut text = text.replace("0.0.0.0", "$(POD_IP)");
        for other in 0..3 {
            let host = format!("{name}-{other}.{service}");
            text = text.replace(&host, &format!("{net}.{}", other + 1));
        }
        text.replace("$(POD_IP)", &format!("{net}.{}", pod + 1))
            .replace("/key/cluster.key", key.to_str().expect("text"))
            .replace("/data/", &format!("{}/{pod}-", dir.display()))
    };
    // A command in the container of a pod.
    let in_pod = |pod: usize| {
        let mut command = elderlock();
        for variable in container.env.iter().flatten() {
            match &variable.value {
                Some(value) => command.env(&variable.name, here(value, pod)),
                None if variable.name == "POD_IP" => &mut command,
                None if variable.name == "ELDERLOCK_NAME" => {
                    command.env(&variable.name, format!("{name}-{pod}"))
                }
                None => command.env(&variable.name, "a value of a secret"),
            };
        }
        command
    };
    let start = |pod: usize| {
        let mut command = in_pod(pod);
        command.args(container.args.iter().flatten().map(|arg| here(arg, pod)));
        let child = command.stdout(Stdio::piped()).spawn().expect("it starts");
        Node { child, http: format!("{net}.{}:7480", pod + 1) }
    };
    let mut nodes = [0, 1, 2].map(start);
    nodes.iter_mut().for_each(Node::until_ready);
    assert_eq!(nodes[0].get("/metrics"), Some(401), "the token is asked for");

    // The command lines of the guide.
    let of_pod = |line: &[String], pod: usize| {
        let line = line.iter().map(|word| here(&word.replace("127.0.0.1", "$(POD_IP)"), pod));
        let output = in_pod(pod).args(line).output().expect("it starts");
        (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let guide = command_lines(&read("docs/guide/kubernetes.md"));
    let asks = |line: &&Vec<String>| line.iter().any(|word| word == "--at");
    let lines: Vec<_> = guide.iter().filter(asks).collect();
    assert_eq!(lines.len(), 2, "status and members: {lines:?}");
    for line in lines {
        let (code, text) = of_pod(line, 0);
        let is_listed = |pod| text.contains(&format!("{name}-{pod} "));
        assert!(code == Some(0) && (0..3).all(is_listed), "{line:?}: {text}");
    }
    let order = |word: &str| {
        let line = format!("{word} --at 127.0.0.1:7400 --key-file /key/cluster.key");
        let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of_pod(&line, 1)
    };
    assert_eq!(order("status --ready"), (Some(0), "healthy\n".to_owned()));
    // As a preStop hook would.
    let (code, text) = order("leave");
    assert!(code == Some(0) && text.contains("has left"), "{text}");
    assert!(nodes[1].child.wait().expect("it ends").success());
    assert_eq!(order("status --ready").0, Some(2));
    nodes[1] = start(1);
    nodes[1].until_ready();

    let id = nodes[2].child.id().to_string();
    assert!(Command::new("kill").arg(&id).status().expect("it starts").success());
    let ended = nodes[2].child.wait().expect("it ends");
    let mut said = String::new();
    nodes[2].child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
    assert!(ended.success() && said.trim_end().ends_with(" left"), "{ended}: {said}");
    nodes[2] = start(2);
    nodes[2].until_ready();
    assert!(nodes.iter().all(|node| node.get("/live") == Some(200)));
    drop((nodes, scratch));
}

/// The command lines of the guide: of this machine, or in a pod.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.lines() {
        if line.starts_with("```") {
            is_code = line.trim_end() == "```sh";
        } else if is_code {
            let line = line.split(" #").next().unwrap_or_default();
            let line = line.split([';', '|', '>']).next().unwrap_or_default();
            let rest = line
                .split_once(" -- /elderlock ")
                .map(|(_, rest)| rest)
                .or_else(|| line.strip_prefix("elderlock "))
                .or_else(|| line.strip_prefix("cargo run --release -- "));
            if let Some(rest) = rest {
                found.push(rest.split_whitespace().map(|word| word.replace('"', "")).collect());
            }
        }
    }
    found
}

#[test]
fn every_command_line_of_the_guide_has_flags_that_exist() {
    let mut count = 0;
    for entry in std::fs::read_dir(root().join("docs/guide")).expect("it is there") {
        let path = entry.expect("an entry").path();
        let text = std::fs::read_to_string(&path).expect("text");
        for line in command_lines(&text) {
            // It is read up to here, and not carried out. Behind two dashes is another command.
            let own: Vec<&String> = line.iter().take_while(|word| *word != "--").collect();
            let output = elderlock().args(&own).arg("--help").output().expect("it starts");
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {line:?}: {said}", path.display());
            count += 1;
        }
    }
    assert!(count >= 15, "only {count} command lines");
}

#[test]
fn a_command_line_with_an_unknown_flag_is_found() {
    let text = "```sh\nkubectl exec pod-0 -- /elderlock status --att 1 # it\n```\n`elderlock x`";
    let lines = command_lines(text);
    assert_eq!(lines, [["status", "--att", "1"]]);
    let output = elderlock().args(&lines[0]).arg("--help").output().expect("it starts");
    assert!(!output.status.success());
}
