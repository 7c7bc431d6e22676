//! Checking a payload.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::{Compiled, Misfit, Node, NodeId, Numbers, Others, Type};
use crate::limits;
use crate::near::nearest;

/// Longest property name that a message shows.
const SHOWN: usize = 60;
/// Choices that a message lists.
const LISTED: usize = 12;

/// Checks JSON text against the whole schema.
pub(super) fn check(schema: &Compiled, text: &str) -> Result<(), Vec<Misfit>> {
    check_at(schema, 0, text)
}

/// Checks JSON text against one part.
pub(super) fn check_at(schema: &Compiled, at: NodeId, text: &str) -> Result<(), Vec<Misfit>> {
    let whole = |what: String| vec![Misfit { path: String::new(), what }];
    let value: Value = serde_json::from_str(text).map_err(|e| whole(format!("it is not JSON: {e}")))?;
    let mut checker = Checker { schema, steps: 0, path: String::new(), found: vec![] };
    checker.node(at, &value);
    if checker.steps > limits::MAX_SCHEMA_STEPS {
        return Err(whole("its schema has too many alternatives to check it".into()));
    }
    if checker.found.is_empty() { Ok(()) } else { Err(checker.found) }
}

struct Checker<'s> {
    schema: &'s Compiled,
    steps: u32,
    path: String,
    found: Vec<Misfit>,
}

impl<'s> Checker<'s> {
    fn misfit(&mut self, what: String) {
        if self.found.len() < limits::MAX_MISFITS {
            self.found.push(Misfit { path: self.path.clone(), what });
        }
    }

    fn node(&mut self, at: NodeId, value: &Value) {
        self.steps += 1;
        if self.steps > limits::MAX_SCHEMA_STEPS || self.found.len() >= limits::MAX_MISFITS {
            return;
        }
        let schema: &'s Compiled = self.schema;
        let node = &schema.nodes[at];
        if node.never {
            return self.misfit("nothing is allowed here".into());
        }
        if !node.types.is_empty() && !node.types.iter().any(|t| is(value, *t)) {
            let expected: Vec<&str> = node.types.iter().map(|t| t.name()).collect();
            return self.misfit(format!("expected {}, found {}", expected.join(" or "), name_of(value)));
        }
        if let Some(choices) = &node.choices
            && !choices.contains(value)
        {
            let shown: Vec<String> = choices.iter().take(LISTED).map(ToString::to_string).collect();
            let more = if choices.len() > LISTED { ", …" } else { "" };
            let one = if choices.len() == 1 { "" } else { "one of " };
            self.misfit(format!("expected {one}{}{more}", shown.join(", ")));
        }
        match value {
            Value::Number(n) => self.number(&node.numbers, n.as_f64().unwrap_or(f64::NAN)),
            Value::String(text) => self.text(node, text),
            Value::Array(list) => self.array(node, list),
            Value::Object(map) => self.object(node, map),
            Value::Null | Value::Bool(_) => {}
        }
        for part in node.reference.iter().chain(&node.all) {
            self.node(*part, value);
        }
        self.alternatives(node, value);
    }

    fn number(&mut self, rules: &Numbers, n: f64) {
        let mut at_least = |wrong: bool, what: String| {
            if wrong {
                self.misfit(what);
            }
        };
        if let Some(bound) = rules.minimum {
            at_least(n < bound, format!("expected at least {bound}"));
        }
        if let Some(bound) = rules.maximum {
            at_least(n > bound, format!("expected at most {bound}"));
        }
        if let Some(bound) = rules.above {
            at_least(n <= bound, format!("expected more than {bound}"));
        }
        if let Some(bound) = rules.below {
            at_least(n >= bound, format!("expected less than {bound}"));
        }
        if let Some(step) = rules.multiple_of {
            let times = n / step;
            at_least((times - times.round()).abs() > 1e-9, format!("expected a multiple of {step}"));
        }
    }

    fn text(&mut self, node: &Node, text: &str) {
        let rules = &node.texts;
        if rules.min.is_some() || rules.max.is_some() {
            self.size("character", text.chars().count() as u64, rules.min, rules.max);
        }
        if let Some((pattern, regex)) = &rules.pattern
            && !regex.is_match(text)
        {
            self.misfit(format!("expected text like /{pattern}/"));
        }
        if let Some(format) = rules.format.filter(|f| !f.fits(text)) {
            self.misfit(format!("expected {}", format.expected()));
        }
    }

