//! Processes that fork after they have joined. The copy believes in no lock, is granted none and
//! sends nothing.
#![cfg(all(target_os = "linux", feature = "tokio"))]

mod support;

use support::cluster::Cluster;
use support::leases::Leases;
use support::process::{Peer, Process};
use support::rng::Rng;
use support::{fork, ports, wait};

/// Not a test: the program of a child process. Without the environment variable of a child it does
/// nothing.
#[test]
fn child_member() {
    support::child::serve();
}

/// The numbers of processes with a single-threaded and with a multi-threaded runtime:
/// `Process::start` alternates.
const ONE_THREAD: usize = 4;
const MANY_THREADS: usize = 5;

/// Three members, and a fourth whose process can fork.
fn cluster(test: &str, number: usize, leases: Leases) -> (Cluster, Peer) {
    let mut rng = Rng::new(test, 1);
    let mut cluster = Cluster::start(3, leases, &mut rng);
    let process = Process::start_with(number, None, &[("LD_PRELOAD", fork::library().as_os_str())]);
    let peer = Peer { process, index: 0, addr: ports::free(1)[0].to_string() };
    cluster.peers.push(peer.clone());
    cluster.begin_join(3, &mut rng).wait().expect("it joins");
    cluster.agree();
    (cluster, peer)
}

fn until_copy_said(peer: &Peer, head: &str) -> String {
    wait::until(&format!("a copy says {head}"), || {
        let said = peer.copies();
        said.iter()
            .find_map(|line| line.strip_prefix(head))
            .map(String::from)
            .ok_or_else(|| format!("{said:?}"))
    })
}

fn a_copy_outlives_the_holder(test: &str, number: usize) {
    let (cluster, holder) = cluster(test, number, Leases::Long);
    cluster.peers[0].lock("stock", "first");
    let grant = holder.lock("stock", "x");
    let next = cluster.peers[1].begin_lock("stock", "x");
    cluster.peers[0].until_waiting("stock", "x", 1);
    holder.ask(&format!("fork {} believe", grant.guard)).expect("it forks");
    holder.process.kill();
    let next = support::process::Grant::read(&next.wait().expect("the dead holder is vouched for"));
    let lost = until_copy_said(&holder, &format!("guard-lost {} ", grant.guard));
    let (believed, reason) = lost.split_once(' ').expect("a time and a reason");
    let believed: u64 = believed.parse().expect("a time");
    assert!(
        believed < next.at,
        "the copy believed in its lock {} us after the next had it",
        (believed - next.at) / 1000
    );
    assert_eq!(reason, "Forked");
}

#[test]
fn a_copy_that_outlives_the_holder_believes_in_nothing() {
    a_copy_outlives_the_holder("a_copy_outlives_the_holder", MANY_THREADS);
}

#[test]
fn a_daemon_that_outlives_the_holder_believes_in_nothing() {
    a_copy_outlives_the_holder("a_daemon_outlives_the_holder", ONE_THREAD);
}

#[test]
fn a_hold_that_a_copy_drops_stays_held() {
    let (cluster, holder) = cluster("what_a_copy_drops", MANY_THREADS, Leases::Long);
    cluster.peers[0].lock("stock", "first");
    let grant = holder.lock("stock", "x");
    holder.ask(&format!("fork {} drop stock", grant.guard)).expect("it forks");
    until_copy_said(&holder, &format!("dropped {}", grant.guard));
    let next = cluster.peers[1].begin_lock("stock", "x");
    cluster.peers[0].until_waiting("stock", "x", 1);
    assert_eq!(holder.fence(&grant), Ok(grant.token));
    holder.release(&grant).expect("it is held");
    next.wait().expect("it was released");
}

#[test]
fn a_copy_of_the_grantor_is_granted_nothing() {
    for number in [ONE_THREAD, MANY_THREADS] {
        let (_cluster, grantor) = cluster("a_copy_of_the_grantor", number, Leases::Long);
        let grant = grantor.lock("stock", "first");
        grantor.ask(&format!("fork {} try stock x", grant.guard)).expect("it forks");
        let answer = until_copy_said(&grantor, "tried ");
        assert!(answer.contains("Left"), "{answer}");
    }
}

/// The copy has only the thread that forked. Another thread may have had the engine's lock at that
/// moment; in the copy that lock is never released.
#[test]
fn a_copy_answers_though_another_thread_had_the_member() {
    let (_cluster, peer) = cluster("a_copy_answers", MANY_THREADS, Leases::Long);
    let grant = peer.lock("mine", "held");
    peer.ask("busy mine").expect("threads are started");
    for round in 1..=20 {
        peer.ask(&format!("fork {} calls mine", grant.guard)).expect("it forks");
        wait::until(&format!("copy {round} answers"), || {
            let said = peer.copies();
            let answers = said.iter().filter(|line| line.starts_with("calls ")).collect::<Vec<_>>();
            assert!(answers.iter().all(|line| line.starts_with("calls false false Lost false")));
            (answers.len() == round).then_some(()).ok_or_else(|| format!("{said:?}"))
        });
    }
}

#[test]
fn a_copy_that_goes_on_with_its_runtime_disturbs_no_member() {
    let leases = Leases::Short;
    let (cluster, holder) = cluster("a_copy_that_goes_on", ONE_THREAD, leases);
    cluster.peers[0].lock("stock", "first");
    let grant = holder.lock("stock", "x");
    holder.ask(&format!("fork {} go", grant.guard)).expect("it forks");
    until_copy_said(&holder, &format!("guard-lost {} ", grant.guard));
    // Two leases pass. The holder's beats must be answered to itself and not to the copy.
    std::thread::sleep(2 * leases.timing().member_lease);
    assert_eq!(holder.fence(&grant), Ok(grant.token), "{:#?}", holder.events());
    let next = cluster.peers[1].begin_lock("stock", "x");
    cluster.peers[0].until_waiting("stock", "x", 1);
    holder.release(&grant).expect("it is held");
    next.wait().expect("it was released");
    let events = holder.events();
    assert!(
        !events.iter().any(|event| event.starts_with("suspended") || event == "expelled"),
        "{events:#?}"
    );
}
