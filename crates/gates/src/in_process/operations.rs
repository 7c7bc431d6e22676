//! An operator's operations on gates in process.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::gates::{
    BreakerOrder, DomainName, GateSet, Holder, HolderView, Micros, PartitionView, ScopeView, WaiterView,
};

use super::{CHANGES_KEPT, InProcess, Records, lock, unknown};
use crate::operations::{
    Change, DomainUsage, GateOperations, Note, Order, Released, Said, Switch, has_effect, order_text,
    refuse_order, refuse_under,
};
use crate::{Gates, GatesError};

/// Memory of one key, lease and place: estimates from the sizes of the structures and their index entries, not measured.
const BYTES: (u64, u64, u64) = (600, 420, 560);

impl InProcess {
    /// Reads or changes the records of a domain.
    fn records<R>(&self, domain: &str, act: impl FnOnce(&mut Records) -> R) -> Result<R, GatesError> {
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        let mut records = lock(&known.records);
        Ok(act(&mut records))
    }

    fn record(&self, domain: &str, what: String, note: Note) -> Result<(), GatesError> {
        let at = self.clock();
        self.records(domain, |records| {
            records.changes.push_back(Change { at, what, note });
            if records.changes.len() > CHANGES_KEPT {
                records.changes.pop_front();
            }
        })
    }

    fn knows(&self, domain: &str, gate: &str) -> Result<(), GatesError> {
        let mut found = false;
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        if let Some(shard) = known.shards.first() {
            found = lock(shard).set.set().gates.iter().any(|g| g.name == gate);
        }
        if found {
            return Ok(());
        }
        Err(GatesError::UnknownGate { domain: domain.into(), gate: gate.into() })
    }

    fn usage_of(&self, domain: &str) -> Result<DomainUsage, GatesError> {
        let (mut partitions, mut total) = (0, PartitionView::default());
        self.each(domain, |_, state| {
            let usage = state.usage();
            partitions += 1;
            total.keys += usage.keys;
            total.leases += usage.leases;
            total.quarantined += usage.quarantined;
            total.places += usage.places;
        })?;
        let (key, lease, place) = BYTES;
        let bytes =
            u64::from(total.keys) * key + u64::from(total.leases) * lease + u64::from(total.places) * place;
        Ok(DomainUsage { domain: domain.into(), partitions, total, bytes })
    }

    /// Makes what operators have said elsewhere hold here, and nothing else.
    pub(crate) fn take_over(&self, domain: &str, said: Said, now: Micros) -> Result<(), GatesError> {
        self.orders_are(domain, &said.orders, now)?;
        self.records(domain, |records| {
            records.switches = said.off.into_iter().map(|switch| (switch.gate.clone(), switch)).collect();
        })?;
        self.apply_switches(domain).map(|_| ())
    }

