//! Gates over HTTP: admissions, permits, and the levers of operators.

use crate::common::{Ask, Served, until};
use hyper::Method;
use serde_json::{Value, json};
use tidegate_wire::keys::{CreatedKey, Role};

const POINTS: &str = r#"
    [[gates.shopify.gates]]
    name = "points"
    per = ["account"]
    gate.reported = { capacity = 100, restore_per_s = 1, known = true }
    [[gates.netsuite.gates]]
    name = "slots"
    gate.slots = { limit = 1 }
    [[gates.netsuite.gates]]
    name = "health"
    gate.breaker = { failures = 3 }
    [connectors]
    rest = "netsuite"
"#;

fn ask(connector: &str, holder: &str, cost: u32) -> Value {
    json!({ "connector": connector, "account": "acme", "holder": holder, "cost": cost })
}

#[tokio::test]
async fn a_call_is_admitted_renewed_and_settled() {
    let served = Served::with_gates(POINTS).await;
    let reply = served.post("/v1/admissions", ask("rest", "h1", 1)).await.is(200).json;
    let permit = reply["admission"]["admitted"]["permit"].clone();
    assert_eq!(permit["target"]["domain"], "netsuite", "a connector uses the gates of its domain");
    let again = served.post("/v1/admissions", ask("rest", "h1", 1)).await.is(200).json;
    assert_eq!(again["admission"]["admitted"]["permit"], permit, "asking again gives the same");

    let wait = served.post("/v1/admissions", ask("rest", "h2", 1)).await.is(200).json;
    assert_eq!(wait["admission"]["wait"]["gate"], "slots");
    assert_eq!(wait["why"].as_str().unwrap().split(':').next(), Some("slots 1 of 1"));
    assert!(wait["retry_in_ms"].as_i64().is_some_and(|ms| (1..=1_000).contains(&ms)), "{wait}");

    let renewed = served.post("/v1/admissions/renew", json!({ "permit": permit })).await.is(200).json;
    assert!(renewed["renewal"]["renewed"]["expires_at"].as_i64() >= permit["expires_at"].as_i64());
    let end = json!({ "permit": permit, "outcome": { "end": "ok" } });
    let settled = served.post("/v1/admissions/settle", end.clone()).await.is(200).json;
    assert_eq!(
        (&settled["settled"]["state"], &settled["settled"]["woken"]),
        (&json!("released"), &json!(["h2"]))
    );
    let twice = served.post("/v1/admissions/settle", end).await.is(200).json;
    assert_eq!(twice["settled"]["state"], "gone");
    let gone = served.post("/v1/admissions/renew", json!({ "permit": permit })).await.is(200).json;
    assert_eq!(gone["renewal"], "gone");

    let target = json!({ "domain": "netsuite", "connector": "rest", "account": "acme" });
    let freed = served.post("/v1/admissions/cancel", json!({ "target": target, "holder": "h2" })).await;
    assert_eq!(freed.is(200).json["freed"]["gone"], 1);
}

#[tokio::test]
async fn a_cost_above_capacity_is_refused_and_a_wait_says_the_number() {
    let served = Served::with_gates(POINTS).await;
    let never = served.post("/v1/admissions", ask("shopify", "h", 101)).await.is(200).json;
    assert_eq!(never["admission"]["refused"]["gate"], "points");
    assert_eq!(never["why"], "it costs 101 and there are never more than 100");
    served.post("/v1/admissions", ask("shopify", "h1", 60)).await.is(200);
    let wait = served.post("/v1/admissions", ask("shopify", "h2", 52)).await.is(200).json;
    let why = wait["why"].as_str().unwrap();
    // The bucket fills while the test runs, so its level is not a round number.
    let number = why.starts_with("bucket 40") && why.contains(" of 100, needs 52, at 1/s: ");
    assert!(number && why.ends_with("; first in line"), "{why}");
}

#[tokio::test]
async fn what_is_not_there_or_not_right_is_a_problem() {
    let served = Served::with_gates(POINTS).await;
    let unknown = served.post("/v1/admissions", ask("gopher", "h", 1)).await.is(404);
    assert_eq!(unknown.code(), "TG3008");
    let bad = served
        .post("/v1/admissions", json!({ "connector": "rest", "holder": "h", "account": "a/b" }))
        .await
        .is(422);
    assert_eq!(bad.json["pointer"], "/account");
    let typo = served
        .post("/v1/admissions", json!({ "connector": "rest", "holder": "h", "costs": 1 }))
        .await
        .is(400);
    assert!(typo.json["detail"].as_str().unwrap().contains("did you mean `cost`?"));
    let act = json!({ "act": { "do": "switch", "gate": "nope", "off": true }, "why": "x" });
    assert_eq!(served.post("/v1/gates/netsuite", act).await.is(404).code(), "TG3008");
    let silent = json!({ "act": { "do": "clear" }, "why": " " });
    assert_eq!(served.post("/v1/gates/netsuite", silent).await.is(400).json["pointer"], "/why");
    let without = Served::memory().await;
    assert_eq!(without.post("/v1/admissions", ask("rest", "h", 1)).await.is(404).code(), "TG3008");
    assert_eq!(without.get("/v1/gates").await.is(200).json["domains"], json!([]));
}

