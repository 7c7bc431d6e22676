//! What is asked of the gates: for whom ([`Target`]), by whom ([`Holder`]), how much ([`Call`]), and how it ended
//! ([`Outcome`]).

use std::fmt;
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::config::Part;
use super::units::{Micros, Points, SECOND};
use crate::hash::{KeyHasher, hash_bytes};
use crate::ids::{ConnectorName, InvalidName, JobId};

/// Longest holder: a job's id and the number of its call, with room.
pub const MAX_HOLDER_BYTES: usize = 47;

/// Who holds a permit or a place: a job's call, a request. Kept inline, so that an admission allocates nothing.
#[derive(Clone, Copy, Eq, PartialOrd, Ord)]
pub struct Holder {
    /// The text, zeros, and at the end the length of the text: six words.
    bytes: [u8; MAX_HOLDER_BYTES + 1],
}

impl Holder {
    /// Checks and makes the holder: 1 to 47 letters, digits and `. _ - : @ + = #`.
    pub fn new(s: impl AsRef<str>) -> Result<Self, InvalidName> {
        let s = s.as_ref();
        let wrong = |why: &str| {
            Err(InvalidName { what: "holder", given: s.chars().take(40).collect(), why: why.into() })
        };
        if s.is_empty() || s.len() > MAX_HOLDER_BYTES {
            return wrong("must have 1 to 47 characters");
        }
        if !s.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-:@+=#".contains(&b)) {
            return wrong("may contain letters, digits and . _ - : @ + = #");
        }
        let mut bytes = [0; MAX_HOLDER_BYTES + 1];
        bytes[..s.len()].copy_from_slice(s.as_bytes());
        bytes[MAX_HOLDER_BYTES] = s.len() as u8;
        Ok(Self { bytes })
    }

    /// A holder made of a number: `n-42`.
    pub fn number(n: u64) -> Self {
        let mut bytes = [0; MAX_HOLDER_BYTES + 1];
        bytes[..2].copy_from_slice(b"n-");
        let digits = n.checked_ilog10().unwrap_or(0) as usize + 1;
        let (mut rest, mut at) = (n, 2 + digits);
        // Two digits at a time, since each division waits for the one before.
        while at > 3 {
            let pair = (rest % 100) as u8;
            rest /= 100;
            (bytes[at - 2], bytes[at - 1]) = (b'0' + pair / 10, b'0' + pair % 10);
            at -= 2;
        }
        if at == 3 {
            bytes[2] = b'0' + rest as u8;
        }
        bytes[MAX_HOLDER_BYTES] = digits as u8 + 2;
        Self { bytes }
    }

    /// The holder of a job's call: the job's id, and from its second call in a run on the number of the call.
    pub fn of_job(job: JobId, call: u32) -> Result<Self, InvalidName> {
        Self::new(if call == 0 { job.to_string() } else { format!("{job}#{call}") })
    }

    /// The job that holds, if it is one.
    pub fn job(&self) -> Option<JobId> {
        self.as_str().split('#').next()?.parse().ok()
    }

    /// The holder as text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len()]).unwrap_or_default()
    }

    #[inline]
    fn len(&self) -> usize {
        usize::from(self.bytes[MAX_HOLDER_BYTES])
    }
}

impl PartialEq for Holder {
    /// By words, in line: to call a comparison of bytes takes longer than six of them.
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        let ((ours, _), (theirs, _)) = (self.bytes.as_chunks::<8>(), other.bytes.as_chunks::<8>());
        let differ = |(a, b): (&[u8; 8], &[u8; 8])| u64::from_le_bytes(*a) ^ u64::from_le_bytes(*b);
        ours.iter().zip(theirs).map(differ).fold(0, |all, bits| all | bits) == 0
    }
}

impl Hash for Holder {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        // Whole words: what is behind the text is zero.
        let (words, _) = self.bytes.as_chunks::<8>();
        for word in &words[..=self.len() / 8] {
            state.write_u64(u64::from_le_bytes(*word));
        }
    }
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

impl Serialize for Holder {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Holder {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(d)?).map_err(serde::de::Error::custom)
    }
}

/// The name of a domain with its hash: every call is looked up by it, and made of it only once.
#[derive(Debug, Clone, Eq)]
pub struct DomainName {
    text: Arc<str>,
    hash: u64,
}

