//! A page of a search looks at a bounded number of rows.

use tidegate_core::ids::Seq;
use tidegate_core::job::State;
use tidegate_core::time::Timestamp;
use tidegate_store::params::JobQuery;
use tidegate_store::rows::Candidate;

use super::*;
use crate::link::Link;
use crate::search::{Rest, Search};
use crate::statements::READER;

/// All candidates of a query, page by page, each of which looks at no more than `scan` rows.
async fn walk(link: &Link, query: &JobQuery, scan: usize) -> (Vec<Seq>, usize) {
    let (mut found, mut pages) = (vec![], 1);
    let mut search = Search::bounded(query.clone(), scan);
    loop {
        let step = search.more(link, 1).await.unwrap();
        found.extend(step.jobs.iter().map(|candidate| match candidate {
            Candidate::Open(seq) => *seq,
            Candidate::Finished(finished) => finished.seq,
        }));
        match step.rest {
            Rest::Page(rest) => search = *rest,
            Rest::Cursor(seq) => {
                pages += 1;
                search = Search::bounded(JobQuery { cursor: Some(seq), ..query.clone() }, scan);
            }
            Rest::End => return (found, pages),
        }
    }
}

#[tokio::test]
async fn a_bounded_page_hands_back_where_to_go_on_and_finds_all_in_the_end() {
    let f = Fixture::new().await;
    let later = |n: usize| n.is_multiple_of(10).then_some(Timestamp(NOW.0 + 60_000));
    let jobs: Vec<NewJob> =
        (0..300).map(|n| NewJob { run_at: later(n), ..job("\"zero \\u0000\"") }).collect();
    f.store.enqueue(jobs, NOW).await.unwrap();
    for job in claim(&f.store, 40, NOW).await.jobs {
        settle(&f.store, job.ticket, Outcome::Cancel, NOW).await;
    }
    let (address, options) = PgOptions::new().schema(&f.schema).unwrap().reach(&f.url).unwrap();
    let link = Link::open(&address, &options, READER).await.unwrap();
    let query = |states: &[State]| JobQuery { states: states.to_vec(), ..JobQuery::default() };
    for (states, expected, most_pages) in [
        (vec![State::Cancelled], 40, 3),
        (vec![State::Scheduled], 30, 1),
        (vec![State::Cancelled, State::Scheduled], 70, 16),
        (vec![], 300, 16),
    ] {
        let (found, pages) = walk(&link, &query(&states), 20).await;
        assert_eq!(found.len(), expected, "{states:?}");
        assert!(found.windows(2).all(|w| w[0] > w[1]), "newest first");
        assert!(
            pages <= most_pages && (expected <= 20 || states == [State::Scheduled] || pages > 1),
            "{states:?}: {pages}"
        );
    }
    let zero = JobQuery { text: Some("\0".into()), limit: 10, ..JobQuery::default() };
    assert!(f.store.search(zero).await.unwrap().jobs.is_empty(), "an escape is not the character");
}
