//! What workers do, over real sockets.

use std::time::{Duration, Instant};

use crate::common::{Ask, PATIENCE, Served, over_stores, until};
use hyper::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt};
use tokio::net::TcpStream;

/// A trace context.
const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

over_stores! {
    a_job_is_enqueued_claimed_completed_and_seen,
    every_outcome_is_settled,
    a_lost_ticket_is_refused,
    heartbeats_extend_leases_and_tell_of_cancels,
    reports_are_kept_with_the_job,
    a_waiting_claim_is_answered_by_the_next_enqueue,
    a_waiting_claim_is_answered_when_a_delay_ends,
    a_waiting_claim_ends_empty_when_its_time_is_over,
    one_job_wakes_many_and_one_gets_it,
    a_client_that_left_while_it_waited_takes_nothing,
    a_client_that_sent_more_and_left_takes_nothing,
    jobs_claimed_for_a_client_that_is_gone_are_given_back,
    a_client_that_leaves_with_its_answer_keeps_its_jobs,
    a_stopping_server_answers_those_who_wait,
}

async fn a_job_is_enqueued_claimed_completed_and_seen(served: Served) {
    served.register().await;
    let id = served.mail(json!({"tenant": "acme", "traceparent": TRACE, "priority": "high"})).await;
    let claimed = served.claim(10).await;
    let job = &claimed["jobs"][0];
    assert_eq!((job["id"].as_str(), job["attempt"].as_u64()), (Some(id.as_str()), Some(1)));
    assert_eq!(job["payload"], json!({"to": "ada"}));
    assert_eq!((&job["tenant"], &job["group"]), (&json!("acme"), &json!("acme")));
    assert_eq!((&job["traceparent"], &job["priority"]), (&json!(TRACE), &json!("high")));
    assert!(claimed["lease"]["id"].as_str().unwrap().starts_with("lease_"));
    let done = served
        .settle(json!({"ticket": job["ticket"], "outcome": "complete", "result": {"ok": [1, 2]}}))
        .await;
    assert_eq!(done, json!({"status": "applied", "state": "completed"}));
    let job = served.get(&format!("/v1/jobs/{id}")).await.is(200).json;
    assert_eq!((&job["state"], &job["result"]), (&json!("completed"), &json!({"ok": [1, 2]})));
}

async fn every_outcome_is_settled(served: Served) {
    served.register().await;
    for _ in 0..5 {
        served.mail(json!({})).await;
    }
    let jobs = served.claim(5).await["jobs"].clone();
    let tickets: Vec<&Value> = jobs.as_array().unwrap().iter().map(|j| &j["ticket"]).collect();
    let settlements = json!({"settlements": [
        {"ticket": tickets[0], "outcome": "complete"},
        {"ticket": tickets[1], "outcome": "fail",
         "failure": {"category": "TRANSIENT_NETWORK", "code": "ETIMEDOUT", "message": "no answer", "retry_in_ms": 5000}},
        {"ticket": tickets[2], "outcome": "snooze",
         "snooze": {"for_ms": 60000, "reason": "closed", "park": {"group": "acme"}}},
        {"ticket": tickets[3], "outcome": "release"},
        {"ticket": tickets[4], "outcome": "fail", "failure": {"category": "PERMANENT_AUTH", "message": "revoked"}},
    ]});
    let settled = served.post("/v1/settlements", settlements).await.is(200).json["settled"].clone();
    let states: Vec<&Value> = settled.as_array().unwrap().iter().map(|s| &s["state"]).collect();
    assert_eq!(states, ["completed", "scheduled", "scheduled", "ready", "dead"]);
    assert!(settled[1]["run_at"].is_string() && settled[2]["run_at"].is_string());
    let parks = served.get("/v1/parks").await.is(200).json;
    assert_eq!(parks["parks"][0]["scope"], json!({"group": "acme"}));
}

async fn a_lost_ticket_is_refused(served: Served) {
    served.register().await;
    served.mail(json!({})).await;
    let ticket = served.claim(1).await["jobs"][0]["ticket"].clone();
    assert_eq!(served.settle(json!({"ticket": ticket, "outcome": "release"})).await["status"], "applied");
    assert_eq!(
        served.settle(json!({"ticket": ticket, "outcome": "complete"})).await,
        json!({"status": "stale"})
    );
    let report = json!({"reports": [{"ticket": ticket, "log": ["late"]}]});
    assert_eq!(served.post("/v1/reports", report).await.is(200).json, json!({"kept": [false]}));
}

