//! SIGTERM from outside, in a process of its own: one asks, a second one insists.

use std::future::pending;
use std::time::Duration;

use rustix::process::{Signal, getpid, kill_process};
use serde::{Deserialize, Serialize};
use tidegate::{Context, Job, State, Tidegate, Worker, done};
use tokio::sync::Notify;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(timeout = "1h")]
struct Task {
    endless: bool,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_signal_lets_handlers_finish_and_a_second_does_not() {
    static STARTED: Notify = Notify::const_new();
    let tide = Tidegate::memory();
    let handler = async |t: Task, _: Context| {
        STARTED.notify_one();
        if t.endless {
            pending::<()>().await;
        }
        tokio::task::yield_now().await;
        done()
    };
    let worker = || Worker::new(&tide).handle(handler).drain("10m").grace("10m");

    tide.enqueue(Task { endless: false }).await.unwrap();
    let ask = async {
        STARTED.notified().await;
        kill_process(getpid(), Signal::TERM).unwrap();
    };
    let (report, ()) = tokio::join!(worker().run(), ask);
    assert_eq!(report.unwrap().completed, 1);

    let job = tide.enqueue(Task { endless: true }).await.unwrap();
    let insist = async {
        STARTED.notified().await;
        // Two signals that come at once count as one, so it goes on until it is heard.
        let mut tick = tokio::time::interval(Duration::from_millis(20));
        loop {
            tick.tick().await;
            kill_process(getpid(), Signal::TERM).unwrap();
        }
    };
    let report = tokio::select! {
        report = worker().run() => report.unwrap(),
        () = insist => unreachable!("it insists for ever"),
    };
    assert_eq!((report.released, report.failed), (1, 0));
    assert_eq!(tide.job(job.id).await.unwrap().unwrap().state, State::Ready);
}
