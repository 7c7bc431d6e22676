//! What a payload must look like: a strict subset of JSON Schema (draft 2020-12).
//!
//! A schema is compiled when it is read and shared from then on. It fills in defaults, checks, and says which fields are
//! secret. Everything is bounded: the size of a schema, the steps of one check, the misfits that are named. A keyword that is
//! not known is refused when the schema is read, never ignored; nothing is ever fetched. `docs/guides/registry.md` lists
//! what there is, and ADR 0013 says why it is our own.
//!
//! Messages name places and expectations, never values: a payload can hold secrets.

mod check;
mod compile;
mod format;
mod hidden;
mod rewrite;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use self::format::Format;
use crate::limits;
use crate::payload::Payload;

/// A mistake in a schema.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SchemaProblem {
    /// Names of the fields that lead to it.
    pub path: Vec<String>,
    /// What is wrong.
    pub what: String,
}

/// Why a payload does not fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Misfit {
    /// Where, as a JSON pointer; empty for the payload itself.
    pub path: String,
    /// What was expected there.
    pub what: String,
}

impl fmt::Display for Misfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = if self.path.is_empty() { "/" } else { &self.path };
        write!(f, "{path}: {}", self.what)
    }
}

/// All misfits in one line.
pub fn sentence(misfits: &[Misfit]) -> String {
    misfits.iter().map(ToString::to_string).collect::<Vec<_>>().join("; ")
}

/// A compiled schema. Cheap to clone; two are equal if they were written alike.
#[derive(Clone)]
pub struct Schema {
    written: Arc<Value>,
    compiled: Arc<Compiled>,
}

impl Schema {
    /// Compiles a schema, or names everything that is wrong with it.
    pub fn compile(written: &Value) -> Result<Self, Vec<SchemaProblem>> {
        let compiled = compile::compile(written)?;
        Ok(Self { written: Arc::new(written.clone()), compiled: Arc::new(compiled) })
    }

    /// The schema as it was written.
    pub fn written(&self) -> &Value {
        &self.written
    }

    /// Checks a payload. Returns it with defaults filled in, `None` if nothing was missing.
    pub fn accept(&self, payload: &Payload) -> Result<Option<Payload>, Vec<Misfit>> {
        let filled = rewrite::fill(&self.compiled, payload.as_str());
        let text = filled.as_deref().unwrap_or(payload.as_str());
        check::check(&self.compiled, text)?;
        let Some(filled) = filled else { return Ok(None) };
        let whole = |e: crate::payload::InvalidPayload| {
            vec![Misfit { path: String::new(), what: format!("with its defaults {e}") }]
        };
        Payload::from_json_text(filled, limits::MAX_PAYLOAD_BYTES).map(Some).map_err(whole)
    }

    /// The payload as people may see it: what is marked `x-secret` or `writeOnly` is replaced. `None` if nothing was.
    pub fn mask(&self, payload: &Payload) -> Option<Payload> {
        rewrite::mask(&self.compiled, payload.as_str()).map(Payload::trusted)
    }

    /// A value as people may see it, like [`mask`](Self::mask).
    pub fn masked(&self, value: &Value) -> Value {
        let masked = rewrite::mask(&self.compiled, &value.to_string());
        masked.and_then(|text| serde_json::from_str(&text).ok()).unwrap_or_else(|| value.clone())
    }

    /// The schema as people may see it: without values of what is secret.
    #[must_use]
    pub fn shown(&self) -> Self {
        if !self.has_secrets() {
            return self.clone();
        }
        Self { written: Arc::new(hidden::shown(&self.written)), compiled: self.compiled.clone() }
    }

    /// The schema with what was hidden when `old` was shown.
    #[must_use]
    pub fn revealed(self, old: &Self) -> Self {
        if !old.has_secrets() {
            return self;
        }
        let mut written = (*self.written).clone();
        hidden::put_back(&mut written, &hidden::shown(&old.written), &old.written);
        // What is not secret any more is not put back: it would be shown from then on.
        Self::compile(&written).ok().filter(|revealed| revealed.shown() == self.shown()).unwrap_or(self)
    }

    /// Whether a secret is written as it is shown: only whoever knows the schema that was shown can put it back.
    pub fn is_hidden(&self) -> bool {
        self.has_secrets() && hidden::is_hidden(&self.written)
    }

    /// Whether something is still written as it was shown when `old` was, where that hid it.
    pub fn keeps_mask_of(&self, old: &Self) -> bool {
        let mut found = vec![];
        if old.has_secrets() {
            hidden::places(&self.written, &hidden::shown(&old.written), &mut String::new(), &mut found);
        }
        !found.is_empty()
    }

