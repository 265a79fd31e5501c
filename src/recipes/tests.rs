//! Tests of recipes that need their inside: the woken tasks, and the messages.

use super::*;
use crate::protocol::{ClientMessage, GrantorMessage, Message, Slot};
use crate::service::tests::rejoin::Lan;
use crate::service::tests::{HANG, MS, come, left_over, sees};
use crate::{ConnectionEvent, LockError, Member, Timing};
use std::future::{IntoFuture, poll_fn};
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex as StdMutex};
use std::task::Poll;

/// Curator `InterProcessMutex`: each waiter watches the one before it, so a release wakes one
/// waiter, not all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn with_a_thousand_waiters_a_release_says_one_message_and_wakes_one() {
    const WAITERS: usize = 1000;
    let lan = Arc::new(Lan::default());
    let members = [1, 2, 3].map(|number| lan.start_with(number, Timing::lan()));
    come(|| members.iter().all(|member| sees(member, 3))).await;
    let [grantor, one, other] = &members;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = [
        one.lock_service("inventory").await.unwrap(),
        other.lock_service("inventory").await.unwrap(),
    ];
    let held = ReentrantMutex::new(&here, "a").acquire(Owner::new()).await.unwrap();

    let polls = Arc::new(AtomicUsize::new(0));
    let granted = Arc::new(StdMutex::new(Vec::<ReentrantGuard>::new()));
    let mut waiters = tokio::task::JoinSet::new();
    let mut tasks = Vec::new();
    for number in 0..WAITERS {
        let mut asking =
            ReentrantMutex::new(&there[number % 2], "a").acquire(Owner::new()).into_future();
        let (polls, granted) = (polls.clone(), granted.clone());
        tasks.push(waiters.spawn(async move {
            let guard = poll_fn(|context| {
                polls.fetch_add(1, Ordering::SeqCst);
                asking.as_mut().poll(context)
            });
            let guard = guard.await.unwrap();
            granted.lock().unwrap().push(guard);
        }));
    }
    come(|| left_over(one).2 + left_over(other).2 == WAITERS).await;
    lan.positions(WAITERS).await;
    let seen = here.inspect("a").await.unwrap();
    assert_eq!(seen.waiters.len() as u64 + seen.more, WAITERS as u64);

    // Two requests in the middle end: each sends a message, and no task is woken.
    let polled = polls.load(Ordering::SeqCst);
    lan.said();
    for number in [500, 701] {
        tasks[number].abort();
    }
    come(|| left_over(one).2 + left_over(other).2 == WAITERS - 2).await;
    for service in &there {
        service.inspect("a").await.unwrap();
    }
    let seen = here.inspect("a").await.unwrap();
    assert_eq!(seen.waiters.len() as u64 + seen.more, WAITERS as u64 - 2);
    let done = lan.said().into_iter().filter(|message| {
        !matches!(
            message,
            Message::Grantor(GrantorMessage::Query { .. })
                | Message::Client(ClientMessage::QueryReply { .. })
        )
    });
    let done: Vec<Message> = done.collect();
    assert!(
        done.len() == 2
            && done
                .iter()
                .all(|message| matches!(message, Message::Grantor(GrantorMessage::Release { .. }))),
        "{done:?}"
    );
    assert_eq!(polls.load(Ordering::SeqCst), polled, "no task was woken");

    let polled = polls.load(Ordering::SeqCst);
    let mut release = Some(held);
    for round in 1..=3 {
        lan.said();
        // The first is the grantor's own; that of another member takes a message to the grantor.
        let is_own = round == 1;
        release.take().expect("each round hands on to the next").release().await.unwrap();
        come(|| !granted.lock().unwrap().is_empty()).await;
        for service in &there {
            service.inspect("a").await.unwrap();
        }
        assert_eq!(polls.load(Ordering::SeqCst), polled + round, "one waiter was woken, once");
        let said = lan.said();
        let count = |is: fn(&Message) -> bool| said.iter().filter(|message| is(message)).count();
        let grants =
            count(|message| matches!(message, Message::Client(ClientMessage::Grant { .. })));
        let done =
            count(|message| matches!(message, Message::Grantor(GrantorMessage::Release { .. })));
        let look = count(|message| {
            matches!(
                message,
                Message::Grantor(GrantorMessage::Query { .. })
                    | Message::Client(ClientMessage::QueryReply { .. })
            )
        });
        assert_eq!((grants, done, look), (1, usize::from(!is_own), 4), "{said:?}");
        assert_eq!(said.len(), grants + done + look, "{said:?}");
        release = granted.lock().unwrap().pop();
        assert!(granted.lock().unwrap().is_empty(), "one was granted");
    }
}

