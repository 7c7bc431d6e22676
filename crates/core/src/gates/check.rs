//! What is wrong with a configuration: the path of the setting, the problem, and what to write instead.

use std::collections::BTreeSet;

use super::config::{Adaptive, Breaker, Gate, GateSet, Kind, Part, Quota, Reported, Slots, Unit};
use super::units::{MAX_PRODUCT, Micros, Points, SECOND, Span};
use super::{MAX_GATES, MAX_LEVELS, MAX_SCOPES};
use crate::codes::{self, Code};
use crate::ids::ConnectorName;

/// A setting that cannot be accepted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{path}: {problem}; {hint}")]
pub struct InvalidGates {
    /// Where: `gates[2].smooth.burst`.
    pub path: String,
    /// What is wrong.
    pub problem: String,
    /// What to write instead.
    pub hint: String,
}

impl InvalidGates {
    fn new(path: impl Into<String>, problem: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { path: path.into(), problem: problem.into(), hint: hint.into() }
    }

    /// The stable error code.
    pub fn code(&self) -> Code {
        codes::INVALID_SETTING
    }
}

type Checked = Result<(), InvalidGates>;

/// Longest span that a gate may have: 31 days.
const MAX_SPAN: Micros = 31 * 24 * 3_600 * SECOND;

fn within(path: &str, value: i64, low: i64, high: i64, hint: &str) -> Checked {
    if (low..=high).contains(&value) {
        return Ok(());
    }
    Err(InvalidGates::new(path, format!("{value} is not between {low} and {high}"), hint))
}

fn span(path: &str, value: Span, low: Micros, high: Micros) -> Checked {
    if (low..=high).contains(&value.0) {
        return Ok(());
    }
    let problem = format!("{value} is not between {} and {}", Span(low), Span(high));
    Err(InvalidGates::new(path, problem, "write a span like 250ms, 30s or 5m"))
}

fn points(path: &str, value: f64) -> Checked {
    match Points::from_f64(value) {
        Some(Points(1..)) => Ok(()),
        _ => Err(InvalidGates::new(
            path,
            format!("{value} is no positive number of points"),
            format!("write a number from 0.001 to {}", Points::MAX),
        )),
    }
}

fn share(path: &str, value: f64) -> Checked {
    if value.is_finite() && (0.001..=0.999).contains(&value) {
        return Ok(());
    }
    Err(InvalidGates::new(path, format!("{value} is no share"), "write a number between 0.001 and 0.999"))
}

impl GateSet {
    /// Says what is wrong with the set, if anything.
    pub fn check(&self) -> Checked {
        if self.gates.is_empty() || self.gates.len() > MAX_GATES {
            let problem = format!("there are {} gates", self.gates.len());
            return Err(InvalidGates::new("gates", problem, format!("write 1 to {MAX_GATES} gates")));
        }
        self.check_line()?;
        let mut names = BTreeSet::new();
        let mut scopes = BTreeSet::new();
        for (i, gate) in self.gates.iter().enumerate() {
            let path = format!("gates[{i}]");
            self.check_gate(gate, &path)?;
            if !names.insert(gate.name.as_str()) {
                let problem = format!("{:?} is the name of two gates", gate.name);
                return Err(InvalidGates::new(
                    format!("{path}.name"),
                    problem,
                    "give every gate a name of its own",
                ));
            }
            scopes.insert((
                gate.per.iter().collect::<BTreeSet<_>>(),
                gate.only.iter().collect::<BTreeSet<_>>(),
            ));
        }
        if scopes.len() > MAX_SCOPES {
            let problem = format!("the gates have {} different pairs of `per` and `only`", scopes.len());
            return Err(InvalidGates::new("gates", problem, format!("use at most {MAX_SCOPES}")));
        }
        self.check_reported()?;
        span("quarantine", self.quarantine, 0, 24 * 3_600 * SECOND)?;
        span("use_by", self.use_by, 1_000, 60 * SECOND)?;
        match &self.fair {
            Some(fair) if fair.quantum.0 < 1 => Err(InvalidGates::new(
                "fair.quantum",
                format!("{} is not above 0", fair.quantum),
                "write the cost that one tenant may have in the line at a time, such as 50",
            )),
            _ => Ok(()),
        }
    }

