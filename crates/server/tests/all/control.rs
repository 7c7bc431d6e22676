//! Queues, kinds, parks, groups, dead letters, workers, tenants.

use crate::common::{Ask, Served, now, over_stores};
use hyper::Method;
use serde_json::{Value, json};

over_stores! {
    queues_are_listed_changed_paused_and_resumed,
    kinds_are_registered_and_shown,
    parks_and_groups_come_and_go,
    dead_letters_are_listed_recovered_and_resolved,
    dead_letters_are_counted_by_cause_processed_and_reauthorized,
    a_tenant_is_erased_step_by_step,
    workers_announce_themselves_and_are_told_to_drain,
    the_server_says_what_it_is,
    the_server_does_its_own_upkeep,
}

async fn queues_are_listed_changed_paused_and_resumed(served: Served) {
    served.register().await;
    served
        .put("/v1/queues/post", json!({"concurrency": 3, "limiter": {"max": 5, "per_ms": 1000}}))
        .await
        .is(204);
    served.mail(json!({})).await;
    let queue = served.get("/v1/queues/post").await.is(200).json;
    assert_eq!((&queue["settings"]["concurrency"], &queue["ready"]), (&json!(3), &json!(1)));
    assert!(queue["oldest_ready_at"].is_string());
    served
        .post("/v1/queues/post/pause", json!({"by": "ada", "reason": "month end", "for_ms": 60000}))
        .await
        .is(204);
    served.send(Ask::new(Method::POST, "/v1/queues/post/pause")).await.is(204);
    let list = served.get("/v1/queues").await.is(200).json;
    let by: Vec<&Value> = list["queues"][0]["parks"].as_array().unwrap().iter().map(|p| &p["by"]).collect();
    assert_eq!(by, ["ada", "operator"]);
    served.post("/v1/queues/post/resume", json!({"by": "ada"})).await.is(204);
    served.send(Ask::new(Method::POST, "/v1/queues/post/resume")).await.is(204);
    assert_eq!(served.send(Ask::new(Method::POST, "/v1/queues/post/resume")).await.is(404).code(), "TG3002");
    let settings = served.get("/v1/settings").await.is(200).json;
    assert_eq!(settings["queues"][0]["settings"]["limiter"], json!({"max": 5, "per_ms": 1000}));
    assert_eq!(served.put("/v1/queues/post", json!({"weight": 0})).await.is(422).code(), "TG2008");
    assert_eq!(served.get("/v1/queues/nope").await.is(404).code(), "TG2002");
    assert_eq!(served.get("/v1/queues/a%20b").await.is(422).code(), "TG2001");
}

async fn kinds_are_registered_and_shown(served: Served) {
    served.register().await;
    let kinds = served.get("/v1/kinds").await.is(200).json;
    assert_eq!(kinds["kinds"][0]["name"], "mail");
    let kind = served.get("/v1/kinds/mail").await.is(200).json;
    assert_eq!(
        (&kind["settings"]["queue"], &kind["settings"]["timeout_ms"]),
        (&json!("post"), &json!(30000))
    );
    let near = served.get("/v1/kinds/mial").await.is(404);
    assert!(near.text("/detail").contains("did you mean `mail`"), "{}", near.json);
    assert_eq!(served.put("/v1/kinds/x", json!({"queue": "nope"})).await.is(404).code(), "TG2002");
    assert_eq!(
        served.put("/v1/kinds/x", json!({"queue": "post", "timeout_ms": 0})).await.is(422).code(),
        "TG2008"
    );
}

