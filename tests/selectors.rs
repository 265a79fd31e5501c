//! Leader selectors over real members, with sockets on the loopback interface: the behaviour of
//! `LeaderSelector` that Curator's users know. The cases in which a member dies are in
//! `latches.rs`, because a leadership is the same in both.

#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{LeaderSelector, LostReason, Member, RevokeError, SelectorError, Term, TermEnd};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use support::leaders::{latch, no_latch_stands, participants, term};
use support::local::{
    HANG, Local, MS, poll_a_wait_then_drop, poll_k_then_drop, poll_once, soon, until,
};

async fn selector(member: &Member, id: &str) -> LeaderSelector {
    let service = soon(member.lock_service("latches")).await.expect("a good name");
    LeaderSelector::new(&service, "leader", id).expect("good names")
}

/// Curator: `LeaderSelector`, `takeLeadership`: a leader leads until its work is done. Then another
/// selector leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_leads_while_its_work_runs() {
    let local = Local::start(3).await;
    let running = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..9 {
        let (selector, running) =
            (selector(&local.members[number % 3], "one of nine").await, running.clone());
        tasks.push(tokio::spawn(async move {
            let term = selector
                .run_once(|term| {
                    let (running, selector) = (running.clone(), &selector);
                    async move {
                        assert_eq!(running.fetch_add(1, Ordering::SeqCst), 0);
                        assert!(selector.has_leadership());
                        assert_eq!(
                            selector
                                .leader()
                                .await
                                .expect("the grantor answers")
                                .and_then(|one| one.token),
                            term.fence().ok()
                        );
                        tokio::time::sleep(2 * MS).await;
                        running.fetch_sub(1, Ordering::SeqCst);
                        term
                    }
                })
                .await
                .expect("no member is cut off");
            assert!(!selector.has_leadership());
            assert_eq!(term.fence(), Err(TermEnd::GivenUp));
            term.token()
        }));
    }
    let mut tokens = BTreeSet::new();
    for task in tasks {
        assert!(tokens.insert(soon(task).await.expect("no panic")), "a term of its own");
    }
    no_latch_stands(&local.members).await;
}

/// Curator: `LeaderSelector.interruptLeadership`, `requeue`: the work is stopped, another selector
/// leads, and a selector that runs again waits behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_interrupted_selector_gives_the_lead_to_the_next() {
    let local = Local::start(2).await;
    let one = Arc::new(selector(&local.members[0], "one").await);
    let next = latch(&local.members[1], "next").await;
    let dropped = Arc::new(AtomicUsize::new(0));
    assert!(!one.interrupt(), "it does not lead");
    let running = tokio::spawn({
        let (one, dropped) = (one.clone(), dropped.clone());
        async move {
            one.run_once(|_| async move {
                let _counts = Counts(dropped);
                std::future::pending::<()>().await
            })
            .await
        }
    });
    until(|| one.has_leadership()).await;
    next.start().expect("it is new");
    participants(&next, 2).await;
    assert!(one.interrupt());
    assert!(!one.has_leadership(), "from that instant on");
    assert!(!one.interrupt());
    assert_eq!(soon(running).await.expect("no panic"), Err(SelectorError::Ended(TermEnd::GivenUp)));
    assert_eq!(dropped.load(Ordering::SeqCst), 1, "the work was dropped");
    term(&next).await;
    let again = tokio::spawn({
        let one = one.clone();
        async move { one.run_once(async |term| term.fence().is_ok()).await }
    });
    assert_eq!(participants(&next, 2).await, ["next", "one"]);
    drop(next);
    assert_eq!(soon(again).await.expect("no panic"), Ok(true));
}

struct Counts(Arc<AtomicUsize>);

