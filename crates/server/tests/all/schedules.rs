//! Schedules over HTTP.

use crate::common::{Ask, Served, over_stores};
use hyper::Method;
use serde_json::{Value, json};

over_stores! {
    schedules_are_put_shown_paused_and_deleted,
    a_schedule_is_run_by_hand_and_its_ledger_says_so,
    the_server_fires_what_is_due,
    what_comes_next_says_if_nothing_runs,
    what_cannot_be_a_schedule_is_refused_with_the_field,
    a_backfill_fills_each_date_once,
}

fn tell(path: &str) -> Ask {
    Ask::new(Method::POST, path)
}

fn nightly() -> Value {
    json!({"kind": "mail", "settings": {"cron": "30 2 * * *", "zone": "America/New_York"}})
}

async fn schedules_are_put_shown_paused_and_deleted(served: Served) {
    served.register().await;
    let put = served.put("/v1/schedules/nightly", nightly()).await.is(200).json;
    assert_eq!(put, json!({"outcome": "created"}));
    let put = served.put("/v1/schedules/nightly", nightly()).await.is(200).json;
    assert_eq!(put, json!({"outcome": "unchanged"}));
    let one = served.get("/v1/schedules/nightly").await.is(200).json;
    assert_eq!(one["settings"]["zone"], "America/New_York");
    assert!(one["next"].is_string() && one["paused"].is_null(), "{one}");
    let paused = served.post("/v1/schedules/nightly/pause", json!({"by": "ada"})).await.is(200).json;
    assert_eq!((&paused["paused"]["by"], &paused["next"]), (&json!("ada"), &Value::Null));
    let resumed = served.send(tell("/v1/schedules/nightly/resume")).await.is(200).json;
    assert!(resumed["paused"].is_null() && resumed["next"].is_string());
    let next = served.get("/v1/schedules/nightly/next?n=400").await.is(200).json;
    assert_eq!(next["runs"].as_array().unwrap().len(), 400);
    let local = next["runs"][0]["local"].as_str().unwrap();
    assert!(local.ends_with("[America/New_York]") && local.contains("T02:30"), "{local}");
    // More than a year of nights: at least one of them jumps over half past two, and comes at three.
    let jumped =
        next["runs"].as_array().unwrap().iter().filter(|r| r["local"].as_str().unwrap().contains("T03:00"));
    assert!(jumped.count() >= 1);
    assert_eq!(served.get("/v1/schedules").await.is(200).json["schedules"].as_array().unwrap().len(), 1);
    served.delete("/v1/schedules/nightly").await.is(204);
    assert_eq!(served.delete("/v1/schedules/nightly").await.is(404).code(), "TG3020");
    assert_eq!(served.get("/v1/schedules/nightly/next").await.is(404).code(), "TG3020");
}

async fn a_schedule_is_run_by_hand_and_its_ledger_says_so(served: Served) {
    served.register().await;
    served.put("/v1/schedules/nightly", nightly()).await.is(200);
    let job = served.send(tell("/v1/schedules/nightly/run")).await.is(200).json["job"].clone();
    assert_eq!(served.send(tell("/v1/schedules/nightly/run")).await.is(409).code(), "TG4020");
    let ticks = served.get("/v1/schedules/nightly/ticks").await.is(200).json;
    let fired = &ticks["ticks"][0]["fired"];
    assert_eq!((&fired["job"], &fired["by_hand"], &fired["ended"]), (&job, &json!(true), &Value::Null));
    assert_eq!(ticks["next"], Value::Null);
    let path = format!("/v1/jobs/{}/cancel", job.as_str().unwrap());
    served.send(tell(&path)).await;
    let ticks = served.get("/v1/schedules/nightly/ticks?limit=1").await.is(200).json;
    assert_eq!(ticks["ticks"][0]["fired"]["ended"]["state"], "cancelled");
    assert_eq!(served.get("/v1/schedules/nightly/ticks?limit=x").await.is(400).code(), "TG2009");
}

