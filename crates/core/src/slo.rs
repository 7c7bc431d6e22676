//! What operations should keep to: objectives with their thresholds, once, as data. `tidegate slo` judges by them now, an alert engine
//! loads the same ones, and the table of `docs/guides/gates.md` is made from them.
//!
//! [`judge`] is pure: readings in, verdicts out. A reading that is missing, or rests on too few samples, is *not measured*, never
//! *met*.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

use crate::time::Millis;
use crate::why::grouped;

/// What a reading is counted in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// Milliseconds.
    Milliseconds,
    /// Seconds.
    Seconds,
    /// Of a hundred.
    Percent,
    /// How many.
    Count,
    /// Bytes.
    Bytes,
    /// Bytes in an hour.
    BytesPerHour,
}

impl Unit {
    /// A value for people: `100 ms`, `5 m`, `2 %`, `1 GB`.
    pub fn show(self, value: f64) -> String {
        let short = |value: f64| {
            let text = format!("{value:.1}");
            text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
        };
        match self {
            Self::Milliseconds if value < 1_000.0 => format!("{} ms", short(value)),
            Self::Milliseconds => Millis(value as i64).to_string(),
            Self::Seconds if value < 10.0 => format!("{} s", short(value)),
            Self::Seconds => Millis((value.round() * 1_000.0) as i64).to_string(),
            Self::Percent if value > 99.0 && value < 100.0 => {
                let text = format!("{value:.2}");
                format!("{} %", text.strip_suffix('0').unwrap_or(&text))
            }
            Self::Percent => format!("{} %", short(value)),
            Self::Count => grouped(value.max(0.0) as u64),
            Self::Bytes => bytes(value),
            Self::BytesPerHour => format!("{}/h", bytes(value)),
        }
    }
}

fn bytes(value: f64) -> String {
    let (sign, size) = (if value < 0.0 { "-" } else { "" }, value.abs());
    let (divided, unit) = match size {
        ..1e3 => return format!("{sign}{size:.0} B"),
        ..1e6 => (size / 1e3, "kB"),
        ..1e9 => (size / 1e6, "MB"),
        _ => (size / 1e9, "GB"),
    };
    let text = format!("{divided:.1}");
    format!("{sign}{} {unit}", text.strip_suffix(".0").unwrap_or(&text))
}

/// On which side of a threshold it is good to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sense {
    /// At or below it.
    AtMost,
    /// At or above it.
    AtLeast,
    /// Below it.
    Below,
}

/// What is judged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    /// Every gate domain by itself.
    Domain,
    /// What all domains share: the backend that decides.
    Backend,
}

/// Another reading that must be above a bound, or nothing is wrong.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct OnlyWhile {
    /// The objective whose reading it is.
    pub reading: &'static str,
    /// It must be above this.
    pub above: f64,
}

/// One objective: what is measured, where the bar is, and what to do.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Objective {
    /// Its stable name.
    pub id: &'static str,
    /// What is measured, in a few words.
    pub measures: &'static str,
    /// What is judged.
    pub about: About,
    /// What it is counted in.
    pub unit: Unit,
    /// On which side of the thresholds it is good to be.
    pub sense: Sense,
    /// Beyond this it is a warning.
    pub warning: Option<f64>,
    /// Beyond this it is critical.
    pub critical: Option<f64>,
    /// How long that must last before somebody is told, in milliseconds (`for` of a rule). A report judges the moment.
    pub for_ms: i64,
    /// Judged only while another reading is bad, too.
    pub only_while: Option<OnlyWhile>,
    /// Fewer samples say nothing.
    pub least_samples: u64,
    /// What to do: a page below `docs/runbooks`.
    pub runbook: &'static str,
    /// What somebody is told; `{where}`, `{value}` and `{bar}` are filled in.
    pub message: &'static str,
}

const MINUTE: i64 = 60_000;

const BASE: Objective = Objective {
    id: "",
    measures: "",
    about: About::Domain,
    unit: Unit::Count,
    sense: Sense::AtMost,
    warning: None,
    critical: None,
    for_ms: 0,
    only_while: None,
    least_samples: 1,
    runbook: "",
    message: "",
};

/// How long the longest wait must be for a full pool to be worth a word, in seconds.
pub const WAIT_BOUND_S: f64 = 60.0;

