//! Gates behind a server: the same traits, over `/v1/admissions` and `/v1/gates`.
//!
//! Wake-ups do not come over the wire: who waits asks again at the time it was told, and jobs that were put off are woken by
//! the server. A request that was not answered is sent again: admissions are the same for the same holder and ask.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tidegate_core::codes::{self, Fault};
use tidegate_core::gates::{
    Admission, BreakerOrder, Call as GateCall, Freed, GateSet, Holder, HolderView, Micros, Outcome, Permit,
    Renewal, ScopeView, Settled, Target, WaiterView,
};
use tidegate_gates::watched::{Snapshot, Trace, TraceQuery};
use tidegate_gates::{
    Change, DomainUsage, GateOperations, GateSettings, Gates, GatesError, GatesReport, Note, Noticeboard,
    Order, Released, Switch, Turn, Turns,
};
use tidegate_store::Error;
use tidegate_wire::gates::{
    Act, ActRequest, Acted, AdmitReply, AdmitRequest, CancelWait, CancelledWait, DomainReply, DomainsReply,
    RenewReply, RenewRequest, SettingsReply, SettlePermit, SettledPermit, SloReply, TracesReply,
};
use tidegate_wire::query::{Writer, encode};

use crate::RemoteStore;
use crate::call::{Call, Caller};

/// How long an answer to a call may take: whoever asks holds a slot of its worker.
const WITHIN: Duration = Duration::from_secs(5);
/// How long an answer to an operator may take: it may go through every key of a domain.
const OPERATOR: Duration = Duration::from_mins(1);

/// Gates behind a server.
pub struct RemoteGates {
    caller: Arc<Caller>,
    turns: Turns,
    started: Instant,
    /// Wall clock when it started.
    epoch: Micros,
    /// How far the gates' clock is ahead of ours, by the last answer.
    ahead: AtomicI64,
}

impl std::fmt::Debug for RemoteGates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("RemoteGates").finish_non_exhaustive()
    }
}

impl RemoteStore {
    /// The server's gates.
    pub fn gates(&self) -> RemoteGates {
        let epoch = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_micros() as Micros);
        RemoteGates {
            caller: self.caller.clone(),
            turns: Turns::default(),
            started: Instant::now(),
            epoch,
            ahead: AtomicI64::new(0),
        }
    }
}

impl RemoteGates {
    /// The settings of all gates.
    pub async fn settings(&self) -> Result<GateSettings, GatesError> {
        let reply: SettingsReply = self.read(Call::get("/v1/gates/settings")).await?;
        Ok(reply.settings)
    }

    async fn read<T: DeserializeOwned>(&self, call: Call) -> Result<T, GatesError> {
        self.caller.read(call.within(WITHIN).patient(WITHIN)).await.map_err(refusal)
    }

    async fn send<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, GatesError> {
        self.read(Call::post(path, body).map_err(refusal)?).await
    }

    async fn look<T: DeserializeOwned>(&self, path: impl Into<String>) -> Result<T, GatesError> {
        self.caller.read(Call::get(path).within(OPERATOR).patient(WITHIN)).await.map_err(refusal)
    }

    async fn domain(&self, domain: &str) -> Result<DomainReply, GatesError> {
        let reply: DomainReply = self.look(format!("/v1/gates/{}", encode(domain))).await?;
        self.learn(reply.now_us);
        Ok(reply)
    }

    async fn act(&self, domain: &str, act: Act, note: Note) -> Result<Acted, GatesError> {
        let path = format!("/v1/gates/{}", encode(domain));
        let call = Call::post(path, &ActRequest::new(act, note)).map_err(refusal)?;
        // An act whose answer was lost may have been done: saying it twice would be two records.
        let acted: Acted = self.caller.read(call.within(OPERATOR).once()).await.map_err(refusal)?;
        if let Some(first) = acted.called_first {
            tracing::warn!(
                domain,
                "only the first {first} that wait were called, the others come back when they were told"
            );
        }
        Ok(acted)
    }

    fn own_clock(&self) -> Micros {
        self.epoch + self.started.elapsed().as_micros() as Micros
    }

    /// The answer took some time; the clock read so is late by that, and whoever goes by it waits a little longer.
    fn learn(&self, now: Micros) {
        self.ahead.store(now - self.own_clock(), Ordering::Relaxed);
    }
}

fn refusal(error: Error) -> GatesError {
    match error.code.fault {
        Fault::Unreachable | Fault::Ours => GatesError::Unreachable(Box::new(error)),
        Fault::Usage | Fault::NotFound | Fault::State => {
            GatesError::Refused { code: error.code, detail: error.detail }
        }
    }
}

fn unexpected() -> GatesError {
    GatesError::Refused { code: codes::SERVER_MISMATCH, detail: "the server answered something else".into() }
}

#[async_trait]
impl Gates for RemoteGates {
    async fn admit(&self, _now: Option<Micros>, call: &GateCall) -> Result<Admission, GatesError> {
        let request = AdmitRequest::new(call)
            .map_err(|p| GatesError::Refused { code: codes::INVALID_REQUEST, detail: p.detail.clone() })?;
        let reply: AdmitReply = self.send("/v1/admissions", &request).await?;
        self.learn(reply.now_us);
        self.turns.wake(reply.admission.woken());
        Ok(reply.admission)
    }

