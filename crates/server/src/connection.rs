//! One connection: bytes in, requests through the router, bytes out, until either side has enough.

use std::pin::{Pin, pin};
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::Service;
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::TlsAcceptor;

use crate::Limits;
use crate::app::App;
use crate::io::{Watched, Wire};
use crate::places::{Place, Places};

/// Least that the HTTP parser takes as a bound on its buffer.
const LEAST_BUFFER: usize = 8 << 10;
/// Newcomers who are told at a time that there is no place.
const REFUSALS: usize = 64;
/// Most fields in a header.
const FIELDS: usize = 64;

/// What every connection of a server shares.
pub(crate) struct Host {
    pub(crate) app: Arc<App>,
    pub(crate) places: Arc<Places>,
    pub(crate) tls: Option<TlsAcceptor>,
    /// Newcomers who are being told that there is no place.
    pub(crate) refusals: Arc<Semaphore>,
    router: TowerToHyperService<Router>,
    http: http1::Builder,
}

impl Host {
    pub(crate) fn new(app: Arc<App>, places: Arc<Places>, tls: Option<TlsAcceptor>, router: Router) -> Self {
        let http = builder(&app.limits);
        let refusals = Arc::new(Semaphore::new(REFUSALS));
        Self { app, places, tls, refusals, router: TowerToHyperService::new(router), http }
    }
}

fn builder(limits: &Limits) -> http1::Builder {
    let mut http = http1::Builder::new();
    // The sweeper keeps the time: no timer for each request.
    http.header_read_timeout(None)
        .max_buf_size(limits.header_bytes.max(LEAST_BUFFER))
        .max_headers(FIELDS)
        .half_close(false);
    http
}

/// Tells a client that there is no place. What it sent is read before the connection is closed: otherwise the system
/// would throw the answer away together with it.
pub(crate) async fn refuse(mut stream: TcpStream) {
    const ANSWER: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\ncontent-length: 0\r\n\r\n";
    if stream.write_all(ANSWER).await.is_err() || stream.shutdown().await.is_err() {
        return;
    }
    let mut rest = [0; 1024];
    while stream.read(&mut rest).await.is_ok_and(|n| n > 0) {}
}

/// Serves a connection until it ends. What was claimed for it and did not reach it is given back.
pub(crate) async fn serve(host: Arc<Host>, stream: TcpStream, place: Arc<Place>) {
    tokio::select! {
        () = converse(&host, stream, &place) => {}
        () = place.closed() => {}
    }
    host.places.leave(&place);
    drop(place.take_delivery());
}

async fn converse(host: &Arc<Host>, stream: TcpStream, place: &Arc<Place>) {
    // Buffers and parsers are made when there is something to read: an idle connection costs its task and no more.
    let mut first = [0];
    tokio::select! {
        waiting = stream.peek(&mut first) => if !waiting.is_ok_and(|n| n > 0) { return },
        () = host.app.draining() => return,
    }
    let Some(tls) = &host.tls else { return Box::pin(http(host, stream, place)).await };
    // A handshake has as much time as a header.
    place.read(host.places.now());
    match Box::pin(tls.accept(stream)).await {
        Ok(stream) => Box::pin(http(host, stream, place)).await,
        Err(error) => tracing::debug!(peer = %place.peer, "no TLS with this client: {error}"),
    }
}

async fn http<S: AsyncRead + AsyncWrite + Wire + Unpin + Send>(
    host: &Arc<Host>,
    stream: S,
    place: &Arc<Place>,
) {
    let io = TokioIo::new(Watched::new(stream, place.clone(), host.places.clone()));
    let front = Front { host: host.clone(), place: place.clone() };
    let mut connection = pin!(host.http.serve_connection(io, front));
    let result = tokio::select! {
        result = connection.as_mut() => result,
        () = host.app.draining() => {
            // The request under way is answered; then the connection ends.
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = result {
        tracing::debug!(peer = %place.peer, "a connection ended: {error}");
    }
}

/// The front of the router: notes on the connection's place when a request begins and ends.
struct Front {
    host: Arc<Host>,
    place: Arc<Place>,
}

impl Service<Request<Incoming>> for Front {
    type Response = Response;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        self.place.begin();
        request.extensions_mut().insert(self.place.clone());
        let answer = self.host.router.call(request);
        let (place, places) = (self.place.clone(), self.host.places.clone());
        Box::pin(async move {
            let response = answer.await;
            // A stream stays busy until its connection ends.
            if !response.as_ref().is_ok_and(|r| r.extensions().get::<Streams>().is_some()) {
                place.end(places.now());
            }
            response
        })
    }
}

/// Marks an answer whose body goes on: its connection is not idle.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Streams;
