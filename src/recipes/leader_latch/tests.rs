//! Tests that need members that can be cut off, and a log that can be filled. `tests/latches.rs`
//! has the others, over sockets.

use super::super::{LeaderObserver, LeaderSelector, SelectorError};
use super::*;
use crate::Unavailable;
use crate::protocol::{ClientMessage, GrantorMessage, LostReason, Message, Timing};
use crate::service::Member;
use crate::service::tests::rejoin::Lan;
use crate::service::tests::{come, left_over, sees};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Waker};

const HANG: Duration = Duration::from_secs(120);

/// The times of members of which none is cut off. On a busy machine a shorter lease may end.
const PATIENT: Timing = Timing::wan();

/// The times of members that are cut off, so that the test waits for the end of a lease.
const QUICK: Timing = Timing::lan();

async fn soon<F: Future>(what: F) -> F::Output {
    tokio::time::timeout(HANG, what).await.expect("it never came")
}

async fn three(timing: Timing) -> (Arc<Lan>, [Member; 3]) {
    let lan = Arc::new(Lan::default());
    let members = [1, 2, 3].map(|number| lan.start_with(number, timing));
    come(|| members.iter().all(|member| sees(member, 3))).await;
    (lan, members)
}

/// A latch at each member, in the queue in this order, and all know it: the first one grants, and
/// tells the others.
async fn line(lan: &Lan, members: [&Member; 3]) -> [LeaderLatch; 3] {
    let mut latches = Vec::new();
    for member in members {
        let service = member.lock_service("latches").await.unwrap();
        let latch = LeaderLatch::new(&service, "leader", format!("at {}", member.addr())).unwrap();
        latch.start().unwrap();
        let wait = async {
            while !latch.participants().await.is_ok_and(|seen| seen.first.len() > latches.len()) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(wait).await;
        latches.push(latch);
    }
    lan.positions(2).await;
    latches.try_into().unwrap()
}

fn is_lost(end: TermEnd, reason: LostReason) -> bool {
    matches!(end, TermEnd::Lost(lost) if lost.reason == reason)
}

/// Curator: `LeaderLatch.close` cancels the task that `start` has submitted, if that exists by
/// then.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_is_closed_while_it_starts_leaves_no_position() {
    let member = Member::local().await.unwrap();
    let service = member.lock_service("latches").await.unwrap();
    let held = service.lock("leader").await.unwrap();
    // The latches are kept: dropped ones would release all that they have.
    let latches: Vec<_> = (0..1_000)
        .map(|number| Arc::new(LeaderLatch::new(&service, "leader", format!("{number}")).unwrap()))
        .collect();
    // Each latch is started when it is its turn to be closed, at the same time.
    let turn = Arc::new(AtomicUsize::new(0));
    let (starting, turns, runtime) =
        (latches.clone(), turn.clone(), tokio::runtime::Handle::current());
    let starts = std::thread::spawn(move || {
        let _runtime = runtime.enter();
        for (number, latch) in starting.iter().enumerate() {
            while turns.load(Ordering::SeqCst) <= number {
                std::thread::yield_now();
            }
            latch.start().unwrap();
        }
    });
    for (number, latch) in latches.iter().enumerate() {
        turn.store(number + 1, Ordering::SeqCst);
        while latch.close().await == Err(CloseError::NotStarted) {
            std::hint::spin_loop();
        }
        assert_eq!(latch.state(), LatchState::Closed);
    }
    starts.join().unwrap();
    come(|| left_over(&member).2 == 0).await;
    drop(held);
}

