//! Who is alive: every worker and server keeps a record of itself in the store, puts it there again every few seconds,
//! and takes it away when it ends. A process that dies is forgotten when its record expires. With each announcement it
//! reads whether somebody asked it to drain.
//!
//! Jobs do not depend on any of this: a store that cannot keep the record right now is asked again later.
//!
//! ```
//! use tidegate::{Tidegate, presence::{self, Presence}};
//! # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
//! let tide = Tidegate::memory();
//! let mine = Presence::of_this_process("server", tide.now());
//! presence::announce(&**tide.store(), "web-1", &mine, tide.now()).await?;
//! assert_eq!(presence::list(&**tide.store(), tide.now()).await?[0].name, "web-1");
//! # Ok(()) }
//! ```

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate_core::codes;
use tidegate_core::failure::cut;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store::params::{Record, Shelf};

use crate::{Error, Result, mint};

/// Time between two announcements.
///
/// ```
/// assert!(tidegate::presence::EVERY.as_millis() < tidegate::presence::LASTS_MS as u128);
/// ```
pub const EVERY: Duration = Duration::from_secs(5);
/// How long an announcement holds: two may be lost.
///
/// ```
/// assert_eq!(tidegate::presence::LASTS_MS, 15_000);
/// ```
pub const LASTS_MS: i64 = 15_000;
/// How long an order waits for its worker to read it.
const ORDER_LASTS_MS: i64 = 60_000;

/// What a process says of itself.
///
/// ```
/// let mine = tidegate::presence::Presence::of_this_process("worker", tidegate::Timestamp(0));
/// assert_eq!(mine.pid, std::process::id());
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Presence {
    /// What it is: `worker` or `server`.
    pub role: String,
    /// The machine it runs on.
    pub host: String,
    /// Its process there.
    pub pid: u32,
    /// The run of that process, the same for all workers in it.
    pub process: String,
    /// Its version.
    pub version: String,
    /// Queues it serves.
    pub queues: Vec<String>,
    /// Kinds it has handlers for.
    pub kinds: Vec<String>,
    /// Jobs it runs at most at a time.
    pub concurrency: u64,
    /// Jobs it runs now.
    pub running: u64,
    /// Since when, as RFC 3339.
    pub started_at: String,
    /// Whether it takes no more jobs and is about to end.
    pub draining: bool,
    /// Where it can be reached, if it listens.
    pub url: Option<String>,
}

impl Presence {
    /// What is known of this process without asking.
    ///
    /// ```
    /// let mine = tidegate::presence::Presence::of_this_process("server", tidegate::Timestamp(0));
    /// assert_eq!(mine.started_at, "1970-01-01T00:00:00.000Z");
    /// ```
    pub fn of_this_process(role: &str, now: Timestamp) -> Self {
        Self {
            role: role.to_owned(),
            host: host(),
            pid: std::process::id(),
            process: format!("{:016x}", mint::process().0),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: now.to_string(),
            ..Self::default()
        }
    }

    /// The queues it serves, as many as are shown.
    pub(crate) fn serves<T: ToString>(&mut self, queues: &[T]) {
        self.queues = queues.iter().take(limits::MAX_QUEUES_SHOWN).map(T::to_string).collect();
    }
}

/// A process that announced itself.
///
/// ```
/// # fn example(seen: tidegate::presence::Seen) {
/// println!("{} on {}", seen.name, seen.presence.host);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Seen {
    /// Its name.
    pub name: String,
    /// What it said.
    #[serde(flatten)]
    pub presence: Presence,
    /// When it is forgotten, if it does not announce itself again.
    pub expires: Option<Timestamp>,
}

/// What a process is asked to do.
///
/// ```
/// # fn example(order: tidegate::presence::Order) {
/// println!("{} asks to {}", order.by, order.order);
/// # }
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Order {
    /// What: `drain`.
    pub order: String,
    /// By whom.
    pub by: String,
    /// When, as RFC 3339. A process that started later is not meant.
    pub at: String,
}

/// Says that this process is alive.
///
/// ```
/// # use tidegate::{Tidegate, presence::{self, Presence}};
/// # async fn example(tide: Tidegate) -> tidegate::Result<()> {
/// let mine = Presence::of_this_process("server", tide.now());
/// presence::announce(&**tide.store(), "web-1", &mine, tide.now()).await?;
/// # Ok(()) }
/// ```
pub async fn announce(store: &dyn Store, name: &str, presence: &Presence, now: Timestamp) -> Result<()> {
    let expires = Some(now.plus_ms(LASTS_MS));
    let record = Record { shelf: Shelf::Workers, key: name.to_owned(), body: json(presence)?, expires };
    Ok(store.put_record(record, now).await?)
}

