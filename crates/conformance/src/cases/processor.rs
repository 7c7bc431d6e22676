//! The processor of dead letters, and letters by what they died of.

use std::collections::HashMap;

use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{EventName, JobId};
use tidegate_core::job::{OnConflict, OnDead, Resolution, Review, State, UniqueScope};
use tidegate_core::letters::{EVERY_MS, PAGE, REAUTHORIZE_EVENT};
use tidegate_core::limits::TELL_BATCH;
use tidegate_core::retry::RetryPolicy;
use tidegate_core::time::Timestamp;
use tidegate_store::letters::{Grant, reauthorize};
use tidegate_store::params::{
    CauseQuery, JobQuery, NewJob, Outcome, ProcessLetters, ProcessedLetters, Reauthorized, Recovered, Settled,
};

use crate::kit::{World, at_once, connector, kind, queue, tenant};

const MINUTE: i64 = 60_000;
const HOUR: i64 = 60 * MINUTE;
const DAY: i64 = 24 * HOUR;

/// A whole run, begun now.
async fn process(w: &World) -> ProcessedLetters {
    let mut done = ProcessedLetters::default();
    loop {
        let step = ProcessLetters { every_ms: EVERY_MS, at_once: true, now: w.now };
        done.add(&w.store().process_letters(step).await.expect("answered"));
        if !done.more {
            return done;
        }
    }
}

/// Kinds that may be tried twice, or once.
async fn kinds(w: &World) {
    w.kind("twice", "q", |k| k.retry = Some(at_once(2))).await;
    w.kind("critical", "q", |k| k.retry = RetryPolicy::named("critical")).await;
    w.kind("none", "q", |k| k.retry = RetryPolicy::named("none")).await;
}

/// Fails the only job that is ready until it is dead.
async fn kill(w: &World, category: Category, message: &str) -> JobId {
    loop {
        let job = w.claim_one().await;
        let failure = Failure::new(category, "E_TEST", message);
        match w.settle(job.ticket, Outcome::Fail(failure)).await {
            Settled::Applied(State::Dead) => return job.id,
            Settled::Applied(State::Ready) => {}
            other => panic!("neither dead nor ready: {other:?}"),
        }
    }
}

async fn add_dead(w: &mut World, of: &str, whose: Option<&str>, category: Category, message: &str) -> JobId {
    let id = w.id();
    let job = NewJob { tenant: whose.map(tenant), ..NewJob::new(id, kind(of), crate::kit::json("{}")) };
    w.add(job).await;
    assert_eq!(kill(w, category, message).await, id);
    id
}

/// One of the two hundred.
#[derive(Debug, Clone, Copy)]
struct Entry {
    category: Category,
    kind: &'static str,
    age: i64,
    /// It was recovered by hand: its line began to die this much earlier.
    line: i64,
}

/// Review, resolution, whether another job took its place, whether its tenant was asked.
type End = (Review, Option<Resolution>, bool, bool);

/// Where S0 §4.2 with J10, J11 and J22 wants it.
fn wanted(e: Entry) -> End {
    let transient = e.category.as_str().starts_with("TRANSIENT");
    if e.age > 7 * DAY {
        (Review::Abandoned, Some(Resolution::Abandoned), false, false)
    } else if transient && e.kind == "twice" && e.age + e.line < HOUR {
        (Review::AutoResolved, Some(Resolution::Recovered), true, false)
    } else {
        (Review::PendingReview, None, false, e.category == Category::PermanentAuth)
    }
}

