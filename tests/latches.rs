//! Leader latches over real members, with sockets on the loopback interface. The tests cover the
//! behaviour of `LeaderLatch` that Curator's users know, and a leadership whose member dies. Each
//! test names its original.

#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{
    AwaitLeadershipError, CloseError, CloseMode, LatchEvent, LatchEvents, LatchState, LeaderLatch,
    LeaderSelector, LostReason, Member, Mode, RevokeError, SelectorError, StartError, Term,
    TermEnd, Token,
};
use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use support::child;
use support::cluster::Cluster;
use support::leaders::{latch, no_latch_stands, participants, term};
use support::leases::Leases;
use support::local::{
    HANG, Local, MS, left_over, poll_a_wait_then_drop, poll_k_then_drop, poll_once, soon, until,
};
use support::process::Peer;
use support::rng::Rng;
use support::wait;

/// Not a test: the program of the processes that these tests start. Without a child's environment
/// variable it does nothing.
#[test]
fn child_member() {
    child::serve();
}

/// Latches at these members, in turn, whose positions in the queue are in the order of their
/// numbers.
async fn in_line(members: &[Member], count: usize) -> Vec<LeaderLatch> {
    let mut latches = Vec::new();
    for number in 0..count {
        let latch = latch(&members[number % members.len()], &format!("client{number}")).await;
        latch.start().expect("it is new");
        participants(&latch, number + 1).await;
        latches.push(latch);
    }
    latches
}

async fn next(events: &mut LatchEvents) -> LatchEvent {
    soon(events.next()).await.expect("the latch is open, or has more to tell")
}

/// The reason of the loss, if the term was lost.
fn reason(end: TermEnd) -> Option<LostReason> {
    match end {
        TermEnd::Lost(lost) => Some(lost.reason),
        _ => None,
    }
}

/// The event that is ready without waiting.
fn ready(events: &mut LatchEvents) -> Option<Option<LatchEvent>> {
    match poll_once(pin!(events.next())) {
        std::task::Poll::Ready(event) => Some(event),
        std::task::Poll::Pending => None,
    }
}

/// Curator: `LeaderLatch`, testCuratorLeaderLatch: ten latches, started at once. One latch leads;
/// when it closes, another one leads. Each latch can name the leader.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_latches_have_one_leader_and_another_one_when_it_closes() {
    let local = Local::start(3).await;
    let mut latches = Vec::new();
    for number in 1..=10 {
        latches.push(Arc::new(latch(&local.members[number % 3], &format!("client{number}")).await));
    }
    let starts: Vec<_> =
        latches.iter().cloned().map(|latch| tokio::spawn(async move { latch.start() })).collect();
    for start in starts {
        soon(start).await.expect("no panic").expect("it is new");
    }
    let all = participants(&latches[0], 10).await;
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), 10, "each has a position of its own");

    let mut before: Option<Term> = None;
    for left in (1..=10).rev() {
        until(|| latches.iter().any(|latch| latch.has_leadership())).await;
        let leaders: Vec<_> = latches.iter().filter(|latch| latch.has_leadership()).collect();
        assert_eq!(leaders.len(), 1);
        let term = term(leaders[0]).await;
        if let Some(before) = before.replace(term.clone()) {
            assert_eq!(before.fence(), Err(TermEnd::GivenUp));
            assert!(term.token() > before.token());
        }
        for latch in &latches {
            let seen = soon(latch.leader()).await.expect("the grantor answers").expect("one leads");
            assert!(seen.is_leader());
            assert_eq!((seen.id, seen.token), (leaders[0].id(), Some(term.token())));
        }
        assert_eq!(participants(&latches[0], left).await.len(), left);
        soon(leaders[0].close()).await.expect("it is started");
    }
    no_latch_stands(&local.members).await;
}

/// Curator: `LeaderLatch.start`: a latch can be started once. `LeaderLatch.close`: a latch that is
/// not started, or already closed, cannot be closed (IllegalStateException in both cases).
#[tokio::test]
async fn a_latch_is_latent_then_started_then_closed_and_nothing_else() {
    let member = Member::local().await.expect("a runtime is there");
    let latch = latch(&member, "client1").await;
    assert_eq!((latch.state(), latch.id().as_str()), (LatchState::Latent, "client1"));
    assert_eq!(latch.close().await, Err(CloseError::NotStarted));
    assert_eq!(latch.await_leadership().await, Err(AwaitLeadershipError::NotStarted));
    assert_eq!(latch.state(), LatchState::Latent);

    latch.start().expect("it is new");
    assert_eq!(latch.start(), Err(StartError::AlreadyStarted));
    assert_eq!(latch.state(), LatchState::Started);
    term(&latch).await.fence().expect("it leads");

    latch.close_with(CloseMode::NotifyLeader).await.expect("it is started");
    assert_eq!(latch.state(), LatchState::Closed);
    assert_eq!(latch.close().await, Err(CloseError::AlreadyClosed));
    assert_eq!(latch.start(), Err(StartError::AlreadyStarted));
    assert_eq!(latch.await_leadership().await, Err(AwaitLeadershipError::Closed));
    assert!(!latch.has_leadership());
}

