//! The task of a peer: it writes the queued frames, and dials when no connection leads to their
//! process.

use super::counters::add;
use super::dial_error::DialError;
use super::incarnation::Incarnation;
use super::peer::{Peer, TaskWork};
use super::poll_on_wake::on_wake;
use super::tcp;
use super::transport_state::TransportState;
use super::write_half::WriteHalf;
use crate::protocol::{Hint, Input, ProcessId};
use std::collections::BTreeSet;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// The time after which an unused peer without a connection is forgotten.
const IDLE: Duration = Duration::from_secs(30);
const FIRST_BACKOFF: Duration = Duration::from_millis(50);
const LONGEST_BACKOFF: Duration = Duration::from_secs(1);

/// A dial that is under way.
struct Dialling {
    /// The processes that had connections here when the dial began.
    known: BTreeSet<ProcessId>,
}

/// Boxes [`drive_peer`] for the transport's state, which starts it.
pub(super) fn drive(
    shared: Arc<TransportState>,
    incarnation: Arc<Incarnation>,
    peer: Arc<Peer>,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(drive_peer(shared, incarnation, peer))
}

/// Sends the frames that are queued at `peer` to its address. Ends when the peer has long been
/// unused, or with the incarnation or the transport.
async fn drive_peer(shared: Arc<TransportState>, incarnation: Arc<Incarnation>, peer: Arc<Peer>) {
    let counters = &shared.reception.counters;
    let timeouts = &shared.reception.timeouts;
    let mut dialling: Option<Dialling> = None;
    let mut backoff = Duration::ZERO;
    let mut not_before = Instant::now();
    loop {
        if peer.is_retired() {
            return;
        }
        let Some(TaskWork { mut write_half, offered, returned, dialled }) = peer.take_work() else {
            peer.woken().await;
            continue;
        };
        write_rest(&shared, &incarnation, &peer, &mut write_half).await;
        for link in returned {
            write_half.add(link, timeouts.connect + timeouts.handshake);
        }
        for link in offered {
            // This member dialled to reach another process, but the same one as before answered:
            // one connection is enough. Connections that merely crossed are kept: otherwise each
            // side might close the one that the other side keeps.
            let known = dialling.as_ref().is_some_and(|dial| dial.known.contains(&link.process));
            if link.dialled && known {
                link.redundant.cancel();
            } else {
                write_half.add(link, timeouts.connect + timeouts.handshake);
            }
        }
        write_half.drop_closed();
        if let Some(result) = dialled {
            dialling = None;
            let (given_up, frames) = peer.give_up(&write_half);
            add(&counters.undelivered, frames);
            if result.is_ok() && given_up.is_empty() {
                backoff = Duration::ZERO;
            } else {
                backoff = (backoff * 2).clamp(FIRST_BACKOFF, LONGEST_BACKOFF);
                not_before = Instant::now() + backoff;
            }
            // The address of a member is that of the view. A claim on a connection does not change
            // it.
            let of_others = |process| shared.reception.is_elsewhere(process, peer.addr);
            for process in given_up.into_iter().filter(|process| !of_others(*process)) {
                let hint = match &result {
                    Err(DialError::Refused) => Hint::Refused(process),
                    Err(DialError::Unreachable(_)) => Hint::Unreachable(process),
                    Ok(_) | Err(DialError::Stranger(_)) => Hint::Replaced(process),
                };
                incarnation.inbox.input(Input::Hint(hint));
            }
        }

        let now = Instant::now();
        let is_unused = !write_half.has_links();
        let (stuck, write_half) = peer.plan(write_half);
        let is_stuck = stuck.is_some();
        if let Some(known) = stuck.filter(|_| dialling.is_none() && now >= not_before) {
            dialling = Some(Dialling { known });
            // A connection that ends as soon as it begins is not opened again at once.
            not_before = now + FIRST_BACKOFF;
            shared
                .spawn(&incarnation, tcp::dial(shared.clone(), incarnation.clone(), peer.clone()));
        }
        if let Some(mut write_half) = write_half {
            write_rest(&shared, &incarnation, &peer, &mut write_half).await;
            peer.put_back(write_half);
            continue;
        }

        let closing = shared.closing.is_cancelled();
        let is_over = closing && !is_stuck && dialling.is_none() && peer.is_idle();
        if is_over && let Some(write_half) = peer.take_write_half() {
            write_half.shut_down().await;
            return;
        }
        let due = if is_stuck && dialling.is_none() { not_before } else { now + IDLE };
        let else_due = async {
            tokio::select! {
                () = shared.closing.cancelled(), if !closing => false,
                () = tokio::time::sleep_until(due) => true,
            }
        };
        let is_due = tokio::select! {
            biased;
            () = peer.woken() => false,
            is_due = on_wake(Box::pin(else_due)) => is_due,
        };
        if is_due && is_unused && dialling.is_none() && shared.retire(&incarnation, &peer) {
            return;
        }
    }
}

/// Writes the rest of the batch that has begun. A stranger that does not read it is left to a task
/// of its own.
async fn write_rest(
    shared: &Arc<TransportState>,
    incarnation: &Arc<Incarnation>,
    peer: &Arc<Peer>,
    write_half: &mut WriteHalf,
) {
    let reception = &shared.reception;
    let is_member = |process| reception.is_member(process);
    if let Some(slow) = write_half.take_stalled(&reception.counters, shared.budget(), is_member) {
        let (reception, peer, number) = (reception.clone(), peer.clone(), peer.note_stalled(&slow));
        shared.spawn(incarnation, async move {
            let limit = reception.timeouts.frame;
            let link = slow.finish(&reception.counters, limit).await;
            peer.return_link(number, link);
        });
    }
    write_half.finish(&reception.counters).await;
}
