//! `Partitions` over real members, in one process with sockets on the loopback interface: even
//! shares, few moves, and one owner at a time. The cases of Kazoo's `SetPartitioner` are here.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{
    LockService, PartitionGuard, PartitionOwners, Partitions, PartitionsError, TermEnd, Token,
};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use support::local::{HANG, Local, MS, left_over, poll_a_wait_then_drop, poll_once, soon, until};

/// The tokens of the partitions that a worker serves.
type Served = Arc<Mutex<BTreeMap<String, Token>>>;

/// A claimant whose tasks serve each partition until it is requested back.
struct Worker {
    partitions: Arc<Partitions>,
    served: Served,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A claimant whose owners are not hurried, unless the test gives another grace period.
fn claim(service: &LockService, count: u32, id: &str) -> Partitions {
    Partitions::numbered(service, count, id).expect("a good id").every(10 * MS).grace(HANG)
}

fn text(name: &[u8]) -> String {
    String::from_utf8(name.to_vec()).expect("a number")
}

impl Worker {
    fn start(partitions: Partitions) -> Worker {
        partitions.start().expect("a runtime is here");
        let (partitions, served) = (Arc::new(partitions), Served::default());
        let (claim, all) = (partitions.clone(), served.clone());
        let task = tokio::spawn(async move {
            while let Ok(partition) = claim.next().await {
                let all = all.clone();
                tokio::spawn(async move {
                    let name = text(partition.name());
                    all.lock().unwrap().insert(name.clone(), partition.token());
                    partition.release_requested().await;
                    all.lock().unwrap().remove(&name);
                });
            }
        });
        Worker { partitions, served, task }
    }

    fn served(&self) -> BTreeMap<String, Token> {
        self.served.lock().unwrap().clone()
    }

    fn count(&self) -> usize {
        self.served().len()
    }
}

/// Waits until each worker serves its count of partitions.
async fn shared(workers: &[&Worker], counts: &[usize]) {
    until(|| workers.iter().map(|worker| worker.count()).eq(counts.iter().copied())).await;
}

/// Waits until the owners meet the condition.
async fn owners(partitions: &Partitions, so: impl Fn(&PartitionOwners) -> bool) {
    let wait = async {
        while !partitions.owners().await.is_ok_and(|seen| so(&seen)) {
            tokio::time::sleep(MS).await;
        }
    };
    soon(wait).await;
}

/// SetPartitioner `test_party_expansion`. There each claimant releases all its partitions. Here
/// only the surplus moves, and the remaining partitions keep their tokens.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn claimants_that_come_get_an_even_share_and_only_that_moves() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let one = Worker::start(claim(&services[0], 10, "one"));
    shared(&[&one], &[10]).await;
    let before = one.served();

    let two = Worker::start(claim(&services[1], 10, "two"));
    shared(&[&one, &two], &[5, 5]).await;
    let kept = one.served();
    assert!(kept.iter().all(|(name, token)| before[name] == *token), "the others did not move");
    assert!(two.served().iter().all(|(name, token)| before[name] < *token), "tokens rise");

    let (five, other_five) = (one.served(), two.served());
    let three = Worker::start(claim(&services[2], 10, "three"));
    until(|| three.count() == 3 && one.count() + two.count() == 7).await;
    assert!(one.served().iter().all(|(name, token)| five[name] == *token));
    assert!(two.served().iter().all(|(name, token)| other_five[name] == *token));
    owners(&one.partitions, |seen| {
        seen.claimants.len() == 3 && seen.owners.values().all(Option::is_some)
    })
    .await;
}

/// SetPartitioner `test_party_shrink`, by a close. The closing claimant hands its partitions over,
/// and the others keep theirs.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimant_that_closes_hands_its_partitions_over() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let one = Worker::start(claim(&services[0], 7, "one"));
    shared(&[&one], &[7]).await;
    let two = Worker::start(claim(&services[1], 7, "two"));
    shared(&[&one, &two], &[4, 3]).await;
    let kept = one.served();
    soon(two.partitions.close()).await.expect("it was started");
    shared(&[&one, &two], &[7, 0]).await;
    assert!(kept.iter().all(|(name, token)| one.served()[name] == *token));
    assert_eq!(soon(two.partitions.next()).await.expect_err("closed"), PartitionsError::Closed);
    assert_eq!(soon(two.partitions.close()).await, Err(PartitionsError::Closed));
    owners(&one.partitions, |seen| seen.claimants.keys().eq(["one"])).await;
}

/// The partitions of a dead process go to the other claimants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_partitions_of_a_member_that_dies_go_to_the_others() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let workers: Vec<Worker> = (services.iter().zip(["one", "two", "three"]))
        .map(|(service, id)| Worker::start(claim(service, 9, id)))
        .collect();
    let [one, two, three] = &workers[..] else { panic!() };
    shared(&[one, two, three], &[3, 3, 3]).await;
    let kept = (two.served(), three.served());
    // Any of the three members may be the grantor, also the one that dies.
    local.kill(0);
    until(|| two.count() + three.count() == 9 && two.count().abs_diff(three.count()) == 1).await;
    assert!(kept.0.iter().all(|(name, token)| two.served()[name] == *token));
    assert!(kept.1.iter().all(|(name, token)| three.served()[name] == *token));
    assert_eq!(one.partitions.owned(), 0, "its guards fail by its own clock");
}