/// An invalid setting is an error and not a panic.
#[tokio::test]
async fn a_latch_with_a_bad_name_lease_or_runtime_is_refused() {
    let member = Member::local().await.expect("a runtime is there");
    let service = member.lock_service("latches").await.expect("a good name");
    assert!(LeaderLatch::new(&service, "", "id").is_err());
    assert!(LeaderLatch::new(&service, "leader", vec![b'x'; 5000]).is_err());
    let hasty =
        LeaderLatch::new(&service, "leader", "id").expect("good names").lease(Duration::ZERO);
    assert!(matches!(hasty.start(), Err(StartError::InvalidLease(_))));
    assert_eq!(hasty.state(), LatchState::Latent);
    let outside = LeaderLatch::new(&service, "leader", "id").expect("good names");
    let outside = std::thread::spawn(move || (outside.start(), outside)).join().expect("no panic");
    assert_eq!(outside.0, Err(StartError::NoRuntime));
    outside.1.start().expect("nothing was changed");
    let service = member.lock_service("latches").await.expect("a good name");
    let selector =
        LeaderSelector::new(&service, "leader", "id").expect("good names").lease(Duration::ZERO);
    assert!(matches!(selector.run_once(async |_| ()).await, Err(SelectorError::InvalidLease(_))));
}

/// Curator: `LeaderLatch.checkLeadership`: the first child leads, and each other child waits for
/// the child before it. When a latch in between closes, only the positions behind it change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn latches_lead_in_the_order_of_their_positions() {
    let local = Local::start(3).await;
    let latches = in_line(&local.members, 5).await;
    assert_eq!(
        participants(&latches[4], 5).await,
        ["client0", "client1", "client2", "client3", "client4"]
    );
    let first = term(&latches[0]).await;
    soon(latches[2].close()).await.expect("it waits");
    assert_eq!(participants(&latches[4], 4).await, ["client0", "client1", "client3", "client4"]);
    first.fence().expect("it did not notice");

    let mut tokens = Vec::new();
    for (at, behind) in [(0, &[1, 3, 4][..]), (1, &[3, 4]), (3, &[4]), (4, &[])] {
        tokens.push(term(&latches[at]).await.token());
        assert!(behind.iter().all(|at| !latches[*at].has_leadership()));
        soon(latches[at].close()).await.expect("it leads");
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    no_latch_stands(&local.members).await;
}

/// Curator: `LeaderLatch.start` asks in the background, so that the order is left to chance. Here
/// `start` itself takes the position.
#[tokio::test]
async fn latches_that_are_started_in_turn_lead_in_turn() {
    let local = Local::start(2).await;
    let mut latches = Vec::new();
    for number in 0..50 {
        latches.push(latch(&local.members[1], &format!("client{number}")).await);
    }
    latches.iter().for_each(|latch| latch.start().expect("it is new"));
    // No task has run since, and yet each latch has its request.
    let (held, waiting) = left_over(&local.members[1]);
    assert_eq!(held + waiting, 50);
    let all = participants(&latches[0], 50).await;
    assert_eq!(all, (0..50).map(|number| format!("client{number}")).collect::<Vec<_>>());
}

/// A request of a holding owner passes a waiting suspension. A latch is an owner of its own, so a
/// hold of its member does not let it pass.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_waits_for_a_suspension_though_its_member_holds_something() {
    let local = Local::start(2).await;
    let services = local.services("latches").await;
    let held = soon(services[1].lock("x").owner(1)).await.expect("it is free");
    let suspending = services[0].suspend().start();
    soon(suspending.position()).await.expect("the grantor answers").expect("x is held");
    let waits = latch(&local.members[1], "waits").await;
    waits.start().expect("it is new");
    let early = soon(waits.await_leadership().wait(100 * MS)).await;
    assert!(early.expect_err("it is behind the suspension").is_timeout());
    soon(held.release()).await.expect("it was held");
    soon(suspending).await.expect("no lock is held").resume().await.expect("it was held");
    term(&waits).await;
}

/// Curator: `LeaderLatch.reset`, where the callback drops the node if the latch is CLOSED by then.
/// `cancelStartTask`: a latch that is closed or dropped before it leads leaves no position in the
/// queue.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_is_closed_at_once_leaves_no_position() {
    let local = Local::start(3).await;
    let leader = latch(&local.members[0], "leader").await;
    leader.start().expect("it is new");
    term(&leader).await;
    let mut closed = Vec::new();
    for round in 0..10 {
        let hasty = latch(&local.members[round % 3], "hasty").await;
        hasty.start().expect("it is new");
        if round % 2 == 0 {
            soon(hasty.close()).await.expect("it is started");
            closed.push(hasty);
        }
    }
    assert_eq!(participants(&leader, 1).await, ["leader"]);
    drop(leader);
    no_latch_stands(&local.members).await;
}

/// Curator: `LeaderLatch.close`: every latch must be closed. Here dropping a latch closes it, and
/// the next one leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_is_dropped_gives_up_the_lead_silently() {
    let local = Local::start(2).await;
    let mut latches = in_line(&local.members, 2).await;
    let (second, first) = (latches.pop().expect("two"), latches.pop().expect("two"));
    let term = term(&first).await;
    let mut events = first.events();
    // A drop outside of any runtime works, too.
    std::thread::spawn(move || drop(first)).join().expect("no panic");
    assert_eq!(term.fence(), Err(TermEnd::GivenUp));
    assert_eq!(soon(term.ended()).await, TermEnd::GivenUp);
    assert_eq!(soon(events.next()).await, None);
    soon(second.await_leadership()).await.expect("it is next");
}

