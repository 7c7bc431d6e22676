//! Where the database is, and connections to it.

use std::future::poll_fn;
use std::str::FromStr;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_postgres::{AsyncMessage, Client, Config};

use super::options::PgGatesOptions;
use super::tls::Tls;
use crate::GatesError;

/// Told of notifications' payloads, in order.
pub(super) type Ear = Box<dyn FnMut(&str) + Send>;

/// Where the database is and how to get in.
#[derive(Debug, Clone)]
pub(super) struct Address {
    config: Config,
    tls: Tls,
    limit: Duration,
}

/// The task that does a connection's work; dropping it ends the connection.
#[derive(Debug)]
pub(super) struct Work(JoinHandle<()>);

impl Work {
    /// Waits until the connection is lost.
    pub(super) async fn ended(mut self) {
        let _ = (&mut self.0).await;
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// An error with what caused it: the driver's own text is too short.
fn causes(error: &dyn std::error::Error) -> String {
    error.source().map_or_else(|| error.to_string(), |cause| format!("{error}: {}", causes(cause)))
}

impl Address {
    /// Reads a URL, as the store does: `schema`, `pooled`, `sslmode` and `sslrootcert` in it are ours.
    pub(super) fn parse(
        url: &str,
        mut options: PgGatesOptions,
    ) -> Result<(Self, PgGatesOptions), GatesError> {
        let (rest, query) = url.split_once('?').unwrap_or((url, ""));
        let (mut kept, mut root, mut mode) = (vec![], None, None);
        for pair in query.split('&').filter(|p| !p.is_empty()) {
            match pair.split_once('=').unwrap_or((pair, "")) {
                ("schema", name) => options = options.schema(name)?,
                ("pooled", yes) => options = options.pooled(yes == "true"),
                ("sslrootcert", path) => root = Some(path),
                ("sslmode", name) => mode = Some(name),
                _ => kept.push(pair),
            }
        }
        let (mode, tls) = Tls::new(mode, root)?;
        let rest = if kept.is_empty() { rest.to_owned() } else { format!("{rest}?{}", kept.join("&")) };
        // The URL may hold a password: the error of the parser never repeats it.
        let mut config = Config::from_str(&rest)
            .map_err(|e| GatesError::address(causes(&e), "write postgres://USER@HOST/DATABASE"))?;
        config.ssl_mode(mode);
        let limit = config.get_connect_timeout().copied().unwrap_or(options.connect_timeout);
        config.connect_timeout(limit);
        if config.get_application_name().is_none() {
            config.application_name(&options.name);
        }
        config.keepalives(true).keepalives_idle(Duration::from_secs(10));
        config.tcp_user_timeout(Duration::from_secs(5));
        Ok((Self { config, tls, limit }, options))
    }

    /// Opens a connection.
    pub(super) async fn open(&self, mut ear: Option<Ear>) -> Result<(Client, Work), GatesError> {
        // The driver's own limit is on the socket alone; a server that takes the call and says nothing is out of reach, too.
        let connecting = tokio::time::timeout(self.limit, self.config.connect(self.tls.clone()));
        let late = |e| GatesError::Unreachable(Box::new(e));
        let connected = connecting.await.map_err(late)?;
        let (client, mut connection) = connected.map_err(|e| GatesError::Unreachable(Box::new(e)))?;
        let work = tokio::spawn(async move {
            loop {
                match poll_fn(|cx| connection.poll_message(cx)).await {
                    Some(Ok(AsyncMessage::Notification(heard))) => {
                        if let Some(ear) = &mut ear {
                            ear(heard.payload());
                        }
                    }
                    Some(Ok(_)) => {}
                    // Whoever waits for an answer is told; nobody else needs to know.
                    Some(Err(_)) | None => return,
                }
            }
        });
        Ok((client, Work(work)))
    }
}