/// Curator `LockInternals`, `CreateBuilder.withProtection`: a node whose creation was not confirmed
/// is found again by a number of its own, and not created twice. Here a lost message is sent again,
/// and carried out once: the request, the grant, and the release.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_with_a_lost_message_is_queued_once_and_granted_once() {
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    let held = ReentrantMutex::new(&here, "a").acquire(Owner::new()).await.unwrap();
    // At least one message of this kind is lost.
    let lose = async |what: fn(&Message) -> bool, says: &mut dyn FnMut()| {
        lan.lose(what);
        says();
        come(|| lan.lost() > 0).await;
        lan.lose(|_| false);
    };

    let asking = StdMutex::new(None);
    let ask = || ReentrantMutex::new(&there, "a").acquire(Owner::new()).into_future();
    lose(|said| matches!(said, Message::Grantor(GrantorMessage::RequestLock { .. })), &mut || {
        *asking.lock().unwrap() = Some(tokio::spawn(ask()))
    })
    .await;
    let asking = asking.into_inner().unwrap().unwrap();
    let waits = async |count: usize| {
        let wait = async {
            while here.inspect("a").await.unwrap().waiters.len() != count {
                tokio::time::sleep(MS).await
            }
        };
        tokio::time::timeout(HANG, wait).await.expect("it never came");
    };
    waits(1).await;

    let mut held = Some(held);
    lose(|said| matches!(said, Message::Client(ClientMessage::Grant { .. })), &mut || {
        drop(held.take())
    })
    .await;
    let guard = asking.await.unwrap().unwrap();
    let seen = here.inspect("a").await.unwrap();
    assert_eq!(
        (seen.holders.len(), seen.waiters.len(), seen.holders[0].token),
        (1, 0, guard.token())
    );

    let mut guard = Some(guard);
    lose(|said| matches!(said, Message::Grantor(GrantorMessage::Release { .. })), &mut || {
        drop(guard.take())
    })
    .await;
    come(|| left_over(&grantor) == (0, 0, 0) && left_over(&other) == (0, 0, 0)).await;
    here.lock("a").await.unwrap().release().await.unwrap();
}

/// "10 million distinct idle names": a name without a holder or a waiter is not remembered.
#[tokio::test]
async fn a_name_without_holds_and_requests_is_forgotten() {
    let member = crate::Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let (mutex, owner) = (ReentrantMutex::new(&stock, "a"), Owner::new());
    let outer = mutex.acquire(owner).await.unwrap();
    let inner = mutex.acquire(owner).await.unwrap();
    let other = mutex.acquire(Owner::new()).wait(std::time::Duration::ZERO).await;
    assert!(other.unwrap_err().is_timeout());
    assert_eq!(stock.entries_kept(), 1);
    let waiting = tokio::spawn(mutex.acquire(Owner::new()).into_future());
    come(|| left_over(&member).2 == 1).await;
    assert_eq!(stock.entries_kept(), 2);
    drop(outer);
    assert_eq!((stock.entries_kept(), mutex.depth(owner)), (2, 1));
    drop(inner);
    assert!(!mutex.is_held_by(owner));
    drop(waiting.await.unwrap().unwrap());
    assert_eq!((stock.entries_kept(), left_over(&member)), (0, (0, 0, 0)));
}

