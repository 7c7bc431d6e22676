//! How a server is set up. Everything that comes from outside has a bound here.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use tidegate_gates::{Backend, GateSettings, GatesError};
use tidegate_telemetry::Telemetry;

use crate::Clock;
use crate::alerts::AlertSettings;

/// How a server is set up.
#[derive(Debug, Clone)]
pub struct ServerOptions {
    /// Where to listen. Anything but loopback needs a key in the store.
    pub bind: SocketAddr,
    /// Certificate and key, to speak TLS.
    pub tls: Option<TlsFiles>,
    /// Bounds on what comes from outside.
    pub limits: Limits,
    /// What this process does.
    pub roles: ServerRoles,
    /// How long requests under way may take once the server is told to stop.
    pub drain: Duration,
    /// What time it is.
    pub clock: Clock,
    /// Gates that remote workers ask.
    pub gates: Option<ServerGates>,
    /// Rules and channels of alerts.
    pub alerts: AlertSettings,
    /// Counts attempts by tenant, too.
    pub metrics_by_tenant: bool,
    /// Time between two runs of the processor of dead letters.
    pub letters_every: Duration,
    /// Records traces.
    pub telemetry: Option<Telemetry>,
}

impl Default for ServerOptions {
    fn default() -> Self {
        Self {
            bind: SocketAddr::from((Ipv4Addr::LOCALHOST, 7_433)),
            tls: None,
            limits: Limits::default(),
            roles: ServerRoles::default(),
            drain: Duration::from_secs(10),
            clock: Clock::system(),
            gates: None,
            alerts: AlertSettings::default(),
            metrics_by_tenant: false,
            letters_every: Duration::from_millis(tidegate_core::letters::EVERY_MS.cast_unsigned()),
            telemetry: None,
        }
    }
}

/// Gates behind a server.
#[derive(Clone)]
pub struct ServerGates {
    /// What decides.
    pub backend: Arc<dyn Backend>,
    /// What was set there; workers learn from it what a refusal is about.
    pub settings: Arc<GateSettings>,
}

impl ServerGates {
    /// Sets the gates of every domain at the backend.
    pub async fn new(backend: Arc<dyn Backend>, settings: GateSettings) -> Result<Self, GatesError> {
        settings.apply(&*backend).await?;
        Ok(Self { backend, settings: Arc::new(settings) })
    }
}

impl std::fmt::Debug for ServerGates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ServerGates").field("settings", &self.settings).finish_non_exhaustive()
    }
}

/// What a server does besides answering `/live`, `/ready` and `/health`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ServerRoles {
    /// Serves the API.
    pub api: bool,
    /// Promotes due jobs, takes back what dead workers held, deletes what is past its retention, watches and tells of alerts.
    pub maintenance: bool,
}

impl Default for ServerRoles {
    fn default() -> Self {
        Self { api: true, maintenance: true }
    }
}

/// PEM files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFiles {
    /// The certificate chain, the server's own first.
    pub certificates: PathBuf,
    /// Its private key.
    pub private_key: PathBuf,
}

/// How many requests one key, or one address without a key, may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rate {
    /// 10,000 per second; as many as they like on loopback.
    Default,
    /// As many as they like.
    Unlimited,
    /// This many per second, and as many at once.
    PerSecond(u32),
}

/// Bounds on what comes from outside.
#[derive(Debug, Clone)]
pub struct Limits {
    /// Open connections. When all are taken, the one that has been idle longest makes room. Never more than the
    /// process may have open files, less some for the store.
    pub connections: usize,
    /// Largest header of a request: its line and all fields.
    pub header_bytes: usize,
    /// Time for a header to arrive once its first byte has.
    pub header_timeout: Duration,
    /// Time after which a connection without a request is closed.
    pub idle_timeout: Duration,
    /// Largest body.
    pub body_bytes: usize,
    /// Time for a body to arrive.
    pub body_timeout: Duration,
    /// Bytes of bodies held in memory at a time, over all requests; more have to wait their turn, or come back.
    pub body_memory: usize,
    /// Bytes of jobs in the answer to one claim; one job alone may have more. What does not fit stays with the store.
    pub claim_bytes: usize,
    /// Time after which a client that does not read its answer is cut off.
    pub write_timeout: Duration,
    /// Longest time that a request may wait for a job.
    pub wait: Duration,
    /// Requests that wait for a job at a time.
    pub long_polls: usize,
    /// Event streams at a time.
    pub streams: usize,
    /// Events sent per second over all streams. When more happens, streams get a few of the newest and are told of a gap: a
    /// thousand followers must not take the machine from the engine.
    pub events_per_second: u32,
    /// Requests of one key, or of one address without a key.
    pub rate: Rate,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 16_384,
            header_bytes: 16 << 10,
            header_timeout: Duration::from_secs(10),
            idle_timeout: Duration::from_secs(75),
            body_bytes: 16 << 20,
            body_timeout: Duration::from_secs(30),
            body_memory: 256 << 20,
            claim_bytes: 32 << 20,
            write_timeout: Duration::from_secs(30),
            wait: Duration::from_mins(1),
            long_polls: 8_192,
            streams: 2_048,
            events_per_second: 200_000,
            rate: Rate::Default,
        }
    }
}
