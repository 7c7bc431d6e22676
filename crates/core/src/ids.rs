//! Ids and names. Every one is a type of its own and is checked when it is made, so the rest of the code never
//! meets a queue called `'; DROP TABLE`.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use uuid::Uuid;

use crate::codes::{self, Code};
use crate::limits;

/// A name or id that was not accepted, with the reason.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} {why}")]
pub struct InvalidName {
    /// What was being named: `queue`, `tenant`, …
    pub what: &'static str,
    /// The input, cut to a length that can be shown.
    pub given: String,
    /// Why it was refused.
    pub why: String,
}

impl InvalidName {
    fn new(what: &'static str, given: &str, why: impl Into<String>) -> Self {
        Self { what, given: given.chars().take(40).collect(), why: why.into() }
    }

    /// The stable error code.
    pub fn code(&self) -> Code {
        codes::INVALID_NAME
    }
}

fn check_name(what: &'static str, s: &str) -> Result<(), InvalidName> {
    if s.is_empty() {
        return Err(InvalidName::new(what, s, "is empty"));
    }
    if s.len() > limits::MAX_NAME_BYTES {
        return Err(InvalidName::new(what, s, format!("is longer than {} bytes", limits::MAX_NAME_BYTES)));
    }
    if !s.starts_with(|c: char| c.is_ascii_alphanumeric()) {
        return Err(InvalidName::new(what, s, "must start with a letter or a digit"));
    }
    match s.chars().find(|c| !(c.is_ascii_alphanumeric() || "._-:@+=".contains(*c))) {
        Some(c) => Err(InvalidName::new(
            what,
            s,
            format!("contains {c:?}; allowed are letters, digits and . _ - : @ + ="),
        )),
        None => Ok(()),
    }
}

