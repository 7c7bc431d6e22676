//! The store itself.

use std::fmt;
use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use tidegate_core::codes;
use tidegate_core::limits;
use tidegate_store::{Error, Result, Signals};
use tidegate_wire::alerts::{
    Alert, Alerts, NewSilence, Rules, SilenceView, Silences, TestAlert, TestedAlert,
};
use tidegate_wire::keys::{About, CreatedKey, Key, Keys, NewKey};
use tidegate_wire::query::encode;

use crate::address::Address;
use crate::call::{Call, Caller};
use crate::combine::Combiner;
use crate::follow::Follower;
use crate::options::RemoteOptions;
use crate::poll::Polls;
use crate::skew::{Sent, Skew};
use crate::tasks::Tasks;
use crate::transport::Transport;

/// A store that is behind a server.
///
/// ```no_run
/// # async fn example() -> tidegate_store::Result<()> {
/// use tidegate_client::{RemoteOptions, RemoteStore};
/// use tidegate_store::Upkeep;
///
/// let options = RemoteOptions { key: Some("tg_…".into()), ..RemoteOptions::default() };
/// let store = RemoteStore::connect("https://jobs.example.com", options).await?;
/// println!("{} jobs are ready", store.totals().await?.ready);
/// # Ok(()) }
/// ```
pub struct RemoteStore {
    pub(crate) caller: Arc<Caller>,
    pub(crate) combiner: Arc<Combiner>,
    pub(crate) polls: Arc<Polls>,
    pub(crate) follower: Arc<Follower>,
    pub(crate) signals: Signals,
    pub(crate) skew: Arc<Skew>,
    tasks: Arc<Tasks>,
    /// The shortest lease that was asked for: heartbeats must not wait longer than it allows.
    lease_ms: AtomicI64,
}

impl RemoteStore {
    /// Connects to a server: it must answer, be of a version that is understood, and accept the key.
    pub async fn connect(url: &str, options: RemoteOptions) -> Result<Self> {
        let transport = Transport::new(Address::parse(url)?, &options)?;
        let (caller, tasks) = (Arc::new(Caller::new(transport, &options)), Arc::new(Tasks::here()));
        let (signals, skew) = (Signals::default(), Arc::new(Skew::default()));
        let origin = RandomState::new().build_hasher().finish();
        let store = Self {
            combiner: Combiner::new(caller.clone(), tasks.clone()),
            polls: Polls::new(caller.clone(), tasks.clone(), signals.clone(), skew.clone()),
            follower: Follower::new(caller.clone(), tasks.clone(), origin),
            caller,
            signals,
            skew,
            tasks,
            lease_ms: AtomicI64::new(limits::DEFAULT_LEASE_MS),
        };
        let about = store.about().await?;
        understood(&about.version)?;
        Ok(store)
    }

    /// What the server is, and which key this is.
    pub async fn about(&self) -> Result<About> {
        let sent = Sent::now();
        let about: About = self.caller.read(Call::get("/v1/about")).await?;
        self.skew.learn(sent, about.now.0);
        Ok(about)
    }

    /// Makes an API key. Its secret is shown this once. If the server's reply is lost, this fails and the key may exist:
    /// [`RemoteStore::keys`] lists it, and nobody has its secret.
    pub async fn create_key(&self, key: &NewKey) -> Result<CreatedKey> {
        self.caller.read(self.patient(Call::post("/v1/keys", key)?).once()).await
    }

    /// All API keys.
    pub async fn keys(&self) -> Result<Vec<Key>> {
        let keys: Keys = self.caller.read(self.patient(Call::get("/v1/keys"))).await?;
        Ok(keys.keys)
    }

    /// Revokes an API key, by its id.
    pub async fn revoke_key(&self, id: &str) -> Result<()> {
        self.caller.done(self.patient(Call::delete(format!("/v1/keys/{}", encode(id))))).await
    }

    /// Incidents that are open or about to be.
    pub async fn alerts(&self) -> Result<Vec<Alert>> {
        let alerts: Alerts = self.caller.read(self.patient(Call::get("/v1/alerts"))).await?;
        Ok(alerts.alerts)
    }

    /// The rules and channels of the server's alerts.
    pub async fn alert_rules(&self) -> Result<Rules> {
        self.caller.read(self.patient(Call::get("/v1/alerts/rules"))).await
    }

    /// Silences that have not ended.
    pub async fn silences(&self) -> Result<Vec<SilenceView>> {
        let silences: Silences = self.caller.read(self.patient(Call::get("/v1/alerts/silences"))).await?;
        Ok(silences.silences)
    }

    /// Begins a silence.
    pub async fn silence(&self, new: &NewSilence) -> Result<SilenceView> {
        self.caller.read(self.patient(Call::post("/v1/alerts/silences", new)?).once()).await
    }

    /// Ends a silence, by its id.
    pub async fn unsilence(&self, id: &str) -> Result<()> {
        self.caller.done(self.patient(Call::delete(format!("/v1/alerts/silences/{}", encode(id))))).await
    }

    /// Tries a channel. Returns the job that delivers the test.
    pub async fn test_alert(&self, channel: &str) -> Result<Option<String>> {
        let request = TestAlert { channel: channel.to_owned() };
        let tested: TestedAlert =
            self.caller.read(self.patient(Call::post("/v1/alerts/test", &request)?).once()).await?;
        Ok(tested.job)
    }

    /// Has a call repeated while the server is out of reach.
    pub(crate) fn patient(&self, call: Call) -> Call {
        call.patient(self.caller.timeouts().patience)
    }

    pub(crate) fn leases_of(&self, ms: i64) {
        self.lease_ms.fetch_min(ms.max(*limits::LEASE_MS.start()), Ordering::Relaxed);
    }

    /// How long a heartbeat may take in all: a worker beats at a third of its lease.
    pub(crate) fn beat_within(&self) -> Duration {
        Duration::from_millis(self.lease_ms.load(Ordering::Relaxed).max(1) as u64) / 6
    }

    /// Refuses everything from now on and ends what runs in the background.
    pub(crate) fn shut(&self) {
        self.caller.close();
        self.tasks.end();
    }
}

impl Drop for RemoteStore {
    fn drop(&mut self) {
        self.shut();
    }
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteStore")
            .field("address", &self.caller.transport().address().to_string())
            .finish_non_exhaustive()
    }
}

/// Refuses a server whose API may differ: another major version, or another minor one before 1.0.
fn understood(version: &str) -> Result<()> {
    let ours = env!("CARGO_PKG_VERSION");
    let line = |v: &str| {
        let mut parts = v.split('.').map(|p| p.parse::<u32>().ok());
        match (parts.next().flatten(), parts.next().flatten()) {
            (Some(0), Some(minor)) => Some((0, minor)),
            (Some(major), Some(_)) => Some((major, 0)),
            _ => None,
        }
    };
    if line(version).is_some() && line(version) == line(ours) {
        return Ok(());
    }
    let shown: String = version.chars().take(40).collect();
    Err(Error::new(
        codes::SERVER_MISMATCH,
        format!("the server has version {shown:?}, this program understands {ours}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_server_of_the_same_line_is_understood() {
        let ours = env!("CARGO_PKG_VERSION");
        assert!(understood(ours).is_ok());
        let (major, rest) = ours.split_once('.').unwrap();
        let minor = rest.split('.').next().unwrap();
        assert!(understood(&format!("{major}.{minor}.99")).is_ok());
        for other in ["", "7", "99.0.0", "0.99.0", "nginx"] {
            assert_eq!(understood(other).unwrap_err().code, codes::SERVER_MISMATCH, "{other}");
        }
    }
}