/// OpenVMS, Linux DLM: the value block of a lock. A holder is refused as soon as a later one has
/// read or written, even while its clock and so `fence` allow the write. A holder whose write was
/// under way then is refused, too.
#[tokio::test]
async fn a_lock_value_refuses_stale_tokens_at_any_reading_of_the_clock() {
    let member = crate::Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let value = LockValue::open(&stock, "a", "first").await.unwrap();
    let fence = |guard: &crate::Guard| {
        let token = guard.fence().unwrap().get();
        lock_value::ValueFence { token, lineage: guard.lineage().0 }
    };
    let stale = fence(&stock.lock("a").await.unwrap());
    let write =
        async |by, new: Option<&'static [u8]>| value.put(&value.shared(), || Ok(by), new).await;
    write(stale, Some(b"second")).await.unwrap();

    // Reading under the lock is enough to refuse earlier holders.
    let next = stock.lock("a").await.unwrap();
    assert_eq!(*value.read(&next).await.unwrap().value, b"second"[..]);
    for new in [None, Some(&b"stale"[..])] {
        assert_eq!(write(stale, new).await, Err(LockValueError::Superseded));
    }
    assert_eq!(*value.get().unwrap().value, b"second"[..]);

    // The later holder reads between the check and the write.
    let late = fence(&next);
    // An equal token of another lineage is refused.
    let other = lock_value::ValueFence { lineage: !late.lineage, ..late };
    assert_eq!(write(other, Some(b"other")).await, Err(LockValueError::Superseded));
    drop(next);
    let latest = stock.lock("a").await.unwrap();
    let wakes = StdMutex::new(Some(value.write(&latest, "latest")));
    let slept = || {
        if let Some(write) = wakes.lock().unwrap().take() {
            let mut write = Box::pin(write);
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            assert!(
                write.as_mut().poll(&mut context).is_ready(),
                "the grantor's own member writes at once"
            );
        }
        Ok(late)
    };
    let written = value.put(&value.shared(), slept, Some(b"late")).await;
    assert_eq!(written, Err(LockValueError::Superseded));
    assert_eq!(*value.get().unwrap().value, b"latest"[..]);
}

/// A holder that turned the hold into a share by another guard writes no more, even if the write
/// was under way. Other holders may have shares now.
#[tokio::test]
async fn a_lock_value_looks_before_each_try_whether_the_hold_is_a_share() {
    let member = crate::Member::local().await.unwrap();
    let stock = member.lock_service("inventory").await.unwrap();
    let value = LockValue::open(&stock, "a", "first").await.unwrap();
    let guard = stock.lock("a").await.unwrap();
    let own = lock_value::ValueFence { token: guard.token().get(), lineage: guard.lineage().0 };
    let tries = StdMutex::new(0);
    let shared_at_the_second = || {
        let mut tries = tries.lock().unwrap();
        *tries += 1;
        if *tries > 1 {
            return Err(LockValueError::Shared);
        }
        // Another write comes first, so that this write is tried again.
        let mut write = Box::pin(value.write(&guard, "second"));
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        assert!(
            write.as_mut().poll(&mut context).is_ready(),
            "the grantor's own member writes at once"
        );
        Ok(own)
    };
    let written = value.put(&value.shared(), shared_at_the_second, Some(b"third")).await;
    assert_eq!((written, *tries.lock().unwrap()), (Err(LockValueError::Shared), 2));
    assert_eq!(*value.get().unwrap().value, b"second"[..]);
}

