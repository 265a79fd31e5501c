//! Revocation over real members: several in one process, with sockets on the loopback interface.

#[path = "support/local.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod local;

use elderlock::{
    EnterError, Guard, HolderInfo, LockService, LostReason, Member, Mutex, Owner, ReadWriteLock,
    ReentrantMutex, ReleaseError, RevokeError, Semaphore,
};
use local::{HANG, Leases, Local, MS, soon, until};

/// Members in one view that can be killed one by one, and their handles of one service.
struct RevocationCluster {
    local: Local,
    services: Vec<LockService>,
}

impl RevocationCluster {
    /// Members of which a test kills none.
    async fn of(count: usize) -> RevocationCluster {
        RevocationCluster::with(count, Leases::Long).await
    }

    /// Members of which a test kills some.
    async fn mortal(count: usize) -> RevocationCluster {
        RevocationCluster::with(count, Leases::Short).await
    }

    async fn with(count: usize, leases: Leases) -> RevocationCluster {
        let local = Local::start_with(count, leases).await;
        let services = local.services("s").await;
        // The first member grants, unless a test says otherwise.
        lock(&services[0], "first").await.release().await.expect("it was held");
        RevocationCluster { local, services }
    }

    /// Ends the last member without a goodbye.
    fn kill_last(&mut self) {
        self.services.pop();
        self.local.kill(self.services.len());
    }

    /// Waits until nothing is held, waited for or granted.
    async fn nothing(&self) {
        let left = |member: &Member| {
            let services = member.status().services;
            services.iter().map(|of| of.held_here + of.waiting_here + of.locks.len()).sum::<usize>()
        };
        until(|| self.local.alive().all(|member| left(member) == 0)).await;
    }
}

async fn lock(service: &LockService, name: &str) -> Guard {
    soon(service.lock(name)).await.expect("it is granted")
}

async fn revocable(service: &LockService, name: &str) -> Guard {
    soon(service.lock(name).revocable()).await.expect("it is granted")
}

/// Requests the lock back. Returns the holders that were told.
async fn revoke(service: &LockService, name: &str) -> Result<Vec<HolderInfo>, RevokeError> {
    soon(service.revoke(name).metadata("for the test").wait(HANG)).await.map(|asked| asked.told)
}

/// Forces a revocation. Repeats the call while no grantor can decide.
async fn force(service: &LockService, holder: &HolderInfo) -> Result<(), RevokeError> {
    loop {
        match soon(service.force_revoke(holder)).await {
            Err(RevokeError::Undecided) => {}
            answer => return answer,
        }
    }
}

/// Curator: `InterProcessMutex.makeRevocable`, `Revoker.attemptRevoke`: the listener is told, and
/// releases the lock to the waiter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_is_told_and_releases_the_lock_to_the_waiter() {
    let cluster = RevocationCluster::of(3).await;
    // By turns the grantor's member is the holder, the requester, or neither.
    for (holds, waits) in [(0, 1), (1, 0), (1, 2)] {
        let guard = revocable(&cluster.services[holds], "x").await;
        let token = guard.token();
        let listens = tokio::spawn(async move {
            let request = guard.revocation().requested().await.expect("it is held");
            guard.release().await.expect("it was held until now");
            request
        });
        let waiting = cluster.services[waits].lock("x").start();
        let told = revoke(&cluster.services[waits], "x").await.expect("it is revocable");
        assert_eq!(told.iter().map(|holder| holder.token).collect::<Vec<_>>(), [token]);
        assert_eq!(told[0].process, cluster.local.members[holds].process());
        let request = soon(listens).await.expect("no panic");
        assert_eq!(request.process, cluster.local.members[waits].process());
        assert_eq!(request.metadata.as_bytes(), b"for the test");
        soon(waiting).await.expect("it was released").release().await.expect("it is held");
    }
    cluster.nothing().await;
}

