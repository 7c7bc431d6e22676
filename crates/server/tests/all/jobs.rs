//! Enqueueing, looking, finding, controlling.

use std::time::Duration;

use crate::common::{Ask, Served, over_stores};
use hyper::Method;
use serde_json::{Value, json};

/// A trace context.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

over_stores! {
    one_job_or_many_are_enqueued,
    an_idempotency_key_stores_once,
    a_job_is_shown_with_everything,
    the_trace_of_a_request_is_that_of_its_jobs,
    jobs_are_found_by_every_filter_and_page_by_page,
    waiting_for_a_job_ends_with_it,
    waiting_for_a_job_ends_with_its_time,
    why_answers_in_a_sentence,
    jobs_are_controlled,
    a_full_queue_says_when_to_come_back,
    payloads_pass_through_as_they_were_written,
}

async fn one_job_or_many_are_enqueued(served: Served) {
    served.register().await;
    let one = served.post("/v1/jobs", json!({"kind": "mail"})).await.is(201).json;
    assert_eq!(one["outcome"], "created");
    let many = json!([{"kind": "mail", "payload": 1}, {"kind": "mail", "payload": 2, "delay_ms": 60000}]);
    let many = served.post("/v1/jobs", many).await.is(201).json;
    assert_eq!(many.as_array().unwrap().len(), 2);
    let unique = json!({"kind": "mail", "unique": {"key": "k", "scope": "pending"}});
    let first = served.post("/v1/jobs", unique.clone()).await.is(201).json;
    let second = served.post("/v1/jobs", unique).await.is(200).json;
    assert_eq!((&second["id"], &second["outcome"]), (&first["id"], &json!("kept")));
    let all_or_none = json!([{"kind": "mail"}, {"kind": "nope"}]);
    let refused = served.post("/v1/jobs", all_or_none).await.is(404);
    assert_eq!(refused.code(), "TG2003");
    let totals = served.get("/v1/totals").await.is(200).json;
    assert_eq!((&totals["ready"], &totals["scheduled"]), (&json!(3), &json!(1)));
}

async fn an_idempotency_key_stores_once(served: Served) {
    served.register().await;
    let ask = |key: &str, body: Value| {
        Ask::new(Method::POST, "/v1/jobs").json(&body).header("idempotency-key", key)
    };
    let batch = json!([{"kind": "mail", "payload": 1}, {"kind": "mail", "payload": 1}]);
    let first = served.send(ask("order-7", batch.clone())).await.is(201).json;
    let again = served.send(ask("order-7", batch.clone())).await.is(200).json;
    assert_ne!(first[0]["id"], first[1]["id"]);
    assert_eq!((&again[0]["id"], &again[1]["id"]), (&first[0]["id"], &first[1]["id"]));
    assert_eq!(again[0]["outcome"], "kept");
    let other = served.send(ask("order-8", batch)).await.is(201).json;
    assert_ne!(other[0]["id"], first[0]["id"]);
    let different = served.send(ask("order-7", json!([{"kind": "mail", "payload": 2}]))).await.is(409);
    assert_eq!(different.code(), "TG2010");
    let id = first[0]["id"].clone();
    let both = served.send(ask("order-9", json!({"kind": "mail", "id": id}))).await.is(400);
    assert_eq!(both.json["pointer"], "/id");
    served.send(ask(&"x".repeat(256), json!({"kind": "mail"}))).await.is(400);
    assert_eq!(served.get("/v1/totals").await.is(200).json["ready"], 4);
}

async fn the_trace_of_a_request_is_that_of_its_jobs(served: Served) {
    served.register().await;
    let ask = |path: &str, header: &str, body: Value| {
        Ask::new(Method::POST, path).json(&body).header("traceparent", header)
    };
    let own = TRACE.replace("00f067aa0ba902b7", "b7ad6b7169203331");
    let jobs = json!([{"kind": "mail"}, {"kind": "mail", "traceparent": own}]);
    let jobs = served.send(ask("/v1/jobs", TRACE, jobs)).await.is(201).json;
    for (job, trace) in [(&jobs[0], TRACE), (&jobs[1], own.as_str())] {
        let path = format!("/v1/jobs/{}", job["id"].as_str().unwrap());
        assert_eq!(served.get(&path).await.is(200).json["traceparent"], trace);
    }
    for malformed in
        ["", "00-1-2-01", &TRACE.to_uppercase(), &format!("{TRACE}-00"), &TRACE.replacen("00", "ff", 1)]
    {
        let job = served.send(ask("/v1/jobs", malformed, json!({"kind": "mail"}))).await.is(201).json;
        let job = served.get(&format!("/v1/jobs/{}", job["id"].as_str().unwrap())).await.is(200).json;
        assert_eq!(job.get("traceparent"), None, "{malformed:?} is ignored");
        let body = json!([{"kind": "mail"}, {"kind": "mail", "traceparent": malformed}]);
        let refused = served.send(ask("/v1/jobs", TRACE, body)).await.is(400);
        assert_eq!((refused.code(), &refused.json["pointer"]), ("TG2009", &json!("/1/traceparent")));
        assert!(refused.json["detail"].as_str().unwrap().contains("a traceparent is"), "{:#}", refused.json);
    }
}

