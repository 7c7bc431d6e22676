//! Jobs, by `/v1/jobs`, and what workers do with them.

use std::hash::{BuildHasher, Hasher, RandomState};

use async_trait::async_trait;
use tidegate_core::codes;
use tidegate_core::failure::{Category, Failure};
use tidegate_core::ids::{JobId, LeaseId, Seq};
use tidegate_core::job::{Job, Priority, State};
use tidegate_core::limits;
use tidegate_core::time::Timestamp;
use tidegate_core::why::Why;
use tidegate_store::params::{
    Beat, CancelJob, CancelReply, Claim, Claimed, Dependencies, Enqueued, JobQuery, NewJob, Outcome, Page,
    Report, Settle, Settled, Settlement, Ticket,
};
use tidegate_store::{Error, Jobs, Result};
use tidegate_wire::claims::{HeartbeatReply, HeartbeatRequest, ReportReply, ReportRequest};
use tidegate_wire::settlements::{self, SettleReply, SettleRequest};
use tidegate_wire::{Lease, jobs, why};

use crate::RemoteStore;
use crate::call::{Call, Reply};
use crate::combine::Batch;
use crate::skew::Sent;

/// Outcomes and bytes of results in one request; more go in the next. A server accepts about twice as much.
const SETTLE: (usize, usize) = (5_000, 8 << 20);

#[async_trait]
impl Jobs for RemoteStore {
    async fn enqueue(&self, jobs: Vec<NewJob>, now: Timestamp) -> Result<Vec<Enqueued>> {
        let bytes = jobs.iter().map(|j| j.payload.as_str().len()).sum();
        let fresh = jobs.iter().map(|j| !j.id_may_exist).collect();
        let jobs = jobs.into_iter().map(|j| jobs::EnqueueJob::new(j, now)).collect();
        let enqueued = self.combiner.enqueue(Batch { jobs, fresh, bytes }).await?;
        // A poll hears of it from the server.
        if self.signals.awaited() && !self.polls.are_used() {
            self.signals.work();
        }
        Ok(enqueued)
    }

    async fn claim(&self, claim: Claim) -> Result<Claimed> {
        self.leases_of(claim.lease_ms);
        self.polls.claim(claim).await
    }

    async fn settle(&self, settle: Settle) -> Result<Vec<Settled>> {
        let mut replies = Vec::with_capacity(settle.settlements.len());
        let mut left = settle.settlements;
        while !left.is_empty() {
            let rest = left.split_off(one_request(&left));
            replies.extend(self.settle_some(left, settle.now).await?);
            left = rest;
        }
        Ok(replies)
    }

    async fn heartbeat(&self, leases: Vec<LeaseId>, _now: Timestamp) -> Result<Vec<Beat>> {
        if leases.is_empty() {
            return Ok(vec![]);
        }
        let request = HeartbeatRequest { leases: leases.into_iter().map(Lease).collect() };
        // Tried for half the time to the next one, so that a short loss of the server costs no lease.
        let within = self.beat_within();
        let call = Call::post("/v1/heartbeats", &request)?.within(within).patient(within);
        let sent = Sent::now();
        let reply: HeartbeatReply = self.caller.read(call).await?;
        self.skew.learn(sent, reply.now.0);
        Ok(reply.beats.into_iter().map(Beat::from).collect())
    }

    async fn report(&self, reports: Vec<Report>, _now: Timestamp) -> Result<Vec<bool>> {
        if reports.is_empty() {
            return Ok(vec![]);
        }
        let reports = reports.into_iter().map(|r| sendable_report(r).into()).collect();
        let request = ReportRequest { reports };
        // Log lines that were kept and not answered must not be kept twice.
        let key = format!("{:016x}", RandomState::new().build_hasher().finish());
        let call = self.patient(Call::post("/v1/reports", &request)?).known_as(key);
        Ok(self.caller.read::<ReportReply>(call).await?.kept)
    }

    async fn cancel(&self, cancel: CancelJob) -> Result<CancelReply> {
        let path = format!("/v1/jobs/{}/cancel", cancel.id);
        let call = self
            .patient(Call::post(path, &jobs::CancelRequest { note: cancel.note, cascade: cancel.cascade })?);
        let reply: Reply<jobs::CancelReply> = self.caller.ask(call).await?;
        match CancelReply::from(reply.value) {
            // Done by the request whose reply was lost.
            CancelReply::AlreadyFinished(State::Cancelled) if reply.repeated => Ok(CancelReply::Cancelled),
            told @ (CancelReply::Requested | CancelReply::Cascaded { running: true, .. }) => {
                self.signals.cancel(cancel.id);
                Ok(told)
            }
            other => Ok(other),
        }
    }

