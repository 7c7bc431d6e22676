//! Enqueues that share requests, and those that must not pay for others.

use std::sync::Arc;

use crate::common::Running;
use crate::common::proxy::Proxy;
use serde::{Deserialize, Serialize};
use tidegate::{Job, Tidegate, codes};
use tidegate_client::{RemoteOptions, RemoteStore};
use tokio::task::JoinSet;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", queue = "tasks")]
struct Task {
    n: u32,
}

async fn tide(url: &str) -> Tidegate {
    Tidegate::with_store(Arc::new(
        RemoteStore::connect(url, RemoteOptions::default()).await.expect("the server answers"),
    ))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn concurrent_enqueues_share_requests_and_each_gets_its_own_reply() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let tide = tide(&proxy.url()).await;
    tide.register::<Task>().await.unwrap();
    proxy.watch("POST /v1/jobs", 0);
    let mut callers = JoinSet::new();
    for n in 0..500 {
        let tide = tide.clone();
        callers.spawn(async move { (n, tide.enqueue(Task { n }).await.unwrap().id) });
    }
    for (n, id) in callers.join_all().await {
        let job = tide.job(id).await.unwrap().expect("it is stored");
        assert_eq!(job.payload.as_str(), format!("{{\"n\":{n}}}"), "everybody gets the id of their own job");
    }
    assert!(proxy.seen() < 100, "{} requests for 500 enqueues", proxy.seen());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_that_is_refused_fails_nobody_elses() {
    let server = Running::memory().await;
    let tide = tide(&server.url()).await;
    tide.register::<Task>().await.unwrap();
    let mut callers = JoinSet::new();
    for n in 0..200_u32 {
        let tide = tide.clone();
        callers.spawn(async move {
            let job = match n % 20 {
                0 => tide.enqueue_json("no.such.kind", "{}"),
                1 => tide.enqueue(Task { n }).queue("nowhere"),
                _ => tide.enqueue(Task { n }),
            };
            (n, job.await)
        });
    }
    for (n, reply) in callers.join_all().await {
        match n % 20 {
            0 => assert_eq!(reply.unwrap_err().code, codes::UNKNOWN_KIND),
            1 => assert_eq!(reply.unwrap_err().code, codes::UNKNOWN_QUEUE),
            _ => assert!(tide.job(reply.unwrap().id).await.unwrap().is_some()),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whoever_stops_waiting_holds_up_nobody() {
    let server = Running::memory().await;
    let tide = tide(&server.url()).await;
    tide.register::<Task>().await.unwrap();
    for n in 0..200 {
        let abandoned = tide.clone();
        let task = tokio::spawn(async move { abandoned.enqueue(Task { n }).await });
        if n % 3 == 0 {
            tokio::task::yield_now().await;
        }
        task.abort();
    }
    let reply = tokio::time::timeout(
        std::time::Duration::from_secs(5),
        tide.enqueue(Task { n: 1_000 }).into_future(),
    );
    assert!(tide.job(reply.await.expect("its turn comes").unwrap().id).await.unwrap().is_some());
}