/// Curator: `LeaderLatch.setLeadership`: a listener is called when the value changes, and only
/// then. `LeaderLatchListener.isLeader`, `notLeader`.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn listeners_hear_each_change_once_and_in_order() {
    let local = Local::start(2).await;
    let turning = latch(&local.members[0], "turning").await.lease(100 * MS);
    let mut readers = [turning.events(), turning.events()];
    turning.start().expect("it is new");
    let mut told: Vec<Vec<(Token, bool)>> = vec![Vec::new(), Vec::new()];
    for (events, told) in readers.iter_mut().zip(&mut told) {
        while told.len() < 12 {
            told.push(match next(events).await {
                LatchEvent::IsLeader(term) => (term.token(), true),
                LatchEvent::NotLeader { token, end } => {
                    assert_eq!(reason(end), Some(LostReason::LeaseEnded));
                    (token, false)
                }
                other => panic!("{other:?}"),
            });
        }
    }
    assert_eq!(told[0], told[1]);
    for pair in told[0].chunks(2) {
        assert_eq!((pair[0].1, pair[1].1), (true, false));
        assert_eq!(pair[0].0, pair[1].0);
    }
    assert!(
        told[0].chunks(2).is_sorted_by(|one, next| one[0].0 < next[0].0),
        "each term has a higher token"
    );

    // Curator does not call a listener for changes before it was added.
    let mut late = turning.events();
    soon(turning.close_with(CloseMode::NotifyLeader)).await.expect("it is started");
    while let Some(event) = soon(late.next()).await {
        let token = match event {
            LatchEvent::IsLeader(term) => term.token(),
            LatchEvent::NotLeader { token, .. } => token,
            other => panic!("{other:?}"),
        };
        assert!(token > told[0][11].0, "only what happened since");
    }
}

/// Curator: `LeaderLatch.close`, CloseMode.SILENT: the listeners are cleared first, so they are
/// told nothing. CloseMode.NOTIFY_LEADER: they are told. Curator releases the lead before that,
/// this latch after it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_silent_close_tells_nothing_and_a_notifying_one_tells_before_another_leads() {
    let local = Local::start(2).await;
    for mode in [CloseMode::Silent, CloseMode::NotifyLeader] {
        let latches = in_line(&local.members, 2).await;
        let (mut of_first, mut of_second) = (latches[0].events(), latches[1].events());
        let first = term(&latches[0]).await;
        soon(latches[0].close_with(mode)).await.expect("it leads");
        let LatchEvent::IsLeader(second) = next(&mut of_second).await else {
            panic!("it is told first")
        };
        // The events of the first latch are there before the second one leads: no waiting here.
        if mode == CloseMode::NotifyLeader {
            let told = LatchEvent::NotLeader { token: first.token(), end: TermEnd::GivenUp };
            // The reader may have subscribed just before the latch led, or just after.
            let heard: Vec<_> = std::iter::from_fn(|| ready(&mut of_first).flatten()).collect();
            assert_eq!(heard.last(), Some(&told));
        } else {
            let heard: Vec<_> = std::iter::from_fn(|| ready(&mut of_first).flatten()).collect();
            assert!(
                heard.iter().all(|event| matches!(event, LatchEvent::IsLeader(_))),
                "{heard:?}"
            );
        }
        assert_eq!(ready(&mut of_first), Some(None), "the stream ends");
        assert!(second.token() > first.token());
        // A waiting latch has no events, in any mode.
        let waiting = latch(&local.members[0], "waiting").await;
        let mut of_waiting = waiting.events();
        waiting.start().expect("it is new");
        participants(&waiting, 2).await;
        soon(waiting.close_with(mode)).await.expect("it waits");
        assert_eq!(soon(of_waiting.next()).await, None);
        soon(latches[1].close()).await.expect("it leads");
    }
}

/// Curator: `LeaderLatch.await`, `await(timeout, unit)`: an await returns when the latch leads,
/// after the limit, or with an EOFException when the latch is closed.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn awaiting_leadership_ends_with_the_lead_the_limit_or_the_close() {
    let local = Local::start(2).await;
    let latches: Vec<_> = in_line(&local.members, 3).await.into_iter().map(Arc::new).collect();
    term(&latches[0]).await;
    let limit = soon(latches[1].await_leadership().wait(20 * MS)).await;
    assert!(limit.expect_err("the first one leads").is_timeout());
    assert_eq!(
        participants(&latches[0], 3).await,
        ["client0", "client1", "client2"],
        "it keeps its position"
    );

    let awaiting = |latch: &Arc<LeaderLatch>| {
        let latch = latch.clone();
        tokio::spawn(async move { latch.await_leadership().wait(HANG).await })
    };
    let (second, third) = (awaiting(&latches[1]), awaiting(&latches[2]));
    soon(latches[2].close()).await.expect("it waits");
    assert_eq!(soon(third).await.expect("no panic"), Err(AwaitLeadershipError::Closed));
    soon(latches[0].close()).await.expect("it leads");
    soon(second).await.expect("no panic").expect("it is next").fence().expect("it leads");
}

