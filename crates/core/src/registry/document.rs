//! A document: queues, kinds and retry policies, as one file or one request. Read whole; every mistake is named with its
//! place. Applying a document adds and changes what it names and leaves everything else alone.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::fields::{Fields, Problems, boolean, float, join, kind_of, parsed, text, texts, whole};
use super::reading::{Reading, Spoiled};
use super::schedule::ScheduleSpec;
use super::{KindSettings, Limiter, QueueSettings, Retention};
use crate::alerts::KindAlerts;
use crate::failure::Category;
use crate::ids::{EventName, KindName, QueueName};
use crate::limits;
use crate::near::nearest;
use crate::policies::{self, Policies};
use crate::retry::{Backoff, Jitter, RetryPolicy};
use crate::schema::Schema;

/// A mistake in a document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Problem {
    /// Where: `kinds."invoice.send".timeout_ms`. Empty for the document itself.
    pub path: String,
    /// What is wrong.
    pub what: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.path.is_empty() { f.write_str(&self.what) } else { write!(f, "{}: {}", self.path, self.what) }
    }
}

/// How a document is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// TOML.
    Toml,
    /// JSON.
    Json,
}

/// Queues, kinds and policies.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Document {
    /// Which document it is, if it says so; else that is told by where it came from.
    #[serde(rename = "document", skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Queues by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub queues: BTreeMap<QueueName, QueueSettings>,
    /// Kinds by name.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub kinds: BTreeMap<KindName, KindSettings>,
    /// Retry policies that differ from what ships.
    #[serde(skip_serializing_if = "Policies::is_empty")]
    pub policies: Policies,
}

impl Document {
    /// Reads a document.
    pub fn parse(text: &str, format: Format) -> Result<Self, Vec<Problem>> {
        Reading::of(text, format).into_document()
    }

    /// Reads a document from a value.
    pub fn read(value: &Value) -> Result<Self, Vec<Problem>> {
        Reading::of_value(value).into_document()
    }

    /// What can be understood and cannot be meant, with its place. Asked of what somebody writes now; what is kept goes on as it was.
    pub(super) fn doubts(&self) -> Vec<Problem> {
        let mut doubts = vec![];
        let mut retry = |path: &str, policy: &RetryPolicy| {
            for (field, what) in policy.doubts() {
                doubts.push(Problem { path: join(path, field), what });
            }
        };
        for (name, policy) in &self.policies.named {
            retry(&join("policies", name), policy);
        }
        for (category, policy) in &self.policies.categories {
            retry(&join("categories", category.as_str()), policy);
        }
        // One that has a name was looked at where it is.
        for (name, queue) in self.queues.iter().filter(|(_, queue)| queue.policy.is_none()) {
            retry(&join(&join("queues", name.as_str()), "retry"), &queue.retry);
        }
        for (name, kind) in &self.kinds {
            let path = join("kinds", name.as_str());
            if let (Some(policy), None) = (&kind.retry, &kind.policy) {
                retry(&join(&path, "retry"), policy);
            }
        }
        for (name, kind) in &self.kinds {
            let path = join("kinds", name.as_str());
            doubts.extend(kind.alerts.doubts().map(|what| Problem { path: join(&path, "alerts"), what }));
            let schedule = kind.schedule.as_ref().and_then(ScheduleSpec::doubt);
            doubts.extend(schedule.map(|(field, what)| Problem { path: format!("{path}.{field}"), what }));
        }
        doubts
    }

    /// Which document it is, if it came from there.
    pub fn known_as(&self, source: &str) -> String {
        // However somebody wrote the way to it.
        self.name.clone().unwrap_or_else(|| source.trim_start_matches("./").to_owned())
    }

    /// Sets every policy that is named to what the name means now.
    pub fn resolve(&mut self, stored: &Policies) {
        let mut policies = stored.clone();
        policies.merge(&self.policies);
        for kind in self.kinds.values_mut() {
            if let Some(policy) = kind.policy.as_deref().and_then(|n| policies.named(n)) {
                kind.retry = Some(policy.into_owned());
            }
        }
        for queue in self.queues.values_mut() {
            if let Some(policy) = queue.policy.as_deref().and_then(|n| policies.named(n)) {
                queue.retry = policy.into_owned();
            }
        }
    }