/// redisson#5044: "users do not know what to do with the token". The resource asks its gate.
#[test]
fn a_gate_refuses_every_token_that_is_lower_than_one_before() {
    use crate::{LineageId, Token};
    let token = |slot, within| Token::new(Slot(slot), within);
    let (one, other) = (LineageId(1), LineageId(2));
    let mut gate = TokenGate::new();
    assert_eq!(gate.highest(), None);
    // A higher token of another lineage is admitted: tokens alone order the writes.
    for (token, lineage) in
        [(token(1, 7), one), (token(1, 7), one), (token(1, 8), other), (token(2, 1), one)]
    {
        assert_eq!((gate.admit(token, lineage), gate.highest()), (Ok(()), Some((token, lineage))));
    }
    // The last pair has a token equal to the highest, but another lineage.
    for (stale, lineage) in
        [(token(1, 7), one), (token(1, 9), one), (token(2, 0), other), (token(2, 1), other)]
    {
        let error =
            StaleToken { token: stale, lineage, highest: token(2, 1), highest_lineage: one };
        assert_eq!(gate.admit(stale, lineage), Err(error));
        assert_eq!(gate.highest(), Some((token(2, 1), one)), "nothing is changed");
    }
    // The highest token is stored with the guarded data, and a new gate begins with it.
    let mut again = TokenGate::with_highest(token(2, 1), one);
    assert_eq!(again, gate);
    assert!(again.admit(token(1, 9), one).is_err() && again.admit(token(2, 1), other).is_err());
}

/// Curator `InterProcessMutex`: `threadData` is of one lock. An owner is granted a lock twice, and
/// the first hold ends before its task runs. That task notes the first hold after the second one.
/// The owner still counts as having the second hold, which is lost. It gets the lock again only
/// when the guard of that hold is gone.
#[tokio::test]
async fn a_hold_that_is_over_before_it_is_noticed_opens_no_later_one_that_is_lost() {
    let lease = std::time::Duration::from_millis(5);
    let member = crate::Member::local().await.unwrap();
    let (mutex, owner) =
        (ReentrantMutex::new(&member.lock_service("inventory").await.unwrap(), "a"), Owner::new());
    let first = mutex.acquire(Owner::new()).await.unwrap();
    let mut late = mutex.acquire(owner).lease(lease).into_future();
    assert!(
        late.as_mut()
            .poll(&mut std::task::Context::from_waker(std::task::Waker::noop()))
            .is_pending()
    );
    // This hold is granted now, and over when the next one is granted.
    drop(first);
    let later = mutex.acquire(owner).lease(lease).await.unwrap();
    later.lost().await;
    let over = late.await.unwrap();
    assert!(over.fence().is_err() && over.token() < later.token());
    drop(over);
    assert!(mutex.acquire(owner).await.unwrap_err().is_lost(), "a guard of the later one is left");
    drop(later);
    mutex.acquire(owner).await.unwrap().release().await.unwrap();
}

