//! Futures that are polled by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Polls once, with a waker that does nothing.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Makes the future, polls it `k` times and drops it, for every `k` until it completes. Calls
/// `after` each time. Returns the last `k`.
pub(crate) async fn poll_k_then_drop<F: Future>(
    mut make: impl AsyncFnMut() -> F,
    mut after: impl AsyncFnMut(usize),
) -> usize {
    for k in 0.. {
        let mut done = false;
        {
            let mut future = pin!(make().await);
            for _ in 0..k {
                if poll_once(future.as_mut()).is_ready() {
                    done = true;
                    break;
                }
                // Timers and other tasks advance the future meanwhile, so that it completes for
                // some `k`.
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        after(k).await;
        if done {
            return k;
        }
    }
    unreachable!()
}

/// Like [`poll_k_then_drop`] for a future that has to wait. Repeats until the future was pending at
/// the first poll. On a busy machine it may be ready at once.
pub(crate) async fn poll_a_wait_then_drop<F: Future>(
    mut make: impl AsyncFnMut() -> F,
    mut after: impl AsyncFnMut(usize),
) {
    for _ in 0..1_000 {
        if poll_k_then_drop(&mut make, &mut after).await > 1 {
            return;
        }
    }
    panic!("it never had to wait");
}
