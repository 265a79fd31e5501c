//! `AtomicCounter` over real members, in one process with sockets on the loopback interface. The
//! subjects are the cases of Curator's `DistributedAtomicLong`, and the numbers that need more than
//! 32 bits.
#![cfg(all(unix, feature = "tokio"))]
#![allow(
    clippy::async_yields_async,
    reason = "futures are made by others, to be dropped at any poll"
)]

mod support;

use elderlock::{AtomicCounter, CounterError, CounterValue, LockError, LockService, SharedCount};
use support::local::{Local, left_open, poll_k_then_drop, soon, until};

async fn counters(services: &[LockService], name: &str) -> Vec<AtomicCounter> {
    let mut counters = Vec::new();
    for service in services {
        counters.push(soon(AtomicCounter::open(service, name)).await.expect("it opens"));
    }
    counters
}

fn get(counter: &AtomicCounter) -> CounterValue {
    counter.get().expect("it is open")
}

async fn add(counter: &AtomicCounter, delta: i64) -> (i64, i64) {
    let added = soon(counter.add(delta)).await.expect("it is open");
    (added.before, added.after)
}

/// TestDistributedAtomicLong.testSimulation: several members add at the same time. No addition is
/// lost, and no two additions start from the same number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_of_several_members_add_up() {
    let local = Local::start(3).await;
    let counters = counters(&local.services("s").await, "x").await;
    // Every seventh addend exceeds the 32 bits that the grantor adds in.
    let delta = |number: i64| if number % 7 == 0 { 1 << 33 } else { number + 1 };
    let tasks: Vec<_> = (0..60)
        .map(|number| {
            let counter = counters[number as usize % 3].clone();
            tokio::spawn(async move { add(&counter, delta(number)).await })
        })
        .collect();
    let mut spans = Vec::new();
    for task in tasks {
        spans.push(soon(task).await.expect("no panic"));
    }
    spans.sort();
    // Each addition starts where another one ended. Together they are a chain from zero to the sum.
    assert_eq!(spans[0].0, 0);
    assert!(spans.windows(2).all(|pair| pair[0].1 == pair[1].0), "{spans:?}");
    let sum: i64 = (0..60).map(delta).sum();
    assert_eq!(spans[59].1, sum);
    assert_eq!(soon(counters[0].read()).await.expect("it is open").number, sum);
    until(|| counters.iter().all(|counter| get(counter).number == sum)).await;
}

/// Sums beyond 32 bits are exact, upwards and downwards.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_leave_32_bits_and_come_back() {
    let local = Local::start(2).await;
    let counters = counters(&local.services("s").await, "x").await;
    let (near, far) = (&counters[0], &counters[1]);
    let large = i64::from(i32::MAX);
    assert_eq!(add(far, large).await, (0, large));
    assert_eq!(add(near, 1).await, (large, large + 1));
    assert_eq!(add(far, large).await, (large + 1, 2 * large + 1));
    assert_eq!(add(near, -5 * large).await, (2 * large + 1, -3 * large + 1));
    assert_eq!(add(far, -1).await, (-3 * large + 1, -3 * large));
    assert_eq!(add(near, 3 * large).await, (-3 * large, 0));
}

/// A sum may reach both ends of the 64 bits. A sum beyond them is refused.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sum_that_leaves_64_bits_changes_nothing() {
    let local = Local::start(1).await;
    let counter = counters(&local.services("s").await, "x").await.remove(0);
    for (end, step) in [(i64::MAX, 1), (i64::MIN, -1)] {
        soon(counter.set(end - 2 * step)).await.expect("it is open");
        assert_eq!(add(&counter, step).await, (end - 2 * step, end - step));
        assert_eq!(soon(counter.add(2 * step)).await, Err(CounterError::Overflow));
        assert_eq!(add(&counter, step).await, (end - step, end));
        assert_eq!(soon(counter.add(step)).await, Err(CounterError::Overflow));
        assert_eq!(soon(counter.add(end)).await, Err(CounterError::Overflow));
        assert_eq!(get(&counter).number, end);
        assert_eq!(add(&counter, -step).await, (end, end - step));
    }
}

