//! The header `Fencing-Token`, and a `tower` layer that refuses requests of stale holders.
//!
//! A client that holds a lock sends its stamp with each request: [`header_value`]. The server puts
//! [`FenceLayer`] around the service that owns the resource. The layer asks the program which
//! resource a request is for, and then:
//!
//! | request | answer |
//! |---|---|
//! | for no fenced resource | that of the service |
//! | the stamp is admitted | that of the service; the request has the [`Stamp`] as an extension |
//! | without the header | 428 Precondition Required |
//! | a header that is not a stamp, or more than one | 400 Bad Request |
//! | stale | 412 Precondition Failed, with the stamp that was admitted before in `Fencing-Token` |
//! | the store of stamps fails | 503 Service Unavailable |
//!
//! The body of a refusal is JSON (`application/problem+json`) with `title`, `status`, `detail`,
//! `resource`, and of a stale stamp `shown` and `stored`.
//!
//! Reads have to be fenced, too, when a write follows from them: name a resource for `GET` as well.
//!
//! # Guarantees
//! While a request for a resource is in the service, the layer admits no other one for that
//! resource. An earlier holder's request cannot take effect after a later holder's. The layer
//! orders the requests of one process. If several processes serve one resource, fence where they
//! write, for example by the feature of their database.
//!
//! The next request enters when the service has answered or its future was dropped, for example
//! because the client disconnected. A service that works in a separate task must end that task
//! then, or wait for it.
//!
//! The stamps are in a [`FenceStore`], which must survive a restart: a store that forgets admits
//! the first stamp that comes, also a stale one. `SqliteStore`, with the feature `rusqlite`, does.

use crate::stamp::{NoStamp, Stale, Stamp, check_resource, exclusive_stamp};
use elderlock::Fenced;
use http::header::CONTENT_TYPE;
use http::request::Parts;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode};
use std::collections::HashMap;
use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::task::{Context, Poll};
use tower_layer::Layer;
use tower_service::Service;

/// The name of the header: `Fencing-Token`.
pub const FENCING_TOKEN: HeaderName = HeaderName::from_static("fencing-token");

/// The value of the header for a holder.
///
/// # Errors
/// [`NoStamp`]: the guard is lost, or it is a share or permits. Do not send the request.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use elderlock_fence::http::{FENCING_TOKEN, header_value};
/// let member = elderlock::Member::local().await?;
/// let guard = member.lock_service("inventory").await?.lock("sku-42").await?;
/// let request = http::Request::put("/stock/sku-42")
///     .header(FENCING_TOKEN, header_value(&guard)?)
///     .body("41")?;
/// # Ok(()) }
/// ```
pub fn header_value(holder: &(impl Fenced + ?Sized)) -> Result<HeaderValue, NoStamp> {
    let text = exclusive_stamp(holder)?.to_string();
    Ok(HeaderValue::try_from(text).expect("digits and a hyphen are a header's value"))
}

/// The highest stamp of each resource, kept where a restart does not lose it.
pub trait FenceStore: Send + Sync + 'static {
    /// Admits the stamp if it [may](Stamp::admits_after) come after the stored stamp, and
    /// stores it. When this returns, the stamp is stored for good.
    ///
    /// # Errors
    /// [`StoreError::Stale`]: nothing is changed. [`StoreError::Failed`]: the stamp may be stored
    /// or not.
    fn admit(
        &self,
        resource: &str,
        stamp: Stamp,
    ) -> impl Future<Output = Result<(), StoreError>> + Send;
}