async fn parks_and_groups_come_and_go(served: Served) {
    let park =
        json!({"scope": {"group": "acme", "connector": "shop"}, "pause": {"by": "ada", "reason": "moving"}});
    served.put("/v1/parks", park).await.is(204);
    served.post("/v1/groups/acme/pause", json!({"by": "ada"})).await.is(204);
    served.put("/v1/parks", json!({"scope": {"connector": "shop"}})).await.is(204);
    assert_eq!(served.get("/v1/parks").await.is(200).json["parks"].as_array().unwrap().len(), 3);
    let groups = served.get("/v1/groups").await.is(200).json;
    assert_eq!(groups["groups"].as_array().unwrap().len(), 1);
    assert_eq!(groups["groups"][0]["name"], "acme");
    assert_eq!(groups["groups"][0]["parks"].as_array().unwrap().len(), 2);
    served.delete("/v1/parks?group=acme&connector=shop&by=ada").await.is(204);
    served.delete("/v1/parks?connector=shop").await.is(204);
    served.post("/v1/groups/acme/resume", json!({"by": "ada"})).await.is(204);
    assert_eq!(served.get("/v1/parks").await.is(200).json, json!({"parks": []}));
    assert_eq!(served.delete("/v1/parks?group=acme&by=ada").await.is(404).code(), "TG3002");
    served.delete("/v1/parks").await.is(400);
    let both = json!({"scope": {"queue": "post", "group": "acme"}});
    assert_eq!(served.put("/v1/parks", both).await.is(400).json["pointer"], "/scope/queue");
}

async fn kill(served: &Served) -> String {
    kill_by(served, "INVALID_INPUT", "no such address").await
}

async fn kill_by(served: &Served, category: &str, message: &str) -> String {
    let id = served.mail(json!({"tenant": "acme"})).await;
    let ticket = served.claim(1).await["jobs"][0]["ticket"].clone();
    let failure = json!({"category": category, "code": "BAD", "message": message});
    let settled = served.settle(json!({"ticket": ticket, "outcome": "fail", "failure": failure})).await;
    assert_eq!(settled["state"], "dead");
    id
}

async fn dead_letters_are_listed_recovered_and_resolved(served: Served) {
    served.register().await;
    let (first, second) = (kill(&served).await, kill(&served).await);
    let dead = served.get("/v1/dead?review=pending_review&text=address").await.is(200).json;
    assert_eq!(dead["jobs"].as_array().unwrap().len(), 2);
    assert_eq!(dead["jobs"][1]["dead"]["code"], "BAD");
    let ids = json!({"ids": [first, "job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB"]});
    let recovered = served.post("/v1/dead/recover", ids.clone()).await.is(200).json["recovered"].clone();
    assert_eq!((&recovered[0]["status"], &recovered[1]["status"]), (&json!("recovered"), &json!("not_dead")));
    let again = served.post("/v1/dead/recover", ids).await.is(200).json["recovered"].clone();
    assert_eq!((&again[0]["status"], &again[0]["as"]), (&json!("already"), &recovered[0]["as"]));
    let new = served.get(&format!("/v1/jobs/{}", recovered[0]["as"].as_str().unwrap())).await.is(200).json;
    assert_eq!(new["recovered_from"], json!(first));
    let resolve = json!({"resolution": "config_fix", "by": "ada"});
    served.post(&format!("/v1/dead/{second}/resolve"), resolve.clone()).await.is(204);
    let job = served.get(&format!("/v1/jobs/{second}")).await.is(200).json;
    assert_eq!(
        (&job["dead"]["review"], &job["dead"]["resolved_by"]),
        (&json!("manual_resolved"), &json!("ada"))
    );
    let alive = new["id"].as_str().unwrap();
    let refused = served.post(&format!("/v1/dead/{alive}/resolve"), resolve).await;
    assert!(refused.status.is_client_error());
    served.get("/v1/dead?state=ready").await.is(400);
    served.post("/v1/dead/recover", json!({"ids": []})).await.is(422);
}