/// Curator: `LeaderLatch.getParticipants`, `getLeader`: from any latch, whether or not it
/// participates.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn participants_are_seen_from_every_member() {
    let local = Local::start(3).await;
    let looks_on = latch(&local.members[2], "looks on").await;
    assert_eq!(soon(looks_on.leader()).await.expect("the grantor answers"), None);
    let latches = in_line(&local.members[..2], 2).await;
    let leads = term(&latches[0]).await;
    for seen in [&looks_on, &latches[0], &latches[1]] {
        let seen = soon(seen.participants()).await.expect("the grantor answers");
        assert_eq!(seen.more, 0);
        let [first, second] = &seen.first[..] else { panic!("{seen:?}") };
        assert_eq!((first.process, first.token), (local.members[0].process(), Some(leads.token())));
        assert_eq!((second.id.as_str(), second.is_leader()), ("client1", false));
        assert_eq!(seen.leader(), Some(first));
    }
    soon(local.members[1].leave()).await.expect("it leaves");
    until(|| latches[1].state() == LatchState::Closed).await;
    assert_eq!(participants(&looks_on, 1).await, ["client0"]);
    assert!(
        soon(latches[1].participants()).await.is_err(),
        "a member that has left is told nothing"
    );
}

/// Curator: `LeaderLatch.getParticipants`, where the path has participants only. Here the name is a
/// lock, which may also have readers, and a suspension of the service waits in the same line.
/// Neither a reader nor a suspension is a participant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_and_suspensions_are_no_participants() {
    let local = Local::start(2).await;
    let services = local.services("latches").await;
    let reader = soon(services[0].share("leader").metadata("a reader")).await.expect("it is free");
    let looks_on = latch(&local.members[1], "looks on").await;
    let seen = soon(looks_on.participants()).await.expect("the grantor answers");
    assert_eq!((seen.first, seen.more), (Vec::new(), 0), "a reader does not stand");
    assert_eq!(soon(looks_on.leader()).await.expect("the grantor answers"), None);

    let one = latch(&local.members[0], "one").await;
    one.start().expect("it is new");
    assert_eq!(participants(&looks_on, 1).await, ["one"], "it waits for the reader");
    assert_eq!(soon(looks_on.leader()).await.expect("the grantor answers"), None);
    assert!(!one.has_leadership());
    let suspending = services[1].suspend().reason("stock-taking").start();
    soon(suspending.position())
        .await
        .expect("the grantor answers")
        .expect("the reader is in its way");
    let other = latch(&local.members[1], "other").await;
    other.start().expect("it is new");
    let seen = async {
        loop {
            let seen = services[0].inspect("leader").await.expect("the grantor answers");
            if seen.waiters.len() == 3 {
                return seen;
            }
            tokio::time::sleep(MS).await;
        }
    };
    let modes: Vec<_> = soon(seen).await.waiters.into_iter().map(|waiter| waiter.mode).collect();
    assert_eq!(modes, [Mode::Lock, Mode::Suspension, Mode::Lock], "that is what is in the queue");
    assert_eq!(participants(&looks_on, 2).await, ["one", "other"]);

    drop(reader);
    let leads = term(&one).await;
    let seen = soon(looks_on.leader()).await.expect("the grantor answers").expect("it leads");
    assert_eq!((seen.id.as_str(), seen.token), ("one", Some(leads.token())));
    soon(one.close()).await.expect("it leads");
    let suspended = soon(suspending).await.expect("no lock is held");
    assert_eq!(participants(&looks_on, 1).await, ["other"]);
    assert_eq!(soon(looks_on.leader()).await.expect("the grantor answers"), None);
    suspended.resume().await.expect("it was held");
    term(&other).await;
}

/// Curator has `Revocable`, but not for its leaders. Here the leader is told that the lead is
/// requested back, and closes. Or the lead is taken away, and the former leader waits behind all
/// others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocable_latch_is_told_and_the_next_one_leads() {
    let local = Local::start(2).await;
    let service = soon(local.members[1].lock_service("latches")).await.expect("a good name");
    let one = latch(&local.members[0], "one").await.revocable();
    one.start().expect("it is new");
    let first = term(&one).await;
    let firm = latch(&local.members[1], "firm").await;
    firm.start().expect("it is new");
    participants(&one, 2).await;
    let mut revocation = first.revocation();
    assert!(poll_once(pin!(revocation.requested())).is_pending() && !revocation.is_requested());
    let asked = soon(service.revoke("leader").metadata("maintenance").wait(HANG))
        .await
        .expect("it is revocable");
    assert_eq!(asked.told.iter().map(|told| told.token).collect::<Vec<_>>(), [first.token()]);
    for revocation in [&mut revocation, &mut first.revocation()] {
        let request = soon(revocation.requested()).await.expect("it leads");
        assert_eq!(
            (request.metadata.as_bytes(), request.process),
            (&b"maintenance"[..], local.members[1].process())
        );
    }
    first.fence().expect("it decides itself");
    soon(one.close()).await.expect("it leads");
    assert_eq!(soon(revocation.requested()).await, None, "nothing is left to be released");
    let second = term(&firm).await;
    match soon(service.revoke("leader").wait(HANG)).await {
        Err(RevokeError::NotRevocable(holder)) => assert_eq!(holder.token, second.token()),
        other => panic!("{other:?}"),
    }

    let two = latch(&local.members[0], "two").await.lease(HANG).revocable();
    two.start().expect("it is new");
    participants(&two, 2).await;
    soon(firm.close()).await.expect("it leads");
    let third = term(&two).await;
    let last = latch(&local.members[1], "last").await;
    last.start().expect("it is new");
    participants(&two, 2).await;
    let asked = soon(service.revoke("leader").wait(HANG)).await.expect("it is revocable");
    soon(service.force_revoke(&asked.told[0])).await.expect("it was told");
    assert_eq!(reason(soon(third.ended()).await), Some(LostReason::Revoked));
    term(&last).await;
    assert_eq!(participants(&last, 2).await, ["last", "two"], "it stands behind all others");
    soon(last.close()).await.expect("it leads");
    let again = term(&two).await;
    assert!(!again.revocation().is_requested(), "this term has not been asked for");
    soon(service.revoke("leader").wait(HANG)).await.expect("it is revocable in each term");
}

