//! `waiting > 1000 and oldest_ready > 5m`: comparisons of readings, all of which must hold.

use std::fmt;
use std::str::FromStr;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::readings::{RESULT, Readings, Scope, Target, known};
use crate::slo::{Reading, Unit};
use crate::time::Millis;

/// Most comparisons in one condition.
const MAX_TERMS: usize = 4;

/// A condition. The first reading is what the alert is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    terms: Vec<Term>,
    text: String,
}

#[derive(Debug, Clone, PartialEq)]
struct Term {
    reading: String,
    op: Op,
    bound: Bound,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Op {
    Above,
    AtLeast,
    Below,
    AtMost,
}

#[derive(Debug, Clone, PartialEq)]
enum Bound {
    Number(f64),
    Reading(String),
}

/// How a condition came out.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Verdict {
    /// It holds; the first reading, and its bound.
    Holds(f64, f64),
    /// It does not.
    Clear,
    /// Something of it is not measured.
    Unknown,
}

impl Condition {
    /// Of what the condition is.
    pub fn scope(&self) -> Scope {
        known(&self.terms[0].reading).map_or(Scope::System, |(scope, _)| scope)
    }

    /// In what the first reading is counted.
    pub fn unit(&self) -> Unit {
        known(&self.terms[0].reading).map_or(Unit::Count, |(_, unit)| unit)
    }

    /// The first reading.
    pub fn reading(&self) -> &str {
        &self.terms[0].reading
    }

    /// Everything that is wrong with the units of its bounds. What was kept before they were asked for is read all the same.
    pub fn faults(&self) -> Vec<String> {
        let faults = self.text.split(" and ").filter_map(|text| {
            let mut words = text.split_whitespace();
            let (reading, _op) = (words.next()?, words.next()?);
            misfit(reading, &words.collect::<Vec<_>>().join(" "))
        });
        faults.collect()
    }

    /// Values of its readings, at a distance from their bounds, that make it hold, or not.
    pub fn example(&self, holds: bool) -> Vec<(&str, f64)> {
        let mut values = vec![];
        for term in &self.terms {
            let bound = match &term.bound {
                Bound::Number(n) => *n,
                Bound::Reading(name) => {
                    values.push((name.as_str(), 10.0));
                    10.0
                }
            };
            let above = matches!(term.op, Op::Above | Op::AtLeast) == holds;
            let value =
                if above { bound * 1.1 + 1.0 } else { bound * 0.5 - f64::from(u8::from(bound == 0.0)) };
            values.push((term.reading.as_str(), value));
        }
        values
    }

    pub(super) fn judge(&self, readings: &Readings, target: &Target, least_samples: u64) -> Verdict {
        let mut first = None;
        for term in &self.terms {
            let enough = |r: &Reading| first.is_some() || r.samples >= least_samples;
            let Some(value) = readings.get(target, &term.reading).filter(enough).map(|r| r.value) else {
                return Verdict::Unknown;
            };
            let bound = match &term.bound {
                Bound::Number(n) => Some(*n),
                Bound::Reading(name) => readings.get(target, name).map(|r| r.value),
            };
            let Some(bound) = bound else { return Verdict::Unknown };
            let holds = match term.op {
                Op::Above => value > bound,
                Op::AtLeast => value >= bound,
                Op::Below => value < bound,
                Op::AtMost => value <= bound,
            };
            if !holds {
                return Verdict::Clear;
            }
            first.get_or_insert((value, bound));
        }
        first.map_or(Verdict::Unknown, |(value, bound)| Verdict::Holds(value, bound))
    }
}

impl FromStr for Condition {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let terms = text.split(" and ").map(term).collect::<Result<Vec<_>, _>>()?;
        if terms.len() > MAX_TERMS {
            return Err(format!("at most {MAX_TERMS} comparisons"));
        }
        let scope = |name: &str| known(name).map_or(Scope::System, |(scope, _)| scope);
        let own = scope(&terms[0].reading);
        for term in &terms {
            let second = match &term.bound {
                Bound::Reading(name) => Some(name.as_str()),
                Bound::Number(_) => None,
            };
            for name in [Some(term.reading.as_str()), second].into_iter().flatten() {
                if scope(name) != own && scope(name) != Scope::System {
                    return Err(format!("`{name}` is not of what `{}` is", terms[0].reading));
                }
            }
        }
        Ok(Self { terms, text: text.trim().to_owned() })
    }
}

