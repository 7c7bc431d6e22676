//! The verdicts: every acknowledged id is looked up in the store, and what is found is compared with what the demo
//! saw and with what the store counts.

use std::sync::Arc;

use serde::Serialize;
use tidegate::Tidegate;
use tidegate_core::codes;
use tidegate_core::failure::Category;
use tidegate_core::ids::JobId;
use tidegate_core::job::{Job, Priority, State};
use tidegate_core::time::Millis;
use tidegate_core::why::grouped;
use tidegate_store::params::Totals;
use tokio::task::JoinSet;

use super::faults::{CancelledJobs, Imports, MORTAL};
use super::ledger::{Ledger, read};
use super::scenario::{NOISY, PARKED, PER_TENANT, TENANTS};
use crate::error::{Failure, Result};

/// Look-ups under way at a time.
const READERS: usize = 8;

/// Jobs by where they are now, each looked up by its id.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Found {
    /// Done.
    pub(crate) completed: u64,
    /// Given up.
    pub(crate) dead: u64,
    /// Called off.
    pub(crate) cancelled: u64,
    /// Waiting for their time.
    pub(crate) scheduled: u64,
    /// Waiting for a worker.
    pub(crate) ready: u64,
    /// Held under a lease.
    pub(crate) running: u64,
    /// Of these, held by a worker that was let die; they run again when its lease ends.
    pub(crate) left_behind: u64,
    /// Waiting for other jobs.
    pub(crate) blocked: u64,
    /// Acknowledged, and not there.
    pub(crate) lost: u64,
}

impl Found {
    fn add(&mut self, job: Option<&Job>) {
        let mortal =
            |job: &Job| job.held.as_ref().is_some_and(|held| held.worker.as_str().starts_with(MORTAL));
        self.left_behind += u64::from(job.is_some_and(mortal));
        let place = match job.map(|job| job.state) {
            Some(State::Completed) => &mut self.completed,
            Some(State::Dead) => &mut self.dead,
            Some(State::Cancelled) => &mut self.cancelled,
            Some(State::Scheduled) => &mut self.scheduled,
            Some(State::Ready) => &mut self.ready,
            Some(State::Running) => &mut self.running,
            Some(State::Blocked) => &mut self.blocked,
            None => &mut self.lost,
        };
        *place += 1;
    }

    /// Whether every job is somewhere it may be. The demo's own workers have stopped: whatever they still hold they failed
    /// to give back.
    fn balances(self, enqueued: u64) -> bool {
        let ended = self.completed + self.dead + self.cancelled;
        let waiting = self.scheduled + self.ready + self.blocked;
        self.running == self.left_behind && enqueued == ended + waiting + self.left_behind
    }

    fn merge(&mut self, other: Self) {
        self.completed += other.completed;
        self.dead += other.dead;
        self.cancelled += other.cancelled;
        self.scheduled += other.scheduled;
        self.ready += other.ready;
        self.running += other.running;
        self.left_behind += other.left_behind;
        self.blocked += other.blocked;
        self.lost += other.lost;
    }
}

/// Looks every id up.
pub(crate) async fn look_up(tide: &Tidegate, ids: Vec<JobId>) -> Result<Found> {
    let ids: Arc<[JobId]> = ids.into();
    let mut readers = JoinSet::new();
    for reader in 0..READERS {
        let (ids, tide) = (ids.clone(), tide.clone());
        readers.spawn(async move {
            let mut found = Found::default();
            for &id in ids.iter().skip(reader).step_by(READERS) {
                found.add(tide.store().get(id).await?.as_ref());
            }
            Ok::<Found, tidegate_store::Error>(found)
        });
    }
    let mut all = Found::default();
    while let Some(part) = readers.join_next().await {
        all.merge(part.map_err(|e| Failure::new(codes::INTERNAL, e.to_string()))??);
    }
    Ok(all)
}

/// Whether a claim held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ruling {
    /// It held.
    Holds,
    /// It did not.
    Broken,
    /// The demo was too short to tell.
    NotJudged,
}

