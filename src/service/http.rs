//! A member over HTTP: metrics, probes, its status, and a page for people.
//!
//! | path | content |
//! |---|---|
//! | `/` | a page: members on a ring, the lease, services, the longest waits, holds with their leases, the last events. It refreshes itself and loads nothing from elsewhere |
//! | `/status.json` | a [`StatusReport`], with `lease_left` in seconds, the listed `locks` and the last `events` |
//! | `/metrics` | the state of the member as Prometheus text |
//! | `/ready` | 200 if the member is healthy, 503 if it is suspended, joining or over |
//! | `/live` | 200 until the member is over, whether or not it has a quorum; then 503 |
//!
//! Mount the router in a server of the program:
//!
//! ```
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let member = elderlock::Member::local().await?;
//! let app: axum::Router = axum::Router::new()
//!     .nest("/elderlock", elderlock::http::HttpView::new(&member).router());
//! # Ok(()) }
//! ```
//!
//! or [`serve`](HttpView::serve) it alone, as `elderlock node --http 127.0.0.1:7480` does.
//!
//! # Access
//! All paths only read. With a [token](HttpView::token) a request needs it, as `Authorization:
//! Bearer TOKEN` or as the password of a browser's prompt, except for `/ready` and `/live`. `serve`
//! refuses an address outside the loopback without a token or
//! [`insecure`](HttpView::insecure). A router that is mounted leaves that to the program.
//!
//! The `Host` of each request must be an IP address, `localhost`, or a [`host`](HttpView::host)
//! that was named. So no page of another site can read it by way of a visitor's browser and a name
//! that changes its address.
//!
//! # Metrics
//! `/metrics` has the state of the member, without any recorder. The measurements of the feature
//! `metrics` (grants, losses, times of waits and holds, transfers, messages) are those of an
//! exporter. With [`exporter`](HttpView::exporter) they are in the same text:
//!
//! ```
//! # #[cfg(feature = "metrics")]
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! use elderlock::http::HttpView;
//! use elderlock::telemetry::SECONDS_BUCKETS;
//! use metrics_exporter_prometheus::PrometheusBuilder;
//! // Before the member is built.
//! let exporter = PrometheusBuilder::new().set_buckets(&SECONDS_BUCKETS)?.install_recorder()?;
//! let member = elderlock::Member::local().await?;
//! let view = HttpView::new(&member).exporter(move || exporter.render());
//! # drop(view);
//! # Ok(()) }
//! # #[cfg(not(feature = "metrics"))]
//! # fn main() {}
//! ```
//!
//! `elderlock node` does the same. `deploy/grafana.json` is a dashboard of these metrics.

mod access;
mod listener;
mod metrics_text;
mod shown_locks;

use super::events::Events;
use super::member::Member;
use super::status_report::StatusReport;
use crate::protocol::Status;
use crate::runtime::engine::ConnectionStatus;
use access::Access;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use listener::BoundedListener;
use serde::Serialize;
use shown_locks::ShownLock;
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

/// The page. It has its style and its script inside.
const PAGE: &str = include_str!("http/page.html");

/// The page runs its own script, reads its own origin, and loads nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Events that the page shows.
const LAST_EVENTS: usize = 32;
/// Locks in the status. All of a large table would be megabytes, and the page asks every second.
const MOST_LOCKS: usize = 256;

/// The HTTP view of a member, and its access rules. See the [module](self).
#[must_use = "it does nothing until its router is mounted or it serves"]
pub struct HttpView {
    member: Member,
    access: Access,
    events: LastEvents,
    exporter: Exporter,
}

/// Gives the text of the program's exporter.
type Exporter = Box<dyn Fn() -> String + Send + Sync>;

impl HttpView {
    /// Makes the HTTP view of this member. The member stays in the cluster for as long as the
    /// router is there: end it with [`leave`](Member::leave). Events are shown from now on.
    pub fn new(member: &Member) -> HttpView {
        let events = LastEvents { reader: member.events(), last: VecDeque::new() };
        let (member, access) = (member.clone(), Access::default());
        HttpView { member, access, events, exporter: Box::new(String::new) }
    }

    /// `/metrics` begins with this Prometheus text, each time it is read. A metric that the text
    /// has is not written again.
    pub fn exporter(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> HttpView {
        self.exporter = Box::new(render);
        self
    }

    /// Requests need this token, except for `/ready` and `/live`.
    pub fn token(mut self, token: impl Into<String>) -> HttpView {
        self.access.token = Some(token.into());
        self
    }

    /// Allows one more name in the `Host` of a request, without a port.
    pub fn host(mut self, name: impl Into<String>) -> HttpView {
        self.access.hosts.push(name.into().to_ascii_lowercase());
        self
    }

    /// Lets [`serve`](HttpView::serve) listen outside the loopback without a token. Any process
    /// that reaches the address then reads names of locks, metadata and addresses.
    pub fn insecure(mut self) -> HttpView {
        self.access.insecure = true;
        self
    }

    /// The router, to be merged with another one or nested below a path.
    pub fn router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let HttpView { member, access, events, exporter } = self;
        let shown = Arc::new(Shown { member, events: Mutex::new(events), exporter });
        let access = Arc::new(access);
        Router::new()
            .route("/", get(async || Html(PAGE)))
            .route("/status.json", get(status))
            .route("/metrics", get(metrics))
            .layer(from_fn_with_state(access.clone(), check_token))
            .route("/ready", get(ready))
            .route("/live", get(live))
            .layer(from_fn_with_state(access, check_host))
            .with_state(shown)
    }

