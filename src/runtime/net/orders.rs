//! Orders of operators, at the member that carries them out.

use super::admission::{Admission, NO_PROCESS};
use super::counters::add;
use super::hello::{HelloError, read_hello};
use super::incarnation::Incarnation;
use super::operator;
use super::security::{self, HandshakeForWriter};
use super::transport_state::TransportState;
use crate::protocol::ProcessId;
use crate::runtime::inbox::{OrderExchange, OrderWork};
use crate::runtime::telemetry::{ShownLockName, ShownService};
use crate::wire::{self, Decoder, Frame, FrameError, Order, OrderReport, SessionMessage, VERSIONS};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::timeout;
use tracing::field;

/// The most reports that wait to be written. At the limit the order waits.
const REPORTS: usize = 16;
/// How often an operator's connection counts as used, so that it is not closed for its silence.
const TICK: Duration = Duration::from_secs(1);

/// An order that was read, and the connection for its reports.
pub(super) struct PendingOrder {
    pub(super) order: Order,
    /// The version in which the reports are written.
    pub(super) version: u16,
    /// Decodes the messages that follow an order for a lock.
    pub(super) decoder: Decoder,
    /// Seals the reports, if the cluster has a key.
    pub(super) secured: Option<HandshakeForWriter>,
}

/// Returns whether the other end of a connection is on this host. Without a key only users of this
/// host give orders: they could end the process in any case.
pub(super) fn is_from_this_host(stream: &TcpStream) -> bool {
    match (stream.peer_addr(), stream.local_addr()) {
        (Ok(from), Ok(here)) => is_of_this_host(from.ip(), here.ip()),
        _ => false,
    }
}

/// `from`: the address of the other end. The system drops packets of other hosts that claim an
/// address of this host.
fn is_of_this_host(from: IpAddr, here: IpAddr) -> bool {
    from.is_loopback() || from == here || planted!(OrderFromAnyHost)
}

/// The answer to an order from another host, without a key.
pub(super) fn refusal() -> Frame {
    let reason = "an order from another host needs a cluster key: give it on the host of this \
                  member, or give the cluster a key";
    Frame::Report(Box::new(OrderReport::Failed(reason.into())))
}

/// Reads the order behind a handshake. `None`: the order did not come, or is malformed.
pub(super) async fn read(
    shared: &TransportState,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
    secured: HandshakeForWriter,
) -> Option<PendingOrder> {
    decoder.await_order();
    match read_hello(stream, decoder, &mut 0).await {
        Ok(Some(Frame::Order(request))) if request.cluster == shared.cluster => {
            let version = VERSIONS.common(request.versions)?;
            let (order, decoder) = (request.order, std::mem::take(decoder));
            return Some(PendingOrder { order, version, decoder, secured: Some(secured) });
        }
        Ok(Some(_)) => add(&shared.reception.counters.foreign_cluster, 1),
        Ok(None) | Err(HelloError::Io(_)) => add(&shared.reception.counters.silent, 1),
        Err(HelloError::Frame(error)) => shared.reception.counters.refuse_frame(&error),
    }
    None
}

/// Carries out an order and writes the reports on it. Ends with the connection: an operator that
/// disconnects cancels the steps that are not done yet. Only a lock outlives the connection, until
/// the program for which it is held surely treats it as lost.
pub(super) async fn carry_out(
    shared: Arc<TransportState>,
    incarnation: Arc<Incarnation>,
    stream: TcpStream,
    pending: PendingOrder,
    admission: Admission,
) {
    let PendingOrder { order, version, mut decoder, mut secured } = pending;
    let (to, order) = match order {
        Order::PassOn { to, order } if to == incarnation.me.process => (None, *order),
        Order::PassOn { to, order } => (Some(to), *order),
        order => (None, order),
    };
    // The order ends when its key is removed.
    let _session = match (&shared.security, &secured) {
        (Some(security), Some(secured)) => {
            match security.register(secured, admission.end.clone()) {
                Some(session) => Some(session),
                None => return,
            }
        }
        _ => None,
    };
    let from = stream.peer_addr().ok();
    let (mut incoming, mut outgoing) = stream.into_split();
    let limit = shared.reception.timeouts.handshake;
    let is_lock = to.is_none() && matches!(order, Order::Lock(_));
    // Programs that wait for locks take no room from operators.
    let is_session = is_lock && !planted!(CountSessionsAsOrders);
    let room = if is_session { &shared.sessions } else { &shared.orders };
    let Ok(_permit) = room.try_acquire() else {
        add(&shared.reception.counters.busy, 1);
        let reason = match is_lock {
            true => OrderReport::FULL,
            false => "this member carries out as many orders as it may: ask again later",
        };
        let busy = OrderReport::Failed(reason.into());
        let _ = timeout(limit, write(&mut outgoing, secured.as_mut(), version, busy)).await;
        return;
    };
    // The limit is checked before `finish`, which closes an earlier connection if there are too
    // many.
    if is_lock {
        decoder.await_session();
        admission.keep();
    }
    admission.finish(NO_PROCESS);
    let counters = &shared.reception.counters;
    add(&counters.orders, 1);
    add(&counters.forced_orders, usize::from(order.is_forced()));
    // In a cluster with a key a stranger gives no orders, and cannot fill the log with them.
    if secured.is_some() || shared.reception.may_warn().is_some() {
        tracing::info!(
            target: "elderlock",
            order = order.kind(), service = order.service().map(ShownService).map(field::display),
            lock.name = order.lock_name().map(ShownLockName).map(field::display),
            forced = order.is_forced(), addr = from.map(field::display),
            "an operator's order"
        );
    }
    let (sender, mut reports) = mpsc::channel(REPORTS);
    let (messages, receiver) = mpsc::channel(REPORTS);
    let exchange = OrderExchange { reports: sender, messages: receiver };
    let mut work = match to {
        Some(to) => Box::pin(pass_on(shared.clone(), to, order, exchange.reports)) as OrderWork,
        None => incarnation.inbox.carry_out(order, exchange),
    };
    let mut is_working = true;
    let mut tick = tokio::time::interval(TICK);
    loop {
        tokio::select! {
            () = &mut work, if is_working => is_working = false,
            report = reports.recv() => {
                let Some(report) = report else { break };
                if !report.is_known_in(version) {
                    continue;
                }
                let writing = write(&mut outgoing, secured.as_mut(), version, report);
                let written = timeout(limit, writing).await;
                if !matches!(written, Ok(true)) {
                    break;
                }
            }
            _ = tick.tick() => admission.note_packet(),
            // Nothing is read while the work has not taken the earlier messages. Waiting for room
            // here would never end: the work advances in this loop only.
            message = next_message(&mut incoming, &mut decoder), if messages.capacity() > 0 => {
                // Only messages of a session may follow, and only an order for a lock.
                let Some(message) = message.filter(|_| is_lock) else { break };
                if messages.try_send(message).is_err() {
                    break;
                }
            }
            () = admission.end.cancelled() => break,
        }
    }
    let _ = timeout(limit, outgoing.shutdown()).await;
    drop((incoming, outgoing, admission, messages));
    if is_lock && is_working {
        // No task reads the reports any more. Dropping the receiver keeps them from delaying the
        // work.
        drop(reports);
        work.await;
    }
}

