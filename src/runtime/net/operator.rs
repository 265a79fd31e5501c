//! Giving an order to a running member, without joining.

#[cfg(feature = "secure")]
use super::query::query_status_with;
use super::query::{self, LIMIT, PAUSE, QueryError, query_status};
#[cfg(feature = "secure")]
use super::security::{self, SecureHandshakeError, StaticKey};
use super::timeouts::ConnectionTimeouts;
use crate::protocol::Status;
#[cfg(feature = "secure")]
use crate::wire::HandshakeRefusal;
use crate::wire::secure::Sealer;
#[cfg(feature = "secure")]
use crate::wire::secure::{Keyring, Purpose, Session};
use crate::wire::{
    self, Decoder, Frame, Order, OrderReport, OrderRequest, SessionMessage, VERSIONS,
};
use std::io;
use std::pin::{Pin, pin};
use std::time::Duration;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};

/// Gives an order to the member at `addr` (`host:port`) of cluster `cluster`, which carries it out.
/// For a cluster without a key, and a member on this host: the member refuses orders from other
/// hosts with [`OrderReport::Failed`]. Joins nothing. Ends within five seconds; the reports take as
/// long as the order.
///
/// # Errors
/// See [`QueryError`]; nothing was done in any case, unless the connection failed when the order
/// was on its way.
///
/// # Cancel safety
/// If the future is dropped, the order may have been given.
pub async fn give_order(
    addr: &str,
    cluster: &str,
    order: Order,
) -> Result<OrderReports, QueryError> {
    let connection = open(addr, cluster, order).await?;
    let (addr, cluster) = (addr.to_owned(), cluster.to_owned());
    let probe: StatusProbe = Box::new(move || {
        let (addr, cluster) = (addr.clone(), cluster.clone());
        Box::pin(async move { query_status(&addr, &cluster).await })
    });
    Ok(OrderReports { connection, probe, is_over: false })
}

/// Gives an order, without a key.
pub(super) async fn open(
    addr: &str,
    cluster: &str,
    order: Order,
) -> Result<OrderConnection, QueryError> {
    let given = async {
        let order = encoded(cluster, order)?;
        let mut stream = connect(addr).await?;
        write(addr, &mut stream, &order).await?;
        let decoder = Decoder::for_answer();
        Ok(OrderConnection { addr: addr.to_owned(), stream, decoder, sealer: None })
    };
    query::within_limit(addr, cluster, given).await
}

/// Like [`give_order`], for a cluster with a key. The first key of the ring is a cluster key, or an
/// operator key that is [derived](crate::ClusterKey::derive) from it.
///
/// # Errors
/// See [`give_order`]. [`QueryError::Refused`]: the key's role does not allow the order.
///
/// # Cancel safety
/// If the future is dropped, the order may have been given.
#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub async fn give_order_with(
    addr: &str,
    cluster: &str,
    ring: &Keyring,
    order: Order,
) -> Result<OrderReports, QueryError> {
    let connection = open_with(addr, cluster, ring, order).await?;
    let (addr, cluster, ring) = (addr.to_owned(), cluster.to_owned(), ring.clone());
    let probe: StatusProbe = Box::new(move || {
        let (addr, cluster, ring) = (addr.clone(), cluster.clone(), ring.clone());
        Box::pin(async move { query_status_with(&addr, &cluster, &ring).await })
    });
    Ok(OrderReports { connection, probe, is_over: false })
}

/// Gives an order under a key.
#[cfg(feature = "secure")]
pub(super) async fn open_with(
    addr: &str,
    cluster: &str,
    ring: &Keyring,
    order: Order,
) -> Result<OrderConnection, QueryError> {
    let refused = |reason: String| QueryError::Refused { addr: addr.to_owned(), reason };
    let given = async {
        let role = ring.first().role();
        if role < Purpose::Order.role() {
            return Err(refused(HandshakeRefusal::Role(role).to_string()));
        }
        let order = encoded(cluster, order)?;
        let mut stream = connect(addr).await?;
        let entropy = security::entropy();
        let entropy = entropy.map_err(|error| unreachable(addr)(io::Error::other(error)))?;
        let (identity, mut decoder) = (StaticKey::new(*entropy), Decoder::new());
        let shaken = security::handshake(
            cluster,
            ring,
            &identity,
            &Purpose::Order,
            &mut stream,
            &mut decoder,
        );
        let shaken = shaken.await.map_err(|error| match error {
            SecureHandshakeError::Io(source) => unreachable(addr)(source),
            error => refused(error.to_string()),
        })?;
        let Session { mut sealer, opener, .. } = shaken;
        decoder.unseal(opener);
        decoder.await_answer();
        write(addr, &mut stream, &seal(&mut sealer, &order)?).await?;
        Ok(OrderConnection { addr: addr.to_owned(), stream, decoder, sealer: Some(sealer) })
    };
    query::within_limit(addr, cluster, given).await
}

fn seal(sealer: &mut Sealer, order: &[u8]) -> Result<Vec<u8>, QueryError> {
    let mut records = Vec::new();
    let sealed = sealer.seal(order, &mut records);
    sealed.map_err(|error| QueryError::Garbled { reason: error.to_string() })?;
    Ok(records)
}

