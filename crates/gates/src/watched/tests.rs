//! Lives of permits with time that is given, and every bound.

use std::sync::Arc;

use tidegate_core::gates::config::{Breaker, Slots};
use tidegate_core::gates::{End, Failure, Gate, GateSet, Kind, Part, Span};
use tidegate_core::slo::Standing;

use super::domain::{BOOK, GRACE, SHARDS, TENANTS_SHOWN};
use super::*;
use crate::{BackendState, Fallback, FallbackOptions, GateOperations, InProcess, Note, Noticeboard};

const T: Micros = 1_000 * SECOND;

fn slots(limit: u32) -> GateSet {
    GateSet::of(vec![Gate::new("slots", Kind::Slots(Slots::of(limit)))])
}

async fn watched(set: GateSet) -> Watched<InProcess> {
    let gates = Watched::around(InProcess::new());
    gates.configure("d", set).await.unwrap();
    gates
}

fn target(tenant: &str) -> Arc<Target> {
    Arc::new(Target::new("d").unwrap().with(Part::Tenant, tenant).unwrap())
}

fn call(n: u64) -> Call {
    Call::new(target("acme"), Holder::number(n))
}

async fn permit(gates: &impl Gates, now: Micros, call: &Call) -> Permit {
    match gates.admit(Some(now), call).await.unwrap() {
        Admission::Admitted(admitted) => admitted.permit,
        other => panic!("{other:?}"),
    }
}

async fn settle(gates: &impl Gates, now: Micros, permit: &Permit, end: End) -> Settled {
    gates.settle(Some(now), permit, &Outcome::of(end)).await.unwrap()
}

/// What is seen of `d` at this time.
fn seen(gates: &Watched<InProcess>, now: Micros) -> DomainSeen {
    gates.inner.given.store(now, Ordering::Relaxed);
    gates.snapshot().domains.into_iter().find(|d| d.domain == "d").unwrap()
}

fn names(trace: &Trace) -> Vec<&'static str> {
    trace.events.iter().map(|e| e.what.name()).collect()
}

#[tokio::test]
async fn a_life_is_counted_and_traced_from_the_question_to_the_end() {
    let gates = watched(slots(1)).await;
    let one = permit(&gates, T, &call(1)).await;
    let again = permit(&gates, T + 1, &call(1)).await;
    assert_eq!(again, one, "the same question");
    let Admission::Wait(wait) = gates.admit(Some(T + 10), &call(2)).await.unwrap() else { panic!() };
    settle(&gates, T + 500_000, &one, End::Ok).await;
    settle(&gates, T + 500_001, &one, End::Ok).await;
    let mut two = call(2);
    two.since = Some(wait.arrived);
    let two = permit(&gates, T + 500_010, &two).await;
    let Renewal::Renewed { expires_at } = gates.renew(Some(T + SECOND), &two).await.unwrap() else {
        panic!()
    };
    let now = seen(&gates, expires_at + GRACE);
    assert_eq!((now.held, now.total.expired), (1, 0), "an answer may be under way");
    let end = seen(&gates, expires_at + GRACE + 1);
    let c = end.total;
    assert_eq!((c.asked, c.reserved, c.waits, c.waited), (4, 2, 1, 1));
    assert_eq!((c.released, c.expired, c.renewed, c.went_well), (1, 1, 1, 1), "settled once");
    assert_eq!((end.held, end.recent.waits.count(), end.recent.waits.longest()), (0, 1, 500_000));
    assert_eq!((end.tenants[0].tenant.as_str(), end.tenants[0].counts), ("acme", c));
    assert_eq!(names(&end.traces[0]), ["asked", "admitted", "settled"]);
    assert_eq!(names(&end.traces[1]), ["asked", "waited", "admitted", "renewed", "expired"]);
    assert_eq!(end.traces[1].last(), expires_at);
    assert!(end.traces[1].events[1].what.detail(T).contains("slots 1 of 1"));
}

#[tokio::test]
async fn what_came_too_late_is_expired_once_and_what_a_new_try_replaces_is_not() {
    let gates = watched(slots(5)).await;
    let late = permit(&gates, T, &call(1)).await;
    settle(&gates, late.expires_at + 1, &late, End::Ok).await;
    settle(&gates, late.expires_at + 2, &late, End::Ok).await;
    let (mut again, then) = (call(2), late.expires_at + 3);
    let _old = permit(&gates, then, &again).await;
    again.ask = 1;
    let new = permit(&gates, then + 5, &again).await;
    assert_eq!(gates.renew(Some(new.expires_at + 1), &new).await.unwrap(), Renewal::Gone);
    let c = seen(&gates, new.expires_at + 2).total;
    assert_eq!((c.reserved, c.released, c.expired), (3, 1, 2));
}