async fn a_job_is_shown_with_everything(served: Served) {
    served.register().await;
    let id = served
        .mail(json!({
            "tenant": "acme", "group": "acme:eu", "priority": "low", "timeout_ms": 5000, "max_attempts": 7, "traceparent": TRACE,
            "delay_ms": 60000, "unique": {"key": "k", "scope": {"period_ms": 1000}, "on_conflict": "hasten"},
            "retry": {"max_attempts": 2, "backoff": {"type": "fixed", "delay_ms": 10}, "jitter": "none"}
        }))
        .await;
    let job = served.get(&format!("/v1/jobs/{id}")).await.is(200).json;
    for (field, value) in [
        ("id", json!(id)),
        ("queue", json!("post")),
        ("kind", json!("mail")),
        ("tenant", json!("acme")),
        ("group", json!("acme:eu")),
        ("priority", json!("low")),
        ("state", json!("scheduled")),
        ("scheduled_because", json!("delay")),
        ("timeout_ms", json!(5000)),
        ("max_attempts", json!(7)),
        ("traceparent", json!(TRACE)),
        ("unique", json!({"key": "k", "scope": {"period_ms": 1000}, "on_conflict": "hasten"})),
        ("attempt", json!(0)),
        ("payload", json!({"to": "ada"})),
    ] {
        assert_eq!(job[field], value, "{field}");
    }
    assert_eq!(job["retry"]["backoff"], json!({"type": "fixed", "delay_ms": 10}));
    let created: tidegate_wire::Time = job["created_at"].as_str().unwrap().parse().unwrap();
    let run: tidegate_wire::Time = job["run_at"].as_str().unwrap().parse().unwrap();
    assert_eq!(run.0.since(created.0), 60_000);
    let core =
        tidegate_core::job::Job::from(serde_json::from_value::<tidegate_wire::jobs::Job>(job).unwrap());
    assert_eq!(Some(core), served.store.get(id.parse().unwrap()).await.unwrap());
    served.get("/v1/jobs/job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB").await.is(404);
    assert_eq!(served.get("/v1/jobs/7").await.is(404).code(), "TG3001");
}

async fn jobs_are_found_by_every_filter_and_page_by_page(served: Served) {
    served.register().await;
    for n in 0..7 {
        let tenant = if n % 2 == 0 { "even" } else { "odd" };
        served.mail(json!({"tenant": tenant, "payload": {"n": n, "text": format!("needle-{n}")}})).await;
    }
    let served = &served;
    let found = |query: &'static str| async move {
        let page = served.get(&format!("/v1/jobs?{query}")).await.is(200).json;
        page["jobs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|j| j["payload"]["n"].as_i64().unwrap())
            .collect::<Vec<_>>()
    };
    assert_eq!(found("").await, [6, 5, 4, 3, 2, 1, 0]);
    assert_eq!(found("tenant=odd").await, [5, 3, 1]);
    assert_eq!(found("group=even&state=ready,running").await, [6, 4, 2, 0]);
    assert_eq!(found("text=needle-4").await, [4]);
    assert_eq!(found("state=completed").await, [0; 0]);
    assert_eq!(found("queue=post&kind=mail&created_before=2020-01-01T00:00:00Z").await, [0; 0]);
    assert_eq!(found("created_from=2020-01-01T00:00:00Z&limit=2").await, [6, 5]);
    let (mut all, mut cursor) = (vec![], String::new());
    loop {
        let page = served.get(&format!("/v1/jobs?limit=3{cursor}")).await.is(200).json;
        all.extend(page["jobs"].as_array().unwrap().iter().map(|j| j["payload"]["n"].as_i64().unwrap()));
        match page["next"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => break,
        }
    }
    assert_eq!(all, [6, 5, 4, 3, 2, 1, 0]);
}

