//! Checks the files of `deploy` and the command lines of the guide with the real program. The tests
//! check Kubernetes types, flags and probes, and run three members as the pods do.
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

/// A guard against hangs, far above the time of any step here.
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

/// The documents of a YAML file.
fn documents(text: &str) -> Vec<Value> {
    use serde::Deserialize as _;
    serde_norway::Deserializer::from_str(text)
        .map(|document| Value::deserialize(document).expect("it is YAML"))
        .collect()
}

/// The document as Kubernetes reads it. A field that its type lacks is an error.
fn typed<T: serde::de::DeserializeOwned + serde::Serialize>(document: &Value) -> Result<T, String> {
    let value: T = serde_json::from_value(document.clone()).map_err(|error| error.to_string())?;
    let again = serde_json::to_value(&value).map_err(|error| error.to_string())?;
    match unknown("", document, &again) {
        Some(place) => Err(format!("{place} is not a field")),
        None => Ok(value),
    }
}

/// The path of the first field of `given` that `kept` lacks.
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

/// Checks a document by its kind, and its values.
fn check(document: &Value) -> Result<(), String> {
    match document["kind"].as_str() {
        Some("Service") => typed::<Service>(document).map(drop),
        Some("PodDisruptionBudget") => typed::<PodDisruptionBudget>(document).map(drop),
        Some("StatefulSet") => typed::<StatefulSet>(document).map(drop),
        other => Err(format!("no document of the kind {other:?} is expected")),
    }?;
    let mut names = Names::default();
    names.collect(document);
    check_values("", document, &names)
}

/// The words that Kubernetes accepts in these fields, whose types take any text.
const WORDS: [(&str, &[&str]); 8] = [
    ("accessModes", &["ReadWriteOnce", "ReadWriteOncePod", "ReadOnlyMany", "ReadWriteMany"]),
    ("drop", &["ALL"]),
    ("fieldPath", &["metadata.name", "metadata.namespace", "status.podIP", "spec.nodeName"]),
    ("fsGroupChangePolicy", &["OnRootMismatch", "Always"]),
    ("podManagementPolicy", &["OrderedReady", "Parallel"]),
    ("protocol", &["TCP", "UDP", "SCTP"]),
    ("type", &["RuntimeDefault", "Localhost", "Unconfined"]),
    ("whenUnsatisfiable", &["DoNotSchedule", "ScheduleAnyway"]),
];

/// The names to which other parts of the document may refer.
#[derive(Default)]
struct Names {
    ports: Vec<String>,
    volumes: Vec<String>,
    variables: Vec<String>,
}

impl Names {
    fn collect(&mut self, value: &Value) {
        if let Value::Object(fields) = value {
            for (field, part) in fields {
                let names = match field.as_str() {
                    "ports" => &mut self.ports,
                    "volumes" => &mut self.volumes,
                    "env" => &mut self.variables,
                    "volumeClaimTemplates" => {
                        let named = part.as_array().into_iter().flatten();
                        let named = named.filter_map(|claim| claim["metadata"]["name"].as_str());
                        self.volumes.extend(named.map(str::to_owned));
                        continue;
                    }
                    _ => {
                        self.collect(part);
                        continue;
                    }
                };
                let named = part.as_array().into_iter().flatten();
                names.extend(named.filter_map(|entry| entry["name"].as_str()).map(str::to_owned));
            }
        } else if let Value::Array(parts) = value {
            parts.iter().for_each(|part| self.collect(part));
        }
    }
}

