//! Asking a running member for its status, without joining.

#[cfg(feature = "secure")]
use super::security::{self, SecureHandshakeError, StaticKey};
use crate::protocol::{ProcessId, Status};
#[cfg(feature = "secure")]
use crate::wire::secure::{Keyring, Purpose, Session};
use crate::wire::{
    self, Decoder, Frame, FrameError, HandshakeRefusal, MAX_CLUSTER, StatusQuery, VERSIONS,
};
use std::io;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The limit of a query, resolution of the name included.
pub(super) const LIMIT: Duration = Duration::from_secs(5);
/// The time of silence after which a member is asked whether it is still there. A member that
/// refuses a request answers sooner.
pub(super) const PAUSE: Duration = Duration::from_secs(1);

/// Asks the member at `addr` (`host:port`) of cluster `cluster` for its status. Joins nothing and
/// changes nothing; the answer lists at most 256 locks and counts the rest. Ends within five
/// seconds.
///
/// # Errors
/// See [`QueryError`]; nothing changes in any case.
///
/// # Cancel safety
/// May be dropped at any time.
pub async fn query_status(addr: &str, cluster: &str) -> Result<Status, QueryError> {
    within_limit(addr, cluster, ask(addr, cluster, None)).await
}

/// Asks the member at `addr` for the status of another member of its view, which it asks in its
/// turn. For a caller that reaches one member alone, as through one forwarded port. The other
/// member does not pass the question on. Otherwise like [`query_status`].
///
/// # Errors
/// See [`QueryError`]. [`QueryError::Refused`]: that member gives no answer, or the member at
/// `addr` has an older release, which passes no question on. Nothing changes in any case.
///
/// # Cancel safety
/// May be dropped at any time.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock::{Member, query_status, query_status_of};
/// let first = Member::builder("shop").bind("127.0.0.1:0").found().join().await?;
/// let port = first.addr().to_string();
/// let second = Member::builder("shop").bind("127.0.0.1:0").seeds([&port]).join().await?;
///
/// // In a program that reaches the first one only:
/// let view = query_status(&port, "shop").await?.view.ok_or("it joins")?;
/// for member in &view.members {
///     let process = member.info.process;
///     let status = query_status_of(&port, "shop", process).await?;
///     assert_eq!(status.me.process, process);
/// }
/// # second.leave().await?;
/// # first.leave().await?;
/// # Ok(()) }
/// ```
pub async fn query_status_of(
    addr: &str,
    cluster: &str,
    process: ProcessId,
) -> Result<Status, QueryError> {
    let asked = async { told_of(addr, process, ask(addr, cluster, Some(process)).await?) };
    within_limit(addr, cluster, asked).await
}

/// Checks which member's status was answered: a member of an older release answers with its own.
fn told_of(addr: &str, process: ProcessId, status: Status) -> Result<Status, QueryError> {
    if status.me.process == process {
        return Ok(status);
    }
    let reason = "its release does not ask other members".to_owned();
    Err(QueryError::Refused { addr: addr.to_owned(), reason })
}

/// Runs an exchange with a member, after the checks that need no member.
pub(super) async fn within_limit<T>(
    addr: &str,
    cluster: &str,
    exchange: impl Future<Output = Result<T, QueryError>>,
) -> Result<T, QueryError> {
    check_cluster(addr, cluster)?;
    tokio::runtime::Handle::try_current().map_err(|_| QueryError::NoRuntime)?;
    let exchanged = tokio::time::timeout(LIMIT, exchange).await;
    exchanged.unwrap_or_else(|_| Err(QueryError::TimedOut { addr: addr.to_owned(), limit: LIMIT }))
}

/// Like [`query_status`], for a cluster with a key. The first key of the ring seals question and
/// answer.
///
/// # Errors
/// See [`QueryError`]; nothing changes in any case.
///
/// # Cancel safety
/// May be dropped at any time.
#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub async fn query_status_with(
    addr: &str,
    cluster: &str,
    ring: &Keyring,
) -> Result<Status, QueryError> {
    within_limit(addr, cluster, ask_sealed(addr, cluster, ring, None)).await
}

/// Like [`query_status_of`], for a cluster with a key. The first key of the ring seals the question
/// and the answer to it; the asked member asks in its turn with its own key.
///
/// # Errors
/// See [`query_status_of`].
///
/// # Cancel safety
/// May be dropped at any time.
#[cfg(feature = "secure")]
#[cfg_attr(docsrs, doc(cfg(feature = "secure")))]
pub async fn query_status_of_with(
    addr: &str,
    cluster: &str,
    ring: &Keyring,
    process: ProcessId,
) -> Result<Status, QueryError> {
    let asked =
        async { told_of(addr, process, ask_sealed(addr, cluster, ring, Some(process)).await?) };
    within_limit(addr, cluster, asked).await
}