/// Curator: `RevocationListener`, which may ignore the request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_is_told_may_keep_the_lock() {
    let cluster = RevocationCluster::of(2).await;
    let guard = revocable(&cluster.services[1], "x").await;
    let mut revocation = guard.revocation();
    assert!(!revocation.is_requested());
    for _ in 0..2 {
        revoke(&cluster.services[0], "x").await.expect("it is revocable");
        assert!(soon(revocation.requested()).await.is_some(), "a second request is told, too");
    }
    assert!(revocation.is_requested());
    assert!(soon(cluster.services[0].try_lock("x")).await.is_err());
    guard.fence().expect("it is still held");
    guard.release().await.expect("it was held until now");
    assert_eq!(soon(revocation.requested()).await, None, "there is nothing left to release");
    cluster.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_before_the_first_listener_is_not_lost() {
    let cluster = RevocationCluster::of(2).await;
    let guard = revocable(&cluster.services[1], "x").await;
    let inner = guard.reenter().expect("it is held");
    let early = guard.revocation();
    revoke(&cluster.services[0], "x").await.expect("it is revocable");
    // Each of the three is told once: one made before the request, its clone, and one of another
    // guard.
    for mut revocation in [early.clone(), early, inner.revocation()] {
        assert!(soon(revocation.requested()).await.is_some());
        let second = tokio::time::timeout(20 * MS, revocation.requested()).await;
        assert!(second.is_err(), "{second:?} was asked once");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_free_lock_and_one_that_is_not_revocable_are_not_revoked() {
    let cluster = RevocationCluster::of(2).await;
    assert_eq!(revoke(&cluster.services[1], "x").await, Err(RevokeError::NotHeld));
    let too_long = soon(cluster.services[1].revoke([0; 5000])).await;
    assert!(matches!(too_long, Err(RevokeError::InvalidName(_))), "{too_long:?}");

    let guard = lock(&cluster.services[1], "x").await;
    let Err(RevokeError::NotRevocable(holder)) = revoke(&cluster.services[0], "x").await else {
        panic!("it is held for good")
    };
    assert_eq!((holder.process, holder.token), (cluster.local.members[1].process(), guard.token()));
    assert_eq!(force(&cluster.services[0], &holder).await, Err(RevokeError::NotRevocable(holder)));
    assert!(!guard.revocation().is_requested());
    guard.release().await.expect("it was held until now");
    cluster.nothing().await;
}

/// Curator has no counterpart: a holder that does not listen keeps the lock for ever. JGroups'
/// author abandoned its lock service for lack of one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hold_is_taken_away_only_after_its_holder_was_told() {
    let cluster = RevocationCluster::of(3).await;
    let guard = revocable(&cluster.services[1], "x").await;
    let inner = guard.reenter().expect("it is held");
    let holder = soon(cluster.services[2].inspect("x"))
        .await
        .expect("the grantor answers")
        .holder
        .expect("it is held");
    let waiting = cluster.services[2].lock("x").start();

    assert_eq!(force(&cluster.services[2], &holder).await, Err(RevokeError::HolderNotTold));
    guard.fence().expect("nothing was taken away");
    let told = revoke(&cluster.services[0], "x").await.expect("it is revocable");
    assert_eq!((told.len(), told[0].token), (1, holder.token));
    guard.fence().expect("nothing was taken away");
    // Any member may force a hold that another member has requested back.
    force(&cluster.services[2], &holder).await.expect("it was told");
    for guard in [&guard, &inner] {
        assert_eq!(soon(guard.lost()).await, LostReason::Revoked);
    }
    let next = soon(waiting).await.expect("it was taken away");
    assert!(next.token() > guard.token());
    assert_eq!(force(&cluster.services[0], &holder).await, Err(RevokeError::NotHeld));
    assert_eq!(guard.release().await, Err(ReleaseError::Lost(LostReason::Revoked)));
    next.fence().expect("the late release changes nothing");
    drop((next, inner));
    cluster.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_batch_and_a_suspension_are_revoked_as_they_are_held() {
    let cluster = RevocationCluster::of(2).await;
    let both =
        soon(cluster.services[1].lock_all(["x", "y"]).revocable()).await.expect("they are granted");
    let told = revoke(&cluster.services[0], "y").await.expect("it is revocable");
    assert_eq!(told[0].token, both.fence("y").expect("it is held"));
    assert!(soon(both.revocation().requested()).await.is_some());
    force(&cluster.services[0], &told[0]).await.expect("it was told");
    assert!(both.fence("x").is_err() && both.fence("y").is_err());
    lock(&cluster.services[0], "x").await.release().await.expect("it is held");

    let asked = soon(cluster.services[0].revoke_suspension()).await;
    assert_eq!(asked, Err(RevokeError::NotHeld));
    let suspended = soon(cluster.services[1].suspend().revocable()).await.expect("no lock is held");
    let told = soon(cluster.services[0].revoke_suspension()).await.expect("it is revocable").told;
    assert!(soon(suspended.revocation().requested()).await.is_some());
    force(&cluster.services[0], &told[0]).await.expect("it was told");
    assert_eq!(soon(suspended.lost()).await, LostReason::Revoked);
    lock(&cluster.services[0], "x").await.release().await.expect("the service goes on");
}

/// The grantors pass on, with the hold, that its holder was told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_holder_that_was_told_counts_as_told_at_the_next_grantor() {
    let mut cluster = RevocationCluster::mortal(4).await;
    let guard = revocable(&cluster.services[1], "x").await;
    let told = revoke(&cluster.services[0], "x").await.expect("it is revocable");
    soon(cluster.services[3].become_grantor()).await.expect("no other member asks");
    assert!(soon(guard.revocation().requested()).await.is_some());
    // The hold stays revocable after a transfer, and after the grantor's crash.
    assert_eq!(
        revoke(&cluster.services[2], "x").await.expect("it is revocable")[0].token,
        guard.token()
    );
    cluster.kill_last();
    assert_eq!(
        revoke(&cluster.services[2], "x").await.expect("it is revocable")[0].token,
        guard.token()
    );
    let mut revocation = guard.revocation();
    for requester in [0, 2, 2] {
        let request = soon(revocation.requested()).await.expect("it is held");
        assert_eq!(request.process, cluster.local.members[requester].process());
    }
    force(&cluster.services[2], &told[0]).await.expect("it was told");
    assert_eq!(soon(guard.lost()).await, LostReason::Revoked);
    drop(guard);
    lock(&cluster.services[0], "x").await.release().await.expect("it is free");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_grantor_that_dies_before_it_has_named_the_holders_is_replaced_by_its_successor() {
    let mut cluster = RevocationCluster::mortal(3).await;
    let guard = revocable(&cluster.services[1], "x").await;
    soon(cluster.services[2].become_grantor()).await.expect("no other member asks");
    cluster.kill_last();
    assert_eq!(
        revoke(&cluster.services[0], "x").await.expect("it is revocable")[0].token,
        guard.token()
    );
    assert!(soon(guard.revocation().requested()).await.is_some());
}

/// Only the lease of a dead holder ends its holds, because no process can tell a dead holder from a
/// slow one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_holder_that_dies_the_lease_ends_the_hold() {
    let mut cluster = RevocationCluster::mortal(3).await;
    let guard = revocable(&cluster.services[2], "x").await;
    let told = revoke(&cluster.services[0], "x").await.expect("it is revocable");
    cluster.kill_last();
    until(|| guard.fence().is_err()).await;
    let answer = soon(cluster.services[0].force_revoke(&told[0])).await;
    assert!(matches!(answer, Err(RevokeError::Undecided | RevokeError::NotHeld)), "{answer:?}");
    assert_eq!(
        revoke(&cluster.services[1], "x").await,
        Err(RevokeError::NotHeld),
        "its end was waited for"
    );
    cluster.local.agree(2).await;
    lock(&cluster.services[1], "x").await.release().await.expect("it is free");
    cluster.nothing().await;
}

/// A read lock has many holders, and each decides for itself. Curator: `InterProcessReadWriteLock`
/// cannot be revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_holders_of_shares_are_told() {
    let cluster = RevocationCluster::of(2).await;
    let share = async |member: usize| {
        soon(cluster.services[member].share("x").revocable()).await.expect("it is free")
    };
    let (first, second) = (share(0).await, share(1).await);
    let firm = soon(cluster.services[1].share("x")).await.expect("it is free");
    let asked = soon(cluster.services[0].revoke("x").wait(HANG)).await.expect("some are revocable");
    let mut told: Vec<_> = asked.told.iter().map(|holder| holder.token).collect();
    told.sort();
    assert_eq!(told, [first.token(), second.token()]);
    assert_eq!(
        asked.not_revocable.iter().map(|holder| holder.token).collect::<Vec<_>>(),
        [firm.token()]
    );
    for guard in [&first, &second] {
        assert!(soon(guard.revocation().requested()).await.is_some());
    }
    for holder in &asked.told {
        force(&cluster.services[1], holder).await.expect("it was told");
    }
    assert!(first.fence().is_err() && second.fence().is_err());
    firm.fence().expect("no other member can take it");
    drop((first, second, firm));
    cluster.nothing().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_share_that_was_told_counts_as_told_after_its_upgrade() {
    let cluster = RevocationCluster::of(2).await;
    let share = soon(cluster.services[1].share("x").revocable()).await.expect("it is free");
    let as_share = revoke(&cluster.services[0], "x").await.expect("it is revocable");
    let guard = soon(share.upgrade()).await.expect("no other share is held");
    // A share is taken away only after the lock was requested back again.
    assert_eq!(force(&cluster.services[0], &as_share[0]).await, Err(RevokeError::NotHeld));
    guard.fence().expect("nothing was taken away");
    let as_lock = revoke(&cluster.services[0], "x").await.expect("it is revocable");
    assert_eq!(as_lock[0].token, guard.token());
    let mut revocation = guard.revocation();
    for _ in 0..2 {
        assert!(soon(revocation.requested()).await.is_some());
    }
    force(&cluster.services[0], &as_lock[0]).await.expect("it was told");
    assert_eq!(soon(guard.lost()).await, LostReason::Revoked);
}

/// Curator: the `Lease` of an `InterProcessSemaphoreV2` cannot be revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_revoked_as_they_were_taken() {
    let cluster = RevocationCluster::of(2).await;
    let limit = 3u32.to_le_bytes();
    let _here = soon(cluster.services[0].open("pool", limit)).await.expect("it opens");
    let _there = soon(cluster.services[1].open("pool", limit)).await.expect("it opens");
    let mut permits =
        soon(cluster.services[1].permits("pool", 3).revocable()).await.expect("there are three");
    permits.return_permits(1).expect("it has three");
    let told = revoke(&cluster.services[0], "pool").await.expect("they are revocable");
    assert_eq!((told.len(), told[0].token), (1, permits.token()));
    assert!(soon(permits.revocation().requested()).await.is_some());
    force(&cluster.services[0], &told[0]).await.expect("it was told");
    assert!(permits.fence().is_err());
    soon(cluster.services[0].permits("pool", 3))
        .await
        .expect("all are free")
        .release()
        .await
        .expect("they are held");
}

