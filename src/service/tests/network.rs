//! Members over real sockets on loopback.

use super::*;
use crate::Timing;
use crate::runtime::net::transport::BindError;
use crate::runtime::query_status;
use std::net::{TcpListener, UdpSocket};

/// An address that is free for both protocols, and given to no other test of this process.
fn free_addr() -> String {
    ports::free(1)[0].to_string()
}

fn is_free(addr: &str) -> bool {
    TcpListener::bind(addr).is_ok() && UdpSocket::bind(addr).is_ok()
}

/// A builder with a long answer limit: on a busy machine a grantor may take as long as a lease to
/// answer.
fn at(addr: &str) -> MemberBuilder {
    timed(addr, Timing::fast())
}

/// A builder with the leases of `timing`, which may be long enough for a busy machine.
fn timed(addr: &str, timing: Timing) -> MemberBuilder {
    Member::builder("test").bind(addr).timing(Timing { answer: timing.member_lease, ..timing })
}

/// A join that times out, again and again until its error gives enough of the reason.
async fn fails(join: impl Fn() -> MemberBuilder, is_enough: impl Fn(&str) -> bool) -> JoinError {
    let again = async {
        loop {
            let error = join().join_limit(300 * MS).join().await.unwrap_err();
            if is_enough(&error.to_string()) {
                return error;
            }
        }
    };
    tokio::time::timeout(HANG, again).await.expect("it never came")
}

