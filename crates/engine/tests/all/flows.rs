//! Jobs that wait for other jobs. In virtual time.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use tidegate::testing;
use tidegate::{Context, Failure, Job, OnDead, Outcome, State, Worker, codes, done_with};

#[derive(Debug, Serialize, Deserialize, Job)]
struct Part {
    n: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
struct Sum;

async fn part(job: Part, _: Context) -> Outcome {
    if job.n == 13 {
        return Err(Failure::invalid("UNLUCKY", "thirteen"));
    }
    done_with(job.n)
}

async fn sum(_: Sum, cx: Context) -> Outcome {
    let parts = cx.dependencies().await?;
    let value = |text: &str| text.parse::<u32>().unwrap_or_default();
    done_with(parts.iter().filter_map(|p| p.result.as_ref()).map(|r| value(r.as_str())).sum::<u32>())
}

#[tokio::test(start_paused = true)]
async fn a_batch_ends_with_a_job_that_sees_all_results() {
    let tide = testing::tide();
    let parts = (1..=9).map(|n| tide.enqueue(Part { n }));
    let jobs = tide.batch(parts, tide.enqueue(Sum)).await.unwrap();
    let last = jobs.last().unwrap().id;
    assert_eq!(tide.job(last).await.unwrap().unwrap().state, State::Blocked);
    let why = tide.why(last).await.unwrap().sentence(tide.now());
    assert!(why.starts_with("Waits for 9 of 9 jobs to complete"), "{why}");
    let report = tide.run(Worker::new(&tide).handle(part).handle(sum)).await;
    assert_eq!(report.completed, 10);
    let last = tide.job(last).await.unwrap().unwrap();
    assert_eq!((last.state, last.result.unwrap().as_str()), (State::Completed, "45"));
}

#[tokio::test(start_paused = true)]
async fn a_flow_runs_in_its_order_whatever_the_order_of_its_jobs() {
    let tide = testing::tide();
    let mut flow = tide.flow();
    let first = flow.add(tide.enqueue(Part { n: 1 }));
    let second = flow.add(tide.enqueue(Part { n: 2 }).after([first]));
    flow.add(tide.enqueue(Part { n: 3 }).after([second, first]));
    flow.enqueue().await.unwrap();
    let seen = Arc::new(Mutex::new(vec![]));
    let for_handler = seen.clone();
    let worker = Worker::new(&tide).handle(move |job: Part, _: Context| {
        let seen = for_handler.clone();
        async move { seen.lock().unwrap().push(job.n) }
    });
    tide.run(worker).await;
    assert_eq!(*seen.lock().unwrap(), [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn a_dead_part_is_ignored_or_fails_the_rest() {
    let tide = testing::tide();
    let bad = tide.enqueue(Part { n: 13 }).await.unwrap().id;
    let good = tide.enqueue(Part { n: 1 }).await.unwrap().id;
    let fails = tide.enqueue(Sum).after([bad, good]).await.unwrap().id;
    let ignores = tide.enqueue(Sum).after([bad, good]).on_dead(OnDead::Ignore).await.unwrap().id;
    tide.run(Worker::new(&tide).handle(part).handle(sum)).await;
    let fails = tide.job(fails).await.unwrap().unwrap();
    assert_eq!((fails.state, fails.dead.unwrap().code.as_str()), (State::Dead, "DEPENDENCY_DEAD"));
    let ignores = tide.job(ignores).await.unwrap().unwrap();
    assert_eq!((ignores.state, ignores.result.unwrap().as_str()), (State::Completed, "1"));
}

#[tokio::test(start_paused = true)]
async fn a_circle_is_refused_and_nothing_is_stored() {
    let tide = testing::tide();
    let ids: [tidegate::JobId; 2] =
        ["job_01JD0000000000000000000000", "job_01JD0000000000000000000001"].map(|id| id.parse().unwrap());
    let jobs = [(0, 1), (1, 0)].map(|(own, other)| tide.enqueue(Sum).id(ids[own]).after([ids[other]]));
    let error = tide.enqueue_many(jobs).await.unwrap_err();
    assert_eq!(error.code, codes::CYCLE);
    assert!(tide.job(ids[0]).await.unwrap().is_none());
}