/// Why a [`FenceStore`] does not admit a stamp.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A later holder was admitted.
    #[error(transparent)]
    Stale(#[from] Stale),
    /// The store failed.
    #[error("the store of fencing tokens failed: {0}")]
    Failed(#[source] Box<dyn std::error::Error + Send + Sync>),
}

/// Puts the fence around a service. `resource` returns the name of a request's resource, or `None`
/// if the request is not fenced. The name has 1 to [`MAX_RESOURCE`](crate::MAX_RESOURCE) bytes; a
/// request with another name is answered with 400.
///
/// ```
/// # #[cfg(feature = "rusqlite")]
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use http_body_util::Full;
/// # use std::convert::Infallible;
/// # use tower::{Service, ServiceBuilder, ServiceExt, service_fn};
/// use elderlock_fence::http::{FENCING_TOKEN, FenceLayer, SqliteStore};
/// # let folder = std::env::temp_dir().join(format!("elderlock-doc-http-{}", std::process::id()));
/// # std::fs::create_dir_all(&folder)?;
/// let store = SqliteStore::open(folder.join("fences.db"))?;
/// let fence = FenceLayer::new(store, |request| {
///     request.uri.path().strip_prefix("/stock/").map(str::to_owned)
/// });
/// let sell = service_fn(async |_: http::Request<String>| {
///     Ok::<_, Infallible>(http::Response::new(Full::<bytes::Bytes>::from("sold")))
/// });
/// let mut service = ServiceBuilder::new().layer(fence).service(sell);
///
/// let put = |stamp: &str| {
///     http::Request::put("/stock/sku-42").header(FENCING_TOKEN, stamp).body("41".to_owned())
/// };
/// let answer = service.ready().await?.call(put("8-0000000000000001")?).await?;
/// assert_eq!(answer.status(), 200);
/// let answer = service.ready().await?.call(put("7-0000000000000001")?).await?;
/// assert_eq!(answer.status(), 412);
/// assert_eq!(answer.headers()[FENCING_TOKEN], "8-0000000000000001");
/// # std::fs::remove_dir_all(&folder)?;
/// # Ok(()) }
/// # #[cfg(not(feature = "rusqlite"))] fn main() {}
/// ```
pub struct FenceLayer<S, R> {
    shared: Arc<Shared<S, R>>,
}

struct Shared<S, R> {
    store: S,
    resource: R,
    queues: Queues,
}

impl<S: FenceStore, R: Fn(&Parts) -> Option<String>> FenceLayer<S, R> {
    /// A fence with its stamps in `store`. All clones of the layer, and all services around which
    /// they are put, share one fence.
    pub fn new(store: S, resource: R) -> FenceLayer<S, R> {
        FenceLayer { shared: Arc::new(Shared { store, resource, queues: Queues::default() }) }
    }
}

impl<S, R> Clone for FenceLayer<S, R> {
    fn clone(&self) -> Self {
        FenceLayer { shared: self.shared.clone() }
    }
}

impl<S, R> fmt::Debug for FenceLayer<S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceLayer").finish_non_exhaustive()
    }
}

impl<I, S, R> Layer<I> for FenceLayer<S, R> {
    type Service = FenceService<I, S, R>;

    fn layer(&self, inner: I) -> FenceService<I, S, R> {
        FenceService { inner, shared: self.shared.clone() }
    }
}

/// A service with a fence around it, from [`FenceLayer`].
pub struct FenceService<I, S, R> {
    inner: I,
    shared: Arc<Shared<S, R>>,
}

impl<I: Clone, S, R> Clone for FenceService<I, S, R> {
    fn clone(&self) -> Self {
        FenceService { inner: self.inner.clone(), shared: self.shared.clone() }
    }
}

impl<I: fmt::Debug, S, R> fmt::Debug for FenceService<I, S, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FenceService").field("inner", &self.inner).finish_non_exhaustive()
    }
}

