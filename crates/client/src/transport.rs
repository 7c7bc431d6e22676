//! Requests and answers as bytes: pooled connections, timeouts, bounds.

use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::header::{self, HeaderValue};
use hyper::{Method, Request, Response, StatusCode, Uri};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use tidegate_core::codes;
use tidegate_store::{Error, Result};

use crate::address::Address;
use crate::{RemoteOptions, roots};

/// Largest answer that is read: the jobs of a full claim with payloads of their largest usual size.
const MAX_ANSWER: usize = 256 << 20;
/// Connections kept open without a request.
const IDLE_CONNECTIONS: usize = 64;
/// How long they are kept: shorter than servers and proxies do, so that few requests meet a closing connection.
const IDLE: Duration = Duration::from_secs(45);

/// What to send.
#[derive(Debug, Clone)]
pub(crate) struct Message {
    pub(crate) method: Method,
    /// With its query.
    pub(crate) path: String,
    /// JSON, or nothing.
    pub(crate) body: Bytes,
    /// By which the server knows it if it comes twice.
    pub(crate) idempotency_key: Option<String>,
}

/// What came back.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) body: Bytes,
}

/// Why nothing came back.
#[derive(Debug)]
pub(crate) struct Lost {
    pub(crate) why: String,
    pub(crate) how: How,
}

/// How far a request got whose answer did not come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum How {
    /// There was no connection to send it by: the server knows nothing of it.
    NotSent,
    /// The connection broke, as it does when an idle one is closed at the other end: worth another try at once. Whether
    /// the server did what was asked is not known.
    Broke,
    /// No answer in time. Whether the server did what was asked is not known.
    Late,
}

/// The way to a server.
pub(crate) struct Transport {
    http: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    address: Address,
    bearer: Option<HeaderValue>,
}

impl Transport {
    pub(crate) fn new(address: Address, options: &RemoteOptions) -> Result<Self> {
        let tls = roots::config(address.is_secure(), options.ca.as_deref())?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_keepalive(Some(IDLE));
        tcp.set_connect_timeout(Some(options.timeouts.connect));
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let http = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE)
            .pool_max_idle_per_host(IDLE_CONNECTIONS)
            .build(connector);
        let bearer = options.key.as_deref().map(bearer).transpose()?;
        Ok(Self { http, address, bearer })
    }

    pub(crate) fn address(&self) -> &Address {
        &self.address
    }

    /// The whole address of a path. Fails where no address can be made of it.
    pub(crate) fn uri(&self, path: &str) -> Result<Uri> {
        self.address.join(path)
    }

    /// Sends a message and reads the whole answer.
    pub(crate) async fn exchange(
        &self,
        uri: &Uri,
        message: &Message,
        within: Duration,
    ) -> Result<Answer, Lost> {
        let answered = async {
            let response = self.open(self.request(uri, message)).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER).collect().await;
            let body =
                body.map_err(|e| Lost { why: format!("the answer broke off: {e}"), how: How::Broke })?;
            Ok(Answer { status, body: body.to_bytes() })
        };
        let late = |_| Lost { why: format!("no answer within {} ms", within.as_millis()), how: How::Late };
        tokio::time::timeout(within, answered).await.map_err(late)?
    }

    /// Sends a message whose answer is read as it comes.
    pub(crate) async fn stream(
        &self,
        path: &str,
        last_event: Option<&str>,
    ) -> Result<Response<Incoming>, Lost> {
        let lost = |e: Error| Lost { why: e.detail, how: How::NotSent };
        let uri = self.uri(path).map_err(lost)?;
        let message =
            Message { method: Method::GET, path: String::new(), body: Bytes::new(), idempotency_key: None };
        let mut request = self.request(&uri, &message);
        let accept = HeaderValue::from_static("text/event-stream");
        request.headers_mut().insert(header::ACCEPT, accept);
        if let Some(id) = last_event.and_then(|id| HeaderValue::from_str(id).ok()) {
            request.headers_mut().insert("last-event-id", id);
        }
        self.open(request).await
    }

    async fn open(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Lost> {
        self.http.request(request).await.map_err(|e| {
            let (what, how) = if e.is_connect() {
                ("no connection", How::NotSent)
            } else {
                ("the connection broke", How::Broke)
            };
            Lost { why: format!("{what}: {}", innermost(&e)), how }
        })
    }

    fn request(&self, uri: &Uri, message: &Message) -> Request<Full<Bytes>> {
        let mut request = Request::new(Full::new(message.body.clone()));
        *request.method_mut() = message.method.clone();
        *request.uri_mut() = uri.clone();
        let headers = request.headers_mut();
        if !message.body.is_empty() {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        if let Some(key) = message.idempotency_key.as_deref().and_then(|k| HeaderValue::from_str(k).ok()) {
            headers.insert("idempotency-key", key);
        }
        if let Some(bearer) = &self.bearer {
            headers.insert(header::AUTHORIZATION, bearer.clone());
        }
        request
    }
}

fn bearer(key: &str) -> Result<HeaderValue> {
    let mut value = HeaderValue::from_str(&format!("Bearer {}", key.trim())).map_err(|_| {
        Error::new(codes::NO_KEY, "the key has characters that no key has; it looks like tg_…_…")
    })?;
    value.set_sensitive(true);
    Ok(value)
}

/// The cause that says most: the innermost one.
fn innermost(error: &dyn std::error::Error) -> String {
    let mut cause = error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}
