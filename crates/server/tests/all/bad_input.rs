//! Whatever is sent is answered with a clear problem, and the server goes on.

use std::sync::Arc;

use crate::common::{Ask, Served, options, over_stores};
use hyper::Method;
use serde_json::{Value, json};
use tidegate_store::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

over_stores! {
    bodies_that_cannot_be_read_are_refused_with_their_place,
    what_the_store_refuses_is_told,
    queries_and_paths_are_checked,
    wrong_routes_and_methods_are_told,
}

fn post(path: &str, body: impl Into<bytes::Bytes>) -> Ask {
    Ask::new(Method::POST, path).raw("application/json", body)
}

async fn bodies_that_cannot_be_read_are_refused_with_their_place(served: Served) {
    served.register().await;
    let deep = |n: usize| format!(r#"{{"kind":"mail","payload":{}{}}}"#, "[".repeat(n), "]".repeat(n));
    for (body, status, code, pointer, words) in [
        ("", 400, "TG2009", "", "not JSON"),
        ("{", 400, "TG2009", "", "not JSON"),
        ("nonsense", 400, "TG2009", "", "not JSON"),
        ("[]", 422, "TG2006", "", "between 1 and 10000"),
        ("7", 400, "TG2009", "", "invalid type"),
        (r#"{"kind":"mail"} {"kind":"mail"}"#, 400, "TG2009", "", "trailing"),
        (r#"{"payload":1}"#, 400, "TG2009", "", "missing field `kind`"),
        (r#"{"kind":7}"#, 400, "TG2009", "/kind", "invalid type"),
        (r#"{"kind":"mail","paylod":1}"#, 400, "TG2009", "/paylod", "did you mean `payload`?"),
        (
            r#"[{"kind":"mail"},{"kind":"mail","priority":"hihg"}]"#,
            400,
            "TG2009",
            "/1/priority",
            "did you mean `high`?",
        ),
        (r#"{"kind":"mail","kind":"mail"}"#, 400, "TG2009", "", "duplicate field"),
        (r#"{"kind":"../etc/passwd"}"#, 400, "TG2009", "/kind", "kind"),
        (r#"{"kind":"mail","tenant":"a b"}"#, 400, "TG2009", "/tenant", "contains ' '"),
        (r#"{"kind":"mail","id":"7"}"#, 400, "TG2009", "/id", "not an id"),
        (r#"{"kind":"mail","run_at":"tomorrow"}"#, 400, "TG2009", "/run_at", "RFC 3339"),
        (r#"{"kind":"mail","delay_ms":1e99}"#, 400, "TG2009", "/delay_ms", "invalid type"),
        (r#"{"kind":"mail","delay_ms":99999999999999999999}"#, 400, "TG2009", "/delay_ms", "invalid"),
        (
            r#"{"kind":"mail","run_at":"2030-01-01T00:00:00Z","delay_ms":1}"#,
            400,
            "TG2009",
            "/delay_ms",
            "exclude",
        ),
        (
            r#"{"kind":"mail","unique":{"key":"","scope":"pending"}}"#,
            400,
            "TG2009",
            "/unique/key",
            "is empty",
        ),
        (r#"[{"kind":"mail"},{"kind":"mail","delay_ms":-1}]"#, 422, "TG2005", "/1/delay_ms", "negative"),
    ] {
        let reply = served.send(post("/v1/jobs", body)).await.is(status);
        assert_eq!(reply.code(), code, "{body}");
        assert_eq!(reply.json["pointer"].as_str().unwrap_or_default(), pointer, "{body}: {}", reply.json);
        assert!(reply.text("/detail").contains(words), "{body}: {}", reply.json);
    }
    served.send(post("/v1/jobs", deep(64))).await.is(201);
    for n in [65, 1_000, 200_000] {
        let reply = served.send(post("/v1/jobs", deep(n))).await.is(422);
        assert_eq!((reply.code(), &reply.json["pointer"]), ("TG2004", &json!("/payload")), "{n}");
    }
    let nested = format!(r#"{{"retry":{}"#, r#"{"retry":"#.repeat(10_000));
    assert!(served.send(post("/v1/jobs", nested)).await.status.is_client_error());
    let large = format!(r#"{{"kind":"mail","payload":"{}"}}"#, "x".repeat((1 << 20) + 1));
    assert_eq!(served.send(post("/v1/jobs", large)).await.is(422).code(), "TG2004");
    let invalid =
        served.send(post("/v1/jobs", &b"{\"kind\":\"mail\",\"payload\":\"\xff\xfe\"}"[..])).await.is(400);
    assert!(invalid.text("/detail").contains("not UTF-8"), "{}", invalid.json);
    let surrogate = served.send(post("/v1/jobs", r#"{"kind":"\ud800"}"#)).await;
    surrogate.is(400);
    for (content_type, status) in [
        ("application/json; charset=utf-8", 201),
        ("APPLICATION/JSON;charset=\"UTF-8\"", 201),
        ("application/json; charset=latin1", 415),
        ("text/plain", 415),
        ("application/x-www-form-urlencoded", 415),
        ("application/jsonp", 415),
    ] {
        let ask = Ask::new(Method::POST, "/v1/jobs").raw(content_type, r#"{"kind":"mail"}"#);
        let reply = served.send(ask).await.is(status);
        assert!(status == 201 || reply.code() == "TG2012", "{content_type}");
    }
    let mut bare = Ask::new(Method::POST, "/v1/jobs");
    bare.body = r#"{"kind":"mail"}"#.into();
    served.send(bare).await.is(415);
}

async fn what_the_store_refuses_is_told(served: Served) {
    served.register().await;
    for (body, status, code) in [
        (json!({"kind": "mial"}), 404, "TG2003"),
        (json!({"kind": "mail", "queue": "nope"}), 404, "TG2002"),
        (json!({"kind": "mail", "timeout_ms": 0}), 422, "TG2005"),
        (json!({"kind": "mail", "max_attempts": 0}), 422, "TG2008"),
        (json!({"kind": "mail", "delay_ms": i64::MAX}), 422, "TG2005"),
        (json!({"kind": "mail", "traceparent": "x".repeat(2_000)}), 400, "TG2009"),
        (json!({"kind": "mail", "traceparent": "00-0-0-01"}), 400, "TG2009"),
        (json!({"kind": "mail", "unique": {"key": "k", "scope": {"period_ms": 0}}}), 422, "TG2005"),
    ] {
        assert_eq!(served.post("/v1/jobs", body.clone()).await.is(status).code(), code, "{body}");
    }
    let too_many = Value::from(vec![json!({"kind": "mail"}); 10_001]);
    assert_eq!(served.post("/v1/jobs", too_many).await.is(422).code(), "TG2006");
    let claim = |more: Value| {
        let mut claim = json!({"worker": "w", "queues": [{"name": "post"}], "max": 1});
        claim.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        claim
    };
    for (body, status, pointer) in [
        (claim(json!({"max": 0})), 400, "/max"),
        (claim(json!({"max": 2_001})), 400, "/max"),
        (claim(json!({"queues": []})), 400, "/queues"),
        (claim(json!({"lease_ms": 1})), 422, "/lease_ms"),
        (claim(json!({"wait_ms": -1})), 400, "/wait_ms"),
        (claim(json!({"worker": ""})), 400, "/worker"),
        (claim(json!({"process": "7"})), 400, "/process"),
    ] {
        assert_eq!(
            served.post("/v1/claims", body.clone()).await.is(status).json["pointer"],
            pointer,
            "{body}"
        );
    }
    let unknown = claim(json!({"queues": [{"name": "nope"}]}));
    assert!(served.post("/v1/claims", unknown).await.status.as_u16() < 500);
    for (body, pointer) in [
        (json!({"ticket": "x", "outcome": "complete"}), "/settlements/0/ticket"),
        (json!({"ticket": "tkt_1_2", "outcome": "done"}), "/settlements/0/outcome"),
        (json!({"ticket": "tkt_1_2", "outcome": "fail"}), "/settlements/0/failure"),
        (json!({"ticket": "tkt_1_2", "outcome": "release", "result": 1}), "/settlements/0/result"),
        (json!({"ticket": "tkt_1_2", "outcome": "snooze", "snooze": {}}), "/settlements/0/snooze"),
        (
            json!({"ticket": "tkt_1_2", "outcome": "snooze", "snooze": {"for_ms": 1, "park": {}}}),
            "/settlements/0/snooze/park",
        ),
        (
            json!({"ticket": "tkt_1_2", "outcome": "fail", "failure": {"message": "x", "category": "ODD"}}),
            "/settlements/0/failure/category",
        ),
    ] {
        let reply = served.post("/v1/settlements", json!({"settlements": [body]})).await.is(400);
        assert_eq!(reply.json["pointer"], pointer, "{}", reply.json);
    }
    served.post("/v1/settlements", json!({"settlements": []})).await.is(422);
    served.post("/v1/heartbeats", json!({"leases": []})).await.is(422);
    let odd = json!({"reports": [{"ticket": "tkt_1_2", "progress": {"fraction": 1.5}}]});
    assert_eq!(served.post("/v1/reports", odd).await.is(400).json["pointer"], "/reports/0/progress/fraction");
}

async fn queries_and_paths_are_checked(served: Served) {
    for (path, status, pointer) in [
        ("/v1/jobs?limt=3", 400, "?limt"),
        ("/v1/jobs?limit=0", 400, "?limit"),
        ("/v1/jobs?limit=1001", 400, "?limit"),
        ("/v1/jobs?limit=x", 400, "?limit"),
        ("/v1/jobs?state=redy", 400, "?state"),
        ("/v1/jobs?cursor=7", 400, "?cursor"),
        ("/v1/jobs?created_from=x", 422, "?created_from"),
        ("/v1/jobs?queue=a%20b", 422, "?queue"),
        ("/v1/jobs?queue=a&queue=b", 400, "?queue"),
        ("/v1/jobs?queue=%ff", 400, ""),
        ("/v1/jobs?queue=%", 400, ""),
        ("/v1/totals?x=1", 400, "?x"),
        ("/v1/events?job=7", 422, "?job"),
        ("/v1/queues/%ff", 400, ""),
        ("/v1/jobs/%00", 404, ""),
        ("/v1/queues/..%2f..%2fetc", 422, ""),
    ] {
        let reply = served.get(path).await.is(status);
        assert_eq!(reply.json["pointer"].as_str().unwrap_or_default(), pointer, "{path}: {}", reply.json);
    }
}

async fn wrong_routes_and_methods_are_told(served: Served) {
    for path in ["/", "/v1", "/v1/job", "/v2/jobs", "/v1/jobs/", "/v1/jobs/a/b/c", "/%2e%2e/x", "/v1//jobs"] {
        assert_eq!(served.get(path).await.is(404).code(), "TG3004", "{path}");
    }
    let reply = served.delete("/v1/jobs").await.is(405);
    assert_eq!(reply.code(), "TG2014");
    let allow: Vec<&str> = reply.headers["allow"].to_str().unwrap().split(',').collect();
    assert!(allow.contains(&"GET") && allow.contains(&"POST") && !allow.contains(&"DELETE"), "{allow:?}");
    served.send(Ask::new(Method::from_bytes(b"BREW").unwrap(), "/v1/jobs")).await.is(405);
    let head = served.send(Ask::new(Method::HEAD, "/v1/totals")).await;
    assert_eq!((head.status.as_u16(), head.body.len()), (200, 0));
}

#[tokio::test]
async fn bodies_beyond_the_bound_are_refused_known_or_not() {
    let mut options = options();
    options.limits.body_bytes = 1_000;
    let served = Served::with(Arc::new(MemoryStore::new()), options).await;
    let body = format!(r#"{{"name":"{}"}}"#, "x".repeat(2_000));
    assert_eq!(served.send(post("/v1/queues", body.clone())).await.is(413).code(), "TG2013");
    // The same without saying how long it is.
    let mut stream = tokio::net::TcpStream::connect(served.addr).await.unwrap();
    let head = format!(
        "POST /v1/queues HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
        served.addr
    );
    stream.write_all(format!("{head}{:x}\r\n{body}\r\n0\r\n\r\n", body.len()).as_bytes()).await.unwrap();
    let mut answer = vec![0; 12];
    stream.read_exact(&mut answer).await.unwrap();
    assert_eq!(answer, b"HTTP/1.1 413");
    served.post("/v1/queues", json!({"name": "post"})).await.is(204);
}