/// Checks the values that the types leave open: words, numbers, quantities, names and references.
fn check_values(place: &str, value: &Value, names: &Names) -> Result<(), String> {
    let fields: Vec<(String, &Value)> = match value {
        Value::Object(fields) => fields.iter().map(|(name, part)| (name.clone(), part)).collect(),
        // The name of a list's field decides how the list is checked.
        Value::Array(parts) => {
            let field = place.rsplit('/').next().unwrap_or_default();
            parts.iter().map(|part| (field.to_owned(), part)).collect()
        }
        _ => Vec::new(),
    };
    for (field, part) in fields {
        let place = format!("{place}/{field}");
        let is_right = match (field.as_str(), part) {
            ("cpu" | "memory" | "storage", Value::String(text)) => is_quantity(text),
            ("periodSeconds" | "timeoutSeconds" | "failureThreshold" | "maxSkew", part) => {
                part.as_i64().is_some_and(|number| number >= 1)
            }
            ("containerPort", part) => part.as_u64().is_some_and(|port| (1..65536).contains(&port)),
            ("port" | "targetPort", Value::Number(port)) => {
                port.as_u64().is_some_and(|port| (1..65536).contains(&port))
            }
            ("port" | "targetPort", Value::String(name)) => names.ports.contains(name),
            ("defaultMode", part) => part.as_u64().is_some_and(|mode| mode <= 0o777),
            ("path" | "mountPath", Value::String(path)) => path.starts_with('/'),
            ("volumeMounts", mount) if mount.is_object() => {
                names.volumes.iter().any(|name| mount["name"] == **name)
            }
            ("env", variable) if variable.is_object() => {
                variable["value"].is_string() != variable["valueFrom"].is_object()
            }
            ("args", Value::String(text)) => text.split("$(").skip(1).all(|rest| {
                let name = rest.split(')').next().unwrap_or_default();
                names.variables.iter().any(|variable| variable == name)
            }),
            ("serviceName" | "secretName", Value::String(name)) => is_dns_name(name),
            ("metadata" | "volumes" | "ports" | "containers", named) => {
                named["name"].as_str().is_none_or(is_dns_name)
            }
            (field, Value::String(text)) => WORDS
                .iter()
                .find(|(known, _)| *known == field)
                .is_none_or(|(_, words)| words.contains(&text.as_str())),
            _ => true,
        };
        if !is_right {
            return Err(format!("{place} cannot be {part}"));
        }
        check_values(&place, part, names)?;
    }
    Ok(())
}

/// Returns whether the text is an amount as Kubernetes writes it: `100m`, `64Mi`, `2`.
fn is_quantity(text: &str) -> bool {
    let unit = text.trim_start_matches(|c: char| c.is_ascii_digit());
    unit.len() < text.len() && ["", "m", "k", "M", "G", "Ki", "Mi", "Gi"].contains(&unit)
}

/// Returns whether the text is a label of RFC 1123.
fn is_dns_name(name: &str) -> bool {
    let is_inner = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    (1..64).contains(&name.len())
        && name.chars().all(is_inner)
        && !name.starts_with('-')
        && !name.ends_with('-')
}

fn kubernetes() -> Vec<Value> {
    documents(&read("deploy/kubernetes.yaml"))
}

