//! A member over HTTP: metrics, probes, its status, and a page for people.
//!
//! | path | content |
//! |---|---|
//! | `/` | a page: members on a ring, the lease, services, the longest waits, holds with their leases, the last events. It refreshes itself and loads nothing from elsewhere |
//! | `/status.json` | a [`StatusReport`], with the `totals` of each service, `lease_left` in seconds, the listed `locks`, the last `events`, and what a joining member is `waiting` for |
//! | `/metrics` | the state of the member as Prometheus text |
//! | `/ready` | 200 if the member is healthy, 503 if it is suspended, joining or over; of a joining member also the seeds that it waits for |
//! | `/live` | 200 until the member is over, whether or not it has joined or has a quorum; then 503 |
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
//! The view of [`MemberBuilder::http_view`](crate::MemberBuilder::http_view) serves before its
//! member has joined. Until the member has an address, `/status.json` and `/metrics` answer 503.
//!
//! # Access
//! All paths only read. With a [token](HttpView::token) a request needs it, as `Authorization:
//! Bearer TOKEN` or as the password of a browser's prompt, except for `/ready` and `/live`.
//! `/ready` names seeds only to a request with the token. `serve` refuses an address outside the
//! loopback without a token or [`insecure`](HttpView::insecure). With a mounted router the program
//! decides that.
//!
//! The `Host` of each request must be an IP address, `localhost`, or a [`host`](HttpView::host)
//! that the program has named. So no page of another site can read the view through a visitor's
//! browser and a name whose address changes.
//!
//! # Metrics
//! `/metrics` has the state of the member, without any recorder: the gauges and refusals that
//! [`telemetry`](crate::telemetry) lists, and these. In this text a batch counts once for each name
//! in `elderlock_held` and `elderlock_queue_depth`.
//!
//! | metric | kind | meaning |
//! |---|---|---|
//! | `elderlock_ghosts` | gauge | members of the view that are gone, and whose leases are not over |
//! | `elderlock_lease_left_seconds` | gauge | until the member lease ends; absent if it has no end |
//! | `elderlock_held_here{service}`, `elderlock_waiting_here{service}` | gauge | holds and waiting requests of this member |
//! | `elderlock_network_total{kind}` | counter | the fields of [`Counters`](crate::Counters) that are no refusals |
//!
//! The measurements of the feature `metrics` (grants, losses, times of waits and holds, transfers,
//! messages) are those of an exporter. With [`exporter`](HttpView::exporter) they are in the same
//! text:
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
mod last_events;
mod listener;
mod member_slot;
mod metrics_text;
mod shown_locks;

use super::member::Member;
use super::status_report::StatusReport;
use crate::protocol::{GrantorState, LockStatus, ServiceStatus, Status};
use crate::runtime::engine::ConnectionStatus;
use access::Access;
use axum::Router;
use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{Html, IntoResponse, Response};
use axum::routing::get;
use last_events::ShownEvent;
use listener::BoundedListener;
pub(super) use member_slot::MemberSlot;
use member_slot::NoMember;
use serde::Serialize;
use shown_locks::ShownLock;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

/// The page, with its style and its script inside.
const PAGE: &str = include_str!("http/page.html");

/// The page runs its own script, reads its own origin, and loads nothing else.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; \
                      connect-src 'self'; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// The most locks in the status. All of a large table would be megabytes, and the page asks every
/// second.
const MOST_LOCKS: usize = 256;

/// The HTTP view of a member, and its access rules. See the [module](self).
#[must_use = "it does nothing until its router is mounted or it serves"]
pub struct HttpView {
    slot: Arc<MemberSlot>,
    access: Access,
    exporter: Exporter,
}

/// Returns the text of the program's exporter.
type Exporter = Box<dyn Fn() -> String + Send + Sync>;

