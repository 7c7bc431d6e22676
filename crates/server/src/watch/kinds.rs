//! Letters and results of the kinds that alerts name.
//!
//! There is no index of jobs by kind, so looking for them walks past everybody else's. That is done once for each kind, and seldom
//! again; between, what happens to jobs is followed, and only jobs that are known by name are looked at.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use tidegate_core::ids::{JobId, KindName};
use tidegate_core::job::{Job, Review, State};
use tidegate_store::feed::{Delivery, Happened, JobEvent};
use tidegate_store::params::JobQuery;
use tidegate_store::{Result, Store};
use tokio::time::Instant;

use super::lock;
use crate::app::App;

/// Letters of a kind that are counted.
const LETTERS: usize = 100;
/// Letters that one look sees to whether somebody has settled them.
const CHECKS: usize = 100;
/// How long a kind is not searched for again. What was missed between is found then.
const SEARCHED: Duration = Duration::from_mins(10);
/// Time between two looks at whether there is a kind to follow.
const IDLE: Duration = Duration::from_secs(10);

/// What is known of the kinds that alerts name.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    state: Mutex<Followed>,
}

#[derive(Debug, Default)]
struct Followed {
    kinds: HashMap<String, Kind>,
    /// Whether what happens is followed, without a gap.
    following: bool,
    /// Searches so far, so that tests can see that there are few.
    searches: u64,
}

#[derive(Debug, Default)]
struct Kind {
    /// When it was searched for; `None`: it has to be.
    searched: Option<Instant>,
    /// Some of its letters that wait for review, and the last one that was looked at again.
    letters: BTreeSet<JobId>,
    checked: Option<JobId>,
    /// Whether there may be more than those.
    more: bool,
    /// The newest to complete, if its result was not looked at.
    completed: Option<JobId>,
    result: Option<Vec<(String, f64)>>,
}

impl Kind {
    fn died(&mut self, id: JobId) {
        if self.letters.len() < LETTERS {
            self.letters.insert(id);
        } else {
            self.more = true;
        }
    }

    /// The next letters to look at again: all of them in turn.
    fn next_checks(&mut self, most: usize) -> Vec<JobId> {
        let after = self.checked;
        let (before, behind): (Vec<_>, Vec<_>) = self.letters.iter().partition(|id| Some(**id) <= after);
        let next: Vec<JobId> = behind.into_iter().chain(before).take(most).copied().collect();
        self.checked = next.last().copied().or(after);
        next
    }
}

/// Letters and newest results, by kind.
pub(super) type Found = (HashMap<String, u64>, HashMap<String, Vec<(String, f64)>>);

impl Kinds {
    /// What there is of these kinds.
    pub(super) async fn look(&self, store: &dyn Store, names: &[String]) -> Result<Found> {
        for name in self.unsearched(names) {
            self.search(store, &name).await?;
        }
        self.check_letters(store).await?;
        self.read_results(store).await?;
        let state = self.state();
        let letters = state.kinds.iter().map(|(name, kind)| (name.clone(), kind.letters.len() as u64));
        let results =
            state.kinds.iter().filter_map(|(name, kind)| Some((name.clone(), kind.result.clone()?)));
        Ok((letters.collect(), results.collect()))
    }

    /// Those that have to be searched for. From here on what happens to these kinds is followed, and to no others.
    fn unsearched(&self, names: &[String]) -> Vec<String> {
        let mut state = self.state();
        state.kinds.retain(|name, _| names.contains(name));
        let mut unsearched = vec![];
        for name in names {
            let following = state.following;
            let kind = state.kinds.entry(name.clone()).or_default();
            let short = kind.more && kind.letters.len() < LETTERS;
            let fresh = kind.searched.is_some_and(|at| at.elapsed() < SEARCHED);
            if !following || !fresh || short {
                unsearched.push(name.clone());
            }
        }
        unsearched
    }

    async fn search(&self, store: &dyn Store, name: &str) -> Result<()> {
        let kind = Some(KindName::new(name)?);
        let query =
            |state, limit| JobQuery { states: vec![state], kind: kind.clone(), limit, ..JobQuery::default() };
        let began = Instant::now();
        let letters = JobQuery { review: Some(Review::PendingReview), ..query(State::Dead, LETTERS) };
        let letters = store.search(letters).await?.jobs;
        let newest = store.search(query(State::Completed, 1)).await?.jobs.into_iter().next();
        let mut state = self.state();
        state.searches += 1;
        let Some(kind) = state.kinds.get_mut(name) else { return Ok(()) };
        kind.more = letters.len() == LETTERS;
        // Who died meanwhile was heard of, and may not have been found.
        for job in letters {
            kind.died(job.id);
        }
        if let Some(job) = newest {
            kind.result = numbers(&job);
        }
        kind.searched = Some(began);
        Ok(())
    }

