//! Which gates a handle has: their settings, and the backend that decides.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::gates::{Holder, Micros};
use tidegate_gates::{Backend, GateSettings, GatesError, InProcess, Watched};

use crate::{Error, Result, Tidegate};

/// How often the settings of a server are asked for.
#[cfg(feature = "remote")]
const ASK_AGAIN: std::time::Duration = std::time::Duration::from_mins(1);
/// Arrivals remembered of jobs that wait.
const ARRIVALS: usize = 10_000;

/// The gates of a handle.
pub(crate) struct Keeper {
    pub(crate) backend: Arc<dyn Backend>,
    settings: Source,
    /// When jobs that were put off first asked: coming late costs the turn, not the arrival (G2).
    arrivals: Mutex<HashMap<Holder, Micros>>,
}

/// Where the settings are.
enum Source {
    Given(Arc<GateSettings>),
    #[cfg(feature = "remote")]
    Server(Server),
}

/// Settings that a server has.
#[cfg(feature = "remote")]
struct Server {
    gates: Arc<tidegate_client::RemoteGates>,
    seen: Mutex<Option<(tokio::time::Instant, Arc<GateSettings>)>>,
}

#[cfg(feature = "remote")]
impl Server {
    async fn settings(&self) -> Result<Arc<GateSettings>, GatesError> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some((at, settings)) = &seen
            && at.elapsed() < ASK_AGAIN
        {
            return Ok(settings.clone());
        }
        let settings = match (self.gates.settings().await, seen) {
            (Ok(settings), _) => Arc::new(settings),
            // They change when the server is started anew; meanwhile the old ones do.
            (Err(GatesError::Unreachable(_)), Some((_, settings))) => settings,
            (Err(error), _) => return Err(error),
        };
        let now = tokio::time::Instant::now();
        *self.seen.lock().unwrap_or_else(PoisonError::into_inner) = Some((now, settings.clone()));
        Ok(settings)
    }
}

impl Keeper {
    #[cfg(feature = "remote")]
    fn of_server(gates: Arc<tidegate_client::RemoteGates>) -> Self {
        let server = Server { gates: gates.clone(), seen: Mutex::default() };
        Self { backend: gates, settings: Source::Server(server), arrivals: Mutex::default() }
    }

    pub(crate) fn new(backend: Arc<dyn Backend>, settings: GateSettings) -> Self {
        Self { backend, settings: Source::Given(Arc::new(settings)), arrivals: Mutex::default() }
    }

    /// What people wrote about the gates.
    pub(crate) async fn settings(&self) -> Result<Arc<GateSettings>, GatesError> {
        match &self.settings {
            Source::Given(settings) => Ok(settings.clone()),
            #[cfg(feature = "remote")]
            Source::Server(server) => server.settings().await,
        }
    }

    fn arrivals(&self) -> MutexGuard<'_, HashMap<Holder, Micros>> {
        self.arrivals.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn arrived(&self, holder: &Holder) -> Option<Micros> {
        self.arrivals().get(holder).copied()
    }

    pub(crate) fn remember(&self, holder: Holder, at: Micros) {
        let mut arrivals = self.arrivals();
        if arrivals.len() >= ARRIVALS {
            // The older half has waited for so long that most of it is served or cancelled.
            let mut times: Vec<Micros> = arrivals.values().copied().collect();
            let (_, middle, _) = times.select_nth_unstable(ARRIVALS / 2);
            let middle = *middle;
            arrivals.retain(|_, at| *at > middle);
        }
        arrivals.insert(holder, at);
    }

    pub(crate) fn forget(&self, holder: &Holder) {
        self.arrivals().remove(holder);
    }
}