    async fn settle(
        &self,
        _now: Option<Micros>,
        permit: &Permit,
        outcome: &Outcome,
    ) -> Result<Settled, GatesError> {
        let request = SettlePermit { permit: permit.clone(), outcome: outcome.clone() };
        let reply: SettledPermit = self.send("/v1/admissions/settle", &request).await?;
        self.turns.wake(&reply.settled.woken);
        Ok(reply.settled)
    }

    async fn renew(&self, _now: Option<Micros>, permit: &Permit) -> Result<Renewal, GatesError> {
        let request = RenewRequest { permit: permit.clone() };
        let reply: RenewReply = self.send("/v1/admissions/renew", &request).await?;
        self.learn(reply.now_us);
        Ok(reply.renewal)
    }

    async fn cancel_wait(
        &self,
        _now: Option<Micros>,
        target: &Target,
        holder: &Holder,
    ) -> Result<Freed, GatesError> {
        let request = CancelWait { target: target.clone(), holder: *holder };
        let reply: CancelledWait = self.send("/v1/admissions/cancel", &request).await?;
        self.turns.wake(&reply.freed.woken);
        Ok(reply.freed)
    }

    /// The server does it with every operation.
    async fn expire(&self, _now: Option<Micros>, _domain: &str) -> Result<Freed, GatesError> {
        Ok(Freed { gone: 0, more: false, woken: Vec::new() })
    }

    fn clock(&self) -> Micros {
        self.own_clock() + self.ahead.load(Ordering::Relaxed)
    }

    fn turn(&self, holder: &Holder) -> Turn {
        self.turns.register(holder)
    }
}

#[async_trait]
impl GateOperations for RemoteGates {
    async fn configure(&self, _domain: &str, _set: GateSet) -> Result<(), GatesError> {
        let detail = "the settings of a server's gates are those it was started with".into();
        Err(GatesError::Refused { code: codes::INVALID_REQUEST, detail })
    }

    async fn inspect(
        &self,
        _now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        let mut scopes = self.domain(domain).await?.scopes;
        scopes.truncate(most);
        Ok(scopes)
    }

    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        let mut holders = self.domain(domain).await?.holders;
        holders.truncate(most);
        Ok(holders)
    }

    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        let mut waiters = self.domain(domain).await?.waiters;
        waiters.truncate(most);
        Ok(waiters)
    }

    async fn force_release(
        &self,
        _now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        self.act(domain, Act::Release { holder: *holder, dry_run }, note)
            .await?
            .released
            .ok_or_else(unexpected)
    }

    async fn promote(
        &self,
        _now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError> {
        self.act(domain, Act::Promote { holder: *holder }, note).await?.promoted.ok_or_else(unexpected)
    }

    async fn order_breaker(
        &self,
        _now: Option<Micros>,
        domain: &str,
        breaker: (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        let (gate, key) = (breaker.0.to_owned(), breaker.1.map(str::to_owned));
        self.act(domain, Act::Breaker { gate, key, order }, note).await?.breakers.ok_or_else(unexpected)
    }

    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        self.act(domain, Act::Switch { gate: gate.map(str::to_owned), off }, note)
            .await?
            .off
            .ok_or_else(unexpected)
    }

    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        Ok(self.domain(domain).await?.off)
    }

    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        Ok(self.domain(domain).await?.orders)
    }

    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        let mut reply: SettingsReply = self.look("/v1/gates/settings").await?;
        let unknown = || GatesError::UnknownDomain { domain: domain.into() };
        reply.settings.gates.remove(domain).map(Some).ok_or_else(unknown)
    }

    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        Ok(self.domain(domain).await?.changes)
    }

    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        let reply: DomainsReply = self.look("/v1/gates").await?;
        Ok(reply.domains)
    }

    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        self.act(domain, Act::Clear { dry_run }, note).await?.cleared.ok_or_else(unexpected)
    }
}

/// The server watches its gates itself: there is nothing to leave, and what it says is what all have seen.
#[async_trait]
impl Noticeboard for RemoteGates {
    async fn publish(&self, _seen: &Snapshot) -> Result<(), GatesError> {
        Ok(())
    }

    async fn published(&self) -> Result<Vec<Snapshot>, GatesError> {
        Ok(Vec::new())
    }

    async fn report(&self) -> Result<GatesReport, GatesError> {
        let reply: SloReply = self.read(Call::get("/v1/slo")).await?;
        self.learn(reply.report.now_us);
        Ok(reply.report)
    }

    async fn traces(&self, domain: &str, query: &TraceQuery) -> Result<Vec<Trace>, GatesError> {
        let pairs = Writer::default()
            .with("holder", query.holder.as_deref())
            .with("tenant", query.tenant.as_deref())
            .with("last", Some(query.last));
        let path = format!("/v1/gates/{}/traces{}", encode(domain), pairs.end());
        let reply: TracesReply = self.read(Call::get(path)).await?;
        self.learn(reply.now_us);
        Ok(reply.traces)
    }
}