async fn the_server_fires_what_is_due(served: Served) {
    served.register().await;
    let every = json!({"kind": "mail", "settings": {"every": "1s", "payload": {"a": 1}}});
    served.put("/v1/schedules/often", every).await.is(200);
    loop {
        let jobs = served.get("/v1/jobs").await.is(200).json["jobs"].clone();
        if let Some(job) = jobs.as_array().unwrap().first() {
            assert_eq!((&job["kind"], &job["payload"]), (&json!("mail"), &json!({"a": 1})));
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
    let one = served.get("/v1/schedules/often").await.is(200).json;
    assert!(one["last"]["no"].is_u64() && one["open"].as_array().unwrap().len() == 1, "{one}");
}

async fn what_comes_next_says_if_nothing_runs(served: Served) {
    let kind = json!({"queue": "post"});
    let mut scheduled = kind.clone();
    scheduled["schedule"] = json!({"every": "1d"});
    let document = |kind: Value| json!({"queues": {"post": {}}, "kinds": {"nightly": kind}});
    served.put("/v1/registry?source=deploy", document(scheduled)).await.is(200);
    let next = || async { served.get("/v1/schedules/nightly/next?n=2").await.is(200).json };
    let runs = next().await["runs"].clone();
    assert_eq!(runs.as_array().unwrap().len(), 2);
    served.post("/v1/schedules/nightly/pause", json!({"by": "ada"})).await.is(200);
    let paused = next().await;
    assert_eq!((&paused["paused"]["by"], &paused["retired"]), (&json!("ada"), &Value::Null));
    assert_eq!(paused["runs"].as_array().unwrap().len(), 2, "as if it were resumed now");
    served.put("/v1/registry?source=deploy", document(kind)).await.is(200);
    let retired = next().await;
    assert!(retired["retired"].is_string() && retired["runs"] == json!([]), "{retired}");
}

async fn what_cannot_be_a_schedule_is_refused_with_the_field(served: Served) {
    served.register().await;
    for (settings, says) in [
        (json!({"cron": "0 0 * * 8"}), "cron: day of week: 8"),
        (json!({"cron": "@daily", "zone": "Mars/Base"}), "zone:"),
        (json!({"every": "10ms"}), "every:"),
        (json!({}), "one of `cron`, `every` and `at`"),
        (json!({"every": "1m", "after": ["nobody"]}), "after: there is no schedule `nobody`"),
    ] {
        let reply =
            served.put("/v1/schedules/s", json!({"kind": "mail", "settings": settings})).await.is(422);
        assert_eq!(reply.code(), "TG2030");
        assert!(reply.text("/detail").contains(says), "{}", reply.json);
    }
    let unknown = json!({"kind": "mail", "settings": {"crn": "@daily"}});
    let reply = served.put("/v1/schedules/s", unknown).await.is(400);
    assert_eq!(reply.json["pointer"], "/settings/crn");
    let reply =
        served.put("/v1/schedules/s", json!({"kind": "nobody", "settings": {"every": "1m"}})).await.is(404);
    assert_eq!(reply.code(), "TG2003");
}

async fn a_backfill_fills_each_date_once(served: Served) {
    served.register().await;
    let backfill =
        json!({"kind": "mail", "from": "2026-10-18", "to": "2026-11-14", "payload": {"backfill": true}});
    let first = served.post("/v1/backfills", backfill.clone()).await.is(200).json;
    assert_eq!((&first["created"], &first["kept"]), (&json!(28), &json!(0)));
    assert_eq!(first["jobs"][27]["date"], "2026-11-14");
    let again = served.post("/v1/backfills", backfill.clone()).await.is(200).json;
    assert_eq!((&again["created"], &again["kept"]), (&json!(0), &json!(28)));
    assert_eq!(again["jobs"][3]["job"], first["jobs"][3]["job"]);
    let job =
        served.get(&format!("/v1/jobs/{}", first["jobs"][3]["job"].as_str().unwrap())).await.is(200).json;
    assert_eq!(
        (&job["payload"], &job["state"]),
        (&json!({"backfill": true, "date": "2026-10-21"}), &json!("scheduled"))
    );
    let bad =
        served.post("/v1/backfills", json!({"kind": "mail", "from": "x", "to": "2026-11-14"})).await.is(400);
    assert!(bad.text("/detail").starts_with("from:"), "{}", bad.json);
}
