//! API keys: `tg_<id>_<secret>`. The store holds a SHA-256 of the secret and never the secret itself. The secrets are
//! random and long, so a fast hash is enough: there is nothing to guess.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tidegate_core::codes;
use tidegate_core::ids::TenantId;
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_store::params::{Record, Shelf};
use tidegate_store::{Error, Result, Store};
use tidegate_wire::keys::{CreatedKey, Key, NewKey, Role};
use tidegate_wire::{Problem, Time};
use tokio::sync::watch;

/// Bytes of an id and of a secret.
const SIZES: (usize, usize) = (6, 24);
/// Age at which what is known of keys is read again: a revocation counts within this time.
const FRESH: Duration = Duration::from_secs(1);
/// The same when a key is not known: it may have been made a moment ago. Guessing costs ten reads per second at most.
const FRESHER: Duration = Duration::from_millis(100);

/// A key as the store keeps it.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Stored {
    name: String,
    role: Role,
    tenant: Option<TenantId>,
    created_ms: i64,
    /// SHA-256 of the secret, in hexadecimal digits.
    hash: String,
    last_four: String,
    revoked_ms: Option<i64>,
}

impl Stored {
    fn into_key(self, id: String) -> Key {
        Key {
            id,
            name: self.name,
            role: self.role,
            tenant: self.tenant,
            created_at: Time(Timestamp(self.created_ms)),
            last_four: self.last_four,
            revoked_at: self.revoked_ms.map(|ms| Time(Timestamp(ms))),
        }
    }
}

/// Makes a key and returns its secret, which is kept nowhere.
pub async fn create(store: &dyn Store, new: NewKey, now: Timestamp) -> Result<CreatedKey> {
    let refuse = |why: &str| Err(Error::new(codes::INVALID_SETTING, why));
    if new.name.trim().is_empty()
        || new.name.len() > limits::MAX_NAME_BYTES
        || new.name.chars().any(char::is_control)
    {
        return refuse("a key needs a name of 1 to 128 bytes without control characters");
    }
    if new.role == Role::Worker && new.tenant.is_some() {
        return refuse(
            "a worker key cannot be restricted to a tenant: a claim takes jobs of every tenant of a queue",
        );
    }
    let (id, secret) = (random(SIZES.0)?, random(SIZES.1)?);
    let stored = Stored {
        name: new.name,
        role: new.role,
        tenant: new.tenant,
        created_ms: now.0,
        hash: hex(&Sha256::digest(secret.as_bytes())),
        last_four: secret[secret.len() - 4..].to_owned(),
        revoked_ms: None,
    };
    put(store, &id, &stored, now).await?;
    let text = format!("tg_{id}_{secret}");
    Ok(CreatedKey { key: stored.into_key(id), secret: text })
}

/// All keys, the oldest first.
pub async fn list(store: &dyn Store, now: Timestamp) -> Result<Vec<Key>> {
    let mut keys: Vec<Key> = read(store, now).await?.into_iter().map(|(id, key)| key.into_key(id)).collect();
    keys.sort_by(|a, b| (a.created_at, &a.id).cmp(&(b.created_at, &b.id)));
    Ok(keys)
}

/// Revokes a key. False if there is none with this id. It stays in the list.
pub async fn revoke(store: &dyn Store, id: &str, now: Timestamp) -> Result<bool> {
    let Some((id, mut key)) = read(store, now).await?.into_iter().find(|(known, _)| known == id) else {
        return Ok(false);
    };
    if key.revoked_ms.is_none() {
        key.revoked_ms = Some(now.0);
        put(store, &id, &key, now).await?;
    }
    Ok(true)
}

async fn put(store: &dyn Store, id: &str, key: &Stored, now: Timestamp) -> Result<()> {
    let body = serde_json::to_string(key)
        .map_err(|e| Error::internal(format!("a key could not be written: {e}")))?;
    store.put_record(Record { shelf: Shelf::Keys, key: id.to_owned(), body, expires: None }, now).await
}

async fn read(store: &dyn Store, now: Timestamp) -> Result<Vec<(String, Stored)>> {
    let records = store.records(Shelf::Keys, now).await?;
    let parse = |r: Record| match serde_json::from_str(&r.body) {
        Ok(key) => Ok((r.key, key)),
        Err(_) => Err(Error::new(codes::CORRUPT, format!("key {} cannot be read", r.key))),
    };
    records.into_iter().map(parse).collect()
}

fn random(bytes: usize) -> Result<String> {
    let mut buffer = vec![0; bytes];
    rustls::crypto::ring::default_provider()
        .secure_random
        .fill(&mut buffer)
        .map_err(|_| Error::internal("the system gave no random numbers"))?;
    Ok(hex(&buffer))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, b| {
        let _ = write!(text, "{b:02x}");
        text
    })
}

