//! The layer around a service with a table of stocks in memory, over a store in a file.

use super::rounds::{Plan, Refused, Shop, prove};
use super::{Folder, stamp};
use elderlock_fence::Stamp;
use elderlock_fence::http::{
    FENCING_TOKEN, FenceLayer, FenceService, FenceStore, SqliteStore, StoreError,
};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::BodyExt;
use std::collections::HashMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use tower::{Layer, Service, ServiceExt};

type Body = http_body_util::Full<bytes::Bytes>;

/// `GET` reads a stock, `PUT` writes it.
#[derive(Clone, Default)]
struct Stocks {
    each: Arc<Mutex<HashMap<String, i64>>>,
    seen: Arc<Mutex<Vec<Stamp>>>,
}

impl Service<Request<String>> for Stocks {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<String>) -> Self::Future {
        self.seen.lock().unwrap().extend(request.extensions().get::<Stamp>());
        let article = request.uri().path().rsplit('/').next().unwrap().to_owned();
        let mut each = self.each.lock().unwrap();
        if request.method() == Method::PUT {
            each.insert(article.clone(), request.body().parse().unwrap());
        }
        let answer =
            Response::new(Body::from(each.get(&article).copied().unwrap_or(0).to_string()));
        Box::pin(async move { Ok(answer) })
    }
}

type Resource = fn(&Parts) -> Option<String>;

fn resource(request: &Parts) -> Option<String> {
    request.uri.path().strip_prefix("/stock/").map(str::to_owned)
}

fn fenced(stocks: &Stocks, store: SqliteStore) -> FenceService<Stocks, SqliteStore, Resource> {
    FenceLayer::new(store, resource as Resource).layer(stocks.clone())
}

fn request(
    method: Method,
    path: &str,
    stamp: Option<Stamp>,
    body: impl ToString,
) -> Request<String> {
    let mut request = Request::builder().method(method).uri(path);
    if let Some(stamp) = stamp {
        request = request.header(FENCING_TOKEN, stamp.to_string());
    }
    request.body(body.to_string()).unwrap()
}

/// Sends a request. Returns the status and the body.
async fn ask<S>(service: &S, request: Request<String>) -> (StatusCode, String)
where
    S: Service<Request<String>, Response = Response<Body>, Error = Infallible> + Clone,
{
    let answer = service.clone().oneshot(request).await.unwrap();
    let status = answer.status();
    let body = answer.into_body().collect().await.unwrap().to_bytes();
    (status, String::from_utf8(body.to_vec()).unwrap())
}

struct GoodsServer {
    stocks: Stocks,
    fenced: FenceService<Stocks, SqliteStore, Resource>,
    _folder: Folder,
}

impl GoodsServer {
    async fn send(&self, fenced: bool, request: Request<String>) -> Result<i64, Refused> {
        let (status, body) = if fenced {
            ask(&self.fenced, request).await
        } else {
            ask(&self.stocks, request).await
        };
        match status {
            StatusCode::OK => Ok(body.parse().unwrap()),
            StatusCode::PRECONDITION_FAILED => Err(Refused::Stale),
            other => panic!("{other}: {body}"),
        }
    }
}

impl Shop for GoodsServer {
    async fn fill(&self, article: &str, stock: i64) {
        self.stocks.each.lock().unwrap().insert(article.to_owned(), stock);
    }

    async fn stock(&self, article: &str) -> i64 {
        self.stocks.each.lock().unwrap()[article]
    }

