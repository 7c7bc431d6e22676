//! From readings to what somebody is told. Pure: what is known of incidents goes in, what has changed comes out.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::condition::Verdict;
use super::message::{Filled, fill};
use super::readings::{Readings, Scope, Target};
use super::rule::Rule;
use super::{MAX_INCIDENTS, Severity, Silence, UNMEASURED_MS};
use crate::ids::JobId;
use crate::time::Timestamp;

/// How far an incident is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Over, or never begun; kept for its number.
    Quiet,
    /// The condition holds, not yet for long enough.
    Pending,
    /// It is an alert.
    Firing,
}

/// What is known of a rule about a target.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Incident {
    /// The rule.
    pub rule: String,
    /// The target, as text.
    pub target: String,
    /// How many incidents of these two there have been, this one included.
    pub number: u64,
    /// How far it is.
    pub phase: Phase,
    /// How bad.
    pub severity: Severity,
    /// Since when the condition holds; when it was over, if it is.
    pub since: Timestamp,
    /// When it was last measured.
    pub seen_at: Timestamp,
    /// When somebody was last told.
    pub told_at: Option<Timestamp>,
    /// How often somebody was told that it goes on.
    pub told: u32,
    /// What they are told now.
    pub message: String,
    /// What to do.
    pub runbook: String,
    /// The job that told each channel last: the next word to that channel waits for it.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub told_by: BTreeMap<String, JobId>,
}

/// Incidents by rule and target.
pub type Book = BTreeMap<(String, String), Incident>;

/// Why somebody is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// It has begun.
    Fired,
    /// It goes on.
    Repeated,
    /// It is over.
    Resolved,
    /// Somebody tries a channel.
    Test,
}

impl What {
    /// Its name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fired => "fired",
            Self::Repeated => "repeated",
            Self::Resolved => "resolved",
            Self::Test => "test",
        }
    }
}

/// Somebody is to be told.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Telling {
    /// Why.
    pub what: What,
    /// The rule.
    pub rule: String,
    /// The target.
    pub target: String,
    /// Number of the incident.
    pub number: u64,
    /// How often somebody was told before that it goes on.
    pub nth: u32,
    /// How bad it is.
    pub severity: Severity,
    /// What to say.
    pub message: String,
    /// What to do.
    pub runbook: String,
    /// Whom.
    pub channels: Vec<String>,
    /// Since when.
    pub since: Timestamp,
    /// When this was found.
    pub at: Timestamp,
}

impl Telling {
    /// The incident, the same in every telling of it.
    pub fn incident(&self) -> String {
        format!("{}/{}/{}", self.rule, self.target, self.number)
    }

    /// What makes this telling one of a kind, whichever process found it.
    pub fn key(&self, channel: &str) -> String {
        format!("{}/{}/{}/{channel}", self.incident(), self.what.as_str(), self.nth)
    }
}

/// What an evaluation found.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Evaluated {
    /// Incidents that have changed and are to be kept, before the next evaluation.
    pub changed: Vec<Incident>,
    /// Who is to be told.
    pub tellings: Vec<Telling>,
}

/// Judges every rule about every target that it is about.
pub fn evaluate(
    rules: &[Rule],
    readings: &Readings,
    book: &Book,
    silences: &[Silence],
    now: Timestamp,
) -> Evaluated {
    let mut out = Evaluated::default();
    let mut open = book.values().filter(|i| i.phase != Phase::Quiet).count();
    let mut judged = std::collections::BTreeSet::new();
    for rule in rules.iter().filter(|r| r.enabled) {
        let scope = rule.condition.scope();
        let whole = (scope == Scope::System).then(Target::system);
        let targets: Vec<Target> = readings.targets(scope).cloned().chain(whole).collect();
        for target in targets {
            if !rule.is_about(&target.name) {
                continue;
            }
            let key = (rule.id.clone(), target.to_string());
            if !judged.insert(key.clone()) {
                continue;
            }
            let verdict = rule.condition.judge(readings, &target, rule.least_samples);
            let silent = silences.iter().any(|s| s.covers(&key.0, &key.1, now));
            let known = book.get(&key);
            if known.is_none_or(|i| i.phase == Phase::Quiet) && open >= MAX_INCIDENTS {
                continue;
            }
            let message = |value, bar| fill(rule, &target, readings, Filled { value, bar });
            let step = Step { rule, target: &key.1, verdict, silent, now };
            let (next, telling) = step.take(known, message);
            if let Some(next) = next.filter(|next| Some(next) != known) {
                open += usize::from(
                    next.phase == Phase::Pending && known.is_none_or(|k| k.phase == Phase::Quiet),
                );
                out.changed.push(next);
            }
            out.tellings.extend(telling);
        }
    }
    // What no rule is about any more, or is not measured at all.
    for (key, incident) in book.iter().filter(|(key, i)| i.phase != Phase::Quiet && !judged.contains(*key)) {
        // Several kinds may have a rule of one name.
        let name = key.1.split_once(':').map_or("", |(_, name)| name);
        let mut own = rules.iter().filter(|r| r.id == key.0);
        let rule = own.clone().find(|r| r.enabled && r.is_about(name));
        if rule.is_some() && now.since(incident.seen_at) <= UNMEASURED_MS {
            continue;
        }
        // A rule that is gone with its document still closes the pagers that it opened.
        let told = || incident.told_by.keys().cloned().chain(["log".to_owned()]).collect();
        let channels = rule.or(own.next()).map_or_else(told, |r| r.channels.clone());
        out.tellings.extend(resolved(incident, channels, now));
        out.changed.push(quiet(incident, now));
    }
    out
}