/// Curator: `LeaderLatch.handleStateChange`, SUSPENDED and LOST: no longer the leader; RECONNECTED:
/// `reset`, which makes a new request.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_leader_that_is_cut_off_stops_before_another_leads_and_waits_again_when_it_is_back() {
    let (lan, [elder, second, other]) = three(QUICK).await;
    let [first, next, last] = line(&lan, [&other, &second, &elder]).await;
    let mut events = first.events();
    let before = soon(first.await_leadership()).await.unwrap();

    lan.cut(&other);
    let after = soon(next.await_leadership()).await.unwrap();
    assert!(is_lost(before.fence().unwrap_err(), LostReason::Suspended));
    assert!(!first.has_leadership());
    assert!(after.token() > before.token());
    let told = soon(async {
        loop {
            if let Some(LatchEvent::NotLeader { token, end }) = events.next().await {
                return (token, end);
            }
        }
    });
    let (token, end) = told.await;
    assert!(token == before.token() && is_lost(end, LostReason::Suspended));
    assert_eq!(first.state(), LatchState::Started);

    lan.heal();
    come(|| sees(&other, 3)).await;
    soon(next.close()).await.unwrap();
    soon(last.await_leadership()).await.unwrap();
    soon(last.close()).await.unwrap();
    let again = soon(first.await_leadership()).await.unwrap();
    assert!(again.token() > after.token());
    assert_eq!(soon(events.next()).await, Some(LatchEvent::IsLeader(again)));
    assert!(
        is_lost(before.fence().unwrap_err(), LostReason::Suspended),
        "a term that is over stays so"
    );
}

/// Curator: `LeaderLatch.handleStateChange`, SUSPENDED under the standard error policy: no latch
/// leads while none can know. There the former leader may lead again under its old node; here the
/// next waiter leads.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_latch_leads_while_all_are_suspended_and_then_the_next_in_the_queue_does() {
    let (lan, members) = three(QUICK).await;
    let [elder, second, other] = &members;
    let latches = line(&lan, [second, other, elder]).await;
    let before = soon(latches[0].await_leadership()).await.unwrap();
    members.iter().for_each(|member| lan.cut(member));
    assert!(is_lost(soon(before.ended()).await, LostReason::Suspended));
    assert!(latches.iter().all(|latch| !latch.has_leadership()));
    lan.heal();
    let mut tokens = vec![before.token()];
    for at in [1, 2, 0] {
        tokens.push(soon(latches[at].await_leadership()).await.unwrap().token());
        soon(latches[at].close()).await.unwrap();
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
}

