//! Reading a schema: every mistake is named with its place, and nothing is kept that is not understood.

use std::collections::BTreeMap;

use regex_lite::RegexBuilder;
use serde_json::{Map, Value};

use super::format::{FORMATS, NOTES};
use super::{Compiled, MASK, Node, NodeId, Others, SchemaProblem, Type, check};
use crate::limits;
use crate::near::nearest;

/// Largest compiled pattern.
const PATTERN_BYTES: usize = 1 << 18;

/// Keywords that are known.
const KEYWORDS: [&str; 35] = [
    "$schema",
    "$id",
    "$comment",
    "$defs",
    "$ref",
    "title",
    "description",
    "examples",
    "deprecated",
    "readOnly",
    "writeOnly",
    "x-secret",
    "default",
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "minProperties",
    "maxProperties",
    "items",
    "minItems",
    "maxItems",
    "uniqueItems",
    "minLength",
    "maxLength",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
    "multipleOf",
    "allOf",
];
/// Those that hold alternatives, beside `allOf`.
const ALTERNATIVES: [&str; 3] = ["anyOf", "oneOf", "not"];

const DEFINITIONS: &str = "#/$defs/";

/// Compiles a schema.
pub(super) fn compile(written: &Value) -> Result<Compiled, Vec<SchemaProblem>> {
    let mut compiler =
        Compiler { nodes: vec![], definitions: BTreeMap::new(), problems: vec![], path: vec![] };
    let bytes = written.to_string().len();
    if bytes > limits::MAX_SCHEMA_BYTES {
        compiler.problem(format!("it has {bytes} bytes, at most {} are allowed", limits::MAX_SCHEMA_BYTES));
        return Err(compiler.problems);
    }
    compiler.nodes.push(Node::default());
    let definitions = written.get("$defs").and_then(Value::as_object);
    for name in definitions.into_iter().flat_map(Map::keys) {
        compiler.definitions.insert(name.clone(), compiler.nodes.len());
        compiler.nodes.push(Node::default());
    }
    for (name, definition) in definitions.into_iter().flatten() {
        let at = compiler.definitions[name];
        compiler.within(["$defs", name], |c| c.nodes_at(at, definition, 1));
    }
    compiler.nodes_at(0, written, 0);
    compiler.finish()
}

struct Compiler {
    nodes: Vec<Node>,
    definitions: BTreeMap<String, NodeId>,
    problems: Vec<SchemaProblem>,
    path: Vec<String>,
}

impl Compiler {
    fn finish(mut self) -> Result<Compiled, Vec<SchemaProblem>> {
        if self.problems.is_empty() && self.loops() {
            self.problem("a part refers to itself without end".into());
        }
        if !self.problems.is_empty() {
            return Err(self.problems);
        }
        self.mark();
        let compiled = Compiled { nodes: self.nodes };
        let misfit = |(at, node): (NodeId, &Node)| {
            // A schema that is shown to people has none of its secrets.
            let default = node.default.as_ref().filter(|d| !(node.hides && d.as_str() == Some(MASK)))?;
            let text = default.to_string();
            let misfit = check::check_at(&compiled, at, &text).err()?.into_iter().next()?;
            let text = if node.hides { String::new() } else { format!(" {text}") };
            Some(SchemaProblem {
                path: vec![],
                what: format!("the default{text} does not fit its own part: {misfit}"),
            })
        };
        let problems: Vec<_> = compiled.nodes.iter().enumerate().filter_map(misfit).collect();
        if problems.is_empty() { Ok(compiled) } else { Err(problems) }
    }

    fn problem(&mut self, what: String) {
        if self.problems.len() < limits::MAX_REGISTRY_PROBLEMS {
            self.problems.push(SchemaProblem { path: self.path.clone(), what });
        }
    }

    fn within<const N: usize, T>(&mut self, names: [&str; N], act: impl FnOnce(&mut Self) -> T) -> T {
        self.path.extend(names.map(str::to_owned));
        let done = act(self);
        self.path.truncate(self.path.len() - N);
        done
    }

    /// Compiles a part under a new number.
    fn node(&mut self, written: &Value, depth: usize) -> NodeId {
        let at = self.nodes.len();
        if at >= limits::MAX_SCHEMA_NODES || depth > limits::MAX_SCHEMA_DEPTH {
            let (nodes, deep) = (limits::MAX_SCHEMA_NODES, limits::MAX_SCHEMA_DEPTH);
            self.problem(format!("a schema has at most {nodes} parts, nested at most {deep} deep"));
            return 0;
        }
        self.nodes.push(Node::default());
        self.nodes_at(at, written, depth);
        at
    }