impl HttpView {
    /// Makes the HTTP view of this member. The member stays in the cluster for as long as the
    /// router is there: end it with [`leave`](Member::leave). The view shows events from now on.
    pub fn new(member: &Member) -> HttpView {
        HttpView::of_slot(MemberSlot::of(member))
    }

    pub(super) fn of_slot(slot: Arc<MemberSlot>) -> HttpView {
        HttpView { slot, access: Access::default(), exporter: Box::new(String::new) }
    }

    /// Sets a source of Prometheus text with which `/metrics` begins, each time it is read. A
    /// metric of that text is not written again.
    pub fn exporter(mut self, render: impl Fn() -> String + Send + Sync + 'static) -> HttpView {
        self.exporter = Box::new(render);
        self
    }

    /// Requires this token of requests, except for `/ready` and `/live`.
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

    /// The router, which the program merges with another one or nests below a path.
    pub fn router<S: Clone + Send + Sync + 'static>(self) -> Router<S> {
        let HttpView { slot, access, exporter } = self;
        let access = Arc::new(access);
        let state = Arc::new(RouterState { slot, exporter, access: access.clone() });
        Router::new()
            .route("/", get(async || Html(PAGE)))
            .route("/status.json", get(status))
            .route("/metrics", get(metrics))
            .layer(from_fn_with_state(access.clone(), check_token))
            .route("/ready", get(ready))
            .route("/live", get(live))
            .layer(from_fn_with_state(access, check_host))
            .with_state(state)
    }

    /// Listens and serves until the future is dropped, or listening fails. Port 0 takes a free one.
    /// `listening` is called with the address. At most 64 connections are served at a time; a
    /// connection that is silent for 30 seconds is closed. When all places are taken, a new
    /// connection replaces the one that has been silent longest. So silent connections keep no
    /// probe waiting.
    ///
    /// # Errors
    /// The address is outside the loopback, and neither a token was given nor
    /// [`insecure`](HttpView::insecure); or the address cannot be bound.
    ///
    /// # Cancel safety
    /// If the future is dropped, the port is closed.
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
        let unbound = |error: io::Error| {
            io::Error::new(error.kind(), format!("cannot listen at {addr}: {error}"))
        };
        let listener = tokio::net::TcpListener::bind(addr).await.map_err(unbound)?;
        listening(listener.local_addr()?);
        axum::serve(BoundedListener::new(listener), self.router::<()>()).await
    }
}

impl std::fmt::Debug for HttpView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HttpView").field("member", &self.slot.member()).finish_non_exhaustive()
    }
}

/// The part of an [`HttpView`] that the handlers read.
struct RouterState {
    slot: Arc<MemberSlot>,
    exporter: Exporter,
    access: Arc<Access>,
}

/// The content of `/status.json`.
#[derive(Serialize)]
struct PageStatus {
    #[serde(flatten)]
    report: StatusReport,
    /// The holders and waiters of each service, in the order of the services, whose list of locks
    /// is cut.
    totals: Vec<ServiceTotals>,
    /// The rest of the lease in seconds; `None`: the lease is endless, because the member is alone.
    lease_left: Option<f64>,
    /// The locks that have been waited for longest, and after them those that have been held
    /// longest.
    locks: Vec<ShownLock>,
    /// The last events, the latest first.
    events: Vec<ShownEvent>,
    /// The seeds or members that the member waits for while it joins, as text.
    waiting: Option<String>,
}

/// All holders and waiters of a service. `None`: this member does not grant the service, and does
/// not know them.
#[derive(Serialize)]
struct ServiceTotals {
    service: String,
    holders: Option<usize>,
    waiters: Option<usize>,
}

impl ServiceTotals {
    fn new(service: &ServiceStatus) -> ServiceTotals {
        let is_grantor = service.granting == Some(GrantorState::Acting);
        let sum = |count: fn(&LockStatus) -> usize| {
            is_grantor.then(|| service.locks.iter().map(count).sum())
        };
        ServiceTotals {
            service: service.service.as_str().to_owned(),
            holders: sum(|lock| lock.holder_count),
            waiters: sum(|lock| lock.waiter_count),
        }
    }
}

