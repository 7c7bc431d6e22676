//! The registry as a document, its history, and events.

use crate::common::{Ask, Served, over_stores};
use hyper::Method;
use serde_json::{Value, json};
use tidegate_wire::keys::Role;

over_stores! {
    a_worker_cannot_say_that_a_document_describes_its_kind,
    the_events_name_is_part_of_what_makes_it_the_same,
    alerts_and_schedules_of_a_document_are_shown_and_its_secrets_are_not,
    a_document_is_put_shown_and_taken_back,
    a_document_that_has_a_name_is_the_same_from_wherever_it_is_put,
    a_document_with_mistakes_changes_nothing_and_is_in_the_history,
    an_event_enqueues_every_kind_that_subscribes_once,
    an_event_of_a_tenant_is_that_tenants,
    a_payload_that_does_not_fit_is_refused_and_secrets_are_not_shown,
}

fn orders() -> Value {
    json!({
        "queues": {"post": {"concurrency": 3}},
        "kinds": {
            "invoice": {"queue": "post", "timeout": "45s", "on": ["order.paid"]},
            "label": {"queue": "post", "on": ["order.paid", "order.moved"], "schema": {
                "type": "object", "required": ["order"], "properties": {
                    "order": {"type": "integer"}, "door_code": {"type": "string", "x-secret": true}}}},
            "audit": {"queue": "post"}
        }
    })
}

async fn a_document_is_put_shown_and_taken_back(served: Served) {
    let dry = served.put("/v1/registry?dry_run=true", orders()).await.is(200).json;
    assert_eq!((&dry["version"], dry["changes"].as_array().unwrap().len()), (&Value::Null, 4));
    let first = served.put("/v1/registry?source=deploy", orders()).await.is(200).json;
    assert_eq!(first["version"], 1);
    let toml = "[kinds.invoice]\nqueue = \"post\"\ntimeout = \"60s\"\n";
    let ask = Ask::new(Method::PUT, "/v1/registry").raw("application/toml; charset=utf-8", toml);
    assert_eq!(served.send(ask).await.is(200).json["version"], 2);
    let shown = served.get("/v1/registry").await.is(200).json;
    let kinds = &shown["document"]["kinds"];
    assert_eq!(
        (&kinds["invoice"]["timeout_ms"], &kinds["label"]["on"][1]),
        (&json!(60_000), &json!("order.moved"))
    );
    let same = served.put("/v1/registry", shown["document"].clone()).await.is(200).json;
    assert_eq!(same["changes"], json!([]), "what is shown can be put again");
    let back = served.post("/v1/registry/rollback", json!({"version": 1})).await.is(200).json;
    assert_eq!(back["version"], 3);
    let history = served.get("/v1/registry/history?limit=2").await.is(200).json;
    let sources: Vec<&Value> = history["versions"].as_array().unwrap().iter().map(|v| &v["source"]).collect();
    assert_eq!(sources, ["rollback to 1", "api"]);
    let version = served.get("/v1/registry/history/1").await.is(200).json;
    assert_eq!(
        (&version["info"]["source"], &version["document"]["kinds"]["invoice"]["timeout_ms"]),
        (&json!("deploy"), &json!(45_000))
    );
    for path in ["/v1/registry/history/99", "/v1/registry/history/x"] {
        assert_eq!(served.get(path).await.is(404).code(), "TG3031");
    }
    assert_eq!(served.post("/v1/registry/rollback", json!({"version": 99})).await.is(404).code(), "TG3031");
    assert_eq!(
        served.send(Ask::new(Method::PUT, "/v1/registry").raw("text/plain", "x")).await.is(415).code(),
        "TG2012"
    );
}

async fn a_document_that_has_a_name_is_the_same_from_wherever_it_is_put(served: Served) {
    let mut document = orders();
    document["document"] = json!("orders");
    document["kinds"]["audit"]["schedule"] = json!({"every": "1h"});
    let first = served.put("/v1/registry?source=laptop", document).await.is(200).json;
    assert_eq!(first["changed"]["schedules"], 1);
    let other =
        served.put("/v1/registry", json!({"queues": {"post": {"concurrency": 3}}})).await.is(200).json;
    assert_eq!(
        (&other["left_alone"], &other["left"][0]),
        (&json!(4), &json!({"what": "schedule", "name": "audit", "document": "orders"}))
    );
    let retired = || async { served.get("/v1/schedules/audit").await.is(200).json["retired"].clone() };
    assert_eq!(retired().await, Value::Null);
    served.put("/v1/registry?source=deploy", json!({"document": "orders"})).await.is(200);
    assert!(retired().await.is_string());
    let refused = served.put("/v1/registry", json!({"document": ""})).await.is(422);
    assert!(refused.text("/detail").starts_with("document: "), "{}", refused.json);
}

