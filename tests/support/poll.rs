//! Futures that are polled by hand.

use std::future::Future;
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Polls once, with nothing to wake.
pub(crate) fn poll_once<F: Future>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

/// Makes the future, polls it `k` times and drops it, for every `k` until it completes; `after`
/// each. The `k` it took.
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
                // Lets timers and other tasks bring the future on, so that it completes for some k.
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

/// The same for a future that has to wait: again and again, until it was not ready at the first
/// poll. On a busy machine it may be.
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
