//! How a server is reached.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How a server is reached.
///
/// ```
/// use tidegate_client::RemoteOptions;
/// let options = RemoteOptions { key: Some("tg_4f1c2a90b7d3_secret".into()), ..RemoteOptions::default() };
/// assert!(!format!("{options:?}").contains("secret"));
/// ```
#[derive(Clone, Default)]
pub struct RemoteOptions {
    /// The API key, if the server has any.
    pub key: Option<String>,
    /// A PEM file with certificates to trust beside the system's, for `https`.
    pub ca: Option<PathBuf>,
    /// How long to wait for what.
    pub timeouts: Timeouts,
}

impl RemoteOptions {
    /// What the environment says: `TIDEGATE_KEY` and `TIDEGATE_CA`.
    pub fn from_env() -> Self {
        let given = |name| std::env::var_os(name).filter(|v| !v.is_empty());
        let key = given("TIDEGATE_KEY").map(|k| k.to_string_lossy().into_owned());
        Self { key, ca: given("TIDEGATE_CA").map(PathBuf::from), timeouts: Timeouts::default() }
    }
}

impl fmt::Debug for RemoteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteOptions")
            .field("key", &self.key.as_ref().map(|_| "…"))
            .field("ca", &self.ca)
            .field("timeouts", &self.timeouts)
            .finish()
    }
}

/// How long to wait for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeouts {
    /// For a connection.
    pub connect: Duration,
    /// For the answer to a request.
    pub request: Duration,
    /// How long a request is sent again while the server is out of reach. Claims and outcomes are not repeated here: a
    /// worker repeats them as long as its leases allow.
    pub patience: Duration,
    /// How long one long poll waits at the server. Shorter than the idle time of the proxies in between.
    pub poll: Duration,
}

impl Default for Timeouts {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(5),
            request: Duration::from_secs(30),
            patience: Duration::from_secs(30),
            poll: Duration::from_secs(20),
        }
    }
}