async fn a_document_with_mistakes_changes_nothing_and_is_in_the_history(served: Served) {
    let mut wrong = orders();
    wrong["kinds"]["label"]["queue"] = json!("psot");
    wrong["kinds"]["audit"]["timeout"] = json!(5);
    let refused = served.put("/v1/registry", wrong).await.is(422);
    assert_eq!(refused.code(), "TG2050");
    assert!(refused.text("/detail").contains("kinds.audit.timeout: it is a number"), "{}", refused.json);
    // In one pass: what it names is looked at although it could not be read as a whole.
    assert!(
        refused.text("/detail").contains("kinds.label.queue: there is no queue psot"),
        "{}",
        refused.json
    );
    let mut misplaced = orders();
    misplaced["kinds"]["label"]["queue"] = json!("psot");
    let refused = served.put("/v1/registry", misplaced).await.is(422);
    assert!(
        refused.text("/detail").contains("kinds.label.queue: there is no queue psot; did you mean `post`?"),
        "{}",
        refused.json
    );
    assert_eq!(served.get("/v1/kinds").await.is(200).json, json!({"kinds": []}));
    let history = served.get("/v1/registry/history").await.is(200).json;
    let outcomes: Vec<&Value> =
        history["versions"].as_array().unwrap().iter().map(|v| &v["outcome"]).collect();
    assert_eq!(outcomes, ["refused", "refused"]);
    assert_eq!(history["versions"][1]["problems"][0]["path"], "kinds.audit.timeout");
}