    fn nodes_at(&mut self, at: NodeId, written: &Value, depth: usize) {
        let mut node = Node::default();
        match written {
            Value::Bool(fits) => node.never = !fits,
            Value::Object(map) => {
                for (keyword, value) in map {
                    self.within([keyword], |c| c.keyword(&mut node, keyword, value, depth));
                }
                node.secret =
                    ["x-secret", "writeOnly"].iter().any(|k| map.get(*k) == Some(&Value::Bool(true)));
            }
            _ => self.problem("a schema is a table (or true, or false)".into()),
        }
        self.nodes[at] = node;
    }

    fn keyword(&mut self, node: &mut Node, keyword: &str, value: &Value, depth: usize) {
        let deeper = depth + 1;
        match keyword {
            "$defs" if depth > 0 => self.problem("`$defs` belongs at the top of the schema".into()),
            "$schema" | "$id" | "$comment" | "title" | "description" | "examples" | "deprecated"
            | "readOnly" | "$defs" => {}
            "writeOnly" | "x-secret" | "uniqueItems" => {
                if value.as_bool().is_none() {
                    self.problem("it should be true or false".into());
                }
                node.arrays.unique |= keyword == "uniqueItems" && value.as_bool() == Some(true);
            }
            "default" => node.default = Some(value.clone()),
            "$ref" => node.reference = self.reference(value),
            "type" => node.types = self.types(value),
            "enum" => match value.as_array().filter(|list| !list.is_empty()) {
                Some(list) => node.choices = Some(list.clone()),
                None => self.problem("it should be a list with at least one value".into()),
            },
            "const" => node.choices = Some(vec![value.clone()]),
            "properties" => {
                for (name, part) in self.table(value) {
                    let id = self.within([name], |c| c.node(part, deeper));
                    node.objects.properties.insert(name.clone(), id);
                }
            }
            "required" => node.objects.required = self.names(value),
            "additionalProperties" => {
                node.objects.others = match value {
                    Value::Bool(true) => Others::Allowed,
                    Value::Bool(false) => Others::Refused,
                    part => Others::Like(self.node(part, deeper)),
                }
            }
            "items" => node.arrays.items = Some(self.node(value, deeper)),
            "minProperties" => node.objects.min = self.count(value),
            "maxProperties" => node.objects.max = self.count(value),
            "minItems" => node.arrays.min = self.count(value),
            "maxItems" => node.arrays.max = self.count(value),
            "minLength" => node.texts.min = self.count(value),
            "maxLength" => node.texts.max = self.count(value),
            "minimum" => node.numbers.minimum = self.number(value),
            "maximum" => node.numbers.maximum = self.number(value),
            "exclusiveMinimum" => node.numbers.above = self.number(value),
            "exclusiveMaximum" => node.numbers.below = self.number(value),
            "multipleOf" => {
                node.numbers.multiple_of = self.number(value).filter(|n| *n > 0.0);
                if node.numbers.multiple_of.is_none() {
                    self.problem("it should be a number above 0".into());
                }
            }
            "pattern" => self.pattern(node, value),
            "format" => self.format(node, value),
            "allOf" => node.all = self.parts(value, deeper),
            "anyOf" => node.any = self.parts(value, deeper),
            "oneOf" => node.one = self.parts(value, deeper),
            "not" => node.not = Some(self.node(value, deeper)),
            _ => {
                let near = nearest(keyword, KEYWORDS.into_iter().chain(ALTERNATIVES));
                let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
                self.problem(format!("this keyword is not supported{near}"));
            }
        }
    }

    fn reference(&mut self, value: &Value) -> Option<NodeId> {
        let text = value.as_str().unwrap_or_default();
        if text == "#" {
            return Some(0);
        }
        let Some(name) = text.strip_prefix(DEFINITIONS) else {
            self.problem(format!("only `#` and `{DEFINITIONS}NAME` are followed; nothing is fetched"));
            return None;
        };
        let found = self.definitions.get(name).copied();
        if found.is_none() {
            let near = nearest(name, self.definitions.keys().map(String::as_str));
            let near = near.map_or(String::new(), |n| format!("; did you mean `{n}`?"));
            self.problem(format!("there is no definition {name:?}{near}"));
        }
        found
    }