/// `ConnectionEvent`: a task that waits at an open object continues to wait. Shares end with a
/// suspension, so a gathering task takes another one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn double_barrier_gathers_on_after_a_suspension() {
    let lan = Arc::new(Lan::default());
    let members = [1, 2, 3].map(|number| lan.start(number));
    come(|| members.iter().all(|member| sees(member, 3))).await;
    let mut barriers = Vec::new();
    for member in &members {
        let stock = member.lock_service("inventory").await.unwrap();
        barriers.push(DoubleBarrier::open(&stock, "a", 3).await.unwrap());
    }
    // Both are checked together: a member that was cut off for long may have lost the grantor.
    let sum = |all: [(usize, usize, usize); 3]| {
        all.into_iter().fold((0, 0, 0), |a, b| (a.0 + b.0, a.1 + b.1, a.2 + b.2))
    };
    let opened = sum(members.each_ref().map(left_over));
    let entering = |of: usize| {
        let barrier = barriers[of].clone();
        tokio::spawn(async move { barrier.enter().wait(HANG).await })
    };
    // Waits for `count` shares with tokens later than `after`. Returns the last of these tokens.
    let gathered = async |count: usize, after: u64| {
        let here = members[0].lock_service("inventory").await.unwrap();
        let wait = async {
            loop {
                let tokens = here.inspect("a").await.map_or_else(
                    |_| Vec::new(),
                    |seen| seen.holders.iter().map(|holder| holder.token.get()).collect(),
                );
                if tokens.len() == count && tokens.iter().all(|token| *token > after) {
                    break tokens.into_iter().max().unwrap_or_default();
                }
                tokio::time::sleep(MS).await;
            }
        };
        tokio::time::timeout(HANG, wait).await.expect("it never came")
    };
    let mut connections = members.each_ref().map(Member::connection);
    let mut all_are = async |state: ConnectionEvent| {
        for connection in &mut connections {
            let next = tokio::time::timeout(HANG, connection.next()).await.expect("it never came");
            assert_eq!(next, Some(state));
        }
    };
    all_are(ConnectionEvent::Connected).await;
    let processes = members.each_ref().map(Member::process);

    // Once the third task comes afterwards, and once a task ends its wait meanwhile.
    for gives_up in [false, true] {
        let waiting = [entering(1), entering(2)];
        let before = gathered(2, 0).await;
        // The members must know of the shares, too: a grant that arrived after the suspension would
        // be as good as a later one.
        let holds =
            |member: &Member| member.status().services.iter().any(|service| service.held_here == 1);
        come(|| members[1..].iter().all(holds)).await;
        members.iter().for_each(|member| lan.cut(member));
        all_are(ConnectionEvent::Suspended).await;
        assert!(
            barriers[0]
                .enter()
                .wait(std::time::Duration::from_millis(20))
                .await
                .unwrap_err()
                .is_timeout()
        );
        let mut waiting = Vec::from(waiting);
        if gives_up {
            waiting.remove(0).abort();
        }
        lan.heal();
        all_are(ConnectionEvent::Reconnected).await;
        assert_eq!(members.each_ref().map(Member::process), processes);
        gathered(waiting.len(), before).await;
        assert!(waiting.iter().all(|task| !task.is_finished()), "there are too few");
        while waiting.len() < 3 {
            waiting.push(entering(0));
        }
        // A task that comes after another has begun to leave waits for the next round.
        let mut inside = Vec::new();
        for task in waiting {
            inside.push(task.await.unwrap().expect("all three are there"));
        }
        let mut leaving = tokio::task::JoinSet::new();
        for place in inside {
            leaving.spawn(place.leave().wait(HANG));
        }
        while let Some(left) = leaving.join_next().await {
            left.unwrap().expect("all leave");
        }
        come(|| sum(members.each_ref().map(left_over)) == opened).await;
    }
}

