//! A real server on a port of this machine, and stores that reach it.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_client::{RemoteOptions, RemoteStore};
use tidegate_server::{Server, ServerOptions};
use tidegate_store::{MemoryStore, Store};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

#[path = "../../../../server/tests/all/common/faulty.rs"]
pub(crate) mod faulty;
pub(crate) mod proxy;

/// A server that runs until it is stopped.
pub(crate) struct Running {
    pub(crate) addr: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: Option<JoinHandle<()>>,
}

impl Running {
    /// Serves a store on a free port.
    pub(crate) async fn serve(store: Arc<dyn Store>) -> Self {
        Self::with(store, |_| ()).await
    }

    /// Serves a new store in memory.
    pub(crate) async fn memory() -> Self {
        Self::serve(Arc::new(MemoryStore::new())).await
    }

    /// Serves a store with other options.
    pub(crate) async fn with(store: Arc<dyn Store>, change: impl FnOnce(&mut ServerOptions)) -> Self {
        // One that nobody's connection can get while the server is away.
        let port = tidegate_testbed::free_port().expect("a port is free");
        let mut options =
            ServerOptions { bind: SocketAddr::from(([127, 0, 0, 1], port)), ..ServerOptions::default() };
        options.drain = Duration::from_millis(500);
        change(&mut options);
        let server = Server::bind(store, options).await.expect("a port is free");
        let addr = server.addr();
        let (stop, stopped) = oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            server
                .run(async move {
                    let _ = stopped.await;
                })
                .await;
        });
        Self { addr, stop: Some(stop), task: Some(task) }
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.addr)
    }

    /// A store that reaches it.
    pub(crate) async fn client(&self) -> RemoteStore {
        RemoteStore::connect(&self.url(), RemoteOptions::default()).await.expect("the server answers")
    }

    /// Stops it as on SIGTERM.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        if let Some(task) = self.task.take() {
            task.await.expect("the server stops");
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}
