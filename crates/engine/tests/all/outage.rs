//! A store that does not answer for a while: nothing is lost, nothing is done twice, and what must be given up is said.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::gates::GateSettings;
use tidegate::store::{Error, Feed, MemoryStore, Result, Signals, Store};
use tidegate::testing;
use tidegate::{Context, Job, Outcome, StopReason, Tidegate, Worker, codes, done, done_with};

mod flaky {
    //! A store in memory whose calls fail while a counter says so.

    use async_trait::async_trait;
    use tidegate::store::Jobs;
    use tidegate::store::params::{
        Beat, CancelJob, CancelReply, Claim, Claimed, Enqueued, JobQuery, NewJob, Page, Report, Settle,
        Settled,
    };
    use tidegate::{JobId, JobView, Priority, State, Timestamp, Why};
    use tidegate_core::gates::Room;
    use tidegate_core::ids::LeaseId;

    use super::*;

    #[derive(Default)]
    pub(super) struct Flaky {
        pub(super) inner: MemoryStore,
        /// Claims, settles and heartbeats still to fail.
        pub(super) claims: AtomicU32,
        pub(super) settles: AtomicU32,
        pub(super) beats: AtomicU32,
        /// Claims whose reply takes half a second.
        pub(super) late_claims: AtomicU32,
        /// Whether whoever tells of admissions waits for a minute.
        pub(super) slow_hints: AtomicBool,
        /// Settles still to be applied although the reply is lost.
        pub(super) lost_replies: AtomicU32,
    }

    fn due(counter: &AtomicU32) -> bool {
        counter.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    fn unreachable<T>() -> Result<T> {
        Err(Error::new(codes::STORE_FAILED, "the disk is away"))
    }

    #[async_trait]
    impl Jobs for Flaky {
        async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
            self.inner.enqueue(jobs, now).await
        }

        async fn admitted(&self, jobs: Vec<(JobId, Room)>, now: Timestamp) -> Result<()> {
            if self.slow_hints.load(Ordering::Relaxed) {
                tokio::time::sleep(Duration::from_mins(1)).await;
            }
            self.inner.admitted(jobs, now).await
        }

        async fn report(&self, reports: Vec<Report>, now: Timestamp) -> Result<Vec<bool>> {
            self.inner.report(reports, now).await
        }

        async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
            self.inner.cancel(cancel).await
        }

        async fn run_now(&self, id: JobId, now: Timestamp) -> Result<State> {
            self.inner.run_now(id, now).await
        }

        async fn reprioritise(&self, id: JobId, priority: Priority, now: Timestamp) -> Result<()> {
            self.inner.reprioritise(id, priority, now).await
        }

        async fn get(&self, id: JobId) -> Result<Option<JobView>> {
            self.inner.get(id).await
        }

        async fn search(&self, query: JobQuery) -> Result<Page> {
            self.inner.search(query).await
        }

        async fn dependencies(
            &self,
            id: JobId,
            held: Option<tidegate_store::params::Ticket>,
            skip: u32,
            limit: usize,
        ) -> Result<tidegate_store::params::Dependencies> {
            self.inner.dependencies(id, held, skip, limit).await
        }
        async fn why(&self, id: JobId, now: Timestamp) -> Result<Why> {
            self.inner.why(id, now).await
        }

        async fn claim(&self, claim: Claim) -> Result<Claimed> {
            if due(&self.claims) {
                return unreachable();
            }
            let reply = self.inner.claim(claim).await;
            if reply.as_ref().is_ok_and(|claimed| !claimed.jobs.is_empty()) && due(&self.late_claims) {
                tokio::time::sleep(std::time::Duration::from_millis(500)).await;
            }
            reply
        }

        async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
            if due(&self.settles) {
                return unreachable();
            }
            let reply = self.inner.settle(settle).await;
            if due(&self.lost_replies) { unreachable() } else { reply }
        }

        async fn heartbeat(&self, leases: Vec<LeaseId>, now: Timestamp) -> Result<Vec<Beat>> {
            if due(&self.beats) { unreachable() } else { self.inner.heartbeat(leases, now).await }
        }
    }

    tidegate_store::forward!(
        Registry, Versions, Letters, Schedules, Upkeep, Records for Flaky: |store| &store.inner
    );

    #[async_trait]
    impl Store for Flaky {
        fn signals(&self) -> &Signals {
            self.inner.signals()
        }

        fn feed(&self) -> &Feed {
            self.inner.feed()
        }

        async fn close(&self) -> Result<()> {
            self.inner.close().await
        }
    }
}

use flaky::Flaky;
use tidegate::State;

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "task", timeout = "2h")]
struct Task {
    n: u32,
}

fn flaky() -> (Arc<Flaky>, Tidegate) {
    let store = Arc::new(Flaky::default());
    let tide = testing::tide_with(store.clone());
    (store, tide)
}