    fn types(&mut self, value: &Value) -> Vec<Type> {
        let given: Vec<&Value> = match value {
            Value::Array(list) => list.iter().collect(),
            one => vec![one],
        };
        let mut types = vec![];
        for value in given {
            match Type::ALL.iter().find(|(_, name)| value.as_str() == Some(name)) {
                Some((t, _)) => types.push(*t),
                None => {
                    let names: Vec<&str> = Type::ALL.iter().map(|(_, name)| *name).collect();
                    self.problem(format!("it should be one of {}", names.join(", ")));
                }
            }
        }
        types
    }

    fn table<'v>(&mut self, value: &'v Value) -> impl Iterator<Item = (&'v String, &'v Value)> + use<'v> {
        if !value.is_object() {
            self.problem("it should be a table".into());
        }
        value.as_object().into_iter().flatten()
    }

    fn names(&mut self, value: &Value) -> Vec<String> {
        let list: Option<Vec<String>> =
            value.as_array().and_then(|l| l.iter().map(|v| v.as_str().map(str::to_owned)).collect());
        list.unwrap_or_else(|| {
            self.problem("it should be a list of names".into());
            vec![]
        })
    }

    fn parts(&mut self, value: &Value, depth: usize) -> Vec<NodeId> {
        let Some(list) = value.as_array().filter(|l| !l.is_empty()) else {
            self.problem("it should be a list with at least one schema".into());
            return vec![];
        };
        list.iter()
            .enumerate()
            .map(|(i, part)| self.within([&i.to_string()], |c| c.node(part, depth)))
            .collect()
    }

    fn count(&mut self, value: &Value) -> Option<u64> {
        let count = value.as_u64();
        if count.is_none() {
            self.problem("it should be a whole number, at least 0".into());
        }
        count
    }

    fn number(&mut self, value: &Value) -> Option<f64> {
        let number = value.as_f64();
        if number.is_none() {
            self.problem("it should be a number".into());
        }
        number
    }

    fn pattern(&mut self, node: &mut Node, value: &Value) {
        let text = value.as_str().unwrap_or_default();
        match RegexBuilder::new(text).size_limit(PATTERN_BYTES).build() {
            Ok(regex) if value.is_string() => node.texts.pattern = Some((text.to_owned(), regex)),
            Ok(_) => self.problem("it should be a regular expression".into()),
            Err(e) => self.problem(format!("it is not a regular expression that can be used: {e}")),
        }
    }

    fn format(&mut self, node: &mut Node, value: &Value) {
        let given = value.as_str().unwrap_or_default();
        if let Some((_, format, _)) = FORMATS.iter().find(|(name, _, _)| *name == given) {
            node.texts.format = Some(*format);
        } else if !NOTES.contains(&given) {
            let names: Vec<&str> = FORMATS.iter().map(|(name, _, _)| *name).collect();
            self.problem(format!("this format is not known; there are {}", names.join(", ")));
        }
    }

    /// Whether a part leads to itself without going deeper into the payload.
    fn loops(&self) -> bool {
        fn visit(nodes: &[Node], at: NodeId, marks: &mut [u8]) -> bool {
            match marks[at] {
                1 => return true,
                2 => return false,
                _ => marks[at] = 1,
            }
            let looped = beside(&nodes[at]).any(|next| visit(nodes, next, marks));
            marks[at] = 2;
            looped
        }
        let mut marks = vec![0; self.nodes.len()];
        (0..self.nodes.len()).any(|at| visit(&self.nodes, at, &mut marks))
    }

    /// Notes for every part whether there are defaults or secrets below it, so that the others are not even looked at.
    fn mark(&mut self) {
        loop {
            let mut changed = false;
            for at in 0..self.nodes.len() {
                let node = &self.nodes[at];
                let others = if let Others::Like(id) = node.objects.others { Some(id) } else { None };
                let below: Vec<NodeId> = node
                    .objects
                    .properties
                    .values()
                    .copied()
                    .chain(node.arrays.items)
                    .chain(others)
                    .collect();
                let here = |id: &NodeId| self.nodes[*id].default.is_some() || self.nodes[*id].fills;
                let fills = below.iter().any(here)
                    || node.reference.iter().chain(&node.all).any(|id| self.nodes[*id].fills);
                let hides =
                    node.secret || below.iter().copied().chain(beside(node)).any(|id| self.nodes[id].hides);
                changed |= (node.fills, node.hides) != (fills, hides);
                (self.nodes[at].fills, self.nodes[at].hides) = (fills, hides);
            }
            if !changed {
                return;
            }
        }
    }
}

/// Parts that look at the same value.
fn beside(node: &Node) -> impl Iterator<Item = NodeId> + '_ {
    let many = node.all.iter().chain(&node.any).chain(&node.one);
    many.chain(&node.not).chain(&node.reference).copied()
}
