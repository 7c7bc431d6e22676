//! What the server answers, held against its own description. Every answer of every test passes here: one that is not as
//! `/openapi.json` says fails the test.

use std::sync::LazyLock;

use hyper::{Method, StatusCode};
use serde_json::{Map, Value};

static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::to_value(tidegate_server::openapi()).unwrap());

/// Fails if a JSON answer is not as described. What is asked of no route is nobody's.
pub(super) fn check(method: &Method, path: &str, status: StatusCode, content_type: &str, body: &Value) {
    let Some(operation) = operation(method, path) else { return };
    let (exactly, class) = (status.as_str(), format!("{}XX", status.as_u16() / 100));
    let responses = &operation["responses"];
    let described = [exactly, &class].into_iter().find_map(|name| responses.get(name));
    let described = described.unwrap_or_else(|| panic!("{method} {path}: {status} is not described"));
    if content_type.ends_with("json") {
        let schema = described["content"].get(content_type).and_then(|content| content.get("schema"));
        let schema = schema.unwrap_or_else(|| panic!("{method} {path}: no {content_type} with {status}"));
        if let Err(misfit) = fits(schema, body) {
            panic!("{method} {path}, {status}: {misfit}\n{body:#}");
        }
    }
}

fn operation(method: &Method, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap_or_default();
    let of = |path: &str| path.split('/').map(str::to_owned).collect::<Vec<_>>();
    let asked = of(path);
    let is_it = |template: &str| {
        let template = of(template);
        let each = template.iter().zip(&asked);
        template.len() == asked.len()
            && each.clone().all(|(t, a)| t == a || (t.starts_with('{') && !a.is_empty()))
    };
    let paths = DOCUMENT["paths"].as_object()?;
    // `/v1/parks/groups` is no park of the name `groups`.
    let found = paths.iter().filter(|(template, _)| is_it(template));
    let (_, item) = found.min_by_key(|(template, _)| template.matches('{').count())?;
    item.get(method.as_str().to_lowercase())
}

/// Why a value does not fit a schema.
fn fits(schema: &Value, value: &Value) -> Result<(), String> {
    let Some(schema) = schema.as_object() else { return Ok(()) };
    schema.iter().try_for_each(|(keyword, rule)| keeps(schema, keyword, rule, value))
}

fn keeps(schema: &Map<String, Value>, keyword: &str, rule: &Value, value: &Value) -> Result<(), String> {
    let all = || rule.as_array().into_iter().flatten();
    let kept = match keyword {
        "$ref" => {
            let name = rule.as_str().unwrap().trim_start_matches("#/components/schemas/");
            let named = DOCUMENT["components"]["schemas"].get(name).ok_or(format!("there is no {name}"))?;
            return fits(named, value).map_err(|misfit| format!("{name}: {misfit}"));
        }
        "allOf" => return all().try_for_each(|each| fits(each, value)),
        "oneOf" => {
            let misfits: Vec<String> = all().filter_map(|each| fits(each, value).err()).collect();
            if misfits.len() + 1 != all().count() {
                return Err(format!("not exactly one of: {}", misfits.join(" | ")));
            }
            true
        }
        "anyOf" => all().any(|each| fits(each, value).is_ok()),
        "type" => all().chain(rule.is_string().then_some(rule)).any(|name| is_a(name, value)),
        "enum" => all().any(|each| each == value),
        "const" => rule == value,
        "required" => match value.as_object() {
            Some(fields) => {
                let missing = all().find(|name| !fields.contains_key(name.as_str().unwrap()));
                return missing.map_or(Ok(()), |name| Err(format!("{name} is missing")));
            }
            None => true,
        },
        "properties" => {
            let fields = value.as_object().into_iter().flatten();
            for (name, field) in fields {
                if let Some(each) = rule.get(name) {
                    fits(each, field).map_err(|misfit| format!("/{name}: {misfit}"))?;
                }
            }
            true
        }
        "additionalProperties" => {
            let known = |name: &str| schema.get("properties").is_some_and(|known| known.get(name).is_some());
            let others = value.as_object().into_iter().flatten().filter(|(name, _)| !known(name));
            for (name, field) in others {
                if *rule == Value::Bool(false) {
                    return Err(format!("/{name}: nobody knows this field"));
                }
                fits(rule, field).map_err(|misfit| format!("/{name}: {misfit}"))?;
            }
            true
        }
        "items" => {
            let items = value.as_array().into_iter().flatten().enumerate();
            for (i, item) in items {
                fits(rule, item).map_err(|misfit| format!("/{i}: {misfit}"))?;
            }
            true
        }
        "minimum" => value.as_f64().is_none_or(|n| n >= rule.as_f64().unwrap()),
        "maximum" => value.as_f64().is_none_or(|n| n <= rule.as_f64().unwrap()),
        "description" | "example" | "examples" | "default" | "format" | "title" | "propertyNames" => true,
        _ => return Err(format!("nobody here knows the rule {keyword}")),
    };
    if kept { Ok(()) } else { Err(format!("{value} is not {keyword} {rule}")) }
}

fn is_a(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other}"),
    }
}

#[test]
fn an_answer_that_is_not_as_described_is_found() {
    let reply = |body| fits(&serde_json::json!({ "$ref": "#/components/schemas/VersionReply" }), &body);
    let misfit = reply(serde_json::json!({ "document": null })).unwrap_err();
    assert_eq!(misfit, "VersionReply: \"info\" is missing");
    let misfit = reply(serde_json::json!({ "info": 7 })).unwrap_err();
    assert!(misfit.starts_with("VersionReply: /info: VersionEntry: "), "{misfit}");
}