impl<I, S, R, Q, A> Service<Request<Q>> for FenceService<I, S, R>
where
    I: Service<Request<Q>, Response = Response<A>> + Clone + Send + 'static,
    I::Future: Send,
    S: FenceStore,
    R: Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    Q: Send + 'static,
    A: From<String> + Send + 'static,
{
    type Response = Response<A>;
    type Error = I::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Response<A>, I::Error>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), I::Error>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        // The polled service is ready; a clone need not be.
        let inner = self.inner.clone();
        let mut inner = std::mem::replace(&mut self.inner, inner);
        let shared = self.shared.clone();
        let (mut parts, body) = request.into_parts();
        let Some(resource) = (shared.resource)(&parts) else {
            return Box::pin(inner.call(Request::from_parts(parts, body)));
        };
        Box::pin(async move {
            let stamp = match stamp_of(&parts.headers, &resource) {
                Ok(stamp) => stamp,
                Err(refusal) => return Ok(refusal.into_response(&resource)),
            };
            // The turn is held until the service has answered: before that the order of two writes
            // is unknown.
            let _turn = shared.queues.turn(&resource).await;
            match shared.store.admit(&resource, stamp).await {
                Ok(()) => {
                    parts.extensions.insert(stamp);
                    inner.call(Request::from_parts(parts, body)).await
                }
                Err(StoreError::Stale(stale)) => Ok(Refusal::Stale(stale).into_response(&resource)),
                Err(failed) => Ok(Refusal::Failed(failed.to_string()).into_response(&resource)),
            }
        })
    }
}

/// Why a request does not reach the service.
enum Refusal {
    Missing,
    Malformed(String),
    Stale(Stale),
    Failed(String),
}

fn stamp_of(headers: &HeaderMap, resource: &str) -> Result<Stamp, Refusal> {
    check_resource(resource).map_err(|error| Refusal::Malformed(error.to_string()))?;
    let mut values = headers.get_all(FENCING_TOKEN).iter();
    let value = values.next().ok_or(Refusal::Missing)?;
    if values.next().is_some() {
        return Err(Refusal::Malformed("there is more than one header Fencing-Token".to_owned()));
    }
    let text = value.to_str().map_err(|error| Refusal::Malformed(error.to_string()))?;
    text.trim().parse().map_err(|error: crate::InvalidStamp| Refusal::Malformed(error.to_string()))
}

impl Refusal {
    fn into_response<A: From<String>>(self, resource: &str) -> Response<A> {
        let (status, title) = match &self {
            Refusal::Missing => (StatusCode::PRECONDITION_REQUIRED, "Fencing token missing"),
            Refusal::Malformed(_) => (StatusCode::BAD_REQUEST, "Fencing token malformed"),
            Refusal::Stale(_) => (StatusCode::PRECONDITION_FAILED, "Fencing token stale"),
            Refusal::Failed(_) => (StatusCode::SERVICE_UNAVAILABLE, "Fencing token not checked"),
        };
        let mut body =
            serde_json::json!({ "title": title, "status": status.as_u16(), "resource": resource });
        let mut stored = None;
        body["detail"] = match self {
            Refusal::Missing => {
                "send the header Fencing-Token with the token and lineage of the lock's guard"
                    .into()
            }
            Refusal::Malformed(reason) | Refusal::Failed(reason) => reason.into(),
            Refusal::Stale(stale) => {
                stored = stale.stored.map(|stored| stored.to_string());
                body["shown"] = stale.shown.to_string().into();
                body["stored"] = stored.clone().into();
                stale.to_string().into()
            }
        };
        let mut response = Response::new(A::from(body.to_string()));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        if let Some(value) = stored.and_then(|stored| HeaderValue::try_from(stored).ok()) {
            headers.insert(FENCING_TOKEN, value);
        }
        response
    }
}

/// A queue for each resource that a request is for at the moment.
#[derive(Default)]
struct Queues {
    map: Mutex<QueueMap>,
}

#[derive(Default)]
struct QueueMap {
    queues: HashMap<String, Weak<tokio::sync::Mutex<()>>>,
    /// The number of queues at which unused queues are removed.
    sweep_at: usize,
}

impl Queues {
    /// Completes when all earlier requests of the resource have had their turn.
    async fn turn(&self, resource: &str) -> tokio::sync::OwnedMutexGuard<()> {
        let queue = {
            let mut map = self.map.lock().unwrap_or_else(PoisonError::into_inner);
            map.queue(resource)
        };
        queue.lock_owned().await
    }
}