/// Removes the locks beyond [`MOST_LOCKS`], and counts them.
fn cut(status: &mut Status) {
    let mut left = MOST_LOCKS;
    for service in &mut status.services {
        service.more_locks += service.locks.len().saturating_sub(left);
        service.locks.truncate(left);
        left -= service.locks.len();
    }
}

async fn status(State(state): State<Arc<RouterState>>) -> Response {
    let member = match state.slot.member() {
        Ok(member) => member,
        Err(none) => return none.into_response(),
    };
    let events = state.slot.last_events();
    let mut status = member.status();
    let locks = shown_locks::list(member.engine(), &status).await;
    let totals = status.services.iter().map(ServiceTotals::new).collect();
    cut(&mut status);
    let status = PageStatus {
        report: StatusReport::new(&status),
        totals,
        lease_left: member.lease_left().map(|left| left.as_secs_f64()),
        locks,
        events,
        waiting: waiting(&member),
    };
    match serde_json::to_string(&status) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text).into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}

async fn metrics(State(state): State<Arc<RouterState>>) -> Response {
    let member = match state.slot.member() {
        Ok(member) => member,
        Err(none) => return none.into_response(),
    };
    let text = metrics_text::write(&member, &(state.exporter)());
    ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], text).into_response()
}

async fn ready(State(state): State<Arc<RouterState>>, headers: HeaderMap) -> Response {
    let member = match state.slot.member() {
        Ok(member) => member,
        Err(none) => return none.into_response(),
    };
    let state = match (member.is_over(), member.connection_status()) {
        (true, _) => "over\n".to_owned(),
        (_, ConnectionStatus::Connected) => return (StatusCode::OK, "healthy\n").into_response(),
        (_, ConnectionStatus::Suspended) => "suspended\n".to_owned(),
        // Seeds are addresses, which a request without the token cannot read elsewhere either.
        (_, ConnectionStatus::Lost) => match waiting(&member) {
            Some(waiting) if state.access.allows_token(authorization(&headers)) => {
                format!("joining: {waiting}\n")
            }
            _ => "joining\n".to_owned(),
        },
    };
    (StatusCode::SERVICE_UNAVAILABLE, state).into_response()
}

async fn live(State(state): State<Arc<RouterState>>) -> Response {
    let is_over = match state.slot.member() {
        Ok(member) => member.is_over(),
        Err(none) => none == NoMember::Over,
    };
    match is_over {
        true => (StatusCode::SERVICE_UNAVAILABLE, "over\n").into_response(),
        false => (StatusCode::OK, "live\n").into_response(),
    }
}

/// The wait of a member that joins; `None`: the member does not join.
fn waiting(member: &Member) -> Option<String> {
    let joins = !member.is_over() && member.connection_status() == ConnectionStatus::Lost;
    joins.then(|| member.waiting()).flatten().map(|waiting| waiting.to_string())
}

impl IntoResponse for NoMember {
    fn into_response(self) -> Response {
        let text = match self {
            NoMember::Starting => "joining: waiting for its own address and its data directory\n",
            NoMember::Over => "over\n",
        };
        (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
    }
}

async fn check_host(State(access): State<Arc<Access>>, request: Request, next: Next) -> Response {
    // HTTP/2 has the host in the URI.
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
    if access.allows_token(authorization(request.headers())) {
        return next.run(request).await;
    }
    let ask = [(header::WWW_AUTHENTICATE, "Basic realm=\"elderlock\"")];
    (StatusCode::UNAUTHORIZED, ask, "the token is missing or wrong\n").into_response()
}

fn authorization(headers: &HeaderMap) -> Option<&str> {
    headers.get(header::AUTHORIZATION)?.to_str().ok()
}