/// The value of a variable of the container. `None` if there is no such variable, or its value is a
/// reference.
fn variable(container: &Container, name: &str) -> Option<String> {
    let mut variables = container.env.iter().flatten();
    variables.find(|variable| variable.name == name).and_then(|found| found.value.clone())
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
fn a_wrong_field_a_wrong_type_and_a_wrong_value_are_found() {
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
        ("livenessProbe:", "liveProbe:"),
        ("protocol: UDP", "protocol: UPD"),
        ("Parallel", "Paralel"),
        ("DoNotSchedule", "DoNotShedule"),
        ("OnRootMismatch", "OnMismatch"),
        ("ReadWriteOnce", "ReadWriteOne"),
        ("RuntimeDefault", "Default"),
        ("[ALL]", "[EVERYTHING]"),
        ("status.podIP", "status.podAddr"),
        ("64Mi", "64MiB"),
        ("100m", "a tenth"),
        ("port: http", "port: web"),
        ("containerPort: 7480", "containerPort: 74800"),
        ("path: /live", "path: live"),
        ("periodSeconds: 10", "periodSeconds: 0"),
        ("defaultMode: 288", "defaultMode: 1440"),
        ("mountPath: /key", "mountPath: key"),
        ("- name: data\n              mountPath", "- name: disk\n              mountPath"),
        ("value: shop", "valueFrom: {}\n              value: shop"),
        ("$(POD_IP)", "$(POD_ADDR)"),
        ("serviceName: elderlock", "serviceName: Elderlock_1"),
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

    // The seeds are all pods, each by its own name.
    let service = spec.service_name.expect("a name");
    let replicas = spec.replicas.expect("a number");
    let seeds: Vec<String> =
        (0..replicas).map(|pod| format!("{name}-{pod}.{service}:7400")).collect();
    assert_eq!(variable(&container, "ELDERLOCK_SEEDS"), Some(seeds.join(",")));
    // All pods found the cluster together.
    assert_eq!(variable(&container, "ELDERLOCK_EXPECT"), Some(replicas.to_string()));

    // The key file is readable for the group of the process.
    let pod = spec.template.spec.expect("a pod");
    let security = pod.security_context.expect("one");
    assert_eq!((security.fs_group, security.run_as_group), (Some(65532), Some(65532)));
    let secret = pod.volumes.iter().flatten().find_map(|volume| volume.secret.clone());
    assert_eq!(secret.expect("the key").default_mode, Some(0o440));

    // No probe restarts a member that waits for the others: it counts as live before it has joined.
    let path = |probe: &Option<Probe>| {
        let get = probe.clone().and_then(|probe| probe.http_get).expect("it asks over HTTP");
        assert_eq!(get.port, IntOrString::String("http".to_owned()));
        get.path.expect("a path")
    };
    assert_eq!(path(&container.liveness_probe), "/live");
    assert_eq!(path(&container.readiness_probe), "/ready");
    assert_eq!(container.startup_probe, None);
}

/// A process that ends with this value.
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
    /// Performs the probe as it is written. `Some(true)` if the kubelet counts it as a success,
    /// `None` if nothing answers. A probe's command would run in the pod, by `in_pod`.
    fn probe(
        &self,
        probe: &Probe,
        container: &Container,
        in_pod: impl FnOnce(&[String]) -> bool,
    ) -> Option<bool> {
        if let Some(exec) = &probe.exec {
            return Some(in_pod(exec.command.as_deref().unwrap_or_default()));
        }
        let get = probe.http_get.as_ref().expect("it asks over HTTP or runs a command");
        assert!(get.scheme.is_none() && get.host.is_none() && get.http_headers.is_none());
        let port = match &get.port {
            IntOrString::Int(port) => *port,
            IntOrString::String(name) => {
                let mut ports = container.ports.iter().flatten();
                ports.find(|port| port.name.as_ref() == Some(name)).expect("a port").container_port
            }
        };
        let (_, own_port) = self.http.rsplit_once(':').expect("a port");
        assert_eq!(own_port, port.to_string(), "where HTTP listens");
        let status = self.get(get.path.as_deref().unwrap_or("/"))?;
        Some((200..400).contains(&status))
    }

    /// The status code of the answer. `None` if the member does not answer.
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

    /// Waits until `is_so` returns true for the node.
    fn until(&mut self, what: &str, is_so: impl Fn(&Node) -> bool) {
        let start = Instant::now();
        while !is_so(self) {
            assert!(start.elapsed() < HANG, "{} is never {what}", self.http);
            assert_eq!(self.child.try_wait().expect("it can be asked"), None, "it has ended");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A directory that is removed with this value.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The members run with the arguments and the variables of the StatefulSet. Only addresses and
/// paths are changed to those of this machine: each pod has an address of the loopback network.
#[cfg(target_os = "linux")]
#[test]
fn three_members_that_run_as_the_pods_do_are_ready_and_leave_by_hook_and_signal() {
    use std::os::unix::fs::PermissionsExt as _;
    let dir = std::env::temp_dir().join(format!("elderlock-deploy-{}", std::process::id()));
    let scratch = Scratch(dir.clone());
    std::fs::create_dir_all(&dir).expect("it can be made");
    let key = dir.join("cluster.key");
    let made = elderlock().args(["keygen", "--out"]).arg(&key).output().expect("it starts");
    assert!(made.status.success(), "{made:?}");
    // A replacement for the command of the guide's job.
    let report = dir.join("report.sh");
    std::fs::write(&report, "#!/bin/sh\necho \"token $ELDERLOCK_TOKEN\"\n").expect("text");
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(&report, mode).expect("it is ours");
    let (set, container) = stateful_set();
    let name = set.metadata.name.clone().expect("a name");
    let service = set.spec.as_ref().and_then(|spec| spec.service_name.clone()).expect("a name");

    // Each run of this test has a network of its own.
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
    // Builds a command with the environment of a pod's container.
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
    let probe = |node: &Node, probe: &Option<Probe>, pod: usize| {
        let probe = probe.as_ref().expect("it has the probe");
        node.probe(probe, &container, |command| {
            let (program, rest) = command.split_first().expect("a command");
            assert_eq!(program, "/elderlock", "the image has nothing else");
            in_pod(pod).args(rest).status().expect("it starts").success()
        })
    };
    let is_live = |node: &Node, pod| probe(node, &container.liveness_probe, pod) == Some(true);
    let is_ready = |node: &Node, pod| probe(node, &container.readiness_probe, pod) == Some(true);
    let until_ready = |node: &mut Node, pod| node.until("ready", |node| is_ready(node, pod));

    // The first pod waits for the others: it is live and not ready.
    let mut first = start(0);
    first.until("live", |node| is_live(node, 0));
    assert_eq!(probe(&first, &container.readiness_probe, 0), Some(false));
    let mut nodes = [first, start(1), start(2)];
    nodes.iter_mut().enumerate().for_each(|(pod, node)| until_ready(node, pod));
    assert_eq!(nodes[0].get("/metrics"), Some(401), "the token is asked for");

    // Runs a command line of the guide in a pod.
    let of_pod = |line: &[String], pod: usize| {
        let line = line.iter().map(|word| here(&word.replace("127.0.0.1", "$(POD_IP)"), pod));
        let output = in_pod(pod).args(line).output().expect("it starts");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let guide = command_lines(&read("docs/guide/kubernetes.md"));
    let asks = |line: &&Vec<String>| line.iter().any(|word| word == "--at");
    let (jobs, lines): (Vec<_>, Vec<_>) = guide.iter().filter(asks).partition(|line| is_lock(line));
    assert_eq!(lines.len(), 2, "status and members: {lines:?}");
    for line in lines {
        let (code, text) = of_pod(line, 0);
        let is_listed = |pod| text.contains(&format!("{name}-{pod} "));
        assert!(code == Some(0) && (0..3).all(is_listed), "{line:?}: {text}");
    }
    // A job runs in a pod of its own, without the variables of the members.
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    for line in jobs {
        let words = line.iter().map(|word| here(word, 0));
        let output = elderlock().args(words).current_dir(&dir).output().expect("it starts");
        let said = String::from_utf8_lossy(&output.stdout);
        let token = said.strip_prefix("token ").map(|token| token.trim_end().parse::<u64>());
        assert!(output.status.success() && matches!(token, Some(Ok(_))), "{line:?}: {output:?}");
    }
    let order = |word: &str| {
        let line = format!("{word} --at 127.0.0.1:7400 --key-file /key/cluster.key");
        let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
        of_pod(&line, 1)
    };
    assert_eq!(order("status --ready"), (Some(0), "healthy\n".to_owned()));
    // The hook alone ends a member. The process may end before the hook.
    let hook = container.lifecycle.as_ref().and_then(|cycle| cycle.pre_stop.as_ref());
    let hook = hook.and_then(|hook| hook.exec.as_ref()).and_then(|exec| exec.command.as_ref());
    let (program, hook) = hook.and_then(|hook| hook.split_first()).expect("a command");
    assert_eq!(program, "/elderlock", "the image has nothing else");
    let (code, text) = of_pod(hook, 1);
    assert!(code == Some(0) && text.contains("has left"), "{text}");
    assert!(nodes[1].child.wait().expect("it ends").success());
    assert_eq!(order("status --ready").0, Some(2));
    nodes[1] = start(1);
    until_ready(&mut nodes[1], 1);
    for (pod, node) in nodes.iter().enumerate() {
        assert!(is_live(node, pod), "pod {pod}");
    }

    // The end of a pod whose hook fails: SIGTERM, and SIGKILL after the grace period. The pods end
    // one after the other, as in a rolling update.
    let spec = set.spec.as_ref().and_then(|spec| spec.template.spec.as_ref()).expect("a pod");
    let grace = spec.termination_grace_period_seconds.expect("a number");
    let grace = Duration::from_secs(grace.try_into().expect("more than zero"));
    let end = |node: &mut Node| {
        let (id, began) = (node.child.id().to_string(), Instant::now());
        assert!(Command::new("kill").arg(&id).status().expect("it starts").success());
        let ended = node.child.wait().expect("it ends");
        let took = began.elapsed();
        let mut said = String::new();
        node.child.stdout.take().expect("piped").read_to_string(&mut said).expect("text");
        assert!(took < grace, "it ends after {took:?}, and is killed after {grace:?}");
        (ended.code(), said.lines().last().unwrap_or_default().to_owned())
    };
    for pod in [2, 0] {
        let (code, last) = end(&mut nodes[pod]);
        assert!(code == Some(0) && last.ends_with(" left"), "{code:?}: {last}");
        nodes[pod] = start(pod);
        until_ready(&mut nodes[pod], pod);
    }
    drop((nodes, scratch));
}

/// Returns whether a command line takes a lock for another command.
fn is_lock(line: &[String]) -> bool {
    line.first().is_some_and(|word| word == "lock")
}

/// The flags of a job's command, each with the variable of the members that has the same value.
const FLAGS_OF_JOBS: [(&str, &str); 3] = [
    ("--cluster", "ELDERLOCK_CLUSTER"),
    ("--at", "ELDERLOCK_SEEDS"),
    ("--key-file", "ELDERLOCK_KEY_FILE"),
];

/// The flags of a job's command that are missing, or differ from the variables of the members.
fn wrong_flags(line: &[String], container: &Container) -> Vec<&'static str> {
    let value = |flag: &str| {
        let at = line.iter().take_while(|word| *word != "--").position(|word| word == flag)?;
        line.get(at + 1).cloned()
    };
    let is_wrong = |(flag, name): &(&'static str, &str)| {
        let given = value(flag);
        given.is_none() || given != variable(container, name)
    };
    FLAGS_OF_JOBS.into_iter().filter(is_wrong).map(|(flag, _)| flag).collect()
}

#[test]
fn the_lock_of_a_job_names_the_cluster_the_members_and_the_key_of_the_manifest() {
    let (_, container) = stateful_set();
    let text = read("docs/guide/kubernetes.md");
    let lines = command_lines(&text);
    let jobs: Vec<_> = lines.iter().filter(|line| is_lock(line)).collect();
    assert_eq!(jobs.len(), 1, "{jobs:?}");
    for line in jobs {
        assert_eq!(wrong_flags(line, &container), Vec::<&str>::new(), "{line:?}");
    }
    // The commands in the text are checked, too.
    let cluster = variable(&container, "ELDERLOCK_CLUSTER");
    let named = text.split("--cluster ").skip(1).map(|rest| rest.split_whitespace().next());
    let named: Vec<Option<&str>> = named.collect();
    assert!(named.len() >= 2, "{named:?}");
    assert!(named.iter().all(|name| *name == cluster.as_deref()), "{named:?}: {cluster:?}");
}

#[test]
fn a_job_of_another_cluster_or_without_some_members_is_found() {
    let (_, container) = stateful_set();
    let wrong = |command: &str| {
        let lines = command_lines(&format!("```sh\nelderlock lock report {command}\n```"));
        assert!(is_lock(&lines[0]), "{lines:?}");
        wrong_flags(&lines[0], &container)
    };
    let value = |name: &str| variable(&container, name).expect("the manifest has it");
    let (seeds, key) = (value("ELDERLOCK_SEEDS"), value("ELDERLOCK_KEY_FILE"));
    let rest = format!("--at {seeds} --key-file {key} -- ./report.sh");
    assert_eq!(wrong(&format!("--cluster shop \\\n    {rest}")), Vec::<&str>::new());
    assert_eq!(wrong(&rest), ["--cluster"]);
    assert_eq!(wrong(&format!("--cluster elderlock {rest}")), ["--cluster"]);
    assert_eq!(wrong(&format!("{rest} --cluster shop")), ["--cluster"]);
    assert_eq!(
        wrong("--at elderlock-0.elderlock:7400 -- ./report.sh"),
        ["--cluster", "--at", "--key-file"]
    );
}

/// The command lines of the guide, for this machine or a pod. A continued line is one line.
fn command_lines(text: &str) -> Vec<Vec<String>> {
    let mut found = Vec::new();
    let mut is_code = false;
    for line in text.replace("\\\n", " ").lines() {
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
            // With `--help` the line is parsed and not carried out. The command after two dashes is
            // left out.
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
