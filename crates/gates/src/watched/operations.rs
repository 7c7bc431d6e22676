//! An operator's operations pass through; what changes permits and lines is noted.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::gates::{BreakerOrder, GateSet, Holder, HolderView, Micros, ScopeView, WaiterView};

use super::{Snapshot, Watched};
use crate::noticeboard::{Footprint, Noticeboard};
use crate::operations::{Change, DomainUsage, Note, Order, Released, Said, Switch};
use crate::{Backend, GateOperations, GatesError};

#[async_trait]
impl<B: Backend + 'static> GateOperations for Watched<B> {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        let inner = &*self.inner;
        inner.backend.configure(domain, set.clone()).await?;
        inner.note(domain, inner.now(), |d| d.configured(&set));
        Ok(())
    }

    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        self.inner.backend.inspect(now, domain, most).await
    }

    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        self.inner.backend.holders(domain, most).await
    }

    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        self.inner.backend.waiters(domain, most).await
    }

    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        let inner = &*self.inner;
        let released = inner.backend.force_release(now, domain, holder, dry_run, note).await?;
        if !dry_run {
            let now = now.unwrap_or_else(|| inner.now());
            inner.note(domain, now, |d| d.force_released(now, &released.leases));
        }
        Ok(released)
    }

    async fn promote(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError> {
        let inner = &*self.inner;
        let found = inner.backend.promote(now, domain, holder, note).await?;
        if found {
            let now = now.unwrap_or_else(|| inner.now());
            inner.note(domain, now, |d| d.promoted(now, holder));
        }
        Ok(found)
    }

    async fn order_breaker(
        &self,
        now: Option<Micros>,
        domain: &str,
        breaker: (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        self.inner.backend.order_breaker(now, domain, breaker, order, note).await
    }

    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        self.inner.backend.switch(domain, gate, off, note).await
    }

    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        self.inner.backend.switches(domain).await
    }

    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        self.inner.backend.orders(domain).await
    }

    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        self.inner.backend.gates_of(domain).await
    }

    fn heard(&self, domain: &str) -> Arc<Said> {
        self.inner.backend.heard(domain)
    }

    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        self.inner.backend.changes(domain).await
    }

    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        self.inner.backend.usage().await
    }

    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        self.inner.backend.clear(domain, dry_run, note).await
    }
}

#[async_trait]
impl<B: Backend + 'static> Noticeboard for Watched<B> {
    async fn publish(&self, seen: &Snapshot) -> Result<(), GatesError> {
        self.inner.backend.publish(seen).await
    }

    /// The others' as they left them, and its own as it is now. If the others' cannot be read, its own alone.
    async fn published(&self) -> Result<Vec<Snapshot>, GatesError> {
        let own = self.inner.snapshot();
        let mut all = match self.inner.backend.published().await {
            Ok(all) => all,
            Err(GatesError::Unreachable(_)) => Vec::new(),
            Err(error) => return Err(error),
        };
        all.retain(|s| s.process != own.process);
        all.insert(0, own);
        Ok(all)
    }

    async fn footprint(&self) -> Result<Footprint, GatesError> {
        self.inner.backend.footprint().await
    }

    async fn flush(&self) {
        self.inner.publish().await;
    }
}