#[tokio::test]
async fn operators_are_noted_and_what_they_take_is_no_leak() {
    let gates = watched(slots(1)).await;
    let note = || Note { who: "ada".into(), why: "test".into() };
    let held = permit(&gates, T, &call(1)).await;
    gates.admit(Some(T), &call(2)).await.unwrap();
    gates.admit(Some(T), &call(3)).await.unwrap();
    assert!(gates.promote(Some(T + 1), "d", &Holder::number(3), note()).await.unwrap());
    gates.cancel_wait(Some(T + 2), &call(2).target, &Holder::number(2)).await.unwrap();
    gates.force_release(Some(T + 3), "d", &held.holder, true, note()).await.unwrap();
    assert_eq!(seen(&gates, T + 3).held, 1, "a dry run changes nothing");
    gates.force_release(Some(T + 3), "d", &held.holder, false, note()).await.unwrap();
    settle(&gates, T + 4, &held, End::Ok).await;
    let d = seen(&gates, T + 5);
    assert_eq!((d.total.promoted, d.total.cancelled, d.total.released, d.total.expired), (1, 1, 1, 0));
    assert_eq!(names(&d.traces[0]), ["asked", "admitted", "released by an operator"]);
    assert_eq!(names(&d.traces[1]), ["asked", "waited", "cancelled"]);
    assert_eq!(names(&d.traces[2]), ["asked", "waited", "promoted"]);
}

fn breaker() -> GateSet {
    let breaker =
        Breaker { failures: 3, open: Span::secs(60), probes: 1, ramp: Span(0), ..Breaker::default() };
    GateSet::of(vec![Gate::new("health", Kind::Breaker(breaker)).per(&[Part::Account])])
}

/// Three calls fail and two that were under way end so; then one tries.
async fn opening(gates: &Watched<InProcess>, t: Micros, account: &str, ends: End) -> Counts {
    let target = Arc::new((*target("acme")).clone().with(Part::Account, account).unwrap());
    let call = |n: u64| Call {
        process: n,
        ..Call::new(target.clone(), Holder::new(format!("{account}{n}")).unwrap())
    };
    let mut permits = Vec::new();
    for n in 0..5 {
        permits.push(permit(gates, t, &call(n)).await);
    }
    for failed in &permits[..3] {
        settle(gates, t + SECOND, failed, End::Failed(Failure::Server)).await;
    }
    for other in &permits[3..] {
        settle(gates, t + 2 * SECOND, other, ends).await;
    }
    let waits = gates.admit(Some(t + 3 * SECOND), &call(9)).await.unwrap();
    assert!(matches!(waits, Admission::Wait(_)), "it is open: {waits:?}");
    let probe = permit(gates, t + 62 * SECOND, &call(9)).await;
    settle(gates, t + 63 * SECOND, &probe, End::Ok).await;
    seen(gates, t + 63 * SECOND).total
}

#[tokio::test]
async fn a_breaker_opened_falsely_if_calls_under_way_went_well() {
    let gates = watched(breaker()).await;
    let truly = opening(&gates, T, "a", End::Failed(Failure::Network)).await;
    assert_eq!((truly.breakers_opened, truly.breakers_false), (1, 0));
    let falsely = opening(&gates, 2 * T, "b", End::Ok).await;
    assert_eq!((falsely.breakers_opened, falsely.breakers_false), (2, 1));
}

#[tokio::test]
async fn failures_in_a_row_end_with_a_sign_of_life() {
    let gates = watched(slots(10)).await;
    for n in 0..4 {
        let held = permit(&gates, T, &call(n)).await;
        settle(&gates, T + 1, &held, End::Failed(Failure::Server)).await;
    }
    let throttled = permit(&gates, T, &call(8)).await;
    settle(&gates, T + 2, &throttled, End::Throttled { retry_after: None }).await;
    assert_eq!((seen(&gates, T + 3).in_row, seen(&gates, T + 3).failed_at), (4, Some(T + 1)));
    let well = permit(&gates, T + 4, &call(9)).await;
    settle(&gates, T + 5, &well, End::Failed(Failure::Request)).await;
    assert_eq!(seen(&gates, T + 6).in_row, 0);
}