async fn dead_letters_are_counted_by_cause_processed_and_reauthorized(served: Served) {
    served.register().await;
    let grant = kill_by(&served, "PERMANENT_AUTH", "grant 17 is revoked").await;
    for n in 0..3 {
        kill_by(&served, "INVALID_INPUT", &format!("no address {n}")).await;
    }
    let found = served.get("/v1/dead/causes").await.is(200).json;
    assert_eq!((&found["total"], &found["other"]), (&json!(4), &json!(0)));
    let top = &found["causes"][0];
    assert_eq!((&top["count"], &top["message"]), (&json!(3), &json!("no address #")));
    let of_cause = format!("/v1/dead?cause={}", top["cause"].as_str().unwrap());
    assert_eq!(served.get(&of_cause).await.is(200).json["jobs"].as_array().unwrap().len(), 3);
    let few = served.get("/v1/dead/causes?limit=1&tenant=acme").await.is(200).json;
    assert_eq!((few["causes"].as_array().unwrap().len(), &few["other"]), (1, &json!(1)));
    served.get("/v1/dead/causes?limit=201").await.is(400);
    served.get("/v1/dead?cause=nonsense").await.is(400);
    served.get("/v1/dead?category=NONSENSE").await.is(400);

    let done = served.send(Ask::new(Method::POST, "/v1/dead/process")).await.is(200).json;
    assert_eq!((&done["looked_at"], &done["asked"], &done["left"]), (&json!(4), &json!(1), &json!(3)));
    let again = served.send(Ask::new(Method::POST, "/v1/dead/process")).await.is(200).json;
    assert_eq!((&again["asked"], &again["left"]), (&json!(0), &json!(4)));
    let metrics = served.get("/metrics").await.is(200);
    let text = String::from_utf8_lossy(&metrics.body);
    assert!(text.contains("tidegate_dead_letters_processed_total{outcome=\"asked\"} 1"), "{text}");

    let path = "/v1/dead/reauthorized";
    served.post(path, json!({})).await.is(400);
    served.post(path, json!({"ids": [grant], "tenant": "acme"})).await.is(400);
    let none = served.post(path, json!({"tenant": "other"})).await.is(200).json;
    assert_eq!(none, json!({"letters": [], "more": false}));
    let oldest = served.get("/v1/dead?limit=3").await.is(200).json["next"].clone();
    let newer = json!({"tenant": "acme", "after": oldest, "resolve": true});
    assert_eq!(served.post(path, newer).await.is(200).json["letters"][0]["dead"], json!(grant));
    let grant = kill_by(&served, "PERMANENT_AUTH", "grant 18 is revoked").await;
    let behind = json!({"tenant": "acme", "after": oldest});
    let none = served.post(path, behind).await.is(200).json;
    assert_eq!(none, json!({"letters": [], "more": false}), "it goes on from there");
    let heard = served.post(path, json!({"tenant": "acme"})).await.is(200).json;
    assert_eq!(heard["letters"].as_array().unwrap().len(), 1, "{heard}");
    assert_eq!(
        (&heard["letters"][0]["dead"], &heard["letters"][0]["status"]),
        (&json!(grant), &json!("recovered"))
    );
    let job = served.get(&format!("/v1/jobs/{grant}")).await.is(200).json;
    assert_eq!(
        (&job["dead"]["review"], &job["dead"]["resolution"], &job["dead"]["recovered_as"]),
        (&json!("auto_resolved"), &json!("reauthorize"), &heard["letters"][0]["as"])
    );
}

async fn a_tenant_is_erased_step_by_step(served: Served) {
    served.register().await;
    for tenant in ["acme", "other", "acme", "acme"] {
        served.mail(json!({"tenant": tenant})).await;
    }
    let (mut erased, mut after, mut steps) = (0, Value::Null, 0);
    loop {
        let reply =
            served.post("/v1/tenants/acme/erase", json!({"after": after, "scan": 2})).await.is(200).json;
        erased += reply["erased"].as_u64().unwrap();
        after = reply["next"].clone();
        steps += 1;
        if after.is_null() {
            break;
        }
    }
    assert_eq!(erased, 3);
    assert!(steps > 1);
    let left = served.get("/v1/jobs").await.is(200).json;
    assert_eq!(left["jobs"].as_array().unwrap().len(), 1);
    assert_eq!(left["jobs"][0]["tenant"], "other");
    served.post("/v1/tenants/acme/erase", json!({"scan": 0})).await.is(400);
}

