//! Outcomes: retries, error history, snoozes, releases, progress, results.

use tidegate_core::failure::{Category, Failure};
use tidegate_core::job::{ScheduledBecause, State};
use tidegate_core::limits;
use tidegate_core::payload::Payload;
use tidegate_core::registry::Retention;
use tidegate_core::retry::DeadReason;
use tidegate_store::params::{Outcome, Report, Settled};

use crate::kit::{World, at_once, json};

pub async fn a_result_is_kept(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    w.pass(20);
    let outcome = Outcome::Complete(Some(json(r#"{"sent":true}"#)));
    assert_eq!(w.settle(job.ticket, outcome).await, Settled::Applied(State::Completed));
    w.restart().await;
    let got = w.get(id).await;
    assert_eq!((got.state, got.attempt, got.finished_at), (State::Completed, 1, Some(w.now)));
    assert_eq!(got.result.map(|r| r.as_str().to_owned()).as_deref(), Some(r#"{"sent":true}"#));
    assert_eq!(got.held, None);
}

pub async fn a_result_that_is_too_large_is_not_kept(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let giant = Payload::trusted(format!("\"{}\"", "x".repeat(limits::MAX_RESULT_BYTES)));
    assert_eq!(w.settle(job.ticket, Outcome::Complete(Some(giant))).await, Settled::Applied(State::Dead));
    let got = w.get(id).await;
    assert!(got.result.is_none() && got.dead.is_some_and(|d| d.code == "RESULT_TOO_LARGE"));
}

pub async fn a_failure_is_tried_again_with_its_categorys_policy(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let Settled::Again(at) = w.fail(&job, Category::TransientRateLimit).await else {
        panic!("it is tried again")
    };
    assert!((2_500..=5_000).contains(&at.since(w.now)), "equal jitter over 5 s: {}", at.since(w.now));
    let got = w.get(id).await;
    assert_eq!((got.state, got.run_at, got.attempt), (State::Scheduled, at, 1));
    assert_eq!(got.scheduled_because, Some(ScheduledBecause::Retry));
    w.restart().await;
    w.now = at.plus_ms(-1);
    assert!(w.claim(1).await.jobs.is_empty());
    w.now = at;
    assert_eq!(w.claim_one().await.attempt, 2);
}

pub async fn each_category_has_its_own_counter(w: &mut World) {
    let id = w.add_one().await;
    // Three server errors and five network errors are allowed; mixed, they do not add up.
    let mixed = [Category::TransientServer, Category::TransientNetwork];
    for n in 0..6 {
        let job = w.claim_one().await;
        assert_eq!(job.attempt, n + 1);
        let reply = w.fail(&job, mixed[n as usize % 2]).await;
        assert_ne!(reply, Settled::Applied(State::Dead), "failure {}", n + 1);
        w.pass(60_000);
        if n == 3 {
            w.restart().await;
        }
    }
    let job = w.claim_one().await;
    assert_eq!(
        w.fail(&job, Category::TransientServer).await,
        Settled::Applied(State::Dead),
        "the fourth of its kind"
    );
    let got = w.get(id).await;
    let letter = got.dead.expect("a letter");
    assert_eq!((letter.category, letter.reason), (Category::TransientServer, DeadReason::AttemptsUsed));
    assert_eq!(got.attempt, 7);
}

pub async fn max_attempts_caps_the_sum_over_categories(w: &mut World) {
    let mut job = w.job();
    job.max_attempts = Some(2);
    let id = w.add(job).await;
    let job = w.claim_one().await;
    assert!(matches!(
        w.fail(&job, Category::TransientNetwork).await,
        Settled::Again(_) | Settled::Applied(State::Ready)
    ));
    w.pass(60_000);
    let job = w.claim_one().await;
    assert_eq!(w.fail(&job, Category::TransientServer).await, Settled::Applied(State::Dead));
    assert_eq!(w.get(id).await.attempt, 2);
}

pub async fn permanent_failures_are_dead_at_once(w: &mut World) {
    for category in [
        Category::PermanentAuth,
        Category::PermanentConfig,
        Category::PermanentPermission,
        Category::InvalidInput,
        Category::AmbiguousWrite,
    ] {
        let id = w.add_one().await;
        let job = w.claim_one().await;
        assert_eq!(w.fail(&job, category).await, Settled::Applied(State::Dead), "{category:?}");
        let letter = w.get(id).await.dead.expect("a letter");
        assert_eq!((letter.category, letter.reason), (category, DeadReason::Permanent));
    }
}

pub async fn a_jobs_own_policy_wins_over_its_kinds_and_the_categorys(w: &mut World) {
    w.kind("k", "q", |k| k.retry = Some(at_once(9))).await;
    let mut job = w.job();
    job.retry = Some(at_once(2));
    let id = w.add(job).await;
    let job = w.claim_one().await;
    assert_eq!(w.fail(&job, Category::TransientNetwork).await, Settled::Applied(State::Ready), "at once");
    let job = w.claim_one().await;
    assert_eq!(w.fail(&job, Category::TransientNetwork).await, Settled::Applied(State::Dead));
    assert_eq!(w.state(id).await, State::Dead);
}

pub async fn the_error_history_is_bounded_and_keeps_the_newest(w: &mut World) {
    let mut job = w.job();
    job.retry = Some(at_once(limits::MAX_ATTEMPTS));
    let id = w.add(job).await;
    for n in 1..=25 {
        let job = w.claim_one().await;
        assert_eq!(job.attempt, n);
        let failure = Failure {
            category: Category::LogicError,
            code: "C".repeat(10_000),
            message: format!("{n} {}", "m".repeat(100_000)),
            retry_at: None,
        };
        w.settle(job.ticket, Outcome::Fail(failure)).await;
    }
    w.restart().await;
    let errors = w.get(id).await.errors;
    assert_eq!(errors.len(), limits::MAX_ERRORS_KEPT);
    assert_eq!((errors[0].attempt, errors[19].attempt), (6, 25));
    assert!(
        errors
            .iter()
            .all(|e| e.message.len() <= limits::MAX_ERROR_BYTES && e.code.len() <= limits::MAX_NAME_BYTES)
    );
}

pub async fn a_dead_letter_is_bounded_too(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let failure = Failure {
        category: Category::InvalidInput,
        code: "C".repeat(10_000),
        message: "m".repeat(100_000),
        retry_at: None,
    };
    w.settle(job.ticket, Outcome::Fail(failure)).await;
    let letter = w.get(id).await.dead.expect("a letter");
    assert!(letter.message.len() <= limits::MAX_ERROR_BYTES, "{} bytes", letter.message.len());
    assert!(letter.code.len() <= limits::MAX_NAME_BYTES, "{} bytes", letter.code.len());
}

pub async fn a_snooze_spends_no_attempt(w: &mut World) {
    let id = w.add_one().await;
    for n in 1..=5 {
        let job = w.claim_one().await;
        assert_eq!(job.attempt, 1);
        let until = w.now.plus_ms(1_000);
        assert_eq!(w.snooze(&job, 1_000, None).await, Settled::Again(until));
        let got = w.get(id).await;
        assert_eq!((got.state, got.run_at, got.snoozes, got.attempt), (State::Scheduled, until, n, 0));
        assert_eq!(got.snooze_reason.as_deref(), Some("not yet"));
        assert_eq!(got.scheduled_because, Some(ScheduledBecause::Snooze));
        assert!(got.errors.is_empty(), "a snooze is no failure");
        w.pass(999);
        assert!(w.claim(1).await.jobs.is_empty());
        w.pass(1);
    }
}

pub async fn a_job_that_snoozes_for_ever_is_dead_in_the_end(w: &mut World) {
    let id = w.add_one().await;
    for n in 0..=limits::MAX_SNOOZES {
        let job = w.claim_one().await;
        let reply = w.snooze(&job, 0, None).await;
        let expected = if n == limits::MAX_SNOOZES { State::Dead } else { State::Ready };
        assert_eq!(reply, Settled::Applied(expected), "snooze {}", n + 1);
    }
    assert_eq!(w.get(id).await.dead.map(|d| d.reason), Some(DeadReason::SnoozedTooOften));
}

pub async fn a_snooze_without_end_is_cut_to_ten_years(w: &mut World) {
    w.add_one().await;
    let job = w.claim_one().await;
    let outcome = Outcome::Snooze {
        until: tidegate_core::time::Timestamp(i64::MAX),
        reason: "r".repeat(10_000),
        park: None,
        gate: None,
    };
    let latest = w.now.plus_ms(limits::MAX_DELAY_MS);
    assert_eq!(w.settle(job.ticket, outcome).await, Settled::Again(latest));
    assert!(w.get(job.id).await.snooze_reason.is_some_and(|r| r.len() <= limits::MAX_NOTE_BYTES));
}

pub async fn a_released_job_is_ready_again_and_spent_nothing(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    assert_eq!(w.settle(job.ticket, Outcome::Release).await, Settled::Applied(State::Ready));
    let got = w.get(id).await;
    assert_eq!((got.state, got.attempt, got.snoozes, got.lone_stalls), (State::Ready, 0, 0, 0));
    assert_eq!(w.claim_one().await.attempt, 1);
}

pub async fn progress_and_log_lines_are_kept_within_bounds(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    let report = |progress, log| Report { ticket: job.ticket, progress, log };
    let lines: Vec<String> = (0..150).map(|n| format!("line {n}")).collect();
    let reports =
        vec![report(Some((0.25, "a quarter".into())), lines), report(Some((0.5, "half".into())), vec![])];
    assert_eq!(w.store().report(reports, w.now).await.ok(), Some(vec![true, true]));
    let long = vec![report(None, vec!["ü".repeat(5_000)])];
    assert_eq!(w.store().report(long, w.now).await.ok(), Some(vec![true]));
    w.restart().await;
    let got = w.get(id).await;
    let progress = got.progress.expect("progress is kept");
    assert_eq!((progress.fraction, progress.note.as_str(), progress.at), (0.5, "half", w.now));
    assert_eq!(got.log.len(), limits::MAX_LOG_LINES);
    assert_eq!(got.log[0].line, "line 51", "the oldest go first");
    assert!(got.log[99].line.len() <= limits::MAX_NOTE_BYTES);
    for odd in [7.5, -1.0, f64::NAN, f64::INFINITY] {
        let reports = vec![report(Some((odd, "n".repeat(5_000))), vec![])];
        w.store().report(reports, w.now).await.expect("a report is answered");
        let progress = w.get(id).await.progress.expect("progress is kept");
        assert!((0.0..=1.0).contains(&progress.fraction), "{odd} became {}", progress.fraction);
        assert!(progress.note.len() <= limits::MAX_NOTE_BYTES);
    }
    w.finish(&job).await;
    assert_eq!(w.get(id).await.log.len(), limits::MAX_LOG_LINES, "and stay after the end");
}

pub async fn a_stale_report_is_refused(w: &mut World) {
    let id = w.add_one().await;
    let job = w.claim_one().await;
    w.stall().await;
    let report =
        Report { ticket: job.ticket, progress: Some((0.9, "zombie".into())), log: vec!["zombie".into()] };
    assert_eq!(w.store().report(vec![report], w.now).await.ok(), Some(vec![false]));
    let got = w.get(id).await;
    assert!(got.progress.is_none() && got.log.is_empty());
}

pub async fn outcomes_of_one_call_are_applied_together(w: &mut World) {
    w.queue("q", |s| s.retention = Retention { count: 100, age_ms: 1_000 }).await;
    w.add_many(4, |_, _| ()).await;
    let claimed = w.claim(4).await;
    let t = |i: usize| claimed.jobs[i].ticket;
    let until = w.now.plus_ms(500);
    let outcomes = [
        Outcome::Complete(None),
        Outcome::Release,
        Outcome::Snooze { until, reason: "later".into(), park: None, gate: None },
        Outcome::Cancel,
    ];
    let settlements = outcomes
        .into_iter()
        .enumerate()
        .map(|(i, outcome)| tidegate_store::params::Settlement { ticket: t(i), outcome })
        .collect();
    let expected = [
        Settled::Applied(State::Completed),
        Settled::Applied(State::Ready),
        Settled::Again(until),
        Settled::Applied(State::Cancelled),
    ];
    assert_eq!(w.settle_all(settlements).await, expected);
    let totals = w.store().totals().await.expect("totals");
    assert_eq!(
        (totals.completed, totals.ready, totals.scheduled, totals.cancelled, totals.running),
        (1, 1, 1, 1, 0)
    );
}