#[tokio::test(start_paused = true)]
async fn claims_and_outcomes_are_tried_again_until_the_store_is_back() {
    let (store, tide) = flaky();
    tide.enqueue_many((0..100).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    store.claims.store(5, Ordering::Relaxed);
    store.settles.store(6, Ordering::Relaxed);
    let report = testing::run(Worker::new(&tide).handle(async |_: Task, _| done())).await;
    assert_eq!((report.completed, report.unsettled, report.stale_refused), (100, 0, 0));
    assert!(tide.now().since(testing::EPOCH) < 10_000);
}

#[tokio::test(start_paused = true)]
async fn permits_are_renewed_while_the_store_does_not_answer() {
    let (store, tide) = flaky();
    let gates = "[[gates.shopify.gates]]\nname = \"slots\"\ngate.slots = { limit = 1 }";
    let tide = tide.gates(GateSettings::from_toml(gates).unwrap()).await.unwrap();
    store.slow_hints.store(true, Ordering::Relaxed);
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    let worker = Worker::new(&tide).lease("3s").handle(async |_: Task, cx: Context| -> Outcome {
        let permit = cx.gate("shopify").admit().await?;
        tokio::time::sleep(Duration::from_secs(30)).await;
        done_with(permit.is_lost())
    });
    testing::run(worker).await;
    let job = tide.job(job.id).await.unwrap().unwrap();
    assert_eq!(job.result.unwrap().as_str(), "false", "the store waits for a minute, the permit lasts 3 s");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_answers_after_the_stop_gives_its_jobs_back() {
    let (store, tide) = flaky();
    store.late_claims.store(1, Ordering::Relaxed);
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    let stop = testing::advance("100ms");
    let worker = Worker::new(&tide).handle(async |_: Task, _| done());
    let report = worker.run_until(stop).await.unwrap();
    assert_eq!((report.completed, report.released), (0, 1));
    assert_eq!(
        tide.job(job.id).await.unwrap().unwrap().state,
        State::Ready,
        "it must not wait for a lease to end"
    );
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_completes_nothing_twice() {
    let (store, tide) = flaky();
    let runs = Arc::new(AtomicU32::new(0));
    let seen = runs.clone();
    tide.enqueue_many((0..10).map(|n| tide.enqueue(Task { n }))).await.unwrap();
    store.lost_replies.store(1, Ordering::Relaxed);
    let handler = move |_: Task, _: Context| {
        seen.fetch_add(1, Ordering::Relaxed);
        std::future::ready(())
    };
    let report = testing::run(Worker::new(&tide).handle(handler)).await;
    // The outcomes were written; sent again they are refused, and nothing runs again.
    assert_eq!((report.completed + report.stale_refused, runs.load(Ordering::Relaxed)), (10, 10));
    assert!(report.stale_refused > 0);
    assert_eq!(tide.store().totals().await.unwrap().completed, 10);
}

#[tokio::test(start_paused = true)]
async fn without_heartbeats_a_handler_is_stopped_when_its_lease_is_over() {
    let (store, tide) = flaky();
    tide.enqueue(Task { n: 1 }).await.unwrap();
    store.beats.store(4, Ordering::Relaxed);
    let told = Arc::new(Mutex::new(vec![]));
    let seen = told.clone();
    let handler = move |_: Task, cx: Context| {
        let seen = seen.clone();
        async move {
            tokio::select! {
                () = tokio::time::sleep(Duration::from_mins(1)) => done(),
                () = cx.cancelled() => {
                    seen.lock().unwrap().push((cx.stop_reason(), cx.now().since(testing::EPOCH)));
                    Err(tidegate::Failure::logic("STOPPED", "asked to stop"))
                }
            }
        }
    };
    let report = testing::run(Worker::new(&tide).handle(handler).lease("9s")).await;
    assert_eq!((report.completed, report.failed), (1, 0));
    assert_eq!(*told.lock().unwrap(), [(Some(StopReason::LeaseLost), 9_000)]);
    assert_eq!(report.stale_refused + report.released, 1);
}

#[tokio::test(start_paused = true)]
async fn an_outcome_is_given_up_with_its_lease_and_counted() {
    let (store, tide) = flaky();
    let job = tide.enqueue(Task { n: 1 }).await.unwrap();
    store.settles.store(60, Ordering::Relaxed);
    store.beats.store(u32::MAX, Ordering::Relaxed);
    let back = async {
        testing::advance("20s").await;
        store.settles.store(0, Ordering::Relaxed);
        store.beats.store(0, Ordering::Relaxed);
    };
    let worker = Worker::new(&tide).handle(async |_: Task, _| done()).lease("6s");
    let (report, ()) = tokio::join!(testing::run(worker), back);
    assert!(report.unsettled >= 1, "{report:?}");
    assert_eq!(report.completed, 1);
    assert_eq!(tide.job(job.id).await.unwrap().unwrap().attempt, 1);
}