async fn heartbeats_extend_leases_and_tell_of_cancels(served: Served) {
    served.register().await;
    let id = served.mail(json!({})).await;
    let claimed = served.claim(1).await;
    let lease = claimed["lease"]["id"].clone();
    let cancel =
        served.post(&format!("/v1/jobs/{id}/cancel"), json!({"note": "ada: wrong"})).await.is(200).json;
    assert_eq!(cancel, json!({"status": "requested"}));
    let beat = served.post("/v1/heartbeats", json!({"leases": [lease, "lease_999999"]})).await.is(200).json;
    assert_eq!(beat["beats"][0]["cancel"], json!([claimed["jobs"][0]["ticket"]]));
    assert!(beat["beats"][0]["until"].is_string() && beat["now"].is_string());
    assert_eq!(beat["beats"][1], json!({"lease": "lease_999999", "until": null, "cancel": []}));
    let settled = served.settle(json!({"ticket": claimed["jobs"][0]["ticket"], "outcome": "cancel"})).await;
    assert_eq!(settled["state"], "cancelled");
}

async fn reports_are_kept_with_the_job(served: Served) {
    served.register().await;
    let id = served.mail(json!({})).await;
    let ticket = served.claim(1).await["jobs"][0]["ticket"].clone();
    let report = json!({"reports": [{"ticket": ticket, "progress": {"fraction": 0.5, "note": "half"}, "log": ["a", "b"]}]});
    assert_eq!(served.post("/v1/reports", report).await.is(200).json, json!({"kept": [true]}));
    let job = served.get(&format!("/v1/jobs/{id}")).await.is(200).json;
    assert_eq!((&job["progress"]["fraction"], &job["progress"]["note"]), (&json!(0.5), &json!("half")));
    assert_eq!((&job["log"][0]["line"], &job["log"][1]["line"]), (&json!("a"), &json!("b")));
}

fn waiting_claim(worker: &str, wait_ms: u64) -> Ask {
    let body = json!({"worker": worker, "queues": [{"name": "post"}], "max": 5, "wait_ms": wait_ms});
    Ask::new(Method::POST, "/v1/claims").json(&body)
}

async fn a_waiting_claim_is_answered_by_the_next_enqueue(served: Served) {
    served.register().await;
    let mut worker = served.connect().await;
    let waiting = tokio::spawn(async move { worker.send(waiting_claim("w1", 20_000)).await });
    until_waiting(&served).await;
    let enqueued = Instant::now();
    let id = served.mail(json!({})).await;
    let reply = waiting.await.unwrap().is(200);
    assert_eq!(reply.text("/jobs/0/id"), id);
    assert!(
        enqueued.elapsed() < Duration::from_millis(900),
        "by a wake-up, not by the poll: {:?}",
        enqueued.elapsed()
    );
}

async fn a_waiting_claim_is_answered_when_a_delay_ends(served: Served) {
    served.register().await;
    let id = served.mail(json!({"delay_ms": 300})).await;
    let reply = served.send(waiting_claim("w1", 20_000)).await.is(200);
    assert_eq!(reply.text("/jobs/0/id"), id);
}

async fn a_waiting_claim_ends_empty_when_its_time_is_over(served: Served) {
    served.register().await;
    let begun = Instant::now();
    let reply = served.send(waiting_claim("w1", 200)).await.is(200).json;
    assert_eq!((&reply["lease"], &reply["jobs"]), (&Value::Null, &json!([])));
    assert!(begun.elapsed() >= Duration::from_millis(200));
}

async fn one_job_wakes_many_and_one_gets_it(served: Served) {
    served.register().await;
    let mut waiting = tokio::task::JoinSet::new();
    for n in 0..20 {
        let mut worker = served.connect().await;
        waiting.spawn(async move { worker.send(waiting_claim(&format!("w{n}"), 1_500)).await.is(200).json });
    }
    until_waiting(&served).await;
    let id = served.mail(json!({})).await;
    let replies: Vec<Value> = waiting.join_all().await;
    let got: Vec<&Value> = replies.iter().filter(|r| r["jobs"] != json!([])).collect();
    assert_eq!(got.len(), 1);
    assert_eq!(got[0]["jobs"][0]["id"], json!(id));
}