impl DomainName {
    /// The name, as it is.
    pub fn new(text: &str) -> Self {
        Self { text: Arc::from(text), hash: hash_bytes(text.as_bytes()) }
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl PartialEq for DomainName {
    #[inline]
    fn eq(&self, other: &Self) -> bool {
        self.text == other.text
    }
}

impl Hash for DomainName {
    #[inline]
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

/// For whom a call is. Made once and shared.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "RawTarget", try_from = "RawTarget")]
pub struct Target {
    domain: DomainName,
    parts: [Box<str>; PARTS],
}

/// Number of parts a target can have.
pub const PARTS: usize = 5;

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RawTarget {
    domain: String,
    #[serde(default)]
    connector: String,
    #[serde(default)]
    tenant: String,
    #[serde(default)]
    account: String,
    #[serde(default)]
    endpoint: String,
    #[serde(default)]
    subject: String,
}

impl From<Target> for RawTarget {
    fn from(t: Target) -> Self {
        let [connector, tenant, account, endpoint, subject] = t.parts.map(String::from);
        Self { domain: t.domain.text.to_string(), connector, tenant, account, endpoint, subject }
    }
}

impl TryFrom<RawTarget> for Target {
    type Error = InvalidName;
    fn try_from(raw: RawTarget) -> Result<Self, InvalidName> {
        let mut target = Self::new(&raw.domain)?;
        for (part, text) in [
            (Part::Connector, raw.connector),
            (Part::Tenant, raw.tenant),
            (Part::Account, raw.account),
            (Part::Endpoint, raw.endpoint),
            (Part::Subject, raw.subject),
        ] {
            target = target.with(part, &text)?;
        }
        Ok(target)
    }
}

impl Target {
    /// A target of this domain, without parts.
    pub fn new(domain: &str) -> Result<Self, InvalidName> {
        ConnectorName::new(domain).map_err(|e| InvalidName { what: "gate domain", ..e })?;
        Ok(Self { domain: DomainName::new(domain), parts: Default::default() })
    }

    /// The same target with this part; empty is none.
    pub fn with(mut self, part: Part, text: &str) -> Result<Self, InvalidName> {
        if !text.is_empty() {
            ConnectorName::new(text).map_err(|e| InvalidName { what: part.name(), ..e })?;
        }
        self.parts[part as usize] = text.into();
        Ok(self)
    }

    /// The domain.
    #[inline]
    pub fn domain(&self) -> &str {
        &self.domain.text
    }

    /// The domain, to be looked up.
    #[inline]
    pub fn domain_name(&self) -> &DomainName {
        &self.domain
    }

    /// A part; empty if it has none.
    #[inline]
    pub fn part(&self, part: Part) -> &str {
        &self.parts[part as usize]
    }

    /// The key that these parts make (a bit per part, in the order of [`Part::ALL`]): the parts joined by `/`.
    pub fn key_into(&self, mask: u8, key: &mut String) {
        key.clear();
        let parts = self.parts.iter().enumerate().filter(|(i, _)| mask & (1 << i) != 0);
        for (n, (_, part)) in parts.enumerate() {
            // Also behind a part that is empty: ("", "x") and ("x", "") are two keys.
            if n > 0 {
                key.push('/');
            }
            key.push_str(part);
        }
    }

    /// The same key; what has to be made is put into `made`. One part alone, as most keys are, is there already.
    #[inline]
    pub fn key<'a>(&'a self, mask: u8, made: &'a mut String) -> &'a str {
        match self.parts.get(mask.trailing_zeros() as usize) {
            Some(part) if mask.is_power_of_two() => part,
            _ => {
                self.key_into(mask, made);
                made
            }
        }
    }

    /// A hash of that key, without making it.
    pub fn key_hash(&self, mask: u8) -> u64 {
        let mut hasher = KeyHasher::default();
        let parts = self.parts.iter().enumerate().filter(|(i, _)| mask & (1 << i) != 0);
        parts.for_each(|(_, part)| hasher.write(part.as_bytes()));
        hasher.finish()
    }
}

impl fmt::Debug for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.domain())?;
        self.parts.iter().filter(|p| !p.is_empty()).try_for_each(|p| write!(f, "/{p}"))
    }
}

impl Part {
    /// All parts, in the order of keys.
    pub const ALL: [Self; PARTS] =
        [Self::Connector, Self::Tenant, Self::Account, Self::Endpoint, Self::Subject];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Connector => "connector",
            Self::Tenant => "tenant",
            Self::Account => "account",
            Self::Endpoint => "endpoint",
            Self::Subject => "subject",
        }
    }
}

