//! The event stream.

use std::time::Duration;

use crate::common::{Ask, Client, PATIENCE, Served, over_stores};
use http_body_util::BodyExt;
use hyper::Method;
use hyper::body::Incoming;
use serde_json::{Value, json};
use tidegate_core::ids::JobId;
use tidegate_core::payload::Payload;
use tidegate_store::feed::EVENTS_KEPT;
use tidegate_store::params::{NewJob, Shelf};
use tidegate_wire::keys::Role;
use tokio::time::timeout;
use uuid::Uuid;

over_stores! {
    the_life_of_a_job_is_told,
    a_client_that_drops_and_returns_misses_nothing,
    streams_are_filtered,
}

/// One message of a stream.
#[derive(Debug, Clone, PartialEq)]
struct Message {
    id: Option<String>,
    event: String,
    data: Value,
}

struct Stream {
    body: Incoming,
    text: String,
    start: usize,
    _client: Client,
}

impl Stream {
    async fn open(served: &Served, query: &str, last: Option<&str>) -> Self {
        let mut ask = Ask::new(Method::GET, &format!("/v1/events{query}"));
        if let Some(last) = last {
            ask = ask.header("last-event-id", last);
        }
        Self::ask(served, ask).await
    }

    async fn ask(served: &Served, ask: Ask) -> Self {
        let mut client = served.connect().await;
        let head = client.open(ask).await.unwrap();
        assert_eq!(
            (head.status().as_u16(), &head.headers()["content-type"]),
            (200, &"text/event-stream".parse().unwrap())
        );
        let mut stream = Self { body: head.into_body(), text: String::new(), start: 0, _client: client };
        // The first line comes when the stream follows.
        while !stream.text.contains("retry:") {
            stream.read().await;
        }
        stream
    }

    /// Waits until the server ends it.
    async fn ends(&mut self) {
        let end = async { while let Some(Ok(_)) = self.body.frame().await {} };
        timeout(PATIENCE, end).await.expect("the stream ends");
    }

    async fn read(&mut self) {
        let frame = timeout(PATIENCE, self.body.frame()).await.expect("a message in time");
        let data = frame.expect("the stream goes on").unwrap().into_data().unwrap();
        self.text.push_str(std::str::from_utf8(&data).unwrap());
    }

    /// The next message that has data.
    async fn next(&mut self) -> Message {
        loop {
            while let Some(end) = self.text[self.start..].find("\n\n") {
                let block = self.text[self.start..self.start + end].to_owned();
                self.start += end + 2;
                let field = |name: &str| {
                    block.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(": ")).map(str::to_owned)
                };
                if let Some(data) = field("data") {
                    let data = serde_json::from_str(&data).unwrap();
                    return Message { id: field("id"), event: field("event").unwrap(), data };
                }
            }
            self.text.drain(..std::mem::take(&mut self.start));
            self.read().await;
        }
    }
}

async fn the_life_of_a_job_is_told(served: Served) {
    served.register().await;
    let mut stream = Stream::open(&served, "", None).await;
    let id = served.mail(json!({"tenant": "acme"})).await;
    let ticket = served.claim(1).await["jobs"][0]["ticket"].clone();
    let failure = json!({"category": "TRANSIENT_NETWORK", "code": "ETIMEDOUT", "message": "x", "retry_in_ms": 3_600_000});
    served.settle(json!({"ticket": ticket, "outcome": "fail", "failure": failure})).await;
    served.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.is(200);
    for (event, more) in [
        ("enqueued", json!({"state": "ready"})),
        ("started", json!({"worker": "w1", "attempt": 1})),
        ("retry", json!({"code": "ETIMEDOUT"})),
        ("cancelled", json!({})),
    ] {
        let message = stream.next().await;
        assert_eq!((message.event.as_str(), &message.data["event"]), (event, &json!(event)), "{message:?}");
        assert_eq!((&message.data["id"], &message.data["tenant"]), (&json!(id), &json!("acme")));
        for (field, value) in more.as_object().unwrap() {
            assert_eq!(&message.data[field], value, "{message:?}");
        }
        assert!(message.id.is_some() && message.data["at"].is_string());
    }
}

async fn a_client_that_drops_and_returns_misses_nothing(served: Served) {
    served.register().await;
    let mut stream = Stream::open(&served, "", None).await;
    let first = served.mail(json!({})).await;
    let seen = stream.next().await;
    assert_eq!(seen.data["id"], json!(first));
    drop(stream);
    let mut missed = vec![];
    for _ in 0..20 {
        missed.push(served.mail(json!({})).await);
    }
    let mut again = Stream::open(&served, "", seen.id.as_deref()).await;
    missed.push(served.mail(json!({})).await);
    for id in missed {
        let message = again.next().await;
        assert_eq!((message.event.as_str(), &message.data["id"]), ("enqueued", &json!(id)));
    }
}

async fn streams_are_filtered(served: Served) {
    served.register().await;
    let (a, b) = (served.mail(json!({})).await, served.mail(json!({})).await);
    let mut by_job = Stream::open(&served, &format!("?job={b}"), None).await;
    let mut by_tenant = Stream::open(&served, "?tenant=acme&queue=post&kind=mail", None).await;
    let mut by_queue = Stream::open(&served, "?queue=other", None).await;
    for id in [&a, &b] {
        served.post(&format!("/v1/jobs/{id}/cancel"), json!({})).await.is(200);
    }
    served.mail(json!({"tenant": "acmee"})).await;
    let theirs = served.mail(json!({"tenant": "acme"})).await;
    served.post("/v1/queues", json!({"name": "other"})).await.is(204);
    let elsewhere = served.mail(json!({"queue": "other"})).await;
    assert_eq!(by_job.next().await.data["id"], json!(b));
    assert_eq!(by_tenant.next().await.data["id"], json!(theirs));
    assert_eq!(by_queue.next().await.data["id"], json!(elsewhere));
}