#[tokio::test]
async fn a_question_without_an_answer_counts_and_one_for_nothing_does_not() {
    let gates = watched(slots(1)).await;
    let unknown = Call::new(Arc::new(Target::new("gopher").unwrap()), Holder::number(1));
    assert!(gates.admit(Some(T), &unknown).await.is_err());
    assert_eq!(gates.snapshot().domains.len(), 1, "a name that somebody made up takes no place");
    let answered = Answered { now: T, took: 5 };
    gates.inner.note("d", T, |d| d.unanswered(answered, &call(1)));
    assert_eq!((seen(&gates, T).total.asked, seen(&gates, T).total.unanswered), (1, 1));
}

#[tokio::test]
async fn tenants_domains_traces_and_snapshots_are_bounded() {
    let gates = watched(slots(100_000)).await;
    for n in 0..400_u64 {
        // The first ones are the busiest.
        for ask in 0..=u64::from(n < 3) {
            let call = Call::new(target(&format!("t{n}")), Holder::number(n * 10 + ask));
            let held = permit(&gates, T, &call).await;
            settle(&gates, T, &held, End::Ok).await;
        }
        if n % 100 == 99 {
            seen(&gates, T);
        }
    }
    let d = seen(&gates, T);
    assert_eq!((d.tenants.len(), d.total.reserved), (TENANTS_SHOWN, 403));
    let single: u64 = d.tenants.iter().map(|t| t.counts.reserved).sum();
    let shown = d.tenants.iter().take(3).all(|t| t.counts.reserved == 2);
    assert!(shown && single + d.others.reserved == 403, "{d:?}");
    assert_eq!(d.traces.len(), TRACES, "a flood within a second is not written down one by one");
    for n in 0..300 {
        let name = format!("domain-{n}");
        gates.configure(&name, slots(9)).await.unwrap();
        let target = Arc::new(Target::new(&name).unwrap().with(Part::Tenant, "t").unwrap());
        gates.inner.given.store(T + n, Ordering::Relaxed);
        for holder in 0..3 {
            let _held = permit(&gates, T + n, &Call::new(target.clone(), Holder::number(holder))).await;
        }
    }
    let snapshot = gates.snapshot();
    assert_eq!((snapshot.domains.len(), snapshot.domains[0].domain.as_str()), (DOMAINS, "domain-299"));
    assert!(snapshot.domains.iter().all(|d| d.domain != "d"), "the one not used for longest has gone");
    let text = snapshot.to_text();
    assert!(text.len() <= SNAPSHOT_BYTES, "{}", text.len());
    let read = Snapshot::from_text(&text).unwrap();
    assert!(read.cut && read.domains.len() > 10 && read.domains[0].domain == "domain-299");
    assert_eq!(Snapshot::from_text("{}"), None);
    assert_eq!(Snapshot::from_text("gopher"), None);
}

#[tokio::test]
async fn what_does_not_fit_in_the_book_or_among_the_tenants_is_counted_all_the_same() {
    let gates = watched(slots(100_000)).await;
    let mut permits = Vec::new();
    for n in 0..20_000 {
        let tenant = target(&format!("t{}", n % 5_000));
        permits.push(permit(&gates, T, &Call::new(tenant, Holder::number(n))).await);
    }
    let full = seen(&gates, T);
    assert_eq!((full.held, full.total.reserved), ((SHARDS * BOOK) as u64, 20_000));
    let single: u64 = full.tenants.iter().map(|t| t.counts.reserved).sum();
    assert_eq!(single + full.others.reserved, 20_000);
    for held in &permits {
        settle(&gates, T + 1, held, End::Ok).await;
    }
    let end = seen(&gates, T + 2);
    assert_eq!((end.held, end.total.released, end.total.adopted), (0, 20_000, 0));
}

#[tokio::test]
async fn an_old_question_does_not_end_the_life_of_a_new_one() {
    let gates = watched(slots(5)).await;
    let (old, new) = (call(1), Call { ask: 1, ..call(1) });
    let held = permit(&gates, T, &new).await;
    let stale = gates.admit(Some(T + 1), &old).await.unwrap();
    assert!(matches!(stale, Admission::Refused(_)), "{stale:?}");
    settle(&gates, T + 2, &held, End::Ok).await;
    let d = seen(&gates, T + 3);
    assert_eq!(names(&d.traces[0]), ["asked", "admitted", "settled"]);
    assert_eq!((d.total.refused, d.total.released), (1, 1));
}

#[tokio::test]
async fn a_snapshot_gives_up_traces_before_numbers() {
    let gates = watched(slots(100_000)).await;
    for second in 0..3 {
        for n in 0..TRACES as u64 {
            let call = Call::new(target(&format!("t{n}")), Holder::number(second * 1_000 + n));
            let held = permit(&gates, T + second as i64 * SECOND, &call).await;
            for _ in 0..EVENTS {
                gates.renew(Some(T + second as i64 * SECOND), &held).await.unwrap();
            }
        }
    }
    let snapshot = gates.snapshot();
    let read = Snapshot::from_text(&snapshot.to_text()).unwrap();
    let (before, after) = (&snapshot.domains[0], &read.domains[0]);
    assert!(read.cut && after.traces.len() < before.traces.len() && !after.traces.is_empty());
    assert_eq!((&after.total, &after.tenants), (&before.total, &before.tenants));
}