    /// Looks at some of the letters again: people settle them, and nobody tells.
    async fn check_letters(&self, store: &dyn Store) -> Result<()> {
        let mut checks: Vec<(String, JobId)> = vec![];
        {
            let mut state = self.state();
            let with: usize = state.kinds.values().filter(|kind| !kind.letters.is_empty()).count();
            for (name, kind) in &mut state.kinds {
                let next = kind.next_checks(CHECKS.div_ceil(with.max(1)));
                checks.extend(next.into_iter().map(|id| (name.clone(), id)));
            }
        }
        if checks.is_empty() {
            return Ok(());
        }
        let jobs = store.get_all(checks.iter().map(|(_, id)| *id).collect()).await?;
        let waits = |job: &Job| job.dead.as_ref().is_some_and(|d| d.review == Review::PendingReview);
        let mut state = self.state();
        for ((name, id), _) in
            checks.into_iter().zip(jobs).filter(|(_, job)| !job.as_ref().is_some_and(waits))
        {
            if let Some(kind) = state.kinds.get_mut(&name) {
                kind.letters.remove(&id);
            }
        }
        Ok(())
    }

    async fn read_results(&self, store: &dyn Store) -> Result<()> {
        let of = |(name, kind): (&String, &mut Kind)| Some((name.clone(), kind.completed.take()?));
        let completed: BTreeMap<String, JobId> = self.state().kinds.iter_mut().filter_map(of).collect();
        if completed.is_empty() {
            return Ok(());
        }
        let jobs = store.get_all(completed.values().copied().collect()).await?;
        let mut state = self.state();
        for (name, job) in completed.keys().zip(jobs) {
            if let (Some(job), Some(kind)) = (job, state.kinds.get_mut(name)) {
                kind.result = numbers(&job);
            }
        }
        Ok(())
    }

    /// Follows from now on: what was known may be old.
    fn begin(&self) {
        let mut state = self.state();
        state.following = true;
        state.kinds.values_mut().for_each(|kind| kind.searched = None);
    }

    fn end(&self) {
        self.state().following = false;
    }

    fn is_wanted(&self) -> bool {
        !self.state().kinds.is_empty()
    }

    fn take(&self, delivery: &Delivery) {
        match delivery {
            Delivery::Events(events) => {
                let mut state = self.state();
                for (_, event) in events {
                    state.hear(event);
                }
            }
            Delivery::Gap => self.begin(),
        }
    }

    fn state(&self) -> MutexGuard<'_, Followed> {
        lock(&self.state)
    }
}

impl Followed {
    fn hear(&mut self, event: &JobEvent) {
        let Some(kind) = self.kinds.get_mut(event.kind.as_str()) else { return };
        match event.what {
            Happened::Dead { .. } => kind.died(event.id),
            Happened::Completed => kind.completed = Some(event.id),
            Happened::Enqueued { .. }
            | Happened::Started { .. }
            | Happened::Retry { .. }
            | Happened::Snoozed { .. }
            | Happened::Released
            | Happened::Stalled
            | Happened::Cancelled
            | Happened::Reauthorize { .. } => {}
        }
    }
}

/// Follows what happens to jobs while alerts name kinds.
pub(crate) async fn follow_kinds(app: Arc<App>) {
    let kinds = &app.watch.kinds;
    loop {
        while !kinds.is_wanted() {
            tokio::time::sleep(IDLE).await;
        }
        let mut feed = app.store.feed().subscribe(None);
        kinds.begin();
        while kinds.is_wanted() {
            if let Ok(delivery) = tokio::time::timeout(IDLE, feed.next()).await {
                kinds.take(&delivery);
            }
        }
        kinds.end();
    }
}

/// The numbers of a job's result.
fn numbers(job: &Job) -> Option<Vec<(String, f64)>> {
    let value: serde_json::Value = serde_json::from_str(job.result.as_ref()?.as_str()).unwrap_or_default();
    let fields = value.as_object().into_iter().flatten();
    Some(fields.filter_map(|(name, v)| Some((format!("result.{name}"), v.as_f64()?))).take(100).collect())
}

#[cfg(test)]
mod tests {
    use tidegate_core::failure::{Category, Failure};
    use tidegate_core::ids::{ProcessId, QueueName, WorkerId};
    use tidegate_core::job::Resolution;
    use tidegate_core::payload::Payload;
    use tidegate_core::registry::{KindSettings, QueueSettings};
    use tidegate_core::time::Timestamp;
    use tidegate_store::feed::Subscription;
    use tidegate_store::params::{Claim, NewJob, Outcome, Resolve, Settle, Settlement};
    use tidegate_store::{Jobs as _, Letters as _, MemoryStore, Registry as _, Store as _};