    /// The document as people may see it: without secrets of payloads.
    #[must_use]
    pub fn as_shown(mut self) -> Self {
        self.kinds = self.kinds.into_iter().map(|(name, kind)| (name, kind.as_shown())).collect();
        self
    }

    /// Hash of what it says, whatever the order in which it says it.
    pub fn hash(&self) -> String {
        hash_of(&serde_json::to_string(self).unwrap_or_default())
    }
}

/// Hash of a text, for telling two apart.
pub fn hash_of(text: &str) -> String {
    use fmt::Write as _;
    Sha256::digest(text.as_bytes()).iter().fold(String::with_capacity(64), |mut hex, byte| {
        let _ = write!(hex, "{byte:02x}");
        hex
    })
}

/// The name of a document; a path is one, too.
fn document_name(value: &Value) -> Result<String, String> {
    let name = text(value)?;
    let most = limits::MAX_NOTE_BYTES;
    if name.trim().is_empty() || name.len() > most || name.chars().any(char::is_control) {
        return Err(format!("a document's name has 1 to {most} bytes and no control characters"));
    }
    Ok(name)
}

/// The tables of a document.
pub(super) const TABLES: [&str; 5] = ["policies", "categories", "platforms", "queues", "kinds"];

/// Reads a whole document: what could be read, and which entries could not be but are there, so that others may name them.
pub(super) fn read_document(value: &Value, problems: &mut Problems) -> (Document, Spoiled) {
    let (mut document, mut spoiled) = (Document::default(), Spoiled::of(value));
    let Some(mut fields) = Fields::open(String::new(), value, problems) else { return (document, spoiled) };
    let [retries, categories, platforms, queues, kinds] = TABLES.map(|table| fields.get(table));
    document.name = fields.take("document", document_name);
    fields.end();
    document.policies = read_policies(retries, categories, platforms, &spoiled, problems);
    for (path, name, value) in entries::<QueueName>("queues", queues, problems) {
        let settings = read_queue(path, value, &document.policies, problems);
        document.queues.insert(name, settings.unwrap_or_default());
    }
    for (path, name, value) in entries::<KindName>("kinds", kinds, problems) {
        let kind = read_kind(path, value, &document.policies, problems);
        spoiled.note(&name, value, kind.as_ref().map(|(kind, has_queue)| (kind, *has_queue)));
        document.kinds.extend(kind.map(|(kind, _)| (name, kind)));
    }
    (document, spoiled)
}

/// The entries of a table whose keys are names.
fn entries<'v, N: std::str::FromStr<Err: fmt::Display>>(
    what: &str,
    value: Option<&'v Value>,
    problems: &mut Problems,
) -> Vec<(String, N, &'v Value)> {
    let Some(value) = value else { return vec![] };
    let Some(map) = value.as_object() else {
        problems.add(what.to_owned(), format!("it is {}, it should be a table", kind_of(value)));
        return vec![];
    };
    let mut read = vec![];
    for (name, value) in map {
        let path = join(what, name);
        match name.parse::<N>() {
            Ok(name) => read.push((path, name, value)),
            Err(e) => problems.add(path, e.to_string()),
        }
    }
    read
}

