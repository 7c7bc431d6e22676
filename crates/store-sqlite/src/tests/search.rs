//! Search finds exactly what the reference model finds.

use super::*;
use crate::schema;
use crate::search::{Rest, Search};
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{GroupKey, Seq, TenantId};
use tidegate_core::job::{Resolution, Review, State, Unique, UniqueScope};
use tidegate_core::seed::Seed;
use tidegate_store::MemoryStore;
use tidegate_store::params::{JobQuery, Page, Resolve};

/// Jobs in every state, with awkward texts.
async fn populate(store: &(impl Store + Sync), jobs: &[NewJob]) {
    register(store).await;
    let other = KindSettings::new(QueueName::new("other").unwrap());
    store.ensure_queue(QueueName::new("other").unwrap(), NOW).await.unwrap();
    store.put_kind(KindName::new("second").unwrap(), other).await.unwrap();
    for job in jobs {
        enqueue(store, job.clone()).await;
    }
    let claimed = claim(store, 20, NOW).await;
    for (n, job) in claimed.jobs.iter().enumerate() {
        let fail = |category, message: &str| Outcome::Fail(Failure::new(category, "HTTP_500", message));
        let outcome = match n % 6 {
            0 => Outcome::Complete(Some(Payload::trusted("\"fine\""))),
            1 => fail(Category::InvalidInput, "100% \"wrong\"\nand a_b"),
            2 => fail(Category::TransientServer, "it's down; DROP TABLE jobs"),
            3 => Outcome::Cancel,
            4 => Outcome::Snooze { until: NOW.plus_ms(9_000), reason: "no".into(), park: None, gate: None },
            _ => continue,
        };
        settle(store, job.ticket, outcome, NOW).await;
        if n == 1 {
            let resolution = Resolution::ConfigFix;
            store.resolve(Resolve { id: job.id, resolution, by: "me".into(), now: NOW }).await.unwrap();
        }
    }
}

fn jobs() -> Vec<NewJob> {
    let texts = ["100%", "a_b", "it's \\\"quoted\\\"", "plain", "ümlaut", "a\\nb"];
    let mut seed = Seed::new(7);
    (0..60)
        .map(|n| {
            let mut job = job(&format!("{{\"n\":{n},\"t\":\"{}\"}}", texts[n % texts.len()]));
            job.tenant = (n % 3 == 0).then(|| TenantId::new(format!("t{}", n % 2)).unwrap());
            job.group = (n % 5 == 0).then(|| GroupKey::new("g").unwrap());
            job.run_at = (n % 7 == 0).then(|| NOW.plus_ms(1_000 + seed.below(1_000) as i64));
            if n % 4 == 3 {
                job.kind = KindName::new("second").unwrap();
            }
            if n == 11 || n == 12 {
                let scope = UniqueScope::PendingOrRunning;
                let on_conflict = tidegate_core::job::OnConflict::Replace;
                job.kind = kind();
                job.run_at = Some(NOW.plus_ms(5_000));
                let key = tidegate_core::ids::UniqueKey::new("k").unwrap();
                job.unique = Some(Unique { key, scope, on_conflict });
            }
            job
        })
        .collect()
}