/// An owner releases a partition when it is done, and no other claimant has the partition before.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_owner_has_time_to_finish() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let one = claim(&services[0], 1, "one").weight(1);
    one.start().expect("a runtime is here");
    let partition = soon(one.next()).await.expect("it is free");
    assert!(!partition.is_release_requested());
    // The single partition is due to the claimant with the larger weight.
    let two = claim(&services[1], 1, "two").weight(u32::MAX);
    two.start().expect("a runtime is here");
    // A share that is a fraction rounds in favour of the present owner, so it keeps the partition.
    owners(&one, |seen| seen.claimants.len() == 2).await;
    assert!(!partition.is_release_requested());
    // A close requests the partition back in any case.
    let closing = {
        let one = Arc::new(one);
        let closed = one.clone();
        (tokio::spawn(async move { soon(closed.close()).await }), one)
    };
    soon(partition.release_requested()).await;
    let mut next = Box::pin(two.next());
    for _ in 0..50 {
        assert!(poll_once(next.as_mut()).is_pending(), "it is still owned");
        partition.fence().expect("it has time");
        tokio::time::sleep(MS).await;
    }
    let token = partition.token();
    partition.release().expect("it was owned until now");
    let next = soon(next).await.expect("it is free");
    assert!(next.fence().expect("it is owned") > token);
    soon(closing.0).await.expect("no panic").expect("it was started");
}

/// The guard of an owner that does not finish in time ends, first at its member and then at the
/// grantor.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_guard_ends_with_the_grace_period_before_another_has_the_partition() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let one = claim(&services[0], 2, "one").grace(30 * MS);
    one.start().expect("a runtime is here");
    let mut kept: Vec<PartitionGuard> = Vec::new();
    for _ in 0..2 {
        kept.push(soon(one.next()).await.expect("it is free"));
    }
    let two = claim(&services[1], 2, "two");
    two.start().expect("a runtime is here");
    let next = soon(two.next()).await.expect("one moves");
    let (moved, stays) = match kept[0].name() == next.name() {
        true => (&kept[0], &kept[1]),
        false => (&kept[1], &kept[0]),
    };
    assert_eq!(moved.fence(), Err(TermEnd::GivenUp));
    assert_eq!(soon(moved.ended()).await, TermEnd::GivenUp);
    assert!(moved.is_release_requested() && next.token() > moved.token());
    assert!(stays.fence().is_ok() && !stays.is_release_requested());
    assert!(moved.token() > stays.token(), "the one that it had for longer stays");
    assert_eq!(one.owned(), 1);
}

/// Shares follow the weights. A claimant of weight 0 owns nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shares_follow_the_weights() {
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let none = Worker::start(claim(&services[2], 8, "none").weight(0));
    let one = Worker::start(claim(&services[0], 8, "one"));
    shared(&[&one, &none], &[8, 0]).await;
    let three = Worker::start(claim(&services[1], 8, "three").weight(3));
    shared(&[&one, &three, &none], &[2, 6, 0]).await;
    owners(&none.partitions, |seen| seen.claimants["three"] == 3 && seen.claimants["none"] == 0)
        .await;
}

/// A partition whose guard is dropped, as when a task panics, is handed out again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dropped_partition_is_handed_out_again() {
    let local = Local::start(1).await;
    let service = local.services("s").await.remove(0);
    let partitions = claim(&service, 1, "one");
    assert_eq!(soon(partitions.next()).await.expect_err("latent"), PartitionsError::NotStarted);
    assert_eq!(soon(partitions.close()).await, Err(PartitionsError::NotStarted));
    partitions.start().expect("a runtime is here");
    let mut last = None;
    for _ in 0..5 {
        let partition = soon(partitions.next()).await.expect("it is free");
        assert!(Some(partition.token()) > last, "tokens rise");
        last = Some(partition.token());
    }
}

/// Of two claimants with one id, the second waits until the first is gone.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claimant_whose_id_is_taken_waits() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let one = claim(&services[0], 2, "one");
    one.start().expect("a runtime is here");
    let kept = [soon(one.next()).await.expect("free"), soon(one.next()).await.expect("free")];
    let again = claim(&services[1], 2, "one");
    again.start().expect("a runtime is here");
    until(|| left_over(&local.members[1]).1 == 1).await;
    assert!(kept.iter().all(|partition| !partition.is_release_requested()));
    let limited = again.next().wait(10 * MS);
    assert_eq!(soon(limited).await.expect_err("none is free"), PartitionsError::TimedOut);
    drop(one);
    assert!(kept.iter().all(|partition| partition.fence() == Err(TermEnd::GivenUp)));
    let next = [soon(again.next()).await.expect("free"), soon(again.next()).await.expect("free")];
    assert!(next.iter().all(|partition| partition.fence().is_ok()));
}

