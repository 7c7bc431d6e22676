//! A document as far as it could be read, and everything that is wrong with it in one pass: a mistake in one place hides none in
//! another, and what is there but wrong is not called missing.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::document::{TABLES, read_document};
use super::fields::Problems;
use super::misplaced::{masked, misplaced, oversized};
use super::order::{Order, Waits, taken};
use super::{Document, Format, Identity, KindSettings, Problem};
use crate::ids::{KindName, ScheduleName};
use crate::limits;
use crate::near::nearest;

/// A document as far as it could be read.
#[derive(Debug)]
pub struct Reading {
    document: Document,
    problems: Problems,
    spoiled: Spoiled,
}

/// What is there but could not be read: it may be named, and says nothing.
#[derive(Debug, Default)]
pub(super) struct Spoiled {
    /// Nobody knows which queues it has.
    pub(super) queues: bool,
    /// Nobody knows which policies it has.
    pub(super) policies: bool,
    /// Nobody knows which kinds it has.
    kinds: bool,
    /// Kinds whose queue could not be read.
    pub(super) queueless: BTreeSet<KindName>,
    /// Schedules that could not be read.
    schedules: BTreeSet<ScheduleName>,
}

impl Spoiled {
    /// Tables that are none, or whose names are misspelt.
    pub(super) fn of(value: &Value) -> Self {
        let map = value.as_object();
        let is_unsure = |table: &str| {
            let no_table = map.and_then(|m| m.get(table)).is_some_and(|t| !t.is_object() && !t.is_null());
            let strange = map.into_iter().flat_map(|m| m.keys());
            let mut strange = strange.filter(|key| !TABLES.contains(&key.as_str()) && *key != "document");
            map.is_none() || no_table || strange.any(|key| nearest(key, TABLES) == Some(table))
        };
        Self {
            queues: is_unsure("queues"),
            policies: is_unsure("policies"),
            kinds: is_unsure("kinds"),
            ..Self::default()
        }
    }

    /// Notes what could not be read of a kind.
    pub(super) fn note(&mut self, name: &KindName, value: &Value, kind: Option<(&KindSettings, bool)>) {
        if kind.is_none_or(|(_, has_queue)| !has_queue) {
            self.queueless.insert(name.clone());
        }
        // Of a kind that is no table nobody knows whether it has one.
        let may_have_one = kind.is_none() || value.get("schedule").is_some_and(|s| !s.is_null());
        if may_have_one && kind.is_none_or(|(kind, _)| kind.schedule.is_none()) {
            self.schedules.extend(ScheduleName::new(name.as_str()));
        }
    }
}

/// A schedule that is in force in a store.
#[derive(Debug, Clone, Copy)]
pub struct Standing<'a> {
    /// Its name.
    pub name: &'a ScheduleName,
    /// Those that it waits for.
    pub after: &'a [ScheduleName],
    /// The document that has it; `None`: somebody's own.
    pub document: Option<&'a str>,
}

impl Reading {
    /// Reads a document that somebody wrote.
    pub fn of(text: &str, format: Format) -> Self {
        if text.len() > limits::MAX_REGISTRY_BYTES {
            let (bytes, most) = (text.len(), limits::MAX_REGISTRY_BYTES);
            return Self::unreadable(format!("it has {bytes} bytes, at most {most} are allowed"));
        }
        let value = match format {
            Format::Json => serde_json::from_str(text).map_err(|e| format!("it is not JSON: {e}")),
            Format::Toml => toml::from_str(text).map_err(|e: toml::de::Error| {
                let at = e.span().map_or(0, |s| s.start);
                let line = text.bytes().take(at).filter(|b| *b == b'\n').count() + 1;
                format!("it is not TOML: line {line}: {}", e.message())
            }),
        };
        value.map_or_else(Self::unreadable, |value: Value| Self::of_value(&value).doubted())
    }

    fn doubted(mut self) -> Self {
        for Problem { path, what } in self.document.doubts() {
            self.problems.add(path, what);
        }
        self
    }

    /// Reads a document that a store has kept, or a copy of one.
    pub fn of_value(value: &Value) -> Self {
        let mut problems = Problems::default();
        let (document, spoiled) = read_document(value, &mut problems);
        Self { document, problems, spoiled }
    }