    fn check_line(&self) -> Checked {
        let line = &self.line;
        let levels = i64::from(line.levels);
        within("line.levels", levels, 1, MAX_LEVELS as i64, "write how many priorities there are")?;
        within("line.max", i64::from(line.max), 1, 100_000, "write how many may wait in one line")?;
        span("line.max_wait", line.max_wait, SECOND, 24 * 3_600 * SECOND)?;
        span("line.grace", line.grace, 10_000, 60 * SECOND)?;
        let (mut names, mut taken) = (BTreeSet::new(), BTreeSet::new());
        for (name, level) in &line.priorities.0 {
            let path = format!("line.priorities.{name}");
            within(
                &path,
                i64::from(*level),
                1,
                levels,
                "1 is the highest priority, `line.levels` the lowest",
            )?;
            if !names.insert(name) {
                return Err(InvalidGates::new(path, "this name comes twice", "name every priority once"));
            }
            if !taken.insert(level) {
                let problem = format!("priority {level} has two names");
                return Err(InvalidGates::new(path, problem, "give every name a number of its own"));
            }
        }
        Ok(())
    }

    fn check_gate(&self, gate: &Gate, path: &str) -> Checked {
        if let Err(e) = ConnectorName::new(&gate.name) {
            let hint = "use letters, digits and . _ - : @ + =";
            return Err(InvalidGates::new(format!("{path}.name"), e.why, hint));
        }
        if gate.per.iter().collect::<BTreeSet<_>>().len() != gate.per.len() {
            return Err(InvalidGates::new(
                format!("{path}.per"),
                "a part comes twice",
                "name every part once",
            ));
        }
        if gate.per.contains(&Part::Endpoint) && !gate.only.is_empty() {
            let hint = "use one of `per: [endpoint]` and `only`";
            return Err(InvalidGates::new(
                format!("{path}.only"),
                "the gate already has a key per endpoint",
                hint,
            ));
        }
        self.check_kind(&gate.gate, path)?;
        for (key, kind) in &gate.overrides {
            let path = format!("{path}.overrides.{key}");
            if std::mem::discriminant(kind) != std::mem::discriminant(&gate.gate) {
                let hint = "an override has the kind of its gate";
                return Err(InvalidGates::new(path, "this is another kind of gate", hint));
            }
            self.check_kind(kind, &path)?;
        }
        Ok(())
    }

    fn check_kind(&self, kind: &Kind, path: &str) -> Checked {
        match kind {
            Kind::Smooth(s) => {
                let path = format!("{path}.smooth");
                rate(&format!("{path}.rate"), s.rate, s.unit)?;
                span(&format!("{path}.every"), s.every, 1_000, MAX_SPAN)?;
                rate(&format!("{path}.burst"), s.burst, s.unit)?;
                let scale = if s.unit == Unit::Cost { 1_000 } else { 1 };
                let most = MAX_PRODUCT / 2 / s.every.0 / scale;
                let hint = "shorten `every`: 60 per 1m is 1 per 1s";
                within(&format!("{path}.burst"), s.burst, 1, most, hint)
            }
            Kind::Window(w) => {
                let path = format!("{path}.window");
                rate(&format!("{path}.max"), w.max, w.unit)?;
                span(&format!("{path}.every"), w.every, 1_000, MAX_SPAN)
            }
            Kind::Reported(r) => check_bucket(r, &format!("{path}.reported")),
            Kind::Slots(s) => self.check_slots(s, &format!("{path}.slots")),
            Kind::Lock(l) => span(&format!("{path}.lock.poll"), l.poll, 1_000, 30 * SECOND),
            Kind::Breaker(b) => check_breaker(b, &format!("{path}.breaker")),
            Kind::Quota(q) => check_quota(q, &format!("{path}.quota")),
        }
    }