pub async fn two_hundred_letters_end_as_the_rules_say(w: &mut World) {
    kinds(w).await;
    let ages =
        [MINUTE, 30 * MINUTE, 59 * MINUTE, 61 * MINUTE, DAY, 7 * DAY - MINUTE, 7 * DAY + MINUTE, 20 * DAY];
    let mut entries: Vec<Entry> = (0..200)
        .map(|i| Entry {
            category: Category::ALL[i % Category::ALL.len()],
            kind: ["twice", "twice", "critical", "none"][i / 11 % 4],
            age: ages[i % ages.len()],
            line: [0, 0, 0, 40 * MINUTE, 2 * DAY][i % 5],
        })
        .collect();
    entries.sort_by_key(|e| std::cmp::Reverse(e.age));
    let end = w.now.plus_ms(30 * DAY);
    let mut letters: Vec<(JobId, Entry)> = vec![];
    for entry in entries {
        let died = end.plus_ms(-entry.age);
        // Time only goes on: the first death of a line is as early as the clock allows, and the rest is what that makes of it.
        let first = died.plus_ms(-entry.line).max(w.now).min(died);
        w.now = first;
        let mut id = add_dead(w, entry.kind, None, entry.category, "it did not work").await;
        if entry.line > 0 {
            let new = w.id();
            w.recover(id, new).await;
            w.now = died;
            id = kill(w, entry.category, "it did not work").await;
        }
        letters.push((id, Entry { line: died.since(first), ..entry }));
    }
    w.now = end;
    let expected: HashMap<JobId, _> = letters.iter().map(|(id, e)| (*id, wanted(*e))).collect();
    let count = |fits: fn(&End) -> bool| expected.values().filter(|w| fits(w)).count() as u64;
    let (retried, asked) = (count(|w| w.2), count(|w| w.3));
    let abandoned = count(|w| w.0 == Review::Abandoned);
    assert!(
        retried >= 5 && asked >= 5 && abandoned >= 20,
        "{retried} {asked} {abandoned}: all of them are there"
    );
    let done = process(w).await;
    assert_eq!((done.looked_at, done.retried, done.asked), (200, retried, asked));
    assert_eq!((done.abandoned, done.left), (abandoned, 200 - retried - asked - abandoned));
    w.restart().await;
    for round in 0..2 {
        for (id, entry) in &letters {
            let letter = w.get(*id).await.dead.expect("a letter");
            let is =
                (letter.review, letter.resolution, letter.recovered_as.is_some(), letter.asked_at.is_some());
            assert_eq!(is, expected[id], "{entry:?} in round {round}");
        }
        assert_eq!(w.store().totals().await.map(|t| t.ready).ok(), Some(retried), "round {round}");
        let again = process(w).await;
        let changed = again.retried + again.asked + again.reminded + again.abandoned;
        assert_eq!((changed, again.left), (0, 200 - retried - abandoned), "nothing more");
    }
}

/// What somebody has enqueued again under its key is not run again by the processor, and what it runs again holds its key.
pub async fn what_was_enqueued_again_is_not_retried(w: &mut World) {
    kinds(w).await;
    let keyed = |id: JobId, key: &str| NewJob {
        unique: Some(crate::kit::unique(key, UniqueScope::Pending, OnConflict::Keep)),
        ..NewJob::new(id, kind("twice"), crate::kit::json("{}"))
    };
    let (first, second, third, fourth) = (w.id(), w.id(), w.id(), w.id());
    for (id, key) in [(first, "a"), (second, "b"), (third, "c"), (fourth, "c")] {
        w.add(keyed(id, key)).await;
        kill(w, Category::TransientServer, "busy").await;
    }
    let again = w.id();
    w.add(keyed(again, "a")).await;
    let done = process(w).await;
    assert_eq!((done.looked_at, done.retried, done.left), (4, 2, 2));
    for (id, taken) in [(first, false), (second, true), (third, true), (fourth, false)] {
        let letter = w.get(id).await.dead.expect("a letter");
        assert_eq!(letter.recovered_as.is_some(), taken, "{id}");
    }
    let beside = w.id();
    let replies = w.store().enqueue(vec![keyed(beside, "b")], w.now).await.expect("answered");
    let second = w.get(second).await.dead.and_then(|letter| letter.recovered_as);
    assert_eq!(Some(replies[0].id), second, "its key is held");
}