#[cfg(feature = "secure")]
async fn ask_sealed(
    addr: &str,
    cluster: &str,
    ring: &Keyring,
    of: Option<ProcessId>,
) -> Result<Status, QueryError> {
    let unreachable = |source| QueryError::Unreachable { addr: addr.to_owned(), source };
    let mut stream = TcpStream::connect(addr).await.map_err(unreachable)?;
    let entropy = security::entropy().map_err(|error| unreachable(io::Error::other(error)))?;
    let (identity, mut decoder) = (StaticKey::new(*entropy), Decoder::new());
    let purpose = Purpose::Status(of);
    let shaken = security::handshake(cluster, ring, &identity, &purpose, &mut stream, &mut decoder);
    let Session { opener, .. } = shaken.await.map_err(|error| match error {
        SecureHandshakeError::Io(source) => unreachable(source),
        error => QueryError::Refused { addr: addr.to_owned(), reason: error.to_string() },
    })?;
    decoder.unseal(opener);
    decoder.await_answer();
    read_status(addr, &mut stream, &mut decoder).await
}

fn check_cluster(addr: &str, cluster: &str) -> Result<(), QueryError> {
    if (1..=MAX_CLUSTER).contains(&cluster.len()) {
        return Ok(());
    }
    let length = cluster.len();
    let reason = format!("a cluster name must have 1 to {MAX_CLUSTER} bytes, not {length}");
    Err(QueryError::Refused { addr: addr.to_owned(), reason })
}

async fn ask(addr: &str, cluster: &str, of: Option<ProcessId>) -> Result<Status, QueryError> {
    let unreachable = |source| QueryError::Unreachable { addr: addr.to_owned(), source };
    let mut stream = TcpStream::connect(addr).await.map_err(unreachable)?;
    let mut question = Vec::new();
    let (cluster, reserved) = (cluster.to_owned(), Vec::new());
    let frame = Frame::Question(StatusQuery { cluster, versions: VERSIONS, reserved, of });
    let encoded = wire::encode(&frame, 0, &mut question);
    encoded.map_err(|error| QueryError::Garbled { reason: error.to_string() })?;
    stream.write_all(&question).await.map_err(unreachable)?;
    read_status(addr, &mut stream, &mut Decoder::for_answer()).await
}

async fn read_status(
    addr: &str,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<Status, QueryError> {
    match read_answer(addr, stream, decoder).await? {
        Frame::StatusIs(status) => Ok(*status),
        _ => Err(QueryError::Garbled { reason: "it answered something else".into() }),
    }
}

/// The next frame of an answer that is not a refusal.
pub(super) async fn read_answer(
    addr: &str,
    stream: &mut TcpStream,
    decoder: &mut Decoder,
) -> Result<Frame, QueryError> {
    let unreachable = |source| QueryError::Unreachable { addr: addr.to_owned(), source };
    let garbled = |reason: String| QueryError::Garbled { reason };
    loop {
        match decoder.next() {
            Ok(Some(Frame::Refused(refusal))) => return Err(refused(addr, refusal)),
            Ok(Some(frame)) => return Ok(frame),
            Ok(None) => {}
            Err(FrameError::Versions(theirs)) => {
                return Err(refused(addr, HandshakeRefusal::Versions(theirs)));
            }
            Err(error) => return Err(garbled(error.to_string())),
        }
        if stream.read_buf(decoder.back()).await.map_err(unreachable)? == 0 {
            return Err(QueryError::Closed { addr: addr.to_owned() });
        }
    }
}

fn refused(addr: &str, refusal: HandshakeRefusal) -> QueryError {
    QueryError::Refused { addr: addr.to_owned(), reason: refusal.to_string() }
}

/// Why a member could not be asked. Nothing changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No process could be reached there.
    #[error("no member answers at {addr}: {source}")]
    Unreachable {
        /// The address that was asked.
        addr: String,
        /// The operating system's error.
        source: io::Error,
    },
    /// The process at the address refuses to talk: another cluster, or another protocol version.
    #[error("the member at {addr} refused to answer: {reason}")]
    Refused {
        /// The address that was asked.
        addr: String,
        /// The member's reason.
        reason: String,
    },
    /// The answer is not a status.
    #[error("the peer at that address does not speak elderlock's protocol: {reason}")]
    Garbled {
        /// The defect.
        reason: String,
    },
    /// The connection was ended before the answer was whole.
    #[error("the process at {addr} ended the connection without an answer")]
    Closed {
        /// The address that was asked.
        addr: String,
    },
    /// Called outside of a tokio runtime.
    #[error("no tokio runtime here: call this from within one, with time and IO enabled")]
    NoRuntime,
    /// No answer in time.
    #[error("no answer from {addr} within {limit:?}")]
    TimedOut {
        /// The address that was asked.
        addr: String,
        /// The limit.
        limit: Duration,
    },
}