async fn workers_announce_themselves_and_are_told_to_drain(served: Served) {
    let about = json!({"about": {"host": "web-1", "running": 3}, "ttl_ms": 60000});
    assert_eq!(served.put("/v1/workers/mailer-1", about.clone()).await.is(200).json, json!({"order": null}));
    let workers = served.get("/v1/workers").await.is(200).json;
    assert_eq!(
        (&workers["notes"][0]["key"], &workers["notes"][0]["about"]["running"]),
        (&json!("mailer-1"), &json!(3))
    );
    assert!(workers["notes"][0]["expires_at"].is_string());
    served.post("/v1/workers/mailer-1/drain", json!({"by": "ada"})).await.is(204);
    let note = served.get("/v1/orders").await.is(200).json["notes"][0].clone();
    let order = &note["about"];
    assert_eq!((&order["order"], &order["by"]), (&json!("drain"), &json!("ada")));
    let time = |value: &Value| serde_json::from_value::<tidegate_wire::Time>(value.clone()).unwrap().0.0;
    assert!((time(&order["at"]) - now().0).abs() < 60_000, "a process that starts later is not meant");
    assert_eq!(time(&note["expires_at"]) - time(&order["at"]), 60_000, "as the command line has it");
    assert_eq!(&served.put("/v1/workers/mailer-1", about.clone()).await.is(200).json["order"], order);
    served.delete("/v1/orders/mailer-1").await.is(204);
    assert_eq!(served.put("/v1/workers/mailer-1", about).await.is(200).json["order"], Value::Null);
    served.put("/v1/orders/mailer-1", json!({"about": {"order": "drain"}})).await.is(204);
    served.delete("/v1/workers/mailer-1").await.is(204);
    assert_eq!(served.get("/v1/workers").await.is(200).json, json!({"notes": []}));
    assert_eq!(served.delete("/v1/workers/mailer-1").await.is(404).code(), "TG3006");
    assert_eq!(
        served.send(Ask::new(Method::POST, "/v1/workers/mailer-1/drain")).await.is(404).code(),
        "TG3006"
    );
    let no_object = served.put("/v1/workers/w", json!({"about": [1]})).await.is(400);
    assert_eq!(no_object.json["pointer"], "/about");
}

async fn the_server_says_what_it_is(mut served: Served) {
    assert_eq!(served.get("/live").await.is(200).body, "alive\n");
    assert_eq!(served.get("/ready").await.is(200).body, "ready\n");
    assert_eq!(served.get("/health").await.is(200).json["store"], "ok");
    let about = served.get("/v1/about").await.is(200).json;
    assert_eq!(about["key"], Value::Null);
    assert!(about["now"].is_string() && about["version"].is_string());
    let page = served.get("/v1/errors/tg4003").await.is(200);
    assert!(String::from_utf8_lossy(&page.body).starts_with("TG4003: "));
    assert_eq!(served.get("/v1/errors/TG9999").await.is(404).code(), "TG3007");
    // A connection that is there when the server begins to stop is told that others should be asked.
    let mut late = served.connect().await;
    late.send(Ask::new(Method::GET, "/live")).await.is(200);
    served.store.close().await.unwrap();
    // What was asked last holds for half a second.
    crate::common::until("the outage is seen", || async { served.get("/health").await.status == 503 }).await;
    assert_eq!(served.get("/health").await.json["status"], json!("unhealthy"));
    let refused = served.get("/ready").await.is(503);
    assert_eq!((refused.code(), &refused.headers["retry-after"]), ("TG5003", &"1".parse().unwrap()));
    let refused = served.get("/v1/totals").await.is(503);
    assert_eq!(refused.code(), "TG5004");
    assert!(refused.json["incident"].as_str().unwrap().starts_with("inc_"));
    served.begin_stop();
}

async fn the_server_does_its_own_upkeep(served: Served) {
    served.register().await;
    served.mail(json!({})).await;
    let short = json!({"worker": "w1", "queues": [{"name": "post"}], "max": 1, "lease_ms": 1000});
    assert_eq!(served.post("/v1/claims", short).await.is(200).json["jobs"].as_array().unwrap().len(), 1);
    let id = served.mail(json!({"delay_ms": 50})).await;
    crate::common::until("what is due is ready, and what a dead worker held is taken back", || async {
        let totals = served.get("/v1/totals").await.is(200).json;
        totals["ready"] == json!(2) && totals["running"] == json!(0)
    })
    .await;
    assert_eq!(served.get(&format!("/v1/jobs/{id}")).await.json["state"], "ready");
    served.stop().await;
}