impl QueueMap {
    fn queue(&mut self, resource: &str) -> Arc<tokio::sync::Mutex<()>> {
        if let Some(queue) = self.queues.get(resource).and_then(Weak::upgrade) {
            return queue;
        }
        if self.queues.len() >= self.sweep_at {
            self.queues.retain(|_, queue| queue.strong_count() > 0);
            // The limit is at least twice the number left, so that sweeps cost constant time for
            // each new queue.
            self.sweep_at = (2 * self.queues.len()).max(64);
        }
        let queue = Arc::new(tokio::sync::Mutex::new(()));
        self.queues.insert(resource.to_owned(), Arc::downgrade(&queue));
        queue
    }
}

#[cfg(feature = "rusqlite")]
pub use sqlite_store::{OpenStoreError, SqliteStore};

#[cfg(feature = "rusqlite")]
mod sqlite_store {
    use super::{FenceStore, StoreError};
    use crate::sql::{AdmitError, Fence, sqlite};
    use crate::stamp::Stamp;
    use rusqlite::{Connection, TransactionBehavior};
    use std::path::Path;
    use std::sync::{Arc, Mutex, PoisonError};
    use std::time::Duration;

    /// The time for which a statement waits for another process that has the file.
    const BUSY: Duration = Duration::from_secs(5);

    /// A [`FenceStore`] in a SQLite file: an admitted stamp survives the end of the process and of
    /// the machine. Clones share one connection. The calls need tokio: SQLite blocks, so each call
    /// runs on a blocking thread.
    #[derive(Clone, Debug)]
    pub struct SqliteStore {
        file: Arc<Mutex<Connection>>,
    }

    /// The error when a [`SqliteStore`] cannot be opened.
    #[derive(Debug, thiserror::Error)]
    #[error("the store of fencing tokens cannot be opened: {0}")]
    pub struct OpenStoreError(#[from] rusqlite::Error);

    impl SqliteStore {
        /// Opens the file and creates it if it is missing. Creates the table
        /// [`elderlock_fences`](crate::sql::sqlite) in it. Blocks.
        ///
        /// # Errors
        /// [`OpenStoreError`]: SQLite cannot open or write the file.
        pub fn open(path: impl AsRef<Path>) -> Result<SqliteStore, OpenStoreError> {
            let file = Connection::open(path)?;
            file.busy_timeout(BUSY)?;
            file.pragma_update(None, "journal_mode", "wal")?;
            // A power cut must not lose a stamp, because that would let an earlier holder in.
            file.pragma_update(None, "synchronous", "full")?;
            file.execute_batch(sqlite::CREATE_TABLE)?;
            Ok(SqliteStore { file: Arc::new(Mutex::new(file)) })
        }

        fn admit_now(
            &self,
            resource: &str,
            stamp: Stamp,
        ) -> Result<(), AdmitError<rusqlite::Error>> {
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            let begin = file.transaction_with_behavior(TransactionBehavior::Immediate);
            let transaction = begin.map_err(crate::rusqlite::classify)?;
            Fence::new().admit_blocking(&transaction, resource, &stamp)?;
            transaction.commit().map_err(crate::rusqlite::classify)
        }
    }

    impl FenceStore for SqliteStore {
        async fn admit(&self, resource: &str, stamp: Stamp) -> Result<(), StoreError> {
            let (store, resource) = (self.clone(), resource.to_owned());
            let admitted =
                tokio::task::spawn_blocking(move || store.admit_now(&resource, stamp)).await;
            match admitted {
                Ok(Ok(())) => Ok(()),
                Ok(Err(AdmitError::Stale(stale))) => Err(StoreError::Stale(stale)),
                Ok(Err(error)) => Err(StoreError::Failed(error.into())),
                Err(error) => Err(StoreError::Failed(error.into())),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queues_of_past_requests_take_no_room() {
        let mut map = QueueMap::default();
        let kept: Vec<_> = (0..100).map(|number| map.queue(&format!("kept-{number}"))).collect();
        for number in 0..10_000 {
            map.queue(&number.to_string());
        }
        assert!(map.queues.len() <= 300, "{}", map.queues.len());
        assert!(
            Arc::ptr_eq(&kept[0], &map.queue("kept-0")),
            "one that a request is in stays the same"
        );
    }
}
