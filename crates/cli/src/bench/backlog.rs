//! A backlog to measure against: ready, delayed and completed jobs, and parked groups.

use std::str::FromStr;
use std::sync::Arc;

use clap::Args;
use tidegate::{Job as _, Tidegate};
use tidegate_core::codes;
use tidegate_core::ids::{GroupKey, JobId, KindName, ProcessId, WorkerId};
use tidegate_core::job::{Park, ParkScope};
use tidegate_core::payload::Payload;
use tidegate_core::time::Timestamp;
use tidegate_store::Store;
use tidegate_store::params::{Claim, ClaimedJob, NewJob, Outcome, Settle, Settlement};

use super::jobs::{self, NoOp};
use crate::config::Config;
use crate::data;
use crate::error::{Failure, Result};
use crate::output::{Bulk, Output};

const BATCH: u64 = 5_000;
const READY_GROUPS: u64 = 100;

/// `ready=1000000,delayed=1000000,completed=1000000,parked=10000x100`
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    ready: u64,
    delayed: u64,
    completed: u64,
    parked_groups: u64,
    parked_each: u64,
}

impl Backlog {
    pub(super) fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    fn total(&self) -> u64 {
        self.ready + self.delayed + self.completed + self.parked_groups * self.parked_each
    }
}

impl FromStr for Backlog {
    type Err = String;
    fn from_str(s: &str) -> Result<Self, String> {
        let mut backlog = Self::default();
        let number = |n: &str| n.parse::<u64>().ok().filter(|n| *n <= 100_000_000);
        for part in s.split(',').filter(|p| !p.is_empty()) {
            let bad = || format!("{part:?} is not ready=N, delayed=N, completed=N or parked=GROUPSxJOBS");
            let (what, n) = part.split_once('=').ok_or_else(bad)?;
            match what {
                "ready" => backlog.ready = number(n).ok_or_else(bad)?,
                "delayed" => backlog.delayed = number(n).ok_or_else(bad)?,
                "completed" => backlog.completed = number(n).ok_or_else(bad)?,
                "parked" => {
                    let (groups, each) = n.split_once('x').ok_or_else(bad)?;
                    backlog.parked_groups = number(groups).ok_or_else(bad)?;
                    backlog.parked_each = number(each).ok_or_else(bad)?;
                }
                _ => return Err(bad()),
            }
        }
        Ok(backlog)
    }
}

impl std::fmt::Display for Backlog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(
            f,
            "ready={},delayed={},completed={},parked={}x{}",
            self.ready, self.delayed, self.completed, self.parked_groups, self.parked_each
        )
    }
}

/// Arguments of the hidden `bench fill`.
#[derive(Debug, Args)]
pub(crate) struct FillArgs {
    #[arg(long)]
    backlog: Backlog,
}

/// Fills a store in a process of its own and waits for it.
pub(super) fn fill_apart(store: &str, key: Option<&str>, backlog: &Backlog) -> Result<()> {
    let status = std::process::Command::new(std::env::current_exe()?)
        .args(["bench", "fill", "--backlog", &backlog.to_string()])
        // Not as flags: `ps` would show a password.
        .env("TIDEGATE_STORE", store)
        .env("TIDEGATE_KEY", key.unwrap_or_default())
        .status()?;
    if status.success() { Ok(()) } else { Err(Failure::new(codes::INTERNAL, "filling the backlog failed")) }
}

pub(super) async fn fill(args: FillArgs, config: &Config, output: &Output) -> Result<()> {
    let store = data::open_or_create(config).await?.store;
    let tide = Tidegate::with_store(store.clone());
    tide.register::<NoOp>().await?;
    let bulk = Bulk::start(output, "filling the backlog", args.backlog.total());
    let filler = Filler { store: store.clone(), next: 0 };
    filler.run(&args.backlog, &bulk).await?;
    drop(bulk);
    store.close().await?;
    Ok(())
}

struct Filler {
    store: Arc<dyn Store>,
    next: u64,
}

impl Filler {
    async fn run(mut self, backlog: &Backlog, bulk: &Bulk) -> Result<()> {
        let mut left = backlog.completed;
        while left > 0 {
            let n = left.min(1_000);
            self.enqueue(n, |i| format!("done{}", i % READY_GROUPS), None).await?;
            self.complete(n).await?;
            bulk.add(n);
            left -= n;
        }
        let hour = jobs::now().plus_ms(3_600_000);
        self.enqueue_many(backlog.delayed, bulk, |i| format!("late{}", i % READY_GROUPS), Some(hour)).await?;
        for group in 0..backlog.parked_groups {
            let scope = ParkScope::Group(GroupKey::new(format!("parked{group}"))?);
            let park = Park { scope, by: "bench".into(), reason: "backlog".into(), until: None };
            self.store.park(park, jobs::now()).await?;
        }
        let (groups, parked) = (backlog.parked_groups.max(1), backlog.parked_groups * backlog.parked_each);
        self.enqueue_many(parked, bulk, |i| format!("parked{}", i % groups), None).await?;
        self.enqueue_many(backlog.ready, bulk, |i| format!("other{}", i % READY_GROUPS), None).await
    }

    async fn enqueue_many(
        &mut self,
        total: u64,
        bulk: &Bulk,
        group: impl Fn(u64) -> String,
        run_at: Option<Timestamp>,
    ) -> Result<()> {
        let mut left = total;
        while left > 0 {
            let n = left.min(BATCH);
            self.enqueue(n, &group, run_at).await?;
            bulk.add(n);
            left -= n;
        }
        Ok(())
    }

    async fn enqueue(
        &mut self,
        n: u64,
        group: impl Fn(u64) -> String,
        run_at: Option<Timestamp>,
    ) -> Result<()> {
        let kind = KindName::new(NoOp::KIND)?;
        let now = jobs::now();
        let mut batch = Vec::with_capacity(n as usize);
        for _ in 0..n {
            self.next += 1;
            let payload = Payload::trusted(serde_json::to_string(&NoOp::new(u64::MAX))?);
            let mut job = NewJob::new(JobId::from_uuid(uuid::Uuid::now_v7()), kind.clone(), payload);
            job.group = Some(GroupKey::new(group(self.next))?);
            job.run_at = run_at;
            batch.push(job);
        }
        self.store.enqueue(batch, now).await?;
        Ok(())
    }

    async fn complete(&mut self, n: u64) -> Result<()> {
        let mut left = n;
        while left > 0 {
            let now = jobs::now();
            let claim = Claim {
                worker: WorkerId::new("filler")?,
                process: ProcessId(1),
                queues: vec![(NoOp::settings()?.queue, u32::MAX)],
                max: left as u32,
                lease_ms: 60_000,
                now,
            };
            let claimed = self.store.claim(claim).await?;
            if claimed.jobs.is_empty() {
                return Err(Failure::new(codes::INTERNAL, "a job of the backlog is missing"));
            }
            left -= claimed.jobs.len() as u64;
            let completed =
                |j: &ClaimedJob| Settlement { ticket: j.ticket, outcome: Outcome::Complete(None) };
            let settlements = claimed.jobs.iter().map(completed).collect();
            self.store.settle(Settle { settlements, now, seed: 0 }).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backlog_is_read_and_shown() {
        let backlog: Backlog = "ready=5,parked=10x3".parse().unwrap();
        assert_eq!(backlog.total(), 35);
        assert_eq!(backlog.to_string().parse::<Backlog>().unwrap(), backlog);
        for bad in ["ready", "ready=-1", "parked=5", "x=1", "ready=9999999999"] {
            assert!(bad.parse::<Backlog>().is_err(), "{bad}");
        }
    }
}