pub async fn a_line_of_recoveries_is_retried_three_times(w: &mut World) {
    kinds(w).await;
    let first = add_dead(w, "twice", Some("acme"), Category::TransientServer, "it did not work").await;
    let died = w.now;
    let mut dead = first;
    for retries in 1..=3 {
        w.pass(5 * MINUTE);
        assert_eq!(process(w).await.retried, 1);
        w.restart().await;
        let new = w.get(dead).await.dead.and_then(|letter| letter.recovered_as).expect("recovered");
        let job = w.get(new).await;
        assert_eq!((job.state, job.attempt, job.recovered_from), (State::Ready, 0, Some(dead)));
        assert_eq!(job.tenant, Some(tenant("acme")));
        assert_eq!(kill(w, Category::TransientServer, "again").await, new);
        let letter = w.get(new).await.dead.expect("a letter");
        assert_eq!((letter.auto_retries, letter.first_died_at), (retries, Some(died)));
        dead = new;
    }
    assert_eq!((process(w).await.retried, w.store().totals().await.map(|t| t.ready).ok()), (0, Some(0)));
    let letter = w.get(dead).await.dead.expect("a letter");
    assert_eq!(letter.review, Review::PendingReview, "a person's turn");
}

pub async fn a_tenant_is_asked_once_reminded_daily_and_heard(w: &mut World) {
    w.queue("mail", |_| ()).await;
    let event = EventName::new(REAUTHORIZE_EVENT).expect("a name");
    w.kind("ask", "mail", |k| k.on = vec![event]).await;
    w.kind("call", "q", |k| k.connector = Some(connector("shopify"))).await;
    let auth = Category::PermanentAuth;
    let one = add_dead(w, "call", Some("acme"), auth, "revoked").await;
    let two = add_dead(w, "call", Some("acme"), auth, "revoked").await;
    let other = add_dead(w, "call", Some("globex"), auth, "revoked").await;
    assert_eq!(process(w).await.asked, 3);
    let mail = w.claim_with(w.claim_on(&["mail"], 10)).await;
    let mut told: Vec<_> = mail.jobs.iter().map(|job| job.tenant.clone().expect("a tenant")).collect();
    told.sort();
    assert_eq!(told, [tenant("acme"), tenant("globex")], "each tenant once, whatever died");
    let payload: serde_json::Value = serde_json::from_str(mail.jobs[0].payload.as_str()).expect("JSON");
    assert_eq!((&payload["connector"], &payload["reminder"]), (&"shopify".into(), &false.into()));
    for job in &mail.jobs {
        w.finish(job).await;
    }
    w.pass(DAY - MINUTE);
    assert_eq!(process(w).await.asked + process(w).await.reminded, 0, "not yet");
    w.pass(MINUTE);
    w.restart().await;
    assert_eq!(process(w).await.reminded, 3);
    assert_eq!(process(w).await.reminded, 0);
    let mail = w.claim_with(w.claim_on(&["mail"], 10)).await;
    assert_eq!(mail.jobs.len(), 2);
    assert!(mail.jobs.iter().all(|job| job.payload.as_str().contains("\"reminder\":true")));

    // A grant of another API, then the right one.
    let grant =
        |name: &str| Grant { tenant: Some(tenant("acme")), connector: Some(connector(name)), kind: None };
    let mut made = vec![w.id(), w.id()];
    let nothing =
        reauthorize(&*w.store(), &grant("netsuite"), None, "tokens", || None, w.now).await.expect("answered");
    assert_eq!(nothing.letters, []);
    let done = reauthorize(&*w.store(), &grant("shopify"), None, "tokens", || made.pop(), w.now)
        .await
        .expect("answered");
    assert_eq!(done.letters.len(), 2);
    for id in [one, two] {
        let letter = w.get(id).await.dead.expect("a letter");
        assert_eq!((letter.review, letter.resolution), (Review::AutoResolved, Some(Resolution::Reauthorize)));
        assert_eq!(letter.resolved_by.as_deref(), Some("tokens"));
        let new = letter.recovered_as.expect("it runs again");
        let again = Reauthorized { dead: id, new_id: Some(w.id()) };
        let reply = w.store().reauthorized(vec![again], "tokens".into(), w.now).await.expect("answered");
        assert_eq!(reply, [Recovered::Already(new)], "twice is once");
    }
    assert_eq!(w.claim(10).await.jobs.len(), 2);
    let letter = w.get(other).await.dead.expect("a letter");
    assert_eq!(letter.review, Review::PendingReview, "nobody else's");
    let settle = vec![Reauthorized { dead: other, new_id: None }];
    let reply = w.store().reauthorized(settle, "tokens".into(), w.now).await.expect("answered");
    assert_eq!(reply, [Recovered::Resolved]);
    let letter = w.get(other).await.dead.expect("a letter");
    assert_eq!((letter.review, letter.recovered_as), (Review::AutoResolved, None));
}