#[test]
fn what_a_dead_process_held_has_expired_unless_another_settled_it() {
    let of = |process: &str, counts: Counts, held, held_until| Snapshot {
        process: process.into(),
        domains: vec![DomainSeen {
            domain: "d".into(),
            total: counts,
            recent: Tally { counts, ..Tally::default() },
            held,
            held_until,
            tenants: vec![TenantSeen { tenant: "acme".into(), counts, held: held as u32 }],
            ..DomainSeen::default()
        }],
        ..Snapshot::default()
    };
    let dead = of("a", Counts { reserved: 10, released: 7, ..Counts::default() }, 3, T);
    let lives = of("b", Counts { released: 1, adopted: 1, ..Counts::default() }, 0, 0);
    let soon = merge(&[dead.clone(), lives.clone()], T + GRACE);
    assert_eq!((soon[0].held, soon[0].total.expired), (3, 0));
    let later = merge(&[dead, lives], T + GRACE + 1);
    let (total, tenant) = (later[0].total, &later[0].tenants[0]);
    assert_eq!((later[0].held, total.reserved, total.released, total.expired), (0, 10, 8, 2));
    assert_eq!((tenant.counts.expired, tenant.counts.adopted), (2, 0));
}

#[tokio::test(start_paused = true)]
async fn a_process_publishes_once_a_second_and_what_others_left_is_put_together() {
    let (board, other) = (watched(slots(9)).await, watched(slots(9)).await);
    let now = board.clock();
    let _held = permit(&board, now, &call(1)).await;
    assert!(board.backend().published().await.unwrap().is_empty());
    tokio::time::sleep(EVERY * 2).await;
    let published = board.backend().published().await.unwrap();
    assert_eq!((published.len(), published[0].domains[0].total.reserved), (1, 1));
    assert_eq!(published[0].memory.len(), 1, "the size is noted");
    let _held = permit(&other, now, &call(2)).await;
    board.publish(&other.snapshot()).await.unwrap();
    let _held = permit(&board, now, &call(3)).await;
    let all = board.published().await.unwrap();
    assert_eq!(all.len(), 2, "its own once");
    assert_eq!(merge(&all, now)[0].total.reserved, 3, "its own as it is now");
    board.flush().await;
    let flushed = board.backend().published().await.unwrap();
    assert_eq!(merge(&flushed, now)[0].total.reserved, 3);
}

#[tokio::test]
async fn the_health_of_what_is_watched_is_passed_on() {
    let backend = Fallback::around(InProcess::new(), FallbackOptions::default()).await.unwrap();
    let health = Watched::around(backend).health();
    assert_eq!(health.map(|health| health.state), Some(BackendState::Normal));
    assert_eq!(Watched::around(InProcess::new()).health(), None);
}

#[tokio::test]
async fn a_board_in_process_is_bounded_and_forgets() {
    let board = InProcess::new();
    let now = board.clock();
    for n in 0..SNAPSHOTS as i64 + 5 {
        let seen = Snapshot { process: n.to_string(), at: now + n, ..Snapshot::default() };
        board.publish(&seen).await.unwrap();
    }
    let all = board.published().await.unwrap();
    assert_eq!((all.len(), all.last().unwrap().process.as_str()), (SNAPSHOTS, "5"), "the oldest have gone");
    let old = Snapshot { process: "old".into(), at: now - SNAPSHOT_KEPT - SECOND, ..Snapshot::default() };
    board.publish(&old).await.unwrap();
    assert!(board.published().await.unwrap().iter().all(|s| s.process != "old"));
}

#[tokio::test]
async fn the_report_judges_what_was_seen() {
    let gates = watched(slots(50)).await;
    let now = gates.clock();
    for n in 0..40 {
        let held = permit(&gates, now, &call(n)).await;
        if n % 10 > 0 {
            settle(&gates, now, &held, End::Ok).await;
        }
    }
    let expired = now + 31 * SECOND + GRACE;
    gates.inner.given.store(expired, Ordering::Relaxed);
    let report = gates.report().await.unwrap();
    let verdict = |id: &str| report.verdicts.iter().find(|v| v.objective == id).unwrap().clone();
    assert_eq!(
        (verdict("slot_leakage").standing, verdict("slot_leakage").value),
        (Standing::Critical, Some(10.0))
    );
    assert_eq!(verdict("reservation_p95").standing, Standing::Met);
    assert_eq!(verdict("retry_success").standing, Standing::NotMeasured);
    assert_eq!(verdict("reservations_answered").standing, Standing::Met);
    assert_eq!(verdict("backend_growth").standing, Standing::NotMeasured);
    assert_eq!(verdict("breaker_open").standing, Standing::Met);
    assert!(report.domains[0].live.is_some_and(|live| live.slots == 50));
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<crate::GatesReport>(&text).unwrap(), report);
}