    /// Listens and serves until the future is dropped, or listening fails. Port 0 takes a free one.
    /// `listening` is told the address. At most 64 connections are open at a time; one that is
    /// silent for 30 seconds is closed.
    ///
    /// # Errors
    /// The address is outside the loopback, and neither a token was given nor
    /// [`insecure`](HttpView::insecure); or it cannot be bound.
    ///
    /// # Cancel safety
    /// If the future is dropped, it closes the port.
    pub async fn serve(
        self,
        addr: SocketAddr,
        listening: impl FnOnce(SocketAddr),
    ) -> io::Result<()> {
        if !addr.ip().is_loopback() && self.access.token.is_none() && !self.access.insecure {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{addr} is outside the loopback: give a token, or say insecure()"),
            ));
        }
        let listener = tokio::net::TcpListener::bind(addr).await?;
        listening(listener.local_addr()?);
        axum::serve(BoundedListener::new(listener), self.router::<()>()).await
    }
}

impl std::fmt::Debug for HttpView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpView").field("member", &self.member).finish_non_exhaustive()
    }
}

/// The state of the router.
struct Shown {
    member: Member,
    events: Mutex<LastEvents>,
    exporter: Exporter,
}

/// The last events. They are read when a request comes, so that no task is needed in between; the
/// reader keeps a thousand.
struct LastEvents {
    reader: Events,
    last: VecDeque<String>,
}

impl LastEvents {
    fn catch_up(&mut self) -> Vec<String> {
        let mut context = Context::from_waker(Waker::noop());
        while let Poll::Ready(Some(event)) = pin!(self.reader.next()).poll(&mut context) {
            if self.last.len() == LAST_EVENTS {
                self.last.pop_front();
            }
            self.last.push_back(event.to_string());
        }
        self.last.iter().rev().cloned().collect()
    }
}

/// The content of `/status.json`.
#[derive(Serialize)]
struct PageStatus {
    #[serde(flatten)]
    report: StatusReport,
    /// The rest of the lease in seconds; `None`: it has no end, because the member is alone.
    lease_left: Option<f64>,
    /// The locks that are waited for longest, and behind them those that are held longest.
    locks: Vec<ShownLock>,
    /// The latest first.
    events: Vec<String>,
}

/// Leaves out the locks beyond [`MOST_LOCKS`], and counts them.
fn cut(status: &mut Status) {
    let mut left = MOST_LOCKS;
    for service in &mut status.services {
        service.more_locks += service.locks.len().saturating_sub(left);
        service.locks.truncate(left);
        left -= service.locks.len();
    }
}

async fn status(State(shown): State<Arc<Shown>>) -> Response {
    let events = shown.events.lock().unwrap_or_else(PoisonError::into_inner).catch_up();
    let mut status = shown.member.status();
    let locks = shown_locks::list(shown.member.engine(), &status).await;
    cut(&mut status);
    let status = PageStatus {
        report: StatusReport::new(&status),
        lease_left: shown.member.lease_left().map(|left| left.as_secs_f64()),
        locks,
        events,
    };
    match serde_json::to_string(&status) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn metrics(State(shown): State<Arc<Shown>>) -> Response {
    let text = metrics_text::write(&shown.member, &(shown.exporter)());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn ready(State(shown): State<Arc<Shown>>) -> Response {
    // A member that distrusts its clock counts as suspended too; the status does not tell of that.
    match (shown.member.is_over(), shown.member.connection_status()) {
        (true, _) => (StatusCode::SERVICE_UNAVAILABLE, "over\n").into_response(),
        (_, ConnectionStatus::Connected) => (StatusCode::OK, "healthy\n").into_response(),
        (_, ConnectionStatus::Suspended) => {
            (StatusCode::SERVICE_UNAVAILABLE, "suspended\n").into_response()
        }
        (_, ConnectionStatus::Lost) => {
            (StatusCode::SERVICE_UNAVAILABLE, "joining\n").into_response()
        }
    }
}

async fn live(State(shown): State<Arc<Shown>>) -> Response {
    match shown.member.is_over() {
        true => (StatusCode::SERVICE_UNAVAILABLE, "over\n").into_response(),
        false => (StatusCode::OK, "live\n").into_response(),
    }
}

async fn check_host(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    // HTTP/2 has it in the URI.
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    let host = host.or_else(|| request.uri().authority().map(|authority| authority.as_str()));
    if !host.is_some_and(|host| access.allows_host(host)) {
        let text = "this name is not allowed as the Host of a request\n";
        return (StatusCode::FORBIDDEN, text).into_response();
    }
    let mut response = next.run(request).await;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_SECURITY_POLICY, header::HeaderValue::from_static(POLICY));
    headers.insert(header::CACHE_CONTROL, header::HeaderValue::from_static("no-store"));
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, header::HeaderValue::from_static("nosniff"));
    response
}

async fn check_token(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    let given = request.headers().get(header::AUTHORIZATION).and_then(|text| text.to_str().ok());
    if access.allows_token(given) {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"elderlock\"")];
    (StatusCode::UNAUTHORIZED, ask, "the token is missing or wrong\n").into_response()
}