/// A grant that is revoked on the day it was given is a new reason to ask.
pub async fn a_tenant_that_authorized_is_asked_anew_on_the_same_day(w: &mut World) {
    w.queue("mail", |_| ()).await;
    let event = EventName::new(REAUTHORIZE_EVENT).expect("a name");
    w.kind("ask", "mail", |k| k.on = vec![event]).await;
    w.kind("call", "q", |k| k.connector = Some(connector("shopify"))).await;
    let auth = Category::PermanentAuth;
    let asked = async |w: &World| {
        let done = process(w).await;
        let mail = w.claim_with(w.claim_on(&["mail"], 10)).await.jobs;
        for job in &mail {
            w.finish(job).await;
        }
        (done.asked, mail.len())
    };
    let first = add_dead(w, "call", Some("acme"), auth, "revoked").await;
    assert_eq!(asked(w).await, (1, 1));
    w.pass(HOUR);
    let again = vec![Reauthorized { dead: first, new_id: Some(w.id()) }];
    let reply = w.store().reauthorized(again, "tokens".into(), w.now).await.expect("answered");
    assert!(matches!(reply[..], [Recovered::As(_)]), "{reply:?}");
    w.restart().await;
    let second = kill(w, auth, "revoked again").await;
    assert_eq!(asked(w).await, (1, 1), "it runs again, and dies of the same on the same day");
    add_dead(w, "call", Some("acme"), auth, "revoked").await;
    assert_eq!(asked(w).await, (1, 0), "another letter is no reason to ask twice a day");
    let settled = vec![Reauthorized { dead: second, new_id: None }];
    let reply = w.store().reauthorized(settled, "tokens".into(), w.now).await.expect("answered");
    assert_eq!(reply, [Recovered::Resolved]);
    add_dead(w, "call", Some("acme"), auth, "revoked").await;
    assert_eq!(asked(w).await, (1, 1), "settled and not run again");
}

/// One request looks at so many letters; the next one goes on behind them, and does not begin anew.
pub async fn a_grant_is_seen_to_from_where_it_stopped(w: &mut World) {
    let auth = Category::PermanentAuth;
    let (first, second) =
        (add_dead(w, "k", Some("acme"), auth, "no").await, add_dead(w, "k", Some("acme"), auth, "no").await);
    let grant = Grant { tenant: Some(tenant("acme")), connector: None, kind: None };
    let newest = w.store().search(JobQuery { limit: 1, ..grant.query() }).await.expect("answered");
    assert_eq!(newest.jobs.iter().map(|job| job.id).collect::<Vec<_>>(), [second]);
    let done = reauthorize(&*w.store(), &grant, newest.next, "tokens", || None, w.now).await;
    let done = done.expect("answered");
    assert_eq!((done.letters, done.next), (vec![(first, Recovered::Resolved)], None));
    let letter = w.get(second).await.dead.expect("a letter");
    assert_eq!(letter.review, Review::PendingReview, "what is before is somebody else's request");
}

pub async fn nobody_authorizes_for_seven_days(w: &mut World) {
    let id = add_dead(w, "k", Some("acme"), Category::PermanentAuth, "revoked").await;
    let mut asked = vec![];
    for _ in 0..9 * 24 {
        let done = process(w).await;
        asked.extend((done.asked + done.reminded > 0).then_some(w.now));
        w.pass(HOUR);
    }
    let expected: Vec<Timestamp> = (0..=7).map(|day| w.now.plus_ms((day - 9) * DAY)).collect();
    assert_eq!(asked, expected, "once, and every day until it is given up");
    let letter = w.get(id).await.dead.expect("a letter");
    assert_eq!((letter.review, letter.resolution), (Review::Abandoned, Some(Resolution::Abandoned)));
    let late = vec![Reauthorized { dead: id, new_id: Some(w.id()) }];
    let reply = w.store().reauthorized(late, "tokens".into(), w.now).await.expect("answered");
    assert_eq!(reply, [Recovered::NotDead], "it waits no more");
}