    use super::*;

    const NOW: Timestamp = Timestamp(1_763_000_000_000);

    struct Watched {
        store: MemoryStore,
        kinds: Kinds,
        feed: Subscription,
        ids: u128,
    }

    impl Watched {
        async fn new() -> Self {
            let store = MemoryStore::new();
            let queue = QueueName::new("q").unwrap();
            store.put_queue(queue.clone(), QueueSettings::default(), NOW).await.unwrap();
            for name in ["rare", "common"] {
                let settings = KindSettings { max_attempts: Some(1), ..KindSettings::new(queue.clone()) };
                store.put_kind(KindName::new(name).unwrap(), settings).await.unwrap();
            }
            let feed = store.feed().subscribe(None);
            Self { store, kinds: Kinds::default(), feed, ids: 0 }
        }

        /// Runs one job of this kind to this end.
        async fn run(&mut self, kind: &str, outcome: Outcome) -> JobId {
            self.ids += 1;
            let id = JobId::from_parts(NOW.0.cast_unsigned(), self.ids);
            let job = NewJob::new(id, KindName::new(kind).unwrap(), Payload::trusted("{}"));
            self.store.enqueue(vec![job], NOW).await.unwrap();
            let claim = Claim {
                worker: WorkerId::new("w").unwrap(),
                process: ProcessId(1),
                queues: vec![(QueueName::new("q").unwrap(), 1)],
                max: 1,
                lease_ms: 30_000,
                now: NOW,
            };
            let ticket = self.store.claim(claim).await.unwrap().jobs[0].ticket;
            let settlements = vec![Settlement { ticket, outcome }];
            self.store.settle(Settle { settlements, now: NOW, seed: 1 }).await.unwrap();
            id
        }

        async fn die(&mut self, kind: &str) -> JobId {
            self.run(kind, Outcome::Fail(Failure::new(Category::InvalidInput, "E", "no"))).await
        }

        async fn resolve(&self, id: JobId) {
            let (resolution, by) = (Resolution::Abandoned, "ann".into());
            self.store.resolve(Resolve { id, resolution, by, now: NOW }).await.unwrap();
        }

        /// Letters, newest result and searches so far.
        async fn look(&mut self) -> (u64, Option<f64>, u64) {
            while let Some(delivery) = self.feed.ready() {
                self.kinds.take(&delivery);
            }
            let (letters, results) = self.kinds.look(&self.store, &["rare".into()]).await.unwrap();
            let result = results.get("rare").and_then(|fields| Some(fields.first()?.1));
            (letters["rare"], result, self.kinds.state().searches)
        }
    }

    fn done(n: u32) -> Outcome {
        Outcome::Complete(Some(Payload::trusted(format!("{{\"n\":{n}}}"))))
    }

    #[tokio::test]
    async fn a_kind_is_searched_for_once_and_followed_from_then_on() {
        let mut w = Watched::new().await;
        let first = w.die("rare").await;
        w.run("rare", done(1)).await;
        w.kinds.begin();
        assert_eq!(w.look().await, (1, Some(1.0), 1));
        for _ in 0..10 {
            w.run("common", done(7)).await;
            w.die("common").await;
        }
        assert_eq!(w.look().await, (1, Some(1.0), 1), "others are no reason to look");
        w.die("rare").await;
        w.run("rare", done(2)).await;
        assert_eq!(w.look().await, (2, Some(2.0), 1), "what is new was heard of");
        w.resolve(first).await;
        assert_eq!(w.look().await, (1, Some(2.0), 1), "what was settled is seen");
        w.run("rare", Outcome::Complete(None)).await;
        assert_eq!(w.look().await, (1, None, 1), "the newest run had no result");
        w.run("rare", done(2)).await;
        w.kinds.take(&Delivery::Gap);
        w.die("rare").await;
        assert_eq!(w.look().await, (2, Some(2.0), 2), "whoever missed something looks again");
        w.kinds.end();
        assert_eq!(w.look().await, (2, Some(2.0), 3), "nobody follows");
    }

    #[tokio::test]
    async fn of_many_letters_some_are_known_and_others_take_their_places() {
        let mut w = Watched::new().await;
        let mut letters = vec![];
        for _ in 0..LETTERS + 20 {
            letters.push(w.die("rare").await);
        }
        w.kinds.begin();
        assert_eq!(w.look().await, (LETTERS as u64, None, 1));
        for id in letters.iter().rev().take(30) {
            w.resolve(*id).await;
        }
        w.look().await;
        assert_eq!(w.look().await.0, LETTERS as u64 - 10);
    }
}
