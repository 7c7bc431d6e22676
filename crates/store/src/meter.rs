//! How much this process did, counted per queue and kind: numbers and durations for `/metrics`.
//!
//! A machine notes what it does and, after the commit, adds it up here: once per commit, a few atomic additions per job. Reading
//! takes no lock that a writer waits for longer than it takes to copy a list of pointers.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tidegate_core::failure::Category;
use tidegate_core::hash::KeyMap;
use tidegate_core::lanes::QueueId;
use tidegate_core::metrics::{BUCKETS_MS, MAX_SERIES, MAX_TENANTS, OTHER};

use crate::params::ProcessedLetters;
use crate::rows::{KindId, TenantNo};

/// Tenants that are told apart at all; the busiest of them are shown.
const TENANTS_COUNTED: usize = 1_000;

/// Something that a machine did.
#[derive(Debug, Clone, Copy)]
pub struct Seen {
    pub(crate) queue: QueueId,
    pub(crate) kind: KindId,
    pub(crate) tenant: Option<TenantNo>,
    pub(crate) what: SeenWhat,
}

#[derive(Debug, Clone, Copy)]
pub(crate) enum SeenWhat {
    Enqueued(u64),
    Started { wait_ms: i64 },
    Failed(Category),
    Ended { end: End, run_ms: i64, total_ms: Option<i64> },
}

/// How an attempt ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// Done.
    Completed,
    /// Failed, and tried again.
    Retried,
    /// Put off.
    Snoozed,
    /// Given back.
    Released,
    /// Its worker is gone.
    Stalled,
    /// Not tried again.
    Dead,
    /// Cancelled.
    Cancelled,
}

impl End {
    /// All, in the order of their counters.
    pub const ALL: [Self; 7] = [
        Self::Completed,
        Self::Retried,
        Self::Snoozed,
        Self::Released,
        Self::Stalled,
        Self::Dead,
        Self::Cancelled,
    ];

    /// Whether it counts as a failure, if it says anything about that.
    pub(crate) fn failed(self) -> Option<bool> {
        match self {
            Self::Completed => Some(false),
            Self::Retried | Self::Dead => Some(true),
            Self::Snoozed | Self::Released | Self::Stalled | Self::Cancelled => None,
        }
    }
}

/// Durations in the buckets of [`BUCKETS_MS`].
#[derive(Debug, Default)]
pub struct Durations {
    counts: [AtomicU64; BUCKETS_MS.len() + 1],
    sum_ms: AtomicU64,
}

impl Durations {
    fn add(&self, ms: i64) {
        let ms = ms.max(0);
        let bucket = BUCKETS_MS.partition_point(|end| *end < ms);
        self.counts[bucket].fetch_add(1, Ordering::Relaxed);
        self.sum_ms.fetch_add(ms as u64, Ordering::Relaxed);
    }

    /// How many per bucket, and their sum.
    pub fn read(&self) -> ([u64; BUCKETS_MS.len() + 1], u64) {
        (self.counts.each_ref().map(load), self.sum_ms.load(Ordering::Relaxed))
    }
}

/// Numbers of one kind in one queue.
#[derive(Debug, Default)]
pub struct Series {
    /// The queue.
    pub queue: String,
    /// The kind.
    pub kind: String,
    enqueued: AtomicU64,
    started: AtomicU64,
    ended: [AtomicU64; End::ALL.len()],
    failed: [AtomicU64; Category::ALL.len()],
    /// From ready to handed out.
    pub wait: Durations,
    /// From handed out to the outcome.
    pub run: Durations,
    /// From the time in the id to done.
    pub total: Durations,
}

fn load(n: &AtomicU64) -> u64 {
    n.load(Ordering::Relaxed)
}

impl Series {
    /// Jobs stored.
    pub fn enqueued(&self) -> u64 {
        load(&self.enqueued)
    }

    /// Attempts handed out.
    pub fn started(&self) -> u64 {
        load(&self.started)
    }

    /// Attempts that ended like this.
    pub fn ended(&self, end: End) -> u64 {
        load(&self.ended[end as usize])
    }

    /// Attempts that failed like this.
    pub fn failed(&self, category: Category) -> u64 {
        load(&self.failed[category as usize])
    }

    fn add(&self, what: SeenWhat) {
        let one = |n: &AtomicU64| n.fetch_add(1, Ordering::Relaxed);
        match what {
            SeenWhat::Enqueued(n) => drop(self.enqueued.fetch_add(n, Ordering::Relaxed)),
            SeenWhat::Started { wait_ms } => {
                one(&self.started);
                self.wait.add(wait_ms);
            }
            SeenWhat::Failed(category) => drop(one(&self.failed[category as usize])),
            SeenWhat::Ended { end, run_ms, total_ms } => {
                one(&self.ended[end as usize]);
                self.run.add(run_ms);
                if let Some(ms) = total_ms {
                    self.total.add(ms);
                }
            }
        }
    }
}

/// The numbers of a process. Cheap to clone.
#[derive(Debug, Clone, Default)]
pub struct Meter {
    inner: Arc<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    letters: [AtomicU64; LETTER_OUTCOMES.len()],
    book: Mutex<Book>,
    by_tenant: AtomicBool,
    tenants: Mutex<HashMap<String, u64>>,
}

#[derive(Debug, Default)]
struct Book {
    by_id: KeyMap<(QueueId, KindId), Arc<Series>>,
    series: Vec<Arc<Series>>,
}

/// What the processor of dead letters does with one.
pub const LETTER_OUTCOMES: [&str; 5] = ["retried", "asked", "reminded", "abandoned", "left"];

