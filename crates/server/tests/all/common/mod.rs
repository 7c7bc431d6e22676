//! A server on a port of its own over a fresh store, and a small HTTP client.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{HeaderMap, Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tidegate_core::time::Timestamp;
use tidegate_gates::{GateSettings, InProcess, Watched};
use tidegate_server::alerts::AlertSettings;
use tidegate_server::{Server, ServerGates, ServerOptions, keys};
use tidegate_store::{MemoryStore, Store};
use tidegate_store_sqlite::SqliteStore;
use tidegate_wire::keys::{CreatedKey, NewKey, Role};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

mod described;
pub(crate) mod faulty;

/// Longer than anything in these tests takes; a wait that ends by it has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// Runs each test over every store.
macro_rules! over_stores {
    ($($name:ident),* $(,)?) => {
        mod memory {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::common::Served::memory().await).await;
            })*
        }
        mod sqlite {
            $(#[tokio::test]
            async fn $name() {
                super::$name($crate::common::Served::sqlite().await).await;
            })*
        }
    };
}

pub(crate) use over_stores;

pub(crate) struct Served {
    pub(crate) addr: SocketAddr,
    pub(crate) store: Arc<dyn Store>,
    stop: Option<oneshot::Sender<()>>,
    running: Option<JoinHandle<()>>,
    /// Where the store is; removed with it.
    dir: Option<tempfile::TempDir>,
}

pub(crate) fn now() -> Timestamp {
    Timestamp(SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_millis() as i64)
}

pub(crate) fn options() -> ServerOptions {
    ServerOptions { bind: "127.0.0.1:0".parse().unwrap(), ..ServerOptions::default() }
}

impl Served {
    pub(crate) async fn memory() -> Self {
        Self::with(Arc::new(MemoryStore::new()), options()).await
    }

    /// With the gates of an API that lets a thousand pass at a time.
    pub(crate) async fn gated() -> Self {
        let slots = "[[gates.api.gates]]\nname = \"slots\"\ngate.slots = { limit = 1000 }\n";
        Self::with_gates(slots).await
    }

    pub(crate) async fn with_gates(toml: &str) -> Self {
        let settings = GateSettings::from_toml(toml).unwrap();
        let gates = ServerGates::new(Arc::new(Watched::around(InProcess::new())), settings).await.unwrap();
        let alerts = AlertSettings::from_toml("[channels.trial]\ntype = \"log\"\n", &|_| None).unwrap();
        let options = ServerOptions { gates: Some(gates), alerts, ..options() };
        Self::with(Arc::new(MemoryStore::new()), options).await
    }

    pub(crate) async fn sqlite() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().to_owned();
        let store =
            tokio::task::spawn_blocking(move || SqliteStore::open(path, now())).await.unwrap().unwrap();
        let mut served = Self::with(Arc::new(store), options()).await;
        served.dir = Some(dir);
        served
    }

    pub(crate) async fn with(store: Arc<dyn Store>, options: ServerOptions) -> Self {
        let server = Server::bind(store.clone(), options).await.unwrap();
        let addr = server.addr();
        let (stop, stopped) = oneshot::channel();
        let running = tokio::spawn(server.run(async move {
            let _ = stopped.await;
        }));
        Self { addr, store, stop: Some(stop), running: Some(running), dir: None }
    }

    /// Tells the server to stop, and waits until it has.
    pub(crate) async fn stop(mut self) {
        self.begin_stop();
        self.running.take().unwrap().await.unwrap();
    }

    pub(crate) fn begin_stop(&mut self) {
        let _ = self.stop.take().unwrap().send(());
    }

    pub(crate) async fn key(&self, role: Role, tenant: Option<&str>) -> CreatedKey {
        let tenant = tenant.map(|t| t.parse().unwrap());
        let new = NewKey { name: format!("{role} of a test"), role, tenant };
        keys::create(&*self.store, new, now()).await.unwrap()
    }

    pub(crate) async fn connect(&self) -> Client {
        Client::to(self.addr).await
    }

    pub(crate) async fn send(&self, request: Ask) -> Reply {
        self.connect().await.send(request).await
    }

    pub(crate) async fn get(&self, path: &str) -> Reply {
        self.send(Ask::new(Method::GET, path)).await
    }

    pub(crate) async fn post(&self, path: &str, body: Value) -> Reply {
        self.send(Ask::new(Method::POST, path).json(&body)).await
    }

    pub(crate) async fn put(&self, path: &str, body: Value) -> Reply {
        self.send(Ask::new(Method::PUT, path).json(&body)).await
    }

    pub(crate) async fn delete(&self, path: &str) -> Reply {
        self.send(Ask::new(Method::DELETE, path)).await
    }

    /// Registers kind `mail` in queue `post`.
    pub(crate) async fn register(&self) {
        self.post("/v1/queues", json!({"name": "post"})).await.is(204);
        self.put("/v1/kinds/mail", json!({"queue": "post"})).await.is(204);
    }

    /// Enqueues a job of kind `mail` and returns its id.
    pub(crate) async fn mail(&self, more: Value) -> String {
        let mut job = json!({"kind": "mail", "payload": {"to": "ada"}});
        job.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        self.post("/v1/jobs", job).await.is(201).text("/id")
    }

    /// Claims up to `max` jobs of queue `post`.
    pub(crate) async fn claim(&self, max: u32) -> Value {
        let claim = json!({"worker": "w1", "queues": [{"name": "post"}], "max": max});
        self.post("/v1/claims", claim).await.is(200).json
    }

    pub(crate) async fn settle(&self, settlement: Value) -> Value {
        self.post("/v1/settlements", json!({"settlements": [settlement]})).await.is(200).json["settled"][0]
            .clone()
    }
}