    async fn run_now(&self, id: JobId, _now: Timestamp) -> Result<State> {
        let call = self.patient(Call::tell(format!("/v1/jobs/{id}/run-now")));
        Ok(self.caller.read::<jobs::StateReply>(call).await?.state)
    }

    async fn reprioritise(&self, id: JobId, priority: Priority, _now: Timestamp) -> Result<()> {
        let path = format!("/v1/jobs/{id}/priority");
        self.caller.done(self.patient(Call::put(path, &jobs::PriorityRequest { priority })?)).await
    }

    async fn get(&self, id: JobId) -> Result<Option<Job>> {
        match self.caller.read::<jobs::Job>(self.patient(Call::get(format!("/v1/jobs/{id}")))).await {
            Ok(job) => Ok(Some(job.into())),
            Err(e) if e.code == codes::JOB_NOT_FOUND => Ok(None),
            Err(e) => Err(e),
        }
    }

    async fn search(&self, query: JobQuery) -> Result<Page> {
        let query = JobQuery { limit: query.limit.clamp(1, limits::MAX_PAGE), ..query };
        let path = format!("/v1/jobs{}", jobs::search_to_query(&query));
        Ok(self.caller.read::<jobs::JobPage>(self.patient(Call::get(path))).await?.into())
    }

    async fn dependencies(
        &self,
        id: JobId,
        held: Option<Ticket>,
        skip: u32,
        limit: usize,
    ) -> Result<Dependencies> {
        let limit = limit.clamp(1, limits::MAX_DEPENDENCY_PAGE);
        let ticket = held.map_or(String::new(), |t| format!("&ticket={}", tidegate_wire::Ticket(known(t))));
        let path = format!("/v1/jobs/{id}/dependencies?skip={skip}&limit={limit}{ticket}");
        Ok(self.caller.read::<jobs::DependencyPage>(self.patient(Call::get(path))).await?.into())
    }

    async fn why(&self, id: JobId, _now: Timestamp) -> Result<Why> {
        let why: why::Why = self.caller.read(self.patient(Call::get(format!("/v1/jobs/{id}/why")))).await?;
        Why::try_from(why).map_err(Error::from)
    }
}

impl RemoteStore {
    async fn settle_some(&self, some: Vec<Settlement>, now: Timestamp) -> Result<Vec<Settled>> {
        let count = some.len();
        let settlements = some.into_iter().map(|s| settlements::Settlement::new(sendable(s), now)).collect();
        let reply: SettleReply =
            self.caller.read(Call::post("/v1/settlements", &SettleRequest { settlements })?).await?;
        if reply.settled.len() != count {
            let text = format!("{count} outcomes were sent and {} answered", reply.settled.len());
            return Err(Error::new(codes::SERVER_MISMATCH, text));
        }
        Ok(reply.settled.into_iter().map(Settled::from).collect())
    }
}

/// How many outcomes go into the next request: as many as fit, and at least one.
fn one_request(settlements: &[Settlement]) -> usize {
    let mut bytes = 0;
    let fits = settlements.iter().take(SETTLE.0).take_while(|s| {
        if let Outcome::Complete(Some(result)) = &s.outcome {
            bytes += result.as_str().len();
        }
        bytes <= SETTLE.1
    });
    fits.count().max(1)
}

/// An outcome as a server accepts it; what it would refuse, a store here would have turned into the same.
fn sendable(settlement: Settlement) -> Settlement {
    let outcome = match settlement.outcome {
        Outcome::Complete(Some(result)) if result.as_str().len() > limits::MAX_RESULT_BYTES => {
            let (bytes, most) = (result.as_str().len(), limits::MAX_RESULT_BYTES);
            let text = format!("the result has {bytes} bytes; {most} are allowed");
            Outcome::Fail(Failure::new(Category::InvalidInput, "RESULT_TOO_LARGE", text))
        }
        other => other,
    };
    Settlement { ticket: known(settlement.ticket), outcome }
}

/// A report as a server accepts it.
fn sendable_report(report: Report) -> Report {
    let within = |fraction: f64| if fraction.is_nan() { 0.0 } else { fraction.clamp(0.0, 1.0) };
    let progress = report.progress.map(|(fraction, note)| (within(fraction), note));
    Report { ticket: known(report.ticket), progress, ..report }
}

/// A ticket that can be written; one that cannot was never handed out, and no lease has the number 0.
fn known(ticket: Ticket) -> Ticket {
    Ticket { lease: LeaseId(ticket.lease.0.max(0)), seq: Seq(ticket.seq.0.max(0)) }
}
