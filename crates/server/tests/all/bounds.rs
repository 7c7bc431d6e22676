//! What one client may cost the others: memory, rows, checks of the store, jobs that nobody gets.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use crate::common::faulty::FaultyStore;
use crate::common::{Ask, PATIENCE, Served, options, until};
use hyper::Method;
use serde_json::{Value, json};
use tidegate_server::Limits;
use tidegate_store::MemoryStore;
use tidegate_wire::keys::Role;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

const KIB: usize = 1024;

async fn served(change: impl FnOnce(&mut Limits)) -> Served {
    let mut options = options();
    change(&mut options.limits);
    Served::with(Arc::new(MemoryStore::new()), options).await
}

/// A request of which this much is sent.
async fn begin(served: &Served, head: &str, body: &str) -> TcpStream {
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    let head = format!("{head} HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n", served.addr);
    stream.write_all(format!("{head}{body}").as_bytes()).await.unwrap();
    stream
}

/// Everything that comes until there is this text in it.
async fn read_until(stream: &mut TcpStream, text: &str) -> String {
    let mut answer = vec![];
    let reading = async {
        while !String::from_utf8_lossy(&answer).contains(text) {
            assert!(stream.read_buf(&mut answer).await.unwrap() > 0, "the connection ended");
        }
    };
    timeout(PATIENCE, reading).await.expect("an answer in time");
    String::from_utf8_lossy(&answer).into_owned()
}

fn padded(json: &Value, bytes: usize) -> String {
    format!("{}{json}", " ".repeat(bytes))
}

fn large_job() -> Ask {
    let body = padded(&json!({"kind": "mail"}), 200 * KIB);
    Ask::new(Method::POST, "/v1/jobs").raw("application/json", body)
}

#[tokio::test]
async fn a_body_that_is_announced_and_not_sent_costs_no_memory() {
    let served = served(|limits| limits.body_memory = 256 * KIB).await;
    served.register().await;
    let mut silent = vec![];
    for n in 0..40 {
        let body = if n % 2 == 0 {
            "transfer-encoding: chunked\r\n\r\n"
        } else {
            "content-length: 16000000\r\n\r\n"
        };
        silent.push(begin(&served, "POST /v1/jobs", body).await);
    }
    served.send(large_job()).await.is(201);
}

#[tokio::test]
async fn what_says_all_by_its_path_is_answered_without_its_body() {
    let served = served(|_| ()).await;
    for (path, answer) in [("/live", "alive"), ("/v1/about", "version"), ("/v1/jobs", "jobs")] {
        for body in ["transfer-encoding: chunked\r\n\r\n", "content-length: 1000000\r\n\r\n"] {
            let mut stream = begin(&served, &format!("GET {path}"), body).await;
            let read = read_until(&mut stream, answer).await;
            assert!(read.starts_with("HTTP/1.1 200"), "{read}");
        }
    }
}

#[tokio::test]
async fn who_finds_no_memory_for_a_body_is_told_to_come_back() {
    let served = served(|limits| {
        limits.body_memory = 256 * KIB;
        limits.body_timeout = Duration::from_secs(4);
    })
    .await;
    served.register().await;
    let most_of_it = format!("content-length: 300000\r\n\r\n{}", " ".repeat(200 * KIB));
    let slow = begin(&served, "POST /v1/jobs", &most_of_it).await;
    until("another one is refused", || async { served.send(large_job()).await.status == 503 }).await;
    let refused = served.send(large_job()).await;
    // The slow one may have been cut off meanwhile.
    if refused.status != 201 {
        let refused = refused.is(503);
        assert_eq!((refused.code(), &refused.headers["retry-after"]), ("TG4009", &"1".parse().unwrap()));
    }
    served.post("/v1/jobs", json!({"kind": "mail"})).await.is(201);
    drop(slow);
    until("what it had is free again", || async { served.send(large_job()).await.status == 201 }).await;
}

#[tokio::test]
async fn a_claim_that_waits_holds_no_memory_of_its_body() {
    let served = served(|limits| limits.body_memory = 256 * KIB).await;
    served.register().await;
    let claim = json!({"worker": "w", "queues": [{"name": "post"}], "max": 1, "wait_ms": 30_000});
    let body = padded(&claim, 200 * KIB);
    let mut worker = served.connect().await;
    let ask = Ask::new(Method::POST, "/v1/claims").raw("application/json", body);
    let waiting = tokio::spawn(async move { worker.send(ask).await });
    let id = served.send(large_job()).await.is(201).text("/id");
    assert_eq!(waiting.await.unwrap().is(200).text("/jobs/0/id"), id);
}

fn jobs_of(reply: &Value) -> Vec<Value> {
    reply["jobs"].as_array().unwrap().clone()
}