fn term(text: &str) -> Result<Term, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let [reading, op, bound @ ..] = words.as_slice() else {
        return Err(format!("{:?} is not like `waiting > 1000`", cut(text)));
    };
    let Some((_, unit)) = known(reading) else {
        return Err(format!("there is no reading {:?}", cut(reading)));
    };
    let op = match *op {
        ">" => Op::Above,
        ">=" => Op::AtLeast,
        "<" => Op::Below,
        "<=" => Op::AtMost,
        other => return Err(format!("{:?} is none of > >= < <=", cut(other))),
    };
    let bound = bound.join(" ");
    let bound = match number(&bound, unit) {
        Some(n) => Bound::Number(n),
        None if known(&bound).is_some() => Bound::Reading(bound),
        None => {
            return Err(format!(
                "{:?} is neither a number nor a reading; {}",
                cut(&bound),
                wants(reading, unit)
            ));
        }
    };
    Ok(Term { reading: (*reading).to_owned(), op, bound })
}

fn number(text: &str, unit: Unit) -> Option<f64> {
    let plain = text.trim_end_matches('%').trim().replace('_', "").parse::<f64>().ok();
    let plain = plain.filter(|n| n.is_finite());
    let span = || text.parse::<Millis>().ok().map(|ms| ms.0 as f64);
    match unit {
        Unit::Seconds => plain.or_else(|| span().map(|ms| ms / 1e3)),
        Unit::Milliseconds => plain.or_else(span),
        Unit::Percent | Unit::Count | Unit::Bytes | Unit::BytesPerHour => plain,
    }
}

/// What is wrong with the unit of a bound, if anything. Nothing is nothing in any unit, and what a job's own result counts is not known.
fn misfit(reading: &str, bound: &str) -> Option<String> {
    let (_, unit) = known(reading).filter(|_| !reading.starts_with(RESULT))?;
    let fits = match known(bound) {
        Some((_, other)) => other == unit,
        None if number(bound, Unit::Count).is_some_and(|n| n == 0.0) => true,
        None => match unit {
            Unit::Seconds | Unit::Milliseconds => bound.parse::<Millis>().is_ok(),
            Unit::Percent => bound.ends_with('%'),
            Unit::Count | Unit::Bytes | Unit::BytesPerHour => !bound.ends_with('%'),
        },
    };
    (!fits).then(|| format!("{:?} does not fit; {}", cut(bound), wants(reading, unit)))
}

/// How a bound of a reading is written.
fn wants(reading: &str, unit: Unit) -> String {
    match unit {
        Unit::Seconds | Unit::Milliseconds => {
            format!("`{reading}` is a time, compare it with a span: 250ms, 30s, 5m, 2h or 1d")
        }
        Unit::Percent => format!("`{reading}` is a share, compare it with a percentage: 5%"),
        Unit::Count => format!("`{reading}` is counted, compare it with a number without a unit: 1000"),
        Unit::Bytes => {
            format!("`{reading}` is counted in bytes, compare it with a number without a unit: 1000000")
        }
        Unit::BytesPerHour => {
            format!(
                "`{reading}` is counted in bytes an hour, compare it with a number without a unit: 1000000"
            )
        }
    }
}

fn cut(text: &str) -> String {
    text.chars().take(60).collect()
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl Serialize for Condition {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(&self.text)
    }
}

impl<'de> Deserialize<'de> for Condition {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        String::deserialize(d)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(condition: &str, values: &[(&str, f64)]) -> Verdict {
        let mut readings = Readings::default();
        for (name, value) in values {
            readings.add(Target::queue("q"), name, *value, 5);
        }
        condition.parse::<Condition>().unwrap().judge(&readings, &Target::queue("q"), 5)
    }

