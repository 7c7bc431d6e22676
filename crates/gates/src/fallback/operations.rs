//! An operator's operations: the backend's. What is only looked at comes from this process's own model while the backend
//! is away; changes need the backend, except that a switch also acts here at once.

use std::sync::{Arc, PoisonError};

use async_trait::async_trait;
use tidegate_core::gates::{BreakerOrder, GateSet, Holder, HolderView, Micros, ScopeView, WaiterView};

use super::books::{Domain, Model};
use super::{Fallback, Inner, PRESENCE, lock};
use crate::operations::{Change, DomainUsage, Note, Order, Released, Switch};
use crate::watched::Snapshot;
use crate::{Footprint, GateOperations, Gates, GatesError, Noticeboard};

impl<B: Gates + GateOperations> Inner<B> {
    /// The model, if it alone decides now.
    fn alone(&self, domain: &str) -> Result<Option<Arc<Model>>, GatesError> {
        let domain = self.known(domain)?;
        Ok(if self.is_away() { domain.model() } else { None })
    }

    /// Notes a switch while the backend is away, for gates that are closed then and for the model, now or once it begins. Whether it is
    /// away.
    fn switch_here(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: &Note,
    ) -> Result<bool, GatesError> {
        let known = self.known(domain)?;
        let now = self.backend.clock();
        {
            // What is noted now is forgotten by whoever tells that the backend is back.
            let _turning = lock(&self.turning);
            if !self.is_away() {
                return Ok(false);
            }
            known.switched(now, gate, off, note, &self.backend.heard(domain));
        }
        self.listen(now, &known)?;
        Ok(true)
    }
}

#[async_trait]
impl<B: Gates + GateOperations + 'static> GateOperations for Fallback<B> {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        let inner = &*self.inner;
        inner.ask_throughout(inner.backend.configure(domain, set.clone())).await?;
        let seat = lock(&inner.census).seat();
        // A model that changes hands just when the backend leaves or comes back hears of it, too.
        let _turning = lock(&inner.turning);
        let mut domains = inner.domains.write().unwrap_or_else(PoisonError::into_inner);
        let new = match domains.get(domain) {
            Some(known) => known.with(inner.backend.clock(), set, seat),
            None => Domain::new(domain, set),
        };
        domains.insert(domain.into(), Arc::new(new));
        Ok(())
    }

    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        match self.inner.alone(domain)? {
            Some(model) => model.gates.inspect(now.or(Some(self.clock())), domain, most).await,
            None => self.inner.ask_throughout(self.inner.backend.inspect(now, domain, most)).await,
        }
    }

    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        match self.inner.alone(domain)? {
            Some(model) => model.gates.holders(domain, most).await,
            None => self.inner.ask_throughout(self.inner.backend.holders(domain, most)).await,
        }
    }

    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        match self.inner.alone(domain)? {
            Some(model) => model.gates.waiters(domain, most).await,
            None => self.inner.ask_throughout(self.inner.backend.waiters(domain, most)).await,
        }
    }

    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        self.inner.ask_throughout(self.inner.backend.force_release(now, domain, holder, dry_run, note)).await
    }

    async fn promote(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError> {
        self.inner.ask_throughout(self.inner.backend.promote(now, domain, holder, note)).await
    }

    async fn order_breaker(
        &self,
        now: Option<Micros>,
        domain: &str,
        breaker: (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        self.inner.ask_throughout(self.inner.backend.order_breaker(now, domain, breaker, order, note)).await
    }

    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        // Before the backend is asked: that may take a while.
        self.inner.switch_here(domain, gate, off, &note)?;
        let answer =
            self.inner.ask_throughout(self.inner.backend.switch(domain, gate, off, note.clone())).await;
        match answer {
            // It may have left just now.
            Err(error @ GatesError::Unreachable(_))
                if self.inner.switch_here(domain, gate, off, &note)? =>
            {
                Err(error.but("in the process that was asked it holds until the backend is back"))
            }
            answered => {
                self.inner.known(domain)?.forget_switch(gate);
                answered
            }
        }
    }

    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        if self.inner.alone(domain)?.is_none() {
            return self.inner.ask_throughout(self.inner.backend.switches(domain)).await;
        }
        Ok(self.inner.known(domain)?.said(&self.inner.backend.heard(domain)).off)
    }

    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        if self.inner.alone(domain)?.is_none() {
            return self.inner.ask_throughout(self.inner.backend.orders(domain)).await;
        }
        let (heard, now) = (self.inner.backend.heard(domain), self.inner.backend.clock());
        Ok(heard.orders.iter().filter(|order| order.until > now).cloned().collect())
    }

    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        Ok(Some(self.inner.known(domain)?.set.clone()))
    }

    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        self.inner.ask_throughout(self.inner.backend.changes(domain)).await
    }

    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        let mut all = self.inner.ask_throughout(self.inner.backend.usage()).await?;
        all.retain(|usage| usage.domain != PRESENCE);
        Ok(all)
    }

    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        self.inner.ask_throughout(self.inner.backend.clear(domain, dry_run, note)).await
    }
}

/// Straight to the backend, and no sign of its health: nothing depends on it.
#[async_trait]
impl<B: Noticeboard + 'static> Noticeboard for Fallback<B> {
    async fn publish(&self, seen: &Snapshot) -> Result<(), GatesError> {
        self.inner.backend.publish(seen).await
    }

    async fn published(&self) -> Result<Vec<Snapshot>, GatesError> {
        self.inner.backend.published().await
    }

    async fn footprint(&self) -> Result<Footprint, GatesError> {
        self.inner.backend.footprint().await
    }
}