fn read_policies(
    named: Option<&Value>,
    categories: Option<&Value>,
    platforms: Option<&Value>,
    spoiled: &Spoiled,
    problems: &mut Problems,
) -> Policies {
    let mut read = Policies::default();
    for (path, name, value) in entries::<String>("policies", named, problems) {
        if let Err(why) = policies::check_name(&name) {
            problems.add(path.clone(), why);
        }
        // One that is wrong is there all the same.
        let policy = read_policy(path, value, problems).unwrap_or_else(RetryPolicy::standard);
        read.named.insert(name, policy);
    }
    if read.named.len() > limits::MAX_POLICIES {
        let what = format!("{} policies; at most {} are allowed", read.named.len(), limits::MAX_POLICIES);
        problems.add("policies".into(), what);
    }
    for (path, name, value) in entries::<String>("categories", categories, problems) {
        let Some(category) = Category::parse(&name) else {
            let near = nearest(&name, Category::ALL.map(Category::as_str));
            let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            problems.add(path, format!("there is no such category{near}"));
            continue;
        };
        let policy = match value.as_str() {
            Some(named) => {
                let found = read.named(named).map(std::borrow::Cow::into_owned);
                if found.is_none() && !spoiled.policies {
                    problems.add(path, format!("there is no policy {named:?} in the document or shipped"));
                }
                found
            }
            None => read_policy(path, value, problems),
        };
        read.categories.extend(policy.map(|p| (category, p)));
    }
    for (path, name, value) in entries("platforms", platforms, problems) {
        match float(value).and_then(|f| {
            if policies::FACTOR.contains(&f) { Ok(f) } else { Err(policies::FACTOR_RULE.to_owned()) }
        }) {
            Ok(factor) => {
                read.platforms.insert(name, factor);
            }
            Err(what) => problems.add(path, what),
        }
    }
    read
}

fn read_policy(path: String, value: &Value, problems: &mut Problems) -> Option<RetryPolicy> {
    let mut fields = Fields::open(path, value, problems)?;
    let max_attempts = fields.take("max_attempts", whole);
    if max_attempts.is_none() && fields.get("max_attempts").is_none() {
        fields.problem("max_attempts", "it is missing");
    }
    let jitter = fields.take("jitter", |v| {
        let known = [
            ("full", Jitter::Full),
            ("equal", Jitter::Equal),
            ("plus_tenth", Jitter::PlusTenth),
            ("none", Jitter::None),
        ];
        let given = text(v)?;
        let found = known.into_iter().find(|(name, _)| *name == given).map(|(_, jitter)| jitter);
        found.ok_or_else(|| format!("{given:?} is no jitter; there are full, equal, plus_tenth, none"))
    });
    let backoff = match fields.get("backoff") {
        Some(value) => {
            let path = fields.path("backoff");
            read_backoff(path, value, fields.problems())
        }
        None => {
            fields.problem("backoff", "it is missing");
            None
        }
    };
    let retry_on = fields.take("retry_on", texts).unwrap_or_default();
    let no_retry_on = fields.take("no_retry_on", texts).unwrap_or_default();
    let policy = RetryPolicy {
        max_attempts: max_attempts.unwrap_or(1),
        backoff: backoff.clone().unwrap_or(Backoff::None),
        jitter: jitter.unwrap_or(Jitter::PlusTenth),
        retry_on,
        no_retry_on,
    };
    for (field, why) in policy.faults() {
        fields.problem(field, why);
    }
    fields.end();
    backoff.and(max_attempts).map(|_| policy)
}

fn read_backoff(path: String, value: &Value, problems: &mut Problems) -> Option<Backoff> {
    const TYPES: &str = "exponential, fixed, linear, immediate, none";
    let word;
    let value = if let Some(name) = value.as_str() {
        word = serde_json::json!({ "type": name });
        &word
    } else {
        value
    };
    let mut fields = Fields::open(path, value, problems)?;
    let kind = fields.take("type", text);
    let needed = |fields: &mut Fields<'_, '_>, key: &'static str, key_ms: &'static str| {
        let span = fields.span(key, key_ms);
        if span.is_none() && fields.get(key).is_none() && fields.get(key_ms).is_none() {
            fields.problem(key_ms, "it is missing");
        }
        span
    };
    let backoff = match kind.as_deref() {
        Some("exponential") => {
            let base = needed(&mut fields, "base", "base_ms");
            let cap = fields.span("cap", "cap_ms").unwrap_or(3_600_000);
            let factor = fields.take("factor", float).unwrap_or(2.0);
            base.map(|base_ms| Backoff::Exponential { base_ms, factor, cap_ms: cap })
        }
        Some("fixed") => needed(&mut fields, "delay", "delay_ms").map(|delay_ms| Backoff::Fixed { delay_ms }),
        Some("linear") => {
            let step = needed(&mut fields, "step", "step_ms");
            let cap = fields.span("cap", "cap_ms").unwrap_or(3_600_000);
            step.map(|step_ms| Backoff::Linear { step_ms, cap_ms: cap })
        }
        Some("immediate") => Some(Backoff::Immediate),
        Some("none") => Some(Backoff::None),
        Some(other) => {
            fields.problem("type", format!("{other:?} is no strategy; there are {TYPES}"));
            return None;
        }
        None => {
            if fields.get("type").is_none() {
                fields.problem("type", format!("it is missing; there are {TYPES}"));
            }
            return None;
        }
    };
    fields.end();
    backoff
}

