//! Payloads changed in a few places and left as they were sent everywhere else: defaults filled in, secrets masked. Works on
//! text, so that numbers too large for a float and the order of fields survive.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Compiled, MASK, NodeId, Others};

/// The text with defaults filled in, if any were missing.
pub(super) fn fill(schema: &Compiled, text: &str) -> Option<String> {
    fill_at(schema, &[0], text)
}

fn fill_at(schema: &Compiled, parts: &[NodeId], text: &str) -> Option<String> {
    let parts: Vec<NodeId> =
        spread(schema, parts, false).into_iter().filter(|p| schema.nodes[*p].fills).collect();
    if parts.is_empty() {
        return None;
    }
    let defaults = |present: &[(String, String)]| {
        let mut missing: Vec<(String, String)> = vec![];
        for (name, part) in parts.iter().flat_map(|p| &schema.nodes[*p].objects.properties) {
            let known = present.iter().chain(&missing).any(|(n, _)| n == name);
            if let Some(default) = default_of(schema, *part).filter(|_| !known) {
                missing.push((name.clone(), default.to_string()));
            }
        }
        missing
    };
    rebuild(schema, &parts, text, &|below, raw| fill_at(schema, below, raw), &defaults)
}

/// The text with secrets replaced, if there were any.
pub(super) fn mask(schema: &Compiled, text: &str) -> Option<String> {
    mask_at(schema, &[0], text)
}

fn mask_at(schema: &Compiled, parts: &[NodeId], text: &str) -> Option<String> {
    // A field that is secret in one alternative is secret.
    let parts: Vec<NodeId> =
        spread(schema, parts, true).into_iter().filter(|p| schema.nodes[*p].hides).collect();
    if parts.iter().any(|p| schema.nodes[*p].secret) {
        return Some(format!("\"{MASK}\""));
    }
    if parts.is_empty() {
        return None;
    }
    rebuild(schema, &parts, text, &|below, raw| mask_at(schema, below, raw), &|_| vec![])
}

/// The parts and those that look at the same value.
fn spread(schema: &Compiled, parts: &[NodeId], alternatives: bool) -> Vec<NodeId> {
    let mut all: Vec<NodeId> = vec![];
    let mut open: Vec<NodeId> = parts.to_vec();
    while let Some(part) = open.pop() {
        if all.contains(&part) {
            continue;
        }
        all.push(part);
        let node = &schema.nodes[part];
        open.extend(node.reference.iter().chain(&node.all));
        if alternatives {
            open.extend(node.any.iter().chain(&node.one));
        }
    }
    all.sort_unstable();
    all
}

fn default_of(schema: &Compiled, part: NodeId) -> Option<&Value> {
    spread(schema, &[part], false).into_iter().find_map(|p| schema.nodes[p].default.as_ref())
}

type Rewrite<'a> = &'a dyn Fn(&[NodeId], &str) -> Option<String>;
type Added<'a> = &'a dyn Fn(&[(String, String)]) -> Vec<(String, String)>;

/// An object or a list whose members were rewritten, and to which members were added.
fn rebuild(
    schema: &Compiled,
    parts: &[NodeId],
    text: &str,
    rewrite: Rewrite<'_>,
    added: Added<'_>,
) -> Option<String> {
    match text.trim_start().as_bytes().first() {
        Some(b'{') => {
            let Members(members) = serde_json::from_str(text).ok()?;
            let mut changed = false;
            let mut out: Vec<(String, String)> = Vec::with_capacity(members.len());
            for (name, raw) in members {
                let below = parts_of_property(schema, parts, &name);
                let new = rewrite(&below, raw.get());
                changed |= new.is_some();
                out.push((name, new.unwrap_or_else(|| raw.get().to_owned())));
            }
            let more = added(&out);
            if !changed && more.is_empty() {
                return None;
            }
            let member = |(name, value): (String, String)| format!("{}:{value}", Value::String(name));
            let members: Vec<String> = out.into_iter().chain(more).map(member).collect();
            Some(format!("{{{}}}", members.join(",")))
        }
        Some(b'[') => {
            let items: Vec<NodeId> = parts.iter().filter_map(|p| schema.nodes[*p].arrays.items).collect();
            if items.is_empty() {
                return None;
            }
            let list: Vec<&RawValue> = serde_json::from_str(text).ok()?;
            let new: Vec<Option<String>> = list.iter().map(|raw| rewrite(&items, raw.get())).collect();
            if new.iter().all(Option::is_none) {
                return None;
            }
            let items =
                new.into_iter().zip(list).map(|(new, raw)| new.unwrap_or_else(|| raw.get().to_owned()));
            Some(format!("[{}]", items.collect::<Vec<_>>().join(",")))
        }
        _ => None,
    }
}

fn parts_of_property(schema: &Compiled, parts: &[NodeId], name: &str) -> Vec<NodeId> {
    let of = |part: &NodeId| {
        let objects = &schema.nodes[*part].objects;
        objects.properties.get(name).copied().or(match objects.others {
            Others::Like(other) => Some(other),
            Others::Allowed | Others::Refused => None,
        })
    };
    parts.iter().filter_map(of).collect()
}

/// Members of an object in their order.
struct Members<'a>(Vec<(String, &'a RawValue)>);

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Reader;
        impl<'de> Visitor<'de> for Reader {
            type Value = Members<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = vec![];
                while let Some(member) = map.next_entry::<String, &'de RawValue>()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Reader)
    }
}
