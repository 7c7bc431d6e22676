//! How healthy it is, by the rules of S1 §6.5, and what came to them: store, gates, schedules, workers that are missing. The worst
//! wins.

use std::collections::BTreeMap;

use tidegate_store::params::QueueView;
use tidegate_wire::Time;
use tidegate_wire::health::{Details, Health, QueueHealth, QueueStatus, Status, WorkerHealth, WorkerStatus};

use super::gather::{Snapshot, Worker};

/// Jobs that may wait before a queue is behind, and before it counts as standing still although some run.
const BACKLOG: (u64, u64) = (1_000, 5_000);
/// Share of failed attempts beyond which it is unhealthy, and how many attempts that must rest on: one failure of one is no rate.
const ERRORS: (f64, u64) = (0.1, 20);
/// Schedules that are later than this are worth a word.
const LATE_MS: u64 = 60_000;

/// What the judgement rests on beside the snapshot.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    pub(crate) writable: bool,
    /// `None`: no gates that could be out of reach; else what is wrong, if anything is.
    pub(crate) gates: Option<Result<(), String>>,
    pub(crate) expected_workers: Option<u64>,
    pub(crate) queue_workers: BTreeMap<String, u64>,
}

/// Judges.
pub(crate) fn judge(snapshot: &Snapshot, facts: &Facts) -> Health {
    let mut verdict = Verdict { status: Status::Healthy, because: vec![] };
    let store = snapshot.answered && facts.writable;
    if !store {
        let what = if snapshot.answered { "cannot be written to" } else { "does not answer" };
        verdict.say(Status::Unhealthy, format!("the store {what}"));
    }
    let gates = facts.gates.as_ref().map(|gates| match gates {
        Ok(()) => "ok".to_owned(),
        Err(why) => {
            verdict.say(Status::Degraded, format!("the gates: {why}"));
            why.clone()
        }
    });
    let lag = snapshot.scheduler_lag_ms();
    if let Some(late) = lag.filter(|late| *late > LATE_MS) {
        verdict.say(Status::Degraded, format!("schedules are {} s late", late / 1_000));
    }
    let queues = snapshot.queues.iter().map(|q| (q.name.to_string(), queue(q, snapshot, &mut verdict)));
    let queues: BTreeMap<String, QueueHealth> = queues.collect();
    let workers = workers(snapshot, facts, &mut verdict);
    let oldest = queues.values().filter_map(|q| q.oldest_ready_ms).max();
    Health {
        status: verdict.status,
        version: env!("CARGO_PKG_VERSION").into(),
        store: if store { "ok" } else { "failing" }.into(),
        gates,
        scheduler_lag_ms: lag,
        last_check: Time(snapshot.at),
        details: Some(Details {
            queues,
            workers,
            dlq_size: snapshot.totals.dead,
            oldest_ready_ms: oldest,
            because: verdict.because,
        }),
    }
}

struct Verdict {
    status: Status,
    because: Vec<String>,
}

impl Verdict {
    fn say(&mut self, status: Status, why: String) {
        self.status = self.status.max(status);
        self.because.push(why);
    }
}

pub(super) fn error_rate(q: &QueueView) -> (f64, u64) {
    let ended = q.completed_last_minute + q.failed_last_minute;
    (q.failed_last_minute as f64 / ended.max(1) as f64, ended)
}

fn queue(q: &QueueView, snapshot: &Snapshot, verdict: &mut Verdict) -> QueueHealth {
    let status = match (q.ready, q.running) {
        (waiting, active) if waiting > BACKLOG.1 && active > 0 => QueueStatus::Stalled,
        (waiting, _) if waiting > BACKLOG.0 => QueueStatus::Backlogged,
        _ => QueueStatus::Ok,
    };
    if status != QueueStatus::Ok {
        verdict.say(Status::Degraded, format!("queue {}: {} jobs wait", q.name, q.ready));
    }
    let (error_rate, ended) = error_rate(q);
    if error_rate > ERRORS.0 && ended >= ERRORS.1 {
        let share = (error_rate * 100.0).round();
        verdict.say(Status::Unhealthy, format!("queue {}: {share} % of attempts fail", q.name));
    }
    let oldest_ready_ms = q.oldest_ready.map(|at| snapshot.at.since(at).max(0) as u64);
    QueueHealth { status, waiting: q.ready, active: q.running, error_rate, oldest_ready_ms }
}

fn workers(snapshot: &Snapshot, facts: &Facts, verdict: &mut Verdict) -> BTreeMap<String, WorkerHealth> {
    let health = |worker: &Worker, status| WorkerHealth {
        status,
        concurrency: worker.concurrency,
        processing: worker.running,
    };
    let mut workers = BTreeMap::new();
    for (name, worker) in snapshot.workers.iter().filter(|(_, w)| w.role != "server") {
        let status = if worker.draining { WorkerStatus::Paused } else { WorkerStatus::Running };
        workers.insert(name.clone(), health(worker, status));
    }
    let alive = workers.len() as u64;
    for (name, worker) in snapshot.down.iter().filter(|(_, w)| w.role != "server") {
        verdict.say(Status::Unhealthy, format!("worker {name} is gone"));
        workers.insert(name.clone(), health(worker, WorkerStatus::Down));
    }
    if let Some(expected) = facts.expected_workers.filter(|expected| alive < *expected) {
        verdict.say(Status::Unhealthy, format!("{alive} of {expected} workers are alive"));
    }
    for (queue, expected) in &facts.queue_workers {
        let serving = serving(snapshot, queue);
        if serving < *expected {
            verdict
                .say(Status::Unhealthy, format!("queue {queue}: {serving} of {expected} workers are alive"));
        }
    }
    workers
}