/// All objectives.
pub const OBJECTIVES: &[Objective] = &[
    Objective {
        id: "reservation_p95",
        measures: "time of a decision, p95",
        unit: Unit::Milliseconds,
        warning: Some(100.0),
        for_ms: 5 * MINUTE,
        least_samples: 20,
        runbook: "gates-out-of-reach.md",
        message: "{where}: 95 % of decisions take up to {value}, more than {bar}",
        ..BASE
    },
    Objective {
        id: "reservations_answered",
        measures: "admissions that the gates answered",
        unit: Unit::Percent,
        sense: Sense::AtLeast,
        warning: Some(99.9),
        critical: Some(99.0),
        for_ms: MINUTE,
        least_samples: 20,
        runbook: "gates-out-of-reach.md",
        message: "{where}: only {value} of admissions were answered, should be {bar}",
        ..BASE
    },
    Objective {
        id: "retry_success",
        measures: "calls that had to wait and then went well",
        unit: Unit::Percent,
        sense: Sense::AtLeast,
        warning: Some(95.0),
        for_ms: 5 * MINUTE,
        least_samples: 20,
        runbook: "rate-limit-emergency.md",
        message: "{where}: only {value} of the calls that waited went well, should be {bar}",
        ..BASE
    },
    Objective {
        id: "longest_wait",
        measures: "longest wait in line now",
        unit: Unit::Seconds,
        warning: Some(300.0),
        for_ms: 2 * MINUTE,
        runbook: "starvation.md",
        message: "{where}: somebody has waited for {value}, longer than {bar}",
        ..BASE
    },
    Objective {
        id: "slot_leakage",
        measures: "permits that lapsed instead of being given back",
        unit: Unit::Percent,
        warning: Some(2.0),
        critical: Some(5.0),
        for_ms: 5 * MINUTE,
        least_samples: 20,
        runbook: "stuck-slots.md",
        message: "{where}: {value} of permits lapsed instead of being given back, more than {bar}",
        ..BASE
    },
    Objective {
        id: "slot_utilisation",
        measures: "fullest pool, while somebody waits longer than a minute",
        unit: Unit::Percent,
        warning: Some(80.0),
        for_ms: 5 * MINUTE,
        only_while: Some(OnlyWhile { reading: "longest_wait", above: WAIT_BOUND_S }),
        runbook: "starvation.md",
        message: "{where}: {value} of a pool is taken, and somebody waits long",
        ..BASE
    },
    Objective {
        id: "consecutive_failures",
        measures: "calls that failed in a row",
        sense: Sense::Below,
        warning: Some(3.0),
        critical: Some(5.0),
        runbook: "breaker.md",
        message: "{where}: {value} calls in a row have failed",
        ..BASE
    },
    Objective {
        id: "breaker_open",
        measures: "breakers that are open",
        critical: Some(0.0),
        for_ms: MINUTE,
        runbook: "breaker.md",
        message: "{where}: {value} open, nothing passes there",
        ..BASE
    },
    Objective {
        id: "breaker_false_positives",
        measures: "breakers that opened while the service was well",
        unit: Unit::Percent,
        warning: Some(1.0),
        runbook: "breaker.md",
        message: "{where}: {value} of the openings came while calls went well, more than {bar}",
        ..BASE
    },
    Objective {
        id: "backend_memory",
        measures: "memory of the backend",
        about: About::Backend,
        unit: Unit::Bytes,
        warning: Some(1e9),
        critical: Some(2e9),
        for_ms: 3 * MINUTE,
        runbook: "gates-memory.md",
        message: "{where}: uses {value} of memory, more than {bar}",
        ..BASE
    },
    Objective {
        id: "backend_growth",
        measures: "growth of that memory",
        about: About::Backend,
        unit: Unit::BytesPerHour,
        warning: Some(1e7),
        least_samples: 10,
        runbook: "gates-memory.md",
        message: "{where}: memory grows by {value}, more than {bar}",
        ..BASE
    },
    Objective {
        id: "backend_keys",
        measures: "keys of the backend",
        about: About::Backend,
        unit: Unit::Count,
        warning: Some(100_000.0),
        for_ms: 3 * MINUTE,
        runbook: "gates-memory.md",
        message: "{where}: has {value} keys, more than {bar}",
        ..BASE
    },
];

/// An objective by its name.
pub fn objective(id: &str) -> Option<&'static Objective> {
    OBJECTIVES.iter().find(|o| o.id == id)
}

impl Objective {
    /// What is good: `≤ 2 %`.
    pub fn bar(&self) -> String {
        let sign = match self.sense {
            Sense::AtMost => "≤",
            Sense::AtLeast => "≥",
            Sense::Below => "<",
        };
        match self.warning.or(self.critical) {
            Some(0.0) => "none".into(),
            Some(bar) => format!("{sign} {}", self.unit.show(bar)),
            None => String::new(),
        }
    }