/// Two members, of which the first grants and is busy with changes of its own: `near` again and
/// again, as long as `far` continues. Returns how many writes the other member asked for.
async fn writes_beside_a_busy_grantor<N: Future + Send>(
    lan: &Lan,
    near: impl Fn() -> N + Send + 'static,
    far: impl Future,
) -> usize {
    let is_over = Arc::new(AtomicBool::new(false));
    let over = is_over.clone();
    let busy = tokio::spawn(async move {
        while !over.load(Ordering::SeqCst) {
            near().await;
            tokio::task::yield_now().await;
        }
    });
    lan.said();
    tokio::time::timeout(HANG, far).await.expect("it never came");
    is_over.store(true, Ordering::SeqCst);
    busy.await.unwrap();
    lan.said()
        .iter()
        .filter(|message| matches!(message, Message::Grantor(GrantorMessage::Write { .. })))
        .count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn changes_far_from_a_busy_grantor_are_asked_for_once_each() {
    const TIMES: usize = 20;
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    drop(here.lock("a").await.unwrap());

    let near = SharedCount::open(&here, "count", 0).await.unwrap();
    let far = SharedCount::open(&there, "count", 0).await.unwrap();
    let added = Arc::new(AtomicUsize::new(0));
    let (by, adder) = (added.clone(), near.clone());
    let near_adds = move || {
        let (adder, by) = (adder.clone(), by.clone());
        async move {
            adder.add(1).await.unwrap();
            by.fetch_add(1, Ordering::SeqCst);
        }
    };
    let far_adds = async {
        for _ in 0..TIMES {
            far.add(1).await.unwrap();
        }
    };
    assert_eq!(writes_beside_a_busy_grantor(&lan, near_adds, far_adds).await, TIMES);
    assert_eq!(
        far.read().await.unwrap().count as usize,
        added.load(Ordering::SeqCst) + TIMES,
        "each was added once"
    );

    let near = CountDownLatch::open(&here, "latch", u32::MAX).await.unwrap();
    let far = CountDownLatch::open(&there, "latch", 0).await.unwrap();
    let near_counts = move || {
        let near = near.clone();
        async move { near.count_down().await.map(drop).unwrap() }
    };
    let far_counts = async {
        let mut last = u32::MAX;
        for _ in 0..TIMES {
            let left = far.count_down().await.unwrap();
            assert!(left < last);
            last = left;
        }
    };
    assert_eq!(writes_beside_a_busy_grantor(&lan, near_counts, far_counts).await, TIMES);

    let near = Barrier::open(&here, "barrier").await.unwrap();
    let far = Barrier::open(&there, "barrier").await.unwrap();
    let near_turns = move || {
        let near = near.clone();
        async move { near.set().await.and(near.remove().await).unwrap() }
    };
    let far_turns = async {
        for _ in 0..TIMES {
            far.set().await.unwrap();
            far.remove().await.unwrap();
        }
    };
    assert_eq!(writes_beside_a_busy_grantor(&lan, near_turns, far_turns).await, 2 * TIMES);
}

async fn is_pending(mut wait: Pin<&mut impl Future>) -> bool {
    poll_fn(|context| Poll::Ready(wait.as_mut().poll(context).is_pending())).await
}

/// A task that waits for a zero continues, though it learns of the zero only when the latch has
/// begun anew. A task that knows of a zero in the past waits for the next one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_latch_begins_anew_for_later_waiters() {
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    drop(here.lock("a").await.unwrap());
    let near = CountDownLatch::open(&here, "latch", 1).await.unwrap();
    let far = CountDownLatch::open(&there, "latch", 7).await.unwrap();
    assert!(
        matches!(near.reset(2).await, Err(CountError::Changed(now)) if now.count == 1),
        "it is not zero"
    );
    {
        let mut waiting = pin!(far.wait());
        assert!(is_pending(waiting.as_mut()).await);
        near.count_down().await.unwrap();
        near.reset(2).await.unwrap();
        come(|| far.count() == Ok(2)).await;
        waiting.await.unwrap();
    }
    assert!(near.reset(2).await.is_err(), "another was first");

    near.count_down().await.and(near.count_down().await).unwrap();
    come(|| far.count() == Ok(0)).await;
    lan.lose(|said| matches!(said, Message::Client(ClientMessage::Value { .. })));
    near.reset(1).await.unwrap();
    let mut waiting = pin!(far.wait());
    assert!(is_pending(waiting.as_mut()).await, "it asks");
    assert_eq!(far.count(), Ok(0), "it has not heard that it began anew");
    lan.lose(|_| false);
    come(|| far.count() == Ok(1)).await;
    let limit = tokio::time::timeout(20 * MS, waiting.as_mut()).await;
    assert!(limit.is_err(), "it waits for the next zero");
    near.count_down().await.unwrap();
    waiting.await.unwrap();
}

/// An opening before the grantor knows of the end of all others finds the old object. After a close
/// the object is new.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_all_have_closed_begins_anew() {
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    drop(here.lock("a").await.unwrap());
    let near = CountDownLatch::open(&here, "latch", 1).await.unwrap();
    let far = CountDownLatch::open(&there, "latch", 1).await.unwrap();
    assert_eq!(near.count_down().await, Ok(0));
    near.close().await.unwrap();

    lan.lose(|said| matches!(said, Message::Grantor(GrantorMessage::Release { .. })));
    {
        let mut closing = pin!(far.close());
        assert!(is_pending(closing.as_mut()).await, "no member has heard of it");
        let early = CountDownLatch::open(&here, "latch", 1).await.unwrap();
        assert_eq!(early.count(), Ok(0), "it joins what was");
        early.close().await.unwrap();
        assert!(is_pending(closing.as_mut()).await, "no member has heard of it");
        lan.lose(|_| false);
        tokio::time::timeout(HANG, closing).await.expect("it never came").unwrap();
    }
    let anew = CountDownLatch::open(&here, "latch", 1).await.unwrap();
    assert_eq!(anew.count(), Ok(1));
    assert!(is_pending(pin!(anew.wait())).await, "it passes at once");
    anew.close().await.unwrap();

    for service in [&here, &there] {
        for limit in [2, 3] {
            let tills = Semaphore::open(service, "tills", limit).await.unwrap();
            assert_eq!(tills.limit().get().unwrap().count, limit as i32);
            // A further clone of the same opening: only the close of the last clone waits.
            tills.clone().close().await.unwrap();
            tills.close().await.unwrap();
        }
    }
    come(|| left_over(&grantor) == (0, 0, 0) && left_over(&other) == (0, 0, 0)).await;
}

