//! The common parts of the tests of latches and of selectors: all are candidates for "leader" in
//! the service "latches".

use super::local::{MS, left_over, soon, until};
use elderlock::{LeaderLatch, Member, Term};

/// A latch of "leader" at a member.
pub(crate) async fn latch(member: &Member, id: &str) -> LeaderLatch {
    let service = soon(member.lock_service("latches")).await.expect("a good name");
    LeaderLatch::new(&service, "leader", id).expect("good names")
}

/// The leader and the candidates, as this latch sees them, as soon as there are `count`.
pub(crate) async fn participants(latch: &LeaderLatch, count: usize) -> Vec<String> {
    let wait = async {
        loop {
            if let Ok(seen) = latch.participants().await
                && seen.first.len() == count
            {
                return seen.first.into_iter().map(|one| one.id).collect();
            }
            tokio::time::sleep(MS).await;
        }
    };
    soon(wait).await
}

/// The latch's term, as soon as it leads.
pub(crate) async fn term(latch: &LeaderLatch) -> Term {
    soon(latch.await_leadership()).await.expect("its turn comes")
}

/// Waits until no member leads or waits to lead, and the grantor knows it.
pub(crate) async fn no_latch_stands(members: &[Member]) {
    until(|| members.iter().all(|member| left_over(member) == (0, 0))).await;
    let free = async {
        let service = members[0].lock_service("latches").await.expect("a good name");
        while service
            .inspect("leader")
            .await
            .is_ok_and(|seen| seen.holder.is_some() || !seen.waiters.is_empty())
        {
            tokio::time::sleep(MS).await;
        }
    };
    soon(free).await;
}