async fn an_event_enqueues_every_kind_that_subscribes_once(served: Served) {
    served.put("/v1/registry", orders()).await.is(200);
    let publish = || {
        Ask::new(Method::POST, "/v1/events")
            .json(&json!({"event": "order.paid", "payload": {"order": 7}}))
            .header("idempotency-key", "order-7")
    };
    let first = served.send(publish()).await.is(201).json;
    let kinds: Vec<&Value> = first["jobs"].as_array().unwrap().iter().map(|j| &j["kind"]).collect();
    assert_eq!(kinds, ["invoice", "label"]);
    let again = served.send(publish()).await.is(200).json;
    let ids =
        |reply: &Value| reply["jobs"].as_array().unwrap().iter().map(|j| j["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(&again), ids(&first));
    let jobs = served.get("/v1/jobs").await.is(200).json;
    assert_eq!(jobs["jobs"].as_array().unwrap().len(), 2);
    let misfit =
        served.post("/v1/events", json!({"event": "order.paid", "payload": {"order": "7"}})).await.is(422);
    assert_eq!(misfit.code(), "TG2004");
    let after = served.get("/v1/jobs").await.is(200).json;
    assert_eq!(after["jobs"].as_array().unwrap().len(), 2, "all of them or none");
    let unknown = served.post("/v1/events", json!({"event": "order.payed"})).await.is(404);
    assert_eq!(unknown.code(), "TG3030");
    assert!(unknown.text("/detail").contains("did you mean `order.paid`"), "{}", unknown.json);
}

async fn an_event_of_a_tenant_is_that_tenants(served: Served) {
    // Keys first: what is known of them may be a moment old.
    let admin = served.key(Role::Admin, None).await;
    let acme = served.key(Role::Producer, Some("acme")).await;
    let other = served.key(Role::Producer, Some("other")).await;
    served.send(Ask::new(Method::PUT, "/v1/registry").json(&orders()).key(&admin)).await.is(200);
    let publish = |tenant: Option<&str>| {
        let body = json!({"event": "order.moved", "payload": {"order": 7}, "tenant": tenant});
        Ask::new(Method::POST, "/v1/events").json(&body).header("idempotency-key", "same")
    };
    let reply = served.send(publish(None).key(&acme)).await.is(201).json;
    let path = format!("/v1/jobs/{}", reply["jobs"][0]["id"].as_str().unwrap());
    let job = served.send(Ask::new(Method::GET, &path).key(&acme)).await.is(200).json;
    assert_eq!(job["tenant"], "acme");
    served.send(Ask::new(Method::GET, &path).key(&other)).await.is(404);
    assert_eq!(served.send(publish(Some("acme")).key(&other)).await.is(403).code(), "TG2016");
    // The same idempotency key of another key is another event.
    served.send(publish(None).key(&other)).await.is(201);
}

async fn a_payload_that_does_not_fit_is_refused_and_secrets_are_not_shown(served: Served) {
    served.put("/v1/registry", orders()).await.is(200);
    let bad = served.post("/v1/jobs", json!({"kind": "label", "payload": {}})).await.is(422);
    assert!(bad.text("/detail").contains("\"order\" is missing"), "{}", bad.json);
    let payload = json!({"order": 7, "door_code": "4711-hidden"});
    let id = served.post("/v1/jobs", json!({"kind": "label", "payload": payload})).await.is(201).text("/id");
    let job = served.get(&format!("/v1/jobs/{id}")).await.is(200).json;
    assert_eq!(job["payload"], json!({"order": 7, "door_code": "***"}));
    assert_eq!(served.get("/v1/jobs?text=4711-hidden").await.is(200).json["jobs"], json!([]));
    let claimed = served.claim(1).await;
    assert_eq!(claimed["jobs"][0]["payload"]["door_code"], "4711-hidden", "{claimed}");
}

async fn a_worker_cannot_say_that_a_document_describes_its_kind(served: Served) {
    let admin = served.key(Role::Admin, None).await;
    let worker = served.key(Role::Worker, None).await;
    served.send(Ask::new(Method::PUT, "/v1/registry").json(&orders()).key(&admin)).await.is(200);
    let mine = json!({"queue": "post", "managed": true, "document": "mine.toml", "timeout_ms": 7});
    let put = |name: &str| Ask::new(Method::PUT, &format!("/v1/kinds/{name}")).json(&mine);
    assert_eq!(served.send(put("invoice").key(&worker)).await.is(409).code(), "TG4030");
    served.send(put("new").key(&worker)).await.is(204);
    let kind = |name: &'static str| {
        let ask = Ask::new(Method::GET, &format!("/v1/kinds/{name}")).key(&admin);
        served.send(ask)
    };
    let new = kind("new").await.is(200).json;
    assert_eq!(
        (&new["settings"]["managed"], &new["settings"]["document"]),
        (&Value::Null, &Value::Null),
        "{new}"
    );
    let invoice = kind("invoice").await.is(200).json;
    assert_eq!(invoice["settings"]["timeout_ms"], 45_000, "{invoice}");
    let scheduled = json!({"queue": "post", "schedule": {"every": "1s"}});
    let ask = Ask::new(Method::PUT, "/v1/kinds/new").json(&scheduled).key(&worker);
    assert_eq!(served.send(ask).await.is(422).code(), "TG2008");
}

async fn the_events_name_is_part_of_what_makes_it_the_same(served: Served) {
    served.put("/v1/registry", orders()).await.is(200);
    let publish = |event: &str| {
        Ask::new(Method::POST, "/v1/events")
            .json(&json!({"event": event, "payload": {"order": 7}}))
            .header("idempotency-key", "order-7")
    };
    let paid = served.send(publish("order.paid")).await.is(201).json;
    let moved = served.send(publish("order.moved")).await.is(201).json;
    assert_eq!(
        (paid["jobs"][1]["kind"].as_str(), moved["jobs"][0]["kind"].as_str()),
        (Some("label"), Some("label"))
    );
    assert_ne!(paid["jobs"][1]["id"], moved["jobs"][0]["id"], "another event is another job");
    served.send(publish("order.moved")).await.is(200);
    assert_eq!(served.get("/v1/jobs").await.is(200).json["jobs"].as_array().unwrap().len(), 3);
}

async fn alerts_and_schedules_of_a_document_are_shown_and_its_secrets_are_not(served: Served) {
    let mut document = orders();
    document["kinds"]["label"]["schedule"] =
        json!({"cron": "0 3 * * *", "payload": {"order": 1, "door_code": "4711-hidden"}});
    document["kinds"]["label"]["schema"]["properties"]["pin"] =
        json!({"type": "string", "writeOnly": true, "default": "0000-hidden"});
    document["kinds"]["label"]["alerts"] = json!(["failed"]);
    served.put("/v1/registry?source=deploy", document).await.is(200);
    let schedule = served.get("/v1/schedules/label").await.is(200).json;
    assert_eq!((&schedule["document"], &schedule["retired"]), (&json!("deploy"), &Value::Null));
    assert_eq!(schedule["settings"]["payload"], json!({"order": 1, "door_code": "***"}));
    let refused = served.send(Ask::new(Method::DELETE, "/v1/schedules/label")).await.is(409);
    assert_eq!(refused.code(), "TG4021");
    assert!(refused.text("/detail").contains("deploy"), "{}", refused.json);
    let rules = served.get("/v1/alerts/rules").await.is(200).json;
    let own = rules["rules"].as_array().unwrap().iter().find(|r| r["id"] == "failed").unwrap().clone();
    assert_eq!(own["on"], json!(["label"]));
    for path in [
        "/v1/schedules",
        "/v1/schedules/label",
        "/v1/kinds",
        "/v1/kinds/label",
        "/v1/registry",
        "/v1/registry?full=true",
        "/v1/registry/history",
        "/v1/registry/history/1",
    ] {
        let reply = served.get(path).await.is(200);
        let shown = reply.json.to_string();
        assert!(!shown.contains("-hidden"), "{path}: {shown}");
    }
    // What is shown can be put again, and changes no secret.
    let shown = served.get("/v1/registry").await.is(200).json["document"].clone();
    assert_eq!(served.put("/v1/registry?source=deploy", shown).await.is(200).json["changes"], json!([]));
    served.post("/v1/schedules/label/run", json!({})).await.is(200);
    let claimed = served.claim(1).await;
    assert_eq!(
        claimed["jobs"][0]["payload"],
        json!({"order": 1, "door_code": "4711-hidden", "pin": "0000-hidden"}),
        "{claimed}"
    );
}