pub async fn two_processors_at_once_do_each_letter_once(w: &mut World) {
    kinds(w).await;
    for _ in 0..30 {
        add_dead(w, "twice", None, Category::TransientNetwork, "it did not work").await;
    }
    let step = ProcessLetters { every_ms: EVERY_MS, at_once: true, now: w.now };
    let (one, two) = (w.store(), w.store());
    let (one, two) = tokio::join!(one.process_letters(step), two.process_letters(step));
    assert_eq!(one.expect("answered").retried + two.expect("answered").retried, 30);
    assert_eq!(w.store().totals().await.map(|t| t.ready).ok(), Some(30));
}

pub async fn a_run_comes_round_and_goes_on_where_it_stopped(w: &mut World) {
    let n = PAGE as u64 + 20;
    for job in w.add_many(n as usize, |_, job| job.max_attempts = Some(1)).await {
        assert_eq!(w.state(job).await, State::Ready);
    }
    for job in w.claim(n as u32).await.jobs {
        w.fail(&job, Category::InvalidInput).await;
    }
    let look = |w: &World| ProcessLetters { every_ms: EVERY_MS, at_once: false, now: w.now };
    let first = w.store().process_letters(look(w)).await.expect("answered");
    let due = w.now.plus_ms(EVERY_MS);
    assert_eq!((first.looked_at, first.next_run), (0, Some(due)), "its first run is not due yet");
    w.pass(EVERY_MS - 1);
    w.restart().await;
    let early = w.store().process_letters(look(w)).await.expect("answered");
    assert_eq!((early.looked_at, early.next_run), (0, Some(due)));
    w.pass(1);
    let page = w.store().process_letters(look(w)).await.expect("answered");
    assert_eq!((page.looked_at, page.more), (PAGE as u64, true));
    w.restart().await;
    let rest = w.store().process_letters(look(w)).await.expect("answered");
    assert_eq!((rest.looked_at, rest.more), (20, false), "whoever comes next goes on");
    assert_eq!(rest.next_run, Some(w.now.plus_ms(EVERY_MS)));
    let over = w.store().process_letters(look(w)).await.expect("answered");
    assert_eq!((over.looked_at, over.next_run), (0, rest.next_run));
    w.pass(8 * DAY);
    assert_eq!(process(w).await.abandoned, n);
}

/// What runs again takes along who waits for it: as many of a page as a commit is for, and the others with the next.
pub async fn letters_that_too_many_wait_for_are_retried_in_portions(w: &mut World) {
    kinds(w).await;
    let parents = w.add_many(20, |_, job| job.kind = kind("twice")).await;
    let children = TELL_BATCH / 20 + 1;
    let mut waiting = vec![];
    for _ in 0..children {
        waiting.push(NewJob { after: parents.clone(), on_dead: OnDead::Wait, ..w.job() });
    }
    w.enqueue(waiting).await;
    for _ in 0..2 {
        for job in w.claim(20).await.jobs {
            w.fail(&job, Category::TransientServer).await;
        }
    }
    let step = ProcessLetters { every_ms: EVERY_MS, at_once: true, now: w.now };
    let first = w.store().process_letters(step).await.expect("answered");
    assert_eq!((first.looked_at, first.retried, first.more), (19, 19, true));
    w.restart().await;
    let second = w.store().process_letters(step).await.expect("answered");
    assert_eq!((second.looked_at, second.retried, second.more), (1, 1, false));
    let running = w.claim(50).await.jobs;
    assert_eq!(running.len(), 20);
    for job in running {
        assert_eq!(w.view("q").await.blocked, children as u64, "all of them wait for all of them");
        w.finish(&job).await;
    }
    assert_eq!(w.view("q").await.ready, children as u64);
}

