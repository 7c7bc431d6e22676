//! Who is alive, and drains that are asked for.

use std::sync::Arc;

use tidegate::presence::{self, Seen};
use tidegate::store::params::{Record, Shelf};
use tidegate::{Context, KindSettings, QueueName, Tidegate, Worker, codes, done, testing};
use tokio::sync::{Notify, oneshot};

#[expect(clippy::unnecessary_wraps, reason = "as a handler takes it")]
fn settings() -> Option<KindSettings> {
    Some(KindSettings::new(QueueName::new("night").unwrap()))
}

async fn alive(tide: &Tidegate) -> Vec<Seen> {
    presence::list(&**tide.store(), tide.now()).await.unwrap()
}

/// A worker whose handler waits until it is told to go on.
fn worker(tide: &Tidegate, name: &str, started: Arc<Notify>, go_on: Arc<Notify>) -> Worker {
    let handler = move |_: Context| {
        let (started, go_on) = (started.clone(), go_on.clone());
        async move {
            started.notify_one();
            go_on.notified().await;
            done()
        }
    };
    Worker::new(tide).name(name).concurrency(7).handle_kind("echo", settings(), handler)
}

#[test]
fn a_worker_says_what_it_does_while_it_lives_and_is_gone_when_it_ends() {
    testing::block_on(async {
        let tide = testing::tide();
        let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let (stop, stopped) = oneshot::channel::<()>();
        let running = worker(&tide, "night-1", started.clone(), go_on.clone());
        let running = tokio::spawn(running.run_until(async { stopped.await.unwrap_or_default() }));
        testing::advance("1s").await;
        tide.enqueue_json("echo", "1").await.unwrap();
        started.notified().await;
        testing::advance(presence::EVERY * 2).await;
        let seen = alive(&tide).await;
        let [one] = seen.as_slice() else { panic!("{seen:?}") };
        assert_eq!(one.name, "night-1");
        let said = &one.presence;
        assert_eq!((said.concurrency, said.running, said.draining), (7, 1, false));
        assert_eq!(
            (said.queues.as_slice(), said.kinds.as_slice()),
            (&["night".into()][..], &["echo".into()][..])
        );
        assert_eq!((said.pid, said.role.as_str()), (std::process::id(), "worker"));
        stop.send(()).unwrap();
        testing::advance("1s").await;
        assert!(alive(&tide).await[0].presence.draining, "said at once");
        go_on.notify_one();
        running.await.unwrap().unwrap();
        assert!(alive(&tide).await.is_empty());
    });
}

#[test]
fn a_worker_that_is_asked_to_drain_finishes_what_it_has_and_ends() {
    testing::block_on(async {
        let tide = testing::tide();
        let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let running = worker(&tide, "night-1", started.clone(), go_on.clone());
        let running = tokio::spawn(running.run_until(std::future::pending()));
        testing::advance("1s").await;
        tide.enqueue_json("echo", "1").await.unwrap();
        started.notified().await;
        let refused = presence::ask_to_drain(&**tide.store(), "day-1", "ada", tide.now()).await.unwrap_err();
        assert_eq!(refused.code, codes::WORKER_NOT_FOUND);
        presence::ask_to_drain(&**tide.store(), "night-1", "ada", tide.now()).await.unwrap();
        testing::advance(presence::EVERY).await;
        tide.enqueue_json("echo", "2").await.unwrap();
        go_on.notify_waiters();
        go_on.notify_one();
        let report = running.await.unwrap().unwrap();
        assert_eq!(report.completed, 1, "the second job is left to others");
    });
}

#[test]
fn an_old_order_does_not_drain_the_next_worker_of_that_name() {
    testing::block_on(async {
        let tide = testing::tide();
        let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let first = worker(&tide, "night-1", started.clone(), go_on.clone());
        let first = tokio::spawn(first.run_until(std::future::pending()));
        testing::advance("1s").await;
        presence::ask_to_drain(&**tide.store(), "night-1", "ada", tide.now()).await.unwrap();
        first.await.unwrap().unwrap();
        // One of another program, which says nothing about when.
        let (shelf, key) = (Shelf::Orders, "night-1".to_owned());
        let timeless = Record { shelf, key, body: "{\"order\":\"drain\"}".into(), expires: None };
        tide.store().put_record(timeless, tide.now()).await.unwrap();
        let timely = worker(&tide, "night-1", started.clone(), go_on.clone());
        timely.run_until(std::future::pending()).await.unwrap();
        testing::advance("1s").await;
        let second = worker(&tide, "night-1", started.clone(), go_on.clone());
        let second = tokio::spawn(second.run_until(std::future::pending()));
        testing::advance("20s").await;
        assert!(!second.is_finished());
        second.abort();
    });
}

#[test]
fn two_workers_of_one_name_are_both_seen_and_a_dead_one_is_forgotten() {
    testing::block_on(async {
        let tide = testing::tide();
        let (started, go_on) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
        let mut running = vec![];
        for _ in 0..2 {
            let one = worker(&tide, "night", started.clone(), go_on.clone());
            running.push(tokio::spawn(one.run_until(std::future::pending())));
            testing::advance("1s").await;
        }
        assert_eq!(alive(&tide).await.len(), 2);
        // As a crash would: no farewell.
        running[0].abort();
        testing::advance(tidegate::Millis(presence::LASTS_MS + 5_000)).await;
        assert_eq!(alive(&tide).await.len(), 1);
    });
}
