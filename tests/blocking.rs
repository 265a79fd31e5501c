//! Members for plain threads: three of them on the loopback, and no async code in the test.
#![cfg(all(unix, feature = "tokio"))]

#[path = "support/leases.rs"]
#[allow(dead_code, reason = "each test file uses a part of it")]
mod leases;
#[path = "support/ports.rs"]
mod ports;

use elderlock::blocking::{self, Block};
use elderlock::{
    CountDownLatch, LeaderLatch, LockError, LockService, LostReason, Member, Semaphore, StartError,
    TryLockError,
};
use leases::Leases;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

const MS: Duration = Duration::from_millis(1);

/// A guard against hangs, longer than any step takes on a busy machine.
const HANG: Duration = Duration::from_secs(120);

fn free_addr() -> String {
    ports::free(1)[0].to_string()
}

/// Three seeds. A thread of its own joins each of them.
fn three() -> Vec<Member> {
    let addrs: Vec<String> = (0..3).map(|_| free_addr()).collect();
    let joining: Vec<_> = addrs
        .iter()
        .map(|addr| {
            let builder = Member::builder("shop").bind(addr).seeds(&addrs);
            let builder = builder.timing(Leases::Long.timing());
            thread::spawn(move || blocking::join(builder.join_limit(HANG)).expect("it joins"))
        })
        .collect();
    joining.into_iter().map(|thread| thread.join().expect("no panic")).collect()
}

fn stocks(members: &[Member]) -> Vec<LockService> {
    let stock = |member: &Member| member.lock_service("stock").block().expect("a good name");
    members.iter().map(stock).collect()
}

#[test]
fn plain_threads_of_three_members_lock_share_lead_and_leave() {
    let members = three();
    let stocks = stocks(&members);

    // Exclusion, and tokens that rise.
    let inside = AtomicUsize::new(0);
    let tokens = std::sync::Mutex::new(Vec::new());
    thread::scope(|scope| {
        for stock in &stocks {
            let (inside, tokens) = (&inside, &tokens);
            scope.spawn(move || {
                for _ in 0..20 {
                    let guard = stock.lock("a").wait(HANG).block().expect("in turn");
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    tokens.lock().unwrap().push(guard.fence().expect("it is held"));
                    thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().block().expect("it was held");
                }
            });
        }
    });
    let tokens = tokens.into_inner().unwrap();
    assert!(tokens.len() == 60 && tokens.is_sorted_by(|one, next| one < next));

    // A try, a limit and a lease end.
    let guard = stocks[0].lock("b").lease(10 * HANG).block().expect("it is free");
    assert!(matches!(stocks[1].try_lock("b").block(), Err(TryLockError::Held(_))));
    let limited = stocks[2].lock("b").wait(50 * MS).block();
    assert!(matches!(limited, Err(LockError::TimedOut)), "{limited:?}");
    assert_eq!(guard.lost().block_for(50 * MS), None);
    guard.release_and_confirm().block().expect("the grantor answers");
    let short = stocks[1].lock("b").lease(50 * MS).block().expect("it is free again");
    assert_eq!(short.lost().block_for(HANG), Some(LostReason::LeaseEnded));
    assert_eq!(short.fence().unwrap_err().reason, LostReason::LeaseEnded);

    // Shares, permits and counts.
    let shares: Vec<_> = stocks.iter().map(|stock| stock.share("c").block().unwrap()).collect();
    assert!(stocks[0].try_lock("c").block().is_err());
    drop(shares);
    let permits = Semaphore::open(&stocks[0], "d", 2).wait(HANG).block().expect("it opens");
    let others = Semaphore::open(&stocks[1], "d", 2).block().expect("it opens");
    let both = permits.acquire(2).block().expect("there are two");
    assert!(others.try_acquire(1).block().is_err());
    both.release().block().expect("they were held");
    others.acquire(1).wait(HANG).block().expect("they are free").release().block().unwrap();
    let down = CountDownLatch::open(&stocks[0], "e", 2).block().expect("it opens");
    let waits = CountDownLatch::open(&stocks[2], "e", 2).block().expect("it opens");
    let waiter = thread::spawn(move || waits.wait().block());
    assert_eq!((down.count_down().block(), down.count_down().block()), (Ok(1), Ok(0)));
    waiter.join().expect("no panic").expect("it is zero");

    // Leaders, whose tasks run on the members' own threads.
    let latches = [&stocks[0], &stocks[1]]
        .map(|stock| LeaderLatch::new(stock, "cron", "node").expect("a good name"));
    latches[0].start().expect("the member has a runtime");
    assert_eq!(latches[0].start(), Err(StartError::AlreadyStarted));
    let term = latches[0].await_leadership().block_for(HANG).expect("it is first").unwrap();
    let token = term.fence().expect("it leads");
    latches[1].start().expect("the member has a runtime");
    latches[0].close().block().expect("it was started");
    let next = latches[1].await_leadership().block_for(HANG).expect("it is next").unwrap();
    assert!(term.fence().is_err() && next.fence().expect("it leads") > token);

    // A member that leaves loses its holds, and the next waiter is granted the lock.
    let last = stocks[2].lock("f").block().expect("it is free");
    let waiter = thread::spawn({
        let stock = stocks[0].clone();
        move || stock.lock("f").wait(HANG).block().map(|guard| guard.token())
    });
    members[2].leave().block().expect("the others hear of it");
    assert_eq!(last.lost().block(), LostReason::Left);
    assert!(waiter.join().expect("no panic").expect("in turn") > last.token());
    drop((latches, permits, others, down));
    members[1].leave().block().expect("the other hears of it");
    members[0].leave().block().expect("it is the last one");
}
