//! What can be asked by a rule, and what was measured.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;

use crate::slo::{About, OBJECTIVES, Reading, Unit};

/// Of what there is a reading.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Scope {
    /// Of the whole.
    System,
    /// Of every queue.
    Queue,
    /// Of every kind.
    Kind,
    /// Of every domain of gates.
    Domain,
}

impl Scope {
    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::Queue => "queue",
            Self::Kind => "kind",
            Self::Domain => "domain",
        }
    }
}

/// What a reading is about: the whole, or one queue, kind or domain.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Target {
    /// Of what.
    pub scope: Scope,
    /// Its name; empty for the whole.
    pub name: String,
}

impl Target {
    /// The whole.
    pub fn system() -> Self {
        Self { scope: Scope::System, name: String::new() }
    }

    /// A queue.
    pub fn queue(name: impl Into<String>) -> Self {
        Self { scope: Scope::Queue, name: name.into() }
    }

    /// A kind.
    pub fn kind(name: impl Into<String>) -> Self {
        Self { scope: Scope::Kind, name: name.into() }
    }

    /// A domain of gates.
    pub fn domain(name: impl Into<String>) -> Self {
        Self { scope: Scope::Domain, name: name.into() }
    }
}

/// Whether a text names a target, as [`Target`] is written.
pub fn is_target(text: &str) -> bool {
    let (scope, name) = text.split_once(':').unwrap_or((text, ""));
    let named = [Scope::Queue, Scope::Kind, Scope::Domain].map(Scope::name);
    text == Scope::System.name() || (named.contains(&scope) && !name.is_empty())
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.scope {
            Scope::System => f.pad("system"),
            scope => write!(f, "{}:{}", scope.name(), self.name),
        }
    }
}

/// A reading that rules can ask for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ReadingName {
    /// Its name.
    pub name: &'static str,
    /// Of what.
    pub scope: Scope,
    /// In what it is counted.
    pub unit: Unit,
    /// What it is.
    pub help: &'static str,
}

macro_rules! readings {
    ($($scope:ident $name:literal $unit:ident $help:literal;)*) => {
        /// Readings of jobs, workers and the store. Those of the gates are the objectives of [`crate::slo`], by their names.
        pub const READINGS: &[ReadingName] = &[
            $(ReadingName { name: $name, scope: Scope::$scope, unit: Unit::$unit, help: $help }),*
        ];
    };
}

readings! {
    Queue "waiting" Count "ready jobs";
    Queue "active" Count "running jobs";
    Queue "error_rate" Percent "failed attempts of the last minute, of all that ended";
    Queue "processing_time" Seconds "mean time of the attempts that ended in the last minute";
    Queue "throughput" Count "jobs done in the last minute";
    Queue "oldest_ready" Seconds "how long the oldest ready job has waited";
    Queue "stalled" Count "jobs taken back from dead workers that have not run since";
    Queue "queue_workers" Count "workers that serve it";
    Queue "expected_queue_workers" Count "workers that should; set in the alerts file";
    Kind "dead_letters" Count "dead letters that nobody has looked at, up to 100";
    Kind "longest_run" Seconds "how long the longest running job of it has run";
    Kind "overdue" Seconds "how far the longest running job is beyond its timeout";
    System "dlq_size" Count "dead letters kept, but for token refreshes";
    System "dead_token_refreshes" Count "token refreshes among the dead letters, up to 1,000";
    System "dead_token_age" Seconds "age of the oldest of these that does not wait for its tenant";
    System "worker_count" Count "workers that announced themselves";
    System "expected_workers" Count "workers that there should be; set in the alerts file";
    System "store_failing" Count "1 while the store cannot be written to";
    System "gates_alone" Count "1 while a process decides gates without their backend";
    System "scheduler_lag" Seconds "how late the oldest tick is that is due and not decided";
}

/// What a reading of a job's own result is called: `result.` and the field.
pub(super) const RESULT: &str = "result.";

/// The reading of this name, with its scope and unit; numbers of a kind's newest result are `result.FIELD`.
pub fn known(name: &str) -> Option<(Scope, Unit)> {
    if name.strip_prefix(RESULT).is_some_and(|field| !field.is_empty() && field.len() <= 64) {
        return Some((Scope::Kind, Unit::Count));
    }
    let own = READINGS.iter().find(|r| r.name == name).map(|r| (r.scope, r.unit));
    own.or_else(|| {
        let objective = OBJECTIVES.iter().find(|o| o.id == name)?;
        let scope = match objective.about {
            About::Domain => Scope::Domain,
            About::Backend => Scope::System,
        };
        Some((scope, objective.unit))
    })
}

/// What was measured at one time.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Readings(BTreeMap<Target, BTreeMap<String, Reading>>);

impl Readings {
    /// Adds a value that rests on this many samples.
    pub fn add(&mut self, target: Target, name: &str, value: f64, samples: u64) {
        if value.is_finite() {
            self.0.entry(target).or_default().insert(name.to_owned(), Reading { value, samples });
        }
    }

    /// A value of this target, or else of the whole.
    pub fn get(&self, target: &Target, name: &str) -> Option<Reading> {
        let of = |target: &Target| self.0.get(target)?.get(name).copied();
        of(target).or_else(|| of(&Target::system()))
    }

    /// Targets of a scope.
    pub fn targets(&self, scope: Scope) -> impl Iterator<Item = &Target> {
        self.0.keys().filter(move |t| t.scope == scope)
    }

    /// Everything about a target.
    pub fn of(&self, target: &Target) -> impl Iterator<Item = (&str, Reading)> {
        self.0.get(target).into_iter().flatten().map(|(name, reading)| (name.as_str(), *reading))
    }
}

/// The readings as a table of Markdown, for the documentation.
pub fn table() -> String {
    let mut table = String::from("| Reading | Of | What it is |\n|---|---|---|\n");
    for r in READINGS {
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{}` | {} | {} |", r.name, r.scope.name(), r.help);
    }
    table
}