#[tokio::test]
async fn operators_see_everything_and_their_acts_are_on_record() {
    let served = Served::with_gates(POINTS).await;
    served.post("/v1/admissions", ask("rest", "h1", 1)).await.is(200);
    served.post("/v1/admissions", ask("rest", "h2", 1)).await.is(200);
    served.post("/v1/admissions", ask("rest", "h3", 1)).await.is(200);
    let act = async |act: Value| {
        let body = json!({ "act": act, "by": "ada", "why": "test" });
        served.send(Ask::new(Method::POST, "/v1/gates/netsuite").json(&body)).await.is(200).json
    };
    assert_eq!(act(json!({ "do": "promote", "holder": "h3" })).await, json!({ "promoted": true }));
    let view = served.get("/v1/gates/netsuite").await.is(200).json;
    assert_eq!(view["holders"][0]["holder"], "h1");
    let ahead = |holder: &str| {
        let waiters = view["waiters"].as_array().unwrap();
        waiters.iter().find(|w| w["holder"] == holder).unwrap()["ahead"].clone()
    };
    assert_eq!((ahead("h3"), ahead("h2")), (json!(0), json!(1)));
    let dry = act(json!({ "do": "release", "holder": "h1", "dry_run": true })).await;
    assert_eq!(dry["released"]["leases"][0]["holder"], "h1");
    let released = act(json!({ "do": "release", "holder": "h1" })).await;
    assert_eq!(released["released"]["woken"], json!(["h3"]));
    assert_eq!(
        act(json!({ "do": "breaker", "gate": "health", "order": { "trip": { "lasts": 60_000_000 } } })).await
            ["breakers"],
        1
    );
    let wait = served.post("/v1/admissions", ask("rest", "h3", 1)).await.is(200).json;
    assert_eq!(wait["admission"]["wait"]["gate"], "health");
    act(json!({ "do": "breaker", "gate": "health", "order": "reset" })).await;
    let off = act(json!({ "do": "switch", "gate": "slots", "off": true })).await;
    assert_eq!((&off["off"][0]["gate"], &off["off"][0]["note"]["who"]), (&json!("slots"), &json!("ada")));
    let cleared = act(json!({ "do": "clear" })).await;
    assert_eq!(cleared["cleared"]["domain"], "netsuite");
    let view = served.get("/v1/gates/netsuite").await.is(200).json;
    let changes: Vec<&str> =
        view["changes"].as_array().unwrap().iter().map(|c| c["what"].as_str().unwrap()).collect();
    assert_eq!(changes.len(), 6, "a dry run is no change: {changes:?}");
    assert_eq!(view["off"][0]["note"], json!({ "who": "ada", "why": "test" }));
}