/// A claim also ends when its service is destroyed here, or when its member leaves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_claim_ends_with_its_service_and_with_its_member() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let claims = [claim(&services[0], 2, "one"), claim(&services[1], 2, "two")];
    let mut kept = Vec::new();
    for claim in &claims {
        claim.start().expect("a runtime is here");
        kept.push(soon(claim.next()).await.expect("one is free for each"));
    }
    soon(services[0].destroy()).await.expect("once");
    until(|| kept[0].fence().is_err()).await;
    let why = async |claim: &Partitions| loop {
        if let Err(why) = claim.next().await {
            return why;
        }
    };
    assert_eq!(soon(why(&claims[0])).await, PartitionsError::Destroyed);
    soon(local.members[1].leave()).await.expect("it leaves");
    assert_eq!(soon(why(&claims[1])).await, PartitionsError::Left);
    assert!(matches!(kept[1].fence(), Err(TermEnd::Lost(_) | TermEnd::GivenUp)));
}

/// A dropped future loses no partition. After the claim nothing is held or queued.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_await_of_a_claim_can_be_dropped_at_any_poll() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let partitions = Arc::new(claim(&services[1], 1, "one"));
    partitions.start().expect("a runtime is here");
    let all_free = async |_| {
        owners(&partitions, |seen| {
            seen.owners.values().all(|owner| owner.as_ref().is_none_or(|one| one.id == "one"))
        })
        .await
    };
    // The partition that is ready is dropped and handed out again.
    poll_a_wait_then_drop(
        async || {
            let partitions = partitions.clone();
            async move { partitions.next().await }
        },
        all_free,
    )
    .await;
    poll_a_wait_then_drop(
        async || {
            let partitions = partitions.clone();
            async move { partitions.owners().await }
        },
        all_free,
    )
    .await;
    let partition = soon(partitions.next()).await.expect("it is free");
    let mut waits = Box::pin(partition.release_requested());
    assert!((0..3).all(|_| poll_once(waits.as_mut()).is_pending()));
    drop(waits);
    // A close continues when its future is dropped.
    {
        let mut closing = Box::pin(partitions.close());
        assert!(poll_once(closing.as_mut()).is_pending());
    }
    soon(partition.release_requested()).await;
    drop(partition);
    assert_eq!(soon(partitions.next()).await.expect_err("closed"), PartitionsError::Closed);
    until(|| local.members.iter().all(|member| left_over(member) == (0, 0))).await;
}

/// No two claimants own one partition at one time, while claimants come and go and owners finish
/// late.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_claimants_ever_own_one_partition() {
    type Known = Mutex<BTreeMap<Token, Arc<PartitionGuard>>>;
    let local = Local::start(3).await;
    let services = local.services("s").await;
    let known: Arc<BTreeMap<String, Known>> =
        Arc::new((0..6).map(|number| (number.to_string(), Known::default())).collect());
    // The later owner is checked first: if it owns the partition, the earlier owner must not.
    let check = |known: &Known| {
        let known = known.lock().unwrap();
        let owners: Vec<_> =
            known.values().rev().filter(|partition| partition.fence().is_ok()).collect();
        assert!(owners.len() <= 1, "{owners:?}");
    };
    let mut moved = 0;
    for round in 0..6 {
        let mut claims = Vec::new();
        for (number, service) in services.iter().enumerate() {
            let claim = claim(service, 6, &format!("{round}.{number}")).grace(20 * MS);
            claim.start().expect("a runtime is here");
            let claim = Arc::new(claim);
            let (all, next) = (known.clone(), claim.clone());
            let task = tokio::spawn(async move {
                let mut count = 0;
                while let Ok(partition) = next.next().await {
                    count += 1;
                    let (known, partition) = (all.clone(), Arc::new(partition));
                    let token = partition.token();
                    known[&text(partition.name())].lock().unwrap().insert(token, partition.clone());
                    tokio::spawn(async move {
                        partition.release_requested().await;
                        // Every second owner does not finish in time.
                        if count % 2 == 0 {
                            partition.ended().await;
                        }
                        known[&text(partition.name())].lock().unwrap().remove(&token);
                    });
                }
                count
            });
            claims.push((claim, task));
            let shares = 6 / claims.len();
            until(|| {
                known.values().for_each(check);
                claims.iter().all(|(claim, _)| claim.owned() == shares)
            })
            .await;
        }
        for (claim, task) in claims {
            soon(claim.close()).await.expect("it was started");
            known.values().for_each(check);
            moved += soon(task).await.expect("no panic");
        }
    }
    assert!(moved >= 6 * 11, "each round moves five partitions and hands out six");
}