/// `retry = "NAME"` or a policy of its own.
fn read_retry(fields: &mut Fields<'_, '_>, known: &Policies) -> (Option<RetryPolicy>, Option<String>) {
    let Some(value) = fields.get("retry") else { return (None, None) };
    match value.as_str() {
        // Whether the name is known is decided where the store's own policies are.
        Some(name) => (known.named(name).map(std::borrow::Cow::into_owned), Some(name.to_owned())),
        None => {
            let path = fields.path("retry");
            (read_policy(path, value, fields.problems()), None)
        }
    }
}

fn read_retention(fields: &mut Fields<'_, '_>, usual: Retention) -> Option<Retention> {
    let value = fields.get("retention")?;
    let path = fields.path("retention");
    let mut inner = Fields::open(path, value, fields.problems())?;
    let count = inner.take("count", whole).unwrap_or(usual.count);
    let age_ms = inner.span("age", "age_ms").unwrap_or(usual.age_ms);
    inner.end();
    Some(Retention { count, age_ms })
}

/// A kind keeps at most what it says; what it does not say is its queue's matter.
fn read_kind_retention(fields: &mut Fields<'_, '_>) -> Option<Retention> {
    read_retention(fields, Retention { count: limits::MAX_KIND_RETENTION, age_ms: limits::MAX_DELAY_MS })
}

fn read_queue(
    path: String,
    value: &Value,
    known: &Policies,
    problems: &mut Problems,
) -> Option<QueueSettings> {
    let mut fields = Fields::open(path, value, problems)?;
    let usual = QueueSettings::default();
    let limiter = fields.get("limiter").and_then(|value| {
        let path = fields.path("limiter");
        let mut inner = Fields::open(path, value, fields.problems())?;
        let (max, per) = (inner.take("max", whole), inner.span("per", "per_ms"));
        if max.is_none() && inner.get("max").is_none() {
            inner.problem("max", "it is missing");
        }
        if per.is_none() && inner.get("per").is_none() && inner.get("per_ms").is_none() {
            inner.problem("per", "it is missing");
        }
        inner.end();
        Some(Limiter { max: max?, per_ms: per? })
    });
    let (retry, policy) = read_retry(&mut fields, known);
    let settings = QueueSettings {
        concurrency: fields.take("concurrency", whole),
        worker_concurrency: fields.take("worker_concurrency", whole),
        group_concurrency: fields.take("group_concurrency", whole),
        limiter,
        max_ready: fields.take("max_ready", whole),
        max_ready_per_tenant: fields.take("max_ready_per_tenant", whole),
        weight: fields.take("weight", whole).unwrap_or(usual.weight),
        max_wait_ms: fields.span("max_wait", "max_wait_ms").unwrap_or(usual.max_wait_ms),
        retention: read_retention(&mut fields, Retention::default()).unwrap_or_default(),
        retry: retry.unwrap_or(usual.retry),
        policy,
    };
    for (field, why) in settings.faults() {
        // What is wrong inside a policy was said where it is.
        if field != "retry" {
            fields.problem(field, why);
        }
    }
    fields.end();
    Some(settings)
}