/// Curator: `InterProcessMutex.makeRevocable`. The holder that was told decides: it releases the
/// lock, or may lose it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn mutexes_are_revoked_as_they_were_acquired() {
    let cluster = RevocationCluster::of(2).await;
    let (requester, service) = (&cluster.services[0], &cluster.services[1]);
    let (mutex, reentrant, owner) =
        (Mutex::new(service, "x"), ReentrantMutex::new(service, "y"), Owner::new());

    let firm = soon(mutex.acquire()).await.expect("it is free");
    assert!(matches!(revoke(requester, "x").await, Err(RevokeError::NotRevocable(_))));
    firm.release().await.expect("no member took it");

    let guard = soon(mutex.acquire().revocable()).await.expect("it is free");
    revoke(requester, "x").await.expect("it is revocable");
    assert!(
        soon(guard.revocation().requested()).await.is_some() && mutex.is_acquired(),
        "it decides"
    );
    guard.release().await.expect("no member took it");

    let outer = soon(reentrant.acquire(owner).revocable()).await.expect("it is free");
    let inner = soon(reentrant.acquire(owner)).await.expect("it is the owner's");
    let told = revoke(requester, "y").await.expect("it is revocable");
    assert!(soon(inner.revocation().requested()).await.is_some(), "it is one hold");
    force(requester, &told[0]).await.expect("it was told");
    assert_eq!((soon(outer.lost()).await, reentrant.depth(owner)), (LostReason::Revoked, 0));
    let again = soon(reentrant.acquire(owner)).await;
    assert!(
        matches!(again, Err(EnterError::Lost(lost)) if lost.reason == LostReason::Revoked),
        "{again:?}"
    );
    drop((outer, inner));
    cluster.nothing().await;
}

