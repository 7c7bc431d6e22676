//! A small HTTP client for endpoints that handle jobs and for channels of alerts: bounded answers, no redirects, no cookies.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full};
use hyper::Uri;
use hyper::body::Bytes;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client as Pool;
use hyper_util::client::legacy::connect::{HttpConnector, capture_connection};
use hyper_util::rt::TokioExecutor;
use tokio::time::{Instant, timeout};

/// Longest time to reach an endpoint: its name, the connection and the handshake of TLS.
pub const CONNECT: Duration = Duration::from_secs(10);
/// Idle connections kept per endpoint.
const IDLE: usize = 64;

/// Keeps connections and sends requests.
#[derive(Debug, Clone)]
pub struct Client {
    pool: Pool<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// What is sent.
#[derive(Debug)]
pub struct Request<'a> {
    /// The method.
    pub method: &'static str,
    /// Where to.
    pub url: &'a str,
    /// Headers.
    pub headers: Vec<(&'static str, String)>,
    /// The body.
    pub body: String,
    /// Largest answer that is read; the rest of a longer one is not.
    pub max_answer: usize,
}

/// What is answered.
#[derive(Debug)]
pub struct Response {
    /// The status.
    pub status: u16,
    retry_after: Option<String>,
    /// The body, as text.
    pub text: String,
    /// There was more: `text` is only the beginning.
    pub cut_off: bool,
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NoAnswer {
    /// In words.
    pub why: String,
    /// There was no connection: nothing was sent.
    pub unreachable: bool,
}

impl NoAnswer {
    fn because(why: String) -> Self {
        Self { why, unreachable: false }
    }
}

impl Client {
    /// A client that trusts what this machine trusts.
    pub fn new(secure: bool) -> Result<Self, String> {
        let mut connector = HttpConnector::new();
        connector.set_connect_timeout(Some(CONNECT));
        connector.set_nodelay(true);
        connector.enforce_http(false);
        let mut roots = rustls::RootCertStore::empty();
        if secure {
            roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        }
        let provider = std::sync::Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("TLS cannot be set up: {e}"))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let https = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(connector);
        let pool = Pool::builder(TokioExecutor::new()).pool_max_idle_per_host(IDLE).build(https);
        Ok(Self { pool })
    }

    /// Says what is wrong with a URL, if anything.
    pub fn check(url: &str) -> Result<(), String> {
        // What stands before an @ may be a password.
        let shown = url.rsplit_once('@').map_or_else(|| url.to_owned(), |(_, rest)| format!("…@{rest}"));
        let shown: String = shown.chars().take(100).collect();
        let uri: Uri = url.parse().map_err(|e| format!("{shown:?} is not a URL: {e}"))?;
        let web =
            matches!(uri.scheme_str(), Some("http" | "https")) && uri.host().is_some_and(|h| !h.is_empty());
        if web { Ok(()) } else { Err(format!("{shown:?} is not an http:// or https:// URL")) }
    }

    /// Sends a request and reads the answer, as far as it may go. The status counts however long the answer is.
    pub async fn send(&self, request: Request<'_>) -> Result<Response, NoAnswer> {
        self.send_until(request, std::future::pending()).await
    }

    /// The same, given up as soon as `stop` is ready.
    pub async fn send_until(
        &self,
        request: Request<'_>,
        stop: impl Future<Output = ()>,
    ) -> Result<Response, NoAnswer> {
        let began = Instant::now();
        let mut built = hyper::Request::builder().method(request.method).uri(request.url);
        for (name, value) in request.headers {
            built = built.header(name, value);
        }
        let mut built = built
            .body(Full::new(Bytes::from(request.body)))
            .map_err(|e| NoAnswer::because(format!("no request: {e}")))?;
        let connection = capture_connection(&mut built);
        let mut connected = connection.clone();
        let late = async {
            if timeout(CONNECT, connected.wait_for_connection_metadata()).await.is_ok() {
                std::future::pending::<()>().await;
            }
        };
        tokio::select! {
            biased;
            answer = self.exchange(built, request.max_answer) => return answer,
            () = stop => {}
            () = late => {}
        }
        let unreachable = connection.connection_metadata().is_none();
        let what = if unreachable { "connection" } else { "answer" };
        Err(NoAnswer { unreachable, why: format!("no {what} after {:.1} s", began.elapsed().as_secs_f64()) })
    }

    async fn exchange(
        &self,
        request: hyper::Request<Full<Bytes>>,
        max_answer: usize,
    ) -> Result<Response, NoAnswer> {
        let answer = self.pool.request(request).await;
        let answer = answer.map_err(|e| NoAnswer { unreachable: e.is_connect(), why: causes(&e) })?;
        let status = answer.status().as_u16();
        let header = answer.headers().get("retry-after").and_then(|v| v.to_str().ok());
        let retry_after = header.map(str::to_owned);
        let (mut body, mut read, mut cut_off) = (answer.into_body(), Vec::new(), false);
        while let Some(frame) = body.frame().await {
            let frame = frame
                .map_err(|e| NoAnswer::because(format!("the answer ({status}) could not be read: {e}")))?;
            let Some(data) = frame.data_ref() else { continue };
            let room = max_answer - read.len();
            read.extend_from_slice(&data[..data.len().min(room)]);
            if data.len() > room {
                cut_off = true;
                break;
            }
        }
        Ok(Response { status, retry_after, text: String::from_utf8_lossy(&read).into_owned(), cut_off })
    }
}

fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        text = format!("{text}: {next}");
        cause = next.source();
    }
    text
}

impl Response {
    /// How long to stay away, as seconds or as a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let text = self.retry_after.as_deref()?.trim();
        if let Ok(seconds) = text.parse::<u64>() {
            return Some(Duration::from_secs(seconds));
        }
        let at =
            jiff::fmt::rfc2822::DateTimeParser::new().parse_timestamp(text.replace("GMT", "+0000")).ok()?;
        let ms = at.as_millisecond() - jiff::Timestamp::now().as_millisecond();
        Some(Duration::from_millis(ms.max(0) as u64))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(retry_after: &str) -> Response {
        Response { status: 503, retry_after: Some(retry_after.into()), text: String::new(), cut_off: false }
    }

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        assert_eq!(response("30").retry_after(), Some(Duration::from_secs(30)));
        assert_eq!(response("Fri, 31 Dec 1999 23:59:59 GMT").retry_after(), Some(Duration::ZERO));
        let later = response("Fri, 31 Dec 2100 23:59:59 GMT").retry_after().unwrap();
        assert!(later > Duration::from_hours(24));
        assert_eq!(response("soon").retry_after(), None);
    }

    #[test]
    fn urls_are_checked_before_anything_is_sent() {
        assert!(Client::check("http://127.0.0.1:9/jobs").is_ok());
        for bad in ["ftp://x", "/jobs", "http://", "http://a b"] {
            assert!(Client::check(bad).is_err(), "{bad}");
        }
        let said = Client::check("htp://u:s3cret@host/jobs").unwrap_err();
        assert_eq!(said, "\"…@host/jobs\" is not an http:// or https:// URL");
    }
}