    #[test]
    fn comparisons_hold_or_do_not_and_what_is_missing_is_unknown() {
        assert_eq!(judged("waiting > 1000", &[("waiting", 1_001.0)]), Verdict::Holds(1_001.0, 1_000.0));
        assert_eq!(judged("waiting > 1_000", &[("waiting", 1_000.0)]), Verdict::Clear);
        assert_eq!(judged("waiting >= 1000", &[("waiting", 1_000.0)]), Verdict::Holds(1_000.0, 1_000.0));
        assert_eq!(judged("waiting > 1000", &[]), Verdict::Unknown);
        assert_eq!(judged("oldest_ready > 5m", &[("oldest_ready", 301.0)]), Verdict::Holds(301.0, 300.0));
        assert_eq!(judged("error_rate > 5%", &[("error_rate", 5.1)]), Verdict::Holds(5.1, 5.0));
        let both = "waiting > 10 and active <= 0";
        assert_eq!(judged(both, &[("waiting", 11.0), ("active", 1.0)]), Verdict::Clear);
        assert_eq!(judged(both, &[("waiting", 11.0), ("active", 0.0)]), Verdict::Holds(11.0, 10.0));
        assert_eq!(judged(both, &[("waiting", 11.0)]), Verdict::Unknown);
        let workers = "queue_workers < expected_queue_workers";
        assert_eq!(
            judged(workers, &[("queue_workers", 1.0), ("expected_queue_workers", 2.0)]),
            Verdict::Holds(1.0, 2.0)
        );
    }

    #[test]
    fn too_few_samples_are_not_measured() {
        let mut readings = Readings::default();
        readings.add(Target::queue("q"), "error_rate", 100.0, 4);
        let condition: Condition = "error_rate > 5".parse().unwrap();
        assert_eq!(condition.judge(&readings, &Target::queue("q"), 5), Verdict::Unknown);
        assert_eq!(condition.judge(&readings, &Target::queue("q"), 4), Verdict::Holds(100.0, 5.0));
    }

    #[test]
    fn a_bound_has_a_unit_that_fits_its_reading() {
        for (text, why) in [
            ("oldest_ready > 300", "`oldest_ready` is a time"),
            ("oldest_ready > 5%", "`oldest_ready` is a time"),
            ("error_rate > 5", "`error_rate` is a share"),
            ("waiting > 5%", "`waiting` is counted"),
            ("waiting > oldest_ready", "`waiting` is counted"),
            ("waiting > 10 and oldest_ready > 300", "`oldest_ready` is a time"),
        ] {
            let faults = text.parse::<Condition>().unwrap().faults();
            assert!(faults.len() == 1 && faults[0].contains(why), "{text}: {faults:?}");
        }
        for fine in [
            "oldest_ready > 5m and waiting > 1_000",
            "oldest_ready > 0",
            "error_rate > 5%",
            "error_rate > 2.5 %",
            "queue_workers < expected_queue_workers",
            "result.share > 5%",
        ] {
            assert_eq!(fine.parse::<Condition>().unwrap().faults(), Vec::<String>::new(), "{fine}");
        }
        let error = "waiting > 5m".parse::<Condition>().unwrap_err();
        assert!(error.ends_with("compare it with a number without a unit: 1000"), "{error}");
    }

    #[test]
    fn what_cannot_be_read_is_named() {
        for (bad, why) in [
            ("waiting", "is not like"),
            ("wating > 3", "no reading \"wating\""),
            ("waiting = 3", "none of"),
            ("waiting > lots", "neither a number"),
            ("waiting > 3 and slot_leakage > 2", "is not of what"),
            ("waiting > 1 and waiting > 2 and waiting > 3 and waiting > 4 and waiting > 5", "at most 4"),
        ] {
            let error = bad.parse::<Condition>().unwrap_err();
            assert!(error.contains(why), "{bad}: {error}");
        }
        assert!("result.missing_aggregates > 0".parse::<Condition>().is_ok());
    }
}
