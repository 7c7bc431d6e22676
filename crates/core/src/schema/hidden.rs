//! Schemas as people may see them: values that a secret field could have are not shown. What was shown can be written again.

use serde_json::{Map, Value};

use super::MASK;

/// Deepest chain of references that is followed.
const CHAIN: usize = 32;

/// The schema without defaults, constants, choices and examples of what is secret or holds something secret.
pub(super) fn shown(written: &Value) -> Value {
    let mut shown = written.clone();
    hide(&mut shown, written, false, &mut false);
    shown
}

/// Whether something is written as it is shown, and not as it is.
pub(super) fn is_hidden(written: &Value) -> bool {
    let mut found = false;
    hide(&mut written.clone(), written, false, &mut found);
    found
}

fn hide(part: &mut Value, root: &Value, within: bool, found: &mut bool) {
    let secret = within || is_secret(part, root, CHAIN);
    let covers = secret || holds_secret(part, root, CHAIN);
    let Some(fields) = part.as_object_mut() else { return };
    for (keyword, value) in fields {
        match keyword.as_str() {
            "default" | "const" if covers => {
                *found |= value.as_str() == Some(MASK);
                *value = MASK.into();
            }
            "enum" | "examples" if covers => *value = Value::Array(vec![MASK.into()]),
            "properties" | "$defs" => each(value, &mut |part| hide(part, root, secret, found)),
            "allOf" | "anyOf" | "oneOf" => {
                value.as_array_mut().into_iter().flatten().for_each(|part| hide(part, root, secret, found));
            }
            "items" | "additionalProperties" | "not" => hide(value, root, secret, found),
            _ => {}
        }
    }
}

fn each(table: &mut Value, f: &mut impl FnMut(&mut Value)) {
    table.as_object_mut().into_iter().flat_map(Map::values_mut).for_each(f);
}

fn referred<'r>(part: &Value, root: &'r Value) -> Option<&'r Value> {
    let name = part.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
    root.get("$defs")?.get(name)
}

/// Whether the part itself is secret, or one that it stands for.
fn is_secret(part: &Value, root: &Value, chain: usize) -> bool {
    let marked = |key: &str| part.get(key).and_then(Value::as_bool).unwrap_or(false);
    marked("x-secret")
        || marked("writeOnly")
        || chain > 0 && referred(part, root).is_some_and(|part| is_secret(part, root, chain - 1))
}

/// Whether something below the part is secret.
fn holds_secret(part: &Value, root: &Value, chain: usize) -> bool {
    if chain == 0 {
        return true;
    }
    let below = |part: &Value| is_secret(part, root, chain) || holds_secret(part, root, chain - 1);
    let table = |key: &str| part.get(key).and_then(Value::as_object).is_some_and(|t| t.values().any(below));
    let list = |key: &str| part.get(key).and_then(Value::as_array).is_some_and(|l| l.iter().any(below));
    table("properties")
        || ["allOf", "anyOf", "oneOf"].into_iter().any(list)
        || ["items", "additionalProperties"].into_iter().any(|key| part.get(key).is_some_and(below))
        || referred(part, root).is_some_and(below)
}

/// Puts back what was hidden when `old` was shown, wherever it is still written as it was shown.
pub(super) fn put_back(new: &mut Value, shown: &Value, old: &Value) {
    if new == shown {
        new.clone_from(old);
        return;
    }
    match (new, shown, old) {
        (Value::Object(new), Value::Object(shown), Value::Object(old)) => {
            for (name, value) in new {
                if let (Some(shown), Some(old)) = (shown.get(name), old.get(name)) {
                    put_back(value, shown, old);
                }
            }
        }
        (Value::Array(new), Value::Array(shown), Value::Array(old)) => {
            for (value, (shown, old)) in new.iter_mut().zip(shown.iter().zip(old)) {
                put_back(value, shown, old);
            }
        }
        _ => {}
    }
}

/// Writes something else wherever there is this value.
pub(super) fn replace(within: &mut Value, this: &Value, other: &Value) {
    match within {
        value if value == this => value.clone_from(other),
        Value::Object(fields) => fields.values_mut().for_each(|value| replace(value, this, other)),
        Value::Array(list) => list.iter_mut().for_each(|value| replace(value, this, other)),
        _ => {}
    }
}

/// Pointers to where both have the mask.
pub(super) fn places(one: &Value, two: &Value, at: &mut String, found: &mut Vec<String>) {
    let length = at.len();
    match (one, two) {
        (Value::String(one), Value::String(two)) if one == MASK && two == MASK => found.push(at.clone()),
        (Value::Object(one), Value::Object(two)) => {
            for (name, value) in one {
                if let Some(other) = two.get(name) {
                    at.push('/');
                    at.push_str(&name.replace('~', "~0").replace('/', "~1"));
                    places(value, other, at, found);
                    at.truncate(length);
                }
            }
        }
        (Value::Array(one), Value::Array(two)) => {
            for (i, (value, other)) in one.iter().zip(two).enumerate() {
                at.push('/');
                at.push_str(&i.to_string());
                places(value, other, at, found);
                at.truncate(length);
            }
        }
        _ => {}
    }
}
