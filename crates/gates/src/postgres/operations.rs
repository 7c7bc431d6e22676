//! An operator's operations on gates in Postgres.

use std::sync::Arc;

use async_trait::async_trait;
use tidegate_core::gates::{
    Admission, BreakerOrder, Compiled, Freed, GateSet, Holder, HolderView, Micros, Partition, PartitionView,
    Renewal, ScopeView, Settled, WaiterView,
};

use super::domains::{self, column};
use super::job::Wakes;
use super::link::Link;
use super::statements as sql;
use super::{PAGE, PgGates, state};
use crate::GatesError;
use crate::operations::{
    Change, DomainUsage, GateOperations, Note, Order, Released, Said, Switch, has_effect, order_text,
    refuse_order, refuse_under,
};

/// Changes by operators that are kept per domain.
const CHANGES_KEPT: i64 = 100;

impl Wakes for Admission {
    fn woken(&self) -> &[Holder] {
        self.woken()
    }
}

impl Wakes for Settled {
    fn woken(&self) -> &[Holder] {
        &self.woken
    }
}

impl Wakes for Renewal {
    fn woken(&self) -> &[Holder] {
        &[]
    }
}

impl Wakes for Freed {
    fn woken(&self) -> &[Holder] {
        &self.woken
    }
}

/// A reply beside which some are woken.
struct With<R>(R, Vec<Holder>);

impl<R: Send> Wakes for With<R> {
    fn woken(&self) -> &[Holder] {
        &self.1
    }
}

impl PgGates {
    async fn record(&self, domain: &str, what: &str, note: &Note) -> Result<(), GatesError> {
        let link = self.shared.desk().await?;
        record(&link, domain, what, note).await?;
        self.shared.give_back(link);
        Ok(())
    }

    async fn server_clock(&self) -> Result<Micros, GatesError> {
        let link = self.shared.desk().await?;
        let at = column(&link.one(sql::DOMAINS_CLOCK, &[]).await?, 0)?;
        self.shared.give_back(link);
        Ok(at)
    }

    async fn orders_at(&self, domain: &str, now: Micros) -> Result<Vec<Order>, GatesError> {
        let link = self.shared.desk().await?;
        let orders = domains::orders(&link, domain, now).await?;
        self.shared.give_back(link);
        Ok(orders)
    }

    /// Keeps an order to all keys of a breaker for partitions that are made: nobody makes one by what was in force before.
    async fn stand(
        &self,
        domain: &str,
        gate: &str,
        order: Option<Order>,
        now: Micros,
    ) -> Result<(), GatesError> {
        let link = self.shared.desk().await?;
        link.begin().await?;
        link.opt(sql::DOMAINS_LOCK, &[&domain]).await?;
        link.execute(sql::ORDERS_DELETE, &[&domain, &gate, &now]).await?;
        if let Some(Order { gate, until, at, note }) = &order {
            link.execute(sql::ORDERS_PUT, &[&domain, gate, until, at, &note.who, &note.why]).await?;
        }
        link.execute(sql::DOMAINS_CHANGED, &[&domain]).await?;
        link.commit().await?;
        self.shared.domains.load(&link, domain).await?;
        self.shared.give_back(link);
        Ok(())
    }

    /// Refuses a gate that the domain does not have; the names of those it has.
    async fn names(&self, domain: &str, gate: Option<&str>) -> Result<Vec<String>, GatesError> {
        let known = self.shared.known(domain).await?;
        let all: Vec<String> = known.set.set().gates.iter().map(|g| g.name.clone()).collect();
        match gate {
            Some(gate) if !all.iter().any(|name| name == gate) => {
                Err(GatesError::UnknownGate { domain: domain.into(), gate: gate.into() })
            }
            Some(gate) => Ok(vec![gate.to_owned()]),
            None => Ok(all),
        }
    }