/// The error of a wait that no grantor answers.
async fn at_limit<'a, T: std::fmt::Debug + 'a, E: 'a>(wait: WaitFuture<'a, T, E>) -> E {
    let ended = tokio::time::timeout(HANG, wait.wait(20 * MS)).await.expect("it never came");
    ended.expect_err("no grantor has answered")
}

/// Here the grantor has opened the object, and its answer is lost.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_opening_that_was_made_and_not_answered_ends_with_its_limit() {
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    drop(here.lock("a").await.unwrap());

    lan.lose(|said| matches!(said, Message::Client(ClientMessage::Value { .. })));
    let refused = async {
        // The opening is repeated if a limit has ended before the grantor was asked.
        while lan.lost() == 0 {
            assert_eq!(at_limit(SharedCount::open(&there, "count", 1)).await, LockError::TimedOut);
        }
    };
    tokio::time::timeout(HANG, refused).await.expect("it never came");
    lan.lose(|_| false);
    let forgotten = async {
        while here.inspect("count").await.unwrap().opener_count > 0 {
            tokio::time::sleep(MS).await;
        }
    };
    tokio::time::timeout(HANG, forgotten).await.expect("it never came");
    let count = SharedCount::open(&here, "count", 2).await.unwrap();
    assert_eq!(count.get().unwrap().count, 2, "no opening is left");
    drop(count);
    come(|| left_over(&grantor) == (0, 0, 0) && left_over(&other) == (0, 0, 0)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn openings_and_reads_of_a_member_that_is_cut_off_end_at_their_limits() {
    let lan = Arc::new(Lan::default());
    let (grantor, other) = (lan.start_with(1, Timing::lan()), lan.start_with(2, Timing::lan()));
    come(|| sees(&grantor, 2) && sees(&other, 2)).await;
    let here = grantor.lock_service("inventory").await.unwrap();
    let there = other.lock_service("inventory").await.unwrap();
    drop(here.lock("a").await.unwrap());
    let count = SharedCount::open(&there, "old count", 3).await.unwrap();
    let counter = AtomicCounter::open(&there, "old counter").await.unwrap();
    let barrier = Barrier::open(&there, "old barrier").await.unwrap();

    lan.cut(&other);
    let refused = [
        at_limit(SharedCount::open(&there, "count", 1)).await,
        at_limit(Semaphore::open(&there, "tills", 1)).await,
        at_limit(AtomicCounter::open(&there, "counter")).await,
        at_limit(Barrier::open(&there, "barrier")).await,
        at_limit(CountDownLatch::open(&there, "latch", 1)).await,
        at_limit(DoubleBarrier::open(&there, "round", 2)).await,
        at_limit(LockValue::open(&there, "value", "")).await,
    ];
    assert!(refused.iter().all(LockError::is_timeout), "{refused:?}");
    assert_eq!(at_limit(count.read()).await, CountError::TimedOut);
    assert_eq!(at_limit(counter.read()).await, CounterError::TimedOut);
    assert_eq!(at_limit(barrier.is_set()).await, CountError::TimedOut);
    assert_eq!(count.get().unwrap().count, 3, "it stays open");
    come(|| left_over(&other) == (3, 0, 0)).await;

    lan.heal();
    // The answer comes after those to all earlier messages. A busy machine may take so long that
    // the member is expelled, and joins again.
    let answered = async {
        while there.lock("a").await.is_err() {
            tokio::time::sleep(MS).await;
        }
    };
    tokio::time::timeout(HANG, answered).await.expect("it never came");
    for name in ["count", "tills", "counter", "barrier", "latch", "round", "value"] {
        assert_eq!(here.inspect(name).await.unwrap().opener_count, 0, "{name}");
    }
    drop((count, counter, barrier));
    come(|| left_over(&grantor) == (0, 0, 0) && left_over(&other) == (0, 0, 0)).await;
}

/// A waker that runs code, as an executor may that polls a task where it is woken.
struct RunningWaker<F>(F);

impl<F: Fn() + Send + Sync + 'static> std::task::Wake for RunningWaker<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn running(run: impl Fn() + Send + Sync + 'static) -> std::task::Waker {
    Arc::new(RunningWaker(run)).into()
}