impl Tidegate {
    /// Sets the gates that handlers ask, decided in this process: for programs that are the only one to call the API. This
    /// handle and all its clones have them.
    ///
    /// ```
    /// use tidegate::gates::GateSettings;
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let gates = GateSettings::from_toml(r#"
    ///     [[gates.shopify.gates]]
    ///     name = "points"
    ///     per = ["account"]
    ///     gate.reported = { capacity = 1000, restore_per_s = 50 }
    /// "#)?;
    /// let tide = tidegate::Tidegate::memory().gates(gates).await?;
    ///
    /// let wrong = GateSettings::from_toml("[[gates.api.gates]]\nname = \"a\"\ngate.window = { max = 0, every = \"1s\" }");
    /// assert_eq!(wrong.unwrap_err().path, "gates.api.gates[0].window.max");
    /// # Ok(()) }
    /// ```
    pub async fn gates(self, settings: GateSettings) -> Result<Self> {
        self.gates_with(Arc::new(Watched::around(InProcess::new())), settings).await
    }

    /// Sets the gates that handlers ask, decided at an address that processes share: `redis://…` (feature `redis`),
    /// `postgres://…` (feature `postgres`), or `memory:` for this process alone.
    ///
    /// With `rediss://…`, a process that has chosen no cryptography for `rustls` has `ring` from then on: choose another one before.
    ///
    /// ```no_run
    /// # async fn example(tide: tidegate::Tidegate, gates: tidegate::gates::GateSettings) -> tidegate::Result<()> {
    /// let tide = tide.gates_at("redis://127.0.0.1:6379", gates).await?;
    /// # Ok(()) }
    /// ```
    pub async fn gates_at(self, address: &str, settings: GateSettings) -> Result<Self> {
        self.gates_with(tidegate_gates::connect(address).await?, settings).await
    }

    /// Sets the gates that handlers ask, decided by this backend; wrap it in [`Watched`] for metrics and traces.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use tidegate::gates::{GateSettings, InProcess};
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let backend = Arc::new(InProcess::new());
    /// let tide = tidegate::Tidegate::memory().gates_with(backend, GateSettings::new()).await?;
    /// # Ok(()) }
    /// ```
    pub async fn gates_with(self, backend: Arc<dyn Backend>, settings: GateSettings) -> Result<Self> {
        settings.apply(&*backend).await?;
        self.keep_gates(Keeper::new(backend, settings));
        Ok(self)
    }

    /// Has handlers ask the gates of a server; [`Tidegate::connect`] with `http://…` does it by itself.
    ///
    /// ```no_run
    /// use std::sync::Arc;
    /// use tidegate::store::{RemoteOptions, RemoteStore};
    /// # async fn example() -> tidegate::Result<()> {
    /// let store = RemoteStore::connect("http://127.0.0.1:7433", RemoteOptions::from_env()).await?;
    /// let gates = Arc::new(store.gates());
    /// let tide = tidegate::Tidegate::with_store(Arc::new(store)).gates_of(gates);
    /// # Ok(()) }
    /// ```
    #[cfg(feature = "remote")]
    #[must_use]
    pub fn gates_of(self, server: Arc<tidegate_client::RemoteGates>) -> Self {
        self.keep_gates(Keeper::of_server(server));
        self
    }

    /// The backend of the gates, for operators: holders, waiters, breakers and switches are its methods. None are set: `None`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
    /// let tide = tidegate::Tidegate::memory();
    /// assert!(tide.gate_backend().is_none());
    /// # Ok(()) }
    /// ```
    pub fn gate_backend(&self) -> Option<Arc<dyn Backend>> {
        self.keeper().map(|k| k.backend.clone())
    }
}

impl From<GatesError> for Error {
    fn from(e: GatesError) -> Self {
        match e {
            GatesError::Invalid(e) => e.into(),
            e => Self::new(e.code(), e.to_string()),
        }
    }
}

impl From<tidegate_core::gates::InvalidGates> for Error {
    fn from(e: tidegate_core::gates::InvalidGates) -> Self {
        let code = e.code();
        Self { code, detail: format!("{}: {}", e.path, e.problem), hint: e.hint.into() }
    }
}