fn queries() -> Vec<JobQuery> {
    let base = JobQuery { limit: 1_000, ..JobQuery::default() };
    let with = |change: &dyn Fn(&mut JobQuery)| {
        let mut query = base.clone();
        change(&mut query);
        query
    };
    let mut queries = vec![base.clone()];
    for state in State::ALL {
        queries.push(with(&|q| q.states = vec![state]));
        queries.push(with(&|q| q.states = vec![state, State::Dead, State::Scheduled]));
        queries.push(with(&|q| (q.states, q.limit) = (vec![state], 2)));
    }
    for text in [
        "%",
        "_",
        "100%",
        "a_b",
        "\"",
        "\\",
        "'",
        "\n",
        "DROP",
        "\"wrong\"",
        "ü",
        "HTTP_500",
        "\"n\":12",
        "\0",
    ] {
        queries.push(with(&|q| q.text = Some(text.into())));
        queries
            .push(with(&|q| (q.text, q.states) = (Some(text.into()), vec![State::Dead, State::Cancelled])));
    }
    for name in ["work", "other", "unheard-of"] {
        queries.push(with(&|q| q.queue = Some(QueueName::new(name).unwrap())));
    }
    for name in ["task", "second", "unheard-of"] {
        queries.push(with(&|q| q.kind = Some(KindName::new(name).unwrap())));
    }
    for name in ["t0", "t1", "unheard-of"] {
        queries.push(with(&|q| q.tenant = Some(TenantId::new(name).unwrap())));
    }
    for name in ["", "g", "t0", "unheard-of"] {
        queries.push(with(&|q| q.group = Some(GroupKey::new(name).unwrap())));
    }
    for review in [Review::PendingReview, Review::ManualResolved, Review::Abandoned] {
        queries.push(with(&|q| q.review = Some(review)));
        queries.push(with(&|q| (q.review, q.states) = (Some(review), vec![State::Ready])));
    }
    queries.push(with(&|q| q.created_from = Some(NOW)));
    queries.push(with(&|q| q.created_before = Some(NOW)));
    for limit in [0, 1, 7, 59, 60] {
        queries.push(with(&|q| q.limit = limit));
        queries.push(with(&|q| (q.limit, q.cursor) = (limit, Some(Seq(30)))));
    }
    queries
}

#[tokio::test]
async fn search_agrees_with_the_reference_model() {
    let fixture = Fixture::new().await;
    let model = MemoryStore::new();
    let jobs = jobs();
    populate(&fixture.store, &jobs).await;
    populate(&model, &jobs).await;
    let mut found = 0;
    for query in queries() {
        let expected: Page = model.search(query.clone()).await.unwrap();
        let page = fixture.store.search(query.clone()).await.unwrap();
        assert_eq!(page, expected, "{query:?}");
        found += page.jobs.len();
    }
    assert!(found > 500, "{found}");
}

#[tokio::test]
async fn pages_follow_each_other_without_gaps_or_repeats() {
    let fixture = Fixture::new().await;
    populate(&fixture.store, &jobs()).await;
    for states in [vec![], vec![State::Dead], vec![State::Scheduled], vec![State::Ready]] {
        let all = JobQuery { states: states.clone(), limit: 1_000, ..JobQuery::default() };
        let all = fixture.store.search(all).await.unwrap().jobs;
        let mut query = JobQuery { states, limit: 3, ..JobQuery::default() };
        let mut paged = vec![];
        loop {
            let page = fixture.store.search(query.clone()).await.unwrap();
            paged.extend(page.jobs);
            query.cursor = page.next;
            if page.next.is_none() {
                break;
            }
        }
        assert!(paged.len() > 2);
        assert_eq!(paged, all);
    }
}

#[tokio::test]
async fn one_page_looks_at_a_bounded_number_of_rows() {
    let fixture = Fixture::new().await;
    for _ in 0..300 {
        enqueue(&fixture.store, job("\"x\"")).await;
    }
    for job in claim(&fixture.store, 100, NOW).await.jobs {
        settle(&fixture.store, job.ticket, Outcome::Cancel, NOW).await;
    }
    let conn = schema::open_reader(&fixture.dir.path().join("tidegate.db")).unwrap();
    for (states, jobs) in [(vec![], 300), (vec![State::Cancelled], 100)] {
        for (text, fitting) in [("x", jobs), ("nothing", 0)] {
            let (mut cursor, mut found, mut pages) = (None, 0, 0);
            loop {
                let query = JobQuery {
                    states: states.clone(),
                    text: Some(text.into()),
                    cursor,
                    ..JobQuery::default()
                };
                let mut search = Search::bounded(query, 50);
                let mut of_page = 0;
                let rest = loop {
                    let candidates = search.more(&conn, 10).unwrap();
                    of_page += candidates.jobs.len();
                    match candidates.rest {
                        Rest::Page(more) => search = *more,
                        rest => break rest,
                    }
                };
                assert!(of_page <= 50, "{of_page}");
                found += of_page;
                pages += 1;
                match rest {
                    Rest::Cursor(seq) => cursor = Some(seq),
                    _ => break,
                }
            }
            assert_eq!(found, fitting);
            assert!((jobs / 50..=jobs / 50 + 1).contains(&pages), "{pages} pages for {jobs} rows");
        }
    }
}
