//! What goes wrong on purpose: a file that kills every process that reads it, a process that was only asleep and
//! comes back with a lost lease, an operator who cancels, an operator who parks a tenant.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tidegate::Tidegate;
use tidegate_core::codes;
use tidegate_core::ids::{GroupKey, JobId, ProcessId, WorkerId};
use tidegate_core::job::{Park, ParkScope, State};
use tidegate_store::params::{
    CancelJob, CancelReply, Claim, ClaimedJob, Outcome, Settle, Settled, Settlement, Ticket,
};
use tokio::sync::watch;

use super::ledger::{Ledger, count};
use super::scenario::{BuildReport, Fate, IMPORTS, Order, PARKED, ParseImport, TENANTS, queue};
use crate::error::{Failure, Result};

/// Files in the fatal batch, besides the cursed one.
const INNOCENT: usize = 6;
/// The shortest lease there is: deaths are noticed after this time.
const LEASE_MS: i64 = 1_000;
/// Time between two looks for work.
const LOOK: Duration = Duration::from_millis(50);
/// Jobs that a worker claimed just before a park may still start; after this they must have.
const PARK_GRACE: Duration = Duration::from_secs(1);

/// How the names of workers that may die holding jobs begin.
pub(crate) const MORTAL: &str = "importer-";

/// The mortal workers' jobs.
#[derive(Debug, Clone)]
pub(crate) struct Imports {
    /// The job that kills.
    pub(crate) cursed: JobId,
    /// The others of its batch.
    pub(crate) innocent: Vec<JobId>,
}

/// Enqueues a batch of files, one of them cursed.
pub(crate) async fn enqueue_imports(tide: &Tidegate, ledger: &Ledger) -> Result<Imports> {
    let file = |n: usize| ParseImport { file: format!("upload-{n}.csv"), cursed: n == INNOCENT };
    let replies = tide.enqueue_many((0..=INNOCENT).map(|n| tide.enqueue(file(n)).max_attempts(3))).await?;
    let ids: Vec<JobId> = replies.iter().map(|r| r.id).collect();
    for &id in &ids {
        ledger.acknowledge(id, None);
    }
    let (cursed, innocent) =
        ids.split_last().ok_or_else(|| Failure::new(codes::INTERNAL, "the store answered nothing"))?;
    Ok(Imports { cursed: *cursed, innocent: innocent.to_vec() })
}

/// Workers that claim straight from the store and die of the cursed file: they never settle, never send a heartbeat,
/// and the next one is a new process. One of them was only asleep: it comes back and tries to complete what it held.
pub(crate) async fn mortal_workers(
    tide: Tidegate,
    ledger: Arc<Ledger>,
    imports: Imports,
    mut stop: watch::Receiver<bool>,
) -> Result<()> {
    let mut process = 1_u64;
    let mut asleep: Option<ClaimedJob> = None;
    loop {
        let claimed = claim(&tide, process).await?;
        if claimed.iter().any(|job| job.id == imports.cursed) {
            let alone = claimed.len() == 1;
            let how = if alone { "alone".to_owned() } else { format!("with {} others", claimed.len() - 1) };
            ledger.event(tide.now(), format!("process {process} dies of upload-{INNOCENT}.csv, {how}"));
            // The first dead process is the sleeper: it keeps the ticket of an innocent file of its batch.
            if asleep.is_none() && ledger.stale_tried.load(Ordering::Relaxed) == 0 {
                asleep = claimed.into_iter().find(|job| job.id != imports.cursed);
            }
            process += 1;
        } else {
            for job in claimed {
                let taken_over = asleep.as_ref().is_some_and(|old| old.id == job.id);
                if taken_over && let Some(old) = asleep.take() {
                    wake_sleeper(&tide, &ledger, old.ticket).await?;
                }
                if settle(&tide, job.ticket).await? == Settled::Applied(State::Completed) {
                    count(&ledger.done);
                }
            }
        }
        let cursed = tide.store().get(imports.cursed).await?;
        let over = cursed.is_some_and(|job| job.state.is_final());
        if over && asleep.is_none() && unfinished(&tide, &imports).await? == 0 {
            let text = format!("upload-{INNOCENT}.csv is dead after 3 lone stalls; the others are done");
            ledger.event(tide.now(), text);
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep(LOOK) => {}
            _ = stop.wait_for(|stopped| *stopped) => return Ok(()),
        }
    }
}

async fn claim(tide: &Tidegate, process: u64) -> Result<Vec<ClaimedJob>> {
    let claim = Claim {
        worker: WorkerId::new(format!("{MORTAL}{process}"))?,
        process: ProcessId(process),
        queues: vec![(queue(IMPORTS)?, 16)],
        max: 16,
        lease_ms: LEASE_MS,
        now: tide.now(),
    };
    Ok(tide.store().claim(claim).await?.jobs)
}