/// TestDistributedAtomicLong.testCompareAndSet, testCompareAndSetWithFreshInstance: the comparison
/// is with the grantor's number, not with the number that this member knows.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_set_if_it_is_the_expected_number() {
    let local = Local::start(2).await;
    let counters = counters(&local.services("s").await, "x").await;
    // A new counter is zero.
    let first = soon(counters[1].compare_and_set(0, 9)).await.expect("it is 0");
    assert!(get(&counters[1]).version >= first && get(&counters[1]).is_set);
    let next = soon(counters[0].compare_and_set(9, i64::MAX)).await.expect("it is 9");
    assert!(next > first);
    for counter in &counters {
        match soon(counter.compare_and_set(9, 10)).await {
            Err(CounterError::Changed(now)) => {
                assert_eq!((now.number, now.version), (i64::MAX, next));
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(soon(counters[0].read()).await.expect("it is open").number, i64::MAX);
}

/// TestDistributedAtomicLong.testInitialize: of all concurrent calls, one initializes the counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_is_initialized_once() {
    let local = Local::start(3).await;
    let counters = counters(&local.services("s").await, "x").await;
    assert!(!get(&counters[2]).is_set);
    let tasks: Vec<_> = (0..9)
        .map(|number| {
            let counter = counters[number % 3].clone();
            tokio::spawn(async move {
                let is_mine = soon(counter.initialize(number as i64)).await.expect("it is open");
                is_mine.then_some(number as i64)
            })
        })
        .collect();
    let mut set = Vec::new();
    for task in tasks {
        set.extend(soon(task).await.expect("no panic"));
    }
    assert_eq!(set.len(), 1, "{set:?}");
    for counter in &counters {
        assert_eq!(soon(counter.read()).await.expect("it is open").number, set[0]);
    }
    // An addition counts as setting, also if the sum is the initial number.
    let other = soon(AtomicCounter::open(&local.services("s").await[0], "y")).await;
    let other = other.expect("it opens");
    assert_eq!(add(&other, 0).await, (0, 0));
    assert!(!soon(other.initialize(5)).await.expect("it is open"));
    assert_eq!(get(&other).number, 0);
}

/// The grantor dies while members add. Each confirmed addition is in the sum, because a living
/// member made it. The number may be stale until the next addition.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn additions_of_living_members_outlive_the_grantor() {
    let mut local = Local::start_mortal(3).await;
    let services = local.services("s").await;
    let counters = counters(&services, "x").await;
    until(|| services[0].is_grantor()).await;
    soon(counters[1].initialize(100)).await.expect("it is open");
    let tasks: Vec<_> = (0..40)
        .map(|number| {
            let counter = counters[1 + number % 2].clone();
            tokio::spawn(async move { add(&counter, 1).await })
        })
        .collect();
    until(|| get(&counters[1]).number > 110).await;
    local.kill(0);
    let mut numbers = Vec::new();
    for task in tasks {
        numbers.push(soon(task).await.expect("no panic").1);
    }
    numbers.sort();
    assert_eq!(numbers, (101..=140).collect::<Vec<_>>());
    assert_eq!(soon(counters[2].read()).await.expect("it is open").number, 140);
    add(&counters[1], 0).await;
    assert!(!soon(counters[2].read()).await.expect("it is open").maybe_stale);
}

/// The number is gone with the last opening. A transfer and a goodbye of the grantor keep it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_lives_while_a_member_has_it_open() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let mut counters = counters(&services, "x").await;
    add(&counters[0], 1 << 40).await;
    soon(services[1].become_grantor()).await.expect("no other member asks");
    assert_eq!(add(&counters[0], 1).await, (1 << 40, (1 << 40) + 1));
    soon(local.members[1].leave()).await.expect("it leaves");
    let read = soon(counters[0].read()).await.expect("it is open");
    assert_eq!((read.number, read.maybe_stale), ((1 << 40) + 1, false));
    assert!(matches!(soon(counters[1].add(1)).await, Err(CounterError::Lost(_))));
    soon(counters.remove(0).close()).await.expect("a grantor answers");
    let anew = soon(AtomicCounter::open(&services[0], "x")).await.expect("it opens");
    assert_eq!((get(&anew).number, get(&anew).is_set), (0, false));
}

/// A name has one kind of object. An object of another kind is not a counter.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn another_object_is_no_counter() {
    let local = Local::start(1).await;
    let service = local.services("s").await.remove(0);
    let _count = soon(SharedCount::open(&service, "count", 1)).await.expect("it opens");
    let refused = soon(AtomicCounter::open(&service, "count")).await;
    assert_eq!(refused.expect_err("a count"), LockError::OtherRecipe);
    let counter = soon(AtomicCounter::open(&service, "x")).await.expect("it opens");
    let refused = soon(SharedCount::open(&service, "x", 1)).await;
    assert_eq!(refused.expect_err("a counter"), LockError::OtherRecipe);
    let value = soon(service.open("x", "")).await.expect("it opens");
    soon(value.set("words")).await.expect("it is open");
    assert_eq!(counter.get(), Err(CounterError::NotACounter));
    assert_eq!(soon(counter.add(1)).await, Err(CounterError::NotACounter));
    assert_eq!(soon(counter.compare_and_set(0, 1)).await, Err(CounterError::NotACounter));
}

/// A call that is dropped at any poll leaves nothing open or under way. An addition is made once or
/// not at all.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_counter_dropped_at_any_poll_leaves_nothing() {
    let local = Local::start(2).await;
    let services = local.services("s").await;
    let counters = counters(&services, "x").await;
    let opened = local.members.iter().map(left_open).collect::<Vec<_>>();
    let nothing =
        async |_| until(|| local.members.iter().map(left_open).collect::<Vec<_>>() == opened).await;
    for (service, counter) in services.iter().zip(&counters) {
        poll_k_then_drop(async || AtomicCounter::open(service, "y"), nothing).await;
        poll_k_then_drop(async || counter.set(1), nothing).await;
        poll_k_then_drop(async || counter.read(), nothing).await;
        poll_k_then_drop(async || counter.initialize(1), nothing).await;
        poll_k_then_drop(async || counter.compare_and_set(1, 2), nothing).await;
        poll_k_then_drop(async || counter.compare_and_set(1, 1), nothing).await;
        for delta in [1, 1 << 40] {
            let before = soon(counter.read()).await.expect("it is open").number;
            let mut tries = 0;
            let add = async || {
                tries += 1;
                counter.add(delta)
            };
            poll_k_then_drop(add, nothing).await;
            let sum = soon(counter.read()).await.expect("it is open").number - before;
            assert!(sum % delta == 0 && (1..=tries).contains(&(sum / delta)), "{sum} in {tries}");
        }
    }
}