impl Meter {
    /// Counts what the processor did with a page of dead letters.
    pub fn count_letters(&self, page: &ProcessedLetters) {
        let ProcessedLetters { retried, asked, reminded, abandoned, left, .. } = page;
        for (counter, n) in self.inner.letters.iter().zip([retried, asked, reminded, abandoned, left]) {
            counter.fetch_add(*n, Ordering::Relaxed);
        }
    }

    /// Dead letters that the processor looked at, by what it did, in the order of [`LETTER_OUTCOMES`].
    pub fn letters(&self) -> [u64; LETTER_OUTCOMES.len()] {
        self.inner.letters.each_ref().map(load)
    }

    /// Counts attempts by tenant, too.
    pub fn by_tenant(&self, on: bool) {
        self.inner.by_tenant.store(on, Ordering::Relaxed);
    }

    pub(crate) fn count<'n>(
        &self,
        seen: &[Seen],
        names: impl Fn(&Seen) -> Option<(&'n str, &'n str)>,
        tenant: impl Fn(&Seen) -> Option<&'n str>,
    ) {
        let mut book = lock(&self.inner.book);
        let mut last: Option<((QueueId, KindId), Arc<Series>)> = None;
        for one in seen {
            let id = (one.queue, one.kind);
            let series = match &last {
                Some((known, series)) if *known == id => series,
                _ => {
                    let Some(series) = book.series(id, names(one)) else { continue };
                    &last.insert((id, series)).1
                }
            };
            series.add(one.what);
        }
        drop(book);
        if self.inner.by_tenant.load(Ordering::Relaxed) {
            let started = seen.iter().filter(|s| matches!(s.what, SeenWhat::Started { .. }));
            self.count_tenants(started.filter_map(tenant));
        }
    }

    fn count_tenants<'n>(&self, started: impl Iterator<Item = &'n str>) {
        let mut tenants = lock(&self.inner.tenants);
        for tenant in started {
            if let Some(n) = tenants.get_mut(tenant) {
                *n += 1;
            } else {
                let name = if tenants.len() < TENANTS_COUNTED { tenant } else { OTHER };
                *tenants.entry(name.to_owned()).or_default() += 1;
            }
        }
    }

    /// Numbers of every kind in every queue, as many as are told apart.
    pub fn series(&self) -> Vec<Arc<Series>> {
        lock(&self.inner.book).series.clone()
    }

    /// Attempts of the busiest tenants, by name; the rest together as [`OTHER`].
    pub fn tenants(&self) -> Vec<(String, u64)> {
        let mut all: Vec<(String, u64)> =
            lock(&self.inner.tenants).iter().map(|(name, n)| (name.clone(), *n)).collect();
        let other: u64 = all.extract_if(.., |(name, _)| name == OTHER).map(|(_, n)| n).sum();
        all.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let rest: u64 = all.split_off(all.len().min(MAX_TENANTS)).iter().map(|(_, n)| n).sum();
        all.sort();
        all.extend((rest + other > 0).then(|| (OTHER.to_owned(), rest + other)));
        all
    }
}

impl Book {
    fn series(&mut self, id: (QueueId, KindId), names: Option<(&str, &str)>) -> Option<Arc<Series>> {
        if let Some(series) = self.by_id.get(&id) {
            return Some(series.clone());
        }
        // A job whose names are gone is gone as well.
        let (queue, kind) = names?;
        let (queue, kind) = if self.series.len() < MAX_SERIES { (queue, kind) } else { (OTHER, OTHER) };
        let known = self.series.iter().find(|s| s.queue == queue && s.kind == kind).cloned();
        let series = known.unwrap_or_else(|| {
            let series = Series { queue: queue.to_owned(), kind: kind.to_owned(), ..Series::default() };
            self.series.push(Arc::new(series));
            // Just pushed.
            self.series[self.series.len() - 1].clone()
        });
        self.by_id.insert(id, series.clone());
        Some(series)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(kind: u32, what: SeenWhat) -> Seen {
        Seen { queue: QueueId(1), kind: KindId(kind), tenant: Some(TenantNo(kind)), what }
    }

    #[test]
    fn pairs_and_tenants_beyond_the_bound_are_counted_together() {
        let meter = Meter::default();
        meter.by_tenant(true);
        let names: Vec<String> = (0..3_000).map(|n| format!("n{n}")).collect();
        for n in 0..3_000 {
            let started = seen(n, SeenWhat::Started { wait_ms: 3 });
            meter.count(&[started], |s| Some(("q", &names[s.kind.0 as usize])), |_| Some(&names[n as usize]));
        }
        let series = meter.series();
        assert_eq!(series.len(), MAX_SERIES + 1);
        let last = series.last().unwrap();
        assert_eq!((last.queue.as_str(), last.started()), (OTHER, 3_000 - MAX_SERIES as u64));
        let tenants = meter.tenants();
        assert_eq!((tenants.len(), tenants.iter().map(|(_, n)| n).sum::<u64>()), (MAX_TENANTS + 1, 3_000));
    }

    #[test]
    fn durations_fall_into_the_bucket_whose_end_they_do_not_pass() {
        let durations = Durations::default();
        for ms in [-1, 5, 6, 3_600_000, 3_600_001] {
            durations.add(ms);
        }
        let (counts, sum) = durations.read();
        assert_eq!((counts[0], counts[1], counts[15], counts[16]), (2, 1, 1, 1));
        assert_eq!(sum, 7_200_012);
    }
}
