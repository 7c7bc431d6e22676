//! The served description of the API.

use std::collections::BTreeSet;

use crate::common::Served;
use serde_json::Value;
use tidegate_server::routes::ROUTES;

#[test]
fn every_route_is_described_and_nothing_else() {
    let document = serde_json::to_value(tidegate_server::openapi()).unwrap();
    let described: BTreeSet<(String, String)> = document["paths"]
        .as_object()
        .unwrap()
        .iter()
        .flat_map(|(path, item)| {
            item.as_object().unwrap().keys().map(move |m| (path.clone(), m.to_uppercase()))
        })
        .collect();
    let routes: BTreeSet<(String, String)> =
        ROUTES.iter().map(|r| (r.path.to_owned(), r.method.to_string())).collect();
    assert_eq!(described, routes);
}

#[test]
fn routes_without_a_key_are_those_described_so() {
    let document = serde_json::to_value(tidegate_server::openapi()).unwrap();
    for route in ROUTES {
        let operation = &document["paths"][route.path][route.method.as_str().to_lowercase()];
        let open = operation["security"] == serde_json::json!([{}]);
        assert_eq!(open, route.access.open, "{} {}", route.method, route.path);
    }
}

#[test]
fn every_body_has_an_example_and_every_reference_leads_somewhere() {
    let document = serde_json::to_value(tidegate_server::openapi()).unwrap();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            assert!(!operation["responses"].as_object().unwrap().is_empty(), "{method} {path}");
            let body = &operation["requestBody"];
            if body["required"] == true {
                let json = &body["content"]["application/json"];
                assert!(!json["example"].is_null() || !json["examples"].is_null(), "{method} {path}");
            }
        }
    }
    let mut references = vec![];
    collect(&document, &mut references);
    assert!(references.len() > 50);
    for reference in references {
        let pointer = reference.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{reference}");
    }
}

fn collect(value: &Value, into: &mut Vec<String>) {
    match value {
        Value::Object(map) => {
            into.extend(map.get("$ref").and_then(Value::as_str).map(str::to_owned));
            map.values().for_each(|v| collect(v, into));
        }
        Value::Array(list) => list.iter().for_each(|v| collect(v, into)),
        _ => {}
    }
}

#[tokio::test]
async fn the_document_is_served_as_reviewed() {
    let served = Served::memory().await;
    let reply = served.get("/openapi.json").await.is(200);
    assert_eq!(reply.headers["content-type"], "application/json");
    let mut document = reply.json;
    document["info"]["version"] = "0.0.0".into();
    insta::assert_json_snapshot!(document);
}