/// A term that is over: its token, its latch, and the reason of the loss.
type EndedTerm = (Token, usize, Option<LostReason>);

/// A term may have a lease, which Curator does not have. When it ends, the next waiter leads, and
/// the former leader waits behind all others.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn leadership_terms_with_a_lease_go_round() {
    let local = Local::start(3).await;
    // The latch `gate` leads without a lease until all are in the queue.
    let gate = latch(&local.members[0], "gate").await;
    gate.start().expect("it is new");
    term(&gate).await;
    let mut latches = Vec::new();
    for member in &local.members {
        // A latch that notices the end of its term late waits in the queue before the next term
        // ends, also on a busy machine.
        let latch = latch(member, "turning").await.lease(1000 * MS);
        latch.start().expect("it is new");
        participants(&gate, latches.len() + 2).await;
        latches.push(latch);
    }
    let terms: Arc<Mutex<Vec<EndedTerm>>> = Arc::default();
    let mut readers = Vec::new();
    for (at, latch) in latches.iter().enumerate() {
        let (mut events, terms) = (latch.events(), terms.clone());
        readers.push(tokio::spawn(async move {
            while let Some(event) = soon(events.next()).await {
                let LatchEvent::IsLeader(term) = event else { panic!("it begins with a term") };
                let LatchEvent::NotLeader { token, end } = next(&mut events).await else {
                    panic!("and ends it")
                };
                assert_eq!(token, term.token());
                terms.lock().expect("no panic").push((token, at, reason(end)));
            }
        }));
    }
    // The first of the terms, in their order, until each latch had three of them.
    let rounds = || {
        let mut all = terms.lock().expect("no panic").clone();
        all.sort();
        let mut counts = [0; 3];
        let last = all.iter().position(|(_, at, _)| {
            counts[*at] += 1;
            counts.iter().all(|count| *count >= 3)
        });
        last.map(|last| all[..=last].to_vec())
    };
    soon(gate.close()).await.expect("it leads");
    until(|| rounds().is_some()).await;
    for latch in &latches {
        soon(latch.close_with(CloseMode::NotifyLeader)).await.expect("it is started");
    }
    // The readers have noted each term by then, also one that a slow reader learned of late.
    for reader in readers {
        soon(reader).await.expect("no panic");
    }
    let rounds = rounds().expect("just seen");
    let turns: Vec<usize> = rounds.iter().map(|(_, at, _)| *at).collect();
    assert_eq!(turns[..3], [0, 1, 2]);
    assert!(turns.windows(2).all(|pair| pair[0] != pair[1]), "{turns:?}");
    let ended = Some(LostReason::LeaseEnded);
    assert!(rounds.iter().all(|(.., reason)| *reason == ended), "{rounds:?}");
}

/// Each term has one leader and is over before the next term begins. In three members some latches
/// close and come again, some turn by lease, and some are dropped. A latch that is told that it
/// leads checks all others at that instant.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_two_latches_ever_lead_at_once() {
    let local = Local::start(3).await;
    let terms: Arc<Mutex<Vec<Term>>> = Arc::default();
    let count = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for (at, member) in local.members.iter().cycle().take(9).cloned().enumerate() {
        let (terms, count) = (terms.clone(), count.clone());
        tasks.push(tokio::spawn(async move {
            while count.load(Ordering::SeqCst) < 150 {
                let mut latch = latch(&member, "one of nine").await;
                if at % 3 == 0 {
                    latch = latch.lease(MS);
                }
                let mut events = latch.events();
                latch.start().expect("it is new");
                let LatchEvent::IsLeader(term) = next(&mut events).await else {
                    panic!("it begins with a term")
                };
                {
                    let mut terms = terms.lock().expect("no panic");
                    for other in terms.iter() {
                        // A lease may have ended, so that another latch leads: then the term of
                        // this latch is over.
                        assert!(
                            other.fence().is_err() || term.fence().is_err(),
                            "{other:?} and {term:?}"
                        );
                        assert_ne!(other.token(), term.token());
                    }
                    terms.push(term.clone());
                }
                count.fetch_add(1, Ordering::SeqCst);
                match at % 3 {
                    1 => soon(latch.close()).await.expect("it is started"),
                    2 => drop(latch),
                    _ => {
                        let LatchEvent::NotLeader { token, .. } = next(&mut events).await else {
                            panic!("its end")
                        };
                        assert_eq!(token, term.token());
                    }
                }
            }
        }));
    }
    for task in tasks {
        soon(task).await.expect("no panic");
    }
    no_latch_stands(&local.members).await;
}

