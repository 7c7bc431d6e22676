//! Reading a table field by field: every mistake is noted with its place, and reading goes on.

use serde_json::{Map, Value};

use super::Problem;
use super::document::TABLES;
use crate::limits;
use crate::near::nearest;
use crate::time::Millis;

/// Everything that is wrong with a document.
#[derive(Debug, Clone, Default)]
pub(super) struct Problems {
    list: Vec<Problem>,
    more: usize,
}

impl Problems {
    pub(super) fn add(&mut self, path: String, what: impl Into<String>) {
        if self.list.len() < limits::MAX_REGISTRY_PROBLEMS {
            self.list.push(Problem { path, what: what.into() });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// All of them, by their place: what is wrong with one entry stands together.
    pub(super) fn told(mut self) -> Vec<Problem> {
        self.list.sort_by(|a, b| place(&a.path).cmp(&place(&b.path)));
        if self.more > 0 {
            self.list.push(Problem { path: String::new(), what: format!("and {} more", self.more) });
        }
        self.list
    }
}

impl Extend<Problem> for Problems {
    fn extend<I: IntoIterator<Item = Problem>>(&mut self, problems: I) {
        problems.into_iter().for_each(|p| self.add(p.path, p.what));
    }
}

/// Problems by their place, as many as are told.
pub fn told(problems: impl IntoIterator<Item = Problem>) -> Vec<Problem> {
    let mut all = Problems::default();
    all.extend(problems);
    all.told()
}

/// Table and name of the entry that a path leads to; tables in the order in which they are read.
fn place(path: &str) -> (Option<usize>, &str) {
    let (table, rest) = path.split_once('.').unwrap_or((path, ""));
    let name = match rest.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => rest.split('.').next(),
    };
    (TABLES.iter().position(|t| *t == table), name.unwrap_or_default())
}

/// A path one step longer; names that TOML would quote are quoted.
pub fn join(path: &str, name: &str) -> String {
    let bare = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_' || c == '-');
    let name = if bare { name.to_owned() } else { format!("{name:?}") };
    if path.is_empty() { name } else { format!("{path}.{name}") }
}

/// A table that is read field by field.
pub(super) struct Fields<'v, 'p> {
    path: String,
    map: &'v Map<String, Value>,
    known: Vec<&'static str>,
    problems: &'p mut Problems,
}

impl<'v, 'p> Fields<'v, 'p> {
    /// Begins with a table; notes it if it is none.
    pub(super) fn open(path: String, value: &'v Value, problems: &'p mut Problems) -> Option<Self> {
        match value.as_object() {
            Some(map) => Some(Self { path, map, known: vec![], problems }),
            None => {
                problems.add(path, format!("it is {}, it should be a table", kind_of(value)));
                None
            }
        }
    }

    pub(super) fn path(&self, key: &str) -> String {
        join(&self.path, key)
    }

    pub(super) fn problem(&mut self, key: &str, what: impl Into<String>) {
        let path = self.path(key);
        self.problems.add(path, what);
    }

    pub(super) fn problems(&mut self) -> &mut Problems {
        self.problems
    }

    /// The value of a field, if it is there. `null` and a missing field mean the same.
    pub(super) fn get(&mut self, key: &'static str) -> Option<&'v Value> {
        // Asked for again to tell what is missing from what is wrong.
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        self.map.get(key).filter(|v| !v.is_null())
    }

    /// Reads a field.
    pub(super) fn take<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(&'v Value) -> Result<T, String>,
    ) -> Option<T> {
        match read(self.get(key)?) {
            Ok(value) => Some(value),
            Err(what) => {
                self.problem(key, what);
                None
            }
        }
    }

    /// A span: `KEY = "30s"`, or `KEY_ms = 30000`.
    pub(super) fn span(&mut self, key: &'static str, key_ms: &'static str) -> Option<i64> {
        let (text, ms) = (self.get(key), self.get(key_ms));
        if text.is_some() && ms.is_some() {
            self.problem(key, format!("`{key}` and `{key_ms}` say the same: leave one out"));
            return None;
        }
        if text.is_some() {
            return self.take(key, |v| match v.as_str() {
                Some(text) => text.parse::<Millis>().map(|m| m.0).map_err(|e| e.to_string()),
                None => Err(format!("it is {}, it should be a span like \"30s\"", kind_of(v))),
            });
        }
        self.take(key_ms, whole)
    }

    /// Notes every field that was not asked for.
    pub(super) fn end(self) {
        for key in self.map.keys().filter(|k| !self.known.contains(&k.as_str())) {
            let near = nearest(key, self.known.iter().copied());
            let near = near.map_or_else(
                || format!("; there are {}", self.known.join(", ")),
                |n| format!("; did you mean `{n}`?"),
            );
            self.problems.add(join(&self.path, key), format!("there is no such setting{near}"));
        }
    }
}

/// What a value is, for a message.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a table",
    }
}

/// A whole number that fits.
pub(super) fn whole<T: TryFrom<i128>>(value: &Value) -> Result<T, String> {
    let number = value.as_i64().map(i128::from).or_else(|| value.as_u64().map(i128::from));
    let refuse = || match value {
        Value::Number(n) => format!("{n} is not a whole number in range"),
        other => format!("it is {}, it should be a whole number", kind_of(other)),
    };
    number.and_then(|n| T::try_from(n).ok()).ok_or_else(refuse)
}

/// True or false.
pub(super) fn boolean(value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("it is {}, it should be true or false", kind_of(value)))
}

/// A number.
pub(super) fn float(value: &Value) -> Result<f64, String> {
    value.as_f64().ok_or_else(|| format!("it is {}, it should be a number", kind_of(value)))
}

/// Text.
pub(super) fn text(value: &Value) -> Result<String, String> {
    value.as_str().map(str::to_owned).ok_or_else(|| format!("it is {}, it should be text", kind_of(value)))
}

/// A list of texts.
pub(super) fn texts(value: &Value) -> Result<Vec<String>, String> {
    let list = value.as_array().ok_or_else(|| format!("it is {}, it should be a list", kind_of(value)))?;
    list.iter().map(text).collect()
}

/// Text that is parsed.
pub(super) fn parsed<T: std::str::FromStr<Err: std::fmt::Display>>(value: &Value) -> Result<T, String> {
    text(value)?.parse().map_err(|e: T::Err| e.to_string())
}
