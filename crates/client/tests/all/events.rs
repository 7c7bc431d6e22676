//! The server's events in this process.

use std::sync::Arc;
use std::time::Duration;

use crate::common::Running;
use crate::common::proxy::Proxy;
use serde::{Deserialize, Serialize};
use tidegate::store::feed::{Delivery, Subscription};
use tidegate::{Job, Tidegate};
use tidegate_client::{RemoteOptions, RemoteStore};
use tidegate_store::feed::Happened;
use tidegate_store::{MemoryStore, Store};
use tidegate_wire::keys::{NewKey, Role};

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

/// Ids of the next `n` enqueued jobs, and how many gaps there were.
async fn enqueued(follower: &mut Subscription, n: usize) -> (Vec<tidegate::JobId>, usize) {
    let (mut ids, mut gaps) = (vec![], 0);
    let all = async {
        while ids.len() < n {
            match follower.next().await {
                Delivery::Gap => gaps += 1,
                Delivery::Events(events) => {
                    let new = events.iter().filter(|(_, e)| matches!(e.what, Happened::Enqueued { .. }));
                    ids.extend(new.map(|(_, e)| e.id));
                }
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(10), all).await.expect("the events come");
    (ids, gaps)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_misses_nothing_when_the_connection_is_lost() {
    let server = Running::memory().await;
    let proxy = Proxy::to(server.addr).await;
    let (here, there) = (tide(&proxy.url()).await, tide(&server.url()).await);
    let mut follower = here.store().feed().subscribe(None);
    let first = here.enqueue(Task { n: 0 }).await.unwrap().id;
    assert_eq!(enqueued(&mut follower, 1).await, (vec![first], 0), "what one does oneself is heard of");
    proxy.cut();
    let mut missed = vec![];
    for n in 1..=50 {
        missed.push(there.enqueue(Task { n }).await.unwrap().id);
    }
    proxy.mend();
    assert_eq!(enqueued(&mut follower, 50).await, (missed, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_is_told_of_a_gap_when_the_server_is_another() {
    let (one, two) = (Running::memory().await, Running::memory().await);
    let there = tide(&two.url()).await;
    there.register::<Task>().await.unwrap();
    // The same address, another server: its numbers say nothing about the first one's.
    let addr = one.addr;
    let here = tide(&one.url()).await;
    let mut follower = here.store().feed().subscribe(None);
    here.enqueue(Task { n: 1 }).await.unwrap();
    enqueued(&mut follower, 1).await;
    one.stop().await;
    let again = Running::with(Arc::new(MemoryStore::new()), |options| options.bind = addr).await;
    let (delivery, _) = tokio::join!(tokio::time::timeout(Duration::from_secs(10), follower.next()), async {
        Tidegate::with_store(Arc::new(again.client().await)).enqueue(Task { n: 2 }).await
    });
    assert_eq!(delivery.expect("it goes on"), Delivery::Gap);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_for_events_that_are_not_allowed() {
    let server = Running::memory().await;
    let open = server.client().await;
    let new = NewKey { name: "mailer".into(), role: Role::Worker, tenant: None };
    let key = open.create_key(&new).await.unwrap().secret;
    let options = RemoteOptions { key: Some(key), ..RemoteOptions::default() };
    let store = RemoteStore::connect(&server.url(), options).await.unwrap();
    let _follower = store.feed().subscribe(None);
    let about = tokio::time::timeout(Duration::from_secs(1), store.about()).await;
    assert!(about.expect("calls go on").is_ok());
}