async fn waiting_for_a_job_ends_with_it(served: Served) {
    served.register().await;
    let id = served.mail(json!({})).await;
    let mut client = served.connect().await;
    let path = format!("/v1/jobs/{id}?wait=20s");
    let waiting = tokio::spawn(async move { client.send(Ask::new(Method::GET, &path)).await });
    let ticket = served.claim(1).await["jobs"][0]["ticket"].clone();
    served.settle(json!({"ticket": ticket, "outcome": "complete", "result": 7})).await;
    let job = waiting.await.unwrap().is(200).json;
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!(7)));
}

async fn waiting_for_a_job_ends_with_its_time(served: Served) {
    served.register().await;
    let id = served.mail(json!({})).await;
    let begun = std::time::Instant::now();
    let job = served.get(&format!("/v1/jobs/{id}?wait=200ms")).await.is(200).json;
    assert_eq!(job["state"], "ready");
    assert!(begun.elapsed() >= Duration::from_millis(200));
    served.get(&format!("/v1/jobs/{id}?wait=soon")).await.is(422);
    served.get(&format!("/v1/jobs/{id}?wat=1s")).await.is(400);
}

async fn why_answers_in_a_sentence(served: Served) {
    served.register().await;
    let id = served.mail(json!({"delay_ms": 90000})).await;
    let why = served.get(&format!("/v1/jobs/{id}/why")).await.is(200).json;
    assert!(why["sentence"].as_str().unwrap().starts_with("Delayed; starts in"), "{why}");
    assert_eq!(why["because"], json!({"cause": "delayed"}));
    served.post("/v1/queues/post/pause", json!({"reason": "month end"})).await.is(204);
    let id = served.mail(json!({})).await;
    let why = served.get(&format!("/v1/jobs/{id}/why")).await.is(200).json;
    assert_eq!(why["because"]["cause"], "parked");
    let wire: tidegate_wire::why::Why = serde_json::from_value(why).unwrap();
    let now = wire.now.0;
    let sentence = wire.sentence.clone();
    assert_eq!(tidegate_core::why::Why::try_from(wire).unwrap().sentence(now), sentence);
}

async fn jobs_are_controlled(served: Served) {
    served.register().await;
    let id = served.mail(json!({"delay_ms": 60000})).await;
    let path = |what: &str| format!("/v1/jobs/{id}/{what}");
    served.put(&path("priority"), json!({"priority": "critical"})).await.is(204);
    assert_eq!(served.get(&format!("/v1/jobs/{id}")).await.json["priority"], "critical");
    let now = served.send(Ask::new(Method::POST, &path("run-now"))).await.is(200).json;
    assert_eq!(now, json!({"state": "ready"}));
    let cancel = served.send(Ask::new(Method::POST, &path("cancel"))).await.is(200).json;
    assert_eq!(cancel, json!({"status": "cancelled"}));
    let cancel = served.post(&path("cancel"), json!({"note": "again"})).await.is(200).json;
    assert_eq!(cancel, json!({"status": "already_finished", "state": "cancelled"}));
    assert_eq!(served.put(&path("priority"), json!({"priority": "low"})).await.is(409).code(), "TG4002");
    let missing = "/v1/jobs/job_01JCQ5V9N0E4T8GQ6W2Y3K7MZB/cancel";
    assert_eq!(served.send(Ask::new(Method::POST, missing)).await.is(404).code(), "TG3001");
}

async fn a_full_queue_says_when_to_come_back(served: Served) {
    served.register().await;
    served.put("/v1/queues/post", json!({"max_ready": 1})).await.is(204);
    served.mail(json!({})).await;
    let refused = served.post("/v1/jobs", json!({"kind": "mail"})).await.is(429);
    assert_eq!(refused.code(), "TG4003");
    assert_eq!(refused.headers["retry-after"], "1");
}

async fn payloads_pass_through_as_they_were_written(served: Served) {
    served.register().await;
    let payload = r#"{"b": 1.50, "a": [1e400, "\u00e9\ud83d\ude00", {}], "big": 12345678901234567890123}"#;
    let ask = Ask::new(Method::POST, "/v1/jobs")
        .raw("application/json", format!(r#"{{"kind":"mail","payload":{payload}}}"#));
    let id = served.send(ask).await.is(201).text("/id");
    let shown = served.get(&format!("/v1/jobs/{id}")).await.is(200);
    assert!(String::from_utf8_lossy(&shown.body).contains(payload));
    let claim = json!({"worker": "w1", "queues": [{"name": "post"}], "max": 1});
    let claimed = served.post("/v1/claims", claim).await.is(200);
    assert!(String::from_utf8_lossy(&claimed.body).contains(payload));
}