/// Gives an order to another member, at its address in the view, and passes its reports on. The
/// operator names a process and no address, so it cannot make this member dial any other address.
async fn pass_on(
    shared: Arc<TransportState>,
    to: ProcessId,
    order: Order,
    reports: mpsc::Sender<OrderReport>,
) {
    let failed = |reason: String| OrderReport::Failed(format!("member {to}: {reason}"));
    let Some(addr) = shared.reception.addr_of(to).map(|addr| addr.to_string()) else {
        // A member without a view is still joining, and the operator asks another one.
        let report = match shared.spoken() {
            None => OrderReport::Failed(OrderReport::JOINS.into()),
            Some(_) => failed("this member's view has no such process".into()),
        };
        return drop(reports.send(report).await);
    };
    if matches!(order, Order::Lock(_) | Order::PassOn { .. }) {
        let reason = "neither a lock nor a passed order is passed on: ask that member itself";
        let _ = reports.send(failed(reason.into())).await;
        return;
    }
    // The process at the address may be another one by now. It does not carry out an order for this
    // one.
    let order = Order::PassOn { to, order: Box::new(order) };
    let given = match &shared.security {
        #[cfg(feature = "secure")]
        Some(security) => {
            operator::give_order_with(&addr, &shared.cluster, &security.ring(), order).await
        }
        _ => operator::give_order(&addr, &shared.cluster, order).await,
    };
    let mut theirs = match given {
        Ok(theirs) => theirs,
        Err(error) => return drop(reports.send(failed(error.to_string())).await),
    };
    loop {
        let report = match theirs.next().await {
            Ok(Some(report)) => report,
            Ok(None) => return,
            Err(error) => failed(error.to_string()),
        };
        let is_last = report.is_last();
        if reports.send(report).await.is_err() || is_last {
            return;
        }
    }
}

/// The next message of a session. `None`: the connection has ended, or something else came.
///
/// # Cancel safety
/// Dropping the future loses nothing.
async fn next_message(
    incoming: &mut OwnedReadHalf,
    decoder: &mut Decoder,
) -> Option<SessionMessage> {
    loop {
        match decoder.next() {
            Ok(Some(Frame::Session(message))) => return Some(message),
            Ok(Some(_)) | Err(_) => return None,
            Ok(None) => {}
        }
        if incoming.read_buf(decoder.back()).await.ok()? == 0 {
            return None;
        }
    }
}

/// Writes a report. `false`: that failed.
async fn write(
    stream: &mut OwnedWriteHalf,
    secured: Option<&mut HandshakeForWriter>,
    version: u16,
    report: OrderReport,
) -> bool {
    let frame = Frame::Report(Box::new(report));
    let bytes = match secured {
        Some(secured) => security::sealed(&mut secured.sealer, version, &frame),
        None => encoded(version, &frame).ok(),
    };
    match bytes {
        Some(bytes) => stream.write_all(&bytes).await.is_ok(),
        None => false,
    }
}

fn encoded(version: u16, frame: &Frame) -> Result<Vec<u8>, FrameError> {
    let mut bytes = Vec::new();
    wire::encode(frame, version, &mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_without_a_key_are_taken_from_this_host_alone() {
        let ip = |text: &str| text.parse::<IpAddr>().expect("an address");
        for (from, here, is_taken) in [
            ("127.0.0.1", "127.0.0.1", true),
            ("127.0.0.2", "127.0.0.1", true),
            ("::1", "::1", true),
            ("10.0.0.5", "10.0.0.5", true),
            ("2001:db8::5", "2001:db8::5", true),
            ("10.0.0.6", "10.0.0.5", false),
            ("192.168.1.1", "127.0.0.1", false),
            ("2001:db8::6", "2001:db8::5", false),
            ("fe80::1", "::1", false),
        ] {
            assert_eq!(is_of_this_host(ip(from), ip(here)), is_taken, "{from} at {here}");
        }
    }

    #[test]
    fn an_order_that_is_refused_is_told_the_remedy() {
        let Frame::Report(report) = refusal() else { panic!("it is a report") };
        let OrderReport::Failed(reason) = *report else { panic!("it has failed") };
        assert!(reason.contains("give the cluster a key"), "{reason}");
    }
}
