//! What only the inside shows of recipes: who is woken, and what is said.

use super::*;
use crate::protocol::Message;
use crate::service::tests::rejoin::Lan;
use crate::service::tests::{come, left_over, sees};
use crate::{Guard, Timing};
use std::future::{IntoFuture, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};

/// Curator `InterProcessMutex`: each waiter watches the one before it, so a release tells one, not the herd.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_thousand_waiters_a_release_says_one_message_and_wakes_one() {
    const WAITERS: usize = 1000;
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    let held = ReentrantMutex::new(&here, "a").acquire(Owner::new()).await.unwrap();

    let polls = Arc::new(AtomicUsize::new(0));
    let granted = Arc::new(StdMutex::new(Vec::<Guard>::new()));
    let mutex = ReentrantMutex::new(&there, "a");
    let mut waiters = tokio::task::JoinSet::new();
    for _ in 0..WAITERS {
        let mut asking = mutex.acquire(Owner::new()).into_future();
        let (polls, granted) = (polls.clone(), granted.clone());
        waiters.spawn(async move {
            let guard = poll_fn(|context| {
                polls.fetch_add(1, Ordering::SeqCst);
                asking.as_mut().poll(context)
            });
            let guard = guard.await.unwrap();
            granted.lock().unwrap().push(guard);
        });
    }
    come(|| left_over(&other).2 == WAITERS).await;
    // Links keep order: once this is answered, all of them have their places and know them.
    let seen = there.inspect("a").await.unwrap();
    assert_eq!(seen.waiters.len() as u64 + seen.more, WAITERS as u64);

    let polled = polls.load(Ordering::SeqCst);
    let mut release = Some(held);
    for round in 1..=3 {
        lan.said.lock().unwrap().clear();
        // The first is the grantor's own; that of another member takes a message to the grantor.
        let is_own = round == 1;
        release.take().expect("each round hands on to the next").release().await.unwrap();
        come(|| !granted.lock().unwrap().is_empty()).await;
        there.inspect("a").await.unwrap();
        assert_eq!(polls.load(Ordering::SeqCst), polled + round, "one waiter was woken, once");
        let said: Vec<Message> = std::mem::take(&mut *lan.said.lock().unwrap()).into_values().collect();
        let count = |is: fn(&Message) -> bool| said.iter().filter(|message| is(message)).count();
        let grants = count(|message| matches!(message, Message::Grant { .. }));
        let done = count(|message| matches!(message, Message::Done { .. }));
        let look = count(|message| matches!(message, Message::Look { .. } | Message::Seen { .. }));
        assert_eq!((grants, done, look), (1, usize::from(!is_own), 2), "{said:?}");
        assert_eq!(said.len(), grants + done + look, "{said:?}");
        release = granted.lock().unwrap().pop();
        assert!(granted.lock().unwrap().is_empty(), "one was granted");
    }
}

/// "10 million distinct idle names": what nobody holds or asks for is not remembered.
#[tokio::test]
async fn a_name_that_nobody_holds_or_asks_for_is_forgotten() {
    let member = crate::Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let (mutex, owner) = (ReentrantMutex::new(&stock, "a"), Owner::new());
    let outer = mutex.acquire(owner).await.unwrap();
    let inner = mutex.acquire(owner).await.unwrap();
    let other = mutex.acquire(Owner::new()).wait(std::time::Duration::ZERO).await;
    assert!(other.unwrap_err().is_timeout());
    assert_eq!(stock.claims_kept(), 1);
    let waiting = tokio::spawn(mutex.acquire(Owner::new()).into_future());
    come(|| left_over(&member).2 == 1).await;
    assert_eq!(stock.claims_kept(), 2);
    drop(outer);
    assert_eq!((stock.claims_kept(), mutex.depth(owner)), (2, 1));
    drop(inner);
    assert!(!mutex.is_held_by(owner));
    drop(waiting.await.unwrap().unwrap());
    assert_eq!((stock.claims_kept(), left_over(&member)), (0, (0, 0, 0)));
}