#[tokio::test]
async fn lives_of_permits_are_shown_to_operators_and_to_a_tenant_its_own() {
    let served = Served::with_gates(POINTS).await;
    let admin = served.key(Role::Admin, None).await;
    let send = async |key: &CreatedKey, ask: Ask| served.send(ask.maybe_key(Some(key))).await;
    // Made by the server, they are known at once.
    let new_key = async |role: Role, tenant: Option<&str>| -> CreatedKey {
        let body = json!({ "name": "test", "role": role, "tenant": tenant }).to_string();
        let ask = Ask::new(Method::POST, "/v1/keys").raw("application/json", body);
        serde_json::from_value(send(&admin, ask).await.json).unwrap()
    };
    let worker = new_key(Role::Worker, None).await;
    for (holder, tenant) in [("job_1", "acme"), ("job_2", "umbrella"), ("job_3", "acme")] {
        let body = json!({ "connector": "rest", "tenant": tenant, "holder": holder });
        let ask = Ask::new(Method::POST, "/v1/admissions").raw("application/json", body.to_string());
        send(&worker, ask).await.is(200);
    }
    let traces = async |key: &CreatedKey, query: &str| {
        let reply =
            send(key, Ask::new(Method::GET, &format!("/v1/gates/netsuite/traces{query}"))).await.is(200).json;
        let holders =
            reply["traces"].as_array().unwrap().iter().map(|t| t["holder"].as_str().unwrap().to_owned());
        holders.collect::<Vec<_>>()
    };
    assert_eq!(traces(&admin, "").await, ["job_1", "job_2", "job_3"]);
    assert_eq!(traces(&admin, "?last=1").await, ["job_3"]);
    assert_eq!(traces(&admin, "?holder=job_2").await, ["job_2"]);
    assert_eq!(traces(&admin, "?tenant=umbrella").await, ["job_2"]);
    let acme = new_key(Role::Operator, Some("acme")).await;
    assert_eq!(traces(&acme, "").await, ["job_1", "job_3"]);
    assert_eq!(traces(&acme, "?holder=job_2").await, [""; 0], "it belongs to another");
    assert_eq!(traces(&acme, "?tenant=umbrella").await, [""; 0]);
    for bad in ["?last=0", "?last=101", "?last=x", "?gopher=1"] {
        send(&admin, Ask::new(Method::GET, &format!("/v1/gates/netsuite/traces{bad}"))).await.is(400);
    }
    send(&admin, Ask::new(Method::GET, "/v1/gates/gopher/traces")).await.is(404);

    let report = send(&admin, Ask::new(Method::GET, "/v1/slo")).await.is(200).json["report"].clone();
    let netsuite =
        report["domains"].as_array().unwrap().iter().find(|d| d["metrics"]["domain"] == "netsuite").unwrap();
    assert_eq!(
        (&netsuite["metrics"]["total"]["reserved"], &netsuite["live"]["waiting"]),
        (&json!(1), &json!(2))
    );
    assert!(report["verdicts"].as_array().unwrap().iter().any(|v| v["objective"] == "slot_leakage"));
}

#[tokio::test]
async fn a_job_whose_turn_an_admission_made_is_called_at_once() {
    let served = Served::with_gates(POINTS).await;
    served.register().await;
    let id = served.mail(json!({})).await;
    let whole = served.post("/v1/admissions", ask("shopify", "h1", 100)).await.is(200).json;
    served.post("/v1/admissions", ask("shopify", "h2", 10)).await.is(200);
    let wait = served.post("/v1/admissions", ask("shopify", &id, 10)).await.is(200).json;
    assert_eq!(wait["admission"]["wait"]["position"], 2);
    let ticket = served.claim(1).await["jobs"][0]["ticket"].clone();
    let put_off = json!({ "for_ms": 3_600_000, "reason": "points", "gate": "shopify" });
    served.settle(json!({ "ticket": ticket, "outcome": "snooze", "snooze": put_off })).await;
    // All of it comes back, and the first in line is told: there is more than that one needs.
    let end = json!({ "permit": whole["admission"]["admitted"]["permit"], "outcome": { "end": "ok", "actual": 0 } });
    let settled = served.post("/v1/admissions/settle", end).await.is(200).json;
    assert_eq!(settled["settled"]["woken"], json!(["h2"]));
    let second = served.post("/v1/admissions", ask("shopify", "h2", 10)).await.is(200).json;
    assert_eq!(second["admission"]["admitted"]["woken"], json!([id]));
    until("the job is called", async || {
        served.get(&format!("/v1/jobs/{id}")).await.is(200).json["state"] == "ready"
    })
    .await;
}

#[tokio::test]
async fn an_act_says_if_more_wait_than_it_called() {
    let served = Served::with_gates(POINTS).await;
    let act = async |act: Value| {
        let body = json!({ "act": act, "why": "test" });
        served.post("/v1/gates/netsuite", body).await.is(200).json
    };
    act(json!({ "do": "breaker", "gate": "health", "order": { "trip": { "lasts": 60_000_000 } } })).await;
    let mut client = served.connect().await;
    for n in 0..=1_000 {
        if n == 1_000 {
            let reset = act(json!({ "do": "breaker", "gate": "health", "order": "reset" })).await;
            assert_eq!(reset, json!({ "breakers": 1 }), "all were called");
            act(json!({ "do": "breaker", "gate": "health", "order": { "trip": { "lasts": 60_000_000 } } }))
                .await;
        }
        let body = ask("rest", &format!("h{n}"), 1);
        client.send(Ask::new(Method::POST, "/v1/admissions").json(&body)).await.is(200);
    }
    let reset = act(json!({ "do": "breaker", "gate": "health", "order": "reset" })).await;
    assert_eq!(reset, json!({ "breakers": 1, "called_first": 1_000 }));
}