/// Curator: `InterProcessReadWriteLock` and the `Lease`s of `InterProcessSemaphoreV2` cannot be
/// revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_writers_and_leases_are_revoked_as_they_were_acquired() {
    let cluster = RevocationCluster::of(2).await;
    let (requester, service) = (&cluster.services[0], &cluster.services[1]);
    let prices = ReadWriteLock::new(service, "x");
    let reader = soon(prices.read().revocable()).await.expect("it is free");
    let told = revoke(requester, "x").await.expect("it is revocable");
    assert!(soon(reader.revocation().requested()).await.is_some());
    force(requester, &told[0]).await.expect("it was told");
    assert_eq!(soon(reader.lost()).await, LostReason::Revoked);
    let writer = soon(prices.write().revocable()).await.expect("the reader is out");
    revoke(requester, "x").await.expect("it is revocable");
    assert!(soon(writer.revocation().requested()).await.is_some());
    writer.release().await.expect("no member took it");

    let pool = soon(Semaphore::open(service, "pool", 2)).await.expect("it opens");
    let leases = soon(pool.acquire(2).revocable()).await.expect("there are two").into_permits();
    let told = revoke(requester, "pool").await.expect("they are revocable");
    assert!(soon(leases[1].revocation().requested()).await.is_some());
    force(requester, &told[0]).await.expect("it was told");
    for lease in &leases {
        assert_eq!(soon(lease.lost()).await, LostReason::Revoked);
    }
}

