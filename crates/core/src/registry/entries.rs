//! What a registry is made of, counted the same way wherever it is counted.

use std::collections::BTreeSet;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Difference, Document};
use crate::ids::KindName;
use crate::why::grouped;

/// Something that a document can name: what it is (as in [`Difference::what`]) and its name.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Entry {
    what: &'static str,
    name: String,
}

/// What there is to name, with one of it and several of it in words.
const WHATS: [(&str, &str); 6] = [
    ("queue", "queues"),
    ("kind", "kinds"),
    ("schedule", "schedules"),
    ("policy", "policies"),
    ("category", "categories"),
    ("platform", "platforms"),
];

impl Entry {
    /// The entry that a difference is about; `None` for one of a newer version.
    pub fn of(difference: &Difference) -> Option<Self> {
        let (what, _) = WHATS.into_iter().find(|(what, _)| *what == difference.what)?;
        Some(Self { what, name: difference.name.clone() })
    }
}

/// An entry of the registry that a document does not name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Left {
    /// `queue`, `kind`, `schedule`, `policy`, `category` or `platform`.
    pub what: String,
    /// Its name.
    pub name: String,
    /// The document that has it, if one does.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub document: Option<String>,
}

impl Document {
    /// Everything that it names.
    pub fn entries(&self) -> BTreeSet<Entry> {
        let entry = |what: &'static str| move |name: &str| Entry { what, name: name.to_owned() };
        let scheduled = self.kinds.iter().filter(|(_, kind)| kind.schedule.is_some());
        let policies = &self.policies;
        let queues = self.queues.keys().map(|name| entry("queue")(name.as_str()));
        queues
            .chain(self.kinds.keys().map(|name| entry("kind")(name.as_str())))
            .chain(scheduled.map(|(name, _)| entry("schedule")(name.as_str())))
            .chain(policies.named.keys().map(|name| entry("policy")(name)))
            .chain(policies.categories.keys().map(|c| entry("category")(c.as_str())))
            .chain(policies.platforms.keys().map(|name| entry("platform")(name.as_str())))
            .collect()
    }

    /// What it has beside these, and which documents have it: what runs by itself first.
    pub fn left(&self, named: &BTreeSet<Entry>) -> Vec<Left> {
        let document_of = |entry: &Entry| {
            let kind =
                KindName::new(&entry.name).ok().filter(|_| matches!(entry.what, "kind" | "schedule"))?;
            self.kinds.get(&kind)?.document.clone()
        };
        let left = self.entries().into_iter().filter(|entry| !named.contains(entry));
        let mut left: Vec<Left> = left
            .map(|entry| Left {
                document: document_of(&entry),
                what: entry.what.to_owned(),
                name: entry.name,
            })
            .collect();
        left.sort_by_key(|left| (left.what != "schedule", left.document.is_none()));
        left
    }
}

/// How many of what.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Queues.
    pub queues: u64,
    /// Kinds.
    pub kinds: u64,
    /// Schedules of kinds.
    pub schedules: u64,
    /// Named retry policies.
    pub policies: u64,
    /// Policies of categories of failures.
    pub categories: u64,
    /// Factors of platforms.
    pub platforms: u64,
}

impl Counts {
    /// Counts entries.
    pub fn of<'e>(entries: impl IntoIterator<Item = &'e Entry>) -> Self {
        let mut counts = Self::default();
        for entry in entries {
            let n = match entry.what {
                "queue" => &mut counts.queues,
                "kind" => &mut counts.kinds,
                "schedule" => &mut counts.schedules,
                "policy" => &mut counts.policies,
                "category" => &mut counts.categories,
                _ => &mut counts.platforms,
            };
            *n += 1;
        }
        counts
    }

    /// All of them.
    pub fn total(&self) -> u64 {
        self.each().into_iter().sum()
    }

    fn each(&self) -> [u64; 6] {
        [self.queues, self.kinds, self.schedules, self.policies, self.categories, self.platforms]
    }
}

impl fmt::Display for Counts {
    /// `7 queues, 1 kind`; `nothing` where there is nothing.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let some = self.each().into_iter().zip(WHATS).filter(|(n, _)| *n > 0);
        let said: Vec<String> = some
            .map(|(n, (one, many))| format!("{} {}", grouped(n), if n == 1 { one } else { many }))
            .collect();
        if said.is_empty() { f.write_str("nothing") } else { f.write_str(&said.join(", ")) }
    }
}