    fn unreadable(what: String) -> Self {
        let mut problems = Problems::default();
        problems.add(String::new(), what);
        Self { document: Document::default(), problems, spoiled: Spoiled::of(&Value::Null) }
    }

    /// Whether all of it could be read.
    pub fn is_sound(&self) -> bool {
        self.problems.is_empty()
    }

    /// The document, if all of it could be read.
    pub fn into_document(self) -> Result<Document, Vec<Problem>> {
        if self.is_sound() { Ok(self.document) } else { Err(self.problems.told()) }
    }

    /// Everything that is wrong with it by itself: what it names must be in it.
    pub fn alone(&self) -> Vec<Problem> {
        self.with(self.missing())
    }

    /// Whether it leaves something to a store: a queue, a policy or a schedule that it names and does not have, or a secret.
    pub fn leans_on_a_store(&self) -> bool {
        let named = misplaced(&self.document, None, &self.spoiled);
        let waits_for_another = || {
            let put = self.schedules();
            put.values().flatten().any(|other| !put.contains_key(other))
        };
        !named.is_empty()
            || !masked(&self.document, None).is_empty()
            || (!self.spoiled.kinds && waits_for_another())
    }

    /// Everything that is wrong with it, coming from `source`, in a store that has this registry and these schedules.
    pub fn beside(&self, there: &Document, source: &str, standing: &[Standing<'_>]) -> Vec<Problem> {
        let mut found = misplaced(&self.document, Some(there), &self.spoiled);
        found.extend(masked(&self.document, Some(there)));
        let this = self.document.identity(source);
        found.extend(oversized(&self.document, Some(there), Some(&this)));
        found.extend(self.misordered_beside(&this, standing));
        self.with(found)
    }

    fn with(&self, found: Vec<Problem>) -> Vec<Problem> {
        let mut all = self.problems.clone();
        all.extend(found);
        all.told()
    }

    fn missing(&self) -> Vec<Problem> {
        let mut found = misplaced(&self.document, None, &self.spoiled);
        found.extend(masked(&self.document, None));
        found.extend(oversized(&self.document, None, None));
        if !self.spoiled.kinds {
            let put = self.schedules();
            let put = put.iter().map(|(name, after)| (name, after.as_slice())).collect();
            found.extend(Order { put, ..Order::default() }.faults(true));
        }
        found
    }

    fn misordered_beside(&self, this: &Identity, standing: &[Standing<'_>]) -> Vec<Problem> {
        if self.spoiled.kinds {
            return vec![];
        }
        let put = self.schedules();
        let has_kind = |name: &ScheduleName| {
            KindName::new(name.as_str()).is_ok_and(|kind| self.document.kinds.contains_key(&kind))
        };
        let goes = |s: &&Standing<'_>| {
            let dropped = |document: &str| has_kind(s.name) || this.is(document);
            !put.contains_key(s.name) && s.document.is_some_and(dropped)
        };
        let own = standing.iter().filter(|s| s.document.is_none() && put.contains_key(s.name));
        let mut found: Vec<Problem> = own.map(|s| taken(s.name)).collect();
        let gone: BTreeSet<_> = standing.iter().filter(goes).map(|s| s.name).collect();
        let there: Waits<'_> =
            standing.iter().filter(|s| !gone.contains(s.name)).map(|s| (s.name, s.after)).collect();
        let put: Waits<'_> = put.iter().map(|(name, after)| (name, after.as_slice())).collect();
        // Whatever else may be other about them is not known here.
        let same = put.iter().filter(|(name, after)| there.get(*name) == Some(*after));
        let same = same.map(|(name, _)| *name).collect();
        found.extend(Order { there, put, same, gone }.faults(false));
        found
    }

    /// Its schedules with those that each waits for, as far as that could be read.
    fn schedules(&self) -> BTreeMap<ScheduleName, Vec<ScheduleName>> {
        let spoiled = self.spoiled.schedules.iter().map(|name| (name.clone(), vec![]));
        let read = self.document.kinds.iter().filter_map(|(kind, settings)| {
            let name = ScheduleName::new(kind.as_str()).ok()?;
            Some((name, settings.schedule.as_ref()?.after()))
        });
        spoiled.chain(read).collect()
    }

    /// What could be read.
    pub fn document(&self) -> &Document {
        &self.document
    }
}