/// Curator: `LeaderLatch.start`, which waits until a connection is established
/// (`AfterConnectionEstablished`), and `cancelStartTask`, when it is closed before that.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_is_started_while_cut_off_stands_when_it_is_back_unless_it_was_closed() {
    let (lan, [elder, second, other]) = three(QUICK).await;
    let of = |service: &LockService, id| LeaderLatch::new(service, "leader", id).unwrap();
    let service = other.lock_service("latches").await.unwrap();
    // One of the other members grants.
    let first = of(&second.lock_service("latches").await.unwrap(), "first");
    first.start().unwrap();
    soon(first.await_leadership()).await.unwrap();
    lan.cut(&other);
    come(|| !other.status().leased).await;
    let (starts, hasty) = (of(&service, "starts"), of(&service, "hasty"));
    let mut told = hasty.events();
    starts.start().unwrap();
    hasty.start().unwrap();
    soon(hasty.close_with(CloseMode::NotifyLeader)).await.unwrap();
    assert_eq!(soon(told.next()).await, None, "it never led");
    assert!(soon(starts.participants()).await.is_err() && !starts.has_leadership());
    lan.heal();
    let both = ["first", "starts"].map(str::to_owned);
    let wait = async {
        loop {
            // The latch's position may be lost with the process, and requested anew.
            let seen =
                first.participants().await.map(|seen| seen.first.into_iter().map(|one| one.id));
            if seen.is_ok_and(|ids| ids.eq(both.iter().cloned())) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    soon(wait).await;
    come(|| sees(&elder, 3)).await;
    soon(first.close()).await.unwrap();
    soon(starts.await_leadership()).await.unwrap();
}

/// Curator: `LeaderLatch.checkLeadership`: each latch watches the one before it, so that the end of
/// one wakes one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_a_hundred_latches_only_the_next_is_told() {
    let (lan, [elder, second, other]) = three(PATIENT).await;
    let mut latches = Vec::new();
    for (at, member) in [&second, &other].into_iter().cycle().take(100).enumerate() {
        let service = member.lock_service("latches").await.unwrap();
        let latch = LeaderLatch::new(&service, "leader", format!("client{at}")).unwrap();
        latch.start().unwrap();
        if at == 0 {
            soon(latch.await_leadership()).await.unwrap();
        }
        latches.push((latch.events(), latch));
    }
    let watching =
        LeaderLatch::new(&elder.lock_service("latches").await.unwrap(), "leader", "looks on")
            .unwrap();
    let line = async |count| {
        let wait = async {
            loop {
                match watching.participants().await {
                    Ok(seen) if seen.first.len() == count => {
                        return seen.first.into_iter().map(|one| one.id).collect();
                    }
                    _ => tokio::time::sleep(Duration::from_millis(1)).await,
                }
            }
        };
        soon(wait).await
    };
    let ids: Vec<String> = line(100).await;
    // The other half of the latches is at the grantor itself.
    lan.positions(50).await;
    let at = |id: &String| id.trim_start_matches("client").parse::<usize>().unwrap();
    for round in 0..3 {
        let (leads, next) = (at(&ids[round]), at(&ids[round + 1]));
        lan.said();
        soon(latches[leads].1.close()).await.unwrap();
        soon(latches[next].1.await_leadership()).await.unwrap();
        let _: Vec<String> = line(99 - round).await;
        let said = lan.said().into_iter();
        let said: Vec<Message> = said
            .filter(|message| {
                !matches!(
                    message,
                    Message::Grantor(GrantorMessage::Query { .. })
                        | Message::Client(ClientMessage::QueryReply { .. })
                )
            })
            .collect();
        let is_all = |message: &Message| {
            matches!(
                message,
                Message::Client(ClientMessage::Grant { .. })
                    | Message::Grantor(GrantorMessage::Release { .. })
            )
        };
        assert!(said.len() <= 2 && said.iter().all(is_all), "{said:?}");
        assert!(matches!(soon(latches[next].0.next()).await, Some(LatchEvent::IsLeader(_))));
        let open = latches.iter_mut().filter(|(_, latch)| latch.state() == LatchState::Started);
        for (events, latch) in open {
            let heard = std::pin::pin!(tokio::task::unconstrained(events.next()));
            assert!(heard.poll(&mut Context::from_waker(Waker::noop())).is_pending(), "{latch:?}");
        }
    }
}

/// Curator: `LeaderSelector`, whose listener is to throw a `CancelLeadershipException` by itself
/// when the connection is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn work_is_dropped_when_the_leader_is_cut_off_and_the_selector_can_run_again() {
    let (lan, [_elder, second, other]) = three(QUICK).await;
    let selector =
        |service: &LockService| Arc::new(LeaderSelector::new(service, "leader", "one").unwrap());
    let first = selector(&other.lock_service("latches").await.unwrap());
    let next = selector(&second.lock_service("latches").await.unwrap());
    let run = |selector: &Arc<LeaderSelector>| {
        let selector = selector.clone();
        tokio::spawn(async move {
            selector.run_once(async |_| std::future::pending::<()>().await).await
        })
    };
    let working = run(&first);
    come(|| first.has_leadership()).await;
    let (before, waiting) = (first.term().unwrap(), run(&next));
    lan.cut(&other);
    let Err(SelectorError::Ended(end)) = soon(working).await.unwrap() else {
        panic!("it never ends by itself")
    };
    assert!(is_lost(end, LostReason::Suspended));
    come(|| next.has_leadership()).await;
    assert!(!first.has_leadership());
    assert!(next.term().unwrap().token() > before.token());
    lan.heal();
    let again = run(&first);
    assert!(next.interrupt());
    soon(waiting).await.unwrap().unwrap_err();
    come(|| first.has_leadership()).await;
    again.abort();
    come(|| !first.has_leadership()).await;
}