    /// Makes these the orders to all keys of breakers. What stands already is not ordered again, and who waits for a breaker that has
    /// tripped by itself does not profit from the end of an order.
    pub(crate) fn orders_are(&self, domain: &str, orders: &[Order], now: Micros) -> Result<(), GatesError> {
        let own = self.heard(domain);
        let stands = |orders: &[Order], gate: &str, until: Option<Micros>| {
            orders
                .iter()
                .any(|o| o.gate == gate && o.until > now && until.is_none_or(|until| o.until == until))
        };
        let ended = own.orders.iter().filter(|o| o.until > now && !stands(orders, &o.gate, None));
        let begun = orders.iter().filter(|o| o.until > now && !stands(&own.orders, &o.gate, Some(o.until)));
        let ended = ended.map(|o| (o, BreakerOrder::Reset));
        for (order, asked) in ended.chain(begun.map(|o| (o, BreakerOrder::Trip { lasts: o.until - now }))) {
            match self.order_now(now, domain, (&order.gate, None), asked, order.note.clone()) {
                // It has no share here.
                Ok(_) | Err(GatesError::UnknownGate { .. } | GatesError::Refused { .. }) => {}
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    fn order_now(
        &self,
        now: Micros,
        domain: &str,
        (gate, key): (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        self.knows(domain, gate)?;
        let changed = {
            let domains = self.read();
            let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
            // Until all have been told: two orders do not cross.
            let mut records = lock(&known.records);
            refuse_order(domain, gate, lock(&known.shards[0]).set.is_breaker(gate), order)?;
            refuse_under(records.orders.get(gate), key, order, now)?;
            if key.is_none() {
                records.orders.retain(|name, order| *name != gate && order.until > now);
                records
                    .orders
                    .extend(Order::of(gate, order, now, &note).map(|order| (gate.to_owned(), order)));
            }
            let mut changed = 0;
            for shard in &known.shards {
                let shard = &mut *lock(shard);
                // For partitions that are made later.
                shard.set.order(records.orders.values().map(|o| (o.gate.as_str(), o.until)));
                shard.each(known.split, |set, state| {
                    changed += state.order_breaker(set, now, gate, key, order);
                });
            }
            changed
        };
        if has_effect(changed, key) {
            self.record(domain, order_text(gate, key, order), note)?;
        }
        Ok(changed)
    }

    /// Tells every shard which gates are off.
    fn apply_switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        let off: Vec<Switch> =
            self.records(domain, |records| records.switches.values().cloned().collect())?;
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        for shard in &known.shards {
            lock(shard).set.disable(off.iter().map(|s| s.gate.as_str()));
        }
        Ok(off)
    }
}

#[async_trait]
impl GateOperations for InProcess {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        self.configure_now(domain, set)
    }

    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        let mut views = Vec::new();
        self.each(domain, |set, state| {
            views.extend(state.inspect(set, now, most.saturating_sub(views.len())));
        })?;
        Ok(views)
    }

    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        let mut views = Vec::new();
        self.each(domain, |_, state| views.extend(state.holders(most.saturating_sub(views.len()))))?;
        Ok(views)
    }

    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        let mut views = Vec::new();
        self.each(domain, |set, state| views.extend(state.waiters(set, most.saturating_sub(views.len()))))?;
        Ok(views)
    }

    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        let mut all = Released { leases: Vec::new(), woken: Vec::new() };
        self.each(domain, |set, state| {
            let (leases, freed) = state.force_release(set, now, holder, dry_run);
            all.leases.extend(leases);
            all.woken.extend(freed.woken);
        })?;
        if !dry_run && !all.leases.is_empty() {
            self.record(domain, format!("force_release {holder}"), note)?;
            self.turns().wake(&all.woken);
        }
        Ok(all)
    }

    async fn promote(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        note: Note,
    ) -> Result<bool, GatesError> {
        let now = now.unwrap_or_else(|| self.clock());
        let mut found = false;
        self.each(domain, |set, state| found |= state.promote(set, now, holder))?;
        if found {
            self.record(domain, format!("promote {holder}"), note)?;
            self.turns().wake(&[*holder]);
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
        self.order_now(now.unwrap_or_else(|| self.clock()), domain, breaker, order, note)
    }

    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        if let Some(gate) = gate {
            self.knows(domain, gate)?;
        }
        let names: Vec<String> = {
            let domains = self.read();
            let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
            let shard = lock(&known.shards[0]);
            let all = shard.set.set().gates.iter().map(|g| g.name.clone());
            all.filter(|name| gate.is_none_or(|g| g == name)).collect()
        };
        let at = self.clock();
        let verb = if off { "disable" } else { "enable" };
        self.record(domain, format!("{verb} {}", gate.unwrap_or("all gates")), note.clone())?;
        self.records(domain, |records| {
            for gate in names {
                if off {
                    records.switches.insert(gate.clone(), Switch { gate, at, note: note.clone() });
                } else {
                    records.switches.remove(&gate);
                }
            }
        })?;
        self.apply_switches(domain)
    }

    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        self.records(domain, |records| records.switches.values().cloned().collect())
    }

    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        let now = self.clock();
        self.records(domain, |records| records.orders.values().filter(|o| o.until > now).cloned().collect())
    }

    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        let domains = self.read();
        let known = domains.get(&DomainName::new(domain)).ok_or_else(|| unknown(domain))?;
        Ok(known.shards.first().map(|shard| lock(shard).set.set().clone()))
    }

    fn heard(&self, domain: &str) -> Arc<Said> {
        let said = self.records(domain, |records| Said {
            off: records.switches.values().cloned().collect(),
            orders: records.orders.values().cloned().collect(),
        });
        Arc::new(said.unwrap_or_default())
    }

    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        self.records(domain, |records| records.changes.iter().cloned().collect())
    }

    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        let mut names: Vec<Box<str>> = self.read().keys().map(|name| name.as_str().into()).collect();
        names.sort_unstable();
        names.iter().map(|name| self.usage_of(name)).collect()
    }

    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        let usage = self.usage_of(domain)?;
        if !dry_run {
            self.each(domain, |set, state| {
                let _ = state.clear(set, false);
            })?;
            self.record(domain, "clear".into(), note)?;
        }
        Ok(usage)
    }
}