/// The connection on which an order is given.
pub(super) struct OrderConnection {
    addr: String,
    stream: TcpStream,
    decoder: Decoder,
    /// Seals what follows the order, if the cluster has a key.
    sealer: Option<Sealer>,
}

impl OrderConnection {
    /// Waits for the next report.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn report(&mut self) -> Result<OrderReport, QueryError> {
        match query::read_answer(&self.addr, &mut self.stream, &mut self.decoder).await? {
            Frame::Report(report) => Ok(*report),
            _ => Err(QueryError::Garbled { reason: "it answered something else".into() }),
        }
    }

    /// The next report, or an error if it takes longer than `limit`.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub(super) async fn report_within(
        &mut self,
        limit: Duration,
    ) -> Result<OrderReport, QueryError> {
        let report = timeout(limit, self.report()).await.ok();
        report.unwrap_or_else(|| Err(self.timed_out(limit)))
    }

    /// The error for a member that has sent nothing for `limit`.
    pub(super) fn timed_out(&self, limit: Duration) -> QueryError {
        QueryError::TimedOut { addr: self.addr.clone(), limit }
    }

    /// Writes a message of a session.
    pub(super) async fn send(&mut self, message: SessionMessage) -> Result<(), QueryError> {
        let mut bytes = frame_bytes(&Frame::Session(message))?;
        if let Some(sealer) = &mut self.sealer {
            bytes = seal(sealer, &bytes)?;
        }
        write(&self.addr, &mut self.stream, &bytes).await
    }
}

/// Asks a member for its status, over a connection of its own.
type StatusProbe = Box<dyn Fn() -> StatusAnswer + Send + Sync>;
type StatusAnswer = Pin<Box<dyn Future<Output = Result<Status, QueryError>> + Send>>;

/// The reports on an order, from [`give_order`]. When they are dropped, the connection ends, and
/// the member stops carrying out the order.
#[must_use = "the member stops when this is dropped"]
pub struct OrderReports {
    connection: OrderConnection,
    probe: StatusProbe,
    is_over: bool,
}

impl OrderReports {
    /// The next report. `None` after the last one. An order may take long, and the connection to a
    /// member that hangs does not end. So the member is asked for its status each second while it
    /// reports nothing.
    ///
    /// # Errors
    /// [`QueryError`]: the connection has failed, or the member has ended it.
    /// [`QueryError::TimedOut`]: the member answers no question for its status within five seconds.
    /// The order may have been carried out in part.
    ///
    /// # Cancel safety
    /// Dropping the future loses nothing.
    pub async fn next(&mut self) -> Result<Option<OrderReport>, QueryError> {
        if self.is_over {
            return Ok(None);
        }
        let timed_out = self.connection.timed_out(LIMIT);
        let mut report = pin!(self.connection.report());
        let report = loop {
            // If the member refuses this connection, the order's connection shows the reason.
            let hangs = async {
                sleep(PAUSE).await;
                let status = timeout(LIMIT - PAUSE, (self.probe)()).await;
                matches!(status, Err(_) | Ok(Err(QueryError::TimedOut { .. })))
            };
            tokio::select! {
                biased;
                report = &mut report => break report?,
                hangs = hangs => {
                    if hangs {
                        return Err(timed_out);
                    }
                }
            }
        };
        self.is_over = report.is_last();
        Ok(Some(report))
    }
}

impl std::fmt::Debug for OrderReports {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let addr = &self.connection.addr;
        f.debug_struct("OrderReports").field("addr", addr).finish_non_exhaustive()
    }
}

/// An order as a frame, which is as short as a handshake.
fn encoded(cluster: &str, order: Order) -> Result<Vec<u8>, QueryError> {
    let request = OrderRequest { cluster: cluster.to_owned(), versions: VERSIONS, order };
    let bytes = frame_bytes(&Frame::Order(Box::new(request)))?;
    if bytes.len() > wire::MAX_HELLO {
        let reason = format!("an order has at most {} bytes, not {}", wire::MAX_HELLO, bytes.len());
        return Err(QueryError::Garbled { reason });
    }
    Ok(bytes)
}

fn frame_bytes(frame: &Frame) -> Result<Vec<u8>, QueryError> {
    let mut bytes = Vec::new();
    // Orders and the messages of a session have the same form in all versions.
    let encoded = wire::encode(frame, 0, &mut bytes);
    encoded.map_err(|error| QueryError::Garbled { reason: error.to_string() })?;
    Ok(bytes)
}

async fn connect(addr: &str) -> Result<TcpStream, QueryError> {
    let stream = TcpStream::connect(addr).await.map_err(unreachable(addr))?;
    // A member that vanishes without closing is noticed by keepalive.
    ConnectionTimeouts::default().configure(&stream).map_err(unreachable(addr))?;
    Ok(stream)
}

async fn write(addr: &str, stream: &mut TcpStream, bytes: &[u8]) -> Result<(), QueryError> {
    stream.write_all(bytes).await.map_err(unreachable(addr))
}

fn unreachable(addr: &str) -> impl Fn(io::Error) -> QueryError {
    let addr = addr.to_owned();
    move |source| QueryError::Unreachable { addr: addr.clone(), source }
}