/// The grammar of a sequence diagram, as far as it is used.
fn is_diagram(text: &str) -> Result<(), String> {
    let mut lines = text.lines();
    (lines.next() == Some("sequenceDiagram")).then_some(()).ok_or("no head")?;
    let mut participants = Vec::new();
    for line in lines {
        let wrong = || format!("{line:?}");
        let body = line.strip_prefix("    ").ok_or_else(wrong)?;
        if body.replace("#35;", "").contains(['#', ';']) {
            return Err(wrong());
        }
        if let Some(rest) = body.strip_prefix("participant ") {
            let (id, label) = rest.split_once(" as ").ok_or_else(wrong)?;
            participants.push(id.to_owned());
            (!label.is_empty()).then_some(()).ok_or_else(wrong)?;
            continue;
        }
        let (front, message) = body.split_once(": ").ok_or_else(wrong)?;
        let ends: Vec<&str> = match front.strip_prefix("Note over ") {
            Some(over) => over.split(',').collect(),
            None => ["-->>", "->>", "-x"]
                .iter()
                .find_map(|arrow| front.split_once(arrow))
                .map(|(a, b)| vec![a, b])
                .ok_or_else(wrong)?,
        };
        let known = ends.iter().all(|end| participants.iter().any(|p| p == end));
        (known && !message.is_empty()).then_some(()).ok_or_else(wrong)?;
    }
    Ok(())
}

#[tokio::test]
async fn diagrams_follow_the_grammar() {
    let gates = watched(slots(1)).await;
    let hash = Call { holder: Holder::new("job_1#2").unwrap(), ..call(1) };
    let held = permit(&gates, T, &hash).await;
    gates.admit(Some(T + 5), &call(2)).await.unwrap();
    let _ = gates.renew(Some(T + 6), &held).await.unwrap();
    settle(&gates, T + 7, &held, End::Throttled { retry_after: Some(SECOND) }).await;
    let traces = gates.traces("d", &TraceQuery { last: 10, ..TraceQuery::default() }).await.unwrap();
    let text = mermaid("d", &traces);
    is_diagram(&text).unwrap_or_else(|line| panic!("{line} in\n{text}"));
    assert!(
        text.contains("participant J0 as job_1#35;2") && text.contains("G-->>J1: +0.000 s wait, slots"),
        "{text}"
    );
    is_diagram(&mermaid("d", &[])).unwrap();
    assert!(is_diagram("sequenceDiagram\n    J0->>G: nobody knows them\n").is_err());
    assert!(is_diagram("graph TD\n").is_err());
}

#[tokio::test]
async fn traces_are_found_by_job_and_tenant() {
    let gates = watched(slots(9)).await;
    for (n, (holder, tenant)) in
        [("job_1", "acme"), ("job_1#2", "acme"), ("job_10", "umbrella")].iter().enumerate()
    {
        let call = Call { holder: Holder::new(holder).unwrap(), target: target(tenant), ..call(0) };
        let _held = permit(&gates, T + n as i64, &call).await;
    }
    let lapsed = gates.traces("d", &TraceQuery { last: 1, ..TraceQuery::default() }).await.unwrap();
    assert_eq!(names(&lapsed[0]).last(), Some(&"expired"), "by the clock, which is past the lease");
    let found = |holder: Option<&str>, tenant: Option<&str>, last| {
        let query = TraceQuery { holder: holder.map(str::to_owned), tenant: tenant.map(str::to_owned), last };
        let gates = &gates;
        async move {
            let traces = gates.traces("d", &query).await.unwrap();
            traces.iter().map(|t| t.holder.to_string()).collect::<Vec<_>>()
        }
    };
    assert_eq!(found(Some("job_1"), None, 9).await, ["job_1", "job_1#2"]);
    assert_eq!(found(Some("job_1#2"), None, 9).await, ["job_1#2"]);
    assert_eq!(found(None, Some("umbrella"), 9).await, ["job_10"]);
    assert_eq!(found(None, None, 1).await, ["job_10"], "the newest");
}