    /// Reads the states of a domain that hold or wait for something, without locking them, until `see` has enough.
    async fn read<R>(
        &self,
        domain: &str,
        most: usize,
        see: impl Fn(&Compiled, &Partition, usize) -> Vec<R>,
    ) -> Result<Vec<R>, GatesError> {
        self.shared.known(domain).await?;
        let link = self.shared.desk().await?;
        let (mut views, mut after) = (Vec::new(), None::<String>);
        while views.len() < most {
            let rows = link.query(sql::PARTITIONS_READ, &[&domain, &after, &PAGE]).await?;
            let Some(last) = rows.last() else { break };
            after = Some(column(last, 0)?);
            for row in &rows {
                let Some(set) = self.shared.domains.earlier(&link, domain, column(row, 1)?).await? else {
                    continue;
                };
                let state = state::decode(&set, column(row, 2)?)
                    .map_err(|why| GatesError::Corrupt(format!("{domain}: {why:?}")))?;
                views.extend(see(&set, &state, most - views.len()));
            }
        }
        self.shared.give_back(link);
        Ok(views)
    }

    async fn usages(&self, domain: Option<&str>) -> Result<Vec<DomainUsage>, GatesError> {
        let link = self.shared.desk().await?;
        let rows = link.query(sql::PARTITIONS_USAGE, &[&domain]).await?;
        self.shared.give_back(link);
        let count = |row, at| column::<i64>(row, at).map(|n| n as u32);
        let usage = |row| {
            let total = PartitionView {
                keys: count(row, 2)?,
                leases: count(row, 3)?,
                quarantined: count(row, 4)?,
                places: count(row, 5)?,
            };
            let bytes = column::<i64>(row, 6)? as u64;
            Ok(DomainUsage { domain: column(row, 0)?, partitions: count(row, 1)?, total, bytes })
        };
        rows.iter().map(usage).collect()
    }
}

async fn record(link: &Link, domain: &str, what: &str, note: &Note) -> Result<(), GatesError> {
    link.execute(sql::CHANGES_ADD, &[&domain, &what, &note.who, &note.why]).await?;
    link.execute(sql::CHANGES_PRUNE, &[&domain, &CHANGES_KEPT]).await?;
    Ok(())
}

#[async_trait]
impl GateOperations for PgGates {
    async fn configure(&self, domain: &str, set: GateSet) -> Result<(), GatesError> {
        let link = self.shared.desk().await?;
        self.shared.domains.configure(&link, domain, set).await?;
        self.shared.give_back(link);
        Ok(())
    }

    async fn inspect(
        &self,
        now: Option<Micros>,
        domain: &str,
        most: usize,
    ) -> Result<Vec<ScopeView>, GatesError> {
        let look = move |set: &_, state: &mut Partition, now| With(state.inspect(set, now, most), Vec::new());
        let parts = self.each(now, domain, None, look).await?;
        Ok(parts.into_iter().flat_map(|With(views, _)| views).take(most).collect())
    }

    async fn holders(&self, domain: &str, most: usize) -> Result<Vec<HolderView>, GatesError> {
        self.read(domain, most, |_, state, most| state.holders(most)).await
    }

    async fn waiters(&self, domain: &str, most: usize) -> Result<Vec<WaiterView>, GatesError> {
        self.read(domain, most, |set, state, most| state.waiters(set, most)).await
    }