impl Drop for Counts {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Curator: `LeaderSelector.autoRequeue`: two selectors that requeue take turns, also when their
/// terms end by lease.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn selectors_that_run_again_and_again_take_turns() {
    let local = Local::start(2).await;
    let turns: Arc<Mutex<Vec<usize>>> = Arc::default();
    // Both selectors are in the queue before either leads.
    let gate = latch(&local.members[0], "gate").await;
    gate.start().expect("it is new");
    term(&gate).await;
    let mut tasks = Vec::new();
    for (at, member) in local.members.iter().enumerate() {
        let selector = Arc::new(selector(member, "turning").await.lease(1000 * MS));
        let turns = turns.clone();
        tasks.push(tokio::spawn(async move {
            let work = |_| {
                let mut turns = turns.lock().expect("no panic");
                turns.push(at);
                let (selector, hangs) = (selector.clone(), turns.len().is_multiple_of(5));
                async move {
                    // The work ends when the other selector is in the queue again.
                    while !selector.participants().await.is_ok_and(|seen| seen.first.len() == 2) {
                        tokio::time::sleep(MS).await;
                    }
                    if hangs {
                        std::future::pending::<()>().await;
                    }
                }
            };
            selector.run(work).await
        }));
        participants(&gate, at + 2).await;
    }
    drop(gate);
    until(|| turns.lock().expect("no panic").len() >= 20).await;
    for member in &local.members {
        soon(member.leave()).await.expect("it leaves");
    }
    for task in tasks {
        assert_eq!(soon(task).await.expect("no panic"), SelectorError::Left);
    }
    let turns = turns.lock().expect("no panic");
    assert!(turns[..20].windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
}

/// Two runs of one selector. The first is polled only after its term is over. Its end does not
/// count for the run that leads by then.
#[tokio::test]
async fn a_run_that_comes_too_late_does_not_hide_the_one_that_leads() {
    let member = Member::local().await.expect("a runtime is there");
    let service = member.lock_service("latches").await.expect("a good name");
    let held = service.lock("leader").await.expect("it is free");
    let selector = selector(&member, "twice").await.lease(2000 * MS);
    let mut late = pin!(selector.run_once(async |_| std::future::pending::<()>().await));
    assert!(poll_once(late.as_mut()).is_pending());
    let was_over = std::cell::Cell::new(false);
    let runs = selector.run_once(async |term: Term| {
        let std::task::Poll::Ready(result) = poll_once(late) else { panic!("its term is over") };
        assert!(matches!(result, Err(SelectorError::Ended(TermEnd::Lost(_)))), "{result:?}");
        let (leads, seen) = (selector.has_leadership(), selector.term());
        // On a busy machine this term may have ended as well.
        was_over.set(term.fence().is_err());
        assert!(was_over.get() || leads && seen == Some(term));
        selector.interrupt()
    });
    let mut runs = pin!(runs);
    assert!(poll_once(runs.as_mut()).is_pending());
    held.release().await.expect("it was held");
    let done = soon(runs).await;
    assert!(
        done == Ok(true) || was_over.get(),
        "it was interrupted when it was done, and not {done:?}"
    );
}

/// Curator has `Revocable`, but not for its leaders. Here the work is told that the lead is
/// requested back, and ends. If the lead is taken away, the work is dropped at its present await.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_work_of_a_revocable_selector_is_told_that_the_lead_is_requested_back() {
    let local = Local::start(2).await;
    let service = soon(local.members[1].lock_service("latches")).await.expect("a good name");
    let one = selector(&local.members[0], "one").await.revocable();
    let listens = one.run_once(async |term: Term| {
        term.revocation().requested().await.map(|request| request.metadata)
    });
    let asks = async {
        until(|| one.has_leadership()).await;
        soon(service.revoke("leader").metadata("maintenance").wait(HANG))
            .await
            .expect("it is revocable")
    };
    let (listens, asked) = tokio::join!(soon(listens), asks);
    let why = listens.expect("it was not taken away").expect("it was asked");
    assert_eq!(why.as_bytes(), b"maintenance");
    no_latch_stands(&local.members).await;
    assert_eq!(soon(service.force_revoke(&asked.told[0])).await, Err(RevokeError::NotHeld));

    let hangs = one.run_once(async |_| std::future::pending::<()>().await);
    let takes = async {
        until(|| one.has_leadership()).await;
        let asked = soon(service.revoke("leader").wait(HANG)).await.expect("it is revocable");
        soon(service.force_revoke(&asked.told[0])).await.expect("it was told");
    };
    match tokio::join!(soon(hangs), takes).0 {
        Err(SelectorError::Ended(TermEnd::Lost(lost))) => {
            assert_eq!(lost.reason, LostReason::Revoked)
        }
        other => panic!("{other:?}"),
    }
    no_latch_stands(&local.members).await;
}

