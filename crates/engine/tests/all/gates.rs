//! Gates as handlers meet them: waiting without failing, places in line, permits that are looked after, parks instead of churn.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tidegate::gates::{Answer, BreakerOrder, GateSettings, Note};
use tidegate::testing::{self, TestTide};
use tidegate::{Context, Failure, Job, JobView, Outcome, ParkScope, Report, State, Tidegate, Worker, done};

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "shop", queue = "calls", timeout = "10m", connector = "shopify")]
struct Shop {
    cost: u32,
}

#[derive(Debug, Serialize, Deserialize, Job)]
#[job(kind = "books", queue = "calls", timeout = "10m", connector = "netsuite")]
struct Books;

async fn tide(gates: &str) -> TestTide {
    let tide = testing::tide();
    let settings = GateSettings::from_toml(gates).unwrap();
    Tidegate::gates((*tide).clone(), settings).await.unwrap();
    tide
}

const ONE_PER_10_S: &str = r#"
    [[gates.shopify.gates]]
    name = "calls"
    per = ["account"]
    gate.window = { max = 1, every = "10s" }
"#;

const ONE_AT_A_TIME: &str = r#"
    [[gates.shopify.gates]]
    name = "slots"
    per = ["account"]
    gate.slots = { limit = 1 }
"#;

async fn call(job: Shop, cx: Context) -> Outcome {
    let permit = cx.gate("shopify").cost(job.cost).admit().await?;
    permit.settle(Answer::ok()).await?;
    done()
}

async fn add(tide: &Tidegate, tenant: &str, jobs: u32) -> Vec<tidegate::JobId> {
    let new = (0..jobs).map(|_| tide.enqueue(Shop { cost: 1 }).tenant(tenant));
    tide.enqueue_many(new.collect::<Vec<_>>()).await.unwrap().into_iter().map(|e| e.id).collect()
}

async fn get(tide: &Tidegate, id: tidegate::JobId) -> JobView {
    tide.job(id).await.unwrap().unwrap()
}

async fn holders(tide: &Tidegate, domain: &str) -> usize {
    tide.gate_backend().unwrap().holders(domain, 100).await.unwrap().len()
}