    /// What is critical: `> 5 %`; empty if nothing is.
    pub fn critical_bar(&self) -> String {
        let sign = match self.sense {
            Sense::AtMost => ">",
            Sense::AtLeast => "<",
            Sense::Below => "≥",
        };
        self.critical.map(|bar| format!("{sign} {}", self.unit.show(bar))).unwrap_or_default()
    }

    fn is_beyond(&self, value: f64, threshold: Option<f64>) -> bool {
        threshold.is_some_and(|threshold| match self.sense {
            Sense::AtMost => value > threshold,
            Sense::AtLeast => value < threshold,
            Sense::Below => value >= threshold,
        })
    }

    fn standing(&self, readings: &BTreeMap<String, Reading>) -> Standing {
        let Some(reading) = readings.get(self.id) else { return Standing::NotMeasured };
        if !reading.value.is_finite() || reading.samples < self.least_samples {
            return Standing::NotMeasured;
        }
        let excused = self
            .only_while
            .is_some_and(|only| readings.get(only.reading).is_none_or(|other| other.value <= only.above));
        if excused {
            Standing::Met
        } else if self.is_beyond(reading.value, self.critical) {
            Standing::Critical
        } else if self.is_beyond(reading.value, self.warning) {
            Standing::Warning
        } else {
            Standing::Met
        }
    }

    fn told(&self, place: &str, value: f64, standing: Standing) -> String {
        let bar = if standing == Standing::Critical { self.critical } else { self.warning };
        let bar = self.unit.show(bar.or(self.warning).unwrap_or_default());
        let value = self.unit.show(value);
        self.message.replace("{where}", place).replace("{value}", &value).replace("{bar}", &bar)
    }
}

/// One value that was measured.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Reading {
    /// In the objective's unit.
    pub value: f64,
    /// How much it rests on.
    pub samples: u64,
}

/// Everything that was measured, by the names of objectives.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Of every domain.
    pub domains: BTreeMap<String, BTreeMap<String, Reading>>,
    /// Of what all share.
    pub backend: BTreeMap<String, Reading>,
}

/// How an objective stands, from good to bad.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Standing {
    /// Nobody knows.
    NotMeasured,
    /// As it should be.
    Met,
    /// Look at it.
    Warning,
    /// Act now.
    Critical,
}

/// An objective, judged.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Name of the objective.
    pub objective: String,
    /// The domain; none where it is about what all share.
    pub domain: Option<String>,
    /// What was measured, in the objective's unit.
    pub value: Option<f64>,
    /// How much that rests on.
    pub samples: u64,
    /// How it stands.
    pub standing: Standing,
    /// What somebody is told, if it is not met.
    pub message: Option<String>,
}

/// Judges what was measured: every objective, for every domain that it is about.
pub fn judge(measured: &Measured) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for objective in OBJECTIVES {
        match objective.about {
            About::Backend => verdicts.push(verdict(objective, None, &measured.backend)),
            About::Domain => verdicts.extend(
                measured.domains.iter().map(|(domain, readings)| verdict(objective, Some(domain), readings)),
            ),
        }
    }
    verdicts
}

fn verdict(objective: &Objective, domain: Option<&str>, readings: &BTreeMap<String, Reading>) -> Verdict {
    let (reading, standing) = (readings.get(objective.id), objective.standing(readings));
    let message = reading
        .filter(|_| standing >= Standing::Warning)
        .map(|r| objective.told(domain.unwrap_or("the gates' backend"), r.value, standing));
    Verdict {
        objective: objective.id.into(),
        domain: domain.map(str::to_owned),
        value: reading.map(|r| r.value).filter(|v| v.is_finite()),
        samples: reading.map_or(0, |r| r.samples),
        standing,
        message,
    }
}