/// A selector that is alone leads again as soon as its work is done.
#[tokio::test]
async fn work_without_an_await_leaves_the_thread_to_others() {
    let member = Member::local().await.expect("a runtime is there");
    let alone = selector(&member, "alone").await;
    let count = Arc::new(AtomicUsize::new(0));
    let runs = tokio::spawn({
        let count = count.clone();
        async move {
            let work = |_| {
                count.fetch_add(1, Ordering::SeqCst);
                std::future::ready(())
            };
            alone.run(work).await
        }
    });
    until(|| count.load(Ordering::SeqCst) >= 1000).await;
    runs.abort();
}

/// Curator: an exception in `takeLeadership` releases the lead. Here the panic reaches the caller,
/// and the lead is free.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_that_panics_gives_the_lead_back() {
    let local = Local::start(2).await;
    let one = selector(&local.members[0], "one").await;
    let panics = tokio::spawn(async move { one.run(async |_| panic!("on purpose")).await });
    assert!(soon(panics).await.is_err());
    no_latch_stands(&local.members).await;
    let other = latch(&local.members[1], "other").await;
    other.start().expect("it is new");
    term(&other).await;
}

/// Curator: `LeaderSelector.close`, and the interrupts that leave a node behind (CURATOR-79,
/// CURATOR-62, CURATOR-205). A run that is dropped after k polls, for every k, leaves nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_selector_can_be_dropped_at_any_poll() {
    let local = Local::start(2).await;
    let [here, there] = &local.members[..] else { unreachable!() };
    let gate = latch(here, "gate").await;
    gate.start().expect("it is new");
    term(&gate).await;
    drop(gate);
    let dropped = Arc::new(AtomicUsize::new(0));
    let begun = Arc::new(AtomicUsize::new(0));
    let selector = selector(there, "dropped").await;
    poll_a_wait_then_drop(
        async || {
            let (begun, dropped) = (begun.clone(), dropped.clone());
            selector.run_once(|term| async move {
                begun.fetch_add(1, Ordering::SeqCst);
                let _counts = Counts(dropped);
                tokio::time::sleep(3 * MS).await;
                term.fence()
            })
        },
        async |_| {
            assert_eq!(begun.load(Ordering::SeqCst), dropped.load(Ordering::SeqCst));
            assert!(!selector.has_leadership());
            no_latch_stands(&local.members).await;
        },
    )
    .await;
    assert!(begun.load(Ordering::SeqCst) > 0);

    // The candidate behind a dropped run leads.
    let next = Mutex::new(None);
    poll_a_wait_then_drop(
        async || {
            let gate = latch(here, "gate").await;
            gate.start().expect("it is new");
            term(&gate).await;
            let mut running = Box::pin(selector.run_once(async |_| ()));
            assert!(poll_once(running.as_mut()).is_pending());
            participants(&gate, 2).await;
            let behind = latch(there, "behind").await;
            behind.start().expect("it is new");
            participants(&gate, 3).await;
            *next.lock().expect("no panic") = Some(behind);
            tokio::spawn(async move {
                tokio::time::sleep(3 * MS).await;
                drop(gate);
            });
            running
        },
        async |_| {
            let behind = next.lock().expect("no panic").take().expect("one in each round");
            term(&behind).await;
            drop(behind);
            no_latch_stands(&local.members).await;
        },
    )
    .await;
    poll_k_then_drop(async || selector.participants(), async |_| ()).await;
    poll_k_then_drop(async || selector.leader(), async |_| ()).await;

    for k in 0..20 {
        let mut terms = 0;
        {
            let mut running = pin!(selector.run(|_| {
                terms += 1;
                tokio::time::sleep(MS)
            }));
            for _ in 0..k {
                assert!(poll_once(running.as_mut()).is_pending(), "it runs for ever");
                tokio::time::sleep(MS).await;
            }
        }
        no_latch_stands(&local.members).await;
    }
}