/// One claim and whether it held.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Verdict {
    /// Short name.
    pub(crate) name: &'static str,
    /// Whether it held.
    pub(crate) ruling: Ruling,
    /// The numbers behind it.
    pub(crate) detail: String,
}

impl Verdict {
    fn new(name: &'static str, ok: bool, detail: impl Into<String>) -> Self {
        Self { name, ruling: if ok { Ruling::Holds } else { Ruling::Broken }, detail: detail.into() }
    }

    fn not_judged(name: &'static str, detail: impl Into<String>) -> Self {
        Self { name, ruling: Ruling::NotJudged, detail: detail.into() }
    }
}

/// How the tenants fared beside each other.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Fairness {
    /// The tenant with the backlog.
    pub(crate) noisy_tenant: &'static str,
    /// Its mean wait in `billing`.
    pub(crate) noisy_mean_wait_ms: Option<f64>,
    /// The small tenant that waited longest.
    pub(crate) worst_small_tenant: Option<&'static str>,
    /// Its mean wait.
    pub(crate) worst_small_mean_wait_ms: Option<f64>,
    /// Jain's index over the share of their jobs that the small tenants had done: 1 is perfectly even.
    pub(crate) jain_index: f64,
    /// Mean waits of the small tenants by priority.
    pub(crate) mean_wait_ms_by_priority: Vec<(Priority, Option<f64>)>,
}

/// Figures of fairness. The parked tenant was held back on purpose and is left out.
pub(crate) fn fairness(ledger: &Ledger) -> Fairness {
    let small: Vec<usize> = (0..TENANTS.len()).filter(|t| *t != NOISY && *t != PARKED).collect();
    let wait = |t: usize| ledger.tenants[t].waits.mean_ms();
    let worst = small.iter().filter_map(|&t| wait(t).map(|w| (t, w))).max_by(|a, b| a.1.total_cmp(&b.1));
    let shares: Vec<f64> = small
        .iter()
        .map(|&t| &ledger.tenants[t])
        .filter(|t| read(&t.enqueued) > 0)
        .map(|t| read(&t.done) as f64 / read(&t.enqueued) as f64)
        .collect();
    Fairness {
        noisy_tenant: TENANTS[NOISY].name,
        noisy_mean_wait_ms: wait(NOISY).map(tenth),
        worst_small_tenant: worst.map(|(t, _)| TENANTS[t].name),
        worst_small_mean_wait_ms: worst.map(|(_, w)| tenth(w)),
        jain_index: (jain(&shares) * 10_000.0).round() / 10_000.0,
        mean_wait_ms_by_priority: Priority::ALL
            .into_iter()
            .map(|p| (p, ledger.by_priority[usize::from(p.level() - 1)].mean_ms().map(tenth)))
            .collect(),
    }
}

fn tenth(x: f64) -> f64 {
    (x * 10.0).round() / 10.0
}

/// Jain's index: 1 if all are equal, 1/n if one has everything.
fn jain(shares: &[f64]) -> f64 {
    let sum: f64 = shares.iter().sum();
    let squares: f64 = shares.iter().map(|x| x * x).sum();
    if squares == 0.0 { 1.0 } else { sum * sum / (shares.len() as f64 * squares) }
}

/// Everything the verdicts are made from.
pub(crate) struct Evidence<'a> {
    pub(crate) tide: &'a Tidegate,
    pub(crate) ledger: &'a Ledger,
    pub(crate) found: Found,
    pub(crate) totals: Totals,
    pub(crate) imports: &'a Imports,
    pub(crate) cancelled: Option<CancelledJobs>,
    pub(crate) fairness: &'a Fairness,
    /// Whether the demo was long enough for the poison story to end.
    pub(crate) poison_must_end: bool,
}