    fn array(&mut self, node: &Node, list: &[Value]) {
        let rules = &node.arrays;
        self.size("item", list.len() as u64, rules.min, rules.max);
        if rules.unique {
            let mut seen = HashSet::new();
            if !list.iter().all(|v| seen.insert(v.to_string())) {
                self.misfit("expected no item twice".into());
            }
        }
        if let Some(items) = rules.items {
            for (i, value) in list.iter().enumerate() {
                self.below(&i.to_string(), items, value);
            }
        }
    }

    fn object(&mut self, node: &Node, map: &Map<String, Value>) {
        let rules = &node.objects;
        self.size("propert", map.len() as u64, rules.min, rules.max);
        for name in rules.required.iter().filter(|name| !map.contains_key(*name)) {
            self.misfit(format!("{name:?} is missing"));
        }
        for (name, value) in map {
            match (rules.properties.get(name), rules.others) {
                (Some(part), _) => self.below(name, *part, value),
                (None, Others::Allowed) => {}
                (None, Others::Like(part)) => self.below(name, part, value),
                (None, Others::Refused) => {
                    let near = nearest(name, rules.properties.keys().map(String::as_str));
                    let near = near.map_or(String::new(), |n| format!("; did you mean {n:?}?"));
                    let shown: String = name.chars().take(SHOWN).collect();
                    self.misfit(format!("unknown property {shown:?}{near}"));
                }
            }
        }
    }

    fn size(&mut self, what: &str, n: u64, min: Option<u64>, max: Option<u64>) {
        let said = |n: u64| match (what, n) {
            ("propert", 1) => "1 property".to_owned(),
            ("propert", n) => format!("{n} properties"),
            (what, 1) => format!("1 {what}"),
            (what, n) => format!("{n} {what}s"),
        };
        if let Some(min) = min.filter(|min| n < *min) {
            self.misfit(format!("expected at least {}", said(min)));
        }
        if let Some(max) = max.filter(|max| n > *max) {
            self.misfit(format!("expected at most {}", said(max)));
        }
    }

    fn below(&mut self, name: &str, part: NodeId, value: &Value) {
        let length = self.path.len();
        self.path.push('/');
        let shown: String = name.chars().take(SHOWN).collect();
        self.path.push_str(&shown.replace('~', "~0").replace('/', "~1"));
        self.node(part, value);
        self.path.truncate(length);
    }

    /// What is wrong with the value as one of the alternatives.
    fn trial(&mut self, part: NodeId, value: &Value) -> Vec<Misfit> {
        let before = std::mem::take(&mut self.found);
        self.node(part, value);
        std::mem::replace(&mut self.found, before)
    }

    fn alternatives(&mut self, node: &Node, value: &Value) {
        for (parts, once) in [(&node.any, false), (&node.one, true)] {
            if parts.is_empty() {
                continue;
            }
            let trials: Vec<Vec<Misfit>> = parts.iter().map(|part| self.trial(*part, value)).collect();
            match trials.iter().filter(|t| t.is_empty()).count() {
                0 => self.none_fits(trials),
                1 => {}
                n if once => self.misfit(format!("expected exactly one of the alternatives to fit, {n} do")),
                _ => {}
            }
        }
        if let Some(part) = node.not
            && self.trial(part, value).is_empty()
        {
            self.misfit("it fits what is ruled out here".into());
        }
    }

    /// Names what is wrong with the alternative that came nearest: the one that went deepest.
    fn none_fits(&mut self, trials: Vec<Vec<Misfit>>) {
        let n = trials.len();
        let depth = |t: &Vec<Misfit>| t.iter().map(|m| m.path.len()).max().unwrap_or(0);
        let deepest = trials.iter().map(depth).max().unwrap_or(0);
        if deepest > self.path.len() {
            let nearest = trials.into_iter().find(|t| depth(t) == deepest);
            for misfit in nearest.into_iter().flatten() {
                if self.found.len() < limits::MAX_MISFITS {
                    self.found.push(misfit);
                }
            }
            return;
        }
        let said: Vec<String> =
            trials.into_iter().filter_map(|t| t.into_iter().next()).map(|m| m.what).collect();
        self.misfit(format!("fits none of {n} alternatives: {}", said.join(" / ")));
    }
}

fn is(value: &Value, t: Type) -> bool {
    match (value, t) {
        (Value::Null, Type::Null)
        | (Value::Bool(_), Type::Boolean)
        | (Value::Number(_), Type::Number)
        | (Value::String(_), Type::String)
        | (Value::Array(_), Type::Array)
        | (Value::Object(_), Type::Object) => true,
        // 1.0 is an integer too.
        (Value::Number(n), Type::Integer) => {
            n.is_i64() || n.is_u64() || n.as_f64().is_some_and(|f| f.fract() == 0.0)
        }
        _ => false,
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}