/// Curator: `LeaderLatch` cannot report that its client is gone for good. Here the latch is closed,
/// and reports that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_loses_its_member_or_service_is_closed_and_the_next_one_leads() {
    let local = Local::start(3).await;
    let latches = in_line(&local.members, 3).await;
    let ends = [
        (LostReason::Left, AwaitLeadershipError::Left),
        (LostReason::Destroyed, AwaitLeadershipError::Destroyed),
    ];
    for (at, (why, error)) in ends.into_iter().enumerate() {
        let mut events = latches[at].events();
        let term = term(&latches[at]).await;
        match why {
            LostReason::Left => soon(local.members[at].leave()).await.expect("it leaves"),
            _ => {
                let service = local.members[at].lock_service("latches").await.expect("a good name");
                soon(service.destroy()).await.expect("it is there");
            }
        }
        assert_eq!(reason(soon(term.ended()).await), Some(why));
        until(|| latches[at].state() == LatchState::Closed).await;
        assert_eq!(soon(latches[at].await_leadership()).await, Err(error));
        assert_eq!(latches[at].close().await, Err(CloseError::AlreadyClosed));
        let mut last = None;
        while let Some(event) = soon(events.next()).await {
            last = Some(event);
        }
        let Some(LatchEvent::NotLeader { token, end }) = last else { panic!("{last:?}") };
        assert_eq!((token, reason(end)), (term.token(), Some(why)));
    }
    term(&latches[2]).await.fence().expect("it is the last");
}

/// A latch closes and gives up the lead when the runtime in which it was started ends.
#[test]
fn a_latch_whose_runtime_ends_gives_up_the_lead() {
    let [outer, inner] = [(); 2].map(|()| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("it can be built")
    });
    outer.block_on(async {
        let member = Member::local().await.expect("a runtime is there");
        let stopping = latch(&member, "stopping").await;
        let mut events = stopping.events();
        {
            let _in = inner.enter();
            stopping.start().expect("it is new");
        }
        let leads = term(&stopping).await;
        inner.shutdown_background();
        assert_eq!(soon(leads.ended()).await, TermEnd::GivenUp);
        assert_eq!(soon(stopping.await_leadership()).await, Err(AwaitLeadershipError::Stopped));
        assert!(matches!(next(&mut events).await, LatchEvent::IsLeader(_)));
        assert!(matches!(next(&mut events).await, LatchEvent::NotLeader { .. }));
        assert_eq!(soon(events.next()).await, None);
        let next = latch(&member, "next").await;
        next.start().expect("it is new");
        term(&next).await;
    });
}

/// Every await of a latch is polled k times and dropped, for every k until it completes. Nothing
/// stays held or queued, and no event is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_await_of_a_latch_can_be_dropped_at_any_poll() {
    let local = Local::start(2).await;
    let [here, there] = &local.members[..] else { unreachable!() };
    // The grantor is the other member.
    let first = latch(here, "first").await;
    first.start().expect("it is new");
    term(&first).await;
    soon(first.close()).await.expect("it leads");

    // Await the lead, which comes after a while.
    let k = poll_k_then_drop(
        async || {
            let held = latch(here, "held").await;
            held.start().expect("it is new");
            term(&held).await;
            let waits = latch(there, "waits").await;
            waits.start().expect("it is new");
            participants(&held, 2).await;
            drop(held);
            async move { waits.await_leadership().await.map(drop) }
        },
        async |_| no_latch_stands(&local.members).await,
    )
    .await;
    assert!(k > 0);

    // Close a latch that leads, and one that waits.
    for leads in [true, false] {
        poll_k_then_drop(
            async || {
                let one = Arc::new(latch(there, "one").await);
                one.start().expect("it is new");
                term(&one).await;
                let two = Arc::new(latch(there, "two").await);
                two.start().expect("it is new");
                participants(&one, 2).await;
                let (closes, other) = if leads { (one, two) } else { (two, one) };
                async move {
                    let result = closes.close_with(CloseMode::NotifyLeader).await;
                    drop(other);
                    result
                }
            },
            async |_| no_latch_stands(&local.members).await,
        )
        .await;
    }

    // This latch has a limit, and closes silently.
    let held = latch(here, "held").await;
    held.start().expect("it is new");
    term(&held).await;
    let waits = Arc::new(latch(there, "waits").await);
    waits.start().expect("it is new");
    participants(&held, 2).await;
    poll_a_wait_then_drop(
        async || {
            let waits = waits.clone();
            async move { waits.await_leadership().wait(5 * MS).await.expect_err("another leads") }
        },
        async |_| assert_eq!(waits.state(), LatchState::Started),
    )
    .await;
    assert_eq!(participants(&held, 2).await, ["held", "waits"], "it keeps its position");
    poll_k_then_drop(async || waits.leader(), async |_| assert!(held.has_leadership())).await;
    drop((held, waits));
    poll_k_then_drop(
        async || {
            let one = latch(there, "one").await;
            one.start().expect("it is new");
            term(&one).await;
            async move { one.close().await }
        },
        async |_| no_latch_stands(&local.members).await,
    )
    .await;

    // Read the participants, and await the end of a term.
    let leads = latch(there, "leads").await;
    leads.start().expect("it is new");
    let its_term = term(&leads).await;
    poll_k_then_drop(
        async || leads.participants(),
        async |_| its_term.fence().map(drop).expect("it leads"),
    )
    .await;
    poll_k_then_drop(
        async || its_term.protect(tokio::time::sleep(3 * MS)),
        async |_| its_term.fence().map(drop).expect("it leads"),
    )
    .await;
    drop(leads);
    poll_k_then_drop(async || its_term.ended(), async |_| ()).await;
    no_latch_stands(&local.members).await;

    // Read events.
    let turning = latch(there, "turning").await.lease(50 * MS);
    let events = Arc::new(tokio::sync::Mutex::new(turning.events()));
    turning.start().expect("it is new");
    let heard = Mutex::new(Vec::new());
    let mut rounds = 0;
    while rounds < 20 {
        rounds += 1;
        poll_k_then_drop(
            async || {
                let (events, heard) = (events.clone(), &heard);
                async move {
                    let event = events.lock().await.next().await.expect("it is open");
                    heard.lock().expect("no panic").push(event);
                }
            },
            async |_| (),
        )
        .await;
    }
    let heard = heard.into_inner().expect("no panic");
    assert_eq!(heard.len(), rounds);
    for (at, event) in heard.iter().enumerate() {
        assert_eq!(matches!(event, LatchEvent::IsLeader(_)), at % 2 == 0, "{heard:?}");
    }
}