/// A request.
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) path: String,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Ask {
    pub(crate) fn new(method: Method, path: &str) -> Self {
        Self { method, path: path.to_owned(), headers: HeaderMap::new(), body: Bytes::new() }
    }

    pub(crate) fn json(mut self, body: &Value) -> Self {
        self.headers.insert(CONTENT_TYPE, "application/json".parse().unwrap());
        self.body = body.to_string().into();
        self
    }

    pub(crate) fn raw(mut self, content_type: &str, body: impl Into<Bytes>) -> Self {
        self.headers.insert(CONTENT_TYPE, content_type.parse().unwrap());
        self.body = body.into();
        self
    }

    pub(crate) fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.insert(name, value.parse().unwrap());
        self
    }

    pub(crate) fn key(self, key: &CreatedKey) -> Self {
        let value = format!("Bearer {}", key.secret);
        self.header(AUTHORIZATION.as_str().to_owned().leak(), &value)
    }

    pub(crate) fn maybe_key(self, key: Option<&CreatedKey>) -> Self {
        match key {
            Some(key) => self.key(key),
            None => self,
        }
    }
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
    pub(crate) json: Value,
}

impl Reply {
    pub(crate) fn is(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", String::from_utf8_lossy(&self.body));
        if status >= 400 {
            assert_eq!(self.headers[CONTENT_TYPE], "application/problem+json");
            assert_eq!(self.json["status"], status);
            assert_eq!(self.json["type"], format!("/v1/errors/{}", self.json["code"].as_str().unwrap()));
            assert!(!self.json["title"].as_str().unwrap().is_empty());
            assert!(!self.json["hint"].as_str().unwrap().is_empty());
        }
        self
    }

    pub(crate) fn code(&self) -> &str {
        self.json["code"].as_str().unwrap_or_default()
    }

    /// The text at a JSON pointer.
    pub(crate) fn text(&self, pointer: &str) -> String {
        let value = self.json.pointer(pointer).unwrap_or_else(|| panic!("{pointer} in {}", self.json));
        value.as_str().unwrap().to_owned()
    }
}

/// One connection.
pub(crate) struct Client {
    sender: SendRequest<Full<Bytes>>,
    addr: SocketAddr,
    connection: JoinHandle<()>,
}

impl Drop for Client {
    fn drop(&mut self) {
        self.connection.abort();
    }
}

impl Client {
    pub(crate) async fn to(addr: SocketAddr) -> Self {
        let stream = TcpStream::connect(addr).await.unwrap();
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
        let connection = tokio::spawn(async move {
            let _ = connection.await;
        });
        Self { sender, addr, connection }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.sender.is_closed()
    }

    /// Sends a request and returns the answer's head with its body still to come.
    pub(crate) async fn open(&mut self, ask: Ask) -> hyper::Result<hyper::Response<Incoming>> {
        let mut request = Request::new(Full::new(ask.body));
        *request.method_mut() = ask.method;
        *request.uri_mut() = ask.path.parse().unwrap();
        *request.headers_mut() = ask.headers;
        request.headers_mut().entry(HOST).or_insert(self.addr.to_string().parse().unwrap());
        self.sender.ready().await?;
        self.sender.send_request(request).await
    }

    pub(crate) async fn try_send(&mut self, ask: Ask) -> hyper::Result<Reply> {
        let (method, path) = (ask.method.clone(), ask.path.clone());
        let answer = async {
            let (parts, body) = self.open(ask).await?.into_parts();
            let body = body.collect().await?.to_bytes();
            let json = serde_json::from_slice(&body).unwrap_or_default();
            hyper::Result::Ok(Reply { status: parts.status, headers: parts.headers, body, json })
        };
        let reply = tokio::time::timeout(PATIENCE, answer).await.expect("an answer in time")?;
        let content_type = reply.headers.get(CONTENT_TYPE).map_or("", |t| t.to_str().unwrap());
        // A number that serde_json has no type for comes as nothing.
        if !reply.json.is_null() {
            described::check(&method, &path, reply.status, content_type, &reply.json);
        }
        Ok(reply)
    }

    pub(crate) async fn send(&mut self, ask: Ask) -> Reply {
        self.try_send(ask).await.unwrap()
    }
}

/// Looks until it is so.
pub(crate) async fn until<F: Future<Output = bool>>(what: &str, mut look: impl FnMut() -> F) {
    let patience = tokio::time::Instant::now() + PATIENCE;
    while !look().await {
        assert!(tokio::time::Instant::now() < patience, "{what}");
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