/// All verdicts.
pub(crate) async fn verdicts(evidence: &Evidence<'_>) -> Result<Vec<Verdict>> {
    let Evidence { ledger, found, totals, fairness, .. } = evidence;
    let mut all = vec![balance(ledger, *found), lost(ledger, *found), counters(*found, *totals)];
    let done = read(&ledger.done);
    all.push(Verdict::new(
        "completed once",
        done == found.completed,
        format!("{} runs ended well, {} jobs completed", grouped(done), grouped(found.completed)),
    ));
    let (tried, refused) = (read(&ledger.stale_tried), read(&ledger.stale_refused));
    all.push(Verdict::new(
        "stale refused",
        tried >= 1 && refused == tried && totals.stale_refused >= refused,
        format!("{tried} tried under a lost lease, {refused} refused"),
    ));
    all.push(poison(evidence).await?);
    all.push(cancelled(evidence).await?);
    all.push(park(ledger));
    let (sent, kept) = (read(&ledger.duplicates_sent), read(&ledger.duplicates_kept));
    all.push(Verdict::new(
        "unique keys",
        sent == kept,
        format!("{} duplicates sent, {} got the first job", grouped(sent), grouped(kept)),
    ));
    all.push(limits(ledger));
    all.push(starvation(fairness));
    Ok(all)
}

fn park(ledger: &Ledger) -> Verdict {
    let (started, judged) = (read(&ledger.started_while_parked), read(&ledger.park_judged_ms));
    if judged == 0 {
        return Verdict::not_judged("park holds", "the park was too short to tell");
    }
    let span = Millis(judged as i64);
    let detail = format!("{started} jobs of {} started in {span} of park", TENANTS[PARKED].name);
    Verdict::new("park holds", started == 0, detail)
}

fn starvation(fairness: &Fairness) -> Verdict {
    let name = "no starvation";
    let waits = fairness.worst_small_mean_wait_ms.zip(fairness.noisy_mean_wait_ms);
    let (Some((small, noisy)), Some(worst)) = (waits, fairness.worst_small_tenant) else {
        return Verdict::not_judged(name, "nobody waited");
    };
    let detail = format!(
        "mean wait: {worst} {}, {} {}; Jain index {:.3}",
        wait_text(small),
        fairness.noisy_tenant,
        wait_text(noisy),
        fairness.jain_index
    );
    Verdict::new(name, small <= noisy, detail)
}

/// A wait for people: milliseconds matter below a second.
pub(crate) fn wait_text(ms: f64) -> String {
    if ms < 1_000.0 { format!("{ms:.0} ms") } else { Millis(ms as i64).to_string() }
}

fn balance(ledger: &Ledger, found: Found) -> Verdict {
    let enqueued = ledger.enqueued();
    let Found { completed, dead, cancelled, scheduled, ready, running, left_behind, blocked, .. } = found;
    let waiting = scheduled + ready + blocked;
    let detail = format!(
        "{} enqueued = {} completed + {} dead + {} cancelled + {} still waiting",
        grouped(enqueued),
        grouped(completed),
        grouped(dead),
        grouped(cancelled),
        grouped(waiting)
    );
    let detail = match (running, left_behind) {
        (0, _) => detail,
        (_, n) if n == running => format!("{detail} + {n} held by a process that died"),
        _ => format!("{detail} + {running} running, {left_behind} of them held by a process that died"),
    };
    Verdict::new("books balance", found.balances(enqueued), detail)
}

fn lost(ledger: &Ledger, found: Found) -> Verdict {
    let detail = format!("{} lost of {} ids looked up one by one", found.lost, grouped(ledger.enqueued()));
    Verdict::new("nothing lost", found.lost == 0, detail)
}

fn counters(found: Found, totals: Totals) -> Verdict {
    let counted = Found {
        completed: totals.completed,
        dead: totals.dead,
        cancelled: totals.cancelled,
        scheduled: totals.scheduled,
        ready: totals.ready,
        running: totals.running,
        left_behind: found.left_behind,
        blocked: found.blocked,
        lost: found.lost,
    };
    let ok = counted == found;
    let detail =
        if ok { "the store's counts equal those of the look-up".into() } else { format!("{counted:?}") };
    Verdict::new("true counters", ok, detail)
}