/// What is known of keys, read again when it is older than a second.
#[derive(Debug, Default)]
pub(crate) struct KeyRing {
    known: Mutex<Option<(Instant, Arc<Known>)>>,
    /// What was read last, for those who go on for long after their key was looked at. Told of changes alone.
    latest: watch::Sender<Arc<Known>>,
    /// One request reads, the others wait for it.
    reading: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct Known(HashMap<String, (String, Arc<Key>)>);

impl KeyRing {
    /// What is known, not older than a second.
    pub(crate) async fn known(&self, store: &dyn Store, now: Timestamp) -> Result<Arc<Known>> {
        self.not_older(FRESH, store, now).await
    }

    /// What is known, looked up for a key that was not.
    pub(crate) async fn look_again(&self, store: &dyn Store, now: Timestamp) -> Result<Arc<Known>> {
        self.not_older(FRESHER, store, now).await
    }

    /// What was last known, however old it is.
    pub(crate) fn last(&self) -> Option<Arc<Known>> {
        self.fresh(Duration::MAX)
    }

    async fn not_older(&self, age: Duration, store: &dyn Store, now: Timestamp) -> Result<Arc<Known>> {
        if let Some(known) = self.fresh(age) {
            return Ok(known);
        }
        let _one = self.reading.lock().await;
        if let Some(known) = self.fresh(age) {
            return Ok(known);
        }
        let asked = Instant::now();
        let keys = read(store, now).await?;
        let entry =
            |(id, key): (String, Stored)| (id.clone(), (key.hash.clone(), Arc::new(key.into_key(id))));
        let known = Arc::new(Known(keys.into_iter().map(entry).collect()));
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = Some((asked, known.clone()));
        self.latest.send_if_modified(|latest| {
            let changed = !latest.admits_the_same_as(&known);
            latest.clone_from(&known);
            changed
        });
        Ok(known)
    }

    /// Waits until this key, or a request without one, would not be let in any more. Somebody has to look now and then
    /// ([`KeyRing::known`]) for it to be heard of.
    pub(crate) async fn refused(&self, id: Option<&str>) {
        // The sender lives as long as `self`.
        let _ = self.latest.subscribe().wait_for(|known| !known.admits(id)).await;
    }

    /// Whether anybody waits for a key to be refused.
    pub(crate) fn watched(&self) -> bool {
        self.latest.receiver_count() > 0
    }

    /// Forgets what is known, so that a change made here counts at once.
    pub(crate) fn forget(&self) {
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn fresh(&self, age: Duration) -> Option<Arc<Known>> {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.as_ref().filter(|(at, _)| at.elapsed() < age).map(|(_, known)| known.clone())
    }
}

impl Known {
    /// Whether this key, or a request without one, is let in.
    fn admits(&self, id: Option<&str>) -> bool {
        match id {
            Some(id) => self.0.get(id).is_some_and(|(_, key)| key.revoked_at.is_none()),
            None => !self.any(),
        }
    }

    fn admits_the_same_as(&self, other: &Self) -> bool {
        let live = |known: &Self| known.0.keys().filter(|id| known.admits(Some(id))).count();
        self.any() == other.any()
            && live(self) == live(other)
            && self.0.keys().all(|id| self.admits(Some(id)) == other.admits(Some(id)))
    }

    /// Whether there is any key, revoked or not: revoking the last one does not open the door.
    pub(crate) fn any(&self) -> bool {
        !self.0.is_empty()
    }

    /// Whether there is a key with the id in this text.
    pub(crate) fn knows(&self, text: &str) -> bool {
        text.split('_').nth(1).is_some_and(|id| self.0.contains_key(id))
    }

    /// The key with this text.
    pub(crate) fn find(&self, text: &str) -> std::result::Result<Arc<Key>, Problem> {
        let refuse = |why: &str| Problem::new(codes::NO_KEY, why);
        let parts = text.strip_prefix("tg_").and_then(|rest| rest.split_once('_'));
        let (id, secret) =
            parts.ok_or_else(|| refuse("this is not a key: keys look like tg_<id>_<secret>"))?;
        let hash = hex(&Sha256::digest(secret.as_bytes()));
        // An unknown id takes as long as a wrong secret.
        let (expected, key) = match self.0.get(id) {
            Some((expected, key)) => (expected.as_str(), Some(key)),
            None => ("0000000000000000000000000000000000000000000000000000000000000000", None),
        };
        let same: bool = hash.as_bytes().ct_eq(expected.as_bytes()).into();
        let key = key.filter(|_| same).ok_or_else(|| refuse("there is no such key"))?;
        if key.revoked_at.is_some() {
            return Err(refuse("the key was revoked"));
        }
        Ok(key.clone())
    }
}