pub async fn letters_of_one_cause_are_one_row(w: &mut World) {
    w.queue("other", |_| ()).await;
    let busy = |n: usize| format!("order {n} of shop_{}: upstream said \"busy {n}\"", n * 7);
    for n in 0..12 {
        let whose = if n % 3 == 0 { "acme" } else { "globex" };
        add_dead(w, "k", Some(whose), Category::InvalidInput, &busy(n)).await;
        w.pass(1_000);
    }
    let rare = add_dead(w, "k", Some("acme"), Category::InvalidInput, "something else").await;
    w.restart().await;
    let all = CauseQuery { limit: 10, ..CauseQuery::default() };
    let found = w.store().causes(all.clone()).await.expect("answered");
    assert_eq!((found.causes.len(), found.other, found.total), (2, 0, 13));
    let top = &found.causes[0];
    assert_eq!((top.count, top.queues, &top.kind, &top.queue), (12, 1, &kind("k"), &queue("q")));
    assert_eq!(top.last_at.since(top.first_at), 11_000);
    assert_eq!((top.message.as_str(), top.code.as_str()), ("order # of shop_#: upstream said #", "E_TEST"));
    assert_eq!(w.get(top.example).await.dead.and_then(|letter| letter.cause), top.cause);
    assert_eq!(found.causes[1].example, rare);

    let few = w.store().causes(CauseQuery { limit: 1, ..all.clone() }).await.expect("answered");
    assert_eq!((few.causes.len(), few.other, few.total), (1, 1, 13), "the rest is counted together");
    let acme = CauseQuery { tenant: Some(tenant("acme")), ..all.clone() };
    let acme = w.store().causes(acme).await.expect("answered");
    assert_eq!((acme.causes[0].count, acme.causes[1].count, acme.total), (4, 1, 5));
    for none in [
        CauseQuery { tenant: Some(tenant("nobody")), ..all.clone() },
        CauseQuery { queue: Some(queue("other")), ..all.clone() },
        CauseQuery { kind: Some(kind("unknown")), ..all.clone() },
    ] {
        assert_eq!(w.store().causes(none).await.expect("answered").total, 0);
    }

    let of_cause =
        JobQuery { cause: top.cause, review: Some(Review::PendingReview), limit: 5, ..JobQuery::default() };
    let letters = w.find(of_cause.clone()).await;
    assert_eq!(letters.len(), 12, "page by page");
    let new = w.id();
    w.recover(letters[0], new).await;
    assert_eq!(w.find(of_cause).await.len(), 11);
    assert_eq!(w.store().causes(all).await.expect("answered").causes[0].count, 11);
}

pub async fn a_recovered_letter_keeps_its_kinds_limit(w: &mut World) {
    let mut dead = vec![];
    for _ in 0..3 {
        dead.push(w.add_dead().await);
    }
    // The limit came after they had died.
    w.kind("k", "q", |k| k.concurrency = Some(1)).await;
    for id in dead {
        let new = w.id();
        w.recover(id, new).await;
    }
    let claimed = w.claim(10).await;
    assert_eq!(claimed.jobs.len(), 1);
    w.finish(&claimed.jobs[0]).await;
    assert_eq!(w.claim(10).await.jobs.len(), 1);
}

pub async fn a_successor_that_was_pruned_had_completed(w: &mut World) {
    w.queue("q", |q| q.retention.age_ms = HOUR).await;
    let dead = w.add_dead().await;
    let new = w.id();
    let new = w.recover(dead, new).await;
    let job = w.claim_one().await;
    assert_eq!(job.id, new);
    w.finish(&job).await;
    w.pass(2 * HOUR);
    while w.store().prune(100, w.now).await.expect("answered") > 0 {}
    assert_eq!(w.store().get(new).await.expect("answered"), None, "it is not stored any more");
    let mut after = w.job();
    after.after = vec![dead];
    let after = w.add(after).await;
    assert_eq!(w.state(after).await, State::Ready);
}