/// One call that asks to be admitted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// For whom.
    pub target: Arc<Target>,
    /// By whom. The same holder asks for the same place and the same permit.
    pub holder: Holder,
    /// Which request of this holder: a repetition has the same number, a new try a higher one. Any number below 2^53.
    #[serde(default)]
    pub ask: u64,
    /// What it costs at most.
    #[serde(default = "one")]
    pub cost: Points,
    /// 1 is the highest.
    #[serde(default = "middle")]
    pub priority: u8,
    /// How long the permit lasts without renewal.
    #[serde(default = "lease")]
    pub lease: Micros,
    /// When it is too late.
    #[serde(default)]
    pub deadline: Option<Micros>,
    /// `arrived` of an earlier wait.
    #[serde(default)]
    pub since: Option<Micros>,
    /// Whether a place in line is wanted.
    #[serde(default = "yes")]
    pub place: bool,
    /// Which process asks, for the breaker's votes: any number below 2^53.
    #[serde(default)]
    pub process: u64,
}

/// Shortest and longest lease of a permit.
pub const PERMIT_LEASE: std::ops::RangeInclusive<Micros> = 10_000..=3_600 * SECOND;

fn one() -> Points {
    Points::ONE
}
fn middle() -> u8 {
    2
}
fn lease() -> Micros {
    30 * SECOND
}
fn yes() -> bool {
    true
}

impl Call {
    /// A call of cost 1 and priority 2 with a lease of 30 s.
    #[inline]
    pub fn new(target: Arc<Target>, holder: Holder) -> Self {
        Self {
            target,
            holder,
            ask: 0,
            cost: one(),
            priority: middle(),
            lease: lease(),
            deadline: None,
            since: None,
            place: true,
            process: 0,
        }
    }

    /// The same call with this cost.
    #[must_use]
    pub fn cost(mut self, cost: Points) -> Self {
        self.cost = cost;
        self
    }

    /// The same call with this priority.
    #[must_use]
    pub fn priority(mut self, priority: u8) -> Self {
        self.priority = priority;
        self
    }
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Outcome {
    /// What became of it.
    pub end: End,
    /// What it really cost, if the answer says so.
    #[serde(default)]
    pub actual: Option<Points>,
    /// What the answer says about the bucket.
    #[serde(default)]
    pub observed: Option<Observed>,
}

impl Outcome {
    /// Only what became of it.
    pub fn of(end: End) -> Self {
        Self { end, actual: None, observed: None }
    }
}

/// What became of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// Answered, and well.
    Ok,
    /// Refused by the provider for being too much.
    Throttled {
        /// How long to stay away, if it said so.
        retry_after: Option<Micros>,
    },
    /// Failed.
    Failed(Failure),
    /// Given up by its holder; nobody knows whether the provider is still at it.
    Abandoned,
    /// Never sent.
    Unused,
}

/// How a call failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Failure {
    /// No connection, or it broke.
    Network,
    /// The service says that it failed.
    Server,
    /// No answer in time; the provider may still be at it.
    TimedOut,
    /// The service answered, the request was at fault: a sign of life.
    Request,
}

/// What an answer says about the provider's bucket. What is missing or makes no sense is ignored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Observed {
    /// What is left.
    pub level: Option<Points>,
    /// Its size.
    pub capacity: Option<Points>,
    /// What comes back per second.
    pub restore_per_s: Option<Points>,
}

/// Maps by keys that were hashed or are short, with a fixed and fast hash: keys come from authenticated callers.
pub(super) use crate::hash::KeyMap;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_holder_is_checked_and_keeps_its_text() {
        assert_eq!(Holder::new("job-1#2").unwrap().as_str(), "job-1#2");
        for n in [0, 7, 10, 99, 100, u64::MAX] {
            assert_eq!(Holder::number(n).as_str(), format!("n-{n}"));
        }
        for bad in ["", "a b", "ä", &"x".repeat(48)] {
            assert!(Holder::new(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_holder_names_its_job() {
        let job = JobId::from_parts(1_763_000_000_000, 7);
        for call in [0, 1, 999, u32::MAX] {
            assert_eq!(Holder::of_job(job, call).unwrap().job(), Some(job));
        }
        assert_eq!(Holder::number(3).job(), None);
    }

    #[test]
    fn a_target_survives_json_and_is_checked() {
        let target = Target::new("shopify").unwrap().with(Part::Account, "shop-a").unwrap();
        let json = serde_json::to_string(&target).unwrap();
        assert_eq!(serde_json::from_str::<Target>(&json).unwrap(), target);
        assert!(serde_json::from_str::<Target>(r#"{"domain":"a b"}"#).is_err());
        assert!(Target::new("x").unwrap().with(Part::Tenant, "a/b").is_err());
    }

    #[test]
    fn targets_that_lack_different_parts_have_different_keys() {
        let key = |part| {
            let (target, mut key) = (Target::new("d").unwrap().with(part, "x").unwrap(), String::new());
            target.key_into(1 << Part::Tenant as u8 | 1 << Part::Account as u8, &mut key);
            key
        };
        assert_eq!((&*key(Part::Tenant), &*key(Part::Account)), ("x/", "/x"));
    }
}