/// Says that this process is about to end.
///
/// ```
/// # async fn example(tide: tidegate::Tidegate) -> tidegate::Result<()> {
/// tidegate::presence::withdraw(&**tide.store(), "web-1").await?;
/// # Ok(()) }
/// ```
pub async fn withdraw(store: &dyn Store, name: &str) -> Result<()> {
    store.delete_record(Shelf::Workers, name.to_owned()).await?;
    Ok(())
}

/// Who is alive, by name. What others wrote and cannot be read is shown with its name alone.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// let tide = tidegate::Tidegate::memory();
/// assert!(tidegate::presence::list(&**tide.store(), tide.now()).await?.is_empty());
/// # Ok(()) }
/// ```
pub async fn list(store: &dyn Store, now: Timestamp) -> Result<Vec<Seen>> {
    let records = store.records(Shelf::Workers, now).await?;
    let seen = |r: Record| Seen {
        presence: serde_json::from_str(&r.body).unwrap_or_default(),
        name: r.key,
        expires: r.expires,
    };
    Ok(records.into_iter().map(seen).collect())
}

/// Asks a process that is alive to take no more jobs and to end when what it has is done. It hears of it with its next
/// announcement.
///
/// ```
/// # #[tokio::main(flavor = "current_thread")] async fn main() -> tidegate::Result<()> {
/// let tide = tidegate::Tidegate::memory();
/// let nobody = tidegate::presence::ask_to_drain(&**tide.store(), "web-1", "ada", tide.now()).await;
/// assert_eq!(nobody.unwrap_err().code.id, "TG3006");
/// # Ok(()) }
/// ```
pub async fn ask_to_drain(store: &dyn Store, name: &str, by: &str, now: Timestamp) -> Result<()> {
    if !list(store, now).await?.iter().any(|seen| seen.name == name) {
        let shown: String = name.chars().take(limits::MAX_NAME_BYTES).collect();
        return Err(Error::new(codes::WORKER_NOT_FOUND, format!("nobody by the name {shown:?} is alive")));
    }
    let by = cut(by.to_owned(), limits::MAX_NAME_BYTES);
    let order = Order { order: "drain".into(), by, at: now.to_string() };
    let expires = Some(now.plus_ms(ORDER_LASTS_MS));
    let record = Record { shelf: Shelf::Orders, key: name.to_owned(), body: json(&order)?, expires };
    Ok(store.put_record(record, now).await?)
}

/// What a process that started then is asked to do, if anything. An order that does not say when it was given is taken
/// off the shelf with this, so that it does not meet the next process of this name.
///
/// ```
/// # use tidegate::{Tidegate, presence::{self, Presence}};
/// # async fn example(tide: Tidegate, mine: Presence) -> tidegate::Result<()> {
/// if let Some(order) = presence::order(&**tide.store(), "web-1", &mine, tide.now()).await? {
///     println!("{} asks to {}", order.by, order.order);
/// }
/// # Ok(()) }
/// ```
pub async fn order(store: &dyn Store, name: &str, mine: &Presence, now: Timestamp) -> Result<Option<Order>> {
    let records = store.records(Shelf::Orders, now).await?;
    let found = records.into_iter().find(|r| r.key == name);
    let order: Option<Order> = found.and_then(|r| serde_json::from_str(&r.body).ok());
    if order.as_ref().is_some_and(|o| o.at.is_empty()) {
        store.delete_record(Shelf::Orders, name.to_owned()).await?;
    }
    // RFC 3339 in UTC with a fixed number of digits sorts like the time it says.
    Ok(order.filter(|o| o.at.is_empty() || o.at >= mine.started_at))
}

/// The name to announce under: the one that was chosen, or a variation if somebody else lives under it.
pub(crate) async fn free_name(
    store: &dyn Store,
    chosen: &str,
    mine: &Presence,
    now: Timestamp,
) -> Result<String> {
    let seen = list(store, now).await?;
    let taken = |name: &str| seen.iter().any(|s| s.name == name);
    let mut name = chosen.to_owned();
    let mut number = 2;
    while taken(&name) {
        name = format!("{chosen}-{}-{number}", mine.pid);
        number += 1;
    }
    Ok(name)
}

fn json<T: Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value)
        .map_err(|e| Error::new(codes::INTERNAL, format!("a record could not be written: {e}")))
}

/// The name of this machine, as far as it can be part of a worker's name.
pub(crate) fn host() -> String {
    let read = |path: &str| std::fs::read_to_string(path).ok();
    let name = read("/proc/sys/kernel/hostname").or_else(|| read("/etc/hostname"));
    let name = name.or_else(|| std::env::var("HOSTNAME").ok()).unwrap_or_default();
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    let name: String = name.trim().chars().filter(kept).take(64).collect();
    let name = name.trim_start_matches(['.', '-', '_']);
    if name.is_empty() { "localhost".into() } else { name.to_owned() }
}