async fn poison(evidence: &Evidence<'_>) -> Result<Verdict> {
    let Evidence { tide, imports, poison_must_end, .. } = evidence;
    let cursed = tide.store().get(imports.cursed).await?;
    let mut innocent_dead = 0;
    for &id in &imports.innocent {
        innocent_dead += u32::from(tide.store().get(id).await?.is_some_and(|job| job.state == State::Dead));
    }
    let stalls = cursed.as_ref().map_or(0, |job| job.lone_stalls);
    let dead = cursed.as_ref().is_some_and(|job| {
        job.state == State::Dead && job.dead.as_ref().is_some_and(|d| d.category == Category::SystemFailure)
    });
    let name = "poison alone";
    Ok(if dead || *poison_must_end || innocent_dead > 0 {
        let state = if dead { "then dead" } else { "not dead" };
        let detail = format!("{stalls} lone stalls, {state}; it took {innocent_dead} others along");
        Verdict::new(name, dead && innocent_dead == 0, detail)
    } else {
        Verdict::not_judged(name, format!("{stalls} of 3 lone stalls so far; it takes 8 s"))
    })
}

async fn cancelled(evidence: &Evidence<'_>) -> Result<Verdict> {
    let name = "cancel holds";
    let Some(jobs) = evidence.cancelled else {
        return Ok(Verdict::not_judged(name, "the demo ended before the operator came"));
    };
    let state = |id| async move {
        let job = evidence.tide.store().get(id).await?;
        Ok::<_, Failure>(job.map_or_else(|| "gone".to_owned(), |job| job.state.to_string()))
    };
    let (running, waiting) = (state(jobs.running).await?, state(jobs.waiting).await?);
    let ok = running == "cancelled" && waiting == "cancelled";
    Ok(Verdict::new(name, ok, format!("while running: {running}; while waiting: {waiting}")))
}

fn limits(ledger: &Ledger) -> Verdict {
    let group = ledger.tenants.iter().map(|t| t.running.most()).max().unwrap_or(0);
    let reports = ledger.reports_running.most();
    let ok = group <= i64::from(PER_TENANT) && reports <= 1;
    Verdict::new(
        "limits hold",
        ok,
        format!("peaks: {group} of {PER_TENANT} per tenant, {reports} of 1 report"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jains_index_is_one_when_all_are_equal() {
        assert!((jain(&[0.5, 0.5, 0.5]) - 1.0).abs() < 1e-9);
        assert!((jain(&[1.0, 0.0, 0.0, 0.0]) - 0.25).abs() < 1e-9);
        assert!((jain(&[]) - 1.0).abs() < 1e-9);
    }

    #[test]
    fn a_lost_job_or_an_unbalanced_book_is_a_failed_verdict() {
        let ledger = Ledger::default();
        let id = JobId::from_parts(1, 1);
        ledger.acknowledge(id, None);
        let mut found = Found::default();
        found.add(None);
        assert_eq!(lost(&ledger, found).ruling, Ruling::Broken);
        assert_eq!(balance(&ledger, found).ruling, Ruling::Broken);
        let found = Found { scheduled: 1, ..Found::default() };
        assert_eq!(lost(&ledger, found).ruling, Ruling::Holds);
        assert_eq!(balance(&ledger, found).ruling, Ruling::Holds);
        assert_eq!(counters(found, Totals::default()).ruling, Ruling::Broken);
    }

    #[test]
    fn the_books_do_not_balance_with_a_job_that_a_living_worker_kept() {
        let found = Found { completed: 5, ready: 2, running: 3, left_behind: 3, ..Found::default() };
        assert!(found.balances(10));
        assert!(!Found { left_behind: 2, ..found }.balances(10), "one is held by a worker that did not die");
        assert!(!found.balances(11), "one is nowhere");
    }
}