/// Runs the call in a thread of its own. A call that waits for itself fails the test.
fn returns<T: Send + 'static>(call: impl FnOnce() -> T + Send + 'static) -> T {
    let (done, returned) = std::sync::mpsc::channel();
    std::thread::spawn(move || done.send(call()));
    returned.recv_timeout(HANG).expect("the call waits for itself")
}

/// A call that finds the end of a hold wakes the tasks that wait for it. On this runtime of one
/// thread, which stands still, nothing else finds the end first.
#[tokio::test]
async fn a_task_that_is_woken_by_a_recipe_may_ask_the_recipe() {
    let member = Member::local().await.unwrap();
    let jobs = member.lock_service("jobs").await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));

    let mutex = Mutex::new(&jobs, "mutex");
    let guard = mutex.acquire().lease(50 * MS).await.unwrap();
    let watch = guard.watch();
    let waker = {
        let (mutex, asked) = (mutex.clone(), asked.clone());
        running(move || {
            assert!(!mutex.is_acquired());
            asked.fetch_add(1, Ordering::SeqCst);
        })
    };
    let mut lost = pin!(watch.lost());
    let mut context = std::task::Context::from_waker(&waker);
    assert!(lost.as_mut().poll(&mut context).is_pending());
    std::thread::sleep(50 * MS);
    assert!(!returns(move || mutex.is_acquired()));
    assert_eq!(asked.swap(0, Ordering::SeqCst), 1, "the waiting task was woken");

    let selector = LeaderSelector::new(&jobs, "selector", "a").unwrap().lease(50 * MS);
    let selector = Arc::new(selector);
    let waker = {
        let (selector, asked) = (selector.clone(), asked.clone());
        running(move || {
            assert!(selector.term().is_none());
            asked.fetch_add(1, Ordering::SeqCst);
        })
    };
    let mut run = Box::pin(selector.run_once(|term| async move { term.ended().await }));
    assert!(run.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    assert!(selector.has_leadership());
    std::thread::sleep(50 * MS);
    let asking = selector.clone();
    assert!(!returns(move || asking.has_leadership()));
    assert!(asked.load(Ordering::SeqCst) > 0, "the work was woken");
}

#[tokio::test]
async fn a_task_that_is_woken_by_a_start_may_start_the_recipe() {
    let member = Member::local().await.unwrap();
    let jobs = member.lock_service("jobs").await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));

    let latch = Arc::new(LeaderLatch::new(&jobs, "latch", "a").unwrap());
    let waker = {
        let (latch, asked) = (latch.clone(), asked.clone());
        running(move || {
            assert_eq!(latch.start(), Err(StartError::AlreadyStarted));
            asked.fetch_add(1, Ordering::SeqCst);
        })
    };
    let mut events = latch.events();
    let mut next = Box::pin(events.next());
    assert!(next.as_mut().poll(&mut std::task::Context::from_waker(&waker)).is_pending());
    let (starting, runtime) = (latch.clone(), tokio::runtime::Handle::current());
    let started = returns(move || {
        let _entered = runtime.enter();
        starting.start()
    });
    assert_eq!(started, Ok(()));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}