/// The objectives as a table of Markdown, for the documentation.
pub fn table() -> String {
    let mut table = String::from(
        "| Objective | Measured | Bar | Critical | For | Runbook |\n|---|---|---|---|---|---|\n",
    );
    for o in OBJECTIVES {
        let lasts = if o.for_ms == 0 { "at once".to_owned() } else { Millis(o.for_ms).to_string() };
        let page = o.runbook.trim_end_matches(".md");
        let (id, measures, bar, file) =
            (o.id, o.measures, format!("{} | {}", o.bar(), o.critical_bar()), o.runbook);
        // Writing to a string cannot fail.
        let _ = writeln!(table, "| `{id}` | {measures} | {bar} | {lasts} | [{page}](../runbooks/{file}) |");
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(domain: &[(&str, f64, u64)]) -> Measured {
        let readings = domain
            .iter()
            .map(|(id, value, samples)| ((*id).to_owned(), Reading { value: *value, samples: *samples }));
        Measured { domains: [("shop".to_owned(), readings.collect())].into(), ..Measured::default() }
    }

    fn standing(measured: &Measured, id: &str) -> Standing {
        judge(measured).iter().find(|v| v.objective == id).map(|v| v.standing).unwrap()
    }

    #[test]
    fn thresholds_are_those_that_were_agreed() {
        for (id, met, warning, critical) in [
            ("reservation_p95", 100.0, Some(101.0), None),
            ("reservations_answered", 99.9, Some(99.8), Some(98.9)),
            ("retry_success", 95.0, Some(94.0), None),
            ("longest_wait", 300.0, Some(301.0), None),
            ("slot_leakage", 2.0, Some(2.1), Some(5.1)),
            ("consecutive_failures", 2.0, Some(3.0), Some(5.0)),
            ("breaker_open", 0.0, None, Some(1.0)),
            ("breaker_false_positives", 1.0, Some(1.1), None),
        ] {
            let at = |value| standing(&of(&[(id, value, 1_000)]), id);
            assert_eq!(at(met), Standing::Met, "{id}");
            for (value, expected) in [(warning, Standing::Warning), (critical, Standing::Critical)] {
                assert_eq!(value.map_or(expected, at), expected, "{id} {value:?}");
            }
        }
        let backend = |id: &str, value| {
            let backend = [(id.to_owned(), Reading { value, samples: 100 })].into();
            standing(&Measured { backend, ..Measured::default() }, id)
        };
        assert_eq!(backend("backend_memory", 1.5e9), Standing::Warning);
        assert_eq!(backend("backend_memory", 2.1e9), Standing::Critical);
        assert_eq!(backend("backend_growth", 1.1e7), Standing::Warning);
        assert_eq!(backend("backend_keys", 100_001.0), Standing::Warning);
    }

    #[test]
    fn a_full_pool_is_a_fault_only_while_somebody_waits_long() {
        let full = |wait| {
            standing(&of(&[("slot_utilisation", 100.0, 1), ("longest_wait", wait, 1)]), "slot_utilisation")
        };
        assert_eq!(full(0.0), Standing::Met);
        assert_eq!(full(WAIT_BOUND_S), Standing::Met);
        assert_eq!(full(WAIT_BOUND_S + 1.0), Standing::Warning);
        assert_eq!(standing(&of(&[("slot_utilisation", 100.0, 1)]), "slot_utilisation"), Standing::Met);
    }

    #[test]
    fn too_few_samples_no_reading_and_no_number_are_not_measured() {
        assert_eq!(standing(&of(&[("slot_leakage", 50.0, 19)]), "slot_leakage"), Standing::NotMeasured);
        assert_eq!(standing(&of(&[]), "slot_leakage"), Standing::NotMeasured);
        assert_eq!(standing(&of(&[("slot_leakage", f64::NAN, 99)]), "slot_leakage"), Standing::NotMeasured);
    }

    #[test]
    fn a_breach_is_told_with_its_numbers() {
        let verdicts = judge(&of(&[("slot_leakage", 5.4, 500)]));
        let told = verdicts.iter().find_map(|v| v.message.clone()).unwrap();
        assert_eq!(told, "shop: 5.4 % of permits lapsed instead of being given back, more than 5 %");
    }

    #[test]
    fn names_are_unique_and_every_objective_has_a_bar_and_a_message() {
        let mut names: Vec<&str> = OBJECTIVES.iter().map(|o| o.id).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), OBJECTIVES.len());
        for o in OBJECTIVES {
            assert!(o.warning.or(o.critical).is_some() && o.message.starts_with("{where}: "), "{}", o.id);
            assert!(o.only_while.is_none_or(|only| objective(only.reading).is_some()), "{}", o.id);
            serde_json::to_string(o).unwrap();
        }
    }

    #[test]
    fn values_are_for_people() {
        for (unit, value, text) in [
            (Unit::Milliseconds, 0.4, "0.4 ms"),
            (Unit::Seconds, 300.0, "5 m"),
            (Unit::Percent, 99.95, "99.95 %"),
            (Unit::Percent, 99.9, "99.9 %"),
            (Unit::Percent, 2.0, "2 %"),
            (Unit::Bytes, 1.5e9, "1.5 GB"),
            (Unit::BytesPerHour, 1e7, "10 MB/h"),
            (Unit::BytesPerHour, -2_000.0, "-2 kB/h"),
            (Unit::Count, 100_000.0, "100,000"),
        ] {
            assert_eq!(unit.show(value), text);
        }
    }
}