macro_rules! name {
    ($(#[$doc:meta])* $type:ident, $what:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
        #[serde(try_from = "String")]
        pub struct $type(Arc<str>);

        impl $type {
            /// Checks and makes the name.
            pub fn new(s: impl AsRef<str>) -> Result<Self, InvalidName> {
                check_name($what, s.as_ref())?;
                Ok(Self(Arc::from(s.as_ref())))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $type {
            type Error = InvalidName;
            fn try_from(s: String) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }

        impl FromStr for $type {
            type Err = InvalidName;
            fn from_str(s: &str) -> Result<Self, InvalidName> {
                Self::new(s)
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

name!(
    /// Name of a queue.
    QueueName, "queue"
);
name!(
    /// Name of a kind of job.
    KindName, "kind"
);
name!(
    /// Name of an event that kinds subscribe to.
    EventName, "event"
);
name!(
    /// A customer of the user's product.
    TenantId, "tenant"
);
name!(
    /// An API that is called.
    ConnectorName, "connector"
);
name!(
    /// Name of a schedule.
    ScheduleName, "schedule"
);
name!(
    /// Who runs jobs: shown in leases and in `why`.
    WorkerId, "worker"
);

/// The key of fairness, group limits and parks. The empty group is the share of all jobs that named neither a
/// group nor a tenant; it has no group limit.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct GroupKey(Arc<str>);

impl GroupKey {
    /// Checks and makes the key; empty is allowed.
    pub fn new(s: impl AsRef<str>) -> Result<Self, InvalidName> {
        let s = s.as_ref();
        if !s.is_empty() {
            check_name("group", s)?;
        }
        Ok(Self(Arc::from(s)))
    }

    /// The group of jobs that named none.
    pub fn none() -> Self {
        Self(Arc::from(""))
    }

    /// Whether this is the unnamed group.
    pub fn is_none(&self) -> bool {
        self.0.is_empty()
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for GroupKey {
    type Error = InvalidName;
    fn try_from(s: String) -> Result<Self, InvalidName> {
        Self::new(s)
    }
}

impl FromStr for GroupKey {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        Self::new(s)
    }
}

impl From<&TenantId> for GroupKey {
    fn from(tenant: &TenantId) -> Self {
        Self(tenant.0.clone())
    }
}

impl fmt::Display for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Debug for GroupKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

/// A key under which at most one job of a kind lives at a time. Free text without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String")]
pub struct UniqueKey(Arc<str>);

impl UniqueKey {
    /// Checks and makes the key.
    pub fn new(s: impl AsRef<str>) -> Result<Self, InvalidName> {
        let s = s.as_ref();
        if s.is_empty() {
            return Err(InvalidName::new("unique key", s, "is empty"));
        }
        if s.len() > limits::MAX_UNIQUE_KEY_BYTES {
            let why = format!("is longer than {} bytes", limits::MAX_UNIQUE_KEY_BYTES);
            return Err(InvalidName::new("unique key", s, why));
        }
        if s.chars().any(char::is_control) {
            return Err(InvalidName::new("unique key", s, "contains a control character"));
        }
        Ok(Self(Arc::from(s)))
    }

    /// The key as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for UniqueKey {
    type Error = InvalidName;
    fn try_from(s: String) -> Result<Self, InvalidName> {
        Self::new(s)
    }
}

impl fmt::Display for UniqueKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Id of a job: a UUIDv7, shown as `job_` and 26 letters and digits (Crockford base 32). Formats that are not for
/// people get its 16 bytes.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct JobId(Uuid);

const CROCKFORD: &[u8; 32] = b"0123456789ABCDEFGHJKMNPQRSTVWXYZ";
const ID_PREFIX: &str = "job_";
const ID_LETTERS: usize = 26;

impl JobId {
    /// An id for a job made at `unix_ms`, from 74 bits of the caller's randomness.
    pub fn from_parts(unix_ms: u64, random: u128) -> Self {
        let bytes = (random & ((1 << 80) - 1)).to_be_bytes();
        let mut ten = [0; 10];
        ten.copy_from_slice(&bytes[6..]);
        Self(uuid::Builder::from_unix_timestamp_millis(unix_ms, &ten).into_uuid())
    }

    /// Wraps a UUID.
    pub fn from_uuid(uuid: Uuid) -> Self {
        Self(uuid)
    }

    /// The UUID.
    pub fn uuid(self) -> Uuid {
        self.0
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = [0u8; ID_PREFIX.len() + ID_LETTERS];
        text[..ID_PREFIX.len()].copy_from_slice(ID_PREFIX.as_bytes());
        let mut bits = self.0.as_u128();
        for slot in text[ID_PREFIX.len()..].iter_mut().rev() {
            *slot = CROCKFORD[(bits & 31) as usize];
            bits >>= 5;
        }
        f.pad(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for JobId {
    type Err = InvalidName;
    fn from_str(s: &str) -> Result<Self, InvalidName> {
        if let Ok(uuid) = Uuid::try_parse(s) {
            return Ok(Self(uuid));
        }
        let refuse =
            || InvalidName::new("job id", s, "is not an id (expected `job_` and 26 letters and digits)");
        let letters = s.strip_prefix(ID_PREFIX).ok_or_else(refuse)?;
        if letters.len() != ID_LETTERS || !letters.is_ascii() {
            return Err(refuse());
        }
        let mut bits: u128 = 0;
        for (i, c) in letters.bytes().enumerate() {
            let upper = c.to_ascii_uppercase();
            let value = CROCKFORD.iter().position(|&k| k == upper).ok_or_else(refuse)?;
            if i == 0 && value > 7 {
                return Err(refuse());
            }
            bits = (bits << 5) | value as u128;
        }
        Ok(Self(Uuid::from_u128(bits)))
    }
}

impl Serialize for JobId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return serializer.collect_str(self);
        }
        self.0.into_bytes().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for JobId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            let text = Cow::<str>::deserialize(deserializer)?;
            return text.parse().map_err(serde::de::Error::custom);
        }
        <[u8; 16]>::deserialize(deserializer).map(|bytes| Self(Uuid::from_bytes(bytes)))
    }
}

/// Number of a lease. Grows for ever and is never used twice, so it fences: an older lease is a smaller number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeaseId(pub i64);

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "lease_{}", self.0)
    }
}

/// One run of one process. Jobs suspected of killing their process run one at a time per process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ProcessId(pub u64);

/// Internal number of a job in a store: order of arrival, never reused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Seq(pub i64);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_id_survives_its_text_form() {
        let id = JobId::from_parts(1_763_000_000_000, 0x1234_5678_9abc_def0_1234);
        assert_eq!(id.to_string().parse::<JobId>().unwrap(), id);
        assert_eq!(id.uuid().to_string().parse::<JobId>().unwrap(), id);
        assert_eq!(id.to_string().to_lowercase().replace("JOB_", "job_").parse::<JobId>().unwrap(), id);
        assert_eq!(id.uuid().get_version_num(), 7);
        for bad in ["", "job_", "job_zz", "job_Z1JD00000000000000000000000", "../etc/passwd", "job_01JD'--"] {
            assert!(bad.parse::<JobId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn names_refuse_metacharacters_and_say_which() {
        for bad in ["", "..", "../x", "a/b", "a b", "a'b", "a;b", "a%b", "-a", "a\n", "a\0b", "ü"] {
            assert!(QueueName::new(bad).is_err(), "{bad:?}");
        }
        assert!(QueueName::new("x".repeat(200)).is_err());
        for good in ["billing", "acme.myshopify.com", "a@b.c", "k:v=1", "0"] {
            assert!(TenantId::new(good).is_ok(), "{good:?}");
        }
        let err = QueueName::new("a;b").unwrap_err().to_string();
        assert!(err.contains("';'") && err.contains("queue"), "{err}");
    }
}
