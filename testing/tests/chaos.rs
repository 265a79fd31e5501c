//! The report of a run that fails, and how to repeat the run.

use elderlock_testing::{ChaosFailure, Cluster, chaos};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::time::{Instant, sleep};

const SECOND: Duration = Duration::from_secs(1);

/// A program that fails as soon as its process was stopped for five seconds.
async fn never_stops(cluster: Cluster) {
    cluster.run_on_each(|number, _| async move {
        loop {
            let slept = Instant::now();
            sleep(SECOND).await;
            assert!(slept.elapsed() < 5 * SECOND, "process {number} was stopped");
        }
    });
    cluster.healed().await;
}

fn search(seeds: u64) -> Option<ChaosFailure> {
    chaos(|cluster, _| never_stops(cluster)).seeds(seeds).search()
}

#[test]
fn the_first_failure_is_shrunk_to_the_fault_that_it_needs() {
    let failure = search(50).expect("some seed stops a process");
    assert_eq!(failure.faults().len(), 1, "{failure}");
    assert!(failure.repeats(), "{failure}");
    let text = failure.to_string();
    let lines: Vec<&str> = text.lines().filter(|line| line.starts_with("* fault")).collect();
    assert!(matches!(lines[..], [line] if line.contains("stop of member")), "{text}");
    for part in ["was stopped, at testing/tests/chaos.rs:", "is stopped", "goes on", "Again: "] {
        assert!(text.contains(part), "{part} is not in {text}");
    }
    let again = search(50).expect("the same seed");
    assert_eq!(text, again.to_string());
    assert!(search(failure.seed() - 1).is_none(), "a lower seed fails too");
}

#[test]
#[should_panic(expected = "was stopped")]
fn a_failure_is_the_message_of_a_panic() {
    chaos(|cluster, _| never_stops(cluster)).seeds(50).run();
}

#[test]
fn an_error_of_the_test_is_a_failure_that_needs_no_fault() {
    let failure = chaos(|_, seed| async move { if seed == 3 { Err("three") } else { Ok(()) } })
        .seeds(10)
        .search()
        .expect("seed 3 fails");
    assert_eq!((failure.seed(), failure.reason(), failure.faults()), (3, "three", &[][..]));
}

/// A program with a chance of its own is reported as such.
#[test]
fn a_run_that_does_not_repeat_says_so() {
    static RUNS: AtomicU64 = AtomicU64::new(0);
    let failure = chaos(|cluster, _| async move {
        cluster.note(RUNS.fetch_add(1, Ordering::Relaxed));
        Err::<(), _>("always")
    })
    .seeds(1)
    .search()
    .expect("it always fails");
    assert!(!failure.repeats());
    assert!(failure.to_string().contains("a chance of its own"));
}

/// After the faults of any seed every member is back.
#[test]
fn a_healed_cluster_grants_to_every_member() {
    chaos(|cluster, _| async move {
        cluster.healed().await;
        for number in 0..cluster.size() {
            let stock = cluster.joined(number).await.lock_service("inventory").await;
            let guard = stock.expect("a name").lock("sku-42").wait(20 * SECOND).await;
            guard.map(drop).map_err(|error| format!("member {number}: {error}"))?;
        }
        Ok::<(), String>(())
    })
    .members(5)
    .seeds(20)
    .run();
}

/// The next test runs this test, with variables.
#[test]
fn environment_probe() {
    if std::env::var_os("ELDERLOCK_TESTING_PROBE").is_some() {
        chaos(|cluster, seed| async move {
            let faults = cluster.clone();
            faults.healed().await;
            println!("ran seed {seed}");
        })
        .members(1)
        .seeds(2)
        .run();
    }
}

#[test]
fn the_environment_repeats_a_seed_and_raises_the_number() {
    let probe = |name: &str, value: &str| {
        let this = std::env::current_exe().expect("this program");
        let run = Command::new(this)
            .args(["environment_probe", "--exact", "--nocapture", "--test-threads=1"])
            .env("ELDERLOCK_TESTING_PROBE", "1")
            .env(name, value)
            .output()
            .expect("it runs again");
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        (run.status.success(), text.matches("ran seed").count(), text.contains("ran seed 17"))
    };
    assert_eq!(probe("ELDERLOCK_TESTING_SEED", "17"), (true, 1, true));
    assert_eq!(probe("ELDERLOCK_TESTING_SEEDS", "5"), (true, 5, false));
    assert_eq!(probe("ELDERLOCK_TESTING_FAULTS", "none"), (true, 2, false));
    assert_eq!(probe("ELDERLOCK_TESTING_SEED", "seventeen"), (false, 0, false));
}