/// Curator: `LeaderLatchListener` as Quartz uses it (`setAutoStartup(false)`; `isLeader` starts the
/// scheduler, `notLeader` stops it; `destroy` closes the latch quietly). The job runs in one
/// process. When that process ends, the job continues in the other at once, and a latch that comes
/// back waits.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_runs_where_the_latch_leads_and_goes_on_at_the_next() {
    let local = Local::start(2).await;
    let ticks: Arc<Mutex<Vec<(Token, usize)>>> = Arc::default();
    let start = async |number: usize| {
        let latch = latch(&local.members[number], &format!("node {number}")).await;
        let (mut events, ticks) = (latch.events(), ticks.clone());
        let scheduler = tokio::spawn(async move {
            let mut job: Option<tokio::task::JoinHandle<()>> = None;
            while let Some(event) = events.next().await {
                if let LatchEvent::IsLeader(term) = event {
                    let ticks = ticks.clone();
                    job = Some(tokio::spawn(async move {
                        while let Ok(token) = term.fence() {
                            // This check stands for a table that gets the token with each write: it
                            // refuses a late write.
                            {
                                let mut ticks = ticks.lock().expect("no panic");
                                if ticks.last().is_none_or(|(last, _)| *last <= token) {
                                    ticks.push((token, number));
                                }
                            }
                            tokio::time::sleep(MS).await;
                        }
                    }));
                } else if let Some(job) = job.take() {
                    job.abort();
                }
            }
            // After a silent close no listener is told, and the job ends with its term.
            if let Some(job) = job {
                soon(job).await.expect("no panic");
            }
        });
        latch.start().expect("it is new");
        (latch, scheduler)
    };
    let of = |node: usize| {
        ticks.lock().expect("no panic").iter().filter(|(_, number)| *number == node).count()
    };
    let (first, of_first) = start(0).await;
    term(&first).await;
    let (_second, _of_second) = start(1).await;
    participants(&first, 2).await;
    until(|| of(0) >= 10).await;
    assert_eq!(of(1), 0, "it is not a leader");

    soon(first.close()).await.expect("it leads");
    soon(of_first).await.expect("no panic");
    let (done, before) = (of(0), of(1));
    until(|| of(1) >= before + 10).await;
    assert_eq!(of(0), done, "it runs nothing any more");
    let (again, _of_again) = start(0).await;
    participants(&again, 2).await;
    let before = of(1);
    until(|| of(1) >= before + 10).await;
    assert_eq!((of(0), again.has_leadership()), (done, false));
    let ticks = ticks.lock().expect("no panic");
    assert_eq!(
        ticks.iter().map(|(token, _)| token).collect::<BTreeSet<_>>().len(),
        2,
        "one term of each"
    );
}

/// The leader is killed with its member, without a goodbye. The next latch leads when the dead
/// member's lease is surely over. The terms of the dead leader end by themselves.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_next_in_the_queue_leads_when_the_member_of_the_leader_is_killed() {
    let mut local = Local::start_mortal(3).await;
    // The first latch, and so the leader, is at the second member.
    let members = [local.members[1].clone(), local.members[2].clone(), local.members[0].clone()];
    let latches = in_line(&members, 3).await;
    let before = term(&latches[0]).await;
    let mut events = latches[0].events();
    local.kill(1);
    let after = term(&latches[1]).await;
    assert!(after.token() > before.token());
    assert!(before.fence().is_err());
    assert!(!latches[0].has_leadership());
    let LatchEvent::NotLeader { token, .. } = next(&mut events).await else {
        panic!("its end is told")
    };
    assert_eq!(token, before.token());
    assert_eq!(participants(&latches[1], 2).await, ["client1", "client2"]);
}