/// Reads a kind, and says whether it names a queue.
fn read_kind(
    path: String,
    value: &Value,
    known: &Policies,
    problems: &mut Problems,
) -> Option<(KindSettings, bool)> {
    let mut fields = Fields::open(path, value, problems)?;
    let queue = fields.take("queue", parsed);
    if queue.is_none() && fields.get("queue").is_none() {
        fields.problem("queue", "it is missing: a kind needs a queue");
    }
    let placeholder = || QueueName::new("default").ok();
    let mut kind = KindSettings::new(queue.clone().or_else(placeholder)?);
    (kind.retry, kind.policy) = read_retry(&mut fields, known);
    kind.description = fields.take("description", text).unwrap_or_default();
    kind.priority = fields.take("priority", parsed).unwrap_or_default();
    kind.timeout_ms = fields.span("timeout", "timeout_ms").unwrap_or(limits::DEFAULT_TIMEOUT_MS);
    kind.max_attempts = fields.take("max_attempts", whole);
    kind.connector = fields.take("connector", parsed);
    kind.concurrency = fields.take("concurrency", whole);
    kind.retention = read_kind_retention(&mut fields);
    kind.on = read_events(&mut fields);
    kind.failures = read_failures(&mut fields);
    if let Some(value) = fields.get("alerts") {
        let (alerts, wrong) = KindAlerts::read_all(value);
        for why in wrong {
            fields.problem("alerts", why);
        }
        kind.alerts = alerts;
    }
    kind.schedule = fields.take("schedule", ScheduleSpec::read);
    kind.schema = read_schema(&mut fields);
    // Only a copy of a registry says no: there a handler registered it.
    kind.managed = fields.take("managed", boolean).unwrap_or(true);
    kind.document = fields.take("document", text);
    for (field, why) in kind.faults() {
        match field.split_once('.') {
            Some((outer, inner)) => {
                let path = join(&fields.path(outer), inner);
                fields.problems().add(path, why);
            }
            None if field != "retry" => fields.problem(field, why),
            None => {}
        }
    }
    fields.end();
    Some((kind, queue.is_some()))
}

fn read_events(fields: &mut Fields<'_, '_>) -> Vec<EventName> {
    // One name need not be a list.
    let one_or_many = |v: &Value| if v.is_string() { text(v).map(|t| vec![t]) } else { texts(v) };
    let names = fields.take("on", one_or_many).unwrap_or_default();
    let mut events = vec![];
    for name in names {
        match EventName::new(&name) {
            Ok(event) if events.contains(&event) => fields.problem("on", format!("{name} is named twice")),
            Ok(event) => events.push(event),
            Err(e) => fields.problem("on", e.to_string()),
        }
    }
    events
}

fn read_failures(fields: &mut Fields<'_, '_>) -> BTreeMap<String, Category> {
    let mut failures = BTreeMap::new();
    let Some(value) = fields.get("failures") else { return failures };
    let path = fields.path("failures");
    for (path, code, value) in entries::<String>(&path, Some(value), fields.problems()) {
        let given = value.as_str().unwrap_or_default();
        match Category::parse(given) {
            Some(category) => {
                failures.insert(code, category);
            }
            None => {
                let names = Category::ALL.map(Category::as_str);
                let near = nearest(given, names);
                let near = near.map_or_else(
                    || format!("; there are {}", names.join(", ")),
                    |n| format!("; did you mean `{n}`?"),
                );
                fields.problems().add(path, format!("{given:?} is no category of failures{near}"));
            }
        }
    }
    failures
}

fn read_schema(fields: &mut Fields<'_, '_>) -> Option<Schema> {
    let value = fields.get("schema")?;
    let path = fields.path("schema");
    match Schema::compile(value) {
        Ok(schema) => Some(schema),
        Err(found) => {
            for problem in found {
                let path = problem.path.iter().fold(path.clone(), |path, name| join(&path, name));
                fields.problems().add(path, problem.what);
            }
            None
        }
    }
}