    /// A payload with what was hidden when `old` was shown, as far as it stays hidden under the schema of the new one.
    pub fn revealed_payload(&self, new: &mut Value, old: &Value, under: Option<&Self>) {
        let mut revealed = new.clone();
        hidden::put_back(&mut revealed, &self.masked(old), old);
        if under.is_some_and(|schema| schema.masked(&revealed) == schema.masked(new)) {
            *new = revealed;
        }
    }

    /// Where in a payload a secret is written as it is shown, as JSON pointers.
    pub fn hidden_in(&self, payload: &Value) -> Vec<String> {
        if !self.has_secrets() {
            return vec![];
        }
        // With something else in those places, what is secret is what is masked.
        let mut other = payload.clone();
        hidden::replace(&mut other, &Value::String(MASK.into()), &Value::Null);
        let mut found = vec![];
        hidden::places(payload, &self.masked(&other), &mut String::new(), &mut found);
        found
    }

    /// What is wrong with a payload in which secrets may be written as they are shown, but for what they themselves may be wrong with.
    pub fn misfits_beside_hidden(&self, payload: &Value) -> Vec<Misfit> {
        let Err(mut misfits) = self.accept(&Payload::trusted(payload.to_string())) else { return vec![] };
        let hidden = self.hidden_in(payload);
        let above = |upper: &str, lower: &str| {
            lower.strip_prefix(upper).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        misfits.retain(|m| !hidden.iter().any(|place| above(&m.path, place) || above(place, &m.path)));
        misfits
    }

    /// Whether any field is secret.
    pub fn has_secrets(&self) -> bool {
        self.compiled.nodes.iter().any(|n| n.secret)
    }
}

impl PartialEq for Schema {
    fn eq(&self, other: &Self) -> bool {
        self.written == other.written
    }
}

impl fmt::Debug for Schema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Schema({} parts)", self.compiled.nodes.len())
    }
}

impl Serialize for Schema {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.written.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Schema {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let written = Value::deserialize(deserializer)?;
        Self::compile(&written).map_err(|problems| {
            let said = problems.first().map_or(String::new(), |p| {
                if p.path.is_empty() { p.what.clone() } else { format!("{}: {}", p.path.join("."), p.what) }
            });
            serde::de::Error::custom(format!("schema: {said}"))
        })
    }
}

/// What secret values are replaced with.
pub const MASK: &str = "***";

/// Number of a part.
type NodeId = usize;

/// All parts; the first is the schema itself.
#[derive(Debug, Default)]
struct Compiled {
    nodes: Vec<Node>,
}

/// One part of a schema.
#[derive(Debug, Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Node {
    /// `false`: nothing fits.
    never: bool,
    /// Types that fit; none named: all.
    types: Vec<Type>,
    choices: Option<Vec<Value>>,
    numbers: Numbers,
    texts: Texts,
    arrays: Arrays,
    objects: Objects,
    all: Vec<NodeId>,
    any: Vec<NodeId>,
    one: Vec<NodeId>,
    not: Option<NodeId>,
    reference: Option<NodeId>,
    default: Option<Value>,
    secret: bool,
    /// Whether a default can be filled in at or below it.
    fills: bool,
    /// Whether something at or below it is secret.
    hides: bool,
}

/// A type of JSON.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Type {
    Null,
    Boolean,
    Integer,
    Number,
    String,
    Array,
    Object,
}

impl Type {
    const ALL: [(Self, &str); 7] = [
        (Self::Null, "null"),
        (Self::Boolean, "boolean"),
        (Self::Integer, "integer"),
        (Self::Number, "number"),
        (Self::String, "string"),
        (Self::Array, "array"),
        (Self::Object, "object"),
    ];

    fn name(self) -> &'static str {
        Self::ALL.iter().find(|(t, _)| *t == self).map_or("", |(_, name)| name)
    }
}

#[derive(Debug, Default)]
struct Numbers {
    minimum: Option<f64>,
    maximum: Option<f64>,
    above: Option<f64>,
    below: Option<f64>,
    multiple_of: Option<f64>,
}

#[derive(Debug, Default)]
struct Texts {
    min: Option<u64>,
    max: Option<u64>,
    pattern: Option<(String, regex_lite::Regex)>,
    format: Option<Format>,
}

#[derive(Debug, Default)]
struct Arrays {
    items: Option<NodeId>,
    min: Option<u64>,
    max: Option<u64>,
    unique: bool,
}

#[derive(Debug, Default)]
struct Objects {
    properties: BTreeMap<String, NodeId>,
    required: Vec<String>,
    others: Others,
    min: Option<u64>,
    max: Option<u64>,
}

/// What holds for properties that are not named.
#[derive(Debug, Default, Clone, Copy)]
enum Others {
    #[default]
    Allowed,
    Refused,
    Like(NodeId),
}