    async fn sell(
        &self,
        _: usize,
        article: &str,
        stamp: Stamp,
        plan: Plan,
        pause: impl Future<Output = ()> + Send,
    ) -> Result<(), Refused> {
        let path = format!("/stock/{article}");
        let stock = self.send(plan.fenced, request(Method::GET, &path, Some(stamp), "")).await?;
        pause.await;
        self.send(plan.fenced, request(Method::PUT, &path, Some(stamp), stock - 1)).await?;
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn http_loses_no_update() {
    let (folder, stocks) = (Folder::new("http"), Stocks::default());
    let store = SqliteStore::open(folder.path("fences.db")).unwrap();
    let server = GoodsServer { fenced: fenced(&stocks, store), stocks, _folder: folder };
    prove("http", server, &[true]).await;
}

#[tokio::test]
async fn a_stale_request_is_refused_with_the_reason_also_after_a_restart() {
    let (folder, stocks) = (Folder::new("http-restart"), Stocks::default());
    let open = || SqliteStore::open(folder.path("fences.db")).unwrap();
    let service = fenced(&stocks, open());
    let put = |stamp| request(Method::PUT, "/stock/sku-42", Some(stamp), 41);
    assert_eq!(ask(&service, put(stamp(8, 1))).await, (StatusCode::OK, "41".to_owned()));
    drop(service);

    let service = fenced(&stocks, open());
    for stale in [stamp(7, 1), stamp(8, 2)] {
        let answer = service.clone().oneshot(put(stale)).await.unwrap();
        assert_eq!(answer.status(), StatusCode::PRECONDITION_FAILED);
        assert_eq!(answer.headers()[FENCING_TOKEN], stamp(8, 1).to_string());
        let body = answer.into_body().collect().await.unwrap().to_bytes();
        let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
        let told = [&body["resource"], &body["shown"], &body["stored"]]
            .map(|field| field.as_str().unwrap());
        assert_eq!(told, ["sku-42", &stale.to_string(), &stamp(8, 1).to_string()]);
        assert!(body["detail"].as_str().unwrap().contains("take the lock again"), "{body}");
    }
    assert_eq!(ask(&service, put(stamp(8, 1))).await.0, StatusCode::OK);
    assert_eq!(*stocks.seen.lock().unwrap(), [stamp(8, 1), stamp(8, 1)]);
}

#[tokio::test]
async fn a_request_without_a_stamp_or_with_a_wrong_one_says_what_is_wanted() {
    let (folder, stocks) = (Folder::new("http-wrong"), Stocks::default());
    let service = fenced(&stocks, SqliteStore::open(folder.path("fences.db")).unwrap());
    let (status, body) = ask(&service, request(Method::PUT, "/stock/a", None, 1)).await;
    assert_eq!(status, StatusCode::PRECONDITION_REQUIRED);
    assert!(body.contains("send the header Fencing-Token"), "{body}");
    for wrong in ["7", "x-0000000000000001", "0-0000000000000001", "\u{e4}"] {
        let mut asked = request(Method::PUT, "/stock/a", None, 1);
        asked
            .headers_mut()
            .insert(FENCING_TOKEN, HeaderValue::from_bytes(wrong.as_bytes()).unwrap());
        assert_eq!(ask(&service, asked).await.0, StatusCode::BAD_REQUEST, "{wrong}");
    }
    let mut twice = request(Method::PUT, "/stock/a", Some(stamp(7, 1)), 1);
    twice.headers_mut().append(FENCING_TOKEN, HeaderValue::from_static("8-0000000000000001"));
    assert_eq!(ask(&service, twice).await.0, StatusCode::BAD_REQUEST);
    assert_eq!(
        ask(&service, request(Method::PUT, "/stock/", Some(stamp(7, 1)), 1)).await.0,
        StatusCode::BAD_REQUEST
    );
    assert!(stocks.each.lock().unwrap().is_empty());
    // The path `/other` is not fenced.
    assert_eq!(ask(&service, request(Method::PUT, "/other/a", None, 1)).await.0, StatusCode::OK);
}

/// A store whose calls fail. The layer admits no request then.
struct Broken;

impl FenceStore for Broken {
    async fn admit(&self, _: &str, _: Stamp) -> Result<(), StoreError> {
        Err(StoreError::Failed("the disk is gone".into()))
    }
}

#[tokio::test]
async fn a_store_that_fails_admits_no_holder() {
    let stocks = Stocks::default();
    let service = FenceLayer::new(Broken, resource).layer(stocks.clone());
    let (status, body) =
        ask(&service, request(Method::PUT, "/stock/a", Some(stamp(7, 1)), 1)).await;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(body.contains("the disk is gone") && stocks.each.lock().unwrap().is_empty(), "{body}");
}

/// An unanswered request was admitted. A later holder's request waits until it is answered.
#[tokio::test]
async fn a_later_request_waits_until_the_earlier_one_is_answered() {
    let folder = Folder::new("http-turns");
    let (begun, go) = (Arc::new(tokio::sync::Notify::new()), Arc::new(tokio::sync::Notify::new()));
    let log = Arc::new(Mutex::new(Vec::new()));
    let (started, permitted, entries) = (begun.clone(), go.clone(), log.clone());
    let slow = tower::service_fn(move |request: Request<String>| {
        let (started, permitted, entries) = (started.clone(), permitted.clone(), entries.clone());
        async move {
            if request.body() == "early" {
                started.notify_one();
                permitted.notified().await;
            }
            entries.lock().unwrap().push(request.into_body());
            Ok::<_, Infallible>(Response::new(Body::default()))
        }
    });
    let store = SqliteStore::open(folder.path("fences.db")).unwrap();
    let service = FenceLayer::new(store, resource as Resource).layer(slow);
    let early = tokio::spawn({
        let service = service.clone();
        let request = request(Method::PUT, "/stock/a", Some(stamp(7, 1)), "early");
        async move { ask(&service, request).await }
    });
    begun.notified().await;
    let late = tokio::spawn({
        let service = service.clone();
        let request = request(Method::PUT, "/stock/a", Some(stamp(8, 1)), "late");
        async move { ask(&service, request).await }
    });
    // Requests for another resource do not wait. The loop is long enough for a wrongly admitted
    // request to be answered.
    for _ in 0..20 {
        ask(&service, request(Method::PUT, "/stock/b", Some(stamp(8, 1)), "other")).await;
    }
    assert_eq!(*log.lock().unwrap(), ["other"; 20]);
    go.notify_one();
    early.await.unwrap();
    late.await.unwrap();
    assert_eq!(log.lock().unwrap()[20..], ["early", "late"]);
}
