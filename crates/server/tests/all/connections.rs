//! Connections that misbehave: they end, and the others do not notice.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{Ask, PATIENCE, Served, options, until};
use http_body_util::BodyExt;
use hyper::Method;
use serde_json::json;
use tidegate_server::ServerOptions;
use tidegate_store::MemoryStore;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

async fn served(change: impl FnOnce(&mut ServerOptions)) -> Served {
    let mut options = options();
    change(&mut options);
    Served::with(Arc::new(MemoryStore::new()), options).await
}

/// Everything until the server closes the connection.
async fn to_the_end(stream: &mut TcpStream) -> String {
    let mut answer = vec![];
    // A reset is an end, too.
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("the connection is closed");
    String::from_utf8_lossy(&answer).into_owned()
}

#[tokio::test]
async fn garbage_ends_in_a_closed_connection() {
    let served = served(|_| {}).await;
    let random: Vec<u8> = (0..5_000u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    for garbage in [
        b"\0\0\0\0\r\n\r\n".to_vec(),
        b"GET\r\n\r\n".to_vec(),
        b"GET / HTTP/9.9\r\n\r\n".to_vec(),
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(),
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03".to_vec(),
        b"GET /live HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n".to_vec(),
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ncontent-length: 6\r\n\r\nhello".to_vec(),
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-length: -1\r\n\r\n".to_vec(),
        b"POST /v1/jobs HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n".to_vec(),
        random,
    ] {
        let mut stream = TcpStream::connect(served.addr).await.unwrap();
        stream.write_all(&garbage).await.unwrap();
        stream.shutdown().await.unwrap();
        let answer = to_the_end(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    served.get("/live").await.is(200);
}

#[tokio::test]
async fn garbage_after_a_request_ends_the_connection_after_its_answer() {
    let served = served(|_| {}).await;
    let mut stream = TcpStream::connect(served.addr).await.unwrap();
    let request = b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(3);
    stream.write_all(&[&request[..], b"\x01\x02garbage\r\n\r\n"].concat()).await.unwrap();
    let answer = to_the_end(&mut stream).await;
    assert_eq!(answer.matches("alive").count(), 3, "{answer}");
    assert!(answer.contains("HTTP/1.1 400"), "{answer}");
}

#[tokio::test]
async fn headers_beyond_the_bound_are_refused() {
    let served = served(|_| {}).await;
    for head in [
        format!("GET /live HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(100_000)),
        format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(100_000)),
        format!("GET /live HTTP/1.1\r\nhost: localhost\r\n{}\r\n", "a: b\r\n".repeat(1_000)),
    ] {
        let mut stream = TcpStream::connect(served.addr).await.unwrap();
        // The server may have closed before all of it is sent.
        let _ = stream.write_all(head.as_bytes()).await;
        let answer = to_the_end(&mut stream).await;
        assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 4"), "{answer}");
    }
    served.get("/live").await.is(200);
}

#[tokio::test]
async fn a_header_that_trickles_in_is_cut_off() {
    let served = served(|o| o.limits.header_timeout = Duration::from_millis(300)).await;
    let (mut slow, mut idle) =
        (TcpStream::connect(served.addr).await.unwrap(), TcpStream::connect(served.addr).await.unwrap());
    let trickle = async {
        // Never silent for long, and never done.
        while slow.write_all(b"GET /live HTTP/1.1\r\nx: y\r\n").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    timeout(PATIENCE, trickle).await.expect("it is cut off");
    // One that says nothing has more time.
    idle.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let answer = to_the_end(&mut idle).await;
    assert!(answer.contains("alive"), "{answer}");
}

#[tokio::test]
async fn a_body_that_trickles_in_is_cut_off() {
    let served = served(|o| o.limits.body_timeout = Duration::from_millis(300)).await;
    let mut slow = TcpStream::connect(served.addr).await.unwrap();
    let head = "POST /v1/queues HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
    slow.write_all(head.as_bytes()).await.unwrap();
    let answer = to_the_end(&mut slow).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.contains("did not arrive"), "{answer}");
}

#[tokio::test]
async fn a_connection_without_requests_is_closed() {
    let served = served(|o| o.limits.idle_timeout = Duration::from_millis(300)).await;
    let mut never = TcpStream::connect(served.addr).await.unwrap();
    assert_eq!(to_the_end(&mut never).await, "");
    let mut once = TcpStream::connect(served.addr).await.unwrap();
    once.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    assert!(to_the_end(&mut once).await.contains("alive"));
}

#[tokio::test]
async fn a_client_that_does_not_read_its_answer_is_cut_off() {
    let served = served(|o| o.limits.write_timeout = Duration::from_millis(300)).await;
    let mut deaf = TcpStream::connect(served.addr).await.unwrap();
    let request = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n".repeat(100);
    let shout = async { while deaf.write_all(&request).await.is_ok() {} };
    timeout(PATIENCE, shout).await.expect("it is cut off");
}

#[tokio::test]
async fn idle_connections_make_room_for_new_ones() {
    let served = served(|o| o.limits.connections = 50).await;
    let mut idle = vec![];
    for _ in 0..500 {
        idle.push(TcpStream::connect(served.addr).await.unwrap());
    }
    served.get("/live").await.is(200);
    let mut closed = 0;
    for stream in &mut idle {
        let mut byte = [0];
        closed += usize::from(timeout(Duration::from_millis(5), stream.read(&mut byte)).await.is_ok());
    }
    assert!(closed >= 440, "{closed} of 500 idle connections were closed");
}

#[tokio::test]
async fn busy_connections_are_not_closed_for_new_ones() {
    let served = served(|o| o.limits.connections = 3).await;
    let mut busy = vec![];
    for _ in 0..3 {
        let mut client = served.connect().await;
        let head = client.open(Ask::new(Method::GET, "/v1/events")).await.unwrap();
        assert_eq!(head.status(), 200);
        busy.push((client, head.into_body()));
    }
    let mut newcomer = TcpStream::connect(served.addr).await.unwrap();
    newcomer.write_all(b"GET /live HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let answer = to_the_end(&mut newcomer).await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    for (client, body) in &mut busy {
        let first = body.frame().await.unwrap().unwrap();
        assert_eq!(first.into_data().unwrap(), "retry: 1000\n\n");
        assert!(!client.is_closed());
    }
    busy.pop();
    until("one that left makes room", || async {
        let mut client = served.connect().await;
        client.try_send(Ask::new(Method::GET, "/live")).await.is_ok_and(|r| r.status == 200)
    })
    .await;
}

#[tokio::test]
async fn as_many_wait_as_may() {
    let served = served(|o| (o.limits.long_polls, o.limits.streams) = (1, 1)).await;
    served.register().await;
    let claim = || {
        let body = json!({"worker": "w", "queues": [{"name": "post"}], "max": 1, "wait_ms": 3000});
        Ask::new(Method::POST, "/v1/claims").json(&body)
    };
    let mut first = served.connect().await;
    let waiting = tokio::spawn(async move { first.send(claim()).await });
    until("the second is refused", || async { served.send(claim()).await.status == 503 }).await;
    assert_eq!(served.send(claim()).await.is(503).code(), "TG4008");
    served.mail(json!({})).await;
    waiting.await.unwrap().is(200);
    let mut stream = served.connect().await;
    let head = stream.open(Ask::new(Method::GET, "/v1/events")).await.unwrap();
    assert_eq!(head.status(), 200);
    assert_eq!(served.get("/v1/events").await.is(503).code(), "TG4008");
    drop((head, stream));
    until("a stream that ended makes room", || async {
        let mut client = served.connect().await;
        client.open(Ask::new(Method::GET, "/v1/events")).await.unwrap().status() == 200
    })
    .await;
}

#[tokio::test]
async fn stopping_lets_requests_end_and_closes_the_rest() {
    let mut served = served(|o| o.drain = 10 * PATIENCE).await;
    served.register().await;
    let mut idle = TcpStream::connect(served.addr).await.unwrap();
    let mut kept = served.connect().await;
    kept.send(Ask::new(Method::GET, "/live")).await.is(200);
    let mut events = served.connect().await;
    let stream = events.open(Ask::new(Method::GET, "/v1/events")).await.unwrap();
    let addr = served.addr;
    served.begin_stop();
    assert_eq!(to_the_end(&mut idle).await, "");
    timeout(PATIENCE, stream.into_body().collect()).await.expect("the stream ends").unwrap();
    until("nobody listens any more", || async { TcpStream::connect(addr).await.is_err() }).await;
}