/// A claim that is sent after others has been looked at means that those others were looked at, too.
async fn until_waiting(served: &Served) {
    for _ in 0..3 {
        served.send(waiting_claim("probe", 30)).await.is(200);
    }
}

/// Sends a claim by hand, so that the connection can be closed at any time.
async fn raw_claim(served: &Served, wait_ms: u64) -> TcpStream {
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    let body =
        json!({"worker": "gone", "queues": [{"name": "post"}], "max": 5, "wait_ms": wait_ms}).to_string();
    let head = format!(
        "POST /v1/claims HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        served.addr,
        body.len()
    );
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

async fn a_client_that_left_while_it_waited_takes_nothing(served: Served) {
    served.register().await;
    let stream = raw_claim(&served, 20_000).await;
    until_waiting(&served).await;
    drop(stream);
    until_waiting(&served).await;
    let id = served.mail(json!({})).await;
    until("the job is ready for others", || async { served.claim(1).await["jobs"][0]["id"] == json!(id) })
        .await;
}

/// What it sent ahead is in the way of noticing that it left.
async fn a_client_that_sent_more_and_left_takes_nothing(served: Served) {
    served.register().await;
    for more in [1, 100] {
        let mut stream = raw_claim(&served, 20_000).await;
        until_waiting(&served).await;
        let next = format!("GET /live HTTP/1.1\r\nhost: {}\r\n\r\n", served.addr).repeat(more);
        stream.write_all(next.as_bytes()).await.unwrap();
        drop(stream);
        until_waiting(&served).await;
        let id = served.mail(json!({})).await;
        until("the job is ready for others long before a lease could end", || async {
            served.claim(1).await["jobs"][0]["id"] == json!(id)
        })
        .await;
    }
}

async fn jobs_claimed_for_a_client_that_is_gone_are_given_back(served: Served) {
    served.register().await;
    for _ in 0..50 {
        served.mail(json!({})).await;
        // Whether the claim, its answer or nothing is under way when the connection ends is up to chance: fifty times.
        let stream = raw_claim(&served, 0).await;
        stream.set_zero_linger().unwrap();
        drop(stream);
    }
    let lost = || async {
        let running = served.get("/v1/jobs?state=running&limit=100").await.is(200).json;
        running["jobs"].as_array().unwrap().len()
    };
    // Claims whose answer had left the server are the client's: a lease takes care of those. The rest come back.
    tokio::time::timeout(PATIENCE, async {
        while lost().await > 10 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .expect("jobs come back before their lease of 30 s ends");
}

async fn a_client_that_leaves_with_its_answer_keeps_its_jobs(served: Served) {
    served.register().await;
    for _ in 0..200 {
        served.mail(json!({})).await;
        let mut stream = raw_claim(&served, 1_000).await;
        let (mut answer, mut part) = (vec![], [0; 4_096]);
        // Gone with the first bytes that hold the ticket, as a command that runs once and ends.
        while !String::from_utf8_lossy(&answer).contains("tkt_") {
            let n = stream.read(&mut part).await.unwrap();
            assert!(n > 0, "an answer");
            answer.extend_from_slice(&part[..n]);
        }
        drop(stream);
        let text = String::from_utf8_lossy(&answer).into_owned();
        let ticket: String = text[text.find("tkt_").unwrap()..].chars().take_while(|c| *c != '"').collect();
        let settle = json!({"settlements": [{"ticket": ticket, "outcome": "complete"}]});
        let settled = served.post("/v1/settlements", settle).await.is(200).json;
        assert_eq!(settled["settled"][0]["status"], json!("applied"), "{settled}");
    }
}

async fn a_stopping_server_answers_those_who_wait(mut served: Served) {
    served.register().await;
    let mut worker = served.connect().await;
    let waiting = tokio::spawn(async move { worker.send(waiting_claim("w1", 30_000)).await });
    until_waiting(&served).await;
    served.begin_stop();
    assert_eq!(waiting.await.unwrap().is(200).json["jobs"], json!([]));
}