#[tokio::test]
async fn a_claim_takes_no_more_than_fits_into_an_answer() {
    let bound = 64 * KIB;
    let served = served(|limits| limits.claim_bytes = bound).await;
    served.register().await;
    let large = json!({"text": "x".repeat(10 * KIB)});
    for _ in 0..20 {
        served.mail(json!({"payload": large})).await;
    }
    let huge = served.mail(json!({"payload": "x".repeat(2 * bound), "priority": "low"})).await;
    let claim = json!({"worker": "w1", "queues": [{"name": "post"}], "max": 1_000});
    let mut got = vec![];
    while got.len() < 21 {
        let reply = served.post("/v1/claims", claim.clone()).await.is(200);
        let jobs = jobs_of(&reply.json);
        assert!(reply.body.len() <= bound || jobs.len() == 1, "{} bytes", reply.body.len());
        got.extend(jobs);
        // What did not fit is nobody's, at once and with its attempts unspent.
        until("what did not fit is given back", || async {
            let totals = served.get("/v1/totals").await.is(200).json;
            totals["running"] == json!(got.len()) && totals["ready"] == json!(21 - got.len())
        })
        .await;
    }
    assert!(got.iter().all(|job| job["attempt"] == 1));
    assert!(got.iter().any(|job| job["id"] == json!(huge)), "one that is larger than the bound comes alone");
}

#[tokio::test]
async fn claims_grow_again_when_payloads_are_small() {
    let served = served(|limits| limits.claim_bytes = 64 * KIB).await;
    served.register().await;
    served.mail(json!({"payload": "x".repeat(40 * KIB)})).await;
    served.mail(json!({"payload": "x".repeat(40 * KIB)})).await;
    assert_eq!(jobs_of(&served.claim(100).await).len(), 1);
    until("the other one is back", || async { jobs_of(&served.claim(100).await).len() == 1 }).await;
    let mut claims = 0;
    for _ in 0..40 {
        served.mail(json!({})).await;
    }
    let mut left = 40;
    while left > 0 {
        left -= jobs_of(&served.claim(100).await).len();
        claims += 1;
    }
    assert!(claims <= 7, "{claims} claims for 40 small jobs: 1, 2, 4, 8, …");
}

#[tokio::test]
async fn a_search_costs_what_one_page_may_cost() {
    let store = Arc::new(FaultyStore::default());
    let served = Served::with(store.clone(), options()).await;
    served.register().await;
    for _ in 0..30 {
        served.mail(json!({})).await;
    }
    // As when the store has looked at many rows and found ten.
    store.page.store(10, Ordering::SeqCst);
    let (mut found, mut pages, mut cursor) = (0, 0, String::new());
    loop {
        let page = served.get(&format!("/v1/jobs?limit=500{cursor}")).await.is(200).json;
        pages += 1;
        assert_eq!(store.searches.load(Ordering::SeqCst), pages, "one search for each page");
        found += jobs_of(&page).len();
        let Some(next) = page["next"].as_str() else { break };
        cursor = format!("&cursor={next}");
    }
    assert_eq!(found, 30);
}

#[tokio::test]
async fn health_is_asked_of_the_store_once_for_everybody() {
    let store = Arc::new(FaultyStore::default());
    let served = Arc::new(Served::with(store.clone(), options()).await);
    let begun = Instant::now();
    let mut asking = tokio::task::JoinSet::new();
    for n in 0..40 {
        let served = served.clone();
        asking.spawn(async move {
            let path = if n % 2 == 0 { "/ready" } else { "/health" };
            let mut client = served.connect().await;
            for _ in 0..10 {
                assert_eq!(client.send(Ask::new(Method::GET, path)).await.status, 200);
            }
        });
    }
    asking.join_all().await;
    let asked = store.settings.load(Ordering::SeqCst);
    let most = 1 + begun.elapsed().as_millis() as usize / 500;
    assert!((1..=most).contains(&asked), "{asked} times for 400 requests in {:?}", begun.elapsed());
    store.away.store(true, Ordering::SeqCst);
    until("an outage is seen", || async { served.get("/ready").await.status == 503 }).await;
    store.away.store(false, Ordering::SeqCst);
    until("its end is seen", || async { served.get("/health").await.status == 200 }).await;
}

#[tokio::test]
async fn an_outage_is_not_taken_for_a_letter_that_is_not_there() {
    let store = Arc::new(FaultyStore::default());
    let served = Served::with(store.clone(), options()).await;
    served.register().await;
    let mut ids = vec![];
    for n in 0..100 {
        ids.push(served.mail(json!({"tenant": if n % 2 == 0 { "acme" } else { "other" }})).await);
    }
    for job in jobs_of(&served.claim(100).await) {
        let failure = json!({"category": "INVALID_INPUT", "message": "no"});
        served.settle(json!({"ticket": job["ticket"], "outcome": "fail", "failure": failure})).await;
    }
    let key = served.key(Role::Operator, Some("acme")).await;
    let recover = || Ask::new(Method::POST, "/v1/dead/recover").json(&json!({"ids": ids})).key(&key);
    until("the key is known", || async {
        let about = served.send(Ask::new(Method::GET, "/v1/about").key(&key)).await;
        about.json["key"]["id"] == json!(key.key.id)
    })
    .await;
    store.away.store(true, Ordering::SeqCst);
    assert_eq!(served.send(recover()).await.is(503).code(), "TG5010");
    store.away.store(false, Ordering::SeqCst);
    let reply = served.send(recover()).await.is(200).json;
    for (n, recovered) in reply["recovered"].as_array().unwrap().iter().enumerate() {
        let expected = if n % 2 == 0 { "recovered" } else { "not_dead" };
        assert_eq!(recovered["status"], expected, "letter {n}");
    }
}