/// Enqueues so many jobs in one commit, past the server, and returns their ids.
async fn enqueue(served: &Served, count: usize) -> Vec<Value> {
    let payload = Payload::trusted("null");
    let job = |_| NewJob::new(JobId::from_uuid(Uuid::now_v7()), "mail".parse().unwrap(), payload.clone());
    let done = served.store.enqueue((0..count).map(job).collect(), crate::common::now()).await.unwrap();
    done.into_iter().map(|e| json!(e.id)).collect()
}

#[tokio::test]
async fn a_gap_beyond_the_buffer_is_announced() {
    let served = Served::memory().await;
    served.register().await;
    let mut stream = Stream::open(&served, "", None).await;
    enqueue(&served, 1).await;
    let seen = stream.next().await;
    drop(stream);
    let mut ids = vec![];
    for _ in 0..8 {
        ids.extend(enqueue(&served, 10_000).await);
    }
    let mut again = Stream::open(&served, "", seen.id.as_deref()).await;
    assert_eq!(again.next().await.event, "gap");
    let next = again.next().await;
    assert_eq!(next.event, "enqueued");
    assert_eq!(
        next.data["id"],
        ids[ids.len() - EVENTS_KEPT],
        "what follows the gap is the oldest that is kept"
    );
    let mut stranger = Stream::open(&served, "", Some("nonsense")).await;
    assert_eq!(stranger.next().await.event, "gap", "an id from elsewhere says nothing");
}

#[tokio::test]
async fn a_slow_reader_catches_up_from_the_buffer() {
    let served = Served::memory().await;
    served.register().await;
    let mut stream = Stream::open(&served, "", None).await;
    let mut ids = vec![];
    // More than sockets and pieces under way can hold: the stream falls behind while nobody reads.
    for _ in 0..60 {
        ids.extend(enqueue(&served, 1_000).await);
    }
    for id in ids {
        let message = stream.next().await;
        assert_eq!(message.data["id"], id, "{message:?}");
    }
}

#[tokio::test]
async fn a_tenants_key_hears_of_its_tenant_alone() {
    let served = Served::memory().await;
    served.register().await;
    let admin = served.key(Role::Admin, None).await;
    let acme = served.key(Role::Producer, Some("acme")).await;
    let enqueue = |tenant: &str| {
        let job = json!({"kind": "mail", "tenant": tenant});
        Ask::new(Method::POST, "/v1/jobs").json(&job).key(&admin)
    };
    crate::common::until("the keys are known", || async {
        served.send(Ask::new(Method::GET, "/v1/about").key(&acme)).await.json["key"]["id"]
            == json!(acme.key.id)
    })
    .await;
    let mut stream = Stream::ask(&served, Ask::new(Method::GET, "/v1/events").key(&acme)).await;
    served.send(enqueue("other")).await.is(201);
    let id = served.send(enqueue("acme")).await.is(201).text("/id");
    assert_eq!(stream.next().await.data["id"], json!(id));
    let other = Ask::new(Method::GET, "/v1/events?tenant=other").key(&acme);
    assert_eq!(served.send(other).await.is(403).code(), "TG2016");
}

#[tokio::test]
async fn a_stream_ends_with_its_key_and_the_others_go_on() {
    let served = Served::memory().await;
    served.register().await;
    let mut keyless = Stream::open(&served, "", None).await;
    let admin = served.key(Role::Admin, None).await;
    keyless.ends().await;
    let (revoked, deleted) = (served.key(Role::Operator, None).await, served.key(Role::Operator, None).await);
    for key in [&admin, &revoked, &deleted] {
        let about = || Ask::new(Method::GET, "/v1/about").key(key);
        crate::common::until("the key is known", || async { served.send(about()).await.status == 200 }).await;
    }
    let events = |key| Ask::new(Method::GET, "/v1/events").key(key);
    let mut first = Stream::ask(&served, events(&revoked)).await;
    let mut second = Stream::ask(&served, events(&deleted)).await;
    let mut kept = Stream::ask(&served, events(&admin)).await;
    let revoke = Ask::new(Method::DELETE, &format!("/v1/keys/{}", revoked.key.id)).key(&admin);
    served.send(revoke).await.is(204);
    first.ends().await;
    // As another process of the store does it.
    assert!(served.store.delete_record(Shelf::Keys, deleted.key.id.clone()).await.unwrap());
    second.ends().await;
    let id = enqueue(&served, 1).await[0].clone();
    assert_eq!(kept.next().await.data["id"], id);
}

#[tokio::test]
async fn who_asks_for_the_head_of_the_stream_holds_none() {
    let mut options = crate::common::options();
    options.limits.streams = 1;
    let served = Served::with(std::sync::Arc::new(tidegate_store::MemoryStore::new()), options).await;
    let mut client = served.connect().await;
    for _ in 0..3 {
        let head = client.send(Ask::new(Method::HEAD, "/v1/events")).await;
        assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
        assert_eq!(head.headers["content-type"], "text/event-stream");
    }
    Stream::open(&served, "", None).await;
}

#[tokio::test]
async fn many_streams_share_what_is_written_once() {
    let served = Served::memory().await;
    served.register().await;
    let mut streams = vec![];
    for _ in 0..100 {
        streams.push(Stream::open(&served, "", None).await);
    }
    let ids = enqueue(&served, 10).await;
    for stream in &mut streams {
        for id in &ids {
            assert_eq!(&stream.next().await.data["id"], id);
        }
    }
    let idle = timeout(Duration::from_millis(50), streams[0].body.frame()).await;
    assert!(idle.is_err(), "nothing comes twice");
}
