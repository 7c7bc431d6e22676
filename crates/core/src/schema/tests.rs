use serde_json::json;

use super::*;

fn schema(written: Value) -> Schema {
    Schema::compile(&written).unwrap_or_else(|p| panic!("{p:?}"))
}

fn accept(schema: &Schema, payload: &str) -> Result<Option<String>, String> {
    let payload = Payload::trusted(payload);
    schema.accept(&payload).map(|p| p.map(|p| p.as_str().to_owned())).map_err(|m| sentence(&m))
}

fn report() -> Schema {
    schema(json!({
        "type": "object",
        "additionalProperties": false,
        "required": ["community"],
        "properties": {
            "community": {"type": "integer", "minimum": 1},
            "date": {"type": "string", "format": "date"},
            "force": {"type": "boolean", "default": false},
            "ids": {"type": "array", "items": {"type": "number"}, "maxItems": 3, "uniqueItems": true},
            "mode": {"enum": ["full", "quick"]},
            "window": {"type": "object", "properties": {"days": {"type": "integer", "default": 28}}},
            "token": {"type": "string", "x-secret": true, "minLength": 4, "pattern": "^t_"}
        }
    }))
}

#[test]
fn every_misfit_is_named_with_its_place_and_what_was_expected() {
    for (payload, said) in [
        (r#"{"community":7,"forec":true}"#, r#"/: unknown property "forec"; did you mean "force"?"#),
        (r#"{"community":"7"}"#, "/community: expected integer, found string"),
        (r#"{"community":0}"#, "/community: expected at least 1"),
        (r#"{"community":1.5}"#, "/community: expected integer, found number"),
        (r#"{"community":1,"date":"31.01.2026"}"#, "/date: expected a date like 2026-01-31"),
        ("{}", r#"/: "community" is missing"#),
        (r#"{"community":1,"ids":[1,"x"]}"#, "/ids/1: expected number, found string"),
        (r#"{"community":1,"ids":[1,2,3,4]}"#, "/ids: expected at most 3 items"),
        (r#"{"community":1,"ids":[1,1]}"#, "/ids: expected no item twice"),
        (r#"{"community":1,"mode":"fast"}"#, r#"/mode: expected one of "full", "quick""#),
        (r#"{"community":1,"window":{"days":"x"}}"#, "/window/days: expected integer, found string"),
        ("[]", "/: expected object, found array"),
        (
            r#"{"community":1,"token":"abc"}"#,
            "/token: expected at least 4 characters; /token: expected text like /^t_/",
        ),
    ] {
        assert_eq!(accept(&report(), payload).unwrap_err(), said, "{payload}");
    }
}

#[test]
fn no_message_shows_a_value() {
    let secret = "hunter2";
    for payload in [
        format!(r#"{{"community":"{secret}"}}"#),
        format!(
            r#"{{"community":1,"token":"{secret}","date":"{secret}","mode":"{secret}","ids":["{secret}"]}}"#
        ),
    ] {
        assert!(!accept(&report(), &payload).unwrap_err().contains(secret));
    }
}

#[test]
fn defaults_are_filled_in_and_everything_else_stays_as_it_was_sent() {
    let filled = accept(&report(), r#"{"window":{}, "community": 10000000000000000000007e0 }"#);
    // Out of range of every integer type, and yet kept to the last digit.
    assert_eq!(
        filled.unwrap().unwrap(),
        r#"{"window":{"days":28},"community":10000000000000000000007e0,"force":false}"#
    );
    assert_eq!(accept(&report(), r#"{"community":1,"force":true}"#), Ok(None));
}

#[test]
fn secrets_are_masked_wherever_they_are() {
    let nested = schema(json!({
        "$defs": {"login": {"type": "object", "properties": {"password": {"type": "string", "writeOnly": true}}}},
        "type": "object",
        "properties": {
            "logins": {"type": "array", "items": {"$ref": "#/$defs/login"}},
            "either": {"anyOf": [{"type": "null"}, {"$ref": "#/$defs/login"}]}
        },
        "additionalProperties": {"x-secret": true}
    }));
    assert!(nested.has_secrets());
    let shown = nested.mask(&Payload::trusted(
        r#"{"logins":[{"user":"a","password":"p1"},{"user":"b"}],"either":{"password":["p2"]},"extra":{"p":"p3"}}"#,
    ));
    assert_eq!(
        shown.unwrap().as_str(),
        r#"{"logins":[{"user":"a","password":"***"},{"user":"b"}],"either":{"password":"***"},"extra":"***"}"#
    );
    assert_eq!(nested.mask(&Payload::trusted(r#"{"logins":[]}"#)), None);
    assert_eq!(schema(json!({"type": "object"})).mask(&Payload::trusted("{}")), None);
}

#[test]
fn alternatives_name_what_came_nearest() {
    let shape = schema(json!({"oneOf": [
        {"type": "object", "required": ["r"], "properties": {"r": {"type": "number"}}, "additionalProperties": false},
        {"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "number"}, "b": {"type": "number"}},
         "additionalProperties": false}
    ]}));
    assert_eq!(accept(&shape, r#"{"r":1}"#), Ok(None));
    assert_eq!(accept(&shape, r#"{"r":"x"}"#).unwrap_err(), "/r: expected number, found string");
    let text = schema(json!({"anyOf": [{"type": "string"}, {"type": "null"}], "not": {"const": "no"}}));
    assert_eq!(
        accept(&text, "7").unwrap_err(),
        "/: fits none of 2 alternatives: expected string, found number / expected null, found number"
    );
    assert_eq!(accept(&text, "\"no\"").unwrap_err(), "/: it fits what is ruled out here");
    let both = schema(json!({"oneOf": [{"type": "integer"}, {"type": "number"}]}));
    assert!(accept(&both, "1").unwrap_err().contains("exactly one"));
}

#[test]
fn a_schema_that_is_not_understood_is_refused_with_every_mistake() {
    let problems = Schema::compile(&json!({
        "type": "objekt",
        "properties": {"a": {"typ": "string"}, "b": {"format": "dates"}, "c": {"pattern": "("}, "d": 7},
        "required": "a",
        "$ref": "https://example.com/other.json",
        "minItems": -1
    }))
    .unwrap_err();
    let said: Vec<String> = problems.iter().map(|p| format!("{}: {}", p.path.join("."), p.what)).collect();
    for part in [
        "type: it should be one of null, boolean",
        "properties.a.typ: this keyword is not supported; did you mean `type`?",
        "properties.b.format: this format is not known; there are date, ",
        "properties.c.pattern: it is not a regular expression",
        "properties.d: a schema is a table",
        "required: it should be a list of names",
        "$ref: only `#` and `#/$defs/NAME` are followed; nothing is fetched",
        "minItems: it should be a whole number",
    ] {
        assert!(said.iter().any(|s| s.starts_with(part)), "{part} in {said:#?}");
    }
    let refuse = |written: Value| Schema::compile(&written).unwrap_err().remove(0).what;
    assert!(
        refuse(json!({"$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"allOf": [{"$ref": "#/$defs/a"}]}}}))
            .contains("refers to itself")
    );
    assert!(refuse(json!({"properties": {"n": {"type": "integer", "default": "x"}}})).contains("default"));
    let mut deep = json!({});
    for _ in 0..40 {
        deep = json!({"items": deep});
    }
    assert!(refuse(deep).contains("nested at most"));
    assert!(refuse(json!({"description": "x".repeat(limits::MAX_SCHEMA_BYTES)})).contains("bytes"));
}

#[test]
fn a_tree_is_checked_through_references() {
    let tree = schema(json!({
        "$defs": {"node": {"type": "object", "properties": {
            "value": {"type": "integer", "default": 1},
            "next": {"$ref": "#/$defs/node"}
        }, "additionalProperties": false}},
        "$ref": "#/$defs/node"
    }));
    let filled = accept(&tree, r#"{"next":{"next":{"value":7}}}"#).unwrap().unwrap();
    assert_eq!(filled, r#"{"next":{"next":{"value":7},"value":1},"value":1}"#);
    assert_eq!(
        accept(&tree, r#"{"next":{"nxt":1}}"#).unwrap_err(),
        "/next: unknown property \"nxt\"; did you mean \"next\"?"
    );
}

#[test]
fn alternatives_inside_alternatives_cannot_hold_up_a_store() {
    let bomb = schema(json!({
        "$defs": {"b": {"anyOf": [
            {"type": "array", "items": {"$ref": "#/$defs/b"}},
            {"type": "array", "items": {"$ref": "#/$defs/b"}},
            {"type": "boolean"}
        ]}},
        "$ref": "#/$defs/b"
    }));
    let deep = format!("{}7{}", "[".repeat(60), "]".repeat(60));
    assert!(accept(&bomb, &deep).unwrap_err().contains("too many alternatives"));
}

#[test]
fn a_schema_survives_its_stored_form() {
    let stored = serde_json::to_string(&report()).unwrap();
    assert_eq!(serde_json::from_str::<Schema>(&stored).unwrap(), report());
    let error = serde_json::from_str::<Schema>(r#"{"typ":"x"}"#).unwrap_err().to_string();
    assert!(error.contains("typ: this keyword is not supported"), "{error}");
}

#[test]
fn a_schema_is_shown_without_its_secrets_and_can_be_written_again() {
    let written = json!({
        "type": "object",
        "properties": {
            "pin": {"type": "integer", "x-secret": true, "default": 4711},
            "login": {"type": "object", "default": {"key": "t0ken"}, "properties": {"key": {"$ref": "#/$defs/key"}}},
            "size": {"enum": ["s", "m"], "default": "m"}
        },
        "$defs": {"key": {"type": "string", "writeOnly": true, "examples": ["t0ken"]}}
    });
    let whole = schema(written.clone());
    let shown = whole.shown();
    let text = shown.written().to_string();
    assert!(!text.contains("4711") && !text.contains("t0ken"), "{text}");
    assert_eq!(shown.written()["properties"]["size"], written["properties"]["size"]);
    assert!(shown.is_hidden() && !whole.is_hidden());
    // What was shown is read again, even where it does not fit, and put back by whoever knows it.
    let again = schema(shown.written().clone());
    assert_eq!(again.clone().revealed(&whole), whole);
    let mut other = shown.written().clone();
    other["properties"]["size"]["default"] = json!("s");
    let other = schema(other).revealed(&whole);
    assert_eq!(other.written()["properties"]["pin"]["default"], 4711);
    assert_eq!(other.written()["properties"]["size"]["default"], "s");
    // Whoever takes the mark away does not get to see what was hidden under it.
    let mut bare = shown.written().clone();
    bare["properties"]["pin"] = json!({"default": shown.written()["properties"]["pin"]["default"]});
    let bare = schema(bare).revealed(&whole).written().to_string();
    assert!(!bare.contains("4711"), "{bare}");
    let (mut payload, old) = (whole.masked(&json!({"pin": 1234})), json!({"pin": 1234}));
    let masked = payload.clone();
    whole.revealed_payload(&mut payload, &old, Some(&schema(json!({"type": "object"}))));
    assert_eq!(payload, masked);
    whole.revealed_payload(&mut payload, &old, Some(&whole));
    assert_eq!(payload, old);
    let bad = json!({"type": "object", "properties": {"pin": {"type": "integer", "x-secret": true, "default": "t0ken"}}});
    let problems = Schema::compile(&bad).unwrap_err();
    assert!(!format!("{problems:?}").contains("t0ken"), "{problems:?}");
}
