//! `PollOnWake`: a future that is polled only after its own wake. It is for rare events that a task
//! awaits beside frequent ones.
//!
//! A selecting task polls all its futures each time that one of them has woken it. For the task of
//! a busy connection one of these futures is the connection's end, polled after each packet.
//! Polling a token or a timer takes longer than handling the packet. So `PollOnWake` has a waker of
//! its own, and polls its future only after that waker was woken.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

/// A future that is polled only after its own wake.
pub(super) struct PollOnWake<F> {
    future: F,
    flag: Arc<WakeFlag>,
    own: Waker,
}

/// Wakes the polling task, and notes that it has.
struct WakeFlag {
    has_rung: AtomicBool,
    /// The waker of the latest poll.
    wakes: Mutex<Waker>,
}

impl Wake for WakeFlag {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // The flag is set first: the woken task could read it too early otherwise.
        self.has_rung.store(true, Ordering::Release);
        let waker = self.wakes.lock().unwrap_or_else(PoisonError::into_inner).clone();
        waker.wake();
    }
}

/// Polls `future` only after its own wake.
pub(super) fn on_wake<F: Future + Unpin>(future: F) -> PollOnWake<F> {
    let flag = Arc::new(WakeFlag {
        has_rung: AtomicBool::new(true),
        wakes: Mutex::new(Waker::noop().clone()),
    });
    PollOnWake { future, own: flag.clone().into(), flag }
}

impl<F: Future + Unpin> Future for PollOnWake<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        {
            let mut wakes = self.flag.wakes.lock().unwrap_or_else(PoisonError::into_inner);
            wakes.clone_from(context.waker());
        }
        // The flag is read after the waker is stored: a later wake reaches this waker.
        if !self.flag.has_rung.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        let PollOnWake { future, own, .. } = &mut *self;
        Pin::new(future).poll(&mut Context::from_waker(own))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::pin::pin;
    use std::sync::atomic::AtomicUsize;
    use tokio::sync::oneshot;

    /// Counts how often the future is polled.
    fn counted<F: Future + Unpin>(
        mut future: F,
        polls: &AtomicUsize,
    ) -> impl Future<Output = F::Output> + Unpin {
        poll_fn(move |context| {
            polls.fetch_add(1, Ordering::Relaxed);
            Pin::new(&mut future).poll(context)
        })
    }

    #[derive(Default)]
    struct WakeCount(AtomicUsize);

    impl Wake for WakeCount {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn it_is_polled_when_it_was_woken_and_else_not() {
        let (polls, [first, second]) =
            (AtomicUsize::new(0), [(); 2].map(|()| Arc::new(WakeCount::default())));
        let (ring, rung) = oneshot::channel();
        let mut future = pin!(on_wake(counted(rung, &polls)));
        for woken in [&first, &first, &second] {
            assert!(
                future.as_mut().poll(&mut Context::from_waker(&woken.clone().into())).is_pending()
            );
        }
        assert_eq!(polls.load(Ordering::Relaxed), 1, "a poll wakes no task");
        ring.send(7).unwrap();
        let woken = |woken: &WakeCount| woken.0.load(Ordering::Relaxed);
        assert_eq!((woken(&first), woken(&second)), (0, 1), "the task that polled last is woken");
        let waker = second.clone().into();
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(Ok(7)));
        assert_eq!(polls.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn it_ends_what_goes_on_all_the_time() {
        let polls = AtomicUsize::new(0);
        let sleep = Box::pin(tokio::time::sleep(std::time::Duration::from_secs(1)));
        let mut end = on_wake(counted(sleep, &polls));
        let mut rounds = 0;
        let busy = poll_fn(|context| {
            rounds += 1;
            // After these rounds only time advances.
            if rounds < 1000 {
                context.waker().wake_by_ref();
            }
            Poll::<()>::Pending
        });
        tokio::select! {
            biased;
            () = busy => unreachable!(),
            () = &mut end => {}
        }
        assert!(
            rounds >= 1000 && polls.load(Ordering::Relaxed) <= 3,
            "{rounds} rounds, {polls:?} polls"
        );
    }

    /// A wake-up between the two reads of a poll is not lost.
    #[test]
    fn a_wake_during_the_poll_is_not_lost() {
        let woken = Arc::new(WakeCount::default());
        let mut times = 0;
        let mut future = pin!(on_wake(poll_fn(|context: &mut Context<'_>| {
            times += 1;
            if times == 1 {
                context.waker().wake_by_ref();
                return Poll::Pending;
            }
            Poll::Ready(times)
        })));
        let waker = woken.clone().into();
        assert!(future.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert_eq!(future.as_mut().poll(&mut Context::from_waker(&waker)), Poll::Ready(2));
    }
}