/// Workers that serve a queue.
pub(super) fn serving(snapshot: &Snapshot, queue: &str) -> u64 {
    let serves = |w: &&Worker| w.role != "server" && w.queues.iter().any(|q| q == queue);
    snapshot.workers.values().filter(serves).count() as u64
}

#[cfg(test)]
mod tests {
    use tidegate_core::registry::QueueSettings;
    use tidegate_core::time::Timestamp;

    use super::*;

    fn view(ready: u64, running: u64, completed: u64, failed: u64) -> QueueView {
        QueueView {
            name: "billing".parse().unwrap(),
            settings: QueueSettings::default(),
            ready,
            blocked: 0,
            scheduled: 0,
            running,
            completed: 0,
            dead: 0,
            cancelled: 0,
            oldest_ready: Some(Timestamp(1_000)),
            completed_last_minute: completed,
            failed_last_minute: failed,
            run_ms_last_minute: 0,
            stalled: 0,
            parks: vec![],
            parked_groups: 0,
        }
    }

    fn facts() -> Facts {
        Facts { writable: true, ..Facts::default() }
    }

    fn snapshot(queues: Vec<QueueView>) -> Snapshot {
        Snapshot { at: Timestamp(5_000), answered: true, queues, ..Snapshot::default() }
    }

    #[test]
    fn queues_are_judged_as_the_source_says() {
        for (view, queue, status) in [
            (view(1_000, 0, 0, 0), QueueStatus::Ok, Status::Healthy),
            (view(1_001, 0, 0, 0), QueueStatus::Backlogged, Status::Degraded),
            (view(5_001, 0, 0, 0), QueueStatus::Backlogged, Status::Degraded),
            (view(5_001, 1, 0, 0), QueueStatus::Stalled, Status::Degraded),
            (view(0, 0, 90, 10), QueueStatus::Ok, Status::Healthy),
            (view(0, 0, 89, 11), QueueStatus::Ok, Status::Unhealthy),
            (view(0, 0, 0, 19), QueueStatus::Ok, Status::Healthy),
        ] {
            let health = judge(&snapshot(vec![view.clone()]), &facts());
            let found = health.details.unwrap();
            assert_eq!((found.queues["billing"].status, health.status), (queue, status), "{view:?}");
            assert_eq!(found.oldest_ready_ms, Some(4_000));
            assert_eq!(found.because.is_empty(), status == Status::Healthy);
        }
    }

    #[test]
    fn the_worst_wins_and_everything_that_is_wrong_is_said() {
        let busy = snapshot(vec![view(2_000, 0, 0, 0)]);
        let failing = judge(&busy, &Facts::default());
        assert_eq!((failing.status, failing.store.as_str()), (Status::Unhealthy, "failing"));
        assert_eq!(failing.details.unwrap().because.len(), 2);
        let silent = Snapshot { answered: false, ..busy };
        assert_eq!(judge(&silent, &facts()).status, Status::Unhealthy);
        let alone = Facts { gates: Some(Err("out of reach".into())), ..facts() };
        let health = judge(&snapshot(vec![]), &alone);
        assert_eq!((health.status, health.gates.as_deref()), (Status::Degraded, Some("out of reach")));
        let mut late = snapshot(vec![]);
        (late.totals.schedules, late.totals.next_tick) = (1, Some(late.at.plus_ms(-61_000)));
        let health = judge(&late, &facts());
        assert_eq!((health.status, health.scheduler_lag_ms), (Status::Degraded, Some(61_000)));
    }

    #[test]
    fn workers_that_are_gone_or_missing_are_unhealthy_and_those_that_drain_are_paused() {
        let worker = |draining| Worker {
            role: "worker".into(),
            queues: vec!["billing".into()],
            draining,
            ..Worker::default()
        };
        let mut seen = snapshot(vec![]);
        seen.workers = [("a".to_owned(), worker(false)), ("b".to_owned(), worker(true))].into();
        let health = judge(&seen, &Facts { expected_workers: Some(2), ..facts() });
        assert_eq!(health.status, Status::Healthy);
        let workers = health.details.unwrap().workers;
        assert_eq!((workers["a"].status, workers["b"].status), (WorkerStatus::Running, WorkerStatus::Paused));
        let missing = Facts { queue_workers: [("billing".to_owned(), 3)].into(), ..facts() };
        assert_eq!(judge(&seen, &missing).status, Status::Unhealthy);
        seen.down = [("c".to_owned(), worker(false))].into();
        let health = judge(&seen, &facts());
        assert_eq!(health.status, Status::Unhealthy);
        assert_eq!(health.details.unwrap().workers["c"].status, WorkerStatus::Down);
    }
}