    fn check_slots(&self, s: &Slots, path: &str) -> Checked {
        let at = format!("{path}.limit");
        within(
            &at,
            i64::from(s.limit),
            1,
            100_000,
            "write a limit; to let nothing pass, park the jobs with `tidegate parks add`",
        )?;
        span(&format!("{path}.poll"), s.poll, 1_000, 30 * SECOND)?;
        let mut sum = 0;
        for (level, kept) in &s.reserved {
            let at = format!("{path}.reserved.{level}");
            within(
                &at,
                i64::from(*level),
                1,
                i64::from(self.line.levels),
                "name a priority of `line.levels`",
            )?;
            sum += i64::from(*kept);
        }
        within(
            &format!("{path}.reserved"),
            sum,
            0,
            i64::from(s.limit),
            "reserve no more than `limit` together",
        )?;
        match &s.adaptive {
            Some(a) => check_adaptive(a, s.limit, &format!("{path}.adaptive")),
            None => Ok(()),
        }
    }

    /// A call meets at most one reported bucket: which of two would its answer speak of?
    fn check_reported(&self) -> Checked {
        let all: Vec<&Gate> = self.gates.iter().filter(|g| matches!(g.gate, Kind::Reported(_))).collect();
        for (i, a) in all.iter().enumerate() {
            for b in &all[i + 1..] {
                let apart =
                    !a.only.is_empty() && !b.only.is_empty() && a.only.iter().all(|e| !b.only.contains(e));
                if !apart {
                    return Err(InvalidGates::new(
                        format!("gates.{}", b.name),
                        format!("a call could meet both {:?} and {:?}", a.name, b.name),
                        "give each reported bucket its own endpoint classes with `only`",
                    ));
                }
            }
        }
        Ok(())
    }
}

fn rate(path: &str, value: i64, unit: Unit) -> Checked {
    let most = if unit == Unit::Cost { Points::MAX.0 / 1_000 } else { 10_000_000 };
    within(
        path,
        value,
        1,
        most,
        "write a whole number; to let nothing pass, park the jobs with `tidegate parks add`",
    )
}

fn check_bucket(r: &Reported, path: &str) -> Checked {
    points(&format!("{path}.capacity"), r.capacity)?;
    points(&format!("{path}.restore_per_s"), r.restore_per_s)
}

fn check_adaptive(a: &Adaptive, limit: u32, path: &str) -> Checked {
    within(&format!("{path}.floor"), i64::from(a.floor), 1, i64::from(limit), "between 1 and `limit`")?;
    let at = format!("{path}.ceiling");
    within(&at, i64::from(a.ceiling), i64::from(limit), 100_000, "at least `limit`, where it starts")?;
    share(&format!("{path}.backoff"), a.backoff)
}

fn check_breaker(b: &Breaker, path: &str) -> Checked {
    within(
        &format!("{path}.failures"),
        i64::from(b.failures),
        1,
        1_000_000,
        "write how many failures open it",
    )?;
    if let Some(ratio) = b.ratio {
        share(&format!("{path}.ratio"), ratio)?;
    }
    span(&format!("{path}.window"), b.window, SECOND, 24 * 3_600 * SECOND)?;
    span(&format!("{path}.open"), b.open, 1_000, 24 * 3_600 * SECOND)?;
    within(&format!("{path}.probes"), i64::from(b.probes), 1, 100, "write how many may try at a time")?;
    span(&format!("{path}.ramp"), b.ramp, 0, 3_600 * SECOND)
}