async fn settle(tide: &Tidegate, ticket: Ticket) -> Result<Settled> {
    let settlements = vec![Settlement { ticket, outcome: Outcome::Complete(None) }];
    let reply = tide.store().settle(Settle { settlements, now: tide.now(), seed: 1 }).await?;
    reply.first().copied().ok_or_else(|| Failure::new(codes::INTERNAL, "the store answered nothing"))
}

/// The sleeper tries to complete a job that another process holds by now.
async fn wake_sleeper(tide: &Tidegate, ledger: &Ledger, ticket: Ticket) -> Result<()> {
    count(&ledger.stale_tried);
    if settle(tide, ticket).await? == Settled::Stale {
        count(&ledger.stale_refused);
        ledger.event(tide.now(), "a process that slept comes back with a lost lease: refused");
    }
    Ok(())
}

async fn unfinished(tide: &Tidegate, imports: &Imports) -> Result<usize> {
    let mut open = 0;
    for &id in &imports.innocent {
        open += usize::from(!tide.store().get(id).await?.is_some_and(|job| job.state.is_final()));
    }
    Ok(open)
}

/// Whether the poison story has come to its end.
pub(crate) async fn poison_is_over(tide: &Tidegate, imports: &Imports) -> Result<bool> {
    let cursed = tide.store().get(imports.cursed).await?;
    Ok(cursed.is_some_and(|job| job.state.is_final()) && unfinished(tide, imports).await? == 0)
}

/// The jobs that an operator cancels.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CancelledJobs {
    /// Cancelled while it ran.
    pub(crate) running: JobId,
    /// Cancelled while it waited.
    pub(crate) waiting: JobId,
}

/// Starts a report that never ends and cancels it, and one that waits behind it.
pub(crate) async fn operator_cancels(
    tide: Tidegate,
    ledger: Arc<Ledger>,
    after: Duration,
) -> Result<CancelledJobs> {
    tokio::time::sleep(after).await;
    let report = |order, fate| tide.enqueue(BuildReport(Order { order, tenant: 1, fate }));
    let running =
        report(1, Fate::Endless).tenant(TENANTS[1].name).priority(tidegate::Priority::Critical).await?.id;
    ledger.acknowledge(running, Some(1));
    let waiting = report(2, Fate::Fine).tenant(TENANTS[1].name).delay("60s").await?.id;
    ledger.acknowledge(waiting, Some(1));
    // Reports run one at a time: wait until the endless one has its turn.
    for _ in 0..100 {
        let state = tide.store().get(running).await?.map(|job| job.state);
        if state == Some(State::Running) {
            break;
        }
        tokio::time::sleep(LOOK).await;
    }
    for (id, note) in [(running, "takes too long"), (waiting, "not needed any more")] {
        let reply = tide
            .store()
            .cancel(CancelJob { id, note: format!("operator: {note}"), cascade: false, now: tide.now() })
            .await?;
        let how = match reply {
            CancelReply::Requested | CancelReply::Cascaded { running: true, .. } => {
                "a running report is told to stop"
            }
            CancelReply::Cancelled | CancelReply::Cascaded { .. } => "a waiting report is called off",
            CancelReply::AlreadyFinished(_) => "a report had ended before",
        };
        ledger.event(tide.now(), format!("operator cancels: {how}"));
    }
    Ok(CancelledJobs { running, waiting })
}

/// Parks one tenant for a while; meanwhile nothing of it may start.
pub(crate) async fn operator_parks(
    tide: Tidegate,
    ledger: Arc<Ledger>,
    after: Duration,
    lasts: Duration,
) -> Result<()> {
    tokio::time::sleep(after).await;
    let tenant = TENANTS[PARKED].name;
    let scope = ParkScope::Group(GroupKey::new(tenant)?);
    let by = "operator".to_owned();
    let park = Park { scope: scope.clone(), by: by.clone(), reason: "shop is moving".into(), until: None };
    tide.store().park(park, tide.now()).await?;
    ledger.event(tide.now(), format!("operator parks {tenant}: shop is moving"));
    tokio::time::sleep(PARK_GRACE.min(lasts)).await;
    let judged = lasts.saturating_sub(PARK_GRACE);
    if !judged.is_zero() {
        ledger.park_holds.store(true, Ordering::SeqCst);
        tokio::time::sleep(judged).await;
        ledger.park_holds.store(false, Ordering::SeqCst);
        ledger.park_judged_ms.store(judged.as_millis() as u64, Ordering::Relaxed);
    }
    tide.store().unpark(scope, by, tide.now()).await?;
    ledger.event(tide.now(), format!("operator resumes {tenant}"));
    Ok(())
}
