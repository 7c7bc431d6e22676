//! `work --metrics`: a small server beside the worker that shows how it is, and nothing else.

use tidegate::Telemetry;
use tidegate_core::codes;
use tidegate_server::{Server, ServerOptions, ServerRoles};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::commands::serve::address;
use crate::config::Config;
use crate::data::{Data, Target};
use crate::error::{Failure, Result};
use crate::output::Output;

/// The server, if one is wanted.
pub(super) struct Metrics(Option<(oneshot::Sender<()>, JoinHandle<()>)>);

impl Metrics {
    /// Serves at the address that the settings name.
    pub(super) async fn serve(
        config: &Config,
        data: &Data,
        telemetry: Option<Telemetry>,
        output: &Output,
    ) -> Result<Self> {
        let Some(at) = config.text("worker.metrics") else { return Ok(Self(None)) };
        if let Target::Remote(url) = &data.target {
            let detail = format!("what this worker does is counted by the server at {url}");
            return Err(Failure::new(codes::INVALID_REQUEST, detail).hint(
                "ask the server for /metrics; a worker has its own beside a store that it opens itself",
            ));
        }
        let roles = ServerRoles { api: false, maintenance: false };
        let by_tenant = config.text("server.metrics_by_tenant") == Some("yes");
        let options = ServerOptions {
            bind: address(at)?,
            roles,
            metrics_by_tenant: by_tenant,
            telemetry,
            ..ServerOptions::default()
        };
        let server = Server::bind(data.store.clone(), options).await?;
        output.note(&format!("Metrics at http://{}/metrics.", server.addr()));
        let (stop, stopped) = oneshot::channel();
        // Sent or dropped, both mean the end.
        let serving = tokio::spawn(server.run(async move { drop(stopped.await) }));
        Ok(Self(Some((stop, serving))))
    }

    /// Ends it.
    pub(super) async fn end(self) {
        if let Some((stop, serving)) = self.0 {
            let _ = stop.send(());
            let _ = serving.await;
        }
    }
}