#[tokio::test(start_paused = true)]
async fn a_call_that_must_wait_comes_back_and_has_spent_nothing() {
    let tide = tide(ONE_PER_10_S).await;
    let jobs = add(&tide, "acme", 3).await;
    let report = tide.run(Worker::new(&tide).handle(call)).await;
    assert_eq!((report.completed, report.failed, report.snoozed), (3, 0, 0));
    assert_eq!(tide.elapsed_ms(), 20_000, "one every ten seconds, and none later");
    for id in jobs {
        let job = get(&tide, id).await;
        assert_eq!((job.state, job.attempt, job.snoozes), (State::Completed, 1, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_wait_parks_its_scope_until_the_gate_said_and_why_names_the_number() {
    let tide = tide(ONE_PER_10_S).await;
    let jobs = add(&tide, "acme", 4).await;
    let handle = (*tide).clone();
    let ended = Arc::new(AtomicU32::new(0));
    let worker = Worker::new(&tide).concurrency(2).handle(move |job: Shop, cx: Context| {
        let ended = ended.clone();
        async move {
            let outcome = call(job, cx).await;
            ended.fetch_add(1, Ordering::Relaxed);
            outcome
        }
    });
    let looked = async {
        tokio::time::sleep(Duration::from_secs(2)).await;
        let parks = handle.store().parks().await.unwrap();
        assert_eq!(parks.len(), 1, "{parks:?}");
        let (group, connector) = ("acme".parse().unwrap(), "shopify".parse().unwrap());
        assert_eq!(parks[0].scope, ParkScope::GroupOnConnector(group, connector));
        assert_eq!(
            (parks[0].by.as_str(), parks[0].until),
            ("gate:shopify", Some(testing::EPOCH.plus_ms(10_000)))
        );
        let mut said = vec![];
        for id in &jobs[1..] {
            said.push(handle.why(*id).await.unwrap().sentence(handle.now()));
        }
        said
    };
    let (report, said) = tokio::join!(worker.run_until_idle(), looked);
    assert_eq!(report.unwrap().completed, 4);
    let number = "window 1 of 1 per 10 s, needs 1";
    assert!(said[0].starts_with("Waits for gate calls of shopify/"), "{said:?}");
    assert!(said[0].contains(number) && said[0].contains("first in line"), "{said:?}");
    assert!(
        said.iter().all(|s| s.contains(number)),
        "those that never asked know it from the park: {said:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_first_in_line_waits_in_place_if_its_turn_comes_soon() {
    let gates = ONE_PER_10_S.replace("10s", "80ms");
    let tide = tide(&gates).await;
    add(&tide, "acme", 2).await;
    let report = tide.run(Worker::new(&tide).handle(call)).await;
    assert_eq!((report.completed, report.waited, tide.elapsed_ms()), (2, 0, 80));
}

#[tokio::test(start_paused = true)]
async fn a_cost_above_capacity_is_refused_at_once() {
    let tide = tide(
        r#"
        [[gates.shopify.gates]]
        name = "points"
        gate.reported = { capacity = 100, restore_per_s = 50, known = true }
    "#,
    )
    .await;
    let job = tide.enqueue(Shop { cost: 101 }).await.unwrap();
    tide.run(Worker::new(&tide).handle(call)).await;
    let job = get(&tide, job.id).await;
    assert_eq!((job.state, tide.elapsed_ms()), (State::Dead, 0));
    let letter = job.dead.unwrap();
    assert_eq!(letter.code, "COST_ABOVE_CAPACITY");
    assert!(letter.message.contains("it costs 101 and there are never more than 100"), "{}", letter.message);
}

#[tokio::test(start_paused = true)]
async fn unknown_gates_and_bad_numbers_fail_and_name_what_is_wrong() {
    let tide = tide(ONE_PER_10_S).await;
    let worker = Worker::new(&tide).handle(async |_: Books, cx: Context| -> Outcome {
        let said = [
            cx.gate("netsuite").admit().await.unwrap_err(),
            cx.gate("shopify").cost(f64::NAN).admit().await.unwrap_err(),
            cx.gate("shopify").account("no such/name").admit().await.unwrap_err(),
            cx.gate("shopify").priority_named("now").admit().await.unwrap_err(),
        ];
        tidegate::done_with(said.map(|f| format!("{} {}", f.code(), f.message())))
    });
    let job = tide.enqueue(Books).await.unwrap();
    tide.run(worker).await;
    let said = get(&tide, job.id).await.result.unwrap();
    let said: Vec<String> = serde_json::from_str(said.as_str()).unwrap();
    assert!(said[0].starts_with("TG3008") && said[0].contains("netsuite"), "{said:?}");
    assert!(said[1].contains("NaN is no number of points"), "{said:?}");
    assert!(said[2].starts_with("TG2001") && said[2].contains("account"), "{said:?}");
    assert!(
        said[3].contains("no priority \\\"now\\\"") || said[3].contains("no priority \"now\""),
        "{said:?}"
    );
}

/// A handler that does not settle what it is admitted for, and ends in one of many ways.
async fn careless(_: Shop, cx: Context, how: &str) -> Outcome {
    let _permit = cx.gate("shopify").admit().await?;
    assert_eq!(holders(cx.tide(), "shopify").await, 1);
    tokio::time::sleep(Duration::from_millis(1)).await;
    match how {
        "ends" => done(),
        "fails" => Err(Failure::network("ECONNRESET", "broken")),
        "panics" => panic!("as planned"),
        "snoozes" => cx.snooze("1s", "later"),
        _ => std::future::pending().await,
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_is_given_back_however_its_run_ends() {
    for how in ["ends", "fails", "panics", "snoozes", "times out", "is cancelled", "is shut down"] {
        let tide = tide(ONE_AT_A_TIME).await;
        let handle = (*tide).clone();
        let id =
            tide.enqueue(Shop { cost: 1 }).tenant("acme").timeout("2s").max_attempts(1).await.unwrap().id;
        let worker = Worker::new(&tide)
            .grace("10ms")
            .drain("10ms")
            .handle(move |job: Shop, cx: Context| async move { careless(job, cx, how).await });
        let stop = async {
            match how {
                "is cancelled" => {
                    tokio::time::sleep(Duration::from_secs(1)).await;
                    handle.cancel(id, "test").await.unwrap();
                    handle.wait(id, "10s").await.unwrap();
                }
                "is shut down" | "snoozes" => tokio::time::sleep(Duration::from_millis(500)).await,
                _ => {
                    handle.wait(id, "10s").await.unwrap();
                }
            }
        };
        worker.run_until(stop).await.unwrap();
        assert_eq!(holders(&tide, "shopify").await, 0, "a run that {how} keeps its slot");
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_lasts_as_long_as_its_run_and_nobody_has_it_meanwhile() {
    let tide = tide(ONE_AT_A_TIME).await;
    add(&tide, "acme", 2).await;
    let (running, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let peak = most.clone();
    let worker = Worker::new(&tide).lease("3s").handle(move |_: Shop, cx: Context| {
        let (running, most) = (running.clone(), most.clone());
        async move {
            let permit = cx.gate("shopify").admit().await?;
            most.fetch_max(running.fetch_add(1, Ordering::Relaxed) + 1, Ordering::Relaxed);
            tokio::time::sleep(Duration::from_mins(1)).await;
            assert!(!permit.is_lost());
            running.fetch_sub(1, Ordering::Relaxed);
            done()
        }
    });
    let report = tide.run(worker).await;
    assert_eq!((report.completed, peak.load(Ordering::Relaxed)), (2, 1));
    assert!(
        (120_000..121_500).contains(&tide.elapsed_ms()),
        "the second is woken when the first ends: {}",
        tide.elapsed_ms()
    );
}

#[tokio::test(start_paused = true)]
async fn an_admission_calls_the_next_job_that_fits_although_it_was_told_a_later_time() {
    let tide = tide(
        r#"
        [[gates.shopify.gates]]
        name = "points"
        gate.reported = { capacity = 100, restore_per_s = 0.01, known = true }
    "#,
    )
    .await;
    // Apart, so that each asks, and stands in line.
    for (tenant, cost) in [("acme", 100), ("umbrella", 10), ("hooli", 10), ("initech", 10)] {
        tide.enqueue(Shop { cost }).tenant(tenant).await.unwrap();
    }
    let worker = Worker::new(&tide).concurrency(4).handle(async |job: Shop, cx: Context| -> Outcome {
        let permit = cx.gate("shopify").cost(job.cost).admit().await?;
        tokio::time::sleep(Duration::from_secs(5)).await;
        // It has cost nothing: all comes back.
        permit.settle(Answer::ok().cost(0)).await?;
        done()
    });
    let report = tide.run(worker).await;
    assert_eq!(report.completed, 4);
    let took = tide.elapsed_ms();
    assert!((10_000..11_000).contains(&took), "the last three at once: {took}");
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_an_operator_takes_away_is_lost() {
    let tide = tide(ONE_AT_A_TIME).await;
    let ids = add(&tide, "acme", 1).await;
    let worker = Worker::new(&tide).lease("3s").handle(async |_: Shop, cx: Context| -> Outcome {
        let permit = cx.gate("shopify").admit().await?;
        let backend = cx.tide().gate_backend().unwrap();
        let holder = backend.holders("shopify", 1).await.unwrap()[0].holder;
        assert_eq!(holder.as_str(), cx.id().to_string(), "a holder is its job");
        let note = Note { who: "ada".into(), why: "stuck".into() };
        backend.force_release(None, "shopify", &holder, false, note).await.unwrap();
        tokio::time::sleep(Duration::from_secs(2)).await;
        tidegate::done_with(permit.is_lost())
    });
    tide.run(worker).await;
    assert_eq!(get(&tide, ids[0]).await.result.unwrap().as_str(), "true");
}

/// Nobody calls the job: whoever took the order back did so where this process does not hear it.
#[tokio::test(start_paused = true)]
async fn a_job_that_a_breaker_keeps_for_days_asks_again_within_a_minute() {
    let tide = tide("[[gates.shopify.gates]]\nname = \"service\"\ngate.breaker = { failures = 3 }").await;
    let gates = tide.gate_backend().unwrap();
    let order = async |order| {
        let (now, note) = (Some(tide.now().0 * 1_000), Note { who: "ada".into(), why: "a test".into() });
        gates.order_breaker(now, "shopify", ("service", None), order, note).await.unwrap();
    };
    order(BreakerOrder::Trip { lasts: 48 * 3_600 * 1_000_000 }).await;
    let jobs = add(&tide, "acme", 3).await;
    let taken_back = async {
        tokio::time::sleep(Duration::from_secs(5)).await;
        assert_eq!(get(&tide, jobs[0]).await.state, State::Scheduled);
        order(BreakerOrder::Reset).await;
    };
    let (report, ()) = tokio::join!(Worker::new(&tide).handle(call).run_until_idle(), taken_back);
    assert_eq!(report.unwrap().completed, 3);
    assert!(tide.elapsed_ms() <= 61_000, "{}", tide.elapsed_ms());
}

#[tokio::test(start_paused = true)]
async fn calls_of_one_run_hold_apart_and_what_is_dropped_is_settled_before_the_next() {
    let tide = tide(&ONE_AT_A_TIME.replace("limit = 1", "limit = 2")).await;
    add(&tide, "acme", 1).await;
    let worker = Worker::new(&tide).handle(async |_: Shop, cx: Context| -> Outcome {
        let first = cx.gate("shopify").admit().await?;
        let second = cx.gate("shopify").admit().await?;
        assert_eq!(holders(cx.tide(), "shopify").await, 2);
        assert!(second.fence() > first.fence());
        drop((first, second));
        for _ in 0..5 {
            let _permit = cx.gate("shopify").admit().await?;
            assert_eq!(holders(cx.tide(), "shopify").await, 1);
        }
        done()
    });
    let report = tide.run(worker).await;
    assert_eq!((report.completed, report.waited), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_place_in_line_is_kept_while_its_job_is_put_off() {
    let tide = tide(ONE_PER_10_S).await;
    let jobs = add(&tide, "acme", 5).await;
    let order = Arc::new(Mutex::new(vec![]));
    let seen = order.clone();
    let worker = Worker::new(&tide).handle(move |job: Shop, cx: Context| {
        let order = order.clone();
        async move {
            let id = cx.id();
            call(job, cx).await?;
            order.lock().unwrap().push(id);
            done()
        }
    });
    tide.run(worker).await;
    assert_eq!(*seen.lock().unwrap(), jobs, "first come, first served");
}

/// What a crowd did.
struct Crowd {
    report: Report,
    /// When each job ran, by tenant, in ms.
    runs: BTreeMap<String, Vec<i64>>,
    asked: u64,
    elapsed_ms: i64,
}

/// One tenant that is limited to `rate` calls a second, with this many jobs, next to 100 that are free with ten each, on
/// both APIs.
async fn crowd(limited: u32, rate: u32) -> Crowd {
    let tide = tide(&format!(
        r#"
        [[gates.shopify.gates]]
        name = "calls"
        per = ["tenant"]
        gate.window = {{ max = 1000000, every = "1s" }}
        overrides.limited.window = {{ max = {rate}, every = "1s" }}
        [[gates.netsuite.gates]]
        name = "calls"
        gate.slots = {{ limit = 1000 }}
    "#
    ))
    .await;
    for _ in 0..limited.div_ceil(10_000) {
        add(&tide, "limited", limited.min(10_000)).await;
    }
    for n in 0..100 {
        add(&tide, &format!("free-{n}"), 10).await;
    }
    let books = (0..10).map(|_| tide.enqueue(Books).tenant("limited"));
    tide.enqueue_many(books.collect::<Vec<_>>()).await.unwrap();
    let (runs, asked) =
        (Arc::new(Mutex::new(BTreeMap::<String, Vec<i64>>::new())), Arc::new(AtomicU64::new(0)));
    let note = |runs: &Mutex<BTreeMap<String, Vec<i64>>>, cx: &Context, kind: &str| {
        let at = cx.now().since(testing::EPOCH);
        let who = format!("{} {kind}", cx.tenant().unwrap());
        runs.lock().unwrap().entry(who).or_default().push(at);
    };
    let (shop_runs, book_runs, asks) = (runs.clone(), runs.clone(), asked.clone());
    let worker = Worker::new(&tide)
        .concurrency(50)
        .handle(move |_: Shop, cx: Context| {
            let (runs, asks) = (shop_runs.clone(), asks.clone());
            async move {
                asks.fetch_add(1, Ordering::Relaxed);
                let permit = cx.gate("shopify").admit().await?;
                note(&runs, &cx, "shop");
                permit.settle(Answer::ok()).await?;
                done()
            }
        })
        .handle(move |_: Books, cx: Context| {
            let runs = book_runs.clone();
            async move {
                let _permit = cx.gate("netsuite").admit().await?;
                note(&runs, &cx, "books");
                done()
            }
        });
    let report = tide.run(worker).await;
    let runs = std::mem::take(&mut *runs.lock().unwrap());
    Crowd { report, runs, asked: asked.load(Ordering::Relaxed), elapsed_ms: tide.elapsed_ms() }
}

/// At most one job is claimed and returned per admission; the free are not delayed; nothing of the rate is lost.
async fn a_limited_tenant_costs_others_nothing(limited: u32, rate: u32) {
    let Crowd { report, runs, asked, elapsed_ms } = crowd(limited, rate).await;
    assert_eq!(report.completed, u64::from(limited) + 1_010);
    assert_eq!((report.failed, report.snoozed), (0, 0));
    assert_eq!(asked, report.completed - 10 + report.waited);
    assert!(report.waited <= u64::from(limited), "{} returned for {limited} admissions", report.waited);
    for (who, at) in &runs {
        let free = who.starts_with("free") || who.ends_with("books");
        assert!(!free || at.iter().all(|at| *at < 1_000), "{who} was held up: {at:?}");
    }
    let least = i64::from((limited - 1) / rate) * 1_000;
    assert!((least..least + 1_000 + least / 50).contains(&elapsed_ms), "{elapsed_ms} ms for {least}");
    let starts = &runs["limited shop"];
    for (i, at) in starts.iter().enumerate().skip(rate as usize) {
        assert!(at - starts[i - rate as usize] >= 999, "more than {rate} in a second");
    }
}

#[tokio::test(start_paused = true)]
async fn jobs_of_a_limited_tenant_are_parked_and_not_claimed_in_vain() {
    a_limited_tenant_costs_others_nothing(1_000, 30).await;
    a_limited_tenant_costs_others_nothing(200, 1).await;
    a_limited_tenant_costs_others_nothing(5_000, 500).await;
}

#[tokio::test(start_paused = true)]
#[ignore = "soak: a hundred thousand jobs"]
async fn a_hundred_thousand_jobs_of_a_limited_tenant_are_not_claimed_in_vain() {
    a_limited_tenant_costs_others_nothing(100_000, 200).await;
}

/// Jobs of many accounts, each of which makes one call: whatever gates there are, all that they allow is used (`ideal_ms`: so long it
/// takes with nothing between), and hardly anybody asks in vain.
async fn many_accounts_waste_nothing(gates: &[&str], accounts: u32, call: Duration, ideal_ms: i64) -> Report {
    let tide = tide(&gates.concat()).await;
    for _ in 0..20 {
        for n in 0..accounts {
            add(&tide, &format!("account-{n}"), 1).await;
        }
    }
    let worker = Worker::new(&tide).concurrency(40).handle(move |_: Shop, cx: Context| async move {
        let permit = cx.gate("shopify").admit().await?;
        tokio::time::sleep(call).await;
        permit.settle(Answer::ok()).await?;
        done()
    });
    let report = tide.run(worker).await;
    assert_eq!((report.completed, report.failed), (u64::from(accounts) * 20, 0));
    let took = tide.elapsed_ms();
    assert!(took <= ideal_ms + ideal_ms / 50, "{took} ms instead of {ideal_ms} with {gates:?}");
    report
}

#[tokio::test(start_paused = true)]
async fn gates_of_one_account_and_gates_of_all_are_used_beside_each_other() {
    const WINDOW: &str = r#"
        [[gates.shopify.gates]]
        name = "window"
        gate.window = { max = 20, every = "1s" }
    "#;
    const SMOOTH: &str = r#"
        [[gates.shopify.gates]]
        name = "smooth"
        gate.smooth = { rate = 20, every = "1s", burst = 5 }
    "#;
    const ACCOUNT: &str = r#"
        [[gates.shopify.gates]]
        name = "two"
        per = ["account"]
        gate.slots = { limit = 2 }
    "#;
    const ALL: &str = r#"
        [[gates.shopify.gates]]
        name = "thirty"
        gate.slots = { limit = 30 }
    "#;
    for (gates, call_ms, ideal_ms) in [
        (&[WINDOW][..], 300, 49_300),
        (&[ACCOUNT, WINDOW], 300, 49_300),
        (&[WINDOW, ACCOUNT], 300, 49_300),
        (&[ACCOUNT, SMOOTH], 300, 50_050),
        (&[ALL, WINDOW], 300, 49_300),
        (&[ACCOUNT, ALL, WINDOW], 300, 49_300),
        (&[ACCOUNT], 2_000, 50_000),
        (&[ALL], 2_000, 68_000),
        (&[ACCOUNT, WINDOW], 4_000, 100_000),
    ] {
        let report = many_accounts_waste_nothing(gates, 50, Duration::from_millis(call_ms), ideal_ms).await;
        assert!(report.waited <= report.completed / 5, "{} asked in vain with {gates:?}", report.waited);
    }
    // A few with long calls: the worker has claimed all of them before the first refusal is known, and now and then the first of a line
    // asks by itself.
    let report = many_accounts_waste_nothing(&[ACCOUNT], 5, Duration::from_secs(20), 200_000).await;
    assert!(report.waited <= 5 * report.completed, "{} asked in vain", report.waited);
}