/// Each grantor reports whether a hold is revocable, for a first holder and for one that had
/// waited.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_inspection_says_whether_a_hold_is_revocable() {
    let mut cluster = RevocationCluster::mortal(4).await;
    // No member answers while there is no grantor.
    let seen = async |service: &LockService, name: &str| loop {
        if let Ok(seen) = soon(service.inspect(name)).await {
            return seen
                .holders
                .iter()
                .map(|holder| (holder.token, holder.revocable))
                .collect::<Vec<_>>();
        }
    };
    let guard = revocable(&cluster.services[1], "x").await;
    let firm = lock(&cluster.services[1], "y").await;
    let waits = cluster.services[1].lock("y").revocable().start();
    soon(waits.position()).await.expect("it is in the queue");
    let there = [(guard.token(), true)];
    assert_eq!(seen(&cluster.services[2], "x").await, there);
    assert_eq!(seen(&cluster.services[2], "y").await, [(firm.token(), false)]);
    // A hold stays revocable after a transfer, and after the grantor's crash.
    soon(cluster.services[3].become_grantor()).await.expect("no other member asks");
    assert_eq!(seen(&cluster.services[2], "x").await, there);
    cluster.kill_last();
    assert_eq!(seen(&cluster.services[2], "x").await, there);
    assert_eq!(seen(&cluster.services[2], "y").await, [(firm.token(), false)]);
    firm.release().await.expect("it is held");
    let next = soon(waits).await.expect("it is next");
    assert_eq!(seen(&cluster.services[2], "y").await, [(next.token(), true)]);
    let refused = soon(cluster.services[0].try_lock("y")).await.expect_err("it is held");
    assert!(refused.holder().is_some_and(|holder| holder.revocable));
}