struct Step<'a> {
    rule: &'a Rule,
    target: &'a str,
    verdict: Verdict,
    silent: bool,
    now: Timestamp,
}

impl Step<'_> {
    fn take(
        &self,
        known: Option<&Incident>,
        message: impl Fn(f64, f64) -> String,
    ) -> (Option<Incident>, Option<Telling>) {
        let now = self.now;
        match (known.map_or(Phase::Quiet, |k| k.phase), self.verdict) {
            (Phase::Quiet, Verdict::Holds(value, bar)) => {
                let number = known.map_or(0, |k| k.number) + 1;
                let told_by = known.map(|k| k.told_by.clone()).unwrap_or_default();
                (Some(Incident { told_by, ..self.begun(number, message(value, bar)) }), None)
            }
            (Phase::Quiet, Verdict::Clear | Verdict::Unknown) => (None, None),
            (Phase::Pending, Verdict::Clear | Verdict::Unknown) => {
                // It was no incident: its number is free again.
                let back = |k: &Incident| Incident { number: k.number.saturating_sub(1), ..quiet(k, now) };
                (known.map(back), None)
            }
            (Phase::Firing, Verdict::Clear) => {
                let telling = known.and_then(|k| resolved(k, self.rule.channels.clone(), now));
                (known.map(|k| quiet(k, now)), telling)
            }
            (Phase::Firing, Verdict::Unknown) => match known {
                Some(k) if now.since(k.seen_at) > UNMEASURED_MS => {
                    (Some(quiet(k, now)), resolved(k, self.rule.channels.clone(), now))
                }
                _ => (None, None),
            },
            (Phase::Pending | Phase::Firing, Verdict::Holds(value, bar)) => {
                known.map_or((None, None), |k| self.goes_on(k.clone(), message(value, bar)))
            }
        }
    }

    fn begun(&self, number: u64, message: String) -> Incident {
        Incident {
            rule: self.rule.id.clone(),
            target: self.target.to_owned(),
            number,
            phase: Phase::Pending,
            severity: self.rule.severity,
            since: self.now,
            seen_at: self.now,
            told_at: None,
            told: 0,
            message,
            runbook: self.rule.runbook.clone(),
            told_by: BTreeMap::new(),
        }
    }

    fn goes_on(&self, mut incident: Incident, message: String) -> (Option<Incident>, Option<Telling>) {
        let now = self.now;
        // A clock that went back must not make it wait for what is past.
        incident.since = incident.since.min(now);
        incident.told_at = incident.told_at.map(|at| at.min(now));
        incident.message = message;
        incident.severity = self.rule.severity;
        incident.runbook.clone_from(&self.rule.runbook);
        // Kept for the look at when it was measured last: every evaluation would be a write.
        if now.since(incident.seen_at) >= UNMEASURED_MS / 5 || incident.seen_at > now {
            incident.seen_at = now;
        }
        let lasted = now.since(incident.since);
        if incident.phase == Phase::Pending && lasted > 0 && lasted >= self.rule.for_ms {
            incident.phase = Phase::Firing;
        }
        let repeat = self.rule.repeat_ms;
        let again = |at: Timestamp| repeat > 0 && now.since(at) >= repeat;
        let what = match incident.told_at {
            _ if incident.phase != Phase::Firing || self.silent => None,
            None => Some(What::Fired),
            Some(at) if again(at) => Some(What::Repeated),
            Some(_) => None,
        };
        let telling = what.map(|what| {
            incident.told += u32::from(what == What::Repeated);
            incident.told_at = Some(now);
            incident.seen_at = now;
            telling(&incident, what, self.rule.channels.clone(), now)
        });
        (Some(incident), telling)
    }
}

fn telling(incident: &Incident, what: What, channels: Vec<String>, now: Timestamp) -> Telling {
    Telling {
        what,
        rule: incident.rule.clone(),
        target: incident.target.clone(),
        number: incident.number,
        nth: incident.told,
        severity: incident.severity,
        message: incident.message.clone(),
        runbook: incident.runbook.clone(),
        channels,
        since: incident.since,
        at: now,
    }
}

/// Who heard of it hears that it is over, silence or not: pagers have to be closed.
fn resolved(incident: &Incident, channels: Vec<String>, now: Timestamp) -> Option<Telling> {
    incident.told_at.map(|_| Telling { nth: 0, ..telling(incident, What::Resolved, channels, now) })
}

fn quiet(incident: &Incident, now: Timestamp) -> Incident {
    Incident { phase: Phase::Quiet, since: now, told_at: None, told: 0, ..incident.clone() }
}