fn check_quota(q: &Quota, path: &str) -> Checked {
    if q.slots.is_none() && q.cost.is_none() {
        return Err(InvalidGates::new(path, "it limits nothing", "write `slots`, `cost` or both"));
    }
    if let Some(slots) = q.slots {
        within(&format!("{path}.slots"), i64::from(slots), 1, 100_000, "write how many at a time")?;
    }
    if let Some(cost) = &q.cost {
        points(&format!("{path}.cost.max"), cost.max)?;
        span(&format!("{path}.cost.every"), cost.every, 1_000, MAX_SPAN)?;
    }
    within(&format!("{path}.hoarding"), i64::from(q.hoarding), 1, 1_000_000, "write a number of calls")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(json: &str) -> InvalidGates {
        serde_json::from_str::<GateSet>(json).unwrap().check().unwrap_err()
    }

    #[test]
    fn what_cannot_be_right_is_refused_with_its_path() {
        let gate = |g: &str| format!(r#"{{"gates":[{{"name":"a","gate":{g}}}]}}"#);
        for (kind, path) in [
            (r#"{"smooth":{"rate":0,"every":"1s","burst":1}}"#, "gates[0].smooth.rate"),
            (r#"{"smooth":{"rate":-5,"every":"1s","burst":1}}"#, "gates[0].smooth.rate"),
            (r#"{"smooth":{"rate":1,"every":"1s","burst":0}}"#, "gates[0].smooth.burst"),
            (r#"{"smooth":{"rate":1,"every":"0s","burst":1}}"#, "gates[0].smooth.every"),
            (r#"{"smooth":{"rate":9000000,"every":"30d","burst":9000000}}"#, "gates[0].smooth.burst"),
            (r#"{"window":{"max":0,"every":"1s"}}"#, "gates[0].window.max"),
            (r#"{"reported":{"capacity":-1,"restore_per_s":50}}"#, "gates[0].reported.capacity"),
            (r#"{"reported":{"capacity":1e300,"restore_per_s":50}}"#, "gates[0].reported.capacity"),
            (r#"{"reported":{"capacity":10,"restore_per_s":0}}"#, "gates[0].reported.restore_per_s"),
            (r#"{"slots":{"limit":0}}"#, "gates[0].slots.limit"),
            (r#"{"slots":{"limit":2,"reserved":{"1":3}}}"#, "gates[0].slots.reserved"),
            (r#"{"slots":{"limit":2,"adaptive":{"floor":3,"ceiling":9}}}"#, "gates[0].slots.adaptive.floor"),
            (r#"{"breaker":{"probes":0}}"#, "gates[0].breaker.probes"),
            (r#"{"breaker":{"ratio":1.5}}"#, "gates[0].breaker.ratio"),
            (r#"{"quota":{}}"#, "gates[0].quota"),
        ] {
            let e = refused(&gate(kind));
            assert_eq!(e.path, path, "{e}");
            assert!(!e.hint.is_empty());
        }
    }

    #[test]
    fn nan_and_infinity_are_refused() {
        for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY] {
            let bucket = Kind::Reported(Reported { capacity: 100.0, restore_per_s: bad, known: false });
            let e = GateSet::of(vec![Gate::new("a", bucket)]).check().unwrap_err();
            assert_eq!(e.path, "gates[0].reported.restore_per_s");
        }
    }

    #[test]
    fn a_priority_named_twice_is_refused() {
        let with = |names: &str| {
            let gate = r#"{"name":"a","gate":{"slots":{"limit":1}}}"#;
            refused(&format!(r#"{{"gates":[{gate}],"line":{{"priorities":{{{names}}}}}}}"#))
        };
        assert_eq!(with(r#""now":1,"soon":1"#).problem, "priority 1 has two names");
        assert_eq!(with(r#""now":1,"now":2"#).problem, "this name comes twice");
        assert_eq!(with(r#""now":0"#).path, "line.priorities.now");
    }

    #[test]
    fn unknown_gates_and_settings_are_refused_when_read() {
        for (json, says) in [
            (
                r#"{"gates":[{"name":"a","gate":{"leaky":{}}}]}"#,
                "unknown variant `leaky`, expected one of `smooth`",
            ),
            (r#"{"gates":[{"name":"a","gate":{"slots":{"limit":1,"limits":2}}}]}"#, "unknown field `limits`"),
            (r#"{"gates":[],"gate":1}"#, "unknown field `gate`"),
        ] {
            let e = serde_json::from_str::<GateSet>(json).unwrap_err().to_string();
            assert!(e.contains(says), "{e}");
        }
    }

    #[test]
    fn two_gates_of_one_name_or_two_buckets_of_one_call_are_refused() {
        let lock = || Kind::Lock(crate::gates::config::Lock::default());
        let e = GateSet::of(vec![Gate::new("a", lock()), Gate::new("a", lock())]).check().unwrap_err();
        assert_eq!(e.path, "gates[1].name");
        let bucket = |n: &str| {
            Gate::new(n, Kind::Reported(Reported { capacity: 100.0, restore_per_s: 50.0, known: false }))
        };
        assert!(GateSet::of(vec![bucket("rest"), bucket("graphql")]).check().is_err());
        let apart = vec![bucket("rest").only(&["rest"]), bucket("graphql").only(&["graphql"])];
        assert_eq!(GateSet::of(apart).check(), Ok(()));
    }
}