    async fn force_release(
        &self,
        now: Option<Micros>,
        domain: &str,
        holder: &Holder,
        dry_run: bool,
        note: Note,
    ) -> Result<Released, GatesError> {
        let who = *holder;
        let release = move |set: &_, state: &mut Partition, now| {
            let (leases, freed) = state.force_release(set, now, &who, dry_run);
            With(leases, freed.woken)
        };
        let mut all = Released { leases: Vec::new(), woken: Vec::new() };
        for With(leases, woken) in self.each(now, domain, None, release).await? {
            all.leases.extend(leases);
            all.woken.extend(woken);
        }
        if !dry_run && !all.leases.is_empty() {
            self.record(domain, &format!("force_release {holder}"), &note).await?;
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
        let who = *holder;
        let promote = move |set: &_, state: &mut Partition, now| {
            let found = state.promote(set, now, &who);
            With(found, if found { vec![who] } else { Vec::new() })
        };
        let found = self.each(now, domain, None, promote).await?.iter().any(|With(found, _)| *found);
        if found {
            self.record(domain, &format!("promote {holder}"), &note).await?;
        }
        Ok(found)
    }

    async fn order_breaker(
        &self,
        now: Option<Micros>,
        domain: &str,
        (gate, key): (&str, Option<&str>),
        order: BreakerOrder,
        note: Note,
    ) -> Result<u32, GatesError> {
        self.names(domain, Some(gate)).await?;
        refuse_order(domain, gate, self.shared.known(domain).await?.set.is_breaker(gate), order)?;
        let at = match now {
            Some(now) => now,
            None => self.server_clock().await?,
        };
        let standing = self.orders_at(domain, at).await?;
        refuse_under(standing.iter().find(|o| o.gate == gate), key, order, at)?;
        if key.is_none() {
            self.stand(domain, gate, Order::of(gate, order, at, &note), at).await?;
        }
        let (name, of) = (gate.to_owned(), key.map(str::to_owned));
        let tell = move |set: &Compiled, state: &mut Partition, now| {
            // Of all keys it is told what holds now, by the version that the transaction compares: a newer word may have been said.
            let order = match (&of, set.ordered(&name, now)) {
                (Some(_), _) => order,
                (None, Some(until)) => BreakerOrder::Trip { lasts: until - now },
                (None, None) => BreakerOrder::Reset,
            };
            With(state.order_breaker(set, now, &name, of.as_deref(), order), Vec::new())
        };
        let changed = self.each(now, domain, None, tell).await?.iter().map(|With(count, _)| count).sum();
        if has_effect(changed, key) {
            self.record(domain, &order_text(gate, key, order), &note).await?;
        }
        Ok(changed)
    }

    async fn switch(
        &self,
        domain: &str,
        gate: Option<&str>,
        off: bool,
        note: Note,
    ) -> Result<Vec<Switch>, GatesError> {
        let names = self.names(domain, gate).await?;
        let link = self.shared.desk().await?;
        link.begin().await?;
        link.opt(sql::DOMAINS_LOCK, &[&domain]).await?;
        if off {
            let at: Micros = column(&link.one(sql::DOMAINS_CLOCK, &[]).await?, 0)?;
            link.execute(sql::SWITCHES_PUT, &[&domain, &names, &at, &note.who, &note.why]).await?;
        } else {
            link.execute(sql::SWITCHES_DELETE, &[&domain, &names]).await?;
        }
        let verb = if off { "disable" } else { "enable" };
        record(&link, domain, &format!("{verb} {}", gate.unwrap_or("all gates")), &note).await?;
        link.execute(sql::DOMAINS_CHANGED, &[&domain]).await?;
        link.commit().await?;
        self.shared.domains.load(&link, domain).await?;
        self.shared.give_back(link);
        self.switches(domain).await
    }

    async fn switches(&self, domain: &str) -> Result<Vec<Switch>, GatesError> {
        self.shared.known(domain).await?;
        let link = self.shared.desk().await?;
        let off = domains::switches(&link, domain).await?;
        self.shared.give_back(link);
        Ok(off)
    }

    async fn orders(&self, domain: &str) -> Result<Vec<Order>, GatesError> {
        self.shared.known(domain).await?;
        let now = self.server_clock().await?;
        self.orders_at(domain, now).await
    }

    async fn gates_of(&self, domain: &str) -> Result<Option<GateSet>, GatesError> {
        Ok(Some(self.shared.known(domain).await?.set.set().clone()))
    }

    fn heard(&self, domain: &str) -> Arc<Said> {
        self.shared.domains.get(domain).map_or_else(Arc::default, |known| known.said.clone())
    }

    async fn changes(&self, domain: &str) -> Result<Vec<Change>, GatesError> {
        self.shared.known(domain).await?;
        let link = self.shared.desk().await?;
        let rows = link.query(sql::CHANGES_ALL, &[&domain]).await?;
        self.shared.give_back(link);
        let change = |row| {
            let note = Note { who: column(row, 2)?, why: column(row, 3)? };
            Ok(Change { at: column(row, 0)?, what: column(row, 1)?, note })
        };
        rows.iter().map(change).collect()
    }

    async fn usage(&self) -> Result<Vec<DomainUsage>, GatesError> {
        self.usages(None).await
    }

    async fn clear(&self, domain: &str, dry_run: bool, note: Note) -> Result<DomainUsage, GatesError> {
        let unknown = || super::unknown(domain);
        let usage = self.usages(Some(domain)).await?.into_iter().next().ok_or_else(unknown)?;
        if !dry_run {
            let clear = |set: &_, state: &mut Partition, _| With(state.clear(set, false), Vec::new());
            self.each(None, domain, None, clear).await?;
            self.record(domain, "clear", &note).await?;
        }
        Ok(usage)
    }
}