#[tokio::test]
async fn a_slow_reader_hears_how_many_events_it_missed_and_whether_the_latch_leads() {
    let member = Member::local().await.unwrap();
    let service = member.lock_service("latches").await.unwrap();
    let latch = LeaderLatch::new(&service, "leader", "one").unwrap();
    let (mut slow, mut late) = (latch.events(), latch.events());
    latch.start().unwrap();
    let term = soon(latch.await_leadership()).await.unwrap();
    let over = LatchEvent::NotLeader { token: term.token(), end: TermEnd::GivenUp };
    // The log keeps this many events, so none is missed.
    latch.state.send_modify(|state| (1..LOG).for_each(|_| state.tell(over.clone())));
    assert_eq!(soon(late.next()).await, Some(LatchEvent::IsLeader(term.clone())));
    for _ in 1..LOG {
        assert_eq!(soon(late.next()).await, Some(over.clone()));
    }
    // One further event exceeds the log.
    latch.state.send_modify(|state| state.tell(over.clone()));
    let missed = LatchEvent::Missed { count: LOG as u64 + 1, leads: Some(term) };
    assert_eq!(soon(slow.next()).await, Some(missed));
    assert_eq!(soon(late.next()).await, Some(over));
    latch.close_with(CloseMode::NotifyLeader).await.unwrap();
    for events in [&mut slow, &mut late] {
        assert!(matches!(soon(events.next()).await, Some(LatchEvent::NotLeader { .. })));
        assert_eq!(soon(events.next()).await, None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_that_resigns_says_so_once_and_queues_last() {
    let (lan, [elder, second, other]) = three(PATIENT).await;
    let latches = line(&lan, [&other, &second, &elder]).await;
    let mut events = latches[0].events();
    let term = soon(latches[0].await_leadership()).await.unwrap();
    assert!(latches.iter().skip(1).all(|latch| !latch.resign(&term)), "the term is not theirs");
    assert!(latches[0].resign(&term) && !latches[0].resign(&term));
    assert_eq!((term.fence(), latches[0].state()), (Err(TermEnd::GivenUp), LatchState::Started));
    let mut last = term.token();
    // Each latch is next when the earlier ones have resigned; the first one is behind the last.
    for at in [1, 2, 0, 1] {
        let term = soon(latches[at].await_leadership()).await.unwrap();
        assert!(term.token() > last);
        last = term.token();
        let full = async {
            while !latches[at].participants().await.is_ok_and(|seen| seen.first.len() == 3) {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        };
        soon(full).await;
        assert!(latches[at].resign(&term));
    }
    let over = LatchEvent::NotLeader { token: term.token(), end: TermEnd::GivenUp };
    // The event of the leadership may have come before the reader subscribed.
    let first = match soon(events.next()).await {
        Some(LatchEvent::IsLeader(_)) => soon(events.next()).await,
        first => first,
    };
    assert_eq!(first, Some(over));
    assert!(matches!(soon(events.next()).await, Some(LatchEvent::IsLeader(_))));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_observer_sees_each_leader_that_stays_and_that_none_leads() {
    let (lan, [elder, second, other]) = three(PATIENT).await;
    let latches = line(&lan, [&other, &second, &elder]).await;
    let service = elder.lock_service("latches").await.unwrap();
    let mut observer =
        LeaderObserver::new(&service, "leader").unwrap().every(Duration::from_millis(5));
    for latch in &latches {
        let term = soon(latch.await_leadership()).await.unwrap();
        let seen = soon(observer.next()).await.unwrap().expect("it leads");
        assert_eq!((seen.id, seen.token), (latch.id(), Some(term.token())));
        let heard = std::pin::pin!(tokio::task::unconstrained(observer.next()));
        assert!(
            heard.poll(&mut Context::from_waker(Waker::noop())).is_pending(),
            "nothing has changed"
        );
        soon(latch.close()).await.unwrap();
    }
    assert_eq!(soon(observer.next()).await.unwrap(), None);
    assert_eq!(soon(observer.participants()).await.unwrap().first.len(), 0);
    service.destroy().await.unwrap();
    assert_eq!(soon(observer.next()).await, Err(InspectError::Unavailable(Unavailable::Destroyed)));
}