#[tokio::test]
async fn a_seed_list_that_names_only_the_member_founds_a_cluster_of_one() {
    let addr = free_addr();
    let member = at(&addr).seeds([&addr]).join().await.unwrap();
    assert_eq!((member.addr().to_string(), member.cluster()), (addr.clone(), "test"));
    assert!(member.is_elder() && sees(&member, 1));
    let guard = member.lock_service("inventory").await.unwrap().lock("a").await.unwrap();
    guard.release().await.unwrap();
    member.leave().await.unwrap();
    assert!(is_free(&addr), "the port is free again");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn members_that_name_each_other_found_together_and_share_their_locks() {
    let addrs = [free_addr(), free_addr(), free_addr()];
    let at = |addr: &str| timed(addr, Timing::lan());
    let joins: Vec<_> =
        addrs.iter().map(|addr| tokio::spawn(at(addr).seeds(&addrs).join())).collect();
    let mut members = Vec::new();
    for join in joins {
        members.push(join.await.unwrap().unwrap());
    }
    // A further member, which is not a seed.
    members.push(at("127.0.0.1:0").seeds(&addrs).join().await.unwrap());
    come(|| members.iter().all(|member| sees(member, 4))).await;
    assert_eq!(members.iter().filter(|member| member.is_elder()).count(), 1);

    let mut tokens = Vec::new();
    for member in &members {
        let guard =
            member.lock_service("inventory").await.unwrap().lock("a").wait(HANG).await.unwrap();
        for other in members.iter().filter(|other| other.process() != member.process()) {
            let held =
                other.lock_service("inventory").await.unwrap().try_lock("a").await.unwrap_err();
            assert_eq!(held.holder().unwrap().process, member.process());
        }
        tokens.push(guard.fence().unwrap());
        guard.release().await.unwrap();
    }
    assert!(tokens.is_sorted() && tokens.windows(2).all(|pair| pair[0] != pair[1]), "{tokens:?}");
    come(|| members.iter().all(|member| left_over(member) == NOTHING)).await;
    for member in members {
        member.leave().await.unwrap();
    }
}

#[tokio::test]
async fn a_join_that_takes_too_long_names_the_missing_seeds_and_frees_its_port() {
    let (addr, missing) = (free_addr(), free_addr());
    let seeds = [&addr, &missing, "no-such-host.invalid:7400"];
    let error = at(&addr).seeds(seeds).join_limit(300 * MS).join().await.unwrap_err();
    let text = error.to_string();
    let JoinError::NoCluster { missing: found, unresolved, needed, .. } = error else {
        panic!("{error}")
    };
    assert_eq!(found[0].0.to_string(), missing);
    assert_eq!(unresolved[0].0, "no-such-host.invalid:7400");
    assert!(needed >= 1);
    assert!(text.contains(&missing) && text.contains("no-such-host"), "{text}");
    assert!(is_free(&addr));

    let error = fails(|| at(&addr).seeds([&addr, &missing]), |text| text.contains("refused")).await;
    let text = error.to_string();
    let JoinError::NoCluster { answered, missing: found, needed: 2, .. } = error else {
        panic!("{error}")
    };
    assert_eq!((answered[0].0.to_string(), &*answered[0].1), (addr.clone(), "this member"));
    assert!(found[0].1.contains("refused"), "{found:?}");
    assert!(text.contains("1 of 2 seeds answered") && text.contains("takes all 2 seeds"), "{text}");
    assert!(is_free(&addr));
}

#[tokio::test]
async fn a_foreign_cluster_is_named_as_such() {
    let addr = free_addr();
    let member = at(&addr).seeds([&addr]).join().await.unwrap();
    fails(|| Member::builder("other").seeds([&addr]), |text| text.contains("test")).await;
    assert!(member.counters().foreign_cluster > 0);
    assert!(sees(&member, 1));
}

#[tokio::test]
async fn a_taken_port_and_an_open_one_are_refused() {
    let addr = free_addr();
    let _taken = TcpListener::bind(&addr).unwrap();
    let error = at(&addr).seeds([&addr]).join().await.unwrap_err();
    assert!(matches!(error, JoinError::Bind(BindError::Taken { .. })), "{error}");
    let error = at("0.0.0.0:0").found().join().await.unwrap_err();
    assert!(matches!(error, JoinError::Bind(BindError::NotLoopback(_))), "{error}");
}

#[tokio::test]
async fn a_join_dropped_at_any_poll_frees_its_port() {
    let addr = free_addr();
    let freed = async |_| come(|| is_free(&addr)).await;
    // The member founds, so that no run waits until a seed has listened for others.
    poll_k_then_drop(async || at(&addr).found().join(), freed).await;
    poll_k_then_drop(
        async || at(&addr).seeds([&addr, "127.0.0.1:1"]).join_limit(5 * MS).join(),
        freed,
    )
    .await;
}

#[tokio::test]
async fn a_join_dropped_while_a_cluster_takes_it_in_is_forgotten_within_its_lease() {
    let timing = Timing::fast();
    // The time until the lease has surely run out everywhere and the elder that waits for it has
    // decided. It allows for the delays of a busy machine.
    let limit = timing.surely(timing.member_lease) + timing.elder_lease + HANG;
    let (seed, addr) = (free_addr(), free_addr());
    let elder = at(&seed).seeds([&seed]).join().await.unwrap();
    let other = at("127.0.0.1:0").seeds([&seed]).join().await.unwrap();
    come(|| sees(&elder, 2) && sees(&other, 2)).await;
    for k in 0.. {
        let mut done = false;
        let mut join = Box::pin(at(&addr).seeds([&seed]).join());
        for _ in 0..k {
            if let Poll::Ready(joined) = poll_once(join.as_mut()) {
                drop(joined.unwrap());
                done = true;
                break;
            }
            // One turn of the runtime: finer than any timer.
            tokio::task::yield_now().await;
        }
        drop(join);
        let dropped = std::time::Instant::now();

        come(|| is_free(&addr)).await;
        let again = at(&addr).seeds([&seed]).join().await.unwrap();
        // There are exactly three members: the dropped process is gone.
        let members = [&elder, &other, &again];
        come(|| members.iter().all(|member| sees(member, 3))).await;
        let took = dropped.elapsed();
        let view = elder.status().view;
        assert!(members.iter().all(|member| member.status().view == view));
        let mut processes: Vec<_> =
            view.unwrap().members.iter().map(|member| member.info.process).collect();
        processes.sort();
        let mut expected = members.map(Member::process);
        expected.sort();
        assert_eq!(processes, expected);
        assert!(took < limit, "poll {k}: forgotten only after {took:?}");

        again.leave().await.unwrap();
        come(|| sees(&elder, 2) && sees(&other, 2)).await;
        if done {
            assert!(k > 1, "it never had to wait");
            return;
        }
    }
}

/// Removes the time for which locks have been held, because it advances.
fn timeless(mut status: crate::Status) -> crate::Status {
    let locks = status.services.iter_mut().flat_map(|service| &mut service.locks);
    locks
        .filter_map(|lock| lock.holder.as_mut())
        .for_each(|holder| holder.held_for = Duration::ZERO);
    status
}

#[tokio::test]
async fn a_query_dropped_at_any_poll_leaves_the_member_as_it_was() {
    let addr = free_addr();
    let member = at(&addr).seeds([&addr]).join().await.unwrap();
    let guard = member.lock_service("inventory").await.unwrap().lock("a").await.unwrap();
    let before = timeless(member.status());
    poll_a_wait_then_drop(
        async || async { query_status(&addr, "test").await.unwrap() },
        async |_| {
            assert_eq!(timeless(member.status()), before);
            assert_eq!(timeless(query_status(&addr, "test").await.unwrap()), before);
        },
    )
    .await;
    guard.release().await.unwrap();
    assert_eq!(left_over(&member), NOTHING);
    member.leave().await.unwrap();
    assert!(is_free(&addr));
}

/// tokio's rule: a task that finds everything ready still lets other tasks run. Answers that are
/// busy-polled for are ready, and each of them counts as many free locks.
#[test]
fn a_task_that_takes_remote_locks_in_a_row_yields_the_thread() {
    const LOCKS: usize = 2000;
    let at = |addr: &str| timed(addr, Timing::wan());
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (here, there) = (runtime(), runtime());
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let grantor = there.block_on(async {
        let grantor = at("127.0.0.1:0").found().join().await.unwrap();
        grantor
            .lock_service("inventory")
            .await
            .unwrap()
            .lock("a")
            .await
            .unwrap()
            .release()
            .await
            .unwrap();
        grantor
    });
    let addr = grantor.addr().to_string();
    let there = std::thread::spawn(move || there.block_on(stopped));
    here.block_on(async {
        let member = at("127.0.0.1:0").busy_poll(MS).seeds([addr]).join().await.unwrap();
        let stock = member.lock_service("inventory").await.unwrap();
        let counted = Arc::new(AtomicUsize::new(0));
        let turns = counted.clone();
        let other = tokio::spawn(async move {
            loop {
                turns.fetch_add(1, Ordering::Relaxed);
                tokio::task::yield_now().await;
            }
        });
        for _ in 0..LOCKS {
            stock.lock("a").await.unwrap().release().await.unwrap();
        }
        let turns = || counted.swap(0, Ordering::Relaxed);
        let beside = turns();
        assert!(
            beside >= LOCKS / 16,
            "{beside} turns beside {LOCKS} locks, {:?}",
            member.counters()
        );
        for _ in 0..LOCKS {
            stock.inspect("a").await.unwrap();
        }
        let beside = turns();
        assert!(
            beside >= LOCKS / 16,
            "{beside} turns beside {LOCKS} looks, {:?}",
            member.counters()
        );
        other.abort();
    });
    stop.send(()).unwrap();
    there.join().unwrap().unwrap();
    drop(grantor);
}