/// The grantor is killed. The leader keeps leading with its token, and the candidates keep their
/// order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_and_its_line_survive_the_grantor() {
    let mut local = Local::start_mortal(4).await;
    let services = local.services("latches").await;
    soon(services[3].become_grantor()).await.expect("no other member asks");
    let latches = in_line(&local.members[..3], 6).await;
    let leads = term(&latches[0]).await;
    local.kill(3);
    local.agree(3).await;
    assert_eq!(
        participants(&latches[5], 6).await,
        (0..6).map(|number| format!("client{number}")).collect::<Vec<_>>()
    );
    assert_eq!(leads.fence(), Ok(leads.token()));
    let mut tokens = vec![leads.token()];
    for at in 1..6 {
        soon(latches[at - 1].close()).await.expect("it leads");
        tokens.push(term(&latches[at]).await.token());
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

/// A latch in a process of its own.
struct RemoteLatch {
    peer: Peer,
    number: String,
}

impl RemoteLatch {
    fn start(peer: &Peer, id: &str) -> RemoteLatch {
        let number = peer.ask(&format!("latch latches leader {id}")).expect("it starts");
        RemoteLatch { peer: peer.clone(), number }
    }

    /// The token and the instant of each event of this kind.
    fn events(&self, kind: &str) -> Vec<(u64, u64)> {
        let head = format!("{kind} {} ", self.number);
        let numbers = |rest: &str| {
            rest.split(' ').map(|word| word.parse().expect("a number")).collect::<Vec<u64>>()
        };
        let events = self.peer.events();
        events
            .iter()
            .filter_map(|event| event.strip_prefix(&head))
            .map(numbers)
            .map(|of| (of[0], of[1]))
            .collect()
    }

    /// Waits until there are `count` events of this kind, and returns the last one.
    fn hears(&self, kind: &str, count: usize) -> (u64, u64) {
        wait::until(&format!("{kind} at {}", self.peer.addr), || match self.events(kind)[..] {
            [.., last] if self.events(kind).len() >= count => Ok(last),
            _ => Err(format!("{:?}", self.peer.events())),
        })
    }
}

/// Curator: `LeaderLatch` in two programs. Its users first try to end one of them: the other leads
/// at once. Here one is killed (SIGKILL).
#[test]
fn the_next_process_leads_when_the_process_of_the_leader_is_killed() {
    let mut rng = Rng::new("killed_leader", 51);
    let mut cluster = Cluster::start(3, Leases::Short, &mut rng);
    let mut line: Vec<(usize, RemoteLatch)> = Vec::new();
    for number in 0..3 {
        line.push((number, RemoteLatch::start(&cluster.peers[number], &format!("client{number}"))));
        if number == 0 {
            line[0].1.hears("leads", 1);
        }
    }
    let mut highest = 0;
    for round in 0..3 {
        let (number, leader) = line.remove(0);
        wait::until("a latch leads", || {
            // The two remaining latches asked at the same time, so either may lead first.
            if leader.events("leads").is_empty() { Err(format!("round {round}")) } else { Ok(()) }
        });
        let (token, _) = leader.hears("leads", 1);
        assert!(token > highest, "round {round}");
        highest = token;
        cluster.peers[number].process.kill();
        let next = wait::until("the next one leads", || {
            let leads = |(_, latch): &(usize, RemoteLatch)| !latch.events("leads").is_empty();
            line.iter().position(leads).ok_or_else(String::new)
        });
        line.swap(0, next);
        cluster.restart(number, &mut rng).wait().expect("it comes back");
        // Without a vote of the new process, the next kill would leave no quorum.
        cluster.agree();
        line.push((number, RemoteLatch::start(&cluster.peers[number], "again")));
    }
}

/// Curator: a leader that pauses past the end of its session still believes that it leads when it
/// wakes. Here it is stopped (SIGSTOP). Its belief ended before the next latch led; when it wakes,
/// it is told of the loss and queues again.
#[test]
fn a_leader_that_wakes_too_late_knows_that_it_leads_no_more() {
    let mut rng = Rng::new("stopped_leader", 52);
    let cluster = Cluster::start(3, Leases::Short, &mut rng);
    let first = RemoteLatch::start(&cluster.peers[2], "first");
    let (before, _) = first.hears("leads", 1);
    let second = RemoteLatch::start(&cluster.peers[0], "second");
    first.peer.process.stop();
    let (after, began) = second.hears("leads", 1);
    assert!(after > before);
    first.peer.process.resume();
    let (token, _) = first.hears("not-leader", 1);
    assert_eq!(token, before);
    let (token, believed) = first.hears("term-over", 1);
    assert_eq!(token, before);
    assert!(believed < began, "it believed until {believed}, the next one led at {began}");
    second.peer.ask(&format!("close {}", second.number)).expect("it leads");
    let (again, _) = first.hears("leads", 2);
    assert!(again > after, "it waited in the queue by itself");
    assert_eq!(first.events("not-leader").len(), 1);
}
