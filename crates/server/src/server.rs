//! A server: a port, a store, and a way to stop.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tidegate_core::codes;
use tidegate_store::gates::Admissions;
use tidegate_store::{Error, Result, Store};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch as channel};
use tokio::task::JoinSet;

use crate::alerts::Post;
use crate::app::{App, Phase};
use crate::connection::{self, Host};
use crate::hub::Hub;
use crate::keys::KeyRing;
use crate::mint::Mint;
use crate::places::{Places, TICK};
use crate::portion::Portion;
use crate::pulse::Pulse;
use crate::rate::Rates;
use crate::repeats::Repeats;
use crate::tasks::Tasks;
use crate::turnstile::Turnstile;
use crate::watch::Watch;
use crate::{Rate, ServerOptions, ServerRoles, alerts, routes, tls, upkeep, watch};

/// Requests per second of one key or address, where nothing is set and the server is open to the network.
const DEFAULT_RATE: u32 = 10_000;
/// Files left to the store and to everything else when connections take the rest.
const FILES_SPARED: usize = 128;
/// Time for telling a newcomer that there is no place.
const REFUSAL: Duration = Duration::from_secs(1);
/// Pause after a connection could not be accepted, as when the process has no file left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// Time for what goes on beside the requests to end.
const LAST_TASKS: Duration = Duration::from_secs(2);

/// A server that listens.
pub struct Server {
    addr: SocketAddr,
    listener: TcpListener,
    host: Arc<Host>,
    roles: ServerRoles,
    drain: Duration,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("addr", &self.addr).finish_non_exhaustive()
    }
}

impl Server {
    /// Opens the port. Refused on anything but loopback while the store has no key.
    pub async fn bind(store: Arc<dyn Store>, options: ServerOptions) -> Result<Self> {
        let ServerOptions {
            bind,
            tls,
            limits,
            roles,
            drain,
            clock,
            gates,
            alerts,
            metrics_by_tenant,
            letters_every,
            telemetry,
        } = options;
        store.feed().meter().by_tenant(metrics_by_tenant);
        if !bind.ip().is_loopback() && !KeyRing::default().known(&*store, clock.now()).await?.any() {
            let detail = format!(
                "{bind} can be reached from other machines, and there is no key that they would need"
            );
            return Err(Error::new(codes::OPEN_BIND, detail));
        }
        let tls = tls.as_ref().map(tls::acceptor).transpose()?;
        let listener = TcpListener::bind(bind)
            .await
            .map_err(|e| Error::new(codes::BIND_FAILED, format!("cannot listen on {bind}: {e}")))?;
        let addr = listener
            .local_addr()
            .map_err(|e| Error::new(codes::BIND_FAILED, format!("cannot listen on {bind}: {e}")))?;
        let per_second = match limits.rate {
            Rate::Unlimited => None,
            Rate::PerSecond(n) => Some(n),
            Rate::Default => (!addr.ip().is_loopback()).then_some(DEFAULT_RATE),
        };
        let tasks = Arc::new(Tasks::default());
        let places = Arc::new(Places::new(limits.clone(), most_connections(limits.connections)));
        let app = Arc::new(App {
            hub: Hub::new(store.clone(), tasks.clone(), limits.events_per_second),
            store,
            gates,
            admissions: Admissions::default(),
            mint: Mint::random(),
            keys: KeyRing::default(),
            rates: per_second.map(Rates::new),
            bodies: Arc::new(Semaphore::new(limits.body_memory / 1024)),
            long_polls: Semaphore::new(limits.long_polls),
            settled: std::sync::atomic::AtomicU64::new(0),
            streams: Arc::new(Semaphore::new(limits.streams)),
            turnstile: Turnstile::new(),
            tasks,
            phase: channel::Sender::new(Phase::Serving),
            pulse: Pulse::new(),
            portion: Portion::new(limits.claim_bytes),
            repeats: Repeats::default(),
            watch: Watch::new(clock.now()),
            alerts: Arc::new(alerts),
            letters_every_ms: letters_every.as_millis().min(u128::from(u32::MAX)) as i64,
            telemetry,
            clock,
            limits,
        });
        let router = routes::router(&app, roles);
        Ok(Self { addr, listener, host: Arc::new(Host::new(app, places, tls, router)), roles, drain })
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Serves until `shutdown`. Then in three acts: takes no more connections and answers what waits; lets requests
    /// under way end; ends the rest. The store stays open.
    pub async fn run(self, shutdown: impl Future<Output = ()>) {
        let Self { addr, listener, host, roles, drain } = self;
        let app = host.app.clone();
        let mut chores = JoinSet::new();
        let places = host.places.clone();
        chores.spawn(async move {
            loop {
                tokio::time::sleep(TICK).await;
                places.sweep();
            }
        });
        chores.spawn(upkeep::watch_keys(app.clone()));
        chores.spawn(watch::probe(app.clone()));
        if roles.maintenance {
            chores.spawn(upkeep::advance(app.clone()));
            chores.spawn(upkeep::prune(app.clone()));
            chores.spawn(upkeep::letters(app.clone()));
            let post = Arc::new(Post {
                store: app.store.clone(),
                settings: app.alerts.clone(),
                clock: app.clock.clone(),
                mint: Mint::random(),
                process: app.watch.process(),
            });
            chores.spawn(watch::follow_kinds(app.clone()));
            chores.spawn(alerts::watch(app.clone(), post.clone()));
            chores.spawn(alerts::deliver(post));
        }
        tracing::info!(%addr, "serving");
        let mut connections = JoinSet::new();
        tokio::select! {
            () = accept(&listener, &host, &mut connections) => {}
            () = shutdown => {}
        }
        tracing::info!(%addr, connections = connections.len(), "stopping: no more connections are taken");
        drop(listener);
        app.phase.send_replace(Phase::Draining);
        let ended = async { while connections.join_next().await.is_some() {} };
        if tokio::time::timeout(drain, ended).await.is_err() {
            tracing::warn!(connections = connections.len(), "requests took too long and are cut off");
            connections.shutdown().await;
        }
        app.tasks.finish(LAST_TASKS).await;
        chores.shutdown().await;
        tracing::info!(%addr, "stopped");
    }
}

async fn accept(listener: &TcpListener, host: &Arc<Host>, connections: &mut JoinSet<()>) {
    let mut number = 0;
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                Ok((stream, peer)) => {
                    number += 1;
                    admit(stream, peer, number, host, connections);
                }
                Err(error) => {
                    tracing::debug!("a connection could not be accepted: {error}");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(ended) = connections.join_next() => {
                if let Err(error) = ended && error.is_panic() {
                    tracing::error!("a connection's task panicked: {error}");
                }
            }
        }
    }
}

fn admit(stream: TcpStream, peer: SocketAddr, number: u64, host: &Arc<Host>, connections: &mut JoinSet<()>) {
    // Answers are written in one piece; waiting for more to send would only delay them.
    let _ = stream.set_nodelay(true);
    match host.places.take(number, peer) {
        Some(place) => {
            connections.spawn(connection::serve(host.clone(), stream, place));
        }
        // Everybody is busy. The newcomer is told, unless there are too many of those, too.
        None => {
            if let Ok(place) = host.refusals.clone().try_acquire_owned() {
                connections.spawn(async move {
                    let _ = tokio::time::timeout(REFUSAL, connection::refuse(stream)).await;
                    drop(place);
                });
            }
        }
    }
}

/// Connections that the process may have open files for.
fn most_connections(wanted: usize) -> usize {
    let files = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    wanted.min(usize::try_from(files).unwrap_or(usize::MAX).saturating_sub(FILES_SPARED)).max(1)
}
